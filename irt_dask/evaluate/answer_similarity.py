"""Persons whose answers are more alike than their abilities explain: copies, and near ones."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import gammainc, gammaincc, ndtr, ndtri

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.inputs import check_level, whole_number
from irt_dask.errors import ApproximationWarning, EstimationError, TooLargeError
from irt_dask.evaluate import equal_answers
from irt_dask.evaluate.abilities import Known, checked, choose
from irt_dask.evaluate.slope_signs import adjusted
from irt_dask.kernels.responses.layouts import columns, to_dense
from irt_dask.store import Block, Responses

#: Pairs of all persons are looked at up to this many persons; beyond, identical ones alone.
MOST_PAIRED = 5000
#: Persons whose identity can be told: 16 bytes each.
_MOST = 10_000_000
#: Cells of a tile of items: residuals of all persons, twice.
_CELLS = 1 << 23
#: Digits to which similarities are compared to find the order: ties have other last bits.
_DIGITS = 9
#: Skewness below which a sum is taken to be normal, and the least p-value that is told apart.
_STRAIGHT, _LEAST_P = 1e-4, 1e-300
#: Quantiles between which a normal distribution has two standard deviations.
_MIDDLE = (0.15865525393145707, 0.8413447460685429)


class _Pairs(NamedTuple):
    """Sums over the items that both of a pair answered, (persons, persons)."""

    products: Floats
    variance: Floats
    third: Floats  # cumulant
    alike: Floats
    expected: Floats
    n: Floats


def answer_similarity(
    responses: Any,
    items: xr.Dataset,
    *,
    fdr: float = 0.05,
    largest: int = 1000,
    ability: tuple[float, float] | None = None,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Pairs of persons, or models, whose answers are more alike than their abilities explain.

    Two models that are one (a copy, a new name, a light fine-tune) answer alike where others of
    their ability differ, wrong answers included.  They count twice in every calibration, and make
    its errors too small.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    items : Dataset
        A fit or an item bank, matched by identifier.
    fdr : float
        Expected share of false ones among the pairs that are returned.
    largest : int
        Pairs to return, at most.
    ability : (mean, sd), optional
        Normal distribution of the persons' abilities on the scale of the items.  Default: the one
        of the highest marginal likelihood (EM, items held); of a fit with ``latent="histogram"``
        its histogram.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over pairs, the most alike first
        ``pair_first_person``, ``pair_second_person``; ``pair_identical``: all answers are the same,
        and so is what was answered; ``pair_similarity``: the sum of products of both persons'
        residuals ``y - E(y | EAP)``, over the root of the sum of products of their variances, as
        the normal deviate with the same tail, less its median over all pairs and over their spread;
        ``pair_similarity_p_value``, one-sided;
        ``pair_similarity_q_value`` over all pairs (Benjamini and Hochberg 1995), at most ``fdr``
        unless the pair is identical; ``pair_agreement``, the share of items answered alike,
        ``pair_expected_agreement`` by the model, and ``pair_n_items``.  Of more than 5,000 persons
        identical ones alone, each with the first of its kind, and only ``pair_identical`` beside
        the names.  attrs: ``n_identical``, persons who have the answers of an earlier one;
        ``n_pairs``; ``similarity_median`` and ``similarity_spread`` of all pairs before they were
        corrected: 0 and 1 if one ability explained all.

    Raises
    ------
    InputError
        If an item of the responses is not among the items, or an option is wrong.
    EstimationError
        If there are not two persons.
    TooLargeError
        For more than 10^7 persons.

    Warns
    -----
    ApproximationWarning
        If there are more than 5,000 persons, so that near copies are not looked for.

    Notes
    -----
    Under the model answers are independent given ability, and the sum of products has mean 0,
    the variance that is divided by, and a third cumulant that is the sum of products of theirs: its
    tail is taken from the gamma distribution with these three.  Where one ability does not explain
    the answers, relatives are alike in what it leaves: the spread of all pairs is then above 1, and
    pairs are judged by it (Efron 2004: an empirical null), as a normal distribution that half the
    pairs lie inside of.
    What is named stands out among *these* persons: a family of many near copies widens the spread
    and hides itself.  Identical answers of persons who are nearly always right need no copy; look
    at ``pair_expected_agreement``.

    Identical rows are found by 128-bit sums, 16 bytes a person in this process.  Pairs: products of
    tiles of items, one pass over the data for each tile (8 million cells); driver memory 110 bytes
    x persons^2, 2.8 GB for 5,000.  Source: the generalised binomial test's idea (van der Linden and
    Sotaridona 2006), with products of residuals in place of counts of matches, as Yen's Q3 has
    them.

    Examples
    --------
    >>> import irt_dask as irt
    >>> answers = irt.simulate(60, 200, seed=1).to_xarray()["response"].values
    >>> answers[41, :180] = answers[7, :180]  # a light fine-tune of model 7
    >>> fit = irt.fit_marginal(answers, prior="empirical", positive="none")
    >>> pairs = irt.answer_similarity(answers, fit)
    >>> pairs["pair_first_person"].values.tolist(), pairs["pair_second_person"].values.tolist()
    (['41'], ['7'])
    """
    check_level(fdr, "fdr")
    whole_number("largest", largest, 1)
    given = checked(ability)
    responses = as_responses(responses, "answer_similarity", graded=True, items=items)
    refuse_weights(responses, "answer_similarity")
    n = responses.n_persons
    if n < 2:
        raise EstimationError("one person is like nobody: give two or more")
    if n > _MOST:
        raise TooLargeError(f"{n} persons are more than {_MOST}, whose sums this process can hold")
    with Engine(
        responses, client=client, progress=progress, stage="similarity", graded=True
    ) as engine:
        known, about = choose(engine, items, given)
        first = equal_answers.first_alike(np.concatenate(engine.map_blocks(_sums)))
        found = None if n > MOST_PAIRED else _pairs(engine, known)
    data, more = _alike_alone(first, largest) if found is None else _judged(found, first, fdr)
    if found is None:
        warnings.warn(
            f"{n} persons are more than {MOST_PAIRED}: identical answers alone are looked for; "
            f"give some of the persons (Responses.select) to find near copies",
            ApproximationWarning,
            stacklevel=2,
        )
    names = _names(responses)
    if found is not None:
        data = {name: x[:largest] for name, x in _by_name(data, names).items()}
    for name in ("pair_first_person", "pair_second_person"):
        data[name] = names[data[name]] if data[name].size else np.zeros(0, dtype=str)
    n_identical = int((first != np.arange(n)).sum())
    return dataset(
        data,
        attrs={
            "method": "answer similarity", **about, "fdr": float(fdr), "n_identical": n_identical,
            **more,
        },
    )  # fmt: skip


