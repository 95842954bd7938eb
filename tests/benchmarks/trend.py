"""Trends of groups' means between two cycles whose items have drifted, as a user would make them.

    python tests/benchmarks/trend.py [--sets 100] [--groups 6] [--persons 600] [--items 40]
                                     [--booklets 1] [--zones own] [--shifts own] [--drift .1]
                                     [--fit concurrent] [--json FILE]

Two cycles of groups of persons; every item drifts by N(0, .1^2) from one to the other, and a tenth
of all pairs of item and group are .5 harder or easier there, in each cycle others (--shifts own) or
the same (same).  Each cycle is calibrated by itself, the later one linked to the earlier one by the
common items with errors by the jackknife, plausible values are drawn under the groups'
distributions, tables made with replicate weights, and subtracted by ``irt.trend``.  With
``--booklets B`` a person is asked one B-th of the items; zones are each group's own, or the same
numbers in all (--zones shared), as operational designs have them.  Printed: seconds of each step
(by the clock), bias, root mean square of (estimate - truth) / se, and how often 95% intervals hold
the truth, with the linking error and without, of each group and of all persons together, whose
sampling error is small beside the drift; Monte Carlo errors in brackets.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import t as student

import irt_dask as irt

ZONES, VALUES = 20, 10


def cycle(rng, items, ability, n, dif, booklets):
    """Responses of n persons of each group, and the number of each one's group."""
    (a, b), (mean, sd) = items, ability
    group = np.repeat(np.arange(len(mean)), n)
    theta = mean[group] + sd[group] * rng.standard_normal(group.size)
    y = np.empty((group.size, a.size), dtype=np.int8)
    for g in range(len(mean)):
        its = slice(g * n, (g + 1) * n)
        p = expit(a * (theta[its, None] - b - dif[g]))
        y[its] = rng.random(p.shape) < p
        if booklets > 1:
            y[its][np.arange(a.size) % booklets != rng.integers(0, booklets, n)[:, None]] = -1
    return irt.from_array(y, persons={"group": [f"g{g:03d}" for g in group]}), group


def table(responses, fit, bank, group, n, seed, zones):
    """Means of the groups and of all, from plausible values, with errors of pairs of units."""
    view = irt.with_freed_items(responses, fit) if "origin_freed" in fit else responses
    scores = irt.score(view, bank, prior="groups", n_plausible=VALUES, seed=seed, progress=False)
    values = scores["person_plausible_value"].values
    frame = pd.DataFrame(values, columns=[f"PV{m + 1}" for m in range(VALUES)])
    person, n_zones = np.arange(group.size) % n, ZONES
    zone = person * ZONES // n + 1
    if zones == "own":
        zone, n_zones = group * ZONES + zone, int(group.max() + 1) * ZONES
    frame = frame.assign(group=group, zone=zone, unit=person % 2)
    design = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=n_zones)
    options = {"replicates": design, "statistics": "mean"}
    of_all = irt.tabulate(frame, {"ability": "PV*"}, **options).assign(group=-1)
    return pd.concat([irt.tabulate(frame, {"ability": "PV*"}, by="group", **options), of_all])


