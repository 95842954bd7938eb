"""Time and memory of tables and regressions of a large assessment, from a Parquet file.

    python tests/benchmarks/survey.py [--persons 600000] [--json FILE]

10 plausible values, 80 replicate weights (Fay), 80 countries.  The reference is what one would
write in NumPy, a mean for each country, value and weight, in the same run; its table is the same.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from results import Table

import irt_dask as irt

VALUES, REPLICATES, COUNTRIES = 10, 80, 80
STATISTICS = {
    "means and SDs": ["mean", "sd"],
    "with 5 percentiles and a share": [
        "mean",
        "sd",
        "p10",
        "p25",
        "p50",
        "p75",
        "p90",
        "at least 420",
    ],
}
TERMS = "sex * escs + C(grade)"
REGRESSIONS = {
    "regression of 8 terms": (f"PV*MATH ~ {TERMS}", "linear"),
    "logistic regression of 8 terms": (f"PV*MATH >= 420 ~ {TERMS}", "logistic"),
}
DESIGN = irt.Replicates.preset("pisa")


def persons(n):
    """A table like a public file's."""
    rng = np.random.default_rng(1)
    weight, sex = rng.uniform(1, 3, n), rng.choice(["f", "m"], n)
    escs, country = rng.standard_normal(n), np.sort(rng.integers(0, COUNTRIES, n))
    ability = rng.normal(500, 90, n) + 30 * escs
    values = {f"PV{m}MATH": ability + rng.normal(0, 30, n) for m in range(1, VALUES + 1)}
    replicates = {f"W_FSTURWT{r}": weight * rng.choice([0.5, 1.5], n)
                  for r in range(1, REPLICATES + 1)}  # fmt: skip
    return pd.DataFrame({"CNT": country, "sex": sex, "escs": escs, "grade": rng.integers(7, 12, n),
                         **values, "W_FSTUWT": weight, **replicates})  # fmt: skip


def plain(path):
    """Means by country, value and weight."""
    frame = pd.read_parquet(path)
    weights = ["W_FSTUWT", *(f"W_FSTURWT{r}" for r in range(1, REPLICATES + 1))]
    out = []
    for _, one in frame.groupby("CNT"):
        t = np.array([[np.average(one[f"PV{m}MATH"], weights=one[w]) for w in weights]
                      for m in range(1, VALUES + 1)])  # fmt: skip
        u = DESIGN.scales(REPLICATES) @ ((t[:, 1:] - t[:, :1]) ** 2).mean(axis=0)
        out.append([t[:, 0].mean(), np.sqrt(u + 1.1 * t[:, 0].var(ddof=1))])
    return np.array(out)


def child(what, path):
    """One of the tasks, its seconds and peak memory."""
    before = time.perf_counter()
    if what == "plain NumPy: means":
        wanted = plain(path)
        seconds = time.perf_counter() - before
        ours = irt.tabulate(path, "PV*MATH", by="CNT", replicates=DESIGN, statistics="mean")
        np.testing.assert_allclose(ours[["estimate", "se"]], wanted, rtol=1e-9)
    elif what in REGRESSIONS:
        formula, family = REGRESSIONS[what]
        irt.regress(path, formula, family=family, by="CNT", replicates=DESIGN)
        seconds = time.perf_counter() - before
    else:
        irt.tabulate(path, "PV*MATH", by="CNT", replicates=DESIGN, statistics=STATISTICS[what])
        seconds = time.perf_counter() - before
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def main():
    if sys.argv[1:2] == ["child"]:
        return child(*sys.argv[2:])
    table = Table()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--persons", type=int, default=600_000)
    n = parser.parse_args().persons
    with tempfile.TemporaryDirectory() as folder, table:
        path = Path(folder) / "persons.parquet"
        persons(n).to_parquet(path)
        for what in ("plain NumPy: means", *STATISTICS, *REGRESSIONS):
            run = subprocess.run(
                [sys.executable, __file__, "child", what, str(path)],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            seconds, gib = map(float, run.stdout.split())
            table.add(what=what, persons=n, seconds=seconds, gib=gib)


if __name__ == "__main__":
    main()
