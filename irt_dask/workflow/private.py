"""The stage of a run that releases difficulties under differential privacy, if it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from irt_dask.calibrate.private import fit_private_spectral
from irt_dask.errors import InputError
from irt_dask.workflow.config import RunConfig

if TYPE_CHECKING:
    from irt_dask.workflow.stages import Context


def ledger_of(config: RunConfig) -> Path:
    """Return where releases are written down: never in the directory, which ``--fresh`` empties."""
    assert config.directory is not None
    assert config.private is not None
    if config.private.ledger is not None:
        return Path(config.private.ledger)
    directory = Path(config.directory)
    return directory.with_name(f"{directory.name}.privacy-ledger.json")


def check_ledger(config: RunConfig) -> None:
    """Refuse a ledger that a fresh run would remove."""
    assert config.directory is not None
    ledger = ledger_of(config)
    if ledger.resolve().is_relative_to(Path(config.directory).resolve()):
        raise InputError(
            f"the privacy ledger {ledger} lies in the run directory {config.directory}, which a "
            f"fresh run empties: what was spent would be forgotten; keep it elsewhere"
        )


def private(c: Context) -> list[str]:
    """Rasch difficulties under differential privacy, written down before they are saved.

    A run that was stopped in between finds the recorded release.
    """
    options = c.config.private
    assert options is not None
    ledger = ledger_of(c.config)
    ledger.parent.mkdir(parents=True, exist_ok=True)
    fit = fit_private_spectral(
        c.responses,
        epsilon=options.epsilon,
        delta=options.delta,
        rho=options.rho,
        adjacency=options.adjacency,
        max_items_per_person=options.max_items_per_person,
        pairs=options.pairs,
        p0=options.p0,
        ledger=ledger,
        seed=c.config.seed,
        client=c.client,
        progress=c.progress,
    )
    return [c.directory.save("private.nc", fit)]
