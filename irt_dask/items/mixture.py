"""Models of the items of a test: one for all of them, or different ones.

Parameters of all items are one array (parameters, items), padded to the model that has most: what
an item's model lacks is 0, and is never estimated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves import FAMILIES, MODELS, ItemModel, Parameter, check_model, model_named
from irt_dask.curves.guessing import GUESSING
from irt_dask.curves.item_set import Group, ItemSet
from irt_dask.errors import InputError
from irt_dask.variables import identifier


class Part(NamedTuple):
    """Items of one model, by their places, and the block that shifts of steps are common to."""

    model: ItemModel
    at: Ints
    block: str = ""


@dataclass(frozen=True)
class Mixture:
    """Models of items; every item is in one part."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, model: ItemModel, n_items: int) -> Mixture:
        """One model for all items."""
        return cls((Part(model, np.arange(n_items)),))

    @classmethod
    def of_items(cls, items: ItemSet) -> tuple[Mixture, Floats]:
        """Models of some items, and their parameters."""
        models = cls(tuple(Part(g.model, g.at) for g in items.groups))
        x = np.zeros((models.size, models.n_items))
        for g in items.groups:
            x[: len(g.x), g.at] = g.x
        return models, x

    @functools.cached_property
    def n_items(self) -> int:
        """Number of items."""
        return sum(p.at.size for p in self.parts)

    @functools.cached_property
    def size(self) -> int:
        """Parameters of the model that has most."""
        return max(len(p.model.parameters) for p in self.parts)

    @functools.cached_property
    def n_categories(self) -> Ints:
        """Categories of each item."""
        out = np.empty(self.n_items, dtype=np.int64)
        for p in self.parts:
            out[p.at] = p.model.n_categories
        return out

    @functools.cached_property
    def category_map(self) -> Ints:
        """Numbers of categories, (items, categories); -1: empty ones, and beyond an item's."""
        out = np.full((self.n_items, int(self.n_categories.max())), -1)
        for p in self.parts:
            out[p.at, : p.model.n_categories] = p.model.category_map
        return out

    @functools.cached_property
    def empty(self) -> Bools:
        """Categories of the items that have P = 0, (items, categories)."""
        own = np.arange(self.category_map.shape[1]) < self.n_categories[:, None]
        return np.asarray(own & (self.category_map < 0))

    def mapped(self, category_map: Ints) -> Mixture:
        """The same models where the numbers of the categories are these."""
        found: dict[tuple[int, ...], list[int]] = {}
        for i, p in enumerate(self.parts):
            for j in p.at:
                own = tuple(category_map[j, : p.model.n_categories].tolist())
                found.setdefault((i, *own), []).append(int(j))
        parts = []
        for (i, *numbers), at in found.items():
            model, block, own = self.parts[i].model, self.parts[i].block, tuple(numbers)
            if own != model.category_map:
                model = model_named(model.name, len(own), own)
            parts.append(Part(model, np.array(at), block))
        return Mixture(tuple(parts))

    @property
    def only(self) -> ItemModel | None:
        """The model of all items, if it is one."""
        return self.parts[0].model if len(self.parts) == 1 else None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters that some items have."""
        return tuple(dict.fromkeys(q for p in self.parts for q in p.model.parameters))

    @property
    def names(self) -> Any:
        """Name of each item's model, (items,)."""
        out = np.empty(self.n_items, dtype=object)
        for p in self.parts:
            out[p.at] = p.model.name
        return out.astype(str)

    def take(self, items: Sequence[int]) -> Mixture:
        """Models of some of the items, in that order."""
        place = np.full(self.n_items, -1)
        place[np.asarray(items)] = np.arange(len(items))
        kept = (p._replace(at=place[p.at[place[p.at] >= 0]]) for p in self.parts)
        return Mixture(tuple(p for p in kept if p.at.size))

    def table(self, of: Callable[[Parameter], Any], missing: Any = 0.0) -> Any:
        """Array (parameters, items) of what is said of each parameter."""
        out = np.full((self.size, self.n_items), missing)
        for p in self.parts:
            for k, parameter in enumerate(p.model.parameters):
                out[k, p.at] = of(parameter)
        return out

    @functools.cached_property
    def has(self) -> Bools:
        """Parameters that items have, (parameters, items)."""
        return np.asarray(self.table(lambda _: True, missing=False))

    @functools.cached_property
    def of_all(self) -> Ints:
        """Number of a parameter that items share, -1 for their own; (parameters, items).

        Slopes are common to all models that share them; shifts of steps to the items of a block
        with the same categories.
        """
        out = np.full((self.size, self.n_items), -1)
        known: dict[Any, int] = {}
        for p in self.parts:
            for k, parameter in enumerate(p.model.parameters):
                if parameter.letter in p.model.shared:
                    of_steps = (p.block, p.model.category_map) if parameter.step else ()
                    out[k, p.at] = known.setdefault((parameter, of_steps), len(known))
        return out

    @functools.cached_property
    def shares(self) -> bool:
        """Whether items share parameters."""
        return any(p.model.shared for p in self.parts)

    @functools.cached_property
    def first_of(self) -> Ints:
        """The first item with the same parameter, itself where it is its own; as ``of_all``."""
        out = np.tile(np.arange(self.n_items), (self.size, 1))
        for k in np.unique(self.of_all[self.of_all >= 0]):
            at = self.of_all == k
            out[at] = np.flatnonzero(at.any(axis=0))[0]
        return out

    @functools.cached_property
    def once(self) -> Bools:
        """Parameters that items have, those that are shared of the first item alone."""
        return np.asarray(self.has & (self.first_of == np.arange(self.n_items)))

    def tied(self, x: Floats) -> Floats:
        """Numbers (..., parameters, items), those that are shared as the first item has them."""
        return x[..., np.arange(self.size)[:, None], self.first_of] if self.shares else x

    @functools.cached_property
    def apart(self) -> Mixture:
        """Models with the same curves of items that share nothing."""
        names = {"1pl": "2pl", "pcm": "gpcm", "rating": "gpcm"}
        return Mixture(tuple(
            p._replace(model=model_named(names[p.model.name], p.model.n_categories), block="")
            if p.model.shared else p
            for p in self.parts
        ))  # fmt: skip

    def item_set(self, x: Floats) -> ItemSet:
        """The items of these parameters."""
        return ItemSet(tuple(Group(p.model, p.at, self.own(p, x)) for p in self.parts))

    def own(self, part: Part, x: Floats) -> Floats:
        """Parameters of a part's items, without what is padded."""
        return x[: len(part.model.parameters), part.at]

    def in_common(self, counts: Ints) -> Ints:
        """Persons by category, (items, categories); of common steps those of all such items.

        Where steps have no parameters no category is without persons.
        """
        out = counts.copy()
        for p in self.parts:
            if p.model.name == "rating":
                out[p.at] = counts[p.at].sum(axis=0)
            if p.model.all_categories:
                out[p.at, : p.model.n_categories] = np.maximum(
                    counts[p.at, : p.model.n_categories], 1
                )
        return out

    def rescaled(self, x: Floats, mean: float, sd: float) -> Floats:
        """Parameters for the ability ``(theta - mean) / sd``."""
        out = np.zeros_like(x)
        for p in self.parts:
            out[: len(p.model.parameters), p.at] = p.model.rescaling(mean, sd) @ self.own(p, x)
        return out

    def valid(self, x: Floats) -> bool:
        """Whether all parameters are finite and describe items."""
        finite = bool(np.isfinite(x).all())
        return finite and all(bool(p.model.valid(self.own(p, x)).all()) for p in self.parts)


