"""What a caller should know of totals before they are used."""

from __future__ import annotations

import warnings

import xarray as xr

from irt_dask.errors import ApproximationWarning, DataWarning, ItemWarning
from irt_dask.items import checks
from irt_dask.items.parameters import calibration_groups
from irt_dask.kernels.posterior.totals import PSEUDO_RESIDUALS
from irt_dask.selection.questions import Design

#: With fewer questions the model has more than a third of the say in how wide intervals are.
FEW_DRAWS = int(2 * PSEUDO_RESIDUALS)


def warn_of_population(items: xr.Dataset) -> None:
    """Warn if the items come with another distribution of ability than N(0, 1)."""
    n = calibration_groups(items)
    if n == 0 and items.attrs.get("latent") != "histogram":
        return
    what = "a histogram of ability" if n == 0 else _persons(n)
    warnings.warn(
        f"the items were calibrated with {what}, and totals take everybody from N(0, 1): "
        f"person_total is drawn to the total of a person of ability 0; person_total_design, where "
        f"questions were drawn at random, is right whatever the model",
        DataWarning,
        stacklevel=3,
    )


def _persons(n: int) -> str:
    return f"{n} groups of persons" if n > 1 else "persons who are not N(0, 1) on their scale"


def warn_of_draws(design: Design) -> None:
    """Warn if the width of intervals by design rests on the model."""
    n = int(design.n[design.n < design.size].sum())
    if 0 < n < FEW_DRAWS:
        warnings.warn(
            f"{n} questions were drawn: {PSEUDO_RESIDUALS:.0f} residuals as the model expects them "
            f"count beside their own in the width of intervals by design; ask {FEW_DRAWS} or more "
            f"for intervals that hold if the model does not",
            ApproximationWarning,
            stacklevel=3,
        )


def warn_of_adaptive(items: xr.Dataset, *, stacklevel: int = 3) -> None:
    """Warn if items are flagged, or come with another distribution of ability than N(0, 1)."""
    item_id = items["item_id"].values
    given = checks.unsound(items, item_id)
    bad = {str(i): str(why) for i, why in zip(item_id, given, strict=True) if why}
    if bad:
        warnings.warn(
            f"{len(bad)} of {len(given)} items are flagged (item_flag) and may be asked: "
            f"{checks.reasons_in_words(bad)}. Adaptive tests ask those that seem to say most, so "
            f"that mistakes of the calibration are asked first; leave these out of items, or "
            f"calibrate with a prior and more responses",
            ItemWarning,
            stacklevel=stacklevel,
        )
    n = calibration_groups(items)
    if n or items.attrs.get("latent") == "histogram":
        what = _persons(n) if n else "a histogram of ability"
        warnings.warn(
            f"the items were calibrated with {what}, and here everybody is taken to come from "
            f"N(0, 1): abilities are drawn to 0 and standard deviations are those of this prior",
            DataWarning,
            stacklevel=stacklevel,
        )
