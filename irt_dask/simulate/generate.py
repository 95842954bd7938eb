"""Simulated responses with known truth, keyed by person: any blocks give the same data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import ndtri

from irt_dask.engine import dataset
from irt_dask.errors import InputError
from irt_dask.kernels.base import keyed_random
from irt_dask.models import check_model, difficulty, probability
from irt_dask.store import Responses, StoreWriter, from_array
from irt_dask.store.writer import check_rows_per_block

Floats = NDArray[np.float64]

#: Up to this many persons the truth holds every ability.
_MAX_ABILITIES = 10_000_000


def _items(n_items: int, model: str, seed: int) -> tuple[Floats, Floats]:
    u = keyed_random.uniforms(keyed_random.key(seed, "simulate-items"), 0, n_items, 2)
    z = ndtri(u)
    a = np.exp(0.3 * z[:, 0]) if model == "2pl" else np.ones(n_items)
    return a, -a * z[:, 1]


def _block(
    start: int, stop: int, a: Floats, d: Floats, missing: float, seed: int
) -> tuple[NDArray[np.int8], Floats]:
    n = stop - start
    theta = ndtri(keyed_random.uniforms(keyed_random.key(seed, "simulate-ability"), start, n)[:, 0])
    u = keyed_random.uniforms(keyed_random.key(seed, "simulate-response"), start, n, a.size)
    values = (u < probability(theta, a, d)).astype(np.int8)
    if missing > 0:
        u = keyed_random.uniforms(keyed_random.key(seed, "simulate-missing"), start, n, a.size)
        values[u < missing] = -1
    return values, theta


def generate(
    n_persons: int,
    n_items: int,
    model: str,
    missing: float,
    seed: int,
    store: str | Path | None,
    rows_per_block: int | None,
) -> Responses:
    """See :func:`irt_dask.simulate`."""
    check_model(model, ("2pl", "1pl"))
    for name, value in (("n_persons", n_persons), ("n_items", n_items)):
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise InputError(f"{name}={value!r} must be a whole number of at least 1")
    if not 0.0 <= missing < 1.0:
        raise InputError(f"missing={missing} must be at least 0 and below 1")
    a, d = _items(n_items, model, seed)
    rows = check_rows_per_block(rows_per_block, n_items, n_persons)
    ranges = [(s, min(s + rows, n_persons)) for s in range(0, n_persons, rows)]
    item_id = tuple(f"item{j + 1}" for j in range(n_items))
    abilities: list[Floats] = []
    if store is None:
        blocks = []
        for start, stop in ranges:
            values, theta = _block(start, stop, a, d, missing, seed)
            blocks.append(values)
            abilities.append(theta)
        made = from_array(np.concatenate(blocks), item_id=item_id, rows_per_block=rows)
    else:
        with StoreWriter(
            store, item_id=item_id, n_persons=n_persons, rows_per_block=rows
        ) as writer:
            for start, stop in ranges:
                values, theta = _block(start, stop, a, d, missing, seed)
                writer.write(values, person_id=[str(i) for i in range(start, stop)])
                if n_persons <= _MAX_ABILITIES:
                    abilities.append(theta)
            made = writer.commit()
    return _with_truth(made, a, d, abilities, model, seed)


def _with_truth(
    made: Responses, a: Floats, d: Floats, abilities: list[Floats], model: str, seed: int
) -> Responses:
    data = {"item_discrimination": a, "item_difficulty": difficulty(a, d), "item_intercept": d}
    if made.n_persons <= _MAX_ABILITIES:
        data["person_ability"] = np.concatenate(abilities)
    truth: xr.Dataset = dataset(
        data, item_id=made.item_id, attrs={"method": "simulation", "model": model, "seed": seed}
    )
    return replace(made, truth=truth)
