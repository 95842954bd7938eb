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
    store: str | Path | None = None,
    client: Any = None,
    progress: Any = None,
) -> xr.Dataset:
    """Estimate the ability of every person, items taken as known.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
        Matched to the items by identifier.
    items : Dataset
        A fit or an item bank; items that the responses do not have are ignored.
    method : "eap"
        Posterior mean under ability N(0, 1), with the posterior standard deviation.
    store : path, optional
        Folder for one Parquet file per block (``person_id, person_ability, person_ability_sd,
        n_responses``), written by the workers; pandas, Arrow and R read the folder as one table.
        Without it the abilities are returned, up to 10^7 persons.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset
        Without ``store``: ``person_ability`` and ``person_ability_sd`` over persons.  Always:
        ``ability_count``, a histogram; attrs ``mean_ability``, ``sd_ability`` and ``reliability``
        (variance of the estimates over that plus the mean posterior variance), in which every
        person counts once, whatever the person weights.  A person without responses has the prior,
        mean 0 and standard deviation 1.

    Raises
    ------
    InputError
        If the responses have items that ``items`` lacks (it lists them), or the folder exists.

    Notes
    -----
    One pass over the data.  Driver memory: the histogram with ``store``, else 16 bytes a person
    and the identifiers.  Abilities are integrated by the trapezoidal rule on an even grid whose
    spacing resolves every posterior (:func:`irt_dask.models.grid_for`).
    """
    from irt_dask.score.ability import run

    return run(responses, items, method, store, client, progress)
