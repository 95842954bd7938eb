"""Draws of persons where they lie: only totals of blocks and drawn rows travel.

Which persons, and with what weights, is arithmetic of
:mod:`irt_dask.kernels.coresets.weighted_draws`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.joint import person_step
from irt_dask.calibrate.joint.coreset_spec import POISSON, Coreset, Labels, Scores
from irt_dask.calibrate.joint.person_step import Persons
from irt_dask.engine import Engine
from irt_dask.errors import EstimationError, InputError
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.coresets import sensitivities as kernels
from irt_dask.kernels.coresets import weighted_draws
from irt_dask.kernels.joint.parameters import Items
from irt_dask.kernels.responses import layouts

#: Seed and purpose of the draws (:func:`irt_dask.kernels.base.keyed_random.key`).
Key = tuple[int, *tuple[str | int, ...]]
#: No score is above it: a first split counts all of them as the rest.
_LARGEST = 1 << 62


@dataclass(frozen=True)
class Sample:
    """Distinct persons of a draw, in the order of the data.

    ``rows`` are their positions among all persons, ``times`` how often each was drawn, ``weight``
    how many persons each stands for; ``data`` their responses, None where they did not travel.
    """

    rows: Ints
    times: Ints
    weight: Floats
    theta: Floats
    ll: Floats
    data: layouts.Layout | None


# --- steps on a block -----------------------------------------------------------------------------


def _scored(
    block: Persons, items: Items, scales: person_step.Scales, scores: Scores
) -> tuple[Floats, Floats, Ints]:
    theta, ll = person_step.remembered(block, items, scales)
    data = None if scores.terms is None else block.take(np.arange(block.n_persons))
    return theta, ll, scores(data, theta)


def _split(block: Persons, bound: int, *how: Any) -> tuple[int, weighted_draws.Above]:
    return block.start, weighted_draws.above(_scored(block, *how)[2], bound)


def _picked(
    block: Persons, at: NDArray[np.intp], times: Ints, theta: Floats, ll: Floats, score: Ints
) -> tuple[Any, ...]:
    return block.take(at), block.start + at, times, theta[at], ll[at], score[at]


def _pick_targets(block: Persons, targets: Ints, *how: Any) -> tuple[Any, ...]:
    """Persons of a block whose share of the total score the targets fall on."""
    theta, ll, score = _scored(block, *how)
    return _picked(block, *weighted_draws.drawn(score, targets), theta, ll, score)


def _pick_rows(block: Persons, rows: Ints, *how: Any) -> tuple[Any, ...]:
    """Persons of a block by their positions among all; the others need no abilities."""
    theta, ll, score = _scored(block.some(rows - block.start), *how)
    return (
        block.take(rows - block.start),
        rows,
        np.ones(rows.size, dtype=np.int64),
        theta,
        ll,
        score,
    )


def _pick_all(block: Persons, *how: Any) -> tuple[Any, ...]:
    theta, ll, score = _scored(block, *how)
    at = np.flatnonzero(score)
    return _picked(block, at, np.ones(at.size, dtype=np.int64), theta, ll, score)


def _pick_poisson(
    block: Persons, share: float, key: Key, items: Items, scales: person_step.Scales, scores: Scores
) -> tuple[Any, ...]:
    """Persons whose uniform is below ``share`` times their score; others that may be are tried."""
    u = keyed_random.uniforms(keyed_random.key(*key), block.start, block.n_persons)[:, 0]
    tried = np.flatnonzero(u < share * scores.largest)
    some = block.some(tried)
    theta, ll, score = _scored(some, items, scales, scores)
    at = np.flatnonzero(u[tried] < share * score)
    times = np.ones(at.size, dtype=np.int64)
    return some.take(at), block.start + tried[at], times, theta[at], ll[at], score[at]


def _stretch(block: Persons, needed: int, bound: int, *how: Any) -> int:
    return weighted_draws.stretch(weighted_draws.others(_scored(block, *how)[2], bound), needed)


def _entering(
    block: Persons, own: tuple[int, Ints], plan: weighted_draws.Reservoir, key: Key, *how: Any
) -> tuple[Ints, Ints, Ints, NDArray[np.intp]]:
    """Certain rows; those of the systematic draw; those that enter later, and their slots."""
    before, first = own
    score = _scored(block, *how)[2]
    left = weighted_draws.others(score, plan.bound)
    uniforms = keyed_random.uniforms(
        keyed_random.key(*key, "reservoir"), block.start, score.size, 2
    )
    at, slot = weighted_draws.entering(left, before, plan, uniforms)
    certain, held = np.flatnonzero(score > plan.bound), kernels.locate(left, first)
    return block.start + certain, block.start + held, block.start + at, slot


# --- draws of persons -----------------------------------------------------------------------------


def draw(
    engine: Engine, spec: Coreset, items: Items, scales: person_step.Scales, key: Key,
    count: Floats, labels: Labels | None = None,
) -> Sample:  # fmt: skip
    """Draw persons where they lie.

    Parameters
    ----------
    engine : whose blocks are prepared (:mod:`irt_dask.calibrate.joint.person_step`)
    items, scales
        At which abilities are.
    key : (seed, purpose, ...)
        Of the draws, such as ``(seed, "coreset", iteration)``.
    count : (nodes,)
        Persons with responses on the nodes of the ability axis, at these abilities.
    labels : for method "labels-3pl".

    The same bits for any blocks and any layout.  Passes, each with all abilities: the blocks' total
    scores; the blocks hit (with replacement).  For the reservoir: total scores, one more for each
    round of rows that are certain (none where ``size p < 1`` for all), a single block, the rows
    that enter; at last abilities of the drawn rows alone.  To the driver come totals of blocks,
    about ``size log(n / size)`` row numbers of the reservoir, and the drawn rows.  Poisson
    sampling: one pass, with abilities of those alone whose uniform is below ``size`` times the
    largest probability; ``count`` may be an estimate, the inclusion probabilities are known all
    the same.
    """
    size, _ = spec.sizes(engine.responses.n_persons, engine.responses.n_items)
    if size is None:
        raise InputError(f"Coreset reduce={spec.reduce!r} draws no persons")
    scores = Scores.of(spec.method, size, count, labels)
    how = (items, scales, scores)
    if spec.sampling == POISSON:
        share = size / (float(count @ scores.table) * scores.scale)
        picked = engine.map_blocks(_pick_poisson, share, key, *how)
        data, rows, times, theta, ll, score = _together(picked)
        if not rows.size:
            raise EstimationError(f"a coreset of size={size} happened to be empty; take a larger")
        return Sample(rows, times, 1.0 / np.minimum(1.0, share * score), theta, ll, data)
    splits = engine.map_blocks(_split, _LARGEST, *how)
    if spec.sampling == "reservoir":
        return _reservoir(engine, splits, size, key, how)
    totals = np.array([a.rest for _, a in splits], dtype=np.int64)
    total = int(totals.sum())
    targets = weighted_draws.targets(keyed_random.generator(*key), total, size)
    found = engine.map_some(_pick_targets, weighted_draws.share_out(totals, targets), *how)
    data, rows, times, theta, ll, score = _together(found.values())
    weight = weighted_draws.drawn_weight(score, times, total, size)
    return Sample(rows, times, weight, theta, ll, data)


def draw_gathered(
    spec: Coreset, size: int, score: Ints, theta: Floats, ll: Floats, key: Key
) -> Sample:
    """As :func:`draw`, from scores (:class:`Scores`) and abilities of all persons, gathered.

    The same bits, without their responses: for data so small that abilities may travel.  Not for
    Poisson sampling, which has no use for all abilities.
    """
    if spec.sampling == POISSON:
        raise ValueError("Poisson samples are drawn in blocks")
    if spec.sampling == "reservoir":
        uniforms = keyed_random.uniforms(keyed_random.key(*key, "reservoir"), 0, score.size, 2)
        rows, weight = weighted_draws.reservoir(score, size, _offset(key), uniforms)
        times = np.ones(rows.size, dtype=np.int64)
    else:
        total = int(score.sum())
        targets = weighted_draws.targets(keyed_random.generator(*key), total, size)
        rows, times = weighted_draws.drawn(score, targets)
        weight = weighted_draws.drawn_weight(score[rows], times, total, size)
    return Sample(rows, times, weight, theta[rows], ll[rows], None)


def _together(picked: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Stack what the blocks picked."""
    data, *columns = zip(*picked, strict=True)
    return layouts.concatenate(list(data)), *(np.concatenate(c) for c in columns)


