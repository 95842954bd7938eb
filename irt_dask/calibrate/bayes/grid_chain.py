"""One Gibbs chain on one shard: sweeps, adaptation in warm-up, segments that can be resumed.

A sweep draws every ability from its exact conditional on a grid, counts responses by node and item,
takes an exact Metropolis-Hastings step for each item on those counts, and moves along the scale of
ability.  What a sweep hands to the next is the item parameters alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.item_moves import Counts, moves_for
from irt_dask.curves.grids import Grid, grid_for
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import replicates
from irt_dask.engine.cache import keep, read_block
from irt_dask.engine.shard_files import ShardFile
from irt_dask.errors import ChainError, InputError
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.gibbs import person_draws, person_layout
from irt_dask.kernels.gibbs.person_layout import Persons
from irt_dask.kernels.responses import layouts

#: Slopes may grow by this factor over those the grid was made for.
GRID_MARGIN = 1.25
#: Distance of nodes, in smallest posterior SDs: a person's sum is then known to e^-35.
GRID_SHARE = 0.75
#: Sweeps after which a chain in warm-up makes its grid and proposal start anew.
_ADAPT_FIRST = 10
#: Smallest slope that a chain starts at.
LEAST_START = 0.2


#: A slope of 1,000 is none: the grid that resolves it would have 14,000 nodes.
_LARGEST_SLOPE = 1e3


@dataclass(frozen=True)
class Plan:
    """What all chains of a fit share."""

    fingerprint: str
    seed: int
    n_shards: int
    n_warmup: int
    n_draws: int  # sweeps after warm-up, of which every thin-th is kept
    thin: int
    prior: ItemPrior | Hierarchy
    n_persons: int
    sweeps: int
    powering: str = "shrink"
    #: What slopes of any sign count towards the orientation of ability; (): they are positive, and
    #: chains have their logarithms.
    towards: tuple[float, ...] = ()

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint rests on."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        prior = self.prior
        own["prior"] = prior.identity if isinstance(prior, Hierarchy) else asdict(prior)
        return own if self.towards else {k: v for k, v in own.items() if k != "towards"}

    def turned(self, u: Floats) -> Floats:
        """Slopes of any sign, all turned if they point the other way: no chain may begin there."""
        return -u if self.towards and not np.array(self.towards) @ u > 0.0 else u

    def slopes(self, u: Floats) -> Floats:
        """Discriminations that a chain's first coordinates stand for."""
        return u if self.towards else np.exp(u)

    @property
    def total(self) -> int:
        """Sweeps of a chain, warm-up included."""
        return self.n_warmup + self.n_draws

    def adapts_after(self, step: int) -> bool:
        """Whether warm-up adapts after this sweep: 10, 20, 40, ... and at its end."""
        doubling = step % _ADAPT_FIRST == 0 and (step // _ADAPT_FIRST).bit_count() == 1
        return step == self.n_warmup or (step < self.n_warmup and doubling)


@dataclass(frozen=True)
class _Shard:
    """The persons of one shard, in the order of their global rows, laid out for draws."""

    persons: Persons
    #: Replicated shards: how often everybody counts, and who counts once more.
    copies: int
    again: Persons | None

    @property
    def n(self) -> int:
        """Abilities to draw: persons, each as often as it counts."""
        return self.persons.n * self.copies + (self.again.n if self.again else 0)

    @property
    def nbytes(self) -> int:
        return self.persons.nbytes + (self.again.nbytes if self.again else 0)


def read_shard(refs: Sequence[Any], plan: Plan, shard: int) -> layouts.Layout:
    """Read the responses of a shard's persons: all blocks, or its part of a permuted copy.

    Persons with weights are so many (:mod:`irt_dask.engine.replicates`).
    """
    parts = []
    for ref in refs:
        if isinstance(ref, ShardFile):
            parts.append(ref.read(shard))
            continue
        block = read_block(ref)
        counted, of = replicates.times(block, plan.seed), None
        if plan.n_shards > 1:
            of = keyed_random.shard_of(plan.seed, block.start, block.n_persons, plan.n_shards)
        elif counted is None:
            parts.append(block.data)
            continue
        mine = replicates.of_shard(of, shard, counted, block.n_persons)
        parts.append(layouts.take(block.data, mine))
    data = layouts.concatenate(parts)
    if data.shape[0] == 0:
        raise InputError(f"shard {shard} of {plan.n_shards} has no person; use fewer shards")
    return data


def copies_of(n: int, n_persons: int) -> Ints:
    """How often each of a shard's n persons counts, so that together they count n_persons times."""
    return np.diff(np.arange(n + 1, dtype=np.int64) * n_persons // n)


def _lay_out(refs: Sequence[Any], plan: Plan, shard: int) -> _Shard:
    data = read_shard(refs, plan, shard)
    persons = person_layout.prepare(data)
    if plan.powering != "replicate":
        return _Shard(persons, 1, None)
    copies = copies_of(persons.n, plan.n_persons)
    again = np.flatnonzero(copies > copies.min())
    more = person_layout.prepare(layouts.take(data, again)) if again.size else None
    return _Shard(persons, int(copies.min()), more)


def _draw_shard(
    shard: _Shard, a: Floats, d: Floats, nodes: Floats, u: Floats
) -> tuple[Any, Any, Any, Any]:
    """Draw the abilities of a shard's persons and of their copies; counts of all together."""
    draws = [shard.persons] * shard.copies + ([shard.again] if shard.again else [])
    counts, used = [], 0
    for p in draws:
        counts.append(person_draws.draw_counts(p, a, d, nodes, u[used : used + p.n]))
        used += p.n
    if len(counts) == 1:
        return counts[0]
    right, seen = np.zeros((2, nodes.size, a.size), dtype=np.int64)
    for at, r, s, _ in counts:
        right[at] += r
        seen[at] += s
    persons = np.sum([c[3] for c in counts], axis=0)
    kept = np.flatnonzero(persons)
    return kept, right[kept], seen[kept], persons


def segment(
    plan: Plan, refs: Sequence[Any], state: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run one chain for a number of sweeps; see :func:`irt_dask.engine.run_chains`.

    Random numbers belong to (seed, shard, chain, sweep) and the person's rank in the shard or the
    item's index, so neither blocks nor where the chain is cut matter.
    """
    shard, chain = int(state["shard"]), int(state["chain"])
    key = (plan.fingerprint, "shard", plan.seed, plan.n_shards, shard, plan.powering)
    data = keep(key, lambda: _lay_out(refs, plan, shard))
    n, m = data.persons.n, data.persons.n_items
    published = plan.powering == "published"
    power = n / plan.n_persons if plan.powering == "shrink" else 1.0
    moves = moves_for(plan.prior, power, m, state, np.array(plan.towards))
    log_a, d = state["log_a"].copy(), state["d"].copy()
    accepted = state["accepted"].copy()
    start, grid = state["start"], Grid(int(state["n_nodes"]))
    nodes, kept, more = grid.nodes, [], []

    first = int(state["step"]) + 1
    for step in range(first, min(first + plan.sweeps, plan.total + 1)):
        sweep = keyed_random.key(plan.seed, "gibbs", shard, chain, step)
        words, abilities = np.split(keyed_random.stream(sweep, moves.words + data.n), [moves.words])
        at, right, seen, persons = _draw_shard(data, plan.slopes(log_a), d, nodes, abilities)
        if published:
            right, seen = (x * (plan.n_persons / n) for x in (right, seen))
        if step == plan.n_warmup + 1:
            accepted[:] = 0
        counts = Counts(at, right, seen, persons, nodes)
        # Published conditionals have no joint distribution that a move along the scale could keep.
        moves.sweep(counts, start, words, log_a, d, accepted, rescaled=not published)
        _check(plan.slopes(log_a), d, f"shard {shard}, chain {chain}, sweep {step}")
        if plan.adapts_after(step):
            start = np.stack([log_a, d])
            grid = _grid(plan.slopes(log_a), d)
            nodes = grid.nodes
        if step > plan.n_warmup and (step - plan.n_warmup) % plan.thin == 0:
            kept.append(np.stack([log_a, d]))
            more.append(moves.drawn())
    state = {**state, "log_a": log_a, "d": d, "start": start, "accepted": accepted}
    state |= {"n_nodes": np.array(grid.n_nodes), "step": np.array(step), "n": np.array(n)}
    state |= moves.state()
    drawn = {
        k: np.array([x[k] for x in more]).reshape(-1, *v.shape) for k, v in moves.drawn().items()
    }
    return state, {"draws": np.array(kept).reshape(-1, 2, m), **drawn}


def _grid(a: Floats, d: Floats) -> Grid:
    """Grid of a chain that is here."""
    return grid_for(a, d, margin=GRID_MARGIN, share=GRID_SHARE)


def _check(a: Floats, d: Floats, where: str) -> None:
    """Stop a chain whose items are no numbers, or have run away."""
    if np.isnan(a).any() or (a == 0.0).any() or not np.isfinite(d).all():
        raise ChainError(f"{where}: an item parameter is not a number")
    check_slopes(a, where)


def check_slopes(a: Floats, where: str) -> None:
    """Stop a chain whose slopes have run away."""
    if np.abs(a).max() > _LARGEST_SLOPE:
        j = int(np.abs(a).argmax())
        raise ChainError(
            f"{where}: the chain diverges, the discrimination of item {j} has reached "
            f"{a[j]:.3g}; use fewer shards, or a tighter ItemPrior for discriminations"
        )


def first_state(shard: int, chain: int, a: Floats, d: Floats, plan: Plan) -> dict[str, Any]:
    """Start of one chain: the start values, scattered so that R-hat can see a bad warm-up.

    Slopes start at 0.2 at least: the item step proposes values far out on the way to a = 0 too
    rarely, and so would hardly leave one that joint maximum likelihood put at its bound.
    """
    if not plan.towards:
        a = np.log(np.maximum(a, LEAST_START))
    scatter = keyed_random.generator(plan.seed, "gibbs-start", shard, chain).normal(
        0.0, 0.2, (2, a.size)
    )
    log_a, d = plan.turned(a + scatter[0]), d + scatter[1]
    return {
        "shard": np.array(shard),
        "chain": np.array(chain),
        "step": np.array(0),
        "n": np.array(0),
        "log_a": log_a,
        "d": d,
        "start": np.stack([log_a, d]),
        "accepted": np.zeros(a.size, dtype=np.int64),
        "n_nodes": np.array(_grid(plan.slopes(log_a), d).n_nodes),
    }
