"""Slopes of any sign in Bayesian fits: priors, item steps, moves, chains, and whole fits."""

import math
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from batch_means import worst, z_scores
from items import quiet, respond
from scipy.special import expit
from scipy.stats import invwishart, multivariate_normal, norm

import irt_dask as irt
from irt_dask.calibrate.bayes import item_moves, models, signs
from irt_dask.calibrate.bayes.grid_chain import Plan
from irt_dask.calibrate.bayes.hierarchy import WORDS_MOVE
from irt_dask.calibrate.bayes.item_step import _oriented
from irt_dask.calibrate.bayes.signed_hierarchy import SignedHierarchy
from irt_dask.curves.grids import Grid
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine
from irt_dask.errors import ApproximationWarning, ConvergenceWarning, InputError, ItemWarning
from irt_dask.kernels.gibbs import learned_item_draws, person_draws, person_layout
from irt_dask.kernels.gibbs.learned_item_draws import Normals
from irt_dask.kernels.responses import layouts

# Tighter than the default, so that simulations from it have moments to compare with.
TIGHT = SignedHierarchy(
    mean=(0.0, 0.2), mean_sd=(0.3, 0.8), df=20.0, scale=((4.0, 0.0), (0.0, 13.0))
)
LEANING = SignedHierarchy(
    mean=(0.4, 0.2), mean_sd=(0.3, 0.8), df=20.0, scale=((4.0, 1.5), (1.5, 13.0))
)
fit_quietly = partial(quiet, irt.fit_bayes, kinds=(ConvergenceWarning, ItemWarning))
maximise_quietly = partial(quiet, irt.fit_marginal, kinds=(ConvergenceWarning, ItemWarning))


# --- the item step --------------------------------------------------------------------------------


def conditional(right, seen, nodes, mean, precision):
    """The density of (a, d) on a fine grid about it."""
    a, d = np.linspace(-6.0, 6.0, 1201), np.linspace(-7.0, 7.0, 701)
    log_p = np.zeros((a.size, d.size))
    for r, s, x in zip(right, seen, nodes, strict=True):
        z = a[:, None] * x + d
        log_p += r * z - s * np.logaddexp(0.0, z)
    v, w = (a - mean[0])[:, None], d - mean[1]
    log_p -= 0.5 * (precision[0, 0] * v * v + precision[1, 1] * w * w) + precision[0, 1] * v * w
    weight = np.exp(log_p - log_p.max())
    return weight / weight.sum(), a, d


@pytest.mark.parametrize(("n", "slope", "intercept"), [
    (1500, -1.3, 0.4), (15, -1.0, 0.0), (0, 1.0, 0.0), (400, 0.0, 0.5), (300, -1.2, 4.0),
])  # fmt: skip
def test_item_step_keeps_its_conditional(n, slope, intercept):
    # 1,500 chains of 40 steps that start from the conditional; |z| < 5 of 5 functionals.
    rng = np.random.default_rng(10)
    nodes = np.linspace(-3.5, 3.5, 15)
    mean, precision = np.array([0.1, 0.2]), np.linalg.inv([[0.5, 0.2], [0.2, 1.0]])
    at = np.abs(rng.standard_normal(n)[:, None] - nodes).argmin(axis=1)
    hit = rng.random(n) < expit(slope * nodes[at] + intercept)
    right, seen = (np.bincount(at, w, nodes.size).astype(float) for w in (hit, None))
    w, a, d = conditional(right, seen, nodes, mean, precision)
    mean_a, mean_d = w.sum(1) @ a, w.sum(0) @ d
    functionals = {
        "a": (lambda x, _: x, mean_a),
        "var a": (lambda x, _: (x - mean_a) ** 2, w.sum(1) @ (a - mean_a) ** 2),
        "d": (lambda _, v: v, mean_d),
        "var d": (lambda _, v: (v - mean_d) ** 2, w.sum(0) @ (d - mean_d) ** 2),
        "ad": (lambda x, v: x * v, a @ w @ d),
    }
    m = 1500
    # One more item, of which all is known, holds the orientation.
    known = 1e6 * np.exp(-0.5 * nodes**2)
    repeated = [
        np.hstack([np.repeat(x[:, None], m, 1), k[:, None]])
        for x, k in ((right, known * expit(nodes)), (seen, known))
    ]
    towards = np.append(np.full(m, 1e-9), 1.0)
    at = np.unravel_index(rng.choice(w.size, m, p=w.ravel()), w.shape)
    jitter = (rng.random((2, m)) - 0.5) * [[a[1] - a[0]], [d[1] - d[0]]]
    x = np.hstack([np.stack([a[at[0]], d[at[1]]]) + jitter, [[1.0], [0.0]]])
    accepted = np.zeros(m + 1, dtype=np.int64)
    prior = Normals.of_one(mean, precision, m + 1)
    sums = {name: np.zeros(m) for name in functionals}
    for _ in range(40):
        words = rng.random((m + 1, learned_item_draws.WORDS_PER_ITEM))
        learned_item_draws.metropolis(
            *repeated, np.arange(nodes.size), nodes, prior, tuple(np.zeros((2, m + 1))), words, *x,
            accepted, towards,
        )  # fmt: skip
        for name, (f, _) in functionals.items():
            sums[name] += f(*x[:, :m]) / 40
    for name, (_, exact) in functionals.items():
        error = sums[name].std(ddof=1) / math.sqrt(m)
        assert abs(sums[name].mean() - exact) < 5 * error, (name, sums[name].mean(), exact, error)
    assert accepted.mean() / 40 > 0.7


