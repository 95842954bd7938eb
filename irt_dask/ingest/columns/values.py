"""What a value means: responses, weights and numbers out of strings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from irt_dask.errors import InputError, listed
from irt_dask.ingest.columns.limits import Limits
from irt_dask.ingest.columns.meanings import (
    MISSING,
    UNKNOWN,
    meaning_of,
    missing_codes,
    recoded,
    recoded_by_item,
    refuse_responses,
    table_of,
)
from irt_dask.ingest.columns.numbers import number_of, shorten, spellings, truths
from irt_dask.ingest.columns.patterns import ItemFilter
from irt_dask.ingest.columns.reasons import OTHER_CASE, dropped, reason, unlike
from irt_dask.ingest.columns.recodes import ItemRecodes
from irt_dask.ingest.columns.unlisted import Unlisted, graded
from irt_dask.ingest.columns.unlisted import add as add_unlisted
from irt_dask.store.categories import BINARY, MOST, NONRESPONSE

_NONE = -3  # an index that no value has
#: A share of attempts is rounded to three digits or more.
_OF_SHARE = 0.01
#: What a message says to do by ``recode``, once or in two ways.
_REMEDY = re.compile(r"(?:say )?recode=\{[^}]*\}(?: or recode=\{[^}]*\})*")
#: The score of every answer of an item that has one; other answers have none.
Key = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Codes:
    """The rules that turn a value into the code of a category, or -1, not observed."""

    table: dict[str, int]
    recodes: dict[str, int] = field(default_factory=dict)  # what the caller said of them
    missing: Sequence[str] = ()  # and said to mean not observed
    key: Key | None = None  # for files of raw answers
    decimal: str | None = None  # the sign in numbers; None is a dot
    limits: Limits = field(default_factory=Limits)
    reverse: ItemFilter = field(default_factory=ItemFilter)  # items whose codes are counted back
    trials: int = 0  # responses are shares of so many attempts, if any
    item_recodes: ItemRecodes = field(default_factory=ItemRecodes)  # of answers to some items
    recode_file: str | None = None  # where these stand, if in a file

    @classmethod
    def checked(
        cls, missing: Any = (), recode: Any = None, decimal: str | None = None, *,
        keyed: bool = False, limits: Limits | None = None,
    ) -> Codes:  # fmt: skip
        """Check the options of an ingest; without a key numbers are codes."""
        table = table_of(missing, recode, decimal, keyed=keyed)
        return cls(
            table, recoded(recode), missing_codes(missing), decimal=decimal,
            limits=limits or Limits(),
            item_recodes=ItemRecodes.of(recoded_by_item(recode, decimal)),
        )  # fmt: skip

    def with_key(self, key: Key) -> Codes:
        """Return the codes of a file of raw answers, whose scores are ``key``."""
        table = self.table
        for item, scores in key.items():
            for option in scores:
                code = self.code(option)
                if code == UNKNOWN:  # as some item's option it is an answer
                    table = {text: code for text, code in table.items() if text != option}
                elif code is not None:
                    meaning = "not observed" if code == MISSING else meaning_of(code)
                    raise InputError(
                        f"key: the right option of the item {item!r} is {option!r}, which also "
                        f"means {meaning}; give the other meaning another code in the file"
                    )
            if len({*map(self._answer, scores)}) < len(scores):
                raise InputError(f"key: the item {item!r} has the same number as two options")
        limits = self.limits.with_key({i: max(scores.values()) for i, scores in key.items()})
        return replace(self, table=table, key=key, limits=limits)

    def of_data(self, reverse: ItemFilter, limits: Limits) -> Codes:
        """Return the codes of a source: which items are counted back, and K with the store's.

        InputError where a recode or a score of the key is a code that no item, or not this one,
        has, or what is said to be missing is a response.
        """
        if self.key is None:
            refuse_responses(self.missing, limits.said_most)
        for text, code in self.recodes.items():
            if limits.most <= code < MOST:
                what = f"recode={{{text!r}: {code}}}: no item has the code {code}"
                raise InputError(f"{what}; say by categories= how many categories items have")
        for item, scores in (self.key or {}).items():
            for option, score in scores.items():
                if score >= limits.of(item):
                    raise InputError(
                        f"key: the answer {option!r} to the item {item!r} has the score {score}, "
                        f"and {limits.said(item)}"
                    )
        return replace(self, reverse=reverse, limits=limits)

    def check_items(self, item_ids: Iterable[str], columns: bool = False) -> None:
        """Refuse items whose right option the key does not say; ``columns`` can be left out."""
        if self.key is None:
            return
        data = [*item_ids]
        lacking = [item for item in data if item not in self.key]
        if len(lacking) == len(data) and lacking:
            raise InputError(f"key: {unlike(self.key, data, columns)}")
        if lacking:
            remedy = "add them to the key"
            if columns:
                remedy += f", or leave out columns that are no items: exclude={lacking[:10]!r}"
            raise InputError(
                f"key: {len(lacking)} item(s) of the data have no right option: "
                f"{listed(lacking, 10)}; {remedy}"
            )

    @property
    def by_item(self) -> bool:
        """Whether what a value means depends on the item."""
        own = bool(self.reverse) or bool(self.item_recodes)
        return self.key is not None or self.limits.by_item or own

    @property
    def nonresponse(self) -> bool:
        """Whether some values say why there is no response."""
        every = [self.recodes, *self.item_recodes.names.values()]
        return any(code >= MOST for of in every for code in of.values())

    @property
    def plain(self) -> bool:
        """Whether codes are as they stand in the file."""
        own = bool(self.reverse) or bool(self.item_recodes)
        return self.key is None and not self.recodes and not own

    def decode(self, values: Distinct, items: Sequence[str], item: np.ndarray) -> np.ndarray:
        """Return the int8 code of each value, ``UNKNOWN`` where its item has none for it.

        ``item`` is the place in ``items`` of each value, or broadcasts to that.
        """
        known = map(self.code, values.stripped)
        lookup = np.array([0 if code is None else code for code in known], dtype=np.int8)
        if not self.by_item:  # of few values instead of many rows
            lookup[(lookup >= self.limits.others) & (lookup < MOST)] = UNKNOWN
            return np.take(lookup, values.index)
        codes = np.take(lookup, values.index)
        if self.key is not None:
            self._score(codes, values, items, item)
        if self.item_recodes:
            self._recode(codes, values, items, item)
        k = np.array([self.limits.of(i) for i in items] or [BINARY], dtype=np.int8)
        k = np.broadcast_to(np.take(k, item), codes.shape)
        codes[(codes >= k) & (codes < MOST)] = UNKNOWN
        back = np.array([self.reverse.takes(i) for i in items] or [False])
        if back.any():
            mine = np.take(back, item) & (codes >= 0) & (codes < MOST)
            codes[mine] = k[mine] - 1 - codes[mine]
        if self.limits.collapsed and any(i in self.limits.collapsed for i in items):
            codes = self._collapsed(codes, items, item)
        return codes

    def unlisted(
        self, values: Distinct, items: Sequence[str], item: np.ndarray, codes: np.ndarray
    ) -> Unlisted:
        """Count answers that score 0 as a key of partial credit does not have them.

        ``codes`` are those of the values, as :meth:`decode` returned them.
        """
        found: Unlisted = {}
        if not any(i in self._graded for i in items):
            return found
        answer = np.array([self.code(text) is None for text in values.stripped], dtype=bool)
        mine = np.array([i in self._graded for i in items], dtype=bool)
        rows = np.flatnonzero((codes == 0) & np.take(answer, values.index) & np.take(mine, item))
        n = len(values.values)
        pairs = item[rows].astype(np.int64) * n + values.index[rows]
        for pair, count in zip(*np.unique(pairs, return_counts=True), strict=True):
            of, text = items[pair // n], values.stripped[pair % n]
            if all(self._answer(text) != option for option, _ in self._options[of]):
                add_unlisted(found, {of: {text: int(count)}})
        return found

    def _collapsed(self, codes: np.ndarray, items: Sequence[str], item: np.ndarray) -> np.ndarray:
        """Move codes down where the store has dropped categories; their own are UNKNOWN."""
        every = np.arange(MOST + len(NONRESPONSE), dtype=np.int8)
        table = np.tile(every, (len(items), 1))
        for j, i in enumerate(items):
            moved = self.limits.collapsed.get(i, ())
            table[j, : len(moved)] = [UNKNOWN if code is None else code for code in moved]
        return np.where(codes < 0, codes, table[item, codes])

    def _score(
        self, codes: np.ndarray, values: Distinct, items: Sequence[str], item: np.ndarray
    ) -> None:
        """Put the scores of answers in the place of their codes."""
        first: dict[str | float, int] = {}
        answers = map(self._answer, values.stripped)
        same = np.array([first.setdefault(v, k) for k, v in enumerate(answers)], np.int64)
        index = np.take(same, values.index)
        options = [self._options.get(i, ()) for i in items]
        for n in range(max(map(len, options), default=0)):  # the n-th option of all items
            nth = [o[n] if n < len(o) else (math.nan, 0) for o in options]
            place = np.array([first.get(answer, _NONE) for answer, _ in nth], dtype=np.int64)
            score = np.array([score for _, score in nth], dtype=np.int8)
            mine = index == np.take(place, item)
            codes[mine] = np.broadcast_to(np.take(score, item), codes.shape)[mine]

    def _recode(
        self, codes: np.ndarray, values: Distinct, items: Sequence[str], item: np.ndarray
    ) -> None:
        """Put what texts mean as answers to some items in the place of their codes."""
        n, place = len(values.values), dict[str, list[int]]()
        for k, text in enumerate(values.stripped):
            place.setdefault(text, []).append(k)
        meant = {
            j * n + k: code
            for j, i in enumerate(items)
            for text, code in self.item_recodes.meanings(i).items()
            for k in place.get(text, ())
        }
        if not meant:
            return
        pairs = np.array(sorted(meant))
        found = item.astype(np.int64) * n + values.index
        at = np.minimum(np.searchsorted(pairs, found), pairs.size - 1)
        mine = pairs[at] == found
        codes[mine] = np.array([meant[p] for p in pairs.tolist()], dtype=np.int8)[at[mine]]

    def _answer(self, text: str) -> str | float:
        """Return the number that is the answer, else the text: programs write 2 as 2.0."""
        number = number_of(text, self.decimal)
        return number if math.isfinite(number) else text

    def code(self, text: str) -> int | None:
        """Return what a value means whatever the item; None for an answer that a key scores."""
        exact = self.table.get(text)
        if self.trials and text not in self.recodes and exact != MISSING:
            return self._of_share(text, exact)
        if exact is not None or self.key is None:
            return UNKNOWN if exact is None else exact
        if self._in_another_case(text) is not None:
            return UNKNOWN
        return self._of_answers.get(self._answer(text))

    def code_of(self, text: str, item: str) -> int | None:
        """Return what a value means as an answer to an item."""
        own = self.item_recodes.meanings(item)
        return own[text] if text in own else self.code(text)

    def _in_another_case(self, text: str) -> str | None:
        """Return an option of the key from which an answer differs in case alone, d from D.

        As another answer it would be wrong, which few mean.
        """
        found = self._by_case.get(text.casefold())
        return None if found is None or text in self._known or text != self._answer(text) else found

    def _of_share(self, text: str, exact: int | None) -> int:
        """Return how many attempts a share right is; words mean none or all."""
        share = number_of(text, self.decimal)
        if math.isnan(share):
            return self.trials * exact if exact in (0, 1) else UNKNOWN
        k = round(share * self.trials) if 0.0 <= share <= 1.0 else UNKNOWN
        return k if abs(share * self.trials - k) <= _OF_SHARE else UNKNOWN

    @cached_property
    def _graded(self) -> frozenset[str]:
        return graded(self.key or {})

    @cached_property
    def _options(self) -> dict[str, list[tuple[str | float, int]]]:
        key = self.key or {}
        return {i: [(self._answer(o), s) for o, s in scores.items()] for i, scores in key.items()}

    @cached_property
    def _of_answers(self) -> dict[str | float, int]:
        return {self._answer(text): code for text, code in self.table.items()}

    @cached_property
    def _by_case(self) -> dict[str, str]:
        return {option.casefold(): option for option in sorted(self._answers)}

    @cached_property
    def _answers(self) -> set[str]:
        """Answers that the key names."""
        return {option for scores in (self.key or {}).values() for option in scores}

    @cached_property
    def _said(self) -> set[str]:
        """Texts whose meaning the caller said, of some item or all."""
        of_items = [text for of in self.item_recodes.names.values() for text in of]
        return {*self.recodes, *self.missing, *of_items, *self._answers}

    @cached_property
    def _known(self) -> set[str]:
        return {*self.table, *self._answers}

    def spelled(self, number: float | bool) -> str:
        """Return how text would say a number: 9.0 is 9, unless the caller wrote 9.0.

        Whether something is true is 1 or 0, unless the caller wrote that as a word.
        """
        if isinstance(number, bool):
            said = (text for text in truths(number) if text in self._said)
            return next(said, str(int(number)))
        texts = spellings(number)
        return next((text for text in texts if text in self._known), texts[0])

    def unknown(
        self, value: str, column: str, item: str, decimal: str | None = None,
        seen: Callable[[], Iterable[str]] = tuple,
    ) -> str:  # fmt: skip
        """Return the message about a value of an item that is neither a response nor missing.

        ``decimal`` is the sign in numbers of the file, where it can have another one than a dot;
        ``seen`` are answers to the item.
        """
        text = value.strip()
        code = self.code_of(text, item)
        if code is None:  # an answer whose score is no category any more
            code = dict(self._options.get(item, ())).get(self._answer(text), 0)
        if item in self.limits.collapsed and 0 <= code < self.limits.of(item):
            k = self.limits.of(item) - 1 - code if self.reverse.takes(item) else code
            why = dropped(text, item, k)
        elif code == UNKNOWN and (option := self._in_another_case(text)) is not None:
            if any(answer.strip() in self._answers for answer in seen()):  # a slip of some
                why = (
                    f"the key has {option!r}: if it is the same answer, write it so in the file, "
                    f"else recode={{{text!r}: 'wrong'}}"
                )
            else:
                why = f"the key has {option!r}: {OTHER_CASE}; change the key, not the data"
        else:
            why = reason(
                text, item, self.limits, code=code, keyed=self.key is not None,
                decimal=self.decimal, of_file=decimal,
                trials=self.trials,
            )  # fmt: skip
        if self.recode_file is not None:  # which takes no recode= beside it
            why = _REMEDY.sub(f"add a row to {self.recode_file}", why)
        return f"column {column!r} has the value {shorten(value)}; {why}"


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
