"""What runs write and remove stays in their directory; where they computed is recorded."""

import asyncio
import json
import os
import shutil

import pytest
from run_results import results

from irt_dask.clusters import checks
from irt_dask.engine.lock import LOCK, FolderLock
from irt_dask.errors import ChangedRunError, MachineWarning, RunError, StoreError
from irt_dask.workflow import RunConfig, run
from irt_dask.workflow.directory import RunDirectory
from irt_dask.workflow.running import report_again
from irt_dask.workflow.stages import STAGES

pytestmark = pytest.mark.usefixtures("without_pictures")


def configured(folder, **changes):
    return RunConfig.model_validate(
        {
            "directory": str(folder), "data": {"simulate": {"persons": 300, "items": 5}},
            "calibrate": {"method": "marginal"}, "check": {"replicates": 10}, **changes,
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("directory") / "r"
    run(configured(folder))
    return folder


class Killed(BaseException):
    """Stands for the death of the driver."""


def die(context):
    raise Killed


@pytest.fixture(scope="module")
def died(tmp_path_factory):
    folder = tmp_path_factory.mktemp("directory") / "r"
    with pytest.MonkeyPatch.context() as m:
        m.setitem(STAGES, "marginal", die)
        with pytest.raises(Killed):
            run(configured(folder))
    return folder


@pytest.fixture
def begun(died, tmp_path):
    """A run that was killed in its calibration."""
    return shutil.copytree(died, tmp_path / "r")


# --- links ----------------------------------------------------------------------------------------

NAMES = [
    "checkpoints", "checkpoints/marginal", "checkpoints/marginal/marginal.checkpoint", "log.txt",
    "events.jsonl",
    "responses", "responses.quarantine.csv", "summary.nc", "truth.nc", "marginal.nc", "items.csv",
    "items.covariance.csv", "check.nc", "check_items.csv", "scores", "scores.nc", "private.nc",
    "report.html", "run.json",
    ".lock", "responses/manifest.json", "scores/part-000000.parquet",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_links_are_refused_and_what_they_lead_to_is_left(begun, tmp_path, name):
    """A link that anybody put there must not make a run write or remove files elsewhere."""
    path, elsewhere = begun / name, tmp_path / "elsewhere"
    if path.is_dir():
        shutil.move(path, elsewhere)
    elif path.exists():
        path.rename(elsewhere)
    elif path.suffix:
        elsewhere.write_text("of somebody else")
    else:
        (elsewhere / "marginal").mkdir(parents=True)
        (elsewhere / "marginal" / "thesis.txt").write_text("three years of work")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(elsewhere)
    before = _content(elsewhere)
    for fresh in (False, True):
        with pytest.raises(RunError, match=rf"{path} is a symbolic link \(to {elsewhere}\): "):
            run(configured(begun), fresh=fresh)
    assert _content(elsewhere) == before
    assert path.is_symlink()


def _content(path):
    files = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
    return {f: f.read_bytes() for f in files}


@pytest.mark.parametrize("name", [".lock", "part-000000.parquet"])
def test_links_among_scores_are_neither_followed_nor_believed(finished, tmp_path, name):
    folder = shutil.copytree(finished, tmp_path / "r") / "scores"
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=rf"{folder / name} is a symbolic link"):
        run(configured(tmp_path / "r"))
    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=r"\.lock is a symbolic link, which is not followed"):
        FolderLock(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "name, act",
    [
        ("checkpoints", lambda d: d.forget("marginal")),
        ("checkpoints", lambda d: d.checkpoint("marginal")),
        ("log.txt", lambda d: d.log("a line")),
        ("responses", lambda d: d.clear("responses")),
        ("items.csv", lambda d: d.write("items.csv", b"")),
        ("run.json", lambda d: d.finish("a stage", 0.0, [], [])),
        ("report.html", lambda d: d.place("report.html")),
        ("scores", lambda d: d.place("scores")),
    ],
)
def test_links_that_appear_while_a_run_works_are_refused(tmp_path, name, act):
    identity = {"title": "", "config_digest": "", "data_checksum": ""}
    directory = RunDirectory(tmp_path / "r", identity, fresh=False)
    elsewhere = tmp_path / "elsewhere" / "marginal"
    elsewhere.mkdir(parents=True)
    (tmp_path / "r" / name).unlink(missing_ok=True)
    (tmp_path / "r" / name).symlink_to(elsewhere.parent)
    with pytest.raises(RunError, match=rf"{name} is a symbolic link"):
        act(directory)
    assert elsewhere.exists()
    directory.close()


def test_a_log_that_is_a_pipe_is_not_waited_for(tmp_path):
    identity = {"title": "", "config_digest": "", "data_checksum": ""}
    directory = RunDirectory(tmp_path / "r", identity, fresh=False)
    (tmp_path / "r" / "log.txt").unlink()
    os.mkfifo(tmp_path / "r" / "log.txt")
    with pytest.raises(StoreError, match=r"log\.txt is no file, but a folder, a pipe or a device"):
        directory.log("a line")
    directory.close()


def test_a_report_is_not_written_through_a_link(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "r")
    (tmp_path / "mine.html").write_text("mine")
    (tmp_path / "r" / "report.html").unlink()
    (tmp_path / "r" / "report.html").symlink_to(tmp_path / "mine.html")
    with pytest.raises(RunError, match=r"report.html is a symbolic link"):
        report_again(tmp_path / "r")
    assert (tmp_path / "mine.html").read_text() == "mine"
    (tmp_path / "r" / ".lock").unlink()
    (tmp_path / "r" / ".lock").symlink_to(tmp_path / "a file that is not there")
    with pytest.raises(RunError, match=r"\.lock is a symbolic link"):
        report_again(tmp_path / "r")
    assert not (tmp_path / "a file that is not there").exists()


def test_the_directory_itself_may_be_a_link(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "large disk")
    (tmp_path / "large disk" / "report.html").unlink()
    (tmp_path / "r").symlink_to(tmp_path / "large disk")
    run(configured(tmp_path / "r"))
    assert results(tmp_path / "large disk") == results(finished)
    assert len(json.loads((tmp_path / "r" / "run.json").read_text())["machines"]) == 1


# --- machines -------------------------------------------------------------------------------------


def test_resuming_on_another_processor_is_said_and_recorded(begun, finished, monkeypatch):
    here = json.loads((begun / "run.json").read_text())["machines"]
    assert [m["from"] for m in here] == ["ingest"]
    assert here[0]["processors"] == [checks.processor()]
    monkeypatch.setattr(checks, "processor", lambda: "Another CPU (openblas Other)")
    said = []
    run(configured(begun), say=said.append)
    of_it = [
        line for line in said if line.startswith("  warning: from marginal on this run comput")
    ]
    assert len(of_it) == 1
    assert "Another CPU (openblas Other); before it was " in of_it[0]
    assert "before it was " in (begun / "log.txt").read_text()
    record = json.loads((begun / "run.json").read_text())["machines"]
    assert [(m["from"], m["processors"]) for m in record] == [
        ("ingest", here[0]["processors"]), ("marginal", ["Another CPU (openblas Other)"])
    ]  # fmt: skip
    page = (begun / "report.html").read_text()
    assert "From marginal on computed on Another CPU (openblas Other)." in page
    assert "last bits may" in page
    assert "last bits may" not in (finished / "report.html").read_text()
    assert results(begun) == results(finished)  # but for what says of itself that it may differ


def test_manifests_without_a_history_of_machines(begun, monkeypatch):
    """As they were: the CPU of the beginning, nothing of BLAS."""
    identity = {"title": "", "config_digest": "", "data_checksum": ""}
    monkeypatch.setattr(checks, "processor", lambda: "A CPU (openblas X)")
    for cpu, warned in (("A CPU", False), ("B CPU", True)):
        directory = RunDirectory(begun.parent / cpu, identity, fresh=False)
        del directory.content["machines"]
        directory.content["machine"] = {"system": "a system", "cpu": cpu}
        types = checks.check_processors(None)
        if warned:
            with pytest.warns(MachineWarning, match="before it was B CPU"):
                directory.computed_on(types, "joint")
        else:
            directory.computed_on(types, "joint")
        assert len(directory.machines) == 1 + warned
        directory.close()


def test_processors_of_a_cluster_are_compared(monkeypatch):
    class Client:
        """Answers like three workers, one of which has died."""

        @property
        def scheduler(self):
            return self

        async def ncores(self, workers):
            return {"a": 1}

        def sync(self, function, *, callback_timeout, **options):
            return asyncio.run(function(**options))

        async def run(self, function, on_error):
            return {"tcp://a:1": "X (openblas Haswell)", "tcp://b:1": checks.processor(),
                    "tcp://c:1": OSError("gone")}  # fmt: skip

    with pytest.warns(MachineWarning) as told:
        types = checks.check_processors(Client())
    assert types == tuple(sorted(("X (openblas Haswell)", checks.processor())))
    text = str(told[0].message)
    assert "X (openblas Haswell): worker tcp://a:1)" in text
    assert f"{checks.processor()}: this process, worker tcp://b:1" in text
    assert "tcp://c:1" not in text


def test_workers_name_their_processor(client):
    assert checks.check_processors(client) == (checks.processor(),)
    assert "(" in checks.processor()


def test_runs_go_on_that_were_begun_when_tables_were_part_of_the_checksum(tmp_path):
    told = {"title": "", "config": {"seed": 1, "tables": []}, "data_checksum": ""}
    RunDirectory(tmp_path, told | {"config_digest": "of all"}, fresh=False).close()
    (tmp_path / "joint.nc").touch()
    again = RunDirectory(tmp_path, told | {"config_digest": "but tables"}, fresh=False)
    again.check_config("but tables", "bayes.item_table")
    again.close()
    with pytest.raises(ChangedRunError, match=r"the configuration changed \(seed: 1 -> 2\)"):
        RunDirectory(tmp_path, told | {"config": {"seed": 2}, "config_digest": "2"}, fresh=False)


def test_a_run_that_stopped_before_it_made_anything_is_begun_again(tmp_path):
    """As after a response that is none: its file is corrected, and there is nothing to discard."""
    told = {"title": "", "config": {"seed": 1}, "config_digest": "1", "data_checksum": "wrong"}
    corrected = told | {"data_checksum": "right"}
    RunDirectory(tmp_path, told, fresh=False).close()
    (tmp_path / "events.jsonl").touch()
    again = RunDirectory(tmp_path, corrected, fresh=False)
    again.check_data("right")
    assert (tmp_path / "log.txt").read_text().count("run started") == 2
    assert RunDirectory.existing(tmp_path).content["data_checksum"] == "right"
    again.write("quarantine.csv", b"")  # what was set aside is something
    again.close()
    with pytest.raises(ChangedRunError, match="the data changed"):
        RunDirectory(tmp_path, told, fresh=False)
    (tmp_path / "quarantine.csv").unlink()
    done = RunDirectory(tmp_path, corrected, fresh=False)
    done.finish("a stage", 0.0, [], [])
    done.close()
    with pytest.raises(ChangedRunError, match="the data changed"):
        RunDirectory(tmp_path, told, fresh=False)
