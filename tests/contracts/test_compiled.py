"""Machine code of the kernels on disk: edits anywhere are seen, and nothing is compiled twice."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import irt_dask
from irt_dask.kernels.base import compiled

PACKAGE = Path(irt_dask.__file__).parent

FILES = {
    "__init__.py": "",
    "curves/__init__.py": "ADDED = 1.0\n",
    "kernels/__init__.py": "",
    "kernels/base/__init__.py": "",
    "kernels/callee.py": """
from irt_dask.kernels.base.compiled import jit

@jit
def term(x):
    return 2.0 * x
""",
    "kernels/caller.py": """
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.callee import term
from irt_dask.curves import ADDED

@jit
def total(x):
    s = ADDED
    for v in x:
        s += term(v)
    return s
""",
}
#: Prints the result, how many signatures came from the disk and how many were compiled.
RUN = """
import numpy as np
from irt_dask.kernels.caller import total
result = total(np.arange(4.0))
print(result, *(sum(getattr(total.stats, "cache_" + x).values()) for x in ("hits", "misses")))
"""
#: Begins when there is a file; compiles for 8 types in an order of its own and checks each result.
MANY = """
import pathlib, sys, time
import numpy as np
from irt_dask.kernels.caller import total
types = [np.dtype(t) for t in "bhilBHfd"]
number = int(sys.argv[1])
print(flush=True)
while not pathlib.Path("begin").exists():
    time.sleep(0.001)
for t in types[number:] + types[:number]:
    assert total(np.arange(4).astype(t)) == 13.0, t
print(sum(total.stats.cache_misses.values()))
"""

#: Whether numba has made ready for compiling: after what is on disk, and after another type.
READY = """
import sys
import numpy as np
from irt_dask.kernels.caller import total
for values in (np.arange(4.0), np.arange(4)):
    print(total(values), "numba.np.arraymath" in sys.modules)
