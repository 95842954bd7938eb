"""The input of a run: its checksum, its name, and what is refused before any stage."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from irt_dask.calibrate.private.ledger import check_budget
from irt_dask.engine import refuse_graded
from irt_dask.errors import InputError
from irt_dask.ingest.sources.opening import open_persons
from irt_dask.store import Responses, open_responses
from irt_dask.store.places import checksum, lies_in, location
from irt_dask.workflow.config import INPUT_FILES, RunConfig


def data_checksum(config: RunConfig) -> str:
    """Checksum of the run's input: of the file's bytes, or of the store's manifest."""
    data = config.data
    if data.store is not None:
        return open_responses(data.store).fingerprint
    if data.source is None:
        return "made by the run"
    digests = []
    for role in INPUT_FILES:
        path = getattr(data, role)
        if path is None:
            continue
        try:
            digests.append(f"{role} {checksum(location(path))}")
        except OSError as error:
            raise InputError(f"the {role} file {path} cannot be read: {error}") from error
    if len(digests) == 1:
        return digests[0].partition(" ")[2]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def looks(config: RunConfig) -> tuple[tuple[int, int, int], ...]:
    """Size, time and number of the input's files on a file system, which show that one changed."""
    places = (location(p) for role in INPUT_FILES if (p := getattr(config.data, role)) is not None)
    found = [os.stat(p) for p in places if isinstance(p, Path) and p.exists()]
    return tuple((s.st_size, s.st_mtime_ns, s.st_ino) for s in found)


def check_input(config: RunConfig) -> None:
    """Refuse input that the stages cannot use, before any of them runs."""
    assert config.directory is not None
    data = config.data
    for role in (*INPUT_FILES, "store"):
        given = getattr(data, role)
        if given and lies_in(location(given), Path(config.directory)):
            raise InputError(
                f"the input {given} lies in the run directory {config.directory}, which the run "
                f"owns; move one of them"
            )
    if config.private is not None:
        _check_private(config)
    if data.store is not None:
        found = open_responses(data.store)
        refuse_graded(found, "a pipeline")
        refuse_stored_weights(found)
    if data.persons is not None:
        with tempfile.TemporaryDirectory() as scratch:
            if open_persons(data.persons, Path(scratch)).roles.weight is not None:
                raise InputError(
                    f"{data.persons} has a weight column, and a pipeline's methods do not use "
                    f"person weights; leave the column out"
                )


def _check_private(config: RunConfig) -> None:
    """Refuse a budget that is none, and a ledger that a fresh run would remove."""
    assert config.directory is not None
    assert config.private is not None
    check_budget(config.private.epsilon, config.private.delta, config.private.rho)
    ledger = Path(config.private.ledger)
    if lies_in(ledger, Path(config.directory)):
        raise InputError(
            f"the privacy ledger {ledger} lies in the run directory {config.directory}, which a "
            f"fresh run empties: what was spent would be forgotten; keep it elsewhere"
        )


def refuse_stored_weights(responses: Responses) -> None:
    """Stop at a store with person weights."""
    if responses.max_weight is not None:
        raise InputError(
            f"the store {responses.path} has person weights, which a pipeline's methods do not "
            f"use; calibrate it with irt-dask calibrate (--method marginal, joint or spectral), or "
            f"make a store without weights"
        )


def describe_data(config: RunConfig) -> str:
    """Say in words where the responses come from."""
    given = config.data.source or config.data.store
    if given:
        return location(given).name
    if config.data.simulate is not None:
        return "simulated, with known parameters"
    return "LSAT section 6 (Bock and Lieberman 1970)"
