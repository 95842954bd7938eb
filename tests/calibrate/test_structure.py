"""Priors of items in blocks, with covariates: normals of all items, SciPy, joint distributions."""

import math
import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from batch_means import worst, z_scores
from items import quiet, respond
from scipy.stats import invwishart, multivariate_normal, norm

import irt_dask as irt
from irt_dask.calibrate.bayes import item_moves, structure
from irt_dask.calibrate.bayes.hierarchy import WORDS_MOVE, Hierarchy
from irt_dask.calibrate.bayes.signed_hierarchy import SignedHierarchy
from irt_dask.calibrate.bayes.structure import BLOCK_SD, COVARIATES_SD, Structured
from irt_dask.curves.grids import Grid
from irt_dask.curves.priors import ItemPrior
from irt_dask.errors import ConvergenceWarning, InputError, ItemWarning
from irt_dask.items.blocks import Blocks, Covariates, blocks, covariates
from irt_dask.kernels.gibbs import person_draws, person_layout
from irt_dask.kernels.responses import layouts

# Tighter than the default, so that simulations from them have moments to compare with.
PLAIN = Hierarchy(mean=(0.1, 0.2), mean_sd=(0.3, 0.8), df=20.0, scale=((1.5, 0.5), (0.5, 13.0)))
SIGNED = SignedHierarchy(
    mean=(0.0, 0.2), mean_sd=(0.3, 0.8), df=20.0, scale=((4.0, 0.0), (0.0, 13.0))
)
fit_quietly = partial(quiet, irt.fit_bayes, kinds=(ConvergenceWarning, ItemWarning))


def structured(plain, block, n_covariates=1, seed=0):
    """A prior of items in these blocks, with random covariates."""
    block = np.asarray(block)
    x = np.random.default_rng(seed).normal(size=(n_covariates, block.size))
    x = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
    labels = tuple("abcdef"[: block.max() + 1])
    names = tuple(f"x{k}" for k in range(n_covariates))
    return Structured.of(
        plain, Blocks(labels, block), Covariates(names, x, np.ones(n_covariates)), block.size
    )


@pytest.fixture
def two_covariances(monkeypatch):
    """Blocks of two items have a covariance of their own."""
    monkeypatch.setattr(structure, "LEAST_ITEMS", 2)


def design(prior):
    """Rows of z, and means and SDs of the coefficients, by the words of the documentation."""
    of_blocks = [prior.block == b for b in range(prior.block.max() + 1)]
    of_blocks = of_blocks if len(of_blocks) > 1 else []
    z = np.array([np.ones(prior.block.size), *of_blocks, *prior.covariate], dtype=float)
    sd = [prior.mean_sd, *[BLOCK_SD] * len(of_blocks)]
    sd += [np.array(COVARIATES_SD) / math.sqrt(len(prior.covariate))] * len(prior.covariate)
    mean = np.zeros((len(z), 2))
    mean[0] = prior.mean
    return z, mean, np.array(sd)


def law_of_items(prior, held, power=1.0):
    """The normal of all items, item by item, coefficients integrated out."""
    z, mean, sd = design(prior)
    group = prior.group_of_block[prior.block]
    m = z.shape[1]
    covariance = np.zeros((2 * m, 2 * m))
    for j in range(m):
        covariance[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] = held[group[j]]
        for k in range(m):
            shared = np.diag((z[:, j, None] * z[:, k, None] * sd**2).sum(axis=0))
            covariance[2 * j : 2 * j + 2, 2 * k : 2 * k + 2] += shared
    return multivariate_normal((z.T @ mean).ravel(), covariance / power)


def some_items(m, seed):
    rng = np.random.default_rng(seed)
    return np.stack([rng.normal(0.2, 0.4, m), rng.normal(-0.5, 1.2, m)])


def some_covariances(n, seed):
    root = np.random.default_rng(seed).normal(0.0, 0.5, (n, 2, 2))
    return root @ root.transpose(0, 2, 1) + 0.1 * np.eye(2)


