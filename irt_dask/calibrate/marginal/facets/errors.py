"""Standard errors of items, groups and effects: the inverse of a sparse observed information.

Effects of a facet sum to 0, which makes the information and these constraints one matrix

    [ I  C' ]
    [ C  0  ]

whose inverse begins with the covariance.  Up to :data:`DENSE` parameters it is a matrix.  Beyond,
effects (but for one level of each further facet) are eliminated: products with the inverse of their
own information, which is sparse, come from conjugate gradients, some columns at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from scipy.sparse.csgraph import minimum_spanning_tree

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.marginal.expected import Expected
from irt_dask.calibrate.marginal.facets import joint_step, lost
from irt_dask.calibrate.marginal.facets.design import Design
from irt_dask.calibrate.marginal.facets.joint_step import Numbers
from irt_dask.calibrate.marginal.facets.model import FacetModel, at_bound
from irt_dask.calibrate.marginal.facets.rounds import FacetRounds
from irt_dask.calibrate.marginal.facets.shrinking import Estimates
from irt_dask.engine.memory import refuse_beyond_memory

#: Parameters up to which the covariance is a matrix, and may be a sandwich.
DENSE, SANDWICH = 1000, 3000
#: Smallest eigenvalue of the information, as a share of that of known abilities.
_LEAST = 1e-7
#: Relative residuals of conjugate gradients, iterations at most, and columns at a time.
_RESIDUAL, _MOST, _WIDTH = 1e-7, 2000, 512


class SingularError(Exception):
    """The data do not determine all parameters."""


@dataclass(frozen=True)
class Information:
    """Observed information; ``base`` (base, base), ``across`` (base, effects), ``effects`` sparse.

    ``squares`` are sums of squares of persons' mean scores in the same form, for a sandwich.
    """

    base: Floats
    across: Floats
    effects: Any
    sums: Any  # constraints, sparse (facets, effects)
    unit: Floats  # roots of the information of known abilities
    squares: lost.Lost | None = None
    interacting: bool = False  # whether some effects are sums of others but for constraints

    @property
    def n_base(self) -> int:
        """Parameters of items and groups."""
        return len(self.base)


@dataclass(frozen=True)
class Covariance:
    """Covariances of base parameters, of these with effects, and variances of effects.

    ``pairs`` (sparse, effects x effects) are covariances of effects that a column has together.
    ``solve`` gives the inverse of the information times a score.
    """

    base: Floats
    across: Floats  # (effects, base)
    pairs: Any
    solve: Any

    @property
    def effects(self) -> Floats:
        """Variances of effects."""
        return np.asarray(self.pairs.diagonal())


def numbers(model: FacetModel, x: Floats) -> Numbers:
    """Number the parameters that are estimated and inside their bounds; effects have them all."""
    items, ability, _ = model.unpack(x)
    parent = model.parent
    order = np.full(items.shape, -1)
    own = parent.inside(items) & parent.own
    size = int(own.sum())
    order[own] = np.arange(size)
    for k in np.unique(parent.of_all[parent.of_all >= 0]):
        order[parent.of_all == k] = size
        size += 1
    groups = np.full((2, parent.n_groups), -1)
    inside = parent.free_groups & ~parent.at_group_bound(ability)
    groups[inside] = size + np.arange(inside.sum())
    return Numbers(order, groups, size + int(inside.sum()))


def held(model: FacetModel, effects: Floats) -> Bools:
    """Effects that are taken as known: they ended at a bound."""
    return at_bound(effects)


def as_given(design: Design, effects: Floats, c: Covariance | None, unknown: Bools) -> Estimates:
    """Effects of numbers as they were given, and their variances; NaN where some are unknown."""
    variance = np.full(effects.size, np.nan)
    if c is not None:
        variance = np.asarray((design.given @ c.pairs).multiply(design.given).sum(axis=1)).ravel()
    variance[design.touched(unknown)] = np.nan
    return Estimates(np.asarray(design.given @ effects), np.maximum(variance, 0.0))


def information(
    fit: FacetRounds, x: Floats, expected: Expected, of: Numbers, *, squares: bool = False
) -> Information:
    """Observed information at x: one pass, with squares two."""
    model, n = fit.model, of.n_base
    items, ability, effects = model.unpack(x)
    known = joint_step.system(model, items, effects, expected.counts, of, observed=True)
    base, across = known.base.toarray(), known.across.toarray()
    for at, block in expected.of_groups(ability, of.groups):
        base[np.ix_(at, at)] += block
    diagonal = np.append(np.diag(base), known.effects.diagonal())
    root = np.sqrt(np.where(diagonal > 0.0, diagonal, 0.0))
    less = lost.lost(fit, x, of, root)
    more = _middle(fit, x, of, root) if squares else None
    base, across = base - 0.5 * (less.base + less.base.T), across - less.across
    own = scipy.sparse.csr_array(known.effects - 0.5 * (less.effects + less.effects.T))
    fixed = held(model, effects)
    across[:, fixed] = 0.0
    keep = scipy.sparse.diags_array((~fixed).astype(float))
    own = scipy.sparse.csr_array(keep @ own @ keep + scipy.sparse.diags_array(fixed * 1.0))
    sums = model.design.sums @ keep
    sums = scipy.sparse.csr_array(sums)[np.flatnonzero(np.diff(sums.indptr))]
    assert len(base) == n
    return Information(
        base, across, own, sums, np.where(root > 0.0, root, 1.0), more,
        model.design.interacting,
    )  # fmt: skip


def _middle(fit: FacetRounds, x: Floats, of: Numbers, root: Floats) -> lost.Lost:
    """Squares of persons' mean scores, and priors as persons: where none are their SDs are left."""
    model, n = fit.model, fit.engine.n_persons
    items = np.where(model.parent.free, model.unpack(x)[0], 0.5)
    found = lost.lost(fit, x, of, root, squares=True)
    factor = n / max(1, n - 1)
    of_prior = joint_step.placed(model.parent.prior.information(items), of.items, of.n_base)
    return lost.Lost(
        factor * found.base + of_prior.toarray(), factor * found.across,
        factor * found.effects + scipy.sparse.diags_array(model.precision),
    )  # fmt: skip


