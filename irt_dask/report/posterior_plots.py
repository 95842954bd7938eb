"""Plots of a posterior of the items: intervals, shards beside their combination."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from irt_dask.errors import InputError
from irt_dask.report.common import (
    COLOURS,
    GREY,
    INK,
    axes,
    item_ids,
    legend,
    loadings_of,
    name_rows,
    positions,
    refuse_dim,
    required,
)
from irt_dask.variables import DRAW, ITEMS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Items with a label each; more are drawn without.
_MOST_LABELS = 60
#: Items that the plot of shards shows by default.
MOST_COMPARED = 12
#: A shard is marked that a posterior of no disagreement would show in one of so many plots.
_FALSE_ALARMS = 0.05
_LABELS = {
    "item_difficulty": "difficulty b",
    "item_discrimination": "discrimination a",
    "item_intercept": "intercept d",
    "item_loading": "loading a",
}
#: What shards tell.
_OF_SHARDS = ("item_discrimination", "item_intercept", "item_loading")


def label_of(parameter: str, dim: int | None) -> str:
    """Name a parameter; abilities are called 1, 2, ... as in files of scores."""
    return _LABELS[parameter] + ("" if dim is None else f" on ability {dim + 1}")


def drawn(posterior: xr.Dataset, parameter: str, dim: int | None = None) -> np.ndarray:
    """Draws of a parameter, shape (draw, items); those of b are worked out.

    ``dim`` is the ability of a loading, from 0.
    """
    if parameter not in _LABELS:
        raise InputError(f"parameter={parameter!r}: choose one of {', '.join(_LABELS)}")
    refuse_dim(parameter, dim)
    ordered = posterior.transpose(DRAW, ITEMS, ..., missing_dims="ignore")

    def of(name: str) -> np.ndarray:
        return required(ordered, f"{name}_draw")

    if parameter == "item_difficulty":
        return -of("item_intercept") / of("item_discrimination")
    if parameter == "item_loading":
        return loadings_of(posterior, of(parameter), dim)
    return of(parameter)


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Label the rows of a plot, the first at the top, if there is room for all the names."""
    n = len(names)
    ax.set_ylim(n - 0.4, -0.6)
    if n > _MOST_LABELS:
        ax.set_yticks([])
        ax.set_ylabel(f"{n:,} items")
        return
    name_rows(ax, names)


def height_of(n: int) -> float:
    """Height of the figure, inches; without labels rows may be close."""
    return 6.0 if n > _MOST_LABELS else 1.0 + 0.24 * max(n, 2)


