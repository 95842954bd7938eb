"""Diagonal blocks of the inverse of 1 - X, where X is known by its products with vectors alone.

X is symmetric with eigenvalues below 1, and 0 within each block.  It is split into a part of low
rank on a Krylov space, ``Q T Q'`` with ``T = Q'X Q`` (block Lanczos, orthogonalised in full), whose
eigenvalues are the large ones, and a rest N, small and with ``Q'N Q = 0``.  With ``H = (1 - Q T
Q')^-1``, which is ``1 + Q W Q'``,

    (1 - X)^-1 = H + H N H + H N (1 - X)^-1 N H.

Blocks of the first two are known.  Those of the last, as small as squares of N, are means over
random signs z of ``(H N z) (H N (1 - X)^-1 z)'`` (Hutchinson 1990); conjugate gradients with H as a
preconditioner give ``(1 - X)^-1 z``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.kernels.base import keyed_random

#: Vectors of a step of the Krylov space, steps at least and at most, and random signs at a time.
_WIDTH, _LEAST_STEPS, _STEPS, _SIGNS = 64, 3, 14, 128
#: Times so many signs at most, how many of them meet conjugate gradients, and the standard
#: deviation of the worst diagonal entry, as a share, that ends the search.
_MOST_SIGNS, _FULL, _ENOUGH = 16, 64, 5e-4
#: Residual of conjugate gradients, as a share, and steps at most.
RESIDUAL, _MOST = 1e-5, 200
#: Eigenvalue of 1 - X below which it counts as singular.
_LEAST = 1e-6
#: Numbers of a table of blocks that is treated at a time.
_CHUNK = 1 << 22

Product = Callable[[Floats], Floats]


def width(size: int, more: int) -> tuple[int, int]:
    """Vectors that a product has at most, with ``more`` columns, and vectors that are kept."""
    return max(_SIGNS, _FULL + more), min(size, _WIDTH * _STEPS)


class SingularError(Exception):
    """1 - X has no inverse that numbers can tell, or is not positive."""


@dataclass(frozen=True)
class Blocks:
    """Columns of each block, (blocks, places); -1 where it lacks one."""

    at: Ints

    @functools.cached_property
    def there(self) -> Bools:
        """Pairs of places that a block has, (blocks, places, places)."""
        inside = self.at >= 0
        return np.asarray(inside[:, :, None] & inside[:, None, :])

    @functools.cached_property
    def size(self) -> int:
        """Number of columns."""
        return int((self.at >= 0).sum())

    @functools.cached_property
    def number(self) -> Ints:
        """Block of each column."""
        return self._of_columns(np.arange(len(self.at))[:, None])

    @functools.cached_property
    def place(self) -> Ints:
        """Place of each column in its block."""
        return self._of_columns(np.arange(self.at.shape[1]))

    def _of_columns(self, x: Ints) -> Ints:
        out, inside = np.empty(self.size, dtype=np.int64), self.at >= 0
        out[self.at[inside]] = np.broadcast_to(x, self.at.shape)[inside]
        return out

    def sparse(self, blocks: Floats) -> Any:
        """Matrix (columns, columns) of these blocks."""
        row, column = np.broadcast_arrays(self.at[:, :, None], self.at[:, None, :])
        where = (row[self.there], column[self.there])
        return scipy.sparse.csr_matrix((blocks[self.there], where), (self.size, self.size))

    def product(self, left: Floats, right: Floats) -> Floats:
        """Blocks of ``left right'``, (blocks, places, places)."""
        at, width = self.at, left.shape[1]  # -1 is the row of zeros at the end
        out = np.empty((*at.shape, at.shape[1]))
        n = max(1, _CHUNK // max(1, at.shape[1] * width))
        left, right = (np.append(x, np.zeros((1, width)), axis=0) for x in (left, right))
        for k in range(0, len(at), n):
            out[k : k + n] = left[at[k : k + n]] @ right[at[k : k + n]].transpose(0, 2, 1)
        return out


@dataclass(frozen=True)
class LowRank:
    """The part of X on the space of ``q``; ``rest`` is what X makes of its last vectors beyond."""

    q: Floats
    t: Floats
    w: Floats
    rest: Floats

    @classmethod
    def of(cls, q: Floats, t: Floats, rest: Floats) -> LowRank:
        """Part with ``t = q'X q``."""
        values, vectors = np.linalg.eigh(t)
        if values.size and not values[-1] < 1.0 - _LEAST:
            raise SingularError
        return cls(q, t, (vectors * (values / (1.0 - values))) @ vectors.T, rest)

    @functools.cached_property
    def diagonal(self) -> Floats:
        """Diagonal of H."""
        return np.asarray(1.0 + np.einsum("ik,ik->i", self.q @ self.w, self.q))

    def applied(self, y: Floats) -> Floats:
        """H y."""
        return np.asarray(y + self.q @ (self.w @ (self.q.T @ y)))

    def rest_of(self, xy: Floats, y: Floats) -> Floats:
        """N y, of X y."""
        return xy - self.q @ (self.t @ (self.q.T @ y))


def random_signs(purpose: str, k: int, size: int) -> Floats:
    """Random signs, (size, _SIGNS): the same ones whatever the data."""
    words = keyed_random.words(keyed_random.key(0, purpose, k), 0, size, _SIGNS // 64)
    bits = np.unpackbits(words.view(np.uint8).reshape(size, -1), axis=1)
    return np.asarray(2.0 * bits[:, :_SIGNS] - 1.0)


def _signs(k: int, size: int) -> Floats:
    return random_signs("inverse blocks", k, size)


def low_rank(product: Product, blocks: Blocks) -> LowRank:
    """Large part of X: as many steps as leave a rest whose squares a few signs tell well enough."""
    size = blocks.size
    signs = _signs(0, size)
    x_signs = product(signs)
    new = _orthonormal(np.empty((size, 0)), _signs(1, size)[:, : min(_WIDTH, size)])
    q, t = np.empty((size, 0)), np.empty((0, 0))
    for step in range(1, _STEPS + 1):
        found = product(new)
        q = np.concatenate([q, new], axis=1)
        along = q.T @ found
        t = np.block([[t, along[: len(t)]], [along[: len(t)].T, along[len(t) :]]])
        t = 0.5 * (t + t.T)
        rest = found - q @ along
        rest -= q @ (q.T @ rest)
        low = LowRank.of(q, t, rest)
        if q.shape[1] == size:
            break
        if step >= _LEAST_STEPS:
            share = _second(low, blocks, x_signs, signs)[1]
            if _deviation(share, _SIGNS * _MOST_SIGNS) <= 0.5 * _ENOUGH:
                break
        new = _orthonormal(q, rest)[:, : size - q.shape[1]]
    return low


def _orthonormal(q: Floats, new: Floats) -> Floats:
    """Orthonormal vectors that span ``new`` and are orthogonal to ``q``."""
    for _ in range(2):
        new = np.linalg.qr(new)[0]
        new = new - q @ (q.T @ new)
    return np.linalg.qr(new)[0]


def _deviation(share: float, n_signs: int) -> float:
    """Standard deviation of the root of a diagonal entry, a mean of signs in this share."""
    return share / np.sqrt(2.0 * n_signs)


def _second(low: LowRank, blocks: Blocks, x_signs: Floats, signs: Floats) -> tuple[Floats, float]:
    """Blocks of ``H N N H`` from these signs, and their largest share of H's diagonal."""
    moved = low.applied(low.rest_of(x_signs, signs))
    square = np.einsum("ik,ik->i", moved, moved) / signs.shape[1]
    return blocks.product(moved, moved) / signs.shape[1], float((square / low.diagonal).max())


@dataclass(frozen=True)
class Inverse:
    """The inverse of 1 - X, by conjugate gradients."""

    product: Product
    low: LowRank

    def times(self, b: Floats, residual: float = RESIDUAL) -> Floats:
        """(1 - X)^-1 b, for columns b."""
        x, r = np.zeros_like(b), b.copy()
        z = self.low.applied(r)
        direction, rz = z, np.einsum("ik,ik->k", r, z)
        wanted = residual * np.linalg.norm(b, axis=0)
        for _ in range(_MOST):
            left = np.linalg.norm(r, axis=0) > wanted
            if not left.any():
                return x
            along = direction[:, left]
            image = along - self.product(along)
            curvature = np.einsum("ik,ik->k", along, image)
            if not (curvature > 0.0).all():
                raise SingularError
            step = rz[left] / curvature
            x[:, left] += step * along
            r[:, left] -= step * image
            z = self.low.applied(r[:, left])
            new = np.einsum("ik,ik->k", r[:, left], z)
            direction[:, left] = z + new / rz[left] * along
            rz[left] = new
        raise SingularError

    def blocks(self, blocks: Blocks, columns: Floats) -> tuple[Floats, Floats, float]:
        """Blocks of the inverse; its product with ``columns``; the blocks' standard deviation.

        The last is of the worst root of a diagonal entry, as a share, from the random signs.
        """
        low, size = self.low, len(self.low.q)
        qw, last = low.q @ low.w, low.rest.shape[1]
        zeroth = blocks.product(qw, low.q)
        zeroth[blocks.number, blocks.place, blocks.place] += 1.0
        first = blocks.product(qw[:, qw.shape[1] - last :], low.rest)
        first += first.transpose(0, 2, 1) - blocks.product(low.q @ low.t, low.q)
        second, n_signs, share = np.zeros_like(zeroth), 0, np.inf
        while n_signs < _SIGNS * _MOST_SIGNS and _deviation(share, max(n_signs, 1)) > _ENOUGH:
            signs = _signs(2 + n_signs // _SIGNS, size)
            x_signs = self.product(signs)
            found, of_these = _second(low, blocks, x_signs, signs)
            second += found
            n_signs += _SIGNS
            share = of_these if n_signs == _SIGNS else max(share, of_these)
            if n_signs == _SIGNS:
                few, x_few = signs[:, :_FULL], x_signs[:, :_FULL]
        solved = self.times(np.concatenate([few, columns], axis=1))
        of_few, of_columns = solved[:, :_FULL], solved[:, _FULL:]
        # X of what was solved is that less the signs.  What the mean over all signs lacks:
        moved = low.applied(low.rest_of(x_few, few))
        beyond = low.applied(low.rest_of(of_few - few, of_few)) - moved
        more = blocks.product(moved, beyond) / few.shape[1]
        second = second * (_SIGNS / n_signs) + 0.5 * (more + more.transpose(0, 2, 1))
        return zeroth + first + second, of_columns, _deviation(share, n_signs)
