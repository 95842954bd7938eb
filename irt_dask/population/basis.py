"""Principal components of the terms of a regression, by group, from one pass over the design.

Columns of one term of the formula (the levels of a category, or of an interaction) are brought to
variances of 1 and products of 0 first.  Scaled each by itself, of K levels the direction in which
the columns agree, the level without a column against all others, has a K-th of the variance of the
other directions: where components are fewer than terms it would be left out first, and plausible
values would draw all differences from that level towards 0.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.engine import Engine
from irt_dask.errors import (
    ApproximationWarning,
    DataWarning,
    EstimationError,
    InputError,
    first_of,
)
from irt_dask.kernels.base import design_products, fixed_point
from irt_dask.population.conditioning import Conditioning
from irt_dask.population.group_sums import by_group, weights_in
from irt_dask.store import Block

#: Smallest eigenvalue of the terms' correlations in whose direction there is anything.
_LEAST = 1e-9
#: Components whose variances differ by less than this share are kept, or left out, together.
_ALIKE = 1e-6
#: A term with more than this of a direction in which there is nothing is not determined.
_SHARE = 1e-4
#: Persons of a term, of a group, and for each coefficient, below which a warning says how few.
_FEW_OF_TERM, _FEW_OF_GROUP, _FEW_OF_EACH = 5, 20, 20
#: Persons for each coefficient, at least.
_LEAST_OF_EACH = 2


@dataclass(frozen=True)
class Basis:
    """Components of a group's terms: from their coefficients to those of the terms."""

    loading: Floats  # (terms, components), the intercept first
    weight: float  # sum of weights
    effective: float  # Kish's number of persons
    share: float  # of the terms' variance that components keep, each term's directions scaled to 1
    determined: Bools  # (terms,)
    persons: Floats  # how many persons tell of each term, (terms,)

    @property
    def n(self) -> int:
        """Number of components, the intercept included."""
        return self.loading.shape[1]

    @property
    def free(self) -> float:
        """Share of the persons' number that coefficients leave, as (n - p) / n of a regression."""
        return 1.0 - self.n / self.effective


def _gram(
    block: Block, model: Conditioning, gram: design_products.Gram,
    powers: design_products.Products, scale: float,
) -> Any:  # fmt: skip
    w, group, out = weights_in(block), model.group(block), {}
    assert block.design is not None
    for g in np.unique(group):
        its = np.flatnonzero(group == g)
        u, own = block.design[its], w[its]
        x = u.astype(np.float64)
        higher = np.stack([own[:, None] * x**k for k in (2, 3, 4)])
        out[int(g)] = (
            gram.sums(u, own),
            np.stack([powers.sums(np.ones((len(u), 1), np.float32), h)[:, 0] for h in higher], 1),
            fixed_point.fixed(np.stack([own, own**2]), scale).sum(axis=1),
        )
    return (out,)


def bases(engine: Engine, model: Conditioning, n_components: int | float | None) -> list[Basis]:
    """The components of each group; errors and warnings name what the persons do not tell."""
    most = max(engine.responses.max_weight or 1.0, 1.0)
    gram, powers = (
        kind(most, engine.n_persons) for kind in (design_products.Gram, design_products.Products)
    )
    scale = fixed_point.scale_for(engine.n_persons * most)
    out, names, together = [], model.labels or ("",), model.design.together()
    for name, (a, b, c) in zip(
        names, by_group(engine, model, _gram, gram, powers, scale), strict=True
    ):
        weight, square = (c / scale).tolist()
        if weight == 0.0:
            raise EstimationError(
                "there is no observed response" if not name else
                f"nobody of group {name!r} has a response; leave the group out (select)"
            )  # fmt: skip
        products = gram.value(a) / weight
        moments = np.stack([powers.value(b[:, k]) for k in range(3)]) / weight
        # with frequencies a row stands for so many persons
        effective = weight**2 / square if engine.sampled else weight
        of = (products, moments, weight, effective)
        out.append(_basis(*of, n_components, name, together))
    _warn(model, out)
    return out


