"""Tables of what a marginal fit says beside its items: groups of persons, and fixed items."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.errors import first_of
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


def freed_pairs(fit: xr.Dataset) -> list[dict[str, Any]]:
    """Which items a concurrent calibration freed where: an entry for a group, or for a set of them.

    Of sets, distances are those of the set's curve.
    """
    kind = "set_" if "group_set" in fit else ""
    names = {n: f"origin_{kind}{n}" for n in ("rmsd", "rmsd_expected", "rmsd_corrected", "md")}
    values = {n: fit[v].values for n, v in names.items()}
    values |= {n: fit[f"origin_{n}"].values for n in ("p_value", "q_value")}
    items, groups = (fit[name].values.astype(str) for name in ("origin_id", "group_label"))
    sets = fit["group_set"].values.astype(str) if kind else groups
    where = {label: np.flatnonzero(sets == label) for label in dict.fromkeys(sets.tolist())}
    answered = fit["origin_n_responses"].values
    out = []
    for label, own in where.items():
        for j in np.flatnonzero(fit["origin_freed"].values[own[0]]):
            g = own[np.argmax(answered[own, j])]  # of who did not answer nothing is said
            whose = {"set": label, "groups": groups[own].tolist()} if kind else {"group": label}
            found = {n: float(x[g, j]) for n, x in values.items()}
            out.append({"item": str(items[j]), **whose, **found})
    return out


def freed_table(fit: xr.Dataset) -> Table | None:
    """Show which items a concurrent calibration freed in which group, the furthest first."""
    if "origin_freed" not in fit:
        return None
    pairs = freed_pairs(fit)
    furthest = sorted(pairs, key=lambda pair: -np.nan_to_num(pair["rmsd_corrected"]))
    several = "group_set" in fit
    rows = [
        [
            pair["item"],
            *([pair["set"], first_of(pair["groups"], 5)] if several else [pair["group"]]),
            number(pair["md"]), number(pair["rmsd_corrected"]), _p(pair["q_value"]),
        ]
        for pair in furthest[:MOST_ITEMS]
    ]  # fmt: skip
    if not rows:
        return None
    where = "groups of the set, taken together," if several else "group"
    remarks = [
        f"In points of score: by how much the item is easier (above 0) in the {where} than its "
        f"common curve says, and the root mean square less what chance makes of it."
    ]
    if left := len(pairs) - len(rows):
        remarks.append(f"{left:,} more are left out.")
    heads = ("set", "groups") if several else ("group",)
    return Table(("item", *heads, "mean difference", "RMSD", "q"), rows, tuple(remarks))


def _p(value: float, before: str = "") -> str:
    """Write a p-value; small ones by their bound."""
    if math.isnan(value):
        return NOTHING
    return f"{before}below 0.001" if value < 0.001 else f"{before}{value:.3f}"
