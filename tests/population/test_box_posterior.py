"""Posteriors and draws of up to three abilities, against sums over all nodes of fine grids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from irt_dask.kernels.several import box_posterior, box_shape, box_values
from irt_dask.kernels.several.box_posterior import BEYOND, DONE

RNG_KEY = 20


def _log_likelihood(y: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
    """Of 3PL items at the abilities x."""
    p = c + (1.0 - c) / (1.0 + np.exp(-a * (x[:, None] - b)))
    return np.where(y > 0, np.log(p), np.log(1.0 - p)).sum(axis=1)


class Case:
    """Some persons with items of their own for each of D abilities, and their prior."""

    def __init__(self, dims: int, seed: int, correlation: float | None = None) -> None:
        rng = np.random.default_rng([RNG_KEY, dims, seed])
        root = rng.normal(size=(dims, dims))
        self.covariance = 0.25 * root @ root.T + 0.2 * np.eye(dims)
        if correlation is not None:
            self.covariance = 0.5 * (correlation + (1.0 - correlation) * np.eye(dims))
        self.precision = np.linalg.inv(self.covariance)
        self.mean = 0.7 * rng.normal(size=dims)
        self.a, self.b = rng.uniform(0.6, 2.0, (dims, 15)), 1.2 * rng.normal(size=(dims, 15))
        self.c = np.where(rng.random((dims, 15)) < 0.5, 0.2, 0.0)
        self.y = rng.integers(0, 2, (dims, 15))
        self.dims = dims

    def log_likelihood(self, d: int, x: Any) -> Any:
        return _log_likelihood(self.y[d], self.a[d], self.b[d], self.c[d], x)

    def nodes(self, reach: float = 14.0) -> tuple[Any, ...]:
        """Nodes a standard deviation of the sharpest posterior apart."""
        out = []
        for d in range(self.dims):
            sharpest = self.precision[d, d] + (self.a[d] ** 2 / 4.0).sum() * 0.6
            h = min(1.0 / np.sqrt(sharpest), 1.0 / self.a[d].max())
            out.append(h * np.arange(-np.ceil(reach / h), np.ceil(reach / h) + 1.0))
        return tuple(out)

    def box(self) -> tuple[Any, Any]:
        nodes = self.nodes()
        f = [self.log_likelihood(d, x)[None] for d, x in enumerate(nodes)]
        return box_shape.box(nodes, self.covariance[None]), f

    def log_density(self, given: Any, axes: list[Any]) -> Any:
        """Of all abilities, on the mesh of the axes of those that are not given."""
        mesh = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        known = np.broadcast_to(np.asarray(given, float), (*mesh.shape[:-1], len(given)))
        r = np.concatenate([known, mesh], axis=-1) - self.mean
        out = -0.5 * np.einsum("...i,ij,...j->...", r, self.precision, r)
        out -= 0.5 * np.linalg.slogdet(self.covariance)[1] + 0.5 * self.dims * np.log(2.0 * np.pi)
        for k, x in enumerate(axes):
            shape = np.ones(len(axes), dtype=int)
            shape[k] = -1
            out = out + self.log_likelihood(len(given) + k, x).reshape(shape)
        return out


@pytest.mark.parametrize(
    ("dims", "correlation"), [(1, None), (2, None), (3, None), (2, 0.98), (2, -0.95), (3, 0.9)]
)
def test_moments_are_those_of_all_nodes(dims: int, correlation: float | None) -> None:
    for seed in range(4):
        case = Case(dims, seed, correlation)
        g, f = case.box()
        mean, covariance, log_marginal, how = box_posterior.moments(
            f, g, np.zeros(1, dtype=np.int64), case.mean[None]
        )
        assert how[0] == DONE
        nodes = case.nodes()
        w = case.log_density([], list(nodes))
        top = w.max()
        w = np.exp(w - top)
        mesh = np.stack(np.meshgrid(*nodes, indexing="ij"), axis=-1).reshape(-1, dims)
        flat = w.ravel() / w.sum()
        expected = flat @ mesh
        np.testing.assert_allclose(mean[0], expected, atol=2e-6)
        apart = mesh - expected
        np.testing.assert_allclose(covariance[0], (apart * flat[:, None]).T @ apart, atol=5e-6)
        h = np.prod([x[1] - x[0] for x in nodes])
        np.testing.assert_allclose(log_marginal[0], top + np.log(w.sum() * h), atol=2e-6)


@pytest.mark.parametrize("dims", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_distribution_functions_of_draws(dims: int) -> None:
    """Each ability given those drawn before, against fine grids: off by at most 0.002."""
    u = (np.arange(100) + 0.5) / 100
    largest = 0.0
    for seed in range(3):
        case = Case(dims, seed)
        g, f = case.box()
        f = [np.tile(x, (u.size, 1)) for x in f]
        rng = np.random.default_rng([RNG_KEY, seed])
        for d in range(dims):
            uniforms = np.tile(rng.random(dims), (u.size, 1))
            uniforms[:, d] = u
            drawn, how = box_values.draw(
                f, g, np.zeros(u.size, dtype=np.int64), np.tile(case.mean, (u.size, 1)), uniforms
            )
            assert (how == DONE).all()
            np.testing.assert_array_equal(drawn[:, :d], np.tile(drawn[0, :d], (u.size, 1)))
            axes = [np.linspace(-8.0, 8.0, n) for n in (481, 161, 161)[: dims - d]]
            w = case.log_density(drawn[0, :d], axes)
            mass = np.exp(w - w.max()).reshape(axes[0].size, -1).sum(axis=1)
            fine = np.linspace(-7.9, 7.9, 8001)
            there = mass > 1e-200
            log = CubicSpline(axes[0][there], np.log(mass[there]), extrapolate=False)(fine)
            density = np.nan_to_num(np.exp(log))
            share = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
            off = np.interp(drawn[:, d], fine, share / share[-1]) - u
            largest = max(largest, float(np.abs(off).max()))
    assert largest < 0.001, largest


def test_a_wrong_prior_is_seen() -> None:
    """The same comparison fails for draws under another correlation."""
    case = Case(2, 0, 0.5)
    g = box_shape.box(case.nodes(), Case(2, 0, 0.6).covariance[None])
    f = [case.log_likelihood(d, x)[None] for d, x in enumerate(case.nodes())]
    group = np.zeros(1, dtype=np.int64)
    wrong = box_posterior.moments(f, g, group, case.mean[None])[1][0]
    right = box_posterior.moments(f, case.box()[0], group, case.mean[None])[1][0]
    assert np.abs(wrong - right).max() > 0.005


def test_turns_have_the_moments_of_the_box() -> None:
    """Gibbs over three abilities, 3,000 chains of 60 sweeps (|z| < 5: false alarm below 1e-4)."""
    case, n = Case(3, 1), 3000
    g, f = case.box()
    group, mean = np.zeros(n, dtype=np.int64), np.tile(case.mean, (n, 1))
    f = [np.tile(x, (n, 1)) for x in f]
    u = np.random.default_rng(RNG_KEY).random((n, 60 * 3))
    last, means, covariances = box_values.turns(
        f, list(case.nodes()), case.covariance[None], group, mean, u, 20
    )
    m, v, _, _ = box_posterior.moments([x[:1] for x in f], g, group[:1], mean[:1])
    sd = np.sqrt(np.diag(v[0]))
    assert (np.abs(last.mean(axis=0) - m[0]) < 5.0 * sd / np.sqrt(n)).all()
    error = means.std(axis=0) / np.sqrt(n)
    assert (np.abs(means.mean(axis=0) - m[0]) < 5.0 * error).all()
    assert np.abs(np.cov(last.T) / np.outer(sd, sd) - v[0] / np.outer(sd, sd)).max() < 0.12
    # of a chain's few sweeps the covariance of means is missing, which 40 of them make small
    whole = covariances.mean(axis=0) + np.cov(means.T)
    assert np.abs(whole - v[0]).max() < 0.03 * v[0].max()


def test_a_box_beyond_the_grid_is_said() -> None:
    case = Case(2, 0)
    nodes = case.nodes(2.0)
    f = [case.log_likelihood(d, x)[None] for d, x in enumerate(nodes)]
    g = box_shape.box(nodes, case.covariance[None])
    how = box_posterior.moments(f, g, np.zeros(1, dtype=np.int64), case.mean[None])[3]
    assert how[0] == BEYOND
