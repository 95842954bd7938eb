"""Workers as jobs of SLURM, over connections in which both sides show a certificate."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import dask
from dask.utils import parse_bytes

from irt_dask.clusters.config import ClusterConfig
from irt_dask.clusters.scratch import MADE_THERE, scratch
from irt_dask.clusters.tls import NO_PAGES
from irt_dask.engine.watch import threads_of
from irt_dask.errors import ClusterError

#: Seconds between two looks at the queue, before the first worker is there and afterwards.
_LOOK_FIRST, _LOOK = 2.0, 15.0
#: Lines of the newest job log that an error shows.
_LOG_LINES = 8


@contextmanager
def slurm_client(config: ClusterConfig) -> Iterator[Any]:
    """Submit the jobs of a configuration and connect to them, for the length of a ``with`` block.

    On leaving, for whatever reason, all jobs are cancelled.  Should this process be killed, the
    workers miss the scheduler and end by themselves, within a minute of their start at most.

    Raises
    ------
    ClusterError
        If dask-jobqueue or SLURM's commands are missing, sbatch refuses a job, no worker comes
        within ``config.wait``, or all jobs end while the block goes on.
    """
    from distributed import Client

    from irt_dask.clusters.certificates import security_of, write_certificates

    jobs = _Jobs(config)
    with scratch("tls-", jobs.folder) as keys:
        folder = write_certificates(Path(keys) / "keys")
        cluster = jobs.cluster(security_of(lambda name: str(folder / name)), keys)
        try:
            jobs.submit(cluster)
            with Client(cluster) as client:
                jobs.wait(client)
                with jobs.watched(client):
                    yield client
        finally:
            try:
                cluster.close(timeout=60)
            finally:
                jobs.cancel()


def _slurm_cluster() -> Any:
    """The class of dask-jobqueue, whose import makes Ctrl-C end Python as if all had gone well."""
    before = signal.getsignal(signal.SIGINT)
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError as error:
        raise ClusterError(
            "kind = \"slurm\" needs dask-jobqueue: pip install 'irt_dask[hpc]'"
        ) from error
    if signal.getsignal(signal.SIGINT) is not before:
        signal.signal(signal.SIGINT, before)
    return SLURMCluster


class _Jobs:
    """The jobs of one connection; they share a name, by which SLURM finds them."""

    def __init__(self, config: ClusterConfig) -> None:
        for command in ("sbatch", "squeue", "scancel"):
            if shutil.which(command) is None:
                raise ClusterError(
                    f'kind = "slurm": there is no command {command} here; start the run on a host '
                    f"from which jobs are submitted"
                )
        self._class = _slurm_cluster()
        self.config = config
        self.name = f"irt_dask-{uuid.uuid4().hex[:12]}"
        self.folder = Path(config.log_directory).absolute()
        if len(str(self.folder).split()) > 1:
            raise ClusterError(
                f"log_directory = {self.folder} is part of the job scripts; give a folder without "
                f"blanks in its path"
            )
        try:
            # For their owner alone: logs name persons' files, and the workers' key lies here.
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ClusterError(
                f"log_directory = {self.folder} cannot be made: {error.strerror}"
            ) from error

    def cluster(self, security: Any, folder: str) -> Any:
        """The scheduler, in this process and with this folder, with no job yet."""
        config = self.config
        processes = config.workers_per_job
        # HTTP has neither password nor encryption, and others are logged in here.
        options = {
            "dashboard_address": "127.0.0.1:0", "dashboard": False, "local_directory": folder
        }  # fmt: skip
        workers_folder = dask.config.get("jobqueue.slurm.local-directory", None) or MADE_THERE
        try:
            with dask.config.set(NO_PAGES):
                return self._class(
                    cores=processes,  # one computing thread for each process
                    processes=processes,
                    memory=f"{processes * parse_bytes(str(config.memory))}B",
                    walltime=config.walltime,
                    queue=config.queue,
                    account=config.account,
                    job_extra_directives=list(config.job_extra_directives),
                    interface=config.interface,
                    log_directory=str(self.folder),
                    job_name=self.name,
                    protocol="tls://",
                    security=security,
                    local_directory=workers_folder,
                    scheduler_options=options,
                    worker_extra_args=["--dashboard-address", "127.0.0.1:0", "--no-dashboard"],
                )
        except (RuntimeError, ValueError, OSError) as error:
            raise ClusterError(f"the scheduler for the jobs cannot start: {error}") from error

    def submit(self, cluster: Any) -> None:
        """Hand the jobs to sbatch; a refusal is an error, which ``scale`` would only log.

        So is an sbatch that does not end within the time that workers have.
        """
        from distributed.core import Status

        for _ in range(int(self.config.workers or 1) // self.config.workers_per_job):
            cluster.worker_spec.update(cluster.new_worker_spec())
        try:
            cluster.sync(cluster._correct_state, callback_timeout=self.config.wait_seconds())
        except (RuntimeError, TimeoutError) as error:
            for job in [*cluster.workers.values(), *cluster._created]:
                if job.job_id is None:  # else closing the cluster stumbles over it
                    job.status = Status.failed
            if isinstance(error, TimeoutError):
                raise ClusterError(
                    f"sbatch did not take the jobs within wait = {self.config.wait}"
                ) from error
            said = str(error).partition("stderr:")[2].strip() or str(error)
            raise ClusterError(f"SLURM refused a job: {said}") from error

    def wait(self, client: Any) -> None:
        """Return when the first worker is there."""
        deadline = time.monotonic() + self.config.wait_seconds()
        while not threads_of(client):
            queue = self.queue()
            if queue is not None and not queue and not threads_of(client):
                raise ClusterError(
                    f"all jobs ended before a worker came; what they wrote is in {self.folder}"
                    f"{self.log_end()}"
                )
            if time.monotonic() > deadline:
                said = "\n  ".join(queue) if queue else "nothing"
                raise ClusterError(
                    f"no worker came within wait = {self.config.wait}; squeue says of the jobs "
                    f"(state, reason):\n  {said}\nAsk for less memory, walltime or workers_per_job "
                    f"or another queue, or allow a longer wait{self.log_end()}"
                )
            time.sleep(min(_LOOK_FIRST, max(0.0, deadline - time.monotonic())))

    @contextmanager
    def watched(self, client: Any) -> Iterator[None]:
        """Look after the jobs meanwhile: tasks without workers would be waited for forever."""
        over, left = Event(), Event()

        def look() -> None:
            while not left.wait(_LOOK):
                if self.queue() == [] and not left.is_set():
                    over.set()
                    client.close(timeout=10)  # cancels what is waited for
                    return

        thread = Thread(target=look, name="irt_dask-slurm", daemon=True)
        thread.start()
        try:
            yield
        except Exception as error:
            if not over.is_set():
                raise
            raise ClusterError(
                f"all jobs have ended while work was left (walltime = {self.config.walltime}, "
                f"cancelled, or failed); start the same command again to go on. What they wrote is "
                f"in {self.folder}{self.log_end()}"
            ) from error
        finally:
            left.set()
            thread.join()

    def queue(self) -> list[str] | None:
        """A line for each job that waits or runs; None if squeue does not answer."""
        command = ["squeue", "--noheader", "--name", self.name, "--format", "%i %T %r"]
        try:
            found = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired:
            return None
        return None if found.returncode else found.stdout.split("\n")[:-1]

    def cancel(self) -> None:
        """Cancel what is left, jobs included whose number never reached us."""
        done = subprocess.run(
            ["scancel", "--name", self.name], capture_output=True, text=True, timeout=60
        )
        if done.returncode:
            raise ClusterError(
                f"jobs named {self.name} may be left, since scancel failed: {done.stderr.strip()}; "
                f"cancel them with scancel --name {self.name}"
            )

    def log_end(self) -> str:
        """The last lines of the newest log, on lines of their own."""
        logs = [f for f in self.folder.glob(f"{self.name}-*.err") if f.stat().st_size]
        if not logs:
            return ""
        newest = max(logs, key=lambda f: f.stat().st_mtime)
        lines = newest.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join([f"\nThe end of {newest}:", *lines])
