"""What the caller of ingest and append asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from irt_dask.errors import InputError
from irt_dask.ingest.columns.values import Codes
from irt_dask.ingest.sources.key_tables import read_key
from irt_dask.store.responses import SAMPLING
from irt_dask.store.weights import check_kind
from irt_dask.store.writer import check_rows_per_block

LAYOUTS = ("auto", "dense", "csr")
ON_ERROR = ("raise", "quarantine")


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

    def checked(self) -> Codes:
        """Check them before anything is read; return what the values of responses mean."""
        given = (("layout", self.layout, LAYOUTS), ("on_error", self.on_error, ON_ERROR))
        for name, value, known in given:
            if value not in known:
                raise InputError(f"{name}={value!r} is unknown; it is one of {', '.join(known)}")
        if self.shape not in (None, "long", "wide"):
            raise InputError(f"shape={self.shape!r} is unknown; say shape='long' or shape='wide'")
        check_rows_per_block(self.rows_per_block, 1)
        codes = codes_of(self.missing, self.recode, self.key)
        check_kind(self.weight_kind)
        return codes


def codes_of(missing: Any = (), recode: Any = None, key: Any = None) -> Codes:
    """Put the options together that say what values mean."""
    codes = Codes.checked(missing, recode, keyed=key is not None)
    return codes if key is None else codes.with_key(read_key(key))
