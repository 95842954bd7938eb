"""Messages for the shell: what they say of keywords of Python becomes what is typed.

Errors and warnings are written for Python, where they arise, perhaps on a worker:
``say missing=['9'] or exclude=['age']``.  Whatever reaches the shell passes through :func:`typed`,
which knows the options of the command, each by the keyword that it becomes, and makes of it
``say --missing 9 or --exclude age``.  For ``irt-dask run``, whose options for data are keys of a
file, it makes ``missing = ["9"]``.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import click

_STRING = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
#: What ends, opens or closes in a value that is written as in Python.
_TOKEN = re.compile(rf"{_STRING}|[][(){{}}]|[^][(){{}}'\"]+")
_PLAIN = re.compile(rf"{_STRING}|\.\.\.|[+-]?\w+(?:[.\w+-]*\w)?")
#: Keywords of functions that begin so are options without it: n_shards is --shards.
_NUMBER_OF = "n_"
#: What is done to responses in Python, and said of a store by an option.
_SELECTED = "select the responses with "
#: What is said of Python otherwise than by a keyword; in a shell; and of the file of a run.
_PHRASES = (
    ("leave them out by responses.select(items=[...])",
     "leave them out of the store by 'irt-dask ingest --exclude'",
     "leave them out by exclude in [data]"),
    ("give persons= with a column group to from_array or ingest",
     "give 'irt-dask ingest --persons' a table with a column group",
     "give persons= with a column group"),
    ("responses.dichotomise(at=...)", "--dichotomise AT", "dichotomise in [data]"),
    ("item_covariates", "--item-table", "item_table"),
    (", or give an array with one label for each person", "", ""),
    (", or an array of strings with one for each person", "", ""),
    ("irt.score(n_plausible=10), irt-dask score --plausible 10", "irt-dask score --plausible 10",
     "plausible = 10 in [score]"),
    ("give the form of one group, bank.isel(items=...)",
     "give the form of one group by --items FORM.csv", ""),
    ("use score(method='wle')", "use irt-dask score --method wle", ""),
    (" (of Replicates.from_units)", "", ""),
    ("Replicates.from_zones without n_zones takes any labels",
     "--zone, --unit and --method in place of --preset take any labels",
     "zone, unit and method in place of preset take any labels"),
    ("the Dataset that irt.link(..., error='jackknife') returns",
     "the file that 'irt-dask link --error jackknife --link LINK.nc' keeps",
     "the file that 'irt-dask link --error jackknife --link LINK.nc' keeps"),
    ("score by the items of the link (the result of irt.link, or the bank of it)",
     "score by the bank that 'irt-dask link --out' wrote",
     "name in [scoring] the bank that 'irt-dask link --out' wrote"),
    ("link by irt.link(..., error='jackknife')", "link by 'irt-dask link --error jackknife'",
     "link by 'irt-dask link --error jackknife'"),
)  # fmt: skip
#: Functions that errors name, by the command that calls them under another name.
_FUNCTIONS = {"curves": "item_curves", "lord": "lord_dif", "q3": "residual_correlations"}
#: What does not stand before a keyword, but before a part of something else.
_BEFORE = r"(?<![\w.'\"`/-])"


def typed(text: str, command: click.Command | None) -> str:
    """Return a message as somebody should read it who typed ``command``."""
    write = _of_command(command)
    if command is None or not write:
        return text
    if command.name == "run" and _OF_TABLE in text:
        write |= _of_table()
    if methods := _methods(command):
        text = re.sub(rf"\bfit_({'|'.join(methods)})\b", r"--method \1", text)
    if function := _FUNCTIONS.get(str(command.name)):
        named = rf"{_BEFORE}{function}(?![\w'\"`(])"
        text = re.sub(named, f"irt-dask {command.name}", text)
    text = text.replace(_SELECTED, "")
    for said, in_shell, in_file in _PHRASES:
        text = text.replace(said, in_file if command.name == "run" else in_shell)
    if bare := [name for name in write if "_" in name and name in _options(command)]:
        named = rf"{_BEFORE}(?:{_NUMBER_OF})?({'|'.join(bare)})(?![\w'\"`/=-]|\.\w)"
        text = re.sub(named, lambda found: write[found[1]](None), text)
    names = "|".join(sorted(map(re.escape, write), key=len, reverse=True))
    keyword = re.compile(rf"{_BEFORE}(?:{_NUMBER_OF})?({names})=(?!=)")
    parts, at = [], 0
    while found := keyword.search(text, at):
        end = _end_of_value(text, found.end())
        if end is None:  # a value that is cut short
            parts.append(text[at : found.end()])
            at = found.end()
            continue
        parts += [text[at : found.start()], write[found[1]](_value(text[found.end() : end]))]
        at = end
    return "".join(parts) + text[at:]


def _options(command: click.Command) -> set[str]:
    return {str(p.name) for p in command.params if isinstance(p, click.Option)}


def _methods(command: click.Command) -> list[str]:
    """Methods of calibration that the command has: functions in Python."""
    options = [p for p in command.params if p.name == "method" and command.name == "calibrate"]
    return [str(m) for p in options if isinstance(p.type, click.Choice) for m in p.type.choices]


def list_of(text: str) -> list[str]:
    """Return the names of an option: ``A,B,"C, D"``."""
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]


Writer = Callable[[Any], str]


def _of_command(command: click.Command | None) -> dict[str, Writer]:
    """Return what writes each keyword that the command has an option for."""
    if command is None:
        return {}
    write: dict[str, Writer] = {}
    if command.name == "run":
        write = {key: _key_writer(key) for key in _keys_of_runs()}
    for option in command.params:
        if isinstance(option, click.Option) and option.name not in write:
            write[str(option.name)] = _option_writer(option)
    if command.name in _PUBLISHED:
        write["weights"] = write["replicates"]
    if "items" in write and command.name in _OF_BANKS:
        items = write.pop("items")
        write["unknown_items"] = lambda value: items("bank" if value == "ignore" else "all")
    return write


def _of_table() -> dict[str, Writer]:
    """What writes each keyword of tabulate as a key of a table, whose persons stand in a file."""
    from irt_dask.workflow.publishing import TableSection

    write = {key: _key_writer(key) for key in TableSection.model_fields}
    own = write["on"]  # the scores' column is known
    write["on"] = lambda value: own(value[-1] if isinstance(value, list) else value)
    return write | {"join": write["persons"], "weights": write["replicates"]}


#: How a message on a table of a run begins.
_OF_TABLE = "[[tables]] "
#: Commands whose option ``--replicates`` is what Replicates has as ``weights``.
_PUBLISHED = ("tabulate", "regress")
#: Commands with an option or key ``items`` for what is ``unknown_items`` in Python.
_OF_BANKS = ("score", "run", "fit", "dif", "q3", "curves")


def _keys_of_runs() -> set[str]:
    """Keys of the sections of pipeline files that are about what is computed."""
    from irt_dask.workflow import config, publishing, scoring, sections

    of = (
        config.DataConfig, config.ScoreConfig, scoring.ScoringSection, sections.MarginalConfig,
        sections.SpectralConfig, sections.JointConfig, sections.BayesConfig, sections.CheckConfig,
        sections.PrivateConfig, publishing.PopulationSection,
    )  # fmt: skip
    return {key for section in of for key in section.model_fields}


def _option_writer(option: click.Option) -> Writer:
    name = max(option.opts, key=len)

    def write(value: Any) -> str:
        if value is False and option.secondary_opts:
            return option.secondary_opts[0]
        if option.name == "standard_errors" and isinstance(value, str):  # how, not whether
            return f"{name}-from {value}"
        if value is None or option.is_flag:
            return name
        if isinstance(value, dict):
            values = [f"{_word(k)}={_word(v)}" for k, v in value.items()]
        elif isinstance(value, list) and option.multiple:
            values = [_word(v) for v in value]
        else:
            values = [_word(value)]
        return " ".join(f"{name} {shlex.quote(v)}" for v in values) or name

    return write


def _word(value: Any) -> str:
    """Return a value as one word that is typed."""
    if value is ...:
        return "..."
    if isinstance(value, list):
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow([_word(v) for v in value])
        return line.getvalue()
    return str(value)


def _key_writer(key: str) -> Writer:
    def write(value: Any) -> str:
        return f"{key} =" if value is None else f"{key} = {toml_value(value)}"

    return write


def toml_value(value: Any) -> str:
    """Return a value as it stands in a pipeline file."""
    if value is ...:
        return "..."
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_toml_key(k)} = {toml_value(v)}" for k, v in value.items())
        return f"{{ {', '.join(pairs)} }}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(key: Any) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", str(key)) else toml_value(str(key))


# --- values as Python writes them -----------------------------------------------------------------


def _end_of_value(text: str, at: int) -> int | None:
    """Return where the value ends that begins at ``at``: there, if none does; None if nowhere."""
    if text[at : at + 1] not in ("[", "{", "("):
        found = _PLAIN.match(text, at)
        return found.end() if found else at
    depth, place = 0, at
    while found := _TOKEN.match(text, place):
        place = found.end()
        depth += (found[0] in "[{(") - (found[0] in ")}]")
        if depth == 0:
            return place
    return None


def _value(text: str) -> Any:
    """Return the value; None for no text, the text itself for what is no value."""
    if not text:
        return None
    try:
        return _of_node(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError):
        return text


def _of_node(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return node.id  # a word that stands for a value
        case ast.List() | ast.Tuple():
            return [_of_node(part) for part in node.elts]
        case ast.Dict():
            keys = [_of_node(key) for key in node.keys if key is not None]
            return dict(zip(keys, map(_of_node, node.values), strict=True))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
    raise ValueError("no plain value")
