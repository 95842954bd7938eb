"""Runs: from file to report, resuming, refusing what changed."""

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
import xarray as xr
from run_results import results

import irt_dask as irt
from irt_dask.engine.lock import FolderLock
from irt_dask.errors import BudgetError, BusyError, InputError, RunError
from irt_dask.evaluate import predictive_check as predictive_check_module
from irt_dask.workflow import RunConfig, read_config, run, sections, stages
from irt_dask.workflow.directory import RunDirectory
from irt_dask.workflow.running import report_again
from irt_dask.workflow.sections import BayesConfig
from irt_dask.workflow.stages import STAGES, shards_for

pytestmark = pytest.mark.usefixtures("without_pictures")

SMALL = {
    "data": {"simulate": {"persons": 1200, "items": 6, "missing": 0.1}},
    "joint": {"coreset": 200, "max_iterations": 8},
    "bayes": {"shards": 2, "draws": 200, "warmup": 50},
}
#: Stages of a run by LS-WASP.
#: All but those of another method, and those that are made where they are asked for.
OF_BAYES = [s for s in STAGES if s not in ("marginal", "tests", "population", "tables")]


def _config(folder, **changes):
    return RunConfig.model_validate({**SMALL, **changes, "directory": str(folder)})


@pytest.fixture(scope="module")
def finished(tmp_path_factory, without_pictures):
    folder = tmp_path_factory.mktemp("run") / "r"
    run(_config(folder))
    return folder


def test_a_run_leaves_what_it_promises(finished):
    record = json.loads((finished / "run.json").read_text())
    assert list(record["stages"]) == OF_BAYES
    assert record["config"]["seed"] == 1
    assert record["versions"]["irt_dask"] == irt.__version__
    assert all(s["seconds"] >= 0 for s in record["stages"].values())
    page = (finished / "report.html").read_text()
    assert "item6" in page
    bank = pd.read_csv(finished / "items.csv", converters={"a": float})
    posterior = xr.load_dataset(finished / "posterior.nc", engine="scipy")
    np.testing.assert_array_equal(bank["a"], posterior["item_discrimination"])
    scores = pd.read_parquet(finished / "scores")
    assert len(scores) == 1200
    assert scores["person_ability_sd"].between(0, 1).all()
    assert not [name for name in scores if name.startswith("pv")]
    responses = irt.open_responses(finished / "responses")
    check = xr.load_dataset(finished / "check.nc", engine="scipy")
    alone = irt.predictive_check(responses, posterior, n_replicates=50, seed=1)
    for name in alone.data_vars:
        np.testing.assert_array_equal(check[name], alone[name])
    assert check.attrs["p_value"] == alone.attrs["p_value"]
    assert f"p = {alone.attrs['p_value']:.3f}. " in page
    by_item = pd.read_csv(finished / "check_items.csv", float_precision="round_trip")
    np.testing.assert_array_equal(by_item["item"], alone["item_id"])
    for name in ("rest_correlation", "mean_score_p_value"):
        np.testing.assert_array_equal(by_item[name], alone[f"item_{name}"])


def test_a_second_run_does_nothing(finished):
    def times():
        kept = (f for f in finished.rglob("*") if f.name not in ("log.txt", "events.jsonl"))
        return {f: f.stat().st_mtime_ns for f in kept}

    before, said = times(), []
    run(_config(finished), say=said.append)
    assert said == [f"{name}: done before" for name in OF_BAYES]
    assert times() == before


@pytest.mark.slow
@pytest.mark.parametrize("stage", OF_BAYES)
def test_a_run_resumes_after_any_stage(finished, tmp_path, stage, monkeypatch):
    class Killed(BaseException):
        pass

    def die(context):
        raise Killed

    with monkeypatch.context() as m:
        m.setitem(STAGES, stage, die)
        with pytest.raises(Killed):
            run(_config(tmp_path / "r"))
    run(_config(tmp_path / "r"))
    assert results(tmp_path / "r") == results(finished)


