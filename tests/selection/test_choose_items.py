"""Which questions are chosen: against all subsets, plain greedy search, and counting."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
import xarray as xr
from items import bank, probability
from scipy import stats
from scipy.special import expit

import irt_dask as irt
from irt_dask.errors import InputError
from irt_dask.selection import choose
from irt_dask.selection.choose import quotas

RNG = np.random.default_rng(5)
A, D = RNG.normal(0.9, 0.7, 12), RNG.normal(0.0, 1.2, 12)
ITEMS = bank(A, -D / A)
THETA = np.linspace(-5.0, 5.0, 401)
MASS = stats.norm.pdf(THETA) / stats.norm.pdf(THETA).sum()


def chosen(result):
    return np.flatnonzero(result["item_selected"].values)


SHIFT = 0.6


def left(own, a=A, d=D, weights=None):
    """Expected variance of the total with these questions, by matrices node by node."""
    p, w = probability(THETA, a, d), np.ones(a.size) if weights is None else weights
    v, u = p * (1.0 - p), np.stack([a, np.ones(a.size)])
    g = np.einsum("tj,cj->tc", v * w, u)
    information = np.einsum("tj,cj,ej->tce", v[:, own], u[:, own], u[:, own])
    m = np.linalg.inv(information + np.diag([1.0, SHIFT**-2]))
    rest = np.setdiff1d(np.arange(a.size), own)
    return MASS @ np.einsum("tc,tce,te->t", g, m, g) + (MASS @ v)[rest] @ w[rest] ** 2


def exactly_left(own):
    """The same by all patterns of answers: mean posterior variance of the total, on a grid."""
    x, own = np.linspace(-4.0, 4.0, 33), list(own)
    mass = np.multiply.outer(stats.norm.pdf(x), stats.norm.pdf(x)).ravel()
    mass /= mass.sum()
    theta, delta = np.repeat(x, x.size), SHIFT * np.tile(x, x.size)
    p = expit(np.multiply.outer(theta, A) + delta[:, None] + D)
    rest = np.setdiff1d(np.arange(A.size), own)
    given, noise, out = p[:, rest].sum(axis=1), (p * (1.0 - p))[:, rest].sum(axis=1), 0.0
    for y in itertools.product((0, 1), repeat=len(own)):
        w = mass * np.where(y, p[:, own], 1.0 - p[:, own]).prod(axis=1)
        mean = w @ given / w.sum()
        out += w @ (noise + (given - mean) ** 2)
    return out


def test_choices_are_those_of_a_plain_greedy_search():
    """Every question tried in every round; that gains of old rounds bound new ones saves work."""
    rng = np.random.default_rng(1)
    a, d = rng.normal(0.8, 0.8, 300), rng.normal(0.0, 1.5, 300)
    v, u = (p := probability(THETA, a, d)) * (1.0 - p), np.stack([a, np.ones(300)])
    g, own = np.einsum("tj,cj->tc", v, u), []
    precision = np.tile(np.diag([1.0, SHIFT**-2]), (THETA.size, 1, 1))
    for _ in range(12):
        m = np.linalg.inv(precision)
        along = np.einsum("tc,tce,ej->tj", g, m, u) ** 2
        known = np.einsum("cj,tce,ej->tj", u, m, u)
        gain = MASS @ (along * v / (1.0 + v * known)) + MASS @ v
        gain[own] = -1.0
        own.append(int(gain.argmax()))
        j = own[-1]
        precision = precision + v[:, j, None, None] * np.outer(u[:, j], u[:, j])
    found = irt.choose_items(bank(a, -d / a), 12)
    assert set(chosen(found)) == set(own)
    assert found.attrs["expected_total_sd"] == pytest.approx(
        np.sqrt(left(own, a, d)) / 300, rel=1e-6
    )


@pytest.mark.parametrize("n", [2, 4])
def test_choices_are_near_the_best_of_all_subsets(n):
    """In the formula within 2% of what can be gained; in truth among the best twentieth."""
    own = chosen(irt.choose_items(ITEMS, n))
    every = list(itertools.combinations(range(12), n))
    best, nothing = min(left(list(s)) for s in every), left([])
    assert nothing - left(list(own)) >= 0.98 * (nothing - best)
    truth = np.array([exactly_left(s) for s in every])
    assert (truth < exactly_left(own) - 1e-12).mean() <= 0.05


def test_strata_have_their_shares():
    strata = np.array(["a"] * 8 + ["b"] * 3 + ["c"])
    for method in ("variance", "cluster", "random"):
        found = irt.choose_items(ITEMS, 5, method=method, strata=strata)
        own = strata[chosen(found)]
        assert [int((own == h).sum()) for h in "abc"] == [3, 1, 1]
        assert found["item_stratum"].values.tolist() == strata.tolist()
        assert found.attrs["n_strata"] == 3


@pytest.mark.parametrize(
    "size, n", [([7, 5, 3], 6), ([100, 1, 1], 3), ([4, 4, 4], 7), ([1, 9], 10)]
)
def test_quotas_are_whole_shares(size, n):
    size = np.array(size)
    found = quotas(size, n)
    assert found.sum() == n
    assert ((found >= 1) & (found <= size)).all()
    away = np.abs(found - n * size / size.sum())
    assert (away[found > 1] < 1.0 + (found == 1).sum()).all()


def test_random_questions_have_the_probabilities_that_are_told():
    """Of 2,000 samples every question is in its share; chi-square at one in a thousand."""
    strata, times = np.array(["a"] * 7 + ["b"] * 5), np.zeros(12)
    blocks = choose._blocks(strata, tuple(ITEMS["item_id"].values), 5)
    for seed in range(2000):
        times += choose._random(blocks, seed)
    found = irt.choose_items(ITEMS, 5, method="random", strata=strata, seed=3)
    assert chosen(found).tolist() == np.flatnonzero(choose._random(blocks, 3)).tolist()
    p = found["item_inclusion_probability"].values
    assert p.tolist() == [3 / 7] * 7 + [2 / 5] * 5
    z = (times - 2000 * p) / np.sqrt(2000 * p * (1.0 - p))
    assert (z**2).sum() < stats.chi2.ppf(0.999, 12)


def test_seeds():
    one, again, other = (
        chosen(irt.choose_items(ITEMS, 5, method="random", seed=s)).tolist() for s in (1, 1, 2)
    )
    assert one == again != other
    assert irt.choose_items(ITEMS, 5).attrs.get("seed") is None


def test_each_cluster_sends_one():
    """Three kinds of questions, all but equal within: one of each."""
    rng = np.random.default_rng(3)
    a = np.repeat([0.3, 1.5, -1.0], 20) + rng.normal(0.0, 0.01, 60)
    d = np.repeat([-1.0, 0.5, 1.0], 20) + rng.normal(0.0, 0.01, 60)
    for seed in range(5):
        own = chosen(irt.choose_items(bank(a, -d / a), 3, method="cluster", seed=seed))
        assert (own // 20).tolist() == [0, 1, 2]


def test_equal_questions_are_chosen_as_often_as_asked():
    items = bank(np.ones(6), np.zeros(6))
    for method in ("variance", "cluster", "random"):
        assert chosen(irt.choose_items(items, 4, method=method)).size == 4
        assert chosen(irt.choose_items(items, 6, method=method)).size == 6


def test_questions_without_weight_are_chosen_for_what_they_say_alone():
    weights = np.r_[np.ones(6), np.zeros(6)]
    found = irt.choose_items(ITEMS, 3, item_weights=weights)
    assert (found.attrs["expected_total_sd"] * 6) ** 2 == pytest.approx(
        left(list(chosen(found)), weights=weights), rel=1e-6
    )


def test_a_random_choice_serves_the_estimate_by_design():
    rng = np.random.default_rng(8)
    a, d = rng.normal(0.9, 0.5, 80), rng.normal(0.0, 1.0, 80)
    items, strata = bank(a, -d / a), np.repeat(["x", "y"], [50, 30])
    y = (rng.random((40, 80)) < probability(rng.standard_normal(40), a, d)).astype(np.int8)
    drawn = irt.choose_items(items, 32, method="random", strata=strata, seed=1)
    own = chosen(drawn)
    r = irt.from_array(y[:, own], item_id=items["item_id"].values[own])
    found = irt.predict_total(r, items, inclusion_probability=drawn)
    assert found.attrs["design"] == "stratified random sample"
    apart = found["person_total_design"].values - y.mean(axis=1)
    assert np.abs(apart).max() < 0.25
    assert np.abs(apart).mean() > 0.0


@pytest.mark.parametrize(
    "n, options, message",
    [
        (0, {}, "n=0 must be a whole number of at least 1"),
        (13, {}, "n=13 is more than the 12 items"),
        (3, {"method": "best"}, "method='best' is not available"),
        (3, {"strata": np.arange(12)}, "n=3 is fewer than the 12 strata"),
        (3, {"seed": 0.5}, "seed=0.5 must be a whole number"),
        (3, {"item_weights": -np.ones(12)}, "not negative"),
    ],
)
def test_refusals(n, options, message):
    with pytest.raises(InputError, match=message):
        irt.choose_items(ITEMS, n, **options)


def test_items_of_several_abilities_are_refused():
    plane = xr.Dataset(
        {
            "item_loading": (("items", "latent_dims"), np.ones((3, 2))),
            "item_intercept": ("items", np.zeros(3)),
        },
        coords={"item_id": ("items", ["a", "b", "c"])},
    )
    with pytest.raises(InputError, match="item_loading"):
        irt.choose_items(plane, 2)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_hundred_thousand_questions():
    """Within a minute of a core, whatever else the machine does; it takes some seconds."""
    rng = np.random.default_rng(1)
    a, d = rng.normal(0.8, 0.6, 100_000), rng.normal(0.0, 1.5, 100_000)
    items, strata = bank(a, -d / a), np.arange(100_000) % 57
    for method in ("variance", "cluster", "random"):
        begin = time.process_time()
        found = irt.choose_items(items, 500, method=method, strata=strata)
        assert time.process_time() - begin < 60.0
        assert found["item_selected"].values.sum() == 500
