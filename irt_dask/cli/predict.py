"""Command that says how well posteriors predict persons who are left out: loo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pandas as pd

from irt_dask.cli.common import (
    cluster_option,
    dichotomise_option,
    json_option,
    quiet_option,
    responses_and_bank,
    rows,
    show,
    warned,
    weights_option,
    workers,
)
from irt_dask.cli.results import new_csv, records, write_csv
from irt_dask.errors import InputError, repeated

_VALUES = ("elpd", "p_loo", "pareto_k")


@click.command()
@click.argument("store", type=click.Path())
@click.argument("posteriors", type=click.Path(), nargs=-1, required=True)
@click.option("--draws", type=int, metavar="N",
              help="Draws of each posterior, evenly spaced (default: 1,000, or all).")  # fmt: skip
@click.option("--persons", type=click.Path(), metavar="PERSONS.csv",
              help="Write the values of every person, a row a person.")  # fmt: skip
@weights_option
@dichotomise_option
@cluster_option()
@json_option
@quiet_option
def loo(
    store: str, posteriors: tuple[str, ...], draws: int | None, persons: str | None, weights: str,
    dichotomise: int | dict[str, int] | None, cluster: str, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Say how well the POSTERIORS predict persons of STORE who are left out of them in turn.

    A posterior is the posterior.nc of a run, or a file that 'irt-dask calibrate --method bayes
    --fit' kept, fitted to this very STORE. Of several the best comes first: elpd is the log
    density of all persons, each given the others (higher is better), difference is from the best.
    A difference of less than two of its standard errors says nothing.
    """
    import irt_dask as irt

    path, found = new_csv(persons), {}
    names = [Path(p).stem for p in posteriors]
    if repeated(names):
        names = list(posteriors)
    if twice := repeated(names):
        raise InputError(f"{twice[0]} is there twice")
    for name, file in zip(names, posteriors, strict=True):
        r, known = responses_and_bank(
            store, file, items="store", weights=weights, quiet=quiet, dichotomise=dichotomise
        )
        with warned(quiet), workers(cluster, r, quiet=quiet) as client:
            found[name] = irt.loo(
                r, known, n_draws=draws, client=client, progress=False if quiet else None
            )
    table: dict[str, Any] = {}
    for name, one in found.items():
        end = "" if len(found) == 1 else f"_{name}"
        table |= {f"{v}{end}": one[f"person_{v}"].values for v in _VALUES}
    first = next(iter(found.values()))
    write_csv(pd.DataFrame({"person": first["person_id"].values.astype(str), **table}), path)
    if len(found) == 1:
        shown = ("elpd_loo", "elpd_loo_se", "p_loo", "p_loo_se", "looic", "n_persons", "n_draws",
                 "largest_k", "n_above_k")  # fmt: skip
        show({k: first.attrs[k] for k in shown}, as_json)
        return
    best = irt.compare(found).rename_axis("posterior").reset_index()
    about: dict[str, Any] = {"n_persons": first.attrs["n_persons"]}
    if as_json:
        show({**about, "posteriors": records(best)}, True)
        return
    show(about, False)
    click.echo(f"\n{rows(records(best), 2)}")
