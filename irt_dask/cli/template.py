"""The pipeline file that init writes: what is sure as keys, what is not as comments."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from irt_dask.cli import work
from irt_dask.cli.common import shortened
from irt_dask.cli.look import amount, missing_share, others, value_line
from irt_dask.cli.spoken import toml_value, typed
from irt_dask.ingest.look import OTHER, Look
from irt_dask.store.places import is_url

#: Options that are keys of [data] as they were given.
_AS_GIVEN = ("missing", "recode", "key", "persons", "delimiter", "decimal", "encoding",
             "weight_kind", "on_error", "layout", "rows_per_block")  # fmt: skip
_USUAL = ("sampling", "raise", "auto")
_FILES = ("key", "persons")
_SHOWN = 12

_REST = """
[cluster]
kind = "local"                # worker processes on all cores of this machine
{calibrate}
[check]
replicates = 50               # data sets simulated to check the scores; 0: no check

[score]
method = "eap"                # or "map", "ml", "wle"
{prior}plausible = 0                 # plausible values of each person, columns pv1, pv2, ...
"""
_BAYES = """
[calibrate]
method = "bayes"              # the items' posterior; or "marginal": marginal maximum likelihood
"""
_MARGINAL = """
# Persons have weights, which marginal maximum likelihood uses and method = "bayes" does not.
# To calibrate as if nobody had one:  [data] weights = "ignore"
[calibrate]
method = "marginal"

[marginal]
model = "2pl"                 # or "1pl", "3pl", "4pl"
"""


def pipeline(look: Look, given: dict[str, Any], target: Path) -> tuple[str, list[str]]:
    """Return the text of a file at ``target``, and what is to be decided before it runs."""
    source, roles = look.source, look.source.roles
    to_decide: list[str] = []
    lines = [
        f"# Made by irt-dask init from a look at {_comment(source.path)} ({amount(look)}).",
        '# Paths are relative to this file; "irt-dask docs pipelines" lists every key.',
        "",
        f"title = {toml_value(_title(source.path))}",
        "seed = 1",
        "",
        "[data]",
        f"source = {toml_value(_relative(str(source.path), target))}",
    ]
    if roles.form in ("long", "wide"):
        a_row = "response" if roles.form == "long" else "person"
        lines.append(f'shape = "{roles.form}"{" " * 15}# a row per {a_row}')
    columns: dict[str, Any] = dict(roles.single)
    if given.get("columns") and "items" in given["columns"]:
        columns["items"] = given["columns"]["items"]
    lines += [f"columns = {toml_value(columns)}", *_items(look, given, to_decide)]
    for key in _AS_GIVEN:
        value = given.get(key)
        if value and value not in _USUAL:
            value = _relative(value, target) if key in _FILES else value
            lines.append(f"{key} = {toml_value(value)}")
    lines += _values(look, given, to_decide)
    lines += [f"# {_comment(typed(note, work.run))}" for note in look.notes]
    if look.problem is not None and not to_decide:
        to_decide.append(typed(look.problem, work.run))
        lines.append(f"# TO DECIDE: {_comment(to_decide[-1])}")
    lines.append(_persons(look))
    return "\n".join(lines), to_decide


def _items(look: Look, given: dict[str, Any], to_decide: list[str]) -> list[str]:
    """The lines about columns."""
    share = missing_share(look)
    observed = "" if share is None else f"; {share:.1%} of cells are not observed"
    lines = [f"# {len(look.items)} items: {_comment(shortened(look.items, _SHOWN))}{observed}"]
    if others(look):
        lines.append(f"# Columns that are not used: {_comment(shortened(others(look), _SHOWN))}")
    if look.empty:
        lines.append(f"# Without any response, left out: {_comment(shortened(look.empty, _SHOWN))}")
    exclude = list(given.get("exclude") or [])
    if exclude:
        lines.append(f"exclude = {toml_value(exclude)}")
    if look.suspects:
        to_decide.append(f"are these items? {shortened(list(look.suspects), _SHOWN)}")
        lines.append("# TO DECIDE: these columns are taken for items and perhaps are none:")
        lines += [f"#   {_comment(f'{name!r}: {why}')}" for name, why in look.suspects.items()]
        lines.append("# To leave out those that are none:")
        lines.append(f"# exclude = {_comment(toml_value([*exclude, *look.suspects]))}")
    return lines


def _values(look: Look, given: dict[str, Any], to_decide: list[str]) -> list[str]:
    """The lines about values: what they are taken for, and what may be meant by the others."""
    missing, exclude = (list(given.get(key) or []) for key in ("missing", "exclude"))
    known = [v for v in look.values if v.meaning != "no response"]
    lines = [f"# Values: {_comment('; '.join(map(value_line, known[:_SHOWN])))}"]
    unknown = [v for v in look.values if v.meaning == "no response"]
    for value in unknown[:_SHOWN]:
        line, codes = value_line(value), toml_value([*missing, value.text])
        recode = toml_value({**(given.get("recode") or {}), value.text: "wrong"})
        if value.text == OTHER:
            to_decide.append(f"what do they mean? {line}")
            lines.append(f"# TO DECIDE: {_comment(line)}. What do they mean?")
        else:
            to_decide.append(f"what does {value.text!r} mean? {line}")
            lines += [
                f"# TO DECIDE: {_comment(line)}. What does it mean?",
                f"# missing = {_comment(codes)}              # not observed",
                f'# recode = {_comment(recode)}   # or "right"',
            ]
        if 0 < len(value.columns) <= _SHOWN:
            columns = toml_value([*exclude, *value.columns])
            lines.append(f"# exclude = {_comment(columns)}   # where the column is no item")
    if len(unknown) > _SHOWN:
        lines.append(f"# ... and {len(unknown) - _SHOWN} more such values")
    return lines


def _persons(look: Look) -> str:
    """The sections after [data], which depend on whether persons have weights and groups."""
    prior = 'prior = "normal"              # or "population", "groups", "covariates"\n'
    if look.groups is not None:
        some = ", ".join(list(look.groups)[:_SHOWN])
        prior = (
            f"# {len(look.groups)} groups: {_comment(some)}; with a distribution of ability "
            f'each:  prior = "groups"\nprior = "normal"\n'
        )
    return _REST.format(calibrate=_MARGINAL if look.weighted else _BAYES, prior=prior)


def _title(path: Any) -> str:
    return str(path).replace("\\", "/").rpartition("/")[2].partition(".")[0] or "Item calibration"


def _relative(path: str, target: Path) -> str:
    if is_url(path) or os.path.isabs(path):
        return path
    return os.path.relpath(path, target.parent)


def _comment(text: Any) -> str:
    """Return text as part of one line."""
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f]", " ", str(text))
