"""The distribution of abilities that were written to a folder, for the person-item map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.engine import dataset, person_files
from irt_dask.errors import InputError
from irt_dask.store.documents import from_json
from irt_dask.store.places import local_path, read_bytes

#: Classes of the histogram of scores, which counts abilities beyond in the last one.
_LOW, _HIGH, _CLASSES = -6.0, 6.0, 60


def description(folder: str | Path) -> dict[str, Any]:
    """Return what a folder of finished scores says of itself; InputError if it is none."""
    path = local_path(folder, "a folder of scores")
    if not (path / person_files.DONE).exists():
        raise InputError(f"{folder} holds no finished scores; make them with irt-dask score")
    return dict(from_json(read_bytes(path / person_files.DONE), constants=True))


def count_abilities(folder: str | Path) -> xr.Dataset:
    """Count the persons of a folder of scores by ability, as scoring did, a file at a time.

    Returns
    -------
    Dataset with ``ability_count`` on ``ability``, the middles of 60 classes from -6 to 6; persons
    count as often as their frequency weights say.

    Raises
    ------
    InputError
        If the folder holds no finished scores of one ability, or a file is damaged.
    """
    path, n_blocks = local_path(folder, "a folder of scores"), description(folder)["n_blocks"]
    count = np.zeros(_CLASSES, dtype=np.int64)
    for file in (person_files.file_of(path, k) for k in range(n_blocks)):
        said = person_files.footer(file)
        columns = person_files.column_names(file)
        if columns and "person_ability" not in columns:
            raise InputError(
                f"{file} has no column person_ability: a map shows one ability, and these are "
                f"not scores of one"
            )
        if said is None:
            raise InputError(f"{file} is missing or damaged; run irt-dask score again")
        count += np.array(said["sums"][0], dtype=np.int64)
    edges = np.linspace(_LOW, _HIGH, _CLASSES + 1)
    middles = 0.5 * (edges[1:] + edges[:-1])
    attrs = {"method": "scores", "n_persons": int(count.sum())}
    return dataset({"ability_count": count}, coords={"ability": middles}, attrs=attrs)
