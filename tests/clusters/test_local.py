"""The default cluster, worker processes on this machine: nobody else who is logged in gets in."""

import http.client
import json
import os
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from distributed import LocalCluster

import irt_dask as irt
from irt_dask.cli.common import workers
from irt_dask.clusters.certificates import temporary_security
from irt_dask.clusters.tls import probe
from irt_dask.errors import ClusterError

NOBODY = 65534
#: Another user's program.  Python and its packages may lie where that user cannot read, so all is
#: imported before; that they suffice is seen by what it does to a scheduler without encryption.
STRANGER = """
import gc, json, os, sys
import distributed
gc.disable()  # a client that failed, collected while another starts, can make Dask hang
with distributed.Client(processes=False, dashboard_address=None) as client:
    client.run_on_scheduler(os.getpid)
own = distributed.Security.temporary()  # imports more
os.setgroups([])
os.setresgid(*[int(sys.argv[1])] * 3)
os.setresuid(*[int(sys.argv[1])] * 3)

def tried(attack):
    try:
        return attack()
    except BaseException as error:
        return repr(error)

def run_code(address, security):
    with distributed.Client(address, timeout="2s", security=security) as client:
        return client.run_on_scheduler(os.getuid)

found = [os.getuid()]
for place, folder in json.loads(sys.argv[2]):
    found.append({
        "tcp": tried(lambda: run_code(f"tcp://{place}", None)),
        "tls": tried(lambda: run_code(f"tls://{place}", None)),
        "own certificate": tried(lambda: run_code(f"tls://{place}", own)),
        "files": tried(lambda: os.listdir(folder)),
    })
print(json.dumps(found))
"""


def _ports() -> set[tuple[str, int]]:
    """Where this process and its children listen."""
    me = psutil.Process()
    return {
        tuple(c.laddr)
        for process in (me, *me.children(recursive=True))
        for c in process.net_connections()
        if c.status == psutil.CONN_LISTEN
    }


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """A local cluster of one worker, where it listens, and the folder of all temporary files."""
    folder = tmp_path_factory.mktemp("temporary")
    before = _ports()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        with irt.connect({"workers": 1}) as client:
            yield client, _ports() - before, folder


def _page(port, name):
    """Status and text of a page; None if the server does not speak HTTP."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", f"/{name}")
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (http.client.HTTPException, OSError):
        return None
    finally:
        connection.close()


@pytest.mark.cluster
def test_every_port_wants_a_certificate_or_has_no_page(local):
    client, ports, _ = local
    bare, foreign = ssl.create_default_context(), temporary_security()
    bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
    shown = foreign.get_connection_args("client")["ssl_context"]
    shown.verify_mode = ssl.CERT_NONE
    assert {host for host, _ in ports} == {"127.0.0.1"}
    listed = {port: _page(port, "sitemap.json") for _, port in ports}
    pages = {port: json.loads(page[1])["paths"] for port, page in listed.items() if page}
    assert list(pages.values()) == [["/sitemap.json"]] * 2  # of scheduler and worker
    assert {_page(port, "metrics")[0] for port in pages} == {404}
    secured = [port for port, page in listed.items() if page is None]
    assert len(secured) == 3  # scheduler, nanny, worker
    for port in secured:
        for context, why in ((bare, "certificate required"), (shown, "unknown ca")):
            with pytest.raises(ClusterError, match=f"refuses this client .*{why}"):
                probe(f"tls://127.0.0.1:{port}", context, 10.0)
    assert client.submit(sum, [1, 2]).result(timeout=60) == 3


@pytest.mark.cluster
def test_another_user_can_neither_connect_nor_read(local):
    """The same program runs code as us where there is no encryption, as it was once."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a process of another user is started")
    client, _, folder = local
    [scratch] = folder.glob("irt_dask-*")
    with LocalCluster(
        n_workers=0, processes=False, protocol="tcp://", dashboard_address="127.0.0.1:0"
    ) as plain:
        places = [(plain.scheduler_address, "/"), (client.scheduler.address, str(scratch))]
        arguments = [str(NOBODY), json.dumps([(a.partition("://")[2], f) for a, f in places])]
        done = subprocess.run(
            [sys.executable, "-c", STRANGER, *arguments],
            capture_output=True, text=True, timeout=120,
            env={k: x for k, x in os.environ.items() if k != "TMPDIR"},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    who, open_to_all, ours = json.loads(done.stdout)
    assert who == NOBODY
    assert open_to_all["tcp"] == 0  # root's
    assert isinstance(open_to_all["files"], list)
    assert "CommClosedError" in ours["tcp"] or "Timed out" in ours["tcp"]
    assert "expects a `ssl_context`" in ours["tls"]
    assert "TLS certificate does not match" in ours["own certificate"]
    assert "PermissionError" in ours["files"]
    assert client.submit(sum, [1, 2]).result(timeout=60) == 3


@pytest.mark.cluster
def test_keys_are_in_memory_and_files_for_their_owner_alone(local):
    client, _, folder = local
    [scratch] = folder.glob("irt_dask-*")
    [spilled] = client.run(lambda dask_worker: dask_worker.local_directory).values()
    assert Path(spilled).is_relative_to(scratch)
    assert scratch.stat().st_mode & 0o777 == 0o700
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"PRIVATE KEY" in path.read_bytes()]


