"""Regressions against R's survey, a hand-made combination, and least squares on all persons."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from test_tabulate import REFERENCE, by_hand, needs_reference, simulated, timss

import irt_dask as irt
from irt_dask.cli.main import cli
from irt_dask.errors import DataWarning, InputError
from irt_dask.survey import tables


def least_squares(x, y, w):
    root = np.sqrt(w)
    return np.linalg.lstsq(root[:, None] * x, root * y, rcond=None)[0]


def jk2():
    return irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=12, weight="w")


@needs_reference
@pytest.mark.parametrize("method", ["jk2", "fay"])
def test_plausible_values_of_timss(method):
    frame, design, wanted = timss(method)
    found = irt.regress(frame, "PV* ~ sex + twn", replicates=design)
    assert found["term"].tolist() == ["Intercept", "sex", "twn", "R squared"]
    names = ["b0", "b_sex", "b_twn", "r2"]
    for mine, theirs in (
        ("estimate", "estimate"),
        ("se", "se"),
        ("fraction_missing", "fmi_lambda"),
    ):
        np.testing.assert_allclose(found[mine], wanted.loc[names, theirs], rtol=1e-9)


@needs_reference
def test_a_regression_of_survey():
    wanted = json.loads((REFERENCE / "survey.json").read_text())["api_clus1_JK1"]
    frame = pd.read_csv(REFERENCE / "data" / wanted["data"])
    design = irt.Replicates("jk1", "rw*", weight="pw")
    found = irt.regress(frame, "api00 ~ ell + meals + mobility", replicates=design)[:4]
    theirs = pd.DataFrame(wanted["glm"])
    np.testing.assert_allclose(found["estimate"], theirs["est"], rtol=1e-9)
    # 14 directions less 3 terms: the degrees of freedom that R takes for its tests
    assert found["df"].tolist() == theirs["df"].tolist() == [11] * 4
    # R's errors are about the mean of the replicates: smaller, by little
    ratio = found["se"].to_numpy() / theirs["se"]
    assert np.all((ratio >= 1) & (ratio < 1.1))


@pytest.mark.parametrize(("terms", "columns"), [
    ("sex * year + C(country)", 6), ("0 + sex + year", 3), ("np.log(w):sex", 3), ("1", 1),
])  # fmt: skip
def test_regressions_are_least_squares(terms, columns, monkeypatch):
    monkeypatch.setattr(tables, "_ROWS", 97)
    frame = simulated()
    frame["year"] = 2015 + frame.index % 4 + frame["sex"].eq("m") * 3.0
    out = irt.regress(frame, f"PV* ~ {terms}", replicates=jk2()).set_index("term")
    m, dates = frame["sex"].eq("m").to_numpy() * 1.0, frame["year"].to_numpy()
    one, log = np.ones(len(frame)), np.log(frame["w"].to_numpy())
    x = {
        6: [one, m, dates, frame["country"] == 2, frame["country"] == 3, m * dates],
        3: [1 - m, m, dates] if terms.startswith("0") else [one, log * (1 - m), log * m],
        1: [one],
    }[columns]  # fmt: skip
    x = np.stack(x, axis=1).astype(float)
    w = frame["w"].to_numpy()
    weights = [w]
    for z in range(1, 13):
        weights.append(w * np.where(frame["zone"] == z, np.where(frame["unit"] == 1, 2, 0), 1))
    names = {6: ["Intercept", "sex[T.m]", "year", "C(country)[T.2]", "C(country)[T.3]",
                 "sex[T.m]:year"]}.get(columns, list(out.index[:columns]))  # fmt: skip
    assert len(out) == columns + (columns > 1 and not terms.startswith("0"))
    for k, name in enumerate(names):
        t, u, b = by_hand(frame, lambda y, w, k=k: least_squares(x, y, w)[k], weights, [1.0] * 12)
        np.testing.assert_allclose(
            out.loc[name, ["estimate", "se_sampling", "se_imputation"]].astype(float),
            [t, np.sqrt(u), np.sqrt(b)], rtol=1e-6, err_msg=name,
        )  # fmt: skip

    def r_squared(y, w):
        rest = y - x @ least_squares(x, y, w)
        return 1 - (w * rest**2).sum() / (w * (y - (w * y).sum() / w.sum()) ** 2).sum()

    if "R squared" in out.index:
        t, u, _ = by_hand(frame, r_squared, weights, [1.0] * 12)
        np.testing.assert_allclose(out.loc["R squared", "estimate"], t, rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(
            out.loc["R squared", "se_sampling"], np.sqrt(u), rtol=1e-6, atol=1e-12
        )


def test_groups_and_files(tmp_path):
    frame = simulated()
    frame.to_csv(tmp_path / "persons.csv", index=False)
    of_file = irt.regress(tmp_path / "persons.csv", "PV* ~ sex", by="country", replicates=jk2())
    for country, one in of_file.groupby("country"):
        alone = irt.regress(frame[frame["country"] == country], "PV* ~ sex", replicates=jk2())
        np.testing.assert_allclose(one["estimate"], alone["estimate"], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one["se"], alone["se"], rtol=1e-7)
        assert one["term"].tolist() == alone["term"].tolist()


def test_a_difference_of_groups_is_a_regression_on_them():
    frame = simulated()
    means = irt.tabulate(frame, "PV*", by="sex", replicates=jk2(), statistics="mean")["estimate"]
    found = irt.regress(frame, "PV* ~ sex", replicates=jk2())
    np.testing.assert_allclose(found["estimate"][1], means[1] - means[0], rtol=1e-9)


def test_wrong_input_is_named():
    frame = simulated()
    frame["twice"], frame["none"] = 2 * frame["w"], 0.0
    frame = pd.concat([frame] * 2, ignore_index=True)
    frame["name"], frame["number"] = frame.index.astype(str), frame.index
    for formula, message in (
        ("PV*", "write 'value ~ terms'"), ("PV* ~ region", "no column is 'region'"),
        ("PX* ~ sex", r"a number\) 'PX\*'"), ("PV* ~ sex +", "formula 'sex \\+'"),
        ("PV* ~ scale(w)", "depends on all persons"),
        ("PV* ~ w + twice", "'twice' follows from"),
        ("PV* ~ none", "'none' follows from"), ("PV* ~ name", "more than 1,000 levels"),
        ("PV* ~ C(number)", "more than 1,000 levels"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            irt.regress(frame, formula, replicates=jk2())


def test_categories_are_whole_numbers_where_others_are_missing(monkeypatch):
    monkeypatch.setattr(tables, "_ROWS", 97)  # the first batch has fractions, later ones have not
    frame = simulated()
    frame["grade"] = pd.Series(frame.index % 3 + 7, dtype=object)
    frame.loc[:20, "grade"] = None
    batches = [part.infer_objects() for _, part in frame.groupby(np.arange(len(frame)) // 97)]
    assert {part["grade"].dtype for part in batches} == {np.dtype(float), np.dtype(int)}
    monkeypatch.setattr(tables.Table, "batches", lambda _, columns: (b[columns] for b in batches))
    with pytest.warns(DataWarning, match="21 persons lack"):
        found = irt.regress(frame, "PV* ~ C(grade)", weight="w")
    assert found["term"].tolist()[:3] == ["Intercept", "C(grade)[T.8]", "C(grade)[T.9]"]
    with pytest.warns(DataWarning, match="21 persons without"):
        means = irt.tabulate(frame, "PV*", by="grade", weight="w", statistics="mean")["estimate"]
    np.testing.assert_allclose(found["estimate"][1:3], means[1:] - means[0], rtol=1e-9)


def test_a_group_without_a_level_lacks_its_term():
    frame = simulated()
    frame["grade"] = np.where(frame["country"] == 2, "8", frame["sex"].map({"f": "8", "m": "9"}))
    with pytest.warns(DataWarning, match=r"follow from the terms .*\(NaN\): '2: grade\[T.9\]'$"):
        found = irt.regress(frame, "PV* ~ grade + w", by="country", replicates=jk2())
    assert found["term"][found["estimate"].isna()].tolist() == ["grade[T.9]"]
    with pytest.warns(DataWarning, match="follow from the terms"):  # without replicates too
        irt.regress(frame, "PV* ~ grade + w", by="country")
    alone = irt.regress(frame[frame["country"] == 2], "PV* ~ w", replicates=jk2())
    two = found[(found["country"] == 2) & found["estimate"].notna()]
    for name in ("estimate", "se", "df"):
        np.testing.assert_allclose(two[name], alone[name], rtol=1e-7)


def test_who_lacks_a_predictor_is_left_out_and_counted():
    frame = simulated()
    some = frame.assign(sex=frame["sex"].where(frame.index >= 50))
    with pytest.warns(DataWarning, match="50 persons lack a predictor"):
        found = irt.regress(some, "PV* ~ sex", replicates=jk2())
    pd.testing.assert_frame_equal(
        found[["estimate", "n"]],
        irt.regress(frame[50:], "PV* ~ sex", weight="w")[["estimate", "n"]],
    )


def test_the_shell_reaches_it(tmp_path):
    frame = simulated()
    second = np.arange(len(frame)) % 2
    frame = frame.assign(r1=frame["w"] * 2 * second, r2=frame["w"] * 2 * (1 - second))
    frame.to_csv(tmp_path / "persons.csv", index=False)
    out = tmp_path / "table.csv"
    result = CliRunner().invoke(cli, [
        "regress", str(tmp_path / "persons.csv"), "PV* ~ sex", "--weight", "w", "--by", "country",
        "--replicates", "r1", "--replicates", "r2", "--method", "brr", "--out", str(out),
    ])  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "sex[T.m]" in result.output
    design = irt.Replicates("brr", ["r1", "r2"], weight="w")
    wanted = irt.regress(frame, "PV* ~ sex", by="country", replicates=design)
    pd.testing.assert_frame_equal(pd.read_csv(Path(out)), wanted, check_dtype=False)
