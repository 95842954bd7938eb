"""A coreset as data: the drawn persons, their weights and responses, and how good the sample is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.joint import person_step
from irt_dask.calibrate.joint.coreset_draws import Sample, draw
from irt_dask.calibrate.joint.coreset_spec import LABELS, Coreset, Labels
from irt_dask.calibrate.joint.item_step import AtAbilities
from irt_dask.calibrate.joint.rounds import counted
from irt_dask.curves.item_set import Group, ItemSet
from irt_dask.curves.logistic import INTERCEPT, SLOPE
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.errors import InputError
from irt_dask.items.known_models import refuse_falling
from irt_dask.items.parameters import item_set
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.joint.item_maximum import Counts
from irt_dask.kernels.joint.parameters import Items
from irt_dask.kernels.responses import layouts

if TYPE_CHECKING:
    import pandas as pd


#: Cells of the returned responses, one byte each.
MAX_CELLS = 1 << 30
#: Random parameters of every item at which sample and data are compared.
_DIRECTIONS = 100


def _person_ids(ref: Any, rows: Ints, starts: Ints) -> Any:
    """Identifiers of the rows that lie in a block; one without any is not read."""
    k = np.searchsorted(starts, ref.start, side="right")
    end = starts[k] if k < starts.size else np.iinfo(np.int64).max
    own = rows[(rows >= ref.start) & (rows < end)] - ref.start
    return ref.person_ids()[own] if own.size else np.zeros(0, dtype=object)


def draw_coreset(
    responses: Any,
    items: xr.Dataset,
    size: int,
    *,
    method: str = "root-leverage",
    sampling: str = "replacement",
    seed: int = 0,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Draw a weighted sample of persons on which any items fit about as well as on all.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes, without person weights
    items : Dataset
        A fit or an item bank; abilities are the most likely ones in [-6, 6] under these items.
    size, method, sampling
        As of :class:`irt_dask.Coreset`.
    seed : int
        Of the draws; the same sample whatever the blocks, the layout and the workers.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over the distinct persons drawn, in the order of the data, and the items
        ``person_weight`` (the number of persons each stands for), ``person_ability``,
        ``person_row``, ``person_n_draws``, ``response`` (1, 0, -1); coordinates ``person_id``
        and ``item_id``.  attrs: ``error_median`` and ``error_max``, the relative error of the
        weighted negative log-likelihood of an item, over all items with responses and 100 random
        parameters of each (a times exp(N(0, 0.5^2)), d plus N(0, 1), within the bounds of joint ML;
        abilities held); ``error_objective``, that of all items together at ``items``.

    Raises
    ------
    InputError, EstimationError

    Notes
    -----
    Two passes over the data beyond those of the draw.  Driver memory: counts on the ability axis
    (481 x items x 8 bytes) and the drawn responses, at most 2^30 cells.
    :func:`irt_dask.calibrate.joint.coreset_data.to_frame` makes a table of the result, for files.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(2000, 10, seed=1)
    >>> sample = irt.draw_coreset(responses, irt.fit_marginal(responses), 200)
    >>> 100 < sample.sizes["persons"] <= 200  # some are drawn twice
    True
    >>> sample.attrs["error_objective"] < 0.1
    True
    """
    responses = as_responses(responses, "draw_coreset")
    spec = Coreset(size, method, sampling=sampling)
    refuse_weights(responses, "draw_coreset")
    n, m = responses.n_persons, responses.n_items
    if min(size, n) * m > MAX_CELLS:
        raise InputError(
            f"size={size} with {m} items is more than {MAX_CELLS} responses, which are returned in "
            f"memory; draw at most {MAX_CELLS // m} persons"
        )
    its = Items(item_set(items, responses.item_id), np.ones(m))
    refuse_falling(its.curves, responses.item_id, "items")
    prepared = person_step.preparation(*(g.model for g in its.curves.groups))
    with Engine(
        responses,
        client=client,
        progress=progress,
        stage="coreset",
        prepare=person_step.prepare_rows if method == LABELS else prepared,
    ) as engine:
        scales = person_step.Scales.of(n, float(m))
        _, _, full = counted(engine, its, scales)
        count = engine.map_reduce(person_step.histogram, its, scales)[2] / scales.weight
        labels = Labels(full.seen.sum(axis=1) - full.right, full.right, its.curves.floor())
        sample = draw(engine, spec, its, scales, (seed, "coreset"), count, labels)
        starts = np.array([ref.start for ref in responses.refs])
        ids = np.concatenate(engine.map_refs(_person_ids, sample.rows, starts))
    assert sample.data is not None
    return dataset(
        {
            "person_weight": sample.weight,
            "person_ability": sample.theta,
            "person_row": sample.rows,
            "person_n_draws": sample.times,
            "response": layouts.to_dense(sample.data).values,
        },
        item_id=responses.item_id,
        coords={"person_id": ids.astype(str)},
        attrs={
            "method": method,
            "sampling": sampling,
            "size": size,
            "seed": seed,
            "n_persons": n,
            "n_persons_with_responses": round(float(count.sum())),
            "n_drawn": sample.rows.size,
            "sum_of_weights": float(sample.weight.sum()),
            **_errors(sample, full, its.curves, seed),
        },
    )


