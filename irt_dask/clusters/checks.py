"""Before work starts: do all workers run the same software and see the same data?"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import warnings
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from irt_dask.engine.watch import LOOK, PATIENCE, awaited, reaching_scheduler, silent, threads_of
from irt_dask.errors import ClusterError, MachineWarning
from irt_dask.store import Responses, open_responses
from irt_dask.store.places import is_url

#: Packages whose version can change a result or break the exchange of tasks.
PACKAGES = ("irt_dask", "numpy", "scipy", "numba", "zarr", "distributed")


_SHARE = "put it on a file system that all workers share, under the same path"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on, in this process."""
    from irt_dask._version import __version__

    found = {"python": platform.python_version()}
    for name in PACKAGES:
        found[name] = __version__ if name == "irt_dask" else importlib.metadata.version(name)
    return found


#: Seconds within which all workers answer, those that still load the package too.
_ANSWER = 300.0


def _ask(client: Any, function: Any, *args: Any) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        answers = asyncio.ensure_future(client.run(function, *args, on_error="return"))
        try:
            while not (await asyncio.wait({answers}, timeout=LOOK))[0]:
                # a connection that is cut without a word is noticed long before workers are slow;
                # Python 3.11's wait_for would lose a cancellation that comes with the answer
                async with asyncio.timeout(PATIENCE):
                    await client.scheduler.ncores(workers=None)
            found: dict[str, Any] = answers.result()
            return found
        except TimeoutError:
            raise silent(LOOK + PATIENCE) from None
        finally:
            answers.cancel()

    with reaching_scheduler():
        awaited(client)
        try:
            found: dict[str, Any] = client.sync(ask, callback_timeout=_ANSWER)
        except TimeoutError:
            raise ClusterError(
                f"not all workers ({', '.join(threads_of(client))}) have answered within "
                f"{_ANSWER:.0f} seconds; see their logs, and start the same command again"
            ) from None
        return found


def check_versions(client: Any) -> None:
    """Compare package versions of every worker with this process.

    Raises
    ------
    ClusterError
        Names the worker, the package and both versions.
    """
    here = versions()
    for address, there in _ask(client, versions).items():
        if isinstance(there, Exception):
            raise ClusterError(f"worker {address} cannot load irt_dask: {there!r}")
        different = [
            f"{name} {there[name]} (here {here[name]})"
            for name in here
            if there[name] != here[name]
        ]
        if different:
            raise ClusterError(
                f"worker {address} runs other versions: {', '.join(different)}; install the same "
                f"versions everywhere"
            )


def processor() -> str:
    """Type of this machine's processor, and the kernel that BLAS has chosen for it.

    Results are the same bits on one type, not across types.
    """
    blas = {
        f"{of['internal_api']} {of.get('architecture') or 'kernel unknown'}"
        for of in threadpool_info()
        if of["user_api"] == "blas"
    }
    return f"{_cpu()} ({', '.join(sorted(blas)) or 'no BLAS known'})"


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.processor()
    return platform.processor() or os.uname().machine


def check_processors(client: Any) -> tuple[str, ...]:
    """Return the types of processor of this process and of all workers; warn if there are several.

    Warns
    -----
    MachineWarning
        Names each type and who has it.
    """
    found: dict[str, list[str]] = {processor(): ["this process"]}
    for address, there in ({} if client is None else _ask(client, processor)).items():
        if isinstance(there, str):  # else it has died since it was asked for its versions
            found.setdefault(there, []).append(f"worker {address}")
    if len(found) > 1:
        named = "; ".join(
            f"{kind}: {', '.join(who[:3])}{f' and {len(who) - 3} more' * (len(who) > 3)}"
            for kind, who in found.items()
        )
        warnings.warn(
            f"the cluster has several types of processor ({named}): results are the same bits on "
            f"one type only, and here last bits depend on which worker does what; for the same "
            f"bits take workers of one type",
            MachineWarning,
            stacklevel=2,
        )
    return tuple(sorted(found))


def _checksum(path: str) -> str:
    return open_responses(path).fingerprint


def check_store(client: Any, responses: Responses) -> None:
    """Have every worker open the store and compare the checksum of its manifest.

    Raises
    ------
    ClusterError
        If a worker does not see the store, or sees another one under the same path.
    """
    if responses.path is None:
        return
    for address, there in _ask(client, _checksum, responses.path).items():
        if isinstance(there, Exception):
            raise ClusterError(
                f"worker {address} cannot open the store {responses.path}: {there}; "
                f"{'give the workers what this process has' if is_url(responses.path) else _SHARE}"
            )
        if there != responses.fingerprint:
            raise ClusterError(
                f"worker {address} sees another store under {responses.path}: manifest checksum "
                f"{there[:12]}, here {responses.fingerprint[:12]}"
            )
