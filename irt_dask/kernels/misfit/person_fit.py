"""Fit of persons: infit and outfit of predicted responses, and the standardised log-likelihood.

The last is Snijders' l_z* at the most likely ability under a normal prior, for any number of
categories: with l = log P of a category and l' its slope, each response weighs ``g = l - E l - m
l'``, m being the multiple that the estimation of ability takes up, and the sum of g has mean 0 and
the variance ``sum E g^2``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.misfit.predictions import prediction
from irt_dask.kernels.posterior.at_ability import Between, slopes
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows


@jit
def _mean_squares(indptr: Any, indices: Any, values: Any, given: Floats, out: Floats) -> None:
    at = 0
    for i in range(n_rows(indptr, values)):
        _, row = rows.row(indptr, indices, values, i)
        n = 0
        square = variance = standard = 0.0
        for k in range(row.size):
            y = row[k]
            if y >= 0:
                p = prediction(y, given[at])
                at += 1
                v = p * (1.0 - p)
                n += 1
                square += (y - p) * (y - p)
                variance += v
                standard += (y - p) * (y - p) / v
        out[0, i] = square / variance if n > 0 else math.nan
        out[1, i] = standard / n if n > 0 else math.nan


def mean_squares(data: Layout, given: Floats) -> Floats:
    """Infit and outfit of each person, (2, persons); ``given`` as of ``left_out``.

    NaN without responses.  Of items of two categories.
    """
    out = np.empty((2, data.shape[0]))
    _mean_squares(*rows.arrays(data), given, out)
    return out


@jit
def _deviations(p: Floats, n: int, end: int, log_p: Floats, out: Floats) -> None:
    """l - E l of the categories of an item, by differences of l: 0 to the last bit if they are."""
    for r in range(n, end):
        log_p[r] = math.log(p[r]) if p[r] > 0.0 else 0.0  # of what is impossible: nothing
    for r in range(n, end):
        out[r] = 0.0
        for other in range(n, end):
            out[r] += p[other] * (log_p[r] - log_p[other])


@jit
def _lz(items: Any, row: Any, first: Ints, p: Floats, slope: Floats, room: Floats) -> float:
    """l_z* from P and l' of the categories of the items answered; NaN if it has no SD."""
    log_p, own = room
    with_score = information = 0.0
    n = 0
    for k in range(row.size):
        if row[k] >= 0:
            j = item(items, k)
            end = n + first[j + 1] - first[j]
            _deviations(p, n, end, log_p, own)
            for r in range(n, end):
                with_score += p[r] * slope[r] * own[r]
                information += p[r] * slope[r] * slope[r]
            n = end
    if not information > 0.0:
        return math.nan
    multiple = with_score / information
    value = variance = size = 0.0
    n = 0
    for k in range(row.size):
        if row[k] >= 0:
            j = item(items, k)
            end = n + first[j + 1] - first[j]
            value += own[n + row[k]] - multiple * slope[n + row[k]]
            for r in range(n, end):
                rest = own[r] - multiple * slope[r]
                variance += p[r] * rest * rest
                size += p[r] * own[r] * own[r]
            n = end
    if not variance > 1e-10 * size or size == 0.0:
        return math.nan
    return value / math.sqrt(variance)


@jit
def _standardised(
    indptr: Any, indices: Any, values: Any, theta: Floats, g: Any, out: Floats
) -> None:
    w, (p, slope), room = np.empty((3, 6)), np.empty((2, g.first[-1])), np.empty((2, g.first[-1]))
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        slopes(items, row, g, theta[i], w, p, slope)
        out[i] = _lz(items, row, g.first, p, slope, room)


def standardised(data: Layout, mode: Floats, g: Between) -> Floats:
    """l_z* of each person at the posterior mode; NaN where it is not defined."""
    out = np.empty(data.shape[0])
    _standardised(*rows.arrays(data), mode, g, out)
    return out
