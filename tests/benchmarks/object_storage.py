"""What a store in object storage costs when every request waits: seconds by latency and threads.

    python tests/benchmarks/object_storage.py [--persons 400000] [--blocks 16 100]
        [--latency 0 20 100] [--threads 2 16] [--json FILE]

An S3 server on loopback (moto) waits so many milliseconds before it answers each request.  "blocks"
is how many the persons are divided into; "threads" are those of one Dask worker.  "requests" counts
what the server was asked; "waiting" is requests x latency / threads, what the method would wait if
it did nothing else and all threads waited at once.  Workers begin with no block in memory; "kept"
says whether they keep what they read for later rounds (they do, up to a quarter of their memory).
The server shares the machine's cores, so that
seconds without latency are too long; what counts is what latency adds to them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
import urllib.request
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import fsspec
from results import Table

import irt_dask as irt

ITEMS = 40
LOGIN = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
         "AWS_DEFAULT_REGION": "us-east-1"}  # fmt: skip


def serve(port: Any, latency: Any, asked: Any) -> None:
    """An S3 server that waits before each answer, in a process of its own."""
    import logging

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = DomainDispatcherApplication(create_backend_app)

    def late(environ: Any, start: Any) -> Any:
        with asked.get_lock():
            asked.value += 1
        time.sleep(latency.value)
        return application(environ, start)

    server = make_server("127.0.0.1", 0, late, threaded=True)
    port.value = server.server_port
    server.serve_forever()


class Storage:
    """The server's latency, and how often it was asked."""

    def __init__(self) -> None:
        self.latency, self.asked = multiprocessing.Value("d", 0.0), multiprocessing.Value("q", 0)

    @contextmanager
    def running(self) -> Any:
        port = multiprocessing.Value("i", 0)
        process = multiprocessing.Process(
            target=serve, args=(port, self.latency, self.asked), daemon=True
        )
        process.start()
        while not port.value:
            time.sleep(0.05)
        url = f"http://127.0.0.1:{port.value}"
        urllib.request.urlopen(f"{url}/moto-api/data.json").close()  # it answers
        os.environ |= LOGIN | {"AWS_ENDPOINT_URL": url}
        try:
            yield self
        finally:
            process.terminate()
            process.join()


def emptied(keeps: bool) -> None:
    """Forget all blocks; runs on the workers."""
    from irt_dask.engine import cache

    with cache._lock:
        cache._held.clear()
        cache._size, cache._looked, cache._SHARE = 0, -1e9, 0.25 if keeps else 0.0


def tasks(url: str, out: str, client: Any) -> dict[str, Callable[[], Any]]:
    """Each opens the store anew, as a program does that begins; fits have five rounds."""
    options = {"client": client, "progress": False}
    bank = irt.fit_marginal(irt.open_responses(url), standard_errors=False, **options)

    def opened() -> irt.Responses:
        return irt.open_responses(url)

    return {
        "fit_marginal": lambda: irt.fit_marginal(
            opened(), max_iterations=5, standard_errors=False, **options
        ),
        "fit_joint": lambda: irt.fit_joint(opened(), max_iterations=5, tolerance=-1.0, **options),
        "pair_counts": lambda: irt.pair_counts(opened(), **options),
        "score": lambda: irt.score(opened(), bank, store=f"{out}/{time.monotonic_ns()}", **options),
    }


def main() -> None:
    table = Table()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--persons", type=int, default=400_000)
    parser.add_argument("--blocks", type=int, nargs="+", default=[16, 100])
    parser.add_argument("--latency", type=int, nargs="+", default=[0, 20, 100])
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 16])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    from distributed import Client, LocalCluster

    storage = Storage()
    with storage.running(), table:
        fsspec.filesystem("s3").mkdir("bucket")
        for blocks in options.blocks:
            url = f"s3://bucket/{blocks}.store"
            rows = -(-options.persons // blocks)
            irt.simulate(options.persons, ITEMS, seed=1, store=url, rows_per_block=rows)
            for threads in options.threads:
                with (
                    LocalCluster(
                        n_workers=1, threads_per_worker=threads, dashboard_address=None
                    ) as cluster,
                    Client(cluster) as client,
                ):
                    found = tasks(url, f"s3://bucket/{blocks}", client)
                    for name, keeps in [(n, "yes") for n in found] + [("fit_marginal", "no")]:
                        task = found[name]
                        task()
                        for milliseconds in options.latency:
                            client.run(emptied, keeps == "yes")
                            seconds, asked = timed(task, storage, milliseconds / 1e3)
                            table.add(
                                method=name, kept=keeps, blocks=blocks, threads=threads,
                                latency_ms=milliseconds, requests=asked, seconds=seconds,
                                waiting=asked * milliseconds / 1e3 / threads,
                            )  # fmt: skip


def timed(task: Callable[[], Any], storage: Storage, latency: float) -> tuple[float, int]:
    """Seconds and requests of a task."""
    storage.latency.value, storage.asked.value = latency, 0
    begun = time.perf_counter()
    task()
    seconds = time.perf_counter() - begun
    storage.latency.value = 0.0
    return seconds, storage.asked.value


if __name__ == "__main__":
    main()
