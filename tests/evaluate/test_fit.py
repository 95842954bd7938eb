"""Fit of items and persons, Q3, information: brute force, distributions, layouts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from items import bank, probability, respond
from parts import csr_of
from scipy.optimize import minimize_scalar
from scipy.stats import chi2

import irt_dask as irt
from irt_dask.errors import EstimationError, InputError
from irt_dask.evaluate import residual_correlations
from irt_dask.evaluate.score_chi2 import pooled
from irt_dask.kernels.misfit import sum_scores

GRID = np.linspace(-9, 9, 721)


def simulated_items(rng, n, m, *, c=0.0, mean=0.0, sd=1.0, missing=0.0):
    a, b = np.exp(rng.normal(0, 0.3, m)), rng.normal(size=m)
    return a, b, respond(rng, rng.normal(mean, sd, n), a, -a * b, c, missing)


def left_out(y, a, b, c, mean=0.0, sd=1.0):
    """P(right) of each response from the person's others, by leaving it out; and all weights."""
    p = probability(GRID, a, -a * b, c)
    prior = np.exp(-0.5 * ((GRID - mean) / sd) ** 2)
    out, weights = np.full(y.shape, np.nan), []
    for i, row in enumerate(y):
        like = np.where(row == 1, p, np.where(row == 0, 1 - p, 1.0))
        weights.append(prior * like.prod(axis=1))
        for j in np.flatnonzero(row >= 0):
            w = prior * np.delete(like, j, axis=1).prod(axis=1)
            out[i, j] = w @ p[:, j] / w.sum()
    weights = np.array(weights)
    return out, weights / weights.sum(axis=1, keepdims=True)


# --- items ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("guessing", [0.0, 0.2])
def test_mean_squares_by_brute_force(guessing):
    rng = np.random.default_rng(1)
    a, b, y = simulated_items(rng, 80, 6, c=guessing, missing=0.2)
    c = np.full(6, guessing)
    p, _ = left_out(y, a, b, c, 0.2, 1.1)
    got = irt.item_fit(y, bank(a, b, c), ability=(0.2, 1.1))
    seen = y >= 0
    v, square = np.where(seen, p * (1 - p), 0), np.where(seen, (y - p) ** 2, 0)
    np.testing.assert_allclose(got["item_infit"], square.sum(0) / v.sum(0), rtol=1e-6)
    outfit = np.nanmean(np.where(seen, (y - p) ** 2 / (p * (1 - p)), np.nan), axis=0)
    np.testing.assert_allclose(got["item_outfit"], outfit, rtol=1e-6)
    # the variance of (y - p)^2 of a Bernoulli, from its two values
    spread = np.where(seen, p * (1 - p) ** 4 + (1 - p) * p**4 - (p * (1 - p)) ** 2, 0).sum(0)
    z = (square - v).sum(0) / np.sqrt(spread)
    np.testing.assert_allclose(got["item_infit_z"], z, rtol=1e-5)
    wide = np.where(seen, (1 - p) ** 2 / p + p**2 / (1 - p) - 1, 0).sum(0)
    z = seen.sum(0) * (outfit - 1) / np.sqrt(wide)
    np.testing.assert_allclose(got["item_outfit_z"], z, rtol=1e-5)
    np.testing.assert_array_equal(got["item_n_responses"], seen.sum(0))
    assert got.attrs["s_x2"].startswith("not computed: ")


def test_distribution_of_ability_is_estimated():
    rng = np.random.default_rng(2)
    a, b, y = simulated_items(rng, 4000, 12, mean=0.7, sd=1.5)
    got = irt.item_fit(y, bank(a, b))
    assert got.attrs["ability_mean"] == pytest.approx(0.7, abs=0.1)
    assert got.attrs["ability_sd"] == pytest.approx(1.5, abs=0.1)
    said = irt.evaluate(y[:1], bank(a, b), validation=y).attrs
    assert got.attrs["ability_mean"] == pytest.approx(said["ability_mean"], abs=1e-4)
    assert got.attrs["ability_sd"] == pytest.approx(said["ability_sd"], abs=1e-4)
    assert np.abs(got["item_infit_z"]).max() < 4.5
    # N(0, 1) would be wrong, and it shows
    wrong = irt.item_fit(y, bank(a, b), ability=(0, 1))
    assert wrong["item_chi2_p_value"].min() < 1e-6


