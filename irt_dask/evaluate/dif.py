"""Differential item functioning between groups: score tests in the marginal likelihood."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import ProgressOption, as_responses, dataset
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import (
    ApproximationWarning,
    DataWarning,
    EstimationError,
    InputError,
    repeated,
)
from irt_dask.evaluate import dif_anchors, dif_directions, dif_scores, dif_tests
from irt_dask.evaluate.groups import labels_of, of_groups
from irt_dask.items import checks
from irt_dask.items.parameters import item_set, refuse_other_categories
from irt_dask.store import Responses
from irt_dask.store.responses import SAMPLING

_MAX_ITEMS = 1500
#: Persons of a group below which the tests of an item are not trusted.
_FEW = 15
#: Results that are of all focal groups together.
_TOGETHER = ("item_dif_joint_df", "item_dif_omnibus_df")


def dif(
    responses: Any,
    items: xr.Dataset,
    *,
    reference: str,
    focal: str | Sequence[str] | None,
    anchors: str | Sequence[str] = dif_anchors.ALL,
    seed: int = 0,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Test every item for a different curve in other groups, ability integrated out.

    For each item: does its intercept (uniform) or its slope (nonuniform) differ between persons of
    the same ability in the reference and in a focal group, or in any of several?  Each group has a
    normal distribution of ability of its own, so a difference in ability (impact) is no DIF.
    Nobody is matched on a score or on an estimate of ability, whose errors would show as DIF where
    the groups differ.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes, with groups of persons.
        Person weights: sampling weights are divided by their mean in each group, and tests are of
        the population that is sampled; frequency weights count persons.  Persons are taken as
        drawn one by one: where whole schools were, and answer items of their own teaching
        otherwise, errors are too small.
    items : Dataset
        The items' parameters common to both groups, matched by identifier:
        consistent ones, of a marginal or Bayesian fit to all groups or to one, or a bank.  Errors
        of estimation do not matter to first order; joint fits of short tests are biased too much.
    reference : str
        Label of the group that others are compared with.
    focal : str, list of str or None
        Label of the group, or of each that is compared with the reference (None: all others, in
        alphabetical order, 200 groups at most).  Persons of groups that are not named are left out.
    anchors : "all", "iterate" or list of items
        The items that are taken to be the same in all groups, and say how able these are.  With
        "all" each item is tested among all others: where many favour one group they pass for its
        ability, and the others show the opposite.  Otherwise every item that is no anchor is tested
        beside these, in turn.  "iterate" begins with all, leaves out those whose shift or change of
        slope is more than 1.96 standard errors from where most items have theirs (the mode), and
        tests again, until the anchors stay (at most 20 rounds).  It finds them where more than half
        of the items are the same; no statistic can tell which half is.  Errors of shifts and
        p-values hold that some of them may differ (see Notes).  With several focal groups an anchor
        is within those errors in each of them: all groups, and the test of all, have the same
        anchors.
    seed : int
        Of the persons who are simulated where a group is small (see Notes).
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over items
        ``item_dif_uniform_chi2`` (1 degree of freedom), ``item_dif_nonuniform_chi2`` (1, the slope
        given the intercept) and ``item_dif_joint_chi2`` (``item_dif_joint_df``: 2, and with more
        than two categories one for each free parameter of the item), each with ``_p_value`` and
        ``_q_value``, adjusted for the number of items (Benjamini and Hochberg 1995: of items with
        q below .05 some 5% have no DIF).
        ``item_dif_shift`` and ``_se``: the focal group's intercept less the reference's, slopes
        equal, logits (positive: easier for the focal group); ``item_dif_slope`` and ``_se``: the
        difference in slopes.  Both are one step from no DIF, too small where it is large.  With
        more than two categories the shift is that of all steps together.
        ``item_dif_score`` and ``_se``: what the shift makes of the expected score, the mean over
        the focal group.
        ``item_dif_delta``: 2.35 times the shift, the ETS delta scale (negative: harder for the
        focal group); ``item_dif_class``: A (absolute value below 1, or not different from 0), C (at
        least 1.5 and beyond 1 by a one-sided test), else B, at the 5% level; "" without result.
        With more than two categories by ``item_dif_score`` over the SD of the score: A up to .17 or
        not different from 0, C above .25, else B.
        With a list or None as ``focal`` these have a dimension ``focal`` before the items, with the
        labels as coordinate (``item_dif_joint_df`` has not, being the same for all): each is what a
        call with that group alone gives, up to the rounding of scores (and but for
        ``anchors="iterate"``).  ``item_dif_omnibus_chi2``, ``_df``, ``_p_value`` and ``_q_value``,
        over the items, test whether an item has one curve in all groups that answered it: one model
        with a mean and an SD for each group, degrees of freedom the directions (those of the joint
        test) times the groups less one.
        ``focal_n_persons``, ``focal_ability_mean`` and ``focal_ability_sd`` take the place of
        the attributes of the focal group.
        An item that a group did not answer, or all but alike, or that is flagged, has NaN.  attrs:
        ``ability_mean_reference``, ``ability_sd_reference``, ``ability_mean_focal``,
        ``ability_sd_focal``, by the anchors, ``n_reference``, ``n_focal``, ``n_anchors``,
        ``n_rounds``; with weights ``weight_kind``, and of sampling weights ``mean_weight``.
        ``item_dif_anchor`` (items) says which items are anchors.

    Raises
    ------
    InputError
        Without groups, for an unknown label or the same one twice, or for more than 1,500 items;
        for a group of more than 2^30 persons, or 2^24 with sampling weights.
    EstimationError
        If there are fewer persons (with sampling weights: in effect, (sum w)^2 / sum w^2) than
        parameters (2 an item, with more than two categories as many as it has), or the scores are
        dependent.

    Warns
    -----
    ApproximationWarning
        If anchors are to be found and shifts have errors above .2 as a rule, as with fewer than
        some 150 persons in a group.
        If fewer than 15 persons (with sampling weights: in effect) of a group answered some items,
        with which nothing was tried.
    DataWarning
        Items that are so easy or hard for a group that next to nobody (fewer than 5, of those who
        are simulated if the group is small) is expected to answer otherwise than the others.
    ItemWarning
        Names the items that are not tested because of a flag (``item_flag``; without flags, what
        the numbers tell) other than few responses: their curves are not those of the responses.

    Notes
    -----
    Neyman's C(alpha): the score of a focal group for the item's intercept and slope, less what
    the scores of all common parameters (every intercept and slope, the focal group's mean and SD)
    explain of it, over the variance of the remainder.  Other parameters are taken as known.  The
    variance comes from the squares of the persons' own scores in a group with 5,000 responses to
    every item.  In a smaller one these vary too much, and together with the scores themselves (with
    60 persons 11% of the nonuniform p-values would be below .05 without DIF); there it comes from
    20,000 persons or so who are simulated under the model with the same items unobserved.  Without
    DIF, of either group's 15 to 1,000 persons, 4.5% to 5.6% of the p-values of each kind are below
    .05.  An item with DIF also moves the groups' abilities, and with many such items in one
    direction the others show some of the opposite: see ``anchors``.

    Anchors that were found may hold items with DIF that their errors hide.  What shifts say of the
    place of the group, if they are all alike or one in four are large (.64 logits) one way, as
    likely as not, has a variance; what it has beyond that of known anchors is a part of the
    variances of shifts, and of all tests but the nonuniform one (one more round).

    With sampling weights w scores are weighted, what common scores explain of them is found with
    weights w, and the variance is that of the weighted remainders, by w^2 (a sandwich).  Shares of
    p-values below .05 were 4.7% to 5.8% where weights go with ability.

    Passes over the data of each group: one for the labels (two if ``focal`` is None), one for each
    EM step (some ten), one or, of small groups, two (of these the second over simulated persons, at
    most 200,000 of a group or as many as it has) with a matrix product of ``size^2`` operations a
    person, size being the items times the directions of the one that has most (2 with two
    categories, K for K).  Nothing is done twice for the reference group.  Sampling weights double
    all this; with frequency weights every person who is counted is simulated, no row twice else.
    The test of all groups solves equations of ``size`` unknowns as often as there are items.
    Driver memory: ``8 size^2`` bytes times six and the number of groups (weighted: twice that),
    which are refused beyond what there is.
    Sources: Neyman (1959); Glas (1998), score tests for DIF; classes: Zwick (2012), with the shift
    in place of the Mantel-Haenszel log odds ratio; Zwick, Thayer and Mazzeo (1997).

    Examples
    --------
    >>> import numpy as np
    >>> import irt_dask as irt
    >>> answers = irt.simulate(2000, 10, seed=5).to_xarray()["response"].values
    >>> answers[1000::2, 0] = 0  # makes the first item harder for group b
    >>> responses = irt.from_array(answers, persons={"group": np.repeat(["a", "b"], 1000)})
    >>> tests = irt.dif(responses, irt.fit_marginal(responses), reference="a", focal="b")
    >>> tests["item_dif_class"].values.tolist()
    ['C', 'A', 'A', 'A', 'A', 'A', 'A', 'A', 'A', 'A']

    All groups of the responses at once:

    >>> tests = irt.dif(responses, irt.fit_marginal(responses), reference="a", focal=None)
    >>> tests["item_dif_class"].sel(focal="b").values[:3].tolist()
    ['C', 'A', 'A']
    >>> tests["item_dif_omnibus_df"].values[:3].tolist()
    [2, 2, 2]
    """
    responses = as_responses(responses, "dif", graded=True, items=items)
    ids, m = responses.item_id, responses.n_items
    if m > _MAX_ITEMS:
        raise InputError(
            f"{m} items: dif takes {_MAX_ITEMS} at most, whose matrix the driver holds; select "
            f"fewer items"
        )
    known = item_set(items, responses.item_id)
    refuse_other_categories(known, responses.n_categories, responses.item_id, "items")
    labels = _labels(responses, reference, focal, client)
    parts = of_groups(responses, labels, client, progress)
    _check_size(parts, labels, m, dif_directions.numbers(known))
    flagged, chosen = checks.unsound(items, ids), dif_anchors.given(anchors, ids)
    sound, asked = flagged == "", dif_scores.Asked(seed, client, progress)

    def tested(at: Ints, unknown: Floats | None) -> tuple[dict[str, Any], dif_scores.Scores]:
        """Test some of the items among themselves."""
        own, of = known, parts
        if at.size < m:
            own = item_set(items, tuple(ids[j] for j in at))
            of = [part.select(items=[ids[j] for j in at]) for part in parts]
        found = dif_scores.of_parts(of, own, asked)
        with single_threaded():  # products of matrices: the same bits, whatever threads there are
            return _tests(found, own, not isinstance(focal, str), unknown), found

    if anchors == dif_anchors.ITERATE:
        data, found, same, rounds = dif_anchors.iterated(tested, sound)
        dif_anchors.warn_of_unsure(data, labels[1:], 2)
    else:
        same, rounds = np.ones(m, dtype=bool) if chosen is None else chosen, 1
        data, found = dif_anchors.beside(tested, same)
    _warn_of_few(data.pop("seen"), labels, ids, sound, found.sampled)
    _warn_of_one_sided(data.pop("one_sided") & sound, labels, ids)
    data = _finished(data, sound)
    data["item_dif_anchor"] = same
    named = {i: str(f) for i, f in zip(responses.item_id, flagged, strict=True) if f}
    checks.left_out(named, m, "are not tested, being flagged")
    attrs: dict[str, Any] = {
        "method": "score tests of differential item functioning",
        "model": items.attrs.get("model"),
        "reference": labels[0],
        "anchors": anchors if chosen is None else "given",
        "n_anchors": int(same.sum()),
        "n_rounds": rounds,
        "seed": seed,
        "converged": found.converged,
        "n_iterations": found.n_steps,
        **found.weight_attrs,
    }
    return _described(data, found, labels, ids, attrs, isinstance(focal, str))


