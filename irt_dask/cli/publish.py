"""Commands that make published tables: tabulate, regress, trend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pandas as pd

from irt_dask.cli.common import json_option, quiet_option, rows, show, warned
from irt_dask.cli.results import new_table, records, write_table
from irt_dask.errors import InputError

if TYPE_CHECKING:
    from irt_dask.survey.replicates import Replicates

#: Rows that are printed; the file and --json have all.
_MOST = 60


_file = click.argument("file", type=click.Path())
_level = click.option("--level", type=float, default=0.95, show_default=True,
                      help="Level of intervals.")  # fmt: skip
_out = click.option("--out", type=click.Path(), metavar="TABLE.csv",
                    help="Write all rows, as CSV or as TABLE.parquet.")  # fmt: skip
_report = click.option("--report", type=click.Path(), metavar="PAGE.html",
                       help="Write a page with all rows and pictures of groups.")  # fmt: skip
_OPTIONS = (
    click.option("--by", multiple=True, metavar="COLUMN",
                 help="Groups are the combinations of these columns. May be repeated."),
    click.option("--join", type=click.Path(), metavar="TABLE", help="A second table of the same "
                 "persons (countries, replicate weights), joined to FILE."),
    click.option("--on", default="person_id", show_default=True, metavar="COLUMN[=COLUMN]",
                 help="Column of both tables by which they are joined, or its names in FILE and "
                 "TABLE."),
    click.option("--delimiter", metavar="SIGN", help="What separates values in CSV files, ';' for "
                 "example (default: a comma)."),
    click.option("--decimal", type=click.Choice([".", ","]), help="The sign before the fraction of "
                 "numbers in CSV files (default: a point)."),
    click.option("--weight", metavar="COLUMN", help="Weights of the full sample (default: those of "
                 "the preset, or 1 for all)."),
    click.option("--preset", metavar="SURVEY", help="Replicate weights and their columns as in "
                 "pisa, pisa_2012, timss, timss_2011, naep."),
    click.option("--replicates", multiple=True, metavar="COLUMN", help="Columns of replicate "
                 "weights, as a pattern or one by one; with --method."),
    click.option("--units", metavar="COLUMN", help="Sampling units (schools, villages), from which "
                 "replicate weights are made that leave out one at a time."),
    click.option("--strata", metavar="COLUMN", help="With --units: the strata that they were "
                 "drawn within."),
    click.option("--zone", metavar="COLUMN", help="Zones, pairs of sampling units, from which "
                 "replicate weights are made; with --unit and --method."),
    click.option("--unit", metavar="COLUMN", help="With --zone: which of its two units a person "
                 "is of."),
    click.option("--method", help="With --replicates: brr, fay, jk1, jkn, jk2 or jk2_both; with "
                 "--zone: brr, fay, jk2 or jk2_both. Of --units it is jk1, and jkn with "
                 "--strata."),
    click.option("--fay", type=float, metavar="K", help="Fay's factor, with --method fay."),
    click.option("--scale", metavar="C[,C...]", help="With --replicates: what squares of a "
                 "replicate's deviation are multiplied with, one number or one a replicate; "
                 "--method jkn needs it."),
    _level,
    _out,
    _report,
    json_option,
    quiet_option,
)  # fmt: skip


def _of_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Options of every command here."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _made(
    function: str, file: str, what: Any, *, join: str | None, on: str, out: str | None,
    report: str | None, as_json: bool, quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Make a table by a function of irt_dask, show it and write it."""
    import irt_dask as irt

    path, page = new_table(out, file, join), _new_page(report)
    design = _design(options)
    first, sep, second = on.partition("=")
    with warned(quiet):
        table: pd.DataFrame = getattr(irt, function)(
            file, what, replicates=design, join=join, on=(first, second) if sep else on,
            progress=False if quiet else None, **options,
        )  # fmt: skip
    _show(table, path, page, Path(file).name, as_json)
    if design is None and not as_json:
        click.echo(
            "\nErrors of sampling are not known without sampling units, --units COLUMN (schools) or"
            "\n--zone, --unit and --method (pairs of them), or replicate weights, --replicates and"
            "\n--method or --preset"
        )


def _design(options: dict[str, Any]) -> Replicates | None:
    """The replicate weights that options name, which are taken from among them."""
    from irt_dask.survey.designs import Design

    said = {field.name: options.pop(field.name) for field in fields(Design)}
    said["scale"] = _factors(said["scale"])
    return Design(**said).replicate_weights(lambda name: f"--{name}")


