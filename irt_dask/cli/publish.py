"""Commands that make published tables: tabulate, regress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pandas as pd

from irt_dask.cli.common import json_option, quiet_option, rows, show, warned
from irt_dask.cli.results import new_csv, records, write_csv
from irt_dask.errors import InputError

#: Rows that are printed; the file and --json have all.
_MOST = 60


_file = click.argument("file", type=click.Path())
_OPTIONS = (
    click.option("--by", multiple=True, metavar="COLUMN",
                 help="Groups are the combinations of these columns. May be repeated."),
    click.option("--weight", metavar="COLUMN", help="Weights of the full sample (default: those of "
                 "the preset, or 1 for all)."),
    click.option("--preset", metavar="SURVEY", help="Replicate weights and their columns as in "
                 "pisa, pisa_2012, timss, timss_2011, naep."),
    click.option("--replicates", multiple=True, metavar="COLUMN", help="Columns of replicate "
                 "weights, as a pattern or one by one; with --method."),
    click.option("--method", help="brr, fay, jk1, jk2 or jk2_both."),
    click.option("--fay", type=float, metavar="K", help="Fay's factor, with --method fay."),
    click.option("--level", type=float, default=0.95, show_default=True,
                 help="Level of intervals."),
    click.option("--out", type=click.Path(), metavar="TABLE.csv", help="Write all rows."),
    json_option,
    quiet_option,
)  # fmt: skip


def _of_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Options of every command here."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _made(
    function: str, file: str, what: Any, *, preset: str | None, replicates: tuple[str, ...],
    method: str | None, fay: float | None, out: str | None, as_json: bool, quiet: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Make a table by a function of irt_dask, show it and write it."""
    import irt_dask as irt

    path = new_csv(out)
    if preset and (replicates or method or fay is not None):
        raise InputError(
            "--preset says all of --replicates, --method and --fay: give one or the other"
        )
    if bool(replicates) != bool(method):
        raise InputError("--replicates and --method belong together")
    design = None
    if preset:
        design = irt.Replicates.preset(preset)
    elif method:
        design = irt.Replicates(method, list(replicates), fay=fay)
    with warned(quiet):
        table: pd.DataFrame = getattr(irt, function)(file, what, replicates=design, **options)
    write_csv(table, path)
    if as_json:
        show({"rows": records(table)}, True)
        return
    # an error that is not known is shown as such
    shown = table[[c for c in table if c == "se" or table[c].notna().any()]].head(_MOST)
    more = f"\n(the first {_MOST} of {len(table)} rows)" if len(table) > _MOST else ""
    click.echo(f"{rows(records(shown))}{more}")


@click.command()
@_file
@click.option("--values", multiple=True, required=True, metavar="[NAME=]COLUMN",
              help="A column, or plausible values of one variable as a pattern: 'PV*MATH', or "
              "math='PV*MATH'. May be repeated.")  # fmt: skip
@click.option("--statistic", "statistics", multiple=True, default=("mean", "sd"), show_default=True,
              metavar="NAME", help="weight, mean, sd, p25 (any percentile), 'at least 400' (any "
              "score), correlation (of each pair of --values). May be repeated.")  # fmt: skip
@click.option("--gaps", multiple=True, metavar="COLUMN[=LEVEL]",
              help="Also differences between levels of a column of --by: each less LEVEL (default: "
              "the first). May be repeated.")  # fmt: skip
@_of_tables
def tabulate(file: str, values: tuple[str, ...], gaps: tuple[str, ...], **options: Any) -> None:
    """Make a table of groups from persons' values or plausible values in FILE.

    FILE is a CSV or Parquet file, or a folder of Parquet files, a row a person. Standard errors
    hold what replicate weights say of sampling and plausible values of imputation; without
    replicate weights they are not known. The columns are explained in 'irt-dask docs survey'.
    """
    wanted: dict[str, list[str]] = {}
    for text in values:
        name, sep, column = text.partition("=")
        wanted.setdefault(name, []).append(column if sep else text)
    compared = {name: level if sep else None
                for name, sep, level in (text.partition("=") for text in gaps)}  # fmt: skip
    _made("tabulate", file, wanted, gaps=compared, **options)


@click.command()
@_file
@click.argument("formula")
@_of_tables
def regress(file: str, formula: str, **options: Any) -> None:
    """Regress persons' values or plausible values in FILE on other columns.

    FORMULA is as in 'PV*MATH ~ gender + C(grade) * escs': a column or a pattern of plausible
    values, and terms; text is taken for categories. Errors are as in 'irt-dask tabulate'.
    """
    _made("regress", file, formula, **options)
