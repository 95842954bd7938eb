"""Files that tables are made of, and those that they are written to."""

from __future__ import annotations

import json
import re
import shlex
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from test_tabulate import simulated

import irt_dask as irt
from irt_dask.cli.main import cli
from irt_dask.errors import DataWarning, InputError
from irt_dask.survey import tables


@pytest.mark.parametrize("form", ["csv", "csv.gz", "tsv", "parquet", "folder"])
def test_files_give_the_tables_of_frames(tmp_path, form):
    frame = simulated()
    path = tmp_path / f"persons.{form}"
    if form == "folder":
        path.mkdir()
        frame[:250].to_parquet(path / "a.parquet")
        frame[250:].to_parquet(path / "b.parquet")
    elif form == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if form == "tsv" else ",")
    design = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=12, weight="w")
    options = {"by": "sex", "replicates": design, "statistics": ["mean", "p90"]}
    pd.testing.assert_frame_equal(
        irt.tabulate(path, "PV*", **options), irt.tabulate(frame, "PV*", **options)
    )


@pytest.mark.parametrize("form", ["csv", "tsv", "csv.gz"])
def test_a_group_may_be_called_na(tmp_path, form):
    # Persons of Namibia were lost in CSV files, those of other files kept.
    frame = simulated().assign(id=np.arange(600), v=1.0)
    frame["CNT"] = np.resize(["NA", "AUT", "nan", "JPN"], 600)
    frame["school"] = np.resize(["NA", "b", "c", "d", "e", "f"], 600)
    frame["all"] = "NA"
    frame.loc[:9, "CNT"] = None
    texts = frame.astype({"PV1": str, "PV2": str, "v": str})
    texts.loc[20:22, ["PV1", "PV2", "v"]] = "NA"  # numbers that are missing
    frame.loc[20:22, ["PV1", "PV2", "v"]] = np.nan
    path, sep = tmp_path / f"persons.{form}", "\t" if form == "tsv" else ","
    texts.to_csv(path, index=False, sep=sep)
    design = irt.Replicates.from_units("school", weight="w")
    options = {"values": ["PV1", "PV2"], "by": "CNT", "replicates": design, "gaps": "CNT"}
    with pytest.warns(DataWarning, match="10 persons without 'CNT' are in no group"):
        table = irt.tabulate(path, **options)
    assert table["CNT"].unique().tolist()[:4] == ["AUT", "JPN", "NA", "nan"]
    with pytest.warns(DataWarning, match="10 persons without 'CNT'"):
        pd.testing.assert_frame_equal(table, irt.tabulate(frame, **options))
    assert irt.tabulate(path, "v", by="all", statistics="mean")["all"].tolist() == ["NA"]
    with pytest.warns(DataWarning, match="10 persons without 'CNT'"):
        found = irt.regress(path, "PV1 ~ sex", by="CNT", replicates=design)
    assert "NA" in found["CNT"].tolist()
    scores = frame[["id", "v"]].astype({"id": str})
    keyed = texts.drop(columns="v").astype({"id": str})
    scores.loc[7, "id"] = keyed.loc[7, "id"] = "NA"
    keyed.to_csv(path, index=False, sep=sep)
    with pytest.warns(DataWarning, match="10 persons without 'CNT'"):
        joined = irt.tabulate(scores, "v", by="CNT", join=path, on="id", statistics="mean")
    assert joined["CNT"].tolist() == ["AUT", "JPN", "NA", "nan"]


@pytest.mark.parametrize("family", ["linear", "logistic"])
def test_na_in_text_of_a_predictor_is_a_level_as_it_is_a_group(tmp_path, family):
    """Empty cells are missing there, and NA among numbers; that a level is so called is said."""
    frame, path = simulated(), tmp_path / "persons.csv"
    frame["CNT"] = np.resize(["AUT", "JPN", "NA"], 600)
    frame["x"] = frame["PV1"].where(frame.index % 5 > 0) / 100 % 1
    frame.loc[:9, "CNT"] = None
    frame.to_csv(path, index=False)
    path.write_text(path.read_text().replace(",\n", ",NA\n"))  # x, the last column
    formula = "PV1 >= 500 ~ CNT + x" if family == "logistic" else "PV1 ~ CNT + x"
    words = r"column 'CNT' is text, in which 'NA' is a level.*leave cells empty"
    with pytest.warns(DataWarning, match=words), pytest.warns(DataWarning, match="lack a predicto"):
        found = irt.regress(path, formula, family=family)
    with pytest.warns(DataWarning) as said:
        wanted = irt.regress(frame, formula, family=family)
    assert all("is a level" not in str(w.message) for w in said)  # of pandas, where NA is meant
    pd.testing.assert_frame_equal(found, wanted)
    assert found["term"].tolist()[:3] == ["Intercept", "CNT[T.JPN]", "CNT[T.NA]"]
    assert found["n"].tolist()[0] == (frame["CNT"].notna() & frame["x"].notna()).sum()
    keyed = frame[["CNT", "x"]].assign(id=frame.index)  # of a table that is joined
    keyed.to_csv(path, index=False)
    scores = frame[["PV1"]].assign(id=frame.index)
    with pytest.warns(DataWarning, match=words), pytest.warns(DataWarning, match="lack a predicto"):
        found = irt.regress(scores, formula, family=family, join=path, on="id")
    pd.testing.assert_frame_equal(found, wanted)


