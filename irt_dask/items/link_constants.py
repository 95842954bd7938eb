"""The constants of a link that was made, with their covariance, as its result says them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.errors import InputError

#: Standard error that a link gives to a person's ability: scores that have it, for an ability of
#: several with its name after it, have plausible values with the link's constants drawn.
OF_PERSONS = "person_linking_error"
#: Attributes that a link with errors has.
_NEEDED = ("A", "B", "A_se", "B_se", "AB_covariance", "error")


class LinkConstants(NamedTuple):
    """``theta_a = A theta_b + B``: A, B, their covariance (2, 2), and how that was found."""

    slope: float
    shift: float
    covariance: Floats
    #: "jackknife" or "delta".
    error: str
    #: Units of the jackknife; None where it does not say.
    n_units: int | None

    def error_at(self, ability: Any) -> Any:
        """Standard error of ``A theta_b + B`` where that is ``ability``, on the scale of bank_a."""
        at = (ability - self.shift) / self.slope
        (var_a, both), (_, var_b) = self.covariance
        return np.sqrt(np.maximum(var_b + at * (2.0 * both + at * var_a), 0.0))


def link_constants(given: Any, said: str, each: str = "") -> LinkConstants:
    """What a result of ``link`` says; ``said`` is what a message calls it.

    Raises
    ------
    InputError
        It is no link, or one without errors.
    """
    if not isinstance(given, xr.Dataset) or "A" not in given.attrs:
        raise InputError(
            f"{said} is a {type(given).__name__} and no link: give the Dataset "
            f"that irt.link(..., error='jackknife') returns{each}"
        )
    if lacking := [k for k in _NEEDED if k not in given.attrs]:
        raise InputError(
            f"{said} is a link without errors (attrs has no {lacking[0]}): "
            f"link by irt.link(..., error='jackknife')"
        )
    a, b, a_se, b_se, both = (float(given.attrs[k]) for k in _NEEDED[:5])
    known = all(map(math.isfinite, (a, b, a_se, b_se, both))) and min(a_se, b_se) >= 0.0 < a
    if not known or abs(both) > a_se * b_se * (1.0 + 1e-9):
        raise InputError(
            f"{said} has A = {a:g} and B = {b:g} with standard errors {a_se:g} and {b_se:g} and "
            f"covariance {both:g}, which no link has: link again"
        )
    n = given.attrs.get("n_units")
    covariance = np.array([[a_se**2, both], [both, b_se**2]])
    n_units = None if n is None else int(n)
    return LinkConstants(a, b, covariance, str(given.attrs["error"]), n_units)
