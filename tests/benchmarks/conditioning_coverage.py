"""Bias and coverage of tables made of plausible values under a conditioning model.

    python tests/benchmarks/conditioning_coverage.py [--sets 100] [--groups 8] [--persons 500]
                                                     [--large] [--unconditioned] [--keep FILE]
    python tests/benchmarks/conditioning_coverage.py --many-components [--sets 100]

75 items of three domains (2PL, 3PL, GPCM of three categories) in five booklets of 30, residual
correlations of .8; groups of so many persons each with 21 covariates (41 terms), or one of 500 with
100.  --large has 150 items in five booklets of 60, and 40 covariates (60 terms).  Means, SDs,
correlations, gaps and regressions from 10 values with 50 jackknife groups, against the numbers that
the persons were drawn with.  With --unconditioned values know nothing of covariates.

Seeds are --first and those after it.  --keep appends a line for each data set; runs that share a
file are one table, which --sets 0 prints.
"""

import argparse
import itertools
import json
import warnings
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from results import Table

import irt_dask as irt

DOMAINS, REPLICATES = ("maths", "reading", "science"), 50
RESIDUAL = 0.6 * (0.8 + 0.2 * np.eye(3))
WHOLE = 20_000  # persons whose answers are simulated at once


class Items:
    """A mixed bank: three domains in turn, in five booklets of two fifths."""

    def __init__(self, rng, n):
        self.n, self.a, self.d = n, rng.uniform(0.7, 1.6, n), rng.normal(size=n)
        self.steps = rng.random(n) < 0.3  # three categories
        self.c = np.where(~self.steps & (rng.random(n) < 0.3), 0.2, 0.0)
        both = np.stack([self.d + 0.5, 2.0 * self.d - 0.3], axis=1)
        self.step = np.where(self.steps[:, None], both, np.nan)
        self.ids = [f"i{j}" for j in range(n)]
        self.categories = {self.ids[j]: 3 for j in np.flatnonzero(self.steps)}
        self.domains = {name: self.ids[k::3] for k, name in enumerate(DOMAINS)}
        model = np.where(self.steps, "gpcm", np.where(self.c > 0.0, "3pl", "2pl"))
        self.bank = xr.Dataset(
            {
                "item_discrimination": ("items", self.a),
                "item_intercept": ("items", np.where(self.steps, np.nan, self.d)),
                "item_guessing": ("items", self.c),
                "item_model": ("items", model),
                "item_n_categories": ("items", np.where(self.steps, 3, 2)),
                "item_step_intercept": (("items", "steps"), self.step),
            },
            coords={"item_id": ("items", self.ids)},
            attrs={"model": "by item"},
        )

    def answers(self, rng, theta):
        """Codes of persons with these abilities, (persons, items)."""
        z = self.a * theta[:, np.arange(self.n) % 3]
        p = self.c + (1.0 - self.c) / (1.0 + np.exp(-(z + self.d)))
        y = (rng.random(z.shape) < p).astype(np.int8)
        for j in np.flatnonzero(self.steps):
            one, two = z[:, j] + self.step[j, 0], 2.0 * z[:, j] + self.step[j, 1]
            log = np.stack([np.zeros(len(z)), one, two], axis=1)
            share = np.exp(log).cumsum(axis=1) / np.exp(log).sum(axis=1, keepdims=True)
            y[:, j] = (rng.random(len(z))[:, None] > share[:, :2]).sum(axis=1)
        booklet, cluster = rng.integers(0, 5, len(y))[:, None], np.arange(self.n) // (self.n // 5)
        y[(cluster != booklet) & (cluster != (booklet + 1) % 5)] = -1
        return y


@dataclass
class Drawn:
    """Persons, what explains them, and what is true of the population that they are drawn from."""

    persons: pd.DataFrame
    formula: str
    predicted: np.ndarray  # (persons, domains)
    explained: np.ndarray  # covariance of what is predicted
    terms: dict  # of the regression
    right: str  # its formula
    means: dict


