"""Items at counts by ability: derivatives by differences, maxima against scipy."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize

from irt_dask.curves import MODELS, model_named
from irt_dask.curves.betas import Betas
from irt_dask.items import derivatives
from irt_dask.items.densities import ItemDensity
from irt_dask.items.derivatives import Counts
from irt_dask.items.maximum import Problem, likeliest, maximise
from irt_dask.kernels.joint import item_maximum

NODES = np.linspace(-5.0, 5.0, 41)
FLAT = (1.0, 1.0)


def true_items(name, m, rng):
    x = {
        "a": rng.uniform(0.5, 2.0, m),
        "d": rng.normal(size=m),
        "c": rng.uniform(0.05, 0.3, m),
        "u": rng.uniform(0.8, 0.95, m),
    }
    return np.stack([x[letter] for letter in model_named(name).letters])


def counts_of(name, x, rng, persons=3000.0):
    """Two parts, on nodes of their own, the second with the same persons for all items."""
    model, m, out = model_named(name), x.shape[1], []
    for items, nodes in ((np.arange(0, m, 2), NODES), (np.arange(1, m, 2), NODES[::2])):
        density = np.exp(-0.5 * nodes**2)
        seen = persons * density / density.sum() * np.ones((items.size, 1))
        if items[0]:
            seen = seen[:1]
        else:
            seen = seen * rng.uniform(0.5, 1.0, seen.shape)
        p = np.exp(model.log_p(x[:, items], nodes)[:, 1:])
        higher = rng.binomial(2000, p) / 2000.0 * seen[:, None]
        out.append(Counts(model, items, nodes, seen, higher))
    return out


def log_likelihood(name, counts, x):
    """Of each item, from probabilities."""
    out = np.zeros(x.shape[1])
    for c in counts:
        for i, j in enumerate(c.items):
            z = x[0, j] * c.nodes + x[1, j]
            own = dict(zip(model_named(name).letters, x[:, j], strict=True))
            guess, upper = own.get("c", 0.0), own.get("u", 1.0)
            p = guess + (upper - guess) / (1.0 + np.exp(-z))
            seen, right = c.seen[i if len(c.seen) > 1 else 0], c.higher[i, 0]
            out[j] = right @ np.log(p) + (seen - right) @ np.log1p(-p)
    return out


def problem(name, counts, m, prior=None, **fixed):
    """Bounds of the model's parameters; ``fixed`` are values of item 0 by letter."""
    model = model_named(name)
    low, high = np.array([p.bounds for p in model.parameters]).T[:, :, None] * np.ones(m)
    for letter, value in fixed.items():
        low[model.letters.index(letter), 0] = high[model.letters.index(letter), 0] = value
    of_all = np.where(np.isin(model.letters, model.shared), 0, -1)[:, None] + np.zeros((1, m), int)
    prior = prior or Betas.of(*(FLAT,) * len(model.parameters))
    return Problem(counts, low, high, ItemDensity(prior), of_all)


def start(name, m):
    return np.stack([np.full(m, p.usual) for p in model_named(name).parameters])


# --- derivatives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_derivatives(name):
    rng = np.random.default_rng(1)
    m = 9
    x = true_items(name, m, rng)
    model, counts = model_named(name), counts_of(name, x, rng)
    at = x + rng.normal(0.0, 0.02, x.shape)  # not the maximum
    d = derivatives.derivatives(counts, at)
    want = log_likelihood(name, counts, at)
    np.testing.assert_allclose(d.value, want, rtol=1e-12)
    np.testing.assert_allclose(derivatives.values(counts, at), want, rtol=1e-12)
    np.testing.assert_array_equal(derivatives.gradient(counts, at), d.gradient)
    free = np.ones(at.shape, dtype=bool)
    observed = derivatives.observed_information(counts, at, free)
    for k in range(len(x)):
        h = np.zeros_like(at)
        h[k] = 1e-5
        slope = (log_likelihood(name, counts, at + h) - log_likelihood(name, counts, at - h)) / 2e-5
        np.testing.assert_allclose(d.gradient[k], slope, rtol=1e-6, atol=1e-4)
        ends = [derivatives.gradient(counts, at + s * h) for s in (1.0, -1.0)]
        curvature = (ends[1] - ends[0]).T / 2e-5
        np.testing.assert_allclose(observed[:, k], curvature, rtol=1e-6, atol=1e-3)
    # The expected information is the variance of the scores under the model.
    for c in counts:
        p = np.exp(model.log_p(at[:, c.items], c.nodes))
        score = model.by_parameter(at[:, c.items], c.nodes)
        seen = np.broadcast_to(c.seen, (c.items.size, c.nodes.size))
        variance = np.einsum("iq,icq,aicq,bicq->iab", seen, p, score, score)
        np.testing.assert_allclose(d.information[c.items], variance, rtol=1e-10)