def _labels(
    responses: Responses, reference: str, focal: str | Sequence[str] | None, client: Any
) -> tuple[str, ...]:
    """Labels of the groups, the reference first."""
    reference = str(reference)
    if focal is None:
        every = labels_of(responses, client) if responses.has_groups else ()
        labels = tuple(label for label in every if label != reference)
        if every and not labels:
            raise InputError(f"everybody belongs to group {reference!r}; there is none to compare")
    else:
        labels = (str(focal),) if isinstance(focal, str) else tuple(str(f) for f in focal)
        if not labels:
            raise InputError("focal is empty; name groups, or say None for all but the reference")
    if reference in labels:
        both = "are both" if isinstance(focal, str) else "both hold"
        raise InputError(f"reference and focal {both} {reference!r}; give other groups")
    if twice := repeated(labels):
        raise InputError(f"focal names {', '.join(twice)} more than once; name each group once")
    return (reference, *labels)


def _check_size(parts: list[Responses], labels: Sequence[str], m: int, numbers: Ints) -> None:
    """Refuse matrices beyond the memory, and fewer persons than parameters."""
    common, size = int(numbers.sum()) + 2, int(numbers.max()) * m + 2
    each = len(parts) * (1 if parts[0].max_weight is None else 2)  # products, and squares
    refuse_beyond_memory(
        8.0 * (6 + each) * size**2,
        f"tests of {m} items for differential functioning, {size} scores,",
    )
    for part, label in zip(parts[1:], labels[1:], strict=True):
        n = parts[0].n_persons + part.n_persons
        if n <= common and part.weight_kind == SAMPLING:
            raise EstimationError(
                f"{n} persons of groups {labels[0]!r} and {label!r} and {common} common "
                f"parameters: there must be more persons; select fewer items"
            )


