"""The file of rows that could not be taken: ``STORE.quarantine.csv``, beside the store."""

from __future__ import annotations

import csv
import hashlib
import heapq
import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from irt_dask.ingest.sort import spill
from irt_dask.ingest.sort.spill import Pieces, read_bad
from irt_dask.ingest.sources.source import Source
from irt_dask.store.documents import to_raw_cell
from irt_dask.store.draft import Draft
from irt_dask.store.manifest import settle
from irt_dask.store.objects import ObjectPath
from irt_dask.store.places import Location

HEADER = ("line", "column", "value", "reason", "text")


def write_quarantine(
    draft: Draft, source: Source, pieces: Pieces, runs: Path, n: int, blocks: Iterable[int]
) -> Path:
    """Write the rows that were refused, in the order of the source.

    Refused they were in pieces, in the ``n`` partitions, and compared with ``blocks`` of the store.

    Holds those of one piece at a time.  Returns a temporary file.
    """
    temporary = draft.folder / "quarantine.csv"
    folder = Path(pieces.folder)
    files = (spill.piece_file(folder, k) for k in range(len(pieces.first_lines)))
    in_pieces = itertools.chain.from_iterable(map(read_bad, files))
    in_runs = (read_bad(spill.run_file(runs, p)) for p in range(n))
    in_blocks = (read_bad(spill.added_file(runs, k)) for k in blocks)
    found = heapq.merge(in_pieces, *in_runs, *in_blocks, key=lambda f: f[0])
    with open(temporary, "w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for k, group in itertools.groupby(found, lambda f: f[0] >> spill.PIECE_BITS):
            rows = list(group)
            untold = [bad.line for _, bad in rows if not bad.text]  # those of partitions
            texts = iter(source.texts(k, untold) if untold else ())
            for key, bad in rows:
                text = bad.text or next(texts)
                cells = map(to_raw_cell, (bad.column, bad.value, bad.message, text))
                writer.writerow([pieces.line(key), *cells])
        file.flush()
        os.fsync(file.fileno())
    return temporary


def publish_quarantine(draft: Draft, temporary: Path | None) -> None:
    """Put the file beside the store; None removes one that an earlier or removed store has left."""
    file = _file(draft, "" if draft.old is None else draft.name.removeprefix("part"))
    if temporary is None:
        if _is_ours(file):
            file.unlink()
    else:
        _put(file, temporary)


def publish_alone(draft: Draft, temporary: Path) -> Location:
    """Put the file beside the store, of an append that makes no part.

    Its name is of what it holds: the same append finds it there, no other one replaces it.
    """
    with open(temporary, "rb") as content:
        word = hashlib.file_digest(content, "sha256").hexdigest()[:8]
    file = _file(draft, f"-{word}")
    _put(file, temporary)
    return file


def _put(file: Location, temporary: Path) -> None:
    if isinstance(file, ObjectPath):
        file.upload(temporary)
    else:
        os.replace(temporary, file)
        settle(file)


def _is_ours(file: Location) -> bool:
    """Whether there is a file with rows that were put aside."""
    header = ",".join(HEADER).encode()
    if isinstance(file, ObjectPath):
        return file.kind() == "file" and file.starts_with(header)
    if not file.is_file():
        return False
    with open(file, "rb") as f:
        return f.readline().rstrip() == header


def _file(draft: Draft, word: str) -> Location:
    return draft.path.with_name(f"{draft.path.name}.quarantine{word}.csv")
