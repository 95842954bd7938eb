"""The command calibrate: items of a store, as an item bank and as the whole fit."""

from __future__ import annotations

import itertools
from typing import Any

import click
import numpy as np
import xarray as xr
from click.core import ParameterSource

from irt_dask.cli import concurrent
from irt_dask.cli.common import (
    cluster_option,
    counted,
    dichotomise_option,
    groups_of,
    json_option,
    nonresponse_options,
    quiet_option,
    remark,
    rows,
    say,
    show,
    warned,
    weights_option,
    workers,
)
from irt_dask.errors import InputError, repeated
from irt_dask.items.mixture import check_names, has_guessing
from irt_dask.store import open_responses
from irt_dask.store.dichotomy import in_two

#: Methods, and those of the options of ``calibrate`` that only some have.
_METHODS: dict[str, tuple[str, ...]] = {
    "bayes": (
        "model", "guessing_prior", "positive", "item_table", "shards", "draws", "chains", "start",
        "checkpoint", "seed",
    ),
    "marginal": (
        "model", "groups", "reference_group", "latent", "fixed_items", "guessing_prior", "prior",
        "positive", "standard_errors", "standard_errors_from", "sampling_unit", "facets",
        "item_table", "null_categories", "max_iterations", "start", "checkpoint",
    ),
    "concurrent": (
        "model", "free", "rate", "least", "sets", "reference_group", "guessing_prior",
        "standard_errors", "standard_errors_from", "sampling_unit", "max_iterations", "checkpoint",
    ),
    "joint": ("model", "coreset", "max_iterations", "start", "checkpoint", "seed"),
    "spectral": ("standard_errors",),
    "pairwise": ("pairing", "standard_errors"),
    "conditional": ("model", "max_iterations"),
}  # fmt: skip
#: Options that the functions call otherwise.
_KEYWORDS = {"shards": "n_shards", "draws": "n_draws", "chains": "n_chains"}
#: Anchors that are printed.
_MOST_ANCHORS = 10
#: Items freed in groups that are printed.
_MOST_FREED = 20
#: Effects of facets that are printed.
_MOST_EFFECTS = 20
#: What is said of a fit, where it says so itself.
_SHOWN = (
    "method", "model", "identification", "latent", "converged", "n_iterations", "objective",
    "log_likelihood", "log_prior", "prior", "guessing_prior", "n_parameters", "aic", "bic",
    "n_persons", "weight_kind", "mean_weight", "standard_errors", "n_sampling_units",
    "degrees_of_freedom", "anchor_chi2", "anchor_df", "anchor_p_value", "anchor_errors", "free",
    "rate", "least", "n_freed", "n_rounds", "stable",
)  # fmt: skip


def _refuse_options_of_other_methods(method: str) -> None:
    context = click.get_current_context()
    for option in dict.fromkeys(itertools.chain(*_METHODS.values())):
        typed = context.get_parameter_source(option) is ParameterSource.COMMANDLINE
        methods = [name for name, options in _METHODS.items() if option in options]
        if typed and method not in methods:
            known = next(p for p in context.command.params if p.name == option)
            names = known.opts if context.params[option] is not False else known.secondary_opts
            raise InputError(f"{names[0]} belongs to --method {' or '.join(methods)}")


def _model(text: str | None, method: str) -> str | dict[str, str]:
    """The option --model: a name, or the models that a file says."""
    usual = "rasch" if method == "conditional" else "2pl"
    return usual if text is None or text == usual else named_models(text)


def named_models(text: str) -> str | dict[str, str]:
    """What somebody typed for models: a name, or those that a file says."""
    if not text.endswith((".csv", ".json")):
        check_names(text)
        return text
    from irt_dask.banks.tables import read_table

    table = read_table(text, "file of models")
    table.check_columns("item", "model")
    table.check_items()
    items = [str(item) for item in table.items]
    if twice := repeated(items):
        raise InputError(f"--model {text}: the item {twice[0]!r} is there twice")
    found = dict(zip(items, table.words("model"), strict=True))
    check_names(found)
    return found


def _guessing_prior(text: str | None, model: Any) -> dict[str, Any]:
    """The option --guessing-prior as one of ``fit_marginal``; nothing if it was not typed."""
    if text is None:
        return {}
    if not has_guessing(model):
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


def _standard_errors(wanted: bool | None, how: str | None) -> dict[str, Any]:
    """The options --standard-errors and --standard-errors-from as one of ``fit_marginal``."""
    if how is not None and wanted is False:
        raise InputError(f"--no-standard-errors and --standard-errors-from {how}: leave one out")
    return {"standard_errors": wanted if how is None else how}


