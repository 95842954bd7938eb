"""All rows of one partition of persons, put together by person and sorted by first appearance.

What comes out is a *run*: persons in the order of their first rows, with identifiers, attributes
and (long sources) their responses; blocks merge the runs (:mod:`irt_dask.ingest.blocks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from irt_dask.ingest import bundles, row_grouping, spill
from irt_dask.ingest.bundles import Bundle
from irt_dask.ingest.refused import Refused
from irt_dask.ingest.sources import Bad

if TYPE_CHECKING:
    import pyarrow as pa

LISTED = 10  # identifiers that a message lists
NOWHERE = np.iinfo(np.int64).max  # key of the first row of an item that has none


@dataclass(frozen=True)
class Job:
    """What every partition needs to know."""

    folder: str  # of the source's pieces
    runs: str  # where the runs go
    n_pieces: int
    items: str  # file of the item ids, for messages
    n_items: int
    one_row_per_person: bool
    wide: bool
    attributes: dict[str, str]  # columns of weight and group, where the source has them
    unit: str  # "line", or "row" of a table
    stop_at_bad: bool  # only the first row that is refused matters
    first_lines: tuple[int, ...]  # number of each piece's first line in the source
    persons: str | None = None  # folder of the pieces of a table of persons
    persons_first_lines: tuple[int, ...] = ()
    persons_unit: str = "line"
    known: str | None = None  # folder of the identifiers that the store has already
    n_known: int = 0  # blocks there


@dataclass(frozen=True)
class Run:
    """What the driver keeps of a partition."""

    persons_of_piece: np.ndarray  # by the piece of their first row
    n_observed: int
    max_weight: float | None
    item_first: np.ndarray | None  # key of each item's first row; where rows may be put aside
    n_bad: int
    first_bad: tuple[int, Bad] | None  # its key, and the row
    already: tuple[int, list[str]]  # persons that the store has: how many, some of them
    unmatched: tuple[int, list[str]]  # persons without a row in the table of persons
    unused: tuple[int, list[str]]  # rows of that table without a person here
    twice: tuple[str, int] | None  # a person who is in that table twice: message, line


class PartitionRows:
    """The rows of a partition, in the order of the source."""

    def __init__(self, folder: Path, n_pieces: int, p: int, item_maps: bool) -> None:
        import pyarrow as pa

        parts: dict[str, list[Any]] = {}
        ids, groups, n_groups = [], [], 0
        for k in range(n_pieces):
            piece = Bundle(spill.piece_file(folder, k))
            rows = spill.part_rows(piece, p)
            ids.append(piece.strings("id", rows))
            columns: dict[str, np.ndarray] = {
                "key": piece["line"][rows].astype(np.int64) + (k << spill.PIECE_BITS)
            }
            for name in ("code", "row", "observed", "weight", "covariates", "item"):
                if name in piece:
                    columns[name] = piece[name][rows]
            if "item" in columns and item_maps:
                number = Bundle(spill.items_file(folder, k))["number"][:]
                columns["item"] = number[columns["item"]]
            if "group" in piece:
                labels = piece.strings("groups")
                columns["group"] = piece["group"][rows] + np.int32(n_groups)
                groups.append(labels)
                n_groups += len(labels)
            for name, column in columns.items():
                parts.setdefault(name, []).append(column)
        encoded = pa.concat_arrays(ids or [pa.array([], pa.string())]).dictionary_encode()
        self.person: np.ndarray = encoded.indices.to_numpy(zero_copy_only=False)
        self.ids: pa.Array = encoded.dictionary
        self.columns = {name: np.concatenate(part) for name, part in parts.items()}
        self.key = self.columns.pop("key") if parts else np.zeros(0, np.int64)
        self.labels: pa.Array | None = None
        if groups:
            encoded = pa.concat_arrays(groups).dictionary_encode()
            self.labels = encoded.dictionary
            number = encoded.indices.to_numpy(zero_copy_only=False)
            self.columns["group"] = number[self.columns["group"]]

    def keep(self, rows: np.ndarray) -> None:
        """Drop all rows but some."""
        self.person, self.key = self.person[rows], self.key[rows]
        self.columns = {name: c[rows] for name, c in self.columns.items()}


def make_run(job: Job, p: int) -> Run:
    """Put partition ``p`` together."""
    folder = spill.check_folder(job.folder)
    rows = PartitionRows(folder, job.n_pieces, p, item_maps=not job.wide)
    bad = Refused(job, rows)
    bad.differing()
    if job.one_row_per_person:
        bad.repeated_persons()
    first = row_grouping.first_rows(rows.person, len(rows.ids))
    order = np.argsort(first, kind="stable")
    order = order[: int((first < len(rows.person)).sum())]
    rank = np.full(len(rows.ids), -1, dtype=np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    ids, firsts = rows.ids.take(order), first[order]
    key = rows.key[firsts]
    columns = {n: c[firsts] for n, c in rows.columns.items() if n in ("weight", "group")}
    table = {"id": ids}
    if "group" in columns:
        assert rows.labels is not None
        table["group"] = rows.labels.take(columns.pop("group"))
    unmatched, unused, twice = _join(job, p, ids, columns, table)
    ends = np.zeros(key.size + 1, dtype=np.int64)
    with bundles.writer(spill.run_file(Path(job.runs), p)) as to:
        if job.wide:
            to.add("row", rows.columns["row"][firsts])
            observed = rows.columns["observed"][firsts].astype(np.int64)
        else:
            observed = _responses(rows, rank, len(order), bad, to)
        np.cumsum(observed, out=ends[1:])
        to.add("indptr", ends)
        to.add("key", key)
        for name, column in columns.items():
            to.add(name, column)
        for name, strings in table.items():
            to.add_strings(name, strings)
        bad.write(to)
    weight = columns.get("weight")
    return Run(
        persons_of_piece=np.bincount(key >> spill.PIECE_BITS, minlength=job.n_pieces),
        n_observed=int(ends[-1]),
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


_NONE: tuple[int, list[str]] = (0, [])


def _some(ids: pa.Array) -> tuple[int, list[str]]:
    return len(ids), ids.slice(0, LISTED).to_pylist()


def _known(job: Job, p: int, ids: pa.Array) -> tuple[int, list[str]]:
    """Persons that the store has already."""
    import pyarrow.compute as pc

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
) -> tuple[tuple[int, list[str]], tuple[int, list[str]], tuple[str, int] | None]:
    """Add the columns of the table of persons; report who is missing, unused or there twice."""
    import pyarrow.compute as pc

    if job.persons is None:
        return _NONE, _NONE, None
    given = PartitionRows(Path(job.persons), len(job.persons_first_lines), p, item_maps=False)
    first = row_grouping.first_rows(given.person, len(given.ids))
    if len(given.person) > len(given.ids):
        row = int(np.flatnonzero(first[given.person] != np.arange(len(given.person)))[0])
        lines = []
        for key in (given.key[first[given.person[row]]], given.key[row]):
            piece, offset = divmod(int(key), 1 << spill.PIECE_BITS)
            lines.append(job.persons_first_lines[piece] + offset)
        name = str(given.ids[int(given.person[row])])
        message = (
            f"the person {name!r} is on {job.persons_unit} {lines[0]} already; keep one row per "
            f"person"
        )
        return _NONE, _NONE, (message, lines[1])
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
