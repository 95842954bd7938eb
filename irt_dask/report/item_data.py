"""What the report page knows of each item, once, as JSON: columns, flags, curves, results.

Curves are tables of whole thousandths at common abilities, made by the same code as everything else
that needs a curve, so that the page's script holds no formula of any model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import InputError
from irt_dask.evaluate.doubted_keys import labels_of
from irt_dask.items.covariance import column_names, uncertain
from irt_dask.items.parameters import has_loadings, item_set
from irt_dask.report.common import item_ids
from irt_dask.report.flags import WORDS
from irt_dask.report.item_columns import Column
from irt_dask.store.documents import to_cell
from irt_dask.variables import ITEMS, SUFFIXES, VARIABLES, describe

#: Items that the page holds; of more the first ones.
MOST = 5000
#: Abilities of the curves.
_ABILITY = np.linspace(-4.0, 4.0, 33)
#: Numbers of category curves that a page carries; observed curves are shown of so many groups.
_MOST_NUMBERS, _MOST_GROUPS = 1_500_000, 6
#: Items whose bands are computed at a time.
_AT_ONCE = 25
#: What is told of each option.
_OF_OPTIONS = ("count", "share", "rest", "correlation", "q_value")
#: Half the width of a band of 95%.
_Z = 1.96


def item_data(
    fit: xr.Dataset,
    columns: Sequence[Column],
    flags: Mapping[str, Mapping[str, Sequence[str]]],
    curves: xr.Dataset | None = None,
    results: Mapping[str, xr.Dataset] | None = None,
    once: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the data of the item table and of the items' own pages, at most 5,000 items.

    Options of multiple-choice items, as ``option_analysis`` has them, are a part of their own.

    Parameters
    ----------
    fit
        The items.
    columns
        Columns of the table, of all items.
    flags
        By item its flags, and by flag the fits that say it.
    curves
        Result of ``item_curves``: observed curves.
    results
        Further results over items by name, such as those of ``item_fit`` and ``dif``.
    once
        Flags that are told once for all, by which alone an item does not count as flagged.
    """
    ids = item_ids(fit)[:MOST]
    return {
        "columns": [_column(c.head(MOST)) for c in columns],
        "flags": [[[flag, list(by)] for flag, by in sorted(flags.get(i, {}).items())] for i in ids],
        "words": {f: list(WORDS[f]) for f in sorted({f for i in ids for f in flags.get(i, {})})},
        "once": list(once),
        **_curves(fit, ids),
        "observed": None if curves is None else _observed(curves, fit, ids),
        "results": [_result(n, r, ids) for n, r in (results or {}).items() if not _of_options(r)],
        "options": [_options(n, r, ids) for n, r in (results or {}).items() if _of_options(r)],
    }


def _column(column: Column) -> dict[str, Any]:
    """A column of words or numbers; ``csv`` has the words that a spreadsheet would run."""
    if column.words is not None:
        unsafe = {j: to_cell(w) for j, w in enumerate(column.words) if to_cell(w) != w}
        return {"name": column.name, "words": column.words, "csv": unsafe}
    assert column.values is not None
    said = {"name": column.name, "digits": column.digits, "values": _numbers(column.values)}
    if column.errors is not None and np.isfinite(column.errors).any():
        said["errors"] = _numbers(column.errors)
    return said


def _numbers(values: Floats) -> list[Any]:
    """Numbers to seven digits; None for a missing one, words for infinite ones."""
    if values.ndim > 1:
        return [_numbers(row) for row in values]
    out: list[Any] = []
    for v in values.tolist():
        if v != v:
            out.append(None)
        elif v in (np.inf, -np.inf):
            out.append("∞" if v > 0 else "-∞")
        else:
            short = float(f"{v:.7g}")
            out.append(int(short) if short.is_integer() and abs(short) < 1e15 else short)
    return out


def _thousandths(values: Floats) -> list[Any]:
    """Shares as whole thousandths, None for missing ones; rows within rows."""
    there = np.isfinite(values)
    rows: list[Any] = np.rint(1000.0 * np.where(there, values, 0.0)).astype(np.int64).tolist()
    if there.all():
        return rows
    return [
        [v if known else None for v, known in zip(row, some, strict=True)]
        for row, some in zip(rows, there.tolist(), strict=True)
    ]


