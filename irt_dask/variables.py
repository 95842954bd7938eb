"""The vocabulary: every named array of stores and results, once.

A variable is ``owner_quantity`` (``item_difficulty``); uncertainty and diagnostics are the same
name with a suffix (``item_difficulty_se``).  :func:`check` refuses a Dataset that uses a name, a
dimension or a dtype that is not listed here, so that documentation and results cannot drift apart.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from irt_dask.errors import InputError, repeated

if TYPE_CHECKING:
    import xarray as xr

PERSONS, ITEMS, ITEMS_ = "persons", "items", "items_"
LATENT_DIMS, LATENT_DIMS_ = "latent_dims", "latent_dims_"
DRAW, SHARDS, ITERATION = "draw", "shards", "iteration"


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
    #: Dimensions that go before where there are several groups.
    before: tuple[str, ...] = ()

    def dims_of(self, n: int) -> tuple[str, ...]:
        """Names of the ``n`` dimensions of an array."""
        return self.before + self.dims + self.more if n > len(self.dims) else self.dims


#: A line for each variable: name and dimensions (in brackets those that there are with several
#: groups, before the others, or several abilities, after them), NumPy kinds of dtype, unit or "-",
#: meaning; a long one goes on below.
_TABLE = """\
response(persons, items)  i  -  codes 0 to K - 1 of the item (K = 2: wrong, right), -1 not observed
person_id(persons)              UOT  -        the person's identifier
person_weight(persons)          f    -        weight of the person
response_indptr(blocks, block_rows)  i  -  CSR: where a person's row starts
response_indices(blocks, capacity)  i  -  CSR: items, ascending
response_value(blocks, capacity)  i  -  CSR: codes
person_covariate(persons, covariates)  f  -  covariates of the person
person_group(persons)           UOT  -        label of the person's group
person_row(persons)             iu   -        position among all persons, from 0
person_n_draws(persons)         iu   -        times the person was drawn
person_ability(persons [latent_dims])  f  theta  ability on the latent scale
person_ability_correlation(persons)  f  -  posterior correlation of the person's two abilities
person_plausible_value(persons, plausible [latent_dims])  f  theta  draws of the ability
person_rank(persons)            iu   -        rank by ability, 1 is the most able
person_rank_lower(persons)      iu   -        smallest rank of the interval
person_rank_upper(persons)      iu   -        largest rank of the interval
person_in_top(persons)          b    -        whether the person's rank is at most k
person_top_probability(persons)  f   -        that the person is among the k most able
person_total(persons)           f    -        expected share of all points, under the model
person_total_design(persons)    f    -        the same by design: right on average over samples
item_id(items)                  UOT  -        the item's identifier
item_n_categories(items)        iu   -        K: responses are 0 to K - 1
item_model(items)               UOT  -        name of the item's model
item_category_map(items, categories)  i  -  number of each category in the model's formulas; -1 of
    an empty one, which has P = 0 and no parameters, and beyond an item's
item_step_intercept(items, steps)  f  logit  intercepts d_k of steps k = 1 to K - 1: cumulative, and
    falling in the graded model; NaN beyond an item's
item_step_difficulty(items, steps)  f  theta  b_k, where a step is as likely as not
item_threshold(items, steps)    f    theta    where P(category k or higher) is 1/2 (Thurstone)
item_category_score(items, categories)  f  1/theta  scores s_k of nominal categories 0 to K - 1
item_discrimination(items)      f    1/theta  slope a
item_difficulty(items)          f    theta    location b, where P is halfway; of steps their mean
item_intercept(items)           f    logit    intercept d = -a b
item_guessing(items)            f    -        lower asymptote c
item_upper_asymptote(items)     f    -        upper asymptote u
item_at_bound(items)            b    -        whether a parameter is at a bound
item_selected(items)            b    -        whether the question is to be asked
item_inclusion_probability(items)  f  -       probability that it is chosen; 0 or 1 if not by chance
item_stratum(items)             UOT  -        label of the item's stratum or block
item_flag(items)                UOT  -        ok, or what is wrong with the item (ITEM_FLAGS)
item_anchor_chi2(items)         f    -        test of the anchor's given parameters
item_anchor_p_value(items)      f    -        its p-value
item_anchor_rmsd(items)         f    -        RMS change of P that the data ask for (of more
    categories: half the squares of all)
