"""Posteriors of items of any model: draws of abilities, the item step, fits, refusals."""

import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from categories import ITEMS, category_probability, simulated
from items import quiet
from scipy.special import xlogy

import irt_dask as irt
from irt_dask.calibrate.bayes import samplers, shards
from irt_dask.calibrate.bayes.item_density import Conditional, Shapes
from irt_dask.calibrate.bayes.item_moves import FixedMoves
from irt_dask.calibrate.bayes.item_step import Reference, metropolis, modes, words_per_item
from irt_dask.calibrate.shared.shape_priors import guessing_priors
from irt_dask.curves import model_named
from irt_dask.curves.priors import ItemPrior
from irt_dask.errors import (
    ApproximationWarning,
    ConvergenceWarning,
    DataWarning,
    InputError,
    ItemWarning,
)
from irt_dask.items.derivatives import Counts
from irt_dask.items.mixture import Mixture, Part
from irt_dask.kernels.gibbs import table_draws
from irt_dask.kernels.posterior.person_weights import normal
from irt_dask.kernels.posterior.tables import padded, tables
from irt_dask.kernels.responses.layouts import Dense

fit_quietly = partial(
    quiet, irt.fit_bayes, kinds=(ConvergenceWarning, ItemWarning, ApproximationWarning)
)


def responses_of(names, n, seed, **more):
    y, k = simulated(names, n, seed, **more)
    ids = [f"i{j}" for j in range(len(names))]
    r = irt.from_array(y, item_id=ids, categories=dict(zip(ids, k, strict=True)))
    return r, dict(zip(ids, names, strict=True))


# --- draws of abilities ---------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("gpcm", "2pl", "gpcm"), ("graded", "3pl", "4pl", "gpcm")])
def test_draws_are_the_inverse_of_the_distribution_function(names):
    # 40 persons with the same items, and 25 with sets of their own, one at a time and together.
    rng = np.random.default_rng(3)
    y, k = simulated(names, 65, 3)
    y[40:][rng.random((25, len(names))) < 0.4] = -1
    groups = [(name, np.array([ITEMS[name]]).T) for name in names]
    items = Mixture(
        tuple(Part(model_named(n, k[j]), np.array([j])) for j, (n, _) in enumerate(groups))
    ).item_set(np.stack([np.pad(x[:, 0], (0, 4 - len(x))) for _, x in groups], axis=1))
    nodes = padded(np.arange(-35, 36) * 0.2)
    g, (log_mass,), u = tables(items, nodes), normal(nodes), rng.random(65)
    persons, seen, higher = table_draws.draw_counts(
        table_draws.lay_out(Dense(y), np.array(k)), g, log_mass, u
    )
    total = [np.zeros_like(x) for x in (persons, seen, higher)]
    first = np.concatenate([[0], np.cumsum(np.array(k) - 1)])
    for i in range(65):
        p = np.exp(log_mass)
        for j, name in enumerate(names):
            if y[i, j] >= 0:
                p = p * category_probability(name, nodes, ITEMS[name])[:, y[i, j]]
        at = int(np.searchsorted(p.cumsum() / p.sum(), u[i]))
        total[0][at] += 1
        for j in np.flatnonzero(y[i] >= 0):
            total[1][at, j] += 1
            if y[i, j] > 0:
                total[2][at, first[j] + y[i, j] - 1] += 1
    for got, exact in zip((persons, seen, higher), total, strict=True):
        np.testing.assert_array_equal(got, exact)


