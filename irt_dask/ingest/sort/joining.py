"""The persons of a partition with what the table of persons says of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from irt_dask.errors import listed
from irt_dask.ingest.columns.meanings import NOT_OBSERVED
from irt_dask.ingest.sort import row_grouping
from irt_dask.ingest.sort.known import Known
from irt_dask.ingest.sort.partition import Job, PartitionRows
from irt_dask.ingest.sources.source import Source

LISTED = 10  # identifiers that a message lists
Listed = tuple[int, list[str]]  # how many persons, and the first of them
NONE: Listed = (0, [])


class People(NamedTuple):
    """The persons of a partition: new ones as they appear, then those to merge, by place."""

    order: np.ndarray  # numbers of their identifiers
    firsts: np.ndarray  # their first rows
    rank: np.ndarray  # place of each identifier in that order
    n_new: int


class Joined(NamedTuple):
    """What the table of persons says of a partition."""

    unmatched: Listed = NONE  # new persons without a row there
    unused: Listed = NONE  # rows without a person here
    changed: Listed = NONE  # persons to merge who have other attributes there; with these
    twice: tuple[str, int] | None = None  # a person who is there twice: message, line


def some(ids: pa.Array) -> Listed:
    """How many there are, and the first of them."""
    return len(ids), ids.slice(0, LISTED).to_pylist()


def together(parts: Iterable[Listed]) -> tuple[int, str]:
    """Add up lists of identifiers of which each partition gives some."""
    counts, names = zip(*parts, strict=True)
    n = sum(counts)
    return n, listed(sorted(itertools.chain(*names)), LISTED, n)


def refuse_table(
    table: Source, path: Any, found: Sequence[Joined], labels: Mapping[str, Iterable[str]]
) -> str | None:
    """Raise what is wrong with the table of persons of ``path``; return what is to be said."""
    for twice in (f.twice for f in found if f.twice is not None):
        raise table.error(*twice)
    n, names = together([f.unmatched for f in found])
    if n:
        raise table.error(f"{n} person(s) of {path} have no row: {names}; add them")
    n = sum(f.changed[0] for f in found)
    if n:
        texts = sorted(itertools.chain(*(f.changed[1] for f in found)))[:LISTED]
        raise table.error(
            f"{n} person(s) are in the store with other attributes: {', '.join(texts)}"
            f"{', ...' if n > len(texts) else ''}; those of a person who is merged must be the "
            f"same, or the row left out"
        )
    said = [
        f"the labels of {name!r} have {listed(words)}, which may stand for what is not known, and "
        f"are labels like others: leave cells empty for that"
        for name, own in labels.items() if (words := sorted({*own} & {*NOT_OBSERVED}))
    ]  # fmt: skip
    n, names = together([f.unused for f in found])
    if n:
        said.append(f"{n} person(s) have no responses in {path} and are left out: {names}")
    return f"{table.path}: {'; '.join(said)}" if said else None


def join(
    job: Job, p: int, people: People, known: Known, columns: dict[str, np.ndarray],
    table: dict[str, pa.Array],
) -> Joined:  # fmt: skip
    """Add the columns of the table of persons; report who is missing, unused or there twice."""
    if job.persons is None:
        return Joined()
    given = PartitionRows(job.persons, p, item_maps=False)
    first = row_grouping.first_rows(given.person, len(given.ids))
    if len(given.person) > len(given.ids):
        row = int(np.flatnonzero(first[given.person] != np.arange(len(given.person)))[0])
        name = str(given.ids[int(given.person[row])])
        before = job.persons.place(given.key[first[given.person[row]]])
        message = f"the person {name!r} is on {before} already; keep one row per person"
        return Joined(twice=(message, job.persons.line(given.key[row])))
    ids, new = table["id"], slice(0, people.n_new)
    number = pc.index_in(ids, value_set=given.ids).fill_null(-1).to_numpy(zero_copy_only=False)
    used = np.zeros(len(given.ids), dtype=bool)
    used[number[number >= 0]] = True
    unused = given.ids.filter(pa.array(~used))
    unused = unused.filter(pc.invert(pc.is_in(unused, value_set=known.ids)))
    rows = np.append(first, -1)[number]  # -1 of who has none
    joined = Joined(
        unmatched=some(ids.slice(0, people.n_new).filter(pa.array(number[new] < 0))),
        unused=some(unused),
        changed=_changed(job, ids, given, rows, people, known),
    )
    if joined.unmatched[0]:
        return joined
    for name in ("weight", "covariates"):
        if name in given.columns:
            columns[name] = given.columns[name][rows[new]]
    if "group" in given.columns:
        assert given.labels is not None
        table["group"] = given.labels.take(given.columns["group"][rows[new]])
    return joined


def _changed(
    job: Job, ids: pa.Array, given: PartitionRows, row: np.ndarray, people: People, known: Known
) -> Listed:
    """Persons to merge who have other attributes in the table than in the store."""
    at = np.arange(people.n_new, people.order.size)
    at = at[row[at] >= 0]
    there = {name: values[people.order[at]] for name, values in known.attributes.items()}
    here: dict[str, Any] = {n: given.columns[n][row[at]] for n in there if n in given.columns}
    if "group" in here:
        assert given.labels is not None
        here["group"] = given.labels.to_numpy(zero_copy_only=False)[here["group"]]
    said: list[tuple[str, Any, Any, np.ndarray]] = []
    for name in sorted(here):
        if name == "covariates":  # NaN: nothing is said
            pairs = zip(job.covariates, here[name].T, there[name].T, strict=True)
            said += [(n, x, was, (x != was) & ~np.isnan(x)) for n, x, was in pairs]
        else:
            said.append((name, here[name], there[name], here[name] != there[name]))
    wrong = np.zeros(at.size, dtype=bool)
    for _, _, _, differs in said:
        wrong |= differs
    texts = []
    for k in np.flatnonzero(wrong)[:LISTED]:
        values = [
            f"another {n}" if n in job.labels else f"{n} {x[k]}, in the store {was[k]}"
            for n, x, was, differs in said if differs[k]
        ]  # fmt: skip
        texts.append(f"{ids[int(at[k])].as_py()!r} ({'; '.join(values)})")
    return int(wrong.sum()), texts
