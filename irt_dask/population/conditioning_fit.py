"""Which models are fitted, in which order: of up to three domains at once, of more by pairs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.population.basis import Basis
from irt_dask.population.clustered import together
from irt_dask.population.conditioning import MOST_EXACT, Conditioning
from irt_dask.population.conditioning_em import TOLERANCE, Fitted, Scales, climb, log_marginals
from irt_dask.population.conditioning_errors import Errors, errors
from irt_dask.population.group_sums import by_group
from irt_dask.population.units import Units

#: Smallest eigenvalue of a matrix of correlations that pairs give together, at least.
_LEAST_EIGENVALUE = 1e-3
#: Step of coefficients, log SDs and correlations that ends a fit under other items, whose spread is
#: some ten times as large.
_NEARLY = 1e-3


@dataclass(frozen=True)
class Found:
    """A fitted model with its errors; residual covariances as maximum likelihood has them."""

    fitted: Fitted
    bases: list[Basis]
    errors: list[Errors]
    #: Largest change of a correlation where those of pairs were no correlation matrix.
    projected: float = 0.0

    def corrected(self) -> Floats:
        """Residual covariances with what the fitted coefficients took: (groups, domains, domains).

        Maximum likelihood takes the coefficients for known; with p coefficients of n persons whose
        abilities were known, it would divide by n in place of n - p.  Of what answers say of them,
        of covariance T given covariates, p T / n is taken, of which (n - p) / n is the mean
        covariance of the persons' predictions, as fits find it.
        """
        out = self.fitted.model.covariance.copy()
        for g, (b, e) in enumerate(zip(self.bases, self.errors, strict=True)):
            dims = out.shape[1]
            own = e.components.reshape(b.n, dims, b.n, dims)
            out[g] += np.einsum("cdce->de", own) / b.free
        return out


def _zeros(found: list[Basis], dims: int) -> list[Floats]:
    return [np.zeros((b.n, dims)) for b in found]


def fitted(
    engine: Engine, start: Conditioning, of: list[Basis], *, tolerance: float = TOLERANCE,
    units: Units | None = None,
) -> Found:  # fmt: skip
    """The model of highest likelihood, with errors, also of a sample of ``units``."""
    dims = len(start.domains)
    if dims > MOST_EXACT:
        return _by_pairs(engine, start, of, tolerance, units)
    fitted = climb(engine, start, of, _zeros(of, dims), tolerance=tolerance)
    return Found(fitted, of, errors(engine, fitted, of, units))


def refitted(
    engine: Engine, start: Conditioning, components: list[Floats], of: list[Basis], items: ItemSet
) -> Fitted:
    """The model of highest likelihood under other items, from the one under these."""
    domains = tuple(replace(d, items=items.take(d.columns)) for d in start.domains)
    start = replace(start, domains=domains)
    if len(domains) > MOST_EXACT:
        return fitted(engine, start, of, tolerance=_NEARLY).fitted
    return climb(engine, start, of, components, tolerance=_NEARLY)


def log_likelihood(engine: Engine, model: Conditioning) -> float:
    """Of the responses, in one pass; of more domains than are fitted at once the sum over each."""
    dims = len(model.domains)
    if dims > MOST_EXACT:
        return sum(log_likelihood(engine, _some(model, [d])) for d in range(dims))
    scales = Scales(engine, model)
    return float(sum(s[0] for s in by_group(engine, model, log_marginals, scales)) / scales.log)


# --- more domains than posteriors are summed over -------------------------------------------------


def _some(model: Conditioning, which: Sequence[int]) -> Conditioning:
    """The model of some domains."""
    at = list(which)
    return replace(
        model,
        domains=tuple(model.domains[d] for d in at),
        coefficients=np.ascontiguousarray(model.coefficients[:, :, at]),
        covariance=np.ascontiguousarray(model.covariance[:, at][:, :, at]),
    )


def _by_pairs(
    engine: Engine, start: Conditioning, of: list[Basis], tolerance: float, units: Units | None
) -> Found:
    """Coefficients and variances from each domain alone, correlations from pairs of them."""
    dims, groups = len(start.domains), start.n_groups
    alone = []
    for d in range(dims):
        one = climb(engine, _some(start, [d]), of, _zeros(of, 1), tolerance=tolerance)
        alone.append((one, errors(engine, one, of, units)))
    components = [
        np.concatenate([one.components[g] for one, _ in alone], axis=1) for g in range(groups)
    ]
    sd = np.sqrt(np.stack([one.model.covariance[:, 0, 0] for one, _ in alone], axis=1))
    r = np.tile(np.eye(dims), (groups, 1, 1))
    model = replace(
        start,
        coefficients=np.concatenate([one.model.coefficients for one, _ in alone], axis=2),
        covariance=start.covariance * sd[:, :, None] * sd[:, None, :],
    )
    passes, converged = sum(one.passes for one, _ in alone), all(one.converged for one, _ in alone)
    for d, e in itertools.combinations(range(dims), 2):
        own = [c[:, [d, e]] for c in components]
        pair = climb(engine, _some(model, [d, e]), of, own, only_correlations=True)
        s = pair.model.covariance
        r[:, d, e] = r[:, e, d] = s[:, 0, 1] / np.sqrt(s[:, 0, 0] * s[:, 1, 1])
        passes, converged = passes + pair.passes, converged and pair.converged
    proper = np.stack([_nearest_correlation(x) for x in r])
    covariance = proper * sd[:, :, None] * sd[:, None, :]
    value = sum(one.log_likelihood for one, _ in alone)
    fitted = Fitted(
        replace(model, covariance=covariance), components, passes, converged, float(value)
    )
    of_all = [_together([e[g] for _, e in alone], covariance[g], of[g]) for g in range(groups)]
    return Found(fitted, of, of_all, float(np.abs(proper - r).max()))


def _together(alone: list[Errors], covariance: Floats, basis: Basis) -> Errors:
    """Errors of all domains: between two, the covariance that known abilities would give."""
    dims = len(alone)
    components = np.zeros((basis.n, dims, basis.n, dims))
    between = covariance / basis.effective
    for c in range(basis.n):
        components[c, :, c, :] = between
    i, j = np.triu_indices(dims)
    elements = np.full((i.size, i.size), np.nan)
    for d, own in enumerate(alone):
        components[:, d, :, d] = own.components
        at = int(np.flatnonzero((i == d) & (j == d))[0])
        elements[at, at] = own.elements[0, 0]
    n, each = basis.n * dims, [own.units for own in alone if own.units is not None]
    units = together(each, (i, j)) if each else None
    return Errors(components.reshape(n, n), elements, units)


def _nearest_correlation(r: Floats) -> Floats:
    """The nearest matrix of correlations (Higham 2002), its eigenvalues a little above 0."""
    if np.linalg.eigvalsh(r)[0] >= _LEAST_EIGENVALUE:
        return r
    y, correction = r.copy(), np.zeros_like(r)
    for _ in range(1000):
        x = y - correction
        values, vectors = np.linalg.eigh(x)
        projected = (vectors * np.maximum(values, _LEAST_EIGENVALUE)) @ vectors.T
        correction = projected - x
        last, y = y, projected.copy()
        np.fill_diagonal(y, 1.0)
        if np.abs(y - last).max() < 1e-12:
            break
    size = np.sqrt(np.diag(projected))
    return np.asarray(projected / np.outer(size, size))
