"""Anchors of DIF tests: others are tested beside them; they are found where a third differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from items import answers, bank
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

import irt_dask as irt
from irt_dask.errors import ApproximationWarning, EstimationError, InputError
from irt_dask.evaluate import dif_anchors

M, SHIFTED = 12, 4
NAMES = np.array([f"i{j}" for j in range(M)])


def shifted(rng: np.random.Generator, n: int) -> tuple[irt.Responses, Any]:
    """The first items are harder for the focal group, by .8 logits."""
    a, b = np.exp(rng.normal(0, 0.2, M)), rng.normal(size=M)
    focal = np.repeat([False, True], n)
    theta = rng.normal(size=2 * n) - 0.3 * focal
    z = a * (theta[:, None] - b) - 0.8 * np.outer(focal, np.arange(M) < SHIFTED)
    y = answers(rng, expit(z))
    r = irt.from_array(y, item_id=NAMES, persons={"group": np.where(focal, "f", "r")})
    return r, bank(a, b).assign_coords(item_id=("items", NAMES))


def run(r: Any, items: Any, **options: Any) -> Any:
    return irt.dif(r, items, reference="r", focal="f", **options)


@pytest.mark.slow
def test_others_are_tested_beside_the_anchors() -> None:
    """As a test of the anchors, or of these and the item, would say: to the bit."""
    r, items = shifted(np.random.default_rng(1), 300)
    names = ["i5", "i7", "i10", "i2"]
    found = run(r, items, anchors=names)
    assert found["item_dif_anchor"].values.tolist() == [n in names for n in NAMES]
    assert (found.attrs["anchors"], found.attrs["n_anchors"]) == ("given", 4)
    for more in ([], ["i0"], ["i11"]):
        own = run(r.select(items=sorted(names + more, key=lambda n: int(n[1:]))), items)
        for name in ("shift", "shift_se", "slope", "joint_chi2", "uniform_p_value", "score"):
            for item in more or names:
                got = found[f"item_dif_{name}"].values[item == NAMES]
                assert got == own[f"item_dif_{name}"].values[own["item_id"].values == item]
        if not more:
            assert found.attrs["ability_mean_focal"] == own.attrs["ability_mean_focal"]


@pytest.mark.slow
def test_anchors_are_found_where_a_third_of_the_items_differ() -> None:
    """Where all are anchors the shifted items stand for ability, and the others seem to differ."""
    r, items = shifted(np.random.default_rng(2), 1000)
    found = run(r, items, anchors="iterate")
    anchor, q = found["item_dif_anchor"].values, found["item_dif_uniform_q_value"].values
    assert not anchor[:SHIFTED].any()
    assert anchor[SHIFTED:].sum() >= 6
    assert (q[:SHIFTED] < 0.001).all()
    assert (q[SHIFTED:] > 0.05).all()
    shift, se = (found[f"item_dif_shift{x}"].values[:SHIFTED] for x in ("", "_se"))
    assert (np.abs(shift + 0.8) < 3.5 * se).all()
    assert found.attrs["ability_mean_focal"] == pytest.approx(-0.3, abs=0.15)
    assert found.attrs["n_rounds"] > 1
    every = run(r, items)
    assert (every["item_dif_uniform_q_value"].values[SHIFTED:] < 0.05).sum() >= 3
    assert every["item_dif_anchor"].values.all()


@pytest.mark.slow
def test_tests_know_the_error_of_the_place_that_anchors_were_found_at(monkeypatch: Any) -> None:
    """Where nothing is known of the place, shifts say nothing: changes of the slope alone do."""
    r, items = shifted(np.random.default_rng(4), 100)

    def tested(variance: float) -> Any:
        monkeypatch.setattr(dif_anchors, "doubt", lambda *of: variance)
        with pytest.warns(ApproximationWarning, match="hardly told"):
            out = irt.dif(r, items, reference="r", focal=["f"], anchors="iterate")
        return out.isel(focal=0)

    known, some, nothing = tested(0.0), tested(0.04), tested(1e5)
    se = [found["item_dif_shift_se"].values for found in (known, some, nothing)]
    np.testing.assert_allclose(se[1] ** 2, se[0] ** 2 + 0.04, rtol=1e-12)
    for found in (known, some, nothing):
        shift = found["item_dif_shift"].values
        np.testing.assert_allclose(shift, known["item_dif_shift"].values, rtol=1e-12)
        chi2 = (shift / found["item_dif_shift_se"].values) ** 2
        np.testing.assert_allclose(found["item_dif_uniform_chi2"].values, chi2, rtol=1e-9)
        # of one focal group the test of all is that of the pair
        np.testing.assert_allclose(found["item_dif_omnibus_chi2"].values,
                                   found["item_dif_joint_chi2"].values, rtol=1e-7)  # fmt: skip
        nonuniform = found["item_dif_nonuniform_chi2"].values
        np.testing.assert_allclose(nonuniform, known["item_dif_nonuniform_chi2"].values, rtol=1e-7)
    assert (some["item_dif_joint_chi2"] < known["item_dif_joint_chi2"]).all()
    np.testing.assert_allclose(
        nothing["item_dif_joint_chi2"].values, known["item_dif_nonuniform_chi2"].values, rtol=1e-4
    )


SOUND = np.arange(M) != 3


def differences(at: Any, differing: list[int]) -> dict[str, Any]:
    """What a test of some items returns, if these differ."""
    far = np.where(np.isin(at, differing), 1.0, 0.0)
    se = np.full(len(at), 0.1)
    return {
        "item_dif_shift": far, "item_dif_shift_se": se, "item_dif_slope": 0.0 * far,
        "item_dif_slope_se": se,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("differing", "anchors", "n_rounds"),
    [(lambda at: [], SOUND, 1), (lambda at: [0, 1], SOUND & (np.arange(M) > 1), 2)],
)
def test_rounds(differing: Any, anchors: Any, n_rounds: int) -> None:
    def test(at: Any, unknown: Any) -> Any:
        return differences(at, differing(at)), at

    found = dif_anchors.iterated(test, SOUND)
    assert found.anchors.tolist() == anchors.tolist()
    assert found.n_rounds == n_rounds
    assert found.of_anchors.tolist() == np.flatnonzero(anchors).tolist()


def test_anchors_that_come_and_go_are_none() -> None:
    def test(at: Any, unknown: Any) -> Any:
        """Items 0 and 1 push each other out, one after the other."""
        out = [0] if 1 in at and len(at) == M - 1 else [1] if 0 not in at[:-1] else []
        return differences(at, out), None

    found = dif_anchors.iterated(test, SOUND)
    assert found.anchors.tolist() == (SOUND & (np.arange(M) != 1)).tolist()
    assert found.n_rounds == 5


def test_refusals() -> None:
    r, items = shifted(np.random.default_rng(3), 100)
    for anchors, said in (
        ("some", "none of 'all' and 'iterate'"), (["i0", "i77"], "no item is called 'i77'"),
        ([], "anchors is empty"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            run(r, items, anchors=anchors)

    def test(at: Any, unknown: Any) -> Any:
        return {**differences(at, []), "item_dif_slope": np.arange(len(at)) * 1.0}, None

    with pytest.raises(EstimationError, match=r"has left 1 anchor\(s\) after 1 round"):
        dif_anchors.iterated(test, SOUND)


def test_most_items_are_where_the_sum_of_kernels_is_largest() -> None:
    """On a fine grid; three in ten that are far away do not move it, of which the median knows."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        se = rng.uniform(0.8, 1.3, 40)
        x = se * rng.standard_normal(40)
        grid = np.linspace(-4.0, 4.0, 80001)
        sums = np.exp(-0.5 * ((grid[:, None] - x) / se) ** 2).sum(axis=1)
        assert dif_anchors.place(x, se) == pytest.approx(grid[sums.argmax()], abs=2e-4)
        far = np.append(x, 9.0 + rng.standard_normal(17))
        moved = dif_anchors.place(far, np.append(se, np.ones(17)))
        assert abs(moved - dif_anchors.place(x, se)) < 0.01
        assert np.median(far) - np.median(x) > 0.3


