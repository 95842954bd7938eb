"""All rows of one partition of persons, put together by person and sorted by first appearance.

What comes out is a *run*: persons in the order of their first rows, with identifiers, attributes
and (long sources) their responses; blocks merge the runs (:mod:`irt_dask.ingest.sort.blocks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from irt_dask.ingest.columns.rows import Bad
from irt_dask.ingest.sort import row_grouping, spill
from irt_dask.ingest.sort.blocks import source_rows
from irt_dask.ingest.sort.joining import NONE, Joined, Listed, People, join, some, together
from irt_dask.ingest.sort.known import ASIDE, BLOCK_BITS, MERGE, RAISE, SKIP, Known
from irt_dask.ingest.sort.partition import Job, PartitionRows
from irt_dask.ingest.sort.refused import Refused
from irt_dask.ingest.sort.row_grouping import Grouped
from irt_dask.ingest.sources.source import Source
from irt_dask.ingest.text import bundles

NOWHERE = np.iinfo(np.int64).max  # key of the first row of an item that has none


@dataclass(frozen=True)
class Run:
    """What the driver keeps of a partition."""

    persons_of_piece: np.ndarray  # those who are new, by the piece of their first row
    n_observed: int  # responses of theirs
    max_weight: float | None
    item_first: np.ndarray | None  # of each item, first row and response; if rows are left out
    n_bad: int
    first_bad: tuple[int, Bad] | None  # its key, and the row
    new: Listed  # persons who are new
    already: Listed  # persons whom the store has
    n_left_out: int  # rows of theirs
    blocks: np.ndarray  # where in the store those are who are merged
    table: Joined


def of_known(source: Source, store: Any, on_duplicate: str, runs: Sequence[Run]) -> str | None:
    """Raise that ``store`` has persons already; return what is to be said of them."""
    n, who = together([r.already for r in runs])
    if n and on_duplicate == RAISE:
        raise source.error(
            f"{n} person(s) are in the store {store} already: {who}; say what becomes of their "
            f"rows: on_duplicate='merge' (what was not observed is filled), or skip or quarantine"
        )
    if n == 0 or on_duplicate != SKIP:
        return None
    rows = sum(r.n_left_out for r in runs)
    return (
        f"{source.path}: {n} person(s) are in the store {store} already, and their {rows} row(s) "
        f"are left out: {who}"
    )


def make_run(job: Job, p: int) -> Run:
    """Put partition ``p`` together."""
    rows = PartitionRows(job.pieces, p, item_maps=not job.wide)
    bad, known = Refused(job, rows), Known.find(job, p, rows.ids)
    already, n_left_out = _left_out(job, rows, bad, known)
    bad.differing()
    if job.one_row_per_person:
        bad.repeated_persons()
    if job.on_duplicate == MERGE:
        bad.changed(known)
    people = _people(job, rows, known)
    order, firsts, _, n_new = people
    if job.on_duplicate == RAISE:
        already = some(rows.ids.take(order[known.place[order] >= 0]))
    columns = {n: c[firsts] for n, c in rows.columns.items() if n in ("weight", "group")}
    table = {"id": rows.ids.take(order)}
    if "group" in columns:
        assert rows.labels is not None
        table["group"] = rows.labels.take(columns.pop("group"))
    joined = join(job, p, people, known, columns, table)
    key = rows.key[firsts[:n_new]]
    with bundles.writer(spill.run_file(Path(job.runs), p)) as to:
        if job.wide:
            to.add("row", rows.columns["row"][firsts[:n_new]])
            indptr = row_grouping.ends_of(rows.columns["observed"][firsts[:n_new]])
            cells = None
        else:
            cells = _responses(rows, people, bad)
            end = int(cells.indptr[n_new])
            indptr = cells.indptr[: n_new + 1]
            to.add("item", cells.item[:end])
            to.add("code", cells.code[:end])
        blocks = _write_known(job, p, rows, known, people, cells)
        to.add("indptr", indptr)
        to.add("key", key)
        for name, column in columns.items():
            to.add(name, column[:n_new])
        for name, strings in table.items():
            to.add_strings(name, strings.slice(0, n_new))
        spill.write_bad(to, sorted(bad.found + bad.aside, key=lambda f: f[0]))
    weight = columns.get("weight", np.zeros(0))[:n_new]
    return Run(
        persons_of_piece=np.bincount(
            key >> spill.PIECE_BITS, minlength=len(job.pieces.first_lines)
        ),
        n_observed=int(indptr[-1]),
        max_weight=float(weight.max()) if weight.size else None,
        item_first=_item_first(job, rows, known, cells),
        n_bad=len(bad.found) + len(bad.aside),
        first_bad=min(bad.found, default=None, key=lambda f: f[0]),
        new=some(rows.ids.take(order[:n_new])),
        already=already,
        n_left_out=n_left_out,
        blocks=blocks,
        table=joined,
    )


def _left_out(job: Job, rows: PartitionRows, bad: Refused, known: Known) -> tuple[Listed, int]:
    """Leave out rows of persons whom the store has, where that is asked for; who, and how many."""
    if job.on_duplicate not in (SKIP, ASIDE):
        return NONE, 0
    old = known.place[rows.person] >= 0
    n = np.unique(rows.key[old]).size
    if job.on_duplicate == ASIDE:
        bad.there(known)
    else:
        rows.keep(~old)
    return some(known.ids), n


def _people(job: Job, rows: PartitionRows, known: Known) -> People:
    """Put persons in order."""
    order, firsts, rank = row_grouping.by_appearance(rows.person, len(rows.ids))
    place = known.place[order]
    if job.on_duplicate != MERGE or (place < 0).all():
        return People(order, firsts, rank, order.size)
    again = np.argsort(place, kind="stable")
    order, firsts = order[again], firsts[again]
    rank[order] = np.arange(order.size, dtype=rank.dtype)
    return People(order, firsts, rank, int((place < 0).sum()))


def _item_first(
    job: Job, rows: PartitionRows, known: Known, cells: Grouped | None
) -> np.ndarray | None:
    """Keys of each item's first row and of its first response, where rows may be left out.

    Of sources with a row per person those rows do not count of which a comparison with the store
    decides; of wide ones the key says no more than that there is one.
    """
    if not job.partly or (job.wide and job.columns is None):
        return None
    new = known.place[rows.person] < 0
    if cells is None:
        assert job.columns is not None
        first = np.full((2, job.n_items), NOWHERE)
        piece, row = rows.key[new] >> spill.PIECE_BITS, rows.columns["row"][new]
        for _, found in source_rows(job.pieces.folder, piece, row):
            place = job.columns[(found >= 0).any(axis=0)]
            first[:, place[place >= 0]] = 0
        return first
    item = rows.columns["item"]
    counted = (item >= 0) & new if job.one_row_per_person else item >= 0
    answered = np.zeros(item.size, dtype=bool)
    answered[cells.row] = True
    return np.stack([
        np.append(rows.key[some], NOWHERE)[row_grouping.first_rows(item[some], job.n_items)]
        for some in (counted, counted & answered)
    ])  # fmt: skip


def _responses(rows: PartitionRows, people: People, bad: Refused) -> Grouped:
    """Responses by person and item; refuse repeated ones."""
    item, n = rows.columns["item"], people.order.size
    n_items = int(item.max(initial=-1)) + 1
    g = row_grouping.group(people.rank[rows.person], item, rows.columns["code"], n, n_items)
    keep = g.code >= 0
    if g.n_repeated:
        first = np.ones(g.row.size, dtype=bool)  # of its pair
        first[1:] = g.item[1:] != g.item[:-1]
        first[g.indptr[:-1][np.diff(g.indptr) > 0]] = True
        bad.repeated_pairs(g.row, first)
        keep &= first
    if keep.all():
        return g
    person = np.repeat(np.arange(n), np.diff(g.indptr))[keep]
    indptr = row_grouping.ends_of(np.bincount(person, minlength=n))
    return Grouped(indptr, g.row[keep], g.item[keep], g.code[keep], 0)


def _write_known(
    job: Job, p: int, rows: PartitionRows, known: Known, people: People, cells: Grouped | None
) -> np.ndarray:
    """Write the rows of those who are merged, by block of the store; return the blocks."""
    if job.on_duplicate != MERGE:
        return np.zeros(0, dtype=np.int64)
    order, firsts, _, n = people
    place = known.place[order[n:]]
    blocks, first = np.unique(place >> BLOCK_BITS, return_index=True)
    with bundles.writer(spill.known_file(Path(job.runs), p)) as to:
        to.add("block", blocks)
        to.add("ptr", np.append(first, place.size))
        to.add("at", place & ((1 << BLOCK_BITS) - 1))
        if cells is None:
            to.add("key", rows.key[firsts[n:]])
            to.add("row", rows.columns["row"][firsts[n:]])
        else:
            begin = int(cells.indptr[n])
            to.add("indptr", cells.indptr[n:] - begin)
            to.add("item", cells.item[begin:])
            to.add("code", cells.code[begin:])
            to.add("key", rows.key[cells.row[begin:]])
    return blocks
