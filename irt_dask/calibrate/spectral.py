"""The spectral estimator of the Rasch model: difficulties from the counts of pairs of items.

Nguyen and Zhang, "A Spectral Approach to Item Response Theory".  ``Y_ij``, the persons right on i
and wrong on j, define a Markov chain on the items whose stationary distribution is proportional to
``exp(difficulty)``; no ability is estimated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
import xarray as xr
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import EstimationError, InputError
from irt_dask.kernels import counts as kernels
from irt_dask.store import Block

Floats = NDArray[np.float64]

#: Counts are items x items: 10,000 items take 1.6 GB.
_MAX_ITEMS = 10_000
_MAX_RESIDUAL = 1e-9


#: From so many items on, or where persons are few next to items, a task counts some rows of the
#: matrices over all blocks instead of all rows of one block.
_MANY_ITEMS, _SOME_ITEMS, _FEW_PERSONS = 2048, 256, 16


def _count(block: Block) -> tuple[Any, ...]:
    return tuple(kernels.pair_counts(block.data))


def _count_rows(blocks: Iterator[Block], lo: int, hi: int) -> tuple[Any, ...]:
    """Rows ``lo .. hi`` over all blocks, as 32-bit integers where these hold the counts."""
    differ, both = kernels.pair_strip(next(blocks).data, lo, hi)
    for block in blocks:
        more = kernels.pair_strip(block.data, lo, hi)
        differ += more[0]
        both += more[1]
    kind = np.int32 if both.max(initial=0) < 1 << 31 else np.int64
    return differ.astype(kind), both.astype(kind)


def _counts(engine: Engine) -> tuple[Any, Any]:
    n, m = engine.responses.n_persons, engine.responses.n_items
    if m < _MANY_ITEMS and (m < _SOME_ITEMS or n >= _FEW_PERSONS * m):
        return engine.map_reduce(_count, report=True)
    differ, both = np.empty((m, m), dtype=np.int64), np.empty((m, m), dtype=np.int64)
    for lo, hi, rows in engine.map_items(_count_rows, report=True):
        differ[lo:hi], both[lo:hi] = rows
    return differ, both


def pair_counts(
    responses: Any, *, client: Any = None, progress: ProgressOption = None
) -> xr.Dataset:
    """Count, for every pair of items, the persons right on one and wrong on the other.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.

    Returns
    -------
    Dataset over items x items_
        ``pair_count``: right on the row item, wrong on the column item; ``pair_observed``: both
        observed.  Exact integers.

    Raises
    ------
    InputError
        For more than 10,000 items, whose dense counts would not fit a driver.

    Notes
    -----
    One pass, or one for each task where items are many (from 2,048, or from 256 if persons are
    fewer than 16 times the items).  Driver memory: 16 bytes x items^2, below 2,048 items times the
    tasks in flight.  Source: equation (2).
    """
    responses = as_responses(responses)
    refuse_weights(responses, "pair_counts")
    if responses.n_items > _MAX_ITEMS:
        raise InputError(
            f"{responses.n_items} items: counts of all pairs are kept for at most {_MAX_ITEMS} "
            f"items; calibrate subsets of the items"
        )
    with Engine(responses, client=client, progress=progress, stage="pairs") as engine:
        differ, both = _counts(engine)
    return dataset(
        {"pair_count": differ, "pair_observed": both},
        item_id=responses.item_id,
        attrs={"method": "pair counts", "n_persons": responses.n_persons},
    )


def stationary(rates: Floats) -> Floats:
    """Stationary distribution of the continuous-time chain with these rates i -> j (i != j).

    Solves ``pi (Y - diag(Y 1)) = 0``, one equation replaced by ``sum pi = 1``.  Row scaling by d_i
    (the accelerated chain of equation (5)) is undone by the post-processing ``pi_i / d_i`` of
    Algorithm 2, so both algorithms have this solution (Theorem 4.1).
    """
    generator = rates.copy()
    scale = rates.sum(axis=1)
    np.fill_diagonal(generator, -scale)
    # Equilibrate: unknown z_i = pi_i d_i, the stationary distribution of the accelerated chain.
    generator /= scale[:, None]
    last = generator[:, -1].copy()
    system = generator.T
    system[-1] = 1.0
    rhs = np.zeros(len(rates))
    rhs[-1] = 1.0
    factors = scipy.linalg.lu_factor(system, check_finite=False)
    z = scipy.linalg.lu_solve(factors, rhs)
    z += scipy.linalg.lu_solve(factors, rhs - system @ z)  # one step of refinement
    system[-1] = last
    residual = np.abs(system @ z).max() / np.abs(z).max()
    if not (z > 0).all() or not residual < _MAX_RESIDUAL:
        raise EstimationError(
            f"the stationary distribution of the item chain could not be computed (residual "
            f"{residual:.3g}): some items are almost never solved, or almost always; use "
            f"regularization=1.0 or remove them"
        )
    pi = z / scale
    return pi / pi.sum()


def _reaches_all(linked: NDArray[np.bool_]) -> bool:
    """Whether every item can be reached from the first along links row -> column."""
    reached = np.zeros(len(linked), dtype=bool)
    reached[0] = True
    new = reached
    while new.any():
        new = linked[np.flatnonzero(new)].any(axis=0) & ~reached
        reached = reached | new
    return bool(reached.all())


def _check_connected(rates: Floats, item_id: tuple[str, ...], nu: float) -> None:
    """Explain which items cannot be placed on one scale."""
    linked = rates > 0
    if _reaches_all(linked) and _reaches_all(linked.T):
        return
    n, label = connected_components(csr_array(linked), directed=True, connection="strong")
    sizes = np.bincount(label)
    groups = [
        f"{sizes[c]} item(s): " + ", ".join([item_id[j] for j in np.flatnonzero(label == c)][:10])
        for c in np.argsort(-sizes, kind="stable")[:10]
    ]
    remedy = (
        "no person answered items of two groups: calibrate each group by itself"
        if nu > 0
        else "everyone who answered items of two groups was right on the same one, or nobody "
        "answered both: use regularization=1.0 or remove items that all or none solved"
    )
    raise EstimationError(
        f"the items fall into {n} groups that the responses do not put on one scale; {remedy}. "
        f"Groups: " + "; ".join(groups)
    )


def fit_spectral(
    responses: Any,
    *,
    regularization: float = 1.0,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Rasch difficulties by the accelerated, regularised spectral estimator.

    Parameters
    ----------
    responses : Responses, anything ``from_array`` takes, or the Dataset of :func:`pair_counts`.
    regularization : float
        nu, added to the counts of every pair of items that some person answered both of.  Keeps
        difficulties finite; biases them towards 0 by O(nu / n).  0 switches it off.

    Returns
    -------
    Dataset over items
        ``item_difficulty``, of mean 0.  No standard errors.

    Raises
    ------
    EstimationError
        If the items are not connected (it lists the groups).

    Notes
    -----
    One pass over the data, none if given pair counts; items^3 on the driver.  The fit maximises no
    likelihood of the full data, so attrs hold no ``objective``.  Source: Algorithm 2, section 4.
    """
    if not (np.isfinite(regularization) and regularization >= 0):
        raise InputError(f"regularization={regularization} must be finite and at least 0")
    counts = (
        responses
        if isinstance(responses, xr.Dataset) and "pair_count" in responses
        else pair_counts(responses, client=client, progress=progress)
    )
    item_id = tuple(str(i) for i in counts["item_id"].values)
    n_persons = counts.attrs["n_persons"]
    rates = counts["pair_count"].values.astype(float)
    np.add(rates, regularization, out=rates, where=counts["pair_observed"].values > 0)
    np.fill_diagonal(rates, 0.0)
    del counts  # as large as what follows
    if len(item_id) < 2:
        raise EstimationError("difficulties are relative: at least two items are needed")
    _check_connected(rates, item_id, regularization)
    with single_threaded():  # other bits on other numbers of threads
        beta = np.log(stationary(rates))
    return dataset(
        {"item_difficulty": beta - beta.mean()},
        item_id=item_id,
        attrs={
            "method": "spectral",
            "model": "1pl",
            "regularization": regularization,
            "converged": True,
            "n_iterations": 1,
            "identification": "mean difficulty 0, discrimination 1",
            "n_persons": n_persons,
        },
    )
