"""Commands about two calibrations: link puts them on one scale, lord compares their items."""

from __future__ import annotations

from typing import Any

import click
import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.cli.common import json_option, show, warned
from irt_dask.cli.examine import shown
from irt_dask.cli.results import (
    new_csv,
    new_result,
    records,
    write_csv,
    write_result_or_csv,
)
from irt_dask.store.documents import by_item

#: What is said of a link, where it has it.
_SAID = (
    "method", "A", "A_se", "B", "B_se", "AB_covariance", "error", "error_of", "n_units",
    "linking_error", "linking_error_at", "criterion", "n_common", "n_used", "robust", "dropped",
)  # fmt: skip


@click.command()
@click.argument("bank_a", type=click.Path())
@click.argument("bank_b", type=click.Path())
@click.option("--method", default="haebara", show_default=True,
              type=click.Choice(["haebara", "stocking-lord", "mean-sigma", "mean-mean"]),
              help="Item curves (haebara), the test curve (stocking-lord), or moments of the "
              "parameters of the common items.")  # fmt: skip
@click.option("--robust", type=click.Choice(["bisquare"]),
              help="Common items that have drifted count less, or not at all.")  # fmt: skip
@click.option("--error", type=click.Choice(["delta", "jackknife"]),
              help="Standard errors of A and B: those that the errors of the items make (delta; "
              "of fits, .nc, or banks with their covariance), or of a sample of items (jackknife: "
              "the linking error of a trend).")  # fmt: skip
@click.option("--item-blocks", type=click.Path(), metavar="TABLE",
              help="Testlets, which the jackknife leaves out one at a time: a .csv or .json with "
              "the columns item and block. Default: it leaves out items.")  # fmt: skip
@click.option("--at", type=float, default=0.0, show_default=True, metavar="ABILITY",
              help="Ability on the scale of BANK_B where linking_error is told.")  # fmt: skip
@click.option("--out", type=click.Path(), required=True, metavar="BANK",
              help="Item bank to write (.csv, .json): the items of BANK_B on the scale of BANK_A.",
              )  # fmt: skip
@click.option("--link", "kept", type=click.Path(), metavar="LINK.nc",
              help="Keep the link and its errors: 'irt-dask trend --linking-error' and "
              "'irt-dask score --linking' take it.")  # fmt: skip
@click.option("--common", type=click.Path(), metavar="COMMON.csv",
              help="Write the common items, with both parameters and how far their curves are "
              "apart after the link.")  # fmt: skip
@json_option
def link(
    bank_a: str, bank_b: str, method: str, robust: str | None, error: str | None,
    item_blocks: str | None, at: float, out: str, kept: str | None, common: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Put the items of BANK_B on the scale of BANK_A, by the items that both have.

    Abilities become A theta + B. Common items whose curves stay apart (rmsd above 0.12, say) have
    drifted: take them out of one of the banks and link again, or use --robust bisquare. Flagged
    items do not link; a warning names them.
    """
    import irt_dask as irt
    from irt_dask.banks import check_new_path
    from irt_dask.banks.saved import check_new_result, read_bank, write_result

    check_new_path(out)
    path, result = new_csv(common), None if kept is None else check_new_result(kept)
    one, two = read_bank(bank_a), read_bank(bank_b)
    blocks = _blocks(item_blocks)
    with warned():
        linked = irt.link(
            one, two, method=method, robust=robust, error=error, item_blocks=blocks, at=at
        )
    irt.write_items(linked, out)
    if result is not None:
        write_result(linked, result)
    both = _common(one, linked)
    write_csv(both, path)
    about = {"items": out, **{k: linked.attrs[k] for k in _SAID if k in linked.attrs}}
    if as_json:
        show({**about, "common_items": records(both)}, True)
        return
    if about["criterion"] != about["criterion"]:  # moments have none: null in JSON
        del about["criterion"]
    show(about, False)
    shown(both, tuple(both.columns), "Common items, the farthest apart first")


@click.command()
@click.argument("bank_a", type=click.Path())
@click.argument("bank_b", type=click.Path())
@click.option("--out", type=click.Path(), metavar="TESTS.csv|.nc",
              help="Write the tests, a row an item (steps of items of more than two categories a "
              "row each); or as TESTS.nc.")  # fmt: skip
@json_option
def lord(bank_a: str, bank_b: str, out: str | None, as_json: bool) -> None:
    """Compare the items of two separate calibrations by Wald tests (Lord's chi-square).

    BANK_A (the reference) and BANK_B (the focal group) are banks or fits that were kept, with
    standard errors, from different persons and on one scale: link them first. Differences are
    BANK_B less BANK_A; chi-squares have 1 degree of freedom each. Printed are items with a p-value
    below .05 divided by the number of tests. 'irt-dask dif' needs neither a link nor two
    calibrations.
    """
    import irt_dask as irt
    from irt_dask.banks.saved import read_bank
    from irt_dask.report.flags import LEVEL

    path = new_result(out, bank_a, bank_b)
    one, two = read_bank(bank_a), read_bank(bank_b)
    with warned():
        tests = irt.lord_dif(one, two)
    frame = _tests(tests)
    write_result_or_csv(tests, frame, path)
    p = frame[[c for c in frame if c.endswith("p_value")]]
    n = int(p.notna().to_numpy().sum())
    about = {"items": tests.sizes["items"], "tests": n}
    if as_json:
        show({**about, "items_tested": records(frame)}, True)
        return
    show(about, False)
    found = frame[(p < LEVEL / max(n, 1)).any(axis=1)]
    shown(found, tuple(frame.columns), "Items that differ")


def _tests(tests: xr.Dataset) -> pd.DataFrame:
    """A row for each item, or for each step of an item of more than two categories."""
    frame = by_item(tests)
    of_steps = [n for n in tests.data_vars if tests[n].dims == ("items", "steps")]
    if not of_steps:
        return frame
    rows = [frame.assign(step=0)]
    for k in range(tests.sizes["steps"]):
        of = {str(n).removeprefix("item_"): tests[n].values[:, k] for n in of_steps}
        step = pd.DataFrame({"item": frame["item"], "step": k + 1, **of})
        rows.append(step[np.isfinite(step["step_difficulty_difference"])])
    both = pd.concat(rows, ignore_index=True)
    place = {item: j for j, item in enumerate(frame["item"])}
    order = np.lexsort((both["step"], both["item"].map(place)))
    return both.iloc[order].reset_index(drop=True)


def _blocks(path: str | None) -> Any:
    """Testlets by item of a table."""
    if path is None:
        return None
    from irt_dask.banks.item_tables import read_item_table
    from irt_dask.errors import InputError

    found = read_item_table(path)
    if "item_blocks" not in found:
        raise InputError(f"the item table {path} has no column block: it says each item's testlet")
    return found["item_blocks"]


def _common(one: xr.Dataset, linked: xr.Dataset) -> pd.DataFrame:
    """Both parameters of the common items, those farthest apart first."""
    names = ("discrimination", "difficulty")
    own = [n for n in ("link_rmsd", "link_weight") if f"item_{n}" in linked]
    after = by_item(linked)[["item", *names, *own]]
    before = by_item(one)[["item", *(n for n in names if f"item_{n}" in one)]]
    both = before.merge(after, on="item", suffixes=("_a", "_linked")).rename(
        columns={"link_rmsd": "rmsd", "link_weight": "weight"}
    )
    return both.sort_values("rmsd", ascending=False, kind="stable")