def _tests(
    found: dif_scores.Scores, items: ItemSet, together: bool, unknown: Floats | None
) -> dict[str, Any]:
    """Tests of each focal group, (groups, items), and if wanted of all together, (items,)."""
    reference, *focal = found.groups
    unknown = np.zeros(len(focal)) if unknown is None else unknown
    pairs = [dif_tests.of_pair(reference, group, items, found.bound, float(variance))
             for group, variance in zip(focal, unknown, strict=True)]  # fmt: skip
    data = {name: np.stack([pair[name] for pair in pairs]) for name in pairs[0]}
    data["item_dif_joint_df"] = dif_directions.numbers(items)
    data["seen"] = np.stack([g.seen for g in found.groups])
    data["one_sided"] = np.stack([g.one_sided for g in found.groups])
    return data | (dif_tests.of_all(found.groups, items, found.bound, unknown) if together else {})


def _finished(data: dict[str, Any], sound: Bools) -> dict[str, Any]:
    """Results of the items that are sound, with p-values adjusted for their number."""
    for name, values in data.items():
        if name not in _TOGETHER:
            data[name] = np.where(sound, values, "" if name == "item_dif_class" else np.nan)
    for name in ("uniform", "nonuniform", "joint", "omnibus"):
        if (p := data.get(f"item_dif_{name}_p_value")) is not None:
            q = np.apply_along_axis(dif_tests.adjusted, -1, p)
            data[f"item_dif_{name}_q_value"] = q
    return data


