"""Change one operator, number or condition at a time, and see that some test fails.

    pip install cosmic-ray
    python tests/mutations.py [FILE ...] [--jobs 2] [--every 1]

FILE is one of those in TARGETS, by a part of its name; without any, all of them.  Changes are those
of the mutation tool Cosmic Ray, one for each operator (``<`` becomes ``<=``, ``+`` becomes ``-``).
Each is made in a copy of the working tree, where the file's tests run in a process of their own
that has the libraries, but not this package, loaded already.  Kernels are compiled anew.

What no test notices is compared with ``mutations_survivors.txt``, which says why each may stay.
Exit code 0 says that there were no others.  ``--every 5`` tries every fifth change alone.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import commits
from planted_bugs import copied

#: Files below irt_dask/, and what pytest is given to notice changes of them.
TARGETS = {
    "store/manifest.py": (
        "store/test_store.py", "store/test_forged.py", "store/test_durable.py",
        "store/test_growing_stores.py", "store/test_documents.py", "contracts/test_formats.py",
        "contracts/test_faults.py", "store/test_object_store.py",
    ),
    "engine/checkpoint.py": (
        "engine/test_engine.py", "store/test_forged.py", "store/test_durable.py",
        "contracts/test_identity.py", "-kcheckpoint and not stale",
    ),
    "calibrate/private/ledger.py": ("calibrate/test_ledger.py", "calibrate/test_private.py"),
    "kernels/privacy/private_counts.py": ("calibrate/test_private.py",),
}  # fmt: skip
#: Of Cosmic Ray's operators those that are not much like another one.
OPERATORS = (
    *(
        f"ReplaceComparisonOperator_{pair}"
        for pair in (
            "Eq_NotEq", "NotEq_Eq", "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE",
            "GtE_Gt", "GtE_Lt", "Is_IsNot", "IsNot_Is",
        )
    ),
    *(
        f"ReplaceBinaryOperator_{pair}"
        for pair in (
            "Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul", "Pow_Mul",
            "LShift_RShift", "RShift_LShift", "BitAnd_BitOr", "BitXor_BitAnd",
        )
    ),
    "ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Not", "AddNot",
    "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ExceptionReplacer", "NumberReplacer",
    "RemoveDecorator", "ZeroIterationForLoop",
)  # fmt: skip
SURVIVORS = Path(__file__).with_name("mutations_survivors.txt")
#: Seconds after which tests of a change are stopped: it was noticed.
LIMIT = 300


class Mutant(NamedTuple):
    """A file of the package with one change."""

    file: str
    operator: str
    text: str
    was: str  # the lines that changed, and what they are now
    now: str

    @property
    def key(self) -> str:
        """How ``mutations_survivors.txt`` names it."""
        return f"{self.file}: {self.was} -> {self.now}"


def mutants(file: str) -> list[Mutant]:
    """All changes of a file; those that only write the same in other words are left out."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    text = (commits.ROOT / "irt_dask" / file).read_text()
    tree, found = get_ast(text), {}
    for name in OPERATORS:
        operator = get_operator(f"core/{name}")()
        count = sum(1 for n in ast_nodes(tree) for _ in operator.mutation_positions(n))
        for k in range(count):
            changed = mutate_code(text, operator, k)
            if changed is None or changed in found:
                continue
            lines = [
                [line[2:].strip() for line in difflib.ndiff(*both) if line.startswith(sign)]
                for sign in ("- ", "+ ")
                for both in [(text.splitlines(), changed.splitlines())]
            ]
            found[changed] = Mutant(file, name, changed, *(" ".join(x) for x in lines))
    return list(found.values())


class Trial(NamedTuple):
    """A process in which the tests of a changed file run, in a copy of the working tree."""

    mutant: Mutant | None
    root: Path
    stop: float

    def said(self, status: int | None) -> str | None:
        """The test that failed, "" if it took too long, None if all passed."""
        if not status:
            return "" if status is None else None
        lines = (self.root / "log").read_text(errors="replace").splitlines()
        failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        return failed[0].split(" - ")[0] if failed else "\n".join(lines[-3:]) or f"code {status}"


