"""Scores from fits whose scale has the items' mean at 0, where abilities are what they are."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import irt_dask as irt
from irt_dask.errors import DataWarning

M, N = 15, 1500
G = np.random.default_rng(1)
THETA = G.normal(1.2, 1.6, N)
Y = (G.random((N, M)) < 1 / (1 + np.exp(np.linspace(-2, 2, M) - THETA[:, None]))).astype(np.int8)
R = irt.from_array(Y)

FITS = {
    "conditional": lambda: irt.fit_conditional(R),
    "spectral": lambda: irt.fit_spectral(R),
    "pairwise": lambda: irt.fit_pairwise(R),
    "joint": lambda: irt.fit_joint(R, model="1pl"),
}


@pytest.mark.parametrize("name", FITS)
def test_a_warning_says_that_abilities_are_drawn_to_0(name):
    """Plausible values under N(0, 1) have mean .74 and SD 1.2."""
    fit = FITS[name]()
    with pytest.warns(DataWarning, match="mean difficulty 0.*prior='population'"):
        wrong = irt.score(R, fit, n_plausible=2)["person_plausible_value"].values
    assert wrong.std() < 1.3
    right = irt.score(R, fit, n_plausible=2, prior="population")["person_plausible_value"].values
    assert right.mean() == pytest.approx(THETA.mean(), abs=0.15)
    assert right.std() == pytest.approx(THETA.std(), rel=0.08)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        irt.score(R, fit, method="ml")  # nobody's prior


def test_totals_and_adaptive_tests_say_it_too():
    fit = irt.fit_conditional(R)
    some = R.select(items=fit["item_id"].values[:8])
    said = "persons who are not N\\(0, 1\\) on their scale"
    with pytest.warns(DataWarning, match=said):
        found = irt.predict_total(some, fit)
    assert float(found["person_total"].mean()) < Y.mean() - 0.03
    with pytest.warns(DataWarning, match=said):
        irt.next_items(some.select(persons=np.arange(N) < 3), fit)
    with pytest.warns(DataWarning, match=said):
        irt.Session(fit)


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_files_remember(tmp_path, suffix):
    bank = irt.read_items(irt.write_items(irt.fit_conditional(R), tmp_path / f"bank.{suffix}"))
    with pytest.warns(DataWarning, match="prior='population'"):
        irt.score(R, bank)
    of_marginal = irt.fit_marginal(R, model="1pl", standard_errors=False)
    other = irt.read_items(irt.write_items(of_marginal, tmp_path / f"other.{suffix}"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        irt.score(R, other)
