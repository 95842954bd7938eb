"""The conditioning model by EM, items held: one pass over the data a step.

With e the posterior mean of a person's residuals theta - u' B and R its second moments, a step of
the coefficients of components is c + sum w z e' / W (z their scores, with mean products 1; W the
sum of weights), and the covariance is that of what is left.  Groups have nothing to do with each
other: each is accelerated by itself.  What a pass sums up is in terms of the design, so that
components cost nothing.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.engine import Engine
from irt_dask.engine.anderson import Accelerator
from irt_dask.errors import ConvergenceWarning
from irt_dask.kernels.base import design_products, fixed_point
from irt_dask.population.basis import Basis
from irt_dask.population.conditioning import Conditioning
from irt_dask.population.em import SD_BOUNDS
from irt_dask.population.group_sums import ByGroup, by_group, weights_in
from irt_dask.store import Block

#: Correlations of residuals are within this.
MOST_CORRELATED = 0.98
#: Passes over the data, and the step of coefficients, log SDs and correlations that ends them.
_PASSES, TOLERANCE = 200, 1e-6
#: Bounds of a residual in residual SDs, and of a person's log marginal likelihood.
FURTHEST, _LOG = 256.0, 2.0**24


@dataclass(frozen=True)
class Fitted:
    """A conditioning model, the coefficients of its components, and how they were found."""

    model: Conditioning
    components: list[Floats]  # by group, (components, domains)
    passes: int
    converged: bool
    log_likelihood: float


class Scales:
    """Scales of the sums over persons."""

    def __init__(self, engine: Engine, model: Conditioning) -> None:
        n, most = engine.n_persons, max(engine.responses.max_weight or 1.0, 1.0)
        sd = float(np.sqrt(np.diagonal(model.covariance, axis1=1, axis2=2)).max())
        self.furthest = 2.0 ** np.ceil(np.log2(FURTHEST * sd))
        self.cross = design_products.Products(most * self.furthest, n)
        self.square = fixed_point.scale_for(n * self.furthest**2)
        self.log = fixed_point.scale_for(n * _LOG)


def _sums(block: Block, model: Conditioning, scales: Scales) -> tuple[ByGroup]:
    """Of each group: products of terms and residuals, second moments, log marginals."""
    w = weights_in(block)
    prior, mean, covariance, log_marginal = model.moments(block)
    e = np.clip(mean - prior, -scales.furthest, scales.furthest)
    square = covariance + e[:, :, None] * e[:, None, :]
    group, out = model.group(block), {}
    assert block.design is not None
    for g in np.unique(group):
        its = np.flatnonzero(group == g)
        own = w[its]
        out[int(g)] = (
            scales.cross.sums(block.design[its], own[:, None] * e[its]),
            fixed_point.fixed(own[:, None, None] * square[its], scales.square).sum(axis=0),
            fixed_point.fixed(own * log_marginal[its], scales.log).sum(),
        )
    return (out,)


def log_marginals(block: Block, model: Conditioning, scales: Scales) -> tuple[ByGroup]:
    """The last of these sums alone."""
    own, group = weights_in(block) * model.moments(block)[3], model.group(block)
    fixed = fixed_point.fixed(own, scales.log)
    return ({int(g): (fixed[group == g].sum(),) for g in np.unique(group)},)


# --- what is estimated of a group, as one vector --------------------------------------------------


def _packed(components: Floats, covariance: Floats) -> Floats:
    """Coefficients, log SDs, Fisher's z of correlations."""
    sd = np.sqrt(np.diag(covariance))
    i, j = np.triu_indices(len(sd), 1)
    r = np.clip((covariance / np.outer(sd, sd))[i, j], -MOST_CORRELATED, MOST_CORRELATED)
    log_sd = np.clip(np.log(sd), *np.log(SD_BOUNDS))
    return np.concatenate([components.ravel(), log_sd, np.arctanh(r)])


def _unpacked(x: Floats, n_domains: int) -> tuple[Floats, Floats]:
    n = n_domains * (n_domains - 1) // 2
    at = x.size - n - n_domains
    sd, r = np.exp(x[at : at + n_domains]), np.eye(n_domains)
    i, j = np.triu_indices(n_domains, 1)
    r[i, j] = r[j, i] = np.tanh(x[at + n_domains :])
    return x[:at].reshape(-1, n_domains), r * np.outer(sd, sd)


