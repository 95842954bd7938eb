"""Plots of what a posterior predicts beside what is observed: scores, and items."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from irt_dask.report.common import (
    COLOURS,
    INK,
    axes,
    item_ids,
    legend,
    required,
    several,
    short,
)
from irt_dask.report.posterior_plots import height_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Items outside their intervals that are named, those farthest out.
_MOST_NAMED = 20


def predictive(check: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw persons by score, observed and as the posterior predicts them.

    ``check`` is a result of ``predictive_check``; the band holds 95% of the replicated counts,
    score by score.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(500, 10, seed=1)
    >>> posterior = irt.fit_bayes(responses, n_draws=200, n_warmup=100)
    >>> ax = irt.plot.predictive(irt.predictive_check(responses, posterior))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('number right', 'persons')
    """
    observed = required(check, "score_count")
    low, high = (required(check, f"score_count_{end}") for end in ("lower", "upper"))
    width = float(check.attrs.get("score_width", 1))
    score = required(check, "score") + 0.5 * (width - 1.0)
    level = float(check.attrs.get("level", 0.95))
    ax = axes(ax)
    outside = (observed < low) | (observed > high)
    # as steps, so that classes of one score can be told from each other
    edges = np.append(score - 0.5 * width, score[-1] + 0.5 * width)
    band = ax.stairs(high, edges, baseline=low, fill=True, color=COLOURS[0], alpha=0.22, lw=0)
    line = ax.stairs(
        required(check, "score_count_expected"), edges, color=COLOURS[0], lw=1.2, baseline=None
    )
    size = 16 if len(score) <= 70 else 6
    inner = ax.scatter(score[~outside], observed[~outside], s=size, color=INK, zorder=3)
    handles = [inner, line, band]
    names = ["observed", "expected", f"{100 * level:.0f}% of replicates"]
    if outside.any():
        far = ax.scatter(score[outside], observed[outside], s=size, color=COLOURS[1], zorder=4)
        handles.insert(1, far)
        names.insert(1, "observed, outside")
    ax.set_ylim(bottom=0)
    ax.set_xlim(edges[0], edges[-1])
    title = "Scores and their posterior prediction"
    if "p_value" in check.attrs:
        p = float(check.attrs["p_value"])
        title += ": p undefined" if np.isnan(p) else f": p = {p:.3f}"
    counted = "score" if several(check) else "number right"
    ax.set(xlabel=counted, ylabel="persons", title=title)
    ax.grid(axis="y", color="#eceef0", lw=0.7)
    ax.set_axisbelow(True)
    legend(ax, handles, names)
    return ax


def predictive_items(check: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw the item-rest correlations, observed and as the posterior predicts them.

    ``check`` is a result of ``predictive_check``; the bars hold 95% of the replicates, item by
    item, so that of 100 items some 5 lie outside by chance.  Items are sorted by how far the
    observed correlation is above its bar or below (at the bottom), as a multiple of the bar; the 20
    that are farthest outside are named.

    Examples
    --------
    >>> import irt_dask as irt
    >>> y = irt.simulate(500, 10, seed=1).to_xarray()["response"].values
    >>> responses = irt.from_array(y)
    >>> posterior = irt.fit_bayes(responses, n_draws=200, n_warmup=100)
    >>> y[:, 4] = 1 - y[:, 4]  # a wrong key in later data
    >>> ax = irt.plot.predictive_items(irt.predictive_check(irt.from_array(y), posterior))
    >>> ax.get_yticklabels()[0].get_text()
    '4'
    """
    name = "item_rest_correlation"
    observed = required(check, name)
    low, high = (required(check, f"{name}_{end}") for end in ("lower", "upper"))
    ids, level = item_ids(check), float(check.attrs.get("level", 0.95))
    shown = np.flatnonzero(np.isfinite(observed) & np.isfinite(low))
    half = np.maximum(0.5 * (high - low), 1e-12)
    far = (observed - 0.5 * (low + high)) / half  # beyond 1: outside
    order = shown[np.argsort(far[shown], kind="stable")]
    at, y = np.arange(order.size), observed[order]
    outside = (y < low[order]) | (y > high[order])
    ax = axes(ax, 7.0, height_of(order.size))
    few = order.size <= 60
    bars = ax.hlines(at, low[order], high[order], color=COLOURS[0], alpha=0.3, lw=5 if few else 1)
    size = 16 if few else 4
    inner = ax.scatter(y[~outside], at[~outside], s=size, color=INK, zorder=3)
    handles, names = [inner, bars], ["observed", f"{100 * level:.0f}% of replicates"]
    if outside.any():
        outer = ax.scatter(y[outside], at[outside], s=size, color=COLOURS[1], zorder=4)
        handles.insert(1, outer)
        names.insert(1, "observed, outside")
    farthest = np.argsort(-np.abs(far[order]), kind="stable")
    named = np.sort(farthest[outside[farthest]][:_MOST_NAMED])
    ax.set_yticks(named, [short(ids[order[k]]) for k in named])
    for text in ax.get_yticklabels():
        text.set_parse_math(False)
    ax.set_ylim(-0.6, max(order.size, 1) - 0.4)
    ax.axvline(0.0, color=INK, lw=0.8)
    title = f"Items with the others: {int(outside.sum()):,} of {order.size:,} outside"
    ax.set(xlabel="correlation with the sum of the other items", title=title)
    ax.grid(axis="x", color="#eceef0", lw=0.7)
    ax.set_axisbelow(True)
    legend(ax, handles, names)
    return ax
