"""Scores hold no weights of persons: tables of them say so."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.cli import publish
from irt_dask.cli.spoken import typed
from irt_dask.errors import DataWarning

N = 300


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """Folders of scores of persons with and without weights, and the table of persons."""
    root = tmp_path_factory.mktemp("weighted")
    rng = np.random.default_rng(3)
    y = (rng.random((N, 6)) < 0.5).astype(int)
    ids = [f"p{i}" for i in range(N)]
    frame = pd.DataFrame(y, columns=[f"q{j}" for j in range(6)])
    frame.insert(0, "person", ids)
    frame.to_csv(root / "y.csv", index=False)
    persons = pd.DataFrame({"person": ids, "weight": 1 + y[:, 0] * 3})
    persons.to_csv(root / "persons.csv", index=False)
    fit = irt.fit_marginal(irt.ingest(root / "y.csv", root / "plain.store"), model="1pl")
    weighted = irt.ingest(root / "y.csv", root / "store", persons=root / "persons.csv")
    irt.score(weighted, fit, n_plausible=2, store=root / "scores")
    irt.score(weighted.select(weights="ignore"), fit, n_plausible=2, store=root / "ignored")
    irt.score(irt.open_responses(root / "plain.store"), fit, n_plausible=2, store=root / "plain")
    return root


def test_scores_of_weighted_persons_are_not_counted_once_without_a_word(scored):
    assert json.loads((scored / "scores" / "_scores.json").read_text())["weight_kind"] == "sampling"
    with pytest.warns(DataWarning, match="scores: persons have sampling weights") as said:
        irt.tabulate(scored / "scores", "pv*")
    with pytest.warns(DataWarning, match="persons have sampling weights"):
        irt.regress(scored / "scores", "pv* ~ 1")
    text = typed(str(said[0].message), publish.tabulate)
    assert "give --weight the column of a table that is joined by --join and --on" in text


def test_who_gives_weights_or_has_none_hears_nothing(scored):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = irt.tabulate(
            scored / "scores", "pv*", weight="weight", join=scored / "persons.csv",
            on=("person_id", "person"), statistics="mean",
        )  # fmt: skip
        counted_once = irt.tabulate(scored / "ignored", "pv*", statistics="mean")
        irt.tabulate(scored / "plain", "pv*", statistics="mean")
    assert table["estimate"][0] > counted_once["estimate"][0]
