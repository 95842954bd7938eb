"""What the caller of ingest and append asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import PurePath
from typing import Any

from irt_dask.errors import InputError
from irt_dask.ingest.columns.limits import Limits
from irt_dask.ingest.columns.patterns import HOW, ItemFilter, entries
from irt_dask.ingest.columns.values import Codes
from irt_dask.ingest.sort.known import ASIDE, MERGE, RAISE, SKIP
from irt_dask.ingest.sort.writing import COLLAPSE, KEEP, STOP
from irt_dask.ingest.sources.item_tables import read_categories, read_key, read_recode
from irt_dask.ingest.sources.source import Source
from irt_dask.ingest.text.dialect import UNSAID, Dialect
from irt_dask.ingest.text.files import kind_of
from irt_dask.store.places import Location
from irt_dask.store.responses import SAMPLING, Responses
from irt_dask.store.stored import collapsed_of
from irt_dask.store.weights import check_kind
from irt_dask.store.writer import check_rows_per_block

LAYOUTS = ("auto", "dense", "csr")
ON_ERROR = ("raise", "quarantine")
ON_DUPLICATE = (RAISE, SKIP, ASIDE, MERGE)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of :func:`irt_dask.ingest`; what no source could make right is refused."""

    shape: str | None
    columns: Mapping[str, Any] | None
    missing: Any
    recode: Any
    key: Any
    persons: Any
    layout: str = "auto"
    on_error: str
    rows_per_block: int | None
    weight_kind: str = SAMPLING
    on_duplicate: str = RAISE
    exclude: Any = ()
    delimiter: Any = None
    decimal: Any = None
    encoding: Any = None
    categories: Any = None
    reverse: Any = ()
    null_categories: str = STOP
    trials: int = 0  # a response is a share of so many attempts
    several_lines: bool = False  # rows have been found that go over several lines

    @property
    def dialect(self) -> Dialect:
        """How text is written, as far as the caller says."""
        said = Dialect.checked(self.delimiter, self.decimal, self.encoding)
        return replace(said, several_lines=self.several_lines)

    def check_dialect(self, *files: Location | PurePath) -> None:
        """Refuse what is said of text where no file is any: neither ``files`` nor the key."""
        tables = [
            t for t in (self.key, self.categories, self.recode) if isinstance(t, (str, PathLike))
        ]
        kinds = {kind_of(file) for file in (*files, *map(PurePath, tables))}
        self.dialect.check_kinds(kinds)

    def checked(self) -> Codes:
        """Check them before anything is read; return what the values of responses mean."""
        given = (
            ("layout", self.layout, LAYOUTS), ("on_error", self.on_error, ON_ERROR),
            ("on_duplicate", self.on_duplicate, ON_DUPLICATE),
            ("null_categories", self.null_categories, (STOP, KEEP, COLLAPSE)),
        )  # fmt: skip
        for name, value, known in given:
            if value not in known:
                raise InputError(f"{name}={value!r} is unknown; it is one of {', '.join(known)}")
        if self.shape not in (None, "long", "wide"):
            raise InputError(f"shape={self.shape!r} is unknown; say shape='long' or shape='wide'")
        if entries(self.exclude) is None:
            raise InputError(f"exclude={self.exclude!r} is no list of columns; {HOW}")
        check_rows_per_block(self.rows_per_block, 1)
        codes = codes_of(self.missing, self.recode, self.key, self.dialect, self.categories)
        codes = replace(codes, trials=self.trials)
        if codes.item_recodes and codes.key is not None:
            raise InputError(
                "recode by item is for codes and labels, and with key= the key says all scores; "
                "write them there, or say recode= of all items"
            )
        self._check_reverse(codes)
        check_kind(self.weight_kind)
        return codes

    def _check_reverse(self, codes: Codes) -> None:
        """Refuse to count codes back where K, or what is to be counted, is not said."""
        reverse = entries(self.reverse)
        if reverse is None:
            raise InputError(f"reverse={self.reverse!r} is no list of items; {HOW}")
        if reverse and codes.limits.from_data:
            raise InputError(
                f"reverse={reverse!r} makes K - 1 - k of a code k, and categories='data' leaves K "
                f"to the data; say categories= as a number, or by item"
            )
        if reverse and codes.key is not None:
            raise InputError(
                f"reverse={reverse!r} is for codes, and with key= the key says all scores; write "
                f"them the other way round there"
            )

    def nulls_of(self, source: Source) -> str:
        """What becomes of categories without a response: an item at a level may well have some."""
        return KEEP if source.roles.facets else self.null_categories

    def _check_facets(self, codes: Codes) -> None:
        """Refuse what speaks of items by names that columns at levels do not have."""
        for name, given in (("reverse", entries(self.reverse)), ("key", self.key)):
            if given:
                raise InputError(
                    f"{name}= does not go together with facets, where a column is an item at "
                    f"levels; write scores into the file first"
                )
        if codes.item_recodes:
            raise InputError(
                "recode by item does not go together with facets or a column of trials, where a "
                "column is an item at levels; recode all items, or write codes into the file first"
            )
        if self.null_categories == COLLAPSE:
            raise InputError(
                "null_categories='collapse' does not go together with facets: columns of an item "
                "would have codes of their own"
            )
        if codes.limits.from_data:
            raise InputError(
                "categories='data' does not go together with facets: columns of an item would have "
                "numbers of their own; say categories= as a number, or by item"
            )

    def bound(self, codes: Codes, source: Source, old: Responses | None) -> Codes:
        """Return the codes of a source that is read for a new store, or for this one.

        InputError where an option speaks of items, or of codes of an item, that are not there.
        """
        limits = codes.limits
        if source.roles.facets:
            self._check_facets(codes)
            limits = replace(limits, n_facets=len(source.roles.facets))
        if old is not None:
            limits = limits.with_store(old.item_id, old.n_categories, collapsed_of(old))
        back = ItemFilter.of(entries(self.reverse) or [], source.item_id, "reverse")
        known = () if old is None else old.item_id
        recodes = codes.item_recodes.bound(source.item_id, known)
        if source.item_id is not None:
            recodes.check_codes(recodes.names, limits)
        return replace(codes, item_recodes=recodes).of_data(back, limits)


def codes_of(
    missing: Any = (), recode: Any = None, key: Any = None, dialect: Dialect = UNSAID,
    categories: Any = None,
) -> Codes:  # fmt: skip
    """Put the options together that say what values mean."""
    limits = Limits.checked(read_categories(categories, dialect))
    said = read_recode(recode, dialect)
    codes = Codes.checked(missing, said, dialect.decimal, keyed=key is not None, limits=limits)
    if isinstance(recode, (str, PathLike)):
        codes = replace(codes, recode_file=str(recode))
    return codes if key is None else codes.with_key(read_key(key, dialect))