def one_set(seed, options):
    """Estimates, errors, linking errors, degrees of freedom and truth, and what was freed."""
    rng = np.random.default_rng(seed)
    g, n, m = options.groups, options.persons, options.items
    a, b = np.exp(rng.normal(0.0, 0.25, m)), rng.normal(0.0, 0.9, m)
    mean = np.append(0.0, rng.normal(0.0, 0.5, g - 1))
    sd = np.append(1.0, np.exp(rng.normal(0.0, 0.1, g - 1)))
    change = rng.normal(0.1, 0.1, g)
    dif = 0.5 * rng.choice([-1.0, 1.0], (2, g, m)) * (rng.random((2, g, m)) < 0.1)
    if options.shifts == "same":
        dif[1] = dif[0]
    drift = rng.normal(0.0, options.drift, m)
    given = [
        cycle(rng, (a, b), (mean, sd), n, dif[0], options.booklets),
        cycle(rng, (a, b + drift), (mean + change, sd), n, dif[1], options.booklets),
    ]
    calibrate = irt.fit_concurrent if options.fit == "concurrent" else irt.fit_marginal
    clock = [time.perf_counter()]
    fits = [calibrate(r, standard_errors=False, progress=False) for r, _ in given]
    clock.append(time.perf_counter())
    link = irt.link(*fits, method=options.method, robust=options.robust, error="jackknife")
    clock.append(time.perf_counter())
    tables = [
        table(r, fit, bank, group, n, 2 * seed + k, options.zones)
        for k, ((r, group), fit, bank) in enumerate(zip(given, fits, (fits[0], link), strict=True))
    ]
    found = irt.trend(*tables, linking_error=link)
    clock.append(time.perf_counter())
    freed = [f["origin_freed"].values if "origin_freed" in f else dif[0] > 9 for f in fits]
    true = dif != 0.0
    return {
        "estimate": found["estimate"].tolist(), "se": found["se"].tolist(),
        "link": found["se_linking"].tolist(), "df": found["df"].tolist(),
        "truth": [*change, change.mean()], "drift": float(drift.mean()),
        "shift": [*(dif[1] - dif[0]).mean(axis=1), (dif[1] - dif[0]).mean()],
        "B": link.attrs["B"], "linking_error": link.attrs["linking_error"],
        "sensitivity": float((freed & true).sum() / true.sum()),
        "false": float((freed & ~true).sum() / (~true).sum()),
        "seconds": np.diff(clock).tolist(),
    }  # fmt: skip


def held(x, with_link):
    """Whether 95% intervals hold the truth."""
    se2, link2 = x["se"] ** 2, x["link"] ** 2
    df = x["df"]
    if not with_link:  # Welch's, of what is left: share of the variance squared
        df, se2 = df * ((se2 - link2) / se2) ** 2, se2 - link2
    half = student.ppf(0.975, df) * np.sqrt(se2)
    return np.abs(x["estimate"] - x["truth"]) <= half


def report(sets):
    """Print what the data sets say so far."""
    x = {name: np.array([s[name] for s in sets]) for name in sets[0]}
    error = x["estimate"] - x["truth"]
    for name, rows in (("groups", np.s_[:, :-1]), ("all persons", np.s_[:, -1:])):
        e = error[rows]
        spread = e.mean(axis=1).std(ddof=1) / len(sets) ** 0.5 if len(sets) > 1 else np.nan
        print(f"{name:12} bias {e.mean():+.4f} ({spread:.4f})  SD {e.std():.4f}  "
              f"se {np.sqrt((x['se'][rows] ** 2).mean()):.4f}  "
              f"z {np.sqrt(((e / x['se'][rows]) ** 2).mean()):.3f}", end="")  # fmt: skip
        for label, linked in (("held", True), ("without linking error", False)):
            of = held(x, linked)[rows]
            mc = of.mean(axis=1).std(ddof=1) / len(sets) ** 0.5 if len(sets) > 1 else np.nan
            print(f"  {label} {of.mean():.3f} ({mc:.3f})", end="")
        print()
    print("seconds a set: calibrations {:.0f}, link {:.0f}, values and tables {:.0f}".format(
        *x["seconds"].mean(axis=0)))  # fmt: skip
    shift = x["shift"][:, :-1]
    slope = float((shift * error[:, :-1]).sum() / max((shift**2).sum(), 1e-12))
    print(f"linking error {x['linking_error'].mean():.4f}  slope of errors on net shifts "
          f"{slope:+.2f}  sensitivity {x['sensitivity'].mean():.3f}  false flags "
          f"{x['false'].mean():.4f}", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--groups", type=int, default=6)
    parser.add_argument("--persons", type=int, default=600)
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--booklets", type=int, default=1)
    parser.add_argument("--zones", choices=["own", "shared"], default="own")
    parser.add_argument("--shifts", choices=["own", "same"], default="own")
    parser.add_argument("--drift", type=float, default=0.1)
    parser.add_argument("--fit", choices=["concurrent", "marginal"], default="concurrent")
    parser.add_argument("--method", default="haebara")
    parser.add_argument("--robust")
    parser.add_argument("--json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sets, began = [], time.process_time()
    for seed in range(options.first, options.first + options.sets):
        sets.append(one_set(seed, options))
        if options.json:
            with open(options.json, "a") as file:
                file.write(json.dumps(sets[-1]) + "\n")
        if len(sets) % 20 == 0:
            print(f"{len(sets)} data sets, {time.process_time() - began:.0f} s of a processor")
            report(sets)
    report(sets)


if __name__ == "__main__":
    main()