def moment(at: float, power: int, value: Any, error: Any) -> float:
    """Times the likelihood of a place: values are alike, or one in four moved by 1.5 ETS units."""
    alike = norm.pdf(value, at, error)
    moved = [norm.pdf(value, at + way * 1.5 / 2.35, np.hypot(error, 0.2)) for way in (-1, 1)]
    some = [(0.75 * alike + 0.25 * one).prod() for one in moved]
    return at**power * (alike.prod() + 0.5 * sum(some))


def test_doubt_of_a_place_is_what_an_integral_says() -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        error = rng.uniform(0.25, 0.35, 10)
        value = error * rng.standard_normal(10) + np.where(np.arange(10) < 3, 0.6, 0.0)
        moments = [quad(moment, -3.0, 4.0, args=(k, value, error), epsabs=0.0, limit=200)[0]
                   for k in range(3)]  # fmt: skip
        variance = moments[2] / moments[0] - (moments[1] / moments[0]) ** 2
        anchors = np.arange(10) != 1
        beyond = variance - 1.0 / (error[anchors] ** -2.0).sum()
        got = dif_anchors.doubt(value, error, anchors)
        assert got == pytest.approx(max(beyond, 0.0), rel=1e-4, abs=1e-8)


def test_a_place_is_in_doubt_where_errors_are_large_and_not_where_they_are_small() -> None:
    moved, every = np.where(np.arange(20) < 6, 0.6, 0.0), np.ones(20, dtype=bool)
    z = np.random.default_rng(1).standard_normal(20)
    root = [np.sqrt(dif_anchors.doubt(moved + se * z, np.full(20, se), every))
            for se in (0.3, 0.05, 0.01, 0.001)]  # fmt: skip
    assert root[0] > 0.05
    assert root[1] < 0.02
    assert root[2:] == [0.0, 0.0]
    assert dif_anchors.doubt(z, np.full(20, 0.3), ~every) == 0.0


def test_groups_in_which_anchors_are_hardly_told_are_named() -> None:
    data = {"item_dif_shift_se": np.array([[0.25, 0.3, np.nan], [0.1, 0.9, 0.1], [np.nan] * 3])}
    with pytest.warns(ApproximationWarning, match="less than 0.8 logits in 'b' are hardly told"):
        dif_anchors.warn_of_unsure(data, ["b", "c", "d"], 1)
