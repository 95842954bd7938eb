"""Diagonal blocks of ``(1 - X)^-1 B (1 - X)^-1``, where X and B are known by products alone.

With ``T = (1 - X)^-1``, and E what B differs from k times 1 - X,

    T B T = k T + T E T,    E = B - k (1 - X),

where the blocks of T are known (:mod:`.inverse_blocks`).  If the model holds E is noise, whose rows
are about as long as sqrt(parameters that a person answers / persons of an item).  With H, the part
of T of low rank and the identity, N the small rest of X, ``K = T - H`` and ``K1 = H N H``, which is
K but for squares of N,

    T E T = H E H + (K1 E H + its transpose) + R,
    R = (K - K1) E H + its transpose + K E K.

Blocks of H E H are known, as those of E and the products of E with the few vectors of H are.
Those of the second term, as small as N times E, are means over random signs z of
``(K1 z) (H E z)'``, for two products a sign; on the space of H, of which K1 is known, nothing is
left to chance.  Those of R, smaller by N once more, are means over fewer signs, with ``T z`` and
``T E z`` by conjugate gradients.  How much entries vary from sign to sign says how well the means
are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.calibrate.marginal.inverse_blocks import Blocks, Inverse, Product, random_signs

#: Signs at a time of the first mean and of the second, and times so many at most.
_FIRST, _SECOND, _MOST_FIRST, _MOST_SECOND = 128, 64, 96, 16
#: Standard deviation of the worst root of a diagonal entry, as a share, that ends the search.
_ENOUGH = 5e-4
#: Residual of the conjugate gradients of R, as a share, and what they cost beside two products.
_RESIDUAL, _COST = 1e-4, 8.0


@dataclass(frozen=True)
class Difference:
    """E by its products, and what is known of it without chance."""

    inverse: Inverse
    product: Product  # of B
    k: float
    eq: Floats  # E q, q the vectors of low rank

    @classmethod
    def of(cls, inverse: Inverse, product: Product, of_b: Floats) -> Difference:
        """The difference to B, whose diagonal is ``of_b``."""
        low, k = inverse.low, float(of_b.mean())
        xq = low.q @ low.t
        xq[:, xq.shape[1] - low.rest.shape[1] :] += low.rest
        return cls(inverse, product, k, product(low.q) - k * (low.q - xq))

    def times(self, z: Floats, xz: Floats) -> Floats:
        """E z, with X z."""
        return self.product(z) - self.k * (z - xz)

    def outer(self) -> tuple[Floats, Floats]:
        """H E H less E, and K1 E H on the space of H, are ``a q' + q a'`` and ``rest b'``: a, b."""
        low = self.inverse.low
        within = low.q.T @ self.eq
        a = self.eq @ low.w + 0.5 * low.q @ (low.w @ (0.5 * (within + within.T)) @ low.w)
        last = slice(low.w.shape[1] - low.rest.shape[1], None)
        heq = self.eq + low.q @ (low.w @ within)
        return a, heq @ (low.w + np.eye(len(low.w)))[:, last]


class _Mean:
    """Mean over signs of blocks ``left right'`` and their transpose, and how much it varies."""

    def __init__(self, own: Blocks, root: Any) -> None:
        self._own, self._root, self.n = own, root, 0
        self._sum: Floats = np.zeros(own.there.shape)
        self._diagonal, self._squares = np.zeros((2, own.size))

    def add(self, n: int, *pairs: tuple[Floats, Floats]) -> None:
        """Count n signs, a column each, with the sum of products of these pairs."""
        own, each = self._own, np.zeros((self._own.size, n))
        for left, right in pairs:
            left, right = self._root @ left, self._root @ right
            self._sum += own.product(left, right)
            each += 2.0 * left * right
        self._diagonal += each.sum(axis=1)
        self._squares += (each**2).sum(axis=1)
        self.n += n

    @property
    def blocks(self) -> Floats:
        return (self._sum + self._sum.transpose(0, 2, 1)) / self.n

    @property
    def variance(self) -> Floats:
        """Variance of one sign's diagonal entries."""
        return np.maximum(self._squares / self.n - (self._diagonal / self.n) ** 2, 0.0)


def blocks(
    inverse: Inverse, own: Blocks, of_root: Floats, of_t: Floats, squares: Floats,
    product: Product, more: Floats,
) -> tuple[Floats, float]:  # fmt: skip
    """Blocks of ``root T B T root'``, with others that are added, and their standard deviation.

    ``of_root`` are those of the root, which has no others, ``of_t`` of ``root T root'``, and
    ``root' squares root`` of B.  The standard deviation is of the worst root of a diagonal entry,
    as a share.
    """
    root, of_b = own.sparse(of_root), of_root.transpose(0, 2, 1) @ squares @ of_root
    low, at = inverse.low, (own.number, own.place, own.place)
    e = Difference.of(inverse, product, of_b[at])
    a, b = e.outer()
    of_b[at] -= e.k
    half = own.product(root @ a, root @ low.q) + own.product(root @ low.rest, root @ b)
    known = more + e.k * of_t + of_root @ of_b @ of_root.transpose(0, 2, 1)
    known += half + half.transpose(0, 2, 1)
    if low.q.shape[1] == own.size:
        return known, 0.0  # nothing is left of X
    first, second = _Mean(own, root), _Mean(own, root)
    _add_first(e, first)
    _add_second(e, second)
    while True:
        found = known + first.blocks + second.blocks
        of_first, of_second = first.variance / first.n, second.variance / second.n
        share = np.sqrt(of_first + of_second) / (2.0 * np.maximum(found[at], 1e-300))
        worst = int(share.argmax())
        more_first = first.n < _FIRST * _MOST_FIRST
        more_second = second.n < _SECOND * _MOST_SECOND
        if share[worst] <= _ENOUGH or not (more_first or more_second):
            return found, float(share[worst])
        gain = of_second[worst] / (second.n * _COST) > of_first[worst] / first.n
        if (gain and more_second) or not more_first:
            _add_second(e, second)
        else:
            _add_first(e, first)


def _add_first(e: Difference, mean: _Mean) -> None:
    """Signs of the first mean, less what they have of the space of H."""
    low = e.inverse.low
    z = random_signs("sandwich", mean.n // _FIRST, len(low.q))[:, :_FIRST]
    z = z - low.q @ (low.q.T @ z)
    xz = e.inverse.product(z)
    mean.add(_FIRST, (low.applied(xz), low.applied(e.times(z, xz))))  # N z is X z


def _add_second(e: Difference, mean: _Mean) -> None:
    """Signs of the second mean."""
    low = e.inverse.low
    z = random_signs("sandwich, rest", mean.n // _SECOND, len(low.q))[:, :_SECOND]
    xz = e.inverse.product(z)
    ez = e.times(z, xz)
    solved = e.inverse.times(np.concatenate([z, ez], axis=1), _RESIDUAL)
    hz, hez = low.applied(z), low.applied(ez)
    kz, kez = solved[:, :_SECOND] - hz, solved[:, _SECOND:] - hez
    last = low.rest.shape[1]
    # N H z is N z and, as N q is the rest of the last vectors alone, that times these of w q'z.
    along = low.w @ (low.q.T @ z)
    k1z = low.applied(low.rest_of(xz, z)) + low.rest @ along[len(along) - last :]
    mean.add(_SECOND, (kz - k1z, hez), (0.5 * kz, kez))
