"""The page of a benchmark: leaderboard, broken questions, anchors, models that are alike."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from irt_dask.report.common import COLOURS, axes, short
from irt_dask.report.figures import Image, inline
from irt_dask.report.page import template
from irt_dask.report.published import new_page
from irt_dask.report.tables import NOTHING, Table, number
from irt_dask.store.documents import to_csv
from irt_dask.store.manifest import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Rows of a table that are shown, and models in the picture.
_MOST_ROWS, _MOST_DRAWN = 200, 40

_BOARD = (
    "Share right of the questions answered, with an interval for all questions like these. Ranks "
    "are of shares; their intervals hold together, for all models at once, over samples of "
    "questions: two models whose rank intervals overlap are not told apart by this benchmark. "
    "Ability is on a scale where the models have mean 0 and standard deviation 1."
)
_BROKEN = (
    "negative_slope: abler models get it wrong more often, as with a wrong key. misfit: answers go "
    "with ability otherwise than the model says. duplicate: the answers of another question, more "
    "alike than by chance. all_right, all_wrong: it tells no models apart. Look at the questions: "
    "the reasons are of the answers, and say nothing of the cause."
)
_ANCHORS = (
    "Asked these alone, a new model's share of all questions is predicted best, as far as one "
    "ability describes the benchmark (predict_total, irt-dask predict). An interval that holds "
    "whatever the model needs questions that were drawn: irt-dask choose."
)
_ALIKE = (
    "Pairs whose answers are more alike than their abilities, and those of other pairs, explain: "
    "copies, new names, light fine-tunes. They count as independent in everything above."
)


@dataclass(frozen=True)
class _Part:
    name: str
    words: str
    images: list[Image]
    table: Table
    csv: str
    file: str
    n: str


def write_benchmark(
    path: str | Path, *, title: str, leaderboard: pd.DataFrame, broken: pd.DataFrame,
    anchors: pd.DataFrame, similar: pd.DataFrame, notes: Sequence[str],
) -> Path:  # fmt: skip
    """Write the tables of :func:`irt_dask.workflow.benchmarking.benchmark` as one page."""
    path = new_page(path)
    n = min(len(leaderboard), _MOST_DRAWN)
    alt = f"share right of the first {n} models, with intervals; the table has them"
    caption = f"The first {n} models: share right, and its interval over questions."
    parts = [
        _part("Leaderboard", _BOARD, leaderboard, [inline(forest(leaderboard), alt, caption)]),
        _part("Broken questions", _BROKEN, broken),
        _part("Anchors", _ANCHORS, anchors),
        _part("Models that are alike", _ALIKE, similar),
    ]
    text = template("benchmark.html").render(title=title, tables=parts, notes=list(notes))
    write_atomically(path.absolute(), text.encode(errors="replace"))
    return path


def forest(leaderboard: pd.DataFrame) -> Axes:
    """Draw the first models' shares right with their intervals, the best on top."""
    some = leaderboard.head(_MOST_DRAWN)
    at = np.arange(len(some))
    ax = axes(None, 6.0, 1.0 + 0.22 * len(some))
    x = some["share_right"].to_numpy()
    ax.hlines(at, some["share_lower"], some["share_upper"], color=COLOURS[0], lw=1.4)
    ax.plot(x, at, "o", color=COLOURS[0], ms=4)
    ax.set_yticks(at, [short(name) for name in some["model"].astype(str)], parse_math=False)
    ax.invert_yaxis()
    ax.set(xlabel="share right")
    return ax


def _part(name: str, words: str, table: pd.DataFrame, images: Sequence[Image] = ()) -> _Part:
    data = base64.b64encode(to_csv(table).encode()).decode("ascii")
    return _Part(
        name, words, list(images), _as_text(table), f"data:text/csv;charset=utf-8;base64,{data}",
        f"{name.lower().replace(' ', '_')}.csv", f"{len(table):,}",
    )  # fmt: skip


def _as_text(table: pd.DataFrame) -> Table:
    some = table.head(_MOST_ROWS)
    rows = [[_cell(value) for value in row] for row in some.itertuples(index=False)]
    more = len(table) - len(some)
    remarks = (f"{more:,} more rows are in the CSV file.",) if more else ()
    return Table(tuple(str(c).replace("_", " ") for c in table.columns), rows, remarks)


def _cell(value: object) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return number(float(value), 3)
    return str(value) or NOTHING
