"""Posterior of the 2PL on LSAT section 6, by two algorithms that share nothing with irt_dask.

Priors: ability N(0, 1), discrimination N(1, 1) truncated to positive, intercept N(0, 2^2).

- ``importance``: abilities integrated out by the trapezoidal rule over the 32 response patterns,
  the ten item parameters by self-normalised importance sampling from a multivariate t.
- ``polya_gamma``: the published Gibbs sampler (Polson, Scott and Windle 2013), one PG(1, z) draw
  per response by ``polyagamma`` (Devroye's exact method), continuous abilities, each item's
  (a, d) from its bivariate normal truncated to a > 0.

``python tests/oracles/lsat_posterior.py`` writes ``lsat_posterior.json`` (about 6 minutes on two
cores).
"""

from __future__ import annotations

import json
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri

#: Persons with patterns 00000, 00001, ..., 11111 (Bock and Lieberman 1970, table 1).
# fmt: off
COUNTS = np.array([
    3, 6, 2, 11, 1, 1, 3, 4,
    1, 8, 0, 16, 0, 3, 2, 15,
    10, 29, 14, 81, 3, 28, 15, 80,
    16, 56, 21, 173, 11, 61, 28, 298,
])
# fmt: on
PATTERNS = np.array([[int(c) for c in f"{k:05b}"] for k in range(32)])
PRIOR_A, PRIOR_D = (1.0, 1.0), (0.0, 2.0)
NAMES = [f"{p}{j}" for p in ("a", "d") for j in range(1, 6)]


def log_likelihood(a, d, n_nodes=81, bound=8.0):
    """Marginal log-likelihood of parameters (draws, 5): trapezoidal rule over ability."""
    theta = np.linspace(-bound, bound, n_nodes)
    log_w = -0.5 * theta**2 - 0.5 * math.log(2 * math.pi) + math.log(theta[1] - theta[0])
    z = theta[:, None] * a[:, None, :] + d[:, None, :]
    base = log_w - np.logaddexp(0.0, z).sum(-1)
    log_l = z @ PATTERNS.T + base[:, :, None]
    top = log_l.max(1)
    return (top + np.log(np.exp(log_l - top[:, None]).sum(1))) @ COUNTS


def log_posterior(x):
    """Log posterior density, up to a constant, of x = (log a, d), shape (draws, 10)."""
    u, d = x[:, :5], x[:, 5:]
    a = np.exp(u)
    prior = -0.5 * ((a - PRIOR_A[0]) / PRIOR_A[1]) ** 2 - 0.5 * ((d - PRIOR_D[0]) / PRIOR_D[1]) ** 2
    return log_likelihood(a, d) + (prior + u).sum(1)


