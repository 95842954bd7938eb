"""Encrypted connections in which both sides show a certificate of the same authority."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import stat
import time
from typing import Any

from irt_dask.errors import ClusterError, InputError

#: Dask's settings with which the HTTP servers of schedulers and workers, which cannot be left out,
#: have no page: logs, names of tasks and counts are for whoever may connect with a certificate.
NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
_RETRY = 0.2  # seconds
#: A TLS record of data, which no server expects before the handshake: it answers with an alert.
#: A plain scheduler waits for two bytes more, and does not mind that we go away.
_NO_HANDSHAKE = b"\x17\x03\x03\x00\x01\x00"
_ALERT = b"\x15\x03"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine whatever a name server says."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def client_security(ca: str, cert: str, key: str) -> Any:
    """The security of a client that shows ``cert`` and believes whom ``ca`` has signed.

    Raises
    ------
    InputError
        If a file is missing or is not what it should be, or the key is readable by others.
    """
    from distributed.security import Security

    for option, path in (("tls_ca", ca), ("tls_cert", cert), ("tls_key", key)):
        try:
            with open(path, "rb") as file:
                about = os.fstat(file.fileno())
        except OSError as error:
            raise InputError(f"{option}: {path} cannot be read: {error.strerror}") from error
        if option == "tls_key" and stat.S_IMODE(about.st_mode) & ~_allowed(about.st_uid):
            raise InputError(
                f"tls_key: the private key {path} has mode {stat.S_IMODE(about.st_mode):04o}, so "
                f"that others than its owner have access; make it 0600 (chmod 600 {path}), and "
                f"make new certificates if others may have read it"
            )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        raise InputError(f"tls_ca: {ca} holds no certificate in PEM format") from error

    def ask() -> str:
        raise InputError(f"tls_key: {key} is encrypted; give a key without a passphrase")

    try:
        context.load_cert_chain(cert, key, password=ask)
    except ssl.SSLError as error:
        raise InputError(
            f"tls_cert {cert} and tls_key {key} are not a certificate and its private key in PEM "
            f"format: {_reason(error)}"
        ) from error
    return Security(
        require_encryption=True, tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key
    )


def _allowed(owner: int) -> int:
    """Modes of a private key: 0600; 0640 if it is root's and we are not.

    A system administrator, or Kubernetes with a secret, can give a key to a user only like that.
    """
    return 0o640 if owner == 0 and os.geteuid() != 0 else 0o600


def probe(address: str, context: ssl.SSLContext | None, seconds: float) -> None:
    """Wait for a scheduler to answer, and see that it talks to us.

    Distributed waits without limit for a server that says nothing, whatever the timeout, and calls
    a refusal a closed connection.  Here errors say who refused whom.

    Parameters
    ----------
    address : of the scheduler.
    context : of our side; None for a connection that is not encrypted.
    seconds : how long to wait for a scheduler that does not answer yet.

    Raises
    ------
    ClusterError
        If nobody answers, either side refuses the other, or only one of them uses TLS.
    """
    from distributed.comm.addressing import parse_host_port

    host, port = parse_host_port(address)
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection = socket.create_connection((host, port), _left(deadline))
            break
        except OSError as error:
            if time.monotonic() + _RETRY > deadline:
                raise ClusterError(f"no Dask scheduler answers at {address}: {error}") from error
            time.sleep(_RETRY)
    with connection:
        try:
            connection.settimeout(_left(deadline))
            if context is None:
                _greeted_plainly(address, connection)
            else:
                _greeted(address, connection, context)
        except TimeoutError:
            raise ClusterError(
                f"{address} accepts connections but said nothing for {seconds:g} seconds: no Dask "
                f"scheduler, or one that hangs"
            ) from None


def _left(deadline: float) -> float:
    return max(0.01, deadline - time.monotonic())


def _greeted(address: str, connection: socket.socket, context: ssl.SSLContext) -> None:
    """Shake hands, and wait for a first byte: only after that does a server refuse a client."""
    try:
        encrypted = context.wrap_socket(connection)
    except ssl.SSLCertVerificationError as error:
        raise ClusterError(
            f"the server at {address} is not trusted ({error.verify_message}): its certificate "
            f"must be one of a scheduler, valid, and made with the authority in tls_ca"
        ) from error
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):
            raise _refused(address, _reason(error)) from error
        raise ClusterError(
            f"the server at {address} does not speak TLS ({_reason(error)}): start the scheduler "
            f"with --tls-ca-file, --tls-cert and --tls-key"
        ) from error
    except ConnectionError as error:
        raise ClusterError(
            f"the server at {address} broke off the TLS handshake ({error}): no Dask scheduler"
        ) from error
    with encrypted:
        try:
            if encrypted.recv(1):
                return
            why = "it closed the connection"
        except ssl.SSLError as error:
            why = _reason(error)
        except ConnectionError as error:
            why = str(error)
    raise _refused(address, why)


def _refused(address: str, why: str) -> ClusterError:
    return ClusterError(
        f"the scheduler at {address} refuses this client ({why}): tls_cert must be valid, and made "
        f"with the authority that the scheduler was started with"
    )


def _greeted_plainly(address: str, connection: socket.socket) -> None:
    """Wait for the first bytes, which a plain scheduler sends unasked; a TLS server is provoked."""
    try:
        connection.sendall(_NO_HANDSHAKE)
        head = connection.recv(3)
    except ConnectionError:
        head = b""
    if head[:2] == _ALERT:
        raise ClusterError(
            f"the scheduler at {address} takes encrypted connections alone: write its address as "
            f"tls://, with tls_ca, tls_cert and tls_key, in a [cluster] file"
        )
    if not head:
        raise ClusterError(f"the server at {address} closed the connection: no Dask scheduler")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
