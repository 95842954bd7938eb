"""Gaps between groups and correlations of domains, by brute force."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.stats import t as student
from test_tabulate import STATISTICS, simulated

import irt_dask as irt
from irt_dask.cli.main import cli
from irt_dask.errors import DataWarning, InputError
from irt_dask.survey import tables

DESIGN = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=12, weight="w")


def weights_of(frame):
    """The full sample's weights and those of JK2's replicates."""
    w = frame["w"].to_numpy()
    return [w] + [w * np.where(frame["zone"] == z, np.where(frame["unit"] == 1, 2, 0), 1)
                  for z in range(1, 13)]  # fmt: skip


def rubin(t):
    """Estimate and errors of values (replicates + 1, plausible values), c = 1."""
    u = np.mean([((t[1:, m] - t[0, m]) ** 2).sum() for m in range(t.shape[1])])
    b = (1 + 1 / t.shape[1]) * t[0].var(ddof=1)
    return [t[0].mean(), np.sqrt(u), np.sqrt(b), np.sqrt(u + b)]


def figures(rows):
    names = ["estimate", "se_sampling", "se_imputation", "se"]
    return rows[names].to_numpy(dtype=float)


def domains(n=600, **options):
    """Persons with plausible values of two domains and a single score."""
    frame = simulated(n, **options)
    rng = np.random.default_rng(8)
    noise = rng.normal(0, 70, n)
    for m in range(1, 6):
        frame[f"READ{m}"] = 0.6 * frame[f"PV{m}"] + noise + rng.normal(0, 20, n)
    return frame.assign(escs=(noise + rng.normal(0, 90, n)) / 100)


TWO = {"math": "PV*", "read": "READ*"}


def pearson(x, y, w):
    w = w / w.sum()
    x, y = x - w @ x, y - w @ y
    return w @ (x * y) / np.sqrt((w @ (x * x)) * (w @ (y * y)))


def test_gaps_are_what_one_gets_by_hand(monkeypatch):
    monkeypatch.setattr(tables, "_ROWS", 97)  # several batches
    frame = simulated()
    options = {"by": ["country", "sex"], "replicates": DESIGN, "statistics": list(STATISTICS)}
    table = irt.tabulate(frame, "PV*", gaps="sex", **options)
    groups = table[table["row"] == "group"].drop(columns="row")
    pd.testing.assert_frame_equal(groups, irt.tabulate(frame, "PV*", **options))
    gaps = table[table["row"] == "gap"]
    assert gaps["sex"].unique().tolist() == ["m minus f"]
    assert gaps["country"].unique().tolist() == [1, 2, 3]
    for row in gaps.itertuples():
        part = frame[frame["country"] == row.country]
        values = {}
        for sex in "fm":
            one = part[part["sex"] == sex]
            values[sex] = np.array([[STATISTICS[row.statistic](one[f"PV{m}"].to_numpy(), w)
                                     for m in range(1, 6)] for w in weights_of(one)])  # fmt: skip
        wanted = rubin(values["m"] - values["f"])
        mine = [row.estimate, row.se_sampling, row.se_imputation, row.se]
        np.testing.assert_allclose(mine, wanted, rtol=1e-8, atol=1e-9)
        assert row.n == len(part)


def test_gaps_hold_what_groups_have_in_common():
    # boys and girls of the same schools: the zone's effect drops out of their difference
    frame = simulated()
    frame["PV1"] += 300 * (frame["zone"] % 3) + 200 * frame["unit"]
    table = irt.tabulate(frame, "PV1", by="sex", gaps="sex", replicates=DESIGN, statistics="mean")
    apart = np.hypot(*table["se"][:2])
    assert table["se"][2] < 0.8 * apart
    means = irt.regress(frame, "PV1 ~ sex", replicates=DESIGN)
    np.testing.assert_allclose(table["estimate"][2], means["estimate"][1], rtol=1e-9)
    np.testing.assert_allclose(table["se"][2], means["se"][1], rtol=1e-7)


def test_degrees_of_freedom_of_gaps_are_of_both_groups():
    frame = simulated(n_values=1)
    frame["half"] = np.where(frame["zone"] <= 7, "a", "b")  # 7 zones and 5
    table = irt.tabulate(frame, "PV1", by="half", gaps="half", replicates=DESIGN)
    assert table["df"].tolist() == [7, 7, 5, 5, 12, 12]
    se = table["se"].to_numpy()
    np.testing.assert_allclose(se[4:], np.hypot(se[:2], se[2:4]))


def test_levels_are_compared_with_one():
    frame = simulated()
    options = {"by": ["country", "sex"], "statistics": "mean", "weight": "w"}
    first = irt.tabulate(frame, "PV*", gaps="country", **options)
    assert first["country"][first["row"] == "gap"].tolist() == [
        "2 minus 1", "3 minus 1", "2 minus 1", "3 minus 1",
    ]  # fmt: skip
    third = irt.tabulate(frame, "PV*", gaps={"country": 3, "sex": None}, **options)
    gaps = third[third["row"] == "gap"].set_index(["country", "sex"])["estimate"]
    assert list(gaps.index) == [
        ("1 minus 3", "f"), ("2 minus 3", "f"), ("1 minus 3", "m"), ("2 minus 3", "m"),
        (1, "m minus f"), (2, "m minus f"), (3, "m minus f"),
    ]  # fmt: skip
    means = third[third["row"] == "group"].set_index(["country", "sex"])["estimate"]
    np.testing.assert_allclose(gaps["1 minus 3", "m"], means[1, "m"] - means[3, "m"])
    np.testing.assert_allclose(gaps[3, "m minus f"], means[3, "m"] - means[3, "f"])


def test_gaps_that_are_not_there_are_said():
    frame = simulated()
    some = frame[(frame["country"] != 2) | (frame["sex"] == "f")]
    with pytest.warns(DataWarning, match="'PV\\*' has no gap of 'sex' where 'f' or .* lack: '2'"):
        table = irt.tabulate(some, "PV*", by=["country", "sex"], gaps="sex", weight="w")
    assert table["country"][table["row"] == "gap"].tolist() == [1, 1, 3, 3]
    with pytest.warns(DataWarning, match="where 'm' or .* lack: '2'"):
        irt.tabulate(some, "PV*", by=["country", "sex"], gaps={"sex": "m"}, weight="w")
    for options, message in (
        ({"gaps": "sex"}, r"gaps= has 'sex', which is not in by=\[\]: add it there"),
        ({"by": "sex", "gaps": {"sex": "x"}}, "compares with 'x' of 'sex'; there are 'f', 'm'"),
        ({"by": "sex", "gaps": ["sex", "sex"]}, "gaps= has 'sex' twice"),
    ):
        with pytest.raises(InputError, match=message):
            irt.tabulate(frame, "PV*", **options)
    with pytest.raises(InputError, match="'f' is the only level"):
        irt.tabulate(frame[frame["sex"] == "f"], "PV*", by="sex", gaps="sex")
    with pytest.raises(InputError, match="by= has 'n', a column of the result"):
        irt.tabulate(frame.rename(columns={"sex": "n"}), "PV*", by="n")


def test_correlations_are_what_one_gets_by_hand(monkeypatch):
    monkeypatch.setattr(tables, "_ROWS", 97)
    frame = domains()
    frame.loc[frame.index[5:40], [f"READ{m}" for m in range(1, 6)]] = np.nan
    table = irt.tabulate(
        frame, TWO | {"escs": "escs"}, by="sex", gaps="sex", replicates=DESIGN,
        statistics=["mean", "correlation"],
    )  # fmt: skip
    related = table[table["statistic"] == "correlation"]
    names = ["math with read", "math with escs", "read with escs"]
    assert related["variable"].tolist() == [name for name in names for _ in range(3)]
    columns = {"math": "PV{}", "read": "READ{}", "escs": "escs"}
    for name in names:
        a, b = (columns[k] for k in name.split(" with "))
        values = {}
        for sex in "fm":
            one = frame[(frame["sex"] == sex) & frame["READ1"].notna()]
            if "read" not in name:
                one = frame[frame["sex"] == sex]
            values[sex] = np.array([[pearson(one[a.format(m)], one[b.format(m)], w)
                                     for m in range(1, 6)] for w in weights_of(one)])  # fmt: skip
        rows = related[related["variable"] == name]
        wanted = [rubin(t) for t in (values["f"], values["m"], values["m"] - values["f"])]
        np.testing.assert_allclose(figures(rows), wanted, rtol=1e-7)
        assert rows["n"].iloc[2] == (565 if "read" in name else 600)
    means = table[table["statistic"] == "mean"].reset_index(drop=True)
    alone = irt.tabulate(frame, TWO | {"escs": "escs"}, by="sex", gaps="sex", replicates=DESIGN,
                         statistics="mean")  # fmt: skip
    pd.testing.assert_frame_equal(means, alone)


def test_intervals_of_correlations_are_fishers():
    frame = domains(n=96)
    frame["READ1"] = frame["PV1"] + 0.2 * frame["READ1"]
    row = irt.tabulate(frame, {"a": "PV1", "b": "READ1"}, replicates=DESIGN,
                       statistics="correlation", level=0.999).iloc[0]  # fmt: skip
    half = student.ppf(0.9995, row["df"]) * row["se"]
    wanted = np.tanh(np.arctanh(row["estimate"]) + np.array([-1, 1]) * half
                     / (1 - row["estimate"] ** 2))  # fmt: skip
    np.testing.assert_allclose(row[["lower", "upper"]].astype(float), wanted)
    assert row["upper"] < 1


def test_what_has_no_correlation_is_said():
    frame = domains().assign(same=501.3)
    frame["PV1"] += 1e6  # far from the centre of the other
    for values, message in (
        ("PV*", "'correlation' is of two variables or more, and values='PV\\*' is one"),
        ({"a": "PV*", "b": ["READ1", "READ2"]}, "'a' has 5 plausible values and 'b' has 2"),
    ):
        with pytest.raises(InputError, match=message):
            irt.tabulate(frame, values, statistics="correlation")
    with pytest.warns(DataWarning, match=r"do not differ, there is no correlation \(NaN\): 'all"):
        table = irt.tabulate(frame, {"a": "PV1", "b": "same"}, statistics="correlation")
    assert np.isnan(table["estimate"]).all()
    # far from the centre of all, rounding makes a variance of a constant
    far = frame.assign(same=np.where(frame["sex"] == "f", 0.1 + 1e3, frame["PV2"]))
    for a, b in (("PV2", "same"), ("same", "PV2")):
        with pytest.warns(DataWarning, match=r"no correlation \(NaN\): 'f'"):
            table = irt.tabulate(far, {"a": a, "b": b}, by="sex", weight="w",
                                 statistics="correlation")  # fmt: skip
        assert table["estimate"].isna().tolist() == [True, False]
    with pytest.warns(DataWarning, match="correlation of -1 or 1 has an error of 0"):
        table = irt.tabulate(
            frame, {"a": "PV*", "b": "PV*"}, statistics="correlation", replicates=DESIGN
        )
    np.testing.assert_allclose(table["estimate"], 1)
    assert np.isnan(table["upper"]).all()
    none = frame.assign(READ1=np.where(frame["sex"] == "f", frame["READ1"], np.nan))
    none["PV2"] = none["PV2"].where(none["sex"] == "m")
    with pytest.warns(DataWarning, match="nobody has values of 'a' and 'b'"):
        irt.tabulate(none, {"a": "PV2", "b": "READ1"}, statistics=["mean", "correlation"])


def test_the_shell_reaches_them(tmp_path):
    frame = domains()
    for r, w in enumerate(weights_of(frame)[1:]):
        frame[f"rep{r}"] = w
    frame.to_csv(tmp_path / "persons.csv", index=False)
    arguments = [
        "tabulate", str(tmp_path / "persons.csv"), "--values", "math=PV*", "--values",
        "read=READ*", "--by", "country", "--by", "sex", "--statistic", "mean", "--statistic",
        "correlation", "--weight", "w", "--replicates", "rep*", "--method",
        "jk2", "--gaps", "sex=m", "--gaps", "country", "--out", str(tmp_path / "t.csv"),
    ]  # fmt: skip
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert "f minus m" in result.output
    wanted = irt.tabulate(
        frame, TWO, by=["country", "sex"], statistics=["mean", "correlation"], weight="w",
        replicates=irt.Replicates("jk2", "rep*"), gaps={"sex": "m", "country": None},
    )  # fmt: skip
    written = pd.read_csv(tmp_path / "t.csv")
    wanted["country"] = wanted["country"].astype(str)
    pd.testing.assert_frame_equal(written, wanted, check_dtype=False)
