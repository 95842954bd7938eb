"""Counts of all pairs of items, over blocks of persons or over ranges of items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Ints
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset
from irt_dask.errors import InputError
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.pairs import pair_counts as pairs
from irt_dask.store import Block

#: Identification of Rasch difficulties.
MEAN_ZERO = "mean difficulty 0, discrimination 1"
#: Counts are items x items: 10,000 items take 1.6 GB.
MAX_ITEMS = 10_000
#: From so many items on, or where persons are few next to items, a task counts some rows of the
#: matrices over all blocks instead of all rows of one block.
MANY_ITEMS, _SOME_ITEMS, _FEW_PERSONS = 2048, 256, 16
#: Person weights are counted in units of the largest over 2^24.
_WEIGHT_BITS = 24

#: Rows ``lo .. hi`` of some matrices, of a block: ``step(block, lo, hi, *args)``.
Strip = Callable[..., tuple[Ints, ...]]


def _whole(block: Block, step: Strip, args: tuple[Any, ...]) -> tuple[Ints, ...]:
    return step(block, 0, block.data.shape[1], *args)


def _strip_of_all(
    blocks: Iterator[Block], lo: int, hi: int, step: Strip, args: tuple[Any, ...]
) -> list[Ints]:
    """Rows over all blocks, as 32-bit integers where these hold them."""
    totals = list(step(next(blocks), lo, hi, *args))
    for block in blocks:
        for total, more in zip(totals, step(block, lo, hi, *args), strict=True):
            total += more
    return [x.astype(np.int32) if np.abs(x).max(initial=0) < 1 << 31 else x for x in totals]


def matrices(engine: Engine, step: Strip, *args: Any, whole: bool | None = None) -> list[Ints]:
    """Sum ``step(block, lo, hi, *args)``, rows of items x items matrices, over all blocks.

    ``whole`` says whether a task treats all rows of a block, or some rows of all blocks.
    """
    n, m = engine.responses.n_persons, engine.responses.n_items
    if whole is None:
        whole = m < MANY_ITEMS and (m < _SOME_ITEMS or n >= _FEW_PERSONS * m)
    if whole:
        return list(engine.map_reduce(_whole, step, args, report=True))
    out: list[Ints] = []
    for lo, hi, rows in engine.map_items(_strip_of_all, step, args, report=True):
        out = out or [np.empty((m, m), dtype=np.int64) for _ in rows]
        for matrix, part in zip(out, rows, strict=True):
            matrix[lo:hi] = part
    return out


def _counts(block: Block, lo: int, hi: int, scale: float) -> tuple[Ints, ...]:
    if block.weight is None:
        return pairs.pair_strip(block.data, lo, hi)
    if block.times is not None:
        weight = block.times
    else:
        weight = np.maximum(fixed_point.fixed(block.weight, scale), 1)  # whoever answered counts
    wanted = [("right", "wrong", weight), ("any", "any", weight)]
    return pairs.weighted_strips(block.data, wanted, lo, hi)


def count(engine: Engine) -> tuple[Any, Any]:
    """Right on the row item and wrong on the column item; both observed: persons or weights."""
    r = engine.responses
    if not engine.sampled:
        differ, both = matrices(engine, _counts, 1.0)
        return differ, both
    assert r.max_weight is not None
    scale = 2.0 ** (_WEIGHT_BITS - int(np.ceil(np.log2(r.max_weight))))
    differ, both = matrices(engine, _counts, scale)
    return differ / scale, both / scale


def pair_counts(
    responses: Any, *, client: Any = None, progress: ProgressOption = None
) -> xr.Dataset:
    """Count, for every pair of items, the persons right on one and wrong on the other.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
        With sampling weights their sums are returned, on the scale on which the mean weight is 1
        (rounded to 2^-24 of the largest); with frequencies counts of persons.

    Returns
    -------
    Dataset over items x items_
        ``pair_count``: right on the row item, wrong on the column item; ``pair_observed``: both
        observed.  Exact integers without sampling weights.

    Raises
    ------
    InputError
        For more than 10,000 items, whose counts of all pairs would not fit a driver.

    Notes
    -----
    One pass, or one for each task where items are many (from 2,048, or from 256 if persons are
    fewer than 16 times the items).  Driver memory: 16 bytes x items^2, below 2,048 items times the
    tasks in flight.  Source: Nguyen and Zhang, "A Spectral Approach to Item Response Theory",
    equation (2).

    Examples
    --------
    >>> import irt_dask as irt
    >>> counts = irt.pair_counts(irt.load_lsat())
    >>> counts["pair_count"].values[:2].tolist()
    [[0, 260, 400, 214, 118], [45, 0, 291, 156, 79]]
    """
    responses = as_responses(responses, "pair_counts")
    if responses.n_items > MAX_ITEMS:
        raise InputError(
            f"{responses.n_items} items: counts of all pairs are kept for at most {MAX_ITEMS} "
            f"items; fit_spectral and fit_pairwise go further without them"
        )
    with Engine(responses, client=client, progress=progress, stage="pairs") as engine:
        differ, both = count(engine)
    return dataset(
        {"pair_count": differ, "pair_observed": both},
        item_id=responses.item_id,
        attrs={"method": "pair counts", "n_persons": engine.n_persons, **engine.weight_attrs},
    )