def test_draws_where_products_of_probabilities_are_too_small():
    # 800 items: easy ones answered wrong, hard ones right, by half of the persons.
    m, rng = 800, np.random.default_rng(5)
    models = Mixture((Part(model_named("3pl", 2), np.arange(m)),))
    d = np.where(np.arange(m) < m // 2, 3.0, -3.0) + 0.3 * rng.standard_normal(m)
    items = models.item_set(np.stack([np.full(m, 1.5), d, np.full(m, 1e-3)]))
    nodes, u = padded(np.arange(-60, 61) * 0.1), rng.random(60)
    y = np.tile(np.where(d > 0.0, 0, 1), (60, 1)).astype(np.int8)
    y[::2] = rng.random((30, m)) < 0.5
    g, (log_mass,) = tables(items, nodes), normal(nodes)
    p = table_draws.lay_out(Dense(y), np.full(m, 2))
    persons, seen, higher = table_draws.draw_counts(p, g, log_mass, u)
    log_p = items.log_p(nodes).reshape(m, 2, -1)
    log_w = log_mass + log_p[np.arange(m), y].sum(axis=1)
    assert (log_w.max(axis=1)[1::2] < -900.0).all()
    w = np.exp(log_w - log_w.max(axis=1, keepdims=True))
    at = ((w.cumsum(axis=1) / w.sum(axis=1, keepdims=True)) < u[:, None]).sum(axis=1)
    np.testing.assert_array_equal(persons, np.bincount(at, minlength=nodes.size))
    np.testing.assert_array_equal(
        higher, np.stack([y[at == q].sum(axis=0) for q in range(nodes.size)])
    )
    np.testing.assert_array_equal(seen, persons[:, None] * np.ones((1, m), dtype=int))


# --- the item step --------------------------------------------------------------------------------


def problem(name, k, n, seed):
    """An item's density given counts of n persons at 25 abilities."""
    rng = np.random.default_rng(seed)
    model, nodes = model_named(name, k), np.linspace(-3.0, 3.0, 25)
    persons = rng.multinomial(n, normal(nodes)[0].shape[0] * [1 / 25])
    p = category_probability(name, nodes, ITEMS[name][: k if k > 2 else None])
    counts = np.stack([rng.multinomial(m, q) for m, q in zip(persons, p, strict=True)]).T
    mixture = Mixture.of(model, 1)
    shapes = Shapes(mixture, guessing_priors(mixture, (5.0, 17.0)))
    seen, higher = counts.sum(axis=0, keepdims=True).astype(float), counts[None, 1:].astype(float)
    part = Counts(model, np.array([0]), nodes, seen, higher)
    return Conditional(shapes, [part], FixedMoves(ItemPrior(), 1.0, 1)), nodes


def brute_density(name, k, density, y):
    """Log density at coordinates (P, points), from textbook curves and priors alone."""
    x = density.shapes.models.parts[0].model.coordinates.parameters(y)
    c = density.counts[0]
    n = np.concatenate([c.seen - c.higher[0].sum(axis=0), c.higher[0]])
    out = np.zeros(y.shape[1])
    for i in range(y.shape[1] if n.any() else 0):  # some points are far out: curves overflow
        p = category_probability(name, c.nodes, x[:, i])
        out[i] = xlogy(n, p.T).sum()
    a = x[0]
    location = x[1] if k == 2 else x[1:].mean(axis=0) if name == "graded" else x[-1] / (k - 1)
    out += y[0] - 0.5 * (a - 1.0) ** 2 - 0.5 * (location / 2.0) ** 2
    if name == "3pl":
        out += 5.0 * np.log(x[2]) + 17.0 * np.log(1.0 - x[2])
    elif name == "graded":
        out -= 0.5 * (y[2] - np.log(4.0 / (k - 1))) ** 2
    else:
        steps = np.diff(x[1:], axis=0, prepend=0.0) - location
        out -= 0.5 * (steps**2).sum(axis=0) / 4.0
    return out


# Moments by a lattice of 31^3 points; 4,000 steps: errors of a mean about .05 SD, of an SD 8%.
@pytest.mark.slow
@pytest.mark.parametrize("n", [20, *(pytest.param(n, marks=pytest.mark.nightly) for n in (0, 400))])
@pytest.mark.parametrize(("name", "k"), [("3pl", 2), ("graded", 3), ("gpcm", 3)])
def test_item_step_has_its_conditional(name, k, n):
    density, nodes = problem(name, k, n, 5)
    rng = np.random.default_rng(6)
    start = np.zeros((3, 1))
    reference, kept = Reference(density.shapes, start, nodes), np.arange(nodes.size)
    y, accepted, draws = start.copy(), np.zeros(1, dtype=np.int64), []
    for _ in range(4_000):
        metropolis(density, reference, kept, rng.random((1, words_per_item(3))), y, accepted)
        draws.append(y[:, 0].copy())
    draws = np.array(draws)
    centre, sd = draws.mean(axis=0), draws.std(axis=0)
    axes = centre[:, None] + np.multiply.outer(sd, np.linspace(-6.0, 6.0, 31))
    lattice = np.meshgrid(*axes)
    points = np.stack([v.ravel() for v in lattice])
    log_p = brute_density(name, k, density, points)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = points @ p
    exact_sd = np.sqrt(((points - mean[:, None]) ** 2) @ p)
    assert (np.abs(centre - mean) / exact_sd).max() < 0.25
    np.testing.assert_allclose(sd, exact_sd, rtol=0.3)
    assert accepted[0] / 4_000 > 0.3


def test_density_is_that_of_textbooks_but_for_a_constant():
    rng = np.random.default_rng(8)
    for name, k in (("3pl", 2), ("graded", 3), ("gpcm", 3)):
        density, _ = problem(name, k, 50, 7)
        y = 0.4 * rng.standard_normal((3, 6))
        found = np.array([density.value(y[:, i : i + 1])[0] for i in range(6)])
        exact = brute_density(name, k, density, y)
        np.testing.assert_allclose(found - found[0], exact - exact[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "k"), [("3pl", 2), ("graded", 4), ("gpcm", 4)])
def test_a_step_from_the_reference_is_the_first_of_the_search(name, k):
    # The tables of the reference against derivatives that are found anew.
    density, nodes = problem(name, k, 200, 9)
    start = np.full((len(density.shapes.free), 1), 0.1)
    step, length, information = Reference(density.shapes, start, nodes).step(
        density, np.arange(nodes.size)
    )
    here = density.at(start)
    np.testing.assert_allclose(information, here.information, rtol=1e-10)
    exact = np.linalg.solve(here.information[0], here.gradient[:, 0])
    np.testing.assert_allclose(step[:, 0], exact * min(1.0, 2.0 / np.abs(exact).max()), rtol=1e-9)
    assert length[0] == pytest.approx(exact @ here.gradient[:, 0])
    at, _ = modes(density, start)
    again, _ = modes(density, at)
    assert np.abs(density.at(again).gradient).max() < np.abs(here.gradient).max() * 1e-3


# --- fits -----------------------------------------------------------------------------------------

MIXED = ("3pl", "graded", "gpcm", "2pl", "gpcm", "graded")


@pytest.fixture(scope="module")
def mixed():
    r, model = responses_of(MIXED, 400, 11)
    return r, model, fit_quietly(r, model=model, n_draws=100, n_warmup=60, seed=1)


@pytest.mark.slow
def test_a_fit_says_what_items_have(mixed):
    r, model, fit = mixed
    assert fit["item_model"].values.tolist() == list(model.values())
    assert fit["item_n_categories"].values.tolist() == list(r.n_categories)
    assert fit["item_step_intercept_draw"].dims == ("draw", "items", "steps")
    draws = fit["item_step_intercept_draw"].values
    np.testing.assert_allclose(draws.mean(axis=0), fit["item_step_intercept"].values, atol=0.15)
    assert (np.diff(draws[:, 1], axis=1) < 0).all()  # graded: falling
    assert (fit["item_guessing_draw"].values[:, 0] > 0).all()
    assert (fit["item_guessing_draw"].values[:, 1:] == 0).all()
    assert np.isfinite(fit["item_step_intercept_rhat"].values[1]).all()
    assert np.isnan(fit["item_step_intercept_rhat"].values[3, 1:]).all()
    assert fit.attrs["model"] == "by item"
    assert fit.attrs["guessing_prior"] == "Beta(5, 17)"


@pytest.mark.slow
def test_posterior_near_marginal_maximum_likelihood(mixed):
    # 400 persons: priors weigh little on slopes and steps; of 100 draws SDs are off by some 10%.
    r, model, fit = mixed
    marginal = quiet(irt.fit_marginal, r, model=model)
    for name in ("item_discrimination", "item_step_intercept"):
        value, se = marginal[name].values[1:], marginal[f"{name}_se"].values[1:]
        own = np.isfinite(se)
        z = ((fit[name].values[1:] - value) / se)[own]
        assert np.abs(z).max() < 1.2
        ratio = (fit[f"{name}_sd"].values[1:] / se)[own]
        assert ratio.min() > 0.6
        assert ratio.max() < 1.5


@pytest.mark.slow
def test_where_a_chain_is_cut_does_not_matter(mixed, monkeypatch):
    r, model, fit = mixed
    common = samplers._common
    monkeypatch.setattr(samplers, "_common", lambda *args: common(*args) | {"sweeps": 37})
    again = fit_quietly(r, model=model, n_draws=100, n_warmup=60, seed=1)
    for name in ("item_discrimination_draw", "item_step_intercept_draw", "item_guessing_draw"):
        np.testing.assert_array_equal(again[name].values, fit[name].values)


@pytest.mark.slow
def test_persons_are_scored_with_the_draws(mixed):
    r, _, fit = mixed
    plain = irt.score(r, fit, n_item_draws=0)
    drawn = irt.score(r, fit, n_item_draws=50)
    sd = drawn["person_ability_sd"] / plain["person_ability_sd"]
    assert float(sd.mean()) > 1.0
    np.testing.assert_allclose(drawn["person_ability"], plain["person_ability"], atol=0.15)


def test_a_category_that_nobody_has_is_said():
    y, _ = simulated(("gpcm", "gpcm", "gpcm"), 100, 12)
    y[y[:, 1] == 2, 1] = 1
    r = irt.from_array(y, categories=4)
    with pytest.warns(DataWarning, match=r"1 item\(s\) have a category that nobody has.*: 1 \(2\)"):
        fit = irt.fit_bayes(r, model="gpcm", n_draws=100, n_warmup=50)
    assert np.isfinite(fit["item_step_intercept"].values).all()


def test_a_category_that_few_in_a_shard_have_is_said():
    parts = [SimpleNamespace(n_persons=400)] * 10
    of_each = np.array([[40, 1960, 2000], [60, 1940, 2000], [0, 2000, 2000], [30, 3970, 0]])
    k = np.array([3, 3, 3, 2])
    with pytest.warns(ApproximationWarning, match=r"1 item.* fewer than 5 persons .*\(one\)"):
        shards.warn_rare(of_each, k, ("one", "two", "three", "four"), parts)
    with warnings.catch_warnings():  # a category that nobody has is said elsewhere
        warnings.simplefilter("error")
        shards.warn_rare(of_each[1:], k[1:], ("two", "three", "four"), parts)
        shards.warn_rare(of_each, k, ("one", "two", "three", "four"), parts[:1])


@pytest.mark.parametrize(("options", "match"), [
    ({"model": "nominal"}, "scores of nominal items may have any sign.*positive='none'"),
    ({"model": "nominal", "positive": "none", "prior": "hierarchical"}, "have scores"),
    ({"model": "graded", "n_dims": 2}, "fit_bayes is for items of two categories"),
    ({"model": "graded", "sampler": "polya-gamma"}, "others are for sampler='grid'"),
    ({"model": "graded", "guessing_prior": (2.0, 3.0)}, "guessing_prior"),
    ({"model": "3pl"}, "is for items of two categories"),
])  # fmt: skip
def test_what_is_refused(options, match):
    y, _ = simulated(("graded", "graded"), 60, 13)
    with pytest.raises(InputError, match=match):
        irt.fit_bayes(irt.from_array(y, categories=4), n_draws=100, n_warmup=50, **options)


@pytest.mark.slow
@pytest.mark.nightly
def test_blocks_do_not_matter():
    y, k = simulated(MIXED, 320, 21, missing=0.2)
    options = {"categories": k, "item_id": [f"i{j}" for j in range(len(MIXED))]}
    model = dict(zip(options["item_id"], MIXED, strict=True))
    fits = [
        fit_quietly(r, model=model, n_draws=100, n_warmup=50, seed=2, n_shards=2)
        for r in (
            irt.from_array(y, **options),
            irt.from_array(y, rows_per_block=31, **options),
            irt.from_array(y, rows_per_block=40, **options),
        )
    ]
    for name in ("item_discrimination_draw", "item_step_intercept_draw", "item_guessing_draw"):
        for other in fits[1:]:
            np.testing.assert_array_equal(other[name].values, fits[0][name].values)


# 1,500 x 6 in three shards against one chain: SD ratios of slopes and intercepts
# within 10% on average, means within .35 SD, so that shards which are not shrunk or not moved fail.
@pytest.mark.slow
@pytest.mark.nightly
def test_shards_are_one_posterior():
    r, model = responses_of(("graded", "gpcm", "2pl", "gpcm", "graded", "gpcm"), 1_500, 14)
    one = fit_quietly(r, model=model, n_draws=1_000, n_warmup=200, seed=3)
    few = fit_quietly(r, model=model, n_draws=1_000, n_warmup=200, n_shards=3, seed=4)
    assert few.attrs["method"] == "LS-WASP"
    for name in ("item_discrimination", "item_intercept", "item_step_intercept"):
        sd, value = one[f"{name}_sd"].values, one[name].values
        own = np.isfinite(sd)
        away = ((few[name].values - value) / sd)[own]
        ratio = (few[f"{name}_sd"].values / sd)[own]
        assert np.abs(away).max() < 0.35
        assert 0.9 < ratio.mean() < 1.1
