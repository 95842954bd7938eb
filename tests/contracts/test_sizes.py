"""Files and functions of the package stay short enough to be read at a sitting."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import irt_dask

PACKAGE = Path(irt_dask.__file__).parent
#: Lines of a file; lines of code of a function, without comments, docstrings and blank ones.
LONGEST_FILE, LONGEST_FUNCTION = 400, 60
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def lines_of_code(text: str, tree: ast.AST) -> set[int]:
    """Numbers of the lines that have code."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = {k for t in tokens if t.type not in _NO_CODE for k in range(t.start[0], t.end[0] + 1)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            found -= {*range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    return found


def test_files_and_functions_are_short() -> None:
    long = []
    for file in sorted(PACKAGE.rglob("*.py")):
        text, name = file.read_text(), file.relative_to(PACKAGE).as_posix()
        if (n := text.count("\n")) > LONGEST_FILE:
            long.append(f"{name}: {n} lines")
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                own = {*range(node.lineno, (node.end_lineno or 0) + 1)}
                if len(own) <= LONGEST_FUNCTION:
                    continue
                if (n := len(own & lines_of_code(text, tree))) > LONGEST_FUNCTION:
                    long.append(f"{name}, {node.name}: {n} lines of code")
    assert not long
