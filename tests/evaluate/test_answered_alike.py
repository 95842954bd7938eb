"""Items to which all persons gave the same answer say nothing of how items go together."""

from __future__ import annotations

import numpy as np
import pytest
from items import bank, respond

import irt_dask as irt
from irt_dask.errors import ItemWarning


def test_items_that_all_have_right_are_in_no_pair():
    """Two of them had a correlation of .99: both residuals are what the model says of ability."""
    rng = np.random.default_rng(14)
    a, b = np.exp(rng.normal(0.0, 0.3, 6)), rng.normal(size=6)
    y = respond(rng, rng.standard_normal(200), a, -a * b)
    b[[1, 4]], y[:, [1, 4]] = -4.0, 1
    with pytest.warns(ItemWarning, match="2 of 6 items are in no pair: 1 .*same.; 4"):
        got = irt.residual_correlations(y, bank(a, b))
    assert got.sizes["pairs"] == got.attrs["n_pairs"] == 6
    assert np.abs(got["pair_q3"]).max() < 0.4
    assert not {"1", "4"} & {*got["pair_first"].values, *got["pair_second"].values}
