"""Conditional maximum likelihood of the Rasch model: item difficulties without any ability.

Given the items that a person answered and the raw score on them, the probability of the responses
does not depend on the ability (Rasch 1960, Andersen 1970).  Its maximum over all persons is
consistent whatever the distribution of abilities, with few items too.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.linalg
import xarray as xr
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.rasch.pair_counts import MEAN_ZERO
from irt_dask.calibrate.shared.start_values import list_groups
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import ConvergenceWarning, EstimationError, InputError
from irt_dask.items import checks
from irt_dask.kernels.pairs import symmetric_functions
from irt_dask.kernels.responses import item_sets
from irt_dask.kernels.responses.item_sets import Sets
from irt_dask.store import Block

#: The information of 5,000 items takes 200 MB; sets of 2 * 10^7 items in all take 0.5 GB.
_MAX_ITEMS, _MAX_CELLS = 5_000, 20_000_000
#: Largest change of a difficulty in a step, logits; halvings of a step.
_LONGEST_STEP, _HALVINGS = 3.0, 40
#: Rounding error of the log-likelihood, relative to its terms.
_ROUNDING = 1e-12


def _sets(block: Block) -> tuple[Any, ...]:
    return _bounded(item_sets.observed_sets(block.data))


def _merge(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    return _bounded(item_sets.merge(Sets(*left), Sets(*right)))


def _bounded(sets: Sets) -> Sets:
    if sets.items.size > _MAX_CELLS:
        raise InputError(
            f"persons answered {sets.n_sets} different sets of items or more, together of "
            f"{sets.items.size} items: fit_conditional keeps sets of {_MAX_CELLS} items in all; "
            f"use fit_spectral, whose work does not depend on who answered what, or select fewer "
            f"items"
        )
    return sets


def _taken(values: NDArray[Any], start: Ints, length: Ints) -> NDArray[Any]:
    """Return pieces of an array, one after the other."""
    ends = np.cumsum(length)
    return values[np.repeat(start - ends + length, length) + np.arange(length.sum())]


def _informative(sets: Sets) -> Sets:
    """Leave out persons all right or all wrong, and sets of nobody else; in a fixed order."""
    start, length = sets.indptr[:-1], np.diff(sets.indptr)
    first = start + np.arange(sets.n_sets)
    last, scores = first + length, sets.scores.copy()
    right = sets.right - np.repeat(scores[last], length)
    scores[first] = scores[last] = 0
    kept = np.flatnonzero(np.add.reduceat(scores, first))
    key = [sets.items[start[g] : start[g] + length[g]].astype(">i4").tobytes() for g in kept]
    kept = kept[sorted(range(kept.size), key=key.__getitem__)]
    return Sets(
        np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(length[kept])]),
        _taken(sets.items, start[kept], length[kept]),
        _taken(right, start[kept], length[kept]),
        _taken(scores, first[kept], length[kept] + 1),
    )


def _check_connected(sets: Sets, item_id: tuple[str, ...]) -> None:
    """Stop unless the estimates exist and are finite (Fischer 1981); name what falls apart."""
    linked = csr_array(item_sets.links(sets, len(item_id)))
    n, label = connected_components(linked, directed=True, connection="strong")
    if n == 1:
        return
    raise EstimationError(
        f"the items fall into {n} groups that the responses do not put on one scale: between two "
        f"groups, everybody who was right on some items and wrong on others was right on the same "
        f"group, or nobody answered both; remove items that all or none solved, calibrate each "
        f"group by itself, or use fit_spectral, which regularizes. " + list_groups(label, item_id)
    )


def _start(sets: Sets, m: int) -> Floats:
    """Difficulties from the share of right answers of each item."""
    persons = np.add.reduceat(sets.scores, sets.indptr[:-1] + np.arange(sets.n_sets))
    seen = np.bincount(sets.items, np.repeat(persons, np.diff(sets.indptr)), minlength=m)
    right = np.bincount(sets.items, sets.right, minlength=m)
    b = np.log((seen - right + 0.5) / (right + 0.5))
    return b - b.mean()


def _factor(information: Floats) -> tuple[Any, float]:
    """Cholesky factors of the information, made regular along the constant vector, and by what."""
    shift = float(np.trace(information)) / len(information) ** 2
    try:
        return scipy.linalg.cho_factor(information + shift), shift
    except scipy.linalg.LinAlgError:
        raise EstimationError(
            "the conditional information of the items is singular to working precision: too few "
            "persons link some items to the others; remove items that almost all or almost none "
            "solved, or use fit_spectral, which regularizes"
        ) from None


def _maximise(
    sets: Sets, m: int, max_iterations: int, tolerance: float, engine: Engine
) -> tuple[Floats, int, bool]:
    """Newton's method on the concave log-likelihood, steps halved until it does not fall."""
    b = _start(sets, m)
    for iteration in range(1, max_iterations + 1):
        value, gradient, information = symmetric_functions.derivatives(sets, b)
        step = scipy.linalg.cho_solve(_factor(information)[0], gradient)
        step -= step.mean()
        step *= min(1.0, _LONGEST_STEP / max(np.abs(step).max(), 1e-300))
        noise = _ROUNDING * (abs(value) + float(np.abs(b)[sets.items] @ sets.right))
        for _ in range(_HALVINGS):
            reached = symmetric_functions.log_likelihood(sets, b + step)
            if reached >= value - noise:
                break
            step /= 2.0
        else:
            return b, iteration, False
        b = b + step
        b -= b.mean()
        engine.progress.update(iteration, max_iterations)
        if np.abs(step).max() <= tolerance:
            return b, iteration, True
    return b, max_iterations, False