@pytest.mark.cluster
def test_a_cluster_and_threads_write_the_same_files(finished, client, tmp_path):
    run(_config(tmp_path / "r", cluster={"workers": 2}), client=client)
    assert results(tmp_path / "r") == results(finished)


def test_checkpoints_of_finished_stages_go(finished):
    """A run that was killed between a stage's end and the removal of its checkpoints left them."""
    left = finished / "checkpoints" / "joint" / "joint.checkpoint"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"old")
    run(_config(finished))
    assert not (finished / "checkpoints").exists()


def test_changed_configuration_is_refused(finished):
    with pytest.raises(RunError, match=r"bayes.draws: 200 -> 300.*--fresh"):
        run(_config(finished, bayes={"shards": 2, "draws": 300, "warmup": 50}))


def test_configurations_of_before_have_the_digests_of_before():
    """Runs that were begun before there were marginal runs can go on, with draws as they were."""
    assert _config("r").digest() == (
        "f1d1e61fb41d2831bba8ec926797ebe03aa144d1f946e62f1c4e1d94dead4661"
    )
    data = {"source": "a.csv", "missing": ["9"], "columns": {"person": "p"}}
    sections = {"score": {"method": "wle"}, "private": {"rho": 0.1, "ledger": "/x"}}
    sections["bayes"] = {"draws": 2000}
    assert RunConfig.model_validate({"data": data, **sections}).digest() == (
        "cd708b0db95ad5fad446740d599e2fbe7b6504cd6fc5ebd6ac3091a7ed3edf73"
    )


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "r")


def test_where_a_run_computes_is_not_part_of_what_it_computes(copied):
    """Nor is its title, but that stands in the page."""
    said = []
    changed = _config(copied, cluster={"kind": "local", "workers": 1}, title="Another title")
    run(changed, say=said.append)
    assert said == [*(f"{name}: done before" for name in OF_BAYES[:-1]), "report ..."]
    assert json.loads((copied / "run.json").read_text())["title"] == "Another title"
    assert "<h1>Another title</h1>" in (copied / "report.html").read_text()


def test_a_page_that_is_written_again_is_the_page_of_the_run(copied):
    (copied / "report.html").write_text("by hand")
    with pytest.raises(RunError, match=r"report.html is damaged; remove it and run again"):
        run(_config(copied))
    with FolderLock(copied), pytest.raises(BusyError):
        report_again(copied)
    report_again(copied)
    said = []
    run(_config(copied), say=said.append)
    assert said == [f"{name}: done before" for name in OF_BAYES]


@pytest.mark.slow
def test_changed_data_are_refused_and_fresh_starts_over(tmp_path):
    source = tmp_path / "d.csv"
    rows = np.random.default_rng(1).integers(0, 2, (300, 4))
    body = "\n".join(f"p{i}," + ",".join(map(str, r)) for i, r in enumerate(rows))
    source.write_text("person,a,b,c,d\n" + body + "\n")
    data = {
        "data": {"source": str(source)},
        "joint": {"coreset": 0, "max_iterations": 8},
        "bayes": {"shards": 1, "draws": 100, "warmup": 50},
    }
    run(_config(tmp_path / "r", **data))
    source.write_text(source.read_text().replace("p7,", "p7777,"))
    with pytest.raises(RunError, match=r"the data changed.*--fresh"):
        run(_config(tmp_path / "r", **data))
    run(_config(tmp_path / "r", **data), fresh=True)
    assert "p7777" in set(pd.read_parquet(tmp_path / "r" / "scores")["person_id"])


