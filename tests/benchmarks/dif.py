"""Size of the tests of `dif` by number of persons in the groups, items known, no DIF.

    python tests/benchmarks/dif.py [--tests 6000] [--weighted] [--several] [--shifted] [--jobs 1]
        [--focal N ...] [--json FILE]

Shares of p-values below .05 over items and data sets (`se`: the largest standard error, of means of
data sets): about 15 s a row on one core, with `--shifted` 30 minutes for 10,000 tests.  Slopes are
log-normal (SD .3), difficulties N(0, 1), abilities N(0, 1) and, in the focal group, N(impact, 1).
With `--weighted` persons are drawn with probabilities that fall with ability and vary otherwise,
and have the inverse as weights; with `--several` there are three focal groups, and one test of all.
With `--shifted` six of twenty items are .6 logits easier for the focal group; counted are the
others' tests, with all items as anchors and with those that `anchors="iterate"` finds, and how
often this tells the six.  A data set has random numbers of its own: a row is the same whatever
other rows there are (`--focal`: sizes of focal groups) and in however many processes (`--jobs`).
"""

import argparse
import functools
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from results import Table

import irt_dask as irt
from irt_dask.engine import dataset
from irt_dask.errors import ApproximationWarning

#: Items, reference persons, focal persons, impact.
SETTINGS = (
    *((20, 1000, n, 0) for n in (15, 30, 60, 100, 200, 500, 1000)),
    *((40, 1000, n, 0) for n in (30, 100, 500)),
    *((20, 1000, n, -1) for n in (30, 100, 500)),
    *((20, n, n, 0) for n in (30, 60, 200, 500)),
)
WEIGHTED = (
    *((20, 1000, n, 0) for n in (60, 200, 1000)),
    *((20, 1000, n, -1) for n in (200, 1000)),
    (20, 10000, 10000, 0),
)
SHIFTED = tuple((20, 1000, n, 0) for n in (60, 100, 200, 500, 1000))
SEVERAL = tuple((20, 1000, n, 0) for n in (100, 500))
KINDS = ("uniform", "nonuniform", "joint")


def persons(rng, n, mean, weighted):
    """Abilities and weights of persons; ``weighted`` ones are drawn with unequal probabilities."""
    if not weighted:
        return rng.normal(mean, 1, n), np.ones(n)
    theta = rng.normal(mean, 1, 20 * n)
    w = (1 + 3 / (1 + np.exp(-2 * (theta - mean)))) * rng.uniform(0.5, 1.5, theta.size)
    drawn = np.flatnonzero(rng.random(theta.size) < 0.5 / w)[:n]
    assert drawn.size == n
    return theta[drawn], w[drawn]


def low_p_values(seed, m, sizes, impact, weighted, shifted=0):
    """Whether each p-value of a simulated data set is below .05, (kinds, tests).

    Where the first items are ``shifted``, those of the others by anchors, and of these uniform.
    """
    warnings.simplefilter("ignore", ApproximationWarning)
    rng = np.random.default_rng(seed)
    a, b = 1.1 * np.exp(rng.normal(0, 0.3, m)), rng.normal(0, 1, m)
    found = [persons(rng, n, impact * (k > 0), weighted) for k, n in enumerate(sizes)]
    theta, weight = map(np.concatenate, zip(*found, strict=True))
    moved = np.where(np.arange(m) < shifted, 0.6, 0.0) / a
    focal_persons = np.arange(theta.size)[:, None] >= sizes[0]
    p = 1 / (1 + np.exp(-a * (theta[:, None] - b + moved * focal_persons)))
    columns = {"group": np.repeat([f"g{k}" for k in range(len(sizes))], sizes)}
    if weighted:
        columns["weight"] = weight
    r = irt.from_array((rng.random(p.shape) < p).astype(np.int8), persons=columns)
    bank = {"item_discrimination": a, "item_intercept": -a * b}
    items = dataset(bank, item_id=r.item_id, attrs={"model": "2pl"})
    focal = "g1" if len(sizes) == 2 else None
    got = irt.dif(r, items, reference="g0", focal=focal, progress=False)
    if shifted:
        again = irt.dif(r, items, reference="g0", focal="g1", anchors="iterate", progress=False)
        ways = {"all": got, "iterate": again}
        out = {f"{way}, {k}": of[f"item_dif_{k}_p_value"].values.ravel()[shifted:] < 0.05
               for way, of in ways.items() for k in KINDS}  # fmt: skip
        return out | {"told": again["item_dif_uniform_p_value"].values.ravel()[:shifted] < 0.05}
    kinds = KINDS if focal else (*KINDS, "omnibus")
    return {k: got[f"item_dif_{k}_p_value"].values.ravel() < 0.05 for k in kinds}


def main():
    table = Table()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=int, default=6000)
    parser.add_argument("--weighted", action="store_true")
    parser.add_argument("--several", action="store_true")
    parser.add_argument("--shifted", action="store_true")
    parser.add_argument("--focal", type=int, nargs="+")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    settings = WEIGHTED if options.weighted else SEVERAL if options.several else SETTINGS
    settings, shifted = (SHIFTED, 6) if options.shifted else (settings, 0)
    if unknown := {*(options.focal or ())} - {row[2] for row in settings}:
        parser.error(f"--focal: no row has focal groups of {sorted(unknown)}")
    with table, ProcessPoolExecutor(options.jobs) as pool:
        for row, (m, n_reference, n_focal, impact) in enumerate(settings):
            if options.focal and n_focal not in options.focal:
                continue
            sizes = [n_reference] + [n_focal] * (3 if options.several else 1)
            sets = max(1, -(-options.tests // (m - shifted)))
            of_seed = functools.partial(
                low_p_values, m=m, sizes=sizes, impact=impact, weighted=options.weighted,
                shifted=shifted,
            )  # fmt: skip
            low = list(pool.map(of_seed, [(5, row, s) for s in range(sets)]))
            by_set = {k: np.array([np.mean(x[k]) for x in low]) for k in low[0]}
            share = {k: x.mean() for k, x in by_set.items()}
            se = max(x.std() for k, x in by_set.items() if k != "told") / np.sqrt(sets)
            size = {"items": m, "reference": n_reference, "focal": n_focal, "impact": impact}
            table.add(**size, data_sets=sets, **share, se=se)


if __name__ == "__main__":
    main()