def forest(
    posterior: xr.Dataset,
    which: Sequence[int | str] | None = None,
    parameter: str = "item_difficulty",
    *,
    dim: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the posterior median of a parameter with its 50% and 95% intervals, item by item.

    Parameters
    ----------
    posterior
        Result of ``fit_bayes``; the intervals are quantiles of its draws.
    which
        Item identifiers or positions, drawn in this order; default: all, from the largest down.
    parameter
        ``item_difficulty`` (draw by draw ``-d / a``), ``item_discrimination``, ``item_intercept``,
        ``item_loading``.
    dim
        The ability whose loadings are drawn, from 0; for ``item_loading`` only.  Items whose
        loading is fixed at 0 are left out by default.
    ax
        Axes to draw on; a new figure by default.

    Examples
    --------
    >>> import irt_dask as irt
    >>> posterior = irt.fit_bayes(irt.simulate(500, 10, seed=1), n_draws=200, n_warmup=100)
    >>> ax = irt.plot.forest(posterior, ["item3", "item7"])
    >>> ax.get_title()
    'Posterior of the difficulty b of 2 items'
    """
    draws = drawn(posterior, parameter, dim)
    ids = item_ids(posterior)
    q = np.quantile(draws, [0.025, 0.25, 0.5, 0.75, 0.975], axis=0)
    if which is None:
        chosen = np.argsort(-np.nan_to_num(q[2], nan=-np.inf), kind="stable")
        chosen = chosen[~_fixed(parameter, draws)[chosen]]
    else:
        chosen = positions(posterior, which)
    low, lower, middle, upper, high = q[:, chosen]
    n = len(chosen)
    ax = axes(ax, 7.0, height_of(n))
    at = np.arange(n)
    few = n <= _MOST_LABELS
    wide = ax.hlines(at, low, high, color=GREY, lw=1.6 if few else 0.8)
    narrow = ax.hlines(at, lower, upper, color=COLOURS[0], lw=4.0 if few else 1.2)
    dots = ax.scatter(middle, at, s=16 if few else 3, color=INK, zorder=3)
    _name_rows(ax, [ids[k] for k in chosen])
    ax.grid(axis="x", color="#eceef0", lw=0.7)
    ax.set_axisbelow(True)
    label = label_of(parameter, dim)
    ax.set(xlabel=label, title=f"Posterior of the {label} of {n:,} item{'s' * (n != 1)}")
    legend(ax, [dots, narrow, wide], ["median", "50% interval", "95% interval"])
    return ax


def suspects(posterior: xr.Dataset, n: int = 20, *, ax: Axes | None = None) -> Axes:
    """Draw the slopes of the items that most probably fall with ability: keys to look at.

    Parameters
    ----------
    posterior
        Result of ``fit_bayes`` with ``positive="none"``, which lets slopes have any sign.
    n
        Items, those of the largest probability of a negative slope, the largest first (of equal
        ones the steepest); the probability stands beside the name.
    ax
        Axes to draw on; a new figure by default.

    Examples
    --------
    >>> import irt_dask as irt
    >>> y = irt.simulate(500, 10, seed=1).to_xarray()["response"].values
    >>> y[:, 4] = 1 - y[:, 4]  # a wrong key
    >>> posterior = irt.fit_bayes(irt.from_array(y), positive="none", n_draws=200, n_warmup=100)
    >>> ax = irt.plot.suspects(posterior, 5)
    >>> ax.get_title()
    '1 of 10 items probably fall with ability'
    """
    if "item_negative_probability" not in posterior:
        raise InputError(
            "the posterior does not tell item_negative_probability: its slopes were positive; fit "
            "with positive='none'"
        )
    share = required(posterior, "item_negative_probability")
    slope = required(posterior, "item_discrimination")
    known = np.isfinite(share)
    if not known.any():
        raise InputError("all items are nominal, whose codes say nothing of more or less")
    chosen = np.lexsort((slope, -share))[: min(max(n, 1), int(known.sum()))]  # those come last
    ids = item_ids(posterior)
    q = np.quantile(
        drawn(posterior, "item_discrimination"), [0.025, 0.25, 0.5, 0.75, 0.975], axis=0
    )
    low, lower, middle, upper, high = q[:, chosen]
    at = np.arange(len(chosen))
    ax = axes(ax, 7.0, height_of(len(chosen)))
    wide = ax.hlines(at, low, high, color=GREY, lw=1.6)
    narrow = ax.hlines(at, lower, upper, color=COLOURS[0], lw=4.0)
    dots = ax.scatter(middle, at, s=16, color=INK, zorder=3)
    ax.axvline(0.0, color=INK, lw=0.8)
    _name_rows(ax, [f"{ids[k]} ({share[k]:.2f})" for k in chosen])
    ax.grid(axis="x", color="#eceef0", lw=0.7)
    ax.set_axisbelow(True)
    falling = int((share > 0.5).sum())
    ax.set(
        xlabel="discrimination a (beside the item, the probability that it is negative)",
        title=f"{falling:,} of {int(known.sum()):,} items probably fall with ability",
    )
    legend(ax, [dots, narrow, wide], ["median", "50% interval", "95% interval"])
    return ax


def _fixed(parameter: str, draws: np.ndarray) -> np.ndarray:
    """Which items have a loading that is fixed at 0."""
    return np.full(draws.shape[1], parameter == "item_loading") & (draws == 0.0).all(axis=0)


def _disagreement(posterior: xr.Dataset, parameter: str, dim: int | None) -> tuple[np.ndarray, ...]:
    """Means of the shards, (shards, items), their expected distance from the combined mean, and z.

    A shard of n_k of n persons has a posterior sqrt(n / n_k) times as wide as all of them; its mean
    is part of the combined one, so that their difference has the variance sd^2 (n / n_k - 1).
    """

    def of(name: str) -> np.ndarray:
        values = required(posterior, name)
        return values if dim is None else loadings_of(posterior, values, dim)

    means = of(f"shard_{parameter}")
    persons = required(posterior, "shard_n_persons")
    if len(persons) < 2:
        raise InputError("the posterior is of one shard: there is nothing to compare")
    scale = np.sqrt(persons.sum() / persons - 1.0)[:, None]
    expected, centre = scale * of(f"{parameter}_sd"), of(parameter)
    z = np.divide(means - centre, expected, out=np.zeros_like(means), where=expected > 0.0)
    return means, expected, centre, z


def shards(
    posterior: xr.Dataset,
    which: Sequence[int | str] | None = None,
    parameter: str = "item_discrimination",
    *,
    dim: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the shards' means of a parameter on the combined posterior, to see who disagrees.

    The dark bar is the combined 95% interval; in the light one lie 95% of the means of shards of
    that size, if all persons come from the same population.  A mean is marked, with its shard's
    number, if it is farther out than chance would bring any of those shown in one of 20 plots.

    Parameters
    ----------
    posterior
        Result of ``fit_bayes`` with two shards or more.
    which
        Item identifiers or positions, drawn in this order; default: the 12 items on which the
        shards disagree most, the worst first.
    parameter
        ``item_discrimination``, ``item_intercept`` or ``item_loading``.
    dim
        The ability whose loadings are drawn, from 0; for ``item_loading`` only.  Items whose
        loading is fixed at 0 are not compared.
    ax
        Axes to draw on; a new figure by default.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(1000, 10, seed=1)
    >>> posterior = irt.fit_bayes(responses, n_shards=2, n_draws=200, n_warmup=100)
    >>> ax = irt.plot.shards(posterior)
    >>> ax.get_title()
    'Means of 2 shards: 0 of 20 means beyond |z| = 3.0'
    """
    if parameter not in _OF_SHARDS:
        raise InputError(
            f"parameter={parameter!r}: shards tell {', '.join(_OF_SHARDS[:-1])} or {_OF_SHARDS[-1]}"
        )
    draws = drawn(posterior, parameter, dim)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    means, expected, middle, z = _disagreement(posterior, parameter, dim)
    worst = np.abs(z).max(axis=0)
    free = ~_fixed(parameter, draws)
    if which is None:
        chosen = np.argsort(-np.nan_to_num(worst, nan=-np.inf), kind="stable")
        chosen = chosen[free[chosen]][:MOST_COMPARED]
        compared = z[:, free].size  # the worst were looked for among all of them
    else:
        chosen = positions(posterior, which)
        compared = z[:, chosen[free[chosen]]].size
    compared = max(compared, 1)
    limit = NormalDist().inv_cdf(1.0 - 0.5 * _FALSE_ALARMS / compared)
    n = len(chosen)
    at = np.arange(n)
    ax = axes(ax, 7.0, height_of(n) + (0.1 * n if n <= _MOST_LABELS else 0.0))
    centre = middle[chosen]
    usual = 1.96 * expected[:, chosen].max(axis=0)
    light = ax.hlines(at, centre - usual, centre + usual, color="#e3e6e9", lw=7.0)
    dark = ax.hlines(at, low[chosen], high[chosen], color=GREY, lw=7.0)
    x, rows = means[:, chosen], np.broadcast_to(at, (len(means), n))
    far = np.abs(z[:, chosen]) > limit
    handles = [dark, light, ax.scatter(x[~far], rows[~far], s=14, color=COLOURS[0], zorder=3)]
    names = ["combined, 95%", "shard means, 95%", "shard means"]
    if far.any():
        handles.append(ax.scatter(x[far], rows[far], s=26, color=COLOURS[1], marker="D", zorder=4))
        names.append("beyond chance")
        for k, j in np.argwhere(far):
            ax.annotate(
                str(k), (x[k, j], j), textcoords="offset points", xytext=(0, 5), ha="center",
                fontsize=8, color=COLOURS[1],
            )  # fmt: skip
    ids = item_ids(posterior)
    _name_rows(ax, [ids[k] for k in chosen])
    number = f"{int(far.sum())} of {far[:, free[chosen]].size:,} means beyond |z| = {limit:.1f}"
    ax.set(xlabel=label_of(parameter, dim), title=f"Means of {len(means)} shards: {number}")
    legend(ax, handles, names)
    return ax
