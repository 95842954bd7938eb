"""Differential item functioning from two separate calibrations (Lord's chi-square)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import chdtrc, fdtrc

from irt_dask.arrays import Bools, Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import dataset
from irt_dask.errors import ApproximationWarning, InputError
from irt_dask.items import checks
from irt_dask.items.parameters import bank_item_ids, item_set

#: What joint fits call their method.
JOINT = "joint maximum likelihood"
#: Standard errors of a parameter in the reference's bank and in the focal one.
Errors = tuple[Floats, Floats]


def lord_dif(reference: xr.Dataset, focal: xr.Dataset) -> xr.Dataset:
    """Compare the parameters of two separate calibrations, item by item, by Wald tests.

    Parameters
    ----------
    reference, focal : Dataset
        Fits or banks on one scale (see ``link``), from different persons, with
        standard errors (or posterior SDs) of the difficulties.  Items are matched by ``item_id``;
        those that only one of them has are left out.

    Returns
    -------
    Dataset over the common items, in the reference's order
        ``item_difficulty_difference`` and ``_se``: the focal difficulty less the reference's;
        ``item_lord_difficulty_chi2``, its square over its variance (1 degree of freedom), and
        ``item_lord_difficulty_p_value``.  Where both have standard errors of the discriminations,
        the same with ``discrimination``.  Items that cannot be tested have NaN.
        If an item has more than two categories, over (items, steps):
        ``item_step_difficulty_difference`` and ``_se``, ``item_lord_step_chi2`` (1 degree of
        freedom each) and ``item_lord_step_p_value``; NaN beyond an item's steps, and of items of
        two categories, whose difficulty is tested.  P-values are those of chi-square, or, where
        the standard errors of a fit have attrs ``degrees_of_freedom`` (a sandwich), of the square
        of t with those of the difference (Satterthwaite); item banks do not keep them.

    Raises
    ------
    InputError
        Without common items, or if a bank has no standard errors of the difficulties.

    Warns
    -----
    ItemWarning
        Names the items that are not tested: those with a flag (``item_flag``; where a bank has
        none, what its numbers tell) other than few responses, without a standard error (with more
        than two categories: of any step), or with other categories or another model in one bank.
    ApproximationWarning
        If a bank is a fit of ``fit_joint``, whose standard errors take abilities as known: of 20
        items and 1,000 persons in each group 10% of the p-values of difficulties without DIF were
        below .05, and 21% of those of slopes.  Files do not say how a bank was fitted.

    Notes
    -----
    On the driver.  Lord's chi-square of 2 degrees of freedom also needs the covariance of a and b,
    which banks do not hold: here are its two marginal parts, each exact by itself.  They are
    dependent; take the smaller p-value times 2 for a test of both.  So are the steps of an item:
    take the smallest p-value times their number.  The difficulty of such an item is the mean of
    its steps, where steps that differ in opposite directions show nothing.  The error of a link is
    not counted: with few common items, or some that differ, chi-squares are too large.  ``dif``
    needs neither a link nor two calibrations.
    Source: Lord (1980), *Applications of Item Response Theory to Practical Testing Problems*,
    chapter 14.

    Examples
    --------
    >>> import irt_dask as irt
    >>> reference, focal = irt.simulate(4000, 10, seed=1).split(0.5)
    >>> tests = irt.lord_dif(irt.fit_marginal(reference), irt.fit_marginal(focal))
    >>> tests["item_lord_difficulty_p_value"].round(1).values.tolist()
    [0.5, 0.1, 0.7, 0.8, 0.4, 0.4, 0.8, 1.0, 0.8, 0.2]
    """
    ids = [bank_item_ids(bank, what) for bank, what in ((reference, "reference"), (focal, "focal"))]
    common = tuple(i for i in ids[0] if i in set(ids[1]))
    if not common:
        raise InputError("reference and focal have no item in common; items are matched by item_id")
    sets, values, errors = [], [], []
    for bank, own, what in zip((reference, focal), ids, ("reference", "focal"), strict=True):
        items = item_set(bank, common, what=what)
        at = [own.index(i) for i in common]
        sets.append(items)
        values.append({"difficulty": items.difficulty(), "discrimination": items.slope()})
        errors.append({name: _errors(bank, name, at) for name in (*values[-1], "step_difficulty")})
        if errors[-1]["difficulty"] is None:
            raise InputError(
                f"{what} has neither item_difficulty_se nor item_difficulty_sd, which the test "
                f"needs; give a fit or bank with standard errors"
            )
    steps = _steps(sets, [e["step_difficulty"] for e in errors])
    of_steps = np.hypot(*steps[1])
    tested = _tested(reference, focal, common, [e["difficulty"] for e in errors], sets, of_steps)
    _warn_of_joint((reference, focal))
    degrees = [float(bank.attrs.get("degrees_of_freedom", np.inf)) for bank in (reference, focal)]
    data: dict[str, Any] = {}
    for name in ("difficulty", "discrimination"):
        one, two = errors[0][name], errors[1][name]
        if one is None or two is None:
            continue
        difference = values[1][name] - values[0][name]
        data |= _wald(name, name, difference, (one, two), degrees, tested)
    if steps[0].size:
        data |= _wald("step_difficulty", "step", *steps, degrees, tested[:, None])
    return dataset(
        data,
        item_id=common,
        attrs={"method": "Wald tests of two calibrations", "model": focal.attrs.get("model")},
    )


def _warn_of_joint(banks: tuple[xr.Dataset, xr.Dataset]) -> None:
    """Warn of errors that take abilities as known."""
    names = ("reference", "focal")
    joint = [w for w, b in zip(names, banks, strict=True) if b.attrs.get("method") == JOINT]
    if joint:
        warnings.warn(
            f"standard errors of {' and '.join(joint)} are those of a joint fit, which takes "
            f"abilities as known: too small (of 20 items by a third, of slopes by two fifths), so "
            f"that items without DIF are named two to four times too often; use fit_marginal",
            ApproximationWarning,
            stacklevel=3,
        )


def _wald(
    name: str, test: str, difference: Floats, errors: Errors, degrees: list[float], tested: Bools
) -> dict[str, Floats]:
    """Differences of a parameter with errors of both banks, and their tests."""
    se = np.hypot(*errors)
    with np.errstate(divide="ignore", invalid="ignore"):
        z2 = np.where(tested & (se > 0.0), (difference / se) ** 2, np.nan)
    return {
        f"item_{name}_difference": difference,
        f"item_{name}_difference_se": se,
        f"item_lord_{test}_chi2": z2,
        f"item_lord_{test}_p_value": _p_value(z2, errors, degrees),
    }


def _p_value(z2: Floats, errors: Errors, degrees: list[float]) -> Floats:
    """Of squares of t with the degrees of freedom of a difference (Satterthwaite 1946)."""
    if np.isinf(degrees).all():
        return np.asarray(chdtrc(1, z2))
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = [e**2 for e in errors]
        unknown = sum(v**2 / n for v, n in zip(variance, degrees, strict=True))
        found = fdtrc(1, sum(variance) ** 2 / unknown, z2)
    return np.asarray(found)


def _alike(sets: list[ItemSet]) -> Bools:
    """Whether items have the same categories and model in both banks."""
    alike = sets[0].n_categories == sets[1].n_categories
    names = [np.empty(alike.size, dtype=object) for _ in sets]
    for own, items in zip(names, sets, strict=True):
        for g in items.groups:
            own[g.at] = g.model.name
    out: Bools = alike & (_of_two(sets) | (names[0] == names[1]))
    return out


def _of_two(sets: list[ItemSet]) -> Bools:
    out: Bools = (sets[0].n_categories == 2) & (sets[1].n_categories == 2)
    return out


def _steps(sets: list[ItemSet], errors: list[Floats | None]) -> tuple[Floats, Errors]:
    """Differences of step difficulties and errors of both, (items, steps), of items that have some.

    Without steps where there is none.
    """
    several = _alike(sets) & ~_of_two(sets)
    most = int((sets[0].n_categories[several] - 1).max(initial=0))
    difference, *se = np.full((3, several.size, most), np.nan)
    found = [s.step_difficulties() for s in sets]
    first = [s.first - np.arange(s.n_items + 1) for s in sets]
    one, two = errors
    for j in np.flatnonzero(several):
        b = [x[f[j] : f[j + 1]] for x, f in zip(found, first, strict=True)]
        k = b[0].size
        difference[j, :k] = b[1] - b[0]
        if one is not None and two is not None:
            se[0][j, :k], se[1][j, :k] = one[j, :k], two[j, :k]
    return difference, (se[0], se[1])


def _tested(
    reference: xr.Dataset, focal: xr.Dataset, common: tuple[str, ...], errors: list[Any],
    sets: list[ItemSet], of_steps: Floats,
) -> Bools:  # fmt: skip
    """Items whose parameters can be compared; warns of the others."""
    of_two, alike = _of_two(sets), _alike(sets)
    reasons: dict[str, list[str]] = {}
    for j, i in enumerate(common):
        if not alike[j]:
            reasons[i] = ["other categories or another model in focal"]
        elif not (of_two[j] or np.isfinite(of_steps[j]).any()):
            reasons[i] = ["no standard error of a step in both"]
    for name, bank, error in zip(("reference", "focal"), (reference, focal), errors, strict=True):
        flags = checks.unsound(bank, common)
        for i, flag, e, two in zip(common, flags, error, of_two, strict=True):
            if flag or (two and not (np.isfinite(e) and e > 0.0)):
                reasons.setdefault(i, []).append(f"{flag or 'no standard error'} in {name}")
    named = {i: ", ".join(why) for i, why in reasons.items()}
    checks.left_out(named, len(common), "in common are not tested", stacklevel=3)
    return np.array([i not in reasons for i in common])


def _errors(bank: xr.Dataset, name: str, at: list[int]) -> Floats | None:
    """Standard errors of a parameter, None where the bank has none."""
    for suffix in ("se", "sd"):
        if f"item_{name}_{suffix}" in bank:
            return bank[f"item_{name}_{suffix}"].values[at].astype(float)
    return None
