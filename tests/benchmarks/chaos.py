"""Faults at random moments of a run: it ends as if nothing had happened, or says so and resumes.

    python tests/benchmarks/chaos.py [--faults 200] [--seed 0] [--out results.jsonl]
                                     [--only KIND]... [--stop 60]

Each fault strikes one ``irt-dask run`` of a small pipeline, which calibrates by LS-WASP or, with
fixed items, by marginal maximum likelihood; then the run is started again until it
is finished.  What it wrote must be what an undisturbed run wrote.  Faults are drawn until so many
struck: others come after the end of their run, or before there is a worker or a file.  Results are
kept in ``--out``, so that an interrupted table goes on.  What is stopped, or cut off, is so for
``--stop`` seconds at most.  The kinds that need root (a small disk), libfaketime (a clock that goes
backwards) or gcc (calls that fail) are left out, and said to be, where these are missing.

In the table a run is *lost* if the same command does not finish it, *silent* if it says that it is
done and left something else, a *hang* if it takes longer than any undisturbed one could, and an
*orphan* is a process that outlives it.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
from chaos_trial import BANK, LOCAL, METHODS, STAGES, Trial, command_line, source

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import failing_calls
from failing_calls import FOREVER, FailingCalls
from run_results import UNLIKE, results

#: Seconds after which a run counts as hanging, and until which processes may linger.
LIMIT, LINGER = 150, 15
#: Memory that a worker of these runs may have at its peak (bytes).
MEMORY = 512 << 20
#: Seconds after which Dask gives up a worker that is silent, in trials of links; 300 by default.
SILENT = 30
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
    return stopped(trial.workers(driver), driver, rng, 6.0)


def worker_stopped(trial, driver, rng):
    return stopped(trial.workers(driver), driver, rng, trial.stop)


def stopped(processes, driver, rng, most):
    """Whether one of these stood still for a while."""
    if not processes:
        return False
    one = rng.choice(processes)
    with contextlib.suppress(psutil.NoSuchProcess):
        one.suspend()
        wait(driver, rng.uniform(1.0, most))
        one.resume()
        return True
    return False


def wait(driver, seconds):
    """Let so much time pass, unless the driver ends."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        driver.wait(seconds)


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
    return stopped([psutil.Process(trial.helpers[0].pid)], driver, rng, 6.0)


def scheduler_stopped(trial, driver, rng):
    return stopped([psutil.Process(trial.helpers[0].pid)], driver, rng, trial.stop)


def link_cut(trial, driver, rng):
    """For a while, or for good."""
    for link in trial.links:
        link.cut()
    if rng.random() < 0.7:
        wait(driver, rng.uniform(1.0, trial.stop))
        for link in trial.links:
            link.mend()
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


def calls_fail(trial, driver, rng, operations, error, always=False):
    """From now on some calls of the file system succeed, then one fails, or all."""
    times = FOREVER if always or rng.random() < 0.5 else 1
    trial.calls.fail(rng.choice(operations), error, rng.randrange(20), times)
    while driver.poll() is None and not trial.calls.failed:
        time.sleep(0.02)
    return trial.calls.failed > 0


def input_output_error(trial, driver, rng):
    return calls_fail(trial, driver, rng, failing_calls.OPERATIONS, errno.EIO)


def stale_handle(trial, driver, rng):
    return calls_fail(trial, driver, rng, ("open", "read", "rename"), errno.ESTALE)


def no_space(trial, driver, rng):
    return calls_fail(trial, driver, rng, ("write",), errno.ENOSPC, always=True)


def second_driver(trial, driver, rng):
    """Another one works on the same run; one of the two is told so, or finds it finished."""
    other = trial.start(*trial.command(), log="other")
    code = ended(other, trial.limit)
    trial.others.append(verdict(code, (trial.folder / "other").read_text()))
    if code is None:
        os.killpg(other.pid, signal.SIGKILL)
        other.wait()
    return True


def source_changed(trial, driver, rng):
    """One response is another one."""
    data = bytearray(trial.responses.read_bytes())
    at = rng.choice([k for k in range(200, len(data)) if data[k - 1 : k + 1] in (b",0", b",1")])
    data[at] ^= 1
    trial.responses.write_bytes(data)
    return True


def store_appended(trial, driver, rng):
    """Somebody adds persons to the store that the run reads."""
    source(trial.folder / "more.csv", 300, first=4000)
    command = ("append", str(trial.folder / "more.csv"), str(trial.responses))
    return ended(trial.start("irt_dask.cli", *command, log="other"), trial.limit) == 0


def own_store_appended(trial, driver, rng):
    """Somebody adds persons to the store in the run directory, which is the run's alone."""
    if "ingest" not in trial.finished():
        return False
    source(trial.folder / "more.csv", 300, first=4000)
    command = ("append", str(trial.folder / "more.csv"), str(trial.folder / "r" / "responses"))
    return ended(trial.start("irt_dask.cli", *command, log="other"), trial.limit) == 0


