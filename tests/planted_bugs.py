"""Plant thirty bugs, one at a time, and see that some test catches each.

    python tests/planted_bugs.py [NAME ...] [--check | --trust]        without names all of them

Each bug is one small edit that somebody could make at a line that is there today.  It is planted in
a copy of the working tree, and the tests that are to catch it run there: they must pass without it
(that is tried first) and fail with it.  A bug whose line has changed is an error, never left out:
bring it up to date.  ``--check`` looks for the lines alone, ``--trust`` takes it that tests pass
without bugs.  Exit code 0 says that every bug was caught.

The bugs were written down before the tests that were missing for them.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import commits

#: Seconds that the tests of one bug may take; a test that hangs has not said what is wrong.
LIMIT = 540
#: What tests need; compiled kernels are shared with the working tree where no kernel is changed.
TREES = ("irt_dask", "tests", "pipelines", "cluster", "shared")
KERNELS = commits.ROOT / "irt_dask" / "kernels" / "__pycache__"


class Bug(NamedTuple):
    """An edit of a file of the package, and the tests that are to fail then."""

    name: str
    file: str
    old: str
    new: str
    tests: str  # as for pytest, below tests/


BUGS = [
    Bug(
        "checksum not compared",
        "store/manifest.py",
        "    if hashlib.sha256(data).hexdigest() != expected[1]:\n",
        "    if not expected[1]:\n",
        "contracts/test_faults.py::test_some_faults",
    ),
    Bug(
        "checksum of what the disk made of the bytes",
        "store/parts.py",
        '        return {f"{root.name}/{name}": noted for name, noted in files.items()}\n',
        "        made = {name: (root / name).read_bytes() for name in files}\n"
        '        return {f"{root.name}/{n}": [len(d), hashlib.sha256(d).hexdigest()]'
        " for n, d in made.items()}\n",
        "ingest/test_bundles.py::test_a_chunk_that_changes_after_it_was_written_is_noticed",
    ),
    Bug(
        "groups left out of a block's key",
        "store/digests.py",
        "    for labels in (ref.person_ids(), ref.groups()):\n",
        "    for labels in (ref.person_ids(),):\n",
        "contracts/test_identity.py::test_a_fingerprint_covers_every_input",
    ),
    Bug(
        "checkpoint of another seed accepted",
        "calibrate/joint/fit.py",
        '"coreset": coreset and asdict(coreset), "seed": seed,\n',
        '"coreset": coreset and asdict(coreset),\n',
        "contracts/test_identity.py::test_a_checkpoint_of_coresets_is_of_one_seed",
    ),
    Bug(
        "item parameters left out of the key of scores",
        "score/ability.py",
        "folder.checksum((found.plan, responses.item_id, tuple(columns)))\n",
        "folder.checksum((replace(found.plan, averaged=()), responses.item_id))\n",
        "score/test_scheduled_scoring.py::test_other_items_or_options_score_all_again",
    ),
    Bug(
        "a finished stage is skipped though its scores are gone",
        "workflow/directory.py",
        "            here &= file.exists()\n",
        "            here |= file.exists()\n",
        "workflow/test_workflow.py -k removed_scores",
    ),
    Bug(
        "rename before fsync",
        "store/manifest.py",
        "    with writing(path), replacing(path, scratch) as temporary, "
        'open(temporary, "wb") as f:\n'
        "        f.write(data)\n"
        "        f.flush()\n"
        "        os.fsync(f.fileno())\n",
        "    with writing(path), replacing(path, scratch) as temporary:\n"
        "        temporary.write_bytes(data)\n"
        '    with open(path, "rb") as f:\n'
        "        os.fsync(f.fileno())\n",
        "store/test_durable.py",
    ),
    Bug(
        "manifest before the part that it names",
        "store/draft.py",
        "            os.rename(new.part.folder, final)\n"
        "            manifest.sync_folder(path)\n"
        "            manifest.write(path, new.after(now, self.name), self.folder)\n",
        "            manifest.write(path, new.after(now, self.name), self.folder)\n"
        "            os.rename(new.part.folder, final)\n"
        "            manifest.sync_folder(path)\n",
        "store/test_durable.py",
    ),
    Bug(
        "chunks not flushed to disk",
        "store/parts.py",
        "                os.fsync(f.fileno())\n",
        "                os.fstat(f.fileno())\n",
        "store/test_durable.py",
    ),
    Bug(
        "one response more than max_items_per_person",
        "calibrate/private/fit.py",
        "limit_items(block.data, seeds, self.most))\n",
        "limit_items(block.data, seeds, self.most + 1))\n",
        "calibrate/test_private.py -k one_person_moves",
    ),
    Bug(
        "an empty block after blocks that are full",
        "store/parts.py",
        "        return -(-self.n_persons // self.rows_per_block)\n",
        "        return self.n_persons // self.rows_per_block + 1\n",
        "store/test_store.py -k blocks_hold_everybody",
    ),
    Bug(
        "the last person of a stretch of the sort left out",
        "ingest/sort/blocks.py",
        '        high = int(np.searchsorted(base, b - 1, side="right"))\n',
        '        high = int(np.searchsorted(base, b - 1, side="left"))\n',
        "ingest/test_grouping.py -k stretch",
    ),
    Bug(
        "the last node of the grid left out",
        "curves/grids.py",
        "        return np.arange(-half, half + 1, dtype=np.float64)",
        "        return np.arange(-half, half, dtype=np.float64)",
        "curves/test_curves.py -k grid_goes",
    ),
    Bug(
        "lock of a run directory shared",
        "engine/lock.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        "workflow/test_workflow.py::test_two_runs_do_not_share_a_directory",
    ),
    Bug(
        "rows of the last partition lost from the quarantine",
        "ingest/sort/quarantine.py",
        "for p in range(n))\n",
        "for p in range(max(n - 1, 1)))\n",
        "ingest/test_ingest_options.py -k no_row_is_lost",
    ),
    Bug(
        "a release without its entry in the ledger",
        "calibrate/private/fit.py",
        "            book.record(data, request, known, cost)\n",
        "            try:\n"
        "                book.record(data, request, known, cost)\n"
        "            except Exception:\n"
        "                pass\n",
        "calibrate/test_ledger.py::test_what_cannot_be_written_down_is_not_released",
    ),
    Bug(
        "noise for the sensitivity of the other adjacency",
        "calibrate/private/fit.py",
        "squared_sensitivity(self.pairs, self.max_items, self.adjacency)",
        'squared_sensitivity(self.pairs, self.max_items, "add-remove")',
        "calibrate/test_private.py -k 'rho_and_the_sizes'",
    ),
    Bug(
        "a segment sent again with the key of another chain",
        "engine/chains.py",
        "engine.executor.submit(k / len(chains), segment, refs, chains[k].state)\n",
        "None\n"
        "        state = chains[k].state\n"
        "        if deaths[chains[k].name]:\n"
        '            state = {**state, "chain": state["chain"] + len(chains)}\n'
        "        future = engine.executor.submit(k / len(chains), segment, refs, state)\n",
        "engine/test_engine.py -k segment_that_is_sent_again",
    ),
    Bug(
        "results in the order in which tasks finish",
        "engine/core.py",
        "                if report:\n"
        "                    self.progress.update(done, len(futures))\n"
        "            return self.executor.results(futures)\n",
        "                if report:\n"
        "                    self.progress.update(done, len(futures))\n"
        "                futures.append(futures.pop(next(\n"
        "                    k for k, f in enumerate(futures) if f is future)))\n"
        "            return self.executor.results(futures)\n",
        "engine/test_engine.py",
    ),
    Bug(
        "a segment that was sent again counts twice",
        "engine/chains.py",
        "                    ) from error\n                start(k)\n",
        "                    ) from error\n                start(k)\n                start(k)\n",
        "engine/test_engine.py -k segment_that_is_sent_again",
    ),
    Bug(
        "an R-hat that is not a number swallowed",
        "calibrate/bayes/shards.py",
        "        return float(np.maximum(self.rhat.max(), self.other_rhat))\n",
        "        return float(max(self.other_rhat, self.rhat.max()))\n",
        "calibrate/test_gibbs.py -k not_a_number",
    ),
    Bug(
        "append to a store that another process has changed",
        "store/draft.py",
        '            if now["checksum"] != self.old["checksum"]:\n',
        '            if len(now["parts"]) < len(self.old["parts"]):\n',
        "ingest/test_ingest_options.py -k changed_meanwhile",
    ),
    Bug(
        "what a store was, off by one part",
        "store/manifest.py",
        '    for n in range(len(content["parts"]) - 1, 0, -1):\n',
        '    for n in range(len(content["parts"]) - 2, 0, -1):\n',
        "ingest/test_ingest_options.py -k 'append_adds or old_handle'",
    ),
    Bug(
        "a worker keeps the blocks of a store made anew",
        "store/stored.py",
        "        return self.checksum, self.index, *read\n",
        "        return self.path, self.index, *read\n",
        "contracts/test_identity.py::test_no_stale_blocks_of_a_store_made_anew",
    ),
    Bug(
        "a file replaced in place, not as a whole",
        "store/manifest.py",
        "    with writing(path), replacing(path, scratch) as temporary, "
        'open(temporary, "wb") as f:\n',
        '    with writing(path), open(path, "wb") as f:\n',
        "store/test_store.py -k full_disk",
    ),
    Bug(
        "items matched by their place",
        "items/parameters.py",
        "    return [known[i] for i in item_id]\n",
        "    return list(range(len(item_id)))\n",
        "score/test_score.py::test_items_are_matched_by_identifier",
    ),
    Bug(
        "scores of a changed block kept",
        "score/folder.py",
        '(content["block"], content[_SCORED_WITH]) != (block, scored_with)',
        "content[_SCORED_WITH] != scored_with",
        "score/test_scheduled_scoring.py::test_only_a_changed_block_is_computed",
    ),
    Bug(
        "a key of the pipeline file ignored",
        "workflow/stages.py",
        "        prior=options.prior,\n        n_plausible=",
        "        n_plausible=",
        "workflow/test_keys.py",
    ),
    Bug(
        "exit code 0 after an error",
        "cli/main.py",
        "sys.exit(2 if isinstance(error, InputError) else 1)",
        "sys.exit(2 if isinstance(error, InputError) else 0)",
        "score/test_scheduled_scoring.py::test_command_and_exit_codes",
    ),
    Bug(
        "SIGTERM swallowed",
        "cli/interrupts.py",
        "(signal.SIGTERM, self._terminate)",
        "(signal.SIGTERM, signal.SIG_IGN)",
        "cli/test_cli.py -k signals",
    ),
]


def planted(bug: Bug, root: Path) -> str:
    """The bug's file with the edit; stops where its line is not there exactly once."""
    text = (root / "irt_dask" / bug.file).read_text()
    if text.count(bug.old) != 1:
        sys.exit(
            f"{bug.name}: old text found {text.count(bug.old)} times in irt_dask/{bug.file}, "
            f"where it has to stand once; bring the bug up to date:\n{bug.old}"
        )
    return text.replace(bug.old, bug.new)


