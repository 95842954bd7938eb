"""What reading a piece of a source gives: its good rows in columns, and its bad rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from irt_dask.ingest.columns.unlisted import Unlisted


@dataclass(frozen=True)
class Bad:
    """A row that cannot be taken: where it is in its piece, why, and what stands there."""

    line: int  # offset from the first line of the piece
    column: str
    value: str
    message: str  # a sentence that goes on after "PATH, line N: "
    text: str  # the line itself; JSON of the row of a table
    runs_on: bool = False  # a quote is open at its end: the row may go on on later lines


@dataclass
class Rows:
    """The good rows of a piece in columns, and its bad rows."""

    n_lines: int  # good and bad
    lines: np.ndarray  # int32, offset of each good row, ascending; repeated where lines hold many
    person: pa.StringArray  # stripped, not empty
    # entries distinct and in use; long form; a null only makes the person exist
    item: pa.DictionaryArray | None = None
    codes: np.ndarray | None = None  # int8 1, 0, -1: (n,) long, (n, items) wide
    weight: np.ndarray | None = None  # float64, finite and above 0
    group: pa.DictionaryArray | None = None  # as item, never null
    covariates: np.ndarray | None = None  # float64 (n, covariates), NaN where empty
    #: Of the covariates that are labels, those that occur.
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unlisted: Unlisted = field(default_factory=dict)  # answers, those in bad rows too
    bad: Sequence[Bad] = ()  # ascending by line
    n_more: int = 0  # lines with which rows go on that began on earlier ones
