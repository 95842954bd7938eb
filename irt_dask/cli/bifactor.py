"""The command bifactor: a general ability, and one of each block of items."""

from __future__ import annotations

from typing import Any

import click
import numpy as np
import pandas as pd
import xarray as xr
from click.core import ParameterSource

from irt_dask.cli.common import (
    cluster_option,
    counted,
    dichotomise_option,
    json_option,
    quiet_option,
    rows,
    show,
    warned,
    weights_option,
    workers,
)
from irt_dask.cli.results import new_csv, records, write_csv
from irt_dask.errors import InputError
from irt_dask.store import open_responses
from irt_dask.store.dichotomy import in_two

#: Options of a fit, which --known has no use for.
_OF_FIT = ("loadings", "prior", "standard_errors", "max_iterations", "seed")
#: What is said of a fit, where it says so itself.
_SHOWN = (
    "method", "model", "identification", "converged", "n_iterations", "objective",
    "log_likelihood", "prior", "n_parameters", "aic", "bic", "n_persons", "weight_kind",
)  # fmt: skip


@click.command()
@click.argument("store", type=click.Path())
@click.option("--item-table", "item_blocks", type=click.Path(), metavar="TABLE",
              help="The block (benchmark, text, topic) of each item: a .csv or .json with the "
              "columns item and block.")  # fmt: skip
@click.option("--known", type=click.Path(), metavar="FIT.nc",
              help="Fit nothing: score the persons by what --fit kept.")  # fmt: skip
@click.option("--out", type=click.Path(), metavar="ITEMS.csv",
              help="Table of items to write: slopes on both abilities, intercepts, their standard "
              "errors.")  # fmt: skip
@click.option("--fit", "kept", type=click.Path(), metavar="FIT.nc",
              help="Keep the whole fit, as netCDF, for --known.")  # fmt: skip
@click.option("--scores", type=click.Path(), metavar="SCORES.csv",
              help="Table of persons to write: each ability and its SD.")  # fmt: skip
@click.option("--loadings", type=click.Choice(["testlet", "free"]), default="testlet",
              show_default=True, help="Slopes on abilities of blocks: tied to those on the general "
              "one, a number each block; or free, for hundreds of persons or more.",
              )  # fmt: skip
@click.option("--prior", type=click.Choice(["centred", "none"]), default="centred",
              show_default=True, help="Keep items that few answered near the others of their "
              "block; or the maximum of the likelihood alone.")  # fmt: skip
@click.option("--standard-errors/--no-standard-errors", default=None,
              help="Whether to find standard errors and draws of items (default: with up to 4,000 "
              "parameters).")  # fmt: skip
@click.option("--item-draws", "n_item_draws", type=click.IntRange(min=0), metavar="N",
              help="Draws of the items over which scores are averaged, so that their SDs hold the "
              "items' errors; 0 takes items for known (default: 20, if there are any).",
              )  # fmt: skip
@click.option("--max-iterations", type=click.IntRange(min=1), default=500, show_default=True,
              metavar="N", help="Iterations after which a fit that has not converged is given up.",
              )  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the draws of items.")
