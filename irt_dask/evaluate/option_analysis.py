"""Which options of multiple-choice items persons chose, and how able these persons are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy import special, stats

from irt_dask.arrays import Floats, Ints
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.inputs import check_level
from irt_dask.errors import EstimationError, InputError, listed
from irt_dask.evaluate.doubted_keys import LEAST, MINOR
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.responses.layouts import to_sparse
from irt_dask.store import Block

#: Reasons, as they are joined.
REASONS = (
    "attractive_distractor",
    "better_option",
    "negative_key",
    "nobody_right",
    "untested",
    "unused_option",
)
#: Shares right are whole multiples of this, so that sums over items are exact.
_UNIT = 1 << 30
#: Classes of standing by which fifths are parted.
_CLASSES, _FIFTHS = 4096, 5


class _Coded(NamedTuple):
    """The options of all items, one after the other, and the right ones."""

    first: Ints  # (items + 1,)
    key: Ints


def _counts(block: Block, coded: _Coded) -> tuple[Ints]:
    """How often each option was chosen."""
    data = to_sparse(block.data)
    at = coded.first[data.indices] + data.values
    return (np.bincount(at, minlength=int(coded.first[-1])),)


class _Standing(NamedTuple):
    """Options that the persons of a block chose, and how these did on other items.

    ``rest`` is the share right of the person's other answers less that of all persons on the same
    items; who has no other answer is left out.
    """

    option: Ints
    rest: Floats


def _standing(block: Block, coded: _Coded, share: Ints) -> _Standing:
    data = to_sparse(block.data)
    right = data.values == coded.key[data.indices]
    above = right * np.int64(_UNIT) - share[data.indices]
    n = np.diff(data.indptr)
    total = np.zeros(n.size, dtype=np.int64)
    has = n > 0
    total[has] = np.add.reduceat(above, data.indptr[:-1][has])
    several = np.repeat(n > 1, n)
    others = (np.repeat(total, n) - above)[several]
    rest = others / (np.repeat(n - 1, n)[several] * float(_UNIT))
    return _Standing(coded.first[data.indices[several]] + data.values[several], rest)


def _moments(block: Block, coded: _Coded, share: Ints, scale: float) -> tuple[Ints, Ints]:
    """Number, sum and sum of squares by option; histogram over all."""
    s = _standing(block, coded, share)
    out = np.zeros((3, int(coded.first[-1])), dtype=np.int64)
    once = np.ones(s.rest.size, dtype=np.int64)
    squares = fixed_point.fixed(s.rest**2, scale)
    for row, x in zip(out, (once, fixed_point.fixed(s.rest, scale), squares), strict=True):
        np.add.at(row, s.option, x)
    at = np.floor((s.rest + 1.0) * (_CLASSES / 2)).clip(0, _CLASSES - 1)
    return out, np.bincount(at.astype(np.int64), minlength=_CLASSES)


def _by_fifth(block: Block, coded: _Coded, share: Ints, ends: Floats) -> tuple[Ints]:
    """How often each option was chosen, by fifths of the persons, (options, fifths)."""
    s = _standing(block, coded, share)
    at = s.option * _FIFTHS + np.searchsorted(ends, s.rest, side="right")
    found = np.bincount(at, minlength=int(coded.first[-1]) * _FIFTHS)
    return (found.reshape(-1, _FIFTHS),)


def option_analysis(
    responses: Any,
    key: int | str | Mapping[str, int | str],
    *,
    labels: Sequence[str] | None = None,
    fdr: float = 0.05,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Who chose which option of multiple-choice items: the key and its distractors.

    Able persons should choose the right option, and those who choose another one should be less
    able than the rest.  No model is fitted: persons stand by the share right of their other
    answers.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
        Codes of the options as they were chosen, 0 to K - 1, before any key was applied:
        ``ingest(file, store, recode={"A": 0, "B": 1, ...}, categories=4)``.
    key : mapping of item_id to the right option, or one option for all items
        A code, or one of the ``labels``.
    labels : names of the options 0, 1, ..., optional
    fdr : float
        Expected share of false ones among the options that are named for whom they attract.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over items and categories
        ``item_option_count``, ``item_option_share`` of those who answered; ``item_option_rest``,
        mean over those who chose it of the share right of their other answers, less the mean of all
        persons' shares right on the same items, so that persons with other booklets compare;
        ``item_option_correlation`` of having chosen it with that standing (point-biserial, without
        the item), ``item_option_p_value`` (one-sided, Student's t: that it is below 0 for the key,
        above 0 for another option; at least one over the number of ways to choose so many of the
        persons) and ``item_option_q_value`` (Benjamini and Hochberg, over all
        options of all items); over fifths of that standing (of all answers), the weakest
        first, ``item_option_curve``, the share of each fifth that chose it (NaN where nobody is in
        one, as with few items).  ``item_option_key``, the right
        option; ``item_option_flag``: "ok", or reasons joined by "|": "negative_key" (the key
        attracts the weaker), "attractive_distractor" (another option attracts the abler),
        "better_option" (such a one does so more than the key: a wrong key?), "nobody_right",
        "unused_option" (nobody chose it), "untested" (no option could be).  NaN where nobody chose
        an option or it does not vary; p-values also where fewer than five persons chose it, or did
        not.
        attrs: ``labels``, ``n_flagged`` (items with another reason than the last two),
        ``n_persons``.

    Raises
    ------
    InputError
        If the key lacks an item, or names an option that the item does not have; for persons with
        weights, or options out of their range.
    EstimationError
        If nobody answered two items.

    Notes
    -----
    *What it cannot see.* With few items the others say little of ability, and correlations are
    small.  If most keys are wrong, the standing of persons is turned round, and so is everything.
    Of booklets the difference of shares right corrects for how hard they are, to first order; where
    they differ much score with a model and look at ``suspect_items``.  Not answered is not an
    option: give it a code of its own where omissions are of interest.

    Three passes over the data.  Driver memory: some 400 bytes an option.
    Source: Lord and Novick (1968); Haladyna (2004), Developing and validating multiple-choice test
    items.

    Examples
    --------
    >>> import irt_dask as irt, numpy as np
    >>> right = irt.simulate(500, 8, seed=1).to_xarray()["response"].values
    >>> wrong = np.random.default_rng(1).integers(1, 4, right.shape)
    >>> chosen = np.where(right == 1, 0, wrong)  # option 0 is right ...
    >>> chosen[:, 3] = np.array([2, 1, 0, 3])[chosen[:, 3]]  # ... but of item 3 it is option 2
    >>> answers = irt.from_array(chosen.astype(np.int8), categories=4)
    >>> found = irt.option_analysis(answers, "A", labels="ABCD")
    >>> found["item_option_flag"].values[:4].tolist()
    ['ok', 'ok', 'ok', 'attractive_distractor|better_option|negative_key']
    """
    check_level(fdr, "fdr")
    responses = as_responses(responses, "option_analysis", graded=True)
    refuse_weights(responses, "option_analysis")
    k = np.array(responses.n_categories, dtype=np.int64)
    names = None if labels is None else _names(labels, int(k.max()))
    coded = _Coded(np.concatenate([[0], np.cumsum(k)]), _keys(key, responses.item_id, k, names))
    with Engine(
        responses, client=client, progress=progress, stage="options", graded=True
    ) as engine:
        (count,) = engine.map_reduce(_counts, coded)
        n = np.add.reduceat(count, coded.first[:-1])
        right = count[coded.first[:-1] + coded.key]
        share = np.where(n > 0, np.rint(right / np.maximum(n, 1) * _UNIT), 0).astype(np.int64)
        scale = fixed_point.scale_for(max(responses.n_persons, 1))
        sums, standings = engine.map_reduce(_moments, coded, share, scale)
        if not sums[0].any():
            raise EstimationError("nobody answered two items: there is nothing to compare with")
        (fifths,) = engine.map_reduce(_by_fifth, coded, share, _ends(standings))
    table = _described(coded, count, sums, scale, fifths)
    flag = _flags(coded, table, fdr)
    place = np.repeat(np.arange(k.size), k), np.arange(count.size) - np.repeat(coded.first[:-1], k)
    return dataset(
        {f"item_option_{name}": _by_item(x, place, k) for name, x in table.items()}
        | {"item_option_key": coded.key, "item_option_flag": flag},
        item_id=responses.item_id,
        attrs={
            "method": "option analysis",
            "labels": list(names) if names else [str(c) for c in range(int(k.max()))],
            "fdr": fdr,
            "n_flagged": sum(not MINOR.issuperset(f.split("|")) for f in flag.tolist()),
            "n_persons": responses.n_persons,
        },
    )