def test_moves_that_would_turn_ability_are_refused_one_by_one():
    rng = np.random.default_rng(3)
    refused = 0
    for _ in range(200):
        m = int(rng.integers(1, 6))
        towards, old, new = rng.normal(size=(3, m))
        rest = float(max(0.0, 0.1 - towards @ old))
        taken = rng.random(m) < 0.8
        x = old.copy()
        for j in np.flatnonzero(taken):  # as a chain that moves one item after the other
            tried = x.copy()
            tried[j] = new[j]
            if rest + towards @ tried > 0.0:
                x = tried
        got = _oriented(taken, old[None], new[None], towards, rest)
        np.testing.assert_array_equal(np.where(got, new, old), x)
        refused += int((got != taken).sum())
    assert refused > 50


# --- moves along what the likelihood does not see -------------------------------------------------


def log_joint(theta, x, mean, covariance, prior, power):
    """Log density of abilities, items, and what is learned of them."""
    value = norm.logpdf(theta).sum()
    value += power * multivariate_normal(mean, covariance).logpdf(x.T).sum()
    value += power * norm.logpdf(mean, prior.mean, prior.mean_sd).sum()
    if prior.held is None:
        value += invwishart(prior.df, np.array(prior.scale)).logpdf(covariance)
    return value


@pytest.mark.parametrize("held", [False, True])
def test_stretches_have_their_density_on_the_orbit(held):
    rng = np.random.default_rng(4)
    for _ in range(10):
        n, m = int(rng.integers(5, 60)), int(rng.integers(2, 9))
        theta, x = rng.normal(0.1, 1.2, n), rng.normal(0.2, 0.8, (2, m))
        mean, root = rng.normal(0.0, 0.5, 2), rng.normal(0.0, 0.5, (2, 2))
        covariance = root @ root.T + 0.2 * np.eye(2)
        prior = LEANING.holding(covariance) if held else LEANING
        power = rng.uniform(0.1, 1.0) if held else 1.0
        log_density, slope = prior._on_orbit(
            x, mean, covariance, power, float(n), float(theta @ theta)
        )
        exact = []
        for v in (-0.4, 0.0, 0.7):
            e = math.exp(v)
            stretch = np.array([e, 1.0])
            wide = covariance if held else covariance * np.outer(stretch, stretch)
            value = log_joint(theta / e, x * stretch[:, None], mean * stretch, wide, prior, power)
            # Jacobians: abilities, slopes, their mean, and the covariance's three entries.
            exact.append(value + v * (-n + m + 1 + (0 if held else 3)))
        got = [log_density(v) for v in (-0.4, 0.0, 0.7)]
        np.testing.assert_allclose(np.diff(got), np.diff(exact), rtol=1e-9, atol=1e-8)
        h = 1e-5
        numerical = (log_density(0.3 + h) - log_density(0.3 - h)) / (2.0 * h)
        assert slope(0.3)[0] == pytest.approx(numerical, rel=1e-6, abs=1e-4)


