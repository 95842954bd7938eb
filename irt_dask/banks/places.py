"""Where banks are written: what may be replaced there, and what may not."""

from __future__ import annotations

from pathlib import Path

from irt_dask.banks import covariances
from irt_dask.banks.tables import check_path, delimiter
from irt_dask.errors import InputError
from irt_dask.store.places import local_path

#: Bytes of a header that are read: those of a covariance have some 4,000.
_MOST = 1 << 16


def check_new_path(path: str | Path) -> Path:
    """Return the path of a bank to write.

    Raises
    ------
    InputError
        Its folder does not exist, it is a folder itself, or the file that would be replaced beside
        it, or taken away, is no covariance.
    """
    new = local_path(path, "an item bank that is written")
    check_path(new)
    if not new.absolute().parent.is_dir():
        raise InputError(f"item bank {new}: there is no folder {new.absolute().parent}")
    if new.is_dir():
        raise InputError(f"item bank {new}: a folder has this name; give another one")
    if new.suffix == ".csv":
        _check_beside(new, beside(new))
    return new


def beside(path: Path) -> Path:
    """The file of the covariance of a bank in .csv that is written."""
    return path.with_name(covariances.beside(path.name).name)


def _check_beside(bank: Path, path: Path) -> None:
    try:
        with open(path, "rb") as file:
            line = file.readline(_MOST).decode("utf-8-sig", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(
            f"item bank {bank}: {path}, the file of its covariance, cannot be read: {error}"
        ) from error
    names = [name.strip(' "\r\n') for name in line.split(delimiter(line))]
    if len(names) < 3 or names != ["item", "parameter", *map(str, range(1, len(names) - 1))]:
        raise InputError(
            f"item bank {bank}: beside it lies {path}, which would be the file of its covariance "
            f"and is none (its first line is not item, parameter, 1, 2, ...): move it, or give "
            f"the bank another name"
        )
