"""Few persons, many items: learned priors against fixed ones, by responses that were held out.

    python tests/benchmarks/few_persons.py TABLE.csv.gz [...] [--splits 10] [--draws 500]
    python tests/benchmarks/few_persons.py --simulated SETS [--persons 12 40] [--items 2000]

A table has a row for each person (model) and a column for each item, all 0 or 1, or its rows are
person, item, response; of each person's responses a fifth, drawn anew for each split, is held out.
Shown for each prior: log-likelihood, Brier score and AUC of the held-out responses, each predicted
from the person's others, the paired differences from the first prior's with their standard errors
over splits, and the largest R-hat of two chains.

With ``--simulated`` truth is known: shares of 95% intervals that hold it and errors of slopes, of
data sets of as many persons who find most questions easy; the fixed prior has a tenth of the sets.
Abilities are a sample of N(0, 1), so that its mean and SD are a part of what intervals have to say.
"""

from __future__ import annotations

import argparse
import time
import warnings
from multiprocessing import get_context

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import rankdata

import irt_dask as irt
from irt_dask.errors import EstimationError, IrtDaskWarning

HELD_OUT = 0.2
#: Plausible values of each person, under as many draws of the items.
VALUES = 100
#: Of simulated questions: SD of log slopes, mean and SD of difficulties.
SD_OF_LOG_A, EASY = 0.3, (-1.5, 1.0)


def posterior(y, draws, **options):
    """Probabilities of all responses, averaged over draws of items and abilities; worst R-hat."""
    responses = irt.from_array(y)
    size = {"n_draws": draws, "n_warmup": max(300, draws)}
    fit = irt.fit_bayes(responses, n_chains=2, seed=1, progress=False, **size, **options)
    scores = irt.score(responses, fit, n_plausible=VALUES, seed=2)
    theta = scores["person_plausible_value"].values
    used = (2 * np.arange(VALUES) + 1) * fit.sizes["draw"] // (2 * VALUES)
    a, d = (fit[f"item_{k}_draw"].values[used] for k in ("discrimination", "intercept"))
    p = np.zeros(y.shape)
    for r in range(VALUES):
        p += expit(theta[:, r, None] * a[r] + d[r]) / VALUES
    rhat = max(float(fit[f"item_{k}_rhat"].max()) for k in ("discrimination", "intercept"))
    return p, rhat


def empirical(y, draws):
    """Probabilities at the items' modes, averaged over abilities."""
    responses = irt.from_array(y)
    fit = irt.fit_marginal(responses, prior="empirical", standard_errors=False)
    theta = irt.score(responses, fit, n_plausible=VALUES, seed=2)["person_plausible_value"].values
    a, d = (fit[f"item_{k}"].values for k in ("discrimination", "intercept"))
    return np.mean([expit(t[:, None] * a + d) for t in theta.T], axis=0), np.nan


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


def read(path):
    """Responses (persons, items) of a table, or of rows (person, item, response); -1 is none."""
    table = pd.read_csv(path)
    if list(table.columns) == ["person", "item", "response"]:
        return table.pivot(index="person", columns="item")["response"].fillna(-1).to_numpy(np.int8)
    return table.iloc[:, 1:].to_numpy(np.int8)


def tried(way, y, held, draws):
    """Measures of the responses that are held out, and R-hat; NaN where scores are refused."""
    try:
        p, rhat = way(np.where(held, -1, y).astype(np.int8), draws)
    except EstimationError as error:
        print(f"refused: {error}", flush=True)
        return np.full(4, np.nan)
    return *measures(y[held], p[held]), rhat