def score(fit: FacetRounds, x: Floats, e: Expected, of: Numbers) -> Floats:
    """Derivatives of the log posterior by the parameters that have a number (Fisher's identity)."""
    items, ability, effects = fit.model.unpack(x)
    out = joint_step.system(fit.model, items, effects, e.counts, of).gradient
    sd = np.exp(ability[1])[:, None]
    u = (e.nodes - ability[0][:, None]) / sd
    of_groups = np.stack([e.persons * u / sd, e.persons * (u**2 - 1.0)]).sum(axis=2)
    out[of.groups[of.groups >= 0]] = of_groups[of.groups >= 0]
    out[of.n_base :][held(fit.model, effects)] = 0.0
    return out


def moved(fit: FacetRounds, x: Floats, e: Expected, of: Numbers, c: Covariance) -> Floats:
    """Newton step from x, near the maximum."""
    items, ability, effects = fit.model.unpack(x)
    step = c.solve(score(fit, x, e, of))
    base = np.append(step[: of.n_base], 0.0)  # the last one for number -1
    out = fit.model.pack(
        items + base[of.items], ability + base[of.groups], effects + step[of.n_base :]
    )
    return np.clip(out, fit.box.low[:, None], fit.box.high[:, None])


# --- the inverse ----------------------------------------------------------------------------------


def covariance(i: Information, together: Any) -> Covariance:
    """The inverse; ``together`` (sparse) is not 0 where a column has two effects."""
    n = i.n_base + i.effects.shape[0]
    if n <= DENSE or i.squares is not None:
        return _dense(i, together)
    return _Eliminated(i).covariance(together)