# --- conditionals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [PLAIN, SIGNED], ids=["log a", "a"])
def test_one_block_is_no_structure(plain):
    """Every conditional, and moves with the same random numbers: those of the plain prior."""
    m = 7
    prior, x = structured(plain, np.zeros(m, dtype=int), 0), some_items(m, 1)
    rng = np.random.default_rng(2)
    mean, covariance = rng.normal(size=2), some_covariances(1, 3)
    held, plainly_held = prior.holding(covariance), plain.holding(covariance[0])
    u, words, sums = rng.random(3), rng.random(WORDS_MOVE), (50.0, 3.0, 61.0)
    pairs = [
        (prior.mean_given(x, covariance), plain.mean_given(x, covariance[0])),
        ([prior.draw_mean(x, covariance, 0.4, u[:2])],
         [plain.draw_mean(x, covariance[0], 0.4, u[:2])]),
        ([prior.draw_covariance(x, mean[None], u)], [plain.draw_covariance(x, mean, u)]),
        ([prior.covariance_given(x, mean[None], np.ones((m, 2, 2)))],
         [plain.covariance_given(x, mean, np.ones((m, 2, 2)))]),
        (held.log_density(x), plainly_held.log_density(x)),
        ([held.log_weights(x, mean[None])], [plainly_held.log_weights(x, mean)]),
        (prior.move(x, mean[None], covariance, 1.0, sums, words),
         plain.move(x, mean, covariance[0], 1.0, sums, words)),
        (held.move(x, mean[None], covariance, 0.3, sums, words),
         plainly_held.move(x, mean, covariance[0], 0.3, sums, words)),
        (held.normals(mean[None], covariance, 0.3, m),
         plainly_held.normals(mean, covariance[0], 0.3, m)),
    ]  # fmt: skip
    for ours, theirs in pairs:
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(np.ravel(one), np.ravel(other), rtol=1e-10, atol=1e-12)
    drawn = {
        "item_prior_mean_draw": rng.normal(size=(5, 1, 2)),
        "item_prior_covariance_draw": some_covariances(5, 4)[:, None],
    }
    slopes = np.exp(rng.normal(size=(5, m)))
    plainly = {k: v[:, 0] for k, v in drawn.items()}
    np.testing.assert_allclose(prior.pulls(drawn, slopes), plain.pulls(plainly, slopes), rtol=1e-12)


@pytest.mark.usefixtures("two_covariances")
@pytest.mark.parametrize("plain", [PLAIN, SIGNED], ids=["log a", "a"])
def test_density_by_a_normal_of_all_items(plain):
    prior, held = structured(plain, [0, 0, 1, 2, 1, 0, 1], 2), some_covariances(3, 5)
    x = some_items(7, 6)
    prior = prior.holding(held)
    law = law_of_items(prior, held)
    value, slope = prior.log_density(x)
    assert value == pytest.approx(law.logpdf(x.T.ravel()), rel=1e-11)
    exact = np.linalg.solve(law.cov, law.mean - x.T.ravel()).reshape(-1, 2).T
    np.testing.assert_allclose(slope, exact, atol=1e-9)
    a = x[0] if plain.signed else np.exp(x[0])
    of_slopes, _ = prior.log_density_of_slopes(a, x[1])
    assert of_slopes == pytest.approx(value - (0.0 if plain.signed else x[0].sum()), rel=1e-11)


@pytest.mark.usefixtures("two_covariances")
def test_coefficients_are_drawn_from_their_conditional():
    """40,000 draws against the normal that conditioning the joint one gives; |z| < 5."""
    prior, x, n = structured(PLAIN, [0, 0, 1, 1, 2, 0], 1), some_items(6, 7), 40_000
    held = some_covariances(3, 8)
    z, centre, sd = design(prior)
    by = np.kron(z.T, np.eye(2))  # of coefficients, row by row, to items, item by item
    before = np.diag(sd.ravel() ** 2)
    law = law_of_items(prior, held)
    gain = before @ by.T @ np.linalg.inv(law.cov)
    mean = centre.ravel() + gain @ (x.T.ravel() - law.mean)
    exact = before - gain @ by @ before
    for power in (1.0, 0.2):
        rng = np.random.default_rng(9)
        u = rng.random((n, prior.words_mean))
        got = prior.draw_mean(np.broadcast_to(x, (n, *x.shape)), held, power, u).reshape(n, -1)
        score = (got.mean(axis=0) - mean) / np.sqrt(np.diag(exact) / power / n)
        assert np.abs(score).max() < 5
        spread = exact / power
        np.testing.assert_allclose(np.cov(got.T), spread, rtol=0.05, atol=0.03 * spread.max())


