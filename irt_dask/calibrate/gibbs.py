"""Bayesian calibration of the 2PL: Gibbs chains on shards of persons, combined by LS-WASP.

The chains are in :mod:`irt_dask.calibrate.gibbs_chain`, their combination in
:mod:`irt_dask.calibrate.wasp`.
"""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.calibrate import refine, wasp
from irt_dask.calibrate.common import response_counts, start_values
from irt_dask.calibrate.gibbs_chain import Plan, first_state, segment
from irt_dask.engine import (
    Chain,
    Checkpoint,
    Engine,
    ProgressOption,
    as_responses,
    dataset,
    item_parameters,
    refuse_weights,
    run_chains,
)
from irt_dask.errors import ConvergenceWarning, InputError
from irt_dask.kernels import diagnostics
from irt_dask.models import Grid, ItemPrior, check_model, grid_for
from irt_dask.store.responses import sha256

Floats = NDArray[np.float64]

#: What a segment should take, seconds, and rough costs that only decide where chains are cut.
_SEGMENT_SECONDS = 5.0
_COST_PERSON, _COST_CELL, _COST_ITEM = 4e-7, 2e-8, 1.5e-5
#: A test of fewer items than this says less about each person, and its chain mixes more slowly:
#: several sweeps are made for each draw, at most so many.
_LONG_TEST, _MOST_PER_DRAW = 40, 8
#: Draws of all shards that the driver holds, bytes; beyond, chains are thinned.
_DRIVER_BYTES = 1 << 29
_RHAT_LIMIT = 1.05
#: A posterior that piles up at a = 0 falls like an exponential, whose mean is its SD; the prior's
#: mean is 1.6 times its SD.
_FLAT = 1.2
#: Draws scatter about the items a grid was made for: warn only where it is this much too coarse.
_COARSE = 1.5


