"""Adaptive tests: questions until ability is known, totals by design, milliseconds a question.

    python tests/benchmarks/adaptive.py [TABLE.csv.gz ...] [--persons 40] [--items 100000]

Without tables a bank of 1,000 simulated items of the 2PL; a table is as that of
``fewer_questions.py``: 75% of its models calibrate (slopes of any sign, a learned prior), the
others are tested.  Shown are

- questions until the posterior SD of ability is .3 and .1 (median; share of persons who get there
  within all questions): by ``Session`` ("ability", "information"), in random order, and from the
  first n that ``choose_items`` chose (in steps of 10, up to 400); and the distance from the ability
  that all questions say, in that SD; of ``--persons`` persons;
- with 100 questions: the mean absolute error of the share right of all, over that of the share
  right of 100 questions at random, for the model's total from questions of each criterion, and for
  the total by design with its coverage (95%); of all persons, twice;
- milliseconds of ``next`` and ``answer`` with ``--items`` questions: median and 99% point.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from results import Table

import irt_dask as irt
from irt_dask.errors import IrtDaskWarning
from irt_dask.selection.bank_tables import FINE, bank_of

TARGETS = (0.3, 0.1)
ASKED, SHARE, STEP = 100, 0.75, 10


def simulated(n_persons, n_items=1000, seed=0):
    """A bank, and complete answers to it."""
    rng = np.random.default_rng(seed)
    a, d = rng.lognormal(0.2, 0.35, n_items), rng.normal(0.0, 1.2, n_items)
    theta = rng.standard_normal((n_persons, 1))
    y = (rng.random((n_persons, n_items)) < 1.0 / (1.0 + np.exp(-(theta * a + d)))).astype(np.int8)
    return items_of(a, d), y


def items_of(a, d):
    data = {"item_discrimination": ("items", a), "item_intercept": ("items", d)}
    return xr.Dataset(data, coords={"item_id": ("items", [f"q{j}" for j in range(a.size)])})


def calibrated(path, seed=0):
    """Items of some models of a table, and answers of others."""
    y = pd.read_csv(path, index_col=0).to_numpy(np.int8)
    order = np.random.default_rng(seed).permutation(len(y))
    n = round(SHARE * len(y))
    fit = irt.fit_marginal(y[order[:n]], prior="empirical", positive="none", standard_errors=False)
    return fit, y[order[n:]]


# --- questions until ability is known -------------------------------------------------------------


def curves(bank):
    """Posterior moments of ability along questions in an order, for one person."""
    every = np.arange(bank.n_items)
    log_p = bank.curves(0, every).log_p.reshape(bank.n_items, 2, FINE.size)

    def along(y, order):
        log = np.cumsum(log_p[order, y[order]], axis=0) - 0.5 * FINE**2
        w = np.exp(log - log.max(axis=1, keepdims=True))
        w /= w.sum(axis=1, keepdims=True)
        mean = w @ FINE
        return mean, np.sqrt(np.maximum(w @ FINE**2 - mean**2, 0.0))

    return along


def reached(mean, sd, target, truth):
    """Questions until the SD is this, and how far off ability is then; NaN if never."""
    below = np.flatnonzero(sd <= target)
    if not below.size:
        return np.nan, np.nan
    return below[0] + 1.0, (mean[below[0]] - truth) / sd[below[0]]


def nested(fit, n_items):
    """Sets of questions that ``choose_items`` chooses, in steps, as one order."""
    order = np.zeros(0, dtype=int)
    for n in range(STEP, min(n_items, 400) + 1, STEP):
        chosen = np.flatnonzero(irt.choose_items(fit, n)["item_selected"].values)
        order = np.concatenate([order, np.setdiff1d(chosen, order)])
    return order


def until(base, fit, y, along, target):
    """Rows of persons by way of asking."""
    names = {i: j for j, i in enumerate(fit["item_id"].values)}
    rng, fixed = np.random.default_rng(1), nested(fit, y.shape[1])
    for i, own in enumerate(y):
        truth = along(own, np.arange(own.size))[0][-1]
        for criterion in ("ability", "information"):
            session = irt.Session(base, person=str(i), criterion=criterion, ability_se=target)
            while (item := session.next()) is not None:
                session.answer(item, own[names[item]])
            order = np.array([names[item] for item in session.asked])
            yield criterion, *reached(*along(own, order), target * (1 + 1e-9), truth)
        yield "random", *reached(*along(own, rng.permutation(own.size)), target, truth)
        mean, sd = (x[STEP - 1 :: STEP] for x in along(own, fixed))
        n, off = reached(mean, sd, target, truth)
        yield "choose_items", n * STEP, off


# --- totals ---------------------------------------------------------------------------------------

#: Criterion, exploration.
WAYS = (("ability", 0.0), ("total", 0.0), ("total", 0.5), ("design", 0.2), ("design", 0.5))


def totals(base, fit, y, criterion, exploration):
    """Absolute errors of the model's total, and of that by design; whether its interval holds."""
    names = {i: j for j, i in enumerate(fit["item_id"].values)}
    for i, own in enumerate(np.concatenate([y, y] if exploration else [y])):
        options = {"criterion": criterion, "exploration": exploration, "max_items": ASKED}
        session = irt.Session(base, person=str(i), seed=1, **options)
        while (item := session.next()) is not None:
            session.answer(item, own[names[item]])
        found, truth = session.estimates(), own.mean()
        row = {"model": abs(found["person_total"].item() - truth)}
        row["model_held"] = inside(found, "person_total", truth)
        if exploration > 0.0:
            row["design"] = abs(found["person_total_design"].item() - truth)
            row["design_held"] = inside(found, "person_total_design", truth)
        yield row