def test_observed_information_of_parameters_that_are_held():
    rng = np.random.default_rng(2)
    x = true_items("3pl", 4, rng)
    counts = counts_of("3pl", x, rng)
    free = np.ones(x.shape, dtype=bool)
    whole = derivatives.observed_information(counts, x, free)
    free[2, 1] = free[:, 3] = False
    some = derivatives.observed_information(counts, x, free)
    both = free.T[:, :, None] & free.T[:, None, :]
    assert (some[~both] == 0.0).all()
    np.testing.assert_allclose(some[both], whole[both], rtol=1e-8)


def test_chunks_do_not_matter(monkeypatch):
    rng = np.random.default_rng(3)
    x = true_items("3pl", 12, rng)
    counts = counts_of("3pl", x, rng)
    want = derivatives.derivatives(counts, x)
    monkeypatch.setattr(derivatives, "_CHUNK", 100)
    for got, of in zip(derivatives.derivatives(counts, x), want, strict=True):
        np.testing.assert_array_equal(got, of)


# --- the item step --------------------------------------------------------------------------------


def by_scipy(p, x0, j):
    """Maximum of item j alone, by values only."""
    bounds = list(zip(p.low[:, j], p.high[:, j], strict=True))
    one = [c.take(np.arange(p.low.shape[1]) == j) for c in p.counts]
    one = [c._replace(items=np.zeros(1, dtype=int)) for c in one if c.items.size]

    def loss(x):
        x = x[:, None]
        return -(log_likelihood(p.counts[0].model.name, one, x) + p.prior.log_density(x))[0]

    def slope(x):
        x = x[:, None]
        gradient = derivatives.gradient(one, x) + p.prior.gradient(x)
        return -gradient[:, 0]

    assert check_grad(loss, slope, x0) < 1e-2
    scale = 1e-3
    options = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 1000}
    found = minimize(lambda x: scale * loss(x), x0, jac=lambda x: scale * slope(x), bounds=bounds,
                     method="L-BFGS-B", options=options)  # fmt: skip
    return found.x, -found.fun / scale


CASES = {
    "2pl": ("2pl", {}, None),
    "3pl": ("3pl", {}, None),
    "3pl with a prior": ("3pl", {}, Betas.of(FLAT, FLAT, (5.0, 17.0))),
    "3pl with a parameter held": ("3pl", {"c": 0.11}, Betas.of(FLAT, FLAT, (5.0, 17.0))),
    "slope held": ("2pl", {"a": 0.7}, None),
}


@pytest.mark.parametrize("case", CASES)
def test_the_maximum_of_each_item(case):
    name, fixed, prior = CASES[case]
    rng = np.random.default_rng(4)
    m = 6
    counts = counts_of(name, true_items(name, m, rng), rng)
    p = problem(name, counts, m, prior, **fixed)
    found = maximise(p, start(name, m))
    for letter, value in fixed.items():
        assert found[model_named(name).letters.index(letter), 0] == value
    value = p.value(found, np.ones(m, dtype=bool))
    for j in range(m):
        x, best = by_scipy(p, np.clip(start(name, m), p.low, p.high)[:, j], j)
        assert value[j] >= best - 1e-9 * abs(best)
        np.testing.assert_allclose(found[:, j], x, rtol=0, atol=2e-3)
    slope = p.at(found, np.ones(m, dtype=bool)).gradient
    inside = (found > p.low) & (found < p.high)
    np.testing.assert_allclose(slope[inside], 0.0, atol=1e-5)
    assert (slope[(found == p.low) & (p.low < p.high)] <= 1e-9).all()


