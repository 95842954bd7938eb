"""Names that go away: the old one works, says what to write instead, and is gone in time."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from pydantic import model_validator

import irt_dask
from irt_dask import deprecation
from irt_dask.clusters.config import validated
from irt_dask.deprecation import Leaving, moved, removed_in, renamed, retired
from irt_dask.errors import InputError, IrtDaskDeprecationWarning
from irt_dask.workflow.sections import Section


@pytest.fixture(autouse=True)
def own_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deprecation, "LEAVING", [])


def test_an_old_keyword_works_for_one_minor_version() -> None:
    @renamed("n_draw", "n_draws", since="0.2")
    def fit(x: int, *, n_draws: int = 2000) -> tuple[int, int]:
        return x, n_draws

    assert fit(1) == (1, 2000)
    assert fit(1, n_draws=3) == (1, 3)
    with pytest.warns(IrtDaskDeprecationWarning) as caught:
        assert fit(1, n_draw=5) == (1, 5)
    (said,) = caught
    assert said.filename == __file__  # who has to change something
    assert str(said.message) == (
        "fit: n_draw is now called n_draws; write n_draws=5. The old name works until irt_dask 0.3"
    )
    with pytest.raises(InputError, match=r"n_draw=5 and n_draws=6 are the same option"):
        fit(1, n_draw=5, n_draws=6)
    with pytest.raises(TypeError, match="n_drawn"):
        fit(1, n_drawn=5)
    assert [*inspect.signature(fit).parameters] == ["x", "n_draws"]
    assert [Leaving("fit", "n_draw", "0.3")] == deprecation.LEAVING


def test_a_keyword_that_is_retired_does_what_it_did() -> None:
    @retired("half", since="1.9", instead="divide the result by 2")
    def fit(x: float, *, half: bool = False) -> float:
        return x / 2 if half else x

    assert fit(3.0) == 3.0
    with pytest.warns(IrtDaskDeprecationWarning) as caught:
        assert fit(3.0, half=True) == 1.5
    said = "fit: half goes away in irt_dask 1.10; divide the result by 2"
    assert (str(caught[0].message), caught[0].filename) == (said, __file__)


def test_a_key_of_a_file_by_its_old_name() -> None:
    class Chains(Section):
        draws: int = 0

        @model_validator(mode="before")
        @classmethod
        def _old_names(cls, given: Any) -> Any:
            return moved(given, "n_draws", "draws", of="[chains]", since="0.2")

    with pytest.warns(IrtDaskDeprecationWarning, match=r"\[chains\]: n_draws is now called draws"):
        assert validated(Chains, {"n_draws": 7}, "a.toml").draws == 7
    assert validated(Chains, {"draws": 7}, "a.toml").draws == 7


def test_it_is_seen_where_nobody_asked_for_it() -> None:
    """Python hides DeprecationWarnings of what is not the main program; not these."""
    assert issubclass(IrtDaskDeprecationWarning, irt_dask.IrtDaskWarning)
    assert not issubclass(IrtDaskDeprecationWarning, DeprecationWarning)
    hidden = [f for f in warnings.filters if f[0] == "ignore"]
    assert not any(issubclass(IrtDaskDeprecationWarning, f[2]) and f[1] is None for f in hidden)


def due(leaving: list[Leaving], version: str) -> list[Leaving]:
    """Those that the version should no longer have."""
    now = tuple(map(int, version.split(".")[:2]))
    return [x for x in leaving if tuple(map(int, x.gone.split("."))) <= now]


def test_nothing_stays_longer_than_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    text = "".join(p.read_text() for p in Path(irt_dask.__file__).parent.rglob("*.py"))
    if re.search(r"^@(renamed|retired)\(", text, re.M):  # loading everything takes a while
        for module in pkgutil.walk_packages(irt_dask.__path__, "irt_dask."):
            importlib.import_module(module.name)
    assert not due(deprecation.LEAVING, irt_dask.__version__)
    planted = [Leaving("fit", "n_draw", "0.3"), Leaving("fit", "half", "0.4")]
    assert due(planted, "0.3.1") == planted[:1]
    assert removed_in("0.9") == "0.10"
