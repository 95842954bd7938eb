"""DIF of several groups and of weighted persons: by hand, levels, what weights mean."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from items import answers, bank, probability
from scipy.special import expit
from scipy.stats import chi2

import irt_dask as irt
from irt_dask.errors import ApproximationWarning, EstimationError, InputError
from irt_dask.items.parameters import item_set

SCORES = importlib.import_module("irt_dask.evaluate.dif_scores")
X = np.linspace(-7, 7, 141)


def drawn(rng: np.random.Generator, n: int, mean: float) -> tuple[Any, Any]:
    """Abilities of persons who are drawn the likelier the less able they are; inverse weights."""
    theta = rng.normal(mean, 1, 20 * n)
    w = (1 + 3 * expit(2 * (theta - mean))) * rng.uniform(0.5, 1.5, theta.size)
    at = np.flatnonzero(rng.random(theta.size) < 0.5 / w)[:n]
    return theta[at], w[at]


def data(
    rng: np.random.Generator, sizes: dict[str, int], m: int, *, shift: Any = None, impact: Any = ()
) -> tuple[Any, ...]:
    """Groups whose intercepts differ by ``shift[label]``: a, b, responses, labels and weights."""
    a, b = np.exp(rng.normal(0, 0.3, m)), rng.normal(size=m)
    parts = []
    for label, n in sizes.items():
        theta, w = drawn(rng, n, dict(impact).get(label, 0.0))
        z = a * (theta[:, None] - b) + (shift or {}).get(label, 0.0)
        parts.append((answers(rng, expit(z)), np.repeat(label, n), w))
    y, groups, weight = (np.concatenate(x) for x in zip(*parts, strict=True))
    return a, b, y, groups, weight


def given(y: Any, groups: Any, weight: Any = None, kind: str = "sampling", **options: Any) -> Any:
    columns = {"group": groups}
    if weight is not None:
        columns["weight"], options["weight_kind"] = weight, kind
    return irt.from_array(y, persons=columns, **options)


# --- by hand --------------------------------------------------------------------------------------


def posterior(y: Any, a: Any, d: Any, mean: float, sd: float) -> tuple[Any, Any]:
    p = probability(X, a, d, np.zeros(len(a)))
    log = (y == 1) @ np.log(p).T + (y == 0) @ np.log1p(-p).T - 0.5 * ((X - mean) / sd) ** 2
    w = np.exp(log - log.max(axis=1, keepdims=True))
    return p, w / w.sum(axis=1, keepdims=True)


def weighted_scores(y: Any, groups: Any, labels: Any, a: Any, b: Any, weight: Any) -> Any:
    """Scores and weights of the persons of each group."""
    out = {}
    for label in labels:
        at = groups == label
        w = np.ones(at.sum()) if weight is None else weight[at] / weight[at].mean()
        out[label] = (*scores(y[at], w, a, -a * b), w)
    return out


def scores(y: Any, w: Any, a: Any, d: Any) -> tuple[Any, Any]:
    """By intercept and slope (persons, 2 m), and by mean and SD of the weighted population."""
    mean, sd = 0.0, 1.0
    for _ in range(150):
        _, q = posterior(y, a, d, mean, sd)
        mean = w @ q @ X / w.sum()
        sd = np.sqrt(w @ q @ (X - mean) ** 2 / w.sum())
    p, q = posterior(y, a, d, mean, sd)
    h = np.where((y >= 0)[:, None, :], y[:, None, :] - p, 0.0)
    u = (X - mean) / sd
    own = np.hstack([np.einsum("iq,iqj->ij", q, k * h) for k in (1.0, X[:, None])])
    return own, np.stack([q @ u, q @ u**2 - 1], axis=1)


def by_hand(found: Any, labels: Any) -> tuple[Any, Any, Any]:
    """Sandwich tests of all directions of each item in all focal groups, shifts and errors.

    The first label is the reference.
    """
    n_focal, own, common, ws = len(labels) - 1, [], [], []
    for k, label in enumerate(labels):
        s, t, w = found[label]
        m = s.shape[1] // 2
        mine, other = np.zeros((len(s), n_focal, 2 * m)), np.zeros((len(s), n_focal, 2))
        if k:
            mine[:, k - 1], other[:, k - 1] = s, t
        own.append(mine), common.append(np.hstack([s, other.reshape(len(s), -1)])), ws.append(w)
    own, common, w = map(np.concatenate, (own, common, ws))
    root, n, k = np.sqrt(w)[:, None], len(w), common.shape[1]
    flat = own.reshape(n, -1)
    beta = np.linalg.lstsq(root * common, root * flat, rcond=None)[0]
    rest = (flat - common @ beta).reshape(own.shape)
    in_effect = sum(x.sum() ** 2 / (x @ x) for x in ws)
    total = w @ common
    explained = total @ np.linalg.solve(common.T @ (w[:, None] * common), total)
    scale = (in_effect - explained * in_effect / n) / (in_effect - k)
    out, shift = [], []
    for j in range(m):
        r = rest[:, :, [j, m + j]].reshape(n, -1)
        u, z = w @ r, w[:, None] * r
        v = z.T @ z * scale
        out.append(u @ np.linalg.solve(v, u))
        h = scale * (w * rest[:, 0, j] ** 2).sum()
        shift.append((u[0] / h, np.sqrt(v[0, 0]) / h))
    return np.array(out), *np.array(shift).T


@pytest.mark.parametrize("weighted", [False, True])
def test_by_hand(weighted: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(SCORES, "_MANY", 0)  # the persons' own scores say how they vary
    rng = np.random.default_rng(1)
    sizes = {"r": 150, "x": 40, "f": 160, "g": 120}
    impact, shift = {"f": -0.5, "g": 0.4}, {"g": np.r_[0.9, np.zeros(5)]}
    a, b, y, groups, weight = data(rng, sizes, 6, shift=shift, impact=impact)
    y[rng.random(y.shape) < 0.15] = -1
    w = weight if weighted else None
    r = given(y, groups, w)
    got = irt.dif(r, bank(a, b), reference="r", focal=["f", "g"])
    found = weighted_scores(y, groups, "rfg", a, b, w)
    want, _, _ = by_hand(found, "rfg")
    np.testing.assert_allclose(got["item_dif_omnibus_chi2"], want, rtol=3e-3, atol=1e-3)
    assert got["item_dif_omnibus_df"].values.tolist() == [4] * 6
    np.testing.assert_allclose(got["item_dif_omnibus_p_value"], chi2.sf(want, 4), rtol=0.02)
    for label in "fg":
        joint, shift, error = by_hand(found, ["r", label])
        one = got.sel(focal=label)
        np.testing.assert_allclose(one["item_dif_joint_chi2"], joint, rtol=3e-3, atol=1e-3)
        np.testing.assert_allclose(one["item_dif_shift"], shift, rtol=3e-3, atol=2e-4)
        np.testing.assert_allclose(one["item_dif_shift_se"], error, rtol=3e-3)


def test_one_group_of_a_list_is_as_one_alone() -> None:
    """Up to the rounding of scores, whose divisors are those of all groups."""
    rng = np.random.default_rng(2)
    a, b, y, groups, _ = data(rng, {"r": 200, "f": 150, "g": 100}, 5, impact={"g": -0.5})
    r = given(y, groups)
    several = irt.dif(r, bank(a, b), reference="r", focal=None)
    assert several["focal"].values.tolist() == ["f", "g"]
    assert several["focal_n_persons"].values.tolist() == [150, 100]
    for label in "fg":
        alone = irt.dif(r, bank(a, b), reference="r", focal=label)
        one = several.sel(focal=label)
        for name in alone.data_vars:
            x, y = one[name].values, alone[name].values
            if x.dtype.kind == "f":
                np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4, err_msg=str(name))
            else:
                assert x.tolist() == y.tolist()
        for name in ("mean", "sd"):
            assert one[f"focal_ability_{name}"] == alone.attrs[f"ability_{name}_focal"]
        assert not [v for v in alone if "omnibus" in str(v)]
    listed = irt.dif(r, bank(a, b), reference="r", focal=["g"])
    for kind in ("chi2", "df", "p_value"):
        np.testing.assert_allclose(
            listed[f"item_dif_omnibus_{kind}"].values,
            listed["item_dif_joint_df"] if kind == "df" else listed[f"item_dif_joint_{kind}"][0],
            rtol=1e-9,
        )


def test_the_reference_is_looked_at_once(monkeypatch: Any) -> None:
    rng = np.random.default_rng(3)
    a, b, y, groups, _ = data(rng, {"r": 100, "f": 100, "g": 100, "h": 100}, 4)
    seen, original = [], SCORES._group

    def counted(part: Any, *args: Any) -> Any:
        seen.append(part.responses.n_persons)
        return original(part, *args)

    monkeypatch.setattr(SCORES, "_group", counted)
    irt.dif(given(y, groups), bank(a, b), reference="r", focal=["f", "g", "h"])
    assert seen == [100] * 4


def test_groups_that_did_not_answer_an_item() -> None:
    """They are out of its test of all groups, whoever they are."""
    rng = np.random.default_rng(4)
    a, b, y, groups, _ = data(rng, {"r": 200, "f": 200, "g": 200}, 6)
    y[groups == "f", 0] = -1
    y[groups == "r", 1] = -1
    y[groups != "g", 2] = -1
    got = irt.dif(given(y, groups), bank(a, b), reference="r", focal=["f", "g"])
    assert got["item_dif_omnibus_df"].values.tolist() == [2, 2, 0, 4, 4, 4]
    known = np.isfinite(got["item_dif_omnibus_chi2"].values)
    assert known.tolist() == [True, True, False, True, True, True]
    assert np.isnan(got["item_dif_uniform_chi2"].values[:, [1, 2]]).all()
    # What there is of item 0 is said by g alone, next to f's share in the other items.
    assert got["item_dif_omnibus_chi2"][0] == pytest.approx(got["item_dif_joint_chi2"][1, 0], abs=1)


@pytest.mark.slow
def test_anchors_are_the_same_in_all_groups(monkeypatch: Any) -> None:
    monkeypatch.setattr(SCORES, "_SIMULATED", 2000)  # for speed
    rng = np.random.default_rng(5)
    shift = {"f": -1.2 * (np.arange(11) < 2), "g": -1.2 * np.isin(np.arange(11), [2, 3])}
    a, b, y, groups, _ = data(rng, dict.fromkeys("rfg", 600), 11, shift=shift)
    got = irt.dif(given(y, groups), bank(a, b), reference="r", focal=["f", "g"], anchors="iterate")
    anchor = got["item_dif_anchor"].values
    assert anchor.shape == (11,)
    assert not anchor[:4].any()
    assert anchor[4:].sum() >= 4
    assert (got["item_dif_omnibus_q_value"].values[:4] < 1e-3).all()
    assert (got["item_dif_uniform_q_value"].values[0, :2] < 1e-3).all()


def test_refusals(monkeypatch: Any) -> None:
    rng = np.random.default_rng(6)
    a, b, y, groups, _ = data(rng, {"r": 60, "f": 60, "g": 5}, 3)
    r, items = given(y, groups), bank(a, b)
    for focal, said in (
        ([], "focal is empty"), (["f", "r"], "reference and focal both hold 'r'"),
        (["f", "f"], "focal names f more than once"), (["f", "z"], "nobody belongs to group 'z'"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            irt.dif(r, items, reference="r", focal=focal)
    alone = given(y[:60], groups[:60])
    with pytest.raises(InputError, match="everybody belongs to group 'r'"):
        irt.dif(alone, items, reference="r", focal=None)
    with pytest.raises(InputError, match="have no groups"):
        irt.dif(y, items, reference="r", focal=None)
    few = np.flatnonzero(np.isin(np.arange(125), [0, 1, 60, 61]))
    with pytest.raises(EstimationError, match="4 persons of groups 'r' and 'f'"):
        irt.dif(given(y[few], groups[few]), items, reference="r", focal=["f"])
    monkeypatch.setattr(SCORES, "_PERSON_BITS", 11)
    for weight, kind, most in ((1.5, "sampling", 32), (40.0, "frequency", 2048)):
        weighted = given(y, groups, np.full(125, weight), kind)
        with pytest.raises(InputError, match=f"scores of {most} at most"):
            irt.dif(weighted, items, reference="r", focal="f")


def test_persons_are_counted_in_effect(monkeypatch: Any) -> None:
    """(sum w)^2 / sum w^2: 14 in each group of 22, fewer in both than parameters of 13 items."""
    monkeypatch.setattr(SCORES, "_SIMULATED", 2000)  # for speed
    rng = np.random.default_rng(11)
    a, b, y, groups, _ = data(rng, {"r": 22, "f": 22}, 13)
    r = given(y, groups, np.where(np.arange(44) % 2 == 0, 8.0, 1.0))
    with pytest.warns(ApproximationWarning, match="of a group in effect, .*fewest: 14 of group"):
        irt.dif(r.select(items=r.item_id[:5]), bank(a, b), reference="r", focal="f")
    with pytest.raises(EstimationError, match="27 persons in effect and 28 common parameters"):
        irt.dif(r, bank(a, b), reference="r", focal="f")


# --- weights --------------------------------------------------------------------------------------


def test_frequencies_are_persons_with_large_counts(monkeypatch: Any) -> None:
    """More than a digit of the sums; simulated persons are others than rows."""
    rng = np.random.default_rng(7)
    a, b, y, groups, _ = data(rng, {"r": 12, "f": 12}, 4)
    times = rng.choice([1, 3, 40, 700], 24)
    r = given(y, groups, times.astype(float), "frequency", rows_per_block=7)
    whole = given(np.repeat(y, times, axis=0), np.repeat(groups, times))
    for many in (5000, 0):
        monkeypatch.setattr(SCORES, "_MANY", many)
        got, want = (irt.dif(x, bank(a, b), reference="r", focal="f") for x in (r, whole))
        for name in want.data_vars:
            if want[name].dtype.kind == "f":
                np.testing.assert_allclose(got[name], want[name], rtol=1e-9, err_msg=str(name))
        assert got.attrs["n_focal"] == want.attrs["n_focal"]
        assert got.attrs["weight_kind"] == "frequency"


def test_variances_of_simulated_persons_are_those_of_weighted_ones(monkeypatch: Any) -> None:
    """Squares of weighted scores of 30,000 persons, whose weights rise with ability.

    Their standard errors are about 1.5%: 8% is 5 of these.  Abilities as those of the whole
    population would make the squares of some scores too large or small by 15% and more.
    """
    rng = np.random.default_rng(8)
    a, b, y, groups, weight = data(rng, {"r": 30_000}, 6)
    r, items = given(y, groups, weight), item_set(bank(a, b), tuple(map(str, range(6))))
    asked, found = SCORES.Asked(1, None, False), []
    for many in (0, 10**9):
        monkeypatch.setattr(SCORES, "_MANY", many)
        found.append(SCORES.of_parts([r], items, asked).groups[0])
    own, simulated = found
    assert (own.n_replicates, simulated.n_replicates) == (0, 1)
    ratio = np.diag(simulated.products)[:12] / np.diag(own.products)[:12]
    np.testing.assert_allclose(ratio, 1.0, atol=0.08)
    ratio = np.diag(simulated.squares)[:12] / np.diag(own.squares)[:12]
    np.testing.assert_allclose(ratio, 1.0, atol=0.08)
    n = own.n_effective
    assert n == pytest.approx(weight.sum() ** 2 / (weight @ weight), rel=1e-3)
    off = np.diag(own.squares)[:12] / np.diag(own.products)[:12] / (30_000 / n)
    assert np.abs(off - 1.0).max() > 0.15
    assert own.known.mean == pytest.approx(0.0, abs=0.05)  # of the population


@pytest.mark.nightly
@pytest.mark.parametrize(("n", "impact"), [(200, -1.0), (1000, 0.0)])
def test_level_with_weights(n: int, impact: float) -> None:
    """2,000 tests of each kind without DIF: 5% has a standard error of .5%; 3.5 of these."""
    rng = np.random.default_rng(9)
    low = []
    for _ in range(100):
        sizes = {"r": 1000, "f": n}
        a, b, y, groups, weight = data(rng, sizes, 20, impact={"f": impact})
        got = irt.dif(given(y, groups, weight), bank(a, b), reference="r", focal=["f"])
        kinds = ("uniform", "nonuniform", "omnibus")
        low.append([got[f"item_dif_{k}_p_value"].values.ravel() < 0.05 for k in kinds])
    share = np.mean(low, axis=(0, 2))
    assert (np.abs(share - 0.05) < 3.5 * 0.005).all(), share


@pytest.mark.slow
@pytest.mark.nightly
def test_level_of_all_groups() -> None:
    """2,000 tests of three focal groups: 5% has a standard error of .5%; 3.5 of these."""
    rng = np.random.default_rng(10)
    low = []
    for _ in range(100):
        sizes = {"r": 500, "f": 100, "g": 200, "h": 300}
        a, b, y, groups, _ = data(rng, sizes, 20, impact={"f": -1.0, "h": 0.5})
        got = irt.dif(given(y, groups), bank(a, b), reference="r", focal=None)
        low.append(got["item_dif_omnibus_p_value"].values < 0.05)
    assert abs(np.mean(low) - 0.05) < 3.5 * 0.005, np.mean(low)
