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
NOT_OBSERVED = ("", "NA", "NaN", "nan", "-1", ".")
WORDS = {"right": 1, "wrong": 0, "missing": -1}
MISSING = -1
UNKNOWN = -2
_NONE = -3  # an index that no value has


@dataclass(frozen=True)
class Codes:
    """The rules that turn a value into 1 right, 0 wrong, -1 not observed."""

    table: dict[str, int]
    key: dict[str, str] | None = None  # the right option of each item, for files of raw answers

    @classmethod
    def checked(cls, missing: Any = (), recode: Any = None, *, keyed: bool = False) -> Codes:
        """Check the options of an ingest; without a key 0 and 1 mean wrong and right."""
        table: dict[str, int] = dict.fromkeys(NOT_OBSERVED, MISSING)
        if not keyed:
            table |= RIGHT_WRONG
        codes = _missing_codes(missing)
        table |= dict.fromkeys(codes, MISSING)
        for text, word in _recoded(recode).items():
            if text in codes:
                raise InputError(f"{text!r} is in missing= and in recode=; leave it out of one")
            table[text] = WORDS[word]
        return cls(table)

    def with_key(self, key: dict[str, str]) -> Codes:
        """Return the codes of a file of raw answers, whose right options are ``key``."""
        for item, option in key.items():
            if option in self.table:
                meaning = {1: "right", 0: "wrong", -1: "not observed"}[self.table[option]]
                raise InputError(
                    f"key: the right option of the item {item!r} is {option!r}, which also means "
                    f"{meaning}; give the other meaning another code in the file"
                )
        return Codes(self.table, key)

    def check_items(self, item_ids: Iterable[str]) -> None:
        """Refuse items whose right option the key does not say."""
        if self.key is None:
            return
        lacking = [item for item in item_ids if item not in self.key]
        if lacking:
            raise InputError(
                f"key: {len(lacking)} item(s) of the data have no right option: "
                f"{listed(lacking, 10)}; add them to the key"
            )

    def decode(self, values: Distinct, items: Sequence[str], item: np.ndarray) -> np.ndarray:
        """Return the int8 code of each value, ``UNKNOWN`` where it has none.

        ``item`` is the place in ``items`` of each value, or broadcasts to that.
        """
        default = UNKNOWN if self.key is None else 0
        lookup = np.array([self.table.get(v, default) for v in values.stripped], dtype=np.int8)
        index = values.index
        if self.key is None:
            return np.take(lookup, index)
        first: dict[str, int] = {}
        same = np.array([first.setdefault(v, k) for k, v in enumerate(values.stripped)], np.int64)
        index = np.take(same, index)
        place = [first.get(self.key[i], _NONE) if i in self.key else _NONE for i in items]
        right = np.take(np.array(place or [_NONE], dtype=np.int64), item)
        codes = np.take(lookup, index)
        codes[index == right] = 1
        return codes

    @cached_property
    def _known(self) -> set[str]:
        return {*self.table, *(self.key or {}).values()}

    def spelled(self, number: float) -> str:
        """Return how text would say a number: 9.0 is 9, unless the caller wrote 9.0."""
        texts = spellings(number)
        return next((text for text in texts if text in self._known), texts[0])

    def unknown(self, value: str, column: str) -> str:
        """Return the message about a value that is neither a response nor missing."""
        code = value.strip()
        return (
            f"column {column!r} has the value {shorten(value)}; a response is 0 (wrong) or 1 "
            f"(right); if the value means not observed, say missing=[{shorten(code)}], else "
            f"recode={{{shorten(code)}: 'right'}} or 'wrong'"
        )


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


def number_of(text: str) -> float:
    """Return the number, NaN where the text is none."""
    try:
        return float(text) if "_" not in text else math.nan
    except ValueError:
        return math.nan


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
