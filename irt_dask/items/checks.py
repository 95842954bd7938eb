"""One check of items for every method: which of them are not to be relied on, and why.

Flags are names of :data:`irt_dask.variables.ITEM_FLAGS`.  Fits whose ability has an SD of 1 measure
difficulties in these.  Of a bank the scale is not known, and its SD may be 100: a unit there is
1 / a of the median item, or half the standard deviation of the difficulties where that is wider.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.engine import Engine
from irt_dask.errors import InputError, ItemWarning
from irt_dask.kernels.misfit import rest_scores
from irt_dask.kernels.responses import response_counts
from irt_dask.store import Block
from irt_dask.variables import ITEM_FLAGS, as_labels

Flags = NDArray[np.str_]

OK, EMPTY = "ok", "empty_category"
#: Share of the median discrimination.  With a = .1, P changes by a tenth at most between abilities
#: -2 and 2, and hundreds of such items say what one usual item says.
FLAT = 0.1
#: The same where ability is N(0, 1) and the items of the median may be flat themselves.
FLAT_SLOPE = 0.01
#: Of a standard normal, 5%: a slope is flat if it may well be.
_LOW = 1.645
#: Standard errors of b, in units, and of a, in the median item's: intervals of +- 4 SDs of ability
#: are wider than where persons are.
LARGE_SE = 2.0
#: Distance of b from the median b, in units: nobody is there.
EXTREME = 10.0
#: Responses of an item: below, a standard error of a difficulty is above .4 at best, and normal
#: intervals are no longer to be trusted (Linacre 1994: 30 for +- 1 logit).
FEW_RESPONSES = 30
#: Association with the rest of the test, in standard errors and as a correlation, below which able
#: persons get an item wrong more often: one item in 700 by chance, and none that is nearly flat.
REVERSED_Z, REVERSED_R = -3.0, -0.05
#: Share of the median discrimination below which an item that falls is taken to be reversed: slopes
#: that are positive by a prior end there, not at 0.
_LOW_SLOPE = 1.0 / 3.0
#: Flags of items whose parameters say nothing of the scale, or something wrong.
UNSOUND = frozenset(ITEM_FLAGS) - {"few_responses", EMPTY}
_NAMED = 10


@dataclass(frozen=True)
class Counts:
    """Persons with each item right, and observed; whether it falls with ability, if looked at.

    Of an item with more categories the highest is right, the lowest ``wrong`` (None: all others).
    """

    right: Ints
    seen: Ints
    reversed: Bools | None = None
    wrong: Ints | None = None


# --- what the responses say -----------------------------------------------------------------------


def _count(block: Block) -> tuple[Any, ...]:
    return tuple(response_counts.response_counts(block.data, block.times))


def _rest(
    block: Block, steps: Floats, share: Floats, scale: tuple[float, float]
) -> tuple[Any, ...]:
    return (rest_scores.rest_scores(block.data, steps, share, scale, block.times),)


def count(engine: Engine) -> Counts:
    """Counts of responses and reversed items: two passes."""
    right, seen = engine.map_reduce(_count)
    return Counts(right, seen, falling(engine, right, seen))


def falling(engine: Engine, right: Ints | Floats, seen: Ints, side: Floats | float = 1.0) -> Bools:
    """Items that able persons get wrong more often: one pass.

    ``right`` are persons with the item right; of more categories the sum of scores as shares of the
    highest.  Items of ``side`` -1 count the other way round, as their slope says; those of side 0
    have no say.  Ability is the sum of the responses to the
    other items, each less its mean; the sum of its products with responses has mean 0 where an item
    has nothing to do with the others, and its variance is the sum of their squares.  Sampling
    weights do not count.
    """
    share = side * (right + 0.5) / (seen + 1.0)
    scale = rest_scores.scales(engine.n_persons, engine.responses.n_items)
    with np.errstate(divide="ignore"):  # side 0: an infinity of steps, of which each counts as 0
        steps = (np.array(engine.responses.n_categories) - 1.0) / side
    (sums,) = engine.map_reduce(_rest, steps, share, scale)
    product, square, own, rest = (row / s for row, s in zip(sums, (*scale, *scale), strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        z, correlation = product / np.sqrt(square), product / np.sqrt(own * rest)
    return (z < REVERSED_Z) & (correlation < REVERSED_R)  # nothing known: not a number


# --- flags ----------------------------------------------------------------------------------------


def _free_slopes(fit: dict[str, Any]) -> bool:
    """Whether items have discriminations of their own."""
    return np.unique(fit.get("item_discrimination", 1.0)).size > 1


def _low(fit: dict[str, Any], one_slope: Bools | bool) -> Bools | np.bool_:
    """Items whose slope is far below the others', or is not their own: ``one_slope``."""
    if not _free_slopes(fit):
        return np.True_
    slope = np.abs(np.asarray(fit["item_discrimination"], dtype=float))
    return np.asarray((slope < _LOW_SLOPE * np.median(slope)) | one_slope)