def test_damaged_results_are_not_built_upon(finished, tmp_path):
    copy = tmp_path / "r"
    shutil.copytree(finished, copy)
    data = bytearray((copy / "joint.nc").read_bytes())
    data[len(data) // 2] ^= 1
    (copy / "joint.nc").write_bytes(data)
    with pytest.raises(RunError, match=r"joint.nc is missing or damaged; use --fresh"):
        run(_config(copy))


@pytest.mark.parametrize("stage, file", [("bayes", "joint.nc"), ("report", "posterior.nc")])
def test_results_that_change_while_the_run_goes_on_are_not_built_upon(
    stage, file, tmp_path, monkeypatch
):
    original = STAGES[stage]

    def changed_before(context):
        path = context.directory.path / file
        data = bytearray(path.read_bytes())
        data[-1] ^= 1  # a digit of the last number
        path.write_bytes(data)
        return original(context)

    monkeypatch.setitem(STAGES, stage, changed_before)
    with pytest.raises(RunError, match=rf"{file} is missing or damaged"):
        run(_config(tmp_path / "r", bayes={"shards": 1, "draws": 200, "warmup": 50}))


def test_persons_who_join_the_store_of_a_run_while_it_works_are_not_in_it(tmp_path, monkeypatch):
    original = STAGES["score"]

    def appended_before(context):
        (tmp_path / "late.csv").write_text("person,item1\nlate,1\n")
        irt.append(tmp_path / "late.csv", context.directory.path / "responses")
        return original(context)

    monkeypatch.setitem(STAGES, "score", appended_before)
    data = {"simulate": {"persons": 200, "items": 5}}
    sections = {"calibrate": {"method": "marginal"}, "check": {"replicates": 0}}
    config = {"data": data, "directory": str(tmp_path / "r"), **sections}
    run(RunConfig.model_validate(config))
    assert irt.open_responses(tmp_path / "r" / "responses").n_persons == 201
    assert len(pd.read_parquet(tmp_path / "r" / "scores")) == 200


def test_what_a_disk_makes_of_a_result_is_not_its_checksum(tmp_path, monkeypatch):
    def harmed(path, data):
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if path.name == "summary.nc" else data)

    monkeypatch.setattr("irt_dask.workflow.directory.write_atomically", harmed)
    with pytest.raises(RunError, match=r"summary.nc is missing or damaged"):
        run(_config(tmp_path / "r", bayes={"shards": 1, "draws": 200, "warmup": 50}))


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("three years of work")
    for fresh in (False, True):
        with pytest.raises(InputError, match="is not a run directory"):
            run(_config(tmp_path), fresh=fresh)
    assert (tmp_path / "thesis.txt").exists()


def test_fresh_never_touches_the_input(tmp_path):
    irt.simulate(300, 4, store=tmp_path / "r" / "mine")
    with pytest.raises(InputError, match="lies in the run directory"):
        run(_config(tmp_path / "r", data={"store": str(tmp_path / "r" / "mine")}), fresh=True)
    assert irt.open_responses(tmp_path / "r" / "mine").n_persons == 300


def test_two_runs_do_not_share_a_directory(finished):
    with FolderLock(finished), pytest.raises(BusyError, match="another run is working in"):
        run(_config(finished))
    run(_config(finished))


@pytest.mark.slow
def test_removed_scores_are_made_again(finished):
    before = results(finished)
    shutil.rmtree(finished / "scores")
    (finished / "check.nc").unlink()
    (finished / "report.html").unlink()
    run(_config(finished))
    assert results(finished) == before
    assert (finished / "report.html").exists()
    (finished / "scores" / "part-000000.parquet").unlink()  # one alone
    run(_config(finished))
    assert results(finished) == before


