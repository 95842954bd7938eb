"""Item columns of a wide file that are perhaps none: a question to the user, never a decision."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from irt_dask.store.categories import MOST

#: Words, whole ones without accents, that a column has in its name where it tells something else
#: than a response: English ones, then German, French, Spanish, Italian ones, those of PISA, TIMSS
#: and PIRLS, Portuguese, Dutch ones.
WORDS = frozenset([
    "address", "age", "attempt", "birthdate", "birthday", "birthyear", "booklet", "city", "class",
    "classroom", "cohort", "comment", "comments", "consent", "country", "date", "district", "dob",
    "duration", "education", "email", "ethnicity", "failed", "female", "form", "gender", "girl",
    "grade", "group", "household", "immigrant", "income", "language", "male", "migrant", "minutes",
    "month", "nationality", "pass", "passed", "percent", "percentage", "percentile", "rank",
    "boy", "unnamed",
    "region", "repeater", "rowid", "school",
    "schoolid", "score", "seconds", "ses", "sex", "stratum", "sum", "teacher", "time",
    "timestamp", "total", "treatment", "urban", "version", "wave", "weight", "year", "zip",
    "alter", "bestanden", "dauer", "datum", "geschlecht", "gesamt", "gewicht", "gruppe", "heft",
    "jahr", "klasse", "land", "maennlich", "mannlich", "punkte", "schule", "sprache", "summe",
    "weiblich",
    "annee", "classe", "ecole", "fille", "groupe", "langue", "pays", "poids", "sexe",
    "clase", "edad", "escuela", "fecha", "grado", "grupo", "idioma", "mujer", "pais", "peso",
    "sexo",
    "eta", "gruppo", "lingua", "paese", "scuola", "sesso",
    "bookid", "cntryid", "cntschid", "idbook", "idclass", "idcntry", "idgrade", "idpop",
    "idschool", "idteach", "itlang", "itsex", "jkrep", "jkzone",
    "ano", "escola", "idade", "turma",
    "geslacht", "groep", "jaar", "klas", "leeftijd", "taal",
])  # fmt: skip
#: Words of columns that are perhaps the weights of persons, and endings as in W_FSTUWT, TOTWGT.
_WEIGHTS = frozenset(["gewicht", "gewichte", "peso", "poids", "weights"])
_OF_WEIGHTS = ("wgt", "wt", "weight")
#: Columns that share a word, such as the items of "grade4_q1" to "grade4_q40", say nothing by it.
_SHARED = 3
#: Fewer equal responses than these are no sign of anything.
ENOUGH = 100
#: Names with a number make a series if at least so many, and this share of all, differ in it alone.
_SERIES, _MOST = 5, 0.8
#: What surrounds the last number of a name, which is read from its end: no name takes long then.
_AROUND = re.compile(r"([^0-9]*)[0-9]+(.*)", re.DOTALL)
#: Of a column with more different values than these that are no responses.
_DIFFERENT = MOST
NONE_IS_ITEM = (
    "no column seems to be an item; if this is a table of persons, give it beside a file of "
    "responses, by persons="
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def words_of(name: str) -> set[str]:
    """Return the words of a name: ``Test_date`` and ``testDate`` have "test" and "date"."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return {word.casefold() for word in _WORD.findall(plain)}


def by_name(names: Sequence[str]) -> dict[str, str]:
    """Return the columns whose names are not those of items, by a word or by what others have."""
    found = _unlike_others(names) | _by_word(names)
    return {name: found[name] for name in names if name in found}


def by_values(unknown: Mapping[str, int]) -> dict[str, str]:
    """Return the columns with many different values that are no responses, unless most are so.

    ``unknown`` says how many there are by column; of answers to a key that nobody has given, or of
    shares of attempts, all columns have them.
    """
    found = {name: n for name, n in unknown.items() if n > _DIFFERENT}
    if 2 * len(found) > len(unknown):
        return {}
    return {name: f"at least {n} different values" for name, n in found.items()}


def perhaps_weight(name: str) -> bool:
    """Tell whether a column is called as weights of persons are; no replicate weight, ``w12``."""
    if name.casefold().rstrip("0123456789") != name.casefold():
        return False
    words = words_of(name)
    return name.casefold() == "w" or bool(
        words & _WEIGHTS or any(word.endswith(_OF_WEIGHTS) for word in words)
    )


def _unlike_others(names: Sequence[str]) -> dict[str, str]:
    """Return the few columns that are no part of a series, such as q1 to q40, where most are."""
    found = {name: _AROUND.fullmatch(name[::-1]) for name in names}
    stem = {name: match and match.groups() for name, match in found.items()}
    of = Counter(s for s in stem.values() if s is not None)
    usual, n = max(of.items(), key=lambda one: one[1], default=(None, 0))
    if n < max(_SERIES, _MOST * len(names)):
        return {}
    one = next(name for name in names if stem[name] == usual)
    return {
        name: f"{n} others are called as {one!r}"
        for name, s in stem.items()
        if s is None or of[s] <= _SHARED
    }


def _by_word(names: Sequence[str]) -> dict[str, str]:
    """Return the columns with a word of ``WORDS`` in their names, which few of them share."""
    of = {name: words_of(name) & WORDS for name in names}
    n = Counter(word for words in of.values() for word in words)
    most = max(_SHARED, len(names) // 10)
    few = {name: sorted(w for w in words if n[w] <= most) for name, words in of.items()}
    return {name: f"the name says {words[0]!r}" for name, words in few.items() if words}


@dataclass
class Seen:
    """What the responses to each item of a wide file are."""

    observed: NDArray[np.int64]  # how many
    lowest: NDArray[np.uint8]  # 255 without any
    highest: NDArray[np.int8]  # -1 without any

    @classmethod
    def nothing(cls, n_items: int) -> Self:
        """Begin, before any row."""
        return cls.of(np.zeros((0, n_items), dtype=np.int8))

    @classmethod
    def of(cls, codes: NDArray[np.int8]) -> Self:
        """Look at rows."""
        return cls(
            (codes >= 0).sum(axis=0, dtype=np.int64),
            codes.view(np.uint8).min(axis=0, initial=255),  # -1 is 255
            codes.max(axis=0, initial=-1),
        )

    def add(self, other: Seen) -> None:
        """Look at more rows."""
        self.observed += other.observed
        np.minimum(self.lowest, other.lowest, out=self.lowest)
        np.maximum(self.highest, other.highest, out=self.highest)

    def constant(self, names: Sequence[str]) -> dict[str, str]:
        """Return the items to which everybody has the same response, if these are enough."""
        same = (self.lowest == self.highest) & (self.observed >= ENOUGH)
        return {
            names[j]: f"all {self.observed[j]:,} responses are {self.lowest[j]}"
            for j in np.flatnonzero(same).tolist()
        }


def question(found: dict[str, str], confirmed: Collection[str], most: int) -> str:
    """Return what to ask about columns that are perhaps no items; "" if there are none."""
    asked = {name: why for name, why in found.items() if name not in confirmed}
    if not asked:
        return ""
    told = [f"{name!r} ({why})" for name, why in list(asked.items())[:most]]
    more = f" and {len(asked) - most} more" if len(asked) > most else ""
    return (
        f"{len(asked)} column(s) are taken for items and perhaps are none: "
        f"{', '.join(told)}{more}; "
        f"leave out what is no item: exclude={list(asked)[:most]!r}; what is named one by one "
        "in columns={'items': ...} is not asked about"
    )
