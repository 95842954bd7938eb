"""Densities of items of any model given counts of responses by ability, in their coordinates.

Coordinates (:mod:`irt_dask.curves.coordinates`) of all items are one array (coordinates, items),
padded to the model that has most: what an item's model lacks is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.bayes.item_moves import Moves
from irt_dask.curves.betas import Betas
from irt_dask.curves.coordinates import Coordinates, Density, Signed, nothing
from irt_dask.curves.item_set import ItemSet
from irt_dask.items.derivatives import Counts, derivatives, values
from irt_dask.items.mixture import Mixture, Part

#: A step of this squared length, in posterior standard deviations, is the last.
_NEAR = 0.3
#: Items whose first step is longer than that are not taken to be at its end.
_FAR = 9.0
_MOST_STEPS, _HALVINGS, _LONGEST = 60, 30, 2.0
#: Steps of a random walk that items with asymptotes take too, and their length in posterior SDs.
_WALKS, _STRIDE = 2, 1.2
#: Uniforms that make a normal a t of twice as many degrees of freedom.
_CHI_SQUARE = 3


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
        return Signed(own) if self.signed else own

    def discriminations(self, u: Floats) -> Floats:
        """Slopes at their coordinates."""
        return u if self.signed else np.exp(u)

    @property
    def free(self) -> Bools:
        """Coordinates that items have, (coordinates, items)."""
        return self.models.has

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
            more = y[:1] * margin if self.signed else y[:1] + np.log(margin)
            y = np.concatenate([more, y[1:]])
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


def modes(density: Conditional, start: Floats) -> tuple[Floats, Floats]:
    """Modes of items, or near them, and the information there, (items, coordinates, coordinates).

    Scoring steps from ``start``, halved where the density falls: a function of counts and start, so
    that a proposal made of it is exact wherever this search ends.
    """
    y, here = start, density.at(start)
    for _ in range(_MOST_STEPS):
        step, length = _step(here.gradient, here.information)
        going = length >= _NEAR
        if not going.any():
            return y + step, here.information
        size = np.ones(y.shape[1]) * going
        for _ in range(_HALVINGS):
            there = density.at(y + size * step)
            worse = ~(there.value >= here.value) & (size > 0.0)
            if not worse.any():
                break
            size = np.where(worse, 0.5 * size, size)
        else:
            break
        y, here = y + size * step, there
    return y, here.information


def _step(gradient: Floats, information: Floats) -> tuple[Floats, Floats]:
    """Scoring step, cut where it is long, and its squared length in posterior SDs if it is not."""
    step = np.linalg.solve(information, gradient.T[:, :, None])[:, :, 0].T
    longest = np.abs(step).max(axis=0)
    return step * np.minimum(1.0, _LONGEST / longest.clip(_LONGEST)), (step * gradient).sum(axis=0)


class Reference:
    """What scoring steps from fixed coordinates need of the items, at all abilities of a grid.

    Gradients are sums over responses of what each adds, and the information is one over persons:
    with these tables a step costs no evaluation of a curve.
    """

    def __init__(self, shapes: Shapes, y: Floats, nodes: Floats) -> None:
        self.shapes, self.y, self.parts = shapes, y, []
        x = shapes.parameters(y)
        for part in shapes.models.parts:
            size = len(part.model.parameters)
            own = x[:size, part.at]
            by = part.model.by_parameter(own, nodes)
            slopes = shapes.slopes(part, y)
            score = np.einsum("pqm,pmkn->mknq", slopes, by)  # (items, categories, nodes, size)
            score = np.ascontiguousarray(score)
            p = np.exp(part.model.log_p(own, nodes))
            information = np.einsum("mkn,mknq,mknr->mnqr", p, score, score, optimize=True)
            self.parts.append((score, information.reshape(*information.shape[:2], -1)))

    def step(self, density: Conditional, kept: Ints) -> tuple[Floats, Floats, Floats]:
        """Step from these coordinates, its squared length, and the information; as :func:`_step`.

        ``kept`` are the nodes that counts are of.
        """
        out = self.derivatives(density, kept)
        density.hold(self.y, out)
        return *_step(out.gradient, out.information), out.information

    def derivatives(self, density: Conditional, kept: Ints) -> Density:
        """Gradient and information of the density at these coordinates."""
        out = density.before(self.y)
        for (score, information), c in zip(self.parts, density.counts, strict=True):
            m, k, n_nodes, size = score.shape
            at = kept
            if 2 * kept.size < n_nodes:  # few persons
                score, information = score[:, :, kept], information[:, kept]
                n_nodes, at = kept.size, np.arange(kept.size)
            n, seen = np.zeros((m, k, n_nodes)), np.zeros((m, 1, n_nodes))
            n[:, 0, at] = c.seen - c.higher.sum(axis=1)
            n[:, 1:, at], seen[:, 0, at] = c.higher, c.seen
            by = n.reshape(m, 1, -1) @ score.reshape(m, -1, size)
            out.gradient[:size, c.items] += by[:, 0].T
            inner = seen @ information
            out.information[c.items, :size, :size] += inner.reshape(m, size, size)
        return out


def _centres(density: Conditional, reference: Reference, kept: Ints) -> tuple[Floats, Floats]:
    """Where proposals are made about, and their information: a function of the counts alone."""
    step, length, information = reference.step(density, kept)
    centre = density.placed(reference.y) + step
    far = np.flatnonzero(length >= _FAR)
    if far.size:
        some = density.take(far)
        size = some.shapes.models.size
        found = modes(some, some.placed(reference.y[:size, far]))
        centre[:size, far], information[far, :size, :size] = found
    return centre, information


def words_per_item(n_coordinates: int) -> int:
    """Uniforms that an item's step needs."""
    return n_coordinates + _CHI_SQUARE + 1 + _WALKS * (n_coordinates + 1)


