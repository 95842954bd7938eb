"""Simulated responses with known truth, keyed by person: any blocks give the same data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import beta

from irt_dask.arrays import Floats, Ints
from irt_dask.curves import MODELS, ItemModel
from irt_dask.curves.base import ADJACENT, CUMULATIVE
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import ProgressOption, dataset
from irt_dask.engine.inputs import whole_number
from irt_dask.engine.tasks import Tasks, run_tasks
from irt_dask.errors import ClusterError, InputError
from irt_dask.items.described import described
from irt_dask.items.mixture import Mixture, mixture_named
from irt_dask.items.parameters import bank_item_ids, item_set
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.responses.layouts import Dense
from irt_dask.store import Responses, from_array
from irt_dask.store.categories import BINARY, Categories, declared, of_each, together
from irt_dask.store.draft import create
from irt_dask.store.manifest import Files
from irt_dask.store.parts import Part
from irt_dask.store.writer import check_rows_per_block

#: Responses that a task makes, at least: a task has to be worth its message.
_CELLS = 1 << 20
#: Distance of step difficulties, and the SD about it.
_APART, _SCATTER = 0.8, 0.2
#: Up to this many persons the truth holds every ability.
_MAX_ABILITIES = 10_000_000


def _items(models: Mixture, seed: int) -> Floats:
    """Items at random: parameters beyond slopes and intercepts from the priors that fits use."""
    n = models.n_items
    z = ndtri(keyed_random.uniforms(keyed_random.key(seed, "simulate-items"), 0, n, 2))
    x = np.zeros((models.size, n))
    for part in models.parts:
        model, size = part.model, len(part.model.parameters)
        a = np.ones(part.at.size) if model.shared else np.exp(0.3 * z[part.at, 0])
        if model.name in MODELS:
            x[0, part.at], x[1, part.at] = a, model.where(z[part.at, 1], a)
        else:
            x[:size, part.at] = _of_steps(model, a, _steps(model, z[:, 1], part.at, seed))
        for k, p in enumerate(model.parameters):
            if p.neutral is not None:
                x[k, part.at] = p.neutral
            if p.prior is not None:
                u = keyed_random.uniforms(keyed_random.key(seed, "simulate-items", p.letter), 0, n)
                x[k, part.at] = beta.ppf(u[part.at, 0], *p.prior)
    return x


def _steps(model: ItemModel, difficulty: Floats, at: Ints, seed: int) -> Floats:
    """Step difficulties, (steps, items)."""
    steps = model.n_categories - 1
    apart = _APART * (np.arange(steps) - 0.5 * (steps - 1))
    if model.shared:  # steps may be common
        return apart[:, None] + difficulty[at]
    key = keyed_random.key(seed, "simulate-items", "steps")
    z = ndtri(keyed_random.uniforms(key, 0, difficulty.size, steps))[at]
    if model.steps == CUMULATIVE:  # in order: multiples of their distances
        apart = np.cumsum(_APART * np.exp(_SCATTER * z), axis=1)
        return (apart - apart.mean(axis=1, keepdims=True)).T + difficulty[at]
    return (apart + _SCATTER * z).T + difficulty[at]


def _of_steps(model: ItemModel, a: Floats, b: Floats) -> Floats:
    """Parameters of items with these discriminations and step difficulties."""
    intercepts = -a * (b.cumsum(axis=0) if model.steps == ADJACENT else b)
    return model.of_steps(np.multiply.outer(np.arange(1.0, model.n_categories), a), intercepts)


def _abilities(start: int, stop: int, seed: int) -> Floats:
    key = keyed_random.key(seed, "simulate-ability")
    return ndtri(keyed_random.uniforms(key, start, stop - start)[:, 0])


def _categories(items: ItemSet, theta: Floats, u: Floats) -> NDArray[np.int8]:
    """The highest category k with u below P(k or higher), (persons, items)."""
    p = np.exp(items.log_p(theta))
    out = np.zeros(u.shape, dtype=np.int8)
    higher = np.zeros((items.n_items, theta.size))
    for k in range(int(items.n_categories.max()) - 1, 0, -1):
        own = np.flatnonzero(items.n_categories > k)
        higher[own] += p[items.first[own] + k]
        out += u < higher.T
    return out


def _block(
    start: int, stop: int, items: ItemSet, missing: float, seed: int
) -> NDArray[np.int8]:  # fmt: skip
    n, theta = stop - start, _abilities(start, stop, seed)
    u = keyed_random.uniforms(keyed_random.key(seed, "simulate-response"), start, n, items.n_items)
    values = _categories(items, theta, u)
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
    tasks: Tasks, store: str | Path, n_persons: int, rows: int, item_id: tuple[str, ...],
    categories: Categories, *how: Any,
) -> Responses:  # fmt: skip
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
            return draft.commit(
                part, files, item_id=item_id, categories=categories, uploaded=uploaded
            )


class Chosen(NamedTuple):
    """The items of a simulation, their parameters by model, and what the models are called."""

    item_id: tuple[str, ...]
    categories: Categories
    models: Mixture
    x: Floats
    name: str | None


def chosen(n_items: Any, items: Any, model: Any, categories: Any, seed: int) -> Chosen:
    """Items at random, or those that are given."""
    if items is not None:
        for name, value in (("n_items", n_items), ("model", model), ("categories", categories)):
            if value is not None:
                raise InputError(f"{name}={value!r} and items= are given; items say it themselves")
        return _given(items)
    if n_items is None:
        raise InputError("give n_items, or items=: a fit or an item bank")
    item_id = tuple(f"item{j + 1}" for j in range(whole_number("n_items", n_items, 1)))
    k = declared(BINARY if categories is None else categories, item_id)
    model = "2pl" if model is None else model
    models = mixture_named(model, item_id, of_each(k, n_items))
    name = model if isinstance(model, str) else "by item"
    return Chosen(item_id, k, models, _items(models, seed), name)


def _given(items: Any) -> Chosen:
    """Items of a fit, a bank, or one draw of a posterior."""
    item_id = bank_item_ids(items)
    models, x = Mixture.of_items(item_set(items, item_id))
    return Chosen(item_id, together(models.n_categories), models, x, items.attrs.get("model"))


def generate(
    n_persons: int, items: Chosen, missing: float, seed: int, store: str | Path | None,
    rows_per_block: int | None, client: Any = None, progress: ProgressOption = None,
) -> Responses:  # fmt: skip
    """See :func:`irt_dask.simulate`."""
    item_id, k, models, x, name = items
    whole_number("n_persons", n_persons, 1)
    if not 0.0 <= missing < 1.0:
        raise InputError(f"missing={missing} must be at least 0 and below 1")
    rows = check_rows_per_block(rows_per_block, len(item_id), n_persons)
    how = models.item_set(x), missing, seed
    with run_tasks(client, progress) as tasks:
        if store is None:
            ranges = [(s, min(s + rows, n_persons), *how) for s in range(0, n_persons, rows)]
            values = np.concatenate([*tasks.run("simulate", _block, ranges)])
            made = from_array(values, item_id=item_id, rows_per_block=rows, categories=k)
        else:
            made = _stored(tasks, store, n_persons, rows, item_id, k, *how)
    data: dict[str, Any] = {name: value.T for name, (value, _) in described(models, x).items()}
    if models.only is None or models.only.name not in MODELS:
        data |= {"item_model": models.names, "item_n_categories": models.n_categories}
    if models.empty.any():
        data["item_category_map"] = models.category_map
    if n_persons <= _MAX_ABILITIES:
        data["person_ability"] = _abilities(0, n_persons, seed)
    attrs = {"method": "simulation", "model": name, "seed": seed}
    return replace(made, truth=dataset(data, item_id=item_id, attrs=attrs))
