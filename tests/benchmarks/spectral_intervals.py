"""Intervals and ranks of the spectral fit, on sparse and on dense data.

    python tests/benchmarks/spectral_intervals.py [--repeat 500] [CASE ...]

Cases: sparse (12 items, 15% observed, difficulties from -2.5 to 2.5), normal (the same,
difficulties N(0, 1)), apart (two hard items far from ten easy ones: the spectral estimate at its
worst), many (60 items, 15%), dense (12 complete items).  Abilities are N(0, 1), intervals 95%.

Each line is a way of fitting: "nu = 1, sandwich" and "nu = 0, sandwich" are the plain sandwich
u u' at these values (with nu = 1 less the first-order bias, over which intervals reach), as it was
before; then the fits of the package.  Columns: intervals given, their coverage, the median width
over that of all pairs (PMLE), type I errors of 5% tests of all differences against the truth, sets
of the hardest called established, wrongly so (level .95; k = 1 of a tie), and root mean square
errors.  Wrong sets come from further data, in which the two hardest items are equally hard, so that
any set of one that is called established is wrong.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import xarray as xr
from scipy import stats

import irt_dask as irt
from irt_dask.errors import EstimationError, InputError, ItemWarning

QUIET = {"progress": False}
Z = stats.norm.ppf(0.975)
CASES = {  # items, share observed, difficulties, persons
    "sparse": (12, 0.15, lambda rng: np.linspace(-2.5, 2.5, 12), (400, 1000, 3000)),
    "normal": (12, 0.15, lambda rng: rng.normal(size=12), (400, 1000, 3000)),
    "apart": (12, 0.15, lambda rng: np.r_[2.0, 2.0, np.linspace(-2, -1, 10)], (400, 1000, 3000)),
    "many": (60, 0.15, lambda rng: rng.normal(size=60), (200, 1000)),
    "dense": (12, 1.0, lambda rng: np.linspace(-2, 2, 12), (30, 100, 1000)),
}


def draw(rng, n, share, b):
    """Responses (persons, items) of persons of ability N(0, 1)."""
    y = rng.random((n, b.size)) < 1.0 / (1.0 + np.exp(b - rng.normal(size=(n, 1))))
    return np.where(rng.random(y.shape) < share, y, -1).astype(np.int8)


def before(y, nu):
    """The plain sandwich at nu: estimate, bias, covariance."""
    m = y.shape[1]
    right, wrong, seen = ((y == 1) * 1.0, (y == 0) * 1.0, (y >= 0) * 1.0)
    links = (seen.T @ seen > 0) & ~np.eye(m, dtype=bool)
    beta = irt.fit_spectral(y, regularization=nu, standard_errors=False, **QUIET)
    b = beta["item_difficulty"].values - beta["item_difficulty"].values.mean()
    e = np.exp(b)
    rates = right.T @ wrong * (1 - np.eye(m)) + nu * links
    u = wrong * (right @ e)[:, None] - e * right * wrong.sum(axis=1)[:, None]
    jacobian = rates.T * e - np.diag(e * rates.sum(axis=1))
    inverse = (np.eye(m) - 1.0 / m) @ np.linalg.pinv(jacobian, rcond=1e-12)
    bias = -inverse @ (nu * (links @ e - e * links.sum(axis=1)))
    return b, bias, inverse @ u.T @ u @ inverse.T, np.ones(m, dtype=bool)


def of_package(fit):
    """Estimate, bias, covariance, and the items that the estimate's mean is over."""
    b, cov = fit["item_difficulty"].values, fit["item_difficulty_covariance"].values
    bias = fit.get("item_difficulty_bias")
    settled = np.ones(b.size, dtype=bool)
    if "item_effective_persons" in fit:
        settled = fit["item_effective_persons"].values > 0.0
    return b, np.zeros(b.size) if bias is None else np.nan_to_num(bias.values), cov, settled


