"""Conditional maximum likelihood against enumeration, exact arithmetic, and published values."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from items import rasch
from parts import csr_of
from scipy.sparse.csgraph import connected_components

import irt_dask as irt
from irt_dask.calibrate.rasch import conditional_sets
from irt_dask.errors import ConvergenceWarning, EstimationError, InputError
from irt_dask.kernels.pairs import symmetric_functions
from irt_dask.kernels.responses import item_sets
from irt_dask.kernels.responses.layouts import Dense, to_sparse

LSAT = [-1.2561, 0.4749, 1.2360, 0.1684, -0.6232]


def sparse(y, **options):
    return irt.from_array(csr_of(y), observed="stored", **options)


# --- by enumeration of all patterns with the same score -------------------------------------------


@functools.cache
def patterns(items, score):
    """All ways to be right on ``score`` of the items, one a row."""
    right = np.array(list(itertools.combinations(items, score)), dtype=int)
    out = np.zeros((len(right), max(items) + 1))
    np.put_along_axis(out, right, 1.0, axis=1)
    return out


def enumerated(y, b):
    """Conditional log-likelihood, expected right answers and their covariance, by definition."""
    value, expected, information = 0.0, np.zeros(len(b)), np.zeros((len(b), len(b)))
    for person in y:
        items = tuple(np.flatnonzero(person >= 0))
        if not items:
            continue
        some = patterns(items, int((person == 1).sum()))
        ways = np.zeros((len(some), len(b)))
        ways[:, : some.shape[1]] = some
        weight = np.exp(-ways @ b)
        p = weight / weight.sum()
        value += np.log(np.exp(-b[person == 1].sum()) / weight.sum())
        mean = p @ ways
        expected += mean
        information += (ways * p[:, None]).T @ ways - np.outer(mean, mean)
    return value, expected, information


@pytest.mark.parametrize(
    "seed, m, missing", [(1, 3, 0.0), (2, 5, 0.0), (3, 6, 0.0), (4, 5, 0.3), (5, 6, 0.4)]
)
def test_enumerated_likelihood_has_the_same_maximum(seed, m, missing):
    y = rasch(seed, 60, np.linspace(-1.2, 1.5, m), missing)
    y[7] = -1  # somebody who answered nothing
    fit = irt.fit_conditional(y)

    def negative(free):
        b = np.append(free, -free.sum())
        value, expected, _ = enumerated(y, b)
        gradient = expected - (y == 1).sum(axis=0)
        return -value, -(gradient[:-1] - gradient[-1])

    end = scipy.optimize.minimize(negative, np.zeros(m - 1), jac=True, options={"gtol": 1e-9})
    b = fit["item_difficulty"].values
    np.testing.assert_allclose(b, np.append(end.x, -end.x.sum()), atol=1e-6)
    value, _, information = enumerated(y, b)
    assert fit.attrs["objective"] == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(
        fit["item_difficulty_se"], np.sqrt(np.diag(np.linalg.pinv(information))), rtol=1e-9
    )
    some = [r for r in y if 0 < (r == 1).sum() < (r >= 0).sum()]
    assert fit.attrs["n_informative"] == len(some)
    assert fit.attrs["n_patterns"] == len({tuple(r >= 0) for r in some})
    assert (fit.attrs["n_persons"], fit.attrs["converged"]) == (60, 1)


def test_two_items_have_a_closed_form():
    y = np.repeat([[1, 0], [0, 1], [1, 1], [0, 0]], [37, 12, 50, 20], axis=0)
    fit = irt.fit_conditional(y)
    np.testing.assert_allclose(
        fit["item_difficulty"], np.log(37 / 12) * np.array([-0.5, 0.5]), rtol=1e-12
    )
    np.testing.assert_allclose(fit["item_difficulty_se"], np.sqrt(1 / 37 + 1 / 12) / 2, rtol=1e-12)


def test_lsat():
    fit = irt.fit_conditional(irt.load_lsat())
    np.testing.assert_allclose(fit["item_difficulty"], LSAT, atol=1e-4)
    assert fit.attrs["n_informative"] == 699
    assert fit["item_difficulty"].values.sum() == pytest.approx(0.0, abs=1e-14)


# --- elementary symmetric functions ---------------------------------------------------------------

HARD = {
    "uniform": np.random.default_rng(1).uniform(-6, 6, 200),
    "normal": np.random.default_rng(2).normal(size=100),
    "equal": np.zeros(100),
    "two kinds": np.repeat([-5.0, 5.0], 60),
    "close": np.repeat(np.linspace(-4, 4, 40), 3) + np.tile([0.0, 1e-7, 0.01], 40),
    "few": np.array([-30.0, 0.5, 25.0]),
}
_BITS = 2**100


def polynomial(eps):
    """Coefficients of the product of (1 + eps x), in integers; eps are integers / _BITS."""
    gamma = [1]
    for e in eps:
        gamma = [a + e * c for a, c in zip([*gamma, 0], [0, *gamma], strict=True)]
    return gamma


def without(gamma, e):
    out = [1]
    for g in gamma[1:-1]:
        out.append(g - e * out[-1])
    return out


@pytest.mark.parametrize("b", HARD.values(), ids=HARD)
def test_probabilities_agree_with_integer_arithmetic(b):
    """Ratios and probabilities to 1e-12, covariances to 1e-10 of the variances.

    (Of "few", whose covariances are 1e-30, to the rounding error of the persons they sum up.)
    """
    k, float_eps = b.size, np.exp(-b)
    eps = [int(e * float(_BITS)) for e in float_eps]
    assert [e / _BITS for e in eps] == list(float_eps)
    gamma = polynomial(eps)
    q = np.zeros(k + 1)
    symmetric_functions._ratios(float_eps, q)
    exact = [gamma[r] / (gamma[r - 1] * _BITS) for r in range(1, k + 1)]
    np.testing.assert_allclose(q[1:], exact, rtol=1e-12)

    n = np.random.default_rng(3).integers(0, 50, k + 1)
    n[0] = n[1] = n[-1] = 0
    expected, covariance = np.zeros(k), np.zeros((k, k))
    symmetric_functions._set_moments(float_eps, n, q, expected, covariance)
    order = np.argsort(b, kind="stable")
    chosen = sorted({int(order[p]) for p in (0, 1, k // 3, k // 2, k // 2 + 1, k - 1) if p < k})
    others = {i: without(gamma, eps[i]) for i in chosen}
    p = {i: [eps[i] * others[i][r - 1] for r in range(1, k)] for i in chosen}  # of gamma[r]
    right, wrong = np.empty(k + 1), np.empty(k + 1)
    for i in chosen:
        symmetric_functions._inclusion(q, k, float_eps[i], right, wrong)
        exact = np.array([p[i][r - 1] / gamma[r] for r in range(1, k)])
        np.testing.assert_allclose(right[1:k], exact, rtol=1e-12)
        np.testing.assert_allclose(
            wrong[1:k], [others[i][r] / gamma[r] for r in range(1, k)], rtol=1e-12
        )
        np.testing.assert_allclose(expected[i], n[1:k] @ exact, rtol=1e-12)
    for i, j in itertools.combinations_with_replacement(chosen, 2):
        both = p[i] if i == j else [0, *(eps[i] * eps[j] * g for g in without(others[i], eps[j]))]
        exact = sum(
            n[r] * ((both[r - 1] * gamma[r] - p[i][r - 1] * p[j][r - 1]) / gamma[r] ** 2)
            for r in range(1, k)
        )
        scale = np.sqrt(covariance[i, i] * covariance[j, j])
        assert abs(covariance[j, i] - exact) < 1e-10 * scale + 1e-15 * n.sum()
        if i == j:
            assert covariance[i, i] == pytest.approx(exact, rel=1e-12)


def test_derivatives_agree_with_finite_differences():
    b = np.random.default_rng(4).normal(size=9)
    y = rasch(5, 80, b, 0.3)
    sets = conditional_sets.informative(item_sets.observed_sets(Dense(y)))
    value, gradient, information = symmetric_functions.derivatives(sets, b)
    assert value == symmetric_functions.log_likelihood(sets, b)
    h = 1e-5
    for j in range(9):
        up, down = b + h * np.eye(9)[j], b - h * np.eye(9)[j]
        slope = symmetric_functions.log_likelihood(sets, up) - symmetric_functions.log_likelihood(
            sets, down
        )
        assert gradient[j] == pytest.approx(slope / (2 * h), abs=1e-6)
        bend = (
            symmetric_functions.derivatives(sets, up)[1]
            - symmetric_functions.derivatives(sets, down)[1]
        )
        np.testing.assert_allclose(information[j], -bend / (2 * h), atol=1e-6)
    np.testing.assert_allclose(information.sum(axis=0), 0.0, atol=1e-10)


def test_many_items_end_at_a_zero_gradient_of_extended_precision():
    b = np.linspace(-4, 4, 200)
    y = rasch(6, 3000, b)
    fit = irt.fit_conditional(y)
    estimate = fit["item_difficulty"].values
    assert np.abs(estimate - b).max() < 1.0
    eps = np.exp(-estimate.astype(np.longdouble))

    def gammas(values):
        g = np.zeros(201, dtype=np.longdouble)
        g[0] = 1
        for e in values:
            g[1:] += e * g[:-1]
        return g

    score = y.sum(axis=1)
    n = np.bincount(score, minlength=201).astype(np.longdouble)
    n[[0, 200]] = 0
    gamma = gammas(eps)
    right = (y[(score > 0) & (score < 200)] == 1).sum(axis=0)
    for j in range(0, 200, 28):
        rest = gammas(np.delete(eps, j))
        expected = (n[1:] * eps[j] * rest[:-1] / gamma[1:]).sum()
        assert float(expected) == pytest.approx(right[j], abs=1e-6)
    persons = n @ np.log(gamma)
    value = -float(right @ estimate.astype(np.longdouble) + persons)
    assert fit.attrs["objective"] == pytest.approx(value, rel=1e-11)


# --- persons with the same items ------------------------------------------------------------------


def test_sets_are_counted():
    y = rasch(7, 200, np.zeros(6), 0.5)
    sets = item_sets.observed_sets(Dense(y))
    for other in (
        item_sets.observed_sets(to_sparse(Dense(y))),
        item_sets.merge(
            item_sets.observed_sets(Dense(y[:70])), item_sets.observed_sets(Dense(y[70:]))
        ),
    ):
        for a, c in zip(sets, other, strict=True):
            np.testing.assert_array_equal(a, c)
    seen = set()
    for g in range(sets.n_sets):
        lo, hi = sets.indptr[g : g + 2]
        items = sets.items[lo:hi]
        mine = (y >= 0) == np.isin(np.arange(6), items)
        mine = y[mine.all(axis=1)][:, items]
        np.testing.assert_array_equal(sets.right[lo:hi], mine.sum(axis=0))
        np.testing.assert_array_equal(
            sets.scores[lo + g : hi + g + 1], np.bincount(mine.sum(axis=1), minlength=hi - lo + 1)
        )
        seen.add(tuple(items))
    assert len(seen) == sets.n_sets == len({tuple(row >= 0) for row in y})


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_links_connect_what_pairs_connect(missing):
    """Reachability over links made from counts is that over right-and-wrong pairs of persons."""

    def reach(linked):
        linked = linked | np.eye(len(linked), dtype=bool)
        for _ in range(4):
            linked = linked @ linked
        return linked

    rng = np.random.default_rng(8)
    some = 0
    for _ in range(500):
        n, m = rng.integers(1, 16), rng.integers(2, 8)
        y = (rng.random((n, m)) < rng.random(m)).astype(np.int8)
        y[rng.random((n, m)) < missing] = -1
        sets = conditional_sets.informative(item_sets.observed_sets(Dense(y)))
        pairs = ((y == 1).T.astype(int) @ (y == 0)) > 0
        np.testing.assert_array_equal(reach(item_sets.links(sets, m)), reach(pairs))
        some += connected_components(sp.csr_array(pairs), connection="strong")[0] == 1
    assert 20 < some < 480


# --- what must not matter -------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_blocks_layout_and_order_of_persons_do_not_matter(missing, bits):
    y = rasch(9, 300, np.linspace(-1, 1, 8), missing)
    whole = bits(irt.fit_conditional(y))
    shuffled = y[np.random.default_rng(0).permutation(300)]
    for r in (
        irt.from_array(y, rows_per_block=1),
        irt.from_array(y, rows_per_block=37),
        sparse(y, rows_per_block=53),
        irt.from_array(shuffled, rows_per_block=100),
    ):
        assert bits(irt.fit_conditional(r)) == whole


def test_order_of_items_and_direction():
    y = rasch(11, 500, np.linspace(-1, 1, 8), 0.2)
    fit = irt.fit_conditional(y)
    items = np.random.default_rng(1).permutation(8)
    for name in ("item_difficulty", "item_difficulty_se"):
        other = irt.fit_conditional(y[:, items])
        np.testing.assert_allclose(other[name], fit[name].values[items], rtol=1e-10)
    swapped = irt.fit_conditional(np.where(y >= 0, 1 - y, -1))  # right for wrong
    np.testing.assert_allclose(swapped["item_difficulty"], -fit["item_difficulty"], atol=1e-10)


def test_persons_twice_and_persons_who_say_nothing():
    y = rasch(12, 300, np.linspace(-1, 1, 7), 0.3)
    fit = irt.fit_conditional(y)
    twice = irt.fit_conditional(np.vstack([y, y]))
    np.testing.assert_allclose(twice["item_difficulty"], fit["item_difficulty"], atol=1e-12)
    np.testing.assert_allclose(
        twice["item_difficulty_se"], fit["item_difficulty_se"] / np.sqrt(2), rtol=1e-12
    )
    assert twice.attrs["objective"] == pytest.approx(2 * fit.attrs["objective"], rel=1e-14)
    silent = np.zeros((40, 7), dtype=np.int8)
    silent[:20] = 1
    silent[10:30, 2:5] = -1
    more = irt.fit_conditional(np.vstack([silent, y]))
    for name in ("item_difficulty", "item_difficulty_se"):
        np.testing.assert_array_equal(more[name], fit[name])


# --- what it is good for --------------------------------------------------------------------------


def test_few_items_and_booklets_of_able_and_weak_persons():
    """Consistent with abilities that are far from normal and that decide what is answered.

    40,000 persons, two booklets with two items in common, the harder one for the abler: standard
    errors are about 0.02, the limit is six of them.
    """
    b = np.linspace(-1.5, 1.5, 6)
    theta = np.repeat([-1.5, 1.5], 20_000)
    y = rasch(13, 40_000, b, theta=theta)
    y[:20_000, 4:] = -1
    y[20_000:, :2] = -1
    fit = irt.fit_conditional(y)
    assert fit.attrs["n_patterns"] == 2
    np.testing.assert_allclose(fit["item_difficulty"], b, atol=0.12)
    z = (fit["item_difficulty"].values - b) / fit["item_difficulty_se"].values
    assert np.abs(z).max() < 4


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_intervals_cover(missing):
    """95% intervals in 400 data sets of 500 x 8, abilities of two kinds.

    Coverage is a mean of 400 shares at least as precise as single trials (SD 0.011 at most): beyond
    0.035 from 0.95 by chance with probability 0.002.
    """
    b = np.array([-2.0, -1.0, -0.5, 0.0, 0.3, 0.7, 1.1, 1.4])
    theta = np.repeat([-1.0, 1.3], 250)
    inside, z = [], []
    for seed in range(400):
        fit = irt.fit_conditional(rasch([14, seed], 500, b, missing, theta))
        z.append((fit["item_difficulty"].values - b) / fit["item_difficulty_se"].values)
        inside.append((np.abs(z[-1]) < 1.959964).mean())
    assert abs(np.mean(inside) - 0.95) < 0.035
    assert abs(np.std(z) - 1.0) < 0.06


# --- refusals -------------------------------------------------------------------------------------


def test_items_apart_are_an_error_that_lists_the_groups():
    y = np.full((60, 5), -1)
    rng = np.random.default_rng(15)
    y[:30, :3] = rng.integers(0, 2, (30, 3))
    y[30:, 3:] = rng.integers(0, 2, (30, 2))
    r = irt.from_array(y, item_id=["a", "b", "c", "x", "y"])
    with pytest.raises(EstimationError, match=r"2 groups.*3 item\(s\): a, b, c; 2 item\(s\): x, y"):
        irt.fit_conditional(r)


def test_items_that_all_solved_or_nobody_saw():
    y = rasch(16, 100, np.zeros(6))
    y[:, 3] = 1
    with pytest.raises(EstimationError, match=r"2 groups.*remove items.*1 item\(s\): 3"):
        irt.fit_conditional(y)
    y[:, 3] = -1
    with pytest.raises(EstimationError, match=r"2 groups.*1 item\(s\): 3"):
        irt.fit_conditional(y)
    with pytest.raises(EstimationError, match="6 groups"):
        irt.fit_conditional(np.ones((4, 6)))
    guttman = np.tri(7, 6, -1)
    with pytest.raises(EstimationError, match="6 groups"):
        irt.fit_conditional(guttman)


def test_too_many_sets_of_items(monkeypatch):
    y = rasch(17, 200, np.zeros(12), 0.5)
    n = len({tuple(row >= 0) for row in y})
    cells = sum(sum(s) for s in {tuple(row >= 0) for row in y})
    monkeypatch.setattr(conditional_sets, "MAX_CELLS", cells)
    irt.fit_conditional(y)
    monkeypatch.setattr(conditional_sets, "MAX_CELLS", cells - 1)
    message = f"answered {n} different sets.*together of {cells} items.*fit_spectral"
    with pytest.raises(InputError, match=message):
        irt.fit_conditional(y)
    with pytest.raises(InputError, match=r"different sets.*fit_spectral"):
        irt.fit_conditional(irt.from_array(y, rows_per_block=20))


def test_not_converged_is_a_warning():
    y = rasch(18, 200, np.linspace(-2, 2, 6))
    with pytest.warns(ConvergenceWarning, match="in 1 steps; raise max_iterations"):
        fit = irt.fit_conditional(y, max_iterations=1)
    assert fit.attrs["converged"] == 0
    assert np.isfinite(fit["item_difficulty_se"]).all()
    rough = irt.fit_conditional(y, tolerance=0.1)
    fine = irt.fit_conditional(y)
    assert rough.attrs["n_iterations"] < fine.attrs["n_iterations"]
    assert rough.attrs["objective"] < fine.attrs["objective"]


def test_refusals():
    y = rasch(19, 100, np.zeros(4))
    with pytest.raises(InputError, match="fit_conditional does not support person weights"):
        irt.fit_conditional(irt.from_array(y, persons={"weight": np.ones(100)}))
    with pytest.raises(InputError, match="max_iterations=0 must be a whole number"):
        irt.fit_conditional(y, max_iterations=0)
    for tolerance in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="tolerance="):
            irt.fit_conditional(y, tolerance=tolerance)
    with pytest.raises(EstimationError, match="at least two items"):
        irt.fit_conditional(y[:, :1])
    wide = irt.from_array(sp.csr_array((3, 5_001)), observed="all")
    with pytest.raises(InputError, match=r"5001 items.*5000 at most"):
        irt.fit_conditional(wide)
