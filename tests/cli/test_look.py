"""check and init: what they see of a file, and a pipeline file that runs."""

import gzip
import json
import os
import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.ingest import look
from irt_dask.workflow import read_config
from irt_dask.workflow.config import OF_A_SOURCE


def checked(typed, *args, code=0):
    return json.loads(typed("check", *args, "--json", code=code).out)


def write_exam(path, n=200, unknown=""):
    """A wide file with what such files have: a sex, a total, an empty column, weights, groups."""
    y = np.random.default_rng(1).integers(0, 2, (n, 6))
    table = pd.DataFrame(y.astype(str), columns=[f"q{j}" for j in range(1, 7)])
    table.insert(0, "id", [f"p{i:03d}" for i in range(n)])
    table.insert(3, "sex", np.arange(n) % 2)
    table["q7"] = ""
    table["w"] = np.arange(n) % 3 + 0.5
    table["land"] = np.where(np.arange(n) < 50, "AUT", "FIN")
    table.loc[:9, "q1"] = "NA"
    if unknown:
        table.loc[5:7, "q2"] = unknown
    table.to_csv(path, index=False)
    return table


ROLES = ("--column", "weight=w", "--column", "group=land")


def test_check_says_what_an_ingest_makes_of_it(tmp_path, typed):
    write_exam(tmp_path / "f.csv")
    seen = checked(typed, "f.csv", *ROLES)
    assert (seen["form"], seen["rows"], seen["persons"], seen["items"]) == ("wide", 200, 200, 7)
    assert seen["columns"] == {"person": "id", "weight": "w", "group": "land"}
    assert seen["item_id"] == ["q1", "q2", "sex", "q3", "q4", "q5", "q6"]
    assert seen["perhaps_no_items"] == {"sex": "the name says 'sex'"}
    assert seen["items_without_responses"] == ["q7"]
    assert seen["missing_share"] == pytest.approx(10 / 1400)
    assert seen["weights"] == [0.5, 2.5]
    assert seen["groups"] == {"FIN": 150, "AUT": 50}
    values = {v["text"]: v for v in seen["values"]}
    assert {t: v["meaning"] for t, v in values.items()} == {
        "0": "wrong", "1": "right", "": "not observed", "NA": "not observed",
    }  # fmt: skip
    assert (values["NA"]["n"], values["NA"]["columns"]) == (10, ["q1"])
    assert (values[""]["n"], values[""]["columns"]) == (200, ["q7"])
    assert seen["problem"] is None
    assert not [p for p in tmp_path.iterdir() if p.name != "f.csv"]
    text = typed("check", "f.csv", *ROLES, "--exclude", "sex").out
    assert "items               6: q1, q2, q3 ... q6 (4)" in text or "6: q1 ... q6 (6)" in text
    assert "other columns       sex\n" in text
    assert "perhaps" not in text
    # The columns are the same as those of the ingest, whose notes and warnings say so too.
    told = typed("ingest", "f.csv", "s", *ROLES).err
    assert "'q7'" in told
    assert "--exclude sex" in told
    assert irt.open_responses("s").item_id == tuple(seen["item_id"])


@pytest.mark.parametrize("kind", ["long.csv", "f.parquet", "f.jsonl", "nested.jsonl", "f.csv.gz"])
def test_check_reads_every_format(kind, tmp_path, typed):
    table = write_exam(tmp_path / "f.csv").drop(columns=["w", "land", "sex"])
    records = json.loads(table.to_json(orient="records"))
    if kind == "long.csv":
        long = table.melt("id", var_name="item", value_name="score")
        long.assign(note="x").to_csv(tmp_path / kind, index=False)
    elif kind == "f.parquet":
        table.to_parquet(tmp_path / kind)
    elif kind == "f.csv.gz":
        (tmp_path / kind).write_bytes(gzip.compress(table.to_csv(index=False).encode()))
    else:
        if kind == "nested.jsonl":
            records = [{"id": r.pop("id"), "responses": r} for r in records]
        (tmp_path / kind).write_text("\n".join(map(json.dumps, records)))
    seen = checked(typed, kind)
    form = {"long.csv": "long", "nested.jsonl": "nested"}.get(kind, "wide")
    assert (seen["form"], seen["persons"], seen["items"]) == (form, 200, 6)
    assert seen["rows"] == (1400 if form == "long" else 200)
    assert seen["items_without_responses"] == ["q7"]
    assert seen["missing_share"] == pytest.approx(10 / 1200)
    assert sum(v["n"] for v in seen["values"]) == 1400
    assert seen["other_columns"] == (["note"] if form == "long" else [])


def test_check_ends_with_the_error_of_the_ingest(tmp_path, typed):
    write_exam(tmp_path / "f.csv", unknown="9")
    told = typed("check", "f.csv", *ROLES, code=2)
    assert "9: 3 unknown in q2" in told.out
    assert told.err == typed("ingest", "f.csv", "s", *ROLES, code=2).err
    seen = checked(typed, "f.csv", *ROLES, "--missing", 9)
    assert {v["text"]: v["meaning"] for v in seen["values"]}["9"] == "not observed"
    seen = checked(typed, "f.csv", *ROLES, "--on-error", "quarantine")
    assert (seen["problem"], seen["bad_rows"], seen["persons"]) == (None, 3, 197)
    # What contradicts itself is found too: rows of one person.
    (tmp_path / "g.csv").write_text("id,q1,q2\na,1,0\nb,0,1\na,1,1\n")
    assert "line 4: the person 'a' is on line 2 already" in typed("check", "g.csv", code=2).err
    (tmp_path / "p.csv").write_text("id,age\na,1\nb,2\nc,3\n")
    (tmp_path / "g.csv").write_text("id,q1,q2\na,1,0\nb,0,1\n")
    assert "1 person(s) have no responses" in typed("check", "g.csv", "--persons", "p.csv").out
    assert "--column item=x: there is no such" in typed("check", "g.csv", "--column", "item=x",
                                                        code=2).err  # fmt: skip


def test_a_large_file_is_sampled_and_the_figures_say_so(tmp_path, typed, monkeypatch):
    from irt_dask.ingest.text import lines

    monkeypatch.setattr(lines, "piece_bytes", lambda size: 500)
    monkeypatch.setattr(look, "_HASHES", 64)
    table = write_exam(tmp_path / "f.csv", n=600)
    table.loc[450, "q3"] = "7"  # in a piece that is not read
    table.to_csv(tmp_path / "f.csv", index=False)
    seen = checked(typed, "f.csv", *ROLES)
    assert not seen["whole"]
    assert seen["bytes_read"] < seen["bytes"] / 5
    assert seen["rows"] == pytest.approx(600, rel=0.1)
    assert seen["problem"] is None
    assert "--all reads everything" in typed("check", "f.csv", *ROLES).out
    assert "line 452" in checked(typed, "f.csv", *ROLES, "--all", code=2)["problem"]
    seen = checked(typed, "f.csv", *ROLES, "--all", "--missing", 7)
    assert (seen["whole"], seen["rows"], seen["persons"]) == (True, 600, 600)


