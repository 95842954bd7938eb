"""Scoring again: only what is new or changed is computed, and the folder is that of one run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from parts import grown, made

import irt_dask as irt
from irt_dask.cli.main import main
from irt_dask.engine.lock import FolderLock
from irt_dask.engine.person_files import DONE
from irt_dask.errors import BusyError, InputError, Notice
from irt_dask.score import folder

ROWS, ITEMS = 50, 6


def write(path, n, *, first=0, flip=None):
    """A long file of n persons, the responses keyed by the person; one response turned round."""
    with open(path, "w") as f:
        f.write("person,item,response,group\n")
        for i in range(first, first + n):
            y = np.random.default_rng([7, i]).integers(0, 2, ITEMS)
            for j in range(ITEMS):
                value = 1 - y[j] if flip == (i, j) else y[j]
                f.write(f"p{i},i{j},{value},{'ab'[i % 2]}\n")
    return path


@pytest.fixture
def store(tmp_path):
    """Four blocks."""
    file = write(tmp_path / "a.csv", 4 * ROWS)
    irt.ingest(file, tmp_path / "store", columns={"group": "group"}, rows_per_block=ROWS)
    return tmp_path / "store"


def bank_table(shift=0.0):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "item": [f"i{j}" for j in range(ITEMS)],
            "a": rng.uniform(0.6, 1.6, ITEMS),
            "b": rng.normal(size=ITEMS) + shift,
        }
    )
    return frame


@pytest.fixture
def items(tmp_path):
    bank_table().to_csv(tmp_path / "bank.csv", index=False)
    return irt.read_items(tmp_path / "bank.csv")


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def times(folder):
    return {p.name: p.stat().st_mtime_ns for p in folder.glob("part-*")}


def counts(result):
    return result.attrs["n_blocks_scored"], result.attrs["n_blocks_kept"]


OPTIONS = [
    {"n_plausible": 2, "seed": 5},
    {"method": "ml"},
    {"prior": "groups"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=["plausible values", "ml", "groups"])
def test_again_and_after_an_append(store, items, tmp_path, options):
    out = tmp_path / "scores"
    first = irt.score(irt.open_responses(store), items, store=out, **options)
    before, made = contents(out), times(out)
    assert counts(first) == (4, 0)
    again = irt.score(irt.open_responses(store), items, store=out, **options)
    assert counts(again) == (0, 4)
    assert contents(out) == before
    assert times(out) == made
    assert again["ability_count"].identical(first["ability_count"])
    assert again.attrs["reliability"] == first.attrs["reliability"]

    for k in range(3):  # each a block
        file = write(tmp_path / f"{k}.csv", ROWS, first=(4 + k) * ROWS)
        irt.append(file, store, columns={"group": "group"})
    more = irt.score(irt.open_responses(store), items, store=out, **options)
    # The distributions of groups are those of all persons, so that new ones change everybody.
    assert counts(more) == ((7, 0) if "prior" in options else (3, 4))
    if "prior" not in options:
        assert {name: t for name, t in times(out).items() if name in made} == made
    scratch = irt.score(irt.open_responses(store), items, store=tmp_path / "scratch", **options)
    assert contents(out) == contents(tmp_path / "scratch")
    assert counts(scratch) == (7, 0)
    assert more.attrs["mean_ability"] == scratch.attrs["mean_ability"]
    assert len(pd.read_parquet(out)) == 7 * ROWS


def test_only_a_changed_block_is_computed(store, items, tmp_path):
    out = tmp_path / "scores"
    irt.score(irt.open_responses(store), items, store=out)
    made = times(out)
    shutil.rmtree(store)
    flipped = write(tmp_path / "c.csv", 4 * ROWS, flip=(2 * ROWS + 3, 1))
    r = irt.ingest(flipped, store, columns={"group": "group"}, rows_per_block=ROWS)
    assert counts(irt.score(r, items, store=out)) == (1, 3)
    changed = {name for name, t in times(out).items() if t != made[name]}
    assert changed == {"part-000002.parquet"}
    irt.score(r, items, store=tmp_path / "scratch")
    assert contents(out) == contents(tmp_path / "scratch")


def test_items_that_join_score_everybody_anew(items, tmp_path):
    """Scores of a shorter list of items are never taken for those of the list of now."""
    rng, names = np.random.default_rng(4), [f"i{j}" for j in range(ITEMS)]
    y, more = rng.integers(-1, 2, (4 * ROWS, ITEMS - 1)), rng.integers(-1, 2, (ROWS, ITEMS))
    store, out = tmp_path / "store", tmp_path / "scores"
    old = made(store, y, names[:-1], rows=ROWS)
    few = items.isel(items=slice(0, ITEMS - 1))
    first = irt.score(old, few, store=out)
    before = contents(out)
    new = grown(store, more, names, rows=ROWS)
    with pytest.raises(InputError, match=r"1 item\(s\) of the responses are not in items: i5"):
        irt.score(new, few, store=out)
    assert contents(out) == before
    assert counts(irt.score(old, few, store=out)) == (0, 4)  # a handle keeps to the list of then

    result = irt.score(new, items, store=out)
    assert counts(result) == (5, 0)
    irt.score(new, items, store=tmp_path / "scratch")
    assert contents(out) == contents(tmp_path / "scratch")
    assert result.attrs["n_persons"] == first.attrs["n_persons"] + ROWS
    scores = pd.read_parquet(out)["person_ability"]
    np.testing.assert_allclose(scores[: len(y)], irt.score(old, few)["person_ability"], atol=1e-9)
    with pytest.raises(InputError, match="scores of other responses, with more than 4 blocks"):
        irt.score(old, few, store=out)


@pytest.mark.slow
def test_looking_at_a_file_of_scores_starts_no_threads(store, items, tmp_path):
    """A process that ended at once was aborted by them, after all its work, once in 150 times."""
    irt.score(irt.open_responses(store), items, store=tmp_path / "scores")
    script = f"""
