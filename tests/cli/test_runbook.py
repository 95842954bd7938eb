"""The runbook, tried: failures of a nightly job are found on the page and mended as it says.

Each scenario breaks a job that was well, runs it, looks the line that it ends with up in the table
of ``docs/runbook.md``, does what stands there, and sees that the next night is well.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.calibrate.private.ledger import Ledger
from irt_dask.clusters import connection
from irt_dask.engine.checkpoint import Checkpoint
from irt_dask.engine.lock import FolderLock
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.errors import IrtDaskError
from irt_dask.score import folder as folders
from irt_dask.store import objects

PAGE = (resources.files("irt_dask") / "docs" / "runbook.md").read_text()
ITEMS = tuple(f"q{j}" for j in range(1, 6))


def rows() -> Iterator[tuple[list[str], str]]:
    """Messages and remedy of each row of the table."""
    table = PAGE.partition("## What it says")[2].partition("## What is safe")[0]
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            yield re.findall(r"`([^`]+)`", cells[0]), cells[2]


def looked_up(said: str) -> str:
    """What the page says to do about a message; it must say one thing."""
    found = [remedy for messages, remedy in rows() for m in messages if matches(m, said)]
    assert len(found) == 1, f"{len(found)} rows of the runbook are about {said!r}"
    return found[0]


def matches(message: str, said: str) -> bool:
    """Whether a message of the page, with ... for anything, is what was said."""
    pattern = ".*".join(map(re.escape, message.split("...")))
    last = said.strip().splitlines()[-1].removeprefix("error: ").removeprefix("Error: ")
    return re.fullmatch(pattern, last) is not None or message == last


# --- a job that is well ---------------------------------------------------------------------------


def wave(path: Path, first: int, n: int = 40) -> Path:
    y = np.random.default_rng(first).integers(0, 2, (n, len(ITEMS)))
    frame = pd.DataFrame(y, columns=list(ITEMS))
    frame.insert(0, "person", [f"p{first + i}" for i in range(n)])
    frame.to_csv(path, index=False)
    return path


class Job:
    """A folder with store, bank, pipeline and scores, and the two commands of a night."""

    def __init__(self, folder: Path, typed: Any) -> None:
        self.folder, self._typed = folder, typed
        self.store, self.bank = folder / "spring.store", folder / "bank.csv"
        self.scores, self.pipeline = folder / "spring.scores", folder / "nightly.toml"
        self.wave = folder / "wave.csv"

    def type(self, *args: Any, code: int = 0) -> str:
        """A command; what it said."""
        got = self._typed(*args, code=code)
        return str(got.err if code else got.out)

    def append(self, *options: str, code: int = 0) -> str:
        return self.type("append", self.wave, self.store, "--quiet", *options, code=code)

    def run(self, *options: str, code: int = 0) -> str:
        return self.type("run", self.pipeline, "--quiet", *options, code=code)

    def write(self, **keys: str) -> None:
        lines = {"store": "spring.store", "bank": "bank.csv", "out": "spring.scores"} | keys
        text = "\n".join(f'{key} = "{value}"' for key, value in lines.items())
        self.pipeline.write_text(f"[scoring]\n{text}\n")

    def persons(self) -> int:
        return len(pd.read_parquet(self.scores))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Store, bank and scores after the first night."""
    folder = tmp_path_factory.mktemp("night")
    irt.ingest(wave(folder / "first.csv", 0), folder / "spring.store", rows_per_block=16)
    bank = pd.DataFrame({"item": ITEMS, "a": 1.0, "b": np.linspace(-1.0, 1.0, len(ITEMS))})
    bank.to_csv(folder / "bank.csv", index=False)
    irt.score(
        irt.open_responses(folder / "spring.store"), irt.read_items(folder / "bank.csv"),
        store=folder / "spring.scores",
    )  # fmt: skip
    return folder


@pytest.fixture
def job(made: Path, tmp_path: Path, typed: Any) -> Job:
    job = Job(shutil.copytree(made, tmp_path / "job"), typed)
    job.write()
    wave(job.wave, 40)
    return job


def test_a_good_night(job: Job) -> None:
    job.append()
    job.run()
    assert job.persons() == 80
    assert json.loads(job.type("status", job.scores, "--json"))["state"] == "finished"


# --- nights that are not --------------------------------------------------------------------------

Mend = Callable[[], Any]
Scenario = Callable[[Job, pytest.MonkeyPatch], tuple[str, str, Mend]]


