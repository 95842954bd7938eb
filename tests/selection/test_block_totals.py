"""Totals of several blocks of questions with abilities of their own, against sums over a cube."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import xarray as xr
from items import bank as one_ability
from scipy.special import expit

import irt_dask as irt
from irt_dask.errors import InputError

#: Blocks of questions: two of three, and two by themselves; slopes of any sign on blocks'.
OF = np.array([0, 1, 0, 1, -1, 1, 0, -1])
SLOPES = np.array([
    [1.2, 0.8, 2.0, 0.5, 1.5, 1.1, 0.9, 1.0],
    [0.9, -0.6, 1.1, 1.4, 0.0, 0.8, 0.7, 0.0],
    [0.1, -0.6, 0.8, 1.2, -1.0, 0.3, 0.0, -0.4],
])  # fmt: skip
IDS = [f"q{j}" for j in range(OF.size)]
#: Answers that a model of these items finds strange.
Y = np.array([1, 1, 0, 0, 1, 1, 0, 1])
W = np.array([1.0, 2.0, 0.5, 1.0, 0.0, 3.0, 1.0, 1.5])
STEP = 0.25
_AXIS = np.arange(-7.0, 7.0 + STEP / 2, STEP)
#: General ability and those of the blocks, (3, nodes).
CUBE = np.stack([v.ravel() for v in np.meshgrid(_AXIS, _AXIS, _AXIS, indexing="ij")])
MASS = np.exp(-0.5 * (CUBE**2).sum(axis=0))


def chances(slopes, of, nodes):
    """Probabilities of wrong and right, (2, questions, nodes)."""
    own = np.where(of[:, None] >= 0, nodes[1 + of], 0.0)
    logit = slopes[0][:, None] * nodes[0] + slopes[1][:, None] * own + slopes[2][:, None]
    return np.stack([expit(-logit), expit(logit)])


P = chances(SLOPES, OF, CUBE)


def bank(slopes=SLOPES, of=OF):
    loading = np.zeros((of.size, of.max() + 2))
    loading[:, 0] = slopes[0]
    loading[np.flatnonzero(of >= 0), 1 + of[of >= 0]] = slopes[1, of >= 0]
    names = ["general", *(f"b{k}" for k in range(of.max() + 1))]
    return xr.Dataset(
        {
            "item_loading": (("items", "latent_dims"), loading),
            "item_intercept": ("items", slopes[2]),
        },
        coords={
            "item_id": ("items", [f"q{j}" for j in range(of.size)]),
            "domain": ("latent_dims", names),
        },
        attrs={"model": "bifactor"},
    )


BANK = bank()


def posterior(y, asked, p=P, mass=MASS):
    w = mass * p[y[asked], asked].prod(axis=0)
    return w / w.sum()


def by_model(y, asked, weights):
    """Mean and variance of the total, answers not asked for drawn given abilities."""
    w, rest = posterior(y, asked), np.setdiff1d(np.arange(y.size), asked)
    given = weights[rest] @ P[1, rest]
    noise = weights[rest] ** 2 @ P[:, rest].prod(axis=0)
    mean = w @ given
    return weights[asked] @ y[asked] + mean, w @ (noise + (given - mean) ** 2)


def by_design(y, asked, weights, stratum, p=P, mass=MASS):
    """Estimate of the total by strata and its variance, each posterior summed anew."""
    predicted = {j: p[1] @ posterior(y, np.setdiff1d(asked, j), p, mass) for j in asked}
    total, ratio, df, parts = 0.0, 10.0, 10.0, []
    for h in np.unique(stratum):
        own, own_asked = np.flatnonzero(stratum == h), [j for j in asked if stratum[j] == h]
        n_all, n = own.size, len(own_asked)
        if n == n_all:
            total += weights[own] @ y[own]
            continue
        totals, residuals, expected = [], [], []
        for j in own_asked:
            others = np.array([i for i in own_asked if i != j], dtype=int)
            unseen = np.setdiff1d(own, others)
            left = weights[j] * (y[j] - predicted[j][j])
            t = weights[others] @ y[others] + weights[unseen] @ predicted[j][unseen]
            totals.append(t + (n_all - n + 1) * left)
            residuals.append(left)
            expected.append(weights[j] ** 2 * predicted[j][j] * (1.0 - predicted[j][j]))
        total += np.mean(totals)
        ratio += np.square(residuals - np.mean(residuals)).sum() / np.mean(expected)
        df += n - 1
        parts.append((1.0 - n / n_all) * n_all**2 / n * np.mean(expected))
    return total, sum(parts) * ratio / df


def samples(y, chosen):
    out = np.full((len(chosen), len(y)), -1, dtype=np.int8)
    for row, own in zip(out, chosen, strict=True):
        row[list(own)] = y[list(own)]
    return irt.from_array(out, item_id=IDS)


@pytest.mark.parametrize("weights", [np.ones(8), W])
def test_totals_of_the_model_are_sums_over_a_cube(weights):
    """Blocks answered in whole, in part and not at all; everything; nothing."""
    asked = [(0, 2, 6), (0, 1, 4), (1, 3, 5, 7), (4,), tuple(range(8)), ()]
    found = irt.predict_total(samples(Y, asked), BANK, item_weights=weights)
    mean, variance = np.transpose([by_model(Y, list(a), weights) for a in asked])
    all_points = weights.sum()
    np.testing.assert_allclose(found["person_total"] * all_points, mean, rtol=0, atol=1e-9)
    sd = found["person_total_sd"].values * all_points
    np.testing.assert_allclose(sd**2, variance, rtol=0, atol=1e-8)
    assert sd[4] == 0.0


@pytest.mark.parametrize("strata", [None, [*"abababab"], [*"aabbbbcc"]])
def test_totals_by_design_are_those_of_posteriors_without_each_answer(strata):
    """Strata that are not the blocks, too."""
    chosen = np.array([0, 1, 2, 3, 4, 6])
    label = np.array(["all"] * 8 if strata is None else strata)
    share = {h: (label[chosen] == h).sum() / (label == h).sum() for h in np.unique(label)}
    with pytest.warns(irt.IrtDaskWarning, match="questions were drawn"):
        found = irt.predict_total(
            samples(Y, [chosen]), BANK, item_weights=W, strata=label,
            inclusion_probability=[share[h] for h in label],
        )  # fmt: skip
    total, variance = by_design(Y, chosen, W, label)
    assert found["person_total_design"].item() * W.sum() == pytest.approx(total, abs=1e-9)
    se = found["person_total_design_se"].item() * W.sum()
    assert se == pytest.approx(np.sqrt(variance), abs=1e-8)


@pytest.mark.parametrize("weights", [None, W])
def test_over_all_samples_the_estimate_by_design_is_the_total(weights):
    r = samples(Y, list(itertools.combinations(range(8), 3)))
    with pytest.warns(irt.IrtDaskWarning, match="questions were drawn"):
        found = irt.predict_total(r, BANK, inclusion_probability=3 / 8, item_weights=weights)
    w = np.ones(8) if weights is None else weights
    assert abs(found["person_total_design"].values.mean() - w @ Y / w.sum()) < 1e-12
    assert abs(found["person_total"].values.mean() - w @ Y / w.sum()) > 1e-3


def test_an_answer_that_nobody_would_expect():
    """Without it the posterior lies where it had left next to no weight (e^-40)."""
    a = np.array([9.0, 2.0, 2.0, 2.0, 2.0, 1.0])
    slopes = np.stack([a, [0.0, 1.5, 1.5, 1.5, 1.5, 0.5], [60.0, 0.0, 0.0, 0.0, 0.0, 0.3]])
    of, y, asked = np.array([-1, 0, 0, 0, 0, 0]), np.array([0, 1, 1, 1, 1, -1]), np.arange(5)
    fine = np.arange(-9.0, 9.0, 0.05)
    plane = np.stack([v.ravel() for v in np.meshgrid(fine, fine, indexing="ij")])
    p, mass = chances(slopes, of, plane), np.exp(-0.5 * (plane**2).sum(axis=0))
    with pytest.warns(irt.IrtDaskWarning, match="questions were drawn"):
        found = irt.predict_total(
            irt.from_array(y[None], item_id=IDS[:6]), bank(slopes, of), inclusion_probability=5 / 6
        )
    total, variance = by_design(y, asked, np.ones(6), np.zeros(6), p, mass)
    assert found["person_total_design"].item() * 6.0 == pytest.approx(total, abs=1e-9)
    assert found["person_total_design_se"].item() * 6.0 == pytest.approx(variance**0.5, abs=1e-8)


def test_without_slopes_on_blocks_it_is_one_ability():
    flat = SLOPES * [[1.0], [0.0], [1.0]]
    y = samples(Y, [(0, 1, 4), (2, 3, 5), ()])
    known = one_ability(SLOPES[0], -SLOPES[2] / SLOPES[0], item_id=IDS)
    ours, other = irt.predict_total(y, bank(flat)), irt.predict_total(y, known)
    for name in ("person_total", "person_total_sd", "person_total_lower", "person_total_upper"):
        np.testing.assert_allclose(ours[name], other[name], rtol=0, atol=1e-8)


def made(n, of, lambdas, seed):
    """Answers of persons to questions of blocks, and the bank."""
    rng = np.random.default_rng(seed)
    a, d = rng.uniform(0.7, 1.6, of.size), rng.normal(0.0, 1.0, of.size)
    slopes = np.stack([a, lambdas[of] * a, d])
    x, z = rng.normal(size=(n, 1)), rng.normal(size=(n, of.max() + 1))
    y = (rng.random((n, of.size)) < expit(a * x + slopes[1] * z[:, of] + d)).astype(np.int8)
    return y, bank(slopes, of)


# 800 persons, level .95: within four binomial standard errors (.031), false-alarm rate 6e-5.
def test_intervals_hold_where_one_ability_would_not():
    """Two of three benchmarks are answered, and the total is over all of them."""
    of = np.repeat(np.arange(3), 20)
    y, items = made(800, of, np.array([0.9, 0.9, 0.9]), 5)
    seen = np.where(of < 2, y, -1)
    found = irt.predict_total(irt.from_array(seen, item_id=items["item_id"].values), items)
    truth = y.mean(axis=1)

    def held(t):
        return ((t["person_total_lower"] <= truth) & (truth <= t["person_total_upper"])).mean()

    assert abs(float(held(found)) - 0.95) < 0.031
    fit = irt.fit_marginal(y, standard_errors=False)
    one = irt.predict_total(irt.from_array(seen, item_id=fit["item_id"].values), fit)
    assert held(one) < 0.85


def test_draws_of_a_fit_and_persons_who_answered_everything():
    """Draws widen; persons who answered everything measure what the model misses."""
    of = np.repeat(np.arange(3), 6)
    y, _ = made(150, of, np.array([0.9, 0.9, 0.9]), 7)
    fit = irt.fit_bifactor(y, item_blocks=of.astype(str), n_draws=20, seed=1)
    drawn = irt.choose_items(fit, 9, method="random", strata=fit["item_stratum"], seed=2)
    assert "expected_total_sd" not in drawn.attrs
    asked = irt.from_array(y).select(items=fit["item_id"].values[drawn["item_selected"].values])
    point = fit.drop_vars(["item_loading_draw", "item_intercept_draw"])
    found, alone = irt.predict_total(asked, fit), irt.predict_total(asked, point)
    assert found.attrs["n_item_draws"] == 20
    assert found.attrs["ability"] == "independent N(0, 1): general and of each block"
    assert (found["person_total_sd"] > alone["person_total_sd"]).mean() > 0.9
    measured = irt.predict_total(asked, point, calibration=irt.from_array(y))
    assert measured.attrs["n_calibration"] == 150
    assert 0.8 < measured.attrs["misfit_ratio"] < 1.2  # the model is right
    with pytest.raises(InputError, match="draw questions at random"):
        irt.choose_items(fit, 9)


def test_draws_have_the_blocks_of_the_estimates():
    """Of edited items: a block without slopes has none in the draws either."""
    of = np.repeat(np.arange(3), 4)
    y, items = made(30, of, np.array([0.9, 0.8, 0.7]), 8)
    y[:, ::2] = -1
    rng = np.random.default_rng(9)
    for name in ("item_loading", "item_intercept"):
        drawn = items[name].expand_dims(draw=20).copy()
        drawn += np.where(drawn != 0.0, 0.1 * rng.normal(size=drawn.shape), 0.0)
        items[f"{name}_draw"] = drawn
    items["item_loading"][:4, 1] = 0.0
    without = items.copy(deep=True)
    without["item_loading_draw"][:, :4, 1] = 0.0
    r = irt.from_array(y, item_id=items["item_id"].values)
    found, other = irt.predict_total(r, items), irt.predict_total(r, without)
    np.testing.assert_array_equal(found["person_total"], other["person_total"])


def test_what_does_not_go_together_is_refused():
    graded = irt.from_array(np.tile([0, 1, 2], (3, 3))[:, :8], item_id=IDS, categories=3)
    with pytest.raises(InputError, match="other categories"):
        irt.predict_total(graded, BANK)
    with pytest.raises(InputError, match="not in items: 'other'"):
        irt.predict_total(irt.from_array(np.ones((2, 1)), item_id=["other"]), BANK)
