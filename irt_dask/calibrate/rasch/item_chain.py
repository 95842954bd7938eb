"""The Markov chain on the items: rates Y_ij + nu between items, as a matrix or never formed.

Rates go from i to j: persons right on i and wrong on j, plus nu where somebody answered both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigs, gmres

from irt_dask.arrays import Bools, Bytes, Floats, Ints, Words
from irt_dask.calibrate.shared.linkage import linked_items
from irt_dask.engine import Engine
from irt_dask.errors import EstimationError
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.pairs import pair_flows
from irt_dask.kernels.responses.response_counts import share_out
from irt_dask.store import Block

#: Largest imbalance of the flows, relative to the largest flow.
_MAX_RESIDUAL = 1e-9
#: Groups that are told apart where the matrix is not formed; the others are one.
_MAX_GROUPS = 20
#: Items of the Krylov space that Arnoldi's method keeps; its restarts.
_KRYLOV, _RESTARTS = 24, 100
#: So few items need no Arnoldi (which needs more than three).
_FEW_ITEMS = 8


class DenseChain:
    """Chain whose rates are a matrix: counts, and nu where items are linked (none with 0)."""

    n_products = 1

    def __init__(self, counts: Floats, links: Bools, nu: float = 0.0) -> None:
        self.counts, self.links, self.nu = counts, links, nu
        np.fill_diagonal(counts, 0.0)
        np.fill_diagonal(links, False)
        self.rates = counts + nu * links if nu > 0 else counts
        self.d = self.rates.sum(axis=1)

    def at(self, nu: float) -> DenseChain:
        """Chain of the same counts with another nu."""
        return self if nu == self.nu else DenseChain(self.counts, self.links, nu)

    def only(self, items: NDArray[np.intp]) -> DenseChain:
        """Chain on some of the items."""
        at = np.ix_(items, items)
        return DenseChain(self.counts[at], self.links[at], self.nu)

    @property
    def degree(self) -> Floats:
        """Links of each item."""
        return self.links.sum(axis=1).astype(float)

    def groups(self) -> Ints:
        """Label the strongly connected components."""
        linked = self.rates > 0
        if _reached(linked, 0).all() and _reached(linked.T, 0).all():
            return np.zeros(len(linked), dtype=np.int64)
        return connected_components(csr_array(linked), directed=True, connection="strong")[1]

    def settled(self) -> Bools:
        """Items that counts alone connect both ways with the item most compared both ways."""
        linked = self.counts > 0
        both = np.minimum(self.counts.sum(axis=0), self.counts.sum(axis=1))
        start = int(both.argmax())
        return _reached(linked, start) & _reached(linked.T, start)

    def left(self, u: Floats) -> Floats:
        """Return u' Y."""
        return u @ self.rates

    def right(self, v: Floats) -> Floats:
        """Return Y v."""
        return self.rates @ v

    def stationary(self, accelerated: bool) -> Floats:
        """Stationary distribution, directly: ``z (P - I) = 0``, one equation ``sum z = 1``.

        P is scaled by rows (accelerated) or by the largest row sum.
        """
        scale = self.d if accelerated else np.full_like(self.d, self.d.max())
        system = (self.rates / scale[:, None]).T
        np.fill_diagonal(system, -self.d / scale)
        system[-1] = 1.0
        rhs = np.zeros(len(system))
        rhs[-1] = 1.0
        factors = scipy.linalg.lu_factor(system, check_finite=False)
        z = scipy.linalg.lu_solve(factors, rhs)
        z += scipy.linalg.lu_solve(factors, rhs - system @ z)  # one step of refinement
        return z / scale


def _reached(linked: Bools, start: int) -> Bools:
    """Items that can be reached from one along links row -> column, itself too."""
    reached = np.zeros(len(linked), dtype=bool)
    reached[start] = True
    new = reached
    while new.any():
        new = linked[np.flatnonzero(new)].any(axis=0) & ~reached
        reached = reached | new
    return reached


# --- never formed ---------------------------------------------------------------------------------


#: Sides of a product, as kernels number them: u' Y, Y v.
_LEFT, _RIGHT = 0, 1


