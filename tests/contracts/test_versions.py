"""CHANGELOG, citation and package speak of the same versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

import irt_dask

ROOT = Path(__file__).resolve().parents[2]
HEADING = re.compile(r"## (\d+\.\d+\.\d+) \((unreleased|\d{4}-\d\d-\d\d)\)")


def versions(changelog: str) -> list[tuple[str, str]]:
    """Versions of a change log with their days, the latest first; ValueError at another heading."""
    found = []
    for line in changelog.splitlines():
        if line.startswith("## "):
            heading = HEADING.fullmatch(line)
            if heading is None:
                raise ValueError(f"{line!r}: write ## X.Y.Z (YYYY-MM-DD), or (unreleased)")
            found.append((heading[1], heading[2]))
    return found


def faults(changelog: str, version: str) -> list[str]:
    """What is wrong with a change log of a package of this version."""
    found = versions(changelog)
    said = [] if found and found[0][0] == version else [f"the first version is not {version}"]
    said += [f"{v}: released before, without a day" for v, day in found[1:] if day == "unreleased"]
    numbers = [tuple(map(int, v.split("."))) for v, _ in found]
    if numbers != sorted(set(numbers), reverse=True):
        said.append("versions do not fall")
    return said


def test_the_change_log_is_by_version() -> None:
    assert faults((ROOT / "CHANGELOG.md").read_text(), irt_dask.__version__) == []
    two = "## 0.2.0 (unreleased)\n- b\n## 0.1.0 (2027-01-31)\n- a\n"
    assert faults(two, "0.2.0") == []
    assert faults(two, "0.1.0") == ["the first version is not 0.1.0"]
    assert faults(two.replace("2027-01-31", "unreleased"), "0.2.0") != []
    assert faults(two + "## 0.1.1 (2027-02-01)\n", "0.2.0") == ["versions do not fall"]


def test_the_citation_is_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / ".github" / "CITATION.cff").read_text())
    assert cited["version"] == irt_dask.__version__
    assert cited["license"] == "BSD-3-Clause"
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()


def requirements(texts: list[str]) -> dict[str, str]:
    """Bounds of packages by their names, without blanks."""
    found = (re.fullmatch(r"([\w-]+)\s*(.*)", text) for text in texts)
    return {f[1]: f[2].replace(" ", "") for f in found if f}


#: Packages of PyPI that conda has in parts, of which the package needs the smaller.
IN_CONDA = {"dask": "dask-core", "matplotlib": "matplotlib-base"}


def test_the_conda_recipe_needs_what_the_package_needs() -> None:
    recipe = yaml.safe_load((ROOT / ".github" / "conda" / "recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert recipe["context"]["version"] == irt_dask.__version__
    needed = requirements(project["dependencies"]) | {"python": project["requires-python"]}
    wanted = {IN_CONDA.get(name, name): bound for name, bound in needed.items()}
    assert requirements(recipe["requirements"]["run"]) == wanted
    extras = requirements([x for e in ("diag", "dashboard", "hpc", "s3")
                           for x in project["optional-dependencies"][e]])  # fmt: skip
    assert requirements(recipe["requirements"]["run_constraints"]) == extras
    commands = [f"{name} = {at}" for name, at in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == commands


def test_the_paper_cites_what_it_lists() -> None:
    folder = ROOT / ".github" / "paper"
    text, listed = (folder / "paper.md").read_text(), (folder / "paper.bib").read_text()
    assert set(re.findall(r"@([a-z]+)", text.partition("---\n\n")[2])) == set(
        re.findall(r"^@[a-z]+\{([a-z]+),", listed, re.MULTILINE)
    )
