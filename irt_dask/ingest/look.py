"""A look at a file before it is read: what an ingest would make of it.

Every piece of a small file is read, of a large one the first, the one in the middle and the last.
What is read whole is also ingested for trial, into a temporary folder: so contradictions between
rows are found as an ingest finds them.
"""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from irt_dask.engine.progress import ProgressOption
from irt_dask.errors import DataWarning, InputError, IrtDaskWarning
from irt_dask.ingest import trials as attempts
from irt_dask.ingest.columns import unlisted
from irt_dask.ingest.columns.meanings import CODES
from irt_dask.ingest.columns.recorder import NOT_KNOWN, Recorder
from irt_dask.ingest.columns.rows import Rows
from irt_dask.ingest.columns.suspects import NONE_IS_ITEM, Seen, by_name, by_values
from irt_dask.ingest.columns.values import Codes
from irt_dask.ingest.options import Options
from irt_dask.ingest.run import read_into
from irt_dask.ingest.sort.occurring import recode_from_1
from irt_dask.ingest.sort.writing import DROPPED
from irt_dask.ingest.sources.opening import open_source, persons_table
from irt_dask.ingest.sources.source import Source, TextSource
from irt_dask.ingest.text.quotes import LINE_END
from irt_dask.store.categories import BINARY

#: Pieces of a file, of 16 MB and more, that are read; more are sampled.
_PIECES = 3
#: Persons are counted exactly up to so many, beyond by the smallest of their hashes.
_HASHES = 1 << 16
#: Bad rows of a piece that are kept.
_MOST = 50


@dataclass(frozen=True)
class Value:
    """A value that stands for responses: what it is taken for, how often, and in which columns."""

    text: str
    meaning: str  # right, wrong, code 2, ..., not observed, an answer, unknown
    n: int
    columns: tuple[str, ...]

    @property
    def unknown(self) -> bool:
        """Whether it is neither a response nor known to stand for none."""
        return self.meaning == NOT_KNOWN


@dataclass
class Look:
    """What was seen of a file."""

    source: Source
    n_bytes_read: int
    whole: bool  # all of it was read
    n_rows: int = 0
    n_bad: int = 0
    n_persons: int = 0
    n_cells: int = 0
    n_observed: int = 0
    items: tuple[str, ...] = ()  # those with responses; of a long file those seen
    empty: tuple[str, ...] = ()
    suspects: dict[str, str] = field(default_factory=dict)  # why these are perhaps no items
    values: list[Value] = field(default_factory=list)
    #: Of each item, where a trial ingest says it.
    n_categories: tuple[int, ...] = ()
    #: K that codes above 1 suggest, of columns of items or, in long files, of the responses; where
    #: nobody has said it.
    perhaps_categories: dict[str, int] = field(default_factory=dict)
    #: What makes codes from 0 of them, where these seem to begin at 1.
    perhaps_recode: dict[str, int] = field(default_factory=dict)
    perhaps_data: bool = True  # whether the highest codes in the data say so too
    weighted: bool = False  # persons have weights, here or in the second file
    grouped: bool = False  # and groups
    weights: tuple[float, float] | None = None  # the smallest and the largest
    groups: dict[str, int] | None = None
    notes: list[str] = field(default_factory=list)
    problem: str | None = None  # at which an ingest would stop
    covariates: tuple[str, ...] = ()  # here or in the second file
    unused: dict[str, str] = field(default_factory=dict)  # by role columns that are called so

    @property
    def share(self) -> float:
        """The part of the file that was read, by bytes."""
        return self.n_bytes_read / max(self.source.size, 1)

    @property
    def rows(self) -> int:
        """Rows of the file; an estimate, unless all was read."""
        return self.n_rows if self.whole else round(self.n_rows / self.share)

    @property
    def persons(self) -> int:
        """Persons of the file: an estimate, unless all was read; of a long one at least so many."""
        return self.rows if self.source.one_row_per_person and not self.whole else self.n_persons


