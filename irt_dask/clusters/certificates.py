"""Certificates for one cluster: an authority of its own, and a key each for the three parties."""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from irt_dask.errors import InputError
from irt_dask.store.places import local_path

PORT = 8786
PARTIES = ("scheduler", "worker", "client")
_FEWEST_DAYS, _MOST_DAYS = 1, 3650
#: No local cluster is to outlive its certificates.
_LOCAL_DAYS = 3650
#: Clocks of machines differ: a certificate is valid from this long before it was made.
_BEFORE = datetime.timedelta(hours=1)
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def write_certificates(
    folder: str | os.PathLike[str], *, hosts: Sequence[str] = ("localhost",), days: int = 365
) -> Path:
    """Make a new authority, certificates for scheduler, worker and client, and ``cluster.toml``.

    The key of the authority is not written: afterwards nobody can make another certificate that
    the cluster accepts.  Scheduler and workers are servers and clients of each other; with the
    certificate of a client nobody can answer in their place.

    Parameters
    ----------
    folder : a folder that does not exist; made with mode 0700, the keys in it with 0600.
    hosts : names and addresses of the scheduler's host; the first stands in ``cluster.toml``.
    days : how long the certificates are valid.

    Raises
    ------
    InputError
        If the folder exists or cannot be made, or a host or the number of days cannot be used.
    """
    folder = local_path(folder, "a folder of certificates").absolute()
    if not _FEWEST_DAYS <= days <= _MOST_DAYS:
        raise InputError(f"days = {days} must be from {_FEWEST_DAYS} to {_MOST_DAYS}")
    files = _files(hosts, days)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        raise InputError(
            f"{folder} exists, and certificates are never overwritten; give a new folder"
        ) from None
    except OSError as error:
        raise InputError(f"the folder {folder} cannot be made: {error.strerror}") from error
    try:
        for name, content in files.items():
            mode = 0o600 if name.endswith("-key.pem") else 0o644
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with open(descriptor, "wb") as f:
                f.write(content)
    except BaseException:
        shutil.rmtree(folder)  # made above: nothing of the user's is in it
        raise
    return folder


def security_of(where: Callable[[str], str]) -> Any:
    """Security of a cluster whose three parties each show a certificate of their own.

    ``where`` gives for the name of a file, as ``write_certificates`` names them, its path or its
    content.
    """
    from distributed.security import Security

    files = {
        f"tls_{party}_{kind}": where(f"{party}{end}.pem")
        for party in PARTIES
        for kind, end in (("cert", ""), ("key", "-key"))
    }
    return Security(require_encryption=True, tls_ca_file=where("ca.pem"), **files)


def temporary_security() -> Any:
    """Certificates of one cluster on this machine, in the memory of its processes alone.

    They are those of ``write_certificates``, made in a millisecond; ``Security.temporary`` would
    take 50, and gives all parties one key, of a certificate that does not say what it is for.
    """
    files = _files(("localhost",), _LOCAL_DAYS)
    return security_of(lambda name: files[name].decode())


def commands(folder: Path, host: str) -> tuple[str, str]:
    """The commands that start the scheduler, and the workers of one machine.

    The dashboards, which have neither password nor encryption, are bound to loopback.
    """

    def tls(party: str) -> str:
        files = {"ca-file": "ca", "cert": party, "key": f"{party}-key"}
        return " ".join(
            f"--tls-{option} {shlex.quote(str(folder / f'{name}.pem'))}"
            for option, name in files.items()
        )

    return (
        f"dask scheduler --protocol tls --port {PORT} --dashboard-address 127.0.0.1:8787 "
        f"{tls('scheduler')}",
        f"dask worker {shlex.quote(_address(host))} --nworkers auto --nthreads 1 "
        f"--dashboard-address 127.0.0.1:0 {tls('worker')}",
    )


def _address(host: str) -> str:
    return f"tls://[{host}]:{PORT}" if ":" in host else f"tls://{host}:{PORT}"


def _files(hosts: Sequence[str], days: int) -> dict[str, bytes]:
    """Content of all files by name."""
    alternatives = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _name(f"authority {secrets.token_hex(4)}")  # no two have the same name
    # Path length 0: the holder of a certificate cannot act as an authority below this one.
    certificate = (
        _builder(authority, authority, authority_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    files = {"ca.pem": certificate.public_bytes(Encoding.PEM)}
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    for party in PARTIES:
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if party != "client":
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            _builder(_name(party), authority, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(issuer, critical=False)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        )
        if party == "scheduler":
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(authority_key, hashes.SHA256())
        files[f"{party}.pem"] = certificate.public_bytes(Encoding.PEM)
        files[f"{party}-key.pem"] = key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
    files["cluster.toml"] = (
        '[cluster]\nkind = "address"\n'
        f'address = "{_address(hosts[0])}"\n'
        'tls_ca = "ca.pem"\ntls_cert = "client.pem"\ntls_key = "client-key.pem"\n'
    ).encode()
    return files


def _name(party: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"irt_dask {party}")])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
              "encipher_only", "decipher_only")  # fmt: skip
    signs = {"key_cert_sign": signs_certificates, "crl_sign": signs_certificates}
    unused = dict.fromkeys(others, False)
    return x509.KeyUsage(digital_signature=not signs_certificates, **signs, **unused)


def _alternative(host: str) -> x509.GeneralName:
    """A host as it stands in a certificate."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not _HOST.fullmatch(host):
        raise InputError(
            f"host {host!r} must be a name such as node1.example.org or an IP address, without port"
        )
    return x509.DNSName(host)