# --- options --------------------------------------------------------------------------------------


def _names(labels: Sequence[str], n: int) -> tuple[str, ...]:
    found = tuple(map(str, labels))
    if len(found) < n or len(set(found)) < len(found):
        raise InputError(
            f"labels={list(found)} must be {n} different names at least: items have up to {n} "
            f"options"
        )
    return found


def _keys(key: Any, item_id: tuple[str, ...], k: Ints, names: tuple[str, ...] | None) -> Ints:
    """Code of the right option of each item."""
    if not isinstance(key, Mapping):
        key = dict.fromkeys(item_id, key)
    key = {str(i): option for i, option in key.items()}
    if lacking := [i for i in item_id if i not in key]:
        raise InputError(f"key= lacks {len(lacking)} item(s): {listed(lacking, 10)}")
    out = np.empty(len(item_id), dtype=np.int64)
    for j, i in enumerate(item_id):
        option = key[i]
        if isinstance(option, str) and names is not None and option in names:
            option = names.index(option)
        if isinstance(option, bool) or not isinstance(option, (int, np.integer)):
            known = "codes" if names is None else f"labels ({', '.join(names)})"
            raise InputError(f"key= of item {i} is {key[i]!r}: it must be one of the {known}")
        if not 0 <= option < k[j]:
            raise InputError(
                f"key= of item {i} is option {option}, and the item has options 0 to {k[j] - 1}"
            )
        out[j] = option
    return out


