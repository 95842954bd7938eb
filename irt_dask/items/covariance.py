"""Covariances of item parameters, by item and column of item banks (a, d, c, u, d1, s1, ...).

A fit or a bank says what is known of its parameters in ``item_parameter_covariance``, in draws, in
``item_difficulty_covariance`` (Rasch), or in standard errors alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves import MORE_PARAMETERS
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import InputError
from irt_dask.items.mixture import Mixture, Part
from irt_dask.variables import DRAW

#: Parameters up to which results carry their covariance (8 MB).
MAX = 1000
#: Variables of a column; those of steps and scores are numbered.
_OF = {"a": "item_discrimination", "d": "item_intercept"}
_OF |= {p.letter: p.variable for p in MORE_PARAMETERS}
_OF_STEPS = {"d": ("item_step_intercept", 1), "s": ("item_category_score", 0)}
#: Difficulties nearer to 0 than this say nothing of the covariance of a and d.
_NEAR_0 = 0.05


@dataclass(frozen=True)
class Uncertain:
    """What is known of the parameters of some items."""

    #: (p, p), of those that are not known.
    matrix: Floats
    #: Place of each there, (parameters, items); -1: it is known, or the model lacks it.
    column: Ints
    #: Whether covariances between items are known.
    between: bool

    def of(self, gradient: Floats) -> Floats:
        """Covariance of functions with these gradients, (functions, parameters, items)."""
        at = self.column >= 0
        flat = np.zeros((len(gradient), len(self.matrix)))
        flat[:, self.column[at]] = gradient[:, at]
        return np.asarray(flat @ self.matrix @ flat.T)

    def finite(self) -> Uncertain:
        """Without the parameters whose variance is not finite."""
        kept = np.isfinite(self.matrix.diagonal())
        place = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)  # -1 of -1
        return Uncertain(self.matrix[np.ix_(kept, kept)], place[self.column], self.between)


def column_names(items: ItemSet) -> Any:
    """Column of each parameter, (parameters, items); "" beyond an item's."""
    models, _ = Mixture.of_items(items)
    names = models.table(lambda p: p.letter, missing=None)
    return np.where(models.has, names, "")


def uncertain(
    bank: xr.Dataset, item_id: Sequence[str], items: ItemSet, what: str, *, errors: bool = True,
    strict: bool = True,
) -> Uncertain | None:  # fmt: skip
    """What a fit or bank knows of these of its items; None where it is nothing but ``errors``.

    Unless ``strict`` items without an error are known.

    Raises
    ------
    InputError
        Names the items of which not even a standard error is there.
    """
    names = column_names(items)
    if "item_parameter_covariance" in bank:
        return _by_name(bank, item_id, names)
    at = _places(bank, item_id)
    if DRAW in bank.dims and "item_intercept_draw" in bank:
        return _of_draws(bank, at, names)
    of_rasch = bank.get("item_difficulty_covariance")
    if of_rasch is not None and of_rasch.shape[0] == of_rasch.shape[1]:
        a = items.slope()  # given: d = -a b
        column = np.where(names == "d", np.arange(at.size), -1)
        return Uncertain(of_rasch.values[np.ix_(at, at)] * np.outer(a, a), column, True)
    return _of_errors(bank, item_id, at, items, names, what if strict else None) if errors else None


def _places(bank: xr.Dataset, item_id: Sequence[str]) -> Ints:
    known = {str(i): k for k, i in enumerate(bank["item_id"].values)}
    return np.array([known[i] for i in item_id])


def _by_name(bank: xr.Dataset, item_id: Sequence[str], names: Any) -> Uncertain:
    """As the bank lists them; what it does not list is known."""
    listed = zip(bank["parameter_item"].values, bank["parameter_column"].values, strict=True)
    place = {(str(i), str(c)): k for k, (i, c) in enumerate(listed)}
    rows = [[place.get((i, c), -1) for i, c in zip(item_id, row, strict=True)] for row in names]
    found = np.array(rows)
    at = found[found >= 0]
    column = np.full(found.shape, -1)
    column[found >= 0] = np.arange(at.size)
    return Uncertain(bank["item_parameter_covariance"].values[np.ix_(at, at)], column, True)


