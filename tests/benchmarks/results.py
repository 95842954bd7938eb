"""Results of benchmarks as JSON, tracked in the folder results, and what has changed since.

    python tests/benchmarks/dif.py --json tests/benchmarks/results/dif.json    to be tracked
    python tests/benchmarks/results.py                    run again all that are tracked, compare
    python tests/benchmarks/results.py compare FILE       compare the results in a file

Compared are the numbers with a fraction; words and whole numbers name a row.  A benchmark that
prints its rows by a :class:`Table` takes ``--json``.
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


def measured(rows: list[Row]) -> dict[tuple[str, ...], float]:
    """Numbers with a fraction, by what names the row, and their own name."""
    return {
        (*(str(x) for x in row.values() if not isinstance(x, float)), name): value
        for row in rows
        for name, value in row.items()
        if isinstance(value, float)
    }


def compare(file: Path) -> None:
    """Print the results in a file beside the tracked ones of the same command."""
    new = json.loads(file.read_text())
    tracked = [json.loads(path.read_text()) for path in sorted(TRACKED.glob("*.json"))]
    old = next((x for x in tracked if x["command"] == new["command"]), None)
    if old is None:
        sys.exit(f"nothing is tracked of {' '.join(new['command'])}")
    for key, value in new["machine"].items():
        if old["machine"].get(key) != value:
            print(f"another {key}: {old['machine'].get(key)}, now {value}")
    print(f"\n{' '.join(new['command']):<50} {'tracked':>9} {'now':>9} {'ratio':>7}")
    before = measured(old["rows"])
    for name, value in measured(new["rows"]).items():
        was = before.get(name, math.nan)
        print(f"{', '.join(name):<50} {was:>9.5g} {value:>9.5g} {value / (was or math.nan):>7.3f}")


def main() -> None:
    match sys.argv[1:]:
        case ["compare", file]:
            compare(Path(file))
        case []:
            for path in sorted(TRACKED.glob("*.json")):
                script, *arguments = json.loads(path.read_text())["command"]
                program = [sys.executable, str(TRACKED.with_name(script)), *arguments]
                with tempfile.TemporaryDirectory() as folder:
                    file = Path(folder) / path.name
                    subprocess.run([*program, "--json", str(file)], check=True)
                    compare(file)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
