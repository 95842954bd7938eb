"""Weighted least squares from sums, of all weights and plausible values at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.survey.predictors import Predictors

#: Reciprocal condition of scaled predictors below which a term follows from the others.
FLAT = 1e-10


class Solved(NamedTuple):
    """Linear regressions of a group under each weight."""

    #: Coefficients (weights, terms, M).
    b: Floats
    #: R squared, and sums of values, (weights, M).
    r_squared: Floats
    total: Floats
    #: Sums of predictors' products with values, (weights, terms, M).
    right: Floats
    #: Terms that are estimated.
    kept: list[int]
    #: Root mean squares of predictors, (terms,).
    scale: Floats


def solved(sums: Floats, predictors: Predictors, n_values: int) -> Solved:
    """Least squares from sums (weights, summands).

    Coefficients of terms that are not estimated are NaN, as are all under replicates where a term
    that is estimated follows from the others.
    """
    p = len(predictors.terms)
    i, j = np.triu_indices(p)
    weight, pairs, rest = np.split(sums, [1, 1 + i.size], axis=1)
    a = np.empty((sums.shape[0], p, p))
    a[:, i, j] = a[:, j, i] = pairs
    with_y, of_y = np.split(rest, [p * n_values], axis=1)
    y, squares = np.split(of_y, 2, axis=1)
    root = np.sqrt(np.einsum("rpp->rp", a))
    right = with_y.reshape(-1, p, n_values)
    b = np.full((sums.shape[0], p, n_values), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = root[0] / np.sqrt(weight[0])
        scaled = a / (root[:, :, None] * root[:, None, :])
        kept = _estimable(scaled[0], predictors.intercept)
        scaled, root = scaled[:, kept][:, :, kept], root[:, kept]
        known = np.isfinite(scaled).all(axis=(1, 2)) & bool(kept)
        if known.any():
            known[known] = np.linalg.eigvalsh(scaled[known])[:, 0] > FLAT
        some = np.linalg.solve(scaled[known], right[known][:, kept] / root[known][:, :, None])
        b[np.ix_(known, kept)] = some / root[known][:, :, None]
        fitted = np.nansum(b * right, axis=1)
        fitted[~known] = np.nan
        r_squared = 1 - (squares - fitted) / (squares - y * y / weight)
    return Solved(b, r_squared, y, right, kept, scale)


def _estimable(scaled: Floats, intercept: int | None) -> list[int]:
    """Terms that do not follow from those before them, the intercept before all."""
    order = sorted(range(scaled.shape[0]), key=lambda k: k != intercept)
    kept: list[int] = []
    for k in order:
        if not np.isfinite(scaled[k, k]):
            continue
        with_kept = scaled[kept, k]
        explained = with_kept @ np.linalg.solve(scaled[np.ix_(kept, kept)], with_kept)
        if scaled[k, k] - explained > FLAT:
            kept.append(k)
    return sorted(kept)