@pytest.mark.slow
def test_plausible_values_item_draws_and_no_check(finished, tmp_path):
    config = _config(
        tmp_path / "r", check={"replicates": 0}, score={"plausible": 3, "item_draws": 5}
    )
    run(config)
    record = json.loads((tmp_path / "r" / "run.json").read_text())
    assert list(record["stages"]) == [name for name in OF_BAYES if name != "check"]
    assert not (tmp_path / "r" / "check.nc").exists()
    assert "No predictive check was made." in report_again(tmp_path / "r").read_text()
    scores = pd.read_parquet(tmp_path / "r" / "scores")
    alone = irt.score(
        irt.open_responses(tmp_path / "r" / "responses"),
        xr.load_dataset(tmp_path / "r" / "posterior.nc", engine="scipy"),
        n_plausible=3, n_item_draws=5, seed=1,
    )  # fmt: skip
    np.testing.assert_array_equal(scores["person_ability"], alone["person_ability"])
    np.testing.assert_array_equal(scores[["pv1", "pv2", "pv3"]], alone["person_plausible_value"])
    first = xr.load_dataset(finished / "posterior.nc", engine="scipy")
    again = xr.load_dataset(tmp_path / "r" / "posterior.nc", engine="scipy")
    assert again.identical(first)  # what comes after the posterior does not change it


def test_method_of_the_scores(tmp_path):
    sections = {
        "data": {"simulate": {"persons": 300, "items": 5}},
        "bayes": {"shards": 1, "draws": 100, "warmup": 50},
        "check": {"replicates": 0},
    }
    run(_config(tmp_path / "r", **sections, score={"method": "wle"}))
    scores = pd.read_parquet(tmp_path / "r" / "scores")
    alone = irt.score(
        irt.open_responses(tmp_path / "r" / "responses"),
        xr.load_dataset(tmp_path / "r" / "posterior.nc", engine="scipy"),
        method="wle",
    )
    np.testing.assert_array_equal(scores["person_ability"], alone["person_ability"])
    assert (tmp_path / "r" / "report.html").exists()
    with pytest.raises(ValueError, match='item_draws belongs to method = "eap"'):
        _config(tmp_path / "x", score={"method": "ml", "item_draws": 5})


def test_a_run_without_its_check_has_not_finished(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "r")
    (tmp_path / "r" / "check.nc").unlink()
    with pytest.raises(InputError, match="has not finished: check to do"):
        report_again(tmp_path / "r")


def test_draws_asked_for_and_draws_there():
    posterior = xr.Dataset({"x": ("draw", np.zeros(30))})
    assert stages._of_draws(posterior, "check.replicates", 30) == 30
    with pytest.warns(irt.DataWarning, match=r"check.replicates = 50, but .* thinned to 30 draws"):
        assert stages._of_draws(posterior, "check.replicates", 50) == 30
    assert sections._LEAST_REPLICATES == predictive_check_module._LEAST_REPLICATES


def test_large_integers_are_kept(tmp_path):
    identity = {"title": "", "config_digest": "", "data_checksum": ""}
    directory = RunDirectory(tmp_path, identity, fresh=False)
    big = xr.Dataset({"item_n_right": ("items", [3_000_000_000, 1])}, attrs={"n_responses": 2**40})
    directory.finish("a stage", 0.0, [directory.save("x.nc", big)], [])
    again = directory.load("x.nc")
    assert again["item_n_right"].values.tolist() == [3e9, 1.0]
    assert again.attrs["n_responses"] == 2**40