def fit_bayes(
    responses: Any,
    *,
    model: str = "2pl",
    n_shards: int = 1,
    n_draws: int = 2000,
    n_warmup: int = 500,
    n_chains: int = 1,
    seed: int = 0,
    prior: ItemPrior | None = None,
    sampler: str = "grid",
    powering: str = "shrink",
    location: str | None = None,
    start: xr.Dataset | None = None,
    client: Any = None,
    progress: ProgressOption = None,
    checkpoint: str | Path | None = None,
) -> xr.Dataset:
    """Posterior of the item parameters of the 2PL by divide and conquer (LS-WASP).

    Persons are dealt at random to ``n_shards`` shards; a Gibbs chain runs on each, next to each
    other on the workers; the driver combines the shards' posteriors into their Wasserstein
    barycenter.  With one shard the result is the ordinary posterior.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    model : "2pl"
    n_shards, n_chains : int
        Shards, and chains for each.
    n_draws, n_warmup : int
        Draws of each chain that are kept (fewer where the driver's memory asks for it), and draws
        before them.  A draw is one sweep of a test of 40 items or more, ``ceil(40 / items)`` sweeps
        of a shorter one, at most 8, because short tests mix slowly (attrs["thin"] says how many).
    prior : ItemPrior
        Default: discrimination N(1, 1) truncated to positive, intercept N(0, 2^2).  Ability is
        N(0, 1), which fixes the scale.  Each shard's prior is tempered to prior^(n_k / n).
    sampler : "grid"
    powering : "shrink" | "published" | "replicate"
        "shrink": each shard is sampled at its own size and its deviations are shrunk by
        sqrt(n_k / n).  "published": its item conditionals are raised to the power n / n_k, those of
        abilities are not, as in the paper: the spread comes out too wide.  "replicate": every
        response counts n / n_k times for the items, with abilities of its own for each copy.
    location : "refined" | "precision" | "average"
        Where the combined posterior lies.  "refined" (the default): its mode is found by Newton
        steps on the full data, one pass each.  "precision" and "average": the shards' means
        weighted by their precisions or their persons, without another pass, and with their bias.
        With one shard nothing is moved.
    start : Dataset, optional
        Start values from another fit.
    client, progress, checkpoint
        Dask client (default: the current one, else threads); progress bar; folder for checkpoints.

    Returns
    -------
    Dataset over items
        Posterior means ``item_discrimination``, ``item_difficulty``, ``item_intercept`` with
        ``_sd``; ``_rhat`` (largest over shards) and ``_ess`` (sum over shards); combined draws
        ``item_discrimination_draw``, ``item_intercept_draw``; ``item_covariance`` of (log a, d)
        where draws suffice for it; per-shard diagnostics.  attrs: ``n_flat_items`` counts slopes
        whose posterior piles up at 0, which is where a > 0 leaves an item that able persons get
        wrong more often; ``objective`` is the log posterior of the means on the full data;
        ``n_location_steps`` and ``first_step``, the size of the first one in posterior SDs, say how
        far the shards' combination was from the posterior of all persons.

    Raises
    ------
    InputError, ChainError, EstimationError

    Warns
    -----
    ConvergenceWarning, ApproximationWarning

    Notes
    -----
    Passes over the data: ``n_shards x n_chains`` reads of the store if workers can keep their
    shards in memory (one per segment otherwise), one for start values, one for the objective, and
    with several shards one for each step of the refined location (2 to 4, at most 11 and halvings).
    A worker holds its shard, persons / n_shards x items bytes; the driver the draws of all shards,
    at most 512 MB (thinned beyond), and expected counts of 16 bytes x items x ability nodes.
    A chain takes one core: shards and chains run side by side, so few persons with many items are
    best given several chains.
    Source: LS-WASP supplement, sections S1 and S5; the powering and the location published there
    are biased, what is used instead is derived in ``docs/methods.md``.
    """
    responses = as_responses(responses)
    check_model(model, ("2pl",))
    _check_options(n_shards, n_draws, n_warmup, n_chains, responses.n_persons)
    if sampler != "grid":
        raise InputError(f"sampler={sampler!r} is not available; use 'grid'")
    if powering not in wasp.POWERINGS:
        raise InputError(
            f"powering={powering!r} is not available; choose one of {', '.join(wasp.POWERINGS)}"
        )
    location = wasp.location_for(location, n_dims=1)
    refuse_weights(responses, "fit_bayes")
    plan = _plan_of(
        responses, seed, n_shards, n_warmup, n_draws, n_chains, prior or ItemPrior(), powering
    )
    with Engine(responses, client=client, progress=progress, stage="Gibbs") as engine:
        right, seen = response_counts(engine)
        a, d, _ = start_values(responses.item_id, right, seen, None)
        if start is not None:
            a, d = item_parameters(start, responses.item_id, what="start")
        names = [(s, c) for s in range(n_shards) for c in range(n_chains)]
        chains = [
            Chain(f"shard-{s:04d}-chain-{c}", first_state(s, c, a, d, plan)) for s, c in names
        ]
        identity = {"method": "gibbs", "chains": n_chains, "start": sha256(a, d), **asdict(plan)}
        run_chains(
            engine, chains, functools.partial(segment, plan), plan.total,
            Checkpoint(checkpoint, identity),
        )  # fmt: skip
        shards = [
            _summarise([chains[k] for k, (s, _) in enumerate(names) if s == shard], plan)
            for shard in range(n_shards)
        ]
        log_posterior = refine.Posterior(engine, plan.prior)
        combined = wasp.combine(
            shards,
            n_draws,
            powering=powering,
            location=location,
            locate=functools.partial(refine.refine, log_posterior),
        )
        objective, _ = log_posterior(combined.mean, log_posterior.nodes(combined.mean))
    steps = combined.refined
    converged = _warn(shards) and (steps is None or steps.converged)
    return dataset(
        {
            **combined.variables(),
            **_diagnostics(shards),
            "item_n_responses": seen,
            "item_n_right": right,
        },
        item_id=responses.item_id,
        attrs={
            "method": "LS-WASP" if n_shards > 1 else "Gibbs",
            "model": model,
            "seed": seed,
            "converged": converged,
            "n_iterations": plan.total,
            "objective": objective,
            "identification": "ability N(0, 1); a > 0",
            "n_persons": responses.n_persons,
            "n_flat_items": combined.n_flat(_FLAT),
            "n_shards": n_shards,
            "n_chains": n_chains,
            "thin": plan.thin,
            "powering": powering,
            "location": location,
            "n_location_steps": None if steps is None else steps.n_steps,
            "first_step": None if steps is None else steps.first_step,
            "covariance": combined.structure,
            "prior_discrimination": list(plan.prior.discrimination),
            "prior_intercept": list(plan.prior.intercept),
        },
    )


