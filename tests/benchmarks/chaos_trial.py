"""One run of a small pipeline with everything that it starts, for chaos.py."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil

PIPELINE = """
seed = 1
directory = "{folder}/r"
[data]
{data}
[cluster]
{cluster}
[check]
replicates = 10
"""
#: What is added to it for each method of calibration, and its stages.
METHODS = {
    "bayes": """
[joint]
coreset = 400
max_iterations = 8
[bayes]
shards = 2
draws = 200
warmup = 50
""",
    "marginal": """
[calibrate]
method = "marginal"
[marginal]
model = "3pl"
fixed_items = "{folder}/bank.csv"
[score]
prior = "population"
""",
}
_CALIBRATION = {"bayes": ("spectral", "joint", "bayes"), "marginal": ("marginal",)}
STAGES = {
    method: ("ingest", "summary", *own, "check", "score", "report")
    for method, own in _CALIBRATION.items()
}
BANK = "item,a,b,c\nq0,1.0,0.0,0.0\nq1,1.0,0.0,0.0\n"
LOCAL = 'kind = "local"\nworkers = 2'
#: Environment variable that marks all processes of a trial.
MARK = "IRT_DASK_CHAOS"


def source(path, n=4000, first=0):
    """Responses of some persons to 12 items, a tenth missing."""
    import numpy as np

    rng = np.random.default_rng(1 + first)
    y = (rng.random((n, 12)) < 1 / (1 + np.exp(-rng.normal(size=(n, 1))))).astype(int)
    rows = [
        f"p{first + i}," + ",".join("" if rng.random() < 0.1 else str(x) for x in row)
        for i, row in enumerate(y)
    ]
    path.write_text(
        "person," + ",".join(f"q{j}" for j in range(12)) + "\n" + "\n".join(rows) + "\n"
    )


class Trial:
    """One run in a folder of its own, with everything that it starts."""

    def __init__(self, folder, responses, mark, method):
        self.folder, self.mark, self.helpers, self.most = folder, mark, [], 0
        self.method = method
        folder.mkdir(parents=True, exist_ok=True)
        self.responses, self.environment, self.links, self.others = responses, {}, [], []
        self.configure(LOCAL)

    def configure(self, cluster):
        """Write the pipeline's file: the responses are a file, or a folder, a store."""
        if self.responses.is_dir():
            data = f'store = "{self.responses}"'
        else:
            data = f'source = "{self.responses}"\nrows_per_block = 512'
        text = PIPELINE + METHODS[self.method]
        text = text.format(folder=self.folder, data=data, cluster=cluster)
        (self.folder / "p.toml").write_text(text)
        (self.folder / "bank.csv").write_text(BANK)

    def start(self, *arguments, log="log"):
        with (self.folder / log).open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments], stdout=out, stderr=out, start_new_session=True,
                env=os.environ | self.environment | {MARK: self.mark},
            )  # fmt: skip

    def command(self, *options):
        return "irt_dask.cli", "run", str(self.folder / "p.toml"), "--quiet", *options

    def run(self, *options):
        (self.folder / "log").write_text("")
        driver = self.start(*self.command(*options))
        threading.Thread(target=self._weigh, args=(driver,), daemon=True).start()
        return driver

    def _weigh(self, driver):
        """Note the largest memory of a worker, until the driver ends."""
        while driver.poll() is None:
            for parent in (driver, *self.helpers):
                for worker in self.workers(parent):
                    with contextlib.suppress(psutil.Error):
                        self.most = max(self.most, worker.memory_info().rss)
            time.sleep(0.2)

    def finished(self):
        """Stages that the run's manifest names."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.folder / "r" / "run.json").read_text())["stages"].keys()
        return ()

    def cluster(self, link=None):
        """A scheduler and two workers of their own; the pipeline uses them.

        With a ``link`` the "worker", its first, or the "driver" reaches the others through one.
        """
        scheduler = self.start(
            "dask", "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
            "--scheduler-file", str(self.folder / "scheduler.json"), log="scheduler",
        )  # fmt: skip
        self.helpers.append(scheduler)
        end = time.monotonic() + 60
        while not (self.folder / "scheduler.json").exists():
            if time.monotonic() > end:
                raise RuntimeError("no scheduler")
            time.sleep(0.1)
        time.sleep(0.2)
        address = json.loads((self.folder / "scheduler.json").read_text())["address"]
        for k in range(2):
            more = ["--local-directory", str(self.folder / f"w{k}"), "--nthreads", "1"]
            to = address
            if link == "worker" and k == 0:  # both ways
                port = free_port()
                to, back = self.link(address), self.link(f"tcp://127.0.0.1:{port}")
                more += ["--no-nanny", "--worker-port", str(port), "--contact-address", back]
            self.helpers.append(
                self.start("dask", "worker", to, "--no-dashboard", *more, log=f"worker{k}")
            )
        if link == "driver":
            address = self.link(address)
        self.configure(f'kind = "address"\naddress = "{address}"')
        return scheduler

    def link(self, address):
        """The address of a link to this one."""
        self.links.append(Link(int(address.rpartition(":")[2])))
        return f"tcp://127.0.0.1:{self.links[-1].port}"

    def end(self):
        for helper in self.helpers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(helper.pid, signal.SIGKILL)
            helper.wait()
        for link in self.links:
            link.close()

    def workers(self, driver):
        """Worker processes below a driver or a nanny."""
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(driver.pid).children(recursive=True)
            return [c for c in children if "spawn_main" in " ".join(command_line(c))]
        return []

    def lingering(self):
        """Processes of this trial that are left."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != "zombie":
                    found.append(process)
        return found


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Link:
    """Passes on what comes to a port; while it is cut nothing does, and nobody is told."""

    def __init__(self, target):
        self._target, self._whole, self._ends = target, threading.Event(), []
        self._whole.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        self._whole.clear()

    def mend(self):
        self._whole.set()

    def close(self):
        for one in (self._listening, *self._ends):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self.mend()  # so that threads end

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self._listening.accept()[0]
                self._ends.append(near)
                self._whole.wait()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._ends.append(far)
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._whole.wait()
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def command_line(process):
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []
