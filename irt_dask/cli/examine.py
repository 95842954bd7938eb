"""Commands that look at calibrated items: fit, dif, information."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.cli.common import (
    cluster_option,
    dichotomise_option,
    items_option,
    json_option,
    quiet_option,
    responses_and_bank,
    rows,
    show,
    warned,
    weights_option,
    workers,
)
from irt_dask.cli.results import (
    new_csv,
    new_result,
    records,
    write_csv,
    write_persons,
    write_result_or_csv,
)
from irt_dask.cli.spoken import list_of
from irt_dask.errors import InputError
from irt_dask.store.documents import by_item

#: Rows that are printed; files and --json have all.
_MOST = 40

_bank = click.argument("bank", type=click.Path())
_store = click.argument("store", type=click.Path())


def shown(frame: pd.DataFrame, columns: tuple[str, ...], title: str) -> None:
    """Print the first rows of a table, some of its columns, under a title."""
    if len(frame) == 0:
        return
    more = f" (the first {_MOST} of {len(frame)})" if len(frame) > _MOST else ""
    click.echo(f"\n{title}{more}:\n\n{rows(records(frame.head(_MOST), columns))}")


# --- fit ------------------------------------------------------------------------------------------


def ability_of(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[float, float] | None:
    """Mean and SD of an option that gives both."""
    if text is None:
        return None
    try:
        mean, sd = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--ability {text!r}: give mean and SD, as in 0,1") from None
    return mean, sd


@click.command()
@_store
@_bank
@click.option("--out", type=click.Path(), metavar="ITEMS.csv|.nc",
              help="Write the statistics of all items, a row an item; or as ITEMS.nc, which "
              "'irt-dask report --results' shows.")  # fmt: skip
@click.option("--persons", type=click.Path(), metavar="PERSONS.csv|FOLDER",
              help="Write infit, outfit and l_z* of every person: a table for spreadsheets or R, "
              "or a folder with one Parquet file per block.")  # fmt: skip
@click.option("--fitted/--not-fitted", default=True, show_default=True,
              help="Whether the items of BANK were estimated from these very responses, which "
              "takes degrees of freedom from their chi-squares.")  # fmt: skip
@click.option("--ability", callback=ability_of, metavar="MEAN,SD",
              help="Normal distribution of the persons' abilities on the scale of BANK (default: "
              "the likeliest).")  # fmt: skip
@click.option("--groups/--no-groups", default=None,
              help="Whether the fit of items takes each group of persons from a normal "
              "distribution of its own (default: if the store has groups, and --ability is not "
              "given). The fit of persons takes everybody from one.")  # fmt: skip
@items_option
@weights_option
@dichotomise_option
@cluster_option()
@json_option
@quiet_option
def fit(
    store: str, bank: str, out: str | None, persons: str | None, fitted: bool,
    ability: tuple[float, float] | None, groups: bool | None, items: str, weights: str,
    dichotomise: int | dict[str, int] | None, cluster: str, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Say which items and how many persons of STORE do not fit the items of BANK.

    BANK is an item bank (.csv, .json) or a fit that was kept (.nc). Items: infit and outfit mean
    squares (1 under the model), S-X2 where everybody answered everything, else a chi-square of
    predicted responses. Printed are those with a mean square outside 0.7 to 1.3 or a p-value below
    .05 divided by the number of items. Persons: the share whose pattern of responses is unlikely
    (l_z*). Cut-offs are conventions: see 'irt-dask docs fit'.
    """
    import irt_dask as irt
    from irt_dask.report.flags import misfits
    from irt_dask.workflow.fit_tests import MOST_PERSONS

    path = new_result(out, bank)
    if persons is not None and persons.endswith(".csv"):
        new_csv(persons)  # a mistake in it shows before the work
    r, known = responses_and_bank(
        store, bank, items=items, weights=weights, quiet=quiet, dichotomise=dichotomise
    )
    options: dict[str, Any] = {"ability": ability, "progress": False if quiet else None}
    with warned(quiet), workers(cluster, r, quiet=quiet) as client:
        tests = irt.item_fit(r, known, fitted=fitted, groups=groups, client=client, **options)
        of_persons = None
        if persons is not None or r.n_persons <= MOST_PERSONS:
            of_persons = _of_persons(r, known, persons, client=client, **options)
    frame = by_item(tests)
    write_result_or_csv(tests, frame, path)
    misfit = frame[misfits(tests)]
    about: dict[str, Any] = {
        "items": len(frame),
        "items_that_do_not_fit": len(misfit),
        "s_x2": tests.attrs["s_x2"],
        **{k: tests.attrs[k] for k in ("ability_mean", "ability_sd", "n_persons")},
    }
    if of_persons is None:
        about["persons"] = f"not looked at: more than {MOST_PERSONS}; give --persons"
    else:
        names = ("n_lz", "share_below_5", "share_below_1")
        about |= {f"persons_{k}": of_persons.attrs[k] for k in names}
    if as_json:
        show({**about, "statistics": records(frame)}, True)
        return
    show(about, False)
    test = "sx2" if "sx2_p_value" in frame else "chi2"
    columns = ("item", "infit", "outfit", test, f"{test}_df", f"{test}_p_value", "n_responses")
    shown(misfit, columns, "Items that do not fit")