@click.command()
@click.argument("store", type=click.Path())
@click.option(
    "--out",
    type=click.Path(),
    required=True,
    help="Item bank to write (.csv, .json), "
    "beside bank.csv also bank.covariance.csv, which link takes.",
)
@click.option("--fit", "kept", type=click.Path(), metavar="FILE.nc",
              help="Keep the whole fit too, as netCDF: what a bank has no column for (groups, "
              "draws, tests of anchors, how the fit went). score, dif, fit, information, link and "
              "report take it in place of a bank.")  # fmt: skip
@click.option("--method", type=click.Choice([*_METHODS]), default="bayes", show_default=True,
              help="Posterior by LS-WASP, marginal or joint maximum likelihood, concurrent "
              "calibration of many groups (marginal, items freed in groups where they work "
              "otherwise), or a Rasch one: spectral, pairwise (all pairs) or conditional.",
              )  # fmt: skip
@click.option("--model", metavar="MODEL",
              help="Item response model: 1pl to 4pl (marginal, joint; default: 2pl); with marginal "
              "also those of any number of categories: graded, gpcm, pcm, rating, nominal, "
              "binomial; two "
              "joined by a plus (of two categories, of more: 3pl+gpcm); or a .csv or .json of "
              "columns item and model. Bayes: the same (default: 2pl; nominal: "
              "with --positive none). "
              "Conditional: rasch (the default), pcm, rating.")  # fmt: skip
@click.option("--groups/--no-groups", default=None,
              help="Whether each group of persons has its own mean and SD of ability (marginal; "
              "default: if the store has groups).")  # fmt: skip
@click.option("--reference-group", metavar="GROUP",
              help="The group with mean 0 and SD 1 (marginal; default: the first in alphabetical "
              "order).")  # fmt: skip
@click.option("--free", default="test", show_default=True, metavar="WHICH",
              help="Items that get parameters of their own in a group: by a test; beyond a cut-off "
              "of RMSD, such as 0.12; or none (concurrent).")  # fmt: skip
@click.option("--rate", type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True), default=0.05,
              show_default=True, help="Share of false ones among what is freed by the test "
              "(concurrent).")  # fmt: skip
@click.option("--least", type=click.FloatRange(0.0, 1.0, max_open=True), default=0.0,
              show_default=True, help="RMSD, beyond what chance makes, that an item has to have in "
              "a group to be freed by the test (concurrent).")  # fmt: skip
@click.option("--sets", type=click.Path(), metavar="FILE",
              help="Groups that share the items that are freed in them, such as a country over "
              "cycles: a .csv or .json of columns group and set (concurrent).")  # fmt: skip
@click.option("--latent", type=click.Choice(["normal", "histogram"]), default="normal",
              show_default=True, help="Distribution of ability in each group: normal, or free "
              "masses from -6 to 6 (marginal).")  # fmt: skip
@click.option("--fixed-items", type=click.Path(), metavar="BANK",
              help="Anchors: item bank whose items keep their parameters and the standard errors "
              "that they came with; the others are calibrated on its scale (marginal).",
              )  # fmt: skip
@click.option("--guessing-prior", metavar="ALPHA,BETA",
              help="Beta prior on guessing (default 5,17), or 'none' for the maximum of the "
              "likelihood alone, as likelihood-ratio tests need it (marginal).")  # fmt: skip
@click.option("--prior", type=click.Choice(["empirical"]),
              help="Learn mean and covariance of the items' slopes and intercepts from the items, "
              "and estimate these with it: for few persons (marginal; posteriors learn theirs).",
              )  # fmt: skip
@click.option("--positive", type=click.Choice(["all", "none"]), default="all", show_default=True,
              help="Whether all discriminations are positive, or any may be negative, as of items "
              "with a reversed key, or of votes (bayes, marginal).")  # fmt: skip
@click.option("--item-table", type=click.Path(), metavar="FILE",
              help="What is known of the items, for their prior: a .csv or .json of columns item; "
              "block (a benchmark, a domain: what its items have in common is learned); and "
              "numbers, covariates of their difficulty and discrimination (bayes). With --facet: "
              "covariates, numbers or text, that facets name (marginal).")  # fmt: skip
@click.option("--standard-errors/--no-standard-errors", default=None,
              help="Whether to find standard errors (marginal, spectral, pairwise; default: where "
              "their matrix is not too large, with marginal up to 2,000 parameters).")  # fmt: skip
@click.option("--standard-errors-from", type=click.Choice(["information", "sandwich"]),
              help="How standard errors are found: from the information, as if the model held and "
              "persons were drawn one by one, or from how much persons differ (marginal, "
              "concurrent; default: information, with sampling weights sandwich).")  # fmt: skip