def store_made_anew(trial, driver, rng):
    """Somebody puts another store where the one is that the run reads."""
    other = trial.responses.with_name("other.store")
    if not other.exists():
        return False
    trial.responses.rename(trial.responses.with_name("away"))
    other.rename(trial.responses)
    return True


def bank_changed(trial, driver, rng):
    """A fixed item has another intercept."""
    (trial.folder / "bank.csv").write_text(BANK.replace("1.0,0.0", "1.0,0.5", 1))
    return True


def clock_backwards(trial, driver, rng):
    (trial.folder / "clock").write_text(f"-{rng.choice([2, 60, 86400])}")
    return True


def nothing(trial, driver, rng):
    """The fault is in how the run was started."""


KINDS = {
    "worker killed": worker_killed,
    "worker stalled": worker_stalled,
    "worker stopped": worker_stopped,
    "driver killed": driver_killed,
    "driver killed between stages": driver_killed,
    "driver interrupted": driver_interrupted,
    "driver terminated": driver_terminated,
    "scheduler killed": scheduler_killed,
    "scheduler stalled": scheduler_stalled,
    "scheduler stopped": scheduler_stopped,
    "link cut to a worker": link_cut,
    "link cut to the driver": link_cut,
    "two drivers": second_driver,
    "file damaged": file_damaged,
    "source changed": source_changed,
    "store appended to": store_appended,
    "own store appended to": own_store_appended,
    "store made anew": store_made_anew,
    "bank changed": bank_changed,
    "call fails: EIO": input_output_error,
    "call fails: ESTALE": stale_handle,
    "call fails: ENOSPC": no_space,
    "disk full": nothing,
    "clock backwards": clock_backwards,
    "out of memory": nothing,
}
#: A run takes longer by these.
LONGER = worker_stopped, worker_stalled, scheduler_stopped, scheduler_stalled, link_cut
#: After these the run's data or results may be others than it was started with, and it says so.
CHANGED = (
    "file damaged", "source changed", "store appended to", "own store appended to",
    "store made anew", "bank changed",
)  # fmt: skip


def kinds():
    """Kinds that can be had here, and the others with the reason."""
    without = {}
    if not Path(FAKETIME).exists():
        without["clock backwards"] = "libfaketime is not installed"
    elif shutil.which("gcc") is None:
        without["clock backwards"] = "libfaketime alone disturbs waits; gcc is needed to mend that"
    if os.geteuid() != 0:
        without["disk full"] = "mounting a small disk needs root"
    if reason := failing_calls.missing():
        without |= {kind: reason for kind in KINDS if kind.startswith("call fails")}
    return [k for k in KINDS if k not in without], without


def prepared(trial, kind, rng, whole):
    """What has to be there before the run."""
    if kind.startswith("scheduler"):
        trial.cluster()
    elif kind.startswith("link"):
        trial.environment = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": f"{SILENT} s"}
        trial.cluster(link=kind.rpartition(" ")[2])
    elif kind == "source changed":
        trial.responses = Path(shutil.copy(whole.responses, trial.folder / "d.csv"))
        trial.configure(LOCAL)
    elif kind.startswith("store"):
        trial.responses = trial.folder / "d.store"
        shutil.copytree(whole.store, trial.responses)
        shutil.copytree(whole.other, trial.folder / "other.store")
        trial.configure(LOCAL)
    elif kind.startswith("call fails"):
        (trial.folder / "r").mkdir()
        trial.calls = FailingCalls(trial.folder / "r", trial.folder)
        trial.environment = trial.calls.environment
    elif kind == "disk full":
        (trial.folder / "r").mkdir()
        least = int(whole.size * rng.uniform(0.05, 0.95))
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


def undone(trial, kind, whole):
    """Make the next run an undisturbed one."""
    if kind == "disk full":
        subprocess.run(["mount", "-o", "remount,size=256m", str(trial.folder / "r")], check=True)
    elif kind == "source changed":
        shutil.copy(whole.responses, trial.responses)
    elif kind.startswith("store"):
        shutil.rmtree(trial.responses)
        shutil.copytree(whole.store, trial.responses)
    trial.end()
    trial.helpers, trial.environment, trial.links = [], {}, []
    trial.configure(LOCAL)


# --- one trial ------------------------------------------------------------------------------------