def _of_persons(r: Any, known: xr.Dataset, to: str | None, **options: Any) -> xr.Dataset:
    """Fit of persons, who are written to a table or a folder, if one is given."""
    import irt_dask as irt

    if to is None or not to.endswith(".csv"):
        return irt.person_fit(r, known, store=to, **options)
    path = new_csv(to)
    assert path is not None
    with tempfile.TemporaryDirectory(dir=path.absolute().parent) as folder:
        found = irt.person_fit(r, known, store=Path(folder) / "persons", **options)
        write_persons(Path(folder) / "persons", path)
    return found


# --- dif ------------------------------------------------------------------------------------------


@click.command()
@_store
@_bank
@click.option("--by", metavar="COLUMN", help="Covariate of the persons whose labels, or whole "
              "numbers, are the groups (default: their groups).")  # fmt: skip
@click.option("--reference", metavar="GROUP", required=True,
              help="Group that the others are compared with.")  # fmt: skip
@click.option("--focal", metavar="GROUP", multiple=True,
              help="Group that may be favoured or disadvantaged. Repeat it for several, each "
              "compared with the reference and all tested together (default: all others).",
              )  # fmt: skip
@click.option("--out", type=click.Path(), metavar="DIF.csv|.nc",
              help="Write the tests, a row for each item and focal group; or as DIF.nc, which "
              "'irt-dask report --results' shows.")  # fmt: skip
@click.option("--anchors", default="all", show_default=True, metavar="A,B",
              help="Items that are taken to be the same in all groups: 'all', 'iterate' (those "
              "that differ are left out, and the rest looked at again), or names.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True,
              help="Of the persons who are simulated where a group is small.")  # fmt: skip
