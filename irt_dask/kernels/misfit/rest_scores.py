"""Do the persons who are right on an item do better or worse on the others?"""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.fixed_point import scale_for
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

#: Shares of the highest score are multiples of this, so that a person's sum is exact.
_UNIT = 2.0**-20


@jit
def _sums(
    indptr: Any, indices: Any, values: Any, unit: Ints, share: Ints, times: Ints, su: float,
    sv: float,
) -> Ints:  # fmt: skip
    out = np.zeros((4, share.size), dtype=np.int64)
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        total = 0
        for k in range(row.size):
            if row[k] >= 0:
                j = item(items, k)
                total += row[k] * unit[j] - share[j]
        for k in range(row.size):
            if row[k] >= 0:
                j = item(items, k)
                own = row[k] * unit[j] - share[j]
                x, rest = own * _UNIT, (total - own) * _UNIT
                out[0, j] += times[i] * np.int64(np.rint(x * rest * su))
                out[1, j] += times[i] * np.int64(np.rint((x * rest) ** 2 * sv))
                out[2, j] += times[i] * np.int64(np.rint(x * x * su))
                out[3, j] += times[i] * np.int64(np.rint(rest * rest * sv))
    return out


def scales(n_persons: int, n_items: int) -> tuple[float, float]:
    """By what products, and squares, are multiplied before rounding."""
    return scale_for(float(n_persons) * n_items), scale_for(float(n_persons) * n_items**2)


def rest_scores(
    data: Layout, steps: Floats, share: Floats, scale: tuple[float, float],
    times: Ints | None = None,
) -> Ints:  # fmt: skip
    """Sums over persons of x r, (x r)^2, x^2 and r^2, (4, items), as fixed-point integers.

    x is the response as a share of the highest one, ``steps`` (infinite: 0; negative: with the
    other sign, as ``share`` has it then), less the mean ``share``, r the sum of the person's other
    x.  The first and third are multiples of ``1 / scale[0]``, the others of ``1 / scale[1]``.
    ``times`` says how many persons each row stands for.
    """
    whole = np.rint(share / _UNIT).astype(np.int64)
    if times is None:
        times = np.ones(data.shape[0], dtype=np.int64)
    unit = np.rint(1.0 / (_UNIT * steps)).astype(np.int64)
    return _sums(*rows.arrays(data), unit, whole, times, *scale)
