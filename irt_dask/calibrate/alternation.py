"""Rounds of the alternating optimisation: person steps on the workers, item steps on the driver.

The item step sees the persons through counts on a fine ability axis; a coreset replaces the counts
of all persons by those of a weighted sample, drawn over all workers without gathering the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.calibrate import axis
from irt_dask.calibrate.axis import AxisCounts, Persons
from irt_dask.engine import Engine
from irt_dask.errors import EstimationError, InputError
from irt_dask.kernels import coreset as sensitivities
from irt_dask.kernels import exact, keyed, layouts, modes
from irt_dask.models import ABILITY_BOUND, DISCRIMINATION_BOUNDS, INTERCEPT_BOUND
from irt_dask.store import Block, Responses

Floats = NDArray[np.float64]

#: Largest absolute log-likelihood of a response within the bounds.
_WORST_RESPONSE = DISCRIMINATION_BOUNDS[1] * ABILITY_BOUND + INTERCEPT_BOUND + 1.0


@dataclass(frozen=True)
class Coreset:
    """Fit the items on a weighted sample of persons, drawn anew in every iteration.

    Parameters
    ----------
    size : int
        Draws per iteration, with replacement; each stands for ``1 / (size p)`` persons.
    method : "root-leverage"
        Probability p proportional to the square root of the leverage score plus 1/n.
    reduce : "persons"
    """

    size: int
    method: str = "root-leverage"
    reduce: str = "persons"

    def __post_init__(self) -> None:
        whole = isinstance(self.size, (int, np.integer)) and not isinstance(self.size, bool)
        if not whole or self.size < 1:
            raise InputError(f"Coreset size={self.size!r} must be a whole number of at least 1")
        for name, value, known in (
            ("method", self.method, ("root-leverage",)),
            ("reduce", self.reduce, ("persons",)),
        ):
            if value not in known:
                raise InputError(f"Coreset {name}={value!r}; choose one of {', '.join(known)}")


@dataclass(frozen=True)
class _Scales:
    """Fixed-point scales of the sums over persons: bounds known before any data are read."""

    weight: float
    moment: float
    objective: float
    score: float

    @classmethod
    def of(cls, r: Responses) -> _Scales:
        total = r.n_persons * (r.max_weight or 1.0)
        return cls(
            weight=exact.scale_for(total),
            moment=exact.scale_for(total * ABILITY_BOUND**2),
            objective=exact.scale_for(total * r.n_items * _WORST_RESPONSE),
            score=exact.scale_for(math.sqrt(2.0 * r.n_persons) + 2.0),
        )


# --- person steps ---------------------------------------------------------------------------------


def _abilities(block: Block, a: Floats, d: Floats) -> tuple[Floats, Floats]:
    return modes.modes(block.data, a, d, ABILITY_BOUND)


def _summary(block: Block, theta: Floats, ll: Floats, scales: _Scales) -> tuple[Any, Any]:
    w = block.weights()
    objective = np.rint(w * ll * scales.objective).astype(np.int64).sum()
    return objective, sensitivities.moments(theta, w, scales.moment)


def _all_persons(block: Block, a: Floats, d: Floats, scales: _Scales) -> tuple[Any, ...]:
    """Objective, moments of ability, and counts of all persons on the ability axis."""
    theta, ll = _abilities(block, a, d)
    right, seen = modes.axis_counts(
        block.data, theta, block.weights(), ABILITY_BOUND, axis.N_NODES, scales.weight
    )
    return (*_summary(block, theta, ll, scales), right, seen)


def _objective(block: Block, a: Floats, d: Floats, scales: _Scales) -> tuple[Any, ...]:
    return _summary(block, *_abilities(block, a, d), scales)


def _scores(block: Block, a: Floats, d: Floats, moment: Floats, scale: float) -> NDArray[np.int64]:
    theta, _ = _abilities(block, a, d)
    return sensitivities.fixed(sensitivities.root_leverage(theta, moment), scale)


def _total_score(block: Block, *args: Any) -> int:
    return int(_scores(block, *args).sum())


def _pick(block: Block, targets: NDArray[np.int64], *args: Any) -> tuple[Any, ...]:
    """Persons of a block whose share of the total score the targets fall on."""
    score = _scores(block, *args)
    rows, times = np.unique(sensitivities.locate(score, targets), return_counts=True)
    chosen = layouts.take(block.data, rows)
    theta, ll = modes.modes(chosen, args[0], args[1], ABILITY_BOUND)
    return chosen, theta, ll, score[rows], times


def _everybody(block: Block, a: Floats, d: Floats, scales: _Scales) -> tuple[Any, ...]:
    """Objective, moments of ability, and the ability, log-likelihood and weight of each person."""
    theta, ll = _abilities(block, a, d)
    return (*_summary(block, theta, ll, scales), theta, ll, block.weights())


# --- rounds ---------------------------------------------------------------------------------------


class Rounds:
    """The rounds of one fit: what an iteration asks of the data, and the item step.

    Where the counts on the ability axis would be larger than the data (few persons, many items),
    nobody gathers them: abilities are, and tasks over ranges of items count and maximise.  The bits
    of the result are the same.
    """

    def __init__(self, engine: Engine, model: str, coreset: Coreset | None, seed: int) -> None:
        self.engine, self.model, self.coreset, self.seed = engine, model, coreset, seed
        self.scales = _Scales.of(engine.responses)
        self.a_bounds = (1.0, 1.0) if model == "1pl" else DISCRIMINATION_BOUNDS
        r = engine.responses
        self.few_persons = axis.few_persons(r.n_persons, r.n_items)

    def round(self, a: Floats, d: Floats) -> tuple[float, Floats, Persons | AxisCounts]:
        """Objective at (a, d), moments of ability, and what the item step needs."""
        if self.few_persons:
            value, moment, theta, _, weight = self._everybody(a, d)
            return value, moment, Persons(theta, weight, self.scales.weight)
        value, moment, right, seen = self.engine.map_reduce(_all_persons, a, d, self.scales)
        scale = self.scales.weight
        return *self._scaled(value, moment), AxisCounts(right / scale, seen / scale)

    def _everybody(self, a: Floats, d: Floats) -> tuple[float, Floats, Floats, Floats, Floats]:
        values, moments, *each = zip(
            *self.engine.map_blocks(_everybody, a, d, self.scales), strict=True
        )
        theta, ll, weight = (np.concatenate(x) for x in each)
        return *self._scaled(sum(values), sum(moments)), theta, ll, weight

    def _scaled(self, value: Any, moment: Any) -> tuple[float, Floats]:
        if not moment[0] > 0:
            raise EstimationError("no person has any response: there is nothing to fit")
        return float(value) / self.scales.objective, moment / self.scales.moment

    def coreset_round(
        self, a: Floats, d: Floats, iteration: int
    ) -> tuple[float, Floats, Persons | AxisCounts, float]:
        """As :meth:`round`, on a coreset drawn over all persons; and its estimated objective."""
        assert self.coreset is not None
        draw = keyed.generator(self.seed, "coreset", iteration)
        run = self._draw_few if self.few_persons else self._draw
        value, moment, data, ll, persons = run(a, d, draw, self.coreset.size)
        estimate = float(persons.weight @ ll)
        counts = persons if data is None else AxisCounts.of(data, persons)
        return value, moment, counts, estimate

    def _draw(
        self, a: Floats, d: Floats, draw: np.random.Generator, k: int
    ) -> tuple[float, Floats, layouts.Layout, Floats, Persons]:
        """Draw persons where they lie.

        Three passes: moments (the Gram matrix of all rows), total score of each block, and the
        chosen rows of the blocks that the draw hits.  Only ``size`` rows travel.
        """
        sums = self.engine.map_reduce(_objective, a, d, self.scales)
        value, moment = self._scaled(*sums)
        args = (a, d, moment, self.scales.score)
        totals = np.array(self.engine.map_blocks(_total_score, *args), dtype=np.int64)
        ends = np.cumsum(totals)
        targets = np.sort(draw.integers(0, int(ends[-1]), size=k))
        block_of = np.searchsorted(ends, targets, side="right")
        wanted = {
            int(b): targets[block_of == b] - (ends[b] - totals[b]) for b in np.unique(block_of)
        }
        picked = self.engine.map_some(_pick, wanted, *args)
        data = layouts.concatenate([p[0] for p in picked.values()])
        theta, ll, score, times = (
            np.concatenate([p[c] for p in picked.values()]) for c in (1, 2, 3, 4)
        )
        return value, moment, data, ll, _sample(theta, score, times, float(ends[-1]) / k)

    def _draw_few(
        self, a: Floats, d: Floats, draw: np.random.Generator, k: int
    ) -> tuple[float, Floats, None, Floats, Persons]:
        """As :meth:`_draw`, from the gathered abilities: one pass, and no row travels."""
        value, moment, theta, ll, _ = self._everybody(a, d)
        score = sensitivities.fixed(sensitivities.root_leverage(theta, moment), self.scales.score)
        total = int(score.sum())
        targets = np.sort(draw.integers(0, total, size=k))
        rows, times = np.unique(sensitivities.locate(score, targets), return_counts=True)
        persons = _sample(theta[rows], score[rows], times, float(total) / k, rows)
        return value, moment, None, ll[rows], persons

    def item_step(
        self, counts: Persons | AxisCounts, a: Floats, d: Floats
    ) -> tuple[Floats, Floats]:
        """Maximise every item over its box; one that the sample did not observe keeps its value."""
        if isinstance(counts, AxisCounts):
            out = counts.maximise(a, d, self.a_bounds)
            return out[0], out[1]
        out = np.empty((2, a.size))
        for lo, hi, part in self.engine.map_items(axis.maximise_items, counts, a, d, self.a_bounds):
            out[:, lo:hi] = part
        return out[0], out[1]

    def information(self, counts: Persons | AxisCounts, a: Floats, d: Floats) -> Floats:
        """Information of (a, d) in the counts, abilities taken as known; shape (items, 2, 2)."""
        if isinstance(counts, AxisCounts):
            return counts.information(a, d)
        out = np.empty((a.size, 2, 2))
        for lo, hi, part in self.engine.map_items(axis.information_of_items, counts, a, d):
            out[lo:hi] = part
        return out


def _sample(
    theta: Floats,
    score: NDArray[np.int64],
    times: NDArray[np.int64],
    unit: float,
    rows: NDArray[np.int64] | None = None,
) -> Persons:
    """Persons of a coreset: one drawn ``times`` stands for ``times unit / score`` persons."""
    weight = times * unit / score
    return Persons(theta, weight, exact.scale_for(2.0 * float(weight.sum())), rows)
