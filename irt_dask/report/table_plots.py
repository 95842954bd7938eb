"""Plots of published tables: groups with their intervals, and their percentiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from irt_dask.errors import InputError, listed
from irt_dask.report.common import COLOURS, GREY, INK, axes, legend, short
from irt_dask.report.posterior_plots import height_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Columns of a table that are not of groups.
_FIGURES = (
    "variable", "row", "statistic", "estimate", "se", "se_sampling", "se_imputation", "se_linking",
    "df", "fraction_missing", "lower", "upper", "n", "earlier", "later", "n_earlier", "n_later",
)  # fmt: skip
#: Groups up to which each is named.
MOST_NAMED = 60


def groups(
    table: pd.DataFrame, *, statistic: str = "mean", variable: str | None = None,
    row: str = "group", ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Draw a statistic of every group with its interval, from the largest down.

    Parameters
    ----------
    table
        Result of :func:`irt_dask.tabulate`, or of :func:`irt_dask.trend` (changes).
    statistic
        One that the table has, such as "mean", "sd" or "at least 550".
    variable
        One that the table has; needed where there are several.
    row : {"group", "gap"}
        Groups, or differences between groups, where the table has both.
    ax
        Axes to draw on; a new figure by default.

    Raises
    ------
    InputError
        Not a table of these functions; a statistic, variable or kind of row that it lacks.

    Notes
    -----
    Where intervals overlap groups may still differ: a gap has an interval of its own
    (``tabulate(gaps=)``).  A group whose error is not known is a hollow dot.

    Examples
    --------
    >>> import irt_dask as irt, numpy as np, pandas as pd
    >>> rng = np.random.default_rng(1)
    >>> persons = pd.DataFrame({"country": rng.choice(["A", "B", "C"], 300)})
    >>> values = {f"PV{m}": rng.normal(500, 100, 300) for m in range(1, 6)}
    >>> zones = {"zone": np.arange(300) // 20 + 1, "unit": np.arange(300) % 2}
    >>> jk2 = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=15)
    >>> table = irt.tabulate(persons.assign(**values, **zones), "PV*", by="country", replicates=jk2)
    >>> ax = irt.plot.groups(table)
    >>> ax.get_title()
    'mean of PV*, 3 groups with intervals'
    """
    chosen, names, variable = _chosen(table, [statistic], variable, row)
    order = np.argsort(-np.nan_to_num(chosen["estimate"].to_numpy(), nan=-np.inf), kind="stable")
    chosen, names = chosen.iloc[order], [names[k] for k in order]
    estimate = chosen["estimate"].to_numpy()
    at, n = np.arange(len(chosen)), len(chosen)
    ax = axes(ax, 7.0, height_of(n))
    few = n <= MOST_NAMED
    known = chosen["lower"].notna().to_numpy()
    if row == "gap" or "earlier" in chosen:
        ax.axvline(0.0, color=GREY, lw=0.9)
    ax.hlines(
        at[known], chosen["lower"][known], chosen["upper"][known], color=COLOURS[0],
        lw=1.8 if few else 0.8,
    )  # fmt: skip
    size = 16 if few else 4
    ax.scatter(estimate[known], at[known], s=size, color=INK, zorder=3)
    ax.scatter(estimate[~known], at[~known], s=size, facecolor="none", edgecolor=INK, zorder=3)
    _name(ax, names)
    what = {"gap": "gaps"}.get(row, "groups" if n != 1 else "group")
    change = "change of the " if "earlier" in chosen else ""
    ax.set(
        xlabel=f"{change}{short(statistic)} of {short(variable)}",
        title=f"{change}{short(statistic)} of {short(variable)}, {n:,} {what} with intervals",
    )
    return ax


