"""The kernels against brute force, scipy and closed forms that share no code with them."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from items import probability, respond
from scipy import optimize, stats
from scipy.integrate import quad

from irt_dask.calibrate.joint.item_step import by_category
from irt_dask.curves import model_named
from irt_dask.curves.grids import GRID_BOUND, grid_for
from irt_dask.curves.item_set import ItemSet
from irt_dask.items import derivatives as item_derivatives
from irt_dask.kernels.base import fixed_point, keyed_random
from irt_dask.kernels.coresets import sensitivities
from irt_dask.kernels.gibbs import item_draws
from irt_dask.kernels.joint import ability_axis, item_maximum, modes
from irt_dask.kernels.joint.item_maximum import Box, Counts
from irt_dask.kernels.joint.parameters import Items
from irt_dask.kernels.pairs import pair_counts
from irt_dask.kernels.posterior import leave_one_out, moments, person_weights
from irt_dask.kernels.posterior.tables import padded, tables
from irt_dask.kernels.responses import response_counts as counts
from irt_dask.kernels.responses.layouts import Dense


def log_p(y, z):
    """Log probability of the response y, written once more."""
    return -np.logaddexp(0.0, -z if y == 1 else z)


def log_lik(row, a, d, theta):
    return sum(log_p(y, a[j] * theta + d[j]) for j, y in enumerate(row) if y >= 0)


def posteriors(y, a, d, nodes=None):
    """What posteriors under N(0, 1) are made from: data, tables, shared sums and prior; items."""
    items = ItemSet.of("2pl", a, d)
    nodes = padded(grid_for(a, d).nodes if nodes is None else nodes)
    prior = person_weights.prior(person_weights.normal(nodes))
    return (Dense(y), tables(items, nodes), person_weights.alone(len(y)), prior), items


def expectations(y, a, d, nodes=None):
    """Posterior mean and SD, and log marginal likelihood of each person."""
    mean, variance, value = moments.expectations(*posteriors(y, a, d, nodes)[0])
    return mean, np.sqrt(variance), value


def left_out(y, a, d, nodes=None):
    """Probability of each response given the person's others."""
    given, items = posteriors(y, a, d, nodes)
    return leave_one_out.left_out(*given, leave_one_out.inverse(items, given[1]))


def random_data(seed, n, m, missing=0.2, steep=1.0):
    rng = np.random.default_rng(seed)
    a = steep * rng.uniform(0.3, 2.5, m)
    d = rng.normal(0, 1.5, m)
    return respond(rng, rng.normal(0, 1.5, n), a, d, missing=missing), a, d


# --- modes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed, steep", [(0, 1.0), (1, 0.1), (2, 2.0)])
def test_modes_are_the_bounded_maxima_that_scipy_finds(seed, steep):
    y, a, d = random_data(seed, 120, 9, steep=steep)
    y[:, 4] = np.where(np.arange(120) % 7 == 0, 1 - np.abs(y[:, 4]), y[:, 4])
    bound = 3.0  # low, so that many modes lie at it
    theta, ll = modes.modes(Dense(y), modes.tables(Items.of("2pl", a, d), bound))
    at_bound = 0
    for row, t, value in zip(y, theta, ll, strict=True):
        if (row < 0).all():
            assert np.isnan(t)
            assert value == 0.0
            continue
        best = optimize.minimize_scalar(
            lambda x, row=row: -log_lik(row, a, d, x),
            bounds=(-bound, bound),
            method="bounded",
            options={"xatol": 1e-10},
        )
        edges = [(log_lik(row, a, d, e), e) for e in (-bound, bound)]
        top, where = max([(-best.fun, best.x), *edges])
        assert t == pytest.approx(where, abs=2e-5)  # the maximum is flat: scipy's limit
        assert value == pytest.approx(top, abs=1e-9)
        assert value == pytest.approx(log_lik(row, a, d, t), abs=1e-10)
        at_bound += abs(t) == bound
    assert at_bound > 10


