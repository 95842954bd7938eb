"""What users rely on, as a flat table: a name and what holds of it, one line each.

    python tests/contracts/api_snapshot.py          # write tests/contracts/api.json anew

``test_api.py`` compares the table with the file that is tracked.  Functions and classes with their
parameters and defaults, variables, attrs and variables that every record of a method in
``registry.py`` has in common, commands and options, keys of TOML files, and versions of formats.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import tempfile
import types
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import click
import numpy as np
import pyarrow.parquet as pq
import registry
from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from registry import METHODS

import irt_dask as irt
from irt_dask import errors, variables
from irt_dask.banks.files import items_text
from irt_dask.calibrate.private import ledger
from irt_dask.cli.main import cli
from irt_dask.clusters.config import ClusterConfig
from irt_dask.curves import FAMILIES, MODELS
from irt_dask.selection import session_state
from irt_dask.store import manifest
from irt_dask.workflow import RunConfig, ScoringConfig, directory, stages

HERE = Path(__file__).resolve().parent
FILE = HERE / "api.json"
COMMAND = "python tests/contracts/api_snapshot.py"
#: What entries begin with that take running every method.
RESULT = "result of "

Table = dict[str, str]


def table(*, results: bool = True) -> Table:
    """Everything; without ``results``, which are computed, in a second."""
    parts = [names(), vocabulary(), commands(cli), keys(), formats()]
    return dict(
        sorted(pair for part in (*parts, fixed() if results else {}) for pair in part.items())
    )


# --- Python ---------------------------------------------------------------------------------------


def names() -> Table:
    """Public names, and the errors and warnings, which scripts catch."""
    found: Table = {}
    for name in irt.__all__:
        value = getattr(irt, name)
        if inspect.isfunction(value):
            found |= function(name, value)
        elif inspect.isclass(value) and not issubclass(value, Exception):
            found |= members(name, value)
    for name in irt.plot.__all__:
        found |= function(f"plot.{name}", getattr(irt.plot, name))
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, Exception) and name[0] != "_":
            public = "irt_dask" if name in irt.__all__ else "irt_dask.errors"
            found[f"exception {name}"] = f"in {public}; is a {', '.join(bases(value))}"
    return found


def bases(value: type[Exception]) -> list[str]:
    """What a script may catch in place of an exception."""
    names = [base.__name__ for base in value.__mro__[1:]]
    return [name for name in names if name[0] != "_" and name not in _ALWAYS]


#: Bases that tell nothing.
_ALWAYS = ("Exception", "BaseException", "object", "Warning")


def function(name: str, value: FunctionType) -> Table:
    """A function and its parameters: where each stands, and what it is when it is not given."""
    found = {f"function {name}": "there"}
    place = 0
    for p in inspect.signature(value).parameters.values():
        if p.name == "self":
            continue
        how = "keyword"
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            how, place = f"position {place}", place + 1
        elif p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            how = "any number"
        needed = p.default is p.empty
        found[f"function {name}({p.name}=)"] = f"{how}, {'required' if needed else said(p.default)}"
    return found


def members(name: str, value: type) -> Table:
    """A class: how it is made, its public methods and what else it has."""
    found = {f"class {name}": "there"}
    if "__init__" in vars(value):
        made = function(name, value.__init__)  # type: ignore[misc]
        found |= {k.replace("function ", "class ", 1): v for k, v in made.items() if "(" in k}
    for member, of in inspect.getmembers_static(value):
        if member.startswith("_"):
            continue
        if isinstance(of, staticmethod | classmethod):
            of = of.__func__
        if inspect.isfunction(of):
            found |= function(f"{name}.{member}", of)
        else:
            found[f"attribute {name}.{member}"] = "there"
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    return found | {f"attribute {name}.{f.name}": "there" for f in fields if f.name[0] != "_"}


def said(default: Any) -> str:
    """A default as it is typed."""
    return f"default {default!r}"


def vocabulary() -> Table:
    """Variables of results, their suffixes, and the flags of items."""
    found = {}
    for v in variables.VARIABLES.values():
        more = "".join(f" [{dim}]" for dim in (*v.before, *v.more))
        found[f"variable {v.name}"] = (
            f"({', '.join(v.dims)}){more} of kind {v.kind}, unit {v.unit or '-'}"
        )
    found |= {f"suffix of variables _{name}": doc for name, doc in variables.SUFFIXES.items()}
    found |= {f"item_flag {name}": doc for name, doc in variables.ITEM_FLAGS.items()}
    return found | {f"model {name}": "there" for name in (*MODELS, *FAMILIES)}


def fixed() -> Table:
    """Attrs and variables that all results of a function have, by the registry's records.

    Of those of fit_bayes, which take long, the first.
    """
    seen: dict[str, list[tuple[Table, Table]]] = {}
    for method in METHODS:
        if method.name == "fit_bayes" and method.name in seen:
            continue
        y = registry.values(missing=0.2, of=method)
        result = method(registry.as_responses(y, of=method, persons=registry.table()))
        attrs = {str(k): kind(v) for k, v in result.attrs.items()}
        seen.setdefault(method.name, []).append(
            (attrs, {str(k): "there" for k in result.variables})
        )
    found = {}
    for name, results in seen.items():
        for k, what in enumerate(("attr", "variable")):
            common = set.intersection(*({*result[k]} for result in results))
            for entry in common:
                kinds = sorted({result[k][entry] for result in results})
                found[f"{RESULT}{name}, {what} {entry}"] = " or ".join(kinds)
    return found | files_of_scores()


def files_of_scores() -> Table:
    """Columns of a folder of scores."""
    y, bank = irt.from_array(registry.values(20), item_id=registry.ITEMS), registry.BANKS["2pl"]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for method in ("eap", "ml"):
            irt.score(y, bank, method=method, n_plausible=2, store=f"{folder}/{method}")
            schema = pq.read_schema(f"{folder}/{method}/part-000000.parquet")
            found[f"{RESULT}score, columns of files of {method}"] = ", ".join(schema.names)
    return found


def kind(value: Any) -> str:
    """What sort of thing an attr is; numbers are numbers."""
    if isinstance(value, bool | np.bool_):
        return "bool"
    if isinstance(value, int | float | np.number):
        return "number"
    return "text" if isinstance(value, str) else "list"


# --- shell and files ------------------------------------------------------------------------------


def commands(group: click.Group) -> Table:
    """Commands, and their arguments and options with defaults."""
    found = {}
    for name, command in group.commands.items():
        found[f"irt-dask {name}"] = "there"
        for place, p in enumerate(command.params):
            if isinstance(p, click.Argument):
                need = "required" if p.required else "may be left out"
                found[f"irt-dask {name} {p.human_readable_name}"] = f"argument {place}, {need}"
            elif isinstance(p, click.Option):
                found[f"irt-dask {name} {'/'.join((*p.opts, *p.secondary_opts))}"] = option(p)
    return found


def option(p: click.Option) -> str:
    """What an option takes, and what it is when it is not given."""
    takes = "flag" if p.is_flag else p.type.name
    if isinstance(p.type, click.Choice):
        takes = f"one of {', '.join(map(str, p.type.choices))}"
    given = p.to_info_dict()["default"]
    if p.is_flag:
        given = bool(given)
    none = given is None or given == ()  # which of them, versions of click do not agree on
    default = "required" if p.required else "no default" if none else said(given)
    return f"{takes}, {default}{', may be repeated' if p.multiple else ''}"


_FILES = {"run": RunConfig, "scoring": ScoringConfig, "cluster": ClusterConfig}


def keys() -> Table:
    """Keys of TOML files, with defaults and the values they take."""
    return {
        f"file of a {file}, {where}": what
        for file, model in _FILES.items()
        for where, what in _keys(model, "")
    }


def _keys(model: type[BaseModel], path: str) -> Iterator[tuple[str, str]]:
    for name, f in model.model_fields.items():
        where = f"{path}{name}"
        inside = [
            t for t in _types(f.annotation) if isinstance(t, type) and issubclass(t, BaseModel)
        ]
        if inside:
            yield where, "section"
            for section in inside:
                yield from _keys(section, f"{where}.")
            continue
        default = f.get_default(call_default_factory=True)
        value = "required" if default is PydanticUndefined else said(default)
        yield where, f"{_words(f.annotation)}, {value}"


def _types(annotation: Any) -> Iterable[Any]:
    """The types that an annotation is made of."""
    parts = typing.get_args(annotation)
    if not parts or typing.get_origin(annotation) is typing.Literal:
        return [annotation]
    return [t for part in parts for t in _types(part)]


def _words(annotation: Any) -> str:
    """A type in words that do not depend on the version of Python."""
    parts = typing.get_args(annotation)
    if annotation is type(None):
        return "none"
    if not parts:
        return str(annotation.__name__)
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return " or ".join(map(repr, parts))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_words, parts))
    if origin is typing.Annotated:
        return _words(parts[0])
    inside = ", ".join("..." if part is ... else _words(part) for part in parts)
    return f"{getattr(origin, '__name__', origin)}[{inside}]"


def formats() -> Table:
    """Versions that are written, and names in what is written."""
    known = sorted(manifest._KNOWN)
    return {
        "format of stores": f"writes and reads {manifest.VERSION}, {manifest.VERSION_WITH_NEEDS}",
        "format of stores, needs": ", ".join(known),
        "format of ledgers": f"writes and reads {ledger.VERSION}, {ledger.VERSION_WITH_BUDGET}",
        "format of sessions": f"writes and reads {session_state._VERSION}",
        "format of run directories": f"writes and reads {directory._VERSION}",
        "format of run directories, stages": ", ".join(stages.STAGES),
        **_banks(),
    }


def _banks() -> Table:
    """Columns of banks: of items of two categories, and of more."""
    found = {}
    for name in ("2pl", "4pl", "mixed"):
        head = items_text(registry.BANKS[name], ".csv").partition("\n")[0]
        found[f"format of banks, columns of {name} items"] = head
    return found


# --- comparing ------------------------------------------------------------------------------------


def differences(tracked: Table, now: Table) -> list[str]:
    """What somebody who relied on the tracked table has to know, a line each."""
    lines = [f"GONE     {k}  (was: {tracked[k]})" for k in tracked.keys() - now.keys()]
    lines += [f"CHANGED  {k}: {tracked[k]}  ->  {now[k]}"
              for k in tracked.keys() & now.keys() if tracked[k] != now[k]]  # fmt: skip
    lines += [f"new      {k}: {now[k]}" for k in now.keys() - tracked.keys()]
    return sorted(lines, key=lambda line: (line[:3] == "new", line))


def read() -> Table:
    """The table that is tracked."""
    return dict(json.loads(FILE.read_text()))


def text(of: Table) -> str:
    """A table as the file has it: a line each, so that changes are read, and merged, by line."""
    return json.dumps(of, indent=0, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the table of the irt_dask that Python finds, and say what changed."""
    now = table()
    for line in differences(read() if FILE.exists() else {}, now):
        print(line)
    FILE.write_text(text(now))
    print(f"{FILE}: {len(now)} lines, of {Path(irt.__file__).parent}")


if __name__ == "__main__":
    main()
