"""Options of multiple-choice items: statistics by brute force, what is flagged, and how often."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import irt_dask as irt
from irt_dask.errors import EstimationError, InputError


def chosen(n, m, seed, k=4, missing=0.0):
    """Options, of which 0 is right; the others by chance."""
    rng = np.random.default_rng(seed)
    right = irt.simulate(n, m, seed=seed).to_xarray()["response"].values == 1
    y = np.where(right, 0, rng.integers(1, k, right.shape))
    y[rng.random(y.shape) < missing] = -1
    return y.astype(np.int8)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_statistics_are_those_of_their_definition(missing):
    y = chosen(90, 7, seed=3, missing=missing)
    y[0, 1:] = -1  # one answer: nothing to compare it with
    found = irt.option_analysis(irt.from_array(y, categories=4), 0)
    frame = pd.DataFrame(y).where(y >= 0)
    above = (frame == 0).where(frame.notna()).astype(float)
    above -= above.mean()
    for j in range(7):
        others = above.drop(columns=j)
        rest = others.mean(axis=1)
        seen = frame[j].notna() & rest.notna()
        for c in range(4):
            picked = frame[j] == c
            at = {"items": j, "categories": c}
            assert found["item_option_count"].isel(at) == picked.sum()
            share = picked.sum() / frame[j].notna().sum()
            assert found["item_option_share"].isel(at) == pytest.approx(share, rel=1e-12)
            mean = rest[picked & seen].mean()
            assert found["item_option_rest"].isel(at) == pytest.approx(mean, abs=1e-8)
            side = "less" if c == 0 else "greater"
            r = stats.pearsonr(picked[seen].astype(float), rest[seen], alternative=side)
            got = found.isel(at)
            assert got["item_option_correlation"] == pytest.approx(r.statistic, abs=1e-7)
            few = min((picked & seen).sum(), (~picked & seen).sum()) < 5
            want = np.nan if few else r.pvalue
            assert got["item_option_p_value"] == pytest.approx(want, abs=1e-6, nan_ok=True)
    p = found["item_option_p_value"].values
    there = np.isfinite(p)
    want = stats.false_discovery_control(p[there])
    np.testing.assert_allclose(found["item_option_q_value"].values[there], want)
    if not missing:  # the classical correlation with the rest score
        score = (y == 0).sum(axis=1)[1:]
        r = np.corrcoef(y[1:, 2] == 0, score - (y[1:, 2] == 0))[0, 1]
        without = irt.option_analysis(irt.from_array(y[1:], categories=4), 0)
        assert without["item_option_correlation"][2, 0] == pytest.approx(r, abs=1e-7)


def test_curves_are_shares_of_fifths():
    y = chosen(4000, 40, seed=5)
    found = irt.option_analysis(irt.from_array(y, categories=4), 0)
    curve = found["item_option_curve"]
    assert curve.dims == ("items", "categories", "fifths")
    np.testing.assert_allclose(curve.sum("categories"), 1.0)
    right = (y == 0).astype(int)
    rest = right.sum(axis=1)[:, None] - right - (right.mean(axis=0).sum() - right.mean(axis=0))
    pooled = np.quantile(rest, [0.2, 0.4, 0.6, 0.8])
    at = np.searchsorted(pooled, rest[:, 7])
    brute = [(y[at == g, 7] == 0).mean() for g in range(5)]
    np.testing.assert_allclose(curve[7, 0], brute, atol=0.06)  # who is near an end may differ
    assert (np.diff(curve[7, 0]) > 0.0).all()


def test_what_is_wrong_is_named():
    y = chosen(1500, 30, seed=7)
    y[:, 3] = np.array([2, 1, 0, 3], dtype=np.int8)[y[:, 3]]  # the key is another option
    y[:, 5] = np.where(y[:, 5] == 3, 1, y[:, 5])  # nobody takes option 3
    y[:, 8] = np.where(y[:, 8] == 0, 2, y[:, 8])  # nobody is right
    able = (y == 0).sum(axis=1) > 18
    y[:, 11] = np.where(able & (y[:, 11] == 0), 1, y[:, 11])  # a trap for the able
    found = irt.option_analysis(irt.from_array(y, categories=4), "A", labels="ABCD")
    flag = found["item_option_flag"].values
    assert flag[3] == "attractive_distractor|better_option|negative_key"
    assert flag[5] == "unused_option"
    assert {"attractive_distractor", "nobody_right"} <= set(flag[8].split("|"))
    assert "attractive_distractor" in flag[11]
    others = np.delete(flag, [3, 5, 8, 11])
    assert (others == "ok").all()
    assert found.attrs["n_flagged"] == 3  # an option that nobody takes accuses nothing
    assert found.attrs["labels"] == ["A", "B", "C", "D"]


@pytest.mark.slow
def test_options_by_chance_are_seldom_named():
    """Answers without ability: at 5% for all options of a test together, over 200 tests.

    Every named option is false there, so that the rate is that of tests with any: false-alarm rate
    of the bound 1e-3.
    """
    rng = np.random.default_rng(2)
    any_named = 0
    for _ in range(200):
        y = rng.integers(0, 4, (200, 12)).astype(np.int8)
        found = irt.option_analysis(irt.from_array(y, categories=4), 0)
        q = found["item_option_q_value"].values
        any_named += bool((q < 0.05).any())
    assert any_named <= stats.binom.isf(1e-3, 200, 0.05)


def test_items_of_different_numbers_of_options():
    y = chosen(60, 4, seed=1, k=3)
    y[:, 1] = y[:, 1] > 0
    r = irt.from_array(y, categories=[3, 2, 3, 3])
    found = irt.option_analysis(r, {"0": 0, "1": 0, "2": 0, "3": 0})
    assert found["item_option_count"].values[1, 2] == 0
    assert np.isnan(found["item_option_share"].values[1, 2])
    assert "unused_option" not in found["item_option_flag"].values[1]


@pytest.mark.parametrize("key, options, message", [
    ({"0": 0}, {}, "key= lacks 2 item"),
    (4, {}, "key= of item 0 is option 4, and the item has options 0 to 3"),
    ("A", {}, "key= of item 0 is 'A': it must be one of the codes"),
    ("E", {"labels": "ABCD"}, r"it must be one of the labels \(A, B, C, D\)"),
    ("A", {"labels": "AB"}, "must be 4 different names"),
    (0, {"fdr": 1.5}, "fdr=1.5"),
])  # fmt: skip
def test_refusals(key, options, message):
    r = irt.from_array(chosen(20, 3, seed=1), categories=4)
    with pytest.raises(InputError, match=message):
        irt.option_analysis(r, key, **options)


def test_nothing_to_compare_with():
    y = np.full((6, 3), -1, dtype=np.int8)
    y[np.arange(6), np.arange(6) % 3] = 1
    with pytest.raises(EstimationError, match="nobody answered two items"):
        irt.option_analysis(irt.from_array(y, categories=4), 1)


def test_the_plot_has_the_shares_of_an_item():
    y = chosen(400, 10, seed=9)
    y[:, 2] = np.where(y[:, 2] == 3, 1, y[:, 2])
    found = irt.option_analysis(irt.from_array(y, categories=4), "A", labels="ABCD")
    ax = irt.plot.options(found, "2")
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["A (key)", "B", "C", "D"]
    for c, line in enumerate(ax.get_lines()):
        np.testing.assert_array_equal(line.get_ydata(), found["item_option_curve"][2, c])
    widths = [line.get_linewidth() for line in ax.get_lines()]
    assert widths[0] > max(widths[1:])
    with pytest.raises(InputError, match="there is no item 'z'"):
        irt.plot.options(found, "z")


def named(y, k, fdr=0.05):
    found = irt.option_analysis(irt.from_array(y, categories=k), 0, fdr=fdr)
    return bool((found["item_option_q_value"].values < fdr).any()), found


def test_few_persons_prove_nothing():
    """Standings of few values make correlations of 1 by themselves."""
    some, found = named(np.array([[1, 0, 0], [0, 1, 2], [2, 1, 3]], dtype=np.int8), 4)
    assert not some
    assert (
        found["item_option_flag"].values
        == np.array(["untested|unused_option", "untested|unused_option", "untested|unused_option"])
    ).all()
    rng = np.random.default_rng(4)
    y = np.full((300, 300), -1, dtype=np.int8)  # of each item some three answers, by guessing
    for row in y:
        row[rng.choice(300, 3, replace=False)] = rng.integers(0, 4, 3)
    some, found = named(y, 4)
    assert not some
    assert all("untested" in flag for flag in found["item_option_flag"].values)
    # p-values are at least one over the number of ways to choose so many
    y = np.concatenate([np.zeros((5, 9)), np.ones((5, 9))]).astype(np.int8)
    p = named(y, 2)[1]["item_option_p_value"].values
    assert np.nanmin(p) >= 1.0 / 252.0 - 1e-12


@pytest.mark.slow
def test_rare_options_are_seldom_named():
    """Typing errors, an option in 500, among persons of whom one in fifty is able.

    Named by chance in at most 5% of tests: of 100, 11 at most (probability of more 4e-3).
    """
    any_named = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        able = rng.random(1000) < 0.02
        right = rng.random((1000, 16)) < np.where(able, 0.95, 0.3)[:, None]
        y = np.where(right, 0, rng.integers(1, 4, right.shape))
        y[rng.random(y.shape) < 0.002] = 4
        found = irt.option_analysis(irt.from_array(y.astype(np.int8), categories=5), 0)
        any_named += bool((found["item_option_q_value"].values[:, 4] < 0.05).any())
    assert any_named <= 11


def test_a_key_is_a_code_or_a_label():
    r = irt.from_array(chosen(60, 4, seed=2), categories=4)
    labels = ["1", "2", "3", "4"]
    by_code = irt.option_analysis(r, 1, labels=labels)
    assert by_code["item_option_key"].values.tolist() == [1] * 4
    by_label = irt.option_analysis(r, "1", labels=labels)
    assert by_label["item_option_key"].values.tolist() == [0] * 4