@pytest.mark.usefixtures("two_covariances")
def test_covariances_are_drawn_from_their_conditionals():
    prior, x, n = structured(PLAIN, [0, 0, 1, 1, 1, 2], 1), some_items(6, 10), 40_000
    mean = np.random.default_rng(11).normal(0.0, 0.5, (len(prior.design), 2))
    rng = np.random.default_rng(12)
    u = rng.random((n, prior.words_covariance))
    got = prior.draw_covariance(np.broadcast_to(x, (n, *x.shape)), mean, u)
    assert got.shape == (n, 3, 2, 2)
    given = prior.covariance_given(x, mean)
    away = x - mean.T @ design(prior)[0]
    for g, items in enumerate(([0, 1], [2, 3, 4], [5])):
        own = away[:, items]
        law = invwishart(PLAIN.df + len(items), np.array(PLAIN.scale) + own @ own.T)
        np.testing.assert_allclose(got[:, g].mean(axis=0), law.mean(), rtol=0.02, atol=0.01)
        np.testing.assert_allclose(given[g], law.mean(), rtol=1e-12)
        theirs = np.log(law.rvs(n, random_state=rng)[:, 1, 1])
        ours = np.log(got[:, g, 1, 1])
        assert abs(ours.mean() - theirs.mean()) < 5 * math.hypot(ours.std(), theirs.std()) / 200


@pytest.mark.usefixtures("two_covariances")
def test_weights_are_a_product_over_covariances():
    """Of the plain prior's weights for the items of each."""
    block, held = np.array([0, 0, 1, 1, 1]), some_covariances(2, 13)
    prior = structured(PLAIN, block, 1).holding(held)
    x, mean = some_items(5, 14), np.random.default_rng(15).normal(0.0, 0.3, (4, 2))
    expected = 0.0
    means = mean.T @ design(prior)[0]
    for g in range(2):
        at = block == g
        # every item's own mean taken off, so that a common one is 0
        own = PLAIN.holding(held[g]).log_weights((x - means)[:, at], np.zeros(2))
        expected += own
    assert prior.log_weights(x, mean) == pytest.approx(expected, rel=1e-12)


def log_joint(prior, theta, x, mean, covariance, power):
    """Log density of abilities, items to a power, coefficients to it, and covariances."""
    z, centre, sd = design(prior)
    group = prior.group_of_block[prior.block]
    away = x - mean.T @ z
    value = norm.logpdf(theta).sum()
    for j in range(x.shape[1]):
        value += power * multivariate_normal(np.zeros(2), covariance[group[j]]).logpdf(away[:, j])
    value += power * norm.logpdf(mean, centre, sd).sum()
    if prior.held is None:
        law = invwishart(prior.df, np.array(prior.scale))
        value += sum(law.logpdf(c) for c in covariance)
    return value


@pytest.mark.usefixtures("two_covariances")
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("plain", [PLAIN, SIGNED], ids=["log a", "a"])
def test_stretches_have_their_density_on_the_orbit(plain, held):
    rng = np.random.default_rng(16)
    for _ in range(5):
        covariance, m, n = some_covariances(3, int(rng.integers(99))), 7, int(rng.integers(5, 60))
        prior = structured(plain, [0, 0, 1, 2, 1, 2, 1], 2, int(rng.integers(99)))
        prior = prior.holding(covariance) if held else prior
        theta, x = rng.normal(0.1, 1.2, n), rng.normal(0.2, 0.8, (2, m))
        mean = rng.normal(0.0, 0.5, (len(prior.design), 2))
        power = rng.uniform(0.1, 1.0) if held else 1.0
        log_density, slope = prior._on_orbit(
            x, mean, covariance, power, float(n), float(theta @ theta)
        )
        exact = []
        for v in (-0.4, 0.0, 0.7):
            to, coefficients, wide = prior._stretched(x.copy(), mean.copy(), covariance, v)
            value = log_joint(prior, theta / math.exp(v), to, coefficients, wide, power)
            jacobian = -n * v
            if plain.signed:  # abilities, slopes, their coefficients, three entries of covariances
                jacobian += v * (m + len(mean) + (0 if held else 9))
            exact.append(value + jacobian)
        got = [log_density(v) for v in (-0.4, 0.0, 0.7)]
        np.testing.assert_allclose(np.diff(got), np.diff(exact), rtol=1e-9, atol=1e-8)
        h = 1e-5
        numerical = (log_density(0.3 + h) - log_density(0.3 - h)) / (2.0 * h)
        assert slope(0.3)[0] == pytest.approx(numerical, rel=1e-6, abs=1e-4)


