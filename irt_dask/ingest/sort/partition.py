"""A partition of persons: all rows of them, read back from the pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from irt_dask.ingest.sort import spill
from irt_dask.ingest.sort.spill import Pieces
from irt_dask.ingest.text.bundles import Bundle


@dataclass(frozen=True)
class Job:
    """What every partition needs to know."""

    pieces: Pieces
    runs: str  # where the runs go
    items: str  # file of the item ids, for messages
    n_items: int
    one_row_per_person: bool
    wide: bool
    attributes: dict[str, str]  # columns of weight and group, where the source has them
    stop_at_bad: bool  # only the first row that is refused matters
    persons: Pieces | None = None  # of a table of persons
    known: str | None = None  # folder of the persons whom the store has already
    n_known: int = 0  # blocks there
    on_duplicate: str = "raise"  # what to do with them
    partly: bool = False  # whether rows may be left out, and items with them
    #: Place of each column of a wide source among the items, if some may be left out.
    columns: np.ndarray | None = None
    covariates: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


class PartitionRows:
    """The rows of a partition, in the order of the source."""

    def __init__(self, pieces: Pieces, p: int, item_maps: bool) -> None:
        folder = spill.check_folder(pieces.folder)
        parts: dict[str, list[Any]] = {}
        ids, groups, n_groups = [], [], 0
        for k in range(len(pieces.first_lines)):
            piece = Bundle(spill.piece_file(folder, k))
            rows = spill.part_rows(piece, p)
            ids.append(piece.strings("id", rows))
            columns: dict[str, np.ndarray] = {
                "key": piece["line"][rows].astype(np.int64) + (k << spill.PIECE_BITS)
            }
            for name in ("code", "row", "observed", "weight", "covariates", "item"):
                if name in piece:
                    columns[name] = piece[name][rows]
            if "item" in columns and item_maps:
                number = Bundle(spill.items_file(folder, k))["number"][:]
                columns["item"] = number[columns["item"]]
            if "group" in piece:
                labels = piece.strings("groups")
                columns["group"] = piece["group"][rows] + np.int32(n_groups)
                groups.append(labels)
                n_groups += len(labels)
            for name, column in columns.items():
                parts.setdefault(name, []).append(column)
        encoded = pa.concat_arrays(ids or [pa.array([], pa.string())]).dictionary_encode()
        self.person: np.ndarray = encoded.indices.to_numpy(zero_copy_only=False)
        self.ids: pa.Array = encoded.dictionary
        self.columns = {name: np.concatenate(part) for name, part in parts.items()}
        self.key = self.columns.pop("key") if parts else np.zeros(0, np.int64)
        self.labels: pa.Array | None = None
        if groups:
            encoded = pa.concat_arrays(groups).dictionary_encode()
            self.labels = encoded.dictionary
            number = encoded.indices.to_numpy(zero_copy_only=False)
            self.columns["group"] = number[self.columns["group"]]

    def keep(self, rows: np.ndarray) -> None:
        """Drop all rows but some."""
        self.person, self.key = self.person[rows], self.key[rows]
        self.columns = {name: c[rows] for name, c in self.columns.items()}
