"""How well the test measures: information, errors, reliability, distribution of abilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.curves.grids import grid_of
from irt_dask.curves.item_set import ItemSet
from irt_dask.items.parameters import has_loadings, item_set
from irt_dask.report import figures
from irt_dask.report.common import COLOURS, INK, axes, item_ids, optional
from irt_dask.report.figures import Image
from irt_dask.report.tables import Table, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ABILITY = np.linspace(-4.0, 4.0, 81)
#: Abilities of the table.
_LISTED = np.arange(-4.0, 4.5, 0.5)
#: Classes of abilities that are listed, at most.
_CLASSES = 20


def measured(fit: xr.Dataset) -> ItemSet | None:
    """Items of one ability that have curves; None where there is none."""
    names = ("item_intercept", "item_difficulty", "item_step_intercept")
    if has_loadings(fit) or not any(n in fit.variables for n in names):
        return None
    items = item_set(fit, tuple(item_ids(fit)), checked=False)
    with np.errstate(all="ignore"):
        known = np.isfinite(items.information(np.array([-1.0, 0.0, 1.0]))).all(axis=1)
    return items.take(np.flatnonzero(known)) if known.any() else None


def reliability(fit: xr.Dataset, items: ItemSet | None) -> float | None:
    """Marginal reliability for abilities N(0, 1), where the fit says that this is their scale."""
    said = str(fit.attrs.get("identification", ""))
    of_groups = "of group" in said or "group_mean" in fit
    if items is None or "N(0, 1)" not in said or of_groups:
        return None
    nodes = grid_of(items).nodes
    total = items.total_information(nodes)
    weight = np.exp(-0.5 * nodes**2)
    return float((total / (total + 1.0)) @ weight / weight.sum())


def of_groups(fit: xr.Dataset, items: ItemSet | None) -> Floats | None:
    """Marginal reliability in each group, normal as it was estimated; None without groups."""
    if items is None or "group_mean" not in fit or fit["group_mean"].ndim != 1:
        return None
    mean, sd = fit["group_mean"].values, fit["group_sd"].values
    known = np.isfinite(mean) & np.isfinite(sd) & (sd > 0)
    if "group_at_bound" in fit:
        known &= ~fit["group_at_bound"].values.astype(bool)
    found = np.full(mean.size, np.nan)
    if not known.any():
        return None
    low, high = (mean - 6 * sd)[known].min(), (mean + 6 * sd)[known].max()
    nodes = np.linspace(low, high, 4001)
    parts = np.array_split(nodes, 40)  # of many items all nodes at once are much memory
    total = np.concatenate([items.total_information(part) for part in parts])
    for k in np.flatnonzero(known):
        weight = np.exp(-0.5 * ((nodes - mean[k]) / sd[k]) ** 2)
        found[k] = (total / (total + sd[k] ** -2)) @ weight / weight.sum()
    return found


def of_scores(scores: xr.Dataset | None) -> float | None:
    """The reliability that scoring found, if it says one."""
    value = None if scores is None else scores.attrs.get("reliability")
    known = isinstance(value, (float, np.floating)) and np.isfinite(value)
    return float(value) if known else None  # type: ignore[arg-type]


def words(
    fit: xr.Dataset, items: ItemSet | None, marginal: float | None, scores: xr.Dataset | None
) -> list[str]:
    """Say how reliable the test is, a paragraph each; ``marginal`` is its marginal reliability."""
    said = []
    if marginal is not None:
        said.append(
            f"Marginal reliability is {marginal:.3f}: the share of the variance of ability, in "
            f"persons N(0, 1) who answer every item, that the test explains (Green et al. 1984)."
        )
    if items is not None and (left := len(item_ids(fit)) - items.n_items):
        said.append(f"{left:,} items without finite parameters are left out of the information.")
    if (value := of_scores(scores)) is not None:
        said.append(
            f"The reliability of the estimated abilities of these persons is {value:.3f}, from "
            f"their variance and their errors."
        )
    return said


def information_image(items: ItemSet | None) -> Image | None:
    """Draw information of the test, and the standard error of ability that follows from it."""
    if items is None:
        return None
    total = items.total_information(_ABILITY)
    top = float(_ABILITY[int(total.argmax())])
    alt = (
        f"Test information by ability, largest ({number(float(total.max()), 1)}) at {top:.1f}, and "
        f"its standard error; the table below has both."
    )
    caption = (
        "Information of the test, and the standard error of a maximum-likelihood estimate of "
        "ability (one over its root), for a person who answers every item."
    )
    return figures.inline(_draw(total), alt, caption)


def _draw(total: Floats) -> Axes:
    ax = axes(None, 8.2, 3.4)
    ax.plot(_ABILITY, total, color=COLOURS[0], lw=2.0)
    ax.fill_between(_ABILITY, total, color=COLOURS[0], alpha=0.1, lw=0)
    ax.set(xlim=(-4, 4), ylim=(0, None), xlabel="ability θ", ylabel="information")
    ax.yaxis.label.set_color(COLOURS[0])
    other = ax.twinx()
    with np.errstate(divide="ignore"):
        other.plot(_ABILITY, 1.0 / np.sqrt(total), color=COLOURS[1], lw=2.0, ls=(0, (4, 1.5)))
    least = 1.0 / np.sqrt(max(float(total.max()), 1e-12))
    other.set(ylim=(0, 4.0 * least), ylabel="standard error")
    other.yaxis.label.set_color(COLOURS[1])
    other.tick_params(colors=INK, labelsize=8.5)
    for side in ("top", "left"):
        other.spines[side].set_visible(False)
    return ax


def information_table(items: ItemSet | None) -> Table | None:
    """List information and standard error by ability."""
    if items is None:
        return None
    total = items.total_information(_LISTED)
    with np.errstate(divide="ignore"):
        error = 1.0 / np.sqrt(total)
    rows = [
        [f"{x:.1f}", number(i, 2), number(e)] for x, i, e in zip(_LISTED, total, error, strict=True)
    ]
    return Table(("ability", "information", "standard error"), rows)


def scores_table(scores: xr.Dataset | None) -> Table | None:
    """Count persons by estimated ability, in classes of which some have persons."""
    count = optional(scores, "ability_count")
    if scores is None or count is None or not count.sum():
        return None
    middle, width = scores["ability"].values, float(np.diff(scores["ability"].values[:2])[0])
    some = np.flatnonzero(count)
    lo, hi = int(some[0]), int(some[-1]) + 1
    step = max(1, -(-(hi - lo) // _CLASSES))
    rows = []
    below = 0.0
    for k in range(lo, hi, step):
        last = min(k + step, hi) - 1
        n = float(count[k : last + 1].sum())
        below += n
        between = f"{middle[k] - width / 2:.1f} to {middle[last] + width / 2:.1f}"
        shares = [number(100 * x / count.sum(), 1) for x in (n, below)]
        rows.append([between, number(n, 0), *shares])
    ends = lo == 0 or hi == len(count)
    remarks = ("The classes at the ends hold all persons beyond.",) if ends else ()
    return Table(("ability", "persons", "% of persons", "% up to here"), rows, remarks)