item_linked_group(items)        iu   -        items that persons link share a number
item_n_responses(items)         iu   persons  persons with the item observed
item_n_right(items)             iu   persons  persons with the item right (its highest category)
item_mu0(items)                 f    -        complexity: numbers of responses (p = 0)
item_mu1(items)                 f    -        complexity: sums of distances (p = 1)
item_degenerate(items)          i    -        1: all or none have it right, else 0
item_separable(items)           i    -        1: ability parts right and wrong, else 0
item_covariance(parameter, parameter_)  f  -  posterior covariance of (log a, d), items in order,
    log a before d; slopes of any sign: of (a, d)
parameter_item(parameter)       UOT  -        identifier of the item whose parameter it is
parameter_column(parameter)     UOT  -        its column in item banks: a, d, c, u, d1, s1, ...
item_parameter_covariance(parameter, parameter_)  f  -  sampling covariance of these parameters;
    those that are not listed are known
item_loading(items, latent_dims)  f  1/theta  slope on each ability
item_loading_draw(draw, items, latent_dims)  f  1/theta  combined draws of loadings
ability_correlation(latent_dims, latent_dims_)  f  -  correlation of the abilities
ability_correlation_draw(draw, latent_dims, latent_dims_)  f  -  combined draws of the correlations
coordinate(coordinate)          UOT  -        log_discrimination, or discrimination; intercept
coordinate_(coordinate_)        UOT  -        log_discrimination, or discrimination; intercept
item_prior_mean(coordinate)     f    -        learned mean of the items' coordinates
item_prior_covariance(coordinate, coordinate_)  f  -  learned covariance of the items' coordinates
item_prior_mean_draw(draw, coordinate)  f  -  combined draws of it
item_prior_covariance_draw(draw, coordinate, coordinate_)  f  -  combined draws of it
block(block)                    UOT  -        label of a block of items
covariate(covariate)            UOT  -        name of a covariate of items
item_block_mean(block, coordinate)  f  -      learned mean of the coordinates of a block's items
item_block_covariance(block, coordinate, coordinate_)  f  -  learned covariance of them
item_block_mean_draw(draw, block, coordinate)  f  -  combined draws of it
item_block_covariance_draw(draw, block, coordinate, coordinate_)  f  -  combined draws of it
item_covariate_effect(covariate, coordinate)  f  -  of one unit of a covariate, on coordinates
item_covariate_effect_draw(draw, covariate, coordinate)  f  -  combined draws of it
item_negative_probability(items)  f  -        probability that the slope is negative
item_discrimination_draw(draw, items)  f  1/theta  combined draws of a
item_intercept_draw(draw, items)  f  logit  combined draws of d
item_guessing_draw(draw, items)  f  -  combined draws of c
item_upper_asymptote_draw(draw, items)  f  -  combined draws of u
item_step_intercept_draw(draw, items, steps)  f  logit  combined draws of d_k
item_category_score_draw(draw, items, categories)  f  1/theta  combined draws of s_k
pair_count(items, items_)       iuf  persons  right on the row, wrong on the column
pair_observed(items, items_)    iuf  persons  both items observed
item_difficulty_covariance(items, items_)  f  theta^2  sampling covariance
item_rank(items)                iu   -        rank by difficulty, 1 is the hardest
item_rank_lower(items)          iu   -        smallest rank of the confidence set
item_rank_upper(items)          iu   -        largest rank of the confidence set
item_in_top(items)              b    -        whether the item's rank is at most k
pair_difference()               f    theta    difficulty of item less that of other
pair_z()                        f    -        difference in standard errors
pair_p_value()                  f    -        two-sided, of no difference
item_difficulty_bias(items)     f    theta    bias by regularisation
item_effective_persons(items)  f  persons  persons of equal weight that the smaller side of the
    item, right or wrong, rests on
