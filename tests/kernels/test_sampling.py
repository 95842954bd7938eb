"""Scores against brute force; draws with the stated probabilities, however the stream is cut."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from irt_dask.calibrate.joint.person_step import AXIS, N_NODES
from irt_dask.kernels.base import fixed_point, keyed_random
from irt_dask.kernels.coresets import label_sensitivities, sensitivities, weighted_draws
from irt_dask.kernels.joint import ability_axis
from irt_dask.kernels.responses import layouts

BOUND = 6.0


def abilities(n=3000, seed=0):
    return np.clip(np.random.default_rng(seed).normal(0.3, 1.2, n), -BOUND, BOUND)


def count_of(theta):
    scale = fixed_point.scale_for(theta.size)
    return ability_axis.persons(theta, np.ones(theta.size), BOUND, N_NODES, scale) / scale


def rows_of(theta):
    return np.stack([np.ones(theta.size), theta], axis=1)


def gram_norm(x, weight):
    """Square root of x' (X' diag(weight) X)^{-1} x, directly."""
    return np.sqrt(np.einsum("ia,ab,ib->i", x, np.linalg.inv((x.T * weight) @ x), x))


def lewis(x):
    w = np.ones(len(x))
    for _ in range(100):
        w = gram_norm(x, 1 / w)
    return w


# --- scores ---------------------------------------------------------------------------------------


def brute(method, theta):
    x, share = rows_of(theta), 1 / theta.size
    if method == "root-leverage":
        return np.sqrt((np.linalg.qr(x)[0] ** 2).sum(axis=1)) + share
    w = lewis(x)
    if method == "lewis":
        return w + share
    # rows of X R^{-1}, R from the QR decomposition of the reweighted rows
    r = np.linalg.qr(x / np.sqrt(w)[:, None])[1]
    return np.abs(x @ np.linalg.inv(r)).sum(axis=1) + share


@pytest.mark.parametrize("method", ["root-leverage", "lewis", "leverage-l1"])
def test_scores_are_those_of_all_rows(method):
    theta = abilities()
    table = sensitivities.score_table(method, AXIS, count_of(theta), 100)
    assert table.shape == (N_NODES,)
    got = sensitivities.interpolate(table, theta, BOUND)
    # l1 leverage has a kink, which a table rounds off
    rtol = 2e-3 if method == "leverage-l1" else 1e-4
    np.testing.assert_allclose(got, brute(method, theta), rtol=rtol)
    # without an axis: the same to rounding
    centred = rows_of(theta - theta.mean())
    direct = sensitivities.row_scores(method, centred, np.ones(theta.size))
    np.testing.assert_allclose(direct, brute(method, theta), rtol=1e-8)


def test_l1_scores_bound_the_exact_l1_sensitivities():
    """``sup_eta |x_i eta| / |X eta|_1`` is attained where some ``x_k eta = 0``."""
    theta = abilities(200, seed=1)
    gap = np.abs(theta[:, None] - theta)
    exact_scores = (gap / gap.sum(axis=0)).max(axis=1)
    for method, factor in (("lewis", 1.0), ("leverage-l1", np.sqrt(2))):
        score = sensitivities.row_scores(method, rows_of(theta), np.ones(200)) - 1 / 200
        assert (score >= exact_scores * (1 - 1e-9)).all()
        assert score.sum() <= 2 * factor * (1 + 1e-8)


def test_lewis_weights_of_a_large_sample_converge():
    w = sensitivities.score_table("lewis", AXIS, 1e6 * np.exp(-(AXIS**2)), 10)
    assert np.isfinite(w).all()
    assert (w > 0).all()


def test_kmeans_table():
    """Three tight groups and few persons far away: centres are the best ones of all."""
    count = np.zeros(N_NODES)
    count[[100, 101, 240, 241, 380]] = 50, 50, 70, 30, 100
    got = sensitivities._centres(AXIS, count, 3)
    want = [AXIS[100:102].mean(), AXIS[[240, 241]] @ [0.7, 0.3], AXIS[380]]
    np.testing.assert_allclose(got, want, atol=1e-12)
    rng = np.random.default_rng(0)
    count = np.zeros(N_NODES)
    at = np.sort(rng.choice(N_NODES, 9, replace=False))
    count[at] = rng.integers(1, 9, 9)
    best = min(
        sum(
            count[g] @ (AXIS[g] - AXIS[g] @ count[g] / count[g].sum()) ** 2
            for g in (at[:i], at[i:j], at[j:])
        )
        for i in range(1, 8)
        for j in range(i + 1, 9)
    )
    centres = sensitivities._centres(AXIS, count, 3)
    distance = ((AXIS[:, None] - centres) ** 2).min(axis=1)
    assert count @ distance == pytest.approx(best, rel=1e-9)
    table = sensitivities.score_table("kmeans", AXIS, count, 3)
    np.testing.assert_allclose(table, 0.5 / count.sum() + 0.5 * distance / best, rtol=1e-9)
    assert count @ table == pytest.approx(1.0)


@pytest.mark.parametrize("method", sensitivities.METHODS)
@pytest.mark.parametrize("theta", [np.full(5, 0.5), np.full(1, -6.0), np.array([6.0, -6.0, 6.0])])
def test_scores_of_few_or_equal_persons_are_positive(method, theta):
    table = sensitivities.score_table(method, AXIS, count_of(theta), 4)
    assert np.isfinite(table).all()
    assert (table > 0).all()
    assert len(set(sensitivities.interpolate(table, theta, BOUND).round(9))) <= 2


@pytest.mark.parametrize("method", sensitivities.METHODS)
def test_person_scores_sum_to_the_histogram_times_the_table(method):
    theta = abilities()
    theta[::7] = np.nan
    count = count_of(theta)
    assert count.sum() == np.count_nonzero(~np.isnan(theta))
    table = sensitivities.score_table(method, AXIS, count, 10)
    scale = fixed_point.scale_for(2 * float(count @ table))
    score = sensitivities.positive(sensitivities.interpolate(table, theta, BOUND), scale)
    assert score.dtype == np.int64
    np.testing.assert_array_equal(score == 0, np.isnan(theta))
    assert int(score.sum()) / scale == pytest.approx(count @ table, rel=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
def test_label_scores(sparse):
    rng = np.random.default_rng(3)
    y = rng.integers(-1, 2, (40, 5)).astype(np.int8)
    y[0] = -1
    theta = np.where((y >= 0).any(axis=1), rng.normal(size=40), np.nan)
    wrong, right = ((y == v).sum(axis=0).astype(float) for v in (0, 1))
    guess = np.array([0.2, 0.25, 0.0, 0.0005, 0.1])
    length, mu = np.sqrt((1 + theta**2) / 39), 3.0
    want = np.full(40, np.nan)
    for i in range(1, 40):
        each = []
        for j in range(5):
            if y[i, j] == 0:
                each.append(42.5 * mu**2 * (length[i] + 1 / wrong[j]))
            elif y[i, j] == 1 and guess[j] < 0.001:  # nobody guesses: the lemma of wrong answers
                each.append(42.5 * mu**2 * (length[i] + 1 / right[j]))
            elif y[i, j] == 1:
                each.append(3.5 * np.log(1 / 0.1) * (1 + mu) / right[j])
        if each:
            want[i] = max(each)
    data = layouts.Dense(y)
    terms = label_sensitivities.label_terms(wrong, right, guess, mu)
    got = label_sensitivities.label_scores(
        layouts.to_sparse(data) if sparse else data, length, terms
    )
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_bounds_of_the_lemmas_hold_where_wrong_answers_are_spread():
    """Losses against the bounds, at random items, with the mu that wrong answers have there."""
    rng = np.random.default_rng(4)
    n, c = 400, 0.2
    theta = rng.normal(size=n)
    y = rng.random(n) < c + (1 - c) / (1 + np.exp(-theta))
    x = np.where(y, -1.0, 1.0)[:, None] * rows_of(theta)
    length = gram_norm(x, np.ones(n))
    wrong, right = (~y).sum(), y.sum()
    worst = 0.0
    for _ in range(2000):
        z = x @ rng.normal(0, 2, 2)
        mu = 1.0
        for part in (z[~y], z[y]):
            for p in (0, 1):
                above = (np.abs(part[part >= 0]) ** p).sum()
                below = (np.abs(part[part < 0]) ** p).sum()
                mu = max(mu, above / below, below / above) if above and below else np.inf
        if not mu < 50:
            continue
        loss = np.where(
            y, -np.log(c + (1 - c) / (1 + np.exp(z))), np.logaddexp(0, z) - np.log1p(-c)
        )
        terms = label_sensitivities.label_terms(
            *np.array([[wrong], [right]], float), np.array([c]), mu
        )
        label = y.astype(int)
        bound = terms.slope[label, 0] * length + terms.base[label, 0]
        worst = max(worst, (loss / loss.sum() / bound).max())
    assert 0 < worst < 1


# --- draws ----------------------------------------------------------------------------------------


def probabilities(score, size):
    """``min(1, k p)``, those that are over certain and the rest shared out again."""
    pi = np.zeros(score.size)
    over = np.zeros(score.size, dtype=bool)
    while True:
        pi = np.where(over, 1.0, (size - over.sum()) * score / score[~over].sum())
        if not (pi > 1 + 1e-12).any():
            return pi
        over |= pi > 1 + 1e-12


def reservoir(score, size, seed):
    uniforms = keyed_random.uniforms(keyed_random.key(seed, "u"), 0, score.size, 2)
    offset = int(keyed_random.generator(seed, "o").integers(0, 1 << 52))
    return weighted_draws.reservoir(score, size, offset, uniforms)


SCORES = {
    "none over": np.random.default_rng(0).integers(500, 1500, 40),
    "late large": np.concatenate([np.full(30, 100), [800, 700, 150, 150, 90, 120]]),
    "over": np.array([5, 9000, 40, 30, 20, 3000, 10, 25, 35, 45, 15, 20, 30, 60, 2500]),
    "barely over": np.array([10] * 12 + [31] + [10] * 5),
}


def score_of(name):
    return SCORES[name].astype(np.int64) << 20


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORES)
def test_reservoir_inclusion_frequencies(name):
    """z of each row's frequency in 2000 draws, at most 40 rows: false alarm 40 x 6e-5 for each."""
    score, size, n_draws = score_of(name), 7, 2000
    pi = probabilities(score, size)
    assert pi.sum() == pytest.approx(size)
    counts, total = np.zeros(score.size), np.zeros(n_draws)
    values = np.random.default_rng(1).normal(1, 1, score.size)
    for k in range(n_draws):
        rows, weight = reservoir(score, size, k)
        assert rows.size == size
        assert (np.diff(rows) > 0).all()
        np.testing.assert_allclose(weight, 1 / pi[rows], rtol=1e-12)
        counts[rows] += 1
        total[k] = weight @ values[rows]
    certain = pi == 1
    assert (counts[certain] == n_draws).all()
    z = (counts - n_draws * pi) / np.sqrt(n_draws * pi * (1 - pi) + certain)
    assert np.abs(z).max() < 4
    # equal probabilities would be seen
    assert np.abs(counts - n_draws * size / score.size).max() > 10 * np.sqrt(n_draws) / 4
    # unbiased: false alarm 6e-5
    gap = total.mean() - values.sum()
    assert abs(gap) < 4 * total.std(ddof=1) / np.sqrt(n_draws)


