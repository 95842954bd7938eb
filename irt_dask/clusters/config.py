"""The ``[cluster]`` section of a TOML file, validated."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from dask.utils import parse_bytes
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from irt_dask.errors import InputError


class ClusterConfig(BaseModel):
    """How to reach workers.

    ``kind = "local"`` starts worker processes on this machine, one computing thread each, as many
    as the machine has cores unless ``workers`` says otherwise; ``memory`` bounds each worker (for
    example "4GB").  ``kind = "address"`` uses a running scheduler at ``address``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["local", "address"] = "local"
    workers: int | None = Field(default=None, ge=1)
    memory: str | None = None
    address: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> ClusterConfig:
        if self.kind == "address":
            if not self.address:
                raise ValueError('kind = "address" needs address = "tcp://host:port"')
            if self.workers or self.memory:
                raise ValueError("workers and memory belong to kind = \"local\"; a running "
                                 "scheduler has its own")  # fmt: skip
        if self.memory is not None and self.memory != "auto":
            try:
                parse_bytes(self.memory)
            except (ValueError, OverflowError):
                raise ValueError(f'memory = "{self.memory}" is no amount; write "4GB"') from None
        if self.kind == "local" and self.address:
            raise ValueError('address needs kind = "address"')
        return self

    @classmethod
    def of(cls, cluster: Any) -> ClusterConfig:
        """Make a configuration of nothing, a mapping, an address or the path of a TOML file."""
        if isinstance(cluster, cls):
            return cluster
        if cluster is None or cluster == "local":
            return cls()
        if isinstance(cluster, dict):
            return _validated(cluster, "cluster")
        text = str(cluster)
        if "://" in text:
            return cls(kind="address", address=text)
        path = Path(text)
        if path.suffix != ".toml":
            raise InputError(
                f"cluster {text!r}: give 'local', a scheduler's address (tcp://host:port) or the "
                f"path of a TOML file with a [cluster] section"
            )
        try:
            content = tomllib.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"the cluster file {path} cannot be read: {error}") from error
        if "cluster" not in content:
            raise InputError(f"the cluster file {path} has no [cluster] section")
        return _validated(content["cluster"], str(path))


def _validated(section: dict[str, Any], where: str) -> ClusterConfig:
    try:
        return ClusterConfig.model_validate(section)
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