import os, pathlib
import pyarrow.parquet
from irt_dask.engine.person_files import footer
before = len(os.listdir("/proc/self/task"))
assert footer(pathlib.Path({str(tmp_path)!r}, "scores", "part-000000.parquet"))
assert len(os.listdir("/proc/self/task")) == before
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def bank_of(items, n):
    return items.isel(items=slice(0, n))


def test_items_outside_the_bank(store, items, tmp_path, bits, typed):
    """Ignored where that is asked for: the scores are those by the others alone."""
    r, few = irt.open_responses(store), bank_of(items, 4)
    with pytest.raises(InputError, match=r"2 item\(s\) .*: i4, i5; .*unknown_items='ignore'$"):
        irt.score(r, few)
    with pytest.raises(InputError, match="unknown_items='no' must be 'raise' or 'ignore'"):
        irt.score(r, few, unknown_items="no")
    strange = few.assign_coords(item_id=("items", list("abcd")))
    with pytest.raises(InputError, match=r"none of the responses' 6 item\(s\) is in items"):
        irt.score(r, strange, unknown_items="ignore")
    with pytest.warns(Notice, match=r"2 item\(s\) .* are ignored: 'i4', 'i5'; .* other 4"):
        found = irt.score(r, few, unknown_items="ignore")
    assert bits(found) == bits(irt.score(r.select(items=r.item_id[:4]), few))
    assert bits(irt.score(r, items, unknown_items="ignore")) == bits(irt.score(r, items))

    file = tmp_path / "x.csv"
    file.write_text("person,item,response,group\nx,i5,1,a\ny,i0,1,a\n")
    irt.append(file, store, columns={"group": "group"})
    bank_table().iloc[:4].to_csv(tmp_path / "few.csv", index=False)
    code, text = typed("score", "store", "few.csv", "--out", "scores", "--items", "bank")
    assert code == 0
    assert "note: 2 item(s) of the responses are not in items and are ignored" in text.err
    scores = pd.read_parquet(tmp_path / "scores").set_index("person_id")
    assert scores.loc["x", ["person_ability", "person_ability_sd", "n_responses"]].tolist() == [
        pytest.approx(0.0, abs=1e-12), pytest.approx(1.0, abs=1e-4), 0,
    ]  # fmt: skip
    assert scores.loc["y", "n_responses"] == 1


