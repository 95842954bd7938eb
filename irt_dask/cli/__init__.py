"""The ``irt-dask`` command: parse, call, show."""

from irt_dask.cli.garbage import uncollected

with uncollected():
    from irt_dask.cli.main import main

__all__ = ["main"]
