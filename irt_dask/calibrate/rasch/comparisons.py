"""What a fit's covariance says about items next to each other: differences, ranks, the hardest."""

from __future__ import annotations

import difflib
import warnings
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import ndtr, ndtri

from irt_dask.arrays import Floats
from irt_dask.calibrate.shared.start_values import name_some
from irt_dask.engine import dataset
from irt_dask.engine.inputs import check_level, one_of, whole_number
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import InputError, SparseDataWarning
from irt_dask.items.parameters import bank_item_ids
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.pairs import bradley_terry as kernels

METHODS = ("bonferroni", "bootstrap")
#: Draws of the largest difference: the level reached errs by about sqrt(.05 .95 / 20,000) = .0015.
_N_DRAWS, _BATCH = 20_000, 1_000


def compare_items(fit: xr.Dataset, i: str, j: str, *, level: float | None = None) -> xr.Dataset:
    """Difference in difficulty of two items, ``b_i - b_j``, with a test and an interval.

    Parameters
    ----------
    fit : Dataset
        With ``item_difficulty`` and ``item_difficulty_covariance``, as of :func:`fit_pairwise` and
        :func:`fit_spectral`, whose ``item_difficulty_bias`` is taken off.
    i, j : str
        Identifiers of two items, chosen before looking at the fit: for items that were chosen
        because they came out first there is :func:`top_items`.
    level : float, optional
        Of the interval; the fit's own if not given (0.95 if the fit has none).

    Returns
    -------
    Dataset of single numbers
        ``pair_difference`` with ``_se``, ``_lower``, ``_upper``; ``pair_z`` and ``pair_p_value``,
        two-sided, of no difference, under asymptotic normality.

    Raises
    ------
    InputError
        For an unknown item, an item and itself, an item without standard error, or a fit without
        covariance.

    Notes
    -----
    No pass over data.  Source: Random pairing MLE, section 3.3.

    Examples
    --------
    >>> import irt_dask as irt
    >>> fit = irt.fit_pairwise(irt.load_lsat(), n_splits=20)
    >>> test = irt.compare_items(fit, "LSAT3", "LSAT2")
    >>> test["pair_difference"].round(2).item()
    0.74
    >>> test["pair_p_value"].item() < 0.001
    True
    """
    b, cov, item_id = _parts(fit)
    level = fit.attrs.get("level", 0.95) if level is None else level
    check_level(level)
    at = [_position(item, item_id) for item in (i, j)]
    if at[0] == at[1]:
        raise InputError(f"item {i!r} cannot be compared with itself; name two items")
    p, q = at
    without = [item_id[k] for k in at if np.isfinite(b[k]) and np.isnan(cov[k, k])]
    if without:
        raise InputError(
            f"no standard error for item(s) {name_some(without)}: the responses are too few, or do "
            f"not give a finite difficulty, so that nothing can be said of differences; collect "
            f"more responses"
        )
    _check_finite(b[at], cov[np.ix_(at, at)])
    difference = b[p] - b[q]
    se = float(_se_of_differences(cov[np.ix_(at, at)])[0, 1])
    z = difference / se
    half = -ndtri(0.5 * (1.0 - level)) * se
    return dataset(
        {
            "pair_difference": difference,
            "pair_difference_se": se,
            "pair_difference_lower": difference - half,
            "pair_difference_upper": difference + half,
            "pair_z": z,
            "pair_p_value": 2.0 * ndtr(-abs(z)),
        },
        attrs={
            "method": "difference of two items",
            "item": item_id[p],
            "other": item_id[q],
            "level": float(level),
        },
    )


