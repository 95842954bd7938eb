"""What is said of a conditioning model: variables over groups, terms and domains."""

from __future__ import annotations

import itertools
import json
import warnings
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.engine import dataset
from irt_dask.errors import DataWarning
from irt_dask.population import design
from irt_dask.population.conditioning import MOST_EXACT
from irt_dask.population.conditioning_em import MOST_CORRELATED
from irt_dask.population.conditioning_fit import Found
from irt_dask.population.em import SD_BOUNDS
from irt_dask.population.item_uncertainty import Between
from irt_dask.population.regression import EVERYBODY
from irt_dask.store import Responses


def warn_of_bounds(found: Found) -> None:
    """Name standard deviations and correlations that ended at a bound, and changed ones."""
    model = found.fitted.model
    names = model.labels or (EVERYBODY,)
    bad = []
    for g, d in np.ndindex(model.n_groups, len(model.domains)):
        sd = np.sqrt(model.covariance[g, d, d])
        if not SD_BOUNDS[0] * 1.0001 < sd < SD_BOUNDS[1] / 1.0001:
            bad.append(f"SD of {model.domains[d].name!r} in {names[g]!r}")
        for e in range(d):
            r = model.covariance[g, d, e] / sd / np.sqrt(model.covariance[g, e, e])
            if abs(r) > MOST_CORRELATED - 1e-3:
                pair = f"{model.domains[e].name!r} and {model.domains[d].name!r}"
                bad.append(f"correlation of {pair} in {names[g]!r}")
    if bad:
        more = f" and {len(bad) - 10} more" if len(bad) > 10 else ""
        warnings.warn(
            f"{', '.join(bad[:10])}{more}: at the bound (SDs from {SD_BOUNDS[0]} to "
            f"{SD_BOUNDS[1]:.0f}, correlations up to {MOST_CORRELATED}); too few responses, "
            f"or domains that are one",
            DataWarning,
            stacklevel=4,
        )
    if found.projected > 1e-6:
        warnings.warn(
            f"the residual correlations of pairs of domains are no correlation matrix together; "
            f"the nearest one is taken, which changes them by up to {found.projected:.2g}",
            DataWarning,
            stacklevel=4,
        )


def described(
    found: Found, items: xr.Dataset, responses: Responses, more: dict[str, Any],
    of_items: Between | None = None,
) -> xr.Dataset:  # fmt: skip
    """The result of a fit; with ``of_items`` standard errors hold these variances too."""
    model, of = found.fitted.model, found.bases
    dims, names = len(model.domains), model.labels or (EVERYBODY,)
    data, coords = _values(found)
    if of_items is not None:
        _add(data, of_items)
    coords |= {
        "group_label": np.array(names, dtype=str),
        "covariate": np.array(["intercept", *model.design.terms[1:]], dtype=str),
        "domain": np.array([d.name for d in model.domains], dtype=str),
    }
    attrs = {
        "method": "latent regression",
        "model": items.attrs.get("model"),
        "seed": None,
        "converged": found.fitted.converged,
        "n_iterations": found.fitted.passes,
        "log_likelihood": found.fitted.log_likelihood,
        "objective": found.fitted.log_likelihood,
        "identification": "abilities on the scale of the items, normal given covariates",
        "formula": model.design.formula or "1",
        "n_components": [b.n - 1 for b in of],
        "component_share": [b.share for b in of],
        "n_effective": [b.effective for b in of],
        "sum_of_weights": [b.weight for b in of],
        "correlations": "joint" if dims <= MOST_EXACT else "pairs of domains",
        "design": json.dumps(_design_said(model.design)),
        "domains": json.dumps(
            {d.name: [responses.item_id[k] for k in d.columns] for d in model.domains}
        ),
        "sharpest": [d.sharpest for d in model.domains],
        **_about_units(found),
        **more,
    }
    return dataset(data, coords=coords, attrs=attrs)


def _about_units(found: Found) -> dict[str, Any]:
    """How many sampling units each group has, where there are any."""
    n = [e.units.n for e in found.errors if e.units is not None]
    return {"n_sampling_units": n, "degrees_of_freedom": [x - 1 for x in n]} if n else {}


