"""Ranks of persons: bands against their definition, and how often they hold.

False-alarm rates are for a fresh seed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr
from scipy.stats import binom, rankdata

import irt_dask as irt
from irt_dask.errors import InputError
from irt_dask.score import ranks


def made_scores(values, **attrs):
    ids = [f"p{i}" for i in range(len(values))]
    return xr.Dataset(
        {"person_plausible_value": (("persons", "plausible"), values)},
        coords={"person_id": ("persons", ids)},
        attrs=attrs,
    )


def abilities(rng, n, n_draws, sd):
    """True abilities of persons, and draws that are as far from what is known of them."""
    known = math.sqrt(1.0 - sd * sd) * rng.normal(size=(n, 1))
    return (known + sd * rng.normal(size=(n, 1)))[:, 0], known + sd * rng.normal(size=(n, n_draws))


def ranks_of(values):
    return rankdata(-values, axis=0).astype(int)


def within(top, theta):
    """Whether all true ranks are in their intervals."""
    true = ranks_of(theta)
    return bool(((top["person_rank_lower"] <= true) & (true <= top["person_rank_upper"])).all())


def order_needed(others, own):
    """The smallest order of intervals of some draws (persons, draws) that has another inside."""
    x, n = np.sort(others, axis=1), others.shape[1]
    for u in range(1, n + 1):
        if (x[:, n - u] <= own).all() and (own <= x[:, u - 1]).all():
            return u
    beyond = np.maximum(x[:, 0] - own, own - x[:, -1]) / (x[:, -1] - x[:, 0] + 1.0)
    return n + beyond.max()


@pytest.mark.parametrize("level", [0.5, 0.8, 0.93])
def test_bands_by_their_definition(level):
    """Each draw against the others, order by order; few persons have ties of ranks."""
    beyond = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, n_draws = int(rng.integers(2, 7)), int(rng.integers(16, 40))
        _, values = abilities(rng, n, n_draws, rng.uniform(0.1, 0.9))
        rank = ranks_of(values)
        needed = sorted(
            order_needed(np.delete(rank, j, axis=1), rank[:, j]) for j in range(n_draws)
        )
        u = needed[math.ceil(level * (n_draws + 1)) - 1] + 1
        x = np.sort(rank, axis=1)
        order, margin = min(u, n_draws), max(0, u - n_draws)
        lower, upper = x[:, n_draws - int(order)], x[:, int(order) - 1]
        more = margin * (x[:, -1] - x[:, 0] + 1)
        top = irt.top_persons(made_scores(values), 1, level=level)
        allowed = np.arange(1, n + 1)
        for i in range(n):
            own = allowed[(allowed >= lower[i] - more[i]) & (allowed <= upper[i] + more[i])]
            assert top["person_rank_lower"][i] == own.min()
            assert top["person_rank_upper"][i] == own.max()
        inside = (top["person_rank_lower"].values[:, None] <= rank) & (
            rank <= top["person_rank_upper"].values[:, None]
        )
        assert top.attrs["level_reached"] == inside.all(axis=0).mean() >= level
        assert top.attrs["order"] == order
        assert top.attrs["margin"] == pytest.approx(margin)
        beyond += margin > 0
    assert level < 0.9 or beyond  # both branches were seen


def test_of_many_draws_they_are_those_of_besag_and_others_one_order_wider():
    _, values = abilities(np.random.default_rng(1), 8, 2000, 0.4)
    rank = ranks_of(values)
    x = np.sort(rank, axis=1)
    for level in (0.8, 0.95):
        for u in range(1000, 2001):  # the published intervals, in which the draws themselves are
            low, high = x[:, 2000 - u, None], x[:, u - 1, None]
            if ((low <= rank) & (rank <= high)).all(axis=0).mean() >= level:
                break
        top = irt.top_persons(made_scores(values), 2, level=level)
        assert u < top.attrs["order"] <= u + 3  # of 2,001 draws the level times is one more
        assert top.attrs["margin"] == 0.0


def test_the_top_by_its_definition():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(6, 300)) + np.array([[0.0, 3.0, 1.0, 0.9, 2.5, -1.0]]).T
    for k in (1, 2, 4):
        top = irt.top_persons(made_scores(values), k)
        mean = values.mean(axis=1)
        np.testing.assert_array_equal(top["person_rank"], ranks_of(mean))
        np.testing.assert_array_equal(top["person_ability"], mean)
        best = set(np.argsort(-mean)[:k])
        np.testing.assert_array_equal(top["person_in_top"], [i in best for i in range(6)])
        sets = [set(np.argsort(-v)[:k]) for v in values.T]
        share = np.mean([s == best for s in sets])
        assert top.attrs["top_probability"] == share
        np.testing.assert_allclose(
            top["person_top_probability"], [np.mean([i in s for s in sets]) for i in range(6)]
        )
        for level, said in ((share - 1e-3, 1), (share + 1e-3, 0)):
            top = irt.top_persons(made_scores(values), k, level=level)
            assert top.attrs["top_established"] == said
    assert top["person_rank"].dtype == top["person_rank_lower"].dtype == np.int64


def test_ties_say_nothing():
    top = irt.top_persons(made_scores(np.zeros((4, 200))), 2)
    np.testing.assert_array_equal(top["person_rank"], [1, 2, 3, 4])
    np.testing.assert_array_equal(top["person_rank_lower"], 1)
    np.testing.assert_array_equal(top["person_rank_upper"], 4)
    np.testing.assert_allclose(top["person_top_probability"], 0.5, atol=0.15)
    assert top.attrs["top_established"] == 0


def test_parts_do_not_matter(monkeypatch):
    _, values = abilities(np.random.default_rng(3), 23, 57, 0.5)
    whole = irt.top_persons(made_scores(values), 4)
    for cells in (1, 100, 300):
        monkeypatch.setattr(ranks, "_CELLS", cells)
        assert irt.top_persons(made_scores(values), 4).identical(whole)


@pytest.mark.parametrize(
    ("n", "n_draws", "level", "sets"),
    [(12, 400, 0.8, 250), (30, 40, 0.8, 250), (30, 100, 0.95, 250), (300, 100, 0.9, 80)],
)
def test_a_further_draw_lies_inside_as_often_as_is_said(n, n_draws, level, sets):
    """Not above the level's misses, nor so far below them that something else is tested.

    False-alarm rate 1e-4 each.  The published intervals of 100 draws do not hold of 300 persons.
    """
    rng = np.random.default_rng([n, n_draws])
    missed = published = 0
    for _ in range(sets):
        theta, values = abilities(rng, n, n_draws, 0.4)
        missed += not within(irt.top_persons(made_scores(values), 3, level=level), theta)
        rank, true = ranks_of(values), ranks_of(theta)
        published += bool(((true < rank.min(axis=1)) | (true > rank.max(axis=1))).any())
    assert missed <= binom.isf(1e-4, sets, 1.0 - level)
    # ties of ranks, and one draw of 40 to 400, make it less than the level says
    assert missed >= binom.ppf(1e-4, sets, 0.5 * (1.0 - level))
    assert n < 300 or published > 0.9 * sets


def test_true_ranks_of_simulated_persons_lie_inside():
    """200 data sets of 12 to 30 persons, items known, at a level of 80%.

    Sets of the most able, of any size, are called so wrongly in a fifth of those that are called
    so, at most.  False-alarm rate 1e-4 each.
    """
    rng = np.random.default_rng(6)
    r = irt.simulate(200 * 30, 50, seed=5)
    scores = irt.score(r, r.truth.drop_vars("person_ability"), n_plausible=150, seed=1)
    missed = established = wrong = 0
    for first in range(0, 6000, 30):
        n = int(rng.integers(12, 31))
        own = {"persons": slice(first, first + n)}
        true = ranks_of(r.truth["person_ability"].values[own["persons"]])
        k = int(rng.integers(1, n))
        top = irt.top_persons(scores.isel(own), k, level=0.8)
        assert top.attrs["n_item_draws"] == 0
        inside = (top["person_rank_lower"] <= true) & (true <= top["person_rank_upper"])
        missed += not inside.all()
        established += top.attrs["top_established"]
        wrong += top.attrs["top_established"] and bool(((true <= k) != top["person_in_top"]).any())
    assert missed <= binom.isf(1e-4, 200, 0.2)
    assert established >= 10
    assert wrong <= binom.isf(1e-4, established, 0.2)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::irt_dask.errors.IrtDaskWarning")  # of such short chains
def test_true_ranks_lie_inside_where_items_are_unknown():
    """Items of the prior, 20 persons who calibrate them, 40 data sets: false-alarm rate 1e-4."""
    prior = irt.ItemPrior(discrimination=(1.0, 0.6), intercept=(0.0, 1.5))
    missed = 0
    for seed in range(40):
        items = irt.prior_items([f"q{j}" for j in range(20)], prior=prior, n_draws=1, seed=seed)
        r = irt.simulate(20, items=items.isel(draw=0), seed=seed)
        posterior = irt.fit_bayes(r, prior=prior, n_draws=200, n_warmup=100, seed=seed)
        scores = irt.score(r, posterior, n_plausible=200, seed=seed)
        top = irt.top_persons(scores, 5, level=0.8)
        assert top.attrs["n_item_draws"] == 200
        missed += not within(top, r.truth["person_ability"].values)
    assert missed <= binom.isf(1e-4, 40, 0.2)


def test_draws_of_items_are_told():
    r = irt.simulate(30, 8, seed=1)
    prior = irt.prior_items(r, n_draws=40, prior=irt.ItemPrior((1.0, 0.1), (0.0, 0.5)), seed=1)
    for draws, method, how in ((20, "eap", "eap"), (0, "map", "mean of plausible values")):
        scores = irt.score(r, prior, method=method, n_plausible=40, seed=2)
        top = irt.top_persons(scores, 3)
        assert top.attrs["n_item_draws"] == (40 if draws else 0)
        assert top.attrs["ability"] == how
        assert top["person_id"].equals(scores["person_id"])
    np.testing.assert_array_equal(
        top["person_ability"], scores["person_plausible_value"].mean("plausible")
    )


def test_one_of_two_abilities():
    values = np.random.default_rng(4).normal(size=(5, 30, 2))
    scores = xr.Dataset(
        {"person_plausible_value": (("persons", "plausible", "latent_dims"), values)},
        coords={"person_id": ("persons", list("abcde"))},
    )
    with pytest.raises(InputError, match=r"of 2 abilities.*scores.isel\(latent_dims=0\)"):
        irt.top_persons(scores, 2)
    one = irt.top_persons(scores.isel(latent_dims=1), 2)
    other = irt.top_persons(made_scores(values[:, :, 1]), 2)
    np.testing.assert_array_equal(one["person_rank"], other["person_rank"])


def test_refusals(tmp_path):
    r = irt.simulate(20, 5, seed=1)
    items = r.truth.drop_vars("person_ability")
    with pytest.raises(InputError, match=r"no person_plausible_value.*n_plausible=1000"):
        irt.top_persons(irt.score(r, items), 2)
    with pytest.raises(InputError, match=r"Dataset with person_id.*without store="):
        irt.top_persons(irt.score(r, items, n_plausible=30, store=tmp_path / "scores"), 2)
    with pytest.raises(InputError, match="Dataset with person_id"):
        irt.top_persons(np.zeros((3, 30)), 1)
    scores = irt.score(r, items, n_plausible=30)
    for k in (0, 20, 1.0, True):
        with pytest.raises(InputError, match=r"k=.* must be"):
            irt.top_persons(scores, k)
    for level in (0.0, 1.0, "0.9"):
        with pytest.raises(InputError, match=r"level=.* must be a number between 0 and 1"):
            irt.top_persons(scores, 2, level=level)
    with pytest.raises(InputError, match=r"level=0.99 needs at least 99 .* scores have 30"):
        irt.top_persons(scores, 2, level=0.99)
    values = np.zeros((3, 19))
    irt.top_persons(made_scores(values), 1)
    with pytest.raises(InputError, match=r"level=0.95 needs at least 19 .* have 18"):
        irt.top_persons(made_scores(values[:, 1:]), 1)
    values[1, 3] = np.nan
    with pytest.raises(InputError, match="not finite"):
        irt.top_persons(made_scores(values), 1)
