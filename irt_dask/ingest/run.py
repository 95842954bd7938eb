"""The steps of an ingest: scatter pieces, put partitions together, write blocks, commit."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from irt_dask.engine.tasks import Tasks, run_tasks
from irt_dask.errors import DataWarning, InputError, Notice, listed
from irt_dask.ingest.columns import unlisted
from irt_dask.ingest.columns.values import Codes
from irt_dask.ingest.options import Options
from irt_dask.ingest.sort import spill
from irt_dask.ingest.sort.attributes import Attributes
from irt_dask.ingest.sort.blocks import Stretch, cut, widest
from irt_dask.ingest.sort.items import Items
from irt_dask.ingest.sort.joining import LISTED, refuse_table, together
from irt_dask.ingest.sort.known import ASIDE, MERGE, SKIP
from irt_dask.ingest.sort.merging import Compared, Merge, compare
from irt_dask.ingest.sort.partition import Job
from irt_dask.ingest.sort.quarantine import publish_alone, publish_quarantine, write_quarantine
from irt_dask.ingest.sort.runs import NOWHERE, Run, make_run, of_known
from irt_dask.ingest.sort.spill import Pieces
from irt_dask.ingest.sort.writing import Writing
from irt_dask.ingest.sources.opening import open_source, persons_table
from irt_dask.ingest.sources.source import Source
from irt_dask.ingest.text import bundles
from irt_dask.kernels.responses.layouts import SPARSE_BELOW
from irt_dask.store import Responses, labels, open_responses
from irt_dask.store.draft import Draft, create, extend
from irt_dask.store.manifest import Files
from irt_dask.store.parts import Part
from irt_dask.store.stored import reversed_of
from irt_dask.store.writer import check_rows_per_block


def read_into(
    store: Any, path: Any, options: Options, client: Any, progress: Any, *, new: bool
) -> Responses:
    """See :func:`irt_dask.ingest` (a ``new`` store) and :func:`irt_dask.append`."""
    codes = options.checked()
    with (create if new else extend)(store) as draft, run_tasks(client, progress) as tasks:
        old = None if new else open_responses(store)
        try:
            return _Ingest(path, draft, options, codes, tasks, old).run()
        except _RunsOnError:  # once more, from copies that have each row on one line
            again = draft.scratch / "again"
            again.mkdir()
            draft, options = replace(draft, scratch=again), replace(options, several_lines=True)
            return _Ingest(path, draft, options, codes, tasks, old).run()


class _RunsOnError(Exception):
    """A quote is open at the end of a line: rows may go over several lines."""


class _Ingest:
    """One source on its way into one part."""

    def __init__(
        self, path: Any, draft: Draft, options: Options, codes: Codes, tasks: Tasks,
        old: Responses | None,
    ) -> None:  # fmt: skip
        self.draft, self.options, self.tasks, self.old = draft, options, tasks, old
        self.weight_kind = options.weight_kind if old is None else old.weight_kind
        dialect, scratch = options.dialect, draft.scratch
        self.source = open_source(
            path, scratch, shape=options.shape, columns=options.columns, exclude=options.exclude,
            dialect=dialect, joined=options.persons is not None,
        ).with_weights(self.weight_kind)  # fmt: skip
        self.codes = options.bound(codes, self.source, old)
        self.tables = [self.source]
        self.persons = persons_table(
            options.persons, scratch, dialect, self.source, path, options.columns, old
        )
        if self.persons is not None:
            self.persons = self.persons.with_weights(self.weight_kind)
            self.tables.append(self.persons)
        options.check_dialect(*(table.path for table in self.tables))
        has = Attributes.of(self.tables)
        self.weighted, self.grouped, self.covariates = has[:3]
        self.labels = {name: set[str]() for name in has.labels}
        self.unlisted: unlisted.Unlisted = {}
        self.stop_at_bad = options.on_error == "raise"
        self.merging = options.on_duplicate == MERGE
        self.partly = not self.stop_at_bad or options.on_duplicate in (SKIP, ASIDE)
        self.n_parts = spill.n_partitions(self.source.size)
        self.pieces_folder = self._folder("pieces")
        self.runs_folder = self._folder("runs")
        self.unlike = has.check(self.tables, self.weight_kind, old, self.merging)

    def _folder(self, name: str) -> Path:
        folder = self.draft.scratch / name
        folder.mkdir()
        return folder

    def run(self) -> Responses:
        """Do all steps."""
        item_id = self._scatter()
        runs = self._runs(item_id)
        merge, merged = self._compared(runs, item_id)
        self._tell_of_files()
        item_id, kept = self._kept_items(item_id)
        self.items.tell(item_id)
        self._tell_of_reversed()
        aside = self._aside(merged)
        if self._adds_nothing(runs, item_id, merged, aside):
            assert self.old is not None
            return self.old
        part, stretches, files = self._part(runs, item_id, kept, merged)
        writing = Writing(part, stretches, [(merge, m.block) for m in merged if m.n_added], kept)
        written = writing.finish(
            self.tasks, item_id, 0 if self.old is None else self.old.n_items, self.codes.limits,
            self.source.path, self.options.nulls_of(self.source), self.codes.plain,
        )  # fmt: skip
        weights = [r.max_weight for r in runs if r.max_weight is not None]
        with self.tasks.shown("upload") as uploaded:
            return self.draft.commit(
                part, files | written.files, item_id=item_id, categories=written.categories,
                collapsed=written.collapsed, is_reversed=self.codes.reverse.takes,
                max_weight=max(weights, default=None),
                weight_kind=self.weight_kind,
                covariates=self.covariates,
                labels=labels.together([self.labels]),
                n_quarantined=self.n_bad,
                merged=(sum(m.n_persons for m in merged), sum(m.n_added for m in merged)),
                nonresponse=self.codes.nonresponse,
                before=lambda: publish_quarantine(self.draft, aside),
                uploaded=uploaded,
            )  # fmt: skip

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
            if piece.runs_on:
                raise _RunsOnError
            error = None
            if piece.first_bad is not None:
                error = source.error(piece.first_bad.message, line + piece.first_bad.line)
                if stop_at_bad:
                    raise error
            line += piece.n_lines
            labels.add(self.labels, piece.labels)
            unlisted.add(self.unlisted, piece.unlisted)
            yield piece, error

    def _scatter(self) -> tuple[str, ...]:
        """Read every piece; return the items of the store, then new ones as they first appear."""
        source, codes = self.source, self.codes
        if source.item_id is not None:
            codes.check_items(source.item_id, columns=True)
        n_lines: list[int] = []
        self.items = Items(source, self.old)
        self.n_bad = n_rows = 0
        first_bad = None
        pieces = self._spilled("read", source, codes, self.pieces_folder, self.stop_at_bad)
        for k, (piece, error) in enumerate(pieces):
            first_bad = first_bad or error
            n_lines.append(piece.n_lines)
            n_rows += piece.n_rows
            self.n_bad += piece.n_bad
            item_map = self.items.add(piece)
            if item_map is not None:
                with bundles.writer(spill.items_file(self.pieces_folder, k)) as to:
                    to.add("number", item_map)
        if n_rows == 0:
            raise first_bad or source.error("has a header but no rows")
        self.pieces = Pieces.of(source, self.pieces_folder, n_lines)
        if self.stop_at_bad:
            codes.check_items(self.items.read())
        if source.item_id is None:
            codes.reverse.check(self.items.named, "reverse=[{}]")
            known = () if self.old is None else self.old.item_id
            codes.item_recodes.check(self.items.named, known, codes.limits)
        if unused := codes.limits.unused(self.items.named):
            text = f"categories= names {len(unused)} item(s) that are not in the file: "
            warnings.warn(
                f"{source.path}: {text}{listed(unused, LISTED)}", DataWarning, stacklevel=5
            )
        return self.items.found()

    # --- partitions ---------------------------------------------------------------------------

    def _runs(self, item_id: tuple[str, ...]) -> list[Run]:
        persons = self._scatter_persons()
        items = self.runs_folder / "items"
        with bundles.writer(items) as to:
            to.add_bytes("names", [json.dumps(item_id).encode()])
        self.job = Job(
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
            on_duplicate=self.options.on_duplicate,
            partly=self.partly,
            columns=self.items.columns(item_id) if self._may_lose(item_id) else None,
            covariates=self.covariates,
            labels=tuple(self.labels),
        )
        self.item_first = np.full((2, len(item_id)), NOWHERE)
        runs = []
        for run in self.tasks.run("sort", make_run, [(self.job, p) for p in range(self.n_parts)]):
            if run.item_first is not None:
                self.item_first = np.minimum(self.item_first, run.item_first)
            runs.append(replace(run, item_first=None))
        self._refuse(runs)
        self.n_bad += sum(r.n_bad for r in runs)
        return runs

    def _scatter_persons(self) -> Pieces | None:
        if self.persons is None:
            return None
        folder = self._folder("persons")
        pieces = self._spilled("persons", self.persons, None, folder, stop_at_bad=True)
        return Pieces.of(self.persons, folder, [piece.n_lines for piece, _ in pieces])

    def _scatter_known(self) -> str | None:
        if self.old is None:
            return None
        folder = self._folder("known")
        jobs = [
            (ref, k, self.n_parts, str(folder), self.merging) for k, ref in enumerate(self.old.refs)
        ]
        for _ in self.tasks.run("store", spill.scatter_known, jobs):
            pass
        return str(folder)

    def _refuse(self, runs: list[Run]) -> None:
        """Raise what the partitions found, the first place in the source first."""
        self._refuse_first(runs)
        if self.old is not None:
            text = of_known(self.source, self.old.path, self.options.on_duplicate, runs)
            if text is not None:
                warnings.warn(text, Notice, stacklevel=6)
        if self.persons is not None:
            unused = refuse_table(
                self.persons, self.source.path, [r.table for r in runs], self.labels
            )
            if unused is not None:
                warnings.warn(unused, DataWarning, stacklevel=6)
        n, said = together([r.new for r in runs])
        if n and self.unlike is not None:
            raise InputError(f"{self.unlike} for the {n} person(s) who are new: {said}")

    # --- persons whom the store has -----------------------------------------------------------

    def _compared(self, runs: list[Run], item_id: tuple[str, ...]) -> tuple[Merge, list[Compared]]:
        """Compare rows of persons who are merged with the store."""
        merge = Merge(self.job, self.n_parts, self.items.columns(item_id))
        blocks = np.unique(np.concatenate([r.blocks for r in runs])).tolist()
        refs = () if self.old is None else self.old.refs
        merged = []
        for m in self.tasks.run("compare", compare, [(merge, refs[k], k) for k in blocks]):
            self.item_first = np.minimum(self.item_first, m.item_first)
            merged.append(replace(m, item_first=None))
        self._refuse_first(merged)
        self.n_bad += sum(m.n_bad for m in merged)
        return merge, merged

    def _refuse_first(self, found: Iterable[Run | Compared]) -> None:
        """Raise the error about the first row that is refused, if that ends all."""
        bad = [f.first_bad for f in found if f.first_bad is not None]
        if bad and self.stop_at_bad:
            key, first = min(bad, key=lambda b: b[0])
            raise self.source.error(first.message, self.pieces.line(key))

    def _aside(self, merged: list[Compared]) -> Path | None:
        """Write the rows that were refused to a file, if there are any."""
        if not self.n_bad:
            return None
        compared = [m.block for m in merged if m.n_bad]
        return write_quarantine(
            self.draft, self.source, self.pieces, self.runs_folder, self.n_parts, compared
        )

    def _adds_nothing(
        self, runs: list[Run], item_id: tuple[str, ...], merged: list[Compared], aside: Path | None
    ) -> bool:
        """Whether the store has all of it already; say so, and which items join it otherwise."""
        if self.old is None:
            return False
        new = item_id[self.old.n_items :]
        if new:
            warnings.warn(
                f"{self.source.path}: {len(new)} item(s) are new to the store {self.old.path} and "
                f"join it: {listed(new, LISTED)}",
                Notice,
                stacklevel=5,
            )
        n = sum(r.new[0] for r in runs) + sum(m.n_added for m in merged) + len(new)
        if n == 0:
            text = f"{self.source.path} adds nothing to the store {self.old.path}"
            if aside is not None:
                file = publish_alone(self.draft, aside)
                text += f"; {self.n_bad} row(s) are put aside in {file.name}"
            warnings.warn(text, Notice, stacklevel=5)
        return n == 0

    def _tell_of_files(self) -> None:
        if (text := unlisted.told(self.unlisted)) is not None:
            warnings.warn(f"{self.source.path}: {text}", DataWarning, stacklevel=5)
        for table in self.tables:
            for note in table.notes:
                warnings.warn(f"{table.path}: {note}", Notice, stacklevel=5)
        has = {"weight": self.weighted, "group": self.grouped}
        for name in self.source.column_names:
            role = name.casefold()
            if not has.get(role, True) and name not in self.source.roles.items:
                text = (
                    f"the column {name!r} is not used; columns={{{role!r}: {name!r}}} would do so"
                )
                warnings.warn(f"{self.source.path}: {text}", Notice, stacklevel=5)

    def _tell_of_reversed(self) -> None:
        """Warn of items of the store whose codes run the other way in this file, as it is said."""
        if self.old is None or self.codes.key is not None:
            return
        before, known = {*reversed_of(self.old)}, {*self.old.item_id}
        read = [item for item in self.items.named if item in known]
        now = {*filter(self.codes.reverse.takes, read)}
        for how, other, those in (
            ("leaves out", "are", before - now),
            ("names", "are not", now - before),
        ):
            if named := [item for item in read if item in those]:
                warnings.warn(
                    f"{self.source.path}: reverse= {how} {len(named)} item(s) of the store "
                    f"{self.old.path} whose codes {other} reversed there: "
                    f"{listed(named, LISTED)}; unless this file counts them the other way than "
                    f"the first one did, its responses to them are upside down",
                    DataWarning,
                    stacklevel=5,
                )

    # --- blocks -------------------------------------------------------------------------------

    def _kept_items(self, item_id: tuple[str, ...]) -> tuple[tuple[str, ...], np.ndarray | None]:
        """Leave out new items that nobody answered; return the rest, and which if changed."""
        wide = self.source.item_id is not None and self.job.columns is None
        first = self.item_first if self.partly and not wide else None
        if first is not None and self.source.item_id is None:
            self.codes.check_items([item_id[j] for j in np.flatnonzero(first[0] < NOWHERE)])
        return self.items.kept(item_id, first)

    def _may_lose(self, item_id: tuple[str, ...]) -> bool:
        """Whether items of a wide source may turn out to be those of rows that are left out."""
        return self.partly and self.old is not None and len(item_id) > self.old.n_items

    def _part(
        self, runs: list[Run], item_id: tuple[str, ...], kept: np.ndarray | None,
        merged: list[Compared],
    ) -> tuple[Part, list[Stretch], Files]:  # fmt: skip
        """Decide on layout and blocks; make the part's metadata."""
        counts = np.stack([r.persons_of_piece for r in runs])
        n, m = int(counts.sum()), len(item_id)
        observed = sum(r.n_observed for r in runs)
        layout = self.options.layout if self.old is None else self.old.layout
        if layout == "auto":
            layout = "csr" if observed < SPARSE_BELOW * n * m else "dense"
        least = max(n, 1)  # an append may add to persons of before alone
        per_person = m if layout == "dense" else -(-observed // least)
        rows = check_rows_per_block(self.options.rows_per_block, per_person, least)
        where = Stretch(
            str(self.runs_folder), str(self.pieces_folder), self.items.columns(item_id), kept, m,
            self.grouped,
        )  # fmt: skip
        stretches = cut(where, counts, rows, self.tasks.n_threads)
        capacity = 0
        if layout == "csr":
            widths = self.tasks.run("plan", widest, [(s, rows) for s in stretches])
            capacity = max(widths, default=0)
        part = self.draft.part(
            layout=layout, n_persons=n, n_items=m, rows_per_block=rows, capacity=capacity,
            weighted=self.weighted, grouped=self.grouped, n_covariates=len(self.covariates),
            n_blocks_before=0 if self.old is None else self.old.n_blocks,
            most_added=max((c.n_added for c in merged), default=0),
        )  # fmt: skip
        return part, stretches, part.create()
