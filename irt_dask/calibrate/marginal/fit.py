"""Marginal maximum likelihood (MML): abilities integrated out, items by accelerated EM."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.calibrate.marginal import course, learned, sampling, signs
from irt_dask.calibrate.marginal import errors as marginal_errors
from irt_dask.calibrate.marginal import null_categories as nulls
from irt_dask.calibrate.marginal.described import described, of_items
from irt_dask.calibrate.marginal.facets.fit import with_facets
from irt_dask.calibrate.marginal.rounds import Rounds
from irt_dask.calibrate.marginal.specification import in_groups, specified
from irt_dask.calibrate.shared.start_values import (
    response_counts,
)
from irt_dask.curves.guessing import GUESSING
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine, ProgressOption, as_responses
from irt_dask.engine.identity import checkpoint_of
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import ConvergenceWarning, InputError
from irt_dask.items import checks
from irt_dask.items.mixture import mixture_named
from irt_dask.population.units import in_units


def fit_marginal(
    responses: Any,
    *,
    model: str | Mapping[str, str] = "2pl",
    max_iterations: int = 500,
    tolerance: float = 1e-9,
    groups: bool | None = None,
    reference_group: str | None = None,
    latent: str = "normal",
    fixed_items: xr.Dataset | None = None,
    guessing_prior: tuple[float, float] | None = GUESSING.prior,
    prior: str | ItemPrior | None = None,
    positive: str = "all",
    start: xr.Dataset | None = None,
    standard_errors: bool | str | None = None,
    sampling_unit: Any = None,
    facets: Any = None,
    item_covariates: Any = None,
    null_categories: str = "raise",
    client: Any = None,
    progress: ProgressOption = None,
    checkpoint: str | Path | None = None,
) -> xr.Dataset:
    """Marginal maximum likelihood: items whose responses are most likely, abilities integrated out.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
        Sampling weights are divided by their mean; standard errors are then those of a sample with
        unequal weights (sandwich).  A row with a frequency weight counts as so many persons.
    model : str, or mapping of item to str
        Of items with two categories "1pl" to "4pl"; of any number "graded" (graded response),
        "gpcm" (generalised partial credit), "pcm" (partial credit), "rating" (rating scale),
        "nominal" and "binomial" (k right of n attempts, as independent given ability: item_fit
        says where they are not). Two names with a plus are for items of two and of more categories
        ("3pl+gpcm"); a mapping names each item's. "1pl", "pcm" and "rating" estimate one slope,
        which all such items share; "rating" also common steps, in each block ("rating:block").
    max_iterations, tolerance
        EM steps, accelerated; they end when the log-likelihood has twice in a row grown by less
        than ``tolerance`` relative to its size.
    groups : bool, optional
        Whether every ``person_group`` has its own mean and SD of ability.  Default: if the
        responses have groups.
    reference_group : str, optional
        The group with mean 0 and SD 1; default: the first in alphabetical order.
    latent : {"normal", "histogram"}
        Distribution of ability: normal in each group, or 121 free masses from -6 to 6 in each.
        Standard errors take a histogram as known, and are too small: those of slopes by a third,
        of difficulties by a sixth, with 8 items and 500 persons.
    fixed_items : Dataset, optional
        Items of a bank that keep their parameters.  They fix the scale, so that every group has a
        mean and an SD of its own, and the others are calibrated on the bank's scale.
    guessing_prior : (alpha, beta) or None
        3PL, 4PL: Beta prior on each guessing parameter.  The default, mode .2, weighs as much as 20
        persons who know nothing; guessing is hardly determined by data without one (and upper
        asymptotes have its mirror image).  Estimates then maximise likelihood times prior, and the
        likelihood reached may lie below that of the 2PL, which the 3PL contains.  None: no priors,
        the maximum of the likelihood alone, which likelihood-ratio tests need.
    prior : "empirical" | ItemPrior, optional
        Density of slopes and intercepts (of steps, of their mean) before the data; models whose
        items have a slope and an intercept of their own.  "empirical": (log a, d), or (a, d) with
        ``positive="none"``, is normal, with mean and covariance learned from the items: for few
        persons, or items that few have answered.  Default: none, the maximum of the likelihood.
    positive : {"all", "none"}
        Whether all slopes are positive, or any may be negative, as of items with a reversed key,
        or of votes.  With "none" ability is turned to where the sum over items of cov(ability,
        response) is positive (fixed items fix that too), and the search starts from the signs of
        the first principal component, and where these disagree from slopes that are all positive
        as well; slopes of nominal items have any sign in either way.
    start : Dataset, optional
        Start values, from another fit.  Without a prior a 3PL that starts from the 2PL of the same
        data ends at a likelihood no lower (but for guessing of at least 1e-6).
    standard_errors : bool, "information" or "sandwich", optional
        Whether to find them, and how.  Default: with up to 2,000 parameters.  "information", what
        True is without sampling weights: the inverse of the observed information, as if the model
        held and persons were drawn one by one.  "sandwich", what True is with sampling weights:
        from how much the persons' scores differ, whatever the model.  Up to 6,000 parameters they
        are matrices; beyond, conjugate gradients find what results need: of the inverse usually
        within .1%, in some ten to thirty passes more, of the sandwich within .2% (with few persons
        by item 1%), in 20 to some hundred: attrs ``standard_errors`` says how exactly.  Fixed items
        are taken as known then, and have no tests.  Without standard errors the last Newton steps
        are left out too.
    sampling_unit : str or array, optional
        What was drawn before persons were, such as schools, whose persons are alike: the name of a
        covariate, "person_group", or one label for each person, in their order.  Standard errors
        are then the sandwich from sums of scores by unit; compare them with t, not the normal
        distribution, with attrs ``degrees_of_freedom``, units less 1.  Without it they are too
        small, of intercepts by a factor of about sqrt(1 + (n - 1) r), n persons a unit, r the
        intraclass correlation of responses to the item.
    facets : list of str, or DataFrame, optional
        What adds to the difficulty of items beside themselves: raters, booklets, modes, positions.
        Names, where columns of the responses are called item@level (a level of each facet, in this
        order, as ``ingest(..., facets=)`` makes them); or a table with a row for each column
        (index: its name), whose column ``item`` names the item and each other column a facet: text
        is levels, a number has one coefficient.  ``model`` is then by item.  Not with ``latent``,
        ``fixed_items``, ``prior``, ``positive``, ``start`` and ``sampling_unit``.  A list may have
        "number(position)", numbers in place of levels; "rater:format", effects by a covariate of
        items; "item ~ format + words", difficulties that covariates alone make.  Numbers may be
        of any size (years): they are standardised while the fit runs, and results are of those
        given.
    item_covariates : DataFrame by item identifier, optional
        Covariates of items that ``facets`` name: text is levels, a number has one coefficient.
        Alone beside free difficulties they are refused, as no data tell them.
    null_categories : {"raise", "keep", "collapse"}
        What becomes of categories that nobody has, of items with more than two (of a rating scale:
        on no item of the block; in groups: in none): an error, or they have probability 0 and no
        parameters, with a warning.  Codes stay as they are in either way.  "keep" leaves their
        place free in the scores of gpcm, pcm and rating items, which are a times 0, 1, 3 where
        nobody has category 2; with "collapse" they are a times 0, 1, 2, as of data without that
        category.  Graded and nominal items are the same in both.
    client, progress, checkpoint
        Dask client (default: the current one, else threads); progress bar; folder for checkpoints
        (which take a pass more over arrays, for their checksum).

    Returns
    -------
    Dataset over items
        ``item_discrimination``, ``item_difficulty``, ``item_intercept``, for 3PL and 4PL
        ``item_guessing``, for 4PL ``item_upper_asymptote``, with ``_se`` (from the observed
        information or the sandwich, with the errors of fixed items that their bank tells: attrs
        ``anchor_errors``, as independent where it has no covariances, such as of a .csv; NaN for
        what is fixed or at a bound, and without ``standard_errors``), ``item_at_bound``,
        ``item_flag``, ``item_n_responses``, ``item_n_right``, ``iteration_objective``.
        Where items have more than two categories also ``item_model``, ``item_n_categories`` and,
        over steps, ``item_step_intercept``, ``item_step_difficulty`` and ``item_threshold`` with
        ``_se`` (nominal: ``item_category_score`` over categories), NaN beyond an item's; its
        difficulty is then the mean of the steps, its intercept minus the slope times that, and
        right is the highest category. Items with categories that nobody has add
        ``item_category_map`` (items, categories): a category's number in the formulas, -1 if it is
        empty; the step to it is NaN, as is that to the lowest that is not.
        With groups, fixed items or a histogram over ``groups``: ``group_label``, ``group_mean`` and
        ``group_sd`` with ``_se``, and ``group_at_bound``; with fixed items, standard errors and a
        normal distribution score tests of the fixed items, ``item_anchor_chi2`` (a degree of
        freedom for the slope, 1PL: none, and for each step), ``item_anchor_p_value`` and
        ``item_anchor_rmsd``, by how much the curve would move (all together: attrs ``anchor_chi2``,
        ``anchor_df``, ``anchor_p_value``); a histogram adds ``group_ability_share`` over
        ``ability``.
        attrs: ``log_likelihood``, of the data alone, and from it ``aic`` and ``bic``
        with ``n_parameters`` (all that were to be estimated, those that ended at a bound too);
        ``standard_errors``, how they were found, if not by the inverse of a matrix; of a sandwich
        ``n_sampling_units`` (or persons), with a response, and ``degrees_of_freedom``, one less;
        ``objective``, what was maximised; ``n_flat_items``; where parameters have priors
        ``guessing_prior``, ``upper_asymptote_prior`` and ``log_prior``, the objective less the
        log-likelihood.  With ``prior`` there is no ``aic`` and no ``bic``, and standard errors are
        given the prior; "empirical" adds ``item_prior_mean`` and ``item_prior_covariance`` over
        ``coordinate``.

        With ``facets`` items are columns, the effects of their levels in them (``item_parent`` is
        the item); over ``parents`` the items without, ``parent_difficulty`` and so on; over
        ``effects`` (``facet``, ``level``) ``facet_effect`` in units of ability, positive where a
        level is harder, with sum 0 in each facet (pairs: over what is there without them), ``_se``,
        ``facet_effect_n`` answers, ``facet_shrunk`` where they are fewer than 20 or all of one end:
        towards 0 by N(0, s2) with s learned (``facet_sd``); ``facet_effect_fixed`` (``_se``)
        without that; ``facet_set``, different where levels have no persons in common.

    Raises
    ------
    InputError, EstimationError, TooLargeError
        The last one before work that would not fit into memory, and if sums of scores of sampling
        units (units x parameters) take over 1 GiB.  An empty label of a unit, one unit alone, and
        "information" with unequal sampling weights are InputErrors.  A category of an item with
        more than two that nobody has is an EstimationError, unless ``null_categories`` says
        otherwise, and an item of which one category alone occurs.

    Warns
    -----
    ConvergenceWarning, DataWarning, ItemWarning
        If the iterations do not end; if the data do not determine all parameters (no standard
        errors then); if standard errors may be off by more than .5%; if there are fewer than 30
        sampling units; if the data contradict fixed items, or there are too many parameters, or too
        few sampling units, to tell; if a group ends at a bound; of categories
        that nobody has; of flagged items.

    Notes
    -----
    Passes over the data: one per iteration (some 10 where plain EM takes 80), one for start values
    (slopes of any sign: 5 to 20 of most data, at most 50, and two searches that end early, again
    when a checkpoint goes on; a prior to be learned: some 10 to 40, and up to 2,000 parameters as
    many more, also again),
    one or two for standard errors, with sampling units two more and one over their labels, two to
    six at the end; two over the labels of groups. Counts are
    items x nodes x 16 bytes; the driver and each thread hold them some times, and the driver some
    times parameters^2 x 8 bytes for standard errors, beyond 6,000 parameters about 2,000 x
    parameters x 8 bytes at most (a sandwich: 6,000 x); and sums by set of items, up to 32 MB for
    each task. With many items nodes are some 60 times their slope: 20,000 items with 1,000 persons
    take 1 GiB (3PL, 4PL, which keep tables of items x nodes: several).
    With ``facets`` a pass more says who met whom, and counts are of columns; standard errors come
    by default up to 20,000 parameters, a sandwich up to 3,000; where effects are shrunk all is
    fitted some three times more.  11,000 raters, 99,000 columns: 3 minutes, 2.5 GB.
    Abilities are integrated on an even grid that resolves every person's posterior: the
    log-likelihood is exact to rounding.
    Tests of fixed items with sampling units are F tests (Korn and Graubard 1990).
    Source: Bock and Aitkin (1981); facets Linacre (1989); acceleration Walker and Ni (2011);
    standard errors Louis (1982), sandwich Binder (1983).

    Examples
    --------
    >>> import irt_dask as irt
    >>> fit = irt.fit_marginal(irt.load_lsat())
    >>> fit["item_discrimination"].round(2).values.tolist()
    [0.83, 0.72, 0.89, 0.69, 0.66]
    >>> round(fit.attrs["log_likelihood"], 2)
    -2466.65
    """
    if facets is not None:
        return with_facets(**locals())
    _check(max_iterations, standard_errors, sampling_unit, item_covariates, null_categories)
    given = as_responses(
        responses, "fit_marginal", graded=True, items=fixed_items, what="fixed_items"
    )
    models = mixture_named(model, given.item_id, given.n_categories)
    models = nulls.of_bank(models, given.item_id, fixed_items)
    responses, labels = in_groups(given, groups, client)
    what = specified(
        responses, models, labels, reference_group, latent, fixed_items, guessing_prior, positive,
        prior,
    )  # fmt: skip
    responses, units = in_units(responses, sampling_unit, client)
    with Engine(
        responses, client=client, progress=progress, stage="marginal ML", graded=True
    ) as engine:
        counts = response_counts(engine)
        what = course.with_categories(what, responses.item_id, counts, null_categories, prior)
        fit = Rounds(engine, what, complete=counts.complete)
        x = signs.likeliest(fit, counts, start) if what.signed else course.begun(fit, counts, start)
        fit, x, before = _with_prior(fit, x, prior)
        size = marginal_errors.columns(fit.model, x)[2]
        asked = sampling.asked(engine, fit.model, size, standard_errors, units, counts.n_persons)
        options = course.identity(fit.model, latent, tolerance, labels, x)
        saved = checkpoint_of(engine, checkpoint, options)
        end, x = course.climbed(fit, x, start, max_iterations, tolerance, saved)
        found = course.found(fit, signs.upright(fit.model, x), asked, fixed_items)
        items = of_items(fit, found, counts)
    _warn_unless(end.converged, max_iterations)
    nulls.warn(fit.model.items, responses.item_id, fit.model.estimated, null_categories)
    checks.warn(items["item_flag"], responses.item_id)
    sampling.warn(asked)
    if found.anchored is not None:
        found.anchored.warn(responses.item_id)
    return described(fit, found, end, items, labels, _name(model), before)


def _check(
    max_iterations: int, standard_errors: Any, sampling_unit: Any, item_covariates: Any,
    null_categories: str,
) -> None:  # fmt: skip
    """Stop at options that are not available, or say nothing: covariates that no facet names."""
    whole_number("max_iterations", max_iterations, 1)
    sampling.check(standard_errors, sampling_unit)
    nulls.check(null_categories)
    if item_covariates is not None:
        raise InputError(
            "item_covariates goes with facets, which name its columns, as in facets=['item ~ x']; "
            "how items with difficulties of their own follow them is learned by fit_bayes"
        )


def _name(model: str | Mapping[str, str]) -> str:
    return model if isinstance(model, str) else "by item"


def _warn_unless(converged: bool, max_iterations: int) -> None:
    if not converged:
        warnings.warn(
            f"marginal maximum likelihood did not converge in {max_iterations} iterations; raise "
            f"max_iterations",
            ConvergenceWarning,
            stacklevel=3,
        )


def _with_prior(
    fit: Rounds, x: Floats, prior: str | ItemPrior | None
) -> tuple[Rounds, Floats, ItemPrior | learned.Learned | None]:
    """The rounds with the prior that the items have, where it is learned; what it is."""
    if prior != "empirical":
        return fit, x, prior if isinstance(prior, ItemPrior) else None
    model, x, found = learned.settle(fit, x)
    return Rounds(fit.engine, model, complete=fit.complete), x, found
