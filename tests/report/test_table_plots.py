"""Plots of tables of groups show what the tables say, and what they do not know."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.errors import InputError

BANDS = ["p5", "p25", "p50", "p75", "p95"]


@pytest.fixture(scope="module")
def persons():
    rng = np.random.default_rng(1)
    n = 480
    ability = rng.normal(500, 100, n)
    frame = pd.DataFrame({f"PV{m}": ability + rng.normal(0, 0.5, n) for m in range(1, 4)})
    return frame.assign(
        country=np.array(["$A$", "B", "C", "D"])[np.arange(n) % 4], sex=np.arange(n) // 4 % 2,
        zone=np.arange(n) // 40 + 1, unit=np.arange(n) // 8 % 2,
    )  # fmt: skip


def tabulated(persons, **options):
    design = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=12)
    options = {"by": "country", "replicates": design, "statistics": "mean"} | options
    return irt.tabulate(persons, {"math": "PV*"}, **options)


def names(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def test_a_forest_has_estimates_and_intervals_of_groups(persons):
    table = tabulated(persons, statistics=["mean", "sd"])
    ax = irt.plot.groups(table, statistic="mean")
    wanted = table[table["statistic"] == "mean"].sort_values("estimate")
    assert names(ax) == wanted["country"].tolist()
    np.testing.assert_allclose(ax.collections[1].get_offsets()[:, 0], wanted["estimate"])
    lines = np.array(ax.collections[0].get_segments())
    np.testing.assert_allclose(lines[:, :, 0], wanted[["lower", "upper"]])
    assert ax.get_title() == "mean of math in 4 groups"
    unsorted = irt.plot.groups(table, statistic="mean", sort=False, ax=ax)
    assert names(unsorted) == ["D", "C", "B", "$A$"]
    ax.figure.canvas.draw()  # a dollar is no formula


def test_what_is_not_known_is_drawn_as_such(persons):
    table = tabulated(persons)
    table.loc[1, ["se", "lower", "upper"]] = np.nan
    table.loc[2, ["estimate", "lower", "upper"]] = np.nan
    ax = irt.plot.groups(table)
    assert ax.get_title() == "mean of math in 3 groups; 1 without an estimate"
    assert len(ax.collections[0].get_segments()) == 2
    assert len(ax.collections[2].get_offsets()) == 1
    assert [t.get_text() for t in ax.get_legend().get_texts()][-1] == "interval not known"


def test_gaps_and_trends_are_drawn(persons):
    table = tabulated(persons, by=["country", "sex"], gaps="sex")
    assert len(names(irt.plot.groups(table))) == 8
    assert "B, 1 minus 0" in names(irt.plot.groups(table, row="gap"))
    values = ["PV1", "PV2", "PV3"]
    later = tabulated(persons.assign(**{name: persons[name] + 20 for name in values}))
    change = irt.trend(tabulated(persons), later, linking_error=2.0)
    ax = irt.plot.groups(change)
    assert sorted(names(ax)) == ["$A$", "B", "C", "D"]
    assert ax.get_xlabel() == "change of mean"


def test_bands_lie_between_percentiles(persons):
    table = tabulated(persons, statistics=["mean", *BANDS])
    ax = irt.plot.percentiles(table)
    assert names(ax) == ["D", "C", "B", "$A$"]
    of_group = table[table["country"] == "D"].set_index("statistic")["estimate"]
    for bars, (low, high) in zip(ax.containers, (("p5", "p95"), ("p25", "p75")), strict=True):
        assert bars[0].get_x() == pytest.approx(of_group[low])
        assert bars[0].get_x() + bars[0].get_width() == pytest.approx(of_group[high])
    np.testing.assert_allclose(ax.collections[0].get_offsets()[0, 0], of_group["p50"])
    assert len(ax.collections[1].get_segments()) == 4
    without = irt.tabulate(persons, "PV1", by="country", statistics=BANDS[:2])
    assert len(irt.plot.percentiles(without).containers) == 1
    table.loc[table["country"] == "B", "estimate"] = np.nan
    assert irt.plot.percentiles(table).get_title().endswith("1 groups have not all of them")


@pytest.mark.parametrize(("draw", "said"), [
    (lambda t: irt.plot.groups(t), "give statistic=, one of 'mean', 'sd'"),
    (lambda t: irt.plot.groups(t, statistic="p5"), "statistic='p5' is not in the table"),
    (lambda t: irt.plot.groups(t, variable="read"), "variable='read' is not in the table"),
    (lambda t: irt.plot.groups(t, row="gap"), "has no such rows"),
    (lambda t: irt.plot.groups(t, row="gaps"), "choose 'group' or 'gap'"),
    (lambda t: irt.plot.groups(t[["country"]]), "has no column 'variable'"),
    (lambda t: irt.plot.percentiles(t), "has 0 percentile"),
    (lambda t: irt.plot.groups(t.assign(estimate=np.nan), statistic="sd"), "no estimate"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_said(persons, draw, said):
    table = tabulated(persons, statistics=["mean", "sd"])
    with pytest.raises(InputError, match=said):
        draw(table)
