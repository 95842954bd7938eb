"""Log-likelihood of items at counts of responses by ability, and its derivatives by parameters.

Counts are sums over persons whose abilities are known, or expected: items are each a problem of
their own then, of items x categories x nodes numbers, whatever the number of persons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves import ItemModel
from irt_dask.kernels.joint import item_maximum

#: Numbers by item, category and node that are treated at a time: what a processor's cache holds.
_CHUNK = 1 << 15
#: Differences are taken over steps that change no log probability by more than about this.  Their
#: error is the fourth power, that of rounding 1e-16 divided by it.
_STEP = 5e-4


class Counts(NamedTuple):
    """Persons who answered some items of one model, by ability.

    ``items`` are their places among all.  ``seen`` is (items, nodes), or (1, nodes) where it is the
    same for all; ``higher`` are responses above the lowest category, (items, categories - 1,
    nodes).
    """

    model: ItemModel
    items: Ints
    nodes: Floats
    seen: Floats
    higher: Floats

    def take(self, kept: Bools) -> Counts:
        """Counts of those items that are kept, of all."""
        own = kept[self.items]
        if own.all():
            return self
        seen = self.seen if len(self.seen) == 1 else self.seen[own]
        return Counts(self.model, self.items[own], self.nodes, seen, self.higher[own])

    @property
    def size(self) -> int:
        """Parameters of an item: the first rows of all items' parameters."""
        return len(self.model.parameters)

    def chunks(self) -> Iterator[tuple[Ints, Floats]]:
        """Some items at a time, and their counts by category, (items, categories, nodes)."""
        n = max(1, _CHUNK // (self.nodes.size * (self.higher.shape[1] + 1)))
        for k in range(0, self.items.size, n):
            higher = self.higher[k : k + n]
            lowest = (self.seen if len(self.seen) == 1 else self.seen[k : k + n]) - higher.sum(1)
            yield self.items[k : k + n], np.concatenate([lowest[:, None], higher], axis=1)


class Derivatives(NamedTuple):
    """Log-likelihood (items,), its gradient (parameters, items), and the expected information."""

    value: Floats
    gradient: Floats
    information: Floats  # (items, parameters, parameters)


def derivatives(counts: Sequence[Counts], x: Floats) -> Derivatives:
    """Derivatives at parameters x; 0 for items without counts, and parameters that they lack.

    Where a likelihood falls without bound by a parameter its derivatives are not finite.
    """
    size, m = x.shape
    value, gradient, information = np.zeros(m), np.zeros((size, m)), np.zeros((m, size, size))
    for part in counts:
        own, size = x[: part.size], part.size
        for at, n in part.chunks():
            log_p = part.model.log_p(own[:, at], part.nodes)
            slope = _flat(part.model.by_parameter(own[:, at], part.nodes))
            expected = n.sum(axis=1, keepdims=True) * np.exp(log_p)
            value[at] = (n * log_p).sum(axis=(1, 2))
            gradient[:size, at] = _sums(slope, n)
            weighted = slope * expected.reshape(at.size, -1)
            information[at, :size, :size] = weighted.transpose(1, 0, 2) @ slope.transpose(1, 2, 0)
    return Derivatives(value, gradient, information)


def values(counts: Sequence[Counts], x: Floats) -> Floats:
    """Log-likelihood of each item at x, (items,)."""
    out = np.zeros(x.shape[1])
    for part in counts:
        for at, n in part.chunks():
            log_p = part.model.log_p(x[: part.size, at], part.nodes)
            out[at] = (n * log_p).sum(axis=(1, 2))
    return out


def gradient(counts: Sequence[Counts], x: Floats) -> Floats:
    """Derivatives of the log-likelihood of each item at x, (parameters, items)."""
    out = np.zeros_like(x)
    for part in counts:
        for at, n in part.chunks():
            slope = _flat(part.model.by_parameter(x[: part.size, at], part.nodes))
            out[: part.size, at] = _sums(slope, n)
    return out


def observed_information(counts: Sequence[Counts], x: Floats, free: Bools) -> Floats:
    """Second derivatives with the sign changed, (items, parameters, parameters).

    By those that are ``free``, (parameters, items); for others they are 0.  Of log odds
    ``a theta + d`` they are sums; of others central differences of four gradients,
    ``(8 (g(h) - g(-h)) - (g(2h) - g(-2h))) / 12 h``.
    """
    size, m = x.shape
    out = np.zeros((m, size, size))
    for part in counts:
        by_parameter, p = part.model.by_parameter, part.size
        if part.model.log_odds:
            known = free[:p, part.items].T
            own = item_maximum.information(part.nodes, part.seen, x[:p, part.items])
            out[part.items, :p, :p] = np.where(known[:, :, None] & known[:, None, :], own, 0.0)
            continue
        for at, n in part.chunks():
            own, known = x[:p, at], free[:p, at]
            steep = np.abs(_flat(by_parameter(own, part.nodes))).max(axis=2)
            h = _STEP / np.where(known & (steep > 1.0), steep, 1.0)
            for k in range(p):
                difference = np.zeros_like(own)
                for times, weight in ((1.0, 8.0), (-1.0, -8.0), (2.0, -1.0), (-2.0, 1.0)):
                    moved = own.copy()
                    moved[k] += np.where(known[k], times * h[k], 0.0)
                    difference += weight * _sums(_flat(by_parameter(moved, part.nodes)), n)
                out[at, k, :p] = np.where(known & known[k], -difference / (12.0 * h[k]), 0.0).T
    return 0.5 * (out + out.transpose(0, 2, 1))


def _flat(x: Floats) -> Floats:
    """Categories and nodes as one axis."""
    return x.reshape(*x.shape[:2], -1)


def _sums(slope: Floats, n: Floats) -> Floats:
    """Sums over responses of what each adds, (parameters, items); NaN where it is infinite."""
    with np.errstate(invalid="ignore"):
        return np.asarray((slope.transpose(1, 0, 2) @ n.reshape(len(n), -1, 1))[:, :, 0].T)
