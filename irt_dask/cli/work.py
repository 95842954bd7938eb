"""Commands that compute: demo, run, score."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import xarray as xr

from irt_dask.cli.common import (
    ONE_BY_ONE,
    absolute,
    cluster_option,
    counted,
    groups_of,
    item_table,
    items_option,
    json_option,
    nonresponse_options,
    quiet_option,
    rows,
    say,
    show,
    warned,
    weights_option,
    workers,
)
from irt_dask.cli.results import new_csv, write_persons
from irt_dask.errors import InputError, IrtDaskError, MachineWarning
from irt_dask.store import open_responses
from irt_dask.store.places import local_path
from irt_dask.store.responses import SAMPLING


@click.command()
@click.argument("pipeline", type=click.Path())
@click.option("--source", type=click.Path(), help="Response file, in place of the pipeline's.")
@click.option("--out", type=click.Path(), help="Run directory (default: runs/NAME here).")
@click.option("--cluster", metavar="WHERE", help="Where to compute, in place of the pipeline's "
              "[cluster]: 'local', 'none', tcp://127.0.0.1:port, a TOML file, or 'auto' "
              "(without such a section): 'local', but 'none' for data below 10 MB.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Discard what an earlier run left and start over.")
@json_option
@quiet_option
def run(
    pipeline: str, source: str | None, out: str | None, cluster: str | None, fresh: bool,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Run a pipeline: from a response file to items, posterior, scores and a report.

    PIPELINE is a TOML file (see 'irt-dask docs pipelines'). Run again, it resumes at the first
    unfinished stage; with another configuration or other data it stops, unless --fresh.

    With a [scoring] section it is a scheduled scoring instead: 'irt-dask score' with the options of
    the file, and --out names the folder of the scores. --json prints, when the run has ended, what
    'irt-dask status' does, and where the results are; of a scoring, what 'irt-dask score' does.
    """
    from irt_dask.workflow import is_small, read_config, read_scoring
    from irt_dask.workflow import run as run_pipeline

    scoring = read_scoring(pipeline, out)
    if scoring is not None:
        if source is not None or fresh:
            raise InputError(
                f"{'--fresh' if fresh else '--source'}: {pipeline} scores the store that it names; "
                f"bring new persons into it with irt-dask append"
            )
        if not quiet and not as_json:
            click.echo(scoring.title)
        own = scoring.cluster if "cluster" in scoring.model_fields_set else "auto"
        _score(scoring, cluster or own, as_json, quiet)
        return
    config = read_config(pipeline, {"source": source, "directory": out})
    if config.directory is None:
        directory = str(absolute("runs") / Path(pipeline).stem)
        config = config.model_copy(update={"directory": directory})
    where = cluster or (config.cluster if "cluster" in config.model_fields_set else "auto")
    if where == "auto":
        where = "none" if is_small(config) else "local"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MachineWarning)  # the run says it, and keeps it
        with workers(where, quiet=quiet) as client:
            path = run_pipeline(
                config, client=client, fresh=fresh, progress=False if quiet else None,
                say=_say(quiet, err=as_json),
            )  # fmt: skip
    if as_json:
        from irt_dask.workflow.status import status_of

        made = {"items": "items.csv", "scores": "scores", "report": "report.html"}
        show(status_of(path) | {name: str(path / file) for name, file in made.items()}, True)
        return
    click.echo(f"items:  {path / 'items.csv'}\nscores: {path / 'scores'}")
    click.echo(f"report: {path / 'report.html'}")


def _say(quiet: bool, err: bool = False) -> Callable[[str], None]:
    """What a run calls with a line at each stage: under --quiet its warnings alone are shown."""

    def told(text: str) -> None:
        if not quiet:
            say(text, err=err)
        elif text.lstrip().startswith("warning: "):
            say(text.lstrip(), err=True)

    return told


#: The demo's two runs: built-in data, and simulated data whose parameters are known.
_DEMO: dict[str, dict[str, Any]] = {
    "lsat": {
        "title": "LSAT section 6",
        "data": {"builtin": "lsat"},
        "joint": {"coreset": 0},
        "bayes": {"draws": 2000},
    },
    "simulated": {
        "title": "20,000 simulated persons, 40 items",
        "data": {"simulate": {"persons": 20_000, "items": 40}},
        "bayes": {"shards": 4, "draws": 1000, "warmup": 250},
    },
}


@click.command()
@click.option("--out", type=click.Path(), default="irt-dask-demo", show_default=True,
              help="Folder for the two runs; an earlier demo there is replaced.")  # fmt: skip