def test_modes_of_interior_scores_solve_the_likelihood_equation():
    y, a, d = random_data(3, 300, 12, missing=0.3)
    theta, _ = modes.modes(Dense(y), modes.tables(Items.of("2pl", a, d), 6.0))
    inside = np.abs(theta) < 6.0
    assert inside.sum() > 200
    p = probability(theta, a, d)
    slope = np.where(y >= 0, a * (y - p), 0.0).sum(axis=1)
    assert np.abs(slope[inside]).max() < 1e-8


def test_modes_of_perfect_zero_and_empty_rows():
    a, d = np.array([1.0, 2.0, 0.5]), np.array([0.3, -1.0, 0.0])
    y = np.array([[1, 1, 1], [0, 0, 0], [-1, 1, -1], [-1, -1, 0], [-1, -1, -1]], dtype=np.int8)
    theta, ll = modes.modes(Dense(y), modes.tables(Items.of("2pl", a, d), 6.0))
    np.testing.assert_array_equal(theta[:4], [6.0, -6.0, 6.0, -6.0])
    assert np.isnan(theta[4])
    for row, t, value in zip(y[:4], theta, ll, strict=False):
        assert value == pytest.approx(log_lik(row, a, d, t), rel=1e-12)
    assert ll[4] == 0.0


def test_mode_beyond_the_bound_is_at_the_bound_though_the_score_is_mixed():
    a, d = np.array([1.0, 1.0, 1.0]), np.array([-8.0, -9.0, -12.0])
    theta, _ = modes.modes(
        Dense(np.array([[1, 1, 0]], dtype=np.int8)), modes.tables(Items.of("2pl", a, d), 6.0)
    )
    assert theta[0] == 6.0
    theta, _ = modes.modes(
        Dense(np.array([[1, 0, 0]], dtype=np.int8)), modes.tables(Items.of("2pl", a, -d), 6.0)
    )
    assert theta[0] == -6.0


def test_log_likelihood_of_many_items_does_not_underflow():
    y = np.tile(np.array([0, 1], dtype=np.int8), (1, 2000))
    a, d = np.full(4000, 0.5), np.tile([6.0, -6.0], 2000)
    theta, ll = modes.modes(Dense(y), modes.tables(Items.of("2pl", a, d), 6.0))
    assert theta[0] == pytest.approx(0.0, abs=1e-9)
    assert ll[0] == pytest.approx(4000 * -np.logaddexp(0.0, 6.0), rel=1e-12)


# --- counts on the axis ---------------------------------------------------------------------------


def linear(x, n_nodes):
    """Weights of linear interpolation at x, in units of the spacing."""
    return [max(Fraction(0), 1 - abs(x - q)) for q in range(n_nodes)]


def cubic(x, n_nodes):
    """Weights of the cubic polynomial through four nodes around x (Lagrange)."""
    first = min(max(math.floor(x) - 1, 0), n_nodes - 4)
    four = range(first, first + 4)
    weight = [Fraction(0)] * n_nodes
    for q in four:
        weight[q] = math.prod((Fraction(x - k, q - k) for k in four if k != q), start=Fraction(1))
    return weight


