"""One ability: moments, plausible values and point estimates of a block of persons."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.engine.cache import keep
from irt_dask.engine.tables import grid_tables, guessing_tables, score_curves
from irt_dask.kernels.joint import modes
from irt_dask.kernels.joint.parameters import Items as Parameters
from irt_dask.kernels.posterior import category_tables, plausible_values, point_estimates
from irt_dask.kernels.posterior import moments as posterior
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.models import ability_bound, grid_for, reach_of
from irt_dask.score.population import Part, Population
from irt_dask.store.responses import sha256

Floats = NDArray[np.float64]


class Items(NamedTuple):
    """Slopes, intercepts and guessing parameters.

    For two abilities there is :class:`irt_dask.score.plane.Items`.
    """

    a: Floats
    d: Floats
    c: Floats


class Standard(NamedTuple):
    """Items as persons of mean 0 and SD 1 meet them, and the grid of their abilities."""

    a: Floats
    d: Floats
    c: Floats
    nodes: Floats
    #: How far from the prior mean a posterior is summed.
    reach: float
    #: Whether no prior but N(0, 1) is meant.
    plain: bool


def standard(items: Items, population: Population, part: Part) -> Standard:
    """Items on the scale of ``(ability - center) / sd`` of a part of the population."""
    a, d = items.a * part.sd, items.d + items.a * part.center
    shift = population.reach
    reach = float(
        keep(("reach", sha256(a, d), shift), lambda: np.array(reach_of(a, d, shift=shift)))
    )
    bound = reach + shift
    nodes = keep(("nodes", sha256(a, d), bound), lambda: grid_for(a, d, bound=bound).nodes)
    plain = part.shift is None and not (items.c > 0.0).any()
    return Standard(a, d, items.c, nodes, reach, plain)


def reach(items: Items, population: Population) -> float:
    """How far from the prior mean, in SDs, the posteriors of any part are summed."""
    return max(
        reach_of(items.a * sd, items.d + items.a * center, shift=population.reach)
        for center, sd in zip(population.coefficients[:, 0], population.sd, strict=True)
    )


def _tables(s: Standard) -> category_tables.Tables3PL:
    return guessing_tables(s.a, s.d, s.c, s.nodes, s.reach)


def expectations(data: Layout, s: Standard, shift: Floats | None) -> tuple[Floats, Floats, Floats]:
    """Mean and SD of each standardised ability, and the log marginal likelihood."""
    if s.plain:
        return posterior.expectations(
            data, grid_tables(s.a, s.d, s.nodes), score_curves(s.a, s.d, s.nodes)
        )
    return category_tables.expectations(data, _tables(s), _shifts(data, shift))


def central_moments(data: Layout, s: Standard, shift: Floats | None) -> Floats:
    """Mean, variance, third and fourth central moment of standardised abilities, (4, persons)."""
    return category_tables.moments(data, _tables(s), _shifts(data, shift))


def _shifts(data: Layout, shift: Floats | None) -> Floats:
    return np.zeros(data.shape[0]) if shift is None else shift


def _expected(
    data: Layout, items: Items, population: Population, parts: list[Part]
) -> list[Floats]:
    """Posterior mean and SD of each person."""
    if population.plain:  # one part, nothing to rescale
        return list(expectations(data, standard(items, population, parts[0]), None)[:2])
    mean, sd = np.empty((2, data.shape[0]))
    for part in parts:
        m, s, _ = expectations(part.of(data), standard(items, population, part), part.shift)
        mean[part.rows], sd[part.rows] = part.center + part.sd * m, part.sd * s
    return [mean, sd]


def moments(
    data: Layout, averaged: tuple[Items, ...], population: Population, parts: list[Part]
) -> dict[str, Floats]:
    """Mean and standard deviation of each person's ability, over the items too.

    Deviations are from the first mean, and added draw by draw: the bits of a person do not depend
    on the others of a block.
    """
    mean, sd = _expected(data, averaged[0], population, parts)
    if len(averaged) == 1:
        return {"person_ability": mean, "person_ability_sd": sd}
    shift, spread, within = np.zeros_like(mean), np.zeros_like(mean), sd**2
    for items in averaged[1:]:
        m, s = _expected(data, items, population, parts)
        shift += m - mean
        spread += (m - mean) ** 2
        within += s**2
    n = len(averaged)
    shift /= n
    between = np.maximum(spread / n - shift**2, 0.0)
    return {"person_ability": mean + shift, "person_ability_sd": np.sqrt(within / n + between)}


def draw(
    data: Layout, items: Items, population: Population, parts: list[Part], u: Floats
) -> Floats:
    """Plausible values, shape (persons, plausible); ``u`` has an axis for abilities, of one."""
    out = np.empty(u.shape[:2])
    for part in parts:
        s, v = standard(items, population, part), np.ascontiguousarray(u[part.rows, :, 0])
        if s.plain:
            z = plausible_values.draw(part.of(data), grid_tables(s.a, s.d, s.nodes), v)
        else:
            z = category_tables.draw(
                part.of(data), _tables(s), _shifts(part.of(data), part.shift), v
            )
        out[part.rows] = part.center + part.sd * z
    return out


# --- point estimates ------------------------------------------------------------------------------


def estimates(
    data: Layout, method: str, items: Items, population: Population, parts: list[Part]
) -> dict[str, Floats]:
    """Point estimates by ``method`` with standard errors."""
    find = {"ml": _likeliest, "map": _modes, "wle": _warm}[method]
    ability, se = find(data, items, population, parts)
    return {"person_ability": ability, "person_ability_se": se}


def _modes(
    data: Layout, items: Items, population: Population, parts: list[Part]
) -> tuple[Floats, Floats]:
    mode, se = np.empty((2, data.shape[0]))
    for part in parts:
        s, own = standard(items, population, part), part.of(data)
        z, info = point_estimates.modes(own, _tables(s), _shifts(own, part.shift))
        mode[part.rows] = part.center + part.sd * z
        se[part.rows] = part.sd / np.sqrt(1.0 + info)
    return mode, se


def _likeliest(
    data: Layout, items: Items, population: Population, parts: list[Part]
) -> tuple[Floats, Floats]:
    bound = ability_bound(*items)
    theta, _ = modes.modes(data, Parameters.of(*items), bound)
    at = guessing_tables(*items, np.zeros(2))
    info = point_estimates.information(data, at, theta)
    info[~(np.abs(theta) < bound)] = np.nan
    return theta, 1.0 / np.sqrt(info)


def _warm(
    data: Layout, items: Items, population: Population, parts: list[Part]
) -> tuple[Floats, Floats]:
    tables = guessing_tables(*items, point_estimates.nodes_for(items.a, ability_bound(*items)))
    theta, info = point_estimates.warm(data, tables, point_estimates.warm_tables(tables))
    info[~(np.abs(theta) < point_estimates.FURTHEST)] = np.nan
    with np.errstate(divide="ignore"):
        return theta, 1.0 / np.sqrt(info)
