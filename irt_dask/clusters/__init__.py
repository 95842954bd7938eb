"""Where a run computes: one ``connect()`` for every kind of cluster."""

from irt_dask.clusters.checks import check_store, check_versions
from irt_dask.clusters.config import ClusterConfig
from irt_dask.clusters.connection import connect

__all__ = ["ClusterConfig", "check_store", "check_versions", "connect"]
