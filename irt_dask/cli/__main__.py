"""``python -m irt_dask.cli``: the same as ``irt-dask``."""

from irt_dask.cli import main

main()
