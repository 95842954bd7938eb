"""From scores to published tables in one run: the population model before, the tables after."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr
from pydantic import Field, model_validator

from irt_dask.banks.saved import check_new_result, write_result
from irt_dask.errors import InputError
from irt_dask.store import Responses
from irt_dask.store.manifest import write_atomically
from irt_dask.store.places import local_path
from irt_dask.workflow.sections import Section

if TYPE_CHECKING:  # tables and formulas take a while to load, and most scorings need none
    import pandas as pd

    from irt_dask.survey.replicates import Replicates

#: Keys that hold paths.
POPULATION_PATHS, TABLE_PATHS = ("out", "domains"), ("out", "persons")


class PopulationSection(Section):
    """The conditioning model of plausible values; see :func:`irt_dask.fit_population`."""

    out: str
    covariates: str | None = None
    components: float | None = Field(default=None, gt=0.0)
    domains: str | None = None
    by_group: bool = True
    sampling_unit: str | None = None
    composites: dict[str, dict[str, float]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _whole(self) -> PopulationSection:
        n = self.components
        if n is not None and n >= 1.0 and not math.isclose(n, round(n)):
            raise ValueError(f"components = {n}: a whole number, or a share below 1")
        return self


class TableSection(Section):
    """A table of the scores, with a table of the persons beside; see :func:`irt_dask.tabulate`."""

    out: str
    #: What the page calls it; the name of the file by default.
    title: str | None = None
    values: dict[str, str]
    by: list[str] = Field(default_factory=list)
    statistics: list[str] = Field(default_factory=lambda: ["mean", "sd"])
    gaps: list[str] = Field(default_factory=list)
    #: Table of countries and replicate weights, and the column of persons in it.
    persons: str | None = None
    on: str = "person_id"
    #: What separates values there, if it is a CSV file without commas between them.
    delimiter: str | None = None
    weight: str | None = None
    preset: str | None = None
    replicates: list[str] = Field(default_factory=list)
    #: Column of sampling units, and of the strata that they were drawn within.
    units: str | None = None
    strata: str | None = None
    #: Columns of pairs of sampling units and of the two units in each.
    zone: str | None = None
    unit: str | None = None
    method: Literal["brr", "fay", "jk1", "jkn", "jk2", "jk2_both"] | None = None
    fay: float | None = None
    scale: float | list[float] | None = None

    @model_validator(mode="after")
    def _one_design(self) -> TableSection:
        self.design()
        return self

    def design(self) -> Replicates | None:
        """The replicate weights."""
        from irt_dask.survey.designs import Design

        said = {of.name: getattr(self, of.name) for of in fields(Design)}
        return Design(**said).replicate_weights(str)


def fitted(
    of: PopulationSection, responses: Responses, items: xr.Dataset, client: Any, progress: Any
) -> xr.Dataset:
    """The population model, kept in its file."""
    from irt_dask.population.domains import read_domains
    from irt_dask.population.fit import fit_population

    path = check_new_result(of.out)
    n = of.components
    result = fit_population(
        responses, items, covariates=of.covariates,
        n_components=n if n is None or n < 1.0 else round(n),
        domains=None if of.domains is None else read_domains(of.domains),
        by_group=of.by_group, sampling_unit=of.sampling_unit, client=client, progress=progress,
    )  # fmt: skip
    write_result(result, path)
    return result


def check_tables(tables: list[TableSection], page: str | None = None) -> None:
    """Refuse, before anything runs, what could not be written or read then."""
    if page is not None:
        from irt_dask.report.published import new_page

        new_page(page)
    for table in tables:
        path = local_path(table.out, "a table")
        if path.suffix not in (".csv", ".parquet"):
            raise InputError(
                f"tables: out = {table.out!r}: the file name must end in .csv or .parquet"
            )
        if not path.absolute().parent.is_dir():
            raise InputError(f"tables: there is no folder {path.absolute().parent}")
        if table.persons is not None and not Path(table.persons).exists():
            raise InputError(f"tables: there is no file {table.persons}")
        table.design()


def published(tables: list[TableSection], scores: str) -> list[pd.DataFrame]:
    """Tables of a folder of scores, each written to its file."""
    made: list[pd.DataFrame] = []
    if not tables:
        return made
    from irt_dask.survey.tables import as_file
    from irt_dask.survey.tabulate import tabulate

    for table in tables:
        found = tabulate(
            scores, table.values, by=table.by, statistics=table.statistics, gaps=table.gaps,
            weight=table.weight, replicates=table.design(), join=table.persons,
            on=("person_id", table.on), delimiter=table.delimiter,
        )  # fmt: skip
        path = local_path(table.out, "a table").absolute()
        write_atomically(path, as_file(found, path))
        made.append(found)
    return made


def write_page(
    path: str, title: str, sections: list[TableSection], tables: list[pd.DataFrame]
) -> None:  # fmt: skip
    """Write the page of these tables; tables of one name are numbered."""
    from irt_dask.report.published import write_tables

    named: dict[str, pd.DataFrame] = {}
    for section, table in zip(sections, tables, strict=True):
        name = section.title or Path(section.out).stem
        named[name if name not in named else f"{name} ({len(named) + 1})"] = table
    write_tables(path, named, title=title)
