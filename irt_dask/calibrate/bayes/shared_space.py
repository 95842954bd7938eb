"""Coordinates in which shards are combined where items share some: each of these is one number.

More columns follow the items', one for each block of common steps, the first one of the slope too;
a shared coordinate stands there in its row, and is no longer free in the items'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.bayes.item_density import Shapes
from irt_dask.calibrate.bayes.model_space import ModelSpace


@dataclass(frozen=True, eq=False, kw_only=True)
class SharedSpace(ModelSpace):
    """Coordinates of items and, in columns of their own, of what they share."""

    @cached_property
    def _column(self) -> Ints:
        """Column of each coordinate (P, items) that is shared; -1 of others."""
        models = self.shapes.models
        out, column = np.where(models.of_all >= 0, models.n_items, -1), models.n_items
        for part in models.parts:
            if len(part.model.shared) > 1:
                own = out[:, part.at]
                own[2:][own[2:] >= 0] = column
                out[:, part.at] = own
                column += 1
        return out

    @cached_property
    def _n_columns(self) -> int:
        return int(self._column.max()) + 1

    @cached_property
    def _place(self) -> tuple[Ints, Ints, Ints]:
        """Rows, items and columns of all that is shared."""
        row, item = np.nonzero(self._column >= 0)
        return row, item, self._column[row, item]

    def mask(self, n_rows: int, n_items: int) -> Bools:
        """See :class:`Space`."""
        row, _, column = self._place
        out = np.zeros((len(self._column), self._n_columns), dtype=bool)
        out[:, : self._column.shape[1]] = self.shapes.free & (self._column < 0)
        out[row, column] = True
        return out

    @property
    def reported(self) -> Shapes:
        """See :class:`ModelSpace`."""
        return self.shapes.reported

    def labels(self, item_id: tuple[str, ...]) -> tuple[str, ...]:
        """See :class:`ModelSpace`."""
        m, models = len(item_id), self.shapes.models
        out = [*item_id, *["all that share it"] * (self._n_columns - m)]
        for part in models.parts:
            if len(part.model.shared) > 1 and part.block:
                out[self._column[2, part.at[0]]] = f"block {part.block}"
        return tuple(out)

    def of_draws(self, draws: Floats) -> Floats:
        """See :class:`Space`."""
        row, item, column = self._place
        draws = super().of_draws(draws)
        out = np.zeros((*draws.shape[:-1], self._n_columns))
        out[..., : draws.shape[-1]] = np.where(self._column < 0, draws, 0.0)
        out[..., row, column] = draws[..., row, item]
        return out

    def items(self, x: Floats) -> Floats:
        """See :class:`Space`: what items share for each."""
        row, item, column = self._place
        out = x[..., : self._column.shape[1]].copy()
        out[..., row, item] = x[..., row, column]
        return out

    def gradient(self, x: Floats, by_parameter: Floats) -> Floats:
        """See :class:`Space`: sums over the items of what they share."""
        m = by_parameter.shape[1]
        by_parameter = by_parameter * self.slope(x)[:, :m]
        row, item, column = self._place
        out = np.zeros_like(x)
        out[:, :m] = np.where(self._column < 0, by_parameter, 0.0)
        np.add.at(out, (row, column), by_parameter[row, item])
        return out

    def mean(self, data: dict[str, Any]) -> Floats:
        """See :class:`ModelSpace`."""
        plain = ModelSpace(shapes=replace(self.shapes, models=self.shapes.models.apart))
        return self.shapes.models.tied(plain.mean(data))


def space_of(shapes: Shapes) -> ModelSpace:
    """Coordinates for items of these models."""
    return SharedSpace(shapes=shapes) if shapes.models.shares else ModelSpace(shapes=shapes)
