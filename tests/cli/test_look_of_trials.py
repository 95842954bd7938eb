"""irt-dask check --trials says what irt-dask ingest --trials makes of a file."""

import json

import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.ingest import look as looks


def attempts(path, n=40):
    """Three attempts at two items, two at another; the last person lacks one of each."""
    rows = [
        (f"p{i}", item, t, (i + t + j) % 2)
        for i in range(n)
        for j, item in enumerate("abc")
        for t in range(2 if item == "c" else 3)
        if (i, t) != (n - 1, 1)
    ]
    pd.DataFrame(rows, columns=["person", "item", "attempt", "response"]).to_csv(path, index=False)


@pytest.mark.filterwarnings("ignore::irt_dask.errors.DataWarning")
def test_counted_attempts(typed, tmp_path):
    attempts(tmp_path / "y.csv")
    said = json.loads(typed("check", "y.csv", "--trials", "attempt", "--json", "--quiet").out)
    made = irt.ingest("y.csv", "s", trials="attempt")
    y = made.to_xarray()["response"].values
    assert (said["persons"], said["item_id"]) == (made.n_persons, list(made.item_id))
    assert said["n_categories"] == list(made.n_categories) == [4, 4, 3]
    assert said["missing_share"] == pytest.approx((y < 0).mean()) != 0.0
    assert any("3 answers to 3 item(s) have fewer attempts" in note for note in said["notes"])
    assert said["rows"] == len(pd.read_csv("y.csv"))
    text = typed("check", "y.csv", "--trials", "attempt", "--quiet").out
    assert "3: a, b, c" in text
    refused = typed("check", "y.csv", "--trials", "attempt", "--key", "a=1", code=2).err
    assert "does not go together with --trials" in refused


def test_shares_of_attempts(typed, tmp_path):
    (tmp_path / "w.csv").write_text("person,a,b\np,0.5,1\nq,0.25,0\nr,1,\n")
    said = json.loads(typed("check", "w.csv", "--trials", "4", "--json", "--quiet").out)
    made = irt.ingest("w.csv", "s", trials=4)
    assert said["n_categories"] == list(made.n_categories) == [5, 5]
    assert said["missing_share"] == pytest.approx(1 / 6)
    (tmp_path / "w.csv").write_text("person,a,b\np,0.3,1\nq,0.25,0\n")
    found = typed("check", "w.csv", "--trials", "4", "--quiet", code=2).err
    assert found == typed("ingest", "w.csv", "t", "--trials", "4", "--quiet", code=2).err
    assert "0.3" in found


def test_pieces_do_not_say_categories(typed, tmp_path, monkeypatch):
    attempts(tmp_path / "y.csv")
    monkeypatch.setattr(looks, "_PIECES", 0)
    monkeypatch.setattr(looks, "_size", lambda source, k: source.size // 4)
    said = json.loads(typed("check", "y.csv", "--trials", "attempt", "--json", "--quiet").out)
    assert not said["whole"]
    assert said["item_id"] == ["a", "b", "c"]
    assert (said["n_categories"], said["missing_share"]) == (None, None)
    assert any("pieces of a file do not say" in note for note in said["notes"])


def test_files_that_have_no_such_attempts(typed, tmp_path):
    """What was typed is spoken of, and what each form of a file can say."""
    (tmp_path / "w.csv").write_text("person,a,b\np,5,1\nq,0,3\n")
    for command in (("check", "w.csv"), ("ingest", "w.csv", "s")):
        told = typed(*command, "--trials", "attempt", "--quiet", code=2).err
        assert "--trials attempt: there is no such column" in told
        assert "facets" not in told
        assert "of a wide file whose values are shares right say of how many: --trials N" in told
    told = typed("check", "w.csv", "--trials", "8", "--quiet", code=2).err
    assert "if responses are counts, 0 to 8, say --categories 9 in place of --trials" in told
    (tmp_path / "v.csv").write_text("person,attempt,a\np,1,0\np,2,1\n")
    told = typed("check", "v.csv", "--trials", "attempt", "--quiet", code=2).err
    assert "attempts are counted in a long file, a row per attempt" in told


@pytest.mark.parametrize("n", [127, 200])
def test_more_attempts_than_a_response_can_count(typed, tmp_path, n):
    rows = "".join(f"{p},{i},{t},{t % 2}\n" for p in "pq" for i in "ab" for t in range(n))
    (tmp_path / "y.csv").write_text("person,item,attempt,response\n" + rows)
    told = typed("check", "y.csv", "--trials", "attempt", "--quiet", code=2).err
    assert f"the item 'a' has {n} attempts of one person" in told
    assert "from 1 to 14" in typed("check", "y.csv", "--trials", str(n), "--quiet", code=2).err
