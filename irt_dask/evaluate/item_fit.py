"""Fit of items: infit and outfit, chi-square by predictions, S-X2."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import chdtrc

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.errors import DataWarning, EstimationError, InputError
from irt_dask.evaluate.abilities import Known, checked, choose, parts
from irt_dask.evaluate.groups import labels_of, of_groups
from irt_dask.evaluate.score_chi2 import MAX_CELLS, MAX_ITEMS, ByScore, by_score, s_x2
from irt_dask.items.parameters import models_of
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.misfit import predicted_scores, predictions
from irt_dask.kernels.responses import response_counts
from irt_dask.population import histogram
from irt_dask.population.population import Population
from irt_dask.store import Block, Responses

#: Groups of predictions, and the least variance of one.
_GROUPS, _LEAST_VARIANCE = 10, 5.0


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
    groups: bool | None = None,
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
    groups : bool, optional
        Whether persons of each ``person_group`` come from a normal distribution of their own.
        Default: if the responses have groups and ``ability`` is not given.
    ability : (mean, sd), optional
        Normal distribution of the persons' abilities on the scale of the items.  Default: the one
        of the highest marginal likelihood (EM, items held), in each group; of a fit with
        ``latent="histogram"`` (``fitted``, the whole fit and no bank) its histograms.
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
        attrs: ``ability_mean``, ``ability_sd``, of all persons; with groups ``group_label``,
        ``group_mean`` and ``group_sd`` (NaN of one without responses).

    Raises
    ------
    InputError
        If an item of the responses is not among the items, an option is wrong, or groups=True
        and there are more than 200.
    EstimationError
        If no response is observed.

    Warns
    -----
    DataWarning
        If there are more than 200 groups, and ``groups`` does not say whether they matter: all
        persons then come from one distribution.  If items were calibrated with a histogram that is
        not there: of other groups.  (A bank has none, and does not say that there was one.)

    Notes
    -----
    One pass over the data, and one for each EM step (some ten) unless ``ability`` is given.  A
    person costs some operations for each response and node of the grid.  Driver memory: 600 bytes
    an item, and for S-X2 ``32 items^2``, with more categories 16 bytes for each category
    and score.  p within 1e-6 of 0 or 1 counts as that.

    S-X2 compares the shares right by number right with those that the model expects, adjacent
    numbers pooled until one right and one wrong answer are expected at least.  With more categories
    it compares counts of categories by the sum of the responses; sums are pooled until two
    categories are expected once at least, categories with their neighbours until each is.  R's mirt
    pools the same counts otherwise: with four items of four categories it has 6 to 11 degrees of
    freedom for 8 to 13 here.  Without misfit 4.4% to 5.4% of these p-values were below .05, 3.9% to
    5.4% with mirt's pools (400 to 2,000 persons, 4 to 20 items, some 500 sets each).  Sources:
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
    if not fitted:  # of other persons the calibration's histogram says nothing
        items = items.assign_attrs(latent="normal")
    labels = _labels(responses, items, groups, given is not None, client)
    m = responses.n_items
    cells = sum(responses.n_categories) * (1 + sum(k - 1 for k in responses.n_categories))
    scored = m <= MAX_ITEMS and cells <= MAX_CELLS
    found = _gathered(responses, items, labels, given, scored, client, progress)
    known = found.known
    lost = np.zeros(m, dtype=np.int64)
    if fitted:
        lost = _n_parameters(known.items, models_of(items, responses.item_id))
    # Of steps, what moves expected scores is mainly their mean: beside a slope that is one.
    of_scores = np.where(known.items.n_categories > 2, np.minimum(lost, 2), lost)
    unit, wide = found.scales
    data = _mean_squares(found.sums.T, unit, wide)
    data |= _named("chi2", *_grouped(found.classes / unit), of_scores) | found.described(labels)
    if m > MAX_ITEMS:
        said = f"not computed: more than {MAX_ITEMS} items"
    elif found.by_score is None:
        said = f"not computed: more than {MAX_CELLS} categories times scores"
    elif found.by_score.incomplete > 0:
        said = (
            f"not computed: {found.by_score.incomplete} persons did not answer every item; the "
            f"test of such data is chi2"
        )
    else:
        data |= _named("sx2", *s_x2(known.items, found.by_score), lost)
        said = "computed"
    return dataset(
        data,
        item_id=responses.item_id,
        attrs={"method": "item fit", **found.attrs, "fitted": bool(fitted), "s_x2": said},
    )


def _labels(
    responses: Responses, items: xr.Dataset, groups: bool | None, given: bool, client: Any
) -> tuple[str, ...]:
    """Groups that are told apart; none: everybody comes from one distribution."""
    if groups and not responses.has_groups:
        raise InputError("groups=True, but the responses have no person_group")
    if groups and given:
        raise InputError("groups=True, but ability= says where all persons come from")
    if groups:
        return labels_of(responses, client)
    if groups is False or given or not responses.has_groups or histogram.is_one(items):
        return ()
    try:
        return labels_of(responses, client)
    except InputError as error:
        warnings.warn(
            f"{error}: everybody is taken from one normal distribution, and items that were given "
            f"to able or to less able groups alone are told to fit worse than they do; "
            f"groups=False says that it is meant",
            DataWarning,
            stacklevel=3,
        )
        return ()


@dataclass
class _Gathered:
    """Sums over all persons, each predicted from the distribution of the own group."""

    known: Known
    scales: tuple[float, float]
    sums: Ints
    classes: Ints
    by_score: ByScore | None
    #: Number of persons of each group, mean and SD of ability.
    groups: list[tuple[int, float, float]]
    attrs: dict[str, Any]

    def described(self, labels: tuple[str, ...]) -> dict[str, Any]:
        """What is said of groups, if they are told apart; attrs get mean and SD of everybody."""
        if not labels:
            return {}
        n, mean, sd = np.array(self.groups).T
        n = np.where(np.isfinite(mean), n, 0.0)
        middle = float(n @ np.nan_to_num(mean) / n.sum())
        spread = n @ np.nan_to_num(sd**2 + (mean - middle) ** 2) / n.sum()
        self.attrs |= {"ability_mean": middle, "ability_sd": float(np.sqrt(spread))}
        return {"group_label": np.array(labels), "group_mean": mean, "group_sd": sd}


def _gathered(
    responses: Responses, items: xr.Dataset, labels: tuple[str, ...], given: Population | None,
    scored: bool, client: Any, progress: ProgressOption,
) -> _Gathered:  # fmt: skip
    """One pass over the persons of each group, besides those of EM."""
    n, most = responses.n_persons, float(max(responses.n_categories) - 1)
    unit = fixed_point.scale_for(n * most**4)  # residuals are at most this
    wide = fixed_point.scale_for(n * most**2 / predictions.CERTAIN)
    out: _Gathered | None = None
    groups = []
    of_all = of_groups(responses, labels, client, progress) if labels else [responses]
    for label, part in zip(labels or (None,), of_all, strict=True):
        with Engine(
            part, client=client, progress=progress, stage="item fit", graded=True
        ) as engine:
            if labels and not engine.map_reduce(_answers)[0]:
                groups.append((part.n_persons, np.nan, np.nan))
                continue
            known, attrs = choose(engine, items, given, group=label)
            sums, classes, *counts = engine.map_reduce(
                _sums, known, unit, wide, scored, report=True
            )
        groups.append((part.n_persons, known.mean, known.sd))
        of_scores = by_score(known, *counts) if counts else None
        if out is None:
            out = _Gathered(known, (unit, wide), sums, classes, of_scores, groups, attrs)
            continue
        out.sums, out.classes = out.sums + sums, out.classes + classes
        if of_scores is not None and out.by_score is not None:
            out.by_score.add(of_scores)
        out.attrs["n_iterations"] = max(out.attrs["n_iterations"], attrs["n_iterations"])
        out.attrs["converged"] = out.attrs["converged"] and attrs["converged"]
    if out is None or not out.sums[:, 0].any():
        raise EstimationError("there is no observed response")
    out.attrs["n_persons"] = n
    return out


def _answers(block: Block) -> tuple[Any, ...]:
    return (np.int64(response_counts.responses_per_person(block.data).sum()),)


def group_chi2(
    responses: Responses, items: xr.Dataset, fitted: bool, client: Any, known: tuple[Engine, Known]
) -> dict[str, Any]:
    """The chi-square over groups of predictions alone, its degrees of freedom and p-value.

    For methods that have an engine, and the distribution of ability of everybody, already: one
    pass; if persons have groups of their own, as in :func:`item_fit`.
    """
    labels, (engine, of) = _labels(responses, items, None, False, client), known
    if labels:
        found = _gathered(responses, items, labels, None, False, client, False)
        classes, unit = found.classes, found.scales[0]
    else:
        n, most = responses.n_persons, float(of.items.n_categories.max() - 1)
        unit = fixed_point.scale_for(n * most**4)
        wide = fixed_point.scale_for(n * most**2 / predictions.CERTAIN)
        _, classes, *_ = engine.map_reduce(_sums, of, unit, wide, False, report=True)
    lost = np.zeros(of.items.n_items, dtype=np.int64)
    if fitted:
        lost = _n_parameters(of.items, models_of(items, responses.item_id))
    lost = np.where(of.items.n_categories > 2, np.minimum(lost, 2), lost)
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
