"""What plots and tables share: reading variables, matching items, colours, labels, new axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from irt_dask.errors import InputError
from irt_dask.variables import LATENT_DIMS, unique_ids

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B07D00", "#4BA3D9")
GREY, INK = "#b4b9c0", "#2b3036"
LABEL_LENGTH = 24
#: Rows or columns of a plot up to which each has its name.
MOST_NAMED = 60


def item_ids(dataset: xr.Dataset) -> list[str]:
    """Return the item identifiers as text, each once, or 1, 2, ... where the dataset has none."""
    if "item_id" in dataset.variables:
        return list(unique_ids(np.atleast_1d(dataset["item_id"].values), "the dataset"))
    return [str(i + 1) for i in range(dataset.sizes.get("items", 0))]


def _floats(dataset: xr.Dataset, name: str) -> np.ndarray | None:
    """A variable as floats, or None; b = -d/a and d = -ab are worked out when missing."""
    if name in dataset.variables:
        try:
            return np.asarray(dataset[name].values, dtype=float)
        except ValueError:
            raise InputError(f"{name!r} has words, and this plot shows numbers") from None
    other = {"item_difficulty": "item_intercept", "item_intercept": "item_difficulty"}.get(name)
    if other in dataset.variables and "item_discrimination" in dataset.variables:
        a = np.asarray(dataset["item_discrimination"].values, dtype=float)
        known = np.asarray(dataset[other].values, dtype=float)
        with np.errstate(divide="ignore", invalid="ignore"):
            return -known / a if name == "item_difficulty" else -known * a
    return None


def several(items: xr.Dataset) -> bool:
    """Whether some item has more than two categories."""
    return "item_n_categories" in items and bool((items["item_n_categories"] > 2).any())


def optional(
    dataset: xr.Dataset | None, name: str, ids: Sequence[str] | None = None
) -> np.ndarray | None:
    """Return a variable as floats, or None where the dataset neither has nor implies it.

    With ``ids`` the values of these items in their order, NaN for those that are unknown.
    """
    values = None if dataset is None else _floats(dataset, name)
    if values is None or ids is None or dataset is None:
        return values
    own = item_ids(dataset)
    if own == list(ids):
        return values
    where = {item: i for i, item in enumerate(own)}
    unknown = np.full(values.shape[1:], np.nan)  # of each step, where there are some
    return np.array([values[where[i]] if i in where else unknown for i in ids], dtype=float)


def required(dataset: xr.Dataset, name: str, ids: Sequence[str] | None = None) -> np.ndarray:
    """As :func:`optional`; InputError when the dataset neither has nor implies it."""
    found = optional(dataset, name, ids)
    if found is None:
        raise InputError(f"the dataset has no variable {name!r}, which this plot shows")
    return found


def spread(
    dataset: xr.Dataset | None, name: str, ids: Sequence[str] | None = None
) -> np.ndarray | None:
    """Return the uncertainty of a variable: its ``_sd``, else its ``_se``, else None."""
    sd = optional(dataset, f"{name}_sd", ids)
    return sd if sd is not None else optional(dataset, f"{name}_se", ids)


def positions(dataset: xr.Dataset, which: Sequence[int | str]) -> np.ndarray:
    """Translate item identifiers or positions to positions."""
    ids = item_ids(dataset)
    found = []
    for w in which:
        if isinstance(w, int | np.integer) and 0 <= w < len(ids):
            found.append(int(w))
        elif not isinstance(w, int | np.integer) and str(w) in ids:
            found.append(ids.index(str(w)))
        else:
            raise InputError(f"which: there is no item {w!r} among the {len(ids)} items")
    return np.array(found, dtype=int)


def loadings_of(dataset: xr.Dataset, values: np.ndarray, dim: int | None) -> np.ndarray:
    """Choose the loadings on one ability, the last axis; InputError if there is no such ability."""
    n = dataset.sizes[LATENT_DIMS]
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or not 0 <= dim < n:
        raise InputError(
            f"dim={dim!r}: parameter='item_loading' needs the ability, a whole number from 0 to "
            f"{n - 1}"
        )
    return values[..., dim]


def refuse_dim(parameter: str, dim: int | None) -> None:
    """Stop if an ability is chosen for a parameter that has none."""
    if dim is not None and parameter != "item_loading":
        raise InputError(
            f"dim={dim!r} is for parameter='item_loading'; {parameter} has no abilities"
        )


def short(text: object, most: int = LABEL_LENGTH) -> str:
    """Make a label of one line and bounded length; the middle of a long text is left out."""
    line = " ".join(str(text).encode("utf-8", "replace").decode("utf-8").split())
    return line if len(line) <= most else f"{line[: most - 11]}…{line[-10:]}"


def seconds(value: float) -> str:
    """Write a duration for people: 0.12 s, 34.5 s, 2 min 05 s, 1 h 02 min."""
    if not np.isfinite(value):
        return "–"
    if value < 59.95:
        return f"{value:.2f} s" if value < 9.995 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(value / 60), 60)
    return f"{hours} h {minutes:02d} min"


def axes(ax: Axes | None, width: float = 7.0, height: float = 4.2) -> Axes:
    """Return the axes given, or those of a new figure outside pyplot; spines are made light."""
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(width, height), layout="constrained").add_subplot()
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        ax.spines[side].set_color(GREY)
    ax.tick_params(colors=INK, labelsize=8.5)
    ax.title.set_fontsize(10.5)
    return ax


def legend(ax: Axes, handles: Sequence[Any], labels: Sequence[str], **options: Any) -> Legend:
    """Add and return a legend whose labels are plain text: no mathematics, no hidden names."""
    where = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), **options}
    box = ax.legend(handles, ["item"] * len(handles), frameon=False, fontsize=8.5, **where)
    for text, label in zip(box.get_texts(), labels, strict=True):
        text.set_parse_math(False)
        text.set_text(label)
    return box


def name_or_count_rows(ax: Axes, names: Sequence[str], what: str) -> None:
    """Label the rows, from the bottom up, where there is room; else say how many of what."""
    ax.set_ylim(-0.6, len(names) - 0.4)
    if len(names) <= MOST_NAMED:
        name_rows(ax, names)
    else:
        ax.set_yticks([])
        ax.set_ylabel(f"{len(names):,} {what}")


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Label the rows of a plot, in plain text."""
    ax.set_yticks(np.arange(len(names)), [short(name) for name in names])
    for text in ax.get_yticklabels():
        text.set_parse_math(False)
    ax.tick_params(axis="y", length=0)