def _values(bank: xr.Dataset, column: str, at: Ints, suffix: str) -> Floats | None:
    """One column of some items, (..., items): of variables whose names end with ``suffix``."""
    if column in _OF and f"{_OF[column]}{suffix}" in bank:
        return np.asarray(bank[f"{_OF[column]}{suffix}"].values[..., at], dtype=float)
    letter, number = re.fullmatch(r"([a-z])([0-9]*)", column).groups()  # type: ignore[union-attr]
    if letter not in _OF_STEPS or (not number and letter == "s"):
        return None
    name, first = _OF_STEPS[letter]
    if f"{name}{suffix}" not in bank:
        return None
    values = bank[f"{name}{suffix}"].values
    return np.asarray(values[..., at, int(number or 1) - first], dtype=float)


def _of_draws(bank: xr.Dataset, at: Ints, names: Any) -> Uncertain:
    """Covariance of the draws of a posterior, with the standard deviations that the fit reports.

    These may be of more draws: of all shards.
    """
    kept: list[Floats] = []
    sd: list[float] = []
    column = np.full(names.shape, -1)
    for k, j in zip(*np.nonzero(names != ""), strict=True):
        draws = _values(bank, names[k, j], at[j : j + 1], "_draw")
        if draws is not None and np.ptp(draws) > 0.0:
            column[k, j] = len(kept)
            kept.append(draws[:, 0])
            said = _values(bank, names[k, j], at[j : j + 1], "_sd")
            sd.append(draws.std(ddof=1) if said is None else float(said[0]))
    found = np.atleast_2d(np.cov(np.array(kept)))
    scale = np.array(sd) / np.sqrt(found.diagonal())
    return Uncertain(found * np.outer(scale, scale), column, True)


# --- standard errors alone ------------------------------------------------------------------------


def _of_errors(
    bank: xr.Dataset, item_id: Sequence[str], at: Ints, items: ItemSet, names: Any, what: str | None
) -> Uncertain:
    """Variances, and the covariance of a and d as far as the errors of a, b and d tell it."""
    error = np.full(names.shape, np.nan)
    for name in dict.fromkeys(names[names != ""]):
        for suffix in ("_sd", "_se"):
            if (found := _values(bank, name, at, suffix)) is not None:
                error = np.where((names == name) & np.isnan(error), found, error)
    of_b = _of_difficulties(bank, at)
    a, b = items.slope(), items.difficulty()
    lacks_d = (names == "d") & np.isnan(error)
    of_a = np.nan_to_num(np.where(names == "a", error, 0.0).sum(axis=0))
    error = np.where(lacks_d, np.hypot(a * of_b, b * of_a), error)
    if what is not None:
        _refuse_unknown(item_id, names, error, what)
    own = np.isfinite(error) & (names != "")
    column = np.full(names.shape, -1)
    column[own] = np.arange(own.sum())
    matrix = np.diag(error[own] ** 2)
    _join(matrix, column, names, error, lacks_d, of_b, a, b)
    return Uncertain(matrix, column, False)


def _of_difficulties(bank: xr.Dataset, at: Ints) -> Floats:
    out = np.full(at.size, np.nan)
    for suffix in ("sd", "se"):
        if f"item_difficulty_{suffix}" in bank:
            out = np.asarray(bank[f"item_difficulty_{suffix}"].values[at], dtype=float)
    return out


def _refuse_unknown(item_id: Sequence[str], names: Any, error: Floats, what: str) -> None:
    """Stop at items whose places have no error: they are not known for certain."""
    steps = np.array([[str(n).startswith("d") for n in row] for row in names])
    bad = np.flatnonzero((steps & ~np.isfinite(error)).any(axis=0))
    if bad.size:
        named = ", ".join(item_id[j] for j in bad[:10]) + (", ..." if bad.size > 10 else "")
        raise InputError(
            f"{what} has no standard errors of {bad.size} of {len(item_id)} common items: {named}; "
            f"give a fit, or a bank with se_b or se_d (se_d1, ... of more categories), or use "
            f"error='jackknife', which takes none"
        )