def importance(n=2_000_000, seed=1, df=5.0, batch=2000):
    """Means, SDs, correlations and MC errors by importance sampling."""
    rng = np.random.default_rng(seed)
    start = np.r_[np.zeros(5), 2.8, 1.0, 0.25, 1.3, 2.0]
    mode = minimize(lambda x: -log_posterior(x[None])[0], start, method="BFGS").x
    h = 1e-3 * np.eye(10)
    hessian = np.empty((10, 10))
    for i in range(10):
        for j in range(10):
            four = np.stack([mode + s * h[i] + t * h[j] for s in (1, -1) for t in (1, -1)])
            v = log_posterior(four)
            hessian[i, j] = -(v[0] - v[1] - v[2] + v[3]) / 4e-6
    scale = np.linalg.inv(hessian)
    xs, logs = [], []
    for centre, cov in _adapt(rng, mode, scale, df):
        root, inverse = np.linalg.cholesky(cov), np.linalg.inv(cov)
        for _ in range(n // batch):
            e = rng.standard_normal((batch, 10)) @ root.T
            e *= np.sqrt(df / rng.chisquare(df, batch))[:, None]
            log_q = -0.5 * (df + 10) * np.log1p(np.einsum("ni,ij,nj->n", e, inverse, e) / df)
            logs.append(log_posterior(centre + e) - log_q)
            xs.append(centre + e)
    x, log_w = np.concatenate(xs), np.concatenate(logs)
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    values = np.c_[np.exp(x[:, :5]), x[:, 5:]]
    mean = w @ values
    sd = np.sqrt(w @ (values - mean) ** 2)
    # Delta-method errors of self-normalised estimates.
    mean_error = np.sqrt(w**2 @ (values - mean) ** 2)
    sd_error = np.sqrt(w**2 @ ((values - mean) ** 2 - sd**2) ** 2) / (2 * sd)
    return {
        "mean": mean, "sd": sd, "mean_error": mean_error, "sd_error": sd_error,
        "n": n, "effective": 1.0 / (w @ w), "largest_weight": w.max(), "seed": seed,
    }  # fmt: skip


def _adapt(rng, mode, scale, df, n=20_000):
    """One pilot run: centre the proposal at the posterior's mean with its covariance, widened."""
    root = np.linalg.cholesky(1.5 * scale)
    e = rng.standard_normal((n, 10)) @ root.T * np.sqrt(df / rng.chisquare(df, n))[:, None]
    log_q = -0.5 * (df + 10) * np.log1p(((np.linalg.solve(root, e.T)) ** 2).sum(0) / df)
    log_p = np.concatenate([log_posterior(part) for part in np.split(mode + e, 10)])
    w = np.exp(log_p - log_q - (log_p - log_q).max())
    w /= w.sum()
    centre = mode + w @ e
    deviation = mode + e - centre
    yield centre, 1.3 * (w[:, None] * deviation).T @ deviation


def polya_gamma(n_draws, seed, n_warmup=2000):
    """One chain of the Polya-Gamma Gibbs sampler; draws (n_draws, 10) of (a, d)."""
    from polyagamma import random_polyagamma

    rng = np.random.default_rng(seed)
    y = np.repeat(PATTERNS, COUNTS, axis=0).astype(float)
    kappa = y - 0.5
    a, d = np.ones(5), np.array([2.8, 1.0, 0.25, 1.3, 2.0])
    theta = rng.standard_normal(len(y))
    prior_precision = np.diag([1 / PRIOR_A[1] ** 2, 1 / PRIOR_D[1] ** 2])
    prior_rhs = np.array([PRIOR_A[0] / PRIOR_A[1] ** 2, PRIOR_D[0] / PRIOR_D[1] ** 2])
    out = np.empty((n_draws, 10))
    for step in range(-n_warmup, n_draws):
        z = np.outer(theta, a) + d
        if not np.abs(z).max() < 100:
            raise FloatingPointError("|z| beyond the range where polyagamma is exact")
        omega = random_polyagamma(1.0, z, method="devroye", random_state=rng)
        precision = 1.0 + omega @ a**2
        mean = ((kappa - omega * d) @ a) / precision
        theta = mean + rng.standard_normal(len(y)) / np.sqrt(precision)
        s2, s1, s0 = theta**2 @ omega, theta @ omega, omega.sum(0)
        r1, r0 = theta @ kappa, kappa.sum(0)
        for j in range(5):
            q = np.array([[s2[j], s1[j]], [s1[j], s0[j]]]) + prior_precision
            cov = np.linalg.inv(q)
            m = cov @ (np.array([r1[j], r0[j]]) + prior_rhs)
            # a from its normal truncated to a > 0 (inverse distribution function of -a), d given a.
            sd = math.sqrt(cov[0, 0])
            a[j] = m[0] - sd * ndtri(rng.random() * ndtr(m[0] / sd))
            d[j] = (
                m[1] + cov[0, 1] / cov[0, 0] * (a[j] - m[0])
                + rng.standard_normal() / math.sqrt(q[1, 1])
            )  # fmt: skip
        if step >= 0:
            out[step] = np.r_[a, d]
    return out


def _chain_summary(arguments):
    """Batch sums of one chain: means of the draws and of their squares in 100 batches."""
    draws = polya_gamma(*arguments)
    batches = draws.reshape(100, -1, 10)
    return batches.mean(1), (batches**2).mean(1)


def polya_gamma_summary(n_draws=150_000, n_chains=4, seed=100):
    """Means, SDs and batch-means MC errors over chains."""
    with ProcessPoolExecutor(2) as pool:
        parts = list(pool.map(_chain_summary, [(n_draws, seed + c) for c in range(n_chains)]))
    first = np.concatenate([p[0] for p in parts])
    second = np.concatenate([p[1] for p in parts])
    mean = first.mean(0)
    sd = np.sqrt(second.mean(0) - mean**2)
    centred = second - 2 * mean * first + mean**2  # batch means of (x - mean)^2
    k = len(first)
    return {
        "mean": mean, "sd": sd,
        "mean_error": first.std(0, ddof=1) / math.sqrt(k),
        "sd_error": centred.std(0, ddof=1) / math.sqrt(k) / (2 * sd),
        "n": n_draws * n_chains, "chains": n_chains, "seed": seed,
    }  # fmt: skip


def main():
    result = {
        "what": "posterior of (a1..a5, d1..d5), LSAT section 6, 2PL, theta N(0,1), "
        "a N(1,1) truncated to a > 0, d N(0,2^2)",
        "made_by": "python tests/oracles/lsat_posterior.py",
        "names": NAMES,
        "importance": importance(),
        "polya_gamma": polya_gamma_summary(*map(int, sys.argv[1:])),
    }
    x, y = result["importance"], result["polya_gamma"]
    z = (x["mean"] - y["mean"]) / np.hypot(x["mean_error"], y["mean_error"])
    zs = (x["sd"] - y["sd"]) / np.hypot(x["sd_error"], y["sd_error"])
    result["z_of_differences"] = {"mean": z, "sd": zs}
    text = json.dumps(result, indent=1, default=lambda v: np.round(v, 6).tolist())
    Path(__file__).with_suffix(".json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
