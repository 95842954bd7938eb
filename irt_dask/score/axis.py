"""One ability: moments, plausible values and point estimates of a block of persons."""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.curves.grids import ability_bound
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine.cache import keep
from irt_dask.items.tables import item_tables
from irt_dask.kernels.posterior import hermite, person_weights, plausible_values, point_estimates
from irt_dask.kernels.posterior.point_estimates import FURTHEST, Goal
from irt_dask.kernels.posterior.tables import LinearTables
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.responses.item_sets import common_sets
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.population.population import Persons, Population, expectations, posteriors


def nodes_of(items: ItemSet, population: Population) -> Floats:
    """Nodes that posteriors are summed over, kept for the same items and population."""
    key = ("nodes", items.digest, population.coefficients.tobytes(), population.sd.tobytes(),
           population.most_answers)  # fmt: skip
    return keep(key, lambda: population.nodes(items, scored=True))


def moments(
    data: Layout, averaged: tuple[ItemSet, ...], population: Population, persons: Persons
) -> dict[str, Floats]:
    """Mean and standard deviation of each person's ability, over the items too.

    Deviations are from the first mean, and added draw by draw: the bits of a person do not depend
    on the others of a block.
    """

    def expected(items: ItemSet) -> Floats:
        return expectations(data, items, nodes_of(items, population), population, persons)

    mean, variance, _ = expected(averaged[0])
    if len(averaged) == 1:
        return {"person_ability": mean, "person_ability_sd": np.sqrt(variance, out=variance)}
    shift, spread, within = np.zeros_like(mean), np.zeros_like(mean), variance.copy()
    for items in averaged[1:]:
        m, v, _ = expected(items)
        shift += m - mean
        spread += (m - mean) ** 2
        within += v
    n = len(averaged)
    shift /= n
    between = np.maximum(spread / n - shift**2, 0.0)
    return {"person_ability": mean + shift, "person_ability_sd": np.sqrt(within / n + between)}


def draw(
    data: Layout, items: ItemSet, population: Population, persons: Persons, u: Floats
) -> Floats:
    """Plausible values, shape (persons, plausible); ``u`` has an axis for abilities, of one."""
    nodes = nodes_of(items, population)
    prior, _ = population.prior(nodes, persons)
    p = posteriors(data, items, nodes, prior)
    return plausible_values.draw(*p.arguments, np.ascontiguousarray(u[:, :, 0]))


# --- point estimates ------------------------------------------------------------------------------


def estimates(
    data: Layout, method: str, items: ItemSet, population: Population, persons: Persons
) -> dict[str, Floats]:
    """Point estimates by ``method`` ("ml", "map", "wle") with standard errors."""
    n = data.shape[0]
    mean, precision = np.zeros((2, n))
    if method == "map":
        nodes = nodes_of(items, population)
        n_nodes = nodes.size
        prior, _ = population.prior(nodes, persons)
        group = 0 if persons.group is None else persons.group
        own = population.means(persons)
        mean += population.coefficients[group, 0] if own is None else own
        precision += population.sd[group] ** -2.0
    else:
        bound = ability_bound(items)
        nodes = point_estimates.nodes_for(items, bound)
        n_nodes = int(np.searchsorted(nodes, bound, side="right"))
        inside = nodes <= nodes[n_nodes - 1]
        prior = person_weights.prior(np.where(inside, 0.0, -np.inf))
    goal = Goal(mean, precision, method == "wle")
    g = item_tables(items, nodes)
    shared = person_weights.shared(common_sets(data), g)
    curves = g if isinstance(g, LinearTables) else _curves(items, nodes)
    at_nodes = _warm_tables(items, nodes) if goal.warm else np.empty((2, 0, 0))
    theta, info, rises = point_estimates.estimates(
        data, g, shared, prior, curves, goal, n_nodes, at_nodes
    )
    if method == "wle":
        _outwards(data, items, nodes[[0, n_nodes - 1]], theta, info, rises)
    elif method == "ml":
        info[rises != 0] = np.nan
    with np.errstate(divide="ignore"):
        return {"person_ability": theta, "person_ability_se": 1.0 / np.sqrt(goal.precision + info)}


def _warm_tables(items: ItemSet, nodes: Floats) -> Floats:
    key = ("warm", items.digest, nodes[0], nodes.size)
    return keep(key, lambda: point_estimates.warm_tables(items, nodes))


def _curves(items: ItemSet, nodes: Floats) -> hermite.Curves:
    key = ("hermite", items.digest, nodes[0], nodes[-1])
    return keep(key, lambda: hermite.curves(items, float(nodes[0]), float(nodes[-1])))


def _outwards(
    data: Layout, items: ItemSet, ends: Floats, theta: Floats, info: Floats, rises: Any
) -> None:
    """Look further for the few persons whose estimate lies beyond the nodes."""
    who = np.flatnonzero(rises)
    responses = layouts.to_dense(layouts.take(data, who)).values
    for i, row in zip(who, responses, strict=True):
        theta[i] = point_estimates.outwards(items, row, float(ends[int(rises[i] > 0)]))
        own = items.take(np.flatnonzero(row >= 0))
        info[i] = own.total_information(theta[[i]])[0]
        if not abs(theta[i]) < FURTHEST:
            info[i] = np.nan