"""


@pytest.fixture
def package(tmp_path):
    """Folder of a small package that compiles by the module under test."""
    for name, text in FILES.items():
        file = tmp_path / "irt_dask" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    shutil.copy(compiled.__file__, tmp_path / "irt_dask" / "kernels" / "base")
    shutil.copy(PACKAGE / "errors.py", tmp_path / "irt_dask")  # which that imports
    return tmp_path


def command(code, *arguments):
    return [sys.executable, "-c", code, *map(str, arguments)]


def environment(folder):
    mine = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    return mine | {"PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(folder / "of_user")}


def run(folder, code=RUN, **variables):
    """Standard output of a process that imports the package in a folder."""
    env = environment(folder) | variables
    return subprocess.check_output(command(code), env=env, cwd=folder, text=True, timeout=120)


def folders(place):
    return sorted(place.glob(f"{compiled.PREFIX}*"))


def beside(package):
    return package / "irt_dask" / "kernels" / "__pycache__"


def edit(package, name, old, new):
    file = package / "irt_dask" / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.slow
def test_edits_of_what_a_kernel_calls_and_of_constants_are_seen(package):
    assert run(package).split() == ["13.0", "0", "1"]
    assert run(package).split() == ["13.0", "1", "0"]
    edit(package, "kernels/callee.py", "2.0 * x", "3.0 * x")
    assert run(package).split() == ["19.0", "0", "1"]
    edit(package, "curves/__init__.py", "1.0", "5.0")
    assert run(package).split() == ["23.0", "0", "1"]
    assert run(package).split() == ["23.0", "1", "0"]
    assert len(folders(beside(package))) == 3
    edit(package, "curves/__init__.py", "5.0", "1.0")
    assert run(package).split() == ["19.0", "1", "0"]  # as before, and so is its machine code


@pytest.mark.slow
def test_what_is_on_disk_runs_without_all_that_compiles(package):
    assert run(package) == "13.0 0 1\n"
    assert run(package, READY) == "13.0 False\n13.0 True\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "before, after",
    [
        ("open(file, 'a').write('# edited')", ""),
        ("os.rename(file, 'away')", "os.rename('away', file)"),  # in the midst of an upgrade
    ],
)
def test_a_process_whose_sources_changed_keeps_no_machine_code(package, before, after):
    first = f"import os\nfile = 'irt_dask/kernels/callee.py'\n{before}\nresult ="
    changed = RUN.replace("result =", first) + after
    for _ in range(2):
        assert run(package, changed).split() == ["13.0", "0", "1"]
    assert not folders(beside(package))
    assert run(package).split() == ["13.0", "0", "1"]
    assert run(package, changed).split() == ["13.0", "0", "1"]  # nor does it read any


@pytest.mark.slow
def test_the_folder_lies_where_one_may_write(package):
    beside(package).parent.joinpath("__pycache__").write_text("no folder can be made here")
    for counts in ("0 1", "1 0"):
        assert run(package).split(maxsplit=1)[1].strip() == counts
    assert len(folders(package / "of_user" / "numba")) == 1
    chosen = str(package / "chosen")
    for counts in ("0 1", "1 0"):
        assert run(package, NUMBA_CACHE_DIR=chosen).split(maxsplit=1)[1].strip() == counts
    assert len(folders(package / "chosen")) == 1
    nowhere = {"XDG_CACHE_HOME": str(beside(package))}
    for _ in range(2):
        assert run(package, **nowhere).split() == ["13.0", "0", "1"]


def test_folders_of_other_sources_are_removed_but_the_last_used(package):
    for k in range(6):
        old = beside(package) / f"{compiled.PREFIX}{k}"
        old.mkdir(parents=True)
        os.utime(old, (1e9 + k, 1e9 + k))
    (beside(package) / "somebody-elses").mkdir()
    run(package)
    kept = {x.name.removeprefix(compiled.PREFIX) for x in folders(beside(package))}
    assert {"2", "3", "4", "5"} < kept
    assert len(kept) == compiled.KEPT + 1
    assert (beside(package) / "somebody-elses").is_dir()


@pytest.mark.slow
def test_a_file_that_was_cut_off_is_made_again(package):
    run(package)
    for file in folders(beside(package))[0].glob("caller*"):
        file.write_bytes(file.read_bytes()[:100])
    assert run(package).split() == ["13.0", "0", "1"]
    assert run(package).split() == ["13.0", "1", "0"]


@pytest.mark.slow
def test_processes_that_start_at_once(package):
    started = [
        subprocess.Popen(
            command(MANY, k), env=environment(package), cwd=package, stdout=subprocess.PIPE
        )
        for k in (0, 2, 4, 6)
    ]
    for process in started:
        process.stdout.readline()
    (package / "begin").touch()
    for process in started:
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert run(package, MANY.replace("sys.argv[1]", "3")).split() == ["0"]  # all were kept


def imported(file):
    """Files of the package that a file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{x.name}" for x in node.names] + [str(node.module)]
        else:
            names = [x.name for x in node.names] if isinstance(node, ast.Import) else []
        for name in (x for x in names if x.split(".")[0] == PACKAGE.name):
            path = PACKAGE.parent.joinpath(*name.split("."))
            yield from (f for f in (path / "__init__.py", path.with_suffix(".py")) if f.is_file())


def test_the_digest_is_of_all_that_machine_code_is_made_of():
    sources = {file for pattern in compiled.SOURCES for file in PACKAGE.glob(pattern)}
    for file in set(PACKAGE.rglob("*.py")) - sources:
        text = file.read_text()
        if not re.search(r"\b(n?jit|overload|intrinsic)\b", text):
            continue
        compiles = "numba" in text or Path(compiled.__file__) in imported(file)
        names = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
        if compiles and names & {"jit", "njit", "overload", "intrinsic"}:
            raise AssertionError(f"{file} has kernels: name it in compiled.SOURCES")
    for file in sources:
        outside = set(imported(file)) - sources
        assert not outside, f"{file} imports {outside}: name them in compiled.SOURCES"


@pytest.mark.slow
def test_without_compiling_there_is_nothing_to_run(tmp_path):
    """By name, whatever is called first; not by a traceback out of a kernel."""
    for command in (
        ["-c", "import irt_dask as irt; irt.fit_spectral(irt.load_lsat())"],
        ["-m", "irt_dask.cli", "simulate", "s", "--persons", "5", "--items", "2"],
    ):
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, timeout=120, cwd=tmp_path,
            env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        )  # fmt: skip
        assert done.returncode != 0
        assert "NUMBA_DISABLE_JIT is set in the environment" in done.stderr
        assert "NotImplementedError" not in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.returncode == 2
