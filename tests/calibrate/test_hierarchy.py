"""Items as a sample: their learned mean and covariance, alone, in the chain, and over shards."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from batch_means import worst, z_scores
from items import quiet, respond
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import invwishart, multivariate_normal

import irt_dask as irt
from irt_dask.calibrate.bayes import empirical_bayes, hierarchy, item_moves
from irt_dask.calibrate.bayes.hierarchy import (
    WORDS_MOVE,
    Hierarchy,
    learn,
)
from irt_dask.curves.grids import Grid
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine
from irt_dask.errors import ApproximationWarning, ConvergenceWarning, InputError, ItemWarning
from irt_dask.kernels.gibbs import learned_item_draws, person_draws, person_layout
from irt_dask.kernels.gibbs.learned_item_draws import Normals
from irt_dask.kernels.responses import layouts

# Tighter than the default, so that simulations from it have moments to compare with.
TIGHT = Hierarchy(
    mean=(0.1, 0.2), mean_sd=(0.3, 0.8), df=20.0, scale=((1.5, 0.5), (0.5, 13.0))
)  # fmt: skip
HELD = ((0.12, 0.05), (0.05, 0.9))
#: Too few draws, too few persons.
fit_quietly = partial(quiet, irt.fit_bayes, kinds=(ConvergenceWarning, ItemWarning))


def standardised(n, m, seed, mean_b=0.0):
    """Responses of a test whose abilities have mean 0 and SD 1 in the sample, and its items."""
    rng = np.random.default_rng(seed)
    a, b = np.exp(0.3 * rng.standard_normal(m)), mean_b + rng.standard_normal(m)
    theta = rng.standard_normal(n)
    theta = (theta - theta.mean()) / theta.std()
    return respond(rng, theta, a, -a * b), a, b


# --- conditionals ---------------------------------------------------------------------------------


def items(m, seed):
    rng = np.random.default_rng(seed)
    return np.stack([rng.normal(0.2, 0.4, m), rng.normal(-0.5, 1.2, m)])


def test_mean_is_drawn_from_its_conditional():
    # 40,000 draws against the normal that Bayes's rule gives; |z| < 5.
    x, covariance = items(6, 1), np.array(HELD)
    rng = np.random.default_rng(2)
    for power in (1.0, 0.2):
        repeated = np.broadcast_to(x, (40_000, *x.shape))
        got = TIGHT.draw_mean(repeated, covariance, power, rng.random((40_000, 2)))
        own = np.diag(1.0 / np.square(TIGHT.mean_sd))
        inner = np.linalg.inv(covariance)
        exact = np.linalg.inv(own + 6 * inner)
        centre = exact @ (own @ TIGHT.mean + inner @ x.sum(axis=1))
        exact = exact / power
        z = (got.mean(axis=0) - centre) / np.sqrt(np.diag(exact) / 40_000)
        assert np.abs(z).max() < 5
        np.testing.assert_allclose(np.cov(got.T), exact, rtol=0.05, atol=0.03 * exact.max())


def test_covariance_is_drawn_from_its_conditional():
    x, mean = items(6, 3), np.array([0.1, -0.3])
    rng = np.random.default_rng(4)
    repeated = np.broadcast_to(x, (40_000, *x.shape))
    got = TIGHT.draw_covariance(repeated, mean, rng.random((40_000, 3)))
    away = x - mean[:, None]
    law = invwishart(TIGHT.df + 6, np.array(TIGHT.scale) + away @ away.T)
    theirs = law.rvs(40_000, random_state=rng)
    for f in (np.log, np.sqrt):  # of the diagonal
        for k in range(2):
            one, two = f(got[:, k, k]), f(theirs[:, k, k])
            error = math.hypot(one.std(), two.std()) / 200
            assert abs(one.mean() - two.mean()) < 5 * error
            assert one.std() == pytest.approx(two.std(), rel=0.03)
    np.testing.assert_allclose(got.mean(axis=0), law.mean(), rtol=0.02, atol=0.01)
    np.testing.assert_allclose(TIGHT.covariance_given(x, mean), law.mean(), rtol=1e-12)


def test_density_of_items_by_a_normal_of_all_of_them():
    m, prior = 5, TIGHT.holding(np.array(HELD))
    x = items(m, 5)
    a, d = np.exp(x[0]), x[1]
    # Item by item, mu integrated out: the same mean and a common covariance for all.
    common = np.kron(np.ones((m, m)), np.diag(np.square(TIGHT.mean_sd)))
    law = multivariate_normal(np.tile(TIGHT.mean, m), np.kron(np.eye(m), HELD) + common)

    def log_density(a, d):
        return law.logpdf(np.stack([np.log(a), d]).T.ravel()) - np.log(a).sum()

    value, slope = prior.log_density_of_slopes(a, d)
    assert value == pytest.approx(log_density(a, d), rel=1e-12)
    h = 1e-5
    for j in range(m):
        for k in range(2):
            sides = []
            for sign in (1.0, -1.0):
                moved = np.stack([a, d])
                moved[k, j] += sign * h
                sides.append(log_density(*moved))
            assert slope[k, j] == pytest.approx((sides[0] - sides[1]) / (2 * h), abs=1e-5)


def test_weights_integrate_the_covariance_out():
    # Of two sets of items the ratio of weights, by importance sampling of Sigma: 1% and more.
    prior, mean = TIGHT.holding(np.array(HELD)), np.array([0.1, 0.0])
    sets = [items(3, seed) for seed in (6, 7)]
    rng = np.random.default_rng(8)
    sigmas = invwishart(TIGHT.df, np.array(TIGHT.scale)).rvs(100_000, random_state=rng)
    inverse, log_det = np.linalg.inv(sigmas), np.linalg.slogdet(sigmas)[1]
    exact = []
    for x in sets:
        away = x - mean[:, None]
        log_p = -0.5 * 3 * log_det - 0.5 * np.einsum("nij,ji->n", inverse, away @ away.T)
        held = -0.5 * np.einsum("ij,ji->", np.linalg.inv(HELD), away @ away.T)
        exact.append(np.log(np.exp(log_p).mean()) - held)
    got = prior.log_weights(np.stack(sets), mean)
    assert got[0] - got[1] == pytest.approx(exact[0] - exact[1], abs=0.02)


def test_learning_undoes_what_was_held():
    # Draws of items from their prior with a covariance held: weighted, they are those of the prior.
    m, n = 4, 200_000
    rng = np.random.default_rng(9)
    held = np.array(TIGHT.scale) / (TIGHT.df - 3.0) * 1.1
    prior = TIGHT.holding(held)
    mean = rng.normal(TIGHT.mean, TIGHT.mean_sd, (n, 2))
    root = np.linalg.cholesky(held)
    x = mean[..., None] + np.einsum("ij,njm->nim", root, rng.standard_normal((n, 2, m)))
    learned = learn(prior, x, np.full(n, 1.0 / n), rng)
    exact = np.array(TIGHT.scale) / (TIGHT.df - 3.0)
    assert 0.3 < learned.efficiency < 1.0
    covariance, mean = (learned.named[f"item_prior_{k}"] for k in ("covariance", "mean"))
    got = np.einsum("n,nij->ij", learned.weight, covariance)
    np.testing.assert_allclose(got, exact, rtol=0.03, atol=0.01)
    np.testing.assert_allclose(learned.weight @ mean, TIGHT.mean, atol=0.01)
    spread = np.einsum("n,nim->i", learned.weight, (x - x.mean(axis=(0, 2))[:, None]) ** 2) / m
    np.testing.assert_allclose(spread, np.diag(exact) + np.square(TIGHT.mean_sd), rtol=0.03)


# --- the item step --------------------------------------------------------------------------------


def item_counts(n, slope, intercept, nodes, rng):
    theta = rng.standard_normal(n)
    at = np.abs(theta[:, None] - nodes).argmin(axis=1)
    right = rng.random(n) < expit(slope * nodes[at] + intercept)
    size = nodes.size
    return np.bincount(at, right, size), np.bincount(at, minlength=size).astype(float)


def conditional(right, seen, nodes, mean, precision, beyond):
    """The density of (log a, d) on a fine grid about it."""
    u, d = np.linspace(-9.0, 3.0, 1201), np.linspace(-7.0, 7.0, 701)
    log_p = np.zeros((u.size, d.size))
    for r, s, x in zip(right, seen, nodes, strict=True):
        z = np.exp(u)[:, None] * x + d
        log_p += r * z - s * np.logaddexp(0.0, z)
    v, w = (u - mean[0])[:, None], d - mean[1]
    log_p -= 0.5 * beyond[1] * np.maximum(np.abs(v) - beyond[0], 0.0) ** 2
    log_p -= 0.5 * (precision[0, 0] * v * v + precision[1, 1] * w * w) + precision[0, 1] * v * w
    weight = np.exp(log_p - log_p.max())
    return weight / weight.sum(), u, d


CASES = {
    "usual": (1500, 1.3, 0.4, 1.0), "few persons": (15, 1.0, 0.0, 1.0),
    "nobody": (0, 1.0, 0.0, 1.0), "flat": (400, 0.0, 0.5, 0.3),
    "reversed": (400, -1.0, 0.5, 0.3), "easy": (300, 1.2, 4.0, 0.5),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "beyond"),
    [*((case, (np.inf, 0.0)) for case in CASES), ("flat", (0.5, 4.0)), ("nobody", (1.0, 2.0))],
)
def test_item_step_keeps_its_conditional(case, beyond):
    # 1,500 chains of 40 steps that start from the conditional; |z| < 5 of 8 functionals.
    n, slope, intercept, power = CASES[case]
    rng = np.random.default_rng(10)
    nodes = np.linspace(-3.5, 3.5, 15)
    mean, precision = np.array([0.1, 0.2]), power * np.linalg.inv([[0.5, 0.2], [0.2, 1.0]])
    right, seen = item_counts(n, slope, intercept, nodes, rng)
    w, u, d = conditional(right, seen, nodes, mean, precision, beyond)
    mean_u, mean_d = w.sum(1) @ u, w.sum(0) @ d
    low = u[np.searchsorted(np.cumsum(w.sum(1)), 0.05)] + 0.5 * (u[1] - u[0])
    functionals = {
        "u": (lambda x, _: x, mean_u),
        "var u": (lambda x, _: (x - mean_u) ** 2, w.sum(1) @ (u - mean_u) ** 2),
        "a": (lambda x, _: np.exp(x), w.sum(1) @ np.exp(u)),
        "low": (lambda x, _: x < low, w.sum(1)[u < low].sum()),
        "d": (lambda _, v: v, mean_d),
        "var d": (lambda _, v: (v - mean_d) ** 2, w.sum(0) @ (d - mean_d) ** 2),
        "ud": (lambda x, v: x * v, u @ w @ d),
    }
    m = 1500
    repeated = [np.repeat(x[:, None], m, 1) for x in (right, seen)]
    at = np.unravel_index(rng.choice(w.size, m, p=w.ravel()), w.shape)
    x = np.stack([u[at[0]], d[at[1]]]) + (rng.random((2, m)) - 0.5) * [[u[1] - u[0]], [d[1] - d[0]]]
    accepted = np.zeros(m, dtype=np.int64)
    begin = np.zeros(m), np.zeros(m)
    prior = Normals.of_one(mean, precision, m, beyond)
    sums = {name: np.zeros(m) for name in functionals}
    for _ in range(40):
        words = rng.random((m, learned_item_draws.WORDS_PER_ITEM))
        learned_item_draws.metropolis(
            *repeated, np.arange(nodes.size), nodes, prior, begin, words, *x, accepted
        )
        for name, (f, _) in functionals.items():
            sums[name] += f(*x) / 40
    for name, (_, exact) in functionals.items():
        error = sums[name].std(ddof=1) / math.sqrt(m)
        assert abs(sums[name].mean() - exact) < 5 * error, (name, sums[name].mean(), exact, error)
    assert accepted.mean() / 40 > (0.8 if n > 1000 else 0.4)


def test_modes_by_an_optimiser():
    rng = np.random.default_rng(11)
    nodes = np.linspace(-4.0, 4.0, 33)
    mean, precision = np.array([0.1, 0.2]), np.linalg.inv([[0.5, 0.2], [0.2, 1.0]])
    counts = [item_counts(n, s, i, nodes, rng) for n, s, i, _ in CASES.values() if n]
    right, seen = (np.array(x) for x in zip(*counts, strict=True))
    at, covariance = learned_item_draws.modes(
        right, seen, nodes, Normals.of_one(mean, precision, len(right)), np.zeros((2, len(right)))
    )
    for j in range(len(right)):

        def minus(x, j=j):
            z = math.exp(x[0]) * nodes + x[1]
            away = x - mean
            return 0.5 * away @ precision @ away - right[j] @ z + seen[j] @ np.logaddexp(0.0, z)

        best = min(
            (minimize(minus, s, tol=1e-10) for s in ([0.0, 0.0], [-2.0, 1.0])), key=lambda f: f.fun
        )
        sd = np.sqrt(np.diag(covariance[j]))
        assert (np.abs(at[:, j] - best.x) / sd).max() < 0.1
        assert minus(at[:, j]) < best.fun + 0.01


# --- the chain: joint distribution test (Geweke 2004) ---------------------------------------------


def joint_chain(n_iterations, seed, *, n=10, m=4, used=TIGHT, error=None, power=1.0):
    """Items, mean and covariance of a chain that alternates data with one sweep given data."""
    rng = np.random.default_rng(seed)
    state = {"log_a": np.zeros(m), "d": np.zeros(m)}
    moves = item_moves.LearnedMoves(used, power, m, state)
    log_a, d, accepted = np.zeros(m), np.zeros(m), np.zeros(m, dtype=np.int64)
    nodes, begin = Grid(141).nodes, np.zeros((2, m))
    out = np.empty((n_iterations, 2 * m + 5))
    for t in range(n_iterations):
        theta = rng.standard_normal(n)
        y = respond(rng, theta, np.exp(log_a), d)
        at, right, seen, persons = person_draws.draw_counts(
            person_layout.prepare(layouts.Dense(y)), np.exp(log_a), d, nodes, rng.random(n)
        )
        if error == "abilities 1% wide":
            counts = item_moves.Counts(at, right, seen, persons, 1.01 * nodes)
        else:
            counts = item_moves.Counts(at, right, seen, persons, nodes)
        if error == "jacobian of the stretch":
            persons += m * (nodes == 0.0)
        moves.sweep(counts, begin, rng.random(moves.words), log_a, d, accepted, rescaled=True)
        c = moves.covariance
        out[t] = *log_a, *d, *moves.mean, c[0, 0], c[0, 1], c[1, 1]
    return out


def prior_z(out, m=4):
    """z-scores, by 100 batch means, of functionals against their values under TIGHT."""
    u, d, mean, s11, s12, s22 = *np.split(out, [m, 2 * m, 2 * m + 2], axis=1)[:3], *out[:, -3:].T
    (m1, m2), (v1, v2) = TIGHT.mean, np.square(TIGHT.mean_sd)
    e = np.array(TIGHT.scale) / (TIGHT.df - 3.0)
    wide = v1 + e[0, 0], v2 + e[1, 1]
    functionals = {
        "u": (u.mean(1), m1), "u^2": ((u**2).mean(1), wide[0] + m1**2),
        "d": (d.mean(1), m2), "d^2": ((d**2).mean(1), wide[1] + m2**2),
        "ud": ((u * d).mean(1), e[0, 1] + m1 * m2), "u1 u2": (u[:, 0] * u[:, 1], v1 + m1**2),
        "d1 d2": (d[:, 0] * d[:, 1], v2 + m2**2), "mu1": (mean[:, 0], m1), "mu2": (mean[:, 1], m2),
        "mu1^2": (mean[:, 0] ** 2, v1 + m1**2), "mu2^2": (mean[:, 1] ** 2, v2 + m2**2),
        "S11": (s11, e[0, 0]), "S12": (s12, e[0, 1]), "S22": (s22, e[1, 1]),
        "(u - mu)^2": (((u - mean[:, :1]) ** 2).mean(1), e[0, 0]),
        "(d - mu)^2": (((d - mean[:, 1:]) ** 2).mean(1), e[1, 1]),
    }  # fmt: skip
    return z_scores(functionals)


# Sixteen z-scores below 4.6: false-alarm rate 2e-4 (t with 99 degrees of freedom).
@pytest.mark.slow
def test_joint_distribution():
    assert worst(prior_z(joint_chain(15_000, seed=12))) < 4.6


@pytest.mark.slow
@pytest.mark.nightly
def test_joint_distribution_closely():
    z = prior_z(joint_chain(1_000_000, seed=13))
    print({k: round(v, 2) for k, v in z.items()})
    assert worst(z) < 4.6


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("options", [
    {"error": "jacobian of the stretch"}, {"error": "abilities 1% wide"},
    {"used": replace(TIGHT, scale=((1.515, 0.505), (0.505, 13.13)))},
    {"used": replace(TIGHT, mean_sd=(0.303, 0.808))},
], ids=["jacobian", "abilities", "covariance", "mean"])  # fmt: skip
def test_joint_distribution_sees_mistakes_of_one_percent(options):
    z = prior_z(joint_chain(1_000_000, seed=14, **options))
    print({k: round(v, 2) for k, v in z.items()})
    assert worst(z) > 6


@pytest.mark.slow
def test_joint_distribution_of_a_shard(monkeypatch):
    """A prior to a power, which ends where the whole one is small: here for a third of the slopes.

    What slopes are from their mean has a density in one variable, and mu stays normal.  Six
    z-scores below 4.4: false-alarm rate 2e-4.
    """
    monkeypatch.setattr(hierarchy, "_REACH", 1.0)
    sd, power = 0.5, 0.4
    used = TIGHT.holding(np.diag([sd**2, 1.0]))
    out = joint_chain(15_000, 15, used=used, power=power)
    log_a, mean = out[:, :4], out[:, 8:10]
    t = np.linspace(-8.0, 8.0, 160_001) * sd
    p = np.exp(-0.5 * power * (t / sd) ** 2 - 0.3 * np.maximum(np.abs(t / sd) - 1.0, 0.0) ** 2)
    p /= p.sum()
    functionals = {
        "t": ((log_a - mean[:, :1]).mean(1), 0.0),
        "t^2": (((log_a - mean[:, :1]) ** 2).mean(1), p @ t**2),
        "beyond": ((np.abs(log_a - mean[:, :1]) > sd).mean(1), p[np.abs(t) > sd].sum()),
        "mu1": (mean[:, 0], TIGHT.mean[0]),
        "mu1^2": (mean[:, 0] ** 2, TIGHT.mean[0] ** 2 + TIGHT.mean_sd[0] ** 2 / power),
        "mu2^2": (mean[:, 1] ** 2, TIGHT.mean[1] ** 2 + TIGHT.mean_sd[1] ** 2 / power),
    }
    assert functionals["beyond"][1] > 0.25
    assert worst(z_scores(functionals)) < 4.4


def test_moves_go_along_the_orbit():
    # Two points of one orbit and the same random numbers: the same destination, if accepted.
    rng = np.random.default_rng(15)
    for _ in range(20):
        n, m = int(rng.integers(5, 2000)), int(rng.integers(1, 40))
        theta, x = rng.normal(0, 1, n), np.stack([rng.normal(0, 0.4, m), rng.normal(0, 1, m)])
        mean, words = rng.normal(0.0, 0.5, 2), rng.random(WORDS_MOVE)
        words[2] = 1e-300  # accept
        power = rng.uniform(0.05, 1.0)

        def moved(theta, x, mean, words=words, power=power):
            sums = float(theta.size), float(theta.sum()), float((theta**2).sum())
            return TIGHT.move(x, mean, np.array(HELD), power, sums, words)

        one = moved(theta, x, mean)
        a = np.exp(x[0])
        shifted = x + np.stack([0.0 * a, 0.3 * a]), mean + np.array([0.0, 0.3 * a.mean()])
        for got, exact in zip(moved(theta - 0.3, *shifted), one, strict=True):
            np.testing.assert_allclose(got, exact, atol=1e-9)


# --- fits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean_b", [pytest.param(0.0, marks=pytest.mark.slow), -1.5])
def test_many_items_do_not_outvote_few_persons(mean_b):
    # Abilities of the sample have mean 0 and SD 1: so has the posterior, whatever the items are.
    y, a, b = standardised(80, 240, 16, mean_b)
    fit = fit_quietly(y, n_draws=200, n_warmup=100)
    assert abs(np.log(fit.item_discrimination / a).mean()) < 0.06
    assert abs((fit.item_difficulty - b).mean()) < 0.12
    assert fit.attrs["prior"] == "hierarchical"
    assert abs(fit.attrs["scale_shift"]) < fit.attrs["scale_se"]
    with pytest.warns(ApproximationWarning, match="outvote the persons"):
        fixed = fit_quietly(y, n_draws=200, n_warmup=100, prior=ItemPrior())
    assert np.log(fixed.item_discrimination / a).mean() > 0.2
    # What the attributes say of the fixed prior is what it does.
    off = np.log(fixed.item_discrimination).mean() - np.log(fit.item_discrimination).mean()
    assert fixed.attrs["scale_shift"] == pytest.approx(float(off), abs=0.08)
    assert abs(np.median(fit.item_difficulty - b)) < 0.12
    if mean_b:
        assert fixed.attrs["place_shift"] > 3 * fixed.attrs["place_se"]
        assert np.median(fixed.item_difficulty - b) > 0.5


@pytest.fixture(scope="module")
def two_ways():
    y, _, _ = standardised(1200, 12, 17)
    options = {"n_draws": 1000, "n_warmup": 200}
    return y, fit_quietly(y, seed=1, **options), fit_quietly(y, seed=2, n_shards=3, **options)


@pytest.mark.slow
def test_shards_have_the_posterior_of_all(two_ways):
    _, one, three = two_ways
    for name in ("item_discrimination", "item_intercept"):
        shift = (three[name] - one[name]) / one[f"{name}_sd"]
        assert np.abs(shift).max() < 0.3
        ratio = three[f"{name}_sd"] / one[f"{name}_sd"]
        assert 0.85 < ratio.min() < ratio.max() < 1.3
    for name in ("item_prior_mean", "item_prior_covariance"):
        shift = (three[name] - one[name]) / one[f"{name}_sd"]
        assert np.abs(shift).max() < 0.3
        np.testing.assert_allclose(three[f"{name}_sd"], one[f"{name}_sd"], rtol=0.35)
        np.testing.assert_allclose(
            three[f"{name}_draw"].mean("draw"),
            three[name],
            atol=0.1 * float(one[f"{name}_sd"].max()),
        )
    assert three.attrs["prior_efficiency"] > 0.5
    assert three.attrs["n_runs"] == 1
    assert abs(three.attrs["objective"] - one.attrs["objective"]) < 1.0


@pytest.mark.slow
def test_the_covariance_before_the_shards_is_near_that_of_the_posterior(two_ways):
    y, one, _ = two_ways
    with Engine(irt.from_array(y)) as engine:
        held, x = empirical_bayes.covariance(engine, Hierarchy(), np.zeros((2, y.shape[1])))
    away = (held - one.item_prior_covariance) / one.item_prior_covariance_sd
    assert np.abs(away).max() < 0.7
    assert np.abs(x[1] - one.item_intercept).max() < 0.1
    assert np.abs(x[0] - np.log(one.item_discrimination)).max() < 0.1


@pytest.mark.slow
@pytest.mark.nightly
def test_a_covariance_far_off_is_held_again(two_ways, monkeypatch):
    y, one, _ = two_ways
    covariance = empirical_bayes.covariance

    def far(*args):
        held, x = covariance(*args)
        return 4.0 * held, x

    monkeypatch.setattr(empirical_bayes, "covariance", far)
    ignored = ConvergenceWarning, ItemWarning, ApproximationWarning  # the last: it began far off
    fit = fit_quietly(y, seed=3, n_shards=3, n_draws=500, n_warmup=100, kinds=ignored)
    assert fit.attrs["n_runs"] > 1
    away = (fit.item_prior_covariance - one.item_prior_covariance) / one.item_prior_covariance_sd
    assert np.abs(away).max() < 0.5


@pytest.mark.parametrize(("options", "match"), [
    ({"prior": "learned"}, "'hierarchical' or an ItemPrior"),
    ({"prior": "hierarchical", "sampler": "polya-gamma"}, "give an ItemPrior"),
    ({"prior": "hierarchical", "n_dims": 2}, "give an ItemPrior"),
    ({"prior": "hierarchical", "powering": "published", "n_shards": 2}, "give an ItemPrior"),
    ({"n_shards": 20}, "at least 0.5 persons an item.*n_shards=10,"),
])  # fmt: skip
def test_bad_priors_are_refused(options, match):
    y, _, _ = standardised(60, 12, 18)
    with pytest.raises(InputError, match=match):
        irt.fit_bayes(y, **options)


@pytest.mark.slow
def test_few_items_have_a_posterior():
    # One item: its prior is that of the hyperpriors, which are proper.
    y, _, _ = standardised(300, 1, 19)
    fit = fit_quietly(y, n_draws=400, n_warmup=100)
    assert np.isfinite(fit.item_discrimination_draw).all()
    assert 0.1 < float(fit.item_discrimination[0]) < 10.0


def test_persons_without_responses_hold_nothing():
    y, _, _ = standardised(60, 8, 20)
    tight = {"prior": ItemPrior((3.0, 0.1), (2.0, 0.3)), "n_draws": 200}
    with pytest.warns(ApproximationWarning, match="outvote the persons"):
        few = irt.fit_bayes(y, progress=False, n_warmup=100, **tight)
    absent = np.full((2000, 8), -1, dtype=np.int8)
    with pytest.warns(ApproximationWarning, match="outvote the persons"):
        more = irt.fit_bayes(np.concatenate([y, absent]), progress=False, n_warmup=100, **tight)
    assert more.attrs["scale_se"] == few.attrs["scale_se"] == pytest.approx(1 / np.sqrt(120))
    assert more.attrs["scale_shift"] == pytest.approx(few.attrs["scale_shift"], rel=0.2)
    many = np.concatenate([standardised(31, 15, 21)[0], np.full((100, 15), -1, dtype=np.int8)])
    with pytest.raises(InputError, match=r"leaves 7 persons for 15 items.*use n_shards=3,"):
        irt.fit_bayes(many, n_shards=4)
