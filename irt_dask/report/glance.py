"""What the page says first: a few facts, each with the section that has more of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.report.chains import RHAT_LIMIT
from irt_dask.report.common import optional
from irt_dask.report.tables import NOTHING


@dataclass(frozen=True)
class Fact:
    """A question in short, the answer, whether it asks for a look, and where that is."""

    label: str
    value: str
    look: bool
    section: str


def facts(
    fit: xr.Dataset, fits: Mapping[str, xr.Dataset | None], flagged: int,
    reliability: tuple[str, Sequence[float]], check: xr.Dataset | None, notes: Sequence[str],
    *, few: int = 0,
) -> list[Fact]:  # fmt: skip
    """Return the facts of a page; what is not known is left out.

    ``reliability`` is of what, and that of all or of each group; ``few`` is how many items have few
    responses, where nearly all have and ``flagged`` does not count that.
    """
    found = [_converged(fit, fits)]
    n = fit.sizes["items"]
    found.append(Fact("Flagged items", f"{flagged:,} of {n:,}", flagged > 0, "items"))
    if few:
        which = f"all {n:,} items" if few == n else f"{few:,} of {n:,} items"
        found.append(Fact("Few responses", which, True, "items"))
    of, values = reliability
    known = [x for x in values if np.isfinite(x)]
    if known:
        low, high = (f"{x:.2f}" for x in (min(known), max(known)))
        words = low if low == high else f"{low} to {high}"
        found.append(Fact(of, words, False, "persons"))
    if check is not None:
        p = float(check.attrs["p_value"])
        there = np.isfinite(p)
        found.append(Fact("Scores as predicted", f"p = {p:.3f}" if there else NOTHING,
                          bool(there and p <= 0.05), "fit"))  # fmt: skip
    if notes:
        found.append(Fact("Notes", f"{len(notes):,}", True, "notes"))
    return found


def _converged(fit: xr.Dataset, fits: Mapping[str, xr.Dataset | None]) -> Fact:
    """Of chains the largest R-hat, of iterations what the fits say."""
    rhat = [
        values for name in map(str, fit.variables)
        if name.startswith("item_") and name.endswith("_rhat")
        and (values := optional(fit, name)) is not None and np.isfinite(values).any()
    ]  # fmt: skip
    if rhat:
        worst = max(float(np.nanmax(x)) for x in rhat)
        return Fact("Largest R-hat", f"{worst:.3f}", worst > RHAT_LIMIT, "convergence")
    said = [_yes(f.attrs["converged"]) for f in fits.values()
            if f is not None and "converged" in f.attrs]  # fmt: skip
    if not said:
        return Fact("Converged", "not known", True, "convergence")
    return Fact("Converged", "yes" if all(said) else "no", not all(said), "convergence")


def _yes(value: Any) -> bool:
    return str(value) in ("1", "True", "1.0")
