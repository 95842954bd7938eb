"""The command that looks at the options of multiple-choice items: options."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Bools
from irt_dask.cli.common import (
    cluster_option,
    json_option,
    printable,
    quiet_option,
    remark,
    rows,
    show,
    warned,
    workers,
)
from irt_dask.cli.data import columns_of, listed_names, table_options
from irt_dask.cli.results import new_result, records, write_result_or_csv
from irt_dask.cli.spoken import list_of
from irt_dask.errors import InputError, listed, repeated
from irt_dask.store import Responses

if TYPE_CHECKING:
    from irt_dask.evaluate.doubted_keys import Doubt

#: Rows that are printed.
_MOST = 40
#: Items that are named in a sentence.
_NAMED = 10
_SHOWN = ("item", "option", "right", "count", "share", "rest", "correlation", "q_value")


@click.command()
@click.argument("file", type=click.Path())
@click.argument("key", type=click.Path())
@click.option("--options", "labels", metavar="A,B,...", help="The options, in their order "
              "(default: those that are right of some item in KEY).")  # fmt: skip
@click.option("--missing", multiple=True, metavar="CODE", help="A code that means not observed. "
              "Repeat as needed; an empty cell always is.")  # fmt: skip
@click.option("--column", "columns", multiple=True, metavar="ROLE=NAME",
              help="Name a column: person=, item=, response=; items=q1:q24 those of a row a "
              "person. Repeat as needed.")  # fmt: skip
@table_options
@click.option("--out", type=click.Path(), metavar="OPTIONS.csv|.nc",
              help="Write all options, a row each, with the shares of fifths of the persons; or as "
              "OPTIONS.nc, which 'irt-dask report --results' shows.")  # fmt: skip
@click.option("--fdr", type=float, default=0.05, show_default=True,
              help="Expected share of false ones among the options that are named.")  # fmt: skip
@cluster_option("none")
@json_option
@quiet_option
def options(
    file: str, key: str, labels: str | None, missing: tuple[str, ...], columns: tuple[str, ...],
    out: str | None, fdr: float, cluster: str, as_json: bool, quiet: bool, **table_as: Any,
) -> None:  # fmt: skip
    """Say who chose which option of multiple-choice items, and name what is wrong with them.

    FILE has the options as they were chosen (A, B, ...), a row a person and a column an item, or a
    row an answer; KEY is a .csv or .json with the columns item and key (or answer), and where
    items have different numbers of options these in the column options. Able persons should choose
    the right option, and those who choose another should be less able: a distractor that attracts
    the able, or a key that the able avoid, is named. Persons stand by their other answers.

    Columns: share, of those who answered who chose the option; rest, by how much these have a
    larger share right of the other items than all have; correlation of choosing it with that, below
    0 for a distractor that works; q_value, of what goes the wrong way: small is a finding, 1 is
    none, and - was not tested (fewer than five chose it, or did not). First come the keys to read
    again, with those of few persons, too, that may be so by chance.
    """
    import irt_dask as irt
    from irt_dask.ingest.columns.reasons import unlike

    path, (right, sizes) = (
        new_result(out, file, key),
        _read_key(key, table_as.get("encoding")),
    )
    names = _names(labels, right, key)
    if labels is None:
        remark(f"options: {', '.join(names)} (--options says others)", quiet)
    with (
        tempfile.TemporaryDirectory(prefix="irt-dask-options-") as scratch,
        warned(quiet),
        workers(cluster, quiet=quiet) as client,
    ):
        common: dict[str, Any] = {"client": client, "progress": False if quiet else None}
        store = Path(scratch) / "answers"
        table_as |= {"exclude": listed_names(table_as["exclude"]), "missing": missing}
        answers = _answers(file, store, names, right, columns_of(columns), table_as, common)
        if lacking := [i for i in answers.item_id if i not in right]:
            if len(lacking) == len(answers.item_id):
                raise InputError(f"{key}: {unlike(right, lacking)}")
            raise InputError(
                f"{key} has no option for {len(lacking)} item(s): {listed(lacking, 10)}"
            )
        if others := [i for i in right if i not in set(answers.item_id)]:
            remark(f"{len(others)} item(s) of {key} are not in {file}: {listed(others, 10)}", quiet)
        found = irt.option_analysis(answers, right, labels=names, fdr=fdr, **common)
    table, flag = _table(found, names), found["item_option_flag"].values.astype(str)
    if sizes:
        beyond, flag = _beyond(found, sizes, flag, key)
        table = table[~beyond.ravel()]
        share = found["item_option_share"]
        found = found.assign(
            item_option_share=share.where(~beyond), item_option_flag=("items", flag.astype(object))
        )
    write_result_or_csv(found, table, path)
    _shown(found, table, flag, as_json)
    if path is not None and not as_json:
        click.echo(f"\nall options are in {path}")


def _shown(found: xr.Dataset, table: pd.DataFrame, flag: NDArray[np.str_], as_json: bool) -> None:
    """Print the keys to read again, then other flags, and apart from both what accuses nothing."""
    from irt_dask.evaluate.doubted_keys import MINOR, doubted_keys, headline, lines

    doubts = doubted_keys(found)
    of = dict(zip(found["item_id"].values.astype(str).tolist(), flag.tolist(), strict=True))
    accused = {i: "|".join(f for f in of[i].split("|") if f not in MINOR) for i in of}
    order = list(dict.fromkeys([*(d.item for d in doubts), *(i for i in of if accused[i])]))
    flagged = [{"item": i, "flag": accused[i]} for i in order if accused[i]]
    minor = {f: [i for i in of if f in of[i].split("|")] for f in ("unused_option", "untested")}
    about = {
        "n_persons": found.attrs["n_persons"],
        "n_read_again": len(doubts),
        "n_flagged": len(flagged),
        **{f"n_{f}": len(items) for f, items in minor.items()},
    }
    if as_json:
        again = [_record(d) for d in doubts]
        show({**about, "read_again": again, "flagged": flagged, **minor,
              "options": records(table)}, True)  # fmt: skip
        return
    show(about, False)
    if doubts:
        click.echo(printable("\n".join(["", headline(doubts), "", *lines(doubts)])))
    if flagged:
        click.echo(f"\n{rows(flagged[:_MOST])}")
    some = table
    if order:
        place = {item: k for k, item in enumerate(order)}
        some = table[table["item"].isin(place)].sort_values(
            "item", key=lambda items: items.map(place), kind="stable"
        )
    click.echo(f"\n{rows(records(some.head(_MOST), _SHOWN), 2)}")
    if len(some) > _MOST:
        click.echo(f"\n{len(some) - _MOST} more rows of such items: --out OPTIONS.csv writes all")
    _show_minor(table, **minor)


def _record(doubt: Doubt) -> dict[str, Any]:
    """A key to read again as a row."""
    option, key = doubt.option, doubt.key
    return {
        "item": doubt.item,
        "option": option and option.name,
        "option_share": option and option.share,
        "option_correlation": option and option.correlation,
        "key": key.name,
        "key_share": key.share,
        "key_correlation": key.correlation,
        "flag": "|".join(doubt.reasons) or "ok",
    }


def _show_minor(table: pd.DataFrame, unused_option: list[str], untested: list[str]) -> None:
    """Say what is no problem of a key: options that nobody chose, and items that are not tested."""
    if unused_option:
        nobody = table[(table["count"] == 0) & (table["right"] == 0)].groupby("item")["option"]
        of = {item: ", ".join(names) for item, names in nobody}
        some = "; ".join(f"{item!r}: {of[item]}" for item in unused_option[:_NAMED])
        left = len(unused_option) - _NAMED
        click.echo(
            printable(
                f"\nNobody chose an option of {len(unused_option)} item(s), which says nothing of "
                f"their keys: {some}" + f"; and {left} more" * (left > 0)
            )
        )
    if untested:
        click.echo(
            printable(
                f"\nNot tested, as fewer than five persons chose each option, or did not: "
                f"{listed(untested, _NAMED)}"
            )
        )


def _names(labels: str | None, right: dict[str, str], key: str) -> list[str]:
    """The options, as they are said or as the key has them."""
    names = list_of(labels) if labels else sorted({*right.values()})
    if "" in names:
        raise InputError("--options has an empty name")
    if twice := repeated(names):
        raise InputError(f"--options has {twice[0]!r} twice")
    if len(names) < 2:
        raise InputError(f"{key} has one option alone, {names[0]!r}: say all by --options A,B,C,D")
    if strange := sorted({*right.values()} - {*names}):
        raise InputError(f"{key} has the option {strange[0]!r}; --options are {', '.join(names)}")
    return names


def _answers(
    file: str, store: Path, names: list[str], right: dict[str, str], columns: Any,
    table_as: dict[str, Any], common: dict[str, Any],
) -> Responses:  # fmt: skip
    """Codes of the options, in the order of their names."""
    import irt_dask as irt
    from irt_dask.ingest.columns.reasons import OTHER_CASE

    codes = {name: k for k, name in enumerate(names)}
    try:
        return irt.ingest(
            file, store, columns=columns, recode=codes, categories=len(names),
            null_categories="keep", **table_as, **common,
        )  # fmt: skip
    except InputError as error:
        if " has the value " not in str(error):
            raise
        where, _, rest = str(error).partition(";")
        value = where.rpartition(" has the value ")[2].strip("'")
        if value.casefold() in {name.casefold() for name in names}:
            try:  # as ingest reads answers by a key
                irt.ingest(file, store, columns=columns, key=right, **table_as, **common)
            except InputError as of_key:
                if OTHER_CASE in str(of_key):
                    raise of_key from error
        no_item = rest.rpartition("if the column is no item, ")[2]
        raise InputError(
            f"{where}; options are {', '.join(names)}: --options says others, --missing what is no "
            f"answer" + f"; if the column is no item, {no_item}" * (no_item != rest)
        ) from error


def _beyond(
    found: xr.Dataset, sizes: dict[str, int], flag: NDArray[np.str_], key: str
) -> tuple[Bools, NDArray[np.str_]]:
    """Options that an item does not have, and flags without those: nobody can choose them."""
    count = found["item_option_count"].values
    ids, k = found["item_id"].values.tolist(), count.shape[1]
    beyond = np.arange(k) >= np.array([sizes.get(i, k) for i in ids])[:, None]
    if (j := np.flatnonzero((beyond & (count > 0)).any(axis=1))).size:
        raise InputError(
            f"item {ids[j[0]]} has {sizes[ids[j[0]]]} options in {key}, and answers beyond them"
        )
    unused = ((count == 0) & ~beyond & ~_right(found, k)).any(axis=1)
    kept = [f if u else _without(f) for f, u in zip(flag, unused, strict=True)]
    return beyond, np.array(kept)


def _read_key(path: str, encoding: str | None) -> tuple[dict[str, str], dict[str, int]]:
    """The right option of each item, and where a column says so how many it has."""
    from irt_dask.banks.tables import read_table  # kernels come with banks
    from irt_dask.ingest.sources.item_tables import KEY_ALSO

    try:
        table = read_table(path, "answer key", encoding)
    except InputError as error:
        if not isinstance(error.__cause__, UnicodeDecodeError):
            raise
        raise InputError(f"{error}; say --encoding, such as cp1252, or save it as UTF-8") from error
    written = [str(name) for name in table.frame]
    names = {n.casefold(): n for n in reversed(written) if n.casefold() not in written}
    table = replace(table, frame=table.frame.rename(columns={v: k for k, v in names.items()}))
    for name, other in KEY_ALSO.items():
        if name in table and other in table:
            raise InputError(
                f"the answer key {path} has the columns {name} and {other}, which mean the same; "
                f"leave one out"
            )
        table = replace(table, frame=table.frame.rename(columns={other: name}))
    if lacking := [n for n in ("item", "key") if n not in table]:
        raise InputError(
            f"the answer key {path} has no column {', '.join(lacking)}; it has "
            f"{', '.join(written)}: call the columns item (the question, as the answers "
            f"name it) and key or answer (its right option) in the first line"
        )
    table.check_items()
    items, right = [str(i) for i in table.items], table.words("key")
    if twice := repeated(items):
        raise InputError(f"the answer key {path} has the item {twice[0]!r} twice")
    if "" in right:
        raise table.fault(right.index(""), "key", "there is no option")
    sizes = table.numbers("options").astype(int).tolist() if "options" in table else []
    return dict(zip(items, right, strict=True)), dict(zip(items, sizes, strict=bool(sizes)))


def _right(found: xr.Dataset, k: int) -> Bools:
    """Which option is the key of each item, (items, options)."""
    return np.asarray(np.arange(k) == found["item_option_key"].values[:, None])


def _without(flag: str) -> str:
    """A flag without that of unused options."""
    return "|".join(r for r in flag.split("|") if r != "unused_option") or "ok"


def _table(found: xr.Dataset, names: list[str]) -> pd.DataFrame:
    """A row an option."""
    m, k = found["item_option_count"].shape
    columns: dict[str, Any] = {
        "item": np.repeat(found["item_id"].values.astype(str), k),
        "option": np.tile(names, m),
        "right": _right(found, k).ravel().astype(int),
    }
    for name in ("count", "share", "rest", "correlation", "p_value", "q_value"):
        columns[name] = found[f"item_option_{name}"].values.ravel()
    for fifth, values in enumerate(found["item_option_curve"].values.reshape(m * k, -1).T):
        columns[f"share_in_fifth_{fifth + 1}"] = values
    return pd.DataFrame(columns)
