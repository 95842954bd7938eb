"""Polynomials of ability that are orthonormal under a posterior, against QR of powers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irt_dask.kernels.base import lanes
from irt_dask.kernels.posterior.polynomials import DEGREES, further


def padded(share, lo):
    """Square roots of the posterior with ``lo`` nodes of none before it, up to whole lanes."""
    size = -(-(lo + share.size) // lanes.LANES) * lanes.LANES
    root = np.zeros(size)
    root[lo : lo + share.size] = np.sqrt(share)
    return root


def everything(share, lo):
    """All polynomials times the root, (degrees, nodes), and how many were found at a time."""
    root, n = padded(share, lo), share.size
    basis, turned = np.full((root.size, root.size), np.nan), np.full((root.size, DEGREES), np.nan)
    out, counts = [], []
    while (degree := sum(counts)) < n:
        counts.append(further(root, n, degree, basis, turned))
        k = np.arange(counts[-1])
        out.append(turned[:, (k + DEGREES - 1) % DEGREES].T)
        unused = np.setdiff1d(np.arange(DEGREES), (k + DEGREES - 1) % DEGREES)
        assert not turned[:, unused].any()
    return np.concatenate(out), counts


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 40), lo=st.integers(0, 7), seed=st.integers(0, 999))
def test_orthonormal_however_many_degrees(n, lo, seed):
    """Shares over eleven powers of ten, those of a normal posterior or any.

    A polynomial that lives where there is a share of e is known to 1e-16 over the root of e.
    """
    rng = np.random.default_rng(seed)
    at = np.linspace(-7.0, 7.0, n) if n > 1 else np.zeros(1)
    share = np.exp(-0.5 * at**2) if seed % 2 else np.exp(-rng.uniform(0.0, 25.0, n))
    share /= share.sum()
    found, counts = everything(share, lo)
    assert sum(counts) == n
    assert not found[:, :lo].any()
    own = found[:, lo : lo + n] / np.sqrt(share)  # polynomials times the root
    np.testing.assert_allclose(own @ own.T, np.eye(n), atol=1e-9)


@pytest.mark.parametrize("n", [5, 19])
def test_as_powers_made_orthonormal(n):
    at = np.linspace(-4.0, 4.0, n)
    share = np.exp(-0.5 * (at - 0.3) ** 2)
    share /= share.sum()
    found, _ = everything(share, 3)
    most = min(n, 7)
    want = np.linalg.qr(np.sqrt(share)[:, None] * np.vander(at, most, increasing=True))[0].T
    own = found[:most, 3 : 3 + n] / np.sqrt(share)
    sign = np.sign((own * want).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(own, sign * want, atol=1e-9)


def test_coefficients_give_means_and_covariances():
    """The one of degree 0 is the mean; the products of the others sum up to covariances."""
    at = np.linspace(-5.0, 5.0, 21)
    share = np.exp(-0.5 * at**2)
    share /= share.sum()
    values = np.stack([np.tanh(0.3 * (at - 0.4)), 1.0 / (1.0 + np.exp(-0.6 * at)), at**3])
    found, _ = everything(share, 0)
    c = values @ found[:, :21].T
    np.testing.assert_allclose(np.abs(c[:, 0]), np.abs(values @ share), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        c[:, 1:] @ c[:, 1:].T, np.cov(values, aweights=share, ddof=0), rtol=1e-9
    )
    left = np.abs(c[:2]).max(axis=0)
    assert (left[10:] < 1e-3 * left[1]).all()  # of smooth functions a few degrees are left


def test_rows_of_lanes():
    rng = np.random.default_rng(5)
    x, table, out = rng.normal(size=13), rng.normal(size=(16, lanes.LANES)), np.empty(lanes.LANES)
    lanes.sum_of_rows(x, table, out)
    np.testing.assert_allclose(out, x @ table[:13], rtol=1e-12)
    to, source = rng.normal(size=(3, 24)), rng.normal(size=(2, 4, 32))
    want = to.copy()
    want[1, :16] += source[1, 2, 8:24]
    lanes.add(to, 24, source, (4 + 2) * 32 + 8, 16)
    np.testing.assert_array_equal(to, want)
    want[2, 8:24] = source[0, 3, :16]
    lanes.copy(to, 2 * 24 + 8, source, 3 * 32, 16)
    np.testing.assert_array_equal(to, want)
