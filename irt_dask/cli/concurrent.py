"""Options of the concurrent calibration in the shell, and what is printed of it."""

from __future__ import annotations

from typing import Any

import xarray as xr

from irt_dask.errors import InputError, first_of, repeated


def free(text: str) -> str | float | None:
    """The option --free."""
    if text == "test":
        return text
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--free {text!r}: give test, none, or a cut-off such as 0.12") from None


def sets(path: str | None) -> dict[str, str] | None:
    """The option --sets: sets by group, of a file."""
    if path is None:
        return None
    from irt_dask.banks.tables import read_table

    table = read_table(path, "table of sets")
    table.check_columns("group", "set")
    groups = table.words("group")
    if not groups or "" in groups:
        raise InputError(f"the table of sets {path} has a row without a group, or no row")
    if twice := repeated(groups):
        raise InputError(f"the table of sets {path} has the group {twice[0]!r} twice")
    return dict(zip(groups, table.words("set"), strict=True))


def freed(fit: xr.Dataset, as_json: bool) -> list[dict[str, Any]]:
    """Items that are freed in groups or sets of them, the largest RMSD first."""
    from irt_dask.report.fitted import freed_pairs

    names = ("item", "group", "set", "groups", "rmsd", "rmsd_expected", "md", "p_value")
    pairs = [{n: pair[n] for n in names if n in pair} for pair in freed_pairs(fit)]
    for pair in pairs:
        if "groups" in pair and not as_json:
            pair["groups"] = first_of(pair["groups"], 5)
    return sorted(pairs, key=lambda pair: -pair["rmsd"])
