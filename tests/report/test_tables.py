"""Plots and the page of published tables."""

from __future__ import annotations

import base64
import io
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import irt_dask as irt
from irt_dask.cli.main import cli
from irt_dask.report.published import write_tables

JK2 = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=15)
STATISTICS = ("mean", "sd", "p5", "p25", "p75", "p95")


@pytest.fixture(scope="module")
def persons() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    n = 600
    country = rng.choice(["Aland", "Borneo <b>", "Chad"], n)
    ability = 500 + 40 * (country == "Chad") + rng.normal(0, 80, n)
    values = {f"PV{m}": ability + rng.normal(0, 30, n) for m in range(1, 4)}
    about = {"country": country, "sex": rng.choice(["f", "m"], n)}
    return pd.DataFrame(about | values | {"zone": np.arange(n) // 40 + 1, "unit": np.arange(n) % 2})


@pytest.fixture(scope="module")
def table(persons: pd.DataFrame) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", irt.DataWarning)  # of few degrees of freedom
        return irt.tabulate(
            persons, {"math": "PV*"}, by=["country", "sex"], replicates=JK2, statistics=STATISTICS,
            gaps="sex",
        )  # fmt: skip


def of(table: pd.DataFrame, statistic: str, row: str = "group") -> pd.DataFrame:
    return table[(table["statistic"] == statistic) & (table["row"] == row)]


@pytest.mark.parametrize(
    ("statistic", "row"), [("mean", "group"), ("sd", "group"), ("mean", "gap")]
)
def test_groups_are_drawn_from_the_largest_down(
    table: pd.DataFrame, statistic: str, row: str
) -> None:
    ax = irt.plot.groups(table, statistic=statistic, row=row)
    rows = of(table, statistic, row).sort_values("estimate", ascending=False)
    dots = np.concatenate([c.get_offsets() for c in ax.collections if len(c.get_offsets()) > 1])
    np.testing.assert_allclose(np.asarray(dots)[:, 0], rows["estimate"])
    lines = next(
        c for c in ax.collections if hasattr(c, "get_segments") and len(c.get_segments()) > 1
    )
    ends = np.array(lines.get_segments())[:, :, 0]
    np.testing.assert_allclose(ends, rows[["lower", "upper"]].to_numpy())
    first = rows.iloc[0]
    assert ax.get_yticklabels()[0].get_text() == f"{first['country']}, {first['sex']}"
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first is on top


def test_groups_without_errors_are_hollow(persons: pd.DataFrame) -> None:
    plain = irt.tabulate(persons, "PV1", by="country")
    ax = irt.plot.groups(plain)
    filled, hollow = ax.collections[-2:]
    assert (len(filled.get_offsets()), len(hollow.get_offsets())) == (0, 3)


def test_percentiles_are_bands(table: pd.DataFrame) -> None:
    ax = irt.plot.percentiles(table)
    bars = [[(b.get_x(), b.get_x() + b.get_width()) for b in c] for c in ax.containers]
    order = of(table, "mean").sort_values("estimate", ascending=False)
    keys = list(zip(order["country"], order["sex"], strict=True))
    for (low, high), drawn in zip((("p5", "p95"), ("p25", "p75")), bars, strict=True):
        ends = [of(table, p).set_index(["country", "sex"])["estimate"][keys] for p in (low, high)]
        np.testing.assert_allclose(drawn, np.stack(ends, axis=1))
    said = [t.get_text() for t in ax.get_legend().get_texts()]
    assert said == ["p5 to p95", "p25 to p75", "mean"]


def test_changes_are_drawn(table: pd.DataFrame) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", irt.DataWarning)
        change = irt.trend(table, table, linking_error=2.0)
    ax = irt.plot.groups(change)
    assert ax.get_xlabel() == "change of the mean of math"


def test_what_cannot_be_drawn_is_named(table: pd.DataFrame, persons: pd.DataFrame) -> None:
    with pytest.raises(irt.InputError, match="statistic='p50': the table has"):
        irt.plot.groups(table, statistic="p50")
    with pytest.raises(irt.InputError, match="variable='reading': the table has 'math'"):
        irt.plot.groups(table, variable="reading")
    with pytest.raises(irt.InputError, match="row='gaps' is not available"):
        irt.plot.groups(table, row="gaps")
    two = irt.tabulate(persons, {"one": "PV1", "other": "PV2"}, by="sex")
    with pytest.raises(irt.InputError, match="say which of 'one', 'other'"):
        irt.plot.groups(two)
    with pytest.raises(irt.InputError, match="the table has no gaps"):
        irt.plot.groups(two, variable="one", row="gap")
    with pytest.raises(irt.InputError, match="fewer than two percentiles"):
        irt.plot.percentiles(two)
    with pytest.raises(irt.InputError, match="give a result of tabulate or trend"):
        irt.plot.groups(persons)


def test_the_page_has_tables_pictures_and_the_files(table: pd.DataFrame, tmp_path: Path) -> None:
    path = write_tables(tmp_path / "page.html", {"Means <of> all": table}, title="A & B")
    page = path.read_text()
    assert "<title>A &amp; B</title>" in page
    assert "Means &lt;of&gt; all" in page
    assert "<b>" not in page  # of a country's name
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
    alts = re.findall(r'<img [^>]*alt="([^"]+)"', page)
    assert len(alts) == 3  # means, gaps, percentiles
    data = re.search(r'href="data:text/csv;charset=utf-8;base64,([^"]+)"', page)
    assert data is not None
    again = pd.read_csv(io.BytesIO(base64.b64decode(data[1])))
    np.testing.assert_allclose(again["estimate"], table["estimate"], rtol=1e-15)
    again = write_tables(tmp_path / "again.html", {"Means <of> all": table}, title="A & B")
    assert again.read_bytes() == path.read_bytes()


def test_the_shell_writes_the_page(persons: pd.DataFrame, tmp_path: Path) -> None:
    persons.to_csv(tmp_path / "p.csv", index=False)
    base = ["tabulate", str(tmp_path / "p.csv"), "--values", "math=PV*", "--by", "country"]
    result = CliRunner().invoke(cli, [*base, "--report", str(tmp_path / "p.html")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "p.html").read_text().count("<img") == 1
    result = CliRunner().invoke(cli, [*base, "--report", str(tmp_path / "p.txt")])
    assert result.exit_code != 0
    assert "does not end in .html" in str(result.exception)