@weights_option
@dichotomise_option
@cluster_option()
@json_option
@quiet_option
def bifactor(
    store: str, known: str | None, out: str | None, kept: str | None, scores: str | None,
    n_item_draws: int | None, weights: str, cluster: str, as_json: bool, quiet: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Fit a general ability, and one of each block of items, to the responses of STORE.

    Where answers within a block (benchmark, text, topic) hang together beyond one ability,
    standard deviations of a single ability are too small; here they are honest. effect_sd is by how
    much persons differ within a block beyond what they are in general.
    """
    import irt_dask as irt
    from irt_dask.banks.saved import check_new_result, of_responses, read_bank, write_result
    from irt_dask.items.bifactor import is_bifactor

    items_to, scores_to = (new_csv(p, options["item_blocks"], known) for p in (out, scores))
    fit_to = None if kept is None else check_new_result(kept)
    _check(options["item_blocks"], known, out, kept, scores)
    stored = open_responses(store)
    r = in_two(counted(stored, weights, quiet), options.pop("dichotomise"))
    progress = False if quiet else None
    with warned(quiet), workers(cluster, r, quiet=quiet) as client:
        if known is None:
            fit = irt.fit_bifactor(r, **_asked(options), client=client, progress=progress)
            fit = of_responses(fit, stored, r)
            write_csv(_items(fit), items_to)
            if fit_to is not None:
                write_result(fit, fit_to)
        else:
            fit = read_bank(known)
            if not is_bifactor(fit):
                raise InputError(f"--known {known} is no fit of 'irt-dask bifactor --fit'")
        found = None
        if scores_to is not None:
            found = irt.score(
                r, fit, n_item_draws=n_item_draws, client=client, progress=progress
            )  # fmt: skip
            write_csv(_persons(found), scores_to)
    _tell(fit, found, {"items": out, "fit": kept, "scores": scores}, as_json)


def _check(
    table: str | None, known: str | None, out: str | None, kept: str | None, scores: str | None
) -> None:
    """Refuse options that do not go together, before any work."""
    if (table is None) == (known is None):
        raise InputError(
            "give --item-table, the block of each item, or --known, a fit by which to score"
        )
    if known is not None and (out or kept or not scores):
        raise InputError("with --known persons are scored: give --scores, not --out or --fit")
    if not (out or kept or scores):
        raise InputError("nothing would be kept: give --out, --fit or --scores")
    if known is not None and (some := [name for name in _OF_FIT if _typed(name)]):
        raise InputError(f"--{some[0].replace('_', '-')} is of a fit, and --known has been fitted")
    if not scores and _typed("n_item_draws"):
        raise InputError("--item-draws is of scores: give --scores")


def _typed(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is ParameterSource.COMMANDLINE


def _asked(options: dict[str, Any]) -> dict[str, Any]:
    """Options of ``fit_bifactor`` from those of the command."""
    from irt_dask.banks.item_tables import read_item_table

    path = options["item_blocks"]
    table = read_item_table(path)
    if "item_blocks" not in table:
        raise InputError(f"the item table {path} has no column block")
    if "item_covariates" in table:
        names = ", ".join(table["item_covariates"])
        raise InputError(
            f"the item table {path} has columns besides item and block, which a bifactor model "
            f"makes nothing of: {names}; leave them out"
        )
    prior = None if options["prior"] == "none" else options["prior"]
    return options | {"item_blocks": table["item_blocks"], "prior": prior}


def _items(fit: xr.Dataset) -> pd.DataFrame:
    """A row an item: s is the slope on the ability of the item's block."""
    slope, error = (fit[name].values for name in ("item_loading", "item_loading_se"))
    alone = np.isnan(error[:, 1:]).all(axis=1)
    of_block = np.where(alone, np.nan, np.nansum(error[:, 1:], axis=1))
    return pd.DataFrame({
        "item": fit["item_id"].values.astype(str),
        "block": fit["item_stratum"].values.astype(str),
        "a": slope[:, 0], "a_se": error[:, 0],
        "s": slope[:, 1:].sum(axis=1), "s_se": of_block,
        "d": fit["item_intercept"].values, "d_se": fit["item_intercept_se"].values,
        "n": fit["item_n_responses"].values, "flag": fit["item_flag"].values.astype(str),
    })  # fmt: skip


def _persons(found: xr.Dataset) -> pd.DataFrame:
    """A row a person: each ability and its SD."""
    table: dict[str, Any] = {"person": found["person_id"].values.astype(str)}
    for k, name in enumerate(found["domain"].values.astype(str)):
        table[f"ability_{name}"] = found["person_ability"].values[:, k]
        table[f"sd_{name}"] = found["person_ability_sd"].values[:, k]
    return pd.DataFrame(table)


def _blocks(fit: xr.Dataset) -> pd.DataFrame:
    """A row a block that has an ability of its own."""
    labels = fit["block"].values.astype(str)
    of_item = fit["item_stratum"].values.astype(str)
    return pd.DataFrame({
        "block": labels, "items": [int((of_item == b).sum()) for b in labels],
        "effect_sd": fit["block_effect_sd"].values,
        "effect_sd_se": fit["block_effect_sd_se"].values,
    })  # fmt: skip


def _tell(
    fit: xr.Dataset, found: xr.Dataset | None, files: dict[str, str | None], as_json: bool
) -> None:
    """Print what was found."""
    from irt_dask.items import checks

    flags, ids = fit["item_flag"].values, fit["item_id"].values
    flagged: Any = checks.listed(flags, ids) if as_json else checks.in_words(flags, ids) or "none"
    shown: dict[str, Any] = {k: v for k, v in files.items() if v is not None}
    shown |= {k: fit.attrs[k] for k in _SHOWN if k in fit.attrs}
    shown["flagged_items"] = flagged
    if found is not None:
        shown["n_item_draws"] = found.attrs["n_item_draws"]
        shown["reliability"] = dict(
            zip(found["domain"].values.tolist(), found.attrs["reliability"], strict=True)
        )
    blocks = records(_blocks(fit))
    show(shown | ({"blocks": blocks} if as_json else {}), as_json)
    if not as_json:
        click.echo(f"\nAbilities of blocks:\n\n{rows(blocks)}")