def test_axis_shares_persons_out_by_interpolation_in_exact_fractions():
    rng = np.random.default_rng(4)
    n, m, n_nodes, bound, scale = 60, 3, 9, 2.0, 2.0**20
    y = rng.integers(-1, 2, (n, m)).astype(np.int8)
    theta = np.round(rng.uniform(-2, 2, n) * 64) / 64
    theta[:6] = [-2.0, 2.0, 0.5, 0.0, np.nan, -1.75]
    weight = rng.integers(1, 50, n) / 8
    place = (theta, weight, bound, n_nodes, scale)
    shares = {linear: [Fraction(0)] * n_nodes, cubic: [Fraction(0)] * n_nodes}
    want_right, want_seen = np.full((2, n_nodes, m), Fraction(0))
    for i in range(n):
        if math.isnan(theta[i]):
            continue
        x = (Fraction(theta[i]) + 2) * Fraction(n_nodes - 1, 4)
        for how, total in shares.items():
            for q, share in enumerate(how(x, n_nodes)):
                total[q] += share * Fraction(weight[i])
                if how is cubic:
                    want_seen[q] += share * Fraction(weight[i]) * (y[i] >= 0).astype(int)
                    want_right[q] += share * Fraction(weight[i]) * (y[i] == 1).astype(int)
    seen, right = ability_axis.responses(Dense(y), *place, with_right=True)
    unit = 1 / Fraction(scale)
    for got, want, slack in (
        (ability_axis.persons(*place), shares[linear], 0),  # all of it in whole units
        (ability_axis.spread(*place), shares[cubic], 2 * n * unit),  # sixths are rounded
        (seen, want_seen, 2 * n * unit),
        (right, want_right, 2 * n * unit),
    ):
        for x, z in zip(np.ravel(got), np.ravel(want), strict=True):
            assert abs(Fraction(int(x)) * unit - z) <= slack


def test_axis_counts_conserve_the_total_weight_exactly():
    rng = np.random.default_rng(5)
    y = rng.integers(-1, 2, (500, 4)).astype(np.int8)
    theta, weight, scale = rng.uniform(-6, 6, 500), rng.uniform(0.1, 9, 500), 2.0**33
    place = (theta, weight, 6.0, 481, scale)
    units = np.array([round(w * scale) for w in weight], dtype=object)
    assert (ability_axis.persons(*place) >= 0).all()
    for persons in (ability_axis.persons(*place), ability_axis.spread(*place)):
        assert int(persons.sum()) == sum(units)
    seen, right = ability_axis.responses(Dense(y), *place, with_right=True)
    for j in range(4):
        assert int(seen[:, j].sum()) == sum(units[y[:, j] >= 0])
        assert int(right[:, j].sum()) == sum(units[y[:, j] == 1])


# --- posterior ------------------------------------------------------------------------------------


def moments_by_quad(row, a, d):
    def density(t):
        return math.exp(log_lik(row, a, d, t)) * stats.norm.pdf(t)

    points = np.linspace(-9, 9, 19)

    def integral(f):
        return sum(
            quad(f, lo, hi, epsabs=1e-14, epsrel=1e-11)[0] for lo, hi in itertools.pairwise(points)
        )

    z = integral(density)
    mean = integral(lambda t: t * density(t)) / z
    var = integral(lambda t: (t - mean) ** 2 * density(t)) / z
    return mean, math.sqrt(var), math.log(z)


@pytest.mark.parametrize("steep", [0.5, 1.0, 2.0])
def test_expectations_equal_adaptive_quadrature(steep):
    y, a, d = random_data(6, 8, 6, missing=0.3, steep=steep)
    y[0], y[1] = 1, 0
    mean, sd, ll = expectations(y, a, d)
    for i, row in enumerate(y):
        want = moments_by_quad(row, a, d)
        # the prior of a grid cut at 7 and the trapezoidal rule at h = s / 2
        assert (mean[i], sd[i], ll[i]) == pytest.approx(want, abs=2e-7)


def test_expectations_of_complete_rows_equal_fine_gauss_hermite():
    y, a, d = random_data(7, 50, 10, missing=0.0, steep=0.5)
    x, w = np.polynomial.hermite_e.hermegauss(180)
    joint = np.exp([[log_lik(row, a, d, t) for t in x] for row in y]) * w / math.sqrt(2 * math.pi)
    z = joint.sum(axis=1)
    want = joint @ x / z
    mean, sd, ll = expectations(y, a, d)
    np.testing.assert_allclose(mean, want, atol=1e-7)
    np.testing.assert_allclose(sd, np.sqrt(joint @ x**2 / z - want**2), atol=1e-7)
    np.testing.assert_allclose(ll, np.log(z), atol=1e-7)


