"""Those persons of a partition whom the store has already: where, and with what attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from irt_dask.arrays import Ints
from irt_dask.errors import StoreError, listed, repeated
from irt_dask.ingest.sort import spill
from irt_dask.ingest.sort.partition import Job
from irt_dask.ingest.text.bundles import Bundle, string_buffers

#: What becomes of the rows of such persons.
RAISE, SKIP, ASIDE, MERGE = "raise", "skip", "quarantine", "merge"
#: A person's place in the store as one number: the block, then the row within it.
BLOCK_BITS = 32
#: Attributes of persons, as the spilled columns of the store are called.
_NUMBERS = ("weight", "covariates")


@dataclass
class Known:
    """For each identifier of the partition the place in the store, -1 of new ones; attributes.

    These are arrays by name, with an entry for each identifier that says nothing of new ones.
    ``ids`` are the identifiers of those who are there.
    """

    place: Ints
    ids: pa.Array
    attributes: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def find(cls, job: Job, p: int, ids: pa.Array) -> Known:
        """Look for persons in the store, one block of it at a time."""
        known = cls(np.full(len(ids), -1, dtype=np.int64), ids)
        for k in range(job.n_known if job.known is not None else 0):
            piece = Bundle(spill.piece_file(Path(str(job.known)), k))
            known._look(piece, spill.part_rows(piece, p), k, ids)
        known.ids = ids.filter(pa.array(known.place >= 0))
        return known

    def _look(self, piece: Bundle, rows: slice, k: int, ids: pa.Array) -> None:
        stored = piece.strings("id", rows)
        at = pc.index_in(ids, value_set=stored)
        found = at.is_valid().to_numpy(zero_copy_only=False)
        if not found.any():
            return
        twice = ids.filter(pa.array(found & (self.place >= 0))).to_pylist()
        if string_buffers(stored)[1].max(initial=0) >= 128:  # else they are as they were written
            twice += repeated(stored.to_pylist())
        if twice:
            raise StoreError(
                f"the store has {len(twice)} person(s) twice, with accents written in two ways: "
                f"{listed(twice, 10)}; ingest its files again, which makes one person of each"
            )
        at = at.fill_null(-1).to_numpy(zero_copy_only=False)[found]
        self.place[found] = (k << BLOCK_BITS) + piece["at"][rows][at]
        given: dict[str, Any] = {n: piece[n][rows][at] for n in _NUMBERS if n in piece}
        if "group" in piece:
            labels = piece.strings("group", rows).to_numpy(zero_copy_only=False)
            given["group"] = labels[at]
        for name, values in given.items():
            if name not in self.attributes:
                shape = (len(self.place), *values.shape[1:])
                self.attributes[name] = np.zeros(shape, dtype=values.dtype)
            self.attributes[name][found] = values
