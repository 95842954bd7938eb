"""What encryption costs on a local cluster: its start, rounds of 16 tasks, and the demo.

python tests/benchmarks/encryption.py [repetitions] [rounds | start | demo ...] [--json FILE]

With and without in alternation, so that a machine's moods weigh on both: medians of seconds, and
means of processor time, driver and workers together.
"""

import contextlib
import os
import statistics
import sys
import tempfile
import time
from unittest import mock

import numpy as np
import psutil
from click.testing import CliRunner
from results import Table

import irt_dask as irt
from irt_dask.cli.main import cli as command_line
from irt_dask.engine.core import Engine

#: Tasks are four for each worker.
WORKERS = 4
KINDS = ("tcp", "tls")


def certificates(kind):
    """A block in which local clusters have certificates, or none."""
    if kind == "tls":
        return contextlib.nullcontext()
    return mock.patch("irt_dask.clusters.certificates.temporary_security", return_value=None)


@contextlib.contextmanager
def cluster(kind, workers=WORKERS):
    """A local cluster."""
    with contextlib.ExitStack() as stack:
        with certificates(kind):
            client = stack.enter_context(irt.connect({"workers": workers}))
        assert client.scheduler.address.startswith(kind)
        yield client


def step(block, size):
    """Nothing but a result of a size."""
    return (np.zeros(size),)


def processor():
    """Seconds of processor time of this process and its children, also of those that ended."""
    children = psutil.Process().children(recursive=True)
    alive = [child.cpu_times() for child in children]
    return sum(os.times()[:4]) + sum(x.user + x.system for x in alive)


def alternated(work, repetitions):
    """Seconds of ``work(kind)`` for both kinds, medians; and of processor time, means."""
    seconds, busy = ({kind: [] for kind in KINDS} for _ in range(2))
    for k in range(repetitions):
        for kind in KINDS[:: 1 if k % 2 else -1]:
            before, begun = processor(), time.perf_counter()
            work(kind)
            seconds[kind].append(time.perf_counter() - begun)
            busy[kind].append(processor() - before)
    return [{k: f(x[k]) for k in KINDS} for f, x in
            ((statistics.median, seconds), (statistics.mean, busy))]  # fmt: skip


def started(kind):
    """From nothing to a worker that answers, and its end."""
    with cluster(kind, 1) as client:
        client.submit(os.getpid).result()


def demo(kind):
    """The command, in this process."""
    with tempfile.TemporaryDirectory() as folder, certificates(kind):
        done = CliRunner().invoke(
            command_line, ["demo", "--cluster", "local", "--quiet", "--out", f"{folder}/demo"]
        )
        assert done.exit_code == 0, done.output
        assert f"{kind}://" in done.output


def rounds(table, repetitions):
    """Rounds of 16 tasks, of nothing and of results of 1 MB each."""
    responses = irt.from_array(np.zeros((16 * 64, 8), np.int8), rows_per_block=64)
    with contextlib.ExitStack() as stack:
        engines = {}
        for kind in KINDS:
            client = stack.enter_context(cluster(kind))
            engines[kind] = stack.enter_context(Engine(responses, client=client))
        for name, size in (("round, results of 8 bytes", 1), ("round, results of 1 MB", 1 << 17)):

            def work(kind, size=size):
                engines[kind].map_reduce(step, size)

            alternated(work, 10)  # blocks in memory, connections open
            add(table, name, alternated(work, 20 * repetitions))


def add(table, name, found):
    """Print a row."""
    seconds, busy = found
    table.add(
        what=name,
        tcp_s=seconds["tcp"],
        tls_s=seconds["tls"],
        ratio=seconds["tls"] / seconds["tcp"],
        tcp_cpu_s=busy["tcp"],
        tls_cpu_s=busy["tls"],
    )


def main():
    table = Table()
    repetitions = int((sys.argv[1:] or ["5"])[0])
    parts = sys.argv[2:] or ["rounds", "start", "demo"]
    with table:
        if "rounds" in parts:
            rounds(table, repetitions)
        if "start" in parts:
            add(table, "a cluster of one worker, start and end", alternated(started, repetitions))
        if "demo" in parts:
            demo("tls")  # kernels compiled
            add(table, "irt-dask demo", alternated(demo, repetitions))


if __name__ == "__main__":
    main()