class Whole:
    """What undisturbed runs by a method leave, and what trials copy."""

    def __init__(self, folder, method):
        self.folder, self.responses, self.method = folder, folder / "d.csv", method
        folder.mkdir()
        source(self.responses)
        trial = Trial(folder / "whole", self.responses, f"{os.getpid()}-whole", method)
        for _ in range(2):  # the second with compiled kernels
            self.seconds = finished(trial, "--fresh")
        self.of_file, self.most = results(trial.folder / "r"), trial.most
        files = [f for f in (trial.folder / "r").rglob("*") if f.is_file()]
        self.size = sum(f.stat().st_size for f in files)
        self.store, self.other = folder / "d.store", folder / "other.store"
        shutil.copytree(trial.folder / "r" / "responses", self.store)
        self._of_store, self._checksums = None, {False: checksums_of_data(trial)}
        print(
            f"undisturbed, {method}: {self.seconds:.1f} s, {len(self.of_file)} files, "
            f"{self.size / 1e6:.1f} MB, largest worker {self.most >> 20} MiB", flush=True,
        )  # fmt: skip

    def make_other(self):
        """A store of as many other persons."""
        if not self.other.exists():
            source(self.folder / "other.csv", first=7000)
            irt_dask = [sys.executable, "-m", "irt_dask.cli"]
            subprocess.run(
                [*irt_dask, "ingest", str(self.folder / "other.csv"), str(self.other),
                 "--cluster", "none"], check=True, capture_output=True,
            )  # fmt: skip

    @property
    def of_store(self):
        """Results of a run on the store: it has none of its own."""
        if self._of_store is None:
            self.make_other()
            trial = Trial(self.folder / "of_store", self.store, f"{os.getpid()}-store", self.method)
            finished(trial)
            self._of_store = results(trial.folder / "r")
            self._checksums[True] = checksums_of_data(trial)
        return self._of_store

    def want(self, kind):
        return self.of_store if kind.startswith("store") else self.of_file

    def checksums(self, kind):
        return self._checksums[kind.startswith("store")]


def checksums_of_data(trial):
    """What the run says that its data and its bank were."""
    content = json.loads((trial.folder / "r" / "run.json").read_text())
    return content["data_checksum"], content.get("bank_checksum")


def finished(trial, *options):
    """Seconds of a run that nothing disturbs."""
    begun = time.monotonic()
    if ended(trial.run(*options), 600) != 0:
        sys.exit((trial.folder / "log").read_text())
    return time.monotonic() - begun


def differing(trial, want):
    """Files that are not what an undisturbed run leaves."""
    got = results(trial.folder / "r")
    return sorted(f for f in got.keys() | want.keys() if got.get(f) != want.get(f))


def ended(driver, limit):
    """Exit code, None if it hangs."""
    try:
        return driver.wait(timeout=limit)
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


def disturbed(t, kind, rng, whole, out):
    """The run that is struck."""
    begun = time.monotonic()
    driver = t.run()
    if kind.endswith("between stages"):
        stage = out["at"] = rng.choice(STAGES[t.method])
        pause, come = 0.003, lambda: stage in t.finished()
    else:
        at = out["at"] = round(rng.uniform(0.3, whole.seconds), 2)
        pause, come = 0.02, lambda: time.monotonic() >= begun + at
    while driver.poll() is None and not come():
        time.sleep(pause)
    strike = KINDS[kind]
    out["struck"] = strike is nothing or (driver.poll() is None and strike(t, driver, rng))
    code = ended(driver, t.limit)
    out["first"] = verdict(code, (t.folder / "log").read_text())
    out["first_seconds"] = round(time.monotonic() - begun, 1)
    if code is None:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    out["said"] = (t.folder / "log").read_text()[-600:] if code else ""
    out["others"] = t.others
    out["silent"] = []
    if code == 0 and KINDS[kind] not in LONGER:  # the machine may be busier, or less, than it was
        whole.seconds = out["first_seconds"]
    if code == 0 and kind != "file damaged" and checksums_of_data(t) == whole.checksums(kind):
        own = kind.startswith("own")  # that the store has changed is what was done to it
        found = differing(t, whole.want(kind))
        out["silent"] = [f for f in found if not (own and f.startswith("responses/"))]


def orphans(t):
    """Processes that outlive the run; they are ended."""
    stop = time.monotonic() + LINGER
    while (left := t.lingering()) and time.monotonic() < stop:
        time.sleep(0.2)
    found = [" ".join(command_line(p))[:120] for p in left]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return found


