"""Copies of persons, exact and near, against sums over pairs written out."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import irt_dask as irt
from irt_dask.errors import ApproximationWarning
from irt_dask.evaluate import answer_similarity as module


@pytest.fixture(scope="module")
def planted():
    """Person 50 is 3 again, 51 has nine in ten of 10's answers, 52 those of 10 observed."""
    y = irt.simulate(53, 150, seed=3).to_xarray()["response"].values
    bank = irt.fit_marginal(y, prior="empirical", positive="none", standard_errors=False)
    y[50], y[51, :135] = y[3], y[10, :135]
    y[20, ::4] = -1
    return irt.from_array(y, rows_per_block=11), bank


def test_planted_pairs_are_found_and_no_others(planted):
    pairs = irt.answer_similarity(*planted)
    found = [
        *zip(pairs["pair_first_person"].values, pairs["pair_second_person"].values, strict=True)
    ]
    assert found == [("3", "50"), ("10", "51")]
    assert pairs["pair_identical"].values.tolist() == [True, False]
    assert pairs.attrs["n_identical"] == 1
    assert 0.8 < pairs.attrs["similarity_spread"] < 1.2


def test_against_a_loop_over_pairs(planted):
    responses, bank = planted
    y = responses.to_xarray()["response"].values.astype(float)
    theta = irt.score(responses, bank)["person_ability"].values
    a, d = bank["item_discrimination"].values, bank["item_intercept"].values
    p = 1.0 / (1.0 + np.exp(-(a * theta[:, None] + d)))
    pairs = irt.answer_similarity(responses, bank, ability=(0.0, 1.0), fdr=0.999)
    assert pairs.sizes["pairs"] > 100
    at = dict(zip(pairs["pair_first_person"].values, range(pairs.sizes["pairs"]), strict=False))
    assert "20" in at
    median, spread = (pairs.attrs[f"similarity_{x}"] for x in ("median", "spread"))
    for k in range(0, pairs.sizes["pairs"], 9):
        one = pairs.isel(pairs=k)
        i, j = int(one["pair_first_person"]), int(one["pair_second_person"])
        both = (y[i] >= 0) & (y[j] >= 0)
        r, v = (y - p)[:, both], (p * (1 - p))[:, both]
        z = (r[i] @ r[j]) / np.sqrt(v[i] @ v[j])
        third = v * (1.0 - 2.0 * p)[:, both]
        of_gamma = stats.pearson3(third[i] @ third[j] / (v[i] @ v[j]) ** 1.5)
        z = stats.norm.isf(of_gamma.sf(z)) if z > 0.0 else stats.norm.ppf(of_gamma.cdf(z))
        assert np.isclose(one["pair_similarity"], (z - median) / max(spread, 1.0), atol=1e-6)
        assert np.isclose(one["pair_agreement"], (y[i] == y[j])[both].mean())
        expected = (p[i] * p[j] + (1 - p[i]) * (1 - p[j]))[both].mean()
        assert np.isclose(one["pair_expected_agreement"], expected, atol=1e-6)
        assert int(one["pair_n_items"]) == both.sum()


@pytest.mark.parametrize("difficulty", [-2.5, 2.5])
def test_chance_names_nobody_where_items_are_easy_or_hard(difficulty):
    """40 data sets of persons who are 60, and one pair of each: one has a false pair in 20.

    More than 8 have one in less than one of 5,000 fresh seeds; a normal tail has them in most.
    """
    a, d = np.ones(60), np.full(60, -difficulty)
    bank = xr.Dataset(
        {"item_discrimination": ("items", a), "item_intercept": ("items", d)},
        coords={"item_id": ("items", [str(j) for j in range(60)])}, attrs={"model": "2pl"},
    )  # fmt: skip
    false = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        y = rng.random((60, 60)) < 1.0 / (1.0 + np.exp(difficulty - rng.normal(size=(60, 1))))
        pairs = irt.answer_similarity(y.astype(int), bank, ability=(0.0, 1.0))
        false += int((~pairs["pair_identical"].values).any())
    assert false <= 8


def test_tiles_and_many_persons(planted, monkeypatch):
    whole = irt.answer_similarity(*planted)
    monkeypatch.setattr(module, "_CELLS", 53 * 40)
    tiled = irt.answer_similarity(*planted)
    assert np.allclose(whole["pair_similarity"], tiled["pair_similarity"], atol=1e-9)
    monkeypatch.setattr(module, "MOST_PAIRED", 52)
    with pytest.warns(ApproximationWarning, match="identical answers alone"):
        alone = irt.answer_similarity(*planted)
    assert alone["pair_first_person"].values.tolist() == ["3"]
    assert alone["pair_second_person"].values.tolist() == ["50"]


def test_who_answered_nothing_is_like_nobody(planted):
    responses, bank = planted
    y = responses.to_xarray()["response"].values.copy()
    y[30:33] = -1
    pairs = irt.answer_similarity(irt.from_array(y), bank)
    assert pairs.attrs["n_identical"] == 1
    assert pairs["pair_first_person"].values[pairs["pair_identical"]].tolist() == ["3"]
