"""Fitting a conditioning model: what is asked for, in which order, and what is said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.engine import Engine, ProgressOption, as_responses
from irt_dask.errors import InputError
from irt_dask.population import design
from irt_dask.population.basis import bases
from irt_dask.population.conditioning import Conditioning
from irt_dask.population.conditioning_described import described, warn_of_bounds
from irt_dask.population.conditioning_fit import fitted
from irt_dask.population.domains import Domain, domains_of, sharpened
from irt_dask.population.regression import MOST_GROUPS
from irt_dask.store import Responses

#: Numbers of all groups' covariances of coefficients, at most: 256 MiB.
_MOST_NUMBERS = 1 << 25


def fit_population(
    responses: Any,
    items: xr.Dataset,
    *,
    covariates: str | Sequence[str] | None = None,
    n_components: int | float | None = None,
    domains: Mapping[str, Sequence[str]] | None = None,
    by_group: bool = True,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """TODO"""
    responses = as_responses(responses, "fit_population", graded=True, items=items)
    n_components = _checked(n_components, covariates)
    of = domains_of(responses, items, domains)
    labels: tuple[str, ...] = ()

    def engine(r: Responses, stage: str) -> Engine:
        return Engine(r, client=client, progress=progress, stage=stage, graded=True)

    with engine(responses, "covariates") as first:
        if by_group and responses.has_groups:
            labels = _labels(first)
        terms = design.found(first, covariates)
        of = sharpened(first, of)
    _refuse_too_large(terms, len(of), max(len(labels), 1), n_components)
    with engine(design.designed(responses, terms, labels), "population") as second:
        start = _start(of, terms, labels)
        found = fitted(second, start, bases(second, start, n_components))
        weights = second.weight_attrs
    warn_of_bounds(found)
    return described(found, items, responses, weights)


def _checked(n_components: Any, covariates: Any) -> int | float | None:
    if n_components is None:
        return None
    if covariates is None:
        raise InputError(f"n_components={n_components!r} has no effect without covariates")
    if isinstance(n_components, bool) or not isinstance(
        n_components, (int, float, np.integer, np.floating)
    ):
        raise InputError(f"n_components={n_components!r}: give a number, or a share of variance")
    if isinstance(n_components, (float, np.floating)):
        if not 0.0 < n_components < 1.0:
            raise InputError(
                f"n_components={n_components!r}: a share of variance lies between 0 and 1; a "
                f"number of components is a whole number"
            )
        return float(n_components)
    if n_components < 1:
        raise InputError(f"n_components={n_components!r}: at least 1")
    return int(n_components)


def _labels(engine: Engine) -> tuple[str, ...]:
    found = sorted({x for part in engine.map_refs(_labels_of) for x in part})
    if len(found) > MOST_GROUPS:
        raise InputError(
            f"the persons are of {len(found)} groups, and at most {MOST_GROUPS} are estimated; "
            f"give by_group=False"
        )
    return tuple(found) if len(found) > 1 else ()


def _labels_of(ref: Any) -> list[str]:
    return [str(x) for x in pd.unique(np.asarray(ref.groups()).astype(str))]


def _refuse_too_large(
    terms: design.Design, dims: int, groups: int, n_components: int | float | None
) -> None:
    n = terms.n_terms - 1
    if isinstance(n_components, int):
        n = min(n, n_components)
    if groups * ((n + 1) * dims) ** 2 > _MOST_NUMBERS:
        raise InputError(
            f"{n} terms x {dims} domains in {groups} groups: the coefficients' covariances would "
            f"take {groups * ((n + 1) * dims) ** 2 / 2**27:.1f} GiB on the driver, at most "
            f"{_MOST_NUMBERS / 2**27:.2f}; give n_components (a number), or by_group=False"
        )


def _start(of: tuple[Domain, ...], terms: design.Design, labels: tuple[str, ...]) -> Conditioning:
    """Abilities N(0, 1) with correlations of a half."""
    groups, dims = max(len(labels), 1), len(of)
    covariance = np.full((dims, dims), 0.5) + 0.5 * np.eye(dims)
    coefficients = np.zeros((groups, terms.n_terms, dims))
    return Conditioning(of, terms, labels, coefficients, np.tile(covariance, (groups, 1, 1)))