def percentiles(
    table: pd.DataFrame, *, variable: str | None = None, ax: Axes | None = None
) -> Axes:  # fmt: skip
    """Draw the percentiles of every group as bands, with its mean and its interval.

    Parameters
    ----------
    table
        Result of :func:`irt_dask.tabulate` with two percentiles or more, as in
        ``statistics=("mean", "p5", "p25", "p75", "p95")``: bands from the outermost pair to the
        innermost one.
    variable
        One that the table has; needed where there are several.
    ax
        Axes to draw on; a new figure by default.

    Raises
    ------
    InputError
        Not a table of ``tabulate``; fewer than two percentiles; a variable that it lacks.

    Examples
    --------
    >>> import irt_dask as irt, numpy as np, pandas as pd
    >>> rng = np.random.default_rng(1)
    >>> persons = pd.DataFrame({"country": ["A", "B"] * 150, "score": rng.normal(size=300)})
    >>> statistics = ("mean", "p10", "p25", "p75", "p90")
    >>> table = irt.tabulate(persons, "score", by="country", statistics=statistics)
    >>> irt.plot.percentiles(table).get_title()
    'score: percentiles of 2 groups'
    """
    there = _of_table(table)["statistic"].astype(str).unique()
    found = {float(s[1:]): s for s in there if s.startswith("p") and _number(s[1:])}
    levels = sorted(found)
    if len(levels) < 2:
        raise InputError(
            "the table has fewer than two percentiles; make it with statistics=('mean', 'p5', "
            "'p25', 'p75', 'p95')"
        )
    wide, names, variable = _chosen(table, [found[levels[0]]], variable, "group")
    columns = [c for c in table if c not in _FIGURES]
    keys = list(map(tuple, wide[columns].astype(str).to_numpy()))
    of = {s: _by_group(table, variable, s, columns) for s in [*found.values(), "mean"]}
    middle = of["mean"] if of["mean"] else of[found[levels[len(levels) // 2]]]
    center = np.array([middle[k]["estimate"] if k in middle else np.nan for k in keys])
    order = np.argsort(-np.nan_to_num(center, nan=-np.inf), kind="stable")
    keys, names = [keys[k] for k in order], [names[k] for k in order]
    at = np.arange(len(keys))
    ax = axes(ax, 7.0, height_of(len(keys)))
    handles: list[Any] = []
    said: list[str] = []
    pairs = [(levels[k], levels[-1 - k]) for k in range(len(levels) // 2)]
    for k, (low, high) in enumerate(pairs):
        ends = [[of[found[p]][key]["estimate"] if key in of[found[p]] else np.nan for key in keys]
                for p in (low, high)]  # fmt: skip
        shade = 0.25 + 0.5 * (k + 1) / len(pairs)
        bars = ax.barh(
            at, np.subtract(ends[1], ends[0]), left=ends[0], height=0.62, color=COLOURS[5],
            alpha=shade, lw=0,
        )  # fmt: skip
        handles.append(bars)
        said.append(f"p{low:g} to p{high:g}")
    if of["mean"]:
        rows = [of["mean"].get(key) for key in keys]
        known = [k for k, r in enumerate(rows) if r is not None and np.isfinite(r["lower"])]
        mean = [np.nan if r is None else r["estimate"] for r in rows]
        handles.append(ax.scatter(mean, at, s=14, color=INK, zorder=3))
        said.append("mean")
        ax.hlines(
            known, [rows[k]["lower"] for k in known], [rows[k]["upper"] for k in known],  # type: ignore[index]
            color=INK, lw=1.6, zorder=3,
        )  # fmt: skip
    _name(ax, names)
    n = len(keys)
    said_of = f"{short(variable)}: percentiles of {n:,} group{'s' * (n != 1)}"
    ax.set(xlabel=short(variable), title=said_of)
    legend(ax, handles, said)
    return ax


# --- what both read -------------------------------------------------------------------------------


def _of_table(table: pd.DataFrame) -> pd.DataFrame:
    needed = ["variable", "statistic", "estimate", "lower", "upper"]
    if not isinstance(table, pd.DataFrame) or (lacking := [c for c in needed if c not in table]):
        what = listed(lacking) if isinstance(table, pd.DataFrame) else type(table).__name__
        raise InputError(f"table: give a result of tabulate or trend ({what} instead or lacking)")
    return table


def _chosen(
    table: pd.DataFrame, statistics: list[str], variable: str | None, row: str
) -> tuple[pd.DataFrame, list[str], str]:
    """Rows of one statistic and variable, names of their groups, and the variable."""
    if row not in ("group", "gap"):
        raise InputError(f"row={row!r} is not available; choose 'group' or 'gap'")
    rows = _of_table(table)
    if "row" in rows:
        rows = rows[rows["row"] == row]
    elif row == "gap":
        raise InputError("row='gap': the table has no gaps; make it with tabulate(gaps=)")
    rows = rows[rows["statistic"].isin(statistics)]
    if rows.empty:
        there = listed(table["statistic"].astype(str).unique())
        raise InputError(f"statistic={statistics[0]!r}: the table has {there}")
    variables = [str(v) for v in rows["variable"].unique()]
    if variable is None:
        if len(variables) > 1:
            raise InputError(f"variable: say which of {listed(variables)}")
        variable = variables[0]
    rows = rows[rows["variable"].astype(str) == variable]
    if rows.empty:
        raise InputError(f"variable={variable!r}: the table has {listed(variables)}")
    columns = [c for c in table if c not in _FIGURES]
    parts = rows[columns].astype(str).to_numpy()
    return rows, [", ".join(p) if len(p) else "all persons" for p in parts], variable


def _by_group(
    table: pd.DataFrame, variable: str, statistic: str, columns: list[str]
) -> dict[tuple[str, ...], pd.Series]:
    rows = table[(table["variable"].astype(str) == variable) & (table["statistic"] == statistic)]
    if "row" in rows:
        rows = rows[rows["row"] == "group"]
    keys = map(tuple, rows[columns].astype(str).to_numpy())
    return {key: r for key, (_, r) in zip(keys, rows.iterrows(), strict=True)}


def _number(text: str) -> bool:
    try:
        return 0.0 <= float(text) <= 100.0
    except ValueError:
        return False


def _name(ax: Axes, names: list[str]) -> None:
    """Name the rows, from above, some of them where there are many."""
    step = -(-len(names) // MOST_NAMED)
    at = np.arange(0, len(names), step)
    ax.set_yticks(at, [short(names[k]) for k in at], fontsize=7 if len(at) > 20 else 8.5)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(axis="x", color="#eceef0", lw=0.7)
    ax.set_axisbelow(True)
