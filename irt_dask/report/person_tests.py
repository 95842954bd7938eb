"""What the tests of persons say of all persons together: sentences, a picture and its numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.report import figures
from irt_dask.report.common import COLOURS, axes, legend
from irt_dask.report.figures import Image
from irt_dask.report.tables import Table, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FIVE_PERCENT = -1.6448536269514722


def tested(persons: xr.Dataset | None) -> dict[str, Any]:
    """What the page shows of a result of ``person_fit``; nothing without one."""
    counted = persons is not None and "lz_count" in persons and bool(persons["lz_count"].sum())
    return {
        "persons_words": words(persons),
        "persons_image": lz_image(persons) if persons is not None and counted else None,
        "persons_table": lz_table(persons) if persons is not None and counted else None,
    }


def words(persons: xr.Dataset | None) -> str | None:
    """Say how many persons have patterns that the model finds unlikely."""
    if persons is None or "share_below_5" not in persons.attrs:
        return None
    a = persons.attrs
    if not a["n_lz"]:
        return "No person has responses from which l_z* follows."
    return (
        f"Of {int(a['n_lz']):,} persons {100 * a['share_below_5']:.1f}% have a pattern of "
        f"responses below the 5% limit of l_z*, and {100 * a['share_below_1']:.1f}% below the 1% "
        f"limit. Many more than 5% and 1% say that persons answer otherwise than the model; few "
        f"say nothing against single persons who do. Where the model holds l_z* is a little "
        f"skewed, too, and with fewer than some 20 items its lower tail is heavier."
    )


def _expected(persons: xr.Dataset) -> tuple[Floats, Floats, Floats]:
    """Middles of the classes, persons in each, and how many there are of N(0, 1)."""
    middle, count = persons["lz"].values, persons["lz_count"].values.astype(float)
    inner = (middle[1:] + middle[:-1]) / 2.0
    below = np.array([0.0, *(0.5 * math.erfc(-x / math.sqrt(2.0)) for x in inner), 1.0])
    return middle, count, count.sum() * np.diff(below)


def lz_image(persons: xr.Dataset) -> Image:
    """Draw how many persons have which l_z*, against a normal distribution."""
    alt = "Persons by l_z*, against a normal distribution; the table below has the numbers."
    caption = (
        "Persons by l_z*, and how many a normal distribution would have. Unlikely patterns are on "
        "the left, those below the 5% limit orange: guessing, copying, carelessness, or questions "
        "that ask for something else. Patterns on the right are more regular than the model says."
    )
    return figures.inline(_draw(*_expected(persons)), alt, caption)


def _draw(middle: Floats, count: Floats, expected: Floats) -> Axes:
    ax = axes(None, 8.2, 3.4)
    width = float(middle[1] - middle[0])
    low = middle < _FIVE_PERCENT
    colours = [COLOURS[1] if x else COLOURS[0] for x in low]
    bars = ax.bar(middle, count, width=0.92 * width, color=colours, alpha=0.75, lw=0)
    (line,) = ax.plot(middle, expected, color="black", lw=1.5, ls=(0, (4, 1.5)))
    ax.set(xlabel="l_z*", ylabel="persons", xlim=_ends(middle, count, width))
    legend(ax, [bars[-1], bars[0], line], ["persons", "below the 5% limit", "normal distribution"],
           loc="upper right", bbox_to_anchor=(1.0, 1.0))  # fmt: skip
    return ax


def _ends(middle: Floats, count: Floats, width: float) -> tuple[float, float]:
    """From where to where the picture goes: all persons, and most of the normal distribution."""
    some = middle[count > 0]
    return min(some[0], -3.5) - width, max(some[-1], 3.5) + width


def lz_table(persons: xr.Dataset) -> Table:
    """Count persons by l_z*, and what a normal distribution would have."""
    middle, count, expected = _expected(persons)
    some = np.flatnonzero((count > 0) | (expected >= 0.5))
    rows = [
        [f"{middle[k]:.2f}", number(float(count[k]), 0), number(float(expected[k]), 1)]
        for k in range(some[0], some[-1] + 1)
    ]
    ends = bool(count[0] or count[-1])
    remarks = ("The classes at the ends hold all persons beyond.",) if ends else ()
    return Table(("l_z*, middle of the class", "persons", "normal distribution"), rows, remarks)
