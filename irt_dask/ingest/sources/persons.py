"""The table of persons that is joined to the responses: a file, or a DataFrame."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irt_dask.errors import InputError
from irt_dask.ingest.sources.opening import open_persons
from irt_dask.ingest.sources.source import Source

_IN_MEMORY = "the table of persons"


@dataclass(frozen=True)
class PersonsTable:
    """Weight, group and covariates by person; ``name`` is what messages call it."""

    source: Source
    name: str

    @classmethod
    def opened(cls, persons: Any, scratch: Path, weight_kind: str) -> PersonsTable | None:
        """Open the table, if there is one; one in memory becomes a file in ``scratch`` first."""
        if persons is None:
            return None
        folder = scratch / "persons-source"
        folder.mkdir()
        if not hasattr(persons, "to_parquet"):
            return cls(open_persons(persons, folder).with_weights(weight_kind), str(persons))
        path = folder / "persons.parquet"
        try:
            persons.to_parquet(path, engine="pyarrow", index=False, write_page_checksum=True)
            return cls(open_persons(path, folder).with_weights(weight_kind), _IN_MEMORY)
        except InputError as error:
            raise InputError(str(error).replace(str(path), _IN_MEMORY)) from None
        except Exception as error:
            raise InputError(f"{_IN_MEMORY} cannot be read: {error}") from error

    def error(self, message: str, line: int | None = None) -> InputError:
        """Return the error to raise, with the table and the line in front."""
        text = str(self.source.error(message, line))
        return InputError(text.replace(str(self.source.path), self.name, 1))
