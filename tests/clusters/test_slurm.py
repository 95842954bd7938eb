"""Runs under SLURM: a scheduler and a node are started on this machine, for these tests alone."""

import hashlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import irt_dask as irt
from irt_dask.clusters import slurm as slurm_module
from irt_dask.engine.executors import Cluster, completed
from irt_dask.errors import ClusterError

pytestmark = pytest.mark.cluster

SCRIPT = Path(__file__).parents[2] / "cluster" / "slurm" / "irt_dask.sbatch"
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "scontrol", "munged")
BIN = Path(sys.executable).parent
PIPELINE = """
[data]
simulate = {persons = 20000, items = 20}
rows_per_block = 1024
[joint]
coreset = 1000
max_iterations = 10
[bayes]
shards = 2
draws = 1500
warmup = 100
"""
#: One node, this machine; more processors than it may have, so that two workers fit everywhere.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=16000 State=UNKNOWN
PartitionName=work Nodes={host} Default=YES MaxTime=60 State=UP
"""


def _require():
    """Skip where SLURM cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("SLURM is started by root; this is another user")
    if importlib.util.find_spec("dask_jobqueue") is None:
        pytest.skip("dask-jobqueue is not installed (pip install 'irt_dask[hpc]')")
    if shutil.which("irt-dask", path=BIN) is None:
        pytest.skip(f"there is no command irt-dask in {BIN}: the package is not installed")
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [p for p in PROGRAMS if shutil.which(p, path=path) is None]
    if not missing:
        return
    by_hand = f"apt-get install {' '.join(PACKAGES)}"
    if shutil.which("apt-get") is None or Path("/run/systemd/system").exists():
        # Where systemd runs, the packages would start services that outlive the tests.
        pytest.skip(f"{', '.join(missing)} are not installed (on Debian: {by_hand})")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
            subprocess.run(
                ["apt-get", *arguments], env=environment, check=True, capture_output=True,
                timeout=120,
            )  # fmt: skip
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{by_hand} failed: {(error.stderr or b'no end in sight')[-500:].decode()}")


def _free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def _until(true, seconds, what):
    """Wait until a condition holds; the exception says for what."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited {seconds} s for: {what}"
        time.sleep(0.1)


def _say(*command):
    """Output of a command of SLURM; empty if it fails."""
    return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout


@contextmanager
def _logs_shown(*folders):
    """Let a failure show the ends of all logs."""
    try:
        yield
    except BaseException as error:
        for log in sorted(f for d in folders for p in ("*.log", "*.err") for f in d.rglob(p)):
            lines = log.read_text(errors="replace").splitlines()[-30:]
            error.add_note("\n".join([f"--- {log}", *lines]))
        raise


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The folder of a SLURM of one node, which ``SLURM_CONF`` points to."""
    _require()
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    host = socket.gethostname().partition(".")[0]
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(host=host, folder=folder, ports=_free_ports(2)).lstrip()
    )
    munge = [f"--{k}={folder}/munge.{k.partition('-')[0]}" for k in ("socket", "key-file")]
    munge += [f"--{k}-file={folder}/munge.{k}" for k in ("pid", "log", "seed")]
    with pytest.MonkeyPatch.context() as patch, _logs_shown(folder):
        patch.setenv("SLURM_CONF", str(configuration))
        patch.setenv("PATH", f"{BIN}:{os.environ['PATH']}:/usr/sbin:/sbin")
        daemons = []
        try:
            # --force: the folders of tests are closed to others, which munged objects to
            for command in (
                ["munged", "--foreground", "--force", *munge], ["slurmctld", "-D"], ["slurmd", "-D"]
            ):  # fmt: skip
                with open(folder / f"{command[0]}.output.log", "w") as output:
                    daemons.append(
                        subprocess.Popen(
                            command, stdout=output, stderr=output, start_new_session=True
                        )
                    )
                if command[0] == "munged":
                    _until((folder / "munge.socket").exists, 20, "the socket of munged")
            _until(lambda: _say("sinfo", "-h", "-o", "%T").strip() == "idle", 60, "an idle node")
            yield folder
        finally:
            _end(daemons, str(configuration))


def _end(daemons, configuration):
    """End the daemons and whatever was started under their configuration."""
    try:
        _say("scancel", "--user=root")
        _until(lambda: not _say("squeue", "-h"), 20, "the end of all jobs")
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for process in psutil.process_iter():
            try:
                ours = process.environ().get("SLURM_CONF") == configuration
                if ours and process.pid != os.getpid():
                    process.kill()
            except psutil.Error:
                pass


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """A pipeline file, and the checksums of what it leaves when no cluster is there."""
    folder = tmp_path_factory.mktemp("pipeline")
    file = folder / "p.toml"
    file.write_text(PIPELINE)
    _run(file, folder / "alone", "none")
    return file, _digests(folder / "alone")


def _command(file, out, cluster):
    return [
        sys.executable, "-m", "irt_dask.cli", "run", str(file), "--out", str(out),
        "--cluster", str(cluster),
    ]  # fmt: skip