contrast_first(contrasts)       UOT  -        item of the contrast
contrast_second(contrasts)      UOT  -        item it is compared with
contrast_difference(contrasts)  f    theta    first less second
shard_n_persons(shards)         iu   persons  persons in the shard
shard_acceptance(shards)        f    -        accepted share of the item proposals
shard_grid_spacing(shards)      f    theta    spacing of the ability grid
ranked_parameter(ranked)        UOT  -        the parameters that mixed worst, the worst first
ranked_draw_count(ranked, chains, rank_bins)  i  draws  draws of a chain, or of a half of the only
    one, by rank among those of all
shard_max_rhat(shards)          f    -        largest R-hat of the shard's parameters
shard_min_ess(shards)           f    draws    smallest effective sample size
shard_item_discrimination(shards, items)  f  1/theta  shard mean of a
shard_item_loading(shards, items, latent_dims)  f  1/theta  shard means of loadings
shard_rotation(shards)  f  degrees  by which loadings could be turned towards the largest shard's
shard_ability_correlation(shards, latent_dims, latent_dims_)  f  -  shard means of the correlations
shard_item_intercept(shards, items)  f  logit  shard mean of d
ability_count(ability [latent_dims])  iu  persons  persons by estimated ability
ability(ability)                f    theta    middle of the ability class
group_label(groups)             UOT  -        label of a group of persons
group_mean(groups [latent_dims])  f  theta    mean ability of the group
group_at_bound(groups)          b    -        whether mean or SD is at a bound
group_sd(groups [latent_dims])  f    theta    SD of ability in the group
group_correlation(groups, latent_dims, latent_dims_)  f  -  correlations of abilities in the group
domain(latent_dims)             UOT  -        name of the domain that the ability is of
scale(scales)                   UOT  -        name of a domain, or of a composite
person_domain_ability(persons, scales)  f  theta  ability in each domain and composite
person_domain_plausible_value(persons, plausible, scales)  f  theta  draws from the posterior
person_domain_correlation(persons, latent_dims, latent_dims_)  f  -  posterior correlations
group_ability_share(groups, ability)  f  -  share of the group by ability
covariate(covariate)            UOT  -        name of the covariate, or intercept
group_item_rmsd(groups, items)  f   -        RMS of observed less modelled expected score
group_item_rmsd_expected(groups, items)  f   -      what chance makes of it: mean of replicates
group_item_rmsd_p_value(groups, items)   f   -      share of replicates with one as large
group_item_md(groups, items)    f    -        mean of observed less modelled expected score
origin_id(origins)              UOT  -        an item as it was given, before any group's was freed
item_origin(items)              UOT  -        the item as it was given
item_freed_group(items)         UOT  -        label of the group whose own item it is, or nothing
origin_n_responses(groups, origins)  iu  -      responses of the group to the item
origin_rmsd(groups, origins)      f    -        RMS of observed less common expected score
origin_rmsd_expected(groups, origins)  f  -     what chance makes of it: root of the expected square
origin_rmsd_corrected(groups, origins)  f  -    root of the square less the expected square, or 0
origin_md(groups, origins)        f    -        mean of observed less common expected score
origin_chi2(groups, origins)      f    -        test of the item's parameters in the group
origin_df(origins)                iu   -        its degrees of freedom
origin_p_value(groups, origins)   f    -        its p-value
origin_q_value(groups, origins)   f    -        p-value adjusted for all items in all groups
origin_freed(groups, origins)     b    -        whether the group has an item of its own
group_n_common(groups)          iu   -        items that the group has in common with others
group_mean_all_common(groups)   f    theta    mean ability while every item was common
group_sd_all_common(groups)     f    theta    SD of ability while every item was common
change_round(changes)           iu   -        round before which the pair was changed
change_group(changes)           UOT  -        label of its group
change_item(changes)            UOT  -        its item
change_freed(changes)           b    -        whether it was freed, or taken back
change_rmsd(changes)            f    -        what the round before had found: origin_rmsd
change_rmsd_expected(changes)   f    -        origin_rmsd_expected
change_rmsd_corrected(changes)  f    -        origin_rmsd_corrected
change_md(changes)              f    -        origin_md
change_p_value(changes)         f    -        origin_p_value
change_q_value(changes)         f    -        origin_q_value
round_log_likelihood(rounds)    f    -        log-likelihood, with priors, that a round reached
round_n_iterations(rounds)      iu   -        iterations of a round
group_item_observed_score(groups, items, ability)  f  -  expected score that the responses show
item_expected_score(items, ability)  f  -  expected score of the model
regression_coefficient([groups] covariate [latent_dims])  f  theta  change of mean ability by a
    unit of the covariate
