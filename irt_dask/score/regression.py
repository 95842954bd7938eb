"""Latent regression: the distribution of ability in groups, or given covariates, items fixed.

EM (Mislevy 1984): the posterior moments of each person under the present distribution give the next
means and standard deviations.  With e the posterior mean and v the variance of the standardised
residual, a step of the coefficients is ``sd G^-1 sum w u e`` (G the Gram matrix of the design u),
and the score in (coefficients / sd, log sd) is ``(u e, e^2 + v - 1)``.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.engine import Engine
from irt_dask.errors import (
    ApproximationWarning,
    ConvergenceWarning,
    DataWarning,
    EstimationError,
    InputError,
)
from irt_dask.kernels.base import fixed_point
from irt_dask.score import axis, regression_errors
from irt_dask.score.population import Covariates, Part, Population
from irt_dask.score.regression_errors import largest_score, scale_for, weights_of
from irt_dask.store import Responses

Floats = NDArray[np.float64]

#: More groups than this have no place on the driver.
MOST_GROUPS = 1000
#: Bounds of the standard deviations.
SD_BOUNDS = (0.05, 20.0)
#: Passes over the data, and the EM step of means and log SDs that ends them.
_PASSES, _TOLERANCE = 200, 1e-7
#: Earlier steps that acceleration looks at.
_MEMORY = 3
#: Persons of a covariate and of a group below which a warning says how few there are.
_FEW_OF_TERM, _FEW_OF_GROUP = 5, 20
#: Smallest eigenvalue of the design's mean products: below, covariates depend on each other.
_LEAST = 1e-10


class Estimate:
    """A population and how it was found."""

    def __init__(self, population: Population, passes: int, converged: bool, value: float) -> None:
        self.population, self.passes = population, passes
        self.converged, self.log_likelihood = converged, value
        self.covariance = np.empty((0, 0, 0))


def begin(responses: Responses, prior: Any) -> Population | None:
    """What ``prior`` asks for, without its numbers; None: N(0, 1)."""
    if isinstance(prior, str) and prior == "normal":
        return None
    if isinstance(prior, str) and prior == "groups":
        if not responses.has_groups:
            raise InputError(
                "prior='groups': the responses have no groups of persons; give them as column "
                "'group' of persons"
            )
        return Population(np.zeros((0, 1)), np.ones(0))
    known = responses.covariate_names
    if isinstance(prior, str):
        if prior != "covariates":
            raise InputError(
                f"prior={prior!r} is not available; choose 'normal', 'groups', 'covariates' or a "
                f"list of names of covariates"
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
    none = np.zeros(len(names))
    columns = tuple(known.index(n) for n in names)
    covariates = Covariates(names, columns, none, none + 1.0)
    return Population(np.zeros((1, 1 + len(names))), np.ones(1), covariates=covariates)


def estimate(engine: Engine, items: axis.Items, start: Population) -> Estimate:
    """Estimate the population by EM; warns where it does not converge."""
    if start.covariates is None:
        population, gram = _groups(engine)
    else:
        population, gram = _covariates(engine, start)
    fitted = _climb(engine, items, population, gram)
    fitted.covariance, persons = regression_errors.covariance(
        engine, items, fitted.population, gram, SD_BOUNDS[0] * 1.0001
    )
    _warn_of_few(fitted.population, persons)
    at_bound = [
        repr(label)
        for label, sd in zip(population.labels or ("residual",), fitted.population.sd, strict=True)
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


def _warn_of_few(population: Population, persons: Floats) -> None:
    """Warn of groups and covariates of which few persons tell; numbers as of ``covariance``."""
    if population.covariates is None:
        names, counted, few = population.labels, persons[:, 0], _FEW_OF_GROUP
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
    for part in population.parts(ref):
        total[part.number] += fixed_point.fixed(w[part.rows], scale).sum()
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


# --- EM -------------------------------------------------------------------------------------------


def _residuals(
    block: Any, part: Part, items: axis.Items, population: Population
) -> tuple[Floats, Floats]:
    """Rows ``(u e, e^2 + v)`` and log marginal likelihoods of a part's persons."""
    s = axis.standard(items, population, part)
    mean, sd, log_marginal = axis.expectations(part.of(block.data), s, part.shift)
    e = mean if part.shift is None else mean - part.shift
    u = np.ones((e.size, 1)) if part.design is None else part.design
    return np.concatenate([u * e[:, None], (e**2 + sd**2)[:, None]], axis=1), log_marginal


def _step(
    ref: Any, items: axis.Items, population: Population, scale: float, log_scale: float
) -> tuple[Any, Any]:
    """Fixed-point sums of the residuals and of the log marginals of each group."""
    block, w = weights_of(ref)
    n, width = population.coefficients.shape
    sums, value = np.zeros((n, width + 1), dtype=np.int64), np.zeros(n, dtype=np.int64)
    for part in population.parts(ref):
        terms, log_marginal = _residuals(block, part, items, population)
        own = w[part.rows]
        sums[part.number] += fixed_point.fixed(own[:, None] * terms, scale).sum(axis=0)
        value[part.number] += fixed_point.fixed(own * log_marginal, log_scale).sum()
    return sums, value