def copied(root: Path) -> None:
    """Copy what tests need of the working tree."""
    for name in TREES:
        if (commits.ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.zarr")
            shutil.copytree(commits.ROOT / name, root / name, ignore=ignored)
    for file in (p for p in commits.ROOT.iterdir() if p.is_file()):
        shutil.copy(file, root)


def tried(root: Path, tests: list[str], kernels: Path) -> tuple[int | None, str]:
    """Exit code of pytest (None: it took too long), and what it says at the end."""
    words = [w if w.startswith("-") or "/" not in w else f"tests/{w}" for w in tests]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    command += ["-m", "not nightly"]
    shutil.rmtree(root / "tmp", ignore_errors=True)
    (root / "tmp").mkdir()
    try:
        run = subprocess.run(
            [*command, "--basetemp", str(root / "tmp" / "t"), *words],
            cwd=root, capture_output=True, text=True, timeout=LIMIT,
            env=commits.environment(root) | {"NUMBA_CACHE_DIR": str(kernels)},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"more than {LIMIT} s"
    lines = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return run.returncode, "; ".join(lines)[:200] or run.stdout[-300:] + run.stderr[-300:]


def outcome(bug: Bug, root: Path) -> tuple[str, str]:
    """Plant a bug, run its tests, take it out again; what came of it, and a test that failed."""
    file = root / "irt_dask" / bug.file
    sound, changed = file.read_text(), planted(bug, root)
    compiled = bug.file.startswith(("kernels/", "curves/", "arrays.py", "errors.py"))
    with tempfile.TemporaryDirectory() as other:
        file.write_text(changed)
        try:
            code, said = tried(root, shlex.split(bug.tests), Path(other) if compiled else KERNELS)
        finally:
            file.write_text(sound)
    if code == 1 and said.startswith("FAILED"):  # an error on the way to a test is none of its
        return "caught", said.removeprefix("FAILED tests/").partition(" - ")[0]
    return ("SURVIVED", bug.tests) if code == 0 else ("ERROR", said)


def sound(bugs: list[Bug], root: Path) -> None:
    """Stop unless the tests pass while no bug is planted."""
    for tests in dict.fromkeys(bug.tests for bug in bugs):
        code, said = tried(root, shlex.split(tests), KERNELS)
        if code != 0:
            sys.exit(f"without any bug: {tests}\n{said}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="bugs, by a part of their names")
    parser.add_argument("--check", action="store_true", help="look for their lines alone")
    parser.add_argument("--trust", action="store_true", help="tests pass without a bug: try none")
    options = parser.parse_args()
    bugs = [b for b in BUGS if not options.names or any(n in b.name for n in options.names)]
    if not bugs:
        sys.exit(f"no bug has {options.names} in its name")
    for bug in bugs:  # before anything runs
        planted(bug, commits.ROOT)
    if options.check:
        for k, bug in enumerate(bugs, 1):
            print(f"{k:>2}  {bug.name}  (irt_dask/{bug.file})")
        return
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        root = Path(name).resolve()
        copied(root)
        os.environ.pop("PYTEST_ADDOPTS", None)
        if not options.trust:
            sound(bugs, root)
        caught = 0
        for k, bug in enumerate(bugs, 1):
            begun = time.monotonic()
            what, said = outcome(bug, root)
            caught += what == "caught"
            seconds = time.monotonic() - begun
            print(f"{k:>2}  {what:<8}  {seconds:4.0f} s  {bug.name}  ({said})", flush=True)
    print(f"{caught} of {len(bugs)} caught")
    sys.exit(caught < len(bugs))


if __name__ == "__main__":
    main()
