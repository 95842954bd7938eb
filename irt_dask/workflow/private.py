"""The stage of a run that releases difficulties under differential privacy, if it is asked for."""

from __future__ import annotations

from pathlib import Path

from irt_dask.calibrate.private.fit import fit_private_spectral
from irt_dask.calibrate.private.ledger import check_budget
from irt_dask.errors import InputError
from irt_dask.store.places import lies_in
from irt_dask.workflow.config import RunConfig
from irt_dask.workflow.context import Context


def check_private(config: RunConfig) -> None:
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


def private(c: Context) -> list[str]:
    """Rasch difficulties under differential privacy, written down before they are saved.

    A run that was stopped in between finds the recorded release.
    """
    options = c.config.private
    assert options is not None
    fit = fit_private_spectral(
        c.responses,
        epsilon=options.epsilon,
        delta=options.delta,
        rho=options.rho,
        adjacency=options.adjacency,
        max_items_per_person=options.max_items_per_person,
        pairs=options.pairs,
        p0=options.p0,
        ledger=options.ledger,
        seed=c.config.seed,
        client=c.client,
        progress=c.progress,
    )
    return [c.directory.save("private.nc", fit)]