@pytest.mark.filterwarnings("ignore::irt_dask.errors.Notice")
def test_a_folder_of_scores_by_a_bank_that_grows(store, items, tmp_path):
    """Blocks are kept by what the manifest says of them; another bank scores everybody anew."""
    out, options = tmp_path / "scores", {"unknown_items": "ignore"}

    def score(m, to=out):
        return counts(irt.score(irt.open_responses(store), bank_of(items, m), store=to, **options))

    assert score(3) == (4, 0)
    before = contents(out)
    for row in ("p7,new,1,b", "p60,new,0,a"):
        (tmp_path / "m.csv").write_text(f"person,item,response,group\n{row}\n")
        irt.append(tmp_path / "m.csv", store, columns={"group": "group"}, on_duplicate="merge")
        assert score(3) == (1, 3)
    assert contents(out).keys() == before.keys()
    assert score(3, tmp_path / "scratch") == (4, 0)
    assert contents(out) == contents(tmp_path / "scratch")
    assert score(3) == (0, 4)
    assert score(5) == (4, 0)
    with pytest.raises(InputError, match=r"scores by 5 items, 1 of which would not count .*: 'i4'"):
        score(4)
    assert score(5) == (0, 4)


def test_columns_are_not_lost(store, items, tmp_path):
    """Fewer plausible values, or another kind of error, would drop columns: refused by name."""
    out, r = tmp_path / "scores", irt.open_responses(store)
    irt.score(r, items, store=out, n_plausible=2)
    made = contents(out)
    with pytest.raises(InputError, match=r"column\(s\) pv2, which these options do not give"):
        irt.score(r, items, store=out, n_plausible=1)
    with pytest.raises(InputError, match=r"column\(s\) person_ability_sd, pv1, pv2, which"):
        irt.score(r, items, store=out, method="ml")
    assert contents(out) == made
    description = json.loads((out / DONE).read_text())
    columns = list(pd.read_parquet(out / "part-000000.parquet").columns)
    assert description.pop("columns") == columns
    (out / DONE).write_text(json.dumps(description))  # as folders were written once
    with pytest.raises(InputError, match=r"column\(s\) pv1, pv2"):
        irt.score(r, items, store=out)
    assert counts(irt.score(r, items, store=out, n_plausible=3)) == (4, 0)
    irt.score(r, items, store=tmp_path / "scratch", n_plausible=3)
    assert contents(out) == contents(tmp_path / "scratch")


def test_columns_are_not_lost_after_an_end_in_the_middle(store, items, tmp_path, monkeypatch):
    out, r = tmp_path / "scores", irt.open_responses(store)
    irt.score(r, items, store=out, n_plausible=2)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(folder, "finish", killed)
        for seed in (1, 2):  # other values in the same columns: the description goes at once
            with pytest.raises(KeyboardInterrupt):
                irt.score(r, items, store=out, n_plausible=2, seed=seed)
    assert not (out / DONE).exists()
    with pytest.raises(InputError, match=r"column\(s\) pv1, pv2, which"):
        irt.score(r, items, store=out)
    irt.score(r, items, store=out, n_plausible=3)
    irt.score(r, items, store=tmp_path / "scratch", n_plausible=3)
    assert contents(out) == contents(tmp_path / "scratch")


@pytest.mark.parametrize("other", ["bank", "bank, abilities alone", "method", "seed"])
def test_other_items_or_options_score_all_again(store, items, tmp_path, other):
    out, r = tmp_path / "scores", irt.open_responses(store)
    before = {"method": "map"} if other == "method" else {}  # the same columns
    n_plausible = 0 if other.endswith("alone") else 1
    irt.score(r, items, store=out, n_plausible=n_plausible, **before)
    changed = {"method": {"method": "wle"}, "seed": {"seed": 1}}.get(other, {})
    options = {"n_plausible": n_plausible} | changed
    if other.startswith("bank"):
        bank_table(0.1).to_csv(tmp_path / "new.csv", index=False)
        items = irt.read_items(tmp_path / "new.csv")
    assert counts(irt.score(r, items, store=out, **options)) == (4, 0)
    irt.score(r, items, store=tmp_path / "scratch", **options)
    assert contents(out) == contents(tmp_path / "scratch")


