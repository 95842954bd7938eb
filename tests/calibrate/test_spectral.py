"""The spectral estimator against published values, its own Markov chain, and a permutation."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from items import rasch
from parts import csr_of

import irt_dask as irt
from irt_dask.calibrate.rasch import spectral, spectral_errors
from irt_dask.errors import EstimationError, InputError, IrtDaskWarning, SparseDataWarning
from irt_dask.kernels.pairs import pair_flows
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.responses.layouts import Dense

LSAT = {
    0.0: [-1.2957, 0.4788, 1.2465, 0.1722, -0.6018],
    1.0: [-1.2804, 0.4734, 1.2365, 0.1689, -0.5984],
}
sparse_rasch = partial(rasch, n=400, b=12, missing=0.6)


def chain(y, nu):
    """Algorithm 1 with one d for all items: power iteration of a row-stochastic matrix."""
    right, wrong, seen = (y == 1) * 1.0, (y == 0) * 1.0, (y >= 0) * 1.0
    rates = right.T @ wrong + nu * (seen.T @ seen > 0)
    np.fill_diagonal(rates, 0.0)
    d = 1.01 * rates.sum(axis=1).max()
    step = rates / d
    step += np.diag(1 - step.sum(axis=1))
    pi = np.full(len(rates), 1 / len(rates))
    for _ in range(200_000):
        new = pi @ step
        if np.abs(new - pi).max() < 1e-16:
            break
        pi = new
    beta = np.log(pi)
    return beta - beta.mean()


@pytest.mark.parametrize("nu", [0.0, 1.0])
def test_lsat(nu):
    fit = irt.fit_spectral(irt.load_lsat(), regularization=nu)
    np.testing.assert_allclose(fit["item_difficulty"], LSAT[nu], atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("nu", [0.0, 0.5, 1])
def test_power_iteration_finds_the_same(seed, nu):
    y = sparse_rasch(seed)
    fit = irt.fit_spectral(y, regularization=nu)
    np.testing.assert_allclose(fit["item_difficulty"], chain(y, nu), atol=1e-7)
    assert abs(fit["item_difficulty"].values.mean()) < 1e-12


def test_difficulties_are_estimated():
    """Consistency: 200,000 persons; standard errors are about 0.01, the limit is six of them."""
    r = irt.simulate(200_000, 8, model="1pl", seed=6)
    b = r.truth["item_difficulty"].values
    fit = irt.fit_spectral(r)
    np.testing.assert_allclose(fit["item_difficulty"], b - b.mean(), atol=0.06)


def test_pair_counts_are_exact_and_can_be_passed_on():
    y = sparse_rasch(7, n=90)
    counts = irt.pair_counts(irt.from_array(y, rows_per_block=13))
    np.testing.assert_array_equal(counts["pair_count"], (y == 1).T.astype(int) @ (y == 0))
    np.testing.assert_array_equal(counts["pair_observed"], (y >= 0).T.astype(int) @ (y >= 0))
    plain = irt.fit_spectral(y, standard_errors=False)
    assert irt.fit_spectral(counts).identical(plain)
    with_errors = irt.fit_spectral(y)
    np.testing.assert_array_equal(with_errors["item_difficulty"], plain["item_difficulty"])


def test_permuting_items_permutes_the_answer_and_persons_do_not_matter():
    y = sparse_rasch(8)
    rng = np.random.default_rng(0)
    items, persons = rng.permutation(12), rng.permutation(400)
    whole = irt.fit_spectral(y)["item_difficulty"].values
    np.testing.assert_allclose(
        irt.fit_spectral(y[:, items])["item_difficulty"], whole[items], atol=1e-10
    )
    np.testing.assert_array_equal(irt.fit_spectral(y[persons])["item_difficulty"], whole)


def test_sparse_input():
    y = sparse_rasch(9)
    r = irt.from_array(csr_of(y), observed="stored", rows_per_block=37)
    np.testing.assert_array_equal(
        irt.fit_spectral(r)["item_difficulty"], irt.fit_spectral(y)["item_difficulty"]
    )


def test_items_that_nobody_answered_together_are_an_error_that_lists_the_groups():
    y = np.full((40, 5), -1)
    rng = np.random.default_rng(1)
    y[:20, :3] = rng.integers(0, 2, (20, 3))
    y[20:, 3:] = rng.integers(0, 2, (20, 2))
    r = irt.from_array(y, item_id=["a", "b", "c", "x", "y"])
    for nu in (0.0, 1.0):
        with pytest.raises(
            EstimationError, match=r"2 groups.*3 item\(s\): a, b, c; 2 item\(s\): x, y"
        ):
            irt.fit_spectral(r, regularization=nu)


def test_one_sided_items_need_regularisation():
    y = sparse_rasch(10, missing=0.0)
    y[:, 3] = 1
    r = irt.from_array(y)
    with pytest.raises(EstimationError, match=r"2 groups.*its default.*1 item\(s\): 3"):
        irt.fit_spectral(r, regularization=0.0)
    others = irt.fit_spectral(y[:, np.arange(12) != 3])
    for nu in (None, 0.2, 1.0):
        with pytest.warns(SparseDataWarning, match=r"1 item\(s\) have no finite.*: 3\. .*all pa"):
            fit = irt.fit_spectral(r, regularization=nu)
        b = fit["item_difficulty"].values
        assert np.isfinite(b).all()
        assert b.argmin() == 3
        known = np.arange(12) != 3
        np.testing.assert_array_equal(np.isfinite(fit["item_difficulty_se"]), known)
        for name in ("se", "covariance", "lower", "upper"):
            assert np.isnan(fit[f"item_difficulty_{name}"].values[3]).all()
        assert abs(b[known].mean()) < 1e-12
        # the others' are those of the data without the item
        for name in ("item_difficulty", "item_difficulty_se") if nu is None else ():
            np.testing.assert_allclose(fit[name].values[known], others[name], rtol=1e-2)


def test_item_without_responses_is_listed():
    y = sparse_rasch(11)
    y[:, 2] = -1
    with pytest.raises(EstimationError, match=r"1 item\(s\): 2"):
        irt.fit_spectral(y)


def test_extreme_difficulties_have_relative_accuracy():
    """A chain of two items has pi_0 / pi_1 = Y_10 / Y_01, however far from 1."""
    y = np.vstack([np.tile([1, 0], (200_000, 1)), [[0, 1]]])
    with pytest.warns(SparseDataWarning, match=r"2 item\(s\) get no standard error"):
        fit = irt.fit_spectral(y, regularization=0.0)
    b = fit["item_difficulty"].values
    assert np.isnan(fit["item_difficulty_se"]).all()
    assert b[1] - b[0] == pytest.approx(np.log(200_000), rel=1e-10)


def test_refusals():
    y = sparse_rasch(12)
    for options, message in (
        ({"components": "some"}, "components='some' is not available; choose"),
        ({"level": 1.0}, r"level=1.0 must be a number between"),
        ({"contrasts": [("0", "x")]}, "must name two items"),
        ({"contrasts": [("3", "3")]}, "the same item twice"),
    ):
        with pytest.raises(InputError, match=message):
            irt.fit_spectral(y, **options)
    with pytest.raises(InputError, match="must have all items in rows and columns"):
        irt.fit_spectral(irt.pair_counts(y).isel(items=[0, 1, 2]))
    with pytest.raises(InputError, match="pair counts hold no persons"):
        irt.fit_spectral(irt.pair_counts(y), standard_errors=True)
    for nu in (-1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="regularization="):
            irt.fit_spectral(y, regularization=nu)
    with pytest.raises(EstimationError, match="at least two items"):
        irt.fit_spectral(y[:, :1])
    wide = irt.from_array(sp.csr_array((3, 10_001)), observed="all")
    with pytest.raises(InputError, match=r"10001 items.*at most 10000"):
        irt.pair_counts(wide)
    with pytest.raises(InputError, match=r"10001 items: standard errors .* at most 5000"):
        irt.fit_spectral(wide, standard_errors=True)
    wider = irt.from_array(sp.csr_array((3, 100_001)), observed="all")
    with pytest.raises(InputError, match=r"100001 items: regularization=1.0 needs"):
        irt.fit_spectral(wider, regularization=1.0)


# --- standard errors ------------------------------------------------------------------------------


def scores(beta, y, weight):
    """Estimating functions u_l of every person (persons, items), as they are defined."""
    e = np.exp(beta)
    right, wrong = (y == 1) * weight[:, None], (y == 0) * 1.0
    a, w = right @ e, wrong.sum(axis=1)
    return wrong * a[:, None] - e * right * w[:, None]


def default_nu(y):
    """Half a response for each side of an item, over the items answered with it."""
    both = (y >= 0).T.astype(float) @ (y >= 0) > 0
    return 0.5 / (both.sum(axis=0) - 1).mean()


def sandwich(beta, y, weight, nu):
    """Covariance by finite differences of the equations, and by a list of all pairs of answers."""
    m = beta.size
    links = ((y >= 0).T.astype(float) @ (y >= 0) > 0) * (1.0 - np.eye(m))

    def total(b):
        e = np.exp(b)
        return scores(b, y, weight).sum(axis=0) + nu * (links @ e - e * links.sum(axis=1))

    step = 1e-5 * np.eye(m)
    jacobian = np.stack([(total(beta + h) - total(beta - h)) / 2e-5 for h in step], axis=1)
    inverse = (np.eye(m) - 1.0 / m) @ np.linalg.pinv(jacobian, rcond=1e-8)
    person, i, j = np.nonzero((y == 1)[:, :, None] & (y == 0)[:, None, :])
    term = np.eye(m)[j] - np.eye(m)[i]
    u = scores(beta, y, weight)
    e = np.exp(beta)
    surprise = weight[person] ** 2 * (e[i] * e[j] - e[i] ** 2)
    return inverse @ (u.T @ u + (term.T * surprise) @ term) @ inverse.T


@pytest.mark.parametrize("nu", [None, 0.0, 2.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("layout", ["dense", "complete", "sparse"])
def test_standard_errors_by_finite_differences(nu, weighted, layout):
    y = sparse_rasch(20, n=700, missing=0.0 if layout == "complete" else 0.4)
    weight = np.random.default_rng(1).uniform(0.5, 3.0, len(y)) if weighted else np.ones(len(y))
    weight /= weight.mean()
    options = {"persons": {"weight": weight}} if weighted else {}
    data = y
    if layout == "sparse":
        data = csr_of(y)
        options["observed"] = "stored"
    fit = irt.fit_spectral(irt.from_array(data, rows_per_block=123, **options), regularization=nu,
                           contrasts=[("2", "5")])  # fmt: skip
    beta = fit["item_difficulty"].values
    least = default_nu(y) if nu is None else min(nu, default_nu(y))
    assert fit.attrs["regularization"] == pytest.approx(default_nu(y) if nu is None else nu)
    assert ("item_difficulty_bias" in fit) == (nu is not None)
    bias = np.zeros(12) if nu is None else fit["item_difficulty_bias"].values
    assert bias.any() == (nu == 2.0)
    covariance = sandwich(beta - bias, y, weight, least)
    got = fit["item_difficulty_covariance"].values
    np.testing.assert_allclose(got, covariance, atol=3e-4 * covariance.max())
    np.testing.assert_allclose(fit["item_difficulty_se"], np.sqrt(np.diag(covariance)), rtol=3e-4)
    reach = 1.959964 * np.sqrt(np.diag(covariance))
    low = np.minimum(beta, beta - bias) - reach
    np.testing.assert_allclose(fit["item_difficulty_lower"], low, atol=1e-3)
    assert fit["contrast_difference"].item() == pytest.approx(beta[2] - beta[5])
    variance = covariance[2, 2] + covariance[5, 5] - 2 * covariance[2, 5]
    assert fit["contrast_difference_se"].item() == pytest.approx(np.sqrt(variance), rel=3e-4)


def test_bias_is_what_nu_changes():
    y = sparse_rasch(21, n=4000)
    none, default, some = (irt.fit_spectral(y, regularization=nu) for nu in (0.0, None, 0.2))
    change = some["item_difficulty"].values - default["item_difficulty"].values
    np.testing.assert_allclose(some["item_difficulty_bias"], change, atol=1e-12)
    np.testing.assert_allclose(some["item_difficulty_se"], default["item_difficulty_se"])
    assert (none["item_difficulty_bias"] == 0).all()


def test_effective_persons_by_their_definition():
    y = sparse_rasch(26, n=300, b=7, missing=0.5)
    fit = irt.fit_spectral(y)
    right, wrong = (y == 1) * 1.0, (y == 0) * 1.0
    a, w = right @ np.exp(fit["item_difficulty"].values), wrong.sum(axis=1)
    a, w = a * (w > 0), w * (a > 0)
    sides = [(x @ s) ** 2 / (x**2 @ s) for x, s in ((a, wrong), (w, right))]
    np.testing.assert_allclose(fit["item_effective_persons"], np.minimum(*sides), rtol=1e-9)


def test_covariances_are_positive_where_persons_are_few():
    """The middle of the sandwich is a difference: with 100 persons and 30 items it has no root."""
    y = sparse_rasch(27, n=100, b=30, missing=0.8)
    with pytest.warns(SparseDataWarning, match="get no standard error"):
        fit = irt.fit_spectral(y, contrasts=[("4", "9"), ("5", "12")])
    known = np.flatnonzero(np.isfinite(fit["item_difficulty_se"]))
    assert 15 < known.size < 30
    few = fit["item_effective_persons"].values < 2.0
    np.testing.assert_array_equal(np.flatnonzero(~few), known)
    covariance = fit["item_difficulty_covariance"].values[np.ix_(known, known)]
    value = np.linalg.eigvalsh(covariance)
    assert value[1] > 1e-3 * value[-1]


def test_standard_errors_where_an_item_is_almost_never_solved(monkeypatch):
    """The abilities of three persons count 10,000 times as much as all others'."""
    monkeypatch.setattr(spectral_errors, "_LEAST_SHARE", -1e9)
    rng = np.random.default_rng(5)
    b = np.linspace(-3.5, -1.5, 10)
    y = (rng.random((20_000, 10)) < 1 / (1 + np.exp(b - rng.normal(size=(20_000, 1))))).astype(int)
    y = np.hstack([y, np.zeros((20_000, 1), dtype=int)])
    y[:3, 10], y[:3, 0] = 1, 0
    fit = irt.fit_spectral(y, regularization=0.0)
    covariance = sandwich(fit["item_difficulty"].values, y, np.ones(len(y)), 0.0)
    got = fit["item_difficulty_covariance"].values
    for i, j in ((1, 2), (0, 5), (3, 10)):
        variances = [v[i, i] + v[j, j] - 2 * v[i, j] for v in (got, covariance)]
        assert variances[0] == pytest.approx(variances[1], rel=1e-3)