def look_at(
    path: Any, options: Options, *, trials: str | int | None = None, everything: bool = False,
    progress: ProgressOption = None,
) -> Look:  # fmt: skip
    """Look at a file with the options of an ingest; ``trials`` as there.

    Raises InputError where the options or the columns are such that nothing can be read; what is
    wrong with rows is the ``problem`` of the look.
    """
    with (
        tempfile.TemporaryDirectory(prefix="irt_dask-look-") as scratch,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        column, given = trials if isinstance(trials, str) else None, options
        if column is not None:
            options = attempts.of_attempts(options, column)
        elif trials is not None:
            given = options = attempts.shares(options, trials)
        codes, folder = options.checked(), Path(scratch)
        with attempts.refused(column) if column else nullcontext():
            found = _read(path, options, codes, folder / "source", everything)
        if found is None:  # rows go over several lines
            options = replace(options, several_lines=True)
            found = _read(path, options, codes, folder / "again", everything)
            assert found is not None
        if column:
            _of_items(found)
        if found.whole:
            _try(found, path, given, column, folder / "store", progress)
    said = [str(w.message) for w in caught if issubclass(w.category, IrtDaskWarning)]
    found.notes = [*dict.fromkeys([*said, *found.notes])]
    return found


def _read(
    path: Any, options: Options, codes: Codes, scratch: Path, everything: bool
) -> Look | None:
    """Read pieces; None if a row seems to go on on the next line."""
    scratch.mkdir()
    source = open_source(
        path, scratch, shape=options.shape, columns=options.columns, exclude=options.exclude,
        dialect=options.dialect, joined=options.persons is not None,
    ).with_weights(options.weight_kind)  # fmt: skip
    persons = persons_table(
        options.persons, scratch, options.dialect, source, path, options.columns
    )
    options.check_dialect(*(table.path for table in (source, persons) if table is not None))
    if source.item_id is not None:
        codes.check_items(source.item_id, columns=True)
    n = source.n_pieces
    whole = everything or n <= _PIECES
    pieces = range(n) if whole else (0, n // 2, n - 1)
    recorder = Recorder.of(options.bound(codes, source, None))
    found = Look(source, sum(_size(source, k) for k in pieces), whole)
    tables = [table for table in (source, persons) if table is not None]
    roles = {role for table in tables for role in table.roles.single}
    found.weighted, found.grouped = "weight" in roles, "group" in roles
    found.covariates = source.roles.beside if persons is None else persons.roles.covariates
    lacking = {"weight", "group"} - roles
    for name in source.column_names:
        if name.casefold() in lacking and name not in source.roles.items:
            found.unused[name.casefold()] = name
    tally = _Tally(found)
    for k in pieces:
        rows = source.read(k, recorder, _MOST)
        if any(bad.runs_on for bad in rows.bad) and not options.several_lines:
            return None
        tally.add(rows, first=k == 0)
    if persons is not None:
        for k in range(persons.n_pieces if whole else min(persons.n_pieces, _PIECES)):
            tally.attributes(persons.read(k, None, _MOST))
    tally.finish(recorder, stops=options.on_error == "raise")
    if options.on_error != "raise":
        found.problem = None
    return found


def _size(source: Source, k: int) -> int:
    if isinstance(source, TextSource):
        first, stop = source.text.bounds(k)
        return stop - first
    return source.size // source.n_pieces


def _of_items(found: Look) -> None:
    """Make what was seen of attempts that of their items."""
    found.items = attempts.items_of(found.items)
    found.empty = tuple(i for i in attempts.items_of(found.empty) if i not in found.items)
    found.perhaps_categories, found.n_cells = {}, 0  # an answer is several rows
    if not found.whole:
        found.notes.append(attempts.NOT_SAID)


def _try(
    found: Look, path: Any, options: Options, column: str | None, store: Path,
    progress: ProgressOption,
) -> None:  # fmt: skip
    """Ingest the file into a folder that goes away; keep what is found only so."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if column:
                made = attempts.read_counted(store, path, options, column, None, progress)
                found.n_observed = attempts.n_answers(made)
            else:
                made = read_into(store, path, options, None, progress, new=True)
        except InputError as error:
            found.problem = str(error)
            return
    found.problem = None
    found.empty += tuple(item for item in found.items if item not in made.item_id)
    found.n_persons, found.items, found.n_bad = made.n_persons, made.item_id, made.n_quarantined
    found.n_cells = made.n_persons * made.n_items
    found.n_categories = made.n_categories
    found.notes += [
        str(w.message)
        for w in caught
        if DROPPED in str(w.message)
        or attempts.FEWER in str(w.message)
        or (
            issubclass(w.category, DataWarning)
            and not str(w.message).startswith(f"{found.source.path}: ")
        )  # that of the columns
    ]


# --- what is counted ------------------------------------------------------------------------------


class _Tally:
    """Adds up pieces."""

    def __init__(self, found: Look) -> None:
        self.found, self.roles = found, found.source.roles
        self._columns = found.source.item_id or ()
        self._seen = Seen.nothing(len(self._columns))
        self._items: dict[str, int] = {}  # of rows of responses: how many
        self._hashes = np.zeros(0, np.uint64)
        self._groups: Counter[str] = Counter()
        self._unlisted: unlisted.Unlisted = {}

    def add(self, rows: Rows, first: bool) -> None:
        """Count the rows of a piece."""
        found = self.found
        n_rows = rows.n_lines - rows.n_more
        found.n_rows += n_rows
        found.n_bad += n_rows - np.unique(rows.lines).size
        if rows.bad and found.problem is None:
            bad, line = rows.bad[0], None
            if first:
                line = found.source.first_line + rows.bad[0].line
            found.problem = str(found.source.error(bad.message, line))
        self._persons(rows.person)
        unlisted.add(self._unlisted, rows.unlisted)
        assert rows.codes is not None
        found.n_observed += int((rows.codes >= 0).sum())
        if rows.item is None:
            self._seen.add(Seen.of(rows.codes))
        else:
            number = rows.item.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            answered = number[(rows.codes >= 0) & (number >= 0)]
            n = np.bincount(answered, minlength=len(rows.item.dictionary))
            for name, count in zip(rows.item.dictionary.to_pylist(), n.tolist(), strict=True):
                self._items[name] = self._items.get(name, 0) + count
        self.attributes(rows)

    def attributes(self, rows: Rows) -> None:
        """Take weights and groups: of responses, or of a table of persons."""
        if rows.weight is not None and rows.weight.size:
            low, high = self.found.weights or (np.inf, -np.inf)
            self.found.weights = (
                min(low, float(rows.weight.min())), max(high, float(rows.weight.max()))
            )  # fmt: skip
        if rows.group is not None:
            for one in rows.group.value_counts().to_pylist():
                self._groups[one["values"]] += one["counts"]

    def _persons(self, ids: pa.StringArray) -> None:
        """Keep the smallest hashes of persons: all of them, where these are few."""
        hashes = pd.util.hash_array(ids.to_numpy(zero_copy_only=False), categorize=False)
        self._hashes = np.union1d(self._hashes, hashes)[:_HASHES]

    def finish(self, recorder: Recorder, stops: bool) -> None:
        """Draw the conclusions; bad rows count where they stop an ingest until they are mended."""
        found, n = self.found, self._hashes.size
        notes = [*found.source.notes, *filter(None, [unlisted.told(self._unlisted)])]
        found.notes += [f"{found.source.path}: {note}" for note in notes]
        found.n_persons = n
        if n == _HASHES:
            found.n_persons = round((n - 1) / (float(self._hashes[-1]) / 2.0**64))
        undecided = stops and found.n_bad > 0
        counts = self._items
        if self._columns:
            counts = {column: recorder.n_answers(column) for column in self._columns}
            if undecided:
                found.n_persons, found.n_observed = found.n_rows, sum(counts.values())
        elif undecided:  # which items bad rows answer is not known
            counts = {item: max(count, 1) for item, count in counts.items()}
        found.items = tuple(item for item, count in counts.items() if count)
        found.empty = tuple(item for item, count in counts.items() if not count)
        n_rows = found.n_persons
        if found.source.one_row_per_person and not undecided:  # some persons may stand there twice
            n_rows = max(n_rows, found.n_rows - found.n_bad)
        if found.source.one_row_per_person and not found.whole:  # of which persons are an estimate
            n_rows = found.n_rows - (0 if self._columns and undecided else found.n_bad)
        found.n_cells = n_rows * len(found.items)
        if self.roles.form == "wide":
            unknown = {item: recorder.n_unknown(item) for item in found.items}
            suspects = self._seen.constant(self._columns) | by_values(unknown)
            suspects |= by_name(found.items)
            found.suspects = {
                i: suspects[i] for i in found.items
                if i in suspects and i not in self.roles.confirmed
            }  # fmt: skip
            if found.items and len(found.suspects) == len(found.items):
                found.notes.append(f"{found.source.path}: {NONE_IS_ITEM}")
        if self._groups:
            found.groups = dict(self._groups.most_common())
        found.values = _values(recorder)
        _suggest(found, recorder)


def _values(recorder: Recorder) -> list[Value]:
    """Return the values by how often they stand for responses."""
    counts: Counter[tuple[str, str]] = Counter()
    columns: dict[tuple[str, str], list[str]] = {}
    for column, counter in recorder.seen.items():
        for text, n in counter.items():
            value = text.replace(LINE_END, " "), recorder.meaning(text, column)
            counts[value] += n
            columns.setdefault(value, []).append(column)
    return [
        Value(*value, n, tuple(c for c in columns[value] if c)) for value, n in counts.most_common()
    ]


def _suggest(look: Look, recorder: Recorder) -> None:
    """Note by column how many categories the codes suggest, if they may be more than two.

    Only where nobody has said what such codes mean.  A lone 7, 8 or 9 means more often that
    something is missing.
    """
    if recorder.limits.declared or recorder.key is not None:
        return
    codes = {
        column: {
            CODES[t] for t in counter if t in CODES and recorder.code_of(t, column) == CODES[t]
        }
        for column, counter in recorder.seen.items()
        if column not in look.suspects  # of ages and totals these are no categories
    }
    found = sorted({BINARY - 1}.union(*codes.values()))
    while found[-1] in (7, 8, 9) and found[-1] - 1 not in found:
        found.pop()
        look.perhaps_data = False
    highest = {column: max(of & {*found}, default=0) for column, of in codes.items()}
    high = {column: code for column, code in highest.items() if code >= BINARY}
    from_1 = bool(high) and 0 not in found
    if from_1:  # in no item, as what is recoded is so in all
        look.perhaps_recode = recode_from_1(max(high.values()))
    look.perhaps_categories = {column: code + (not from_1) for column, code in high.items()}
