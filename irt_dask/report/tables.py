"""The tables of the report page, as text ready to be shown: items, fits, diagnostics, recovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.curves import MORE_PARAMETERS
from irt_dask.report.common import item_ids, optional

MOST_ITEMS = 500
NOTHING = "–"
#: Persons below whom tests of single items find only what is very wrong.
_FEW = 100
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


#: Parameters of items by the letter that they have in banks.
PARAMETERS = (
    ("a", "item_discrimination"),
    ("b", "item_difficulty"),
    *((p.letter, p.variable) for p in MORE_PARAMETERS),
    ("scores", "item_category_score"),
    ("steps", "item_step_difficulty"),
    ("thresholds", "item_threshold"),
)


def recovery_table(
    truth: xr.Dataset, fits: Sequence[tuple[str, xr.Dataset | None]]
) -> Table | None:
    """Compare fits with the parameters that the data were simulated from."""
    ids, rows = item_ids(truth), []
    for symbol, name in (*PARAMETERS[:2], ("steps", "item_step_difficulty")):
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


#: Rows of a table that stands in for a picture.
_MOST_ROWS = 300


def course_table(fits: Mapping[str, xr.Dataset | None]) -> Table | None:
    """List the objective after each iteration, a fit per column; None without iterations."""
    found = {k: optional(f, "iteration_objective") for k, f in fits.items()}
    courses = {k: course for k, course in found.items() if course is not None}
    if not courses:
        return None
    n = max(len(c) for c in courses.values())
    rows = [
        [str(k + 1), *(number(c[k], 4) if k < len(c) else NOTHING for c in courses.values())]
        for k in range(min(n, _MOST_ROWS))
    ]
    left = (f"{n - _MOST_ROWS:,} more iterations are left out.",) if n > _MOST_ROWS else ()
    return Table(("iteration", *courses), rows, left)


def check_table(check: xr.Dataset | None) -> Table | None:
    """List observed and predicted numbers of persons by score; None without a check."""
    names = ("", "_expected", "_lower", "_upper")
    found = [optional(check, f"score_count{of}") for of in names]
    columns = [c for c in found if c is not None]
    if check is None or len(columns) < len(names):
        return None
    n = len(check["score"])
    rows = [
        [f"{float(x):,.6g}", *map(number, (c[k] for c in columns), (0, 1, 0, 0))]
        for k, x in enumerate(check["score"].values[:_MOST_ROWS])
    ]
    left = (f"{n - _MOST_ROWS:,} more scores are left out.",) if n > _MOST_ROWS else ()
    return Table(("score", "observed", "expected", "from", "to"), rows, left)


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
    """What to know of a fit: few persons; its likelihood, and AIC and BIC, which come from it."""
    said = []
    n = int(attrs.get("n_persons", 0))
    if 0 < n < _FEW and "identification" in attrs:  # of items, not of scores
        said.append(
            f"{n} persons say little of a single item, and that it is not flagged does not say "
            f"that it is good: see the standard errors"
        )
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
