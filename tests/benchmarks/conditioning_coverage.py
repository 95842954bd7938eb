"""Bias and coverage of tables made of plausible values under a conditioning model.

    python tests/benchmarks/conditioning_coverage.py [--sets 100] [--unconditioned]
    python tests/benchmarks/conditioning_coverage.py --many-components [--sets 100]

75 items of three domains (2PL, 3PL, GPCM of three categories) in five booklets of 30, residual
correlations of .8; 8 groups of 500 persons with 21 covariates (41 terms), or one of 500 with 100.
Means, SDs, correlations, gaps and regressions from 10 values with 50 jackknife groups, against the
numbers that the persons were drawn with.  With --unconditioned values know nothing of covariates.
"""

import argparse
import itertools
import warnings
from collections import defaultdict

import numpy as np
import pandas as pd
import xarray as xr
from results import Table

import irt_dask as irt

DOMAINS, ITEMS, GROUPS, SIZE, REPLICATES = ("maths", "reading", "science"), 75, 8, 500, 50
RNG = np.random.default_rng(1)
A, D, OF = RNG.uniform(0.7, 1.6, ITEMS), RNG.normal(size=ITEMS), np.arange(ITEMS) % 3
STEPS = RNG.random(ITEMS) < 0.3  # three categories
GUESSING = np.where(~STEPS & (RNG.random(ITEMS) < 0.3), 0.2, 0.0)
STEP = np.where(STEPS[:, None], np.stack([D + 0.5, 2.0 * D - 0.3], axis=1), np.nan)
IDS = [f"i{j}" for j in range(ITEMS)]
RESIDUAL = 0.6 * (0.8 + 0.2 * np.eye(3))
MEAN = 0.3 * RNG.normal(size=(GROUPS, 3))
OF_X, OF_SEX = 0.12 * RNG.normal(size=(10, 3)), np.array([0.3, -0.2, 0.1])
OF_C = 0.15 * RNG.normal(size=(10, 4, 3))
OF_C -= OF_C.mean(axis=1, keepdims=True)
OF_MANY = np.zeros((100, 3))
OF_MANY[:20] = 0.15 * RNG.normal(size=(20, 3))
BANK = xr.Dataset(
    {
        "item_discrimination": ("items", A),
        "item_intercept": ("items", np.where(STEPS, np.nan, D)),
        "item_guessing": ("items", GUESSING),
        "item_model": ("items", np.where(STEPS, "gpcm", np.where(GUESSING > 0.0, "3pl", "2pl"))),
        "item_n_categories": ("items", np.where(STEPS, 3, 2)),
        "item_step_intercept": (("items", "steps"), STEP),
    },
    coords={"item_id": ("items", IDS)},
    attrs={"model": "by item"},
)


def respond(rng, theta):
    z = A * theta[:, OF]
    p = GUESSING + (1.0 - GUESSING) / (1.0 + np.exp(-(z + D)))
    y = (rng.random(z.shape) < p).astype(np.int8)
    for j in np.flatnonzero(STEPS):
        log = np.stack([np.zeros(len(z)), z[:, j] + STEP[j, 0], 2.0 * z[:, j] + STEP[j, 1]], axis=1)
        share = np.exp(log).cumsum(axis=1) / np.exp(log).sum(axis=1, keepdims=True)
        y[:, j] = (rng.random(len(z))[:, None] > share[:, :2]).sum(axis=1)
    booklet, cluster = rng.integers(0, 5, len(y))[:, None], np.arange(ITEMS) // 15
    y[(cluster != booklet) & (cluster != (booklet + 1) % 5)] = -1
    return y


def several_groups(rng):
    """Persons, a formula, their abilities, what explains abilities, and terms of a regression."""
    n = GROUPS * SIZE
    group, sex = np.repeat(np.arange(GROUPS), SIZE), rng.integers(0, 2, n).astype(float)
    x, codes = rng.normal(size=(n, 10)), rng.integers(0, 4, (n, 10))
    theta = MEAN[group] + sex[:, None] * OF_SEX + x @ OF_X
    theta += sum(OF_C[k][codes[:, k]] for k in range(10))
    persons = {"group": [f"g{k}" for k in group], "sex": sex}
    persons |= {f"x{k}": x[:, k] for k in range(10)}
    persons |= {f"c{k}": codes[:, k].astype(float) for k in range(10)}
    formula = "sex + " + " + ".join(f"x{k} + C(c{k})" for k in range(10))
    explained = 0.25 * np.outer(OF_SEX, OF_SEX) + OF_X.T @ OF_X
    explained += sum(c.T @ c / 4.0 for c in OF_C)
    terms = {"sex": OF_SEX, "x0": OF_X[0], "x1": OF_X[1]}
    terms |= {f"C(c0)[T.{k}]": OF_C[0, k] - OF_C[0, 0] for k in (1, 2, 3)}
    means = {f"g{k}": MEAN[k] + 0.5 * OF_SEX for k in range(GROUPS)}
    return pd.DataFrame(persons), formula, theta, explained, terms, means


