"""Fit of items: infit and outfit, chi-square by predictions, S-X2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import chdtrc

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.errors import EstimationError
from irt_dask.evaluate.abilities import Known, checked, choose, parts
from irt_dask.items.parameters import models_of
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.misfit import predicted_scores, predictions, sum_scores
from irt_dask.population.population import NOBODY_APART
from irt_dask.store import Block

#: S-X2 counts items x number right: it is made up to this many items, and categories x scores.
_MAX_ITEMS, _MAX_CELLS = 1000, 10_000_000
#: Groups of predictions, and the least variance of one.
_GROUPS, _LEAST_VARIANCE = 10, 5.0
#: Cells of S-X2 are pooled until so many right and so many wrong answers are expected.
_LEAST_EXPECTED = 1.0


def _sums(
    block: Block, known: Known, unit: float, wide: float, with_scores: bool
) -> tuple[Any, ...]:
    if known.graded:
        return _sums_of_categories(block, known, unit, wide, with_scores)
    m = known.items.n_items
    sums = np.zeros((m, 6), dtype=np.int64)
    classes = np.zeros((m, predictions.CLASSES, 2), dtype=np.int64)
    for data in parts(block.data):
        predictions.add_item_sums(data, known.left_out(data), unit, wide, sums, classes)
    return (sums, classes, *(predictions.by_score(block.data) if with_scores else ()))


def _sums_of_categories(
    block: Block, known: Known, unit: float, wide: float, with_scores: bool
) -> tuple[Any, ...]:
    items = known.items
    sums = np.zeros((items.n_items, 6), dtype=np.int64)
    classes = np.zeros((items.n_items, predictions.CLASSES, 2), dtype=np.int64)
    steps = items.n_categories - 1
    for data in parts(block.data):
        given = known.moments(data)
        predicted_scores.add_item_sums(data, given, steps, unit, wide, sums, classes)
    by_score = predicted_scores.by_score(block.data, items.first) if with_scores else ()
    return (sums, classes, *by_score)


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

    Every response is compared with its distribution given the person's *other* responses, ability
    integrated out.  Under the model it has this mean and variance exactly (with two categories p
    and p (1 - p)), so mean squares are 1 on average and z has variance 1, for tests of any length.
    (With an estimate of ability in place of the integral, outfit falls below 1 on short tests.)

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    items : Dataset
        A fit or an item bank, matched by identifier.
    fitted : bool
        Whether the items were estimated from these responses.  Chi-squares then have as many
        degrees of freedom less as an item has parameters (1PL: 1, 2PL: 2, 3PL: 3, gpcm: K, where
        all items have one slope: K - 1; rating: 1); the one of groups takes off one for all steps,
        whose mean is most of what expected scores depend on. Those of a bank that was calibrated on
        others keep them all.
    ability : (mean, sd), optional
        Normal distribution of the persons' abilities on the scale of the items.  Default: the one
        of the highest marginal likelihood (EM, items held).
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over items
        ``item_infit``: ``sum (y - p)^2 / sum p (1 - p)``; ``item_outfit``: the mean of
        ``(y - p)^2 / (p (1 - p))`` (with more categories the mean and the variance of y stand for p
        and p (1 - p)); ``_z`` of both: their deviations from 1 in standard errors,
        items taken as known.  Slopes fitted to the same persons take most of the deviation up: the
        SD of z is then .1 (infit) to .3 (outfit) in place of 1, and only the chi-squares tell.
        ``item_chi2``, ``item_chi2_df``, ``item_chi2_p_value``: ``sum (O - E)^2 / V`` over some ten
        groups of persons by p, or by the expected score; O is the number right (the sum of the
        responses), E the sum of p and V that of p (1 - p).
        With complete data and up to 1,000 items also ``item_sx2``, ``item_sx2_df`` and
        ``item_sx2_p_value`` (``attrs["s_x2"]`` says whether, and why not).
        Of nominal items these are statistics of their codes: valid under the model, but of a size
        that means nothing.  ``item_n_responses``.  Values that the data do not give are NaN: of an
        item that nobody answered, and p-values without degrees of freedom.
        attrs: ``ability_mean``, ``ability_sd``.

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
    an item, and for S-X2 ``32 items^2``, with more categories 16 bytes for each category
    and score.  p within 1e-6 of 0 or 1 counts as that.

    S-X2 compares the shares right by number right with those that the model expects, adjacent
    numbers pooled until one right and one wrong answer are expected at least.  With more categories
    it compares counts of categories by the sum of the responses; sums are pooled until two
    categories are expected once at least, categories with their neighbours until each is.  Sources:
    Orlando and Thissen (2000); Kang and Chen (2008); Lord and Wingersky (1984); infit and outfit:
    Wright and Masters (1982).  The group chi-square is that of Hosmer and Lemeshow (1980) with p
    from the other responses: groups do not depend on the answer that they are to predict.
    Cut-offs: ``irt-dask docs fit``.

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
    responses = as_responses(responses, "item_fit", graded=True, items=items)
    refuse_weights(responses, "item_fit")
    given = checked(ability)
    n, m = responses.n_persons, responses.n_items
    most = float(max(responses.n_categories) - 1)  # residuals are at most this
    unit = fixed_point.scale_for(n * most**4)
    wide = fixed_point.scale_for(n * most**2 / predictions.CERTAIN)
    cells = sum(responses.n_categories) * (1 + sum(k - 1 for k in responses.n_categories))
    by_scores = m <= _MAX_ITEMS and cells <= _MAX_CELLS
    with Engine(
        responses, client=client, progress=progress, stage="item fit", graded=True
    ) as engine:
        known, attrs = choose(engine, items, given)
        sums, classes, *by_score = engine.map_reduce(
            _sums, known, unit, wide, by_scores, report=True
        )
    if not sums[:, 0].any():
        raise EstimationError("there is no observed response")
    lost = np.zeros(m, dtype=np.int64)
    if fitted:
        lost = _n_parameters(known.items, models_of(items, responses.item_id))
    # Of steps, what moves expected scores is mainly their mean: beside a slope that is one.
    of_scores = np.where(known.items.n_categories > 2, np.minimum(lost, 2), lost)
    data = _mean_squares(sums.T, unit, wide) | _named("chi2", *_grouped(classes / unit), of_scores)
    if m > _MAX_ITEMS:
        said = f"not computed: more than {_MAX_ITEMS} items"
    elif not by_scores:
        said = f"not computed: more than {_MAX_CELLS} categories times scores"
    elif by_score[2] > 0:
        said = f"not computed: {int(by_score[2])} persons did not answer every item"
    else:
        of_items = _s_x2_of_categories if known.graded else _s_x2
        data |= _named("sx2", *of_items(known, by_score[0], by_score[1]), lost)
        said = "computed"
    return dataset(
        data,
        item_id=responses.item_id,
        attrs={"method": "item fit", **attrs, "fitted": bool(fitted), "s_x2": said},
    )


def group_chi2(
    engine: Engine, known: Known, models: NDArray[np.str_] | None, fitted: bool
) -> dict[str, Any]:
    """The chi-square over groups of predictions alone, its degrees of freedom and p-value.

    For methods that have items and the distribution of ability already: one pass.
    """
    n, m = engine.responses.n_persons, known.items.n_items
    most = float(known.items.n_categories.max() - 1)
    unit = fixed_point.scale_for(n * most**4)
    wide = fixed_point.scale_for(n * most**2 / predictions.CERTAIN)
    _, classes, *_ = engine.map_reduce(_sums, known, unit, wide, False, report=True)
    lost = _n_parameters(known.items, models) if fitted else np.zeros(m, dtype=np.int64)
    lost = np.where(known.items.n_categories > 2, np.minimum(lost, 2), lost)
    return _named("chi2", *_grouped(classes / unit), lost)


def _n_parameters(items: ItemSet, models: NDArray[np.str_] | None) -> Ints:
    """Parameters of each item alone: no slope that is the same for all, no common steps."""
    out = np.empty(items.n_items, dtype=np.int64)
    for g in items.groups:
        out[g.at] = len(g.model.parameters)
    if models is not None:
        out -= np.isin(models, ("1pl", "pcm"))
        return np.where(models == "rating", 1, out)
    one_slope = {g.model.name for g in items.groups} <= {"2pl", "gpcm"}
    return out - (one_slope and np.unique(np.abs(items.slope())).size == 1)


def _mean_squares(sums: Ints, unit: float, wide: float) -> dict[str, Any]:
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


def _named(name: str, value: Floats, cells: Ints, lost: Ints) -> dict[str, Any]:
    """A chi-square with its degrees of freedom and p-value; none is left: NaN."""
    df = np.maximum(cells - lost, 0)
    usable = df > 0
    value = np.where(usable, value, np.nan)
    p = np.where(usable, chdtrc(np.maximum(df, 1), value), np.nan)
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


def _grouped(classes: Floats) -> tuple[Floats, Ints]:
    """Chi-square of each item over groups of predictions, and the number of groups.

    Groups are neighbouring classes, pooled until their variance is enough; what is left over joins
    the last group.
    """
    enough = classes[:, :, 1].sum(axis=1)
    least = np.maximum(_LEAST_VARIANCE, enough / (_GROUPS + 1))
    value, cells = np.zeros(len(classes)), np.zeros(len(classes), dtype=np.int64)
    open_group, last = np.zeros((2, len(classes), 2))  # sums of y - p and of v
    for k in range(predictions.CLASSES):
        open_group += classes[:, k]
        full = open_group[:, 1] >= least
        value += np.where(full & (cells > 0), _square(last), 0.0)
        cells += full
        last[full], open_group[full] = open_group[full], 0.0
    value += _square(last + open_group)
    tested = enough >= _LEAST_VARIANCE
    return np.where(tested, value, 0.0), np.where(tested, cells, 0)


def _square(sums: Floats) -> Floats:
    """(O - E)^2 / V of groups; 0 of those without variance."""
    none = np.zeros(len(sums))
    return np.divide(sums[:, 0] ** 2, sums[:, 1], out=none, where=sums[:, 1] > 0.0)


def _s_x2(known: Known, right: Ints, persons: Ints) -> tuple[Floats, Ints]:
    """S-X2 of each item and the number of its cells."""
    m = right.shape[0]
    value, cells = np.zeros(m), np.zeros(m, dtype=np.int64)
    prior, _ = known.population.prior(known.nodes, NOBODY_APART)
    p = np.exp(known.items.log_p(known.nodes)[1::2])
    expected = sum_scores.expected_right(p, np.exp(prior.log_mass[0]))
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


def _s_x2_of_categories(known: Known, counts: Ints, persons: Ints) -> tuple[Floats, Ints]:
    """S-X2 of each item over categories and scores, and the number of its free cells.

    Scores are pooled until two categories at least are expected once, categories of a pool with
    their lower neighbours until each is; a pool of c categories has c - 1 free cells.
    """
    items = known.items
    prior, _ = known.population.prior(known.nodes, NOBODY_APART)
    p = np.exp(items.log_p(known.nodes))
    share = predicted_scores.expected_by_score(p, items.first, np.exp(prior.log_mass[0]))
    expected = np.where(persons > 0, persons * np.nan_to_num(share), 0.0)
    value, cells = np.zeros(items.n_items), np.zeros(items.n_items, dtype=np.int64)
    lowest, highest = items.ends
    inside = slice(int(lowest.sum()) + 1, int(highest.sum()))  # at the ends there is no choice
    for j in range(items.n_items):
        rows = slice(items.first[j], items.first[j + 1])
        for o, e in _pools(counts[rows, inside].astype(float), expected[rows, inside]):
            value[j] += ((o - e) ** 2 / e).sum()
            cells[j] += e.size - 1
    return value, cells


def _pools(observed: Floats, expected: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Observed and expected counts of pooled categories, for pools of neighbouring scores.

    What is left over at the end joins the last pool.
    """
    begin, pools = 0, []
    for s in range(expected.shape[1]):
        if _joined(expected[:, begin : s + 1].sum(axis=1)).size > 1:
            pools.append(begin)
            begin = s + 1
    if not pools:
        return
    ends = [*pools[1:], expected.shape[1]]
    for lo, hi in zip(pools, ends, strict=True):
        e = expected[:, lo:hi].sum(axis=1)
        at = _joined(e)
        yield np.add.reduceat(observed[:, lo:hi].sum(axis=1), at), np.add.reduceat(e, at)


def _joined(expected: Floats) -> NDArray[np.intp]:
    """Starts of neighbouring categories that are together expected once at least."""
    return pooled(expected[:, None], np.array([_LEAST_EXPECTED]))