def _basis(
    products: Floats, moments: Floats, weight: float, effective: float,
    n_components: int | float | None, name: str, together: Ints,
) -> Basis:  # fmt: skip
    mean = products[0].copy()
    centred = products - np.outer(mean, mean)
    sd = np.sqrt(np.maximum(np.diag(centred), 0.0))
    varies = sd > 1e-6
    varies[0] = False
    at = np.flatnonzero(varies)
    correlation = centred[np.ix_(at, at)] / np.outer(sd[at], sd[at])
    values, vectors = _components(correlation)
    there = int((values > _LEAST).sum())
    lost = np.zeros(len(mean), dtype=bool)
    lost[at] = (np.abs(vectors[:, there:]) > _SHARE).any(axis=1)
    if n_components is not None:
        white = _apart(correlation, together[at])
        values, turned = _components(white.T @ correlation @ white)
        vectors = white @ turned
    kept = _kept(values[:there], n_components)
    # of one category all directions are alike: rounding would say which of them is left out
    while 0 < kept < there and values[kept] >= (1.0 - _ALIKE) * values[kept - 1]:
        kept += 1
    of = f"group {name!r}: " if name else ""
    if effective < _LEAST_OF_EACH * (kept + 1):
        raise InputError(
            f"{of}{effective:.0f} persons (in effect) for {kept + 1} coefficients of a domain: "
            f"give fewer covariates, or n_components below {int(effective / _LEAST_OF_EACH) - 1}"
        )
    vectors = vectors * np.where(vectors.sum(axis=0) < 0.0, -1.0, 1.0)
    loading = np.zeros((len(mean), kept + 1))
    loading[at, 1:] = vectors[:, :kept] / np.sqrt(values[:kept]) / sd[at, None]
    loading[0] = -mean @ loading
    loading[0, 0] = 1.0
    determined = varies & ~lost
    determined[0] = True
    second, third, fourth = moments
    spread = fourth - 4.0 * mean * third + 6.0 * mean**2 * second - 3.0 * mean**4
    with np.errstate(divide="ignore", invalid="ignore"):
        persons = np.where(varies, effective * sd**4 / spread, 0.0)
    persons[0] = effective
    total = max(float(values[:there].sum()), 1e-300)
    share = float(values[:kept].sum()) / total if at.size else 1.0
    return Basis(loading, weight, effective, share, determined, persons)


def _components(products: Floats) -> tuple[Floats, Floats]:
    """Variances, the largest first, and directions."""
    values, vectors = np.linalg.eigh(products)
    return values[::-1], vectors[:, ::-1]


def _apart(correlation: Floats, together: Ints) -> Floats:
    """Matrix to columns that have variance 1 and no products among those of one term.

    As near to the columns as that goes (the inverse root), 0 in directions in which there is
    nothing.
    """
    out = np.zeros_like(correlation)
    for k in np.unique(together):
        its = np.flatnonzero(together == k)
        values, vectors = np.linalg.eigh(correlation[np.ix_(its, its)])
        root = np.where(values > _LEAST, 1.0 / np.sqrt(np.maximum(values, _LEAST)), 0.0)
        out[np.ix_(its, its)] = (vectors * root) @ vectors.T
    return out


def _kept(values: Floats, n_components: int | float | None) -> int:
    """Number of components that are asked for."""
    if n_components is None:
        return values.size
    if isinstance(n_components, float):
        share = np.cumsum(values) / max(float(values.sum()), 1e-300)
        return min(int(np.searchsorted(share, n_components - 1e-12)) + 1, values.size)
    return min(n_components, values.size)


def _warn(model: Conditioning, found: list[Basis]) -> None:
    """Name groups and terms of which persons tell little or nothing."""
    names = model.labels or ("",)
    few, lost, small, thin = [], [], [], []
    for name, b in zip(names, found, strict=True):
        of = f" of group {name!r}" if name else ""
        terms = list(zip(model.design.terms, b.persons, b.determined, strict=True))
        lost += [f"{t!r}{of}" for t, _, ok in terms if not ok]
        few += [f"{t!r}{of} ({n:.0f})" for t, n, ok in terms if ok and n < _FEW_OF_TERM - 1e-6]
        if b.effective < _FEW_OF_GROUP:
            small.append(f"{name!r} ({b.effective:.0f})" if name else f"{b.effective:.0f}")
        elif b.effective < _FEW_OF_EACH * b.n:
            thin.append(f"{b.effective:.0f} for {b.n}{of}")
    if lost:
        warnings.warn(
            f"{first_of(lost)}: not determined by these persons (the same for all of them, or a "
            f"sum of other terms); what is said of persons is not affected, the coefficients have "
            f"no standard errors (NaN)", DataWarning, stacklevel=5,
        )  # fmt: skip
    if few:
        warnings.warn(
            f"{first_of(few)}: so many persons (in brackets) tell of these terms, below "
            f"{_FEW_OF_TERM}: their standard errors are rough", ApproximationWarning, stacklevel=5,
        )  # fmt: skip
    if small:
        warnings.warn(
            f"group(s) {first_of(small)}: so few persons that means, standard deviations and "
            f"their errors are rough", ApproximationWarning, stacklevel=5,
        )  # fmt: skip
    if thin:
        warnings.warn(
            f"few persons for so many coefficients: {first_of(thin)}; standard deviations of "
            f"plausible values come out too large, correlations too small: see n_components",
            ApproximationWarning,
            stacklevel=5,
        )  # fmt: skip
