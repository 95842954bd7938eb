"""What a caller should know of totals before they are used."""

from __future__ import annotations

import warnings

import xarray as xr

from irt_dask.errors import ApproximationWarning, DataWarning
from irt_dask.items.parameters import calibration_groups
from irt_dask.kernels.posterior.totals import PSEUDO_RESIDUALS
from irt_dask.selection.questions import Design

#: With fewer questions the model has more than a third of the say in how wide intervals are.
_FEW = int(2 * PSEUDO_RESIDUALS)


def warn_of_population(items: xr.Dataset) -> None:
    """Warn if the items come with another distribution of ability than N(0, 1)."""
    n = calibration_groups(items)
    if n == 0 and items.attrs.get("latent") != "histogram":
        return
    what = "a histogram of ability" if n == 0 else f"{n} group(s) of persons"
    warnings.warn(
        f"the items were calibrated with {what}, and totals take everybody from N(0, 1): "
        f"person_total is drawn to the total of a person of ability 0; person_total_design, where "
        f"questions were drawn at random, is right whatever the model",
        DataWarning,
        stacklevel=3,
    )


def warn_of_draws(design: Design) -> None:
    """Warn if the width of intervals by design rests on the model."""
    n = int(design.n[design.n < design.size].sum())
    if 0 < n < _FEW:
        warnings.warn(
            f"{n} questions were drawn: {PSEUDO_RESIDUALS:.0f} residuals as the model expects them "
            f"count beside their own in the width of intervals by design; ask {_FEW} or more for "
            f"intervals that hold if the model does not",
            ApproximationWarning,
            stacklevel=3,
        )
