"""DIF: scores by brute force, tests of the right size with and without impact, power, layouts."""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest
from items import answers, bank, probability
from parts import csr_of
from scipy.special import expit
from scipy.stats import chi2, norm
from threadpoolctl import threadpool_info

import irt_dask as irt
from irt_dask.errors import ApproximationWarning, EstimationError, InputError, ItemWarning

#: The package has the function of that name.
DIF = importlib.import_module("irt_dask.evaluate.dif")
SCORES = importlib.import_module("irt_dask.evaluate.dif_scores")


def two_groups(rng, n, m, *, impact=0.0, shift=None, tilt=None):
    """Two groups of n; the focal group's intercepts and slopes of the items differ as given."""
    a, b = np.exp(rng.normal(0, 0.3, m)), rng.normal(size=m)
    focal = np.repeat([False, True], n)
    theta = rng.normal(size=2 * n) - impact * focal
    slope = a + np.outer(focal, np.zeros(m) if tilt is None else tilt)
    z = slope * theta[:, None] - a * b + np.outer(focal, np.zeros(m) if shift is None else shift)
    return a, b, answers(rng, expit(z)), np.where(focal, "f", "r")


def run(y, groups, items, **options):
    r = irt.from_array(y, persons={"group": groups}, **options)
    return irt.dif(r, items, reference="r", focal="f")


def normal_of(y, a, d, c):
    """Mean and SD of ability of highest marginal likelihood, by EM on a plain grid."""
    x = np.linspace(-8, 8, 321)
    mean, sd = 0.0, 1.0
    for _ in range(300):
        _, w = posterior(y, a, d, c, x, mean, sd)
        m1 = (w @ x).mean()
        mean, sd = m1, np.sqrt((w @ x**2).mean() - m1**2)
    return mean, sd


def posterior(y, a, d, c, x, mean, sd):
    p = probability(x, a, d, c)
    log = (y == 1) @ np.log(p).T + (y == 0) @ np.log1p(-p).T - 0.5 * ((x - mean) / sd) ** 2
    w = np.exp(log - log.max(axis=1, keepdims=True))
    return p, w / w.sum(axis=1, keepdims=True)


def by_hand(y, groups, a, b, c, expected):
    """C(alpha) tests: the scores' products over persons, or their expected values.

    These are sums over all patterns of responses, of complete data.
    """
    d, m = -a * b, len(a)
    x = np.linspace(-8, 8, 321)
    own, common, by_pattern = [], [], []

    def scores(part, label, mean, sd):
        p, w = posterior(part, a, d, c, x, mean, sd)
        s = (p - c) / (1 - c) / p
        known = (part >= 0)[:, None, :]
        h = np.where(known, (part[:, None, :] - p) * s, 0.0)  # persons, nodes, items
        scores = np.hstack([np.einsum("iq,iqj->ij", w, k * h) for k in (1.0, x[:, None])])
        u = (x - mean) / sd
        t = np.stack([w @ u, w @ u**2 - 1], axis=1) if label == "f" else np.zeros((len(part), 2))
        return scores if label == "f" else np.zeros_like(scores), np.hstack([scores, t])

    for label in ("r", "f"):
        part = y[groups == label]
        mean, sd = normal_of(part, a, d, c)
        for to, found in zip((own, common), scores(part, label, mean, sd), strict=True):
            to.append(found)
        if expected:
            patterns = np.array(list(itertools.product([0, 1], repeat=m)))
            p = probability(x, a, d, c)
            each = np.where(patterns[:, None, :] == 1, p, 1 - p).prod(axis=2)
            share = each @ norm.pdf((x - mean) / sd) / norm.pdf((x - mean) / sd).sum()
            by_pattern.append((*scores(patterns, label, mean, sd), len(part) * share))
    own, common = np.vstack(own), np.vstack(common)
    n, k = common.shape
    of_own, of_common, weight, scale = own, common, np.ones((n, 1)), 1.0
    if expected:
        of_own, of_common, weight = map(np.concatenate, zip(*by_pattern, strict=True))
        weight = weight[:, None]
    else:
        explained = np.ones(n) @ common @ np.linalg.lstsq(common, np.ones(n), rcond=None)[0]
        scale = (n - explained) / (n - k)
    root = np.sqrt(weight)
    beta = np.linalg.lstsq(root * of_common, root * of_own, rcond=None)[0]
    rest, left = own - common @ beta, root * (of_own - of_common @ beta)
    out = []
    for j in range(m):
        at = [j, m + j]
        u = rest[:, at].sum(axis=0)
        v = left[:, at].T @ left[:, at] * scale
        out.append((u[0] ** 2 / v[0, 0], u @ np.linalg.solve(v, u), u[0] / v[0, 0]))
    return np.array(out).T


