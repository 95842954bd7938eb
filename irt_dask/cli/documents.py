"""The command docs: pages, and the example files that come with the package."""

from __future__ import annotations

from importlib import resources
from typing import Any

import click

from irt_dask.cli import examples
from irt_dask.errors import InputError


@click.command()
@click.argument("topic", required=False)
@click.argument("example", required=False)
@click.option("--copy", "target", type=click.Path(), metavar="FOLDER",
              help="Copy the files of EXAMPLE, or all of the topic's, into FOLDER.")  # fmt: skip
def docs(topic: str | None, example: str | None, target: str | None) -> None:
    """Show the documentation; without a TOPIC, list the topics.

    The topics 'cluster' and 'pipelines' have examples: 'irt-dask docs cluster' tells where a run
    can compute and lists them, 'irt-dask docs cluster slurm' shows the files of one, and --copy
    writes them into a folder, to be adapted.
    """
    pages = _pages()
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
    pages = {p.name.removesuffix(".md"): p for p in folder.iterdir() if p.name.endswith(".md")}
    return pages | {"cluster": examples.folder("cluster") / "README.md"}


def _text(page: Any) -> str:
    return str(page.read_text(encoding="utf-8"))


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
