"""The registry of methods is complete, and says of each what is so."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import registry
from registry import METHODS, Method, as_responses, each, table, values, weights

import irt_dask as irt


def is_method(name: str) -> bool:
    """Whether a public name takes responses, and returns something else."""
    value = getattr(irt, name)
    if not inspect.isfunction(value):
        return False
    signature = inspect.signature(value)
    return "responses" in signature.parameters and signature.return_annotation != "Responses"


def test_no_public_method_is_missing() -> None:
    public = {name for name in irt.__all__ if is_method(name)}
    assert {m.name for m in METHODS} == public


def test_labels_are_unique() -> None:
    assert len({m.label for m in METHODS}) == len(METHODS)


@pytest.mark.parametrize("method", each())
def test_records_say_what_is_so(method: Method, bits: Any) -> None:
    """Which persons' columns a method takes and looks at, and whether chance is in it."""
    y, columns = values(missing=0.2, of=method), table()
    plain = as_responses(y, of=method, persons=columns)
    result = method(plain)
    assert ("persons" in result.dims) == method.persons
    assert result.sizes.get("latent_dims", 1) == method.abilities

    again = bits(method(as_responses(y, of=method, persons=columns)))
    assert (again == bits(result)) == (method.random != "secret")
    assert method.random != "keyed" or "seed" in result.attrs
    assert not method.private or "objective" not in result.attrs
    # Fits flag items, but for releases under privacy and what knows pair counts alone.
    flagged = method.name.startswith(("fit_", "grow_")) and not method.private
    others = ("fit_choppin", "fit_saaty", "fit_population")
    assert ("item_flag" in result) == (flagged and method.name not in others)

    weighted = as_responses(y, of=method, persons=columns | {"weight": weights()})
    if not method.weights:
        with pytest.raises(irt.InputError, match="does not support person weights"):
            method(weighted)
    else:
        assert (bits(method(weighted)) == bits(result)) != method.uses_weights

    without = {k: v for k, v in columns.items() if k != "group"}
    if method.groups == "needs":
        with pytest.raises(irt.InputError, match="group"):
            method(as_responses(y, of=method, persons=without))
    elif method.random != "secret":
        same = bits(method(as_responses(y, of=method, persons=without))) == bits(result)
        assert same == (method.groups == "no")
    if method.covariates:
        other = columns | {"age": np.roll(columns["age"], 1)}
        assert bits(method(as_responses(y, of=method, persons=other))) != bits(result)


def test_data_are_what_methods_need() -> None:
    y = values(missing=0.5)
    for j in range(registry.M):
        for k in range(j):
            both = (y[:, [j, k]] >= 0).all(axis=1)
            assert (y[both, j] > y[both, k]).any()
            assert (y[both, j] < y[both, k]).any()
