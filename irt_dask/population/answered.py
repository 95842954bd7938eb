"""Whether the persons of each group say something of every domain, and of each two together.

Matrix samples give persons some of the domains.  Of a domain that nobody of a group was asked, or
of the correlation of two that nobody was asked both, the likelihood says nothing: the numbers would
be those that the search began at.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np

from irt_dask.engine import Engine
from irt_dask.errors import ApproximationWarning, EstimationError, first_of
from irt_dask.kernels.responses import layouts, response_counts
from irt_dask.population.conditioning import Conditioning
from irt_dask.population.group_sums import ByGroup, by_group
from irt_dask.store import Block

#: Persons with answers to both of two domains below which a warning says how few.
_FEW_OF_BOTH = 20


def _both(block: Block, model: Conditioning) -> tuple[ByGroup]:
    """Persons with answers to both of two domains, and to each, (domains, domains), by group."""
    some = np.stack(
        [
            response_counts.responses_per_person(layouts.columns(block.data, d.columns)) > 0
            for d in model.domains
        ],
        axis=1,
    ).astype(np.int64)
    group = model.group(block)
    return ({int(g): (some[group == g].T @ some[group == g],) for g in np.unique(group)},)


def check_answered(engine: Engine, model: Conditioning) -> None:
    """Refuse what no answer tells of, and warn of what few tell: one pass over the responses."""
    names = [d.name for d in model.domains]
    lacking, apart, few = [], [], []
    for label, (both,) in zip(model.labels or ("",), by_group(engine, model, _both), strict=True):
        of = f" in group {label!r}" if label else ""
        lacking += [f"{name!r}{of}" for name, n in zip(names, np.diag(both), strict=True) if not n]
        for d, e in itertools.combinations(range(len(names)), 2):
            pair, n = f"{names[d]!r} and {names[e]!r}{of}", int(both[d, e])
            if not n:
                apart.append(pair)
            elif n < _FEW_OF_BOTH:
                few.append(f"{pair} ({n})")
    if lacking:
        raise EstimationError(
            f"nobody answered an item of the domain {first_of(lacking)}: nothing is known of "
            f"it there; leave out the domain, or the group (select)"
        )
    if apart:
        raise EstimationError(
            f"nobody answered items of both {first_of(apart)}: nothing tells their residual "
            f"correlation; fit each domain by itself (select its items), or groups together "
            f"(by_group=False) if others answered both"
        )
    if few:
        warnings.warn(
            f"so few persons (in brackets) answered items of both {first_of(few)} that their "
            f"residual correlation is hardly known",
            ApproximationWarning,
            stacklevel=4,
        )
