"""A run: the stages from a response file to a report, in a directory that can be resumed.

A name loads what it needs when it is first used: scoring needs none of the stages of a run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from irt_dask.workflow.config import RunConfig, read_config
    from irt_dask.workflow.inputs import is_small
    from irt_dask.workflow.running import run
    from irt_dask.workflow.scoring import ScoringConfig, read_scoring, score_store

_HOME = {
    "RunConfig": "config", "read_config": "config", "run": "running",
    "is_small": "inputs",
    "ScoringConfig": "scoring", "read_scoring": "scoring", "score_store": "scoring",
}  # fmt: skip

__all__ = [
    "RunConfig", "ScoringConfig", "is_small", "read_config", "read_scoring", "run", "score_store",
]  # fmt: skip


if not TYPE_CHECKING:  # a type checker would take any name for known

    def __getattr__(name: str) -> Any:
        """Load a name from its module (PEP 562)."""
        if name not in _HOME:
            raise AttributeError(f"module 'irt_dask.workflow' has no attribute {name!r}")
        return getattr(importlib.import_module(f"irt_dask.workflow.{_HOME[name]}"), name)