def _dense(i: Information, together: Any) -> Covariance:
    n, nb = i.n_base + i.effects.shape[0], i.n_base
    whole = np.block([[i.base, i.across], [i.across.T, i.effects.toarray()]])
    whole /= np.outer(i.unit, i.unit)
    sums = np.zeros((i.sums.shape[0], n))
    sums[:, nb:] = i.sums.toarray()
    sums /= i.unit
    sums /= np.linalg.norm(sums, axis=1, keepdims=True)
    # Directions along the constraints are nowhere: any information there makes it an inverse.
    basis = scipy.linalg.qr(sums.T)[0][:, len(sums) :] if len(sums) else np.eye(n)
    values, vectors = np.linalg.eigh(basis.T @ whole @ basis)
    if not values[0] > _LEAST:
        raise SingularError
    half = (basis @ vectors) / i.unit[:, None]
    inverse = (half / values) @ half.T
    matrix = inverse
    if i.squares is not None:
        s = i.squares
        middle = np.block([[s.base, s.across], [s.across.T, s.effects.toarray()]])
        matrix = inverse @ middle @ inverse
    own = matrix[nb:, nb:]
    pattern = scipy.sparse.coo_array(together)
    pairs = scipy.sparse.csr_array(
        (own[pattern.row, pattern.col], (pattern.row, pattern.col)), shape=own.shape
    )
    return Covariance(matrix[:nb, :nb], matrix[nb:, :nb], pairs, lambda v: inverse @ v)


class _Eliminated:
    """Effects eliminated; the border has base parameters, pinned effects and the constraints."""

    def __init__(self, i: Information) -> None:
        self.i, n, nb = i, i.effects.shape[0], i.n_base
        size = i.effects.diagonal()
        # All levels of one facet may move against those of another: one of each is in the border.
        if i.interacting:
            self.pinned = _pinned(i.sums, size)
        else:
            rows = [i.sums[[k]].indices for k in range(1, i.sums.shape[0])]
            pinned = {int(row[np.argmax(size[row])]) for row in rows}
            self.pinned = np.array(sorted(pinned), dtype=np.int64)
        self.kept = np.setdiff1d(np.arange(n), self.pinned)
        root = 1.0 / np.sqrt(size[self.kept])
        if not np.isfinite(root).all():
            raise SingularError
        self.root = root
        scale = scipy.sparse.diags_array(root)
        own = scipy.sparse.csr_array(i.effects)[self.kept]
        self.matrix = scipy.sparse.csr_array(scale @ own[:, self.kept] @ scale)
        n_sums = i.sums.shape[0]
        width = nb + self.pinned.size + n_sums
        refuse_beyond_memory(
            8.0 * n * (2.0 * width + 6.0 * _WIDTH),
            f"standard errors of {n} effects of facets and {nb} other parameters",
        )
        self.border = np.concatenate(
            [i.across[:, self.kept].T, own[:, self.pinned].toarray(),
             i.sums[:, self.kept].T.toarray()], axis=1,
        )  # fmt: skip
        corner = np.zeros((width, width))
        corner[:nb, :nb] = i.base
        p = slice(nb, nb + self.pinned.size)
        corner[:nb, p] = i.across[:, self.pinned]
        corner[p, :nb] = corner[:nb, p].T
        corner[p, p] = scipy.sparse.csr_array(i.effects)[self.pinned][:, self.pinned].toarray()
        corner[p.stop :, p] = i.sums[:, self.pinned].toarray()
        corner[p, p.stop :] = corner[p.stop :, p].T
        self.solved = self.inner(self.border)
        left = corner - self.border.T @ self.solved
        left = 0.5 * (left + left.T)
        scaling = np.sqrt(np.abs(np.diag(left)))
        scaling = np.where(scaling > 0.0, scaling, 1.0)
        values = np.linalg.eigvalsh(left / np.outer(scaling, scaling))
        if (values < 0.0).sum() != n_sums or np.abs(values).min() <= _LEAST:
            raise SingularError
        self.of_border = np.asarray(np.linalg.inv(left), dtype=np.float64)

    def inner(self, b: Floats) -> Floats:
        """Inverse of the effects' own information times columns."""
        return self.root[:, None] * _conjugate(self.matrix, self.root[:, None] * b)

    def solve(self, v: Floats) -> Floats:
        """Inverse of the information with its constraints times a score."""
        nb = self.i.n_base
        mine, rest = v[nb:][self.kept], np.zeros(len(self.of_border))
        rest[:nb], rest[nb : nb + self.pinned.size] = v[:nb], v[nb:][self.pinned]
        found = self.of_border @ (rest - self.solved.T @ mine)
        out = np.zeros(v.size)
        out[:nb] = found[:nb]
        out[nb:][self.kept] = self.inner(mine[:, None])[:, 0] - self.solved @ found
        out[nb:][self.pinned] = found[nb : nb + self.pinned.size]
        return out

    def covariance(self, together: Any) -> Covariance:
        """What results need of the inverse."""
        i, nb, n = self.i, self.i.n_base, self.i.effects.shape[0]
        assert i.squares is None  # refused before
        across = np.zeros((n, nb))
        across[self.kept] = -self.solved @ self.of_border[:, :nb]
        p = slice(nb, nb + self.pinned.size)
        across[self.pinned] = self.of_border[p, :nb]
        pattern = scipy.sparse.csc_array(together)
        row, column, value = [], [], []
        followed = self.solved @ self.of_border
        for lo in range(0, self.kept.size, _WIDTH):
            at = np.arange(lo, min(lo + _WIDTH, self.kept.size))
            unit = np.zeros((self.kept.size, at.size))
            unit[at, np.arange(at.size)] = 1.0
            block = np.zeros((n, at.size))
            block[self.kept] = self.inner(unit) + followed @ self.solved[at].T
            block[self.pinned] = -followed[at][:, p].T
            mine = pattern[:, self.kept[at]].tocoo()
            row.append(mine.row)
            column.append(self.kept[at][mine.col])
            value.append(block[mine.row, mine.col])
        for k, e in enumerate(self.pinned):
            block = np.zeros(n)
            block[self.kept] = -followed[:, nb + k]
            block[self.pinned] = self.of_border[p, nb + k]
            mine_ = pattern[:, [e]].tocoo().row
            row.append(mine_)
            column.append(np.full(mine_.size, e))
            value.append(block[mine_])
        pairs = scipy.sparse.csr_array(
            (np.concatenate(value), (np.concatenate(row), np.concatenate(column))), shape=(n, n)
        )
        return Covariance(self.of_border[:nb, :nb], across, pairs, self.solve)


