"""The loops of joint maximum likelihood: on all persons, and on fresh coresets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.engine import Checkpoint, Engine
from irt_dask.engine.anderson import Accelerator
from irt_dask.errors import CheckpointError
from irt_dask.kernels.joint.item_maximum import Box

#: Items of an iteration on the identified scale, from the moments of its abilities.
Standardise = Callable[[Floats, Floats], Floats]

#: Objective at a point, and moments and what was seen there.
Round = Callable[[Floats], tuple[float, Any, Any]]

#: Steps in a row that must gain less than the tolerance.
_QUIET = 2
#: A share of the log-likelihood by which it may seem to fall where it stands still.
_ROUNDING = 1e-13
#: Steps that gain a larger share of it are far from the maximum.
_FAR = 1e-5


class Steps(Protocol):
    """What a loop on all persons asks of a fit; ``seen`` is what its step needs."""

    engine: Engine
    box: Box

    def round(self, x: Floats) -> tuple[float, Any, Any]:
        """Objective at x, and moments and what was seen there."""

    def item_step(self, seen: Any, x: Floats, *, everywhere: bool = True) -> Floats:
        """Step from x, which never lowers the objective."""

    def further(self, image: Floats, seen: Any) -> Floats:
        """Where a step should rather have led: it may lower the objective, but not at the end."""


class CoresetSteps(Steps, Protocol):
    """What a loop on fresh coresets asks of a fit."""

    def coreset_round(self, x: Floats, iteration: int, count: Any) -> tuple[Any, ...]:
        """Objective, moments and what was seen at x; estimate of the whole; counts to go on."""


@dataclass
class Fitted:
    """Where a loop ended: its result, and the last items inside the bounds.

    ``seen_at`` is the last point whose objective was found, one step before.
    """

    x: Floats
    last: Floats
    trace: list[float]
    converged: bool
    seen_at: Floats
    extra: dict[str, Any] = field(default_factory=dict)


def _check_length(trace: list[float], max_iterations: int) -> None:
    if len(trace) > max_iterations:
        raise CheckpointError(
            f"the checkpoint has {len(trace)} iterations, more than max_iterations="
            f"{max_iterations}; remove it or raise max_iterations"
        )


def _everywhere(iteration: int, quiet: int) -> bool:
    """Whether an item step looks for other maxima too: early, late, now and then."""
    return iteration <= 3 or iteration % 5 == 0 or quiet > 0


def _far(trace: list[float]) -> bool:
    return len(trace) < 2 or trace[-1] - trace[-2] > _FAR * abs(trace[-1])


def full(
    fit: Steps, x: Floats, max_iterations: int, tolerance: float, saved: Checkpoint, name: str,
    *, early: Round | None = None,
) -> Fitted:  # fmt: skip
    """Alternate on all persons until the log-likelihood stands still.

    A point that acceleration proposed and that lies lower than the last one is dropped, and the
    plain step from there is taken: the log-likelihood never falls.  ``name`` is that of the
    checkpoint.  ``early`` are rounds that cost less and are good enough far from the maximum.
    """
    trace: list[float] = []
    accelerator = Accelerator(fit.box.low, fit.box.high)
    image, here, quiet, plain = x, x, 0, False
    if (state := saved.load(name)) is not None:
        x, image, trace = state["x"], state["image"], list(state["trace"])
        here = state.get("here", image)  # an earlier version kept none
        quiet = int(state["quiet"])
        accelerator.restore(state)
        plain = bool(state["plain"])
        _check_length(trace, max_iterations)
    while len(trace) < max_iterations and quiet < _QUIET:
        far = early is not None and _far(trace)
        value, _, seen = early(x) if early is not None and far else fit.round(x)
        if trace and 0.0 < trace[-1] - value <= _ROUNDING * abs(trace[-1]):
            value = trace[-1]
        # Those of other rounds are not the same to the last digits.
        alike = early is None or not trace or far == _far(trace[:-1])
        slack = 0.0 if alike else _FAR * abs(trace[-1])
        if trace and value < trace[-1] - slack and not np.array_equal(x, image):
            accelerator.refused()
            trace.append(trace[-1])
            x, plain = image, True
        else:
            if trace and alike and value - trace[-1] < tolerance * abs(value):
                quiet += not plain  # a plain step after a refusal says little
            else:
                quiet = 0
            plain = False
            trace.append(value)
            here = x
            image = fit.item_step(seen, x, everywhere=_everywhere(len(trace), quiet))
            x = accelerator.propose(x, fit.further(image, seen))
        state = {"x": x, "image": image, "trace": np.array(trace), "quiet": quiet, "plain": plain}
        state["here"] = here
        saved.save(name, state | accelerator.state())
        fit.engine.progress.update(len(trace), max_iterations)
    return Fitted(image, image, trace, quiet >= _QUIET, here)


def on_coresets(
    fit: CoresetSteps, x: Floats, max_iterations: int, tolerance: float, saved: Checkpoint,
    standardised: Standardise,
) -> Fitted:  # fmt: skip
    """Alternate with a fresh coreset each time; average the second half of the iterations.

    The path that is averaged is on the identified scale, so that it is not one over scales.
    """
    trace: list[float] = []
    path: list[Floats] = []
    estimate, count = math.nan, None
    if (state := saved.load("joint")) is not None:
        x, trace = state["x"], list(state["trace"])
        _check_length(trace, max_iterations)
        path, estimate = list(state["path"]), float(state["estimate"])
        count = state["count"] if state["count"].size else None
    while len(trace) < max_iterations:
        value, moment, seen, estimate, count = fit.coreset_round(x, len(trace), count)
        trace.append(value)
        x = fit.item_step(seen, x, everywhere=_everywhere(len(trace), 0))
        path.append(standardised(x, moment))
        state = {"x": x, "trace": np.array(trace), "path": np.array(path), "estimate": estimate}
        saved.save("joint", state | {"count": np.zeros(0) if count is None else count})
        fit.engine.progress.update(len(trace), max_iterations)
    quarter = max_iterations // 4
    third, fourth = np.array(path[-2 * quarter : -quarter]), np.array(path[-quarter:])
    noise = np.sqrt((third.var(axis=0, ddof=1) + fourth.var(axis=0, ddof=1)) / quarter)
    shift = np.abs(fourth.mean(axis=0) - third.mean(axis=0))
    converged = bool(np.sqrt(np.mean(shift**2)) <= 3.0 * np.sqrt(np.mean(noise**2)) + tolerance)
    mean = np.array(path[-(max_iterations // 2) :]).mean(axis=0)
    return Fitted(mean, x, trace, converged, x, {"coreset_objective": estimate})
