"""A bank as adaptive tests need it: curves of all questions on nodes of ability, made once.

Posteriors of a person lie on the nodes ``FINE``, 1 / 64 apart; next questions are compared on every
fourth of these, ``NODES``.  What all questions say there, of which there may be 100,000, is
tabulated between -6 and 6, and computed each time for whoever is beyond.  Sums over all questions
are smooth, and go from these nodes to the fine ones by cubic splines (an error of the order of 1e-8
of the sum).
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine.cache import keep
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.items.draws import item_draws, usual_draws
from irt_dask.items.parameters import bank_item_ids, item_set
from irt_dask.selection.by_item import weights_of
from irt_dask.selection.questions import points_of

#: Nodes of ability in a unit, and how far they go: of posteriors, of tables of all questions.
_PER_UNIT, _FAR = 64, 16
_STEP, _NEAR = 4, 6
FINE: Floats = np.arange(-_FAR * _PER_UNIT, _FAR * _PER_UNIT + 1) / _PER_UNIT
#: Nodes at which questions are compared, and their distance.
EVERY = slice(None, None, _STEP)
NODES: Floats = FINE[EVERY]
SPACING = _STEP / _PER_UNIT
#: Those of tables: from where on, and where they end.
FIRST, END = (_FAR - _NEAR) * _PER_UNIT // _STEP, (_FAR + _NEAR) * _PER_UNIT // _STEP + 1
#: Questions whose curves are computed at a time; numbers up to which sums need no spline.
_TOGETHER, _FEW = 1024, 1 << 21
#: Bytes of curves of single questions that a bank keeps.
_KEPT = 1 << 26


class Curves(NamedTuple):
    """Some questions at the fine nodes."""

    first: Ints  # category k of the i-th of them has row first[i] + k
    log_p: Floats  # (rows, nodes)
    mean: Floats  # of what each adds to the total, (items, nodes)
    variance: Floats

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.log_p.nbytes + self.mean.nbytes + self.variance.nbytes


class Sums(NamedTuple):
    """Mean and variance of the total of all questions given ability, (2, nodes)."""

    values: Floats

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.values.nbytes


class Table(NamedTuple):
    """Probabilities of all categories but the first, (nodes, rows): a node's are contiguous."""

    p: Floats  # of the nodes from FIRST to END
    points: Floats  # what a response of the category adds, (rows,)
    first: Ints  # first row of each question

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.p.nbytes + self.points.nbytes + self.first.nbytes


@dataclass(frozen=True, eq=False)
class Bank:
    """Questions, and what each counts in the total."""

    item_id: tuple[str, ...]
    #: The point estimates of the items, by which questions are chosen, and draws of them.
    sets: tuple[ItemSet, ...]
    weights: Floats
    _singles: dict[int, tuple[Curves, ...]] = field(default_factory=dict, repr=False)

    @property
    def items(self) -> ItemSet:
        """Point estimates."""
        return self.sets[0]

    @property
    def n_items(self) -> int:
        """Questions."""
        return len(self.item_id)

    @functools.cached_property
    def identity(self) -> str:
        """Digest of the questions' names, parameters, draws and weights."""
        out = hashlib.sha256("\n".join(self.item_id).encode())
        for one in self.sets:
            out.update(one.digest.encode())
        out.update(np.ascontiguousarray(self.weights).tobytes())
        return out.hexdigest()[:32]

    def table(self) -> Table:
        """The table of all questions, made once in a process."""
        return keep(("adaptive table", self.identity), self._table)

    def sums(self, k: int) -> Floats:
        """Mean and variance of the total at the fine nodes, under one set of items."""
        return keep(("adaptive sums", self.identity, k), lambda: self._sums(self.sets[k])).values

    def curves(self, k: int, places: Ints) -> Curves:
        """Curves of some questions at the fine nodes, under one set of items."""
        return _curves(self.sets[k].take(places), self.weights[places])

    def single(self, place: int) -> tuple[Curves, ...]:
        """Curves of one question under all sets of items; those of some are kept."""
        found = self._singles.get(place)
        if found is None:
            where = np.array([place])
            found = tuple(self.curves(k, where) for k in range(len(self.sets)))
            if (len(self._singles) + 1) * sum(c.nbytes for c in found) <= _KEPT:
                self._singles[place] = found
        return found

    def _table(self) -> Table:
        items, nodes = self.items, NODES[FIRST:END]
        n_rows = int(items.first[-1]) - items.n_items
        refuse_beyond_memory(
            8.0 * nodes.size * n_rows, f"curves of {items.n_items} items at {nodes.size} abilities"
        )
        upper = np.ones(items.first[-1], dtype=bool)
        upper[items.first[:-1]] = False
        p = np.empty((nodes.size, n_rows))
        first = items.first - np.arange(items.n_items + 1)
        for lo in range(0, items.n_items, _TOGETHER):
            hi = min(lo + _TOGETHER, items.n_items)
            p[:, first[lo] : first[hi]] = self.upper(lo, hi, nodes)
        return Table(p, points_of(items, self.weights)[upper], first[:-1])

    def upper(self, lo: int, hi: int, nodes: Floats) -> Floats:
        """Probabilities of all categories but the first of some questions, (nodes, rows)."""
        own = self.items.take(np.arange(lo, hi))
        p = np.exp(own.log_p(nodes))
        p[own.empty] = 0.0
        return np.delete(p, own.first[:-1], axis=0).T

    def _sums(self, items: ItemSet) -> Sums:
        every = 1 if items.first[-1] * FINE.size <= _FEW else _STEP
        nodes, out = FINE[::every], np.zeros((2, FINE[::every].size))
        for k in range(0, items.n_items, _TOGETHER):
            part = np.arange(k, min(k + _TOGETHER, items.n_items))
            own = _curves(items.take(part), self.weights[part], nodes)
            out += np.stack([own.mean.sum(axis=0), own.variance.sum(axis=0)])
        if every == 1:
            return Sums(out)
        from scipy.interpolate import CubicSpline  # takes a while to load

        return Sums(np.asarray(CubicSpline(nodes, out, axis=1)(FINE)))


def _curves(items: ItemSet, weights: Floats, nodes: Floats = FINE) -> Curves:
    log_p = items.log_p(nodes)
    p = np.exp(log_p)
    p[items.empty] = 0.0
    p *= points_of(items, weights)[:, None]
    mean = np.add.reduceat(p, items.first[:-1], axis=0)
    p *= points_of(items, weights)[:, None]
    square = np.add.reduceat(p, items.first[:-1], axis=0)
    return Curves(items.first, log_p, mean, np.maximum(square - mean**2, 0.0))


def bank_of(items: xr.Dataset, item_weights: Any) -> Bank:
    """Read a fit or a bank; where it carries draws, up to 20 of them."""
    item_id = bank_item_ids(items)
    sets = [item_set(items, item_id)]
    if n := usual_draws(items):
        sets += item_draws(items, item_id, n, option="n_item_draws")
    return Bank(item_id, tuple(sets), weights_of(item_weights, item_id))
