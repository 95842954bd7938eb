"""Every public method that takes responses: how to call it on small data, and which data it takes.

A new method is one more record of ``METHODS``; ``test_registry.py`` fails until it has one, and
calls it.  Tests that hold for all methods, or for all with a property, run over this list.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr

import irt_dask as irt
from irt_dask.errors import IrtDaskWarning

N, M = 400, 5


def item_ids(m: int) -> tuple[str, ...]:
    return tuple(f"item {j}" for j in range(m))


ITEMS = item_ids(M)


@dataclass(frozen=True)
class Method:
    """A way to call a public function; ``label`` is unique, for the ids of tests.

    ``items`` names the bank (of ``BANKS``) that it takes as second argument.  Random numbers are
    "none", "keyed" (a seed, and the person's place) or "secret" (never the same result twice).
    """

    label: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    items: str | None = None
    #: Whether it takes person weights; a method without refuses them.
    weights: bool = False
    #: Whether weights change what it returns; False: taken, without effect by definition.
    uses_weights: bool = True
    #: "no": it looks at no groups; "yes": it uses them where there are any; "needs".
    groups: str = "no"
    #: Whether it uses covariates.
    covariates: bool = False
    #: Abilities of a person in its model.
    abilities: int = 1
    random: str = "none"
    private: bool = False
    #: Whether variables of the result are over persons.
    persons: bool = False
    #: Categories of the items of its data, where some have more than two.
    categories: tuple[int, ...] | None = None
    #: Whether the places of persons say something, so that they have one order.
    ordered: bool = False
    #: Whether it takes so long that tests over all methods are marked slow, or nightly, for it.
    slow: bool | str = False

    def __call__(
        self, responses: Any, *, banks: Mapping[str, xr.Dataset] | None = None, **options: Any
    ) -> xr.Dataset:
        """Call it; that few persons and iterations warn is not at issue."""
        given = [] if self.items is None else [(banks or BANKS)[self.items]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IrtDaskWarning)
            return getattr(irt, self.name)(responses, *given, **self.options, **options)

    def __repr__(self) -> str:
        return self.label


# --- banks ----------------------------------------------------------------------------------------


def _bank(m: int) -> xr.Dataset:
    """Five items, and those again in turn."""
    a = np.resize([0.7, 1.6, 1.0, 1.2, 0.9], m)
    d = np.resize([0.5, -0.8, 0.0, 1.1, -0.3], m)
    return xr.Dataset(
        {
            "item_discrimination": ("items", a),
            "item_intercept": ("items", d),
            "item_difficulty": ("items", -d / a),
        },
        coords={"item_id": ("items", list(item_ids(m)))},
        attrs={"model": "2pl"},
    )


def _with_draws(bank: xr.Dataset, n: int = 20) -> xr.Dataset:
    """As fit_bayes returns it: every parameter also as draws."""
    noise = np.random.default_rng(0).normal(0.0, 0.05, (2, n, bank.sizes["items"]))
    a, d = bank["item_discrimination"].values, bank["item_intercept"].values
    drawn = {
        "item_discrimination_draw": (("draw", "items"), a * np.exp(noise[0])),
        "item_intercept_draw": (("draw", "items"), d + noise[1]),
    }
    return bank.assign(drawn)


def _plane(bank: xr.Dataset) -> xr.Dataset:
    """Items of two abilities."""
    m = bank.sizes["items"]
    loading = [[0.9, 1.2, 0.6, 0.3, 0.0], [0.0, 0.4, 0.7, 1.0, 1.1]]
    return xr.Dataset(
        {
            "item_loading": (
                ("latent_dims", "items"),
                np.stack([np.resize(x, m) for x in loading]),
            ),
            "item_intercept": ("items", bank["item_intercept"].values),
        },
        coords={"item_id": bank["item_id"]},
        attrs={"model": "m2pl"},
    )


def _bifactor(bank: xr.Dataset) -> xr.Dataset:
    """Items in turn of two blocks, and of none."""
    m = bank.sizes["items"]
    loading = np.zeros((m, 3))
    loading[:, 0] = bank["item_discrimination"].values
    for k, s in ((1, 0.6), (2, 0.9)):
        loading[k - 1 :: 3, k] = s
    return xr.Dataset(
        {
            "item_loading": (("items", "latent_dims"), loading),
            "item_intercept": ("items", bank["item_intercept"].values),
        },
        coords={"item_id": bank["item_id"], "domain": ("latent_dims", ["general", "a", "b"])},
        attrs={"model": "bifactor"},
    )


def _guessed(bank: xr.Dataset) -> xr.Dataset:
    guessing = np.full(bank.sizes["items"], 0.1)
    return bank.assign(item_guessing=("items", guessing)).assign_attrs(model="3pl")


def _slipped(bank: xr.Dataset) -> xr.Dataset:
    upper = np.full(bank.sizes["items"], 0.95)
    more = {"item_upper_asymptote": ("items", upper)}
    return _guessed(bank).assign(more).assign_attrs(model="4pl")


#: Categories and models of items of mixed formats, in turn.
_CATEGORIES, _MODELS = (2, 3, 4, 3, 3), ("3pl", "gpcm", "graded", "nominal", "gpcm")


def _mixed(bank: xr.Dataset, models: tuple[str, ...] = _MODELS) -> xr.Dataset:
    """Items of several models, with steps about their difficulties."""
    m = bank.sizes["items"]
    k, a = np.resize(_CATEGORIES, m), bank["item_discrimination"].values
    b, models = bank["item_difficulty"].values, np.resize(models, m)
    guessing = np.where(models == "3pl", 0.1, 0.0)
    steps, score = np.full((m, 3), np.nan), np.full((m, 4), np.nan)
    for j in range(m):
        apart = b[j] + 0.8 * (np.arange(k[j] - 1) - 0.5 * (k[j] - 2))
        steps[j, : k[j] - 1] = -a[j] * (apart if models[j] == "graded" else apart.cumsum())
        if models[j] == "nominal":
            score[j, : k[j]] = a[j] * np.arange(k[j])
    return bank.assign(
        item_model=("items", models), item_n_categories=("items", k),
        item_guessing=("items", guessing), item_step_intercept=(("items", "steps"), steps),
        item_category_score=(("items", "categories"), score),
    ).assign_attrs(model="by item")  # fmt: skip


def _attempts(bank: xr.Dataset) -> xr.Dataset:
    """Counts of attempts, as many as the categories of mixed formats but one, with errors."""
    m = bank.sizes["items"]
    n, d = np.resize(_CATEGORIES, m) - 1, bank["item_intercept"].values
    steps = np.full((m, 3), np.nan)
    for j in range(m):
        steps[j, : n[j]] = [k * d[j] + math.log(math.comb(n[j], k)) for k in range(1, n[j] + 1)]
    error = ("items", np.full(m, 0.1))
    return bank.assign(
        item_model=("items", np.where(n > 1, "binomial", "2pl")),
        item_n_categories=("items", n + 1), item_step_intercept=(("items", "steps"), steps),
        item_discrimination_se=error, item_intercept_se=error,
    ).assign_attrs(model="2pl+binomial")  # fmt: skip


def banks(m: int) -> dict[str, xr.Dataset]:
    """Banks of ``m`` items, by what they hold."""
    bank = _bank(m)
    return {
        "2pl": bank,
        "3pl": _guessed(bank),
        "4pl": _slipped(bank),
        "draws": _with_draws(bank),
        "many draws": _with_draws(bank, 100),
        "plane": _plane(bank),
        "bifactor": _bifactor(bank),
        "anchors": bank.isel(items=slice(0, 2)),
        "errors": bank.assign(item_discrimination_se=("items", np.full(m, 0.1))),
        "mixed": _mixed(bank),
        "mixed, errors": _mixed(bank).assign(item_discrimination_se=("items", np.full(m, 0.3))),
        "attempts": _attempts(bank),
        "partial credit": _mixed(bank, ("2pl", "gpcm", "gpcm", "nominal", "gpcm")),
    }


BANKS = banks(M)

# --- methods --------------------------------------------------------------------------------------

_FEW = {"n_draws": 100, "n_warmup": 50, "seed": 5}
_GROUPS = {"reference": "a", "focal": "b"}

#: Of as many items as any data here have.
FACETS = pd.DataFrame(
    {"item": list("ppqqq"), "booklet": list("xyxyz"), "place": [1.0, 2.0, 2.0, 4.0, 3.0]},
    index=list(ITEMS),
)
_BENCHMARKS = {item: "abc"[j % 3] for j, item in enumerate(item_ids(400))}
_BLOCKS = {item: "ab"[j % 2] for j, item in enumerate(item_ids(400))}

METHODS = (
    Method("pair_counts", "pair_counts", weights=True),
    Method("spectral", "fit_spectral", weights=True),
    Method("spectral, nu = 0", "fit_spectral", {"regularization": 0.0}, weights=True),
    Method("choppin", "fit_choppin"),
    Method("saaty", "fit_saaty"),
    Method("pairwise, all", "fit_pairwise", {"pairing": "all"}),
    Method("pairwise, random", "fit_pairwise", {"n_splits": 3, "seed": 5}, random="keyed"),
    Method("conditional", "fit_conditional"),
    Method(
        "conditional, pcm", "fit_conditional", {"model": "pcm"}, categories=(2, 3, 4, 3, 3),
    ),
    Method(
        "conditional, rating", "fit_conditional", {"model": "rating"}, categories=(2, 3, 3, 4, 4),
    ),
    Method(
        "private spectral", "fit_private_spectral", {"epsilon": 5.0, "delta": 1e-6},
        random="secret", private=True,
    ),
    Method("joint 1PL", "fit_joint", {"model": "1pl", "max_iterations": 8}, weights=True),
    Method("joint 2PL", "fit_joint", {"max_iterations": 8}, weights=True),
    Method("joint 3PL", "fit_joint", {"model": "3pl", "max_iterations": 8}, weights=True),
    Method(
        "joint, coreset", "fit_joint",
        {"coreset": irt.Coreset(40), "max_iterations": 8, "seed": 5}, random="keyed",
    ),
    Method(
        "draw_coreset", "draw_coreset", {"size": 30, "seed": 5}, items="2pl", random="keyed",
        persons=True,
    ),
    Method("coreset_complexity", "coreset_complexity", items="2pl", weights=True),
    Method(
        "concurrent", "fit_concurrent", {"standard_errors": False}, weights=True, groups="needs"
    ),
    Method(
        "concurrent, mixed", "fit_concurrent",
        {"model": dict(zip(ITEMS, _MODELS, strict=True)), "free": 0.2, "max_rounds": 2},
        weights=True, groups="needs", slow=True, categories=_CATEGORIES,
    ),
    Method("marginal 1PL", "fit_marginal", {"model": "1pl"}, weights=True, groups="yes"),
    Method("marginal 2PL", "fit_marginal", weights=True, groups="yes"),
    Method("marginal 3PL", "fit_marginal", {"model": "3pl"}, weights=True, groups="yes"),
    Method(
        "marginal 4PL", "fit_marginal", {"model": "4pl", "max_iterations": 8},
        weights=True, groups="yes",
    ),
    Method(
        "marginal, histogram", "fit_marginal", {"latent": "histogram", "max_iterations": 8},
        weights=True, groups="yes",
    ),
    Method(
        "marginal, learned prior", "fit_marginal", {"prior": "empirical", "max_iterations": 8},
        weights=True, groups="yes",
    ),
    Method(
        "marginal, signed", "fit_marginal", {"positive": "none"}, weights=True, groups="yes"
    ),
    Method(
        "marginal, anchors", "fit_marginal", {"fixed_items": BANKS["anchors"]},
        weights=True, groups="yes",
    ),
    Method(
        "marginal, sampling units", "fit_marginal",
        {"sampling_unit": "person_group", "fixed_items": BANKS["anchors"]},
        weights=True, groups="needs",
    ),
    Method(
        "marginal, mixed", "fit_marginal",
        {"model": dict(zip(ITEMS, _MODELS, strict=True)), "max_iterations": 8},
        weights=True, groups="yes", categories=_CATEGORIES,
    ),
    Method(
        "marginal, rating", "fit_marginal", {"model": "rating"}, weights=True, groups="yes",
        categories=(2, 3, 3, 4, 4),
    ),
    Method(
        "marginal, binomial", "fit_marginal", {"model": "binomial"}, weights=True, groups="yes",
        categories=(2, 3, 3, 4, 4),
    ),
    Method(
        "marginal, facets", "fit_marginal",
        {"facets": FACETS, "model": "2pl+gpcm", "max_iterations": 8}, weights=True, groups="yes",
        categories=(2, 2, 3, 3, 3),
    ),
    Method("bayes", "fit_bayes", _FEW, weights=True, random="keyed", slow=True),
    Method(
        "bayes, shards", "fit_bayes", {**_FEW, "n_shards": 2}, weights=True, random="keyed",
        slow=True,
    ),
    Method(
        "bayes, signed", "fit_bayes", {**_FEW, "n_shards": 2, "positive": "none"}, weights=True,
        random="keyed", slow=True,
    ),
    Method(
        "bayes, blocks of items", "fit_bayes",
        {**_FEW, "n_shards": 2, "item_blocks": _BLOCKS}, weights=True, random="keyed", slow=True,
    ),
    Method(
        "bayes, rating", "fit_bayes", {**_FEW, "model": "rating"}, random="keyed", slow="nightly",
        categories=(3, 3, 3, 3, 3),
    ),
    Method(
        "bayes, two abilities", "fit_bayes", {**_FEW, "n_dims": 2}, abilities=2, random="keyed",
        slow=True,
    ),
    Method(
        "bifactor, testlet", "fit_bifactor", {"item_blocks": _BENCHMARKS, "max_iterations": 5},
        weights=True, abilities=3, slow=True,
    ),
    Method(
        "bifactor, free", "fit_bifactor",
        {"item_blocks": _BENCHMARKS, "loadings": "free", "max_iterations": 5}, weights=True,
        abilities=3, slow=True,
    ),
    Method(
        "score, bifactor", "score", items="bifactor", weights=True, uses_weights=False,
        persons=True, abilities=3,
    ),
    Method("score, EAP", "score", items="2pl", weights=True, uses_weights=False, persons=True),
    Method(
        "score, MAP", "score", {"method": "map"}, items="3pl", weights=True, uses_weights=False,
        persons=True,
    ),
    Method(
        "score, ML", "score", {"method": "ml"}, items="2pl", weights=True, uses_weights=False,
        persons=True,
    ),
    Method(
        "score, WLE", "score", {"method": "wle"}, items="3pl", weights=True, uses_weights=False,
        persons=True,
    ),
    Method(
        "score, plausible values", "score", {"n_plausible": 3, "n_item_draws": 5, "seed": 5},
        items="draws", weights=True, uses_weights=False, persons=True, random="keyed",
    ),
    Method(
        "score, groups", "score", {"prior": "groups"}, items="2pl", weights=True, groups="needs",
        persons=True,
    ),
    Method(
        "score, covariates", "score", {"prior": "covariates"}, items="2pl", weights=True,
        covariates=True, persons=True,
    ),
    Method(
        "score, two abilities", "score", items="plane", weights=True, uses_weights=False,
        persons=True, abilities=2,
    ),
    Method(
        "score, mixed", "score", {"n_plausible": 2, "seed": 5}, items="mixed", weights=True,
        uses_weights=False, persons=True, random="keyed", categories=_CATEGORIES,
    ),
    Method(
        "score, mixed groups", "score", {"prior": "groups", "method": "map"}, items="mixed",
        weights=True, groups="needs", persons=True, categories=_CATEGORIES,
    ),
    Method(
        "score, mixed WLE", "score", {"method": "wle"}, items="mixed", weights=True,
        uses_weights=False, persons=True, categories=_CATEGORIES,
    ),
    Method(
        "population", "fit_population", {"covariates": "age + C(sex)"}, items="3pl", weights=True,
        groups="yes", covariates=True, slow=True,
    ),
    Method(
        "population, units", "fit_population",
        {"covariates": "age", "sampling_unit": "person_group", "by_group": False}, items="2pl",
        weights=True, groups="needs", covariates=True, slow=True,
    ),
    Method(
        "population, mixed", "fit_population", {"covariates": ["age", "sex"], "n_components": 1},
        items="mixed", weights=True, groups="yes", covariates=True, slow=True,
        categories=_CATEGORIES,
    ),
    Method("evaluate", "evaluate", items="2pl"),
    Method("evaluate, 4PL", "evaluate", items="4pl"),
    Method("evaluate own", "evaluate", {"protocol": "own"}, items="2pl"),
    Method("evaluate items", "evaluate", {"protocol": "items"}, items="2pl"),
    Method("item_fit", "item_fit", items="2pl", groups="yes"),
    Method("item_fit, 4PL", "item_fit", items="4pl", groups="yes"),
    Method("person_fit", "person_fit", items="2pl", persons=True),
    Method("residual_correlations", "residual_correlations", items="2pl"),
    Method("option_analysis", "option_analysis", {"key": 1, "fdr": 0.9}),
    Method(
        "option_analysis, mixed", "option_analysis", {"key": 1, "fdr": 0.9},
        categories=_CATEGORIES,
    ),
    Method("suspect_items", "suspect_items", items="draws", groups="yes"),
    Method(
        "grow_bank", "grow_bank", {"known": 80, "prior": None}, items="anchors", ordered=True
    ),
    Method(
        "grow_bank, no new items", "grow_bank", {"known": 80, "prior": None, "fdr": 0.5},
        items="errors", ordered=True,
    ),
    Method(
        "grow_bank, attempts", "grow_bank", {"known": 80, "prior": None, "fdr": 0.5},
        items="attempts", ordered=True, categories=_CATEGORIES,
    ),
    Method("answer_similarity", "answer_similarity", {"fdr": 0.9}, items="2pl"),
    Method(
        "suspect_items, mixed", "suspect_items", items="mixed, errors", groups="yes",
        categories=_CATEGORIES,
    ),
    Method(
        "answer_similarity, mixed", "answer_similarity", {"fdr": 0.9}, items="mixed",
        categories=_CATEGORIES,
    ),
    Method("item_curves", "item_curves", items="2pl", groups="yes"),
    Method(
        "item_curves, mixed", "item_curves", items="mixed", groups="yes", categories=_CATEGORIES,
    ),
    Method("item_fit, mixed", "item_fit", items="mixed", groups="yes", categories=_CATEGORIES),
    Method("person_fit, mixed", "person_fit", items="mixed", persons=True, categories=_CATEGORIES),
    Method(
        "residual_correlations, mixed", "residual_correlations", items="mixed",
        categories=_CATEGORIES,
    ),
    Method(
        "predictive_check, mixed", "predictive_check",
        {"n_replicates": 20, "seed": 5, "item_blocks": dict(zip(ITEMS, "abbac", strict=True))},
        items="mixed", random="keyed", categories=_CATEGORIES,
    ),
    Method(
        "dif", "dif", {**_GROUPS, "seed": 5}, items="2pl", weights=True, groups="needs",
        random="keyed", slow=True,
    ),
    Method(
        "dif, mixed", "dif", {**_GROUPS, "seed": 5}, items="mixed", weights=True, groups="needs",
        random="keyed", slow=True, categories=_CATEGORIES,
    ),
    Method(
        "dif, all groups", "dif", {"reference": "b", "focal": None, "seed": 5}, items="2pl",
        weights=True, groups="needs", random="keyed", slow=True,
    ),
    Method(
        "score, partial credit", "score", items="partial credit", weights=True, uses_weights=False,
        persons=True, categories=_CATEGORIES,
    ),
    Method(
        "predictive_check", "predictive_check", {"n_replicates": 20, "seed": 5}, items="draws",
        random="keyed",
    ),
    Method("loo", "loo", items="many draws", persons=True),
    Method("predict_total", "predict_total", items="2pl", persons=True),
    Method("predict_total, draws", "predict_total", items="draws", persons=True),
    Method("predict_total, 4PL", "predict_total", items="4pl", persons=True),
    Method("predict_total, bifactor", "predict_total", items="bifactor", persons=True),
    Method(
        "predict_total, mixed", "predict_total", items="mixed", persons=True,
        categories=_CATEGORIES,
    ),
    Method("next_items", "next_items", items="2pl", persons=True),
    Method(
        "next_items, mixed", "next_items",
        {"n": 2, "criterion": "total", "exploration": 0.5, "max_exposure": 0.9, "seed": 5},
        items="mixed", persons=True, random="keyed", categories=_CATEGORIES,
    ),
)  # fmt: skip


def named(label: str) -> Method:
    """Return the record of that label."""
    return next(m for m in METHODS if m.label == label)


def each(methods: Iterable[Method] = METHODS) -> list[Any]:
    """Parameters of a test over methods; those that take long are marked."""
    nightly = [pytest.mark.slow, pytest.mark.nightly]
    marks: dict[bool | str, Any] = {False: [], True: [pytest.mark.slow], "nightly": nightly}
    return [pytest.param(m, id=m.label, marks=marks[m.slow]) for m in methods]


# --- small data -----------------------------------------------------------------------------------


def values(
    n: int = N, *, m: int = M, missing: float = 0.0, seed: int = 0, of: Method | None = None
) -> np.ndarray:
    """Responses (n, m), int8; somebody right and somebody wrong on every item, and on any two.

    ``of`` a method whose items have more categories: codes of these.
    """
    rng = np.random.default_rng(seed)
    bank, theta = _bank(m), rng.normal(size=(n, 1))
    z = bank["item_discrimination"].values * theta + bank["item_intercept"].values
    u = rng.random((n, m))
    y = (u < 1.0 / (1.0 + np.exp(-z))).astype(np.int8)
    if of is not None and of.categories is not None:
        for k in range(2, max(of.categories)):
            more = u < 1.0 / (1.0 + np.exp(0.9 * (k - 1) - z))
            y += more & (np.resize(of.categories, m) > k)
    y[rng.random((n, m)) < missing] = -1
    y[:2] = np.stack([np.arange(1, m + 1) % 2, np.arange(m) % 2])
    y[2 : 2 + m] = np.eye(m)
    return y


def table(n: int = N, *, seed: int = 0) -> dict[str, np.ndarray]:
    """Columns of persons: two groups and two covariates; whoever wants weights adds them."""
    rng = np.random.default_rng([seed, 1])
    return {
        "group": np.array(["a", "b"])[np.arange(n) % 2],
        "age": rng.normal(size=n).round(2),
        "sex": rng.integers(0, 2, n).astype(float),
    }


def weights(n: int = N, *, whole: bool = False, seed: int = 0) -> np.ndarray:
    """Weights of persons: unequal, or whole numbers from 1 to 4."""
    rng = np.random.default_rng([seed, 2])
    return rng.integers(1, 5, n).astype(float) if whole else rng.uniform(0.3, 2.5, n)


def as_responses(
    y: np.ndarray, *, layout: str = "dense", of: Method | None = None, **options: Any
) -> irt.Responses:
    """Responses in memory, dense or of observed responses alone ("csr"), ``of`` a method."""
    options["item_id"] = item_ids(y.shape[1])
    if of is not None and of.categories is not None:
        options["categories"] = np.resize(of.categories, y.shape[1])
    if layout == "dense":
        return irt.from_array(y, **options)
    rows, columns = np.nonzero(y >= 0)
    matrix = scipy.sparse.csr_array((y[rows, columns], (rows, columns)), shape=y.shape)
    return irt.from_array(matrix, observed="stored", **options)
