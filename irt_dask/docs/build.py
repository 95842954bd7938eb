"""Build the site: ``python build.py FOLDER [--strict] [--no-execution]``; needs the extra ``docs``.

Sources are copied to FOLDER/source together with the pages that are made of the package; the site
is FOLDER/html.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import generated
import links

from irt_dask.cli.main import cli

#: Topics of ``irt-dask docs`` whose page has another path.
MOVED = {"methods": "methods/index.md"}


def prepare(source: Path) -> None:
    """Write all sources of the site into a folder."""
    shutil.copytree(HERE, source, ignore=shutil.ignore_patterns("__pycache__", "build.py"))
    pages = {
        p.relative_to(HERE).as_posix(): p.read_text(encoding="utf-8") for p in HERE.rglob("*.md")
    }
    pages |= dict(generated.methods(pages.pop("methods.md"), pages["formulas.md"]))
    pages |= dict(generated.example_pages())
    pages["vocabulary.md"] = generated.vocabulary()
    (source / "methods.md").unlink()
    topics = {
        Path(path).stem: path for path in pages if path.count("/") == 0 or "tutorials/" in path
    }
    for path, text in pages.items():
        text = text.replace("](methods.md)", f"]({MOVED['methods']})")
        if path.startswith("methods/"):
            text = text.replace("](plausible_values.png)", "](../plausible_values.png)")
        _write(source / path, links.as_notebook(links.linked(text, path, topics | MOVED)))
    _write(source / "commands.md", generated.commands(cli))
    for path, text in generated.reference():
        _write(source / path, text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main() -> int:
    """Build; the exit code is Sphinx's."""
    from sphinx.cmd.build import main as sphinx

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--strict", action="store_true", help="warnings are errors")
    parser.add_argument("--no-execution", action="store_true", help="code cells are only shown")
    given = parser.parse_args()
    source = given.folder / "source"
    os.environ.setdefault("TQDM_DISABLE", "1")  # bars of its examples
    shutil.rmtree(source, ignore_errors=True)
    prepare(source)
    options = ["-q", "-d", str(given.folder / "doctrees")]
    options += ["-W", "--keep-going", "-n"] if given.strict else []
    if given.no_execution:
        options += ["-D", "nb_execution_mode=off", "-D", "suppress_warnings=myst-nb.lexer"]
    return int(sphinx([*options, "-b", "html", str(source), str(given.folder / "html")]))


if __name__ == "__main__":
    sys.exit(main())
