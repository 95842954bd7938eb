"""Commands for fewer questions: which to ask (choose), and what all would give (predict)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.cli.common import (
    cluster_option,
    json_option,
    quiet_option,
    rows,
    show,
    warned,
    workers,
)
from irt_dask.cli.data import columns_of, listed_names, trials_of
from irt_dask.cli.results import new_csv, records, write_csv
from irt_dask.cli.spoken import typed
from irt_dask.errors import InputError, listed, repeated
from irt_dask.store import Responses, open_responses

if TYPE_CHECKING:
    from irt_dask.banks.tables import ItemTable

#: Rows that are printed.
_MOST = 10
_COLUMNS = ("item", "selected", "probability", "stratum")


@click.command()
@click.argument("bank", type=click.Path())
@click.argument("n", type=click.IntRange(min=1))
@click.option("--out", type=click.Path(), required=True, metavar="QUESTIONS.csv",
              help="Table to write: a row an item of BANK, whether it was chosen, with which "
              "probability, in which stratum.")  # fmt: skip
@click.option("--method", type=click.Choice(["variance", "cluster", "random"]), default="random",
              show_default=True, help="A random sample, the only one for which 'irt-dask predict' "
              "has intervals that hold whatever the model; those that predict the total best; or "
              "one of each cluster of similar items.")  # fmt: skip
@click.option("--strata", type=click.Path(), metavar="TABLE",
              help="Blocks (topics, formats), of which each has its share of N: a .csv or .json "
              "with the columns item and stratum.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sample.")
@json_option
def choose(
    bank: str, n: int, out: str, method: str, strata: str | None, seed: int, as_json: bool
) -> None:
    """Choose N items of BANK to ask, from which the share right of all is predicted.

    BANK is a fit (.nc) or an item bank (.csv, .json), as 'irt-dask benchmark' and 'irt-dask
    calibrate' write them; of a fit of 'irt-dask bifactor' items are chosen by --method random.
    """
    import irt_dask as irt

    path, known = new_csv(out, bank, strata), _read_bank(bank)
    if n > known.sizes["items"]:
        raise InputError(f"N is {n}, and BANK has {known.sizes['items']} items")
    labels = _by_item(strata, "stratum", "words")
    chosen = irt.choose_items(known, n, method=method, strata=labels, seed=seed)
    table = pd.DataFrame({
        "item": chosen["item_id"].values.astype(str),
        "selected": chosen["item_selected"].values.astype(int),
        "probability": chosen["item_inclusion_probability"].values,
        "stratum": chosen["item_stratum"].values.astype(str),
    })  # fmt: skip
    write_csv(table, path)
    shown = ("method", "n_selected", "n_strata", "expected_total_sd")
    about = {k: chosen.attrs[k] for k in shown if k in chosen.attrs}
    if as_json:
        picked = table["item"][table["selected"] == 1].tolist()
        show({"out": out, **about, "selected": picked}, True)
        return
    show(about, False)
    click.echo(f"\nall items are in {out}; those to ask have 1 in its column selected")


@click.command()
@click.argument("file", type=click.Path())
@click.argument("bank", type=click.Path())
@click.option("--out", type=click.Path(), required=True, metavar="TOTALS.csv",
              help="Table to write, a row a person.")  # fmt: skip
@click.option("--questions", "inclusion_probability", type=click.Path(), metavar="QUESTIONS.csv",
              help="What 'irt-dask choose --method random' wrote: gives the estimate by design, "
              "whose intervals hold whatever the model.")  # fmt: skip
@click.option("--calibration", type=click.Path(), metavar="FILE",
              help="A table or store of persons who answered all items: how far the model's totals "
              "were off for them widens and corrects its intervals.")  # fmt: skip
@click.option("--item-weights", type=click.Path(), metavar="TABLE",
              help="Weights of the items in the total: a .csv or .json with the columns item and "
              "weight. Default: 1 each.")  # fmt: skip
@click.option("--column", "columns", multiple=True, metavar="ROLE=NAME",
              help="Name a column of the tables of answers: person=, item=, response=. Repeat as "
              "needed.")  # fmt: skip
@click.option("--trials", metavar="COLUMN|N", help="Several attempts of a person at an item, as "
              "in 'irt-dask benchmark' and as many: the column that names them, or the number of "
              "which each response is the share right.")  # fmt: skip
@click.option("--exclude", multiple=True, metavar="A,B", help="Items of the answers to pass over, "
              "such as those that 'irt-dask benchmark --exclude' left out of BANK. May be "
              "repeated, for names with commas.")  # fmt: skip
@click.option("--level", type=float, default=0.95, show_default=True, help="Of intervals.")
@cluster_option("none")
@json_option
@quiet_option
def predict(
    file: str, bank: str, out: str, inclusion_probability: str | None, calibration: str | None,
    item_weights: str | None, columns: tuple[str, ...], trials: str | None,
    exclude: tuple[str, ...], level: float, cluster: str, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Predict the share of all items of BANK that each person would get right.

    FILE has answers to some of them: a table (a row a person and a column an item, or a row an
    answer; CSV, JSON lines, Parquet) or a store. BANK may be a fit of 'irt-dask bifactor' too.
    Report total_design where there are --questions; total is the model's, for questions that were
    chosen. total_design may leave 0 to 1, since it would be biased if it were cut off; its interval
    stays inside.
    """
    import irt_dask as irt

    path = new_csv(out, file, bank, inclusion_probability, calibration, item_weights)
    known = _read_bank(bank)
    drawn = None if inclusion_probability is None else _drawn(inclusion_probability)
    weights = _by_item(item_weights, "weight", "numbers")
    _check_weights(weights, known, item_weights)
    with (
        tempfile.TemporaryDirectory(prefix="irt-dask-predict-") as scratch,
        warned(quiet),
        workers(cluster, quiet=quiet) as client,
    ):
        options: dict[str, Any] = {"client": client, "progress": False if quiet else None}
        table_as = {"columns": columns_of(columns), "trials": trials_of(trials)}
        _check_read(table_as, file, calibration)
        answers = _answers(file, Path(scratch) / "answers", table_as, options)
        others = None
        if calibration is not None:
            others = _answers(calibration, Path(scratch) / "others", table_as, options)
        answers, others = _without(listed_names(exclude), known, answers, others)
        found = irt.predict_total(
            answers, known, item_weights=weights, inclusion_probability=drawn,
            calibration=others, level=level, **options,
        )  # fmt: skip
    names = [str(name) for name in found.data_vars if str(name).startswith("person_total")]
    table = pd.DataFrame({
        "person": found["person_id"].values.astype(str),
        **{name.removeprefix("person_"): found[name].values for name in names},
    })  # fmt: skip
    write_csv(table, path)
    shown = ("n_questions", "level", "interval", "design", "n_drawn", "n_calibration",
             "design_share", "misfit_ratio")  # fmt: skip
    about = {k: found.attrs[k] for k in shown if k in found.attrs}
    about["interval"] = typed(about["interval"], click.get_current_context().command)
    if as_json:
        show({"out": out, **about, "persons": records(table)}, True)
        return
    show(about, False)
    click.echo(f"\n{rows(records(table.head(_MOST)), 3)}")
    click.echo(f"\nthe totals of {len(table)} person{'s' * (len(table) != 1)} are in {out}")


