"""How standard errors of marginal fits take persons to have been sampled, and their sandwich.

With H the observed information and S_c the sum over a sampling unit c, such as a school, of the
weighted scores of its persons, estimates have the covariance
``H^-1 (C / (C - 1) sum_c S_c S_c') H^-1``, C the number of units (Binder 1983; Liang and Zeger
1986).  Without units each person is one.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtrc, fdtrc

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.marginal import lost_information
from irt_dask.calibrate.marginal.expected import Setting
from irt_dask.calibrate.marginal.model import Model
from irt_dask.calibrate.marginal.rounds import Rounds
from irt_dask.engine import Engine
from irt_dask.errors import DataWarning, InputError
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.posterior import unit_scores
from irt_dask.kernels.posterior.lost_information import Scores
from irt_dask.population.units import Units, n_answered, refuse_many
from irt_dask.store import Block

#: Parameters whose covariance is found unless the user says otherwise (seconds), and is found as a
#: matrix (a minute; some GiB on the driver and in each worker).
MAX_BY_DEFAULT, MAX_MATRIX = 2000, 6000
#: Units below which standard errors are too small as a rule, whatever the degrees of freedom.
_FEW = 30
#: What else to do where sums of units are too large.
_FEWER = "standard_errors='sandwich', whose units are persons, or fewer items"

INFORMATION, SANDWICH = "information", "sandwich"


class Sampling(NamedTuple):
    """How persons were sampled: independently, as a model has it, or in ``n`` units.

    ``n`` are persons or, with ``units``, these, with a response; it is 0 for the inverse
    information alone.
    """

    n: int = 0
    units: Units | None = None

    @property
    def robust(self) -> bool:
        """Whether the covariance is a sandwich."""
        return self.n > 0

    @property
    def of_persons(self) -> bool:
        """Whether it needs the squares of the persons' own scores."""
        return self.robust and self.units is None

    @property
    def factor(self) -> float:
        """What squares are multiplied by, as the mean of scores is estimated."""
        return self.n / (self.n - 1.0)

    @property
    def degrees(self) -> int | None:
        """Degrees of freedom of standard errors; None: so many that nobody counts them."""
        return None if self.units is None else self.n - 1

    @property
    def attrs(self) -> dict[str, Any]:
        """What results say."""
        if not self.robust:
            return {}
        of = "persons" if self.units is None else f"sampling units ({self.units.name})"
        return {
            "standard_errors": f"sandwich of {of}",
            "n_sampling_units": self.n,
            "degrees_of_freedom": self.n - 1,
        }


#: The observed information is all that is asked for.
INDEPENDENT = Sampling()


# --- what is asked for ----------------------------------------------------------------------------


def check(standard_errors: Any, sampling_unit: Any) -> None:
    """Stop at options that do not exist, or contradict each other."""
    known = (INFORMATION, SANDWICH)
    right = standard_errors is None or isinstance(standard_errors, (bool, np.bool_))
    if not right and not (isinstance(standard_errors, str) and standard_errors in known):
        raise InputError(
            f"standard_errors={standard_errors!r} is not available; choose True, False, "
            f"'{INFORMATION}' or '{SANDWICH}'"
        )
    wanted = standard_errors is None or standard_errors
    if sampling_unit is not None and (not wanted or standard_errors == INFORMATION):
        raise InputError(
            f"standard_errors={standard_errors!r} has no use for sampling_unit, whose standard "
            f"errors are a sandwich; leave one of them out"
        )


def asked(
    engine: Engine, model: Model, size: int, standard_errors: bool | str | None,
    units: Units | None, n_persons: int,
) -> Sampling | None:  # fmt: skip
    """How to find standard errors of so many parameters; None: not at all.

    One pass where there are units.  ``n_persons`` are those with a response.
    """
    if standard_errors is None and units is None and size > MAX_BY_DEFAULT:
        return None
    if standard_errors is not None and not standard_errors:
        return None
    if standard_errors == INFORMATION:
        _refuse_unequal(engine)
        return INDEPENDENT
    if units is None and not (standard_errors == SANDWICH or engine.sampled):
        return INDEPENDENT
    if units is None:
        if n_persons < 2:
            raise InputError(
                f"the sandwich needs at least 2 persons with a response, and there are "
                f"{n_persons}; use standard_errors=False"
            )
        return Sampling(n_persons)
    n_all = size + (int(model.items.has.sum()) if model.anchored else 0)
    refuse_many(engine, units, n_all, _FEWER)
    return Sampling(n_answered(engine, units), units)


