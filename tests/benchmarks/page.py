"""The page ``irt-dask docs measurements``, made of the results that are tracked.

    python tests/benchmarks/page.py          # writes irt_dask/docs/measurements.md

``tests/contracts/test_benchmarks_page.py`` sees that the page is what this makes of them.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TRACKED = HERE / "results"
PAGE = HERE.parents[1] / "irt_dask" / "docs" / "measurements.md"

HEAD = """\
# Benchmarks: what was measured, on what, and by which command

Made by `tests/benchmarks/page.py` of what is tracked in `tests/benchmarks/results`: do not edit it.
Every table has the command that made it, to be typed in a checkout; `tests/benchmarks/results.py`
runs all of them again, and prints the ratio of each number to the tracked one. Seconds depend on
the machine that is named; shares (of errors, of coverage) on chance alone.
"""

REST = """\
## Not tracked

These print their tables. Numbers of theirs in README and other pages were copied by hand, and no
test compares them; among them are what is set beside published figures (`joint.py`, `coresets.py`,
`private.py`, `rasch.py`) and beside programs in R, which were run elsewhere. One that takes
`--json tests/benchmarks/results/NAME.json` is tracked by it.

| `python tests/benchmarks/...` | what it measures |
| --- | --- |
"""


def page() -> str:
    """The text of the page."""
    results = [json.loads(file.read_text()) for file in sorted(TRACKED.glob("*.json"))]
    tracked = {result["command"][0] for result in results}
    return "\n".join([HEAD, *map(section, results), others(tracked)])


def section(content: dict[str, Any]) -> str:
    """One tracked result: what it is, the command, the machine, and its rows."""
    script, *options = content["command"]
    on = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in content["machine"].items())
    return (
        f"## {title(HERE / script)}\n\n"
        f"`python tests/benchmarks/{' '.join([script, *options])}`, on {on}.\n\n"
        f"{''.join(f'{x}{chr(10) * 2}' for x in remarks(HERE / script))}"
        f"{table(content['rows'])}\n"
    )


def table(rows: list[dict[str, Any]]) -> str:
    """Rows of words and numbers; a column for every name that some row has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, ["---"] * len(names), *([_cell(row.get(n)) for n in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def title(script: Path) -> str:
    """The first line of a program's docstring."""
    said = ast.get_docstring(ast.parse(script.read_text())) or script.name
    return said.partition("\n")[0].rstrip(".")


def remarks(script: Path) -> list[str]:
    """What else the docstring says but how the program is called; what it needs comes last."""
    said = (ast.get_docstring(ast.parse(script.read_text())) or "").split("\n\n")[1:]
    needs = [line.split("(")[0].strip() for part in said for line in part.splitlines()
             if line.startswith("    pip install")]  # fmt: skip
    spoken = [" ".join(part.split()).replace("``", "`") for part in said if part[:1] != " "]
    return spoken + [f"It needs `{line}`." for line in needs]


def programs() -> list[Path]:
    """The programs that measure: those that say how they are called."""
    found = []
    for path in sorted(HERE.glob("*.py")):
        said = ast.get_docstring(ast.parse(path.read_text())) or ""
        if f"python tests/benchmarks/{path.name}" in said and path.name not in _TOOLS:
            found.append(path)
    return found


#: What handles results, and measures nothing.
_TOOLS = ("results.py", "page.py")


def others(tracked: set[str]) -> str:
    """Programs whose results are not tracked: numbers of other pages are theirs."""
    lines = [f"| `{p.name}` | {title(p)} |\n" for p in programs() if p.name not in tracked]
    return REST + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
