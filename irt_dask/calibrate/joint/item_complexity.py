"""How hard an item's responses are to compress: the mu-complexity that coreset bounds depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.joint.person_step import mode_tables
from irt_dask.curves.grids import ABILITY_BOUND
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset
from irt_dask.errors import EstimationError
from irt_dask.items.known_models import parameters
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.coresets import complexity as kernel
from irt_dask.kernels.joint import modes
from irt_dask.kernels.joint.parameters import Items
from irt_dask.store import Block

Flags = Bools


def coreset_complexity(
    responses: Any, items: xr.Dataset, *, client: Any = None, progress: ProgressOption = None
) -> xr.Dataset:
    """Complexity mu_0 and mu_1 of every item's step, abilities given: the size a coreset needs.

    For the rows ``x_i = -y_i (theta_i, -1)`` of the persons who answered the item (y_i = 1 right,
    -1 wrong), ``mu_p`` is the supremum over directions eta of ``|(x eta)^+|_p / |(x eta)^-|_p``:
    how much the responses that a rule "right above tau" breaks can outweigh those that it keeps, or
    the reverse.  It is at least 1.  For p = 0, directions at right angles to a row are left out:
    beside them it does not matter how zeros are counted, and the losses are continuous.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
        Person weights, if there are any, multiply the rows' terms.
    items : Dataset
        A fit with discriminations and intercepts, or difficulties only; abilities are the most
        likely ones in [-6, 6] given these.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over items
        ``item_mu0``, ``item_mu1``; ``item_degenerate`` is 1 where all or none of those who answered
        are right (mu is infinite; NaN where nobody answered), ``item_separable`` where another
        threshold puts all right on one side and all wrong on the other (``item_mu1`` is infinite,
        ``item_mu0`` too unless persons at the threshold itself are of both kinds).  Of neither kind
        does the most likely item exist without bounds.  attrs: ``median_mu0``, ``mean_mu0``,
        ``max_mu0`` and the same of mu1 over all other items (NaN if there are none),
        ``n_degenerate``, ``n_separable``; ``mu1_tolerance``, the relative accuracy of mu_1 (mu_0 is
        exact), both for abilities rounded to ``ability_resolution``; ``n_passes``.

    Raises
    ------
    InputError, EstimationError

    Notes
    -----
    Passes over the data: about four (more where right and wrong are mixed whatever the ability),
    each with one search for the modes.  The first counts on 512 bins of ability, the others on 512
    or so bins an item, small where the supremum may be.  Every pass gives both ratios at the
    edges exactly, and upper bounds between them; it ends when no bin can hold more, which the
    resolution guarantees.  Driver memory: 32 bytes x 512 bins x items, for an item
    with more than 64 undecided bins 32 bytes x 8 pieces of each.
    Source: Frick et al., section 2; appendix F has values at the optimum only, lower bounds.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(2000, 10, seed=1)
    >>> complexity = irt.coreset_complexity(responses, irt.fit_marginal(responses))
    >>> complexity["item_mu1"][:4].round().values.tolist()
    [9.0, 4.0, 8.0, 11.0]
    >>> round(complexity.attrs["median_mu1"])
    9
    """
    responses = as_responses(responses, "coreset_complexity")
    a, d = parameters(items, responses.item_id)
    with Engine(responses, client=client, progress=progress, stage="complexity") as engine:
        search = _Search(engine, a, d)
        while search.open_items:
            search.round()
            engine.progress.update(a.size - len(search.open_items), a.size)
    right, wrong, mu = search.right, search.wrong, search.mu
    degenerate = (right == 0) | (wrong == 0)
    separable = ~degenerate & np.isinf(mu[:, 1])
    regular = mu[~degenerate & ~separable]
    summary: dict[str, float] = {}
    for name, function in (("median", np.median), ("mean", np.mean), ("max", np.max)):
        for p in (0, 1):
            summary[f"{name}_mu{p}"] = float(function(regular[:, p])) if len(regular) else np.nan
    return dataset(
        {
            "item_mu0": mu[:, 0],
            "item_mu1": mu[:, 1],
            "item_degenerate": degenerate.astype(np.int8),
            "item_separable": separable.astype(np.int8),
        },
        item_id=responses.item_id,
        attrs={
            "method": "mu-complexity",
            **summary,
            "n_degenerate": int(degenerate.sum()),
            "n_separable": int(separable.sum()),
            "mu1_tolerance": kernel.TOLERANCE,
            "ability_resolution": 1.0 / kernel.PER_UNIT,
            "n_passes": search.n_passes,
            "n_persons": engine.n_persons,
            **engine.weight_attrs,
        },
    )


def _step(block: Block, a: Floats, d: Floats, *bins: Any) -> tuple[Any, ...]:
    theta, _ = modes.modes(block.data, mode_tables(Items.of("2pl", a, d)))
    return kernel.histograms(block.data, theta, block.weights(), ABILITY_BOUND, *bins)


class _Search:
    """The bins of every item, narrowed down in rounds of one pass over the data each."""

    def __init__(self, engine: Engine, a: Floats, d: Floats) -> None:
        r = engine.responses
        total = engine.n_persons
        self.engine, self.a, self.d = engine, a, d
        self.end = kernel.end_of(ABILITY_BOUND)
        self.scales = np.array(
            [fixed_point.scale_for(total), fixed_point.scale_for(total * self.end)]
        )
        m = r.n_items
        start = kernel.first_edges(ABILITY_BOUND)
        #: Left edges of each item's bins, and which of them may hold the supremum.
        self.edges: list[Ints] = [start] * m
        self.open: list[Flags] = [np.ones(start.size, dtype=bool)] * m
        self.open_items = list(range(m))
        self.mu = np.zeros((m, 2))
        self.right, self.wrong = np.zeros(m), np.zeros(m)
        self.n_passes = 0

    def round(self) -> None:
        """One pass: count, raise mu to what edges attain, divide the bins that may hold more.

        Cost: one search for the modes, and one comparison or two per response.
        """
        sizes = np.zeros(self.a.size, dtype=np.int64)
        sizes[self.open_items] = [self.edges[j].size for j in self.open_items]
        first = np.concatenate([[0], np.cumsum(sizes)])
        edge = np.concatenate([self.edges[j] for j in self.open_items])
        count, moment = self.engine.map_reduce(_step, self.a, self.d, first, edge, self.scales)
        self.n_passes += 1
        if not count.any():
            raise EstimationError("no person has any response: complexity is not defined")
        self.open_items = [
            j for j in self.open_items if self._narrow(j, count, moment, int(first[j]))
        ]

    def _narrow(self, j: int, count: Ints, moment: Ints, start: int) -> bool:
        """Whether the item needs another pass, and if so its next bins."""
        mine = slice(start, start + self.edges[j].size)
        c, s = count[:, mine] / self.scales[0], moment[:, mine] / self.scales[1]
        self.wrong[j], self.right[j] = c.sum(axis=1)
        if not c.any():
            self.mu[j] = np.nan
            return False
        edge = np.append(self.edges[j], self.end).astype(np.float64)
        more = kernel.bracket(edge, c, s, self.open[j], self.mu[j])
        if more.any():
            self.edges[j], self.open[j] = kernel.divide(edge, c, s, more)
        return bool(more.any())
