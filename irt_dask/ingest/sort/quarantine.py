"""The file of rows that could not be taken: ``STORE.quarantine.csv``, beside the store."""

from __future__ import annotations

import csv
import heapq
import itertools
import os
from pathlib import Path

from irt_dask.ingest.sort import spill
from irt_dask.ingest.sort.refused import read_bad
from irt_dask.ingest.sort.spill import Pieces
from irt_dask.ingest.sources.source import Source
from irt_dask.store.draft import Draft
from irt_dask.store.manifest import sync_folder
from irt_dask.store.objects import ObjectPath
from irt_dask.store.places import Location

HEADER = ("line", "column", "value", "reason", "text")


def write_quarantine(draft: Draft, source: Source, pieces: Pieces, runs: Path, n: int) -> Path:
    """Write the rows that pieces and the ``n`` partitions refused, in the order of the source.

    Holds those of one piece at a time.  Returns a temporary file.
    """
    temporary = draft.folder / "quarantine.csv"
    refused = heapq.merge(*(read_bad(runs, p) for p in range(n)), key=lambda b: b[0])
    by_piece = itertools.groupby(refused, lambda b: b[0] >> spill.PIECE_BITS)
    piece, group = next(by_piece, (-1, iter(())))
    with open(temporary, "w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for k, first in enumerate(pieces.first_lines):
            mine = []
            if k == piece:
                mine = [bad for _, bad in group]
                piece, group = next(by_piece, (-1, iter(())))
            texts = source.texts(k, [b.line for b in mine]) if mine else []
            rows = [(b, b.text) for b in spill.read_bad(Path(pieces.folder), k)]
            rows += zip(mine, texts, strict=True)
            for bad, text in sorted(rows, key=lambda r: r[0].line):
                writer.writerow([first + bad.line, bad.column, bad.value, bad.message, text])
        file.flush()
        os.fsync(file.fileno())
    return temporary


def publish_quarantine(draft: Draft, temporary: Path | None) -> None:
    """Put the file beside the store; None removes one that an earlier or removed store has left."""
    file = _file(draft)
    if temporary is None:
        if _is_ours(file):
            file.unlink()
    elif isinstance(file, ObjectPath):
        file.upload(temporary)
    else:
        os.replace(temporary, file)
        sync_folder(file.parent)


def _is_ours(file: Location) -> bool:
    """Whether there is a file with rows that were put aside."""
    header = ",".join(HEADER).encode()
    if isinstance(file, ObjectPath):
        return file.kind() == "file" and file.starts_with(header)
    if not file.is_file():
        return False
    with open(file, "rb") as f:
        return f.readline().rstrip() == header


def _file(draft: Draft) -> Location:
    part = "" if draft.old is None else f"-{draft.name.removeprefix('part-')}"
    return draft.path.with_name(f"{draft.path.name}.quarantine{part}.csv")
