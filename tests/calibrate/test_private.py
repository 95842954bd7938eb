"""The private fit against brute force over rows and cuts, the claimed law, and an audit."""

from __future__ import annotations

import itertools
import math
import re
import traceback
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial

import dask.array as da
import numpy as np
import private_baselines as baselines
import pytest
import scipy.linalg
import scipy.optimize
import scipy.stats
from items import rasch
from parts import csr_of

import irt_dask as irt
from irt_dask.calibrate.private import fit as private
from irt_dask.calibrate.private.ledger import calibrate, check_budget, epsilon_of, gaussian
from irt_dask.calibrate.rasch.item_chain import DenseChain
from irt_dask.errors import InputError
from irt_dask.kernels.privacy import private_counts
from irt_dask.kernels.privacy.private_counts import Pairs
from irt_dask.kernels.responses.layouts import Dense, to_dense, to_sparse

BUDGET = {"epsilon": 1.0, "delta": 1e-4}
few_items = partial(rasch, n=300, b=6, missing=0.3)


def graphs(seed, m, n):
    """Random graphs of m items, of any density."""
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(m, 1)
    for _ in range(n):
        kept = rng.random(first.size) < rng.random()
        yield Pairs(m, first[kept], second[kept])


def largest_cut(pairs):
    sides = np.array(list(itertools.product([0, 1], repeat=pairs.n_items)))
    return int((sides[:, pairs.first] != sides[:, pairs.second]).sum(axis=1).max(initial=0))


