"""Fit of items: infit and outfit, chi-square by predictions, S-X2."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import chi2

from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.errors import EstimationError
from irt_dask.evaluate.abilities import Scale, checked, choose
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.misfit import predictions, sum_scores
from irt_dask.store import Block

Floats = NDArray[np.float64]

#: S-X2 counts items x number right: it is made up to this many items.
_MAX_ITEMS = 1000
#: Groups of predictions, and the least variance of one.
_GROUPS, _LEAST_VARIANCE = 10, 5.0
#: Cells of S-X2 are pooled until so many right and so many wrong answers are expected.
_LEAST_EXPECTED = 1.0


def _sums(
    block: Block, scale: Scale, unit: float, wide: float, with_scores: bool
) -> tuple[Any, ...]:
    sums = predictions.item_sums(block.data, scale.curves(), unit, wide)
    return sums + predictions.by_score(block.data) if with_scores else sums


def item_fit(
    responses: Any,
    items: xr.Dataset,
    *,
    fitted: bool = True,
    ability: tuple[float, float] | None = None,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Fit of each item: infit and outfit mean squares, S-X2, and a chi-square for missing data.

    Every response is compared with its probability p given the person's *other* responses, ability
    integrated out.  Under the model it is Bernoulli(p) exactly, so mean squares are 1 on average
    and z has variance 1, for tests of any length.  (With an estimate of ability in place of the
    integral, outfit falls below 1 on short tests.)

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    items : Dataset
        A fit or an item bank (1PL, 2PL, 3PL), matched by identifier.
    fitted : bool
        Whether the items were estimated from these responses.  Chi-squares then have as many
        degrees of freedom less as an item has parameters (1PL: 1, 2PL: 2, 3PL: 3); those of a bank
        that was calibrated on others keep them all.
    ability : (mean, sd), optional
        Normal distribution of the persons' abilities on the scale of the items.  Default: the one
        of the highest marginal likelihood (EM, items held).
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over items
        ``item_infit``: ``sum (y - p)^2 / sum p (1 - p)``; ``item_outfit``: the mean of
        ``(y - p)^2 / (p (1 - p))``; ``_z`` of both: their deviations from 1 in standard errors,
        items taken as known.  Slopes fitted to the same persons take most of the deviation up: the
        SD of z is then .1 (infit) to .3 (outfit) in place of 1, and only the chi-squares tell.
        ``item_chi2``, ``item_chi2_df``, ``item_chi2_p_value``: ``sum (O - E)^2 / V`` over some ten
        groups of persons by p; O is the number right, E the sum of p and V that of p (1 - p).
        With complete data and up to 1,000 items also ``item_sx2``, ``item_sx2_df`` and
        ``item_sx2_p_value`` (``attrs["s_x2"]`` says whether, and why not).
        ``item_n_responses``.  Values that the data do not give are NaN: of an item that nobody
        answered, and p-values without degrees of freedom.  attrs: ``ability_mean``, ``ability_sd``.

    Raises
    ------
    InputError
        If an item of the responses is not among the items, or an option is wrong.
    EstimationError
        If no response is observed.

    Notes
    -----
    One pass over the data, and one for each EM step (some ten) unless ``ability`` is given.  A
    person costs some operations for each response and node of the grid.  Driver memory: 600 bytes
    an item, and ``32 items^2`` for S-X2.  p within 1e-6 of 0 or 1 counts as that.

    S-X2 compares the shares right by number right with those that the model expects, adjacent
    numbers pooled until one right and one wrong answer are expected at least.  Sources: Orlando and
    Thissen (2000); Lord and Wingersky (1984); infit and outfit: Wright and Masters (1982).  The
    group chi-square is that of Hosmer and Lemeshow (1980) with p from the other responses: groups
    do not depend on the answer that they are to predict.  Cut-offs: ``irt-dask docs fit``.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.load_lsat()
    >>> tests = irt.item_fit(responses, irt.fit_marginal(responses))
    >>> tests["item_outfit"].round(1).values.tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    >>> tests["item_sx2_p_value"].round(1).values.tolist()
    [0.8, 0.4, 0.4, 0.9, 0.9]
    """
    responses = as_responses(responses, "item_fit")
    refuse_weights(responses, "item_fit")
    known = checked(ability)
    n, m = responses.n_persons, responses.n_items
    unit, wide = fixed_point.scale_for(n), fixed_point.scale_for(n / predictions.CERTAIN)
    with Engine(responses, client=client, progress=progress, stage="item fit") as engine:
        scale, attrs = choose(engine, items, known)
        sums, classes, *by_score = engine.map_reduce(
            _sums, scale, unit, wide, m <= _MAX_ITEMS, report=True
        )
    if not sums[0].any():
        raise EstimationError("there is no observed response")
    lost = scale.n_parameters if fitted else 0
    data = _mean_squares(sums, unit, wide) | _named("chi2", *_grouped(classes / unit), lost)
    if m > _MAX_ITEMS:
        said = f"not computed: more than {_MAX_ITEMS} items"
    elif by_score[2] > 0:
        said = f"not computed: {int(by_score[2])} persons did not answer every item"
    else:
        data |= _named("sx2", *_s_x2(scale, by_score[0], by_score[1]), lost)
        said = "computed"
    return dataset(
        data,
        item_id=responses.item_id,
        attrs={"method": "item fit", **attrs, "fitted": bool(fitted), "s_x2": said},
    )