@pytest.mark.parametrize(
    "toml, message",
    [
        ("seed = 1\n", "data: Field required"),
        ("[data]\nsource = 'a.csv'\nstore = 's'\n", "exactly one of .*given: source, store"),
        ("[data]\nbuiltin = 'lsat'\n[bayes]\ndraw = 5\n", "unknown key 'bayes.draw'"),
        (
            "[data]\nbuiltin = 'lsat'\n[bayes]\ndraws = 5\n",
            "bayes: .*draws = 5: 100 is the least, or 0",
        ),
        ("[data]\nbuiltin = 'lsat'\nmissing = ['9']\n", "describe a source file"),
        ("[data]\nbuiltin = 'lsat'\n[check]\nreplicates = 9\n", "9 are too few; give 10 or more"),
        ("[data]\nbuiltin = 'lsat'\n[check]\nreplicates = -1\n", r"check.replicates.*\(given -1\)"),
        ("[data]\nbuiltin = 'lsat'\n[score]\npv = 5\n", "unknown key 'score.pv'"),
        (
            "[data]\nbuiltin = 'lsat'\n[check]\nreplicates = 501\n",
            "check.replicates = 501 exceeds the 500 draws that the posterior is sure to have",
        ),
        (
            "[data]\nbuiltin = 'lsat'\n[bayes]\nchains = 1\n[score]\nplausible = 1001\n",
            "score.plausible = 1001 exceeds the 1000 draws",
        ),
        ("[data]\nbuiltin = \n", "cannot be read: "),
        (f"x = {'[' * 5000}{']' * 5000}\n", "cannot be read: .* nested too deeply"),
        (
            "[data]\nsource = 'd'\ncolumns = {weight = 'w'}\n[private]\nrho = 1.0\nledger = 'l'\n",
            "does not use person weights",
        ),
        ("[data]\nbuiltin = 'lsat'\n[cluster]\nmemory = 'lots'\n", 'write "4GB"'),
    ],
)
def test_bad_pipeline_files(tmp_path, toml, message):
    file = tmp_path / "p.toml"
    file.write_text(toml)
    with pytest.raises(InputError, match=message) as error:
        read_config(file)
    assert "p.toml" in str(error.value)


def test_paths_are_relative_to_the_pipeline_file(tmp_path):
    file = tmp_path / "p.toml"
    file.write_text("directory = 'out'\n[data]\nsource = 'sub/d.csv'\n")
    config = read_config(file)
    assert config.data.source == str(tmp_path / "sub" / "d.csv")
    assert config.directory == str(tmp_path / "out")
    assert read_config(file, {"source": "/x/y.csv"}).data.source == "/x/y.csv"


def test_shards_follow_the_data_alone():
    assert shards_for(1000, 5) == 1
    assert shards_for(20_000, 40) == 4
    assert shards_for(20_000, 1000) == 2
    assert shards_for(10**9, 40) == 16


@pytest.mark.parametrize(
    ("given", "n_shards", "chains", "n_items", "kept"),
    [
        ({}, 1, 1, 40, 2000),
        ({}, 1, 4, 300, 500),
        ({}, 16, 1, 30, 2000),
        ({}, 16, 1, 31, 1000),
        ({"chains": 3}, 16, 3, 31, 1000),
        ({"draws": 300}, 16, 1, 31, 300),
        ({"draws": 300}, 1, 4, 300, 100),
    ],
)
def test_draws_of_a_chain(given, n_shards, chains, n_items, kept):
    config = BayesConfig(**given)
    assert config.draws_of(n_shards, chains, n_items) == kept
    assert config.surely_kept <= kept


#: A run on two processes, whose chains are cut into segments of a tenth of a second.
KILLED = """
[data]
simulate = {persons = 8000, items = 20}
rows_per_block = 512
[cluster]
workers = 2
[joint]
coreset = 1000
max_iterations = 20
[bayes]
shards = 2
draws = 500
warmup = 100
[check]
replicates = 0
"""
COMMAND = """
from irt_dask.calibrate.bayes import samplers
from irt_dask.cli import main
samplers._SEGMENT_SECONDS = 0.1
main()
"""


