"""Coverage of weighted posteriors where weights go with ability: two strata of a population.

    python tests/benchmarks/weights.py [DATA SETS] [SHARDS]

Intervals of (log a, d) should hold what a marginal fit of the whole population finds; "naive" are
those of the same draws before their deviations are carried to the spread of the sample.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np

import irt_dask as irt
from irt_dask.calibrate.bayes import barycenter

N_ITEMS, N = 8, 1200
#: Shares of the strata in the population and in the sample, mean and SD of ability.
STRATA = ((0.9, 0.5, -0.15, 0.85), (0.1, 0.5, 1.35, 0.9))
A = np.exp(np.random.default_rng(0).normal(0.1, 0.3, N_ITEMS))
D = np.random.default_rng(1).normal(0.0, 0.8, N_ITEMS)


def persons(rng: np.random.Generator, n: int, column: int) -> tuple[np.ndarray, np.ndarray]:
    """Responses of n persons with strata in shares of this column, and inverse sampling rates."""
    stratum = rng.choice(len(STRATA), n, p=[s[column] for s in STRATA])
    share, sampled, mean, sd = np.array(STRATA)[stratum].T
    theta = rng.normal(mean, sd)
    y = rng.random((n, N_ITEMS)) < 1.0 / (1.0 + np.exp(-(theta[:, None] * A + D)))
    return y.astype(np.int8), share / sampled


def target() -> np.ndarray:
    """Coordinates (2, items) of the population's items."""
    y, _ = persons(np.random.default_rng(2), 2_000_000, 0)
    fit = irt.fit_marginal(irt.from_array(y), standard_errors=False)
    return np.stack([np.log(fit["item_discrimination"]), fit["item_intercept"]])


def main(n_sets: int, n_shards: int) -> None:
    true, ends = target(), {}
    original = barycenter._spread

    def kept(draws, *rest):
        moved = original(draws, *rest)
        for name, x in (("naive", draws), ("sandwich", moved[0])):
            ends[name] = np.quantile(np.concatenate(x), [0.025, 0.975], axis=0)
        return moved

    barycenter._spread = kept
    inside: dict[str, list[np.ndarray]] = {"naive": [], "sandwich": [], "no weights": []}
    width: list[float] = []
    began = time.perf_counter()
    for k in range(n_sets):
        y, w = persons(np.random.default_rng(1000 + k), N, 1)
        r = irt.from_array(y, persons={"weight": w})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = {"n_shards": n_shards, "n_draws": 500, "n_warmup": 100, "seed": k}
            irt.fit_bayes(r, **options)
            plain = irt.fit_marginal(r.select(weights="ignore"))
        a, se = plain["item_discrimination"].values, plain["item_discrimination_se"].values
        x = np.stack([np.log(a), plain["item_intercept"]])
        se = 1.96 * np.stack([se / a, plain["item_intercept_se"]])
        ends["no weights"] = np.stack([x - se, x + se])
        for name, found in inside.items():
            low, high = ends[name]
            found.append((low < true) & (true < high))
        widths = [np.diff(ends[name], axis=0)[0] for name in ("sandwich", "naive")]
        width.append(float((widths[0] / widths[1]).mean()))
        if k % 20 == 19 or k == n_sets - 1:
            each = {name: np.mean(found, axis=(0, 2)).round(3) for name, found in inside.items()}
            error = np.std(np.mean(inside["sandwich"], axis=(1, 2))) / np.sqrt(k + 1)
            print(f"{k + 1} sets, {time.perf_counter() - began:.0f} s: of log a and of d {each}, "
                  f"error {error:.4f}, widths {np.mean(width):.3f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(*(int(v) for v in (*sys.argv[1:], *["200", "1"][len(sys.argv) - 1 :])))