class SeveralGroups:
    """Groups with means of their own and the same effects of 21 or 40 covariates."""

    def __init__(self, rng, groups, size, numbers):
        self.groups, self.size = groups, size
        self.mean, self.of_x = 0.3 * rng.normal(size=(groups, 3)), 0.12 * rng.normal(size=(10, 3))
        self.of_sex, self.of_c = np.array([0.3, -0.2, 0.1]), 0.15 * rng.normal(size=(10, 4, 3))
        self.of_c -= self.of_c.mean(axis=1, keepdims=True)
        if numbers > 10:
            more = 0.06 * rng.normal(size=(numbers - 10, 3))
            self.of_x = np.concatenate([self.of_x, more])

    def draw(self, rng):
        """A sample."""
        n, k = self.groups * self.size, len(self.of_x)
        group = np.repeat(np.arange(self.groups), self.size)
        sex = rng.integers(0, 2, n).astype(float)
        x, codes = rng.normal(size=(n, k)), rng.integers(0, 4, (n, 10))
        theta = self.mean[group] + sex[:, None] * self.of_sex + x @ self.of_x
        theta += sum(self.of_c[c][codes[:, c]] for c in range(10))
        persons = {"group": [f"g{g:02d}" for g in group], "sex": sex}
        persons |= {f"x{c}": x[:, c] for c in range(k)}
        persons |= {f"c{c}": codes[:, c].astype(float) for c in range(10)}
        names = [f"x{c}" for c in range(k)] + [f"C(c{c})" for c in range(10)]
        explained = 0.25 * np.outer(self.of_sex, self.of_sex) + self.of_x.T @ self.of_x
        explained += sum(c.T @ c / 4.0 for c in self.of_c)
        terms = {"sex": self.of_sex, "x0": self.of_x[0], "x1": self.of_x[1]}
        terms |= {f"C(c0)[T.{c}]": self.of_c[0, c] - self.of_c[0, 0] for c in (1, 2, 3)}
        means = {f"g{g:02d}": m + 0.5 * self.of_sex for g, m in enumerate(self.mean)}
        return Drawn(
            pd.DataFrame(persons), " + ".join(["sex", *names]), theta, explained, terms,
            "sex + x0 + x1 + C(c0)", means,
        )  # fmt: skip


class ManyComponents:
    """One group with 100 covariates, of which 20 have an effect."""

    def __init__(self, rng, size):
        self.size, self.of_x = size, np.zeros((100, 3))
        self.of_x[:20] = 0.15 * rng.normal(size=(20, 3))

    def draw(self, rng):
        """A sample."""
        x = rng.normal(size=(self.size, 100))
        persons = pd.DataFrame({"group": "g0", **{f"x{k}": x[:, k] for k in range(100)}})
        terms = {f"x{k}": self.of_x[k] for k in (0, 1, 30)}
        return Drawn(
            persons, " + ".join(f"x{k}" for k in range(100)), x @ self.of_x,
            self.of_x.T @ self.of_x, terms, "x0 + x1 + x30", {"g0": np.zeros(3)},
        )  # fmt: skip


def values(seed, items, drawn, rng, options):
    """The persons' table with plausible values and replicate weights."""
    n = len(drawn.persons)
    theta = drawn.predicted + rng.multivariate_normal(np.zeros(3), RESIDUAL, n)
    answers = [items.answers(rng, theta[k : k + WHOLE]) for k in range(0, n, WHOLE)]
    responses = irt.from_array(
        np.concatenate(answers), item_id=items.ids, persons=drawn.persons,
        categories=items.categories,
    )  # fmt: skip
    population = irt.fit_population(
        responses, items.bank, covariates=None if options.unconditioned else drawn.formula,
        n_components=None if options.unconditioned or options.many_components else 0.99,
        domains=items.domains,
    )  # fmt: skip
    scores = irt.score(responses, items.bank, prior=population, n_plausible=10, seed=seed)
    of = scores["person_domain_plausible_value"].values
    columns = {
        f"pv{m + 1}_{name}": of[:, m, k] for m in range(10) for k, name in enumerate(DOMAINS)
    }
    left_out, left = rng.permutation(n) % REPLICATES, REPLICATES / (REPLICATES - 1.0)
    columns |= {f"w{r}": np.where(left_out == r, 0.0, left) for r in range(REPLICATES)}
    return pd.concat([drawn.persons, pd.DataFrame(columns)], axis=1)


