"""Simulated responses with known truth, keyed by person: any blocks give the same data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import beta

from irt_dask.arrays import Floats
from irt_dask.curves import MODELS, check_model, model_named
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import ProgressOption, dataset
from irt_dask.engine.inputs import whole_number
from irt_dask.engine.tasks import Tasks, run_tasks
from irt_dask.errors import ClusterError, InputError
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.responses.layouts import Dense
from irt_dask.store import Responses, from_array
from irt_dask.store.draft import create
from irt_dask.store.manifest import Files
from irt_dask.store.parts import Part
from irt_dask.store.writer import check_rows_per_block

#: Responses that a task makes, at least: a task has to be worth its message.
_CELLS = 1 << 20
#: Up to this many persons the truth holds every ability.
_MAX_ABILITIES = 10_000_000


def _items(n_items: int, model: str, seed: int) -> ItemSet:
    """Items at random: parameters beyond slope and intercept from the priors that fits use."""
    u = keyed_random.uniforms(keyed_random.key(seed, "simulate-items"), 0, n_items, 2)
    z = ndtri(u)
    a = np.ones(n_items) if model_named(model).shared else np.exp(0.3 * z[:, 0])
    columns = [a, model_named(model).where(z[:, 1], a)]
    for p in model_named(model).parameters[2:]:
        assert p.prior is not None
        u = keyed_random.uniforms(keyed_random.key(seed, "simulate-items", p.letter), 0, n_items)
        columns.append(beta.ppf(u[:, 0], *p.prior))
    return ItemSet.of(model, *columns)


def _abilities(start: int, stop: int, seed: int) -> Floats:
    key = keyed_random.key(seed, "simulate-ability")
    return ndtri(keyed_random.uniforms(key, start, stop - start)[:, 0])


def _block(
    start: int, stop: int, items: ItemSet, missing: float, seed: int
) -> NDArray[np.int8]:  # fmt: skip
    n, theta = stop - start, _abilities(start, stop, seed)
    u = keyed_random.uniforms(keyed_random.key(seed, "simulate-response"), start, n, items.n_items)
    values = (u < np.exp(items.log_p(theta)[1::2]).T).astype(np.int8)
    if missing > 0:
        u = keyed_random.uniforms(
            keyed_random.key(seed, "simulate-missing"), start, n, items.n_items
        )
        values[u < missing] = -1
    return values


def _write(part: Part, blocks: range, *how: Any) -> Files:
    """Simulate blocks and write them; return the files."""
    if not Path(part.folder).is_dir():
        raise ClusterError(
            f"a worker does not see the folder {part.folder}: the store must lie on a file system "
            f"that all workers share (for one in object storage: TMPDIR)"
        )
    files: Files = {}
    for k in blocks:
        start, stop = part.rows(k)
        ids = [str(i) for i in range(start, stop)]
        files |= part.write_blocks(k, Dense(_block(start, stop, *how)), ids)
    return files


def _stored(
    tasks: Tasks, store: str | Path, n_persons: int, rows: int, item_id: tuple[str, ...], *how: Any
) -> Responses:
    """Write a store, some blocks a task."""
    with create(store) as draft:
        m = len(item_id)
        part = draft.part(layout="dense", n_persons=n_persons, n_items=m, rows_per_block=rows)
        files = part.create()
        size = max(1, _CELLS // (rows * m))
        blocks = range(part.n_blocks)
        groups = [(part, blocks[k : k + size], *how) for k in range(0, len(blocks), size)]
        for written in tasks.run("simulate", _write, groups):
            files |= written
        with tasks.shown("upload") as uploaded:
            return draft.commit(part, files, item_id=item_id, uploaded=uploaded)


def generate(
    n_persons: int, n_items: int, model: str, missing: float, seed: int, store: str | Path | None,
    rows_per_block: int | None, client: Any = None, progress: ProgressOption = None,
) -> Responses:  # fmt: skip
    """See :func:`irt_dask.simulate`."""
    check_model(model, tuple(MODELS))
    for name, value in (("n_persons", n_persons), ("n_items", n_items)):
        whole_number(name, value, 1)
    if not 0.0 <= missing < 1.0:
        raise InputError(f"missing={missing} must be at least 0 and below 1")
    items = _items(n_items, model, seed)
    rows = check_rows_per_block(rows_per_block, n_items, n_persons)
    item_id = tuple(f"item{j + 1}" for j in range(n_items))
    how = items, missing, seed
    with run_tasks(client, progress) as tasks:
        if store is None:
            ranges = [(s, min(s + rows, n_persons), *how) for s in range(0, n_persons, rows)]
            values = np.concatenate([*tasks.run("simulate", _block, ranges)])
            made = from_array(values, item_id=item_id, rows_per_block=rows)
        else:
            made = _stored(tasks, store, n_persons, rows, item_id, *how)
    own = items.groups[0]
    data = {p.variable: x for p, x in zip(own.model.parameters, own.x, strict=True)}
    data["item_difficulty"] = items.difficulty()
    if n_persons <= _MAX_ABILITIES:
        data["person_ability"] = _abilities(0, n_persons, seed)
    attrs = {"method": "simulation", "model": model, "seed": seed}
    return replace(made, truth=dataset(data, item_id=item_id, attrs=attrs))
