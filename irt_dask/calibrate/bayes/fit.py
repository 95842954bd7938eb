"""Bayesian calibration: Gibbs chains on shards of persons, combined by LS-WASP.

The chains are in :mod:`.grid_chain`, their combination in :mod:`.barycenter`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.calibrate.bayes import (
    asked,
    barycenter,
    full_data_mode,
    informed,
    item_priors,
    model_posterior,
    models,
    samplers,
    shards,
    signs,
    weighted,
)
from irt_dask.calibrate.bayes import loadings as masks
from irt_dask.calibrate.bayes.coordinates import Space
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.item_density import Shapes
from irt_dask.calibrate.bayes.model_space import ModelSpace
from irt_dask.calibrate.bayes.samplers import Options, Sampler
from irt_dask.calibrate.shared.start_values import ResponseCounts, response_counts, start_values
from irt_dask.curves.guessing import GUESSING
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset
from irt_dask.engine.identity import identified
from irt_dask.items import checks
from irt_dask.items.known_models import parameters
from irt_dask.store import Responses

#: Shards run with the items' covariance held.  The draws' weights, when it is not, leave at least
#: this effective share of them; else shards run again about the covariance found, so often at most.
_EFFICIENT, _MOST_RUNS = 0.5, 3


def fit_bayes(
    responses: Any,
    *,
    model: str | Mapping[str, str] = "2pl",
    n_dims: int = 1,
    n_shards: int = 1,
    n_draws: int = 2000,
    n_warmup: int = 500,
    n_chains: int = 1,
    seed: int = 0,
    prior: str | ItemPrior | None = None,
    guessing_prior: tuple[float, float] | None = GUESSING.prior,
    sampler: str | None = None,
    powering: str = "shrink",
    location: str | None = None,
    loadings: Any = None,
    positive: str = "all",
    correlated: bool = False,
    item_blocks: Any = None,
    item_covariates: Any = None,
    start: xr.Dataset | None = None,
    client: Any = None,
    progress: ProgressOption = None,
    checkpoint: str | Path | None = None,
) -> xr.Dataset:
    """Posterior of items by divide and conquer (LS-WASP).

    Persons are dealt at random to ``n_shards`` shards; a Gibbs chain runs on each, next to each
    other on the workers; the driver combines the shards' posteriors into their Wasserstein
    barycenter.  With one shard the result is the ordinary posterior.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
        Person weights, of one ability: rows of frequency weights are so many persons.  Sampling
        weights make a pseudo-posterior: about the mode of the weighted likelihood, with the spread
        that it has over samples (a sandwich), as the standard errors of :func:`fit_marginal`; with
        powering="shrink" and location="refined" alone, and items that share no parameters.
    model : str, or mapping of item to str
        "1pl" (one free slope) to "4pl"; of any number of categories "graded", "gpcm", "pcm" (one
        slope), "rating" (and common steps), and with positive="none" "nominal"; mixtures as in
        :func:`fit_marginal` ("3pl+gpcm", or one for each item), where the same items share the
        same.  Several abilities: "2pl".
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
        persons (ability is N(0, 1)) however many the items are; a slope that items share has
        log a ~ N(0, 1), their d a mean and a variance of their own.  ``ItemPrior``: independent
        items, by default a ~ N(1, 1) truncated to positive, d ~ N(0, 2^2), the default where the
        former is not available: nominal items, the Polya-Gamma sampler, so several abilities, and
        the published powering (attrs["prior"] says which).  Each shard's prior is tempered to
        prior^(n_k / n).
    guessing_prior : (alpha, beta) or None
        3PL, 4PL: Beta density of each guessing parameter, as in :func:`fit_marginal`; None: all
        values are as likely before the data.  (Steps: deviations of step intercepts from their mean
        are N(0, 2^2); graded, logarithms of their distances N(log(4 / (K - 1)), 1); nominal,
        deviations of the scores' steps from their mean also, N(0, 1).)
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
        With one shard nothing is moved, unless there are sampling weights.  More than two
        abilities: "precision" is the default.
    loadings : bool array (items, n_dims), DataFrame or DataArray by item id
        Which loadings are free, the others are 0; enough zeros to forbid rotations.  Default: item
        j < n_dims loads on abilities 0 .. j (choose the order of items so that these load highly).
    positive : "all" | "none" | "anchors"
        Whether all slopes, or free loadings, are positive.  "none", of one ability: any slope may
        be negative, as of items with a reversed key, or of votes; of ability and its mirror image
        chains keep to that along which the first principal component of all responses lies, turned
        to where the sum over items of its covariance with responses is positive (an ItemPrior whose
        slopes have a mean turns it to where that is likelier; with nominal items, of whose codes
        that says nothing, along all scores where a short search ends).  "anchors", of several: one
        loading of each is positive.  Slopes and loadings of any sign are N(0, 1) before the data
        (``ItemPrior.loading``), or normal as learned: "hierarchical" then is of (a, d).
    correlated : bool
        Whether abilities are correlated, with a uniform prior over correlation matrices (to the
        power n_k / n it is itself), rather than independent.  Needs ``loadings`` with two items for
        each ability that load on it alone.
    item_blocks : mapping of item to label, Series, or labels of all items, optional
        Hierarchical prior: blocks of items (benchmarks, domains, booklets), each with a mean of its
        own about that of all (SDs .5 of log a or a, and 2 of d) and, with 10 items or more, a
        covariance of its own; smaller blocks share one.
    item_covariates : DataFrame by item identifier, optional
        Hierarchical prior: what else is known of the items (features, embeddings), columns of
        numbers.  Means of (log a, d) are linear in them; coefficients of standardised columns are
        N(0, s^2 / number of columns), s = .5 of log a, or a, and 2 of d: a ridge.  Neither these
        nor blocks where items share a slope.
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
        to draw i of the items (with blocks ``item_block_mean`` and ``item_block_covariance``,
        ``item_prior_mean`` is then that of all blocks; ``item_covariate_effect``, for one unit of
        each covariate); ``item_flag``; per-shard diagnostics.  With ``positive="none"``
        ``item_negative_probability``, that the slope is negative, and (a, d) in place of (log a, d)
        everywhere; difficulties of items whose slope is within 3 SDs of 0 are NaN.  Asymptotes, and
        the steps of items with more than two categories, have means, ``_sd``, ``_rhat``, ``_ess``
        and draws too (``item_guessing``, ``item_upper_asymptote``, ``item_step_intercept``, nominal
        ``item_category_score``; also ``item_step_difficulty``, ``item_model``,
        ``item_n_categories``); their d is the mean of the step intercepts, and ``item_covariance``
        is of the 2PL alone.  attrs: ``n_flat_items`` counts slopes that are flagged as flat;
        ``scale_se``, ``place_se`` are what n abilities
        N(0, 1), of persons with a response, leave open of a common log a and a common shift of
        ability, ``scale_shift`` and ``place_shift`` by how much the items' priors have moved log a,
        and ability with b; ``objective`` is the log posterior of the means on the full data (with
        one or two abilities; a learned mean integrated out, the covariance at its posterior mean);
        ``n_location_steps`` and ``first_step``, the size of the first one in posterior SDs, say how
        far the shards' combination was from the posterior of all persons.  With weights also
        ``weight_kind``; of a sample ``mean_weight``, ``n_effective``, persons of equal weights that
        say as much, and ``spread``, "sandwich"; ``shard_n_persons`` then counts replicates.

    Raises
    ------
    InputError, ChainError, EstimationError

    Warns
    -----
    ConvergenceWarning, ApproximationWarning, ItemWarning, DataWarning
        The last one of categories that nobody has, of whose steps the prior alone speaks, and of
        weights by which persons count as fewer than 100 in effect.

    Notes
    -----
    Passes over the data: ``n_shards x n_chains`` reads of the store if workers can keep their
    shards in memory (one per segment otherwise; above 100 shards one, for a copy by shard, which
    takes as much disk as the responses do), one for start values (with ``positive="none"`` 5 to 20
    more of most data, 50 at most, and up to 60 where some items seem to fall with ability), one for
    the checksum of arrays, one or two for flags, one for the objective, and with several shards one
    for each step of the
    refined location (2 to 4, of items with asymptotes some 20, at most 31 and halvings), three for
    the spread of items with asymptotes, and 10 to 30 for the covariance of a learned
    prior, which shards hold (both with one shard too where weights are those of a sample, and two
    more for the spread; at most 6,000 item parameters then).  Where correcting for that leaves less
    than half of the draws
    (attrs["prior_efficiency"]) shards run again, attrs["n_runs"] times in all, at most 3.
    A worker holds its shard, at most 5 bytes a response (of models but the 2PL: 4 for each above
    the lowest category, and 4 more for each of persons whose set of items few share); the driver
    the draws of all shards, at most 512 MB (thinned beyond) and some copies of them while they are
    combined, and expected counts of 16 bytes x items x ability nodes.  Two abilities:
    every process holds a table of 16 bytes x items x nodes^2 (100 items: 65 MB, 500 items: 1.6 GB);
    the Polya-Gamma sampler with "replicate" holds 5 bytes for each response of all persons in every
    shard.
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
    responses = as_responses(responses, "fit_bayes", graded=n_dims == 1)
    asked.check(n_dims, n_shards, n_draws, n_warmup, n_chains, powering, responses.n_persons)
    signed = asked.signed(positive, n_dims, sampler)
    shapes = models.asked(
        model, responses.item_id, responses.n_categories, guessing_prior, n_dims, sampler,
        signed=signed,
    )  # fmt: skip
    weighted.refuse(responses, shapes, n_dims, sampler, powering, location)
    name = samplers.choose(sampler, n_dims)
    before = item_priors.choose(prior, name, powering, signed=signed, scored=shapes.scored)
    o = Options(
        seed, n_shards, n_draws, n_warmup, n_chains,
        item_priors.structured(before, shapes, responses.item_id, item_blocks, item_covariates),
        powering, n_dims, bool(correlated), name, barycenter.location_for(location, n_dims),
        *asked.loading_masks(responses, n_dims, loadings, positive, correlated, start), positive,
    )  # fmt: skip
    with Engine(responses, client=client, progress=progress, stage="Gibbs", graded=True) as engine:
        responses, counts = identified(engine), response_counts(engine)
        persons, o = weighted.persons(engine, o)
        item_priors.refuse_small_shards(o.prior, counts.n_persons, responses.n_items, n_shards)
        sampled = _started(engine, responses, o, shapes, counts, start)
        found = _found(engine, sampled, o, shapes, checkpoint)
        objective = _objective(found, o) if n_dims <= barycenter.MOST_REFINED else None
        data = models.of_items(engine, found.combined.data, shapes, counts)
    checks.warn(data["item_flag"], responses.item_id)
    models.warn_null_categories(shapes, responses.item_id, counts.of_each)
    about = _about(found, o, model, shapes, counts, persons) | models.about(shapes, data, n_dims)
    item_priors.warn(about, scored=shapes.scored)
    item_priors.warn_inefficient(found.combined.learned, _EFFICIENT)
    shards.warn_rare(counts.of_each, shapes.models.n_categories, responses.item_id, found.shards)
    mixed = shards.warn(found.shards, found.sampled.space, responses.item_id, found.rotation)
    data |= shards.diagnostics(found.shards, found.sampled.space, found.rotation, responses.item_id)
    about |= {"converged": mixed and found.combined.settled, "objective": objective}
    data = item_priors.described(o.prior, data)
    return dataset(data, item_id=responses.item_id, coords=item_priors.coords(o.prior), attrs=about)


# --- how it begins --------------------------------------------------------------------------------


def _started(
    engine: Engine, responses: Responses, o: Options, shapes: Shapes, counts: ResponseCounts,
    start: xr.Dataset | None,
) -> Sampler:  # fmt: skip
    """The sampler, made ready from start values."""
    if o.n_dims > 1:
        at = masks.start(counts.right, counts.seen, o.free, o.signs)
        return samplers.polya_gamma(responses, o, *at)
    if shapes.signed:
        y, towards = signs.pilot(engine, shapes, o.prior, counts, start)
        o = replace(o, towards=towards)
        if models.is_2pl(shapes):
            return samplers.grid(engine, responses, o, *y)
        return samplers.of_models(engine, responses, o, shapes, y)
    if not models.is_2pl(shapes):
        x = start_values(
            responses.item_id, shapes.models, counts.of_each, start, prior=shapes.betas
        )
        return samplers.of_models(engine, responses, o, shapes, models.inside(shapes, x))
    if start is not None:
        a, d = parameters(start, responses.item_id, what="start")
    else:
        a, d = start_values(responses.item_id, shapes.models, counts.of_each, None)
    if o.sampler == "grid":
        return samplers.grid(engine, responses, o, a, d)
    return samplers.polya_gamma(responses, o, a[:, None], d)


# --- what is found --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """Shards and their combination, after so many runs; angles left between their loadings."""

    sampled: Sampler
    shards: list[shards.ShardPosterior]
    rotation: Floats | None
    log_posterior: full_data_mode.Posterior | model_posterior.Posterior
    combined: barycenter.Combined
    n_runs: int


def _found(
    engine: Engine, sampled: Sampler, o: Options, shapes: Shapes, checkpoint: str | Path | None
) -> _Found:
    """Run the chains and combine shards; again if the covariance that they held was far off."""
    run = 0
    while True:
        parts = samplers.run(engine, sampled, o.n_chains, checkpoint)
        rotation = samplers.align(parts, sampled) if o.n_dims > 1 else None
        space, prior = sampled.space, sampled.plan.prior
        log_posterior = _log_posterior(engine, prior, space)
        combined = barycenter.combine(
            parts, o.n_draws, powering=o.powering, location=o.location,
            locate=functools.partial(full_data_mode.refine, log_posterior),
            learn=item_priors.learner(prior, o.seed, run),
            spread=weighted.spread(engine, shapes, prior) if o.sampled else None,
            inform=informed.chosen(engine, o, shapes, prior), space=space,
        )  # fmt: skip
        run += 1
        learned = combined.learned
        if learned is None or learned.efficiency >= _EFFICIENT or run == _MOST_RUNS:
            return _Found(sampled, parts, rotation, log_posterior, combined, run)
        sampled = sampled.holding(learned.expected, run)


def _log_posterior(
    engine: Engine, prior: ItemPrior | Hierarchy, space: Space
) -> full_data_mode.Posterior | model_posterior.Posterior:
    """Log posterior on the full data, in the parameters of a space."""
    if isinstance(space, ModelSpace):
        return model_posterior.Posterior(engine, prior, space.shapes)
    return full_data_mode.Posterior(engine, prior, space.free, space.signed)


def _objective(found: _Found, o: Options) -> float:
    """Log posterior of the means on the full data."""
    at, data, log_posterior = found.combined.mean, found.combined.data, found.log_posterior
    if o.correlated:
        at = full_data_mode.with_correlation(at, data["ability_correlation"][0, 1])
    if isinstance(log_posterior.prior, Hierarchy):
        held = log_posterior.prior.holding(data["item_prior_covariance"])
        log_posterior = replace(log_posterior, prior=held)
    return log_posterior(at, log_posterior.nodes(at))[0]


def _about(
    found: _Found, o: Options, model: str | Mapping[str, str], shapes: Shapes,
    counts: ResponseCounts, persons: weighted.Persons,
) -> dict[str, Any]:  # fmt: skip
    """Attributes: what was asked, and how it went."""
    plan, combined = found.sampled.plan, found.combined
    about: dict[str, Any] = {
        "method": "LS-WASP" if o.n_shards > 1 else "Gibbs",
        "model": models.name(model, o.n_dims), "seed": o.seed, "n_iterations": plan.total,
        "identification": asked.identification(o, scored=shapes.scored), "n_dims": o.n_dims,
        "n_persons": found.log_posterior.engine.n_persons,
        **persons.attrs(carried=combined.carried),
        "n_shards": o.n_shards, "n_chains": o.n_chains, "thin": plan.thin, "sampler": o.sampler,
        "powering": o.powering, "location": o.location, "covariance": combined.structure,
        **item_priors.describe(plan.prior, o.positive),
    }  # fmt: skip
    if combined.refined is not None:
        about["n_location_steps"] = combined.refined.n_steps
        about["first_step"] = combined.refined.first_step
    if combined.learned is not None:
        about["n_runs"], about["prior_efficiency"] = found.n_runs, combined.learned.efficiency
    if o.n_dims == 1:
        about |= item_priors.rest(
            plan.prior, combined.data, counts.n_persons, shapes, persons.share
        )
    return about