def _next(x: Floats, sums: Floats, gram: Floats) -> Floats:
    """EM step of one group's ``(coefficients, log sd)``."""
    sd = np.exp(x[-1])
    move = np.linalg.solve(gram, sums[:-1])
    variance = (sums[-1] - sums[:-1] @ move) / gram[0, 0]
    floor = (SD_BOUNDS[0] / sd) ** 2
    return np.append(x[:-1] + sd * move, np.log(sd) + 0.5 * np.log(max(variance, floor)))


def _inside(x: Floats) -> Floats:
    x[-1] = np.clip(x[-1], *np.log(SD_BOUNDS))
    return x


def _accelerated(points: list[Floats], images: list[Floats]) -> Floats:
    """Anderson's proposal from the last points and what EM made of them."""
    if len(points) < 2:
        return images[-1].copy()
    steps = np.array(images) - np.array(points)
    gamma = np.linalg.lstsq(np.diff(steps, axis=0).T, steps[-1], rcond=1e-8)[0]
    beyond = -np.diff(np.array(images), axis=0).T @ gamma
    length, most = float(np.linalg.norm(beyond)), 10.0 * float(np.linalg.norm(steps[-1]))
    return images[-1] + beyond * min(1.0, most / max(length, 1e-300))


def _of(population: Population, x: Floats) -> Population:
    return replace(population, coefficients=x[:, :-1].copy(), sd=np.exp(x[:, -1]))


def _climb(engine: Engine, items: axis.Items, population: Population, gram: Floats) -> Estimate:
    """EM, accelerated; a proposal that lowers a group's log-likelihood is taken back."""
    n, n_items = len(population.sd), engine.responses.n_items
    x = np.concatenate([population.coefficients, np.log(population.sd)[:, None]], axis=1)
    images, last = x.copy(), np.full(n, -np.inf)
    points: list[list[Floats]] = [[] for _ in range(n)]
    seen: list[list[Floats]] = [[] for _ in range(n)]
    for passes in range(1, _PASSES + 1):
        now = _of(population, x)
        reach = axis.reach(items, now)
        scale = scale_for(engine, largest_score(reach))
        log_scale = scale_for(engine, _largest(items, now, n_items, reach))
        parts = engine.map_refs(_step, items, now, scale, log_scale)
        sums = np.sum([p[0] for p in parts], axis=0) / scale
        value = np.sum([p[1] for p in parts], axis=0) / log_scale
        change = 0.0
        for k in range(n):
            if value[k] < last[k] - 1e-9 * abs(last[k]) and seen[k]:
                points[k], seen[k], x[k] = [], [], images[k]
                change = np.inf
                continue
            last[k], images[k] = value[k], _inside(_next(x[k], sums[k], gram[k]))
            change = max(change, float(np.abs(images[k] - x[k]).max()))
            points[k], seen[k] = (
                [*a, b][-_MEMORY:]
                for a, b in ((points[k], x[k].copy()), (seen[k], images[k].copy()))
            )
            x[k] = _inside(_accelerated(points[k], seen[k]))
        engine.progress.update(passes, _PASSES)
        if change < _TOLERANCE:
            return Estimate(_of(population, images), passes, True, float(last.sum()))
    warnings.warn(
        f"the distribution of ability still changes by {change:.2g} after {_PASSES} passes: these "
        f"responses hardly determine it",
        ConvergenceWarning,
        stacklevel=6,
    )
    return Estimate(_of(population, images), _PASSES, False, float(last.sum()))


def _largest(items: axis.Items, population: Population, n_items: int, reach: float) -> float:
    """Bound of a person's absolute log marginal likelihood."""
    theta = population.furthest + (reach + 1.0) * float(population.sd.max())
    worst = float((items.a * theta + np.abs(items.d) - np.log1p(-items.c)).max())
    return n_items * (worst + 1.0) + 1.0


def described(found: Estimate) -> tuple[dict[str, Any], dict[str, Any]]:
    """Variables and coordinates of a result."""
    p, covariance = found.population, found.covariance
    se = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    if p.covariates is None:
        data = {"group_mean": p.coefficients[:, 0], "group_mean_se": se[:, 0]}
        data |= {"group_sd": p.sd, "group_sd_se": se[:, 1]}
        return data, {"group_label": np.array(p.labels, dtype=str)}
    data = {
        "regression_coefficient": p.covariates.original() @ p.coefficients[0],
        "regression_coefficient_se": se[0, :-1],
        "residual_sd": p.sd[0],
        "residual_sd_se": se[0, -1],
    }
    return data, {"covariate": np.array(["intercept", *p.covariates.names])}
