"""One pass at fitted parameters: what every item shows in every group, and how it varies by chance.

Of a person with responses y the posterior weights ``w_q`` at the nodes give the expected score of
each parameter of an item, ``s = sum_q w_q d log P(y; theta_q)`` (Fisher's identity), and of the
mean and the SD of the group, ``u``.  Sums over a group are those of the marginal likelihood; sums
of their products say how they vary from sample to sample.  Counts at the nodes are what the curve
of the item in the group is made of.
"""

from __future__ import annotations

import math
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

#: Cells (persons x items) that are treated at a time.
_CELLS = 1 << 17


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

    @property
    def nbytes(self) -> int:
        return self.log_p.nbytes + self.slope.nbytes + self.expected.nbytes

    @classmethod
    def of(cls, items: ItemSet, nodes: Floats, n_parameters: int) -> _Tables:
        k = items.n_categories
        own = np.arange(k.max()) < k[:, None]
        log_p = np.zeros((*own.shape, nodes.size))
        log_p[own] = np.where(items.empty[:, None], 0.0, items.log_p(nodes))
        slope = np.zeros((n_parameters, *own.shape, nodes.size))
        slope[:, own] = np.where(items.empty[:, None], 0.0, items.by_parameter(nodes, n_parameters))
        return cls(
            np.ascontiguousarray(log_p.transpose(1, 0, 2)),
            np.ascontiguousarray(slope.transpose(0, 2, 1, 3)),
            items.expected(nodes),
        )


class Sums(NamedTuple):
    """Of the persons of a group; weighted, and for what varies with squared weights again."""

    n: Ints  # responses (categories, items)
    counts: Floats  # expected (categories, items, nodes)
    # Residuals e_q = w_q (y - expected score) from the common curve: sums of e_q^2 (items, nodes),
    # of e_q s' (parameters, items, nodes), and of e_q u' (2, items, nodes).
    noise: Floats
    noise_score: Floats
    noise_ability: Floats
    score: Floats  # (items, parameters)
    products: Floats  # s s', (items, parameters, parameters)
    mixed: Floats  # s u', (items, parameters, 2)
    ability: Floats  # u, (2,)
    spread: Floats  # u u', (2, 2)
    weight: float
    squared_weight: float
    squares: tuple[Floats, ...]  # products, mixed and spread with squared weights, if sampled


#: Sums of some persons by the number of their group.
ByGroup = dict[int, Sums]


def measure(engine: Engine, setting: Setting) -> list[Sums]:
    """Sums of each group: one pass."""
    groups, m = setting.columns.shape
    k, q = int(setting.items.n_categories.max()), setting.nodes.size
    held = math.log2(4 * engine.executor.n_threads)
    held = math.log2(4 * engine.executor.n_threads)
    refuse_beyond_memory(
        8.0 * held * groups * m * q * (k + 3 + setting.n_parameters),
        f"curves of {m} items in {groups} groups at {q} abilities",
    )
    found: ByGroup = engine.map_reduce(_measured, setting, combine=_merged)[0]
    return [found[g] for g in range(groups)]


def _merged(left: tuple[ByGroup], right: tuple[ByGroup]) -> tuple[ByGroup]:
    out = dict(left[0])
    for g, sums in right[0].items():
        out[g] = _add(out[g], sums) if g in out else sums
    return (out,)


def _add(a: Sums, b: Sums) -> Sums:
    added: list[Any] = [x + y for x, y in zip(a[:-1], b[:-1], strict=True)]  # type: ignore[operator]
    added.append(tuple(x + y for x, y in zip(a.squares, b.squares, strict=True)))
    return Sums(*added)


def _measured(block: Block, setting: Setting) -> tuple[ByGroup]:
    assert block.group is not None
    out: ByGroup = {}
    step = max(1, _CELLS // block.data.shape[1])
    for g in np.unique(block.group).tolist():
        rows = np.flatnonzero(block.group == g)
        for lo in range(0, rows.size, step):
            some = rows[lo : lo + step]
            codes = layouts.to_dense(layouts.take(block.data, some)).values
            weight = np.ones(some.size) if block.weight is None else block.weight[some]
            times = np.ones(some.size) if block.times is None else block.times[some].astype(float)
            sums = _of_persons(codes, weight, times, g, setting)
            out[g] = _add(out[g], sums) if g in out else sums
    return (out,)


def _of_persons(codes: Any, weight: Floats, times: Floats, g: int, setting: Setting) -> Sums:
    """Sums of some persons of a group; ``times`` says how many each row stands for."""
    t, columns = setting.tables, setting.columns[g]
    log_p = t.log_p[:, columns]
    is_in = [(codes == k).astype(float) for k in range(len(log_p))]
    log_w = sum(a @ p for a, p in zip(is_in, log_p, strict=True)) + setting.log_mass[g]
    w = np.exp(log_w - log_w.max(axis=1, keepdims=True))
    w /= w.sum(axis=1, keepdims=True)
    answered = (codes >= 0).any(axis=1)
    weight, times = weight * answered, times * answered  # who answered nothing says nothing
    once, squared = weight * times, weight**2 * times
    z = (setting.nodes - setting.mean[g]) / setting.sd[g]
    u = w @ np.stack([z, z**2 - 1.0], axis=1)
    own = [p for p in range(setting.n_parameters) if t.slope[p][:, columns].any()]
    s = np.zeros((setting.n_parameters, *codes.shape))
    for p in own:
        for a, slope in zip(is_in, t.slope[p][:, columns], strict=True):
            s[p] += a * (w @ slope.T)
    shown, of_squares = w * once[:, None], w**2 * squared[:, None]
    expected = t.expected[setting.common]
    off = [k - expected for k in range(len(is_in))]
    noise = sum(e**2 * (a.T @ of_squares) for e, a in zip(off, is_in, strict=True))
    with_s, with_u = (
        np.stack([
            sum(e * ((a * v).T @ shown) for e, a in zip(off, is_in, strict=True)) for v in by
        ])
        for by in (s, u.T[:, :, None])
    )  # fmt: skip
    products, mixed, spread = _products(s, u, once)
    return Sums(
        np.stack([(codes[answered] == k).T @ times[answered] for k in range(len(log_p))]).astype(
            np.int64
        ),
        np.stack([a.T @ shown for a in is_in]),
        np.asarray(noise), with_s, with_u,
        np.einsum("pij,i->jp", s, once), products, mixed, u.T @ once, spread,
        float(once.sum()), float(squared.sum()),
        _products(s, u, squared) if setting.sampled else (),
    )  # fmt: skip


def _products(s: Floats, u: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Sums over persons of s s', s u' and u u'."""
    size, _, m = s.shape
    products, mixed = np.empty((m, size, size)), np.empty((m, size, u.shape[1]))
    for p in range(size):
        weighted = s[p] * weight[:, None]
        mixed[:, p] = weighted.T @ u
        for q in range(p + 1):
            products[:, p, q] = products[:, q, p] = np.einsum("ij,ij->j", weighted, s[q])
    return products, mixed, (u * weight[:, None]).T @ u
