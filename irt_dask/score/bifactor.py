"""Abilities under a bifactor fit: the general one, and those of blocks of items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.engine import Engine, ProgressOption, dataset
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import InputError
from irt_dask.items.bifactor import (
    BlockItems,
    Grids,
    block_items,
    further,
    grids_of,
    in_part,
    tables,
)
from irt_dask.items.draws import spaced, usual_draws
from irt_dask.kernels.several import bifactor_posterior as kernel
from irt_dask.score import summary
from irt_dask.score.checks import Options
from irt_dask.store import Block, Responses

#: What draws of the items are of.
_DRAWN = ("item_loading", "item_intercept")
#: Numbers that are returned in memory.
_MAX_IN_MEMORY = 100_000_000


@dataclass(frozen=True)
class Plan:
    """What every block of persons has to know."""

    #: Items, or draws of them.
    averaged: tuple[BlockItems, ...]
    grids: Grids

    @property
    def scale(self) -> float:
        """Of the fixed-point moments."""
        return summary.scale_for(float(max(self.grids.nodes[-1], self.grids.block_nodes[-1])))


def _score(block: Block, plan: Plan) -> tuple[Floats, Floats, tuple[Any, ...]]:
    """Means and SDs of a block's persons, and sums over them."""
    of_each = [kernel.moments(block.data, tables(x, plan.grids))[:2] for x in plan.averaged]
    means, variances = (np.stack(v) for v in zip(*of_each, strict=True))
    spread = means.var(axis=0, ddof=1) if len(means) > 1 else 0.0
    # The last plane is that of items without a block.
    mean = np.ascontiguousarray(means.mean(axis=0)[:, :-1])
    sd = np.sqrt((variances.mean(axis=0) + spread)[:, :-1])
    return mean, sd, summary.sums(mean, sd, plan.scale, block.times)


def _grids(items: BlockItems, averaged: tuple[BlockItems, ...]) -> Grids:
    """Grids that resolve posteriors under items, and under draws of them.

    Items differ between draws, but what they say of abilities together hardly does.
    """
    if len(averaged) == 1:
        return grids_of(averaged[0])
    known = grids_of(items)
    return grids_of(items, bound=further(float(known.nodes[-1]), 1.0))


def _person_ids(ref: Any) -> Any:
    return ref.person_ids()


def run(
    responses: Responses, items: xr.Dataset, options: Options, composites: Any, store: Any,
    client: Any, progress: ProgressOption,
) -> xr.Dataset:  # fmt: skip
    """See :func:`irt_dask.score`, with a result of ``fit_bifactor``."""
    _refuse(options, composites, store)
    slopes, of_item, names = block_items(items, responses.item_id)
    asked = options.n_item_draws
    n_draws = usual_draws(items) if asked is None else whole_number("n_item_draws", asked, 0)
    numbers = 2 * responses.n_persons * len(names)
    if numbers > _MAX_IN_MEMORY:
        raise InputError(
            f"{responses.n_persons} persons x {len(names)} abilities: more than {_MAX_IN_MEMORY} "
            f"numbers are not returned in memory; score some of the persons at a time "
            f"(responses.select(persons=...))"
        )
    with Engine(responses, client=client, progress=progress, stage="scoring") as engine:
        n_blocks = len(names) - 1
        partly = in_part(engine, of_item, n_blocks)
        of_each = [slopes]
        if n_draws:
            draws = spaced(items, n_draws, _DRAWN, "n_item_draws", "items")
            of_each = [block_items(one, responses.item_id)[0] for _, one in draws]
        known = tuple(BlockItems(v, of_item, n_blocks, partly) for v in of_each)
        plan = Plan(known, _grids(BlockItems(slopes, of_item, n_blocks, partly), known))
        found = engine.map_blocks(_score, plan, report=True)
        ids = np.concatenate(engine.map_refs(_person_ids)).astype(str, copy=False)
        count, moments, n = (np.sum([s[k] for _, _, s in found], axis=0) for k in range(3))
        return dataset(
            {
                "person_ability": np.concatenate([f[0] for f in found]),
                "person_ability_sd": np.concatenate([f[1] for f in found]),
                "ability_count": count.astype(int),
            },
            coords={
                "person_id": ids, "ability": summary.middles(), "domain": np.array(names, dtype=str)
            },
            attrs={
                "method": "eap",
                "model": items.attrs.get("model"),
                "prior": "normal",
                "n_persons": engine.n_persons,
                "n_item_draws": n_draws,
                "n_plausible": 0,
                **summary.described((moments / plan.scale).astype(float), n.astype(int), False),
                "identification": "abilities independent N(0, 1)",
                "store": None,
            },
        )  # fmt: skip


def _refuse(options: Options, composites: Any, store: Any) -> None:
    """Refuse what is not available under a bifactor fit."""
    plain = isinstance(options.prior, str) and options.prior == "normal"
    for name, value, known in (
        ("method", options.method, options.method == "eap"),
        ("prior", options.prior if isinstance(options.prior, str) else "...", plain),
        ("n_plausible", options.n_plausible, options.n_plausible == 0),
        ("composites", "...", composites is None),
        ("linking", "...", options.linking is None),
        ("store", store, store is None),
    ):
        if not known:
            raise InputError(
                f"{name}={value!r}: under a bifactor fit persons have posterior means and SDs of "
                f"N(0, 1) abilities, returned in memory: leave {name} at its default"
            )