def table(path, splits, draws, ways):
    """Measures of each way, by split."""
    y = read(path)
    found = {name: [] for name in ways}
    seconds = dict.fromkeys(ways, 0.0)
    for split in range(splits):
        held = (np.random.default_rng(split).random(y.shape) < HELD_OUT) & (y >= 0)
        for name in ways:
            began = time.perf_counter()
            found[name].append(tried(WAYS[name], y, held, draws))
            seconds[name] += (time.perf_counter() - began) / splits
    print(f"\n{path}: {y.shape[0]} x {y.shape[1]}, {splits} splits")
    print(f"{'prior':22}{'log-lik.':>10}{'Brier':>9}{'AUC':>9}   gains (SE) in these"
          f"{'R-hat':>40}{'s':>6}")  # fmt: skip
    base = np.array(found[ways[0]])[:, :3]
    for name, rows in found.items():
        mean, gain = np.mean(rows, axis=0), np.array(rows)[:, :3] - base
        error = gain.std(axis=0, ddof=1) / splits**0.5 if splits > 1 else np.full(3, np.nan)
        cells = " ".join(
            f"{x:9.5f} ({e:.5f})" for x, e in zip(gain.mean(axis=0), error, strict=True)
        )
        print(f"{name:22}{mean[0]:10.5f}{mean[1]:9.5f}{mean[2]:9.5f} {cells}"
              f"{np.max(rows, axis=0)[3]:6.3f}{seconds[name]:6.0f}", flush=True)  # fmt: skip


def simulated(n, m, seed):
    """Responses of n persons to m questions of which most are easy for them; (a, d) of these."""
    rng = np.random.default_rng((seed, n, m))
    a, b = np.exp(rng.normal(0.0, SD_OF_LOG_A, m)), rng.normal(*EASY, m)
    d = -a * b
    p = expit(np.outer(rng.standard_normal(n), a) + d)
    return (rng.random((n, m)) < p).astype(np.int8), a, d


def of_data_set(task):
    """Whether 95% intervals hold a, d and b, as shares of items; RMSE of a and of log a."""
    n, m, seed, draws, options = task
    warnings.simplefilter("ignore", IrtDaskWarning)
    y, a, d = simulated(n, m, seed)
    fit = irt.fit_bayes(y, n_draws=draws, n_warmup=300, seed=seed, progress=False, **options)
    drawn = [fit[f"item_{k}_draw"].values for k in ("discrimination", "intercept")]
    held = []
    for x, truth in ((drawn[0], a), (drawn[1], d), (-drawn[1] / drawn[0], -d / a)):
        low, high = np.quantile(x, (0.025, 0.975), axis=0)
        held.append(((low < truth) & (truth < high)).mean())
    found = fit["item_discrimination"].values
    return *held, np.mean((found - a) ** 2) ** 0.5, np.mean(np.log(found / a) ** 2) ** 0.5


def coverage(persons, items, sets, draws, jobs):
    """Print coverage and errors of slopes for the learned prior, and for the fixed one."""
    print(f"{'persons':>7} {'prior':>12} {'sets':>5} {'a':>14} {'d':>14} {'b':>14} "
          f"{'RMSE a':>7} {'log a':>6}   95% intervals hold (standard error by sets)")  # fmt: skip
    with get_context("spawn").Pool(jobs) as pool:
        for n in persons:
            for name, options in (("hierarchical", {}), ("fixed", {"prior": irt.ItemPrior()})):
                count = sets if not options else max(2, sets // 10)
                tasks = [(n, items, seed, draws, options) for seed in range(count)]
                x = np.array(pool.map(of_data_set, tasks, chunksize=1))
                mean, error = x.mean(axis=0), x.std(axis=0, ddof=1) / count**0.5
                cells = " ".join(f"{mean[k]:.4f} ({error[k]:.4f})" for k in range(3))
                print(f"{n:>7} {name:>12} {count:>5} {cells} {mean[3]:>7.3f} {mean[4]:>6.3f}",
                      flush=True)  # fmt: skip


def main():
    """Print a table for each file, or one of simulated data."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--priors", nargs="+", choices=WAYS, default=[*WAYS], metavar="PRIOR",
                        help=f"gains are over the first: {', '.join(WAYS)}")  # fmt: skip
    parser.add_argument("--simulated", type=int, metavar="SETS", help="data sets, and no tables")
    parser.add_argument("--persons", type=int, nargs="+", default=[12, 40])
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if bool(options.tables) == bool(options.simulated):
        parser.error("give tables, or --simulated SETS")
    warnings.simplefilter("ignore", IrtDaskWarning)
    if options.simulated:
        o = options
        coverage(o.persons, o.items, o.simulated, o.draws, o.jobs)
    for path in options.tables:
        table(path, options.splits, options.draws, options.priors)


if __name__ == "__main__":
    main()
