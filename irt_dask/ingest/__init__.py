"""Reading response files into stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from irt_dask.store import Responses

__all__ = ["ingest"]


def ingest(
    source: str | PathLike[str],
    store: str | PathLike[str],
    *,
    shape: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    missing: Sequence[str | int | float] | str | int | float = (),
    layout: str = "auto",
    rows_per_block: int | None = None,
    progress: bool | Callable[[str, int, int | None], Any] | None = None,
) -> Responses:
    """Read a CSV or TSV file of right and wrong responses into a new store.

    A long file has one response per row, in a person, an item and a response column; other
    columns are ignored.  A wide file has one person per row, in a person column and one column
    per item.  Persons are always rows.  Persons are stored in order of first appearance, items
    in order of the header (wide) or of first appearance (long).  Spaces around ids, column
    names and values are dropped.

    Nothing is left behind by a file with an error: the store appears whole, as the last act.
    The file is streamed, so memory does not grow with the number of responses; a dictionary of
    the person ids (some 150 bytes a person) is kept in the calling process.  Long files are
    sorted by person through temporary files beside the store, of 9 bytes a row.

    Parameters
    ----------
    source
        A .csv, .tsv or .tab file in UTF-8, also compressed (.csv.gz, ...), with a header.
    store
        Where the store is made; nothing may be there yet.
    shape
        "long" or "wide"; None decides by the column names, and refuses where they leave a doubt.
    columns
        Names of columns by role: "person", "item" and "response" (long), "person" and "items"
        (wide; a list, other columns are then ignored), and for both "weight" and "group".
    missing
        More codes for "not observed", besides empty, NA, NaN, nan, -1 and a dot.
    layout
        "auto" or "dense".
    rows_per_block
        Persons per block of the store; None chooses.
    progress
        None shows a bar on a terminal, True and False always and never; or a function called as
        ``progress(stage, done, total)``: bytes read, then blocks written.

    Returns
    -------
    Responses
        The new store, opened.

    Raises
    ------
    InputError
        The file or an option breaks a rule; the text names the file, the line, the column and
        the value, and says what to do.
    """
    from irt_dask.engine.progress import callback
    from irt_dask.ingest.long import ingest_long
    from irt_dask.ingest.reader import TextFile
    from irt_dask.ingest.roles import resolve
    from irt_dask.ingest.target import Target
    from irt_dask.ingest.values import code_table
    from irt_dask.ingest.wide import ingest_wide

    target = Target.checked(store, layout=layout, rows_per_block=rows_per_block)
    table = code_table(missing)
    text = TextFile(source, callback(progress))
    roles = resolve(text, shape, columns)
    read = ingest_long if roles.shape == "long" else ingest_wide
    return read(text, roles, table, target)
