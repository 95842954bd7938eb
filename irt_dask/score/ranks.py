"""Ranks of persons by ability, with intervals that hold together, from plausible values."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.engine.inputs import check_level, whole_number
from irt_dask.engine.results import dataset
from irt_dask.errors import InputError
from irt_dask.kernels.base import keyed_random
from irt_dask.variables import PERSONS

_VALUES = "person_plausible_value"
#: Ranks that are looked at together: some copies of so many are held.
_CELLS = 1 << 20
#: A product of a level and a number of draws is whole if it is as near as this.
_ROUNDING = 1e-9


def top_persons(scores: xr.Dataset, k: int, *, level: float = 0.95) -> xr.Dataset:
    """The k most able persons, and how sure that is: ranks with simultaneous intervals.

    Parameters
    ----------
    scores : Dataset
        Result of ``score(responses, posterior, n_plausible=R)`` in memory, of one ability.  With
        the draws of a ``fit_bayes`` result each plausible value of all persons is one draw of the
        items and of every ability: ranks then carry what is uncertain about both.  Made without
        item draws (``attrs["n_item_draws"]`` is 0 here as there) they take the items as known.
    k : int
        Size of the set of the most able, from 1 to the number of persons less 1.
    level : float
        Posterior probability with which the true ranks of all persons lie in their intervals.
        ``R`` must be at least ``level / (1 - level)``: 19 for 0.95, 99 for 0.99.

    Returns
    -------
    Dataset over persons
        ``person_ability``, the posterior mean (of method "eap" that of the scores, else the mean
        of the plausible values); ``person_rank`` of it, 1 the most able, ties in the order of the
        persons; ``person_rank_lower`` and ``person_rank_upper``; ``person_in_top``: rank at most k;
        ``person_top_probability``, the share of draws in which the person is among the k most
        able.  attrs: ``top_probability``, the share of draws whose k most able are exactly these,
        and ``top_established``, 1 if that is at least ``level``; ``level_reached``, the share of
        draws in the intervals; ``order`` and ``margin`` of the intervals (Notes); ``n_draws``,
        ``n_item_draws``.

    Raises
    ------
    InputError
        For scores without plausible values (files of ``score(store=)`` are none of these), of
        several abilities, or with values that are not finite; for fewer plausible values than the
        level asks for; or options outside their range.

    Notes
    -----
    Every person counts once, whatever their weights.  Who has the same value as another one in a
    draw is before or behind by chance.  The intervals are those of Besag, Green,
    Higdon and Mengersen (1995), between the order statistics R + 1 - u and u of each person's rank
    over the draws, with the smallest u for which at least ``level`` of the draws lie inside for all
    persons.  Where persons are many that would promise too much: nearly every draw is the extreme
    one of somebody, and a further draw lies outside for somebody else (1,000 persons, 1,000 draws:
    the intervals held in 21% of data sets, not 95%).  So a draw is compared with the others alone,
    u is taken for ``level (R + 1)`` of the draws and raised by one, and where even the extremes are
    too near the intervals go beyond them, by ``attrs["margin"]`` times the number of ranks between
    them.  Then a further draw, which the truth is given the responses, lies inside with probability
    ``level`` at least, whatever the numbers of draws and persons.  At a level of 0.95 there is no
    margin if R is a little above 40 times the persons, or less; with few draws the intervals hold
    too, and are wider.  The proof and measurements are in ``docs/methods.md``.

    Whether the top is established is said of one set: a wrong one is called so with probability
    ``1 - level`` at most.  A person's own interval at that level would be narrower.

    No pass over data.  Driver memory: 8 bytes for each plausible value (of which ``score`` returns
    10^8 at most) beside the value itself, and some 60 MB.  10,000 persons with 1,000 draws take
    some 3 seconds on a core, with 10^8 values half a minute.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(40, 30, seed=2)
    >>> posterior = irt.fit_bayes(responses, n_draws=400, n_warmup=100)
    >>> scores = irt.score(responses, posterior, n_plausible=400)
    >>> top = irt.top_persons(scores, 3)
    >>> top["person_id"][top["person_in_top"]].values.tolist()
    ['4', '11', '13']
    >>> top.attrs["top_established"]
    0
    """
    values = _plausible_values(scores)
    n_persons, n_draws = values.shape
    _check(k, level, n_persons, n_draws)
    ranks = _ranks(values)
    ability, how = _abilities(scores, values)
    rank = _ranks(ability[:, None], ties_by_chance=False)[:, 0].astype(np.int64)
    in_top = rank <= k
    band = _band(ranks, level)
    drawn_top = ranks <= k
    same = float((drawn_top == in_top[:, None]).all(axis=0).mean())
    return dataset(
        {
            "person_ability": ability,
            "person_rank": rank,
            "person_rank_lower": band.lower,
            "person_rank_upper": band.upper,
            "person_in_top": in_top,
            "person_top_probability": drawn_top.mean(axis=1),
        },
        coords={"person_id": scores["person_id"].values},
        attrs={
            "method": "most able persons",
            "simultaneous": "order statistics",
            "ability": how,
            "model": scores.attrs.get("model"),
            "prior": scores.attrs.get("prior"),
            "k": int(k),
            "level": float(level),
            "level_reached": band.inside,
            "order": band.order,
            "margin": band.margin,
            "n_persons": n_persons,
            "n_draws": n_draws,
            "n_item_draws": n_draws if scores.attrs.get("n_item_draws") else 0,
            "top_probability": same,
            "top_established": same >= level,
        },
    )


def _plausible_values(scores: Any) -> Floats:
    """Plausible values (persons, draws)."""
    if not isinstance(scores, xr.Dataset) or "person_id" not in scores.coords:
        raise InputError("scores must be a Dataset with person_id, as score returns without store=")
    if _VALUES not in scores:
        raise InputError(
            f"scores have no {_VALUES}, of which ranks are drawn; use "
            f"score(responses, posterior, n_plausible=1000), without store="
        )
    values = scores[_VALUES]
    if values.ndim != 2:
        raise InputError(
            f"scores are of {values.sizes['latent_dims']} abilities, which do not rank persons; "
            f"choose one: scores.isel(latent_dims=0)"
        )
    found = values.transpose(PERSONS, ...).values
    if not np.isfinite(found).all():
        raise InputError(f"scores have {_VALUES} that are not finite")
    return found


def _check(k: Any, level: Any, n_persons: int, n_draws: int) -> None:
    if whole_number("k", k, 1) >= n_persons:
        raise InputError(f"k={k} must be below {n_persons}, the number of persons")
    check_level(level)
    least = math.ceil(level / (1.0 - level) - _ROUNDING)
    if n_draws < least:
        raise InputError(
            f"level={level:g} needs at least {least} plausible values, and scores have {n_draws}; "
            f"score with a larger n_plausible (1000, say)"
        )


def _abilities(scores: xr.Dataset, values: Floats) -> tuple[Floats, str]:
    """Posterior means, and what they are of."""
    if scores.attrs.get("method") == "eap" and "person_ability" in scores:
        return scores["person_ability"].values, "eap"
    return values.mean(axis=1), "mean of plausible values"


def _ranks(values: Floats, *, ties_by_chance: bool = True) -> NDArray[np.int32]:
    """Ranks of persons (persons, draws) in each draw, 1 the most able.

    Ties are broken anew in each draw: in the order of the persons the first would be the better.
    """
    n, n_draws = values.shape
    out = np.empty((n, n_draws), dtype=np.int32)
    size = max(1, _CELLS // n)
    numbers = np.arange(1, n + 1, dtype=np.int32)[:, None]
    for first in range(0, n_draws, size):
        some = slice(first, first + size)
        order = np.argsort(-values[:, some], axis=0, kind="stable")
        np.put_along_axis(out[:, some], order, numbers, axis=0)
        in_order = np.take_along_axis(values[:, some], order, axis=0)
        tied = (in_order[1:] == in_order[:-1]).any(axis=0) & ties_by_chance
        for k in first + np.flatnonzero(tied):
            shuffled = keyed_random.generator(0, "ties of ranks", int(k)).permutation(n)
            order = shuffled[np.argsort(-values[shuffled, k], kind="stable")]
            out[order, k] = numbers[:, 0]
    return out


class _Band(NamedTuple):
    """Intervals, and the share of the draws in them; ``margin`` is beyond the extremes."""

    lower: Ints
    upper: Ints
    order: int
    margin: float
    inside: float


def _band(ranks: NDArray[np.int32], level: float) -> _Band:
    """Intervals in which a further draw lies with a probability of ``level``, for all persons."""
    n, n_draws = ranks.shape
    parts = [slice(k, k + _part(n_draws)) for k in range(0, n, _part(n_draws))]
    needed = np.max([_needed(ranks[some]) for some in parts], axis=0)
    # Another draw may move any of these up by one.
    of_all = np.sort(needed)[math.ceil(level * (n_draws + 1) - _ROUNDING) - 1] + 1.0
    order, margin = int(min(of_all, n_draws)), max(0.0, float(of_all) - n_draws)
    lower, upper = np.empty((2, n), dtype=np.int64)
    inside = np.ones(n_draws, dtype=bool)
    for some in parts:
        own = ranks[some]
        of_each = np.sort(own, axis=1)
        low, high = of_each[:, n_draws - order], of_each[:, order - 1]
        beyond = np.floor(margin * (high - low + 1.0) + _ROUNDING)
        lower[some], upper[some] = np.maximum(low - beyond, 1), np.minimum(high + beyond, n)
        inside &= ((own >= lower[some, None]) & (own <= upper[some, None])).all(axis=0)
    return _Band(lower, upper, order, margin, float(inside.mean()))


def _part(n_draws: int) -> int:
    """Persons that are looked at together."""
    return max(1, _CELLS // n_draws)


def _needed(ranks: NDArray[np.int32]) -> Floats:
    """Order of the intervals of the other draws that a draw needs to be in them for all persons.

    Order u is between the order statistics R - u and u of the R - 1 others; R - 1 + c is c times
    as many ranks beyond their extremes as there are from one to the other.
    """
    n_draws = ranks.shape[1]
    by = np.argsort(ranks, axis=1, kind="stable")
    x = np.take_along_axis(ranks, by, axis=1)
    place = np.arange(n_draws)
    first = np.diff(x, axis=1, prepend=x[:, :1] - 1) > 0  # of those that are equal
    last = np.diff(x, axis=1, append=x[:, -1:] + 1) > 0
    below = np.maximum.accumulate(np.where(first, place, 0), axis=1)
    not_above = np.minimum.accumulate(np.where(last, place, n_draws)[:, ::-1], axis=1)[:, ::-1] + 1
    needed = np.maximum(below + 1, n_draws + 1 - not_above).astype(float)
    for end, next_to, other in ((-1, -2, 0), (0, 1, -1)):
        away, width = (np.abs(x[:, i] - x[:, next_to]) for i in (end, other))
        alone = away > 0
        needed[alone, end] = n_draws - 1 + (away / (width + 1.0))[alone]
    of_each = np.empty_like(needed)
    np.put_along_axis(of_each, by, needed, axis=1)
    return np.asarray(of_each.max(axis=0))
