"""Kernels over dense responses (persons x items, int8).

Each person's result depends on nothing but that person's row and the items: loops run over persons
and, within a person, over items in order, so the bits do not depend on how persons are grouped.
Another layout has one module with these same functions (:mod:`irt_dask.kernels.layouts`).
"""

from irt_dask.kernels.dense.counts import pair_counts, response_counts, responses_per_person
from irt_dask.kernels.dense.modes import axis_counts, modes
from irt_dask.kernels.dense.posterior import draw_counts, expectations, left_out

__all__ = [
    "axis_counts",
    "draw_counts",
    "expectations",
    "left_out",
    "modes",
    "pair_counts",
    "response_counts",
    "responses_per_person",
]
