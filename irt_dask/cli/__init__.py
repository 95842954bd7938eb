"""The ``irt-dask`` command: parse, call, show."""

from irt_dask.cli.garbage import collected_seldom

with collected_seldom():
    from irt_dask.cli.main import main

__all__ = ["main"]
