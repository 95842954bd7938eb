"""How a file of text is written, where its name does not say it: the options of the caller."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, replace
from typing import Any

from irt_dask.errors import InputError

_OF_DOMAINS = ("idna", "punycode")  # encodings of names, not of files
_TAB = {"tab": "\t", "\\t": "\t"}  # which is hard to type


@dataclass(frozen=True)
class Dialect:
    """Delimiter, decimal sign and encoding as given; None is found out from the file."""

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None  # its canonical name
    #: Given for this file, or for another one that it comes with (its delimiter may then differ).
    own: bool = True
    #: Rows may go over several lines: put each on one first.
    several_lines: bool = False

    @classmethod
    def checked(cls, delimiter: Any = None, decimal: Any = None, encoding: Any = None) -> Dialect:
        """Check what a caller said."""
        if delimiter is not None:
            delimiter = _delimiter(delimiter)
        if decimal not in (None, ".", ","):
            raise InputError(f"decimal={decimal!r} is unknown; it is '.' or ','")
        if encoding is not None:
            encoding = _encoding(encoding)
        return cls(delimiter, decimal, encoding)

    def of_others(self) -> Dialect:
        """The same for a file that comes with the one that it was given for."""
        return replace(self, own=False)

    def check_kinds(self, kinds: set[str | None]) -> None:
        """Refuse what says nothing about files with these endings."""
        text = kinds - {".parquet", None}
        tables = text - {".jsonl", ".ndjson"}
        for name, files, what in (
            ("delimiter", tables, "delimited text (.csv, .tsv, .tab)"),
            ("decimal", tables, "delimited text (.csv, .tsv, .tab)"),
            ("encoding", text, "text"),
        ):
            value = getattr(self, name)
            if value is not None and not files:
                raise InputError(f"{name}={value!r}: no file here is {what}; leave {name}= out")


UNSAID = Dialect()


def _delimiter(given: Any) -> str:
    found = _TAB.get(given, given) if isinstance(given, str) else given
    if found == "\t":
        return "\t"
    if not isinstance(found, str) or len(found) != 1 or not found.isascii():
        raise InputError(f"delimiter={given!r}: must be one character, such as ';', or 'tab'")
    if found.isalnum() or found == '"' or not found.isprintable() or found.isspace():
        raise InputError(
            f"delimiter={given!r}: letters, digits, spaces and quotes stand within values; it is a "
            f"sign such as ',', ';' or '|', or 'tab'"
        )
    return found


def _encoding(given: Any) -> str:
    try:
        "a".encode(given)
        name = codecs.lookup(given).name
        if name in _OF_DOMAINS:
            raise LookupError
        return name
    except (LookupError, TypeError, ValueError):
        raise InputError(
            f"encoding={given!r} is unknown; it is a name that Python knows, such as 'utf-8', "
            f"'utf-16', 'cp1252' (Western Europe) or 'cp1250' (Central Europe)"
        ) from None
