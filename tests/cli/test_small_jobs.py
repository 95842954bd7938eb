"""Small jobs start no cluster and import little; large ones start one; --quiet is quiet."""

import json
import logging
import os
import re
import subprocess
import sys
import warnings
from contextlib import contextmanager

import pytest

import irt_dask as irt
from irt_dask.cli import common, data, work
from irt_dask.errors import MachineWarning
from irt_dask.workflow import inputs

#: What takes long to import, and nobody needs for calibrating and scoring in this process.
HEAVY = ("distributed", "matplotlib", "dask.array", "dask.dataframe", "scipy.stats",
         "irt_dask.workflow.stages", "irt_dask.calibrate.bayes.fit", "opendp")  # fmt: skip


def test_calibrate_and_score_import_little(tmp_path):
    """All in one process, which says what it has imported."""
    irt.simulate(100, 5, store=tmp_path / "s", seed=2)
    script = f"""
import sys
from irt_dask.cli import main
for line in ("calibrate s --out b.csv --method marginal", "score s b.csv --out scores",
             "calibrate s --out b.csv --fit f.nc --method marginal", "score s f.nc --out scores"):
    sys.argv = ["irt-dask", *line.split()]
    main()
    print("heavy:", *[name for name in {HEAVY} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    heavy = [line for line in done.stdout.splitlines() if line.startswith("heavy:")]
    assert heavy[:2] == ["heavy:", "heavy:"]
    # xarray, from some version on, looks for Dask's arrays among those that it writes to a file
    assert len(heavy) == 4
    assert set(heavy[2:]) <= {"heavy:", "heavy: dask.array"}


def test_a_command_looks_for_garbage_seldom(tmp_path):
    """All that is imported is beyond the collector, which looks no more as the process ends."""
    irt.simulate(100, 5, store=tmp_path / "s", seed=2)
    script = """
