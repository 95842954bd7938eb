"""Linking: put separately calibrated items on the scale of others by the items both have."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.banks import common_items, link_errors, link_robust
from irt_dask.banks.link_constants import METHODS, NODES, WEIGHTS, Constants, Pair, constants, moved
from irt_dask.banks.link_gradient import moves
from irt_dask.curves import MORE_PARAMETERS
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import dataset
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import DataWarning, EstimationError, InputError, ItemWarning, listed
from irt_dask.items import checks
from irt_dask.items.described import described
from irt_dask.items.mixture import Mixture
from irt_dask.items.parameters import OF_MODELS, bank_item_ids, calibration_groups, item_set
from irt_dask.variables import as_labels


def link(
    bank_a: xr.Dataset, bank_b: xr.Dataset, *, method: str = "haebara", robust: str | None = None,
    error: str | None = None, item_blocks: Any = None, at: float = 0.0,
) -> xr.Dataset:  # fmt: skip
    """Put the items of ``bank_b`` on the scale of ``bank_a`` by the items that both have.

    Abilities transform as ``theta_a = A theta_b + B``; so ``a`` becomes ``a / A``, ``b`` becomes
    ``A b + B``, and ``c`` stays.

    Parameters
    ----------
    bank_a, bank_b : Dataset
        Fits or item banks; items are matched by ``item_id``.  Those that ``fit_concurrent`` freed
        in a group (``item_freed_group``) link nothing.
    method : {"haebara", "stocking-lord", "mean-sigma", "mean-mean"}
        "haebara" minimises the squared differences of the curves of all categories (half their
        sum, which with two categories is that of P(right)), "stocking-lord" those of the test curve
        (the sum of the expected scores).  Both sum over 101 even abilities from -5
        to 5 with weights N(0, 1), once on each scale, so that exchanging the banks inverts the
        link.  "mean-sigma" matches mean and standard deviation of the common difficulties
        (of all steps), "mean-mean" their mean and the mean discrimination, whatever its sign.
        Where all items of each bank have one discrimination (1PL), the two slopes give A, whatever
        the method.
    robust : {None, "bisquare"}
        "bisquare": common items that have drifted count less, or not at all.  Residuals of b and
        of log a from the link, in robust SDs (1.4826 MAD about a link by medians, held from there
        on; 0.01 at least), have Tukey's weights (1 - (u / 3)^2)^2, 0 from 3 on; an item's is the
        product of both.  Items link with these weights, and again, until they stay.  Nominal items
        have no b and keep 1.
    error : {None, "delta", "jackknife"}
        Standard errors of A and B.  "delta": those that the errors of the items' parameters make,
        of banks calibrated with different persons.  Fits, and banks of them, carry the covariance
        of all parameters (of bank.csv in bank.covariance.csv); where there are standard errors
        alone a warning says so.
        "jackknife": the common items are a sample of items that could have linked, which is the
        linking error of PISA: a unit is left out, and the banks are linked again.  Where all items
        of a bank share a discrimination (1PL), no item moves A, whose error is then not known and
        said to be 0.
    item_blocks : mapping of item to testlet, Series, or testlets of all common items, optional
        For "jackknife": the units are testlets, items that share a text or a topic and drift
        together.  Default: each item is a unit.
    at : float
        Ability on the scale of bank_b at which ``linking_error``, the standard error of A at + B,
        is told: the mean of the persons who are reported.

    Returns
    -------
    Dataset over the items of bank_b
        ``item_discrimination``, ``item_difficulty``, ``item_intercept`` and what else the items
        have on the scale of bank_a; ``_se`` of discriminations, difficulties, thresholds, category
        scores and asymptotes where bank_b has them (or posterior SDs), scaled, A and B taken as
        known.  Those of intercepts would need a covariance and are left out. ``item_link_rmsd``,
        the root mean square difference of the curves of a common item on the scale of bank_a,
        weights N(0, 1); NaN for other items.  Large ones tell of drift.  attrs: ``A``, ``B``,
        ``criterion`` (weighted sum of squared differences on both scales; NaN for the methods by
        moments), ``n_common``, and ``n_used``, the common items that link the banks. ``item_flag``,
        if bank_b has it.  With ``robust`` ``item_link_weight``, the weight of a common item (NaN of
        others; 0: dropped), and attrs ``robust``, ``n_dropped``, ``dropped``, ``A_unweighted`` and
        ``B_unweighted``.  With ``error`` attrs ``error``, ``error_of`` (what the errors are of),
        ``A_se``, ``B_se``, ``AB_covariance``, ``linking_error`` and ``linking_error_at``, on the
        scale of bank_a, and of the jackknife ``n_units``: :func:`irt_dask.trend` takes the Dataset
        as ``linking_error``, and :func:`irt_dask.score` as ``linking``.

    Raises
    ------
    InputError
        Fewer than two common items, an unknown method, or common items whose discriminations have
        other signs in the two banks: A is positive.  An unknown ``robust`` or ``error``, an option
        of another; common items without any standard error (delta); one testlet, or fewer than two
        items without a unit (jackknife); fewer than five items (robust).
    EstimationError
        Difficulties of three or more common items in opposite order, no slope to be had, no
        minimum found, or an A beyond 5 times or a fifth of the median ratio of discriminations;
        robust weights that do not settle.

    Warns
    -----
    ItemWarning
        Names the common items that are left out: those with a flag (``item_flag``; where a bank has
        none, what its numbers tell) other than few responses, in either bank.  With ``robust``
        also those that have weight 0, and nominal ones.
    DataWarning
        A bank without covariances (delta); fewer than five units (jackknife); a robust B that is
        farther from the unweighted one than four times what chance makes of it, as items have
        drifted to one side.  Without drift that is said of 5% of links by 25 items and 1% by 60;
        with a fifth of them .5 harder of 45 and 75%, with 30% of 20 and 30%; and where two fifths
        have drifted the weights follow them, which nothing tells.

    Notes
    -----
    On the driver, items x 101 numbers; of "delta" also a matrix of all parameters, and "jackknife"
    links as often as there are units.  The criteria are minimised from the best three of some ten
    starts: links by moments and by medians, and slopes up to four times larger or smaller.
    Source: Haebara (1980); Stocking and Lord (1983); Marco (1977); Loyd and Hoover (1980); Kolen
    and Brennan (2014), *Test Equating, Scaling, and Linking*, chapter 6, for the symmetric form.
    Errors: Ogasawara (2000, 2001) and Battauz (2013), by the theorem of implicit functions; Monseur
    and Berezner (2007), the jackknife.  Robust: Beaton and Tukey (1974); He, Cui and Osterlind
    (2015) and Robitzsch (R sirt) for links.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(1000, 12, model="1pl", seed=1)
    >>> bank_a = irt.fit_conditional(responses.select(items=responses.item_id[:8]))
    >>> bank_b = irt.fit_conditional(responses.select(items=responses.item_id[4:]))
    >>> linked = irt.link(bank_a, bank_b)
    >>> linked.attrs["n_common"]
    4
    >>> round(linked.attrs["A"], 1), round(linked.attrs["B"], 1)
    (1.0, 0.2)
    >>> bank_c = irt.fit_conditional(responses.select(items=responses.item_id[1:]))
    >>> some = irt.link(bank_a, bank_c, error="jackknife")
    >>> some.attrs["n_units"], some.attrs["linking_error"] < 0.01  # the same persons answered
    (7, True)
    """
    _check_options(method, robust, error, item_blocks, at)
    common = common_items.common(bank_a, bank_b)
    one, two = item_set(bank_a, common, what="bank_a"), item_set(bank_b, common, what="bank_b")
    used = common_items.sound(bank_a, bank_b, common)
    common_items.check_models(method, one, two, common)
    linking = np.flatnonzero(used)
    of_pair = one.take(linking), two.take(linking)
    ids = [common[j] for j in linking]
    common_items.check_signs(*of_pair, ids)
    common_items.check_order(*(items.difficulty() for items in common_items.ordered(*of_pair)))
    all_b = item_set(bank_b, bank_item_ids(bank_b, "bank_b"), what="bank_b")
    one_slope = all(np.unique(np.abs(items.slope())).size == 1 for items in (one, all_b))
    pair = Pair(method, *of_pair, one_slope, np.ones(linking.size))
    more: dict[str, Any] = {}
    with single_threaded():  # the same bits on any number of cores, and faster
        found = link_robust.robust_constants(pair) if robust else None
        if found is not None:
            more = _about_weights(found, ids) | _beside_plain(found, pair)
        where = found.at if found else constants(pair)
        if error == "delta":
            by = link_robust.robust_moves(found) if found else moves(pair, where)
            of = found.pair if found else pair
            more |= link_errors.delta((bank_a, bank_b), ids, of, by).attrs(at)
        elif error == "jackknife":
            more |= _jackknife(pair, where, robust, item_blocks, common, linking).attrs(at)
    weight = np.zeros(len(common))
    weight[linking] = found.pair.weight if found else 1.0
    return _result(bank_a, bank_b, (one, two, all_b), common, where, weight, method, more)


def _check_options(
    method: str, robust: str | None, error: str | None, item_blocks: Any, at: float
) -> None:
    for name, given, known in (
        ("method", method, METHODS),
        ("robust", robust, (None, "bisquare")),
        ("error", error, (None, *link_errors.ERRORS)),
    ):
        if given not in known:
            raise InputError(
                f"{name}={given!r} is not available; choose one of {', '.join(map(str, known))}"
            )
    if item_blocks is not None and error != "jackknife":
        raise InputError(
            f"item_blocks are the units of error='jackknife', and error={error!r}: leave them out, "
            f"or ask for the jackknife"
        )
    if isinstance(at, bool) or not isinstance(at, (int, float, np.number)) or not np.isfinite(at):
        raise InputError(f"at={at!r}: give an ability on the scale of bank_b, a number")
    if at != 0.0 and error is None:
        raise InputError(
            f"at={at!r} is where an error is told, and there is none: give error='jackknife' or "
            f"'delta'"
        )


def _about_weights(found: link_robust.Robust, ids: list[str]) -> dict[str, Any]:
    """Attributes of a robust link; warns of the items that it drops, or cannot weigh."""
    weight = found.pair.weight
    dropped = [i for i, w in zip(ids, weight, strict=True) if w == 0.0]
    nominal = np.flatnonzero(
        common_items.nominal(found.pair.one) | common_items.nominal(found.pair.two)
    )
    said = []
    if dropped:
        said.append(
            f"{len(dropped)} of {len(ids)} common items do not link the banks, being farther from "
            f"the link than {link_robust.CUT:g} robust SDs: {listed(dropped, 10)}"
        )
    if nominal.size:
        named = listed([ids[j] for j in nominal], 10)
        said.append(f"nominal items link with weight 1, whether they drift or not: {named}")
    if said:
        warnings.warn("; ".join(said), ItemWarning, stacklevel=3)
    return {"robust": "bisquare", "n_dropped": len(dropped), "dropped": ",".join(dropped)}


def _beside_plain(found: link_robust.Robust, pair: Pair) -> dict[str, Any]:
    """The constants without weights; warns if the robust ones are farther from them than chance."""
    try:
        plain = constants(pair)
    except EstimationError:
        plain = Constants(math.nan, math.nan, math.nan)
    apart = found.at.shift - plain.shift
    chance = link_robust.between_links(found)
    if not abs(apart) <= link_robust.APART * chance:
        warnings.warn(
            f"the robust link has B = {found.at.shift:.3f}, and without weights it is "
            f"{plain.shift:.3f}: by chance they differ by some {chance:.3f}, so items have drifted "
            f"to one side. The weights take part of that away, of a tenth of the items nearly all, "
            f"of a third the smaller part: look at item_link_weight and item_link_rmsd, and leave "
            f"out items that are not the same any more",
            DataWarning,
            stacklevel=3,
        )
    return {"A_unweighted": plain.slope, "B_unweighted": plain.shift}


def _jackknife(
    pair: Pair, where: Constants, robust: str | None, item_blocks: Any, common: tuple[str, ...],
    linking: Any,
) -> link_errors.LinkError:  # fmt: skip
    """Leave out each unit of the items that link."""
    ids = [common[j] for j in linking]
    if item_blocks is not None and not hasattr(item_blocks, "keys"):  # a list, of all common items
        item_blocks = dict(zip(common, _labels(item_blocks, common), strict=True))
    of_item, unit = link_errors.units(item_blocks, ids)

    def again(some: Pair, near: Constants) -> Constants:
        return link_robust.robust_constants(some, near).at if robust else constants(some, near)

    return link_errors.jackknife(pair, where, again, of_item, unit, ids)


def _labels(given: Any, common: tuple[str, ...]) -> list[Any]:
    labels = list(given)
    if len(labels) != len(common):
        raise InputError(
            f"item_blocks has {len(labels)} labels, and the banks have {len(common)} common items; "
            f"give a dict from item identifiers to labels"
        )
    return labels


def _result(
    bank_a: xr.Dataset, bank_b: xr.Dataset, items: tuple[ItemSet, ItemSet, ItemSet],
    common: tuple[str, ...], where: Constants, weight: Floats, method: str, more: dict[str, Any],
) -> xr.Dataset:  # fmt: skip
    """The items of bank_b on the scale of bank_a, how far common ones are apart, and the link."""
    (one, two, all_b), slope = items, where.slope
    everyone = bank_item_ids(bank_b, "bank_b")
    linked = moved(all_b, slope, where.shift)
    apart = one.expected(NODES) - moved(two, slope, where.shift).expected(NODES)
    place = {i: k for k, i in enumerate(everyone)}
    at = [place[i] for i in common]
    rmsd, share = np.full((2, len(everyone)), np.nan)
    rmsd[at], share[at] = np.sqrt(apart**2 @ WEIGHTS), weight
    models, x = Mixture.of_items(linked)
    data: dict[str, Any] = {name: value.T for name, (value, _) in described(models, x).items()}
    data |= {p.variable: linked.column(p) for p in MORE_PARAMETERS if p.variable in bank_b}
    data |= {n: bank_b[n].values for n in OF_MODELS if n in bank_b}
    data["item_link_rmsd"] = rmsd
    if "robust" in more:
        data["item_link_weight"] = share
    if "item_flag" in bank_b:
        data["item_flag"] = checks.of_items(bank_b)
    for name in ("item_origin", "item_freed_group", "item_set_groups"):
        if name in bank_b:
            data[name] = as_labels(bank_b[name].values)
    data |= _errors(bank_b, slope)
    attrs = {
        "method": f"link by {method}",
        "model": bank_b.attrs.get("model"),
        "A": slope,
        "B": where.shift,
        "criterion": where.criterion,
        "n_common": len(common),
        "n_used": int((weight > 0.0).sum()),
        "identification": "scale of bank_a",
        **more,
    }
    if "degrees_of_freedom" in bank_b.attrs:  # of these standard errors
        attrs["degrees_of_freedom"] = bank_b.attrs["degrees_of_freedom"]
    if groups := max(calibration_groups(bank_a), calibration_groups(bank_b)):
        attrs["calibration_groups"] = groups
    if "histogram" in (bank_a.attrs.get("latent"), bank_b.attrs.get("latent")):
        attrs["latent"] = "histogram"
    return dataset(data, item_id=everyone, attrs=attrs)


def _errors(bank_b: xr.Dataset, slope: float) -> dict[str, Any]:
    """Standard errors of the items of bank_b on the new scale, A and B taken as known."""
    factors = dict.fromkeys(("item_discrimination", "item_category_score"), 1.0 / slope)
    factors |= dict.fromkeys(
        ("item_difficulty", "item_step_difficulty", "item_threshold"), abs(slope)
    )
    out: dict[str, Any] = {}
    for name, factor in (factors | {p.variable: 1.0 for p in MORE_PARAMETERS}).items():
        for suffix in ("sd", "se"):
            if f"{name}_{suffix}" in bank_b:
                out[f"{name}_se"] = bank_b[f"{name}_{suffix}"].values.astype(float) * factor
    return out
