"""The lowest versions: what pyproject.toml declares is what the session "floors" installs."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def declared():
    """The lower bounds of all dependencies, a set for each name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    bounds = {}
    for line in (x for lines in (project["dependencies"], *extras) for x in lines):
        requirement = Requirement(line)
        low = [s.version for s in requirement.specifier if s.operator == ">="]
        assert len(low) == 1, f"{line} needs one lower bound"
        bounds.setdefault(requirement.name, set()).update(low)
    return bounds


def test_the_floors_are_the_lower_bounds_of_pyproject():
    lines = (ROOT / ".ci" / "floors.txt").read_text().splitlines()
    floors = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert {name: {version} for name, version in floors.items()} == declared()


def test_the_tested_versions_are_those_that_pyproject_takes():
    """Every dependency of users has one, at or above its floor."""
    lines = (ROOT / ".ci" / "tested.txt").read_text().splitlines()
    tested = {
        canonicalize_name(name): version
        for name, version in (x.split("==") for x in lines if not x.startswith("#"))
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in (x for xs in (project["dependencies"], *project["optional-dependencies"].values())
                 for x in xs):  # fmt: skip
        requirement = Requirement(line)
        assert tested[canonicalize_name(requirement.name)] in requirement.specifier, line


def test_the_pythons_that_are_tried_begin_above_the_lowest():
    """The lowest Python has all of .ci/run; each one above it has a run of its own."""
    lowest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    session = (ROOT / ".ci" / "noxfile.py").read_text()
    minors = [int(x) for x in re.findall(r'"3\.(\d+)"', session.partition("PYTHONS")[2])]
    assert lowest == f">=3.{minors[0] - 1}"
    assert minors == list(range(minors[0], minors[-1] + 1))


def test_a_python_that_is_not_here_is_not_passed(tmp_path):
    """By .ci/extended with tools that make no environment, and no Python above the lowest."""
    pytest.importorskip("nox")
    tools = {"python3.11": 'mkdir -p "$3/bin"; touch "$3/bin/activate"', "pip": "",
             "python3.14": "exit 1"}  # fmt: skip
    for name, script in tools.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        [ROOT / ".ci" / "extended", "pythons(version='3.14')"], capture_output=True, text=True,
        env={**os.environ, "PATH": path, "PYENV_ROOT": str(tmp_path)},
    )  # fmt: skip
    assert ended.returncode == 3, ended.stderr
    assert ended.stdout.endswith("UNTESTED, as they are not here: Python 3.14 \n")
