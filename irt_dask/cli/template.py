"""The pipeline file that init writes: what is sure as keys, what is not as comments."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

from irt_dask.cli import work
from irt_dask.cli.common import shortened
from irt_dask.cli.look import amount, missing_share, others, suggested, value_line
from irt_dask.cli.spoken import toml_value, typed
from irt_dask.ingest.columns.limits import DATA
from irt_dask.ingest.columns.meanings import UNDECIDED, plainly
from irt_dask.ingest.columns.numbers import number_of, of_decimal
from irt_dask.ingest.columns.reasons import LONGEST_CODE
from irt_dask.ingest.columns.recorder import OTHER
from irt_dask.ingest.columns.suspects import perhaps_weight
from irt_dask.ingest.look import Look
from irt_dask.ingest.sources.delimited import DelimitedSource
from irt_dask.ingest.sources.item_tables import read_categories, read_recode
from irt_dask.ingest.text.dialect import Dialect
from irt_dask.store.categories import BINARY
from irt_dask.store.places import is_url

#: Options that are keys of [data] as they were given.
_AS_GIVEN = ("exclude", "missing", "recode", "key", "categories", "reverse", "null_categories",
             "persons", "delimiter", "decimal", "encoding",
             "weight_kind", "on_error", "layout", "rows_per_block")  # fmt: skip
_USUAL = ("sampling", "raise", "auto")
_FILES = ("key", "persons")
_SHOWN = 12

_REST = """
# [cluster]                   # without it: this process, or worker processes if there are many data
# kind = "local"              # worker processes on all cores of this machine
{calibrate}
{tests}
[score]
method = "eap"                # or "map", "ml", "wle"
{prior}plausible = 0                 # plausible values of each person, columns pv1, pv2, ...
"""
_BAYES = """
[calibrate]
method = "bayes"              # the items' posterior; or "marginal": marginal maximum likelihood

[check]
replicates = 50               # data sets simulated to check the scores; 0: no check
"""
_MARGINAL = """{why}[calibrate]
method = "marginal"

[marginal]
model = {models}
"""
_FEW = """
# {n} persons are few for two numbers an item: what slopes and difficulties are usual is learned
# from all items (irt-dask docs choose). Or without prior model = "1pl", or without [marginal]
# method = "bayes".
"""
#: Persons below whom items are few persons' (docs/choose.md).
_ENOUGH = 200
_WEIGHTED = """
# Persons have weights, which both methods of calibration use, and scores. As if nobody had one:
# [data] weights = "ignore"
"""
_TESTS = """[tests]
# infit, outfit, a chi-square (S-X2 too where everybody answered everything), observed curves:
item_fit = true               # item_fit.csv, and the page of each item"""
_UNTESTED = """# [tests]
# item_fit = true             # only of persons without weights"""
#: Attempts are counted before, as no key of a pipeline says them.
_TRIALS = (
    "count the attempts first, by irt-dask ingest with --trials, and name that store here, "
    "in place of source"
)
_GRADED = """
# For items of more than two categories (a posterior: method = "bayes", [bayes] model = "gpcm").
"""


def pipeline(look: Look, given: dict[str, Any], target: Path) -> tuple[str, list[str]]:
    """Return the text of a file at ``target``, and what is to be decided before it runs."""
    source, roles = look.source, look.source.roles
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
    lines += _seen(look)
    questions = _Questions(look, given)
    lines += questions.lines + questions.keys(target)
    lines += [f"# {_comment(typed(note, work.run))}" for note in look.notes]
    lines.append(_methods(look, questions.counts()))
    return "\n".join(lines), questions.to_decide


def _seen(look: Look) -> list[str]:
    """The lines about what there is."""
    share = missing_share(look)
    observed = "" if share is None else f"; {share:.1%} of cells are not observed"
    lines = [f"# {len(look.items)} items: {_comment(shortened(look.items, _SHOWN))}{observed}"]
    if others(look):
        lines.append(f"# Columns that are not used: {_comment(shortened(others(look), _SHOWN))}")
    if look.empty:
        lines.append(f"# Without any response, left out: {_comment(shortened(look.empty, _SHOWN))}")
    known = [value_line(v, look) for v in look.values if not v.unknown]
    return [*lines, f"# Values: {_comment('; '.join(known[:_SHOWN]))}"]