def test_shifts_have_their_density_on_the_orbit():
    """At the centre and two SDs away, whatever the random number: exp(-2) as dense, no Jacobian."""
    rng = np.random.default_rng(5)
    for held in (False, True) * 5:
        n, m = int(rng.integers(5, 60)), int(rng.integers(2, 9))
        theta, x = rng.normal(0.4, 1.2, n), rng.normal(0.2, 0.8, (2, m))
        mean, root = rng.normal(0.0, 0.5, 2), rng.normal(0.0, 0.5, (2, 2))
        covariance = root @ root.T + 0.2 * np.eye(2)
        prior = LEANING.holding(covariance) if held else LEANING
        power, sums = rng.uniform(0.1, 1.0) if held else 1.0, (n, theta.sum(), theta @ theta)
        values = []
        for z in (0.0, -2.0, 2.0):
            y, centre, wide, s2 = prior._shifted(x, mean, covariance, power, sums, z)
            shift = (y[1] - x[1]) / x[0]
            np.testing.assert_allclose(shift, shift[0])
            assert s2 == pytest.approx(((theta - shift[0]) ** 2).sum())
            if not held:  # the items' own density stays
                before = multivariate_normal(mean, covariance).logpdf(x.T).sum()
                after = multivariate_normal(centre, wide).logpdf(y.T).sum()
                assert after == pytest.approx(before, rel=1e-9)
            values.append(log_joint(theta - shift[0], y, centre, wide, prior, power))
        np.testing.assert_allclose(np.array(values[1:]) - values[0], -2.0, rtol=1e-8)


def test_moves_go_along_the_orbit():
    # Two points of one orbit and the same random numbers: the same destination, if accepted.
    rng = np.random.default_rng(15)
    for held in (False, True) * 10:
        n, m = int(rng.integers(5, 2000)), int(rng.integers(2, 40))
        theta, x = rng.normal(0, 1, n), np.stack([rng.normal(0, 0.8, m), rng.normal(0, 1, m)])
        covariance = np.array([[0.4, 0.1], [0.1, 0.9]])
        prior = LEANING.holding(covariance) if held else LEANING
        mean, words = rng.normal(0.0, 0.5, 2), rng.random(WORDS_MOVE)
        words[2] = 1e-300  # accept

        def moved(theta, x, mean, covariance, words=words, prior=prior):
            sums = float(theta.size), float(theta.sum()), float((theta**2).sum())
            return prior.move(x, mean, covariance, 1.0, sums, words)

        one = moved(theta, x, mean, covariance)
        shear = np.array([[1.0, 0.0], [0.3, 1.0]])
        shifted = (
            (shear @ x, mean + np.array([0.0, 0.3 * x[0].mean()]), covariance) if held
            else (shear @ x, shear @ mean, shear @ covariance @ shear.T)
        )  # fmt: skip
        for got, exact in zip(moved(theta - 0.3, *shifted), one, strict=True):
            np.testing.assert_allclose(got, exact, atol=1e-8)


# --- the chain: joint distribution test (Geweke 2004) ---------------------------------------------


def joint_chain(n_iterations, seed, *, n=10, m=4, prior=TIGHT, error=None, power=1.0):
    """Items, mean and covariance of a chain that alternates data with one sweep given data."""
    rng = np.random.default_rng(seed)
    towards = np.linspace(0.5, 1.5, m)
    state = {"log_a": np.ones(m), "d": np.zeros(m)}
    moves = item_moves.moves_for(prior, power, m, state, towards)
    a, d, accepted = np.ones(m), np.zeros(m), np.zeros(m, dtype=np.int64)
    nodes, begin = Grid(141).nodes, np.zeros((2, m))
    out = np.empty((n_iterations, 2 * m + 5))
    for t in range(n_iterations):
        y = respond(rng, rng.standard_normal(n), a, d)
        at, right, seen, persons = person_draws.draw_counts(
            person_layout.prepare(layouts.Dense(y)), a, d, nodes, rng.random(n)
        )
        wide = 1.01 if error == "abilities 1% wide" else 1.0
        counts = item_moves.Counts(at, right, seen, persons, wide * nodes)
        if error == "jacobian of the stretch":
            persons += m * (nodes == 0.0)
        moves.sweep(counts, begin, rng.random(moves.words), a, d, accepted, rescaled=True)
        learned = isinstance(prior, SignedHierarchy)
        c = moves.covariance if learned else np.zeros((2, 2))
        out[t] = *a, *d, *(moves.mean if learned else (0.0, 0.0)), c[0, 0], c[0, 1], c[1, 1]
        assert towards @ a > 0.0
    return out