def _run(file, out, cluster):
    done = subprocess.run(_command(file, out, cluster), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


def _digests(run):
    """Checksums of what a finished run wrote, but for the report, which says how long it took."""
    stages = json.loads((run / "run.json").read_text())["stages"]
    assert "report" in stages
    files = [name for stage in stages if stage != "report" for name in stages[stage]["files"]]
    assert {"posterior.nc", "items.csv", "scores.nc", "scores/_scores.json"} <= set(files)
    files += [str(f.relative_to(run)) for f in (run / "scores").glob("*.parquet")]
    return {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in files}


def _cluster(logs, **changes):
    return {
        "kind": "slurm", "workers": 2, "memory": "2GB", "walltime": "00:10:00", "queue": "work",
        "interface": "lo", "log_directory": str(logs), **changes,
    }  # fmt: skip


def _toml(path, section):
    lines = [f"{key} = {json.dumps(value)}" for key, value in section.items()]
    path.write_text("\n".join(["[cluster]", *lines, ""]))
    return path


def _nothing_left(logs):
    """No job waits or runs, and no certificate is left."""
    _until(lambda: not _say("squeue", "-h"), 30, "an empty queue")
    assert not list(logs.glob("tls-*"))


def test_workers_that_are_jobs(slurm, pipeline, tmp_path):
    file, expected = pipeline
    logs = tmp_path / "logs"
    section = _cluster(logs, workers_per_job=2)
    with _logs_shown(slurm, tmp_path):
        _run(file, tmp_path / "r", _toml(tmp_path / "cluster.toml", section))
        assert _digests(tmp_path / "r") == expected
        assert [len(list(logs.glob(f"irt_dask-*.{end}"))) for end in ("err", "out")] == [1, 1]
        assert "tls://127.0.0.1:" in next(logs.glob("*.err")).read_text()
        _nothing_left(logs)


def test_what_the_jobs_ask_for(slurm, tmp_path):
    extra = ["--comment=reading", "--nice=5"]
    section = _cluster(tmp_path, workers=4, workers_per_job=2, memory="1GiB", account="school")
    with (
        _logs_shown(slurm, tmp_path),
        irt.connect({**section, "job_extra_directives": extra}) as client,
    ):
        client.wait_for_workers(4, timeout=60)
        assert set(client.nthreads().values()) == {1}
        limits = {
            w["memory_limit"] for w in client.scheduler_info(n_workers=-1)["workers"].values()
        }
        assert limits == {2**30}
        assert client.scheduler.address.startswith("tls://127.0.0.1:")
        asked = _say("squeue", "-h", "-o", "%C %m %l %P %a %k").splitlines()
        assert asked == ["2 2G 10:00 work school reading"] * 2
        assert "Nice=5" in _say("scontrol", "show", "job")
    _nothing_left(tmp_path)


def _submit(folder, *arguments):
    """Submit the script, as its first lines say, for a small machine; return the job's number."""
    done = subprocess.run(
        ["sbatch", "--parsable", "--ntasks=2", "--mem-per-cpu=2G", "--time=10", str(SCRIPT),
         *map(str, arguments)],
        cwd=folder, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _state(job):
    """State and exit code of a job, which SLURM remembers for five minutes."""
    fields = dict(
        field.split("=", 1)
        for field in _say("scontrol", "show", "job", job).split()
        if "=" in field
    )
    return fields.get("JobState"), fields.get("ExitCode")


def _while_sampling(run, job):
    """Return in the middle of a run: the sampler has written a checkpoint."""

    def sampling():
        assert _state(job)[0] in ("PENDING", "CONFIGURING", "RUNNING"), "the job ended too early"
        return list((run / "checkpoints" / "bayes").glob("*"))

    _until(sampling, 120, "a checkpoint of the sampler")
    assert not (run / "posterior.nc").exists()


def test_a_cancelled_job_goes_on_when_it_starts_again(slurm, pipeline, tmp_path):
    """First cancelled, then stopped as when its time is up, after which it queues by itself."""
    file, expected = pipeline
    run = tmp_path / "r"
    with _logs_shown(slurm, tmp_path):
        job = _submit(tmp_path, file, "--out", run)
        _while_sampling(run, job)
        _say("scancel", job)
        _until(lambda: _state(job)[0] == "CANCELLED", 60, "the end of the cancelled job")
        _until(lambda: not list(tmp_path.glob(".irt_dask-*")), 10, "its certificates to be gone")
        assert "bayes" not in json.loads((run / "run.json").read_text())["stages"]

        job = _submit(tmp_path, file, "--out", run)
        log = tmp_path / f"irt_dask-{job}.log"
        _until(lambda: log.exists() and "joint: done before" in log.read_text(), 60, "it to go on")
        _say("scancel", "--signal=USR1", "--batch", job)  # what --signal sends
        _until(lambda: _state(job)[0] == "PENDING", 60, "the job to wait again")
        # SLURM lets a requeued job wait two minutes; at once, its node would still refuse it.
        time.sleep(5)
        _say("scontrol", "update", f"jobid={job}", "starttime=now")
        _until(lambda: _state(job)[0] not in ("PENDING", "RUNNING", "COMPLETING"), 120, "its end")
        assert _state(job) == ("COMPLETED", "0:0")
        assert log.read_text().count("joint: done before") == 2
        assert _digests(run) == expected
        assert not list(tmp_path.glob(".irt_dask-*"))


@pytest.mark.parametrize("late", [0, 8], ids=["workers in time", "workers late"])
def test_the_exit_code_of_the_run_is_that_of_the_job(slurm, tmp_path, monkeypatch, late):
    """At once, also where the workers start only when their scheduler is gone."""
    dask = tmp_path / "bin" / "dask"
    dask.parent.mkdir()
    dask.write_text(f'#!/bin/sh\n[ "$1" = scheduler ] || sleep {late}\nexec {BIN}/dask "$@"\n')
    dask.chmod(0o755)
    monkeypatch.setenv("PATH", f"{dask.parent}:{os.environ['PATH']}")
    with _logs_shown(slurm, tmp_path):
        job = _submit(tmp_path, tmp_path / "missing.toml")
        _until(lambda: _state(job)[0] == "FAILED", 45, "the job to fail")
        assert _state(job)[1] == "2:0"
        assert "there is no pipeline file" in (tmp_path / f"irt_dask-{job}.log").read_text()
        assert not list(tmp_path.glob(".irt_dask-*"))


def test_a_job_without_workers_fails(slurm, pipeline, tmp_path):
    """It would wait for them until its time is up."""
    file, _ = pipeline
    with _logs_shown(slurm, tmp_path):
        job = _submit(tmp_path, file, "--quiet", "--out", tmp_path / "r")
        _until((tmp_path / "r" / "spectral.nc").exists, 60, "the run to be on")
        _say("scancel", f"{job}.0")  # the step in which the workers run
        _until(lambda: _state(job)[0] == "FAILED", 60, "the job to fail")
        assert _state(job)[1] == "1:0"
        log = (tmp_path / f"irt_dask-{job}.log").read_text()
        assert "error: the workers or the scheduler ended before the run did" in log
        assert not list(tmp_path.glob(".irt_dask-*"))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"queue": "nowhere"}, "SLURM refused a job: sbatch: error: invalid partition"),
        ({"interface": "nope0"}, "cannot start: .*'nope0' is not a valid network interface"),
        (
            {"job_extra_directives": ["--hold"], "wait": "3s"},
            r"no worker came within wait = 3s; squeue says .*:\n  \d+ PENDING JobHeldUser\n",
        ),
        (
            {"job_extra_directives": ["--export=NONE,PYTHONHOME=/nowhere"]},
            r"(?s)all jobs ended before a worker came; .*No module named 'encodings'",
        ),
    ],
)
def test_jobs_that_never_start(slurm, tmp_path, changes, message):
    with (
        _logs_shown(slurm, tmp_path),
        pytest.raises(ClusterError, match=message),
        irt.connect(_cluster(tmp_path, **changes)),
    ):
        pass
    _nothing_left(tmp_path)


