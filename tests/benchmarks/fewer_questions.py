"""Models on benchmarks: the share right of all questions, from answers to some of them.

    python tests/benchmarks/fewer_questions.py TABLE.csv.gz [...] [--splits 20] [--draws 8]
        [--targets best] [--corrected 2]

A table has a row for each model and a column for each question, all 0 or 1, and the models' names
first.  In each split 75% of the models calibrate (a 2PL with slopes of any sign and a learned
prior), and each of the others answers 50, 100 and 200 questions, which are drawn at random anew for
each model and draw.  Shown are mean absolute errors of the share right of all questions, over that
of the share right of the questions asked: by design, by the model, and corrected
(``calibration=``); how many intervals hold the share (``far``: shares above .9 and below .1); and
errors of the model's estimate from as many questions that ``choose_items`` chose, over the same.
With several tables a last row, of all of them, has each with the same weight.  ``--targets best``:
the quarter with the highest shares is predicted, by models that are all worse, in one split.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from results import Table

import irt_dask as irt
from irt_dask.errors import IrtDaskWarning

ASKED = (50, 100, 200)
SHARE = 0.75


def drawn(rng, n_models, n_items, n):
    """Questions that each model is asked, a simple random sample each."""
    out = np.zeros((n_models, n_items), dtype=bool)
    for row in out:
        row[rng.choice(n_items, n, replace=False)] = True
    return out


def held(result, name, truth):
    """Which intervals hold the truth."""
    low, high = (result[f"{name}_{end}"].values for end in ("lower", "upper"))
    return (low <= truth) & (truth <= high)


def of_random(y, fit, calibration, rng, n, draws, n_corrected):
    """Errors and coverage by model and draw."""
    truth = y.mean(axis=1)
    out = []
    for k in range(draws):
        asked = drawn(rng, *y.shape, n)
        some = irt.from_array(np.where(asked, y, -1), item_id=fit["item_id"].values)
        found = irt.predict_total(some, fit, inclusion_probability=n / y.shape[1])
        width = found["person_total_design_upper"] - found["person_total_design_lower"]
        rows = {
            "truth": truth,
            "plain": np.abs((y * asked).sum(axis=1) / n - truth),
            "model": np.abs(found["person_total"].values - truth),
            "model_held": held(found, "person_total", truth),
            "design": np.abs(found["person_total_design"].values - truth),
            "design_held": held(found, "person_total_design", truth),
            "design_width": width.values,
        }
        if k < n_corrected:
            found = irt.predict_total(some, fit, calibration=calibration)
            rows["corrected"] = np.abs(found["person_total"].values - truth)
            rows["corrected_held"] = held(found, "person_total", truth)
        out.append(pd.DataFrame(rows))
    return pd.concat(out)


def of_chosen(y, fit, calibration, n, corrected):
    """Errors of the model's estimate from questions that were chosen, corrected too if asked."""
    truth, out = y.mean(axis=1), {}
    for method in ("variance", "cluster"):
        chosen = irt.choose_items(fit, n, method=method)["item_selected"].values
        some = irt.from_array(y[:, chosen], item_id=fit["item_id"].values[chosen])
        kinds = [(method, {})]
        if corrected:
            kinds.append((f"{method}_corrected", {"calibration": calibration}))
        for name, more in kinds:
            total = irt.predict_total(some, fit, **more)["person_total"].values
            out[name] = np.abs(total - truth)
    return pd.DataFrame(out)


def calibrated(y, positive):
    return irt.fit_marginal(y, prior="empirical", positive=positive, standard_errors=False)


def split(y, seed, options):
    """Errors of all that are predicted in one split, by questions asked."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    if options.targets == "best":
        order = np.argsort(y.mean(axis=1), kind="stable")
    some = order[: round(SHARE * len(y))]
    others = order[len(some) :]
    full = irt.from_array(y[some])
    for positive in options.positive:
        fit = calibrated(full, positive)
        for n in ASKED:
            rng_n = np.random.default_rng([seed, n])  # the same questions for all fits
            random = of_random(y[others], fit, full, rng_n, n, options.draws, options.corrected)
            yield positive, n, random, of_chosen(y[others], fit, full, n, options.corrected > 0)


def summary(random, chosen, n):
    """One row of what is printed."""
    plain = random["plain"].mean()
    if "corrected" not in random:
        random = random.assign(corrected=np.nan, corrected_held=np.nan)
    some = random.dropna()  # draws with corrected estimates
    far = random[(random["truth"] > 0.9) | (random["truth"] < 0.1)]
    return {
        "asked": n,
        "cases": len(random),
        "mae_plain": plain,
        **{k: random[k].mean() / plain for k in ("design", "model")},
        "corrected": some["corrected"].mean() / some["plain"].mean(),
        **{k: random[k].mean() for k in ("design_held", "design_width", "model_held")},
        "corrected_held": some["corrected_held"].astype(float).mean(),
        "far_cases": len(far),
        "far_held": far["design_held"].mean(),
        **{k: chosen[k].mean() / plain for k in chosen},
    }


def of_all(rows):
    """A row of all tables: means of what each says, far cases by their number."""
    frame = pd.DataFrame(rows).drop(columns=["table", "slopes"])
    sums = ["cases", "far_cases"]
    far = (frame["far_held"] * frame["far_cases"]).sum() / max(frame["far_cases"].sum(), 1)
    mean = frame.drop(columns=sums).mean()
    return {k: int(frame[k].sum()) if k in sums else float(mean[k]) for k in frame} | {
        "asked": int(mean["asked"]), "far_held": float(far)
    }  # fmt: skip


def main() -> None:
    table = Table()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--positive", nargs="+", default=["none"], help='"none", "all" or both')
    parser.add_argument("--targets", choices=["random", "best"], default="random")
    parser.add_argument(
        "--corrected", type=int, default=2, help="draws corrected by calibration=, 0 for none"
    )
    options = parser.parse_args()
    options.splits = options.splits if options.targets == "random" else 1
    warnings.simplefilter("ignore", IrtDaskWarning)
    kept = {}
    with table:
        for path in options.tables:
            y = pd.read_csv(path, index_col=0).to_numpy(np.int8)
            found, start = {}, time.perf_counter()
            for seed in range(options.splits):
                for positive, n, *frames in split(y, seed, options):
                    found.setdefault((positive, n), []).append(frames)
            for (positive, n), frames in found.items():
                random, chosen = (pd.concat(x) for x in zip(*frames, strict=True))
                name = path.name.removesuffix(".csv.gz")
                table.add(table=name, slopes=positive, **summary(random, chosen, n))
                kept.setdefault((positive, n), []).append(table.rows[-1])
            print(f"{path.name}: {time.perf_counter() - start:.0f} s", flush=True)
        if len(options.tables) > 1:
            for (positive, _), rows in kept.items():
                table.add(table="all", slopes=positive, **of_all(rows))


if __name__ == "__main__":
    main()
