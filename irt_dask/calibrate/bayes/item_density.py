"""Densities of items of any model given counts of responses by ability, in their coordinates.

Coordinates (:mod:`irt_dask.curves.coordinates`) of all items are one array (coordinates, items),
padded to the model that has most: what an item's model lacks is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.bayes.item_moves import Moves
from irt_dask.curves.betas import Betas
from irt_dask.curves.coordinates import Coordinates, Density, nothing
from irt_dask.curves.item_set import ItemSet
from irt_dask.items.derivatives import Counts, derivatives, values
from irt_dask.items.mixture import Mixture, Part


@dataclass(frozen=True)
class Shapes:
    """Models of the items, and densities of their shapes before the data, to a power."""

    models: Mixture
    betas: Betas
    power: float = 1.0
    #: Whether slopes may be negative: they are coordinates themselves, not their logarithms.
    signed: bool = False

    def _coordinates(self, part: Part) -> Coordinates:
        own = part.model.coordinates
        assert own is not None
        return own.signed if self.signed else own

    def discriminations(self, u: Floats) -> Floats:
        """Slopes at their coordinates."""
        return u if self.signed else np.exp(u)

    @property
    def free(self) -> Bools:
        """Coordinates that items have, (coordinates, items)."""
        return self.models.has

    @property
    def scored(self) -> bool:
        """Whether some items have scores, so that more than slopes is in units of ability."""
        return bool(self.rising_items.any())

    @property
    def rising(self) -> Bools:
        """Coordinates of shapes that are in units of ability, (coordinates, items)."""
        out = np.zeros_like(self.free)
        for part in self.models.parts:
            out[self._coordinates(part).rising, part.at] = True
        return out

    @property
    def rising_items(self) -> Bools:
        """Items that have scores."""
        return self.models.names == "nominal"

    def inner(self, y: Floats) -> Floats:
        """Weights (P, items) of whose products the sums over scores with those of y are made up."""
        out = np.zeros_like(y)
        out[0] = y[0]
        for part in self.models.parts:
            if part.model.name == "nominal":
                c, steps = self._coordinates(part), part.model.n_categories - 1
                rows = np.r_[0, np.arange(len(y))[c.rising]]
                scores = c.slopes(y[: c.size, part.at])[:steps, rows, 0]
                out[np.ix_(rows, part.at)] = scores.T @ scores @ y[np.ix_(rows, part.at)]
        return out

    def stretched(self, y: Floats, by: Floats | float) -> Floats:
        """Items whose slopes, of any sign, and scores are multiplied: -1 turns ability around."""
        out = y.copy()
        out[0] *= by
        if self.scored:
            out = np.where(self.rising, y * by, out)
        return out

    def lifted(self, y: Floats) -> Floats:
        """What is added to items, whose slopes have any sign, if abilities are 1 less."""
        out = np.zeros_like(y)
        out[1] = y[0]
        for part in self.models.parts:
            c = self._coordinates(part)
            out[c.level, part.at] = y[c.rising, part.at]
        return out

    def of(self, x: Floats) -> Floats:
        """Coordinates of parameters."""
        y = np.zeros_like(x)
        for part in self.models.parts:
            own = self.models.own(part, x)
            y[: len(own), part.at] = self._coordinates(part).of(own)
        return y

    def parameters(self, y: Floats) -> Floats:
        """Parameters at coordinates, (..., parameters, items)."""
        x = np.zeros_like(y)
        for part in self.models.parts:
            size = len(part.model.parameters)
            own = np.moveaxis(y[..., :size, part.at], -2, 0)
            found = self._coordinates(part).parameters(own.reshape(size, -1))
            x[..., :size, part.at] = np.moveaxis(found.reshape(own.shape), 0, -2)
        return x

    def items(self, y: Floats, margin: float = 1.0) -> ItemSet:
        """The items at coordinates, slopes multiplied by the margin."""
        if margin != 1.0:
            if self.signed:
                y = self.stretched(y, margin)
            else:
                y = np.concatenate([y[:1] + np.log(margin), y[1:]])
        return self.models.item_set(self.parameters(y))

    def by_coordinate(self, y: Floats, gradient: Floats) -> Floats:
        """Gradient by coordinates of that by parameters."""
        out = np.zeros_like(y)
        for part in self.models.parts:
            size = len(part.model.parameters)
            slopes = self.slopes(part, y)
            out[:size, part.at] = np.einsum("pqm,pm->qm", slopes, gradient[:size, part.at])
        return out

    def slopes(self, part: Part, y: Floats) -> Floats:
        """Derivatives of a part's parameters p by its coordinates q, (p, q, items)."""
        return self._coordinates(part).slopes(y[: len(part.model.parameters), part.at])

    def take(self, items: Ints) -> Shapes:
        """Those of some items."""
        models = self.models.take(items.tolist())
        betas = self.betas.take(items).first(models.size)
        return replace(self, models=models, betas=betas)

    @property
    def reported(self) -> Shapes:
        """The same coordinates, as those of parameters that results have."""
        return replace(self, models=self.models.apart) if self.models.shares else self

    @property
    def _again(self) -> Ints:
        """Items whose shape is that of an earlier one."""
        models = self.models
        if not models.shares or models.size == 2:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(~models.once[2] & models.has[2])

    def log_prior(self, y: Floats) -> Density:
        """Density of the shapes before the data; that of a shape that is shared, once."""
        out = nothing(y)
        for part in self.models.parts:
            size, at = len(part.model.parameters), part.at
            betas = self.betas.take(at).first(size)
            own = self._coordinates(part).log_prior(y[:size, at], betas, self.power)
            out.value[at], out.gradient[:size, at] = own.value, own.gradient
            out.information[at, :size, :size] = own.information
        for of_each in (out.value, out.gradient.T, out.information):
            of_each[self._again] = 0.0
        return out

    def log_density(self, y: Floats) -> Floats:
        """The value alone, (items,)."""
        out = np.empty(y.shape[1])
        for part in self.models.parts:
            size, at = len(part.model.parameters), part.at
            betas = self.betas.take(at).first(size)
            out[at] = self._coordinates(part).log_density(y[:size, at], betas, self.power)
        out[self._again] = 0.0
        return out

    def draw(self, common: Floats, u: Floats) -> Floats:
        """Coordinates (draw, coordinates, items) whose shapes are drawn from that density.

        The first two are ``common`` (draw, 2, items); ``u`` are uniforms of the shape of the rest.
        """
        out = np.concatenate([common, np.zeros_like(u)], axis=1)
        for part in self.models.parts:
            size, at = len(part.model.parameters), part.at
            betas = self.betas.take(at).first(size)
            out[:, 2:size, at] = self._coordinates(part).draw_shapes(u[:, : size - 2, at], betas)
        return self.models.tied(out)


