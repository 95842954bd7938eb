"""A run: the stages from a response file to a report, in a directory that can be resumed."""

from irt_dask.workflow.config import RunConfig, read_config
from irt_dask.workflow.run import run

__all__ = ["RunConfig", "read_config", "run"]