@pytest.mark.parametrize("case", CASES)
def test_compiled_steps_lead_to_the_same_end(case):
    name, fixed, prior = CASES[case]
    rng, m = np.random.default_rng(8), 6
    counts = counts_of(name, true_items(name, m, rng), rng)
    counts[0].higher[0] = counts[0].seen[0]  # everybody is right
    counts[0].higher[1] = 0.3 * counts[0].seen[1]  # nothing depends on ability
    p = problem(name, counts, m, prior, **fixed)
    found = likeliest(p, start(name, m), steps=200, precision=1e-10)
    general = maximise(p, start(name, m))
    np.testing.assert_allclose(found[:, 1:], general[:, 1:], rtol=0, atol=1e-7)
    own = [p.value(x, np.ones(m, dtype=bool))[0] for x in (found, general)]
    assert own[0] == pytest.approx(own[1], abs=1e-9)  # its slope hardly matters
    with mock.patch.object(item_maximum, "maximise", side_effect=AssertionError):
        if case == "2pl":
            with pytest.raises(AssertionError):
                likeliest(p, start(name, m), steps=9, precision=1.0)
        else:
            likeliest(p, start(name, m), steps=9, precision=1.0)


def test_a_maximum_at_a_bound():
    """Items that fall have the lowest slope, those that nobody guesses the lowest guessing."""
    rng = np.random.default_rng(5)
    m = 4
    x = true_items("3pl", m, rng)
    x[2] = 0.0
    counts = counts_of("3pl", x, rng)
    falling = counts[0].higher.copy()
    falling[0] = falling[0, :, ::-1] * counts[0].seen[0] / counts[0].seen[0, ::-1]
    counts[0] = counts[0]._replace(higher=falling)
    p = problem("3pl", counts, m)
    found = maximise(p, start("3pl", m))
    assert found[0, 0] == p.low[0, 0]
    d = p.at(found, np.ones(m, dtype=bool))
    assert d.gradient[0, 0] < 0.0
    guess = found[2] == p.low[2]
    assert guess.any()
    assert (d.gradient[2, guess] <= 0.0).all()
    for j in range(m):
        value = p.value(found, np.ones(m, dtype=bool))[j]
        assert value >= by_scipy(p, start("3pl", m)[:, j], j)[1] - 1e-9 * abs(value)


def test_a_slope_that_items_share():
    rng = np.random.default_rng(6)
    m = 5
    counts = counts_of("2pl", true_items("2pl", m, rng), rng)
    p = problem("1pl", counts, m)
    found = maximise(p, start("1pl", m))
    assert (found[0] == found[0, 0]).all()

    def loss(t):
        return -log_likelihood("1pl", counts, np.stack([np.full(m, t[0]), t[1:]])).sum() * 1e-3

    best = minimize(loss, np.append(1.0, np.zeros(m)), method="BFGS", options={"gtol": 1e-9})
    assert -loss(np.append(found[0, 0], found[1])) >= -best.fun - 1e-10 * abs(best.fun)
    np.testing.assert_allclose(np.append(found[0, 0], found[1]), best.x, rtol=0, atol=1e-3)
    d = p.at(found, np.ones(m, dtype=bool))
    assert abs(d.gradient[0].sum()) < 1e-5
    assert np.abs(d.gradient[0]).max() > 1.0  # its own slope would be another
    np.testing.assert_allclose(d.gradient[1], 0.0, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_no_step_leads_down(name):
    """Whatever the start, and however few steps; with shared parameters in the sum."""
    rng = np.random.default_rng(7)
    m, everything = 8, np.ones(8, dtype=bool)
    counts = counts_of(name, true_items(name, m, rng), rng, persons=40.0)
    p = problem(name, counts, m)
    for _ in range(10):
        x = start(name, m)
        x[0] = np.exp(rng.normal()) if p.shares else np.exp(rng.normal(0.0, 1.5, m))
        x[1] += rng.normal(0.0, 4.0, m)
        before = p.value(x, everything)
        for steps in (1, 2, 5):
            after = p.value(maximise(p, x, steps=steps), everything)
            if p.shares:
                after, before_ = after.sum(keepdims=True), before.sum(keepdims=True)
            else:
                before_ = before
            assert (after >= before_ - 1e-12 * np.abs(before_)).all()


def test_an_item_without_responses_stays():
    rng = np.random.default_rng(9)
    counts = counts_of("2pl", true_items("2pl", 4, rng), rng)
    counts[0].seen[1] = 0.0
    counts[0].higher[1] = 0.0
    p = problem("2pl", counts, 4)
    found = maximise(p, start("2pl", 4))
    np.testing.assert_array_equal(found[:, 2], start("2pl", 4)[:, 2])
    assert np.isfinite(found).all()
