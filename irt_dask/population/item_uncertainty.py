"""What a conditioning model's estimates vary by because items are not known, from draws of items.

The model is fitted again under each draw; with m of them (1 + 1 / m) times the variance between the
fits adds to the variances of the estimates, as for any parameters that are imputed (Rubin 1987).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.population.conditioning_fit import Found, refitted


@dataclass(frozen=True)
class Between:
    """Variances between fits."""

    coefficient: Floats  # of the terms, (groups, terms, domains)
    mean: Floats  # (groups, domains)
    sd: Floats  # of residuals, (groups, domains)
    correlation: Floats  # of residuals, (groups, domains, domains)


def between(engine: Engine, found: Found, sets: list[ItemSet]) -> Between:
    """Of the model fitted again under each of these items: some passes a set."""
    model, components = found.fitted.model, found.fitted.components
    original, added = model.design.original(), found.corrected() - model.covariance
    fits: list[list[Floats]] = [[], [], [], []]
    for items in sets:
        again = refitted(engine, model, components, found.bases, items)
        covariance = again.model.covariance + added
        sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        terms = [
            original @ b.loading @ c for b, c in zip(found.bases, again.components, strict=True)
        ]
        fits[0].append(np.stack(terms))
        fits[1].append(np.stack([c[0] for c in again.components]))
        fits[2].append(sd)
        fits[3].append(covariance / sd[:, :, None] / sd[:, None, :])
    variances = [np.var(np.stack(x), axis=0, ddof=1) * (1.0 + 1.0 / len(sets)) for x in fits]
    return Between(*variances)
