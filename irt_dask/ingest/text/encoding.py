"""Text that is not UTF-8: what its first bytes say, copies in UTF-8, and what a stray byte may be.

Encodings of one byte a character cannot be told apart for sure, and a wrong guess changes ids
without a word: they are never guessed.  What a byte order mark says is no guess.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from irt_dask.ingest.text.bundles import Copy
from irt_dask.ingest.text.files import located, opened, reading
from irt_dask.store.places import Location

BOM = codecs.BOM_UTF8
_UTF8 = ("utf-8", "utf-8-sig")
#: Byte order marks, and the encodings that they go with; the longer ones first.
_MARKS = {
    codecs.BOM_UTF32_LE: ("utf-32", "utf-32-le"),
    codecs.BOM_UTF32_BE: ("utf-32", "utf-32-be"),
    BOM: _UTF8,
    codecs.BOM_UTF16_LE: ("utf-16", "utf-16-le"),
    codecs.BOM_UTF16_BE: ("utf-16", "utf-16-be"),
}
#: What spreadsheets of the world write besides UTF-8: tried on a word that is not UTF-8.
_USUAL = ("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "mac-roman")
_OF_TWO_BYTES = ("gb18030", "cp932", "cp949", "big5")
#: Encodings with control characters where those of Windows have quotes and dashes.
_OF_WINDOWS = {
    "iso8859-1": "cp1252", "iso8859-15": "cp1252", "iso8859-2": "cp1250", "iso8859-5": "cp1251",
    "iso8859-7": "cp1253", "iso8859-9": "cp1254",
}  # fmt: skip
_CONTROL = re.compile("[\x80-\x9f]")
_SHOWN = 4
_BLOCK = 1 << 20


class InUtf8(NamedTuple):
    """Where text is in UTF-8, and what there is to say about its encoding."""

    plain: Path | Copy
    note: str | None = None
    doubt: str | None = None  # why the encoding that was given is perhaps not the right one


def in_utf8(path: Location, plain: Path | Copy, scratch: Path, given: str | None) -> InUtf8:
    """Return text in UTF-8: ``plain``, the bytes of ``path``, itself or a copy in ``scratch``.

    ``given`` is its encoding; None takes what a byte order mark says, else UTF-8, which is checked
    when lines are read.
    """
    with reading(path), opened(plain) as file:
        start = file.read(4)
    marked = next((names for mark, names in _MARKS.items() if start.startswith(mark)), None)
    if given is not None and marked is not None and given not in marked:
        raise located(
            path,
            f"begins with the byte order mark of {marked[0]}, and encoding={given!r} was given; "
            f"leave encoding= out",
        )
    if given in ("utf-16", "utf-32") and marked is None:
        raise located(
            path,
            f"has no byte order mark, which {given} needs; say encoding='{given}-le' (Windows) or "
            f"'{given}-be'",
        )
    name = given or (marked or _UTF8)[0]
    if name in _UTF8:
        return InUtf8(plain)
    translation = _Translation(path, plain, name)
    copy = Copy.of(translation.pieces(), scratch)
    if isinstance(plain, Copy):
        plain.path.unlink()
    if given is None:
        return InUtf8(copy, f"read as {name}, which its byte order mark says")
    if translation.also_utf8:
        doubt = (
            f"read as {name}, and it is sound UTF-8 as well, which text in {name} seldom is; if "
            f"names look wrong, leave encoding= out"
        )
        return InUtf8(copy, doubt=doubt)
    return InUtf8(copy)


class _Translation:
    """The bytes of a file of text from its encoding to UTF-8, a block at a time."""

    def __init__(self, path: Location, plain: Path | Copy, name: str) -> None:
        self._path, self._plain, self._name = path, plain, name
        self._decoder = codecs.getincrementaldecoder(name)()
        self._as_utf8 = codecs.getincrementaldecoder("utf-8")()
        self._sound, self._ascii = True, True

    @property
    def also_utf8(self) -> bool:
        """Whether the bytes, not all of them ASCII, were sound UTF-8 to begin with."""
        return self._sound and not self._ascii

    def pieces(self) -> Iterator[bytes]:
        """Yield the text in UTF-8; InputError at the first byte that the encoding does not have."""
        line = 1
        with reading(self._path), opened(self._plain) as file:
            block = b"more"
            while block:
                block = file.read(_BLOCK)
                state = self._decoder.getstate()
                try:
                    text = self._decoder.decode(block, final=not block)
                    piece = text.encode()  # halves of surrogate pairs are refused here
                except UnicodeDecodeError as error:
                    lenient = codecs.getincrementaldecoder(self._name)("replace")
                    lenient.setstate(state)
                    before = lenient.decode(block, final=not block).partition("\ufffd")[0]
                    raise located(
                        self._path,
                        f"the byte 0x{error.object[error.start]:02x} is not {self._name}; give the "
                        f"encoding that the file was written in, or save it as UTF-8",
                        line + before.count("\n"),
                    ) from None
                except UnicodeEncodeError as error:
                    raise located(
                        self._path,
                        f"half of a surrogate pair is no character ({self._name}); save the file "
                        f"as UTF-8",
                        line + text.count("\n", 0, error.start),
                    ) from None
                if self._name in _OF_WINDOWS:
                    self._refuse_control(text, line)
                self._look(block)
                line += text.count("\n")
                yield piece

    def _refuse_control(self, text: str, line: int) -> None:
        """Refuse control characters, which nobody sees and no text has."""
        found = _CONTROL.search(text)
        if found is not None:
            raise located(
                self._path,
                f"the byte 0x{ord(found[0]):02x} is a control character in {self._name}, and a "
                f"quote, a dash or the like in {_OF_WINDOWS[self._name]}; say "
                f"encoding={_OF_WINDOWS[self._name]!r}",
                line + text.count("\n", 0, found.start()),
            )

    def _look(self, block: bytes) -> None:
        """Keep in mind whether the bytes could be UTF-8."""
        self._ascii = self._ascii and block.isascii()
        if self._sound and not self._ascii:
            try:
                self._as_utf8.decode(block, final=not block)
            except UnicodeDecodeError:
                self._sound = False


# --- what a byte that is not UTF-8 may be ---------------------------------------------------------

_WORD_END = re.compile(rb"[\0-\x20\",;]")


def not_utf8(line: bytes, at: int) -> str:
    """Return the message about byte ``at`` of a line, with the word as usual encodings read it."""
    stray = f"the byte 0x{line[at]:02x} is not UTF-8"
    first = max((m.end() for m in _WORD_END.finditer(line, 0, at)), default=0)
    end = _WORD_END.search(line, at)
    word = line[max(first, at - 20) : min(end.start() if end else len(line), at + 20)]
    read: dict[str, list[str]] = {}
    for name in _USUAL[:3] + (_OF_TWO_BYTES if _PAIR.search(word) else ()) + _USUAL[3:]:
        try:
            text = word.decode(name)
        except UnicodeDecodeError:
            continue
        if name == "cp1252" or all(map(_in_words, text)):
            read.setdefault(text, []).append(name)
    if not read:
        return (
            f"{stray}; say in which encoding it is, such as encoding='cp1252', or save it as UTF-8"
        )
    shown = "; ".join(f"{text!r} in {', '.join(names)}" for text, names in [*read.items()][:_SHOWN])
    some = next(iter(read.values()))[0]
    return (
        f"{stray}; the word there is {shown}: say which is right, as in encoding={some!r} (or "
        f"another that Python knows), or save the file as UTF-8"
    )


_PAIR = re.compile(rb"[\x80-\xff]{2}")
_SIGNS = ("Pd", "Ps", "Pi", "Pe", "Pf", "Po", "Sc")  # categories of Unicode: quotes, dashes, €


def _in_words(character: str) -> bool:
    """Tell whether a character is usual in words, as box drawing and control characters are not."""
    usual = character.isascii() or character.isalnum() or character in "°\xa0"
    return usual or unicodedata.category(character) in _SIGNS


def with_nuls(line: bytes) -> str:
    """Return the message about NUL bytes in a line of text."""
    for name, letters in (("utf-16-le", line[0::2]), ("utf-16-be", line[1::2])):
        others = line[1::2] if name == "utf-16-le" else line[0::2]
        if len(line) > 1 and not any(others.rstrip(b"\n")) and all(letters.rstrip(b"\n")):
            return f"there are NUL bytes, as in UTF-16: say encoding={name!r}"
    if line.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        return (
            "this is no text but a workbook or an archive, whatever its name says; save the sheet "
            "of the responses as 'CSV UTF-8' in the program that made it"
        )
    return "there is a NUL byte; save the file as UTF-8 text"
