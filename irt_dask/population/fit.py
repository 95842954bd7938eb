"""Fitting a conditioning model: what is asked for, in which order, and what is said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine, ProgressOption, as_responses
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import InputError
from irt_dask.items.draws import item_draws
from irt_dask.population import design
from irt_dask.population.answered import check_answered
from irt_dask.population.basis import bases
from irt_dask.population.conditioning import Conditioning
from irt_dask.population.conditioning_described import described, warn_of_bounds
from irt_dask.population.conditioning_fit import fitted
from irt_dask.population.domains import Domain, domains_of, sharpened
from irt_dask.population.item_uncertainty import between
from irt_dask.population.regression import MOST_GROUPS
from irt_dask.population.units import in_units
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
    n_item_draws: int = 0,
    sampling_unit: Any = None,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Latent regression of abilities on covariates: the conditioning model of plausible values.

    In each group abilities are normal about linear predictors, with a covariance of what is left;
    items are held.  Marginal maximum likelihood by EM (Mislevy 1984; Thomas 1993), the posterior of
    every person summed on a grid of nodes.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
        With their persons' weights, groups and covariates.
    items : Dataset
        A fit or an item bank of any model of one ability; matched by identifier.
    covariates : str or list of str, optional
        A formula of formulaic over the covariates of the responses, such as
        ``"escs + C(grade) + C(sex):escs"``, or names of covariates.  ``C(name)`` makes categories
        of codes (treatment contrasts), which covariates that are labels are by themselves.  A
        number that is not known (NaN) is taken for the middle of the range, and told by a term
        ``name[missing]``; of categories "missing" is a level.
        Default: the intercept alone.
    n_components : int or float, optional
        Principal components of the terms (each scaled to variance 1 in the group, columns of one
        category to products of 0 before, so that no level is left out first) that take the terms'
        place: how many, or the share of variance that they keep.  Those that are as large as the
        last one are kept too: one category is kept as a whole.  Default: all there are.
    domains : mapping from name to list of item ids, optional
        Abilities, each measured by items of its own.  Default: one, "ability", of all items.
    by_group : bool
        Whether groups of persons (``person_group``), where there are any, have coefficients,
        components and covariances of their own.
    n_item_draws : int
        Draws of the items under which the model is fitted again, so that standard errors hold what
        is not known of the items; 10 to 20 do.  A posterior (:func:`irt_dask.fit_bayes`) has draws;
        of a fit or a bank they are made by its covariance of parameters, or its standard errors.
    sampling_unit : str or array, optional
        What was drawn before persons were, such as schools, whose persons are alike: the name of a
        covariate, "person_group" (with ``by_group=False``), or one label for each person, in their
        order.  Standard errors are then the sandwich from sums of scores by unit, those of
        ``group_mean`` too; compare them with t with attrs ``degrees_of_freedom``.  Plausible values
        are drawn as without.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset
        Over groups, terms (``covariate``, the intercept first) and domains (``latent_dims``):
        ``regression_coefficient``, ``residual_sd``, ``residual_correlation``, ``group_mean``, each
        with ``_se``; ``group_sd``, ``group_correlation`` (of abilities in the group, whatever the
        covariates) and ``explained_share``; and what :func:`irt_dask.score` needs to draw plausible
        values with coefficients and covariances drawn too (``component_...``, attrs ``design``,
        ``domains``).  With ``n_components`` coefficients are those of the components, carried over
        to the terms.  attrs ``log_likelihood``, ``n_iterations`` (passes), ``converged``,
        ``n_components`` and ``component_share`` by group.

        Standard errors take the items for known, but with ``n_item_draws``; of coefficients they
        are from the observed information, of the rest from cross-products of scores, with sampling
        weights from a sandwich.  Residual covariances are maximum likelihood's, plus what the
        coefficients' errors took (as n - p for n in a regression); plausible values are drawn about
        a smaller one, with which they have the abilities' covariance.  Errors of ``group_mean``
        count the persons as drawn at random with their covariates, unless there is a
        ``sampling_unit``; for published tables use replicate weights with the plausible values
        (:func:`irt_dask.tabulate`).  attrs ``n_sampling_units``, ``degrees_of_freedom`` by group.
        (Covariances of components, which values are drawn with, take items for known in any case:
        :func:`irt_dask.score` fits the model again to each value's own draw of the items.)

    Raises
    ------
    InputError
        A formula that cannot be read, has no intercept or rests on all persons at once; terms that
        are the same for all; items of no domain or of two; below two persons (in effect, weights
        considered) for each coefficient of a domain; covariances of more than 256 MiB; sampling
        units that there are not, or one alone in a group.
    TooLargeError
        Sums of more than 1 GiB over sampling units.
    EstimationError
        A group without responses, or without any to a domain; two domains of both of which nobody
        (of a group) has responses; domains whose abilities cannot be told apart.

    Warns
    -----
    DataWarning
        Terms that are not determined in a group (the same for all of it, or sums of others; no
        standard errors); SDs and correlations at their bounds (.05 to 20; .98); correlations of
        pairs that are no correlation matrix together; fewer than 30 sampling units, or 5 for a
        coefficient; terms that fewer than 5 of them tell of, in effect (no standard errors).
    ApproximationWarning
        Terms on fewer than 5 persons, groups of fewer than 20, below 20 persons for a coefficient,
        or with answers to both of two domains.
    ConvergenceWarning
        200 passes did not suffice.

    Notes
    -----
    Passes over the data: five for covariates and items, some ten to twenty of EM, one or two for
    errors; some five for each draw of items.  Up to three domains are fitted together: a person
    costs some thousand operations for three.  Of more, coefficients and variances are those of each
    domain alone, and correlations what the expected products of residuals say in fits of pairs,
    d (d - 1) / 2 of them (they are drawn to the nearest correlation matrix).  Driver memory: for
    each group (terms)^2 and (components x domains)^2 numbers, and (components x domains) for each
    sampling unit (a pass more); a block has 4 bytes x persons x terms.

    Examples
    --------
    >>> import irt_dask as irt
    >>> simulated = irt.simulate(600, 20, seed=1)
    >>> items = irt.fit_marginal(simulated)
    >>> above = (simulated.truth["person_ability"].values > 0).astype(float)
    >>> y = simulated.to_xarray()["response"]
    >>> responses = irt.from_array(y, persons={"above": above})
    >>> domains = {"odd": responses.item_id[::2], "even": responses.item_id[1::2]}
    >>> population = irt.fit_population(responses, items, covariates="above", domains=domains)
    >>> population["regression_coefficient"].sel(covariate="above").round(1).values.tolist()
    [[1.6, 1.6]]
    >>> scores = irt.score(responses, items, prior=population, n_plausible=5)
    >>> dict(scores["person_domain_plausible_value"].sizes)
    {'persons': 600, 'plausible': 5, 'scales': 2}
    """
    responses = as_responses(responses, "fit_population", graded=True, items=items)
    n_components = _checked(n_components, covariates)
    of = domains_of(responses, items, domains)
    responses, units = in_units(responses, sampling_unit, client)
    sets = _draws(items, responses, n_item_draws)
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
        of_terms = bases(second, start, n_components)
        check_answered(second, start)
        found = fitted(second, start, of_terms, units=units)
        of_items = between(second, found, sets) if sets else None
        more = {"n_persons": second.n_persons, **second.weight_attrs, "n_item_draws": len(sets)}
        if units is not None:
            more["standard_errors"] = f"sandwich of sampling units ({units.name})"
    warn_of_bounds(found)
    return described(found, items, responses, more, of_items)


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


def _draws(items: xr.Dataset, responses: Responses, n: Any) -> list[ItemSet]:
    n = whole_number("n_item_draws", n, 0)
    if n == 1:
        raise InputError("n_item_draws=1: one draw does not tell how draws vary; give 10 or more")
    return item_draws(items, responses.item_id, n, option="n_item_draws") if n else []


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
