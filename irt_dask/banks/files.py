"""Item banks: calibrated items in files that other programs open."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.banks import calibration, categories, conventions, covariances, mirt
from irt_dask.banks.places import beside, check_new_path
from irt_dask.banks.rows import OF_ITEMS, Ability
from irt_dask.banks.tables import ItemTable, lacking, read_table
from irt_dask.curves import FAMILIES, MODELS, MORE_PARAMETERS
from irt_dask.curves.item_set import ItemSet
from irt_dask.curves.logistic import INTERCEPT, SLOPE
from irt_dask.engine import dataset
from irt_dask.errors import InputError
from irt_dask.items import checks
from irt_dask.items.mixture import Mixture
from irt_dask.items.parameters import bank_item_ids, item_set
from irt_dask.store.documents import to_csv
from irt_dask.store.manifest import write_atomically
from irt_dask.variables import unique_ids

#: Columns beside those of parameters.
_NAMES = (
    "item", "model", "categories", "category_map", "flag", *calibration.NAMES,
    covariances.OF, covariances.VALUES,
)  # fmt: skip


def write_items(items: xr.Dataset, path: str | Path, *, convention: str | None = None) -> Path:
    """Write item parameters as a bank.

    Parameters
    ----------
    items : Dataset that a fit function returned.
    path : .csv or .json, on a file system
        Columns ``item, model, a, b, c, d, se_a, se_b, se_d`` (3PL: ``se_c``): discrimination,
        difficulty, lower asymptote, intercept and their standard errors (posterior standard
        deviations for a Bayesian fit); with flags of the items also ``flag`` (``item_flag``).
        Where items have more than two categories also ``categories`` (K), the step intercepts ``d1,
        d2, ...``, step difficulties ``b1, b2, ...``, the scores of nominal categories ``s1, s2,
        ...`` and their errors ``se_d1, ...``; where nobody has a category also ``category_map``,
        numbers of those that are left (``0 1 . 2``); ``model`` is that of the item, ``b`` and ``d``
        are its difficulty and ``-a b``, and what an item does not have stays empty.  Numbers are
        written in full.  In .csv an apostrophe stands before an item that a spreadsheet would run
        (``=``, ``@``, ``+``, ``-``, tab or line's end first, and no number); :func:`read_items`
        takes it off.  A row is one curve, so b is ``-d / a`` of the a and d beside it: the mean of
        b over a posterior, which a fit reports, is not.  Items calibrated with groups of persons,
        whose abilities are not all N(0, 1), have their number in the column ``calibration_groups``,
        which ``score`` warns by; the means and standard deviations of the groups are not written.
        A histogram of ability is not written, but said to have been in ``calibration_latent``.
        Of a concurrent calibration ``freed_group`` is the group in which an item was freed, that
        ``link`` may leave it out, or the set of groups, which ``set_groups`` lists (in JSON), and
        ``calibrated_groups``, in one row, lists the groups that it knew.  Where the items have a
        covariance of all parameters (fits of up to 1,000; draws, whose covariance is written with
        the standard deviations of the fit, which may be of more draws), which ``link`` needs for
        the errors of a link, .json has it in ``covariance_of`` (columns) and ``covariance`` (for
        each, text of the covariances with all parameters before it in the file, and its variance).
        Of bank.csv it is in bank.covariance.csv: columns ``item``, ``parameter``, and ``1``, ``2``,
        ... for the parameters in the order of the rows; an older file is removed where there is
        none.  Of more parameters a Notice says that the bank has standard errors alone.  Parameters
        whose variance is not known (of an item that everybody solved) are left out.
    convention : {None, "mirt"}
        "mirt" writes R mirt's slope-intercept parameters, a row each, with the columns ``form,
        group, item, par, est, se``, as :func:`read_items` takes them.  ``GroupPars`` is written
        where ability is N(0, 1) for everybody; elsewhere a Notice says that it is not.  So it does
        of the covariance, and of groups of freed items, for which the table has no place.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        Another ending, a folder that does not exist, or one of this name, a bank.covariance.csv
        that is no covariance, an unknown convention, or an item that the convention cannot say.

    Notes
    -----
    On the driver; memory proportional to items x categories.

    Examples
    --------
    >>> import irt_dask as irt
    >>> path = irt.write_items(irt.fit_marginal(irt.load_lsat()), "lsat.csv")
    >>> path.read_text().splitlines()[0]
    'item,model,a,b,c,d,se_a,se_b,se_d,flag'
    >>> truth = irt.simulate(100, 2, model="graded", categories=3, seed=1).truth
    >>> irt.write_items(truth, "graded.csv").read_text().splitlines()[0]
    'item,model,categories,a,b,d,d1,d2,b1,b2'
    """
    path = check_new_path(path)
    if convention is None:
        files = bank_files(items, path.name)
    elif convention == "mirt":
        files = {path.name: _text(mirt.table(items), path.suffix).encode()}
    else:
        raise InputError(f"convention={convention!r}: banks are written by None (ours) or 'mirt'")
    folder = path.absolute().parent
    if path.suffix == ".csv":  # first: it is not that of the new bank
        beside(path).unlink(missing_ok=True)
    for name, data in files.items():
        write_atomically(folder / name, data)
    return path


def bank_files(items: xr.Dataset, name: str) -> dict[str, bytes]:
    """The bank of this name, and the file of the covariance that lies beside it in .csv."""
    suffix = Path(name).suffix
    out = {name: items_text(items, suffix).encode()}
    if suffix == ".csv":
        square = covariances.square(items, item_set(items, bank_item_ids(items)))
        out |= {} if square is None else {covariances.beside(name).name: square.encode()}
    return out


def items_text(items: xr.Dataset, suffix: str) -> str:
    """Return what :func:`write_items` writes to a file of this suffix."""
    known = item_set(items, bank_item_ids(items))
    several = categories.several(known)
    parameters = categories.columns(items, known) if several else _of_two(items, known)
    table = {"item": items["item_id"].values, "model": _names(items, known), **parameters}
    if "item_flag" in items:
        table["flag"] = checks.of_items(items)
    table |= calibration.columns(items)
    if suffix == ".json":
        table |= covariances.columns(items, known)
    return _text(pd.DataFrame(table), suffix, sparse=several)


def _of_two(items: xr.Dataset, known: ItemSet) -> dict[str, Any]:
    """Columns of items of two categories."""
    more = [(p, known.column(p)) for p in MORE_PARAMETERS]
    table: dict[str, Any] = {
        "a": known.column(SLOPE),
        "b": known.difficulty(),
        **{p.letter: x for p, x in more if p.always_written or (x != p.neutral).any()},
        "d": known.column(INTERCEPT),
    }
    for column, name in OF_ITEMS.items():
        for kind in ("se", "sd"):
            if f"{name}_{kind}" in items:
                table[f"se_{column}"] = items[f"{name}_{kind}"].values
    return table


def _names(items: xr.Dataset, known: ItemSet) -> Any:
    """Name of each item's model: as the items say, unless two categories need another name."""
    named = str(items.attrs.get("model", "2pl"))
    if "item_model" in items:
        names = items["item_model"].values.astype(str).astype(object)
    elif named in MODELS:
        return named
    else:
        names = np.full(known.n_items, "", dtype=object)
    simplest = Mixture.of_items(known)[0].names
    several = known.n_categories > 2
    unnamed = ~np.isin(names, (*MODELS, "nominal")) & ~several
    return np.where(unnamed | (names == ""), simplest, names)


def _text(frame: pd.DataFrame, suffix: str, *, sparse: bool = True) -> str:
    """A table as the text of a file; in JSON without what rows lack, if ``sparse``."""
    if suffix == ".csv":
        return to_csv(frame)
    records = frame.to_dict(orient="records")
    if sparse:
        records = [{k: x for k, x in row.items() if not lacking(x)} for row in records]
    return json.dumps(records, indent=1, ensure_ascii=False)


def read_items(
    path: str | Path, *, convention: str | None = None, ability: Ability | None = None
) -> xr.Dataset:
    """Read an item bank of :func:`write_items`, one made by hand, or a table of another program.

    A bank needs ``item``, and ``a`` with ``b`` or ``d`` (``d`` is the intercept, ``-a b``; where
    both stand they must agree); for the 3PL also ``c``; ``flag`` is read where it stands.  Items of
    more than two categories need ``model`` (graded, gpcm, pcm, rating, nominal) and, of K
    categories, ``d1`` to ``d{K-1}`` or ``b1`` to ``b{K-1}``; nominal ones ``s1`` to ``s{K-1}`` in
    place of ``a``.  ``categories`` says K, which the steps say too; ``category_map`` which of them
    are empty.  Other columns are left out, unless their names are nearly those (``C``, mirt's
    ``g``): an error, as is a ``model`` that does not go with the parameters.

    Parameters
    ----------
    path : .csv or .json
        The path may be a URL of object storage.
    convention : {None, "mirt", "tam", "oplm", "naep"}
        What the columns mean; None: as above.

        "mirt": a row an item, ``coef(mod, simplify = TRUE)$items`` of R mirt (``ability`` stands
        elsewhere in R: give it); or a row each parameter, columns ``item, par, est`` and, if there,
        ``se``, ``group`` (one) and ``form`` (rows of "slope-intercept" are read): ``a1`` with
        ``d``, ``logit(g)``, ``logit(u)`` (or ``g``, ``u``), ``d1, ...`` (graded), ``ak0, ...`` and
        ``d0, ...`` (gpcm, nominal), or ``b1, ...`` and ``c`` (rsm).  Others are refused, but
        sequential items, whose parameters have the names of graded ones, cannot be told from them
        and are read as graded.  ``MEAN_1`` and ``COV_11`` of the item ``GroupPars`` are those of
        ability.

        "tam": ``mod$item`` of R TAM, columns ``item``, ``AXsi_.Cat1, ...`` and ``B.Cat1.Dim1,
        ...``: P(k) is proportional to ``exp(B_k theta - AXsi_k)``, where ``AXsi_.Cat0`` and
        ``B.Cat0.Dim1`` are 0 unless they stand there; ``guess`` (3PL) is the lower asymptote.

        "oplm": ``item``, a whole number ``a`` and the step difficulties ``b1, ...`` (``se_b1``):
        P(k) is proportional to ``exp(sum_{v<=k} a (theta - b_v))``.

        "naep": ``item, a, b, c`` (``se_a, se_b, se_c``) and, of items of K categories, ``d1`` to
        ``d{K-1}``, whose sum is 0: P(k) is proportional to
        ``exp(sum_{v<=k} 1.7 a (theta - b + d_v))``, and for the others
        ``c + (1 - c) / (1 + exp(-1.7 a (theta - b)))`` that of a right response.
    ability : (mean, SD), for "mirt", "tam", "oplm" and "naep"
        Of ability on the scale of the table.  Items come back on the scale on which it is N(0, 1),
        as ``score`` takes it.  Default: (0, 1), but for "mirt" what ``GroupPars`` says.  TAM's
        models of one slope estimate a variance that the table does not hold: they need it.

    Returns
    -------
    Dataset over items, to be passed to ``score`` and ``evaluate``.
        With items of more than two categories also ``item_model``, ``item_n_categories``
        (``item_category_map``, if some are empty),
        ``item_step_intercept``, ``item_step_difficulty``, ``item_threshold`` (items, steps), and of
        nominal ones ``item_category_score`` (items, categories).  ``_se`` as far as the table has
        them and they need no covariance; mean and SD of ability are taken as known.  With the
        covariance of a bank ``parameter_item`` and ``parameter_column`` (parameter),
        ``item_parameter_covariance`` (parameter, parameter_).

    Raises
    ------
    InputError
        Names the file, the item and the column; of bank.covariance.csv that is not of this bank
        the line, the column and the value.

    Notes
    -----
    On the driver; memory proportional to items x categories, and to the covariance.

    Examples
    --------
    >>> import pandas as pd
    >>> import irt_dask as irt
    >>> bank = pd.DataFrame({"item": ["q1", "q2"], "a": [1.0, 1.5], "b": [-0.5, 0.5]})
    >>> bank.to_csv("by_hand.csv", index=False)
    >>> irt.read_items("by_hand.csv")["item_intercept"].values.tolist()
    [0.5, -0.75]
    >>> naep = pd.DataFrame({"item": ["q3"], "a": [1.0], "b": [0.5], "d1": [0.25], "d2": [-0.25]})
    >>> naep.to_csv("naep.csv", index=False)
    >>> irt.read_items("naep.csv", convention="naep")["item_step_difficulty"].values.tolist()
    [[0.25, 0.75]]
    """
    table = read_table(path)
    if convention is not None:
        return conventions.read(table, convention, ability)
    if ability is not None:
        raise InputError(
            f"ability={ability!r} is for tables of a convention; {table.path} is read as a bank of "
            f"irt_dask, which stays on its scale"
        )
    mirt.check_no_table(table)
    _check_names(table)
    if categories.is_of_several(table):
        table.check_columns("item")
        table.check_items()
        return categories.bank(table, *_extras(table))
    table.check_columns("item", "a", "b (or d)")
    table.check_items()
    return _bank(table)


def _check_names(table: ItemTable) -> None:
    """Stop at a column that would be left out, and whose name is nearly that of one that is not."""
    meant = {name: letter for letter, name in OF_ITEMS.items()}
    meant |= {name.removeprefix("item_"): letter for name, letter in meant.items()}
    meant |= mirt.OURS
    for column in map(str, table.frame):
        low = column.strip().lower()
        name = meant.get(low, low)
        known = re.fullmatch(rf"(se_)?({'|'.join(OF_ITEMS)}|{categories.OF_A_STEP})", name)
        if name != column and (known or name in _NAMES):
            raise InputError(
                f"{table.path}: the column {column!r} would not be read; call it {name!r}, or "
                f"something else if it is another thing"
            )


def _extras(table: ItemTable) -> tuple[dict[str, Any], dict[str, Any]]:
    """Variables and attributes of a bank beside its curves: flags, groups of its calibration."""
    data, attrs = calibration.read(table)
    if "flag" in table:
        data["item_flag"] = _flags(table)
    return data | covariances.read(table), attrs


def _bank(table: ItemTable) -> xr.Dataset:
    """The items of a table where all have two categories."""
    path, items = table.path, table.items
    models = set(_checked_models(table))
    given = {c: table.numbers(c) for c in OF_ITEMS if c in table}
    errors = {c: table.numbers(f"se_{c}", may_lack=True) for c in OF_ITEMS if f"se_{c}" in table}
    a = given["a"]
    d = given["d"] if "d" in given else -a * given["b"]
    for k in np.flatnonzero(a == 0.0):
        raise InputError(f"{path}: item {items[k]} has a = {a[k]}; it must not be 0")
    if "b" in given:
        for k in np.flatnonzero(~np.isclose(-a * given["b"], d, rtol=1e-3, atol=1e-3)):
            raise InputError(
                f"{path}: item {items[k]} has a = {a[k]}, b = {given['b'][k]} and d = "
                f"{d[k]}; d is the intercept and must be -a b (leave column d out if it is "
                f"something else)"
            )
    ids = unique_ids(items, str(path))
    data: dict[str, Any] = {
        "item_discrimination": a,
        "item_difficulty": -d / a,
        "item_intercept": d,
    }
    _check_named(table, given)
    for p in MORE_PARAMETERS:
        own = given.get(p.letter, np.full(len(a), p.neutral))
        having = {m.name for m in MODELS.values() if p in m.parameters}
        if (own != p.neutral).any() or models & having:
            data[p.variable] = own
    for column, name in OF_ITEMS.items():
        if column in errors and name in data:
            data[f"{name}_se"] = errors[column]
    more, attrs = _extras(table)
    attrs = {"method": "item bank", "model": _model(data, models), **attrs}
    bank = dataset(data | more, item_id=ids, attrs=attrs)
    item_set(bank, ids, what=str(path))  # stops at parameters that describe no item
    return bank


def _checked_models(table: ItemTable) -> list[Any]:
    """Names of the items' models, if the table has them."""
    names = list(table.frame["model"]) if "model" in table else []
    for k, name in enumerate(names):
        if name not in MODELS:
            raise InputError(
                f"{table.path}: item {table.items[k]} has model {name!r}; known are "
                f"{', '.join((*MODELS, *FAMILIES))}"
            )
    return names


def _model(data: dict[str, Any], named: set[str]) -> str:
    """The simplest model that has these parameters; of equals the one that all items name."""
    fitting = [
        m.name
        for m in MODELS.values()
        if all(p in m.parameters for p in MORE_PARAMETERS if p.variable in data)
    ]
    if len(named) == 1 and named <= set(fitting):
        (name,) = named
        if not MODELS[name].shared or np.ptp(data["item_discrimination"]) == 0.0:
            return str(name)  # of items with slopes of their own one that shares them says nothing
    alone = [name for name in fitting if not MODELS[name].shared]
    if not alone:
        own = ", ".join(p.letter for p in MORE_PARAMETERS if p.variable in data)
        raise InputError(f"no model of two categories has all of the columns {own}")
    return alone[0]


def _check_named(table: ItemTable, given: dict[str, Any]) -> None:
    """Stop at a model that lacks a parameter which its item has, or has one that is not there."""
    for k, name in enumerate(_checked_models(table)):
        for p in MORE_PARAMETERS:
            if p in MODELS[name].parameters:
                if p.letter not in given:
                    what = f"nothing stands there, and model {name} has it"
                    raise table.fault(k, p.letter, what)
            elif p.letter in given and given[p.letter][k] != p.neutral:
                what = f"{given[p.letter][k]:g} stands there, and model {name} has no {p.name}"
                raise table.fault(k, p.letter, what)


def _flags(table: ItemTable) -> Any:
    """Flags of the items; nothing is "ok"."""
    given = [flag or "ok" for flag in table.words("flag")]
    for item, flag in zip(table.items, given, strict=True):
        try:
            checks.check_flags(np.array([flag]))
        except InputError as error:
            raise InputError(f"{table.path}: item {item}: {error}") from None
    return np.array(given)