# --- curves ---------------------------------------------------------------------------------------


def _curves(fit: xr.Dataset, ids: list[str]) -> dict[str, Any]:
    """Expected score as a share of the highest, its band, and P of each of several categories."""
    none = {"ability": _ABILITY.tolist(), "curve": None, "band": None, "categories": None}
    names = ("item_intercept", "item_difficulty", "item_step_intercept")
    if has_loadings(fit) or not any(n in fit.variables for n in names):
        return none
    items = item_set(fit, tuple(ids), checked=False)
    highest = items.n_categories - 1
    with np.errstate(invalid="ignore", over="ignore"):
        share = items.expected(_ABILITY) / highest[:, None]
    band = _band(fit, ids, items)
    categories = None
    if highest.max() > 1 and items.first[-1] * _ABILITY.size <= _MOST_NUMBERS:
        with np.errstate(invalid="ignore", over="ignore"):
            p = np.exp(items.log_p(_ABILITY))
        ends = zip(items.first[:-1], items.first[1:], strict=True)
        categories = [_thousandths(p[lo:hi]) if hi - lo > 2 else None for lo, hi in ends]
    return {
        "ability": _ABILITY.tolist(),
        "highest": highest.tolist(),
        "curve": _thousandths(share),
        "band": None if band is None else _thousandths(band / highest[:, None]),
        "categories": categories,
    }


def _band(fit: xr.Dataset, ids: list[str], items: ItemSet) -> Floats | None:
    """Half widths of the curves' bands, (items, abilities), from the errors of their parameters.

    By the delta method; NaN where an error that the curve depends on is not known, and None where
    none is.
    """
    known = [str(n) for n in fit.variables if str(n).endswith(("_se", "_sd", "_draw"))]
    if not any(n.startswith("item_") for n in known):
        return None
    out = np.full((len(ids), _ABILITY.size), np.nan)
    for lo in range(0, len(ids), _AT_ONCE):
        some = np.arange(lo, min(lo + _AT_ONCE, len(ids)))
        out[some] = _half_widths(fit, [ids[j] for j in some], items.take(some))
    return out if np.isfinite(out).any() else None


def _half_widths(fit: xr.Dataset, ids: list[str], items: ItemSet) -> Floats:
    out = np.full((len(ids), _ABILITY.size), np.nan)
    try:
        found = uncertain(fit, ids, items, "the fit")
    except InputError:  # an item among them has no errors
        if len(ids) == 1:
            return out
        alone = (np.array([j]) for j in range(len(ids)))
        return np.concatenate([_half_widths(fit, [ids[j[0]]], items.take(j)) for j in alone])
    if found is None:
        return out
    names = column_names(items)
    with np.errstate(invalid="ignore", over="ignore"):
        slopes = items.by_parameter(_ABILITY, len(names)) * np.exp(items.log_p(_ABILITY))
    for j in range(len(ids)):
        rows = slice(items.first[j], items.first[j + 1])
        score = np.arange(items.n_categories[j], dtype=float)
        gradient = np.einsum("prn,r->pn", slopes[:, rows], score)
        own = np.flatnonzero(found.column[:, j] >= 0)
        has = names[:, j] != ""
        if own.size == 0 or (len(own) < has.sum() and not found.between):
            continue  # an error of a parameter is not known
        at = found.column[own, j]
        g = gradient[own]
        variance = np.einsum("pn,pq,qn->n", g, found.matrix[np.ix_(at, at)], g)
        out[j] = _Z * np.sqrt(np.maximum(variance, 0.0))
    return out


