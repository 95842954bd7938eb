"""Which prior the items of a Bayesian fit have, and what scale and place rest on."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.calibrate.bayes.common_slope import CommonSlope
from irt_dask.calibrate.bayes.hierarchy import Hierarchy, Learned, learn
from irt_dask.calibrate.bayes.item_density import Shapes
from irt_dask.calibrate.bayes.model_space import parameters_named
from irt_dask.calibrate.bayes.signed_hierarchy import SignedHierarchy
from irt_dask.calibrate.bayes.structure import BLOCK_SD, COVARIATES_SD, Structured
from irt_dask.curves.priors import ItemPrior, check_of_signs
from irt_dask.errors import ApproximationWarning, InputError
from irt_dask.items.blocks import blocks, covariates
from irt_dask.kernels.base import keyed_random

#: Persons of a shard for each item, at least, where the covariance is learned: with 0.8 all was
#: well (1,000 x 300 in 4 shards), with 0.05 places were off by 0.1 (200 x 1,000 in 4).
_LEAST_PERSONS = 0.5
#: A fixed prior that moves scale or place by this many of its standard errors is said.
_LARGE_SHIFT = 1.0


def choose(
    prior: str | ItemPrior | None, sampler: str, powering: str, *, signed: bool = False,
    scored: bool = False,
) -> ItemPrior | Hierarchy:  # fmt: skip
    """The items' prior, by default learned where that is available."""
    available = sampler == "grid" and powering != "published" and not scored
    learned = SignedHierarchy() if signed else Hierarchy()
    if prior is None:
        return learned if available else ItemPrior()
    if isinstance(prior, ItemPrior):
        check_of_signs(prior, signed)
        return prior
    if prior != "hierarchical":
        raise InputError(f"prior={prior!r} is not available; give 'hierarchical' or an ItemPrior")
    if scored:
        raise InputError(
            "prior='hierarchical' learns slopes and intercepts, and nominal items have scores, "
            "whose prior would outvote the persons: leave prior= out, or give an ItemPrior"
        )
    if not available:
        raise InputError(
            "prior='hierarchical' is available with sampler='grid', so for one ability, and with "
            "powering='shrink' or 'replicate'; give an ItemPrior"
        )
    return learned


def structured(
    prior: ItemPrior | Hierarchy, shapes: Shapes, item_id: Sequence[str], item_blocks: Any,
    item_covariates: Any,
) -> ItemPrior | Hierarchy:  # fmt: skip
    """The prior of items in blocks, and with covariates, or of items that share a slope."""
    models = shapes.models
    if item_blocks is None and item_covariates is None:
        if models.shares and isinstance(prior, Hierarchy):
            return CommonSlope.of(prior, models.of_all[0] >= 0)
        return prior
    if models.shares:
        names = sorted({p.model.name for p in models.parts if p.model.shared})
        raise InputError(
            f"item_blocks= and item_covariates= are of items with slopes of their own, and those "
            f"of {', '.join(names)} share one; use 2pl or gpcm, or leave them out"
        )
    if isinstance(prior, ItemPrior):
        raise InputError(
            "item_blocks= and item_covariates= are of the hierarchical prior, which learns what "
            "items of a block, or with the same covariates, have in common; leave prior= out"
        )
    of = None if item_blocks is None else blocks(item_blocks, item_id)
    by = None if item_covariates is None else covariates(item_covariates, item_id)
    return Structured.of(prior, of, by, len(item_id))