def _join(
    matrix: Floats, column: Ints, names: Any, error: Floats, lacks_d: Bools, of_b: Floats,
    a: Floats, b: Floats,
) -> None:  # fmt: skip
    """Fill in covariances of a and d.

    b = -d / a has a^2 var b = var d + b^2 var a + 2 b cov(a, d).  Where the error of d is not
    given, a and b are taken to be independent: cov(a, d) = -b var a.
    """
    for j in range(len(a)):
        k = {name: i for i, name in enumerate(names[:, j])}
        if "a" not in k or "d" not in k or min(column[k["a"], j], column[k["d"], j]) < 0:
            continue
        var_a, var_d = error[k["a"], j] ** 2, error[k["d"], j] ** 2
        both = -b[j] * var_a
        if not lacks_d[k["d"], j]:
            known = abs(b[j]) > _NEAR_0 and np.isfinite(of_b[j])
            both = ((a[j] * of_b[j]) ** 2 - var_d - b[j] ** 2 * var_a) / (2 * b[j]) if known else 0
        most = 0.999 * np.sqrt(var_a * var_d)
        at = column[k["a"], j], column[k["d"], j]
        matrix[at] = matrix[at[::-1]] = np.clip(both, -most, most)


# --- what fits report -----------------------------------------------------------------------------


def variables(
    models: Mixture, x: Floats, matrix: Floats | None, column: Ints, item_id: Sequence[str],
    mean: float = 0.0, sd: float = 1.0,
) -> dict[str, Any]:  # fmt: skip
    """Variables of the parameters' covariance on the scale ``(theta - mean) / sd``.

    ``matrix`` is that of the free parameters x, ``column`` their places (parameters, items), -1 of
    others.  Nothing where it is not known, or is of more than :data:`MAX`.
    """
    rows = [row for part in models.parts for row in _rows(part, models, x, column, mean, sd)]
    if matrix is None or not rows or len(rows) > MAX:
        return {}
    rows.sort(key=lambda row: row[0])
    by_free = np.zeros((len(rows), len(matrix)))
    for (j, _, gradient), out in zip(rows, by_free, strict=True):
        free = column[: gradient.size, j] >= 0
        np.add.at(out, column[: gradient.size, j][free], gradient[free])
    names = [item_id[j] for j, _, _ in rows], [name for _, name, _ in rows]
    found = by_free @ matrix @ by_free.T
    return as_variables(*names, 0.5 * (found + found.T))


def as_variables(items: Sequence[str], columns: Sequence[str], matrix: Floats) -> dict[str, Any]:
    """A covariance and what its rows are of, as results name them."""
    return {
        "parameter_item": np.array(items, dtype=str),
        "parameter_column": np.array(columns, dtype=str),
        "item_parameter_covariance": matrix,
    }


def _rows(
    part: Part, models: Mixture, x: Floats, column: Ints, mean: float, sd: float
) -> list[tuple[int, str, Floats]]:
    """Item, column and gradient by its x of each parameter of a part that is not known."""
    model, own = part.model, models.own(part, models.rescaled(x, mean, sd))
    rescaling = model.rescaling(mean, sd)
    of: dict[str, Callable[[Floats], tuple[Floats, Floats]]] = {}
    found: list[tuple[str, Floats]] = []
    if model.n_categories == 2 and model.name != "nominal":
        of = {"a": model.slope, "d": model.intercept}
        for k, p in enumerate(model.parameters):
            if p.neutral is not None:
                found.append((p.letter, np.eye(len(own))[k][:, None] + 0.0 * own))
    else:
        if model.name == "nominal":
            steps = model.category_scores(own)[1][1:]
            found += [(f"s{k}", g) for k, g in enumerate(steps, 1)]
        else:
            of = {"a": model.slope}
        found += [(f"d{k}", g) for k, g in enumerate(model.step_intercepts(own)[1], 1)]
    found = [(name, call(own)[1]) for name, call in of.items()] + found
    out = []
    for name, gradient in found:
        by_old = (gradient.T @ rescaling).T
        for i, j in enumerate(part.at):
            free = column[: len(by_old), j] >= 0
            used = by_old[:, i] != 0.0
            if np.isfinite(by_old[:, i]).all() and (free & used).any():
                out.append((int(j), name, by_old[:, i]))
    return out
