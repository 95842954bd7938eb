"""The command docs: pages, and the example files that come with the package."""

from __future__ import annotations

import re
import sys
import webbrowser
from importlib import resources
from typing import Any

import click

from irt_dask.cli import examples
from irt_dask.errors import InputError

#: Pages that have only links to others.
_OF_THE_SITE = ("index", "how-to", "reference", "maintainers")
_REMARK = re.compile(r"^<!-- not run: .*? -->\n", re.MULTILINE)
_TOCTREE = re.compile(r"^```\{toctree\}\n.*?^```\n", re.MULTILINE | re.DOTALL)


@click.command()
@click.argument("topic", required=False)
@click.argument("example", required=False)
@click.option("--copy", "target", type=click.Path(), metavar="FOLDER",
              help="Copy the files of EXAMPLE, or all of the topic's, into FOLDER.")  # fmt: skip
@click.option("--open", "opened", is_flag=True,
              help="Open the site of all pages, with tutorials, formulas and the reference, in a "
              "browser. It is built once; needs the extra docs.")  # fmt: skip
def docs(topic: str | None, example: str | None, target: str | None, opened: bool) -> None:
    """Show the documentation; without a TOPIC, list the topics.

    The topics 'cluster' and 'pipelines' have examples: 'irt-dask docs cluster' tells where a run
    can compute and lists them, 'irt-dask docs cluster slurm' shows the files of one, and --copy
    writes them into a folder, to be adapted.
    """
    pages = _pages()
    if opened:
        if topic is not None or target is not None:
            raise InputError("--open shows the whole site; it takes no topic and no --copy")
        _browse()
        return
    if topic is None:
        if target is not None:
            raise InputError("--copy needs a topic with examples: cluster or pipelines")
        for name in sorted(pages):
            click.echo(f"{name:<12} {_text(pages[name]).partition(chr(10))[0].lstrip('# ')}")
        return
    if topic not in pages:
        raise InputError(f"there is no topic {topic!r}; topics: {', '.join(sorted(pages))}")
    if topic not in examples.KINDS and (example or target):
        raise InputError(f"the topic {topic} has no examples; cluster and pipelines have")
    if target is not None:
        for path in _copied(topic, example, target):
            click.echo(path)
    elif example is not None:
        found = examples.files(topic, example)
        click.echo_via_pager("\n".join(f"==> {p.name} <==\n\n{_text(p)}" for p in found))
    else:
        click.echo_via_pager(_text(pages[topic]) + _listed(topic))


def _pages() -> dict[str, Any]:
    """Pages by topic."""
    folder = resources.files("irt_dask") / "docs"
    found = [*folder.iterdir(), *(folder / "tutorials").iterdir()]
    pages = {p.name.removesuffix(".md"): p for p in found if p.name.endswith(".md")}
    return {name: p for name, p in pages.items() if name not in _OF_THE_SITE} | {
        "cluster": examples.folder("cluster") / "README.md"
    }


def _text(page: Any) -> str:
    """A page as it is printed: without remarks for the tests, and what Sphinx alone reads."""
    text = _TOCTREE.sub("", _REMARK.sub("", str(page.read_text(encoding="utf-8"))))
    return text.replace("```{code-cell}", "```python")


def _browse() -> None:
    """Open the site; its address is printed, as there may be no browser."""
    from irt_dask.cli.site import page

    address = page().as_uri()
    click.echo(address)
    if sys.stdout.isatty():
        webbrowser.open(address)


def _listed(topic: str) -> str:
    """The examples of a topic, in words."""
    if topic not in examples.KINDS:
        return ""
    listed = "".join(f"  {name}\n" for name in examples.names(topic))
    return (
        f"\nExamples that come with irt_dask:\n\n{listed}\n"
        f"irt-dask docs {topic} NAME shows one; with --copy FOLDER its files are copied there.\n"
    )


def _copied(topic: str, example: str | None, target: str) -> list[Any]:
    if example is not None:
        return examples.copy(examples.files(topic, example), target)
    made = []
    for name in examples.names(topic):
        into = f"{target}/{name}" if name.endswith("/") else target
        made += examples.copy(examples.files(topic, name), into)
    return made
