"""SIGKILL at any moment leaves the store as it was or as it was to be; another run completes it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irt_dask as irt
from irt_dask.errors import InputError, Notice

ROWS = 200_000
PROGRAM = """
import json, sys, irt_dask as irt
from irt_dask.ingest import run
print("begin", flush=True)
function, source, store, options = sys.argv[1:]
getattr(irt, function)(source, store, progress=False, **json.loads(options))
print("end", flush=True)
"""
#: Two and four categories, said by item; some items count back, and a label is a category.
CATEGORIES: dict[str, Any] = {
    "categories": {f"q{j}": 4 for j in range(0, 100, 3)},
    "reverse": ["q3", "q6"], "recode": {"often": 3}, "null_categories": "keep",
}  # fmt: skip
#: The data of a test: what ingest and append are told.
OF = [pytest.param({}, id="right or wrong"), pytest.param(CATEGORIES, id="categories")]


@dataclass(frozen=True)
class Task:
    """One call, and what the folder holds before and after it."""

    function: str
    options: dict[str, Any]
    source: Path
    before: Path | None  # store to start from
    old: str | None  # its fingerprint
    new: str
    files: dict[str, str]
    seconds: float
    changes: int  # of the files beside and in the store, as seen from outside


def write_source(path: Path, first: int, n_rows: int, options: dict[str, Any] = {}) -> Path:  # noqa: B006
    """Write a long file of persons who answered ten of a hundred items each, in any order."""
    rng = np.random.default_rng(first)
    person = first + np.repeat(np.arange(n_rows // 10), 10)
    item = (rng.integers(0, 10, n_rows // 10)[:, None] + np.arange(0, 100, 10)).ravel()
    order = rng.permutation(person.size)
    value = rng.integers(0, 2, person.size).astype(str).astype(object)
    if options:  # codes of up to four categories, booklets of ten items
        graded = item[order] % 3 == 0
        codes = np.array(["0", "1", "2", "often"], object)
        value[graded] = codes[rng.integers(0, 4, graded.sum())]
    rows = [f"p{p},q{i},{v}\n" for p, i, v in zip(person[order], item[order], value, strict=True)]
    path.write_text("person,item,response\n" + "".join(rows))
    return path


def digests(store: Path) -> dict[str, str]:
    """Return the checksum of every file of a store; there are no others than those listed."""
    found = {
        p.relative_to(store).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in store.rglob("*")
        if p.is_file()
    }
    listed = json.loads((store / "manifest.json").read_bytes())["files"]
    assert {k: v for k, v in found.items() if k != "manifest.json"} == {
        k: v[1] for k, v in listed.items()
    }
    return found


def begin(
    function: str, source: Path, store: Path, options: dict[str, Any]
) -> subprocess.Popen[str]:
    """Start the call in a process of its own; return when imports are done."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, function, str(source), str(store), json.dumps(options)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begin\n"
    return process


def watch(process: subprocess.Popen[str], folder: Path, most: float = float("inf")) -> int:
    """Count the changes of a folder's files until the process ends, or there were so many."""
    seen, n = listing(folder), 0
    while n < most and process.poll() is None:
        now = listing(folder)
        n += now != seen
        seen = now
    return n


def listing(folder: Path) -> list[str]:
    return [name for path, folders, files in os.walk(folder) for name in (path, *folders, *files)]


def prepare(folder: Path, function: str, options: dict[str, Any]) -> Task:
    """Do the call twice, undisturbed: once for its time, once for what it does to files."""
    before, old = None, None
    source = write_source(folder / "new.csv", ROWS, ROWS, options)
    if function == "append":
        old_source = write_source(folder / "old.csv", 0, ROWS, options)
        first = irt.ingest(old_source, folder / "before", **options)
        before, old = folder / "before", first.fingerprint
    seconds, changes = 0.0, 0
    for attempt in ("timed", "watched"):
        store = folder / attempt / "store"
        store.parent.mkdir()
        if before is not None:
            shutil.copytree(before, store)
        process = begin(function, source, store, options)
        begun = time.monotonic()
        if attempt == "watched":
            changes = watch(process, store.parent)
        assert process.stdout is not None
        assert process.stdout.readline() == "end\n"
        seconds = seconds or time.monotonic() - begun
        assert process.wait() == 0
    r = irt.open_responses(store)
    r.verify()
    assert max(r.n_categories) == (4 if options else 2)
    return Task(
        function, options, source, before, old, r.fingerprint, digests(store), seconds, changes
    )


