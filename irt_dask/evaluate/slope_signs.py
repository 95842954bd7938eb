"""Probability that a slope is negative, shrunk by how slopes of either sign are distributed.

A wrong key turns an item round: (a, d) becomes (-a, -d).  So slopes of wrong keys have the density
of the others' slopes, mirrored, and what is to be learned is one density of |a| and one share of
negative signs.  That is what keeps slopes near 0 from being called negative by chance: where |a| is
small the data hardly tell the signs apart, and the share of negative ones decides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.errors import InputError
from irt_dask.items.parameters import bank_item_ids
from irt_dask.variables import DRAW

#: Sizes of slopes: the first is this share of the smallest standard error, each next one so much
#: larger.
_FIRST, _RATIO = 0.25, 1.1
#: EM steps, and the change of the share of negative signs below which they end.
_STEPS, _SMALL = 2000, 1e-7
#: Items that the size 0, which has no sign, counts beside those that are there.
_OF_ZERO = 1.0
#: What the data add to the precision of the prior, at least, as a share of it.
_LEAST = 1e-6


class Signs(NamedTuple):
    """P(a < 0) of each item, and the share of slopes that are negative."""

    negative: Floats
    share: float


class _Known(NamedTuple):
    """What the responses say of each slope: its likelihood as that of a normal observation."""

    slope: Floats
    error: Floats


def signs(items: xr.Dataset, item_id: tuple[str, ...]) -> Signs:
    """See above, of the items of a fit whose slopes may have any sign."""
    _refuse_positive(items)
    known = _known(items, item_id)
    usable = np.isfinite(known.slope) & np.isfinite(known.error) & (known.error > 0.0)
    if not usable.any():
        raise InputError(
            "items have no standard errors of item_discrimination, from which P(slope < 0) "
            "follows; fit them with standard_errors=True"
        )
    negative, share = _learned(known.slope[usable], known.error[usable])
    out = np.full(usable.size, share)
    out[usable] = negative
    return Signs(out, share)


def _refuse_positive(items: xr.Dataset) -> None:
    """Stop at fits in which no slope could be negative."""
    a = items.get("item_discrimination", None)
    if a is None:
        raise InputError("items have no item_discrimination: without slopes none is negative")
    how = str(items.attrs.get("identification", ""))
    fitted = str(items.attrs.get("method", "")).startswith("marginal")
    positive = items.attrs.get("positive") in ("all", "anchors") or (fitted and "cov(" not in how)
    if positive and not bool((a < 0.0).any()):
        raise InputError(
            "these items were fitted with slopes that are all positive, so that none can be found "
            "to be negative; fit with positive='none' (and prior='empirical' where persons are few)"
        )


def _known(items: xr.Dataset, item_id: tuple[str, ...]) -> _Known:
    """Slopes and errors, what the prior of a fit added taken off again."""
    place = {i: k for k, i in enumerate(bank_item_ids(items))}
    at = np.array([place[i] for i in item_id], dtype=np.int64)
    drawn = items.get("item_discrimination_draw")
    if drawn is not None and DRAW in drawn.dims:
        a, error = drawn.mean(DRAW).values[at], drawn.std(DRAW, ddof=1).values[at]
    elif "item_discrimination_se" in items:
        a, error = (
            items["item_discrimination"].values[at],
            items["item_discrimination_se"].values[at],
        )
    else:
        return _Known(np.full(at.size, np.nan), np.full(at.size, np.nan))
    mean, sd = _prior(items)
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.maximum(error**-2.0 - sd**-2.0, _LEAST * max(sd**-2.0, _LEAST))
        return _Known((a * error**-2.0 - mean * sd**-2.0) / own, own**-0.5)


def _prior(items: xr.Dataset) -> tuple[float, float]:
    """Mean and SD of the normal density that slopes had before the data; no density: SD inf."""
    if "item_prior_mean" in items and "item_prior_covariance" in items:
        covariance = items["item_prior_covariance"].values
        return float(items["item_prior_mean"].values[0]), float(np.sqrt(covariance[0, 0]))
    if (given := items.attrs.get("prior_loading")) is not None:
        return float(given[0]), float(given[1])
    return 0.0, np.inf


def _learned(slope: Floats, error: Floats) -> tuple[Floats, float]:
    """P(a < 0) of each, and the share of negative signs, by EM from the slopes themselves.

    Sizes are masses on a geometric grid (nonparametric maximum likelihood; Kiefer and Wolfowitz
    1956), so nothing is said of their form but that it is the same for both signs.
    """
    sizes = _sizes(slope, error)
    plus, minus = (-0.5 * ((slope[:, None] - s * sizes) / error[:, None]) ** 2 for s in (1.0, -1.0))
    top = np.maximum(plus.max(axis=1), minus.max(axis=1))[:, None]
    plus, minus = np.exp(plus - top), np.exp(minus - top)
    mass, share = np.full(sizes.size, 1.0 / sizes.size), 0.5 * float((slope < 0.0).mean()) + 1e-3
    for _ in range(_STEPS):
        of_plus, of_minus = plus * mass, minus * mass
        of_plus[:, 1:] *= 1.0 - share
        of_minus *= share
        of_minus[:, 0] = 0.0  # 0 has no sign, and is not negative
        total = (of_plus.sum(axis=1) + of_minus.sum(axis=1))[:, None]
        of_plus, of_minus = of_plus / total, of_minus / total
        n_minus, n_plus = float(of_minus.sum()), float(of_plus[:, 1:].sum())
        mass = of_plus.sum(axis=0) + of_minus.sum(axis=0)
        mass[0] += _OF_ZERO
        mass /= mass.sum()
        before, share = share, n_minus / max(n_minus + n_plus, np.finfo(float).tiny)
        if abs(share - before) < _SMALL:
            break
    return of_minus.sum(axis=1), share


def _sizes(slope: Floats, error: Floats) -> Floats:
    """0, and sizes up to the largest slope."""
    first = _FIRST * float(np.quantile(error, 0.01))
    most = max(float(np.abs(slope[error <= np.median(error)]).max()), 2.0 * first)
    n = int(np.ceil(np.log(most / first) / np.log(_RATIO))) + 1
    return np.concatenate([[0.0], first * _RATIO ** np.arange(n)])


def discoveries(probability: Floats, fdr: float) -> tuple[Floats, Bools]:
    """Expected share of false ones down to each, and those whose share is at most ``fdr``.

    ``probability`` is that of being what is looked for; the expected false share of the r most
    probable is the mean of ``1 - probability`` over them (Newton et al. 2004; Storey 2003), which
    never falls down the list.
    """
    order = np.argsort(-probability, kind="stable")
    running = np.cumsum(1.0 - probability[order]) / np.arange(1, order.size + 1)
    out = np.empty(order.size)
    out[order] = running
    return out, out <= fdr


def adjusted(p: Floats) -> Floats:
    """q-values of p-values, of which NaN is none (Benjamini and Hochberg 1995)."""
    out = np.full(p.size, np.nan)
    own: NDArray[np.intp] | Ints = np.flatnonzero(np.isfinite(p))
    order = own[np.argsort(-p[own], kind="stable")]
    n = order.size
    scaled = p[order] * n / np.arange(n, 0, -1)
    out[order] = np.minimum(np.minimum.accumulate(scaled), 1.0)
    return out
