"""Posterior moments of persons who answered every item, from their weighted score.

What such a person's responses say of ability is ``t = sum_j a_j y_j``: the posterior weight at a
node theta is ``exp(t theta + total(theta))``.  With M its sum over the nodes, log M is the cumulant
generating function of a distribution that does not depend on the person, so its derivatives in t
are the posterior mean, the variance, and the third and fourth cumulants.  They are tabulated on a
grid of t and interpolated by quintic Hermite polynomials, each from its own derivatives, which are
the next entries of the table.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior.linear_tables import Tables
from irt_dask.kernels.responses.layouts import Dense, Layout

Floats = NDArray[np.float64]

#: Intervals of a unit of t.  The error of interpolation is ``h^6 |f^(6)| / 46080``, 2e-14 of the
#: seventh cumulant for the mean.
_INTERVALS = 32
#: Scores whose weights are held at once while the table is made.
_CHUNK = 256

_LOWEST = np.uint64(0x0101010101010101)
_SIGNS = np.uint64(0x8080808080808080)
_GATHER = np.uint64(0x0102040810204080)


class Curves(NamedTuple):
    """What the weighted score of a person who answered every item says."""

    #: Log M and four cumulants at scores ``0, 1 / 32, ...`` to the sum of all slopes, (n, 5).
    values: Floats
    #: Slopes, and intercepts, of the right ones of eight items, by their bits, (m / 8, 256, 2).
    eight: Floats

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.values.nbytes + self.eight.nbytes


#: For those who want all persons treated alike.
NONE = Curves(np.empty((0, 5)), np.empty((0, 256, 2)))


def curves(g: Tables) -> Curves:
    """Tabulate; :data:`NONE` for a fine grid: a long test, whose persons' responses cost more."""
    if g.wrong.size == 0:
        return NONE
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    padded = np.zeros((-(-g.a.size // 8) * 8, 2))
    padded[: g.a.size, 0], padded[: g.a.size, 1] = g.a, g.d
    eight = np.einsum("pk,bkx->bpx", bits, padded.reshape(-1, 8, 2))
    n = max(2, math.ceil(float(g.a.sum()) * _INTERVALS) + 1)
    values = np.empty((n, 5))
    for first in range(0, n, _CHUNK):
        t = np.arange(first, min(first + _CHUNK, n)) / _INTERVALS
        log_w = np.multiply.outer(t, g.nodes) + g.total
        peak = log_w.max(axis=1)
        w = np.exp(log_w - peak[:, None])
        total = w.sum(axis=1)
        mean = (w * g.nodes).sum(axis=1) / total
        x = g.nodes - mean[:, None]
        second, third, fourth = ((w * x**k).sum(axis=1) / total for k in (2, 3, 4))
        values[first : first + t.size] = np.stack(
            [peak + np.log(total), mean, second, third, fourth - 3.0 * second**2], axis=1
        )
    return Curves(values, eight)


@jit
def _hermite(u: float, h: float, left: Floats, right: Floats, k: int) -> float:
    """Entry k at the share u of an interval of length h; its derivatives are the next entries."""
    u2 = u * u
    u3 = u2 * u
    v = 1.0 - u
    v2 = v * v
    v3 = v2 * v
    at_left = (1.0 + u * (3.0 + 6.0 * u)) * left[k]
    at_left += h * u * (1.0 + 3.0 * u) * left[k + 1] + 0.5 * h * h * u2 * left[k + 2]
    at_right = (1.0 + v * (3.0 + 6.0 * v)) * right[k]
    at_right += -h * v * (1.0 + 3.0 * v) * right[k + 1] + 0.5 * h * h * v2 * right[k + 2]
    return v3 * at_left + u3 * at_right


@jit
def _complete(
    words: NDArray[np.uint64],
    curves: Curves,
    mean: Floats,
    sd: Floats,
    log_m: Floats,
    rest: NDArray[np.bool_],
) -> None:
    h = 1.0 / _INTERVALS
    last = curves.values.shape[0] - 2
    for i in range(words.shape[0]):
        t = intercepts = 0.0
        signs = np.uint64(0)
        for b in range(words.shape[1]):
            word = words[i, b]
            signs |= word
            # The lowest bits of eight bytes, gathered in the highest byte: no two meet elsewhere.
            right = (word & _LOWEST) * _GATHER >> np.uint64(56)
            t += curves.eight[b, right, 0]
            intercepts += curves.eight[b, right, 1]
        rest[i] = (signs & _SIGNS) != 0  # a response below 0 is none
        if rest[i]:
            continue
        t *= _INTERVALS
        q = min(max(int(t), 0), last)
        u, left, right_end = t - q, curves.values[q], curves.values[q + 1]
        mean[i] = _hermite(u, h, left, right_end, 1)
        sd[i] = math.sqrt(_hermite(u, h, left, right_end, 2))
        log_m[i] = _hermite(u, h, left, right_end, 0) + intercepts


def _words(values: NDArray[np.int8]) -> NDArray[np.uint64]:
    """Eight responses in a number, the first lowest; wrong ones fill the last up."""
    lacking = -values.shape[1] % 8
    if lacking:
        values = np.pad(values, ((0, 0), (0, lacking)))
    return np.ascontiguousarray(values).view("<u8")


def complete(
    data: Layout, curves: Curves, mean: Floats, sd: Floats, log_m: Floats
) -> NDArray[np.bool_]:
    """Fill in mean, SD and log likelihood of who answered every item; return who did not.

    The log likelihood lacks the factor of the prior density.
    """
    n, m = data.shape
    if isinstance(data, Dense):
        rest = np.empty(n, dtype=np.bool_)
        _complete(_words(data.values), curves, mean, sd, log_m, rest)
        return rest
    rest = np.diff(data.indptr) < m
    whole = np.flatnonzero(~rest)
    if whole.size:
        values = data.values[data.indptr[whole][:, None] + np.arange(m)]
        found = np.empty((3, whole.size))
        _complete(_words(values), curves, *found, np.empty(whole.size, dtype=np.bool_))
        mean[whole], sd[whole], log_m[whole] = found
    return rest
