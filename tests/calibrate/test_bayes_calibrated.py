"""Simulation-based calibration (Talts et al. 2018) of Bayesian fits of every item model.

Items are drawn from the prior, responses to them simulated, and the rank of what was drawn among
draws of the posterior counted: over data sets ranks are uniform if the draws are the posterior's.
This goes through everything that a user's call does: start values, warm-up, thinning, signs.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from items import quiet
from scipy.stats import chisquare

import irt_dask as irt
from irt_dask.curves.priors import ItemPrior
from irt_dask.errors import ApproximationWarning, ConvergenceWarning, DataWarning, ItemWarning

fit_quietly = partial(
    quiet, irt.fit_bayes,
    kinds=(ConvergenceWarning, ItemWarning, ApproximationWarning, DataWarning),
)  # fmt: skip

#: Fewer extremes than the default: of 60 persons hardly anybody would be right.
PRIOR = ItemPrior(discrimination=(1.0, 0.4), intercept=(0.0, 1.0))
PRIOR_OF_SIGNS = ItemPrior(loading=(0.0, 1.0), intercept=(0.0, 1.0))
#: Ranks are from 0 to this, in so many classes; every second draw counts, of eight sweeps each.
DRAWS, CLASSES, THIN = 99, 10, 2


def functionals(items, suffix=""):
    """What is compared: values (draws, ...) that do not change if ability is turned around."""
    a, d = (items[f"item_{k}{suffix}"].values for k in ("discrimination", "intercept"))
    out = {
        "log |a|": np.log(np.abs(a[..., 0])), "log |a|, mean": np.log(np.abs(a)).mean(axis=-1),
        "a a": a[..., 0] * a[..., 1], "d": d[..., 0], "d, mean": d.mean(axis=-1),
        "d, SD": d.std(axis=-1),
    }  # fmt: skip
    for name in ("guessing", "upper_asymptote"):
        if f"item_{name}{suffix}" in items:
            c = items[f"item_{name}{suffix}"].values
            # Of the second item: in the mixture the first one has none.
            out |= {name: c[..., 1], f"{name}, mean": c.mean(axis=-1)}
    if f"item_step_intercept{suffix}" in items:
        steps = items[f"item_step_intercept{suffix}"].values
        out["steps"] = steps[..., -1, 0] - steps[..., -1, 1]
    return out


def ranks(model, categories, options, truth_options, n_sets, seed, n_persons=60):
    """Ranks (data sets,) of each functional."""
    ids = [f"i{j}" for j in range(len(categories))]
    common = {"model": model if isinstance(model, str) else dict(zip(ids, model, strict=True))}
    truth = irt.prior_items(
        ids, categories=dict(zip(ids, categories, strict=True)), n_draws=n_sets, seed=seed,
        **common, **options | truth_options,
    )  # fmt: skip
    found = {}
    for k in range(n_sets):
        items = truth.isel(draw=k)
        responses = irt.simulate(n_persons, items=items, seed=seed + 1 + k)
        fit = fit_quietly(
            responses, n_draws=THIN * DRAWS, n_warmup=50, seed=seed + 1 + k, progress=False,
            **common, **options,
        )  # fmt: skip
        true, drawn = functionals(truth.isel(draw=[k]), "_draw"), functionals(fit, "_draw")
        for name, values in drawn.items():
            found.setdefault(name, []).append(int((values[THIN - 1 :: THIN] < true[name][0]).sum()))
    return found


def least_p(found):
    """Smallest p-value of chi-square tests that ranks are uniform, with the functional's name."""
    p = {}
    for name, r in found.items():
        counts = np.bincount(np.array(r) * CLASSES // (DRAWS + 1), minlength=CLASSES)
        p[name] = float(chisquare(counts).pvalue)
    return min((value, name) for name, value in p.items())


FIXED, SIGNED = {"prior": PRIOR}, {"prior": PRIOR_OF_SIGNS, "positive": "none"}
CASES = {
    "2pl": ("2pl", [2] * 6, FIXED), "3pl": ("3pl", [2] * 6, FIXED), "4pl": ("4pl", [2] * 6, FIXED),
    "graded": ("graded", [3] * 5, FIXED), "gpcm": ("gpcm", [3] * 5, FIXED),
    "mixture": (["2pl", "3pl", "graded", "gpcm"], [2, 2, 3, 3], FIXED),
    "nominal": ("nominal", [4, 3, 3, 2, 4], SIGNED),
    "signed": ("2pl", [2] * 8, SIGNED), "signed gpcm": ("gpcm", [3] * 6, SIGNED),
    "learned": ("2pl", [2] * 8, {"prior": "hierarchical"}),
    "learned, signed": ("2pl", [2] * 8, {"prior": "hierarchical", "positive": "none"}),
}  # fmt: skip


# Some 8 chi-square tests of each of 11 cases, p > 1e-5: false-alarm rate 1e-3 of all together.
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES)
def test_ranks_are_uniform(case):
    model, categories, options = CASES[case]
    p, name = least_p(ranks(model, categories, options, {}, 100, 7))
    print(f"least p {p:.3g} of {name}")
    assert p > 1e-5, name


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("planted", [
    {"prior": ItemPrior(discrimination=(1.0, 0.4), intercept=(0.0, 1.6))},
    {"prior": ItemPrior(discrimination=(1.3, 0.4), intercept=(0.0, 1.0))},
])  # fmt: skip
def test_items_of_another_prior_are_seen(planted):
    p, name = least_p(ranks("2pl", [2] * 6, FIXED, planted, 100, 7))
    print(f"least p {p:.3g} of {name}")
    assert p < 1e-5
