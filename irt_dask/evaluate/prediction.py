"""Marginal likelihood, and predictions of each response by one of three protocols."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import xlogy

from irt_dask.engine import (
    Engine,
    ProgressOption,
    as_responses,
    dataset,
    item_parameters,
    refuse_weights,
)
from irt_dask.engine.tables import grid_tables
from irt_dask.errors import ConvergenceWarning, EstimationError, InputError
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.posterior import moments
from irt_dask.kernels.posterior.linear_tables import Tables
from irt_dask.kernels.responses import layouts, response_counts
from irt_dask.models import grid_for, reach_of
from irt_dask.store import Block

Floats = NDArray[np.float64]

_CLASSES = 1 << 16
_LOGIT_RANGE = 30.0

_PROTOCOLS = ("held-out", "own", "items")

#: EM steps for the distribution of ability, and the change of its mean and SD that ends them.
_STEPS, _TOLERANCE = 200, 1e-5


def _from_others(data: layouts.Layout, g: Tables) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Log probability of each response given the person's others, the logit of a right one."""
    given, right = moments.left_out(data, g)
    with np.errstate(divide="ignore"):  # a certain response belongs to the outermost class
        log_given, log_other = np.log(given), np.log1p(-given)
    logit = log_given - log_other
    return log_given, np.where(right, logit, -logit), right