@cluster_option("local")
@quiet_option
def demo(out: str, cluster: str, quiet: bool) -> None:
    """Calibrate and score built-in and simulated data on a cluster started for the purpose."""
    from irt_dask.engine.watch import threads_of
    from irt_dask.workflow import RunConfig
    from irt_dask.workflow import run as run_pipeline
    from irt_dask.workflow.directory import RunDirectory

    begun, folder = time.monotonic(), absolute(out)
    with workers(cluster, quiet=quiet) as client:
        if client is not None and not quiet:
            click.echo(f"cluster: {len(threads_of(client))} workers at {client.scheduler.address}")
        for name, sections in _DEMO.items():
            config = RunConfig.model_validate({**sections, "directory": str(folder / name)})
            click.echo(f"\n== {config.title} ==")
            path = run_pipeline(
                config, client=client, fresh=True, progress=False if quiet else None,
                say=_say(quiet),
            )  # fmt: skip
            made = RunDirectory.existing(path)
            posterior, joint, truth = (
                made.find(f"{n}.nc") for n in ("posterior", "joint", "truth")
            )
            assert posterior is not None
            click.echo(
                "\nPosterior mean and SD of discrimination a and difficulty b, and joint ML:\n"
            )
            click.echo(item_table(posterior, joint, truth))
            click.echo(f"\nreport: {path / 'report.html'}")
    click.echo(f"\ndone in {time.monotonic() - begun:.0f} s")


@click.command()
@click.argument("store", type=click.Path())
@click.argument("bank", type=click.Path())
@click.option("--out", type=click.Path(), required=True, help="Folder for the Parquet files.")
@click.option("--csv", "table", type=click.Path(), metavar="SCORES.csv",
              help="Write all persons as one CSV file too, for a spreadsheet or R.")  # fmt: skip
@click.option("--method", type=click.Choice(["eap", "map", "ml", "wle"]), default="eap",
              show_default=True, help="Estimate of ability.")  # fmt: skip
@click.option("--prior", default="normal", show_default=True, metavar="PRIOR",
              help="Distribution of ability: normal (mean 0, SD 1), population (mean and SD "
              "estimated), groups (those of each group of persons), covariates, or names of "
              "covariates with commas.")  # fmt: skip
@click.option(
    "--population",
    type=click.Path(),
    metavar="POPULATION.nc",
    help="Model of 'irt-dask population', in place of --prior: abilities of its domains.",
)
@click.option(
    "--composite",
    "composites",
    multiple=True,
    metavar="NAME=DOMAIN:WEIGHT,...",
    help="Weighted sum of domains: science=physics:0.5,biology:0.5. May be repeated.",
)
@click.option("--plausible", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
              help="Plausible values for each person, columns pv1 to pvN.")  # fmt: skip
@click.option(
    "--linking",
    multiple=True,
    metavar="[DOMAIN=]LINK.nc",
    help="Draw the error of a link into the plausible values: what 'irt-dask link --error "
    "jackknife --link' kept; BANK is its --out. May be repeated for domains.",
)
@click.option("--item-draws", type=click.IntRange(min=0), default=None, metavar="N",
              help="Draws of the items to average over, 0 for none (default: 20 where BANK has "
              "draws, as the posterior.nc of a run, else none; of a bank they are made by its "
              "errors). With --population as many as --plausible: each value has items of its "
              "own.")  # fmt: skip
@items_option
@weights_option
@nonresponse_options
@click.option("--seed", type=int, default=0, show_default=True, help="Of the plausible values.")
@cluster_option()
@json_option
@quiet_option
def score(
    prior: str, seed: int, cluster: str, table: str | None, as_json: bool, quiet: bool,
    **section: Any,
) -> None:  # fmt: skip
    """Estimate the ability of every person of STORE with the items of BANK.

    BANK is an item bank (.csv, .json), whose items are taken as known, or the posterior.nc of a
    run, whose draws say how certain the items are.

    Writes person_id, person_ability, person_ability_sd (EAP and posterior SD; of other methods
    person_ability_se), n_responses, sum_score (of the codes of what was answered: the number right
    where items have two categories) and plausible values if asked for, one Parquet file per block;
    pandas, Arrow and R read the folder as one table, and --csv makes one file of it.  A fit of two
    abilities, saved with to_netcdf, gives columns person_ability_1, person_ability_2, ..., their
    correlation within the person, pv1_1, pv1_2, ...  With --linking there is person_linking_error,
    by which 'irt-dask tabulate' knows that the values have it: keep it beside them.

    Run again, it scores only blocks that are new, or whose responses, items or options changed,
    and leaves the folder as a run from scratch would.  Exit code 0: all persons are scored;
    2: something has to be corrected first; 1: anything else, another run in the same folder among
    it: try again.
    """
    from irt_dask.clusters.config import validated
    from irt_dask.workflow import ScoringConfig

    section["composites"] = dict(map(_composite, section["composites"]))
    section["linking"] = _links(section["linking"])
    known = prior in ("normal", "population", "groups", "covariates")
    section["prior"] = prior if known else prior.split(",")
    config = validated(ScoringConfig, {"scoring": section, "seed": seed}, "score")
    path = new_csv(table, section["bank"], section["population"])
    if path is not None:
        local_path(section["out"], "--csv is of a folder, which")
    _score(config, cluster, as_json, quiet)
    if path is not None:
        write_persons(section["out"], path)


