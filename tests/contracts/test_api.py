"""What users rely on is as ``api.json`` has it, which is renewed by one command on purpose."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import api_snapshot as api
import pytest

import irt_dask as irt
from irt_dask import errors, variables
from irt_dask.cli.main import cli
from irt_dask.workflow.sections import JointConfig


def told(lines: list[str]) -> str:
    """What to do about differences."""
    return (
        f"{len(lines)} promise(s) differ from tests/contracts/api.json:\n\n" + "\n".join(lines)
        + "\n\nWhat is GONE or CHANGED breaks scripts: keep it for a minor version (irt_dask/"
        "deprecation.py, docs/stability.md) and say in CHANGELOG.md how to get the old. Then, as "
        f"for what is new:\n\n    {api.COMMAND}\n"
    )  # fmt: skip


def without_results(table: api.Table) -> api.Table:
    return {k: v for k, v in table.items() if not k.startswith(api.RESULT)}


def test_names_options_keys_and_formats_are_as_they_were() -> None:
    lines = api.differences(without_results(api.read()), api.table(results=False))
    assert not lines, told(lines)


@pytest.mark.slow
def test_results_have_the_attrs_and_variables_that_they_had() -> None:
    tracked = {k: v for k, v in api.read().items() if k.startswith(api.RESULT)}
    lines = api.differences(tracked, api.fixed())
    assert not lines, told(lines)


def test_the_file_is_sorted_and_holds_every_kind() -> None:
    """So that two branches that renew it merge by line."""
    table = api.read()
    assert api.FILE.read_text() == api.text(dict(sorted(table.items())))
    kinds = {k.partition(" ")[0] for k in table}
    assert kinds >= {"function", "class", "attribute", "exception", "variable", "suffix",
                     "item_flag", "model", "irt-dask", "file", "format", "result"}  # fmt: skip


# --- planted changes, each caught -----------------------------------------------------------------


def renamed_keyword(monkeypatch: pytest.MonkeyPatch) -> None:
    def fit_marginal(responses: Any, *, items_model: Any = "2pl", **options: Any) -> None: ...

    signature = inspect.signature(irt.fit_marginal)
    parameters = [
        p.replace(name="items_model") if p.name == "model" else p
        for p in signature.parameters.values()
    ]
    fit_marginal.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    monkeypatch.setattr(irt, "fit_marginal", fit_marginal)


def dropped_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(variables.VARIABLES, "item_guessing")


def changed_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(irt.fit_joint.__kwdefaults__, "max_iterations", 51)


def changed_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    table = variables.VARIABLES
    monkeypatch.setitem(table, "item_rank", replace(table["item_rank"], dims=("items", "draw")))


def renamed_option(monkeypatch: pytest.MonkeyPatch) -> None:
    option = next(p for p in cli.commands["score"].params if p.name == "plausible")
    monkeypatch.setattr(option, "opts", ["--plausibles"])


def changed_default_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JointConfig.model_fields["coreset"], "default", 1000)


def dropped_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(errors, "BusyError")


def other_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("irt_dask.workflow.directory._VERSION", 3)


PLANTED: dict[Callable[[pytest.MonkeyPatch], None], list[str]] = {
    renamed_keyword: [
        "GONE     function fit_marginal(model=)  (was: keyword, default '2pl')",
        "new      function fit_marginal(items_model=): keyword, default '2pl'",
    ],
    dropped_variable: ["GONE     variable item_guessing  (was: (items) of kind f, unit -)"],
    changed_default: [
        "CHANGED  function fit_joint(max_iterations=): keyword, default 50  ->  keyword, default 51"
    ],
    changed_dimensions: [
        "CHANGED  variable item_rank: (items) of kind iu, unit -  ->  "
        "(items, draw) of kind iu, unit -"
    ],
    renamed_option: [
        "GONE     irt-dask score --plausible  (was: integer range, default 0)",
        "new      irt-dask score --plausibles: integer range, default 0",
    ],
    changed_default_of_a_key: [
        "CHANGED  file of a run, joint.coreset: int, default 2000  ->  int, default 1000"
    ],
    dropped_error: ["GONE     exception BusyError  (was: in irt_dask.errors; is a IrtDaskError)"],
    other_format: [
        "CHANGED  format of run directories: writes and reads 2  ->  writes and reads 3"
    ],
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_changes_are_told(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = api.table(results=False)
    plant(monkeypatch)
    assert api.differences(before, api.table(results=False)) == PLANTED[plant]
    assert "CHANGELOG.md" in told(PLANTED[plant])


def test_a_result_that_lost_an_attr_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    method = api.registry.named("choppin")
    monkeypatch.setattr(api, "METHODS", (method,))
    monkeypatch.setattr(api, "files_of_scores", dict)  # which are scored
    before = api.fixed()
    original = getattr(irt, method.name)

    def less(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        del result.attrs["identification"]
        return result

    monkeypatch.setattr(irt, method.name, less)
    assert api.differences(before, api.fixed()) == [
        f"GONE     result of {method.name}, attr identification  (was: text)"
    ]
