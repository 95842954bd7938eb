"""What the caller of ingest and append asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from irt_dask.errors import InputError
from irt_dask.ingest.values import Codes
from irt_dask.store.responses import SAMPLING
from irt_dask.store.weights import check_kind
from irt_dask.store.writer import check_rows_per_block

LAYOUTS = ("auto", "dense", "csr")
ON_ERROR = ("raise", "quarantine")


@dataclass(frozen=True)
class Options:
    """What the caller asked for, checked before anything is read."""

    shape: str | None
    columns: Mapping[str, Any] | None
    codes: Codes
    persons: Any
    layout: str
    on_error: str
    rows_per_block: int | None
    weight_kind: str = SAMPLING

    @classmethod
    def checked(
        cls,
        *,
        shape: str | None,
        columns: Mapping[str, Any] | None,
        missing: Any,
        recode: Any,
        key: Any,
        persons: Any,
        layout: str,
        on_error: str,
        rows_per_block: int | None,
        weight_kind: str = SAMPLING,
    ) -> Options:
        """Refuse what no source could make right."""
        for name, value, known in (("layout", layout, LAYOUTS), ("on_error", on_error, ON_ERROR)):
            if value not in known:
                raise InputError(f"{name}={value!r} is unknown; it is one of {', '.join(known)}")
        if shape not in (None, "long", "wide"):
            raise InputError(f"shape={shape!r} is unknown; say shape='long' or shape='wide'")
        check_rows_per_block(rows_per_block, 1)
        codes = Codes.checked(missing, recode, key)
        check_kind(weight_kind)
        return cls(shape, columns, codes, persons, layout, on_error, rows_per_block, weight_kind)
