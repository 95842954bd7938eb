"""Abilities and plausible values of several domains under a conditioning model."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats, Ints, Words
from irt_dask.engine import Engine, ProgressOption, dataset, person_files
from irt_dask.engine.cache import read_block
from irt_dask.engine.identity import identified
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import InputError, listed
from irt_dask.items.draws import has_draws, item_draws
from irt_dask.items.link_constants import OF_PERSONS
from irt_dask.kernels.base import keyed_random
from irt_dask.population.conditioning import MOST_EXACT, SWEEPS, WARM_UP, Conditioning
from irt_dask.population.conditioning_used import Used, drawn, refuse_others, used
from irt_dask.population.design import designed
from irt_dask.score import folder, summary
from irt_dask.score.checks import Options
from irt_dask.score.linked import Linked, linked
from irt_dask.store import Block, Responses
from irt_dask.store.places import location

_MAX_IN_MEMORY = 100_000_000
#: Bound of abilities in the sums that describe them.
_FURTHEST = 1000.0


@dataclass(frozen=True)
class Plan:
    """What every block has to know."""

    model: Conditioning
    #: Models that values are drawn under, and the keys of these, one each.
    drawn: tuple[tuple[Conditioning, Words], ...]
    #: Key of the sweeps of more domains than posteriors are summed over.
    sweeps: Words
    composites: tuple[str, ...]
    weights: Floats  # (composites, domains)
    #: Draws of links' constants, one a plausible value.
    linked: Linked | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of domains, then of composites."""
        return (*(d.name for d in self.model.domains), *self.composites)


def _moments(block: Block, plan: Plan) -> tuple[Floats, Floats]:
    """Means and covariances of a block's persons."""
    n, dims = block.n_persons, len(plan.model.domains)
    if dims <= MOST_EXACT:
        _, mean, covariance, _ = plan.model.moments(block)
        return mean, covariance
    u = keyed_random.uniforms(plan.sweeps, block.start, n, (WARM_UP + SWEEPS) * dims)
    _, mean, covariance = plan.model.in_turns(block, u, WARM_UP)
    return mean, covariance


def _values(block: Block, plan: Plan) -> Floats:
    """Plausible values, (persons, values, domains)."""
    n, dims = block.n_persons, len(plan.model.domains)
    out = np.empty((n, len(plan.drawn), dims))
    sweeps = 1 if dims <= MOST_EXACT else WARM_UP
    for r, (model, key) in enumerate(plan.drawn):
        u = keyed_random.uniforms(key, block.start, n, dims * sweeps)
        out[:, r] = model.values(block, u)
    return out if plan.linked is None else plan.linked.moved(out)


def _with_composites(x: Floats, plan: Plan) -> Floats:
    """Values of domains, and of composites after them."""
    out = np.zeros((*x.shape[:-1], len(plan.composites)))
    for d in range(x.shape[-1]):  # one by one: the same bits in any blocks
        out += x[..., [d]] * plan.weights[:, d]
    return np.concatenate([x, out], axis=-1)


def _pair(one: str, other: str) -> str:
    return f"person_ability_correlation_{one}_{other}"


def _of_links(plan: Plan) -> list[tuple[int, str]]:
    """Columns of what links give to abilities: those that have a link, and sums of these."""
    if plan.linked is None:
        return []
    has = np.array(plan.linked.of_ability) >= 0
    moved = [*has, *(plan.weights[:, has] != 0.0).any(axis=1)]
    return [(k, f"{OF_PERSONS}_{name}") for k, name in enumerate(plan.names) if moved[k]]


def _score(block: Block, plan: Plan) -> tuple[dict[str, Floats], tuple[Any, ...]]:
    """Columns of a block's persons, and sums over them."""
    mean, covariance = _moments(block, plan)
    dims = mean.shape[1]
    sd = np.sqrt(covariance[:, range(dims), range(dims)])
    sums = summary.sums(mean, sd, summary.scale_for(_FURTHEST), block.times)
    of_composites = np.einsum("cd,ide,ce->ic", plan.weights, covariance, plan.weights)
    every_sd = np.concatenate([sd, np.sqrt(of_composites)], axis=1)
    every = _with_composites(mean, plan)
    columns: dict[str, Any] = {}
    for k, name in enumerate(plan.names):
        columns[f"person_ability_{name}"] = every[:, k]
        columns[f"person_ability_sd_{name}"] = every_sd[:, k]
    for d in range(dims):
        for e in range(d):
            r = covariance[:, e, d] / (sd[:, e] * sd[:, d])
            columns[_pair(plan.names[e], plan.names[d])] = r
    if plan.linked is not None:
        errors = plan.linked.errors(mean, np.concatenate([np.eye(dims), plan.weights]))
        columns |= {c: np.ascontiguousarray(errors[:, k]) for k, c in _of_links(plan)}
    columns |= folder.answered(block.data)
    values = _with_composites(_values(block, plan), plan)
    for r in range(values.shape[1]):
        for k, name in enumerate(plan.names):
            columns[f"pv{r + 1}_{name}"] = np.ascontiguousarray(values[:, r, k])
    return columns, sums


