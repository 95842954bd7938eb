"""Scheduled scoring: a store, an item bank and a folder of scores that is brought up to date."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import xarray as xr
from pydantic import Field, model_validator

from irt_dask.banks.saved import read_bank, read_population
from irt_dask.clusters import ClusterConfig, check_store
from irt_dask.clusters.config import located, validated
from irt_dask.engine.executors import current_client
from irt_dask.errors import InputError, IrtDaskWarning
from irt_dask.score import score
from irt_dask.store import open_responses
from irt_dask.store.places import lies_in, local_path, location, placed
from irt_dask.workflow import publishing
from irt_dask.workflow.config import AbilitySection, read_toml
from irt_dask.workflow.events import Events, read
from irt_dask.workflow.sections import Section

#: The section that tells such a file from that of a calibration.
SECTION = "scoring"


class ScoringSection(AbilitySection):
    """What to score with what; see :func:`irt_dask.score`."""

    store: str
    bank: str
    out: str
    item_draws: int | None = Field(default=None, ge=0)
    #: "all": every item of the store must be in the bank; "bank": others are ignored.
    items: Literal["all", "bank"] = "all"
    #: "ignore": every person counts once, whatever weights the store has.
    weights: Literal["use", "ignore"] = "use"
    #: A population model that was kept, in place of ``prior``; and weighted sums of its domains.
    population: str | None = None
    composites: dict[str, dict[str, float]] = Field(default_factory=dict)
    #: A link that was kept, or links by domain: their errors are drawn into plausible values.
    linking: str | dict[str, str] | None = None
    #: A page of the tables.
    report: str | None = None
    #: A local file to which every run adds its events, a line of JSON each.
    events: str | None = None

    @model_validator(mode="after")
    def _of_a_population(self) -> ScoringSection:
        if self.population is not None and self.prior != "normal":
            raise ValueError("population says where the persons come from: leave prior out")
        if self.composites and self.population is None:
            raise ValueError("composites are of the domains of a population")
        return self


class ScoringConfig(Section):
    """One scheduled scoring.  Paths are relative to the file they stand in, or URLs."""

    title: str = "Scoring"
    seed: int = Field(default=0, ge=0, lt=2**31)
    cluster: ClusterConfig = ClusterConfig()
    scoring: ScoringSection
    #: A population model to fit first, and tables to make of the scores.
    population: publishing.PopulationSection | None = None
    tables: list[publishing.TableSection] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_population(self) -> ScoringConfig:
        if self.population is None:
            return self
        if self.population.out is None:
            raise ValueError("the section population needs out, the file that keeps the model")
        if self.scoring.population is not None or self.scoring.composites:
            raise ValueError(
                "the section population fits a model: leave population and composites out of "
                "the section scoring"
            )
        if self.scoring.prior != "normal":
            raise ValueError("the section population says where persons come from: no prior")
        return self

    @model_validator(mode="after")
    def _report_of_tables(self) -> ScoringConfig:
        if self.scoring.report is not None and not self.tables:
            raise ValueError("report is a page of tables: give [[tables]], or leave it out")
        return self

    @model_validator(mode="after")
    def _not_inside(self) -> ScoringConfig:
        if lies_in(location(self.scoring.out), location(self.scoring.store)):
            raise ValueError(f"out = {self.scoring.out!r} lies in the store; choose another folder")
        return self


def read_scoring(path: str | Path, out: str | None = None) -> ScoringConfig | None:
    """Read the TOML file of a scheduled scoring; None if the file is that of a calibration.

    Raises
    ------
    InputError
        Names the file, the key, the value and the rule.
    """
    own = {SECTION: ("store", "bank", "out", "population", "linking", "report", "events")}
    content = read_toml(path, own | {"population": publishing.POPULATION_PATHS})
    if SECTION in content and isinstance(content.get("tables"), list):
        folder = Path(path).resolve().parent
        located_tables = [located(t, folder, publishing.TABLE_PATHS) for t in content["tables"]]
        content["tables"] = located_tables
    section = content.get(SECTION)
    if section is None:
        return None
    if isinstance(section, dict) and isinstance(links := section.get("linking"), dict):
        section["linking"] = located(links, Path(path).resolve().parent, list(links))
    if out is not None and isinstance(section, dict):
        section["out"] = placed(Path.cwd(), out)
    return validated(ScoringConfig, content, str(path))


def score_store(config: ScoringConfig, *, client: Any = None, progress: Any = None) -> xr.Dataset:
    """Score the persons of the store who are not scored yet, and make tables where asked to.

    See :func:`irt_dask.score`, :func:`irt_dask.fit_population` and :func:`irt_dask.tabulate`.

    Raises
    ------
    BusyError
        If another run is working in the folder.
    """
    client = current_client(client)
    if config.scoring.events is None:
        return _tabulated(config, _scored(config, client, progress))
    events = Events(_events_file(config), progress)
    events.started(resumed=False)
    with events.run():
        with _stage(events, SECTION) as said:
            result = _scored(config, client, events.rounds)
            said |= {"rows": result.attrs["n_persons"], "files": [config.scoring.out]}
            said |= {k: result.attrs[k] for k in ("n_blocks_scored", "n_blocks_kept")}
        if config.tables:
            with _stage(events, "tables") as said:
                _tabulated(config, result)
                said["rows"] = result.attrs["n_persons"]
                said["files"] = [config.scoring.report] if config.scoring.report else []
    return result


def _events_file(config: ScoringConfig) -> Path:
    """The file of events, which is none that the job reads or writes otherwise."""
    options = config.scoring
    path = local_path(str(options.events), "a file of events")
    said = f"scoring.events = {options.events!r}"
    if not path.absolute().parent.is_dir():
        raise InputError(f"{said}: there is no folder {path.absolute().parent}")
    if lies_in(path, location(options.store)) or lies_in(path, location(options.out)):
        raise InputError(f"{said} lies in the store or among the scores; name a file beside them")
    written = [options.report, *(table.out for table in config.tables)]
    if any(path.absolute() == Path(other).absolute() for other in written if other is not None):
        raise InputError(f"{said} is the file of a table or a page too; name another one")
    if path.is_file() and path.stat().st_size and not read(path):
        raise InputError(f"{said} is a file of something else; name a new one")
    return path


@contextmanager
def _stage(events: Events, name: str) -> Iterator[dict[str, Any]]:
    """Within it, events are of a stage; what the block says of it stands in the last of them.

    Warnings become events, and are given all the same.
    """
    begun, said = time.monotonic(), {}  # type: float, dict[str, Any]
    with events.of_stage(name):
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                yield said
        finally:
            events.warned(caught)
            for w in caught:
                warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
        seconds, n = time.monotonic() - begun, sum(map(_is_ours, caught))
        events.finished(name, seconds, said.pop("rows"), said.pop("files"), n, **said)


def _is_ours(w: warnings.WarningMessage) -> bool:
    return issubclass(w.category, IrtDaskWarning)


def _scored(config: ScoringConfig, client: Any, progress: Any) -> xr.Dataset:
    options = config.scoring
    items = read_bank(options.bank)
    publishing.check_tables(config.tables, options.report)
    responses = open_responses(options.store)
    if client is not None:
        check_store(client, responses)  # as it lies there, however it is read
    if options.omitted is not None or options.not_reached is not None:
        responses = responses.select(omitted=options.omitted, not_reached=options.not_reached)
    if options.weights == "ignore":
        responses = responses.select(weights="ignore")
    linking = _links(options.linking)
    population, composites = None, options.composites
    if config.population is not None:
        population = publishing.kept(config.population, responses, items, client, progress)
        composites = config.population.composites
    elif options.population is not None:
        population = read_population(options.population)
    return score(
        responses,
        items,
        method=options.method,
        prior=options.prior if population is None else population,
        n_plausible=options.plausible,
        n_item_draws=options.item_draws,
        seed=config.seed,
        unknown_items="ignore" if options.items == "bank" else "raise",
        composites=composites or None,
        linking=linking,
        store=options.out,
        client=client,
        progress=progress,
    )


def _links(of: str | dict[str, str] | None) -> Any:
    """A link that was kept, or those of domains."""
    if isinstance(of, dict):
        return {name: read_bank(path) for name, path in of.items()}
    return None if of is None else read_bank(of)


def _tabulated(config: ScoringConfig, result: xr.Dataset) -> xr.Dataset:
    """Make the tables of the scores, and their page."""
    options = config.scoring
    tables = publishing.published(config.tables, options.out)
    if options.report is not None:
        publishing.write_page(options.report, config.title, config.tables, tables)
    return result
