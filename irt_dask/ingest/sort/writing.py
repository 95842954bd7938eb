"""All blocks of a part written, and what the codes in them say of the items' categories."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from irt_dask.engine.tasks import Tasks
from irt_dask.errors import Notice
from irt_dask.ingest.columns.limits import Limits
from irt_dask.ingest.sort.blocks import Stretch, write_blocks
from irt_dask.ingest.sort.merging import Merge, write_added
from irt_dask.ingest.sort.occurring import (
    Occurring,
    collapsed,
    from_data,
    moves_of,
    null_categories,
    refuse_null,
    told,
)
from irt_dask.store.categories import BINARY, MOST, Collapsed
from irt_dask.store.manifest import Files
from irt_dask.store.parts import Part

#: What becomes of categories without a response.
STOP, KEEP, COLLAPSE = "raise", "keep", "collapse"
#: What a Notice says of them.
DROPPED = "categories without a response are dropped"


class Written(NamedTuple):
    """The files of a part, and K of its new items, of which some have collapsed."""

    files: Files
    categories: tuple[int, ...]
    collapsed: Collapsed


@dataclass(frozen=True)
class Writing:
    """The blocks of a part, and what is added to blocks of before, (merge, block) each."""

    part: Part
    stretches: Sequence[Stretch]
    added: Sequence[tuple[Merge, int]]
    kept: np.ndarray | None  # items of what is added, in order; None: all

    def write(
        self, tasks: Tasks, look: bool, moves: np.ndarray | None = None
    ) -> tuple[Files, Occurring]:
        """Write everything; return the files and, if asked to ``look``, which categories occur.

        ``moves`` are other codes to write, over the files of the first time.
        """
        files: Files = {}
        found = np.zeros((self.part.n_items, MOST), dtype=bool)
        blocks = [(s, self.part, look, moves) for s in self.stretches]
        added = [(m, self.part, k, self.kept, look, moves) for m, k in self.added]
        for written, occurring in itertools.chain(
            tasks.run("write", write_blocks, blocks), tasks.run("merge", write_added, added)
        ):
            files |= written
            if occurring is not None:
                found |= occurring
        return files, found

    def finish(
        self, tasks: Tasks, item_id: tuple[str, ...], n_known: int, limits: Limits, path: Any,
        null: str, plain: bool,
    ) -> Written:  # fmt: skip
        """Write everything, and find K of the items after the ``n_known`` of the store.

        ``null`` says what becomes of categories without a response; ``plain``: codes are as they
        stand in the file.
        """
        new = item_id[n_known:]
        look = any(limits.of(item) > BINARY for item in new)
        files, found = self.write(tasks, look)
        found = found[n_known:]
        counts = from_data(found) if limits.from_data else [limits.of(item) for item in new]
        empty = null_categories(new, counts, found)
        if null == STOP:
            refuse_null(path, empty, found, plain)
        if null != COLLAPSE or not empty:
            return Written(files, tuple(counts), {})
        maps = collapsed(path, empty, new, counts)
        files |= self.write(tasks, False, moves_of(item_id, maps))[0]
        warnings.warn(
            f"{path}: {DROPPED}: {told(empty)}; codes above them "
            f"move down, here and in what is appended",
            Notice,
            stacklevel=5,
        )
        left = (k - len(empty.get(item, ())) for item, k in zip(new, counts, strict=True))
        return Written(files, tuple(left), maps)
