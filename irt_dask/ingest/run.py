"""The steps of an ingest: scatter pieces, put partitions together, write blocks, commit."""

from __future__ import annotations

import itertools
import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from irt_dask.engine.tasks import Tasks, run_tasks
from irt_dask.errors import DataWarning
from irt_dask.ingest import bundles, spill
from irt_dask.ingest.blocks import Stretch, cut, widest, write_blocks
from irt_dask.ingest.options import Options
from irt_dask.ingest.persons import PersonsTable
from irt_dask.ingest.quarantine import publish_quarantine, write_quarantine
from irt_dask.ingest.runs import LISTED, NOWHERE, Job, Run, make_run
from irt_dask.ingest.sources import Source, open_source
from irt_dask.kernels.responses.layouts import SPARSE_BELOW
from irt_dask.store import Responses, open_responses
from irt_dask.store.draft import Draft, create, extend
from irt_dask.store.manifest import Files
from irt_dask.store.parts import Part
from irt_dask.store.responses import SAMPLING, check_item_ids
from irt_dask.store.writer import check_rows_per_block


def ingest(
    path: Any, store: str | os.PathLike[str], options: Options, client: Any, progress: Any
) -> Responses:
    """See :func:`irt_dask.ingest`."""
    with create(store) as draft, run_tasks(client, progress) as tasks:
        return _Ingest(path, draft, options, tasks, None).run()


def append(
    path: Any, store: str | os.PathLike[str], options: Options, client: Any, progress: Any
) -> Responses:
    """See :func:`irt_dask.append`."""
    with extend(store) as draft, run_tasks(client, progress) as tasks:
        return _Ingest(path, draft, options, tasks, open_responses(store)).run()


