"""One Gibbs chain on one shard for items of any model that has coordinates.

As :mod:`irt_dask.calibrate.bayes.grid_chain`, which is for the 2PL alone: abilities are drawn on a
grid, from tables of the items; items by a Metropolis-Hastings step on counts by category; then all
move along the scale of ability.  What a sweep hands to the next are the items' coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.bayes import grid_chain, shared_parameters
from irt_dask.calibrate.bayes.grid_chain import GRID_MARGIN
from irt_dask.calibrate.bayes.item_density import Conditional, Shapes
from irt_dask.calibrate.bayes.item_moves import Abilities
from irt_dask.calibrate.bayes.item_step import Reference, agreement_of
from irt_dask.curves.grids import Grid, grid_of
from irt_dask.engine.cache import keep
from irt_dask.errors import ChainError
from irt_dask.items.derivatives import Counts
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.gibbs import table_draws
from irt_dask.kernels.gibbs.table_draws import Persons
from irt_dask.kernels.posterior import person_weights
from irt_dask.kernels.posterior.tables import padded, tables_by_category
from irt_dask.kernels.responses import layouts

#: Distance of nodes, in smallest posterior SDs: a person's sum is then known to e^-19.
_GRID_SHARE = 1.0


@dataclass(frozen=True, kw_only=True)
class Plan(grid_chain.Plan):
    """What all chains of a fit share; ``shapes`` are the items' models and their priors."""

    shapes: Shapes

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint rests on."""
        own = {k: v for k, v in super().identity.items() if k != "shapes"}
        models, betas = self.shapes.models, self.shapes.betas
        return own | {
            "model": models.names.tolist(), "n_categories": models.n_categories,
            "prior_of_shapes": (betas.alpha, betas.beta),
            **({"shared": models.of_all} if models.shares else {}),
        }  # fmt: skip


class Shard(NamedTuple):
    """The persons of one shard, in the order of their global rows, and how often they count."""

    persons: Persons
    #: Replicated shards: how often everybody counts, and who counts once more.
    copies: int = 1
    again: Persons | None = None

    @property
    def n(self) -> int:
        """Abilities to draw."""
        return self.persons.n * self.copies + (self.again.n if self.again else 0)

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.persons.nbytes + (self.again.nbytes if self.again else 0)


def _lay_out(refs: Sequence[Any], plan: Plan, shard: int) -> Shard:
    data, k = grid_chain.read_shard(refs, plan, shard), plan.shapes.models.n_categories
    persons = table_draws.lay_out(data, k)
    if plan.powering != "replicate":
        return Shard(persons)
    copies = grid_chain.copies_of(persons.n, plan.n_persons)
    again = np.flatnonzero(copies > copies.min())
    more = table_draws.lay_out(layouts.take(data, again), k) if again.size else None
    return Shard(persons, int(copies.min()), more)


def draw(
    shard: Shard, shapes: Shapes, y: Floats, nodes: Floats, u: Floats
) -> tuple[Ints, Ints, Ints]:
    """Draw the abilities of a shard's persons and their copies; counts of all together."""
    g = tables_by_category(shapes.items(y), nodes)
    (log_mass,) = person_weights.normal(nodes)
    found, used = [], 0
    for p in [shard.persons] * shard.copies + ([shard.again] if shard.again else []):
        found.append(table_draws.draw_counts(p, g, log_mass, u[used : used + p.n]))
        used += p.n
    persons, seen, higher = (sum(x[1:], start=x[0]) for x in zip(*found, strict=True))
    return persons, seen, higher


def counts_of(
    shapes: Shapes, nodes: Floats, persons: Ints, seen: Ints, higher: Ints, times: float
) -> list[Counts]:
    """Counts by model at the nodes that have persons, each as so many."""
    kept, models = np.flatnonzero(persons), shapes.models
    first = np.concatenate([[0], np.cumsum(models.n_categories - 1)])
    out = []
    for part in models.parts:
        rows = first[part.at][:, None] + np.arange(part.model.n_categories - 1)
        own = higher[kept[:, None], rows.ravel()].T.reshape(*rows.shape, kept.size)
        its = seen[kept[:, None], part.at].T
        weighted = [times * x.astype(np.float64) for x in (its, own)]
        out.append(Counts(part.model, part.at, nodes[kept], *weighted))
    return out


