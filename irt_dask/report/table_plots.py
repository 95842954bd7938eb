"""Plots of tables of groups: means with their intervals, bands of percentiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from irt_dask.errors import InputError, listed
from irt_dask.report.common import (
    COLOURS,
    GREY,
    INK,
    MOST_NAMED,
    axes,
    legend,
    name_or_count_rows,
)
from irt_dask.report.posterior_plots import height_of
from irt_dask.survey.plan import OWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: What a table of :func:`irt_dask.trend` has beside that.
_OF_TRENDS = ("earlier", "later", "se_linking", "n_earlier", "n_later")


def groups(
    table: pd.DataFrame, *, variable: str | None = None, statistic: str | None = None,
    row: str = "group", sort: bool = True, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Draw a statistic of groups with its intervals, a row a group: a forest plot.

    Parameters
    ----------
    table
        Result of :func:`irt_dask.tabulate` or :func:`irt_dask.trend`.  A group whose interval is
        not known (NaN) is an open circle; one without an estimate is left out, and counted in the
        title.
    variable, statistic
        Which rows are drawn; needed if the table has several.
    row : {"group", "gap"}
        Groups, or the gaps between them if the table has some.
    sort
        Whether the largest estimate stands on top; otherwise rows are in the order of the table.
    ax
        Axes to draw on; a new figure by default.

    Examples
    --------
    >>> import irt_dask as irt, numpy as np, pandas as pd
    >>> rng = np.random.default_rng(1)
    >>> country = rng.choice(["A", "B", "C"], 600)
    >>> ability = rng.normal(500, 100, 600)
    >>> values = {f"PV{m}": ability + rng.normal(0, 10, 600) for m in range(1, 6)}
    >>> persons = pd.DataFrame(values).assign(country=country)
    >>> persons["zone"], persons["unit"] = np.arange(600) // 30 + 1, np.arange(600) % 2
    >>> jk2 = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=20)
    >>> table = irt.tabulate(persons, "PV*", by="country", replicates=jk2, statistics="mean")
    >>> ax = irt.plot.groups(table)
    >>> ax.get_title()
    'mean of PV* in 3 groups'
    """
    if row not in ("group", "gap"):
        raise InputError(f"row={row!r} is not available; choose 'group' or 'gap'")
    own = _chosen(table, "variable", variable)
    own = own[own.get("row", pd.Series("group", index=own.index)) == row]
    if not len(own):
        raise InputError(f"row={row!r}: the table has no such rows")
    own = _chosen(own, "statistic", statistic)
    known = own[own["estimate"].notna()]
    if not len(known):
        raise InputError("the table has no estimate that is known (NaN)")
    known = known.iloc[::-1] if not sort else known.sort_values("estimate", kind="stable")
    estimate, low, high = (known[c].to_numpy(float) for c in ("estimate", "lower", "upper"))
    at, sure = np.arange(len(known)), np.isfinite(low) & np.isfinite(high)
    ax = axes(ax, 7.0, height_of(len(known)))
    few = len(known) <= MOST_NAMED
    lines = ax.hlines(at[sure], low[sure], high[sure], color=COLOURS[0], lw=1.6 if few else 0.6)
    size = 16 if few else 3
    dots = ax.scatter(estimate[sure], at[sure], s=size, color=INK, zorder=3)
    shown = [(dots, "estimate"), (lines, "interval")]
    if not sure.all():
        rings = ax.scatter(
            estimate[~sure], at[~sure], s=size, facecolors="none", edgecolors=INK, zorder=3
        )
        shown.append((rings, "interval not known"))
    name_or_count_rows(ax, _labels(known), "groups")
    _grid(ax)
    name, what = str(known["statistic"].iloc[0]), str(known["variable"].iloc[0])
    lacking = len(own) - len(known)
    ax.set(xlabel=f"change of {name}" if "earlier" in table else name)
    _title(
        ax, f"{name} of {what} in {len(known):,} {row}{'s' * (len(known) != 1)}"
        + (f"; {lacking:,} without an estimate" if lacking else ""),
    )  # fmt: skip
    legend(ax, *zip(*shown, strict=True))
    return ax