def _names(responses: Responses) -> Any:
    blocks = [responses.person_ids(k) for k in range(responses.n_blocks)]
    return np.concatenate(blocks).astype(str)


def _by_name(data: dict[str, Any], names: Any) -> dict[str, Any]:
    """The pairs in an order that is not that of the persons: ends, and ties, by their names."""
    ends = np.stack([data["pair_first_person"], data["pair_second_person"]])
    place = np.argsort(np.argsort(names, kind="stable"), kind="stable")
    ends = np.take_along_axis(ends, np.argsort(place[ends], axis=0), axis=0)
    data = data | {"pair_first_person": ends[0], "pair_second_person": ends[1]}
    z = np.round(data["pair_similarity"], _DIGITS)
    order = np.lexsort((place[ends[1]], place[ends[0]], -z, ~data["pair_identical"]))
    return {name: x[order] for name, x in data.items()}


def _sums(block: Block) -> Any:
    return equal_answers.of_persons(block)


def _alike_alone(first: Ints, largest: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Persons with the answers of an earlier one."""
    second = np.flatnonzero(first != np.arange(first.size))[:largest]
    return {
        "pair_first_person": first[second],
        "pair_second_person": second,
        "pair_identical": np.ones(second.size, dtype=bool),
    }, {"n_pairs": None}


def _abilities(block: Block, known: Known) -> Floats:
    return known.expectations(block.data)[0]


def _tile(block: Block, lo: int, hi: int) -> Any:
    """Answers of a block to some items, -1 not observed."""
    whole = (lo, hi) == (0, block.data.shape[1])
    data = block.data if whole else columns(block.data, np.arange(lo, hi))
    return np.asarray(to_dense(data).values)


def _pairs(engine: Engine, known: Known) -> _Pairs:
    """Sums of all pairs, tile after tile."""
    n, m = engine.responses.n_persons, engine.responses.n_items
    theta = np.concatenate(engine.map_blocks(_abilities, known))
    sums = _Pairs(*(np.zeros((n, n)) for _ in range(6)))
    size = max(1, _CELLS // n)
    for lo in range(0, m, size):
        hi = min(lo + size, m)
        y = np.concatenate(engine.map_blocks(_tile, lo, hi)).T
        _add(sums, y, known.items.take(np.arange(lo, hi)), theta)
        engine.progress.update(hi, m)
    return sums


def _add(sums: _Pairs, y: Any, items: ItemSet, theta: Floats) -> None:
    """Add a tile of items, answers (items, persons), to the sums of all pairs."""
    seen = (y >= 0).astype(float)
    mean, square, cube = np.zeros((3, *y.shape))
    p = np.exp(equal_answers.at_abilities(items, theta))
    for k in range(int(items.n_categories.max())):
        own = np.flatnonzero(items.n_categories > k)
        of = p[items.first[own] + k]
        mean[own] += k * of
        square[own] += k**2 * of
        cube[own] += k**3 * of
        given = np.zeros(y.shape)
        given[own] = y[own] == k
        np.add(sums.alike, given.T @ given, out=sums.alike)
        given[own] = of * seen[own]
        np.add(sums.expected, given.T @ given, out=sums.expected)
    residual = np.where(y >= 0, y - mean, 0.0)
    variance = np.maximum(square - mean**2, 0.0) * seen
    third = (cube - 3.0 * mean * square + 2.0 * mean**3) * seen
    of_each = (residual, variance, third, seen)
    for total, x in zip((sums.products, sums.variance, sums.third, sums.n), of_each, strict=True):
        np.add(total, x.T @ x, out=total)


def _normal_scores(z: Floats, skewness: Floats) -> Floats:
    """Normal deviates with the tails of z under a gamma distribution of this skewness.

    Two who are both wrong on an easy item are that by chance a few times in a test at most: the sum
    of products is one of few large terms, skewed like their Poisson number.
    """
    out, bent = z.copy(), np.flatnonzero(np.abs(skewness) > _STRAIGHT)
    g, at = skewness[bent], z[bent]
    shape = 4.0 / g**2
    x = np.maximum(shape + 2.0 * at / g, 0.0)
    above = np.where(g > 0.0, gammaincc(shape, x), gammainc(shape, x))
    below = np.where(g > 0.0, gammainc(shape, x), gammaincc(shape, x))
    upper = at > 0.0  # the smaller of both tails is the one that has digits
    tail = ndtri(np.maximum(np.where(upper, above, below), _LEAST_P))
    out[bent] = np.where(upper, -tail, tail)
    return out


def _judged(sums: _Pairs, first: Ints, fdr: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pairs that stand out, and identical ones."""
    one, two = np.triu_indices(first.size, 1)
    v, n = sums.variance[one, two], sums.n[one, two]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(v > 0.0, sums.products[one, two] / np.sqrt(v), np.nan)
        skewness = np.where(v > 0.0, sums.third[one, two] / np.sqrt(v) ** 3, 0.0)
        agreement, expected = sums.alike[one, two] / n, sums.expected[one, two] / n
    z = _normal_scores(z, skewness)
    low, median, high = np.nanquantile(z, (_MIDDLE[0], 0.5, _MIDDLE[1])) if v.any() else (0, 0, 0)
    spread = 0.5 * float(high - low)
    z = (z - median) / max(spread, 1.0)
    p = ndtr(-z)
    q = adjusted(p)
    identical: Bools = first[one] == first[two]
    named = np.flatnonzero((q <= fdr) | identical)
    data = {
        "pair_first_person": one, "pair_second_person": two, "pair_identical": identical,
        "pair_similarity": z, "pair_similarity_p_value": p, "pair_similarity_q_value": q,
        "pair_agreement": agreement, "pair_expected_agreement": expected,
        "pair_n_items": n.astype(np.int64),
    }  # fmt: skip
    about = {
        "n_pairs": one.size, "similarity_median": float(median), "similarity_spread": spread,
        "n_named": int(named.size),
    }  # fmt: skip
    return {name: x[named] for name, x in data.items()}, about
