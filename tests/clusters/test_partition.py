"""Several hosts, each a network namespace of its own: a link is cut in the middle of a run; TLS."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import irt_dask as irt

PIPELINE = """
seed = 1
directory = "{directory}"
[data]
store = "{store}"
[joint]
coreset = 0
max_iterations = 40
[bayes]
shards = 2
draws = 1500
warmup = 200
"""
SCHEDULER, PORT = "10.77.0.1", 8786
#: Seconds without an answer after which a connection counts as lost (Dask's default is 30).
PATIENCE = 12


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Hosts:
    """A hub with scheduler and driver, and workers' hosts that reach each other through it."""

    def __init__(self, n: int) -> None:
        self.hub = f"irt{os.getpid()}-hub"
        self.names = [f"irt{os.getpid()}-{k}" for k in range(n)]
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Hosts:
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _build(self) -> None:
        _ip("netns", "add", self.hub)
        _ip("-n", self.hub, "link", "set", "lo", "up")
        _ip("-n", self.hub, "address", "add", f"{SCHEDULER}/32", "dev", "lo")
        forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        subprocess.run(["ip", "netns", "exec", self.hub, "sh", "-c", forward], check=True)
        for k, name in enumerate(self.names, start=1):
            _ip("netns", "add", name)
            _ip("-n", self.hub, "link", "add", f"v{k}", "type", "veth", "peer", "name", "eth",
                "netns", name)  # fmt: skip
            _ip("-n", self.hub, "address", "add", f"10.77.{k}.1/24", "dev", f"v{k}")
            _ip("-n", self.hub, "link", "set", f"v{k}", "up")
            _ip("-n", name, "address", "add", f"10.77.{k}.2/24", "dev", "eth")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "eth", "up")
            _ip("-n", name, "route", "add", "default", "via", f"10.77.{k}.1")

    def link(self, k: int, state: str) -> None:
        """Cut (``down``) or restore (``up``) the link of host k."""
        _ip("-n", self.hub, "link", "set", f"v{k + 1}", state)

    def start(self, host: str, log: Path, *command: str) -> subprocess.Popen[bytes]:
        """Start a program on a host."""
        environment = os.environ | {
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": f"{PATIENCE}s",
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": f"{PATIENCE}s",
        }
        with log.open("ab") as out:
            process = subprocess.Popen(
                ["ip", "netns", "exec", host, sys.executable, *command],
                stdout=out, stderr=out, env=environment, start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for name in (*self.names, self.hub):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=20)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2")
    try:
        _ip("netns", "add", f"irt{os.getpid()}-try")
        _ip("netns", "delete", f"irt{os.getpid()}-try")
    except OSError as error:
        pytest.skip(f"no network namespaces here: {error}")
    with Hosts(2) as found:
        yield found


def _digests(folder: Path) -> dict[str, str]:
    files = [*folder.glob("*.nc"), folder / "items.csv", *(folder / "scores").glob("*.parquet")]
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def _until(what: str, condition: Callable[[], bool], seconds: float, log: Path) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s\n{log.read_text()[-4000:]}"
        time.sleep(0.1)


