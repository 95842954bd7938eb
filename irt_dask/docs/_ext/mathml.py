"""Formulas as MathML, which browsers draw themselves: no script, no picture, no network."""

from __future__ import annotations

import html
from typing import Any

from latex2mathml.converter import convert


def inline(self: Any, node: Any) -> None:
    """Write a formula in a line of text."""
    self.body.append(_marked(node.astext(), "inline"))
    raise _skip()


def block(self: Any, node: Any) -> None:
    """Write a formula on a line of its own."""
    self.body.append(f'<div class="math-display">{_marked(node.astext(), "block")}</div>')
    raise _skip()


def _marked(latex: str, display: str) -> str:
    """MathML with the source as its label, for those who listen."""
    made = convert(latex.strip(), display=display)
    return made.replace("<math ", f'<math aria-label="{html.escape(latex.strip())}" ', 1)


def _skip() -> Exception:
    from docutils.nodes import SkipNode

    return SkipNode()


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