def _check_read(table_as: dict[str, Any], *sources: str | None) -> None:
    """Stop at options of tables where there is none."""
    given = [name for name, value in table_as.items() if value is not None]
    if given and all(Path(s).is_dir() for s in sources if s is not None):
        raise InputError(
            f"{'--column' if given[0] == 'columns' else '--trials'} is of tables, and "
            f"{listed([s for s in sources if s is not None])} is a store, which has been read"
        )


def _answers(
    source: str, store: Path, table_as: dict[str, Any], options: dict[str, Any]
) -> Responses:
    """Responses of a store, or of a table, which is read into a store first."""
    import irt_dask as irt

    if Path(source).is_dir():
        return open_responses(source)
    return irt.ingest(source, store, **table_as, **options)


def _without(
    names: list[str], bank: xr.Dataset, answers: Responses, others: Responses | None
) -> tuple[Responses, Responses | None]:
    """The answers, and those of others, to all items but some; the others are those of the bank."""
    both = [r for r in (answers, others) if r is not None]
    there = {i for r in both for i in r.item_id}
    if unknown := [name for name in names if name not in there]:
        raise InputError(f"--exclude {', '.join(unknown)}: the answers have no such items")
    kept = [[i for i in r.item_id if i not in names] for r in both]
    if not all(kept):
        raise InputError("--exclude leaves none of the items")
    known = {*bank["item_id"].values.astype(str).tolist()}
    if lost := sorted({i for own in kept for i in own} - known):
        raise InputError(
            f"there are answers to {len(lost)} item(s) that BANK does not have: "
            f"{listed(lost, 10)}; if it left them out, pass over them: "
            f"--exclude {','.join(lost[:10])}"
        )
    left = [r.select(items=i) if names else r for r, i in zip(both, kept, strict=True)]
    return left[0], left[1] if others is not None else None


