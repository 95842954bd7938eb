"""Whole results in files: netCDF, which keeps what an item bank leaves out."""

from __future__ import annotations

import io
from pathlib import Path

import xarray as xr

from irt_dask.banks.files import read_items
from irt_dask.errors import InputError
from irt_dask.store.manifest import write_atomically
from irt_dask.store.places import local_path

_INT32 = 2**31 - 1


def netcdf(result: xr.Dataset) -> bytes:
    """Return a result as netCDF 3, which needs no library beyond SciPy.

    xarray, R (ncdf4) and ArviZ open it.  It has no integers above 2^31, which are written as
    doubles (exact to 2^53), and no lists of texts, which are written as one, with commas.
    """
    result = result.copy()
    for key, value in result.attrs.items():
        if isinstance(value, int) and abs(value) > _INT32:
            result.attrs[key] = float(value)
        elif isinstance(value, list) and any(isinstance(part, str) for part in value):
            result.attrs[key] = ",".join(map(str, value))
    for key, array in result.variables.items():
        if array.dtype.kind == "i" and array.size and int(abs(array).max()) > _INT32:
            result[key] = array.astype(float)
    return bytes(result.to_netcdf(engine="scipy"))


def check_new_result(path: str | Path) -> Path:
    """Return the path of a result to write, refusing another ending and a folder that is none."""
    new = local_path(path, "a fit that is kept")
    if new.suffix != ".nc":
        raise InputError(f"fit {new}: the file name must end in .nc (netCDF)")
    if not new.absolute().parent.is_dir():
        raise InputError(f"fit {new}: there is no folder {new.absolute().parent}")
    return new


def write_result(result: xr.Dataset, path: Path) -> None:
    """Write a result, whole or not at all, to a path of :func:`check_new_result`."""
    write_atomically(path.absolute(), netcdf(result))


def read_bank(path: str | Path) -> xr.Dataset:
    """Items of a bank (.csv, .json), or the whole fit that a run or ``calibrate`` left (.nc).

    Raises
    ------
    InputError
        If there is no such file, or it is something else.
    """
    if not str(path).endswith(".nc"):
        return read_items(path)
    path = local_path(path, "the result of a run")
    try:
        with open(path, "rb") as file:
            result = xr.load_dataset(io.BytesIO(file.read()), engine="scipy")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (TypeError, ValueError, OSError) as error:
        raise InputError(f"{path} is not a fit that was saved: {error}") from error
    return result
