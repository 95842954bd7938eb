"""Commands about data and the package: ingest, append, simulate, verify, info, docs."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import click

from irt_dask.cli import common
from irt_dask.cli.common import (
    cluster_option,
    json_option,
    quiet_option,
    shortened,
    show,
    warned,
    workers,
)
from irt_dask.cli.spoken import list_of
from irt_dask.errors import InputError
from irt_dask.store import Responses, open_responses
from irt_dask.store.nonresponse import says_nonresponse
from irt_dask.store.stored import collapsed_of, reversed_of


def columns_of(pairs: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the columns named by ROLE=NAME."""
    out: dict[str, Any] = {}
    for pair in pairs:
        role, sign, name = pair.partition("=")
        if not sign:
            raise InputError(f"--column {pair!r}: write ROLE=NAME, for example person=student")
        if role in ("items", "covariates", "labels"):
            out[role] = out.get(role, []) + list_of(name)
        elif out.setdefault(role, name) != name:
            raise InputError(f"--column {role}= is there twice, {out[role]!r} and {name!r}")
    return out or None


def listed_names(texts: tuple[str, ...]) -> list[str]:
    """Return the names of an option that may be repeated."""
    return [name for text in texts for name in list_of(text)]


def _recode(pairs: tuple[str, ...]) -> dict[str, str | int] | str | None:
    if len(pairs) == 1 and "=" not in pairs[0]:
        from irt_dask.ingest.sources.delimited import DELIMITERS  # what reads files is compiled
        from irt_dask.ingest.text.files import kind_of

        if kind_of(PurePath(pairs[0])) in DELIMITERS:
            return pairs[0]
    out: dict[str, str | int] = {}
    for pair in pairs:
        code, sign, word = pair.rpartition("=")
        if not sign:
            raise InputError(
                f"--recode {pair!r}: write CODE=MEANING, for example 9=wrong, or the name of one "
                f"CSV file with columns item, label and code alone"
            )
        meaning = int(word) if word.isascii() and word.isdecimal() else word
        if out.setdefault(code, meaning) != meaning:
            raise InputError(f"--recode: {code!r} has two meanings, {out[code]!r} and {meaning!r}")
    return out or None


def _numbered(text: str) -> list[str]:
    """Return the parts of A=4,B=2; the text itself where they are none."""
    parts = list_of(text)
    return parts if all(re.fullmatch(r".+=[0-9]+", part, re.DOTALL) for part in parts) else [text]


def _categories(given: tuple[str, ...]) -> int | str | dict[str, int] | None:
    """Return a number for all items, "data" or a file; numbers by item where several are given."""
    by_item: dict[str, int] = {}
    for text in itertools.chain(*map(_numbered, given)):
        item, sign, k = text.rpartition("=")
        if not (sign and k.isascii() and k.isdecimal()):
            if len(given) == 1:
                return int(text) if text.isascii() and text.isdecimal() else text
            raise InputError(
                f"--categories {text!r}: write ITEM=K where it is there several times, else a "
                f"number, 'data' or a file"
            )
        if by_item.setdefault(item, int(k)) != int(k):
            raise InputError(f"--categories: {item!r} has two numbers, {by_item[item]} and {k}")
    return by_item or None


#: Options of any table of answers.
_SHAPE = click.option(
    "--shape", type=click.Choice(["long", "wide"]), help="Say it where the header "
    "is ambiguous: long (a row per response) or wide (a row per person)."
)  # fmt: skip
_EXCLUDE = click.option(
    "--exclude", multiple=True, metavar="A,B", help="Columns of a wide file that "
    "are no items: names, globs and ranges. Repeat as needed."
)  # fmt: skip
_DELIMITER = click.option(
    "--delimiter", metavar="SIGN", help="What separates values, ';' for example, "
    "or 'tab' (default: by the file's ending and header)."
)  # fmt: skip
_ENCODING = click.option(
    "--encoding", metavar="NAME", help="What text is written in, cp1252 or utf-16 "
    "for example (default: UTF-8, or what a byte order mark says)."
)  # fmt: skip


