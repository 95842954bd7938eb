"""Whole results in files: netCDF, which keeps what an item bank leaves out."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr
from xarray.backends import ScipyDataStore

from irt_dask.banks.files import read_items
from irt_dask.errors import InputError
from irt_dask.items.checks import check_flags
from irt_dask.store import Responses
from irt_dask.store.manifest import write_atomically
from irt_dask.store.places import local_path, read_bytes
from irt_dask.variables import describe

_INT32 = 2**31 - 1
#: Attribute: fingerprints of the responses that were fitted, with their weights and without.
_FITTED = "data_checksums"


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
        values = array.values
        if values.dtype.kind == "i" and np.any((values > _INT32) | (values < -_INT32)):
            result[key] = array.astype(float)
    file = io.BytesIO()
    # Dataset.to_netcdf does the same, but imports distributed first, to see whether it is in use.
    store = ScipyDataStore(file, mode="w")
    result.dump_to_store(store)
    store.sync()
    return file.getvalue()


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


def of_responses(fit: xr.Dataset, stored: Responses, used: Responses) -> xr.Dataset:
    """Return the fit with a note of the responses that it is of, and of weights not used."""
    each = stored.fingerprint, stored.select(weights="ignore").fingerprint, used.fingerprint
    ignored = stored.max_weight is not None and used.max_weight is None
    weights = {"weight_kind": "ignored"} if ignored else {}
    return fit.assign_attrs({_FITTED: list(dict.fromkeys(each)), **weights})


def is_of(fit: xr.Dataset, checksum: str) -> bool | None:
    """Whether these are the responses that were fitted; None if the fit does not say."""
    known = fit.attrs.get(_FITTED)
    return None if known is None else checksum in known.split(",")


def read_bank(path: str | Path) -> xr.Dataset:
    """Items of a bank (.csv, .json), or the whole fit that a run or ``calibrate`` left (.nc).

    Raises
    ------
    InputError
        If there is no such file, or it is something else.
    """
    return _read(path, "a fit", _check) if str(path).endswith(".nc") else read_items(path)


def read_population(path: str | Path) -> xr.Dataset:
    """The result of ``fit_population`` that ``irt-dask population`` left (.nc).

    Raises
    ------
    InputError
        If there is no such file, or it is something else.
    """

    def check(result: xr.Dataset) -> None:
        if "component_loading" not in result or "design" not in result.attrs:
            raise ValueError("it is no population model")
        _check_dims(result)

    return _read(path, "a population model", check)


def _read(path: str | Path, what: str, check: Callable[[xr.Dataset], None]) -> xr.Dataset:
    path = local_path(path, "the result of a run")
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    try:
        result = xr.load_dataset(io.BytesIO(data), engine="scipy")
        check(result)
    except Exception as error:  # a damaged file can raise anything
        raise InputError(f"{path} is not {what} that was saved, or is damaged: {error}") from error
    return result


def _check(result: xr.Dataset) -> None:
    """Stop at what no result has; dtypes are those of netCDF 3, which lacks some."""
    if "item_id" not in result:
        raise ValueError("it has no item_id")
    _check_dims(result)
    if "item_flag" in result:
        check_flags(result["item_flag"].values.astype(str))


def _check_dims(result: xr.Dataset) -> None:
    for name, array in result.variables.items():
        dims = describe(str(name)).dims_of(array.ndim)
        if array.dims != dims:
            raise ValueError(f"{name} is over {array.dims}, not {dims}")
