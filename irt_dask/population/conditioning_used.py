"""A conditioning model out of its result, for the persons of other responses, and draws of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from scipy.linalg import eigh
from scipy.stats import invwishart

from irt_dask.arrays import Bools, Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.errors import InputError, listed
from irt_dask.kernels.base import keyed_random
from irt_dask.population.basis import Basis
from irt_dask.population.conditioning import Conditioning
from irt_dask.population.conditioning_em import repaired
from irt_dask.population.conditioning_fit import log_likelihood, refitted
from irt_dask.population.design import Column, Design
from irt_dask.population.domains import domains_of
from irt_dask.store import Responses
from irt_dask.store.labels import by_number

#: Standard deviation, in logarithms, of a draw of a residual variance in any direction, at most:
#: where less is known a normal error of it says nothing.
_MOST_SPREAD = 0.7
#: Share of residual variance in any direction that is taken away for the coefficients' errors.
_MOST_TAKEN = 0.5


@dataclass(frozen=True)
class Used:
    """A model with what its draws rest on."""

    model: Conditioning
    bases: list[Basis]
    components: list[Floats]  # by group, (components, domains)
    covariances: list[Floats]  # of these, domains fastest
    degrees: Floats  # of each residual variance's distribution, (groups, domains)
    elements: Floats | None  # covariances of residual covariances' elements, (groups, pairs, pairs)
    spreads: Floats  # mean over persons of the covariance of u B, (groups, domains, domains)


def used(population: xr.Dataset, items: xr.Dataset, responses: Responses) -> Used:
    """The model of a result of ``fit_population`` for these responses."""
    if "component_loading" not in population or "design" not in population.attrs:
        raise InputError("population: give what fit_population returns")
    names = [str(x) for x in population["domain"].values]
    asked = json.loads(population.attrs["domains"])
    of = domains_of(responses, items, {name: _those(asked[name], responses) for name in names})
    sharpest = np.atleast_1d(population.attrs["sharpest"])
    of = tuple(replace(d, sharpest=float(x)) for d, x in zip(of, sharpest, strict=True))
    labels = tuple(str(x) for x in population["group_label"].values)
    design = _design(json.loads(population.attrs["design"]), responses)
    sd = population["residual_sd"].values
    covariance = population["residual_correlation"].values * sd[:, :, None] * sd[:, None, :]
    groups, dims = sd.shape
    bases, components, covariances = [], [], []
    for g in range(groups):
        loading = population["component_loading"].values[g]
        n = int(np.isfinite(loading[0]).sum())
        every: Bools = np.ones(len(loading), dtype=bool)
        weight = float(np.atleast_1d(population.attrs["sum_of_weights"])[g])
        effective = float(np.atleast_1d(population.attrs["n_effective"])[g])
        bases.append(Basis(loading[:, :n], weight, effective, 1.0, every, np.zeros(len(loading))))
        components.append(population["component_coefficient"].values[g, :n])
        all_of = population["component_coefficient_covariance"].values[g]
        covariances.append(all_of[: n * dims, : n * dims])
    spreads = np.stack(
        [
            np.einsum("cdce->de", v.reshape(b.n, dims, b.n, dims))
            for b, v in zip(bases, covariances, strict=True)
        ]
    )
    coefficients = np.stack([b.loading @ c for b, c in zip(bases, components, strict=True)])
    known = population.get("residual_element_covariance")
    # models that were kept before that was there were corrected to first order
    free = np.array([1.0 if known is None else b.free for b in bases])
    likeliest = covariance - spreads / free[:, None, None]
    model = Conditioning(of, design, labels if groups > 1 else (), coefficients, likeliest)
    with np.errstate(divide="ignore"):
        degrees = 0.5 * (sd / population["residual_sd_error"].values) ** 2 + dims + 3.0
    elements = None if known is None or np.isnan(known.values).any() else known.values
    return Used(model, bases, components, covariances, degrees, elements, spreads)


def _center(likeliest: Floats, spread: Floats, per_person: float) -> Floats:
    """The residual covariance that draws are about, so that values have the abilities' covariance.

    likeliest: S, maximum likelihood's; spread: M, mean covariance of a person's u B over persons;
    per_person: q, coefficients of a domain for each.  With T = M / q, a person's S plus the errors
    of what he answered, and L = S T^-1, drawing coefficients adds q (I - L) T (I - L)' to the
    covariance of values, and lowering S by D takes D - L D L' away.  In the directions in which S
    and T are diagonal, T 1 and S a reliability r, D is q (1 - r) / (1 + r).
    """
    total = spread / per_person
    reliability, directions = eigh(likeliest, total)
    reliability = np.minimum(reliability, 1.0)  # errors that are rough may be too small
    lower = per_person * (1.0 - reliability) / (1.0 + reliability)
    directions = total @ directions
    taken = np.minimum(lower, _MOST_TAKEN * reliability)
    return np.asarray(likeliest - (directions * taken) @ directions.T)


def _those(ids: list[str], responses: Responses) -> list[str]:
    known = set(responses.item_id)
    there = [i for i in ids if i in known]
    if not there:
        raise InputError(f"population: the responses have no item of a domain of {listed(ids, 5)}")
    return there


def _design(said: dict[str, Any], responses: Responses) -> Design:
    known, columns = responses.covariate_names, []
    for c in said["columns"]:
        if c["name"] not in known:
            raise InputError(
                f"population: the responses have no covariate {c['name']!r}; they have "
                f"{', '.join(known) or 'none'}"
            )
        levels, labels = (None if c.get(k) is None else tuple(c[k]) for k in ("levels", "labels"))
        if (labels is None) == (c["name"] in responses.covariate_labels):
            has, had = ("numbers", "labels") if labels else ("labels", "numbers")
            raise InputError(
                f"population: covariate {c['name']!r} has {has} here, and had {had} where the "
                f"model was fitted"
            )
        place = known.index(c["name"])
        text = by_number(responses.covariate_labels.get(c["name"], ()))
        columns.append(Column(c["name"], place, levels, c["fill"], c["lacking"], labels, text))
    middle, half = np.array(said["middle"]), np.array(said["half"])
    return Design(said["formula"], tuple(columns), tuple(said["terms"]), middle, half)


# --- draws ----------------------------------------------------------------------------------------


def drawn(
    of: Used,
    seed: int,
    n: int,
    engine: Engine | None = None,
    item_sets: list[ItemSet] | None = None,
) -> list[Conditioning]:
    """Models that plausible values are drawn under, one each.

    Coefficients are normal about the estimates; residual covariances spread as the errors of all
    their elements say (of more than three domains inverse Wishart, their degrees of freedom such
    that variances spread as their standard errors say).  With ``item_sets``,
    a data set of items for each value, the model is fitted again under them first.
    """
    out = []
    for r in range(n):
        model, components = of.model, of.components
        if item_sets is not None:
            assert engine is not None
            again = refitted(engine, of.model, of.components, of.bases, item_sets[r])
            model, components = again.model, again.components
        rng = keyed_random.generator(seed, "population", r)
        coefficients, covariance = model.coefficients.copy(), model.covariance.copy()
        for g, (basis, c, v) in enumerate(zip(of.bases, components, of.covariances, strict=True)):
            values, vectors = np.linalg.eigh(v)
            normal = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(len(v)))
            coefficients[g] = basis.loading @ (c + normal.reshape(c.shape))
            center = _center(covariance[g], of.spreads[g], basis.n / basis.effective)
            if of.elements is None:
                drawn_s = _covariance(center, of.degrees[g], rng)
            else:
                drawn_s = _spread(center, of.elements[g], rng)
            covariance[g] = repaired(drawn_s)  # domains that a draw makes one are told apart
        out.append(replace(model, coefficients=coefficients, covariance=covariance))
    return out


def _covariance(mean: Floats, degrees: Floats, rng: np.random.Generator) -> Floats:
    """A draw about the mean: of the fewest degrees of freedom, and SDs drawn together by theirs."""
    least = float(np.nanmin(degrees))
    scale = mean * (least - len(mean) - 1.0)
    x = np.atleast_2d(invwishart.rvs(least, scale, random_state=rng))
    change = np.sqrt(np.diag(x) / np.diag(mean))
    narrower = change ** (np.sqrt(least / degrees) - 1.0)
    return np.asarray(x * np.outer(narrower, narrower))


def _spread(mean: Floats, elements: Floats, rng: np.random.Generator) -> Floats:
    """A draw about the mean, whose elements have these covariances.

    R exp(E) R with R the root of the mean and E symmetric and normal, so that to first order R E R
    has what the elements have; E less half the mean of its square keeps the mean.  An inverse
    Wishart distribution has one number for how well variances and correlations are known, and what
    answers say of two domains' difference is much less than what they say of their mean: tables'
    correlations had standard errors of .9 of what they should be.
    """
    values, vectors = np.linalg.eigh(mean)
    back = vectors / np.sqrt(values) @ vectors.T
    i, j = np.triu_indices(len(mean))
    to = back[i][:, i] * back[j][:, j] + np.where(i == j, 0.0, 1.0) * back[i][:, j] * back[j][:, i]
    spread, directions = np.linalg.eigh(to @ elements @ to.T)
    # the symmetric one, which does not depend on how equal eigenvalues are told apart
    root = (directions * np.sqrt(np.clip(spread, 0.0, _MOST_SPREAD**2))) @ directions.T

    def symmetric(x: Floats) -> Floats:
        out = np.zeros((*x.shape[1:], len(mean), len(mean)))
        out[..., i, j] = out[..., j, i] = x.T
        return out

    each = symmetric(root)
    move = symmetric((root @ rng.standard_normal(len(root)))[:, None])[0]
    move -= 0.5 * np.einsum("kde,kef->df", each, each)
    r = vectors * np.sqrt(values) @ vectors.T
    of_move, turned = np.linalg.eigh(move)
    return np.asarray(r @ (turned * np.exp(of_move)) @ turned.T @ r)


def refuse_others(engine: Engine, of: Used, population: xr.Dataset) -> None:
    """Refuse responses that are not those that the model was fitted to: one pass.

    Their log-likelihood tells, in whatever blocks they come; it is flat where EM ends.
    """
    said, here = float(population.attrs["log_likelihood"]), log_likelihood(engine, of.model)
    if engine.n_persons != int(population.attrs["n_persons"]) or abs(
        here - said
    ) > 1e-3 + 1e-10 * abs(said):
        raise InputError(
            f"population: fitted to other responses or items (log-likelihood {said:.3f}, of these "
            f"{here:.3f}); under draws of items it is fitted again, to those: give them, or "
            f"n_item_draws=0"
        )