def test_items_that_nobody_answers_and_columns_not_used_change_nothing(store, items, tmp_path):
    out, r = tmp_path / "scores", irt.open_responses(store)
    irt.score(r, items, store=out, seed=1)
    frame = bank_table().assign(se_a=0.1)
    more = pd.concat([frame.iloc[::-1], pd.DataFrame({"item": ["new"], "a": [1.0], "b": [0.0]})])
    more.to_csv(tmp_path / "more.csv", index=False)
    again = irt.score(r, irt.read_items(tmp_path / "more.csv"), store=out, seed=2)
    assert counts(again) == (0, 4)


@pytest.mark.parametrize("damage", ["removed", "cut", "empty", "another table"])
def test_what_is_lost_is_made_again(store, items, tmp_path, damage):
    out, r = tmp_path / "scores", irt.open_responses(store)
    irt.score(r, items, store=out)
    before, file = contents(out), out / "part-000001.parquet"
    if damage == "removed":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-20])
    elif damage == "empty":
        file.write_bytes(b"")
    else:
        pd.DataFrame({"x": [1]}).to_parquet(file)
    assert counts(irt.score(r, items, store=out)) == (1, 3)
    assert contents(out) == before


def test_a_damaged_description_is_named_and_made_again(store, items, tmp_path):
    out, r = tmp_path / "scores", irt.open_responses(store)
    irt.score(r, items, store=out)
    before = contents(out)
    (out / DONE).write_text("{")
    with pytest.raises(InputError, match="is damaged; remove this file"):
        irt.score(r, items, store=out)
    (out / DONE).unlink()
    assert counts(irt.score(r, items, store=out)) == (0, 4)
    assert contents(out) == before


@pytest.mark.filterwarnings("ignore:.*is not used:irt_dask.errors.Notice")
def test_scores_of_other_responses_are_not_touched(store, items, tmp_path):
    out = tmp_path / "scores"
    irt.score(irt.open_responses(store), items, store=out)
    before = contents(out)
    other = irt.ingest(write(tmp_path / "o.csv", ROWS, first=900), tmp_path / "o")
    with pytest.raises(InputError, match="holds scores of other responses"):
        irt.score(other, items, store=out)
    fewer = irt.ingest(write(tmp_path / "f.csv", ROWS), tmp_path / "f", rows_per_block=ROWS)
    with pytest.raises(InputError, match="with more than 1 blocks"):
        irt.score(fewer, items, store=out)
    assert contents(out) == before


def test_folders_of_something_else_are_refused(store, items, tmp_path):
    r = irt.open_responses(store)
    irt.person_fit(r, items, store=tmp_path / "fit")
    before = contents(tmp_path / "fit")
    with pytest.raises(InputError, match="values of persons that are no scores"):
        irt.score(r, items, store=tmp_path / "fit")
    kept = {k: v for k, v in contents(tmp_path / "fit").items() if k != ".lock"}
    assert kept == before


def test_parts_in_memory_and_selections_have_checksums(items, tmp_path):
    """No manifest says what they hold: they are read."""
    y = np.random.default_rng(0).integers(-1, 2, (120, ITEMS))
    item_id = [f"i{j}" for j in range(ITEMS)]
    for k, r in enumerate(
        (
            irt.from_array(y, item_id=item_id, rows_per_block=50),
            irt.from_array(y, item_id=item_id, rows_per_block=50).select(persons=slice(10, 110)),
        )
    ):
        out = tmp_path / str(k)
        irt.score(r, items, store=out)
        assert counts(irt.score(r, items, store=out)) == (0, 3)
    y[60, 0] = 1 - max(y[60, 0], 0)
    changed = irt.from_array(y, item_id=item_id, rows_per_block=50)
    assert counts(irt.score(changed, items, store=tmp_path / "0")) == (1, 2)


def test_two_runs_do_not_share_a_folder(store, items, tmp_path):
    out, r = tmp_path / "scores", irt.open_responses(store)
    irt.score(r, items, store=out)
    with FolderLock(out), pytest.raises(BusyError, match="another run is working in"):
        irt.score(r, items, store=out)
    assert counts(irt.score(r, items, store=out)) == (0, 4)


# --- killed ---------------------------------------------------------------------------------------

