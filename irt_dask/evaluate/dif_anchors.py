"""Anchors of tests for differential functioning: items that are the same in all groups.

They alone say how able the groups are.  Every other item is tested beside them, one at a time, so
that those that favour a group do not stand for its ability.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.errors import ApproximationWarning, EstimationError, InputError, listed
from irt_dask.variables import identifier

ALL, ITERATE = "all", "iterate"
#: Standard errors from where most items are beyond which one is no anchor in the next round.
_FAR = 1.96
#: Steps to the place where most are, at most, and how near it is come, in standard errors.
_STEPS, _NEAR = 200, 1e-9
#: Error of a shift above which anchors are not told from others: a shift of .6 is three of these.
_UNSURE = 0.2
#: Share of items that may be shifted one way, as far as is large on the ETS scale (1.5 of its units
#: of 2.35 a logit), and how far these are from each other: what :func:`doubt` holds possible.
_SHARE, _LARGE, _SPREAD = 0.25, 1.5 / 2.35, 0.2
#: Errors of shifts below which such items are told from the others for certain.
_SURE = 0.05
#: Anchors at least, and rounds at most.
_FEWEST, _MOST_ROUNDS = 3, 20
#: Items that are named in a message.
_NAMED = 10

#: Tests of items by position, by the variances of what is not known of the focal groups' places
#: (None: nothing): their results, items in the last dimension, and whatever else belongs to them.
Test = Callable[[Ints, Floats | None], tuple[dict[str, NDArray[Any]], Any]]


class Found(NamedTuple):
    """Results of all items; what belongs to the test of the anchors; which these are."""

    data: dict[str, NDArray[Any]]
    of_anchors: Any
    anchors: NDArray[np.bool_]
    n_rounds: int


def given(anchors: str | Sequence[str], item_id: Sequence[str]) -> NDArray[np.bool_] | None:
    """Return which items were named; None where they are to be found, or all are."""
    if isinstance(anchors, str):
        if anchors in (ALL, ITERATE):
            return None
        raise InputError(
            f"anchors={anchors!r} is none of 'all' and 'iterate', and no list of items"
        )
    names = [identifier(str(name)) for name in anchors]
    unknown = [name for name in names if name not in {*item_id}]
    if unknown:
        raise InputError(f"anchors: no item is called {listed(unknown, _NAMED)}")
    if not names:
        raise InputError("anchors is empty; name items, or say 'all' or 'iterate'")
    return np.isin(item_id, names)


def beside(
    test: Test, anchors: NDArray[np.bool_], unknown: Floats | None = None
) -> tuple[dict[str, NDArray[Any]], Any]:
    """Test the anchors together, and each other item beside them."""
    at = np.flatnonzero(anchors)
    own, of_anchors = test(at, unknown)
    data = {}
    for name, values in own.items():
        data[name] = np.zeros((*values.shape[:-1], anchors.size), dtype=values.dtype)
        data[name][..., at] = values
    for j in np.flatnonzero(~anchors):
        with_it = np.sort(np.append(at, j))
        found, _ = test(with_it, unknown)
        for name, values in found.items():
            data[name][..., j] = values[..., with_it == j][..., 0]
    return data, of_anchors


def place(value: Floats, error: Floats) -> float:
    """Where most of the values are, each within its error: the largest sum of normal kernels.

    It is the mode, not the median: of items of which three in ten are shifted one way the median
    is at the 71st percentile of the others (Welsch's location; Halpin 2022 has another kernel).
    """

    def density(x: Any) -> Any:
        return np.exp(-0.5 * ((np.asarray(x)[..., None] - value) / error) ** 2)

    at = float(value[np.argmax(density(value).sum(axis=1))])
    for _ in range(_STEPS):
        weight = density(at) / error**2
        before, at = at, float(weight @ value / weight.sum())
        if abs(at - before) <= _NEAR * error.min():
            break
    return at


def doubt(value: Floats, error: Floats, anchors: NDArray[np.bool_]) -> float:
    """Variance of the place of found anchors beyond that of anchors which are known.

    It is what the values say of the place if they are all alike, or one in four of them is
    shifted one way, up or down, by what is called large: as likely as not, and places alike,
    before they are seen.
    """
    if not anchors.any() or np.median(error) < _SURE:
        return 0.0
    known = 1.0 / float((error[anchors] ** -2.0).sum())
    reach = 2.0 * _LARGE + 4.0 * np.sqrt(known)
    at = place(value, error) + np.arange(-reach, reach, 0.5 * np.sqrt(known))[:, None]

    def log_density(shift: float, spread: float) -> Floats:
        variance = error**2 + spread**2
        found: Floats = -0.5 * ((value - shift - at) ** 2 / variance + np.log(variance))
        return found

    alike = log_density(0.0, 0.0)
    told = [
        np.logaddexp(
            np.log(1.0 - _SHARE) + alike, np.log(_SHARE) + log_density(shift, _SPREAD)
        ).sum(axis=1)
        - np.log(2.0)
        for shift in (-_LARGE, _LARGE)
    ]
    log_p = np.logaddexp.reduce([alike.sum(axis=1), *told], axis=0)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ at[:, 0]
    return max(float(p @ (at[:, 0] - mean) ** 2) - known, 0.0)


def _doubts(data: dict[str, NDArray[Any]], anchors: NDArray[np.bool_]) -> Floats:
    """The same in each focal group."""
    out = []
    shifts = (data["item_dif_shift"], data["item_dif_shift_se"])
    for value, se in zip(*map(np.atleast_2d, shifts), strict=True):
        known = np.isfinite(value) & (se > 0.0)
        out.append(doubt(value[known], se[known], anchors[known]))
    return np.array(out)


def _central(data: dict[str, NDArray[Any]], sound: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether shift and slope of an item are where most items have theirs, in every focal group.

    Where many items favour one group, those that do not seem to favour the other, all of them
    alike: they are most of the items at one place.
    """
    central = np.ones(sound.size, dtype=bool)
    for name in ("item_dif_shift", "item_dif_slope"):
        for value, se in zip(*map(np.atleast_2d, (data[name], data[f"{name}_se"])), strict=True):
            known = sound & np.isfinite(value) & (se > 0.0)
            middle = place(value[known], se[known]) if known.any() else np.nan
            with np.errstate(invalid="ignore"):
                central &= np.abs(value - middle) <= _FAR * se
    return central


def warn_of_unsure(data: dict[str, NDArray[Any]], labels: Sequence[str], stacklevel: int) -> None:
    """Say of which focal groups anchors are hardly told from other items."""
    error = np.atleast_2d(data["item_dif_shift_se"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a group without results
        usual = np.nanmedian(error, axis=1)
    bad = np.flatnonzero(usual > _UNSURE)
    if bad.size:
        k = bad[np.argmax(usual[bad])]
        groups = listed([labels[int(i)] for i in bad], _NAMED)
        warnings.warn(
            f"anchors='iterate': items that are shifted by less than {3.0 * usual[k]:.1f} logits "
            f"in {groups} are hardly told from the others (three errors of a shift, which are "
            f"{usual[k]:.2f} as a rule): where many are shifted one way some stay anchors; errors "
            f"and p-values allow for few of these, not for many; name the anchors",
            ApproximationWarning,
            stacklevel=stacklevel + 1,
        )


def iterated(test: Test, sound: NDArray[np.bool_]) -> Found:
    """Leave out what differs from most, test again, until the anchors stay what they are.

    They begin as all that are ``sound``.  One that shows none beside later anchors is one again; if
    that goes round in circles, those that come and go are none.
    """
    anchors = sound
    before: list[NDArray[np.bool_]] = []
    for n_rounds in range(1, _MOST_ROUNDS + 1):
        if anchors.sum() < _FEWEST:
            raise EstimationError(
                f"anchors='iterate' has left {int(anchors.sum())} anchor(s) after {n_rounds - 1} "
                f"round(s): the items differ in many ways between the groups; name the anchors"
            )
        data, of_anchors = beside(test, anchors)
        same = sound & _central(data, sound)
        if settled := bool((same == anchors).all()):
            break
        if any((same == old).all() for old in before):
            break
        before.append(anchors)
        anchors = same
    if not settled:
        anchors, n_rounds = same & anchors, n_rounds + 1
        if anchors.sum() < _FEWEST:
            raise EstimationError(
                f"anchors='iterate' has left {int(anchors.sum())} anchor(s) that stay: name the "
                f"anchors"
            )
        data, of_anchors = beside(test, anchors)
    if (unknown := _doubts(data, anchors)).any():
        data, of_anchors = beside(test, anchors, unknown)
    return Found(data, of_anchors, anchors, n_rounds)
