"""Differential item functioning between two groups: score tests in the marginal likelihood."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import xarray as xr
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtri

from irt_dask.arrays import Floats, Ints, Words
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.cache import keep
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import ApproximationWarning, EstimationError, InputError
from irt_dask.evaluate import dif_anchors, dif_directions
from irt_dask.evaluate.abilities import Known
from irt_dask.evaluate.groups import of_groups
from irt_dask.items import checks
from irt_dask.items.parameters import item_set, refuse_other_categories
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.base.lanes import LANES
from irt_dask.kernels.misfit import replicated_responses, residual_products
from irt_dask.kernels.posterior import at_ability
from irt_dask.kernels.responses import response_counts
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.population import em
from irt_dask.population.population import NOBODY_APART
from irt_dask.store import Block, Responses
from irt_dask.store.responses import sha256

_MAX_ITEMS = 1500
#: Of the ETS delta scale: a logit is -2.35 of it, from easy for the focal group to hard.
DELTA = 2.35
#: Absolute values of delta that part A from B and B from C.
_A, _C = 1.0, 1.5
#: The same of differences of expected scores, in SDs of the score (Zwick, Thayer and Mazzeo 1997).
_A_SCORE, _C_SCORE = 0.17, 0.25
_LEVEL = 0.05
#: No ability is drawn further out than so many SDs: the normal quantile of the smallest uniform.
_FURTHEST = 8.3
#: Responses of a group to each item from which on the squares of the scores that it has say how
#: these vary; with fewer the scores of simulated persons do.
_MANY = 5000
#: Of those so many, or more for each parameter; and at most so many, or as many as there are.
_SIMULATED, _FOR_EACH, _AT_MOST = 20_000, 20, 200_000
#: Persons of a group below which the tests of an item are not trusted.
_FEW = 15


class _Group(NamedTuple):
    """Score of a group and its sum of squares and products: by direction, then mean and SD."""

    known: Known
    n_persons: int
    score: Floats
    products: Floats
    #: Persons who answered each item.
    seen: Ints
    #: How many times each person was simulated for the products; 0: they are the persons' own.
    n_replicates: int


def _scores(block: Block, known: Known, bound: Floats) -> tuple[Any, ...]:
    """Sum of the persons' scores and of their products, and how many answered each item."""
    return (*_products(block.data, known, bound), response_counts.response_counts(block.data)[1])


def _simulated(
    block: Block, known: Known, bound: Floats, keys: tuple[Words, ...]
) -> tuple[Any, ...]:
    """Sum of products of scores of persons who are simulated as the block's, once for each key."""
    products: Any = 0
    ends = known.mean - _FURTHEST * known.sd, known.mean + _FURTHEST * known.sd
    curves = keep(
        ("simulated", known.items.digest, *ends), lambda: at_ability.between(known.items, *ends)
    )
    for key in keys:
        words = keyed_random.words(key, block.start, block.n_persons, 2)
        u = keyed_random.uniforms(key, block.start, block.n_persons)[:, 0]  # of the first word
        theta = known.mean + known.sd * ndtri(u)
        drawn = replicated_responses.responses(block.data, theta, curves, words[:, 1])
        products = products + _products(drawn, known, bound)[1]
    return (products,)


def _products(data: Layout, known: Known, bound: Floats) -> tuple[Ints, Ints]:
    key = ("derivatives", known.items.digest, sha256(known.nodes, bound))
    # Derivatives of log P, in units of ``bound``, (directions, items).
    table = keep(
        key,
        lambda: (
            dif_directions.tables(known.items, known.nodes)
            / np.repeat(bound, known.items.n_categories, axis=1)[:, :, None]
        ),
    )
    return residual_products.score_products(
        *known.posteriors(data).arguments, known.items.first, table, known.mean, known.sd
    )


