"""Correlations of residuals between items (Q3): the largest pairs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import EstimationError
from irt_dask.evaluate.abilities import Known, checked, choose
from irt_dask.items import checks
from irt_dask.kernels.misfit import residual_products
from irt_dask.kernels.responses import response_counts
from irt_dask.kernels.responses.layouts import columns
from irt_dask.store import Block

#: Items of a tile: sums of two tiles take 48 bytes times its square.
TILE = 1024


class _Pairs(NamedTuple):
    first: Ints
    second: Ints
    q3: Floats
    n: Ints


def _products(block: Block, known: Known, lo: int, hi: int, lo2: int, hi2: int) -> tuple[Any, ...]:
    """Sums of the pairs of items of two tiles, or of one twice."""
    theta = known.expectations(block.data)[0]
    items = np.arange(lo, hi)
    second = slice(0, hi - lo)
    if lo2 != lo:
        items = np.concatenate([items, np.arange(lo2, hi2)])
        second = slice(hi - lo, items.size)
    data = block.data if items.size == block.data.shape[1] else columns(block.data, items)
    g = known.between(known.items.take(items))
    return (residual_products.residual_products(data, theta, g, slice(0, hi - lo), second),)


def _counts(block: Block, first: Ints) -> tuple[Ints]:
    return (response_counts.category_counts(block.data, first),)


def _varies(engine: Engine, first: Ints) -> Bools:
    """Items on which not all persons gave one answer; warns of the others.

    Residuals of such an item are what the model says at each ability, and those of two go together
    whatever the persons do.
    """
    (counts,) = engine.map_reduce(_counts, first)
    seen, most = (f.reduceat(counts, first[:-1]) for f in (np.add, np.maximum))
    alike = (seen > 0) & (most == seen)
    ids = engine.responses.item_id
    reasons = {ids[j]: "all answers are the same" for j in np.flatnonzero(alike)}
    checks.left_out(reasons, alike.size, "are in no pair", stacklevel=3)
    return np.asarray(~alike)


def residual_correlations(
    responses: Any,
    items: xr.Dataset,
    *,
    largest: int = 50,
    least: int = 30,
    ability: tuple[float, float] | None = None,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Yen's Q3: correlations of residuals between items, the largest in absolute value.

    A large one tells of local dependence: two items share more than ability.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    items : Dataset
        A fit or an item bank, matched by identifier.
    largest : int
        Pairs to return, at most.
    least : int
        Pairs that fewer persons answered are left out, also of the mean.
    ability : (mean, sd), optional
        Normal distribution of the persons' abilities on the scale of the items.  Default: the one
        of the highest marginal likelihood (EM, items held); of a fit with ``latent="histogram"``
        its histogram.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over pairs, by absolute correlation
        ``pair_first``, ``pair_second``: items; ``pair_q3``: correlation of ``y - E(y | EAP)`` over
        the persons who answered both; ``pair_q3_adjusted``: less the mean over all pairs, which is
        about ``-1 / (items - 1)`` under the model; ``pair_n_persons``.  attrs: ``mean_q3``,
        ``n_pairs`` (of which it is the mean), ``ability_mean``, ``ability_sd``.

    Raises
    ------
    InputError
        If an item of the responses is not among the items, or an option is wrong.
    EstimationError
        If no pair of items has ``least`` persons and residuals that vary.

    Warns
    -----
    ItemWarning
        Items to which all persons gave the same answer are in no pair: they are named.

    Notes
    -----
    Items are taken in tiles of 1,024, ``k`` of them: ``k (k + 1) / 2`` passes over the data, each
    over one pair of tiles, besides one and one for each EM step (some ten).  Memory of the driver
    and of a task: 48 bytes x 1,024^2 some times, however many items there are.
    Source: Yen (1984); Christensen, Makransky and Horton (2017).

    Examples
    --------
    >>> import irt_dask as irt
    >>> answers = irt.simulate(1000, 20, seed=1).to_xarray()["response"].values
    >>> answers[::2, 1] = answers[::2, 0]  # half of the persons answer both items alike
    >>> responses = irt.from_array(answers)
    >>> pairs = irt.residual_correlations(responses, irt.fit_marginal(responses))
    >>> top = pairs.isel(pairs=0)
    >>> top["pair_first"].item(), top["pair_second"].item(), top["pair_q3"].round(1).item()
    ('0', '1', 0.4)
    """
    responses = as_responses(responses, "residual_correlations", graded=True, items=items)
    refuse_weights(responses, "residual_correlations")
    whole_number("largest", largest, 1)
    whole_number("least", least, 2)
    given = checked(ability)
    m = responses.n_items
    tiles = [(lo, min(lo + TILE, m)) for lo in range(0, m, TILE)]
    both = [(one, two) for k, one in enumerate(tiles) for two in tiles[k:]]
    none = np.zeros(0, dtype=np.int64)
    kept = _Pairs(none, none, np.zeros(0), none)
    total, n_pairs = 0.0, 0
    with Engine(
        responses, client=client, progress=progress, stage="correlations", graded=True
    ) as engine:
        known, attrs = choose(engine, items, given)
        varies = _varies(engine, known.items.first)
        for k, (one, two) in enumerate(both, start=1):
            sums = engine.map_reduce(_products, known, *one, *two)[0]
            found = _among(varies, _correlations(sums, one[0], two[0], least))
            total, n_pairs = total + math.fsum(found.q3), n_pairs + found.q3.size
            kept = _largest(kept, found, largest)
            engine.progress.update(k, len(both))
    if n_pairs == 0:
        raise EstimationError(
            f"no two items have residuals of at least least={least} persons who answered both; "
            f"lower least, or give more persons"
        )
    mean = total / n_pairs
    names = np.array(responses.item_id, dtype=str)
    return dataset(
        {
            "pair_first": names[kept.first],
            "pair_second": names[kept.second],
            "pair_q3": kept.q3,
            "pair_q3_adjusted": kept.q3 - mean,
            "pair_n_persons": kept.n,
        },
        attrs={"method": "residual correlations", **attrs, "mean_q3": mean, "n_pairs": n_pairs},
    )


def _correlations(sums: Ints, lo: int, lo2: int, least: int) -> _Pairs:
    """Correlations of the pairs of a tile, each pair once."""
    first, second = np.nonzero(sums[0] >= least)
    above = lo + first < lo2 + second
    first, second = first[above], second[above]
    n, s1, s2, q1, q2, cross = sums[:, first, second].astype(float)
    v1, v2 = q1 - s1 * s1 / n, q2 - s2 * s2 / n
    varies = (v1 > 0.0) & (v2 > 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        q3 = (cross - s1 * s2 / n) / np.sqrt(v1 * v2)
    return _Pairs(
        (lo + first)[varies], (lo2 + second)[varies], q3[varies], n[varies].astype(np.int64)
    )


def _among(varies: Bools, found: _Pairs) -> _Pairs:
    """Pairs of two such items."""
    kept = varies[found.first] & varies[found.second]
    return _Pairs(found.first[kept], found.second[kept], found.q3[kept], found.n[kept])


def _largest(kept: _Pairs, found: _Pairs, largest: int) -> _Pairs:
    """The largest of both, ties in the order of the items."""
    first = np.concatenate([kept.first, found.first])
    second = np.concatenate([kept.second, found.second])
    q3, n = np.concatenate([kept.q3, found.q3]), np.concatenate([kept.n, found.n])
    order = np.lexsort((second, first, -np.abs(q3)))[:largest]
    return _Pairs(first[order], second[order], q3[order], n[order])
