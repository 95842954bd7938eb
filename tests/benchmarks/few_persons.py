"""Few persons, many items: learned priors against fixed ones, by responses that were held out.

    python tests/benchmarks/few_persons.py TABLE.csv.gz [...] [--splits 10] [--draws 500]

A table has a row for each person (model) and a column for each item, all 0 or 1; of each person's
responses a fifth, drawn anew for each split, is held out.  Shown for each prior: log-likelihood,
Brier score and AUC of the held-out responses, each predicted from the person's others, and the
paired difference of the log-likelihood from the fixed prior's with its standard error over splits.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import rankdata

import irt_dask as irt
from irt_dask.errors import IrtDaskWarning

HELD_OUT = 0.2
#: Plausible values of each person, under as many draws of the items.
VALUES = 100


def posterior(y, draws, **options):
    """Probabilities of all responses, averaged over draws of items and abilities."""
    responses = irt.from_array(y)
    fit = irt.fit_bayes(responses, n_draws=draws, n_warmup=300, n_chains=2, seed=1, **options)
    scores = irt.score(responses, fit, n_plausible=VALUES, seed=2)
    theta = scores["person_plausible_value"].values
    used = (2 * np.arange(VALUES) + 1) * fit.sizes["draw"] // (2 * VALUES)
    a, d = (fit[f"item_{k}_draw"].values[used] for k in ("discrimination", "intercept"))
    p = np.zeros(y.shape)
    for r in range(VALUES):
        p += expit(theta[:, r, None] * a[r] + d[r]) / VALUES
    return p


def empirical(y, draws):
    """Probabilities at the items' modes, averaged over abilities."""
    responses = irt.from_array(y)
    fit = irt.fit_marginal(responses, prior="empirical", standard_errors=False)
    theta = irt.score(responses, fit, n_plausible=VALUES, seed=2)["person_plausible_value"].values
    a, d = (fit[f"item_{k}"].values for k in ("discrimination", "intercept"))
    return np.mean([expit(t[:, None] * a + d) for t in theta.T], axis=0)


WAYS = {
    "fixed": lambda y, draws: posterior(y, draws, prior=irt.ItemPrior()),
    "hierarchical": posterior,
    "hierarchical, signed": lambda y, draws: posterior(y, draws, positive="none"),
    "empirical, marginal": empirical,
}


def measures(y, p):
    """Mean log-likelihood, Brier score and area under the curve."""
    n = y.sum()
    area = (rankdata(p)[y == 1].sum() - n * (n + 1) / 2) / (n * (y.size - n))
    return np.log(np.where(y == 1, p, 1.0 - p)).mean(), ((y - p) ** 2).mean(), area


def table(path, splits, draws):
    """Measures of each way, by split."""
    y = pd.read_csv(path, index_col=0).to_numpy().astype(np.int8)
    found = {name: [] for name in WAYS}
    seconds = dict.fromkeys(WAYS, 0.0)
    for split in range(splits):
        held = np.random.default_rng(split).random(y.shape) < HELD_OUT
        train = np.where(held, -1, y).astype(np.int8)
        for name, way in WAYS.items():
            began = time.perf_counter()
            found[name].append(measures(y[held], way(train, draws)[held]))
            seconds[name] += (time.perf_counter() - began) / splits
    print(f"\n{path}: {y.shape[0]} x {y.shape[1]}, {splits} splits")
    print(f"{'prior':22}{'log-lik.':>10}{'Brier':>8}{'AUC':>8}{'gain':>10}{'(SE)':>10}{'s':>8}")
    base = np.array(found["fixed"])[:, 0]
    for name, rows in found.items():
        mean, gain = np.mean(rows, axis=0), np.array(rows)[:, 0] - base
        error = gain.std(ddof=1) / splits**0.5 if splits > 1 else np.nan
        print(f"{name:22}{mean[0]:10.4f}{mean[1]:8.4f}{mean[2]:8.4f}{gain.mean():10.5f}"
              f"{error:10.5f}{seconds[name]:8.0f}", flush=True)  # fmt: skip


def main():
    """Print a table for each file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="+", metavar="TABLE")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--draws", type=int, default=500)
    options = parser.parse_args()
    warnings.simplefilter("ignore", IrtDaskWarning)
    for path in options.tables:
        table(path, options.splits, options.draws)


if __name__ == "__main__":
    main()
