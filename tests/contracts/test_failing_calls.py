"""Every call of the file system may fail: the right result, or a named error and a way on."""

from __future__ import annotations

import errno
import hashlib
import json
import random
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commits
import failing_calls
import pytest
from failing_calls import FOREVER, FailingCalls

ERRORS = {
    "open": (errno.EIO, errno.ESTALE),
    "read": (errno.EIO, errno.ESTALE),
    "write": (errno.EIO, errno.ENOSPC),
    "fsync": (errno.EIO,),
    "rename": (errno.EIO, errno.ESTALE),
}


# --- in a process of its own, with the library preloaded ------------------------------------------


def write_source(path: Path, first: int) -> Path:
    rng = random.Random(first)
    rows = [f"p{first + i},{','.join(rng.choice('01') for _ in range(4))}" for i in range(60)]
    path.write_text("person,a,b,c,d\n" + "\n".join(rows) + "\n")
    return path


def files(folder: Path) -> dict[str, str]:
    """Checksums of all files that stay: none is left of what failed."""
    return {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name not in (".lock", ".ledger.lock")
    }


class Work:
    """Things to do in a folder, which are done again after an error; what is compared then."""

    def __init__(self, outside: Path) -> None:
        import irt_dask as irt

        self.irt = irt
        self.source = write_source(outside / "a.csv", 0)
        self.more = write_source(outside / "b.csv", 60)
        self.store = outside / "store"
        self.options: dict[str, Any] = {"rows_per_block": 16, "progress": False}
        irt.ingest(self.source, self.store, **self.options)
        self.items = irt.fit_marginal(irt.open_responses(self.store), progress=False)

    def ingest(self, folder: Path) -> None:
        if not (folder / "store").exists():
            self.irt.ingest(self.source, folder / "store", **self.options)
        else:  # an error came after all was done: the next call removes what it left
            self.irt.append(self.source, folder / "store", on_duplicate="skip", **self.options)
        self.irt.open_responses(folder / "store").verify()

    def append(self, folder: Path) -> None:
        if self.irt.open_responses(folder / "store").n_persons == 60:
            self.irt.append(self.more, folder / "store", **self.options)
        self.irt.open_responses(folder / "store").verify()

    def fit(self, folder: Path) -> Any:
        r = self.irt.open_responses(folder / "store")
        fit = self.irt.fit_marginal(
            r, model="1pl", checkpoint=folder / "checkpoint", progress=False
        )
        return [fit["item_difficulty"].values.tobytes().hex(), fit.attrs["objective"]]

    def score(self, folder: Path) -> None:
        r = self.irt.open_responses(folder / "store")
        self.irt.score(r, self.items, store=folder / "scores", progress=False)

    def release(self, folder: Path) -> None:
        r = self.irt.open_responses(folder / "store")
        self.irt.fit_private_spectral(r, rho=0.1, ledger=folder / "ledger", progress=False)

    def result(self, task: str, folder: Path, returned: Any) -> Any:
        """What a reader finds; calls do not fail any more."""
        if task == "release":
            return len(json.loads((folder / "ledger").read_text())["entries"])
        return files(folder) if returned is None else returned


def attempt(do: Callable[[Path], Any], folder: Path) -> tuple[str, Any]:
    from irt_dask.errors import IrtDaskError

    try:
        return "done", do(folder)
    except IrtDaskError as error:
        return "named error", str(error)
    except Exception as error:
        return "NO NAMED ERROR", f"{type(error).__name__}: {error}"


def strike(
    calls: FailingCalls, work: Work, task: str, folder: Path, want: Any, *fault: Any
) -> dict[str, Any]:
    """One fault; what happened, and what is wrong with that."""
    from test_faults import forget

    do: Callable[[Path], Any] = getattr(work, task)
    begin(work, task, folder)
    calls.fail(*fault)
    first, said = attempt(do, folder)
    failed = calls.failed
    calls.stop()
    wrong = first if first.isupper() else ""
    if first == "done" and work.result(task, folder, said) != want:
        wrong = "SILENT"
    forget()
    second, found = attempt(do, folder)
    if second != "done" or work.result(task, folder, found) != want:
        wrong = wrong or f"LOST: {second}: {found}"
    shutil.rmtree(folder)
    return {"task": task, "fault": fault, "failed": failed, "first": first,
            "said": said if first != "done" else "", "wrong": wrong}  # fmt: skip


def begin(work: Work, task: str, folder: Path) -> None:
    from test_faults import forget

    folder.mkdir()
    if task != "ingest":
        shutil.copytree(work.store, folder / "store")
    forget()


def main(folder: str, outside: str, n: int, seed: int) -> None:
    warnings.simplefilter("ignore")
    rng, calls, work = random.Random(seed), FailingCalls.of_this_process(), Work(Path(outside))
    wanted, seen = {}, {}
    for task in ("ingest", "append", "fit", "score", "release"):
        begin(work, task, Path(folder) / task)
        calls.stop()
        returned = getattr(work, task)(Path(folder) / task)
        seen[task] = calls.seen
        wanted[task] = work.result(task, Path(folder) / task, returned)
        shutil.rmtree(Path(folder) / task)
    every = [(task, operation) for task in wanted for operation in ERRORS if seen[task][operation]]
    for k in range(n):
        task, operation = every[k % len(every)]
        fault = (
            operation, rng.choice(ERRORS[operation]),
            rng.randrange(seen[task][operation]), rng.choice([1, 1, FOREVER]),
        )  # fmt: skip
        print(json.dumps(
            strike(calls, work, task, Path(folder) / str(k), wanted[task], *fault)
        ))  # fmt: skip


# --- the tests ------------------------------------------------------------------------------------


@pytest.mark.skipif(failing_calls.missing() is not None, reason=str(failing_calls.missing()))
@pytest.mark.parametrize(
    "n",
    [pytest.param(20, marks=pytest.mark.cluster), pytest.param(400, marks=pytest.mark.nightly)],
)
def test_a_call_that_fails(tmp_path: Path, n: int) -> None:
    """Input/output errors, stale handles of a network's file system, a full disk."""
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    calls = FailingCalls(folder, outside)
    run = subprocess.run(
        [sys.executable, __file__, folder, outside, str(n), "1"],
        env=commits.environment(commits.ROOT, commits.ROOT / "tests") | calls.environment,
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(found) == n
    assert sum(f["failed"] > 0 for f in found) > 0.9 * n
    assert sum(f["first"] == "named error" for f in found) > 0.5 * n
    wrong = [json.dumps(f) for f in found if f["wrong"]]
    assert not wrong, f"{len(wrong)} of {n}:\n" + "\n".join(wrong)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
