"""Latent regression: the distribution of ability in groups, or given covariates, items fixed.

What is to be estimated, what there is in the data, and what is said of the result; the steps are in
:mod:`irt_dask.population.em`.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.errors import ApproximationWarning, DataWarning, EstimationError, InputError
from irt_dask.kernels.base import fixed_point
from irt_dask.population import regression_errors
from irt_dask.population.em import (
    SD_BOUNDS,
    Estimate,
    add_by_group,
    climb,
    scale_for,
    total_weight,
    weights_of,
)
from irt_dask.population.population import STANDARD, Covariates, Population
from irt_dask.store import Responses

#: Label of the group of all persons.
EVERYBODY = "all"
#: More groups than this have no place on the driver.
MOST_GROUPS = 1000
#: Persons of a covariate and of a group below which a warning says how few there are.
_FEW_OF_TERM, _FEW_OF_GROUP = 5, 20
#: Smallest eigenvalue of the design's mean products: below, covariates depend on each other.
_LEAST = 1e-10


def begin(responses: Responses, prior: Any) -> Population | None:
    """What ``prior`` asks for, without its numbers; None: N(0, 1)."""
    if isinstance(prior, str) and prior == "normal":
        return None
    if isinstance(prior, str) and prior == "population":
        return STANDARD
    if isinstance(prior, str) and prior == "groups":
        if not responses.has_groups:
            raise InputError(
                "prior='groups': the responses have no groups of persons; give them as column "
                "'group' of persons"
            )
        return Population(np.zeros((0, 1)), np.ones(0))  # groups are found later
    known = responses.covariate_names
    if isinstance(prior, str):
        if prior != "covariates":
            raise InputError(
                f"prior={prior!r} is not available; choose 'normal', 'population', 'groups', "
                f"'covariates' or a list of names of covariates"
            )
        names = known
    else:
        try:
            names = tuple(str(x) for x in prior)
        except TypeError:
            raise InputError(f"prior={prior!r} must be a name or a list of covariates") from None
    missing = [n for n in names if n not in known]
    if missing or not names or len(set(names)) < len(names):
        raise InputError(
            f"prior={prior!r}: name each covariate once, among those that the responses have: "
            f"{', '.join(known) or 'none'}"
        )
    words = [n for n in names if n in responses.covariate_labels]
    if words:
        raise InputError(
            f"prior={prior!r}: {', '.join(words)} has labels, and this regression takes numbers: "
            f"name the others, or fit labels as categories by fit_population"
        )
    none = np.zeros(len(names))
    columns = tuple(known.index(n) for n in names)
    covariates = Covariates(names, columns, none, none + 1.0)
    return Population(np.zeros((1, 1 + len(names))), np.ones(1), covariates=covariates)


def estimate(
    engine: Engine, items: ItemSet, start: Population, *, most_answers: int = 0
) -> Estimate:
    """Estimate the population by EM; warns where it does not converge.

    most_answers: a bound of what a person answers, as of :class:`Population`.
    """
    population, gram = prepared(engine, start)
    population = replace(population, most_answers=most_answers)
    fitted = climb(engine, items, population, gram)
    fitted.covariance, persons = regression_errors.covariance(
        engine, items, fitted.population, gram, SD_BOUNDS[0] * 1.0001
    )
    fitted.gram = gram / gram[:, :1, :1]
    _warn_of_few(fitted.population, persons)
    at_bound = [
        repr(label)
        for label, sd in zip(_names(population), fitted.population.sd, strict=True)
        if sd <= SD_BOUNDS[0] * 1.0001
    ]
    if at_bound:
        warnings.warn(
            f"the standard deviation of ability ended at its bound {SD_BOUNDS[0]} for "
            f"{', '.join(at_bound[:10])}: too few responses to tell",
            DataWarning,
            stacklevel=5,
        )
    return fitted


def prepared(engine: Engine, start: Population) -> tuple[Population, Floats]:
    """The groups or covariates of these persons, and their sums of products.

    InputError or EstimationError where these cannot be used: not known of somebody, the same for
    all, or dependent on each other.
    """
    if start is STANDARD:
        return start, np.full((1, 1, 1), total_weight(engine))
    return _groups(engine) if start.covariates is None else _covariates(engine, start)


def _names(population: Population) -> tuple[str, ...]:
    """Whose standard deviations there are."""
    if population.plain:
        return (EVERYBODY,)
    return population.labels or ("residual",)


def _warn_of_few(population: Population, persons: Floats) -> None:
    """Warn of groups and covariates of which few persons tell; numbers as of ``covariance``."""
    if population.covariates is None:
        names, counted, few = _names(population), persons[:, 0], _FEW_OF_GROUP
        what = "mean and standard deviation of ability of group"
    else:
        names, counted, few = population.covariates.names, persons[0, 1:], _FEW_OF_TERM
        what = "coefficient of"
    # a count of persons, but for rounding
    rest = [
        f"{name!r} ({n:.0f})" for name, n in zip(names, counted, strict=True) if not n > few - 1e-6
    ]
    if rest:
        warnings.warn(
            f"{what} {', '.join(rest[:10])}{', ...' if len(rest) > 10 else ''}: so many persons "
            f"(in brackets) say little of it, below {few} the normal distribution and the standard "
            f"error are rough (NaN: none); the others are not affected",
            ApproximationWarning,
            stacklevel=6,
        )


# --- what is there --------------------------------------------------------------------------------


def _labels(ref: Any) -> list[str]:
    return list(dict.fromkeys(ref.groups()))


def _weight_of_groups(ref: Any, population: Population, scale: float) -> Any:
    _, w = weights_of(ref)
    total = np.zeros(len(population.labels), dtype=np.int64)
    add_by_group(total, population.persons(ref), fixed_point.fixed(w, scale))
    return total


def _groups(engine: Engine) -> tuple[Population, Floats]:
    labels = tuple(sorted({x for part in engine.map_refs(_labels) for x in part}))
    if len(labels) > MOST_GROUPS:
        raise InputError(
            f"prior='groups': the persons are of {len(labels)} groups, and at most {MOST_GROUPS} "
            f"are estimated; use fewer, or covariates"
        )
    n = len(labels)
    population = Population(np.zeros((n, 1)), np.ones(n), labels)
    scale = scale_for(engine, 1.0)
    total = np.sum(engine.map_refs(_weight_of_groups, population, scale), axis=0) / scale
    empty = [label for label, w in zip(labels, total, strict=True) if w == 0.0]
    if empty:
        raise EstimationError(
            f"{len(empty)} group(s) have no person with responses: {', '.join(empty[:10])}; leave "
            f"these persons out (select), or use prior='normal'"
        )
    return population, total[:, None, None]


def _ranges(ref: Any, covariates: Covariates) -> tuple[int, Floats, Floats]:
    x = covariates.of(ref)
    unknown = np.isnan(x).any(axis=1)
    if unknown.all():
        none = np.full(x.shape[1], np.inf)
        return int(unknown.sum()), none, -none
    return int(unknown.sum()), np.nanmin(x[~unknown], axis=0), np.nanmax(x[~unknown], axis=0)


def _gram(ref: Any, covariates: Covariates, scale: float) -> Any:
    _, w = weights_of(ref)
    u = covariates.design(ref)
    return np.array(
        [fixed_point.fixed(w[:, None] * u * u[:, [k]], scale).sum(0) for k in range(u.shape[1])]
    )


def _covariates(engine: Engine, start: Population) -> tuple[Population, Floats]:
    assert start.covariates is not None
    names = start.covariates.names
    unknown, low, high = zip(*engine.map_refs(_ranges, start.covariates), strict=True)
    if sum(unknown):
        raise InputError(
            f"prior={list(names)}: {sum(unknown)} person(s) have no value (NaN) of a covariate; "
            f"fill in a value and add a covariate that says so, or leave these persons out"
        )
    least, most = np.min(low, axis=0), np.max(high, axis=0)
    same = [n for n, a, b in zip(names, least, most, strict=True) if a == b]
    if same:
        raise InputError(f"covariate(s) {', '.join(same)} are the same for all persons; omit them")
    covariates = replace(start.covariates, middle=0.5 * (least + most), half=0.5 * (most - least))
    scale = scale_for(engine, 1.5)
    gram = np.sum(engine.map_refs(_gram, covariates, scale), axis=0) / scale
    if gram[0, 0] == 0.0:
        raise EstimationError("there is no observed response: nothing to regress ability on")
    if np.linalg.eigvalsh(gram / gram[0, 0])[0] < _LEAST:
        raise EstimationError(
            f"the covariates {', '.join(names)} depend on each other (one is a sum of others, "
            f"such as a dummy variable for every category): leave one out"
        )
    return replace(start, covariates=covariates), gram[None]


# --- what was found -------------------------------------------------------------------------------


def described(found: Estimate) -> tuple[dict[str, Any], dict[str, Any]]:
    """Variables and coordinates of a result."""
    p, covariance = found.population, found.covariance
    se = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    if p.covariates is None:
        data = {"group_mean": p.coefficients[:, 0], "group_mean_se": se[:, 0]}
        data |= {"group_sd": p.sd, "group_sd_se": se[:, 1]}
        return data, {"group_label": np.array(p.labels or (EVERYBODY,), dtype=str)}
    data = {
        "regression_coefficient": p.covariates.original() @ p.coefficients[0],
        "regression_coefficient_se": se[0, :-1],
        "residual_sd": p.sd[0],
        "residual_sd_se": se[0, -1],
    }
    return data, {"covariate": np.array(["intercept", *p.covariates.names])}
