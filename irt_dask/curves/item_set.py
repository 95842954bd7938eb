"""The items of a test, grouped by model, as one set of curves."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves import model_named
from irt_dask.curves.base import ItemModel, Parameter

#: Numbers that a table of some items at a time holds, at most.
_CHUNK = 1 << 20


class Group(NamedTuple):
    """Items of one model: their places in the test, and parameters (parameters, items)."""

    model: ItemModel
    at: Ints
    x: Floats


@dataclass(frozen=True, eq=False)
class ItemSet:
    """Items by model.  Tables are ragged: category k of item j has row ``first[j] + k``."""

    groups: tuple[Group, ...]

    @classmethod
    def of(cls, name: str, *parameters: Floats, n_categories: int = 2) -> ItemSet:
        """Items of one model, by its parameters in their order."""
        x = np.stack([np.asarray(p, dtype=float) for p in parameters])
        return cls((Group(model_named(name, n_categories), np.arange(x.shape[1]), x),))

    @property
    def n_items(self) -> int:
        """Number of items."""
        return sum(g.at.size for g in self.groups)

    @functools.cached_property
    def n_categories(self) -> Ints:
        """Categories of each item."""
        out = np.empty(self.n_items, dtype=np.int64)
        for g in self.groups:
            out[g.at] = g.model.n_categories
        return out

    @functools.cached_property
    def of_two(self) -> bool:
        """Whether every item has two categories."""
        return all(g.model.n_categories == 2 for g in self.groups)

    @functools.cached_property
    def first(self) -> Ints:
        """First row of each item, and the number of rows."""
        return np.concatenate([[0], np.cumsum(self.n_categories)])

    @functools.cached_property
    def empty(self) -> Bools:
        """Rows of categories that have P = 0."""
        out = np.zeros(self.first[-1], dtype=bool)
        for g in self.groups:
            out[self._rows(g)] = np.array(g.model.category_map) < 0
        return out

    @property
    def ends(self) -> tuple[Ints, Ints]:
        """Lowest and highest code of each item that has P > 0, (items,)."""
        there = np.flatnonzero(~self.empty)
        return (
            there[np.searchsorted(there, self.first[:-1])] - self.first[:-1],
            there[np.searchsorted(there, self.first[1:]) - 1] - self.first[:-1],
        )

    @functools.cached_property
    def digest(self) -> str:
        """Identity of the items."""
        out = hashlib.sha256()
        for g in self.groups:
            out.update(f"{g.model.name} {g.x.shape}".encode())
            if -1 in g.model.category_map:
                out.update(repr(g.model.category_map).encode())
            out.update(np.ascontiguousarray(g.at).tobytes())
            out.update(np.ascontiguousarray(g.x).tobytes())
        return out.hexdigest()

    def column(self, parameter: Parameter) -> Floats:
        """One parameter of all items; its neutral value where a model does not have it."""
        out = np.full(self.n_items, np.nan if parameter.neutral is None else parameter.neutral)
        for g in self.groups:
            if parameter in g.model.parameters:
                out[g.at] = g.x[g.model.parameters.index(parameter)]
        return out

    def slope(self) -> Floats:
        """Discrimination of each item."""
        out = np.empty(self.n_items)
        for g in self.groups:
            out[g.at] = g.model.slope(g.x)[0]
        return out

    def step_difficulties(self) -> Floats:
        """Those of all steps of all items, item after item; an empty category has none."""
        out, first = (
            np.empty(self.first[-1] - self.n_items),
            self.first - np.arange(self.n_items + 1),
        )
        for g in self.groups:
            steps = g.model.step_difficulties(g.x)[0]
            out[first[g.at] + np.arange(len(steps))[:, None]] = steps
        return out[~np.isnan(out)]

    def expected(self, nodes: Floats) -> Floats:
        """Expected score of each item, (items, nodes); P of the higher of two categories."""
        score = np.arange(self.first[-1]) - np.repeat(self.first[:-1], self.n_categories)
        p = np.exp(self.log_p(nodes))
        p *= score[:, None]
        return np.asarray(np.add.reduceat(p, self.first[:-1], axis=0))

    def difficulty(self) -> Floats:
        """Ability at the middle of each item."""
        out = np.empty(self.n_items)
        for g in self.groups:
            out[g.at] = g.model.difficulty(g.x)[0]
        return out

    def floor(self) -> Floats:
        """Probability of the highest category at the end of abilities that have it least."""
        out = np.empty(self.n_items)
        for g in self.groups:
            out[g.at] = g.model.floor(g.x)
        return out

    def rescaled(self, mean: float, sd: float) -> ItemSet:
        """The same items for the ability ``(theta - mean) / sd``."""
        if (mean, sd) == (0.0, 1.0):
            return self
        return ItemSet(tuple(g._replace(x=g.model.rescaling(mean, sd) @ g.x) for g in self.groups))

    def take(self, items: NDArray[np.integer]) -> ItemSet:
        """Some of the items, in that order."""
        place = np.full(self.n_items, -1)
        place[items] = np.arange(len(items))
        kept = []
        for g in self.groups:
            inside = place[g.at] >= 0
            if inside.any():
                kept.append(Group(g.model, place[g.at[inside]], g.x[:, inside]))
        return ItemSet(tuple(kept))

    def _parts(self, n_nodes: int) -> Iterator[Group]:
        """Groups, cut so that a table of one is not large."""
        for g in self.groups:
            size = max(1, 2 * _CHUNK // (max(n_nodes, 1) * g.model.n_categories))
            for k in range(0, g.at.size, size):
                yield Group(g.model, g.at[k : k + size], g.x[:, k : k + size])

    def _rows(self, g: Group) -> Ints:
        return self.first[g.at][:, None] + np.arange(g.model.n_categories)

    # --- curves ---------------------------------------------------------------------------------

    def log_p(self, nodes: Floats) -> Floats:
        """Log probability of each category, (rows, nodes)."""
        out = np.empty((self.first[-1], nodes.size))
        for g in self._parts(nodes.size):
            out[self._rows(g)] = g.model.log_p(g.x, nodes)
        return out

    def by_ability(self, nodes: Floats) -> tuple[Floats, Floats]:
        """First and second derivative of ``log_p`` by ability, (rows, nodes)."""
        first, second = np.empty((2, self.first[-1], nodes.size))
        for g in self._parts(nodes.size):
            first[self._rows(g)], second[self._rows(g)] = g.model.by_ability(g.x, nodes)
        return first, second

    def by_parameter(self, nodes: Floats, n: int) -> Floats:
        """Derivatives of ``log_p`` by the first ``n`` parameters, (n, rows, nodes); else 0."""
        out = np.zeros((n, self.first[-1], nodes.size))
        for g in self._parts(nodes.size):
            found = g.model.by_parameter(g.x, nodes)[:n]
            out[: len(found), self._rows(g)] = found
        return out

    def information(self, nodes: Floats) -> Floats:
        """Fisher information of each item, (items, nodes)."""
        out = np.empty((self.n_items, nodes.size))
        for g in self._parts(nodes.size):
            out[g.at] = g.model.information(g.x, nodes)
        return out

    def total_information(self, nodes: Floats) -> Floats:
        """Fisher information of all items together, (nodes,)."""
        return sum(
            (g.model.information(g.x, nodes).sum(axis=0) for g in self._parts(nodes.size)),
            np.zeros(nodes.size),
        )

    def sharpness(self, nodes: Floats) -> Floats:
        """Largest curvature that responses to all items give a log posterior, (nodes,)."""
        return sum(
            (g.model.sharpness(g.x, nodes).sum(axis=0) for g in self._parts(nodes.size)),
            np.zeros(nodes.size),
        )

    def sharpness_of(self, sets: Bools, nodes: Floats) -> Floats:
        """The same of sets of items, (sets, items): (sets, nodes)."""
        each = np.empty((self.n_items, nodes.size))
        for g in self._parts(nodes.size):
            each[g.at] = g.model.sharpness(g.x, nodes)
        return sets.astype(float) @ each

    @property
    def steepness(self) -> Floats:
        """Slope of each item, (items,), as its model says."""
        out = np.empty(self.n_items)
        for g in self.groups:
            out[g.at] = g.model.steepness(g.x)
        return out

    @property
    def steepest(self) -> float:
        """Slope of the steepest item."""
        return float(self.steepness.max())

    def extreme(self, nodes: Floats, highest: bool) -> tuple[Floats, Floats]:
        """Log-likelihood of the highest (lowest) category in all items; its slope; (nodes,)."""
        value, slope = np.zeros((2, nodes.size))
        for g in self._parts(nodes.size):
            k = g.model.ends(g.x)[highest][:, None, None]
            value += np.take_along_axis(g.model.log_p(g.x, nodes), k, axis=1).sum(axis=(0, 1))
            first = g.model.by_ability(g.x, nodes)[0]
            slope += np.take_along_axis(first, k, axis=1).sum(axis=(0, 1))
        return value, slope

    def logit_at(self, bound: float) -> tuple[str, float]:
        """The item whose logit is largest within -bound and bound, in words, and that logit."""
        found = ("", -np.inf)
        for g in self._parts(2):
            far = g.model.farthest(g.x, np.array([-bound, bound]))
            j = int(far.argmax())
            if far[j] > found[1]:
                found = (f"the item with {g.model.in_words(g.x[:, j])}", float(far[j]))
        return found

    @functools.cached_property
    def scores(self) -> tuple[Floats, Floats] | None:
        """Score s and constant c of each row where ``log P = s theta + c - log Z``; else None."""
        score, constant = np.empty((2, self.first[-1]))
        for g in self.groups:
            found = g.model.scores(g.x)
            if found is None:
                return None
            at_zero = g.model.log_p(g.x, np.zeros(1))[..., 0]
            score[self._rows(g)] = found
            constant[self._rows(g)] = at_zero - at_zero[:, :1]
        return score, constant
