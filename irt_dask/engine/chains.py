"""Chains cut into segments: the driver holds the state, a lost worker costs one segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from irt_dask.engine.checkpoint import Checkpoint
from irt_dask.engine.core import Engine
from irt_dask.engine.executors import WorkerDiedError
from irt_dask.errors import ChainError

State = dict[str, Any]
#: ``segment(refs, state) -> (state, output)``, both dicts of arrays.
Segment = Callable[[Sequence[Any], State], tuple[State, dict[str, Any]]]

#: A segment is sent again after its task was given up by the scheduler, this often.
_RESENDS = 1


@dataclass
class Chain:
    """One chain: its state after the last finished segment and the outputs so far."""

    name: str
    state: State
    outputs: list[dict[str, Any]] = field(default_factory=list)


def run_chains(
    engine: Engine, chains: list[Chain], segment: Segment, total: int, checkpoint: Checkpoint,
    refs: Sequence[Any] | None = None,
) -> list[Chain]:  # fmt: skip
    """Run every chain until its state says ``step == total``; return them complete.

    Each segment is one task that reads all blocks (or keeps what it needs in its worker's memory);
    ``refs`` are what it reads instead, if given.
    Segments of different chains run side by side; those of a chain follow each other.  The driver
    writes a checkpoint after every segment and starts from what is there.

    Raises
    ------
    ChainError
        If a segment keeps ending its worker; it names the chain.
    """
    refs = engine.refs if refs is None else refs
    for chain in chains:
        while (saved := checkpoint.load(f"{chain.name}-{len(chain.outputs):05d}")) is not None:
            chain.state = _part(saved, "state")
            chain.outputs.append(_part(saved, "output"))
    steps = {chain.name: int(chain.state["step"]) for chain in chains}
    deaths = {chain.name: 0 for chain in chains}

    def report() -> None:
        engine.progress.update(sum(steps.values()), total * len(chains))

    running: dict[Any, int] = {}
    finished = engine.executor.finished()

    def start(k: int) -> None:
        future = engine.executor.submit(k / len(chains), segment, refs, chains[k].state)
        running[future] = k
        finished.add(future)  # once each: with many chains waiting for all anew would take longer

    report()
    for k, chain in enumerate(chains):
        if steps[chain.name] < total:
            start(k)
    try:
        while running:
            future = finished.take()
            k = running.pop(future)
            chain = chains[k]
            try:
                chain.state, output = engine.executor.result(future)
            except WorkerDiedError as error:
                deaths[chain.name] += 1
                if deaths[chain.name] > _RESENDS:
                    raise ChainError(
                        f"{chain.name} stopped at step {steps[chain.name]} of {total}: {error}"
                    ) from error
                start(k)
                continue
            saved = {f"state:{n}": v for n, v in chain.state.items()}
            saved |= {f"output:{n}": v for n, v in output.items()}
            checkpoint.save(f"{chain.name}-{len(chain.outputs):05d}", saved)
            chain.outputs.append(output)
            steps[chain.name] = int(chain.state["step"])
            report()
            if steps[chain.name] < total:
                start(k)
    except BaseException:
        for future in running:
            future.cancel()
        raise
    return chains


def _part(saved: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {k.partition(":")[2]: v for k, v in saved.items() if k.startswith(f"{prefix}:")}
