"""The page of benchmarks is what the tracked results make of it; what became slower is named."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def program(name: str) -> ModuleType:
    place = ROOT / "tests" / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_of_benchmarks", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made() -> ModuleType:
    return program("page")


def test_the_page_is_of_the_tracked_results(made: ModuleType) -> None:
    assert made.PAGE.read_text() == made.page(), "python tests/benchmarks/page.py writes it anew"


def test_every_tracked_row_is_there_with_its_command_and_machine(made: ModuleType) -> None:
    """By looking for the numbers themselves, in the section of their command."""
    text = made.PAGE.read_text()
    for file in made.TRACKED.glob("*.json"):
        content = json.loads(file.read_text())
        command = f"python tests/benchmarks/{' '.join(content['command'])}"
        assert (ROOT / "tests" / "benchmarks" / content["command"][0]).exists()
        part = text.partition(command)[2].partition("\n## ")[0]
        for value in content["machine"].values():
            assert str(value) in part
        lines = [line.strip("| ").split(" | ") for line in part.splitlines() if "|" in line]
        assert len(lines) == 2 + len(content["rows"])
        for cells, row in zip(lines[2:], content["rows"], strict=True):
            shown = [c.strip() for c in cells if c.strip()]
            assert len(shown) == len(row)
            for cell, value in zip(shown, row.values(), strict=True):
                wanted = value if isinstance(value, str) else pytest.approx(value, rel=5e-3)
                assert (cell if isinstance(value, str) else float(cell)) == wanted


def test_every_program_is_named(made: ModuleType) -> None:
    text = made.PAGE.read_text()
    programs = [p.name for p in made.programs()]
    assert len(programs) > 20
    assert [name for name in programs if name not in text] == []


def test_words_and_missing_numbers(made: ModuleType) -> None:
    said = made.table([{"method": "a", "seconds": 1.23456}, {"method": "b", "ratio": 20}])
    assert said.splitlines() == [
        "| method | seconds | ratio |", "| --- | --- | --- |", "| a | 1.23 |  |", "| b |  | 20 |",
    ]  # fmt: skip


ROWS = [
    {"task": "EAP", "persons": 100, "seconds": 1.0, "other_seconds": 20.0, "ratio": 20.0},
    {"task": "DIF", "persons": 100, "seconds": 1.0, "size": 0.05},
]


@pytest.mark.parametrize(
    "row, change, said",
    [
        (0, {"seconds": 3.0, "other_seconds": 60.0}, []),  # the machine is slower, we are not
        (0, {"ratio": 17.0}, []),
        (0, {"ratio": 16.0}, ["slower by 25%: EAP, 100"]),
        (1, {"seconds": 1.5}, ["slower by 50%: DIF, 100"]),
        (1, {"size": 0.5}, []),
    ],
)
def test_what_became_slower(row: int, change: dict[str, float], said: list[str]) -> None:
    results = program("results")
    now = [r | change if k == row else r for k, r in enumerate(ROWS)]
    assert results.slower(results.measured(ROWS), results.measured(now)) == said


def test_comparison_with_what_was_tracked(tmp_path: Path, capsys) -> None:
    """Another machine, a new row and one that is gone are said."""
    results = program("results")
    before = {"command": ["x.py"], "machine": {"cpu": "old"}, "rows": ROWS}
    new = tmp_path / "new.json"
    rows = [ROWS[0] | {"ratio": 10.0}, ROWS[1] | {"persons": 200}]
    new.write_text(json.dumps(before | {"machine": {"cpu": "new"}, "rows": rows}))
    results.compare(new, [before])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "another cpu: old, now new"
    assert [line.split() for line in lines if line.startswith("EAP, 100, ratio")] == [
        ["EAP,", "100,", "ratio", "20", "10", "0.500"]
    ]
    assert sum(line.endswith(" new") for line in lines[1:]) == 2
    assert sum(line.endswith(" gone") for line in lines) == 2
    assert lines[-1] == "slower by 100%: EAP, 100"
    with pytest.raises(SystemExit, match=r"nothing is tracked of x\.py"):
        results.compare(new, [])
    with pytest.raises(SystemExit, match="git ls-tree"):
        results.tracked("no-such-tag")
