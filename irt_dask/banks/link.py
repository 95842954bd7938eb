"""Linking: put separately calibrated items on the scale of others by the items both have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from scipy.optimize import least_squares

from irt_dask.arrays import Bools, Floats
from irt_dask.curves import MORE_PARAMETERS
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import dataset
from irt_dask.errors import EstimationError, InputError, listed
from irt_dask.items import checks
from irt_dask.items.described import described
from irt_dask.items.known_models import words
from irt_dask.items.mixture import Mixture
from irt_dask.items.parameters import OF_MODELS, bank_item_ids, calibration_groups, item_set

_METHODS = ("haebara", "stocking-lord", "mean-sigma", "mean-mean")
#: Abilities at which curves are compared, and their weights: an even grid under N(0, 1).
_NODES = np.linspace(-5.0, 5.0, 101)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()
#: A slope this many times larger or smaller than the median ratio of the common items'
#: discrimination is none.
_FARTHEST = 5.0
#: Starts whose neighbourhood is searched: the best ones.
_SEARCHED = 3
#: Step in log A, and in B times the median discrimination, that must not lower the criterion; by
#: how much of itself it may for rounding.
_STEP, _ROUNDING = 1e-3, 1e-9
#: Common items from which on the order of their difficulties says whether the scales agree.
_LEAST_FOR_ORDER = 3


def _curves(items: ItemSet) -> Floats:
    """P of each category, shape (nodes, rows)."""
    return np.exp(items.log_p(_NODES)).T


def _halves(items: ItemSet) -> Floats:
    """The same, so that the squares of two categories add up to that of one."""
    return _curves(items) * math.sqrt(0.5)


def _tests(items: ItemSet) -> Floats:
    """Expected score of all items, (nodes, 1)."""
    return items.expected(_NODES).sum(axis=0)[:, None]


def _moved(items: ItemSet, slope: float, shift: float) -> ItemSet:
    """Items on the scale of ``slope theta + shift``."""
    return items.rescaled(-shift / slope, 1.0 / slope)


def _common(bank_a: xr.Dataset, bank_b: xr.Dataset) -> tuple[str, ...]:
    known = set(bank_item_ids(bank_a, "bank_a"))
    common = tuple(i for i in bank_item_ids(bank_b, "bank_b") if i in known)
    if len(common) < 2:
        raise InputError(
            f"the banks have {len(common)} item(s) in common and linking needs at least 2; items "
            f"are matched by item_id"
        )
    return common


def _check_order(b_a: Floats, b_b: Floats) -> None:
    """Stop if items that are hard in one bank are easy in the other."""
    if b_a.size < _LEAST_FOR_ORDER or b_a.std() == 0.0 or b_b.std() == 0.0:
        return
    r = float(np.corrcoef(b_a, b_b)[0, 1])
    if r < 0.0:
        raise EstimationError(
            f"the difficulties of the {b_a.size} common items correlate {r:.2f} between the banks, "
            f"and a link needs the same order: check that the same item_id means the same item and "
            f"that no bank is scored in reverse"
        )


def _moments(method: str, one: ItemSet, two: ItemSet) -> tuple[float, float]:
    """A and B from means and standard deviations of the items that link."""
    one, two = _ordered(one, two)
    b_a, b_b = one.step_difficulties(), two.step_difficulties()
    if method == "mean-mean":
        slope = float(np.abs(two.slope()).mean() / np.abs(one.slope()).mean())
    else:
        if b_a.std() == 0.0 or b_b.std() == 0.0:
            raise EstimationError(
                "the common items of a bank are all equally difficult, so that mean-sigma has no "
                "slope; use method='haebara' or 'mean-mean'"
            )
        slope = float(b_a.std() / b_b.std())
    return slope, float(b_a.mean() - slope * b_b.mean())


def _residuals(method: str, one: ItemSet, two: ItemSet) -> Callable[..., Floats]:
    """Differences of the curves on both scales, weighted, as a function of A and B."""
    root = np.sqrt(_WEIGHTS)[:, None]
    curves = _tests if method == "stocking-lord" else _halves
    given = curves(one), curves(two)

    def differences(slope: float, shift: float) -> Floats:
        on_a = given[0] - curves(_moved(two, slope, shift))
        on_b = given[1] - curves(_moved(one, 1.0 / slope, -shift / slope))
        return (root * np.stack([on_a, on_b])).ravel()

    return differences


def link(bank_a: xr.Dataset, bank_b: xr.Dataset, *, method: str = "haebara") -> xr.Dataset:
    """Put the items of ``bank_b`` on the scale of ``bank_a`` by the items that both have.

    Abilities transform as ``theta_a = A theta_b + B``; so ``a`` becomes ``a / A``, ``b`` becomes
    ``A b + B``, and ``c`` stays.

    Parameters
    ----------
    bank_a, bank_b : Dataset
        Fits or item banks; items are matched by ``item_id``.
    method : {"haebara", "stocking-lord", "mean-sigma", "mean-mean"}
        "haebara" minimises the squared differences of the curves of all categories (half their
        sum, which with two categories is that of P(right)), "stocking-lord" those of the test curve
        (the sum of the expected scores).  Both sum over 101 even abilities from -5
        to 5 with weights N(0, 1), once on each scale, so that exchanging the banks inverts the
        link.  "mean-sigma" matches mean and standard deviation of the common difficulties
        (of all steps), "mean-mean" their mean and the mean discrimination, whatever its sign.
        Where all items of each bank have one discrimination (1PL), the two slopes give A, whatever
        the method.

    Returns
    -------
    Dataset over the items of bank_b
        ``item_discrimination``, ``item_difficulty``, ``item_intercept`` and what else the items
        have on the scale of bank_a; ``_se`` of discriminations, difficulties, thresholds, category
        scores and asymptotes where bank_b has them (or posterior SDs), scaled, A and B taken as
        known.  Those of intercepts would need a covariance and are left out.
        ``item_link_rmsd``, the root mean square difference of the curves of a common item on the
        scale of bank_a, weights N(0, 1); NaN for other items.  Large ones tell of drift.  attrs:
        ``A``, ``B``, ``criterion`` (weighted sum of squared differences on both scales; NaN for
        the methods by moments), ``n_common``, and ``n_used``, the common items that link the banks.
        ``item_flag``, if bank_b has it.

    Raises
    ------
    InputError
        Fewer than two common items, an unknown method, or common items whose discriminations have
        other signs in the two banks: A is positive.
    EstimationError
        Difficulties of three or more common items in opposite order, no slope to be had, no
        minimum found, or an A beyond 5 times or a fifth of the median ratio of discriminations.

    Warns
    -----
    ItemWarning
        Names the common items that are left out: those with a flag (``item_flag``; where a bank has
        none, what its numbers tell) other than few responses, in either bank.

    Notes
    -----
    On the driver, items x 101 numbers.  The criteria are minimised from the best three of some ten
    starts: links by moments and by medians, and slopes up to four times larger or smaller.
    Source: Haebara (1980); Stocking and Lord (1983); Marco (1977); Loyd and Hoover (1980); Kolen
    and Brennan (2014), *Test Equating, Scaling, and Linking*, chapter 6, for the symmetric form.

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
    """
    if method not in _METHODS:
        raise InputError(f"method={method!r} is not available; choose one of {', '.join(_METHODS)}")
    common = _common(bank_a, bank_b)
    one, two = item_set(bank_a, common, what="bank_a"), item_set(bank_b, common, what="bank_b")
    used = _sound(bank_a, bank_b, common)
    _check_models(method, one, two, common)
    pair = one.take(np.flatnonzero(used)), two.take(np.flatnonzero(used))
    _check_signs(*pair, [i for i, u in zip(common, used, strict=True) if u])
    _check_order(*(items.difficulty() for items in _ordered(*pair)))
    everyone = bank_item_ids(bank_b, "bank_b")
    all_b = item_set(bank_b, everyone, what="bank_b")
    one_slope = all(np.unique(np.abs(items.slope())).size == 1 for items in (one, all_b))
    slope, shift, criterion = _fit(method, *pair, one_slope)
    linked = _moved(all_b, slope, shift)
    apart = one.expected(_NODES) - _moved(two, slope, shift).expected(_NODES)
    rmsd = np.full(len(everyone), np.nan)
    place = {i: k for k, i in enumerate(everyone)}
    rmsd[[place[i] for i in common]] = np.sqrt(apart**2 @ _WEIGHTS)
    models, x = Mixture.of_items(linked)
    data: dict[str, Any] = {name: value.T for name, (value, _) in described(models, x).items()}
    data |= {p.variable: linked.column(p) for p in MORE_PARAMETERS if p.variable in bank_b}
    data |= {n: bank_b[n].values for n in OF_MODELS if n in bank_b}
    data["item_link_rmsd"] = rmsd
    if "item_flag" in bank_b:
        data["item_flag"] = bank_b["item_flag"].values.astype(str)
    factors = dict.fromkeys(("item_discrimination", "item_category_score"), 1.0 / slope)
    factors |= dict.fromkeys(
        ("item_difficulty", "item_step_difficulty", "item_threshold"), abs(slope)
    )
    for name, factor in (factors | {p.variable: 1.0 for p in MORE_PARAMETERS}).items():
        for suffix in ("sd", "se"):
            if f"{name}_{suffix}" in bank_b:
                data[f"{name}_se"] = bank_b[f"{name}_{suffix}"].values.astype(float) * factor
    attrs = {
        "method": f"link by {method}",
        "model": bank_b.attrs.get("model"),
        "A": slope,
        "B": shift,
        "criterion": criterion,
        "n_common": len(common),
        "n_used": int(used.sum()),
        "identification": "scale of bank_a",
    }
    if "degrees_of_freedom" in bank_b.attrs:  # of these standard errors
        attrs["degrees_of_freedom"] = bank_b.attrs["degrees_of_freedom"]
    if groups := max(calibration_groups(bank_a), calibration_groups(bank_b)):
        attrs["calibration_groups"] = groups
    return dataset(data, item_id=everyone, attrs=attrs)


def _sound(bank_a: xr.Dataset, bank_b: xr.Dataset, common: tuple[str, ...]) -> Bools:
    """Which common items link the banks; warns of the others."""
    flags = [checks.unsound(bank, common) for bank in (bank_a, bank_b)]
    reasons = {
        i: ", ".join(
            f"{f} in {name}" for f, name in zip(of, ("bank_a", "bank_b"), strict=True) if f
        )
        for i, *of in zip(common, *flags, strict=True)
        if any(of)
    }
    used = np.array([i not in reasons for i in common])
    if used.sum() < 2:
        raise EstimationError(
            f"{int(used.sum())} of the {len(common)} common items can link the banks, and at least "
            f"2 must; the others are flagged: {checks.reasons_in_words(reasons)}"
        )
    checks.left_out(
        reasons, len(common), "in common do not link the banks, being flagged", stacklevel=3
    )
    return used


def _check_signs(one: ItemSet, two: ItemSet, common: list[str]) -> None:
    """Stop at items that rise with ability in one bank and fall in the other."""
    at = np.flatnonzero(~(_nominal(one) | _nominal(two)))
    differ = at[one.slope()[at] * two.slope()[at] < 0.0]
    if differ.size:
        remedy = "leave them out of one bank, or reverse their scoring in it"
        if differ.size == at.size:
            remedy = (
                "one of the banks is scored in reverse, or its ability runs the other way (its a "
                "and b have other signs then)"
            )
        raise InputError(
            f"the discriminations of {differ.size} of {at.size} common items have other signs in "
            f"bank_b than in bank_a: {listed([common[j] for j in differ], 10)}; {remedy}"
        )


def _nominal(items: ItemSet) -> Bools:
    """Items whose categories have no order, and slopes any sign."""
    out = np.zeros(items.n_items, dtype=bool)
    for g in items.groups:
        out[g.at] = g.model.name == "nominal"
    return out


def _ordered(one: ItemSet, two: ItemSet) -> tuple[ItemSet, ItemSet]:
    """The common items whose categories have an order."""
    kept = np.flatnonzero(~(_nominal(one) | _nominal(two)))
    return one.take(kept), two.take(kept)


def _check_models(method: str, one: ItemSet, two: ItemSet, common: tuple[str, ...]) -> None:
    """Stop at items whose categories differ between the banks, or what moments are taken of."""
    if method.startswith("mean"):
        named = [{int(j): g.model for g in items.groups for j in g.at} for items in (one, two)]
        for j, item in enumerate(common):
            of = [models[j] for models in named]
            if of[0].steps != of[1].steps:
                raise InputError(
                    f"method={method!r}: the item {item} is {of[0].name} in bank_a and "
                    f"{of[1].name} in bank_b, whose steps are others; use method='haebara'"
                )
        if _ordered(one, two)[0].n_items < 2:
            raise InputError(
                f"method={method!r} needs two common items at least that are not nominal; use "
                f"method='haebara'"
            )
    differ = np.flatnonzero(one.n_categories != two.n_categories)
    if differ.size:
        j = differ[0]
        raise InputError(
            f"{differ.size} common item(s) have other categories in bank_b than in bank_a: "
            f"{common[j]} has {two.n_categories[j]} and {one.n_categories[j]}"
        )
    maps = [Mixture.of_items(items)[0].category_map for items in (one, two)]
    other = np.flatnonzero((maps[0] != maps[1]).any(axis=1))
    if other.size:
        j, (a, b) = other[0], (words(m[other[0], : one.n_categories[other[0]]]) for m in maps)
        raise InputError(
            f"{other.size} common item(s) have other empty categories in bank_b than in bank_a, or "
            f"other numbers: {common[j]} has the category map {b} there and {a} here; leave them "
            f"out of one bank"
        )


def _starts(one: ItemSet, two: ItemSet) -> list[tuple[float, float]]:
    """Links by moments and by medians, and slopes on both sides of them."""
    one, two = _ordered(one, two)
    factors = (1.0, 0.25, 0.5, 0.75, 1.33, 2.0, 4.0)
    if one.n_items < 2:  # nominal items: scales that are not far apart
        return [(s, 0.0) for s in factors]
    b_a, b_b = one.step_difficulties(), two.step_difficulties()
    ratio = float(np.median(two.slope() / one.slope()))
    slopes = [ratio * factor for factor in factors]
    starts = [_moments("mean-mean", one, two)]
    if b_a.std() > 0.0 and b_b.std() > 0.0:
        starts.append(_moments("mean-sigma", one, two))
    return starts + [(s, float(np.median(b_a - s * b_b))) for s in slopes]


def _fit(method: str, one: ItemSet, two: ItemSet, one_slope: bool) -> tuple[float, float, float]:
    """A, B and the criterion they reach."""
    by_moments = method if method.startswith("mean") else "mean-mean"
    slope, shift = 1.0, 0.0
    if _ordered(one, two)[0].n_items:
        slope, shift = _moments("mean-mean" if one_slope else by_moments, one, two)
    if method.startswith("mean"):
        _check_slope(method, slope, one, two)
        return slope, shift, math.nan
    residuals = _residuals(method, one, two)
    if one_slope:
        starts = [[b] for _, b in _starts(one, two)] + [[shift]]
    else:
        starts = [[b, math.log(s)] for s, b in _starts(one, two)]

    def of(x: Any) -> Floats:  # a slope as its logarithm stays positive
        return residuals(slope if one_slope else math.exp(x[1]), x[0])

    def value(x: Any) -> float:
        return float((of(x) ** 2).sum())

    best = sorted(starts, key=value)
    found = [
        least_squares(of, x, jac="3-point", xtol=1e-14, ftol=1e-14, gtol=1e-14, max_nfev=200).x
        for x in best[:_SEARCHED]
    ]
    x = min([x for x in found if np.isfinite(x).all()] + [best[0]], key=value)
    _check_minimum(method, value, x, float(np.median(np.abs(one.slope()))))
    slope = slope if one_slope else math.exp(x[1])
    _check_slope(method, slope, one, two)
    return slope, float(x[0]), value(x)


def _check_minimum(method: str, value: Callable[[Any], float], x: Any, unit: float) -> None:
    """Stop where a step to either side in A or B leads lower."""
    at = value(x)
    for k, step in enumerate((_STEP / unit, _STEP)[: len(x)]):
        for sign in (-1.0, 1.0):
            near = np.array(x, dtype=float)
            near[k] += sign * step
            if not value(near) >= at * (1.0 - _ROUNDING):
                raise EstimationError(
                    f"no minimum of the {method} criterion was found; compare the common items of "
                    f"the banks, or use method='mean-mean'"
                )


def _check_slope(method: str, slope: float, one: ItemSet, two: ItemSet) -> None:
    """Stop at a slope that the discriminations of the items contradict."""
    one, two = _ordered(one, two)
    if not one.n_items:
        return
    ratio = float(np.median(two.slope() / one.slope()))
    if not ratio / _FARTHEST <= slope <= ratio * _FARTHEST:
        raise EstimationError(
            f"method={method!r} gives A = {slope:.3g}, but the discriminations of the common items "
            f"have a median ratio of {ratio:.3g}: some items are not the same in both banks; "
            f"compare their curves, and leave out those that differ"
        )