def resumed(t, want, out):
    """The same command until the run is finished; ``--fresh`` where it asks for that."""
    out["resumed"] = []
    for options in ((), ("--fresh",)):
        code = ended(again := t.run(*options), t.limit)
        out["resumed"].append(verdict(code, (t.folder / "log").read_text()))
        if code is None:
            os.killpg(again.pid, signal.SIGKILL)
        if code == 0:
            break
        out["said"] += (t.folder / "log").read_text()[-600:]
    out["differs"] = differing(t, want)
    if any(f.startswith("responses/part-") for f in out["differs"]):
        # Of a store nothing is read again once the run is over: whoever does must be told.
        (t.folder / "log").write_text("")
        verify = t.start("irt_dask.cli", "verify", str(t.folder / "r" / "responses"))
        code = ended(verify, t.limit)
        said = (t.folder / "log").read_text()  # a line for each file
        named = code == 1 and said.startswith("error: ") and "is a defect" not in said
        out["resumed"][-1] = "named error" if named else "NO NAMED ERROR"
        out["said"] += said[-600:]
        code = ended(t.run("--fresh"), t.limit)
        out["resumed"].append(verdict(code, (t.folder / "log").read_text()))
        out["differs"] = differing(t, want)


def trial(k, options, whole_by):
    rng = random.Random(f"{options.seed}-{k}")
    kind = options.only[k % len(options.only)] if options.only else rng.choice(kinds()[0])
    method = "marginal" if kind == "bank changed" else rng.choice(sorted(METHODS))
    whole = whole_by(method)
    want = whole.want(kind)
    t = Trial(whole.folder / f"t{k}", whole.responses, f"{os.getpid()}-{k}", method)
    t.stop, t.limit = options.stop, max(LIMIT, 10 * whole.seconds) + options.stop + SILENT
    out = {"k": k, "kind": kind, "method": method}
    try:
        prepared(t, kind, rng, whole)
        disturbed(t, kind, rng, whole, out)
        undone(t, kind, whole)
        out["orphans"] = orphans(t)
        resumed(t, want, out)
        out["most"] = t.most
    finally:
        t.end()
        subprocess.run(["umount", "-l", str(t.folder / "r")], capture_output=True)
        shutil.rmtree(t.folder, ignore_errors=True)
    out["findings"] = findings(out)
    return out


def findings(out):
    """What is wrong with how a run ended, in the words of the table."""
    found = []
    first, fresh = out["resumed"][0], len(out["resumed"]) > 1
    if out["resumed"][-1] != "done" or (
        fresh and not (out["kind"] in CHANGED and first == "named error")
    ):
        found.append("lost")
    if out["differs"] or out["silent"]:
        found.append("silent")
    if "HANG" in (out["first"], *out["others"], *out["resumed"]):
        found.append("hang")
    if "NO NAMED ERROR" in (out["first"], *out["others"], *out["resumed"]):
        found.append("not named")
    if out["orphans"]:
        found.append("orphan")
    if out["most"] >= MEMORY:
        found.append("memory")
    return found


# --- the table ------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", "--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=KINDS, action="append", help="may be given again")
    parser.add_argument("--stop", type=float, default=60.0, help="seconds that things stand still")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background jobs ignore it
    done = []
    if options.out and options.out.exists():
        done = [json.loads(line) for line in options.out.read_text().splitlines()]
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        whole_by = functools.cache(lambda method: Whole(Path(name).resolve() / method, method))
        for kind, reason in kinds()[1].items():
            print(f"left out: {kind} ({reason})")
        while sum(d["struck"] for d in done) < options.faults:
            done.append(trial(len(done), options, whole_by))
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(done[-1]) + "\n")
            if done[-1]["findings"]:
                print(json.dumps(done[-1]), flush=True)
    table(done)
    sys.exit(any(d["findings"] for d in done))


WRONG = "lost", "silent", "hang", "orphan", "not named", "memory"


def table(done):
    columns = ("runs", "struck", "done", "named", "killed", "right", *WRONG, "longest")
    print(f"{'fault':<28}" + "".join(f"{c:>10}" for c in columns))
    for kind in KINDS:
        own = [d for d in done if d["kind"] == kind]
        if own:
            row(kind, own)
    row("all", done)
    struck, found = sum(d["struck"] for d in done), Counter(f for d in done for f in d["findings"])
    print(
        f"{struck} faults: {found['lost']} lost, {found['silent']} silent, {found['hang']} hangs, "
        f"{found['orphan']} with orphans, {found['not named']} without a named error, "
        f"{found['memory']} beyond {MEMORY >> 20} MiB; {len(done) - struck} more struck nothing, "
        f"largest worker {max(d['most'] for d in done) >> 20} MiB"
    )


def row(kind, own):
    first = Counter(d["first"] for d in own)
    found = Counter(f for d in own for f in d["findings"])
    right = sum(d["resumed"][-1] == "done" and not d["differs"] for d in own)
    cells = (
        len(own), sum(d["struck"] for d in own), first["done"], first["named error"],
        first["killed"], right, *(found[w] for w in WRONG),
        f"{max(d['first_seconds'] for d in own):.0f} s",
    )  # fmt: skip
    print(f"{kind:<28}" + "".join(f"{c:>10}" for c in cells))


if __name__ == "__main__":
    main()
