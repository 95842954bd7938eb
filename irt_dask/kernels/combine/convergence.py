"""Convergence of chains: split R-hat and effective sample size.

Gelman et al., Bayesian Data Analysis (3rd ed., section 11.4-11.5); autocorrelations by FFT and
Geyer's initial monotone sequence.
"""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Floats, Ints


def _halves(draws: Floats) -> Floats:
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def rhat(draws: Floats) -> Floats:
    """Split R-hat; ``draws`` is (chains, draws, ...), the result has the trailing shape."""
    x = _halves(draws)
    n = x.shape[1]
    within = x.var(axis=1, ddof=1).mean(axis=0)
    between = x.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((n - 1) / n + between / within)


def rank_counts(draws: Floats, n_bins: int) -> Ints:
    """Draws of each chain by rank among those of all, (chains, bins, ...); of one chain its halves.

    Chains that have mixed have about as many in every bin (Vehtari et al. 2021).
    """
    x = draws if len(draws) > 1 else _halves(draws)
    n = x.shape[0] * x.shape[1]
    rank = np.argsort(np.argsort(x.reshape(n, -1), axis=0, kind="stable"), axis=0, kind="stable")
    which = (rank * n_bins // n).reshape(*x.shape[:2], -1)
    counts = (which[:, :, None] == np.arange(n_bins)[:, None]).sum(axis=1)
    return np.asarray(counts.reshape(len(x), n_bins, *draws.shape[2:]))


def _autocovariance(x: Floats) -> Floats:
    n = x.shape[1]
    centred = x - x.mean(axis=1, keepdims=True)
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(centred, size, axis=1)
    return np.fft.irfft(np.abs(spectrum) ** 2, size, axis=1)[:, :n] / n


def ess(draws: Floats) -> Floats:
    """Effective sample size of the mean; ``draws`` is (chains, draws, ...)."""
    x = _halves(draws)
    chains, n = x.shape[:2]
    flat = x.reshape(chains, n, -1)
    out = np.empty(flat.shape[2])
    for k in range(flat.shape[2]):  # one parameter at a time: the transform of all would be large
        out[k] = _ess_one(flat[:, :, k])
    return out.reshape(draws.shape[2:])


def _ess_one(x: Floats) -> float:
    chains, n = x.shape
    acov = _autocovariance(x)
    within = acov[:, 0].mean() * n / (n - 1)
    total = within * (n - 1) / n + x.mean(axis=1).var(ddof=1)
    if not total > 0.0:
        return float("nan")
    rho = 1.0 - (within - acov.mean(axis=0) * n / (n - 1)) / total
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
    end = int(np.argmax(pairs < 0.0)) if (pairs < 0.0).any() else pairs.size
    tau = -1.0 + 2.0 * np.minimum.accumulate(pairs[:end]).sum()
    return float(chains * n / max(tau, 1.0 / np.log10(chains * n)))
