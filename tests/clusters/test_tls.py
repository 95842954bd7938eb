"""Encrypted connections: who is let in, who is turned away, and how fast."""

import datetime
import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import serialization

import irt_dask as irt
from irt_dask.cli.documents import docs
from irt_dask.cli.secure import certs
from irt_dask.clusters import ClusterConfig, certificates
from irt_dask.clusters.certificates import write_certificates
from irt_dask.clusters.tls import client_security, probe
from irt_dask.errors import ClusterError, InputError


def _context(folder, party="client"):
    """The context of a party with the files of a folder, as distributed makes it."""
    files = [str(folder / name) for name in ("ca.pem", f"{party}.pem", f"{party}-key.pem")]
    return client_security(*files).get_connection_args("client")["ssl_context"]


def _section(folder, address, ca="ca.pem", party="client"):
    return {
        "kind": "address",
        "address": address,
        "tls_ca": str(folder / ca),
        "tls_cert": str(folder / f"{party}.pem"),
        "tls_key": str(folder / f"{party}-key.pem"),
    }


@contextmanager
def _fails(message, within=5.0, error=ClusterError):
    begun = time.monotonic()
    with pytest.raises(error, match=message):
        yield
    assert time.monotonic() - begun < within


# --- certificates and their files -----------------------------------------------------------------


def test_certificates_are_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        folder = write_certificates(tmp_path / "c", hosts=["node1.example.org", "10.0.0.1"])
    finally:
        os.umask(before)
    modes = {p.name: p.stat().st_mode & 0o777 for p in folder.iterdir()}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {n for n, mode in modes.items() if mode == 0o600} == {
        f"{party}-key.pem" for party in ("scheduler", "worker", "client")
    }  # and none of the authority
    assert len(modes) == 8
    config = ClusterConfig.of(folder / "cluster.toml")
    assert config.address == "tls://node1.example.org:8786"
    assert config.tls_key == str(folder / "client-key.pem")
    made = x509.load_pem_x509_certificate((folder / "scheduler.pem").read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["node1.example.org"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]


def test_certificates_are_not_overwritten(tmp_path):
    folder = write_certificates(tmp_path / "c")
    key = (folder / "client-key.pem").read_bytes()
    with pytest.raises(InputError, match="never overwritten"):
        write_certificates(folder)
    assert (folder / "client-key.pem").read_bytes() == key


@pytest.mark.parametrize(
    "options, message",
    [
        ({"days": 0}, "days = 0 must be from 1 to 3650"),
        ({"days": 4000}, "days = 4000"),
        ({"hosts": ["node:8786"]}, "host 'node:8786' must be a name"),
        ({"hosts": ['a"\nkind']}, "must be a name"),
    ],
)
def test_what_certificates_cannot_be(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        write_certificates(tmp_path / "c", **options)
    assert not (tmp_path / "c").exists()
    with pytest.raises(InputError, match="cannot be made: No such file"):
        write_certificates(tmp_path / "missing" / "c")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_certificates(tmp_path_factory.mktemp("tls") / "certs", hosts=["127.0.0.1"])


def _copied(folder, to):
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
        (to / file.name).chmod(0o600)
    return to


@pytest.mark.parametrize(
    "harm, message",
    [
        (lambda c: (c / "client.pem").unlink(), "tls_cert: .*client.pem cannot be read: No such"),
        (lambda c: (c / "client-key.pem").chmod(0o640), "mode 0640.*chmod 600"),
        (lambda c: (c / "client-key.pem").chmod(0o604), "mode 0604"),
        (lambda c: (c / "ca.pem").write_text("nothing"), "tls_ca: .* no certificate in PEM"),
        (lambda c: (c / "worker-key.pem").replace(c / "client-key.pem"), "key values mismatch"),
        (lambda c: (c / "client-key.pem").write_text("nothing"), "not a certificate and its priv"),
        (lambda c: _encrypt(c / "client-key.pem"), "is encrypted; give a key without"),
    ],
)
def test_files_that_cannot_be_used_are_named(folder, tmp_path, harm, message):
    copy = _copied(folder, tmp_path / "c")
    harm(copy)
    with (
        pytest.raises(InputError, match=message),
        irt.connect(_section(copy, "tls://127.0.0.1:9")),
    ):
        pass


def test_a_key_of_root_may_be_readable_by_a_group(folder, tmp_path, monkeypatch):
    """So Kubernetes mounts a secret for a user who is not root."""
    if os.geteuid() != 0:
        pytest.skip("needs root: the key must be root's")
    copy = _copied(folder, tmp_path / "c")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (copy / "client-key.pem").chmod(0o440)
    _context(copy)
    for mode in (0o444, 0o660):
        (copy / "client-key.pem").chmod(mode)
        with pytest.raises(InputError, match=f"has mode {mode:04o}"):
            _context(copy)


def _encrypt(path):
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"word"),
        )
    )


def test_the_documentation_is_shown():
    assert "security     Security: " in CliRunner().invoke(docs, []).output
    assert "Use an authority for one cluster" in CliRunner().invoke(docs, ["security"]).output


# --- servers that are none ------------------------------------------------------------------------