def dif(
    responses: Any,
    items: xr.Dataset,
    *,
    reference: str,
    focal: str,
    anchors: str | Sequence[str] = dif_anchors.ALL,
    seed: int = 0,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Test every item for a different curve in the focal group, ability integrated out.

    For each item: does its intercept (uniform) or its slope (nonuniform) differ between persons of
    the same ability in the two groups?  Each group has a normal distribution of ability of its own,
    so a difference in ability (impact) is no DIF.  Nobody is matched on a score or on an estimate
    of ability, whose errors would show as DIF where the groups differ.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes, with groups of persons, without weights.
    items : Dataset
        The items' parameters common to both groups, matched by identifier:
        consistent ones, of a marginal or Bayesian fit to both groups or to one, or a bank.  Errors
        of estimation do not matter to first order; joint fits of short tests are biased too much.
    reference, focal : str
        Labels of the two groups; other persons are left out.
    anchors : "all", "iterate" or list of items
        The items that are taken to be the same in both groups, and say how able these are.  With
        "all" each item is tested among all others: where many favour one group they pass for its
        ability, and the others show the opposite.  Otherwise every item that is no anchor is tested
        beside these, in turn.  "iterate" begins with all, leaves out those whose shift or change of
        slope is more than 1.96 standard errors from that of the middle item, and tests again, until
        the anchors stay (at most 20 rounds).  It finds them where more than half of the items are
        the same; no statistic can tell which half is.
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
        An item that a group did not answer, or that is flagged, has NaN.  attrs:
        ``ability_mean_reference``, ``ability_sd_reference``, ``ability_mean_focal``,
        ``ability_sd_focal``, by the anchors, ``n_reference``, ``n_focal``, ``n_anchors``,
        ``n_rounds``.  ``item_dif_anchor`` says which items are anchors.

    Raises
    ------
    InputError
        Without groups, for an unknown label or the same one twice, or for more than 1,500 items.
    EstimationError
        If there are fewer persons than parameters (2 an item, with more than two categories as many
        as it has), or the scores are dependent.

    Warns
    -----
    ApproximationWarning
        If fewer than 15 persons of a group answered some items, with which nothing was tried.
    ItemWarning
        Names the items that are not tested because of a flag (``item_flag``; without flags, what
        the numbers tell) other than few responses: their curves are not those of the responses.

    Notes
    -----
    Neyman's C(alpha): the score of the focal group for the item's intercept and slope, less what
    the scores of all common parameters (every intercept and slope, the focal group's mean and SD)
    explain of it, over the variance of the remainder.  Other parameters are taken as known.  The
    variance comes from the squares of the persons' own scores in a group with 5,000 responses to
    every item.  In a smaller one these vary too much, and together with the scores themselves (with
    60 persons 11% of the nonuniform p-values would be below .05 without DIF); there it comes from
    20,000 persons or so who are simulated under the model with the same items unobserved.  Without
    DIF, of either group's 15 to 1,000 persons, 4.5% to 5.6% of the p-values of each kind are below
    .05.  An item with DIF also moves the groups' abilities, and with many such items in one
    direction the others show some of the opposite: see ``anchors``.

    Passes over the data: one for the groups' labels, one for each EM step of either group (some
    ten), one or, of small groups, two (of these the second over simulated persons, at most 200,000
    of a group or as many as it has) with a matrix product of ``size^2`` operations a person, size
    being the items times the directions of the one that has most (2 with two categories, K for K).
    Driver memory: some times ``8 size^2`` bytes, which are refused beyond what there is.
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
    """
    responses = as_responses(responses, "dif", graded=True, items=items)
    refuse_weights(responses, "dif")
    ids, m = responses.item_id, responses.n_items
    if reference == focal:
        raise InputError(f"reference and focal are both {focal!r}; give two groups")
    if m > _MAX_ITEMS:
        raise InputError(
            f"{m} items: dif takes {_MAX_ITEMS} at most, whose matrix the driver holds; select "
            f"fewer items"
        )
    known = item_set(items, responses.item_id)
    refuse_other_categories(known, responses.n_categories, responses.item_id, "items")
    parts = of_groups(responses, (str(reference), str(focal)), client, progress)
    n = parts[0].n_persons + parts[1].n_persons
    numbers = dif_directions.numbers(known)
    common, size = int(numbers.sum()) + 2, int(numbers.max()) * m + 2
    refuse_beyond_memory(
        8.0 * 8 * size**2, f"tests of {m} items for differential functioning, {size} scores,"
    )
    if n <= common:
        raise EstimationError(
            f"{n} persons and {common} common parameters: there must be more persons; select fewer "
            f"items"
        )
    flagged, chosen = checks.unsound(items, ids), dif_anchors.given(anchors, ids)
    sound = flagged == ""

    def tested(at: Ints) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """Test some of the items among themselves."""
        own, of, every = known, parts, at.size == m
        if not every:
            own = item_set(items, tuple(ids[j] for j in at))
            of = [part.select(items=[ids[j] for j in at]) for part in parts]
        groups, bound, steps, converged = _groups(of, own, seed, client, progress)
        with single_threaded():  # products of matrices: the same bits, whatever threads there are
            return _tests(groups, own, bound), (groups, steps, converged)

    if anchors == dif_anchors.ITERATE:
        data, (groups, steps, converged), same, rounds = dif_anchors.iterated(tested, sound)
    else:
        same, rounds = np.ones(m, dtype=bool) if chosen is None else chosen, 1
        data, (groups, steps, converged) = dif_anchors.beside(tested, same)
    seen = data.pop("seen")
    _warn_of_few(seen, (str(reference), str(focal)), ids, sound)
    for name, values in data.items():
        if name == "item_dif_joint_df":
            continue
        data[name] = np.where(sound, values, "" if name == "item_dif_class" else np.nan)
    for name in ("uniform", "nonuniform", "joint"):
        data[f"item_dif_{name}_q_value"] = adjusted(data[f"item_dif_{name}_p_value"])
    data["item_dif_anchor"] = same
    named = {i: str(f) for i, f in zip(responses.item_id, flagged, strict=True) if f}
    checks.left_out(named, m, "are not tested, being flagged")
    attrs: dict[str, Any] = {
        "method": "score tests of differential item functioning",
        "model": items.attrs.get("model"),
        "reference": str(reference),
        "focal": str(focal),
        "anchors": anchors if chosen is None else "given",
        "n_anchors": int(same.sum()),
        "n_rounds": rounds,
        "seed": seed,
        "converged": converged,
        "n_iterations": steps,
    }
    for name, part, group in zip(("reference", "focal"), parts, groups, strict=True):
        attrs[f"n_{name}"] = part.n_persons
        attrs[f"ability_mean_{name}"] = group.known.mean
        attrs[f"ability_sd_{name}"] = group.known.sd
    return dataset(data, item_id=responses.item_id, attrs=attrs)


def _groups(
    parts: list[Responses], items: ItemSet, seed: int, client: Any, progress: ProgressOption
) -> tuple[list[_Group], Floats, int, bool]:
    """Ability and scores of each group; the scores' divisors, EM steps, whether all ended."""
    fitted, how = [], {"client": client, "progress": progress, "graded": True}
    for part in parts:
        with Engine(part, **how, stage="abilities") as engine:
            fitted.append(em.one_normal(engine, items))
    settings = [Known.of(items, found.population) for found in fitted]
    steep = [dif_directions.tables(items, k.nodes[:-LANES]) for k in settings]
    largest = np.max([np.abs(x).max(axis=2) for x in steep], axis=0)
    largest = np.maximum.reduceat(largest, items.first[:-1], axis=1)
    bound = 2.0 ** np.ceil(np.log2(np.where(largest > 0.0, largest, 1.0)))
    groups: list[_Group] = []
    for part, known in zip(parts, settings, strict=True):
        with Engine(part, **how, stage="scores") as engine:
            score, products, seen = engine.map_reduce(_scores, known, bound, report=True)
        times = _n_replicates(part.n_persons, seen, int(score.size))
        if times:
            keys = tuple(keyed_random.key(seed, "dif", len(groups), r) for r in range(times))
            with Engine(part, **how, stage="simulated scores") as engine:
                (products,) = engine.map_reduce(_simulated, known, bound, keys, report=True)
        unit = residual_products.UNIT
        products = products / (unit**2 * max(times, 1))
        groups.append(_Group(known, part.n_persons, score / unit, products, seen, times))
    return groups, bound, max(f.passes for f in fitted), all(f.converged for f in fitted)


def _n_replicates(n_persons: int, seen: Ints, size: int) -> int:
    """How often persons are simulated, of a group that gave so many responses to each item."""
    fewest = int(seen[seen > 0].min(initial=_MANY))
    if fewest >= _MANY:
        return 0
    wanted = max(math.ceil(_SIMULATED / fewest), math.ceil(_FOR_EACH * size / n_persons))
    return max(1, min(wanted, _AT_MOST // n_persons))


def _tests(groups: list[_Group], items: ItemSet, bound: Floats) -> dict[str, Any]:
    """Chi-squares, p-values and effects from the groups' scores."""
    one, two = groups
    m, n_directions = items.n_items, len(bound)
    size = n_directions * m
    # Common parameters: items from both groups, mean and SD of the focal group (the reference
    # group's fix the scale).
    score, products = two.score.copy(), two.products.copy()
    score[:size] += one.score[:size]
    products[:size, :size] += one.products[:size, :size]
    n = one.n_persons + two.n_persons
    efficient, cross, solved, rest = _efficient(score, products, two, n)
    shift, slope = np.full((2, m), np.nan), np.full((2, m), np.nan)
    uniform, nonuniform, joint = np.full((3, m), np.nan)
    for j, directions in enumerate(dif_directions.numbers(items)):
        at = j + m * np.arange(directions)
        if one.products[j, j] <= 0.0 or two.products[j, j] <= 0.0:
            continue
        v = rest * (two.products[np.ix_(at, at)] - cross[:, at].T @ solved[:, at])
        v = 0.5 * (v + v.T)
        u = efficient[at]
        if not v[0, 0] > 1e-9 * two.products[j, j]:
            continue
        uniform[j] = u[0] ** 2 / v[0, 0]
        shift[:, j] = np.array([u[0] / v[0, 0], 1.0 / math.sqrt(v[0, 0])]) / bound[0, j]
        if np.linalg.det(v[:2, :2]) > 1e-9 * v[0, 0] * v[1, 1]:
            inverse = np.linalg.inv(v[:2, :2])
            nonuniform[j] = max(u[:2] @ inverse @ u[:2] - uniform[j], 0.0)
            slope[:, j] = np.array([(inverse @ u[:2])[1], math.sqrt(inverse[1, 1])]) / bound[1, j]
            joint[j] = _joint(u, v)
    effect, spread = _of_scores(groups, items, shift)
    tests = {"uniform": uniform, "nonuniform": nonuniform, "joint": joint}
    degrees = dict.fromkeys(("uniform", "nonuniform"), np.ones(m, dtype=np.int64))
    degrees["joint"] = dif_directions.numbers(items)
    data: dict[str, Any] = {
        "item_dif_shift": shift[0],
        "item_dif_shift_se": shift[1],
        "item_dif_slope": slope[0],
        "item_dif_slope_se": slope[1],
        "item_dif_delta": DELTA * shift[0],
        "item_dif_class": np.where(
            items.n_categories > 2,
            _classes_of_scores(effect[0], effect[1], spread),
            _classes(*shift),
        ),
        "item_dif_score": effect[0],
        "item_dif_score_se": effect[1],
        "item_dif_joint_df": degrees["joint"],
        "seen": np.stack([g.seen for g in groups], axis=1),
    }
    for name, value in tests.items():
        data[f"item_dif_{name}_chi2"] = value
        data[f"item_dif_{name}_p_value"] = chdtrc(degrees[name], np.maximum(value, 0.0))
    return data


def _efficient(
    score: Floats, products: Floats, focal: _Group, n: int
) -> tuple[Floats, Floats, Floats, float]:
    """The focal group's score less what the common ones explain, and what that is made of."""
    known = np.flatnonzero(np.diag(products) > 0.0)
    size = np.sqrt(np.diag(products)[known])
    try:
        factor = scipy.linalg.cho_factor(products[np.ix_(known, known)] / np.outer(size, size))
    except scipy.linalg.LinAlgError:
        raise EstimationError(
            "the scores of the items are linearly dependent: too few persons answered some items; "
            "remove these or give more persons"
        ) from None
    cross = focal.products[known] / size[:, None]  # of the common scores with the focal group's own
    solved = scipy.linalg.cho_solve(factor, cross)
    total = score[known] / size
    # Squares that are left after a regression on so many scores are too small; so is the sum of the
    # persons' own, by the part of it that these scores explain (none at their maximum).
    n_each = max(focal.n_replicates, 1) * n
    explained = 0.0 if focal.n_replicates else total @ scipy.linalg.cho_solve(factor, total)
    rest = (n_each - explained) / (n_each - known.size)
    return focal.score - solved.T @ total, cross, solved, rest


def _joint(u: Floats, v: Floats) -> float:
    """Chi-square of all directions; NaN where some cannot be told apart."""
    size = np.sqrt(np.diag(v))
    if not (size > 0.0).all() or np.linalg.eigvalsh(v / np.outer(size, size))[0] < 1e-9:
        return math.nan
    return float(u @ np.linalg.solve(v, u))


def adjusted(p: Floats) -> Floats:
    """p-values adjusted for the number of tests by Benjamini and Hochberg; NaN are none."""
    out, known = np.full(p.shape, np.nan), np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    scaled = p[order] * order.size / np.arange(1, order.size + 1)
    out[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return out


def _of_scores(groups: list[_Group], items: ItemSet, shift: Floats) -> tuple[Floats, Floats]:
    """Differences of expected scores over the focal group with errors; SDs of scores, (items,).

    SDs are those in both groups together.
    """
    score = np.arange(items.first[-1]) - np.repeat(items.first[:-1], items.n_categories)
    moments = np.zeros((2, items.n_items))
    slope = np.zeros(items.n_items)
    sizes = [float(g.seen.sum()) for g in groups]
    for group, size in zip(groups, sizes, strict=True):
        nodes = group.known.nodes
        mass = np.exp(group.known.population.prior(nodes, NOBODY_APART)[0].log_mass[0])
        mass /= mass.sum()
        p = np.exp(items.log_p(nodes))
        for k in (1, 2):
            by_row = p @ mass * score**k
            moments[k - 1] += np.add.reduceat(by_row, items.first[:-1]) * size / sum(sizes)
        if group is groups[1]:
            moved = (p * dif_directions.tables(items, nodes)[0] * score[:, None]) @ mass
            slope = np.add.reduceat(moved, items.first[:-1])
    with np.errstate(invalid="ignore"):
        return shift * np.stack([slope, np.abs(slope)]), np.sqrt(moments[1] - moments[0] ** 2)


def _warn_of_few(
    seen: Ints, labels: tuple[str, str], item_id: tuple[str, ...], tested: Any
) -> None:
    """Warn if very few persons of a group answered tested items."""
    fewest = np.where((seen > 0).all(axis=1) & tested, seen.min(axis=1), np.iinfo(np.int64).max)
    few = int((fewest < _FEW).sum())
    if few:
        j = int(fewest.argmin())
        warnings.warn(
            f"fewer than {_FEW} persons of a group answered {few} item(s) (the fewest: "
            f"{fewest[j]} of group {labels[int(seen[j].argmin())]!r} item {item_id[j]}): the "
            f"p-values of these items are approximations for more persons than that",
            ApproximationWarning,
            stacklevel=3,
        )


def _classes(shift: Floats, se: Floats) -> NDArray[np.str_]:
    """ETS classes of uniform DIF."""
    delta, error = np.abs(DELTA * shift), DELTA * se
    small = (delta < _A) | (delta <= ndtri(1.0 - _LEVEL / 2.0) * error)
    large = (delta >= _C) & (delta - _A > ndtri(1.0 - _LEVEL) * error)
    out = np.where(small, "A", np.where(large, "C", "B"))
    return np.where(np.isnan(shift), "", out)


def _classes_of_scores(effect: Floats, se: Floats, spread: Floats) -> NDArray[np.str_]:
    """Classes of items with more categories, of effects next to SDs of the score."""
    with np.errstate(divide="ignore", invalid="ignore"):
        effect, se = effect / spread, se / spread
    small = (np.abs(effect) <= _A_SCORE) | (np.abs(effect) <= ndtri(1.0 - _LEVEL / 2.0) * se)
    out = np.where(small, "A", np.where(np.abs(effect) > _C_SCORE, "C", "B"))
    return np.where(np.isnan(effect), "", out)
