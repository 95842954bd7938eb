"""Scoring persons with calibrated items."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr


def score(
    responses: Any,
    items: xr.Dataset,
    *,
    method: str = "eap",
    prior: Any = "normal",
    n_plausible: int = 0,
    n_item_draws: int | None = None,
    seed: int = 0,
    unknown_items: str = "raise",
    composites: Mapping[str, Mapping[str, float]] | None = None,
    linking: xr.Dataset | Mapping[str, xr.Dataset] | None = None,
    store: str | Path | None = None,
    client: Any = None,
    progress: Any = None,
) -> xr.Dataset:
    """Estimate the ability of every person, with its standard error or deviation.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
        Matched to the items by identifier.
    items : Dataset
        A fit or an item bank of any model, or a fit of two abilities (``fit_bayes(n_dims=2)``,
        for "eap" with a normal prior), or of ``fit_bifactor`` (the same, without draws and
        ``store``); items that the responses do not have are ignored.
    method : {"eap", "map", "ml", "wle"}
        "eap": posterior mean and standard deviation (``person_ability_sd``).  The others have a
        standard error (``person_ability_se``) from the expected information I of the items
        answered, at the estimate:

        - "map": posterior mode, ``1 / sqrt(I + 1 / sd^2)`` with the prior's sd;
        - "ml": maximum of the likelihood within -6 and 6, ``1 / sqrt(I)``; further out, at whole
          numbers on both sides, as long as all items together still have a standard error below 1
          at a bound.  Where the likelihood rises up to a bound (all right, all wrong, under the 3PL
          less right than by guessing) the estimate is the bound, without a standard error (NaN);
        - "wle": Warm's (1989) weighted likelihood estimate, the zero of the score plus
          ``J / (2 I)``, ``J = sum P' P'' / (P Q)``, ``1 / sqrt(I)``; finite for all patterns.

        Where there are several maxima, as under the 3PL, the highest counts: of the posterior, the
        likelihood, or the weighted likelihood, whose logarithm has the derivative above.  For
        "wle" it is looked for within the bounds of "ml"; if it is at such an end and rises, it is
        the next maximum outwards (up to 96, without a standard error there).
    prior : {"normal", "population", "groups", "covariates"}, names of covariates, or Dataset
        Distribution of ability, of "eap", "map" and plausible values.  "normal": N(0, 1), with two
        abilities with the correlation of the fit, in each item draw that draw's.  "population": one
        normal.  "groups": a normal for each ``person_group``.  Covariates: normal about a linear
        predictor.  These are estimated first, by EM with the items fixed at their point estimates
        and the person weights in use; persons without responses do not take part in this, and have
        the prior of their group or covariates.  Each plausible value is drawn under means,
        coefficients and standard deviations of its own, as wide as their standard errors say
        (those that are NaN: at the estimate).

        A result of :func:`irt_dask.fit_population`: abilities of all its domains together given its
        covariates, for "eap".  Plausible values are then drawn each under coefficients and a
        residual covariance of their own (normal; inverse Wishart, as wide as the standard errors
        say), and where items have draws under items of their own, to which the model is fitted
        again; ``n_item_draws=0`` takes the items for known, and as many as there are values draws
        items of a fit or a bank by their errors.
    n_plausible : int
        Plausible values for each person: draws of ability from its continuous posterior, whatever
        the method.  With item draws each is made under an item draw of its own, evenly spaced
        among those there are; else under the point estimates.
    n_item_draws : int, optional
        Draws of the items, evenly spaced among those of a ``fit_bayes`` or ``fit_bifactor`` result,
        over which the posterior is averaged ("eap" alone): the mean is that of the means, the
        variance the mean of the variances plus the variance of the means.  0 takes the point
        estimates for the truth.  Of a fit or a bank without draws they are made by its covariance
        of parameters, or its standard errors.  Default: 20 if the method is "eap" and the items
        carry draws, else 0.  (A bank from a file carries none.)
    seed : int
        Of the plausible values, which are keyed by the person's position among all persons.
    unknown_items : {"raise", "ignore"}
        Items of the responses that ``items`` lacks: an error, or ignored, with a notice that names
        ten.  A person with no response to other items is one without responses.
    composites : mapping, optional
        Weighted sums of domains: ``{"science": {"physics": 0.5, "biology": 0.5}}``.
    linking : result of ``irt.link``, or mapping of domains to them, optional
        Draws the error of a link into the plausible values: value m of every person is moved to
        where A_m and B_m would have put it, ``(A_m / A) (theta - B) + B_m``.  ``items`` are those
        of the link, on the scale of its bank_a: its result, or the bank of it; estimates of ability
        stay there.  The constants of n_plausible values have mean A and B, and the covariance that
        ``error="jackknife"`` says, divided by ``1 + 1 / n_plausible``: tables of them have it whole
        by Rubin's rule, in every statistic, and :func:`irt_dask.trend` takes ``linking_error=0``.
        They are keyed by the link: with as many values all who are scored by it share them, with
        any ``seed``.  Under a population model one link is of all domains, or each that a mapping
        names has its own, and links are taken as independent.  Needs 2 values for each link and
        one more; take 10 or more.
    store : path or URL, optional
        Folder (on disk, or in object storage: ``s3://bucket/scores``) for one Parquet file per
        block (``person_id, person_ability, person_ability_sd`` (or ``_se``), ``n_responses,
        sum_score, pv1, pv2, ...``), written by the workers; pandas, Arrow and R read the folder as
        one table.  ``sum_score`` is the sum of the codes of what was answered, the number right
        where items have two categories.  Columns of two abilities: ``person_ability_1,
        person_ability_2, person_ability_sd_1, person_ability_sd_2, person_ability_correlation,
        n_responses, sum_score, pv1_1, pv1_2, pv2_1, pv2_2, ...``.  Of domains and composites:
        ``person_ability_maths, person_ability_sd_maths,
        person_ability_correlation_maths_reading, pv1_maths, pv1_reading, ...``.  Without it the
        abilities are returned, up to 10^7 persons and 10^8 plausible values, counted for each
        ability.

        A folder of scores is brought up to date: a file is kept if the content and position of its
        block, the items (those that the responses have), the options and the versions of irt_dask,
        NumPy, numba and pyarrow are those it was made from, else made again.  The folder ends as
        one run would have left it, byte for byte, also after runs that were killed.  With groups or
        covariates new persons change everybody's prior, and so all files.  One run at a time works
        in a folder.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset
        Without ``store``: ``person_ability`` and ``person_ability_sd`` or ``person_ability_se``
        over persons, and ``person_plausible_value`` (persons, plausible).  Always:
        ``ability_count``, a histogram of the estimates; attrs ``mean_ability``, ``sd_ability`` and
        ``reliability``, in which every person with an estimate counts once (``n_estimated``),
        whatever the sampling weights, and as often as frequency weights say; ``n_at_bound``, those
        at a bound; ``n_item_draws`` and ``n_plausible``; with ``store`` also ``n_blocks_scored``
        and ``n_blocks_kept``.  The reliability of "eap" and "map" is the variance of the estimates
        over that plus the mean squared standard error, of "ml" and "wle" 1 less the ratio of the
        mean squared standard error to the variance, of those who have a standard error: those at a
        bound stand where the bound does.  A person without responses has the prior's
        mean and standard deviation; "ml" and "wle" are NaN.

        With groups ``group_mean`` and ``group_sd``, with covariates ``regression_coefficient`` (the
        intercept first) and ``residual_sd``, each with ``_se`` from the observed information (with
        weights, a sandwich), the items taken as known (NaN where the responses do not determine it,
        or the standard deviation of a group ends at its bound 0.05); attrs ``converged``,
        ``n_iterations`` (passes) and ``log_likelihood`` (marginal, weighted).

        With ``linking`` also ``person_linking_error`` (persons; under a population model by
        scales), the standard error that the link gives to each ability; ``link_slope`` and
        ``link_shift``, the constants of each plausible value; attrs ``linking_error`` and
        ``linking_error_of``.  Files have the column ``person_linking_error``, by which tables know.

        With two abilities the values of persons and the histogram have a last dimension
        ``latent_dims``, the attrs of abilities are lists, and ``person_ability_correlation``
        (persons) is the correlation of both in the posterior of the person: where items load on
        both, what is known of one depends on the other, and standard deviations alone mislead.

        Under a fit of :func:`irt_dask.fit_bifactor` ``latent_dims`` are the general ability and
        those of blocks, named by the coordinate ``domain``: posterior means and standard
        deviations, items and their slopes taken as known.

        Under a population model the values of persons have a last dimension ``scales``, domains and
        then composites: ``person_domain_ability``, ``person_domain_ability_sd``,
        ``person_domain_plausible_value``; ``person_domain_correlation`` (persons, latent_dims,
        latent_dims_) is that of domains in the person's posterior.

    Raises
    ------
    InputError
        If the responses have items that ``items`` lacks (it lists them), or none that it has; the
        folder holds other files, or scores of other responses (another first block, or more
        blocks), with columns that these options do not give (fewer plausible values; "sd" for "se")
        or by items that would not count any more; more draws are asked for than there are; a
        covariate is unknown (NaN) for somebody or the same for all; a response is of a category
        that nobody had when the item was calibrated; or an option would have no effect.
        ``linking`` is no link, one without errors or of other items, or ``items`` are on the scale
        of its bank_b; fewer plausible values than it needs; A is known to 20% or less.
    BusyError
        If another run is working in the folder.
    EstimationError
        If covariates depend on each other, or a group has no responses.

    Warns
    -----
    Notice
        Items are ignored (``unknown_items="ignore"``).
    ConvergenceWarning, DataWarning
        If the distribution of ability is not found in 200 passes, or a standard deviation ends at
        its bound; if plausible values are asked for and the responses hardly tell a mean (of
        persons who have all right); if the items were calibrated with groups of persons
        (``group_mean``, or a bank that says so), or their scale has mean difficulty 0 (conditional,
        spectral, pairwise, joint 1PL), and ``prior="normal"`` takes all from N(0, 1).
        With ``linking``: it has ``error="delta"``; more plausible values than it has units; items
        that differ from those of the link, or are not there.
    ApproximationWarning
        If a covariate rests on fewer than 5 persons (a dummy variable: who has it), or a group has
        fewer than 20: they are named.

    Notes
    -----
    One pass over the data, whatever the numbers of draws; every item draw and every plausible value
    costs about as much as scoring with known items, but plausible values without item draws share
    one evaluation, unless the prior is estimated.  Groups and covariates take about 15 passes more.
    Driver memory: the histogram
    with ``store``, else ``16 + 8 n_plausible`` bytes a person and the identifiers; for up to 1,000
    groups or some covariates, a few numbers for each.  Abilities are integrated by the trapezoidal
    rule on an even grid whose spacing resolves every posterior
    (:func:`irt_dask.curves.grids.grid_for`), over 7 standard deviations of the prior, or as many
    more as leave no pattern of responses a millionth of its highest density beyond (items of b = 6
    to 9, priors at odds with the answers, more than some 80 items); the mode of a posterior is
    looked for there too.  Quantiles of the plausible values are within 0.001 posterior standard
    deviations (:mod:`irt_dask.kernels.posterior.plausible_values`).  With guessing, covariates,
    "map" or "wle", every process holds tables of 8 to 32 bytes x items x nodes.

    Two abilities: for each item draw a person costs about as many operations as nodes of the part
    of the grid that has weight, times the items if some were not observed.  Every process holds
    tables of 16 bytes x items x nodes^2 (100 items: 65 MB) of the draw at hand, at worst one for
    each thread, and of others while they fit its cache.  Driver memory without ``store``:
    ``40 + 16 n_plausible`` bytes a person.  The first ability is drawn from its marginal, the
    second given the first (:mod:`irt_dask.kernels.several.plane_values`).

    Under a population model of up to three domains posteriors are exact, on boxes of nodes
    (:mod:`irt_dask.kernels.several.box_posterior`); the first domain is drawn from its marginal,
    each other one given those before, with distribution functions right to 0.001.  More domains
    take turns (Gibbs): a value is the last of 20 sweeps from the prior mean, means and covariances
    are those of 100 more, whose chance is in the means (0.03 standard deviations of the posterior
    where residuals correlate by 0.5, 0.09 at 0.8, 0.15 at 0.9); values are not off for it.  A
    population model takes up to four passes' time for each value drawn under other items.

    For a statistic of a population compute it from each plausible value and average; its variance
    is the mean sampling variance plus ``1 + 1 / n_plausible`` times the variance between plausible
    values (Rubin 1987).  Groups and covariates take ability to be normal about its mean.  Where it
    is skewed they are biased: with residuals of skewness 2 (exponential, SD 0.8) group means by
    -.06 with 5 items and -.02 to -.03 with 10 to 40, intercepts likewise, standard deviations by -7
    to -14%, coefficients by .01 at most.  Plausible values know of a covariate only if the prior
    does: a regression on one that it leaves out is biased towards 0.

    Examples
    --------
    >>> import pandas as pd
    >>> import irt_dask as irt
    >>> responses = irt.load_lsat()
    >>> fit = irt.fit_marginal(responses)
    >>> irt.score(responses, fit)["person_ability"][[0, 999]].round(1).values.tolist()
    [-1.9, 0.6]
    >>> both = irt.simulate(500, 15, seed=1)
    >>> years = [both.select(persons=p) for p in (slice(250), slice(250, 500))]
    >>> link = irt.link(*map(irt.fit_marginal, years), error="jackknife")
    >>> later = irt.score(years[1], link, prior="population", n_plausible=10, linking=link)
    >>> bool(abs(later["link_slope"].var(ddof=1) * 1.1 / link.attrs["A_se"] ** 2 - 1) < 1e-9)
    True
    >>> _ = irt.score(responses, fit, store="scores")  # a Parquet file for each block
    >>> pd.read_parquet("scores").columns.tolist()
    ['person_id', 'person_ability', 'person_ability_sd', 'n_responses', 'sum_score']
    """
    from irt_dask.score.ability import Options, run

    options = Options(method, n_plausible, n_item_draws, seed, prior, unknown_items, linking)
    return run(responses, items, options, store, client, progress, composites)
