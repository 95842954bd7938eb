"""Draws of up to three abilities from their continuous posterior, each measured by its own items.

The first ability is drawn from its marginal, whose density at the nodes is the mass of the slices
of the person's box (:mod:`~irt_dask.kernels.several.box_posterior`); the second given the first,
and the third given both.  What abilities have to do with each other is the normal prior alone, so
that these densities are exact at the nodes for any values of those drawn before.  Between nodes
distribution functions are inverted as in :mod:`~irt_dask.kernels.posterior.plausible_values`.

More abilities take turns: each is drawn given the others (Gibbs), from its exact density.
"""

from __future__ import annotations

import math

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior.plausible_values import PIECES, masses, place
from irt_dask.kernels.several import box_posterior
from irt_dask.kernels.several.box_posterior import DONE
from irt_dask.kernels.several.box_shape import DIMS, Box, Room, room


@jit
def _inverted(
    f: Floats, nodes: Floats, lo: int, hi: int, mass: Floats, part: Floats, u: float
) -> float:
    """Ability below which the share u lies, of a log density at nodes ``lo .. hi``."""
    if hi - lo == 1:
        return nodes[lo]
    q, share = place(f, lo, hi, masses(f, lo, hi, mass), mass, u, part)
    return nodes[q] + (nodes[q + 1] - nodes[q]) * share if share > 0.0 else nodes[q]


@jit
def _first(g: Box, r: Room, f: Floats) -> None:
    """Log mass of the slices of the first ability."""
    for q0 in range(r.low[0], r.high[0]):
        mass = 0.0
        for q2 in range(r.low[2], r.high[2]):
            mass += r.sums[q0, 0, q2]
        f[q0] = math.log(mass) if mass > 0.0 else -np.inf


@jit
def _second(g: Box, group: int, r: Room, t0: float, f: Floats) -> None:
    """Log mass of the second ability given the first, ``t0`` from the mode's node."""
    k, h = g.precision[group], g.spacing
    q0 = r.low[0]  # a slice of the box, which is not needed any more, for one between two
    box_posterior.fill_slice(g, group, r, q0, t0)
    table = box_posterior.table_of(g, group, r, q0)
    c2 = (r.centre[q0, 1] - r.mode[2]) * h[2]
    tilt = k[0, 1] * t0 + k[1, 2] * c2
    for q1 in range(r.low[1], r.high[1]):
        row, mass = table[q1 - r.low[1]], 0.0
        for q in range(row.size):
            mass += r.e2[q0, r.low[2] + q] * row[q]
        t1, apart = (q1 - r.mode[1]) * h[1], (q1 - r.centre[q0, 0]) * h[1]
        log = r.b[1, q1] - tilt * t1 + g.bend[group, 0] * apart * apart
        f[q1] = log + math.log(mass) if mass > 0.0 else -np.inf


@jit
def _third(g: Box, group: int, r: Room, t0: float, t1: float, f: Floats) -> None:
    """Log density of the third ability given the others."""
    k = g.precision[group]
    for q2 in range(r.low[2], r.high[2]):
        t2 = (q2 - r.mode[2]) * g.spacing[2]
        f[q2] = r.b[2, q2] - (k[0, 2] * t0 + k[1, 2] * t1) * t2


@jit
def _draws(
    f0: Floats, f1: Floats, f2: Floats, g: Box, group: Ints, mean: Floats, u: Floats, out: Floats,
    how: Ints,
) -> None:  # fmt: skip
    r = room(g)
    n = r.b.shape[1]
    f, mass, part = np.empty(n), np.empty(n), np.empty(PIECES)
    for i in range(f2.shape[0]):
        k = group[i]
        how[i], _ = box_posterior.weigh(f0[i], f1[i], f2[i], g, k, mean[i], r)
        if how[i] != DONE:
            continue
        _first(g, r, f)
        x0 = _inverted(f, g.nodes[0], r.low[0], r.high[0], mass, part, u[i, 0])
        t0 = x0 - g.nodes[0][r.mode[0]]
        _second(g, k, r, t0, f)
        x1 = _inverted(f, g.nodes[1], r.low[1], r.high[1], mass, part, u[i, 1])
        t1 = x1 - g.nodes[1][r.mode[1]]
        _third(g, k, r, t0, t1, f)
        x2 = _inverted(f, g.nodes[2], r.low[2], r.high[2], mass, part, u[i, 2])
        out[i, 0], out[i, 1], out[i, 2] = x0, x1, x2


