"""Map over blocks and reduce by a fixed tree, or map over items, with one compute per round."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from irt_dask.engine import executors
from irt_dask.engine.cache import keep, read_block
from irt_dask.engine.inputs import refuse_graded
from irt_dask.engine.lazy import for_one_computation
from irt_dask.engine.progress import Progress, ProgressOption
from irt_dask.engine.threads import single_threaded
from irt_dask.kernels.responses import layouts
from irt_dask.store import weights
from irt_dask.store.blocks import Block, BlockRef
from irt_dask.store.responses import Responses

Reduced = tuple[Any, ...]
PersonStep = Callable[..., Any]
Prepare = Callable[[Block], Any]
Combine = Callable[[Reduced, Reduced], Reduced]
#: A block and its persons ``lo .. hi``, all of them if hi is None.
Piece = tuple[int, int, int | None]

#: Fewer blocks than this are cut into pieces, so that one block does not mean one busy core; a
#: piece has at least so many cells.
_PIECES, _LEAST_CELLS = 16, 1 << 16
#: Items of a task, at least.
_LEAST_ITEMS = 64


class Engine:
    """One computation over the blocks of some responses.

    Use as a context manager.  Rounds read blocks on the worker that uses them (or take them from
    its memory); a person step is ``step(block, *args)`` and must be a module-level function.  With
    ``prepare``, also one, steps see ``prepare(block)`` instead, made once and kept where it fits;
    it has ``nbytes``.

    Where there are few blocks they are cut into pieces of rows, by a rule of the data alone, and
    what is said of blocks holds of pieces.  The sum over blocks follows one binary tree over their
    indices, whatever the number of workers: a task takes an aligned subtree, so grouping never
    changes a bit.

    Nobody comes to blocks but through an engine, so this is the gate: it refuses items of more than
    two categories unless the caller says, by ``graded``, that its steps know them.
    """

    def __init__(
        self, responses: Responses, *, client: Any = None, progress: ProgressOption = None,
        stage: str = "blocks", prepare: Prepare | None = None, graded: bool = False,
    ) -> None:  # fmt: skip
        if not graded:
            refuse_graded(responses, f"this computation ({stage})")
        self.responses = for_one_computation(responses)
        self.weight_sums: weights.Sums | None = None
        self._prepare = prepare
        self.executor = executors.choose(client)
        self.progress = Progress(progress, stage)
        self.executor.waiting = self.progress.waiting
        self._refs: Sequence[Any] | None = None
        self._open = ExitStack()

    def __enter__(self) -> Engine:
        with ExitStack() as stack:
            stack.enter_context(single_threaded())
            stack.callback(self.executor.close)
            stack.enter_context(self.progress)
            if self.responses.max_weight is not None:
                self._weigh()
            self._open = stack.pop_all()
        return self

    def unprepared(self) -> Engine:
        """Return this computation on blocks as they are; use it while this one is open."""
        other = copy.copy(self)
        other._prepare = None
        return other

    def _weigh(self) -> None:
        """Bring weights to the scale that steps see: one pass over the weights alone."""
        r = self.responses
        found = keep(
            None if r.checksum is None else ("weights", r.checksum),
            lambda: functools.reduce(weights.Sums.plus, self.map_refs(_weight_sums)),
        )
        self.weight_sums = weights.checked(found, r.weight_kind)
        self.responses, self._refs = weights.on_scale(r, found), None

    @property
    def n_persons(self) -> int:
        """Persons that the data stand for: rows, or the sum of frequency weights.

        Weights that steps see add up to this, so it bounds sums over persons.
        """
        if self.weight_sums is None or self.responses.weight_kind == weights.SAMPLING:
            return self.responses.n_persons
        return self.weight_sums.n_counted

    @property
    def sampled(self) -> bool:
        """Whether persons have sampling weights, whose squares standard errors need."""
        return self.weight_sums is not None and self.responses.weight_kind == weights.SAMPLING

    @property
    def weight_attrs(self) -> dict[str, Any]:
        """What results say of weights: their kind, and the mean that they were divided by."""
        if self.weight_sums is None:
            return {}
        kind = self.responses.weight_kind
        return {
            "weight_kind": kind,
            "mean_weight": self.weight_sums.mean if kind == weights.SAMPLING else None,
        }

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @property
    def refs(self) -> Sequence[Any]:
        """What tasks take to read each block."""
        if self._refs is None:
            self._refs = self.executor.hold(self.responses.refs)
        return self._refs

    def _pieces(self) -> list[Piece]:
        """Blocks, cut into pieces where they are few."""
        r = self.responses
        if r.n_blocks >= _PIECES:
            return [(k, 0, None) for k in range(r.n_blocks)]
        ends = [*(ref.start for ref in r.refs[1:]), r.n_persons]
        pieces: list[Piece] = []
        for k, end in enumerate(ends):
            rows = end - r.refs[k].start
            most = min(rows, rows * r.n_items // _LEAST_CELLS)
            parts = max(1, min(-(-_PIECES // r.n_blocks), most))
            pieces += [(k, rows * i // parts, rows * (i + 1) // parts) for i in range(parts)]
        return pieces

    def _submit(
        self, pieces: Sequence[Piece], task: Callable[..., Any], step: PersonStep,
        args: tuple[Any, ...], extras: dict[int, Any] | None = None, tail: tuple[Any, ...] = (),
    ) -> list[Any]:  # fmt: skip
        """One task for each aligned range of pieces; with ``extras``, of the pieces it names."""
        n = len(pieces)
        wanted = max(1, int(executors.TASKS_PER_THREAD * self.executor.n_threads))
        size = 1
        while -(-n // size) > wanted:
            size *= 2
        tasks = []
        for lo in range(0, n, size):
            at = [p for p in range(lo, min(lo + size, n)) if extras is None or p in extras]
            if not at:
                continue
            first = pieces[at[0]][0]
            refs = self.refs[first : pieces[at[-1]][0] + 1]
            cuts = [(k - first, *rows) for k, *rows in (pieces[p] for p in at)]
            more = tail if extras is None else ([extras[p] for p in at],)
            where = (refs, cuts, self._prepare)
            tasks.append((lo / n, (where, step, args, *more)))
        return self.executor.submit_all(task, tasks)

    def map_reduce(
        self, step: PersonStep, *args: Any, report: bool = False, combine: Combine | None = None
    ) -> Reduced:
        """Sum ``step(block, *args)``, a tuple of arrays or integers, over all blocks.

        One pass over the data; the driver holds some dozens of results of ``step`` at most.
        ``report`` shows progress by task (for passes that are long by themselves).  ``combine``,
        an associative module-level function of two results, replaces the sum.
        """
        add = combine or _add
        futures = self._submit(self._pieces(), _sum_blocks, step, args, tail=(add,))
        return self._reduced(futures, add, report)

    def map_add(self, step: Callable[..., Reduced], *args: Any, report: bool = False) -> Reduced:
        """As :meth:`map_reduce`, for exact sums, which may be large: their order does not matter.

        ``step(block, sums, *args)`` adds a block to the sums of earlier ones, None at first, in
        place.  This process holds :attr:`n_held` of them at most.
        """
        futures = self._submit(self._pieces(), _add_blocks, step, args)
        if math.isinf(self.executor.max_gathered):  # of threads: those that finish are added
            return functools.reduce(_add_to, (sums for _, sums in self._finished(futures, report)))
        return self._reduced(futures, _add, report)

    @property
    def n_held(self) -> int:
        """Results of :meth:`map_add` that this process holds at a time."""
        n = self.executor.n_threads
        if math.isinf(self.executor.max_gathered):
            return n + 3
        return int(1.5 * min(executors.TASKS_PER_THREAD * n, self.executor.max_gathered)) + 1

    def _reduced(self, futures: list[Any], add: Combine, report: bool) -> Reduced:
        while len(futures) > self.executor.max_gathered:  # pairs of neighbours stay aligned
            futures = [
                self.executor.submit(k / len(futures), _tree, futures[k : k + 16], add)
                for k in range(0, len(futures), 16)
            ]
        return _tree(self._gather(futures, report), add)

    def map_blocks(self, step: PersonStep, *args: Any, report: bool = False) -> list[Any]:
        """Return ``step(block, *args)`` of each block, in order; results must be small."""
        futures = self._submit(self._pieces(), _each_block, step, args)
        return [r for part in self._gather(futures, report) for r in part]

    def map_refs(self, step: Callable[..., Any], *args: Any, report: bool = False) -> list[Any]:
        """As :meth:`map_blocks` for a step that takes a whole block's reference, uncut."""
        whole: list[Piece] = [(k, 0, None) for k in range(self.responses.n_blocks)]
        futures = self._submit(whole, _each_ref, step, args)
        return [r for part in self._gather(futures, report) for r in part]

    def map_some(self, step: PersonStep, per_block: dict[int, Any], *args: Any) -> dict[int, Any]:
        """Return ``step(block, per_block[k], *args)`` for the blocks k that are named, in order.

        They are numbered as in the result of :meth:`map_blocks`.
        """
        futures = self._submit(self._pieces(), _each_block, step, args, per_block)
        results = [r for part in self._gather(futures, False) for r in part]
        return dict(zip(sorted(per_block), results, strict=True))

    def map_items(
        self, step: Callable[..., Any], *args: Any, report: bool = False
    ) -> Iterator[tuple[int, int, Any]]:
        """Yield ``lo, hi, step(blocks, lo, hi, *args)`` for ranges of items, as they finish.

        Every task reads all blocks (an iterator): for data that are small next to what is made of
        them.  The result for an item must not depend on the range that it falls in.
        """
        m = self.responses.n_items
        wanted = int(executors.TASKS_PER_THREAD * self.executor.n_threads)
        parts = max(1, min(wanted, m // _LEAST_ITEMS))
        ranges = [(m * k // parts, m * (k + 1) // parts) for k in range(parts)]
        tasks = [(lo / m, (self.refs, step, lo, hi, args)) for lo, hi in ranges]
        futures = self.executor.submit_all(_on_items, tasks)
        for k, result in self._finished(futures, report):
            yield *ranges[k], result

    def _gather(self, futures: list[Any], report: bool) -> list[Any]:
        with self._dropped_early(futures):
            for done, future in enumerate(executors.completed(self.executor, futures), start=1):
                if self.executor.failed(future):
                    self.executor.result(future)  # raises
                if report:
                    self.progress.update(done, len(futures))
            return self.executor.results(futures)

    def _finished(self, futures: list[Any], report: bool) -> Iterator[tuple[int, Any]]:
        """Yield position and result of each task as it finishes; leaving early drops the rest."""
        position = {id(f): k for k, f in enumerate(futures)}
        n = len(futures)
        with self._dropped_early(futures):
            for done, future in enumerate(executors.completed(self.executor, futures), start=1):
                k = position[id(future)]
                futures[k] = None  # results are kept by those who want them
                yield k, self.executor.result(future)
                del future
                if report:
                    self.progress.update(done, n)

    @contextmanager
    def _dropped_early(self, futures: list[Any]) -> Iterator[None]:
        """Cancel what has not been taken if that ends early."""
        try:
            yield
        except BaseException:
            for future in futures:
                if future is not None:
                    future.cancel()
            raise


#: References of blocks, the pieces of them that a task treats, and how they are prepared.
Where = tuple[Sequence[Any], Sequence[Piece], Prepare | None]


def _blocks(where: Where) -> Iterator[Any]:
    """Read the pieces, each block once in a row."""
    refs, cuts, prepare = where
    at = -1
    for k, lo, hi in cuts:
        if prepare is not None:
            yield _prepared(refs[k], lo, hi, prepare)
            continue
        if k != at:
            at, block = k, read_block(refs[k])
        yield block if hi is None else _rows(block, lo, hi)


def _prepared(ref: BlockRef, lo: int, hi: int | None, prepare: Prepare) -> Any:
    if ref.cache_key is None:
        key = None
    else:
        key = (ref.cache_key, prepare.__module__, prepare.__qualname__, lo, hi)

    def make() -> Any:  # of a whole block nobody needs the original any more
        return prepare(ref.read() if hi is None else _rows(read_block(ref), lo, hi))

    return keep(key, make)


def _weight_sums(ref: BlockRef) -> weights.Sums:
    given = ref.weights()
    assert given is not None
    return weights.Sums.of(given)


def _rows(block: Block, lo: int, hi: int) -> Block:
    if (lo, hi) == (0, block.n_persons):
        return block
    names = ("weight", "group", "times", "unit", "design")
    more = {name: getattr(block, name) for name in names}
    more = {name: None if x is None else x[lo:hi] for name, x in more.items()}
    data = layouts.row_range(block.data, lo, hi)
    return dataclasses.replace(block, start=block.start + lo, data=data, **more)


def _each_block(
    where: Where, step: PersonStep, args: tuple[Any, ...], extras: Sequence[Any] | None = None
) -> list[Any]:
    more = [()] * len(where[1]) if extras is None else [(extra,) for extra in extras]
    return [step(block, *own, *args) for block, own in zip(_blocks(where), more, strict=True)]


def _each_ref(where: Where, step: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
    return [step(ref, *args) for ref in where[0]]


def _on_items(
    refs: Sequence[Any], step: Callable[..., Any], lo: int, hi: int, args: tuple[Any, ...]
) -> Any:
    return step((read_block(ref) for ref in refs), lo, hi, *args)


def _sum_blocks(where: Where, step: PersonStep, args: tuple[Any, ...], add: Combine) -> Reduced:
    """Sum over an aligned subtree; holds at most log2(blocks) partial sums."""
    pending: list[tuple[int, Reduced]] = []
    for block in _blocks(where):
        level, value = 0, _result(step(block, *args))
        while pending and pending[-1][0] == level:
            level, value = level + 1, add(pending.pop()[1], value)
        pending.append((level, value))
    total = pending.pop()[1]
    while pending:
        total = add(pending.pop()[1], total)
    return total


def _add_blocks(where: Where, step: Callable[..., Reduced], args: tuple[Any, ...]) -> Reduced:
    sums = None
    for block in _blocks(where):
        sums = step(block, sums, *args)
    assert sums is not None
    return sums


def _result(value: Any) -> Reduced:
    return value if isinstance(value, tuple) else (value,)


def _add(left: Reduced, right: Reduced) -> Reduced:
    return tuple(np.add(a, b) for a, b in zip(left, right, strict=True))


def _add_to(left: Reduced, right: Reduced) -> Reduced:
    """The same in place of the left, whose arrays a step made to be added to."""
    return tuple(
        np.add(a, b, out=a) if isinstance(a, np.ndarray) else np.add(a, b)
        for a, b in zip(left, right, strict=True)
    )


def _tree(parts: list[Reduced], add: Combine) -> Reduced:
    """Sum neighbours in pairs until one is left: the upper levels of the tree."""
    while len(parts) > 1:
        parts = [
            add(parts[k], parts[k + 1]) if k + 1 < len(parts) else parts[k]
            for k in range(0, len(parts), 2)
        ]
    return parts[0]