def one_group(rng):
    x = rng.normal(size=(SIZE, 100))
    persons = pd.DataFrame({"group": "g0", **{f"x{k}": x[:, k] for k in range(100)}})
    formula = " + ".join(f"x{k}" for k in range(100))
    terms = {f"x{k}": OF_MANY[k] for k in (0, 1, 30)}
    return persons, formula, x @ OF_MANY, OF_MANY.T @ OF_MANY, terms, {"g0": np.zeros(3)}


def estimates(seed, options):
    """Kind and name of each statistic, truth, estimate, standard error and interval."""
    rng = np.random.default_rng([9, seed])
    made = one_group(rng) if options.many_components else several_groups(rng)
    persons, formula, theta, explained, terms, means = made
    n = len(persons)
    theta = theta + rng.multivariate_normal(np.zeros(3), RESIDUAL, n)
    responses = irt.from_array(
        respond(rng, theta), item_id=IDS, persons=persons,
        categories={IDS[j]: 3 for j in np.flatnonzero(STEPS)},
    )  # fmt: skip
    population = irt.fit_population(
        responses, BANK, covariates=None if options.unconditioned else formula,
        n_components=None if options.unconditioned or options.many_components else 0.99,
        domains={name: IDS[k::3] for k, name in enumerate(DOMAINS)},
    )  # fmt: skip
    scores = irt.score(responses, BANK, prior=population, n_plausible=10, seed=seed)
    values = scores["person_domain_plausible_value"].values
    columns = {f"pv{m + 1}_{name}": values[:, m, k]
               for m in range(10) for k, name in enumerate(DOMAINS)}  # fmt: skip
    of = rng.permutation(n) % REPLICATES
    left = REPLICATES / (REPLICATES - 1.0)
    columns |= {f"w{r}": np.where(of == r, 0.0, left) for r in range(REPLICATES)}
    table = pd.concat([persons, pd.DataFrame(columns)], axis=1)
    design = irt.Replicates("jk1", "w*")
    variables = {name: f"pv*_{name}" for name in DOMAINS}
    total = explained + RESIDUAL
    root = np.sqrt(np.diag(total))

    def row(kind, name, truth, t):
        return kind, name, truth, t["estimate"], t["se"], t["lower"], t["upper"]

    tabled = irt.tabulate(
        table, variables, by="group", replicates=design, statistics=("mean", "sd", "correlation")
    )
    for _, t in tabled.iterrows():
        at = [DOMAINS.index(x) for x in t["variable"].split(" with ")]
        truth = {
            "mean": lambda at=at, t=t: means[t["group"]][at[0]],
            "sd": lambda at=at: root[at[0]],
            "correlation": lambda at=at: total[at[0], at[1]] / root[at[0]] / root[at[1]],
        }[t["statistic"]]()
        yield row(t["statistic"], (t["variable"], t["group"]), truth, t)
    if not options.many_components:
        gaps = irt.tabulate(
            table, variables, by=["group", "sex"], replicates=design, statistics="mean", gaps="sex"
        )
        for _, t in gaps[gaps["row"] == "gap"].iterrows():
            truth = OF_SEX[DOMAINS.index(t["variable"])]
            yield row("gap", (t["variable"], t["group"]), truth, t)
    right = "x0 + x1 + x30" if options.many_components else "sex + x0 + x1 + C(c0)"
    for k, name in enumerate(DOMAINS):
        found = irt.regress(table, f"pv*_{name} ~ {right}", replicates=design)
        for _, t in found[found["term"].isin(list(terms))].iterrows():
            yield row("regression", (name, t["term"]), terms[t["term"]][k], t)


def main():
    table = Table()
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--unconditioned", action="store_true")
    parser.add_argument("--many-components", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = defaultdict(list)
    for seed in range(options.first, options.first + options.sets):
        for kind, name, *numbers in estimates(seed, options):
            found[kind, name].append(numbers)
    with table:
        for kind, of in itertools.groupby(sorted(found), key=lambda key: key[0]):
            each = np.array([found[key] for key in of])  # (statistics, sets, numbers)
            truth, estimate, se, lower, upper = np.moveaxis(each, -1, 0)
            error = estimate - truth
            z = error.mean(axis=1) / (error.std(axis=1, ddof=1) / np.sqrt(error.shape[1]))
            table.add(
                statistic=kind, statistics=len(z), sets=error.shape[1],
                inside=float(((lower <= truth) & (truth <= upper)).mean()),
                bias=float(error.mean()), beyond_2=float((np.abs(z) > 2.0).mean()),
                largest_z=float(np.abs(z).max()),
                se_over_sd=float((np.sqrt((se**2).mean(1)) / error.std(axis=1, ddof=1)).mean()),
            )  # fmt: skip


if __name__ == "__main__":
    main()
