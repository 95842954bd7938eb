"""The normal distribution of ability that fit statistics integrate over, items held."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.engine import Engine, item_parameters_3pl
from irt_dask.engine.cache import keep
from irt_dask.errors import ConvergenceWarning, EstimationError, InputError
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.misfit import predictions
from irt_dask.kernels.responses import response_counts
from irt_dask.models import grid_for, reach_of
from irt_dask.store import Block
from irt_dask.store.responses import sha256

Floats = NDArray[np.float64]

#: EM steps at most, and the change of mean and log SD that ends them.
_STEPS, _TOLERANCE = 200, 1e-6
#: Smallest SD, and the longest stride of an extrapolation in EM steps.
_LEAST_SD, _LONGEST_STRIDE = 1e-3, 64.0
#: How far it goes at most beyond the last step, in SD and in log SD.
_FARTHEST = 2.0


class Scale(NamedTuple):
    """Items on the scale of standardised ability, the grid, and mean and SD of ability."""

    a: Floats
    d: Floats
    c: Floats
    nodes: Floats
    mean: float
    sd: float
    #: Where the grid ends.
    bound: float

    def curves(self) -> predictions.Curves:
        """Tables of items and grid, made once in a process."""
        items = (self.a, self.d, self.c, self.nodes)
        return keep(("fit", sha256(*items)), lambda: predictions.curves(*items))

    @property
    def n_parameters(self) -> int:
        """Parameters of an item: 1 where all slopes are the same, 3 where some can be guessed."""
        if (self.c > 0.0).any():
            return 3
        return 1 if (self.a == self.a[0]).all() else 2


def on_scale(a: Floats, d: Floats, c: Floats, mean: float, sd: float) -> Scale:
    """Standardise ability: items of ``(theta - mean) / sd``."""
    slopes, intercepts = a * sd, d + a * mean
    bound = reach_of(slopes, intercepts)
    nodes = grid_for(slopes, intercepts, bound=bound).nodes
    return Scale(slopes, intercepts, c, nodes, mean, sd, bound)


def _moments(block: Block, scale: Scale, unit: float) -> tuple[Any, ...]:
    """Posterior moments of the persons with responses."""
    mean, square = predictions.moments(block.data, scale.curves())
    seen = response_counts.responses_per_person(block.data) > 0
    terms = np.stack([np.ones(mean.size), mean, square])[:, seen]
    return (fixed_point.fixed(terms, unit).sum(axis=1),)


def estimate(engine: Engine, a: Floats, d: Floats, c: Floats) -> tuple[Scale, int, bool]:
    """Mean and SD of the highest marginal likelihood, by EM; steps taken, and whether they ended.

    A pass over the data for each step.  After every two the path is extrapolated (SQUAREM, Varadhan
    and Roland 2008); an extrapolation from which steps become longer than before is taken back.
    """

    def step(x: Floats) -> Floats:  # mean and log SD
        mean, sd = float(x[0]), math.exp(x[1])
        scale = on_scale(a, d, c, mean, sd)
        unit = fixed_point.scale_for(engine.responses.n_persons * scale.bound**2)
        sums = engine.map_reduce(_moments, scale, unit)[0] / unit
        if sums[0] == 0.0:
            raise EstimationError("there is no observed response")
        first, second = sums[1:] / sums[0]
        spread = math.sqrt(max(second - first**2, _LEAST_SD**2))
        return np.array([mean + sd * first, max(math.log(sd * spread), math.log(_LEAST_SD))])

    x, steps, longest, safe = np.zeros(2), 0, math.inf, np.zeros(2)
    while steps < _STEPS:
        one = step(x)
        first = one - x
        if np.abs(first).max() > 2.0 * longest:  # led astray
            x, longest = safe, math.inf
            steps += 1
            continue
        two = step(one)
        second = two - one
        steps += 2
        if np.abs(second).max() < _TOLERANCE:
            return on_scale(a, d, c, float(two[0]), math.exp(two[1])), steps, True
        bend = float(np.linalg.norm(second - first))
        ratio = float(np.linalg.norm(first)) / bend if bend > 0.0 else 1.0
        ratio = min(max(ratio, 1.0), _LONGEST_STRIDE)
        safe, longest = two, float(np.abs(second).max())
        beyond = x + 2.0 * ratio * first + ratio**2 * (second - first) - two
        farthest = np.array([_FARTHEST * math.exp(two[1]), _FARTHEST])
        x = two + np.clip(beyond, -farthest, farthest)
    change = float(np.abs(second).max())
    warnings.warn(
        f"the distribution of ability still changes by {change:.2g} after {steps} steps: these "
        f"responses hardly determine it; give ability=(mean, sd) where the function takes it, or "
        f"more persons",
        ConvergenceWarning,
        stacklevel=4,
    )
    return on_scale(a, d, c, float(two[0]), math.exp(two[1])), steps, False


def checked(ability: Any) -> tuple[float, float] | None:
    """Return a mean and a positive SD, or None."""
    if ability is None:
        return None
    try:
        mean, sd = (float(x) for x in ability)
    except (TypeError, ValueError):
        mean, sd = math.nan, math.nan
    if not (math.isfinite(mean) and math.isfinite(sd) and sd > 0.0):
        raise InputError(
            f"ability={ability!r} must be (mean, sd) of its normal distribution, both finite and "
            f"sd > 0, or None to estimate them"
        )
    return mean, sd


def choose(
    engine: Engine, items: xr.Dataset, ability: tuple[float, float] | None
) -> tuple[Scale, dict[str, Any]]:
    """Scale of the items under the given or the estimated distribution; what attrs say of it."""
    a, d, c = item_parameters_3pl(items, engine.responses.item_id)
    if ability is None:
        scale, steps, converged = estimate(engine, a, d, c)
    else:
        scale, steps, converged = on_scale(a, d, c, *ability), 0, True
    attrs = {
        "model": items.attrs.get("model"),
        "n_persons": engine.responses.n_persons,
        "ability_mean": scale.mean,
        "ability_sd": scale.sd,
        "n_iterations": steps,
        "converged": converged,
    }
    return scale, attrs
