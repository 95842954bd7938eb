"""A run: the stages from a response file to a report, in a directory that can be resumed."""

from irt_dask.workflow.config import RunConfig, read_config
from irt_dask.workflow.run import run
from irt_dask.workflow.scoring import ScoringConfig, read_scoring, score_store

__all__ = ["RunConfig", "ScoringConfig", "read_config", "read_scoring", "run", "score_store"]
