"""Parameters as R mirt prints them, a row each: slope-intercept form."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.banks.rows import Ability, Row
from irt_dask.banks.tables import ItemTable
from irt_dask.curves import FAMILIES, MODELS, ItemModel
from irt_dask.curves.base import ADJACENT, CUMULATIVE
from irt_dask.curves.item_set import Group
from irt_dask.errors import InputError, Notice, listed
from irt_dask.items.parameters import bank_item_ids, calibration_groups, item_set
from irt_dask.store.freed_items import freed_of

_FORM = "slope-intercept"
_OF_GROUP = "GroupPars"
#: What fits say of ability whose mean is 0 and SD 1.
_STANDARD = ("ability N(0, 1)", "ability has mean 0 and SD 1")
#: Logits that stand for an asymptote of 0, or of 1; beyond this they are meant, less a rounding.
_NEVER, _AS_NEVER = 999.0, 700.0
_ASYMPTOTES = ("g", "u", "logit(g)", "logit(u)")
_KNOWN = r"a[0-9]+|ak[0-9]+|d[0-9]*|b[0-9]+|c|g|u|logit\(g\)|logit\(u\)"

#: Columns of a row an item, as coef(mod, simplify = TRUE) has them, that are called otherwise here.
OURS = {"a1": "a", "g": "c"}


#: What holds a covariance: of fits and banks, of Rasch models, of posteriors.
_COVARIANCES = (
    "item_parameter_covariance", "item_difficulty_covariance", "item_intercept_draw",
)  # fmt: skip


class _Item(NamedTuple):
    """Estimates and standard errors of an item by parameter, and the row where each stands."""

    est: dict[str, float]
    se: dict[str, float]
    at: dict[str, int]


# --- read -----------------------------------------------------------------------------------------


def check_no_table(table: ItemTable) -> None:
    """Say what a table of mirt is, which is read by its convention alone."""
    columns = {*map(str, table.frame)}
    if "a" not in columns and ("a1" in columns or {"par", "est"} <= columns):
        raise InputError(
            f"{table.path} has columns of R mirt ({', '.join(sorted(columns - {''})[:8])}): "
            f"in Python "
            f"items = irt.read_items({str(table.path)!r}, convention='mirt', ability=(0, 1)), then "
            f"irt.write_items(items, 'bank.csv') makes a bank of it (ability: mean and SD)"
        )


def _of_wide(table: ItemTable) -> ItemTable:
    """A row a parameter from a row an item, ``coef(mod, simplify = TRUE)$items`` of mirt.

    The column of items may be without a name, as ``write.csv`` leaves it; parameters that an item
    does not have are empty or NA.
    """
    frame = table.frame.rename(columns={"": "item"})
    if "item" not in frame or "a1" not in frame or {"par", "est"} & {*frame}:
        return table
    names = [str(c) for c in frame if c != "item"]
    for name in names:
        if not re.fullmatch(_KNOWN, name):
            raise InputError(f"{table.path}: {name!r} is no parameter of an item that is known")
    wide = replace(table, frame=frame)
    values = {name: wide.numbers(name, may_lack=True) for name in names}
    rows = [
        (item, name, values[name][k])
        for k, item in enumerate(frame["item"])
        for name in names
        if not math.isnan(values[name][k])
    ]
    return replace(table, frame=pd.DataFrame(rows, columns=["item", "par", "est"], dtype=object))


def rows(table: ItemTable, ability: Ability | None) -> tuple[list[Row], Ability]:
    """Return the items of a table, and mean and SD of ability on its scale."""
    table = _of_wide(table)
    table.check_columns("item", "par", "est")
    table.check_items()
    items = _items(table)
    group = items.pop(_OF_GROUP, None)
    if not items:
        raise InputError(f"the item bank {table.path} lists no item{_other_forms(table)}")
    found = [_row(table, name, item) for name, item in items.items()]
    said = f"item {_OF_GROUP}, the distribution of ability"
    if group is not None:
        if ability is not None:
            raise InputError(f"{table.path} has the {said}: do not give ability=")
        return found, _ability(table, group)
    if ability is None:
        raise InputError(f"{table.path} has no {said}: give ability=(mean, SD)")
    return found, ability


def _other_forms(table: ItemTable) -> str:
    """Words on the forms of a table that are not read."""
    forms = {*table.words("form")} - {_FORM} if "form" in table else set()
    named = ", ".join(map(repr, sorted(forms)))
    return f" of form {_FORM!r}, which alone is read; there are rows of form {named}" * bool(forms)


def _items(table: ItemTable) -> dict[Any, _Item]:
    """Parameters by item, in the order of the file."""
    est = table.numbers("est", may_lack=True)
    se = table.numbers("se", may_lack=True) if "se" in table else np.full(len(est), np.nan)
    par = table.words("par")
    wanted = np.ones(len(est), dtype=bool)
    if "form" in table:
        wanted = np.array([form == _FORM for form in table.words("form")])
    if "group" in table and len(groups := {*table.words("group")}) > 1:
        raise InputError(
            f"{table.path} has items of {len(groups)} groups, {', '.join(sorted(groups)[:5])}; "
            f"keep the rows of one"
        )
    found: dict[Any, _Item] = {}
    for j in map(int, np.flatnonzero(wanted)):
        item = found.setdefault(table.items[j], _Item({}, {}, {}))
        if par[j] in item.est:
            raise table.fault(j, "par", f"{par[j]} stands twice")
        if math.isnan(est[j]):
            raise table.fault(j, "est", f"nothing stands there, of {par[j]}")
        item.est[par[j]], item.at[par[j]] = float(est[j]), j
        if not math.isnan(se[j]):
            item.se[par[j]] = float(se[j])
    return found


def _ability(table: ItemTable, group: _Item) -> Ability:
    for par, j in group.at.items():
        if par not in ("MEAN_1", "COV_11"):
            raise table.fault(j, "par", f"{par}: several abilities are not available here")
    mean, variance = group.est.get("MEAN_1", 0.0), group.est.get("COV_11", 1.0)
    if not variance > 0.0:
        raise table.fault(group.at["COV_11"], "est", f"COV_11 is {variance:g}, no variance")
    return mean, math.sqrt(variance)


def _row(table: ItemTable, name: Any, item: _Item) -> Row:
    """An item, whose model its parameters say; sequential items say what graded ones do."""
    for par, j in item.at.items():
        if not re.fullmatch(_KNOWN, par):
            raise table.fault(j, "par", f"{par!r} is no parameter of an item that is known here")
        if re.fullmatch("a([2-9]|1[0-9])", par) and item.est[par] != 0.0:
            raise table.fault(j, "par", f"{par}: several abilities are not available here")
    if "d" in item.est:
        return _of_two(table, name, item)
    if "c" in item.est:
        return _rating(table, name, item)
    if "ak0" in item.est:
        return _of_scores(table, name, item)
    n = sum(bool(re.fullmatch("d[1-9][0-9]*", par)) for par in item.est)
    _check(table, item, *(f"d{k}" for k in range(1, max(n, 1) + 1)))
    steps = [item.est[f"d{k}"] for k in range(1, n + 1)]
    errors = _errors(item, n)
    return Row(name, "graded" if n > 1 else "", steps, item.est["a1"], errors=errors)


def _check(table: ItemTable, item: _Item, *pars: str, also: tuple[str, ...] = ()) -> None:
    """Stop unless an item has a slope and ``pars``, and nothing else but what it may have."""
    for par in ("a1", *pars):
        if par not in item.est:
            raise table.fault(next(iter(item.at.values())), "par", f"{par} is missing")
    for par, j in item.at.items():
        if par not in (*pars, *also) and not re.fullmatch("a[0-9]+", par):
            raise table.fault(
                j, "par", f"{par} beside {', '.join(('a1', *pars))}: no model that is known here"
            )


def _errors(item: _Item, n_steps: int) -> dict[str, float]:
    """Errors of the slope and the step intercepts."""
    errors = {"a": item.se["a1"]} if "a1" in item.se else {}
    of_steps = {f"d{k}" for k in range(1, n_steps + 1)} & item.se.keys()
    errors |= {par: item.se[par] for par in of_steps}
    if n_steps == 1 and of_steps:
        errors["d"] = item.se["d1"]
    return errors


def _of_two(table: ItemTable, name: Any, item: _Item) -> Row:
    """1PL to 4PL; asymptotes as probabilities, or as logits, whose errors go by the delta rule."""
    _check(table, item, "d", also=_ASYMPTOTES)
    if item.est.keys().isdisjoint(_ASYMPTOTES):
        raise table.fault(
            item.at["d"], "par", "d without g and u, which all of 1PL to 4PL have: the ideal point "
            "model, which is not available here",
        )  # fmt: skip
    more, errors = {}, {k: item.se[par] for k, par in (("a", "a1"), ("d", "d")) if par in item.se}
    for letter, par, neutral in (("c", "g", 0.0), ("u", "u", 1.0)):
        p, se = item.est.get(par, neutral), item.se.get(par, math.nan)
        if (logit := f"logit({par})") in item.est:
            z = item.est[logit]
            p = 1.0 / (1.0 + math.exp(-z)) if abs(z) < _AS_NEVER else float(z > 0.0)
            se = p * (1.0 - p) * item.se.get(logit, math.nan)
        if p != neutral:
            more[letter] = p
            errors |= {} if math.isnan(se) else {letter: se}
    return Row(name, "", [item.est["d"]], item.est["a1"], more=more, errors=errors)


def _rating(table: ItemTable, name: Any, item: _Item) -> Row:
    """``d_k = k c - a sum_{h<=k} b_h``; errors of which need covariances."""
    n = sum(bool(re.fullmatch("b[1-9][0-9]*", par)) for par in item.est)
    _check(table, item, "c", *(f"b{k}" for k in range(1, max(n, 1) + 1)))
    a, b = item.est["a1"], [item.est[f"b{k}"] for k in range(1, n + 1)]
    steps = item.est["c"] * np.arange(1.0, n + 1) - a * np.cumsum(b)
    return Row(name, "rating" if n > 1 else "", list(steps), a)


def _of_scores(table: ItemTable, name: Any, item: _Item) -> Row:
    """Partial credit if the scores are 0, 1, ..., K - 1, else nominal categories."""
    n = sum(bool(re.fullmatch("ak[0-9]+", par)) for par in item.est) - 1
    _check(table, item, *(f"{x}{k}" for x in ("ak", "d") for k in range(max(n, 1) + 1)))
    a = item.est["a1"]
    of = {x: np.array([item.est[f"{x}{k}"] for k in range(n + 1)]) for x in ("ak", "d")}
    scores, steps = of["ak"] - of["ak"][0], list((of["d"] - of["d"][0])[1:])
    errors = _errors(item, n)
    of_slope = errors.get("a", math.nan)
    if a != 0.0 and (scores == np.arange(n + 1)).all():
        return Row(name, "gpcm" if n > 1 else "", steps, a, errors=errors)
    if not math.isclose(scores[-1], n, rel_tol=1e-9):  # as mirt has it; else a is no parameter
        errors.pop("a", None)
    # mirt fixes the last ak alone; the error of a product of two estimates needs their covariance
    if f"ak{n}" not in item.se and not math.isnan(of_slope):
        errors[f"s{n}"] = abs(float(scores[n])) * of_slope
    return Row(name, "nominal", steps, scores=list(a * scores[1:]), errors=errors)


# --- written --------------------------------------------------------------------------------------


def table(items: xr.Dataset) -> pd.DataFrame:
    """Return the parameters of items, a row each, and those of ability where it is N(0, 1)."""
    ids = bank_item_ids(items)
    known = item_set(items, ids)
    group = {g.at[j]: (g, j) for g in known.groups for j in range(g.at.size)}
    errors = {
        str(n).rpartition("_")[0]: x.values
        for n, x in items.items()
        if str(n).endswith(("_se", "_sd")) and x.dims[:1] == ("items",)
    }
    found = [
        (_FORM, "", ids[j], par, est, se)
        for j in range(len(ids))
        for par, est, se in _written(*group[j], ids[j], {n: x[j] for n, x in errors.items()})
    ]
    _say_what_is_left_out(items)
    if _is_standard(items):
        found += [(_FORM, "", _OF_GROUP, "MEAN_1", 0.0, math.nan)]
        found += [(_FORM, "", _OF_GROUP, "COV_11", 1.0, math.nan)]
    else:
        warnings.warn(
            Notice(
                f"ability is not N(0, 1) for everybody on the scale of these items: the table has "
                f"no item {_OF_GROUP}, and read_items needs ability=(mean, SD) with it"
            ),
            stacklevel=3,
        )
    return pd.DataFrame(found, columns=["form", "group", "item", "par", "est", "se"])


def _say_what_is_left_out(items: xr.Dataset) -> None:
    """A note on what banks have of these items, and the table has not."""
    lost = []
    if {*_COVARIANCES} & {*items.variables}:
        lost.append("the covariance of the parameters, by which link finds its errors")
    if freed := freed_of(items):
        lost.append(f"the groups that have items of their own ({listed(list(freed), 5)})")
    if lost:
        warnings.warn(
            Notice(
                f"mirt's table has no place for {', and '.join(lost)}: keep the bank, or the fit, "
                f"too"
            ),
            stacklevel=4,
        )


def _is_standard(items: xr.Dataset) -> bool:
    """Whether ability has mean 0 and SD 1, as far as a fit says; banks say groups alone."""
    said = str(items.attrs.get("identification", _STANDARD[0]))
    return calibration_groups(items) == 0 and said.startswith(_STANDARD)


def _written(
    group: Group, at: int, name: str, se: dict[str, Any]
) -> list[tuple[str, float, float]]:
    """Parameters of an item, with their errors."""
    model, x = group.model, group.x[:, at : at + 1]
    if -1 in model.category_map:
        raise InputError(
            f"item {name} has an empty category, which mirt's parameters cannot say; write the "
            f"bank without convention='mirt', or leave the item out"
        )
    sayable = model.steps in (ADJACENT, CUMULATIVE)
    if model.name not in FAMILIES:
        sayable = len(model.parameters) == 2 + sum(k is not None for k in model.asymptotes or ())
    if not sayable:
        raise InputError(
            f"item {name} is of model {model.name}, which mirt's parameters cannot say"
        )
    a, steps = float(model.slope(x)[0][0]), model.step_intercepts(x)[0][:, 0]
    if a == 0.0:
        raise InputError(
            f"item {name} is nominal, and its first and last category have the same score: mirt's "
            f"parameters have their difference as unit"
        )
    of_slope = ("a1", a, float(se.get("item_discrimination", math.nan)))
    of_steps = np.atleast_1d(se.get("item_step_intercept", np.full(len(steps), math.nan)))
    if model.name in MODELS:
        d = ("d", float(steps[0]), float(se.get("item_intercept", math.nan)))
        return [of_slope, d, *_asymptotes(model, x[:, 0], se)]
    intercepts = [(f"d{k}", float(d), float(of_steps[k - 1])) for k, d in enumerate(steps, start=1)]
    if model.steps == CUMULATIVE:
        return [of_slope, *intercepts]
    scores = model.scores(x)[0] / a  # type: ignore[index]
    if model.name != "nominal":
        scores = np.arange(float(model.n_categories))
    ak = [(f"ak{k}", float(s), math.nan) for k, s in enumerate(scores)]
    return [of_slope, *ak, ("d0", 0.0, math.nan), *intercepts]


def _asymptotes(model: ItemModel, x: Floats, se: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Logits of the lower and the upper asymptote, with their errors."""
    places = model.asymptotes or (None, None)
    found = []
    for par, place, p in zip(("g", "u"), places, (0.0, 1.0), strict=True):
        error = math.nan
        if place is not None:
            p, error = float(x[place]), se.get(model.parameters[place].variable, math.nan)
        if 0.0 < p < 1.0:
            est, error = math.log(p) - math.log1p(-p), float(error) / (p * (1.0 - p))
        else:
            est, error = math.copysign(_NEVER, p - 0.5), math.nan
        found.append((f"logit({par})", est, error))
    return found