@pytest.mark.cluster
def test_modules_come_from_no_folder_that_others_may_have_made(tmp_path, monkeypatch):
    """Dask puts folders of scheduler and nannies first, and leaves them there if another is."""
    theirs = tmp_path / "dask-scratch-space"
    theirs.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = [*sys.path]
    with irt.connect({"workers": 1}):
        [scratch] = tmp_path.glob("irt_dask-*")
        added = [Path(path) for path in sys.path if path not in before]
        assert len(added) == 2
        assert all(path.is_relative_to(scratch) for path in added)
        assert not [*theirs.iterdir()]
        sys.path.insert(0, "/mine")
    assert sys.path == ["/mine", *before]


@pytest.mark.cluster
def test_modules_do_not_come_from_where_a_command_is_typed(tmp_path):
    """Processes import pickle as they start; the script's own modules come from its folder."""
    script, here = tmp_path / "script", tmp_path / "here"
    script.mkdir()
    here.mkdir()
    (script / "helper.py").write_text("import os\n\ndef folder():\n    return os.getcwd()\n")
    (script / "main.py").write_text(
        "import os, helper, irt_dask as irt\n"
        "if __name__ == '__main__':\n"
        "    with irt.connect({'workers': 1}) as client:\n"
        "        print(client.submit(helper.folder).result(timeout=60))\n"
        "        print(os.environ.get('PYTHONSAFEPATH'))\n"
    )
    for name in ("pickle.py", "socket.py"):
        (here / name).write_text("open('imported', 'w')\nraise ImportError\n")
    done = subprocess.run(
        [sys.executable, script / "main.py"], cwd=here, capture_output=True, text=True, timeout=120,
        env={k: x for k, x in os.environ.items() if k != "PYTHONSAFEPATH"},
    )  # fmt: skip
    assert done.stdout.split() == [str(here), "None"], done.stderr
    assert not (here / "imported").exists()


@pytest.mark.cluster
def test_a_dashboard_that_is_asked_for_is_said_where_it_is(capsys):
    with workers({"workers": 1, "dashboard": True}) as client:
        said = capsys.readouterr().err
        link = client.dashboard_link
        assert f"dashboard (no password): {link}" in said
        assert link.startswith("http://127.0.0.1:")
        assert _page(int(link.rpartition(":")[2].partition("/")[0]), "status")[0] == 200


def test_a_dashboard_without_bokeh_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed.dashboard.scheduler", None)
    with (
        pytest.raises(ClusterError, match=r"dashboard = true needs Bokeh .*irt_dask\[dashboard\]"),
        irt.connect({"dashboard": True}),
    ):
        pass


HANGS = """
import sys
import irt_dask as irt
from distributed.deploy.spec import SpecCluster
from irt_dask.clusters import connection
import asyncio

async def never(self):
    await asyncio.sleep(600)

if __name__ == "__main__":
    SpecCluster._correct_state_internal = never  # as when the clock is set back meanwhile
    connection._START, connection._CLOSE = 1.0, 1.0
    try:
        with irt.connect({"workers": 1}):
            pass
    except irt.IrtDaskError as error:
        print(error)
"""


@pytest.mark.cluster
def test_a_cluster_that_never_starts_is_an_error(tmp_path):
    """In a process of its own, which ends too."""
    (tmp_path / "hangs.py").write_text(HANGS)
    done = subprocess.run(
        [sys.executable, "hangs.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert "have not started within 1 seconds" in done.stdout, done.stderr
