"""One Pólya-Gamma Gibbs chain on one shard: the published sampler, in one or several dimensions.

A sweep is :func:`irt_dask.kernels.several.polya_gamma.sweep`; several uncorrelated abilities are
turned after it (:mod:`irt_dask.kernels.several.rotations`), but for the published powering, which
belongs to no joint distribution.  Abilities are part of a chain's state and stay on the worker, so
a chain is one segment: if its worker dies it starts over, with the same random numbers and so the
same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.bayes import grid_chain, loadings
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine.cache import keep
from irt_dask.engine.inputs import one_of
from irt_dask.errors import ChainError, InputError
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.several import polya_gamma, rotations

#: How a shard's posterior gets the scale that the combination expects.
POWERINGS = ("shrink", "published", "replicate")


@dataclass(frozen=True, kw_only=True)
class Plan(grid_chain.Plan):
    """What all chains of a fit share.

    ``free`` and ``positive`` are masks (items, n_dims) as :func:`pack` makes them.  ``powering``:

    - "shrink": the shard as it is, item priors to the power n_k / n;
    - "published": item priors as they are; in the items' conditionals, and there alone, the data
      count n / n_k times (these conditionals belong to no joint distribution: standard deviations
      come out too wide);
    - "replicate": item priors as they are, and the shard's persons repeated until there are n.
    """

    n_dims: int
    free: str
    positive: str
    powering: str = "shrink"
    correlated: bool = False

    def __post_init__(self) -> None:
        one_of("powering", self.powering, POWERINGS)
        if self.powering == "published" and self.correlated:
            raise InputError(
                "powering='published' is defined for uncorrelated dimensions only; use "
                "powering='shrink', or dimensions that are not correlated"
            )

    @property
    def item_prior(self) -> ItemPrior:
        """The prior, which is that of independent items here."""
        if not isinstance(self.prior, ItemPrior):
            raise InputError("the Polya-Gamma sampler takes an ItemPrior")
        return self.prior

    def masks(self, n_items: int) -> tuple[Bools, Bools]:
        """Which loadings are not fixed at 0, and which of them are positive: (items, n_dims)."""
        shape = n_items, self.n_dims
        return unpack(self.free, shape), unpack(self.positive, shape)


def pack(mask: Bools) -> str:
    """Return a mask as text, for a plan: small, hashable, and readable by JSON."""
    return np.packbits(mask).tobytes().hex()


def unpack(text: str, shape: tuple[int, int]) -> Bools:
    """Return the mask that :func:`pack` made text of."""
    bits = np.frombuffer(bytes.fromhex(text), dtype=np.uint8)
    return np.unpackbits(bits, count=shape[0] * shape[1]).astype(bool).reshape(shape)


def first_state(shard: int, chain: int, a: Floats, d: Floats, plan: Plan) -> dict[str, Any]:
    """Start of one chain: start values, loadings (items, n_dims), scattered.

    Scatter is what lets R-hat see a bad warm-up, and chains in different modes.
    """
    free, positive = plan.masks(d.size)
    rng = keyed_random.generator(plan.seed, "polya-gamma-start", shard, chain)
    a, d = loadings.scatter(a, d, free, positive, rng)
    return {
        "shard": np.array(shard),
        "chain": np.array(chain),
        "step": np.array(0),
        "n": np.array(0),
        "loadings": a,
        "intercepts": d,
        "correlation": np.eye(plan.n_dims),
    }


def segment(
    plan: Plan, refs: Sequence[Any], state: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run one chain to its end; see :func:`irt_dask.engine.run_chains`.

    The output is ``draws`` (kept, n_dims + 1, items), the loadings of each dimension and then the
    intercepts, and, if the plan says so, ``correlation`` (kept, n_dims, n_dims).  Random numbers
    belong to (seed, shard, chain, sweep, purpose), and within these to the order of the shard's
    persons, which is that of their global rows; so blocks do not matter.

    Raises
    ------
    InputError
        If the shard has no person.
    ChainError
        If a parameter is not a number, or a predictor is beyond 100 in size.
    """
    shard, chain = int(state["shard"]), int(state["chain"])
    key = (plan.fingerprint, "cells", plan.seed, plan.n_shards, shard, plan.powering == "replicate")
    shard_cells = keep(key, lambda: _read_cells(refs, plan, shard))
    cells, n = shard_cells.data, shard_cells.n
    items, power = _items(plan, cells.n_items, n)
    a, d = state["loadings"].copy(), state["intercepts"].copy()
    correlation = state["correlation"][None].copy()
    theta = np.zeros((cells.shape[0], plan.n_dims))  # the first sweep draws it
    at = polya_gamma.State(theta, a, d, correlation)
    held = None
    if plan.n_dims > 1 and not plan.correlated and power == 1.0:
        held = rotations.held(cells, items.free)
    draws, correlations = [], []
    for step in range(1, plan.total + 1):
        try:
            _sweep(cells, items, at, plan, (shard, chain, step), power, held)
        except ChainError as error:
            raise ChainError(f"shard {shard}, chain {chain}, sweep {step}: {error}") from error
        if step > plan.n_warmup and (step - plan.n_warmup) % plan.thin == 0:
            draws.append(np.vstack([a.T, d]))
            correlations.append(correlation[0].copy())
    output = {"draws": np.array(draws).reshape(-1, plan.n_dims + 1, d.size)}
    if plan.correlated:
        output["correlation"] = np.array(correlations).reshape(-1, plan.n_dims, plan.n_dims)
    state = {**state, "loadings": a, "intercepts": d, "correlation": correlation[0]}
    return state | {"step": np.array(plan.total), "n": np.array(n)}, output


def _sweep(
    cells: layouts.Sparse, items: polya_gamma.Items, at: polya_gamma.State, plan: Plan,
    when: tuple[int, int, int], power: float, held: rotations.Held | None,
) -> None:  # fmt: skip
    streams = polya_gamma.Streams(
        *(
            keyed_random.generator(plan.seed, "polya-gamma", purpose, *when)
            for purpose in polya_gamma.Streams._fields
        )
    )
    polya_gamma.sweep(cells, items, at, streams, power=power, correlated=plan.correlated, held=held)
    if not all(np.isfinite(x).all() for x in (at.loadings, at.intercepts, at.correlation)):
        raise ChainError("an item parameter is not a number")


@dataclass(frozen=True)
class _Cells:
    """Observed responses of one shard, its persons in the order of their global rows."""

    data: layouts.Sparse
    n: int

    @property
    def nbytes(self) -> int:
        return self.data.nbytes


def _read_cells(refs: Sequence[Any], plan: Plan, shard: int) -> _Cells:
    data = grid_chain.read_shard(refs, plan, shard)
    n = data.shape[0]
    if plan.powering == "replicate":
        copies = grid_chain.copies_of(n, plan.n_persons)
        data = layouts.take(data, np.repeat(np.arange(n), copies))
    return _Cells(layouts.to_sparse(data), n)


def _items(plan: Plan, n_items: int, n: int) -> tuple[polya_gamma.Items, float]:
    """What is known of the items of a shard of n persons, and the power of its data."""
    free, positive = plan.masks(n_items)
    share = n / plan.n_persons
    tempered = share if plan.powering == "shrink" else 1.0
    mean, precision = plan.item_prior.tempered_loadings(positive, tempered)
    intercept = plan.item_prior.tempered(tempered)[2:]
    power = 1.0 / share if plan.powering == "published" else 1.0
    return polya_gamma.Items(free, positive, mean, precision, intercept), power