@pytest.mark.parametrize("unit", [1e-6, 1e4])
def test_the_unit_of_weights_does_not_matter(unit, monkeypatch):
    y = sparse_rasch(24, b=40)
    w = np.random.default_rng(6).uniform(0.5, 2.0, len(y))
    options = {"contrasts": [("1", "2")]}
    for large in (False, True):
        if large:
            monkeypatch.setattr(spectral, "_MAX_DENSE", 1)
            monkeypatch.setattr(spectral, "_MAX_ERRORS", 1)
        one, other = (
            irt.fit_spectral(
                irt.from_array(y, persons={"weight": w * u}), regularization=1.0, **options
            )
            for u in (1.0, unit)
        )
        np.testing.assert_allclose(other["item_difficulty"], one["item_difficulty"], atol=1e-6)
        se = [x["contrast_difference_se"].item() for x in (one, other)]
        assert se[1] == pytest.approx(se[0], rel=1e-5)


def test_few_responses_of_many_items_leave_digits_enough(never_formed):
    """Bounds of sums are those of who answered what, and a heavy person costs no precision."""
    rng = np.random.default_rng(7)
    n, m = 20_000, 600
    items = np.argsort(rng.random((n, m)), axis=1)[:, :6]
    at = (np.repeat(np.arange(n), 6), items.ravel())
    s = sp.csr_array((rng.integers(0, 2, 6 * n).astype(float), at), shape=(n, m))
    weight = np.ones(n)
    weight[5] = 1e6
    r = irt.from_array(s, observed="stored", persons={"weight": weight})
    assert irt.fit_spectral(r).attrs["residual"] < 1e-11


