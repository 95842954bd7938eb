"""The command that fits a population model: population."""

from __future__ import annotations

from typing import Any

import click
import xarray as xr

from irt_dask.cli.common import (
    ONE_BY_ONE,
    cluster_option,
    counted,
    json_option,
    quiet_option,
    rows,
    show,
    warned,
    weights_option,
    workers,
)
from irt_dask.errors import InputError
from irt_dask.store import open_responses

_OF_UNITS = ("standard_errors", "n_sampling_units", "degrees_of_freedom")
#: Coefficients that are printed.
_MOST = 40


@click.command()
@click.argument("store", type=click.Path())
@click.argument("bank", type=click.Path())
@click.option("--out", type=click.Path(), required=True, metavar="POPULATION.nc",
              help="File for the model, which 'irt-dask score --population' takes.")  # fmt: skip
@click.option("--covariates", metavar="FORMULA",
              help="Terms of the persons' covariates, as in 'escs + C(grade) + C(sex):escs'; "
              "C(name) makes categories of codes; labels are categories.")  # fmt: skip
@click.option("--components", metavar="N|SHARE",
              help="Principal components of the terms: how many (200), or the share of their "
              "variance that is kept (0.9). Default: all.")  # fmt: skip
@click.option(
    "--domains",
    type=click.Path(),
    metavar="DOMAINS.csv",
    help="Columns item and domain: which ability each item measures. Default: one.",
)
@click.option("--item-draws", type=int, default=0, show_default=True,
              help="Draws of the items of BANK (a posterior's, or by a bank's errors) to fit again "
              "under, for standard errors that hold what is not known of items.")  # fmt: skip
@click.option("--sampling-unit", metavar="NAME",
              help="What was drawn before persons were (schools): a covariate of the persons, or "
              "person_group. Standard errors are those of such a sample.")  # fmt: skip
@click.option("--one-group", is_flag=True,
              help="All persons in one regression, whatever their groups.")  # fmt: skip
@weights_option
@cluster_option()
@json_option
@quiet_option
def population(
    store: str, bank: str, out: str, covariates: str | None, components: str | None,
    domains: str | None, item_draws: int, sampling_unit: str | None, one_group: bool, weights: str,
    cluster: str, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Regress abilities on the persons' covariates, with the items of BANK.

    The conditioning model of plausible values: in each group of persons abilities (of several
    domains together) are normal about linear predictors.  Then:

    \b
      irt-dask score STORE BANK --population POPULATION.nc --plausible 10 --out SCORES
      irt-dask tabulate SCORES --values 'maths=pv*_maths' --by person_group
    """
    from irt_dask.banks.saved import check_new_result, read_bank, write_result
    from irt_dask.population.domains import read_domains
    from irt_dask.population.fit import fit_population

    path = check_new_result(out)
    responses = counted(open_responses(store), weights, quiet)
    if weights == "ignore":
        responses = responses.select(weights="ignore")
    of = None if domains is None else read_domains(domains)
    with warned(quiet), workers(cluster, responses, quiet=quiet) as client:
        result = fit_population(
            responses, read_bank(bank), covariates=covariates,
            n_components=_components(components), domains=of, by_group=not one_group,
            n_item_draws=item_draws, sampling_unit=sampling_unit, client=client,
            progress=False if quiet else None,
        )  # fmt: skip
    write_result(result, path)
    about = {k: result.attrs[k] for k in ("formula", "n_persons", "n_iterations", "log_likelihood")}
    coefficients = [] if covariates is None else _coefficients(result)
    if as_json:
        found = {"groups": _groups(result), "coefficients": coefficients}
        units = {k: result.attrs[k] for k in _OF_UNITS if k in result.attrs}
        show(about | units | found | {"correlations": _correlations(result)}, True)
        return
    show(about | {"model": str(path)}, False)
    if sampling_unit is not None:
        n = ", ".join(f"{x:,}" for x in result.attrs["n_sampling_units"][:10])
        click.echo(f"Standard errors are those of a sample of units ({sampling_unit}): {n}")
    click.echo(f"\nAbility of the groups:\n\n{rows(_groups(result))}")
    if sampling_unit is None:
        click.echo(ONE_BY_ONE)
    if coefficients:
        click.echo(f"\nAbility by covariates:\n\n{rows(coefficients[:_MOST])}")
        if len(coefficients) > _MOST:
            click.echo(f"and {len(coefficients) - _MOST:,} more, in {path}")
    if result.sizes["latent_dims"] > 1:
        click.echo(f"\nCorrelations of domains:\n\n{rows(_correlations(result))}")


def _components(text: str | None) -> int | float | None:
    if text is None:
        return None
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise InputError(f"--components {text!r}: give a number, or a share of variance") from None


def _groups(result: xr.Dataset) -> list[dict[str, Any]]:
    """Mean, SD, residual SD and explained share by group and domain."""
    names = ("group_mean", "group_mean_se", "group_sd", "residual_sd", "explained_share")
    said = ("mean", "se", "sd", "residual_sd", "explained")
    out = []
    for g, group in enumerate(result["group_label"].values.astype(str)):
        for d, domain in enumerate(result["domain"].values.astype(str)):
            values = (float(result[n].values[g, d]) for n in names)
            out.append({"group": group, "domain": domain, **dict(zip(said, values, strict=True))})
    return out


def _coefficients(result: xr.Dataset) -> list[dict[str, Any]]:
    """By how much ability changes with each term, with its standard error."""
    value, error = result["regression_coefficient"], result["regression_coefficient_se"]
    groups, domains = (result[n].values.astype(str) for n in ("group_label", "domain"))
    return [
        {"group": str(group), "domain": str(domain), "term": str(term),
         "coefficient": float(value.values[g, k, d]), "se": float(error.values[g, k, d])}
        for g, group in enumerate(groups) for d, domain in enumerate(domains)
        for k, term in enumerate(result["covariate"].values)
    ]  # fmt: skip


def _correlations(result: xr.Dataset) -> list[dict[str, Any]]:
    """Of abilities in the group, and of what covariates leave."""
    domains, out = result["domain"].values.astype(str), []
    for g, group in enumerate(result["group_label"].values.astype(str)):
        for d in range(domains.size):
            for e in range(d):
                pair = {"group": group, "domains": f"{domains[e]} with {domains[d]}"}
                of = {
                    "correlation": float(result["group_correlation"].values[g, d, e]),
                    "residual": float(result["residual_correlation"].values[g, d, e]),
                    "se": float(result["residual_correlation_se"].values[g, d, e]),
                }
                out.append(pair | of)
    return out
