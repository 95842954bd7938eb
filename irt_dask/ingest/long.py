"""Long files: one response per row, in any order.

Rows are spilled to temporary files by person, then each block of persons is put together.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from irt_dask.errors import InputError
from irt_dask.ingest.attributes import Attributes
from irt_dask.ingest.reader import TextFile
from irt_dask.ingest.roles import Roles
from irt_dask.ingest.target import Target
from irt_dask.ingest.values import (
    MISSING,
    UNKNOWN,
    Numbering,
    distinct,
    response_codes,
    unknown_value,
)

if TYPE_CHECKING:
    from irt_dask.store import Responses

RECORD = np.dtype([("person", "<u4"), ("item", "<u4"), ("value", "i1")])
PERSONS_PER_FILE = 1024
RECORDS_HELD = 1 << 21  # rows in memory before they go to the files, and read back at a time
UNSEEN = -128


def ingest_long(text: TextFile, roles: Roles, table: dict[str, int], target: Target) -> Responses:
    """Read a long file into a new store."""
    with target.scratch() as folder:
        spill = _Spill(folder, target.rows_per_block or PERSONS_PER_FILE)
        persons, items, attributes = _read(text, roles, table, spill)
        return _assemble(text, roles, target, spill, persons, items, attributes)


def _read(
    text: TextFile, roles: Roles, table: dict[str, int], spill: _Spill
) -> tuple[Numbering, Numbering, Attributes]:
    """Stream the file into the spill."""
    persons, items, attributes = Numbering(), Numbering(), Attributes(text, roles)
    assert roles.item is not None
    assert roles.response is not None
    wanted = [roles.person, roles.item, roles.response, *attributes.columns]
    for batch in text.batches(wanted):
        numbers = []
        for role, numbering, strings in zip(
            ("person", "item"), (persons, items), batch.columns[:2], strict=True
        ):
            rows, empty = numbering.rows(strings)
            if empty is not None:
                raise text.error(f"the {role} id is empty", batch.first_line + empty)
            numbers.append(rows)
        codes = response_codes(batch.columns[2], table)
        unknown = codes == UNKNOWN
        if unknown.any():
            row = int(np.argmax(unknown))
            message = unknown_value(batch.columns[2][row].as_py(), text.header[roles.response])
            raise text.error(message, batch.first_line + row)
        attributes.add(numbers[0], batch, 3)
        spill.add(numbers[0], numbers[1], codes)
    spill.flush()
    return persons, items, attributes


def _assemble(
    text: TextFile,
    roles: Roles,
    target: Target,
    spill: _Spill,
    persons: Numbering,
    items: Numbering,
    attributes: Attributes,
) -> Responses:
    """Put the blocks together and write the store."""
    from irt_dask.store import StoreWriter

    n_persons, item_id = len(persons), list(items.number)
    rows = target.rows(len(item_id), n_persons)
    ids = iter(persons.number)
    n_blocks = -(-n_persons // rows)
    with StoreWriter(target.path, item_id=item_id, rows_per_block=rows) as writer:
        for k in range(n_blocks):
            first, last = k * rows, min((k + 1) * rows, n_persons)
            person_id = list(islice(ids, last - first))
            block, repeated = _block(spill, first, last, len(item_id))
            if repeated is not None:
                person, item = person_id[repeated[0]], item_id[repeated[1]]
                raise _repeated_pair(text, roles, person, item)
            writer.write(block, person_id=person_id, **attributes.take(first, last))
            if text.progress is not None:
                text.progress("write", k + 1, n_blocks)
        return writer.commit()


def _block(
    spill: _Spill, first: int, last: int, n_items: int
) -> tuple[np.ndarray, tuple[int, int] | None]:
    """Return the responses of a range of persons, and a cell that is there twice, if any."""
    block = np.full((last - first, n_items), UNSEEN, dtype=np.int8)
    cells = block.reshape(-1)
    n_records = 0
    for persons, part in spill.records(first, last):
        cells[(persons - first) * n_items + part["item"]] = part["value"]
        n_records += len(part)
    repeated = None
    if np.count_nonzero(cells != UNSEEN) != n_records:
        repeated = _first_repeated(spill, first, last, n_items)
    return np.maximum(block, MISSING, out=block), repeated


def _first_repeated(spill: _Spill, first: int, last: int, n_items: int) -> tuple[int, int]:
    parts = [(p - first) * n_items + r["item"] for p, r in spill.records(first, last)]
    cells = np.concatenate(parts)
    order = np.argsort(cells, kind="stable")
    again = order[1:][cells[order[1:]] == cells[order[:-1]]]
    person, item = divmod(int(cells[again.min()]), n_items)
    return person, item


def _repeated_pair(text: TextFile, roles: Roles, person: str, item: str) -> InputError:
    """Return the error about a pair that is there twice, after a search for its lines."""
    assert roles.item is not None
    lines: list[int] = []
    text.progress = None
    for batch in text.batches([roles.person, roles.item]):
        hit = np.ones(len(batch), dtype=bool)
        for strings, wanted in zip(batch.columns, (person, item), strict=True):
            index, values = distinct(strings)
            hit &= np.array([v == wanted for v in values])[index]
        lines += (batch.first_line + np.flatnonzero(hit)).tolist()
        if len(lines) > 1:
            break
    return text.error(
        f"the person {person!r} has a second response to the item {item!r}, "
        f"after the one on line {lines[0]}; keep one of the two",
        lines[1],
    )


class _Spill:
    """Rows of a long file in temporary files, one for each range of persons."""

    def __init__(self, folder: Path, persons_per_file: int) -> None:
        self.folder, self.persons_per_file = folder, persons_per_file
        self.held: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.n_held = 0

    def _path(self, file: int) -> Path:
        return self.folder / f"{file}.rows"

    def add(self, persons: np.ndarray, items: np.ndarray, values: np.ndarray) -> None:
        """Take rows; they go to the files when enough are held."""
        self.held.append((persons, items, values))
        self.n_held += len(persons)
        if self.n_held >= RECORDS_HELD:
            self.flush()

    def flush(self) -> None:
        """Append the rows held to the files, in their order."""
        if not self.held:
            return
        persons, items, values = (np.concatenate(part) for part in zip(*self.held, strict=True))
        self.held, self.n_held = [], 0
        file, within = np.divmod(persons, self.persons_per_file)
        order = np.argsort(file, kind="stable")
        records = np.empty(len(order), dtype=RECORD)
        records["person"], records["item"] = within[order], items[order]
        records["value"] = values[order]
        starts = np.flatnonzero(np.diff(file[order], prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
            with open(self._path(int(file[order[start]])), "ab") as out:
                out.write(records[start:stop].tobytes())

    def records(self, first: int, last: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the rows of a range of persons by pieces: the persons' numbers, the records."""
        for file in range(first // self.persons_per_file, -(-last // self.persons_per_file)):
            with open(self._path(file), "rb") as stream:
                while len(part := np.fromfile(stream, dtype=RECORD, count=RECORDS_HELD)):
                    persons = part["person"].astype(np.int64) + file * self.persons_per_file
                    inside = (persons >= first) & (persons < last)
                    yield persons[inside], part[inside]
