"""Standard errors of the constants of a link: of calibrations, and of the choice of items."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.banks.link_constants import Constants, Pair
from irt_dask.banks.link_gradient import Moves
from irt_dask.errors import DataWarning, EstimationError, InputError, listed
from irt_dask.items.blocks import blocks
from irt_dask.items.covariance import uncertain

ERRORS = ("delta", "jackknife")
#: Units of a jackknife below which its errors are rough.
FEW_UNITS = 5


@dataclass(frozen=True)
class LinkError:
    """Covariance (2, 2) of A and B, and how it was found."""

    covariance: Floats
    said: dict[str, Any]

    def attrs(self, at: float) -> dict[str, Any]:
        """What a result says of it; ``at`` is an ability on the scale of bank_b."""
        (var_a, both), (_, var_b) = self.covariance.tolist()
        return {
            **self.said,
            "A_se": math.sqrt(var_a),
            "B_se": math.sqrt(var_b),
            "AB_covariance": both,
            "linking_error": error_at(self.covariance, at),
            "linking_error_at": at,
        }


def error_at(covariance: Floats, ability: float) -> float:
    """Standard error of ``A ability + B``."""
    by = np.array([ability, 1.0])
    return math.sqrt(max(float(by @ covariance @ by), 0.0))


# --- calibrations ---------------------------------------------------------------------------------


def delta(banks: Sequence[xr.Dataset], item_id: Sequence[str], pair: Pair, by: Moves) -> LinkError:
    """Errors that come from those of the items' parameters, of two independent calibrations."""
    total, alone = np.zeros((2, 2)), []
    for bank, name, items, gradient in zip(
        banks, ("bank_a", "bank_b"), (pair.one, pair.two), (by.one, by.two), strict=True
    ):
        known = uncertain(bank, item_id, items, name)
        assert known is not None
        total += known.of(gradient)
        alone += [] if known.between else [name]
    if alone:
        warnings.warn(
            f"of {' and '.join(alone)} standard errors of items are known, and no covariances "
            f"between them: errors of A and B leave out what all items share, the sample of "
            f"persons, and are too small (by half, say). Give fits, or banks of them with their "
            f"covariances (columns of .json; of bank.csv bank.covariance.csv)",
            DataWarning,
            stacklevel=3,
        )
    said = "standard errors alone of " + " and ".join(alone) if alone else "covariances of items"
    return LinkError(total, {"error": "delta", "error_of": said})


# --- items as a sample ----------------------------------------------------------------------------


def units(item_blocks: Any, item_id: Sequence[str]) -> tuple[Any, str]:
    """The unit of each item that links, as numbers from 0, and what units are.

    Raises
    ------
    InputError
        Labels that lack an item, or a single unit.
    """
    if item_blocks is None:
        return np.arange(len(item_id)), "item"
    found = blocks(item_blocks, item_id)
    of_item = np.unique(found.of_item, return_inverse=True)[1]
    if len(found.labels) < 2:
        raise InputError(
            f"item_blocks puts all {len(item_id)} items that link into {found.labels[0]!r}, and a "
            f"jackknife leaves out one testlet at a time: it needs 2 at least, and "
            f"{FEW_UNITS} or more to be relied on; without item_blocks items are the units"
        )
    return of_item, "testlet"


def jackknife(
    pair: Pair, at: Constants, found: Callable[[Pair, Constants], Constants], of_item: Any,
    unit: str, labels: Sequence[str],
) -> LinkError:  # fmt: skip
    """Errors if the items that link are a sample: leave out a unit, link again.

    (U - 1) / U times the sum of squared deviations from the link by all (Monseur and Berezner
    2007).
    """
    n = int(of_item.max()) + 1
    if n < FEW_UNITS:
        warnings.warn(
            f"the jackknife has {n} {unit}s, and with fewer than {FEW_UNITS} its standard errors "
            f"may be off by half: link by more, or say the error as a range",
            DataWarning,
            stacklevel=4,
        )
    apart = np.empty((n, 2))
    for k in range(n):
        kept = np.flatnonzero(of_item != k)
        gone = listed([labels[int(j)] for j in np.flatnonzero(of_item == k)], 10)
        if kept.size < 2:
            raise InputError(
                f"without {gone} {kept.size} of {of_item.size} items link the banks, and 2 at "
                f"least must: error='jackknife' needs more common items"
            )
        try:
            apart[k] = found(pair.take(kept), at).both - at.both
        except EstimationError as error:
            raise EstimationError(f"error='jackknife', without {gone}: {error}") from error
    covariance = (n - 1.0) / n * apart.T @ apart
    return LinkError(covariance, {"error": "jackknife", "error_of": f"{unit}s", "n_units": n})