@pytest.mark.usefixtures("two_covariances")
@pytest.mark.parametrize("plain", [PLAIN, SIGNED], ids=["log a", "a"])
def test_moves_leave_the_likelihood_and_go_along_the_orbit(plain):
    """Two points of one orbit and the same random numbers: the same destination, if accepted."""
    rng = np.random.default_rng(17)
    for held in (False, True) * 5:
        n, block = int(rng.integers(5, 500)), rng.integers(0, 3, 12)
        block[:3] = range(3)
        prior, covariance = structured(plain, block, 1, int(rng.integers(99))), None
        covariance = some_covariances(len(prior.groups), 18)
        prior = prior.holding(covariance) if held else prior
        theta, x = rng.normal(0, 1, n), rng.normal(0.1, 0.5, (2, 12))
        mean, words = rng.normal(0.0, 0.5, (len(prior.design), 2)), rng.random(WORDS_MOVE)
        words[2] = 1e-300  # accept

        def moved(theta, x, mean, covariance=covariance, words=words, prior=prior):
            sums = float(theta.size), float(theta.sum()), float((theta**2).sum())
            return prior.move(x, mean, covariance, 1.0, sums, words)

        one, a = moved(theta, x, mean), prior.slopes(x)
        moved_mean, with_it = mean.copy(), covariance
        moved_mean[:, 1] += 0.3 * (prior._along(a) if held or not prior.signed else mean[:, 0])
        if prior.signed and not held:
            shear = np.array([[1.0, 0.0], [0.3, 1.0]])
            with_it = shear @ covariance @ shear.T
        shifted = x + np.stack([0.0 * a, 0.3 * a]), moved_mean, with_it
        for got, exact in zip(moved(theta - 0.3, *shifted), one, strict=True):
            np.testing.assert_allclose(got, exact, atol=1e-8)
        # what the items' density sees of a stretch is nothing but the common factor
        before, after = prior.slopes(x).mean(), prior.slopes(one[0]).mean()
        np.testing.assert_allclose(
            prior.slopes(one[0]) / after, prior.slopes(x) / before, rtol=1e-9
        )


# --- the chain: joint distribution test (Geweke 2004) ---------------------------------------------


def joint_z(prior, n_iterations, seed, *, power=1.0, error=None):
    """z-scores of functionals of a chain that alternates data with one sweep given data."""
    rng = np.random.default_rng(seed)
    m, n, nodes = prior.block.size, 10, Grid(141).nodes
    x, accepted = (
        np.stack([np.full(m, 1.0 if prior.signed else 0.0), np.zeros(m)]),
        np.zeros(m, int),
    )
    towards = np.linspace(0.5, 1.5, m) if prior.signed else np.empty(0)
    moves = item_moves.moves_for(prior, power, m, {"log_a": x[0], "d": x[1]}, towards)
    z, centre, sd = design(prior)
    sd = sd / math.sqrt(power)
    e = np.array(prior.scale) / (prior.df - 3.0) if prior.held is None else prior.held[0] / power
    out = {}

    def note(name, value, exact):
        out.setdefault(name, (np.empty(n_iterations), exact))[0][t] = value

    for t in range(n_iterations):  # noqa: B007  which note() reads
        a = prior.slopes(x)
        y = respond(rng, rng.standard_normal(n), a, x[1])
        at, right, seen, persons = person_draws.draw_counts(
            person_layout.prepare(layouts.Dense(y)), a, x[1], nodes, rng.random(n)
        )
        wide = 1.01 if error == "abilities 1% wide" else 1.0
        counts = item_moves.Counts(at, right, seen, persons, wide * nodes)
        u = rng.random(moves.words)
        moves.sweep(counts, np.zeros((2, m)), u, x[0], x[1], accepted, rescaled=True)
        if error == "covariances 1% wide":
            moves.covariance = 1.01 * moves.covariance
            moves._known()
        away = x - moves.mean.T @ z
        for k, name in enumerate("ud"):
            if not (prior.signed and k == 0):  # of slopes half of the space is left
                note(name, x[k].mean(), (z.T @ centre)[:, k].mean())
                note(f"B {name}", moves.mean[:, k].sum(), centre[:, k].sum())
            square = (z.T**2 @ sd**2)[:, k] + (z.T @ centre)[:, k] ** 2
            note(f"{name}^2", (x[k] ** 2).mean(), square.mean() + e[k, k])
            first = float((z[:, 0] * z[:, 1]) @ sd[:, k] ** 2) + float(
                (z.T @ centre)[0, k] * (z.T @ centre)[1, k]
            )
            note(f"{name}1 {name}2", x[k, 0] * x[k, 1], first)
            for r in range(len(z)):
                squared = sd[r, k] ** 2 + centre[r, k] ** 2
                note(f"B{r} {name}^2", moves.mean[r, k] ** 2, squared)
            note(f"{name} away^2", (away[k] ** 2).mean(), e[k, k])
            if prior.held is None:
                for g in range(len(moves.covariance)):
                    note(f"S{g} {name}", moves.covariance[g, k, k], e[k, k])
        note("away", (away[0] * away[1]).mean(), e[0, 1])
    return z_scores(out)