def prior_z(out, prior, power=1.0, m=4):
    """z-scores, by 100 batch means, of functionals that turning all slopes does not change.

    The density of slopes whose sum is positive is that of all of them for these.
    """
    a, d, mean, s11, s22 = *np.split(out, [m, 2 * m, 2 * m + 2], axis=1)[:3], out[:, -3], out[:, -1]
    if isinstance(prior, ItemPrior):
        va, (md, sd) = prior.loading[1] ** 2 / power, prior.intercept
        return z_scores({
            "a^2": ((a**2).mean(1), va), "a1 a2": (a[:, 0] * a[:, 1], 0.0), "d": (d.mean(1), md),
            "|a|": (np.abs(a).mean(1), math.sqrt(2.0 * va / math.pi)),
            "d^2": ((d**2).mean(1), sd**2 / power + md**2),
            "d1 d2": (d[:, 0] * d[:, 1], md**2),
            "a1 d1 a2 d2": (a[:, 0] * d[:, 0] * a[:, 1] * d[:, 1], 0.0),
        })  # fmt: skip
    m2, (v1, v2) = prior.mean[1], np.square(prior.mean_sd) / power
    e = np.array(prior.scale if prior.held is None else prior.held)
    e = e / (prior.df - 3.0) if prior.held is None else e
    of_items = e / power if prior.held is not None else e
    functionals = {
        "a^2": ((a**2).mean(1), of_items[0, 0] + v1), "a1 a2": (a[:, 0] * a[:, 1], v1),
        "d": (d.mean(1), m2), "d^2": ((d**2).mean(1), of_items[1, 1] + v2 + m2**2),
        "d1 d2": (d[:, 0] * d[:, 1], v2 + m2**2), "mu2": (mean[:, 1], m2),
        "mu1^2": (mean[:, 0] ** 2, v1), "mu2^2": (mean[:, 1] ** 2, v2 + m2**2),
        "S11": (s11, e[0, 0]), "S22": (s22, e[1, 1]), "a mu": ((a * mean[:, :1]).mean(1), v1),
        "(a - mu)^2": (((a - mean[:, :1]) ** 2).mean(1), of_items[0, 0]),
        "(d - mu)^2": (((d - mean[:, 1:]) ** 2).mean(1), of_items[1, 1]),
    }  # fmt: skip
    if prior.held is not None:
        functionals = {k: v for k, v in functionals.items() if k not in ("S11", "S22")}
    return z_scores(functionals)


HELD = TIGHT.holding(np.diag([0.3, 0.9]))
FIXED = ItemPrior(loading=(0.0, 0.8), intercept=(0.2, 1.0))
NIGHTLY = (pytest.mark.slow, pytest.mark.nightly)


# At most thirteen z-scores below 4.6: false-alarm rate 2e-4 (t with 99 degrees of freedom).
@pytest.mark.parametrize(("prior", "power", "n"), [
    pytest.param(TIGHT, 1.0, 8_000, marks=pytest.mark.slow),
    pytest.param(FIXED, 1.0, 8_000, marks=pytest.mark.slow),
    pytest.param(HELD, 0.6, 5_000, marks=pytest.mark.slow),
    *(pytest.param(p, w, 1_000_000, marks=NIGHTLY)
      for p, w in ((TIGHT, 1.0), (FIXED, 1.0), (HELD, 0.6))),
])  # fmt: skip
def test_joint_distribution(prior, power, n):
    z = prior_z(joint_chain(n, seed=12, prior=prior, power=power), prior, power)
    assert worst(z) < 4.6, z


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("prior", [TIGHT, FIXED])
@pytest.mark.parametrize("error", ["jacobian of the stretch", "abilities 1% wide"])
def test_joint_distribution_sees_mistakes_of_one_percent(prior, error):
    z = prior_z(joint_chain(1_000_000, seed=14, prior=prior, error=error), prior)
    assert worst(z) > 6, z


# --- fits -----------------------------------------------------------------------------------------


def some_reversed(n, m, seed, every=3, missing=0.0):
    """Responses to items of which every third falls, and the items."""
    rng = np.random.default_rng(seed)
    a, d = np.exp(rng.normal(0.1, 0.3, m)), rng.normal(0.0, 1.0, m)
    a[::every] *= -1.0
    y = respond(rng, rng.standard_normal(n), a, d)
    return np.where(rng.random(y.shape) < missing, -1, y).astype(np.int8), a, d


