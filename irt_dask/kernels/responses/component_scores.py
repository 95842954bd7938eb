"""How responses go with a weighted sum of the others: what a first component is found by."""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.fixed_point import scale_for
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

#: Standardised responses are no larger: standard deviations count as a tenth at least.
LARGEST = 10.0


@jit
def _sums(
    indptr: Any, indices: Any, values: Any, unit: Floats, centre: Floats, weight: Floats,
    times: Ints, scale: float,
) -> Ints:  # fmt: skip
    out = np.zeros((4, unit.size), dtype=np.int64)
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        total = 0.0
        for k in range(row.size):
            if row[k] >= 0:
                j = item(items, k)
                total += weight[j] * (row[k] * unit[j] - centre[j])
        for k in range(row.size):
            if row[k] >= 0:
                j = item(items, k)
                z = row[k] * unit[j] - centre[j]
                rest = total - weight[j] * z
                out[0, j] += times[i] * np.int64(np.rint(z * total * scale))
                out[1, j] += times[i] * np.int64(np.rint(z * rest * scale))
                out[2, j] += times[i] * np.int64(np.rint(rest * rest * scale))
                out[3, j] += times[i] * np.int64(np.rint(z * z * scale))
    return out


def scale_of(n_persons: int, n_items: int) -> float:
    """By what products are multiplied before rounding, where squared weights sum to 1."""
    return scale_for(float(n_persons) * LARGEST**2 * max(n_items, 1))


def component_scores(
    data: Layout, unit: Floats, centre: Floats, weight: Floats, scale: float,
    times: Ints | None = None,
) -> Ints:  # fmt: skip
    """Sums over persons of z t, z r, r^2 and z^2, (4, items), as multiples of ``1 / scale``.

    z is ``unit`` times the response less ``centre``, t the sum of the person's ``weight`` z, and r
    that sum without the item's own.  ``times`` says how many persons each row stands for.
    """
    if times is None:
        times = np.ones(data.shape[0], dtype=np.int64)
    return _sums(*rows.arrays(data), unit, centre, weight, times, scale)
