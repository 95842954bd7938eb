"""Pages for the shell become pages of the site: names and commands in the text turn into links."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import irt_dask as irt

CELL = re.compile(r"^```\{code-cell\}", re.MULTILINE)
#: What makes a page with code cells a notebook.
FRONT = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n\n"
#: A hidden first cell: figures that are made outside pyplot are shown too.
SETUP = "\n```{code-cell}\n:tags: [remove-cell]\n%matplotlib inline\n```\n"
_PICTURE = re.compile(r"^```\{code-cell\}\n# picture: (.+)\n", re.MULTILINE)
_FENCE = re.compile(r"(^```.*?^```\s*?$)", re.MULTILINE | re.DOTALL)
_DOCS = re.compile(r"(?<!\[)`irt-dask docs ([\w/]+)((?: [\w./]+)?)`")
_NAME = re.compile(r"(?<![\[`])`(?:irt\.)?((?:plot\.)?\w+)(?:\([^`<>]*\))?`(?!`)")


def linked(text: str, here: str, pages: dict[str, str]) -> str:
    """Text of a page with links to others; ``here`` is its path, ``pages`` has each topic's."""
    up = "../" * here.count("/")

    def docs(found: re.Match[str]) -> str:
        page = pages.get(found[1])
        return f"[{found[0]}]({up}{page})" if page and page != here else found[0]

    def name(found: re.Match[str]) -> str:
        known = found[1] in irt.__all__ and ("_" in found[1] or "irt." in found[0])
        drawn = found[1].startswith("plot.") and found[1][5:] in irt.plot.__all__
        if not (known or drawn) or found[1] == "plot":
            return found[0]
        return f"{{py:obj}}`{found[0].strip('`')} <irt_dask.{found[1]}>`"

    return _outside_fences(text, lambda line: _NAME.sub(name, _DOCS.sub(docs, line)))


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Change lines of prose; headings, code and what is a link already stay."""
    parts = _FENCE.split(text)
    for k in range(0, len(parts), 2):
        lines = parts[k].split("\n")
        parts[k] = "\n".join(x if x.startswith("#") else change(x) for x in lines)
    return "".join(parts)


def as_notebook(text: str) -> str:
    """A page with code cells is executed; "# picture: ..." first in one is its picture's text."""
    if not CELL.search(text):
        return text
    title, _, rest = text.partition("\n")
    rest = _PICTURE.sub(_alternative, rest)
    return f"{FRONT}{title}\n{SETUP}{rest}"


def _alternative(found: re.Match[str]) -> str:
    """The start of a cell whose picture has an alternative text."""
    alt = json.dumps(found[1])
    return f"```{{code-cell}}\n---\nmystnb:\n  image:\n    alt: {alt}\n---\n"
