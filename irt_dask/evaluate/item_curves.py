"""Observed and modelled curves of items, of everybody or by group: RMSD and MD."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.interpolate import CubicSpline

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.inputs import whole_number
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.errors import (
    ApproximationWarning,
    DataWarning,
    EstimationError,
    InputError,
    ItemWarning,
)
from irt_dask.evaluate.abilities import Known
from irt_dask.evaluate.groups import labels_of, of_groups
from irt_dask.evaluate.replicate import EVERYBODY, Abilities, replicated
from irt_dask.items.parameters import item_set, refuse_other_categories
from irt_dask.kernels.base.lanes import LANES
from irt_dask.kernels.posterior import expected_counts
from irt_dask.population import em, histogram
from irt_dask.population.population import NOBODY_APART
from irt_dask.store import Block, Responses

#: Abilities at which curves are returned, in SDs from the mean of everybody, and how many.
_REACH, _POINTS = 3.0, 61
#: Replicates, if any: with fewer no p-value can be below .05.
_LEAST_REPLICATES = 19
#: Expected scores within which items that are fitted again are the same ones, as a share of K - 1.
_SAME = 1e-3
#: Items that are compared at a time.
_AT_ONCE = 512
#: As many replicates have a distance as large, whatever the rounding.
_ROUNDING = 1e-9


def _count(
    block: Block, to: tuple[Any, ...] | None, known: Known, scales: expected_counts.Scales
) -> tuple[Any, ...]:
    p = known.posteriors(block.data)
    counts = None if to is None else expected_counts.Counts(*to)
    return expected_counts.counts(p.data, p.tables, p.shared, p.sets, p.prior, scales, to=counts)


def item_curves(
    responses: Any,
    items: xr.Dataset,
    *,
    groups: bool | None = None,
    n_replicates: int = 0,
    refit: Callable[[Responses], xr.Dataset] | None = None,
    seed: int = 0,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Curves that the responses show beside those of the model, and their distances.

    The observed curve is the expected score given ability: responses counted at each ability by the
    posterior weights of their persons.  Where groups are tested with one set of items a large RMSD
    in one of them says that the item works otherwise there.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    items : Dataset
        A fit or an item bank, matched by identifier.
    groups : bool, optional
        Whether to look at each ``person_group`` by itself, with a normal distribution of ability of
        its own (of a fit with ``latent="histogram"`` its histogram).  Default: if the responses
        have groups.
    n_replicates : int
        0, or at least 19: replicates (see :func:`replicate`) whose distances are what chance alone
        makes of the RMSD.
    refit : function of Responses that returns items, optional
        How the items were fitted, if they were fitted to these responses:
        ``lambda r: irt.fit_marginal(r, model="gpcm", standard_errors=False)``.  Each replicate's
        distances are then those from items fitted to it.  Default: items of a bank, which no
        responses move.
    seed : int
        Of the replicates.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over items, groups and ability
        ``group_item_rmsd`` (groups, items): the root of the mean squared difference of the observed
        and the modelled expected score, over the group's normal distribution of ability;
        ``group_item_md``, the mean difference (positive: easier in the group than the model says).
        Both are in points of score; divide by K - 1 for items of K categories to compare them with
        those of two; of nominal items they are of the codes.  ``group_item_observed_score``
        (groups, items, ability), and ``item_expected_score`` (items, ability), at 61 abilities
        within 3 SDs of all persons' mean.  NaN where a group did not answer.  ``group_label``,
        ``group_mean``, ``group_sd`` (estimated, items held), ``item_n_responses``.  With replicates
        ``group_item_rmsd_expected``, their mean RMSD, and ``group_item_rmsd_p_value``:
        ``(1 + number of replicates with an RMSD of at least the observed one)`` over
        ``1 + n_replicates`` (a parametric bootstrap).

    Raises
    ------
    InputError, EstimationError
    TooLargeError
        If the counts of a group would not fit into memory.

    Warns
    -----
    ApproximationWarning
        If ``refit`` makes other items than ``items`` of the responses themselves: the p-values are
        then of another statistic.
    DataWarning
        If items were calibrated with a histogram of ability: with replicates, whose abilities are
        normal, or where it is not there (other groups).

    Notes
    -----
    An RMSD is never 0 by chance.  If the model is true and the items are
    fitted to the same persons, its mean and the value that one in 20 exceeds are, of P(right) with
    30 items, .03 and .06 with 200 persons, .02 and .04 with 500, .010 and .017 with 2,000, .005 and
    .009 with 8,000; items of a bank: half as much again.  Cut-offs in use are .12 to .15.  The
    posterior rests on the item's own response too, which draws the observed curve to the modelled
    one, the more the shorter the test (10 items: half the chance values, and less of what is
    wrong).

    A p-value of items of a bank is about items that are known: errors of their calibration are
    part of the RMSD, and become significant with many persons.  Without misfit 4.3% to 5.0% of the
    p-values were at most .05 (12 2PL items, 300 and 2,000 persons, one group and two, items of a
    bank and fitted, 39 replicates, 720 tests each).

    Passes over the data of each group: one for each EM step (some ten), and one; as many again, and
    those of ``refit``, for each replicate.  Driver memory: nodes x (items + categories) numbers for
    each result that is waited for (as many as threads, and three), of one group at a time; nodes
    are as fine as the narrowest posterior.
    Source: Buchholz and Hartig (2019); OECD (2017), PISA 2015 Technical Report, chapter 9.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.load_lsat()
    >>> curves = irt.item_curves(responses, irt.fit_marginal(responses))
    >>> curves["group_item_rmsd"].round(3).values.tolist()
    [[0.001, 0.001, 0.0, 0.001, 0.001]]
    """
    responses = as_responses(responses, "item_curves", graded=True, items=items)
    refuse_weights(responses, "item_curves")
    _check_replicates(n_replicates, refit is not None)
    groups = _by_group(responses, groups)
    own = item_set(items, responses.item_id)
    refuse_other_categories(own, responses.n_categories, responses.item_id, "items")
    labels = labels_of(responses, client) if groups else ("all",)
    shape = _shaped(items, n_replicates)
    parts = _of_groups(responses, shape, own, labels if groups else (), client, progress)
    sizes = np.array([g.responses.n_persons for g in parts], dtype=float)
    mean, sd = (np.array([getattr(g.known, n) for g in parts]) for n in ("mean", "sd"))
    middle = float(sizes @ mean / sizes.sum())
    spread = np.sqrt(float(sizes @ (sd**2 + (mean - middle) ** 2) / sizes.sum()))
    ability = middle + spread * np.linspace(-_REACH, _REACH, _POINTS)
    found = [_curves(g, ability, client, progress) for g in parts]
    rmsd, md = (np.array([getattr(c, n) for c in found]) for n in ("rmsd", "md"))
    chance: dict[str, Any] = {}
    if n_replicates:
        if refit is not None:
            _compare(refit(responses), own, responses, ability)
        two = zip(mean, sd, strict=True)
        known = dict(zip(labels if groups else (EVERYBODY,), two, strict=True))
        drawn = _drawn(responses, own, known, n_replicates, refit, seed, client)
        chance = _chance(rmsd, drawn)
    return dataset(
        {
            "group_item_rmsd": rmsd,
            "group_item_md": md,
            **chance,
            "group_item_observed_score": np.array([c.observed for c in found]),
            "item_expected_score": own.expected(ability),
            "item_n_responses": np.sum([c.n_seen for c in found], axis=0),
            "group_label": np.array(labels),
            "group_mean": mean,
            "group_sd": sd,
        },
        item_id=responses.item_id,
        coords={"ability": ability},
        attrs={
            "method": "curves of items",
            "model": items.attrs.get("model"),
            "n_persons": responses.n_persons,
            "n_replicates": n_replicates,
            "refit": refit is not None,
            "seed": seed,
            "n_iterations": max(g.passes for g in parts),
            "converged": all(g.converged for g in parts),
        },
    )


