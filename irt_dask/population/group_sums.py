"""Exact sums over the persons of each group, in one pass over blocks that know groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from irt_dask.arrays import Floats
from irt_dask.engine import Engine
from irt_dask.kernels.responses import response_counts
from irt_dask.population.conditioning import Conditioning
from irt_dask.store import Block

#: Sums of some persons by number of their group.
ByGroup = dict[int, tuple[Any, ...]]


def weights_in(block: Block) -> Floats:
    """Weight of each person in the estimation: 0 without responses."""
    return block.weights() * (response_counts.responses_per_person(block.data) > 0)


def by_group(
    engine: Engine, model: Conditioning, step: Callable[..., tuple[ByGroup]], *args: Any
) -> list[tuple[Any, ...]]:
    """Sums of each group, in order, of ``step(block, model, *args)``: those of the block's groups.

    So that a block of one group among many says no more than it has.
    """
    found: ByGroup = engine.map_reduce(step, model, *args, combine=_merged)[0]
    return [found[g] for g in range(model.n_groups)]


def _merged(left: tuple[ByGroup], right: tuple[ByGroup]) -> tuple[ByGroup]:
    out = dict(left[0])
    for g, sums in right[0].items():
        out[g] = sums if g not in out else tuple(a + b for a, b in zip(out[g], sums, strict=True))
    return (out,)
