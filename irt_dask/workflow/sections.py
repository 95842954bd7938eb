"""Sections of a run's configuration that are about one method each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from irt_dask.calibrate.marginal.facets.terms import parsed
from irt_dask.curves import MODELS, ItemModel, model_named
from irt_dask.curves.priors import ItemPrior
from irt_dask.errors import InputError
from irt_dask.ingest.columns.meanings import undecided
from irt_dask.items.mixture import check_names, has_guessing, names_of
from irt_dask.store.categories import MOST
from irt_dask.store.places import is_url

#: Chains of one shard with many items, which share the draws, and the fewest draws of each.
SHARED_CHAINS, _FEWEST_DRAWS = 4, 100
#: Draws, and those of each of several shards of more items than this: of so many parameters their
#: covariance is combined item by item, for which fewer draws suffice.
_DRAWS, _DRAWS_OF_SHARDS, _FEW_ITEMS = 2000, 1000, 30

#: Fewer are no check (see ``predictive_check``).
_LEAST_REPLICATES = 10


class Section(BaseModel):
    """A section of a file: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _no_url(path: str) -> str:
    if is_url(path):
        raise ValueError("must be a path on a file system, not a URL")
    return path


#: A path that cannot be a URL.
OnFileSystem = Annotated[str, AfterValidator(_no_url)]


def _codes_are_said(recode: Any) -> Any:
    if isinstance(recode, dict) and (what := undecided(recode)) is not None:
        raise ValueError(what)
    return recode


_Code = Annotated[int, Field(strict=True, ge=0, lt=MOST)]
_Meaning = Literal["right", "wrong", "missing", "omitted", "not reached"] | _Code
#: What codes and labels of responses mean, of all items or of those that are named.
Recode = Annotated[
    dict[str, _Meaning | dict[str, _Meaning]] | None, BeforeValidator(_codes_are_said)
]
_LowestCode = Annotated[int, Field(strict=True, ge=1, lt=MOST)]
#: The lowest code that counts as right: of all items of more than two categories, or by item.
LowestRight = _LowestCode | dict[str, _LowestCode]


class CalibrateConfig(Section):
    """How the items are calibrated: their posterior, or marginal maximum likelihood."""

    method: Literal["bayes", "marginal"] = "bayes"


class MarginalConfig(Section):
    """Marginal maximum likelihood; the options are those of :func:`irt_dask.fit_marginal`.

    ``fixed_items`` is the file of a bank; ``guessing_prior`` is "none" for the maximum of the
    likelihood alone; ``model`` is a name, two joined by a plus, or a table of item = name;
    ``sampling_unit`` names a covariate of the persons, or person_group; ``facets`` name what
    levels or numbers stand for in columns item@level, and columns of ``item_table``, a file of the
    items' covariates.  What is left out is as the function has it.
    """

    model: str | dict[str, str] = "2pl"
    max_iterations: int | None = Field(default=None, ge=1)
    tolerance: float | None = Field(default=None, gt=0.0)
    groups: bool | None = None
    reference_group: str | None = None
    latent: Literal["normal", "histogram"] | None = None
    fixed_items: str | None = None
    guessing_prior: tuple[float, float] | Literal["none"] | None = None
    prior: Literal["empirical"] | None = None
    positive: Literal["all", "none"] | None = None
    standard_errors: bool | Literal["information", "sandwich"] | None = None
    sampling_unit: str | None = None
    facets: list[str] | None = None
    item_table: str | None = None
    null_categories: Literal["raise", "keep", "collapse"] | None = None

    @model_validator(mode="after")
    def _known(self) -> MarginalConfig:
        _check_models(self.model, self.guessing_prior)
        one_slope = [k.name for k in _kinds(self.model) if "a" in k.shared]
        if self.positive == "none" and one_slope:
            raise ValueError(f"positive = 'none': items of {one_slope[0]} share one slope")
        own = [
            k.name
            for k in _kinds(self.model)
            if not (k.without_bounds and k.slopes_alone) or k.shared
        ]
        if self.prior is not None and (own or self.latent == "histogram"):
            of = f"not of {own[0]}" if own else "of normal abilities"
            raise ValueError(f"prior = 'empirical' is of slopes and intercepts of items, {of}")
        if self.sampling_unit is not None and self.standard_errors in (False, "information"):
            raise ValueError("sampling_unit is of a sandwich; leave it out, or standard_errors")
        beside = {
            "fixed_items": self.fixed_items, "prior": self.prior,
            "sampling_unit": self.sampling_unit,
            "latent": self.latent if self.latent == "histogram" else None,
            "positive": self.positive if self.positive == "none" else None,
        }  # fmt: skip
        if self.facets is not None and (names := [k for k, v in beside.items() if v is not None]):
            raise ValueError(f"{names[0]} does not go together with facets: leave one of them out")
        if self.item_table is not None and self.facets is None:
            raise ValueError("item_table has covariates of items, which facets name: give facets")
        if self.facets is not None:
            _check_terms(self.facets)
        if self.reference_group is not None and self.fixed_items is not None:
            raise ValueError("reference_group has no meaning with fixed_items, which fix the scale")
        return self

    def options(self) -> dict[str, Any]:
        """Return what fit_marginal is given, but for the items of the bank."""
        files = {"fixed_items", "item_table"}
        return _options(self.model_dump(exclude=files, exclude_none=True))


def _check_terms(facets: list[str]) -> None:
    """ValueError at what is no term of facets."""
    try:
        parsed(facets)
    except InputError as error:
        raise ValueError(str(error)) from None


