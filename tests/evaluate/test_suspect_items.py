"""Wrong keys, duplicates and items without information; near 0 no slope is negative by chance."""

import numpy as np
import pytest
from scipy.stats import norm

import irt_dask as irt
from irt_dask.errors import InputError
from irt_dask.evaluate import equal_answers, slope_signs
from irt_dask.kernels.responses.layouts import Dense, to_sparse
from irt_dask.store.blocks import Block


def simulated(seed, n, m, *, wrong=(), low=()):
    rng = np.random.default_rng(seed)
    a = 0.8 + rng.gamma(2.0, 0.3, m)
    a[list(low)] = rng.uniform(0.0, 0.1, len(low))
    share = rng.uniform(0.1, 0.9, m)
    d = np.log(share / (1.0 - share)) * np.sqrt(1.0 + 0.35 * a**2)
    z = a * rng.standard_normal((n, 1)) + d
    y = (rng.random((n, m)) < 1.0 / (1.0 + np.exp(-z))).astype(np.int8)
    y[:, list(wrong)] = 1 - y[:, list(wrong)]
    return y


def fitted(y):
    return irt.fit_marginal(y, prior="empirical", positive="none", standard_errors=True)


@pytest.fixture(scope="module")
def planted():
    """Items 3, 17 have wrong keys, 30 is 5 again, 31 everybody has right, 32 nobody."""
    y = simulated(4, 200, 60, wrong=(3, 17))
    y[:, 30], y[:, 31], y[:, 32] = y[:, 5], 1, 0
    return y, fitted(y)


def test_each_reason_is_found(planted):
    found = irt.suspect_items(*planted)
    words = dict(enumerate(found["item_suspicion"].values.tolist()))
    named = {j: w for j, w in words.items() if w != "ok"}
    assert named == {
        3: "negative_slope", 17: "negative_slope", 5: "duplicate", 30: "duplicate",
        31: "all_right", 32: "all_wrong",
    }  # fmt: skip
    rank = found["item_suspicion_rank"].values
    assert sorted(rank) == list(range(1, 61))
    assert sorted(rank[[3, 17]]) == [1, 2]
    assert rank[32] == 3
    assert sorted(rank[[5, 30]]) == [4, 5]
    assert found["item_duplicate_of"].values[30] == "5"
    assert rank[31] == 6
    assert found.attrs["n_negative_slope"] == 2
    assert 0.02 < found.attrs["share_negative"] < 0.07


def test_blocks_and_order_of_persons_do_not_matter(planted):
    y, fit = planted
    whole = irt.suspect_items(y, fit)
    turned = irt.suspect_items(irt.from_array(y[::-1], rows_per_block=37), fit)
    for name in whole:
        assert np.array_equal(whole[name], turned[name], equal_nan=whole[name].dtype.kind == "f")


@pytest.mark.slow
def test_alike_by_chance_is_no_duplicate():
    """40 models, many easy questions: many columns are the same, and no surprise."""
    rng = np.random.default_rng(1)
    y = simulated(2, 40, 120)
    y[:, :90] = (rng.random((40, 90)) < 0.98) | (np.arange(40)[:, None] < 2)
    found = irt.suspect_items(y, fitted(y))
    first, some = {}, (y != y[0]).any(axis=0)  # those that are constant are named for that
    of = [first.setdefault(y[:, j].tobytes(), str(j)) for j in range(120)]
    later = np.array([of[j] != str(j) and some[j] for j in range(120)])
    assert later.sum() == 8
    np.testing.assert_array_equal(found["item_duplicate_of"], np.where(later, of, ""))
    assert found.attrs["n_duplicate"] == 0


def test_items_of_one_sign_are_refused(planted):
    y, _ = planted
    fit = irt.fit_marginal(y[:, :30], prior="empirical", standard_errors=True)
    with pytest.raises(InputError, match="positive='none'"):
        irt.suspect_items(y[:, :30], fit)
    fit = irt.fit_marginal(y[:, :30], positive="none", standard_errors=False)
    with pytest.raises(InputError, match="standard_errors=True"):
        irt.suspect_items(y[:, :30], fit.drop_vars("item_discrimination_se"))


@pytest.mark.slow
def test_probability_of_a_sign_is_that_of_two_groups():
    """Slopes 1 or -1, told with an error: P by Bayes' formula with the true share."""
    rng = np.random.default_rng(3)
    sign = np.where(rng.random(4000) < 0.1, -1.0, 1.0)
    error = np.full(4000, 0.8)
    slope = sign + error * rng.standard_normal(4000)
    negative, share = slope_signs._learned(slope, error)
    odds = 0.1 * norm.pdf(slope, -1.0, 0.8), 0.9 * norm.pdf(slope, 1.0, 0.8)
    assert abs(share - 0.1) < 0.02
    assert np.abs(negative - odds[0] / (odds[0] + odds[1])).max() < 0.05


def test_discoveries_and_q_values():
    q, named = slope_signs.discoveries(np.array([0.2, 0.99, 0.9]), 0.06)
    assert np.allclose(q, [(0.01 + 0.1 + 0.8) / 3, 0.01, 0.055])
    assert named.tolist() == [False, True, True]
    p = np.array([0.04, np.nan, 0.01, 0.9, 0.03])
    by_hand = [min(0.04 * 4 / 3, 0.9), np.nan, 0.04, 0.9, 0.04 * 4 / 3]
    assert np.allclose(slope_signs.adjusted(p), by_hand, equal_nan=True)


def test_sums_tell_columns_and_rows_apart():
    rng = np.random.default_rng(0)
    y = rng.integers(-1, 4, (30, 50)).astype(np.int8)
    y[:, 20], y[11] = y[:, 4], y[2]
    for data in (Dense(y), to_sparse(Dense(y))):
        block = Block(0, 5, data)
        for sums, lines in (
            (equal_answers.of_items(block), y.T), (equal_answers.of_persons(block), y)
        ):  # fmt: skip
            first = equal_answers.first_alike(sums)
            same = [int(np.flatnonzero((lines == x).all(axis=1))[0]) for x in lines]
            assert first.tolist() == same


@pytest.mark.slow
def test_share_of_false_ones_where_slopes_are_flat():
    """False alarms of a right program: the mean of 12 shares, expected at most .05, above .15.

    Three questions in ten have slopes of 0 to .1; in half of the data sets 5% of the others have
    wrong keys, all of which are found with 200 models.
    """
    shares, missed = [], 0
    for seed in range(12):
        wrong = range(0, 5) if seed % 2 else ()
        y = simulated(seed, 200, 100, wrong=wrong, low=range(70, 100))
        words = irt.suspect_items(y, fitted(y))["item_suspicion"].values
        named = {j for j, w in enumerate(words) if "negative_slope" in w}
        shares.append(len(named - set(wrong)) / max(len(named), 1))
        missed += len(set(wrong) - named)
    assert np.mean(shares) <= 0.15
    assert missed <= 1
