"""Tables of the report page about sampling chains: whether they have mixed, and what has not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.report.common import item_ids, optional
from irt_dask.report.tables import NOTHING, Table, number

MOST_SHARDS = 200
RHAT_LIMIT = 1.05
#: Effective draws below which a mean's Monte Carlo error is above a tenth of its SD.
ESS_LIMIT = 100
#: Parameters that are named, the worst first.
MOST_NAMED = 10
#: Parameters of items, and what the page calls them.
_PARAMETERS = {
    "item_discrimination": "discriminations",
    "item_loading": "loadings",
    "item_intercept": "intercepts",
    "item_step_intercept": "step intercepts",
    "item_guessing": "guessing parameters",
    "item_upper_asymptote": "upper asymptotes",
}


def _of(posterior: xr.Dataset, name: str) -> tuple[Floats, Floats] | None:
    """R-hat and effective draws of a parameter, (items, entries); None without both."""
    both = [optional(posterior, f"{name}_{kind}") for kind in ("rhat", "ess")]
    if both[0] is None and both[1] is None:
        return None
    size = next(len(x) for x in both if x is not None)
    rhat, ess = (
        np.full((size, 1), np.nan) if x is None else x.reshape(size, -1).astype(float) for x in both
    )
    rhat, ess = np.broadcast_arrays(rhat, ess)
    return rhat, ess


def _extreme(x: Floats, of: Any) -> float:
    return float(of(x)) if np.isfinite(x).any() else np.nan


def diagnostics_table(posterior: xr.Dataset) -> Table | None:
    """Show R-hat, effective draws and acceptance, by kind of parameter and for every shard."""
    rows, remarks = [], []
    shards = {
        name: optional(posterior, f"shard_{name}")
        for name in ("n_persons", "acceptance", "max_rhat", "min_ess")
    }
    n = next((len(v) for v in shards.values() if v is not None), 0)
    total = shards["n_persons"]
    persons = NOTHING if total is None else number(float(total.sum()), 0)
    for name, word in _PARAMETERS.items():
        if (found := _of(posterior, name)) is None:
            continue
        rhat, ess = found
        worst, least = _extreme(rhat, np.nanmax), _extreme(ess, np.nanmin)
        rows.append([f"all, {word}", persons, NOTHING, number(worst), number(least, 0)])
        known = int(np.isfinite(rhat).sum())
        if known:
            above = int(np.sum(rhat > RHAT_LIMIT))
            remarks.append(
                f"R-hat is above {RHAT_LIMIT} for {above:,} of {known:,} {word}"
                + (": their chains have not mixed, run longer ones." if above else ".")
            )
        if few := int(np.sum(ess < ESS_LIMIT)):
            remarks.append(
                f"{few:,} of {int(np.isfinite(ess).sum()):,} {word} have fewer than {ESS_LIMIT} "
                f"effective draws: sampling error of their means is above a tenth of their SD, and "
                f"their intervals are rough; take more draws."
            )
    columns = [np.full(n, np.nan) if v is None else v for v in shards.values()]
    order = np.arange(n)
    if n > MOST_SHARDS:
        remarks.insert(0, f"The {MOST_SHARDS} of {n:,} shards with the largest R-hat are shown.")
        order = np.argsort(-np.nan_to_num(columns[2], nan=np.inf), kind="stable")[:MOST_SHARDS]
    for k in order:
        cells = [number(c[k], d) for c, d in zip(columns, (0, 3, 3, 0), strict=True)]
        rows.append([f"shard {k}", *cells])
    remarks += _rests(posterior.attrs)
    head = ("part", "persons", "acceptance", "largest R-hat", "smallest ESS")
    return Table(head, rows, tuple(remarks)) if rows else None


def worst_table(posterior: xr.Dataset) -> Table | None:
    """Name the parameters that mixed worst: of the largest R-hat, then of the fewest draws."""
    ids, found = item_ids(posterior), []
    for name, words in _PARAMETERS.items():
        if (both := _of(posterior, name)) is None:
            continue
        rhat, ess = (np.ravel(x) for x in both)
        known = np.flatnonzero(np.isfinite(rhat))
        several = both[0].shape[1]
        for k in known[np.argsort(-rhat[known], kind="stable")[:MOST_NAMED]]:
            entry = f" {k % several + 1}" if several > 1 else ""
            found.append((rhat[k], ess[k], f"{words[:-1]}{entry} of {ids[k // several]}"))
    found.sort(key=lambda f: (-f[0], np.nan_to_num(f[1], nan=np.inf)))
    rows = [[which, number(r), number(e, 0)] for r, e, which in found[:MOST_NAMED]]
    return Table(("parameter", "R-hat", "ESS"), rows) if rows else None


def _rests(attrs: Mapping[Any, Any]) -> list[str]:
    """What the common scale and place of a posterior's items rest on."""
    if "scale_se" not in attrs:
        return []
    kind = "learned from the items" if attrs["prior"] == "hierarchical" else "fixed"
    said = [
        f"Scale and place rest on abilities being N(0, 1), which leaves {attrs['scale_se']:.3f} of "
        f"a common log a and {attrs['place_se']:.3f} of a common shift open (standard errors). The "
        f"items' prior, {kind}, has moved them by {attrs['scale_shift']:+z.3f} and "
        f"{attrs['place_shift']:+z.3f}."
    ]
    if any(abs(attrs[f"{x}_shift"]) > attrs[f"{x}_se"] for x in ("scale", "place")):
        said.append(
            "That is more than the persons leave open: here scale or place rest on the items' "
            "prior. Use the hierarchical prior, or more persons."
        )
    return said
