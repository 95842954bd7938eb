"""Person weights: their scale does not matter, frequencies count persons, absurd ones stop."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from registry import METHODS, Method, N, as_responses, each, table, values, weights

import irt_dask as irt
from irt_dask.store import manifest
from irt_dask.store.weights import Sums

WEIGHTED = [m for m in METHODS if m.weights]
USED = [m for m in WEIGHTED if m.uses_weights]
#: Draws of equal weights are carried to the scatter of the persons; shards are dealt rows.
EXACT = [m for m in USED if m.name != "fit_bayes"]
EXPANDED = [m for m in WEIGHTED if "n_shards" not in m.options]
#: What a result says of the weights themselves, and of the way it took.
ABOUT = {"mean_weight", "weight_kind", "n_iterations", "residual", "n_passes"}
Y = values(missing=0.2)


def codes(method: Method) -> np.ndarray:
    return values(missing=0.2, of=method)


NAMED: dict[str, Any] = {"columns": {"weight": "weight"}}


def given(
    y: np.ndarray | Method, weight: np.ndarray, kind: str = "sampling", **options: Any
) -> Any:
    """Weighted responses, or those of a method."""
    if isinstance(y, Method):
        options["of"], y = y, codes(y)
    columns = table(len(y)) | {"weight": weight}
    return as_responses(y, persons=columns, weight_kind=kind, **options)


def same(got: xr.Dataset, expected: xr.Dataset, tolerance: float) -> None:
    """Compare all numbers, attributes too, next to 1 or to their size."""
    assert got.variables.keys() == expected.variables.keys()
    for name in expected.variables:
        a, b = got[name].values, expected[name].values
        if a.dtype.kind in "fi" and name != "iteration_objective":
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=str(name))
    assert got.attrs.keys() - ABOUT == expected.attrs.keys() - ABOUT
    for name in expected.attrs.keys() - ABOUT:
        a, b = got.attrs[name], expected.attrs[name]
        if isinstance(b, (int, float)):
            b = pytest.approx(b, rel=tolerance, nan_ok=True)
        assert a == b, name


@pytest.mark.parametrize("method", each(USED))
def test_a_common_factor_changes_nothing(method: Method, bits: Any) -> None:
    """Not a bit if it is a power of two; and it is told."""
    expected = method(given(method, weights()))
    assert expected.attrs["mean_weight"] == pytest.approx(weights().mean(), rel=1e-15)
    assert bits(method(given(method, weights() * 2.0**900))) == bits(expected)
    same(method(given(method, weights() * 1e-6)), expected, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("method", each(USED))
def test_a_million_times_changes_nothing(method: Method) -> None:
    same(method(given(method, weights() * 1e6)), method(given(method, weights())), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("method", each(EXACT))
def test_equal_weights_are_none(method: Method) -> None:
    got = method(given(method, np.full(N, 1.0 / N)))
    expected = method(as_responses(codes(method), of=method, persons=table()))
    of_errors = ("item_anchor", "_covariance", "_draw")
    if method.name == "fit_population":  # residual variances hold what coefficients' errors took
        of_errors += ("residual_", "group_sd", "group_correlation", "explained_share")
    about_se = [
        v for v in got.data_vars
        if str(v).endswith("_se") or any(part in str(v) for part in of_errors)
    ]  # fmt: skip
    # weights bring the sandwich
    robust = ("fit_marginal", "fit_concurrent", "fit_population", "fit_bifactor", "score")
    if method.name in robust:
        got, expected = got.drop_vars(about_se), expected.drop_vars(about_se)
        told = ("standard_errors", "n_sampling_units", "degrees_of_freedom")
        for name in ("anchor_chi2", "anchor_p_value", *told):
            got.attrs.pop(name, None), expected.attrs.pop(name, None)
    del got.attrs["mean_weight"], got.attrs["weight_kind"]
    same(got, expected, 1e-9)


@pytest.mark.parametrize("method", each(EXPANDED))
def test_a_table_of_patterns_is_the_expanded_data(method: Method) -> None:
    count = weights(whole=True)
    times = count.astype(int)
    columns = {k: np.repeat(v, times) for k, v in table().items()}
    got = method(given(method, count, "frequency"))
    expected = method(
        as_responses(np.repeat(codes(method), times, axis=0), of=method, persons=columns)
    )
    if method.persons:
        each = ["person_id", *(v for v in got.variables if "persons" in got[v].dims)]
        if method.random == "none":
            for name in set(each) - {"person_id"}:
                rows = np.repeat(got[name].values, times, axis=0)
                np.testing.assert_allclose(rows, expected[name], rtol=1e-9, atol=1e-9)
        got, expected = got.drop_vars(each), expected.drop_vars(each)
    if method.uses_weights:
        assert got.attrs["weight_kind"] == "frequency"
    same(got, expected, 1e-9)


# --- views, stores, files -------------------------------------------------------------------------


def test_a_selection_has_its_own_mean() -> None:
    """As if only the selected persons were there."""
    whole, half = given(Y, weights()), slice(0, N // 2)
    got = irt.fit_spectral(whole.select(persons=half))
    expected = irt.fit_spectral(
        as_responses(Y[half], persons={"weight": weights()[half]}, weight_kind="sampling")
    )
    assert got.attrs["mean_weight"] == weights()[half].mean()
    same(got, expected, 1e-12)


def in_file(path: Path, y: np.ndarray, weight: np.ndarray, first: int = 0) -> Path:
    lines = ["person,weight," + ",".join(f"i{j}" for j in range(y.shape[1]))]
    lines += [
        ",".join([f"p{first + i}", repr(w), *map(str, row)])
        for i, (w, row) in enumerate(zip(weight.tolist(), y, strict=True))
    ]
    path.write_text("\n".join(lines))
    return path


def test_a_store_keeps_the_kind(tmp_path: Path, bits: Any) -> None:
    count = weights(whole=True)
    first, more = (in_file(tmp_path / f"{k}.csv", Y[k::2], count[k::2], k * N) for k in (0, 1))
    irt.ingest(first, tmp_path / "s", weight_kind="frequency", rows_per_block=37, **NAMED)
    r = irt.append(more, tmp_path / "s", **NAMED)
    assert (r.weight_kind, irt.open_responses(tmp_path / "s").weight_kind) == ("frequency",) * 2
    order = np.concatenate([np.arange(0, N, 2), np.arange(1, N, 2)])
    ids = [f"p{i // 2 + (i % 2) * N}" for i in order]
    expected = irt.from_array(
        Y[order], person_id=ids, item_id=r.item_id, weight_kind="frequency",
        persons={"weight": count[order]},
    )  # fmt: skip
    assert bits(irt.fit_spectral(r)) == bits(irt.fit_spectral(expected))
    assert irt.fit_spectral(r).attrs["n_persons"] == count.sum()
    third = in_file(tmp_path / "3.csv", Y[:2], np.array([1.0, 2.5]), 10 * N)
    with pytest.raises(irt.InputError, match=r"line 3.*2\.5.*whole number"):
        irt.append(third, tmp_path / "s", **NAMED)


def test_old_readers_refuse_a_store_of_frequencies(tmp_path: Path, monkeypatch: Any) -> None:
    """Format 3 where it is needed alone; a name of what it needs that is unknown is refused."""
    source = in_file(tmp_path / "a.csv", Y, weights(whole=True))
    irt.ingest(source, tmp_path / "sampling", **NAMED)
    irt.ingest(source, tmp_path / "frequency", weight_kind="frequency", **NAMED)
    written = {
        k: json.loads((tmp_path / k / "manifest.json").read_text())
        for k in ("sampling", "frequency")
    }
    assert {k: m["format_version"] for k, m in written.items()} == {"sampling": 2, "frequency": 3}
    monkeypatch.setattr(manifest, "_KNOWN", set())
    assert irt.open_responses(tmp_path / "sampling").weight_kind == "sampling"
    with pytest.raises(irt.StoreError, match="needs frequency weights"):
        irt.open_responses(tmp_path / "frequency")


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weight, kind, message",
    [
        ([1e300, 1e-300], "sampling", "2\\^-40 times"),
        ([1.0, np.inf], "sampling", "finite number above 0"),
        ([1.0, np.nan], "sampling", "finite number above 0"),
        ([1.0, -1.0], "sampling", "finite number above 0"),
        ([0.0, 0.0], "sampling", "finite number above 0"),
        ([1.0, 0.5], "frequency", "whole number of at least 1"),
        ([1.0, 0.0], "frequency", "whole number of at least 1"),
        ([2.0**53, 2.0**53], "frequency", "at most"),
        ([1.0, 2.0], "replicate", "weight_kind='replicate'"),
    ],
)
def test_absurd_weights(weight: list[float], kind: str, message: str) -> None:
    with pytest.raises(irt.InputError, match=message):
        irt.from_array(Y[:2], persons={"weight": weight}, weight_kind=kind)


def test_absurd_weights_of_a_store_and_a_kind_without_weights(tmp_path: Path) -> None:
    weight = np.full(N, 1e-300)
    weight[0] = 1e300
    r = irt.ingest(in_file(tmp_path / "a.csv", Y, weight), tmp_path / "s", **NAMED)
    with pytest.raises(irt.InputError, match="from 1e-300 to 1e\\+300"):
        irt.fit_spectral(r)
    with pytest.raises(irt.InputError, match="no column 'weight'"):
        irt.from_array(Y, weight_kind="frequency")
    source = tmp_path / "b.csv"
    source.write_text("person,i0,i1\np0,1,0\np1,0,1\n")
    with pytest.raises(irt.InputError, match="no column of weights"):
        irt.ingest(source, tmp_path / "t", weight_kind="frequency")


@pytest.mark.parametrize("weight", [1e-300, 5e-324, 1e308])
def test_tiny_and_huge_weights_are_weights(weight: float) -> None:
    expected = irt.fit_spectral(as_responses(Y))
    np.testing.assert_allclose(
        irt.fit_spectral(given(Y, np.full(N, weight)))["item_difficulty"],
        expected["item_difficulty"],
        atol=1e-12,
    )


def test_sums_of_weights_are_exact() -> None:
    """Next to fractions, in any grouping."""
    w = np.random.default_rng(0).lognormal(0.0, 30.0, 500)
    expected = sum(Fraction(x) for x in w.tolist())
    whole, parts = Sums.of(w), Sums.of(w[:123]).plus(Sums.of(w[123:]))
    assert whole == parts
    assert whole.total == expected * 2**1126
    assert whole.mean == float(expected / 500)
