"""The ``irt-dask`` command: parse, call, show."""

from irt_dask.cli.main import main

__all__ = ["main"]