def _proper(covariance: Floats) -> bool:
    """Whether it is a covariance, and not nearly of lower rank."""
    sd = np.sqrt(np.diag(covariance))
    values = np.linalg.eigvalsh(covariance / np.outer(sd, sd))
    return bool(values[0] > 0.5 * (1.0 - MOST_CORRELATED))


def repaired(covariance: Floats) -> Floats:
    """The covariance with correlations drawn together as far as it must be."""
    sd = np.sqrt(np.diag(covariance))
    off = covariance - np.diag(np.diag(covariance))
    while not _proper(np.diag(sd**2) + off):
        off = 0.98 * off
    return np.asarray(np.diag(sd**2) + off)


def _next(
    x: Floats, basis: Basis, sums: tuple[Any, ...], scales: Scales, n_domains: int, kept: bool
) -> Floats:
    """EM step of a group's vector; with ``kept`` coefficients and SDs stay."""
    cross, square, _ = sums
    components, covariance = _unpacked(x, n_domains)
    move = basis.loading.T @ scales.cross.value(cross) / basis.weight
    left = square / scales.square / basis.weight
    if kept:
        sd = np.sqrt(np.diag(left))
        own = np.sqrt(np.diag(covariance))
        return _packed(components, left / np.outer(sd, sd) * np.outer(own, own))
    return _packed(components + move, repaired(left - move.T @ move))


def with_vectors(
    model: Conditioning, bases: list[Basis], x: list[Floats]
) -> tuple[Conditioning, list[Floats]]:
    """The model of these vectors, and the coefficients of its components."""
    parts = [_unpacked(v, len(model.domains)) for v in x]
    coefficients = np.stack([b.loading @ c for b, (c, _) in zip(bases, parts, strict=True)])
    covariance = np.stack([s for _, s in parts])
    return (
        replace(model, coefficients=coefficients, covariance=covariance),
        [c for c, _ in parts],
    )


def climb(
    engine: Engine, model: Conditioning, bases: list[Basis], components: list[Floats],
    *, only_correlations: bool = False, tolerance: float = TOLERANCE,
) -> Fitted:  # fmt: skip
    """EM from a model with these coefficients, accelerated.

    A proposal that lowers a group's likelihood is taken back, but of ``only_correlations``, whose
    steps do not follow the likelihood: of two domains those alone are found, so that the residuals'
    correlation is what their expected products say.
    """
    n = len(model.domains)
    x = [_packed(c, s) for c, s in zip(components, model.covariance, strict=True)]
    images, last = [v.copy() for v in x], np.full(len(x), -np.inf)
    proposed = np.zeros(len(x), dtype=bool)
    accelerators = [_accelerator(v.size, n) for v in x]
    change = np.inf
    for passes in range(1, _PASSES + 1):
        now, _ = with_vectors(model, bases, x)
        scales = Scales(engine, now)
        found = by_group(engine, now, _sums, scales)
        change = 0.0
        for k, sums in enumerate(found):
            value = float(sums[2]) / scales.log
            fell = value < last[k] - 1e-9 * abs(last[k])
            if proposed[k] and fell and not only_correlations:
                accelerators[k].refused()
                x[k], proposed[k], change = images[k], False, np.inf
                continue
            last[k] = value
            images[k] = _next(x[k], bases[k], sums, scales, n, only_correlations)
            change = max(change, float(np.abs(images[k] - x[k]).max()))
            ahead = accelerators[k].propose(x[k][:, None].copy(), images[k][:, None].copy())[:, 0]
            x[k] = ahead if _proper(_unpacked(ahead, n)[1]) else images[k]
            proposed[k] = True
        engine.progress.update(passes, _PASSES)
        if change < tolerance:
            break
    else:
        warnings.warn(
            f"the conditioning model still changes by {change:.2g} after {_PASSES} passes: these "
            f"responses hardly determine it",
            ConvergenceWarning,
            stacklevel=5,
        )
    final, of_components = with_vectors(model, bases, images)
    return Fitted(final, of_components, passes, change < tolerance, float(last.sum()))


def _accelerator(size: int, n_domains: int) -> Accelerator:
    low, high = np.full((2, size), np.inf) * [[-1.0], [1.0]]
    n = n_domains * (n_domains - 1) // 2
    sds = slice(size - n - n_domains, size - n)
    low[sds], high[sds] = np.log(SD_BOUNDS)
    if n:
        low[size - n :], high[size - n :] = np.arctanh([-MOST_CORRELATED, MOST_CORRELATED])
    return Accelerator(low, high)
