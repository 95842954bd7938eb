"""Row sums and eigenvector of the matrix of ratios, against consistent counts and plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from items import rasch
from parts import csr_of

import irt_dask as irt
from irt_dask.calibrate.rasch import ratio_matrices
from irt_dask.errors import ConvergenceWarning, EstimationError, InputError

FITS = [irt.fit_choppin, irt.fit_saaty]
B = np.linspace(-1.5, 1.5, 9)


def ratios(y):
    """D_ij = Y_ji / Y_ij, one pair at a time."""
    m = y.shape[1]
    d = np.ones((m, m))
    for i in range(m):
        for j in range(m):
            if i != j:
                d[i, j] = ((y[:, j] == 1) & (y[:, i] == 0)).sum() / (
                    (y[:, i] == 1) & (y[:, j] == 0)
                ).sum()
    return d


@pytest.mark.parametrize("fit", FITS)
def test_consistent_counts_give_the_difficulties(fit):
    """Y_ij = s_ij e^{b_j} with any symmetric s: every ratio is right."""
    rng = np.random.default_rng(1)
    k = np.array([1, 2, 3, 7, 50, 400])
    s = rng.integers(1, 1000, (6, 6))
    count = (s + s.T) * k
    np.fill_diagonal(count, 0)
    counts = xr.Dataset(
        {"pair_count": (("items", "items_"), count)},
        coords={"item_id": ("items", [f"q{j}" for j in range(6)])},
        attrs={"n_persons": 10},
    )
    b = np.log(k) - np.log(k).mean()
    result = fit(counts)
    np.testing.assert_allclose(result["item_difficulty"], b, atol=1e-12)
    assert list(result["item_id"].values) == [f"q{j}" for j in range(6)]
    assert result.attrs["converged"] == 1
    assert result.attrs["n_persons"] == 10
    if fit is irt.fit_saaty:
        assert result.attrs["eigenvalue"] == pytest.approx(6.0, rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_plain_numpy_finds_the_same(seed):
    y = rasch(seed, 600, B, 0.2)
    d = ratios(y)
    row = np.log(d).sum(axis=1) / 9
    np.testing.assert_allclose(irt.fit_choppin(y)["item_difficulty"], row, atol=1e-12)
    values, vectors = np.linalg.eig(d)
    leading = values.real.argmax()
    beta = np.log(np.abs(vectors[:, leading].real))
    fit = irt.fit_saaty(y)
    np.testing.assert_allclose(fit["item_difficulty"], beta - beta.mean(), atol=1e-11)
    assert fit.attrs["eigenvalue"] == pytest.approx(values.real[leading], rel=1e-12)
    assert fit.attrs["eigenvalue"] >= 9


@pytest.mark.parametrize("fit", FITS)
def test_difficulties_are_estimated(fit):
    """Consistency: 200,000 persons; standard errors are about 0.01, the limit is six of them."""
    r = irt.simulate(200_000, 8, model="1pl", seed=6)
    b = r.truth["item_difficulty"].values
    np.testing.assert_allclose(fit(r)["item_difficulty"], b - b.mean(), atol=0.06)


@pytest.mark.parametrize("fit", FITS)
def test_blocks_layout_pair_counts_and_processes_do_not_matter(fit, client, bits):
    y = rasch(7, 600, B, 0.2)
    whole = bits(fit(y))
    s = csr_of(y)
    assert bits(fit(irt.from_array(y, rows_per_block=17))) == whole
    assert bits(fit(irt.from_array(s, observed="stored", rows_per_block=41))) == whole
    assert bits(fit(irt.pair_counts(y))) == whole
    assert bits(fit(irt.from_array(y, rows_per_block=80), client=client)) == whole


@pytest.mark.parametrize("fit", FITS)
def test_a_pair_without_anybody_is_an_error_that_names_it(fit):
    y = rasch(8, 600, B, 0.2)
    y[(y[:, 2] == 1) & (y[:, 5] == 0), 2] = 0
    r = irt.from_array(y, item_id=[f"q{j}" for j in range(9)])
    with pytest.raises(
        EstimationError, match=rf"{fit.__name__} needs.*1 pair\(s\).*q2, q5: use fit_spectral"
    ):
        fit(r)


@pytest.mark.parametrize("fit", FITS)
def test_refusals(fit):
    y = rasch(9, 600, B, 0.2)
    with pytest.raises(InputError, match=f"{fit.__name__} does not support person weights"):
        fit(irt.from_array(y, persons={"weight": np.ones(600)}))
    with pytest.raises(EstimationError, match="at least two items"):
        fit(y[:, :1])


def test_power_method_that_stops_early_warns(monkeypatch):
    monkeypatch.setattr(ratio_matrices, "_MAX_STEPS", 2)
    with pytest.warns(ConvergenceWarning, match="in 2 steps: the eigenvalue lies between 9.*and 9"):
        fit = irt.fit_saaty(rasch(10, 600, B, 0.2))
    assert fit.attrs["converged"] == 0
