"""Moves along the scale of ability of items some of whose shape moves with it: scores."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from irt_dask.arrays import Floats
from irt_dask.calibrate.bayes.hierarchy import stretch
from irt_dask.calibrate.bayes.item_density import Shapes
from irt_dask.calibrate.bayes.item_moves import Abilities, FixedMoves
from irt_dask.calibrate.bayes.signed_hierarchy import along_slopes
from irt_dask.curves.priors import ItemPrior


class ScoredMoves(FixedMoves):
    """As :class:`FixedMoves`, signed, for items of any models, nominal ones among them.

    Along ``(theta - m) e^-v`` slopes and scores are multiplied by e^v, and intercepts gain m times
    them (:class:`irt_dask.curves.nominal.Scores`).  Everything that moves is normal before the
    data, so that the density on the orbit follows from gradient and information at one point.
    """

    words_after = 3

    def __init__(self, prior: ItemPrior, power: float, shapes: Shapes, towards: Floats) -> None:
        super().__init__(prior, power, shapes.models.n_items, towards)
        self.shapes, self.rising = shapes, shapes.rising
        self.words = self._before + self.words_after

    def move(self, abilities: Abilities, u: Floats, y: Floats) -> None:
        """Move scale and place, in place."""
        n, s1, s2 = abilities.sums()
        z, z_stretch = ndtri(u[:2])
        along = self.shapes.lifted(y)
        rise, square = self._along(y, along)
        shift = (s1 + rise) / (n + square) + z / math.sqrt(n + square)
        y += shift * along
        s2 += n * shift * shift - 2.0 * shift * s1
        along = np.where(self.rising, y, 0.0)
        along[0] = y[0]
        rise, square = self._along(y, along)
        k = n - self.m - int(self.rising.sum())
        v = stretch(along_slopes(k, s2, 0.0, square, rise + square), float(z_stretch), float(u[2]))
        y += math.expm1(v) * along

    def _along(self, y: Floats, direction: Floats) -> tuple[float, float]:
        """Slope and minus curvature of the log density before the data along a direction."""
        common, shape = self.log_prior(*y[:2]), self.shapes.log_prior(y)
        rise = float((common.gradient * direction[:2]).sum() + (shape.gradient * direction).sum())
        square = np.einsum("pm,mpq,qm->", direction[:2], common.information, direction[:2])
        square += np.einsum("pm,mpq,qm->", direction, shape.information, direction)
        return rise, float(square)
