"""Expectations and plausible values of two abilities, by sums over a grid of both."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.items.tables import plane_tables, refuse_plane
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.several import plane_posterior, plane_values


class Items(NamedTuple):
    """Loadings (2, items), intercepts, correlation of the abilities, and the nodes of each."""

    loading: Floats
    intercept: Floats
    correlation: float
    nodes: Floats


def with_grid(loading: Floats, intercept: Floats, correlation: float) -> Items:
    """Choose the grid of these items."""
    least = plane_posterior.plane_for(loading, intercept, correlation=correlation)
    refuse_plane(least.n_nodes, intercept.size)  # before a search that takes long with many items
    bound = plane_posterior.plane_reach(loading, intercept, correlation)
    nodes = plane_posterior.plane_for(
        loading, intercept, correlation=correlation, bound=bound
    ).nodes
    return Items(loading, intercept, correlation, nodes)


def moments(data: Layout, averaged: tuple[Items, ...]) -> dict[str, Floats]:
    """Means and standard deviations (persons, 2) and correlations (persons,), over the items too.

    Deviations are from the first mean, as for one ability.
    """
    mean, cov, _ = plane_posterior.expectations(data, plane_tables(*averaged[0]))
    if len(averaged) > 1:
        shift, spread, within = np.zeros_like(mean), np.zeros_like(cov), cov.copy()
        for items in averaged[1:]:
            m, c, _ = plane_posterior.expectations(data, plane_tables(*items))
            shift += m - mean
            spread += _products(m - mean)
            within += c
        n = len(averaged)
        shift /= n
        mean = mean + shift
        cov = within / n + (spread / n - _products(shift))
    sd = np.sqrt(cov[:, [0, 2]])
    return {
        "person_ability": mean,
        "person_ability_sd": sd,
        "person_ability_correlation": cov[:, 1] / (sd[:, 0] * sd[:, 1]),
    }


def _products(x: Floats) -> Floats:
    """Squares and product of both columns, in the order 11, 12, 22."""
    return np.stack([x[:, 0] ** 2, x[:, 0] * x[:, 1], x[:, 1] ** 2], axis=1)


def draw(data: Layout, items: Items, u: Floats) -> Floats:
    """Plausible values, shape (persons, plausible, 2)."""
    return plane_values.draw(data, plane_tables(*items), u)