@pytest.mark.parametrize("form", ["csv", "csv.gz", "tsv"])
def test_decimal_commas_are_said_and_asked_for(tmp_path, form):
    frame, path = simulated(), tmp_path / f"persons.{form}"
    frame["escs"] = frame["PV2"].where(frame.index % 7 > 0) / 300
    sep, words = "\t" if form == "tsv" else ";", [] if form == "tsv" else ["--delimiter", ";"]
    frame.to_csv(path, index=False, sep=sep, decimal=",", na_rep="NA")
    options = {} if form == "tsv" else {"delimiter": ";"}
    for formula, column in (("PV1 ~ escs", "escs"), ("PV1 ~ sex", "PV1")):
        with pytest.raises(InputError, match=rf"{column}'.* with a decimal point; .* decimal=','"):
            irt.regress(path, formula, **options)
    with pytest.raises(InputError, match=r"row 1, column 'w': '\d,\d+' is not a number with a"):
        irt.tabulate(path, "country", weight="w", **options)
    for command in (["tabulate", path, "--values", "PV1"], ["regress", path, "PV1 ~ escs"]):
        done = CliRunner().invoke(cli, [*map(str, command), *words])
        assert "of CSV files with decimal commas say --decimal ," in str(done.exception)
        told = [*map(str, command), *words, "--decimal", ",", "--weight", "w", "--json"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            done = CliRunner().invoke(cli, told)
            assert done.exit_code == 0, done.output
            wanted = (irt.tabulate if command[0] == "tabulate" else irt.regress)(
                frame, command[-1], weight="w"
            )
        found = [row["estimate"] for row in json.loads(done.stdout)["rows"]]
        np.testing.assert_allclose(found, wanted["estimate"], rtol=1e-12)
    few = frame[["PV1"]].assign(id=frame.index, x=frame.index % 3 / 2)  # levels, if it were text
    few[["id", "x"]].to_csv(path, index=False, sep=sep, decimal=",")
    with pytest.raises(InputError, match=r"column 'x': '0,0' is not a number with a decimal"):
        irt.regress(few.drop(columns="x"), "PV1 ~ x", join=path, on="id", **options)
    found = irt.regress(few.drop(columns="x"), "PV1 ~ x", join=path, on="id", decimal=",",
                        **options)  # fmt: skip
    pd.testing.assert_frame_equal(found, irt.regress(few, "PV1 ~ x"))
    with pytest.raises(InputError, match=r"decimal=';' is unknown"):
        irt.tabulate(path, "x", decimal=";")
    for source in (frame, few):
        with pytest.raises(InputError, match=r"decimal=',' is of CSV files"):
            irt.tabulate(source, "PV1", decimal=",")


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_decimal_points_are_refused_where_commas_are_said(tmp_path, form):
    """As commas are without: few levels would be categories, and 1.234 a thousandth of itself."""
    frame = simulated().assign(x=np.arange(600) % 3 / 2, big="1.234", id=np.arange(600))
    sep, options = ("\t", {}) if form == "tsv" else (";", {"delimiter": ";"})
    (path := tmp_path / f"persons.{form}").write_text(frame.to_csv(index=False, sep=sep))
    options |= {"decimal": ","}
    for values, more, name in (("PV1", {}, "PV1"), ("country", {"weight": "w"}, "w"),
                               ("big", {}, "big")):  # fmt: skip
        with pytest.raises(
            InputError, match=rf"'{name}': '\d+\.\d+' .* decimal comma.* leave deci"
        ):
            irt.tabulate(path, values, **options, **more)
    for source, join in ((path, {}), (frame[["id"]].assign(v=1.0), {"join": path, "on": "id"})):
        with pytest.raises(InputError, match=r"'x': '0\.0' is not .* decimal comma.*write C\(x\)"):
            irt.regress(source, "v ~ x" if join else "country ~ x", **options, **join)
    # whole numbers have neither sign
    assert irt.tabulate(path, "country", statistics="mean", **options).shape[0] == 1


def test_categories_may_look_like_numbers_with_commas(tmp_path):
    """Answers to items with several right options, as "1,2": a formula that says so is believed."""
    frame = pd.DataFrame({"y": [0.0, 1.0, 2.0, 4.0], "g": ["1,2", "3", "1,2", "3"]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for source in (frame, tmp_path / "t.csv"):
        found = irt.regress(source, "y ~ C(g)")
        assert found["term"].tolist() == ["Intercept", "C(g)[T.3]", "R squared"]
        np.testing.assert_allclose(found["estimate"][:2], [1.0, 1.5])
        with pytest.raises(
            InputError, match=r"'g': '1,2' is not a number.*categories write C\(g\)"
        ):
            irt.regress(source, "y ~ g")


def test_tables_are_written_as_parquet_files_too(tmp_path):
    frame = simulated()
    frame.to_parquet(tmp_path / "persons.parquet")
    for name, by in (("country", "country"), ("sex", "sex")):  # numbers, "2 minus 1"; words
        tables = []
        for end in ("csv", "parquet"):
            words = ["--by", by, "--gaps", name, "--weight", "w", "--zone", "zone", "--unit",
                     "unit", "--method", "jk2", "--out", str(tmp_path / f"t.{end}")]  # fmt: skip
            done = CliRunner().invoke(
                cli, ["tabulate", str(tmp_path / "persons.parquet"), "--values", "PV*", *words]
            )
            assert done.exit_code == 0, done.output
            tables.append(str(tmp_path / f"t.{end}"))
        design = irt.Replicates.from_zones("jk2", "zone", "unit", weight="w")
        wanted = irt.tabulate(frame, {"PV*": "PV*"}, by=by, gaps=name, replicates=design)
        found = pd.read_parquet(tables[1])
        pd.testing.assert_frame_equal(found, wanted.astype({name: str}), check_exact=True)
        for end in ("csv", "parquet"):
            done = CliRunner().invoke(cli, ["trend", *tables, "--linking-error", "0", "--out",
                                            str(tmp_path / f"change.{end}")])  # fmt: skip
            assert done.exit_code == 0, done.output
        change = pd.read_parquet(tmp_path / "change.parquet")
        assert change.shape == pd.read_csv(tmp_path / "change.csv").shape
        assert np.allclose(change["estimate"], 0.0)
    done = CliRunner().invoke(cli, ["regress", str(tmp_path / "persons.parquet"), "PV* ~ sex",
                                    "--out", str(tmp_path / "r.parquet")])  # fmt: skip
    assert done.exit_code == 0, done.output
    assert pd.read_parquet(tmp_path / "r.parquet")["term"][1] == "sex[T.m]"


@pytest.mark.parametrize("command", ["tabulate", "regress", "trend"])
def test_a_file_that_is_read_is_not_written_over(tmp_path, command):
    (path := tmp_path / "persons.parquet").write_bytes(b"1")
    (tmp_path / "b.csv").write_text("x")
    words = {
        "tabulate": [path, "--values", "PV*"], "regress": [path, "PV* ~ 1"],
        "trend": [tmp_path / "b.csv", path, "--linking-error", "0"],
    }[command]  # fmt: skip
    done = CliRunner().invoke(cli, [command, *map(str, words), "--out", str(path)])
    assert "the command reads this file" in str(done.exception)
    done = CliRunner().invoke(cli, [command, *map(str, words), "--out", str(tmp_path / "t.txt")])
    assert "must end in .csv or .parquet" in str(done.exception)


def test_a_list_of_groups_is_told_to_be_named_one_by_one(tmp_path):
    simulated().to_csv(tmp_path / "persons.csv", index=False)
    with pytest.raises(InputError, match=r"each by itself, by=\['country', 'sex'\]"):
        irt.tabulate(tmp_path / "persons.csv", "PV*", by="country, sex")
    with pytest.raises(InputError, match="no column is 'country,region'; there are"):
        irt.tabulate(tmp_path / "persons.csv", "PV*", by="country,region")
    for words in (["tabulate", "--values", "PV*"], ["regress", "PV* ~ 1"]):
        words.insert(1, str(tmp_path / "persons.csv"))
        done = CliRunner().invoke(cli, [*words, "--by", "country,sex"])
        assert "name each by itself, --by country --by sex" in str(done.exception)


@pytest.mark.parametrize("form", ["csv", "csv.gz"])
@pytest.mark.parametrize(("sign", "said"), [(";", ";"), ("|", "|"), ("\t", "tab")])
def test_what_separates_values_is_asked_for_and_said(tmp_path, form, sign, said):
    frame = simulated()
    path, words = tmp_path / f"persons.{form}", ["--values", "PV*", "--by", "sex"]
    frame.to_csv(path, index=False, sep=sign)
    done = CliRunner().invoke(cli, ["tabulate", str(path), *words])
    assert "has the one column 'PV1" in str(done.exception)
    assert f"Give --delimiter {shlex.quote(said)}, or --delimiter ," in str(done.exception)
    with pytest.raises(InputError, match=rf"Give delimiter='{re.escape(said)}'"):
        irt.regress(path, "PV* ~ sex")
    done = CliRunner().invoke(
        cli, ["tabulate", str(path), *words, "--delimiter", said, "--json", "--weight", "w"]
    )
    assert done.exit_code == 0, done.output
    wanted = irt.tabulate(frame, "PV*", by="sex", weight="w")
    found = [row["estimate"] for row in json.loads(done.stdout)["rows"]]
    np.testing.assert_allclose(found, wanted["estimate"], rtol=1e-12)
    found = irt.regress(path, "PV* ~ sex", delimiter=sign)
    pd.testing.assert_frame_equal(found, irt.regress(frame, "PV* ~ sex"))
    scores = frame[["PV1"]].assign(id=frame.index)  # of a table that is joined
    frame[["sex"]].assign(id=frame.index).to_csv(path, index=False, sep=sign)
    options = {"by": "sex", "join": path, "on": "id"}
    with pytest.raises(InputError, match="has the one column 'sex"):
        irt.tabulate(scores, "PV1", **options)
    table = irt.tabulate(scores, "PV1", delimiter=sign, **options)
    pd.testing.assert_frame_equal(table, irt.tabulate(frame, "PV1", by="sex"))


def test_delimiters_are_of_csv_files(tmp_path):
    frame = simulated()
    frame.to_parquet(tmp_path / "persons.parquet")
    for source in (frame, tmp_path / "persons.parquet"):
        with pytest.raises(InputError, match="is of CSV files"):
            irt.tabulate(source, "PV*", delimiter=";")
    frame.to_csv(tmp_path / "persons.csv", index=False)
    for wrong in ("a", ";;", '"', ""):
        with pytest.raises(InputError, match="it is a sign such as"):
            irt.tabulate(tmp_path / "persons.csv", "PV*", delimiter=wrong)
    (tmp_path / "one.csv").write_text("a;b\n1\n2\n3\n")
    table = irt.tabulate(tmp_path / "one.csv", "a;b", delimiter=",", statistics="mean")
    assert table["estimate"].tolist() == [2.0]


def test_ids_of_a_file_keep_their_zeros(tmp_path: Path) -> None:
    ids = [f"{k:04d}" for k in range(40)]
    values = np.random.default_rng(2).normal(size=40)
    pd.DataFrame({"person_id": ids, "pv1": values}).to_parquet(tmp_path / "scores.parquet")
    pd.DataFrame({"person_id": ids, "pv1": values}).to_csv(tmp_path / "scores.csv", index=False)
    about = pd.DataFrame({"id": ids, "sex": np.where(values > 0, "f", "m")})
    about.to_csv(tmp_path / "about.csv", index=False)
    # 7 and 07 are two persons, and 7.0 is what pandas makes of 7 where some are missing
    twins = pd.DataFrame({"id": ["7", "07"], "x": [1.0, 2.0]})
    twins.to_csv(tmp_path / "twins.csv", index=False)
    (tmp_path / "floats.csv").write_text("id,x\n7.0,1\n8.0,2\n")
    wanted = [float(values[values > 0].mean()), float(values[values <= 0].mean())]
    for of in ("scores.parquet", "scores.csv"):
        table = irt.tabulate(tmp_path / of, "pv1", by="sex", join=tmp_path / "about.csv",
                             on=("person_id", "id"), statistics="mean")  # fmt: skip
        np.testing.assert_allclose(table["estimate"], wanted)
    for of, own in (("twins.csv", ["7", "07"]), ("floats.csv", [7, 8])):
        some = pd.DataFrame({"person_id": own, "pv1": [0.0, 1.0]})
        table = irt.tabulate(some, "x", join=tmp_path / of, on=("person_id", "id"),
                             statistics="mean")  # fmt: skip
        assert table["estimate"].tolist() == [1.5]


def test_a_parquet_file_is_read_a_part_at_a_time(tmp_path: Path) -> None:
    values = np.random.default_rng(1).random((200_000, 10))
    frame = pd.DataFrame(values, columns=[*"abcdefghij"])
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=5000)
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before
            for _ in tables.Table(tmp_path / "t.parquet").batches([*frame])]  # fmt: skip
    assert len(held) == 40
    assert max(held) < values.nbytes / 3
