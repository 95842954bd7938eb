"""irt-dask options: from a table of letters and a key to what is wrong with the options."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import irt_dask as irt
from irt_dask.cli.main import cli
from irt_dask.errors import InputError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """20 items with options A to D: of q9 nobody chose D, and the key of q6 is wrong."""
    folder, rng = tmp_path_factory.mktemp("options"), np.random.default_rng(3)
    right = irt.simulate(300, 20, seed=3).to_xarray()["response"].values == 1
    key = rng.integers(0, 3, 20)
    y = np.where(right, key, (key + rng.integers(1, 4, right.shape)) % 4)
    y[:, 9] = np.where(y[:, 9] == 3, (key[9] + 1) % 3, y[:, 9])
    letters, names = np.array(list("ABCD")), [f"q{j}" for j in range(20)]
    table = pd.DataFrame(letters[y], columns=names, index=[f"p{i}" for i in range(300)])
    table.iloc[:20, 4] = ""
    table.rename_axis("person").to_csv(folder / "answers.csv")
    key[6] = (key[6] + 1) % 3
    pd.DataFrame({"item": names, "key": letters[key]}).to_csv(folder / "key.csv", index=False)
    return folder, y, key


def typed(*words):
    return CliRunner().invoke(cli, ["options", *map(str, words)])


def test_from_letters_to_flags(files, tmp_path):
    folder, y, key = files
    ran = typed(folder / "answers.csv", folder / "key.csv", "--options", "A,B,C,D", "--out",
                tmp_path / "o.csv", "--json", "--quiet")  # fmt: skip
    assert ran.exit_code == 0, ran.output
    said = json.loads(ran.stdout)
    flags = {row["item"]: row["flag"] for row in said["flagged"]}
    assert [*flags] == ["q6"]
    assert "better_option" in flags["q6"]
    assert said["unused_option"] == ["q9"]
    assert said["n_unused_option"] == 1
    assert said["read_again"][0]["item"] == "q6"
    table = pd.read_csv(tmp_path / "o.csv")
    assert len(table) == len(said["options"]) == 80
    y = np.where((np.arange(300) < 20)[:, None] & (np.arange(20) == 4), -1, y).astype(np.int8)
    r = irt.from_array(y, item_id=[f"q{j}" for j in range(20)], categories=4)
    want = irt.option_analysis(r, dict(zip(r.item_id, key.tolist(), strict=True)))
    for name in ("count", "share", "rest", "correlation", "q_value"):
        np.testing.assert_allclose(table[name], want[f"item_option_{name}"].values.ravel())
    assert table["right"].to_numpy().reshape(20, 4).argmax(axis=1).tolist() == key.tolist()
    shown = typed(folder / "answers.csv", folder / "key.csv", "--options", "A,B,C,D")
    assert "Nobody chose an option of 1 item(s), which says nothing of their keys: 'q9': D" in (
        shown.output
    )


def test_mistakes(files, tmp_path):
    folder, _, _ = files
    ran = typed(folder / "answers.csv", folder / "key.csv")
    assert isinstance(ran.exception, InputError)  # nobody's key is D
    assert "options are A, B, C: --options says others" in str(ran.exception)
    assert "recode" not in str(ran.exception)
    short = pd.read_csv(folder / "key.csv").iloc[:19]
    short.to_csv(tmp_path / "short.csv", index=False)
    ran = typed(folder / "answers.csv", tmp_path / "short.csv", "--options", "A,B,C,D")
    assert "has no option for 1 item(s): 'q19'" in str(ran.exception)
    pd.concat([short, short.iloc[:1]]).to_csv(tmp_path / "twice.csv", index=False)
    ran = typed(folder / "answers.csv", tmp_path / "twice.csv")
    assert "has the item 'q0' twice" in str(ran.exception)
    one = short.assign(key="A")
    one.to_csv(tmp_path / "one.csv", index=False)
    ran = typed(folder / "answers.csv", tmp_path / "one.csv")
    assert "has one option alone, 'A': say all by --options" in str(ran.exception)
    ran = typed(folder / "answers.csv", folder / "key.csv", "--options", "A,,B,C,D")
    assert "an empty name" in str(ran.exception)
    ran = typed(folder / "answers.csv", folder / "key.csv", "--options", "A,B")
    assert "has the option 'C'; --options are A, B" in str(ran.exception)
    before = (folder / "key.csv").read_bytes()
    ran = typed(folder / "answers.csv", folder / "key.csv", "--options", "A,B,C,D", "--out",
                folder / "key.csv")  # fmt: skip
    assert "the command reads this file" in str(ran.exception)
    assert (folder / "key.csv").read_bytes() == before


def test_items_of_different_numbers_of_options(files, tmp_path):
    """What q9 does not have is not unused; a key of more items is remarked."""
    folder, _, _ = files
    table = pd.read_csv(folder / "key.csv").assign(options=4)
    table.loc[9, "options"] = 3
    more = pd.DataFrame({"item": ["other"], "key": ["A"], "options": [4]})
    pd.concat([table, more]).to_csv(tmp_path / "key.csv", index=False)
    ran = typed(folder / "answers.csv", tmp_path / "key.csv", "--options", "A,B,C,D", "--json")
    said = json.loads(ran.stdout)
    assert [row["item"] for row in said["flagged"]] == ["q6"]
    assert len(said["options"]) == 79
    assert "1 item(s) of " in ran.stderr
    assert "'other'" in ran.stderr
    table.loc[8, "options"] = 2
    table.to_csv(tmp_path / "few.csv", index=False)
    ran = typed(folder / "answers.csv", tmp_path / "few.csv", "--options", "A,B,C,D")
    assert "item q8 has 2 options" in str(ran.exception)


def test_what_a_spreadsheet_writes(files, tmp_path):
    """Semicolons and capitals in both files, names of persons, and a column that is no item."""
    folder, _, _ = files
    plain = typed(folder / "answers.csv", folder / "key.csv", "--options", "A,B,C,D", "--json")
    table = pd.read_csv(folder / "answers.csv").rename(columns={"person": "Name"})
    table.insert(1, "Class", "7a")
    table.to_csv(tmp_path / "test.csv", sep=";", index=False, encoding="utf-8-sig")
    key = pd.read_csv(folder / "key.csv")
    key.set_axis(["Item", "Key"], axis=1).to_csv(tmp_path / "k.csv", sep=";", index=False)
    words = [tmp_path / "test.csv", tmp_path / "k.csv", "--options", "A,B,C,D"]
    said = str(typed(*words, "--shape", "wide", "--column", "person=Name").exception)
    assert said.endswith("if the column is no item, --exclude Class")
    words += ["--column", "person=Name", "--exclude", "Class"]
    assert json.loads(typed(*words, "--json").stdout) == json.loads(plain.stdout)
    key.set_axis(["Item", "Answer"], axis=1).to_csv(tmp_path / "k.csv", index=False)
    assert json.loads(typed(*words, "--json").stdout) == json.loads(plain.stdout)
    key.assign(answer="A").to_csv(tmp_path / "both.csv", index=False)
    said = str(typed(words[0], tmp_path / "both.csv").exception)
    assert "both.csv has the columns key and answer, which mean the same" in said
    key.set_axis(["Question", "Right"], axis=1).to_csv(tmp_path / "other.csv", index=False)
    said = str(typed(words[0], tmp_path / "other.csv").exception)
    assert "no column item, key; it has Question, Right: call the columns" in said


def test_what_matters_comes_first(files):
    """Of an option that nobody chose little follows; what is not printed is counted."""
    folder, _, _ = files
    text = typed(folder / "answers.csv", folder / "key.csv", "--options", "A,B,C,D,E").output
    about, keys, numbers, flags, rows, unused = text.split("\n\n")[:6]
    assert "n flagged        1" in about
    assert "n unused option  20" in about
    assert keys.startswith("The key of 1 item is to be read again: ")
    assert numbers.startswith("'q6': ")
    assert "better_option" in numbers
    assert [line.split()[0] for line in flags.splitlines()[1:]] == ["q6"]
    assert {line.split()[0] for line in rows.splitlines()[1:]} == {"q6"}
    assert unused.startswith("Nobody chose an option of 20 item(s), which says nothing of their ")
    assert "'q0': E; 'q1': E" in unused
    assert "'q9': D, E; and 10 more" in unused


def test_a_small_class_is_told_which_keys_to_read_again(tmp_path):
    """28 persons, a wrong key: too few for a finding, enough for a second look."""
    rng = np.random.default_rng(3)
    able = rng.normal(size=28)[:, None] > np.linspace(-1.5, 1.5, 15)
    answers = pd.DataFrame(np.where(able, "A", "B"), columns=[f"\u00dc{j}" for j in range(15)])
    answers.insert(0, "person", [f"p{i}" for i in range(28)])
    key = pd.DataFrame({"item": answers.columns[1:], "key": "A"})
    key.loc[7, "key"] = "B"
    for table, name in ((answers, "a.csv"), (key, "k.csv")):
        table.to_csv(tmp_path / name, index=False, encoding="cp1252")
    words = [tmp_path / "a.csv", tmp_path / "k.csv", "--fdr", "1e-9"]
    assert "--encoding" in str(typed(*words).exception)
    said = typed(*words, "--encoding", "cp1252").output
    assert "'\u00dc7': A chosen by " in said
    assert "; the key B by " in said


def test_a_key_that_does_not_fit_the_answers_is_told_apart(files, tmp_path):
    """Other names, or letters in another case: the key is to be changed, not the answers."""
    folder, _, _ = files
    key = pd.read_csv(folder / "key.csv")
    key.assign(item=range(1, 21)).to_csv(tmp_path / "numbers.csv", index=False)
    words = ["--options", "A,B,C,D"]
    said = str(typed(folder / "answers.csv", tmp_path / "numbers.csv", *words).exception)
    assert "none of the key's 20 item(s) is in the data: the key has '1', '2', '3'" in said
    assert "the data 'q0', 'q1', 'q2' and 17 more" in said
    key.assign(key=key["key"].str.lower()).to_csv(tmp_path / "small.csv", index=False)
    said = str(typed(folder / "answers.csv", tmp_path / "small.csv").exception)
    assert "differ in case from the data's; change the key" in said
