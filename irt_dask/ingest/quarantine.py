"""The file of rows that could not be taken: ``STORE.quarantine.csv``, beside the store."""

from __future__ import annotations

import csv
import heapq
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from irt_dask.ingest import spill
from irt_dask.ingest.refused import read_bad
from irt_dask.store.manifest import sync_folder

if TYPE_CHECKING:
    from irt_dask.ingest.sources import Source
    from irt_dask.store.draft import Draft

HEADER = ("line", "column", "value", "reason", "text")


def write_quarantine(
    draft: Draft, source: Source, first_lines: tuple[int, ...], pieces: Path, runs: Path, n: int
) -> None:
    """Write the rows that pieces and the ``n`` partitions refused, in the order of the source.

    Holds those of one piece at a time.
    """
    temporary = draft.folder / "quarantine.csv"
    refused = heapq.merge(*(read_bad(runs, p) for p in range(n)), key=lambda b: b[0])
    by_piece = itertools.groupby(refused, lambda b: b[0] >> spill.PIECE_BITS)
    piece, group = next(by_piece, (-1, iter(())))
    with open(temporary, "w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for k, first in enumerate(first_lines):
            mine = []
            if k == piece:
                mine = [bad for _, bad in group]
                piece, group = next(by_piece, (-1, iter(())))
            texts = source.texts(k, [b.line for b in mine]) if mine else []
            rows = [(b, b.text) for b in spill.read_bad(pieces, k)]
            rows += zip(mine, texts, strict=True)
            for bad, text in sorted(rows, key=lambda r: r[0].line):
                writer.writerow([first + bad.line, bad.column, bad.value, bad.message, text])
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, _file(draft))
    sync_folder(draft.path.parent)


def remove_quarantine(draft: Draft) -> None:
    """Remove a file of this name that an earlier, unfinished or removed store has left."""
    file = _file(draft)
    if file.is_file():
        with open(file, encoding="utf-8", errors="replace") as f:
            ours = f.readline().rstrip() == ",".join(HEADER)
        if ours:
            file.unlink()


def _file(draft: Draft) -> Path:
    part = "" if draft.old is None else f"-{draft.name.removeprefix('part-')}"
    return draft.path.with_name(f"{draft.path.name}.quarantine{part}.csv")
