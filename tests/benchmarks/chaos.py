"""Faults at random moments of a run: it ends as if nothing had happened, or says so and resumes.

    python tests/benchmarks/chaos.py [--n 200] [--seed 0] [--out results.jsonl] [--only KIND]

Each fault strikes one ``irt-dask run`` of a small pipeline; then the run is started again until it
is finished.  What it wrote must be what an undisturbed run wrote.  Faults are drawn until ``--n``
struck: others come after the end of their run, or before there is a worker or a file.  Results are
kept in ``--out``, so that an interrupted table goes on.  The kinds that need root (a small disk) or
libfaketime (a clock that goes backwards) are left out, and said to be, where these are missing.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
import pyarrow.parquet as pq

PIPELINE = """
seed = 1
directory = "{folder}/r"
[data]
source = "{source}"
rows_per_block = 512
[cluster]
{cluster}
[joint]
coreset = 400
max_iterations = 8
[bayes]
shards = 2
draws = 200
warmup = 50
[check]
replicates = 10
"""
LOCAL = 'kind = "local"\nworkers = 2'
#: Seconds after which a run counts as hanging, and until which processes may linger.
LIMIT, LINGER = 150, 15
#: Memory that a worker of these runs may have at its peak (bytes).
MEMORY = 512 << 20
STAGES = "ingest", "summary", "spectral", "joint", "bayes", "check", "score", "report"
#: Environment variable that marks all processes of a trial.
MARK = "IRT_DASK_CHAOS"
UNLIKE = {"run.json", "report.html", "log.txt", ".lock"}  # hold seconds, or are no results
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
#: libfaketime mistakes waits on the monotonic clock, which it is told to leave alone: sleeps fail,
#: and Python's threads no longer take turns.  These two go past it, so that clocks lie, not waits.
WAITS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_nanosleep(clockid_t c, int f, const struct timespec *a, struct timespec *b) {
    return syscall(SYS_clock_nanosleep, c, f, a, b) ? errno : 0;
}
int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real)
        real = dlvsym(dlopen("libc.so.6", RTLD_LAZY), "pthread_cond_timedwait", "GLIBC_2.3.2");
    return real(c, m, t);
}
"""


def source(path):
    """Responses of 4,000 persons to 12 items, a tenth missing."""
    import numpy as np

    rng = np.random.default_rng(1)
    y = (rng.random((4000, 12)) < 1 / (1 + np.exp(-rng.normal(size=(4000, 1))))).astype(int)
    rows = [
        f"p{i}," + ",".join("" if rng.random() < 0.1 else str(x) for x in row)
        for i, row in enumerate(y)
    ]
    path.write_text(
        "person," + ",".join(f"q{j}" for j in range(12)) + "\n" + "\n".join(rows) + "\n"
    )


def results(folder):
    """Checksums of what a reader of the results finds."""
    out = {}
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or file.name in UNLIKE:
            continue
        data = file.read_bytes()
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            data = repr([table.schema, *(c.to_pylist() for c in table.columns)]).encode()
        out[file.relative_to(folder).as_posix()] = hashlib.sha256(data).hexdigest()
    return out


def differing(trial, want):
    """Files that are not what an undisturbed run leaves."""
    got = results(trial.folder / "r")
    return sorted(f for f in got.keys() | want.keys() if got.get(f) != want.get(f))