def test_expected_right_by_all_patterns():
    rng = np.random.default_rng(3)
    a, b = np.exp(rng.normal(size=5)), 2 * rng.normal(size=5)
    c = np.array([0.0, 0.2, 0.0, 0.4, 0.1])
    p = probability(GRID, a, -a * b, c)
    w = np.exp(-0.5 * GRID**2)
    right, total = np.zeros((5, 6)), np.zeros(6)
    for pattern in itertools.product((0, 1), repeat=5):
        prob = w @ np.where(pattern, p, 1 - p).prod(axis=1)
        total[sum(pattern)] += prob
        right[:, sum(pattern)] += prob * np.array(pattern)
    got = sum_scores.expected_right(np.ascontiguousarray(p.T), w)
    np.testing.assert_allclose(got, right / total, atol=1e-9)


def test_leaving_an_item_out_is_stable():
    """300 items, some of them all but sure: against the distribution built without the item."""
    rng = np.random.default_rng(4)
    p = 1 / (1 + np.exp(-4 * rng.normal(size=(300, 3))))
    f = sum_scores.number_right(p)
    np.testing.assert_allclose(f.sum(axis=0), 1.0)
    for j in (0, int(p[:, 0].argmax()), int(p[:, 0].argmin())):
        want = sum_scores.number_right(np.delete(p, j, axis=0))
        np.testing.assert_allclose(sum_scores.without(f, p[j]), want, atol=1e-12)


@pytest.mark.parametrize("guessing", [0.0, 0.2])
def test_s_x2_by_hand(guessing):
    rng = np.random.default_rng(5)
    a, b, y = simulated_items(rng, 900, 5, c=guessing)
    c = np.full(5, guessing)
    got = irt.item_fit(y, bank(a, b, c), ability=(0, 1))
    assert got.attrs["s_x2"] == "computed"
    p = np.ascontiguousarray(probability(GRID, a, -a * b, c).T)
    e = sum_scores.expected_right(p, np.exp(-0.5 * GRID**2))
    score = y.sum(axis=1)
    for j in range(5):
        value = 0.0
        for s in range(1, 5):  # every cell has enough persons here
            n = (score == s).sum()
            observed = y[score == s, j].mean()
            value += n * (observed - e[j, s]) ** 2 / (e[j, s] * (1 - e[j, s]))
        assert got["item_sx2"].values[j] == pytest.approx(value, rel=1e-5)
    df = 4 - (3 if guessing else 2)
    np.testing.assert_array_equal(got["item_sx2_df"], df)
    np.testing.assert_allclose(got["item_sx2_p_value"], chi2.sf(got["item_sx2"], df))
    free = irt.item_fit(y, bank(a, b, c), ability=(0, 1), fitted=False)
    np.testing.assert_array_equal(free["item_sx2_df"], 4)


def test_cells_are_pooled():
    enough = np.array([[0.5, 9], [0.6, 9], [3, 0.2], [3, 0.9], [0.1, 9]])
    assert pooled(enough, np.ones(2)).tolist() == [0, 2]
    assert pooled(enough, np.full(2, 100.0)).tolist() == [0]


def test_a_misfitting_item_is_found():
    """Item 0 is answered at random, item 1 is steeper than the bank says."""
    rng = np.random.default_rng(6)
    a, b, y = simulated_items(rng, 2000, 15)
    y[:, 0] = rng.integers(0, 2, 2000)
    steep = a.copy()
    steep[1] = 0.4 * a[1]
    got = irt.item_fit(y, bank(steep, b))
    assert got["item_infit"].values[0] > 1.05
    assert got["item_infit_z"].values[0] > 5
    assert got["item_infit"].values[1] < 0.97
    assert got["item_infit_z"].values[1] < -4
    for name in ("chi2", "sx2"):
        assert (got[f"item_{name}_p_value"].values[:2] < 1e-6).all()


