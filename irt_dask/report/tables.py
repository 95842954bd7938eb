"""The tables of the report page, as text ready to be shown: items, fits, diagnostics, recovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.curves import MORE_PARAMETERS
from irt_dask.errors import InputError
from irt_dask.report.common import item_ids, optional, spread
from irt_dask.variables import ITEM_FLAGS

MOST_ITEMS = 500
NOTHING = "–"
ATTRIBUTES = (
    "method",
    "model",
    "identification",
    "converged",
    "n_iterations",
    "objective",
    "log_likelihood",
    "n_parameters",
    "aic",
    "bic",
    "latent",
    "n_persons",
    "weight_kind",
    "n_effective",
    "spread",
    "n_item_draws",
    "seed",
    "version",
)


@dataclass(frozen=True)
class Table:
    """Headings, rows of text (the first cell of a row is its heading) and remarks below."""

    head: tuple[str, ...]
    rows: list[list[str]]
    remarks: tuple[str, ...] = ()


def number(value: float, digits: int = 3) -> str:
    """Write a number with thousands separated; a dash for a missing one."""
    if np.isnan(value):
        return NOTHING
    if np.isinf(value):
        return "∞" if value > 0 else "-∞"
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if not text.strip("-0.") else text


def _with_error(value: float, error: float) -> str:
    if np.isnan(value) or np.isnan(error):
        return number(value)
    return f"{number(value)} ± {number(error)}"


def _column(ids: Sequence[str], dataset: xr.Dataset, name: str, bars: bool) -> list[str] | None:
    """Values with their errors, those of steps and categories a line each."""
    values = optional(dataset, name, ids)
    if values is None:
        return None
    error = spread(dataset, name, ids) if bars else None
    if error is None:
        error = np.full(values.shape, np.nan)
    if values.ndim == 1:
        if name in _ASYMPTOTES and (k := optional(dataset, "item_n_categories", ids)) is not None:
            values = np.where(k > 2, np.nan, values)  # these items have none
        return [_with_error(v, e) for v, e in zip(values, error, strict=True)]
    # a score of category 0 is 0, and a single step is in the other columns
    first = 1 if name == "item_category_score" else 0
    of_steps = [
        [
            f"{k}: {_with_error(v, e)}"
            for k, (v, e) in enumerate(zip(vs[first:], es[first:], strict=True), 1)
            if not np.isnan(v)
        ]
        for vs, es in zip(values, error, strict=True)
    ]
    cells = ["\n".join(of) for of in of_steps]
    cells = [cell if len(of) > 1 else NOTHING for cell, of in zip(cells, of_steps, strict=True)]
    return None if set(cells) <= {NOTHING} else cells


def _models(fit: xr.Dataset) -> dict[str, list[str]]:
    """Columns of the models and numbers of categories, where items differ in them."""
    if "item_model" not in fit:
        return {}
    columns = {"model": [str(name) for name in fit["item_model"].values]}
    return columns | {"categories": [str(k) for k in fit["item_n_categories"].values]}


def _counts(ids: Sequence[str], fits: Sequence[xr.Dataset]) -> dict[str, list[str]]:
    """Columns of the number of responses and the share right, of the first fit that has them.

    Right is the highest of more than two categories.
    """
    for fit in fits:
        n, right = (optional(fit, f"item_n_{of}", ids) for of in ("responses", "right"))
        if n is None:
            continue
        columns = {"responses": [number(v, 0) for v in n]}
        if right is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                several = bool((fit.get("item_n_categories", np.array(2)) > 2).any())
                name = "% highest" if several else "% right"
                columns[name] = [number(v, 1) for v in 100 * right / n]
        return columns
    return {}


def item_table(
    fit: xr.Dataset,
    joint: xr.Dataset | None,
    spectral: xr.Dataset | None,
    truth: xr.Dataset | None,
    *,
    name: str = "posterior",
) -> Table:
    """Make the table of the items, the first 500 of them; ``name`` is what the fit is called."""
    everything = item_ids(fit)
    if not everything:
        raise InputError(f"the {name} has no items to report")
    head = fit.isel(items=slice(MOST_ITEMS))
    ids = everything[:MOST_ITEMS]
    columns = {"item": ids, **_models(head)}
    columns |= _counts(ids, [f for f in (head, joint, spectral) if f is not None])
    for owner, dataset, bars in (
        (name, head, True),
        ("joint ML", joint, True),
        ("spectral", spectral, False),
        ("true", truth, False),
    ):
        for symbol, variable in _PARAMETERS:
            if dataset is None or (owner == "spectral" and symbol == "a"):
                continue
            column = _column(ids, dataset, variable, bars)
            if column is not None and column != columns.get(f"{owner} steps"):
                columns[f"{owner} {symbol}"] = column
    remarks: tuple[str, ...] = ()
    if left := len(everything) - len(ids):
        remarks = (
            f"The table shows the first {len(ids)} of {len(everything):,} items; {left:,} are "
            "left out. The file items.csv has them all.",
        )
    return Table(tuple(columns), [list(r) for r in zip(*columns.values(), strict=True)], remarks)


#: Parameters of items by the letter that they have in banks.
_PARAMETERS = (
    ("a", "item_discrimination"),
    ("b", "item_difficulty"),
    *((p.letter, p.variable) for p in MORE_PARAMETERS),
    ("scores", "item_category_score"),
    ("steps", "item_step_difficulty"),
    ("thresholds", "item_threshold"),
)

_ASYMPTOTES = {p.variable for p in MORE_PARAMETERS}

#: What to do about an item that carries a flag.
REMEDIES = {
    "all_right": "its difficulty has no lower end: wait for persons who get it wrong",
    "all_wrong": "its difficulty has no upper end: check the key",
    "at_bound": "the search was stopped there, nothing was estimated: check key and data",
    "empty_category": "a response of it cannot be scored: calibrate anew when there are some",
    "extreme": "nobody is near its difficulty: do not link by it",
    "few_responses": "collect more responses before it is used",
    "flat": "it says nothing about ability, and its difficulty is no location: check the key or "
    "leave it out",
    "large_se": "collect more responses, or leave it out of what needs this item's own numbers",
    "reversed": "check the key; reverse its scoring if that is meant",
}


def flags_table(fits: Mapping[str, xr.Dataset | None]) -> Table | None:
    """Name the flagged items of the fits, the reasons and what to do; None without any."""
    found: dict[str, dict[str, list[str]]] = {}
    for owner, fit in fits.items():
        if fit is None or "item_flag" not in fit.variables:
            continue
        for i, flags in zip(item_ids(fit), fit["item_flag"].values.astype(str), strict=True):
            for flag in flags.split("|"):
                if flag != "ok":
                    found.setdefault(i, {}).setdefault(flag, []).append(owner)
    if not found:
        return None
    rows = []
    for i, of_item in list(found.items())[:MOST_ITEMS]:
        by = "; ".join(f"{flag} ({', '.join(who)})" for flag, who in sorted(of_item.items()))
        rows.append([i, by, "; ".join(REMEDIES[flag] for flag in sorted(of_item))])
    remarks: tuple[str, ...] = tuple(
        f"{flag}: {ITEM_FLAGS[flag]}." for flag in sorted({f for fs in found.values() for f in fs})
    )
    if left := len(found) - len(rows):
        remarks += (f"{left:,} more flagged items are left out.",)
    return Table(("flagged item", "flags", "what to do"), rows, remarks)


def recovery_table(
    truth: xr.Dataset, fits: Sequence[tuple[str, xr.Dataset | None]]
) -> Table | None:
    """Compare fits with the parameters that the data were simulated from."""
    ids, rows = item_ids(truth), []
    for symbol, name in (*_PARAMETERS[:2], ("steps", "item_step_difficulty")):
        true = optional(truth, name)
        for owner, fit in fits:
            found = optional(fit, name, ids)
            if true is None or found is None:
                continue
            common = tuple(slice(n) for n in np.minimum(true.shape, found.shape))  # of steps
            both = np.isfinite(true[common]) & np.isfinite(found[common])
            x, y = true[common][both], found[common][both]
            varied = len(x) > 1 and np.ptp(x) > 0 and np.ptp(y) > 0
            r = float(np.corrcoef(x, y)[0, 1]) if varied else np.nan
            bias, rmse = np.nan, np.nan
            if len(x):
                bias, rmse = float(np.mean(y - x)), float(np.sqrt(np.mean((y - x) ** 2)))
            cells = [number(r, 4), number(bias), number(rmse)]
            rows.append([f"{owner} {symbol}", f"{len(x):,}{' steps' * (true.ndim - 1)}", *cells])
    head = ("estimate", "items", "correlation", "mean error", "root mean square error")
    return Table(head, rows) if rows else None


def _attribute(value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return number(float(value))
    return str(value)


def fits_table(fits: Mapping[str, xr.Dataset | None]) -> Table | None:
    """Show the attributes of the fits side by side, a fit per column."""
    present = {k: f.attrs for k, f in fits.items() if f is not None}
    present = {k: a for k, a in present.items() if any(n in a for n in ATTRIBUTES)}
    priors = sorted({k for a in present.values() for k in a if k.endswith("_prior")})
    remarks = dict.fromkeys(text for a in present.values() for text in caveats(a))
    rows = []
    for name in (*ATTRIBUTES, *priors):
        cells = [_attribute(a.get(name)) for a in present.values()]
        if name == "converged":  # files know no booleans
            cells = [{"1": "yes", "0": "no"}.get(c, c) for c in cells]
        if any(c != NOTHING for c in cells):
            rows.append([name.replace("n_", "").replace("_", " "), *cells])
    said = tuple(f"{text[0].upper()}{text[1:]}." for text in remarks)
    return Table(("attribute", *present), rows, said) if rows else None


def caveats(attrs: Mapping[Any, Any]) -> list[str]:
    """What to know of the likelihood of a fit, and of AIC and BIC, which come from it."""
    said = []
    if attrs.get("guessing_prior", "none") != "none":
        said.append(
            "estimates maximise the objective, which is log likelihood plus log prior: the log "
            "likelihood may lie below that of the 2PL, and AIC and BIC are too high "
            "(guessing_prior='none' maximises the likelihood alone)"
        )
    if "aic" in attrs and attrs.get("weight_kind") == "sampling":
        said.append(
            "with sampling weights the likelihood is a pseudo-likelihood: AIC, BIC and "
            "likelihood-ratio tests do not have their usual meaning"
        )
    if str(attrs.get("standard_errors")).startswith("sandwich of sampling units"):
        said.append(
            f"standard errors are those of a sample of {attrs['n_sampling_units']} units: "
            f"intervals are t with {attrs['degrees_of_freedom']} degrees of freedom times these, a "
            f"number that item banks do not keep; AIC, BIC and likelihood-ratio tests take persons "
            f"as independent, and are too sure"
        )
    if attrs.get("spread") == "sandwich":
        said.append(
            "with sampling weights the posterior is that of a pseudo-likelihood, about its mode, "
            "with the spread that estimates have over samples with such weights"
        )
    return said
