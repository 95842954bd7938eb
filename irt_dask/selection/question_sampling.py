"""Shares right of all questions like these: what a sample of questions leaves open."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats, Ints
from irt_dask.engine import dataset
from irt_dask.engine.threads import single_threaded
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.responses.layouts import to_dense
from irt_dask.store import Responses

#: Draws whose weights are made at a time, and all draws of all persons together.
_AT_A_TIME, _CELLS = 500, 20_000_000
#: Draws for each person, so that simultaneous intervals need no margin; at least.
_FOR_EACH, _LEAST = 42, 1000


class Shares(NamedTuple):
    """Share right of each person, with an interval over questions, and how many were answered."""

    share: Floats
    lower: Floats
    upper: Floats
    n: Ints


def shares(responses: Responses, level: float) -> Shares:
    """Share right of each person (k of n counts as k / n), with an interval over questions.

    Questions are taken as a simple random sample of many.  Wilson's interval, with as many
    questions as have the variance that is observed: with right and wrong alone their number.
    """
    from scipy.stats import t

    parts = []
    for k in range(responses.n_blocks):
        y, seen = _scored(responses, k)
        n = seen.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = (y * seen).sum(axis=1) / n
            square = (((y - mean[:, None]) * seen) ** 2).sum(axis=1) / n
            effective = np.where(square > 0.0, mean * (1.0 - mean) * n / square, n)
        parts.append(np.stack([mean, n, effective]))
    mean, n, effective = np.concatenate(parts, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        z2 = t.ppf(0.5 + 0.5 * level, np.maximum(n - 1.0, 1.0)) ** 2 / effective
        middle = (mean + 0.5 * z2) / (1.0 + z2)
        half = np.sqrt(z2 * (mean * (1.0 - mean) + 0.25 * z2)) / (1.0 + z2)
    return Shares(mean, middle - half, middle + half, n.astype(np.int64))


def drawn_shares(responses: Responses, seed: int) -> xr.Dataset:
    """Draws of all persons' shares right of all questions like these, as plausible values.

    The Bayesian bootstrap (Rubin 1981): questions have Dirichlet weights, the same for all persons
    in a draw, so that ranks of persons who answered the same questions are compared on the same
    ones.  No model of the answers is needed.  What a person did not answer counts for nothing.
    """
    n, m = responses.n_persons, responses.n_items
    n_draws = min(max(_LEAST, _FOR_EACH * n), max(_LEAST, _CELLS // n))
    out = np.empty((n, n_draws))
    key = keyed_random.key(seed, "question sampling")
    scored = [_scored(responses, k) for k in range(responses.n_blocks)]
    for lo in range(0, n_draws, _AT_A_TIME):
        hi = min(lo + _AT_A_TIME, n_draws)
        weights = -np.log(keyed_random.uniforms(key, lo, hi - lo, m)).T
        at = 0
        for y, seen in scored:
            with single_threaded(), np.errstate(divide="ignore", invalid="ignore"):
                out[at : at + len(y), lo:hi] = ((y * seen) @ weights) / (seen @ weights)
            at += len(y)
    ids = [responses.person_ids(k) for k in range(responses.n_blocks)]
    return dataset(
        {"person_plausible_value": out},
        coords={"person_id": np.concatenate(ids).astype(str)},
        attrs={"method": "question sampling", "n_item_draws": n_draws, "seed": seed},
    )


def _scored(responses: Responses, k: int) -> tuple[Floats, Floats]:
    """Shares of the highest category of a block, and 1 where there is a response."""
    y = np.asarray(to_dense(responses.read_block(k).data).values)
    top = np.array(responses.n_categories, dtype=float) - 1.0
    return np.maximum(y, 0) / top, (y >= 0).astype(float)