def _refuse_unequal(engine: Engine) -> None:
    """Stop where weights are those of a sample and the information knows nothing of it."""
    sums = engine.weight_sums
    if engine.sampled and sums is not None and sums.largest > sums.smallest:
        raise InputError(
            f"standard_errors='information' takes persons to count alike, and these have sampling "
            f"weights from {sums.smallest:.3g} to {sums.largest:.3g}, with which estimates vary "
            f"more than it says; use standard_errors='sandwich', or count every person once: "
            f"select the responses with weights='ignore'"
        )


def warn(sampling: Sampling | None) -> None:
    """Say that units are few."""
    if sampling is not None and sampling.units is not None and sampling.n < _FEW:
        warnings.warn(
            f"there are {sampling.n} sampling units ({sampling.units.name}), and with fewer than "
            f"{_FEW} standard errors are too small as a rule; use t with {sampling.n - 1} degrees "
            f"of freedom (attrs degrees_of_freedom), and do not rely on differences of two or "
            f"three standard errors",
            DataWarning,
            stacklevel=3,
        )


# --- the middle of the sandwich -------------------------------------------------------------------


class _Plan(NamedTuple):
    setting: Setting
    scores: Scores
    largest: float  # weight
    scale: float
    shape: tuple[int, int]


def _add(block: Block, to: tuple[Ints] | None, plan: _Plan) -> tuple[Ints]:
    """Exact sums of scores by unit."""
    sets, g, shared, prior = plan.setting.of(block)
    to = (np.zeros(plan.shape, dtype=np.int64),) if to is None else to
    weight = block.weights() / plan.largest if block.times is None else np.ones(block.n_persons)
    assert block.unit is not None
    unit_scores.add(
        block.data, g, shared, sets.observed, prior, plan.scores, weight, block.times, block.unit,
        plan.scale, to[0],
    )  # fmt: skip
    return to


def of_units(
    fit: Rounds, model: Model, x: Floats, at: tuple[Ints, Ints, int], units: Units
) -> Floats:
    """Sums by unit of the persons' weighted scores at x, (units, columns): one pass.

    ``at`` says where the scores go.  Units without a response have 0.
    """
    engine, size = fit.engine, at[2]
    refuse_many(engine, units, size, _FEWER)
    found = lost_information.scored(fit, model, x, at, coarse=False)
    largest = float(engine.responses.max_weight or 1.0) if engine.sampled else 1.0
    scale = fixed_point.scale_for(engine.n_persons)
    plan = _Plan(found.setting, found.scores, largest, scale, (units.n_labels, size))
    (sums,) = engine.map_add(_add, plan)
    return np.asarray(sums * (largest * found.scores.bound[1] / scale))


def squares(
    fit: Rounds, model: Model, x: Floats, at: tuple[Ints, Ints, int], sampling: Sampling,
    of_persons: Floats | None, *, centred: bool = False,
) -> Floats:  # fmt: skip
    """Squares of the units' scores, times C / (C - 1); those ``of_persons`` are known.

    ``centred``: about the mean of the units.
    """
    if sampling.units is None:
        assert of_persons is not None
        return sampling.factor * of_persons
    sums = of_units(fit, model, x, at, sampling.units)
    out = sums.T @ sums
    if centred:
        whole = sums.sum(axis=0)
        out -= np.multiply.outer(whole, whole) / sampling.n
    return np.asarray(sampling.factor * out)


def p_value(chi2: Any, df: Any, degrees: int | None) -> Any:
    """Probability of a larger Wald statistic, where its covariance has so many degrees of freedom.

    NaN where a test has more degrees of freedom than its covariance.
    """
    chi2 = np.maximum(chi2, 0.0)
    if degrees is None:
        return chdtrc(df, chi2)
    left = degrees - np.asarray(df, dtype=float) + 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        found = fdtrc(df, np.maximum(left, 1.0), chi2 * left / (np.asarray(df) * degrees))
    return np.where(left >= 1.0, found, np.nan)[()]
