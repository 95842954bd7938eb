"""Two early estimators of the Rasch model from the matrix of ratios of pair counts: baselines.

Nguyen and Zhang, "A Spectral Approach to Item Response Theory", appendix D.1.  ``D_ij = Y_ji /
Y_ij``, Y_ij the persons right on i and wrong on j, estimates ``exp(difficulty_i - difficulty_j)``.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.calibrate.rasch.pair_counts import MEAN_ZERO, pair_counts
from irt_dask.engine import ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import ConvergenceWarning, EstimationError
from irt_dask.items.parameters import bank_item_ids

#: Steps of the power method; relative distance of the bounds of the eigenvalue, for each item.
_MAX_STEPS, _SPREAD = 10_000, 1e-14


def _log_ratios(
    responses: Any, method: str, client: Any, progress: ProgressOption
) -> tuple[Floats, tuple[str, ...], int]:
    """Return ``ln D_ij = ln Y_ji - ln Y_ij``, 0 on the diagonal, item ids, number of persons."""
    if not (isinstance(responses, xr.Dataset) and "pair_count" in responses):
        responses = as_responses(responses, method)
        refuse_weights(responses, method)
        responses = pair_counts(responses, client=client, progress=progress)
    item_id = bank_item_ids(responses, "pair counts")
    count = responses["pair_count"].values.astype(float)
    np.fill_diagonal(count, 1.0)
    if len(item_id) < 2:
        raise EstimationError("difficulties are relative: at least two items are needed")
    if not (count > 0).all():
        i, j = (int(k[0]) for k in np.nonzero(count <= 0))
        raise EstimationError(
            f"{method} needs somebody right on the first and wrong on the second item of every "
            f"pair; {int((count <= 0).sum())} pair(s) have nobody, the first is {item_id[i]}, "
            f"{item_id[j]}: use fit_spectral, which does not"
        )
    log_count = np.log(count)
    return log_count.T - log_count, item_id, int(responses.attrs["n_persons"])


def _result(beta: Floats, item_id: tuple[str, ...], n_persons: int, **attrs: Any) -> xr.Dataset:
    attrs |= {"model": "1pl", "identification": MEAN_ZERO, "n_persons": n_persons}
    return dataset({"item_difficulty": beta - beta.mean()}, item_id=item_id, attrs=attrs)


def fit_choppin(
    responses: Any, *, client: Any = None, progress: ProgressOption = None
) -> xr.Dataset:
    """Rasch difficulties as row means of the log ratios of pair counts (Choppin 1982).

    Parameters
    ----------
    responses : Responses, anything ``from_array`` takes (persons without weights), or the Dataset
        of :func:`irt_dask.pair_counts`.

    Returns
    -------
    Dataset over items
        ``item_difficulty``, of mean 0.  No standard errors.

    Raises
    ------
    EstimationError
        If some pair of items has nobody right on one and wrong on the other (it names the pair).

    Notes
    -----
    A baseline: all pairs count alike, however few persons they rest on.  One pass over the data,
    none if given pair counts; driver memory 40 bytes x items^2.  Source: appendix D.1 of Nguyen
    and Zhang.

    Examples
    --------
    >>> import irt_dask as irt
    >>> fit = irt.fit_choppin(irt.load_lsat())
    >>> fit["item_difficulty"].round(2).values.tolist()
    [-1.28, 0.48, 1.25, 0.17, -0.62]
    """
    log_ratio, item_id, n_persons = _log_ratios(responses, "fit_choppin", client, progress)
    about = {"method": "row sums", "converged": True, "n_iterations": 1}
    return _result(log_ratio.mean(axis=1), item_id, n_persons, **about)


def _leading(matrix: Floats) -> tuple[Floats, float, float, int]:
    """Leading eigenvector of a positive matrix, bounds of the eigenvalue, steps taken.

    The eigenvalue lies between the extremes of ``(M v) / v``, for any positive v (Collatz).
    """
    v, steps, low, high = np.ones(len(matrix)), 0, 0.0, np.inf
    while steps < _MAX_STEPS and high > low * (1.0 + _SPREAD * len(v)):
        image = matrix @ v
        low, high = float((image / v).min()), float((image / v).max())
        v = image / image.mean()
        steps += 1
    return v, low, high, steps


def fit_saaty(responses: Any, *, client: Any = None, progress: ProgressOption = None) -> xr.Dataset:
    """Rasch difficulties from the leading eigenvector of the ratios (Saaty 1987, Garner 2002).

    Parameters
    ----------
    responses : Responses, anything ``from_array`` takes (persons without weights), or the Dataset
        of :func:`irt_dask.pair_counts`.

    Returns
    -------
    Dataset over items
        ``item_difficulty``, of mean 0: the logarithm of the right eigenvector of D.  No standard
        errors.  ``attrs["eigenvalue"]`` is at least the number of items, and equal to it if and
        only if all ratios agree with the difficulties.

    Raises
    ------
    EstimationError
        If some pair of items has nobody right on one and wrong on the other (it names the pair).

    Warns
    -----
    ConvergenceWarning
        If the power method does not reach the eigenvector.

    Notes
    -----
    A baseline.  The paper speaks of the left eigenvector; its own derivation is that of the right
    one.  One pass over the data, none if given pair counts; driver memory 40 bytes x items^2.
    Source: appendix D.1 of Nguyen and Zhang.

    Examples
    --------
    >>> import irt_dask as irt
    >>> fit = irt.fit_saaty(irt.load_lsat())
    >>> fit["item_difficulty"].round(2).values.tolist()
    [-1.28, 0.48, 1.25, 0.17, -0.62]
    >>> round(fit.attrs["eigenvalue"], 3)
    5.004
    """
    log_ratio, item_id, n_persons = _log_ratios(responses, "fit_saaty", client, progress)
    beta = log_ratio.mean(axis=1)
    # In the scale of the row sums all ratios are near 1, and so is the eigenvector.
    scaled = np.exp(log_ratio - beta[:, None] + beta)
    with single_threaded():  # other bits on other numbers of threads
        v, low, high, n_iterations = _leading(scaled)
    converged = high <= low * (1.0 + _SPREAD * len(v))
    if not converged:
        warnings.warn(
            f"the power method did not reach the leading eigenvector in {_MAX_STEPS} steps: the "
            f"eigenvalue lies between {low} and {high}; use fit_spectral",
            ConvergenceWarning,
            stacklevel=2,
        )
    about = {"method": "eigenvector", "converged": converged, "n_iterations": n_iterations}
    return _result(beta + np.log(v), item_id, n_persons, **about, eigenvalue=(low + high) / 2.0)