residual_sd([groups] [latent_dims])  f  theta  SD of ability given the covariates
residual_correlation(groups, latent_dims, latent_dims_)  f  -  correlations of abilities given them
explained_share(groups, latent_dims)  f  -    share of the variance that covariates explain
component_loading(groups, covariate, components)  f  -  from coefficients of principal components
    to those of terms on [-1, 1]; NaN beyond a group's number
component_coefficient(groups, components, latent_dims)  f  theta  of a component, whose mean square
    is 1
component_coefficient_covariance(groups, coefficients, coefficients_)  f  theta^2  covariance of
    them, domains fastest
score_ability(score)            f    theta    ability of persons with the score
score_probability(score)        f    -        share of persons with the score
score(score)                    iu   responses  smallest number right of the class
score_count(score)              iu   persons  persons by number right
score_count_expected(score)     f    persons  mean of the replicates
item_mean_score(items)          f    -        mean of the observed responses
item_mean_score_expected(items)  f   -        mean of the replicates
item_mean_score_p_value(items)  f    -        two-sided, by the replicates
item_rest_correlation(items)    f    -        of the response with the sum of the person's others
item_rest_correlation_expected(items)  f  -   mean of the replicates
item_rest_correlation_p_value(items)  f  -    two-sided, by the replicates
block_n_items(block)            iu   items    items of the block
block_n_persons(block)          iu   persons  persons who answered one of its items at least
block_score_variance(block)     f    -        of the sum of the block's responses, over persons
block_score_variance_expected(block)  f  -    mean of the replicates
block_score_variance_p_value(block)  f  -     two-sided, by the replicates
item_link_rmsd(items)           f    -        RMS difference of the linked curves
item_link_weight(items)         f    -        how much a common item links, from 0 to 1
item_infit(items)               f    -        information-weighted mean square
item_infit_z(items)             f    -        deviation from 1 in standard errors
item_outfit(items)              f    -        unweighted mean square
item_outfit_z(items)            f    -        deviation from 1 in standard errors
item_chi2(items)                f    -        chi-square over groups of predictions
item_chi2_df(items)             iu   -        its degrees of freedom
item_chi2_p_value(items)        f    -        its p-value
item_sx2(items)                 f    -        S-X2 over numbers right
item_sx2_df(items)              iu   -        its degrees of freedom
item_sx2_p_value(items)         f    -        its p-value
person_infit(persons)           f    -        information-weighted mean square
person_outfit(persons)          f    -        unweighted mean square
person_lz(persons)              f    -        l_z*, standardised log-likelihood
person_elpd(persons)            f    nats     log density of the responses given all other persons
person_p_loo(persons)           f    nats     how much less that is than given the person too
person_pareto_k(persons)        f    -        shape of the tail of the weights that leave out
pair_first(pairs)               UOT  -        first item of the pair
pair_second(pairs)              UOT  -        second item of the pair
pair_q3(pairs)                  f    -        correlation of residuals
pair_q3_adjusted(pairs)         f    -        less the mean of all pairs
pair_n_persons(pairs)           iu   persons  persons who answered both
item_information(items, ability)  f  1/theta^2  Fisher information
test_information(ability)       f    1/theta^2  sum over the items
ability_se(ability)             f    theta    one over the root of information
item_dif_shift([focal] items)  f  logit  focal intercept less reference's
item_dif_slope([focal] items)  f  1/theta  focal slope less reference's
item_dif_delta([focal] items)  f  delta  shift on the ETS delta scale
item_dif_class([focal] items)  UOT  -  ETS class A, B or C of uniform DIF
item_dif_score([focal] items)  f  -  focal expected score less reference's
item_dif_anchor(items)          b    -        whether it was taken to be the same in all groups
item_dif_joint_df(items)        iu   -        degrees of freedom of joint DIF
item_dif_uniform_q_value([focal] items)  f  -  p-value adjusted for the number of items
item_dif_nonuniform_q_value([focal] items)  f  -  p-value adjusted for the number of items
item_dif_joint_q_value([focal] items)  f  -  p-value adjusted for the number of items
item_dif_uniform_chi2([focal] items)  f  -  test of uniform DIF
item_dif_uniform_p_value([focal] items)  f  -  its p-value
item_dif_nonuniform_chi2([focal] items)  f  -  test of nonuniform DIF
item_dif_nonuniform_p_value([focal] items)  f  -  its p-value
item_dif_joint_chi2([focal] items)  f  -  test of joint DIF
item_dif_joint_p_value([focal] items)  f  -  its p-value
item_dif_omnibus_chi2(items)    f    -        test of one curve in all groups
item_dif_omnibus_df(items)      iu   -        its degrees of freedom
item_dif_omnibus_p_value(items)  f  -  its p-value
item_dif_omnibus_q_value(items)  f  -  p-value adjusted for the number of items
focal(focal)                    UOT  -        label of the focal group
focal_n_persons(focal)          iu   persons  persons of the focal group
focal_ability_mean(focal)       f    theta    mean ability of the focal group, by the anchors
focal_ability_sd(focal)         f    theta    SD of ability of the focal group, by the anchors
item_difficulty_difference(items)  f  theta  focal less reference
item_lord_difficulty_chi2(items)  f  -  Wald test of the difficulty
item_lord_difficulty_p_value(items)  f  -  its p-value
item_step_difficulty_difference(items, steps)  f  theta  focal less reference
item_lord_step_chi2(items, steps)  f  -  Wald test of the step's difficulty
item_lord_step_p_value(items, steps)  f  -  its p-value
item_discrimination_difference(items)  f  1/theta  focal less reference
item_lord_discrimination_chi2(items)  f  -  Wald test of the discrimination
item_lord_discrimination_p_value(items)  f  -  its p-value
log_likelihood()                f    log-likelihood  marginal, ability N(0, 1)
log_likelihood_per_response()   f    log-likelihood  marginal, a response
log_score()                     f    log-likelihood  mean, predicted as attrs say
auc()                           f    -        area under the ROC curve of these predictions
top(top)                        iu   items    size K of the sets of hardest items
top_accuracy(top)               f    -        share of the K hardest items found
n_responses()                   iu   responses  observed responses
iteration_objective(iteration)  f    log-likelihood  after each iteration
"""
_LINE = re.compile(r"(\w+)\((\[\w+\] )?([^[)]*)(.*?)\) +(\w+) +(\S+) +(.+)")
_WORD = re.compile(r"\w+")


def _read(line: str) -> Variable:
    name, before, dims, more, kind, unit, doc = _LINE.fullmatch(line).groups()  # type: ignore[union-attr]
    first, own, others = (tuple(_WORD.findall(names or "")) for names in (before, dims, more))
    return Variable(name, own, kind, unit.strip("-"), doc, others, first)


VARIABLES = {v.name: v for v in map(_read, _TABLE.replace("\n    ", " ").splitlines())}

#: What ``item_flag`` can name, joined by "|" in this order (alphabetical); "ok" is none of them.
ITEM_FLAGS = {
    "all_right": "everybody who answered has it right",
    "all_wrong": "everybody who answered has it wrong",
    "at_bound": "a parameter ended at a bound of the estimation",
    "empty_category": "a category that nobody has, which is taken to have probability 0",
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
        doc = f"{SUFFIXES[suffix]} of {base}"
        return replace(VARIABLES[base], name=name, kind="f", doc=doc)
    raise KeyError(f"{name!r} is not in the vocabulary of irt_dask.variables")


def identifier(x: Any) -> str:
    """Return an identifier as text in Unicode's normal form C.

    Identifiers that look the same are the same: an accented letter may be written as one character
    or as two.
    """
    text = str(x)
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def unique_ids(item_id: Iterable[Any], what: str) -> tuple[str, ...]:
    """Return item identifiers as text; InputError that names those that stand twice."""
    ids = tuple(identifier(i) for i in item_id)
    if twice := repeated(ids):
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
