"""The reliability of maximum likelihood estimates, of which some are at a bound."""

from __future__ import annotations

import numpy as np
import pytest

import irt_dask as irt


@pytest.mark.parametrize("rows", [None, 700])
def test_bounds_do_not_make_a_short_test_reliable(rows):
    """A quarter of the persons has all five items right or wrong, and ability -6 or 6."""
    r = irt.simulate(3000, 5, seed=2)
    y, theta = r.to_xarray()["response"].values, r.truth["person_ability"].values
    fit = irt.fit_marginal(r, standard_errors=False)
    found = irt.score(irt.from_array(y, item_id=r.item_id, rows_per_block=rows), fit, method="ml")
    x, se = found["person_ability"].values, found["person_ability_se"].values
    inside = np.isfinite(se)
    assert found.attrs["n_at_bound"] == (~inside).sum() > 500
    wanted = 1.0 - (se[inside] ** 2).mean() / x[inside].var()
    assert found.attrs["reliability"] == pytest.approx(wanted, abs=1e-6)
    assert found.attrs["reliability"] < np.corrcoef(x, theta)[0, 1] ** 2 < 0.5


def test_as_many_persons_as_frequencies_say():
    r = irt.simulate(400, 6, seed=3)
    y, fit = r.to_xarray()["response"].values, irt.fit_marginal(r, standard_errors=False)
    times = np.random.default_rng(1).integers(1, 4, 400)
    rows = irt.from_array(y, item_id=r.item_id, persons={"weight": times}, weight_kind="frequency")
    found, every = (
        irt.score(x, fit, method="ml").attrs["reliability"]
        for x in (rows, irt.from_array(np.repeat(y, times, axis=0), item_id=r.item_id))
    )
    assert found == pytest.approx(every, abs=1e-9)
