"""Pairwise maximum likelihood against explicit likelihoods, brute force and simulated truth."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from items import rasch
from parts import csr_of
from scipy.optimize import minimize
from scipy.stats import chi2, norm

import irt_dask as irt
from irt_dask.calibrate.rasch import pairwise
from irt_dask.engine import Engine
from irt_dask.errors import EstimationError, InputError
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.pairs import bradley_terry
from irt_dask.kernels.pairs import random_pairs as pairs
from irt_dask.kernels.responses.layouts import Dense, to_sparse

#: Table 2 of the paper: items of LSAT by one random pairing.
TABLE_2 = [-1.2139, 0.4093, 1.1123, 0.2977, -0.6053]


def random_rasch(rng, n=400, m=8, missing=0.3):
    b = rng.normal(size=m)
    b -= b.mean()
    return rasch(rng, n, b, missing), b


def words(seed, n):
    return keyed_random.words(keyed_random.key(seed, "pairing", 0), 0, n)[:, 0]


def all_comparisons(y):
    """Person, wrong item, right item of every pair answered differently."""
    m = y.shape[1]
    triples = [
        (i, a, b) for i in range(len(y)) for a in range(m) for b in range(m)
        if y[i, a] == 0 and y[i, b] == 1
    ]  # fmt: skip
    return np.array(triples).T


def random_comparisons(y, seed, n_splits):
    """Person, wrong item, right item of the pairs that a fit draws, split by split."""
    parts = []
    for split in range(n_splits):
        w = keyed_random.words(keyed_random.key(seed, "pairing", split), 0, len(y))[:, 0]
        for i in range(len(y)):
            code = pairs.compare(Dense(y[i : i + 1]), w[i : i + 1])
            parts += [(i, *divmod(c, y.shape[1])) for c in code]
    return np.array(parts).T


def explicit_fit(triples, m):
    """Maximise the log-likelihood of listed comparisons by a general optimiser."""
    _, wrong, right = triples

    def loss(free):
        b = np.append(free, -free.sum())
        return np.logaddexp(0.0, b[right] - b[wrong]).sum()

    found = minimize(loss, np.zeros(m - 1), method="BFGS", options={"gtol": 1e-7})
    return np.append(found.x, -found.x.sum()), -found.fun


# --- pairing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [4, 5])
def test_all_pairings_are_equally_likely(m):
    """Chi-square over the perfect matchings (odd: one item left out); 1e-4 is the false alarm."""
    n = 6_000
    entries = np.empty(m, dtype=np.int64)
    seen = {}
    for word in words(3, n):
        entries[:] = 2 * np.arange(m)
        pairs.shuffle(entries, m, word)
        items = entries // 2
        assert sorted(items) == list(range(m))
        matching = frozenset(frozenset(items[k : k + 2].tolist()) for k in range(0, m - 1, 2))
        seen[matching] = seen.get(matching, 0) + 1
    n_pairings = {4: 3, 5: 15}[m]
    assert len(seen) == n_pairings
    expected = n / n_pairings
    statistic = sum((c - expected) ** 2 / expected for c in seen.values())
    assert chi2.sf(statistic, n_pairings - 1) > 1e-4


@pytest.mark.parametrize("answers", [[0, 1, 0, 1], [0, 1, 1, 1, 0], [0, 1]])
def test_comparisons_have_the_frequencies_of_disjoint_random_pairs(answers):
    """Every pair with probability 1 / (2 ceil(m / 2) - 1), odd or even; z within 4.5."""
    m, n = len(answers), 40_000
    y = np.tile(np.array(answers, dtype=np.int8), (n, 1))
    code = pairs.compare(Dense(y), words(11, n))
    p = 1 / (2 * -(-m // 2) - 1)
    for wrong, right in itertools.product(range(m), repeat=2):
        count = (code == wrong * m + right).sum()
        if answers[wrong] == 0 and answers[right] == 1:
            assert abs(count - n * p) <= 4.5 * np.sqrt(n * p * (1 - p))
        else:
            assert count == 0


def test_pairs_of_a_person_are_disjoint_and_observed():
    y, _ = random_rasch(np.random.default_rng(0), n=300, m=11, missing=0.4)
    w = words(5, 300)
    for i in range(300):
        code = pairs.compare(Dense(y[i : i + 1]), w[i : i + 1])
        wrong, right = np.divmod(code, 11)
        used = np.concatenate([wrong, right])
        assert len(set(used)) == used.size <= 2 * ((y[i] >= 0).sum() // 2)
        assert (y[i, wrong] == 0).all()
        assert (y[i, right] == 1).all()


def test_layouts_give_the_same_comparisons():
    y, _ = random_rasch(np.random.default_rng(1), n=200, m=13, missing=0.5)
    w = words(6, 200)
    dense = pairs.compare(Dense(y), w)
    assert dense.size > 200
    np.testing.assert_array_equal(dense, pairs.compare(to_sparse(Dense(y)), w))


@pytest.mark.parametrize("m", [6, 300])  # counted by position, and by sorting
def test_counts_and_their_sums(m):
    rng = np.random.default_rng(2)
    left, right = rng.integers(0, m * m, (2, 700))
    code, times = pairs.merge(pairs.count(left, m), pairs.count(right, m))
    expected = np.bincount(np.concatenate([left, right]), minlength=m * m)
    np.testing.assert_array_equal(code, np.flatnonzero(expected))
    np.testing.assert_array_equal(times, expected[code])
    empty = pairs.count(np.empty(0, dtype=np.int64), m)
    np.testing.assert_array_equal(pairs.merge(empty, empty)[0], [])
    np.testing.assert_array_equal(pairs.merge(empty, (code, times))[1], times)


# --- likelihood and Newton ------------------------------------------------------------------------


def some_comparisons(seed, m=7):
    rng = np.random.default_rng(seed)
    code, times = pairs.count(rng.integers(0, m * m, 400), m)
    kept = code // m != code % m
    return bradley_terry.comparisons(code[kept], times[kept], m)


def test_gradient_and_laplacian_are_the_derivatives():
    c = some_comparisons(3)
    b = np.random.default_rng(4).normal(size=7)
    h, eye = 1e-5, np.eye(7)
    slope = [
        (bradley_terry.log_likelihood(c, b + h * e) - bradley_terry.log_likelihood(c, b - h * e))
        / (2 * h) for e in eye
    ]  # fmt: skip
    np.testing.assert_allclose(bradley_terry.gradient(c, b), slope, rtol=1e-7, atol=1e-6)
    curve = [
        (bradley_terry.gradient(c, b + h * e) - bradley_terry.gradient(c, b - h * e)) / (2 * h)
        for e in eye
    ]
    laplacian = bradley_terry.laplacian(c, bradley_terry.information(c, b))
    np.testing.assert_allclose(laplacian, -np.array(curve), rtol=1e-6, atol=1e-6)


def test_pseudo_inverse():
    c = some_comparisons(5)
    weight = bradley_terry.information(c, np.zeros(7))
    inverse = bradley_terry.pseudo_inverse(c, weight)
    expected = np.linalg.pinv(bradley_terry.laplacian(c, weight))
    np.testing.assert_allclose(inverse, expected, rtol=1e-10, atol=1e-12)


def test_many_items_are_solved_by_conjugate_gradients(monkeypatch):
    """The same maximum, by the other solver."""
    c = some_comparisons(6)
    dense = bradley_terry.maximise(c)
    monkeypatch.setattr(bradley_terry, "_DENSE_ITEMS", 0)
    other = bradley_terry.maximise(c)
    assert dense.converged
    assert other.converged
    np.testing.assert_allclose(other.difficulty, dense.difficulty, atol=1e-9)


def test_extreme_comparisons_have_relative_accuracy():
    """Two items differ by the logarithm of the odds, however far from 0."""
    y = np.vstack([np.tile([1, 0], (200_000, 1)), [[0, 1]]])
    fit = irt.fit_pairwise(y)
    b = fit["item_difficulty"].values
    assert b[1] - b[0] == pytest.approx(np.log(200_000), rel=1e-10)
    assert fit.attrs["converged"] == 1
    variance = fit["item_difficulty_se"].values[0] ** 2
    assert 4 * variance == pytest.approx(1 + 1 / 200_000, rel=1e-6)


# --- fits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"seed": 8}, {"n_splits": 3, "seed": 2}, {"pairing": "all"}]
)
def test_the_explicit_likelihood_has_the_same_maximum(options):
    y, _ = random_rasch(np.random.default_rng(7), n=250, m=6)
    fit = irt.fit_pairwise(y, **options)
    if options.get("pairing") == "all":
        triples = all_comparisons(y)
    else:
        triples = random_comparisons(y, options.get("seed", 0), options.get("n_splits", 1))
    b, objective = explicit_fit(triples, 6)
    np.testing.assert_allclose(fit["item_difficulty"], b, atol=1e-5)
    assert fit.attrs["objective"] == pytest.approx(objective, rel=1e-9)
    assert fit.attrs["n_comparisons"] == triples.shape[1]
    assert abs(fit["item_difficulty"].values.mean()) < 1e-12


@pytest.mark.parametrize("options", [{"n_splits": 3}, {"pairing": "all"}])
def test_the_sandwich_person_by_person(options):
    """NumPy over listed comparisons; scores are rounded to some 1e-7."""
    y, _ = random_rasch(np.random.default_rng(9), n=200, m=6)
    fit = irt.fit_pairwise(y, **options)
    triples = all_comparisons(y) if "pairing" in options else random_comparisons(y, 0, 3)
    person, wrong, right = triples
    b = fit["item_difficulty"].values
    p = 1 / (1 + np.exp(b[right] - b[wrong]))  # of what was observed
    direction = np.eye(6)[wrong] - np.eye(6)[right]
    score = np.zeros((200, 6))
    np.add.at(score, person, (1 - p)[:, None] * direction)
    inverse = np.linalg.pinv((direction * (p * (1 - p))[:, None]).T @ direction)
    expected = inverse @ score.T @ score @ inverse
    np.testing.assert_allclose(fit["item_difficulty_covariance"], expected, atol=1e-7)
    se = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(fit["item_difficulty_se"], se, atol=1e-6)
    np.testing.assert_allclose(fit["item_difficulty_upper"], b + norm.ppf(0.975) * se, atol=1e-5)
    np.testing.assert_allclose(fit["item_difficulty_lower"], b - norm.ppf(0.975) * se, atol=1e-5)


def test_one_pairing_has_the_inverse_information_as_covariance():
    y, _ = random_rasch(np.random.default_rng(10), n=300, m=6)
    fit = irt.fit_pairwise(y, level=0.8, seed=4)
    _, wrong, right = random_comparisons(y, 4, 1)
    b = fit["item_difficulty"].values
    p = 1 / (1 + np.exp(b[right] - b[wrong]))
    direction = np.eye(6)[wrong] - np.eye(6)[right]
    expected = np.linalg.pinv((direction * (p * (1 - p))[:, None]).T @ direction)
    np.testing.assert_allclose(fit["item_difficulty_covariance"], expected, atol=1e-10)
    half = fit["item_difficulty_upper"].values - b
    np.testing.assert_allclose(half, norm.ppf(0.9) * np.sqrt(np.diag(expected)), rtol=1e-9)


def test_products_of_scores_by_rows_are_those_of_all_rows(monkeypatch):
    """Many items: tasks sum some rows of the matrix each."""
    y, _ = random_rasch(np.random.default_rng(11), n=150, m=9)
    b = np.linspace(-1, 1, 9)
    with Engine(irt.from_array(y, rows_per_block=40)) as engine:
        for draw in (None, (0, 2)):
            once = pairwise.score_products(engine, draw, b)
            monkeypatch.setattr(pairwise, "MANY_ITEMS", 2)
            monkeypatch.setattr("irt_dask.engine.core._LEAST_ITEMS", 2)
            np.testing.assert_array_equal(pairwise.score_products(engine, draw, b), once)
            monkeypatch.undo()


@pytest.mark.parametrize("options", [{"n_splits": 2, "seed": 3}, {"pairing": "all"}, {}])
def test_blocks_and_layout_do_not_matter(options, bits):
    y, _ = random_rasch(np.random.default_rng(12), n=300, m=10, missing=0.5)
    expected = bits(irt.fit_pairwise(y, **options))
    for k in (37, 300):
        assert bits(irt.fit_pairwise(irt.from_array(y, rows_per_block=k), **options)) == expected
    stored = irt.from_array(csr_of(y), observed="stored", rows_per_block=64)
    assert bits(irt.fit_pairwise(stored, **options)) == expected


def test_two_processes_give_the_same_bits(client, bits):
    y, _ = random_rasch(np.random.default_rng(13), n=300, m=6)
    r = irt.from_array(y, rows_per_block=16)
    for options in ({"n_splits": 2}, {"pairing": "all"}):
        there = irt.fit_pairwise(r, client=client, **options)
        assert bits(there) == bits(irt.fit_pairwise(r, **options))


def test_seeds_matter_and_splits_continue_each_other():
    y, _ = random_rasch(np.random.default_rng(14))
    one, other = (irt.fit_pairwise(y, seed=s)["item_difficulty"].values for s in (0, 1))
    assert np.abs(one - other).max() > 1e-3
    n = [irt.fit_pairwise(y, n_splits=s).attrs["n_comparisons"] for s in (1, 2)]
    assert n[0] < n[1] < 3 * n[0]


def test_permuting_items_permutes_the_answer_of_all_pairs():
    y, _ = random_rasch(np.random.default_rng(15))
    rng = np.random.default_rng(0)
    items, persons = rng.permutation(8), rng.permutation(400)
    whole = irt.fit_pairwise(y, pairing="all")
    moved = irt.fit_pairwise(y[persons][:, items], pairing="all")
    for name in ("item_difficulty", "item_difficulty_se"):
        np.testing.assert_allclose(moved[name], whole[name].values[items], atol=1e-7)


def test_standard_errors_can_be_left_out():
    y, _ = random_rasch(np.random.default_rng(16))
    fit = irt.fit_pairwise(y, standard_errors=False)
    assert set(fit.data_vars) == {"item_difficulty", "item_flag"}
    assert "level" not in fit.attrs
    np.testing.assert_array_equal(fit["item_difficulty"], irt.fit_pairwise(y)["item_difficulty"])


def test_more_items_than_a_matrix_is_made_for():
    """6,000 items, 12 responses a person: conjugate gradients, no standard errors."""
    rng = np.random.default_rng(17)
    n, m, r = 12_000, 6_000, 12
    items = np.sort(rng.permuted(np.tile(np.arange(m), (8, 1)), axis=1).reshape(-1, r), axis=1)
    items = np.concatenate([items] * (n // len(items)))
    b = np.linspace(-1, 1, m)
    z = rng.normal(size=(n, 1)) - b[items]
    right = (rng.random((n, r)) < 1 / (1 + np.exp(-z))).astype(float)
    y = sp.csr_array((right.ravel(), items.ravel(), np.arange(0, n * r + 1, r)), shape=(n, m))
    responses = irt.from_array(y, observed="stored")
    with pytest.raises(InputError, match=r"6000 items.*5000 items.*standard_errors=False"):
        irt.fit_pairwise(responses, n_splits=8)
    fit = irt.fit_pairwise(responses, n_splits=8, standard_errors=False)
    assert fit.attrs["converged"] == 1
    assert np.corrcoef(fit["item_difficulty"], b)[0, 1] > 0.5


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"pairing": "some"}, r"pairing='some' is not available; choose one of random, all"),
        ({"pairing": "all", "n_splits": 2}, r'n_splits=2 with pairing="all"'),
        ({"n_splits": 0}, r"n_splits=0 must be a whole number of at least 1"),
        ({"n_splits": 1.5}, r"n_splits=1.5 must be a whole"),
        ({"n_splits": True}, r"n_splits=True must be a whole"),
        ({"seed": -1}, r"seed=-1 must be a whole number of at least 0"),
        ({"level": 0.0}, r"level=0.0 must be a number between 0 and 1"),
        ({"level": 95}, r"level=95 must be"),
        ({"level": float("nan")}, r"level=nan must be"),
    ],
)
def test_options_are_checked(options, message):
    y, _ = random_rasch(np.random.default_rng(18), n=20, m=3)
    with pytest.raises(InputError, match=message):
        irt.fit_pairwise(y, **options)


def test_weights_and_single_items_are_refused():
    y, _ = random_rasch(np.random.default_rng(19), n=40)
    with pytest.raises(InputError, match="fit_pairwise does not support person weights"):
        irt.fit_pairwise(irt.from_array(y, persons={"weight": np.ones(40)}))
    with pytest.raises(EstimationError, match="at least two items"):
        irt.fit_pairwise(y[:, :1])


@pytest.mark.parametrize("options", [{"n_splits": 4}, {"pairing": "all"}])
def test_groups_of_items_are_listed(options):
    y = np.full((80, 5), -1)
    rng = np.random.default_rng(20)
    y[:40, :3] = rng.integers(0, 2, (40, 3))
    y[40:, 3:] = rng.integers(0, 2, (40, 2))
    r = irt.from_array(y, item_id=["a", "b", "c", "x", "y"])
    with pytest.raises(EstimationError, match=r"2 groups.*3 item\(s\): a, b, c; 2 item\(s\): x, y"):
        irt.fit_pairwise(r, **options)
    y, _ = random_rasch(rng, missing=0.0)
    y[:, 3] = 1
    with pytest.raises(EstimationError, match=r"2 groups.*always the harder.*1 item\(s\): 3$"):
        irt.fit_pairwise(y, **options)
    with pytest.raises(EstimationError, match=r"2 groups"):
        irt.fit_pairwise(np.ones((5, 2)), **options)


def test_stopping_early_is_a_warning(monkeypatch):
    y, _ = random_rasch(np.random.default_rng(21))
    monkeypatch.setattr(bradley_terry, "_ITERATIONS", 1)
    with pytest.warns(irt.ConvergenceWarning, match="stopped after 1 Newton steps"):
        fit = irt.fit_pairwise(y)
    assert fit.attrs["converged"] == 0
    assert np.isfinite(fit["item_difficulty"]).all()


def test_equations_without_a_solution(monkeypatch):
    """Singular to working precision: a warning for difficulties, an error for their variance."""
    y, _ = random_rasch(np.random.default_rng(24))

    def fail(*args):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(bradley_terry, "_factor", fail)
    with (
        pytest.warns(irt.ConvergenceWarning, match="stopped after 0 Newton steps"),
        pytest.raises(EstimationError, match="singular to working precision"),
    ):
        irt.fit_pairwise(y)


# --- statistics -----------------------------------------------------------------------------------


def lsat_intervals(n_seeds):
    """Share of seeds whose intervals at level .99 contain Table 2, by item; item 3 the hardest."""
    r = irt.load_lsat()
    fits = [irt.fit_pairwise(r, level=0.99, seed=s) for s in range(n_seeds)]
    inside = [
        (f["item_difficulty_lower"].values <= TABLE_2)
        & (f["item_difficulty_upper"].values >= TABLE_2)
        for f in fits
    ]
    tops = [irt.top_items(f, 1) for f in fits]
    named = [
        t.attrs["top_established"] and t["item_in_top"].values.tolist().index(True) == 2
        for t in tops
    ]
    return np.mean(inside, axis=0), np.mean(named)


def test_lsat_agrees_with_the_published_fit():
    """Another pairing of the same data: their own randomness, so not all agree."""
    inside, named = lsat_intervals(20)
    assert inside.min() >= 0.85
    assert named >= 0.85
    one = irt.fit_pairwise(irt.load_lsat(), level=0.99)
    # half widths of Table 2
    half = (one["item_difficulty_upper"] - one["item_difficulty_lower"]).values / 2
    np.testing.assert_allclose(half, [0.3818, 0.2644, 0.2803, 0.2743, 0.2997], rtol=0.08)


@pytest.mark.slow
def test_lsat_over_200_seeds():
    inside, named = lsat_intervals(200)
    assert inside.min() >= 0.9
    assert named >= 0.9


def test_difficulties_are_estimated():
    """Consistency: 60,000 persons; standard errors are about 0.01, the limit is six of them."""
    y, b = random_rasch(np.random.default_rng(22), n=60_000, m=8)
    for options in ({}, {"n_splits": 5}, {"pairing": "all"}):
        fit = irt.fit_pairwise(y, **options)
        error = np.abs(fit["item_difficulty"].values - b) / fit["item_difficulty_se"].values
        assert error.max() < 6
        assert fit["item_difficulty_se"].values.max() < 0.03


def coverage(n_sets, seed, **options):
    """Share of data sets and items whose intervals hold the truth, by level."""
    levels = np.array([0.8, 0.9, 0.95, 0.99])
    z = norm.ppf(0.5 + levels / 2)
    rng = np.random.default_rng(seed)
    hits = []
    for _ in range(n_sets):
        y, b = random_rasch(rng, n=10_000, m=20, missing=0.9)
        fit = irt.fit_pairwise(y, seed=int(rng.integers(2**31)), **options)
        error = np.abs(fit["item_difficulty"].values - b) / fit["item_difficulty_se"].values
        hits.append((error[:, None] < z).mean(axis=0))
    return np.mean(hits, axis=0) - levels


RANDOM, ALL, MANY = {}, {"pairing": "all"}, {"n_splits": 20}
COVERAGE = {"rp": (RANDOM, 0.015), "pmle": (ALL, 0.02), "mrp": (MANY, 0.02)}


@pytest.mark.slow
@pytest.mark.parametrize("options, limit", [COVERAGE["rp"], COVERAGE["pmle"]])
def test_intervals_cover(options, limit):
    """400 data sets x 20 items: standard errors of at most 0.45 points, false alarms 1 in 1,000."""
    assert np.abs(coverage(400, 1, **options)).max() < limit


@pytest.mark.nightly
@pytest.mark.parametrize("options, limit", COVERAGE.values(), ids=COVERAGE)
def test_intervals_cover_2000(options, limit):
    """2,000 data sets: standard errors of at most 0.2 points, no false alarms to speak of."""
    assert np.abs(coverage(2000, 3, **options)).max() < limit


def largest_errors(n_sets, seed):
    """Mean largest error over items of PMLE, MRP-MLE(20) and RP-MLE."""
    rng = np.random.default_rng(seed)
    kinds = [{"pairing": "all"}, {"n_splits": 20}, {}]
    errors = []
    for _ in range(n_sets):
        y, b = random_rasch(rng, n=10_000, m=50, missing=0.9)
        fits = [irt.fit_pairwise(y, standard_errors=False, **kind) for kind in kinds]
        errors.append([np.abs(f["item_difficulty"].values - b).max() for f in fits])
    return np.mean(errors, axis=0)


@pytest.mark.slow
@pytest.mark.nightly
def test_many_pairings_lose_nothing_against_all_pairs():
    """The paper's figure 2, 60 trials: the ratio has a standard error of 2.4%; limits are at 3."""
    all_pairs, many, one = largest_errors(60, 77)
    assert many < 1.075 * all_pairs
    assert many < 0.9 * one


@pytest.mark.nightly
def test_many_pairings_lose_nothing_against_all_pairs_600():
    """600 trials: the ratio has a standard error of 0.8%."""
    all_pairs, many, _ = largest_errors(600, 77)
    assert many < 1.02 * all_pairs


@pytest.mark.slow
def test_average_of_estimates_is_the_same_to_first_order():
    """The paper averages the estimates of 20 pairings; here their likelihoods are summed."""
    y, _ = random_rasch(np.random.default_rng(23), n=10_000, m=20, missing=0.7)
    together = irt.fit_pairwise(y, n_splits=20)
    parts = []
    for split in range(20):
        w = keyed_random.words(keyed_random.key(0, "pairing", split), 0, len(y))[:, 0]
        code = pairs.compare(Dense(y), w)
        parts.append(
            bradley_terry.maximise(bradley_terry.comparisons(*pairs.count(code, 20), 20)).difficulty
        )
    gap = np.mean(parts, axis=0) - together["item_difficulty"].values
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.abs(gap / together["item_difficulty_se"].values).max() < 0.1
