"""What the private spectral fit is compared with: discrete Laplace noise, randomised response.

For benchmarks.  :func:`fit_randomised_response` simulates what persons would do with their own
responses, from a seed: its guarantee holds only where they draw in secret.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.calibrate.private.fit import Plan, exact_counts, make_plan
from irt_dask.calibrate.private.ledger import check_budget
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset
from irt_dask.errors import InputError
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.pairs import pair_counts as pairs
from irt_dask.kernels.privacy import private_counts
from irt_dask.kernels.responses import response_counts
from irt_dask.kernels.responses.layouts import Dense, to_dense
from irt_dask.store import Block


def fit_discrete_laplace(
    responses: Any,
    *,
    epsilon: float,
    adjacency: str = "replace",
    max_items_per_person: int | None = None,
    pairs: str = "all",
    p0: float | None = None,
    seed: int = 0,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Rasch difficulties from counts with discrete Laplace noise: (epsilon, 0)-private.

    As :func:`irt_dask.fit_private_spectral` but for the noise, calibrated to the L1 sensitivity
    (one person changes 0/1 counts, so it equals the squared L2 sensitivity).  One pass.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    check_budget(epsilon, 0.5, None)
    responses = as_responses(responses, "fit_discrete_laplace")
    plan = make_plan(
        responses, "fit_discrete_laplace", adjacency, max_items_per_person, pairs, p0, seed
    )

    def mechanism(scale: float) -> Any:
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        return dp.m.make_laplace(*space, scale=scale)

    distance = plan.squared_sensitivity
    scale = dp.binary_search_param(mechanism, d_in=distance, d_out=float(epsilon), T=float)
    exact = exact_counts(responses, plan.pairs, plan.max_items, client, progress)
    noisy = np.array(mechanism(scale)(exact.tolist()), dtype=np.int64)
    return _fit("discrete laplace", plan, noisy, math.sqrt(2.0) * scale, responses.item_id, epsilon)


def fit_randomised_response(
    responses: Any,
    *,
    epsilon: float,
    delta: float,
    complete: bool,
    seed: int = 0,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Rasch difficulties from responses that each person randomises, and a shuffler mixes.

    Each of the m answers of a person (right, wrong; if not ``complete``, a public fact of the
    design, also: none) is kept with probability e^l / (e^l + c - 1), c the number of possible
    answers, else replaced by one of the others; l = local / m, so that the row is
    (local, 0)-locally private by basic composition.  Shuffled, n such rows are (epsilon,
    delta)-private for replacing one person, by :func:`amplified`.  The counts of pairs are
    estimated without bias and used as noisy counts are.  One pass.
    """
    check_budget(epsilon, delta, None)
    responses = as_responses(responses, "fit_randomised_response")
    plan = make_plan(responses, "fit_randomised_response")
    n, m = responses.n_persons, responses.n_items
    answers = 2 if complete else 3
    local = local_budget(epsilon, delta, n)
    keep = 1.0 / (1.0 + (answers - 1) * math.exp(-local / m))
    other = (1.0 - keep) / (answers - 1)
    key = keyed_random.key(seed, "randomised response")
    with Engine(responses, client=client, progress=progress, stage="pairs") as engine:
        both, right, wrong = engine.map_reduce(_randomised_counts, key, keep, answers)
    # sum over persons of (1[right on i] - other) (1[wrong on j] - other) / (keep - other)^2
    estimate = both - other * (right[:, None] + wrong) + n * other**2
    estimate = plan.pairs.of(estimate) / (keep - other) ** 2
    spread = max(keep * (1.0 - keep), other * (1.0 - other)) / (keep - other) ** 2
    sigma = math.sqrt(n) * spread
    return _fit("randomised response", plan, estimate, sigma, responses.item_id, epsilon, delta)


def amplified(local: float, delta: float, n: int) -> float:
    """Epsilon at delta of n shuffled reports that are (local, 0)-private each.

    Feldman, McMillan and Talwar (2022), Theorem III.1, where its condition holds; without it, or
    where that is less, shuffling is taken to add nothing: ``local``.
    """
    if local > math.log(max(n / (16.0 * math.log(2.0 / delta)), 1.0)):
        return local
    e = math.exp(local)
    spread = 8.0 * math.sqrt(e * math.log(4.0 / delta) / n) + 8.0 * e / n
    return min(local, math.log1p((e - 1.0) / (e + 1.0) * spread))


def local_budget(epsilon: float, delta: float, n: int) -> float:
    """Largest local budget that shuffling brings down to epsilon: by bisection, from below."""
    limit = math.log(max(n / (16.0 * math.log(2.0 / delta)), 1.0))
    if limit <= epsilon or amplified(limit, delta, n) <= epsilon:
        return max(limit, epsilon)
    low, high = epsilon, limit
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if amplified(middle, delta, n) <= epsilon else (low, middle)
    return low


def _randomised_counts(
    block: Block, key: NDArray[np.uint64], keep: float, answers: int
) -> tuple[Any, ...]:
    """Pairs, right and wrong answers in the randomised block; 0, 1 and, of three, -1: none."""
    y = to_dense(block.data).values
    if answers == 2 and (y < 0).any():
        raise InputError("complete=True, but some responses are missing; use complete=False")
    u = keyed_random.uniforms(key, block.start, *y.shape)
    if answers == 2:
        said = np.where(u < keep, y, 1 - y)
    else:
        step = np.where(u < keep, 0, np.where(u < 0.5 * (1.0 + keep), 1, 2))
        said = (y + 1 + step) % 3 - 1
    data = Dense(said.astype(np.int8))
    right, seen = response_counts.response_counts(data)
    return pairs.pair_counts(data)[0], right, seen - right


def _fit(
    method: str, plan: Plan, noisy: NDArray[Any], sigma: float, item_id: tuple[str, ...],
    epsilon: float, delta: float | None = None,
) -> xr.Dataset:  # fmt: skip
    return dataset(
        {"item_difficulty": private_counts.difficulties(noisy, plan.pairs, sigma)},
        item_id=item_id,
        attrs={
            "method": method, "model": "1pl", "epsilon": float(epsilon), "delta": delta,
            "sigma": sigma, "adjacency": plan.adjacency,
            "identification": "mean difficulty 0, discrimination 1",
        },
    )  # fmt: skip
