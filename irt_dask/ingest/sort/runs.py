"""All rows of one partition of persons, put together by person and sorted by first appearance.

What comes out is a *run*: persons in the order of their first rows, with identifiers, attributes
and (long sources) their responses; blocks merge the runs (:mod:`irt_dask.ingest.sort.blocks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from irt_dask.ingest.columns.rows import Bad
from irt_dask.ingest.sort import row_grouping, spill
from irt_dask.ingest.sort.partition import Job, PartitionRows
from irt_dask.ingest.sort.refused import Refused
from irt_dask.ingest.text import bundles
from irt_dask.ingest.text.bundles import Bundle

LISTED = 10  # identifiers that a message lists
Listed = tuple[int, list[str]]  # how many persons, and the first of them
NOWHERE = np.iinfo(np.int64).max  # key of the first row of an item that has none


@dataclass(frozen=True)
class Run:
    """What the driver keeps of a partition."""

    persons_of_piece: np.ndarray  # by the piece of their first row
    n_observed: int
    max_weight: float | None
    item_first: np.ndarray | None  # key of each item's first row; where rows may be put aside
    n_bad: int
    first_bad: tuple[int, Bad] | None  # its key, and the row
    already: Listed  # persons that the store has
    unmatched: Listed  # persons without a row in the table of persons
    unused: Listed  # rows of that table without a person here
    twice: tuple[str, int] | None  # a person who is in that table twice: message, line


def make_run(job: Job, p: int) -> Run:
    """Put partition ``p`` together."""
    rows = PartitionRows(job.pieces, p, item_maps=not job.wide)
    bad = Refused(job, rows)
    bad.differing()
    if job.one_row_per_person:
        bad.repeated_persons()
    order, firsts, rank = row_grouping.by_appearance(rows.person, len(rows.ids))
    ids, key = rows.ids.take(order), rows.key[firsts]
    columns = {n: c[firsts] for n, c in rows.columns.items() if n in ("weight", "group")}
    table = {"id": ids}
    if "group" in columns:
        assert rows.labels is not None
        table["group"] = rows.labels.take(columns.pop("group"))
    unmatched, unused, twice = _join(job, p, ids, columns, table)
    with bundles.writer(spill.run_file(Path(job.runs), p)) as to:
        if job.wide:
            to.add("row", rows.columns["row"][firsts])
            observed = rows.columns["observed"][firsts]
        else:
            observed = _responses(rows, rank, len(order), bad, to)
        to.add("indptr", row_grouping.ends_of(observed))
        to.add("key", key)
        for name, column in columns.items():
            to.add(name, column)
        for name, strings in table.items():
            to.add_strings(name, strings)
        spill.write_bad(to, sorted(bad.found, key=lambda f: f[0]))
    weight = columns.get("weight")
    return Run(
        persons_of_piece=np.bincount(
            key >> spill.PIECE_BITS, minlength=len(job.pieces.first_lines)
        ),
        n_observed=int(observed.sum()),
        max_weight=None if weight is None or not weight.size else float(weight.max()),
        item_first=None if job.wide or job.stop_at_bad else _item_first(rows, job.n_items),
        n_bad=len(bad.found),
        first_bad=min(bad.found, default=None, key=lambda f: f[0]),
        already=_known(job, p, ids),
        unmatched=unmatched,
        unused=unused,
        twice=twice,
    )


def _item_first(rows: PartitionRows, n_items: int) -> np.ndarray:
    item = rows.columns["item"]
    some = item >= 0
    first = row_grouping.first_rows(item[some], n_items)
    return np.append(rows.key[some], NOWHERE)[first]


def _responses(
    rows: PartitionRows, rank: np.ndarray, n_persons: int, bad: Refused, to: bundles.Writer
) -> np.ndarray:
    """Write responses by person and item; return how many each person has."""
    item = rows.columns["item"]
    n_items = int(item.max(initial=-1)) + 1
    g = row_grouping.group(rank[rows.person], item, rows.columns["code"], n_persons, n_items)
    keep = g.code >= 0
    if g.n_repeated:
        first = np.ones(g.row.size, dtype=bool)  # of its pair
        first[1:] = g.item[1:] != g.item[:-1]
        first[g.indptr[:-1][np.diff(g.indptr) > 0]] = True
        bad.repeated_pairs(g.row, first)
        keep &= first
    observed = np.diff(g.indptr)
    if keep.all():
        to.add("item", g.item)
        to.add("code", g.code)
        return observed
    to.add("item", g.item[keep])
    to.add("code", g.code[keep])
    return np.bincount(np.repeat(np.arange(n_persons), observed)[keep], minlength=n_persons)


_NONE: Listed = (0, [])


def _some(ids: pa.Array) -> Listed:
    return len(ids), ids.slice(0, LISTED).to_pylist()


def _known(job: Job, p: int, ids: pa.Array) -> Listed:
    """Persons that the store has already."""
    if job.known is None:
        return _NONE
    n, some = 0, list[str]()
    for k in range(job.n_known):  # one block of the store at a time
        piece = Bundle(spill.piece_file(Path(job.known), k))
        there = piece.strings("id", spill.part_rows(piece, p))
        found = ids.filter(pc.is_in(ids, value_set=there))
        n += len(found)
        some += found.slice(0, LISTED).to_pylist()
    return n, sorted(some)[:LISTED]


def _join(
    job: Job, p: int, ids: pa.Array, columns: dict[str, np.ndarray], table: dict[str, pa.Array]
) -> tuple[Listed, Listed, tuple[str, int] | None]:
    """Add the columns of the table of persons; report who is missing, unused or there twice."""
    if job.persons is None:
        return _NONE, _NONE, None
    given = PartitionRows(job.persons, p, item_maps=False)
    first = row_grouping.first_rows(given.person, len(given.ids))
    if len(given.person) > len(given.ids):
        row = int(np.flatnonzero(first[given.person] != np.arange(len(given.person)))[0])
        name = str(given.ids[int(given.person[row])])
        before = job.persons.place(given.key[first[given.person[row]]])
        message = f"the person {name!r} is on {before} already; keep one row per person"
        return _NONE, _NONE, (message, job.persons.line(given.key[row]))
    at = pc.index_in(ids, value_set=given.ids)
    unmatched = _some(ids.filter(at.is_null()))
    used = np.zeros(len(given.ids), dtype=bool)
    number = at.fill_null(-1).to_numpy(zero_copy_only=False)
    used[number[number >= 0]] = True
    unused = _some(given.ids.filter(~used))
    if unmatched[0]:
        return unmatched, unused, None
    rows = first[number]
    for name in ("weight", "covariates"):
        if name in given.columns:
            columns[name] = given.columns[name][rows]
    if "group" in given.columns:
        assert given.labels is not None
        table["group"] = given.labels.take(given.columns["group"][rows])
    return unmatched, unused, None