def _lose_all_jobs(logs):
    with irt.connect(_cluster(logs)) as client:
        workers = Cluster(client)
        futures = [workers.submit(0.0, time.sleep, 300)]
        assert _say("squeue", "-h")
        _say("scancel", "--user=root")
        for future in completed(workers, futures):
            workers.result(future)


def test_all_jobs_lost_is_an_error(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_module, "_LOOK", 0.5)
    message = r"all jobs have ended while work was left .* same command"
    with _logs_shown(slurm, tmp_path), pytest.raises(ClusterError, match=message):
        _lose_all_jobs(tmp_path)
    _nothing_left(tmp_path)


def test_an_interrupted_or_killed_run_leaves_no_job(slurm, pipeline, tmp_path):
    file, _ = pipeline
    for sent, code in ((signal.SIGINT, 1), (signal.SIGKILL, -signal.SIGKILL)):
        folder = tmp_path / sent.name
        folder.mkdir()
        cluster = _toml(folder / "cluster.toml", _cluster(folder / "logs"))
        with _logs_shown(slurm, folder):
            driver = subprocess.Popen(
                _command(file, folder / "r", cluster), stdout=subprocess.DEVNULL, text=True,
                stderr=subprocess.PIPE,
            )  # fmt: skip
            try:
                _until((folder / "r" / "spectral.nc").exists, 60, "the run to be on")
                assert _say("squeue", "-h")
                driver.send_signal(sent)
                said = driver.communicate(timeout=60)[1]
            finally:
                driver.kill()
            assert driver.returncode == code, said
            _until(lambda: not _say("squeue", "-h"), 30, "the end of the jobs")
            if sent == signal.SIGINT:
                assert "can be resumed by the same command" in said
                _nothing_left(folder / "logs")
