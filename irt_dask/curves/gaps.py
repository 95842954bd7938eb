"""Items some of whose categories have no response: models of the others, under their codes."""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves.base import ItemModel, renumbered

#: What log P of an empty category lies below that of the lowest one: e to it is 0 in doubles, and
#: the number is finite, so that 0 responses times it are 0.
_NEVER = -1000.0


class WithGaps(ItemModel):
    """A model of the categories that have responses, ``inner``, among all of them.

    ``category_map`` has the number of each code in the model's formulas, -1 of an empty category,
    whose P is 0.  The rows of these are the lowest category's with a constant of their own: what
    holds of log P as a function of ability (scores, derivatives) holds of all rows.  Step k is that
    to category k; it is NaN where this is empty, or the lowest.
    """

    def __init__(self, inner: ItemModel, category_map: tuple[int, ...]) -> None:
        known = np.array(category_map) >= 0
        self.inner, self._map, self._kept = inner, category_map, np.flatnonzero(known)
        self.name, self.rule, self.n_categories = inner.name, inner.rule, known.size
        self.steps = inner.steps
        self.parameters = tuple(renumbered(p, self._kept) for p in inner.parameters)
        self.shared = tuple(
            new.letter
            for new, old in zip(self.parameters, inner.parameters, strict=True)
            if old.letter in inner.shared
        )
        self._rows = np.where(known, np.cumsum(known) - 1, 0)
        self._never = np.where(known, 0.0, _NEVER)[:, None]

    @property
    def category_map(self) -> tuple[int, ...]:
        """See :class:`ItemModel`."""
        return self._map

    def log_p(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return self.inner.log_p(x, nodes)[:, self._rows] + self._never

    def farthest(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`: of categories that somebody may have."""
        return self.inner.farthest(x, nodes)

    def by_ability(self, x: Floats, nodes: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        first, second = self.inner.by_ability(x, nodes)
        return first[:, self._rows], second[:, self._rows]

    def by_parameter(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return self.inner.by_parameter(x, nodes)[:, :, self._rows]

    def scores(self, x: Floats) -> Floats | None:
        """See :class:`ItemModel`."""
        found = self.inner.scores(x)
        return None if found is None else found[:, self._rows]

    def rescaling(self, mean: float, sd: float) -> Floats:
        """See :class:`ItemModel`."""
        return self.inner.rescaling(mean, sd)

    def difficulty(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        return self.inner.difficulty(x)

    def slope(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        return self.inner.slope(x)

    def intercept(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        return self.inner.intercept(x)

    def _among(self, n: int, at: Ints, found: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """Values and gradients of n steps or categories, those ``at`` which are found, else NaN."""
        value, gradient = (
            np.full((n, found[0].shape[1]), np.nan),
            np.zeros((n, *found[1].shape[1:])),
        )
        value[at], gradient[at] = found
        return value, gradient

    def step_intercepts(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        return self._among(self.n_categories - 1, self._steps, self.inner.step_intercepts(x))

    def step_difficulties(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        return self._among(self.n_categories - 1, self._steps, self.inner.step_difficulties(x))

    def thresholds(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        return self._among(self.n_categories - 1, self._steps, self.inner.thresholds(x))

    def category_scores(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        return self._among(self.n_categories, self._kept, self.inner.category_scores(x))

    @property
    def _steps(self) -> Ints:
        """Places of the steps that there are, among all."""
        return self._kept[1:] - 1

    def start(self, x: Floats, n: Floats) -> None:
        """See :class:`ItemModel`."""
        self.inner.start(x, n[:, self._kept])

    def of_steps(self, scores: Floats, intercepts: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return self.inner.of_steps(scores[self._steps], intercepts[self._steps])

    def ends(self, x: Floats) -> tuple[Ints, Ints]:
        """See :class:`ItemModel`."""
        lowest, highest = self.inner.ends(x)
        return self._kept[lowest], self._kept[highest]

    def floor(self, x: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return self.inner.floor(x)

    def valid(self, x: Floats) -> Bools:
        """See :class:`ItemModel`."""
        return self.inner.valid(x)

    def steepness(self, x: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return self.inner.steepness(x)

    def information(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return self.inner.information(x, nodes)

    def sharpness(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return self.inner.sharpness(x, nodes)
