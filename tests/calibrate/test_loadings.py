"""Which loadings are free, where chains start, and how shards are aligned."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.optimize import minimize_scalar

from irt_dask.calibrate.bayes import loadings
from irt_dask.errors import InputError

# --- which loadings are free ----------------------------------------------------------------------


def test_the_default_is_a_triangle_of_zeros():
    free = loadings.free_loadings(5, 3)
    np.testing.assert_array_equal(free[:3], np.tri(3, dtype=bool))
    assert free[3:].all()
    np.testing.assert_array_equal(loadings.anchors(free), [0, 1, 2])
    assert loadings.free_loadings(4, 1).all()


def test_a_mask_can_be_a_table():
    mask = np.array([[1, 1], [1, 0], [0, 1], [1, 1]], dtype=bool)
    ids = ["c", "a", "b", "d"]
    shuffled = [2, 0, 3, 1]
    frame = pd.DataFrame(mask, index=ids, columns=["reading", "number"]).iloc[shuffled]
    array = xr.DataArray(
        mask[shuffled].T, dims=("latent_dims", "items"),
        coords={"item_id": ("items", np.array(ids)[shuffled])},
    )  # fmt: skip
    for given in (mask, mask.astype(int), frame, array, mask.tolist()):
        np.testing.assert_array_equal(loadings.free_loadings(4, 2, given, ids), mask)


def rotations_left(free, seed=0):
    """Dimensions of the rotations, near none, that keep the zeros of some loadings."""
    rng = np.random.default_rng(seed)
    a = np.where(free, rng.normal(1.0, 1.0, free.shape), 0.0)
    q = free.shape[1]
    columns = []
    for i, j in itertools.combinations(range(q), 2):
        turn = np.zeros((q, q))
        turn[i, j], turn[j, i] = 1.0, -1.0
        columns.append((a @ turn)[~free])
    rank = np.linalg.matrix_rank(np.array(columns)) if (~free).any() else 0
    return q * (q - 1) // 2 - rank


def test_masks_that_are_accepted_leave_no_rotation():
    rng = np.random.default_rng(1)
    accepted = 0
    for _ in range(300):
        q = int(rng.integers(2, 5))
        free = rng.random((6, q)) < 0.5
        free[0, 0] = True
        try:
            free = loadings.free_loadings(6, q, free)
        except InputError:
            continue
        accepted += 1
        assert rotations_left(free) == 0
        item = loadings.anchors(free)
        # In some order each anchor loads on its dimension and on no later one.
        assert any(
            all(free[item[p], p] and not free[item[p], order[k + 1 :]].any()
                for k, p in enumerate(order))
            for order in map(list, itertools.permutations(range(q)))
        )  # fmt: skip
    assert accepted > 20
    assert rotations_left(np.ones((6, 2), dtype=bool)) == 1  # the check sees something


def mask(*rows):
    return np.array([[c == "1" for c in row] for row in rows])


@pytest.mark.parametrize(("given", "match"), [
    (mask("10", "11", "11"), None),
    (mask("11", "11", "11"), "do not identify dimensions 0, 1: they can be rotated"),
    (mask("100", "111", "111", "111"), r"dimensions 1, 2:.*apart from 0, which are held"),
    (mask("10", "10", "10"), "no item loads on dimension 1"),
    (mask("10", "11", "00"), r"1 item\(s\) load on no dimension: 2"),
    (mask("1", "1"), r"3 items x 2 dimensions.*\(2, 1\)"),
    (np.full((3, 2), 0.5), "true or false"),
    (np.full((3, 2), np.nan), "true or false"),
    (pd.DataFrame(mask("10", "11"), index=["0", "1"]), "1 item.*no row: 2"),
    (pd.DataFrame(mask("10", "11", "11", "11"), index=list("0122")), "each once"),
    (xr.DataArray(mask("10", "11", "11"), dims=("items", "dims")), "latent_dims"),
])  # fmt: skip
def test_masks_that_do_not_identify_are_refused(given, match):
    n_dims = 3 if isinstance(given, np.ndarray) and given.shape[1] == 3 else 2
    n_items = 4 if n_dims == 3 else 3
    if match is None:
        assert loadings.free_loadings(n_items, n_dims, given).sum() == given.sum()
        return
    with pytest.raises(InputError, match=match):
        loadings.free_loadings(n_items, n_dims, given)


@pytest.mark.parametrize("n_dims", [0, 4, 1.5])
def test_bad_numbers_of_dimensions_are_refused(n_dims):
    with pytest.raises(InputError, match="n_dims"):
        loadings.free_loadings(3, n_dims)


def test_correlated_dimensions_need_two_items_of_their_own():
    good = mask("10", "10", "01", "01", "11")
    np.testing.assert_array_equal(loadings.free_loadings(5, 2, good, correlated=True), good)
    assert loadings.free_loadings(5, 1, correlated=True).all()
    with pytest.raises(InputError, match="need loadings="):
        loadings.free_loadings(5, 2, correlated=True)
    with pytest.raises(InputError, match=r"dimension\(s\) 1 \(1\)"):
        loadings.free_loadings(5, 2, mask("10", "10", "01", "11", "11"), correlated=True)


def test_positive_loadings():
    free = loadings.free_loadings(6, 3)
    np.testing.assert_array_equal(loadings.positive_loadings(free), free)
    some = loadings.positive_loadings(free, "anchors")
    np.testing.assert_array_equal(some.sum(axis=0), 1)
    np.testing.assert_array_equal(some[:3], np.eye(3, dtype=bool))
    with pytest.raises(InputError, match="positive='none'"):
        loadings.positive_loadings(free, "none")


# --- where chains start ---------------------------------------------------------------------------


@pytest.mark.parametrize("positive", loadings.POSITIVE)
def test_start_values_have_the_shares_of_right_answers(positive):
    free = loadings.free_loadings(8, 2)
    sign = loadings.positive_loadings(free, positive)
    right, seen = np.array([0, 100, 20, 50, 70, 90, 10, 40]), np.full(8, 100)
    a, d = loadings.start(right, seen, free, sign)
    assert (a[free] > 0).all()
    assert (a[~free] == 0).all()
    if positive == "all":
        np.testing.assert_allclose((a**2).sum(1), 1.0)
    theta = np.random.default_rng(2).standard_normal((200_000, 2))
    share = (1.0 / (1.0 + np.exp(-(theta @ a.T + d)))).mean(0)
    np.testing.assert_allclose(share, (right + 0.5) / (seen + 1), atol=0.015)


def test_start_values_scatter_within_their_limits():
    free = loadings.free_loadings(200, 3)
    sign = loadings.positive_loadings(free, "anchors")
    sign[100:] = free[100:]
    a, d = loadings.start(np.full(200, 30), np.full(200, 60), free, sign)
    rng = np.random.default_rng(3)
    a1, d1 = loadings.scatter(a, d, free, sign, rng)
    a2, _ = loadings.scatter(a, d, free, sign, rng)
    assert (a1[sign] > 0).all()
    assert (a1[~free] == 0).all()
    assert (a1[free] != a2[free]).all()
    assert 0.15 < np.std(d1 - d) < 0.25
    assert 0.15 < np.std(np.log(a1[sign] / a[sign])) < 0.25
    assert (a1[free & ~sign] < 0).any()
    zero, _ = loadings.scatter(0 * a, d, free, sign, rng)  # a bad start is moved off the bound
    assert (zero[sign] > 0.05).all()


# --- aligning shards ------------------------------------------------------------------------------


def shards(q, n_shards=6, m=12, seed=4, noise=0.05):
    rng = np.random.default_rng(seed)
    a = rng.normal(0.5, 1.0, (m, q))
    return a, [a + noise * rng.standard_normal((m, q)) for _ in range(n_shards)], rng


@pytest.mark.parametrize("q", [1, 2, 3, 5])
def test_flips_and_permutations_are_undone(q):
    a, means, rng = shards(q)
    free, positive = np.ones(a.shape, dtype=bool), np.zeros(a.shape, dtype=bool)
    changed = [mean[:, rng.permutation(q)] * rng.choice([-1.0, 1.0], q) for mean in means]
    size = [10, 20, 90, 5, 5, 5]
    order, sign, rotation = loadings.align(changed, free, positive, size)
    assert order.shape == sign.shape == (6, q)
    np.testing.assert_array_equal(order[2], np.arange(q))
    np.testing.assert_array_equal(sign[2], 1.0)
    assert rotation[2] == pytest.approx(0.0, abs=1e-4)
    for k in range(6):
        aligned = sign[k] * changed[k][:, order[k]]
        assert np.abs(aligned - changed[2]).max() < 0.4
        draws = np.concatenate([changed[k].T, rng.normal(size=(1, 12))])[None]
        moved = loadings.move(draws, order[k], sign[k])
        np.testing.assert_array_equal(moved[0, :q], aligned.T)
        np.testing.assert_array_equal(moved[0, q], draws[0, q])
    assert (rotation < 8).all()


def test_the_best_of_all_signed_permutations_is_taken():
    rng = np.random.default_rng(5)
    free, positive = np.ones((4, 3), dtype=bool), np.zeros((4, 3), dtype=bool)
    for _ in range(20):
        means = [rng.standard_normal((4, 3)) for _ in range(2)]
        order, sign, _ = loadings.align(means, free, positive)
        best = min(
            np.linalg.norm(means[0] - s * means[1][:, p])
            for p in map(list, itertools.permutations(range(3)))
            for s in itertools.product([-1.0, 1.0], repeat=3)
        )
        got = np.linalg.norm(means[0] - sign[1] * means[1][:, order[1]])
        assert got == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("positive", loadings.POSITIVE)
def test_what_zeros_and_signs_identify_is_left_alone(positive):
    free = loadings.free_loadings(12, 3)
    _, means, _ = shards(3)
    means = [np.where(free, mean, 0.0) for mean in means]
    means[1] = -means[1][:, ::-1]  # a shard that is far off is no reason
    order, sign, rotation = loadings.align(means, free, loadings.positive_loadings(free, positive))
    np.testing.assert_array_equal(order, np.tile(np.arange(3), (6, 1)))
    np.testing.assert_array_equal(sign, 1.0)
    assert rotation[1] > 30 > rotation[2:].max()


def test_only_symmetries_are_applied():
    # Dimensions 0 and 1 have the same zeros, 2 has others; 0 and 1 are positive.
    free = np.ones((12, 3), dtype=bool)
    free[:4, 2] = False
    a, _, _ = shards(3)
    a = np.where(free, np.abs(a), 0.0)
    positive = free.copy()
    positive[:, 2] = False
    order, sign, _ = loadings.align([a, -a[:, [1, 0, 2]]], free, positive)
    np.testing.assert_array_equal(order[1, 2], 2)
    np.testing.assert_array_equal(sign, [[1, 1, 1], [1, 1, -1]])
    order, _, _ = loadings.align([a, a[:, [1, 0, 2]]], free, positive)
    np.testing.assert_array_equal(order[1], [1, 0, 2])


@pytest.mark.parametrize("degrees", [0.0, 3.0, 25.0])
def test_what_rotation_is_left(degrees):
    a, _, _ = shards(2, seed=6)
    t = np.radians(degrees)
    turn = np.array([[np.cos(t), np.sin(t)], [-np.sin(t), np.cos(t)]])
    free = np.ones(a.shape, dtype=bool)
    _, _, rotation = loadings.align([a, a @ turn], free, free)
    assert rotation[0] == pytest.approx(0.0, abs=1e-5)
    assert rotation[1] == pytest.approx(degrees, abs=1e-5)


def test_the_rotation_is_the_least_squares_one():
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((2, 9, 2)) + 1.0
    free = np.ones(a.shape, dtype=bool)
    _, _, rotation = loadings.align([a, b], free, free)
    order = loadings.align([a, b], free, free)[0][1]

    def loss(t):
        turn = np.array([[np.cos(t), np.sin(t)], [-np.sin(t), np.cos(t)]])
        return np.linalg.norm(a - b[:, order] @ turn)

    start = min(np.linspace(-3, 3, 61), key=loss)
    best = minimize_scalar(loss, bounds=(start - 0.1, start + 0.1), method="bounded").x
    assert rotation[1] == pytest.approx(abs(np.degrees(best)), abs=0.01)


def test_correlations_move_with_their_dimensions():
    rng = np.random.default_rng(8)
    theta = rng.multivariate_normal(np.zeros(3), np.eye(3) + 0.5, 50)
    r = np.corrcoef(theta.T)
    order, sign = np.array([2, 0, 1]), np.array([1.0, -1.0, 1.0])
    moved = loadings.move_correlation(r[None], order, sign)[0]
    np.testing.assert_allclose(moved, np.corrcoef((sign * theta[:, order]).T))
