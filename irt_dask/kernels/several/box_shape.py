"""What boxes of nodes are made of: see :mod:`~irt_dask.kernels.several.box_posterior`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit

#: Abilities of a box.
DIMS = 3


class Box(NamedTuple):
    """What persons of a block have in common: nodes, precisions and tables of two abilities."""

    nodes: tuple[Floats, Floats, Floats]
    spacing: Floats  # (3,), 1 for a single node
    precision: Floats  # (groups, 3, 3)
    bend: Floats  # (groups, 2): what abilities 1 and 2 take of their product, of t^2
    constant: Floats  # log of the normal density's constant and of the spacings, (groups,)
    cross: Floats  # what is left of it, by steps along both, (groups, 2 nodes - 1, 2 nodes - 1)


class Room(NamedTuple):
    """What is found of a person: the mode's node, the box, and factors on its nodes."""

    mode: Ints
    low: Ints
    high: Ints
    b: Floats  # (3, nodes) log density along the axes, 0 at the mode's node
    lean: Floats  # (2,): how far t_1 and t_2 move with t_0 along the slices' modes
    centre: Ints  # (nodes 0, 2): nodes near the mode of a slice
    log_slice: Floats  # (nodes 0,): log density there
    e1: Floats  # (nodes 0, nodes 1): factors in each slice
    e2: Floats  # (nodes 0, nodes 2)
    sums: Floats  # (nodes 0, 3, nodes 2): masses of slices, times 1, t_1, t_1^2
    peak: Floats  # (2,) log density at the mode's node, and of the largest slice next to that


def box(nodes: tuple[Floats, ...], covariance: Floats) -> Box:
    """Tables for nodes of 1 to 3 abilities and residual covariances, (groups, abilities, same)."""
    n = len(nodes)
    given = slice(DIMS - n, DIMS)
    precision = np.zeros((len(covariance), DIMS, DIMS))
    precision[:, given, given] = np.linalg.inv(covariance)
    spacing = np.ones(DIMS)
    spacing[given] = [x[1] - x[0] for x in nodes]
    every = (*(np.zeros(1) for _ in range(DIMS - n)), *nodes)
    constant = (
        -0.5 * np.linalg.slogdet(covariance)[1]
        + np.log(spacing).sum()
        - 0.5 * n * math.log(2.0 * math.pi)
    )
    i, j = (np.arange(1 - every[d].size, every[d].size) * spacing[d] for d in (1, 2))
    k = precision[:, 1, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        square = np.sqrt(precision[:, 1, 1] / precision[:, 2, 2])
    square = np.where(k != 0.0, square, 1.0)
    bend = 0.5 * np.abs(k)[:, None] * np.stack([square, 1.0 / square], axis=1)
    c = np.sqrt(square)[:, None, None]
    apart = c * i[:, None] + np.where(k < 0.0, -1.0, 1.0)[:, None, None] * j / c
    cross = np.exp(-0.5 * np.abs(k)[:, None, None] * apart**2)
    first, second, third = every
    return Box((first, second, third), spacing, precision, bend, constant, cross)


@jit
def room(g: Box) -> Room:
    """Room for what is found of a person."""
    n0, n1, n2 = g.nodes[0].size, g.nodes[1].size, g.nodes[2].size
    n = max(n0, max(n1, n2))
    mode, low, high = np.empty(3, np.int64), np.empty(3, np.int64), np.empty(3, np.int64)
    centre = np.empty((n0, 2), np.int64)
    return Room(
        mode, low, high, np.empty((3, n)), np.empty(2), centre, np.empty(n0), np.empty((n0, n1)),
        np.empty((n0, n2)), np.empty((n0, 3, n2)), np.empty(2),
    )  # fmt: skip