HELD = np.stack([np.diag([0.2, 0.9])] * 2)
NIGHTLY = (pytest.mark.slow, pytest.mark.nightly)


# At most 23 z-scores below 4.7: false-alarm rate 2e-4 (t with 99 degrees of freedom).
@pytest.mark.usefixtures("two_covariances")
@pytest.mark.parametrize(("plain", "held", "n"), [
    pytest.param(PLAIN, None, 3_000, marks=pytest.mark.slow),
    pytest.param(SIGNED, None, 3_000, marks=pytest.mark.slow),
    pytest.param(SIGNED, HELD, 2_000, marks=pytest.mark.slow),
    *(pytest.param(plain, held, 500_000, marks=NIGHTLY)
      for plain, held in ((PLAIN, None), (SIGNED, None), (SIGNED, HELD))),
])  # fmt: skip
def test_joint_distribution(plain, held, n, monkeypatch):
    monkeypatch.setattr(structure, "BLOCK_SD", (0.3, 0.8))
    monkeypatch.setattr(structure, "COVARIATES_SD", (0.3, 0.8))
    monkeypatch.setitem(globals(), "BLOCK_SD", (0.3, 0.8))
    monkeypatch.setitem(globals(), "COVARIATES_SD", (0.3, 0.8))
    prior = structured(plain, [0, 0, 1, 1], 1)
    prior = prior if held is None else prior.holding(held)
    z = joint_z(prior, n, 21, power=1.0 if held is None else 0.6)
    assert worst(z) < 4.7, z


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.usefixtures("two_covariances")
@pytest.mark.parametrize(("plain", "error", "n"), [
    (PLAIN, "abilities 1% wide", 500_000),
    (PLAIN, "covariances 1% wide", 100_000),
    (SIGNED, "covariances 1% wide", 100_000),
], ids=["log a, abilities", "log a, covariances", "a, covariances"])  # fmt: skip
def test_joint_distribution_sees_mistakes_of_one_percent(plain, error, n):
    """z-scores are 10 for covariances; of abilities, signed slopes of ten persons tell too little.

    (2.7 after 500,000 sweeps: their prior is wide.)
    """
    z = joint_z(structured(plain, [0, 0, 1, 1], 1), n, 22, error=error)
    assert worst(z) > 6, z


# --- fits -----------------------------------------------------------------------------------------


def of_blocks(n, seed, per_block=24):
    """Responses to three blocks of items, and the items' parameters, blocks and covariate."""
    rng = np.random.default_rng(seed)
    block = np.repeat(["east", "south", "west"], per_block)
    x = rng.normal(size=block.size)
    a = np.exp(rng.normal(np.repeat([-0.4, 0.0, 0.4], per_block), 0.15))
    d = rng.normal(np.repeat([-1.5, 0.0, 1.5], per_block) + 0.8 * x, 0.4)
    return respond(rng, rng.standard_normal(n), a, d), a, d, block, x


