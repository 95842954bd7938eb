"""Every key of a pipeline file reaches what it is for: none is read, checked and ignored."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from test_identity import config, leaves, with_another

from irt_dask.variables import DRAW
from irt_dask.workflow import RunConfig, fit_tests, stages
from irt_dask.workflow.stages import Context, stages_of

#: What stages call to compute; their results are not looked into here.
CALLED = (
    "ingest_responses", "simulate", "summarise", "fit_spectral", "fit_joint", "fit_bayes",
    "fit_marginal", "read_bank", "predictive_check", "score_persons", "fit_private_spectral",
)  # fmt: skip
#: What the stage of tests calls.
TESTS = ("item_fit", "item_curves", "person_fit", "dif")
#: Where another value has to be one that means something else.
OTHERS: dict[str, Any] = {
    "calibrate.method": "marginal",
    "data.weights": "ignore",
    "bayes.prior": "fixed",
    "bayes.prior_discrimination": (1.0, 0.5),
    "bayes.prior_intercept": (0.0, 1.0),
    "bayes.chains": 3,
}
#: Of the report, of where things are, other kinds of data than those of the configuration, and what
#: is published (:mod:`test_publishing`).
NOT_HERE = {"title", "directory", "cluster", "data.store", "data.builtin", "data.simulate"}
NOT_HERE |= {"population", "tables"}


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function from a configuration to all calls of its stages, in words."""
    directory, result, said = MagicMock(), MagicMock(), []
    result.sizes, result.n_quarantined = {DRAW: 10**6}, 0
    result.attrs.__getitem__.return_value = "normal"
    directory.load.return_value = directory.find.return_value = result
    responses = MagicMock(n_persons=10**5, n_items=9, max_weight=None)
    for view in (responses.select, responses.dichotomise):
        view.return_value = MagicMock(n_persons=10**5, n_items=9, max_weight=None)
    for name in (*CALLED, *TESTS):

        def call(*args: Any, name: str = name, **options: Any) -> Any:
            said.append((name, args, sorted(options.items())))
            return result

        monkeypatch.setattr(stages if name in CALLED else fit_tests, name, call)
    for name in ("netcdf", "by_item", "to_csv", "dif_table"):
        monkeypatch.setattr(fit_tests, name, MagicMock())
    for name in (
        "refuse_other_categories", "refuse_unused_weights", "check_prior", "check_reference",
        "write_run_report", "bank_checksum", "by_item", "to_csv",
    ):  # fmt: skip
        monkeypatch.setattr(stages, name, MagicMock())
    monkeypatch.setattr(stages, "open_responses", lambda path: responses)
    monkeypatch.setattr(stages, "looks", lambda config: ())

    def calls(config: RunConfig) -> str:
        said.clear()
        context = Context(config, directory, {"client": None})
        for stage in stages_of(config).values():
            stage(context)
        return repr(said)

    return calls


def changed(base: RunConfig, path: tuple[str, ...]) -> RunConfig:
    """The configuration with another value of one key."""
    name = ".".join(path)
    if name not in OTHERS:
        return with_another(base, path)
    section = getattr(base, path[0]).model_copy(update={path[1]: OTHERS[name]})
    return base.model_copy(update={path[0]: section})


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.filterwarnings("ignore:item_fit. S-X2 was:irt_dask.errors.Notice")
@pytest.mark.parametrize(
    "base, sections",
    [
        (config(), "seed data calibrate spectral joint bayes check score private"),
        (config(data={"simulate": {"persons": 900, "items": 3}}), "data.simulate"),
        (config(calibrate={"method": "marginal"}), "seed data marginal check score private"),
        (config(bayes={"model": "3pl"}), "seed data bayes check score private"),
        (config(tests={"item_fit": True, "dif_reference": "a"}), "seed tests"),
    ],
    ids=["bayes", "simulate", "marginal", "bayes, 3pl", "tests"],
)
def test_every_key_reaches_its_stage(called: Any, base: RunConfig, sections: str) -> None:
    usual = called(base)
    assert called(base) == usual
    keys = [p for p in leaves(base) if ".".join(p).startswith(tuple(sections.split()))]
    assert keys
    ignored = [".".join(path) for path in keys if called(changed(base, path)) == usual]
    assert set(ignored) <= NOT_HERE
    there = {".".join(p).partition(".")[0] for p in leaves(base)}
    assert there - NOT_HERE == {
        "seed", "data", "calibrate", "marginal", "spectral", "joint", "bayes", "check", "tests",
        "score", "private",
    } - ({"private"} if base.private is None else set())  # fmt: skip


def test_simulated_items_are_of_the_model_that_is_fitted(called: Any) -> None:
    sections = {"calibrate": {"method": "marginal"}, "marginal": {"model": "3pl"}}
    said = called(config(data={"simulate": {"persons": 900, "items": 3}}, **sections))
    assert "('simulate', (900, 3), [('client', None), ('missing', 0.0), ('model', '3pl')," in said
