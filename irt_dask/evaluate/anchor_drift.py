"""Are items with given parameters easier, or harder, for new persons than their parameters say?

Given the person's other responses, and the parameters, a response to item j is right with a
probability p that :mod:`irt_dask.kernels.posterior.leave_one_out` finds exactly.  Persons are
independent, so that the number right of an item is a sum of coin tosses with these chances (Poisson
binomial), whose tails need no large samples: twelve persons are enough for a test that is right,
if for no great power.  Errors of the item's own parameters move the chances of all persons
together: tails are averaged over them.

Items that drifted say nothing of abilities: they are set aside, and all are tested again by the
others, until the same ones stay aside.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import expit, logit, ndtr

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.engine import Engine, ProgressOption
from irt_dask.evaluate.abilities import Known, parts
from irt_dask.evaluate.dif_tests import adjusted
from irt_dask.items.parameters import item_set
from irt_dask.kernels.responses.layouts import Layout, columns, to_sparse
from irt_dask.population import em
from irt_dask.store import Block, Responses

#: Responses of new persons from which on an item is tested, and items that are not set aside.
FEW, LEAST_ITEMS = 5, 3
#: Predictions are counted in classes of logits between these ends.
_CLASSES, _END = 512, 12.0
_LOGITS: Floats = np.asarray((np.arange(_CLASSES) + 0.5) * (2.0 * _END / _CLASSES) - _END, float)
#: Persons up to whom tails are exact; beyond, sums are normal up to their skewness.
_EXACT = 300
#: Nodes over the error of an item, and over the posterior of ability where an item is aside.
_NODES = 11
_ROUNDS = 10
#: Numbers that are held at a time while tails are added up.
_CELLS = 1 << 22


class Drift(NamedTuple):
    """What is found of each item; NaN where it is not tested.

    ``shift`` is by how much the logits of predictions would have to move (positive: easier).
    """

    n: Ints
    shift: Floats
    se: Floats
    p_value: Floats
    q_value: Floats
    drifted: Bools
    mean: float
    sd: float
    n_rounds: int
    stable: bool


def drifts(
    responses: Responses, bank: xr.Dataset, errors: Floats, since: Ints, fdr: float, *,
    client: Any = None, progress: ProgressOption = None,
) -> Drift:  # fmt: skip
    """Test the items of the bank, of two categories, by these persons.

    ``errors`` are covariances of (a, d), (items, 2, 2); persons from the place ``since`` (items,)
    on test an item, and all say how able they are.  A pass for each EM step of the
    distribution of ability and one for the predictions, in each round; rounds are mostly two.
    Sums are items x 512 x 8 bytes.
    """
    m = responses.n_items
    aside: Bools = np.zeros(m, dtype=bool)
    seen: list[bytes] = []
    number, stable = 0, False
    while number < _ROUNDS and not stable:
        number += 1
        found = _round(responses, bank, errors, since, aside, client, progress)
        q = adjusted(found.p_value)
        with np.errstate(invalid="ignore"):
            drifted: Bools = np.asarray(q <= fdr)
        if m - int(drifted.sum()) < LEAST_ITEMS:  # nobody is left to say how able persons are
            break
        stable = bool(np.array_equal(drifted, aside))
        if drifted.tobytes() in seen:  # in a circle: what was ever in it stays aside
            drifted = drifted | aside
        seen.append(aside.tobytes())
        aside = drifted
    return Drift(
        found.n, found.shift, found.se, found.p_value, q, drifted, found.mean, found.sd, number,
        stable,
    )  # fmt: skip


class _Found(NamedTuple):
    n: Ints
    shift: Floats
    se: Floats
    p_value: Floats
    mean: float
    sd: float


def _round(
    responses: Responses, bank: xr.Dataset, errors: Floats, since: Ints, aside: Bools,
    client: Any, progress: ProgressOption,
) -> _Found:  # fmt: skip
    """Tests with abilities from the items that are not aside."""
    used = np.flatnonzero(~aside)
    of_used = responses.select(items=[responses.item_id[j] for j in used])
    with Engine(of_used, client=client, progress=progress, stage="abilities of new persons") as e:
        ability = em.one_normal(e, item_set(bank, of_used.item_id)).population
    every = item_set(bank, responses.item_id)
    known = Known.of(item_set(bank, of_used.item_id), ability)
    away = np.flatnonzero(aside)
    others = every.take(away) if away.size else None
    with Engine(responses, client=client, progress=progress, stage="drift of items") as engine:
        counts, right = engine.map_reduce(_predicted, known, others, used, away, since)
    n = counts.sum(axis=1)
    at = np.array([known.mean, 1.0])  # by (a, d), at the mean ability of these persons
    se = np.sqrt(np.maximum(np.einsum("i,jik,k->j", at, errors, at), 0.0))
    enough = n >= FEW
    p_value = np.full(n.size, np.nan)
    p_value[enough] = _tails(counts[enough], right[enough], se[enough])
    shift, own = _shifts(counts, right)
    shift, own = (np.where(enough, x, np.nan) for x in (shift, own))
    return _Found(n, shift, np.hypot(own, se), p_value, known.mean, known.sd)


def _predicted(
    block: Block, known: Known, others: Any, used: Ints, away: Ints, since: Ints
) -> tuple[Ints, Ints]:
    """Predictions of right answers by item and class of logit, and right answers by item."""
    m = used.size + away.size
    counts, right = np.zeros((m, _CLASSES), dtype=np.int64), np.zeros(m, dtype=np.int64)
    place = block.start
    for data in parts(block.data):
        own = columns(data, used)
        row, item, y = _cells(own)
        found = [(row, used[item], y, np.empty(0))]
        if y.size:
            given = known.left_out(own)
            found = [(row, used[item], y, np.where(y == 1, given, 1.0 - given))]
        if away.size:
            row, item, y, chance = _of_others(data, own, known, others, away)
            found.append((row, away[item], y, chance))
        for row, item, y, chance in found:
            later = place + row >= since[item]
            _add(counts, right, item[later], chance[later], y[later])
        place += data.shape[0]
    return counts, right


def _cells(data: Layout) -> tuple[Ints, Ints, Ints]:
    """Row, item and code of each response, by person."""
    sparse = to_sparse(data)
    there = sparse.values >= 0
    row = np.repeat(np.arange(data.shape[0]), np.diff(sparse.indptr))[there]
    return row, sparse.indices[there].astype(np.int64), sparse.values[there].astype(np.int64)


def _add(counts: Ints, right: Ints, item: Ints, chance: Floats, y: Ints) -> None:
    with np.errstate(divide="ignore"):
        place = (logit(np.clip(chance, 0.0, 1.0)) + _END) * (_CLASSES / (2.0 * _END))
    np.add.at(counts, (item, np.clip(place, 0, _CLASSES - 1).astype(np.int64)), 1)
    np.add.at(right, item, y == 1)


def _of_others(
    data: Layout, own: Layout, known: Known, others: Any, away: Ints
) -> tuple[Ints, Ints, Ints, Floats]:
    """Responses to items that are aside: ability is normal with its posterior mean and variance."""
    mean, variance, _ = known.expectations(own)
    row, item, y = _cells(columns(data, away))
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    theta = mean[:, None] + np.sqrt(variance)[:, None] * nodes
    chance = np.empty(item.size)
    for j in np.unique(item):
        mine = np.flatnonzero(item == j)
        p = np.exp(others.take(np.array([j])).log_p(theta[row[mine]].ravel()))[1]
        chance[mine] = p.reshape(mine.size, _NODES) @ weights / weights.sum()
    return row, item, y, chance


# --- tails ----------------------------------------------------------------------------------------


def _tails(counts: Ints, right: Ints, se: Floats) -> Floats:
    """Two-sided mid-p values of numbers right, averaged over normal errors of the logits."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    n = counts.sum(axis=1)
    out = np.empty(n.size)
    small = n <= _EXACT
    for j in np.flatnonzero(small):
        chances = expit(np.repeat(_LOGITS, counts[j])[:, None] + se[j] * nodes)  # (persons, nodes)
        mass = weights @ poisson_binomial(chances)
        k = int(right[j])
        below = float(mass[:k].sum() + 0.5 * mass[k])
        out[j] = min(1.0, 2.0 * min(below, 1.0 - below))
    large = np.flatnonzero(~small)
    step = max(1, _CELLS // (_CLASSES * _NODES))
    for lo in range(0, large.size, step):
        some = large[lo : lo + step]
        p = expit(_LOGITS + (se[some, None] * nodes)[:, :, None])  # (items, nodes, classes)
        at = counts[some, None, :]
        mean, variance = (at * p).sum(-1), (at * p * (1.0 - p)).sum(-1)
        third = (at * p * (1.0 - p) * (1.0 - 2.0 * p)).sum(-1)
        z = (right[some, None] - mean) / np.sqrt(variance)
        skew = third / variance**1.5
        density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        below = np.clip(ndtr(z) + skew * (1.0 - z**2) * density / 6.0, 0.0, 1.0) @ weights
        out[some] = np.minimum(1.0, 2.0 * np.minimum(below, 1.0 - below))
    return out


def poisson_binomial(chances: Floats) -> Floats:
    """Mass of 0 to n successes, (columns, n + 1), of independent tosses (n, columns)."""
    n, width = chances.shape
    mass = np.zeros((width, n + 1))
    mass[:, 0] = 1.0
    for i, p in enumerate(chances):
        mass[:, 1 : i + 2] = mass[:, 1 : i + 2] * (1.0 - p)[:, None] + mass[:, : i + 1] * p[:, None]
        mass[:, 0] *= 1.0 - p
    return mass


def _shifts(counts: Ints, right: Ints) -> tuple[Floats, Floats]:
    """Shift of all logits that makes the expected number right the observed one, and its error.

    Half a response more on either side, so that it is finite.
    """
    n = counts.sum(axis=1)
    shift = np.zeros(n.size)
    goal = (right + 0.5) / (n + 1.0) * n
    low, high = np.full((2, n.size), np.array([[-2.0 * _END], [2.0 * _END]]))
    for _ in range(60):
        p = expit(_LOGITS + shift[:, None])
        above = (counts * p).sum(axis=1) > goal
        high, low = np.where(above, shift, high), np.where(above, low, shift)
        shift = 0.5 * (low + high)
    p = expit(_LOGITS + shift[:, None])
    information = (counts * p * (1.0 - p)).sum(axis=1)
    with np.errstate(divide="ignore"):
        return shift, 1.0 / np.sqrt(information)
