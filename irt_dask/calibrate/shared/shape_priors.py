"""Priors of what items have beside slopes and intercepts: their asymptotes."""

from __future__ import annotations

import math

import numpy as np

from irt_dask.curves import MODELS
from irt_dask.curves.betas import Betas
from irt_dask.curves.guessing import GUESSING
from irt_dask.errors import InputError
from irt_dask.items.mixture import Mixture

#: A prior that says nothing.
_FLAT_PRIOR = (1.0, 1.0)


def guessing_priors(models: Mixture, given: tuple[float, float] | None) -> Betas:
    """Priors of the models' parameters: guessing has the one that is given."""
    having = [p for p in models.parameters if p.prior]
    if GUESSING not in models.parameters and given not in (None, GUESSING.prior):
        those = [m.name for m in MODELS.values() if GUESSING in m.parameters]
        names = ", ".join(dict.fromkeys(models.names.tolist()))
        raise InputError(
            f"guessing_prior={given!r} needs model={' or '.join(map(repr, those))}, not {names!r}"
        )
    if given is None:
        return Betas.of(*[_FLAT_PRIOR] * models.size)
    if having:
        alpha, beta = given
        if not (math.isfinite(alpha) and math.isfinite(beta) and alpha >= 1.0 and beta >= 1.0):
            raise InputError(
                f"guessing_prior={given!r}: give (alpha, beta), both at least 1, or None"
            )
    pairs = dict.fromkeys(models.parameters, _FLAT_PRIOR)
    pairs |= {p: p.prior for p in having if p.prior is not None}
    if GUESSING in pairs:
        pairs[GUESSING] = (float(given[0]), float(given[1]))
    alpha, beta = (models.table(of, 1.0) for of in (lambda p: pairs[p][0], lambda p: pairs[p][1]))
    return Betas(alpha, beta)


def in_words(models: Mixture, betas: Betas) -> dict[str, str]:
    """Attributes that name the priors of asymptotes, where there are any."""
    out = {}
    for p in (p for p in models.parameters if p.prior):
        where = models.table(p.__eq__, missing=False)
        alpha, beta = (
            float(np.broadcast_to(of, where.shape)[where][0]) for of in (betas.alpha, betas.beta)
        )
        flat = alpha == beta == 1.0
        out[f"{p.variable.removeprefix('item_')}_prior"] = (
            "none" if flat else f"Beta({alpha:g}, {beta:g})"
        )
    return out
