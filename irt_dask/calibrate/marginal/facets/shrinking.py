"""Levels with few answers: effects that are N(0, s2), with s2 learned from all levels of a facet.

First all effects are estimated without a density.  Then s2 is found at which it is the mean of what
is expected of the squares of effects (EM, Dempster, Laird and Rubin 1977): of levels with many
answers by the normal distributions of their estimates, of the others by the fit with that density.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.marginal.facets.design import Design
from irt_dask.errors import DataWarning, listed

#: Answers from which on an effect is not shrunk.
ENOUGH = 20
#: Bounds of s, changes of log s that end the search, and fits at most.
_LEAST, _MOST, _CLOSE, _FITS = 0.01, 5.0, 0.01, 20
#: Levels of a facet, from fewer of which s2 is hardly known.
_FEW = 10


class Estimates(NamedTuple):
    """Effects and their variances."""

    value: Floats
    variance: Floats


#: Effects and variances at a precision of the densities, (effects,).
Fit = Callable[[Floats], Estimates]


def shrunk(design: Design, n: Ints, one_sided: Ints) -> Bools:
    """Levels with few answers, or whose answers are all of the lowest or the highest category."""
    of_levels = ~design.numeric[design.facet]
    return np.asarray(of_levels & ((n < ENOUGH) | (one_sided != 0)))


def learn(design: Design, which: Bools, fixed: Estimates, fit: Fit) -> tuple[Floats, int]:
    """s of each facet, (facets,), NaN where nothing is shrunk; and fits that it took."""
    facets = np.unique(design.facet[which])
    s = np.full(len(design.facets), np.nan)
    for f in facets:
        s[f] = _first(fixed, design.facet == f, which, int(design.n_sums[f]))
    trace: list[tuple[Floats, Floats]] = []
    for count in range(1, _FITS + 1):
        now = fit(precision(design, which, s))
        step = np.zeros(facets.size)
        for k, f in enumerate(facets):
            own = design.facet == f
            square = _square(now, fixed, own, which, s[f], int(design.n_sums[f]))
            step[k] = 0.5 * math.log(square) - math.log(s[f])
        log_s = np.log(s[facets])
        trace.append((log_s, step))
        if np.abs(step).max() < _CLOSE:
            return s, count
        s[facets] = np.exp(np.clip(_further(trace), math.log(_LEAST), math.log(_MOST)))
        if len(trace) > 1 and np.abs(np.log(s[facets]) - log_s).max() < 1e-6:
            return s, count  # at a bound
    warnings.warn(
        f"the SD of effects still changes by {np.abs(step).max():.1%} after {_FITS} fits: so few "
        f"levels hardly determine it",
        DataWarning,
        stacklevel=5,
    )
    return s, _FITS


def precision(design: Design, which: Bools, s: Floats) -> Floats:
    """Precisions of effects: of those that are shrunk 1 / s2, else 0."""
    return np.asarray(np.where(which, 1.0 / s[design.facet] ** 2, 0.0))


def _first(fixed: Estimates, own: Bools, which: Bools, n_sums: int) -> float:
    """s at which normal estimates are likeliest, of levels that have one."""
    known = own & np.isfinite(fixed.value) & np.isfinite(fixed.variance)
    if known.sum() < 2:
        return 1.0
    value, variance = fixed.value[known], fixed.variance[known]
    s2 = max(float(value.var()), 1e-2)
    for _ in range(200):
        share = s2 / (s2 + variance)
        new = float(((share * value) ** 2 + share * variance).sum()) / max(1, known.sum() - n_sums)
        if abs(math.log(new / s2)) < 1e-4:
            break
        s2 = new
    return float(np.clip(math.sqrt(s2), _LEAST, _MOST))


def _square(
    now: Estimates, fixed: Estimates, own: Bools, which: Bools, s: float, n_sums: int
) -> float:  # fmt: skip
    """Expected square of an effect; one is not free for each sum that is 0."""
    few, many = own & which, own & ~which & np.isfinite(fixed.variance)
    total = float((now.value[few] ** 2 + now.variance[few]).sum())
    share = s**2 / (s**2 + fixed.variance[many])
    total += float(((share * fixed.value[many]) ** 2 + share * fixed.variance[many]).sum())
    return max(total / max(1, int((few | many).sum()) - n_sums), 1e-8)


def _further(trace: list[tuple[Floats, Floats]]) -> Floats:
    """Next log s: EM's step, lengthened as the last two say (secants), by at most eight."""
    (x, step) = trace[-1]
    if len(trace) == 1:
        return x + step
    before, old = trace[-2]
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = (x - before) / (old - step)
    factor = np.where(np.isfinite(factor), np.clip(factor, 1.0, 8.0), 1.0)
    return np.asarray(x + factor * step)


def warn(design: Design, which: Bools, one_sided: Ints, s: Floats) -> None:
    """Say which levels are shrunk, towards what."""
    for f in np.unique(design.facet[which]):
        own = design.facet == f
        few = [design.level[e] for e in np.flatnonzero(own & which)]
        ends = int((own & (one_sided != 0)).sum())
        all_alike = (
            f", {ends} of them with all answers in the lowest or the highest" if ends else ""
        )
        more = ""
        if own.sum() < _FEW:
            more = f"; s is learned from {own.sum()} levels alone, and hardly known"
        warnings.warn(
            f"{len(few)} of {int(own.sum())} levels of {design.facets[f]} have fewer than {ENOUGH} "
            f"answers{all_alike}, and their effects are shrunk by N(0, s2), s = {s[f]:.3g} "
            f"(facet_shrunk; unshrunk: facet_effect_fixed): {listed(few, 10)}{more}",
            DataWarning,
            stacklevel=4,
        )
