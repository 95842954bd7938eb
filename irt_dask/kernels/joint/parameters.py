"""Items as the person step takes them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.curves.item_set import ItemSet


class Lines(NamedTuple):
    """Items whose log odds are ``a theta + d``, and their weights."""

    a: Floats
    d: Floats
    weight: Floats


class Items(NamedTuple):
    """Items, and how many each one of a coreset of items stands for (0: left out); else 1."""

    curves: ItemSet
    weight: Floats

    @classmethod
    def of(cls, model: str, *parameters: Floats) -> Items:
        """Items of one model, each for itself."""
        return cls(ItemSet.of(model, *parameters), np.ones(len(parameters[0])))

    @property
    def lines(self) -> Lines | None:
        """The same items, if the log odds of all of them are linear in ability."""
        a, d = np.empty((2, self.weight.size))
        for g in self.curves.groups:
            if not g.model.log_odds:
                return None
            a[g.at], d[g.at] = g.x[:2]
        return Lines(a, d, self.weight)