def table_options(command: Any) -> Any:
    """Options of the commands that read a table of answers for a purpose of their own."""
    for option in (_ENCODING, _DELIMITER, _EXCLUDE, _SHAPE):
        command = option(command)
    return command


def _source_options(command: Any) -> Any:
    """Options of the commands that read a response file."""
    for option in reversed([
        _SHAPE,
        click.option("--column", "columns", multiple=True, metavar="ROLE=NAME",
                     help="Name a column: person=, item=, response= (long); person=, items=A,B "
                     "(wide); weight=, group=. Items are names, globs (items='q*') and ranges "
                     "(items=q1:q40: from q1 to q40 as the file has them); covariates=age,books "
                     "(wide) are numbers of the persons; labels=school,sex are covariates, here or "
                     "of --persons, that are text. Repeat as needed."),
        _EXCLUDE,
        click.option("--facet", "facets", multiple=True, metavar="A,B", help="A column of a long "
                     "file that holds levels of a facet, such as the rater: an item at a level is "
                     "then a column, item@level. Repeat as needed."),
        click.option("--missing", multiple=True, metavar="CODE", help="A code that means not "
                     "observed, beside empty, NA, N/A, NULL, -1, a dot, ... Repeat as needed."),
        click.option("--recode", multiple=True, metavar="CODE=MEANING", help="What a code or label "
                     "means: right, wrong, missing, omitted, 'not reached' or a number, for "
                     "example 9=wrong or agree=3; repeat as needed. Or a CSV file with columns "
                     "item, label and code: what labels of these items mean (q*: of all such)."),
        click.option("--key", type=click.Path(), help="For raw answers: a CSV file with columns "
                     "item and key (or answer), the right option of each item; for partial credit "
                     "also score, with a row for each option that has one."),
        click.option("--categories", multiple=True, metavar="K", help="Number of categories of all "
                     "items (codes 0 to K - 1; default 2), or A=K,B=K (repeat as needed), or a CSV "
                     "file with columns item and categories, or 'data': by the highest code."),
        click.option("--reverse", multiple=True, metavar="A,B", help="Items whose codes are "
                     "counted back, k to K - 1 - k: names, globs and ranges. Repeat as needed."),
        click.option("--null-categories", type=click.Choice(["raise", "keep", "collapse"]),
                     default="raise", show_default=True, help="A category of an item with more "
                     "than two that has no response: stop, take it, or drop it for good."),
        click.option("--persons", type=click.Path(), help="A second file with a row per person: "
                     "person, weight, group, covariates."),
        _DELIMITER,
        click.option("--decimal", type=click.Choice([".", ","]),
                     help="The decimal sign in numbers (default: the dot)."),
        _ENCODING,
        click.option("--on-error", type=click.Choice(["raise", "quarantine"]), default="raise",
                     show_default=True, help="Stop at a bad row, or put bad rows into a file "
                     "beside the store and go on."),
        click.option("--rows-per-block", type=click.IntRange(min=1),
                     help="Persons per block (default: by size)."),
    ]):  # fmt: skip
        command = option(command)
    return command