def turned_back(y, falls, highest=1):
    """Responses with the items that fall coded the other way round."""
    return np.where(falls & (y >= 0), highest - y, y).astype(np.int8)


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_marginal_estimates_are_those_of_items_coded_the_other_way_round(missing):
    y, a, _ = some_reversed(1200, 9, 1, missing=missing)
    falls = a < 0.0
    one = irt.fit_marginal(irt.from_array(y), positive="none", tolerance=1e-11)
    other = irt.fit_marginal(irt.from_array(turned_back(y, falls)), tolerance=1e-11)
    sign = np.where(falls, -1.0, 1.0)
    assert one.attrs["log_likelihood"] == pytest.approx(other.attrs["log_likelihood"], abs=1e-6)
    for name, times in (("discrimination", sign), ("intercept", sign), ("difficulty", 1.0)):
        np.testing.assert_allclose(one[f"item_{name}"], times * other[f"item_{name}"], atol=1e-5)
        np.testing.assert_allclose(one[f"item_{name}_se"], other[f"item_{name}_se"], rtol=1e-3)
    assert one.attrs["n_flat_items"] == 0
    assert set(one["item_flag"].values) == {"ok"}


def test_a_histogram_turns_with_the_items():
    y, _, _ = some_reversed(800, 9, 3)
    options = {"positive": "none", "latent": "histogram", "max_iterations": 12}
    one = maximise_quietly(irt.from_array(y), **options)
    turned = maximise_quietly(irt.from_array((1 - y).astype(np.int8)), **options)
    np.testing.assert_allclose(one["item_discrimination"], turned["item_discrimination"], atol=1e-6)
    np.testing.assert_allclose(one["item_intercept"], -turned["item_intercept"], atol=1e-6)
    np.testing.assert_allclose(
        one["group_ability_share"], turned["group_ability_share"][:, ::-1], atol=1e-6
    )


