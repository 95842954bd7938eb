"""The configuration of a run: a TOML file, validated, unknown keys refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from irt_dask.banks.item_tables import read_item_covariates, read_item_table
from irt_dask.clusters import ClusterConfig
from irt_dask.clusters.config import located, validated
from irt_dask.errors import InputError
from irt_dask.ingest.text.dialect import Dialect
from irt_dask.ingest.text.files import kind_of
from irt_dask.store.categories import BINARY, MOST
from irt_dask.store.documents import from_toml
from irt_dask.store.places import local_path, location, placed, read_bytes
from irt_dask.workflow.publishing import PopulationSection, TableSection, check_published
from irt_dask.workflow.sections import (
    BayesConfig,
    CalibrateConfig,
    CheckConfig,
    FitTestsConfig,
    JointConfig,
    LowestRight,
    MarginalConfig,
    OnFileSystem,
    PrivateConfig,
    Recode,
    Section,
    SpectralConfig,
)


class SimulateConfig(Section):
    """Simulated responses, to try a configuration before the data are there."""

    persons: int = Field(ge=1)
    items: int = Field(ge=1)
    missing: float = Field(default=0.0, ge=0.0, lt=1.0)


#: Draws of the items that EAPs are averaged over.
_ITEM_DRAWS = 20

#: Files of the input, and what is said of a source alone.
INPUT_FILES = ("source", "key", "persons")
_OTHER_DATA = ("store", "builtin", "simulate")
OF_A_SOURCE = (
    "shape", "columns", "exclude", "missing", "recode", "key", "categories", "reverse",
    "null_categories", "persons", "layout", "on_error", "delimiter", "decimal", "encoding",
    "weight_kind",
)  # fmt: skip
Treatment = Literal["missing", "wrong"]
_Count = Annotated[int, Field(strict=True, ge=BINARY, le=MOST)]


class DataConfig(Section):
    """Where the responses come from: exactly one of source, store, builtin, simulate."""

    source: str | None = None
    store: str | None = None
    builtin: Literal["lsat"] | None = None
    simulate: SimulateConfig | None = None
    shape: Literal["long", "wide"] | None = None
    columns: dict[str, str | list[str]] | None = None
    exclude: str | list[str] = Field(default=[])
    missing: list[str | int] = Field(default=[])
    recode: Recode = None
    key: str | None = None
    categories: _Count | Literal["data"] | dict[str, _Count] | None = None
    reverse: str | list[str] = Field(default=[])
    null_categories: Literal["raise", "keep", "collapse"] = "raise"
    persons: str | None = None
    layout: Literal["auto", "dense", "csr"] = "auto"
    on_error: Literal["raise", "quarantine"] = "raise"
    delimiter: str | None = None
    decimal: Literal[".", ","] | None = None
    encoding: str | None = None
    rows_per_block: int | None = Field(default=None, ge=1)
    weight_kind: Literal["sampling", "frequency"] = "sampling"
    weights: Literal["use", "ignore"] = "use"
    #: What the responses are that the data say were omitted, or not reached, in all stages.
    omitted: Treatment | None = None
    not_reached: Treatment | None = None
    #: The lowest code that counts as right, of items of more than two categories or by item.
    dichotomise: LowestRight | None = None

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        one_of = ("source", *_OTHER_DATA)
        given = [k for k in one_of if getattr(self, k)]
        if len(given) != 1:
            found = ", ".join(given) or "none"
            raise ValueError(f"give exactly one of {', '.join(one_of)} (given: {found})")
        Dialect.checked(self.delimiter, self.decimal, self.encoding)
        described = [k for k in OF_A_SOURCE if k in self.model_fields_set and getattr(self, k)]
        if self.source is None and described:
            raise ValueError(f"{', '.join(described)}: these describe a source file")
        if self.store is not None and self.rows_per_block is not None:
            raise ValueError("rows_per_block: the store has its blocks already; leave it out")
        return self


class AbilitySection(Section):
    """Abilities: method and prior of :func:`irt_dask.score`; plausible values of each person."""

    method: Literal["eap", "map", "ml", "wle"] = "eap"
    prior: str | list[str] = "normal"
    plausible: int = Field(default=0, ge=0)
    #: What the responses are that the store says were omitted, or not reached, when it is scored.
    omitted: Treatment | None = None
    not_reached: Treatment | None = None


class ScoreConfig(AbilitySection):
    """What a run scores: ``item_draws``, to average over, are 20 for EAP unless said otherwise.

    0 for the other methods.
    """

    item_draws: int = Field(default=_ITEM_DRAWS, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _draws_of_the_method(cls, content: Any) -> Any:
        if isinstance(content, dict) and content.get("method", "eap") != "eap":
            return {"item_draws": 0} | content
        return content

    @model_validator(mode="after")
    def _what_the_method_has(self) -> ScoreConfig:
        if self.method != "eap" and self.item_draws:
            raise ValueError(f'item_draws belongs to method = "eap", not "{self.method}"')
        if self.method in ("ml", "wle") and self.prior != "normal" and not self.plausible:
            raise ValueError(
                f"prior = {self.prior!r} has no effect on method = {self.method!r}: use 'eap' or "
                f"'map', or ask for plausible values"
            )
        return self


#: Sections that only one method of calibration has.
_OF_BAYES, _OF_MARGINAL = ("spectral", "joint", "bayes"), ("marginal",)
#: Keys of [data] from the beginning.
_FIRST_OF_DATA = (
    "source", "store", "builtin", "simulate", "shape", "columns", "missing", "recode", "key",
    "persons", "layout", "on_error", "rows_per_block",
)  # fmt: skip


class RunConfig(Section):
    """One run.  Paths are relative to the file they stand in; data may be URLs."""

    title: str = "Item calibration"
    seed: int = Field(default=1, ge=0, lt=2**31)
    directory: OnFileSystem | None = None
    data: DataConfig
    cluster: ClusterConfig = ClusterConfig()
    calibrate: CalibrateConfig = CalibrateConfig()
    marginal: MarginalConfig = MarginalConfig()
    spectral: SpectralConfig = SpectralConfig()
    joint: JointConfig = JointConfig()
    bayes: BayesConfig = BayesConfig()
    check: CheckConfig = CheckConfig()
    tests: FitTestsConfig = FitTestsConfig()
    score: ScoreConfig = ScoreConfig()
    #: A population model that plausible values are drawn under, and tables of the scores.
    population: PopulationSection | None = None
    tables: list[TableSection] = Field(default_factory=list)
    private: PrivateConfig | None = None

    @property
    def is_marginal(self) -> bool:
        """Whether the items are calibrated by marginal maximum likelihood."""
        return self.calibrate.method == "marginal"

    @model_validator(mode="before")
    @classmethod
    def _no_draws_of_marginal(cls, content: Any) -> Any:
        """Score with the items as known unless something else was asked for, which is refused."""
        if not isinstance(content, dict):
            return content
        calibrate, score = content.get("calibrate"), content.get("score", {})
        if not isinstance(calibrate, dict) or calibrate.get("method") != "marginal":
            return content
        return content | ({"score": {"item_draws": 0} | score} if isinstance(score, dict) else {})

    @model_validator(mode="after")
    def _sections_of_the_method(self) -> RunConfig:
        """Refuse sections, draws and weights that the method of calibration has no use for."""
        method = self.calibrate.method
        foreign = _OF_BAYES if self.is_marginal else _OF_MARGINAL
        if given := [s for s in foreign if s in self.model_fields_set]:
            other = "bayes" if self.is_marginal else "marginal"
            raise ValueError(
                f"[{given[0]}] belongs to calibrate.method = {other!r}, which is {method!r} here"
            )
        starts = [s for s in ("spectral", "joint") if s in self.model_fields_set]
        if starts and not self.is_marginal and not self.bayes.starts_from_joint:
            raise ValueError(
                f"[{starts[0]}] makes start values of the 2PL with positive slopes; leave it out "
                f"with this [bayes] model or positive"
            )
        if self.is_marginal and self.score.item_draws:
            raise ValueError(
                f"score.item_draws = {self.score.item_draws}: marginal maximum likelihood has no "
                f"draws of the items to average over, but estimates with standard errors; leave "
                f"item_draws out, or calibrate with method = 'bayes'"
            )
        if self.data.columns and "weight" in self.data.columns:
            self.check_weights(f"columns.weight = {self.data.columns['weight']!r}")
        return self

    @model_validator(mode="after")
    def _what_is_published(self) -> RunConfig:
        """Refuse what a run does not do with a population, and files that are not its own."""
        check_published(self, self.population, self.tables)
        return self

    def check_weights(self, what: str) -> None:
        """Stop, with the remedies, where persons have weights and a stage cannot use them."""
        if self.data.weights == "ignore":
            return
        if self.private is not None:
            raise InputError(
                f"{what}: [private] does not use person weights; leave it out (another run can "
                f'have it), or write [data] weights = "ignore"'
            )

    @model_validator(mode="after")
    def _enough_draws(self) -> RunConfig:
        """Refuse more draws than the posterior will have: it is the longest stage."""
        if self.is_marginal:
            return self
        asked = {
            "check.replicates": self.check.replicates,
            "score.item_draws": self.score.item_draws,
        }
        if self.score.item_draws:  # else all come from the point estimates
            asked["score.plausible"] = self.score.plausible
        kept = self.bayes.surely_kept
        for key, n in asked.items():
            if n > kept:
                raise ValueError(
                    f"{key} = {n} exceeds the {kept} draws that the posterior is sure to have; ask "
                    f"for fewer, or raise bayes.draws or set bayes.chains"
                )
        return self

    def computed(self) -> dict[str, Any]:
        """The part of the configuration that results depend on: not where the run computes.

        What later versions have added does not show where it is not used, so that runs that were
        begun before can go on.
        """
        content = self.model_dump(mode="json", exclude={"cluster", "directory", "title"})
        for section in _OF_BAYES if self.is_marginal else _OF_MARGINAL:
            del content[section]
        if self.is_marginal:
            content["marginal"].pop("fixed_items")  # for which its checksum stands too
            for key in (
                "null_categories", "positive", "prior", "sampling_unit", "facets", "item_table",
            ):  # fmt: skip
                if content["marginal"][key] is None:
                    del content["marginal"][key]
            if self.marginal.item_table is not None:
                read_item_covariates(self.marginal.item_table)
                content["marginal"]["item_table"] = _checksum_of(self.marginal.item_table)
        else:
            del content["calibrate"]
            usual = {"model": "2pl", "guessing_prior": None, "positive": None, "item_table": None}
            for key, value in usual.items():
                if content["bayes"][key] == value:
                    del content["bayes"][key]
            if self.bayes.item_table is not None:  # what it says, not where it lies
                content["bayes"]["item_table"] = _checksum(self.bayes.item_table)
            if not self.bayes.starts_from_joint:
                del content["spectral"], content["joint"]
        of_data = DataConfig.model_construct().model_dump(mode="json")
        content["data"] = {
            k: v for k, v in content["data"].items() if k in _FIRST_OF_DATA or v != of_data[k]
        }
        for key in (*INPUT_FILES, "store"):  # the data's checksum stands for where they lie
            path = content["data"].pop(key)
            if path is not None and key != "store":  # a file's name says how its bytes are read
                content["data"][f"{key}_format"] = kind_of(PurePath(path))
        for key in ("omitted", "not_reached"):
            if content["score"][key] is None:
                del content["score"][key]
        if self.tests == FitTestsConfig():
            del content["tests"]
        elif self.tests.groups is None:
            del content["tests"]["groups"]
        if self.population is None:
            del content["population"]
        elif self.population.domains is not None:  # what it says, not where it lies
            content["population"]["domains"] = _checksum_of(self.population.domains)
        for table, said in zip(self.tables, content["tables"], strict=True):
            if table.persons is not None:
                said["persons"] = _checksum_of(table.persons)
            if table.decimal is None:  # as it was before there was the key
                del said["decimal"]
        if not self.tables:
            del content["tables"]
        if content["private"] is not None:
            for key in ("ledger", "budget"):  # where a release is kept, and whether it may be
                content["private"].pop(key)
        return content

    def digest(self) -> str:
        """Checksum of :meth:`computed` but for tables, which no other result depends on."""
        content = {k: v for k, v in self.computed().items() if k != "tables"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _checksum(item_table: str) -> str:
    """Checksum of a table of items."""
    read_item_table(item_table)  # an error of its content first
    return _checksum_of(item_table)


def _checksum_of(path: str) -> str:
    """Checksum of a file that a section names."""
    try:
        return hashlib.sha256(read_bytes(location(path))).hexdigest()
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None


def read_toml(path: str | Path, paths: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """Content of a pipeline file; paths in it become absolute, relative to its folder.

    ``paths`` are the keys by section that hold paths, besides those of a cluster.  InputError if
    there is no such file or it is no TOML.
    """
    try:
        content = from_toml(read_bytes(local_path(path, "a pipeline file")))
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"there is no pipeline file {path}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"the pipeline file {path} cannot be read: {error}") from error
    folder = Path(path).resolve().parent
    if "cluster" in content:
        content["cluster"] = located(content["cluster"], folder)
    for section in paths.keys() & content.keys():
        content[section] = located(content[section], folder, paths[section])
    return located(content, folder, ("directory",))


#: Keys that hold paths, by section.
_PATHS = {
    "data": (*INPUT_FILES, "store"), "private": ("ledger",),
    "marginal": ("fixed_items", "item_table"), "bayes": ("item_table",),
    "population": ("domains",),
}  # fmt: skip


def read_config(path: str | Path, overrides: dict[str, Any] | None = None) -> RunConfig:
    """Read and validate the TOML file of a run.

    Parameters
    ----------
    path : the file; paths in it become absolute, relative to its folder.
    overrides : ``source`` and ``directory`` from a command line (relative to where it was typed).

    Raises
    ------
    InputError
        Names the file, the key, the value and the rule.
    """
    content = read_toml(path, _PATHS)
    if isinstance(content.get("tables"), list):
        folder = Path(path).resolve().parent
        content["tables"] = [located(t, folder, ("persons",)) for t in content["tables"]]
    given = {k: placed(Path.cwd(), str(v)) for k, v in (overrides or {}).items() if v is not None}
    if "source" in given:
        data = content.get("data")
        kept = data.items() if isinstance(data, dict) else ()
        content["data"] = {k: v for k, v in kept if k not in _OTHER_DATA}
        content["data"]["source"] = given.pop("source")
    content |= given
    return validated(RunConfig, content, str(Path(path)))
