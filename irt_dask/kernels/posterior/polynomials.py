"""Polynomials of ability that are orthonormal under a person's posterior.

A posterior covariance of functions of ability is the sum over degrees 1, 2, ... of the products of
their coefficients (Parseval).  Where functions are smooth over a posterior some degrees are enough,
and there are several nodes for each.  The coefficient of degree 0 is the mean.
"""

from __future__ import annotations

import math

from irt_dask.arrays import Floats
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import LANES, dot

#: Degrees that are found at a time.
DEGREES = LANES


@jit
def further(root: Floats, n: int, degree: int, basis: Floats, turned: Floats) -> int:
    """Find the polynomials of ``degree`` and up to 7 more; return how many there are.

    ``root`` are square roots of the posterior at nodes that are equally far apart, a multiple of
    LANES; n are not 0, and polynomials of degrees below n are all there are.  They go, times the
    root, to ``basis`` (degrees, nodes), which holds those of lower degrees, and times it once more
    to ``turned`` (nodes, DEGREES): the first of them, of degree 0 or 8, ..., to the last place, so
    that what degree 0 leaves is together.
    """
    size, found = root.size, min(DEGREES, n - degree)
    for k in range(found):
        own = basis[degree + k, :size]
        own[:] = root
        if degree + k > 0:
            before = basis[degree + k - 1, :size]
            for q in range(size):
                own[q] = (q - 0.5 * size) * before[q]
            # The two before would do but for rounding; with all of them it stays below 1e-12.
            for lower in range(degree + k):
                other = basis[lower, :size]
                shared = dot(own, other)
                for q in range(size):
                    own[q] -= shared * other[q]
        scale = 1.0 / math.sqrt(dot(own, own))
        for q in range(size):
            own[q] *= scale
            turned[q, (k + DEGREES - 1) % DEGREES] = own[q] * root[q]
    if found < DEGREES:
        turned[:size, found - 1 : DEGREES - 1] = 0.0
    return found