def test_blocks_and_covariates_are_found():
    y, a, d, block, x = of_blocks(300, 23)
    ids = [f"q{j}" for j in range(block.size)]
    responses = irt.from_array(y, item_id=ids)
    table = pd.DataFrame({"x": 3.0 * x + 1.0, "noise": np.random.default_rng(1).normal(size=72)})
    table.index = ids
    options = {"n_draws": 400, "n_warmup": 200}
    plain = fit_quietly(responses, **options)
    fit = fit_quietly(
        responses, item_blocks=dict(zip(ids, block, strict=True)),
        item_covariates=table.iloc[::-1], **options,
    )  # fmt: skip
    assert fit["block"].values.tolist() == ["east", "south", "west"]
    assert fit["coordinate"].values.tolist() == ["log_discrimination", "intercept"]
    centre = fit["item_block_mean"] - np.stack([[-0.4, 0.0, 0.4], [-1.5, 0.0, 1.5]], axis=1)
    assert (np.abs(centre) < 4.0 * fit["item_block_mean_sd"]).all()
    effect = fit["item_covariate_effect"].sel(covariate=["x", "noise"]).values
    assert effect[0, 1] == pytest.approx(0.8 / 3.0, abs=0.08)
    assert np.abs(effect[[0, 1, 1], [0, 0, 1]]).max() < 0.25
    assert fit["item_block_covariance"].dims == ("block", "coordinate", "coordinate_")
    assert "item_prior_covariance" not in fit
    for other in (plain, fit):
        other.attrs["error"] = float(((other["item_intercept"] - d) ** 2).mean())
        other.attrs["error of a"] = float((np.log(other["item_discrimination"] / a) ** 2).mean())
    assert fit.attrs["error"] < 0.97 * plain.attrs["error"]
    assert fit.attrs["error of a"] < 0.9 * plain.attrs["error of a"]
    assert abs(fit.attrs["scale_shift"]) < fit.attrs["scale_se"]


def test_many_small_blocks_do_not_outvote_few_persons():
    """Means of 40 blocks would, were they free of each other: theirs has a mean that is free."""
    rng = np.random.default_rng(24)
    theta = rng.standard_normal(60)
    theta = (theta - theta.mean()) / theta.std()
    a, d = np.exp(rng.normal(0.5, 0.3, 160)), rng.normal(1.5, 1.0, 160)
    fit = fit_quietly(
        irt.from_array(respond(rng, theta, a, d)), item_blocks=np.repeat(range(40), 4),
        n_draws=300, n_warmup=100,
    )  # fmt: skip
    assert abs(float((np.log(fit.item_discrimination_draw) - np.log(a)).mean())) < 0.12
    assert abs(float((fit.item_intercept - d).mean())) < 0.25
    assert "item_prior_covariance" not in fit  # one, of all small blocks, is that of each
    cov = fit["item_block_covariance"].values
    assert (cov == cov[0]).all()
    assert abs(fit.attrs["scale_shift"]) < fit.attrs["scale_se"]


@pytest.mark.slow
@pytest.mark.parametrize("positive", ["all", "none"])
def test_shards_have_the_posterior_of_all(positive):
    y, _, _, block, x = of_blocks(1500, 25, per_block=12)
    options = {
        "n_draws": 400, "n_warmup": 150, "item_blocks": block, "positive": positive,
        "item_covariates": pd.DataFrame({"x": x}, index=[str(j) for j in range(36)]),
    }  # fmt: skip
    one, three = (
        fit_quietly(y, seed=k, n_shards=k, kinds=(ConvergenceWarning, ItemWarning), **options)
        for k in (1, 3)
    )
    for name in ("item_discrimination", "item_intercept"):
        assert np.abs((three[name] - one[name]) / one[f"{name}_sd"]).max() < 0.4
        ratio = three[f"{name}_sd"] / one[f"{name}_sd"]
        assert 0.8 < ratio.min() < ratio.max() < 1.3
    for name in ("item_block_mean", "item_block_covariance", "item_covariate_effect"):
        assert np.abs((three[name] - one[name]) / one[f"{name}_sd"]).max() < 0.4
        np.testing.assert_allclose(three[f"{name}_sd"], one[f"{name}_sd"], rtol=0.4)


def test_models_of_categories_take_blocks():
    rng = np.random.default_rng(26)
    r = irt.simulate(400, 24, model="gpcm", categories=3, seed=26)
    fit = fit_quietly(
        r, model="gpcm", item_blocks=rng.permutation(np.repeat([0, 1], 12)), n_draws=100,
        n_warmup=100, kinds=(ConvergenceWarning, ItemWarning),
    )  # fmt: skip
    truth = r.truth["item_intercept"]
    assert np.corrcoef(fit["item_intercept"], truth)[0, 1] > 0.95
    assert fit["item_block_mean"].shape == (2, 2)