def draw(
    log_likelihood: list[Floats], g: Box, group: Ints, mean: Floats, u: Floats
) -> tuple[Floats, Ints]:
    """One value of each ability of each person, (persons, D), and how the boxes ended.

    ``u`` are uniforms, (persons, D): the first ability increases in the first one, the second,
    given the first, in the second.
    """
    n, dims = mean.shape
    first = DIMS - dims
    own, uniforms = np.zeros((n, DIMS)), np.full((n, DIMS), 0.5)
    own[:, first:], uniforms[:, first:] = mean, u
    out, how = np.empty((n, DIMS)), np.empty(n, dtype=np.int64)
    f = box_posterior.filled(log_likelihood)
    _draws(*f, g, group, own, uniforms, out, how)
    return np.ascontiguousarray(out[:, first:]), how


# --- more abilities -------------------------------------------------------------------------------


@jit
def _turns(
    f: Floats, first: Ints, nodes: Floats, precision: Floats, group: Ints, mean: Floats, u: Floats,
    kept: int, out: Floats, total: Floats, products: Floats,
) -> None:  # fmt: skip
    dims = mean.shape[1]
    log, mass, part, x = (
        np.empty(nodes.size),
        np.empty(nodes.size),
        np.empty(PIECES),
        np.empty(dims),
    )
    centre, spread = np.empty(dims), np.empty(dims)
    sweeps = u.shape[1] // dims
    for i in range(mean.shape[0]):
        k = precision[group[i]]
        x[:] = mean[i]
        total[i], products[i] = 0.0, 0.0
        for sweep in range(sweeps):
            for d in range(dims):
                tilt = k[d, d] * mean[i, d]
                for e in range(dims):
                    if e != d:
                        tilt += k[d, e] * (mean[i, e] - x[e])
                lo, hi = first[d], first[d + 1]
                top = lo
                for q in range(lo, hi):
                    log[q] = f[i, q] + nodes[q] * (tilt - 0.5 * k[d, d] * nodes[q])
                    if log[q] > log[top]:
                        top = q
                if sweep >= kept:  # the density's own moments, in place of what is drawn
                    sum_w = sum_x = sum_xx = 0.0
                    for q in range(lo, hi):
                        w, t = math.exp(log[q] - log[top]), nodes[q]
                        sum_w += w
                        sum_x += w * t
                        sum_xx += w * t * t
                    centre[d] = sum_x / sum_w
                    spread[d] = sum_xx / sum_w
                x[d] = _inverted(log, nodes, lo, hi, mass, part, u[i, sweep * dims + d])
                if sweep >= kept:
                    total[i, d] += centre[d]
                    products[i, d, d] += spread[d]
                    for e in range(d):
                        products[i, d, e] += centre[d] * x[e]
                        products[i, e, d] = products[i, d, e]
        out[i] = x


def turns(
    log_likelihood: list[Floats], nodes: list[Floats], covariance: Floats, group: Ints,
    mean: Floats, u: Floats, kept: int,
) -> tuple[Floats, Floats, Floats]:  # fmt: skip
    """Draw abilities in turn, from the prior mean; ``u`` has D uniforms a sweep, (persons, n D).

    Returns the last draw, (persons, D), and means and covariances over the sweeps from ``kept`` on.
    """
    n, dims = mean.shape
    f = np.concatenate(log_likelihood, axis=1)
    first = np.cumsum([0, *(x.size for x in nodes)])
    out, total, products = np.empty((n, dims)), np.empty((n, dims)), np.empty((n, dims, dims))
    precision = np.linalg.inv(covariance)
    _turns(
        f, first, np.concatenate(nodes), precision, group, mean, u, kept, out, total, products
    )  # fmt: skip
    after = max(u.shape[1] // dims - kept, 1)
    total, products = total / after, products / after
    return out, total, products - total[:, :, None] * total[:, None, :]
