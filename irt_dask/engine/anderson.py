"""Anderson acceleration of a monotone fixed-point iteration, guarded by its objective."""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats

#: Earlier steps that a proposal is made of.
_MEMORY = 6
#: How far from the plain step a proposal may lie, in lengths of that step: at first, and ever.
_REACH, _FURTHEST = 4.0, 1e6


class Accelerator:
    """Proposes where to go after a step ``x -> step(x)`` that never lowers the objective.

    The steps of alternating optimisation shrink slowly along a ridge (the scale of ability), always
    in the same direction.  From the last steps the proposal solves for the point at which they
    would vanish (Anderson 1965; Walker and Ni 2011), within the bounds and not further from the
    plain step than some times its length, a limit that grows while proposals succeed.  The caller
    evaluates the objective there; :meth:`refused` says that it was lower than before, and the plain
    step follows.
    """

    def __init__(self, low: Floats, high: Floats) -> None:
        self.low, self.high = low, high
        self._points: list[Floats] = []
        self._images: list[Floats] = []
        self._reach, self._grows = _REACH, True

    def refused(self) -> None:
        """Reach less far."""
        self._reach, self._grows = max(self._reach / 4.0, 1.0), False

    def propose(self, x: Floats, image: Floats) -> Floats:
        """Take note of a step and return the next point, ``image`` itself at first."""
        self._points.append(x.ravel())
        self._images.append(image.ravel())
        del self._points[: -_MEMORY - 1], self._images[: -_MEMORY - 1]
        if len(self._points) < 2:
            return image
        if self._grows:
            self._reach = min(2.0 * self._reach, _FURTHEST)
        self._grows = True
        steps = np.array(self._images) - np.array(self._points)
        differences = np.diff(steps, axis=0).T
        gamma = np.linalg.lstsq(differences, steps[-1], rcond=1e-6)[0]
        beyond = -np.diff(np.array(self._images), axis=0).T @ gamma
        length, most = float(np.linalg.norm(beyond)), self._reach * float(np.linalg.norm(steps[-1]))
        if length > most:
            beyond *= most / length
        proposal = (self._images[-1] + beyond).reshape(x.shape)
        inside = np.clip(proposal, self.low[:, None], self.high[:, None])
        return inside if np.isfinite(inside).all() else image

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {
            "points": np.array(self._points),
            "images": np.array(self._images),
            "reach": self._reach,
            "grows": self._grows,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        self._points, self._images = list(state["points"]), list(state["images"])
        self._reach, self._grows = float(state["reach"]), bool(state["grows"])
