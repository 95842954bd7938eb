"""Arithmetic on arrays: the formulas of the package, each in one place.

Nothing here knows of dask, xarray, zarr, files or global random state.  Every sum over persons is
kept in integers of a fixed scale (:mod:`irt_dask.kernels.base.fixed_point`), so that it does not
depend on the order or the grouping of the persons.
"""