def _described(
    data: dict[str, Any], found: dif_scores.Scores, labels: Sequence[str], ids: tuple[str, ...],
    attrs: dict[str, Any], single: bool,
) -> xr.Dataset:  # fmt: skip
    """The result, with what is known of the groups."""
    coords: dict[str, Any] = {}
    if single:
        data = {name: x[0] if x.ndim == 2 else x for name, x in data.items()}
        attrs["focal"] = labels[1]
    else:
        coords["focal"] = np.array(labels[1:])
        focal = found.groups[1:]
        data["focal_n_persons"] = np.array([g.n_persons for g in focal])
        data["focal_ability_mean"] = np.array([g.known.mean for g in focal])
        data["focal_ability_sd"] = np.array([g.known.sd for g in focal])
    for name, group in zip(("reference", "focal")[: 1 + single], found.groups, strict=False):
        attrs[f"n_{name}"] = group.n_persons
        attrs[f"ability_mean_{name}"] = group.known.mean
        attrs[f"ability_sd_{name}"] = group.known.sd
    return dataset(data, item_id=ids, coords=coords, attrs=attrs)


def _warn_of_few(
    seen: Ints, labels: Sequence[str], item_id: tuple[str, ...], tested: Bools, sampled: bool
) -> None:
    """Warn if very few persons of a group answered tested items."""
    most = np.iinfo(np.int64).max
    some = np.where(seen > 0, seen, most)
    fewest = np.where(((seen > 0).sum(axis=0) > 1) & tested, some.min(axis=0), most)
    few = int((fewest < _FEW).sum())
    if few:
        j = int(fewest.argmin())
        effect = " in effect, weights being unequal," if sampled else ""
        warnings.warn(
            f"fewer than {_FEW} persons of a group{effect} answered {few} item(s) (the fewest: "
            f"{fewest[j]} of group {labels[int(some[:, j].argmin())]!r} item {item_id[j]}): the "
            f"p-values of these items are approximations for more persons than that",
            ApproximationWarning,
            stacklevel=3,
        )


def _warn_of_one_sided(bad: Bools, labels: Sequence[str], item_id: tuple[str, ...]) -> None:
    """Name items that a group answers alike, (groups, items), which have no test with it."""
    if bad.any():
        g, j = (int(k) for k in np.argwhere(bad)[0])
        n = int(bad.any(axis=0).sum())
        warnings.warn(
            f"{n} item(s) have no test with some group, of which next to nobody is expected to "
            f"answer them otherwise than all others, such as group {labels[g]!r} item "
            f"{item_id[j]}: they are too easy or too hard for it",
            DataWarning,
            stacklevel=3,
        )