@pytest.mark.cluster
def test_a_link_is_cut_and_restored(hosts: Hosts, tmp_path: Path) -> None:
    """One of two hosts is out of reach for longer than anybody waits: the other finishes its work,
    it comes back, and the files are those of a run that nothing happened to."""
    irt.simulate(20_000, 20, seed=3, store=tmp_path / "s", rows_per_block=1024)
    logs = {name: tmp_path / f"{name}.log" for name in ("scheduler", "run", "plain", *hosts.names)}
    pipelines = {}
    for name in ("plain", "run"):
        pipelines[name] = tmp_path / f"{name}.toml"
        pipelines[name].write_text(
            PIPELINE.format(directory=tmp_path / f"of-{name}", store=tmp_path / "s")
        )
    address = f"tcp://{SCHEDULER}:{PORT}"
    (tmp_path / "c.toml").write_text(
        f'[cluster]\nkind = "address"\naddress = "{address}"\ninsecure = true\n'
    )  # nobody else is in these namespaces
    plain = hosts.start(hosts.hub, logs["plain"], "-m", "irt_dask.cli", "run",
                        str(pipelines["plain"]), "--cluster", "none", "--quiet")  # fmt: skip
    assert plain.wait(timeout=240) == 0, logs["plain"].read_text()
    hosts.start(hosts.hub, logs["scheduler"], "-m", "dask", "scheduler", "--host", SCHEDULER,
                "--port", str(PORT), "--no-dashboard")  # fmt: skip
    _until("scheduler", lambda: "Scheduler at" in logs["scheduler"].read_text(), 60,
           logs["scheduler"])  # fmt: skip
    for k, name in enumerate(hosts.names, start=1):
        hosts.start(name, logs[name], "-m", "dask", "worker", address, "--host", f"10.77.{k}.2",
                    "--nthreads", "1", "--no-dashboard",
                    "--local-directory", str(tmp_path / name))  # fmt: skip
    run = hosts.start(hosts.hub, logs["run"], "-m", "irt_dask.cli", "run",
                      str(pipelines["run"]), "--cluster", str(tmp_path / "c.toml"))  # fmt: skip
    _until("joint ML", lambda: (tmp_path / "of-run" / "joint.nc").exists(), 120, logs["run"])
    time.sleep(1.0)
    hosts.link(0, "down")
    lost = lambda: "Remove worker" in logs["scheduler"].read_text()  # noqa: E731
    _until("the scheduler misses the worker", lost, 4 * PATIENCE, logs["scheduler"])
    assert run.poll() is None, "the run ended before its worker was missed: it shows nothing"
    hosts.link(0, "up")
    assert run.wait(timeout=240) == 0, logs["run"].read_text()
    assert _digests(tmp_path / "of-run") == _digests(tmp_path / "of-plain")
    print(logs["scheduler"].read_text())


@pytest.mark.cluster
def test_a_cluster_with_encrypted_connections(hosts: Hosts, tmp_path: Path) -> None:
    """Scheduler, worker and client on three hosts, with the commands that are printed."""
    irt.simulate(3000, 8, seed=3, store=tmp_path / "s", rows_per_block=1000)
    irt_dask = [sys.executable, "-m", "irt_dask.cli"]
    made = subprocess.run([*irt_dask, "certs", tmp_path / "c", "--host", SCHEDULER],
                          capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
    lines = [shlex.split(line) for line in made.stdout.splitlines() if line.startswith("  dask ")]
    logs = {}
    for host, words in zip((hosts.hub, hosts.names[0]), lines, strict=True):
        logs[words[1]] = tmp_path / f"{words[1]}.log"
        directory = ["--local-directory", str(tmp_path)] if words[1] == "worker" else []
        hosts.start(host, logs[words[1]], "-m", *words, *directory)
    calibrate = ["-m", "irt_dask.cli", "calibrate", str(tmp_path / "s"), "--method", "joint"]
    for name, where, code in [
        ("plain", f"tcp://{SCHEDULER}:{PORT}", 2),
        ("bare", f"tls://{SCHEDULER}:{PORT}", 2),
        ("encrypted", str(tmp_path / "c" / "cluster.toml"), 0),
        ("alone", "none", 0),
    ]:
        logs[name] = tmp_path / f"{name}.log"
        out = ["--out", str(tmp_path / f"{name}.csv"), "--cluster", where, "--quiet"]
        client = hosts.start(hosts.names[1], logs[name], *calibrate, *out)
        ended = client.wait(timeout=120)
        assert ended == code, {n: log.read_text()[-2000:] for n, log in logs.items()}
    assert "Use tls://" in logs["plain"].read_text()
    assert "needs tls_ca, tls_cert, tls_key" in logs["bare"].read_text()
    assert "Starting established connection to tls://10.77.2.2" in logs["scheduler"].read_text()
    assert "tls://10.77.1.2" in logs["scheduler"].read_text()  # the worker
    banks = [(tmp_path / f"{name}.csv").read_bytes() for name in ("encrypted", "alone")]
    assert banks[0] == banks[1]
