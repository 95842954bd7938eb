"""Plots of items in groups: where an item works otherwise than in the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats, Ints
from irt_dask.errors import InputError
from irt_dask.report.common import INK, MOST_NAMED, axes, required, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: What can be drawn, and what it is called.
_SHOWN = {
    "md": "mean difference (positive: easier)",
    "rmsd": "RMSD",
    "rmsd_corrected": "RMSD less what chance makes",
}


def item_groups(fit: xr.Dataset, *, show: str = "md", ax: Axes | None = None) -> Axes:
    """Draw a heat map of every item in every group: how far its curve is from the common one.

    Parameters
    ----------
    fit
        Result of :func:`irt_dask.fit_concurrent`.  Items that are freed in a group are marked by a
        dot; what a group did not answer stays white.  Distances are in points of score.  Groups of
        a set (``sets=``) are put together, between lines.
    show : {"md", "rmsd", "rmsd_corrected"}
        The signed mean difference, the RMSD, or the RMSD without what chance makes of it.
    ax
        Axes to draw on; a new figure by default.

    Examples
    --------
    >>> import numpy as np
    >>> import irt_dask as irt
    >>> answers = irt.simulate(3000, 10, seed=5).to_xarray()["response"].values
    >>> answers[2000::2, 0] = 0  # makes the first item harder for group c
    >>> responses = irt.from_array(answers, persons={"group": np.repeat(["a", "b", "c"], 1000)})
    >>> ax = irt.plot.item_groups(irt.fit_concurrent(responses))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('item', 'group')
    """
    if show not in _SHOWN:
        raise InputError(f"show={show!r} is not available; choose {', '.join(_SHOWN)}")
    values = required(fit, f"origin_{show}")
    freed = required(fit, "origin_freed") > 0.0
    order, names, ends = _in_sets(fit)
    values, freed = values[order], freed[order]
    ax = axes(ax)
    most = float(np.nanmax(np.abs(values), initial=1e-12))
    signed = show == "md"
    image = ax.imshow(
        np.ma.masked_invalid(values), aspect="auto", interpolation="nearest",
        cmap="RdBu" if signed else "Oranges", vmin=-most if signed else 0.0, vmax=most,
    )  # fmt: skip
    group, item = np.nonzero(freed)
    size = float(np.clip(900.0 / max(values.shape), 0.6, 18.0))
    ax.scatter(item, group, s=size, color=INK, edgecolors="white", lw=0.05 * size)
    for end in ends:
        ax.axhline(end, color=INK, lw=0.6)
    _name(ax.set_yticks, names, None)
    _name(ax.set_xticks, [str(x) for x in fit["origin_id"].values], 90)
    ax.set(xlabel="item", ylabel="set: group" if "group_set" in fit else "group")
    title = f"{int(freed.sum()):,} of {int(np.isfinite(values).sum()):,} items in groups freed"
    if "group_set" in fit:
        first = np.append(0, ends + 0.5).astype(int)
        title += f", {int(freed[first].sum()):,} items of sets"
    ax.set_title(title)
    ax.figure.colorbar(image, ax=ax, label=_SHOWN[show])
    return ax


def _in_sets(fit: xr.Dataset) -> tuple[Ints, list[str], Floats]:
    """Order of the groups, what each is called, and where sets of several groups end."""
    groups = fit["group_label"].values.astype(str)
    if "group_set" not in fit:
        return np.arange(len(groups)), groups.tolist(), np.zeros(0)
    sets = fit["group_set"].values.astype(str).tolist()
    begun = np.array([sets.index(label) for label in sets])
    order = np.argsort(begun, kind="stable")
    names = [
        f"{sets[k]}: {groups[k]}" if sets.count(sets[k]) > 1 else str(groups[k])
        for k in order.tolist()
    ]
    return order, names, np.asarray(np.flatnonzero(np.diff(begun[order])) + 0.5)


def _name(ticks: Callable[..., Any], names: list[str], rotation: float | None) -> None:
    """Name rows or columns, some of them where there are many."""
    step = -(-len(names) // MOST_NAMED)
    at = np.arange(0, len(names), step)
    ticks(at, [short(names[k]) for k in at], rotation=rotation, fontsize=7 if len(at) > 20 else 9)
