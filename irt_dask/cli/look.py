"""Commands that look at a file before it is read: check and init."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from irt_dask.cli.common import json_option, quiet_option, shortened, show
from irt_dask.cli.data import given_options, ingest_options, of_categories, trials_option
from irt_dask.cli.spoken import typed
from irt_dask.errors import InputError
from irt_dask.store.categories import BINARY
from irt_dask.store.places import local_path

if TYPE_CHECKING:
    from irt_dask.ingest.look import Look, Value

#: Processor seconds of an ingest for each MB of plain text, and of its start; its memory: what
#: Python takes, and some 10 pieces of the file for each thread.
_INGEST, _START, _BASE, _PIECES = 0.03, 1.0, 0.3e9, 10
#: Seconds of a sweep of irt-dask calibrate for an item, a person and a response ("docs scaling"),
#: and for a response where some are missing; sweeps; bytes of a response.
_SWEEP, _MISSING, _SWEEPS, _RESPONSE = (4.6e-6, 37e-9, 0.06e-9), 3.3e-9, 2500, 5
_SHOWN = 12
#: Items whose numbers of categories are spelled out.
_SAID = 4

_all_option = click.option(
    "--all", "everything", is_flag=True,
    help="Read all of a large file (default: three pieces of it), and ingest it for trial.",
)  # fmt: skip


@click.command()
@click.argument("source", type=click.Path())
@ingest_options
@trials_option
@_all_option
@json_option
@quiet_option
def check(everything: bool, as_json: bool, quiet: bool, **options: Any) -> None:
    """Say what an ingest of SOURCE would make of it, and write nothing.

    The form of the file, its rows, items and codes, columns that are perhaps no items, what is
    wrong, and about how long an ingest and a calibration take. It has the options of ingest. Of a
    file above some 48 MB three pieces are read, unless --all; the temporary files of a trial ingest
    take the place of an ingest's.
    Exit code 0, or 2 where an ingest would stop.
    """
    look, _ = _look(options, everything, quiet)
    show(_as_json(look) if as_json else _in_words(look), as_json)
    if look.problem is not None:
        raise InputError(look.problem)


@click.command()
@click.argument("source", type=click.Path())
@click.option("--out", type=click.Path(), default="pipeline.toml", show_default=True,
              help="Pipeline file to write.")  # fmt: skip
@ingest_options
@_all_option
@json_option
@quiet_option
def init(out: str, everything: bool, as_json: bool, quiet: bool, **options: Any) -> None:
    """Write a pipeline file for SOURCE, commented, from a look at it.

    What is found for sure, or said by the options (those of ingest), stands in the file; what is
    not stands there as a comment with the alternatives. Edit it, then: irt-dask run pipeline.toml
    """
    from irt_dask.cli.template import pipeline

    target = local_path(out, "a pipeline file")
    if target.exists():
        raise InputError(f"--out {out}: there already, and not overwritten")
    look, given = _look(options, everything, quiet)
    text, to_decide = pipeline(look, given, target)
    try:
        target.write_bytes(text.encode())
    except UnicodeEncodeError:
        raise InputError(
            f"{look.source.path}: a pipeline file is UTF-8, and the name of this file, or of one "
            f"that goes with it, is not; rename it"
        ) from None
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written: {error.strerror}") from None
    if as_json:
        show({"pipeline": out, "to_decide": to_decide}, True)
        return
    click.echo(f"{out}: written")
    for line in to_decide:
        click.echo(f"to decide: {line}")
    decided = f", when that is decided in {out}" if to_decide else ""
    click.echo(f"then{decided}: irt-dask run {out}")


def _look(options: dict[str, Any], everything: bool, quiet: bool) -> tuple[Look, dict[str, Any]]:
    """Look at the file; return what was seen, and what was said by options."""
    from irt_dask.ingest.look import look_at
    from irt_dask.ingest.options import Options

    source, given = options.pop("source"), given_options(options)
    trials = given.pop("trials", None)
    asked = Options(**{"shape": None, "columns": None, **given})
    progress = False if quiet else None
    look = look_at(source, asked, trials=trials, everything=everything, progress=progress)
    return look, given


# --- what is printed ------------------------------------------------------------------------------


def amount(look: Look) -> str:
    """Say how much of the file was read."""
    size = look.source.size / 1e6
    if look.whole:
        return f"all of {size:,.1f} MB" if size >= 1.0 else f"all of {1000 * size:,.1f} kB"
    return (
        f"{look.n_bytes_read / 1e6:,.0f} of {size:,.0f} MB, from its beginning, middle and end: "
        "figures are estimates, and --all reads everything"
    )


def _about(n: int, look: Look) -> str:
    return f"{n:,}" if look.whole else f"about {n:,}"


def missing_share(look: Look) -> float | None:
    """Return the share of cells without a response; None where a sample does not say it."""
    if not look.n_cells or (not look.whole and not look.source.one_row_per_person):
        return None
    return max(0.0, 1.0 - look.n_observed / look.n_cells)


def value_line(value: Value, look: Look) -> str:
    """Say how often a value occurs, and where, if that is not everywhere."""
    n = _about(round(value.n / (1 if look.whole else look.share)), look)
    where = f" in {shortened(value.columns, 4)}" if value.columns else ""
    text = value.text or "(empty)"
    return f"{text}: {n} {value.meaning}{where if value.unknown else ''}"


def suggested(look: Look) -> int | dict[str, int]:
    """Return the numbers of categories that the codes suggest, as one where all have the same."""
    found = look.perhaps_categories
    if {*look.items} <= found.keys() or "" in found:
        k = {*found.values()}
        return max(k) if len(k) == 1 or "" in found else found
    return found


def categories_line(look: Look) -> str:
    """Say which codes are perhaps those of more than two categories."""
    found, k = look.perhaps_categories, suggested(look)
    where = f" in {shortened([c for c in found if c], 4)}" if "" not in found else ""
    said = f"categories={k!r}" if isinstance(k, int) or len(k) <= _SAID else "categories= by item"
    said += ", or categories='data'" * look.perhaps_data
    highest = max(found.values())
    if look.perhaps_recode:
        return f"codes 1 to {highest}{where}; if so, say {said}, with recode={look.perhaps_recode}"
    return f"codes up to {highest - 1}{where}; if so, say {said}"


def _in_words(look: Look) -> dict[str, str]:
    roles, source = look.source.roles, look.source
    share = missing_share(look)
    least = "" if look.whole or source.one_row_per_person else "at least "
    sample = "" if look.whole else " from a sample"
    said = {
        "file": str(source.path),
        "read": amount(look),
        "form": f"{roles.form}; " + ", ".join(f"{r}: {n!r}" for r, n in roles.single.items()),
        "rows": _about(look.rows, look),
        "persons": least + _about(look.persons, look),
        "items": f"{least}{len(look.items)}: {shortened(look.items, _SHOWN)}",
        **({"covariates": shortened(look.covariates, _SHOWN)} if look.covariates else {}),
        "other columns": shortened(others(look), _SHOWN) or "none",
        "not observed": f"not known{sample}" if share is None else f"{share:.1%} of cells",
        "values": "; ".join(value_line(v, look) for v in look.values[:_SHOWN]),
    }
    if max(look.n_categories, default=BINARY) > BINARY:
        said["categories"] = of_categories(look.n_categories)
    good = " (of the rows that are not bad)" if look.n_bad else ""
    if look.weights is not None:
        said["weights"] = f"{look.weights[0]:g} to {look.weights[1]:g}{good}"
    if look.groups is not None:
        some = [f"{name} {n:,}" for name, n in list(look.groups.items())[:_SHOWN]]
        unit = "rows" if roles.group is not None else "persons"
        said["groups"] = f"{len(look.groups)}: {', '.join(some)} {unit}{good}"
    if look.perhaps_categories:
        said["perhaps categories"] = typed(
            categories_line(look), click.get_current_context().command
        )
    if look.suspects:
        told = [f"{name!r} ({why})" for name, why in list(look.suspects.items())[:_SHOWN]]
        more = len(look.suspects) - len(told)
        said["perhaps no items"] = ", ".join(told) + (f" and {more} more" if more else "")
    if look.empty:
        said["without responses"] = f"{shortened(look.empty, _SHOWN)}: left out"
    if look.n_bad:
        said["bad rows"] = _about(round(look.n_bad / (1 if look.whole else look.share)), look)
    for k, note in enumerate(_notes(look)):
        said["notes" if k == 0 else " " * k] = typed(note, click.get_current_context().command)
    for what, (seconds, memory) in estimates(look).items():
        said[what] = f"about {_duration(seconds)}, {memory / 1e9:.1f} GB of memory"
    said["estimated"] = (
        f"for {_cores()} core(s), from figures of another machine (irt-dask docs scaling)"
    )
    return said


def _notes(look: Look) -> list[str]:
    """Return what an ingest would say beside what is shown elsewhere."""
    unused = [
        f"{look.source.path}: the column {name!r} is not used; columns={{{role!r}: {name!r}}} "
        f"would do so"
        for role, name in look.unused.items()
    ]
    return look.notes + unused


def others(look: Look) -> list[str]:
    """Return the columns that are neither items nor of another role."""
    roles = look.source.roles
    taken = {*roles.items, *roles.single.values(), *roles.beside}
    return [name for name in look.source.column_names if name not in taken]


def _as_json(look: Look) -> dict[str, Any]:
    roles = look.source.roles
    return {
        "file": str(look.source.path),
        "bytes": look.source.size,
        "bytes_read": look.n_bytes_read,
        "whole": look.whole,
        "form": roles.form,
        "columns": {**roles.single, **({"covariates": roles.beside} if roles.beside else {})},
        "covariates": list(look.covariates),
        "other_columns": others(look),
        "rows": look.rows,
        "bad_rows": look.n_bad,
        "persons": look.persons,
        "items": len(look.items),
        "item_id": list(look.items),
        "missing_share": missing_share(look),
        "values": [vars(v) for v in look.values],
        "n_categories": list(look.n_categories) or None,
        "perhaps_categories": suggested(look) if look.perhaps_categories else None,
        "perhaps_recode": look.perhaps_recode or None,
        "weights": look.weights,
        "groups": look.groups,
        "perhaps_no_items": look.suspects,
        "items_without_responses": list(look.empty),
        "notes": _notes(look),
        "problem": look.problem,
        "estimates": {
            what: {"seconds": round(seconds, 1), "bytes": round(memory)}
            for what, (seconds, memory) in estimates(look).items()
        },
        "cores": _cores(),
    }


# --- what it would cost ---------------------------------------------------------------------------


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def estimates(look: Look) -> dict[str, tuple[float, float]]:
    """Return about how many seconds and bytes an ingest and a calibration take."""
    source, n, m = look.source, look.persons, len(look.items)
    piece = source.size / max(source.n_pieces, 1)
    cores = max(1, min(_cores(), source.n_pieces))
    ingest = _START + _INGEST * source.size / 1e6 / cores
    share = missing_share(look)
    cells = n * m * (1.0 - (share or 0.0))
    item, person, response = _SWEEP
    sweep = item * m + person * n + (_MISSING if share else response) * cells
    return {
        "irt-dask ingest": (ingest, _BASE + _PIECES * piece * cores),
        "irt-dask calibrate": (_START + _SWEEPS * sweep, _BASE + _RESPONSE * cells),
    }


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
