"""What a page says of a bifactor fit: slopes of two kinds, and abilities of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from irt_dask.report.common import optional
from irt_dask.report.item_columns import Column
from irt_dask.report.tables import Table, number


def columns(fit: xr.Dataset) -> list[Column]:
    """Block of each item, slopes on the general ability and the block's, and intercept."""
    if "block_effect_sd" not in fit:
        return []
    found = [Column("block", tuple(fit["item_stratum"].values.astype(str)))]
    slopes, errors = (_slopes(fit, name) for name in ("item_loading", "item_loading_se"))
    for k, symbol in enumerate(("a, general", "s, of the block")):
        found.append(Column(symbol, values=slopes[k], errors=None if errors is None else errors[k]))
    d, d_se = (optional(fit, name) for name in ("item_intercept", "item_intercept_se"))
    return [*found, Column("d", values=d, errors=d_se)]


def _slopes(fit: xr.Dataset, name: str) -> Any:
    """Slopes on the general ability, and on that of the item's block, NaN where it has none."""
    if name not in fit:
        return None
    values = fit[name].transpose("items", "latent_dims").values
    there = fit["item_loading"].transpose("items", "latent_dims").values[:, 1:] != 0.0
    own = np.where(there, values[:, 1:], 0.0).sum(axis=1)
    return values[:, 0], np.where(there.any(axis=1), own, np.nan)


def table(fit: xr.Dataset) -> Table | None:
    """How far abilities of each block lie from the general one; None of other fits."""
    if "block_effect_sd" not in fit:
        return None
    of_item = fit["item_stratum"].values.astype(str)
    errors = fit.get("block_effect_sd_se")
    rows = []
    for k, block in enumerate(fit["block"].values.astype(str)):
        error = np.nan if errors is None else float(errors[k])
        sd = number(float(fit["block_effect_sd"][k]))
        shown = sd if np.isnan(error) else f"{sd} ± {number(error)}"
        rows.append([str(block), str(int((of_item == block).sum())), shown])
    remarks: tuple[str, ...] = (
        "By how much abilities of a block differ from the general one, in SDs of that: the root of "
        "the sum of s² over that of a²; 0 where answers in the block hang together no more than "
        "the general ability says.",
    )
    if errors is not None and bool(np.isfinite(errors).any()):
        remarks += ("After ± stands the standard error; near 0 it says how far up the SD may lie.",)
    return Table(("block", "items", "effect SD"), rows, remarks)
