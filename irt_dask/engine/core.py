"""Map over blocks and reduce by a fixed tree, with one compute per round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from irt_dask.engine import executors
from irt_dask.engine.cache import read_block
from irt_dask.engine.progress import Progress, ProgressOption
from irt_dask.engine.threads import single_threaded
from irt_dask.store.responses import Responses

Reduced = tuple[Any, ...]
PersonStep = Callable[..., Any]


class Engine:
    """One computation over the blocks of some responses.

    Use as a context manager.  Rounds read blocks on the worker that uses them (or take them from
    its memory); a person step is ``step(block, *args)`` and must be a module-level function.

    The sum over blocks follows one binary tree over block indices, whatever the number of workers:
    a task takes an aligned subtree, so grouping never changes a bit.
    """

    def __init__(
        self,
        responses: Responses,
        *,
        client: Any = None,
        progress: ProgressOption = None,
        stage: str = "blocks",
    ) -> None:
        self.responses = responses
        self.executor = executors.choose(client)
        self.progress = Progress(progress, stage)
        self._refs: Sequence[Any] | None = None
        self._single = single_threaded()

    def __enter__(self) -> Engine:
        self._single.__enter__()
        self.progress.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.__exit__(kind, error, trace)
        self.executor.close()
        self._single.__exit__(kind, error, trace)

    @property
    def refs(self) -> Sequence[Any]:
        """What tasks take to read each block."""
        if self._refs is None:
            self._refs = self.executor.hold(self.responses.refs)
        return self._refs

    def _subtrees(self) -> list[tuple[int, int]]:
        """Aligned ranges of blocks, one for each task of a round."""
        n = self.responses.n_blocks
        wanted = max(1, int(executors.TASKS_PER_THREAD * self.executor.n_threads))
        size = 1
        while -(-n // size) > wanted:
            size *= 2
        return [(k, min(k + size, n)) for k in range(0, n, size)]

    def map_reduce(self, step: PersonStep, *args: Any, report: bool = False) -> Reduced:
        """Sum ``step(block, *args)``, a tuple of arrays or integers, over all blocks.

        One pass over the data; the driver holds some dozens of results of ``step`` at most.
        ``report`` shows progress by task (for passes that are long by themselves).
        """
        ranges = self._subtrees()
        n = self.responses.n_blocks
        futures = [
            self.executor.submit(lo / n, _sum_blocks, self.refs[lo:hi], step, args)
            for lo, hi in ranges
        ]
        while len(futures) > self.executor.max_gathered:  # pairs of neighbours stay aligned
            futures = [
                self.executor.submit(k / len(futures), _sum_all, futures[k : k + 16])
                for k in range(0, len(futures), 16)
            ]
        return _tree(self._gather(futures, report))

    def map_blocks(self, step: PersonStep, *args: Any, report: bool = False) -> list[Any]:
        """Return ``step(block, *args)`` of each block, in order; results must be small."""
        return self.map_refs(_on_block, step, *args, report=report)

    def map_refs(self, step: Callable[..., Any], *args: Any, report: bool = False) -> list[Any]:
        """As :meth:`map_blocks` for a step that takes the block's reference (to read its ids)."""
        n = self.responses.n_blocks
        futures = [
            self.executor.submit(lo / n, _each_ref, self.refs[lo:hi], step, args)
            for lo, hi in self._subtrees()
        ]
        return [r for part in self._gather(futures, report) for r in part]

    def map_some(self, step: PersonStep, per_block: dict[int, Any], *args: Any) -> dict[int, Any]:
        """Return ``step(block, per_block[k], *args)`` for the blocks k that are named, in order."""
        n = self.responses.n_blocks
        futures = []
        for lo, hi in self._subtrees():
            named = [k for k in range(lo, hi) if k in per_block]
            if named:
                refs, extras = [self.refs[k] for k in named], [per_block[k] for k in named]
                task = (_named_blocks, refs, extras, step, args)
                futures.append(self.executor.submit(lo / n, *task))
        results = [r for part in self._gather(futures, False) for r in part]
        return dict(zip(sorted(per_block), results, strict=True))

    def _gather(self, futures: Sequence[Any], report: bool) -> list[Any]:
        position = {id(f): k for k, f in enumerate(futures)}
        results: list[Any] = [None] * len(futures)
        try:
            for done, future in enumerate(self.executor.completed(futures), start=1):
                results[position[id(future)]] = self.executor.result(future)
                if report:
                    self.progress.update(done, len(futures))
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return results


def _named_blocks(
    refs: Sequence[Any], extras: Sequence[Any], step: PersonStep, args: tuple[Any, ...]
) -> list[Any]:
    return [step(read_block(ref), extra, *args) for ref, extra in zip(refs, extras, strict=True)]


def _each_ref(refs: Sequence[Any], step: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
    return [step(ref, *args) for ref in refs]


def _on_block(ref: Any, step: PersonStep, *args: Any) -> Any:
    return step(read_block(ref), *args)


def _sum_blocks(refs: Sequence[Any], step: PersonStep, args: tuple[Any, ...]) -> Reduced:
    """Sum over an aligned subtree; holds at most log2(blocks) partial sums."""
    pending: list[tuple[int, Reduced]] = []
    for ref in refs:
        level, value = 0, _result(step(read_block(ref), *args))
        while pending and pending[-1][0] == level:
            level, value = level + 1, _add(pending.pop()[1], value)
        pending.append((level, value))
    total = pending.pop()[1]
    while pending:
        total = _add(pending.pop()[1], total)
    return total


def _result(value: Any) -> Reduced:
    return value if isinstance(value, tuple) else (value,)


def _add(left: Reduced, right: Reduced) -> Reduced:
    return tuple(np.add(a, b) for a, b in zip(left, right, strict=True))


def _sum_all(parts: list[Reduced]) -> Reduced:
    return _tree(parts)


def _tree(parts: list[Reduced]) -> Reduced:
    """Sum neighbours in pairs until one is left: the upper levels of the tree."""
    while len(parts) > 1:
        parts = [
            _add(parts[k], parts[k + 1]) if k + 1 < len(parts) else parts[k]
            for k in range(0, len(parts), 2)
        ]
    return parts[0]
