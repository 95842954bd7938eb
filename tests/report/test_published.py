"""The page of published tables."""

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
from irt_dask.report import published
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


def test_the_page_has_tables_pictures_and_the_files(table: pd.DataFrame, tmp_path: Path) -> None:
    path = write_tables(tmp_path / "page.html", {"Means <of> all": table}, title="A & B")
    page = path.read_text()
    assert "<title>A &amp; B</title>" in page
    assert "Means &lt;of&gt; all" in page
    assert "<b>" not in page  # of a country's name
    assert not re.search("https?:", re.sub(r"base64,[A-Za-z0-9+/=]+", "", page))
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


def test_a_page_of_changes_tells_of_the_link(table: pd.DataFrame, tmp_path: Path) -> None:
    """An error of 0 that was said is no error that was found."""
    at = table["statistic"] == "mean"
    for error, told in ((0.0, True), (2.0, False)):
        changes = irt.trend(table[at], table[at], linking_error=error)
        page = write_tables(tmp_path / "t.html", {"Changes": changes}, title="Changes").read_text()
        assert "the error of the link between the two scales" in page
        assert ("It was said to be 0" in page) == told
        assert "<nav" not in page
    page = write_tables(tmp_path / "p.html", {"a": table[at], "b": table[at]}, title="c")
    assert "error of the link" not in page.read_text()
    assert "<nav" in page.read_text()


def test_pictures_that_are_left_out_are_counted(
    table: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "_MOST_IMAGES", 2)
    one = table[(table["statistic"] == "mean") & (table["row"] == "group")]
    many = pd.concat([one.assign(variable=f"v{k}") for k in range(3)], ignore_index=True)
    page = write_tables(tmp_path / "m.html", {"many": many}, title="c").read_text()
    assert page.count("<img") == 2
    assert "Pictures that are not drawn: 1; at most 2 are, of up to 400 groups each." in page
    assert "not drawn" not in write_tables(tmp_path / "o.html", {"o": one}, title="c").read_text()
