"""Pairwise maximum likelihood of the Rasch model: RP-MLE, MRP-MLE and PMLE.

Given that a person answers one of two items right and the other wrong, which one is right does not
depend on the person's ability: ``P(i wrong, j right | they differ) = sigma(b_i - b_j)``, a
Bradley-Terry model of the items.
"""

from __future__ import annotations

import warnings
from statistics import NormalDist
from typing import Any

import numpy as np
import xarray as xr
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from irt_dask.arrays import Floats, Ints, Words
from irt_dask.calibrate.rasch.pair_counts import MANY_ITEMS, MEAN_ZERO, matrices, pair_counts
from irt_dask.calibrate.shared.start_values import list_groups
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.inputs import check_level, one_of, whole_number
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import ConvergenceWarning, EstimationError, InputError
from irt_dask.items import checks
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.pairs import bradley_terry as kernels
from irt_dask.kernels.pairs import random_pairs as pairs
from irt_dask.store import Block, Responses

#: Seed and number of splits; None: all pairs.
Draw = tuple[int, int] | None

PAIRINGS = ("random", "all")
#: Covariances are items x items, and inverted: 5,000 items take 200 MB each, and minutes.
_MAX_COVARIANCE = 5_000


def fit_pairwise(
    responses: Any,
    *,
    pairing: str = "random",
    n_splits: int = 1,
    level: float = 0.95,
    seed: int = 0,
    standard_errors: bool = True,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Rasch difficulties, with intervals, from comparisons of two items by the same person.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    pairing : {"random", "all"}
        "random": the items that a person answered are paired at random, each in one pair at most;
        pairs answered differently are comparisons (RP-MLE).  "all": every pair of them (PMLE).
    n_splits : int
        Random pairings of each person.  With more than one the sum of their log-likelihoods is
        maximised (MRP-MLE); 20 lose next to nothing against all pairs.
    level : float
        Of the intervals, each by itself.
    seed : int
        Of the random pairings.
    standard_errors : bool
        False: difficulties alone, for any number of items, with "all" in one pass less.

    Returns
    -------
    Dataset over items
        ``item_difficulty`` (mean 0), its ``_se``, ``_lower`` and ``_upper``, and
        ``item_difficulty_covariance`` (items x items_); ``item_flag``.

    Raises
    ------
    InputError
        For standard errors of more than 5,000 items, or all pairs of more than 10,000.
    EstimationError
        If the comparisons do not put all items on one scale (it lists the groups).

    Warns
    -----
    ConvergenceWarning
        If Newton's method stops early; ``attrs["converged"]`` is then 0.
    ItemWarning
        Some items are flagged.

    Notes
    -----
    One pass over the data (with "all", those of :func:`pair_counts`), two for flags, and one more
    for standard errors, from 2,048 items on one for each task; none with one random pairing. Driver
    memory: some 120 bytes for each pair of items that was compared (at most comparisons, and
    items^2 / 2), and with standard errors 40 bytes x items^2; their time grows with items^3.

    With one random pairing comparisons are independent given who answered what, so the inverse
    information is the covariance (source: Random pairing MLE, Theorem 3, Corollary 1).  Otherwise
    comparisons of a person depend on each other, and the covariance is the sandwich
    ``L^+ (sum of u u') L^+``: L the Laplacian of the information, u a person's whole score.
    The paper's MRP-MLE averages the estimates of the pairings (Algorithm 2) instead of maximising
    the sum.  The two agree to first order, and the sum also exists where some single pairing does
    not connect the items.

    Examples
    --------
    >>> import irt_dask as irt
    >>> fit = irt.fit_pairwise(irt.load_lsat(), n_splits=20)
    >>> fit["item_difficulty"].round(2).values.tolist()
    [-1.25, 0.49, 1.23, 0.14, -0.61]
    >>> fit["item_difficulty_se"].round(2).values.tolist()
    [0.11, 0.07, 0.07, 0.08, 0.09]
    """
    responses = as_responses(responses, "fit_pairwise")
    refuse_weights(responses, "fit_pairwise")
    m = responses.n_items
    _check_options(pairing, n_splits, level, seed, standard_errors, m)
    draw = (int(seed), int(n_splits)) if pairing == "random" else None
    code, times = _comparisons(responses, draw, client, progress)
    _check_connected(code, responses.item_id, draw)
    edges = kernels.comparisons(code, times, m)
    with single_threaded():  # other bits on other numbers of threads
        fit = kernels.maximise(edges)
    if not fit.converged:
        warnings.warn(
            f"fit_pairwise stopped after {fit.n_iterations} Newton steps before it converged: some "
            f"items are hardly connected with the others; the difficulties are not the maximum",
            ConvergenceWarning,
            stacklevel=2,
        )
    data: dict[str, Any] = {"item_difficulty": fit.difficulty}
    if standard_errors:
        cov = _covariance(responses, edges, fit.difficulty, draw, client, progress)
        data |= _intervals(fit.difficulty, cov, level)
    with Engine(responses, client=client, progress=progress, stage="items") as engine:
        data["item_flag"] = checks.flags(data, seen=checks.count(engine))
    checks.warn(data["item_flag"], responses.item_id)
    return dataset(
        data,
        item_id=responses.item_id,
        attrs={
            "method": "pairwise maximum likelihood", "model": "1pl", "pairing": pairing,
            "n_splits": int(n_splits), "level": float(level) if standard_errors else None,
            "seed": None if draw is None else int(seed), "converged": fit.converged,
            "n_iterations": fit.n_iterations, "objective": fit.objective,
            "identification": MEAN_ZERO, "n_persons": responses.n_persons,
            "n_comparisons": int(times.sum()),
        },
    )  # fmt: skip


def _check_options(
    pairing: str, n_splits: Any, level: Any, seed: Any, standard_errors: bool, n_items: int
) -> None:
    one_of("pairing", pairing, PAIRINGS)
    whole_number("n_splits", n_splits, 1)
    whole_number("seed", seed, 0)
    if pairing == "all" and n_splits != 1:
        raise InputError(
            f'n_splits={n_splits} with pairing="all": all pairs can be taken only once; use '
            f'n_splits=1 or pairing="random"'
        )
    check_level(level)
    if n_items < 2:
        raise EstimationError("difficulties are relative: at least two items are needed")
    if standard_errors and n_items > _MAX_COVARIANCE:
        raise InputError(
            f"{n_items} items: standard errors need an items x items covariance, which is kept for "
            f"at most {_MAX_COVARIANCE} items; use standard_errors=False or calibrate subsets of "
            f"the items"
        )


# --- comparisons ----------------------------------------------------------------------------------


def _words(draw: tuple[int, int], block: Block) -> Words:
    """One random word for each split and person, by the person's place in the data."""
    seed, n_splits = draw
    keys = (keyed_random.key(seed, "pairing", split) for split in range(n_splits))
    return np.stack([keyed_random.words(k, block.start, block.n_persons)[:, 0] for k in keys])


def _count_random(block: Block, draw: tuple[int, int]) -> tuple[Any, ...]:
    found = [pairs.compare(block.data, words) for words in _words(draw, block)]
    return pairs.count(np.concatenate(found), block.data.shape[1])


def _comparisons(
    responses: Responses, draw: Draw, client: Any, progress: ProgressOption
) -> tuple[Ints, Ints]:
    """Distinct comparisons and how often each occurs."""
    if draw is None:
        differ = pair_counts(responses, client=client, progress=progress)["pair_count"].values
        wrong, right = np.nonzero(differ.T)
        return wrong * responses.n_items + right, differ[right, wrong]
    with Engine(responses, client=client, progress=progress, stage="pairing") as engine:
        code, times = engine.map_reduce(_count_random, draw, report=True, combine=pairs.merge)
    return code, times


def _check_connected(code: Ints, item_id: tuple[str, ...], draw: Draw) -> None:
    """Stop where there is no maximum: each item must be found harder than each other, by a chain of
    comparisons (a strongly connected graph).
    """
    m = len(item_id)
    linked = csr_array((np.ones(code.size, dtype=bool), np.divmod(code, m)), shape=(m, m))
    n, label = connected_components(linked, directed=True, connection="strong")
    if n == 1:
        return
    more = 'more pairs (a larger n_splits, or pairing="all"), ' if draw is not None else ""
    raise EstimationError(
        f"the items fall into {n} groups that the comparisons do not put on one scale: no person "
        f"compared items of two groups, or the same group was always the harder one; use {more}"
        f"fit_spectral, which says nothing certain of such items, or remove items that all or none "
        f"solved. " + list_groups(label, item_id)
    )


# --- uncertainty ----------------------------------------------------------------------------------


def _products(
    block: Block, lo: int, hi: int, draw: Draw, b: Floats, scale: float
) -> tuple[Ints, ...]:
    words = None if draw is None else _words(draw, block)
    return (pairs.score_products(block.data, words, b, scale, lo, hi),)


def score_products(engine: Engine, draw: Draw, b: Floats) -> Floats:
    """Sum over persons of ``u u'``, u the gradient of the person's comparisons at b."""
    n, m = engine.responses.n_persons, engine.responses.n_items
    scale = pairs.score_scale(n, m if draw is None else draw[1])
    return matrices(engine, _products, draw, b, scale, whole=m < MANY_ITEMS)[0] / scale**2


def _covariance(
    responses: Responses, edges: kernels.Comparisons, b: Floats, draw: Draw, client: Any,
    progress: ProgressOption,
) -> Floats:  # fmt: skip
    try:
        with single_threaded():
            inverse = kernels.pseudo_inverse(edges, kernels.information(edges, b))
    except np.linalg.LinAlgError:
        raise EstimationError(
            "the information matrix is singular to working precision: some items are hardly "
            "connected with the others; use standard_errors=False or remove items that almost all "
            "or almost none solved"
        ) from None
    if draw is not None and draw[1] == 1:
        return inverse
    stage = "standard errors"
    with Engine(responses, client=client, progress=progress, stage=stage) as engine:
        return kernels.sandwich(inverse, score_products(engine, draw, b))


def _intervals(b: Floats, covariance: Floats, level: float) -> dict[str, Floats]:
    se = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    half = NormalDist().inv_cdf(0.5 + 0.5 * level) * se
    return {
        "item_difficulty_se": se,
        "item_difficulty_lower": b - half,
        "item_difficulty_upper": b + half,
        "item_difficulty_covariance": covariance,
    }