# --- sensitivity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("m", range(2, 7))
def test_no_two_rows_are_farther_apart_than_the_bound(m):
    """All pairs of rows, missing entries included; all limits; the complete and random graphs."""
    rows = np.array(list(itertools.product([-1, 0, 1], repeat=m)))
    added = (rows == 1)[:, :, None] & (rows == 0)[:, None, :]
    for pairs in [private_counts.all_pairs(m), *graphs(m, m, 12)]:
        x = np.concatenate(
            [added[:, pairs.first, pairs.second], added[:, pairs.second, pairs.first]], 1
        )
        x = x.astype(np.int64)
        for k in range(2, m + 1):
            own = x[(rows >= 0).sum(axis=1) <= k]
            length = own.sum(axis=1)
            one = int(length.max(initial=0))
            two = int((length[:, None] + length - 2 * own @ own.T).max(initial=0))
            bound = private_counts.squared_sensitivity(pairs, k, "add-remove")
            assert one <= bound <= min(k**2 // 4, pairs.n)
            assert private_counts.squared_sensitivity(pairs, k, "replace") == 2 * bound
            assert two <= 2 * bound
            if pairs.complete:
                assert (one, two) == (k**2 // 4, 2 * (k**2 // 4))


@pytest.mark.parametrize("m", [7, 10, 12])
def test_cut_bound_against_all_cuts(m):
    for pairs in graphs(m, m, 15):
        best = largest_cut(pairs)
        bound = private_counts.maxcut_bound(pairs)
        assert best <= bound <= min(pairs.n, m**2 // 4)


@pytest.mark.parametrize("m, p0", [(60, 0.1), (150, 0.05), (150, 0.5)])
def test_cut_bound_is_worth_it_and_no_local_search_beats_it(m, p0):
    pairs = private_counts.random_pairs(m, p0, seed=1)
    a = np.zeros((m, m))
    a[pairs.first, pairs.second] = a[pairs.second, pairs.first] = 1
    rng, best = np.random.default_rng(0), 0
    for _ in range(20):
        x = rng.choice([-1.0, 1.0], m)
        while (gain := x * (a @ x)).max() > 0:
            x[gain.argmax()] *= -1
        best = max(best, int((x[pairs.first] != x[pairs.second]).sum()))
    bound = private_counts.maxcut_bound(pairs)
    assert best <= bound < 0.95 * pairs.n
    assert bound < 1.25 * best


@pytest.mark.parametrize("m, hubs", [(60, 0), (60, 4), (60, 8)])
def test_cut_bound_is_the_least_eigenvalue_of_five(m, hubs):
    """By NumPy; of these graphs it is the last one."""
    first, second = np.triu_indices(m, 1)
    kept = (first < hubs) | (np.random.default_rng(0).random(first.size) < 0.1)
    pairs = private_counts.Pairs(m, first[kept], second[kept])
    edges = np.zeros((m, m))
    edges[pairs.first, pairs.second] = edges[pairs.second, pairs.first] = 1.0
    degree = edges.sum(axis=1)
    most = [
        np.linalg.eigvalsh(
            4 * m * (np.diag(degree) - edges) + t * np.diag(degree.sum() - m * degree)
        )[-1]
        for t in range(5)
    ]
    assert np.argmin(most) == 4
    least = min(most) / 16.0
    assert math.floor(least) <= private_counts.maxcut_bound(pairs) <= math.floor(least + 0.2)
    assert least < pairs.n


def test_eigenvalue_bound_is_above_the_exact_eigenvalue():
    """The complete graph's Laplacian has the largest eigenvalue m."""
    for m in (3, 17, 100):
        bound = private_counts._eigenvalue_bound(m * np.eye(m) - 1.0)
        assert m <= bound <= m + 2.001


def test_what_is_added_to_an_eigenvalue_is_what_was_proved():
    """In fractions; and an eigenvalue that is too small is no bound."""
    for m in (17, 100):
        matrix, u = m * np.eye(m) - 1.0, Fraction(1, 2**53)
        bound, mu = private_counts._eigenvalue_bound(matrix), m + 2
        g = (m + 1) * u / (1 - (m + 1) * u)
        added = 4 * g / (1 - g) * (mu * m - m * (m - 1))
        assert mu < bound
        assert abs(Fraction(bound) - mu - added) <= Fraction(math.ulp(float(mu)))


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_an_eigenvalue_is_not_trusted(monkeypatch, share):
    true = scipy.linalg.eigvalsh
    monkeypatch.setattr(scipy.linalg, "eigvalsh", lambda *a, **k: share * true(*a, **k))
    for m in (17, 100):
        assert private_counts._eigenvalue_bound(m * np.eye(m) - 1.0) == math.inf


def test_all_pairs_are_complete():
    assert private_counts.all_pairs(5).complete
    assert private_counts.maxcut_bound(private_counts.all_pairs(9)) == 20  # 4 times 5
    pairs = private_counts.all_pairs(5)
    assert not private_counts.Pairs(5, pairs.first[1:], pairs.second[1:]).complete


@pytest.mark.parametrize("sigma", [9.0, 60.0])  # counts are raised to 1, and to 6
def test_difficulties_are_those_of_the_chains_with_these_weights(sigma):
    """The balance of flows solved by least squares, and weights from the docstring."""
    m = 6
    pairs, rng = private_counts.all_pairs(m), np.random.default_rng(3)
    noisy = rng.integers(-5, 90, 2 * pairs.n)

    def stationary(rate):
        balance = np.vstack([rate.T - np.diag(rate.sum(axis=1)), np.ones(m)])
        return np.linalg.lstsq(balance, np.eye(m + 1)[m], rcond=None)[0]

    beta = weighted_chains(noisy, pairs, sigma, stationary)
    np.testing.assert_allclose(private_counts.difficulties(noisy, pairs, sigma), beta, atol=1e-9)
    assert np.ptp(beta) > 0.5


def test_weights_fall_no_further_than_at_a_difference_of_twenty():
    """Of three items, whose stationary distribution is a sum over trees."""
    pairs = private_counts.all_pairs(3)
    noisy = np.array([10**6, 10**3, 10**6, 1, 1, 1])  # no reversible chain

    def stationary(r):
        into = [r[1, 0] * r[2, 0] + r[1, 0] * r[2, 1] + r[2, 0] * r[1, 2],
                r[0, 1] * r[2, 1] + r[0, 1] * r[2, 0] + r[2, 1] * r[0, 2],
                r[0, 2] * r[1, 2] + r[0, 2] * r[1, 0] + r[1, 2] * r[0, 1]]  # fmt: skip
        return np.array(into)

    beta = weighted_chains(noisy, pairs, 5.0, stationary)
    np.testing.assert_allclose(private_counts.difficulties(noisy, pairs, 5.0), beta, atol=1e-9)
    assert np.ptp(beta) > 21.0


def weighted_chains(noisy, pairs, sigma, stationary):
    """Difficulties as the docstring says, by any way to a stationary distribution."""
    m, least = pairs.n_items, max(1.0, sigma / 10.0)
    y = np.zeros((m, m))
    for k, (i, j) in enumerate(zip(pairs.first, pairs.second, strict=True)):
        y[i, j], y[j, i] = max(noisy[k], least), max(noisy[pairs.n + k], least)
    of_noise, weight = 2.0 * sigma**2 / (y.sum() / pairs.n), np.ones((m, m))
    for _ in range(5):
        pi = stationary(weight * y)
        beta = np.log(pi) - np.log(pi).mean()
        gap = np.clip(beta[:, None] - beta, -20.0, 20.0)
        weight = (1 + of_noise) / (1 + of_noise * np.cosh(gap))
    return beta


def splitmix64(state):
    """Steele, Lea and Flood's generator in whole numbers: the next state, and its output."""
    mask = (1 << 64) - 1
    state = (state + 0x9E3779B97F4A7C15) & mask
    z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return state, z ^ (z >> 31)


def test_what_is_kept_is_drawn_item_by_item():
    """Each with the share of what may be kept in what is to come, by the person's own stream."""
    assert splitmix64(0)[1] == 0xE220A8397B1DCDAF  # as published
    rng = np.random.default_rng(8)
    y = rng.integers(-1, 2, (40, 30)).astype(np.int8)
    seeds = rng.integers(0, 2**63, 40, dtype=np.uint64)
    want = np.full_like(y, -1)
    for i, row in enumerate(y):
        state, left, room = int(seeds[i]), int((row >= 0).sum()), 7
        for j in np.flatnonzero(row >= 0):
            state, z = splitmix64(state)
            if Fraction(z >> 11, 2**53) * left < room:
                want[i, j] = row[j]
                room -= 1
            left -= 1
    assert ((want >= 0).sum(axis=1) == np.minimum((y >= 0).sum(axis=1), 7)).all()
    np.testing.assert_array_equal(private_counts.limit_items(Dense(y), seeds, 7).values, want)


def test_root_is_never_below():
    for s in range(1, 3000):
        x = private_counts.root(s)
        assert Fraction(x) ** 2 >= s
        assert x <= math.sqrt(s) * (1 + 1e-15)
        assert math.isqrt(s) ** 2 != s or x == math.isqrt(s)  # no more noise than there has to be


def test_random_pairs_come_from_the_seed_alone():
    a, b, c = (private_counts.random_pairs(80, 0.3, s) for s in (1, 1, 2))
    np.testing.assert_array_equal(a.first, b.first)
    assert a.n != c.n or (a.first != c.first).any()
    assert abs(a.n - 0.3 * 3160) < 6 * math.sqrt(3160 * 0.21)


# --- at most k responses --------------------------------------------------------------------------


def test_limit_keeps_k_responses_of_those_who_have_more_in_both_layouts():
    y = few_items(1, n=500, b=9, missing=0.5)
    seeds = np.random.default_rng(0).integers(0, 2**63, 500).astype(np.uint64)
    few = private_counts.limit_items(Dense(y), seeds, 4).values
    assert ((few == y) | (few == -1)).all()
    np.testing.assert_array_equal((few >= 0).sum(1), np.minimum((y >= 0).sum(1), 4))
    sparse = private_counts.limit_items(to_sparse(Dense(y)), seeds, 4)
    np.testing.assert_array_equal(to_dense(sparse).values, few)


def test_limit_of_a_store(tmp_path, client):
    irt.simulate(200, 6, model="1pl", seed=1, store=tmp_path / "store")
    r = private.limited(irt.open_responses(tmp_path / "store"), 3)
    exact = private.pair_kernels.pair_counts(r.read_block(0).data)[0]
    with private.Engine(r, client=client) as engine:
        np.testing.assert_array_equal(engine.map_reduce(private._count)[0], exact)


def test_every_subset_is_equally_likely():
    """15 subsets, 30,000 persons: a right sampler fails once in a million (seeds are fixed)."""
    n = 30_000
    seeds = np.array([private._seed(str(i), b"key") for i in range(n)], dtype=np.uint64)
    kept = private_counts.limit_items(Dense(np.ones((n, 6), np.int8)), seeds, 2).values == 1
    _, count = np.unique(kept, axis=0, return_counts=True)
    assert count.size == 15
    assert scipy.stats.chisquare(count).pvalue > 1e-6


def test_what_is_used_of_a_person_depends_on_no_one_else(monkeypatch):
    monkeypatch.setattr(private.secrets, "token_bytes", lambda n: b"k" * n)
    y = few_items(2, n=50, missing=0.0)
    ids = [f"p{i}" for i in range(50)]
    whole = private.limited(irt.from_array(y, person_id=ids), 3)
    rest = private.limited(irt.from_array(np.delete(y, 7, 0), person_id=np.delete(ids, 7)), 3)
    a, b = (to_dense(r.read_block(0).data).values for r in (whole, rest))
    np.testing.assert_array_equal(np.delete(a, 7, 0), b)


def test_the_key_is_new_each_time_and_not_shown():
    r = irt.from_array(few_items(3, n=50, missing=0.0))
    a, b = private.limited(r, 3), private.limited(r, 3)
    assert (to_dense(a.read_block(0).data).values != to_dense(b.read_block(0).data).values).any()
    assert a.refs[0].key != b.refs[0].key
    assert "key=" not in repr(a.refs[0]).replace("cache_key=", "")


def test_counts_do_not_depend_on_blocks_layout_or_workers(monkeypatch, client):
    monkeypatch.setattr(private.secrets, "token_bytes", lambda n: b"k" * n)
    y = few_items(4, n=400, b=8)
    pairs = private_counts.random_pairs(8, 0.6, seed=0)
    s = csr_of(y)
    few = private.exact_counts(irt.from_array(y), pairs, 4, None, None)
    every = pairs.of((y == 1).astype(int).T @ (y == 0).astype(int))
    for r, c in [
        (irt.from_array(y, rows_per_block=17), None),
        (irt.from_array(s, observed="stored", rows_per_block=90), None),
        (irt.from_array(y, rows_per_block=150), client),
    ]:
        np.testing.assert_array_equal(private.exact_counts(r, pairs, 4, c, None), few)
        if c is None:
            np.testing.assert_array_equal(private.exact_counts(r, pairs, 8, c, None), every)


def handed_to_the_noise(monkeypatch, *args, **options):
    """The counts that a fit hands to the mechanism, and its result."""
    seen = []

    def watched(scale):
        def mechanism(counts):
            seen.append(np.array(counts))
            return gaussian(scale)(counts)

        return mechanism

    with monkeypatch.context() as m:
        m.setattr(private, "gaussian", watched)
        m.setattr(private.secrets, "token_bytes", lambda n: b"k" * n)  # the same choice twice
        fit = irt.fit_private_spectral(*args, **options)
    return seen[0], fit


def neighbours(adjacency, m=24):
    """Others with few responses; and one person with all items, who is replaced or left out."""
    y = np.full((40, m), -1, dtype=np.int8)
    rng = np.random.default_rng(0)
    for i in range(40):
        y[i, rng.choice(m, 3, replace=False)] = rng.integers(0, 2, 3)
    ids = [f"p{i}" for i in range(40)]
    y[11] = np.arange(m) < m // 2
    other = y.copy()
    other[11] = 1 - y[11]
    if adjacency == "replace":
        return [irt.from_array(a, person_id=ids) for a in (y, other)]
    return [
        irt.from_array(y, person_id=ids),
        irt.from_array(np.delete(y, 11, 0), person_id=ids[:11] + ids[12:]),
    ]


def moved(monkeypatch, adjacency, pairs, layout="dense"):
    """Squared distance of two neighbours' counts, and the squared sensitivity that is stated."""
    options = {"pairs": pairs, "adjacency": adjacency, "max_items_per_person": 6, "rho": 1.0}
    if pairs == "random":
        options["p0"] = 0.8
    data = neighbours(adjacency)
    if layout == "csr":
        data = [
            irt.from_array(
                csr_of(to_dense(r.read_block(0).data).values), observed="stored",
                person_id=list(r.person_ids(0)),
            )
            for r in data
        ]  # fmt: skip
    (a, fit), (b, _) = (handed_to_the_noise(monkeypatch, r, **options) for r in data)
    return float(((a - b) ** 2).sum()), fit.attrs["sensitivity"] ** 2


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
@pytest.mark.parametrize("pairs", ["all", "random"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_one_person_moves_the_counts_by_no_more_than_is_stated(
    monkeypatch, adjacency, pairs, layout
):
    """Of a person with all of 24 items 6 are counted.  Were all, the bound would be broken."""
    distance, bound = moved(monkeypatch, adjacency, pairs, layout)
    assert 0 < distance <= bound * (1 + 1e-12)
    monkeypatch.setattr(private, "limited", lambda responses, most: responses)
    distance, same = moved(monkeypatch, adjacency, pairs, layout)
    assert same == bound
    assert distance > 4 * bound


# --- what errors and results say of persons -------------------------------------------------------

NAMES = [f"Anna{i}" for i in range(30)]


def invalid(form):
    """Responses with a 7, from a dask array; an array that is none; and rows that cannot be made"""
    y = few_items(1, n=30, b=5).astype(float)
    y[17, 3] = 7.0
    if form == "array":
        return y
    lazy = da.from_array(y, chunks=(10, 5))
    if form == "graph":

        def broken(block):
            raise ValueError("Anna17 said 7")

        lazy = lazy.map_blocks(broken, dtype=float)
    return irt.from_array(lazy, person_id=NAMES, item_id=list("abcde"), rows_per_block=8)


@pytest.mark.parametrize("form", ["array", "lazy", "graph"])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("where", ["threads", pytest.param("workers", marks=pytest.mark.cluster)])
def test_an_error_of_a_private_fit_names_nobody(form, kept, where, tmp_path, request):
    ledger = tmp_path / "ledger.json" if kept else None
    client = request.getfixturevalue("client") if where == "workers" else None
    with pytest.raises(InputError, match=r"fit_private_spectral: .*nothing was released") as caught:
        irt.fit_private_spectral(invalid(form), rho=1.0, ledger=ledger, client=client)
    said = "".join(traceback.format_exception(caught.value)).partition("InputError: ")[2]
    assert not re.search(r"Anna|person \d|item \d|7", said)
    assert caught.value.__context__ is None
    assert not kept or not ledger.exists()


def test_lazy_responses_that_are_valid_are_fitted():
    y = few_items(1, n=30, b=5)
    lazy = irt.from_array(da.from_array(y, chunks=(10, 5)))
    near = irt.fit_private_spectral(lazy, rho=9e3)
    np.testing.assert_allclose(
        near["item_difficulty"], irt.fit_private_spectral(y, rho=9e3)["item_difficulty"], atol=0.1
    )


# --- from noisy counts to difficulties ------------------------------------------------------------


def test_without_noise_it_is_the_spectral_estimate():
    y = few_items(5, n=2000, b=10)
    beta = irt.fit_spectral(y, regularization=0.0)["item_difficulty"].values
    pairs = private_counts.all_pairs(10)
    exact = private.exact_counts(irt.from_array(y), pairs, 10, None, None)
    np.testing.assert_allclose(private_counts.difficulties(exact, pairs, 0.0), beta, atol=1e-10)
    fit = irt.fit_private_spectral(y, epsilon=9e3, delta=1e-4)
    np.testing.assert_allclose(fit["item_difficulty"], beta, atol=0.01)


def test_elimination_finds_the_stationary_distribution():
    rng = np.random.default_rng(6)
    rates = np.exp(rng.normal(0, 3, (30, 30)))
    np.fill_diagonal(rates, 0.0)
    pi = private_counts._eliminate(rates.copy())
    chain = DenseChain(rates.copy(), np.zeros(rates.shape, dtype=bool), 0.0)
    want = chain.stationary(accelerated=True)
    np.testing.assert_allclose(pi / pi.sum(), want / want.sum(), rtol=1e-9)


def test_weights_leave_a_reversible_chain_alone():
    """Exact expected counts of a Rasch model: any weights give the difficulties back."""
    b = np.linspace(-1.5, 1.5, 7)
    theta, w = np.polynomial.hermite_e.hermegauss(40)
    p = 1 / (1 + np.exp(b - theta[:, None]))
    expected = 1e6 * (p * w[:, None] / w.sum()).T @ (1 - p)
    for pairs in (private_counts.all_pairs(7), private_counts.random_pairs(7, 0.6, seed=2)):
        noisy = pairs.of(expected)
        np.testing.assert_allclose(private_counts.difficulties(noisy, pairs, 500.0), b, atol=1e-9)


@pytest.mark.parametrize("sigma", [1e-3, 1.0, 1e6, 1e18])
def test_any_noisy_counts_give_finite_numbers(sigma):
    """Chains along which the estimate drifts as far as integers allow, and pure noise."""
    m, top = 60, 2**62
    path = Pairs(m, np.arange(m - 1), np.arange(1, m))
    rng = np.random.default_rng(0)
    for pairs in (path, private_counts.all_pairs(m)):
        for noisy in (
            np.repeat([top, -top], pairs.n),
            np.repeat([-top, top], pairs.n),
            np.full(2 * pairs.n, -top),
            np.zeros(2 * pairs.n, np.int64),
            rng.integers(-top, top, 2 * pairs.n),
        ):
            beta = private_counts.difficulties(noisy, pairs, sigma)
            assert np.isfinite(beta).all()
            assert abs(beta.mean()) < 1e-9


# --- budget and noise -----------------------------------------------------------------------------


def claimed_epsilon(rho, delta):
    """Least epsilon for which some order's bound of Canonne, Kamath and Steinke is delta."""

    def log_delta(epsilon):
        def bound(t):
            a = 1.0 + math.exp(t)
            return (a - 1) * (a * rho - epsilon) + a * math.log1p(-1 / a) - math.log(a - 1)

        return scipy.optimize.minimize_scalar(bound, bounds=(-12, 12), method="bounded").fun

    return scipy.optimize.brentq(lambda e: log_delta(e) - math.log(delta), 0.0, 500.0)


@pytest.mark.parametrize("epsilon, delta", [(0.05, 1e-6), (1.0, 1e-4), (8.0, 1e-9)])
def test_budget_against_the_formula(epsilon, delta):
    fit = irt.fit_private_spectral(few_items(7), epsilon=epsilon, delta=delta)
    a = fit.attrs
    assert (a["epsilon"], a["delta"]) == (epsilon, delta)
    assert a["sensitivity"] == pytest.approx(math.sqrt(18), rel=1e-15)
    assert a["rho"] == pytest.approx(18 / (2 * a["sigma"] ** 2), rel=1e-12)
    assert claimed_epsilon(a["rho"], delta) == pytest.approx(epsilon, rel=1e-4)


def exact_delta(sigma, epsilon, n_counts):
    """Of discrete Gaussian noise where a person moves as many counts by one each: by summation."""
    half = math.ceil(14.0 * sigma)
    y = np.arange(-half, half + 1)
    law = np.exp(-(y**2) / (2.0 * sigma**2))
    total = np.ones(1)
    for _ in range(n_counts):
        total = np.convolve(total, law / law.sum())
    t = np.arange(total.size) - n_counts * half
    loss = (2.0 * t + n_counts) / (2.0 * sigma**2)  # sum of ((y + 1)^2 - y^2) / (2 sigma^2)
    return float(-total @ np.expm1(np.minimum(epsilon - loss, 0.0)))


@pytest.mark.parametrize("epsilon, delta", [(0.5, 1e-4), (1.0, 1e-4), (1.0, 1e-6), (8.0, 1e-9)])
def test_what_is_claimed_holds_exactly_and_what_the_conversion_costs(epsilon, delta):
    """The noise is enough, and 4 to 12% more than the least (the docs say so): 4 items, replaced
    rows that move 8 counts by one."""
    a = irt.fit_private_spectral(few_items(7, n=50, b=4), epsilon=epsilon, delta=delta).attrs
    assert a["sensitivity"] ** 2 == pytest.approx(8.0)
    assert exact_delta(a["sigma"], epsilon, 8) <= delta
    assert exact_delta(0.965 * a["sigma"], epsilon, 8) <= delta
    assert exact_delta(0.88 * a["sigma"], epsilon, 8) > delta


def test_rho_and_the_sizes_that_are_public():
    y = few_items(8)
    a = irt.fit_private_spectral(y, rho=0.1, max_items_per_person=5).attrs
    assert a["rho"] == 0.1
    assert a["sigma"] == pytest.approx(math.sqrt(12 / 0.2), rel=1e-12)
    assert "epsilon" not in a
    assert a["n_persons"] == 300
    b = irt.fit_private_spectral(
        y, rho=0.1, delta=1e-5, adjacency="add-remove", pairs="random", p0=0.7, seed=1
    ).attrs
    assert "n_persons" not in b
    assert b["epsilon"] == pytest.approx(claimed_epsilon(0.1, 1e-5), rel=1e-4)
    assert b["p0"] == 0.7
    assert b["sigma"] == pytest.approx(b["sensitivity"] / math.sqrt(0.2), rel=1e-12)
    assert b["sensitivity"] ** 2 <= min(9, b["n_pairs"]) + 1e-12


def probabilities(sigma):
    """The discrete Gaussian distribution on -reach ... reach, beyond which less than 1e-22 lies."""
    x = np.arange(-math.ceil(10 * sigma) - 10, math.ceil(10 * sigma) + 11)
    p = np.exp(-(x**2) / (2 * sigma**2))
    return x, p / p.sum()


def chi_square(draws, sigma):
    x, p = probabilities(sigma)
    count = np.bincount(np.clip(draws, x[0], x[-1]) - x[0], minlength=x.size)
    expected = p * draws.size
    group = np.minimum(np.cumsum(expected) // 20, np.cumsum(expected[::-1])[::-1] // 20)
    inner = group >= 1  # cells of 20 or more; the tails are one cell each
    lower, upper = (~inner) & (x < 0), (~inner) & (x > 0)
    o = np.concatenate([[count[lower].sum()], count[inner], [count[upper].sum()]])
    e = np.concatenate([[expected[lower].sum()], expected[inner], [expected[upper].sum()]])
    return scipy.stats.chisquare(o, e).pvalue


def test_noise_has_the_law_that_is_claimed():
    """20,000 draws; fails by chance once in a million."""
    sigma = 4.7
    draws = np.array(gaussian(sigma)([5] * 20_000)) - 5
    assert chi_square(draws, sigma) > 1e-6


@pytest.mark.slow
@pytest.mark.nightly
def test_a_million_draws_have_the_law_that_is_claimed():
    """Fails by chance twice in a million."""
    for sigma, n in ((0.8, 4), (31.4, 20)):
        draws = np.concatenate([np.array(gaussian(sigma)([0] * 50_000)) for _ in range(n)])
        assert chi_square(draws, sigma) > 1e-6


def test_every_pair_gets_noise_whatever_the_counts(monkeypatch):
    """All right, all missing: as many counts go through the mechanism, and come out noisy."""
    seen = []

    def watched(scale):
        def mechanism(counts):
            seen.append((scale, counts, gaussian(scale)(counts)))
            return seen[-1][2]

        return mechanism

    monkeypatch.setattr(private, "gaussian", watched)
    for y in (np.ones((40, 7)), np.full((40, 7), -1)):
        fit = irt.fit_private_spectral(y.astype(np.int8), rho=1e-6)
        scale, counts, noisy = seen.pop()
        assert scale == fit.attrs["sigma"]
        assert counts == [0] * 42
        assert sum(v == 0 for v in noisy) < 5  # sigma is 3,464


def noise_by_law(scale, rng):
    """Draw discrete Gaussian noise from a table of its law."""
    x, p = probabilities(scale)
    table = np.cumsum(p)
    return lambda *shape: x[np.searchsorted(table, rng.random(shape))]


def lower_bound(first, second, delta):
    """Least epsilon with P(first) <= e^epsilon P(second) + delta; -inf where none is proved."""
    low = scipy.stats.beta.ppf(1e-6, first.sum(), (~first).sum() + 1)
    high = scipy.stats.beta.ppf(1 - 1e-6, second.sum() + 1, (~second).sum())
    return math.log((low - delta) / high) if low > delta else -math.inf


def audit(draw):
    """Lower bounds of epsilon that two worst neighbours' outputs prove, and what is claimed.

    One person of 20 items has right and wrong exchanged: counts move by v = (+-1, 0), |v|^2 = 200.
    v'noisy tells most.  Runs from a table of the noise's law choose the threshold; ``draw(counts,
    scale)`` returns the statistic's counts of other runs, which give Clopper-Pearson bounds of
    level 1 - 1e-6 each: a lower bound is false with probability 2e-6.  The second bound is for the
    variance that Lemma 4.1 prints for the same claim.
    """
    m, (epsilon, delta) = 20, BUDGET.values()
    row = np.repeat([1, 0], m // 2).astype(np.int8)
    pairs = private_counts.all_pairs(m)
    neighbours = [
        private.exact_counts(irt.from_array(r[None, :]), pairs, m, None, None)
        for r in (row, 1 - row)
    ]
    v = neighbours[0] - neighbours[1]
    squared = private_counts.squared_sensitivity(pairs, m, "replace")
    assert v @ v == squared == 200
    sigma, spent = calibrate(private_counts.root(squared), check_budget(epsilon, delta, None))
    as_printed = math.sqrt(math.sqrt(m * (m - 1)) / (2 * spent["rho"]))
    bounds = []
    for scale in (sigma, as_printed):
        noise = noise_by_law(scale, np.random.default_rng(0))
        pilot = [
            v @ c + np.concatenate([noise(10_000, 200).sum(axis=1) for _ in range(20)])
            for c in neighbours
        ]
        thresholds = np.quantile(pilot[1], 1 - np.geomspace(2e-4, 0.4, 40))
        best = max(thresholds, key=lambda q: lower_bound(*[t > q for t in pilot], delta))
        runs = [np.asarray(draw(c, scale)) for c in neighbours]
        assert min(r.shape[0] for r in runs) >= 100_000
        bounds.append(lower_bound(*[r @ v > best for r in runs], delta))
    print("epsilon proved, claim", epsilon, "and as printed:", bounds)
    return *bounds, epsilon


@pytest.mark.nightly
def test_audit_of_the_law():
    """200,000 runs each, drawn from the law that OpenDP's noise is tested for above."""
    rng = np.random.default_rng(1)

    def draw(counts, scale):
        noise = noise_by_law(scale, rng)
        return np.concatenate([counts + noise(10_000, counts.size) for _ in range(20)])

    ours, as_printed, claim = audit(draw)
    assert 0.1 < ours <= claim < as_printed


@pytest.mark.slow
@pytest.mark.nightly
def test_audit_of_the_mechanism():
    """100,000 runs of the release's own noise for each neighbour and variance: 1.5e8 draws."""

    def draw(counts, scale, runs=100_000, at_once=50):
        mechanism = private.gaussian(scale)  # OpenDP's entropy is the operating system's

        def some(_):
            out = mechanism(counts.tolist() * at_once)
            return np.array(out, dtype=np.int16).reshape(at_once, counts.size)

        with ThreadPoolExecutor(2) as pool:
            return np.concatenate(list(pool.map(some, range(runs // at_once))))

    ours, as_printed, claim = audit(draw)
    assert 0.0 < ours <= claim < as_printed


# --- what it is good for --------------------------------------------------------------------------


@pytest.mark.slow
def test_it_is_more_accurate_than_the_baselines():
    """n = 1,000, m = 20: mean errors of 6 runs are .40, 1.4 and 2.3, their SDs .05, .2 and .2."""
    r = irt.simulate(1000, 20, model="1pl", seed=1)
    exact = irt.fit_spectral(r)["item_difficulty"].values

    def error(fit):
        return np.mean([np.abs(fit(k)["item_difficulty"].values - exact).max() for k in range(6)])

    gauss = error(lambda k: irt.fit_private_spectral(r, **BUDGET))
    laplace = error(lambda k: baselines.fit_discrete_laplace(r, epsilon=1.0))
    randomised = error(
        lambda k: baselines.fit_randomised_response(r, complete=True, seed=k, **BUDGET)
    )
    assert gauss < 0.8 < laplace
    assert gauss < 0.8 < randomised


def test_baselines_find_the_estimate_when_epsilon_is_large():
    y = few_items(9, n=2000, b=7)
    exact = irt.fit_spectral(y, regularization=0.0)["item_difficulty"].values
    far = {"epsilon": 1e3, "delta": 1e-4}
    for fit in (
        baselines.fit_discrete_laplace(y, epsilon=9e3),
        baselines.fit_randomised_response(y, complete=False, **far),
    ):
        np.testing.assert_allclose(fit["item_difficulty"], exact, atol=0.02)


@pytest.mark.parametrize("complete", [True, False])
def test_randomised_response_is_unbiased(complete):
    """Pair counts estimated from 200 randomisations of 300 persons, within five standard errors."""
    y = few_items(10, b=4, missing=0.0 if complete else 0.4)
    answers, m = (2 if complete else 3), 4
    keep = 0.6
    other = (1 - keep) / (answers - 1)
    block = irt.from_array(y).read_block(0)
    estimates = []
    for seed in range(200):
        key = baselines.keyed_random.key(seed, "test")
        both, right, wrong = baselines._randomised_counts(block, key, keep, answers)
        raw = both - other * (right[:, None] + wrong) + len(y) * other**2
        estimates.append(raw / (keep - other) ** 2)
    off = ~np.eye(m, dtype=bool)
    mean, se = np.mean(estimates, 0)[off], np.std(estimates, 0)[off] / math.sqrt(200)
    truth = ((y == 1).T.astype(int) @ (y == 0))[off]
    assert (np.abs(mean - truth) < 5 * se).all()


def test_shuffling_amplifies():
    a = baselines.amplified
    n, delta = 10**6, 1e-6
    e = math.exp(1.0)
    by_hand = math.log(
        1 + (e - 1) / (e + 1) * (8 * math.sqrt(e * math.log(4e6)) / 1e3 + 8 * e / 1e6)
    )
    assert a(1.0, delta, n) == pytest.approx(by_hand, rel=1e-12)
    for epsilon in (0.01, 0.1, 1.0, 12.0):
        local = baselines.local_budget(epsilon, delta, n)
        assert local >= epsilon
        assert a(local, delta, n) <= epsilon
    assert baselines.local_budget(1.0, delta, 10) == 1.0  # too few to amplify


# --- nothing else gets out ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        BUDGET,
        {"rho": 0.5, "max_items_per_person": 3},
        {"rho": 1e-4, "adjacency": "add-remove", "pairs": "random", "p0": 0.8, "seed": 3},
    ],
)
def test_any_data_of_the_same_sizes_give_the_same_fields(options):
    """Also data for which the spectral fit stops: nobody right, nothing observed, no links."""
    n, m = 60, 6
    halves = np.full((n, m), -1)
    halves[:30, :3], halves[30:, 3:] = 1, 0
    found = []
    for y in (rasch(11, n, m, 0.3), np.ones((n, m)), np.zeros((n, m)), np.full((n, m), -1), halves):
        fit = irt.fit_private_spectral(np.asarray(y, dtype=np.int8), **options)
        assert np.isfinite(fit["item_difficulty"]).all()
        found.append((dict(fit.attrs), dict(fit.sizes), sorted(fit.variables)))
    assert all(f == found[0] for f in found)
    assert set(found[0][0]) <= {
        "method", "model", "rho", "sigma", "sensitivity", "epsilon", "delta", "adjacency", "ledger",
        "n_items", "max_items_per_person", "pairs", "p0", "n_pairs", "n_persons", "version",
        "identification",
    }  # fmt: skip
    assert found[0][2] == ["item_difficulty", "item_id"]


def test_noise_is_new_each_time():
    y = few_items(12)
    a, b = (irt.fit_private_spectral(y, rho=0.01, seed=0) for _ in range(2))
    assert (a["item_difficulty"].values != b["item_difficulty"].values).any()


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "either epsilon and delta, or rho; neither"),
        ({"epsilon": 1.0}, "needs a delta"),
        ({"epsilon": 1.0, "delta": 1e-4, "rho": 0.1}, "either epsilon and delta, or rho; both"),
        ({"delta": 1e-4}, "neither"),
        ({"epsilon": 0.0, "delta": 1e-4}, "epsilon=0.0 must be above 0 and below 10000"),
        ({"epsilon": -1, "delta": 1e-4}, "epsilon=-1 must be above 0 and below 10000"),
        ({"epsilon": math.nan, "delta": 1e-4}, "epsilon=nan must be above 0 and below 10000"),
        ({"epsilon": math.inf, "delta": 1e-4}, "epsilon=inf must be above 0 and below 10000"),
        ({"epsilon": "1", "delta": 1e-4}, "epsilon='1' must be a number"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta=0.0 must be above 0 and below 1"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta=1.0 must be above 0 and below 1"),
        ({"rho": 0.0}, "rho=0.0 must be above 0 and below 10000"),
        ({"rho": 1e-300}, "a scale outside 1e-15 to 1e\\+15"),
        ({"epsilon": 1e4, "delta": 0.5}, "epsilon=10000.0 must be above 0 and below 10000"),
        ({"rho": 0.1, "adjacency": "user"}, "adjacency='user'"),
        ({"rho": 0.1, "pairs": "some"}, "pairs='some'"),
        ({"rho": 0.1, "p0": 0.5}, "p0=0.5 is the share"),
        ({"rho": 0.1, "pairs": "random", "p0": 0.0}, "p0=0.0"),
        ({"rho": 0.1, "pairs": "random", "p0": 1.5}, "p0=1.5"),
        ({"rho": 0.1, "pairs": "random", "p0": 0.05}, "groups that no pair connects"),
        ({"rho": 0.1, "max_items_per_person": 1}, "at least 2"),
        ({"rho": 0.1, "max_items_per_person": 2.5}, "whole number"),
        ({"rho": 0.1, "seed": 1.5}, "seed=1.5"),
    ],
)
def test_refusals_are_the_same_for_all_data(options, message, monkeypatch):
    def read(*_):
        raise AssertionError("the data were read")

    monkeypatch.setattr(private, "exact_counts", read)
    texts = set()
    for y in (few_items(13), np.ones((300, 6), dtype=np.int8)):
        with pytest.raises(InputError, match=message) as caught:
            irt.fit_private_spectral(y, **options)
        texts.add(str(caught.value))
    assert len(texts) == 1


def test_refusals_by_size():
    y = few_items(14)
    with pytest.raises(InputError, match="does not support person weights"):
        irt.fit_private_spectral(irt.from_array(y, persons={"weight": np.ones(300)}), rho=0.1)
    with pytest.raises(InputError, match="2 to 2000 items"):
        irt.fit_private_spectral(y[:, :1], rho=0.1)
    with pytest.raises(InputError, match="2 to 2000 items"):
        irt.fit_private_spectral(np.ones((2, 2001), dtype=np.int8), rho=0.1)
    with pytest.raises(InputError, match=r"pairs of items.*pairs='random' with a p0 below 0.82"):
        irt.fit_private_spectral(np.ones((2, 1100), dtype=np.int8), rho=0.1)


def test_epsilon_of_a_total_is_what_opendp_says_of_a_mechanism():
    sigma, spent = calibrate(math.sqrt(50), check_budget(2.0, 1e-6, None))
    assert epsilon_of(spent["rho"], 1e-6) == pytest.approx(2.0, rel=1e-9)
    assert sigma > 0
