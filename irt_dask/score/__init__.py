"""Scoring persons with calibrated items."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr


def score(
    responses: Any,
    items: xr.Dataset,
    *,
    method: str = "eap",
    n_plausible: int = 0,
    n_item_draws: int | None = None,
    seed: int = 0,
    store: str | Path | None = None,
    client: Any = None,
    progress: Any = None,
) -> xr.Dataset:
    """Estimate the ability of every person, with the uncertainty of the items where it is known.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
        Matched to the items by identifier.
    items : Dataset
        A fit or an item bank (1PL, 2PL), or a fit of two abilities (``fit_bayes(n_dims=2)``); items
        that the responses do not have are ignored.
    method : "eap"
        Posterior mean under ability N(0, 1), with the posterior standard deviation; two abilities
        have the correlation of the fit, in each item draw that draw's.
    n_plausible : int
        Plausible values for each person: draws of ability from its continuous posterior.  Each is
        made under an item draw of its own, evenly spaced among those there are; under the point
        estimates if the items carry no draws or with ``n_item_draws=0``.
    n_item_draws : int, optional
        Draws of the items, evenly spaced among those of a ``fit_bayes`` result, over which the
        posterior is averaged: the mean is that of the means, the variance the mean of the variances
        plus the variance of the means.  0 takes the point estimates for the truth.  Default: 20 if
        the items carry draws, else 0.  (A bank from a file carries none.)
    seed : int
        Of the plausible values, which are keyed by the person's position among all persons.
    store : path, optional
        Folder for one Parquet file per block (``person_id, person_ability, person_ability_sd,
        n_responses, pv1, pv2, ...``), written by the workers; pandas, Arrow and R read the folder
        as one table.  Columns of two abilities: ``person_ability_1, person_ability_2,
        person_ability_sd_1, person_ability_sd_2, person_ability_correlation, n_responses, pv1_1,
        pv1_2, pv2_1, pv2_2, ...``.  Without it the abilities are returned, up to 10^7 persons and
        10^8 plausible values, counted for each ability.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset
        Without ``store``: ``person_ability`` and ``person_ability_sd`` over persons, and
        ``person_plausible_value`` (persons, plausible).  Always: ``ability_count``, a histogram of
        the means; attrs ``mean_ability``, ``sd_ability`` and ``reliability`` (variance of the means
        over that plus the mean posterior variance), in which every person counts once, whatever the
        person weights; ``n_item_draws`` and ``n_plausible``.  A person without responses has the
        prior, mean 0 and standard deviation 1.

        With two abilities the values of persons and the histogram have a last dimension
        ``latent_dims``, the attrs of abilities are lists, and ``person_ability_correlation``
        (persons) is the correlation of both in the posterior of the person: where items load on
        both, what is known of one depends on the other, and standard deviations alone mislead.

    Raises
    ------
    InputError
        If the responses have items that ``items`` lacks (it lists them), the folder exists, more
        draws are asked for than there are, or the items are of another model (3PL, three abilities
        or more, whose grid would be too large).

    Notes
    -----
    One pass over the data, whatever the numbers of draws; every item draw and every plausible value
    costs about as much as scoring with known items, but plausible values without item draws share
    one evaluation.  Driver memory: the histogram with ``store``, else ``16 + 8 n_plausible`` bytes
    a person and the identifiers.  Abilities are integrated by the trapezoidal rule on an even grid
    whose spacing resolves every posterior (:func:`irt_dask.models.grid_for`); quantiles of the
    plausible values are within 0.001 posterior standard deviations
    (:mod:`irt_dask.kernels.plausible`).

    Two abilities: for each item draw a person costs about as many operations as nodes of the part
    of the grid that has weight, times the items if some were not observed.  Every process holds
    tables of 16 bytes x items x nodes^2 (100 items: 65 MB) of the draw at hand, at worst one for
    each thread, and of others while they fit its cache.  Driver memory without ``store``:
    ``40 + 16 n_plausible`` bytes a person.  The first ability is drawn from its marginal, the
    second given the first (:mod:`irt_dask.kernels.plane_draws`).

    For a statistic of a population compute it from each plausible value and average; its variance
    is the mean sampling variance plus ``1 + 1 / n_plausible`` times the variance between plausible
    values (Rubin 1987).  The persons are taken to come from N(0, 1): plausible values do not know
    of covariates.
    """
    from irt_dask.score.ability import Options, run

    options = Options(method, n_plausible, n_item_draws, seed)
    return run(responses, items, options, store, client, progress)
