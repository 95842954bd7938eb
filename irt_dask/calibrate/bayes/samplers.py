"""The Gibbs samplers of :func:`irt_dask.fit_bayes`, made ready for a data set.

Both draw from the same posterior.  :mod:`irt_dask.calibrate.bayes.grid_chain` is for one ability,
:mod:`irt_dask.calibrate.bayes.polya_gamma_chain` for any number.
"""

from __future__ import annotations

import functools
import math
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.bayes import (
    empirical_bayes,
    grid_chain,
    loadings,
    model_chain,
    model_posterior,
    polya_gamma_chain,
)
from irt_dask.calibrate.bayes.coordinates import Space
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.item_density import Shapes
from irt_dask.calibrate.bayes.shards import Ranked, ShardPosterior
from irt_dask.calibrate.bayes.shared_space import space_of
from irt_dask.calibrate.bayes.signs import mask
from irt_dask.curves.grids import Grid, grid_for
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Chain, Checkpoint, Engine, run_chains
from irt_dask.engine.chains import Segment
from irt_dask.engine.inputs import one_of
from irt_dask.engine.shard_files import ShardFile, write_copy
from irt_dask.errors import InputError
from irt_dask.kernels.combine import convergence
from irt_dask.store import Responses
from irt_dask.store.places import local_path
from irt_dask.store.responses import sha256

SAMPLERS = ("grid", "polya-gamma")

#: What a segment should take, seconds, and rough costs that only decide where chains are cut.
_SEGMENT_SECONDS = 5.0
_COST_SWEEP, _COST_PERSON, _COST_CELL, _COST_ITEM = 1e-4, 5e-8, 5e-9, 3e-6
#: A test of fewer items than this says less about each person, and its chain mixes more slowly:
#: several sweeps are made for each draw, at most so many.
_LONG_TEST, _MOST_PER_DRAW = 40, 8
#: Draws of all shards that the driver holds, bytes; beyond, chains are thinned.
_DRIVER_BYTES = 1 << 29
#: Draws of a chain that are kept, at least.
LEAST_DRAWS = 100
#: More shards than this do not each read the whole store: a copy by shard is made first.
_MOST_READS = 100