def _factors(text: str | None) -> float | list[float] | None:
    """What --scale says: a number for all replicates, or one for each."""
    if text is None:
        return None
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--scale {text!r}: give a number, or one a replicate with commas between them"
        ) from None
    return found if len(found) > 1 else found[0]


def _new_page(path: str | None) -> Path | None:
    if path is None:
        return None
    from irt_dask.report.published import new_page

    return new_page(path)


def _show(
    table: pd.DataFrame, path: Path | None, page: Path | None, title: str, as_json: bool
) -> None:  # fmt: skip
    """Write a table and its page, and show it."""
    write_table(table, path)
    if page is not None:
        from irt_dask.report.published import write_tables

        write_tables(page, {title: table}, title=title)
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
    hold what sampling units (--units school) or replicate weights say of sampling, and plausible
    values of imputation; without either they are not known. The columns are explained in
    'irt-dask docs survey'.
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
@click.option("--family", type=click.Choice(["linear", "logistic"]), default="linear",
              show_default=True, help="Logistic: of values 0 and 1, or cut as in "
              "'PV*MATH >= 420 ~ gender'.")  # fmt: skip
@_of_tables
def regress(file: str, formula: str, **options: Any) -> None:
    """Regress persons' values or plausible values in FILE on other columns.

    FORMULA is as in 'PV*MATH ~ gender + C(grade) * escs': a column or a pattern of plausible
    values, and terms; text is taken for categories. Errors are as in 'irt-dask tabulate'.
    """
    _made("regress", file, formula, **options)


@click.command()
@click.argument("earlier", type=click.Path())
@click.argument("later", type=click.Path())
@click.option("--linking-error", multiple=True, required=True, metavar="[NAME=]NUMBER",
              help="Standard error of the shift between the scales; of a variable or a statistic, "
              "as in math=3.5 or 'at least 420=0.01' (may be repeated); or a CSV file with the "
              "column linking_error and those on which it depends; or a link that 'irt-dask link "
              "--error jackknife --link LINK.nc' kept ([VARIABLE=]LINK.nc). 0: there is "
              "none.")  # fmt: skip
@click.option("--scale", metavar="MEAN,SD",
              help="What abilities 0 and 1 of a link's scale are in the tables, as in "
              "500,100.")  # fmt: skip
@_level
@_out
@_report
@json_option
@quiet_option
def trend(
    earlier: str, later: str, linking_error: tuple[str, ...], scale: str | None, level: float,
    out: str | None, report: str | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Changes between two tables of 'irt-dask tabulate', LATER less EARLIER.

    EARLIER and LATER are files that 'irt-dask tabulate --out' wrote. The linking error enters
    the errors of means and percentiles once; it must be said, with 0 if the values hold it already
    or there is none.
    """
    import irt_dask as irt

    path, page = new_table(out, earlier, later), _new_page(report)
    with warned(quiet):
        table = irt.trend(
            earlier, later, linking_error=_linking(linking_error), scale=_scale(scale), level=level
        )
    title = f"Changes from {Path(earlier).name} to {Path(later).name}"
    _show(table, path, page, title, as_json)


def _scale(text: str | None) -> tuple[float, float] | None:
    """What --scale says."""
    if text is None:
        return None
    try:
        mean, sd = map(float, text.split(","))
    except ValueError:
        raise InputError(f"--scale {text!r}: give two numbers, as in 500,100") from None
    return mean, sd


def _linking(texts: tuple[str, ...]) -> Any:
    """What --linking-error says: a number, numbers by name, a table, or links."""
    if len(texts) == 1 and texts[0].endswith(".csv"):
        from irt_dask.survey.tables import written

        return written(texts[0])
    parts = [text.rpartition("=") for text in texts]
    numbers: dict[str, Any] = {}
    for name, _, number in parts:
        if name in numbers or (not name and len(texts) > 1):
            raise InputError(
                "--linking-error is given more than once: say of what, each once, as in math=3.5"
            )
        numbers[name] = _number_or_link(number)
    return numbers.get("", numbers)


def _number_or_link(text: str) -> Any:
    """One number, or the link that a file holds."""
    if text.endswith(".nc"):
        from irt_dask.banks.saved import read_bank

        return read_bank(text)
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"--linking-error {text!r} is neither a number nor a file that ends in .csv or .nc"
        ) from None