def test_persons_are_counted_by_the_smallest_of_their_hashes(tmp_path, monkeypatch):
    monkeypatch.setattr(look, "_HASHES", 1024)
    monkeypatch.setattr(look, "_try", lambda *args: None)
    rows = "".join(f"p{i},q,{i % 2}\np{i},r,1\n" for i in range(20_000))
    (tmp_path / "f.csv").write_text("id,item,x\n" + rows)
    options = look.Options(
        shape=None, columns=None, missing=(), recode=None, key=None, persons=None,
        on_error="raise", rows_per_block=None,
    )  # fmt: skip
    assert look.look_at(tmp_path / "f.csv", options).n_persons == pytest.approx(20_000, rel=0.1)


# --- init -----------------------------------------------------------------------------------------


def of_toml(path):
    """The options of ingest that a run of this file has."""
    data = read_config(path).data
    return data.source, data.model_dump(include={*OF_A_SOURCE, "rows_per_block"})


@pytest.mark.parametrize("folder", ["", "runs"])
def test_init_writes_what_the_ingest_does_unasked(folder, tmp_path, typed):
    write_exam(tmp_path / "f.csv")
    (tmp_path / folder).mkdir(exist_ok=True)
    file = tmp_path / folder / "p.toml"
    out = typed("init", "f.csv", "--out", file, *ROLES).out
    assert "to decide: are these items? sex" in out
    text = file.read_text()
    assert '# exclude = ["sex"]' in text
    assert 'method = "marginal"' in text  # there are weights
    assert "# 2 groups: FIN, AUT" in text
    source, options = of_toml(file)
    assert Path(source).resolve() == tmp_path / "f.csv"
    with pytest.warns(irt.errors.DataWarning, match="'sex'"), pytest.warns(irt.errors.Notice):
        made = irt.ingest(source, tmp_path / "a", **options)
    assert made.item_id == ("q1", "q2", "sex", "q3", "q4", "q5", "q6")
    assert made.has_groups
    assert made.max_weight == 2.5
    # The comment, taken in, is what it says it is.
    file.write_text(text.replace('# exclude = ["sex"]', 'exclude = ["sex"]'))
    with pytest.warns(irt.errors.Notice):
        made = irt.ingest(source, tmp_path / "b", **of_toml(file)[1])
    assert "sex" not in made.item_id
    assert 'prior = "groups"\n' in text
    config = tomllib.loads(text)
    assert not config.keys() & {"cluster", "check"}  # by size; of weights none can be made
    assert "there already, and not overwritten" in typed("init", "f.csv", "--out", file, code=2).err
    said = typed("init", "f.csv", "--out", "s3://bucket/p.toml", code=2).err
    assert "a pipeline file must be on a file system; s3://bucket/p.toml is a URL" in said


def test_init_asks_what_it_cannot_know(tmp_path, typed):
    write_exam(tmp_path / "f.csv", unknown="9")
    out = typed("init", "f.csv", *ROLES, "--exclude", "sex").out
    assert out.count("to decide") == 1
    assert "what does '9' mean? 9: 3 unknown in q2" in out
    text = (tmp_path / "pipeline.toml").read_text()
    assert "[bayes]" not in text
    assert tomllib.loads(text)["data"]["exclude"] == ["sex"]
    with pytest.raises(irt.errors.InputError, match="'9'"):
        irt.ingest(of_toml("pipeline.toml")[0], tmp_path / "a", **of_toml("pipeline.toml")[1])
    for line in ('missing = ["9"]', 'recode = { "9" = "wrong" }', 'exclude = ["sex", "q2"]'):
        assert f"# {line}" in text.replace("{ 9 =", '{ "9" =')


def test_a_header_alone(tmp_path, typed):
    (tmp_path / "f.csv").write_text("id,q1,q2\n")
    assert "f.csv: has a header but no rows" in typed("check", "f.csv", code=2).err
    assert "to decide: f.csv: has a header but no rows" in typed("init", "f.csv").out


def test_bad_rows_count_until_it_is_said_what_becomes_of_them(tmp_path, typed):
    """A column of text makes all rows bad; the others are items all the same."""
    rows = "".join(f"p{i},Place {i},{i % 2},{i % 3 > 0:d}\n" for i in range(60))
    (tmp_path / "f.csv").write_text("id,place,q1,q2\n" + rows)
    seen = checked(typed, "f.csv", code=2)
    assert (seen["rows"], seen["bad_rows"], seen["persons"]) == (60, 60, 60)
    assert (seen["item_id"], seen["items_without_responses"]) == (["place", "q1", "q2"], [])
    assert seen["perhaps_no_items"] == {"place": "at least 51 different values"}
    named = ("--column", "items=place,q1,q2")
    out = typed("init", "f.csv", *named, "--missing", "77", "--recode", "88=wrong").out
    assert "to decide: what do they mean? other values: 10 unknown in place" in out
    text = (tmp_path / "pipeline.toml").read_text()
    assert '= ["other values"]' not in text
    assert 'missing = ["77"]\n# missing = ["77", "Place 0", "Place 1", ' in text
    assert '# recode = { 88 = "wrong", "Place 0" = "?", "Place 1" = "?", ' in text
    (tmp_path / "f.csv").write_text("id,place,q1\na,,1\nb,Rome,0\n")
    seen = checked(typed, "f.csv", "--on-error", "quarantine")
    assert (seen["item_id"], seen["items_without_responses"]) == (["q1"], ["place"])


def test_weights_and_groups_of_a_table_of_persons(tmp_path, typed):
    (tmp_path / "f.csv").write_text("id,q1,q2\na,1,0\nb,0,1\n")
    (tmp_path / "p.csv").write_text("id,weight,group\na,2,x\nb,3,y\n")
    seen = checked(typed, "f.csv", "--persons", "p.csv")
    assert (seen["weights"], seen["groups"]) == ([2.0, 3.0], {"x": 1, "y": 1})
    typed("init", "f.csv", "--persons", "p.csv")
    assert read_config("pipeline.toml").is_marginal


