"""An agency's job, typed in a shell: two waves of a test, from files to scores and reports.

    python tests/benchmarks/agency.py [--persons 6000] [--items 40] [--out FOLDER]

Makes the files of a spring and an autumn wave (3PL, person weights, two groups that differ in
ability, an item that is harder for one of them, half of the items in both waves), types each
command in a process of its own, and prints what it says and how long it takes.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

#: The item that is harder for the focal group at the same ability, and by how many logits.
DIF_ITEM, DIF_SHIFT = 3, 0.8
#: Mean and SD of ability by wave and group.
ABILITIES = {
    "spring": {"north": (0.0, 1.0), "south": (-0.3, 0.9)},
    "autumn": {"north": (0.3, 1.0), "south": (0.1, 1.1)},
}


def write_waves(folder: Path, n_persons: int, n_items: int) -> dict[str, pd.DataFrame]:
    """Write spring.csv and autumn.csv; return the true items of each wave."""
    rng = np.random.default_rng(5)
    m = n_items + n_items // 2  # the second half of spring's items is the first half of autumn's
    names = np.array([f"item{j + 1:03d}" for j in range(m)])
    true = pd.DataFrame({
        "item": names, "a": rng.lognormal(0.1, 0.25, m), "b": rng.normal(0.0, 1.0, m),
        "c": rng.beta(8.0, 32.0, m),
    })  # fmt: skip
    truth = {}
    for wave, first in (("spring", 0), ("autumn", n_items // 2)):
        items = true.iloc[first : first + n_items].reset_index(drop=True)
        group = rng.choice(["north", "south"], n_persons)
        mean, sd = (np.array([ABILITIES[wave][g][k] for g in group]) for k in (0, 1))
        theta = rng.normal(mean, sd)
        logit = items["a"].to_numpy() * (theta[:, None] - items["b"].to_numpy())
        if wave == "spring":
            logit[:, DIF_ITEM] -= DIF_SHIFT * (group == "south")
        c = items["c"].to_numpy()
        y = rng.random(logit.shape) < c + (1.0 - c) / (1.0 + np.exp(-logit))
        frame = pd.DataFrame(y.astype(int), columns=items["item"])
        frame.insert(0, "person", [f"{wave[0]}{i + 1:06d}" for i in range(n_persons)])
        # Persons of the south were sampled at half the rate, with some variation.
        frame["weight"] = np.round(rng.uniform(0.8, 1.2, n_persons) * (1.0 + (group == "south")), 3)
        frame["region"] = group
        frame.to_csv(folder / f"{wave}.csv", index=False)
        truth[wave] = items
    return truth


def commands() -> list[str]:
    """What is typed, in order."""
    columns = "--shape wide --column weight=weight --column group=region"
    fit = "--method marginal --model 3pl"
    ignored = "--weights ignore"
    return [
        f"ingest spring.csv spring.store {columns}",
        f"calibrate spring.store --out spring_bank.csv --fit spring.nc {fit} "
        "--reference-group north",
        f"fit spring.store spring.nc {ignored} --out spring_fit.csv --persons spring_persons",
        f"dif spring.store spring.nc {ignored} --reference north --focal south --out dif.csv",
        "information spring_bank.csv --out information.csv --plot information.png",
        "score spring.store spring_bank.csv --prior groups --plausible 5 --out spring_scores",
        "report spring.nc --store spring.store --scores spring_scores --out spring.html",
        f"ingest autumn.csv autumn.store {columns}",
        f"calibrate autumn.store --out autumn_bank.csv --fit autumn.nc {fit} "
        "--fixed-items spring_bank.csv",
        f"calibrate autumn.store --out autumn_alone.csv {fit} --reference-group north",
        "link spring_bank.csv autumn_alone.csv --method stocking-lord --out autumn_linked.csv "
        "--common common.csv",
        "score autumn.store autumn_bank.csv --prior groups --out autumn_scores",
        "report autumn.nc --store autumn.store --scores autumn_scores --out autumn.html",
    ]


def main() -> None:
    """Make the files, type the commands, compare the end with the truth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--persons", type=int, default=6000)
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--out", type=Path, help="keep the files here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        truth = write_waves(folder, options.persons, options.items)
        total = 0.0
        for command in commands():
            print(f"$ irt-dask {command}", flush=True)
            begun = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "irt_dask.cli", *shlex.split(command)],
                cwd=folder, capture_output=True, text=True,
            )  # fmt: skip
            seconds = time.monotonic() - begun
            total += seconds
            print(f"{done.stdout}{done.stderr}[{seconds:.1f} s]\n", flush=True)
            if done.returncode:
                sys.exit(done.returncode)
        for bank in ("spring_bank", "autumn_bank", "autumn_linked"):
            true = truth[bank.partition("_")[0]].set_index("item")
            found = pd.read_csv(folder / f"{bank}.csv").set_index("item")
            both = found.join(true.add_suffix("_true"))
            error = {x: float(np.sqrt(((both[x] - both[f"{x}_true"]) ** 2).mean())) for x in "ab"}
            print(f"{bank}: root mean square error of a {error['a']:.3f}, of b {error['b']:.3f}")
        print(f"{len(commands())} commands, {total:.1f} s")


if __name__ == "__main__":
    main()