def test_workers_get_the_same_prior():
    prior = structured(PLAIN, [0, 1, 1, 0], 1).holding(some_covariances(1, 27))
    prior.design  # noqa: B018  what is kept of it does not travel
    again = pickle.loads(pickle.dumps(prior))  # noqa: S301  its own
    assert again.identity == prior.identity
    assert "design" not in vars(again)
    other = replace(prior, covariate=prior.covariate[:, ::-1])
    assert other.identity != prior.identity


@pytest.mark.parametrize(("options", "match"), [
    ({"item_blocks": ["a"] * 11}, "11 labels, and the responses have 12 items"),
    ({"item_blocks": {"0": "a"}}, r"no label .* for 11 item\(s\): '1', '2'"),
    ({"item_blocks": "a"}, "type str; give a dict"),
    ({"item_blocks": ["a"] * 11 + [None]}, r"no label .* for 1 item\(s\): '11'"),
    ({"item_covariates": np.ones((12, 2))}, "must be a DataFrame"),
    ({"item_covariates": {"x": range(11)}}, r"no row for 1 item\(s\): '11'"),
    ({"item_covariates": {"x": [*range(11), np.nan]}}, "x of item 11 is nan"),
    ({"item_covariates": {"x": ["a"] * 12}}, "x are not numbers"),
    ({"item_covariates": {"x": [0.1] * 12}}, "x are the same for all items"),
    ({"item_blocks": ["a"] * 12, "prior": ItemPrior()}, "of the hierarchical prior"),
    ({"item_blocks": ["a"] * 12, "n_dims": 2}, "of the hierarchical prior"),
])  # fmt: skip
def test_bad_blocks_and_covariates_are_refused(options, match):
    table = options.get("item_covariates")
    if isinstance(table, dict):
        frame = pd.DataFrame(table)
        options = options | {"item_covariates": frame.set_axis(frame.index.astype(str))}
    y = (np.random.default_rng(28).random((60, 12)) < 0.5).astype(np.int8)
    with pytest.raises(InputError, match=match):
        irt.fit_bayes(y, **options)


def test_tables_of_more_items_will_do():
    labels = blocks(pd.Series({"b": 1, "a": 1, "z": 7}), ("a", "b"))
    assert labels.labels == ("1",)
    assert labels.of_item.tolist() == [0, 0]
    table = pd.DataFrame({"x": [5.0, 1.0, 2.0]}, index=["z", "b", "a"])
    found = covariates(table, ("a", "b"))
    np.testing.assert_allclose(found.values, [[1.0, -1.0]])
    assert found.sd.tolist() == [0.5]
    twice = pd.DataFrame({"x": [5.0, 1.0, 2.0]}, index=["a", "b", "a"])
    with pytest.raises(InputError, match="several rows"):
        covariates(twice, ("a", "b"))


def test_items_are_drawn_from_the_prior_of_blocks_and_covariates():
    """40,000 draws; |z| < 5 for means, 5% and more for variances and covariances."""
    block, n = ["a"] * 3 + ["b"] * 2, 40_000
    table = pd.DataFrame({"x": [1.0, 4.0, 2.0, 2.5, 0.5]}, index=list("vwxyz"))
    drawn = irt.prior_items(
        list("vwxyz"), item_blocks=block, item_covariates=table, n_draws=n, positive="none", seed=3
    )
    x = np.stack([drawn[f"item_{k}_draw"].values for k in ("discrimination", "intercept")], axis=2)
    x = x.reshape(n, -1)
    prior = Structured.of(
        SignedHierarchy(), blocks(block, list("vwxyz")), covariates(table, list("vwxyz")), 5
    )
    usual = np.array(SignedHierarchy().scale) / (SignedHierarchy().df - 3.0)
    law = law_of_items(prior, np.tile(usual, (2, 1, 1)))
    score = (x.mean(axis=0) - law.mean) / np.sqrt(np.diag(law.cov) / n)
    assert np.abs(score).max() < 5
    np.testing.assert_allclose(np.cov(x.T), law.cov, rtol=0.06, atol=0.04 * law.cov.max())
    assert drawn["item_block_mean_draw"].shape == (n, 2, 2)
    effect = drawn["item_covariate_effect_draw"].values[:, 0]
    expected = np.array(COVARIATES_SD) / table["x"].std(ddof=0)
    np.testing.assert_allclose(effect.std(axis=0), expected, rtol=0.03)