@pytest.mark.parametrize("guessing", [0.0, 0.2])
def test_by_hand(guessing, monkeypatch):
    monkeypatch.setattr(SCORES, "_MANY", 0)  # the persons' own scores say how they vary
    rng = np.random.default_rng(1)
    a, b, y, groups = two_groups(rng, 150, 6, impact=0.4, shift=np.r_[0.8, np.zeros(5)])
    y[rng.random(y.shape) < 0.15] = -1
    c = np.full(6, guessing)
    uniform, joint, shift = by_hand(y, groups, a, b, c, expected=False)
    got = run(y, groups, bank(a, b, c))
    np.testing.assert_allclose(got["item_dif_uniform_chi2"], uniform, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(got["item_dif_joint_chi2"], joint, rtol=2e-3, atol=5e-4)
    np.testing.assert_allclose(got["item_dif_shift"], shift, rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(
        got["item_dif_nonuniform_chi2"],
        got["item_dif_joint_chi2"] - got["item_dif_uniform_chi2"],
        atol=1e-9,
    )
    np.testing.assert_allclose(got["item_dif_joint_p_value"], chi2.sf(joint, 2), rtol=0.01)
    mean, sd = normal_of(y[groups == "f"], a, -a * b, c)
    assert got.attrs["ability_mean_focal"] == pytest.approx(mean, abs=1e-4)
    assert got.attrs["ability_sd_focal"] == pytest.approx(sd, abs=1e-4)
    assert (got.attrs["n_reference"], got.attrs["n_focal"]) == (150, 150)


@pytest.mark.parametrize("guessing", [pytest.param(0.0, marks=pytest.mark.slow), 0.2])
def test_few_persons_by_hand(guessing, monkeypatch):
    """Products of simulated scores, of some 200,000 persons a group."""
    monkeypatch.setattr(SCORES, "_SIMULATED", 200_000)
    rng = np.random.default_rng(3)
    a, b, y, groups = two_groups(rng, 60, 5, impact=0.4, shift=np.r_[0.8, np.zeros(4)])
    c = np.full(5, guessing)
    uniform, joint, shift = by_hand(y, groups, a, b, c, expected=True)
    got = run(y, groups, bank(a, b, c))
    np.testing.assert_allclose(got["item_dif_uniform_chi2"], uniform, rtol=0.05, atol=0.01)
    np.testing.assert_allclose(got["item_dif_joint_chi2"], joint, rtol=0.05, atol=0.02)
    np.testing.assert_allclose(got["item_dif_shift"], shift, rtol=0.03, atol=0.01)
    own = by_hand(y, groups, a, b, c, expected=False)[1]
    assert np.abs(own / joint - 1).max() > 0.2  # they are not the persons' own


def test_a_shifted_item_is_found_and_measured():
    """Impact of 0.5; shift of -0.5 of one item, a steeper curve of another."""
    rng = np.random.default_rng(3)
    shift, tilt = np.zeros(12), np.zeros(12)
    shift[0], tilt[1] = -0.5, 0.8
    a, b, y, groups = two_groups(rng, 3000, 12, impact=0.5, shift=shift, tilt=tilt)
    got = run(y, groups, bank(a, b))
    assert got["item_dif_uniform_p_value"].values[0] < 1e-6
    assert got["item_dif_shift"].values[0] == pytest.approx(-0.5, abs=0.2)
    assert got["item_dif_delta"].values[0] == 2.35 * got["item_dif_shift"].values[0]
    assert got["item_dif_class"].values[0] in "BC"
    assert got["item_dif_nonuniform_p_value"].values[1] < 1e-6
    assert got["item_dif_slope"].values[1] > 0.3
    others = got["item_dif_joint_p_value"].values[2:]
    assert (others > 0.001).all()
    assert got.attrs["ability_mean_focal"] == pytest.approx(-0.5, abs=0.1)


def test_blocks_order_and_layouts_do_not_matter(bits, monkeypatch):
    monkeypatch.setattr(SCORES, "_SIMULATED", 5_000)
    rng = np.random.default_rng(5)
    a, b, y, groups = two_groups(rng, 60, 5)
    y[rng.random(y.shape) < 0.3] = -1
    items = bank(a, b)
    want = bits(run(y, groups, items))
    assert bits(run(y, groups, items, rows_per_block=17)) == want
    order = rng.permutation(120)  # others are simulated then
    with monkeypatch.context() as m:
        m.setattr(SCORES, "_MANY", 0)
        want_of_any = bits(run(y, groups, items))
        assert bits(run(y[order], groups[order], items, rows_per_block=17)) == want_of_any
    stored = csr_of(y)
    assert bits(run(stored, groups, items, observed="stored", rows_per_block=33)) == want


def test_other_groups_and_items_of_one_group_are_left_out():
    rng = np.random.default_rng(7)
    a, b, y, groups = two_groups(rng, 100, 5)
    items = bank(a, b)
    y[groups == "f", 2] = -1
    want = run(y, groups, items)
    assert (
        np.isnan(want["item_dif_uniform_chi2"].values).tolist()
        == [False] * 2 + [True] + [False] * 2
    )
    assert want["item_dif_class"].values[2] == ""
    more = np.vstack([rng.integers(0, 2, (40, 5)), y])
    got = run(more, np.concatenate([["x"] * 40, groups]), items)
    assert got.identical(want)


def test_refusals():
    y, items = np.ones((4, 2), dtype=int), bank(np.ones(2), np.zeros(2))
    with pytest.raises(InputError, match="have no groups"):
        irt.dif(y, items, reference="r", focal="f")
    r = irt.from_array(y, persons={"group": ["r", "r", "f", "f"]})
    with pytest.raises(InputError, match="nobody belongs to group 'z'; the groups are f, r"):
        irt.dif(r, items, reference="r", focal="z")
    with pytest.raises(InputError, match="are both 'r'"):
        irt.dif(r, items, reference="r", focal="r")
    rng = np.random.default_rng(0)
    few = irt.from_array(rng.integers(0, 2, (4, 2)), persons={"group": ["r", "r", "f", "f"]})
    with pytest.raises(EstimationError, match="there must be more persons"):
        irt.dif(few, items, reference="r", focal="f")


@pytest.mark.slow
def test_few_persons_of_a_group_are_warned_of():
    rng = np.random.default_rng(8)
    a, b, y, groups = two_groups(rng, 500, 4)
    few = np.r_[0:500, 500:515]
    y, groups = y[few], groups[few]
    run(y, groups, bank(a, b))  # 15 are enough
    y[-1, 2] = -1
    with pytest.warns(
        ApproximationWarning, match=r"15 persons .* 1 item\(s\) .*14 of group 'f' item 2"
    ):
        run(y, groups, bank(a, b))
    y[:, 3] = np.where(groups == "f", -1, y[:, 3])  # nobody: no result, no warning of it
    with pytest.warns(ApproximationWarning, match=r"1 item\(s\)"):
        run(y, groups, bank(a, b))
    y[-1, 2], y[502:, 0] = 1, -1  # an item that is flagged has no test, whoever answered it
    flags = np.array(["flat", "ok", "ok"])
    with pytest.warns(ItemWarning, match="are not tested"):
        run(y[:, :3], groups, bank(a[:3], b[:3]).assign(item_flag=("items", flags)))


def test_tests_are_made_by_one_thread(monkeypatch):
    """Products and factors of matrices have other bits on other numbers of threads."""
    rng = np.random.default_rng(9)
    a, b, y, groups = two_groups(rng, 500, 4)
    made, original = [], DIF._tests

    def seen(*args):
        made.extend(x["num_threads"] for x in threadpool_info())
        return original(*args)

    monkeypatch.setattr(DIF, "_tests", seen)
    run(y, groups, bank(a, b))
    assert made == [1] * len(made) != []


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("impact", [0.0, 0.5])
def test_size_at_five_percent(impact):
    """5,200 tests of each kind without DIF; items off by what 2,000 persons would give (SD 0.07).

    Over several seeds the shares are 4.8-5.8% at 2,000 persons a group (5.0-6.1% at 1,000: the
    variance of the scores is estimated).  From 5.4%, 6% is 1.9 standard errors: with a new seed
    one of the six shares would leave 4-6% in about 1 of 10 runs; this seed's are within.
    """
    rng = np.random.default_rng(11)
    low = []
    for _ in range(130):
        a, b, y, groups = two_groups(rng, 2000, 40, impact=impact)
        a2 = a * np.exp(rng.normal(0, 0.07, 40))
        d2 = -a * b + rng.normal(0, 0.07, 40)
        got = run(y, groups, bank(a2, -d2 / a2))
        kinds = ("uniform", "nonuniform", "joint")
        low.append([got[f"item_dif_{k}_p_value"].values < 0.05 for k in kinds])
    share = np.mean(low, axis=(0, 2))
    assert ((share > 0.04) & (share < 0.06)).all(), share
    print(share)


@pytest.mark.slow
def test_power():
    """Shift of 0.5 logits of one item in 20, with impact: found in at least 85% of 60 data sets.

    With 1,000 persons a group its standard error is about .14, which gives a power of .94.  Shares
    of 60 have standard errors of .03; the others keep their 5% (1,140 tests, standard error .007).
    """
    rng = np.random.default_rng(12)
    found = []
    for _ in range(60):
        a, b, y, groups = two_groups(rng, 1000, 20, impact=0.5, shift=np.r_[0.5, np.zeros(19)])
        got = run(y, groups, bank(a, b))
        found.append(got["item_dif_uniform_p_value"].values < 0.05)
    share = np.mean(found, axis=0)
    assert share[0] > 0.85
    assert share[1:].mean() < 0.075
    print(share[0], share[1:].mean())


# --- two calibrations -----------------------------------------------------------------------------


def with_errors(a, b, se_a, se_b):
    return bank(a, b).assign(
        item_discrimination_se=("items", se_a), item_difficulty_se=("items", se_b)
    )


def test_lord():
    one = with_errors(np.array([1.0, 1.5]), np.array([0.0, 1.0]), [0.1, 0.1], [0.1, 0.2])
    two = with_errors(np.array([1.2, 1.5]), np.array([0.3, 0.9]), [0.1, 0.2], [0.2, 0.2])
    got = irt.lord_dif(one, two.isel(items=[1, 0]))
    np.testing.assert_allclose(got["item_difficulty_difference"], [0.3, -0.1])
    z2 = np.array([0.09 / 0.05, 0.01 / 0.08])
    np.testing.assert_allclose(got["item_lord_difficulty_chi2"], z2)
    np.testing.assert_allclose(got["item_lord_difficulty_p_value"], chi2.sf(z2, 1))
    np.testing.assert_allclose(got["item_lord_discrimination_chi2"], [0.04 / 0.02, 0.0], atol=1e-12)
    plain = two.drop_vars(["item_discrimination_se"])
    assert "item_lord_discrimination_chi2" not in irt.lord_dif(one, plain)
    with pytest.raises(InputError, match="no item in common"):
        irt.lord_dif(one, two.assign_coords(item_id=("items", ["x", "y"])))
    with pytest.raises(InputError, match="focal has neither item_difficulty_se"):
        irt.lord_dif(one, two.drop_vars("item_difficulty_se"))
