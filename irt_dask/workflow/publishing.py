"""From scores to published tables in one run: the population model before, the tables after."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr
from pydantic import Field, model_validator

from irt_dask.banks.saved import check_new_result, write_result
from irt_dask.errors import DataWarning, InputError, IrtDaskWarning
from irt_dask.store import Responses
from irt_dask.store.manifest import write_atomically
from irt_dask.store.places import checksum, local_path
from irt_dask.survey.delimited import check_decimal, checked_delimiter
from irt_dask.workflow.directory import SCORES, TABLES_BEFORE, RunDirectory
from irt_dask.workflow.sections import Section

if TYPE_CHECKING:  # tables and formulas take a while to load, and most scorings need none
    import pandas as pd

    from irt_dask.survey.replicates import Replicates

#: Tables in the folder of a run that are not those of the section tables.
_OWN_FILES = (
    "items.csv", "items.covariance.csv", "check_items.csv", "item_fit.csv", "dif.csv",
    "responses.quarantine.csv",
)  # fmt: skip
#: The page of tables in the folder of a run.
PAGE = "tables.html"
#: Keys that hold paths.
POPULATION_PATHS, TABLE_PATHS = ("out", "domains"), ("out", "persons")


class PopulationSection(Section):
    """The conditioning model of plausible values; see :func:`irt_dask.fit_population`."""

    #: Of a scheduled scoring; a run keeps it in its folder.
    out: str | None = None
    covariates: str | None = None
    components: float | None = Field(default=None, gt=0.0)
    domains: str | None = None
    by_group: bool = True
    sampling_unit: str | None = None
    #: Draws of the items, a posterior's or by a bank's errors, that its own errors hold.
    item_draws: int = Field(default=0, ge=0)
    composites: dict[str, dict[str, float]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _whole(self) -> PopulationSection:
        n = self.components
        if n is not None and n >= 1.0 and not math.isclose(n, round(n)):
            raise ValueError(f"components = {n}: a whole number, or a share below 1")
        if self.item_draws == 1:
            raise ValueError("item_draws = 1: one draw does not tell how draws vary; 10 or more")
        return self

    def scored(self, model: xr.Dataset, plausible: int, of_errors: bool) -> dict[str, Any]:
        """How a run scores under the model; ``of_errors``: its items have no draws but by errors.

        Of draws of a posterior each value has its own.
        """
        draws = {"n_item_draws": plausible if self.item_draws else 0} if of_errors else {}
        return {"prior": model, "composites": self.composites or None, **draws}


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
    #: What separates values there, if it is a CSV file without commas, and the decimal sign.
    delimiter: str | None = None
    decimal: Literal[".", ","] | None = None
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
    def _as_it_can_be_read(self) -> TableSection:
        self.design()
        checked_delimiter(self.delimiter, self.persons)
        check_decimal(self.decimal, self.persons)
        return self

    def design(self) -> Replicates | None:
        """The replicate weights."""
        from irt_dask.survey.designs import Design

        said = {of.name: getattr(self, of.name) for of in fields(Design)}
        return Design(**said).replicate_weights(str)


def check_published(
    config: Any, of: PopulationSection | None, tables: Sequence[TableSection]
) -> None:
    """Refuse what the configuration of a run cannot do with a population, and names of files."""
    if of is not None:
        if of.out is not None:
            raise ValueError("population.out: a run keeps the model in its folder; leave it out")
        if config.score.prior != "normal" or config.score.method != "eap":
            raise ValueError(
                'the section population says where persons come from: score.method = "eap" and no '
                "score.prior"
            )
        if of.item_draws and not config.is_marginal:
            raise ValueError("population.item_draws is of calibrations by marginal")
        for key in ("omitted", "not_reached"):
            if getattr(config.score, key) not in (None, getattr(config.data, key)):
                raise ValueError(f"score.{key}: with a population as in [data], or left out")
    for table in tables:
        alone = PurePath(table.out).name == table.out and table.out not in _OWN_FILES
        if not alone or not table.out.endswith((".csv", ".parquet")):
            raise ValueError(
                f"tables.out = {table.out!r}: a file of its own in the folder of the run: give "
                f"another name, without a folder, that ends in .csv or .parquet"
            )
    if len({table.out for table in tables}) < len(tables):
        raise ValueError("tables.out: two tables have one name")


def kept(
    of: PopulationSection, responses: Responses, items: xr.Dataset, client: Any, progress: Any
) -> xr.Dataset:
    """The population model, kept in its file."""
    assert of.out is not None
    path = check_new_result(of.out)
    result = fitted(of, responses, items, client, progress)
    write_result(result, path)
    return result


def fitted(
    of: PopulationSection, responses: Responses, items: xr.Dataset, client: Any, progress: Any
) -> xr.Dataset:
    """The population model."""
    from irt_dask.population.domains import read_domains
    from irt_dask.population.fit import fit_population

    n = of.components
    return fit_population(
        responses, items, covariates=of.covariates,
        n_components=n if n is None or n < 1.0 else round(n),
        domains=None if of.domains is None else read_domains(of.domains),
        by_group=of.by_group, n_item_draws=of.item_draws, sampling_unit=of.sampling_unit,
        client=client, progress=progress,
    )  # fmt: skip


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


def check_columns(config: Any) -> None:
    """Refuse, before anything runs, tables of columns that a run will not have."""
    import pandas as pd

    from irt_dask.survey.gaps import references
    from irt_dask.survey.plan import asked, opened
    from irt_dask.survey.statistics import statistics_of

    of_scores = pd.DataFrame(columns=score_columns(config)) if config.tables else None
    for table in config.tables:
        try:
            design = table.design()
            both = opened(
                of_scores, table.persons, ("person_id", table.on), table.by, design,
                table.delimiter, table.decimal,
            )  # fmt: skip
            plan = asked(
                both.columns, table.values, by=table.by, weight=table.weight, replicates=design,
                statistics=statistics_of(table.statistics),
            )  # fmt: skip
            references(table.gaps, plan.by)
        except InputError as error:
            raise InputError(_of(table, error)) from None


def score_columns(config: Any) -> list[str]:
    """Columns of the scores of a run; of the group too, which only persons with groups have."""
    from irt_dask.population.domains import ABILITY, read_domains

    ends, pairs = [""], []
    if (of := config.population) is not None:
        domains = [ABILITY] if of.domains is None else [*read_domains(of.domains)]
        pairs = [f"person_ability_correlation_{a}_{b}" for k, b in enumerate(domains)
                 for a in domains[:k]]  # fmt: skip
        ends = [f"_{name}" for name in (*domains, *of.composites)]
    error = "_sd" if config.score.method == "eap" else "_se"
    abilities = [f"person_ability{what}{end}" for end in ends for what in ("", error)]
    values = [f"pv{m + 1}{end}" for m in range(config.score.plausible) for end in ends]
    return [
        "person_id", "person_group", *abilities, *pairs, "n_responses", "sum_score", *values,
    ]  # fmt: skip


def _of(table: TableSection, said: object) -> str:
    """What is said of a table."""
    return f"[[tables]] {table.out}: {said}"


def tabulated(table: TableSection, scores: str) -> pd.DataFrame:
    """One table of a folder of scores; errors and warnings say which."""
    from irt_dask.survey.tabulate import tabulate

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = tabulate(
                scores, table.values, by=table.by, statistics=table.statistics, gaps=table.gaps,
                weight=table.weight, replicates=table.design(), join=table.persons,
                on=("person_id", table.on), delimiter=table.delimiter, decimal=table.decimal,
            )  # fmt: skip
        except InputError as error:
            raise InputError(_of(table, error)) from error
    for w in caught:
        ours = isinstance(w.message, IrtDaskWarning)
        warnings.warn(_of(table, w.message) if ours else w.message, w.category, stacklevel=2)
    return found


def _file(table: pd.DataFrame, path: Path) -> bytes:
    from irt_dask.survey.tables import as_file

    return as_file(table, path)


def published(tables: list[TableSection], scores: str) -> list[pd.DataFrame]:
    """Tables of a folder of scores, each written to its file."""
    made: list[pd.DataFrame] = []
    for table in tables:
        found = tabulated(table, scores)
        path = local_path(table.out, "a table").absolute()
        write_atomically(path, _file(found, path))
        made.append(found)
    return made


def in_folder(directory: RunDirectory, sections: list[TableSection], title: str) -> list[str]:
    """Tables of the scores of a run and their page, in its folder; the names of these files.

    Tables that an earlier run made of the same sections are left as they are.
    """
    from irt_dask.survey.tables import written

    made = []
    for table, asked_for in zip(sections, directory.content["config"]["tables"], strict=True):
        notes = _made_before(directory, table, asked_for)
        if notes is None:
            found = tabulated(table, str(directory.place(SCORES)))
            directory.write(table.out, _file(found, Path(table.out)))
        for note in notes or ():
            warnings.warn(note, DataWarning, stacklevel=2)
        made.append(written(directory.place(table.out)))
    write_page(directory.place(PAGE), title, sections, made)
    return [*(table.out for table in sections), PAGE]


def _made_before(
    directory: RunDirectory, table: TableSection, asked_for: dict[str, Any]
) -> list[str] | None:
    """What was said of a table that is there as this section asks for it; None if it is not."""
    record = directory.content.get(TABLES_BEFORE) or directory.stages.get("tables")
    if record is None:
        return None
    of = record.get("of", directory.content["config"]["tables"])
    same = any(asked_for | {"title": None} == other | {"title": None} for other in of)
    path = directory.place(table.out)
    if not (same and path.exists() and checksum(path) == record["files"].get(table.out)):
        return None
    begun = [note.startswith("[[tables]] ") for note in record["notes"]]
    return [n for n in record["notes"] if n.startswith(_of(table, ""))] if all(begun) else None


def write_page(
    path: str | Path, title: str, sections: list[TableSection], tables: list[pd.DataFrame]
) -> None:  # fmt: skip
    """Write the page of these tables; tables of one name are numbered."""
    from irt_dask.report.published import write_tables

    named: dict[str, pd.DataFrame] = {}
    for section, table in zip(sections, tables, strict=True):
        name = section.title or Path(section.out).stem
        named[name if name not in named else f"{name} ({len(named) + 1})"] = table
    write_tables(path, named, title=title)