def test_person_without_responses_has_the_prior():
    a, d = np.array([1.0, 4.0]), np.array([0.0, 2.0])
    row = np.array([[-1, -1]], dtype=np.int8)
    mean, sd, ll = expectations(row, a, d)
    assert mean[0] == pytest.approx(0.0, abs=1e-11)  # a grid ends at 7
    assert sd[0] == pytest.approx(1.0, abs=1e-9)
    assert ll[0] == pytest.approx(0.0, abs=1e-9)


def test_left_out_predicts_from_the_other_responses():
    y, a, d = random_data(8, 6, 5, missing=0.2)
    p = left_out(y, a, d)
    cells = [(i, j) for i in range(6) for j in range(5) if y[i, j] >= 0]
    assert len(cells) == len(p)
    t = np.linspace(-9, 9, 20001)
    for (i, j), prediction in zip(cells, p, strict=True):
        others = y[i].copy()
        others[j] = -1
        w = np.exp(log_lik(others, a, d, t) + stats.norm.logpdf(t))
        right = (w / (1 + np.exp(-(a[j] * t + d[j])))).sum() / w.sum()
        assert prediction == pytest.approx(right if y[i, j] == 1 else 1 - right, abs=1e-7)


@pytest.mark.parametrize(
    "slope, location",
    [
        (5.0, 5.0),
        (10.0, 5.0),
        (20.0, 3.0),
    ],
)
def test_left_out_of_a_surprising_answer_to_a_steep_item(slope, location):
    """Alone on the test, the item is predicted from the prior, whatever the answer was."""
    a, d = np.array([slope]), np.array([-slope * location])
    p = left_out(np.array([[1], [0]], dtype=np.int8), a, d)
    t = np.linspace(-12, 12, 200001)
    w = stats.norm.pdf(t)
    want = (w / (1 + np.exp(-(slope * (t - location))))).sum() / w.sum()
    np.testing.assert_allclose(p, [want, 1 - want], rtol=1e-3)


# --- counts ---------------------------------------------------------------------------------------


def test_pair_and_response_counts_by_brute_force():
    y, _, _ = random_data(9, 40, 6, missing=0.3)
    differ, both = pair_counts.pair_counts(Dense(y))
    right, seen = counts.response_counts(Dense(y))
    for i in range(6):
        assert right[i] == sum(int(r[i] == 1) for r in y)
        assert seen[i] == sum(int(r[i] != -1) for r in y)
        for j in range(6):
            assert differ[i, j] == sum(int(r[i] == 1 and r[j] == 0) for r in y)
            assert both[i, j] == sum(int(r[i] != -1 and r[j] != -1) for r in y)
    np.testing.assert_array_equal(
        counts.responses_per_person(Dense(y)), [sum(int(v >= 0) for v in r) for r in y]
    )


# --- items ----------------------------------------------------------------------------------------

NODES = np.linspace(-4, 4, 41)
BOX = Box(np.array([1e-3, -6.0]), np.array([5.0, 6.0]))


def as_counts(right, seen):
    """Counts of 1PL and 2PL items from right and observed responses, both (nodes, items)."""
    sums = right.sum(axis=0), NODES @ right
    return Counts(NODES, np.ascontiguousarray(seen.T), *sums, np.zeros((0, 0)))


def item_ll(x, right, seen):
    z = x[0] * NODES + x[1]
    return float(right @ z - seen @ np.logaddexp(0.0, z))


def item_counts(seed, a, d):
    rng = np.random.default_rng(seed)
    seen = rng.gamma(2.0, 20.0, NODES.size) * np.exp(-0.5 * NODES**2)
    share = rng.beta(30, 30, NODES.size) - 0.5 + 1 / (1 + np.exp(-(a * NODES + d)))
    return np.clip(share, 0, 1) * seen, seen