# --- what users ask for ---------------------------------------------------------------------------


def mixture_named(
    model: str | Mapping[str, str], item_id: Sequence[str], n_categories: Sequence[int]
) -> Mixture:
    """Models by one name, by two ("3pl+gpcm": of two categories, of more), or by item.

    A mapping names every item; "rating:block" are the items of a block, whose steps are common.
    """
    names = _of_items(model, item_id, n_categories)
    found: dict[tuple[str, str, int], list[int]] = {}
    for j, (name, k) in enumerate(zip(names, n_categories, strict=True)):
        base, _, block = name.partition(":")
        if k == 2 and base in FAMILIES:  # the same curves, with formulas of their own
            base = model_named(base).of_two or base
        if k > 2 and base in MODELS:
            _refuse_two(model, base, item_id, names, n_categories)
        found.setdefault((base, block if base == "rating" else "", k), []).append(j)
    return Mixture(
        tuple(
            Part(model_named(name, k), np.array(at), block)
            for (name, block, k), at in found.items()
        )
    )


def names_of(model: str | Mapping[str, str]) -> list[str]:
    """The names that a choice of models holds, of blocks too."""
    names = model.values() if isinstance(model, Mapping) else str(model).split("+", 1)
    return [*dict.fromkeys(str(name) for name in names)]


def check_names(model: str | Mapping[str, str]) -> None:
    """Stop at names of models that there are not, whatever the items."""
    if not isinstance(model, str | Mapping):
        raise InputError(
            f"model= is a {type(model).__name__}; give a name, two as in '2pl+graded', or a dict "
            f"of item_id to name, as of a list dict(zip(responses.item_id, names))"
        )
    names = names_of(model)
    if not isinstance(model, Mapping) and len(names) > 1:
        check_model(names[1], tuple(FAMILIES))
    for name in names:
        base, colon, block = name.partition(":")
        check_model(base, (*MODELS, *FAMILIES))
        if colon and (base != "rating" or not block):
            raise InputError(f"model={name!r}: only rating has blocks, as rating:NAME")


def has_guessing(model: str | Mapping[str, str]) -> bool:
    """Whether some of the models named have a guessing parameter."""
    names = model.values() if isinstance(model, Mapping) else str(model).split("+")
    return any(GUESSING in MODELS[name].parameters for name in names if name in MODELS)


def _of_items(model: Any, item_id: Sequence[str], n_categories: Sequence[int]) -> list[str]:
    """Name of each item's model, checked."""
    check_names(model)
    if isinstance(model, Mapping):
        given = {identifier(i): name for i, name in model.items()}
        if unknown := sorted(given.keys() - set(item_id)):
            raise InputError(
                f"model= names {len(unknown)} item(s) that the responses do not have: "
                f"{', '.join(unknown[:10])}"
            )
        if lacking := [i for i in item_id if i not in given]:
            raise InputError(
                f"model= names no model for {len(lacking)} item(s): {', '.join(lacking[:10])}"
            )
        return [str(given[i]) for i in item_id]
    of_two, plus, of_more = str(model).partition("+")
    return [of_more if plus and k > 2 else of_two for k in n_categories]


def _refuse_two(
    model: Any, name: str, item_id: Sequence[str], names: Sequence[str], n_categories: Sequence[int]
) -> None:
    those = [
        f"{i} ({k})"
        for i, n, k in zip(item_id, names, n_categories, strict=True)
        if k > 2 and n == name
    ]
    remedy = f"model='{name}+gpcm' or '{name}+graded'" if isinstance(model, str) else "'gpcm'"
    raise InputError(
        f"model={name!r} is for items of two categories, and {len(those)} have more: "
        f"{', '.join(those[:5])}{' ...' * (len(those) > 5)}; give {remedy}, or another of "
        f"{', '.join(FAMILIES)}"
    )
