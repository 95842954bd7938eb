"""What a value means: responses, weights and numbers out of strings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np
import pyarrow as pa

from irt_dask.errors import InputError, listed

RIGHT_WRONG = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}
#: What spreadsheets, R and pandas write for scores; T and F are more often answers to items.
TRUE_FALSE = {"FALSE": 0, "False": 0, "false": 0, "TRUE": 1, "True": 1, "true": 1}
NOT_OBSERVED = (
    "", "NA", "NaN", "nan", "-1", ".", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "None",
)  # fmt: skip
#: Among answers as they were given, these may be one, or stand for none: not taken unsaid.
_IN_DOUBT = ("None", "-")
WORDS = {"right": 1, "wrong": 0, "missing": -1}
MISSING = -1
UNKNOWN = -2
#: Whole numbers from here on are codes for missing more often than scores of one item.
_FEWEST_MISSING = 7
#: More letters than these are no code, but what somebody has written.
_LONGEST_CODE = 40
_NONE = -3  # an index that no value has


@dataclass(frozen=True)
class Codes:
    """The rules that turn a value into 1 right, 0 wrong, -1 not observed."""

    table: dict[str, int]
    key: dict[str, str] | None = None  # the right option of each item, for files of raw answers
    decimal: str | None = None  # the sign in numbers; None is a dot

    @classmethod
    def checked(
        cls, missing: Any = (), recode: Any = None, decimal: str | None = None, *,
        keyed: bool = False,
    ) -> Codes:  # fmt: skip
        """Check the options of an ingest; without a key 0 and 1 mean wrong and right."""
        table: dict[str, int] = dict.fromkeys(NOT_OBSERVED, MISSING)
        table |= dict.fromkeys(_IN_DOUBT, UNKNOWN) if keyed else RIGHT_WRONG | TRUE_FALSE
        codes = _missing_codes(missing)
        said = dict.fromkeys(codes, MISSING)
        for text, word in _recoded(recode).items():
            if text in codes:
                raise InputError(f"{text!r} is in missing= and in recode=; leave it out of one")
            said[text] = WORDS[word]
        for text, code in said.items():
            table |= dict.fromkeys(_alike(text, decimal), code)
        table |= said  # what was said of one way to write a number goes before others
        if decimal == ",":
            for text in [text for text in table if "." in text and math.isfinite(number_of(text))]:
                table.setdefault(text.replace(".", ","), table[text])
        return cls(table, decimal=decimal)

    def with_key(self, key: dict[str, str]) -> Codes:
        """Return the codes of a file of raw answers, whose right options are ``key``."""
        table = self.table
        for item, option in key.items():
            code = self.code(option)
            if code == UNKNOWN:  # as some item's right option it is an answer
                table = {text: code for text, code in table.items() if text != option}
            elif code is not None:
                meaning = {1: "right", 0: "wrong", -1: "not observed"}[code]
                raise InputError(
                    f"key: the right option of the item {item!r} is {option!r}, which also means "
                    f"{meaning}; give the other meaning another code in the file"
                )
        return Codes(table, key, self.decimal)

    def check_items(self, item_ids: Iterable[str], columns: bool = False) -> None:
        """Refuse items whose right option the key does not say; ``columns`` can be left out."""
        if self.key is None:
            return
        lacking = [item for item in item_ids if item not in self.key]
        if lacking:
            remedy = "add them to the key"
            if columns:
                remedy += f", or leave out columns that are no items: exclude={lacking[:10]!r}"
            raise InputError(
                f"key: {len(lacking)} item(s) of the data have no right option: "
                f"{listed(lacking, 10)}; {remedy}"
            )

    def decode(self, values: Distinct, items: Sequence[str], item: np.ndarray) -> np.ndarray:
        """Return the int8 code of each value, ``UNKNOWN`` where it has none.

        ``item`` is the place in ``items`` of each value, or broadcasts to that.
        """
        if self.key is None:
            codes = np.array([self.table.get(v, UNKNOWN) for v in values.stripped], dtype=np.int8)
            return np.take(codes, values.index)
        known = map(self.code, values.stripped)
        lookup = np.array([0 if code is None else code for code in known], dtype=np.int8)
        answers = map(self._answer, values.stripped)
        first: dict[str | float, int] = {}
        same = np.array([first.setdefault(v, k) for k, v in enumerate(answers)], np.int64)
        codes, index = np.take(lookup, values.index), np.take(same, values.index)
        place = [first.get(self._options.get(i, math.nan), _NONE) for i in items]
        right = np.take(np.array(place or [_NONE], dtype=np.int64), item)
        codes[index == right] = 1
        return codes

    def _answer(self, text: str) -> str | float:
        """Return the number that is the answer, else the text: programs write 2 as 2.0."""
        number = number_of(text, self.decimal)
        return number if math.isfinite(number) else text

    def code(self, text: str) -> int | None:
        """Return what a raw answer means whatever the key says; None for what is compared."""
        exact = self.table.get(text)
        return self._of_answers.get(self._answer(text)) if exact is None else exact

    @cached_property
    def _options(self) -> dict[str, str | float]:
        return {item: self._answer(option) for item, option in (self.key or {}).items()}

    @cached_property
    def _of_answers(self) -> dict[str | float, int]:
        return {self._answer(text): code for text, code in self.table.items()}

    @cached_property
    def _known(self) -> set[str]:
        return {*self.table, *(self.key or {}).values()}

    def spelled(self, number: float) -> str:
        """Return how text would say a number: 9.0 is 9, unless the caller wrote 9.0."""
        texts = spellings(number)
        return next((text for text in texts if text in self._known), texts[0])

    def unknown(self, value: str, column: str, decimal: str | None = None) -> str:
        """Return the message about a value that is neither a response nor missing.

        ``decimal`` is the sign in numbers of the file, where it can have another one than a dot.
        """
        why = self._reason(value.strip(), decimal)
        return f"column {column!r} has the value {shorten(value)}; {why}"

    def _reason(self, code: str, decimal: str | None) -> str:
        """Say why a value is refused, and what to do."""
        if len(code) > _LONGEST_CODE or len(code.splitlines()) > 1:  # nobody would type it
            return "a response is 0 (wrong) or 1 (right)"
        said = shorten(code)
        missing = f"missing=[{said}]"
        recode = f"recode={{{said}: 'right'}} or recode={{{said}: 'wrong'}}"
        if self.key is not None:
            return (
                f"it may be an answer, or mean that there is none; say missing=[{said}] or "
                f"recode={{{said}: 'wrong'}}"
            )
        number = number_of(code, self.decimal)
        hint = of_decimal(code, decimal)
        if hint:
            return f"a response is 0 (wrong) or 1 (right){hint}"
        if number in (0.0, 1.0):
            word = "right" if number else "wrong"
            return f"a response is written 0 (wrong) or 1 (right); say recode={{{said}: {word!r}}}"
        if math.isfinite(number):
            if 0.0 < number < _FEWEST_MISSING:
                return (
                    f"a partial score: items with more than two categories are not read yet; say "
                    f"{recode}, which makes two of them, or leave the item out"
                )
            if number < 0.0 or {*code} <= {*"789"}:
                return (
                    f"a response is 0 (wrong) or 1 (right), and such codes mean different things "
                    f"in different files: say {missing} for what was not observed, or "
                    f"recode={{{said}: 'wrong'}} where an omitted answer counts as wrong"
                )
        rule = "a response is 0 (wrong) or 1 (right)"
        if code.startswith("#"):
            rule = "this is an error of a spreadsheet's formula; mend it there, or"
            return f"{rule} say {missing} where it means not observed"
        if len(code) == 1 and code.isalpha():
            rule += "; if answers stand as they were given, say which are right by key="
        return f"{rule}; if the value means not observed, say {missing}, else {recode}"


@dataclass
class Distinct:
    """Strings as places in a list of their values, in which a value may occur more than once."""

    index: np.ndarray
    values: list[str]  # as they stand in the file
    stripped: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.stripped = [v.strip() for v in self.values]

    def text(self, row: int) -> str:
        """Return the value of a row as it stands in the file."""
        return self.values[self.index[row]]

    @classmethod
    def of(cls, strings: pa.StringArray | pa.DictionaryArray) -> Distinct:
        """Find the values; strings of one byte, which responses are as a rule, cost least."""
        if isinstance(strings, pa.DictionaryArray):
            index = strings.indices.to_numpy(zero_copy_only=False)
            return cls(index, strings.dictionary.to_pylist())
        n = len(strings)
        _, offsets, data = strings.buffers()
        if n == 0 or data is None or data.size == 0:
            return cls(np.zeros(n, dtype=np.uint8), [""])
        ends = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + n + 1]
        content = np.frombuffer(data, np.uint8)
        values = [chr(k) for k in range(128)]
        width = np.diff(ends)
        if ends[-1] - ends[0] == n and width.max() == 1:
            return cls(content[ends[0] : ends[-1]], values)
        first = np.take(content, ends[:-1], mode="clip")
        index = np.where(width == 1, first, 128).astype(np.int32)
        values.append("")
        longer = width > 1
        if longer.any():
            rest = strings.filter(pa.array(longer)).dictionary_encode()
            index[longer] = 129 + rest.indices.to_numpy()
            values += rest.dictionary.to_pylist()
        return cls(index, values)


def spellings(number: float) -> list[str]:
    """Return how a number may be written, the usual way first."""
    text = str(float(number))
    return [str(int(number)), text] if math.isfinite(number) and number == int(number) else [text]


def number_of(text: str, decimal: str | None = None) -> float:
    """Return the number, NaN where the text is none; with decimal commas no dot is in it."""
    if decimal == ",":
        text = "" if "." in text else text.replace(",", ".", 1)
    try:
        return float(text) if "_" not in text else math.nan
    except ValueError:
        return math.nan


def of_decimal(text: str, decimal: str | None) -> str:
    """Return what to add to a message about a number that has the other decimal sign.

    None says that nobody has said which it is: the dot.
    """
    if decimal == ".":
        return ""
    other = "." if decimal == "," else ","
    if other not in text or math.isnan(number_of(text, other)):
        return ""
    if other == ",":
        return "; if the comma is a decimal sign, say decimal=','"
    return "; with decimal=',' no dot is taken, which may part thousands"


def _alike(text: str, decimal: str | None) -> list[str]:
    """Return the ways to write a number, if this is one of them: 9 is also 9.0."""
    dotted = text.replace(",", ".", 1) if decimal == "," else text
    ways = spellings(number_of(dotted))
    return ways if dotted in ways else []


def shorten(value: str) -> str:
    """Return a value for a message, in quotes and not too long."""
    return repr(value if len(value) <= 80 else value[:77] + "...")


# --- options --------------------------------------------------------------------------------------


def texts_of(code: object, option: str) -> list[str]:
    """Return the strings that a code stands for, given as string or number; stripped."""
    if isinstance(code, str):
        return [code.strip()]
    if isinstance(code, bool) or not isinstance(code, Real):
        raise InputError(f"{option}: {code!r} must be a string or a number")
    return [str(int(code))] if isinstance(code, Integral) else spellings(float(code))


def _missing_codes(missing: Any) -> list[str]:
    if isinstance(missing, (str, Real)):
        missing = [missing]
    try:
        codes = [text for code in missing for text in texts_of(code, f"missing={missing!r}")]
    except TypeError:
        raise InputError(f"missing={missing!r} must be a list of codes") from None
    for text in codes:
        if text in RIGHT_WRONG:
            raise InputError(
                f"missing={missing!r}: {text!r} is a response (0 wrong, 1 right) and cannot mean "
                f"missing; if it does in this file, recode it: recode={{{text!r}: 'missing'}}"
            )
    return codes


def _recoded(recode: Any) -> dict[str, str]:
    """Return the word for each code."""
    if recode is None:
        return {}
    if not isinstance(recode, Mapping):
        raise InputError(
            f"recode must be a dict like {{'9': 'wrong'}}, not {type(recode).__name__}"
        )
    words: dict[str, str] = {}
    for code, word in recode.items():
        if not isinstance(word, str) or word not in WORDS:
            raise InputError(
                f"recode={{{code!r}: {word!r}}}: a code means {', '.join(map(repr, WORDS))}"
            )
        for text in texts_of(code, "recode"):
            if words.setdefault(text, word) != word:
                raise InputError(f"recode: {text!r} has two meanings, {words[text]!r} and {word!r}")
    return words
