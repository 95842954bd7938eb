"""Plots of how items fit: observed curves, mean squares, residuals of pairs, DIF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.errors import InputError, listed
from irt_dask.report.common import (
    COLOURS,
    GREY,
    INK,
    MOST_NAMED,
    axes,
    item_ids,
    legend,
    name_or_count_rows,
    optional,
    positions,
    required,
    short,
)
from irt_dask.report.posterior_plots import height_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Observed points of a curve, and how far from a group's mean they are drawn, in its SDs.
_EVERY, _WITHIN = 3, 2.0
_MARKERS = ("o", "s", "^", "D", "v", "P")
#: Classes of DIF: how each is drawn and called.
_CLASSES = (
    ("A", "o", COLOURS[0], "A, negligible"),
    ("B", "^", COLOURS[4], "B, moderate"),
    ("C", "D", COLOURS[1], "C, large"),
)
#: Mean squares that are called good by convention, and the level of the tests of all items.
_USUAL, _LEVEL = (0.7, 1.3), 0.05
_NORMAL = 1.959963984540054


def observed(curves: xr.Dataset, item: int | str = 0, *, ax: Axes | None = None) -> Axes:
    """Draw the curve that the responses to an item show, as points, on the model's curve.

    Parameters
    ----------
    curves : Dataset
        Result of :func:`irt_dask.item_curves`.  Each group has points of its own; they are drawn
        within 2 SDs of its mean, as few persons are beyond, and what is seen of them is mostly the
        model.  The RMSD in the legend is over all of its distribution of ability.
    item : int or str
        Position or identifier.
    ax : Axes, optional
        Where to draw; default: a figure of its own.

    Raises
    ------
    InputError
        An item that is not there; more than six groups, whose points would not be told apart.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.load_lsat()
    >>> ax = irt.plot.observed(irt.item_curves(responses, irt.fit_marginal(responses)), "LSAT3")
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('ability θ', 'expected score, points')
    """
    (j,) = positions(curves, [item])
    seen, model = required(curves, "group_item_observed_score"), required(curves, "ability")
    if len(seen) > len(_MARKERS):
        raise InputError(
            f"the curves are of {len(seen)} groups, and {len(_MARKERS)} can be told apart; choose "
            f"some: curves.isel(groups=[0, 1])"
        )
    expected, rmsd = required(curves, "item_expected_score")[j], required(curves, "group_item_rmsd")
    mean, sd = required(curves, "group_mean"), required(curves, "group_sd")
    ax = axes(ax)
    handles: list[Any] = ax.plot(model, expected, color=INK, lw=1.8)
    names = ["model"]
    for k, points in enumerate(seen):
        there = np.isfinite(points[j]) & (np.abs(model - mean[k]) <= _WITHIN * sd[k])
        at = np.flatnonzero(there)[::_EVERY]
        mark: dict[str, Any] = {
            "marker": _MARKERS[k],
            "facecolors": "none",
            "edgecolors": COLOURS[k],
        }
        handles.append(ax.scatter(model[at], points[j, at], s=28, zorder=3, linewidths=1.4, **mark))
        of = "observed" if len(seen) == 1 else short(curves["group_label"].values[k])
        names.append(f"{of}, RMSD {rmsd[k, j]:.3f}")
    ax.set(xlabel="ability θ", ylabel="expected score, points")
    ax.set_title(f"{short(item_ids(curves)[j])}: observed and modelled", parse_math=False)
    ax.set_ylim(bottom=0.0)
    ax.grid(color="#eceef0", lw=0.7)
    legend(ax, handles, names)
    return ax


def item_fit(tests: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw infit and outfit of items, the farthest from 1 on top, and which ones the tests reject.

    Mean squares of items that were fitted to the same responses are near 1 whatever the items do
    (:func:`irt_dask.item_fit`): what rejects an item is its chi-square, S-X2 where there is one.
    Items with a p-value below .05 over the number of items (Bonferroni) are ringed.

    Parameters
    ----------
    tests : Dataset
        Result of :func:`irt_dask.item_fit`.  Items without mean squares are left out, and counted
        in the title.
    ax : Axes, optional
        Where to draw; default: a figure of its own.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.load_lsat()
    >>> ax = irt.plot.item_fit(irt.item_fit(responses, irt.fit_marginal(responses)))
    >>> ax.get_title()
    'Fit of 5 items: 0 rejected by S-X2'
    """
    both = np.stack([required(tests, "item_infit"), required(tests, "item_outfit")])
    name, p = "S-X2", optional(tests, "item_sx2_p_value")
    known = np.isfinite(both).all(axis=0)
    if not known.any():
        raise InputError("no item has mean squares (NaN): no response was observed")
    if p is None or not np.isfinite(p).any():
        name, p = "chi-square", required(tests, "item_chi2_p_value")
    tested = int(np.isfinite(p).sum())
    bad = p < _LEVEL / max(tested, 1)
    order = np.flatnonzero(known)
    order = order[np.argsort(np.abs(np.log(np.maximum(both[:, order], 1e-9))).max(axis=0))]
    at, few = np.arange(order.size), order.size <= MOST_NAMED
    ax = axes(ax, 7.0, height_of(order.size))
    band = ax.axvspan(*_USUAL, color="#e8f1f7", lw=0, zorder=0)
    ax.axvline(1.0, color=INK, lw=0.8)
    ax.hlines(at, *both[:, order], color=GREY, lw=1.0)
    size = 26 if few else 6
    handles = [
        ax.scatter(both[0, order], at, s=size, color=COLOURS[0], zorder=3),
        ax.scatter(both[1, order], at, s=size, color=COLOURS[1], marker="D", zorder=3),
    ]
    rejected = np.flatnonzero(bad[order])
    words = ["infit", "outfit"]
    if rejected.size:
        x = both[:, order[rejected]].ravel()
        ring: dict[str, Any] = {"facecolors": "none", "edgecolors": INK, "linewidths": 1.3}
        handles.append(ax.scatter(x, np.tile(rejected, 2), s=4 * size, zorder=4, **ring))
        words.append(f"rejected by {name}")
    _rows(ax, [item_ids(tests)[j] for j in order])
    reach = max(1.15 * float(np.abs(both[:, order] - 1.0).max()), 0.1)
    lacking = f"; {int((~known).sum()):,} without" if not known.all() else ""
    if untested := int(np.isnan(p[order]).sum()):
        lacking += f"; {untested:,} not tested"
    ax.set(
        xlabel="mean square (1: as the model says)",
        xlim=(max(1.0 - reach, 0.0), 1.0 + reach),
        title=f"Fit of {order.size:,} items: {rejected.size:,} rejected by {name}{lacking}",
    )
    legend(ax, [*handles, band], [*words, f"{_USUAL[0]:g} to {_USUAL[1]:g}"])
    return ax