@items_option
@weights_option
@dichotomise_option
@cluster_option()
@json_option
@quiet_option
def dif(
    store: str, bank: str, by: str | None, reference: str, focal: tuple[str, ...],
    out: str | None, anchors: str, seed: int, items: str, weights: str,
    dichotomise: int | dict[str, int] | None, cluster: str, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Test the items of BANK for differential functioning between groups of persons of STORE.

    Does an item favour persons of one group over equally able persons of another? Each group has
    its own normal distribution of ability, so a difference in ability alone is no DIF. Printed are
    items of the ETS classes B and C, and those with a p-value below .05 divided by the number of
    items; shift is in logits, positive where the item is easier for the focal group. With several
    focal groups omnibus says whether an item has one curve in all groups. Errors are as if persons
    were drawn one by one, whatever schools they are from.
    """
    import irt_dask as irt
    from irt_dask.report.flags import LEVEL
    from irt_dask.workflow.fit_tests import dif_table

    path = new_result(out, bank)
    r, known = responses_and_bank(
        store, bank, items=items, weights=weights, quiet=quiet, dichotomise=dichotomise
    )
    r = r if by is None else r.select(groups=by)
    with warned(quiet), workers(cluster, r, quiet=quiet) as client:
        tests = irt.dif(
            r, known, reference=reference, focal=focal or None, seed=seed, client=client,
            anchors=anchors if anchors in ("all", "iterate") else list_of(anchors),
            progress=False if quiet else None,
        )  # fmt: skip
    everything, groups, known_of = dif_table(tests), _by_group(tests), tests.attrs
    write_result_or_csv(tests, everything, path)
    about = {"reference": reference, "n_reference": tests.attrs["n_reference"],
             "reference_ability_mean": known_of["ability_mean_reference"],
             "reference_ability_sd": known_of["ability_sd_reference"],
             "items": tests.sizes["items"]}  # fmt: skip
    about |= {k: v for k, v in known_of.items() if k in ("weight_kind", "mean_weight")}
    if as_json:
        show({**about, "groups": groups, "tests": records(everything)}, True)
        return
    show(about, False)
    click.echo(f"\nGroups, abilities on the scale of {bank}, as that of the reference above:\n\n"
               f"{rows(groups)}")  # fmt: skip
    looked_at = ["uniform", "nonuniform", *(["omnibus"] if len(groups) > 1 else [])]
    low = everything[[f"{t}_p_value" for t in looked_at]].min(axis=1)
    found = everything["class"].isin(["B", "C"]) | (low < LEVEL / about["items"])
    columns = ("item", "focal", "class", "shift", "shift_se", "delta", "uniform_p_value", "slope",
               *(f"{t}_p_value" for t in looked_at[1:]))  # fmt: skip
    shown(everything[found], columns, "Items that may favour a group")


def _by_group(tests: xr.Dataset) -> list[dict[str, Any]]:
    """A row for each focal group."""
    groups = []
    for label in tests["focal"].values:
        of_one = tests.sel(focal=label)
        classes = of_one["item_dif_class"].values.astype(str)
        names = {"n": "n_persons", "ability_mean": "ability_mean", "ability_sd": "ability_sd"}
        groups.append({
            "focal": str(label),
            **{k: of_one[f"focal_{name}"].item() for k, name in names.items()},
            "anchors": tests.attrs["n_anchors"],
            **{f"class_{c}": int((classes == c).sum()) for c in "ABC"},
            "untested": int((classes == "").sum()),
        })  # fmt: skip
    return groups


# --- information ----------------------------------------------------------------------------------


@click.command()
@_bank
@click.option("--from", "low", type=float, default=-4.0, show_default=True,
              help="Lowest ability.")  # fmt: skip
@click.option("--to", "high", type=float, default=4.0, show_default=True, help="Highest ability.")
@click.option("--points", type=click.IntRange(min=2), default=81, show_default=True,
              help="Abilities, evenly spaced.")  # fmt: skip
@click.option("--out", type=click.Path(), metavar="TEST.csv",
              help="Write the test's information and standard error, a row an ability.",
              )  # fmt: skip
@click.option("--items", "each", type=click.Path(), metavar="ITEMS.csv",
              help="Write the information of each item, a row for each item and ability.",
              )  # fmt: skip
@click.option("--plot", type=click.Path(), metavar="FILE",
              help="Draw the test's information and standard error (.png, .svg or .pdf).",
              )  # fmt: skip
@json_option
def information(
    bank: str, low: float, high: float, points: int, out: str | None, each: str | None,
    plot: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Tell how precisely the items of BANK measure, by ability, before anybody answers.

    BANK is an item bank (.csv, .json) or a fit that was kept (.nc). The standard error of ability
    is one over the root of the test information.
    """
    import irt_dask as irt
    from irt_dask.banks.saved import read_bank

    if not low < high:
        raise InputError(f"--from {low:g} --to {high:g}: the first must be below the second")
    test_path, items_path, picture = new_csv(out), new_csv(each), _new_picture(plot)
    with warned():
        found = irt.information(read_bank(bank), ability=np.linspace(low, high, points))
    ability, of_items = found["ability"].values, found["item_information"].values
    test = pd.DataFrame({
        "ability": ability, "information": found["test_information"].values,
        "se": found["ability_se"].values,
    })  # fmt: skip
    write_csv(test, test_path)
    ids = found["item_id"].values.astype(str)
    if items_path is not None:
        write_csv(_long(ids, ability, of_items), items_path)
    if picture is not None:
        figure: Any = irt.plot.information(found).figure
        figure.savefig(picture)
    at = ability[of_items.argmax(axis=1)]
    peaks = pd.DataFrame({
        "item": ids, "most_information": of_items.max(axis=1), "at": at,
    }).sort_values("most_information", ascending=False, kind="stable")  # fmt: skip
    about = {"items": len(ids), "marginal_reliability": found.attrs["marginal_reliability"]}
    if as_json:
        show({**about, "test": records(test), "peaks": records(peaks)}, True)
        return
    show(about, False)
    some = test.iloc[:: max(1, (points - 1) // 8)]
    click.echo(f"\nTest:\n\n{rows(records(some))}")
    shown(peaks, ("item", "most_information", "at"), "Items, where they tell most")


def _long(ids: Any, ability: Any, values: Any) -> pd.DataFrame:
    """A row for each item and ability."""
    return pd.DataFrame({
        "item": np.repeat(ids, ability.size), "ability": np.tile(ability, ids.size),
        "information": values.ravel(),
    })  # fmt: skip


def _new_picture(path: str | None) -> Any:
    """The path of a figure to write."""
    if path is None:
        return None
    from irt_dask.store.places import local_path

    new = local_path(path, "a figure")
    if new.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot {new}: the file name must end in .png, .svg or .pdf")
    if not new.absolute().parent.is_dir():
        raise InputError(f"--plot {new}: there is no folder {new.absolute().parent}")
    return new
