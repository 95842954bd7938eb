"""Gaps: differences between the levels of a column, from the same weights and plausible values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from irt_dask.errors import InputError, listed, repeated
from irt_dask.survey.rows import Found, Key, order, sorted_groups

#: Columns, or levels that others are compared with by column.
Gaps = str | Sequence[str] | Mapping[str, Any]


def references(gaps: Gaps, by: Sequence[str]) -> dict[str, Any]:
    """The level that others are compared with, by column; None: the first one."""
    if isinstance(gaps, str):
        gaps = [gaps]
    if not isinstance(gaps, Mapping):
        if twice := repeated(list(gaps)):
            raise InputError(f"gaps= has {twice[0]!r} twice")
        gaps = dict.fromkeys(gaps)
    for name in gaps:
        if name not in by:
            raise InputError(f"gaps= has {name!r}, which is not in by={list(by)}: add it there")
    return dict(gaps)


def reference_level(column: str, wanted: Any, labels: Iterable[Any]) -> Any:
    """The level that is meant: the first in sorted order, or the one that is asked for."""
    levels = sorted(set(labels), key=order)
    if len(levels) == 1:
        raise InputError(f"gaps={column!r}: {levels[0]!r} is the only level, there is no gap")
    if wanted is None:
        return levels[0]
    # the shell and files of another type know levels as text
    if alike := [v for v in levels if v == wanted] or [v for v in levels if str(v) == str(wanted)]:
        return alike[0]
    raise InputError(
        f"gaps= compares with {wanted!r} of {column!r}; there are {listed(map(str, levels))}"
    )


def differences(
    groups: Mapping[Key, Found], at: int, reference: Any
) -> tuple[dict[Key, Found], list[Key]]:
    """Each level less the reference within the other columns, and cells without a gap.

    `at` is the place of the column in keys. Levels have no person in common, so that inner products
    of weights' deviations add.
    """
    cells: dict[Key, list[Key]] = {}
    for key in sorted_groups(groups):
        cells.setdefault((*key[:at], *key[at + 1 :]), []).append(key)
    out, alone = {}, []
    for cell, keys in cells.items():
        base = groups.get((*cell[:at], reference, *cell[at:]))
        if base is None or len(keys) == 1:
            alone.append(cell)
            continue
        for key in keys:
            if key[at] != reference:
                a = groups[key]
                label = f"{key[at]} minus {reference}"
                values = {name: t - base.values[name] for name, t in a.values.items()}
                gap = Found(a.n + base.n, a.gram + base.gram, values)
                out[(*cell[:at], label, *cell[at:])] = gap
    return out, alone
