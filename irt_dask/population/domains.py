"""Domains: abilities that are each measured by items of their own, and their grids."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.grids import FARTHEST
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.engine.cache import keep
from irt_dask.errors import InputError, listed
from irt_dask.items.parameters import has_loadings, item_set, refuse_other_categories
from irt_dask.items.tables import item_tables
from irt_dask.kernels.base.lanes import LANES
from irt_dask.kernels.posterior import person_weights, tables
from irt_dask.kernels.posterior.log_likelihoods import log_likelihoods
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.responses.item_sets import common_sets
from irt_dask.store import Block, Responses
from irt_dask.store.freed_items import freed_of

#: Name of the ability where no domains are given.
ABILITY = "ability"
#: Abilities at which information is looked at: how far, and how far apart.
_FAR, _APART = 20.0, 0.125
#: Spacing of nodes in standard deviations of the sharpest posterior given all other abilities: the
#: error of sums is exp(-2 pi^2), and densities between nodes are cubic in their logarithm.
_SHARE = 1.0
#: Spacings are powers of this, so that rounding of what they follow from changes none.
_STEP = 2.0**0.125
#: ... with so few bits that multiples, and their differences, are exact.
_BITS = 2**12


@dataclass(frozen=True)
class Domain:
    """An ability: its name, which columns of the responses measure it, and their items."""

    name: str
    columns: Ints
    items: ItemSet
    #: Largest information of the items that anybody answered, at any ability.
    sharpest: float = math.nan

    def spacing(self, precision: float) -> float:
        """Distance of nodes that resolves all posteriors, whose prior has at least this precision.

        Of the prior that is the precision given the other abilities.
        """
        h = min(_SHARE / math.sqrt(precision + self.sharpest), 1.0 / self.items.steepest)
        size, exponent = math.frexp(_STEP ** math.floor(math.log(h, _STEP) + 1e-6))
        return math.ldexp(round(size * _BITS) / _BITS, exponent)

    def log_likelihood(self, block: Block, nodes: Floats) -> Floats:
        """(persons, nodes)"""
        data = layouts.columns(block.data, self.columns)
        if nodes.size <= tables.FINE:
            g = item_tables(self.items, nodes)
        else:
            key = ("tables by category", self.items.digest, nodes.tobytes())
            g = keep(key, lambda: tables.tables_by_category(self.items, nodes))
        return log_likelihoods(data, g, person_weights.shared(common_sets(data), g))


def nodes_between(low: float, high: float, h: float) -> Floats:
    """Multiples of h that hold both ends, first and number multiples of LANES."""
    if not max(abs(low), abs(high)) < 100.0 * FARTHEST:
        raise InputError(
            f"abilities between {low:.3g} and {high:.3g}: the items do not say so much"
        )
    first = math.floor(low / h / LANES) * LANES
    n = math.ceil((math.ceil(high / h) + 1 - first) / LANES) * LANES
    return h * np.arange(first, first + n, dtype=np.float64)


def domains_of(
    responses: Responses, items: xr.Dataset, domains: Mapping[str, Sequence[str]] | None
) -> tuple[Domain, ...]:
    """The domains that are asked for, with their items."""
    if has_loadings(items):
        raise InputError(
            "items: they load on several abilities; a population model takes items of one ability "
            "each (domains=)"
        )
    if domains is None:
        asked = {ABILITY: responses.item_id}
    else:
        asked = _checked(responses, _with_freed(domains, responses, items))
    place = {name: k for k, name in enumerate(responses.item_id)}
    out = []
    for name, ids in asked.items():
        columns = np.sort(np.array([place[i] for i in ids], dtype=np.intp))
        own = tuple(responses.item_id[k] for k in columns)
        of = item_set(items, own)
        of_own = [responses.n_categories[k] for k in columns]
        refuse_other_categories(of, of_own, own, "items")
        out.append(Domain(name, columns, of))
    return tuple(out)


def _with_freed(domains: Any, responses: Responses, items: xr.Dataset) -> Any:
    """The domains with what became of their items where they were freed in a group."""
    own, known = freed_of(items), set(responses.item_id)
    if not own or not isinstance(domains, Mapping):
        return domains
    out = {}
    for name, ids in domains.items():
        named = list(map(str, ids))
        more = [i for i, (item, _) in own.items() if item in named and i in known]
        nobody_s = {own[i][0] for i in more} - known  # everybody has one of his group's own
        out[name] = [i for i in named if i not in nobody_s] + [i for i in more if i not in named]
    return out


def _checked(
    responses: Responses, domains: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    if not isinstance(domains, Mapping) or not domains:
        raise InputError(f"domains={domains!r}: give a mapping from names to lists of item ids")
    asked = {str(name): tuple(map(str, ids)) for name, ids in domains.items()}
    known = set(responses.item_id)
    of: dict[str, str] = {}
    for name, ids in asked.items():
        if not ids:
            raise InputError(f"domains: {name!r} has no items")
        unknown = [i for i in ids if i not in known]
        if unknown:
            raise InputError(f"domains: {name!r}: the responses have no item {listed(unknown)}")
        for i in ids:
            if i in of:
                raise InputError(
                    f"domains: item {i!r} is of {of[i]!r} and of {name!r}: each is of one"
                )
            of[i] = name
    without = [i for i in responses.item_id if i not in of]
    if without:
        raise InputError(
            f"domains: of no domain are the items {listed(without)}; name them, or leave them out "
            f"of the responses (select)"
        )
    return asked


def read_domains(path: str | Path) -> dict[str, list[str]]:
    """Domains of a CSV file with columns ``item`` and ``domain``."""
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as CSV: {error}") from error
    lacking = [c for c in ("item", "domain") if c not in table]
    if lacking:
        raise InputError(
            f"{path}: no column is {listed(lacking)}; a table of domains has item and domain"
        )
    out: dict[str, list[str]] = {}
    for line, (item, domain) in enumerate(zip(table["item"], table["domain"], strict=True), 2):
        if not item or not domain:
            raise InputError(f"{path}, line {line}: item {item!r}, domain {domain!r}: one is empty")
        out.setdefault(domain, []).append(item)
    return out


def sharpened(engine: Engine, domains: tuple[Domain, ...]) -> tuple[Domain, ...]:
    """Domains that know how much anybody's items inform: one pass over the responses."""
    looks = [_sharpness(d.items) for d in domains]
    largest = engine.map_reduce(
        _most_informed, [d.columns for d in domains], looks, combine=_larger
    )[0]
    return tuple(
        Domain(d.name, d.columns, d.items, float(x)) for d, x in zip(domains, largest, strict=True)
    )


def _sharpness(items: ItemSet) -> Floats:
    """Of each item at abilities from end to end, (items, abilities)."""
    apart = min(_APART, 0.25 / items.steepest)  # within 1 / a of its difficulty an item informs
    look = np.arange(-_FAR, _FAR + apart, apart)
    return np.stack([items.take(np.array([j])).sharpness(look) for j in range(items.n_items)])


def _most_informed(block: Block, columns: list[Ints], looks: list[Floats]) -> Any:
    seen = (layouts.to_dense(block.data).values >= 0).astype(np.float64)
    return np.array(
        [(seen[:, c] @ x).max(initial=0.0) for c, x in zip(columns, looks, strict=True)]
    )


def _larger(left: Any, right: Any) -> Any:
    return (np.maximum(left[0], right[0]),)
