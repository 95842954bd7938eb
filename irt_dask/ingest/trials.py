"""Several attempts of a person at an item, made one response: k right of n.

A long file with a column of attempts is read as one with a facet, ``item@attempt``, by the same
rules as any other; then the attempts at an item are counted, block by block, into a store whose
items have n + 1 categories.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Ints
from irt_dask.engine.tasks import run_tasks
from irt_dask.errors import DataWarning, InputError, listed
from irt_dask.ingest import run
from irt_dask.ingest.columns.roles import AT
from irt_dask.ingest.options import Options
from irt_dask.kernels.responses.layouts import Dense, Layout, to_sparse
from irt_dask.store import Responses
from irt_dask.store.categories import BINARY, MOST, together
from irt_dask.store.draft import create
from irt_dask.store.manifest import Files
from irt_dask.store.writer import check_rows_per_block

#: In the warning of answers that cannot be counted.
FEWER = "have fewer attempts"
#: In what is said of a file that has persons alone.
_NO_ITEMS = "no column has a usual name of the item"
#: Of pieces of a file.
NOT_SAID = (
    "categories: n of an item is the most attempts that a person has at it, which pieces of a file "
    "do not say"
)


def shares(options: Options, n: Any) -> Options:
    """Options under which a response is a share right of ``n`` attempts at every item."""
    if isinstance(n, bool) or not 1 <= n < MOST:
        raise InputError(
            f"trials={n!r} must be the name of the column of attempts, or how many attempts each "
            f"response is a share of, from 1 to {MOST - 1}"
        )
    _refuse(options, ("categories", "key", "reverse"))
    return replace(options, categories=int(n) + 1, trials=int(n), null_categories="keep")


def of_attempts(options: Options, column: str) -> Options:
    """Options under which each attempt is an item of its own, ``item@attempt``."""
    _refuse(options, ("categories", "key", "reverse", "persons"))
    given = options.columns or {}
    if taken := [role for role in ("facets", "weight", "group") if role in given]:
        raise InputError(
            f"trials={column!r} does not go together with {taken[0]!r}: count the attempts first, "
            f"and leave it out here"
        )
    options.checked()
    return replace(options, columns={**given, "facets": column})


@contextmanager
def refused(column: str) -> Iterator[None]:
    """Say of trials= what is wrong with the facet that attempts are read as."""
    try:
        yield
    except InputError as error:
        said = str(error)
        facet = {"facets": column}
        told = said.replace(f"columns={facet!r}", f"trials={column!r}")
        if told == said and _NO_ITEMS not in said:
            raise
        raise InputError(
            f"{told}; attempts are counted in a long file, a row per attempt; of a wide file whose "
            f"values are shares right say of how many: trials=N"
        ) from None


def items_of(names: Iterable[str]) -> tuple[str, ...]:
    """The items, each once, that columns ``item@attempt`` are of."""
    return tuple(dict.fromkeys(name.rpartition(AT)[0] for name in names))


def n_answers(responses: Responses) -> int:
    """How many responses of a store are observed: one pass over the blocks."""
    return sum(
        len(to_sparse(responses.read_block(k).data).values) for k in range(responses.n_blocks)
    )


def read_counted(
    store: Any, path: Any, options: Options, column: str, client: Any, progress: Any
) -> Responses:
    """Read a long file whose ``column`` numbers the attempts; see :func:`irt_dask.ingest`."""
    attempts = of_attempts(options, column)
    with create(store) as draft, run_tasks(client, progress) as tasks:
        with refused(column):
            found = run.read_into(
                draft.scratch / "attempts", path, attempts, client, progress, new=True
            )
        counting = _Counting.of(found)
        counting.tell(path)
        rows = check_rows_per_block(options.rows_per_block, len(counting.items), found.n_persons)
        part = draft.part(
            layout="dense", n_persons=found.n_persons, n_items=len(counting.items),
            rows_per_block=rows,
        )  # fmt: skip
        files: Files = part.create()
        for k, (ids, counts) in enumerate(counting.blocks(rows)):
            files |= part.write_blocks(k, Dense(counts), ids)
        with tasks.shown("upload") as uploaded:
            return draft.commit(
                part, files, item_id=counting.items, categories=together(counting.n + 1),
                n_quarantined=found.n_quarantined, uploaded=uploaded,
                before=lambda: _move_quarantine(found, Path(str(store))),
            )  # fmt: skip


def _refuse(options: Options, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not (isinstance(value, (str, tuple, list)) and not value):
            raise InputError(
                f"{name}= does not go together with trials=, where attempts are right or wrong and "
                f"n says the categories; leave {name}= out"
            )


def _move_quarantine(found: Responses, store: Path) -> None:
    """Put the file of refused rows beside the store that is kept."""
    aside = Path(f"{found.path}.quarantine.csv")
    if found.n_quarantined and aside.exists():
        aside.replace(f"{store}.quarantine.csv")


@dataclass(frozen=True)
class _Counting:
    """Columns item@attempt, the items that they are of, and n of each: the most that anybody has.

    ``lacking`` counts answers with fewer attempts, which are none, by item.
    """

    responses: Responses
    items: tuple[str, ...]
    item: Ints
    n: Ints
    lacking: Ints

    @classmethod
    def of(cls, responses: Responses) -> _Counting:
        """Count the attempts: one pass over the blocks."""
        parents = [name.rpartition(AT)[0] for name in responses.item_id]
        items = tuple(dict.fromkeys(parents))
        place = {item: j for j, item in enumerate(items)}
        of = np.array([place[p] for p in parents], dtype=np.int64)
        n, made = np.zeros(len(items), dtype=np.int64), []
        for k in range(responses.n_blocks):
            made.append(_sums(responses.read_block(k).data, of, len(items))[1])
            n = np.maximum(n, made[-1].max(axis=0, initial=0))
            made[-1] = np.stack([(made[-1] == c).sum(axis=0) for c in range(1, MOST + 1)])
        total = np.sum(made, axis=0)  # (attempts, items): answers with so many
        if (n >= MOST).any():
            j = int(n.argmax())
            raise InputError(
                f"the item {items[j]!r} has {n[j]} attempts of one person, and up to {MOST - 1} "
                f"can be one response; leave attempts out, or give the items parts of them each"
            )
        fewer = np.arange(1, MOST + 1)[:, None] < n
        return cls(responses, items, of, n, (total * fewer).sum(axis=0))

    def tell(self, path: Any) -> None:
        """Warn of answers that have fewer attempts than others to the item."""
        if not self.lacking.any():
            return
        those = [self.items[j] for j in np.flatnonzero(self.lacking)]
        warnings.warn(
            f"{path}: {int(self.lacking.sum())} answers to {len(those)} item(s) {FEWER} "
            f"than the most there are of the item, and are taken as not observed: k of n "
            f"needs one n for an item. Items: {listed(those, 10)}; leave out attempts of the "
            f"others to keep them",
            DataWarning,
            stacklevel=4,
        )

    def blocks(self, rows: int) -> Iterator[tuple[NDArray[np.object_], NDArray[np.int8]]]:
        """Identifiers and counts of ``rows`` persons at a time."""
        ids: list[Any] = []
        held: list[NDArray[np.int8]] = []
        for k in range(self.responses.n_blocks):
            right, made = _sums(self.responses.read_block(k).data, self.item, len(self.items))
            held.append(np.where(made == self.n, right, -1).astype(np.int8))
            ids.append(self.responses.person_ids(k))
            together_, counts = np.concatenate(ids), np.concatenate(held)
            while len(counts) >= rows:
                yield together_[:rows], counts[:rows]
                together_, counts = together_[rows:], counts[rows:]
            ids, held = [together_], [counts]
        if ids and len(ids[0]):
            yield ids[0], held[0]


def _sums(data: Layout, of: Ints, n_items: int) -> tuple[Ints, Ints]:
    """Attempts that were right, and all, (persons, items)."""
    y = to_sparse(data)
    row = np.repeat(np.arange(y.shape[0]), np.diff(y.indptr))
    right, made = np.zeros((2, y.shape[0], n_items), dtype=np.int64)
    np.add.at(made, (row, of[y.indices]), 1)
    np.add.at(right, (row, of[y.indices]), np.minimum(y.values, BINARY - 1))
    return right, made