def _check_models(model: str | dict[str, str], guessing_prior: Any) -> None:
    """ValueError at models that do not exist, or have no guessing."""
    try:
        check_names(model)
    except InputError as error:
        raise ValueError(str(error)) from None
    if guessing_prior is not None and not has_guessing(model):
        raise ValueError(f"guessing_prior: items of model = {model!r} have no guessing")


def _kinds(model: str | dict[str, str]) -> list[ItemModel]:
    """The models named, each for some number of categories."""
    names = [name.partition(":")[0] for name in names_of(model)]
    return [model_named(name, 2 if name in MODELS else 3) for name in names]


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Options as functions have them: no prior is None there."""
    return given | ({"guessing_prior": None} if given.get("guessing_prior") == "none" else {})


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

    ``draws = 0`` keeps 2,000 of a chain, or 1,000 of each of several shards of more than 30 items.
    ``chains = 0`` takes one chain a shard; four, which share the draws, where one shard has 256
    items or more, because a chain uses one core.  The items' prior is learned, but for nominal
    items; ``prior = "fixed"``, or giving one of its parts, makes it ``ItemPrior``.  ``model``,
    ``guessing_prior`` and ``positive`` are as in :class:`MarginalConfig`; ``item_table`` is a file
    of the items' blocks and covariates.
    """

    model: str | dict[str, str] = "2pl"
    guessing_prior: tuple[float, float] | Literal["none"] | None = None
    positive: Literal["all", "none"] | None = None
    item_table: str | None = None

    shards: int = Field(default=0, ge=0)
    draws: int = Field(default=0, ge=0)
    warmup: int = Field(default=500, ge=50)
    chains: int = Field(default=0, ge=0)
    prior: Literal["hierarchical", "fixed"] | None = None
    prior_discrimination: tuple[float, float] | None = None
    prior_intercept: tuple[float, float] | None = None

    @model_validator(mode="after")
    def _known(self) -> BayesConfig:
        _check_models(self.model, self.guessing_prior)
        if any(k.name == "nominal" for k in _kinds(self.model)):
            if self.positive != "none":
                raise ValueError("model: scores of nominal items have any sign: positive = 'none'")
            if self.prior == "hierarchical" or self.item_table is not None:
                raise ValueError(
                    "model: the learned prior, and item_table, are not of nominal items"
                )
        one_slope = [k.name for k in _kinds(self.model) if k.shared]
        if one_slope and self.positive == "none":
            raise ValueError(f"positive = 'none': items of {one_slope[0]} share one slope")
        if one_slope and self.item_table is not None:
            raise ValueError(f"item_table: items of {one_slope[0]} share one slope")
        return self

    @property
    def starts_from_joint(self) -> bool:
        """Whether joint maximum likelihood has start values: the 2PL, its slopes positive."""
        return self.model == "2pl" and self.positive != "none"

    def model_options(self) -> dict[str, Any]:
        """Return which models fit_bayes is given."""
        return _options(
            self.model_dump(include={"model", "guessing_prior", "positive"}, exclude_none=True)
        )

    @model_validator(mode="after")
    def _enough(self) -> BayesConfig:
        if 0 < self.draws < _FEWEST_DRAWS:
            raise ValueError(f"draws = {self.draws}: {_FEWEST_DRAWS} is the least, or 0")
        return self

    @model_validator(mode="after")
    def _one_prior(self) -> BayesConfig:
        given = [k for k in ("prior_discrimination", "prior_intercept") if getattr(self, k)]
        if self.positive == "none" and self.prior_discrimination:
            raise ValueError(
                "prior_discrimination is of positive slopes; those of any sign are N(0, 1) before "
                "the data with prior = 'fixed', or as learned"
            )
        if self.item_table is not None and (given or self.prior == "fixed"):
            raise ValueError("item_table is of the learned prior; leave prior = 'fixed' out")
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

    def draws_of(self, n_shards: int, chains: int, n_items: int) -> int:
        """Draws that each of a shard's chains keeps, and their combination too."""
        several = n_shards > 1 and n_items > _FEW_ITEMS
        draws = self.draws or (_DRAWS_OF_SHARDS if several else _DRAWS)
        return draws if self.chains else max(_FEWEST_DRAWS, -(-draws // chains))

    @property
    def surely_kept(self) -> int:
        """Draws that there will be whatever the data are."""
        chains = self.chains or SHARED_CHAINS
        return min(self.draws_of(n, chains if n == 1 else 1, _FEW_ITEMS + 1) for n in (1, 2))


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


class FitTestsConfig(Section):
    """Tests of the items and persons against the calibration, for files and the report.

    ``dif_reference`` is the group that all others are compared with for differential functioning;
    ``dif_anchors`` are as :func:`irt_dask.dif` has them.
    ``groups`` is whether item fit and curves tell the groups of persons apart (default: if there
    are groups).
    """

    item_fit: bool = False
    groups: bool | None = None
    person_fit: bool = False
    dif_reference: str | None = None
    dif_anchors: Literal["all", "iterate"] | list[str] = "all"

    @model_validator(mode="after")
    def _anchors_of_dif(self) -> FitTestsConfig:
        if self.dif_reference is None and "dif_anchors" in self.model_fields_set:
            raise ValueError("dif_anchors belongs to dif_reference, which is not given")
        return self

    @model_validator(mode="after")
    def _groups_of_items(self) -> FitTestsConfig:
        if self.groups is not None and not self.item_fit:
            raise ValueError("groups belongs to item_fit = true, which is not given")
        return self


class PrivateConfig(Section):
    """Difficulties under differential privacy; every release is kept in ``ledger``.

    ``budget`` is that of the ledger, for all its releases together.
    """

    ledger: OnFileSystem
    budget: dict[str, float] | None = None
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
