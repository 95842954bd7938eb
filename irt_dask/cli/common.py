"""Options and output that the commands share."""

from __future__ import annotations

import importlib
import json
import logging
import math
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
import numpy as np
import xarray as xr

from irt_dask.cli.spoken import list_of, typed
from irt_dask.errors import InputError, IrtDaskWarning, Notice
from irt_dask.store import Responses, open_responses
from irt_dask.store.dichotomy import in_two
from irt_dask.store.places import local_path

#: Persons x items from which a local cluster is started unasked.  Below, the threads of one process
#: are faster (two cores, 5 x 10^7: half the time, as the cluster takes 4 s of processor time to
#: start); beyond, that start no longer shows, tasks of many cores do not wait for one Python's
#: lock, and the death of a worker is survived.  Results have the same bits either way.
LARGE = 10**9

#: What Dask's processes say under --quiet: errors.  Warnings of irt_dask are said all the same.
_LOUD = {"distributed": "error", "distributed.client": "error", "distributed.gc": "error",
         "tornado": "critical", "tornado.application": "error"}  # fmt: skip


def cluster_option(default: str = "auto") -> Any:
    """The option --cluster; "auto" only for commands that know the size of their store."""
    auto = (
        "'auto' (the threads of this process, or from 10^9 persons x items on as 'local'), "
        if default == "auto"
        else ""
    )
    return click.option(
        "--cluster", metavar="WHERE", default=default, show_default=True,
        help=f"Where to compute: {auto}'local' (worker processes on all cores of this machine), "
        "'none' (this process alone), a scheduler's address such as tcp://127.0.0.1:8786, or a "
        "TOML file with a [cluster] section. The result is the same, to the last bit.",
    )  # fmt: skip


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
quiet_option = click.option(
    "--quiet", is_flag=True,
    help="No progress, no remarks, nothing of the cluster's own: warnings and errors alone.",
)  # fmt: skip


@contextmanager
def workers(
    cluster: Any, responses: Responses | None = None, *, quiet: bool = False
) -> Iterator[Any]:
    """A client for the --cluster option; None for the threads of this process.

    'auto' goes by the size of ``responses``.
    """
    if cluster == "auto" and responses is not None:
        large = responses.n_persons * responses.n_items >= LARGE
        cluster = "local" if large else "none"
    if cluster == "auto":
        raise InputError("--cluster auto: this command takes 'none', 'local', an address or a file")
    if cluster == "none":
        yield None
        return
    with _hushed() if quiet else nullcontext():
        from irt_dask.clusters import ClusterConfig, connect

        config = ClusterConfig.of(cluster)
        with connect(config) as client:
            if config.dashboard:
                remark(f"dashboard (no password): {client.dashboard_link}", quiet)
            yield client


@contextmanager
def _hushed() -> Iterator[None]:
    """Let Dask's loggers say errors alone, in this process and in those that it starts."""
    importlib.import_module("distributed")  # which sets the levels of its loggers itself
    loggers = [logging.getLogger(name) for name in _LOUD]
    before = [logger.level for logger in loggers], os.environ.get("DASK_LOGGING")
    os.environ["DASK_LOGGING"] = repr(_LOUD)  # of processes that are started
    for logger, level in zip(loggers, _LOUD.values(), strict=True):
        logger.setLevel(level.upper())
    try:
        yield
    finally:
        for logger, number in zip(loggers, before[0], strict=True):
            logger.setLevel(number)
        os.environ.pop("DASK_LOGGING")
        if before[1] is not None:
            os.environ["DASK_LOGGING"] = before[1]


weights_option = click.option(
    "--weights", type=click.Choice(["use", "ignore"]), default="use", show_default=True,
    help="Person weights of the store, if it has any: use them (a method that cannot says so), or "
    "count every person once.",
)  # fmt: skip
items_option = click.option(
    "--items", type=click.Choice(["all", "bank"]), default="all", show_default=True,
    help="Items of STORE that BANK lacks: an error (all), or ignored with a note (bank).",
)  # fmt: skip


