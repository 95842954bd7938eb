"""What abilities that are not known take away from the information on items and their facets.

As :mod:`.lost_information`, where a person's scores belong to few of very many parameters: sums
over persons are a dense block of base parameters (items, groups), one of effects by base
parameters, and pairs of effects that the same person has.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit


class Answers(NamedTuple):
    """Answers of some persons: ``row`` is that of the category in the tables, ``column`` its own.

    Those of person i are from ``start[i]`` to ``start[i + 1]``.
    """

    start: Ints
    row: Ints
    column: Ints


class Tables(NamedTuple):
    """Log P of categories at the nodes, (rows, nodes), and derivatives of it.

    ``by_base`` (parameters, rows, nodes) go to ``base_of`` (columns, parameters); ``by_shift``
    (rows, nodes) times ``terms`` to effects: those of a column are ``effect[first[c]:first[c+1]]``.
    """

    log_p: Floats
    by_base: Floats
    by_shift: Floats
    base_of: Ints
    first: Ints
    effect: Ints
    term: Floats


class Ability(NamedTuple):
    """Log mass at the nodes by group, and derivatives by mean and log SD, which go to ``base_of``.

    Shapes (groups, nodes), (groups, 2, nodes) and (groups, 2).
    """

    log_mass: Floats
    slope: Floats
    base_of: Ints


class Sums(NamedTuple):
    """Multiples of one over the scale: base by base, effects by base."""

    base: Ints
    across: Ints


class Pairs(NamedTuple):
    """Pairs of effects of the same person."""

    one: Ints
    other: Ints
    value: Ints


@jit
def _local(parameter: int, place: Ints, mine: Ints, n: int) -> int:
    """Number of the person's distinct parameters once this one is among them."""
    if place[parameter] < 0:
        place[parameter] = n
        mine[n] = parameter
        n += 1
    return n


@jit
def _scores(
    i: int, group: int, a: Answers, t: Tables, of: Ability, n_base: int, place: Ints, mine: Ints,
    score: Floats,
) -> int:  # fmt: skip
    """Add up the person's scores by distinct parameter, (parameters, nodes); how many there are."""
    n = 0
    score[:] = 0.0
    for e in range(a.start[i], a.start[i + 1]):
        row, c = a.row[e], a.column[e]
        for k in range(t.base_of.shape[1]):
            if t.base_of[c, k] >= 0:
                n = _local(t.base_of[c, k], place, mine, n)
                score[place[t.base_of[c, k]]] += t.by_base[k, row]
        for m in range(t.first[c], t.first[c + 1]):
            n = _local(n_base + t.effect[m], place, mine, n)
            score[place[n_base + t.effect[m]]] += t.term[m] * t.by_shift[row]
    for k in range(2):
        if of.base_of[group, k] >= 0:
            n = _local(of.base_of[group, k], place, mine, n)
            score[place[of.base_of[group, k]]] += of.slope[group, k]
    for k in range(n):
        place[mine[k]] = -1
    return n


@jit
def _weights(i: int, group: int, a: Answers, t: Tables, of: Ability, w: Floats) -> None:
    """Posterior weights of a person, which sum to 1."""
    w[:] = of.log_mass[group]
    for e in range(a.start[i], a.start[i + 1]):
        w += t.log_p[a.row[e]]
    w -= w.max()
    np.exp(w, w)
    w /= w.sum()


@jit
def _emit(
    cov: Floats, mine: Ints, n: int, n_base: int, unit: Floats, times: int, sums: Sums,
    pairs: Pairs, n_pairs: int,
) -> int:  # fmt: skip
    for k in range(n):
        one = mine[k]
        for m in range(n):
            other = mine[m]
            value = times * np.int64(np.rint(cov[k, m] * unit[one] * unit[other]))
            if one < n_base:
                if other < n_base:
                    sums.base[one, other] += value
            elif other < n_base:
                sums.across[one - n_base, other] += value
            else:
                pairs.one[n_pairs] = one - n_base
                pairs.other[n_pairs] = other - n_base
                pairs.value[n_pairs] = value
                n_pairs += 1
    return n_pairs


@jit
def add(
    a: Answers, t: Tables, of: Ability, group: Ints, weight: Floats, times: Ints, n_base: int,
    unit: Floats, squares: bool, most: int, sums: Sums, pairs: Pairs,
) -> int:  # fmt: skip
    """Add posterior covariances of scores, or squares of their means; the number of pairs.

    ``unit`` (parameters,) is what scores are multiplied by before they are rounded; a person has at
    most ``most`` parameters.
    """
    n_nodes = t.log_p.shape[1]
    place = np.full(unit.size, -1)
    mine = np.empty(most, dtype=np.int64)
    score, w, n_pairs = np.empty((most, n_nodes)), np.empty(n_nodes), 0
    for i in range(a.start.size - 1):
        if a.start[i] == a.start[i + 1] or weight[i] == 0.0:
            continue
        g = group[i]
        n = _scores(i, g, a, t, of, n_base, place, mine, score)
        _weights(i, g, a, t, of, w)
        own = score[:n]
        mean = own @ w
        if squares:
            cov = weight[i] * np.outer(mean, weight[i] * mean)
        else:
            for q in range(n_nodes):
                root = np.sqrt(weight[i] * w[q])
                for k in range(n):
                    own[k, q] = (own[k, q] - mean[k]) * root
            cov = own @ own.T
        n_pairs = _emit(cov, mine, n, n_base, unit, times[i], sums, pairs, n_pairs)
    return n_pairs
