"""Ranks: of the draws of chains, which have mixed or not; of items or persons, and how sure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from irt_dask.errors import InputError
from irt_dask.report.common import (
    COLOURS,
    GREY,
    INK,
    axes,
    legend,
    name_rows,
    required,
    short,
)
from irt_dask.report.posterior_plots import height_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Chains with a colour and a name each; more are drawn alike.
_MOST_NAMED = 4
#: Items or persons whose ranks have a name each.
_MOST_ROWS = 60


def ranks(posterior: xr.Dataset, which: int = 0, *, ax: Axes | None = None) -> Axes:
    """Draw the ranks of each chain's draws among those of all, of a parameter that mixed badly.

    Chains that have mixed have as many draws of every rank: lines are level but for chance, which
    is larger the more neighbouring draws are alike.  Of a single chain its two halves are compared,
    as R-hat does.

    Parameters
    ----------
    posterior
        Result of ``fit_bayes`` with one ability.
    which
        Which of the eight parameters with the largest R-hat, 0 the worst.
    ax
        Axes to draw on; a new figure by default.

    Notes
    -----
    Source: Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021).

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(300, 5, seed=1)
    >>> posterior = irt.fit_bayes(responses, n_chains=2, n_draws=200, n_warmup=100)
    >>> ax = irt.plot.ranks(posterior)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['even', 'chain 1', 'chain 2']
    """
    counts = required(posterior, "ranked_draw_count")
    if which not in range(len(counts)):
        raise InputError(f"which={which}: ranks are kept of {len(counts)} parameters, from 0")
    own, name = counts[which], str(posterior["ranked_parameter"].values[which])
    edges = np.linspace(0.0, float(own.sum()), own.shape[1] + 1)
    ax = axes(ax, 5.0, 3.0)
    handles: list[Any] = [ax.axhline(own.sum() / own.size, color=GREY, lw=1.0, ls=(0, (4, 3)))]
    labels, halves = ["even"], "n_chains" in posterior.attrs and posterior.attrs["n_chains"] == 1
    for k, line in enumerate(own):
        colour = COLOURS[k % len(COLOURS)]
        drawn = ax.stairs(line, edges, baseline=None, color=colour, lw=1.4, alpha=0.9)
        if len(own) <= _MOST_NAMED:
            handles.append(drawn)
            labels.append(f"half {k + 1}" if halves else f"chain {k + 1}")
    ax.set_ylim(bottom=0.0)
    ax.set(xlabel="rank", ylabel="draws")
    ax.set_title(f"Ranks: {short(name, 40)}", parse_math=False)
    legend(ax, handles, labels)
    return ax


def rank_intervals(found: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw ranks with their simultaneous intervals, the first on top.

    Intervals that overlap do not say who is ahead.  The dotted line is after the k first; who is
    among them by the estimates has a filled mark.

    Parameters
    ----------
    found : Dataset
        Result of :func:`irt_dask.top_items` or :func:`irt_dask.top_persons`.
    ax : Axes, optional
        Where to draw; default: a figure of its own.

    Examples
    --------
    >>> import irt_dask as irt
    >>> top = irt.top_items(irt.fit_pairwise(irt.load_lsat(), n_splits=20), 2)
    >>> irt.plot.rank_intervals(top).get_title()
    'Ranks of 5 items, 95% intervals for all together'
    """
    of = next((x for x in ("item", "person") if f"{x}_rank_lower" in found), None)
    if of is None:
        raise InputError("there are no rank intervals: give a result of top_items or top_persons")
    rank, low, high = (required(found, f"{of}_rank{end}") for end in ("", "_lower", "_upper"))
    top = found[f"{of}_in_top"].values.astype(bool)
    order = np.argsort(rank, kind="stable")
    n, at = order.size, np.arange(order.size)
    few = n <= _MOST_ROWS
    ax = axes(ax, 7.0, height_of(n))
    lines = ax.hlines(at, low[order], high[order], color=COLOURS[0], lw=1.8 if few else 0.6)
    size = 22 if few else 4
    inside = top[order]
    dots = [
        ax.scatter(rank[order][inside], at[inside], s=size, color=INK, zorder=3),
        ax.scatter(
            rank[order][~inside], at[~inside], s=size, facecolors="white", edgecolors=INK, zorder=3
        ),
    ]
    ax.axvline(int(top.sum()) + 0.5, color=INK, lw=0.9, ls=":")
    ax.set_ylim(n - 0.4, -0.6)
    if few:
        name_rows(ax, [str(found[f"{of}_id"].values[j]) for j in order])
    else:
        ax.set_yticks([])
        ax.set_ylabel(f"{n:,} {of}s")
    level = float(found.attrs.get("level", 0.95))
    ax.set(xlabel="rank", xlim=(0.4, n + 0.6))
    ax.set_title(f"Ranks of {n:,} {of}s, {100 * level:g}% intervals for all together")
    ax.grid(axis="x", color="#eceef0", lw=0.7)
    ax.set_axisbelow(True)
    k = int(top.sum())
    legend(ax, [*dots, lines], [f"first {k}", "others", "interval"])
    return ax