@pytest.mark.cluster
def test_a_killed_driver_resumes_to_the_same_bits(tmp_path):
    """SIGKILL in the middle of joint ML, then of the chains; workers end too; the same command
    finishes."""
    file, killed, whole = (tmp_path / name for name in ("p.toml", "killed", "whole"))
    file.write_text(KILLED)
    command = [sys.executable, "-c", COMMAND, "run", str(file), "--quiet", "--out"]
    alone = [*command, str(whole), "--cluster", "none"]
    subprocess.run(alone, check=True, capture_output=True)
    for when in ("joint/joint.checkpoint", "bayes/*2.c*"):
        driver = subprocess.Popen([*command, str(killed)], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 600
        while not list((killed / "checkpoints").glob(when)):
            assert driver.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        children = _children(driver.pid)
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
        assert not (killed / "report.html").exists()
        assert children
        deadline = time.monotonic() + 120
        while any(os.path.exists(f"/proc/{p}") for p in children):
            assert time.monotonic() < deadline, "worker processes outlive a killed driver"
            time.sleep(0.1)
    subprocess.run([*command, str(killed)], check=True, capture_output=True)
    assert results(killed) == results(whole)


def _children(pid):
    """Process ids of all descendants."""
    import psutil

    return [p.pid for p in psutil.Process(pid).children(recursive=True)]


# --- a private release ----------------------------------------------------------------------------


@pytest.mark.slow
def test_private_releases_are_never_forgotten(tmp_path):
    ledger = tmp_path / "ledger.json"
    private = {"epsilon": 1.0, "delta": 1e-4, "ledger": str(ledger)}
    small = {"data": {"simulate": {"persons": 200, "items": 4}}}
    small["bayes"] = {"shards": 1, "draws": 100, "warmup": 50}
    config = _config(tmp_path / "r", private=private, **small)
    run(config)
    first = xr.load_dataset(tmp_path / "r" / "private.nc", engine="scipy")
    assert len(json.loads(ledger.read_text())["entries"]) == 1
    record = json.loads((tmp_path / "r" / "run.json").read_text())
    assert list(record["stages"])[:3] == ["ingest", "summary", "private"]
    run(config, fresh=True)  # the same request on the same data: the same release, at no cost
    again = xr.load_dataset(tmp_path / "r" / "private.nc", engine="scipy")
    assert again.identical(first)
    run(_config(tmp_path / "r", private={**private, "epsilon": 0.5}, **small), fresh=True)
    entries = json.loads(ledger.read_text())["entries"]
    assert len(entries) == 2
    assert entries[1]["total_rho"] > entries[0]["total_rho"]


def test_a_ledger_in_the_run_directory_is_refused(tmp_path):
    private = {"rho": 0.1, "ledger": str(tmp_path / "r" / "ledger.json")}
    with pytest.raises(InputError, match=r"ledger .* lies in the run directory .* keep it elsewhe"):
        run(_config(tmp_path / "r", private=private))
    with pytest.raises(InputError, match=r"rho=20000.0 must be above 0 and below 10000"):
        run(_config(tmp_path / "r", private={"rho": 2e4, "ledger": str(tmp_path / "l")}))


def test_private_options_of_a_pipeline_file(tmp_path):
    path = tmp_path / "p.toml"
    text = "[data]\nbuiltin = 'lsat'\n[private]\nrho = 0.5\nledger = 'l.json'\n"
    path.write_text(text)
    assert read_config(path).private.ledger == str(tmp_path / "l.json")
    for line, message in (
        ("epsilon = 1.0", "either epsilon and delta, or rho"),
        ("epsilon = -1.0", "private.epsilon"),
        ("p0 = 0.5", "p0 belongs to"),
        ("sigma = 3", "private.sigma"),
        ("budget = 3", "private.budget"),
    ):
        path.write_text(text + line + "\n")
        with pytest.raises(InputError, match=message):
            read_config(path)


def test_the_budget_of_a_pipeline_file(tmp_path):
    """It is checked before any stage, holds for the ledger, and is no part of what is computed."""
    small = {"data": {"simulate": {"persons": 50, "items": 4}}}
    private = {"rho": 0.1, "ledger": str(tmp_path / "l.json")}
    with pytest.raises(InputError, match=r"rho=-1\.0 must be above 0"):
        run(_config(tmp_path / "r", private={**private, "budget": {"rho": -1.0}}, **small))
    assert not (tmp_path / "r").exists()
    with pytest.raises(BudgetError, match=r"asks for 0\.1, and 0.05 is left"):
        run(_config(tmp_path / "r", private={**private, "budget": {"rho": 0.05}}, **small))
    plain, limited = (
        _config(tmp_path / "r", private=p, **small)
        for p in (private, {**private, "budget": {"rho": 0.05}})
    )
    assert plain.digest() == limited.digest()