@pytest.mark.parametrize(
    "a, d", [(1.0, 0.0), (2.5, -2.0), (0.2, 1.0), (-1.0, 0.5), (12.0, 3.0), (1.0, 9.0)]
)
def test_item_maximum_is_the_one_of_lbfgsb(a, d):
    columns = [item_counts(s, a, d) for s in range(4)]
    right, seen = (np.stack(c, axis=1) for c in zip(*columns, strict=True))
    got = item_maximum.maximise(as_counts(right, seen), np.stack([np.ones(4), np.zeros(4)]), BOX)
    bounds = list(zip(BOX.low[:2], BOX.high[:2], strict=True))
    for j, x in enumerate(zip(*got, strict=True)):
        assert all(lo <= v <= hi for v, (lo, hi) in zip(x, bounds, strict=True))
        starts = ([1.0, 0.0], [3.0, 2.0], list(x))
        best = max(
            -optimize.minimize(
                lambda v, j=j: -item_ll(v, right[:, j], seen[:, j]),
                s,
                method="L-BFGS-B",
                bounds=bounds,
                options={"ftol": 1e-14, "gtol": 1e-9},
            ).fun
            for s in starts
        )
        assert item_ll(x, right[:, j], seen[:, j]) >= best - 1e-8 * abs(best)


@pytest.mark.parametrize("start", [(1.0, 0.0), (5.0, 6.0), (1e-3, -6.0)])
def test_item_maximum_where_bounds_hold(start):
    rng = np.random.default_rng(10)
    seen = rng.gamma(2.0, 10.0, NODES.size)
    right = np.stack([seen, np.zeros_like(seen), seen * (NODES < 0), seen * (NODES > 0)], axis=1)
    all_seen = np.stack([seen] * 4, axis=1)
    a0, d0 = np.full(4, start[0]), np.full(4, start[1])
    a, d = item_maximum.maximise(as_counts(right, all_seen), np.stack([a0, d0]), BOX)
    for j in range(4):
        grid = [(u, v) for u in np.linspace(1e-3, 5, 60) for v in np.linspace(-6, 6, 121)]
        best = max(item_ll(x, right[:, j], seen) for x in grid)
        assert item_ll((a[j], d[j]), right[:, j], seen) >= best - 1e-6
    assert d[0] == 6.0
    assert d[1] == -6.0
    assert a[2] == 1e-3
    assert a[3] == 5.0


def test_equal_bounds_hold_the_slope():
    right, seen = item_counts(1, 2.0, 0.7)
    box = Box(np.array([1.0, -6.0]), np.array([1.0, 6.0]))
    counted = as_counts(right[:, None], seen[:, None])
    a, d = item_maximum.maximise(counted, np.stack([np.ones(1), np.zeros(1)]), box)
    assert a[0] == 1.0
    root = optimize.brentq(
        lambda v: float((right - seen / (1 + np.exp(-(NODES + v)))).sum()), -6, 6, xtol=1e-12
    )
    assert d[0] == pytest.approx(root, abs=1e-8)


def test_item_that_nobody_saw_keeps_its_value():
    zero = np.zeros((NODES.size, 1))
    start = np.stack([np.array([1.7]), np.array([-0.4])])
    got = item_maximum.maximise(as_counts(zero, zero), start, BOX)
    np.testing.assert_array_equal(got, start)


