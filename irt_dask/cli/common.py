"""Options and output that the commands share."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import xarray as xr

from irt_dask.errors import IrtDaskWarning
from irt_dask.store.places import local_path


def cluster_option(default: str) -> Any:
    """The option --cluster."""
    return click.option(
        "--cluster", metavar="WHERE", default=default, show_default=True,
        help="Where to compute: 'local' (worker processes on all cores of this machine), 'none' "
        "(this process alone), a scheduler's address such as tcp://127.0.0.1:8786, or a TOML file "
        "with a [cluster] section.",
    )  # fmt: skip


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
quiet_option = click.option("--quiet", is_flag=True, help="No progress bars.")


@contextmanager
def workers(cluster: Any) -> Iterator[Any]:
    """A client for the --cluster option; None for 'none'."""
    if cluster == "none":
        yield None
        return
    from irt_dask.clusters import connect

    with connect(cluster) as client:
        yield client


@contextmanager
def warned() -> Iterator[None]:
    """Say at the end which warnings of ours came; those of others are for developers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for w in caught:
        if issubclass(w.category, IrtDaskWarning):
            click.echo(f"warning: {w.message}", err=True)


def show(result: dict[str, Any], as_json: bool) -> None:
    """Print a mapping as JSON or as aligned lines."""
    if as_json:
        click.echo(json.dumps(result, indent=1, default=str))
        return
    width = max(len(k) for k in result)
    for key, value in result.items():
        click.echo(f"{key.replace('_', ' '):<{width}}  {value}")


def table(columns: dict[str, Any], digits: int = 3) -> str:
    """Align columns of text and numbers."""
    cells = [
        [head, *(f"{v:.{digits}f}" if isinstance(v, float) else str(v) for v in list(values))]
        for head, values in columns.items()
    ]
    widths = [max(map(len, column)) for column in cells]
    return "\n".join(
        "  ".join(
            c.ljust(w) if k == 0 else c.rjust(w)
            for k, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in zip(*cells, strict=True)
    )


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


def absolute(path: str) -> Path:
    """A path as the user typed it, made absolute."""
    return local_path(path, "a folder of runs").absolute()
