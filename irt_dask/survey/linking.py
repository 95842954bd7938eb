"""The linking error of each row of a trend: which statistics it moves, and by how much."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TypeAlias

import numpy as np
import pandas as pd

from irt_dask.arrays import Bools, Floats
from irt_dask.errors import InputError, listed, repeated
from irt_dask.items.link_constants import OF_PERSONS
from irt_dask.survey.statistics import Statistic
from irt_dask.survey.tables import whole

#: A number; numbers by variable or by statistic; or a table with the column ``linking_error``.
LinkingError: TypeAlias = float | Mapping[str, float] | pd.DataFrame
_VALUE = "linking_error"
#: Column of a table, and what it says of rows whose values were drawn with the linking error.
LINKING, DRAWN = "linking", "drawn"
#: How scores name plausible values, and what they have of each domain.
_PLAUSIBLE, _OF_DOMAIN = re.compile(r"pv\d+(.*)", re.IGNORECASE), "person_ability_sd"


def with_links(
    variables: Mapping[str, Sequence[str]], columns: Sequence[str]
) -> tuple[frozenset[str], list[str]]:
    """Variables whose plausible values were drawn with the constants of a link, and the unknown.

    A table of scores says so by a column for each ability, whose name ends as those of its values
    do (``pv1_maths``).  Not known is it of several columns with names that scores do not give.
    """
    marks = {c.removeprefix(OF_PERSONS) for c in columns if c.startswith(OF_PERSONS)}
    if not marks:
        return frozenset(), []
    ends = {c.removeprefix(_OF_DOMAIN) for c in columns if c.startswith(_OF_DOMAIN)}
    found, unknown = set(), []
    for name, of in variables.items():
        own = [match[1] if (match := _PLAUSIBLE.fullmatch(c)) else None for c in of]
        if any(end in marks for end in own):
            found.add(name)
        elif len(of) > 1 and any(end not in ends for end in own):
            unknown.append(name)
    return frozenset(found), unknown


def texts(frame: pd.DataFrame, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Keys of rows as text: a file of another year may have labels of another type."""
    if not columns:  # of which pandas makes no rows
        return [()] * len(frame)
    return [tuple(str(whole(v)) for v in row)
            for row in frame[list(columns)].itertuples(index=False, name=None)]  # fmt: skip


def named(keys: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows for a message; keys end with ``row`` and statistic. Groups need no word for it."""
    return [", ".join((*k[:-2], *([] if k[-2] == "group" else k[-2:-1]), k[-1])) for k in keys]


def linking_errors(
    given: LinkingError, keys: pd.DataFrame, statistics: Sequence[Statistic], drawn: Bools
) -> Floats:
    """The linking error of each row of `keys`, (rows,).

    `keys` has the columns ``variable``, those of groups, ``row`` and ``statistic``; `statistics`
    are those of its rows. What is `drawn` has it in its values, and no other.
    """
    table = _as_table(given, keys)
    on = [c for c in keys if c in table]
    if strange := [c for c in table if c not in keys and c != _VALUE]:
        raise InputError(
            f"the table of linking errors has the column {strange[0]!r}; there can be {_VALUE!r} "
            f"and {listed(keys)}"
        )
    found = dict(zip(texts(table, on), _checked(table[_VALUE]), strict=True))
    if twice := repeated(map(", ".join, texts(table, on))):
        raise InputError(f"the table of linking errors has {twice[0]!r} twice")
    known = set(texts(keys, on))
    if nowhere := [", ".join(k) for k in found if k not in known]:
        raise InputError(
            f"linking_error= is given for {listed(nowhere)}, which the tables do not have in common"
        )
    out = np.zeros(len(keys))
    names, of_statistic, of_row = named(texts(keys, list(keys))), "statistic" in on, "row" in on
    for i, (key, name, s) in enumerate(zip(texts(keys, on), names, statistics, strict=True)):
        if drawn[i]:
            if value := found.get(key):
                raise twice_asked(f"{_VALUE}={value!r} of {name!r}")
            continue
        gap = keys["row"].iloc[i] == "gap"
        out[i] = _of_row(found.get(key), s, name, gap, of_statistic, of_row)
    return out


def twice_asked(said: str) -> InputError:
    """The complaint about a linking error of rows that have it already."""
    return InputError(
        f"{said}: plausible values of one of the tables were drawn with the linking error (its "
        f"column {LINKING!r}), and it would count twice: give 0.0 there"
    )


def _as_table(given: LinkingError, keys: pd.DataFrame) -> pd.DataFrame:
    """Linking errors by the columns on which they depend."""
    if isinstance(given, pd.DataFrame):
        if _VALUE not in given:
            raise InputError(f"the table of linking errors has no column {_VALUE!r}")
        return given
    if not isinstance(given, Mapping):
        return pd.DataFrame({_VALUE: [given]})
    names: list[str] = list(given)
    alone = keys[keys["statistic"] != "correlation"]  # pairs of variables are on no scale
    fitting = [c for c, known in (("variable", alone), ("statistic", keys))
               if set(names) <= set(known[c])]  # fmt: skip
    if len(fitting) != 1 or not names:
        raise InputError(
            f"linking_error= is given for {listed(names)}: give it by variable (there are "
            f"{listed(dict.fromkeys(alone['variable']))}) or by statistic (there are "
            f"{listed(dict.fromkeys(keys['statistic']))}), or by both in a table"
        )
    return pd.DataFrame({fitting[0]: names, _VALUE: list(given.values())})


def _checked(values: pd.Series) -> list[float]:
    out = []
    for value in values:
        if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < np.inf:
            raise InputError(
                f"linking_error={value!r} is not a number of at least 0 (0.0: there is none, or "
                "the values hold it)"
            )
        out.append(float(value))
    return out


def _of_row(
    value: float | None, s: Statistic, name: str, gap: bool, of_statistic: bool, of_row: bool
) -> float:  # fmt: skip
    """The linking error of one row; `of_statistic`, `of_row`: the value is not just of the scale.

    What is uncertain is a shift of the later scale. Means and percentiles go with it; their gaps,
    SDs, correlations and sums of weights do not. A share does by the density at its score, which no
    table knows.
    """
    if s.kind in ("weight", "correlation"):
        if value and of_statistic:
            raise InputError(
                f"linking_error={value!r} of {name!r}: {s.name!r} does not depend on the scale"
            )
        return 0.0
    own = of_statistic and (of_row or not gap)
    if value is not None and own:
        return value
    if s.kind == "sd" and not (value and of_statistic):
        return 0.0
    if s.kind in ("mean", "percentile") and gap:
        return 0.0
    if value is None:
        raise InputError(
            f"linking_error= says nothing of {name!r}: add it (0.0: there is none, or the values "
            "hold it)"
        )
    if s.kind in ("mean", "percentile") or value == 0:
        return value
    if gap:
        raise InputError(
            f"linking_error={value!r} of {name!r}: that of a gap in {s.name!r} is not that of the "
            "groups; give a table with the columns row, statistic and linking_error"
        )
    raise InputError(
        f"linking_error={value!r} of {name!r}: how far a shift of the scale moves a share depends "
        f"on the group. Give it by statistic: half of what lies between the shares "
        f"'at least {s.at - value:g}' and 'at least {s.at + value:g}'"
    )