def test_derivatives_against_finite_differences():
    right, seen = item_counts(2, 1.5, -0.5)
    a, d, h = 1.3, 0.4, 1e-4

    def f(u, v):
        return item_ll((u, v), right, seen)

    sums = right.sum(), NODES @ right
    value, *derivatives = item_maximum._derivatives(NODES, seen, *sums, a, d)
    assert value == pytest.approx(f(a, d), rel=1e-12)
    check_derivatives(f, a, d, h, *derivatives)
    found = item_derivatives.derivatives(
        [by_category(model_named("2pl"), as_counts(right[:, None], seen[:, None]))],
        np.array([[a], [d]]),
    )  # fmt: skip
    np.testing.assert_allclose(
        found.information[0], second_differences(f, a, d, h), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("every", [1, 3])
def test_posterior_of_an_item_against_finite_differences(every):
    """Of the Gibbs item step, at all nodes or some of them; slopes of either sign."""
    right, seen = item_counts(2, 1.5, -0.5)
    at = np.arange(0, NODES.size, every)
    step = np.diff(at, prepend=0).astype(float)
    prior, h = np.array([1.0, 0.7, 0.2, 0.3]), NODES[1] - NODES[0]
    counts = (right[at].astype(float), seen[at].astype(float), NODES[at], step, h, prior)
    scratch = np.empty(at.size)

    def f(u, v):
        z = u * NODES[at] + v
        value = right[at] @ z - seen[at] @ np.logaddexp(0.0, z)
        return value - 0.35 * (u - 1.0) ** 2 - 0.15 * (v - 0.2) ** 2

    for a, d in ((1.3, 0.4), (-0.8, -1.0)):
        assert item_draws._log_target(*counts, a, d, scratch) == pytest.approx(f(a, d), rel=1e-12)
        check_derivatives(f, a, d, 1e-4, *item_draws._derivatives(*counts, a, d, scratch))


def second_differences(f, a, d, h):
    aa = -(f(a + h, d) - 2 * f(a, d) + f(a - h, d)) / h**2
    ad = -(f(a + h, d + h) - f(a + h, d - h) - f(a - h, d + h) + f(a - h, d - h)) / (4 * h**2)
    dd = -(f(a, d + h) - 2 * f(a, d) + f(a, d - h)) / h**2
    return np.array([[aa, ad], [ad, dd]])


def check_derivatives(f, a, d, h, ga, gd, haa, had, hdd):
    assert ga == pytest.approx((f(a + h, d) - f(a - h, d)) / (2 * h), rel=1e-5)
    assert gd == pytest.approx((f(a, d + h) - f(a, d - h)) / (2 * h), rel=1e-5)
    want = second_differences(f, a, d, h)
    np.testing.assert_allclose([[haa, had], [had, hdd]], want, rtol=1e-3, atol=1e-3)


# --- coreset --------------------------------------------------------------------------------------


def test_moments_are_sums_within_rounding_and_skip_nan():
    rng = np.random.default_rng(12)
    theta, w, scale = rng.uniform(-7, 7, 200).clip(-6, 6), rng.uniform(0.5, 3, 200), 2.0**30
    theta[7] = np.nan
    got = ability_axis.moments(theta, w, 6.0, scale) / scale
    ok = np.abs(theta) < 6.0
    want = [
        w[ok].sum(), (w * theta)[ok].sum(), (w * theta**2)[ok].sum(), w[theta == -6].sum(),
        w[theta == 6].sum(),
    ]  # fmt: skip
    assert min(want[3:]) > 1.0
    np.testing.assert_allclose(got, want, atol=200 / (2 * scale))


def test_locate_hits_each_row_as_often_as_its_score():
    score = np.array([3, 0, 1, 7, 0, 2])
    rows = sensitivities.locate(score, np.arange(score.sum()))
    np.testing.assert_array_equal(np.bincount(rows, minlength=6), score)


# --- exact sums -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bound",
    [5e-324, 1e-300, 0.3, 1.0, 2.0, 3.0, 2.0**18, 2.0**18 + 1, 1e9, 2.0**62, 1e300, 1.7e308],
)
def test_scale_is_a_power_of_two_that_cannot_overflow(bound):
    scale = fixed_point.scale_for(bound)
    assert math.frexp(scale)[0] == 0.5
    n = 10**9  # contributions, each rounded up by half a unit
    assert Fraction(bound) * Fraction(scale) + Fraction(n, 2) < 2**63


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan])
def test_scale_refuses_what_bounds_nothing(bound):
    with pytest.raises(ValueError, match="positive and finite"):
        fixed_point.scale_for(bound)


