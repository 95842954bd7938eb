"""Links of random banks with flat and extreme items, against a search that shares no code.

    python tests/benchmarks/linking.py [--banks 200]

Each pair of banks has 8 to 30 common items on scales theta_a = A theta_b + B, off as after
calibrations of 300 to 3,000 persons, and 1 to 4 items that are flat (a of .001 to .03, b in the
hundreds) or extreme (b beyond 12) in one bank.  The search minimises the criterion of those that
are neither, by Nelder and Mead's method from 20 random starts.  Printed for each method: how often
the search found a lower criterion than ``link`` (by more than 1e-6 of it), the largest excess, and
errors of log A and B, all together and in SEs of their mean, beside those of the search and of
mean-mean links.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from scipy.optimize import minimize

import irt_dask as irt
from irt_dask.engine import dataset

NODES = np.linspace(-5.0, 5.0, 101)
WEIGHT = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()


def bank(a, b):
    data = {"item_discrimination": a, "item_difficulty": b, "item_intercept": -a * b}
    return dataset(data, item_id=tuple(f"i{k}" for k in range(a.size)), attrs={"model": "2pl"})


def noisy(rng, a, b, n):
    """Estimates of n persons: errors of (a, d) from the information under N(0, 1)."""
    out_a, out_b = a.copy(), b.copy()
    for j in range(a.size):
        p = 1.0 / (1.0 + np.exp(-a[j] * (NODES - b[j])))
        x = np.stack([NODES, np.ones_like(NODES)])
        information = n * (x * (WEIGHT * p * (1.0 - p))) @ x.T
        da, dd = np.linalg.cholesky(np.linalg.inv(information)) @ rng.standard_normal(2)
        out_a[j] = max(a[j] + da, 0.15 * a[j])
        out_b[j] = (a[j] * b[j] - dd) / out_a[j]
    return out_a, out_b


def pair(rng):
    m = int(rng.integers(8, 31))
    a, b = np.exp(rng.normal(0.1, 0.3, m)), rng.normal(0.0, 1.0, m)
    scale, shift = float(np.exp(rng.uniform(-0.5, 0.5))), float(rng.uniform(-1.0, 1.0))
    n = int(rng.integers(300, 3001))
    one = [np.array(x) for x in noisy(rng, a, b, n)]
    two = [np.array(x) for x in noisy(rng, a * scale, (b - shift) / scale, n)]
    bad = rng.choice(m, int(rng.integers(1, 5)), replace=False)
    for j in bad:
        which = one if rng.random() < 0.5 else two
        if rng.random() < 0.5:
            which[0][j] = rng.choice([0.001, rng.uniform(0.001, 0.03)])
            which[1][j] = rng.choice([-1.0, 1.0]) * rng.uniform(1.0, 3.0) / which[0][j]
        else:
            which[1][j] = rng.choice([-1.0, 1.0]) * rng.uniform(12.0, 60.0) / np.median(which[0])
    sound = np.setdiff1d(np.arange(m), bad)
    return one, two, scale, shift, sound


def curve(t, a, b):
    return 0.5 * (1.0 + np.tanh(0.5 * a * (t[:, None] - b)))


def criterion(x, one, two, method):
    scale, shift = np.exp(np.clip(x[0], -20, 20)), x[1]
    total = 0.0
    for t, to, (a1, b1), (a2, b2) in (
        (NODES, (NODES - shift) / scale, one, two),
        (NODES, scale * NODES + shift, two, one),
    ):
        e = curve(t, a1, b1) - curve(to, a2, b2)
        e = e.sum(axis=1) ** 2 if method == "stocking-lord" else (e**2).sum(axis=1)
        total += WEIGHT @ e
    return float(total)


def search(rng, one, two, method, starts=20):
    best = None
    for _ in range(starts):
        start = [rng.normal(0.0, 0.7), rng.normal(0.0, 1.5)]
        options = {"xatol": 1e-7, "fatol": 1e-13, "maxiter": 600}
        got = minimize(criterion, start, (one, two, method), "Nelder-Mead", options=options)
        if best is None or got.fun < best.fun:
            best = got
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--banks", type=int, default=200)
    args = parser.parse_args()
    head = (
        "method",
        "worse",
        "excess",
        "RMSE log A",
        "z",
        "RMSE B",
        "z",
        "search A",
        "B",
        "mean-mean A",
        "B",
    )
    print(" | ".join(head))
    for method in ("stocking-lord", "haebara"):
        rng = np.random.default_rng(1)
        worse, excess, ours, theirs, moments = 0, 0.0, [], [], []
        for _ in range(args.banks):
            one, two, scale, shift, sound = pair(rng)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = irt.link(bank(*one), bank(*two), method=method).attrs
                plain = irt.link(bank(*one), bank(*two), method="mean-mean").attrs
            assert got["n_used"] == sound.size, (got["n_used"], sound.size)
            best = search(rng, [x[sound] for x in one], [x[sound] for x in two], method)
            more = got["criterion"] / best.fun - 1.0
            worse += more > 1e-6
            excess = max(excess, more)
            true = np.array([np.log(scale), shift])
            ours.append(np.array([np.log(got["A"]), got["B"]]) - true)
            theirs.append(best.x - true)
            moments.append(np.array([np.log(plain["A"]), plain["B"]]) - true)
        rmse = [np.sqrt(np.mean(np.square(x), axis=0)) for x in (ours, theirs, moments)]
        z = np.mean(ours, axis=0) / (np.std(ours, axis=0) / np.sqrt(len(ours)))
        print(
            f"{method} | {worse} of {args.banks} | {excess:.1e} | {rmse[0][0]:.4f} | {z[0]:.1f} | "
            f"{rmse[0][1]:.4f} | {z[1]:.1f} | {rmse[1][0]:.4f} | {rmse[1][1]:.4f} | "
            f"{rmse[2][0]:.4f} | {rmse[2][1]:.4f}"
        )


if __name__ == "__main__":
    main()
