"""Are items with given parameters easier, or harder, for new persons than their parameters say?

Given the person's other responses, and the parameters, a response to item j is right with a
probability p that :mod:`irt_dask.kernels.posterior.leave_one_out` finds exactly.  Persons are
independent, so that the number right of an item is a sum of coin tosses with these chances (Poisson
binomial), whose tails need no large samples: twelve persons are enough for a test that is right,
if for no great power.  Errors of the item's own parameters move the chances of all persons
together: tails are averaged over them.

Of n attempts at an item, right ones are not n tosses: what is not known of the ability makes them
alike (an intraclass correlation r given the other responses, from the variance of the count), and
so does what a person knows of this very question, which no ability explains.  The second, s, is one
number for all items, by which squared residuals of the items that did not drift exceed what is
expected.  A count is beta-binomial, with the correlation ``r + (1 - r) s``.

Items that drifted say nothing of abilities: they are set aside, and all are tested again by the
others, until the same ones stay aside.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.engine import Engine, ProgressOption
from irt_dask.evaluate.abilities import Known, parts
from irt_dask.evaluate.dif_tests import adjusted
from irt_dask.evaluate.predicted_counts import Classes, Counted, shifts, tails
from irt_dask.items.parameters import item_set
from irt_dask.kernels.responses.layouts import Layout, columns, to_sparse
from irt_dask.population import em
from irt_dask.store import Block, Responses

#: Responses of new persons from which on an item is tested, and items that are not set aside.
FEW, LEAST_ITEMS = 5, 3
#: Nodes over the posterior of ability where an item is aside.
_NODES = 11
_ROUNDS = 10
#: Fixed-point scale of squared residuals and what is expected of them.
_SCALE = float(1 << 24)


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
    #: Correlation of attempts beyond ability; NaN where no item has several.
    alike: float


def drifts(
    responses: Responses, bank: xr.Dataset, errors: Floats, since: Ints, fdr: float, *,
    client: Any = None, progress: ProgressOption = None,
) -> Drift:  # fmt: skip
    """Test the items of the bank, of one attempt or of several, by these persons.

    ``errors`` are covariances of (a, d), (items, 2, 2); persons from the place ``since`` (items,)
    on test an item, and all say how able they are.  A pass for each EM step of the
    distribution of ability and one for the predictions, in each round; rounds are mostly two.
    Sums are items x 512 x 8 bytes, with several attempts four times that.
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
        stable, found.alike,
    )  # fmt: skip


class _Found(NamedTuple):
    n: Ints
    shift: Floats
    se: Floats
    p_value: Floats
    mean: float
    sd: float
    alike: float


def _round(
    responses: Responses, bank: xr.Dataset, errors: Floats, since: Ints, aside: Bools,
    client: Any, progress: ProgressOption,
) -> _Found:  # fmt: skip
    """Tests with abilities from the items that are not aside."""
    used = np.flatnonzero(~aside)
    of_used = responses.select(items=[responses.item_id[j] for j in used])
    options = {"client": client, "progress": progress, "graded": True}
    with Engine(of_used, stage="abilities of new persons", **options) as e:
        ability = em.one_normal(e, item_set(bank, of_used.item_id)).population
    every = item_set(bank, responses.item_id)
    known = Known.of(item_set(bank, of_used.item_id), ability)
    away = np.flatnonzero(aside)
    others = every.take(away) if away.size else None
    attempts = np.asarray(every.n_categories, dtype=np.int64) - 1
    classes = Classes.of(attempts)
    with Engine(responses, stage="drift of items", **options) as engine:
        counts, right, sums = engine.map_reduce(
            _predicted, known, others, used, away, since, attempts, classes
        )
    n = counts.sum(axis=1)
    at = np.array([known.mean, 1.0])  # by (a, d), at the mean ability of these persons
    se = np.sqrt(np.maximum(np.einsum("i,jik,k->j", at, errors, at), 0.0))
    enough = n >= FEW
    alike = np.nan
    if attempts.max() > 1:
        alike = _beyond_ability(sums[used] / _SCALE, se[used])
        classes = classes._replace(alike=classes.alike + (1.0 - classes.alike) * alike)
    sure = Counted(counts[enough], right[enough], attempts[enough], classes)
    p_value = np.full(n.size, np.nan)
    p_value[enough] = tails(sure, se[enough])
    shift, own = shifts(Counted(counts, right, attempts, classes))
    shift, own = (np.where(enough, x, np.nan) for x in (shift, own))
    return _Found(n, shift, np.hypot(own, se), p_value, known.mean, known.sd, alike)