def _values(found: Found) -> tuple[dict[str, Any], dict[str, Any]]:
    """Variables over groups, terms, components and domains."""
    model, of = found.fitted.model, found.bases
    groups, dims = model.n_groups, len(model.domains)
    p, most = model.design.n_terms, max(b.n for b in of)
    original = model.design.original()
    shape = (groups, p, dims)
    coefficient, se = np.empty(shape), np.empty(shape)
    loading = np.full((groups, p, most), np.nan)
    component = np.full((groups, most, dims), np.nan)
    covariance = np.full((groups, most * dims, most * dims), np.nan)
    corrected = found.corrected()
    sd = np.sqrt(np.diagonal(corrected, axis1=1, axis2=2))
    i, j = np.triu_indices(dims)
    elements = np.empty((groups, i.size, i.size))
    (error, sd_se), r_se = np.empty((2, groups, dims)), np.full((groups, dims, dims), np.nan)
    mean, mean_se, total = np.empty((groups, dims)), np.empty((groups, dims)), corrected.copy()
    for g, (b, e, c) in enumerate(zip(of, found.errors, found.fitted.components, strict=True)):
        t = original @ b.loading
        coefficient[g] = t @ c
        of_terms = (e if e.units is None else e.units).of_terms(t)
        se[g] = np.where(b.determined[:, None], of_terms, np.nan)
        n = b.n * dims
        loading[g, :, : b.n], component[g, : b.n] = b.loading, c
        covariance[g, :n, :n] = e.components
        explained = c[1:].T @ c[1:]
        total[g] += explained
        own = np.diag(e.components)[:dims]
        mean[g] = c[0]
        mean_se[g] = np.sqrt(own + np.diag(explained) / b.effective)
        # of n - p, as the covariance is: 1 / n^3 of what maximum likelihood's squares are to it
        elements[g] = e.elements / b.free**3
        error[g], r_se[g] = _residual_errors(corrected[g], elements[g], i, j)
        sd_se[g] = error[g]
        if e.units is not None:
            mean_se[g] = e.units.of_mean
            of_units = e.units.covariance(e.units.elements) / b.free**3
            sd_se[g], r_se[g] = _residual_errors(corrected[g], of_units, i, j)
    total_sd = np.sqrt(np.diagonal(total, axis1=1, axis2=2))
    data = {
        "regression_coefficient": coefficient, "regression_coefficient_se": se,
        "residual_sd": sd, "residual_sd_se": sd_se,
        "residual_correlation": corrected / sd[:, :, None] / sd[:, None, :],
        "residual_correlation_se": r_se,
        "group_mean": mean, "group_mean_se": mean_se, "group_sd": total_sd,
        "group_correlation": total / total_sd[:, :, None] / total_sd[:, None, :],
        "explained_share": 1.0 - (sd / total_sd) ** 2,
        "component_loading": loading, "component_coefficient": component,
        "component_coefficient_covariance": covariance,
        # whatever the units: values are drawn with these
        "residual_sd_error": error, "residual_element_covariance": elements,
    }  # fmt: skip
    return data, {}


def _add(data: dict[str, Any], of_items: Between) -> None:
    """Add variances between draws of items to the standard errors."""
    for name, variance in (
        ("regression_coefficient_se", of_items.coefficient),
        ("group_mean_se", of_items.mean),
        ("residual_sd_se", of_items.sd),
        ("residual_correlation_se", of_items.correlation),
    ):
        data[name] = np.sqrt(data[name] ** 2 + variance)


def _residual_errors(s: Floats, elements: Floats, i: Any, j: Any) -> tuple[Floats, Floats]:
    """Standard errors of SDs and correlations by the delta method."""
    dims = len(s)
    place = {(a, b): k for k, (a, b) in enumerate(zip(i.tolist(), j.tolist(), strict=True))}
    sd = np.sqrt(np.diag(s))
    own = np.array([place[d, d] for d in range(dims)])
    sd_se = np.sqrt(np.maximum(np.diag(elements)[own], 0.0)) / (2.0 * sd)
    r_se = np.zeros((dims, dims))
    for d, e in itertools.combinations(range(dims), 2):
        r = s[d, e] / sd[d] / sd[e]
        gradient = np.zeros(len(elements))
        gradient[place[d, e]] = 1.0 / sd[d] / sd[e]
        gradient[own[d]], gradient[own[e]] = -0.5 * r / s[d, d], -0.5 * r / s[e, e]
        used = np.flatnonzero(gradient)
        part = elements[np.ix_(used, used)]
        variance = float(gradient[used] @ part @ gradient[used])
        r_se[d, e] = r_se[e, d] = np.sqrt(max(variance, 0.0))
    return sd_se, r_se


def _design_said(terms: design.Design) -> dict[str, Any]:
    """A design as a document."""
    columns = [
        {"name": c.name, "levels": c.levels, "fill": c.fill, "lacking": c.lacking}
        | ({} if c.labels is None else {"labels": c.labels})
        for c in terms.columns
    ]
    return {
        "formula": terms.formula, "columns": columns, "terms": terms.terms,
        "middle": terms.middle.tolist(), "half": terms.half.tolist(),
    }  # fmt: skip