def test_replacement_frequencies_and_sums():
    """Chi-square, false alarm 1e-4; z of a weighted sum, 6e-5."""
    score, size, n_draws = score_of("over"), 50, 400
    total, counts = int(score.sum()), np.zeros(score.size)
    values = np.random.default_rng(1).normal(1, 1, score.size)
    sums = []
    for k in range(n_draws):
        targets = weighted_draws.targets(keyed_random.generator(k, "t"), total, size)
        rows, times = weighted_draws.drawn(score, targets)
        counts[rows] += times
        sums.append(weighted_draws.drawn_weight(score[rows], times, total, size) @ values[rows])
    assert counts.sum() == size * n_draws
    assert stats.chisquare(counts, size * n_draws * score / total).pvalue > 1e-4
    gap = np.mean(sums) - values.sum()
    assert abs(gap) < 4 * np.std(sums, ddof=1) / np.sqrt(n_draws)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 2000), min_size=1, max_size=80),
    st.lists(st.integers(0, 80), max_size=6),
    st.integers(1, 30),
    st.integers(0, 1000),
)
def test_a_stream_may_be_cut_anywhere(scores, cuts, size, seed):
    """Blocks on their own, told only what the driver knows, find the rows of the whole stream."""
    score = np.array(scores, dtype=np.int64)
    want, weight = reservoir(score, size, seed)
    assert want.size == min(size, np.count_nonzero(score))
    assert len(set(want)) == want.size
    if np.count_nonzero(score) <= size:
        assert (weight == 1).all()
        return
    np.testing.assert_allclose(weight, 1 / probabilities(score, size)[want], rtol=1e-9)
    edges = np.unique([0, *(min(c, score.size) for c in cuts), score.size])
    blocks = [score[lo:hi] for lo, hi in itertools.pairwise(edges)]
    whole = weighted_draws.together([weighted_draws.above(b, 1 << 62) for b in blocks])
    bound = weighted_draws.next_bound(whole, size)
    while whole.largest > bound:
        whole = weighted_draws.together([weighted_draws.above(b, bound) for b in blocks])
        bound = weighted_draws.next_bound(whole, size)
    left = [weighted_draws.others(b, bound) for b in blocks]
    totals = np.array([b.sum() for b in left])
    before = np.cumsum(totals) - totals
    slots = size - whole.n
    needed = slots * whole.largest
    b = int(np.searchsorted(np.cumsum(totals), needed))
    start = int(before[b]) + weighted_draws.stretch(left[b], needed - int(before[b]))
    plan = weighted_draws.Reservoir(bound, slots, whole.rest, start)
    offset = int(keyed_random.generator(seed, "o").integers(0, 1 << 52))
    first = weighted_draws.share_out(totals, weighted_draws.first_targets(start, slots, offset))
    holds = np.concatenate([edges[k] + sensitivities.locate(left[k], t) for k, t in first.items()])
    assert holds.size == slots
    for k, part in enumerate(left):
        u = keyed_random.uniforms(keyed_random.key(seed, "u"), int(edges[k]), part.size, 2)
        at, slot = weighted_draws.entering(part, int(before[k]), plan, u)
        holds[slot] = edges[k] + at
    got = np.sort(np.concatenate([np.flatnonzero(score > bound), holds]))
    np.testing.assert_array_equal(got, want)


def test_systematic_targets_are_exact():
    """As fractions, for sums that no double holds."""
    start, size, offset = (1 << 61) + 12345, 7, (1 << 51) + 3
    got = weighted_draws.first_targets(start, size, offset)
    for j, t in enumerate(got):
        want = (j + Fraction(offset, 1 << 52)) * Fraction(start, size)
        assert t <= want < int(t) + 1
