"""Blocks of persons from runs: each task merges the stretch of every run that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from irt_dask.ingest.sort import spill
from irt_dask.ingest.sort.occurring import Occurring, moved, of_block
from irt_dask.ingest.text.bundles import Bundle
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.responses.layouts import Dense, Layout, Sparse
from irt_dask.store.categories import MOST
from irt_dask.store.manifest import Files
from irt_dask.store.parts import Part

#: Responses that are gathered and written at a time, about.
_TOGETHER = 1 << 22
#: Persons whose order one task finds, at most.
_STRETCH = 1 << 20


@dataclass(frozen=True)
class Stretch:
    """Persons ``first`` to ``stop`` in the order of the store, and where they lie.

    They are among rows ``low[r]:high[r]`` of each run r, whose smallest has rank ``base``.
    """

    runs: str
    pieces: str  # where a wide source's responses are
    columns: np.ndarray | None  # wide: place of each column among the items; -1: left out
    kept: np.ndarray | None  # long: items among those of the runs, in order; None: all
    n_items: int
    grouped: bool
    first: int = 0
    stop: int = 0
    base: int = 0
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()


def cut(where: Stretch, counts: np.ndarray, rows: int, n_threads: int) -> list[Stretch]:
    """Cut all persons into stretches of whole blocks of ``rows``, some for each thread.

    ``counts`` are the persons of each run by the piece in which they first appear.
    """
    n = int(counts.sum())
    if n == 0:  # an append may add to persons of before alone
        return []
    base = np.cumsum([0, *counts.sum(axis=0)])  # rank of the first person of each piece
    before = np.cumsum(np.pad(counts, ((0, 0), (1, 0))), axis=1)  # persons of each run
    blocks = -(-n // rows)
    wanted = max(1, min(4 * n_threads, blocks), -(-n // _STRETCH))
    persons = -(-blocks // wanted) * rows
    out = []
    for a in range(0, n, persons):
        b = min(a + persons, n)
        low = int(np.searchsorted(base, a, side="right")) - 1
        high = int(np.searchsorted(base, b - 1, side="right"))
        out.append(
            replace(
                where, first=a, stop=b, base=int(base[low]),
                low=tuple(before[:, low].tolist()), high=tuple(before[:, high].tolist()),
            )
        )  # fmt: skip
    return out


class _Run(Bundle):
    """A run, of whose rows ``low`` to ``high`` parts are read."""

    def __init__(self, path: Path, low: int, high: int) -> None:
        super().__init__(path)
        self._low = low
        self._ends = self["indptr"][low : high + 1]
        self.key = self["key"][low:high]

    def ends(self, a: int, b: int) -> np.ndarray:
        """Where the responses of rows ``a`` to ``b`` begin, and where the last end."""
        return self._ends[a - self._low : b - self._low + 1]


class _Merged:
    """The persons of a stretch in order: for each the run and the row there."""

    def __init__(self, s: Stretch) -> None:
        root = spill.check_folder(s.runs)
        self.s = s
        spans = list(zip(s.low, s.high, strict=True))
        self.runs = [_Run(spill.run_file(root, r), a, b) for r, (a, b) in enumerate(spans)]
        key = np.concatenate([run.key for run in self.runs])
        order = np.argsort(key, kind="stable")[s.first - s.base : s.stop - s.base]
        self.key = key[order]
        self.run = np.repeat(np.arange(len(spans)), [b - a for a, b in spans])[order]
        self.row = np.concatenate([np.arange(a, b) for a, b in spans])[order]

    def observed(self) -> np.ndarray:
        """Responses of each person."""
        out = np.zeros(self.row.size, dtype=np.int64)
        for r, run in enumerate(self.runs):
            mine = self.run == r
            low, high = self.s.low[r], self.s.high[r]
            out[mine] = np.diff(run.ends(low, high))[self.row[mine] - low]
        return out

    def block(self, first: int, stop: int) -> tuple[Layout, dict[str, Any]]:
        """Responses and columns of persons ``first`` to ``stop`` of the store."""
        at = slice(first - self.s.first, stop - self.s.first)
        run, row = self.run[at], self.row[at]
        # The rows of a run among consecutive persons are consecutive: sorted by key both.
        members = [(r, row[run == r]) for r in np.unique(run)]
        spans = [(self.runs[r], int(rows[0]), int(rows[-1]) + 1) for r, rows in members]
        place = np.empty(row.size, dtype=np.int64)
        place[np.argsort(run, kind="stable")] = np.arange(row.size)
        columns = self._columns(spans, place)
        if self.s.columns is None:
            parts: list[Layout] = [self._sparse(*span) for span in spans]
            data = layouts.take(layouts.concatenate(parts), place)
            if self.s.kept is not None:
                data = layouts.columns(data, self.s.kept)
            return data, columns
        source = np.concatenate([run["row"][a:b] for run, a, b in spans])
        return self._matrix(self.key[at] >> spill.PIECE_BITS, source[place]), columns

    def _sparse(self, run: _Run, a: int, b: int) -> Sparse:
        ends = run.ends(a, b)
        inside = slice(int(ends[0]), int(ends[-1]))
        n_items = self.s.n_items if self.s.kept is None else int(self.s.kept.max()) + 1
        return Sparse(ends - ends[0], run["item"][inside], run["code"][inside], n_items)

    def _matrix(self, piece: np.ndarray, row: np.ndarray) -> Dense:
        assert self.s.columns is not None
        values = np.full((piece.size, self.s.n_items), -1, dtype=np.int8)
        used = self.s.columns >= 0
        for mine, found in source_rows(self.s.pieces, piece, row):
            some = found if used.all() else found[:, used]
            values[np.ix_(mine, self.s.columns[used])] = some
        return Dense(values)

    def _columns(self, spans: list[tuple[_Run, int, int]], place: np.ndarray) -> dict[str, Any]:

        def strings(column: str) -> Any:
            parts = [run.strings(column, slice(a, b)) for run, a, b in spans]
            return pa.concat_arrays(parts).take(pa.array(place)).to_numpy(zero_copy_only=False)

        out = {"person_id": strings("id")}
        if self.s.grouped:
            out["group"] = strings("group")
        for name in ("weight", "covariates"):
            if name in spans[0][0]:
                out[name] = np.concatenate([run[name][a:b] for run, a, b in spans])[place]
        return out


def source_rows(
    pieces: str, piece: np.ndarray, row: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Responses of rows of a wide source, one piece at a time: which of the rows, and theirs."""
    for k in np.unique(piece):
        mine = np.flatnonzero(piece == k)
        rows = row[mine]
        first = int(rows.min())
        matrix = Bundle(spill.piece_file(Path(pieces), int(k)))["matrix"]
        near = matrix[first : int(rows.max()) + 1]  # all of them, as a rule: rows are in order
        yield mine, near[rows - first]


def widest(s: Stretch, rows_per_block: int) -> int:
    """Return the most responses that a block of the stretch has."""
    observed = _Merged(s).observed()
    return int(np.add.reduceat(observed, np.arange(0, observed.size, rows_per_block)).max())


def write_blocks(
    s: Stretch, part: Part, look: bool, moves: np.ndarray | None
) -> tuple[Files, Occurring | None]:
    """Write all blocks of the stretch, some at a time; return the files.

    If asked to ``look``, also which categories occur.  ``moves`` are other codes to write.
    """
    merged = _Merged(s)
    files: Files = {}
    found = np.zeros((part.n_items, MOST), dtype=bool) if look else None
    room = part.capacity or part.rows_per_block * part.n_items
    together = max(1, _TOGETHER // max(room, 1)) * part.rows_per_block
    for first in range(s.first, s.stop, together):
        data, columns = merged.block(first, min(first + together, s.stop))
        if found is not None:
            found |= of_block(data)
        if moves is not None:
            data = moved(data, moves)
        k = first // part.rows_per_block
        files |= part.write_blocks(k, data, columns.pop("person_id"), **columns)
    return files, found
