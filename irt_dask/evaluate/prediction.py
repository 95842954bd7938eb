"""Marginal likelihood, and predictions of each response by one of three protocols."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import xlogy

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.errors import EstimationError, InputError
from irt_dask.evaluate.abilities import Known, parts
from irt_dask.items.parameters import item_set
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.misfit import predictions
from irt_dask.kernels.responses import response_counts
from irt_dask.population import em
from irt_dask.population.population import NOBODY_APART, STANDARD, Population
from irt_dask.store import Block

_CLASSES = 1 << 16
_LOGIT_RANGE = 30.0

_PROTOCOLS = ("held-out", "own", "items")

#: Items whose curves are tabulated at a time.
_SOME_ITEMS = 512


def _evaluate(block: Block, known: Known, scale: float, protocol: str) -> tuple[Any, ...]:
    """Fixed-point sums of log marginals and log predictions; responses by class; by item."""
    ability, _, marginal = known.expectations(block.data)
    in_whole = fixed_point.fixed(marginal, scale).sum()
    by_item = response_counts.response_counts(block.data)
    if protocol == "items":  # the counts say it all
        none = np.zeros(0, dtype=np.int64)
        return in_whole, np.int64(0), none, none, *by_item
    log_score, by_class, first = np.int64(0), np.zeros((2, _CLASSES), dtype=np.int64), 0
    for data in parts(block.data):
        if protocol == "own":
            theta = ability[first : first + data.shape[0]]
            given = predictions.at_abilities(data, theta, known.between())
        else:
            given = known.left_out(data)
        first += data.shape[0]
        with np.errstate(divide="ignore"):  # a certain response belongs to the outermost class
            log_given, log_other = np.log(given), np.log1p(-given)
        log_score += fixed_point.fixed(log_given, scale).sum()
        right = data.values[data.values >= 0] == 1
        logit = np.where(right, log_given - log_other, log_other - log_given)
        place = (logit + _LOGIT_RANGE) * (_CLASSES / (2.0 * _LOGIT_RANGE))
        klass = np.clip(place, 0, _CLASSES - 1).astype(np.int64)
        for k, which in enumerate((right, ~right)):
            by_class[k] += np.bincount(klass[which], minlength=_CLASSES)
    return in_whole, log_score, *by_class, *by_item


def _by_items(known: Known, right: Any, seen: Any) -> tuple[float, Ints, Ints]:
    """Log score, right and wrong by class of prediction, if nothing is known of persons.

    The prediction of an item is its share of right answers, ability integrated out: items of equal
    predictions are a class, so the AUC is exact.
    """
    mass = np.exp(known.population.prior(known.nodes, NOBODY_APART)[0].log_mass[0])
    mass /= mass.sum()
    m = known.items.n_items
    q, p = np.empty((2, m))
    for lo in range(0, m, _SOME_ITEMS):
        some = np.arange(lo, min(lo + _SOME_ITEMS, m))
        each = (mass * np.exp(known.items.take(some).log_p(known.nodes))).sum(axis=1)
        q[some], p[some] = each[::2], each[1::2]
    wrong = seen - right
    score = float((xlogy(right, p) + xlogy(wrong, q)).sum())
    klass = np.unique(p, return_inverse=True)[1]
    size = int(klass.max()) + 1
    totals = (np.bincount(klass, weights=x, minlength=size) for x in (right, wrong))
    by_class = [np.rint(x).astype(np.int64) for x in totals]
    return score, by_class[0], by_class[1]


def _choose_abilities(
    responses: Any, items: xr.Dataset, client: Any, progress: ProgressOption
) -> Population:
    """The normal distribution of ability of the highest likelihood."""
    responses = as_responses(responses, "evaluate(validation=)", items=items)
    refuse_weights(responses, "evaluate(validation=)")
    own = item_set(items, responses.item_id)
    with Engine(responses, client=client, progress=progress, stage="abilities") as engine:
        return em.one_normal(engine, own).population


def _top_accuracy(
    items: ItemSet, right: Any, seen: Any, top: tuple[int, ...], least: int
) -> Floats:
    """Share of the K hardest items that are among the K of the lowest share of right answers.

    Ties in the order of the items.
    """
    kept = np.flatnonzero(seen >= least)
    for k in top:
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= kept.size:
            raise InputError(
                f"top={k!r} must be a whole number of at least 1 and at most the {kept.size} items "
                f"with {least} responses or more"
            )
    share = np.argsort(right[kept] / seen[kept], kind="stable")
    hard = np.sign(items.slope()) * items.difficulty()  # of falling items those of low difficulty
    fitted = np.argsort(-hard[kept], kind="stable")
    return np.array([np.intersect1d(share[:k], fitted[:k]).size / k for k in top])


def run(
    responses: Any, items: xr.Dataset, validation: Any, top: tuple[int, ...], least: int,
    protocol: str, client: Any, progress: ProgressOption,
) -> xr.Dataset:  # fmt: skip
    """See :func:`irt_dask.evaluate`."""
    if protocol not in _PROTOCOLS:
        raise InputError(f"protocol={protocol!r}: use {', '.join(map(repr, _PROTOCOLS))}")
    responses = as_responses(responses, "evaluate", items=items)
    refuse_weights(responses, "evaluate")
    own, population = item_set(items, responses.item_id), STANDARD
    if validation is not None:
        population = _choose_abilities(validation, items, client, progress)
    known = Known.of(own, population)
    worst = 1.0 - float(own.log_p(known.nodes[[0, -1]]).min())  # largest absolute log probability
    scale = fixed_point.scale_for(responses.n_persons * responses.n_items * worst)
    with Engine(responses, client=client, progress=progress, stage="evaluation") as engine:
        marginal, given, right, wrong, item_right, item_seen = engine.map_reduce(
            _evaluate, known, scale, protocol, report=True
        )
    log_score = float(given) / scale
    if protocol == "items":
        log_score, right, wrong = _by_items(known, item_right, item_seen)
    n_right, n_wrong = int(right.sum()), int(wrong.sum())
    n = n_right + n_wrong
    if n == 0:
        raise EstimationError("there is no observed response to evaluate")
    below = np.cumsum(wrong) - wrong
    wins = float(right @ (below + 0.5 * wrong))
    return dataset(
        {
            "log_likelihood": float(marginal) / scale,
            "log_likelihood_per_response": float(marginal) / scale / n,
            "log_score": log_score / n,
            "auc": wins / (n_right * n_wrong) if n_right and n_wrong else math.nan,
            "n_responses": n,
            **(
                {"top_accuracy": _top_accuracy(own, item_right, item_seen, top, least)}
                if top
                else {}
            ),
        },
        coords={"top": np.array(top)} if top else None,
        attrs={
            "method": "evaluate",
            "protocol": protocol,
            "model": items.attrs.get("model"),
            "n_persons": responses.n_persons,
            "ability_mean": known.mean,
            "ability_sd": known.sd,
        },
    )
