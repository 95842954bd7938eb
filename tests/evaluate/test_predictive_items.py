"""Predictive check of items and blocks: by hand on small data, calibration, planted misfit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from items import intercept_bank, respond
from parts import csr_of
from scipy.stats import binom

import irt_dask as irt
from irt_dask.errors import InputError
from irt_dask.evaluate import predictive_check as of_check
from irt_dask.evaluate import predictive_items, predictive_sums
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.misfit import score_sums
from irt_dask.kernels.responses.layouts import Dense, to_dense, to_sparse

NAMES = ("item_mean_score", "item_rest_correlation", "block_score_variance")


def two(m, seed=1):
    g = np.random.default_rng(seed)
    return g.lognormal(0, 0.3, m), g.normal(0, 1, m)


def answers(n, a, d, seed):
    g = np.random.default_rng(seed)
    return respond(g, g.standard_normal(n), a, d)


# --- by hand --------------------------------------------------------------------------------------


def by_hand(y, labels):
    """The statistics of one data set, from their definitions."""
    mean, correlation, variance = [], [], []
    for j in range(y.shape[1]):
        of = y[y[:, j] >= 0].astype(float)
        x, rest = of[:, j], np.where(of >= 0, of, 0.0).sum(axis=1) - of[:, j]
        mean.append(x.mean() if x.size else np.nan)
        same = x.size == 0 or np.ptp(x) == 0.0 or np.ptp(rest) == 0.0
        correlation.append(np.nan if same else np.corrcoef(x, rest)[0, 1])
    for label in dict.fromkeys(labels):
        own = y[:, np.array(labels) == label]
        score = np.maximum(own, 0).sum(axis=1)[(own >= 0).any(axis=1)]
        variance.append(np.var(score, ddof=1) if score.size > 1 else np.nan)
    return dict(zip(NAMES, map(np.array, (mean, correlation, variance)), strict=True))


def replicates_of(r, bank, n, seed):
    """The data sets that the check simulates."""
    drawn, _ = of_check._drawn(r, bank, n)
    block = r.read_block(0)
    keys = [keyed_random.key(seed, "predictive", k) for k in range(n)]
    each = zip(drawn, keys, strict=True)
    return [to_dense(predictive_sums.replicate(block, its, key)).values for its, key in each]


def p_by_hand(observed, others):
    others = others[~np.isnan(others)]
    if np.isnan(observed) or others.size == 0:
        return np.nan
    low, high = (others <= observed + 1e-9).sum(), (others >= observed - 1e-9).sum()
    return min(1.0, 2 * min(1 + low, 1 + high) / (1 + others.size))


def small(kind):
    """Responses, a bank and labels: few persons, an item all right, one without an answer."""
    if kind == "mixed":
        import registry

        y = registry.values(60, missing=0.4, of=registry.named("item_fit, mixed"))
        r = irt.from_array(y, item_id=registry.ITEMS, categories=registry._CATEGORIES)
        return y, r, registry.BANKS["mixed"], ["x", "y", "x", "z", "y"]
    a, d = two(6)
    y = answers(40, a, d, 2)
    if kind != "complete":
        y[np.random.default_rng(3).random(y.shape) < 0.5] = -1
        y[:, 4] = -1
        y[:2] = -1
        y[:, 2] = np.where(y[:, 2] >= 0, 1, -1)
        d[2] = 3.0  # so that some replicates are all right too
    r = irt.from_array(csr_of(y), observed="stored") if kind == "sparse" else irt.from_array(y)
    return y, r, intercept_bank(a, d), [1, 2, 1, 2, 3, 1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["complete", "missing", "sparse", "mixed"])
def test_all_statistics_by_hand(kind):
    y, r, bank, labels = small(kind)
    check = irt.predictive_check(r, bank, n_replicates=12, seed=4, item_blocks=labels)
    counts = check.get("item_n_categories", np.full(r.n_items, 2))
    np.testing.assert_array_equal(counts, r.n_categories)
    of_replicates = [by_hand(x, labels) for x in replicates_of(r, bank, 12, 4)]
    for name, observed in by_hand(y, labels).items():
        np.testing.assert_allclose(check[name], observed, rtol=1e-10, err_msg=name)
        others = np.array([x[name] for x in of_replicates])
        for k, own in enumerate(others.T):
            there = own[~np.isnan(own)]
            ends = [np.nan] * 3
            if there.size:
                ends = [there.mean(), *np.quantile(there, [0.025, 0.975], method="weibull")]
            got = [check[f"{name}_{end}"].values[k] for end in ("expected", "lower", "upper")]
            np.testing.assert_allclose(got, ends, rtol=1e-10, atol=1e-12, err_msg=name)
            p = p_by_hand(observed[k], own)
            assert check[f"{name}_p_value"].values[k] == pytest.approx(p, nan_ok=True)
    np.testing.assert_array_equal(check["item_n_responses"], (y >= 0).sum(axis=0))
    names = [*dict.fromkeys(map(str, labels))]
    assert check["block"].values.tolist() == names
    assert check["block_n_items"].values.tolist() == [
        list(map(str, labels)).count(x) for x in names
    ]
    met = [(y[:, [str(x) == name for x in labels]] >= 0).any(axis=1).sum() for name in names]
    np.testing.assert_array_equal(check["block_n_persons"], met)
    if kind in ("missing", "sparse"):  # nobody answered item 4, everybody item 2 right
        assert np.isnan(check["item_mean_score"][4])
        assert np.isnan(check["item_mean_score_p_value"][4])
        assert np.isnan(check["item_rest_correlation"][2])
        assert np.isnan(check["item_rest_correlation_p_value"][2])
        assert check["item_mean_score"][2] == 1.0
        assert np.isnan(check["block_score_variance"][2])


def test_without_blocks_nothing_is_said_of_them():
    a, d = two(5)
    y = answers(50, a, d, 1)
    check = irt.predictive_check(y, intercept_bank(a, d), n_replicates=10)
    assert not [name for name in check.variables if str(name).startswith("block")]
    blocks = irt.predictive_check(
        y, intercept_bank(a, d), n_replicates=10, item_blocks=list("aabbc")
    )
    for name in check.data_vars:
        np.testing.assert_array_equal(check[name], blocks[name])


def test_undefined_replicates_are_left_out():
    values = np.array([0.5, np.nan, 0.2, 0.6, np.nan, 0.4])[:, None]
    got = predictive_items.compared("x", values)
    assert got["x_expected"] == pytest.approx(0.4)
    np.testing.assert_allclose([got["x_lower"][0], got["x_upper"][0]], [0.2, 0.6])
    assert got["x_p_value"] == pytest.approx(2 * 2 / 4)  # one at least as large, and itself
    alone = predictive_items.compared("x", np.array([[0.5], [np.nan]]))
    assert all(np.isnan(alone[f"x_{k}"][0]) for k in ("expected", "lower", "upper", "p_value"))


def test_sums_are_exact_where_they_are_large():
    """Correlations of 10^9 persons whose scores are near 60,000, from sums of whole numbers."""
    times, x, rest = 10**8, np.arange(10) % 2, 60_000 + np.array([0, 1, 0, 2, 1, 1, 0, 3, 2, 2])
    t = rest + x
    sums = np.array([(v * times).sum() for v in (x, t, t * t, x * t)], dtype=np.int64)
    n = np.array([10 * times])
    got = predictive_items._rest_correlation(n, sums[None, :, None])
    assert got[0, 0] == pytest.approx(np.corrcoef(x, rest)[0, 1], rel=1e-12)
    # one person of 10^9 differs: there is variance, and one more equal to the others: none
    for odd, expected in ((1, True), (0, False)):
        total, squares = 60_000 * 10**9 + odd, 60_000**2 * 10**9 + odd * (2 * 60_000 + 1)
        a, ab = np.array([total]), np.array([squares])
        deviation = predictive_items._deviations(np.array([10**9]), a, a, ab)
        assert (deviation[0] > 0.0) == expected
        assert deviation[0] == pytest.approx(odd * (1.0 - 1e-9), rel=1e-12)


def test_kernels_add_up_both_layouts_and_parts():
    g = np.random.default_rng(5)
    y = g.integers(0, 14, (30, 7)).astype(np.int8)
    y[g.random(y.shape) < 0.4] = -1
    label = np.array([0, 1, 1, 0, 2, 2, 2])
    of_items, of_blocks = [], []
    for data in (Dense(y), to_sparse(Dense(y))):
        sums, blocks = np.zeros((5, 7), dtype=np.int64), np.zeros((3, 3), dtype=np.int64)
        score = score_sums.of_items(data, sums)
        score_sums.of_blocks(data, label, blocks)
        np.testing.assert_array_equal(score, np.maximum(y, 0).sum(axis=1))
        of_items.append(sums)
        of_blocks.append(blocks)
    np.testing.assert_array_equal(*of_items)
    np.testing.assert_array_equal(*of_blocks)
    parts = np.zeros((5, 7), dtype=np.int64)
    for part in (y[:11], y[11:]):
        score_sums.of_items(Dense(np.ascontiguousarray(part)), parts)
    np.testing.assert_array_equal(parts, of_items[0])


def test_scores_that_are_too_large_for_64_bits_are_refused():
    lengths = np.zeros(60_001, dtype=np.int64)
    lengths[60_000] = 10**9
    predictive_sums.refuse_overflow(lengths)
    lengths[60_000] *= 2
    with pytest.raises(InputError, match="do not fit into 64-bit sums; check some of the persons"):
        predictive_sums.refuse_overflow(lengths)


# --- calibration and power ------------------------------------------------------------------------


def test_p_values_of_data_of_the_model():
    """60 data sets under the items that are known.

    Of each statistic one value a data set, so that they are independent: their mean is within 4 of
    its SD of a half, and those of at most 4/51 are not more than chance has in 1 of 10^4 tests.
    """
    a, d = two(6)
    p = {name: [] for name in NAMES}
    for k in range(60):
        y = answers(300, a, d, 100 + k)
        y[np.random.default_rng(k).random(y.shape) < 0.2] = -1
        check = irt.predictive_check(y, intercept_bank(a, d), seed=k, item_blocks=list("ababab"))
        for name, values in p.items():
            each = check[f"{name}_p_value"].values
            values.append(each[k % each.size])
    for name, values in p.items():
        assert abs(np.mean(values) - 0.52) < 4 * np.sqrt(1 / 12 / 60), name
        small = int((np.array(values) < 4.5 / 51).sum())
        assert small <= binom.isf(1e-4, 60, 4 / 51), name


def outside(check, name):
    return ((check[name] < check[f"{name}_lower"]) | (check[name] > check[f"{name}_upper"])).values


def test_items_that_do_not_belong_are_caught():
    a, d = two(20)
    y = answers(1500, a, d, 4)
    right = y.mean(axis=0)
    y[:, 3] = 1 - y[:, 3]  # a reversed key
    y[:, 11] = np.random.default_rng(5).random(1500) < right[11]  # guessing, as often right
    check = irt.predictive_check(y, intercept_bank(a, d))
    name = "item_rest_correlation"
    z = (check[name] - check[f"{name}_expected"]) / (
        check[f"{name}_upper"] - check[f"{name}_lower"]
    )
    assert set(np.argsort(z.values)[:2]) == {3, 11}
    for j in (3, 11):
        assert check[f"{name}_p_value"][j] == pytest.approx(2 / 51)
        assert check[name][j] < check[f"{name}_lower"][j]
    assert check[name][3] < 0.0
    assert abs(check[name][11]) < 0.1
    assert check["item_mean_score_p_value"][3] == pytest.approx(2 / 51)
    assert check["item_mean_score_p_value"][11] > 0.05
    honest = irt.predictive_check(answers(1500, a, d, 4), intercept_bank(a, d))
    assert outside(honest, name).sum() <= 4  # of 20, one is expected: binomial, rate 3e-3


def test_a_testlet_is_caught():
    """Items 5 to 9 have an effect of their own in common, of SD .8; other blocks do not."""
    a, d = two(20)
    g = np.random.default_rng(6)
    z = g.standard_normal((1500, 1)) * a + d
    z[:, 5:10] += 0.8 * g.standard_normal((1500, 1))
    y = (g.random(z.shape) < 1.0 / (1.0 + np.exp(-z))).astype(np.int8)
    labels = np.repeat(["w", "x", "y", "z"], 5)
    check = irt.predictive_check(y, intercept_bank(a, d), item_blocks=labels)
    assert outside(check, "block_score_variance").tolist() == [False, True, False, False]
    name = "block_score_variance"
    assert check[name][1] > check[f"{name}_upper"][1]
    assert check[f"{name}_p_value"][1] == pytest.approx(2 / 51)
    assert (check[f"{name}_p_value"].values[[0, 2, 3]] > 0.1).all()


def test_what_fitted_items_hide_and_what_not():
    """A slope of its own takes up that an item is mere guessing; a testlet stays visible."""
    a, d = two(20)
    g = np.random.default_rng(7)
    z = g.standard_normal((2000, 1)) * a + d
    z[:, 5:10] += g.standard_normal((2000, 1))
    y = (g.random(z.shape) < 1.0 / (1.0 + np.exp(-z))).astype(np.int8)
    y[:, 3] = 1 - y[:, 3]
    y[:, 15] = g.random(2000) < 0.4
    options = {"item_blocks": np.repeat(list("wxyz"), 5), "n_replicates": 50}
    check = irt.predictive_check(y, irt.fit_marginal(y), **options)
    p = check["item_rest_correlation_p_value"].values
    assert p[3] == pytest.approx(2 / 51)
    assert p[15] > 0.1
    assert check["block_score_variance"][1] > check["block_score_variance_upper"][1]
    one_slope = irt.predictive_check(y, irt.fit_marginal(y, model="1pl"), **options)
    assert outside(one_slope, "item_rest_correlation")[[3, 15]].all()


# --- blocks as users say them ---------------------------------------------------------------------


def labelled(given):
    a, d = two(4)
    y = answers(30, a, d, 1)
    r = irt.from_array(y, item_id=list("abcd"))
    bank = intercept_bank(a, d).assign_coords(item_id=("items", list("abcd")))
    return irt.predictive_check(r, bank, n_replicates=10, item_blocks=given)


def test_blocks_by_item_in_any_order_or_in_a_list():
    want = labelled(["t2", "t1", "t2", "t1"])
    assert want["block"].values.tolist() == ["t2", "t1"]
    for given in (
        {"d": "t1", "c": "t2", "b": "t1", "a": "t2"}, ("t2", "t1", "t2", "t1"),
        np.array(["t2", "t1", "t2", "t1"]),
        pd.Series({"d": "t1", "z": "t9", "c": "t2", "b": "t1", "a": "t2"}),  # of more items
    ):  # fmt: skip
        xr.testing.assert_identical(labelled(given), want)
    assert labelled([2, 1, 2, 1])["block"].values.tolist() == ["2", "1"]


@pytest.mark.parametrize(
    "given, said",
    [
        ({"a": "x", "c": "x", "d": "y"}, r"no label \(a word or a number\) for 1 item\(s\): 'b'"),
        ({"a": "x", "c": np.nan, "b": None, "d": ""}, r"3 item\(s\): 'b', 'c', 'd'; give an item"),
        (["x", "y", pd.NA, "x"], r"for 1 item\(s\): 'c'"),
        ([["x"], "y", "x", "x"], r"for 1 item\(s\): 'a'"),
        ({**dict.fromkeys("abcd", "x"), "é": 1, "e\u0301": 2}, "names 1 item.* once: 'é'"),
        (["x", "y"], "has 2 labels, and the responses have 4 items"),
        ("xyzx", "is of the type str; give a dict from item identifiers to labels, or a list"),
        (np.zeros((4, 1)), "is of the type ndarray"),
        ({"x"}, "is of the type set"),
    ],
)  # fmt: skip
def test_wrong_blocks_are_named(given, said):
    with pytest.raises(InputError, match=f"item_blocks.*{said}"):
        labelled(given)