WAYS = {
    "nu = 1, sandwich": lambda y: before(y, 1.0),
    "nu = 0, sandwich": lambda y: before(y, 0.0),
    "nu = 1": lambda y: of_package(irt.fit_spectral(y, regularization=1.0, **QUIET)),
    "nu = 0": lambda y: of_package(irt.fit_spectral(y, regularization=0.0, **QUIET)),
    "default": lambda y: of_package(irt.fit_spectral(y, **QUIET)),
    "PMLE": lambda y: of_package(irt.fit_pairwise(y, pairing="all", **QUIET)),
}


def attempt(way, y):
    """Fit, or None where there is no estimate."""
    try:
        return WAYS[way](y)
    except EstimationError:
        return None


def top_one(b, bias, cov):
    """Whether some item is called the hardest."""
    made = xr.Dataset(
        {
            "item_difficulty": ("items", b - bias),
            "item_difficulty_covariance": (("items", "items_"), cov),
        },
        coords={"item_id": ("items", [str(j) for j in range(b.size)])},
    )
    try:
        return irt.top_items(made, 1).attrs["top_established"] == 1
    except InputError:
        return False


def measure(case, n, repeat, seed):
    """One row of figures for each way."""
    _, share, difficulties, _ = CASES[case]
    rows = {way: {"given": [], "inside": [], "width": [], "far": [], "error": []} for way in WAYS}
    tops = dict.fromkeys(WAYS, 0)
    fitted = dict.fromkeys(WAYS, 0)
    for k in range(repeat):
        rng = np.random.default_rng([seed, n, k])
        b = difficulties(rng)
        y = draw(rng, n, share, b)
        tie = np.sort(b)
        tie[-2] = tie[-1]
        tied = draw(rng, n, share, tie)
        for way, r in rows.items():
            found = attempt(way, y)
            if found is not None:
                fitted[way] += 1
                add(r, *found, b)
            found = attempt(way, tied)
            tops[way] += found is not None and top_one(*found[:3])
    return rows, tops, fitted


def add(r, estimate, bias, cov, settled, b):
    """Figures of one fit."""
    true = b - b[settled].mean()
    se = np.sqrt(np.diag(cov))
    given = np.isfinite(se)
    low = np.minimum(estimate, estimate - bias) - Z * se
    high = np.maximum(estimate, estimate - bias) + Z * se
    r["given"].append(given)
    r["inside"].extend(((low <= true) & (true <= high))[given])
    r["width"].extend((high - low)[given])
    r["error"].extend((estimate - true)[settled])
    i, j = np.triu_indices(b.size, 1)
    kept = given[i] & given[j]
    i, j = i[kept], j[kept]
    spread = np.sqrt(np.maximum(se[i] ** 2 + se[j] ** 2 - 2.0 * cov[i, j], 1e-300))
    miss = (estimate - bias - true)[i] - (estimate - bias - true)[j]
    r["far"].extend(np.abs(miss) > Z * spread)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    options = parser.parse_args()
    print(
        f"{'case':>7} {'persons':>7} {'way':>17} {'fitted':>6} {'given':>6} {'cover':>6} "
        f"{'width':>6} {'type I':>6} {'wrong top':>9} {'RMSE':>6}"
    )
    for case in options.cases:
        for n in CASES[case][3]:
            rows, tops, fitted = measure(case, n, options.repeat, options.seed)
            unit = np.median(rows["PMLE"]["width"])
            for way, r in rows.items():
                print(
                    f"{case:>7} {n:>7} {way:>17} {fitted[way] / options.repeat:>6.3f} "
                    f"{np.mean(r['given']):>6.3f} {np.mean(r['inside']):>6.3f} "
                    f"{np.median(r['width']) / unit:>6.2f} {np.mean(r['far']):>6.3f} "
                    f"{tops[way] / options.repeat:>9.3f} "
                    f"{np.sqrt(np.mean(np.square(r['error']))):>6.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    warnings.simplefilter("ignore", ItemWarning)
    main()