def column_names(responses: Responses, plan: Plan) -> list[str]:
    """Columns of the files."""
    names, dims = plan.names, len(plan.model.domains)
    out = ["person_id", *(["person_group"] if responses.has_groups else [])]
    out += [f"person_ability{s}_{n}" for n in names for s in ("", "_sd")]
    out += [_pair(names[e], names[d]) for d in range(dims) for e in range(d)]
    out += [column for _, column in _of_links(plan)]
    return [
        *out,
        *folder.ANSWERED,
        *(f"pv{r + 1}_{n}" for r in range(len(plan.drawn)) for n in names),
    ]


def _write(ref: Any, plan: Plan, scored_with: str, to: str) -> tuple[bool, tuple[Any, ...]]:
    """Score one block into its file, unless that is there; whether it was, and the sums."""
    read = functools.cache(lambda: read_block(ref))
    key, number = folder.block_key(ref, lambda _: read()), ref.index
    kept = folder.kept_sums(person_files.file_of(location(to), number), key, scored_with)
    if kept is not None:
        return True, kept
    columns, sums = _score(read(), plan)
    person_files.write_block(ref, number, columns, to, folder.said(key, scored_with, sums))
    return False, sums


def _person_ids(ref: Any) -> Any:
    return ref.person_ids()


# --- what is asked for ----------------------------------------------------------------------------


def _composites(
    asked: Mapping[str, Mapping[str, float]] | None, domains: tuple[str, ...]
) -> tuple[tuple[str, ...], Floats]:
    weights = np.zeros((len(asked or {}), len(domains)))
    for k, (name, of) in enumerate((asked or {}).items()):
        unknown = [d for d in of if d not in domains]
        if unknown or not of:
            raise InputError(
                f"composites: {name!r}: no domain is {listed(unknown) or 'named'}; there are "
                f"{listed(domains)}"
            )
        if name in domains:
            raise InputError(f"composites: {name!r} is the name of a domain")
        weights[k, [domains.index(d) for d in of]] = list(of.values())
    if not np.isfinite(weights).all():
        raise InputError("composites: weights are finite numbers")
    return tuple(map(str, asked or {})), weights


def check_conditioned(options: Options) -> None:
    """Refuse what a conditioning model does not do."""
    if options.method != "eap":
        raise InputError(
            f"method={options.method!r}: under a population model abilities are posterior means: "
            f"use method='eap'"
        )
    if options.n_item_draws and options.n_item_draws != options.n_plausible:
        raise InputError(
            f"n_item_draws={options.n_item_draws}: under a population model each plausible value "
            f"has an item draw of its own, and means are those under the point estimates: give as "
            f"many as n_plausible={options.n_plausible}; 0 takes these for the truth in all"
        )


def _redrawn(items: xr.Dataset, options: Options) -> bool:
    """Whether each value has items of its own: of a posterior's draws, or by a bank's errors."""
    return has_draws(items) if options.n_item_draws is None else options.n_item_draws > 0


def _models(
    engine: Engine, of: Used, items: xr.Dataset, options: Options, n: int, population: xr.Dataset
) -> list[Conditioning]:
    """Models that values are drawn under."""
    if not n:
        return []
    if not _redrawn(items, options):
        return drawn(of, options.seed, n)
    refuse_others(engine, of, population)
    sets = list(item_draws(items, engine.responses.item_id, n, option="n_plausible"))
    return drawn(of, options.seed, n, engine, sets)


def run(
    responses: Responses, items: xr.Dataset, population: xr.Dataset, options: Options,
    composites: Mapping[str, Mapping[str, float]] | None, store: str | Path | None, client: Any,
    progress: ProgressOption,
) -> xr.Dataset:  # fmt: skip
    """See :func:`irt_dask.score`, with a result of ``fit_population``."""
    check_conditioned(options)
    n = whole_number("n_plausible", options.n_plausible, 0)
    of = used(population, items, responses)
    domains = of.model.domains
    names = tuple(d.name for d in domains)
    measured = {d.name: [responses.item_id[k] for k in d.columns] for d in domains}
    link = linked(options.linking, items, n, measured)
    of_composites, weights = _composites(composites, names)
    numbers = responses.n_persons * (len(names) + len(of_composites)) * (2 + n)
    if store is None and numbers > _MAX_IN_MEMORY:
        raise InputError(
            f"{responses.n_persons} persons x {len(names)} domains, {n} plausible values: more "
            f"than {_MAX_IN_MEMORY} numbers are not returned in memory; give store=PATH"
        )
    _check_groups(responses, of.model, population)
    known = designed(responses, of.model.design, of.model.labels)
    with Engine(known, client=client, progress=progress, stage="scoring", graded=True) as engine:
        models = _models(engine, of, items, options, n, population)
        keys = [keyed_random.key(options.seed, "plausible", r) for r in range(n)]
        plan = Plan(
            of.model, tuple(zip(models, keys, strict=True)),
            keyed_random.key(options.seed, "sweeps"), of_composites, weights, link,
        )  # fmt: skip
        if store is None:
            return _in_memory(engine, plan, options, items, population)
        return _stored(engine, plan, options, items, population, store)