class Trial:
    """One run in a folder of its own, with everything that it starts."""

    def __init__(self, folder, responses, mark):
        self.folder, self.mark, self.helpers, self.most = folder, mark, [], 0
        folder.mkdir(parents=True, exist_ok=True)
        self.responses, self.environment = responses, {}
        self.configure(LOCAL)

    def configure(self, cluster):
        text = PIPELINE.format(folder=self.folder, source=self.responses, cluster=cluster)
        (self.folder / "p.toml").write_text(text)

    def start(self, *arguments, log="log"):
        with (self.folder / log).open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments], stdout=out, stderr=out, start_new_session=True,
                env=os.environ | self.environment | {MARK: self.mark},
            )  # fmt: skip

    def run(self, *options):
        (self.folder / "log").write_text("")
        driver = self.start("irt_dask.cli", "run", str(self.folder / "p.toml"), "--quiet", *options)
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

    def cluster(self):
        """A scheduler and two workers of their own; the pipeline uses them."""
        scheduler = self.start(
            "dask", "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
            "--scheduler-file", str(self.folder / "scheduler.json"), log="scheduler",
        )  # fmt: skip
        self.helpers.append(scheduler)
        end = time.monotonic() + 30
        while not (self.folder / "scheduler.json").exists():
            if time.monotonic() > end:
                raise RuntimeError("no scheduler")
            time.sleep(0.1)
        time.sleep(0.2)
        address = json.loads((self.folder / "scheduler.json").read_text())["address"]
        for k in range(2):
            self.helpers.append(
                self.start("dask", "worker", address, "--nthreads", "1", "--no-dashboard",
                           "--local-directory", str(self.folder / f"w{k}"), log=f"worker{k}")
            )  # fmt: skip
        self.configure(f'kind = "address"\naddress = "{address}"')
        return scheduler

    def end(self):
        for helper in self.helpers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(helper.pid, signal.SIGKILL)
            helper.wait()

    def workers(self, driver):
        """Worker processes below a driver or a nanny."""
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(driver.pid).children(recursive=True)
            return [c for c in children if "spawn_main" in " ".join(_cmdline(c))]
        return []

    def lingering(self):
        """Processes of this trial that are left."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != "zombie":
                    found.append(process)
        return found


def _cmdline(process):
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


# --- the faults -----------------------------------------------------------------------------------
# Each strikes a running driver at a moment, and returns whether there was anything to strike.


def worker_killed(trial, driver, rng):
    killed = 0
    for _ in range(rng.choice([1, 1, 2, 3])):
        workers = trial.workers(driver)
        if workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                rng.choice(workers).kill()
                killed += 1
        time.sleep(rng.uniform(0.1, 1.0))
    return killed > 0


def worker_stalled(trial, driver, rng):
    workers = trial.workers(driver)
    if workers:
        one = rng.choice(workers)
        with contextlib.suppress(psutil.NoSuchProcess):
            one.suspend()
            time.sleep(rng.uniform(1.0, 6.0))
            one.resume()
            return True
    return False


def driver_killed(trial, driver, rng):
    driver.kill()
    return True


def driver_interrupted(trial, driver, rng):
    driver.send_signal(signal.SIGINT)
    return True


def driver_terminated(trial, driver, rng):
    driver.send_signal(signal.SIGTERM)
    return True


def scheduler_killed(trial, driver, rng):
    trial.helpers[0].kill()
    return True


def scheduler_stalled(trial, driver, rng):
    trial.helpers[0].send_signal(signal.SIGSTOP)
    time.sleep(rng.uniform(1.0, 6.0))
    trial.helpers[0].send_signal(signal.SIGCONT)
    return True


def file_damaged(trial, driver, rng):
    folder = trial.folder / "r"
    files = [f for f in folder.rglob("*") if f.is_file() and f.name not in UNLIKE] \
        if folder.exists() else []  # fmt: skip
    for file in rng.sample(files, 1) if files else []:
        with contextlib.suppress(OSError):
            data = file.read_bytes()
            kind = rng.randrange(3)
            if kind == 0:
                file.unlink()
            elif data:
                at = rng.randrange(len(data))
                changed = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
                file.write_bytes(changed if kind == 1 else data[:at])
            return kind == 0 or bool(data)
    return False


def clock_backwards(trial, driver, rng):
    (trial.folder / "clock").write_text(f"-{rng.choice([2, 60, 86400])}")
    return True


def nothing(trial, driver, rng):
    """The fault is in how the run was started."""


KINDS = {
    "worker killed": worker_killed,
    "worker stalled": worker_stalled,
    "driver killed": driver_killed,
    "driver killed between stages": driver_killed,
    "driver interrupted": driver_interrupted,
    "driver terminated": driver_terminated,
    "scheduler killed": scheduler_killed,
    "scheduler stalled": scheduler_stalled,
    "file damaged": file_damaged,
    "disk full": nothing,
    "clock backwards": clock_backwards,
    "out of memory": nothing,
}


def kinds():
    """Kinds that can be had here, and the others with the reason."""
    without = {}
    if not Path(FAKETIME).exists():
        without["clock backwards"] = "libfaketime is not installed"
    elif shutil.which("gcc") is None:
        without["clock backwards"] = "libfaketime alone disturbs waits; gcc is needed to mend that"
    if os.geteuid() != 0:
        without["disk full"] = "mounting a small disk needs root"
    return [k for k in KINDS if k not in without], without


def prepared(trial, kind, rng, size):
    """What has to be there before the run; returns how to undo it."""
    if kind.startswith("scheduler"):
        trial.cluster()
    elif kind == "disk full":
        (trial.folder / "r").mkdir()
        least = int(size * rng.uniform(0.05, 0.95))
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={least}", "tmpfs", str(trial.folder / "r")],
            capture_output=True,
        )
        if mounted.returncode:
            raise RuntimeError(mounted.stderr.decode())
    elif kind == "clock backwards":
        (trial.folder / "clock").write_text("+0")
        waits = trial.folder / "waits.so"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(waits), "-ldl"],
            input=WAITS.encode(), check=True,
        )  # fmt: skip
        trial.environment = {
            "LD_PRELOAD": f"{waits} {FAKETIME}",
            "FAKETIME_TIMESTAMP_FILE": str(trial.folder / "clock"),
            "FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip
    elif kind == "out of memory":
        trial.configure(f'{LOCAL}\nmemory = "{rng.choice([150, 200, 250])}MB"')


def undone(trial, kind):
    """Make the next run an undisturbed one."""
    if kind == "disk full":
        subprocess.run(["mount", "-o", "remount,size=256m", str(trial.folder / "r")], check=True)
    trial.end()
    trial.helpers, trial.environment = [], {}
    trial.configure(LOCAL)


def ended(driver):
    """Exit code, None if it hangs."""
    try:
        return driver.wait(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return None


def verdict(code, log):
    """How a run ended: done, or stopped with a named error; anything else is a finding."""
    if code is None:
        return "HANG"
    if code == 0:
        return "done"
    if code < 0:
        return "killed"
    last = (log.strip().splitlines() or [""])[-1]  # Dask's own log may stand before
    if "defect of irt_dask" in log or not last.startswith(("error: ", "stopped; ")):
        return "NO NAMED ERROR"
    return "named error"


def trial(k, seed, folder, responses, want, size, seconds, only):
    rng = random.Random(f"{seed}-{k}")
    kind = only or rng.choice(kinds()[0])
    t = Trial(folder / f"t{k}", responses, f"{os.getpid()}-{k}")
    out = {"k": k, "kind": kind}
    try:
        prepared(t, kind, rng, size)
        begun = time.monotonic()
        driver = t.run()
        if kind.endswith("between stages"):
            stage = out["at"] = rng.choice(STAGES)
            wait, come = 0.003, lambda: stage in t.finished()
        else:
            at = out["at"] = round(rng.uniform(0.3, seconds), 2)
            wait, come = 0.02, lambda: time.monotonic() >= begun + at
        while driver.poll() is None and not come():
            time.sleep(wait)
        strike = KINDS[kind]
        out["struck"] = strike is nothing or (driver.poll() is None and strike(t, driver, rng))
        code = ended(driver)
        out["first"] = verdict(code, (t.folder / "log").read_text())
        out["first_seconds"] = round(time.monotonic() - begun, 1)
        if code is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        out["said"] = (t.folder / "log").read_text()[-300:] if code else ""
        undone(t, kind)
        stop = time.monotonic() + LINGER
        while (left := t.lingering()) and time.monotonic() < stop:
            time.sleep(0.2)
        out["orphans"] = [" ".join(_cmdline(p))[:120] for p in left]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        out["resumed"] = []
        for options in ((), ("--fresh",)):
            code = ended(again := t.run(*options))
            out["resumed"].append(verdict(code, (t.folder / "log").read_text()))
            if code is None:
                os.killpg(again.pid, signal.SIGKILL)
            if code == 0:
                break
            out["said"] += (t.folder / "log").read_text()[-300:]
        out["differs"] = differing(t, want)
        if any(f.startswith("responses/part-") for f in out["differs"]):
            # Of a store nothing is read again once the run is over: whoever does must be told.
            (t.folder / "log").write_text("")
            code = ended(t.start("irt_dask.cli", "verify", str(t.folder / "r" / "responses")))
            said = (t.folder / "log").read_text()  # a line for each file
            named = code == 1 and said.startswith("error: ") and "is a defect" not in said
            out["resumed"][-1] = "named error" if named else "NO NAMED ERROR"
            out["said"] += (t.folder / "log").read_text()[-300:]
            code = ended(t.run("--fresh"))
            out["resumed"].append(verdict(code, (t.folder / "log").read_text()))
            out["differs"] = differing(t, want)
        out["most"] = t.most
    finally:
        t.end()
        subprocess.run(["umount", "-l", str(t.folder / "r")], capture_output=True)
        shutil.rmtree(t.folder, ignore_errors=True)
    fresh = len(out["resumed"]) > 1
    out["fine"] = (
        out["first"] in ("done", "named error", "killed")
        and out["resumed"][-1] == "done"
        and (not fresh or (kind == "file damaged" and out["resumed"][0] == "named error"))
        and not out["differs"]
        and not out["orphans"]
        and out["most"] < MEMORY
    )
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background jobs ignore it
    done = []
    if options.out and options.out.exists():
        done = [json.loads(line) for line in options.out.read_text().splitlines()]
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        folder = Path(name)
        source(folder / "d.csv")
        whole = Trial(folder / "whole", folder / "d.csv", f"{os.getpid()}-whole")
        for _ in range(2):  # the second with compiled kernels
            shutil.rmtree(whole.folder / "r", ignore_errors=True)
            begun = time.monotonic()
            if ended(whole.run()) != 0:
                sys.exit((whole.folder / "log").read_text())
            seconds = time.monotonic() - begun
        want = results(whole.folder / "r")
        size = sum(f.stat().st_size for f in (whole.folder / "r").rglob("*") if f.is_file())
        print(f"undisturbed: {seconds:.1f} s, {len(want)} files, {size / 1e6:.1f} MB, "
              f"largest worker {whole.most >> 20} MiB")  # fmt: skip
        for kind, reason in kinds()[1].items():
            print(f"left out: {kind} ({reason})")
        while sum(d["struck"] for d in done) < options.n:
            k = len(done)
            done.append(
                trial(k, options.seed, folder, folder / "d.csv", want, size, seconds, options.only)
            )
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(done[-1]) + "\n")
            if not done[-1]["fine"]:
                print(json.dumps(done[-1]), flush=True)
    table(done)
    sys.exit(not all(d["fine"] for d in done))


def table(done):
    print(f"{'fault':<28} {'runs':>5} {'struck':>7} {'went on':>8} {'named':>6} {'killed':>7} "
          f"{'resumed':>8} {'longest s':>10} {'findings':>9}")  # fmt: skip
    for kind in KINDS:
        own = [d for d in done if d["kind"] == kind]
        if own:
            first = Counter(d["first"] for d in own)
            print(f"{kind:<28} {len(own):>5} {sum(d['struck'] for d in own):>7} "
                  f"{first['done']:>8} {first['named error']:>6} {first['killed']:>7} "
                  f"{sum(d['resumed'][-1] == 'done' for d in own):>8} "
                  f"{max(d['first_seconds'] for d in own):>10.1f} "
                  f"{sum(not d['fine'] for d in own):>9}")  # fmt: skip
    lost = sum(d["resumed"][-1] != "done" for d in done)
    print(
        f"{sum(d['struck'] for d in done)} faults: {lost} lost, "
        f"{sum(bool(d['differs']) for d in done)} different, "
        f"{sum(d['first'] == 'HANG' for d in done)} hangs, "
        f"{sum(bool(d['orphans']) for d in done)} with orphans, "
        f"{sum(not d['struck'] for d in done)} more struck nothing, "
        f"largest worker {max(d['most'] for d in done) >> 20} MiB"
    )


if __name__ == "__main__":
    main()