def _shaped(items: xr.Dataset, n_replicates: int) -> xr.Dataset:
    """The fit, whose histogram counts only where nothing is compared with replicates."""
    if not n_replicates or items.attrs.get("latent") != "histogram":
        return items
    warnings.warn(
        "the items were calibrated with a histogram of ability, and replicates have normal "
        "abilities: so are distances and p-values, which may be those of skewed abilities",
        DataWarning,
        stacklevel=3,
    )
    return items.assign_attrs(latent="normal")


def _by_group(responses: Responses, asked: bool | None) -> bool:
    if asked and not responses.has_groups:
        raise InputError("groups=True, but the responses have no person_group")
    return responses.has_groups if asked is None else asked


def _check_replicates(n: int, refitted: bool) -> None:
    whole_number("n_replicates", n, 0)
    if 0 < n < _LEAST_REPLICATES or (refitted and not n):
        raise InputError(
            f"n_replicates={n}: give {_LEAST_REPLICATES} or more, with which a p-value "
            f"can be below .05, or 0 without refit"
        )


class _Group(NamedTuple):
    """A group, and its distribution of ability."""

    responses: Responses
    known: Known
    passes: int
    converged: bool


class _Curves(NamedTuple):
    """Distances of each item in a group, and its observed curve, (items, abilities)."""

    rmsd: Floats
    md: Floats
    observed: Floats
    n_seen: Ints