def _check_groups(responses: Responses, model: Conditioning, population: xr.Dataset) -> None:
    if model.labels and not responses.has_groups:
        raise InputError(
            f"population: it is of {len(model.labels)} groups, and the responses have none"
        )


def _in_memory(
    engine: Engine, plan: Plan, options: Options, items: xr.Dataset, population: xr.Dataset
) -> xr.Dataset:
    blocks = engine.map_blocks(_score, plan, report=True)
    columns = {name: np.concatenate([b[0][name] for b in blocks]) for name in blocks[0][0]}
    attrs, count = _described(engine, plan, options, items, population, [b[1] for b in blocks])
    names = plan.names
    n, dims = engine.responses.n_persons, len(plan.model.domains)
    data: dict[str, Any] = {
        "person_domain_ability": np.stack([columns[f"person_ability_{d}"] for d in names], 1),
        "person_domain_ability_sd": np.stack([columns[f"person_ability_sd_{d}"] for d in names], 1),
    }
    correlation = np.tile(np.eye(dims), (n, 1, 1))
    for d in range(dims):
        for e in range(d):
            r = columns[_pair(names[e], names[d])]
            correlation[:, d, e] = correlation[:, e, d] = r
    data["person_domain_correlation"] = correlation
    if plan.drawn:
        values = [
            np.stack([columns[f"pv{r + 1}_{d}"] for d in names], 1) for r in range(len(plan.drawn))
        ]
        data["person_domain_plausible_value"] = np.stack(values, axis=1)
    if plan.linked is not None:
        of_each = np.zeros((n, len(names)))
        for k, column in _of_links(plan):
            of_each[:, k] = columns[column]
        data[OF_PERSONS] = of_each
    ids = np.concatenate(engine.map_refs(_person_ids)).astype(str, copy=False)
    return _result(plan, data, {"person_id": ids}, count, attrs | {"store": None})


def _stored(
    engine: Engine, plan: Plan, options: Options, items: xr.Dataset, population: xr.Dataset,
    store: str | Path,
) -> xr.Dataset:  # fmt: skip
    path, lock = folder.opened(store)
    with lock:
        models = [m.digest() for m in (plan.model, *(m for m, _ in plan.drawn))]
        keys = [k.tolist() for _, k in plan.drawn]
        what: tuple[Any, ...] = (models, keys, plan.sweeps.tolist(), plan.composites, plan.weights)
        what += () if plan.linked is None else (plan.linked,)
        columns = column_names(engine.responses, plan)
        scored_with = folder.checksum((what, engine.responses.item_id, tuple(columns)))
        folder.begin(path, engine.responses, scored_with, columns)
        blocks = engine.map_refs(_write, plan, scored_with, str(path), report=True)
        attrs, count = _described(engine, plan, options, items, population, [b[1] for b in blocks])
        lock.check()
        links = {} if plan.linked is None else plan.linked.constants()
        # JSON has no NaN, which abilities without a link have
        lists = {k: np.where(np.isnan(x), None, x).tolist() for k, x in links.items()}  # type: ignore[call-overload]
        folder.finish(path, identified(engine), scored_with, columns, attrs | lists)
    kept = sum(b[0] for b in blocks)
    attrs |= {"store": str(path), "n_blocks_scored": len(blocks) - kept, "n_blocks_kept": kept}
    return _result(plan, {}, {}, count, attrs)


def _described(
    engine: Engine, plan: Plan, options: Options, items: xr.Dataset, population: xr.Dataset,
    sums: list[Any],
) -> tuple[dict[str, Any], Any]:  # fmt: skip
    """Attributes of the result, and the histograms."""
    count, moments, n = (np.sum([s[k] for s in sums], axis=0) for k in range(3))
    scale = summary.scale_for(_FURTHEST)
    redrawn = plan.drawn and _redrawn(items, options)
    attrs = {
        "method": "eap",
        "model": items.attrs.get("model"),
        "prior": str(population.attrs["formula"]),
        "seed": options.seed,
        "n_persons": engine.n_persons,
        "n_item_draws": len(plan.drawn) if redrawn else 0,
        "n_plausible": len(plan.drawn),
        "domains": [d.name for d in plan.model.domains],
        "composites": list(plan.composites),
        **summary.described((moments / scale).astype(float), n.astype(int), False),
        "identification": "abilities on the scale of the items, normal given covariates",
        **({} if plan.linked is None else plan.linked.attrs()),
    }
    return attrs, count.astype(int)


def _result(
    plan: Plan, data: dict[str, Any], coords: dict[str, Any], count: Ints, attrs: dict[str, Any]
) -> xr.Dataset:
    n = len(plan.model.domains)
    coords = coords | {
        "ability": summary.middles(),
        "domain": np.array(plan.names[:n], dtype=str),
        "scale": np.array(plan.names, dtype=str),
    }
    data = data if plan.linked is None else data | plan.linked.constants()
    return dataset(data | {"ability_count": count}, coords=coords, attrs=attrs)