class _Ingest:
    """One source on its way into one part."""

    def __init__(
        self, path: Any, draft: Draft, options: Options, tasks: Tasks, old: Responses | None
    ) -> None:
        self.draft, self.options, self.tasks, self.old = draft, options, tasks, old
        self.source = open_source(path, draft.scratch, shape=options.shape, columns=options.columns)
        self.persons = PersonsTable.opened(options.persons, draft.scratch)
        kind = options.weight_kind if old is None else old.weight_kind
        self.source = self.source.with_weights(kind)
        if self.persons is not None:
            self.persons = replace(self.persons, source=self.persons.source.with_weights(kind))
        self.weight_kind = kind
        self.stop_at_bad = options.on_error == "raise"
        self.n_parts = spill.n_partitions(self.source.size)
        self.pieces = self._folder("pieces")
        self.runs_folder = self._folder("runs")
        self._check_columns()

    def _folder(self, name: str) -> Path:
        folder = self.draft.scratch / name
        folder.mkdir()
        return folder

    def run(self) -> Responses:
        """Do all steps."""
        item_id = self._scatter()
        self.item_first = np.full(len(item_id), NOWHERE)
        runs = self._runs(item_id)
        item_id, kept = self._kept_items(item_id)
        part, stretches, files = self._part(runs, item_id, kept)
        for written in self.tasks.run("write", write_blocks, [(s, part) for s in stretches]):
            files |= written
        weights = [r.max_weight for r in runs if r.max_weight is not None]
        aside = None
        if self.n_bad:
            aside = write_quarantine(
                self.draft, self.source, self.first_lines, self.pieces, self.runs_folder,
                self.n_parts,
            )  # fmt: skip
        with self.tasks.shown("upload") as uploaded:
            return self.draft.commit(
                part,
                files,
                item_id=item_id,
                max_weight=max(weights, default=None),
                weight_kind=self.weight_kind,
                covariates=self._covariates,
                n_quarantined=self.n_bad,
                before=lambda: publish_quarantine(self.draft, aside),
                uploaded=uploaded,
            )

    # --- what is known before anything is read ------------------------------------------------

    @property
    def _covariates(self) -> tuple[str, ...]:
        return () if self.persons is None else self.persons.source.covariates

    @property
    def _weighted(self) -> bool:
        table = self.persons
        return self.source.weighted or (table is not None and table.source.weighted)

    @property
    def _grouped(self) -> bool:
        table = self.persons
        return self.source.grouped or (table is not None and table.source.grouped)

    def _check_columns(self) -> None:
        source, persons, old = self.source, self.persons, self.old
        for role in ("weighted", "grouped"):
            if persons is not None and getattr(source, role) and getattr(persons.source, role):
                name = role.removesuffix("ed")
                raise source.error(
                    f"has a {name} column, and so has {persons.name}; leave one of them out"
                )
        if old is None:
            if self.weight_kind != SAMPLING and not self._weighted:
                raise source.error(
                    f"has no column of weights (nor has persons=), and weight_kind is "
                    f"{self.weight_kind!r}; name the column (columns={{'weight': ...}}) or leave "
                    f"weight_kind out"
                )
            return
        for what, has, had in (
            ("weights", self._weighted, old.max_weight is not None),
            ("groups", self._grouped, old.has_groups),
            ("covariates", _names(self._covariates), _names(old.covariate_names)),
        ):
            if has != had:
                raise source.error(
                    f"brings {what}: {_said(has)}; the store {old.path} has {what}: {_said(had)}; "
                    f"what is appended must have the same"
                )

    # --- pieces -------------------------------------------------------------------------------

    def _scatter(self) -> tuple[str, ...]:
        """Read every piece; return the items of the store."""
        codes = self.options.codes
        if self.source.item_id is not None:
            codes.check_items(self.source.item_id)
        lines: list[int] = []
        place = {} if self.old is None else {item: j for j, item in enumerate(self.old.item_id)}
        n_known = len(place)
        seen: set[str] = set()
        self.n_bad = n_rows = 0
        first_bad = None
        jobs = [
            (self.source, k, codes, self.n_parts, str(self.pieces), self.stop_at_bad)
            for k in range(len(self.source.pieces))
        ]
        for k, piece in enumerate(self.tasks.run("read", spill.scatter, jobs)):
            if piece.first_bad is not None and first_bad is None:
                line = self.source.first_line + sum(lines) + piece.first_bad.line
                first_bad = self.source.error(piece.first_bad.message, line)
                if self.stop_at_bad:
                    raise first_bad
            lines.append(piece.n_lines)
            n_rows += piece.n_rows
            self.n_bad += piece.n_bad
            if piece.items is not None:
                seen.update(piece.items)
                numbers = [place.setdefault(item, len(place)) for item in piece.items]
                # the last entry is for item -1, of rows that only make a person exist
                item_map = np.array([*numbers, -1], dtype=np.int32)
                with bundles.writer(spill.items_file(self.pieces, k)) as to:
                    to.add("number", item_map)
        if n_rows == 0:
            raise first_bad or self.source.error("has a header but no rows")
        self.first_lines = _first_lines(self.source, lines)
        if self.stop_at_bad:
            codes.check_items([item for item in place if item in seen])
        if not seen and self.source.item_id is None:
            raise self.source.error("has no item: nobody has a response")
        for item in self.source.item_id or ():
            place.setdefault(item, len(place))
        return self._items([*place], n_known)

    def _items(self, found: list[str], n_known: int) -> tuple[str, ...]:
        if self.old is None:
            return check_item_ids(found)
        unknown = sorted(found[n_known:])
        if unknown:
            more = f" and {len(unknown) - LISTED} more" if len(unknown) > LISTED else ""
            raise self.source.error(
                f"has {len(unknown)} item(s) that the store {self.old.path} does not have: "
                f"{', '.join(map(repr, unknown[:LISTED]))}{more}; the items of a store are those "
                f"of its first part"
            )
        return self.old.item_id

    # --- partitions ---------------------------------------------------------------------------

    def _runs(self, item_id: tuple[str, ...]) -> list[Run]:
        persons, persons_lines = self._scatter_persons()
        items = self.runs_folder / "items"
        with bundles.writer(items) as to:
            to.add_bytes("names", [json.dumps(item_id).encode()])
        job = Job(
            folder=str(self.pieces),
            runs=str(self.runs_folder),
            n_pieces=len(self.source.pieces),
            items=str(items),
            n_items=len(item_id),
            one_row_per_person=self.source.one_row_per_person,
            wide=self.source.item_id is not None,
            attributes={
                role: name
                for role, name in self.source.roles.single.items()
                if role in ("weight", "group")
            },
            unit=self.source.unit,
            stop_at_bad=self.stop_at_bad,
            first_lines=self.first_lines,
            persons=persons,
            persons_first_lines=persons_lines,
            persons_unit="line" if self.persons is None else self.persons.source.unit,
            known=self._scatter_known(),
            n_known=0 if self.old is None else self.old.n_blocks,
        )
        runs = []
        for run in self.tasks.run("sort", make_run, [(job, p) for p in range(self.n_parts)]):
            if run.item_first is not None:
                self.item_first = np.minimum(self.item_first, run.item_first)
            runs.append(replace(run, item_first=None))
        self._refuse(runs)
        self.n_bad += sum(r.n_bad for r in runs)
        return runs

    def _scatter_persons(self) -> tuple[str | None, tuple[int, ...]]:
        if self.persons is None:
            return None, ()
        source = self.persons.source
        folder = self._folder("persons")
        lines: list[int] = []
        jobs = [
            (source, k, None, self.n_parts, str(folder), True) for k in range(len(source.pieces))
        ]
        for piece in self.tasks.run("persons", spill.scatter, jobs):
            if piece.first_bad is not None:
                line = source.first_line + sum(lines) + piece.first_bad.line
                raise self.persons.error(piece.first_bad.message, line)
            lines.append(piece.n_lines)
        return str(folder), _first_lines(source, lines)

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
            line = self.first_lines[key >> spill.PIECE_BITS] + first.line
            raise self.source.error(first.message, line)
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
                f"{self.persons.name}: {n} person(s) have no responses in {self.source.path} and "
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
        self.options.codes.check_items([item_id[j] for j in order])
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
            columns = _places({item: j for j, item in enumerate(item_id)}, self.source.item_id)
        where = Stretch(str(self.runs_folder), str(self.pieces), columns, kept, m, self._grouped)
        stretches = cut(where, counts, rows, self.tasks.n_threads)
        capacity = 0
        if layout == "csr":
            capacity = max(self.tasks.run("plan", widest, [(s, rows) for s in stretches]))
        part = self.draft.part(
            layout=layout, n_persons=n, n_items=m, rows_per_block=rows, capacity=capacity,
            weighted=self._weighted, grouped=self._grouped, n_covariates=len(self._covariates),
        )  # fmt: skip
        return part, stretches, part.create()


def _names(covariates: tuple[str, ...]) -> str:
    return ", ".join(covariates) or "none"


def _said(has: Any) -> str:
    return ("yes" if has else "no") if isinstance(has, bool) else str(has)


def _places(place: dict[str, int], names: Sequence[str]) -> np.ndarray:
    return np.array([place[name] for name in names], dtype=np.int32)


def _first_lines(source: Source, lines: list[int]) -> tuple[int, ...]:
    return tuple(int(x) + source.first_line for x in np.cumsum([0, *lines[:-1]]))


def _together(parts: list[tuple[int, list[str]]]) -> tuple[int, str]:
    """Add up lists of identifiers of which each partition gives some."""
    n = sum(count for count, _ in parts)
    some = sorted(itertools.chain.from_iterable(ids for _, ids in parts))[:LISTED]
    return n, ", ".join(map(repr, some)) + (f" and {n - len(some)} more" if n > len(some) else "")
