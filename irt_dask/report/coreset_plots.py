"""Plot of what is lost with a sample of persons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from irt_dask.errors import InputError
from irt_dask.report.common import COLOURS, axes, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS = ("o", "s", "^", "D", "v", "P")


def coreset_errors(samples: Sequence[xr.Dataset], *, ax: Axes | None = None) -> Axes:
    """Draw the error of coresets by their size, a line for each way to draw them.

    The solid line is the relative error of the log-likelihood of the median item, the dotted one
    that of the worst, over random parameters of each (:func:`irt_dask.draw_coreset`).  It is no
    standard error: beside it items have that of a sample of so many persons.

    Parameters
    ----------
    samples : list of Dataset
        Results of :func:`irt_dask.draw_coreset` on the same responses, of several sizes and
        methods.  Several of the same size (other seeds) are averaged.
    ax : Axes, optional
        Where to draw; default: a figure of its own.

    Raises
    ------
    InputError
        Datasets that are no coresets, of other persons, or of more than six methods.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(2000, 10, seed=1)
    >>> items = irt.fit_marginal(responses)
    >>> samples = [irt.draw_coreset(responses, items, size) for size in (100, 400)]
    >>> ax = irt.plot.coreset_errors(samples)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('persons drawn', 'relative error of the log-likelihood')
    """
    if not samples or any("error_median" not in s.attrs for s in samples):
        raise InputError("samples must be results of draw_coreset, whose attrs tell error_median")
    persons = {s.attrs["n_persons"] for s in samples}
    if len(persons) > 1:
        raise InputError(f"samples are of other persons: of {sorted(persons)} in all")
    ways: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for s in samples:
        way = f"{s.attrs['method']}, {s.attrs['sampling']}"
        errors = (s.attrs["error_median"], s.attrs["error_max"])
        ways.setdefault(way, {}).setdefault(int(s.attrs["size"]), []).append(errors)
    if len(ways) > len(_MARKERS):
        raise InputError(f"{len(ways)} methods are more than {len(_MARKERS)}, which can be drawn")
    ax = axes(ax)
    handles: list[Any] = []
    for k, sizes in enumerate(ways.values()):
        at = sorted(sizes)
        median, worst = np.array([np.mean(sizes[n], axis=0) for n in at]).T
        look: dict[str, Any] = {"color": COLOURS[k], "marker": _MARKERS[k], "ms": 4.5}
        handles += ax.plot(at, median, lw=1.8, **look)
        ax.plot(at, worst, lw=1.0, ls=":", **look)
    ax.set(xscale="log", yscale="log")
    drawn = sorted({n for sizes in ways.values() for n in sizes})
    if len(drawn) <= 8:
        ax.set_xticks(drawn, [f"{n:,}" for n in drawn])
        ax.set_xticks([], minor=True)
    ax.set(xlabel="persons drawn", ylabel="relative error of the log-likelihood")
    ax.set_title(f"Coresets of {persons.pop():,} persons: median item, dotted the worst")
    ax.grid(color="#eceef0", lw=0.7)
    legend(ax, handles, list(ways))
    return ax
