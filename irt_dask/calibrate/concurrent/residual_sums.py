"""One pass at fitted parameters: what every item shows in every group, and how it varies by chance.

Of a person with responses y the posterior weights ``w_q`` at the nodes give the expected score of
each parameter of an item, ``s = sum_q w_q d log P(y; theta_q)`` (Fisher's identity), and of the
mean and the SD of the group, ``u``.  Sums over a group are those of the marginal likelihood; sums
of their products say how they vary from sample to sample.  Counts at the nodes are what the curve
of the item in the group is made of.

Sums are the same to the bit whatever the blocks: matrices that make weights of responses have one
size, persons being filled up to it, so that a person's row does not depend on the others; and what
is summed up over persons is rounded before, to multiples of a power of 2 so large that every sum,
and every sum of products, is exact in 53 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.engine.cache import keep
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.kernels.responses import layouts
from irt_dask.store import Block
from irt_dask.store.responses import sha256

#: Persons of a group that are treated at a time: what kernels of matrix products divide by.
_ROWS = 32
#: Bits of an exact sum, and the score of the SD of who is 8 SDs away, beyond which nobody is.
_BITS, _FARTHEST = 52, 64.0


class Setting(NamedTuple):
    """Fitted items, which of them each group's are, and the groups' distributions of ability.

    ``columns`` (groups, items) are the items that the group's persons were modelled by, and
    ``common`` (items,) those whose curves they are compared with; ``tested`` are the parameters
    whose scores are wanted, the first so many.
    """

    items: ItemSet
    columns: Ints
    common: Ints
    nodes: Floats
    log_mass: Floats  # (groups, nodes)
    mean: Floats
    sd: Floats
    n_parameters: int
    sampled: bool
    #: Persons, and the largest weight next to the mean.
    n_persons: int
    largest: float

    @property
    def tables(self) -> _Tables:
        """Log probabilities and their derivatives, made once in a process."""
        key = ("concurrent", self.items.digest, sha256(self.nodes), self.n_parameters)
        return keep(key, lambda: _Tables.of(self.items, self.nodes, self.n_parameters))


class _Tables(NamedTuple):
    """By category, item and node, 0 for categories that an item does not have."""

    log_p: Floats  # (categories, items, nodes)
    slope: Floats  # (parameters, categories, items, nodes)
    expected: Floats  # score (items, nodes)
    unit: Floats  # power of 2 that no slope is beyond, (parameters, items)

    @property
    def nbytes(self) -> int:
        return self.unit.nbytes + self.log_p.nbytes + self.slope.nbytes + self.expected.nbytes

    @classmethod
    def of(cls, items: ItemSet, nodes: Floats, n_parameters: int) -> _Tables:
        k = items.n_categories
        own = np.arange(k.max()) < k[:, None]
        log_p = np.zeros((*own.shape, nodes.size))
        log_p[own] = np.where(items.empty[:, None], 0.0, items.log_p(nodes))
        slope = np.zeros((n_parameters, *own.shape, nodes.size))
        slope[:, own] = np.where(items.empty[:, None], 0.0, items.by_parameter(nodes, n_parameters))
        largest = np.abs(slope).max(axis=(2, 3))
        return cls(
            np.ascontiguousarray(log_p.transpose(1, 0, 2)),
            np.ascontiguousarray(slope.transpose(0, 2, 1, 3)), items.expected(nodes),
            2.0 ** np.ceil(np.log2(np.where(largest > 0.0, largest, 1.0))),
        )  # fmt: skip


class Sums(NamedTuple):
    """Of the persons of a group; weighted, and for what varies with squared weights again."""

    n: Ints  # responses (categories, items)
    counts: Floats  # expected (categories, items, nodes)
    squares: Floats  # sum of w_q^2, by squared weights (categories, items, nodes)
    # Sums of w_q s' and w_q y s' (2, parameters, items, nodes), and the same of u (2, 2, ...).
    by_score: Floats
    by_ability: Floats
    score: Floats  # (items, parameters)
    ability: Floats  # u, (2,)
    weight: Floats  # sum of the weights, and of their squares
    products: tuple[Floats, ...]  # s s' (items, parameters, ...), s u' and u u'
    varying: tuple[Floats, ...]  # the same with squared weights, if sampled

    @classmethod
    def of(cls, arrays: Sequence[Any]) -> Sums:
        """From arrays in this order, products one by one."""
        n, counts, squares, by_score, by_ability, score, ability, weight, *products = arrays
        return cls(
            n, counts, squares, by_score, by_ability, score, ability, weight,
            tuple(products[:3]), tuple(products[3:]),
        )  # fmt: skip

    @property
    def arrays(self) -> tuple[Any, ...]:
        """All of them, in order."""
        return (*self[:8], *self.products, *self.varying)


#: Sums of all groups, arrays of :class:`Sums` with the groups first.
All = tuple[Any, ...]


def measure(engine: Engine, setting: Setting) -> list[Sums]:
    """Sums of each group: one pass."""
    groups, m = setting.columns.shape
    k, q = int(setting.items.n_categories.max()), setting.nodes.size
    refuse_beyond_memory(
        8.0 * (engine.n_held + 1) * groups * m * q * (2 * k + 4 + 2 * setting.n_parameters),
        f"curves of {m} items in {groups} groups at {q} abilities",
    )
    found = engine.map_add(_measured, setting)
    found = tuple(x if x.flags.writeable else x.copy() for x in found)  # from another process
    each = [Sums.of([x[g] for x in found]) for g in range(groups)]
    for g, sums in enumerate(each):
        _in_units(sums, setting.tables.unit[:, setting.columns[g]])
    return each


def _in_units(s: Sums, unit: Floats) -> None:
    """Bring sums of scores to units, that were in those of ``unit`` (parameters, items) and 64."""
    own, both = unit.T, unit.T[:, :, None] * unit.T[:, None, :]
    s.by_score[...] *= unit[:, :, None]
    s.by_ability[...] *= _FARTHEST
    s.score[...] *= own
    s.ability[...] *= _FARTHEST
    scales: tuple[Any, ...] = (both, own[:, :, None] * _FARTHEST, _FARTHEST**2)
    for some in (s.products, s.varying):
        for x, scale in zip(some, scales, strict=bool(some)):
            x[...] *= scale


def _none(setting: Setting) -> All:
    """Sums of nobody; pages of groups that nobody belongs to stay untouched."""
    groups, m = setting.columns.shape
    k, q, p = int(setting.items.n_categories.max()), setting.nodes.size, setting.n_parameters
    products = [(m, p, p), (m, p, 2), (2, 2)]
    shapes: list[tuple[int, ...]] = [
        (k, m, q), (k, m, q), (2, p, m, q), (2, 2, m, q), (m, p), (2,), (2,), *products,
    ]  # fmt: skip
    shapes += products if setting.sampled else []
    return np.zeros((groups, k, m), dtype=np.int64), *(np.zeros((groups, *x)) for x in shapes)


def _measured(block: Block, to: All | None, setting: Setting) -> All:
    """Add the persons of a block to the sums of their groups."""
    assert block.group is not None
    to = _none(setting) if to is None else to
    n, frequent = block.n_persons, block.times is not None
    weight = np.ones(n) if frequent or block.weight is None else block.weight
    times = np.ones(n) if block.times is None else block.times.astype(float)
    for g in np.unique(block.group).tolist():
        rows = np.flatnonzero(block.group == g)
        own = _OfGroup.of(setting, g)
        for lo in range(0, rows.size, _ROWS):
            some = rows[lo : lo + _ROWS]
            codes = np.full((_ROWS, block.data.shape[1]), -1, dtype=np.int8)
            codes[: some.size] = layouts.to_dense(layouts.take(block.data, some)).values
            its_weight, its_times = np.zeros((2, _ROWS))
            its_weight[: some.size], its_times[: some.size] = weight[some], times[some]
            found = _of_persons(codes, its_weight, its_times, own)
            for x, more in zip(to, found.arrays, strict=True):
                x[g] += more
    return to


class _OfGroup(NamedTuple):
    """Tables of a group's items, and what its sums are rounded by."""

    setting: Setting
    log_p: Floats
    slope: Floats  # in units of the items'
    log_mass: Floats
    moments: Floats  # of ability: derivatives by mean and log SD, in SDs, (nodes, 2)

    @classmethod
    def of(cls, setting: Setting, g: int) -> _OfGroup:
        t, columns = setting.tables, setting.columns[g]
        z = (setting.nodes - setting.mean[g]) / setting.sd[g]
        return cls(
            setting, t.log_p[:, columns],
            t.slope[:, :, columns] / t.unit[:, None, columns, None], setting.log_mass[g],
            np.stack([z, z**2 - 1.0], axis=1),
        )  # fmt: skip

    def rounded(self, x: Floats, largest: float, factors: int = 1) -> Floats:
        """Multiples of a power of 2: sums of products of so many factors of them are exact.

        ``largest`` is the bound of the product, by person and unit of weight.
        """
        total = self.setting.n_persons * largest
        unit = 2.0 ** ((_BITS - math.ceil(math.log2(total))) // factors)
        return np.asarray(np.rint(x * unit) / unit)


def _of_persons(codes: Any, weight: Floats, times: Floats, own: _OfGroup) -> Sums:
    """Sums of some persons of a group; ``times`` says how many each row stands for."""
    is_in = [(codes == k).astype(float) for k in range(len(own.log_p))]
    log_w = sum(a @ p for a, p in zip(is_in, own.log_p, strict=True)) + own.log_mass
    w = np.exp(log_w - log_w.max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    answered = (codes >= 0).any(axis=1)
    weight, times = weight * answered, times * answered  # who answered nothing says nothing
    u = np.clip(w @ own.moments / _FARTHEST, -1.0, 1.0)
    s = np.zeros((len(own.slope), *codes.shape))
    for p, slopes in enumerate(own.slope):
        for a, slope in zip(is_in, slopes, strict=True):
            if slope.any():
                s[p] += a * (w @ slope.T)
    largest, highest = own.setting.largest, float(len(is_in))
    shown = own.rounded(w * weight[:, None], 1.0) * times[:, None]
    of_squares = own.rounded((w * weight[:, None]) ** 2, largest) * times[:, None]
    coarse = own.rounded(w * weight[:, None], highest, 2) * times[:, None]
    y = np.maximum(codes, 0).astype(float)
    by_score, by_ability = (
        np.stack([[(f * v).T @ coarse for v in by] for f in ((codes >= 0).astype(float), y)])
        for by in (
            own.rounded(s, highest, 2),
            own.rounded(u.T[:, :, None], highest, 2),
        )
    )
    once, squared = own.rounded(weight, 1.0) * times, own.rounded(weight**2, largest) * times
    return Sums(
        np.stack([a.T @ times for a in is_in]).astype(np.int64),
        np.stack([a.T @ shown for a in is_in]), np.stack([a.T @ of_squares for a in is_in]),
        by_score, by_ability,
        np.einsum("pij,i->jp", own.rounded(s * weight[:, None], 1.0), times),
        own.rounded(u * weight[:, None], 1.0).T @ times,
        np.array([once.sum(), squared.sum()]),
        _products(s, u, weight, times, own, 1.0),
        _products(s, u, weight**2, times, own, largest) if own.setting.sampled else (),
    )  # fmt: skip


def _products(
    s: Floats, u: Floats, weight: Floats, times: Floats, own: _OfGroup, largest: float
) -> tuple[Floats, Floats, Floats]:
    """Sums over persons of s s', s u' and u u'."""
    size, _, m = s.shape
    by_weight, plain = own.rounded(s * weight[:, None], largest, 2), own.rounded(s, largest, 2)
    of_ability = own.rounded(u, largest, 2)
    products, mixed = np.empty((m, size, size)), np.empty((m, size, u.shape[1]))
    for p in range(size):
        weighted = by_weight[p] * times[:, None]
        mixed[:, p] = weighted.T @ of_ability
        for q in range(p + 1):
            products[:, p, q] = products[:, q, p] = np.einsum("ij,ij->j", weighted, plain[q])
    heavy = own.rounded(u * weight[:, None], largest, 2) * times[:, None]
    return products, mixed, heavy.T @ of_ability
