"""Tables of what a marginal fit says beside its items: groups of persons, and fixed items."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.report.common import item_ids, optional
from irt_dask.report.tables import MOST_ITEMS, NOTHING, Table, number


def _with_error(value: float, error: float) -> str:
    return number(value) if math.isnan(error) else f"{number(value)} ± {number(error)}"


def groups_table(fit: xr.Dataset, reliability: Floats | None = None) -> Table | None:
    """Show mean and SD of ability of each group, and reliability in it; None without groups."""
    if "group_mean" not in fit:
        return None
    columns: list[Any] = [fit["group_label"].values.astype(str)]
    at = fit["group_at_bound"].values if "group_at_bound" in fit else [0] * len(columns[0])
    lacking = []
    for name in ("group_mean", "group_sd"):
        error = optional(fit, f"{name}_se")
        values = fit[name].values
        errors = [math.nan] * len(values) if error is None else error
        columns.append([_with_error(v, e) for v, e in zip(values, errors, strict=True)])
        lacking += [math.isnan(e) for e, ended in zip(errors, at, strict=True) if not ended]
    if all(lacking):
        remarks = ["No standard errors were estimated for the groups."]
    else:
        reference = "; the reference group has none" if any(lacking) else ""
        remarks = [f"After ± stands the standard error{reference}."]
    if any(at):
        ended = ", ".join(label for label, x in zip(columns[0], at, strict=True) if x)
        remarks.append(f"Ended at a bound, and says nothing: {ended}.")
    head: tuple[str, ...] = ("group", "mean", "SD")
    if reliability is not None:
        head += ("reliability",)
        columns.append([number(x) for x in reliability])
        remarks.append(
            "Reliability is marginal: of persons who answer every item, normal with this mean and "
            "SD."
        )
    rows = [list(map(str, row)) for row in zip(*columns, strict=True)]
    if len(rows) > MOST_ITEMS:
        remarks.append(f"{len(rows) - MOST_ITEMS:,} more groups are left out.")
    return Table(head, rows[:MOST_ITEMS], tuple(remarks))


def anchors_table(fit: xr.Dataset) -> Table | None:
    """Show the tests of the items that kept the parameters of a bank; None without such items."""
    names = ("item_anchor_chi2", "item_anchor_p_value", "item_anchor_rmsd")
    chi2, p, rmsd = (optional(fit, name) for name in names)
    if chi2 is None or p is None or rmsd is None:
        return None
    fixed = [j for j in range(len(chi2)) if not math.isnan(chi2[j])]
    ids = item_ids(fit)
    rows = [[ids[j], number(chi2[j], 1), _p(p[j]), number(rmsd[j])] for j in fixed[:MOST_ITEMS]]
    if not rows:
        return None
    remarks = [
        "A small p says that the responses contradict the parameters that the item keeps; by how "
        "much its curve would move is the last column."
    ]
    if "anchor_chi2" in fit.attrs:
        together, df, p_value = (fit.attrs[f"anchor_{of}"] for of in ("chi2", "df", "p_value"))
        remarks.append(
            f"All together: {number(float(together), 1)} with {number(float(df), 0)} degrees of "
            f"freedom, p {_p(float(p_value), 'is ')}."
        )
    if str(fit.attrs.get("standard_errors")).startswith("sandwich of sampling units"):
        remarks.append(f"P-values are those of F tests, of {fit.attrs['n_sampling_units']} units.")
    if "anchor_errors" in fit.attrs:
        remarks.append(f"Errors of the bank: {fit.attrs['anchor_errors']}.")
    if left := len(fixed) - len(rows):
        remarks.append(f"{left:,} more fixed items are left out.")
    return Table(("fixed item", "chi-square", "p", "RMSD"), rows, tuple(remarks))


def freed_table(fit: xr.Dataset) -> Table | None:
    """Show which items a concurrent calibration freed in which group, the furthest first."""
    if "origin_freed" not in fit:
        return None
    freed = np.argwhere(fit["origin_freed"].values)
    names = ("origin_md", "origin_rmsd_corrected", "origin_q_value")
    md, rmsd, q = (fit[name].values for name in names)
    furthest = sorted(freed.tolist(), key=lambda pair: -np.nan_to_num(rmsd[tuple(pair)]))
    items, groups = (fit[name].values.astype(str) for name in ("origin_id", "group_label"))
    rows = [
        [items[j], groups[g], number(md[g, j]), number(rmsd[g, j]), _p(q[g, j])]
        for g, j in furthest[:MOST_ITEMS]
    ]
    if not rows:
        return None
    remarks = [
        "In points of score: by how much the item is easier (above 0) in the group than its common "
        "curve says, and the root mean square less what chance makes of it."
    ]
    if left := len(freed) - len(rows):
        remarks.append(f"{left:,} more are left out.")
    return Table(("item", "group", "mean difference", "RMSD", "q"), rows, tuple(remarks))


def _p(value: float, before: str = "") -> str:
    """Write a p-value; small ones by their bound."""
    if math.isnan(value):
        return NOTHING
    return f"{before}below 0.001" if value < 0.001 else f"{before}{value:.3f}"
