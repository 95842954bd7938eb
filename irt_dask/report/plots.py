"""Plots of item parameters, fits and runs: each takes Datasets and returns Matplotlib Axes.

All functions but ``categories``, which draws panels, accept ``ax=None`` and then make a figure of
their own (``ax.figure``); none of them touches pyplot's global state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from irt_dask.curves import MORE_PARAMETERS
from irt_dask.errors import InputError
from irt_dask.items.parameters import item_set
from irt_dask.report.category_plots import categories
from irt_dask.report.common import (
    COLOURS,
    GREY,
    INK,
    axes,
    item_ids,
    legend,
    loadings_of,
    name_rows,
    optional,
    positions,
    required,
    seconds,
    short,
    spread,
)
from irt_dask.report.coreset_plots import coreset_errors
from irt_dask.report.fit_plots import dif, item_fit, observed, residuals, scree
from irt_dask.report.group_plots import item_groups
from irt_dask.report.option_plots import options
from irt_dask.report.posterior_plots import (
    drawn,
    forest,
    label_of,
    shards,
    suspects,
)
from irt_dask.report.predictive_plots import predictive, predictive_items
from irt_dask.report.rank_plots import rank_intervals, ranks
from irt_dask.report.table_plots import groups, percentiles
from irt_dask.report.wright import wright_map
from irt_dask.variables import ITEMS, ITERATION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "categories",
    "compare",
    "convergence",
    "coreset_errors",
    "dif",
    "forest",
    "groups",
    "icc",
    "information",
    "item_fit",
    "item_groups",
    "observed",
    "options",
    "percentiles",
    "predictive",
    "predictive_items",
    "rank_intervals",
    "ranks",
    "residuals",
    "scree",
    "shards",
    "suspects",
    "timings",
    "trace",
    "wright_map",
]

MOST_COLOURED = 12
MOST_TRACES = 4


def _extremes(a: np.ndarray, b: np.ndarray, n: int) -> list[int]:
    """Positions of n items: steepest, flattest, hardest, easiest, then the next of each."""
    up = [np.argsort(np.nan_to_num(v, nan=np.inf), kind="stable") for v in (np.abs(a), b)]
    down = [np.argsort(np.nan_to_num(-v, nan=np.inf), kind="stable") for v in (np.abs(a), b)]
    chosen: list[int] = []
    for rank in zip(down[0], up[0], down[1], up[1], strict=True):
        chosen += [int(i) for i in dict.fromkeys(rank) if i not in chosen]
        if len(chosen) >= n:
            break
    return chosen[:n]


def icc(
    items: xr.Dataset, *, which: Sequence[int | str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw item characteristic curves, the probability of a right response against ability.

    Of items of more than two categories the curve is the expected score as a share of the highest,
    K - 1 (the mean code, where categories are nominal); :func:`categories` draws theirs.

    Parameters
    ----------
    items
        Dataset with ``item_discrimination`` and ``item_intercept`` (or ``item_difficulty``), and
        ``item_guessing`` where items can be guessed (3PL): curves rise from there; of items of
        more than two categories what a fit or :func:`irt_dask.read_items` says of their steps.
    which
        Item identifiers or positions to draw; all by default.  Of more than 12 items, the six
        most extreme in discrimination or difficulty are coloured and the others are grey.
    ax
        Axes to draw on; a new figure by default.

    Examples
    --------
    >>> import irt_dask as irt
    >>> ax = irt.plot.icc(irt.fit_marginal(irt.load_lsat()))
    >>> ax.get_title()
    'Item characteristic curves of 5 items'
    >>> ax.figure.savefig("curves.png")
    """
    from matplotlib.collections import LineCollection

    ids = item_ids(items)
    index = np.arange(len(ids)) if which is None else positions(items, which)
    a, b = required(items, "item_discrimination")[index], required(items, "item_difficulty")[index]
    theta = np.linspace(-4, 4, 161)
    known = item_set(items, tuple(ids[i] for i in index), checked=False)
    highest = known.n_categories - 1
    curves = known.expected(theta) / highest[:, None]
    more = [(p, known.column(p)) for p in MORE_PARAMETERS]
    usable = np.isfinite(curves).all(axis=1)
    index, a, b, curves = index[usable], a[usable], b[usable], curves[usable]
    highest = highest[usable]
    ax = axes(ax)
    many = len(index) > MOST_COLOURED
    if many:
        shade = float(np.clip(30 / len(index), 0.12, 0.7))
        lines = [np.column_stack([theta, curve]) for curve in curves]
        ax.add_collection(LineCollection(lines, colors="#7d848c", linewidths=0.6, alpha=shade))
    chosen = _extremes(a, b, 6) if many else list(range(len(index)))
    chosen.sort(key=lambda i: b[i])
    handles = []
    for k, i in enumerate(chosen):
        style = "-" if k < 6 else (0, (5, 1.5))
        handles += ax.plot(theta, curves[i], color=COLOURS[k % 6], lw=1.8, ls=style)
    names = [
        f"{short(ids[index[i]])}  a={a[i]:z.2f}, b={b[i]:z.2f}"
        + "".join(f", {p.letter}={x[usable][i]:.2f}" for p, x in more if x[usable][i] != p.neutral)
        + (f", {highest[i] + 1} categories" if highest[i] > 1 else "")
        for i in chosen
    ]
    legend(ax, handles, names)
    score = "P(right)" if (highest == 1).all() else "expected score, share of the highest"
    ax.set(xlim=(-4, 4), ylim=(-0.01, 1.01), xlabel="ability θ", ylabel=score)
    ax.set_title(f"Item characteristic curves of {len(index):,} item{'s' * (len(index) != 1)}")
    ax.grid(color="#eceef0", lw=0.7)
    return ax


