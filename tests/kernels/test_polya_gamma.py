"""The Pólya-Gamma reference sampler against things that share no code with it.

False-alarm rates are for a fresh seed; the seeds are fixed, so a test that passes keeps passing.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from batch_means import worst
from items import simulated_m2pl
from numba import njit
from parts import csr_of
from scipy.special import expit, log_ndtr
from scipy.stats import beta, kstest, truncnorm

import irt_dask as irt
from irt_dask.calibrate.bayes import grid_chain, loadings, polya_gamma_chain
from irt_dask.calibrate.shared.start_values import response_counts
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Chain, Checkpoint, Engine, run_chains
from irt_dask.errors import ChainError, InputError
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.several import correlations, polya_gamma, rotations, small_normals
from irt_dask.kernels.several.polya_gamma import Items, State, Streams

REFERENCE = json.loads((Path(__file__).parents[1] / "oracles" / "lsat_posterior.json").read_text())
TRIANGLE = np.tri(4, 2, dtype=bool)
SIMPLE = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=bool)


def known(free, positive=None, prior=None):
    positive = free if positive is None else positive
    prior = prior or ItemPrior()
    return Items(free, positive, *prior.tempered_loadings(positive, 1.0), prior.tempered(1.0)[2:])


# --- Pólya-Gamma draws ----------------------------------------------------------------------------


@pytest.mark.parametrize("z", [0.0, 0.3, -2.0, 9.0, -60.0])
def test_omega_has_its_mean_variance_and_transform(z):
    # |z-score| < 5: false-alarm rate 6e-7 each.
    n, c = 100_000, abs(z)
    x = polya_gamma.draw_omega(np.full(n, z), np.random.default_rng(1))
    mean = math.tanh(c / 2) / (2 * c) if c else 0.25
    variance = 1 / 24
    if c:
        variance = (math.tanh(c / 2) - c / 2 / math.cosh(c / 2) ** 2) / (2 * c**3)
    transform = math.cosh(c / 2) / math.cosh(math.sqrt(c * c + 2.0) / 2)  # E exp(-omega)
    for values, exact in ((x, mean), ((x - mean) ** 2, variance), (np.exp(-x), transform)):
        error = values.std() / math.sqrt(n)
        assert abs(values.mean() - exact) < 5 * error


@pytest.mark.parametrize("bad", [np.nan, np.inf, -101.0])
def test_omega_refuses_what_the_library_cannot_do(bad):
    with pytest.raises(ChainError, match=r"100.*fewer shards"):
        polya_gamma.draw_omega(np.array([0.0, bad, 1.0]), np.random.default_rng(1))


# --- truncated normals and item steps -------------------------------------------------------------


@njit
def many_positive(mean, sd, n, rng):
    x = np.empty(n)
    for i in range(n):
        x[i] = small_normals.positive_normal(mean, sd, rng)
    return x


@pytest.mark.parametrize("bound", [-8.0, -1.0, 0.0, 0.44, 0.46, 3.0, 30.0, 1e4])
def test_positive_normal_has_its_law_however_far_out(bound):
    sd = 0.3
    x = many_positive(-bound * sd, sd, 20_000, np.random.default_rng(2))

    def below(v):
        return -np.expm1(log_ndtr(-(bound + v / sd)) - log_ndtr(-bound))

    assert x.min() > 0
    assert kstest(x, below).pvalue > 1e-5


@pytest.mark.parametrize(("mean", "sd"), [(np.nan, 1.0), (0.0, np.nan), (-np.inf, 1.0),
                                          (-1e160, 1.0), (1.0, 0.0)])  # fmt: skip
def test_positive_normal_of_nothing_ends(mean, sd):
    assert np.isnan(many_positive(mean, sd, 1, np.random.default_rng(1))[0])


def test_the_hardest_coordinate_is_the_least_likely_positive_one():
    rng = np.random.default_rng(23)
    for _ in range(50):
        root, u = rng.standard_normal((3, 3)), rng.standard_normal(3)
        p, positive = root @ root.T + 0.1 * np.eye(3), rng.random(3) < 0.7
        cov = np.linalg.inv(p)
        ratio = np.where(positive, cov @ u / np.sqrt(np.diag(cov)), np.inf)
        expected = int(np.argmin(ratio)) if positive.any() else -1
        lower = np.where(np.tri(3, dtype=bool), p, np.nan)
        assert small_normals.hardest(lower, u, positive) == expected


def gram_of(x, omega):
    """Lower triangle of ``sum omega x x'``; what is above it must not matter."""
    full = (x * omega[:, None]).T @ x
    return np.where(np.tri(len(full), dtype=bool), full, np.nan)


