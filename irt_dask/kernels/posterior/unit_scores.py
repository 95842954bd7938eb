"""Sums of the persons' weighted scores over sampling units: schools, villages, interviewers.

A person's score is the posterior mean of the complete-data score (Fisher's identity), as in
:mod:`.lost_information`.  It is rounded to whole multiples of a unit before it is added, so that
sums are exact in any order: persons of one unit may lie in any blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior.lost_information import (
    CUT,
    Person,
    Scores,
    mean_scores,
    of_person,
    sums_of_sets,
)
from irt_dask.kernels.posterior.person_weights import (
    EVERYBODY,
    Chosen,
    Prior,
    Shared,
    Some,
    gather,
    some,
    weigh,
)
from irt_dask.kernels.posterior.tables import Tables
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout


@jit
def _add_up(
    indptr: Any, indices: Any, values: Any, g: Any, shared: Shared, p: Prior, who: Chosen, c: Some,
    s: Scores, of_sets: Floats, one: Person, weight: Floats, times: Ints, unit: Ints, scale: Floats,
    to: Ints,
) -> None:  # fmt: skip
    begin, mean = 0, np.empty(scale.size)
    while begin < unit.size:
        count = gather(indptr, indices, values, g, shared, p, who, begin, c)
        weigh(c, count)
        for r in range(count):
            i = c.person[r]
            if c.n[r] == 0:
                continue
            group = p.group[i] if p.group.size > 0 else 0
            _, end = of_person(c, r, CUT, shared.number[i], group, s, of_sets, one)
            mean_scores(one, end, mean)
            own = to[unit[i]]
            for k in range(scale.size):
                own[k] += times[i] * np.int64(np.rint(weight[i] * mean[k] * scale[k]))
        begin += count


def add(
    data: Layout, g: Tables, shared: Shared, observed: Bools, p: Prior, s: Scores, weight: Floats,
    times: Ints | None, unit: Ints, scale: float, to: Ints,
) -> None:  # fmt: skip
    """Add the persons' scores to those of their units, (units, columns).

    A person counts by ``weight``, of at most 1, and ``times`` as often if that is given; ``unit``
    is the row of each.  ``observed`` are the items of the sets that ``shared`` numbers.  Sums are
    whole multiples of the scores' bounds over ``scale``, that of
    :func:`irt_dask.kernels.base.fixed_point.scale_for` for so many persons.
    """
    n = unit.size
    counted = np.ones(n, dtype=np.int64) if times is None else times
    of_sets = sums_of_sets(observed, s, g.nodes.size)
    room = some(n, data.shape[1], g.nodes.size)
    one = Person.of(s.bound.shape[1], g.nodes.size)
    _add_up(
        *rows.arrays(data), g, shared, p, EVERYBODY, room, s, of_sets, one, weight, counted, unit,
        scale / s.bound[1], to,
    )  # fmt: skip
