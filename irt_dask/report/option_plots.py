"""Options of a multiple-choice item: which of them persons chose, the weakest to the ablest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from irt_dask.report.common import COLOURS, axes, legend, positions, required, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def options(found: xr.Dataset, item: int | str = 0, *, ax: Axes | None = None) -> Axes:
    """Draw the share of each fifth of the persons that chose each option of an item.

    The line of the key, drawn thick, should rise, and all others fall: one that rises
    attracts the able.

    Parameters
    ----------
    found
        Result of ``option_analysis``.
    item
        Identifier or position.
    ax
        Axes to draw on; a new figure by default.

    Examples
    --------
    >>> import irt_dask as irt, numpy as np
    >>> answers = np.random.default_rng(1).integers(0, 3, (200, 9)).astype(np.int8)
    >>> found = irt.option_analysis(irt.from_array(answers, categories=3), 0, labels="ABC")
    >>> ax = irt.plot.options(found, "4")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['A (key)', 'B', 'C']
    """
    curve = required(found, "item_option_curve")
    (j,) = positions(found, [item])
    key, names = int(found["item_option_key"].values[j]), list(found.attrs["labels"])
    ax = axes(ax, 5.0, 3.2)
    at, handles, said = np.arange(1, curve.shape[2] + 1), [], []
    for c in np.flatnonzero(np.isfinite(curve[j]).any(axis=1)):
        right = c == key
        handles += ax.plot(at, curve[j, c], color=COLOURS[c % len(COLOURS)], marker="osD^v"[c % 5],
                           ms=4.0, lw=2.6 if right else 1.3)  # fmt: skip
        said.append(f"{short(names[c])} (key)" if right else short(names[c]))
    ax.set(xlabel="fifth of the persons, by other items", ylabel="share that chose it",
           xticks=at, ylim=(-0.02, 1.02))  # fmt: skip
    ax.set_title(f"Options of {short(str(found['item_id'].values[j]))}", parse_math=False)
    legend(ax, handles, said)
    return ax