def fit_conditional(
    responses: Any,
    *,
    max_iterations: int = 50,
    tolerance: float = 1e-8,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Rasch difficulties by conditional maximum likelihood, with standard errors.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    max_iterations : int
        Newton steps at most; some six suffice.
    tolerance : float
        Stop when no difficulty changes by more than this, logits.

    Returns
    -------
    Dataset over items
        ``item_difficulty``, of mean 0, and ``item_difficulty_se``, from the inverse of the observed
        conditional information on vectors of sum 0; ``item_flag``.  ``attrs["objective"]`` is the
        conditional log-likelihood of all persons; ``n_informative`` counts the persons neither all
        right nor all wrong on their items (the others say nothing), ``n_patterns`` the different
        sets of items that these answered.

    Raises
    ------
    InputError
        For more than 5,000 items, or if persons answered so many different sets of items that
        these together have more than 2 * 10^7.
    EstimationError
        If the estimates are not finite or not unique: the links from items that somebody was right
        on to those the same person was wrong on must connect all items both ways (Fischer 1981).

    Warns
    -----
    ConvergenceWarning
        If ``max_iterations`` steps do not suffice.
    ItemWarning
        Some items are flagged.

    Notes
    -----
    One pass over the data (and two for flags), to right answers by item and persons by score for
    each set of items; then the driver alone, some six steps.  A step costs about k^2 (10 + k / 50)
    ns for each set of k items (100 items: 0.1 ms) and 2 k^2 operations for each score that occurs
    in it (1,000 complete items: 0.2 s).  Driver memory: 60 bytes for each item of each set, 40
    bytes x items^2, 24 bytes x items^2 of the largest set.  With complete data there is one set.
    Weights would need another variance, from more than these counts, and are refused.

    Source: Andersen (1970, 1972); Fischer (1981), *Psychometrika* 46, for existence; the
    recursions are described in ``irt_dask.kernels.pairs.symmetric_functions``.

    Examples
    --------
    >>> import irt_dask as irt
    >>> fit = irt.fit_conditional(irt.load_lsat())
    >>> fit["item_difficulty"].round(2).values.tolist()
    [-1.26, 0.47, 1.24, 0.17, -0.62]
    >>> fit["item_difficulty_se"].round(2).values.tolist()
    [0.1, 0.07, 0.07, 0.07, 0.09]
    """
    whole_number("max_iterations", max_iterations, 1)
    if not (np.isfinite(tolerance) and tolerance > 0):
        raise InputError(f"tolerance={tolerance} must be finite and above 0")
    responses = as_responses(responses, "fit_conditional")
    refuse_weights(responses, "fit_conditional")
    m = responses.n_items
    if m < 2:
        raise EstimationError("difficulties are relative: at least two items are needed")
    if m > _MAX_ITEMS:
        raise InputError(
            f"{m} items: fit_conditional takes {_MAX_ITEMS} at most, whose information matrix the "
            f"driver holds; use fit_spectral, or calibrate subsets of the items"
        )
    with Engine(responses, client=client, progress=progress, stage="conditional") as engine:
        sets = _informative(Sets(*engine.map_reduce(_sets, combine=_merge)))
        _check_connected(sets, responses.item_id)
        b, n_iterations, converged = _maximise(sets, m, max_iterations, tolerance, engine)
        value, _, information = symmetric_functions.derivatives(sets, b)
        factors, shift = _factor(information)
        variance = np.diag(scipy.linalg.cho_solve(factors, np.eye(m))) - 1.0 / (shift * m**2)
        data = {"item_difficulty": b, "item_difficulty_se": np.sqrt(variance)}
        data["item_flag"] = checks.flags(data, seen=checks.count(engine))
    checks.warn(data["item_flag"], responses.item_id)
    if not converged:
        warnings.warn(
            f"conditional maximum likelihood did not converge to tolerance={tolerance} in "
            f"{n_iterations} steps; raise max_iterations or tolerance",
            ConvergenceWarning,
            stacklevel=2,
        )
    return dataset(
        data,
        item_id=responses.item_id,
        attrs={
            "method": "conditional maximum likelihood", "model": "1pl", "objective": value,
            "converged": converged, "n_iterations": n_iterations, "identification": MEAN_ZERO,
            "n_persons": responses.n_persons, "n_informative": int(sets.scores.sum()),
            "n_patterns": sets.n_sets,
        },
    )  # fmt: skip
