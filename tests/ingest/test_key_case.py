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
