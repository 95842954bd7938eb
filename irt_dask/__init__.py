"""irt_dask: item response theory at scale.

``import irt_dask as irt`` is light: a name loads what it needs when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

# These functions are named like the module they live in.  Importing them here, once, keeps the name
# for the function: a later import of the module no longer touches it.  The modules are light.
from irt_dask._version import __version__ as __version__
from irt_dask.evaluate import evaluate as evaluate
from irt_dask.ingest import append as append
from irt_dask.ingest import ingest as ingest
from irt_dask.score import score as score
from irt_dask.simulate import simulate as simulate

_HOME = {
    "ApproximationWarning": "errors",
    "ConvergenceWarning": "errors",
    "DataWarning": "errors",
    "InputError": "errors",
    "IrtDaskError": "errors",
    "StoreError": "errors",
    "ItemPrior": "models",
    "Responses": "store",
    "from_array": "store",
    "open_responses": "store",
    "load_lsat": "datasets",
    "Coreset": "calibrate.coreset",
    "coreset_complexity": "calibrate.complexity",
    "draw_coreset": "calibrate.drawn",
    "fit_joint": "calibrate.joint",
    "pair_counts": "calibrate.spectral",
    "fit_spectral": "calibrate.spectral",
    "fit_bayes": "calibrate.gibbs",
    "read_items": "banks",
    "write_items": "banks",
    "connect": "clusters",
    "plot": "report.plots",
}

__all__ = sorted([*_HOME, "append", "evaluate", "ingest", "score", "simulate"])


def __getattr__(name: str) -> Any:
    """Load a public name from its module (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'irt_dask' has no attribute {name!r}")
    module = importlib.import_module(f"irt_dask.{_HOME[name]}")
    value = module if name == "plot" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
