"""Fit of persons: infit, outfit and l_z*, block by block."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.engine import (
    Engine,
    ProgressOption,
    as_responses,
    dataset,
    person_files,
    refuse_weights,
)
from irt_dask.engine.cache import read_block
from irt_dask.engine.identity import identified
from irt_dask.errors import InputError
from irt_dask.evaluate.abilities import Known, checked, choose, parts
from irt_dask.kernels.misfit import person_fit as kernel
from irt_dask.kernels.misfit import predicted_scores
from irt_dask.kernels.responses import response_counts
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.store import Block

_MAX_IN_MEMORY = 10_000_000
_NAMES = ("person_infit", "person_outfit", "person_lz")
#: One-sided 5% and 1% points of l_z*: low values are unlikely patterns.
_LOW = (-1.6448536269514722, -2.3263478740408408)
#: Middles of the classes that l_z* is counted in, .25 wide; the outer two have all that is beyond.
_MIDDLES = np.linspace(-5.0, 5.0, 41)


def _sums(values: Floats) -> Ints:
    """Persons with l_z*, those below each of the low values, and those in each class."""
    lz = values[2][~np.isnan(values[2])]
    inner = (_MIDDLES[1:] + _MIDDLES[:-1]) / 2.0
    count = np.bincount(np.searchsorted(inner, lz, side="right"), minlength=_MIDDLES.size)
    return np.array([lz.size, *((lz < low).sum() for low in _LOW), *count], dtype=np.int64)


def _block(block: Block, known: Known) -> tuple[Floats, Ints]:
    values = np.concatenate([_values(data, known) for data in parts(block.data)], axis=1)
    return values, _sums(values)


def _values(data: Layout, known: Known) -> Floats:
    if known.graded:
        squares = predicted_scores.mean_squares(data, known.moments(data))
    else:
        squares = kernel.mean_squares(data, known.left_out(data))
    return np.vstack([squares, kernel.standardised(data, known.modes(data), known.between())])


def _write(ref: Any, known: Known, folder: str) -> Ints:
    block = read_block(ref)
    values, sums = _block(block, known)
    columns: dict[str, Any] = dict(zip(_NAMES, values, strict=True))
    columns["n_responses"] = response_counts.responses_per_person(block.data)
    person_files.write_block(ref, block.index, columns, folder)
    return sums


def _person_ids(ref: Any) -> NDArray[Any]:
    return ref.person_ids()


def person_fit(
    responses: Any,
    items: xr.Dataset,
    *,
    ability: tuple[float, float] | None = None,
    store: str | Path | None = None,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Fit of each person: infit, outfit and the standardised log-likelihood l_z*.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    items : Dataset
        A fit or an item bank, matched by identifier.
    ability : (mean, sd), optional
        Normal distribution of the persons' abilities on the scale of the items.  Default: the one
        of the highest marginal likelihood (EM, items held); of a fit with ``latent="histogram"``
        its histogram.
    store : path, optional
        Folder for one Parquet file per block (``person_id, person_infit, person_outfit, person_lz,
        n_responses``), written by the workers.  Without it the values are returned, up to 10^7
        persons.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset
        Without ``store``, over persons: ``person_infit`` and ``person_outfit``, mean squares of
        residuals as in ``item_fit`` (each response predicted from the person's others: 1 on average
        under the model), and ``person_lz``, about N(0, 1) under the model, low for unlikely
        patterns.  NaN: no response, or l_z* without variance (all answers right or wrong say
        nothing about fit where the weights leave none; equal items).  Always: ``lz_count`` over
        ``lz``, persons by l_z* in classes of .25 with these middles, of which the outer two have
        all persons beyond.  attrs: ``n_lz``, persons with l_z*; ``share_below_5`` and
        ``share_below_1``, the shares of them below the one-sided 5% and 1% points of N(0, 1);
        ``ability_mean``, ``ability_sd``.

    Raises
    ------
    InputError
        If an item of the responses is not among the items, the folder exists, or there are more
        than 10^7 persons and no folder.
    EstimationError
        If no response is observed.

    Notes
    -----
    One pass over the data, and one for each EM step (some ten) unless ``ability`` is given.  Driver
    memory: next to none with ``store``, else 24 bytes a person and the identifiers.

    All persons come from one normal distribution.  Where groups of other ability were given other
    items mean squares are a little above 1 (groups at -1 and 1, 15 items, ten each: outfit 1.09,
    infit 1.02; l_z* is right): look at each group by itself then.

    l_z* takes the most likely ability under the normal prior (MAP) and corrects for its estimation;
    plain l_z has too little variance.  On tests of fewer than some 20 items its lower tail is
    heavier than normal.  Sources: Drasgow, Levine and Williams (1985); Snijders (2001); Wright and
    Masters (1982).

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(1000, 30, seed=1)
    >>> tests = irt.person_fit(responses, irt.fit_marginal(responses))
    >>> tests["person_lz"].sizes["persons"]
    1000
    >>> round(tests.attrs["share_below_5"], 2)
    0.06
    """
    responses = as_responses(responses, "person_fit", graded=True, items=items)
    refuse_weights(responses, "person_fit")
    given = checked(ability)
    if store is None and responses.n_persons > _MAX_IN_MEMORY:
        raise InputError(
            f"{responses.n_persons} persons: more than {_MAX_IN_MEMORY} values are not returned in "
            f"memory; give store=PATH to have them written"
        )
    persons: dict[str, Any] = {}
    coords: dict[str, Any] = {}
    with Engine(
        responses, client=client, progress=progress, stage="person fit", graded=True
    ) as engine:
        if store is not None:
            responses = identified(engine)  # for the folder's description
        known, attrs = choose(engine, items, given)
        if store is None:
            blocks = engine.map_blocks(_block, known, report=True)
            values = np.concatenate([b[0] for b in blocks], axis=1)
            persons = dict(zip(_NAMES, values, strict=True))
            ids = np.concatenate(engine.map_refs(_person_ids))
            coords["person_id"] = ids.astype(str, copy=False)
            sums = np.sum([b[1] for b in blocks], axis=0)
        else:
            folder = person_files.new_folder(store)
            sums = np.sum(engine.map_refs(_write, known, str(folder), report=True), axis=0)
    n, *low = (int(x) for x in sums[:3])
    attrs = {
        "method": "person fit",
        **attrs,
        "n_lz": n,
        **{f"share_below_{k}": x / n if n else math.nan for k, x in zip((5, 1), low, strict=True)},
        "store": None if store is None else str(folder),
    }
    if store is not None:
        person_files.finish(folder, responses, attrs)
    coords["lz"] = _MIDDLES
    return dataset({**persons, "lz_count": sums[3:]}, coords=coords, attrs=attrs)
