"""Whether chains have mixed: ranks of their draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from irt_dask.errors import InputError
from irt_dask.report.common import COLOURS, GREY, axes, legend, required, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Chains with a colour and a name each; more are drawn alike.
_MOST_NAMED = 4


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
    ax.set_title(f"Ranks: {short(name)}", parse_math=False)
    legend(ax, handles, labels)
    return ax