def top_items(
    fit: xr.Dataset, k: int, *, level: float = 0.95, method: str = "bonferroni", seed: int = 0
) -> xr.Dataset:
    """The k hardest items, and how sure that is: ranks with simultaneous confidence sets.

    Parameters
    ----------
    fit : Dataset
        With ``item_difficulty`` and ``item_difficulty_covariance``, as of :func:`fit_pairwise` and
        :func:`fit_spectral`, whose ``item_difficulty_bias`` is taken off.
    k : int
        Size of the set of hardest items, from 1 to the number of items less 1.
    level : float
        Of the ranks of all items together, and of the set of the k hardest.
    method : {"bonferroni", "bootstrap"}
        How large a difference must be, in standard errors.  "bootstrap": the quantile of the
        largest of all differences under the estimated covariance (20,000 normal draws), which is
        smaller than Bonferroni's for all pairs.
    seed : int
        Of the bootstrap's draws.

    Returns
    -------
    Dataset over items
        ``item_difficulty``; ``item_rank``, 1 the hardest; ``item_rank_lower`` and
        ``item_rank_upper``; ``item_in_top``: rank at most k.  ``attrs["top_established"]`` is 1 if
        every item in the top is significantly harder than every one outside.  An item without
        standard error could be anywhere: its ranks go from 1 to the number of items, it is not
        told apart from any other, and so no top is established.
        ``attrs["n_without_interval"]`` counts such items.

    Raises
    ------
    InputError
        For a fit without covariance, or options outside their range.

    Warns
    -----
    SparseDataWarning
        Some items have no standard error.

    Notes
    -----
    What is simultaneous, for estimates that are normal about the true difficulties with the
    covariance given (approximately so of :func:`fit_pairwise`, and of :func:`fit_spectral` at its
    default regularization; ``docs/methods.md`` says on which data that was measured):

    - The confidence sets of all ranks hold together with probability ``level``.  An item's lower
      rank counts the items significantly harder than it, the upper one those significantly easier,
      by two-sided intervals of all m (m - 1) / 2 differences (``attrs["critical_value"]``).
    - A set that is not that of the k hardest is called established with probability 1 - ``level``
      at most, though the data choose the set (``attrs["critical_value_top"]``).  Let T be the true
      set.  A wrong set has an item from outside T and lacks one of T, so calling it established
      needs a false claim, of an item outside T being harder than one of T: k (m - k) pairs that do
      not depend on the data, tested one-sidedly.  One more test allows for a tie between the items
      k and k + 1, with which even T is not strictly the hardest.  So the Bonferroni value is the
      normal quantile at 1 - (1 - level) / (k (m - k) + 1).  T being unknown, "bootstrap" uses its
      value for all pairs, which covers any T.

    No pass over data; driver memory 40 bytes x items^2, and "bootstrap" takes items^2 x 10,000
    steps.  Source: Random pairing MLE,
    section 3.3 and Table 2 (Bonferroni).

    Examples
    --------
    >>> import irt_dask as irt
    >>> fit = irt.fit_pairwise(irt.load_lsat(), n_splits=20)
    >>> top = irt.top_items(fit, 2)
    >>> top["item_id"][top["item_in_top"]].values.tolist()
    ['LSAT2', 'LSAT3']
    >>> top["item_rank_lower"].values.tolist(), top["item_rank_upper"].values.tolist()
    ([5, 2, 1, 3, 4], [5, 2, 1, 3, 4])
    >>> top.attrs["top_established"]
    1
    """
    b, cov, item_id = _parts(fit)
    _check_top(k, level, method, seed, len(item_id))
    m = len(item_id)
    known = ~(np.isfinite(b) & np.isnan(np.diag(cov)))
    if known.sum() < 2:
        raise InputError("fit has standard errors for fewer than two items; collect more responses")
    inside = np.ix_(known, known)
    _check_finite(b[known], cov[inside])
    se = np.full((m, m), np.inf)  # whoever has none is not told apart from any other
    se[inside] = _se_of_differences(cov[inside])
    if method == "bonferroni":
        critical = -float(ndtri((1.0 - level) / (m * (m - 1))))
        critical_top = -float(ndtri((1.0 - level) / (k * (m - k) + 1)))
    else:
        critical = critical_top = _largest_quantile(cov[inside], se[inside], level, seed)
    if not known.all():
        warnings.warn(
            f"{(~known).sum()} item(s) have no standard error: their ranks could be any, and no "
            f"top is established: {name_some([item_id[j] for j in np.flatnonzero(~known)])}",
            SparseDataWarning,
            stacklevel=2,
        )
    order = np.argsort(-b, kind="stable")
    rank = np.empty(m, dtype=np.int64)
    rank[order] = np.arange(1, m + 1)
    in_top = rank <= k
    z = (b[:, None] - b[None, :]) / se  # row harder than column
    return dataset(
        {
            "item_difficulty": b,
            "item_rank": rank,
            "item_rank_lower": 1 + (z > critical).sum(axis=0),
            "item_rank_upper": m - (z > critical).sum(axis=1),
            "item_in_top": in_top,
        },
        item_id=item_id,
        attrs={
            "method": "hardest items",
            "simultaneous": method,
            "k": int(k),
            "level": float(level),
            "seed": int(seed) if method == "bootstrap" else None,
            "critical_value": critical,
            "critical_value_top": critical_top,
            "top_established": bool((z[np.ix_(in_top, ~in_top)] > critical_top).all()),
            "n_without_interval": int((~known).sum()),
        },
    )


