"""The command status: what a run, or a folder of scores, is at."""

from __future__ import annotations

from typing import Any

import click

from irt_dask.cli.common import json_option, printable, rows, show


@click.command()
@click.argument("folder", type=click.Path(), metavar="RUN|SCORES")
@json_option
def status(folder: str, as_json: bool) -> None:
    """Say what a run directory, or a folder of scores, is at.

    A run is running, finished, failed (with the error), stopped (by Ctrl-C or a signal) or killed
    (it ended without a word): all but the first two go on by the command that began them. Nothing
    in the folder is changed, and a run that works there is not disturbed. Exit code 0 whatever the
    state, which --json prints for scripts.
    """
    from irt_dask.workflow.status import status_of

    found = status_of(folder)
    if as_json:
        show(found, True)
        return
    lists = ("stages", "warnings", "round", "error")
    show({k: v for k, v in found.items() if k not in lists and v is not None}, False)
    for line in _more(found):
        click.echo(printable(line))


def _more(found: dict[str, Any]) -> list[str]:
    """Lines below those of single values."""
    from irt_dask.engine.progress import time_in_words  # kernels come with it

    lines = []
    if at := found.get("round"):
        of = "" if at["of"] is None else f" of {at['of']}"
        left = at["left"] if found["state"] == "running" else None
        more = "" if left is None else f", up to {time_in_words(left)} left"
        lines.append(
            f"round {at['round']}{of} of {at['step']}, after {time_in_words(at['seconds'])}{more}"
        )
    if error := found.get("error"):
        lines.append(f"error: {error['message']}")
    if stages := found.get("stages"):
        keys = ("stage", "state", "seconds", "rows", "warnings")
        lines += ["", rows([{k: _shown(of.get(k)) for k in keys} for of in stages])]
    return lines + [f"warning: {text}" for text in found.get("warnings", ())]


def _shown(value: Any) -> Any:
    return "" if value is None else value