class _Questions:
    """What is to be decided, and the keys of [data], with what may be decided as comments."""

    def __init__(self, look: Look, given: dict[str, Any]) -> None:
        self.look, self.given = look, dict(given)
        self.to_decide: list[str] = []
        self.lines: list[str] = []
        self.sure: dict[str, Any] = {"columns": dict(look.source.roles.single)}
        if look.source.roles.facets:
            self.sure["columns"]["facets"] = list(look.source.roles.facets)
        for role in ("items", "covariates", "labels"):
            if given.get("columns") and role in given["columns"]:
                self.sure["columns"][role] = given["columns"][role]
        for key in _AS_GIVEN:
            if given.get(key) and given[key] not in _USUAL:
                self.sure[key] = given[key]
        text = Dialect.checked(*(given.get(k) for k in ("delimiter", "decimal", "encoding")))
        if "categories" in self.sure:  # of a file what it says, to be seen
            self.sure["categories"] = read_categories(given["categories"], text)
        if "recode" in self.sure:
            self.sure["recode"] = self.given["recode"] = read_recode(given["recode"], text)
        self._perhaps: dict[str, tuple[Any, str]] = {}  # values of keys, and when they are right
        self._roles = {
            role: name for role, name in _called(look) if role not in self.sure["columns"]
        }
        self._no_items = [name for name in look.suspects if name not in self._roles.values()]
        if look.suspects:
            self._ask_about_columns()
        self._ask_about_values()
        if look.problem is not None and not self.to_decide:
            told = typed(look.problem.replace("say trials=", _TRIALS), work.run)
            self._ask(told, told)
        self._ask_about_roles()
        if self._no_items:
            exclude = [*dict.fromkeys([*(given.get("exclude") or []), *self._no_items])]
            self._perhaps["exclude"] = exclude, "those of them that are no items"

    def counts(self) -> set[int]:
        """The numbers of categories of items, as far as they are known, or what may be decided."""
        said = self.sure.get("categories")
        perhaps = self._perhaps["categories"][0] if "categories" in self._perhaps else BINARY
        most = perhaps if isinstance(perhaps, int) else max(perhaps.values())
        if not self.look.n_categories and (said == DATA or (said is None and most > BINARY)):
            return {BINARY, BINARY + 1}  # for a model of either
        if self.look.n_categories or said is None:
            return {*self.look.n_categories}
        if isinstance(said, int):
            return {said}
        return {said.get(item, BINARY) for item in self.look.items}

    def keys(self, target: Path) -> list[str]:
        """Return a line for each key that is sure, and after it for what may take its place."""
        lines = []
        for key in dict.fromkeys([*self.sure, *self._perhaps]):
            if key in self.sure:
                value = self.sure[key]
                value = _relative(value, target) if key in _FILES else value
                lines.append(f"{key} = {toml_value(value)}")
            if key in self._perhaps:
                value, why = self._perhaps[key]
                instead = "in place of the line above: " if key in self.sure else ""
                lines.append(f"# {key} = {_comment(toml_value(value))}   # {instead}{why}")
        return lines

    def _ask(self, question: str, *lines: str) -> None:
        self.to_decide.append(question)
        self.lines.append(f"# TO DECIDE: {_comment(lines[0])}")
        self.lines += [f"#   {_comment(line)}" for line in lines[1:]]

    def _ask_about_columns(self) -> None:
        suspects = self.look.suspects
        self._ask(
            f"are these items? {shortened(list(suspects), _SHOWN)}",
            "these columns are taken for items and perhaps are none:",
            *(f"{name!r}: {why}" for name, why in suspects.items()),
        )

    def _ask_about_values(self) -> None:
        """Ask what values mean that are no responses: one line a key has them all."""
        decimal = (
            self.given.get("decimal") if isinstance(self.look.source, DelimitedSource) else "."
        )
        unknown = [v for v in self.look.values if v.unknown]
        of_roles = {*self._roles.values()}
        answered = {*of_roles, *self.look.suspects}  # by what becomes of the column
        unknown = [
            v for v in unknown
            if not v.columns or not answered.issuperset(v.columns)
            or (of_roles.issuperset(v.columns) and of_decimal(v.text, decimal))
        ]  # fmt: skip
        codes, labels, odd = [], [], list[str]()
        for value in unknown[:_SHOWN]:
            line = value_line(value, self.look)
            if value.text == OTHER or len(value.text) > LONGEST_CODE:
                self._ask(f"what do they mean? {line}", f"{line}. What do they mean?")
            elif of_decimal(value.text, decimal):
                if "decimal" not in self._perhaps:
                    sign = "." if decimal == "," else ","
                    question = f"is {sign!r} the decimal sign?"
                    self._ask(f"{question} {line}", f"{line}. I{question[1:]}")
                    self._perhaps["decimal"] = sign, "if that is the decimal sign"
                continue
            else:
                codes.append(value.text)
                if _is_word(value.text) and 2 * len(value.columns) >= len(self.look.items):
                    labels.append(value.text)
                question = f"what does {value.text!r} mean?"
                self._ask(f"{question} {line}", f"{line}. What does it mean?")
            few = min(_SHOWN, len(self.look.items) // 2)  # what most have is an answer
            graded = {*value.columns} & self.look.perhaps_categories.keys()
            if 0 < len(value.columns) <= few:  # a code of several items is theirs
                odd += [c for c in value.columns if len(graded) < 3 or c not in graded]
        if 2 * len({*odd}) <= len(self.look.items):  # else it is rows that are odd
            self._no_items += odd
        if len(unknown) > _SHOWN:
            self.lines.append(f"# ... and {len(unknown) - _SHOWN} more such values")
        if codes:
            self._offer(codes, labels)
        if self.look.perhaps_categories:
            why = "where these codes are categories"
            why += '; or categories = "data"' * self.look.perhaps_data
            self._perhaps["categories"] = suggested(self.look), why
        if self.look.perhaps_recode:
            recode = {**(self.given.get("recode") or {}), **self.look.perhaps_recode}
            self._perhaps["recode"] = recode, "with categories, which have codes from 0"

    def _offer(self, codes: list[str], labels: list[str]) -> None:
        """What these values may mean: not observed, right or wrong, labels of categories."""
        said = self.given.get("recode") or {}
        if silent := [c for c in codes if plainly(c) is None]:
            missing = [*(self.given.get("missing") or []), *silent]
            self._perhaps["missing"] = missing, "those of them that mean not observed"
        if len(labels) > BINARY and "categories" not in self.sure:
            # their order is not known, and codes in another one run and are wrong without a word
            undecided = dict.fromkeys(labels, UNDECIDED)
            why = 'of labels of categories: put codes for "?", 0 for the lowest, then 1, 2, ...'
            self._perhaps["recode"] = {**said, **undecided}, why
            self._perhaps["categories"] = len(labels), "with it"
            return
        if fractions := _fractions(codes):
            of = {text: k for k, text in enumerate(["0", *fractions, "1"])}
            self._perhaps["recode"] = {**said, **of}, 'of partial credit; or { "0.5" = "wrong" }'
            self._perhaps["categories"] = len(of), "with it"
            return
        truth = {c.casefold() for c in codes} in ({"t", "f"}, {"y", "n"}, {"j", "n"})
        if not truth and len(codes) > BINARY and all(len(c) == 1 and c.isalpha() for c in codes):
            why = "of answers as they were given: a file with columns item and key, the right one"
            self._perhaps["key"] = "key.csv", why
        why = 'the others; or "right"' if silent and not truth else "if the words mean that"
        words = [c for c in silent if not math.isfinite(number_of(c))]
        unsaid = [] if truth or len(words) < BINARY else words  # one meaning for all would run
        if unsaid:
            why = 'the others: put "right", "wrong" or a code for each "?"'
        meant = {c: plainly(c) or ("right" if truth and c in "TtYyJj" else "wrong") for c in codes}
        meant |= dict.fromkeys(unsaid, UNDECIDED)
        self._perhaps["recode"] = {**said, **meant}, why

    def _ask_about_roles(self) -> None:
        for role, name in self._roles.items():
            question = f"does the column {name!r} hold the {role} of each person?"
            self._ask(question, f"{question} As it is, it does not.")
        if self._roles:
            self._perhaps["columns"] = self.sure["columns"] | self._roles, "if so"


def _is_word(text: str) -> bool:
    """Whether a value is a word that may stand for a category, neither a number nor a letter."""
    return len(text) > 1 and not math.isfinite(number_of(text))


def _fractions(codes: list[str]) -> list[str]:
    """The codes in their order, if all are shares between 0 and 1."""
    of = {text: number_of(text) for text in codes}
    return sorted(of, key=of.__getitem__) if all(0.0 < x < 1.0 for x in of.values()) else []


def _called(look: Look) -> list[tuple[str, str]]:
    """Return columns that are called weight or group and have another role, or none."""
    lacking = [("weight", not look.weighted), ("group", not look.grouped)]
    items = [i for i in look.items if i not in look.source.roles.confirmed]
    return [
        *look.unused.items(),
        *((role, i) for role, lacks in lacking for i in items if lacks and _is_called(i, role)),
    ]


def _is_called(name: str, role: str) -> bool:
    return name.casefold() == role or (role == "weight" and perhaps_weight(name))


def _methods(look: Look, counts: set[int]) -> str:
    """The sections after [data], which depend on the items, and on weights and groups."""
    prior = 'prior = "normal"              # or "population", "groups", "covariates"\n'
    if look.groups is not None:
        some = _comment(", ".join(list(look.groups)[:_SHOWN]))
        each, all_alike = "with a distribution of ability each", "with one for everybody"
        marginal = look.weighted or _graded(counts) or _few(look)  # which has groups
        used, other = ("groups", "normal") if marginal else ("normal", "groups")
        told = all_alike if marginal else each
        prior = (
            f'# {len(look.groups)} groups: {some}; {told}:  prior = "{other}"\nprior = "{used}"\n'
        )
    tests = _UNTESTED if look.weighted else _TESTS
    if look.groups is not None and len(look.groups) > 1:
        first = _comment(toml_value(min(map(str, look.groups))))
        tests += f"\n# dif_reference = {first}  # which items favour one of the groups: dif.csv"
    return _REST.format(calibrate=_calibrate(look, counts), tests=tests, prior=prior)


def _calibrate(look: Look, counts: set[int]) -> str:
    """The sections about the calibration, by a method that can use these items and weights."""
    graded, few = _graded(counts), _few(look)
    if not (graded or look.weighted or few):
        return _BAYES
    if few and not graded:
        models = '"2pl"\nprior = "empirical"'
    elif not graded:
        models = '"2pl"                 # or "1pl", "3pl", "4pl"'
    elif BINARY in counts:
        models = '"2pl+graded"          # or "2pl+gpcm", "3pl+gpcm", "pcm", ...'
    else:
        models = '"graded"              # or "gpcm", "pcm", "rating", "nominal", "binomial"'
    why = _WEIGHTED * look.weighted + _GRADED * graded
    why += _FEW.format(n=f"{look.persons:,}") * (few and not graded)
    return _MARGINAL.format(why=why, models=models)


def _graded(counts: set[int]) -> bool:
    return max(counts, default=BINARY) > BINARY


def _few(look: Look) -> bool:
    return 0 < look.persons < _ENOUGH


def _title(path: Any) -> str:
    return str(path).replace("\\", "/").rpartition("/")[2].partition(".")[0] or "Item calibration"


def _relative(path: str, target: Path) -> str:
    if is_url(path) or os.path.isabs(path):
        return path
    folder, name = os.path.split(path)  # links are followed, as ".." does not lead back over them
    return os.path.relpath(os.path.join(os.path.realpath(folder), name), target.parent.resolve())


def _comment(text: Any) -> str:
    """Return text as part of one line."""
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f]", " ", str(text))
