"""Percentiles of more persons than memory holds are those of persons that it holds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.survey import percentiles, sample, sums, tables

AT = ["p0.1", "p5", "p25", "p50", "p75", "p99.9"]


def persons(n=4000, seed=5):
    """Values of every kind, two at a time, with weights some of which are 0."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2))
    kinds = {
        "normal": x,
        "scores": 500 + 100 * x,
        "skewed": np.exp(40 * x),
        "tied": x.round(1),
        "few": rng.integers(-2, 3, (n, 2)) + 0.0,
        "signs": np.where(x > 0, 0.0, -0.0),
        "near": 1 + rng.integers(0, 40, (n, 2)) * np.spacing(1.0),
        "tiny": rng.integers(-3, 4, (n, 2)) * 5e-324,
        "far": np.where(rng.random((n, 2)) < 0.01, np.sign(x) * 1e100, x),
        "lacking": np.where(np.arange(n)[:, None] % 7 == 0, np.nan, x),
    }
    out = {f"{k}{m + 1}": v[:, m] for k, v in kinds.items() for m in range(2)}
    w = np.where(rng.random(n) < 0.2, 0, rng.integers(1, 4, n)) * rng.choice([0.1, 1.0], n)
    group = np.where(np.arange(n) == n // 2, "alone", np.sort(rng.choice([*"abc"], n)))
    group[: n // 50] = "nobody"  # whose weight is none
    w[group == "nobody"] = 0
    frame = pd.DataFrame(out).assign(group=group, w=w)
    factors = rng.choice([0.5, 1.5], (6, n))
    frame[[f"r{k}" for k in range(6)]] = (factors * w).T
    return frame, {k: f"{k}*" for k in kinds}


DESIGN = irt.Replicates("fay", "r*", weight="w", fay=0.5)


def tabulated(frame, values, by="group"):
    with pytest.warns(irt.DataWarning):
        return irt.tabulate(frame, values, by=by, replicates=DESIGN, statistics=["mean", *AT])


def passes_of(monkeypatch):
    """How often the table is read for percentiles, as it happens."""
    said: list[str] = []
    read = percentiles.read
    monkeypatch.setattr(percentiles, "read", lambda *a: said.append(a[3]) or read(*a))
    return said


@pytest.mark.parametrize(
    ("in_a_pass", "sampled", "fewest"),
    [
        (percentiles.MOST_BYTES, sample._MOST_BYTES, 2),
        (percentiles.MOST_BYTES, 2000, 2),  # bins are uneven
        (20_000, sample._MOST_BYTES, 20),  # groups take turns
        (1, 1, 100),  # nothing is held: bins are parted until one has a single value
    ],
)
def test_passes_find_what_memory_finds(in_a_pass, sampled, fewest, monkeypatch):
    frame, values = persons(200 if in_a_pass == 1 else 2000)
    if in_a_pass == 1:
        values = {k: values[k] for k in ("skewed", "tiny")}
    monkeypatch.setattr(tables, "_ROWS", 97 if in_a_pass == 1 else 499)
    wanted = tabulated(frame, values)
    said = passes_of(monkeypatch)
    monkeypatch.setattr(sums, "MOST_BYTES", 10_000)  # of a batch or some
    monkeypatch.setattr(percentiles, "MOST_BYTES", in_a_pass)
    monkeypatch.setattr(sample, "_MOST_BYTES", sampled)
    found = tabulated(frame, values)
    assert len(said) == 2 if fewest == 2 else len(said) >= fewest
    assert wanted["estimate"].notna().sum() > len(wanted) / 2
    pd.testing.assert_frame_equal(found, wanted, check_exact=True)


def test_values_that_many_have_need_no_second_look(monkeypatch):
    frame, _ = persons()
    wanted = tabulated(frame, "few*")
    said = passes_of(monkeypatch)
    monkeypatch.setattr(sums, "MOST_BYTES", 0)
    pd.testing.assert_frame_equal(tabulated(frame, "few*"), wanted)
    assert len(said) == 1


def test_all_persons_of_a_file(monkeypatch, tmp_path):
    """Against the definition, value by value, with no design and no group."""
    frame, _ = persons(300)
    frame.to_parquet(tmp_path / "persons.parquet")
    monkeypatch.setattr(sums, "MOST_BYTES", 0)
    told: list[str] = []
    found = irt.tabulate(
        tmp_path / "persons.parquet", "scores1", weight="w", statistics=AT,
        progress=lambda stage, done, n: told.append(stage),
    )  # fmt: skip
    x, w = frame["scores1"].to_numpy(), frame["w"].to_numpy()
    for name, estimate in zip(found["statistic"], found["estimate"], strict=True):
        share = float(name[1:]) / 100
        assert estimate == min(v for v in x if w[x <= v].sum() >= share * w.sum() * (1 - 1e-12))
    assert {"tables", "percentiles"} == set(told)


@pytest.mark.parametrize("weight", [0.1, 2.7])
@pytest.mark.parametrize("most", [sums.MOST_BYTES, 1000])
def test_rounding_of_many_equal_weights_moves_no_tie(weight, most, monkeypatch):
    """Of 100,000 persons, a quarter at each of 1 to 4: a sum of their weights misses 1e-11."""
    monkeypatch.setattr(sums, "MOST_BYTES", most)
    frame = pd.DataFrame({"x": np.tile([1.0, 2.0, 3.0, 4.0], 25_000), "w": weight})
    found = irt.tabulate(frame, "x", weight="w", statistics=["p25", "p50", "p75"])
    assert found["estimate"].tolist() == [1.0, 2.0, 3.0]