def ingest_options(command: Any) -> Any:
    """Options of the commands that read a response file, or look at one, for a new store."""
    command = click.option(
        "--weight-kind", type=click.Choice(["sampling", "frequency"]), default="sampling",
        show_default=True, help="What person weights are: of a sample (divided by their mean) "
        "or counts of equal persons (whole numbers).",
    )(command)  # fmt: skip
    command = click.option(
        "--layout", type=click.Choice(["auto", "dense", "csr"]), default="auto", show_default=True,
        help="How blocks hold responses: csr (observed ones alone) where fewer than 10% of the "
        "cells are observed.",
    )(command)  # fmt: skip
    return _source_options(command)


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a response file as keywords of ingest."""
    columns = columns_of(options["columns"])
    if facets := listed_names(options["facets"]):
        columns = {**(columns or {}), "facets": facets}
    options = {name: value for name, value in options.items() if name != "facets"}
    lists = {
        "columns": columns,
        "exclude": listed_names(options["exclude"]),
        "recode": _recode(options["recode"]),
        "categories": _categories(options["categories"]),
        "reverse": listed_names(options["reverse"]),
    }
    if "trials" in options:
        lists["trials"] = trials_of(options["trials"])
    return options | lists


trials_option = click.option(
    "--trials", metavar="COLUMN|N", help="Several attempts of a person at an item: the "
    "column that names them (a response is then how many are right of n), or the number "
    "n of which each response is the share right.",
)  # fmt: skip


def trials_of(given: str | None) -> str | int | None:
    """Return the column of attempts, or their number."""
    return int(given) if given is not None and given.isdecimal() else given


def _read(
    function: Any, source: str, store: str, cluster: str, as_json: bool, quiet: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Call ingest or append and describe the store."""
    with warned(quiet), workers(cluster, quiet=quiet) as client:
        made = function(
            source, store, client=client, progress=False if quiet else None,
            **given_options(options),
        )  # fmt: skip
    show(_about(made, as_json), as_json)


@click.command()
@click.argument("source", type=click.Path())
@click.argument("store", type=click.Path())
@ingest_options
@trials_option
@cluster_option("none")
@json_option
@quiet_option
def ingest(**options: Any) -> None:
    """Read a response file into a new store.

    SOURCE is a CSV, TSV or JSON lines file (.gz too) or a Parquet file, long (columns person, item,
    response) or wide (a row per person, a column per item). Responses are 1 (right) and 0 (wrong),
    or codes from 0 where --categories says so, unless --key or --recode say otherwise.
    """
    from irt_dask.ingest import ingest as ingest_responses

    _read(ingest_responses, **options)


@click.command()
@click.argument("source", type=click.Path())
@click.argument("store", type=click.Path())
@_source_options
@click.option("--on-duplicate", type=click.Choice(["raise", "skip", "quarantine", "merge"]),
              default="raise", show_default=True, help="A person who is in the store: stop; leave "
              "the rows out; put them into a file beside the store; or fill what was not observed "
              "(another value than the stored one is a bad row).")  # fmt: skip
@cluster_option("none")
@json_option
@quiet_option
def append(**options: Any) -> None:
    """Add a response file to a store: persons, and items that are new.

    What the store has does not change; earlier persons have not observed new items. A run that is
    stopped leaves the store as it was.
    """
    from irt_dask.ingest import append as append_responses

    _read(append_responses, **options)


@click.command()
@click.argument("store", type=click.Path())
@click.option("--persons", type=int, required=True, help="Number of persons.")
@click.option("--items", type=int, required=True, help="Number of items.")
@click.option("--model", default="2pl", show_default=True, metavar="MODEL",
              help="Item response model, as of 'irt-dask calibrate --method marginal': 1pl to 4pl, "
              "graded, gpcm, pcm, rating, nominal, binomial; two joined by a plus; or a .csv or "
              ".json of columns item (item1, item2, ...) and model.")  # fmt: skip
@click.option("--categories", multiple=True, metavar="K", help="Number of categories of all items "
              "(default 2), or item1=K,item2=K (2 of the others; repeat as needed), or a CSV file "
              "with columns item and categories.")  # fmt: skip
