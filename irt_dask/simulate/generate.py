"""Simulated responses with known truth, keyed by person: any blocks give the same data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import beta

from irt_dask.arrays import Floats
from irt_dask.curves import model_named
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import dataset
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import InputError
from irt_dask.kernels.base import keyed_random
from irt_dask.store import Responses, StoreWriter, from_array
from irt_dask.store.writer import check_rows_per_block

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


def _block(
    start: int, stop: int, items: ItemSet, missing: float, seed: int
) -> tuple[NDArray[np.int8], Floats]:
    n = stop - start
    theta = ndtri(keyed_random.uniforms(keyed_random.key(seed, "simulate-ability"), start, n)[:, 0])
    u = keyed_random.uniforms(keyed_random.key(seed, "simulate-response"), start, n, items.n_items)
    values = (u < np.exp(items.log_p(theta)[1::2]).T).astype(np.int8)
    if missing > 0:
        u = keyed_random.uniforms(
            keyed_random.key(seed, "simulate-missing"), start, n, items.n_items
        )
        values[u < missing] = -1
    return values, theta


def generate(
    n_persons: int, n_items: int, model: str, missing: float, seed: int, store: str | Path | None,
    rows_per_block: int | None,
) -> Responses:  # fmt: skip
    """See :func:`irt_dask.simulate`."""
    model_named(model)
    for name, value in (("n_persons", n_persons), ("n_items", n_items)):
        whole_number(name, value, 1)
    if not 0.0 <= missing < 1.0:
        raise InputError(f"missing={missing} must be at least 0 and below 1")
    items = _items(n_items, model, seed)
    rows = check_rows_per_block(rows_per_block, n_items, n_persons)
    ranges = [(s, min(s + rows, n_persons)) for s in range(0, n_persons, rows)]
    item_id = tuple(f"item{j + 1}" for j in range(n_items))
    abilities: list[Floats] = []
    if store is None:
        drawn = [_block(*r, items, missing, seed) for r in ranges]
        abilities = [theta for _, theta in drawn]
        values = np.concatenate([v for v, _ in drawn])
        made = from_array(values, item_id=item_id, rows_per_block=rows)
    else:
        with StoreWriter(
            store, item_id=item_id, n_persons=n_persons, rows_per_block=rows
        ) as writer:
            for start, stop in ranges:
                values, theta = _block(start, stop, items, missing, seed)
                writer.write(values, person_id=[str(i) for i in range(start, stop)])
                if n_persons <= _MAX_ABILITIES:
                    abilities.append(theta)
            made = writer.commit()
    own = items.groups[0]
    data = {p.variable: x for p, x in zip(own.model.parameters, own.x, strict=True)}
    data["item_difficulty"] = items.difficulty()
    if n_persons <= _MAX_ABILITIES:
        data["person_ability"] = np.concatenate(abilities)
    attrs = {"method": "simulation", "model": model, "seed": seed}
    return replace(made, truth=dataset(data, item_id=item_id, attrs=attrs))
