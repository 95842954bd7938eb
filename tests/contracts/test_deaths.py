"""A worker that dies while a method computes changes nothing, whichever method it is."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from registry import ITEMS, METHODS, M, Method, table, values, weights
from test_same_bits import digests

import irt_dask as irt

#: Rows of a block.
ROWS = 100


def deadly(y: np.ndarray, marker: Path) -> np.ndarray:
    """Responses; the first process that reads the marked block is killed while it does."""
    if len(y) and (y[0] == -2).all():
        with contextlib.suppress(FileExistsError):
            marker.touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        y = np.where(y == -2, -1, y)
    return y


def every() -> list[Any]:
    """Every method whose result does not change by itself; most of them at night."""
    often = {"marginal 2PL", "spectral", "score, EAP"}
    return [
        pytest.param(m, id=m.label, marks=[] if m.label in often else [pytest.mark.nightly])
        for m in METHODS
        if m.random != "secret"
    ]


@pytest.mark.cluster
@pytest.mark.parametrize("method", every())
def test_a_worker_dies(method: Method, tmp_path: Path) -> None:
    """Each has a cluster of its own: Dask starts none anew that dies as it starts."""
    y = values(missing=0.15, of=method)
    y[ROWS] = -1
    marked = y.copy()
    marked[ROWS] = -2
    array = da.from_array(marked, chunks=(ROWS, M))
    killed = da.map_blocks(deadly, array, tmp_path / "killed", dtype=y.dtype, meta=y[:0])
    columns = table() | ({"weight": weights()} if method.weights else {})
    options = {
        "persons": columns,
        "item_id": ITEMS,
        "rows_per_block": ROWS,
        "categories": method.categories,
    }
    with irt.connect({"workers": 2}) as client:
        got = method(irt.from_array(killed, **options), client=client)
    assert (tmp_path / "killed").exists()
    assert digests(got) == digests(method(irt.from_array(y, **options)))
