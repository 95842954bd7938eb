"""Shared by all tests: one local cluster for the session, and a way to compare bits."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from distributed.client import _set_global_client

from irt_dask import connect

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def client():
    """Two worker processes, for tests that pass the client on; not the default of the others."""
    with connect({"workers": 2}) as c:
        _set_global_client(None)
        yield c


@pytest.fixture(scope="session")
def bits():
    """A function from a Dataset to a checksum of every bit of its arrays and its objective."""

    def digest(result):
        h = hashlib.sha256()
        for name in sorted(result.variables):
            values = result[name].values
            h.update(name.encode())
            h.update(np.ascontiguousarray(values.astype("U") if values.dtype == object else values))
        h.update(repr(result.attrs.get("objective")).encode())
        return h.hexdigest()

    return digest


@pytest.fixture
def real_data():
    """The folder of real response files; a test that needs it skips where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"the folder of real response data, {DATA}, is not here")
    return DATA
