"""The configuration of a run: a TOML file, validated, unknown keys refused."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from irt_dask.clusters import ClusterConfig
from irt_dask.clusters.config import located, validated
from irt_dask.curves.priors import ItemPrior
from irt_dask.errors import InputError
from irt_dask.ingest.text.files import kind_of
from irt_dask.store.places import is_url, local_path, placed


class Section(BaseModel):
    """A section of a file: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _no_url(path: str) -> str:
    if is_url(path):
        raise ValueError("must be a path on a file system, not a URL")
    return path


#: A path that cannot be a URL.
OnFileSystem = Annotated[str, AfterValidator(_no_url)]


class SimulateConfig(Section):
    """Simulated responses, to try a configuration before the data are there."""

    persons: int = Field(ge=1)
    items: int = Field(ge=1)
    missing: float = Field(default=0.0, ge=0.0, lt=1.0)


#: Chains of one shard with many items, which share the draws, and the fewest draws of each.
SHARED_CHAINS, _FEWEST_DRAWS = 4, 100

#: Draws of the items that EAPs are averaged over.
_ITEM_DRAWS = 20

#: Fewer are no check (see ``predictive_check``).
_LEAST_REPLICATES = 10

#: Files of the input, and what is said of a source alone.
INPUT_FILES = ("source", "key", "persons")
_OTHER_DATA = ("store", "builtin", "simulate")
OF_A_SOURCE = (
    "shape", "columns", "missing", "recode", "key", "persons", "layout", "on_error",
)  # fmt: skip


class DataConfig(Section):
    """Where the responses come from: exactly one of source, store, builtin, simulate."""

    source: str | None = None
    store: str | None = None
    builtin: Literal["lsat"] | None = None
    simulate: SimulateConfig | None = None
    shape: Literal["long", "wide"] | None = None
    columns: dict[str, str | list[str]] | None = None
    missing: list[str | int] = []
    recode: dict[str, Literal["right", "wrong", "missing"]] | None = None
    key: str | None = None
    persons: str | None = None
    layout: Literal["auto", "dense", "csr"] = "auto"
    on_error: Literal["raise", "quarantine"] = "raise"
    rows_per_block: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        one_of = ("source", *_OTHER_DATA)
        given = [k for k in one_of if getattr(self, k)]
        if len(given) != 1:
            found = ", ".join(given) or "none"
            raise ValueError(f"give exactly one of {', '.join(one_of)} (given: {found})")
        if self.columns and "weight" in self.columns:
            raise ValueError("columns.weight: a pipeline's methods do not use person weights")
        described = [k for k in OF_A_SOURCE if k in self.model_fields_set and getattr(self, k)]
        if self.source is None and described:
            raise ValueError(f"{', '.join(described)}: these describe a source file")
        return self


class SpectralConfig(Section):
    """Start values: the spectral estimator."""

    regularization: float | None = Field(default=None, ge=0.0)


class JointConfig(Section):
    """Joint maximum likelihood; ``coreset`` persons are drawn per iteration; 0 uses all."""

    coreset: int = Field(default=2000, ge=0)
    max_iterations: int = Field(default=50, ge=8)
    tolerance: float = Field(default=1e-6, gt=0.0)


