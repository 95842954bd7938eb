"""Expected a posteriori abilities and plausible values, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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
from irt_dask.engine.inputs import has_loadings, item_loadings, whole_number
from irt_dask.engine.item_draws import has_draws, item_draws, loading_draws
from irt_dask.engine.tables import grid_tables
from irt_dask.errors import InputError
from irt_dask.kernels import counts, exact, keyed, plausible, posterior
from irt_dask.kernels.layouts import Layout
from irt_dask.models import GRID_BOUND, grid_for
from irt_dask.score import plane
from irt_dask.store import Block, Responses

Floats = NDArray[np.float64]

_MAX_IN_MEMORY = 10_000_000
_MAX_PLAUSIBLE_IN_MEMORY = 10 * _MAX_IN_MEMORY
#: Item draws over which abilities are averaged by default, where there are draws.
_ITEM_DRAWS = 20
#: Classes of the histogram of abilities.
_EDGES = np.linspace(-6.0, 6.0, 61)


@dataclass(frozen=True)
class Options:
    """What a caller chooses."""

    method: str
    n_plausible: int
    n_item_draws: int | None
    seed: int


class Items(NamedTuple):
    """Slopes, intercepts and the grid on which one ability is integrated under them.

    For two there is :class:`irt_dask.score.plane.Items`.
    """

    a: Floats
    d: Floats
    nodes: Floats


@dataclass(frozen=True)
class Plan:
    """What every block has to know."""

    n_dims: int
    #: Items over which the posterior of ability is averaged.
    averaged: tuple[Any, ...]
    #: Items, and the keys of the plausible values drawn under them.
    drawn: tuple[tuple[Any, tuple[NDArray[np.uint64], ...]], ...]
    #: 0 if they are point estimates.
    n_item_draws: int
    #: Of the fixed-point moments.
    scale: float


def _moments(data: Layout, averaged: tuple[Items, ...]) -> dict[str, Floats]:
    """Mean and standard deviation of each person's ability, over the items too.

    Deviations are from the first mean, and added draw by draw: the bits of a person do not depend
    on the others of a block.
    """
    mean, sd, _ = posterior.expectations(data, grid_tables(*averaged[0]))
    if len(averaged) == 1:
        return {"person_ability": mean, "person_ability_sd": sd}
    shift, spread, within = np.zeros_like(mean), np.zeros_like(mean), sd**2
    for items in averaged[1:]:
        m, s, _ = posterior.expectations(data, grid_tables(*items))
        shift += m - mean
        spread += (m - mean) ** 2
        within += s**2
    n = len(averaged)
    shift /= n
    between = np.maximum(spread / n - shift**2, 0.0)
    return {"person_ability": mean + shift, "person_ability_sd": np.sqrt(within / n + between)}


def _draw(data: Layout, items: Items, u: Floats) -> Floats:
    """Plausible values, shape (persons, plausible); ``u`` has an axis for abilities, of one."""
    return plausible.draw(data, grid_tables(*items), u[:, :, 0])


def _plausible(block: Block, plan: Plan) -> dict[str, Floats]:
    """Plausible values, if any, shape (persons, plausible) or (persons, plausible, abilities)."""
    draw = _draw if plan.n_dims == 1 else plane.draw
    n, parts = block.data.shape[0], []
    for items, keys in plan.drawn:
        u = np.stack([keyed.uniforms(k, block.start, n, plan.n_dims) for k in keys], axis=1)
        parts.append(draw(block.data, items, u))
    return {"person_plausible_value": np.concatenate(parts, axis=1)} if parts else {}


def _sums(mean: Floats, sd: Floats, scale: float) -> tuple[Any, ...]:
    """Histogram and fixed-point moments of each ability, which do not depend on the blocks."""
    inside = np.clip(mean, _EDGES[0], np.nextafter(_EDGES[-1], 0.0))
    count = np.apply_along_axis(lambda x: np.histogram(x, _EDGES)[0], 0, inside)
    terms = np.stack([mean, mean**2, sd**2])
    return count, exact.fixed(terms, scale).sum(axis=1)


def _score(block: Block, plan: Plan) -> tuple[dict[str, Floats], tuple[Any, ...]]:
    """Values of persons by name, and sums over them."""
    moments = _moments if plan.n_dims == 1 else plane.moments
    persons = moments(block.data, plan.averaged)
    sums = _sums(persons["person_ability"], persons["person_ability_sd"], plan.scale)
    return persons | _plausible(block, plan), sums


def _person_ids(ref: Any) -> NDArray[np.object_]:
    return ref.person_ids()


def _write(ref: Any, plan: Plan, folder: str) -> tuple[Any, ...]:
    """Score one block into its file."""
    block = read_block(ref)
    persons, sums = _score(block, plan)
    values = persons.pop("person_plausible_value", np.empty((0, 0)))
    columns: dict[str, Any] = {}
    for name, x in persons.items():
        columns |= _columns(name, x)
    columns["n_responses"] = counts.responses_per_person(block.data)
    for r in range(values.shape[1]):
        columns |= _columns(f"pv{r + 1}", values[:, r])
    person_files.write_block(ref, block.index, columns, folder)
    return sums


def _columns(name: str, x: Floats) -> dict[str, Floats]:
    """One column, or one for each ability."""
    if x.ndim == 1:
        return {name: np.ascontiguousarray(x)}
    return {f"{name}_{q + 1}": np.ascontiguousarray(v) for q, v in enumerate(x.T)}


def _with_grid(a: Floats, d: Floats) -> Items:
    return Items(a, d, grid_for(a, d).nodes)


def _plan(responses: Responses, items: xr.Dataset, options: Options) -> Plan:
    """Choose the items to score with; every complaint about options and items is made here."""
    if options.method != "eap":
        raise InputError(f"method={options.method!r} is not available; use 'eap'")
    n_plausible = whole_number("n_plausible", options.n_plausible, 0)
    if options.n_item_draws is None:
        n_draws = _default_draws(items)
    else:
        n_draws = whole_number("n_item_draws", options.n_item_draws, 0)
    keys = tuple(keyed.key(options.seed, "plausible", r) for r in range(n_plausible))
    item_id = responses.item_id
    n_dims, parameters, of_draws, with_grid = _KINDS[has_loadings(items)]
    drawn: tuple[Any, ...] = ()
    if n_draws == 0:
        known = with_grid(*parameters(items, item_id))
        averaged: tuple[Any, ...] = (known,)
        if keys:
            drawn = ((known, keys),)
    else:
        averaged = tuple(
            with_grid(*one) for one in of_draws(items, item_id, n_draws, option="n_item_draws")
        )
        if keys:
            own = of_draws(items, item_id, n_plausible, option="n_plausible")
            drawn = tuple((with_grid(*one), (k,)) for one, k in zip(own, keys, strict=True))
    scale = exact.scale_for(responses.n_persons * GRID_BOUND**2)
    return Plan(n_dims, averaged, drawn, n_draws, scale)


#: Number of abilities, point estimates, draws and grid of items without and with loadings.
_KINDS: dict[bool, tuple[int, Any, Any, Any]] = {
    False: (1, item_parameters, item_draws, _with_grid),
    True: (2, item_loadings, loading_draws, plane.with_grid),
}


def _default_draws(items: xr.Dataset) -> int:
    return min(_ITEM_DRAWS, items.sizes["draw"]) if has_draws(items) else 0


def _check_memory(n_persons: int, n_plausible: int, n_dims: int) -> None:
    for what, n, most in (
        ("abilities", n_persons, _MAX_IN_MEMORY),
        ("plausible values", n_persons * n_plausible * n_dims, _MAX_PLAUSIBLE_IN_MEMORY),
    ):
        if n > most:
            both = " of both abilities" if n_dims == 2 else ""
            raise InputError(
                f"{n_persons} persons, {n_plausible} plausible values each{both}: more than {most} "
                f"{what} are not returned in memory; give store=PATH to have them written"
            )


def _prior(plan: Plan) -> str:
    """Say which distribution the persons are taken to come from."""
    if plan.n_dims == 1:
        return "ability N(0, 1)"
    if any(items.correlation for items in plan.averaged):
        return "abilities normal, correlated, SD 1"
    return "abilities independent N(0, 1)"


def run(
    responses: Any,
    items: xr.Dataset,
    options: Options,
    store: str | Path | None,
    client: Any,
    progress: ProgressOption,
) -> xr.Dataset:
    """See :func:`irt_dask.score`."""
    responses = as_responses(responses)
    plan = _plan(responses, items, options)
    if store is None:
        _check_memory(responses.n_persons, options.n_plausible, plan.n_dims)
    persons: dict[str, Any] = {}
    coords: dict[str, Any] = {}
    with Engine(responses, client=client, progress=progress, stage="scoring") as engine:
        if store is None:
            blocks = engine.map_blocks(_score, plan, report=True)
            persons = {name: np.concatenate([b[0][name] for b in blocks]) for name in blocks[0][0]}
            coords["person_id"] = np.concatenate(engine.map_refs(_person_ids)).astype(str)
            sums = [b[1] for b in blocks]
        else:
            folder = person_files.new_folder(store)
            sums = engine.map_refs(_write, plan, str(folder), report=True)
    count = np.sum([s[0] for s in sums], axis=0)
    m1, m2, v = np.sum([s[1] for s in sums], axis=0) / plan.scale / responses.n_persons
    spread = m2 - m1**2
    attrs = {
        "method": options.method,
        "model": items.attrs.get("model"),
        "seed": options.seed if options.n_plausible else None,
        "n_persons": responses.n_persons,
        "n_item_draws": plan.n_item_draws,
        "n_plausible": int(options.n_plausible),
        # of two abilities, a list
        "mean_ability": m1.tolist(),
        "sd_ability": np.sqrt(np.maximum(spread, 0.0)).tolist(),
        "reliability": (spread / (spread + v)).tolist(),
        "identification": _prior(plan),
        "store": None if store is None else str(folder),
    }
    if store is not None:
        person_files.finish(folder, responses, attrs)
    coords["ability"] = 0.5 * (_EDGES[1:] + _EDGES[:-1])
    return dataset({**persons, "ability_count": count}, coords=coords, attrs=attrs)
