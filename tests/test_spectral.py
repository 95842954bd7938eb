"""The spectral estimator against published values, its own Markov chain, and a permutation."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import irt_dask as irt
from irt_dask.errors import EstimationError, InputError

LSAT = {
    0.0: [-1.2957, 0.4788, 1.2465, 0.1722, -0.6018],
    1.0: [-1.2804, 0.4734, 1.2365, 0.1689, -0.5984],
}


def random_rasch(seed, n=400, m=12, missing=0.6):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 1)) - rng.normal(size=m)
    y = (rng.random((n, m)) < 1 / (1 + np.exp(-z))).astype(np.int8)
    y[rng.random((n, m)) < missing] = -1
    return y


def chain(y, nu):
    """Algorithm 1 with one d for all items: power iteration of a row-stochastic matrix."""
    right, wrong, seen = (y == 1) * 1.0, (y == 0) * 1.0, (y >= 0) * 1.0
    rates = right.T @ wrong + nu * (seen.T @ seen > 0)
    np.fill_diagonal(rates, 0.0)
    d = 1.01 * rates.sum(axis=1).max()
    step = rates / d
    step += np.diag(1 - step.sum(axis=1))
    pi = np.full(len(rates), 1 / len(rates))
    for _ in range(200_000):
        new = pi @ step
        if np.abs(new - pi).max() < 1e-16:
            break
        pi = new
    beta = np.log(pi)
    return beta - beta.mean()


@pytest.mark.parametrize("nu", [0.0, 1.0])
def test_lsat(nu):
    fit = irt.fit_spectral(irt.load_lsat(), regularization=nu)
    np.testing.assert_allclose(fit["item_difficulty"], LSAT[nu], atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("nu", [0.0, 0.5, 1])
def test_power_iteration_finds_the_same(seed, nu):
    y = random_rasch(seed)
    fit = irt.fit_spectral(y, regularization=nu)
    np.testing.assert_allclose(fit["item_difficulty"], chain(y, nu), atol=1e-7)
    assert abs(fit["item_difficulty"].values.mean()) < 1e-12


def test_difficulties_are_estimated():
    """Consistency: 200,000 persons; standard errors are about 0.01, the limit is six of them."""
    r = irt.simulate(200_000, 8, model="1pl", seed=6)
    b = r.truth["item_difficulty"].values
    fit = irt.fit_spectral(r)
    np.testing.assert_allclose(fit["item_difficulty"], b - b.mean(), atol=0.06)


def test_pair_counts_are_exact_and_can_be_passed_on():
    y = random_rasch(7, n=90)
    counts = irt.pair_counts(irt.from_array(y, rows_per_block=13))
    np.testing.assert_array_equal(counts["pair_count"], (y == 1).T.astype(int) @ (y == 0))
    np.testing.assert_array_equal(counts["pair_observed"], (y >= 0).T.astype(int) @ (y >= 0))
    assert irt.fit_spectral(counts).identical(irt.fit_spectral(y))


def test_permuting_items_permutes_the_answer_and_persons_do_not_matter():
    y = random_rasch(8)
    rng = np.random.default_rng(0)
    items, persons = rng.permutation(12), rng.permutation(400)
    whole = irt.fit_spectral(y)["item_difficulty"].values
    np.testing.assert_allclose(
        irt.fit_spectral(y[:, items])["item_difficulty"], whole[items], atol=1e-10
    )
    np.testing.assert_array_equal(irt.fit_spectral(y[persons])["item_difficulty"], whole)


def test_sparse_input():
    y = random_rasch(9)
    rows, cols = np.nonzero(y >= 0)
    s = sp.csr_array((y[rows, cols].astype(float), (rows, cols)), shape=y.shape)
    r = irt.from_array(s, observed="stored", rows_per_block=37)
    np.testing.assert_array_equal(
        irt.fit_spectral(r)["item_difficulty"], irt.fit_spectral(y)["item_difficulty"]
    )


def test_items_that_nobody_answered_together_are_an_error_that_lists_the_groups():
    y = np.full((40, 5), -1)
    rng = np.random.default_rng(1)
    y[:20, :3] = rng.integers(0, 2, (20, 3))
    y[20:, 3:] = rng.integers(0, 2, (20, 2))
    r = irt.from_array(y, item_id=["a", "b", "c", "x", "y"])
    for nu in (0.0, 1.0):
        with pytest.raises(
            EstimationError, match=r"2 groups.*3 item\(s\): a, b, c; 2 item\(s\): x, y"
        ):
            irt.fit_spectral(r, regularization=nu)


def test_one_sided_items_need_regularisation():
    y = random_rasch(10, missing=0.0)
    y[:, 3] = 1
    r = irt.from_array(y)
    with pytest.raises(EstimationError, match=r"2 groups.*regularization=1.0.*1 item\(s\): 3"):
        irt.fit_spectral(r, regularization=0.0)
    b = irt.fit_spectral(r)["item_difficulty"].values
    assert np.isfinite(b).all()
    assert b.argmin() == 3


def test_item_without_responses_is_listed():
    y = random_rasch(11)
    y[:, 2] = -1
    with pytest.raises(EstimationError, match=r"1 item\(s\): 2"):
        irt.fit_spectral(y)


def test_extreme_difficulties_have_relative_accuracy():
    """A chain of two items has pi_0 / pi_1 = Y_10 / Y_01, however far from 1."""
    y = np.vstack([np.tile([1, 0], (200_000, 1)), [[0, 1]]])
    b = irt.fit_spectral(y, regularization=0.0)["item_difficulty"].values
    assert b[1] - b[0] == pytest.approx(np.log(200_000), rel=1e-10)


def test_refusals():
    y = random_rasch(12)
    with pytest.raises(InputError, match="does not support person weights"):
        irt.fit_spectral(irt.from_array(y, persons={"weight": np.ones(400)}))
    for nu in (-1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="regularization="):
            irt.fit_spectral(y, regularization=nu)
    with pytest.raises(EstimationError, match="at least two items"):
        irt.fit_spectral(y[:, :1])
    wide = irt.from_array(sp.csr_array((3, 10_001)), observed="all")
    with pytest.raises(InputError, match=r"10001 items.*at most 10000"):
        irt.pair_counts(wide)
