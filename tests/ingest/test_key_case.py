"""Answers that differ from the key in case alone: d, where the key has D."""

import pytest

import irt_dask as irt
from irt_dask.errors import InputError

KEY = {"q1": "A", "q2": "D"}


def ingested(tmp_path, lines, **options):
    (tmp_path / "f.csv").write_text("id,q1,q2\n" + "\n".join(lines) + "\n")
    r = irt.ingest(tmp_path / "f.csv", tmp_path / "s", key=KEY | options.pop("more", {}), **options)
    return r.to_xarray()["response"].values.tolist()


def test_such_an_answer_is_refused(tmp_path):
    """Of any item: a is no answer to q2 either, as the same hand wrote it."""
    for line, text, option in (("p,A,d", "d", "D"), ("p,A,a", "a", "A")):
        with pytest.raises(InputError) as caught:
            ingested(tmp_path, ["o,A,D", line])
        said = str(caught.value)
        assert f"line 3: column 'q2' has the value '{text}'; the key has '{option}'" in said
        assert f"recode={{'{text}': 'wrong'}}" in said


def test_what_is_said_of_it_goes_before(tmp_path):
    assert ingested(tmp_path, ["o,A,D", "p,B,d", "r,c,D"], recode={"d": "wrong"}) == [
        [1, 1], [0, 0], [0, 1],
    ]  # fmt: skip


def test_both_cases_in_the_key_are_two_answers(tmp_path):
    more = {"q2": {"D": 1, "d": 0}}
    assert ingested(tmp_path, ["o,A,D", "p,A,d"], more=more) == [[1, 1], [1, 0]]


def test_numbers_are_numbers(tmp_path):
    """1e1 is 10 is 1E1."""
    assert ingested(tmp_path, ["o,A,1e1", "p,A,10", "q,A,2"], more={"q2": "1E1"}) == [
        [1, 1], [1, 1], [1, 0],
    ]  # fmt: skip


def test_a_file_with_some_goes_on_without_them(tmp_path):
    lines = ["o,A,D", "p,A,d", "r,B,C"]
    assert ingested(tmp_path, lines, on_error="quarantine") == [[1, 1], [0, 0]]
    assert irt.open_responses(tmp_path / "s").n_quarantined == 1


@pytest.mark.parametrize("form", ["wide", "long"])
def test_a_key_in_another_case_than_all_answers_is_to_be_changed(form, tmp_path):
    text = {"wide": "id,q1,q2\np,a,c\no,b,\n", "long": "person,item,response\np,q1,a\np,q2,b\n"}
    (tmp_path / "f.csv").write_text(text[form])
    with pytest.raises(InputError, match=r"the key has 'A'") as caught:
        irt.ingest(tmp_path / "f.csv", tmp_path / "s", key=KEY)
    said = str(caught.value)
    assert "the key's letters differ in case from the data's; change the key, not the data" in said
    assert "in the file" not in said
    assert "recode" not in said


@pytest.mark.parametrize("form", ["wide", "long"])
def test_a_key_that_names_no_item_of_the_data_is_shown_beside_it(form, tmp_path):
    text = {"wide": "id,Q 1,Q 2\np,A,D\n", "long": "person,item,response\np,Q 1,A\np,Q 2,B\n"}
    (tmp_path / "f.csv").write_text(text[form])
    (tmp_path / "k.csv").write_text("item,key\n1,A\n2,D\n3,D\n4,D\n")
    with pytest.raises(InputError) as caught:
        irt.ingest(tmp_path / "f.csv", tmp_path / "s", key=tmp_path / "k.csv")
    said = str(caught.value)
    assert "none of the key's 4 item(s) is in the data" in said
    assert "the key has '1', '2', '3' and 1 more, the data 'Q 1', 'Q 2'" in said
    assert "the key's column 'item' has to have the names of the data's" in said
    assert "exclude" not in said
