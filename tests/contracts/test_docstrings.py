"""The examples in the docstrings of all public names run, and print what they say."""

from __future__ import annotations

import doctest
import inspect

import pytest

import irt_dask as irt


def public_objects():
    """Public functions and classes, plots and the methods of responses, by name."""
    found = {name: getattr(irt, name) for name in irt.__all__ if name != "plot"}
    found |= {f"plot.{name}": getattr(irt.plot, name) for name in irt.plot.__all__}
    methods = inspect.getmembers(irt.Responses, callable)
    return found | {f"Responses.{k}": x for k, x in methods if not k.startswith("_")}


OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
OBJECTS = public_objects()


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTS)
def test_examples(name, tmp_path, monkeypatch):
    """A function has one; all run in an empty folder."""
    thing = OBJECTS[name]
    parts = doctest.DocTestFinder(recurse=False).find(thing, name)
    tried = [x for part in parts for x in part.examples if doctest.SKIP not in x.options]
    assert tried or inspect.isclass(thing), f"irt.{name} has no example in its docstring"
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    for part in parts:
        doctest.DocTestRunner(optionflags=OPTIONS).run(part, out=said.append)
    assert not said, "".join(said)