def refuse_small_shards(
    prior: ItemPrior | Hierarchy, n_persons: int, n_items: int, n_shards: int
) -> None:
    """Stop where shards have too few persons for the items' covariance to be held and corrected.

    ``n_persons`` are those with a response.
    """
    if isinstance(prior, ItemPrior) or n_shards == 1:
        return
    if n_persons // n_shards < _LEAST_PERSONS * n_items:
        most = max(1, n_persons // math.ceil(_LEAST_PERSONS * n_items))
        raise InputError(
            f"n_shards={n_shards} leaves {n_persons // n_shards} persons for {n_items} items in a "
            f"shard; at least {_LEAST_PERSONS:g} persons an item are needed: use "
            f"n_shards={most}, and n_chains for several cores"
        )


def learner(
    prior: ItemPrior | Hierarchy, seed: int, run: int
) -> Callable[[Floats, Floats], Learned] | None:
    """What weighs draws of shards that held the items' covariance; None if none did."""
    if not isinstance(prior, Hierarchy) or prior.held is None:
        return None
    return functools.partial(learn, prior, rng=keyed_random.generator(seed, "learn", run))


def describe(prior: ItemPrior | Hierarchy, positive: str) -> dict[str, Any]:
    """Attributes that say what the prior was; ``positive`` says which slopes are."""
    if isinstance(prior, ItemPrior):
        return {
            "prior": "fixed",
            "prior_discrimination": None if positive == "none" else list(prior.discrimination),
            "prior_intercept": list(prior.intercept),
            "prior_loading": None if positive == "all" else list(prior.loading),
        }
    return {
        "prior": "hierarchical",
        "prior_mean": list(prior.mean),
        "prior_mean_sd": list(prior.mean_sd),
        "prior_covariance_df": prior.df,
        "prior_covariance_scale": [float(v) for v in np.diag(prior.scale)],
        **_of_structure(prior),
    }


def _of_structure(prior: Hierarchy) -> dict[str, Any]:
    """Attributes of a prior of blocks, with covariates, or of one slope (of its logarithm)."""
    if isinstance(prior, CommonSlope):
        return {"prior_common_slope": [prior.mean[0], prior.mean_sd[0]]}
    if not isinstance(prior, Structured):
        return {}
    return {
        "prior_block_sd": list(BLOCK_SD) if prior.n_blocks > 1 else None,
        "prior_covariates_sd": list(COVARIATES_SD) if prior.covariate_names else None,
    }


def described(prior: ItemPrior | Hierarchy, data: dict[str, Any]) -> dict[str, Any]:
    """The result's arrays, of those that there are of a learned mean and covariance."""
    return data if isinstance(prior, ItemPrior) else prior.described(data)


def coords(prior: ItemPrior | Hierarchy) -> dict[str, Any] | None:
    """Names of the coordinates of a learned mean and covariance."""
    return None if isinstance(prior, ItemPrior) else prior.coords()


def rest(
    prior: ItemPrior | Hierarchy, fit: dict[str, Floats], n: int, shapes: Shapes, share: float = 1.0
) -> dict[str, float]:
    """What the common scale and place of one ability rest on, for the attributes.

    ``scale_se`` (of a common log a) and ``place_se`` (of ability) are what n abilities N(0, 1), of
    persons with a response, leave open.  ``scale_shift`` and ``place_shift`` are by how much the
    items' priors have moved log a, and abilities with every b, from where abilities have variance 1
    and mean 0: with the expected score g of the prior along ``a e^v`` the posterior has abilities
    of mean square 1 - g / n, along ``d + a m`` of mean -g / n.  ``fit`` has the draws of the items,
    and of a learned mean; unequal weights leave a ``share`` of the persons, in effect, and a slope
    that is shared counts once.
    """
    known = share * n
    out = {"scale_se": 1.0 / math.sqrt(2.0 * known), "place_se": 1.0 / math.sqrt(known)}
    a, d = fit["item_discrimination_draw"], fit["item_intercept_draw"]
    if isinstance(prior, ItemPrior):
        ma, sa = prior.loading if shapes.signed else prior.discrimination
        md, sd = prior.intercept
        each = a[:, shapes.models.once[0]] if shapes.models.shares else a
        scale = each.shape[1] - float((each * (each - ma)).sum(axis=1).mean()) / sa**2
        place = -float((a * (d - md)).sum(axis=1).mean()) / sd**2
        if shapes.scored:
            more_scale, more_place = _of_scores(fit, shapes)
            scale, place = scale + more_scale, place + more_place
    else:
        scale, place = prior.pulls(fit, a)
    return out | {
        "scale_shift": -0.5 * math.log(max(1.0 - scale / n - (place / n) ** 2, 0.01)),
        "place_shift": -place / n,
    }


def _of_scores(fit: dict[str, Floats], shapes: Shapes) -> tuple[float, float]:
    """Expected score of the shapes' prior along stretches and shifts, from draws."""
    x, rising = parameters_named(shapes.models, fit, "_draw"), shapes.rising
    found = []
    for y in map(shapes.of, x):
        pull = shapes.log_prior(y).gradient  # of shapes: of neither slopes nor intercepts
        found.append((pull * np.where(rising, y, 0.0), pull * shapes.lifted(y)))
    scale, place = np.sum(found, axis=(0, 2, 3)) / len(x)
    return float(scale) + float(rising.sum()), float(place)


def warn(attrs: dict[str, Any], *, scored: bool) -> None:
    """Warn where items' priors, not persons, decide on scale or place."""
    said = [
        f"{name} by {attrs[f'{name}_shift']:+.2f} ({unit}), {times:.1f} times its standard error"
        for name, unit in (("scale", "log a"), ("place", "ability"))
        if f"{name}_se" in attrs
        and (times := abs(attrs[f"{name}_shift"]) / attrs[f"{name}_se"]) > _LARGE_SHIFT
    ]
    if said:
        learned = "" if scored else "prior='hierarchical', or "
        warnings.warn(
            f"the items' priors outvote the persons: they move the common {' and the '.join(said)}."
            f" Independent priors do that with many items for few persons, or where they are "
            f"tight; use {learned}an ItemPrior about where the items are",
            ApproximationWarning,
            stacklevel=3,
        )


def warn_inefficient(learned: Learned | None, least: float) -> None:
    """Warn where weights leave too few of the shards' draws."""
    if learned is not None and learned.efficiency < least:
        warnings.warn(
            f"the items' covariance was held in the shards, and correcting for that leaves "
            f"{learned.efficiency:.0%} of the draws (limit {least:.0%}): the shards are too small "
            f"for so many items; use fewer shards, or an ItemPrior",
            ApproximationWarning,
            stacklevel=3,
        )