def segment(
    plan: Plan, refs: Sequence[Any], state: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run one chain for a number of sweeps; see :func:`irt_dask.engine.run_chains`.

    Random numbers belong to (seed, shard, chain, sweep) and the person's rank in the shard or the
    item's index, so neither blocks nor where the chain is cut matter.
    """
    shard, chain = int(state["shard"]), int(state["chain"])
    key = (plan.fingerprint, "models", plan.seed, plan.n_shards, shard, plan.powering)
    data = keep(key, lambda: _lay_out(refs, plan, shard))
    n = data.persons.n
    published = plan.powering == "published"
    power = n / plan.n_persons if plan.powering == "shrink" else 1.0
    times = plan.n_persons / n if published else 1.0
    y, accepted = state["y"].copy(), state["accepted"].copy()
    size, m = y.shape
    shapes = replace(plan.shapes, power=power)
    start = {**state, "log_a": y[0], "d": y[1]}
    common = shared_parameters.moves(shapes, plan.prior, power, start, np.array(plan.towards))
    nodes, kept, more = state["nodes"], [], []
    reference = Reference(shapes, state["start"], nodes)
    centres, n_centres = state["centres"].copy(), int(state["n_centres"])
    of_items = shared_parameters.words(shapes)
    ends = [of_items, of_items + common.words_after]

    first = int(state["step"]) + 1
    for step in range(first, min(first + plan.sweeps, plan.total + 1)):
        sweep = keyed_random.key(plan.seed, "gibbs", shard, chain, step)
        u = keyed_random.stream(sweep, ends[1] + data.n)
        items, scale, abilities = np.split(u, ends)
        persons, seen, higher = draw(data, shapes, y, nodes, abilities)
        counts = counts_of(shapes, nodes, persons, seen, higher, times)
        if step == plan.n_warmup + 1:
            accepted[:] = 0
        density = Conditional(shapes, counts, common)
        at = np.flatnonzero(persons)
        centres += shared_parameters.draw_items(density, reference, at, items, y, accepted)
        n_centres += 1
        # Published conditionals have no joint distribution that a move along the scale could keep.
        if not published:
            common.move(Abilities(persons, nodes), scale, y)
        _check(shapes, y, f"shard {shard}, chain {chain}, sweep {step}")
        if plan.adapts_after(step):
            # The mean of the modes so far: steps from there are short.
            nodes = nodes_for(shapes, y)
            reference = Reference(shapes, centres / n_centres, nodes)
            centres, n_centres = np.zeros_like(centres), 0
        if step > plan.n_warmup and (step - plan.n_warmup) % plan.thin == 0:
            kept.append(y.copy())
            more.append(common.drawn())
    state = {**state, "y": y, "start": reference.y, "accepted": accepted, "nodes": nodes}
    state |= {"centres": centres, "n_centres": np.array(n_centres)}
    state |= {"step": np.array(step), "n": np.array(n), **common.state()}
    drawn = {
        k: np.array([x[k] for x in more]).reshape(-1, *v.shape) for k, v in common.drawn().items()
    }
    return state, {"draws": np.array(kept).reshape(-1, size, m), **drawn}


def nodes_for(shapes: Shapes, y: Floats) -> Floats:
    """Abilities on which posteriors under these items, and somewhat steeper ones, are summed."""
    grid: Grid = grid_of(shapes.items(y, GRID_MARGIN), share=_GRID_SHARE)
    return padded(grid.nodes)


def needed_spacing(shapes: Shapes, y: Floats) -> float:
    """Spacing that these items need; up to 1.5 times that nothing is said."""
    return grid_of(shapes.items(y), share=_GRID_SHARE / 1.5).spacing


def _check(shapes: Shapes, y: Floats, where: str) -> None:
    if not np.isfinite(y).all():
        raise ChainError(f"{where}: an item parameter is not a number")
    grid_chain.check_slopes(shapes.discriminations(y[0]), where)


def first_state(shard: int, chain: int, y: Floats, plan: Plan) -> dict[str, Any]:
    """Start of one chain: the start values, scattered so that R-hat can see a bad warm-up."""
    y = y.copy()
    if not plan.towards:
        y[0] = np.maximum(y[0], np.log(grid_chain.LEAST_START))
    scatter = keyed_random.generator(plan.seed, "gibbs-start", shard, chain).normal(
        0.0, 0.2, y.shape
    )
    y = plan.shapes.models.tied(np.where(plan.shapes.free, y + scatter, 0.0))
    if plan.towards and not agreement_of(np.array(plan.towards), y) > 0.0:
        y = plan.shapes.stretched(y, -1.0)
    return {
        "shard": np.array(shard),
        "chain": np.array(chain),
        "step": np.array(0),
        "n": np.array(0),
        "y": y,
        "start": y,
        "centres": np.zeros_like(y),
        "n_centres": np.array(0),
        "accepted": np.zeros(shared_parameters.n_accepted(plan.shapes.models), dtype=np.int64),
        "nodes": nodes_for(plan.shapes, y),
    }