class BayesConfig(Section):
    """LS-WASP; ``shards = 0`` takes one shard for each 5,000 persons, at most 16.

    ``chains = 0`` takes one chain a shard; four, which share the draws, where one shard has 256
    items or more, because a chain uses one core.  The items' prior is learned; ``prior = "fixed"``,
    or giving one of its parts, makes it ``ItemPrior``.
    """

    shards: int = Field(default=0, ge=0)
    draws: int = Field(default=2000, ge=100)
    warmup: int = Field(default=500, ge=50)
    chains: int = Field(default=0, ge=0)
    prior: Literal["hierarchical", "fixed"] | None = None
    prior_discrimination: tuple[float, float] | None = None
    prior_intercept: tuple[float, float] | None = None

    @model_validator(mode="after")
    def _one_prior(self) -> BayesConfig:
        given = [k for k in ("prior_discrimination", "prior_intercept") if getattr(self, k)]
        if self.prior == "hierarchical" and given:
            raise ValueError(
                f"{given[0]} is of prior = 'fixed'; a hierarchical prior learns it from the items"
            )
        return self

    def item_prior(self) -> ItemPrior | None:
        """The prior of the items; None for the default of fit_bayes, which is learned."""
        discrimination, intercept = self.prior_discrimination, self.prior_intercept
        if self.prior != "fixed" and discrimination is None and intercept is None:
            return None
        usual = ItemPrior()
        return ItemPrior(discrimination or usual.discrimination, intercept or usual.intercept)

    def draws_of(self, chains: int) -> int:
        """Draws that each of the chains keeps, and their combination too."""
        return self.draws if self.chains else max(_FEWEST_DRAWS, -(-self.draws // chains))


class CheckConfig(Section):
    """Posterior predictive check of the scores; ``replicates = 0`` makes none."""

    replicates: int = Field(default=50, ge=0)

    @model_validator(mode="after")
    def _enough(self) -> CheckConfig:
        if 0 < self.replicates < _LEAST_REPLICATES:
            raise ValueError(
                f"replicates = {self.replicates} are too few; give {_LEAST_REPLICATES} or more, or "
                f"0 for no check"
            )
        return self


class AbilitySection(Section):
    """Abilities: method and prior of :func:`irt_dask.score`; plausible values of each person."""

    method: Literal["eap", "map", "ml", "wle"] = "eap"
    prior: str | list[str] = "normal"
    plausible: int = Field(default=0, ge=0)


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
    def _items_as_known(self) -> ScoreConfig:
        if self.method != "eap" and self.item_draws:
            raise ValueError(f'item_draws belongs to method = "eap", not "{self.method}"')
        return self


class PrivateConfig(Section):
    """Difficulties under differential privacy; every release is kept in ``ledger``."""

    ledger: OnFileSystem
    epsilon: float | None = Field(default=None, gt=0.0)
    delta: float | None = Field(default=None, gt=0.0, lt=1.0)
    rho: float | None = Field(default=None, gt=0.0)
    adjacency: Literal["replace", "add-remove"] = "replace"
    max_items_per_person: int | None = Field(default=None, ge=2)
    pairs: Literal["all", "random"] = "all"
    p0: float | None = Field(default=None, gt=0.0, le=1.0)

    @model_validator(mode="after")
    def _one_budget(self) -> PrivateConfig:
        if (self.rho is None) == (self.epsilon is None):
            raise ValueError("give either epsilon and delta, or rho")
        if self.epsilon is not None and self.delta is None:
            raise ValueError("epsilon needs a delta")
        if self.p0 is not None and self.pairs == "all":
            raise ValueError('p0 belongs to pairs = "random"')
        return self


class RunConfig(Section):
    """One run.  Paths are relative to the file they stand in; data may be URLs."""

    title: str = "Item calibration"
    seed: int = Field(default=1, ge=0, lt=2**31)
    directory: OnFileSystem | None = None
    data: DataConfig
    cluster: ClusterConfig = ClusterConfig()
    spectral: SpectralConfig = SpectralConfig()
    joint: JointConfig = JointConfig()
    bayes: BayesConfig = BayesConfig()
    check: CheckConfig = CheckConfig()
    score: ScoreConfig = ScoreConfig()
    private: PrivateConfig | None = None

    @model_validator(mode="after")
    def _enough_draws(self) -> RunConfig:
        """Refuse more draws than the posterior will have: it is the longest stage."""
        asked = {
            "check.replicates": self.check.replicates,
            "score.item_draws": self.score.item_draws,
        }
        if self.score.item_draws:  # else all come from the point estimates
            asked["score.plausible"] = self.score.plausible
        kept = self.bayes.draws_of(self.bayes.chains or SHARED_CHAINS)  # whatever the data are
        for key, n in asked.items():
            if n > kept:
                raise ValueError(
                    f"{key} = {n} exceeds the {kept} draws that the posterior is sure to have; ask "
                    f"for fewer, or raise bayes.draws or set bayes.chains"
                )
        return self

    def computed(self) -> dict[str, Any]:
        """The part of the configuration that results depend on: not where the run computes."""
        content = self.model_dump(mode="json", exclude={"cluster", "directory", "title"})
        for key in (*INPUT_FILES, "store"):  # the data's checksum stands for where they lie
            path = content["data"].pop(key)
            if path is not None and key != "store":  # a file's name says how its bytes are read
                content["data"][f"{key}_format"] = kind_of(PurePath(path))
        if content["private"] is not None:
            content["private"].pop("ledger")
        return content

    def digest(self) -> str:
        """Checksum of :meth:`computed`."""
        return hashlib.sha256(json.dumps(self.computed(), sort_keys=True).encode()).hexdigest()


def read_toml(path: str | Path, paths: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """Content of a pipeline file; paths in it become absolute, relative to its folder.

    ``paths`` are the keys by section that hold paths, besides those of a cluster.  InputError if
    there is no such file or it is no TOML.
    """
    try:
        content = tomllib.loads(local_path(path, "a pipeline file").read_text())
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
    content = read_toml(path, {"data": (*INPUT_FILES, "store"), "private": ("ledger",)})
    given = {k: placed(Path.cwd(), str(v)) for k, v in (overrides or {}).items() if v is not None}
    if "source" in given:
        data = content.get("data")
        kept = data.items() if isinstance(data, dict) else ()
        content["data"] = {k: v for k, v in kept if k not in _OTHER_DATA}
        content["data"]["source"] = given.pop("source")
    content |= given
    return validated(RunConfig, content, str(Path(path)))
