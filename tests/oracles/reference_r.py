"""Data of the reference results of R by the name of the fit, and curves of fits by the textbook."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from categories import category_probability

import irt_dask as irt

#: Model here, and number of items, of a fit of mirt.
MODELS = {"grm": "graded", "gpcm": "gpcm", "pcm": "pcm", "rsm": "rating", "nominal": "nominal",
          "2pl_gpcm": "2pl+gpcm", "2pl_grm": "2pl+graded"}  # fmt: skip
FILES = {"science": ("science.csv", 4), "timss": ("timss_aus_twn.csv", 11),
         "eclsk": ("eclsk_atl.csv", 12)}  # fmt: skip
TEXTBOOK = {"pcm": "gpcm", "rating": "gpcm", "1pl": "2pl"}


def folder_of(real_data: Path) -> Path:
    """The folder of the results; a test that needs it skips where it is absent."""
    folder = real_data / "reference_r"
    if not folder.is_dir():
        pytest.skip(f"the reference results {folder} are not here")
    return folder


@cache
def fitted(folder: Path, tag: str):
    """Responses as a table, Responses, and the fit whose maximum R's program has as ``tag``."""
    of, _, model = tag.partition("_")
    name, n_items = FILES[of]
    y = pd.read_csv(folder / "data" / name).iloc[:, :n_items]
    r = irt.from_array(y, categories=(y.max().astype(int) + 1).to_dict())
    return y, r, irt.fit_marginal(r, model=MODELS[model], progress=False)


def unit(fit, tag: str) -> float:
    """An SD of ability in R's program, where slopes are 1 and the variance is free."""
    free = tag.partition("_")[2] in ("pcm", "rsm")
    return float(fit["item_discrimination"][0]) if free else 1.0


def curve(fit, j: int, theta):
    """P(category) of an item of a fit, (*theta.shape, K), by the formula of its model."""
    model, k = str(fit["item_model"].values[j]), int(fit["item_n_categories"][j])
    d = fit["item_step_intercept"].values[j, : k - 1]
    if model == "nominal":
        x = [*fit["item_category_score"].values[j, 1:k], *d]
    else:  # conditional fits have slopes of 1, and no variable for them
        x = [float(fit["item_discrimination"][j]) if "item_discrimination" in fit else 1.0, *d]
    return category_probability(TEXTBOOK.get(model, model), theta, np.array(x))


def moments(fit, theta):
    """Mean and variance of each item's response at abilities, each (persons, items)."""
    mean, variance = np.empty((2, len(theta), fit.sizes["items"]))
    for j in range(fit.sizes["items"]):
        p = curve(fit, j, theta)
        k = np.arange(p.shape[1])
        mean[:, j] = p @ k
        variance[:, j] = p @ k**2 - mean[:, j] ** 2
    return mean, variance


def posterior(fit, y, nodes):
    """Posterior weights of persons on evenly spaced nodes, prior N(0, 1)."""
    w = np.exp(-0.5 * nodes**2) * np.ones((len(y), 1))
    for j in range(y.shape[1]):
        w = w * curve(fit, j, nodes)[:, y[:, j]].T
    return w / w.sum(axis=1, keepdims=True)
