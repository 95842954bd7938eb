"""The page of benchmarks is what the tracked results make of it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def made() -> ModuleType:
    place = ROOT / "tests" / "benchmarks" / "page.py"
    spec = importlib.util.spec_from_file_location("page_of_benchmarks", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
            assert [float(c) for c in cells] == pytest.approx([*row.values()], rel=5e-3)


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
