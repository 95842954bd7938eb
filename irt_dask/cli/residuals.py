"""Commands that look at what the model leaves unsaid: q3, curves."""

from __future__ import annotations

from functools import partial

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
    remark,
    responses_and_bank,
    show,
    warned,
    weights_option,
    workers,
)
from irt_dask.cli.examine import ability_of, shown
from irt_dask.cli.results import (
    new_result,
    records,
    write_result_or_csv,
)
from irt_dask.errors import InputError

_PAIR = "pair_"
#: What is said of each group and item, where there is such.
_OF_CURVES = ("rmsd", "md", "rmsd_expected", "rmsd_p_value")


@click.command()
@click.argument("store", type=click.Path())
@click.argument("bank", type=click.Path())
@click.option("--largest", type=click.IntRange(min=1), default=50, show_default=True, metavar="N",
              help="Pairs of items to tell, those of the largest correlations.")  # fmt: skip
@click.option("--least", type=click.IntRange(min=2), default=30, show_default=True, metavar="N",
              help="Pairs that fewer persons answered are left out.")  # fmt: skip
@click.option("--ability", callback=ability_of, metavar="MEAN,SD",
              help="Normal distribution of the persons' abilities on the scale of BANK (default: "
              "the likeliest).")  # fmt: skip
@click.option("--out", type=click.Path(), metavar="PAIRS.csv|.nc",
              help="Write the pairs, a row each; or as PAIRS.nc.")  # fmt: skip
@items_option
@weights_option
@dichotomise_option
@cluster_option()
@json_option
@quiet_option
def q3(
    store: str, bank: str, largest: int, least: int, ability: tuple[float, float] | None,
    out: str | None, items: str, weights: str, dichotomise: int | dict[str, int] | None,
    cluster: str, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Tell which pairs of items share more than ability: Yen's Q3.

    It is the correlation of the residuals of two items over the persons of STORE who answered
    both, given the items of BANK: an item bank (.csv, .json) or a fit that was kept (.nc).
    Adjusted, it is less the mean of all pairs, which is below 0 under the model.
    """
    import irt_dask as irt

    path = new_result(out, bank)
    r, known = responses_and_bank(
        store, bank, items=items, weights=weights, quiet=quiet, dichotomise=dichotomise
    )
    with warned(quiet), workers(cluster, r, quiet=quiet) as client:
        pairs = irt.residual_correlations(
            r, known, largest=largest, least=least, ability=ability, client=client,
            progress=False if quiet else None,
        )  # fmt: skip
    frame = pd.DataFrame({str(n).removeprefix(_PAIR): pairs[n].values for n in pairs.data_vars})
    write_result_or_csv(pairs, frame, path)
    about = {k: pairs.attrs[k] for k in ("n_pairs", "mean_q3", "ability_mean", "ability_sd")}
    if as_json:
        show({**about, "pairs": records(frame)}, True)
        return
    show(about, False)
    shown(frame, tuple(frame.columns), "Pairs of items, the largest correlations first")


@click.command()
@click.argument("store", type=click.Path())
@click.argument("bank", type=click.Path())
@click.option("--groups/--no-groups", default=None,
              help="Whether each group of persons is looked at by itself, with a normal "
              "distribution of ability of its own (default: if the store has groups).",
              )  # fmt: skip
@click.option("--replicates", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
              help="Simulate N stores (19 or more) to tell which RMSD are beyond chance: a "
              "parametric bootstrap.")  # fmt: skip
@click.option("--refit", metavar="MODEL",
              help="With --replicates: BANK was fitted to this very STORE by marginal maximum "
              "likelihood with this model (2pl, 2pl+gpcm, ...), and so are the items of each "
              "replicate. Default: items that STORE did not make.")  # fmt: skip
@click.option("--seed", type=int, help="Of the replicates (default: 0).")
@click.option("--out", type=click.Path(), metavar="CURVES.csv|.nc",
              help="Write a row for each item and group; or all, with the curves, as CURVES.nc.",
              )  # fmt: skip
@items_option
@weights_option
@dichotomise_option
@cluster_option()
@json_option
@quiet_option
def curves(
    store: str, bank: str, groups: bool | None, replicates: int, refit: str | None,
    seed: int | None, out: str | None, items: str, weights: str,
    dichotomise: int | dict[str, int] | None, cluster: str, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Tell how far observed curves of items are from those of BANK: RMSD and mean difference.

    BANK is an item bank (.csv, .json) or a fit that was kept (.nc). An RMSD is in points of score,
    by group where persons of STORE have groups, and never 0 by chance: cut-offs in use are .12 to
    .15; with --replicates there are p-values. A positive mean difference (md) says that the item
    is easier in the group than BANK says.
    """
    import irt_dask as irt

    path = new_result(out, bank)
    for option, given in (("--refit", refit), ("--seed", seed)):
        if given is not None and not replicates:
            raise InputError(f"{option} is for replicates: say --replicates N as well")
    if replicates and refit is None:
        remark(
            "p-values are those of items that STORE did not make; of items fitted to STORE they "
            "are too large: say --refit MODEL", quiet,
        )  # fmt: skip
    r, known = responses_and_bank(
        store, bank, items=items, weights=weights, quiet=quiet, dichotomise=dichotomise
    )
    fitted = None if refit is None else partial(
        irt.fit_marginal, model=refit, groups=groups, standard_errors=False, progress=False
    )  # fmt: skip
    with warned(quiet), workers(cluster, r, quiet=quiet) as client:
        found = irt.item_curves(
            r, known, groups=groups, n_replicates=replicates, refit=fitted, seed=seed or 0,
            client=client, progress=False if quiet else None,
        )  # fmt: skip
    frame = _by_item_and_group(found)
    write_result_or_csv(found, frame, path)
    about = {k: found.attrs[k] for k in ("n_persons", "n_replicates", "converged")}
    of_groups = [
        {"group": str(label), "ability_mean": float(mean), "ability_sd": float(sd)}
        for label, mean, sd in zip(
            *(found[f"group_{name}"].values for name in ("label", "mean", "sd")), strict=True
        )
    ]
    if as_json:
        show({**about, "groups": of_groups, "items": records(frame)}, True)
        return
    show(about, False)
    shown(pd.DataFrame(of_groups), tuple(of_groups[0]), "Abilities on the scale of the bank")
    far = frame.sort_values("rmsd", ascending=False, kind="stable")
    shown(far, tuple(frame.columns), "Items, the farthest first")


def _by_item_and_group(found: xr.Dataset) -> pd.DataFrame:
    """A row for each item and group."""
    names = [name for name in _OF_CURVES if f"group_item_{name}" in found]
    labels, ids = found["group_label"].values.astype(str), found["item_id"].values.astype(str)
    return pd.DataFrame({
        "item": np.repeat(ids, labels.size), "group": np.tile(labels, ids.size),
        **{name: found[f"group_item_{name}"].values.T.ravel() for name in names},
    })  # fmt: skip