@click.option("--sampling-unit", metavar="NAME",
              help="What was drawn before persons were, such as schools: a covariate of the "
              "persons, or person_group. Standard errors are then those of a sample of such units "
              "(marginal, concurrent).")  # fmt: skip
@click.option("--facet", "facets", multiple=True, metavar="TERM",
              help="What levels stand for in the names of columns, item@level, such as the rater, "
              "whose effects on difficulty are estimated; repeat for item@level@level. "
              "'number(position)': numbers, with one coefficient. 'rater:format': effects that "
              "differ by a column of --item-table. 'item ~ format + words': difficulties that such "
              "columns alone make (marginal).")  # fmt: skip
@click.option("--null-categories", type=click.Choice(["raise", "keep", "collapse"]),
              default="raise", show_default=True, help="What becomes of categories that nobody "
              "has, of items with more than two: an error; or they have probability 0, and are "
              "counted or not in the scores of gpcm, pcm and rating items (marginal).",
              )  # fmt: skip
@click.option("--max-iterations", type=click.IntRange(min=1), metavar="N",
              help="Iterations after which an estimate that has not converged is given up "
              "(marginal: 500; joint: 50, with --coreset at least 8; conditional: 50).",
              )  # fmt: skip
@click.option("--start", type=click.Path(), metavar="BANK",
              help="Start values: a bank or a fit of the same items, such as the 2PL for a 3PL "
              "(marginal, joint, bayes).")  # fmt: skip
@click.option("--shards", type=int, default=1, show_default=True, help="Shards (bayes).")
@click.option("--draws", type=int, default=2000, show_default=True,
              help="Draws of each chain (bayes).")  # fmt: skip
@click.option("--chains", type=int, default=1, show_default=True,
              help="Chains of each shard (bayes); each takes one core.")  # fmt: skip
@click.option("--coreset", type=int, default=0, help="Persons per coreset, 0: all (joint).")
@click.option("--checkpoint", type=click.Path(), metavar="FOLDER",
              help="Keep what is done in FOLDER: the same command, typed again after an "
              "interruption, goes on there (bayes, marginal, joint).")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True)
