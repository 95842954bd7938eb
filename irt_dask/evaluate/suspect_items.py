"""Questions that are probably wrong: turned round, misfitting, asked twice, of no information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.inputs import check_level
from irt_dask.evaluate import equal_answers, slope_signs
from irt_dask.evaluate.abilities import Known, choose
from irt_dask.evaluate.item_fit import group_chi2
from irt_dask.kernels.base import fixed_point
from irt_dask.store import Block

#: Reasons in the order in which they rank; named in alphabetical order.
REASONS = ("negative_slope", "all_wrong", "duplicate", "misfit", "all_right")


@dataclass(frozen=True)
class _Counted:
    """What one pass finds: who has the lowest and the highest category, equal columns, chance."""

    seen: Ints
    all_wrong: Bools
    all_right: Bools
    first: Ints  # the first item with the same answers
    chance: Floats  # P that answers are those of another given item, at most


def suspect_items(
    responses: Any,
    items: xr.Dataset,
    *,
    fdr: float = 0.05,
    fitted: bool = True,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Rank questions that are probably wrong: wrong keys, misfit, duplicates, no information.

    A wrong key turns a question round: able persons are counted as wrong.  With slopes of any sign
    (``positive="none"``) its slope is then minus what it would be.  Each slope's sign is judged
    against all slopes: sizes have one density, for both signs, that is learned from the items, and
    so is the share of negative ones.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    items : Dataset
        A fit with slopes of any sign and standard errors, or draws: ``fit_marginal(responses,
        prior="empirical", positive="none", standard_errors=True)``, or ``fit_bayes(...,
        positive="none")``.
    fdr : float
        Expected share of false ones among the questions that are named for a reason.
    fitted : bool
        Whether the items were estimated from these responses, as in :func:`irt_dask.item_fit`.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over items
        ``item_suspicion``: "ok", or reasons joined by "|": "negative_slope", "misfit", "duplicate",
        "all_right", "all_wrong"; ``item_suspicion_rank``, 1 the most suspect: by reason in the
        order negative slope, all wrong, duplicate, misfit, all right, then by how sure it is, then
        the others by their probability of a negative slope.  ``item_negative_probability``, P(a < 0
        | data), and ``item_negative_q_value``, the expected share of false ones among all at least
        as probable; ``item_chi2``, ``item_chi2_df``, ``item_chi2_p_value`` of ``item_fit`` and
        ``item_misfit_q_value``; ``item_duplicate_of``, the first question with the same answers of
        all persons ("": none), with ``item_duplicate_p_value``, a bound of the probability that
        some other question has this one's answers by chance, and ``item_duplicate_q_value``.
        attrs: ``share_negative``, the share of slopes below 0 that was learned;
        ``expected_false``, how many of the negative slopes that are named are expected to be
        false; ``n_negative_slope`` and so on, how many of each.

    Raises
    ------
    InputError
        If the items' slopes were held positive, or have no standard errors; if an item of the
        responses is not among the items.
    EstimationError
        If no response is observed.

    Notes
    -----
    False discoveries are controlled for each reason by itself.  Negative slopes: posterior
    probabilities P, and the expected share of false ones among the r most probable is the mean of
    1 - P (Newton et al. 2004); that is also right where signs are not independent, which p-values
    would have to assume.  A fit's learned normal prior is taken off again first (the slope and its
    error are those of the likelihood, as if it were normal), since one normal density has no room
    for slopes near 0 beside steep ones, and would call the first negative by chance.  Misfit and
    duplicates: Benjamini and Hochberg (1995).

    What it cannot see.  Ability is turned to where most questions agree: if more than half of the
    keys are wrong, the right ones look turned round.  A negative slope is a fact about these
    persons, and its cause may be another one than the key: a question that deceives the able ones,
    or another ability.  Persons who are copies of each other (``answer_similarity``) count as
    independent, and make errors too small.  Equal answers to two easy questions are no surprise,
    and are named only where chance would not do it: the bound takes every other question for as
    likely to have these answers as this one.

    Four passes over the data, and one for each EM step (some ten) of the distribution of ability;
    with groups of persons, whose distributions are their own in chi-squares, as many again.
    Driver memory: 600 bytes an item, and items x sizes of slopes (about 100) x 8 bytes some times.

    Examples
    --------
    >>> import irt_dask as irt
    >>> answers = irt.simulate(300, 40, seed=1).to_xarray()["response"].values
    >>> answers[:, 7] = 1 - answers[:, 7]  # a wrong key
    >>> fit = irt.fit_marginal(
    ...     answers, prior="empirical", positive="none", standard_errors=True
    ... )
    >>> found = irt.suspect_items(answers, fit)
    >>> found["item_id"][found["item_suspicion"] == "negative_slope"].values.tolist()
    ['7']
    >>> int(found["item_suspicion_rank"][7])
    1
    """
    check_level(fdr, "fdr")
    responses = as_responses(responses, "suspect_items", graded=True, items=items)
    refuse_weights(responses, "suspect_items")
    signs = slope_signs.signs(items, responses.item_id)
    with Engine(
        responses, client=client, progress=progress, stage="suspect items", graded=True
    ) as engine:
        known, about = choose(engine, items, None)
        counted = _counted(engine, known)
        fit = group_chi2(responses, items, fitted, client, (engine, known))
    data = _judged(signs, fit, counted, responses.item_id, fdr)
    reasons = data["item_suspicion"]
    split = [text.split("|") for text in reasons]
    return dataset(
        data,
        item_id=responses.item_id,
        attrs={
            "method": "suspect items",
            **about,
            "fdr": float(fdr),
            "share_negative": signs.share,
            "expected_false": float((1.0 - signs.negative)[_has(split, REASONS[0])].sum()),
            **{f"n_{reason}": int(_has(split, reason).sum()) for reason in REASONS},
        },
    )


