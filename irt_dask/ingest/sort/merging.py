"""Rows of persons whom the store has: compared with what it has of them, block by block of it.

What was not observed is filled, by a supplement in the new part; an equal response is nothing new;
another one is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from irt_dask.ingest.columns.rows import Bad
from irt_dask.ingest.sort import spill
from irt_dask.ingest.sort.blocks import source_rows
from irt_dask.ingest.sort.occurring import Occurring, of_cells
from irt_dask.ingest.sort.partition import Job
from irt_dask.ingest.sort.refused import bad_row
from irt_dask.ingest.sort.runs import NOWHERE
from irt_dask.ingest.text import bundles
from irt_dask.ingest.text.bundles import Bundle
from irt_dask.store import supplements
from irt_dask.store.blocks import BlockRef
from irt_dask.store.categories import NONRESPONSE
from irt_dask.store.manifest import Files
from irt_dask.store.parts import Part
from irt_dask.store.stored import StoredBlock
from irt_dask.store.supplements import Cells


@dataclass(frozen=True)
class Merge:
    """What the comparison of any block has to know."""

    job: Job
    n_runs: int
    columns: np.ndarray | None  # wide: place of each column among the items


@dataclass(frozen=True)
class Compared:
    """What the driver keeps of a block."""

    block: int
    n_persons: int  # who get responses
    n_added: int  # responses
    item_first: np.ndarray | None  # key of each item's first response
    n_bad: int
    first_bad: tuple[int, Bad] | None


@dataclass(frozen=True)
class _Given:
    """Responses of the source to persons of a block, in any order; ``key``: place in the source."""

    cells: Cells
    key: np.ndarray

    @property
    def size(self) -> int:
        return self.key.size


def compare(m: Merge, ref: StoredBlock, k: int) -> Compared:
    """Compare rows with block ``k`` of the store; keep what is new in a file."""
    given = _given(m, k)
    row, item, code = given.cells
    there = supplements.codes_at(ref.codes(), row, item)
    wrong = (there >= 0) & (there != code)
    refused = np.isin(given.key, given.key[wrong]) if m.job.one_row_per_person else wrong
    new = np.flatnonzero((there < 0) & ~refused)
    first = np.full(m.job.n_items, NOWHERE)
    np.minimum.at(first, item[~refused], given.key[~refused])
    found = _conflicts(m, ref, given, there, np.flatnonzero(wrong))
    with bundles.writer(spill.added_file(Path(m.job.runs), k)) as to:
        for name, values in given.cells._asdict().items():
            to.add(name, values[new])
        spill.write_bad(to, found)
    n_persons = np.unique(row[new]).size
    return Compared(k, n_persons, new.size, first, len(found), found[0] if found else None)


def _given(m: Merge, k: int) -> _Given:
    """Gather rows of the persons of block ``k``."""
    rows, items, codes, keys = [], [], [], []
    for r in range(m.n_runs):
        run = Bundle(spill.known_file(spill.check_folder(m.job.runs), r))
        at = np.flatnonzero(run["block"][:] == k)
        if not at.size:
            continue
        a, b = run["ptr"][int(at[0]) : int(at[0]) + 2].tolist()
        person = run["at"][a:b]
        if m.columns is None:
            ends = run["indptr"][a : b + 1]
            inside = slice(int(ends[0]), int(ends[-1]))
            rows.append(np.repeat(person, np.diff(ends)))
            items.append(run["item"][inside])
            codes.append(run["code"][inside])
            keys.append(run["key"][inside])
            continue
        key = run["key"][a:b]
        for mine, found in source_rows(
            m.job.pieces.folder, key >> spill.PIECE_BITS, run["row"][a:b]
        ):
            i, column = np.nonzero(found >= 0)
            rows.append(person[mine][i])
            items.append(m.columns[column])
            codes.append(found[i, column])
            keys.append(key[mine][i])
    row, item, code, key = map(np.concatenate, (rows, items, codes, keys))
    return _Given(Cells(row, item, code), key)


def _conflicts(
    m: Merge, ref: BlockRef, given: _Given, there: np.ndarray, wrong: np.ndarray
) -> list[tuple[int, Bad]]:
    """The rows to refuse, in the order of the source; only the first, if that ends the append."""
    if not wrong.size:
        return []
    wrong = wrong[np.argsort(given.key[wrong], kind="stable")]
    if m.job.one_row_per_person:
        wrong = wrong[np.unique(given.key[wrong], return_index=True)[1]]
    if m.job.stop_at_bad:
        wrong = wrong[:1]
    with Bundle(Path(m.job.items)).open("names") as file:
        names = json.load(file)
    ids, (row, item, code) = ref.person_ids(), given.cells
    found = []
    for at in wrong:
        name, value = names[item[at]], _said(code[at])
        message = (
            f"the person {str(ids[row[at]])!r} has {value} for the item {name!r} here, and "
            f"{_said(there[at])} in the store; a merge fills what was not observed and changes "
            f"nothing"
        )
        found.append(bad_row(given.key[at], name, value, message))
    return found


def _said(code: int) -> str:
    return {c: word for word, c in NONRESPONSE.items()}.get(int(code), str(code))


def write_added(
    m: Merge, part: Part, k: int, kept: np.ndarray | None, look: bool, moves: np.ndarray | None
) -> tuple[Files, Occurring | None]:
    """Write what persons of block ``k`` have answered since, the items put in order.

    If asked to ``look``, return also which categories occur.  ``moves`` are other codes to write.
    """
    file = Bundle(spill.added_file(Path(m.job.runs), k))
    row, item, code = (file[name][:] for name in Cells._fields)
    if kept is not None:
        place = np.full(m.job.n_items, -1, dtype=np.int64)
        place[kept] = np.arange(kept.size)
        item = place[item]
    order = np.lexsort((item, row))
    written = code if moves is None else moves[item, code]
    files = part.write_supplement(k, Cells(row[order], item[order], written[order]))
    return files, of_cells(item, code, part.n_items) if look else None
