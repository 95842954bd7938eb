"""Reading response files into stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pandas as pd

    from irt_dask.store import Responses

    Table: TypeAlias = str | PathLike[str] | pd.DataFrame  # a file or a table in memory
    Recode: TypeAlias = Mapping[Any, str | int | Mapping[Any, str | int]] | Table | None
    Categories: TypeAlias = int | Mapping[str, int] | pd.Series | Table | None

__all__ = ["append", "ingest"]

Progress = bool | Callable[[str, int, int | None], Any] | None


def _with(columns: Any, facets: Any) -> Any:
    """Columns by role, those of facets among them."""
    if isinstance(facets, (tuple, list)) and not facets:
        return columns
    return {**(columns or {}), "facets": facets}


def ingest(
    source: str | PathLike[str],
    store: str | PathLike[str],
    *,
    shape: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    exclude: str | Sequence[str] = (),
    facets: str | Sequence[str] = (),
    missing: Sequence[str | int | float] | str | int | float = (),
    recode: Recode = None,
    key: Mapping[str, Any] | str | PathLike[str] | None = None,
    persons: str | PathLike[str] | pd.DataFrame | None = None,
    trials: str | int | None = None,
    layout: str = "auto",
    categories: Categories = None,
    reverse: str | Sequence[str] = (),
    null_categories: str = "raise",
    on_error: str = "raise",
    rows_per_block: int | None = None,
    weight_kind: str = "sampling",
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    client: Any = None,
    progress: Progress = None,
) -> Responses:
    """Read a file of responses into a new store.

    A long file has one response per row, in a person, an item and a response column; other
    columns are ignored.  A wide file has one person per row, in a person column and one column
    per item; JSON lines may also hold the responses of a person in one object,
    ``{"subject_id": "s1", "responses": {"q1": 1, "q2": 0}}``.  Persons are always rows.  They are
    stored in order of first appearance; items in order of the header (wide) or of first appearance.
    Spaces around ids, column names and values are dropped.

    Parameters
    ----------
    source
        A .csv, .tsv, .tab, .jsonl, .jsonlines or .ndjson file, also compressed (.csv.gz, ...), or
        a .parquet file; a path, or the URL of an object (``s3://bucket/data.csv``), which is
        copied to the temporary files first.  The same holds for ``key`` and ``persons``.
    store
        Where the store is made; nothing may be there yet.  A path, or the URL of a folder in object
        storage (``s3://bucket/store``; "irt-dask docs objects").
    shape
        "long" or "wide"; None decides by the column names, and refuses where they leave a doubt.
    columns
        Names of columns by role: "person", "item" and "response" (long), "person" and "items"
        (wide; other columns are then ignored) or "responses" (nested JSON), and for all "weight"
        and "group".  Items are listed by names, globs (``"q*"``, ``"item_??"``) and ranges
        (``"q1:q40"``: the columns from q1 to q40 in the order of the file), mixed; a column whose
        own name is such goes first, and globs and ranges pass over columns of other roles.
        "covariates" of a wide table, listed in the same way, are numbers of the persons (empty
        where not known), in place of a file ``persons``; the file is read once more for them.
        "labels" are those covariates, here or of ``persons``, that are text: schools, countries.
    exclude
        Columns of a wide file that are no items, listed in the same way.
    facets
        Columns of a long file that hold levels of facets, such as the rater or the booklet.  An
        item at levels, ``item@level``, is then a column of the store (``item@level@level`` with
        two), so that several answers of a person to an item, by several raters, have a place each,
        and ``fit_marginal(facets=...)`` knows the levels.  ``categories`` go by item, and columns
        may lack some of these; not with ``key`` and ``reverse``.  Also as the role "facets" of
        ``columns``.
    missing
        More codes for "not observed", besides empty, NA, N/A, #N/A, NaN, NULL, None, -1 and a dot.
    recode
        What codes and labels mean: ``{"9": "wrong", "r": "missing", "strongly agree": 4}``, a word
        or a code from 0 to 14; goes before all other rules.  The words are right, wrong, missing,
        and omitted and not reached, which the store keeps apart: they are read as missing, or as
        wrong where ``Responses.select(omitted="wrong")`` says so, for scores for example.
        By item: ``{"9": "missing", "q3": {"never": 0, "often": 1}, "n_*": {"yes": 1, "no": 0}}``,
        a dict for each item that has labels of its own, by names, globs and (wide files) ranges; or
        a CSV file or DataFrame with the columns item, label and code.  What an item has of its own
        goes before what all have.  InputError for items that are not there, two codes for a label,
        and codes that the item does not have; not with ``key``, ``facets``, a column of trials.
    key
        The right option of every item, ``{item: option}`` or a CSV file with columns item and key
        (or answer), for files of raw answers: that option is right, any other wrong; numbers are
        compared as numbers.  With partial credit ``{item: {option: score}}``, or a third column
        score and a row for each option that has one: other answers score 0, and the item has as
        many categories as the highest score, plus one, unless ``categories`` says more.
    persons
        A second file or a DataFrame with one row per person: person (or what the responses call
        it), and weight, group and covariates (all other columns; numbers, but for those that
        ``columns`` calls labels).  Weight and group have
        these names, or what ``columns`` calls them where the responses have no such column.  It is
        joined by the person's id.
    categories : number of categories K, from 2 to 15, of all items, or of each
        A number; or by item, in a dict (a Series), or in a CSV file or DataFrame with columns item
        and categories; items that are not named have 2.  Responses are then the codes 0 to K - 1 of
        their item, written 2 or 2.0, and another one is a bad row.  ``"data"``: K of each item is
        one more than the highest code that occurs, and at least 2.  None: 2, so that codes above 1
        are errors.
    reverse
        Items whose codes k become K - 1 - k, after ``recode``: names, globs and (wide files)
        ranges.  K must be known before the file is read, so not with ``categories="data"``, nor
        with ``key``, which says all scores.
    null_categories : {"raise", "keep", "collapse"}
        What happens if a category of an item with more than two has no response in what is stored:
        an error that names them before the store appears, or nothing.  Collapsed, it is dropped,
        and the codes above it move down; the store keeps that, so that ``append`` does the same
        with later files and refuses a response of that category.  Blocks are written twice then.
    trials
        Several attempts of a person at an item, as of a model that is sampled.  A column of a long
        file that names the attempt: attempts are right or wrong, and a response is how many are
        right, k of n, of an item with n + 1 categories (n: the most attempts that anybody has at
        the item, up to 14; answers with fewer are not observed, with a warning).  Or a number n:
        each response is the share right of n attempts, as 0.7 of 10.  ``fit_marginal(model=
        "binomial")`` is the model of such items.  Not with ``categories``, ``key``, ``reverse``; a
        column neither with ``facets``, weights and groups.
    layout
        "dense" (a byte for each person and item), "csr" (observed responses alone), or "auto": csr
        where fewer than 10% of the cells are observed.  The result's ``layout`` says which; it
        never changes an estimate.
    on_error
        "raise" stops at the first row that breaks a rule.  "quarantine" puts such rows into
        ``STORE.quarantine.csv`` with line and reason and goes on; ``n_quarantined`` counts them.
    rows_per_block
        Persons per block of the store; None chooses.
    weight_kind
        What weights mean, kept by the store: "sampling" (of a sample with unequal probabilities;
        every method divides them by their mean) or "frequency" (whole numbers: how many persons a
        row stands for).
    delimiter
        What separates values: one sign, such as ``";"``, or ``"tab"``.  None takes what a first
        line ``sep=;`` says, else comma (.csv) or tab (.tsv, .tab); where the header has one column
        then, the one of ``, ; tab |`` that divides it, and a Notice says so.  Files of ``key`` and
        ``persons`` may have another one.
    decimal
        ``","`` where numbers are written 1,0: responses, weights, covariates.
    encoding
        What text is written in ("cp1252", "utf-16", ...; a name that Python knows), of ``key`` and
        ``persons`` too.  None is UTF-8, or UTF-16 where a byte order mark says so.  Nothing else is
        guessed: a byte that is not UTF-8 is an error that shows how usual encodings read it.
    client, progress
        Dask client (default: the current one, else threads).  None shows bars on a terminal, True
        and False always and never; or a function called as ``progress(stage, done, total)``.

    Returns
    -------
    Responses
        The new store, opened.

    Raises
    ------
    InputError
        The file or an option breaks a rule; the text names the file, the line, the column and
        the value, and says what to do.
    StoreError
        Object storage cannot be reached (after half a minute), or lets two writers overwrite each
        other.

    Warns
    -----
    DataWarning
        ``persons`` has persons without responses.  Columns of a wide file are taken for items and
        perhaps are none, by a word in their names such as "sex" or "total", as they are no part of
        the series of most others (q1, q2, ...), or because all responses, 100 or more, are the
        same.  ``categories`` names items that are not in the file.  The file is sound UTF-8, and
        ``encoding`` says something else.
    Notice
        What was found out about a file: its delimiter, its encoding, rows over several lines.
        Items, and with ``null_categories="collapse"`` categories, without any response are left
        out.

    Notes
    -----
    The store appears whole, as the last act; a run that is stopped leaves nothing that the next one
    does not remove.  The source is read in pieces of 16 to 128 MB (Parquet: row groups), spilled to
    disk beside the store by person (a hash), put together by person and written as blocks: an
    external sort, whose memory per task (some 10 times a piece, up to 16 with what Arrow keeps for
    the next) does not grow with the file.  On the disk it needs about the size of the uncompressed
    source, twice that of a ``.gz`` or where it is not UTF-8, until it is done; a file in which
    values in quotes hold line ends is copied once, and read again from its beginning.  These files
    carry checksums.  For a store in object storage they lie in TMPDIR, which the workers must see,
    and this process uploads the part at the end.  The calling process holds the item ids and
    numbers by piece of the source, nothing of the size of the persons.

    Examples
    --------
    >>> import pandas as pd
    >>> import irt_dask as irt
    >>> exam = pd.DataFrame({"person": ["ann", "bob"], "q1": [1, 0], "q2": [1, None]})
    >>> exam.to_csv("exam.csv", index=False)
    >>> responses = irt.ingest("exam.csv", "exam.zarr")
    >>> responses.item_id
    ('q1', 'q2')
    >>> responses.read_block(0).data.values.tolist()
    [[1, 1], [0, -1]]

    Agreement, of which the second question counts back:

    >>> survey = pd.DataFrame({"person": list("abc"), "q1": [0, 1, 2], "q2": ["2", "often", "0"]})
    >>> survey.to_csv("survey.csv", index=False)
    >>> responses = irt.ingest(
    ...     "survey.csv", "survey.zarr", categories=3, recode={"often": 1}, reverse=["q2"]
    ... )
    >>> responses.n_categories
    (3, 3)
    >>> responses.read_block(0).data.values.tolist()
    [[0, 0], [1, 1], [2, 2]]

    Labels that mean other codes in other items:

    >>> responses = irt.ingest(
    ...     "survey.csv", "labels.zarr", categories=3, recode={"q2": {"0": 2, "often": 1, "2": 0}}
    ... )
    >>> responses.read_block(0).data.values.tolist()
    [[0, 0], [1, 1], [2, 2]]
    """
    from irt_dask.ingest import run

    options = run.Options(
        shape=shape, columns=_with(columns, facets), exclude=exclude, missing=missing,
        recode=recode, key=key, persons=persons, categories=categories, reverse=reverse,
        null_categories=null_categories, layout=layout, on_error=on_error,
        rows_per_block=rows_per_block,
        weight_kind=weight_kind,
        delimiter=delimiter, decimal=decimal, encoding=encoding,
    )  # fmt: skip
    if trials is None:
        return run.read_into(store, source, options, client, progress, new=True)
    from irt_dask.ingest import trials as attempts

    if isinstance(trials, str):
        return attempts.read_counted(store, source, options, trials, client, progress)
    return run.read_into(
        store, source, attempts.shares(options, trials), client, progress, new=True
    )


def append(
    source: str | PathLike[str],
    store: str | PathLike[str],
    *,
    shape: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    exclude: str | Sequence[str] = (),
    facets: str | Sequence[str] = (),
    missing: Sequence[str | int | float] | str | int | float = (),
    recode: Recode = None,
    key: Mapping[str, Any] | str | PathLike[str] | None = None,
    persons: str | PathLike[str] | pd.DataFrame | None = None,
    categories: Categories = None,
    reverse: str | Sequence[str] = (),
    null_categories: str = "raise",
    on_error: str = "raise",
    on_duplicate: str = "raise",
    rows_per_block: int | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    client: Any = None,
    progress: Progress = None,
) -> Responses:
    """Add a file to a store, as one more part.

    Existing files do not change.  Persons of the file join the store, and so do its items, after
    those that are there, in order of first appearance; earlier persons have not observed them, and
    a notice lists them.  The file may lack items of the store.  Weights, groups and covariates
    must be there if and only if the store has them.  Parameters and guarantees are those of
    :func:`ingest`; layout, kind of weights and the number of categories of items that are there are
    the store's (``categories`` is for new ones; a table that gives others another number is an
    error), and rows put aside go to ``STORE.quarantine-NNNNN.csv``, NNNNN the number of the part.
    ``recode``, ``key`` and ``reverse`` speak of this file: what was reversed at first has to be
    again, and a warning lists the items where it is not; a ``recode`` by item may have items of the
    store that the file lacks.  What adds nothing leaves the store as it
    is, with a notice that names the file of rows put aside, if any are.

    Parameters
    ----------
    on_duplicate : {"raise", "skip", "quarantine", "merge"}
        What becomes of the rows of a person who is in the store: an error; left out, with a
        notice that counts them; put aside like bad rows; or merged.  Merged, a response fills a
        cell that was not observed, an equal one is nothing new, and another one breaks a rule: an
        error that names person, item, both values and the line, or, with
        ``on_error="quarantine"``, the row is put aside (of files with a row per person the whole
        row).  Weight, group and covariates of a merged person must be those of the store, or not
        be given.

    Returns
    -------
    Responses
        The store with what was added.  A handle that was opened before keeps to the persons, items
        and responses of then: a run that is under way is not disturbed.

    Raises
    ------
    InputError
        As :func:`ingest`; also if a person of the file is in the store already (it lists ten), or
        cannot be merged.
    StoreError
        Another process has added a part to a store in object storage meanwhile: start again.

    Warns
    -----
    Notice
        New items join; persons are left out (``on_duplicate="skip"``); the store has all of the
        file already, and stays as it is.
    DataWarning
        ``persons`` has persons without responses; ``reverse`` is not what it was for items that
        the store has.

    Notes
    -----
    Besides what :func:`ingest` does, the person ids of the store are read once and spilled, to be
    compared with the new ones, a block at a time; to merge, weights, groups and covariates too, and
    the blocks of those persons.  A later reader of such a block opens one file more for every part
    that added to it; ``ingest`` of one long file with all responses makes it one again.

    Examples
    --------
    >>> import pandas as pd
    >>> import irt_dask as irt
    >>> may = pd.DataFrame({"person": ["ann", "cem"], "q1": [1, 0], "q2": [None, 0]})
    >>> may.to_csv("may.csv", index=False)
    >>> june = pd.DataFrame({"person": ["bob", "ann"], "q1": [1, 1], "q2": [1, 0]})
    >>> june.to_csv("june.csv", index=False)
    >>> _ = irt.ingest("may.csv", "year.zarr")
    >>> responses = irt.append("june.csv", "year.zarr", on_duplicate="merge")
    >>> [responses.read_block(k).data.values.tolist() for k in range(2)]
    [[[1, 0], [0, 0]], [[1, 1]]]
    """
    from irt_dask.ingest import run

    options = run.Options(
        shape=shape, columns=_with(columns, facets), exclude=exclude, missing=missing,
        recode=recode, key=key, persons=persons, categories=categories, reverse=reverse,
        null_categories=null_categories, layout="auto", on_error=on_error,
        rows_per_block=rows_per_block,
        on_duplicate=on_duplicate,
        delimiter=delimiter, decimal=decimal, encoding=encoding,
    )  # fmt: skip
    return run.read_into(store, source, options, client, progress, new=False)
