"""Commands that make something of an item bank alone: convert, score-table."""

from __future__ import annotations

from typing import Any

import click
import pandas as pd

from irt_dask.cli.common import json_option, show, warned
from irt_dask.cli.examine import ability_of, shown
from irt_dask.cli.results import new_csv, records, refuse_inputs, write_csv
from irt_dask.errors import InputError
from irt_dask.variables import identifier

#: Tables of other programs that are read, and those that are written.
_READ, _WRITTEN = ("mirt", "tam", "oplm", "naep"), ("mirt",)


@click.command()
@click.argument("table", type=click.Path())
@click.option("--from", "read", type=click.Choice(_READ),
              help="Whose convention TABLE is in: R mirt, R TAM, OPLM, or NAEP and Muraki "
              "(D = 1.7). Default: a bank of irt_dask, or a fit that was kept (.nc).",
              )  # fmt: skip
@click.option("--to", "write", type=click.Choice(_WRITTEN),
              help="In whose convention OUT is written (default: irt_dask's).")  # fmt: skip
@click.option("--ability", callback=ability_of, metavar="MEAN,SD",
              help="Of ability on the scale of TABLE: items are put on the scale on which it is "
              "0,1 (default: 0,1, for mirt what GroupPars says).")  # fmt: skip
@click.option("--out", type=click.Path(), required=True, metavar="OUT",
              help="Item bank to write (.csv, .json).")  # fmt: skip
@json_option
def convert(
    table: str, read: str | None, write: str | None, ability: tuple[float, float] | None,
    out: str, as_json: bool,
) -> None:  # fmt: skip
    """Make an item bank of TABLE, in the convention of one program, in that of another.

    What the columns of each are: 'irt-dask docs data', Tables of other programs. A convention is
    never guessed from how a table looks.
    """
    import irt_dask as irt
    from irt_dask.banks import check_new_path
    from irt_dask.banks.saved import read_bank

    refuse_inputs(check_new_path(out), [table])
    if read is None and ability is not None:
        raise InputError("--ability is for tables of other programs: say --from as well")
    with warned():
        if read is None:
            items = read_bank(table)
        else:
            items = irt.read_items(table, convention=read, ability=ability)
        irt.write_items(items, out, convention=write)
    show({"bank": out, "items": items.sizes["items"], "model": items.attrs["model"]}, as_json)


@click.command("score-table")
@click.argument("bank", type=click.Path())
@click.option("--method", type=click.Choice(["eap", "tcc", "wle"]), default="eap",
              show_default=True, help="Mean of ability given the score (eap), the ability at which "
              "the score is expected (tcc), or Warm's estimate (wle: items of one slope).",
              )  # fmt: skip
@click.option("--ability", callback=ability_of, metavar="MEAN,SD",
              help="Normal distribution of ability, of eap and of the share of persons with each "
              "score (default: 0,1).")  # fmt: skip
@click.option("--items", "form", type=click.Path(), metavar="FORM.csv",
              help="A table with a column item: the items of the form (default: all of BANK).",
              )  # fmt: skip
@click.option("--out", type=click.Path(), metavar="TABLE.csv", help="Write the table.")
@json_option
def score_table(
    bank: str, method: str, ability: tuple[float, float] | None, form: str | None,
    out: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Make the table that converts raw scores on the items of BANK to abilities.

    For persons who answered all of the items. BANK is an item bank (.csv, .json) or a fit that was
    kept (.nc).
    """
    import irt_dask as irt
    from irt_dask.banks.saved import read_bank

    path, items = new_csv(out, bank, form), read_bank(bank)
    with warned():
        found = irt.score_table(
            items if form is None else items.isel(items=_places(items, form, bank)),
            method=method, ability=ability,
        )  # fmt: skip
    names = [str(n) for n in found.data_vars]
    frame = pd.DataFrame({
        "score": found["score"].values,
        **{name.removeprefix("score_"): found[name].values for name in names},
    })  # fmt: skip
    write_csv(frame, path)
    about = {k: found.attrs[k] for k in ("method", "n_items", "ability_mean", "ability_sd")}
    if as_json:
        show({**about, "scores": records(frame)}, True)
        return
    show(about, False)
    shown(frame, tuple(frame.columns), "Scores")


def _places(items: Any, form: str, bank: str) -> list[int]:
    """Where the items of a form stand in a bank."""
    from irt_dask.banks.tables import read_table
    from irt_dask.errors import listed, repeated
    from irt_dask.items.parameters import bank_item_ids

    table = read_table(form, "table of a form")
    table.check_columns("item")
    table.check_items()
    asked = [identifier(item) for item in table.items]
    place = {item: k for k, item in enumerate(bank_item_ids(items))}
    if twice := repeated(asked):
        raise InputError(f"{form} has the item {twice[0]!r} twice")
    if lost := [item for item in asked if item not in place]:
        raise InputError(f"{form}: {bank} has no item {listed(lost, 10)}")
    return [place[item] for item in asked]