@pytest.fixture(scope="module", params=OF)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param


@pytest.fixture(scope="module", params=["ingest", "append"])
def task(
    request: pytest.FixtureRequest, options: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Task:  # fmt: skip
    return prepare(tmp_path_factory.mktemp(request.param), request.param, options)


def kill_once(task: Task, folder: Path, wait: Callable[[subprocess.Popen[str]], Any]) -> str:
    """Kill one run after a wait; check what is there, and what a second run makes."""
    store = folder / "store"
    if task.before is not None:
        shutil.copytree(task.before, store)
    process = begin(task.function, task.source, store, task.options)
    wait(process)
    process.send_signal(signal.SIGKILL)
    ended = process.wait() == 0
    state = state_of(task, store)
    assert state == "new" or not ended
    left = [p.name for p in folder.iterdir() if p.name != "store"]
    if state == "new":
        with pytest.raises(InputError, match=r"exists|already"):
            getattr(irt, task.function)(task.source, store, progress=False, **task.options)
    else:
        getattr(irt, task.function)(task.source, store, progress=False, **task.options)
    assert state_of(task, store) == "new"
    assert digests(store) == task.files
    assert [p.name for p in folder.iterdir()] == ["store"]
    shutil.rmtree(store)
    return f"{state}, ended" if ended else f"{state}, {'scratch' if left else 'no scratch'} left"


def state_of(task: Task, store: Path) -> str:
    """Return "absent", "old" or "new"; a store is whole."""
    if not store.exists():
        assert task.before is None
        return "absent"
    r = irt.open_responses(store)
    r.verify()
    assert r.fingerprint in (task.old, task.new)
    return "old" if r.fingerprint == task.old else "new"


def kill(task: Task, times: int, folder: Path) -> None:
    """Kill at moments spread over the run, by the clock and by what has happened to files."""
    rng = random.Random(times)
    states: Counter[str] = Counter()
    for k in range(times):
        share = (k + rng.random()) / times
        if k % 2 == 0:
            states[kill_once(task, folder, lambda _, s=share: time.sleep(s * task.seconds))] += 1
        else:
            most = 1 + int(share * task.changes)
            states[kill_once(task, folder, lambda p, n=most: watch(p, folder, n))] += 1
    print(
        f"\n{task.function} of {task.seconds:.1f} s and {task.changes} changes of files, "
        f"killed {times} times: {dict(states)}"
    )
    assert sum(n for state, n in states.items() if not state.endswith("ended")) >= times / 2


def test_killed_before_the_manifest_is_replaced(tmp_path: Path, options: dict[str, Any]) -> None:
    """The last moment at which the store is still as it was; a second append leaves no file."""
    source, more = (
        write_source(tmp_path / "a.csv", 0, 5_000, options),
        write_source(tmp_path / "b.csv", 5_000, 500, options),
    )
    store = tmp_path / "there" / "store"
    irt.ingest(source, store, progress=False, **options)
    program = f"""
import os, signal, irt_dask as irt
replace = os.replace
def killed(source, target):
    if str(target).endswith("manifest.json"):
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = killed
irt.append({str(more)!r}, {str(store)!r}, progress=False, **{options!r})
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert irt.open_responses(store).n_persons == 500
    irt.append(more, store, progress=False, **options)
    assert irt.open_responses(store).n_persons == 550
    assert digests(store)
    assert [p.name for p in store.parent.iterdir()] == ["store"]


#: Appends to copies of a store in processes of their own, each killed at another change of a file.
MERGING = """
import json, os, shutil, signal, sys, threading, warnings
import irt_dask as irt
from irt_dask.ingest import run
warnings.simplefilter("ignore")
source, before, folder, times, options = sys.argv[1:]

def append(store, last):
    changes, lock, inside = 0, threading.Lock(), os.path.dirname(os.path.abspath(store))
    def changed(event, arguments):
        nonlocal changes
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, int) or not flags & (os.O_WRONLY | os.O_RDWR):
                return
        elif event not in ("os.rename", "os.rmdir", "os.remove"):
            return  # folders are made by whichever thread is first, in more or fewer attempts
        if not os.path.abspath(os.fsdecode(arguments[0])).startswith(inside):
            return  # a cache of compiled code, which another process may have made meanwhile
        with lock:  # Zarr writes in threads
            changes += 1
            if changes == last:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(changed)
    irt.append(source, store, on_duplicate="merge", progress=False, **json.loads(options))
    with open(folder + "/changes", "w") as file:
        file.write(str(changes))