# --- statistics -----------------------------------------------------------------------------------


def _ends(standings: Ints) -> Floats:
    """Standings between fifths; few items make few different ones, and some fifth may be empty."""
    below = np.cumsum(standings)
    at = np.searchsorted(below, below[-1] * np.arange(1, _FIFTHS) / _FIFTHS)
    return (at + 1.0) * (2.0 / _CLASSES) - 1.0


def _described(
    coded: _Coded, count: Ints, sums: Ints, scale: float, fifths: Ints
) -> dict[str, Any]:
    """Statistics of all options, one after the other."""
    starts, k = coded.first[:-1], np.diff(coded.first)

    def of_item(x: Any) -> Any:
        return np.repeat(np.add.reduceat(x, starts, axis=0), k, axis=0)

    n, s1, s2 = sums.astype(float)
    s1, s2 = s1 / scale, s2 / scale
    with np.errstate(divide="ignore", invalid="ignore"):
        all_n = of_item(n)
        mean, q = of_item(s1) / all_n, n / all_n
        variance = of_item(s2) / all_n - mean**2
        # standings are multiples of 2^-30: what is left below is rounding
        sd = np.sqrt(np.where(variance > 1e-15, variance, np.nan))
        r = (s1 / n - mean) / sd * np.sqrt(q / (1.0 - q))
        df = all_n - 2.0
        t = r * np.sqrt(df / np.maximum(1.0 - r * r, 1e-300))
        r[~np.isfinite(r)] = np.nan
        sign = np.ones(n.size)
        sign[starts + coded.key] = -1.0
        p = stats.t.sf(sign * t, df)
        # standings take few values where items or persons are few, and t is then no measure
        p = np.maximum(p, 1.0 / special.binom(all_n, n))
        p[np.isnan(r) | (n < LEAST) | (all_n - n < LEAST)] = np.nan
        curve = fifths / of_item(fifths)
        return {
            "count": count, "share": count / of_item(count), "rest": s1 / n,
            "correlation": r, "p_value": p, "q_value": _adjusted(p), "curve": curve,
        }  # fmt: skip


def _adjusted(p: Floats) -> Floats:
    """Benjamini and Hochberg's, over what there is."""
    out, there = np.full(p.shape, np.nan), np.isfinite(p)
    if there.any():
        out[there] = stats.false_discovery_control(p[there])
    return out


def _flags(coded: _Coded, table: dict[str, Any], fdr: float) -> Any:
    """Reasons of each item."""
    starts, k = coded.first[:-1], np.diff(coded.first)
    item, right = np.repeat(np.arange(k.size), k), np.zeros(int(coded.first[-1]), dtype=bool)
    right[starts + coded.key] = True
    named = table["q_value"] < fdr  # nothing is less than NaN's: no
    of_key = np.nan_to_num(table["correlation"][right], nan=-np.inf)
    better = named & ~right & (table["correlation"] > of_key[item])
    answered = np.add.reduceat(table["count"], starts) > 0
    nobody = (table["count"] == 0) & answered[item]
    found = {
        "attractive_distractor": named & ~right, "better_option": better,
        "negative_key": named & right, "nobody_right": nobody & right,
        "unused_option": nobody & ~right,
    }  # fmt: skip
    by_item = {name: np.bincount(item[x], minlength=k.size) > 0 for name, x in found.items()}
    by_item["untested"] = np.bincount(item[np.isfinite(table["p_value"])], minlength=k.size) == 0
    return np.array(["|".join(r for r in REASONS if by_item[r][j]) or "ok" for j in range(k.size)])


def _by_item(x: Any, place: tuple[Ints, Ints], k: Ints) -> Any:
    """Values of all options as (items, categories, ...), NaN or 0 where an item has none."""
    empty: Any = 0 if x.dtype.kind in "iu" else np.nan
    out = np.full((k.size, int(k.max()), *x.shape[1:]), empty, dtype=x.dtype)
    out[place] = x
    return out