def residuals(pairs: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw a heat map of residual correlations: blocks of colour are items that share something.

    Parameters
    ----------
    pairs : Dataset
        Result of :func:`irt_dask.residual_correlations`.  The map has the items of these pairs,
        those that stand first in pairs first, and a cell of each pair; pairs that were not among
        the largest, or that too few persons answered, are blank.
    ax : Axes, optional
        Where to draw; default: a figure of its own.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.load_lsat()
    >>> ax = irt.plot.residuals(irt.residual_correlations(responses, irt.fit_marginal(responses)))
    >>> ax.get_title()
    'Residual correlations of 10 pairs of 5 items'
    """
    matrix, names, q3 = _matrix(pairs, "pair_q3_adjusted")
    m = len(names)
    ax = axes(ax, 6.0, 5.0)
    most = max(float(np.abs(q3).max()), 0.1)  # colours of noise alone are pale
    image = ax.imshow(np.ma.masked_invalid(matrix), cmap="RdBu_r", vmin=-most, vmax=most)
    step = -(-m // MOST_NAMED)
    shown = np.arange(0, m, step)
    labels, size = [short(names[k]) for k in shown], 8 if m <= 30 else 5.5
    ax.set_xticks(shown, labels, rotation=90, fontsize=size, parse_math=False)
    ax.set_yticks(shown, labels, fontsize=size, parse_math=False)
    ax.set_title(f"Residual correlations of {len(q3):,} pairs of {m:,} items")
    ax.figure.colorbar(image, ax=ax, label="Q3 less its mean (0: no dependence)")
    return ax


def scree(
    pairs: xr.Dataset, replicates: Sequence[xr.Dataset] = (), *, ax: Axes | None = None
) -> Axes:
    """Draw the eigenvalues of the residual correlations: what is left when ability is taken out.

    A second ability shows as an eigenvalue far above the others.  How large the largest is by
    chance depends on persons, items and their slopes: replicates of the responses say it
    (a parallel analysis), and without them the plot judges nothing.

    Parameters
    ----------
    pairs : Dataset
        Result of :func:`irt_dask.residual_correlations` with *all* pairs:
        ``largest=m * (m - 1) // 2`` for m items.
    replicates : list of Dataset
        The same of replicates of the responses (:func:`irt_dask.replicate`), items fitted to each
        as they were to the responses; 19 for a test of the largest eigenvalue at 5%.  The band is
        from the smallest to the largest of each number.
    ax : Axes, optional
        Where to draw; default: a figure of its own.

    Raises
    ------
    InputError
        If some pairs of items are not there, or replicates are of other items.

    Notes
    -----
    On the driver, items cubed, for each result.  Sources: Cattell (1966), Horn (1965); of
    residuals: Linacre (1998).

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.load_lsat()
    >>> pairs = irt.residual_correlations(responses, irt.fit_marginal(responses), largest=10)
    >>> ax = irt.plot.scree(pairs)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('number', 'eigenvalue, items')
    """
    values = _eigenvalues(pairs)
    m, number = len(values), np.arange(1, len(values) + 1)
    chance = np.array([_eigenvalues(r) for r in replicates if _same_items(r, pairs)])
    ax = axes(ax, 6.0, 3.6)
    marker = "o" if m <= 100 else None
    handles: list[Any] = ax.plot(number, values, color=COLOURS[0], marker=marker, ms=4)
    words, above = ["residuals"], ""
    if len(chance):
        low, high = chance.min(axis=0), chance.max(axis=0)
        handles.append(ax.fill_between(number, low, high, color=GREY, alpha=0.6, lw=0))
        words.append(f"{len(chance)} replicates")
        over = int(np.cumprod(values > high).sum())  # the first that is not ends it
        above = f", {over} above all replicates"
    legend(ax, handles, words)
    ax.set(xlabel="number", ylabel="eigenvalue, items")
    ax.set_title(f"Residuals of {m:,} items: largest {values[0]:.2f}{above}")
    ax.set_ylim(bottom=min(0.0, float(values[-1])))
    ax.grid(axis="y", color="#eceef0", lw=0.7)
    return ax


def _eigenvalues(pairs: xr.Dataset) -> Floats:
    """Eigenvalues of the residual correlations of all pairs of items, the largest first."""
    matrix, names, _ = _matrix(pairs, "pair_q3")
    m = len(names)
    np.fill_diagonal(matrix, 1.0)
    if lacking := int(np.isnan(matrix).sum()) // 2:
        raise InputError(
            f"{lacking:,} of the {m * (m - 1) // 2:,} pairs of {m:,} items are not there, and "
            f"eigenvalues are of all: residual_correlations(..., largest={m * (m - 1) // 2}); "
            f"pairs that fewer than least= persons answered are left out too"
        )
    return np.asarray(np.linalg.eigvalsh(matrix)[::-1], dtype=float)


def _same_items(replicate: xr.Dataset, pairs: xr.Dataset) -> bool:
    """True; an error if a replicate is of other items."""
    own, all_ = (set(_matrix(x, "pair_q3")[1]) for x in (replicate, pairs))
    if own != all_:
        raise InputError(
            f"replicates: one is of {len(own)} items that are not the {len(all_)} of the responses"
        )
    return True


def dif(found: xr.Dataset, focal: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw each item's shift between groups with its 95% interval, the largest on top.

    Parameters
    ----------
    found : Dataset
        Result of :func:`irt_dask.dif`.  Items without a result are left out, and counted in the
        title.
    focal : str, optional
        The focal group; needed if there are several.
    ax : Axes, optional
        Where to draw; default: a figure of its own.

    Examples
    --------
    >>> import irt_dask as irt, numpy as np
    >>> answers = irt.simulate(2000, 10, seed=5).to_xarray()["response"].values
    >>> answers[1000::2, 0] = 0  # makes the first item harder for group b
    >>> responses = irt.from_array(answers, persons={"group": np.repeat(["a", "b"], 1000)})
    >>> found = irt.dif(responses, irt.fit_marginal(responses), reference="a", focal="b")
    >>> irt.plot.dif(found).get_title()
    'DIF of 10 items: 1 of class C, 0 of class B'
    """
    if "focal" in found.dims:
        there = [str(x) for x in found["focal"].values]
        if focal is None or focal not in there:
            raise InputError(f"focal={focal!r}: there are several; choose one of {listed(there)}")
        found = found.isel(focal=there.index(focal))
    elif focal is not None and focal != found.attrs.get("focal"):
        raise InputError(f"focal={focal!r}: the result is of {found.attrs.get('focal')!r}")
    shift, se = required(found, "item_dif_shift"), required(found, "item_dif_shift_se")
    classes = found["item_dif_class"].values.astype(str)
    known = np.flatnonzero(np.isfinite(shift) & np.isfinite(se))
    if not known.size:
        raise InputError("no item has a shift (NaN): none was tested")
    order = known[np.argsort(np.abs(shift[known]), kind="stable")]
    at = np.arange(order.size)
    ax = axes(ax, 7.0, height_of(order.size))
    ax.axvline(0.0, color=INK, lw=0.8)
    half = _NORMAL * se[order]
    ax.hlines(at, shift[order] - half, shift[order] + half, color=GREY, lw=1.4)
    handles, words = [], []
    for name, mark, colour, word in _CLASSES:
        own = classes[order] == name
        if own.any():
            size = 24 if order.size <= MOST_NAMED else 6
            x = shift[order][own]
            handles.append(ax.scatter(x, at[own], s=size, marker=mark, color=colour, zorder=3))
            words.append(word)
    _rows(ax, [item_ids(found)[j] for j in order])
    n = {name: int((classes[order] == name).sum()) for name in "BC"}
    lacking = len(shift) - order.size
    ax.set(
        xlabel="shift of the intercept, logits (positive: easier for the focal group)",
        title=f"DIF of {order.size:,} items: {n['C']:,} of class C, {n['B']:,} of class B"
        + (f"; {lacking:,} not tested" if lacking else ""),
    )
    legend(ax, handles, words)
    return ax


def _matrix(pairs: xr.Dataset, variable: str) -> tuple[Floats, list[str], Floats]:
    """A symmetric matrix over the items of some pairs, NaN where there is none; the values."""
    values = required(pairs, variable)
    first, second = (pairs[f"pair_{k}"].values.astype(str) for k in ("first", "second"))
    names = _in_order(first, second)
    where = {name: k for k, name in enumerate(names)}
    i, j = (np.array([where[x] for x in side]) for side in (first, second))
    matrix = np.full((len(names), len(names)), np.nan)
    matrix[i, j] = matrix[j, i] = values
    return matrix, names, values


def _in_order(first: np.ndarray, second: np.ndarray) -> list[str]:
    """Items of pairs in the order of the responses: in each pair the first stands before."""
    from graphlib import TopologicalSorter

    before: dict[str, set[str]] = {str(x): set() for x in np.concatenate([first, second])}
    for x, y in zip(first, second, strict=True):
        before[str(y)].add(str(x))
    return list(TopologicalSorter(before).static_order())


def _rows(ax: Axes, names: list[str]) -> None:
    """Name the rows, where there is room, and draw lines across."""
    name_or_count_rows(ax, names, "items")
    ax.grid(axis="x", color="#eceef0", lw=0.7)
    ax.set_axisbelow(True)