def test_a_name_that_no_pipeline_can_have(tmp_path, typed):
    file = os.fsdecode(b"caf\xe9.csv")
    (tmp_path / file).write_text("id,q1\na,1\nb,0\n")
    assert "caf\\udce9.csv" in typed("check", file).out
    assert "is not; rename it" in typed("init", file, code=2).err
    assert not (tmp_path / "pipeline.toml").exists()


def test_a_column_for_which_no_row_is_good_is_asked_about(tmp_path, typed):
    """What is known of items and weights does not rest on the rows without a mistake."""
    table = write_exam(tmp_path / "f.csv")
    table.assign(age=np.arange(200) % 9 + 10).to_csv("f.csv", index=False)
    seen = checked(typed, "f.csv", *ROLES, code=2)
    assert seen["items_without_responses"] == ["q7"]
    assert {"age", "sex"} <= seen["perhaps_no_items"].keys()
    typed("init", "f.csv", *ROLES)
    text = Path("pipeline.toml").read_text()
    assert "# Without any response, left out: q7\n" in text
    assert 'method = "marginal"' in text
    assert "0 groups" not in text


@pytest.mark.parametrize(
    "name, text, args",
    [
        ("f.csv", "person,item,score\na,i,1\nb,i,0\na,j,0\nb,j,1\n", ()),
        ("f.tsv", "who\tq 1\tz\na\t1\t0\nb\t0\t1\n", ("--column", "person=who", "--shape", "wide")),
        ("f.csv", "id;q1;q2\na;A;B\nb;9;B\n", ("--key", "k.csv", "--recode", "9=wrong")),
        ("f.jsonl", '{"id": "a", "responses": {"q": 1}}\n{"id": "b", "responses": {"q": 0}}\n', ()),
        ("f.csv", "id,x1,x2,z\na,1,0,5\nb,0,99,6\n", ("--column", "items=x*", "--missing", "99")),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::irt_dask.errors.Notice")
def test_the_file_reads_what_check_accepts(name, text, args, tmp_path, typed):
    (tmp_path / name).write_text(text)
    (tmp_path / "k.csv").write_text("item,key\nq1,A\nq2,B\n")
    seen = checked(typed, name, *args)
    assert seen["problem"] is None
    typed("init", name, *args)
    source, options = of_toml("pipeline.toml")
    made = irt.ingest(source, tmp_path / "s", **options)
    assert (made.n_persons, list(made.item_id)) == (seen["persons"], seen["item_id"])


def test_the_alternatives_of_several_values_go_together(tmp_path, typed):
    rows = "".join(f"p{i},{i % 2},9,1,{i % 2 + 7}\n" for i in range(4))
    (tmp_path / "f.csv").write_text("id,q1,q2,sex,q3\n" + rows)
    typed("init", "f.csv", "--missing", "77")
    text = Path("pipeline.toml").read_text()
    assert '\nmissing = ["77"]\n# missing = ["77", "9", "7", "8"]   # in place of' in text
    for key in ("missing", "recode", "exclude"):
        assert text.count(f"# {key} = ") == 1
    Path("all.toml").write_text(
        text.replace('missing = ["77"]\n', "", 1).replace("# missing", "missing")
        .replace("# exclude", "exclude")
    )  # fmt: skip
    source, options = of_toml("all.toml")
    assert options["missing"] == ["77", "9", "7", "8"]
    assert irt.ingest(source, "s", **options).item_id == ("q1",)
    Path("recoded.toml").write_text(text.replace("# recode", "recode"))
    source, options = of_toml("recoded.toml")
    assert options["recode"] == {"9": "wrong", "7": "wrong", "8": "wrong"}
    with pytest.warns(irt.errors.DataWarning, match="'sex'"):
        assert irt.ingest(source, "t", **options).item_id == ("q1", "q2", "sex", "q3")


def test_a_comma_is_asked_about_as_a_decimal_sign(tmp_path, typed):
    (tmp_path / "f.csv").write_text("student;item;score\n7;q1;1,0\n7;q2;0,0\n8;q1;9\n8;q2;1,0\n")
    out = typed("init", "f.csv").out
    assert "to decide: is ',' the decimal sign? 1,0: 2 unknown\n" in out
    assert out.count("to decide") == 2
    text = Path("pipeline.toml").read_text()
    assert '# missing = ["9"]   # ' in text
    decided = text.replace("# decimal", "decimal").replace("# missing", "missing")
    Path("pipeline.toml").write_text(decided)
    with pytest.warns(irt.errors.Notice):
        made = irt.ingest(of_toml("pipeline.toml")[0], "s", **of_toml("pipeline.toml")[1])
    assert made.read_block(0).data.values.tolist() == [[1, 0], [-1, 1]]


@pytest.mark.parametrize("form", ["long", "wide"])
def test_weights_that_are_not_used_are_asked_about(form, tmp_path, typed):
    text = "id,item,score,Weight,Group\na,q1,1,2,x\nb,q1,0,3,y\n"
    if form == "wide":
        text = "id,q1,Weight,Group\na,1,2,x\nb,0,3,y\n"
    (tmp_path / "f.csv").write_text(text)
    if form == "long":
        seen = checked(typed, "f.csv")
        assert [note.partition("; ")[2] for note in seen["notes"]] == [
            "columns={'weight': 'Weight'} would do so", "columns={'group': 'Group'} would do so",
        ]  # fmt: skip
        assert "not used; --column weight=Weight would" in typed("check", "f.csv").out
    out = typed("init", "f.csv").out
    assert "to decide: does the column 'Weight' hold the weight of each person?" in out
    assert "what does" not in out
    text = Path("pipeline.toml").read_text()
    active = next(line for line in text.splitlines() if "columns = {" in line)
    decided = text.replace(active + "\n", "").replace("# columns", "columns")
    Path("pipeline.toml").write_text(decided.replace('"bayes"', '"marginal"'))
    source, options = of_toml("pipeline.toml")
    made = irt.ingest(source, "s", **options)
    assert (made.max_weight, made.has_groups, made.item_id) == (3.0, True, ("q1",))


def test_a_look_says_as_notes_what_an_ingest_warns_of(tmp_path, typed, recwarn):
    (tmp_path / "k.csv").write_text("item;key\nq1;A\nq2;B\n")
    (tmp_path / "f.csv").write_text('id,q1,q2,why\nzoë,A,B,"a\nb"\n', encoding="utf-8")
    options = ("f.csv", "--key", "k.csv", "--encoding", "cp1252", "--exclude", "why", "--quiet")
    said = typed("check", *options, "--json")
    assert said.err == ""
    notes = [note.partition(": ")[2] for note in json.loads(said.out)["notes"]]
    assert [note.partition(",")[0] for note in notes] == [
        "the delimiter is ';'", "read as cp1252", "1 row(s) go over several lines",
    ]  # fmt: skip
    assert typed("init", *options).err == ""
    assert not recwarn.list


def test_a_sample_of_many_persons_has_the_share_of_its_own_rows(tmp_path, typed, monkeypatch):
    from irt_dask.ingest.text import lines

    monkeypatch.setattr(lines, "piece_bytes", lambda size: 2000)
    monkeypatch.setattr(look, "_HASHES", 16)
    rows = "".join(f"p{i:04d}{',1,0' * 5}\n" for i in range(1000))
    (tmp_path / "f.csv").write_text(f"id,{','.join(f'q{j}' for j in range(10))}\n{rows}")
    seen = checked(typed, "f.csv")
    assert (seen["whole"], seen["missing_share"]) == (False, 0.0)
    text = typed("check", "f.csv").out
    assert "not observed        0.0% of cells" in text
    (n,) = {v["n"] for v in seen["values"]}
    about = f"about {round(n / (seen['bytes_read'] / seen['bytes'])):,}"
    assert f"{about} right" in text
    assert 4900 < int(about[6:].replace(",", "")) < 5100


def test_the_source_is_found_from_a_folder_behind_a_link(tmp_path, typed):
    (tmp_path / "f.csv").write_text("id,q1,q2\na,1,0\nb,0,1\n")
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "near").symlink_to(tmp_path / "far" / "away")
    typed("init", "f.csv", "--out", "near/p.toml")
    assert tomllib.loads(Path("near/p.toml").read_text())["data"]["source"] == "../../f.csv"
    assert Path(of_toml("near/p.toml")[0]).read_text().startswith("id,q1")


@pytest.mark.slow
def test_the_file_runs_unchanged(tmp_path, typed):
    write_exam(tmp_path / "f.csv")
    typed("init", "f.csv", *ROLES)
    typed("run", "pipeline.toml", "--cluster", "none", "--quiet")
    assert (tmp_path / "runs" / "pipeline" / "report.html").exists()


# --- more than two categories ---------------------------------------------------------------------

GRADED = "person,q1,q2,q3\na,0,4,1\nb,1,3,0\nc,1,2,9\nd,0,1,1\ne,1,0,0\n"


def test_categories_are_suggested_and_not_decided(typed, tmp_path):
    (tmp_path / "g.csv").write_text(GRADED)
    told = typed("check", "g.csv", code=2)
    assert "say --categories, the number K of each" in told.err
    assert "perhaps categories  codes up to 4 in q2; if so, say --categories q2=5" in told.out
    assert checked(typed, "g.csv", code=2)["perhaps_categories"] == {"q2": 5}
    typed("init", "g.csv")
    text = (tmp_path / "pipeline.toml").read_text()
    assert "\n# categories = { q2 = 5 }   # where these codes are categories" in text
    assert "categories" not in tomllib.loads(text)["data"]


def test_categories_of_long_files_are_suggested_for_all(typed, tmp_path):
    rows = "".join(f"p{k},q{k % 2},{k % 4}\n" for k in range(12))
    (tmp_path / "g.csv").write_text(f"person,item,response\n{rows}")
    told = typed("check", "g.csv", code=2).out
    assert "codes up to 3; if so, say --categories 4, or --categories data" in told


@pytest.mark.parametrize(
    "options",
    [
        ("--categories", "q2=5", "--categories", "q3=2"),
        ("--categories", "k.csv"),
        ("--categories", "data"),
    ],
)
def test_categories_are_typed(typed, tmp_path, options):
    (tmp_path / "g.csv").write_text(GRADED)
    (tmp_path / "k.csv").write_text("item,categories\nq2,5\n")
    options = (*options, "--missing", "9")
    told = typed("check", "g.csv", *options).out
    assert "categories          2 (2 items), 5 (1 item)" in told
    assert "2: 1 code 2" in told
    assert "perhaps categories" not in told
    assert checked(typed, "g.csv", *options)["n_categories"] == [2, 5, 2]
    made = typed("ingest", "g.csv", "s", *options).out
    assert "categories      2 (2 items), 5 (1 item)" in made
    assert json.loads(typed("info", "s", "--json").out)["n_categories"] == [2, 5, 2]
    (tmp_path / "more.csv").write_text("person,q2\nf,9\ng,often\n")
    typed("append", "more.csv", "s", "--recode", "often=4", "--recode", "9=missing",
          "--reverse", "q2")  # fmt: skip
    last = irt.open_responses(tmp_path / "s").read_block(1).data.values
    assert last.tolist() == [[-1, -1, -1], [-1, 0, -1]]


def test_values_that_a_column_does_not_have_are_told_by_column(typed, tmp_path):
    (tmp_path / "g.csv").write_text(GRADED)
    told = typed("check", "g.csv", "--categories", "q2=4", "--categories", "q3=3", code=2)
    assert "4: 1 unknown in q2" in told.out
    assert "'q2' has the value '4'; the item 'q2' has 4 categories" in told.err
    assert "say --categories if it has more, or --recode 4=CODE or --missing 4" in told.err


def test_numbers_of_categories_that_are_typed_wrong(typed, tmp_path):
    (tmp_path / "g.csv").write_text(GRADED)
    told = typed("check", "g.csv", "--categories", "q2=5", "--categories", "q2=4", code=2)
    assert "--categories: 'q2' has two numbers, 5 and 4" in told.err
    told = typed("check", "g.csv", "--categories", "q2=5", "--categories", "4", code=2)
    assert "--categories '4': write ITEM=K" in told.err
    told = typed("ingest", "g.csv", "s", "--categories", "15", "--missing", "nine", code=2)
    assert "--null-categories keep (they stay), or collapse" in told.err


def test_labels_by_item_in_a_table(typed, tmp_path):
    """check, ingest and init take it alike; init writes what it says, and the run refuses a "?"."""
    rows = "a,no,often\nb,yes,no\nc,no,yes\nd,yes,yes\n"
    (tmp_path / "g.csv").write_text("id,q1,q2\n" + rows)
    table = "item,label,code\nq1,no,0\nq1,yes,1\nq2,often,0\nq2,no,1\nq2,yes,2\n"
    (tmp_path / "labels.csv").write_text(table)
    options = ("--recode", "labels.csv", "--categories", "q2=3")
    told = typed("check", "g.csv", *options).out
    assert "no: 2 wrong; yes: 2 right; yes: 2 code 2; no: 1 code 1; often: 1 code 0" in told
    typed("ingest", "g.csv", "s", *options)
    want = [[0, 0], [1, 1], [0, 2], [1, 2]]
    assert irt.open_responses(tmp_path / "s").read_block(0).data.values.tolist() == want
    typed("init", "g.csv", *options)
    text = Path("pipeline.toml").read_text()
    said = {"q1": {"no": 0, "yes": 1}, "q2": {"often": 0, "no": 1, "yes": 2}}
    assert tomllib.loads(text)["data"]["recode"] == said
    source, given = of_toml("pipeline.toml")
    r = irt.ingest(source, "t", **given)
    assert r.read_block(0).data.values.tolist() == want
    Path("pipeline.toml").write_text(text.replace("often = 0", 'often = "?"'))
    told = typed("run", "pipeline.toml", code=2).err
    assert "data.recode: 'often' still means '?'" in told
    Path("pipeline.toml").write_text(text.replace("often = 0", "often = 99"))
    assert "data.recode.q2" in typed("run", "pipeline.toml", code=2).err
    told = typed("ingest", "g.csv", "u", *options, "--recode", "9=missing", code=2).err
    assert "--recode 'labels.csv': write CODE=MEANING, for example 9=wrong, or the name of" in told
    (tmp_path / "labels.csv").write_text(table + "q3,no,0\n")
    told = typed("ingest", "g.csv", "u", *options, code=2).err
    assert "recode of the item 'q3': there is no column 'q3'" in told


def test_init_writes_what_was_said_of_categories(typed, tmp_path):
    (tmp_path / "g.csv").write_text(GRADED)
    (tmp_path / "k.csv").write_text("item,categories\nq2,5\n")
    typed("init", "g.csv", "--categories", "k.csv", "--missing", 9, "--reverse", "q2,q3",
          "--recode", "x=4", "--null-categories", "keep")  # fmt: skip
    data = read_config(tmp_path / "pipeline.toml").data
    assert (data.categories, data.reverse) == ({"q2": 5}, ["q2", "q3"])
    assert (data.recode, data.null_categories) == ({"x": 4}, "keep")
    file = tmp_path / "pipeline.toml"
    bayes = re.sub(r'(?s)"marginal".*?(?=\[score])', '"bayes"\n', file.read_text())
    file.write_text(bayes)
    told = typed("run", "pipeline.toml", code=2)
    assert '[bayes] model = "2pl", the default, is for items of two' in told.err


@pytest.mark.parametrize("least", [2, 3])
def test_init_calibrates_items_of_more_categories_by_a_method_that_knows_them(
    typed, tmp_path, least, no_pictures
):
    """The file runs as it is, with items of two categories among them and without."""
    codes = np.random.default_rng(7).integers(0, [least, 3, 4, 4, 3], (300, 5))
    table = pd.DataFrame(codes, columns=[f"q{i}" for i in range(5)]).rename_axis("person")
    table.to_csv(tmp_path / "g.csv")
    typed("init", "g.csv", "--categories", "data")
    config = read_config(tmp_path / "pipeline.toml")
    assert (config.calibrate.method, config.marginal.model) == (
        "marginal",
        "2pl+graded" if least == 2 else "graded",
    )
    typed("run", "pipeline.toml")


def test_categories_that_were_dropped_are_told(typed, tmp_path):
    (tmp_path / "g.csv").write_text("person,q1,q2\na,0,3\nb,1,0\nc,1,1\n")
    options = ("--categories", "q2=4", "--null-categories")
    assert "--null-categories keep" in typed("ingest", "g.csv", "s", *options, "raise", code=2).err
    told = typed("ingest", "g.csv", "s", *options, "collapse")
    assert "categories without a response are dropped: 'q2' (2)" in told.err
    told = typed("info", "s").out
    assert "categories          2 (1 item), 3 (1 item)" in told
    assert "dropped categories  q2 (2)" in told
    assert json.loads(typed("info", "s", "--json").out)["collapsed"] == {"q2": [0, 1, None, 2]}
    told = typed("check", "g.csv", *options, "collapse").out
    assert "categories          2 (1 item), 3 (1 item)" in told


# --- scales, and how they are spoken of -----------------------------------------------------------

SCALE = "person,q1,q2\n" + "".join(f"p{k},{k % 5 + 1},{k * 3 % 5 + 1}\n" for k in range(40))


def test_codes_that_begin_at_1_are_suggested_with_their_recode(typed, tmp_path):
    """What is suggested, typed as it stands, makes a store of five categories."""
    (tmp_path / "g.csv").write_text(SCALE)
    told = typed("check", "g.csv", code=2).out
    recode = [f"--recode {k}={k - 1}" for k in range(1, 6)]
    assert "perhaps categories  codes 1 to 5 in q1, q2; if so, say --categories" in told
    assert " ".join(recode) in told
    typed("ingest", "g.csv", "s", "--categories", "5", *" ".join(recode).split())
    assert irt.open_responses(tmp_path / "s").n_categories == (5, 5)
    told = typed("ingest", "g.csv", "t", "--categories", "6", code=2).err
    assert "2 item(s) have categories without a response" in told
    assert f"codes seem to begin at 1: if so, say {' '.join(recode)}" in told
    typed("init", "g.csv")
    text = (tmp_path / "pipeline.toml").read_text()
    assert "# recode = { 1 = 0, 2 = 1, 3 = 2, 4 = 3, 5 = 4 }   # with categories" in text


def test_codes_do_not_begin_at_1_where_some_item_has_a_0(typed, tmp_path):
    (tmp_path / "g.csv").write_text(SCALE.replace("p0,1,", "p0,0,"))
    told = typed("check", "g.csv", code=2).out
    assert "codes up to 5" in told
    assert "--recode 1=0" not in told
    told = typed("ingest", "g.csv", "t", "--categories", "6", code=2).err
    assert "begin at 1" not in told


def test_a_lone_9_is_no_reason_to_count_categories_by_the_data(typed, tmp_path):
    """By the data, items with a 9 for what is missing would have ten categories."""
    (tmp_path / "g.csv").write_text("person,q1,q2\na,0,3\nb,1,2\nc,0,1\nd,1,0\ne,9,9\n")
    told = typed("check", "g.csv", code=2).out
    assert "codes up to 3 in q2; if so, say --categories q2=4\n" in told
    typed("init", "g.csv")
    assert 'categories = "data"' not in (tmp_path / "pipeline.toml").read_text()


def test_labels_are_told_how_they_become_codes(typed, tmp_path):
    (tmp_path / "g.csv").write_text("person,q1\na,never\nb,often\n")
    told = typed("ingest", "g.csv", "s", code=2).err
    assert "say --categories and, for each label, --recode never=CODE" in told


def test_numbers_of_categories_in_one_option(typed, tmp_path):
    (tmp_path / "g.csv").write_text(GRADED)
    options = ("--categories", "q2=5,q3=2", "--missing", "9")
    assert checked(typed, "g.csv", *options)["n_categories"] == [2, 5, 2]
    told = typed("check", "g.csv", "--categories", "q2=5,q3", code=2).err
    assert "--categories q2=5,q3 is neither a number nor" in told


def test_check_says_which_categories_would_be_dropped(typed, tmp_path):
    (tmp_path / "g.csv").write_text("person,q1,q2\na,0,3\nb,1,0\nc,1,1\n")
    told = typed("check", "g.csv", "--categories", "q2=4", "--null-categories", "collapse").out
    assert "categories without a response are dropped: 'q2' (2)" in told


def wide(path, columns):
    pd.DataFrame({"id": [f"{k:03d}" for k in range(6)], **columns}).to_csv(path, index=False)


def test_columns_that_are_perhaps_no_items_bring_no_questions_about_their_values(typed, tmp_path):
    y = {f"q{j}": [0, 1] * 3 for j in (1, 2)}
    wide("f.csv", {**y, "time": range(12, 18), "sex": list("mfmfmf"), "q3": [1, 0] * 3})
    seen = checked(typed, "f.csv", code=2)
    assert seen["perhaps_categories"] is None
    out = typed("init", "f.csv").out
    assert [x for x in out.splitlines() if "decide" in x] == [
        "to decide: are these items? time, sex",
        "then, when that is decided in pipeline.toml: irt-dask run pipeline.toml",
    ]
    text = Path("pipeline.toml").read_text()
    assert "# recode" not in text
    Path("pipeline.toml").write_text(text.replace("# exclude", "exclude"))
    source, options = of_toml("pipeline.toml")
    assert irt.ingest(source, "s", **options).item_id == ("q1", "q2", "q3")
    assert "then: irt-dask run" in typed("init", "f.csv", "--exclude", "time,sex", "--out", "b").out


@pytest.mark.parametrize("right, wrong", [("correct", "incorrect"), ("Richtig", "Falsch"),
                                          ("RIGHT", "WRONG")])  # fmt: skip
def test_words_for_right_and_wrong_are_offered_as_such(typed, tmp_path, right, wrong):
    wide("f.csv", {f"q{j}": [right, wrong, right] * 2 for j in range(3)})
    for first, other in ((right, wrong), (wrong, right)):
        Path("g.csv").write_text(f"id,q1\na,{first}\nb,{other}\n")
        says = ("right", "wrong") if first == right else ("wrong", "right")
        told = typed("check", "g.csv", code=2).err
        assert f"say --recode {first}={says[0]} --recode {other}={says[1]}" in told
    typed("init", "f.csv")
    text = Path("pipeline.toml").read_text()
    assert "# missing" not in text
    assert "# exclude" not in text  # all items: that is no way out
    Path("pipeline.toml").write_text(text.replace("# recode", "recode"))
    source, options = of_toml("pipeline.toml")
    made = irt.ingest(source, "s", **options)
    assert made.to_xarray()["response"].values[:3, 0].tolist() == [1, 0, 1]
    assert made.person_ids(0)[0] == "000"


def test_labels_of_categories_wait_for_codes(typed, tmp_path):
    """Their order is not known: codes by how often they occur would run, and be wrong."""
    labels = ["often", "never", "always"]
    wide("f.csv", {f"q{j}": labels * 2 for j in range(3)})
    typed("init", "f.csv")
    text = Path("pipeline.toml").read_text()
    assert '# recode = { often = "?", never = "?", always = "?" }   # of labels' in text
    assert "# categories = 3" in text
    assert "a chi-square (S-X2 too where everybody answered everything)" in text
    changed = text.replace("# recode", "recode").replace("# categories", "categories")
    Path("pipeline.toml").write_text(changed)
    told = typed("run", "pipeline.toml", code=2).err
    assert "data.recode: 'often', 'never', 'always' still mean '?': say the code of each" in told
    for label, code in (("never", 0), ("often", 1), ("always", 2)):
        changed = changed.replace(f'{label} = "?"', f"{label} = {code}")
    Path("pipeline.toml").write_text(changed)
    source, options = of_toml("pipeline.toml")
    made = irt.ingest(source, "s", **options)
    assert set(made.n_categories) == {3}
    assert made.to_xarray()["response"].values[:3, 0].tolist() == [1, 0, 2]
    told = typed("ingest", "f.csv", "t", "--recode", "often=?", "--recode", "never=0", code=2).err
    assert "recode: 'often' still means '?': say the code of each" in told


def test_two_unknown_labels_wait_for_their_meaning(typed, tmp_path):
    """The same meaning for both would run, and all responses would be wrong."""
    wide("f.csv", {f"q{j}": ["gelb", "blau", "blau"] * 2 for j in range(3)})
    typed("init", "f.csv")
    text = Path("pipeline.toml").read_text()
    said = '# recode = { blau = "?", gelb = "?" }   # the others: put "right", "wrong" or a code'
    assert said in text
    Path("pipeline.toml").write_text(text.replace("# recode", "recode"))
    told = typed("run", "pipeline.toml", code=2).err
    assert "data.recode: 'blau', 'gelb' still mean '?': say the code of each" in told
    filled = text.replace('# recode = { blau = "?", gelb', 'recode = { blau = "right", gelb')
    Path("pipeline.toml").write_text(filled.replace('gelb = "?"', 'gelb = "wrong"'))
    source, options = of_toml("pipeline.toml")
    assert irt.ingest(source, "s", **options).to_xarray()["response"].values[:, 0].tolist() == [
        0, 1, 1, 0, 1, 1,
    ]  # fmt: skip


def test_answers_that_a_key_of_scores_does_not_have_are_seen(typed, tmp_path):
    wide("f.csv", {"q1": ["both", "bothh", "one"] * 2, "q2": ["A", "B", "C"] * 2})
    Path("k.csv").write_text("item,answer,score\nq1,both,2\nq1,one,1\nq2,A,1\n")
    options = ("--key", "k.csv", "--null-categories", "keep")
    said = "f.csv: 2 answer(s) score 0 as the key does not have them: 'bothh' to the item 'q1' (2)"
    assert typed("check", "f.csv", *options).out.count(said) == 1
    assert f"# {said}" in (typed("init", "f.csv", *options), Path("pipeline.toml"))[1].read_text()
    assert typed("ingest", "f.csv", "s", *options).err.count(f"warning: {said}") == 1


def test_text_of_several_lines_is_no_code(typed, tmp_path):
    said = ['one\ntwo "of them"', "x", "y"] * 2
    wide("f.csv", {"q1": [0, 1] * 3, "q2": [1, 0] * 3, "word": said})
    values = [v["text"] for v in checked(typed, "f.csv", code=2)["values"]]
    assert 'one two "of them"' in values
    assert "\v" not in typed("init", "f.csv").out


@pytest.mark.parametrize("name, told", [
    ("a.xlsx", "save the sheet of the responses as 'CSV UTF-8' there"),
    ("a.sav", "export it there as CSV"), ("a.txt", "rename it to .csv"), ("a.png", "must end in"),
])  # fmt: skip
def test_files_of_other_programs_are_told_what_to_do_with(typed, tmp_path, name, told):
    Path(name).write_text("x")
    assert told in typed("check", name, code=2).err


def test_rows_that_are_bad_and_persons_who_are_there_twice(tmp_path, typed):
    """Cells are those of the rows; groups say that they are of some rows alone."""
    path = tmp_path / "test.csv"
    path.write_text("id;class;q1;q2\na;7a;1;\nb;7b;0;1\na;7a;1;1\n")
    text = typed("check", path, "--exclude", "class", code=2).out
    assert "persons             2\n" in text
    assert "not observed        16.7% of cells" in text  # 1 of 3 x 2
    path.write_text("id;class;q1;q2\na;7a;1;0\nb;7b;0;x\nc;7a;1;1\n")
    text = typed("check", path, "--column", "group=class", code=2).out
    assert "groups              1: 7a 2 rows (of the rows that are not bad)" in text


def small_file(path: Path, cell) -> Path:
    """A file of 40 persons and 8 items."""
    rows = [f"p{i}," + ",".join(cell(i, j) for j in range(8)) for i in range(40)]
    path.write_text("id," + ",".join(f"q{j}" for j in range(8)) + "\n" + "\n".join(rows) + "\n")
    return path


def test_covariates_that_are_perhaps_weights_are_told(tmp_path, typed):
    file = small_file(tmp_path / "r.csv", lambda i, j: str((i + j) % 2))
    persons = tmp_path / "persons.csv"
    for name, told in (("wgt", True), ("W_FSTUWT", True), ("ses", False), ("w1", False)):
        persons.write_text(f"id,{name}\n" + "".join(f"p{i},{1 + i % 3}\n" for i in range(40)))
        said = typed("check", file, "--persons", persons).out
        assert name in re.search("covariates +(.*)", said).group(1)
        assert ("call the column weight" in said) == told
    persons.write_text("id,weight,wt\n" + "".join(f"p{i},1,2\n" for i in range(40)))
    assert "call the column" not in typed("check", file, "--persons", persons).out
    persons.write_text("id,gender\n" + "".join(f"p{i},f\n" for i in range(40)))
    said = typed("check", file, "--persons", persons, code=2).err
    assert "if these are labels, say --column labels=gender" in said
    assert "if they are the groups of persons, --column group=gender" in said


def test_the_offered_columns_that_are_no_items_are_not_most_of_them(tmp_path, typed):
    file = small_file(tmp_path / "r.csv", lambda i, j: str(1 + (i * 7 + j) % 4))
    text = file.read_text().splitlines()
    rows = [f"{t},{1 + i % 2}" for i, t in enumerate(text[1:])]
    file.write_text("\n".join([f"{text[0]},sex", *rows]))
    typed("init", file, "--out", tmp_path / "p.toml")
    assert '# exclude = ["sex"]' in (tmp_path / "p.toml").read_text()


@pytest.mark.parametrize(
    "values, wanted",
    [
        (("F", "T"), {"F": "wrong", "T": "right"}),
        (("0", "0.5", "1"), {"0": 0, "0.5": 1, "1": 2}),
    ],
)
def test_true_and_false_and_partial_scores_are_offered_as_such(tmp_path, typed, values, wanted):
    file = small_file(tmp_path / "r.csv", lambda i, j: values[(i * 5 + j) % len(values)])
    typed("init", file, "--out", tmp_path / "p.toml")
    (line,) = re.findall("# (recode = .*)", (tmp_path / "p.toml").read_text())
    assert tomllib.loads(line)["recode"] == wanted


def test_a_column_called_as_weights_are_is_asked_about(tmp_path, typed):
    file = small_file(tmp_path / "r.csv", lambda i, j: str((i + j) % 2))
    text = file.read_text().splitlines()
    file.write_text("\n".join([f"{text[0]},Gewicht", *(f"{t},1.5" for t in text[1:])]))
    assert "'Gewicht' hold the weight" in typed("init", file, "--out", tmp_path / "p.toml").out


def test_json_lines_are_called_as_py_irt_calls_them(tmp_path, typed):
    lines = [json.dumps({"subject_id": f"m{i}", "responses": {"q1": i % 2, "q2": 1 - i % 2}})
             for i in range(4)]  # fmt: skip
    (tmp_path / "r.jsonlines").write_text("\n".join(lines))
    assert "items               2: q1, q2" in typed("check", tmp_path / "r.jsonlines").out


def test_a_file_without_persons_says_what_to_add(tmp_path, typed):
    (tmp_path / "r.csv").write_text("q1,q2\n0,1\n1,0\n")
    assert "add one, such as id" in typed("check", tmp_path / "r.csv", code=2).err


# --- files that are no responses, and columns that are none ---------------------------------------


def test_values_that_nobody_explained_are_not_called_nonresponse(tmp_path, typed):
    file = small_file(tmp_path / "r.csv", lambda i, j: str((i + j) % 3))
    assert "unknown in q0 ... q7 (8)" in typed("check", file, code=2).out
    meant = {v["text"]: v["meaning"] for v in checked(typed, file, code=2)["values"]}
    assert meant == {"0": "wrong", "1": "right", "2": "unknown"}


def test_columns_of_many_different_values_are_asked_about(tmp_path, typed):
    """Once, and not value by value; not where most columns have them, as answers without a key."""
    file = small_file(
        tmp_path / "r.csv", lambda i, j: f"{i}.5" if j in (2, 5) else str((i + j) % 2)
    )
    seen = checked(typed, file, code=2)
    assert set(seen["perhaps_no_items"]) == {"q2", "q5"}
    out = typed("init", file, "--out", tmp_path / "p.toml").out
    assert "to decide: are these items? q2, q5\nthen, when" in out
    assert '# exclude = ["q2", "q5"]' in (tmp_path / "p.toml").read_text()
    file = small_file(tmp_path / "s.csv", lambda i, j: str(20 + i + j))
    assert checked(typed, file, code=2)["perhaps_no_items"] == {}


def test_columns_of_large_assessments_are_known_by_name(tmp_path, typed):
    """And the items that share a code with them are not offered as none."""
    rows = [f"p{i},{i % 3},{i % 3},{i % 3},{i % 2},{i % 2},{i % 2},{i % 2},36,{1 + i % 2},{i % 14}"
            for i in range(40)]  # fmt: skip
    head = "id,M1,M2,M3,N1a,N2b,N3c,N4d,IDCNTRY,ITSEX,IDBOOK"
    (tmp_path / "f.csv").write_text("\n".join([head, *rows]))
    seen = checked(typed, "f.csv", code=2)
    assert set(seen["perhaps_no_items"]) == {"IDCNTRY", "ITSEX", "IDBOOK"}
    assert seen["perhaps_categories"] == {"M1": 3, "M2": 3, "M3": 3}
    typed("init", "f.csv")
    text = Path("pipeline.toml").read_text()
    assert '# exclude = ["IDCNTRY", "ITSEX", "IDBOOK"]' in text


def test_tables_of_persons_and_of_items_are_told_where_they_belong(tmp_path, typed):
    (tmp_path / "p.csv").write_text("person,age,weight\na,12,1.5\nb,13,2\n")
    assert "give it beside a file of responses, by --persons" in typed("check", "p.csv", code=2).out
    (tmp_path / "k.csv").write_text("item,key\nq1,A\nq2,B\n")
    for command in ("check", "init"):
        told = typed(command, "k.csv", code=2).err
        assert "goes with a file of responses: --key ... or --categories ..." in told
        assert "add one, such as id" not in told


def test_a_title_above_the_header_and_a_workbook_called_csv(tmp_path, typed):
    (tmp_path / "t.csv").write_text("Spring test;;\n;;\nid;q1;q2\na;0;1\n")
    assert "if this is a title, delete it" in typed("check", "t.csv", code=2).err
    (tmp_path / "w.csv").write_bytes(b"PK\x03\x04\x14\x00\x00\x00\x08\x00")
    assert "a workbook or an archive, whatever its name" in typed("check", "w.csv", code=2).err


def test_a_row_of_totals_makes_no_columns_of_others(tmp_path, typed):
    file = small_file(tmp_path / "r.csv", lambda i, j: str((i + j) % 2))
    file.write_text(file.read_text() + "sum," + ",".join(str(70 + j) for j in range(8)) + "\n")
    typed("init", file, "--out", tmp_path / "p.toml")
    assert "# exclude" not in (tmp_path / "p.toml").read_text()


def test_letters_are_offered_a_key_and_yes_is_not_wrong(tmp_path, typed):
    file = small_file(tmp_path / "r.csv", lambda i, j: "ABCD"[(i * 3 + j) % 4])
    typed("init", file, "--out", tmp_path / "p.toml")
    assert '# key = "key.csv"' in (tmp_path / "p.toml").read_text()
    for n, (yes, no) in enumerate([("yes", "no"), ("Y", "N"), ("Ja", "Nein")]):
        file = small_file(tmp_path / f"{n}.csv", lambda i, j: (yes, no)[(i * 3 + j) % 2])  # noqa: B023
        typed("init", file, "--out", tmp_path / f"{n}.toml")
        (line,) = re.findall("# (recode = .*)", (tmp_path / f"{n}.toml").read_text())
        assert tomllib.loads(line)["recode"] == {yes: "right", no: "wrong"}
    file = small_file(tmp_path / "w.csv", lambda i, j: ("yes", "no", "perhaps")[(i + j) % 3])
    typed("init", file, "--out", tmp_path / "w.toml")
    assert "# categories = 3" in (tmp_path / "w.toml").read_text()


@pytest.mark.parametrize("options", [(), ("--categories", "data")])
def test_what_is_decided_of_categories_leaves_a_file_that_runs(
    typed, tmp_path, options, no_pictures
):
    """The method is one for the categories that init offers, or whose number the data say."""
    codes = np.random.default_rng(7).integers(1, 5, (300, 4))
    table = pd.DataFrame(codes, columns=list("abcd")).rename_axis("person")
    table.to_csv(tmp_path / "g.csv")
    typed("init", "g.csv", *options)
    file = Path("pipeline.toml")
    config = read_config(file)
    assert (config.calibrate.method, config.marginal.model) == ("marginal", "2pl+graded")
    text = file.read_text()
    if not options:
        text = text.replace("# recode", "recode").replace("# categories", "categories")
        file.write_text(text)
        typed("run", "pipeline.toml")


def test_attempts_are_counted_before_a_pipeline(typed, tmp_path):
    (tmp_path / "y.csv").write_text("person,item,attempt,response\na,q,1,0\na,q,2,1\nb,q,1,1\n")
    out = typed("init", "y.csv").out
    assert "by irt-dask ingest with --trials, and name that store here" in out
    assert "trials=" not in out


def test_groups_of_a_marginal_calibration_are_those_of_the_scores(typed, tmp_path):
    """As run says otherwise that abilities are drawn towards 0."""
    small_file(tmp_path / "r.csv", lambda i, j: ("a" if i % 2 else "b") if j == 0 else str(i % 3))
    typed("init", "r.csv", "--categories", "3", "--column", "group=q0")
    assert 'prior = "groups"\n' in Path("pipeline.toml").read_text()


@pytest.mark.parametrize("n, few", [(28, True), (199, True), (200, False)])
def test_items_of_few_persons_lend_each_other_strength(typed, tmp_path, n, few):
    """As the page about choosing says; with weights and groups, too, and the file is read."""
    table = write_exam(tmp_path / "f.csv", n)
    table.drop(columns=["w", "land", "sex"]).to_csv(tmp_path / "g.csv", index=False)
    typed("init", "g.csv", "--out", "g.toml")
    config = read_config(tmp_path / "g.toml")
    assert config.calibrate.method == ("marginal" if few else "bayes")
    assert config.marginal.prior == ("empirical" if few else None)
    said = f"# {n} persons are few for two numbers an item"
    assert (said in (tmp_path / "g.toml").read_text()) == few
    typed("init", "f.csv", *ROLES, "--exclude", "sex", "--out", "f.toml")
    assert (read_config(tmp_path / "f.toml").marginal.prior == "empirical") == few


@pytest.mark.slow
def test_the_file_of_few_persons_runs_unchanged(tmp_path, typed):
    write_exam(tmp_path / "f.csv", 60)
    typed("init", "f.csv", *ROLES)
    typed("run", "pipeline.toml", "--cluster", "none", "--quiet")
    assert (tmp_path / "runs" / "pipeline" / "report.html").exists()
