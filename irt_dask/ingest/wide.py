"""Wide files: one person per row, one column per item; blocks are written as the file streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irt_dask.errors import InputError
from irt_dask.ingest.attributes import Attributes
from irt_dask.ingest.reader import Batch, TextFile
from irt_dask.ingest.roles import Roles
from irt_dask.ingest.target import Target
from irt_dask.ingest.values import UNKNOWN, distinct, response_codes, unknown_value

if TYPE_CHECKING:
    from irt_dask.store import Responses, StoreWriter

CELLS = 1 << 20  # values recoded at a time


def ingest_wide(text: TextFile, roles: Roles, table: dict[str, int], target: Target) -> Responses:
    """Read a wide file into a new store."""
    from irt_dask.store import StoreWriter

    attributes = Attributes(text, roles)
    wanted = [roles.person, *attributes.columns, *roles.items]
    first_item = 1 + len(attributes.columns)
    item_id = [text.header[k] for k in roles.items]
    rows = target.rows(len(item_id))
    persons: dict[str, int] = {}
    with StoreWriter(target.path, item_id=item_id, rows_per_block=rows) as writer:
        blocks = _Blocks(writer, rows, len(item_id), attributes)
        for batch in text.batches(wanted):
            start = len(persons)
            ids = _new_persons(text, batch, persons)
            attributes.add(np.arange(start, start + len(ids)), batch, 1)
            blocks.add(ids, _matrix(text, batch, first_item, item_id, table))
        blocks.flush()
        return writer.commit()


def _new_persons(text: TextFile, batch: Batch, persons: dict[str, int]) -> list[str]:
    """Return the ids of a batch, numbered into ``persons``; refuse empty and repeated ones."""
    index, values = distinct(batch.columns[0])
    ids = values if len(values) == len(index) else [values[k] for k in index]
    start = len(persons)
    new = dict(zip(ids, range(start, start + len(ids)), strict=True))
    if "" not in new and len(new) == len(ids) and persons.keys().isdisjoint(new):
        persons |= new
        return ids
    raise _bad_person(text, batch.first_line, ids, persons)


def _bad_person(
    text: TextFile, first_line: int, ids: list[str], persons: dict[str, int]
) -> InputError:
    for line, person in enumerate(ids, first_line):
        if not person:
            return text.error("the person id is empty", line)
        if person in persons:  # every row is a person: the first is on line 2
            return text.error(
                f"the person {person!r} is on line {persons[person] + 2} already; "
                "a wide file has one row per person",
                line,
            )
        persons[person] = line - 2
    raise AssertionError("no bad person id")


def _matrix(
    text: TextFile, batch: Batch, first_item: int, item_id: list[str], table: dict[str, int]
) -> np.ndarray:
    """Return the responses of a batch, persons x items."""
    import pyarrow as pa

    by_item = np.empty((len(item_id), len(batch)), dtype=np.int8)
    together = max(1, CELLS // len(batch))  # items per call: few calls, little memory
    for first in range(0, len(item_id), together):
        columns = batch.columns[first_item + first : first_item + first + together]
        codes = response_codes(pa.concat_arrays(columns), table)
        by_item[first : first + together] = codes.reshape(len(columns), len(batch))
    codes = by_item.T
    unknown = codes == UNKNOWN
    if unknown.any():
        row = int(np.argmax(unknown.any(axis=1)))
        item = int(np.argmax(unknown[row]))
        value = batch.columns[first_item + item][row].as_py()
        raise text.error(unknown_value(value, item_id[item]), batch.first_line + row)
    return codes


class _Blocks:
    """Gathers rows into blocks of the store's size and writes them."""

    def __init__(
        self, writer: StoreWriter, rows: int, n_items: int, attributes: Attributes
    ) -> None:
        self.writer, self.rows, self.n_items = writer, rows, n_items
        self.attributes = attributes
        self.written = 0
        self.ids: list[str] = []
        self.parts: list[np.ndarray] = []

    def add(self, ids: list[str], responses: np.ndarray) -> None:
        """Take rows, write the blocks that are full."""
        start = 0
        while start < len(ids):
            stop = min(len(ids), start + self.rows - len(self.ids))
            self.ids += ids[start:stop]
            self.parts.append(responses[start:stop])
            start = stop
            if len(self.ids) == self.rows:
                self.flush()

    def flush(self) -> None:
        """Write the rows that are waiting."""
        if not self.ids:
            return
        last = self.written + len(self.ids)
        block = np.ascontiguousarray(np.concatenate(self.parts))
        extra = self.attributes.take(self.written, last)
        self.writer.write(block, person_id=self.ids, **extra)
        self.written, self.ids, self.parts = last, [], []
