"""The mu-complexity against brute force over directions, linear programs, and other blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from items import intercept_bank, respond
from parts import csr_of
from scipy import optimize

import irt_dask as irt
from irt_dask.curves.grids import ABILITY_BOUND
from irt_dask.errors import EstimationError
from irt_dask.kernels.coresets import complexity as kernel
from irt_dask.kernels.joint import modes
from irt_dask.kernels.joint.parameters import Items
from irt_dask.kernels.responses import layouts

VALUES = ("item_mu0", "item_mu1")


# --- one item -------------------------------------------------------------------------------------


def by_ability(theta, y, weight):
    """Distinct abilities, and weights right and wrong at them."""
    x, at = np.unique(theta, return_inverse=True)
    return x, *(np.bincount(at, weight * (y == v), minlength=x.size) for v in (1, 0))


def brute_force(theta, y, weight):
    """Both suprema from the definition, over rows and directions of the plane."""
    rows = -np.where(y == 1, 1.0, -1.0)[:, None] * np.stack([theta, -np.ones_like(theta)], axis=1)
    angle = np.linspace(0.0, 2.0 * np.pi, 1441)
    tau = np.concatenate([theta, theta - 1e-7, theta + 1e-7])
    eta = np.concatenate(
        [
            np.stack([np.cos(angle), np.sin(angle)], axis=1),
            np.stack([np.ones_like(tau), tau], axis=1),
            -np.stack([np.ones_like(tau), tau], axis=1),
            [[0.0, 1.0], [0.0, -1.0]],
        ]
    )
    z = rows @ eta.T
    generic = (np.abs(z) > 1e-12).all(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        zero = (weight @ (z > 0) / (weight @ (z < 0)))[generic]
        one = weight @ np.maximum(z, 0.0) / (weight @ np.maximum(-z, 0.0))
    return np.nanmax(zero), np.nanmax(one)


def linear_program(theta, y, weight):
    """mu_1 - 1 is the largest sum of all entries of X eta for a negative part of norm 1."""
    sign = -np.where(y == 1, 1.0, -1.0) * weight
    x = np.stack([sign * theta, -sign], axis=1)
    n = theta.size
    out = optimize.linprog(
        np.concatenate([[0.0, 0.0], np.ones(n)]),
        A_ub=np.hstack([-x, -np.eye(n)]),
        b_ub=np.zeros(n),
        A_eq=[np.concatenate([x.sum(axis=0), np.zeros(n)])],
        b_eq=[1.0],
        bounds=[(None, None)] * 2 + [(0.0, None)] * n,
    )
    if out.status == 2:  # the rows sum to nothing in every direction
        return 1.0
    assert out.status == 0
    return 1.0 + 1.0 / out.fun if out.fun > 1e-12 else np.inf


persons = st.lists(
    st.tuples(st.integers(-4, 4), st.integers(0, 1), st.sampled_from([1.0, 1.0, 0.5, 2.75])),
    min_size=1,
    max_size=14,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(persons)
def test_sweep_is_the_supremum_over_directions(data):
    theta, y, weight = (np.array(v, dtype=float) for v in zip(*data, strict=True))
    theta = theta * 0.7 + 0.1
    mu = kernel.sweep(*by_ability(theta, y, weight))
    expected = brute_force(theta, y, weight)
    np.testing.assert_allclose(mu[0], expected[0], rtol=1e-13)
    if np.isinf(mu[1]):  # rounding may leave the brute force a little to divide by
        assert expected[1] > 1e9
    else:
        np.testing.assert_allclose(mu[1], expected[1], rtol=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_sweep_solves_the_linear_program(seed):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=40).round(1 if seed % 2 else 6)
    y = (rng.random(40) < 1.0 / (1.0 + np.exp(-2.0 * theta + 0.5))).astype(float)
    weight = rng.uniform(0.5, 3.0, 40) if seed % 3 == 0 else np.ones(40)
    mu = kernel.sweep(*by_ability(theta, y, weight))
    np.testing.assert_allclose(mu[1], linear_program(theta, y, weight), rtol=1e-7)


def test_sweep_by_hand():
    # right at 0 and 2, wrong at 1: the best threshold breaks one of three
    assert kernel.sweep(np.arange(3.0), np.array([1, 0, 1]), np.array([0, 1, 0])) == (2.0, 2.0)
    # separated, but for persons of both kinds at the threshold: directions beside it break them
    mixed = kernel.sweep(np.arange(3.0), np.array([0, 2, 4]), np.array([4, 2, 0]))
    assert mixed == (5.0, np.inf)
    # one ability only: every direction says right or wrong of all
    assert kernel.sweep(np.array([0.3]), np.array([1]), np.array([4])) == (4.0, 4.0)
    assert np.isnan(kernel.sweep(np.zeros(0), np.zeros(0), np.zeros(0))).all()
    with pytest.raises(ValueError, match="distinct"):
        kernel.sweep(np.array([1.0, 1.0]), np.ones(2), np.ones(2))


# --- whole data -----------------------------------------------------------------------------------


def steep_items(n, m, seed=0, missing=0.0, one=False):
    rng = np.random.default_rng(seed)
    a = np.ones(m) if one else np.maximum(rng.normal(2.0, 0.3, m), 0.1)
    d = rng.normal(size=m)
    y = respond(rng, rng.standard_normal(n), a, d, missing=missing)
    return y, intercept_bank(a, d)


def gathered(y, items, weight=None):
    """The sweep over all persons, abilities rounded as documented; shape (items, 2)."""
    a, d = items["item_discrimination"].values, items["item_intercept"].values
    theta, _ = modes.modes(layouts.Dense(y), modes.tables(Items.of("2pl", a, d), ABILITY_BOUND))
    theta = np.rint((theta + ABILITY_BOUND) * kernel.PER_UNIT)
    weight = np.ones(len(y)) if weight is None else weight
    out = []
    for column in y.T:
        seen = column >= 0
        out.append(kernel.sweep(*by_ability(theta[seen], column[seen], weight[seen])))
    return np.array(out)


def check(result, expected, rtol=1e-12):
    np.testing.assert_allclose(result["item_mu0"], expected[:, 0], rtol=rtol)
    np.testing.assert_allclose(result["item_mu1"], expected[:, 1], rtol=2e-9)


@pytest.mark.parametrize("n", [7, 300, 6000])
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_whole_data_are_the_sweep_over_persons(n, missing):
    y, items = steep_items(n, 9, seed=n, missing=missing)
    y[:, :2] = np.where(y[:, :2] >= 0, 1 - y[:, :2], -1)  # the able get these wrong
    result = irt.coreset_complexity(y, items)
    check(result, gathered(y, items))
    assert result.attrs["n_passes"] <= 8


def test_persons_of_the_same_score_are_tied():
    y, items = steep_items(500, 6, one=True)
    result = irt.coreset_complexity(y, items)
    score = y.sum(axis=1).astype(float)
    expected = [kernel.sweep(*by_ability(score, c, np.ones(500)))[0] for c in y.T]
    np.testing.assert_allclose(result["item_mu0"], expected, rtol=1e-13)
    check(result, gathered(y, items))
    assert result.attrs["n_passes"] <= 4


def test_answers_that_ability_does_not_order():
    rng = np.random.default_rng(1)
    y, items = steep_items(4000, 30)
    y[:, 3] = rng.integers(0, 2, 4000)
    items["item_discrimination"][3] = 0.01
    result = irt.coreset_complexity(y, items)
    check(result, gathered(y, items))
    assert result["item_mu0"][3] < 1.2


def test_weights():
    y, items = steep_items(400, 5, missing=0.2)
    weight = np.random.default_rng(2).uniform(0.01, 30.0, 400)
    r = irt.from_array(y, persons={"weight": weight})
    check(irt.coreset_complexity(r, items), gathered(y, items, weight), rtol=1e-9)
    whole = irt.from_array(y, persons={"weight": np.full(400, 3.0)})
    one, three = irt.coreset_complexity(y, items), irt.coreset_complexity(whole, items)
    for name in VALUES:
        np.testing.assert_allclose(one[name], three[name], rtol=1e-12)


def test_special_items():
    y, items = steep_items(60, 7, seed=3)
    theta, _ = modes.modes(
        layouts.Dense(y[:, 4:]),
        modes.tables(
            Items.of(
                "2pl", items["item_discrimination"].values[4:], items["item_intercept"].values[4:]
            ),
            ABILITY_BOUND,
        ),
    )
    items["item_discrimination"][:4] = 1e-9  # abilities are told by the last three items
    items["item_intercept"][:4] = 0.0
    y[:, 0], y[:, 1] = 1, 0
    y[:, 2], y[:, 3] = theta > 0.2, -1
    result = irt.coreset_complexity(y, items)
    assert result["item_degenerate"].values.tolist() == [1, 1, 0, 1, 0, 0, 0]
    assert result["item_separable"].values.tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert np.isinf(result["item_mu0"][:3]).all()
    assert np.isinf(result["item_mu1"][:3]).all()
    assert np.isnan(result["item_mu0"][3])
    assert np.isnan(result["item_mu1"][3])
    for p in (0, 1):
        regular = result[f"item_mu{p}"].values[4:]
        assert (regular >= 1.0).all()
        assert result.attrs[f"mean_mu{p}"] == pytest.approx(regular.mean())
        assert result.attrs[f"median_mu{p}"] == np.median(regular)
        assert result.attrs[f"max_mu{p}"] == regular.max() < np.inf
    assert (result.attrs["n_degenerate"], result.attrs["n_separable"]) == (3, 1)


def test_only_special_items():
    items = intercept_bank(np.ones(2), np.zeros(2))
    result = irt.coreset_complexity(np.ones((5, 2), dtype=np.int8), items)
    assert result.attrs["n_degenerate"] == 2
    assert np.isnan(result.attrs["mean_mu0"])


def test_no_response_at_all():
    with pytest.raises(EstimationError, match="no person has any response"):
        irt.coreset_complexity(np.full((4, 2), -1), intercept_bank(np.ones(2), np.zeros(2)))


# --- what must not matter -------------------------------------------------------------------------


@pytest.mark.slow
def test_blocks_layout_order_and_workers_never_change_a_bit(bits, client):
    y, items = steep_items(700, 6, missing=0.3)
    expected = bits(irt.coreset_complexity(y, items))
    for other in (y[::-1], irt.from_array(y, rows_per_block=37)):
        assert bits(irt.coreset_complexity(other, items)) == expected
    sparse = irt.from_array(csr_of(y), observed="stored", rows_per_block=100)
    assert sparse.layout == "csr"
    assert bits(irt.coreset_complexity(sparse, items)) == expected
    blocks = irt.from_array(y, rows_per_block=64)
    assert bits(irt.coreset_complexity(blocks, items, client=client)) == expected


def test_everybody_twice():
    y, items = steep_items(300, 5, missing=0.1)
    once = irt.coreset_complexity(y, items)
    twice = irt.coreset_complexity(np.concatenate([y, y]), items)
    for name in VALUES:
        np.testing.assert_allclose(once[name], twice[name], rtol=1e-12)


def test_progress_ends_at_all_items():
    seen = []
    y, items = steep_items(200, 5)
    irt.coreset_complexity(y, items, progress=lambda *event: seen.append(event))
    assert seen[-1] == ("complexity", 5, 5)
