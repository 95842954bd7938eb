"""Expected a posteriori abilities, block by block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.engine import (
    Engine,
    ProgressOption,
    as_responses,
    dataset,
    item_parameters,
    person_files,
)
from irt_dask.engine.cache import read_block
from irt_dask.engine.tables import grid_tables
from irt_dask.errors import InputError
from irt_dask.kernels import counts, exact, posterior
from irt_dask.models import GRID_BOUND, grid_for
from irt_dask.store import Block

Floats = NDArray[np.float64]

_MAX_IN_MEMORY = 10_000_000
#: Classes of the histogram of abilities.
_EDGES = np.linspace(-6.0, 6.0, 61)


def _sums(mean: Floats, sd: Floats, scale: float) -> tuple[Any, ...]:
    """Histogram and fixed-point moments, which do not depend on the blocks."""
    inside = np.clip(mean, _EDGES[0], np.nextafter(_EDGES[-1], 0.0))
    terms = np.stack([mean, mean**2, sd**2])
    moments = np.rint(terms * scale).astype(np.int64).sum(axis=1)
    return np.histogram(inside, _EDGES)[0], moments


def _score(block: Block, a: Floats, d: Floats, nodes: Floats, scale: float) -> tuple[Any, ...]:
    mean, sd, _ = posterior.expectations(block.data, grid_tables(a, d, nodes))
    return mean, sd, _sums(mean, sd, scale)


def _person_ids(ref: Any) -> NDArray[np.object_]:
    return ref.person_ids()


def _write(
    ref: Any, a: Floats, d: Floats, nodes: Floats, scale: float, folder: str
) -> tuple[Any, ...]:
    """Score one block into its file."""
    block = read_block(ref)
    mean, sd, sums = _score(block, a, d, nodes, scale)
    n_responses = counts.responses_per_person(block.data)
    columns = {"person_ability": mean, "person_ability_sd": sd, "n_responses": n_responses}
    person_files.write_block(ref, block.index, columns, folder)
    return sums


def run(
    responses: Any,
    items: xr.Dataset,
    method: str,
    store: str | Path | None,
    client: Any,
    progress: ProgressOption,
) -> xr.Dataset:
    """See :func:`irt_dask.score`."""
    responses = as_responses(responses)
    if method != "eap":
        raise InputError(f"method={method!r} is not available; use 'eap'")
    if store is None and responses.n_persons > _MAX_IN_MEMORY:
        raise InputError(
            f"{responses.n_persons} persons: more than {_MAX_IN_MEMORY} abilities are not "
            f"returned in memory; give store=PATH to have them written"
        )
    a, d = item_parameters(items, responses.item_id)
    grid = grid_for(a, d)
    scale = exact.scale_for(responses.n_persons * GRID_BOUND**2)
    args: tuple[Any, ...] = (a, d, grid.nodes, scale)
    persons: dict[str, Any] = {}
    coords: dict[str, Any] = {}
    with Engine(responses, client=client, progress=progress, stage="scoring") as engine:
        if store is None:
            blocks = engine.map_blocks(_score, *args, report=True)
            persons = {
                "person_ability": np.concatenate([b[0] for b in blocks]),
                "person_ability_sd": np.concatenate([b[1] for b in blocks]),
            }
            coords["person_id"] = np.concatenate(engine.map_refs(_person_ids)).astype(str)
            sums = [b[2] for b in blocks]
        else:
            folder = person_files.new_folder(store)
            sums = engine.map_refs(_write, *args, str(folder), report=True)
    count = np.sum([s[0] for s in sums], axis=0)
    m1, m2, v = np.sum([s[1] for s in sums], axis=0) / scale / responses.n_persons
    spread = m2 - m1**2
    attrs = {
        "method": method,
        "model": items.attrs.get("model"),
        "n_persons": responses.n_persons,
        "mean_ability": float(m1),
        "sd_ability": float(np.sqrt(max(spread, 0.0))),
        "reliability": float(spread / (spread + v)),
        "identification": "ability N(0, 1)",
        "store": None if store is None else str(folder),
    }
    if store is not None:
        person_files.finish(folder, responses, attrs)
    coords["ability"] = 0.5 * (_EDGES[1:] + _EDGES[:-1])
    return dataset({**persons, "ability_count": count}, coords=coords, attrs=attrs)
