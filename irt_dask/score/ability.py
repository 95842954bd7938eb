"""Abilities and plausible values, block by block."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Words
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, person_files
from irt_dask.engine.cache import read_block
from irt_dask.engine.identity import identified
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import InputError
from irt_dask.items.bifactor import is_bifactor
from irt_dask.items.draws import item_draws, loading_draws, usual_draws
from irt_dask.items.link_constants import OF_PERSONS
from irt_dask.items.parameters import (
    has_loadings,
    item_loadings,
    item_set,
    refuse_other_categories,
)
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.responses import response_counts
from irt_dask.population import regression, regression_draws
from irt_dask.population.population import STANDARD, Persons, Population
from irt_dask.score import axis, bifactor, folder, plane, summary
from irt_dask.score.checks import Options, check_options, warn_of_groups
from irt_dask.score.linked import Linked, linked
from irt_dask.score.outside import of_bank
from irt_dask.store import Block, Responses
from irt_dask.store.places import location

_MAX_IN_MEMORY = 10_000_000
_MAX_PLAUSIBLE_IN_MEMORY = 10 * _MAX_IN_MEMORY
#: Items from which on it is asked how many of them a person answers at most, and how many times as
#: many they have to be for nodes to rest on that.
_MANY_ITEMS, _FEWER = 1000, 8


@dataclass(frozen=True)
class Plan:
    """What every block has to know."""

    method: str
    n_dims: int
    #: Where the persons come from.
    population: Population
    #: Items over which the posterior of ability is averaged.
    averaged: tuple[Any, ...]
    #: Items and population, and the keys of the plausible values drawn under them.
    drawn: tuple[tuple[Any, Population, tuple[Words, ...]], ...]
    #: 0 if they are point estimates.
    n_item_draws: int
    #: How far out posteriors are summed.
    furthest: float = 0.0
    #: Draws of a link's constants, one a plausible value.
    linked: Linked | None = None

    @property
    def scale(self) -> float:
        """Of the fixed-point moments: not of the number of persons, who may become more."""
        return summary.scale_for(self.furthest)


def _plausible(block: Block, plan: Plan, persons: Persons) -> dict[str, Floats]:
    """Plausible values, if any, shape (persons, plausible) or (persons, plausible, abilities)."""
    n, drawn = block.data.shape[0], []
    for items, population, keys in plan.drawn:
        u = np.stack([keyed_random.uniforms(k, block.start, n, plan.n_dims) for k in keys], axis=1)
        if plan.n_dims == 1:
            drawn.append(axis.draw(block.data, items, population, persons, u))
        else:
            drawn.append(plane.draw(block.data, items, u))
    if not drawn:
        return {}
    values = np.concatenate(drawn, axis=1)
    if plan.linked is not None:
        values = plan.linked.moved(values[..., None])[..., 0]
    return {"person_plausible_value": values}


def _abilities(block: Block, plan: Plan, persons: Persons) -> dict[str, Floats]:
    """Ability of each person with its standard deviation or error."""
    if plan.n_dims == 2:
        return plane.moments(block.data, plan.averaged)
    if plan.method == "eap":
        return axis.moments(block.data, plan.averaged, plan.population, persons)
    return axis.estimates(block.data, plan.method, plan.averaged[0], plan.population, persons)


def _score(block: Block, plan: Plan, ref: Any = None) -> tuple[dict[str, Floats], tuple[Any, ...]]:
    """Values of persons by name, and sums over them."""
    persons = plan.population.persons(ref)
    found = _abilities(block, plan, persons)
    error = found["person_ability_sd" if plan.method == "eap" else "person_ability_se"]
    sums = summary.sums(found["person_ability"], error, plan.scale, block.times)
    if plan.linked is not None:
        errors = plan.linked.errors(found["person_ability"][:, None], np.ones((1, 1)))
        found[OF_PERSONS] = errors[:, 0]
    return found | _plausible(block, plan, persons), sums


def _score_ref(ref: Any, plan: Plan) -> tuple[dict[str, Floats], tuple[Any, ...]]:
    """As :func:`_score`, for a population that knows persons apart."""
    return _score(read_block(ref), plan, ref)


def _person_ids(ref: Any) -> NDArray[Any]:
    return ref.person_ids()


def _write(ref: Any, plan: Plan, scored_with: str, to: str) -> tuple[bool, tuple[Any, ...]]:
    """Score one block into its file, unless that is there; whether it was, and the sums."""
    # Read once, for the key and the scores; not kept, so that memory does not grow with the store.
    read = functools.cache(ref.read if plan.population.plain else lambda: read_block(ref))
    key, number = folder.block_key(ref, lambda _: read()), ref.index
    kept = folder.kept_sums(person_files.file_of(location(to), number), key, scored_with)
    if kept is not None:
        return True, kept
    block = read()
    persons, sums = _score(block, plan, ref)
    values = persons.pop("person_plausible_value", np.empty((0, 0)))
    columns: dict[str, Any] = {}
    for name, x in persons.items():
        columns |= _columns(name, x)
    columns |= folder.answered(block.data)
    for r in range(values.shape[1]):
        columns |= _columns(f"pv{r + 1}", values[:, r])
    said = folder.said(key, scored_with, sums)
    person_files.write_block(ref, number, columns, to, said)
    return False, sums


def _columns(name: str, x: Floats) -> dict[str, Floats]:
    """One column, or one for each ability."""
    if x.ndim == 1:
        return {name: np.ascontiguousarray(x)}
    return {f"{name}_{q + 1}": np.ascontiguousarray(v) for q, v in enumerate(x.T)}


def _column_names(responses: Responses, plan: Plan) -> list[str]:
    """Columns of the files."""
    ends = ("",) if plan.n_dims == 1 else ("_1", "_2")
    error = "sd" if plan.method == "eap" else "se"
    values = ["person_ability", f"person_ability_{error}"]
    names = ["person_id", *(["person_group"] if responses.has_groups else [])]
    names += [f"{name}{end}" for name in values for end in ends]
    names += ["person_ability_correlation"] if plan.n_dims == 2 else []
    names += [OF_PERSONS] if plan.linked is not None else []
    n_plausible = sum(len(keys) for *_, keys in plan.drawn)
    return [*names, *folder.ANSWERED, *(f"pv{r + 1}{q}" for r in range(n_plausible) for q in ends)]


def _plan(responses: Responses, items: xr.Dataset, options: Options) -> Plan:
    """Choose the items to score with; every complaint about items is made here."""
    n_plausible = whole_number("n_plausible", options.n_plausible, 0)
    if options.n_item_draws is None:
        n_draws = usual_draws(items) if options.method == "eap" else 0
    else:
        n_draws = whole_number("n_item_draws", options.n_item_draws, 0)
    keys = tuple(keyed_random.key(options.seed, "plausible", r) for r in range(n_plausible))
    item_id = responses.item_id
    n_dims, known, of_draws = _KINDS[has_loadings(items)]
    drawn: tuple[Any, ...] = ()
    if n_draws == 0:
        averaged: tuple[Any, ...] = (known(items, item_id),)
        if keys:
            drawn = ((averaged[0], STANDARD, keys),)
    else:
        averaged = tuple(of_draws(items, item_id, n_draws, "n_item_draws"))
        if keys:
            own = of_draws(items, item_id, n_plausible, "n_plausible")
            drawn = tuple((one, STANDARD, (k,)) for one, k in zip(own, keys, strict=True))
    if n_dims == 1:
        refuse_other_categories(averaged[0], responses.n_categories, item_id, "items")
    link = linked(options.linking, items, n_plausible, {"": item_id})
    return Plan(options.method, n_dims, STANDARD, averaged, drawn, n_draws, linked=link)


def _planes(items: xr.Dataset, item_id: tuple[str, ...]) -> plane.Items:
    return plane.with_grid(*item_loadings(items, item_id))


def _drawn_planes(items: xr.Dataset, item_id: tuple[str, ...], n: int, option: str) -> list[Any]:
    return [plane.with_grid(*one) for one in loading_draws(items, item_id, n, option=option)]


def _drawn_items(items: xr.Dataset, item_id: tuple[str, ...], n: int, option: str) -> list[Any]:
    return list(item_draws(items, item_id, n, option=option))


#: Number of abilities, point estimates and draws of items without and with loadings.
_KINDS: dict[bool, tuple[int, Any, Any]] = {
    False: (1, item_set, _drawn_items),
    True: (2, _planes, _drawn_planes),
}


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


def _identification(plan: Plan) -> str:
    """Say which distribution the persons are taken to come from."""
    if plan.n_dims == 2:
        if any(items.correlation for items in plan.averaged):
            return "abilities normal, correlated, SD 1"
        return "abilities independent N(0, 1)"
    if plan.population.standard:
        return "ability N(0, 1)"
    if plan.population.plain:
        return "ability normal, on the scale of the items"
    if plan.population.covariates is None:
        return "ability normal in each group, on the scale of the items"
    return "ability normal given covariates, on the scale of the items"


class Found(NamedTuple):
    """A plan with its population, and the variables, coordinates and attributes of that."""

    plan: Plan
    data: dict[str, Any]
    coords: dict[str, Any]
    attrs: dict[str, Any]


def _population(
    engine: Engine, plan: Plan, items: xr.Dataset, start: Population | None, seed: int
) -> Found:
    """Estimate the population, if one is asked for; each plausible value has a draw of it."""
    most = _most_answers(engine) if plan.n_dims == 1 else 0
    if plan.n_dims == 1 and start is None:
        known = replace(plan.population, most_answers=most)
        drawn = tuple((items_of, known, keys) for items_of, _, keys in plan.drawn)
        plan = replace(plan, population=known, drawn=drawn)
    of_link = ({}, {}) if plan.linked is None else (plan.linked.constants(), plan.linked.attrs())
    if start is None:
        return Found(_reaching(plan), of_link[0], {}, of_link[1])
    of_all = item_set(items, engine.responses.item_id)
    found = regression.estimate(engine, of_all, start, most_answers=most)
    attrs = {
        "converged": found.converged,
        "n_iterations": found.passes,
        "log_likelihood": found.log_likelihood,
        **engine.weight_attrs,
        **of_link[1],
    }
    data, coords = regression.described(found)
    own = [(of, k) for of, _, keys in plan.drawn for k in keys]
    populations = regression_draws.drawn(engine, found, seed, len(own))
    drawn = tuple((of, one, (k,)) for (of, k), one in zip(own, populations, strict=True))
    plan = replace(plan, population=found.population, drawn=drawn)
    return Found(_reaching(plan), data | of_link[0], coords, attrs)


def _longest(block: Block) -> int:
    return int(response_counts.responses_per_person(block.data).max(initial=0))


def _most_answers(engine: Engine) -> int:
    """A power of two that no person's number of answers exceeds, where items are far more; else 0.

    One pass where items are many, as an item for each rater is one: nobody has all of them, and
    nodes for who has would be too many.
    """
    n_items = engine.responses.n_items
    if n_items < _MANY_ITEMS:
        return 0
    longest = max(engine.map_blocks(_longest), default=0)
    most = 1 << max(0, longest - 1).bit_length()
    return most if _FEWER * most <= n_items else 0


def _reaching(plan: Plan) -> Plan:
    """The plan with how far its posteriors are summed."""
    if plan.n_dims == 2:
        return plan
    nodes = [axis.nodes_of(items, plan.population) for items in plan.averaged]
    return replace(plan, furthest=max(float(np.abs(x).max()) for x in nodes))


def run(
    responses: Any, items: xr.Dataset, options: Options, store: str | Path | None, client: Any,
    progress: ProgressOption, composites: Any = None,
) -> xr.Dataset:  # fmt: skip
    """See :func:`irt_dask.score`."""
    population = options.prior if isinstance(options.prior, xr.Dataset) else None
    if is_bifactor(items):
        responses = of_bank(as_responses(responses, "score"), items, options.unknown_items)
        return bifactor.run(responses, items, options, composites, store, client, progress)
    if population is None:
        check_options(options, items)
        if composites is not None:
            raise InputError("composites: only of domains, under a result of fit_population")
    responses = as_responses(responses, "score", graded=not has_loadings(items), items=items)
    responses = of_bank(responses, items, options.unknown_items)
    if population is not None:
        from irt_dask.score import conditioned  # SciPy's distributions take a while to load

        return conditioned.run(
            responses, items, population, options, composites, store, client, progress
        )
    plan = _plan(responses, items, options)
    warn_of_groups(items, options)
    start = regression.begin(responses, options.prior)
    if store is None:
        _check_memory(responses.n_persons, options.n_plausible, plan.n_dims)
        return _in_memory(responses, items, options, plan, start, client, progress)
    path, lock = folder.opened(store)
    with lock, _engine(responses, plan, client, progress) as engine:
        found = _population(engine, plan, items, start, options.seed)
        columns = _column_names(responses, found.plan)
        scored_with = folder.checksum((found.plan, responses.item_id, tuple(columns)))
        folder.begin(path, engine.responses, scored_with, columns)
        blocks = engine.map_refs(_write, found.plan, scored_with, str(path), report=True)
        attrs, count = _described(engine, items, options, found, [b[1] for b in blocks])
        lists = {k: np.asarray(x).tolist() for k, x in (found.data | found.coords).items()}
        lock.check()
        folder.finish(path, identified(engine), scored_with, columns, attrs | lists)
    kept = sum(b[0] for b in blocks)
    attrs |= {"store": str(path), "n_blocks_scored": len(blocks) - kept, "n_blocks_kept": kept}
    return _result({}, found, count, attrs)


def _engine(responses: Responses, plan: Plan, client: Any, progress: ProgressOption) -> Engine:
    graded = plan.n_dims == 1
    return Engine(responses, client=client, progress=progress, stage="scoring", graded=graded)


def _in_memory(
    responses: Responses, items: xr.Dataset, options: Options, plan: Plan, start: Population | None,
    client: Any, progress: ProgressOption,
) -> xr.Dataset:  # fmt: skip
    """Abilities of all persons in the result."""
    with _engine(responses, plan, client, progress) as engine:
        found = _population(engine, plan, items, start, options.seed)
        if found.plan.population.plain:
            blocks = engine.map_blocks(_score, found.plan, report=True)
        else:
            blocks = engine.map_refs(_score_ref, found.plan, report=True)
        persons = {name: np.concatenate([b[0][name] for b in blocks]) for name in blocks[0][0]}
        ids = np.concatenate(engine.map_refs(_person_ids))
        found.coords["person_id"] = ids.astype(str, copy=False)
    attrs, count = _described(engine, items, options, found, [b[1] for b in blocks])
    return _result(persons, found, count, attrs | {"store": None})


def _described(
    engine: Engine, items: xr.Dataset, options: Options, found: Found, sums: list[Any]
) -> tuple[dict[str, Any], Any]:
    """Attributes of the result, and the histogram."""
    plan = found.plan
    count, moments, n = (np.sum([s[k] for s in sums], axis=0) for k in range(3))
    attrs = {
        "method": options.method,
        "model": items.attrs.get("model"),
        "prior": options.prior if isinstance(options.prior, str) else list(options.prior),
        "seed": options.seed if options.n_plausible else None,
        "n_persons": engine.n_persons,
        "n_item_draws": plan.n_item_draws,
        "n_plausible": int(options.n_plausible),
        **summary.described(
            (moments / plan.scale).astype(float), n.astype(int), plan.method in ("ml", "wle")
        ),
        "identification": _identification(plan),
        **found.attrs,
    }
    return attrs, count.astype(int)


def _result(
    persons: dict[str, Floats], found: Found, count: Any, attrs: dict[str, Any]
) -> xr.Dataset:
    coords = found.coords | {"ability": summary.middles()}
    return dataset({**persons, **found.data, "ability_count": count}, coords=coords, attrs=attrs)
