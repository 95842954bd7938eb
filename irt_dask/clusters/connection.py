"""Connecting to workers, and leaving nothing behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from irt_dask.clusters.checks import check_processors, check_versions
from irt_dask.clusters.config import ClusterConfig
from irt_dask.clusters.scratch import scratch
from irt_dask.clusters.slurm import slurm_client
from irt_dask.clusters.tls import NO_PAGES, client_security, probe
from irt_dask.engine.threads import n_cores
from irt_dask.errors import ClusterError

_TIMEOUT = 30.0  # seconds
#: Seconds that a local cluster may take to start; to close, if it did not start.
_START, _CLOSE = 90.0, 10.0
#: Of the processes of a local cluster: what Dask does beside the work takes a tenth of a core, of
#: which the statistical profile that nobody looks at is the most.
_QUIET = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "200ms"}

#: Worker processes look for modules where this one does.  Started as ``python -c``, they would look
#: first in the folder where the command was typed, where others may have put some.
_SAFE_PATH = "PYTHONSAFEPATH"
_SAFE = {f"distributed.nanny.pre-spawn-environ.{_SAFE_PATH}": "1"}


@contextmanager
def connect(cluster: Any = None) -> Iterator[Any]:
    """Connect to a Dask cluster for the length of a ``with`` block.

    Parameters
    ----------
    cluster : None, address, TOML path, mapping or ClusterConfig
        None or "local": worker processes on this machine, one per core, each with one thread (the
        kernels are compiled and hold a core each), over encrypted connections with certificates of
        this cluster alone, so that nobody else who is logged in can connect.  With ``kind =
        "slurm"`` in a TOML file, workers are jobs of SLURM, submitted here.  A mapping is the
        ``[cluster]`` section of a TOML file.

    Yields
    ------
    distributed.Client
        Current inside the block.  On leaving, processes and jobs that were started here end; a
        scheduler that was only connected to goes on.

    Notes
    -----
    Worker processes import the main module.  In a script (not in a notebook) put the call under
    ``if __name__ == "__main__":``, or every worker would run the script again.

    Raises
    ------
    ClusterError
        If there is no scheduler at the address, one side refuses the certificate of the other,
        there is no worker, or a worker has other versions.
    InputError
        If the configuration or a file that it names cannot be used, or the connection would be
        open to others.

    Warns
    -----
    MachineWarning
        If workers, or a worker and this process, have different types of processor.

    Examples
    --------
    Worker processes on this machine, which take seconds to start (so no test runs these lines):

    >>> import irt_dask as irt
    >>> with irt.connect():  # doctest: +SKIP
    ...     fit = irt.fit_marginal(irt.open_responses("responses.zarr"))

    A scheduler that runs already, here one in this process:

    >>> from distributed import LocalCluster
    >>> running = LocalCluster(processes=False, dashboard_address=None)
    >>> with running, irt.connect(running.scheduler_address):
    ...     irt.fit_marginal(irt.load_lsat()).attrs["converged"]
    1
    """
    config = ClusterConfig.of(cluster)
    with ExitStack() as stack:
        client = stack.enter_context(_client(config, stack))
        check_versions(client)
        if config.kind != "local":
            check_processors(client)
        yield client


def _client(config: ClusterConfig, stack: ExitStack) -> Any:
    if config.kind == "local":
        return _local(config, stack)
    if config.kind == "slurm":
        return slurm_client(config)
    return _remote(config)


def _local(config: ClusterConfig, stack: ExitStack) -> Any:
    import dask
    from distributed import Client, LocalCluster

    from irt_dask.clusters.certificates import temporary_security

    if config.dashboard:
        _check_dashboard()
    folder = stack.enter_context(scratch())
    stack.enter_context(_environment_kept())
    settings = _QUIET | _SAFE | ({} if config.dashboard else NO_PAGES)
    patience: dict[str, Any] = {"callback_timeout": _START}
    late = False

    class Started(LocalCluster):
        """Its start waits by clocks that may be set back: here by one that nobody sets."""

        def sync(self, function: Any, *args: Any, **options: Any) -> Any:
            nonlocal late
            try:
                return super().sync(function, *args, **(patience | options))
            except Exception as error:
                if late:  # what did not start need not close either: that it did not start counts
                    return None
                if patience and isinstance(error, TimeoutError):
                    self._correct_state_waiting = None  # was cancelled: closing has to begin anew
                    late, patience["callback_timeout"] = True, _CLOSE
                raise

    try:
        with _environment_kept(), dask.config.set(settings):
            os.environ[_SAFE_PATH] = "1"  # for the process with which Python watches over others
            server = Started(
                n_workers=config.workers or n_cores(),
                threads_per_worker=1,
                processes=True,
                memory_limit=config.memory or "auto",
                security=temporary_security(),
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": config.dashboard, "local_directory": folder},
                local_directory=folder,
            )
    except TimeoutError as error:
        raise ClusterError(
            f"the worker processes on this machine have not started within {_START:.0f} seconds: "
            f"it has too much to do, or its clock was set back; start the same command again"
        ) from error
    except (RuntimeError, OSError) as error:
        raise ClusterError(
            f"the worker processes on this machine did not start ({error.__cause__ or error}); "
            f"most often too little memory; start the same command again"
        ) from error
    patience.clear()
    return Client(stack.enter_context(server))


@contextmanager
def _environment_kept() -> Iterator[None]:
    """Dask leaves in our environment what it sets for processes that it starts."""
    before = os.environ.get(_SAFE_PATH)
    try:
        yield
    finally:
        os.environ.pop(_SAFE_PATH, None)
        if before is not None:
            os.environ[_SAFE_PATH] = before


def _check_dashboard() -> None:
    """Without Bokeh, or with one that it cannot use, Dask would show another page in its place."""
    try:
        import distributed.dashboard.scheduler  # noqa: F401
    except ImportError as error:
        raise ClusterError(
            f"dashboard = true needs Bokeh ({error}): pip install 'irt_dask[dashboard]'"
        ) from error


def _remote(config: ClusterConfig) -> Any:
    from distributed import Client

    address, security, context = str(config.address), None, None
    if address.startswith("tls://"):
        security = client_security(str(config.tls_ca), str(config.tls_cert), str(config.tls_key))
        context = security.get_connection_args("client")["ssl_context"]
    if not address.startswith("inproc://"):
        probe(address, context, _TIMEOUT)
    try:
        return Client(address, timeout=_TIMEOUT, security=security)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(f"no Dask scheduler answers at {address}: {error}") from error
