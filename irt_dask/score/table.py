"""Conversion of raw scores on a complete form to abilities."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.optimize import brentq

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.grids import ability_bound
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import dataset
from irt_dask.errors import InputError, listed
from irt_dask.items.parameters import bank_item_ids, item_set
from irt_dask.kernels.responses.layouts import Dense
from irt_dask.population.population import NOBODY_APART, STANDARD
from irt_dask.score import axis
from irt_dask.score.checks import warn_of_standard
from irt_dask.store.freed_items import refuse_together

METHODS = ("eap", "tcc", "wle")


def score_table(
    items: xr.Dataset, *, method: str = "eap", ability: tuple[float, float] | None = None
) -> xr.Dataset:
    """Convert raw scores (sums of the responses) to abilities, of persons who answered every item.

    Parameters
    ----------
    items : Dataset
        A fit or an item bank: the items of the form, all of them.  To convert the
        scores on a part of a bank select it first, ``bank.isel(items=...)``.  Of a concurrent
        calibration it is the form of one group: of an item and those that are freed from it in
        groups ("item@group") one.
    method : {"eap", "tcc", "wle"}
        "eap": mean and standard deviation of ability given the score alone, not the pattern.
        "tcc": the ability at which the score is expected, the inverse of the test characteristic
        curve, within the bounds of :func:`score`'s "ml"; in the 1PL it is the maximum likelihood
        estimate.  For items that all rise with ability, or all fall.  "wle": Warm's weighted
        likelihood estimate; for items of one slope without guessing, whose patterns of one score
        have one estimate.
    ability : (mean, sd), optional
        Of the normal distribution of ability of "eap" and of ``score_probability``; (0, 1) by
        default.

    Returns
    -------
    Dataset over score, 0 to the highest (with two categories: to the number of items)
        ``score_ability`` with ``score_ability_sd`` ("eap") or ``score_ability_se``, and
        ``score_probability``, the share of persons expected to have the score.  The standard error
        of "tcc" is that of the score over the slope of the curve (``sqrt(sum P Q) / sum P'``);
        where no ability within the bounds has the score it is the bound, with a standard error NaN.
        That of "wle" is ``1 / sqrt(I)``.  A score that takes a category that nobody has
        (``item_category_map``) has probability 0 and NaN.

    Raises
    ------
    InputError

    Warns
    -----
    DataWarning
        If "eap" is of N(0, 1) unasked, and the items were calibrated with other persons.

    Notes
    -----
    Source: Lord and Wingersky (1984) for the distribution of the score given ability, here in
    logarithms, which takes about items^2 x nodes of the ability grid steps: 0.3 s for 200 items.
    Memory: 8 bytes x items x nodes.

    Examples
    --------
    >>> import irt_dask as irt
    >>> table = irt.score_table(irt.fit_marginal(irt.load_lsat()))
    >>> table["score"].values.tolist()
    [0, 1, 2, 3, 4, 5]
    >>> table["score_ability"].round(1).values.tolist()
    [-1.9, -1.4, -0.9, -0.4, 0.1, 0.6]
    """
    if method not in METHODS:
        raise InputError(f"method={method!r} is not available; use {', '.join(METHODS)}")
    mean, sd = _checked((0.0, 1.0) if ability is None else ability)
    item_id = bank_item_ids(items)
    if not item_id:
        raise InputError("items has no item: a form needs at least one")
    refuse_together(items)
    if ability is None and method == "eap":
        warn_of_standard(items)
    known = item_set(items, item_id)
    if method == "tcc" and any(g.model.name == "nominal" for g in known.groups):
        raise InputError(
            "method='tcc' needs items whose expected score rises with ability, and some are "
            "nominal, whose codes have no order; use method='eap'"
        )
    falls = known.slope() < 0.0
    if method == "tcc" and 0 < falls.sum() < falls.size:
        named = [i for i, x in zip(item_id, falls, strict=True) if x]
        raise InputError(
            f"method='tcc' needs items whose expected scores all rise with ability, or all fall, "
            f"and {len(named)} of {falls.size} fall: {listed(named, 10)}; use method='eap', or "
            f"reverse their scoring"
        )
    expected, spread, probability = _expected(known.rescaled(mean, sd))
    if method == "eap":
        data = {"score_ability": mean + sd * expected, "score_ability_sd": sd * spread}
    else:
        side = -1.0 if falls.all() else 1.0
        found, error = _inverse(known, side) if method == "tcc" else _warm(known)
        data = {"score_ability": found, "score_ability_se": error}
    # A score that takes an empty category says nothing of anybody.
    data = {name: np.where(np.isnan(expected), np.nan, x) for name, x in data.items()}
    data["score_probability"] = probability
    return dataset(
        data,
        coords={"score": np.arange(len(probability))},
        attrs={
            "method": method,
            "model": items.attrs.get("model"),
            "n_items": len(item_id),
            "ability_mean": mean,
            "ability_sd": sd,
        },
    )


def _checked(ability: Any) -> tuple[float, float]:
    try:
        mean, sd = (float(x) for x in ability)
    except (TypeError, ValueError):
        raise InputError(f"ability={ability!r} must be (mean, sd), two numbers") from None
    if not (math.isfinite(mean) and math.isfinite(sd) and sd > 0.0):
        raise InputError(f"ability={ability!r}: both must be finite, and sd above 0")
    return mean, sd


def score_log_probabilities(log_p: Floats, first: Ints) -> Floats:
    """Log probability of each score, (scores, nodes), from those of categories, (rows, nodes).

    Category k of item j has row ``first[j] + k``.
    """
    out = np.zeros((1, log_p.shape[1]))
    for lo, hi in itertools.pairwise(first):
        new = np.full((len(out) + hi - lo - 1, log_p.shape[1]), -np.inf)
        for k in range(hi - lo):
            into = new[k : k + len(out)]
            np.logaddexp(into, out + log_p[lo + k], out=into)
        out = new
    return out


def _expected(items: ItemSet) -> tuple[Floats, Floats, Floats]:
    """Mean, SD and probability of each score for abilities from N(0, 1)."""
    nodes = STANDARD.nodes(items)
    log_p = items.log_p(nodes)
    log_p[items.empty] = -np.inf
    log = score_log_probabilities(log_p, items.first) - 0.5 * nodes**2
    peak = log.max(axis=1, keepdims=True)
    there = np.isfinite(peak)
    w = np.exp(log - np.where(there, peak, 0.0))
    total = np.where(there[:, 0], w.sum(axis=1), np.nan)
    mean = w @ nodes / total
    sd = np.sqrt((w * (nodes - mean[:, None]) ** 2).sum(axis=1) / total)
    total = np.where(there[:, 0], total, 0.0)
    density = np.exp(peak[:, 0]) * total * (nodes[1] - nodes[0]) / math.sqrt(2.0 * math.pi)
    return mean, sd, density


def _curve(items: ItemSet, theta: float) -> tuple[float, float, float]:
    """Expected score, its slope and the variance of the score at one ability."""
    node = np.array([theta])
    p, slope = np.exp(items.log_p(node))[:, 0], items.by_ability(node)[0][:, 0]
    first = items.first[:-1]
    score = np.arange(p.size) - np.repeat(first, items.n_categories)
    mean = np.add.reduceat(p * score, first)
    apart = score - np.repeat(mean, items.n_categories)
    return float(mean.sum()), float((p * slope * score).sum()), float((p * apart**2).sum())


def _inverse(items: ItemSet, side: float) -> tuple[Floats, Floats]:
    """Ability at which each score is expected, and its standard error.

    Expected scores rise with ability if ``side`` is 1, and fall if it is -1.
    """
    items, bound = items.rescaled(0.0, side), ability_bound(items)
    low, high = (_curve(items, x)[0] for x in (-bound, bound))
    n_scores = 1 + int((items.n_categories - 1).sum())
    theta, se = np.full((2, n_scores), np.nan)
    for score in range(n_scores):
        if score <= low or score >= high:
            theta[score] = -bound if score <= low else bound
            continue
        theta[score] = brentq(lambda x, s=score: _curve(items, x)[0] - s, -bound, bound, xtol=1e-12)
        _, slope, variance = _curve(items, theta[score])
        se[score] = math.sqrt(variance) / slope
    return side * theta, se


def _warm(items: ItemSet) -> tuple[Floats, Floats]:
    """Weighted likelihood estimate of one pattern of each score: of all, where slopes are one."""
    if not _one_slope(items):
        raise InputError(
            "method='wle' of raw scores needs items of one discrimination without guessing (1PL, "
            "partial credit, rating scale), whose categories count as they are coded: in other "
            "models it depends on the pattern; use score(method='wle'), or 'tcc'"
        )
    found = axis.estimates(Dense(_patterns(items)), "wle", items, STANDARD, NOBODY_APART)
    return found["person_ability"], found["person_ability_se"]


def _patterns(items: ItemSet) -> NDArray[np.int8]:
    """Codes of somebody with each score, (scores, items), without categories that nobody has.

    Of a score that nobody can have they are any codes.
    """
    possible = [np.flatnonzero(~items.empty[lo:hi]) for lo, hi in itertools.pairwise(items.first)]
    n_scores = 1 + int((items.n_categories - 1).sum())
    reached = [np.arange(n_scores) == 0]  # by the first items
    for codes in possible[:-1]:
        one = np.zeros(n_scores, dtype=bool)
        for k in codes:
            one[k:] |= reached[-1][: n_scores - k]
        reached.append(one)
    out, left = np.empty((n_scores, items.n_items), dtype=np.int8), np.arange(n_scores)
    for j in reversed(range(items.n_items)):
        out[:, j], open_ = possible[j][0], np.ones(n_scores, dtype=bool)
        for k in possible[j]:
            right = open_ & (left >= k) & reached[j][left - k]
            out[right, j], open_[right] = k, False
        left = np.maximum(left - out[:, j], 0)
    return out


def _one_slope(items: ItemSet) -> bool:
    """Whether the sum of the responses says all of ability: scores are multiples of one slope."""
    slopes = []
    for g in items.groups:
        scores = g.model.scores(g.x)
        if scores is None:
            return False
        codes = np.flatnonzero(np.array(g.model.category_map) >= 0)
        rise = scores[:, codes] - scores[:, codes[:1]]
        slope = rise[:, -1] / (codes[-1] - codes[0])
        if not np.allclose(rise, np.outer(slope, codes - codes[0]), rtol=1e-12, atol=0.0):
            return False
        slopes.append(slope)
    of_all = np.concatenate(slopes)
    return bool(np.allclose(of_all, of_all[0], rtol=1e-12, atol=0.0))
