"""Wrong keys among a benchmark's questions: how many are found, and how many of those are right.

    python tests/benchmarks/broken_questions.py [--sets 100] [--questions 200]

Simulated: slopes of .8 and more (.8 + a gamma variable of mean .6), shares right from .1 to .9, the
keys of 5% of the questions turned round; 40, 80 and 200 models.  Each data set is fitted with a
learned prior and slopes of any sign, and ``suspect_items`` names questions at an expected share of
false ones of .05.  Shown are the share of wrong keys found, the share of false ones among those
named (0 where none is), and in how many data sets one was false.  ``flat`` has no wrong key, and
three questions in ten with slopes from 0 to .1: every one named is false.  ``flat and turned`` has
both.  ``plain`` columns are what ``P = Phi(-a / se)`` of the same fit would do.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from results import Table
from scipy.stats import norm

import irt_dask as irt
from irt_dask.errors import IrtDaskWarning
from irt_dask.evaluate.slope_signs import discoveries

FDR = 0.05
KINDS = {"turned": (0.05, 0.0), "flat": (0.0, 0.3), "flat and turned": (0.05, 0.3)}


def simulated(seed, n_models, m, turned, flat):
    """Answers, and which keys are wrong."""
    rng = np.random.default_rng([seed, n_models])
    a = 0.8 + rng.gamma(2.0, 0.3, m)
    low = rng.random(m) < flat
    a[low] = rng.uniform(0.0, 0.1, low.sum())
    share = rng.uniform(0.1, 0.9, m)
    d = np.log(share / (1.0 - share)) * np.sqrt(1.0 + 0.35 * a**2)
    theta = rng.standard_normal((n_models, 1))
    y = (rng.random((n_models, m)) < 1.0 / (1.0 + np.exp(-(a * theta + d)))).astype(np.int8)
    wrong = (rng.random(m) < turned) & ~low
    y[:, wrong] = 1 - y[:, wrong]
    return y, wrong


def counted(named, wrong):
    """Wrong keys found, questions named, and false ones among them."""
    return (named & wrong).sum(), named.sum(), (named & ~wrong).sum()


def one(seed, n_models, m, turned, flat):
    """Counts of a data set, and of the plain rule; wrong keys; questions that misfit."""
    y, wrong = simulated(seed, n_models, m, turned, flat)
    fit = irt.fit_marginal(y, prior="empirical", positive="none", standard_errors=True)
    found = irt.suspect_items(y, fit, fdr=FDR)
    words = found["item_suspicion"].values
    named = np.array(["negative_slope" in w for w in words])
    z = fit["item_discrimination"] / fit["item_discrimination_se"]
    plain = discoveries(norm.cdf(-z.values), FDR)[1]
    return [*counted(named, wrong), *counted(plain, wrong), wrong.sum(), found.attrs["n_misfit"]]


def summary(rows):
    """One row of what is printed."""
    x = np.array(rows, dtype=float)
    some = x[x[:, 6] > 0]
    out = {}
    for name, k in (("", 0), ("plain_", 3)):
        out[f"{name}recall"] = some[:, k].sum() / some[:, 6].sum() if len(some) else np.nan
        out[f"{name}false_share"] = (x[:, k + 2] / np.maximum(x[:, k + 1], 1)).mean()
        out[f"{name}sets_with_false"] = (x[:, k + 2] > 0).mean()
    return out | {"misfit": x[:, 7].mean()}


def main() -> None:
    table = Table()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--models", type=int, nargs="+", default=[200, 80, 40])
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS], default=[*KINDS])
    options = parser.parse_args()
    warnings.simplefilter("ignore", IrtDaskWarning)
    with table:
        for kind in options.kinds:
            how = KINDS[kind]
            for n in options.models:
                start = time.perf_counter()
                rows = [one(seed, n, options.questions, *how) for seed in range(options.sets)]
                seconds = time.perf_counter() - start
                table.add(kind=kind, models=n, sets=len(rows), **summary(rows), seconds=seconds)


if __name__ == "__main__":
    main()
