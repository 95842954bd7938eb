"""The steps of an ingest: scatter pieces, put partitions together, write blocks, commit."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from irt_dask.engine.tasks import Tasks, run_tasks
from irt_dask.errors import DataWarning, InputError, listed
from irt_dask.ingest.columns.values import Codes
from irt_dask.ingest.options import Options
from irt_dask.ingest.sort import spill
from irt_dask.ingest.sort.blocks import Stretch, cut, widest, write_blocks
from irt_dask.ingest.sort.partition import Job
from irt_dask.ingest.sort.quarantine import publish_quarantine, write_quarantine
from irt_dask.ingest.sort.runs import LISTED, NOWHERE, Listed, Run, make_run
from irt_dask.ingest.sort.spill import Pieces
from irt_dask.ingest.sources.opening import open_source, persons_table
from irt_dask.ingest.sources.source import Source
from irt_dask.ingest.text import bundles
from irt_dask.kernels.responses.layouts import SPARSE_BELOW
from irt_dask.store import Responses, open_responses
from irt_dask.store.draft import Draft, create, extend
from irt_dask.store.manifest import Files
from irt_dask.store.parts import Part
from irt_dask.store.responses import SAMPLING, check_item_ids
from irt_dask.store.writer import check_rows_per_block


def read_into(
    store: Any, path: Any, options: Options, client: Any, progress: Any, *, new: bool
) -> Responses:
    """See :func:`irt_dask.ingest` (a ``new`` store) and :func:`irt_dask.append`."""
    codes = options.checked()
    with (create if new else extend)(store) as draft, run_tasks(client, progress) as tasks:
        old = None if new else open_responses(store)
        return _Ingest(path, draft, options, codes, tasks, old).run()


class _Ingest:
    """One source on its way into one part."""

    def __init__(
        self, path: Any, draft: Draft, options: Options, codes: Codes, tasks: Tasks,
        old: Responses | None,
    ) -> None:  # fmt: skip
        self.draft, self.options, self.codes = draft, options, codes
        self.tasks, self.old = tasks, old
        self.weight_kind = options.weight_kind if old is None else old.weight_kind
        source = open_source(path, draft.scratch, shape=options.shape, columns=options.columns)
        self.source = source.with_weights(self.weight_kind)
        self.tables, self.persons = [self.source], persons_table(options.persons, draft.scratch)
        if self.persons is not None:
            self.persons = self.persons.with_weights(self.weight_kind)
            self.tables.append(self.persons)
        self.weighted = any(table.roles.weight is not None for table in self.tables)
        self.grouped = any(table.roles.group is not None for table in self.tables)
        self.covariates = self.tables[-1].roles.covariates  # a source of responses has none
        self.stop_at_bad = options.on_error == "raise"
        self.n_parts = spill.n_partitions(self.source.size)
        self.pieces_folder = self._folder("pieces")
        self.runs_folder = self._folder("runs")
        self._check_columns()

    def _folder(self, name: str) -> Path:
        folder = self.draft.scratch / name
        folder.mkdir()
        return folder

    def run(self) -> Responses:
        """Do all steps."""
        item_id = self._scatter()
        runs = self._runs(item_id)
        item_id, kept = self._kept_items(item_id)
        part, stretches, files = self._part(runs, item_id, kept)
        for written in self.tasks.run("write", write_blocks, [(s, part) for s in stretches]):
            files |= written
        weights = [r.max_weight for r in runs if r.max_weight is not None]
        aside = None
        if self.n_bad:
            aside = write_quarantine(
                self.draft, self.source, self.pieces, self.runs_folder, self.n_parts
            )
        with self.tasks.shown("upload") as uploaded:
            return self.draft.commit(
                part,
                files,
                item_id=item_id,
                max_weight=max(weights, default=None),
                weight_kind=self.weight_kind,
                covariates=self.covariates,
                n_quarantined=self.n_bad,
                before=lambda: publish_quarantine(self.draft, aside),
                uploaded=uploaded,
            )

    # --- what is known before anything is read ------------------------------------------------

    def _check_columns(self) -> None:
        source, old = self.source, self.old
        for role in ("weight", "group"):
            if sum(role in table.roles.single for table in self.tables) > 1:
                assert self.persons is not None
                raise source.error(
                    f"has a {role} column, and so has {self.persons.path}; leave one of them out"
                )
        if old is None:
            if self.weight_kind != SAMPLING and not self.weighted:
                raise source.error(
                    f"has no column of weights (nor has persons=), and weight_kind is "
                    f"{self.weight_kind!r}; name the column (columns={{'weight': ...}}) or leave "
                    f"weight_kind out"
                )
            return
        for what, has, had in (
            ("weights", self.weighted, old.max_weight is not None),
            ("groups", self.grouped, old.has_groups),
            ("covariates", self.covariates, old.covariate_names),
        ):
            if has != had:
                raise source.error(
                    f"brings {what}: {_said(has)}; the store {old.path} has {what}: {_said(had)}; "
                    f"what is appended must have the same"
                )

    # --- pieces -------------------------------------------------------------------------------

    def _spilled(
        self, stage: str, source: Source, codes: Codes | None, folder: Path, stop_at_bad: bool
    ) -> Iterator[tuple[spill.Scattered, InputError | None]]:
        """Spill all pieces; each comes with the error about its first bad row."""
        jobs = [
            (source, k, codes, self.n_parts, str(folder), stop_at_bad)
            for k in range(source.n_pieces)
        ]
        line = source.first_line
        for piece in self.tasks.run(stage, spill.scatter, jobs):
            error = None
            if piece.first_bad is not None:
                error = source.error(piece.first_bad.message, line + piece.first_bad.line)
                if stop_at_bad:
                    raise error
            line += piece.n_lines
            yield piece, error

    def _scatter(self) -> tuple[str, ...]:
        """Read every piece; return the items of the store."""
        source, codes = self.source, self.codes
        if source.item_id is not None:
            codes.check_items(source.item_id)
        n_lines: list[int] = []
        place = {} if self.old is None else {item: j for j, item in enumerate(self.old.item_id)}
        n_known = len(place)
        seen: set[str] = set()
        self.n_bad = n_rows = 0
        first_bad = None
        pieces = self._spilled("read", source, codes, self.pieces_folder, self.stop_at_bad)
        for k, (piece, error) in enumerate(pieces):
            first_bad = first_bad or error
            n_lines.append(piece.n_lines)
            n_rows += piece.n_rows
            self.n_bad += piece.n_bad
            if piece.items is not None:
                seen.update(piece.items)
                numbers = [place.setdefault(item, len(place)) for item in piece.items]
                # the last entry is for item -1, of rows that only make a person exist
                item_map = np.array([*numbers, -1], dtype=np.int32)
                with bundles.writer(spill.items_file(self.pieces_folder, k)) as to:
                    to.add("number", item_map)
        if n_rows == 0:
            raise first_bad or source.error("has a header but no rows")
        self.pieces = Pieces.of(source, self.pieces_folder, n_lines)
        if self.stop_at_bad:
            codes.check_items([item for item in place if item in seen])
        if not seen and source.item_id is None:
            raise source.error("has no item: nobody has a response")
        for item in source.item_id or ():
            place.setdefault(item, len(place))
        return self._items([*place], n_known)

    def _items(self, found: list[str], n_known: int) -> tuple[str, ...]:
        if self.old is None:
            return check_item_ids(found)
        unknown = sorted(found[n_known:])
        if unknown:
            raise self.source.error(
                f"has {len(unknown)} item(s) that the store {self.old.path} does not have: "
                f"{listed(unknown, LISTED)}; the items of a store are those of its first part"
            )
        return self.old.item_id

    # --- partitions ---------------------------------------------------------------------------

    def _runs(self, item_id: tuple[str, ...]) -> list[Run]:
        persons = self._scatter_persons()
        items = self.runs_folder / "items"
        with bundles.writer(items) as to:
            to.add_bytes("names", [json.dumps(item_id).encode()])
        job = Job(
            pieces=self.pieces,
            runs=str(self.runs_folder),
            items=str(items),
            n_items=len(item_id),
            one_row_per_person=self.source.one_row_per_person,
            wide=self.source.item_id is not None,
            attributes=self.source.roles.single,
            stop_at_bad=self.stop_at_bad,
            persons=persons,
            known=self._scatter_known(),
            n_known=0 if self.old is None else self.old.n_blocks,
        )
        self.item_first = np.full(len(item_id), NOWHERE)
        runs = []
        for run in self.tasks.run("sort", make_run, [(job, p) for p in range(self.n_parts)]):
            if run.item_first is not None:
                self.item_first = np.minimum(self.item_first, run.item_first)
            runs.append(replace(run, item_first=None))
        self._refuse(runs)
        self.n_bad += sum(r.n_bad for r in runs)
        return runs

    def _scatter_persons(self) -> Pieces | None:
        if self.persons is None:
            return None
        source, folder = self.persons, self._folder("persons")
        pieces = self._spilled("persons", source, None, folder, stop_at_bad=True)
        n_lines = [piece.n_lines for piece, _ in pieces]
        return Pieces.of(source, folder, n_lines)

    def _scatter_known(self) -> str | None:
        if self.old is None:
            return None
        folder = self._folder("known")
        jobs = [(ref, k, self.n_parts, str(folder)) for k, ref in enumerate(self.old.refs)]
        for _ in self.tasks.run("store", spill.scatter_ids, jobs):
            pass
        return str(folder)

    def _refuse(self, runs: list[Run]) -> None:
        """Raise what the partitions found, the first place in the source first."""
        bad = [r.first_bad for r in runs if r.first_bad is not None]
        if bad and self.stop_at_bad:
            key, first = min(bad, key=lambda b: b[0])
            raise self.source.error(first.message, self.pieces.line(key))
        for twice in (r.twice for r in runs if r.twice is not None):
            assert self.persons is not None
            raise self.persons.error(*twice)
        n, some = _together([r.already for r in runs])
        if n:
            assert self.old is not None
            raise self.source.error(
                f"{n} person(s) are in the store {self.old.path} already: {some}; "
                f"an append brings new persons only"
            )
        n, some = _together([r.unmatched for r in runs])
        if n:
            assert self.persons is not None
            raise self.persons.error(
                f"{n} person(s) of {self.source.path} have no row: {some}; add them"
            )
        n, some = _together([r.unused for r in runs])
        if n:
            assert self.persons is not None
            warnings.warn(
                f"{self.persons.path}: {n} person(s) have no responses in {self.source.path} and "
                f"are left out: {some}",
                DataWarning,
                stacklevel=6,
            )

    # --- blocks -------------------------------------------------------------------------------

    def _kept_items(self, item_id: tuple[str, ...]) -> tuple[tuple[str, ...], np.ndarray | None]:
        """Leave out items that only refused rows have; return the rest, and which if changed."""
        if self.stop_at_bad or self.source.item_id is not None:
            return item_id, None
        n = int((self.item_first < NOWHERE).sum())
        order = np.argsort(self.item_first, kind="stable")[:n]
        self.codes.check_items([item_id[j] for j in order])
        same = order.size == len(item_id) and (order == np.arange(order.size)).all()
        if same or self.old is not None:
            return item_id, None
        return tuple(item_id[j] for j in order), order

    def _part(
        self, runs: list[Run], item_id: tuple[str, ...], kept: np.ndarray | None
    ) -> tuple[Part, list[Stretch], Files]:
        """Decide on layout and blocks; make the part's metadata."""
        counts = np.stack([r.persons_of_piece for r in runs])
        n, m = int(counts.sum()), len(item_id)
        observed = sum(r.n_observed for r in runs)
        layout = self.options.layout if self.old is None else self.old.layout
        if layout == "auto":
            layout = "csr" if observed < SPARSE_BELOW * n * m else "dense"
        per_person = m if layout == "dense" else -(-observed // n)
        rows = check_rows_per_block(self.options.rows_per_block, per_person, n)
        columns = None
        if self.source.item_id is not None:
            place = {item: j for j, item in enumerate(item_id)}
            columns = np.array([place[item] for item in self.source.item_id], dtype=np.int32)
        where = Stretch(
            str(self.runs_folder), str(self.pieces_folder), columns, kept, m, self.grouped
        )
        stretches = cut(where, counts, rows, self.tasks.n_threads)
        capacity = 0
        if layout == "csr":
            capacity = max(self.tasks.run("plan", widest, [(s, rows) for s in stretches]))
        part = self.draft.part(
            layout=layout, n_persons=n, n_items=m, rows_per_block=rows, capacity=capacity,
            weighted=self.weighted, grouped=self.grouped, n_covariates=len(self.covariates),
        )  # fmt: skip
        return part, stretches, part.create()


def _said(has: bool | tuple[str, ...]) -> str:
    if isinstance(has, bool):
        return "yes" if has else "no"
    return ", ".join(has) or "none"


def _together(parts: Iterable[Listed]) -> tuple[int, str]:
    """Add up lists of identifiers of which each partition gives some."""
    counts, some = zip(*parts, strict=True)
    n = sum(counts)
    return n, listed(sorted(itertools.chain(*some)), LISTED, n)
