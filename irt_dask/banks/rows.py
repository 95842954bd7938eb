"""Items one by one, as tables hold them, and the bank that they make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.curves import MODELS, MORE_PARAMETERS
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import dataset
from irt_dask.items.described import described
from irt_dask.items.mixture import Mixture
from irt_dask.items.parameters import OF_MODELS, item_set
from irt_dask.variables import unique_ids

#: Variables of a number an item, and of one a step or category, by the letter of their columns.
OF_ITEMS = {
    "a": "item_discrimination",
    "b": "item_difficulty",
    **{p.letter: p.variable for p in MORE_PARAMETERS},
    "d": "item_intercept",
}
OF_STEPS = {
    "d": "item_step_intercept",
    "b": "item_step_difficulty",
    "s": "item_category_score",
}
#: Mean and SD of ability on the scale of a table.
Ability = tuple[float, float]
STANDARD: Ability = (0.0, 1.0)


@dataclass(frozen=True)
class Row:
    """An item: its parameters in the package's convention, and their standard errors by column."""

    item: Any
    #: "" for two categories: the simplest model that has the parameters.
    model: str
    #: d_1 to d_{K-1}.
    steps: Sequence[float]
    #: Discrimination; of nominal items s_1 to s_{K-1} instead.
    slope: float = math.nan
    scores: Sequence[float] = ()
    #: Asymptotes by letter, where the item has them.
    more: dict[str, float] = field(default_factory=dict)
    #: By column: "a", "d2".
    errors: dict[str, float] = field(default_factory=dict)
    #: Number of each category, -1 of an empty one; nothing: there is none.
    category_map: tuple[int, ...] = ()

    @property
    def n_categories(self) -> int:
        """K."""
        return len(self.steps) + 1

    @property
    def several(self) -> bool:
        """Whether it takes the variables of items of any number of categories to say it."""
        return self.n_categories > 2 or self.model == "nominal"


def bank_of(
    rows: Sequence[Row], path: object, *, ability: Ability = STANDARD,
    more: Mapping[str, Any] | None = None, attrs: Mapping[str, Any],
) -> xr.Dataset:  # fmt: skip
    """Return the items as a Dataset, on the scale on which ``ability`` becomes N(0, 1)."""
    ids = unique_ids((r.item for r in rows), str(path))
    given = _given(rows)
    found = item_set(dataset(given, item_id=ids, attrs={}), ids, what=str(path))
    found = found.rescaled(*ability)
    data = {name: value.T for name, (value, _) in described(*Mixture.of_items(found)).items()}
    data |= {p.variable: found.column(p) for p in MORE_PARAMETERS if p.variable in given}
    names = _names(rows, found)
    if any(r.several for r in rows):
        data |= {"item_model": names} | {n: given[n] for n in OF_MODELS[1:] if n in given}
    data |= _errors(rows, data, ability) | dict(more or {})
    attrs = {"method": "item bank", "model": _model(names, found), **attrs}
    return dataset(data, item_id=ids, attrs=attrs)


def _given(rows: Sequence[Row]) -> dict[str, Any]:
    """Variables that say what the items are, all others being functions of them."""
    most = max(r.n_categories for r in rows)
    data: dict[str, Any] = {
        "item_n_categories": np.array([r.n_categories for r in rows]),
        "item_discrimination": np.array([r.slope for r in rows]),
        "item_intercept": np.array([r.steps[0] for r in rows]),  # of two categories
        "item_step_intercept": _padded([r.steps for r in rows], most - 1),
    }
    if any(r.several for r in rows):
        data["item_model"] = np.array([r.model or "2pl" for r in rows])
    if any(r.scores for r in rows):
        scores = [[0.0, *r.scores] if r.scores else () for r in rows]
        data["item_category_score"] = _padded(scores, most)
    if any(r.category_map for r in rows):
        maps = [r.category_map or range(r.n_categories) for r in rows]
        data["item_category_map"] = _padded(maps, most, -1.0).astype(np.int64)
    for p in MORE_PARAMETERS:
        values = np.array([r.more.get(p.letter, p.neutral) for r in rows])
        having = {m.name for m in MODELS.values() if p in m.parameters}
        if (values != p.neutral).any() or any(r.model in having for r in rows):
            data[p.variable] = values
    return data


def _padded(values: Sequence[Sequence[float]], size: int, beyond: float = np.nan) -> Floats:
    out = np.full((len(values), size), beyond)
    for row, value in zip(out, values, strict=True):
        row[: len(value)] = value
    return out


def _names(rows: Sequence[Row], found: ItemSet) -> Any:
    """Name of each item's model: as given where that has its parameters, else the simplest."""
    names = np.array([r.model for r in rows], dtype=object)
    for g in found.groups:
        for j in g.at:
            named = MODELS.get(names[j])
            lacks = named is not None and not {*g.model.parameters} <= {*named.parameters}
            if not names[j] or lacks:
                names[j] = g.model.name
    return names.astype(str)


def _model(names: Any, found: ItemSet) -> str:
    """What ``attrs["model"]`` of a fit of these items says."""
    of_two = dict.fromkeys(names[found.n_categories == 2])
    of_more = dict.fromkeys(names[found.n_categories > 2])
    if len({**of_two, **of_more}) == 1:
        return str(names[0])
    if len(of_two) == len(of_more) == 1:
        return f"{next(iter(of_two))}+{next(iter(of_more))}"
    return "by item"


def _errors(rows: Sequence[Row], data: dict[str, Any], ability: Ability) -> dict[str, Floats]:
    """Standard errors on the new scale, mean and SD of ability taken as known.

    Those of intercepts need a covariance if the mean moves, and are left out then.
    """
    mean, sd = ability
    factor = {"a": sd, "s": sd, "b": 1.0 / sd, "d": 1.0 if mean == 0.0 else np.nan}
    out: dict[str, Floats] = {}
    for letter, name in OF_ITEMS.items():
        if name in data and any(letter in r.errors for r in rows):
            values = np.array([r.errors.get(letter, np.nan) for r in rows])
            out[f"{name}_se"] = values * factor.get(letter, 1.0)
    for letter, name in OF_STEPS.items():
        own = {f"{letter}{k}" for k in range(1, max(r.n_categories for r in rows))}
        if name not in data or not any(own & r.errors.keys() for r in rows):
            continue
        values = np.full(data[name].shape, np.nan)
        first = letter != "s"  # scores begin with that of category 0, which is 0
        for row, of in zip(rows, values, strict=True):
            for k in range(1, row.n_categories):
                of[k - first] = row.errors.get(f"{letter}{k}", np.nan)
            if not row.several and first:
                of[0] = row.errors.get(letter, np.nan)
        out[f"{name}_se"] = values * factor[letter]
    return {n: v for n, v in out.items() if np.isfinite(v).any()}