def _beyond_ability(sums: Floats, se: Floats) -> float:
    """Correlation of attempts by which squared residuals exceed what is expected of them.

    ``sums`` are, by item, those of squared residuals, of their expected values, of these for a
    correlation of 1 more, and of what an error of 1 of the item's logit adds.
    """
    squares, expected, more, by_error = sums.T
    total = float(more.sum())
    if total == 0.0:
        return 0.0
    found = float((squares - expected - se**2 * by_error).sum()) / total
    return min(max(found, 0.0), 1.0)


def _predicted(
    block: Block, known: Known, others: Any, used: Ints, away: Ints, since: Ints, attempts: Ints,
    classes: Classes,
) -> tuple[Ints, Ints, Ints]:  # fmt: skip
    """Predictions by item and class, right attempts by item, sums of squared residuals."""
    m = used.size + away.size
    counts, right = np.zeros((m, classes.logits.size), np.int64), np.zeros(m, dtype=np.int64)
    sums = np.zeros((m, 4), dtype=np.int64)
    place = block.start
    for data in parts(block.data):
        found = [_of_own(columns(data, used), known, used, attempts)]
        if away.size:
            found.append(_of_others(data, columns(data, used), known, others, away, attempts))
        for row, item, y, chance, alike in found:
            later = place + row >= since[item]
            item, y, chance, alike = item[later], y[later], chance[later], alike[later]
            np.add.at(counts, (item, classes.place(chance, alike)), 1)
            np.add.at(right, item, y)
            if attempts.max() > 1:
                np.add.at(sums, item, _squares(y, attempts[item], chance, alike))
        place += data.shape[0]
    return counts, right, sums


_Cells = tuple[Ints, Ints, Ints, Floats, Floats]


def _of_own(own: Layout, known: Known, used: Ints, attempts: Ints) -> _Cells:
    """Row, item and code of each response; chance of an attempt, and how alike attempts are."""
    row, item, y = _cells(own)
    item = used[item]
    if not y.size:
        return row, item, y, np.empty(0), np.empty(0)
    if not known.graded:
        given = known.left_out(own)
        return row, item, y, np.where(y == 1, given, 1.0 - given), np.zeros(y.size)
    residual, variance, _ = known.moments(own)
    n = attempts[item]
    chance = np.clip((y - residual) / n, 0.0, 1.0)
    alike = _correlation(variance / n**2, chance, n)
    return row, item, y, chance, alike


def _correlation(variance: Floats, chance: Floats, n: Ints) -> Floats:
    """Correlation of n attempts, from the variance of the share right."""
    one = chance * (1.0 - chance)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (n * variance / one - 1.0) / (n - 1)
    return np.asarray(np.where((n > 1) & (one > 0.0), np.clip(found, 0.0, 1.0), 0.0))


def _squares(y: Ints, n: Ints, chance: Floats, alike: Floats) -> Ints:
    """What :func:`_beyond_ability` needs of each response, as whole numbers."""
    one = n * chance * (1.0 - chance)
    each = [
        (y - n * chance) ** 2, one * (1.0 + (n - 1) * alike), one * (n - 1) * (1.0 - alike), one**2,
    ]  # fmt: skip
    return np.rint(np.stack(each, axis=1) * _SCALE).astype(np.int64) * (n > 1)[:, None]


def _cells(data: Layout) -> tuple[Ints, Ints, Ints]:
    """Row, item and code of each response, by person."""
    sparse = to_sparse(data)
    there = sparse.values >= 0
    row = np.repeat(np.arange(data.shape[0]), np.diff(sparse.indptr))[there]
    return row, sparse.indices[there].astype(np.int64), sparse.values[there].astype(np.int64)


def _of_others(
    data: Layout, own: Layout, known: Known, others: Any, away: Ints, attempts: Ints
) -> _Cells:
    """As :func:`_of_own`, of items that are aside: ability is normal given the others."""
    mean, variance, _ = known.expectations(own)
    row, item, y = _cells(columns(data, away))
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    theta = mean[:, None] + np.sqrt(variance)[:, None] * nodes
    chance, alike = np.empty(item.size), np.zeros(item.size)
    for j in np.unique(item):
        mine, n = np.flatnonzero(item == j), attempts[away[j]]
        p = np.exp(others.take(np.array([j])).log_p(theta[row[mine]].ravel()))
        share = (np.arange(n + 1) @ p[: n + 1] / n).reshape(mine.size, _NODES)
        chance[mine] = share @ weights
        if n > 1:
            spread = (share - chance[mine, None]) ** 2 @ weights
            one = chance[mine] * (1.0 - chance[mine])
            alike[mine] = np.where(one > 0.0, spread / np.where(one > 0.0, one, 1.0), 0.0)
    return row, away[item], y, chance, alike
