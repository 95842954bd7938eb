"""Bayesian calibration of the 2PL: Gibbs chains on shards of persons, combined by LS-WASP.

The chains are in :mod:`irt_dask.calibrate.bayes.grid_chain`, their combination in
:mod:`irt_dask.calibrate.bayes.barycenter`.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.calibrate.bayes import barycenter, full_data_mode, item_priors, samplers
from irt_dask.calibrate.bayes import loadings as masks
from irt_dask.calibrate.bayes.coordinates import Space
from irt_dask.calibrate.bayes.hierarchy import COORDINATES, Hierarchy
from irt_dask.calibrate.shared.start_values import response_counts, start_values
from irt_dask.engine import (
    Engine,
    ProgressOption,
    as_responses,
    dataset,
    item_parameters,
    refuse_weights,
)
from irt_dask.engine.identity import identified
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import ApproximationWarning, ConvergenceWarning, InputError
from irt_dask.items import checks
from irt_dask.models import ItemPrior, check_model, grid_for
from irt_dask.store import Responses

Floats = NDArray[np.float64]

#: Responses of an item in a shard; with 30 its combined SD was seen 1.4 times too wide.
_RARE = 100
#: Degrees between the loadings of shards.
_LARGE_ROTATION = 20.0
_RHAT_LIMIT = 1.05
#: Shards run with the items' covariance held.  The draws' weights, when it is not, leave at least
#: this effective share of them; else shards run again about the covariance found, so often at most.
_EFFICIENT, _MOST_RUNS = 0.5, 3
#: Draws scatter about the items a grid was made for: warn only where it is this much too coarse.
_COARSE = 1.5


def fit_bayes(
    responses: Any,
    *,
    model: str = "2pl",
    n_dims: int = 1,
    n_shards: int = 1,
    n_draws: int = 2000,
    n_warmup: int = 500,
    n_chains: int = 1,
    seed: int = 0,
    prior: str | ItemPrior | None = None,
    sampler: str | None = None,
    powering: str = "shrink",
    location: str | None = None,
    loadings: Any = None,
    positive: str = "all",
    correlated: bool = False,
    start: xr.Dataset | None = None,
    client: Any = None,
    progress: ProgressOption = None,
    checkpoint: str | Path | None = None,
) -> xr.Dataset:
    """Posterior of the items of the 2PL or M2PL by divide and conquer (LS-WASP).

    Persons are dealt at random to ``n_shards`` shards; a Gibbs chain runs on each, next to each
    other on the workers; the driver combines the shards' posteriors into their Wasserstein
    barycenter.  With one shard the result is the ordinary posterior.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    model : "2pl"
    n_dims : int
        Abilities.  With several (M2PL) P(right) = sigma(a'theta + d), a the item's loadings.
    n_shards, n_chains : int
        Shards, and chains for each.
    n_draws, n_warmup : int
        Draws of each chain that are kept (fewer where the driver's memory asks for it), and draws
        before them.  A draw is one sweep of a test of 40 items or more for each ability, and
        ``ceil(40 n_dims / items)`` sweeps of a shorter one, at most 8, because short tests mix
        slowly (attrs["thin"] says how many).
    prior : "hierarchical" | ItemPrior
        "hierarchical" (the default of the grid sampler): (log a, d) of the items is normal, with a
        mean and a covariance that are learned from the items, so that scale and place rest on the
        persons (ability is N(0, 1)) however many the items are.  ``ItemPrior``: independent items,
        by default a ~ N(1, 1) truncated to positive, d ~ N(0, 2^2); the default where the former is
        not available: the Polya-Gamma sampler, so several abilities, and the published powering
        (attrs["prior"] says which it was).  Each shard's prior is tempered to prior^(n_k / n).
    sampler : "grid" | "polya-gamma"
        "grid" (the default, for one ability): abilities on a grid, items from counts on it.
        "polya-gamma" (the default for several): the published one, a draw for each response; its
        chains are one piece, and start again if their worker dies.
    powering : "shrink" | "published" | "replicate"
        "shrink": each shard is sampled at its own size and its deviations are shrunk by
        sqrt(n_k / n).  "published": its item conditionals are raised to the power n / n_k, those of
        abilities are not, as in the paper: the spread comes out too wide.  "replicate": every
        person counts n / n_k times, with abilities drawn separately, at the cost of all persons in
        each shard.
    location : "refined" | "precision" | "average"
        Where the combined posterior lies.  "refined" (the default): its mode is found by Newton
        steps on the full data, one pass each.  "precision" and "average": the shards' means
        weighted by their precisions or their persons, without another pass, and with their bias.
        With one shard nothing is moved.  More than two abilities: "precision" is the default.
    loadings : bool array (items, n_dims), DataFrame or DataArray by item id
        Which loadings are free, the others are 0; enough zeros to forbid rotations.  Default: item
        j < n_dims loads on abilities 0 .. j (choose the order of items so that these load highly).
    positive : "all" | "anchors"
        Whether all free loadings are positive, or one of each ability, the others N(0, 1) before
        the data (``ItemPrior.loading``).
    correlated : bool
        Whether abilities are correlated, with a uniform prior over correlation matrices (to the
        power n_k / n it is itself), rather than independent.  Needs ``loadings`` with two items for
        each ability that load on it alone.
    start : Dataset, optional
        Start values from another fit.
    client, progress, checkpoint
        Dask client (default: the current one, else threads); progress bar; folder for checkpoints.

    Returns
    -------
    Dataset over items
        With several abilities ``item_loading`` (items, latent_dims) takes the place of
        discrimination and difficulty, and ``shard_rotation`` joins, the degrees by which a shard's
        loadings could be turned towards the largest shard's; if they are correlated, also
        ``ability_correlation`` (latent_dims, latent_dims_) with ``_sd`` and ``_draw``, whose draw i
        belongs to draw i of the items, and ``shard_ability_correlation``, the shards' means.
        Posterior means ``item_discrimination``, ``item_difficulty``, ``item_intercept`` with
        ``_sd``; ``_rhat`` (largest over shards) and ``_ess`` (sum over shards); combined draws
        ``item_discrimination_draw``, ``item_intercept_draw``; ``item_covariance`` of (log a, d)
        where draws suffice for it; with a learned prior ``item_prior_mean`` and
        ``item_prior_covariance`` of (log a, d), with ``_sd`` and ``_draw``, draw i of which belongs
        to draw i of the items; ``item_flag``; per-shard diagnostics.  attrs: ``n_flat_items``
        counts slopes that are flagged as flat; ``scale_se``, ``place_se`` are what n abilities
        N(0, 1), of persons with a response, leave open of a common log a and of a common shift of
        ability, ``scale_shift`` and ``place_shift`` by how much the items' priors have moved log a,
        and ability with b; ``objective`` is the log posterior of the means on the full data (with
        one or two abilities; a learned mean integrated out, the covariance at its posterior mean);
        ``n_location_steps`` and
        ``first_step``, the size of the first one in posterior SDs, say how far the shards'
        combination was from the posterior of all persons.

    Raises
    ------
    InputError, ChainError, EstimationError

    Warns
    -----
    ConvergenceWarning, ApproximationWarning, ItemWarning

    Notes
    -----
    Passes over the data: ``n_shards x n_chains`` reads of the store if workers can keep their
    shards in memory (one per segment otherwise; above 100 shards one, for a copy by shard, which
    takes as much disk as the responses do), one for start values, one for the checksum of arrays,
    one or two for flags, one for the objective, and with several shards one for each step of the
    refined location (2 to 4, at most 11 and halvings) and 10 to 30 for the covariance of a learned
    prior, which shards hold.  Where correcting for that leaves less than half of the draws
    (attrs["prior_efficiency"]) shards run again, attrs["n_runs"] times in all, at most 3.
    A worker holds its shard, at most 5 bytes a response; the driver the draws of all shards, at
    most 512 MB (thinned beyond) and some copies of them while they are combined, and expected
    counts of 16 bytes x items x ability nodes.  Two abilities: every process holds a table of 16
    bytes x items x nodes^2 (100 items: 65 MB, 500 items: 1.6 GB); the Polya-Gamma sampler with
    "replicate" holds 5 bytes for each response of all persons in every shard.
    A chain takes one core: shards and chains run side by side, so few persons with many items are
    best given several chains.
    Source: LS-WASP supplement, sections S1 and S5; the powering and the location published there
    are biased, what is used instead is derived in ``docs/methods.md``.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(500, 10, seed=1)
    >>> posterior = irt.fit_bayes(responses, n_draws=200, n_warmup=100)
    >>> dict(posterior["item_discrimination_draw"].sizes)
    {'draw': 200, 'items': 10}
    >>> posterior["item_discrimination_rhat"].max().round(1).item()
    1.0
    """
    responses = as_responses(responses, "fit_bayes")
    check_model(model, ("2pl",))
    _check_options(n_dims, n_shards, n_draws, n_warmup, n_chains, responses.n_persons)
    name = samplers.choose(sampler, n_dims)
    if powering not in barycenter.POWERINGS:
        raise InputError(
            f"powering={powering!r} is not available; choose one of "
            f"{', '.join(barycenter.POWERINGS)}"
        )
    location = barycenter.location_for(location, n_dims)
    free, signs = _masks(responses, n_dims, loadings, positive, correlated)
    if start is not None and n_dims > 1:
        raise InputError(f"start= gives values of one ability; leave it out with n_dims={n_dims}")
    refuse_weights(responses, "fit_bayes")
    options = samplers.Options(
        seed, n_shards, n_draws, n_warmup, n_chains,
        item_priors.choose(prior, name, powering), powering, n_dims, correlated and n_dims > 1,
    )  # fmt: skip
    with Engine(responses, client=client, progress=progress, stage="Gibbs") as engine:
        responses = identified(engine)
        right, seen, n = response_counts(engine)
        item_priors.refuse_small_shards(options.prior, n, responses.n_items, n_shards)
        if n_dims > 1:
            sampled = samplers.polya_gamma(
                responses, options, free, signs, *masks.start(right, seen, free, signs)
            )
        else:
            a, d, _ = start_values(responses.item_id, right, seen, None)
            if start is not None:
                a, d = item_parameters(start, responses.item_id, what="start")
            if name == "grid":
                sampled = samplers.grid(engine, responses, options, a, d)
            else:
                sampled = samplers.polya_gamma(responses, options, free, signs, a[:, None], d)
        for attempt in range(_MOST_RUNS):
            shards = samplers.run(engine, sampled, n_chains, checkpoint)
            rotation = samplers.align(shards, sampled) if n_dims > 1 else None
            space, plan = sampled.space, sampled.plan
            log_posterior = full_data_mode.Posterior(engine, plan.prior, space.free, space.signed)
            combined = barycenter.combine(
                shards,
                n_draws,
                powering=powering,
                location=location,
                locate=functools.partial(full_data_mode.refine, log_posterior),
                learn=item_priors.learner(plan.prior, seed, attempt),
                space=space,
            )
            enough = combined.learned is None or combined.learned.efficiency >= _EFFICIENT
            if combined.learned is None or enough or attempt == _MOST_RUNS - 1:
                break
            sampled = sampled.holding(combined.learned.expected, attempt + 1)
        objective = None
        if n_dims <= barycenter.MOST_REFINED:
            at = combined.mean
            if options.correlated:
                rho = combined.variables()["ability_correlation"][0, 1]
                at = full_data_mode.with_correlation(at, rho)
            if isinstance(plan.prior, Hierarchy):
                held = plan.prior.holding(combined.variables()["item_prior_covariance"])
                log_posterior = replace(log_posterior, prior=held)
            objective, _ = log_posterior(at, log_posterior.nodes(at))
        counts = {"item_n_responses": seen, "item_n_right": right}
        flag = checks.of_fit(engine, {**combined.variables(), **counts})
    checks.warn(flag, responses.item_id)
    described = item_priors.describe(plan.prior, signed=positive == "anchors")
    if n_dims == 1:
        described |= item_priors.rest(plan.prior, combined.variables(), n)
        item_priors.warn(described)
    item_priors.warn_inefficient(combined.learned, _EFFICIENT)
    steps = combined.refined
    _warn_rare(seen, responses.item_id, shards)
    converged = _warn(shards, name, rotation) and (steps is None or steps.converged)
    return dataset(
        {
            **combined.variables(),
            **_diagnostics(shards, space),
            **({} if rotation is None else {"shard_rotation": rotation}),
            **counts,
            "item_flag": flag,
        },
        item_id=responses.item_id,
        coords=dict.fromkeys(("coordinate", "coordinate_"), COORDINATES)
        if isinstance(plan.prior, Hierarchy)
        else None,
        attrs={
            "method": "LS-WASP" if n_shards > 1 else "Gibbs",
            "model": model if n_dims == 1 else "m2pl",
            "seed": seed,
            "converged": converged,
            "n_iterations": plan.total,
            "objective": objective,
            "identification": _identification(n_dims, positive, options.correlated),
            "n_persons": responses.n_persons,
            "n_dims": n_dims,
            "n_flat_items": int(checks.has(flag, {"flat"}).sum()) if n_dims == 1 else None,
            "n_shards": n_shards,
            "n_chains": n_chains,
            "thin": plan.thin,
            "sampler": name,
            "powering": powering,
            "location": location,
            "n_location_steps": None if steps is None else steps.n_steps,
            "first_step": None if steps is None else steps.first_step,
            "covariance": combined.structure,
            "n_runs": None if combined.learned is None else attempt + 1,
            "prior_efficiency": None if combined.learned is None else combined.learned.efficiency,
            **described,
        },
    )


def _identification(n_dims: int, positive: str, correlated: bool) -> str:
    if n_dims == 1:
        return "ability N(0, 1); a > 0"
    which = (
        "free loadings positive" if positive == "all" else "one loading of each ability positive"
    )
    kind = "correlated, SD 1" if correlated else "independent N(0, 1)"
    return f"abilities {kind}; loadings fixed at 0; {which}"


def _check_options(
    n_dims: int, n_shards: int, n_draws: int, n_warmup: int, n_chains: int, n_persons: int
) -> None:
    for name, value, least in (
        ("n_dims", n_dims, 1),
        ("n_shards", n_shards, 1),
        ("n_draws", n_draws, samplers.LEAST_DRAWS),
        ("n_warmup", n_warmup, 50),
        ("n_chains", n_chains, 1),
    ):
        whole_number(name, value, least)
    if n_shards > n_persons:
        raise InputError(f"n_shards={n_shards} exceeds the {n_persons} persons; use fewer shards")


def _masks(
    responses: Responses, n_dims: int, loadings: Any, positive: str, correlated: bool
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Free loadings, and positive ones; refuses what one ability cannot use."""
    if n_dims == 1:
        for name, given in (
            ("loadings", loadings is not None),
            ("positive", positive != "all"),
            ("correlated", bool(correlated)),
        ):
            if given:
                raise InputError(f"{name}= is for several abilities; n_dims is 1")
    free = masks.free_loadings(
        responses.n_items, n_dims, loadings, responses.item_id, correlated=correlated
    )
    return free, masks.positive_loadings(free, positive)


def _diagnostics(shards: list[barycenter.ShardPosterior], space: Space) -> dict[str, Any]:
    rhat = np.max([s.rhat for s in shards], axis=0)
    ess = np.sum([s.ess for s in shards], axis=0)
    free = space.mask(*rhat.shape)
    rhat, ess = np.where(free, rhat, np.nan), np.where(free, ess, np.nan)
    mean = np.array([space.parameters(s.draws).mean(axis=0) for s in shards])
    out = {
        "item_intercept_rhat": rhat[-1],
        "item_intercept_ess": ess[-1],
        "shard_n_persons": np.array([s.n_persons for s in shards]),
        "shard_max_rhat": np.array([s.worst_rhat for s in shards]),
        "shard_min_ess": np.array([s.least_ess for s in shards]),
        "shard_item_intercept": mean[:, -1],
    }
    if not np.isnan(shards[0].acceptance):
        out["shard_acceptance"] = np.array([s.acceptance for s in shards])
        out["shard_grid_spacing"] = np.array([s.spacing for s in shards])
    if shards[0].correlation is not None:
        means = [s.correlation.mean(axis=0) for s in shards if s.correlation is not None]
        out["shard_ability_correlation"] = np.array(means)
    if len(rhat) > 2:
        return out | {
            "item_loading_rhat": rhat[:-1].T,
            "item_loading_ess": ess[:-1].T,
            "shard_item_loading": mean[:, :-1].transpose(0, 2, 1),
        }
    return out | {
        "item_discrimination_rhat": rhat[0],
        "item_discrimination_ess": ess[0],
        "shard_item_discrimination": mean[:, 0],
    }


def _warn_rare(
    seen: NDArray[np.int64], item_id: tuple[str, ...], shards: list[barycenter.ShardPosterior]
) -> None:
    """Warn of items with so few responses in a shard that its posterior of them says little.

    Information adds up over shards, standard deviations of a barycenter are averaged: where some
    shards know nothing of an item, the average is too wide.
    """
    if len(shards) == 1:
        return
    share = min(s.n_persons for s in shards) / sum(s.n_persons for s in shards)
    rare = np.flatnonzero(seen * share < _RARE)
    if rare.size:
        some = ", ".join(item_id[j] for j in rare[np.argsort(seen[rare], kind="stable")][:5])
        warnings.warn(
            f"{rare.size} item(s) have fewer than {_RARE} responses in the smallest shard ({some}"
            f"{', ...' if rare.size > 5 else ''}): their standard deviations may be off by half; "
            f"use fewer shards",
            ApproximationWarning,
            stacklevel=3,
        )


def _warn(shards: list[barycenter.ShardPosterior], sampler: str, rotation: Floats | None) -> bool:
    """Warn of chains that did not mix or grids too coarse; return whether all is well."""
    rhat = [s.worst_rhat for s in shards]
    worst = float(np.max(rhat))
    if not worst < _RHAT_LIMIT:
        k = int(np.argmax(rhat))
        warnings.warn(
            f"the chains have not converged: R-hat {worst:.3f} in shard {k} (limit {_RHAT_LIMIT}); "
            f"raise n_warmup and n_draws",
            ConvergenceWarning,
            stacklevel=3,
        )
    if rotation is not None and not rotation.max() < _LARGE_ROTATION:
        warnings.warn(
            f"the loadings of shard {int(rotation.argmax())} are turned by {rotation.max():.0f} "
            f"degrees against the largest shard's (limit {_LARGE_ROTATION:g}): the data hardly say "
            f"how the abilities lie; let items that load highly be those with zeros (loadings=), "
            f"or use fewer shards",
            ApproximationWarning,
            stacklevel=3,
        )
    coarse = []
    if sampler == "grid":
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