def fork(name, last):
    os.mkdir(f"{folder}/{name}")
    shutil.copytree(before, f"{folder}/{name}/store")
    child = os.fork()
    if child == 0:
        append(f"{folder}/{name}/store", last)
        os._exit(0)
    return os.waitpid(child, 0)[1]

assert fork("whole", 0) == 0
n, times = int(open(folder + "/changes").read()), int(times)
for k in range(times):
    last = 1 + k * (n - 1) // (times - 1)
    status = fork(f"killed-{k:02d}", last)
    assert status == signal.SIGKILL, (k, last, n, status, open(folder + "/changes").read())
"""


@pytest.mark.slow
def test_killed_while_persons_are_merged(tmp_path: Path, options: dict[str, Any]) -> None:
    """At 20 changes of files, from the first to the last: the store is the old or the new one."""
    first = write_source(tmp_path / "old.csv", 0, 1_500, options)
    more = write_source(tmp_path / "new.csv", 100, 1_500, options)
    rows = [row.replace(",q", ",r") for row in more.read_text().splitlines()[1:]]
    later = {}
    if options:  # items of the wave have names of their own, and the others' are not in its file
        of = {item.replace("q", "r"): k for item, k in options["categories"].items()}
        later = {**options, "categories": of, "reverse": ["r3", "r6"]}
    more.write_text("\n".join(["person,item,response", *rows]) + "\n")
    old = irt.ingest(first, tmp_path / "before", progress=False, rows_per_block=64, **options)
    arguments = [str(more), str(tmp_path / "before"), str(tmp_path), "20", json.dumps(later)]
    subprocess.run([sys.executable, "-c", MERGING, *arguments], check=True)
    want = digests(tmp_path / "whole" / "store")
    new = irt.open_responses(tmp_path / "whole" / "store")
    assert (new.n_persons, new.n_items) == (250, 200)
    states: Counter[str] = Counter()
    for folder in sorted(tmp_path.glob("killed-*")):
        r = irt.open_responses(folder / "store")
        r.verify()
        assert r.fingerprint in (old.fingerprint, new.fingerprint)
        states["old" if r.fingerprint == old.fingerprint else "new"] += 1
        with pytest.warns(Notice, match=r"are new to|adds nothing"):
            irt.append(more, folder / "store", on_duplicate="merge", progress=False, **later)
        assert digests(folder / "store") == want
        assert [p.name for p in folder.iterdir()] == ["store"]
    print(f"\nmerging killed 20 times: {dict(states)}")
    assert min(states["old"], states["new"]) >= 1
    assert states.total() == 20


@pytest.mark.slow
@pytest.mark.parametrize("n", [4, pytest.param(20, marks=pytest.mark.nightly)])
def test_killed_many_times(task: Task, n: int, tmp_path: Path) -> None:
    kill(task, n, tmp_path)