def test_marginal_estimates_of_groups_categories_and_weights():
    rng = np.random.default_rng(2)
    n, k = 1500, 3
    groups = np.repeat(["a", "b"], n // 2)
    theta = rng.standard_normal(n) + 0.6 * (groups == "b")
    a = np.array([1.2, -0.8, 0.9, -1.4, 1.0, 0.7])
    z = np.stack([0.0 * theta[:, None] * a, theta[:, None] * a, 2.0 * theta[:, None] * a + 0.4])
    p = np.exp(z - z.max(axis=0))
    y = (rng.random(p.shape[1:]) * p.sum(axis=0) > np.cumsum(p, axis=0)).sum(axis=0)
    weights = rng.uniform(0.5, 2.0, n)

    def fitted(y, **options):
        data = irt.from_array(
            y.astype(np.int8),
            categories=k,
            persons=pd.DataFrame({"weight": weights, "group": groups}),
        )
        return irt.fit_marginal(data, model="gpcm", groups=True, **options)

    one, other = fitted(y, positive="none"), fitted(turned_back(y, a < 0.0, k - 1))
    assert one.attrs["log_likelihood"] == pytest.approx(other.attrs["log_likelihood"], abs=1e-6)
    sign = np.where(a < 0.0, -1.0, 1.0)
    np.testing.assert_allclose(
        one["item_discrimination"], sign * other["item_discrimination"], atol=1e-5
    )
    np.testing.assert_allclose(one["group_mean"], other["group_mean"], atol=1e-5)
    np.testing.assert_allclose(one["group_mean_se"], other["group_mean_se"], rtol=1e-3)


def test_ability_points_to_where_most_responses_rise():
    y, _, _ = some_reversed(800, 9, 3, every=2)
    one = irt.fit_marginal(irt.from_array(y), positive="none")
    falling = irt.fit_marginal(irt.from_array((1 - y).astype(np.int8)), positive="none")
    for fit in (one, falling):
        x = np.linspace(-6.0, 6.0, 301)
        w = np.exp(-0.5 * x**2)
        p = expit(
            fit["item_discrimination"].values[:, None] * x + fit["item_intercept"].values[:, None]
        )
        assert float((p @ (x * w)).sum()) > 0.0
    # All responses turned: the same items, ability turned with them.
    np.testing.assert_allclose(
        one["item_discrimination"], falling["item_discrimination"], atol=1e-5
    )
    np.testing.assert_allclose(one["item_intercept"], -falling["item_intercept"], atol=1e-5)


def test_a_bank_fixes_the_direction():
    y, _, _ = some_reversed(1000, 9, 4)
    bank = irt.fit_marginal(irt.from_array(y), positive="none")
    # Turned: of its own accord a fit would not choose that direction.
    turned = bank.isel(items=slice(4)).copy()
    for name in ("item_discrimination", "item_difficulty"):
        turned[name] = -turned[name]
    again = irt.fit_marginal(irt.from_array(y), positive="none", fixed_items=turned)
    np.testing.assert_allclose(
        again["item_discrimination"], -bank["item_discrimination"], atol=0.03
    )
    assert np.isfinite(again["item_anchor_chi2"][:4]).all()
    assert float(again["item_anchor_p_value"][:4].min()) > 0.01


def distance(one, other, sign):
    """Largest distance of means in Monte Carlo errors, and ratios of SDs."""
    z, ratios = [], []
    for name in ("discrimination", "intercept"):
        sd = other[f"item_{name}_sd"].values
        ess = [f[f"item_{name}_ess"].values for f in (one, other)]
        error = sd * np.sqrt(1.0 / ess[0] + 1.0 / ess[1])
        away = one[f"item_{name}"].values - sign * other[f"item_{name}"].values
        z.append(away / error)
        ratios.append(one[f"item_{name}_sd"].values / sd)
    return np.abs(z).max(), np.mean(ratios)


# Means of 24 parameters within 4.5 Monte Carlo errors: false-alarm rate 2e-4.
@pytest.mark.slow
def test_posteriors_are_those_of_items_coded_the_other_way_round():
    y, a, _ = some_reversed(500, 12, 5)
    falls = a < 0.0
    prior = irt.ItemPrior(loading=(0.0, 1.0))  # the same for a and -a
    options = {"prior": prior, "positive": "none", "n_draws": 1000, "n_warmup": 200}
    one = irt.fit_bayes(irt.from_array(y), seed=1, **options)
    other = irt.fit_bayes(irt.from_array(turned_back(y, falls)), seed=2, **options)
    z, ratio = distance(one, other, np.where(falls, -1.0, 1.0))
    assert z < 4.5
    assert abs(ratio - 1.0) < 0.05
    np.testing.assert_array_equal(one["item_negative_probability"] > 0.5, falls)


@pytest.mark.slow
def test_slopes_far_above_0_have_the_posterior_of_positive_ones():
    y, _, _ = some_reversed(2000, 12, 6, every=100)
    y = y[:, 1:]
    options = {"n_draws": 1000, "n_warmup": 200}
    one = irt.fit_bayes(
        irt.from_array(y), seed=1, positive="none", prior=irt.ItemPrior(loading=(1, 1)), **options
    )
    other = irt.fit_bayes(irt.from_array(y), seed=2, prior=irt.ItemPrior((1, 1)), **options)
    assert float((other["item_discrimination"] / other["item_discrimination_sd"]).min()) > 5.0
    z, ratio = distance(one, other, 1.0)
    assert z < 4.5
    assert abs(ratio - 1.0) < 0.05
    # A density that is cut off at 0 is larger above.
    kept = y.shape[1] * norm.logcdf(1.0)
    assert one.attrs["objective"] - kept == pytest.approx(other.attrs["objective"], abs=0.2)


@pytest.mark.slow
def test_shards_whose_camps_balance_agree():
    # As many items fall as rise: by themselves shards would not agree about the direction.
    y, _, _ = some_reversed(2400, 12, 7, every=2)
    options = {"positive": "none", "n_draws": 1000, "n_warmup": 300}
    whole = irt.fit_bayes(irt.from_array(y), **options)
    shards = irt.fit_bayes(irt.from_array(y), n_shards=4, **options)
    assert (
        np.sign(shards["shard_item_discrimination"]) == np.sign(whole["item_discrimination"])
    ).all()
    sd = whole["item_discrimination_sd"]
    shift = (shards["item_discrimination"] - whole["item_discrimination"]) / sd
    assert float((shift**2).mean()) < 0.05
    assert 0.95 < float((shards["item_discrimination_sd"] / sd).mean()) < 1.08
    assert shards.attrs["converged"] == whole.attrs["converged"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", ["gpcm", *(pytest.param(m, marks=pytest.mark.slow) for m in ("graded", "3pl"))]
)
def test_other_models_have_signs_too(model):
    rng = np.random.default_rng(8)
    n, k = 600, 2 if model == "3pl" else 3
    a = np.array([1.4, -1.2, 1.5, 1.1, -1.6, 1.3, 1.2, 1.4])
    theta = rng.standard_normal(n)
    z = theta[:, None] * a + rng.logistic(size=(n, a.size))
    y = (z > 0.0).astype(np.int8) if k == 2 else np.digitize(z, [-0.7, 0.9]).astype(np.int8)
    fit = fit_quietly(
        irt.from_array(y, categories=k), model=model, positive="none", n_draws=200, n_warmup=100
    )
    np.testing.assert_array_equal(fit["item_discrimination"] > 0.0, a > 0.0)
    np.testing.assert_array_equal(fit["item_negative_probability"] > 0.5, a < 0.0)
    scores = irt.score(irt.from_array(y, categories=k), fit)
    assert np.corrcoef(scores["person_ability"], theta)[0, 1] > 0.75


def test_difficulties_of_items_that_may_rise_or_fall_are_not_told():
    rng = np.random.default_rng(9)
    y, _, _ = some_reversed(800, 8, 9, every=100)
    y[:, 3] = rng.random(800) < 0.5  # has nothing to do with ability
    fit = fit_quietly(irt.from_array(y), positive="none", n_draws=300, n_warmup=100)
    assert 0.02 < float(fit["item_negative_probability"][3]) < 0.98
    assert np.isnan(fit["item_difficulty"][3])
    assert np.isnan(fit["item_difficulty_sd"][3])
    assert np.isfinite(np.delete(fit["item_difficulty"].values, 3)).all()
    assert np.isfinite(fit["item_discrimination_sd"]).all()
    assert "flat" in str(fit["item_flag"][3].item())


def test_a_given_start_tells_the_direction():
    y, a, _ = some_reversed(600, 9, 10)
    marginal = irt.fit_marginal(irt.from_array(y), positive="none")
    fit = fit_quietly(irt.from_array(y), positive="none", start=marginal, n_draws=150, n_warmup=60)
    np.testing.assert_array_equal(np.sign(fit["item_discrimination"]), np.sign(a))
    with pytest.raises(InputError, match="discriminations are positive"):
        irt.fit_bayes(irt.from_array(y), start=marginal)


def test_a_start_is_turned_not_followed():
    # As many items fall as rise: a start that says they all rise must not cut the posterior.
    rng = np.random.default_rng(2)
    theta, a = rng.standard_normal(400), np.array([1.2, -1.2] * 6)
    y = respond(rng, theta, a, np.zeros(12))
    start = irt.fit_marginal(irt.from_array(y), positive="none")
    start["item_discrimination"] = np.abs(start["item_discrimination"])
    fit = fit_quietly(irt.from_array(y), positive="none", start=start, n_draws=300, n_warmup=200)
    np.testing.assert_array_equal(
        np.abs(np.sign(fit["item_discrimination"]).values @ np.sign(a)), 12
    )
    total = fit["item_discrimination_draw"].values.sum(axis=1)
    assert total.min() < 0.0 < total.max()  # which is near 0


def test_a_prior_that_leans_decides_the_direction():
    y, _, _ = some_reversed(400, 8, 12)
    kinds = (ConvergenceWarning, ItemWarning, ApproximationWarning)
    fits = [
        quiet(
            irt.fit_bayes, irt.from_array(y), positive="none", n_draws=150, n_warmup=60,
            prior=irt.ItemPrior(loading=(mean, 0.3)), kinds=kinds,
        )
        for mean in (1.0, -1.0)
    ]  # fmt: skip
    assert fits[0].attrs["objective"] == pytest.approx(fits[1].attrs["objective"], abs=1.0)
    one, other = (f["item_discrimination"] for f in fits)
    np.testing.assert_array_equal(np.sign(one), -np.sign(other))


@pytest.mark.parametrize("n_first", [7, 8, 9])
def test_of_two_starts_the_likelier_end_is_taken(n_first):
    # 16 items of either of two independent abilities, every other one reversed; 8 of each are twice
    # the same items, the second time of other persons.
    rng = np.random.default_rng(3)
    theta, camp = rng.standard_normal((1500, 2)), (np.arange(16) >= n_first).astype(int)
    a = np.where(np.arange(16) % 2, -1.3, 1.3)
    p = expit(a * theta[:, camp] + rng.normal(0.0, 0.5, 16))
    y = (rng.random(p.shape) < p).astype(np.int8)
    if n_first == 8:
        y[:, 8:] = y[::-1, :8]
    shapes = models.asked("2pl", [str(j) for j in range(16)], [2] * 16, None, 1, None, signed=True)
    one, other = (np.stack([np.where(camp == k, a, 0.05), np.zeros(16)]) for k in range(2))
    information, given = np.full(16, 250.0), (one, 250.0 * one[0])
    with Engine(irt.from_array(y)) as engine, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found, towards = signs._likelier(engine, shapes, information, given, other)
    assert [w.category for w in caught] == ([ApproximationWarning] if n_first == 8 else [])
    if n_first == 9:  # the first start itself
        assert found is one
        assert towards is given[1]
    if n_first == 7:
        assert np.array_equal(np.abs(found[0]) > 0.7, camp == 1)
        np.testing.assert_array_equal(towards, 250.0 * found[0])


@pytest.mark.parametrize("pattern", [(1, 0, 1, 1, 0, 1), (1, 1, 1, 1, 1, 1)])
def test_items_without_variance_do_not_freeze(pattern):
    y = np.tile(np.array(pattern, dtype=np.int8), (100, 1))
    fit = fit_quietly(irt.from_array(y), positive="none", n_draws=200, n_warmup=60)
    share = fit["item_negative_probability"].values
    assert ((share > 0.02) & (share < 0.98)).any()
    assert (fit["item_discrimination_draw"].std("draw") > 0.01).all()


def test_no_chain_begins_on_the_other_side():
    rng = np.random.default_rng(13)
    plan = Plan("", 1, 1, 60, 100, 1, FIXED, 100, 20, towards=(1.0, 0.5, -2.0))
    for _ in range(20):
        u = plan.turned(rng.normal(size=3))
        assert np.array(plan.towards) @ u > 0.0


def test_codes_of_nominal_items_do_not_say_where_ability_points():
    rng = np.random.default_rng(14)
    theta = rng.standard_normal(800)
    a = np.array([1.0, 1.3])
    y = np.empty((800, 7), dtype=np.int8)
    y[:, :2] = respond(rng, theta, a, np.zeros(2))
    z = theta[:, None] * np.full(5, 1.5) + rng.logistic(size=(800, 5))
    y[:, 2:] = 2 - np.digitize(z, [-0.7, 0.7])  # codes fall with ability
    ids = [f"i{j}" for j in range(7)]
    models = dict(zip(ids, ["2pl"] * 2 + ["nominal"] * 5, strict=True))
    data = irt.from_array(y, item_id=ids, categories=[2] * 2 + [3] * 5)
    fit = maximise_quietly(data, model=models, positive="none")
    assert (fit["item_discrimination"][:2] > 0.5).all()


@pytest.mark.parametrize(("method", "options", "match"), [
    ("fit_marginal", {"positive": "none", "model": "1pl"}, "share one slope"),
    ("fit_marginal", {"positive": "anchors"}, "positive"),
    ("fit_bayes", {"positive": "none", "n_dims": 2}, "one ability"),
    ("fit_bayes", {"positive": "none", "sampler": "polya-gamma"}, "sampler='grid'"),
    ("fit_bayes", {"positive": "some"}, "positive"),
    ("fit_bayes", {"positive": "none", "prior": irt.ItemPrior((3.0, 0.1))}, "loading="),
])  # fmt: skip
def test_what_has_no_signs_is_refused(method, options, match):
    y, _, _ = some_reversed(60, 6, 11)
    with pytest.raises(InputError, match=match):
        getattr(irt, method)(irt.from_array(y), **options)


@pytest.mark.slow
def test_signs_of_few_persons():
    # 200 x 60 with a tenth reversed: of |a| > .5 at least 99% have their sign (5 data sets).
    right = total = 0
    for seed in range(5):
        y, a, _ = some_reversed(200, 60, 20 + seed, every=10)
        fit = fit_quietly(irt.from_array(y), positive="none", n_draws=300, n_warmup=150)
        large = np.abs(a) > 0.5
        right += int((np.sign(fit["item_discrimination"].values) == np.sign(a))[large].sum())
        total += int(large.sum())
    assert right >= 0.99 * total, (right, total)