@pytest.mark.slow
def test_distributions_under_the_model():
    """Known items, 3,000 of them in 150 data sets: z has mean 0 and SD 1, tests have 5%.

    Limits are 4 standard errors: a false alarm in 1 of 2,000 runs.
    """
    rng = np.random.default_rng(7)
    z, low = [], []
    for _ in range(150):
        a, b, y = simulated_items(rng, 1000, 20)
        got = irt.item_fit(y, bank(a, b), ability=(0, 1), fitted=False)
        z.append([got["item_infit_z"].values, got["item_outfit_z"].values])
        low.append([got[f"item_{k}_p_value"].values < 0.05 for k in ("chi2", "sx2")])
    z, low = np.array(z), np.mean(low, axis=(0, 2))
    print(z.mean(axis=(0, 2)), z.std(axis=(0, 2)), low)
    assert np.abs(z.mean(axis=(0, 2))).max() < 4 / math.sqrt(3000)
    assert np.abs(z.std(axis=(0, 2)) - 1).max() < 4 / math.sqrt(6000) + 0.02
    assert np.abs(low - 0.05).max() < 4 * math.sqrt(0.05 * 0.95 / 3000)


@pytest.mark.slow
def test_chi_squares_of_fitted_items():
    """2,000 items estimated from the persons at hand: 5%, limits of 4 standard errors."""
    rng = np.random.default_rng(1)
    low, z = [], []
    for _ in range(100):
        _, _, y = simulated_items(rng, 1000, 20)
        got = irt.item_fit(y, irt.fit_marginal(y, progress=False))
        low.append([got[f"item_{k}_p_value"].values < 0.05 for k in ("chi2", "sx2")])
        z.append(got["item_infit_z"].values)
    share = np.mean(low, axis=(0, 2))
    assert np.abs(share - 0.05).max() < 4 * math.sqrt(0.05 * 0.95 / 2000), share
    assert np.std(z) < 0.3  # the slopes take it up, as the docstring says


# --- persons --------------------------------------------------------------------------------------


def lz_star(row, a, b, c):
    """Snijders (2001) with numerical derivatives; the MAP by scipy."""
    seen = row >= 0
    row, a, b, c = row[seen], a[seen], b[seen], c[seen]

    def p(t):
        return probability(t, a, -a * b, c)

    def minus(t):
        return 0.5 * t**2 - np.log(np.where(row == 1, p(t), 1 - p(t))).sum()

    t = minimize_scalar(minus, bounds=(-7, 7), method="bounded", options={"xatol": 1e-9}).x
    slope = (p(t + 1e-5) - p(t - 1e-5)) / 2e-5
    q, w = p(t) * (1 - p(t)), np.log(p(t) / (1 - p(t)))
    r = slope / q
    w = w - (slope @ w) / (slope @ r) * r
    return ((row - p(t)) @ w) / np.sqrt(w**2 @ q)


@pytest.mark.parametrize("guessing", [0.0, 0.25])
def test_persons_by_brute_force(guessing):
    rng = np.random.default_rng(8)
    a, b, y = simulated_items(rng, 60, 8, c=guessing, missing=0.2)
    y[0], y[1], y[2] = -1, 1, 0
    c = np.full(8, guessing)
    p, _ = left_out(y, a, b, c)
    got = irt.person_fit(y, bank(a, b, c), ability=(0, 1))
    assert np.isnan([got[f"person_{k}"].values[0] for k in ("infit", "outfit", "lz")]).all()
    for i in range(1, 60):
        s = y[i] >= 0
        if not s.any():
            continue
        e, v = (y[i, s] - p[i, s]) ** 2, p[i, s] * (1 - p[i, s])
        assert got["person_infit"].values[i] == pytest.approx(e.sum() / v.sum(), rel=1e-6)
        assert got["person_outfit"].values[i] == pytest.approx((e / v).mean(), rel=1e-6)
        if s.sum() > 2:
            want = lz_star(y[i], a, b, c)
            assert got["person_lz"].values[i] == pytest.approx(want, rel=1e-4, abs=1e-4)