def _errors(sample: Sample, full: Counts, items: ItemSet, seed: int) -> dict[str, float]:
    """Relative errors of the weighted costs of the sample."""
    assert sample.data is not None
    by_node = full.right_by_node.size > 0
    core = AtAbilities(sample.theta, sample.weight).counts(sample.data, by_node)
    answered = full.seen.any(axis=1) | np.zeros(items.n_items, dtype=bool)

    def compare(items: ItemSet) -> tuple[Floats, Floats]:
        return costs(items, core)[answered], costs(items, full)[answered]

    of_sample, of_all = compare(items)
    objective_error = abs(of_sample.sum() - of_all.sum()) / of_all.sum()
    generator = keyed_random.generator(seed, "coreset", "directions")
    errors = []
    for _ in range(_DIRECTIONS):
        z = generator.standard_normal((2, items.n_items))
        of_sample, of_all = compare(ItemSet(tuple(_moved(g, z[:, g.at]) for g in items.groups)))
        errors.append(np.abs(of_sample - of_all) / of_all)
    return {
        "error_median": float(np.median(errors)),
        "error_max": float(np.max(errors)),
        "error_objective": float(objective_error),
    }


def _moved(g: Group, z: Floats) -> Group:
    x = g.x.copy()
    x[0] = np.clip(x[0] * np.exp(0.5 * z[0]), *SLOPE.joint)
    x[1] = np.clip(x[1] + z[1], *INTERCEPT.joint)
    return g._replace(x=x)


def costs(items: ItemSet, counts: Counts) -> Floats:
    """Negative log-likelihood of each item, abilities held; (items,)."""
    log_p = items.log_p(counts.nodes)
    right, lines = counts.right_by_node, items.scores
    if right.size or lines is None:
        return -((counts.seen - right) * log_p[::2] + right * log_p[1::2]).sum(axis=1)
    slope, intercept = (x[1::2] for x in lines)
    of_right = slope * counts.right_ability + intercept * counts.right
    return np.asarray(-(counts.seen * log_p[::2]).sum(axis=1) - of_right)


def to_frame(coreset: xr.Dataset) -> pd.DataFrame:
    """Return a coreset as a table: identifier, weight, ability, and a column for each item.

    Responses are nullable integers, missing where not observed, so that CSV and Parquet hold them
    as they are.  ``from_array`` takes the item columns back.
    """
    import pandas as pd

    first = ("person_id", "person_weight", "person_ability")
    items = [str(i) for i in coreset["item_id"].values]
    if taken := sorted(set(first) & set(items)):
        raise InputError(
            f"item identifier(s) {', '.join(taken)} are names of columns of the table; rename them"
        )
    values = coreset["response"].values
    columns = {
        j: pd.arrays.IntegerArray(np.ascontiguousarray(column), column < 0)
        for j, column in zip(items, values.T, strict=True)
    }
    return pd.DataFrame({name: coreset[name].values for name in first} | columns)