@dataclass(frozen=True)
class Conditional:
    """Density of each item given counts; ``common`` is what is known of all (log a, d)."""

    shapes: Shapes
    counts: Sequence[Counts]
    common: Moves

    @property
    def free(self) -> Bools:
        """Coordinates that are drawn, (coordinates, items)."""
        return self.shapes.free

    def placed(self, y: Floats) -> Floats:
        """Coordinates with those that are held where they are held."""
        return y

    def hold(self, y: Floats, density: Density) -> None:
        """Make of a density about y that of the coordinates which are drawn alone, in place."""

    def value(self, y: Floats) -> Floats:
        """Log density of each item, but for a constant; minus infinity where it is none."""
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            found = values(self.counts, self.shapes.parameters(y)) + self.shapes.log_density(y)
            found += self.common.log_density(*y[:2])
        return np.where(np.isfinite(found), found, -np.inf)

    def at(self, y: Floats) -> Density:
        """Log density of each item, and its derivatives with the expected information.

        That of coordinates which an item lacks is 1.
        """
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            of_data = derivatives(self.counts, self.shapes.parameters(y))
        out = self.before(y)
        out.value[:] += of_data.value
        for part in self.shapes.models.parts:
            size, at = len(part.model.parameters), part.at
            slopes = self.shapes.slopes(part, y).transpose(2, 0, 1)
            by = of_data.gradient[:size, at].T[:, None] @ slopes
            out.gradient[:size, at] += by[:, 0].T
            inner = of_data.information[at, :size, :size]
            out.information[at, :size, :size] += slopes.transpose(0, 2, 1) @ inner @ slopes
        return out

    def before(self, y: Floats) -> Density:
        """The same before the data."""
        out, common = self.shapes.log_prior(y), self.common.log_prior(*y[:2])
        out.value[:] += common.value
        out.gradient[:2] += common.gradient
        out.information[:, :2, :2] += common.information
        diagonal = np.arange(len(y))
        out.information[:, diagonal, diagonal] += ~self.shapes.free.T
        return out

    def take(self, items: Ints) -> Conditional:
        """The densities of some items."""
        kept = np.zeros(self.shapes.models.n_items, dtype=bool)
        kept[items] = True
        place = np.cumsum(kept) - 1
        counts = [c.take(kept) for c in self.counts]
        counts = [c._replace(items=place[c.items]) for c in counts if c.items.size]
        return Conditional(self.shapes.take(items), counts, self.common.take(items))
