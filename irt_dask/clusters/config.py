"""The ``[cluster]`` section of a TOML file, validated."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar

from dask.utils import parse_bytes
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from irt_dask.clusters.tls import is_loopback
from irt_dask.errors import InputError
from irt_dask.store.documents import from_toml
from irt_dask.store.places import is_url, local_path, placed, read_bytes

#: Files of a ``[cluster]`` section.
_TLS_FILES = ("tls_ca", "tls_cert", "tls_key")
_PATHS = (*_TLS_FILES, "log_directory")
#: Keys of ``kind = "address"`` alone.
_ADDRESS = ("address", *_TLS_FILES, "insecure")
#: Keys of ``kind = "slurm"`` alone.
_SLURM = (
    "walltime", "queue", "account", "job_extra_directives", "interface", "log_directory",
    "workers_per_job", "wait",
)  # fmt: skip
#: What SLURM reads as a time limit: minutes, hours:minutes:seconds, days-hours and so on.
_WALLTIME = r"(\d+-)?\d+(:\d\d){0,2}"
_WAIT = r"([1-9]\d*) ?(s|min|h)"
#: Values that become words of a job script.
_WORDS = ("queue", "account", "interface", "log_directory")

Model = TypeVar("Model", bound=BaseModel)


class ClusterConfig(BaseModel):
    """How to reach workers.

    ``kind = "local"`` starts worker processes on this machine, one computing thread each, as many
    as the machine has cores unless ``workers`` says otherwise; ``memory`` bounds each worker (for
    example "4GB").  Connections are encrypted, with certificates of this cluster alone;
    ``dashboard`` starts Dask's, which has no password.

    ``kind = "address"`` uses a running scheduler at ``address``: ``tls://`` with the files
    ``tls_ca``, ``tls_cert`` and ``tls_key``, or ``tcp://`` on loopback; elsewhere only with
    ``insecure = true``, because whoever reaches such a scheduler can run code on it.

    ``kind = "slurm"`` submits ``workers`` processes of one thread and ``memory`` each as jobs of
    ``workers_per_job`` processes (1) and at most ``walltime`` to the partition ``queue``, charged
    to ``account``, with further lines ``job_extra_directives`` for sbatch.  The scheduler runs in
    the calling process; both sides use the network ``interface``, or the one that the machine's
    routes suggest.  ``log_directory`` (``slurm-logs``), on a file system that all nodes share,
    takes the jobs' logs and, while they run, the workers' certificate.  ``wait`` bounds the time
    until the first worker is there.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["local", "address", "slurm"] = "local"
    workers: int | None = Field(default=None, ge=1)
    memory: str | None = None
    dashboard: bool = False
    address: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    walltime: str | None = None
    queue: str | None = None
    account: str | None = None
    job_extra_directives: list[str] = []
    interface: str | None = None
    log_directory: str = "slurm-logs"
    workers_per_job: int = Field(default=1, ge=1)
    wait: str = "10min"

    @model_validator(mode="after")
    def _consistent(self) -> ClusterConfig:
        if self.kind == "address":
            if not self.address:
                raise ValueError('kind = "address" needs address = "tls://host:port"')
            if self.workers or self.memory:
                raise ValueError("workers and memory belong to kind = \"local\"; a running "
                                 "scheduler has its own")  # fmt: skip
        if self.memory is not None and self.memory != "auto":
            try:
                parse_bytes(self.memory)
            except (ValueError, OverflowError):
                raise ValueError(f'memory = "{self.memory}" is no amount; write "4GB"') from None
        if self.kind != "local" and self.dashboard:
            raise ValueError('dashboard = true needs kind = "local"')
        given = ", ".join(k for k in _ADDRESS if getattr(self, k))
        if self.kind != "address" and given:
            made = '; with kind = "slurm" scheduler and certificates are made for each run'
            more = made if self.kind == "slurm" else ""
            raise ValueError(f'{given} needs kind = "address"{more}')
        for key in _PATHS:
            if is_url(getattr(self, key)):
                raise ValueError(f"{key} must be a path on a file system, not a URL")
        return self

    @model_validator(mode="after")
    def _jobs(self) -> ClusterConfig:
        if self.kind != "slurm":
            if given := ", ".join(k for k in _SLURM if k in self.model_fields_set):
                raise ValueError(f'{given} needs kind = "slurm"')
            return self
        missing = [k for k in ("workers", "memory", "walltime") if getattr(self, k) is None]
        if missing or self.memory == "auto" or not parse_bytes(str(self.memory)):
            raise ValueError(
                f'kind = "slurm" needs {", ".join(missing) or "an amount of memory"}: the jobs ask '
                f'for them; for example workers = 16, memory = "4GB", walltime = "02:00:00"'
            )
        if self.workers % self.workers_per_job:  # type: ignore[operator]
            raise ValueError(
                f"workers = {self.workers} must be a multiple of workers_per_job = "
                f"{self.workers_per_job}"
            )
        for key, form, example in (
            ("walltime", _WALLTIME, "02:00:00"), ("wait", _WAIT, "10min")
        ):  # fmt: skip
            value = getattr(self, key)
            if not re.fullmatch(form, value):
                raise ValueError(f'{key} = "{value}" is no length of time; write "{example}"')
        for key in _WORDS:
            value = getattr(self, key)
            if value is not None and not re.fullmatch(r"\S+", value):
                raise ValueError(
                    f'{key} = "{value}" becomes a word of a job script; give it without blanks'
                )
        for line in self.job_extra_directives:
            if not line.startswith("-") or not line.isprintable():
                raise ValueError(
                    f'job_extra_directives: {line!r} is no option of sbatch; write "--qos=long"'
                )
        return self

    def wait_seconds(self) -> float:
        """``wait`` as a number."""
        number, unit = re.fullmatch(_WAIT, self.wait).groups()  # type: ignore[union-attr]
        return int(number) * {"s": 1.0, "min": 60.0, "h": 3600.0}[unit]

    @model_validator(mode="after")
    def _safe(self) -> ClusterConfig:
        """Refuse a connection over a network on which anybody could be at the other end."""
        if self.address is None:
            return self
        from distributed.comm.addressing import parse_address, parse_host_port

        if "@" in self.address:
            raise ValueError(
                "address must be tls://host:port or tcp://host:port, without user and password: "
                "certificates say who connects"
            )
        try:
            scheme, place = parse_address(self.address, strict=True)
            host = "" if scheme == "inproc" else parse_host_port(place)[0]
        except ValueError:
            raise ValueError(
                f'address = "{self.address}" must be tls://host:port or tcp://host:port'
            ) from None
        if scheme not in ("tls", "tcp", "inproc"):
            raise ValueError(f'address = "{self.address}" must begin with tls:// or tcp://')
        missing = [k for k in _TLS_FILES if not getattr(self, k)]
        if scheme == "tls" and missing:
            raise ValueError(
                f"{self.address} needs {', '.join(missing)}: both sides of the connection show a "
                f"certificate. 'irt-dask certs' makes them, and a [cluster] file that names them"
            )
        if scheme != "tls" and len(missing) < len(_TLS_FILES):
            raise ValueError(f"certificates belong to a tls:// address, not to {self.address}")
        if scheme == "tls" and self.insecure:
            raise ValueError(f"insecure = true belongs to tcp://, not to {self.address}")
        if scheme == "tcp" and not (self.insecure or is_loopback(host)):
            raise ValueError(
                f"{self.address} is not on loopback, and tcp:// has neither encryption nor "
                f"password: who reaches the scheduler can run code on it, and who answers in its "
                f"place on this machine. Use tls:// ('irt-dask certs' makes the certificates), or "
                f"write insecure = true in a [cluster] file if all of the network is trusted"
            )
        return self

    @classmethod
    def of(cls, cluster: Any) -> ClusterConfig:
        """Make a configuration of nothing, a mapping, an address or the path of a TOML file."""
        if isinstance(cluster, cls):
            return cluster
        if cluster is None or cluster == "local":
            return cls()
        if isinstance(cluster, dict):
            return validated(cls, cluster, "cluster")
        text = str(cluster)
        if "://" in text or ("@" in text and not text.endswith(".toml")):
            return validated(cls, {"kind": "address", "address": text}, "cluster")
        path = local_path(cluster if isinstance(cluster, Path) else text, "a cluster file")
        if path.suffix != ".toml":
            raise InputError(
                f"cluster {text!r}: give 'local', a scheduler's address (tcp://127.0.0.1:port) or "
                f"the path of a TOML file with a [cluster] section"
            )
        try:
            content = from_toml(read_bytes(path))
        except (OSError, ValueError) as error:
            raise InputError(f"the cluster file {path} cannot be read: {error}") from error
        if "cluster" not in content:
            raise InputError(f"the cluster file {path} has no [cluster] section")
        return validated(cls, located(content["cluster"], path.resolve().parent), str(path))


def located(section: Any, folder: Path, keys: Iterable[str] = _PATHS) -> Any:
    """The section of a file in ``folder`` with paths that do not depend on where we are."""
    if not isinstance(section, dict):
        return section
    paths = {k: placed(folder, section[k]) for k in keys if isinstance(section.get(k), str)}
    return section | paths


def validated(model: type[Model], content: Any, where: str) -> Model:
    """The configuration that a file's content is; InputError names ``where``, key and value."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{where}: {explain(error)}") from None


def explain(error: ValidationError) -> str:
    """Say in a line each what a validation found: the key, the value and the rule."""
    lines = []
    for e in error.errors():
        key = ".".join(str(part) for part in e["loc"]) or "the section"
        if e["type"] == "extra_forbidden":
            lines.append(f"unknown key {key!r}")
        else:
            given = "" if isinstance(e["input"], dict) else f" (given {e['input']!r})"
            lines.append(f"{key}: {e['msg'].removeprefix('Value error, ')}{given}")
    return "; ".join(lines)
