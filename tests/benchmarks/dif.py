"""Size of the tests of `dif` by number of persons in the groups, items known, no DIF.

    python tests/benchmarks/dif.py [--tests 6000] [--json FILE]

Shares of p-values below .05 over items and data sets: about 15 s a row on one core.  Slopes are
log-normal (SD .3), difficulties N(0, 1), abilities N(0, 1) and, in the focal group, N(impact, 1).
"""

import argparse
import warnings

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
KINDS = ("uniform", "nonuniform", "joint")


def low_p_values(rng, m, n_reference, n_focal, impact):
    """Whether each p-value of a simulated data set is below .05, (kinds, items)."""
    a, b = 1.1 * np.exp(rng.normal(0, 0.3, m)), rng.normal(0, 1, m)
    theta = np.r_[rng.normal(0, 1, n_reference), rng.normal(impact, 1, n_focal)]
    p = 1 / (1 + np.exp(-a * (theta[:, None] - b)))
    group = ["r"] * n_reference + ["f"] * n_focal
    r = irt.from_array((rng.random(p.shape) < p).astype(np.int8), persons={"group": group})
    bank = {"item_discrimination": a, "item_intercept": -a * b}
    items = dataset(bank, item_id=r.item_id, attrs={"model": "2pl"})
    got = irt.dif(r, items, reference="r", focal="f", progress=False)
    return np.stack([got[f"item_dif_{k}_p_value"].values < 0.05 for k in KINDS])


def main():
    table = Table()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=int, default=6000)
    n_tests = parser.parse_args().tests
    warnings.simplefilter("ignore", ApproximationWarning)
    rng = np.random.default_rng(5)
    with table:
        for m, n_reference, n_focal, impact in SETTINGS:
            sets = max(1, n_tests // m)
            low = [low_p_values(rng, m, n_reference, n_focal, impact) for _ in range(sets)]
            share = dict(zip(KINDS, np.mean(low, axis=(0, 2)), strict=True))
            table.add(items=m, reference=n_reference, focal=n_focal, impact=impact, **share)


if __name__ == "__main__":
    main()