def _of_groups(
    responses: Responses, fit: xr.Dataset, items: ItemSet, labels: tuple[str, ...], client: Any,
    progress: ProgressOption,
) -> list[_Group]:  # fmt: skip
    """Each group by itself; without labels everybody.

    ``fit`` has the histograms, if abilities are not normal.
    """
    found = []
    of_all = of_groups(responses, labels, client, progress) if labels else [responses]
    for label, part in zip(labels or (None,), of_all, strict=True):
        if (shape := histogram.of_fit(fit, label)) is not None:
            found.append(_Group(part, Known.of(items, shape), 0, True))
            continue
        with _engine(part, client, progress) as engine:
            ability = em.one_normal(engine, items)
        known = Known.of(items, ability.population)
        found.append(_Group(part, known, ability.passes, ability.converged))
    return found


def _engine(responses: Responses, client: Any, progress: ProgressOption) -> Engine:
    how = {"client": client, "progress": progress, "graded": True}
    return Engine(responses, **how, stage="curves of items")


def _curves(group: _Group, ability: Floats, client: Any, progress: ProgressOption) -> _Curves:
    """Count at the nodes, and compare what is observed there with the model."""
    known, items = group.known, group.known.items
    reach = float(np.abs(known.nodes).max())
    with _engine(group.responses, client, progress) as engine:
        rows = items.n_items + int((items.n_categories - 1).sum())
        refuse_beyond_memory(
            8.0 * (engine.n_held + 1) * rows * known.nodes.size,
            f"curves of {items.n_items} items, with counts at {known.nodes.size} abilities,",
        )
        largest = 1e3 * items.n_items  # of a log-likelihood, whose sum is not used
        scales = expected_counts.scales_for(engine.n_persons, reach, largest)
        counts = expected_counts.Counts(*engine.map_add(_count, known, scales))
    if not counts.seen.any():
        raise EstimationError("there is no observed response, of one of the groups at least")
    nodes = known.nodes[:-LANES]  # the last fill up the lanes
    mass = np.exp(known.population.prior(known.nodes, NOBODY_APART)[0].log_mass[0])[: nodes.size]
    mass /= mass.sum()
    first = np.concatenate([[0], np.cumsum(items.n_categories - 1)])
    parts = []
    for lo in range(0, items.n_items, _AT_ONCE):
        some = slice(lo, lo + _AT_ONCE)
        its, seen = items.take(np.arange(items.n_items)[some]), counts.seen[some, : nodes.size]
        at = first[lo : lo + its.n_items + 1]
        higher = counts.higher[at[0] : at[-1], : nodes.size]
        steps = its.n_categories - 1
        score = np.concatenate([np.arange(1.0, k + 1.0) for k in steps])
        with np.errstate(divide="ignore", invalid="ignore"):
            observed = np.add.reduceat(higher * score[:, None], at[:-1] - at[0], axis=0) / seen
        apart = _apart(observed, its.expected(nodes), mass)
        parts.append((*apart, _at(nodes, observed, ability)))
    rmsd, md, curve = (np.concatenate(x) for x in zip(*parts, strict=True))
    n_seen = np.rint(counts.seen.sum(axis=1) / scales.weight).astype(np.int64)
    return _Curves(rmsd, md, curve, n_seen)