def _check_options(
    n_shards: int, n_draws: int, n_warmup: int, n_chains: int, n_persons: int
) -> None:
    for name, value, least in (
        ("n_shards", n_shards, 1),
        ("n_draws", n_draws, 100),
        ("n_warmup", n_warmup, 50),
        ("n_chains", n_chains, 1),
    ):
        if value != int(value) or value < least:
            raise InputError(f"{name}={value!r} must be a whole number of at least {least}")
    if n_shards > n_persons:
        raise InputError(f"n_shards={n_shards} exceeds the {n_persons} persons; use fewer shards")


def _plan_of(
    responses: Any,
    seed: int,
    n_shards: int,
    n_warmup: int,
    n_draws: int,
    n_chains: int,
    prior: ItemPrior,
    powering: str = "shrink",
) -> Plan:
    n, m = responses.n_persons, responses.n_items
    # What the chain cannot do is refused here, not ignored.
    more: dict[str, Any] = {}
    if "powering" in {f.name for f in fields(Plan)}:
        more["powering"] = powering
    elif powering != "shrink":
        raise InputError(f"powering={powering!r} is not available; use 'shrink'")
    held = 16.0 * m * n_draws * n_shards * n_chains
    sweep = n / n_shards * (_COST_PERSON + _COST_CELL * m) + _COST_ITEM * m
    per_draw = min(_MOST_PER_DRAW, math.ceil(_LONG_TEST / m))
    return Plan(
        fingerprint=responses.fingerprint,
        seed=seed,
        n_shards=n_shards,
        n_warmup=n_warmup * per_draw,
        n_draws=n_draws * per_draw,
        thin=per_draw * max(1, math.ceil(held / _DRIVER_BYTES)),
        prior=prior,
        n_persons=n,
        sweeps=max(20, int(_SEGMENT_SECONDS / sweep)),
        **more,
    )


def _summarise(chains: list[Chain], plan: Plan) -> wasp.ShardPosterior:
    """Draws and diagnostics of one shard's chains."""
    draws = np.stack([np.concatenate([o["draws"] for o in c.outputs]) for c in chains])
    state = chains[0].state
    acceptance = np.mean([c.state["accepted"].mean() for c in chains]) / (
        plan.total - plan.n_warmup
    )
    return wasp.ShardPosterior(
        draws=draws.reshape(-1, *draws.shape[2:]),
        n_persons=int(state["n"]),
        rhat=diagnostics.rhat(draws),
        ess=diagnostics.ess(draws),
        acceptance=float(acceptance),
        spacing=Grid(int(state["n_nodes"])).spacing,
    )


def _diagnostics(shards: list[wasp.ShardPosterior]) -> dict[str, Any]:
    rhat = np.max([s.rhat for s in shards], axis=0)
    ess = np.sum([s.ess for s in shards], axis=0)
    return {
        "item_discrimination_rhat": rhat[0],
        "item_intercept_rhat": rhat[1],
        "item_discrimination_ess": ess[0],
        "item_intercept_ess": ess[1],
        "shard_n_persons": np.array([s.n_persons for s in shards]),
        "shard_acceptance": np.array([s.acceptance for s in shards]),
        "shard_grid_spacing": np.array([s.spacing for s in shards]),
        "shard_max_rhat": np.array([s.rhat.max() for s in shards]),
        "shard_min_ess": np.array([s.ess.min() for s in shards]),
        "shard_item_discrimination": np.array([np.exp(s.draws[:, 0]).mean(axis=0) for s in shards]),
        "shard_item_intercept": np.array([s.draws[:, 1].mean(axis=0) for s in shards]),
    }


def _warn(shards: list[wasp.ShardPosterior]) -> bool:
    """Warn of chains that did not mix or grids too coarse; return whether all is well."""
    worst = float(np.max([s.rhat.max() for s in shards]))
    if not worst < _RHAT_LIMIT:
        k = int(np.argmax([s.rhat.max() for s in shards]))
        warnings.warn(
            f"the chains have not converged: R-hat {worst:.3f} in shard {k} (limit {_RHAT_LIMIT}); "
            f"raise n_warmup and n_draws",
            ConvergenceWarning,
            stacklevel=3,
        )
    coarse = [
        k
        for k, s in enumerate(shards)
        if s.spacing
        > _COARSE * grid_for(np.exp(s.draws[:, 0]).mean(0), s.draws[:, 1].mean(0)).spacing
    ]
    if coarse:
        warnings.warn(
            f"the ability grid of shard(s) {coarse[:10]} is coarser than its posterior needs: the "
            f"slopes grew after warm-up; raise n_warmup",
            ConvergenceWarning,
            stacklevel=3,
        )
    return worst < _RHAT_LIMIT and not coarse
