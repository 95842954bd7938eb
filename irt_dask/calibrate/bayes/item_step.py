"""The item step of a sweep: Metropolis-Hastings about the modes of items given counts."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.bayes.item_density import Conditional, Shapes
from irt_dask.curves.coordinates import Density

#: A step of this squared length, in posterior standard deviations, is the last.
_NEAR = 0.3
#: Items whose first step is longer than that are not taken to be at its end.
_FAR = 9.0
_MOST_STEPS, _HALVINGS, _LONGEST = 60, 30, 2.0
#: Steps of a random walk that items with asymptotes take too, and their length in posterior SDs.
_WALKS, _STRIDE = 2, 1.2
#: Uniforms that make a normal a t of twice as many degrees of freedom.
_CHI_SQUARE = 3


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
    taken = _oriented(np.log(u[:, -1]) < log_ratio, y, new, towards)
    y[:, taken] = new[:, taken]
    accepted += taken
    bent = [part.at for part in density.shapes.models.parts if part.model.asymptotes]
    if bent:
        at, value = np.sort(np.concatenate(bent)), np.where(taken, there, here)
        walks = walks[at].reshape(at.size, _WALKS, -1)
        _walk(density.take(at), information[at], walks, y, at, value[at])
    return centre


def agreement_of(towards: Floats, y: Floats) -> float:
    """What items count towards the orientation of ability: by slopes, or (P, items) by scores."""
    return float(towards @ y[0]) if towards.ndim == 1 else float((towards * y).sum())


def _oriented(taken: Bools, old: Floats, new: Floats, towards: Floats, rest: float = 0.0) -> Bools:
    """Which moves of items are taken, one after the other, if they may not turn ability around.

    ``rest`` is what other items count.
    """
    if not towards.size:
        return taken
    agreement = rest + agreement_of(towards, old)
    if towards.ndim == 1:
        change = towards * np.where(taken, new[0] - old[0], 0.0)
    else:
        change = (towards * np.where(taken, new - old, 0.0)).sum(axis=0)
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
        of_all = agreement_of(towards, y)
        towards = towards[at] if towards.ndim == 1 else towards[:size, at]
        rest = of_all - agreement_of(towards, here)
    else:
        rest = 0.0
    for k in range(u.shape[1]):
        z = np.where(free.T, _STRIDE * ndtri(u[:, k, :size]), 0.0)
        new = here + np.linalg.solve(root, z[:, :, None])[:, :, 0].T
        there = density.value(new)
        taken = np.log(u[:, k, -1]) < there - value
        taken = _oriented(taken, here, new, towards, rest)
        here, value = np.where(taken, new, here), np.where(taken, there, value)
    y[:size, at] = here