def _offset(key: Key) -> int:
    """Where the systematic draw begins, in units of 2^-52."""
    return int(keyed_random.generator(*key).integers(0, 1 << 52))


def _reservoir(
    engine: Engine, splits: list[tuple[int, weighted_draws.Above]], size: int, key: Key,
    how: tuple[Any, ...],
) -> Sample:  # fmt: skip
    """Weighted reservoir over all blocks; see :mod:`irt_dask.kernels.coresets.weighted_draws`."""
    starts = np.array([start for start, _ in splits])
    known = weighted_draws.together([a for _, a in splits])
    if known.n_rest <= size:
        data, rows, times, theta, ll, _ = _together(engine.map_blocks(_pick_all, *how))
        return Sample(rows, times, np.ones(rows.size), theta, ll, data)
    bound = weighted_draws.next_bound(known, size)
    while known.largest > bound:
        splits = engine.map_blocks(_split, bound, *how)
        known = weighted_draws.together([a for _, a in splits])
        bound = weighted_draws.next_bound(known, size)
    slots = size - known.n
    totals = np.array([a.rest for _, a in splits], dtype=np.int64)
    before = np.cumsum(totals) - totals
    needed = slots * known.largest
    b = int(np.searchsorted(before + totals, needed, side="left"))
    reached = engine.map_some(_stretch, {b: needed - int(before[b])}, bound, *how)[b]
    plan = weighted_draws.Reservoir(bound, slots, known.rest, int(before[b]) + reached)
    first = weighted_draws.share_out(
        totals, weighted_draws.first_targets(plan.start, slots, _offset(key))
    )
    none = np.zeros(0, dtype=np.int64)
    own = {k: (int(before[k]), first.get(k, none)) for k in range(len(splits))}
    found = engine.map_some(_entering, own, plan, key, *how).values()
    holds = np.concatenate([held for _, held, _, _ in found])
    for _, _, at, slot in found:  # in the order of the stream: the last to come has the slot
        holds[slot] = at
    chosen = np.sort(np.concatenate([holds, *(certain for certain, *_ in found)]))
    block_of = np.searchsorted(starts, chosen, side="right") - 1
    wanted = {int(k): chosen[block_of == k] for k in np.unique(block_of)}
    picked = engine.map_some(_pick_rows, wanted, *how)
    data, rows, times, theta, ll, score = _together(picked.values())
    return Sample(rows, times, plan.weight(score), theta, ll, data)
