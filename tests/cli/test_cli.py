"""The command line: what a user types, reads, and gets as exit code."""

import errno
import importlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.cli import main, work
from irt_dask.engine.threads import n_cores

command = importlib.import_module("irt_dask.cli.main")
COMMAND = [sys.executable, "-m", "irt_dask.cli"]


def irt_dask(*args, code=0, cwd=None):
    done = subprocess.run(
        [*COMMAND, *map(str, args)], capture_output=True, text=True, cwd=cwd, timeout=300
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def mistaken(tmp_path, monkeypatch, capsys):
    """What a command prints as an error, in this process, which starts nothing."""

    def run(*args):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["irt-dask", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        text = capsys.readouterr().err
        assert ended.value.code == 2
        assert "Traceback" not in text
        return text

    return run


def test_every_command_explains_itself():
    text = irt_dask("--help")
    names = ("demo", "simulate", "ingest", "append", "verify", "calibrate", "score", "report")
    names += (
        "run",
        "info",
        "docs",
        "certs",
        "fit",
        "dif",
        "information",
        "link",
        "lord",
        "q3",
        "curves",
        "score-table",
        "convert",
        "loo",
        "benchmark",
        "population",
        "tabulate",
        "regress",
        "trend",
    )
    assert all(f"  {name} " in text for name in names)


@pytest.mark.slow
def test_from_simulation_to_scores(tmp_path):
    irt_dask("simulate", "s", "--persons", 800, "--items", 5, "--truth", "t.csv", cwd=tmp_path)
    about = json.loads(irt_dask("info", "s", "--json", cwd=tmp_path))
    assert (about["persons"], about["items"]) == (800, 5)
    assert "every file is there" in irt_dask("verify", "s", cwd=tmp_path)
    fit = json.loads(
        irt_dask(
            "calibrate", "s", "--out", "bank.csv", "--method", "bayes", "--draws", 100,
            "--cluster", "none", "--json", cwd=tmp_path,
        )
    )  # fmt: skip
    assert fit["method"] == "Gibbs"
    irt_dask("score", "s", "bank.csv", "--out", "scores", "--cluster", "none", cwd=tmp_path)
    assert len(pd.read_parquet(tmp_path / "scores")) == 800
    # A damaged store is exit code 1 and a named chunk, not a traceback.
    chunk = tmp_path / "s" / "part-00000" / "response" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"x")
    text = irt_dask("verify", "s", code=1, cwd=tmp_path)
    assert "chunk 0 of array response" in text
    assert "Traceback" not in text


def test_any_model_is_simulated(typed, tmp_path):
    """With the bits of the function; models and categories by item from files and words."""
    size = ("--persons", "40", "--items", "3")
    (tmp_path / "m.csv").write_text("item,model\nitem1,3pl\nitem2,gpcm\nitem3,graded\n")
    (tmp_path / "k.csv").write_text("item,categories\nitem2,3\nitem3,4\n")
    models = {"item1": "3pl", "item2": "gpcm", "item3": "graded"}
    for name, given, options in (
        ("a", ("--model", "graded", "--categories", "4"), {"model": "graded", "categories": 4}),
        ("b", ("--model", "m.csv", "--categories", "item2=3,item3=4"),
         {"model": models, "categories": {"item2": 3, "item3": 4}}),
        ("c", ("--model", "m.csv", "--categories", "k.csv"),
         {"model": models, "categories": {"item2": 3, "item3": 4}}),
    ):  # fmt: skip
        typed("simulate", name, *size, *given, "--seed", "3", "--truth", f"{name}.json")
        want, made = irt.simulate(40, 3, seed=3, **options), irt.open_responses(name)
        assert made.n_categories == want.n_categories
        np.testing.assert_array_equal(
            made.read_block(0).data.values, want.read_block(0).data.values
        )
        truth = irt.read_items(f"{name}.json")
        np.testing.assert_allclose(truth["item_difficulty"], want.truth["item_difficulty"])


def test_calibrate_takes_sampling_units(typed):
    y = irt.simulate(500, 6, seed=1).read_block(0).data.values
    frame = pd.DataFrame(y, columns=[f"q{j}" for j in range(6)])
    frame.insert(0, "id", [f"p{i}" for i in range(500)])
    frame.to_csv("y.csv", index=False)
    frame[["id"]].assign(school=np.arange(500) % 50).to_csv("persons.csv", index=False)
    quiet = ("--cluster", "none", "--quiet")
    typed("ingest", "y.csv", "s", "--shape", "wide", "--persons", "persons.csv", *quiet)
    options = ("s", "--out", "bank.csv", "--method", "marginal", "--cluster", "none", "--json")
    about = typed("calibrate", *options, "--sampling-unit", "school")
    said = json.loads(about.out)
    assert said["standard_errors"] == "sandwich of sampling units (school)"
    assert (said["n_sampling_units"], said["degrees_of_freedom"]) == (50, 49)
    assert "t with 49 degrees of freedom times these, a number that item banks do not" in about.err
    Path("bank.csv").unlink()
    said = json.loads(typed("calibrate", *options, "--standard-errors-from", "sandwich").out)
    assert said["n_sampling_units"] == 500
    Path("bank.csv").unlink()
    for more, message in (
        (("--sampling-unit", "town"), "--sampling-unit town is no covariate of the persons; they"),
        (("--no-standard-errors", "--standard-errors-from", "sandwich"), "leave one out"),
        (("--sampling-unit", "school", "--standard-errors-from", "information"),
         "--standard-errors-from information has no use for --sampling-unit, whose"),
        (("--sampling-unit", "school", "--method", "joint"), "belongs to --method marginal"),
    ):  # fmt: skip
        assert message in typed("calibrate", *options, *more, code=2).err


def test_calibrate_names_the_items_that_are_flagged(tmp_path, monkeypatch, capsys):
    y = irt.simulate(500, 6, seed=1).read_block(0).data.values.copy()
    y[:, 2] = 1
    frame = pd.DataFrame(y, columns=[f"q{j}" for j in range(6)]).rename_axis("id")
    frame.to_csv(tmp_path / "y.csv")
    monkeypatch.chdir(tmp_path)

    def typed(*args):
        monkeypatch.setattr(sys, "argv", ["irt-dask", *map(str, args)])
        main()
        return capsys.readouterr()

    typed("ingest", "y.csv", "s", "--shape", "wide", "--cluster", "none", "--quiet")
    options = ["--method", "marginal", "--cluster", "none", "--quiet"]
    printed = typed("calibrate", "s", "--out", "bank.csv", *options)
    assert "flagged items   all_right: q2; " in printed.out
    assert "extreme: q2" in printed.out
    assert "warning: 1 of 6 items are flagged (item_flag): all_right: q2;" in printed.err
    about = json.loads(typed("calibrate", "s", "--out", "bank.csv", *options, "--json").out)
    assert about["flagged_items"]["all_right"] == ["q2"]
    flags = pd.read_csv("bank.csv", index_col="item")["flag"]
    assert flags["q2"].startswith("all_right|")
    assert (flags.drop("q2") == "ok").all()


def test_items_of_more_categories_are_taken_as_right_and_wrong(typed, tmp_path):
    """The message that refuses them says how; what follows takes the option too."""
    made = irt.simulate(300, 5, model="graded", categories=4, seed=2)
    codes = made.read_block(0).data.values
    frame = pd.DataFrame(codes, columns=list(made.item_id), index=[f"p{k}" for k in range(300)])
    frame.rename_axis("person").to_csv(tmp_path / "f.csv")
    typed("ingest", "f.csv", "s", "--categories", "4")
    for command in (("calibrate", "--method", "joint"), ("bifactor", "--item-table", "t.csv")):
        (tmp_path / "t.csv").write_text(f"item,block\n{made.item_id[0]},x\n{made.item_id[1]},x\n")
        told = typed(command[0], "s", *command[1:], "--out", "no.csv", code=2).err
        assert "leave them out of the store by 'irt-dask ingest --exclude', or count" in told
        assert told.rstrip().endswith("their higher categories as right by --dichotomise AT")
    (tmp_path / "p.toml").write_text('[data]\nstore = "s"\n')
    told = typed("run", "p.toml", "--out", "r", code=2).err
    assert "leave them out by exclude in [data], or count their higher categories as right" in told
    assert told.rstrip().endswith("by dichotomise in [data]")
    two = ("--dichotomise", "2")
    typed("calibrate", "s", *two, "--method", "marginal", "--out", "b.csv", "--fit", "f.nc")
    want = irt.fit_marginal(irt.open_responses("s").dichotomise(at=2))
    got = irt.read_items("b.csv")
    np.testing.assert_allclose(got["item_difficulty"], want["item_difficulty"])
    told = typed("score", "s", "b.csv", "--out", "scores", code=2).err
    assert told.rstrip().endswith("take them as right and wrong by --dichotomise AT")
    typed("score", "s", "b.csv", *two, "--out", "scores")
    each = ",".join(f"{i}=2" for i in made.item_id)
    assert "n blocks kept    1" in typed("score", "s", "b.csv", "--dichotomise", each,
                                         "--out", "scores").out  # fmt: skip
    assert "items_that_do_not_fit" in typed("fit", "s", "f.nc", *two, "--json").out
    typed("report", "f.nc", "--store", "s", "--scores", "scores", "--tests", *two,
          "--out", "page.html")  # fmt: skip
    for wrong, message in (
        ("4", f"--dichotomise 4 for the item '{made.item_id[0]}', which has 4 categories"),
        (f"{made.item_id[0]}=2", "--dichotomise does not name 4 item(s)"),
        ("2,3", "--dichotomise '2,3': give a number, or ITEM=NUMBER"),
        ("2,q=3", "--dichotomise '2,q=3': give one number, or ITEM=NUMBER of each item"),
    ):
        assert message in typed("score", "s", "b.csv", "--dichotomise", wrong, "--out", "scores",
                                code=2).err  # fmt: skip


@pytest.mark.parametrize("method", [pytest.param("bayes", marks=pytest.mark.slow), "joint"])
def test_a_calibration_goes_on_at_its_checkpoint(tmp_path, typed, method):
    """The same bank; a chain that is done is read, and not written again."""
    irt.simulate(400, 5, store=tmp_path / "s", seed=2)
    options = ["--method", method, "--checkpoint", "kept", "--quiet", "--cluster", "none"]
    if method == "bayes":
        options += ["--draws", 100, "--chains", 2]
    about = typed("calibrate", "s", "--out", "first.csv", *options, "--json").out
    assert json.loads(about)["items"] == "first.csv"
    before = {f: f.stat().st_mtime_ns for f in (tmp_path / "kept").iterdir()}
    assert before
    typed("calibrate", "s", "--out", "second.csv", *options)
    assert (tmp_path / "second.csv").read_bytes() == (tmp_path / "first.csv").read_bytes()
    if method == "bayes":
        assert {f.name.rpartition("-")[0] for f in before} == {
            "shard-0000-chain-0", "shard-0000-chain-1",
        }  # fmt: skip
        assert {f: f.stat().st_mtime_ns for f in (tmp_path / "kept").iterdir()} == before
        error = typed("calibrate", "s", "--out", "x.csv", *options, "--seed", 9, code=1).err
        assert "belongs to another computation" in error


def test_likelihood_and_penalty_of_a_3pl_are_shown_apart(tmp_path, monkeypatch, capsys):
    irt.simulate(300, 5, store=tmp_path / "s", seed=2)
    monkeypatch.chdir(tmp_path)
    found = {}
    for prior in ("none", "5,17", "2,3"):
        args = ["calibrate", "s", "--out", f"{prior}.csv", "--method", "marginal", "--model", "3pl"]
        args += ["--guessing-prior", prior, "--cluster", "none", "--json"]
        monkeypatch.setattr(sys, "argv", ["irt-dask", *args])
        main()
        text = capsys.readouterr()
        found[prior] = json.loads(text.out)
        for said in (
            "may lie below that of the 2PL, and AIC and BIC are too high",
            "--guessing-prior",
        ):
            assert (said in text.err) == (prior != "none")
        monkeypatch.setattr(sys, "argv", ["irt-dask", *args, "--quiet"])
        main()
        assert "2PL" not in capsys.readouterr().err
    for prior, name in (("none", "none"), ("5,17", "Beta(5, 17)"), ("2,3", "Beta(2, 3)")):
        got = found[prior]
        assert got["guessing_prior"] == name
        assert got["objective"] == pytest.approx(got["log_likelihood"] + got["log_prior"])
        assert got["aic"] == pytest.approx(2 * (15 - got["log_likelihood"]))
        assert got["log_likelihood"] <= found["none"]["log_likelihood"]


@pytest.mark.parametrize(
    "args, message",
    [
        (["ingest", "nowhere.csv", "s"], "nowhere.csv"),
        (["ingest", "bad.csv", "s"], "bad.csv, line 3: column 'q2' has the value '7'"),
        (["append", "bad.csv", "nowhere"], "there is no such folder"),
        (["ingest", "bad.csv", "s", "--recode", "9"], "--recode '9': write CODE=MEANING"),
        (["ingest", "bad.csv", "s", "--recode", "9=false"], "false"),
        (["ingest", "bad.csv", "s", "--key", "gone.csv"], "gone.csv"),
        (["run", "nowhere.toml"], "there is no pipeline file nowhere.toml"),
        (["run", "p.toml", "--cluster", "none"], "cannot be read"),
        (["information", "bank.txt"], "must end in .csv or .json"),
        (["calibrate", "s", "--out", "bank.csv", "--method", "guess"], "'guess' is not one of"),
        (["simulate", "s", "--persons", "0", "--items", "4"], "whole number of at least 1"),
        (
            ["simulate", "s", "--persons", "9", "--items", "4", "--model", "5pl"],
            "--model 5pl is not",
        ),
        (["simulate", "s", "--persons", "9", "--items", "4", "--categories", "3"], "--model 2pl"),
        (
            ["simulate", "s", "--persons", "9", "--items", "4", "--categories", "data"],
            "of a file's",
        ),
        (["report", "."], "is not a run directory"),
        (["docs", "cooking"], "there is no topic 'cooking'"),
        (["certs", "c", "--days", 0], "days = 0 must be from 1 to 3650"),
        (["demo", "--cluster", "tcp://10.0.0.1:8786"], "Use tls://"),
        (["info", "gone"], "is not a store of responses"),
        (
            ["calibrate", "s", "--out", "b.csv", "--method", "joint", "--shards", "2"],
            "--shards belongs to --method bayes",
        ),
        (
            ["calibrate", "s", "--out", "b.csv", "--method", "spectral", "--checkpoint", "c"],
            "--checkpoint belongs to --method bayes or marginal or concurrent or joint",
        ),
        (
            ["calibrate", "s", "--out", "b.csv", "--method", "joint", "--chains", "2"],
            "--chains belongs to --method bayes",
        ),
        (["calibrate", "s", "--out", "b.csv", "--no-groups"], "--no-groups belongs to --method"),
        (["calibrate", "s", "--out", "b.csv", "--facet", "r"], "--facet belongs to --method"),
        (
            ["calibrate", "s", "--out", "b.csv", "--method", "joint", "--no-standard-errors"],
            "--no-standard-errors belongs to --method marginal or concurrent or spectral",
        ),
        (
            ["calibrate", "s", "--out", "b.csv", "--method", "joint", "--guessing-prior", "none"],
            "--guessing-prior belongs to --method bayes or marginal",
        ),
        (
            ["calibrate", "s", "--out", "b.csv", "--method", "marginal", "--guessing-prior", "2,2"],
            "--guessing-prior: the items of --model 2pl have no guessing",
        ),
        (
            [
                "calibrate",
                "s",
                "--out",
                "b.csv",
                "--method",
                "marginal",
                "--model",
                "3pl",
                "--guessing-prior",
                "5",
            ],
            "give two numbers, as in 5,17, or none",
        ),
        (["frobnicate"], "No such command"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(tmp_path, mistaken, args, message):
    (tmp_path / "bad.csv").write_text("person,q1,q2\np1,0,1\np2,1,7\n")
    (tmp_path / "p.toml").write_text('[data]\nsource = "gone.csv"\n')
    assert message in mistaken(*args)


def test_a_mistake_in_a_process_of_its_own(tmp_path):
    text = irt_dask("ingest", "nowhere.csv", "s", code=2, cwd=tmp_path)
    assert text.startswith("error: ")
    assert text.count("\n") == 1


@pytest.mark.slow
def test_raw_answers_bad_rows_and_more_persons(tmp_path):
    (tmp_path / "a.csv").write_text("person,q1,q2\np1,A,9\np2,B,C\np3,A\n")
    (tmp_path / "b.jsonl").write_text('{"subject_id": "p4", "responses": {"q2": "C"}}\n')
    (tmp_path / "key.csv").write_text("item,key\nq1,A\nq2,C\n")
    (tmp_path / "persons.csv").write_text("person,group\np1,x\np2,y\np9,y\n")
    (tmp_path / "more.csv").write_text("person,group\np4,x\n")
    options = ("--key", "key.csv", "--recode", "9=wrong", "--on-error", "quarantine")
    command = [*COMMAND, "ingest", "a.csv", "s", *options, "--persons", "persons.csv", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "1 person(s) have no responses" in done.stderr
    about = json.loads(done.stdout)
    assert (about["persons"], about["rows_put_aside"], about["groups"]) == (2, 1, True)
    assert "p3,A" in (tmp_path / "s.quarantine.csv").read_text()
    more = ("append", "b.jsonl", "s", *options, "--persons", "more.csv", "--json")
    assert json.loads(irt_dask(*more, cwd=tmp_path))["persons"] == 3
    assert "'p4'; say what becomes of their rows" in irt_dask(*more, code=2, cwd=tmp_path)
    assert "every file is there" in irt_dask("verify", "s", cwd=tmp_path)


@pytest.mark.slow
def test_run_and_report_again(tmp_path):
    (tmp_path / "p.toml").write_text(
        "[data]\nbuiltin = 'lsat'\n[joint]\ncoreset = 0\n[bayes]\ndraws = 200\nwarmup = 50\n"
    )
    text = irt_dask("run", "p.toml", "--cluster", "none", cwd=tmp_path)
    page = tmp_path / "runs" / "p" / "report.html"
    assert str(page) in text
    page.unlink()
    irt_dask("report", tmp_path / "runs" / "p")
    assert page.exists()


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore::irt_dask.errors.ConvergenceWarning")
def test_demo(typed, tmp_path, monkeypatch, no_pictures):
    """Of fewer persons and draws; as it is it runs in the session ``demo`` of the checks."""
    runs = {name: {**sections, "bayes": {"draws": 100}} for name, sections in work._DEMO.items()}
    runs["simulated"]["data"] = {"simulate": {"persons": 1000, "items": 10}}
    monkeypatch.setattr(work, "_DEMO", runs)
    text = typed("demo").out
    assert f"cluster: {n_cores()} workers at " in text
    assert "LSAT5" in text
    assert "true a" in text
    assert (tmp_path / "irt-dask-demo" / "simulated" / "report.html").exists()


STOPS = pytest.mark.parametrize(
    ("stop", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 1)], ids=["TERM", "INT"]
)


def stopped(work, stop, code):
    """Run a function instead of a command, and send a signal after its first line."""
    script = f"""
import gc, importlib, signal, time
command = importlib.import_module("irt_dask.cli.main")
{work}
command.cli.main = work
command.main()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "begun\n"
    process.send_signal(stop)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (code, "closed\n")
    assert err == "stopped; a run can be resumed by the same command\n"


@STOPS
def test_signals_end_a_command_like_its_own_end(stop, code):
    """What was opened is closed, one line is said, and the sender of SIGTERM sees its effect."""
    stopped(
        """
def work(**options):
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        print("closed")
""",
        stop,
        code,
    )


@STOPS
def test_what_fails_as_an_interrupted_command_ends_is_no_defect(stop, code):
    """As Dask does when a cluster is closed that has not quite started."""
    stopped(
        """
def work(**options):
    try:
        try:
            print("begun", flush=True)
            time.sleep(60)
        finally:
            raise ValueError("half open")
    except ValueError as error:
        print("closed")
        raise RuntimeError("not closed") from error
""",
        stop,
        code,
    )


@STOPS
def test_what_nobody_waits_for_any_more_is_silent(stop, code):
    """As workers that fail to start in an event loop, and a cluster that Dask closes at exit."""
    stopped(
        """
import asyncio, atexit
def closed_at_exit():
    raise AssertionError("half open")
atexit.register(closed_at_exit)
kept = []
async def broken():
    raise RuntimeError("no worker")
def work(**options):
    loop = asyncio.new_event_loop()
    kept.append(loop.create_task(broken()))
    loop.run_until_complete(asyncio.sleep(0))
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        print("closed")
""",
        stop,
        code,
    )


@STOPS
def test_signals_are_not_lost_where_python_ignores_exceptions(stop, code):
    """Twice in a row, in a callback of the garbage collector, which then fails by itself."""
    stopped(
        """
class Callback:
    calls = 0
    def __call__(self, phase, info):
        self.calls += 1
        if self.calls == 1:
            print("begun", flush=True)
        assert self.calls <= 2, "broken"
        time.sleep(60)
def work(**options):
    gc.disable()
    gc.callbacks.append(Callback())
    try:
        for _ in range(60):
            gc.collect()
            time.sleep(1)
    finally:
        print("closed")
""",
        stop,
        code,
    )


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), "make room and start again"),
        (OSError(errno.EIO, "Input/output error", "/data/x"), "the network file system fails"),
        (OSError(errno.ESTALE, "Stale file handle", "/data/x"), "start again when it answers"),
        (OSError(errno.EMFILE, "Too many open files", "/data/x"), "ulimit -n"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
    ],
)
def test_what_the_system_refuses_is_no_defect(monkeypatch, capsys, fault, words):
    def refused(**options):
        raise fault

    monkeypatch.setattr(command.cli, "main", refused)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    text = capsys.readouterr().err
    assert text.startswith("error: ")
    assert words in text
    if isinstance(fault, OSError):
        assert f"/data/x: {fault.strerror}" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    "args",
    [
        ("ingest", "a.csv", "a.store", "s3://key:hunter2@bucket/b.store"),
        ("ingest", "a.csv", "a.store", "--shape", "s3://key:hunter2@bucket/b.store"),
        ("s3://key:hunter2@bucket/b.store",),
    ],
)
def test_a_mistyped_command_shows_no_credentials(typed, args):
    said = typed(*args, code=2).err
    assert "s3://***@bucket/b.store" in said
    assert "hunter2" not in said


def test_a_defect_shows_no_credentials(monkeypatch, capsys):
    def defect(**options):
        raise KeyError("s3://key:hunter2@bucket")

    monkeypatch.setattr(command.cli, "main", defect)
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert "KeyError: 's3://***@bucket'" in said
    assert "hunter2" not in said


@pytest.mark.slow
def test_posteriors_are_compared_by_persons_left_out(tmp_path):
    irt_dask("simulate", "s", "--persons", 300, "--items", 5, cwd=tmp_path)
    how = ("--method", "bayes", "--draws", 120, "--cluster", "none", "--quiet")
    for k in (0, 1):
        out = ("--out", f"{k}.csv", "--fit", f"fit-{k}.nc", "--seed", k)
        irt_dask("calibrate", "s", *how, *out, cwd=tmp_path)
    options = ("--cluster", "none", "--persons", "p.csv")
    one = json.loads(irt_dask("loo", "s", "fit-0.nc", *options, "--json", cwd=tmp_path))
    persons = pd.read_csv(tmp_path / "p.csv")
    assert persons.columns.tolist() == ["person", "elpd", "p_loo", "pareto_k"]
    assert one["elpd_loo"] == pytest.approx(persons["elpd"].sum())
    text = irt_dask("loo", "s", "fit-0.nc", "fit-1.nc", "--cluster", "none", cwd=tmp_path)
    assert "difference se" in text
    assert "fit-1" in text
    text = irt_dask("loo", "s", "fit-0.nc", "fit-0.nc", code=2, cwd=tmp_path)
    assert "fit-0.nc is there twice" in text
