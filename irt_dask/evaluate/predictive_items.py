"""What a predictive check says of items and of blocks of items, from sums over persons.

Arrays have the observed responses first, then every replicate.
"""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Floats, Ints

LEVEL = 0.95
#: Shares of further values below the ends of an interval.
ENDS = (0.5 * (1.0 - LEVEL), 1.0 - 0.5 * (1.0 - LEVEL))
#: Items whose statistics of all replicates are made at a time.
_AT_ONCE = 4096
#: By so much, next to 1, values that are equal may differ by rounding.
_ROUNDING = 1e-12


def of_items(seen: Ints, sums: Ints) -> dict[str, Floats]:
    """Mean scores and rest correlations of items, compared with their replicates.

    ``seen`` (items,) are the persons who answered, ``sums`` (replicates + 1, 4 or 5, items) as of
    :func:`irt_dask.kernels.misfit.score_sums.of_items`.
    """
    parts = []
    for lo in range(0, seen.size, _AT_ONCE):
        n, own = seen[lo : lo + _AT_ONCE], sums[:, :, lo : lo + _AT_ONCE]
        parts.append(
            compared("item_mean_score", _over(own[:, 0], n))
            | compared("item_rest_correlation", _rest_correlation(n, own))
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def of_blocks(sums: Ints) -> dict[str, Floats]:
    """Variances of the scores on blocks, compared with their replicates.

    ``sums`` (replicates + 1, 3, blocks) as of ``score_sums.of_blocks``.
    """
    n, s, ss = sums[0, 0], sums[:, 1], sums[:, 2]
    return compared("block_score_variance", _over(_deviations(n, s, s, ss), n - 1))


def compared(name: str, values: Floats) -> dict[str, Floats]:
    """Say how the observed values, the first of each column, lie among the others.

    Replicates that are not defined (NaN) are left out; without any, and where the observed value is
    not defined, there is no p-value.
    """
    observed, others = values[0], np.sort(values[1:], axis=0)  # NaN last
    n = (~np.isnan(others)).sum(axis=0)
    ends = np.full((2, observed.size), np.nan)
    for k in np.unique(n[n > 0]):
        at = n == k
        ends[:, at] = np.quantile(others[:k, at], ENDS, axis=0, method="weibull")
    near = _ROUNDING * np.maximum(1.0, np.abs(observed))
    fewer = np.minimum(
        (others <= observed + near).sum(axis=0), (others >= observed - near).sum(axis=0)
    )
    p = np.minimum(1.0, 2.0 * (1 + fewer) / (1 + n))
    return {
        name: observed,
        f"{name}_expected": _over(np.nansum(others, axis=0), n),
        f"{name}_lower": ends[0],
        f"{name}_upper": ends[1],
        f"{name}_p_value": np.where(np.isnan(observed) | (n == 0), np.nan, p),
    }


def _rest_correlation(n: Ints, sums: Ints) -> Floats:
    """Correlation of x and r = t - x, NaN without variance of both; (replicates + 1, items)."""
    x, t, tt, xt = (sums[:, k] for k in range(4))
    xx = sums[:, 4] if sums.shape[1] > 4 else x
    r, rr, xr = t - x, tt - 2 * xt + xx, xt - xx
    of_x, of_r = _deviations(n, x, x, xx), _deviations(n, r, r, rr)
    there = (of_x > 0.0) & (of_r > 0.0)
    size = np.sqrt(of_x) * np.sqrt(of_r)
    out = np.full(x.shape, np.nan)
    return np.divide(_deviations(n, x, r, xr), size, out=out, where=there)


def _deviations(n: Ints, a: Ints, b: Ints, ab: Ints) -> Floats:
    """Sum of products of deviations from the means, from the sums of a, of b and of a b.

    Deviations from the whole numbers next to the means are exact and small, so that nothing is lost
    however large the sums: those of squares are 0 if and only if all numbers are equal.
    """
    n = np.maximum(n, 1)
    p, q = (2 * a + n) // (2 * n), (2 * b + n) // (2 * n)
    left = ((a - n * p) / n) * (b - n * q)
    return (ab - p * b - q * a + n * p * q) - left


def _over(sums: Floats | Ints, n: Ints) -> Floats:
    """Means; NaN of nobody."""
    return np.divide(sums, n, out=np.full(sums.shape, np.nan), where=n > 0)