def _pinned(sums: Any, size: Floats) -> Ints:
    """As many effects as constraints, without which the others are determined by columns.

    An effect is in one constraint or two: an edge from one to the other, or to the ground.  The
    effects of a spanning tree are what is sought: where these are 0 what moves along with a margin
    is 0, margin by margin.
    """
    n, by_effect = sums.shape[0], scipy.sparse.csc_array(sums)
    start, end = by_effect.indptr[:-1], by_effect.indptr[1:]
    effect = np.flatnonzero(end > start)
    effect = effect[np.argsort(-size[effect], kind="stable")]
    one, last = by_effect.indices[start[effect]], by_effect.indices[end[effect] - 1]
    other = np.where(end[effect] - start[effect] == 2, last, n)
    _, first = np.unique(one.astype(np.int64) * (n + 1) + other, return_index=True)
    edges = scipy.sparse.coo_array((first + 1.0, (one[first], other[first])), (n + 1, n + 1))
    tree = minimum_spanning_tree(edges)
    return np.sort(effect[tree.data.astype(np.int64) - 1])


def _conjugate(matrix: Any, b: Floats) -> Floats:
    """Solution for each column, by conjugate gradients; the diagonal of the matrix is 1."""
    x, r = np.zeros_like(b), b.copy()
    p, square = r.copy(), np.einsum("ik,ik->k", r, r)
    enough = _RESIDUAL**2 * square
    for _ in range(_MOST):
        going = square > enough
        if not going.any():
            return x
        product = matrix @ p
        along = np.einsum("ik,ik->k", p, product)
        if (along[going] <= 0.0).any():
            raise SingularError
        step = np.where(going, square / np.where(going, along, 1.0), 0.0)
        x += step * p
        r -= step * product
        new = np.einsum("ik,ik->k", r, r)
        p *= np.where(going, new / np.where(going, square, 1.0), 0.0)
        p += r
        square = np.where(going, new, square)
    raise SingularError