def outcomes(
    file: str, changes: Iterable[Mutant | None], roots: list[Path]
) -> Iterator[tuple[Mutant | None, str | None]]:
    """Each change with what its tests say, in the order in which they end; one for each root."""
    changes, free, running = iter(changes), list(roots), dict[int, Trial]()
    sound = (commits.ROOT / "irt_dask" / file).read_text()
    while True:
        while free and (mutant := next(changes, Mutant)) is not Mutant:
            root = free.pop()
            (root / "irt_dask" / file).write_text(mutant.text if mutant else sound)
            pid = os.fork()
            if pid == 0:
                run_tests(file, root)
            running[pid] = Trial(mutant, root, time.monotonic() + LIMIT)
        if not running:
            return
        pid, status = os.waitpid(-1, os.WNOHANG)
        late = [p for p, t in running.items() if time.monotonic() > t.stop]
        if late and not pid:
            os.killpg(late[0], signal.SIGKILL)
            pid, status = os.waitpid(late[0], 0)[0], None
        if pid in running:
            trial = running.pop(pid)
            free.append(trial.root)
            yield trial.mutant, trial.said(status)
        else:
            time.sleep(0.05)


def run_tests(file: str, root: Path) -> NoReturn:
    """End this process with the exit code of the file's tests."""
    os.setsid()
    out = os.open(root / "log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    code = 3
    try:
        code = tested(file, root)
    finally:
        os._exit(code)


def tested(file: str, root: Path) -> int:
    """Exit code of the file's tests."""
    import pytest

    os.chdir(root)
    sys.path[:0] = [str(root)]
    os.environ["PYTHONPATH"] = str(root)  # of processes that tests start
    if file.startswith("kernels/"):
        import numba

        numba.config.CACHE_DIR = str(root / "compiled")
        (root / "compiled").mkdir(exist_ok=True)
    tests = [t if t.startswith("-") else f"tests/{t}" for t in TARGETS[file]]
    return int(
        pytest.main(
            ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "--basetemp", str(root / "tmp"),
             *tests]
        )
    )  # fmt: skip


def without_package() -> None:
    """Load the libraries that the package and its tests use, and forget the package."""
    importlib.import_module("irt_dask")
    for name in ("pytest", "hypothesis", "pandas", "distributed", "zarr", "opendp.prelude"):
        importlib.import_module(name)
    for name in [n for n in sys.modules if n.partition(".")[0] == "irt_dask"]:
        del sys.modules[name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="targets, by a part of their names")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="say which test noticed a change")
    options = parser.parse_args()
    files = [f for f in TARGETS if not options.files or any(n in f for n in options.files)]
    reasons = dict(
        line.split(" ## ", 1) for line in SURVIVORS.read_text().splitlines() if " ## " in line
    )
    os.environ.pop("PYTEST_ADDOPTS", None)
    without_package()
    unexpected = 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as name:
        for file in files:
            unexpected += tried(file, Path(name).resolve(), options, reasons)
    sys.exit(unexpected > 0)


def tried(file: str, folder: Path, options: argparse.Namespace, reasons: dict[str, str]) -> int:
    """Try all changes of a file; how many were not noticed, without a reason."""
    roots = [folder / f"{Path(file).stem}-{k}" for k in range(options.jobs)]
    for root in roots:
        root.mkdir()
        copied(root)
    for _, said in outcomes(file, [None], roots[:1]):
        if said is not None:
            sys.exit(f"without any change: {said}")
    found, begun = mutants(file)[:: options.every], time.monotonic()
    kept, counts = [], Counter[str]()
    for mutant, said in outcomes(file, found, roots):
        counts["timeout" if said == "" else "noticed" if said else "survived"] += 1
        if said is None:
            kept.append(mutant)
            print(f"{mutant.key} ## {reasons.get(mutant.key, '')}", flush=True)
        elif options.verbose:
            print(f"{mutant.key}: {said or 'limit'}", flush=True)
    unexplained = [m for m in kept if m.key not in reasons]
    print(
        f"== {file}: {len(found)} changes, {counts['noticed']} noticed, {counts['timeout']} ran "
        f"into the limit, {counts['survived']} survived, {len(unexplained)} of them without a "
        f"reason; {time.monotonic() - begun:.0f} s", flush=True,
    )  # fmt: skip
    return len(unexplained)


if __name__ == "__main__":
    main()
