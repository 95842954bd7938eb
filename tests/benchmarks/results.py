"""Results of benchmarks as JSON, tracked in the folder results, and what has changed since.

    python tests/benchmarks/dif.py --json tests/benchmarks/results/dif.json    to be tracked
    python tests/benchmarks/results.py                    run again all that are tracked, compare
    python tests/benchmarks/results.py compare FILE       compare the results in a file
    ... --since v0.1.0                                    with those tracked at that tag or commit

Compared are the numbers with a fraction; words and whole numbers name a row.  At the end stands
what became slower by more than a fifth: by the ratio to another program where a row has one, which
the machine matters little to, else by seconds.  A benchmark that prints its rows by a
:class:`Table` takes ``--json``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

TRACKED = Path(__file__).with_name("results")
Row = dict[str, Any]
#: Numbers by what names the row and their own name.
Measured = dict[tuple[str, ...], float]


def machine() -> dict[str, Any]:
    """What times depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return {
        "cpu": next(x.split(": ")[1] for x in lines if x.startswith("model name")),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "os": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("irt_dask", "numpy", "numba", "dask")},
    }


class Table:
    """Rows of words and numbers, printed as they come, and kept at the end of a ``with`` block.

    It takes ``--json FILE`` out of the program's arguments, before the program reads them.
    """

    def __init__(self) -> None:
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--json", type=Path)
        options, sys.argv[1:] = parser.parse_known_args()
        self.file: Path | None = options.json
        self.command = [Path(sys.argv[0]).name, *sys.argv[1:]]
        self.rows: list[Row] = []

    def add(self, **row: Any) -> None:
        """Print a row, the first below its names."""
        form = {k: f"<{max(36, len(k))}" if isinstance(x, str) else f">{max(9, len(k))}"
                for k, x in row.items()}  # fmt: skip
        row = {k: float(f"{x:.5g}") if isinstance(x, float) else x for k, x in row.items()}
        if not self.rows:
            print("  ".join(f"{k:{form[k]}}" for k in row))
        print("  ".join(f"{x:{form[k]}}" for k, x in row.items()), flush=True)
        self.rows.append(row)

    def __enter__(self) -> Table:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if self.file and kind is None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            rows = ",\n".join(map(json.dumps, self.rows))
            self.file.write_text(
                f'{{"command": {json.dumps(self.command)},\n"machine": {json.dumps(machine())},\n'
                f'"rows": [\n{rows}\n]}}\n'
            )


def measured(rows: list[Row]) -> Measured:
    """Numbers with a fraction, by what names the row, and their own name."""
    return {
        (*(str(x) for x in row.values() if not isinstance(x, float)), name): value
        for row in rows
        for name, value in row.items()
        if isinstance(value, float)
    }


def tracked(since: str | None) -> list[dict[str, Any]]:
    """The tracked results, of the working tree or of a commit."""
    if since is None:
        return [json.loads(path.read_text()) for path in sorted(TRACKED.glob("*.json"))]
    folder = "tests/benchmarks/results/"
    names = _git("ls-tree", "--name-only", since, folder).split()
    return [json.loads(_git("show", f"{since}:{name}")) for name in names if name.endswith("json")]


def _git(*words: str) -> str:
    command = ["git", *words]
    try:
        done = subprocess.run(command, cwd=TRACKED.parents[2], capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit(f"{' '.join(command)}: there is no git here")
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def compare(file: Path, before: list[dict[str, Any]]) -> None:
    """Print the results in a file beside the former ones of their command, and what is slower."""
    new = json.loads(file.read_text())
    old = next((x for x in before if x["command"] == new["command"]), None)
    if old is None:
        sys.exit(f"nothing is tracked of {' '.join(new['command'])}")
    for key, value in new["machine"].items():
        if old["machine"].get(key) != value:
            print(f"another {key}: {old['machine'].get(key)}, now {value}")
    print(f"\n{' '.join(new['command']):<50} {'tracked':>9} {'now':>9} {'ratio':>7}")
    was, now = measured(old["rows"]), measured(new["rows"])
    for name, value in now.items():
        if name in was:
            ratio = value / (was[name] or math.nan)
            print(f"{', '.join(name):<50} {was[name]:>9.5g} {value:>9.5g} {ratio:>7.3f}")
        else:
            print(f"{', '.join(name):<50} {'':>9} {value:>9.5g}     new")
    for name in was.keys() - now.keys():
        print(f"{', '.join(name):<50} {was[name]:>9.5g} {'':>9}    gone")
    for line in slower(was, now) or ["nothing became slower by more than a fifth"]:
        print(line)


def slower(was: Measured, now: Measured) -> list[str]:
    """What takes a fifth longer than before, a line each."""
    lines = []
    for name in was.keys() & now.keys():
        row, what = name[:-1], name[-1]
        if what == "ratio":  # the other program's seconds over ours
            factor = was[name] / now[name]
        elif what == "seconds" and (*row, "ratio") not in now:
            factor = now[name] / was[name]
        else:
            continue
        if factor > 1.2:
            lines.append(f"slower by {factor - 1.0:.0%}: {', '.join(row)}")
    return sorted(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--since", metavar="COMMIT")
    what = parser.add_subparsers(dest="what")
    what.add_parser("compare").add_argument("file", type=Path)
    options = parser.parse_args()
    before = tracked(options.since)
    if options.what:
        return compare(options.file, before)
    for content in before:
        script, *arguments = content["command"]
        program = [sys.executable, str(TRACKED.with_name(script)), *arguments]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "results.json"
            subprocess.run([*program, "--json", str(file)], check=True)
            compare(file, before)


if __name__ == "__main__":
    main()
