"""The one loop of the package: the only code that builds task graphs.

A method gives a *person step* (a function of a block and of small arguments) and an *item step*
(what it does with the reduced result).  :class:`Engine` runs the person step over all blocks, on a
Dask cluster or in the threads of this process, with the same bits either way.
"""

from irt_dask.engine.chains import Chain, run_chains
from irt_dask.engine.checkpoint import Checkpoint
from irt_dask.engine.core import Engine
from irt_dask.engine.inputs import as_responses, refuse_graded, refuse_weights
from irt_dask.engine.progress import ProgressOption
from irt_dask.engine.results import dataset

__all__ = [
    "Chain",
    "Checkpoint",
    "Engine",
    "ProgressOption",
    "as_responses",
    "dataset",
    "refuse_graded",
    "refuse_weights",
    "run_chains",
]
