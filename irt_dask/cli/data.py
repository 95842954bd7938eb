"""Commands about data and the package: ingest, append, simulate, verify, info, docs."""

from __future__ import annotations

from importlib import resources
from typing import Any

import click

from irt_dask.cli.common import cluster_option, json_option, quiet_option, show, warned, workers
from irt_dask.errors import InputError
from irt_dask.store import Responses, open_responses


def _columns(pairs: tuple[str, ...]) -> dict[str, Any] | None:
    out: dict[str, Any] = {}
    for pair in pairs:
        role, sign, name = pair.partition("=")
        if not sign:
            raise InputError(f"--column {pair!r}: write ROLE=NAME, for example person=student")
        out[role] = name.split(",") if role == "items" else name
    return out or None


def _recode(pairs: tuple[str, ...]) -> dict[str, str] | None:
    out = {}
    for pair in pairs:
        code, sign, meaning = pair.rpartition("=")
        if not sign:
            raise InputError(f"--recode {pair!r}: write CODE=MEANING, for example 9=wrong")
        out[code] = meaning
    return out or None


def _source_options(command: Any) -> Any:
    """Options of the commands that read a response file."""
    for option in reversed([
        click.option("--shape", type=click.Choice(["long", "wide"]), help="Say it where the header "
                     "is ambiguous: long (a row per response) or wide (a row per person)."),
        click.option("--column", "columns", multiple=True, metavar="ROLE=NAME",
                     help="Name a column: person=, item=, response= (long); person=, items=A,B,C "
                     "(wide); weight=, group=. Repeat as needed."),
        click.option("--missing", multiple=True, metavar="CODE", help="A code that means not "
                     "observed, beside empty, NA, NaN, -1 and a dot. Repeat as needed."),
        click.option("--recode", multiple=True, metavar="CODE=MEANING", help="What a code means: "
                     "right, wrong or missing, for example 9=wrong. Repeat as needed."),
        click.option("--key", type=click.Path(), help="For raw answers: a CSV file with columns "
                     "item and key, the right option of each item."),
        click.option("--persons", type=click.Path(), help="A second file with a row per person: "
                     "person, weight, group, covariates."),
        click.option("--on-error", type=click.Choice(["raise", "quarantine"]), default="raise",
                     show_default=True, help="Stop at a bad row, or put bad rows into a file "
                     "beside the store and go on."),
        click.option("--rows-per-block", type=int, help="Persons per block (default: by size)."),
    ]):  # fmt: skip
        command = option(command)
    return command


def _read(
    function: Any, source: str, store: str, cluster: str, as_json: bool, quiet: bool,
    columns: tuple[str, ...], recode: tuple[str, ...], **options: Any,
) -> None:  # fmt: skip
    """Call ingest or append and describe the store."""
    with workers(cluster) as client, warned():
        made = function(
            source, store, columns=_columns(columns), recode=_recode(recode), client=client,
            progress=False if quiet else None, **options,
        )  # fmt: skip
    show(_about(made), as_json)


@click.command()
@click.argument("source", type=click.Path())
@click.argument("store", type=click.Path())
@_source_options
@click.option("--layout", type=click.Choice(["auto", "dense", "csr"]), default="auto",
              show_default=True, help="How blocks hold responses: csr (observed ones alone) where "
              "fewer than 10% of the cells are observed.")  # fmt: skip
@click.option(
    "--weight-kind",
    type=click.Choice(["sampling", "frequency"]),
    default="sampling",
    show_default=True,
    help="What person weights are: of a sample (divided by their mean) "
    "or counts of equal persons (whole numbers).",
)
@cluster_option("none")
@json_option
@quiet_option
def ingest(**options: Any) -> None:
    """Read a response file into a new store.

    SOURCE is a CSV, TSV or JSON lines file (.gz too) or a Parquet file, long (columns person, item,
    response) or wide (a row per person, a column per item). Responses are 1 (right) and 0 (wrong),
    unless --key or --recode say otherwise.
    """
    from irt_dask.ingest import ingest as ingest_responses

    _read(ingest_responses, **options)


@click.command()
@click.argument("source", type=click.Path())
@click.argument("store", type=click.Path())
@_source_options
@cluster_option("none")
@json_option
@quiet_option
def append(**options: Any) -> None:
    """Add the persons of a response file to a store.

    The file has items that the store knows and persons that it does not. A run that is stopped
    leaves the store as it was.
    """
    from irt_dask.ingest import append as append_responses

    _read(append_responses, **options)


@click.command()
@click.argument("store", type=click.Path())
@click.option("--persons", type=int, required=True, help="Number of persons.")
@click.option("--items", type=int, required=True, help="Number of items.")
@click.option("--missing", type=float, default=0.0, show_default=True, help="Share not observed.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--truth", type=click.Path(), help="Write the true items as a bank (.csv, .json).")
@json_option
def simulate(
    store: str, persons: int, items: int, missing: float, seed: int, truth: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Simulate 2PL responses with known parameters into a new store."""
    from irt_dask.banks import check_new_path, write_items
    from irt_dask.simulate import simulate as simulate_responses

    if truth is not None:
        check_new_path(truth)
    made = simulate_responses(persons, items, missing=missing, seed=seed, store=store)
    if truth is not None:
        assert made.truth is not None
        write_items(made.truth, truth)
    show(_about(made), as_json)


@click.command()
@click.argument("store", type=click.Path())
def verify(store: str) -> None:
    """Read every byte of a store and name what is damaged or missing."""
    open_responses(store).verify()
    click.echo(f"{store}: every file is there and unchanged")


@click.command()
@click.argument("store", type=click.Path(), required=False)
@json_option
def info(store: str | None, as_json: bool) -> None:
    """Describe a store; without one, the versions in use."""
    from irt_dask.clusters.checks import versions

    show(_about(open_responses(store)) if store else versions(), as_json)


def _about(r: Responses) -> dict[str, Any]:
    k = r.n_categories
    return {
        "store": r.path,
        "persons": r.n_persons,
        "items": r.n_items,
        "blocks": r.n_blocks,
        "categories": " to ".join(map(str, sorted({min(k), max(k)}))),
        "layout": r.layout,
        "weights": "none" if r.max_weight is None else r.weight_kind,
        "groups": r.has_groups,
        "covariates": ", ".join(r.covariate_names) or "none",
        "rows_put_aside": r.n_quarantined,
        "checksum": r.fingerprint,
    }


@click.command()
@click.argument("topic", required=False)
def docs(topic: str | None) -> None:
    """Show the documentation; without a TOPIC, list the topics."""
    folder = resources.files("irt_dask") / "docs"
    pages = {p.name.removesuffix(".md"): p for p in folder.iterdir() if p.name.endswith(".md")}
    if topic is None:
        for name in sorted(pages):
            title = pages[name].read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
            click.echo(f"{name:<12} {title}")
    elif topic in pages:
        click.echo_via_pager(pages[topic].read_text(encoding="utf-8"))
    else:
        raise InputError(f"there is no topic {topic!r}; topics: {', '.join(sorted(pages))}")