def on_grid(gram, linear, power, items, n):
    """The item's conditional on a grid over (loadings, intercept), from the definition."""
    full = np.where(np.tri(len(gram), dtype=bool), gram, gram.T)
    prior = np.append(items.precision[0], items.intercept[1])
    p = power * full + np.diag(prior)
    u = power * linear + prior * np.append(items.mean[0], items.intercept[0])
    centre, reach = np.linalg.solve(p, u), 20.0 * np.sqrt(np.diag(np.linalg.inv(p)))
    lo, hi = centre - reach, centre + reach
    for k in np.flatnonzero(items.positive[0]):
        lo[k], hi[k] = 0.0, max(hi[k], reach[k])
    for _ in range(6):  # zoom in on where the mass is
        step = (hi - lo) / n
        axes = [a + s * (np.arange(n) + 0.5) for a, s in zip(lo, step, strict=True)]
        x = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        log_w = np.einsum("...i,i->...", x, u) - 0.5 * ((x @ p) * x).sum(-1)
        w = np.exp(log_w - log_w.max())
        for k in range(len(u)):
            marginal = w.sum(axis=tuple(i for i in range(len(u)) if i != k))
            inside = np.flatnonzero(marginal > 1e-9 * marginal.max())
            lo[k], hi[k] = lo[k] + step[k] * inside[0], lo[k] + step[k] * (inside[-1] + 1)
    return x.reshape(-1, len(u)), w.ravel() / w.sum()


# fmt: off
CASES = {  # slopes that the "data" have, which loadings are positive, power, persons
    "usual": ((1.3,), (1,), 1.0, 60),
    "one negative slope": ((-1.5,), (1,), 1.0, 60),
    "one of either sign": ((-1.5,), (0,), 1.0, 60),
    "nobody": ((1.0,), (1,), 1.0, 0),
    "two": ((1.3, 0.6), (1, 1), 1.0, 60),
    "two, powered": ((1.3, 0.2), (1, 1), 3.0, 60),
    "two, one of either sign": ((0.1, -0.8), (1, 0), 1.0, 60),
    "two, far out": ((-2.5, -2.5), (1, 1), 1.0, 400),
}
# fmt: on


@pytest.mark.parametrize("case", CASES)
def test_item_step_has_its_conditional(case):
    # 10,000 items with the same sums, each starting from the conditional itself and moved three
    # times: |z| < 5 (6e-7 each) for means, second moments, and the share below the median.
    slopes, positive, power, n = CASES[case]
    rng = np.random.default_rng(3)
    q, m = len(slopes), 10_000
    # "Far out": the abilities are all but the same, so that their loadings' sum is known well and
    # is negative; proposals fail and the other kernel of the step is tested.
    theta = rng.standard_normal((n, q))
    if case == "two, far out":
        theta[:, 1] = theta[:, 0] + 0.2 * theta[:, 1]
    x = np.c_[theta, np.ones(n)]
    y = rng.random(n) < expit(theta @ slopes + 0.5)
    gram, linear = gram_of(x, rng.uniform(0.05, 0.25, n)), x.T @ (y - 0.5)
    free = np.ones((m, q), dtype=bool)
    items = known(free, np.tile(np.array(positive, dtype=bool), (m, 1)))
    points, w = on_grid(gram, linear, power, items, 601 if q == 1 else 61)
    at = points[rng.choice(len(w), m, p=w)]
    a, d = at[:, :q].copy(), at[:, q].copy()
    for _ in range(3):
        polya_gamma.draw_items(
            items, np.tile(gram, (m, 1, 1)), np.tile(linear, (m, 1)), power, rng, a, d
        )
    got = np.c_[a, d]
    assert (a[:, np.array(positive, dtype=bool)] > 0).all()
    mean = w @ points
    for i in range(q + 1):
        value, at = np.unique(points[:, i], return_inverse=True)
        k = np.searchsorted(np.cumsum(np.bincount(at, w)), 0.5)
        middle = (value[k] + value[k + 1]) / 2  # the edge of a cell
        for f in (
            lambda v, i=i: v[:, i],
            lambda v, i=i: (v[:, i] - mean[i]) * (v[:, q] - mean[q]),
            lambda v, i=i: (v[:, i] - mean[i]) * (v[:, 0] - mean[0]),
            lambda v, i=i, c=middle: v[:, i] < c,
        ):
            value, exact = f(got), w @ f(points)
            assert abs(value.mean() - exact) < 5 * value.std() / math.sqrt(m), (i, exact)


