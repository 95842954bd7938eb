"""Latent regression: standard errors of terms with few persons, and what skewed ability does.

    python tests/benchmarks/latent_regression.py [--repeat 150] [dummy | weighted | groups | skewed]

``dummy``, ``weighted`` and ``groups``: 400 persons, 20 items known.  By number of persons of the
term: bias and SD of its estimates, median standard error over that SD, coverage of 95% intervals
and share without a standard error (of a coefficient; of mean and SD of a group); about half a
minute a row.  ``skewed``: 40,000 persons, residuals exponential (skewness 2, SD .8): bias of
coefficients and residual SD, of means and SDs of two groups, by number of items.
"""

import argparse
import warnings

import numpy as np

import irt_dask as irt
from irt_dask.engine import dataset
from irt_dask.errors import IrtDaskWarning

PARTS = ("dummy", "weighted", "groups", "skewed")
N = 400


def items_of(rng, m):
    a, b = 1.1 * np.exp(rng.normal(0, 0.3, m)), rng.normal(0, 1, m)
    ids = tuple(map(str, range(m)))
    data = {"item_discrimination": a, "item_intercept": -a * b}
    return a, b, dataset(data, item_id=ids, attrs={"model": "2pl"})


def scored(rng, theta, known, persons, prior):
    a, b, items = known
    y = rng.random((theta.size, a.size)) < 1 / (1 + np.exp(-a * (theta[:, None] - b)))
    r = irt.from_array(y.astype(np.int8), persons=persons)
    return irt.score(r, items, prior=prior, progress=False)


def few(part, repeat):
    rng = np.random.default_rng(7)
    known = items_of(rng, 20)
    sizes = (5, 10, 20, 50) if part == "groups" else (1, 2, 5, 20)
    print(f"{part}: persons  bias  SD  SE / SD  coverage  no SE")
    for n in sizes:
        estimates, errors = [], []
        x = (np.arange(N) < n).astype(float)
        for _ in range(repeat):
            if part == "groups":
                persons = {"group": np.where(x > 0, "a", "b")}
                out = scored(rng, rng.normal(size=N), known, persons, "groups")
                names, truth = ("group_mean", "group_sd"), [0.0, 1.0]
                estimates.append([out[v].values[0] for v in names])
                errors.append([out[f"{v}_se"].values[0] for v in names])
                continue
            z, truth = rng.normal(size=N), [0.3]
            more = {"weight": rng.uniform(0.5, 2.0, N)} if part == "weighted" else {}
            theta = 0.3 * x + 0.4 * z + rng.normal(0, 0.8, N)
            out = scored(rng, theta, known, {"x": x, "z": z} | more, ["x", "z"])
            estimates.append([out["regression_coefficient"].values[1]])
            errors.append([out["regression_coefficient_se"].values[1]])
        e, se = np.array(estimates), np.array(errors)
        columns = zip(
            e.mean(0) - truth,
            e.std(0),
            np.nanmedian(se, axis=0) / e.std(0),
            (np.abs(e - truth) < 1.96 * se).mean(0),
            np.isnan(se).mean(0),
            strict=True,
        )
        for row in columns:
            print(f"{n:5d}  " + "  ".join(f"{v:7.3f}" for v in row), flush=True)


def skewed():
    rng = np.random.default_rng(3)
    n, truth = 40_000, (0.5, 0.5, 0.8, -0.25, 0.25, 0.89**0.5, 0.89**0.5)
    print("skewed: items  dummy  normal  residual SD  means  SDs")
    for m in (5, 10, 20, 40):
        known = items_of(rng, m)
        x, z = (np.arange(n) % 2).astype(float), rng.normal(size=n)
        theta = -0.25 + 0.5 * x + 0.5 * z + 0.8 * (rng.exponential(1, n) - 1)
        persons = {"x": x, "z": z, "group": np.where(x > 0, "b", "a")}
        one = scored(rng, theta, known, persons, ["x", "z"])
        two = scored(rng, theta, known, persons, "groups")
        found = [*one["regression_coefficient"].values[1:], float(one["residual_sd"])]
        found += [*two["group_mean"].values, *two["group_sd"].values]
        print(f"{m:5d}  " + "  ".join(f"{v:6.3f}" for v in np.subtract(found, truth)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=150)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=PARTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", IrtDaskWarning)
    for part in options.parts:
        if part == "skewed":
            skewed()
        else:
            few(part, options.repeat)


if __name__ == "__main__":
    main()
