"""Connecting: configurations, refusals, the checks before a run, and a clean end."""

import os
import time

import distributed
import pytest

import irt_dask as irt
from irt_dask.clusters import ClusterConfig, check_store, check_versions
from irt_dask.errors import ClusterError, InputError
from irt_dask.workflow import read_config, read_scoring

TLS = {"kind": "address", "address": "tls://h:1", "tls_ca": "a", "tls_cert": "b", "tls_key": "c"}


def test_what_a_cluster_may_be(tmp_path):
    assert ClusterConfig.of(None) == ClusterConfig.of("local") == ClusterConfig()
    for loopback in (
        "tcp://127.0.0.1:8786",
        "tcp://127.8.9.1:1",
        "tcp://[::1]:1",
        "tcp://localhost:1",
    ):
        assert ClusterConfig.of(loopback).address == loopback
    file = tmp_path / "c.toml"
    file.write_text('[cluster]\nkind = "local"\nworkers = 3\nmemory = "2GB"\n')
    assert ClusterConfig.of(file).workers == 3
    file.write_text('[cluster]\nkind = "address"\naddress = "tcp://node7:1"\ninsecure = true\n')
    assert ClusterConfig.of(file).address == "tcp://node7:1"


@pytest.mark.parametrize(
    "cluster, message",
    [
        ({"worker": 2}, "unknown key 'worker'"),
        ({"workers": 0}, "workers: .*greater than or equal to 1 .given 0"),
        ({"kind": "address"}, "needs address"),
        ({"kind": "address", "address": "tcp://h:1", "workers": 2}, "belong to kind"),
        ({"address": "tcp://127.0.0.1:1"}, 'address needs kind = "address"'),
        ({"tls_ca": "ca.pem", "insecure": True}, 'tls_ca, insecure needs kind = "address"'),
        ("tcp://10.0.0.1:8786", "not on loopback.*Use tls://.*or write insecure = true"),
        ("tcp://node1:8786", "not on loopback"),
        ("tcp://0.0.0.0:8786", "not on loopback"),
        ("tcp://127.0.0.1.example.org:8786", "not on loopback"),
        ("tcp://[2001:db8::1]:8786", "not on loopback"),
        ({"kind": "address", "address": "tcp://10.0.0.1:8786"}, "not on loopback"),
        ("tls://127.0.0.1:8786", "needs tls_ca, tls_cert, tls_key.*'irt-dask certs'"),
        ({**TLS, "tls_key": None}, "tls://h:1 needs tls_key"),
        ({**TLS, "insecure": True}, "insecure = true belongs to tcp://"),
        ({**TLS, "address": "tcp://127.0.0.1:1"}, "certificates belong to a tls:// address"),
        ("ws://127.0.0.1:8786", "must begin with tls:// or tcp://"),
        ("tcp://127.0.0.1", "must be tls://host:port or tcp://host:port"),
        ("tcp://127.0.0.1:8786@10.0.0.1:1", "must be tls://host:port"),
        ({"kind": "address", "address": "127.0.0.1:8786"}, "must be tls://host:port"),
        ({"kind": "pbs"}, "kind: .*'local', 'address' or 'slurm'"),
        (
            {"kind": "address", "address": "tcp://127.0.0.1:1", "dashboard": True},
            'dashboard = true needs kind = "local"',
        ),
        ("somewhere", "give 'local', a scheduler's address"),
        ("missing.toml", "cannot be read"),
    ],
)
def test_bad_configurations(cluster, message):
    with pytest.raises(InputError, match=message):
        ClusterConfig.of(cluster)


@pytest.mark.parametrize(
    "cluster",
    [
        "tls://user:p@SECRET@host:8786",
        "tls://user:it'sSECRET@host:8786",
        "tls://SECRET@host:8786",
        "user:SECRET@host:8786",
        {**TLS, "address": "tls://user:p SECRET@host:8786"},
    ],
)
def test_a_password_in_an_address_is_refused_and_not_said(cluster):
    with pytest.raises(InputError, match="without user and password") as caught:
        ClusterConfig.of(cluster)
    assert "SECRET" not in str(caught.value)


def test_paths_are_relative_to_the_file_they_stand_in(tmp_path, monkeypatch):
    section = "[cluster]\n" + "".join(f'{k} = "{v}"\n' for k, v in TLS.items())
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "cluster.toml").write_text(section)
    (folder / "run.toml").write_text('[data]\nbuiltin = "lsat"\n' + section)
    (folder / "scoring.toml").write_text(
        '[scoring]\nstore = "s"\nbank = "b.csv"\nout = "o"\n' + section
    )
    monkeypatch.chdir(tmp_path)
    for config in (
        ClusterConfig.of("configs/cluster.toml"),
        read_config("configs/run.toml").cluster,
        read_scoring("configs/scoring.toml").cluster,
    ):
        paths = [config.tls_ca, config.tls_cert, config.tls_key]
        assert paths == [str(folder / name) for name in "abc"]


def test_no_scheduler_is_a_named_error(monkeypatch):
    monkeypatch.setattr("irt_dask.clusters.connection._TIMEOUT", 1.0)
    with (
        pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
        irt.connect("tcp://127.0.0.1:9"),
    ):
        pass


def test_workers_that_do_not_start_are_a_named_error(monkeypatch):
    """As when one is killed, or finds no memory, before it has joined."""

    class Failing:
        def __init__(self, **options):
            raise RuntimeError("Nanny failed to start.") from RuntimeError("Worker is dead")

    monkeypatch.setattr(distributed, "LocalCluster", Failing)
    with pytest.raises(ClusterError, match=r"did not start \(Worker is dead\)"), irt.connect():
        pass


def test_other_versions_on_a_worker_are_named(client, monkeypatch):
    real = __import__("irt_dask.clusters.checks", fromlist=["versions"]).versions
    monkeypatch.setattr("irt_dask.clusters.checks.versions", lambda: {**real(), "numba": "0.1"})
    # Workers import the function by name and answer with what they have.
    monkeypatch.setattr(
        "irt_dask.clusters.checks._ask", lambda c, f: {"tcp://w": real()} if client is c else {}
    )
    with pytest.raises(ClusterError, match=r"worker tcp://w runs other versions: numba .*here 0.1"):
        check_versions(client)


def test_workers_must_see_the_same_store(client, tmp_path):
    r = irt.simulate(300, 4, store=tmp_path / "s")
    check_store(client, r)
    (tmp_path / "s").rename(tmp_path / "moved")
    with pytest.raises(ClusterError, match=r"cannot open the store .*file system that all workers"):
        check_store(client, r)
    irt.simulate(300, 4, seed=1, store=tmp_path / "s")
    with pytest.raises(ClusterError, match="sees another store"):
        check_store(client, r)


@pytest.mark.cluster
def test_closing_leaves_no_process_behind():
    with irt.connect({"workers": 2}) as client:
        pids = list(client.run(os.getpid).values())
    deadline = time.monotonic() + 10
    while any(_alive(p) for p in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(_alive(p) for p in pids)
    assert len(pids) == 2


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