def _has(split: list[list[str]], reason: str) -> Bools:
    return np.array([reason in one for one in split], dtype=bool)


def _counted(engine: Engine, known: Known) -> _Counted:
    counts = engine.map_reduce(_categories, known.items.first)[0]
    sums = engine.map_reduce(_equal)[0]
    n, m = engine.n_persons, known.items.n_items
    unit = fixed_point.scale_for(n * equal_answers.FARTHEST)
    minus = engine.map_reduce(_minus_log_p, known, unit)[0] / unit
    seen = np.add.reduceat(counts, known.items.first[:-1])
    low, high = known.items.ends
    lowest = counts[known.items.first[:-1] + low] == seen
    highest = counts[known.items.first[:-1] + high] == seen
    first = equal_answers.first_alike(sums)
    chance = np.minimum((m - 1) * np.exp(-minus), 1.0)
    return _Counted(seen, lowest & (seen > 0), highest & (seen > 0), first, chance)


def _categories(block: Block, first: Ints) -> tuple[Ints]:
    y = equal_answers.to_sparse(block.data)
    at = first[y.indices] + y.values
    return (np.bincount(at, minlength=int(first[-1])).astype(np.int64),)


def _equal(block: Block) -> tuple[Any]:
    return (equal_answers.of_items(block),)


def _minus_log_p(block: Block, known: Known, unit: float) -> tuple[Ints]:
    return (equal_answers.minus_log_p(block, known, unit),)


def _judged(
    signs: slope_signs.Signs, fit: dict[str, Any], counted: _Counted, item_id: tuple[str, ...],
    fdr: float,
) -> dict[str, Any]:  # fmt: skip
    """What is said of the items, the reasons among it."""
    m = len(item_id)
    some = counted.seen > 0
    constant = counted.all_wrong | counted.all_right
    q_negative, negative = slope_signs.discoveries(signs.negative, fdr)
    q_misfit = slope_signs.adjusted(fit["item_chi2_p_value"])
    # Constants are all alike, and are named for that already; nobody's answers say nothing.
    alike = _several(counted.first) & some & ~constant
    chance = np.where(alike, counted.chance, 1.0)
    q_equal = slope_signs.adjusted(chance)
    named = {
        "negative_slope": negative & some & ~constant,
        "all_wrong": counted.all_wrong,
        "duplicate": alike & (q_equal <= fdr),
        "misfit": q_misfit <= fdr,
        "all_right": counted.all_right,
    }
    names = np.array(item_id, dtype=str)
    of = np.where(alike & (counted.first != np.arange(m)), names[counted.first], "")
    return {
        "item_suspicion": _in_words(named, m),
        "item_suspicion_rank": _ranks(named, signs.negative, chance, fit["item_chi2_p_value"]),
        "item_negative_probability": signs.negative,
        "item_negative_q_value": q_negative,
        **fit,
        "item_misfit_q_value": q_misfit,
        "item_duplicate_of": of,
        "item_duplicate_p_value": np.where(alike, chance, np.nan),
        "item_duplicate_q_value": np.where(alike, q_equal, np.nan),
        "item_n_responses": counted.seen,
    }


def _several(first: Ints) -> Bools:
    """Those whose answers another item has too."""
    n = np.bincount(first, minlength=first.size)
    return np.asarray(n[first] > 1)


def _in_words(named: dict[str, Bools], m: int) -> Any:
    words = [[name for name in sorted(named) if named[name][j]] for j in range(m)]
    return np.array(["|".join(own) or "ok" for own in words], dtype=str)


def _ranks(named: dict[str, Bools], negative: Floats, chance: Floats, p: Floats) -> Ints:
    """1 the most suspect: by the first reason, and how sure that is."""
    m = negative.size
    tier, sure = np.full(m, len(REASONS)), -negative
    certain = {"duplicate": chance, "misfit": np.nan_to_num(p, nan=1.0)}
    for k in reversed(range(len(REASONS))):
        own = named[REASONS[k]]
        tier[own] = k
        sure = np.where(own, certain.get(REASONS[k], -negative), sure)
    order = np.lexsort((np.arange(m), sure, tier))
    out = np.empty(m, dtype=np.int64)
    out[order] = np.arange(1, m + 1)
    return out
