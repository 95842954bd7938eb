"""Differential functioning of items with more than two categories."""

from __future__ import annotations

import numpy as np
import pytest
from categories import category_probability
from scipy.stats import chi2

import irt_dask as irt
from irt_dask.curves import FAMILIES
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import ItemWarning
from irt_dask.evaluate import dif_directions
from irt_dask.evaluate.dif_tests import adjusted
from irt_dask.items.parameters import item_set

K = (2, 2, 3, 4, 3, 4, 3, 4)
MODEL = "2pl+gpcm"


def simulated(n, seed, *, focal=0.5, shift=(), mean=-0.5, graded=False):
    """Groups a and b; ``shift`` are logits that steps of items are easier for b."""
    rng = np.random.default_rng(seed)
    theta = np.concatenate(
        [rng.normal(size=n - int(n * focal)), rng.normal(mean, 1.1, int(n * focal))]
    )
    group = np.repeat(["a", "b"], [n - int(n * focal), int(n * focal)])
    y = np.empty((n, len(K)), dtype=np.int8)
    for j, k in enumerate(K):
        b = np.linspace(-0.7, 0.7, len(K))[j] + 0.7 * (np.arange(k - 1) - 0.5 * (k - 2))
        a = 0.8 + 0.1 * j
        for g in "ab":
            own, move = group == g, dict(shift).get(j, 0.0) * (g == "b")
            if k == 2:
                p = category_probability("2pl", theta[own], [a, -a * b[0] + move])
            elif graded:
                p = category_probability("graded", theta[own], [a, *(-a * b + move)])
            else:
                steps = (-a * b + move).cumsum()
                p = category_probability("gpcm", theta[own], [a, *steps])
            y[own, j] = (rng.random(own.sum())[:, None] > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return irt.from_array(y, categories=K, persons={"group": group})


def results(r, model=MODEL):
    fit = irt.fit_marginal(r, model=model, standard_errors=False, progress=False)
    return fit, irt.dif(r, fit, reference="a", focal="b", progress=False)


@pytest.mark.parametrize("name", ["graded", "gpcm", "nominal"])
def test_directions_are_all_parameters(name):
    """Together they span the derivatives by parameters; the shift is what it says."""
    model = FAMILIES[name](4)
    slope = np.array([[1.3, 0.7]])
    if name == "nominal":
        x = np.concatenate(
            [[[0.4, 1.0], [-0.3, 1.5], [1.1, 2.2]], [[0.2, 0.5], [0.1, 0.3], [-1, 0]]]
        )
    else:
        x = np.concatenate([slope, [[1.2, 2.0], [0.1, 0.5], [-1.0, -0.2]]])
    items = ItemSet.of(name, *x, n_categories=4)
    nodes = np.linspace(-3.0, 3.0, 31)
    table, by_parameter = dif_directions.tables(items, nodes), model.by_parameter(x, nodes)
    n = dif_directions.numbers(items)
    assert (n == len(model.parameters)).all()
    for j in range(2):
        own = table[:, 4 * j : 4 * j + 4].reshape(n[j], -1)
        want = by_parameter[:, j].reshape(n[j], -1)
        assert np.linalg.matrix_rank(own) == n[j]
        left = want - np.linalg.lstsq(own.T, want.T, rcond=None)[0].T @ own
        np.testing.assert_allclose(left, 0.0, atol=1e-9)
    h, a = 1e-5, items.slope()[:, None, None]
    moved = [model.log_p(x, nodes + s * h) for s in (1.0, -1.0)]
    shift = (moved[0] - moved[1]) / (2.0 * h) / a
    np.testing.assert_allclose(table[0], shift.reshape(table[0].shape), atol=1e-6)


def test_planted_differences_are_found():
    """A step of -.6 logits on item 3; its score falls by what quadrature says."""
    r = simulated(4000, 1, shift=((3, -0.6),))
    fit, found = results(r)
    assert int(np.nanargmax(found["item_dif_joint_chi2"].values)) == 3
    assert found["item_dif_class"].values[3] in "BC"
    assert (found["item_dif_class"].values[[0, 1, 2, 4, 5, 6, 7]] == "A").all()
    assert found["item_dif_joint_df"].values.tolist() == list(K)
    assert -0.8 < float(found["item_dif_shift"][3]) < -0.4
    items, x = item_set(fit, r.item_id), np.linspace(-7.0, 7.0, 1401)
    weight = np.exp(-0.5 * ((x - found.attrs["ability_mean_focal"])
                            / found.attrs["ability_sd_focal"]) ** 2)  # fmt: skip
    weight /= weight.sum()
    h, slope = 1e-4, float(fit["item_discrimination"][3])
    up, down = (items.expected(x + s * h)[3] @ weight for s in (1.0, -1.0))
    effect = (up - down) / (2.0 * h) / slope * float(found["item_dif_shift"][3])
    assert float(found["item_dif_score"][3]) == pytest.approx(effect, rel=1e-3)
    q = found["item_dif_uniform_q_value"].values
    assert q[3] < 0.05 < q[0]


@pytest.mark.slow
def test_levels():
    """60 data sets x 8 items without DIF: a share of .05 has an SD of .01; 3.5 of these."""
    p = []
    for seed in range(60):
        _, found = results(simulated(1600, 100 + seed))
        p.append(
            [found[f"item_dif_{x}_p_value"].values for x in ("uniform", "nonuniform", "joint")]
        )
    low = (np.array(p) < 0.05).mean(axis=(0, 2))
    assert ((low > 0.015) & (low < 0.085)).all(), low


def test_adjusted_p_values():
    """Against the definition: the smallest p n / rank of those no smaller."""
    p = np.array([0.01, np.nan, 0.04, 0.03, 0.5, 0.03])
    known = np.sort(p[np.isfinite(p)])
    want = [
        min(1.0, min(known[k] * 5 / (k + 1) for k in range(5) if known[k] >= x)) for x in p
        if np.isfinite(x)
    ]  # fmt: skip
    np.testing.assert_allclose(adjusted(p)[np.isfinite(p)], want)
    assert np.isnan(adjusted(p)[1])


def test_nominal_items_whose_slopes_say_little():
    """A last score of almost 0, and two categories alike: tested, and nobody else loses."""
    r = irt.simulate(3000, 6, model="nominal", categories=3, seed=3)
    y, bank = r.to_xarray()["response"].values, r.truth.drop_dims("persons")
    group = np.array(["a", "b"])[np.arange(3000) % 2]
    r = irt.from_array(y, categories=3, item_id=r.item_id, persons={"group": group})
    bank["item_category_score"][0] = [0.0, 1.0, 1e-5]
    bank["item_category_score"][1] = [0.0, 0.0, 1.0]
    found = irt.dif(r, bank, reference="a", focal="b", progress=False)
    assert np.isfinite(found["item_dif_joint_chi2"]).all()
    chi2 = found["item_dif_uniform_chi2"].values[2:]
    assert ((chi2 > 0.0) & (chi2 < 20.0)).all()
    se = found["item_dif_shift_se"].values[2:]  # their scores are not rounded away
    assert ((se > 0.02) & (se < 0.5)).all()


# --- two calibrations -----------------------------------------------------------------------------


def test_lords_test_of_steps():
    """By the numbers of the banks; the difficulty and the slope too; others are named."""
    r = simulated(3000, 5)
    one, two = (
        irt.fit_marginal(r.select(persons=part), model=MODEL, groups=False, progress=False)
        for part in (slice(0, 1500), slice(1500, 3000))
    )
    got, step = irt.lord_dif(one, two), "item_step_difficulty"
    difference = (two[step] - one[step]).values
    se = np.hypot(one[f"{step}_se"], two[f"{step}_se"]).values
    several = np.array(K) > 2
    difference[~several] = se[~several] = np.nan
    np.testing.assert_allclose(got[f"{step}_difference"], difference, rtol=1e-9)
    np.testing.assert_allclose(got[f"{step}_difference_se"], se, rtol=1e-9)
    z2 = (difference / se) ** 2
    np.testing.assert_allclose(got["item_lord_step_chi2"], z2, rtol=1e-9)
    np.testing.assert_allclose(got["item_lord_step_p_value"], chi2.sf(z2, 1), rtol=1e-9)
    assert np.isfinite(z2).sum(axis=1).tolist() == [k - 1 if k > 2 else 0 for k in K]
    assert np.isfinite(got["item_lord_discrimination_chi2"]).all()
    assert np.isfinite(got["item_lord_difficulty_chi2"]).all()
    other = two["item_model"].values.astype(object)
    other[3] = "graded"
    bare = two.drop_vars(f"{step}_se")
    with pytest.warns(ItemWarning, match=r"6 of 8 .* 2 \(no standard error of a step in both\)"):
        assert "item_lord_step_chi2" in irt.lord_dif(one, bare)
    changed = two.assign(item_model=("items", other.astype(str)))
    with pytest.warns(ItemWarning, match=r"1 of 8 .* 3 \(other categories or another model in"):
        left = irt.lord_dif(one, changed)["item_lord_step_chi2"].values
    np.testing.assert_array_equal(np.isnan(left[3]), True)
    np.testing.assert_array_equal(left[4:], got["item_lord_step_chi2"].values[4:])


@pytest.mark.slow
@pytest.mark.nightly
def test_level_of_lords_test_of_steps():
    """60 pairs of calibrations, 840 steps without DIF: a share of .05 has an SD of .0075 if steps
    are independent, about .01 as they are; 3.5 of these."""
    low = []
    for seed in range(60):
        r = simulated(3000, 200 + seed, focal=0.0)
        fits = [
            irt.fit_marginal(
                r.select(persons=part), model=MODEL, groups=False, progress=False
            )
            for part in (slice(0, 1500), slice(1500, 3000))
        ]  # fmt: skip
        linked = irt.link(*fits)
        p = irt.lord_dif(fits[0], linked)["item_lord_step_p_value"].values
        low.append(p[np.isfinite(p)] < 0.05)
    share = np.concatenate(low).mean()
    assert 0.015 < share < 0.085, share