def _lowest_right(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> int | dict[str, int] | None:
    if text is None:
        return None
    of: dict[str, int] = {}
    for part in list_of(text):
        item, sign, code = part.rpartition("=")
        if not (code.isascii() and code.isdecimal()) or item in of or (item == "") == bool(sign):
            raise InputError(f"--dichotomise {text!r}: give a number, or ITEM=NUMBER,ITEM=NUMBER")
        of[item] = int(code)
    if "" in of and len(of) > 1:
        raise InputError(f"--dichotomise {text!r}: give one number, or ITEM=NUMBER of each item")
    return of.get("", of)


dichotomise_option = click.option(
    "--dichotomise", callback=_lowest_right, metavar="AT",
    help="Take items of more than two categories as right or wrong: right from the code AT on, "
    "of all such items, or of each, A=2,B=3.",
)  # fmt: skip


_TREATED = click.Choice(["missing", "wrong"])


def nonresponse_options(command: Any) -> Any:
    """Options of commands that read a store that says what was omitted or not reached."""
    of = (
        "(of a store that knows: --recode CODE={word} of an ingest): missing, unless wrong is said."
    )
    for option, word in (("--not-reached", "'not reached'"), ("--omitted", "omitted")):
        what = f"What responses are that were {word.strip(chr(39))} "
        command = click.option(option, type=_TREATED, help=what + of.format(word=word))(command)
    return command


def counted(responses: Responses, weights: str, quiet: bool) -> Responses:
    """The responses, without their weights if these are to be ignored, which is said."""
    if weights != "ignore" or responses.max_weight is None:
        return responses
    if not quiet:
        say(
            f"note: the persons' {responses.weight_kind} weights are ignored, as weights='ignore' "
            f"asks for: results are those of the persons in the sample, who count alike, not of "
            f"the population that they stand for",
            err=True,
        )
    return responses.select(weights="ignore")


def responses_and_bank(
    store: str, bank: str, *, items: str, weights: str, quiet: bool,
    dichotomise: int | dict[str, int] | None = None,
) -> tuple[Responses, xr.Dataset]:  # fmt: skip
    """The responses of a store to the items of a bank, and these; others as ``items`` says."""
    from irt_dask.banks.saved import read_bank
    from irt_dask.score.outside import of_bank

    responses = in_two(counted(open_responses(store), weights, quiet), dichotomise)
    known = read_bank(bank)
    with warned(quiet):
        return of_bank(responses, known, "ignore" if items == "bank" else "raise"), known


def remark(text: str, quiet: bool) -> None:
    """Say something beside the result, unless --quiet."""
    if not quiet:
        click.echo(text, err=True)


@contextmanager
def warned(quiet: bool = False) -> Iterator[None]:
    """Say at the end which warnings of ours came; those of others are for developers.

    Under --quiet notices, which say that nothing is wrong, are left out.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for w in caught:
        if issubclass(w.category, IrtDaskWarning) and not (
            quiet and issubclass(w.category, Notice)
        ):
            say(f"{w.category.label}: {w.message}", err=True)


def say(text: str, err: bool = False) -> None:
    """Print a message, keywords of Python as the options of the command that runs."""
    context = click.get_current_context(silent=True)
    click.echo(printable(typed(text, context.command if context else None)), err=err)


def printable(text: str) -> str:
    """Text with control characters, which a terminal would obey, as their escapes.

    Identifiers may hold any.  Tabs and ends of lines stay.
    """
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def show(result: dict[str, Any], as_json: bool) -> None:
    """Print a mapping as JSON, or as aligned lines in which numbers are rounded."""
    if as_json:
        click.echo(json.dumps(_of_json(result), indent=1, default=str))
        return
    width = max(len(k) for k in result)
    for key, value in result.items():
        alone = isinstance(value, list | np.ndarray) and np.shape(value) == (1,)  # one domain
        one = value[0] if alone else value
        shown = f"{one:.9g}" if isinstance(one, float) else one
        click.echo(printable(f"{key.replace('_', ' '):<{width}}  {shown}"))


def _of_json(value: Any) -> Any:
    """A value as JSON knows it: what is no number is null, which NaN is not in JSON."""
    if isinstance(value, dict):
        return {key: _of_json(of) for key, of in value.items()}
    if isinstance(value, list | tuple):
        return [_of_json(of) for of in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def rows(records: list[dict[str, Any]], digits: int = 3) -> str:
    """Align records that have the same keys, a line each below a line of headings."""
    heads = records[0] if records else {}
    return table({h.replace("_", " "): [of[h] for of in records] for h in heads}, digits)


#: What is said below the groups of scores and of population models.
ONE_BY_ONE = (
    "Their errors are as if persons were drawn one by one; for schools and replicate weights make "
    "the table by irt-dask tabulate."
)


def groups_of(result: xr.Dataset) -> list[dict[str, Any]]:
    """Means and SDs of ability of the groups of a fit or of scores, with standard errors."""
    names = {"mean": "group_mean", "mean_se": "group_mean_se", "sd": "group_sd",
             "sd_se": "group_sd_se"}  # fmt: skip
    return [
        {"group": str(label)}
        | {k: float(result[v].values[g]) for k, v in names.items() if v in result}
        for g, label in enumerate(result["group_label"].values)
    ]


def table(columns: dict[str, Any], digits: int = 3) -> str:
    """Align columns of text and numbers."""
    cells = [
        [head, *(_cell(v, digits, head) for v in list(values))] for head, values in columns.items()
    ]
    widths = [max(map(len, column)) for column in cells]
    return "\n".join(
        "  ".join(
            c.ljust(w) if k == 0 else c.rjust(w)
            for k, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in zip(*cells, strict=True)
    )


def _cell(value: Any, digits: int, head: str) -> str:
    """A number with so many decimals; of a p-value or q-value that is less, that it is less."""
    if not isinstance(value, float):
        return printable(str(value))
    if _PROBABILITY.search(head) and value < 0.5 * (least := 10.0**-digits):
        return f"<{least:.{digits}f}"
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


#: Heads of columns in which 0.000 would be taken for certainty.
_PROBABILITY = re.compile(r"\b[pq] value$|^p ")


def item_table(posterior: xr.Dataset, joint: xr.Dataset | None, truth: xr.Dataset | None) -> str:
    """Item parameters of a run, true values beside them when they are known."""
    columns: dict[str, Any] = {"item": [str(i) for i in posterior["item_id"].values]}
    for label, name in (("a", "item_discrimination"), ("b", "item_difficulty")):
        if truth is not None:
            columns[f"true {label}"] = truth[name].values.tolist()
        columns[label] = posterior[name].values.tolist()
        columns[f"sd({label})"] = posterior[f"{name}_sd"].values.tolist()
        if joint is not None:
            columns[f"joint {label}"] = joint[name].values.tolist()
    return table(columns)


def shortened(names: Sequence[str], most: int = 12) -> str:
    """Return names in a line: ``q1 ... q40 (40), sex``; of very many stretches the first."""
    parts = []
    for stretch in _stretches(names):
        if len(stretch) > 3:
            parts.append(f"{stretch[0]} ... {stretch[-1]} ({len(stretch)})")
        else:
            parts += stretch
    n = len(parts) - most
    return ", ".join(parts[:most]) + (f" and {n} more" if n > 0 else "")


def _stretches(names: Sequence[str]) -> list[list[str]]:
    """Cut a list of names where the last number in them does not go on."""
    out: list[list[str]] = []
    after = None
    for name in names:
        found = _NUMBERED.fullmatch(name)
        this = (found[1], found[3], int(found[2])) if found else None
        if out and this is not None and this == after:
            out[-1].append(name)
        else:
            out.append([name])
        after = this and (*this[:2], this[2] + 1)
    return out


_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)", re.DOTALL)


def absolute(path: str) -> Path:
    """A path as the user typed it, made absolute."""
    return local_path(path, "a folder of runs").absolute()
