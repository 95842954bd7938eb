"""Lord's test of joint fits, whose standard errors take abilities as known."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import irt_dask as irt
from irt_dask.errors import ApproximationWarning


@pytest.mark.slow
def test_a_warning_says_that_errors_are_too_small():
    """Six data sets without DIF: 120 tests of slopes, some 21% of which have p < .05."""
    p = []
    for seed in range(6):
        fits = [
            irt.fit_joint(r, max_iterations=1000)
            for r in irt.simulate(1000, 20, seed=seed).split(0.5)
        ]
        with pytest.warns(ApproximationWarning, match="reference and focal.*fit_marginal"):
            p.append(irt.lord_dif(*fits)["item_lord_discrimination_p_value"].values)
    assert (np.array(p) < 0.05).mean() > 0.12


def test_of_marginal_fits_nothing_is_said():
    one, two = irt.simulate(1000, 8, seed=1).split(0.5)
    fits = irt.fit_marginal(one), irt.fit_marginal(two)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ApproximationWarning)
        irt.lord_dif(*fits)
    mixed = fits[0].assign_attrs(method="joint maximum likelihood")
    with pytest.warns(ApproximationWarning, match="errors of focal are"):
        irt.lord_dif(fits[1], mixed)