def test_fixed_point_sum_is_within_the_documented_error():
    x = np.random.default_rng(13).uniform(-3, 3, 10_000)
    scale = fixed_point.scale_for(30_000.0)
    got = Fraction(int(np.rint(x * scale).astype(np.int64).sum())) / Fraction(scale)
    want = sum((Fraction(v) for v in x), Fraction(0))
    assert abs(got - want) <= Fraction(10_000) / (2 * Fraction(scale))


# --- keyed randomness -----------------------------------------------------------------------------


@pytest.mark.parametrize("per_row", [1, 3, 4, 5, 9])
def test_a_row_has_the_same_words_in_any_block(per_row):
    k = keyed_random.key(5, "purpose", 3)
    whole = keyed_random.words(k, 0, 100, per_row)
    assert whole.shape == (100, per_row)
    for cuts in ([0, 1, 50, 100], [0, 33, 34, 99, 100]):
        parts = [keyed_random.words(k, lo, hi - lo, per_row) for lo, hi in itertools.pairwise(cuts)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert len(np.unique(whole)) == whole.size  # nothing is used twice


def test_other_seeds_and_purposes_give_other_words():
    keys = [keyed_random.key(s, p, k) for s in (0, 1) for p in ("a", "b") for k in (0, 1)]
    assert len({keyed_random.words(k, 0, 4).tobytes() for k in keys}) == 8


def test_uniforms_are_open_and_uniform():
    u = keyed_random.uniforms(keyed_random.key(1, "u"), 0, 50_000, 3)
    assert u.min() > 0
    assert u.max() < 1
    # false alarm 1e-4 (fixed seed)
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-4
    assert keyed_random._unit(np.array([2**64 - 1], dtype=np.uint64))[0] < 1.0
    assert keyed_random._unit(np.array([0], dtype=np.uint64))[0] > 0.0


@pytest.mark.parametrize("n_shards", [2, 7, 16])
def test_shards_are_uniform_and_belong_to_the_person(n_shards):
    whole = keyed_random.shard_of(3, 0, 20_000, n_shards)
    parts = [
        keyed_random.shard_of(3, s, min(777, 20_000 - s), n_shards) for s in range(0, 20_000, 777)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    count = np.bincount(whole, minlength=n_shards)
    assert len(count) == n_shards
    # false alarm 1e-4 (fixed seed)
    assert stats.chisquare(count).pvalue > 1e-4


# --- the grid -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_grid_resolves_the_narrowest_posterior_and_the_steepest_item(seed):
    rng = np.random.default_rng(seed)
    a, d = np.exp(rng.normal(0, 0.6, 12)), rng.normal(0, 2, 12)
    grid = grid_for(a, d)
    t = np.linspace(-7, 7, 5001)
    p = probability(t, a, d)
    s = 1 / math.sqrt((1 + (p * (1 - p)) @ a**2).max())
    assert grid.spacing <= 0.5 * s * 1.01
    assert grid.spacing <= 1 / a.max()
    assert grid.spacing > 0.4 * min(s / 2, 1 / a.max(), 0.5)  # and not needlessly fine
    nodes = grid.nodes
    np.testing.assert_array_equal(nodes, -nodes[::-1])
    assert nodes[-1] == pytest.approx(GRID_BOUND)
    np.testing.assert_allclose(np.diff(nodes), grid.spacing, rtol=1e-9)
    assert grid_for(a, d, margin=2.0).spacing < grid.spacing


def test_halving_the_grid_changes_nothing():
    y, a, d = random_data(14, 40, 8)
    nodes = grid_for(a, d).nodes
    fine = np.linspace(nodes[0], nodes[-1], 2 * nodes.size - 1)
    for x, f in zip(
        expectations(y, a, d, nodes),
        expectations(y, a, d, fine),
        strict=True,
    ):
        np.testing.assert_allclose(x, f, atol=1e-7)