@dataclass(frozen=True)
class Options:
    """What the caller of fit_bayes asked for."""

    seed: int
    n_shards: int
    n_draws: int
    n_warmup: int
    n_chains: int
    prior: ItemPrior | Hierarchy
    powering: str
    n_dims: int
    correlated: bool
    sampler: str
    location: str
    #: Loadings that are not fixed at 0, those of them that are positive, and how they were named.
    free: Bools
    signs: Bools
    positive: str
    #: Abilities that chains draw, of replicates of persons with weights, and whether these are of
    #: a sample.
    n_persons: int = 0
    sampled: bool = False
    #: Slopes of any sign: what each counts towards the orientation of ability.
    towards: tuple[float, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether chains hold a covariance of the items that is learned from what they find."""
        return self.n_shards > 1 or self.sampled


@dataclass(frozen=True)
class Sampler:
    """A sampler, its plan, and the coordinates in which its draws are near Gaussian."""

    name: str
    plan: grid_chain.Plan
    a: Floats  # start values: loadings (items, dims); of other models coordinates (P, items)
    d: Floats
    space: Space
    free: Bools  # (items, dims)
    positive: Bools
    attempt: int = 0

    def holding(self, covariance: Floats, attempt: int) -> Sampler:
        """Return the grid sampler of shards that hold another covariance of the items."""
        assert isinstance(self.plan.prior, Hierarchy)
        plan = replace(self.plan, prior=self.plan.prior.holding(covariance))
        return replace(self, plan=plan, attempt=attempt)

    @property
    def segment(self) -> Segment:
        """What runs a chain for some sweeps."""
        if isinstance(self.plan, polya_gamma_chain.Plan):
            return functools.partial(polya_gamma_chain.segment, self.plan)
        if isinstance(self.plan, model_chain.Plan):
            return functools.partial(model_chain.segment, self.plan)
        return functools.partial(grid_chain.segment, self.plan)

    def chains(self, n_chains: int) -> list[list[Chain]]:
        """Chains of each shard, at their start."""
        names = "shard-{:04d}-chain-{}" + (f"-run-{self.attempt + 1}" if self.attempt else "")
        return [
            [Chain(names.format(s, c), self._first(s, c)) for c in range(n_chains)]
            for s in range(self.plan.n_shards)
        ]

    def _first(self, shard: int, chain: int) -> dict[str, Any]:
        if isinstance(self.plan, polya_gamma_chain.Plan):
            return polya_gamma_chain.first_state(shard, chain, self.a, self.d, self.plan)
        if isinstance(self.plan, model_chain.Plan):
            return model_chain.first_state(shard, chain, self.a, self.plan)
        return grid_chain.first_state(shard, chain, self.a[:, 0], self.d, self.plan)

    def posterior(self, chains: list[Chain]) -> ShardPosterior:
        """Draws and diagnostics of one shard's chains."""
        drawn = {k: np.stack([_joined(c, k) for c in chains]) for k in chains[0].outputs[0]}
        draws = drawn.pop("draws")
        if self.name != "grid":  # which keeps logarithms itself
            logs = np.concatenate([self.positive.T, np.zeros((1, self.d.size), dtype=bool)])
            draws = np.where(logs, np.log(np.where(logs, draws, 1.0)), draws)
        state = chains[0].state
        x = self.space.of_draws(draws)
        free = self.space.mask(*draws.shape[2:])
        acceptance = spacing = math.nan
        needed, of_parameters = math.inf, None
        if self.name == "grid":
            kept = self.plan.total - self.plan.n_warmup
            acceptance = float(np.mean([c.state["accepted"].mean() for c in chains])) / kept
            spacing, needed = self._spacings(state, draws.mean(axis=(0, 1)))
        if isinstance(self.plan, model_chain.Plan):
            x_of = self.plan.shapes.reported.parameters(draws)
            with np.errstate(invalid="ignore"):
                of_parameters = convergence.rhat(x_of), convergence.ess(x_of)
        rhat, ess = 1.0, math.inf
        if drawn:
            more = np.concatenate([_entries(k, v) for k, v in drawn.items()], axis=2)
            rhat, ess = float(convergence.rhat(more).max()), float(convergence.ess(more).min())
        flat = {k: v.reshape(-1, *v.shape[2:]) for k, v in drawn.items()}
        return ShardPosterior(
            draws=draws.reshape(-1, *draws.shape[2:]),
            n_persons=int(state["n"]),
            rhat=np.where(free, convergence.rhat(x), 1.0),
            ess=np.where(free, convergence.ess(x), float(draws.shape[0] * draws.shape[1])),
            acceptance=acceptance, spacing=spacing, correlation=flat.pop("correlation", None),
            other_rhat=rhat, other_ess=ess,
            learned=self.plan.prior.named(flat["prior_mean"], flat["prior_covariance"])
            if isinstance(self.plan.prior, Hierarchy) and flat else {},
            needed=needed, of_parameters=of_parameters,
            ranked=Ranked.of(x, convergence.rhat(x), free) if self.name == "grid" else None,
        )  # fmt: skip

    def _spacings(self, state: dict[str, Any], mean: Floats) -> tuple[float, float]:
        """Spacing of a chain's grid, and that which items at the means (P, items) need."""
        if isinstance(self.plan, model_chain.Plan):
            nodes = state["nodes"]
            return float(nodes[1] - nodes[0]), model_chain.needed_spacing(self.plan.shapes, mean)
        return Grid(int(state["n_nodes"])).spacing, grid_for(
            self.plan.slopes(mean[0]), mean[1]
        ).spacing


def _joined(chain: Chain, name: str) -> Floats:
    return np.concatenate([o[name] for o in chain.outputs])


def _entries(name: str, x: Floats) -> Floats:
    """Entries of draws (chain, draw, ...) of means, or of matrices, that tell all others."""
    if name != "prior_mean":
        x = x[..., *np.tril_indices(x.shape[-1], -1 if name == "correlation" else 0)]
    return x.reshape(*x.shape[:2], -1)


def _common(responses: Responses, o: Options, per_draw: int, width: int) -> dict[str, Any]:
    n, m = o.n_persons, responses.n_items
    held = 8.0 * width * m * o.n_draws * o.n_shards * o.n_chains
    sweep = _COST_SWEEP + n / o.n_shards * (_COST_PERSON + _COST_CELL * m) + _COST_ITEM * m
    thin = per_draw * max(1, math.ceil(held / _DRIVER_BYTES))
    if o.n_draws * per_draw // thin < LEAST_DRAWS:
        raise InputError(
            f"{o.n_draws} draws of {m} items from {o.n_shards * o.n_chains} chains: fewer than "
            f"{LEAST_DRAWS} of each chain fit into the driver's {_DRIVER_BYTES >> 20} MB; use "
            f"fewer shards or chains"
        )
    return {
        "fingerprint": responses.fingerprint, "seed": o.seed, "n_shards": o.n_shards,
        "n_warmup": o.n_warmup * per_draw, "n_draws": o.n_draws * per_draw, "thin": thin,
        "prior": o.prior, "n_persons": n, "sweeps": max(20, int(_SEGMENT_SECONDS / sweep)),
        "powering": o.powering, "towards": o.towards,
    }  # fmt: skip


def grid(engine: Engine, responses: Responses, o: Options, a: Floats, d: Floats) -> Sampler:
    """Return the grid sampler, for one ability, from start values (items,).

    ``responses`` are the engine's, their fingerprint known.
    """
    if isinstance(o.prior, Hierarchy) and o.holds:
        x = np.stack([a if o.towards else np.log(a), d])
        held, x = empirical_bayes.covariance(engine, o.prior, x)
        a, d, o = o.prior.slopes(x), x[1], replace(o, prior=o.prior.holding(held))
    per_draw = min(_MOST_PER_DRAW, math.ceil(_LONG_TEST / responses.n_items))
    plan = grid_chain.Plan(**_common(responses, o, per_draw, 2))
    space = Space(signed=mask(d.size)) if o.towards else Space()
    return Sampler("grid", plan, a[:, None], d, space, o.free, o.signs)


def of_models(
    engine: Engine, responses: Responses, o: Options, shapes: Shapes, y: Floats
) -> Sampler:
    """Return the grid sampler of items of any models, from coordinates (P, items)."""
    if isinstance(o.prior, Hierarchy) and o.holds:
        posterior = model_posterior.Posterior(engine, o.prior, shapes)
        held, y = model_posterior.covariance(posterior, y)
        o = replace(o, prior=o.prior.holding(held))
    per_draw = min(_MOST_PER_DRAW, math.ceil(_LONG_TEST / responses.n_items))
    plan = model_chain.Plan(**_common(responses, o, per_draw, len(y)), shapes=shapes)
    return Sampler("grid", plan, y, y[1], space_of(shapes), o.free, o.signs)


def polya_gamma(responses: Responses, o: Options, a: Floats, d: Floats) -> Sampler:
    """Return the Polya-Gamma sampler, from start values of loadings (items, dims)."""
    free, positive = o.free, o.signs
    per_draw = min(_MOST_PER_DRAW, math.ceil(_LONG_TEST * o.n_dims / responses.n_items))
    plan = polya_gamma_chain.Plan(
        **_common(responses, o, per_draw, o.n_dims + 1),
        n_dims=o.n_dims,
        free=polya_gamma_chain.pack(free),
        positive=polya_gamma_chain.pack(positive),
        correlated=o.correlated,
    )
    intercept = np.ones((1, d.size), dtype=bool)
    signed = np.concatenate([(free & ~positive).T, ~intercept])
    space = Space(
        free=None if free.all() else np.concatenate([free.T, intercept]),
        signed=signed if signed.any() else None,
    )
    return Sampler("polya-gamma", plan, a, d, space, free, positive)


def choose(sampler: str | None, n_dims: int) -> str:
    """Return the name of the sampler, by default the fastest for so many abilities."""
    if sampler is None:
        return "grid" if n_dims == 1 else "polya-gamma"
    one_of("sampler", sampler, SAMPLERS)
    if sampler == "grid" and n_dims > 1:
        raise InputError(
            f"sampler='grid' is for one dimension, not n_dims={n_dims}; use sampler='polya-gamma'"
        )
    return sampler


# --- running them ---------------------------------------------------------------------------------


def run(
    engine: Engine, sampled: Sampler, n_chains: int, checkpoint: str | Path | None
) -> list[ShardPosterior]:
    """Run all chains; posterior of each shard."""
    plan = sampled.plan
    start = sha256(sampled.a, sampled.d)
    identity = {"method": sampled.name, "chains": n_chains, "start": start, **plan.identity}
    saved = Checkpoint(checkpoint, identity)
    chains = sampled.chains(n_chains)
    every = [c for of_shard in chains for c in of_shard]
    with _shard_files(engine, plan, checkpoint) as refs:
        run_chains(engine, every, sampled.segment, plan.total, saved, refs)
    shards = []
    for of_shard in chains:
        shards.append(sampled.posterior(of_shard))
        for chain in of_shard:  # what is stacked now need not be held twice
            chain.outputs.clear()
    return shards


@contextmanager
def _shard_files(
    engine: Engine, plan: grid_chain.Plan, checkpoint: str | Path | None
) -> Iterator[Sequence[ShardFile] | None]:
    """Where shards are many, a copy of the responses by shard, which is removed in the end."""
    if plan.n_shards <= _MOST_READS:
        yield None
        return
    name = f"shards-{sha256(plan.fingerprint.encode())[:16]}-{plan.seed}-{plan.n_shards}"
    with tempfile.TemporaryDirectory() as temporary:
        at = Path(temporary) if checkpoint is None else local_path(checkpoint, "a checkpoint")
        folder = at.absolute() / name
        yield write_copy(engine, plan.seed, plan.n_shards, folder)
        shutil.rmtree(folder, ignore_errors=True)


def align(shards: list[ShardPosterior], sampled: Sampler) -> Floats:
    """Bring the shards' abilities into one order and direction, in place; rotations left over."""
    means = [sampled.space.parameters(s.draws).mean(axis=0)[:-1].T for s in shards]
    order, sign, rotation = loadings.align(
        means, sampled.free, sampled.positive, [s.n_persons for s in shards]
    )
    for k, s in enumerate(shards):
        correlation = s.correlation
        if correlation is not None:
            correlation = loadings.move_correlation(correlation, order[k], sign[k])
        draws, rows = loadings.move(s.draws, order[k], sign[k]), [*order[k], len(s.rhat) - 1]
        shards[k] = replace(
            s, draws=draws, rhat=s.rhat[rows], ess=s.ess[rows], correlation=correlation
        )
    return rotation
