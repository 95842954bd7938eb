"""Sampling covariance of a conditioning model's parameters, items fixed, from one pass.

With e and V the posterior mean and covariance of a person's residuals and K the inverse of their
covariance S, the score is z (K e)' in the coefficients of components, and

    s = [K (V + e e' - S) K], halved on the diagonal,

in the elements of S.  Louis (1982): the information of the coefficients is the sum of
z z' (K - K V K) over persons, and that between them and the elements of S follows from the third
central moments of posteriors; among the few elements of S it is taken from cross-products of
scores, which have the same expectation.  (Of the coefficients they would lose what was fitted: of n
persons and p coefficients a share p / n.)  With sampling weights the covariance is a sandwich whose
middle gets back each person's leverage times his information.  (Of persons drawn in units:
:mod:`irt_dask.population.clustered`.)
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.engine import Engine
from irt_dask.errors import ApproximationWarning, EstimationError
from irt_dask.kernels.base import design_products, fixed_point
from irt_dask.population.basis import Basis
from irt_dask.population.clustered import OfUnits, of_units
from irt_dask.population.conditioning import Conditioning
from irt_dask.population.conditioning_em import Fitted
from irt_dask.population.group_sums import ByGroup, by_group, weights_in
from irt_dask.population.units import Units
from irt_dask.store import Block

#: Bound of a person's score K e next to the root of K: beyond it nobody counts more.
_FURTHEST = 12.0
#: Share of the information of S that is left once coefficients are fitted, at least.
_LEAST_LEFT = 0.1
#: Smallest eigenvalue of an information, scaled to 1 on the diagonal, that can be inverted.
_LEAST_INFORMATION = 1e-12


@dataclass(frozen=True)
class Errors:
    """Covariances of a group's coefficients, and of the elements of its residual covariance."""

    components: Floats  # (components x domains, same), domains fastest
    elements: Floats  # (pairs d <= e, same), in the order of numpy.triu_indices
    units: OfUnits | None = None

    def of_terms(self, loading: Floats) -> Floats:
        """Standard errors of the terms' coefficients, (terms, domains)."""
        p, n = loading.shape
        c = self.components.reshape(n, -1, n, self.components.shape[0] // n)
        diagonal = np.diagonal(c, axis1=1, axis2=3)  # (components, components, domains)
        variance = np.einsum("pc,cfd,pf->pd", loading, diagonal, loading, optimize=True)
        return np.sqrt(np.maximum(variance, 0.0)).reshape(p, -1)


class _Scales:
    def __init__(self, engine: Engine, model: Conditioning) -> None:
        n, most = engine.n_persons, max(engine.responses.max_weight or 1.0, 1.0)
        precision = np.linalg.inv(model.covariance)
        k = float(np.abs(precision).max())
        self.of_ke = e = _FURTHEST * float(np.sqrt(k))
        self.of_elements = s = e**2 + k
        self.information = design_products.Gram(2.0 * k * most, n)
        self.middle = design_products.Gram((e**2 + 2.0 * k) * most**2, n)
        self.cross = design_products.Products(e * s * most**2, n)
        self.square = fixed_point.scale_for(n * s**2 * most**2)


@dataclass(frozen=True)
class _Scores:
    """Of a block's persons."""

    ke: Floats  # K e, (persons, domains)
    elements: Floats  # scores of the elements of S, (persons, pairs)
    information: Floats  # K - K V K, (persons, domains, domains)
    between: Floats  # information between K e and the elements, (persons, domains, pairs)


def _scores(model: Conditioning, block: Block, scales: _Scales) -> _Scores:
    prior, mean, v, third = model.moments_to_third(block)
    group, e = model.group(block), mean - prior
    k = np.linalg.inv(model.covariance)[group]
    ke = np.clip(np.einsum("ide,ie->id", k, e), -scales.of_ke, scales.of_ke)
    kvk = k @ v @ k
    left = np.asarray(k - kvk)
    for axis in (1, 2, 3):  # the third moments of K r
        third = np.moveaxis(np.einsum("ide,ie...->id...", k, np.moveaxis(third, axis, 1)), 1, axis)
    a, b = np.triu_indices(e.shape[1])
    half = np.where(a == b, 0.5, 1.0)
    of_elements = half * (kvk + ke[:, :, None] * ke[:, None, :] - k)[:, a, b]
    between = left[:, :, a] * ke[:, None, b] + left[:, :, b] * ke[:, None, a] - third[:, :, a, b]
    most = scales.of_elements
    of_elements = np.clip(of_elements, -most, most)
    between = np.clip(half * between, -scales.of_ke * most, scales.of_ke * most)
    return _Scores(ke, of_elements, left, between)


def _sums(
    block: Block,
    model: Conditioning,
    scales: _Scales,
    leverage: list[Floats] | None,
    power: int = 1,
) -> tuple[ByGroup]:
    """Sums of each group; with the loadings over root weight for ``leverage``, of scores' squares.

    These with weights to the ``power``: 2 in the middle of a sandwich.
    """
    w = weights_in(block)
    of_all = _scores(model, block, scales)
    ke, s = of_all.ke, of_all.elements
    i, j = np.triu_indices(ke.shape[1])
    group, out = model.group(block), {}
    assert block.design is not None
    for g in np.unique(group):
        its = np.flatnonzero(group == g)
        u, own, of = block.design[its], w[its], of_all.information[its][:, i, j]
        gram, times, both = scales.information, own, of_all.between[its]
        if leverage is not None:
            z = design_products.linear_predictor(u, leverage[g])
            lost = np.clip(own * (z**2).sum(axis=1), 0.0, 1.0)[:, None]
            of = ke[its][:, i] * ke[its][:, j] + lost * of
            gram, times = scales.middle, own**power
            both = ke[its][:, :, None] * s[its][:, None, :]
        squares = s[its][:, :, None] * s[its][:, None, :]
        out[int(g)] = (
            np.stack([gram.sums(u, times * of[:, k]) for k in range(i.size)]),
            scales.cross.sums(u, (times[:, None, None] * both).reshape(len(u), -1)),
            fixed_point.fixed(times[:, None, None] * squares, scales.square).sum(axis=0),
        )
    return (out,)


def _matrix(
    sums: tuple[Any, ...], basis: Basis, scales: _Scales, gram: design_products.Gram, dims: int
) -> Floats:
    """The information, or the middle of a sandwich, in components and elements of S."""
    grams, cross, square = sums
    i, j = np.triu_indices(dims)
    t, n = basis.loading, basis.n * dims
    m = i.size
    out = np.empty((n + m, n + m))
    of = out[:n, :n].reshape(basis.n, dims, basis.n, dims)
    for k in range(m):
        one = t.T @ gram.value(grams[k]) @ t
        of[:, i[k], :, j[k]] = one
        of[:, j[k], :, i[k]] = one
    between = (t.T @ scales.cross.value(cross)).reshape(n, m)
    out[:n, n:], out[n:, :n] = between, between.T
    out[n:, n:] = square / scales.square
    return out


def errors(
    engine: Engine, fitted: Fitted, bases: list[Basis], units: Units | None = None
) -> list[Errors]:
    """Of each group: one pass, two with sampling weights; one more with units.

    A group whose observed information is not positive (of items with guessing, where S ended at a
    bound) has the information of its scores' cross-products, for another pass, and is named.
    """
    model, dims = fitted.model, len(fitted.model.domains)
    scales, out = _Scales(engine, model), []
    leverage = [b.loading / np.sqrt(b.weight) for b in bases]

    @functools.cache
    def squares(power: int) -> list[Floats]:
        sums = by_group(engine, model, _sums, scales, leverage, power)
        pairs = zip(sums, bases, strict=True)
        return [_matrix(x, b, scales, scales.middle, dims) for x, b in pairs]

    indefinite, inverses = [], []
    for g, (sums, basis) in enumerate(
        zip(by_group(engine, model, _sums, scales, None), bases, strict=True)
    ):
        n = basis.n * dims
        information = _matrix(sums, basis, scales, scales.information, dims)
        if not _positive(information[:n, :n]):
            information = squares(1)[g]
            indefinite.append(model.labels[g] if model.labels else "all persons")
        inverse = _inverse(information, n)
        inverses.append(inverse)
        if engine.sampled:
            inverse = inverse @ squares(2)[g] @ inverse
        out.append(Errors(inverse[:n, :n], inverse[n:, n:]))
    if indefinite:
        warnings.warn(
            f"{', '.join(map(repr, indefinite))}: the observed information of the coefficients is "
            f"not positive, as where residual correlations are at their bound; errors are those of "
            f"cross-products of scores, and rough",
            ApproximationWarning,
            stacklevel=5,
        )
    if units is None:
        return out
    scores = functools.partial(_scores, model, scales=scales)
    bound = max(scales.of_ke, scales.of_elements, 1.0)
    of = of_units(engine, model, fitted.components, bases, inverses, units, scores, bound)
    return [replace(e, units=x) for e, x in zip(out, of, strict=True)]


def _positive(information: Floats) -> bool:
    size = np.sqrt(np.maximum(np.diag(information), 1e-300))
    return bool(np.linalg.eigvalsh(information / np.outer(size, size))[0] > _LEAST_INFORMATION)


def _inverse(information: Floats, n: int) -> Floats:
    """Inverse of the information, whose first n parameters are coefficients.

    Where little is left of the information of the elements of S (a correlation at its bound), what
    they have to do with the coefficients is left out: cross-products of few persons cannot say it.
    """
    of_components = _inverse_alone(information[:n, :n])
    own = information[n:, n:]
    left = own - information[n:, :n] @ of_components @ information[:n, n:]
    size = np.sqrt(np.diag(own))
    out = np.zeros_like(information)
    if (
        np.linalg.eigvalsh(left / np.outer(size, size))[0]
        > _LEAST_LEFT * (np.linalg.eigvalsh(own / np.outer(size, size))[0])
    ):
        return _inverse_alone(information)
    out[:n, :n], out[n:, n:] = of_components, _inverse_alone(own)
    return out


def _inverse_alone(information: Floats) -> Floats:
    """Inverse of a positive definite matrix of unlike units."""
    size = np.sqrt(np.maximum(np.diag(information), 1e-300))
    values, vectors = np.linalg.eigh(information / np.outer(size, size))
    if not values[0] > _LEAST_INFORMATION:
        raise EstimationError(
            "the persons' responses do not determine the coefficients of the regression: give "
            "fewer covariates, or n_components"
        )
    return np.asarray((vectors / values) @ vectors.T / np.outer(size, size))