def estimates(seed, items, population, options):
    """Kind and name of each statistic, truth, estimate, standard error and interval."""
    rng = np.random.default_rng([9, seed])
    drawn = population.draw(rng)
    table = values(seed, items, drawn, rng, options)
    design, variables = irt.Replicates("jk1", "w*"), {name: f"pv*_{name}" for name in DOMAINS}
    total = drawn.explained + RESIDUAL
    root = np.sqrt(np.diag(total))

    def row(kind, name, truth, t):
        return kind, name, [float(x) for x in (truth, *t[["estimate", "se", "lower", "upper"]])]

    tabled = irt.tabulate(
        table, variables, by="group", replicates=design, statistics=("mean", "sd", "correlation")
    )
    for _, t in tabled.iterrows():
        at = [DOMAINS.index(x) for x in t["variable"].split(" with ")]
        truth = {
            "mean": lambda at=at, t=t: drawn.means[t["group"]][at[0]],
            "sd": lambda at=at: root[at[0]],
            "correlation": lambda at=at: total[at[0], at[1]] / root[at[0]] / root[at[1]],
        }[t["statistic"]]()
        yield row(t["statistic"], f"{t['variable']} {t['group']}", truth, t)
    if not options.many_components:
        gaps = irt.tabulate(
            table, variables, by=["group", "sex"], replicates=design, statistics="mean", gaps="sex"
        )
        for _, t in gaps[gaps["row"] == "gap"].iterrows():
            truth = population.of_sex[DOMAINS.index(t["variable"])]
            yield row("gap", f"{t['variable']} {t['group']}", truth, t)
    for k, name in enumerate(DOMAINS):
        found = irt.regress(table, f"pv*_{name} ~ {drawn.right}", replicates=design)
        for _, t in found[found["term"].isin(list(drawn.terms))].iterrows():
            yield row("regression", f"{name} {t['term']}", drawn.terms[t["term"]][k], t)


def added(rows, kind, each):
    """Rows of the table: of (statistics, sets, numbers), of one set without spreads."""
    truth, estimate, se, lower, upper = np.moveaxis(each, -1, 0)
    error, sets = estimate - truth, each.shape[1]
    more = {}
    if sets > 1:
        sd = error.std(axis=1, ddof=1)
        z = np.abs(error.mean(axis=1) / (sd / np.sqrt(sets)))
        more = {
            "beyond_2": float((z > 2.0).mean()), "largest_z": float(z.max()),
            "se_over_sd": float((np.sqrt((se**2).mean(1)) / sd).mean()),
        }  # fmt: skip
    inside = float(((lower <= truth) & (truth <= upper)).mean())
    rows.add(statistic=kind, statistics=len(each), sets=sets, inside=inside,
             bias=float(error.mean()), bias_over_se=float((error / se).mean()), **more)  # fmt: skip


def main():
    rows = Table()
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--persons", type=int, default=500)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--unconditioned", action="store_true")
    parser.add_argument("--many-components", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(1)
    items = Items(rng, 150 if options.large else 75)
    population = SeveralGroups(rng, options.groups, options.persons, 29 if options.large else 10)
    if options.many_components:
        population = ManyComponents(rng, options.persons)
    sets = []
    for seed in range(options.first, options.first + options.sets):
        sets.append(list(estimates(seed, items, population, options)))
        if options.keep:
            with open(options.keep, "a") as file:
                file.write(json.dumps(sets[-1]) + "\n")
    if options.keep:
        sets = [json.loads(line) for line in options.keep.read_text().splitlines()]
    found = defaultdict(list)
    for kind, name, numbers in itertools.chain.from_iterable(sets):
        found[kind, name].append(numbers)
    with rows:
        for kind, of in itertools.groupby(sorted(found), key=lambda key: key[0]):
            added(rows, kind, np.array([found[key] for key in of]))
        if len(sets) > 1:
            added(rows, "all", np.array(list(found.values())))


if __name__ == "__main__":
    main()
