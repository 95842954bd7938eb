"""The file of rows that could not be taken: ``STORE.quarantine.csv``, beside the store."""

from __future__ import annotations

import csv
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from irt_dask.ingest import spill
from irt_dask.ingest.runs import read_bad

if TYPE_CHECKING:
    from irt_dask.ingest.sources import Source
    from irt_dask.store.draft import Draft

HEADER = ("line", "column", "value", "reason", "text")


def write_quarantine(
    draft: Draft, source: Source, first_lines: tuple[int, ...], pieces: Path, runs: Path, n: int
) -> None:
    """Write the rows that pieces and the ``n`` partitions refused, in the order of the source.

    Holds the rows that contradict others, and those of one piece.
    """
    part = "" if draft.old is None else f"-{draft.name.removeprefix('part-')}"
    final = draft.path.with_name(f"{draft.path.name}.quarantine{part}.csv")
    temporary = draft.folder / "quarantine.csv"
    refused = sorted((b for p in range(n) for b in read_bad(runs, p)), key=lambda b: b[0])
    by_piece = itertools.groupby(refused, lambda b: b[0] >> spill.PIECE_BITS)
    later = {k: [bad for _, bad in group] for k, group in by_piece}
    with open(temporary, "w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for k, first in enumerate(first_lines):
            mine = later.get(k, [])
            texts = source.texts(k, [b.line for b in mine]) if mine else []
            rows = [(b, b.text) for b in spill.read_bad(pieces, k)]
            rows += zip(mine, texts, strict=True)
            for bad, text in sorted(rows, key=lambda r: r[0].line):
                writer.writerow([first + bad.line, bad.column, bad.value, bad.message, text])
        file.flush()
        os.fsync(file.fileno())
    final.parent.mkdir(parents=True, exist_ok=True)
    os.replace(temporary, final)