def _mean_squares(sums: NDArray[np.int64], unit: float, wide: float) -> dict[str, Any]:
    n = sums[0].astype(float)
    square, v, spread = sums[1:4] / unit
    standard, wide_spread = sums[4:] / wide
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "item_infit": square / v,
            "item_infit_z": _or_nan((square - v) / np.sqrt(spread)),
            "item_outfit": standard / n,
            "item_outfit_z": _or_nan((standard - n) / np.sqrt(wide_spread)),
            "item_n_responses": sums[0],
        }


def _or_nan(x: Floats) -> Floats:
    return np.where(np.isfinite(x), x, np.nan)


def _named(name: str, value: Floats, cells: NDArray[np.int64], lost: int) -> dict[str, Any]:
    """A chi-square with its degrees of freedom and p-value; none is left: NaN."""
    df = np.maximum(cells - lost, 0)
    usable = df > 0
    value = np.where(usable, value, np.nan)
    p = np.where(usable, chi2.sf(value, np.maximum(df, 1)), np.nan)
    return {f"item_{name}": value, f"item_{name}_df": df, f"item_{name}_p_value": p}


def pooled(enough: Floats, least: Floats) -> NDArray[np.intp]:
    """Starts of neighbouring cells pooled until every sum of ``enough`` reaches ``least``.

    ``enough`` has shape (cells, conditions).  Cells that are left over join the last group; without
    any full group there is one of all.
    """
    starts, begin, total = [], 0, np.zeros(enough.shape[1])
    for k, x in enumerate(enough):
        total = total + x
        if (total >= least).all():
            starts.append(begin)
            begin, total = k + 1, np.zeros(enough.shape[1])
    return np.array(starts or [0])


def _grouped(classes: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Chi-square of each item over groups of predictions, and the number of groups."""
    value, cells = np.zeros(classes.shape[1]), np.zeros(classes.shape[1], dtype=np.int64)
    for j, (difference, v) in enumerate(classes.transpose(1, 0, 2)):
        if v.sum() < _LEAST_VARIANCE:
            continue
        least = max(_LEAST_VARIANCE, v.sum() / (_GROUPS + 1))
        at = pooled(v[:, None], np.array([least]))
        value[j] = (np.add.reduceat(difference, at) ** 2 / np.add.reduceat(v, at)).sum()
        cells[j] = at.size
    return value, cells


def _s_x2(
    scale: Scale, right: NDArray[np.int64], persons: NDArray[np.int64]
) -> tuple[Floats, NDArray[np.int64]]:
    """S-X2 of each item and the number of its cells."""
    m = right.shape[0]
    value, cells = np.zeros(m), np.zeros(m, dtype=np.int64)
    g = scale.curves()
    expected = sum_scores.expected_right(np.exp(g.log_right), np.exp(g.prior))
    n = persons[1:m].astype(float)
    for j in range(m):
        share = np.where(n > 0.0, expected[j, 1:m], 0.0)
        e = np.stack([n * share, n * (1.0 - share)], axis=1)
        if m < 2 or (e.sum(axis=0) < _LEAST_EXPECTED).any():
            continue
        at = pooled(e, np.full(2, _LEAST_EXPECTED))
        difference = np.add.reduceat(right[j, 1:m] - e[:, 0], at)
        e_right, e_wrong = np.add.reduceat(e, at).T
        value[j] = (difference**2 * (1.0 / e_right + 1.0 / e_wrong)).sum()
        cells[j] = at.size
    return value, cells