def _check_top(k: Any, level: Any, method: str, seed: Any, n_items: int) -> None:
    if whole_number("k", k, 1) >= n_items:
        raise InputError(f"k={k} must be below {n_items}, the number of items")
    check_level(level)
    one_of("method", method, METHODS)
    whole_number("seed", seed, 0)


def _parts(fit: Any) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Difficulties, their covariance and the items of a fit."""
    if not isinstance(fit, xr.Dataset) or "item_difficulty" not in fit:
        raise InputError("fit must be a Dataset with item_difficulty, as fit_pairwise returns")
    if "item_difficulty_covariance" not in fit:
        raise InputError(
            "fit has no item_difficulty_covariance, which differences need; use fit_pairwise or "
            "fit_spectral with standard_errors=True"
        )
    b, cov = (fit[name].values for name in ("item_difficulty", "item_difficulty_covariance"))
    if "item_difficulty_bias" in fit:
        b = b - np.nan_to_num(fit["item_difficulty_bias"].values)
    return b, cov, bank_item_ids(fit, "fit")


def _check_finite(b: Floats, cov: Floats) -> None:
    if not (np.isfinite(b).all() and np.isfinite(cov).all()):
        raise InputError(
            "fit has difficulties or covariances that are not finite for these items: they are "
            "not on one scale"
        )


def _position(item: Any, item_id: tuple[str, ...]) -> int:
    if item in item_id:
        return item_id.index(item)
    near = difflib.get_close_matches(str(item), item_id, n=5, cutoff=0.5)
    known = "items with near names: " if near else "the first items: "
    raise InputError(
        f"{item!r} is not an item of the fit (identifiers are strings); {known}"
        f"{', '.join(near or item_id[:5])}"
    )


def _se_of_differences(cov: Floats) -> Floats:
    """Return ``sqrt(C_ii + C_jj - 2 C_ij)``; 1 on the diagonal, where there is no difference."""
    variance = np.diag(cov)
    out = variance[:, None] + variance[None, :] - 2.0 * cov
    np.fill_diagonal(out, 1.0)
    if not (out > 0.0).all():
        raise InputError(
            "fit has an item_difficulty_covariance that is none: a difference has none"
        )
    return np.sqrt(out)


def _largest_quantile(cov: Floats, se: Floats, level: float, seed: int) -> float:
    """Quantile of the largest ``|x_i - x_j| / se_ij`` of x ~ N(0, cov)."""
    generator = keyed_random.generator(seed, "top items")
    with single_threaded():  # other bits on other numbers of threads
        value, vector = np.linalg.eigh(cov)
        root = vector * np.sqrt(np.maximum(value, 0.0))
        largest = [
            kernels.largest_differences(root @ generator.normal(size=(len(se), _BATCH)), 1.0 / se)
            for _ in range(_N_DRAWS // _BATCH)
        ]
    return float(np.quantile(np.concatenate(largest), level))