def _spread_of(b: Floats) -> float:
    """Standard deviation of most of the difficulties, whatever the others are."""
    known = b[np.isfinite(b)]
    if not known.size:
        return 0.0
    return 1.4826 * float(np.median(np.abs(known - np.median(known))))


def _errors(fit: dict[str, Any], name: str) -> Floats | None:
    for suffix in ("se", "sd"):
        if (found := fit.get(f"item_{name}_{suffix}")) is not None:
            return np.asarray(found, dtype=float)
    return None


def flat(slope: Floats, error: Floats | None, *, floor: float = 0.0) -> Bools:
    """Slopes, or sizes of them, that cannot be told from those of flat items.

    The lower 5% point of a log-normal distribution with this mean and SD (the estimate itself
    without one) is below :data:`FLAT` times the median slope.
    """
    limit = max(FLAT * float(np.median(slope)), floor)
    if error is None:
        return np.asarray(slope < limit)
    ratio = np.where(np.isfinite(error), error, 0.0) / slope
    low = slope * np.exp(-_LOW * np.sqrt(np.log1p(ratio**2))) / np.sqrt(1.0 + ratio**2)
    return np.asarray(low < limit)


def _of_parameters(
    fit: dict[str, Any], bound: Bools, *, own_scale: bool, estimated: bool
) -> dict[str, Bools]:
    """Flags that parameters and their errors give, of items of one ability.

    Where all were ``estimated`` now, an error that is missing beside others says that there is
    none; a bank may hold items from elsewhere.
    """
    found: dict[str, Bools] = {}
    slope = fit.get("item_discrimination")
    b = fit.get("item_difficulty")
    of_b = of_a = 1.0
    if slope is not None:
        slope = np.asarray(slope, dtype=float)
        size = np.abs(slope)
        of_a = 1.0 / float(np.median(size))
        floor = FLAT_SLOPE if own_scale else 0.0
        if _free_slopes(fit):
            found["flat"] = flat(size, _errors(fit, "discrimination"), floor=floor)
        if b is None and "item_intercept" in fit:
            b = -np.asarray(fit["item_intercept"], dtype=float) / slope
    if b is None:
        return found
    b = np.asarray(b, dtype=float)
    if not own_scale:
        of_b = 1.0 / max(of_a, 0.5 * _spread_of(b))
    if np.isfinite(b).any():
        found["extreme"] = np.abs(b - np.nanmedian(b)) * of_b > EXTREME
    large = ~np.isfinite(b)
    for error, of in ((_errors(fit, "difficulty"), of_b), (_errors(fit, "discrimination"), of_a)):
        if error is not None and np.isfinite(error).any():
            large |= (error * of > LARGE_SE) | np.isinf(error)
    b_error = _errors(fit, "difficulty")
    if estimated and b_error is not None and np.isfinite(b_error).any():
        large |= np.isnan(b_error) & ~bound
    found["large_se"] = large
    return found


def flags(
    fit: dict[str, Any], *, seen: Counts | None = None, fixed: Bools | None = None,
    own_scale: bool = True, one_slope: Bools | bool = False,
) -> Flags:  # fmt: skip
    """Flags of the items of a fit.

    Parameters
    ----------
    fit : arrays by name, as in a result
        Slopes, difficulties or intercepts, their errors, ``item_at_bound``: those that there are.
    seen : Counts, of the responses that were fitted
        An item is reversed if the responses say so and the model could not follow: its slope is
        low or not estimated.
    fixed : items that were not estimated, but given
    own_scale : whether ability has an SD of about 1
    one_slope : items that share their slope, if they are not all of them
    """
    m = len(next(np.asarray(v) for k, v in fit.items() if k in _PARAMETERS))
    bound = np.asarray(fit.get("item_at_bound", np.zeros(m, dtype=bool)))
    found = {"at_bound": bound, "flat": np.zeros(m, dtype=bool)}
    found |= _of_parameters(fit, bound, own_scale=own_scale, estimated=seen is not None)
    if seen is not None:
        some = seen.seen > 0
        found["few_responses"] = seen.seen < FEW_RESPONSES
        found["all_right"] = some & (seen.right == seen.seen)
        wrong = seen.seen - seen.right if seen.wrong is None else seen.wrong
        found["all_wrong"] = some & (wrong == seen.seen)
        if seen.reversed is not None:
            found["reversed"] = seen.reversed & _low(fit, one_slope)
    if "item_category_map" in fit:
        own = np.arange(fit["item_category_map"].shape[1]) < fit["item_n_categories"][:, None]
        found[EMPTY] = (own & (fit["item_category_map"] < 0)).any(axis=1)
    if "item_model" in fit:  # the order of nominal categories says nothing
        ordered = np.asarray(fit["item_model"]) != "nominal"
        for name in {"flat", "extreme", "reversed"} & found.keys():
            found[name] = found[name] & ordered
    if fixed is not None:
        found = {k: v & (~fixed | (k in ("flat", "extreme", EMPTY))) for k, v in found.items()}
    names = [np.array([name if x else "" for x in found[name]]) for name in sorted(found)]
    joined = ["|".join(filter(None, of_item)) or OK for of_item in zip(*names, strict=True)]
    return np.array(joined, dtype=str)


