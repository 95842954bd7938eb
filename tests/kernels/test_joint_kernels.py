"""The kernels of joint maximum likelihood against NumPy, scipy and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from items import probability, respond
from scipy import optimize

from irt_dask.calibrate.joint.item_step import AtAbilities, by_category, likeliest
from irt_dask.curves import model_named
from irt_dask.curves.betas import Betas
from irt_dask.curves.item_set import ItemSet
from irt_dask.curves.upper import FourParameters
from irt_dask.items.derivatives import derivatives
from irt_dask.items.maximum import Problem
from irt_dask.kernels.joint import ability_axis, complete_modes, curve_modes, item_maximum, modes
from irt_dask.kernels.joint.item_maximum import Box, Counts
from irt_dask.kernels.joint.parameters import Items, Lines
from irt_dask.kernels.posterior import hermite
from irt_dask.kernels.responses import packed_rows
from irt_dask.kernels.responses.layouts import Dense, to_sparse

BOUND = 6.0
MODELS = ("1pl", "2pl", "3pl")


def box(model):
    low, high = (1.0, 1.0) if model == "1pl" else (1e-3, 5.0)
    top = 0.4999 if model == "3pl" else 0.0
    n = 3 if model == "3pl" else 2
    return Box(np.array([low, -6.0, 0.0][:n]), np.array([high, 6.0, top][:n]))


def items_of(a, d, c, weight):
    curves = ItemSet.of("3pl", a, d, c) if np.any(c) else ItemSet.of("2pl", a, d)
    return Items(curves, weight)


def log_lik(y, theta, a, d, c=0.0, weight=1.0):
    """Log-likelihood of each response, 0 where there is none; log(1 - P) without cancellation."""
    z = np.multiply.outer(theta, a) + d
    right = np.log(c + (1 - c) * np.exp(-np.logaddexp(0, -z)))
    if not np.any(c):
        right = -np.logaddexp(0, -z)
    wrong = np.log1p(-c) - np.logaddexp(0, z)
    return weight * np.where(y == 1, right, np.where(y == 0, wrong, 0.0))


def draw_items(rng, m, guessing=False, steepest=3.0):
    a, d = rng.uniform(0.2, steepest, m), rng.normal(0, 1.5, m).clip(-6, 6)
    return a, d, rng.uniform(0.0, 0.4, m) if guessing else np.zeros(m)


def draw_responses(rng, n, m, model="2pl", missing=0.0):
    a, d, c = draw_items(rng, m, model == "3pl")
    return respond(rng, rng.normal(0, 1, n), a, d, c, missing)


# --- bits -----------------------------------------------------------------------------------------


@given(st.integers(0, 40), st.integers(1, 12), st.integers(0, 2**32 - 1))
@settings(max_examples=80, deadline=None, derandomize=True, database=None)
def test_sums_over_bits_are_those_of_the_matrix(n, m, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, (n, m)).astype(np.int8)
    packed = packed_rows.pack(y)
    assert packed.shape == (-(-n // 8), m)
    assert packed.dtype == np.uint8
    rows = rng.integers(0, n, rng.integers(0, 2 * n + 1)) if n else np.zeros(0, dtype=np.intp)
    np.testing.assert_array_equal(packed_rows.unpack(packed, rows), y[rows])
    assert packed_rows.unpack(packed, rows).dtype == np.int8
    by_item, by_person = (rng.integers(-(2**50), 2**50, k) for k in (m, n))
    long = y.astype(np.int64)
    np.testing.assert_array_equal(packed_rows.over_items(packed, by_item, n), long @ by_item)
    np.testing.assert_array_equal(packed_rows.over_persons(packed, by_person), by_person @ long)


def test_bits_of_nobody():
    packed = packed_rows.nothing(3)
    np.testing.assert_array_equal(packed, packed_rows.pack(np.zeros((0, 3), dtype=np.int8)))
    assert packed_rows.over_items(packed, np.ones(3, dtype=np.int64), 0).size == 0
    np.testing.assert_array_equal(packed_rows.over_persons(packed, np.zeros(0, dtype=np.int64)), 0)


# --- abilities of persons with complete rows ------------------------------------------------------


def most_likely(t, a, d, weight):
    """Root of the likelihood equation by scipy, or the bound; and t theta - S there."""

    def slope(x):
        return float((weight * a * probability(x, a, d)).sum()) - t

    if slope(-BOUND) >= 0 or slope(BOUND) <= 0:
        x = -BOUND if slope(-BOUND) >= 0 else BOUND
    else:
        x = optimize.brentq(slope, -BOUND, BOUND, xtol=1e-13, rtol=1e-14)
    return x, t * x - float((weight * np.logaddexp(0, a * x + d)).sum())


@pytest.mark.parametrize("left_out", [0.0, 0.5])
@pytest.mark.parametrize("steepest", [1.0, 5.0])
def test_curve_of_all_items_gives_the_mode_of_every_complete_row(left_out, steepest):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        m = int(rng.integers(2, 40))
        a, d, c = draw_items(rng, m, steepest=steepest)
        weight = (rng.random(m) >= left_out).astype(float)
        weight[0] = 1.0
        y = rng.integers(0, 2, (40, m)).astype(np.int8)
        y[0], y[1] = 0, 1
        chosen = items_of(a, d, c, weight)
        t = y @ (weight * a)
        theta, value = complete_modes.from_totals(t, complete_modes.curve(chosen.lines, BOUND))
        want = np.array([most_likely(x, a, d, weight) for x in t])
        np.testing.assert_allclose(theta, want[:, 0], atol=1e-7, rtol=0)
        np.testing.assert_allclose(value, want[:, 1], rtol=1e-10, atol=1e-10)
        assert (np.abs(theta) <= BOUND).all()
        for data in (Dense(y), to_sparse(Dense(y))):
            other, ll = modes.modes(data, modes.tables(chosen, BOUND))
            np.testing.assert_allclose(theta, other, atol=1e-7, rtol=0)
            np.testing.assert_allclose(value + y @ (weight * d), ll, rtol=1e-10, atol=1e-10)


# --- abilities of the others ----------------------------------------------------------------------


def best_on_a_grid(row, a, d, c, weight, n_nodes=2401):
    """Ability and log-likelihood of the global mode: a dense grid, then scipy around its best."""

    def f(x):
        return log_lik(row, np.atleast_1d(x), a, d, c, weight).sum(axis=1)

    grid = np.linspace(-BOUND, BOUND, n_nodes)
    value = f(grid)
    q = int(np.argmax(value))
    ends = grid[max(q - 1, 0)], grid[min(q + 1, n_nodes - 1)]
    found = optimize.minimize_scalar(
        lambda x: -f(x)[0], bounds=ends, method="bounded", options={"xatol": 1e-10}
    )
    return max((value[q], grid[q]), (-found.fun, found.x))


@pytest.mark.parametrize("weights", ["unit", "any"])
@pytest.mark.parametrize("guessing", [False, True])
@pytest.mark.parametrize("m", [6, 40])
def test_mode_of_incomplete_rows_is_the_global_one(weights, guessing, m):
    rng = np.random.default_rng(m)
    a, d, c = draw_items(rng, m, guessing)
    weight = np.ones(m) if weights == "unit" else rng.choice([0.0, 1.0, 2.5, 7.0], m)
    weight[0] = 1.0
    chosen = items_of(a, d, c, weight)
    y = rng.integers(0, 2, (60, m)).astype(np.int8)
    y[rng.random(y.shape) < 0.3] = -1
    y[:3] = [[0], [1], [-1]]
    theta, ll = modes.modes(Dense(y), modes.tables(chosen, BOUND))
    for row, x, value in zip(y, theta, ll, strict=True):
        if not ((row >= 0) & (weight > 0)).any():
            assert np.isnan(x)
            assert value == 0.0
            continue
        best, where = best_on_a_grid(row, a, d, c, weight)
        assert abs(x) <= BOUND
        at = log_lik(row, np.array([x]), a, d, c, weight).sum()
        assert value == pytest.approx(at, rel=1e-11, abs=1e-9)
        assert value >= best - 1e-9
        assert value <= best + 1e-8
        if not guessing:  # one mode; scipy's limit, as the maximum is flat
            assert x == pytest.approx(where, abs=1e-4)


@pytest.mark.parametrize("others", [0, 300])
def test_where_the_likelihood_is_1_but_for_rounding_its_slope_tells(others):
    """All right on easy, steep items: the bound, as for everybody with nothing but right answers.

    Log-likelihoods of -1e-15 and -1e-13 are sums of items' that round to either of two neighbours.
    """
    a = np.r_[5.0, 5.0, 4.5, 5.0, np.linspace(0.5, 5.0, others)]
    d = np.r_[6.0, 4.86, 5.9, -6.0, np.linspace(-3.0, 3.0, others)]
    c = np.r_[0.0, 0.0, 0.2, 0.0, np.full(others, 0.1)]
    y = np.full((5, a.size), -1, dtype=np.int8)
    y[0, 0] = y[1, 1] = y[2, :3] = 1
    y[3, 3] = 0
    y[4, [0, 3]] = 1, 0  # concave (no guessing): the zero of its slope, by symmetry
    for weight in (np.ones(a.size), np.full(a.size, 3.0)):
        theta, ll = modes.modes(Dense(y), modes.tables(items_of(a, d, c, weight), BOUND))
        np.testing.assert_array_equal(theta[:4], [BOUND, BOUND, BOUND, -BOUND])
        assert theta[4] == pytest.approx(0.0, abs=1e-7)
        assert ((ll[:4] <= 0.0) & (ll[:4] > -1e-13)).all()


def test_weight_of_an_item_is_the_number_of_times_it_was_answered():
    rng = np.random.default_rng(3)
    a, d, c = draw_items(rng, 8, guessing=True)
    weight = rng.integers(0, 4, 8)
    y = rng.integers(-1, 2, (50, 8)).astype(np.int8)
    for guessing in (np.zeros(8), c):
        once = modes.modes(
            Dense(y), modes.tables(items_of(a, d, guessing, weight.astype(float)), BOUND)
        )
        a2, d2, c2 = (np.repeat(x, weight) for x in (a, d, guessing))
        again = modes.modes(
            Dense(np.repeat(y, weight, axis=1)),
            modes.tables(items_of(a2, d2, c2, np.ones(a2.size)), BOUND),
        )
        for x, z in zip(once, again, strict=True):
            np.testing.assert_allclose(x, z, atol=1e-7)


def test_derivatives_of_a_persons_log_likelihood():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        a, d, _ = draw_items(rng, 12, steepest=5.0)
        row = rng.integers(-1, 2, 12).astype(np.int8)
        x, h = rng.uniform(-3, 3), 1e-4
        for weight in (np.ones(12), rng.choice([0.0, 1.0, 2.5], 12)):
            lines, unit = Lines(a, d, weight), bool((weight == 1).all())
            (low, _, f_low), (g, k, f), (high, _, f_high) = (
                modes._at(None, row, lines, unit, x + s) for s in (-h, 0.0, h)
            )
            want = log_lik(row, np.array([x]), a, d, 0.0, weight).sum()
            assert f == pytest.approx(want, rel=1e-12, abs=1e-12)
            assert g == pytest.approx((f_high - f_low) / (2 * h), rel=1e-5, abs=1e-5)
            assert k == pytest.approx((high - low) / (2 * h), rel=1e-5, abs=1e-5)


def test_curves_between_nodes_are_right_to_the_stated_error():
    """Of the steepest items that bounds allow: log P to 1e-10, slopes to 1e-8 of the slope."""
    a, d, c = np.full(9, 5.0), np.linspace(-6, 6, 9), np.linspace(0.0, 0.4999, 9)
    found = curve_modes.curve_tables(ItemSet.of("3pl", a, d, c), np.ones(9), BOUND).between
    rows, w = found.at.shape[1], np.empty((3, 6))
    for x in np.random.default_rng(0).uniform(-BOUND, BOUND, 200):
        q = hermite.weights(found, x, w)
        got = [[hermite.combine(found.at[q, r], found.at[q + 1, r], w[k]) for r in range(rows)]
               for k in (0, 1)]  # fmt: skip
        items, here = ItemSet.of("3pl", a, d, c), np.array([x])
        np.testing.assert_allclose(got[0], items.log_p(here)[:, 0], atol=1e-10, rtol=1e-10)
        np.testing.assert_allclose(got[1], items.by_ability(here)[0][:, 0], atol=5e-8)


# --- an item's log-likelihood ---------------------------------------------------------------------

NODES = np.linspace(-4, 4, 61)


def draw_item(seed, guessing=True):
    """Persons and right answers by node of one item, and parameters away from the true ones."""
    rng = np.random.default_rng(seed)
    seen = rng.poisson(200 * np.exp(-0.5 * NODES**2)).astype(float)
    x = np.array([rng.uniform(0.3, 2.5), rng.normal(0, 1.2), rng.uniform(0, 0.4) * guessing])
    right = rng.binomial(seen.astype(int), probability(NODES, *x)).astype(float)
    return seen, right, x


def item_value(x, seen, right):
    return float((log_lik(1, NODES, *x) * right + log_lik(0, NODES, *x) * (seen - right)).sum())


def derivatives_3pl(x, seen, right):
    """Log-likelihood of one item, gradient and expected information, from the curves."""
    counts = Counts(NODES, seen[None], *2 * [np.zeros(1)], right[None])
    counts = by_category(model_named("3pl"), counts)
    found = derivatives([counts], np.asarray(x, dtype=float)[:, None])
    return found.value[0], found.gradient[:, 0], found.information[0]


def test_derivatives_of_an_items_log_likelihood():
    for seed in range(10):
        seen, right, x = draw_item(seed)
        x += np.array([0.2, -0.3, 0.05])
        value, gradient, _ = derivatives_3pl(x, seen, right)
        assert value == pytest.approx(item_value(x, seen, right), rel=1e-12)
        want = optimize.approx_fprime(x, lambda v: item_value(v, seen, right), 1e-7)  # noqa: B023
        np.testing.assert_allclose(gradient, want, rtol=1e-4, atol=1e-2)
        # without guessing: from the sums alone
        two = x[:2]
        sums = right.sum(), right @ NODES
        value, *slopes = item_maximum._derivatives(NODES, seen, *sums, *two)
        assert value == pytest.approx(item_value([*two, 0.0], seen, right), rel=1e-12)
        of_three = derivatives_3pl([*two, 0.0], seen, right)[1]
        np.testing.assert_allclose(slopes[:2], of_three[:2], rtol=1e-9, atol=1e-9)


def test_expected_information_is_the_mean_curvature():
    """At right answers in the expected share, where minus the Hessian is its own mean."""
    h = 1e-6
    for seed in range(10):
        seen, _, x = draw_item(seed)
        x[2] += 0.02
        right = seen * probability(NODES, *x)
        _, gradient, information = derivatives_3pl(x, seen, right)
        np.testing.assert_allclose(gradient, 0.0, atol=1e-9 * seen.sum())
        numeric = -np.stack(
            [
                (
                    derivatives_3pl(x + h * e, seen, right)[1]
                    - derivatives_3pl(x - h * e, seen, right)[1]
                )
                / (2 * h)
                for e in np.eye(3)
            ]
        )
        np.testing.assert_allclose(information, numeric, rtol=1e-5, atol=1e-4)


# --- the axis -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_nodes", [25, 481])
def test_axis_keeps_totals_and_the_stated_bound(n_nodes):
    rng = np.random.default_rng(n_nodes)
    n, m, scale, h = 700, 5, 2.0**40, 2 * BOUND / (n_nodes - 1)
    y = draw_responses(rng, n, m, missing=0.3)
    theta, weight = rng.normal(0, 1.5, n).clip(-BOUND, BOUND), rng.uniform(0.1, 4.0, n)
    theta[:4] = [-BOUND, BOUND, 0.0, np.nan]
    units = np.rint(weight * scale).astype(np.int64)
    here = ~np.isnan(theta)
    place = (theta, weight, BOUND, n_nodes, scale)
    assert ability_axis.persons(*place).sum() == units[here].sum()
    assert ability_axis.spread(*place).sum() == units[here].sum()
    seen, right = ability_axis.responses(Dense(y), *place, with_right=True)
    np.testing.assert_array_equal(seen.sum(axis=0), units[here] @ (y[here] >= 0))
    np.testing.assert_array_equal(right.sum(axis=0), units[here] @ (y[here] == 1))
    only, none = ability_axis.responses(Dense(y), *place, with_right=False)
    np.testing.assert_array_equal(only, seen)
    assert none.shape == (0, 0)
    # the first three moments of ability are kept
    nodes = np.linspace(-BOUND, BOUND, n_nodes)
    for k in (1, 2, 3):
        kept = nodes**k @ ability_axis.spread(*place) / scale
        assert kept == pytest.approx((weight * theta**k)[here].sum(), abs=1e-6)
    once, moment = units, np.rint(np.where(here, weight * theta, 0.0) * scale).astype(np.int64)
    sums = ability_axis.sums_right(Dense(y), np.where(here, once, 0), moment)
    np.testing.assert_array_equal(sums[0], right.sum(axis=0))
    np.testing.assert_allclose(nodes @ right / scale, sums[1] / scale, rtol=1e-9, atol=1e-8)
    # sums of log(1 + e^z) are right to 3 (a h)^4 / 1024 a response; next to the ends of the axis,
    # where an ability is not in the middle of four nodes, to (a h)^4 / 192
    inside = here & (np.abs(theta) <= BOUND - h)
    for some, share in ((inside, 3 / 1024), (here, 1 / 192)):
        ability = np.where(some, theta, np.nan)
        seen, _ = ability_axis.responses(Dense(y), ability, *place[1:], with_right=False)
        w = np.where(some[:, None] & (y >= 0), weight[:, None], 0.0)
        for a, d in ((0.3, 1.0), (1.0, 0.0), (2.5, -2.0), (5.0, 4.0)):
            exact = w.T @ np.logaddexp(0, a * np.where(some, theta, 0.0) + d)
            binned = np.logaddexp(0, a * nodes + d) @ seen / scale
            assert (np.abs(binned - exact) <= share * (a * h) ** 4 * w.sum(axis=0) + 1e-8).all()


# --- the item step --------------------------------------------------------------------------------


def lbfgsb(f, start, limits):
    options = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 2000}
    found = optimize.minimize(f, start, method="L-BFGS-B", bounds=limits, options=options, jac=True)
    return -found.fun


@pytest.mark.parametrize("guessing_min", [0.0, 0.2])
def test_3pl_item_is_at_its_maximum(guessing_min):
    low, high = np.array([1e-3, -6.0, guessing_min]), np.array([5.0, 6.0, 0.4999])
    limits = list(zip(low, high, strict=True))
    drawn = [draw_item(seed, guessing=seed % 4 > 0)[:2] for seed in range(5)]
    rng = np.random.default_rng(0)
    for k in range(4):  # next to nothing known: few persons, or all of them right or wrong
        seen = rng.poisson(0.6 * np.exp(-0.5 * NODES**2)).astype(float)
        drawn.append((seen, np.minimum(seen, rng.poisson(0.5 * seen)) * (k != 1)))
    drawn.append((drawn[0][0], drawn[0][0]))
    seen, right = (np.array(v) for v in zip(*drawn, strict=True))
    counts = Counts(NODES, seen, right.sum(axis=1), right @ NODES, right)
    start = np.stack([np.ones(len(drawn)), np.zeros(len(drawn)), np.full(len(drawn), 0.25)])
    got = likeliest(model_named("3pl"), start, Box(low, high), True, counts)
    assert (got >= low[:, None]).all()
    assert (got <= high[:, None]).all()
    for f, r, x in zip(seen, right, got.T, strict=True):

        def negative(v, f=f, r=r):
            value, gradient, _ = derivatives_3pl(v, f, r)
            return -value, -gradient

        value = item_value(x, f, r)
        slack = 1e-8 * abs(value) + 1e-8
        assert value >= lbfgsb(negative, x, limits) - slack
        others = [lbfgsb(negative, rng.uniform(low, high), limits) for _ in range(7)]
        assert value >= np.median(others) - slack


def test_the_compiled_step_agrees_with_that_of_any_curves():
    """Values of the 4PL, none of whose maxima is lower than those of the other by 1e-8."""
    low, high = np.array([1e-3, -6.0, 0.0, 0.6]), np.array([5.0, 6.0, 0.4999, 1.0])
    drawn = [draw_item(seed, guessing=True)[:2] for seed in range(12)]
    seen, right = (np.array(v) for v in zip(*drawn, strict=True))
    right = np.rint(0.9 * right)
    right[:, ::5] -= 0.04 * (seen[:, ::5] > 0)  # on the axis some counts lie below 0
    counts = Counts(NODES, seen, right.sum(axis=1), right @ NODES, right)
    start = np.repeat([[1.0], [0.0], [0.2], [0.95]], len(drawn), axis=1)
    compiled = model_named("4pl")
    other = type("Other", (FourParameters,), {"asymptotes": None})()
    ends = [likeliest(m, start, Box(low, high), False, counts) for m in (compiled, other)]
    flat, alone = Betas.of(*((1.0, 1.0),) * 4), np.full(start.shape, -1)
    problem = Problem([by_category(other, counts)], low[:, None], high[:, None], flat, alone)
    values = [problem.value(x, np.ones(len(drawn), dtype=bool)) for x in ends]
    np.testing.assert_allclose(*values, rtol=1e-8)
    held = Box(low, np.where([0, 0, 0, 1], low, high))
    assert (likeliest(compiled, start, held, True, counts)[3] == 0.6).all()


# --- half-steps -----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_no_half_step_lowers_the_log_likelihood(model):
    """Person step and item step in turn, on the abilities themselves."""
    limits = box(model)
    guessing = model == "3pl"
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n, m = int(rng.integers(5, 80)), int(rng.integers(2, 12))
        y = draw_responses(rng, n, m, model, missing=rng.choice([0.0, 0.3]))
        y[:, (y < 0).all(axis=0)] = 1
        weight = rng.uniform(0.2, 3.0, n) if seed % 2 else np.ones(n)
        x = np.stack(draw_items(rng, m, guessing))[: limits.low.size]
        x[0] = 1.0 if model == "1pl" else x[0]
        theta = np.where((y >= 0).any(axis=1), rng.uniform(-3, 3, n), np.nan)

        def total(theta, x, y=y, weight=weight):
            return float(weight @ log_lik(y, np.nan_to_num(theta), *x).sum(axis=1))

        values = [total(theta, x)]
        for _ in range(3):
            items = Items.of(model, *x)
            theta, ll = modes.modes(Dense(y), modes.tables(items, BOUND))
            values.append(total(theta, x))
            assert float(weight @ ll) == pytest.approx(values[-1], rel=1e-10)
            counts = AtAbilities(theta, weight).counts(Dense(y), guessing)
            x = likeliest(model_named(model), x, limits, True, counts)
            values.append(total(theta, x))
        assert np.diff(values).min() >= -1e-12 * abs(values[-1]), (seed, np.diff(values))