def test_item_step_forgets_where_it_was():
    # Independent draws where proposals succeed: far starts give the same law as near ones.
    rng = np.random.default_rng(4)
    x = np.c_[rng.standard_normal((200, 2)), np.ones(200)]
    gram, linear = gram_of(x, np.full(200, 0.2)), x.T @ (rng.random(200) - 0.4)
    m = 4000
    items = known(np.ones((m, 2), dtype=bool))
    sums = np.tile(gram, (m, 1, 1)), np.tile(linear, (m, 1))
    a, d = np.repeat([[0.1, 0.1], [9.0, 9.0]], m // 2, axis=0), np.zeros(m)
    polya_gamma.draw_items(items, *sums, 1.0, rng, a, d)
    near, far = a[: m // 2], a[m // 2 :]
    error = np.sqrt((near.var(0) + far.var(0)) / (m // 2))
    assert (np.abs(near.mean(0) - far.mean(0)) < 4.5 * error).all()


@pytest.mark.slow
def test_loadings_that_are_fixed_stay_at_zero_and_do_not_count():
    rng = np.random.default_rng(5)
    x = np.c_[rng.standard_normal((80, 3)), np.ones(80)]
    omega, linear = rng.uniform(0.1, 0.25, 80), x.T @ (rng.random(80) - 0.5)
    free = np.array([[True, False, True]])
    a, d = np.ones((1, 3)) * free, np.zeros(1)
    gram = gram_of(x, omega)[None]
    polya_gamma.draw_items(known(free), gram, linear[None], 1.0, np.random.default_rng(1), a, d)
    two = [0, 2, 3]
    b, e = np.ones((1, 2)), np.zeros(1)
    polya_gamma.draw_items(
        known(np.ones((1, 2), dtype=bool)), gram[:, two][:, :, two], linear[None, two], 1.0,
        np.random.default_rng(1), b, e,
    )  # fmt: skip
    assert a[0, 1] == 0.0
    np.testing.assert_array_equal(a[:, [0, 2]], b)
    np.testing.assert_array_equal(d, e)


# --- correlations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [2, 3])
def test_correlations_without_data_have_their_prior(q):
    # LKJ(1): each correlation is 2 Beta(q/2, q/2) - 1.  KS tests, false-alarm rate 1e-5 each.
    r = np.tile(np.eye(q), (2000, 1, 1))
    rng = np.random.default_rng(6)
    for _ in range(20):
        correlations.draw_correlations(np.zeros_like(r), 0, rng, r)
    assert (np.linalg.eigvalsh(r) > 0).all()
    for i in range(q):
        for j in range(i):
            assert kstest((r[:, i, j] + 1) / 2, beta(q / 2, q / 2).cdf).pvalue > 1e-5
            np.testing.assert_array_equal(r[:, i, j], r[:, j, i])


@pytest.mark.parametrize(("n", "rho"), [(5, 0.9), (400, -0.6)])
def test_correlation_given_abilities(n, rho):
    rng = np.random.default_rng(7)
    x = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], n)
    s = x.T @ x
    grid = np.linspace(-1, 1, 20_001)[1:-1]
    log_p = -0.5 * n * np.log1p(-(grid**2))
    log_p -= 0.5 * (s[0, 0] + s[1, 1] - 2 * grid * s[0, 1]) / (1 - grid**2)
    cdf = np.cumsum(np.exp(log_p - log_p.max()))
    r = np.tile(np.eye(2), (3000, 1, 1))
    scatter = np.tile(np.where(np.tri(2, dtype=bool), s, np.nan), (3000, 1, 1))
    for _ in range(30):
        correlations.draw_correlations(scatter, n, rng, r)
    assert kstest(r[:, 0, 1], lambda v: np.interp(v, grid, cdf / cdf[-1])).pvalue > 1e-5


# --- rotations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("positive", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_angle_has_its_conditional(positive):
    """Against its density on a grid; 4,000 nearly independent draws, false-alarm rate 1e-5."""
    rng = np.random.default_rng(20)
    a = np.array([[1.2, 0.0], [1.0, 0.9], [0.7, 1.3], [0.0, 0.8]])
    free = a > 0.0
    mask = free.copy()
    mask[1:3] = positive
    d, theta = rng.normal(size=4), rng.standard_normal((12, 2))
    y = np.where(rng.random((12, 4)) < 0.2, -1, rng.integers(0, 2, (12, 4))).astype(np.int8)
    cells = layouts.to_sparse(layouts.Dense(y))
    items = known(free, mask)
    held = rotations.held(cells, free)
    assert sorted(zip(held.person, held.item, strict=True)) == [
        (i, j) for i in range(12) for j in (0, 3) if y[i, j] >= 0
    ]
    grid = np.linspace(-np.pi, np.pi, 20_001)
    log_density = np.zeros_like(grid)
    for k, angle in enumerate(grid):
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        moved = np.where(free.all(axis=1)[:, None], a @ turn, a)
        if (moved[mask & free] <= 0.0).any():
            log_density[k] = -np.inf
            continue
        z = theta @ turn @ moved.T + d
        log_density[k] = np.where(y == 1, -np.logaddexp(0, -z), -np.logaddexp(0, z))[y >= 0].sum()
        deviation = (moved - items.mean)[free.all(axis=1)]
        log_density[k] -= 0.5 * (items.precision[free.all(axis=1)] * deviation**2).sum()
    weight = np.exp(log_density - log_density.max())
    cumulative = np.cumsum(weight) / weight.sum()
    state, angles = (theta.copy(), a.copy(), d), []
    for k in range(40_000):
        rotations.rotate(items, held, *state, rng)
        if k % 10 == 0:
            x = state[1][1]  # where it points, against where it did
            angles.append(np.arctan2(x[1], x[0]) - np.arctan2(a[1, 1], a[1, 0]))
    angles = (np.array(angles) + np.pi) % (2.0 * np.pi) - np.pi
    u = np.interp(angles, grid, cumulative)
    assert kstest(u, "uniform").pvalue > 1e-5
    np.testing.assert_allclose(state[0] @ state[1][1], theta @ a[1], atol=1e-9)


# --- joint distribution test (Geweke 2004) --------------------------------------------------------


class Joint:
    """Many chains side by side that alternate responses given the rest with one sweep.

    Each has n persons and its own items; together they are one sparse problem, so the kernel that
    fits use does a sweep of all at once.  They start from the prior and must stay there; being
    independent, their means over time give z-scores without autocorrelations.
    """

    def __init__(self, chains, seed, *, n=10, free=None, correlated=False, missing=0.0, used=None):
        rng = self.rng = np.random.default_rng(seed)
        self.free = np.ones((4, 1), dtype=bool) if free is None else free
        m, q = self.free.shape
        self.chains, self.n, self.correlated = chains, n, correlated
        mask = np.tile(self.free, (chains, 1))
        self.items = known(mask, prior=used)
        person = np.repeat(np.arange(chains * n), m)
        item = np.repeat(np.arange(chains), n * m) * m + np.tile(np.arange(m), chains * n)
        seen = rng.random(person.size) >= missing
        self.person, self.item = person[seen], item[seen].astype(np.int32)
        self.indptr = np.searchsorted(self.person, np.arange(chains * n + 1))
        r = np.tile(np.eye(q), (chains if correlated else 1, 1, 1))
        if correlated:
            r[:, 0, 1] = r[:, 1, 0] = rng.uniform(-1, 1, chains)
        theta = rng.standard_normal((chains, n, q))
        theta = np.einsum("cij,cnj->cni", np.linalg.cholesky(r), theta).reshape(-1, q)
        a = np.where(mask, truncnorm.rvs(-1.0, np.inf, loc=1.0, size=mask.shape,
                                         random_state=rng), 0.0)  # fmt: skip
        self.state = State(theta, a, rng.normal(0.0, 2.0, chains * m), r)
        if q > 1 and not correlated:
            self._chains_to_turn()

    def _chains_to_turn(self):
        """Each chain has an angle of its own: its parts of everything."""
        (n, (m, _)), s = (self.n, self.free.shape), self.state
        zeros = ~self.free.all(axis=1)
        at = np.flatnonzero(zeros[self.item % m])
        chain = self.item[at] // m
        self.parts = []
        for c in range(self.chains):
            of_items, of_persons, here = (
                slice(c * m, c * m + m),
                slice(c * n, c * n + n),
                at[chain == c],
            )
            items = Items(*(x[of_items] for x in self.items[:4]), self.items.intercept)
            person, item = self.person[here] - c * n, self.item[here].astype(np.int64) - c * m
            parts = s.theta[of_persons], s.loadings[of_items], s.intercepts[of_items]
            self.parts.append((here, person, item, items, parts))

    def step(self):
        s, rng = self.state, self.rng
        z = (s.loadings[self.item] * s.theta[self.person]).sum(1) + s.intercepts[self.item]
        y = (rng.random(z.size) < expit(z)).astype(np.int8)
        cells = layouts.Sparse(self.indptr, self.item, y, s.intercepts.size)
        streams = Streams(*(rng,) * 5)
        polya_gamma.sweep(cells, self.items, s, streams, correlated=self.correlated)
        for here, person, item, items, parts in getattr(self, "parts", ()):
            rotations.rotate(items, rotations.Held(person, item, y[here] == 1), *parts, rng)

    def functionals(self):
        """By name: one value for each chain, and its expectation under the prior."""
        m, q = self.free.shape
        a = self.state.loadings.reshape(self.chains, m, q)
        d = self.state.intercepts.reshape(self.chains, m)
        used = a[:, self.free]
        law = truncnorm(-1.0, np.inf, loc=1.0)
        a1, a2 = law.mean(), law.var() + law.mean() ** 2
        out = {
            "a": (used.mean(1), a1),
            "a^2": ((used**2).mean(1), a2),
            "a1 a2": (a[:, -2, -1] * a[:, -1, -1], a1**2),
            "d": (d.mean(1), 0.0),
            "d^2": ((d**2).mean(1), 4.0),
            "(mean d)^2": (d.mean(1) ** 2, 4.0 / m),
            "a d": ((a[:, :, 0] * d).mean(1), 0.0),
            "theta": (self.state.theta.reshape(self.chains, -1).mean(1), 0.0),
            "theta^2": ((self.state.theta**2).reshape(self.chains, -1).mean(1), 1.0),
        }
        if self.correlated:
            rho = self.state.correlation[:, 0, 1]
            out |= {"rho": (rho.copy(), 0.0), "rho^2": (rho**2, 1.0 / 3.0)}
        return out

    def z_scores(self, iterations):
        sums = {}
        for _ in range(iterations):
            self.step()
            for name, (value, exact) in self.functionals().items():
                sums[name] = sums.get(name, 0.0) + (value - exact)
        return {
            name: float(v.mean() / (v.std(ddof=1) / math.sqrt(self.chains)))
            for name, v in sums.items()
        }


# fmt: off
DESIGNS = {
    "one dimension": {},
    "missing": {"missing": 0.4},
    "two dimensions": {"free": TRIANGLE},
    "correlated": {"free": SIMPLE, "correlated": True},
}
# fmt: on


# Nine or eleven z-scores below 4.5: false-alarm rate 1e-4.
@pytest.mark.parametrize("design", DESIGNS)
def test_joint_distribution_quickly(design):
    assert worst(Joint(200, 8, **DESIGNS[design]).z_scores(50)) < 4.5


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("design", DESIGNS)
def test_joint_distribution(design):
    assert worst(Joint(1000, 9, **DESIGNS[design]).z_scores(1000)) < 4.5


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("design", ["one dimension", "two dimensions", "correlated"])
def test_joint_distribution_sees_omega_one_percent_off(design, monkeypatch):
    right = polya_gamma.draw_omega
    monkeypatch.setattr(polya_gamma, "draw_omega", lambda z, rng: 1.01 * right(z, rng))
    assert worst(Joint(1000, 10, **DESIGNS[design]).z_scores(300)) > 6


def test_joint_distribution_sees_mistakes_quickly(monkeypatch):
    assert worst(Joint(200, 11, used=ItemPrior(intercept=(0.0, 2.3))).z_scores(50)) > 6
    right = polya_gamma.draw_omega
    monkeypatch.setattr(polya_gamma, "draw_omega", lambda z, rng: 1.1 * right(z, rng))
    assert worst(Joint(200, 12).z_scores(100)) > 6


# --- sweeps ---------------------------------------------------------------------------------------


def streams(seed):
    return Streams(*(keyed_random.generator(seed, name) for name in Streams._fields))


def swept(cells, free, seed=1, n_sweeps=3, **options):
    m, q = free.shape
    state = State(np.zeros((cells.shape[0], q)), 1.0 * free, np.zeros(m), np.eye(q)[None].copy())
    for k in range(n_sweeps):
        polya_gamma.sweep(cells, known(free), state, streams(seed + k), **options)
    return state


def test_persons_without_responses_have_the_prior():
    # 4,000 persons, the first and last thousand without responses: theta is N(0, R) there.
    y = np.full((4000, 4), -1, dtype=np.int8)
    y[1000:3000] = simulated_m2pl(2000, 1.0 * SIMPLE, np.zeros(4), 13)
    r = np.array([[1.0, 0.6], [0.6, 1.0]])
    state = State(np.zeros((4000, 2)), 1.0 * SIMPLE, np.zeros(4), r[None].copy())
    cells = layouts.to_sparse(layouts.Dense(y))
    polya_gamma.sweep(cells, known(SIMPLE), state, streams(2))
    rest = np.r_[state.theta[:1000], state.theta[3000:]]
    assert kstest(rest[:, 0], "norm").pvalue > 1e-5
    assert np.cov(rest.T)[0, 1] == pytest.approx(0.6, abs=5 * 1.2 / math.sqrt(2000))
    np.testing.assert_array_equal(state.correlation[0], r)  # not correlated=True: held


def test_pieces_of_a_sweep_have_everybody_once(monkeypatch):
    monkeypatch.setattr(polya_gamma, "_TOGETHER", 3)
    rng = np.random.default_rng(14)
    for counts in ([0, 0], [0, 0, 9, 0, 1, 1, 1, 0, 0, 2, 5, 0], [7], rng.integers(0, 3, 500)):
        indptr = np.concatenate([[0], np.cumsum(counts)])
        pieces = polya_gamma._pieces(indptr, len(counts))
        assert [i for lo, hi in pieces for i in range(lo, hi)] == list(range(len(counts)))
        assert all(indptr[hi - 1] - indptr[lo] < 6 for lo, hi in pieces)


def test_ability_is_drawn_from_its_normal():
    # One person's answers 20,000 times, omega held: mean and covariance from the definition.
    n, rng = 20_000, np.random.default_rng(15)
    a, d, omega = rng.normal(0, 1, (3, 2)), rng.normal(0, 1, 3), np.array([0.1, 0.2, 0.25])
    r, y = np.array([[1.0, -0.4], [-0.4, 1.0]]), np.array([1, 0, 1], dtype=np.int8)
    p = np.linalg.inv(r) + (a * omega[:, None]).T @ a
    mean, cov = np.linalg.solve(p, a.T @ (y - 0.5 - omega * d)), np.linalg.inv(p)
    theta = np.zeros((n, 2))
    gram, linear, scatter = np.zeros((3, 3, 3)), np.zeros((3, 3)), np.zeros((1, 2, 2))
    polya_gamma._abilities(
        np.arange(n + 1) * 3, np.tile(np.arange(3, dtype=np.int32), n), 0, n, np.tile(y, n),
        np.tile(omega, n), a, d, np.linalg.inv(r)[None], rng, theta, gram, linear, scatter,
    )  # fmt: skip
    error = 5 * np.sqrt(np.diag(cov) / n)
    assert (np.abs(theta.mean(0) - mean) < error).all()
    np.testing.assert_allclose(np.cov(theta.T), cov, atol=5 * cov.max() * math.sqrt(2 / n))
    x, low = np.c_[theta, np.ones(n)], np.tri(3, dtype=bool)
    for j in range(3):
        np.testing.assert_allclose(gram[j][low], (omega[j] * x.T @ x)[low], rtol=1e-9)
        np.testing.assert_allclose(linear[j], (y[j] - 0.5) * x.sum(0), rtol=1e-9)
    np.testing.assert_allclose(scatter[0][low[:2, :2]], (theta.T @ theta)[low[:2, :2]], rtol=1e-9)


# --- chains ---------------------------------------------------------------------------------------


def fit(responses, *, free=None, positive="all", n_shards=1, n_draws=200, n_warmup=50, seed=1,
        thin=1, powering="shrink", correlated=False, client=None, n_chains=1):  # fmt: skip
    """Chains of all shards, as a caller runs them; returns them in order."""
    responses = irt.from_array(responses) if isinstance(responses, np.ndarray) else responses
    m = responses.n_items
    free = np.ones((m, 1), dtype=bool) if free is None else free
    mask = loadings.positive_loadings(free, positive)
    plan = polya_gamma_chain.Plan(
        fingerprint=responses.fingerprint, seed=seed, n_shards=n_shards, n_warmup=n_warmup,
        n_draws=n_draws, thin=thin, prior=ItemPrior(), n_persons=responses.n_persons, sweeps=1,
        n_dims=free.shape[1], free=polya_gamma_chain.pack(free),
        positive=polya_gamma_chain.pack(mask), powering=powering, correlated=correlated,
    )  # fmt: skip
    with Engine(responses, client=client) as engine:
        right, seen = response_counts(engine)[:2]
        start = loadings.start(right, seen, free, mask)
        chains = [
            Chain(f"{s}-{c}", polya_gamma_chain.first_state(s, c, *start, plan))
            for s in range(n_shards)
            for c in range(n_chains)
        ]
        run_chains(engine, chains, functools.partial(polya_gamma_chain.segment, plan), plan.total,
                   Checkpoint(None, {}))  # fmt: skip
    return chains


def draws(chains):
    return np.concatenate([o["draws"] for c in chains for o in c.outputs])


def lsat_distance(x):
    """Differences of means in reference SDs, and ratios of SDs; order a1..a5 d1..d5."""
    reference = {k: np.array(v) for k, v in REFERENCE["importance"].items() if k in ("mean", "sd")}
    flat = x.reshape(len(x), -1)
    return (flat.mean(0) - reference["mean"]) / reference["sd"], flat.std(0) / reference["sd"]


def test_lsat_posterior():
    # 1,000 sweeps are worth some 20 draws for a3, hundreds for the intercepts.
    shift, ratio = lsat_distance(draws(fit(irt.load_lsat(), n_draws=1000, n_warmup=100)))
    assert np.abs(shift).max() < 0.8
    assert 0.6 < ratio.min() < ratio.max() < 1.6


@pytest.mark.slow
@pytest.mark.nightly
def test_lsat_posterior_closely():
    # 50,000 sweeps in two chains are worth about 1,000 draws for a3: errors of 0.03 SD in a mean.
    shift, ratio = lsat_distance(draws(fit(irt.load_lsat(), n_draws=25_000, n_chains=2)))
    assert np.abs(shift).max() < 0.15
    assert 0.9 < ratio.min() < ratio.max() < 1.1


def two_dimensions(m=10, seed=16):
    rng = np.random.default_rng(seed)
    free = np.tri(m, 2, dtype=bool)
    return free, np.where(free, rng.uniform(0.3, 2.0, (m, 2)), 0.0), rng.normal(0, 1, m)


@pytest.mark.parametrize("positive", [pytest.param("all", marks=pytest.mark.slow), "anchors"])
def test_two_dimensions_are_recovered(positive):
    # z-scores of 29 parameters against the posterior's own SDs; chi-square(29) of which 60 is the
    # 1 - 6e-4 quantile (and the posterior is correlated, the chains short: 90).
    free, a, d = two_dimensions()
    if positive == "anchors":
        a[5:, 0] *= -1.0
        # Anchors that say something: of both dimensions.
        a[:2][free[:2]] = 1.8
    y = simulated_m2pl(1000, a, d, 17, missing=0.1)
    x = draws(fit(y, free=free, positive=positive, n_draws=300, n_warmup=150))
    assert x.shape == (300, 3, 10)
    np.testing.assert_array_equal(x[:, 1, 0], 0.0)
    truth = np.vstack([a.T, d])
    used = np.vstack([free.T, np.ones(10, dtype=bool)])
    z = ((x.mean(0) - truth) / np.where(used, x.std(0), 1.0))[used]
    assert (z**2).sum() < 90
    assert np.abs(z).max() < 4.0
    assert np.abs(x.mean(0) - truth).max() < 0.8


def test_correlation_is_recovered():
    free = np.repeat(np.eye(2, dtype=bool), 6, axis=0)
    a, d = 1.5 * free, np.linspace(-1, 1, 12)
    chains = fit(
        simulated_m2pl(800, a, d, 18, [[1.0, 0.5], [0.5, 1.0]]),
        free=free,
        correlated=True,
        n_draws=300,
    )
    r = chains[0].outputs[0]["correlation"]
    assert r.shape == (300, 2, 2)
    np.testing.assert_array_equal(r[:, 0, 0], 1.0)
    rho = r[100:, 0, 1]
    assert abs(rho.mean() - 0.5) < 4.5 * rho.std()
    assert 0.02 < rho.std() < 0.1


def test_only_correlated_plans_say_correlations():
    chains = fit(simulated_m2pl(100, 1.0 * SIMPLE, np.zeros(4), 19), free=SIMPLE, n_draws=100)
    assert set(chains[0].outputs[0]) == {"draws"}


# --- the same bits --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    return simulated_m2pl(240, np.where(np.tri(6, 2), 1.0, 0.0), np.zeros(6), 20, missing=0.6)


OPTIONS = {"free": np.tri(6, 2, dtype=bool), "n_shards": 2, "n_draws": 100}


@pytest.fixture(scope="module")
def small_draws(small):
    return draws(fit(small, **OPTIONS))


@pytest.mark.parametrize("rows", [7, 100, 240])
def test_blocks_do_not_matter(small, small_draws, rows):
    y = irt.from_array(small, rows_per_block=rows)
    np.testing.assert_array_equal(draws(fit(y, **OPTIONS)), small_draws)


def test_dense_and_sparse_have_the_same_bits(small, small_draws):
    y = irt.from_array(csr_of(small), observed="stored", rows_per_block=50)
    np.testing.assert_array_equal(draws(fit(y, **OPTIONS)), small_draws)


def test_seeds_shards_and_chains_have_their_own_random_numbers(small):
    one = fit(small, free=OPTIONS["free"], n_draws=100, n_chains=2)
    other = fit(small, free=OPTIONS["free"], n_draws=100, seed=2)
    first, second = (c.outputs[0]["draws"] for c in one)
    used = first[0] != 0.0
    for x in (second, other[0].outputs[0]["draws"]):
        assert not (first == x)[:, used].any()


def test_thinning_keeps_every_kth_sweep(small):
    plain = draws(fit(small, n_draws=100))
    np.testing.assert_array_equal(draws(fit(small, n_draws=100, thin=4)), plain[3::4])


# --- shards and their powers ----------------------------------------------------------------------


@pytest.mark.parametrize(("n", "total"), [(1, 1), (3, 10), (7, 7), (499, 3001)])
def test_copies_of_rows(n, total):
    times = grid_chain.copies_of(n, total)
    assert times.sum() == total
    assert times.max() - times.min() <= 1
    r = np.arange(n)
    np.testing.assert_array_equal(times, total * (r + 1) // n - total * r // n)


def test_one_shard_is_the_same_however_it_is_powered(small):
    one = [draws(fit(small, n_draws=100, powering=p)) for p in polya_gamma_chain.POWERINGS]
    np.testing.assert_array_equal(one[0], one[1])
    np.testing.assert_array_equal(one[0], one[2])


@pytest.mark.slow
def test_replicated_shards_have_the_scale_of_all_persons():
    # Intercepts of easy data: the SD of a shard of a quarter is twice that of all; replicated, it
    # is that of all.  300 draws of 6 items in 4 shards: ratios are within 10% (8 standard errors).
    y = simulated_m2pl(1600, np.full((6, 1), 1.0), np.linspace(-1, 1, 6), 21)
    sd = {}
    for powering, shards in (("shrink", 1), ("shrink", 4), ("replicate", 4)):
        chains = fit(y, n_shards=shards, powering=powering, n_draws=300)
        x = np.stack([c.outputs[0]["draws"][:, 1] for c in chains])
        sd[powering, shards] = x.std(axis=1).mean()
        assert sum(int(c.state["n"]) for c in chains) == 1600
    assert 0.8 < sd["replicate", 4] / sd["shrink", 1] < 1.25
    assert 1.6 < sd["shrink", 4] / sd["shrink", 1] < 2.5


@pytest.mark.slow
def test_published_powering_is_too_wide():
    # Six items say little of a person, so much is missing: intercepts' SD is wider than that of
    # all, and narrower than that of the shard.
    y = simulated_m2pl(1600, np.full((6, 1), 1.0), np.linspace(-1, 1, 6), 21)
    a = fit(y, n_draws=300)
    b = fit(y, n_shards=4, powering="published", n_draws=300)
    wide = np.stack([c.outputs[0]["draws"][:, 0] for c in b]).std(axis=1).mean()
    assert wide / a[0].outputs[0]["draws"][:, 0].std(axis=0).mean() > 1.3


def test_plans_hold_their_masks_as_text():
    rng = np.random.default_rng(22)
    for shape in ((1, 1), (7, 3), (16, 2)):
        mask = rng.random(shape) < 0.5
        text = polya_gamma_chain.pack(mask)
        np.testing.assert_array_equal(polya_gamma_chain.unpack(text, shape), mask)


def plan(**options):
    return polya_gamma_chain.Plan(**{
        "fingerprint": "x", "seed": 1, "n_shards": 2, "n_warmup": 50, "n_draws": 100, "thin": 1,
        "prior": ItemPrior(), "n_persons": 10, "sweeps": 1, "n_dims": 1, "free": "ff",
        "positive": "ff", **options,
    })  # fmt: skip


def test_plans_can_be_compared_and_written():
    assert hash(plan()) == hash(plan()) != hash(plan(seed=2))
    assert json.loads(json.dumps(asdict(plan())))["n_dims"] == 1
    assert isinstance(plan(), grid_chain.Plan)


@pytest.mark.parametrize(("options", "match"), [
    ({"powering": "twice"}, "twice"), ({"powering": "published", "correlated": True}, "published"),
])  # fmt: skip
def test_bad_plans_are_refused(options, match):
    with pytest.raises(InputError, match=match):
        plan(**options)


def test_a_chain_that_breaks_down_is_named(small, monkeypatch):
    right, calls = polya_gamma.draw_items, []

    def broken(value, *args):
        right(*args)
        calls.append(1)
        if len(calls) == 3:
            args[-1][2] = value

    for value, message in ((np.nan, "sweep 3: an item"), (150.0, "sweep 4: a predictor")):
        calls.clear()
        monkeypatch.setattr(polya_gamma, "draw_items", functools.partial(broken, value))
        with pytest.raises(ChainError, match=f"shard 0, chain 0, {message}"):
            fit(small, n_draws=100)