def percentiles(
    table: pd.DataFrame, *, variable: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw bands between percentiles of groups, a row a group, with the interval of the median.

    Parameters
    ----------
    table
        Result of :func:`irt_dask.tabulate` with percentiles among its statistics (``"p5"``,
        ``"p25"``, ``"p75"``, ``"p95"``): the outermost two are joined by the lightest band, and so
        on inwards; one in the midst is a bar with its interval, where that is known.  Groups are in
        the order of the table, the first on top; those without some percentile are left out, and
        counted in the title.
    variable
        Which variable is drawn; needed if the table has several.
    ax
        Axes to draw on; a new figure by default.

    Examples
    --------
    >>> import irt_dask as irt, numpy as np, pandas as pd
    >>> rng = np.random.default_rng(1)
    >>> persons = pd.DataFrame({"score": rng.normal(500, 100, 600), "sex": ["f", "m"] * 300})
    >>> wanted = ["p5", "p25", "p50", "p75", "p95"]
    >>> table = irt.tabulate(persons, "score", by="sex", statistics=wanted)
    >>> ax = irt.plot.percentiles(table)
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['m', 'f']
    """
    own = _chosen(table, "variable", variable)
    if "row" in own:
        own = own[own["row"] == "group"]
    at = own["statistic"].str.extract(r"^p(\d+(?:\.\d+)?)$")[0].astype(float)
    own = own.assign(at=at)[at.notna()]
    names = sorted(own["at"].unique())
    if len(names) < 2:
        raise InputError(
            f"the table has {len(names)} percentile(s), and bands lie between two: "
            f"tabulate(..., statistics=['p5', 'p25', 'p50', 'p75', 'p95'])"
        )
    own = own.assign(label=_labels(own))
    wide = own.pivot(index="label", columns="at", values="estimate")
    wide = wide.reindex(dict.fromkeys(own["label"]))[names]
    known = wide[wide.notna().all(axis=1)].iloc[::-1]
    if not len(known):
        raise InputError("no group has all percentiles (NaN)")
    ax = axes(ax, 7.0, height_of(len(known)))
    y, shown = np.arange(len(known)), []
    pairs = list(zip(names[: len(names) // 2], names[::-1], strict=False))
    for k, (low, high) in enumerate(pairs):
        band = ax.barh(
            y, known[high] - known[low], left=known[low], height=0.25 + 0.35 * k / len(pairs),
            color=COLOURS[0], alpha=0.25 + 0.5 * k / len(pairs), lw=0,
        )  # fmt: skip
        shown.append((band, f"p{low:g} to p{high:g}"))
    if len(names) % 2:
        shown += _middle(ax, own[own["at"] == names[len(names) // 2]], known.index, y)
    name_or_count_rows(ax, list(known.index), "groups")
    _grid(ax)
    what, lacking = str(own["variable"].iloc[0]), len(wide) - len(known)
    ax.set(xlabel=what)
    _title(ax, f"Percentiles of {what}" + (
        f"; {lacking:,} groups have not all of them" if lacking else ""
    ))  # fmt: skip
    legend(ax, *zip(*shown, strict=True))
    return ax


def _middle(ax: Axes, rows: pd.DataFrame, order: pd.Index, y: np.ndarray) -> list[tuple]:
    """The percentile in the midst, and its interval where it is known."""
    rows = rows.set_index("label").loc[order]
    mark = ax.scatter(rows["estimate"], y, marker="|", s=110, color=INK, zorder=3)
    shown: list[tuple] = [(mark, f"{rows['statistic'].iloc[0]}")]
    sure = rows[["lower", "upper"]].notna().all(axis=1).to_numpy()
    if sure.any():
        lines = ax.hlines(y[sure], rows["lower"][sure], rows["upper"][sure], color=INK, lw=1.2)
        shown.append((lines, "its interval"))
    return shown


def _chosen(table: pd.DataFrame, column: str, wanted: str | None) -> pd.DataFrame:
    """Rows of one variable or statistic."""
    lacking = [c for c in ("variable", "statistic", "estimate", "lower", "upper") if c not in table]
    if lacking:
        raise InputError(
            f"the table has no column {lacking[0]!r}: plots of groups take tables of tabulate or "
            f"trend"
        )
    there = list(dict.fromkeys(table[column].astype(str)))
    if wanted is None and len(there) > 1:
        raise InputError(f"the table has several: give {column}=, one of {listed(there)}")
    if wanted is not None and wanted not in there:
        raise InputError(f"{column}={wanted!r} is not in the table; there are {listed(there)}")
    return table if wanted is None else table[table[column].astype(str) == wanted]


def _labels(table: pd.DataFrame) -> list[str]:
    """Names of the groups: what they have in the columns of ``by``."""
    by = [c for c in table if c not in (*OWN, *_OF_TRENDS, "at", "label")]
    if not by:
        return ["all persons"] * len(table)
    return [", ".join(map(str, row)) for row in table[by].itertuples(index=False, name=None)]


def _grid(ax: Axes) -> None:
    ax.grid(axis="x", color="#eceef0", lw=0.7)
    ax.set_axisbelow(True)
    ax.spines["left"].set_color(GREY)


def _title(ax: Axes, text: str) -> None:
    ax.set_title(text).set_parse_math(False)
