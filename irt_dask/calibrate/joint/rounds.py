"""Rounds of the alternating optimisation: person steps on the workers, then the item step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.joint import coreset_draws, item_step, person_step
from irt_dask.calibrate.joint.coreset_spec import (
    LABELS,
    POISSON,
    Coreset,
    Labels,
    Scores,
    draw_items,
)
from irt_dask.calibrate.joint.item_step import AtAbilities
from irt_dask.calibrate.joint.person_step import AXIS, N_NODES, Scales
from irt_dask.curves import ItemModel
from irt_dask.curves.grids import ABILITY_BOUND
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.errors import EstimationError
from irt_dask.kernels.base import fixed_point, keyed_random
from irt_dask.kernels.joint import ability_axis
from irt_dask.kernels.joint.item_maximum import Box, Counts
from irt_dask.kernels.joint.parameters import Items


class Drawn(NamedTuple):
    """What a round on a coreset gives.

    Log-likelihood of all persons and moments of their abilities (of a Poisson sample: estimates);
    what the item step needs; the log-likelihood that the coreset estimates; and, of a Poisson
    sample, the estimated number of persons by node of the ability axis.
    """

    value: float
    moment: Floats
    seen: AtAbilities | Counts
    estimate: float
    histogram: Floats | None = None


class Rounds:
    """The rounds of one fit: what an iteration asks of the data, and the item step.

    Items are ``x``, (parameters, items) of the model.
    """

    def __init__(
        self, engine: Engine, model: ItemModel, box: Box, *, coreset: Coreset | None = None,
        seed: int = 0, right_wrong: tuple[Ints, Ints] | None = None,
    ) -> None:  # fmt: skip
        self.engine, self.model, self.box = engine, model, box
        self.coreset, self.seed, self.right_wrong = coreset, seed, right_wrong
        n, m = engine.n_persons, engine.responses.n_items
        self.gathers = item_step.data_are_smaller(n, m)
        #: Whether the item step needs no axis for all persons.
        self.few = item_step.are_few(n, m)

    def items(self, x: Floats, weight: Floats | None = None) -> tuple[Items, Scales]:
        """Items (weighted, if given) as person steps take them, and the scales of their sums."""
        w = np.ones(x.shape[1]) if weight is None else weight
        return Items(ItemSet.of(self.model.name, *x), w), Scales.of(
            self.engine.n_persons, float(w.sum())
        )

    def objective(self, x: Floats) -> tuple[float, Floats]:
        """Log-likelihood at x and the best abilities for it; moments of these abilities."""
        items, scales = self.items(x)
        value, moment = self.engine.map_reduce(person_step.objective, items, scales)
        return _scaled(value, moment, scales)

    def round(
        self, x: Floats, weight: Floats | None = None
    ) -> tuple[float, Floats, AtAbilities | Counts]:
        """As :meth:`objective`; and what the item step needs.

        ``weight`` are those of a coreset of items, with which the abilities are found then.
        """
        items, scales = self.items(x, weight)
        if self.gathers:
            value, moment, theta, _, w = self._everybody(items, scales)
            return value, moment, AtAbilities(theta, w, few=self.few)
        return counted(self.engine, items, scales)

    def _everybody(
        self, items: Items, scales: Scales
    ) -> tuple[float, Floats, Floats, Floats, Floats]:
        values, moments, *each = zip(
            *self.engine.map_blocks(person_step.everybody, items, scales), strict=True
        )
        theta, ll, weight = (np.concatenate(x) for x in each)
        return *_scaled(sum(values), sum(moments), scales), theta, ll, weight

    def coreset_round(self, x: Floats, iteration: int, count: Floats | None = None) -> Drawn:
        """As :meth:`round`, on a coreset drawn over all.

        ``count`` is the estimate of the last round, from which Poisson sampling goes on.
        """
        assert self.coreset is not None
        spec, r = self.coreset, self.engine.responses
        if spec.sampling == POISSON:
            return self._poisson_round(x, iteration, count)
        size, n_items = spec.sizes(r.n_persons, r.n_items)
        weight = None if n_items is None else self._drawn_items(x, n_items, iteration)
        if size is None:
            value, moment, seen = self.round(x, weight)
            return Drawn(value, moment, seen, value)
        items, scales = self.items(x, weight)
        key = (self.seed, "coreset", iteration)
        if self.gathers and spec.method != LABELS:
            value, moment, theta, ll, w = self._everybody(items, scales)
            place = (ABILITY_BOUND, N_NODES, scales.weight)
            count = ability_axis.persons(theta, w, *place) / scales.weight
            score = Scores.of(spec.method, size, count)(None, theta)
            sample = coreset_draws.draw_gathered(spec, size, score, theta, ll, key)
            few = item_step.are_few(sample.rows.size, r.n_items)
            at = AtAbilities(sample.theta, sample.weight, sample.rows, few)
            return Drawn(value, moment, at, float(sample.weight @ sample.ll))
        total, moments, nodes = self.engine.map_reduce(person_step.histogram, items, scales)
        value, moment = _scaled(total, moments, scales)
        count = nodes / scales.weight
        sample = coreset_draws.draw(self.engine, spec, items, scales, key, count, self._labels(x))
        return Drawn(value, moment, self._counts(sample), float(sample.weight @ sample.ll))

    def _poisson_round(self, x: Floats, iteration: int, count: Floats | None) -> Drawn:
        """Round that looks at the sample alone; the first at everybody, for the histogram.

        The size of the sample is random: its mean log-likelihood stands for that of all persons.
        """
        assert self.coreset is not None
        items, scales = self.items(x)
        if count is None:
            nodes = self.engine.map_reduce(person_step.histogram, items, scales)[2]
            count = nodes / scales.weight
        key = (self.seed, "coreset", iteration)
        sample = coreset_draws.draw(self.engine, self.coreset, items, scales, key, count)
        theta, w = sample.theta, sample.weight
        n, size = float(count.sum()), float(w.sum())
        value = n * float(w @ sample.ll) / size
        inside = np.where(np.abs(theta) < ABILITY_BOUND, w, 0.0)
        at = [w[theta == bound].sum() for bound in (-ABILITY_BOUND, ABILITY_BOUND)]
        moment = np.array([inside.sum(), inside @ theta, inside @ theta**2, *at])
        scale = fixed_point.scale_for(2.0 * size)
        nodes = ability_axis.persons(theta, w, ABILITY_BOUND, N_NODES, scale)
        return Drawn(value, moment, self._counts(sample), value, n * nodes / nodes.sum())

    def _counts(self, sample: coreset_draws.Sample) -> Counts:
        assert sample.data is not None
        few = item_step.are_few(*sample.data.shape)
        return AtAbilities(sample.theta, sample.weight, few=few).counts(
            sample.data, not self.model.log_odds
        )

    def _drawn_items(self, x: Floats, size: int, iteration: int) -> Floats:
        """Weights of all items, 0 for those that were not drawn."""
        assert self.coreset is not None
        generator = keyed_random.generator(self.seed, "coreset-items", iteration)
        spec = self.coreset
        drawn, weight = draw_items(x[0], x[1], size, spec.method, generator, spec.sampling)
        out = np.zeros(x.shape[1])
        out[drawn] = weight
        return out

    def _labels(self, x: Floats) -> Labels | None:
        if self.right_wrong is None:
            return None
        right, wrong = self.right_wrong
        return Labels(wrong, right, self.model.floor(x))

    def further(self, image: Floats, seen: AtAbilities) -> Floats:
        """The step itself."""
        return image

    def item_step(
        self, seen: AtAbilities | Counts, x: Floats, *, everywhere: bool = True
    ) -> Floats:
        """Maximise every item over its box; one that nobody answered keeps its values.

        ``everywhere``: where there may be several maxima, also from other start values.
        """
        out = item_step.maximise(self.engine, seen, self.model, x, self.box, everywhere=everywhere)
        if not np.isfinite(out).all():
            j = int(np.flatnonzero(~np.isfinite(out).all(axis=0))[0])
            raise EstimationError(
                f"the item step of {self.engine.responses.item_id[j]} ended at {out[:, j]}: this "
                f"should not happen, please report it with the data"
            )
        return out

    def information(self, seen: AtAbilities | Counts, x: Floats) -> Floats:
        """Expected information of the parameters, abilities taken as known; (P, P, items)."""
        return item_step.information(self.engine, seen, self.model, x)


def counted(engine: Engine, items: Items, scales: Scales) -> tuple[float, Floats, Counts]:
    """As :meth:`Rounds.round`, with counts on the ability axis whatever the size of the data."""
    by_node = items.lines is None
    value, moment, whole, right, right_ability, seen, found = engine.map_reduce(
        person_step.on_axis, items, scales, by_node
    )
    f = np.atleast_2d(whole + (np.asarray(seen) if np.ndim(seen) == 0 else seen.T))
    some = f.any(axis=0)
    counts = Counts(
        AXIS[some],
        np.ascontiguousarray(f[:, some] / scales.weight),
        right / scales.weight,
        right_ability / scales.ability,
        np.ascontiguousarray(found.T[:, some] / scales.weight) if by_node else np.zeros((0, 0)),
    )
    return *_scaled(value, moment, scales), counts


def _scaled(value: Any, moment: Any, scales: Scales) -> tuple[float, Floats]:
    return float(value) / scales.objective, moment / scales.moment
