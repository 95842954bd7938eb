"""What a ``[cluster]`` section of SLURM may say, and what is missing where SLURM is not."""

import os
import sys
import time

import pytest

import irt_dask as irt
from irt_dask.clusters import ClusterConfig
from irt_dask.errors import ClusterError, InputError

SLURM = {"kind": "slurm", "workers": 4, "memory": "2GB", "walltime": "1-02:00:00"}


@pytest.mark.parametrize(
    "cluster, message",
    [
        ({"queue": "long", "wait": "1h"}, 'queue, wait needs kind = "slurm"'),
        ({"kind": "slurm", "workers": 2}, 'needs memory, walltime: .* memory = "4GB"'),
        ({**SLURM, "memory": "auto"}, "needs an amount of memory"),
        ({**SLURM, "memory": "lots"}, 'write "4GB"'),
        ({**SLURM, "memory": "0GB"}, "needs an amount of memory"),
        ({**SLURM, "address": "tcp://127.0.0.1:1"}, 'address needs kind = "address"'),
        ({**SLURM, "workers_per_job": 3}, "workers = 4 must be a multiple of workers_per_job = 3"),
        (
            {**SLURM, "walltime": "2 hours"},
            'walltime = "2 hours" is no length of time; write "02:00:00"',
        ),
        ({**SLURM, "wait": "soon"}, 'wait = "soon" is no length of time; write "10min"'),
        ({**SLURM, "queue": "a b"}, 'queue = "a b" becomes a word of a job script'),
        ({**SLURM, "log_directory": "/a b"}, "give it without blanks"),
        ({**SLURM, "job_extra_directives": ["qos=x"]}, "'qos=x' is no option of sbatch"),
        ({**SLURM, "job_extra_directives": ["--a\nrm"]}, "is no option of sbatch"),
        ({**SLURM, "quue": "long"}, "unknown key 'quue'"),
    ],
)
def test_bad_sections(cluster, message):
    with pytest.raises(InputError, match=message):
        ClusterConfig.of(cluster)


def test_paths_and_times(tmp_path):
    file = tmp_path / "c.toml"
    keys = [f"{k} = {v if k == 'workers' else repr(v)}" for k, v in SLURM.items()]
    file.write_text("\n".join(["[cluster]", "log_directory = 'logs'", *keys]))
    config = ClusterConfig.of(file)
    assert config.log_directory == str(tmp_path / "logs")
    assert config.wait_seconds() == 600
    assert ClusterConfig.of({**SLURM, "wait": "2h"}).wait_seconds() == 7200


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    section = {**SLURM, "log_directory": str(tmp_path / "logs")}
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="there is no command sbatch here"), irt.connect(section):
        pass
    for command in ("sbatch", "squeue", "scancel"):
        (tmp_path / command).touch(mode=0o755)
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with (
        pytest.raises(ClusterError, match=r"pip install 'irt_dask\[hpc\]'"),
        irt.connect(section),
    ):
        pass
    assert not (tmp_path / "logs").exists()


@pytest.mark.cluster
def test_an_sbatch_that_does_not_answer(tmp_path, monkeypatch):
    """Its jobs, if it has any after all, are cancelled."""
    pytest.importorskip("dask_jobqueue")
    cancelled = tmp_path / "cancelled"
    for command, does in {
        "sbatch": "sleep 60", "squeue": "exit 0", "scancel": f'echo "$@" > {cancelled}'
    }.items():  # fmt: skip
        (tmp_path / command).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / command).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    section = {**SLURM, "log_directory": str(tmp_path / "logs"), "wait": "2s"}
    began = time.monotonic()
    message = "sbatch did not take the jobs within wait = 2s"
    with pytest.raises(ClusterError, match=message), irt.connect(section):
        pass
    assert time.monotonic() - began < 50
    assert cancelled.read_text().startswith("--name irt_dask-")
