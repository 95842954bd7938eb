"""Few persons, long blocks of items: what intervals of the general ability hold, and the time.

    python tests/benchmarks/bifactor.py [--persons 40] [--items 50] [--sets 6] [--seed 100]

Simulates persons on six blocks of so many items each (lambda .3, .6, .9, .6, .3, .5; slopes
log-normal, SD .35), fits the testlet model and a 2PL with a learned prior, scores the persons by
both, the testlet model with items taken for known and with draws of them, and prints by data set
and on average: the mean SD, and the share of intervals of +- 1.96 SDs that hold the true ability,
as it is and "among them", that is on the persons' own mean and scale, as a comparison of them needs
it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

import irt_dask as irt
from irt_dask.errors import ItemWarning

NAMES = ("person_ability", "person_ability_sd")
LAMBDA = np.array([0.3, 0.6, 0.9, 0.6, 0.3, 0.5])


def simulated(n_persons: int, n_items: int, seed: int) -> tuple[Any, Any, Any]:
    """Responses, each item's block, and the general ability."""
    rng = np.random.default_rng(seed)
    block = np.repeat(np.arange(LAMBDA.size), n_items)
    a, d = np.exp(rng.normal(0.0, 0.35, block.size)), rng.normal(0.0, 1.3, block.size)
    theta, own = rng.normal(size=n_persons), rng.normal(size=(n_persons, LAMBDA.size))
    z = theta[:, None] * a + own[:, block] * (LAMBDA[block] * a) + d
    return (rng.random(z.shape) < 1.0 / (1.0 + np.exp(-z))).astype(np.int8), block, theta


def held(theta: Any, mean: Any, sd: Any) -> tuple[float, float, float]:
    """Mean SD; shares of intervals that hold the ability, as it is and among the persons."""
    scale = np.polyfit(theta, mean, 1)[0]
    relative = np.abs((mean - mean.mean()) / scale - (theta - theta.mean()))
    return (
        float(sd.mean()), float((np.abs(mean - theta) < 1.96 * sd).mean()),
        float((relative < 1.96 * sd / scale).mean()),
    )  # fmt: skip


def main() -> None:
    """Print a line for each data set, and the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("persons", 40), ("items", 50), ("sets", 6), ("seed", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    warnings.simplefilter("ignore", ItemWarning)  # that some have all right, or all wrong
    rows = []
    for k in range(given.sets):
        y, block, theta = simulated(given.persons, given.items, given.seed + k)
        begun = time.process_time()
        fit = irt.fit_bifactor(y, item_blocks=block)
        seconds = time.process_time() - begun
        scores, drawn = irt.score(y, fit, n_item_draws=0), irt.score(y, fit)
        plain = irt.fit_marginal(y, prior="empirical", standard_errors=False)
        other = irt.score(y, plain)
        rows.append([
            *held(theta, *(scores[v].values[:, 0] for v in NAMES)),
            *held(theta, *(drawn[v].values[:, 0] for v in NAMES)),
            *held(theta, *(other[v].values for v in NAMES)),
        ])  # fmt: skip
        print(
            np.round(rows[-1], 3), fit.attrs["n_iterations"], "iterations", round(seconds, 1), "s"
        )
    print("testlet: SD, held, among them; with draws, and 2PL: the same")
    print(np.round(np.mean(rows, axis=0), 3))


if __name__ == "__main__":
    main()