def _from_own(
    data: layouts.Layout, g: Tables, ability: Floats
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """The same at each person's ability, estimated from all responses, this one among them."""
    rows = layouts.to_sparse(data)
    person = np.repeat(np.arange(ability.size), np.diff(rows.indptr))
    logit = g.a[rows.indices] * ability[person] + g.d[rows.indices]
    right = rows.values == 1
    return -np.logaddexp(0.0, np.where(right, -logit, logit)), logit, right


def _evaluate(
    block: Block, a: Floats, d: Floats, nodes: Floats, scale: float, protocol: str
) -> tuple[Any, ...]:
    g = grid_tables(a, d, nodes)
    ability, _, marginal = moments.expectations(block.data, g)
    in_whole = np.rint(marginal * scale).astype(np.int64).sum()
    by_item = response_counts.response_counts(block.data)
    if protocol == "items":  # the counts say it all
        none = np.zeros(0, dtype=np.int64)
        return in_whole, np.int64(0), none, none, *by_item
    if protocol == "own":
        log_given, logit, right = _from_own(block.data, g, ability)
    else:
        log_given, logit, right = _from_others(block.data, g)
    place = (logit + _LOGIT_RANGE) * (_CLASSES / (2.0 * _LOGIT_RANGE))
    klass = np.clip(place, 0, _CLASSES - 1).astype(np.int64)
    return (
        in_whole,
        np.rint(log_given * scale).astype(np.int64).sum(),
        np.bincount(klass[right], minlength=_CLASSES),
        np.bincount(klass[~right], minlength=_CLASSES),
        *by_item,
    )


def _by_items(
    a: Floats, d: Floats, nodes: Floats, right: Any, seen: Any
) -> tuple[float, NDArray[np.int64], NDArray[np.int64]]:
    """Log score, right and wrong by class of prediction, if nothing is known of persons.

    The prediction of an item is its share of right answers, ability integrated out: items of equal
    predictions are a class, so the AUC is exact.
    """
    z = np.multiply.outer(a, nodes) + d[:, None]
    mass = np.exp(-0.5 * nodes**2)
    mass /= mass.sum()
    wrong = seen - right
    with np.errstate(over="ignore"):
        p, q = ((mass / (1.0 + np.exp(-x))).sum(axis=1) for x in (z, -z))
    score = float((xlogy(right, p) + xlogy(wrong, q)).sum())
    klass = np.unique(p, return_inverse=True)[1]
    size = int(klass.max()) + 1
    totals = (np.bincount(klass, weights=x, minlength=size) for x in (right, wrong))
    by_class = [np.rint(x).astype(np.int64) for x in totals]
    return score, by_class[0], by_class[1]


def _moments(block: Block, a: Floats, d: Floats, nodes: Floats, scale: float) -> tuple[Any, ...]:
    """Posterior moments of the persons with responses."""
    mean, sd, _ = moments.expectations(block.data, grid_tables(a, d, nodes))
    seen = response_counts.responses_per_person(block.data) > 0
    terms = np.stack([np.ones(mean.size), mean, mean**2 + sd**2])[:, seen]
    return (fixed_point.fixed(terms, scale).sum(axis=1),)


def _choose_abilities(
    responses: Any, items: xr.Dataset, client: Any, progress: ProgressOption
) -> tuple[float, float]:
    """Mean and SD of the normal distribution of ability of the highest likelihood, by EM."""
    responses = as_responses(responses, "evaluate(validation=)")
    refuse_weights(responses, "evaluate(validation=)")
    a, d = item_parameters(items, responses.item_id)
    mean, sd = 0.0, 1.0
    with Engine(responses, client=client, progress=progress, stage="abilities") as engine:
        for _ in range(_STEPS):
            slopes, intercepts = a * sd, d + a * mean
            bound = reach_of(slopes, intercepts)
            scale = fixed_point.scale_for(responses.n_persons * bound**2)
            nodes = grid_for(slopes, intercepts, bound=bound).nodes
            sums = engine.map_reduce(_moments, slopes, intercepts, nodes, scale)[0] / scale
            if sums[0] == 0.0:
                raise EstimationError("validation holds no observed response")
            first, second = sums[1:] / sums[0]
            new_mean = mean + sd * first
            new_sd = sd * math.sqrt(max(second - first**2, _TOLERANCE**2))
            change = max(abs(new_mean - mean), abs(new_sd - sd))
            mean, sd = new_mean, new_sd
            if change < _TOLERANCE:
                return mean, sd
    warnings.warn(
        f"the distribution of ability still changes by {change:.2g} after {_STEPS} steps: these "
        f"responses hardly determine it",
        ConvergenceWarning,
        stacklevel=4,
    )
    return mean, sd


def _top_accuracy(
    a: Floats, d: Floats, right: Any, seen: Any, top: tuple[int, ...], least: int
) -> Floats:
    """Share of the K hardest items that are among the K of the lowest share of right answers.

    Hard by ``-d / a``; ties in the order of the items.
    """
    kept = np.flatnonzero(seen >= least)
    for k in top:
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= kept.size:
            raise InputError(
                f"top={k!r} must be a whole number of at least 1 and at most the {kept.size} items "
                f"with {least} responses or more"
            )
    share = np.argsort(right[kept] / seen[kept], kind="stable")
    fitted = np.argsort((d / a)[kept], kind="stable")
    return np.array([np.intersect1d(share[:k], fitted[:k]).size / k for k in top])


def run(
    responses: Any,
    items: xr.Dataset,
    validation: Any,
    top: tuple[int, ...],
    least: int,
    protocol: str,
    client: Any,
    progress: ProgressOption,
) -> xr.Dataset:
    """See :func:`irt_dask.evaluate`."""
    if protocol not in _PROTOCOLS:
        raise InputError(f"protocol={protocol!r}: use {', '.join(map(repr, _PROTOCOLS))}")
    responses = as_responses(responses, "evaluate")
    refuse_weights(responses, "evaluate")
    plain_a, plain_d = item_parameters(items, responses.item_id)
    mean, sd = 0.0, 1.0
    if validation is not None:
        mean, sd = _choose_abilities(validation, items, client, progress)
    a, d = plain_a * sd, plain_d + plain_a * mean  # of standardised abilities
    bound = reach_of(a, d)
    worst = float((a * bound + np.abs(d)).max()) + 1.0  # largest absolute log probability
    scale = fixed_point.scale_for(responses.n_persons * responses.n_items * worst)
    with Engine(responses, client=client, progress=progress, stage="evaluation") as engine:
        marginal, given, right, wrong, item_right, item_seen = engine.map_reduce(
            _evaluate,
            a,
            d,
            grid_for(a, d, bound=bound).nodes,
            scale,
            protocol,
            report=True,
        )
    log_score = float(given) / scale
    if protocol == "items":
        log_score, right, wrong = _by_items(
            a, d, grid_for(a, d, bound=bound).nodes, item_right, item_seen
        )
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
                {"top_accuracy": _top_accuracy(plain_a, plain_d, item_right, item_seen, top, least)}
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
            "ability_mean": mean,
            "ability_sd": sd,
        },
    )