def _limits(x: np.ndarray, y: np.ndarray, bar: float) -> tuple[float, float]:
    """Common limits of both axes, without the far outliers that would squeeze all the rest."""
    both = np.concatenate([x, y])
    low, middle, high = np.quantile(both, [0.25, 0.5, 0.75])
    reach = 5.0 * (high - low) or np.inf
    inside = both[np.abs(both - middle) <= reach]
    pad = (0.06 * float(np.ptp(inside)) + bar) or 0.5
    return float(inside.min()) - pad, float(inside.max()) + pad


def compare(
    reference: xr.Dataset,
    other: xr.Dataset,
    variable: str,
    *,
    labels: tuple[str, str] = ("joint ML", "posterior"),
    ax: Axes | None = None,
) -> Axes:
    """Scatter one variable of the items of a fit against that of another, matched by identifier.

    Of a variable of steps, like ``item_step_difficulty``, each step is a point.

    Bars are one standard error or posterior standard deviation long to each side, where the
    datasets have one.  The title tells the correlation over all items that have both values.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(2000, 20, seed=1)
    >>> fits = irt.fit_joint(responses), irt.fit_marginal(responses)
    >>> ax = irt.plot.compare(*fits, "item_difficulty", labels=("joint ML", "marginal ML"))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('joint ML', 'marginal ML')
    """
    ids = item_ids(reference)
    x = required(reference, variable)
    y = required(other, variable, ids)
    dx, dy = spread(reference, variable), spread(other, variable, ids)
    common = tuple(slice(n) for n in np.minimum(x.shape, y.shape))  # of steps
    x, y = x[common], y[common]
    both = np.isfinite(x) & np.isfinite(y)
    bars = [
        None if e is None else np.nan_to_num(np.abs(e[common][both]), posinf=0) for e in (dx, dy)
    ]
    point = "item" if x.ndim == 1 else "step"
    x, y = x[both], y[both]
    ax = axes(ax, 4.6, 4.4)
    title = variable.removeprefix("item_").replace("_", " ")
    if len(x) == 0:
        ax.set_title(f"{title}: no item has both values")
        return ax
    bar = max((float(np.median(e)) for e in bars if e is not None), default=0.0)
    low, high = _limits(x, y, 1.5 * bar)
    ax.axline((low, low), slope=1, color=INK, lw=0.9, ls=(0, (4, 3)), zorder=1)
    ax.errorbar(
        x, y, xerr=bars[0], yerr=bars[1], fmt="none", ecolor=GREY, elinewidth=0.7, zorder=2,
        alpha=0.8 if len(x) <= 200 else 0.35,
    )  # fmt: skip
    size = 22 if len(x) <= 100 else 9
    ax.scatter(x, y, s=size, color=COLOURS[0], edgecolors="white", linewidths=0.3, zorder=3)
    outside = int(np.sum((np.minimum(x, y) < low) | (np.maximum(x, y) > high)))
    if outside:
        beyond = f"{outside} {point}{'s' * (outside != 1)} beyond the frame"
        ax.text(0.98, 0.02, beyond, transform=ax.transAxes, ha="right", fontsize=8, color=INK)
    constant = len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0
    r = "r undefined" if constant else f"r = {np.corrcoef(x, y)[0, 1]:z.4f}"
    ax.set_title(f"{title}: {r}, {len(x):,} {point}{'s' * (len(x) != 1)}")
    ax.set(xlim=(low, high), ylim=(low, high), xlabel=labels[0], ylabel=labels[1])
    ax.set_aspect("equal")
    return ax