@weights_option
@nonresponse_options
@dichotomise_option
@cluster_option()
@json_option
@quiet_option
def calibrate(
    store: str, out: str, kept: str | None, method: str, weights: str, cluster: str, as_json: bool,
    quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Estimate the items of a store and write them as an item bank.

    Prints how the fit went, information criteria where there is a likelihood, the means and SDs of
    ability of groups with their standard errors (which, with anchors, are on the scale of these),
    how well anchors fit, and the items that are flagged.
    """
    from irt_dask.banks import check_new_path, write_items
    from irt_dask.banks.saved import check_new_result, write_result
    from irt_dask.report.tables import caveats

    check_new_path(out)
    path = None if kept is None else check_new_result(kept)
    _refuse_options_of_other_methods(method)
    options["model"] = _model(options["model"], method)
    options |= _guessing_prior(options.pop("guessing_prior"), options["model"])
    options |= _standard_errors(options["standard_errors"], options.pop("standard_errors_from"))
    options["pairing"] = "all"  # of items, not chosen at random
    options["free"] = concurrent.free(options["free"])
    options["sets"] = concurrent.sets(options["sets"])
    options["facets"] = list(options["facets"]) or None
    fit = _fitted(store, method, weights, cluster, quiet, options)
    write_items(fit, out)
    if path is not None:
        write_result(fit, path)
    for text in () if quiet else caveats(fit.attrs):
        say(f"note: {text}", err=True)
    files = {"items": out} | ({} if kept is None else {"fit": kept})
    _tell(fit, files, as_json)


def _fitted(
    store: str, method: str, weights: str, cluster: str, quiet: bool, options: dict[str, Any]
) -> xr.Dataset:
    """The fit, its anchors with what their bank says of them, and which responses it is of."""
    import irt_dask as irt
    from irt_dask.banks.anchors import with_errors_of_anchors
    from irt_dask.banks.item_tables import read_item_covariates, read_item_table
    from irt_dask.banks.saved import of_responses, read_bank

    stored = open_responses(store)
    as_said = {name: options.pop(name) for name in ("omitted", "not_reached")}
    r = counted(stored.select(**as_said) if any(as_said.values()) else stored, weights, quiet)
    r = in_two(r, options.pop("dichotomise"))
    if method == "bayes" and r.has_groups:
        remark(
            "note: the groups of the persons are not used: bayes takes the abilities of all from "
            "one distribution, N(0, 1); --method marginal has a mean and SD of each group", quiet,
        )  # fmt: skip
    with warned(quiet):
        for name in ("fixed_items", "start"):
            if options[name] is not None:
                options[name] = read_bank(options[name])
        read = read_item_covariates if method == "marginal" else read_item_table
        table = {} if options["item_table"] is None else read(options["item_table"])
        size = options["coreset"]
        options["coreset"] = irt.Coreset(size, sampling="poisson") if size else None
        given = {o: options[o] for o in _METHODS[method] if o in options and o != "item_table"}
        if given.get("max_iterations") is None:  # each has its own default
            given.pop("max_iterations", None)
        if given.get("standard_errors") is None:
            given.pop("standard_errors", None)
        with workers(cluster, r, quiet=quiet) as client:
            fit = getattr(irt, f"fit_{method}")(
                r,
                **{_KEYWORDS.get(o, o): value for o, value in given.items()},
                **table,
                client=client,
                progress=False if quiet else None,
            )
    return of_responses(with_errors_of_anchors(fit, options["fixed_items"]), stored, r)


def _tell(fit: xr.Dataset, files: dict[str, str], as_json: bool) -> None:
    """Print what was found."""
    from irt_dask.calibrate.shared.start_values import name_some
    from irt_dask.items import checks

    flags, ids = fit["item_flag"].values, fit["item_id"].values
    flagged: Any = checks.listed(flags, ids) if as_json else checks.in_words(flags, ids) or "none"
    shown: dict[str, Any] = {k: fit.attrs[k] for k in _SHOWN if k in fit.attrs}
    shown = {**files, **shown, "flagged_items": flagged}
    slopes = (
        fit["item_discrimination"].values if "item_discrimination" in fit else np.ones(len(ids))
    )
    ordered = np.asarray(fit.get("item_model", "")) != "nominal"  # else codes say nothing of more
    if falling := ids[(slopes < 0.0) & ordered].tolist():
        shown["falling_items"] = falling if as_json else name_some(falling)
    freed = concurrent.freed(fit, as_json) if "origin_freed" in fit else []
    if freed and as_json:
        shown["freed"] = freed
    if as_json:
        if "group_label" in fit:
            shown["groups"] = groups_of(fit)
        if "item_anchor_chi2" in fit:
            shown["anchors"] = _anchors(fit)
        if "facet_effect" in fit:
            shown["effects"] = _effects(fit)
    show(shown, as_json)
    if not as_json and "group_label" in fit:
        click.echo(f"\nAbility of the groups:\n\n{rows(groups_of(fit))}")
    if not as_json and "facet_effect" in fit:
        most = _effects(fit)[:_MOST_EFFECTS]
        click.echo(f"\nEffects on difficulty, the largest first:\n\n{rows(most)}")
    if freed and not as_json:
        said = f"the first {_MOST_FREED} of {len(freed)}" if len(freed) > _MOST_FREED else "all"
        where = "sets of groups" if "group_set" in fit else "groups"
        click.echo(f"\nItems freed in {where}, by RMSD, {said}:\n\n{rows(freed[:_MOST_FREED])}")
    if not as_json and "item_anchor_chi2" in fit:
        units = fit.attrs.get("n_sampling_units")
        how = "" if "degrees_of_freedom" not in fit.attrs else f" (F tests, of {units} units)"
        click.echo(f"\nAnchors, the worst first{how}:\n\n{rows(_anchors(fit)[:_MOST_ANCHORS])}")


def _effects(fit: xr.Dataset) -> list[dict[str, Any]]:
    """Effects of facets, the largest first."""
    effect = fit["facet_effect"].values
    return [
        {
            "facet": str(fit["facet"].values[e]),
            "level": str(fit["level"].values[e]),
            "effect": float(effect[e]),
            "se": float(fit["facet_effect_se"].values[e]),
            "answers": int(fit["facet_effect_n"].values[e]),
            "shrunk": bool(fit["facet_shrunk"].values[e]),
        }
        for e in np.argsort(-np.abs(effect), kind="stable").tolist()
    ]


def _anchors(fit: xr.Dataset) -> list[dict[str, Any]]:
    """Tests of the anchors, the worst first."""
    chi2 = fit["item_anchor_chi2"].values
    at = [
        j for j in np.argsort(-np.nan_to_num(chi2, nan=-1.0), kind="stable") if chi2[j] == chi2[j]
    ]
    names = ("chi2", "p_value", "rmsd")
    return [
        {"item": str(fit["item_id"].values[j])}
        | {n: float(fit[f"item_anchor_{n}"].values[j]) for n in names}
        for j in at
    ]