def _observed(curves: xr.Dataset, fit: xr.Dataset, ids: list[str]) -> dict[str, Any]:
    """Observed curves by group, as shares of the highest score, at every third ability."""
    own = {i: j for j, i in enumerate(item_ids(curves))}
    at = np.array([own.get(i, -1) for i in ids])
    k = np.array(fit["item_n_categories"].values) if "item_n_categories" in fit else np.array([2])
    highest = np.broadcast_to(k - 1.0, (fit.sizes[ITEMS],))[: len(ids), None]
    score = curves["group_item_observed_score"].values[:_MOST_GROUPS, :, ::3]
    labels = curves["group_label"].values.astype(str)[:_MOST_GROUPS]
    groups = []
    for label, of in zip(labels, score, strict=True):
        share = np.where(at[:, None] >= 0, of[np.maximum(at, 0)], np.nan) / highest
        groups.append({"label": str(label), "values": _thousandths(share)})
    ability = [round(float(x), 4) for x in curves["ability"].values[::3]]
    return {"ability": ability, "groups": groups}


# --- results --------------------------------------------------------------------------------------


def _of_options(result: xr.Dataset) -> bool:
    return "item_option_share" in result


def _options(name: str, result: xr.Dataset, ids: list[str]) -> dict[str, Any]:
    """Options of each item that persons had: how many chose them, and who, by fifths.

    Columns of :data:`_OF_OPTIONS` for each of them; None for an item that the result does not have.
    """
    labels = labels_of(result, name)
    own = {i: j for j, i in enumerate(item_ids(result))}
    share = result["item_option_share"].values
    columns = np.stack([result[f"item_option_{of}"].values for of in _OF_OPTIONS], axis=2)
    curve, key = result["item_option_curve"].values, result["item_option_key"].values
    items: list[Any] = []
    for i in ids:
        j = own.get(i)
        there = [] if j is None else np.flatnonzero(np.isfinite(share[j])).tolist()
        items.append({
            "option": [labels[c] for c in there],
            "key": there.index(int(key[j])) if key[j] in there else None,
            "columns": _numbers(columns[j, there]),
            "curve": _thousandths(curve[j, there]),
        } if there else None)  # fmt: skip
    head = [[of.replace("_", " "), describe(f"item_option_{of}").doc] for of in _OF_OPTIONS]
    return {"name": name, "columns": head, "items": items}


def _result(name: str, result: xr.Dataset, ids: list[str]) -> dict[str, Any]:
    """Statistics of each item, with the words of the vocabulary; those of groups by their label."""
    own = {i: j for j, i in enumerate(item_ids(result))}
    at = [own.get(i, -1) for i in ids]
    rows = []
    for variable, values, suffix in _by_item(result):
        words = describe(variable).doc if _is_known(variable) else variable
        label = variable.removeprefix("group_").removeprefix("item_").replace("_", " ") + suffix
        cells: list[Any] = [values[j] if j >= 0 else None for j in at]
        if values.dtype.kind in "fiu":
            cells = _numbers(np.array([np.nan if c is None else c for c in cells], dtype=float))
        else:
            cells = [None if c is None else str(c) for c in cells]
        rows.append({"name": label, "words": words, "values": cells})
    return {"name": name, "rows": rows}


def _is_known(variable: str) -> bool:
    base, _, suffix = variable.rpartition("_")
    return variable in VARIABLES or (base in VARIABLES and suffix in SUFFIXES)


def _by_item(result: xr.Dataset) -> Any:
    """Variables of items alone, and of items by one other dimension, an entry at a time."""
    for name in map(str, result.data_vars):
        values = result[name]
        if values.dims == (ITEMS,):
            yield name, values.values, ""
        elif ITEMS in values.dims and values.ndim == 2:
            other = next(d for d in values.dims if d != ITEMS)
            if result.sizes[other] > _MOST_GROUPS:
                continue
            labels = _labels(result, str(other))
            for label, row in zip(labels, values.transpose(other, ITEMS).values, strict=True):
                yield name, row, "" if len(labels) == 1 else f" ({label})"


def _labels(result: xr.Dataset, other: str) -> list[str]:
    if other in result.coords:
        return [str(x) for x in result[other].values]
    if other == "groups" and "group_label" in result:
        return [str(x) for x in result["group_label"].values]
    return [str(k + 1) for k in range(result.sizes[other])]