_PARAMETERS = ("item_discrimination", "item_difficulty", "item_intercept")


def of_fit(
    engine: Engine, fit: dict[str, Any], *, fixed: Bools | None = None, own_scale: bool = True,
    one_slope: Bools | bool = False, wrong: Ints | None = None, score: Floats | None = None,
) -> Flags:  # fmt: skip
    """:func:`flags` of a fit that counted its responses; a pass more if some item is flat.

    With more than two categories ``wrong`` and ``score`` are as in :class:`Counts` and
    :func:`falling`.
    """
    right, seen = np.asarray(fit["item_n_right"]), np.asarray(fit["item_n_responses"])
    options: dict[str, Any] = {"fixed": fixed, "own_scale": own_scale, "one_slope": one_slope}
    got = flags(fit, seen=Counts(right, seen, wrong=wrong), **options)
    if not (_low(fit, one_slope) | has(got, {"flat"})).any():
        return got
    # Codes of nominal items say nothing of more or less.
    ordered = np.asarray(fit.get("item_model", "")) != "nominal"
    side = np.where(ordered, np.sign(fit.get("item_discrimination", 1.0)), 0.0)
    falls = falling(engine, right if score is None else score, seen, side)
    return flags(fit, seen=Counts(right, seen, falls, wrong), **options)


def of_items(items: xr.Dataset) -> Flags:
    """Flags that a fit or a bank carries; without any, those that its numbers give."""
    if "item_flag" in items:
        given = as_labels(items["item_flag"].values)
        return check_flags(np.where(given == "", OK, given))
    names = [n for n in items if str(n).startswith("item_") and items[n].dims == ("items",)]
    fit = {str(n): items[n].values for n in names}
    return (
        flags(fit, own_scale=False)
        if any(p in fit for p in _PARAMETERS)
        else np.full(items.sizes["items"], OK)
    )


def check_flags(given: Flags) -> Flags:
    """Stop at a flag that is not in the vocabulary."""
    for one in map(str, np.unique(given)):
        unknown = [x for x in one.split("|") if x != OK and x not in ITEM_FLAGS]
        if unknown or (OK in one.split("|") and one != OK):
            raise InputError(
                f"item_flag {one!r}: give 'ok', or names joined by '|' out of "
                f"{', '.join(ITEM_FLAGS)}"
            )
    return given


def has(given: Flags, names: set[str] | frozenset[str]) -> Bools:
    """Items with one of these flags."""
    return np.array([not names.isdisjoint(one.split("|")) for one in given], dtype=bool)


def unsound(items: xr.Dataset, item_id: Any) -> Flags:
    """Flags of these items of a fit or bank that forbid to compare them; "" where none does."""
    known = dict(zip(map(str, items["item_id"].values), of_items(items), strict=True))
    given = np.array([known[str(i)] for i in item_id], dtype=str)
    return np.where(has(given, UNSOUND), given, "")


# --- for people -----------------------------------------------------------------------------------


def listed(given: Flags, item_id: Any) -> dict[str, list[str]]:
    """Identifiers of the items of each flag."""
    out: dict[str, list[str]] = {}
    for i, one in zip(item_id, given, strict=True):
        for name in one.split("|"):
            if name != OK:
                out.setdefault(name, []).append(str(i))
    return dict(sorted(out.items()))


def in_words(given: Flags, item_id: Any) -> str:
    """Flagged items by flag for a line of text, ten of each at most."""
    return "; ".join(
        f"{name}: {', '.join(ids[:_NAMED])}"
        + (f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else "")
        for name, ids in listed(given, item_id).items()
    )


def left_out(reasons: dict[str, str], n: int, what: str, *, stacklevel: int = 2) -> None:
    """Warn of items that are not used, by name, each with its reason."""
    if reasons:
        warnings.warn(
            f"{len(reasons)} of {n} items {what}: {reasons_in_words(reasons)}",
            ItemWarning,
            stacklevel=stacklevel + 1,
        )


def reasons_in_words(reasons: dict[str, str]) -> str:
    """Items with their reasons, ten at most."""
    words = "; ".join(f"{i} ({why})" for i, why in list(reasons.items())[:_NAMED])
    return words + (f"; and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else "")


def warn(given: Flags, item_id: Any, *, stacklevel: int = 2) -> None:
    """Warn once of all flagged items, but of empty categories, of which fits warn themselves."""
    rest = [[x for x in one.split("|") if x != EMPTY] for one in given]
    given = np.array(["|".join(names) or OK for names in rest], dtype=str)
    n = int((given != OK).sum())
    if n:
        warnings.warn(
            f"{n} of {len(given)} items are flagged (item_flag): {in_words(given, item_id)}. Do "
            f"not rely on what was found of them: look at their keys and their data, leave them "
            f"out, or give more responses",
            ItemWarning,
            stacklevel=stacklevel + 1,
        )