@contextmanager
def _server(handle):
    """The address of a server of one connection, on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)

        def serve():
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(10)
                handle(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            thread.join(20)
            assert not thread.is_alive()


def _tls_server(folder, party):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{party}.pem", folder / f"{party}-key.pem")

    def handle(connection):
        try:
            with context.wrap_socket(connection, server_side=True) as encrypted:
                encrypted.sendall(b"hello")
        except OSError:
            pass  # the client went away: what is expected

    return _server(handle)


def test_a_server_with_the_certificate_of_a_client_is_not_believed(folder):
    with (
        _tls_server(folder, "client") as place,
        _fails("is not trusted .(unsuitable|unsupported) certificate purpose"),
    ):
        probe(f"tls://{place}", _context(folder), 30.0)
    for party in ("scheduler", "worker"):  # the same with other certificates: only these differ
        with _tls_server(folder, party) as place:
            probe(f"tls://{place}", _context(folder), 30.0)


def test_an_expired_certificate_is_not_believed(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "_BEFORE", datetime.timedelta(days=3))
    monkeypatch.setattr(certificates, "_FEWEST_DAYS", -1)
    old = write_certificates(tmp_path / "old", days=-1)
    with _tls_server(old, "scheduler") as place, _fails("is not trusted .certificate has expired"):
        probe(f"tls://{place}", _context(old), 30.0)


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
def test_a_server_that_says_nothing_is_not_waited_for_forever(folder, scheme):
    gone = threading.Event()
    context = None if scheme == "tcp" else _context(folder)
    with _server(lambda connection: gone.wait(10)) as place:
        with _fails("accepts connections but said nothing for 0.5 seconds"):
            probe(f"{scheme}://{place}", context, 0.5)
        gone.set()


@pytest.mark.parametrize(
    "scheme, message", [("tcp", "closed the connection"), ("tls", "does not speak TLS|broke off")]
)
def test_a_server_that_hangs_up_is_no_scheduler(folder, scheme, message):
    context = None if scheme == "tcp" else _context(folder)
    with _server(lambda connection: connection.recv(1)) as place, _fails(message):
        probe(f"{scheme}://{place}", context, 30.0)


# --- a cluster ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Certificates, and a scheduler and a worker started with the commands that are printed."""
    scratch = tmp_path_factory.mktemp("cluster")
    said = CliRunner().invoke(certs, [str(scratch / "certs"), "--host", "127.0.0.1"])
    assert said.exit_code == 0, said.output
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lines = [line.strip() for line in said.output.splitlines() if line.startswith("  dask ")]
    more = ["--host 127.0.0.1", "--host 127.0.0.1 --nworkers 1"]
    started = []
    try:
        for line, options in zip(lines, more, strict=True):
            for old, new in ((" 8786", f" {port}"), (":8786", f":{port}"), (":8787", ":0")):
                line = line.replace(old, new)
            words = shlex.split(line.replace("--nworkers auto", "") + " " + options)
            with open(scratch / f"{words[1]}.log", "wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", *words],
                    cwd=scratch,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a group of its own: nannies have children
                )
            started.append(process)
        toml = scratch / "certs" / "cluster.toml"
        toml.write_text(toml.read_text().replace("8786", str(port)))
        yield toml
    finally:
        for process in reversed(started):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


def _address(toml):
    return str(ClusterConfig.of(toml).address)


@pytest.mark.cluster
def test_a_fit_over_tls_has_the_same_bits(cluster, tmp_path, bits):
    responses = irt.simulate(2000, 8, store=tmp_path / "s", rows_per_block=1000)
    with irt.connect(cluster) as client:
        assert client.security.require_encryption
        seen = [client.scheduler.address, *client.nthreads()]
        fit = irt.fit_joint(responses, tolerance=1e-3)
    assert len(seen) == 2
    assert all(address.startswith("tls://127.0.0.1:") for address in seen)
    assert bits(fit) == bits(irt.fit_joint(responses, tolerance=1e-3))


@pytest.mark.cluster
def test_who_is_not_let_in(cluster, tmp_path):
    certs, address = cluster.parent, _address(cluster)
    with irt.connect(cluster):  # it is there, and lets the right one in
        pass
    foreign = write_certificates(tmp_path / "foreign")
    (foreign / "right-ca.pem").write_bytes((certs / "ca.pem").read_bytes())
    bare = ssl.create_default_context(cafile=certs / "ca.pem")
    bare.check_hostname = False
    with _fails("refuses this client .*certificate required"):
        probe(address, bare, 30.0)
    with (
        _fails("refuses this client .*unknown ca"),
        irt.connect(_section(foreign, address, ca="right-ca.pem")),
    ):
        pass
    with _fails("is not trusted"), irt.connect(_section(foreign, address)):
        pass
    with _fails("takes encrypted connections alone"), irt.connect(address.replace("tls", "tcp")):
        pass
    with _fails("needs tls_ca, tls_cert, tls_key", error=InputError), irt.connect(address):
        pass
    with irt.connect(cluster):  # and still does
        pass


@pytest.mark.cluster
def test_tls_to_a_scheduler_without(client, folder):
    address = client.scheduler.address.replace("tcp", "tls")
    with _fails("does not speak TLS"), irt.connect(_section(folder, address)):
        pass
    with irt.connect(client.scheduler.address) as plain:  # on loopback that is allowed
        assert plain.submit(sum, [1, 2]).result(timeout=60) == 3
