"""Same data, same bits, by every method: whatever blocks, layout and workers."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np
import pytest
import xarray as xr
from registry import METHODS, Method, as_responses, each, named, table, values, weights

import irt_dask as irt
from irt_dask.engine import core
from irt_dask.errors import IrtDaskWarning

SAME = [m for m in METHODS if m.random != "secret"]
#: Few blocks are cut into pieces, many are not; complete rows and others go different ways.
OTHERS: list[dict[str, Any]] = [
    {"rows_per_block": 150},
    {"rows_per_block": 7},
    {"rows_per_block": 23, "layout": "csr"},
]


def digests(result: xr.Dataset) -> dict[str, str]:
    """Digest of every variable, and all attributes."""
    out = {f"attrs[{k!r}]": repr(v) for k, v in result.attrs.items()}
    for name in result.variables:
        array = result[name].values
        array = array.astype("U") if array.dtype == object else array
        out[str(name)] = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return out


def data(method: Method, **options: Any) -> Any:
    """Some rows complete, some not; weighted where the method takes weights."""
    y = values(missing=0.15, of=method)
    columns = table() | ({"weight": weights()} if method.weights else {})
    return as_responses(y, of=method, persons=columns, **options)


@pytest.mark.parametrize("method", each(SAME))
def test_blocks_and_layouts(method: Method) -> None:
    assert digests(method(data(method, **OTHERS[-1]))) == digests(method(data(method)))


@pytest.mark.slow
@pytest.mark.parametrize("method", each(SAME))
def test_more_blocks(method: Method) -> None:
    expected = digests(method(data(method)))
    for other in OTHERS[:-1]:
        assert digests(method(data(method, **other))) == expected, other


@pytest.mark.slow
@pytest.mark.parametrize("method", each(SAME))
def test_workers(method: Method, client: Any) -> None:
    r = data(method, rows_per_block=100)
    assert digests(method(r, client=client)) == digests(method(data(method)))


@pytest.mark.parametrize(
    "label", ["marginal 2PL", "marginal 3PL", "marginal, anchors", "marginal, mixed"]
)
def test_frequencies_are_the_expanded_data_to_the_bit(label: str) -> None:
    """Rounded contributions are added as often as weights say."""
    method = named(label)
    y, times = values(missing=0.15, of=method), weights(whole=True).astype(int)
    columns = {k: np.repeat(v, times) for k, v in table().items()}
    got = digests(
        method(
            as_responses(y, of=method, persons=table() | {"weight": times}, weight_kind="frequency")
        )
    )
    expected = digests(
        method(as_responses(np.repeat(y, times, axis=0), of=method, persons=columns))
    )
    del got["attrs['weight_kind']"]
    assert got == expected


def test_ranges_of_items(monkeypatch: pytest.MonkeyPatch, bits: Any) -> None:
    """How many items a task maximises follows the number of workers; what it finds does not."""
    r = irt.simulate(600, 300, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)
        few = bits(irt.fit_joint(r, max_iterations=2))
        monkeypatch.setattr(core, "_LEAST_ITEMS", 300)
        assert bits(irt.fit_joint(r, max_iterations=2)) == few
