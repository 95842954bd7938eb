"""What joint maximum likelihood looks at first: counts, linkage, and what cannot be estimated."""

from __future__ import annotations

import warnings

import numpy as np

from irt_dask.arrays import Ints
from irt_dask.calibrate.joint import person_step
from irt_dask.calibrate.shared.linkage import linked, linked_items
from irt_dask.calibrate.shared.start_values import name_some, refuse_unobserved
from irt_dask.engine import Engine
from irt_dask.errors import DataWarning


def linked_persons(p: person_step.Persons) -> Ints:
    """Items that prepared persons answered together, as labels."""
    return np.zeros(p.n_items, dtype=np.int64) if p.complete.size else linked(p.data)


class Overview:
    """What one pass (two if nobody answered everything) tells of the data."""

    def __init__(self, engine: Engine) -> None:
        r = engine.responses
        right, seen, complete, nothing, wrong, all_right = engine.map_reduce(person_step.overview)
        refuse_unobserved(r.item_id, seen)
        self.item_id = r.item_id
        self.right, self.seen = right, seen
        #: Whether every person with responses answered every item.
        self.complete = int(complete) == engine.n_persons - int(nothing)
        self.group = np.zeros(r.n_items, dtype=np.int64)
        if not complete:
            self.group = np.unique(linked_items(engine, linked_persons), return_inverse=True)[1]
        self.attrs = {
            "n_items_all_right": int((right == seen).sum()),
            "n_items_all_wrong": int((right == 0).sum()),
            "n_persons_all_right": int(all_right),
            "n_persons_all_wrong": int(wrong),
            "n_persons_without_responses": int(nothing),
            "n_linked_groups": int(self.group.max()) + 1,
        }

    def warn(self) -> None:
        """Warn of groups of items that cannot be compared."""
        n = self.attrs["n_linked_groups"]
        if n == 1:
            return
        sizes = np.bincount(self.group)
        few = [self.item_id[j] for j in np.flatnonzero(self.group == sizes.argmin())]
        warnings.warn(
            f"nobody links {n} groups of items (item_linked_group), so that their difficulties "
            f"cannot be compared; the smallest: {name_some(few)}",
            DataWarning,
            stacklevel=3,
        )