def test_careless_persons_are_found():
    rng = np.random.default_rng(9)
    a, b, y = simulated_items(rng, 3000, 60)
    y[:300] = rng.integers(0, 2, (300, 60))
    got = irt.person_fit(y, bank(a, b), ability=(0, 1))
    lz = got["person_lz"].values
    assert (lz[:300] < -1.645).mean() > 0.75
    assert 0.035 < (lz[300:] < -1.645).mean() < 0.075
    assert lz[300:].std() == pytest.approx(1.0, abs=0.06)
    assert got["person_outfit"].values[300:].mean() == pytest.approx(1.0, abs=0.03)
    assert got.attrs["share_below_5"] == pytest.approx((lz < -1.6448536).mean())
    assert got.attrs["n_lz"] == 3000
    edges = np.array([-np.inf, *np.arange(-4.875, 5.0, 0.25), np.inf])
    np.testing.assert_array_equal(got["lz_count"], np.histogram(lz, edges)[0])
    assert got["lz_count"].values[0] > 0  # and the careless ones are far out


def test_persons_to_files(tmp_path):
    rng = np.random.default_rng(10)
    a, b, y = simulated_items(rng, 100, 7, missing=0.1)
    want = irt.person_fit(y, bank(a, b))
    r = irt.from_array(y, rows_per_block=33)
    got = irt.person_fit(r, bank(a, b), store=tmp_path / "fit")
    table = pq.read_table(tmp_path / "fit").to_pandas()
    for name in ("person_infit", "person_outfit", "person_lz"):
        np.testing.assert_array_equal(table[name], want[name])
    np.testing.assert_array_equal(table["n_responses"], (y >= 0).sum(axis=1))
    assert got.attrs["n_lz"] == want.attrs["n_lz"] == got["lz_count"].sum()
    assert got["lz_count"].identical(want["lz_count"])
    assert "person_lz" not in got
    with pytest.raises(InputError, match="holds finished scores"):
        irt.person_fit(r, bank(a, b), store=tmp_path / "fit")


def test_equal_items_have_no_lz():
    y = np.random.default_rng(0).integers(0, 2, (50, 6))
    got = irt.person_fit(y, bank(np.ones(6), np.zeros(6)), ability=(0, 1))
    assert np.isnan(got["person_lz"]).all()


# --- pairs of items -------------------------------------------------------------------------------


def q3_by_hand(y, a, b, c):
    _, w = left_out(y, a, b, c)
    r = np.where(y >= 0, y - probability(w @ GRID, a, -a * b, c), np.nan)
    m, out = y.shape[1], {}
    for i, j in itertools.combinations(range(m), 2):
        both = ~np.isnan(r[:, i] + r[:, j])
        out[i, j] = np.corrcoef(r[both, i], r[both, j])[0, 1], both.sum()
    return out


@pytest.mark.parametrize("guessing", [0.0, 0.2])
@pytest.mark.parametrize("tile", [1024, 3])
def test_q3_by_hand(tile, guessing, monkeypatch):
    monkeypatch.setattr(residual_correlations, "TILE", tile)
    rng = np.random.default_rng(11)
    a, b, y = simulated_items(rng, 120, 7, c=guessing, missing=0.2)
    c = np.full(7, guessing)
    want = q3_by_hand(y, a, b, c)
    got = irt.residual_correlations(y, bank(a, b, c), largest=21, ability=(0, 1))
    assert got.sizes["pairs"] == 21
    order = sorted(want, key=lambda k: -abs(want[k][0]))
    for k, (i, j) in enumerate(order):
        assert (got["pair_first"].values[k], got["pair_second"].values[k]) == (str(i), str(j))
        assert got["pair_q3"].values[k] == pytest.approx(want[i, j][0], abs=1e-5)
        assert got["pair_n_persons"].values[k] == want[i, j][1]
    mean = np.mean([v[0] for v in want.values()])
    assert got.attrs["mean_q3"] == pytest.approx(mean, abs=1e-5)
    np.testing.assert_allclose(got["pair_q3_adjusted"], got["pair_q3"] - got.attrs["mean_q3"])
    few = irt.residual_correlations(y, bank(a, b, c), largest=4, ability=(0, 1))
    np.testing.assert_array_equal(few["pair_q3"], got["pair_q3"][:4])


