"""Plots of fits, and the report page: one HTML file that shows what was run and what came out.

:mod:`irt_dask.report.plots` draws single pictures, :func:`irt_dask.report.page.write_report` writes
the page.  Importing any of them does not import Matplotlib: the functions do, when they are called.
"""