import atexit, gc, sys
seen = []
atexit.register(lambda: print("left:", len(gc.get_objects()), "looks:", len(seen)))
from irt_dask.cli import main
assert gc.isenabled() and gc.get_freeze_count() > 100_000 > len(gc.get_objects())
gc.callbacks.append(lambda phase, info: seen.append(phase))
sys.argv = ["irt-dask", "info", "s"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    left, looks = re.findall(r"\d+", done.stdout.splitlines()[-1])
    assert int(left) < 1000
    assert int(looks) < 20


@pytest.fixture
def started(monkeypatch):
    """Clusters that would be started, by what was asked for."""
    from irt_dask import clusters

    asked = []

    def connect(config):
        asked.append(config.kind)
        raise irt.InputError(f"would start {config.kind}")

    monkeypatch.setattr(clusters, "connect", connect)
    return asked


@pytest.mark.parametrize("command", ["calibrate", "score", "fit", "dif"])
def test_the_size_of_the_store_decides(tmp_path, typed, started, monkeypatch, command):
    r = irt.simulate(60, 4, store=tmp_path / "s", seed=2)
    irt.write_items(r.truth, tmp_path / "b.csv")
    args = {
        "calibrate": ("s", "--out", "c.csv", "--method", "marginal"),
        "score": ("s", "b.csv", "--out", "scores"),
        "fit": ("s", "b.csv"),
        "dif": ("s", "b.csv", "--reference", "a", "--focal", "b"),
    }[command]
    code = 2 if command == "dif" else 0  # the store has no groups
    typed(command, *args, "--quiet", code=code)
    assert not started
    monkeypatch.setattr(common, "LARGE", 241)
    typed(command, *args, code=code)
    assert not started
    monkeypatch.setattr(common, "LARGE", 240)
    assert "would start local" in typed(command, *args, code=2).err
    typed(command, *args, "--cluster", "none", code=code)
    assert started == ["local"]
    monkeypatch.setattr(common, "LARGE", 10**9)
    assert "would start local" in typed(command, *args, "--cluster", "local", code=2).err


def test_the_size_of_what_is_simulated_decides(typed, started, monkeypatch):
    monkeypatch.setattr(common, "LARGE", 61)
    typed("simulate", "s", "--persons", 20, "--items", 3)
    monkeypatch.setattr(common, "LARGE", 60)
    assert "would start local" in typed("simulate", "t", "--persons", 20, "--items", 3, code=2).err
    typed("simulate", "u", "--persons", 20, "--items", 3, "--cluster", "none")
    assert started == ["local"]
    said = typed("ingest", "f.csv", "v", "--cluster", "auto", code=2).err
    assert "--cluster auto: this command takes 'none', 'local'" in said


def test_a_scoring_file_without_a_cluster_goes_by_size(tmp_path, typed, started):
    r = irt.simulate(60, 4, store=tmp_path / "s", seed=2)
    irt.write_items(r.truth, tmp_path / "b.csv")
    scoring = '[scoring]\nstore = "s"\nbank = "b.csv"\nout = "scores"\n'
    (tmp_path / "auto.toml").write_text(scoring)
    (tmp_path / "local.toml").write_text(scoring + '[cluster]\nkind = "local"\n')
    typed("run", "auto.toml")
    assert not started
    assert "would start local" in typed("run", "local.toml", code=2).err


def test_a_small_run_starts_no_cluster_unless_asked(tmp_path, typed, started, monkeypatch):
    runs = []

    def run(config, **_):
        runs.append(config)
        return tmp_path

    monkeypatch.setattr("irt_dask.workflow.running.run", run)
    irt.simulate(60, 4, store=tmp_path / "s", seed=2)
    (tmp_path / "y.csv").write_text("person,a,b\n1,0,1\n")
    for name, source in {
        "lsat": "builtin = 'lsat'",
        "store": "store = 's'",
        "file": "source = 'y.csv'\nshape = 'wide'",
        "simulate": "simulate = {persons = 60, items = 4}",
    }.items():
        (tmp_path / f"{name}.toml").write_text(f"[data]\n{source}\n")
        typed("run", f"{name}.toml")
        assert not started
        with monkeypatch.context() as patch:
            patch.setattr(inputs, "_SMALL", 10)
            if name == "lsat":
                continue
            assert "would start local" in typed("run", f"{name}.toml", code=2).err
            assert started.pop() == "local"
            typed("run", f"{name}.toml", "--cluster", "none")
            assert not started
    (tmp_path / "own.toml").write_text("[data]\nbuiltin = 'lsat'\n[cluster]\nkind = 'local'\n")
    assert "would start local" in typed("run", "own.toml", code=2).err
    typed("run", "own.toml", "--cluster", "auto")
    assert len(runs) == 8


def test_quiet_leaves_warnings_alone(tmp_path, typed):
    """No remark, no progress; a warning is said all the same, and --json has its output."""
    irt.simulate(300, 5, store=tmp_path / "s", seed=2)
    args = ("calibrate", "s", "--out", "b.csv", "--method", "marginal", "--model", "3pl", "--json")
    assert "note: " in typed(*args).err
    said = typed(*args, "--max-iterations", 1, "--quiet")
    assert all(line.startswith("warning: ") for line in said.err.splitlines())
    assert "did not converge in 1 iterations" in said.err
    assert json.loads(said.out)["converged"] == 0


def test_simulate_tells_the_cluster_to_be_quiet(typed, monkeypatch):
    asked = []

    @contextmanager
    def workers(cluster, *, quiet=False):
        asked.append(quiet)
        yield None

    monkeypatch.setattr(data, "workers", workers)
    for k, quiet in enumerate([(), ("--quiet",)]):
        typed("simulate", f"s{k}", "--persons", 20, "--items", 3, *quiet)
    assert asked == [False, True]


def test_a_mixed_cluster_is_told_of_once(tmp_path, typed, monkeypatch):
    """By the run, which keeps it among its notes, not by the connection too."""

    @contextmanager
    def workers(cluster, *, quiet=False):
        warnings.warn("several types", MachineWarning, stacklevel=2)
        yield None

    def run(config, *, say, **options):
        say("  warning: several types")
        return tmp_path

    monkeypatch.setattr(work, "workers", workers)
    monkeypatch.setattr("irt_dask.workflow.running.run", run)
    (tmp_path / "p.toml").write_text("[data]\nbuiltin = 'lsat'\n")
    said = typed("run", "p.toml", "--quiet")
    assert said.err == "warning: several types\n"


@pytest.mark.slow
def test_a_quiet_run_says_where_its_files_are(tmp_path, typed):
    (tmp_path / "p.toml").write_text(
        "[data]\nbuiltin = 'lsat'\n[check]\nreplicates = 0\n[joint]\ncoreset = 0\n"
        "max_iterations = 8\n[bayes]\ndraws = 100\nwarmup = 50\n"
    )
    said = typed("run", "p.toml", "--cluster", "none", "--quiet")
    assert [line.partition(":")[0] for line in said.out.splitlines()] == [
        "items", "scores", "report",
    ]  # fmt: skip
    assert all(line.startswith("warning: ") for line in said.err.splitlines())


@pytest.mark.slow
def test_quiet_silences_the_loggers_of_a_cluster(monkeypatch):
    """In this process, and by the environment in those that are started; afterwards as before."""
    import distributed  # noqa: F401

    logger, before = logging.getLogger("distributed.gc"), dict(os.environ)
    level = logger.level
    with common._hushed():
        assert logger.level == logging.ERROR
        script = "import logging, distributed; print(logging.getLogger('distributed').level)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert int(done.stdout) == logging.ERROR
    assert logger.level == level
    assert dict(os.environ) == before
