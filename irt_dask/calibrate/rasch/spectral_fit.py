"""The spectral estimate of each group of items, and what is known of its errors.

Items are *settled* if the responses alone give them finite difficulties: if the counts of pairs
connect them, both ways.  The others were solved by all, or by nobody, who could be compared with
the settled ones; where they are rests on the regularisation, and they get no standard errors.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.rasch import spectral_errors
from irt_dask.calibrate.rasch.item_chain import DenseChain, FlowChain, distribution
from irt_dask.calibrate.shared.start_values import name_some
from irt_dask.engine import Engine
from irt_dask.errors import SparseDataWarning

Chain = DenseChain | FlowChain

#: What nu adds by default to an item's right answers, and to its wrong ones, over all its links:
#: as 1/2 does in log odds, it offsets the bias of the estimate away from 0, and is little enough
#: that intervals need not know of it.
ADDED = 0.5
#: Persons of equal weight that each side of an item must rest on for a standard error.
LEAST_PERSONS = 2.0


@dataclass
class Fit:
    """What is known of each item, NaN where it is not.

    ``bias`` is what a regularisation that was asked for changes, compared with the default's.
    """

    beta: Floats
    settled: Bools
    nu: float
    chosen: bool  # whether nu is the default's
    bias: Floats
    se: Floats
    persons: Floats
    covariance: Floats | None = None
    residual: float = 0.0
    n_products: int = 0
    contrasts: list[tuple[float, float, float]] = field(default_factory=list)


def default_nu(chain: Chain) -> float:
    """Return the nu that adds :data:`ADDED` to each side of an item of mean number of links."""
    degree = chain.degree[chain.degree > 0.0]
    return ADDED / float(degree.mean()) if degree.size else 0.0


def members(label: Ints) -> list[NDArray[np.intp]]:
    """Items of each group of two or more."""
    return [at for c in range(label.max() + 1) if (at := np.flatnonzero(label == c)).size > 1]


def _part(chain: Chain, items: NDArray[np.intp], m: int) -> Chain:
    return chain if items.size == m else chain.only(items)


def fit_groups(
    chain: Chain, label: Ints, chosen: bool, accelerated: bool, with_errors: bool
) -> tuple[Fit, list[tuple[NDArray[np.intp], Chain]]]:
    """Difficulties, of mean 0 over the settled items of each group (over all if none is).

    ``chosen`` says that nu is the default's.  Returns also, for errors, the settled items of each
    group with the chain on them.
    """
    m = label.size
    nan = [np.full(m, np.nan) for _ in range(3)]
    fit = Fit(nan[0], np.zeros(m, dtype=bool), chain.nu, chosen, nan[1], nan[2], np.zeros(m))
    settled_parts = []
    for items in members(label):
        part = _part(chain, items, m)
        settled = np.ones(items.size, dtype=bool) if chain.nu == 0.0 else _settled(part, items)
        inner = items[settled]
        if inner.size < 2:
            fit.beta[items] = _solve(fit, part, items, accelerated)
            continue
        fit.settled[inner] = True
        apart = inner.size < items.size
        if chosen and apart:
            part = _part(chain, inner, m)
            fit.beta[inner] = _solve(fit, part, inner, accelerated)
            _place(chain, fit.beta, items)
            fit.n_products = max(fit.n_products, chain.n_products)
        else:
            fit.beta[items] = _solve(fit, part, items, accelerated)
            fit.beta[items] -= fit.beta[inner].mean()
        fit.bias[inner] = 0.0
        if with_errors:
            least = chain.nu if chosen else min(chain.nu, default_nu(chain))
            if not chosen and (apart or least < chain.nu):
                part = _part(chain, inner, m).at(least)
                fit.bias[inner] = fit.beta[inner] - _solve(fit, part, inner, accelerated)
            settled_parts.append((inner, part))
    return fit, settled_parts


def _settled(part: Chain, items: NDArray[np.intp]) -> Bools:
    found = part.settled()
    return found if isinstance(part, DenseChain) else found[items]


def _solve(fit: Fit, part: Chain, items: NDArray[np.intp], accelerated: bool) -> Floats:
    pi, residual = distribution(part, accelerated)
    beta = np.log(pi if isinstance(part, DenseChain) else pi[items])
    fit.residual = max(fit.residual, residual)
    fit.n_products = part.n_products if isinstance(part, FlowChain) else fit.n_products + 1
    return np.asarray(beta - beta.mean())


def _place(chain: Chain, beta: Floats, items: NDArray[np.intp]) -> None:
    """Place the items of a group that have no difficulty yet by their flows from and to the others.

    Those that nobody answered with one that is placed wait for the next turn.
    """
    while np.isnan(beta[items]).any():
        known = np.isfinite(beta)
        known &= np.isin(np.arange(beta.size), items)
        into = chain.left(np.where(known, np.exp(beta), 0.0))
        out = chain.right(known.astype(float))
        new = items[~known[items] & (out[items] > 0.0)]
        beta[new] = np.log(into[new] / out[new])


# --- standard errors ------------------------------------------------------------------------------


def add_errors(
    engine: Engine, chain: DenseChain, fit: Fit, parts: list[tuple[NDArray[np.intp], Chain]]
) -> None:
    """Covariances of the settled items of each group, NaN where too few persons bear on an item."""
    m = fit.beta.size
    fit.covariance = np.full((m, m), np.nan)
    for items, part in parts:
        assert isinstance(part, DenseChain)
        e = _exponentials(fit, items)
        fit.persons += spectral_errors.effective_persons(engine, e, items)
        middle = spectral_errors.middle(engine, chain.counts, e, items)
        x = spectral_errors.influence(part, e[items])
        fit.covariance[np.ix_(items, items)] = x.T @ middle @ x
    few = fit.persons < LEAST_PERSONS
    fit.covariance[few] = fit.covariance[:, few] = np.nan
    fit.se = np.sqrt(np.maximum(np.diag(fit.covariance), 0.0))


def _exponentials(fit: Fit, items: NDArray[np.intp]) -> Floats:
    """``exp(difficulty)`` without the bias, 0 for other items."""
    e = np.zeros(fit.beta.size)
    e[items] = np.exp(fit.beta[items] - fit.bias[items])
    return e


def add_contrasts(
    engine: Engine,
    fit: Fit,
    parts: list[tuple[NDArray[np.intp], Chain]],
    pairs: list[tuple[int, int]],
) -> None:
    """Differences of difficulty, with standard errors: from the covariance, or each by itself."""
    if not pairs:
        return
    if fit.covariance is None:
        for items, _ in parts:
            e = _exponentials(fit, items)
            fit.persons += spectral_errors.effective_persons(engine, e, items)
    for i, j in pairs:
        difference, bias = fit.beta[i] - fit.beta[j], fit.bias[i] - fit.bias[j]
        variance = np.nan
        if fit.covariance is not None:
            v = fit.covariance
            variance = v[i, i] + v[j, j] - 2.0 * v[i, j]
        elif min(fit.persons[i], fit.persons[j]) >= LEAST_PERSONS:
            items, part = parts[0]
            assert isinstance(part, FlowChain)
            c = np.zeros(fit.beta.size)
            c[[i, j]] = 1.0, -1.0
            variance = spectral_errors.contrast_variance(engine, part, _exponentials(fit, items), c)
        fit.contrasts.append((difference, float(np.sqrt(np.maximum(variance, 0.0))), bias))


# --- what is missing ------------------------------------------------------------------------------


def warn_of_sparse(
    fit: Fit, item_id: tuple[str, ...], contrasted: list[int], *, stacklevel: int = 3
) -> None:
    """Name the items without a finite estimate, and those without a standard error."""
    apart = np.isfinite(fit.beta) & ~fit.settled
    asked = np.ones(apart.size, dtype=bool)
    if fit.covariance is None:
        asked = np.isin(np.arange(apart.size), contrasted)
    few = fit.settled & asked & (fit.persons < LEAST_PERSONS)
    told = []
    if apart.any():
        told.append(
            f"{apart.sum()} item(s) have no finite difficulty, as everyone, or nobody, who "
            f"answered them with the others solved them; the numbers given rest on "
            f"regularization={fit.nu:.3g} alone, without standard errors: "
            f"{name_some([item_id[j] for j in np.flatnonzero(apart)])}"
        )
    if few.any():
        told.append(
            f"{few.sum()} item(s) get no standard error, as fewer than {LEAST_PERSONS:g} persons "
            f"of equal weight were right, or wrong, on them: "
            f"{name_some([item_id[j] for j in np.flatnonzero(few)])}"
        )
    if told:
        warnings.warn(
            f"fit_spectral: {'; '.join(told)}. Collect more responses or remove these items; "
            f"fit_pairwise with all pairs makes more of sparse responses",
            SparseDataWarning,
            stacklevel=stacklevel,
        )
