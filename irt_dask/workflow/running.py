"""Running the stages in order, skipping those that are done."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from irt_dask.clusters import check_store
from irt_dask.clusters.checks import check_processors
from irt_dask.engine.executors import current_client
from irt_dask.engine.lock import LOCK, FolderLock
from irt_dask.errors import InputError, IrtDaskWarning
from irt_dask.workflow.config import RunConfig
from irt_dask.workflow.directory import RunDirectory
from irt_dask.workflow.events import NAME as EVENTS
from irt_dask.workflow.events import Events
from irt_dask.workflow.inputs import (
    bank_checksum,
    check_input,
    data_checksum,
    describe_data,
    looks,
)
from irt_dask.workflow.reporting import write_run_report
from irt_dask.workflow.stages import Context, stages_of, stages_recorded


def run(
    config: RunConfig, *, client: Any = None, fresh: bool = False, progress: Any = None,
    say: Callable[[str], None] = lambda text: None,
) -> Path:  # fmt: skip
    """Run a pipeline, or finish one that was interrupted.

    Parameters
    ----------
    config : RunConfig, see :func:`read_config`; ``directory`` must be set.
    client : Dask client; None takes the current one, else the threads of this process.
    fresh : discard what an earlier run left in the directory.
    progress : see :class:`irt_dask.engine.progress.Progress`.
    say : called with a line of text for a person, at each stage.

    Returns
    -------
    Path of the run directory, with ``run.json``, ``log.txt``, ``events.jsonl`` (see
    :mod:`irt_dask.workflow.events`), ``responses/``, ``summary.nc``,
    ``spectral.nc``, ``joint.nc`` and ``posterior.nc`` (with ``calibrate.method = "marginal"``
    ``marginal.nc`` in their place), ``items.csv``, ``check.nc`` and ``check_items.csv`` (unless
    ``check.replicates`` is 0), what ``tests`` asks for (``item_fit.nc`` and ``.csv``,
    ``curves.nc``, ``person_fit.nc``, ``dif.nc`` and ``.csv``), ``scores/``, ``scores.nc``,
    ``private.nc`` if it was asked for, and ``report.html``.

    Raises
    ------
    RunError
        If the directory belongs to another configuration, other data or other versions.
    """
    if config.directory is None:
        raise InputError("the run has no directory")
    check_input(config)
    looked = looks(config)
    identity: dict[str, Any] = {
        "title": config.title,
        "data": describe_data(config),
        "config": config.computed(),
        "config_digest": config.digest(),
        "data_checksum": data_checksum(config),
    }
    if config.marginal.fixed_items is not None:
        identity["bank_checksum"] = bank_checksum(config)
    directory = RunDirectory(config.directory, identity, fresh=fresh)
    try:
        events = Events(directory.place(EVENTS), progress, directory.log)
        events.started(resumed=bool(directory.stages))
        with events.run():
            common = {"client": current_client(client), "progress": events.rounds}
            _run_stages(Context(config, directory, common, looked), events, say)
    finally:
        directory.close()
    return directory.path


def _run_stages(context: Context, events: Events, say: Callable[[str], None]) -> None:
    directory, client = context.directory, context.common["client"]
    checked, known = client is None, False
    for name, stage in stages_of(context.config).items():
        if directory.finished(name):
            say(f"{name}: done before")
            events.write("stage_skipped", stage=name)
            directory.forget(name)  # it may have been killed before it did this itself
            continue
        if not checked and name != "ingest":
            check_store(client, context.stored)
            checked = True
        if not known:
            _compare_processors(context, name, events, say)
            known = True
        say(f"{name} ..." if name not in _FOR else f"{name} ({_FOR[name]}) ...")
        begun = time.monotonic()
        with events.of_stage(name):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                files = stage(context)
            events.warned(caught)
            notes = _told(caught, say)
            seconds = time.monotonic() - begun
            directory.finish(name, seconds, files, notes)
        events.finished(name, seconds, context.stored.n_persons, files, len(notes))
        directory.forget(name)


#: What stages are for whose warnings are not of the results.
_FOR = {
    "spectral": "start values",
    "joint": "start values, and a comparison; items.csv and scores are those of bayes",
}


def _compare_processors(
    context: Context, stage: str, events: Events, say: Callable[[str], None]
) -> None:
    """Record where the stages from this one on are computed; say where types differ."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        types = check_processors(context.common["client"])
        context.directory.computed_on(types, stage)
    events.warned(caught)
    for note in _told(caught, say):
        context.directory.log(note)


def _told(caught: list[warnings.WarningMessage], say: Callable[[str], None]) -> list[str]:
    """Say our warnings, and return them."""
    ours = [w for w in caught if issubclass(w.category, IrtDaskWarning)]
    for w in ours:
        say(f"  {getattr(w.category, 'label', '')}: {w.message}")
    return [str(w.message) for w in ours]


def report_again(path: str | Path, results: Mapping[str, xr.Dataset] | None = None) -> Path:
    """Write the report of a finished run anew and return its path.

    ``results`` are further ones over items, by the names to show, that the page is to have.

    Raises
    ------
    InputError
        If the folder is not a run directory, or the run did not get as far as its scores.
    BusyError
        If a run is working in it.
    """
    with FolderLock(RunDirectory.existing(path).place(LOCK).parent):
        directory = RunDirectory.existing(path)  # nobody changes it now
        needed = stages_recorded(directory.content["config"])
        missing = [name for name in needed if name != "report" and not directory.finished(name)]
        if missing:
            raise InputError(f"the run in {path} has not finished: {', '.join(missing)} to do")
        page = write_run_report(directory, results)
        directory.made_again("report")
    return page