def test_dependent_items_are_the_first_pair():
    rng = np.random.default_rng(12)
    a, b, y = simulated_items(rng, 2000, 10)
    y[:, 7] = np.where(rng.random(2000) < 0.5, y[:, 2], y[:, 7])
    got = irt.residual_correlations(y, bank(a, b))
    assert got["pair_first"].values[0] == "2"
    assert got["pair_second"].values[0] == "7"
    assert got["pair_q3_adjusted"].values[0] > 0.2
    assert got.sizes["pairs"] == 45


# --- what holds for all ---------------------------------------------------------------------------

CALLS = (irt.item_fit, irt.person_fit, irt.residual_correlations)


@pytest.mark.parametrize("call", CALLS)
def test_blocks_and_layouts_do_not_matter(call, bits):
    rng = np.random.default_rng(13)
    a, b, y = simulated_items(rng, 150, 9, missing=0.4)
    y[:5] = 1
    items = bank(a, b, np.linspace(0, 0.3, 9))
    want = bits(call(y, items))
    for rows in (1, 17, 100):
        assert bits(call(irt.from_array(y, rows_per_block=rows), items)) == want
    r = irt.from_array(csr_of(y), observed="stored", rows_per_block=40)
    assert r.layout == "csr"
    assert bits(call(r, items)) == want


@pytest.mark.parametrize("call", CALLS)
def test_refusals(call):
    items = bank([1.0, 1.0], [0.0, 0.5])
    weighted = irt.from_array(np.ones((3, 2)), persons={"weight": [1, 2, 3]})
    with pytest.raises(InputError, match="does not support person weights"):
        call(weighted, items)
    with pytest.raises(InputError, match=r"not in items: 2"):
        call(np.ones((3, 3)), items)
    with pytest.raises(EstimationError):
        call(np.full((3, 2), -1), items)
    for wrong in ((0, 0), 3, (0, math.nan), "ab"):
        with pytest.raises(InputError, match=r"must be \(mean, sd\)"):
            call(np.ones((3, 2)), items, ability=wrong)


# --- information ----------------------------------------------------------------------------------


def test_information():
    rng = np.random.default_rng(15)
    a, b, c = np.exp(rng.normal(size=6)), rng.normal(size=6), np.array([0, 0, 0.1, 0.2, 0.3, 0.4])
    x = np.array([-3.0, 0.0, 0.7, 4.0])
    got = irt.information(bank(a, b, c), x)
    p = probability(x, a, -a * b, c)
    slope = (probability(x + 1e-6, a, -a * b, c) - probability(x - 1e-6, a, -a * b, c)) / 2e-6
    want = (slope**2 / (p * (1 - p))).T
    np.testing.assert_allclose(got["item_information"], want, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(got["test_information"], want.sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(got["ability_se"], 1 / np.sqrt(want.sum(axis=0)), rtol=1e-5)
    assert irt.information(bank(a, b)).sizes["ability"] == 81
    far = irt.information(bank(a, b, c), [-1e5, 1e5])
    np.testing.assert_array_equal(far["item_information"], 0.0)
    assert np.isinf(far["ability_se"]).all()
    with pytest.raises(InputError, match="finite numbers"):
        irt.information(bank(a, b), [0.0, math.inf])


def test_marginal_reliability():
    """40 equal items of a = 1 at 0: mean of I / (I + 1), near the share that EAPs explain."""
    w = np.exp(-0.5 * GRID**2)
    p = 1 / (1 + np.exp(-GRID))
    total = 40 * p * (1 - p)
    want = w @ (total / (1 + total)) / w.sum()
    items = bank(np.ones(40), np.zeros(40))
    got = irt.information(items).attrs["marginal_reliability"]
    assert got == pytest.approx(want, abs=1e-6)
    theta = np.random.default_rng(1).normal(size=(20000, 1))
    y = (np.random.default_rng(2).random((20000, 40)) < 1 / (1 + np.exp(-theta))).astype(int)
    assert irt.score(y, items).attrs["reliability"] == pytest.approx(got, abs=0.03)
