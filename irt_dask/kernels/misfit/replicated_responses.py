"""Responses of simulated persons who face the items that real ones faced.

A person's responses come from a SplitMix64 stream (Steele, Lea and Flood 2014) that starts at the
person's own random word: keyed by the global row, and as long as the row is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import overload

from irt_dask.arrays import Floats, Words
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior import hermite
from irt_dask.kernels.posterior.at_ability import Between, Lines
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _12 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(12)
_UNIT = 2.0**-52


@jit
def _uniform(state: Any) -> float:
    x = (state ^ (state >> _30)) * _MIX_1
    x = (x ^ (x >> _27)) * _MIX_2
    x = x ^ (x >> _31)
    return (float(x >> _12) + 0.5) * _UNIT


def _draw(items: Any, row: Any, g: Any, x: float, w: Floats, state: Any, out: Any) -> None:
    """Draw the responses of one person: the categories reached, P(at least it) being above u."""
    raise NotImplementedError


@overload(_draw, strict=False)
def _draw_of(
    items: Any, row: Any, g: Any, x: Any, w: Any, state: Any, out: Any
) -> Callable[..., Any]:
    return _on_lines if g.instance_class is Lines else _on_curves


def _on_lines(items: Any, row: Any, g: Any, x: float, w: Floats, state: Any, out: Any) -> None:
    for k in range(row.size):
        if row[k] >= 0:
            j = item(items, k)
            state = state + _STEP
            out[k] = _uniform(state) * (1.0 + math.exp(-(g.slope[j] * x + g.constant[j]))) < 1.0


def _on_curves(items: Any, row: Any, g: Any, x: float, w: Floats, state: Any, out: Any) -> None:
    q = hermite.weights(g, x, w)
    left, right = g.at[q], g.at[q + 1]
    for k in range(row.size):
        if row[k] >= 0:
            j = item(items, k)
            state = state + _STEP
            u, above, code = _uniform(state), 0.0, 0
            for r in range(g.first[j + 1] - 1, g.first[j], -1):
                above += math.exp(hermite.combine(left[r], right[r], w[0]))
                code += u < above
            out[k] = code


@jit
def _responses(
    indptr: Any, indices: Any, values: Any, theta: Floats, g: Any, word: Words, out: Any
) -> None:
    w = np.empty((3, 6))
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        _, drawn = rows.row(indptr, indices, out, i)
        _draw(items, row, g, theta[i], w, word[i], drawn)


def responses(data: Layout, theta: Floats, g: Between, word: Words) -> Layout:
    """Responses of simulated persons to the items that those of ``data`` responded to.

    ``theta`` are the abilities and ``word`` random 64-bit words, one for each person.
    """
    out = data._replace(values=data.values.copy())
    _responses(*rows.arrays(data), theta, g, word, out.values)
    return out