@click.option("--missing", type=float, default=0.0, show_default=True, help="Share not observed.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--truth", type=click.Path(), help="Write the true items as a bank (.csv, .json).")
@cluster_option()
@json_option
@quiet_option
def simulate(
    store: str, persons: int, items: int, model: str, categories: tuple[str, ...], missing: float,
    seed: int, truth: str | None, cluster: str, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Simulate responses with known parameters into a new store."""
    from irt_dask.banks import check_new_path, write_items
    from irt_dask.cli.calibrate import named_models
    from irt_dask.ingest.columns.limits import DATA
    from irt_dask.ingest.sources.item_tables import read_categories
    from irt_dask.simulate import simulate as simulate_responses

    if truth is not None:
        check_new_path(truth)
    k = read_categories(_categories(categories))
    if k == DATA:
        raise InputError("--categories data is of a file's responses: here give numbers")
    if cluster == "auto":
        cluster = "local" if persons * items >= common.LARGE else "none"
    with warned(quiet), workers(cluster, quiet=quiet) as client:
        made = simulate_responses(
            persons, items, model=named_models(model), categories=k, missing=missing, seed=seed,
            store=store, client=client, progress=False if quiet else None,
        )  # fmt: skip
    if truth is not None:
        assert made.truth is not None
        write_items(made.truth, truth)
    show(_about(made, as_json), as_json)


@click.command()
@click.argument("store", type=click.Path())
@json_option
def verify(store: str, as_json: bool) -> None:
    """Read every byte of a store and name what is damaged or missing.

    Exit code 0 if nothing is.
    """
    responses = open_responses(store)
    responses.verify()
    if as_json:
        about = {"store": store, "persons": responses.n_persons, "items": responses.n_items}
        show({**about, "checksum": responses.fingerprint}, True)
        return
    click.echo(f"{store}: every file is there and unchanged")


@click.command()
@click.argument("store", type=click.Path(), required=False)
@json_option
def info(store: str | None, as_json: bool) -> None:
    """Describe a store; without one, the versions in use."""
    from irt_dask.clusters.checks import versions

    show(_about(open_responses(store), as_json) if store else versions(), as_json)


def _about(r: Responses, as_json: bool) -> dict[str, Any]:
    """Describe a store, for scripts with all items."""
    items: dict[str, Any] = {
        "items": r.n_items, "item_id": list(r.item_id), "n_categories": list(r.n_categories)
    }  # fmt: skip
    return {
        "store": r.path,
        "persons": r.n_persons,
        **(items if as_json else {"items": f"{r.n_items}: {shortened(r.item_id)}"}),
        "blocks": r.n_blocks,
        "categories": of_categories(r.n_categories),
        **_dropped(r, as_json),
        "layout": r.layout,
        "weights": "none" if r.max_weight is None else r.weight_kind,
        "groups": r.has_groups if as_json else ("yes" if r.has_groups else "none"),
        "covariates": ", ".join(_covariates(r)) or "none",
        "rows_put_aside": r.n_quarantined,
        **({"says_what_was_omitted": True} if says_nonresponse(r) else {}),
        "checksum": r.fingerprint,
    }


def _covariates(r: Responses) -> list[str]:
    """Names, and how many labels those have that are labels."""
    n = {name: f" ({len(own)} labels)" for name, own in r.covariate_labels.items()}
    return [f"{name}{n.get(name, '')}" for name in r.covariate_names]


def _dropped(r: Responses, as_json: bool) -> dict[str, Any]:
    """Say which items have lost categories without a response, and which are counted back."""
    collapsed, back = collapsed_of(r), reversed_of(r)
    if as_json:
        by_item = {item: list(codes) for item, codes in collapsed.items()}
        return {"collapsed": by_item, "reversed": list(back)}
    items = [
        f"{item} ({', '.join(str(c) for c, to in enumerate(codes) if to is None)})"
        for item, codes in collapsed.items()
    ]
    found = {"dropped_categories": shortened(items)} if items else {}
    return found | ({"reversed_items": shortened(back)} if back else {})


def of_categories(n_categories: Sequence[int]) -> str:
    """Say how many items have how many categories."""
    n = Counter(n_categories)
    if len(n) == 1:
        return str(min(n))
    return ", ".join(f"{k} ({count} item{'s' * (count > 1)})" for k, count in sorted(n.items()))
