"""Standard errors of marginal fits to persons of schools, over samples: with units and without.

    python tests/benchmarks/sampling_units.py model samples schools persons icc icc_items testlets
    python tests/benchmarks/sampling_units.py anchors samples schools icc_items

By default: 2pl 500 100 30 0.3 0 0.  Prints mean standard errors over the SD of estimates, the mean,
the smallest and the largest of 12 items, and how often 95% intervals hold the mean estimate.
``icc`` is the intraclass correlation of ability; ``icc_items`` is the variance of logits that
schools have on each item by itself (its topic was taught, or not), ``testlets`` that which persons
have on each three items together.  With ``persons`` 0 schools have 5 to 55.  With "anchors" (200 40
0.16) four of eight items keep the parameters that the persons have in the mean of all schools: how
often tests reject them at 5%.  Seeds are fixed.
"""

import sys
import warnings

import numpy as np
from scipy.stats import norm, t

import irt_dask as irt

ITEMS = 12
PARAMETERS = ("intercept", "difficulty", "discrimination")


def sample(rng, a, d, schools, persons, icc, icc_items, testlets=0.0):
    """Responses, and the school of each person."""
    items = a.size
    sizes = np.full(schools, persons) if persons else rng.integers(5, 56, schools)
    school = np.repeat(np.arange(schools), sizes)
    ability = np.sqrt(icc) * rng.standard_normal(schools)[school]
    ability += np.sqrt(1.0 - icc) * rng.standard_normal(school.size)
    logit = a * ability[:, None] + d
    logit += np.sqrt(icc_items) * rng.standard_normal((schools, items))[school]
    if testlets:
        each = np.sqrt(testlets) * rng.standard_normal((school.size, items // 3))
        logit += np.repeat(each, 3, axis=1)
    return (rng.random(logit.shape) < 1.0 / (1.0 + np.exp(-logit))).astype(np.int8), school


def main(model="2pl", samples=500, schools=100, persons=30, icc=0.3, icc_items=0.0, testlets=0.0):
    rng, spreads = np.random.default_rng(0), (float(icc), float(icc_items), float(testlets))
    schools = int(schools)
    a = np.ones(ITEMS) if model == "1pl" else rng.lognormal(0.0, 0.25, ITEMS)
    d = rng.normal(size=ITEMS)
    value, by_unit, without = np.empty((3, len(PARAMETERS), int(samples), ITEMS))
    for k in range(int(samples)):
        y, school = sample(rng, a, d, schools, int(persons), *spreads)
        fit = irt.fit_marginal(y, model=model, sampling_unit=school, progress=False)
        plain = irt.fit_marginal(y, model=model, progress=False)
        for i, name in enumerate(PARAMETERS):
            value[i, k] = fit[f"item_{name}"]
            by_unit[i, k] = fit[f"item_{name}_se"]
            without[i, k] = plain[f"item_{name}_se"]
    off, sd = np.abs(value - value.mean(axis=1, keepdims=True)), value.std(axis=1, ddof=1)
    for what, se, quantile in (
        ("units", by_unit, t.ppf(0.975, schools - 1)),
        ("information", without, norm.ppf(0.975)),
    ):
        for i, name in enumerate(PARAMETERS):
            ratio = se[i].mean(axis=0) / sd[i]
            held = (off[i] < quantile * se[i]).mean()
            print(
                f"{what:12} {name:15} {ratio.mean():.3f} ({ratio.min():.3f} to {ratio.max():.3f}), "
                f"held {held:.3f}"
            )


def anchors(samples=200, schools=40, icc_items=0.16):
    rng = np.random.default_rng(3)
    a, d = rng.lognormal(0.0, 0.25, 8), rng.normal(size=8)
    whole = sample(rng, a, d, 20_000, 30, 0.3, float(icc_items))[0]
    bank = irt.fit_marginal(whole, progress=False).isel(items=slice(0, 4))
    bank = bank[["item_discrimination", "item_intercept", "item_difficulty"]]
    found = {"units": [], "sandwich of persons": [], "information": []}
    for _ in range(int(samples)):
        y, school = sample(rng, a, d, int(schools), 30, 0.3, float(icc_items))
        ways = ({"sampling_unit": school}, {"standard_errors": "sandwich"}, {})
        for p, options in zip(found.values(), ways, strict=True):
            fit = irt.fit_marginal(y, fixed_items=bank, progress=False, **options)
            p.append([*fit["item_anchor_p_value"].values[:4], fit.attrs["anchor_p_value"]])
    for name, p in found.items():
        rejected = (np.array(p) < 0.05).mean(axis=0)
        print(f"{name:20} each {rejected[:4].mean():.3f}, together {rejected[4]:.3f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["anchors"]:
        anchors(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
