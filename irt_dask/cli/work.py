"""Commands that compute: demo, run, calibrate, score, report."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from irt_dask.cli.common import (
    absolute,
    cluster_option,
    item_table,
    json_option,
    quiet_option,
    show,
    warned,
    workers,
)
from irt_dask.curves import MODELS
from irt_dask.errors import InputError
from irt_dask.store import open_responses


@click.command()
@click.argument("pipeline", type=click.Path())
@click.option("--source", type=click.Path(), help="Response file, in place of the pipeline's.")
@click.option("--out", type=click.Path(), help="Run directory (default: runs/NAME here).")
@click.option("--cluster", metavar="WHERE", help="Where to compute, in place of the pipeline's "
              "[cluster]: 'local', 'none', tcp://127.0.0.1:port or a TOML file.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Discard what an earlier run left and start over.")
@quiet_option
def run(
    pipeline: str, source: str | None, out: str | None, cluster: str | None, fresh: bool,
    quiet: bool,
) -> None:  # fmt: skip
    """Run a pipeline: from a response file to items, posterior, scores and a report.

    PIPELINE is a TOML file (see 'irt-dask docs pipelines'). Run again, it resumes at the first
    unfinished stage; with another configuration or other data it stops, unless --fresh.

    With a [scoring] section it is a scheduled scoring instead: 'irt-dask score' with the options of
    the file, and --out names the folder of the scores.
    """
    from irt_dask.workflow import read_config, read_scoring
    from irt_dask.workflow import run as run_pipeline

    scoring = read_scoring(pipeline, out)
    if scoring is not None:
        if source is not None or fresh:
            raise InputError(
                f"{'--fresh' if fresh else '--source'}: {pipeline} scores the store that it names; "
                f"bring new persons into it with irt-dask append"
            )
        click.echo(scoring.title)
        _score(scoring, cluster or scoring.cluster, False, quiet)
        return
    config = read_config(pipeline, {"source": source, "directory": out})
    if config.directory is None:
        directory = str(absolute("runs") / Path(pipeline).stem)
        config = config.model_copy(update={"directory": directory})
    with workers(cluster or config.cluster) as client:
        path = run_pipeline(
            config, client=client, fresh=fresh, progress=False if quiet else None, say=click.echo
        )
    click.echo(f"items:  {path / 'items.csv'}\nscores: {path / 'scores'}")
    click.echo(f"report: {path / 'report.html'}")


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
    from irt_dask.workflow import RunConfig
    from irt_dask.workflow import run as run_pipeline
    from irt_dask.workflow.directory import load_result

    begun, folder = time.monotonic(), absolute(out)
    with workers(cluster) as client:
        if client is not None:
            click.echo(f"cluster: {len(client.nthreads())} workers at {client.scheduler.address}")
        for name, sections in _DEMO.items():
            config = RunConfig.model_validate({**sections, "directory": str(folder / name)})
            click.echo(f"\n== {config.title} ==")
            path = run_pipeline(
                config, client=client, fresh=True, progress=False if quiet else None, say=click.echo
            )
            posterior, joint, truth = (
                load_result(path / f"{n}.nc") for n in ("posterior", "joint", "truth")
            )
            assert posterior is not None
            click.echo(
                "\nPosterior mean and SD of discrimination a and difficulty b, and joint ML:\n"
            )
            click.echo(item_table(posterior, joint, truth))
            click.echo(f"\nreport: {path / 'report.html'}")
    click.echo(f"\ndone in {time.monotonic() - begun:.0f} s")


#: Methods, and those of the options of ``calibrate`` that only some have.
_METHODS: dict[str, tuple[str, ...]] = {
    "bayes": ("shards", "draws", "chains", "checkpoint", "seed"),
    "marginal": ("model", "fixed_items", "guessing_prior", "checkpoint"),
    "joint": ("model", "coreset", "checkpoint", "seed"),
    "spectral": (),
    "pairwise": ("pairing",),
    "conditional": (),
}
#: Options that the functions call otherwise.
_KEYWORDS = {"shards": "n_shards", "draws": "n_draws", "chains": "n_chains"}


def _refuse_options_of_other_methods(method: str) -> None:
    context = click.get_current_context()
    for option in dict.fromkeys(itertools.chain(*_METHODS.values())):
        typed = context.get_parameter_source(option) is ParameterSource.COMMANDLINE
        methods = [name for name, options in _METHODS.items() if option in options]
        if typed and method not in methods:
            name = option.replace("_", "-")
            raise InputError(f"--{name} belongs to --method {' or '.join(methods)}")


def _guessing_prior(text: str | None, model: str) -> dict[str, Any]:
    """The option --guessing-prior as one of ``fit_marginal``; nothing if it was not typed."""
    if text is None:
        return {}
    if not any(p.prior for p in MODELS[model].parameters):
        raise InputError(f"--guessing-prior: the items of --model {model} have no guessing")
    if text == "none":
        return {"guessing_prior": None}
    try:
        alpha, beta = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"--guessing-prior {text!r}: give two numbers, as in 5,17, or none"
        ) from None
    return {"guessing_prior": (alpha, beta)}


#: Said where estimates do not maximise the likelihood that is shown.
_PENALISED = (
    "note: estimates maximise the objective, which is log likelihood plus log prior; the log "
    "likelihood may lie below that of the 2PL (--guessing-prior none maximises it alone)"
)


@click.command()
@click.argument("store", type=click.Path())
@click.option("--out", type=click.Path(), required=True, help="Item bank to write (.csv, .json).")
@click.option("--method", type=click.Choice([*_METHODS]), default="bayes", show_default=True,
              help="Posterior by LS-WASP, marginal or joint maximum likelihood, or a Rasch one: "
              "spectral, pairwise (all pairs) or conditional.")  # fmt: skip
@click.option("--shards", type=int, default=1, show_default=True, help="Shards (bayes).")
@click.option("--draws", type=int, default=2000, show_default=True,
              help="Draws of each chain (bayes).")  # fmt: skip
@click.option("--chains", type=int, default=1, show_default=True,
              help="Chains of each shard (bayes); each takes one core.")  # fmt: skip
@click.option("--checkpoint", type=click.Path(), metavar="FOLDER",
              help="Keep what is done in FOLDER: the same command, typed again after an "
              "interruption, goes on there (bayes, marginal, joint).")  # fmt: skip
@click.option("--model", type=click.Choice([*MODELS]), default="2pl",
              show_default=True, help="Item response model (marginal, joint).")  # fmt: skip
@click.option("--fixed-items", type=click.Path(), metavar="BANK",
              help="Item bank whose items keep their parameters: the others are calibrated on its "
              "scale (marginal).")  # fmt: skip
@click.option("--guessing-prior", metavar="ALPHA,BETA",
              help="Beta prior on guessing (default 5,17), or 'none' for the maximum of the "
              "likelihood alone, as likelihood-ratio tests need it (marginal).")  # fmt: skip
@click.option("--coreset", type=int, default=0, help="Persons per coreset, 0: all (joint).")
@click.option("--seed", type=int, default=0, show_default=True)
@cluster_option("local")
@json_option
@quiet_option
def calibrate(
    store: str, out: str, method: str, cluster: str, as_json: bool, quiet: bool, **options: Any
) -> None:
    """Estimate the items of a store and write them as an item bank."""
    import irt_dask as irt
    from irt_dask.banks import check_new_path
    from irt_dask.items import checks

    check_new_path(out)
    _refuse_options_of_other_methods(method)
    options |= _guessing_prior(options.pop("guessing_prior"), options["model"])
    options["pairing"] = "all"  # of items, not chosen at random
    r = open_responses(store)
    with workers(cluster) as client, warned():
        if options["fixed_items"] is not None:
            options["fixed_items"] = irt.read_items(options["fixed_items"])
        size = options["coreset"]
        options["coreset"] = irt.Coreset(size, sampling="poisson") if size else None
        fit = getattr(irt, f"fit_{method}")(
            r,
            **{_KEYWORDS.get(o, o): options[o] for o in _METHODS[method] if o in options},
            client=client,
            progress=False if quiet else None,
        )
    irt.write_items(fit, out)
    keys = ("method", "model", "converged", "n_iterations", "objective", "log_likelihood",
            "log_prior", "guessing_prior", "n_parameters", "aic", "bic", "n_persons")  # fmt: skip
    if fit.attrs.get("guessing_prior", "none") != "none":
        click.echo(_PENALISED, err=True)
    flags, ids = fit["item_flag"].values, fit["item_id"].values
    flagged: Any = checks.listed(flags, ids) if as_json else checks.in_words(flags, ids) or "none"
    shown = {k: fit.attrs[k] for k in keys if k in fit.attrs}
    show({"items": out, **shown, "flagged_items": flagged}, as_json)


@click.command()
@click.argument("store", type=click.Path())
@click.argument("bank", type=click.Path())
@click.option("--out", type=click.Path(), required=True, help="Folder for the Parquet files.")
@click.option("--method", type=click.Choice(["eap", "map", "ml", "wle"]), default="eap",
              show_default=True, help="Estimate of ability.")  # fmt: skip
@click.option("--prior", default="normal", show_default=True, metavar="PRIOR",
              help="Distribution of ability: normal (mean 0, SD 1), groups (estimated for each "
              "group of persons), covariates, or names of covariates with commas.")  # fmt: skip
@click.option("--plausible", type=int, default=0, show_default=True, metavar="N",
              help="Plausible values for each person, columns pv1 to pvN.")  # fmt: skip
@click.option("--item-draws", type=int, default=None, metavar="N",
              help="Draws of the items to average over, 0 for none (default: 20 where BANK is the "
              "posterior.nc of a run, else none).")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the plausible values.")
@cluster_option("local")
@json_option
@quiet_option
def score(prior: str, seed: int, cluster: str, as_json: bool, quiet: bool, **section: Any) -> None:
    """Estimate the ability of every person of STORE with the items of BANK.

    BANK is an item bank (.csv, .json), whose items are taken as known, or the posterior.nc of a
    run, whose draws say how certain the items are.

    Writes person_id, person_ability, person_ability_sd (EAP and posterior SD; of other methods
    person_ability_se), n_responses and plausible values if asked for, one Parquet file per block;
    pandas, Arrow and R read the folder as one table.  A fit of two abilities, saved with
    to_netcdf, gives columns person_ability_1, person_ability_2, ..., their correlation within the
    person, pv1_1, pv1_2, ...

    Run again, it scores only blocks that are new, or whose responses, items or options changed,
    and leaves the folder as a run from scratch would.  Exit code 0: all persons are scored;
    2: something has to be corrected first; 1: anything else, another run in the same folder among
    it: try again.
    """
    from irt_dask.clusters.config import validated
    from irt_dask.workflow import ScoringConfig

    known = prior in ("normal", "groups", "covariates")
    section["prior"] = prior if known else prior.split(",")
    config = validated(ScoringConfig, {"scoring": section, "seed": seed}, "score")
    _score(config, cluster, as_json, quiet)


def _score(config: Any, cluster: Any, as_json: bool, quiet: bool) -> None:
    from irt_dask.workflow import score_store

    with workers(cluster) as client, warned():
        result = score_store(config, client=client, progress=False if quiet else None)
    keys = ("n_persons", "n_blocks_scored", "n_blocks_kept", "n_at_bound", "mean_ability",
            "sd_ability", "reliability", "n_item_draws", "n_plausible", "store")  # fmt: skip
    show({k: result.attrs[k] for k in keys}, as_json)


@click.command()
@click.argument("directory", type=click.Path())
def report(directory: str) -> None:
    """Write the report of a finished run again, and print its path."""
    from irt_dask.workflow.run import report_again

    click.echo(report_again(directory))
