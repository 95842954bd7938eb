"""Commands about data and the package: simulate, ingest, verify, info, docs."""

from __future__ import annotations

from importlib import resources
from typing import Any

import click

from irt_dask.cli.common import json_option, open_any, quiet_option, show
from irt_dask.errors import InputError


def _columns(pairs: tuple[str, ...]) -> dict[str, Any] | None:
    out: dict[str, Any] = {}
    for pair in pairs:
        role, sign, name = pair.partition("=")
        if not sign:
            raise InputError(f"--column {pair!r}: write ROLE=NAME, for example person=student")
        out[role] = name.split(",") if role == "items" else name
    return out or None


@click.command()
@click.argument("source", type=click.Path())
@click.argument("store", type=click.Path())
@click.option("--shape", type=click.Choice(["long", "wide"]), help="Say it where the header is "
              "ambiguous: long (a row per response) or wide (a row per person).")  # fmt: skip
@click.option("--column", "columns", multiple=True, metavar="ROLE=NAME",
              help="Name a column: person=, item=, response= (long); person=, items=A,B,C (wide); "
              "weight=, group=. Repeat as needed.")  # fmt: skip
@click.option("--missing", multiple=True, metavar="CODE", help="A code that means not observed, "
              "beside empty, NA, NaN and -1. Repeat as needed.")  # fmt: skip
@click.option("--rows-per-block", type=int, help="Persons per block (default: by size).")
@json_option
@quiet_option
def ingest(
    source: str, store: str, shape: str | None, columns: tuple[str, ...], missing: tuple[str, ...],
    rows_per_block: int | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Read a response file into a new store.

    SOURCE is a CSV or TSV file (.gz too), long (columns person, item, response) or wide (a row per
    person, a column per item). Responses are 1 (right) and 0 (wrong).
    """
    from irt_dask.ingest import ingest as ingest_responses

    made = ingest_responses(
        source, store, shape=shape, columns=_columns(columns), missing=missing,
        rows_per_block=rows_per_block, progress=False if quiet else None,
    )  # fmt: skip
    show(_about(made), as_json)


@click.command()
@click.argument("store", type=click.Path())
@click.option("--persons", type=int, required=True, help="Number of persons.")
@click.option("--items", type=int, required=True, help="Number of items.")
@click.option("--missing", type=float, default=0.0, show_default=True, help="Share not observed.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--truth", type=click.Path(), help="Write the true items as a bank (.csv, .json).")
@json_option
def simulate(
    store: str,
    persons: int,
    items: int,
    missing: float,
    seed: int,
    truth: str | None,
    as_json: bool,
) -> None:
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
    open_any(store).verify()
    click.echo(f"{store}: every file is there and unchanged")


@click.command()
@click.argument("store", type=click.Path(), required=False)
@json_option
def info(store: str | None, as_json: bool) -> None:
    """Describe a store; without one, the versions in use."""
    from irt_dask.clusters.checks import versions

    show(_about(open_any(store)) if store else versions(), as_json)


def _about(r: Any) -> dict[str, Any]:
    return {
        "store": r.path,
        "persons": r.n_persons,
        "items": r.n_items,
        "blocks": r.n_blocks,
        "layout": r.layout,
        "weights": r.max_weight is not None,
        "groups": r.has_groups,
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
