"""What a fit with facets says: of effects, of items, and of the columns as items of a bank."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.marginal.expected import Expected
from irt_dask.calibrate.marginal.facets import errors
from irt_dask.calibrate.marginal.facets.errors import Covariance
from irt_dask.calibrate.marginal.facets.model import FacetModel
from irt_dask.calibrate.marginal.facets.rounds import FacetRounds
from irt_dask.calibrate.shared import climb
from irt_dask.calibrate.shared.shape_priors import in_words
from irt_dask.calibrate.shared.start_values import ResponseCounts
from irt_dask.curves import MODELS
from irt_dask.engine import Engine, dataset
from irt_dask.items import checks
from irt_dask.items.described import described as by_name
from irt_dask.items.mixture import Mixture


class Found(NamedTuple):
    """The maximum, what is expected there, errors, and what was shrunk.

    ``s`` (facets,) is the SD of effects, NaN where none is shrunk; ``fixed`` are effects without
    it.  ``n`` are answers by effect, ``sets`` (facets, effects) levels with persons in common.
    """

    fit: FacetRounds
    x: Floats
    value: float
    expected: Expected
    end: climb.Fitted
    covariance: Covariance | None
    shrunk: Bools
    s: Floats
    n_fits: int
    fixed: Floats
    fixed_se: Floats
    one_sided: Ints
    robust: bool
    n: Ints = np.zeros(0, dtype=np.int64)
    sets: Ints = np.zeros((0, 0), dtype=np.int64)

    @property
    def held(self) -> Bools:
        """Effects that ended at a bound, numbers scaled."""
        return errors.held(self.fit.model, self.fit.model.unpack(self.x)[2])

    @property
    def at_bound(self) -> Bools:
        """Effects that rest on one that did, numbers as they were given."""
        return self.fit.model.design.touched(self.held)


def described(
    found: Found, counts: ResponseCounts, engine: Engine, labels: tuple[str, ...],
    model: str | Mapping[str, str],
) -> xr.Dataset:  # fmt: skip
    """The result."""
    design = found.fit.model.design
    of_parents = _of_parents(found, counts)
    flags = of_parents.pop("flags")
    checks.warn(flags, design.parent_id, stacklevel=3)
    return dataset(
        {
            **_of_columns(found, counts),
            "item_flag": flags[design.parent],
            "item_parent": np.array(design.parent_id, dtype=str)[design.parent],
            **{f"parent_{k.removeprefix('item_')}": v for k, v in of_parents.items()},
            **_of_effects(found),
            **_of_groups(found, labels),
            "iteration_objective": np.array(found.end.trace),
        },
        item_id=engine.responses.item_id,
        coords={
            "parent_id": np.array(design.parent_id, dtype=str),
            "facet_name": np.array(design.facets, dtype=str),
            "facet": np.array([design.facets[f] for f in design.facet], dtype=str),
            "level": np.array(design.level, dtype=str),
        },
        attrs=_attrs(found, engine, labels, model),
    )


def _of_effects(found: Found) -> dict[str, Any]:
    """What is said of effects."""
    design = found.fit.model.design
    scaled = found.fit.model.unpack(found.x)[2]
    effects = errors.as_given(design, scaled, found.covariance, found.held)
    _, number = np.unique(found.sets[design.facet, np.arange(scaled.size)], return_inverse=True)
    return {
        "facet_effect": effects.value,
        "facet_effect_se": np.sqrt(effects.variance),
        "facet_effect_fixed": found.fixed,
        "facet_effect_fixed_se": found.fixed_se,
        "facet_effect_n": found.n,
        "facet_shrunk": found.shrunk,
        "facet_at_bound": found.at_bound,
        "facet_set": np.where(design.numeric[design.facet], 0, number),
        "facet_sd": found.s,
    }


# --- items and columns ----------------------------------------------------------------------------


class _Known(NamedTuple):
    """Numbers of parameters that something depends on, (.., k), -1 is none, and covariances."""

    base: Ints
    effects: Ints
    block: Floats

    @classmethod
    def of(cls, covariance: Covariance, base: Ints, effects: Ints) -> _Known:
        """Covariances of base parameters (n, p) and effects (n, f)."""
        b, e = np.where(base >= 0, base, 0), np.where(effects >= 0, effects, 0)
        own = covariance.base[b[:, :, None], b[:, None, :]]
        across = covariance.across[e[:, :, None], b[:, None, :]]
        shape = (len(e), e.shape[1], e.shape[1])
        row, column = (np.broadcast_to(v, shape).ravel()
                       for v in (e[:, :, None], e[:, None, :]))  # fmt: skip
        among = np.zeros(shape)
        if row.size:
            among = np.asarray(covariance.pairs[row, column]).reshape(shape)
        block = np.concatenate(
            [np.concatenate([own, across.transpose(0, 2, 1)], axis=2),
             np.concatenate([across, among], axis=2)], axis=1,
        )  # fmt: skip
        return cls(base, effects, block)

    def errors(self, gradient: Floats) -> Floats:
        """Standard errors of functions with these gradients, (n, p + f).

        A first parameter without a number, a slope, is taken as known; of another one a function
        has no error then.
        """
        there = np.concatenate([self.base >= 0, self.effects >= 0], axis=1)
        used = gradient != 0.0
        known = (there | ~used)[:, 1:].all(axis=1) & (there & used).any(axis=1)
        g = np.where(there, gradient, 0.0)
        variance = np.einsum("ni,nij,nj->n", g, self.block, g)
        return np.where(known, np.sqrt(np.maximum(variance, 0.0)), np.nan)


def _of_columns(found: Found, counts: ResponseCounts) -> dict[str, Any]:
    """Columns as items of a bank: parameters with the effects in them, and their errors."""
    model, design = found.fit.model, found.fit.model.design
    items = model.unpack(found.x)[0]
    out = _parameters(found, model)
    at_bound = model.parent.at_bound(items)[design.parent]
    return {
        **_of_models(model.items),
        **out,
        "item_at_bound": at_bound,
        "item_n_responses": counts.seen,
        "item_n_right": counts.right,
    }


def _parameters(found: Found, model: FacetModel) -> dict[str, Any]:
    """Parameters of the columns of a model, the effects in them, and their standard errors."""
    design, known = model.design, None
    items, _, effects = model.unpack(found.x)
    if found.covariance is not None:
        of = errors.numbers(model, found.x)
        at, _ = design.of_columns
        at = np.where(found.held[at], -1, at)
        known = _Known.of(found.covariance, of.items[:, design.parent].T, at)
    by_item, by_shift = model.jacobian(items, effects)
    term, free = design.of_columns[1], model.parent.free[:, design.parent].T

    def gradient(g: Floats) -> Floats:  # (columns, parameters) to those that are estimated
        to_item = np.where(free, (g[:, None] @ by_item)[:, 0], 0.0)
        return np.concatenate([to_item, (g * by_shift).sum(axis=1)[:, None] * term], axis=1)

    return _named(model.items, model.of_columns(items, effects), known, gradient)


def _of_parents(found: Found, counts: ResponseCounts) -> dict[str, Any]:
    """Items as they are where effects are 0, and their flags.

    Flags are of items where numbers are at their mean: in the year 0 any is extreme.
    """
    model, design = found.fit.model, found.fit.model.design
    items, _, _ = model.unpack(found.x)
    out = _parameters(found, model.without_facets)
    right, seen, wrong = (np.zeros(items.shape[1], dtype=np.int64) for _ in range(3))
    for to, of_column in (
        (right, counts.right),
        (seen, counts.seen),
        (wrong, counts.of_each[:, 0]),
    ):
        np.add.at(to, design.parent, of_column)
    at_bound = model.parent.at_bound(items)
    flagged = _parameters(found, model.of_middle) if design.numeric.any() else out
    fit = {**_of_models(model.parent.items), **flagged, "item_at_bound": at_bound}
    flags = checks.flags(
        fit, seen=checks.Counts(right, seen, None, wrong),
        one_slope=np.asarray(model.parent.of_all[0] >= 0),
    )  # fmt: skip
    return {**out, "item_n_responses": seen, "flags": flags}


def _named(models: Mixture, x: Floats, known: _Known | None, gradient: Any) -> dict[str, Any]:
    """Parameters and their standard errors by the names of results."""
    out: dict[str, Any] = {}
    for name, (value, slopes) in by_name(models, x).items():
        out[name] = value.T
        se = np.full(value.shape, np.nan)
        if known is not None:
            rows = [known.errors(gradient(g.T)) for g in slopes.reshape(-1, *x.shape)]
            se = np.array(rows).reshape(value.shape)
        out[f"{name}_se"] = se.T
    return out


def _of_models(models: Mixture) -> dict[str, Any]:
    """Models and categories, where they are not of one model and two categories."""
    if models.only is not None and models.only.name in MODELS:
        return {}
    out = {"item_model": models.names, "item_n_categories": models.n_categories}
    if models.empty.any():
        out["item_category_map"] = models.category_map
    return out


# --- groups, and the whole ------------------------------------------------------------------------


def _of_groups(found: Found, labels: tuple[str, ...]) -> dict[str, Any]:
    """Means and SDs of the groups, where there are any."""
    if not labels:
        return {}
    parent = found.fit.model.parent
    _, ability, _ = found.fit.model.unpack(found.x)
    se = np.full((2, len(labels)), np.nan)
    if found.covariance is not None:
        column = errors.numbers(found.fit.model, found.x).groups
        variance = np.diag(found.covariance.base)
        se[column >= 0] = np.sqrt(np.maximum(variance[column[column >= 0]], 0.0))
    sd = np.exp(ability[1])
    return {
        "group_label": np.array(labels),
        "group_mean": ability[0],
        "group_mean_se": se[0],
        "group_sd": sd,
        "group_sd_se": sd * se[1],
        "group_at_bound": parent.at_group_bound(ability).any(axis=0),
    }


def _attrs(
    found: Found, engine: Engine, labels: tuple[str, ...], model: str | Mapping[str, str]
) -> dict[str, Any]:
    fit, design, parent = found.fit, found.fit.model.design, found.fit.model.parent
    log_prior = fit.log_prior(found.x)
    n = parent.n_parameters + design.n_effects - design.sums.shape[0]
    criteria: dict[str, Any] = {}
    if not found.shrunk.any():  # which counts as so many parameters, nobody knows
        persons = float(found.expected.persons.sum())
        criteria = {
            "aic": 2.0 * (n - found.value), "bic": n * math.log(persons) - 2.0 * found.value,
        }  # fmt: skip
    of_prior: dict[str, Any] = dict(in_words(parent.items, parent.prior.betas))
    if of_prior or found.shrunk.any():
        of_prior["log_prior"] = log_prior
    if found.shrunk.any():
        of_prior |= {"n_shrunk": int(found.shrunk.sum()), "n_shrinking_fits": found.n_fits}
    how = {}
    if found.covariance is not None and found.robust:
        how = {"standard_errors": "sandwich of persons"}
    group = f"ability of group {labels[parent.reference]}" if labels else "ability"
    return {
        "method": "marginal maximum likelihood with facets",
        "model": model if isinstance(model, str) else "by item",
        "facets": ", ".join(design.facets),
        "converged": found.end.converged,
        "n_iterations": len(found.end.trace),
        "objective": found.value + log_prior,
        "log_likelihood": found.value,
        **of_prior,
        **how,
        "identification": f"{group} N(0, 1); a > 0; effects of the levels of a facet sum to 0",
        "n_persons": engine.n_persons,
        **engine.weight_attrs,
        "n_parameters": n,
        **criteria,
        "latent": "normal",
    }