def _apart(observed: Floats, modelled: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """RMSD and MD of each item; over abilities at which some weight is left."""
    some = np.isfinite(observed)
    weight = np.where(some, mass, 0.0)
    total = weight.sum(axis=1)
    difference = np.where(some, observed - modelled, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        md = (weight * difference).sum(axis=1) / total
        return np.sqrt((weight * difference**2).sum(axis=1) / total), md


def _at(nodes: Floats, observed: Floats, ability: Floats) -> Floats:
    """The observed curve at other abilities, by a cubic spline; NaN beyond those who answered."""
    out = np.full((len(observed), ability.size), np.nan)
    for to, row in zip(out, observed, strict=True):
        some = np.isfinite(row)
        if some.any():
            to[:] = CubicSpline(nodes[some], row[some], extrapolate=False)(ability)
    return out


def _drawn(
    responses: Responses, items: ItemSet, abilities: Abilities, n: int, refit: Any, seed: int,
    client: Any,
) -> Floats:  # fmt: skip
    """RMSD of replicates, (replicates, groups, items)."""
    of, none, out = responses.fingerprint, np.empty(0), []
    labels = () if set(abilities) == {EVERYBODY} else tuple(abilities)
    for number in range(n):
        other = replicated(responses, items, abilities, seed, number, of)
        own = items
        if refit is not None:
            try:
                with warnings.catch_warnings():  # of items of replicates
                    warnings.simplefilter("ignore", ItemWarning)
                    own = item_set(refit(other), responses.item_id, what="refit's result")
            except EstimationError as error:
                raise EstimationError(f"refit of replicate {number + 1} of {n}: {error}") from error
        groups = _of_groups(other, xr.Dataset(), own, labels, client, False)
        out.append([_curves(g, none, client, False).rmsd for g in groups])
    return np.array(out)


def _chance(rmsd: Floats, drawn: Floats) -> dict[str, Any]:
    """What replicates say of the RMSD of each group and item; NaN where there is none."""
    there = np.isfinite(rmsd)
    as_large = (drawn >= rmsd * (1.0 - _ROUNDING)).sum(axis=0)
    return {
        "group_item_rmsd_expected": np.where(there, drawn.mean(axis=0), np.nan),
        "group_item_rmsd_p_value": np.where(there, (1 + as_large) / (1 + len(drawn)), np.nan),
    }


def _compare(found: xr.Dataset, items: ItemSet, responses: Responses, ability: Floats) -> None:
    """Warn if items that are fitted again to the same responses are others."""
    again = item_set(found, responses.item_id, what="refit's result")
    apart = np.abs(again.expected(ability) - items.expected(ability)).max(axis=1)
    apart /= items.n_categories - 1
    if not apart.max() <= _SAME:
        j = int(apart.argmax())
        warnings.warn(
            f"refit does not make these items of these responses: the expected score of "
            f"{responses.item_id[j]} differs by up to {apart[j]:.2g} of its range; fit replicates "
            f"as the items were fitted",
            ApproximationWarning,
            stacklevel=3,
        )