_SCORE = """
import sys, time
import irt_dask as irt
from irt_dask.engine import person_files
write = person_files.write_block
def slowly(*args):
    write(*args)
    time.sleep(0.05)
person_files.write_block = slowly
irt.score(irt.open_responses(sys.argv[1]), irt.read_items(sys.argv[2]), store=sys.argv[3],
          n_plausible=2, progress=False)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is not used:irt_dask.errors.Notice")
def test_killed_in_the_middle(items, tmp_path):
    """SIGKILL after some files: these are kept, the others made, and the lock is gone."""
    many = write(tmp_path / "many.csv", 24 * ROWS)
    r, out = irt.ingest(many, tmp_path / "many", rows_per_block=ROWS), tmp_path / "scores"
    irt.score(r, items, store=tmp_path / "scratch", n_plausible=2)
    for least in (2, 9):  # killed twice
        args = [sys.executable, "-c", _SCORE, r.path, tmp_path / "bank.csv", out]
        process = subprocess.Popen(list(map(str, args)))
        deadline = time.monotonic() + 120
        while len(times(out) if out.exists() else ()) < least:
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not (out / DONE).exists()
    made = times(out)
    assert 9 <= len(made) < 24
    last = irt.score(r, items, store=out, n_plausible=2)
    assert counts(last) == (24 - len(made), len(made))
    assert {name: t for name, t in times(out).items() if name in made} == made
    assert contents(out) == contents(tmp_path / "scratch")


# --- command line ---------------------------------------------------------------------------------


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    def typed(*args):
        monkeypatch.setattr(sys, "argv", ["irt-dask", *map(str, args), "--cluster", "none"])
        code = 0
        try:
            main()
        except SystemExit as exit:
            code = exit.code
        return code, capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    return typed


def test_command_and_exit_codes(store, items, tmp_path, typed):
    command = ("score", "store", "bank.csv", "--out", "scores", "--json")
    code, text = typed(*command)
    assert code == 0
    assert json.loads(text.out)["n_blocks_scored"] == 4
    code, text = typed(*command)
    assert (code, json.loads(text.out)["n_blocks_kept"]) == (0, 4)
    with FolderLock(tmp_path / "scores"):
        code, text = typed(*command)
    assert code == 1
    assert "another run is working in" in text.err
    assert "Traceback" not in text.err
    code, text = typed("score", "store", "bank.csv", "--out", "store/scores")
    assert code == 2
    assert "lies in the store" in text.err
    code, text = typed(*command, "--plausible", "-1")
    assert code == 2
    assert "plausible" in text.err
    bank_table().iloc[1:].to_csv(tmp_path / "short.csv", index=False)
    code, text = typed("score", "store", "short.csv", "--out", "scores")
    assert code == 2
    assert "'i0'" in text.err or "i0" in text.err


def test_pipeline(store, items, tmp_path, typed):
    (tmp_path / "night.toml").write_text(
        'title = "At night"\nseed = 3\n[scoring]\nstore = "store"\nbank = "bank.csv"\n'
        'out = "scores"\nplausible = 1\n'
    )
    code, text = typed("run", "night.toml")
    assert (code, text.out.splitlines()[0]) == (0, "At night")
    assert "pv1" in pd.read_parquet(tmp_path / "scores").columns
    assert (
        typed("score", "store", "bank.csv", "--out", "by_hand", "--plausible", 1, "--seed", 3)[0]
        == 0
    )
    assert contents(tmp_path / "scores") == contents(tmp_path / "by_hand")
    code, text = typed("run", "night.toml", "--fresh")
    assert code == 2
    assert "irt-dask append" in text.err
    (tmp_path / "night.toml").write_text('[scoring]\nstore = "store"\nbank = "bank.csv"\nend = 1\n')
    code, text = typed("run", "night.toml")
    assert code == 2
    assert "unknown key 'scoring.end'" in text.err
    assert "scoring.out" in text.err


def test_example_pipeline(tmp_path, typed):
    from pathlib import Path

    example = Path(__file__).parents[2] / "pipelines" / "nightly_scoring.toml"
    shutil.copy(example, tmp_path / "n.toml")
    r = irt.simulate(300, 4, store=tmp_path / "spring.store", seed=1)
    irt.write_items(r.truth, tmp_path / "bank.csv")
    code, text = typed("run", "n.toml", "--quiet")
    assert code == 0, text.err
    assert len(pd.read_parquet(tmp_path / "spring.scores")) == 300