def _composite(text: str) -> tuple[str, dict[str, float]]:
    """Name and weights of a composite as it is typed."""
    name, sep, rest = text.partition("=")
    weights: dict[str, float] = {}
    for part in rest.split(","):
        domain, colon, weight = part.rpartition(":")
        try:
            weights[domain.strip()] = float(weight)
        except ValueError:
            colon = ""
        if not (name and sep and colon and domain):
            raise InputError(f"--composite {text!r}: write NAME=DOMAIN:WEIGHT,DOMAIN:WEIGHT")
    return name.strip(), weights


def _links(texts: tuple[str, ...]) -> str | dict[str, str] | None:
    """The file of a link as it is typed, or files by domain."""
    of_domains: dict[str, str] = {}
    for text in texts:
        domain, sep, path = text.partition("=")
        if not sep or "/" in domain or Path(text).exists():
            domain, path = "", text
        elif not domain:
            raise InputError(f"--linking {text}: before = is the name of a domain")
        if domain in of_domains or (len(texts) > 1 and not domain):
            raise InputError(
                "--linking is given more than once: say of which domain, each once, as in "
                "maths=LINK.nc"
            )
        of_domains[domain] = path
    return of_domains.get("", of_domains or None)


def _score(config: Any, cluster: Any, as_json: bool, quiet: bool) -> None:
    from irt_dask.workflow import score_store

    try:
        store = counted(open_responses(config.scoring.store), config.scoring.weights, quiet)
    except IrtDaskError:
        if config.scoring.events is not None:
            score_store(config)  # which stops there too, and writes down that it did
        raise
    with warned(quiet), workers(cluster, store, quiet=quiet) as client:
        result = score_store(config, client=client, progress=False if quiet else None)
    keys = ("n_persons", "n_blocks_scored", "n_blocks_kept", "n_at_bound", "mean_ability",
            "sd_ability", "reliability", "n_item_draws", "n_plausible", "store")  # fmt: skip
    about = {k: result.attrs[k] for k in (*keys, "linking_error") if k in result.attrs}
    groups = groups_of(result) if "group_label" in result.coords else []
    terms = _terms(result) if "regression_coefficient" in result else []
    if as_json:
        found = {"groups": groups, "coefficients": terms}
        show(about | {k: table for k, table in found.items() if table}, True)
        return
    if store.max_weight is not None and store.weight_kind == SAMPLING:
        about = {f"{k}, unweighted" if k in _UNWEIGHTED else k: v for k, v in about.items()}
    show(about, False)
    if groups:
        click.echo(f"\nAbility of the groups:\n\n{rows(groups)}")
        click.echo(ONE_BY_ONE)
    for table in config.tables:
        click.echo(f"table: {table.out}")
    if terms:
        click.echo(f"\nAbility by covariates:\n\n{rows(terms)}")


#: Said of all scores, in which every person with an estimate counts once under sampling weights.
_UNWEIGHTED = ("mean_ability", "sd_ability", "reliability")


def _terms(result: xr.Dataset) -> list[dict[str, Any]]:
    """Coefficients of a latent regression and its residual SD, with standard errors."""
    names, of = result["covariate"].values.astype(str), "regression_coefficient"
    values = zip(names, result[of].values, result[f"{of}_se"].values, strict=True)
    residual = ("residual SD", result["residual_sd"], result["residual_sd_se"])
    return [
        {"term": str(name), "coefficient": float(x), "se": float(se)}
        for name, x, se in (*values, residual)
    ]
