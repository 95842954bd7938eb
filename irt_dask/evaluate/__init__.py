"""How well calibrated items predict responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr


def evaluate(
    responses: Any, items: xr.Dataset, *, client: Any = None, progress: Any = None
) -> xr.Dataset:
    """Measure how well items predict responses: log-likelihood and AUC.

    For an honest figure pass responses of persons that were not used to fit the items.  Each
    response is predicted from the person's *other* responses, so a person's own answer never helps
    to predict itself.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    items : Dataset
        A fit or an item bank, matched by identifier.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset of numbers
        ``log_likelihood`` (marginal, ability N(0, 1)), ``log_likelihood_per_response``,
        ``log_score`` (mean log probability of a response given the person's others), ``auc``
        (probability that a right response was given a higher prediction than a wrong one; NaN if
        all are right or all wrong), ``n_responses``.

    Notes
    -----
    One pass over the data; driver memory 1 MB.  The AUC sorts predictions into 65,536 classes of
    equal width on the logit scale; ties within a class count one half, an error below 1e-4.
    """
    from irt_dask.evaluate.prediction import run

    return run(responses, items, client, progress)