def _flow(block: Block, side: int, u: Floats, scale: float) -> Ints:
    weight = block.weights() * pair_flows.totals(block.data, u, u)[side]
    return share_out(block.data, side, fixed_point.fixed(weight, scale))


def _answered(block: Block, scale: float) -> Ints:
    weight = fixed_point.fixed(block.weights(), scale)
    left, right = (share_out(block.data, side, weight) for side in (_LEFT, _RIGHT))
    return left + right


def _support(blocks: Iterator[Block], lo: int, hi: int) -> Words:
    out = pair_flows.support(next(blocks).data, lo, hi)
    for block in blocks:
        out |= pair_flows.support(block.data, lo, hi)
    return out


class FlowChain:
    """Chain whose rates are never formed: each product is a pass over the data.

    Passes: two for the persons of each item and the row sums, one a product; one per task for the
    links between items, if wanted, which take ``items^2 / 8`` bytes on the driver.
    """

    def __init__(self, engine: Engine, *, linked: bool) -> None:
        self.engine, self.nu = engine, 0.0
        r = engine.responses
        total = engine.n_persons
        scale = fixed_point.scale_for(total)
        answered = np.asarray(engine.map_reduce(_answered, scale)[0]) / scale
        #: Weight of the persons who answered each item, not less than it is.
        self.answered = answered * (1.0 + 1e-6) + 1e-9 * total
        self.mask = np.ones(r.n_items, dtype=bool)
        self._passes = [0]  # of this chain and those made of it
        self.links: Bytes | None = None
        if linked:
            support = np.empty((r.n_items, -(-r.n_items // 64)), dtype=np.uint64)
            for lo, hi, part in engine.map_items(_support, report=True):
                support[lo:hi] = part
            self.links = pair_flows.octets(support)
        self._measure()

    def _measure(self) -> None:
        """Links of each item, and the row sums of the counts (a pass)."""
        ones = np.ones(self.mask.size)
        self.degree = np.zeros_like(ones) if self.links is None else self._linked(self.mask * ones)
        self.counted = self.d = self.right(ones)

    @property
    def n_products(self) -> int:
        """Passes so far."""
        return self._passes[0]

    def at(self, nu: float) -> FlowChain:
        """Chain of the same counts with another nu."""
        out = FlowChain.__new__(FlowChain)
        out.__dict__.update(self.__dict__, nu=nu)
        out.d = self.counted + nu * self.degree
        return out

    def only(self, items: NDArray[np.intp]) -> FlowChain:
        """Chain on some of the items; the others have rates 0."""
        out = self.at(0.0)
        out.mask = np.isin(np.arange(self.mask.size), items)
        out._measure()
        return out.at(self.nu)

    def _linked(self, u: Floats) -> Floats:
        assert self.links is not None
        return np.where(self.mask, pair_flows.linked_sums(self.links, u), 0.0)

    def _product(self, side: int, u: Floats) -> Floats:
        u = np.where(self.mask, u, 0.0)
        if not u.any():
            return u
        scale = fixed_point.scale_for(float(np.abs(u) @ self.answered))
        out = np.asarray(self.engine.map_reduce(_flow, side, u, scale)[0]) / scale
        self._passes[0] += 1
        if self.nu > 0:
            out += self.nu * self._linked(u)
        return np.where(self.mask, out, 0.0)

    def left(self, u: Floats) -> Floats:
        """Return u' Y."""
        return self._product(_LEFT, u)

    def right(self, v: Floats) -> Floats:
        """Return Y v."""
        return self._product(_RIGHT, v)

    def groups(self) -> Ints:
        """Label the strongly connected components, the twenty of the items with most flow apart."""
        if self.nu > 0:  # links have no direction
            return np.unique(linked_items(self.engine), return_inverse=True)[1]
        label = np.full(self.mask.size, -1, dtype=np.int64)
        for k in range(_MAX_GROUPS):
            left = np.flatnonzero(label < 0)
            if not left.size:
                break
            start = left[self.d[left].argmax()]
            label[self._reached(start, self.left) & self._reached(start, self.right)] = k
        return np.where(label < 0, _MAX_GROUPS, label)

    def settled(self) -> Bools:
        """As that of :class:`DenseChain`."""
        counts = self.at(0.0)
        start = np.minimum(counts.left(np.ones(self.mask.size)), counts.d).argmax()
        return counts._reached(start, counts.left) & counts._reached(start, counts.right)

    def _reached(self, start: np.intp, product: Any) -> Bools:
        reached = np.zeros(self.mask.size, dtype=bool)
        reached[start] = True
        while True:
            more = reached | (product(reached.astype(float)) > 0)
            if (more == reached).all():
                return reached
            reached = more

    def stationary(self, accelerated: bool) -> Floats:
        """Stationary distribution by Arnoldi's method (ARPACK); 0 for items left out."""
        inside = np.flatnonzero(self.mask)
        if inside.size <= _FEW_ITEMS:
            return self._directly(inside)
        d = self.d[inside]
        scale = d if accelerated else np.full_like(d, d.max())

        def step(z: Floats) -> Floats:
            u = np.zeros(self.mask.size)
            u[inside] = z / scale
            return z + self.left(u)[inside] - d * z / scale

        operator = LinearOperator((inside.size,) * 2, matvec=step, dtype=float)
        try:
            _, vectors = eigs(
                operator, k=1, which="LR", v0=step(d / d.sum()), tol=1e-13,
                ncv=min(_KRYLOV, inside.size), maxiter=_RESTARTS,
            )  # fmt: skip
        except (ArpackError, ArpackNoConvergence) as error:
            raise EstimationError(
                f"the stationary distribution of the item chain was not found after "
                f"{self.n_products} products ({error}): items are hardly linked; use "
                f"the default regularization, or remove items with few responses"
            ) from None
        z = vectors[:, 0].real
        out = np.zeros(self.mask.size)
        out[inside] = z / z.sum() / scale
        return out

    def _directly(self, inside: NDArray[np.intp]) -> Floats:
        """As :meth:`stationary` for a few items, whose rates are products with each of them."""
        rates = np.empty((inside.size, inside.size))
        for k, i in enumerate(inside):
            unit = np.zeros(self.mask.size)
            unit[i] = 1.0
            rates[k] = self.left(unit)[inside]
        out = np.zeros(self.mask.size)
        part = DenseChain(rates, np.zeros(rates.shape, dtype=bool))
        out[inside] = part.stationary(accelerated=True)
        return out

    def poisson(self, b: Floats, z: Floats) -> Floats:
        """Solve ``(I - P) x = b``, P the accelerated chain, where ``z' b = 0`` (GMRES)."""
        inside = np.flatnonzero(self.mask)
        d, b, z = self.d[inside], b[inside], z[inside]
        out = np.zeros(self.mask.size)

        def step(x: Floats) -> Floats:
            out[inside] = x
            return x - self.right(out)[inside] / d

        operator = LinearOperator((b.size,) * 2, matvec=step, dtype=float)
        x, failed = gmres(operator, b - (z @ b) / z.sum(), rtol=1e-10, restart=60, maxiter=10)
        if failed:
            raise EstimationError(
                f"a contrast's standard error was not found after {self.n_products} products: the "
                f"items are hardly linked"
            )
        out[inside] = x
        return out


def distribution(chain: DenseChain | FlowChain, accelerated: bool) -> tuple[Floats, float]:
    """Stationary distribution, positive, and the relative imbalance of its flows.

    The distribution of the accelerated chain is divided by the row sums (Algorithm 2), so that both
    chains have the same answer (Theorem 4.1).
    """
    pi = chain.stationary(accelerated)
    inside = chain.d > 0
    flow = pi * chain.d
    residual = float(np.abs(chain.left(pi) - flow).max() / np.abs(flow).max())
    if not (pi[inside] > 0).all() or not residual < _MAX_RESIDUAL:
        raise EstimationError(
            f"the stationary distribution of the item chain could not be computed (residual "
            f"{residual:.3g}): some items are almost never solved, or almost always; use "
            f"the default regularization, or remove them"
        )
    return pi / pi.sum(), residual
