"""From strings to codes: responses, and ids numbered by first appearance."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from irt_dask.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

RIGHT_WRONG = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}
NOT_OBSERVED = ("", "NA", "NaN", "nan", "-1", ".")
MISSING = -1
UNKNOWN = -2


def code_table(missing: Sequence[str | int | float] | str | int | float) -> dict[str, int]:
    """Return the response code of every accepted string, the caller's missing codes included."""
    codes = [missing] if isinstance(missing, (str, int, float)) else list(missing)
    table = dict(RIGHT_WRONG) | dict.fromkeys(NOT_OBSERVED, MISSING)
    for code in codes:
        if isinstance(code, bool) or not isinstance(code, (str, Real)):
            raise InputError(f"missing={missing!r}: {code!r} must be a string or a number")
        text = str(code).strip()
        if text in RIGHT_WRONG:
            raise InputError(
                f"missing={missing!r}: {text!r} is a response (0 wrong, 1 right) and cannot mean "
                "missing; recode the file"
            )
        table[text] = MISSING
    return table


def distinct(strings: pa.Array) -> tuple[np.ndarray, list[str]]:
    """Return per row the index into a list of strings, stripped, in order of first appearance.

    Strings that differ by spaces at the ends only are there more than once.
    """
    encoded = strings.dictionary_encode()
    return encoded.indices.to_numpy(), [s.strip() for s in encoded.dictionary.to_pylist()]


def response_codes(strings: pa.Array, table: dict[str, int]) -> np.ndarray:
    """Return the int8 code of each string, ``UNKNOWN`` where the table has none."""
    index, values = distinct(strings)
    lookup = np.array([table.get(v, UNKNOWN) for v in values], dtype=np.int8)
    return lookup[index]


def unknown_value(value: str, column: str) -> str:
    """Return the message about a value that is neither a response nor missing."""
    return (
        f"column {column!r} has the value {value!r}; a response is 0 (wrong) or 1 (right); "
        f"if the value means not observed, say missing=[{value.strip()!r}]"
    )


class Numbering:
    """Ids numbered in order of first appearance."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.number)

    def rows(self, strings: pa.Array) -> tuple[np.ndarray, int | None]:
        """Return the number of each row's id, and the first row whose id is empty, if any."""
        index, ids = distinct(strings)
        if "" in ids:
            empty = np.array([not s for s in ids])
            return index, int(np.argmax(empty[index]))
        number = self.number
        lookup = np.array([number.setdefault(s, len(number)) for s in ids], dtype=np.int64)
        return lookup[index], None