def _traced(
    posterior: xr.Dataset, which: Sequence[int | str] | None, rhat: np.ndarray | None
) -> np.ndarray:
    """Positions of the items to trace: those asked for, or the four with the largest R-hat."""
    if which is not None:
        if len(which) > MOST_TRACES:
            raise InputError(f"which: a trace shows up to {MOST_TRACES} items, not {len(which)}")
        return positions(posterior, which)
    if rhat is not None and np.isfinite(rhat).any():
        worst = np.argsort(-np.nan_to_num(rhat, nan=-np.inf), kind="stable")
        return worst[: min(MOST_TRACES, int(np.isfinite(rhat).sum()))]
    n = posterior.sizes[ITEMS]
    return np.unique(np.linspace(0, n - 1, min(n, MOST_TRACES)).round().astype(int))


def trace(
    posterior: xr.Dataset,
    which: Sequence[int | str] | None = None,
    parameter: str = "item_discrimination",
    *,
    dim: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the combined draws of a parameter against the draw's number for up to four items.

    Draws stand shard after shard, each shard's carried to the combined posterior: with several
    shards this is no path of one chain.

    Parameters
    ----------
    posterior
        Result of ``fit_bayes``.
    which
        Item identifiers or positions; by default the items with the largest R-hat.
    parameter
        ``item_discrimination``, ``item_intercept``, ``item_difficulty`` (without R-hat:
        items spread over the list) or ``item_loading``.
    dim
        The ability whose loadings are drawn, from 0; for ``item_loading`` only.
    ax
        Axes to draw on; a new figure by default.

    Examples
    --------
    >>> import irt_dask as irt
    >>> posterior = irt.fit_bayes(irt.simulate(500, 10, seed=1), n_draws=200, n_warmup=100)
    >>> ax = irt.plot.trace(posterior, ["item3", "item7"])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['item3', 'item7']
    """
    values = drawn(posterior, parameter, dim)
    rhat = optional(posterior, f"{parameter}_rhat")
    if rhat is not None and parameter == "item_loading":
        rhat = loadings_of(posterior, rhat, dim)
    chosen = _traced(posterior, which, rhat)
    ids = item_ids(posterior)
    ax = axes(ax, 7.0, 3.2)
    handles = []
    for draws, colour in zip(values[:, chosen].T, COLOURS, strict=False):
        handles += ax.plot(draws, lw=0.6, alpha=0.85, color=colour)
        ax.axhline(float(np.nanmean(draws)), color=colour, lw=0.9, ls=(0, (4, 3)))
    for line in legend(ax, handles, [short(ids[i]) for i in chosen]).get_lines():
        line.set_linewidth(2.0)
    ax.margins(x=0.01)
    ax.set(xlabel="draw", ylabel=label_of(parameter, dim), title="Trace of the draws")
    return ax


def convergence(fit: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw ``iteration_objective`` against the iteration.

    Examples
    --------
    >>> import irt_dask as irt
    >>> ax = irt.plot.convergence(irt.fit_marginal(irt.load_lsat()))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('iteration', 'log-likelihood')
    """
    from matplotlib.ticker import MaxNLocator, ScalarFormatter, StrMethodFormatter

    objective = required(fit, "iteration_objective")
    iteration = optional(fit, ITERATION)
    if iteration is None:
        iteration = np.arange(1.0, len(objective) + 1)
    usable = np.isfinite(objective)
    iteration, objective = iteration[usable], objective[usable]
    ax = axes(ax, 7.0, 3.2)
    marker = "o" if len(objective) <= 60 else None
    ax.plot(iteration, objective, color=COLOURS[0], lw=1.5, marker=marker, ms=3.5)
    coarse = len(objective) > 0 and np.ptp(objective) > 10
    plain = StrMethodFormatter("{x:,.0f}") if coarse else ScalarFormatter(useOffset=False)
    ax.yaxis.set_major_formatter(plain)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    title = "Objective by iteration"
    if len(objective):
        title += f": {objective[-1]:,.2f} after {len(objective):,}"
    ax.set(xlabel="iteration", ylabel="log-likelihood", title=title)
    ax.grid(axis="y", color="#eceef0", lw=0.7)
    return ax


def information(found: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw the test's information by ability, and the standard error of ability (right axis).

    Parameters
    ----------
    found : Dataset
        Result of :func:`irt_dask.information`.
    ax : Axes, optional
        Where to draw; default: a figure of its own.

    Examples
    --------
    >>> import irt_dask as irt
    >>> ax = irt.plot.information(irt.information(irt.fit_marginal(irt.load_lsat())))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('ability', 'test information')
    """
    ability, total = required(found, "ability"), required(found, "test_information")
    error = required(found, "ability_se")
    ax = axes(ax)
    ax.plot(ability, total, color=COLOURS[0], lw=1.8, label="information")
    ax.set(xlabel="ability", ylabel="test information", title="Test information")
    ax.set_ylim(bottom=0.0)
    ax.margins(x=0.01)
    right = ax.twinx()
    right.plot(ability, np.where(np.isfinite(error), error, np.nan), color=COLOURS[1], ls="--")
    right.set_ylabel("standard error of ability (dashed)")
    right.set_ylim(bottom=0.0)
    right.spines["top"].set_visible(False)
    return ax


def timings(stages: Sequence[tuple[str, float]], *, ax: Axes | None = None) -> Axes:
    """Draw horizontal bars of (stage, seconds), the first stage at the top.

    Examples
    --------
    >>> import irt_dask as irt
    >>> ax = irt.plot.timings([("ingest", 2.5), ("calibrate", 40.0)])
    >>> ax.get_title()
    'Time by stage, 42.5 s in all'
    """
    names = [name for name, _ in stages]
    values = np.array([float(s) for _, s in stages])
    ax = axes(ax, 7.0, 0.9 + 0.3 * max(len(names), 1))
    bars = ax.barh(np.arange(len(names)), np.nan_to_num(values), color=COLOURS[0], height=0.62)
    ax.bar_label(bars, [seconds(v) for v in values], padding=4, fontsize=8.5, color=INK)
    name_rows(ax, names)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.16 * max(np.nanmax(values, initial=0.0), 1e-9))
    ax.set(xlabel="seconds")
    ax.set_title(f"Time by stage, {seconds(float(np.nansum(values)))} in all")
    return ax