def test_whoever_answered_links_items_whatever_the_weight():
    y = np.full((41, 4), -1)
    rng = np.random.default_rng(8)
    y[:20, :2] = rng.integers(0, 2, (20, 2))
    y[20:40, 2:] = rng.integers(0, 2, (20, 2))
    y[40] = 1
    weight = np.ones(41)
    weight[40] = 1e-12
    r = irt.from_array(y, persons={"weight": weight})
    with pytest.warns(SparseDataWarning, match=r"2 item\(s\) have no finite difficulty"):
        assert irt.fit_spectral(r).attrs["n_linked_groups"] == 1


def test_weights_are_persons_so_many_times():
    y = sparse_rasch(22)
    times = np.random.default_rng(2).integers(1, 4, len(y))
    weighted = irt.fit_spectral(
        irt.from_array(y, persons={"weight": times}, weight_kind="frequency")
    )
    repeated = irt.fit_spectral(np.repeat(y, times, axis=0))
    np.testing.assert_allclose(weighted["item_difficulty"], repeated["item_difficulty"], atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n_sets", [300, pytest.param(2000, marks=pytest.mark.nightly)])
def test_coverage(n_sets):
    """Data sets of 10,000 x 20, 10% observed: 95% intervals within 2 points.

    The standard error of the share is 0.5 points if half of the 20 intervals of each of 300 sets
    went together: a false alarm once in 10,000.
    """
    rng = np.random.default_rng(7)
    b = rng.normal(size=20)
    b -= b.mean()
    inside = 0
    for _ in range(n_sets):
        seen = rng.random((10_000, 20)) < 0.1
        y = rng.random((10_000, 20)) < 1 / (1 + np.exp(-(rng.normal(size=(10_000, 1)) - b)))
        fit = irt.fit_spectral(np.where(seen, y, -1).astype(np.int8), regularization=0.0)
        inside += ((fit["item_difficulty_lower"] <= b) & (b <= fit["item_difficulty_upper"])).sum()
    assert abs(float(inside) / (20 * n_sets) - 0.95) < 0.02


@pytest.mark.slow
def test_coverage_of_sparse_data():
    """400 and 1,000 x 12, 15% observed, difficulties from -2.5 to 2.5, 60 data sets each.

    At nu = 1 intervals covered .52 and .73 here, and 5% tests of differences rejected .52 and .32.
    Of 500 data sets .955 and .952, and .04; their standard errors for 60 (from the spread between
    data sets) are .008 and .01, so limits are more than three away: a false alarm once in 200.
    """
    b = np.linspace(-2.5, 2.5, 12)
    for n, least in ((400, 0.7), (1000, 0.94)):
        rng = np.random.default_rng([n, 11])
        inside, given, width, far = 0, 0, [], []
        for _ in range(60):
            y = rng.random((n, 12)) < 1 / (1 + np.exp(b - rng.normal(size=(n, 1))))
            y = np.where(rng.random((n, 12)) < 0.15, y, -1).astype(np.int8)
            fit = irt.fit_spectral(y)
            settled = fit["item_effective_persons"].values > 0
            low, high = (fit[f"item_difficulty_{end}"].values for end in ("lower", "upper"))
            true = b - b[settled].mean()
            inside += ((low <= true) & (true <= high)).sum()
            given += np.isfinite(low).sum()
            width.extend(high - low)
            error = fit["item_difficulty"].values - true
            cov = fit["item_difficulty_covariance"].values
            variance = np.add.outer(np.diag(cov), np.diag(cov)) - 2.0 * cov
            i, j = np.nonzero(np.isfinite(cov) & np.triu(np.ones_like(cov, dtype=bool), 1))
            far.extend(np.abs(error[i] - error[j]) > 1.96 * np.sqrt(variance[i, j]))
        assert np.mean(far) < 0.08
        assert inside / given > 0.92
        assert given > least * 12 * 60
        assert np.nanmedian(width) < (3.0 if n == 400 else 1.8)


# --- chains that are never formed -----------------------------------------------------------------


@pytest.fixture
def never_formed(monkeypatch):
    monkeypatch.setattr(spectral, "_MAX_DENSE", 1)
    monkeypatch.setattr(spectral, "_MAX_ERRORS", 1)


@pytest.mark.parametrize("accelerated", [True, False])
@pytest.mark.parametrize("nu", [0.0, 0.7])
def test_products_alone_give_the_same(never_formed, nu, accelerated):
    y = sparse_rasch(23, b=90, missing=0.8)  # two words of bits
    weight = np.random.default_rng(3).uniform(1.0, 2.0, len(y))
    r = irt.from_array(y, persons={"weight": weight}, rows_per_block=77)
    options = {"regularization": nu, "contrasts": [("3", "80")]}
    got = irt.fit_spectral(r, accelerated=accelerated, **options)
    with pytest.MonkeyPatch.context() as m:
        m.setattr(spectral, "_MAX_DENSE", 5000)
        want = irt.fit_spectral(r, **options)
    np.testing.assert_allclose(got["item_difficulty"], want["item_difficulty"], atol=1e-6)
    names = ["contrast_difference" + s for s in ("", "_se", "_lower", "_upper")]
    for name in names:
        np.testing.assert_allclose(got[name], want[name], atol=1e-4)
    assert got.attrs["residual"] < 1e-9
    s = irt.from_array(csr_of(y), observed="stored", persons={"weight": weight}, rows_per_block=50)
    assert irt.fit_spectral(s, accelerated=accelerated, **options).identical(got)


@pytest.mark.parametrize("nu", [None, 1.0])
def test_items_without_a_finite_estimate_without_a_matrix(never_formed, nu):
    """One solved by all, one by nobody, one answered with the first alone, who solved both."""
    y = sparse_rasch(28, n=500, b=20)
    y[:, 3], y[y[:, 4] >= 0, 4] = 1, 0
    y[:5, np.arange(20) != 3] = -1
    y = np.column_stack([y, np.where(np.arange(500) < 5, 1, -1)])
    options = {"regularization": nu, "contrasts": [("1", "2"), ("1", "3"), ("4", "20")]}
    message = r"3 item\(s\) have no finite difficulty.*: 3, 4, 20\."
    with pytest.warns(SparseDataWarning, match=message):
        got = irt.fit_spectral(irt.from_array(y, rows_per_block=77), **options)
    with pytest.MonkeyPatch.context() as m:
        m.setattr(spectral, "_MAX_DENSE", 5000)
        with pytest.warns(SparseDataWarning, match=message):
            want = irt.fit_spectral(y, **options)
    np.testing.assert_allclose(got["item_difficulty"], want["item_difficulty"], atol=1e-6)
    assert np.isfinite(want["item_difficulty"]).all()
    assert set(np.argsort(want["item_difficulty"].values)[[0, 1, -1]]) == {3, 20, 4}
    np.testing.assert_array_equal(np.isnan(want["contrast_difference_se"]), [False, True, True])
    for name in ["contrast_difference" + s for s in ("", "_se", "_lower", "_upper")]:
        np.testing.assert_allclose(got[name], want[name], atol=1e-4)


@pytest.mark.parametrize("nu", [0.0, 1.0])
def test_groups_without_a_matrix(never_formed, nu):
    y = np.full((60, 7), -1)
    rng = np.random.default_rng(1)
    y[:40, :4] = rng.integers(0, 2, (40, 4))
    y[40:, 4:6] = rng.integers(0, 2, (20, 2))
    y[0, 6] = 1
    ids = ["a", "b", "c", "d", "x", "y", "z"]
    r = irt.from_array(y, item_id=ids)
    groups = r"4 item\(s\): a, b, c, d; 2 item\(s\): x, y; 1 item\(s\): z"
    if nu:
        groups = r"5 item\(s\): a, b, c, d, z; 2 item\(s\): x, y"
    with pytest.raises(EstimationError, match=groups):
        irt.fit_spectral(r, regularization=nu)


@pytest.mark.parametrize("large", [False, True])
def test_each_group_by_itself(large, monkeypatch):
    y = np.full((400, 7), -1)
    rng = np.random.default_rng(4)
    y[:300, :4] = rng.integers(0, 2, (300, 4))
    y[300:, 4:6] = rng.integers(0, 2, (100, 2))
    if large:
        monkeypatch.setattr(spectral, "_MAX_DENSE", 1)
        monkeypatch.setattr(spectral, "_MAX_ERRORS", 1)
    fit = irt.fit_spectral(y, components="each", regularization=0.5)
    one = irt.fit_spectral(y[:, :4], regularization=0.5)
    two = irt.fit_spectral(y[:, 4:6], regularization=0.5)
    b = fit["item_difficulty"].values
    np.testing.assert_allclose(b[:4], one["item_difficulty"], atol=1e-6)
    np.testing.assert_allclose(b[4:6], two["item_difficulty"], atol=1e-6)
    assert np.isnan(b[6])
    assert fit.attrs["n_linked_groups"] == 3
    assert len(set(fit["item_linked_group"].values[:4])) == 1
    if not large:
        se = fit["item_difficulty_se"].values
        np.testing.assert_allclose(se[:4], one["item_difficulty_se"], rtol=0.02)
        np.testing.assert_allclose(se[4:6], two["item_difficulty_se"], rtol=0.02)


def test_linked_items_as_bits():
    rng = np.random.default_rng(5)
    y = np.where(rng.random((50, 150)) < 0.02, 1, -1).astype(np.int8)
    y[7] = 0  # one who answered everything
    y[7, 140:] = -1
    links = (y >= 0).T.astype(float) @ (y >= 0) > 0
    for data in (Dense(y), layouts.to_sparse(Dense(y))):
        words = np.concatenate([pair_flows.support(data, 0, 70), pair_flows.support(data, 70, 150)])
        octets = words.view(np.uint8)
        by_eight = pair_flows.octets(words)
        np.testing.assert_array_equal(by_eight.T, octets[:, :19])
        np.testing.assert_array_equal(
            np.unpackbits(octets, axis=1, bitorder="little")[:, :150], links
        )
        u = rng.normal(size=150)
        np.testing.assert_allclose(
            pair_flows.linked_sums(by_eight, u), (links & ~np.eye(150, dtype=bool)) @ u, atol=1e-12
        )


def test_layouts_of_more_items_than_have_errors(bits):
    """How the chain is solved follows from sizes, not from the layout."""
    y = sparse_rasch(30, n=300, b=1010, missing=0.7)
    y[:, :2] = np.arange(600).reshape(300, 2) % 3 % 2
    stored = csr_of(y)
    one, other = (
        irt.fit_spectral(irt.from_array(x, **options), progress=False)
        for x, options in ((y, {}), (stored, {"observed": "stored"}))
    )
    assert bits(one) == bits(other)
    assert one.attrs == other.attrs


@pytest.mark.filterwarnings("error")
def test_a_very_large_weight_does_not_hide_the_others(monkeypatch):
    y = sparse_rasch(31, n=1000, b=8, missing=0.0)
    weight = np.ones(1000)
    weight[0] = 6000.0
    y[0, 4:] = -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)  # flags of the others
        heavy = irt.fit_spectral(irt.from_array(y, persons={"weight": weight}))
        monkeypatch.setattr(spectral_errors, "_MEAN_BITS", 22)
        finer = irt.fit_spectral(irt.from_array(y, persons={"weight": weight}))
    for name in ("item_difficulty", "item_difficulty_se"):
        np.testing.assert_allclose(heavy[name], finer[name], rtol=1e-4)


def test_the_mean_is_that_of_the_settled_items():
    y = sparse_rasch(32, n=300, b=5, missing=0.0)
    assert irt.fit_spectral(y).attrs["identification"] == "mean difficulty 0, discrimination 1"
    y[:, 0] = 1
    with pytest.warns(IrtDaskWarning):
        fit = irt.fit_spectral(y)
    assert fit.attrs["n_unsettled_items"] == 1
    assert "of the settled items" in fit.attrs["identification"]
    assert abs(fit["item_difficulty"].values[1:].mean()) < 1e-12