def metropolis(
    density: Conditional, reference: Reference, kept: Ints, u: Floats, y: Floats, accepted: Ints
) -> Floats:
    """One independence Metropolis-Hastings step for each item, in place; where proposals were.

    They are of a t about the mode, or near it, with the information there: densities before the
    data fall at least exponentially in these coordinates and likelihoods are bounded, so that the
    ratio of target to proposal is bounded too.  They may not depend on the current value: the
    search for the mode starts at the ``reference``, which the caller keeps fixed.  ``kept`` are the
    nodes of the reference that counts are of; ``u`` are uniforms (items, :func:`words_per_item`).
    Densities of items with asymptotes are bent where these are uncertain; out there proposals would
    be refused for long, so that some steps of a random walk follow, which do not count as accepted.
    """
    size, free = len(y), density.free
    u, walks = np.split(u, [size + _CHI_SQUARE + 1], axis=1)
    centre, information = _centres(density, reference, kept)
    root = np.linalg.cholesky(information)
    z = np.where(free.T, ndtri(u[:, :size]), 0.0)
    df = 2.0 * _CHI_SQUARE
    chi_square = -2.0 * np.log(u[:, size:-1]).sum(axis=1)
    z *= np.sqrt(df / chi_square)[:, None]
    away = np.linalg.solve(root.transpose(0, 2, 1), z[:, :, None])[:, :, 0].T
    new = centre + away
    old = root.transpose(0, 2, 1) @ (y - centre).T[:, :, None]
    exponent = -0.5 * (df + free.sum(axis=0))
    log_ratio = exponent * np.log1p((old[:, :, 0] ** 2).sum(axis=1) / df)
    log_ratio -= exponent * np.log1p((z**2).sum(axis=1) / df)
    there, here = density.value(new), density.value(y)
    log_ratio += there - here
    towards = density.common.towards
    taken = _oriented(np.log(u[:, -1]) < log_ratio, y[0], new[0], towards)
    y[:, taken] = new[:, taken]
    accepted += taken
    bent = [part.at for part in density.shapes.models.parts if part.model.asymptotes]
    if bent:
        at, value = np.sort(np.concatenate(bent)), np.where(taken, there, here)
        walks = walks[at].reshape(at.size, _WALKS, -1)
        _walk(density.take(at), information[at], walks, y, at, value[at])
    return centre


def _oriented(taken: Bools, old: Floats, new: Floats, towards: Floats, rest: float = 0.0) -> Bools:
    """Which moves of slopes are taken, one after the other, if they may not turn ability around.

    ``rest`` is what other items count.
    """
    if not towards.size:
        return taken
    agreement = rest + float(towards @ old)
    change = towards * np.where(taken, new - old, 0.0)
    if (agreement + np.cumsum(change) > 0.0).all():
        return taken
    out = taken.copy()
    for j in np.flatnonzero(taken):
        out[j] = agreement + change[j] > 0.0
        agreement += change[j] * out[j]
    return out


def _walk(
    density: Conditional, information: Floats, u: Floats, y: Floats, at: Ints, value: Floats
) -> None:
    """Steps of a random walk of the items ``at``, in place, whose log density is ``value`` now.

    ``u`` are uniforms (items, steps, coordinates and one).
    """
    size, free = density.shapes.models.size, density.free
    root = np.linalg.cholesky(information[:, :size, :size]).transpose(0, 2, 1)
    here = y[:size, at]
    towards = density.common.towards
    if towards.size:
        towards, of_all = towards[at], float(towards @ y[0])
        rest = of_all - float(towards @ here[0])
    else:
        rest = 0.0
    for k in range(u.shape[1]):
        z = np.where(free.T, _STRIDE * ndtri(u[:, k, :size]), 0.0)
        new = here + np.linalg.solve(root, z[:, :, None])[:, :, 0].T
        there = density.value(new)
        taken = np.log(u[:, k, -1]) < there - value
        taken = _oriented(taken, here[0], new[0], towards, rest)
        here, value = np.where(taken, new, here), np.where(taken, there, value)
    y[:size, at] = here
