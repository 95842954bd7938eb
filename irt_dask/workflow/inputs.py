"""The input of a run: its checksum, its name, and what is refused before any stage."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from irt_dask.banks import covariances
from irt_dask.banks.saved import read_bank
from irt_dask.calibrate.private.ledger import check_budget, check_ledger_budget
from irt_dask.engine import Engine, refuse_graded
from irt_dask.errors import InputError, listed
from irt_dask.ingest.sources.opening import open_persons
from irt_dask.ingest.text.dialect import Dialect
from irt_dask.population import design, regression
from irt_dask.population.domains import ABILITY, read_domains
from irt_dask.store import Responses, open_responses
from irt_dask.store.dichotomy import in_two
from irt_dask.store.places import checksum, lies_in, location
from irt_dask.workflow.config import INPUT_FILES, DataConfig, RunConfig
from irt_dask.workflow.publishing import PopulationSection, check_columns

#: Persons x items, or bytes of a file, below which a run starts no cluster unless it is asked to.
_SMALL = 10**7


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


def is_small(config: RunConfig) -> bool:
    """Whether a run starts no cluster unless asked: by persons x items, or by a file's bytes.

    Of a file nobody knows more before it is read; one in object storage is not called small.
    """
    data = config.data
    if data.simulate is not None:
        return data.simulate.persons * data.simulate.items < _SMALL
    if data.store is not None:
        r = open_responses(data.store)
        return r.n_persons * r.n_items < _SMALL
    if data.source is None:
        return True
    place = location(data.source)
    return isinstance(place, Path) and place.is_file() and place.stat().st_size < _SMALL


def looks(config: RunConfig) -> tuple[tuple[int, int, int], ...]:
    """Size, time and number of the input's files on a file system, which show that one changed."""
    places = (location(p) for role in INPUT_FILES if (p := getattr(config.data, role)) is not None)
    found = [os.stat(p) for p in places if isinstance(p, Path) and p.exists()]
    return tuple((s.st_size, s.st_mtime_ns, s.st_ino) for s in found)


def check_input(config: RunConfig) -> None:
    """Refuse input that the stages cannot use, before any of them runs."""
    assert config.directory is not None
    data = config.data
    read = [getattr(data, role) for role in (*INPUT_FILES, "store")]
    tables = config.marginal.item_table, config.bayes.item_table
    for given in (*read, config.marginal.fixed_items, *tables):
        if given and lies_in(location(given), Path(config.directory)):
            raise InputError(
                f"the input {given} lies in the run directory {config.directory}, which the run "
                f"owns; move one of them"
            )
    if config.private is not None:
        _check_private(config)
    if data.store is not None:
        found = open_responses(data.store)
        refuse_other_categories(config, found)
        refuse_unused_weights(config, found)
    if data.persons is not None:
        with tempfile.TemporaryDirectory() as scratch:
            written = Dialect.checked(data.delimiter, data.decimal, data.encoding)
            named = {k: v for k, v in (data.columns or {}).items() if k == "person"}
            weight = open_persons(data.persons, Path(scratch), written, named).roles.weight
            if weight is not None:
                config.check_weights(f"the column {weight!r} of {data.persons}")
    if config.marginal.fixed_items is not None:
        read_bank(config.marginal.fixed_items)  # a mistake in it shows before the long stages
    check_columns(config)


def as_asked(
    responses: Responses, of: DataConfig, omitted: str | None, not_reached: str | None
) -> Responses:
    """The responses of a store as the stages of a run take them."""
    if omitted is not None or not_reached is not None:
        responses = responses.select(omitted=omitted, not_reached=not_reached)
    if of.weights == "ignore":
        responses = responses.select(weights="ignore")
    return in_two(responses, of.dichotomise)


def refuse_other_categories(config: RunConfig, responses: Responses) -> None:
    """Stop at items of more than two categories where the model of all items is the 2PL."""
    found = in_two(responses, config.data.dichotomise)
    if not config.is_marginal and config.bayes.model == "2pl":
        refuse_graded(
            found,
            '[bayes] model = "2pl", the default,',
            'write [bayes] model = "graded" or "gpcm", or [calibrate] method = "marginal"',
        )


def _check_private(config: RunConfig) -> None:
    """Refuse a budget that is none, and a ledger that a fresh run would remove."""
    assert config.directory is not None
    assert config.private is not None
    check_budget(config.private.epsilon, config.private.delta, config.private.rho)
    check_ledger_budget(config.private.budget, config.private.ledger)
    ledger = Path(config.private.ledger)
    if lies_in(ledger, Path(config.directory)):
        raise InputError(
            f"the privacy ledger {ledger} lies in the run directory {config.directory}, which a "
            f"fresh run empties: what was spent would be forgotten; keep it elsewhere"
        )


def refuse_unused_weights(config: RunConfig, responses: Responses) -> None:
    """Stop at weights that the run is to use and has no stage for."""
    if responses.max_weight is not None:
        config.check_weights(f"{responses.path} has person weights")


def check_prior(config: RunConfig, responses: Responses, client: Any) -> None:
    """Stop at a prior of the scores that the persons have no groups or covariates for.

    They are read once: what is not known of somebody would stop the run after its longest stages.
    So are the covariates of a population model, and its table of domains.
    """
    if (of := config.population) is not None:
        with Engine(responses, client=client, progress=False, graded=True) as engine:
            design.found(engine, of.covariates)
        _check_domains(of, responses)
    start = regression.begin(responses, config.score.prior)
    if start is not None and config.score.prior not in ("normal", "population"):
        with Engine(responses, client=client, progress=False, graded=True) as engine:
            regression.prepared(engine, start)


def _check_domains(of: PopulationSection, responses: Responses) -> None:
    """Stop at items and composites that there are not."""
    domains = {ABILITY: list(responses.item_id)}
    if of.domains is not None:
        domains = read_domains(of.domains)
    named = [i for ids in domains.values() for i in ids]
    if unknown := sorted(set(named) - set(responses.item_id)):
        raise InputError(f"{of.domains}: the responses have no item {listed(unknown, 10)}")
    for name, weights in of.composites.items():
        if lost := sorted(set(weights) - set(domains)):
            raise InputError(
                f"population.composites: {name!r}: no domain is {listed(lost)}; there are "
                f"{listed(list(domains))}"
            )
        if name in domains:
            raise InputError(f"population.composites: {name!r} is the name of a domain")


def bank_checksum(config: RunConfig) -> str | None:
    """Checksum of the bank whose items are fixed; None without one."""
    path = config.marginal.fixed_items
    if path is None:
        return None
    try:
        found = checksum(location(path))
        if path.endswith(".csv"):  # with the covariance beside it, if there is one
            with contextlib.suppress(FileNotFoundError):
                both = found + checksum(covariances.beside(path))
                found = hashlib.sha256(both.encode()).hexdigest()
        return found
    except OSError as error:
        raise InputError(
            f"the bank marginal.fixed_items = {path} cannot be read: {error}"
        ) from error


def describe_data(config: RunConfig) -> str:
    """Say in words where the responses come from."""
    given = config.data.source or config.data.store
    if given:
        return location(given).name
    if config.data.simulate is not None:
        return "simulated, with known parameters"
    return "LSAT section 6 (Bock and Lieberman 1970)"