def _read_bank(path: str) -> xr.Dataset:
    """A bank whose questions are those that are asked now, of a board that has grown too."""
    from irt_dask.banks.saved import read_bank
    from irt_dask.workflow.board_waves import AT, questions_now

    bank = read_bank(path)
    ids = set(bank["item_id"].values.astype(str).tolist())
    versions = [i for i in ids if i.rpartition(AT)[0] in ids and i.rpartition(AT)[2].isdecimal()]
    if versions and "item_origin" not in bank:
        raise InputError(
            f"{path} has a question and what became of it when it drifted ({min(versions)}), and "
            f"does not say which is asked now: give the items.nc that was written with it"
        )
    return questions_now(bank)


def _check_weights(weights: dict[str, float] | None, bank: xr.Dataset, path: str | None) -> None:
    """Stop at a table of weights that lacks items: nobody would say what these count."""
    ids = bank["item_id"].values.astype(str).tolist()
    if weights is not None and (lacking := [i for i in ids if i not in weights]):
        raise InputError(
            f"{path} has no weight for {len(lacking)} item(s) of the bank: {listed(lacking, 10)}; "
            f"give each one, 0 for those that do not count"
        )


def _read(path: str, *columns: str) -> ItemTable:
    """A table of items, of which each stands once."""
    from irt_dask.banks.tables import read_table  # kernels come with banks

    table = read_table(path, "table of items")
    table.check_columns("item", *columns)
    table.check_items()
    if twice := repeated(map(str, table.items)):
        raise InputError(f"the table of items {path} has the item {twice[0]!r} twice")
    return table


def _by_item(path: str | None, column: str, kind: str) -> Any:
    """A column of words or numbers by item; None without a table."""
    if path is None:
        return None
    table = _read(path, column)
    return dict(zip(map(str, table.items), getattr(table, kind)(column), strict=True))


def _drawn(path: str) -> xr.Dataset:
    """The probabilities and strata of a table of 'irt-dask choose'."""
    from irt_dask.banks.tables import read_table

    if "probability" not in read_table(path, "table of items"):
        raise InputError(
            f"--questions {path} has no column probability: it takes what 'irt-dask choose "
            f"--method random' wrote. Questions that were chosen otherwise, such as the anchors of "
            f"'irt-dask benchmark', have no estimate by design: leave --questions out, and give "
            f"--calibration"
        )
    table = _read(path, *_COLUMNS)
    probability = table.numbers("probability")
    if (bad := np.flatnonzero(probability <= 0.0)).size:
        raise table.fault(
            int(bad[0]), "probability", f"it is {probability[bad[0]]:g}: an estimate by design "
            f"needs a random sample, in which it is above 0 for every item (irt-dask choose "
            f"--method random); leave --questions out for the model's estimate alone",
        )  # fmt: skip
    of_items = {"item_inclusion_probability": probability, "item_stratum": table.words("stratum")}
    return xr.Dataset(
        {name: ("items", np.asarray(values)) for name, values in of_items.items()},
        coords={"item_id": ("items", np.array(table.items, dtype=str))},
    )
