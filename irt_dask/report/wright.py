"""The person-item map (Wright map): abilities to the left, difficulties to the right, one scale.

Items of more than two categories have a place for each step: their Thurstonian thresholds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.errors import InputError
from irt_dask.items.parameters import item_set
from irt_dask.report.common import COLOURS, GREY, INK, axes, item_ids, required, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EDGE = 5.0  # difficulties beyond are arrows
FARTHEST = 8.0  # abilities beyond are not drawn, but counted in the heading
ALL_LABELLED = 40
FONT = 7.0  # points


def _persons(scores: xr.Dataset) -> tuple[np.ndarray, np.ndarray, float]:
    """Middles of the ability classes, shares of the persons, and the width of a class."""
    middles, counts = required(scores, "ability"), required(scores, "ability_count")
    if counts.ndim != 1:
        raise InputError(
            "the scores are of several abilities, and a map shows one; choose it with "
            "scores.isel(latent_dims=0)"
        )
    width = float(np.median(np.diff(np.sort(middles)))) if len(middles) > 1 else 0.2
    return middles, counts / max(float(counts.sum()), 1.0), width


def _draw_persons(ax: Axes, scores: xr.Dataset) -> tuple[float, float]:
    """Draw the sideways histogram on [-1, 0]; return the abilities it spans."""
    middles, share, width = _persons(scores)
    near = np.abs(middles) <= FARTHEST
    shown = near & (share > 0)
    tallest = float(share[shown].max(initial=0.0)) or 1.0
    ax.barh(
        middles[shown], -share[shown] / tallest, height=width, color=COLOURS[5],
        edgecolor="white", linewidth=0.4, alpha=0.75,
    )  # fmt: skip
    ax.set_xticks([-1, -0.5, 0], [f"{100 * tallest * t:.1f}%" for t in (1, 0.5, 0)])
    heading = f"{round(float(scores['ability_count'].values.sum())):,} persons"
    if beyond := float(share[~near].sum()):
        heading += f" ({100 * beyond:.2g}% beyond ±{FARTHEST:g})"
    ax.text(-0.5, 1.015, heading, transform=ax.get_xaxis_transform(), ha="center", fontsize=9)
    if not shown.any():
        return 0.0, 0.0
    return float(middles[shown].min()) - width, float(middles[shown].max()) + width


def _stacked(y: np.ndarray, bin_height: float) -> np.ndarray:
    """Rank of each point among those of its bin, so that a stack shows how many there are."""
    cells = pd.Series(np.floor(y / bin_height))
    return cells.groupby(cells).cumcount().to_numpy(dtype=float)


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _labelled(y: np.ndarray, room: int) -> np.ndarray:
    """Positions in the sorted ``y`` to label: all where there is room, else spread over the scale.

    The easiest and the hardest item are always among them.
    """
    if len(y) <= min(room, ALL_LABELLED):
        return np.arange(len(y))
    targets = np.linspace(y[0], y[-1], max(min(room, 30), 2))
    nearest = np.abs(y[None, :] - targets[:, None]).argmin(axis=1)
    return np.unique(np.concatenate([[0], nearest[1:-1], [len(y) - 1]]))


def _heights(wanted: np.ndarray, line: float, low: float, high: float) -> np.ndarray:
    """Heights of labels at least one line apart, as near to the wanted ones as can be."""
    from scipy.optimize import isotonic_regression

    steps = line * np.arange(len(wanted))
    level = isotonic_regression(wanted - steps).x
    return np.clip(level, low + line / 2, max(low, high - line / 2 - steps[-1])) + steps


def _places(items: xr.Dataset) -> tuple[list[str], np.ndarray]:
    """Names and abilities of the points of the items, NaN where there is none.

    The difficulty of an item of two categories; the threshold of each step of others, the ability
    at which P(category k or higher) is 1/2.
    """
    ids = item_ids(items)
    if {"item_model", "item_step_intercept", "item_step_difficulty"}.isdisjoint(items.variables):
        return [short(i) for i in ids], required(items, "item_difficulty")
    of: list[np.ndarray] = [np.empty(0)] * len(ids)
    for g in item_set(items, tuple(ids), checked=False).groups:
        two = g.model.n_categories == 2
        points = g.model.difficulty(g.x)[0][None] if two else g.model.thresholds(g.x)[0]
        for j, at in zip(g.at, points.T, strict=True):
            of[j] = at
    names = [
        short(name) if len(at) == 1 else f"{short(name)} ≥ {k}"
        for name, at in zip(ids, of, strict=True)
        for k in range(1, len(at) + 1)
    ]
    return names, np.concatenate([*of, np.empty(0)])


def _draw_items(ax: Axes, ids: list[str], b: np.ndarray, low: float, high: float) -> None:
    """Draw the points of the sorted difficulties on (0, 1] with as many labels as fit."""
    y = np.clip(b, -EDGE, EDGE)
    many = len(b) > ALL_LABELLED
    rank = _stacked(y, (high - low) / 60 if many else 0.02)
    step = min(0.03, 0.42 / max(float(rank.max()), 1.0))
    x = 0.05 + step * rank
    above, below = b > EDGE, b < -EDGE
    size = 16 if not many else 9
    for mask, marker, area, colour in (
        (~above & ~below, "o", size, COLOURS[1]),
        (above, "^", 34, INK),
        (below, "v", 34, INK),
    ):
        ax.scatter(
            x[mask], y[mask], s=area, marker=marker, color=colour, linewidths=0, zorder=3,
            clip_on=False,
        )  # fmt: skip
    box = ax.get_window_extent()
    line = 1.28 * FONT / 72 / (box.height / ax.figure.dpi) * (high - low)
    chosen = _labelled(y, int((high - low) / line))
    start = 0.3 if not many else 0.6
    for i, height in zip(chosen, _heights(y[chosen], line, low, high), strict=True):
        text = ids[i]
        if above[i] or below[i]:
            text += f"  (b = {b[i]:.1f})" if np.isfinite(b[i]) else f"  (b = {b[i]})"
        ax.plot(
            [x[i] + 0.015, start - 0.06, start - 0.01], [y[i], height, height], color=GREY,
            lw=0.5, zorder=2,
        )  # fmt: skip
        label = ax.text(start, height, text, fontsize=FONT, va="center_baseline", color=INK)
        label.set_parse_math(False)


def wright_map(items: xr.Dataset, scores: xr.Dataset | None, *, ax: Axes | None = None) -> Axes:
    """Draw the person-item map.

    Parameters
    ----------
    items
        Dataset with ``item_difficulty``.  Items of more than two categories, as a fit or
        :func:`irt_dask.read_items` gives them, have a point for each step k, labelled ``item ≥ k``:
        the threshold, where category k or a higher one has probability 1/2 (nominal items have
        none).  Points outside [-5, 5] are arrows at the edge.
    scores
        Dataset with ``ability_count`` on ``ability``, the middles of classes of equal width; None
        draws the items alone.
    ax
        Axes to draw on; a new figure by default.  Up to 40 points are all labelled where the axes
        are tall enough, otherwise some that are spread over the scale.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.load_lsat()
    >>> fit = irt.fit_marginal(responses)
    >>> ax = irt.plot.wright_map(fit, irt.score(responses, fit))
    >>> ax.get_ylabel()
    'θ: ability of persons, difficulty of items'
    """
    ids, b = _places(items)
    n_items, steps = items.sizes["items"], len(b) > items.sizes["items"]
    order = np.argsort(b, kind="stable")
    order = order[~np.isnan(b[order])]
    n_lost = len(b) - len(order)
    ids, b = [ids[i] for i in order], b[order]
    ax = axes(ax, 7.4, float(np.clip(1.6 + 0.14 * len(b), 4.6, 7.4)))
    spans = [-3.0, 3.0]
    if len(b):
        spans += [float(np.clip(b[0], -EDGE, EDGE)), float(np.clip(b[-1], -EDGE, EDGE))]
    ax.set_xticks([])
    if scores is not None:
        spans += _draw_persons(ax, scores)
    low, high = min(spans) - 0.15, max(spans) + 0.15
    ax.set(xlim=(-1.05 if scores is not None else 0.0, 1.15), ylim=(low, high))
    ax.axvline(0, color=INK, lw=0.8)
    if len(b):
        _draw_items(ax, ids, b, low, high)
    heading = _counted(len(b), "item")
    lost = f" ({n_lost} without difficulty)"
    if steps:
        heading = f"{_counted(n_items, 'item')}, {_counted(len(b), 'threshold')}"
        lost = f" ({_counted(n_lost, 'step')} without one)"
    heading += lost if n_lost else ""
    ax.text(0.5, 1.015, heading, transform=ax.get_xaxis_transform(), ha="center", fontsize=9)
    of_items = "thresholds of items" if steps else "difficulty of items"
    ax.set_ylabel(f"θ: ability of persons, {of_items}")
    return ax