def inside(found, name, truth):
    low, high = (found[f"{name}_{end}"].item() for end in ("lower", "upper"))
    return float(low <= truth <= high)


def plain(y, n_draws=20):
    """Mean absolute error of the share right of 100 questions at random."""
    rng = np.random.default_rng(2)
    draws = [rng.choice(y.shape[1], ASKED, replace=False) for _ in range(n_draws)]
    return np.mean([np.abs(y[:, d].mean(axis=1) - y.mean(axis=1)).mean() for d in draws])


# --- time -----------------------------------------------------------------------------------------


def milliseconds(n_items, criterion, exploration, n=60):
    rng = np.random.default_rng(0)
    items = items_of(rng.lognormal(0.0, 0.4, n_items), rng.normal(0.0, 1.3, n_items))
    start = time.perf_counter()
    session = irt.Session(items, criterion=criterion, exploration=exploration, ability_se=1e-3)
    session.next()
    ready = time.perf_counter() - start
    asked, answered = [], []
    for _ in range(n):
        start = time.perf_counter()
        item = session.next()
        middle = time.perf_counter()
        session.answer(item, int(rng.random() < 0.6))
        asked.append(middle - start)
        answered.append(time.perf_counter() - middle)
    both = 1e3 * (np.array(asked)[1:] + np.array(answered)[1:])
    return ready, np.median(both), np.quantile(both, 0.99)


def main() -> None:
    table = Table()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--persons", type=int, default=40)
    parser.add_argument("--items", type=int, default=100_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore", IrtDaskWarning)
    with table:
        sources = [path.name.removesuffix(".csv.gz") for path in options.tables] or ["simulated"]
        for k, name in enumerate(sources):
            fit, y = calibrated(options.tables[k]) if options.tables else simulated(options.persons)
            base, along = irt.Session(fit), curves(bank_of(fit, None))
            for target in TARGETS:
                some = until(base, fit, y[: options.persons], along, target)
                rows = pd.DataFrame(some, columns=["way", "n", "off"])
                for way, own in rows.groupby("way", sort=False):
                    n = own["n"].fillna(np.inf)
                    table.add(
                        data=f"{name}, {y.shape[1]} questions", what=f"SD of ability {target}",
                        way=way, questions=float(np.median(n)), there=own["n"].notna().mean(),
                        rms_off=float(np.sqrt((own["off"] ** 2).mean())),
                    )  # fmt: skip
            error = plain(y)
            for criterion, exploration in WAYS:
                found = pd.DataFrame(totals(base, fit, y, criterion, exploration)).mean()
                ratios = {k: found[k] / error for k in ("model", "design") if k in found}
                held = {k: found[k] for k in ("model_held", "design_held") if k in found}
                table.add(
                    data=f"{name}, {y.shape[1]} questions", what=f"total from {ASKED}",
                    way=f"{criterion}, exploration {exploration}", **ratios, **held,
                )  # fmt: skip
        for criterion, exploration in (("ability", 0.0), ("information", 0.0), ("total", 0.2)):
            ready, median, most = milliseconds(options.items, criterion, exploration)
            table.add(
                data=f"{options.items} questions", what="milliseconds",
                way=f"{criterion}, exploration {exploration}", seconds_first=ready,
                median=median, most=most,
            )  # fmt: skip


if __name__ == "__main__":
    main()
