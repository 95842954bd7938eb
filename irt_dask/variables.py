"""The vocabulary: every named array of stores and results, once.

A variable is ``owner_quantity`` (``item_difficulty``); uncertainty and diagnostics are the same
name with a suffix (``item_difficulty_se``).  :func:`check` refuses a Dataset that uses a name, a
dimension or a dtype that is not listed here, so that documentation and results cannot drift apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from irt_dask.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

PERSONS, ITEMS, ITEMS_, LATENT_DIMS, LATENT_DIMS_, DRAW, SHARDS, ITERATION = (
    "persons",
    "items",
    "items_",
    "latent_dims",
    "latent_dims_",
    "draw",
    "shards",
    "iteration",
)


@dataclass(frozen=True)
class Variable:
    """One named array: its dimensions, kind of dtype, unit and meaning."""

    name: str
    dims: tuple[str, ...]
    kind: str  # NumPy dtype kinds that are allowed
    unit: str
    doc: str
    #: Dimensions that follow where there are several abilities.
    more: tuple[str, ...] = ()

    def dims_of(self, n: int) -> tuple[str, ...]:
        """Names of the ``n`` dimensions of an array."""
        return self.dims + self.more if n > len(self.dims) else self.dims


VARIABLES = {
    v.name: v
    for v in (
        Variable(
            "response",
            (PERSONS, ITEMS),
            "i",
            "",
            "codes 0 to K - 1 of the item (K = 2: wrong, right), -1 not observed",
        ),
        Variable("person_id", (PERSONS,), "UOT", "", "the person's identifier"),
        Variable("person_weight", (PERSONS,), "f", "", "weight of the person"),
        Variable(
            "response_indptr", ("blocks", "block_rows"), "i", "", "CSR: where a person's row starts"
        ),
        Variable("response_indices", ("blocks", "capacity"), "i", "", "CSR: items, ascending"),
        Variable("response_value", ("blocks", "capacity"), "i", "", "CSR: codes"),
        Variable("person_covariate", (PERSONS, "covariates"), "f", "", "covariates of the person"),
        Variable("person_group", (PERSONS,), "UOT", "", "label of the person's group"),
        Variable("person_row", (PERSONS,), "iu", "", "position among all persons, from 0"),
        Variable("person_n_draws", (PERSONS,), "iu", "", "times the person was drawn"),
        Variable(
            "person_ability",
            (PERSONS,),
            "f",
            "theta",
            "ability on the latent scale",
            (LATENT_DIMS,),
        ),
        Variable(
            "person_ability_correlation",
            (PERSONS,),
            "f",
            "",
            "posterior correlation of the person's two abilities",
        ),
        Variable(
            "person_plausible_value",
            (PERSONS, "plausible"),
            "f",
            "theta",
            "draws of the ability",
            (LATENT_DIMS,),
        ),
        Variable("item_id", (ITEMS,), "UOT", "", "the item's identifier"),
        Variable("item_n_categories", (ITEMS,), "iu", "", "K: responses are 0 to K - 1"),
        Variable("item_discrimination", (ITEMS,), "f", "1/theta", "slope a"),
        Variable("item_difficulty", (ITEMS,), "f", "theta", "location b, where P is halfway"),
        Variable("item_intercept", (ITEMS,), "f", "logit", "intercept d = -a b"),
        Variable("item_guessing", (ITEMS,), "f", "", "lower asymptote c"),
        Variable("item_at_bound", (ITEMS,), "b", "", "whether a parameter is at a bound"),
        Variable(
            "item_flag", (ITEMS,), "UOT", "", "ok, or what is wrong with the item (ITEM_FLAGS)"
        ),
        Variable("item_anchor_chi2", (ITEMS,), "f", "", "test of the anchor's given parameters"),
        Variable("item_anchor_p_value", (ITEMS,), "f", "", "its p-value"),
        Variable("item_anchor_rmsd", (ITEMS,), "f", "", "RMS change of P that the data ask for"),
        Variable("item_linked_group", (ITEMS,), "iu", "", "items that persons link share a number"),
        Variable("item_n_responses", (ITEMS,), "iu", "persons", "persons with the item observed"),
        Variable("item_n_right", (ITEMS,), "iu", "persons", "persons with the item right"),
        Variable("item_mu0", (ITEMS,), "f", "", "complexity: numbers of responses (p = 0)"),
        Variable("item_mu1", (ITEMS,), "f", "", "complexity: sums of distances (p = 1)"),
        Variable("item_degenerate", (ITEMS,), "i", "", "1: all or none have it right, else 0"),
        Variable("item_separable", (ITEMS,), "i", "", "1: ability parts right and wrong, else 0"),
        Variable(
            "item_covariance",
            ("parameter", "parameter_"),
            "f",
            "",
            "posterior covariance of (log a, d), items in order, log a before d",
        ),
        Variable("item_loading", (ITEMS, LATENT_DIMS), "f", "1/theta", "slope on each ability"),
        Variable(
            "item_loading_draw",
            (DRAW, ITEMS, LATENT_DIMS),
            "f",
            "1/theta",
            "combined draws of loadings",
        ),
        Variable(
            "ability_correlation",
            (LATENT_DIMS, LATENT_DIMS_),
            "f",
            "",
            "correlation of the abilities",
        ),
        Variable(
            "ability_correlation_draw",
            (DRAW, LATENT_DIMS, LATENT_DIMS_),
            "f",
            "",
            "combined draws of the correlations",
        ),
        Variable("coordinate", ("coordinate",), "UOT", "", "log_discrimination, intercept"),
        Variable("coordinate_", ("coordinate_",), "UOT", "", "log_discrimination, intercept"),
        Variable(
            "item_prior_mean",
            ("coordinate",),
            "f",
            "",
            "learned mean of the items' (log a, d)",
        ),
        Variable(
            "item_prior_covariance",
            ("coordinate", "coordinate_"),
            "f",
            "",
            "learned covariance of the items' (log a, d)",
        ),
        Variable("item_prior_mean_draw", (DRAW, "coordinate"), "f", "", "combined draws of it"),
        Variable(
            "item_prior_covariance_draw",
            (DRAW, "coordinate", "coordinate_"),
            "f",
            "",
            "combined draws of it",
        ),
        Variable("item_discrimination_draw", (DRAW, ITEMS), "f", "1/theta", "combined draws of a"),
        Variable("item_intercept_draw", (DRAW, ITEMS), "f", "logit", "combined draws of d"),
        Variable(
            "pair_count", (ITEMS, ITEMS_), "iuf", "persons", "right on the row, wrong on the column"
        ),
        Variable("pair_observed", (ITEMS, ITEMS_), "iuf", "persons", "both items observed"),
        Variable(
            "item_difficulty_covariance", (ITEMS, ITEMS_), "f", "theta^2", "sampling covariance"
        ),
        Variable("item_rank", (ITEMS,), "iu", "", "rank by difficulty, 1 is the hardest"),
        Variable("item_rank_lower", (ITEMS,), "iu", "", "smallest rank of the confidence set"),
        Variable("item_rank_upper", (ITEMS,), "iu", "", "largest rank of the confidence set"),
        Variable("item_in_top", (ITEMS,), "b", "", "whether the item's rank is at most k"),
        Variable("pair_difference", (), "f", "theta", "difficulty of item less that of other"),
        Variable("pair_z", (), "f", "", "difference in standard errors"),
        Variable("pair_p_value", (), "f", "", "two-sided, of no difference"),
        Variable("item_difficulty_bias", (ITEMS,), "f", "theta", "bias by regularisation"),
        Variable(
            "item_effective_persons",
            (ITEMS,),
            "f",
            "persons",
            "persons of equal weight that the smaller side of the item, right or wrong, rests on",
        ),
        Variable("contrast_first", ("contrasts",), "UOT", "", "item of the contrast"),
        Variable("contrast_second", ("contrasts",), "UOT", "", "item it is compared with"),
        Variable("contrast_difference", ("contrasts",), "f", "theta", "first less second"),
        Variable("shard_n_persons", (SHARDS,), "iu", "persons", "persons in the shard"),
        Variable("shard_acceptance", (SHARDS,), "f", "", "accepted share of the item proposals"),
        Variable("shard_grid_spacing", (SHARDS,), "f", "theta", "spacing of the ability grid"),
        Variable("shard_max_rhat", (SHARDS,), "f", "", "largest R-hat of the shard's parameters"),
        Variable("shard_min_ess", (SHARDS,), "f", "draws", "smallest effective sample size"),
        Variable("shard_item_discrimination", (SHARDS, ITEMS), "f", "1/theta", "shard mean of a"),
        Variable(
            "shard_item_loading",
            (SHARDS, ITEMS, LATENT_DIMS),
            "f",
            "1/theta",
            "shard means of loadings",
        ),
        Variable(
            "shard_rotation",
            (SHARDS,),
            "f",
            "degrees",
            "by which loadings could be turned towards the largest shard's",
        ),
        Variable(
            "shard_ability_correlation",
            (SHARDS, LATENT_DIMS, LATENT_DIMS_),
            "f",
            "",
            "shard means of the correlations",
        ),
        Variable("shard_item_intercept", (SHARDS, ITEMS), "f", "logit", "shard mean of d"),
        Variable(
            "ability_count",
            ("ability",),
            "iu",
            "persons",
            "persons by estimated ability",
            (LATENT_DIMS,),
        ),
        Variable("ability", ("ability",), "f", "theta", "middle of the ability class"),
        Variable("group_label", ("groups",), "UOT", "", "label of a group of persons"),
        Variable("group_mean", ("groups",), "f", "theta", "mean ability of the group"),
        Variable("group_at_bound", ("groups",), "b", "", "whether mean or SD is at a bound"),
        Variable("group_sd", ("groups",), "f", "theta", "SD of ability in the group"),
        Variable(
            "group_ability_share", ("groups", "ability"), "f", "", "share of the group by ability"
        ),
        Variable("covariate", ("covariate",), "UOT", "", "name of the covariate, or intercept"),
        Variable(
            "regression_coefficient",
            ("covariate",),
            "f",
            "theta",
            "change of mean ability by a unit of the covariate",
        ),
        Variable("residual_sd", (), "f", "theta", "SD of ability given the covariates"),
        Variable("score_ability", ("score",), "f", "theta", "ability of persons with the score"),
        Variable("score_probability", ("score",), "f", "", "share of persons with the score"),
        Variable("score", ("score",), "iu", "responses", "smallest number right of the class"),
        Variable("score_count", ("score",), "iu", "persons", "persons by number right"),
        Variable("score_count_expected", ("score",), "f", "persons", "mean of the replicates"),
        Variable("item_link_rmsd", (ITEMS,), "f", "", "RMS difference of the linked curves"),
        Variable("item_infit", (ITEMS,), "f", "", "information-weighted mean square"),
        Variable("item_infit_z", (ITEMS,), "f", "", "deviation from 1 in standard errors"),
        Variable("item_outfit", (ITEMS,), "f", "", "unweighted mean square"),
        Variable("item_outfit_z", (ITEMS,), "f", "", "deviation from 1 in standard errors"),
        Variable("item_chi2", (ITEMS,), "f", "", "chi-square over groups of predictions"),
        Variable("item_chi2_df", (ITEMS,), "iu", "", "its degrees of freedom"),
        Variable("item_chi2_p_value", (ITEMS,), "f", "", "its p-value"),
        Variable("item_sx2", (ITEMS,), "f", "", "S-X2 over numbers right"),
        Variable("item_sx2_df", (ITEMS,), "iu", "", "its degrees of freedom"),
        Variable("item_sx2_p_value", (ITEMS,), "f", "", "its p-value"),
        Variable("person_infit", (PERSONS,), "f", "", "information-weighted mean square"),
        Variable("person_outfit", (PERSONS,), "f", "", "unweighted mean square"),
        Variable("person_lz", (PERSONS,), "f", "", "l_z*, standardised log-likelihood"),
        Variable("pair_first", ("pairs",), "UOT", "", "first item of the pair"),
        Variable("pair_second", ("pairs",), "UOT", "", "second item of the pair"),
        Variable("pair_q3", ("pairs",), "f", "", "correlation of residuals"),
        Variable("pair_q3_adjusted", ("pairs",), "f", "", "less the mean of all pairs"),
        Variable("pair_n_persons", ("pairs",), "iu", "persons", "persons who answered both"),
        Variable("item_information", (ITEMS, "ability"), "f", "1/theta^2", "Fisher information"),
        Variable("test_information", ("ability",), "f", "1/theta^2", "sum over the items"),
        Variable("ability_se", ("ability",), "f", "theta", "one over the root of information"),
        Variable("item_dif_shift", (ITEMS,), "f", "logit", "focal intercept less reference's"),
        Variable("item_dif_slope", (ITEMS,), "f", "1/theta", "focal slope less reference's"),
        Variable("item_dif_delta", (ITEMS,), "f", "delta", "shift on the ETS delta scale"),
        Variable("item_dif_class", (ITEMS,), "UOT", "", "ETS class A, B or C of uniform DIF"),
        *(
            variable
            for kind in ("uniform", "nonuniform", "joint")
            for variable in (
                Variable(f"item_dif_{kind}_chi2", (ITEMS,), "f", "", f"test of {kind} DIF"),
                Variable(f"item_dif_{kind}_p_value", (ITEMS,), "f", "", "its p-value"),
            )
        ),
        *(
            variable
            for name, unit in (("difficulty", "theta"), ("discrimination", "1/theta"))
            for variable in (
                Variable(f"item_{name}_difference", (ITEMS,), "f", unit, "focal less reference"),
                Variable(f"item_lord_{name}_chi2", (ITEMS,), "f", "", f"Wald test of the {name}"),
                Variable(f"item_lord_{name}_p_value", (ITEMS,), "f", "", "its p-value"),
            )
        ),
        Variable("log_likelihood", (), "f", "log-likelihood", "marginal, ability N(0, 1)"),
        Variable("log_likelihood_per_response", (), "f", "log-likelihood", "marginal, a response"),
        Variable("log_score", (), "f", "log-likelihood", "mean, predicted as attrs say"),
        Variable("auc", (), "f", "", "area under the ROC curve of these predictions"),
        Variable("top", ("top",), "iu", "items", "size K of the sets of hardest items"),
        Variable("top_accuracy", ("top",), "f", "", "share of the K hardest items found"),
        Variable("n_responses", (), "iu", "responses", "observed responses"),
        Variable(
            "iteration_objective", (ITERATION,), "f", "log-likelihood", "after each iteration"
        ),
    )
}

#: What ``item_flag`` can name, joined by "|" in this order (alphabetical); "ok" is none of them.
ITEM_FLAGS = {
    "all_right": "everybody who answered has it right",
    "all_wrong": "everybody who answered has it wrong",
    "at_bound": "a parameter ended at a bound of the estimation",
    "extreme": "the difficulty lies where no person is",
    "few_responses": "few persons answered",
    "flat": "the discrimination cannot be told from 0",
    "large_se": "a standard error is large, or it or the estimate could not be found",
    "reversed": "able persons get it wrong more often",
}

SUFFIXES = {
    "se": "standard error",
    "sd": "posterior standard deviation",
    "lower": "lower end of the interval",
    "upper": "upper end of the interval",
    "rhat": "split R-hat, the largest over shards",
    "ess": "effective sample size, summed over shards",
}


def describe(name: str) -> Variable:
    """Return the entry for ``name``, a suffix like ``_se`` taken into account."""
    if name in VARIABLES:
        return VARIABLES[name]
    base, _, suffix = name.rpartition("_")
    if base in VARIABLES and suffix in SUFFIXES:
        v = VARIABLES[base]
        return Variable(name, v.dims, "f", v.unit, f"{SUFFIXES[suffix]} of {base}", v.more)
    raise KeyError(f"{name!r} is not in the vocabulary of irt_dask.variables")


def unique_ids(item_id: Iterable[Any], what: str) -> tuple[str, ...]:
    """Return item identifiers as text; InputError that names those that stand twice."""
    ids = tuple(str(i) for i in item_id)
    if len(set(ids)) < len(ids):
        twice = [i for i, n in Counter(ids).items() if n > 1]
        raise InputError(
            f"{what}: {len(twice)} item(s) listed more than once: {', '.join(twice[:10])}; items "
            f"are matched by item_id: keep one of each, or give them identifiers of their own"
        )
    return ids


def check(dataset: xr.Dataset) -> xr.Dataset:
    """Verify names, dimensions and dtypes of a result, add units and descriptions, return it."""
    for name, array in dataset.variables.items():
        v = describe(str(name))
        if array.dims != v.dims_of(array.ndim) or array.dtype.kind not in v.kind:
            raise TypeError(
                f"{name}: has dims {array.dims} and dtype {array.dtype}, "
                f"the vocabulary says {v.dims_of(array.ndim)} and kind {v.kind!r}"
            )
        array.attrs["description"] = v.doc
        if v.unit:
            array.attrs["units"] = v.unit
    return dataset