def same_wave(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    job.append()
    said = job.append(code=2)
    return said, "--on-duplicate skip", lambda: job.append("--on-duplicate", "skip")


def held(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    with FolderLock(job.scores):
        said = job.run(code=1)
        assert json.loads(job.type("status", job.scores, "--json"))["state"] == "running"
    return said, "its lock goes with it", lambda: None


def stale_lock(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    """The file stays when a process was killed, and stops nobody."""
    (job.scores / ".lock").write_text("12345")
    job.run()
    return "another run is working in x; wait for it to end", "is no lock", lambda: None


def disk(number: int, word: str) -> Scenario:
    def fails(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
        def refused(descriptor: int) -> None:
            raise OSError(number, os.strerror(number))

        job.append()
        with m.context() as patched:
            patched.setattr("irt_dask.store.manifest.os.fsync", refused)
            said = job.run(code=1)
        return said, word, lambda: None

    fails.__name__ = errno.errorcode[number]
    return fails


def corrupt_chunk(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    job.append()
    copy = shutil.copytree(job.store, job.folder / "copy")
    chunk = next(p for p in (job.store / "part-00001" / "response" / "c").rglob("0") if p.is_file())
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(data)
    said = job.run(code=1)
    name = re.search(r"the file (\S+) is damaged", said)
    assert name is not None

    def mend() -> None:
        shutil.copy(copy / name[1], job.store / name[1])
        job.type("verify", job.store)

    return said, "bring that file back from a copy", mend


def missing_chunk(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    job.append()
    copy = shutil.copytree(job.store, job.folder / "copy")
    shutil.rmtree(job.store / "part-00001" / "response" / "c")
    said = job.run(code=1)
    return said, "as before", lambda: shutil.copytree(copy, job.store, dirs_exist_ok=True)


def manifest_damaged(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    manifest = job.store / "manifest.json"
    before = manifest.read_bytes()
    manifest.write_bytes(before.replace(b'"q1"', b'"q9"'))
    return job.run(code=1), "copy that has the same parts", lambda: manifest.write_bytes(before)


def store_gone(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    job.write(store="other.store")
    return job.run(code=2), "correct `store = `", job.write


def bank_gone(name: str) -> Scenario:
    def fails(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
        job.write(bank=name)
        return job.run(code=2), "correct the path", job.write

    fails.__name__ = name
    return fails


def wave_gone(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    job.wave.unlink()
    return job.append(code=2), "wait for it", lambda: wave(job.wave, 40)


def pipeline_gone(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    there, job.pipeline = job.pipeline, job.folder / "nightlyy.toml"
    return job.run(code=2), "the job's line", lambda: setattr(job, "pipeline", there)


def bank_shrank(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    bank = pd.read_csv(job.bank)
    bank[:3].to_csv(job.bank, index=False)
    said = job.run(code=2)
    return said, '`items = "bank"`', lambda: bank.to_csv(job.bank, index=False)


def bank_lost_items_of_scores(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    bank = pd.read_csv(job.bank)
    bank[:3].to_csv(job.bank, index=False)
    job.write(items="bank")
    said = job.run(code=2)
    return said, "bring the bank of before back", lambda: bank.to_csv(job.bank, index=False)


def other_options(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    job.write(method="ml")
    return job.run(code=2), "the options of before", job.write


def other_store(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    irt.ingest(wave(job.folder / "x.csv", 900), job.folder / "x.store", rows_per_block=16)
    job.write(store="x.store")
    return job.run(code=2), "another `out`", job.write


def description_damaged(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    done = job.scores / "_scores.json"
    done.write_bytes(done.read_bytes()[:-30])
    return job.run(code=2), "as it says", done.unlink


def bad_key(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    job.write(plausibel="5")
    return job.run(code=2), "correct the file", job.write


def bad_toml(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    job.pipeline.write_text('[scoring]\nstore = "spring.store\n')
    return job.run(code=2), "line and column", job.write


def no_scheduler(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    m.setattr(connection, "_TIMEOUT", 0.2)
    said = job.run("--cluster", "tcp://127.0.0.1:9", code=1)
    return said, "`--cluster local`", lambda: None


def wrong_password(job: Job, m: pytest.MonkeyPatch) -> tuple[str, str, Mend]:
    def refused(url: str) -> None:
        raise PermissionError("Access Denied")

    job.write(store="s3://bucket/spring.store")
    with m.context() as patched:
        patched.setattr(objects, "opened", refused)
        said = job.run(code=2)
    return said, "credentials in the environment", job.write


SCENARIOS: tuple[Scenario, ...] = (
    same_wave, held, stale_lock, disk(errno.ENOSPC, "make room"), disk(errno.EROFS, "mount it"),
    corrupt_chunk, missing_chunk, manifest_damaged, store_gone, bank_gone("other.nc"),
    bank_gone("other.csv"), wave_gone, pipeline_gone, bank_shrank, bank_lost_items_of_scores,
    other_options, other_store, description_damaged, bad_key, bad_toml, no_scheduler,
    wrong_password,
)  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_a_failure_is_found_and_mended(
    scenario: Scenario, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, word, mend = scenario(job, monkeypatch)
    assert word in looked_up(said)
    mend()
    if irt.open_responses(job.store).n_persons == 40:
        job.append()
    job.run()
    assert job.persons() == 80


def test_a_job_that_was_killed_goes_on(job: Job) -> None:
    """As it is left: the mark that files are being written, and some of them."""
    job.append()
    r, bank = irt.open_responses(job.store), irt.read_items(job.bank)
    whole = irt.score(r, bank, store=job.folder / "whole")
    assert whole.attrs["n_persons"] == 80
    folder, lock = folders.opened(job.scores)
    folders.begin(folder, r, "what it is scored with", list(pd.read_parquet(job.scores)))
    lock.close()
    found = json.loads(job.type("status", job.scores, "--json"))
    assert found["state"] == "unfinished"
    job.run()
    pd.testing.assert_frame_equal(
        pd.read_parquet(job.scores), pd.read_parquet(job.folder / "whole")
    )


def test_what_is_safe_to_delete_is(job: Job) -> None:
    job.append()
    job.run()
    before = {p.name: p.read_bytes() for p in job.scores.glob("[_p]*")}
    (job.scores / "part-000001.parquet").unlink()
    (job.scores / ".lock").unlink()
    job.run()
    shutil.rmtree(job.scores)
    job.run()
    assert {p.name: p.read_bytes() for p in job.scores.glob("[_p]*")} == before


# --- messages that are dear to provoke in a job, from where they arise ----------------------------


def beyond_memory(folder: Path) -> None:
    refuse_beyond_memory(1e18, "the covariance")


def damaged_checkpoint(folder: Path) -> None:
    kept = Checkpoint(folder, {"method": "m"})
    kept.save("state", {"x": np.zeros(3)})
    file = folder / "state.checkpoint"
    file.write_bytes(file.read_bytes()[:-1])
    kept.load("state")


def checkpoint_of_another(folder: Path) -> None:
    Checkpoint(folder, {"method": "m"}).save("state", {"x": np.zeros(3)})
    Checkpoint(folder, {"method": "n"}).load("state")


def spent(folder: Path) -> None:
    with Ledger(folder / "ledger.json", "replace") as book:
        book.limit({"rho": 0.1, "epsilon": None, "delta": None})
        book.check({"rho": 0.2, "delta": None})


def damaged_ledger(folder: Path) -> None:
    (folder / "ledger.json").write_text("{}")
    with Ledger(folder / "ledger.json", "replace"):
        pass


DEAR = (beyond_memory, damaged_checkpoint, checkpoint_of_another, spent, damaged_ledger)


@pytest.mark.parametrize("provoke", DEAR, ids=lambda f: f.__name__)
def test_other_messages_are_on_the_page(provoke: Callable[[Path], None], tmp_path: Path) -> None:
    with pytest.raises(IrtDaskError) as caught:
        provoke(tmp_path)
    assert looked_up(str(caught.value))


def test_messages_of_the_page_are_in_the_code() -> None:
    """The longest stretch of each without a name or number stands somewhere in the package."""
    package = Path(irt.__file__).parent
    joined = " ".join(p.read_text() for p in package.rglob("*.py"))
    code = re.sub(r'"\s*\n?\s*f?"', "", joined)  # texts that go on in the next line
    code += "there is no item bank"  # {what}, which has scenarios of its own
    of_system = ("No space left on device", "Read-only file system", "Permission denied")
    missing = []
    for message in (m for messages, _ in rows() for m in messages):
        parts = [p for of in message.split("...") for p in re.split("|".join(of_system), of)]
        longest = max(parts, key=len).strip(" :;()")
        if longest not in code:
            missing.append(message)
    assert not missing
    assert len([*rows()]) > 30
