"""Draws of items by their errors: the errors that they were given, and nothing beyond bounds."""

import numpy as np
import pytest

import irt_dask as irt
from irt_dask.errors import InputError
from irt_dask.items.draws import item_draws
from irt_dask.items.sampled import sampled

QUIET = {"progress": False}
DRAWS = 4000  # errors of Monte Carlo of an SD are 1.1%


def fitted(model: str) -> object:
    more = {} if model in ("1pl", "2pl", "3pl") else {"categories": 4}
    simulated = irt.simulate(2000, 6, seed=3, model=model, **more)
    signs = {"positive": "none"} if model == "nominal" else {}
    return irt.fit_marginal(simulated, model=model, **signs, **QUIET)


@pytest.mark.filterwarnings("ignore::irt_dask.errors.IrtDaskWarning")
@pytest.mark.parametrize("model", ["1pl", "3pl", "graded", "gpcm", "nominal"])
def test_draws_have_the_errors_of_the_fit(model: str) -> None:
    """To first order: coordinates bend a few per cent of an SD (3PL, nominal)."""
    fit = fitted(model)
    drawn = sampled(fit, DRAWS, "items")
    for name in ("item_discrimination", "item_intercept", "item_guessing", "item_step_intercept"):
        if name in fit:
            sd, se = drawn[f"{name}_draw"].std("draw").values, fit[f"{name}_se"].values
            there = np.isfinite(se) & (se > 0.0)
            np.testing.assert_allclose(sd[there], se[there], rtol=0.08, err_msg=name)
    if model == "graded":
        assert (np.diff(drawn["item_step_intercept_draw"].values, axis=-1) < 0.0).all()
    if model == "3pl":
        assert drawn["item_guessing_draw"].values.min() > 0.0


def test_items_move_together_as_their_covariance_says() -> None:
    fit = fitted("2pl")
    drawn = sampled(fit, DRAWS, "items")["item_intercept_draw"].values
    at = np.flatnonzero(fit["parameter_column"].values == "d")
    want = fit["item_parameter_covariance"].values[np.ix_(at, at)]
    sd = np.sqrt(np.diag(want))
    correlation = want / np.outer(sd, sd)
    assert correlation[0, 1] > 0.1  # who was drawn is common to all
    np.testing.assert_allclose(np.corrcoef(drawn.T), correlation, atol=0.06)
    np.testing.assert_array_equal(sampled(fit, 3, "items")["item_intercept_draw"], drawn[:3])


def test_a_bank_in_a_file_has_errors_alone(tmp_path) -> None:
    fit = fitted("2pl")
    irt.write_items(fit, tmp_path / "bank.csv")
    bank = irt.read_items(tmp_path / "bank.csv")
    drawn = sampled(bank, DRAWS, "items")["item_discrimination_draw"]
    np.testing.assert_allclose(drawn.std("draw"), fit["item_discrimination_se"], rtol=0.08)
    assert abs(np.corrcoef(drawn.values[:, :2].T)[0, 1]) < 0.06
    kept = bank[["item_discrimination", "item_intercept"]]
    with pytest.raises(InputError, match="items carry no draws; give a posterior"):
        item_draws(kept, tuple(fit["item_id"].values), 3, option="n_item_draws")


@pytest.mark.filterwarnings("ignore::irt_dask.errors.IrtDaskWarning")
def test_fixed_items_are_known() -> None:
    first = fitted("2pl")
    bank = first.isel(items=[0, 1, 2])[["item_discrimination", "item_intercept"]]
    again = irt.fit_marginal(irt.simulate(1000, 6, seed=8), fixed_items=bank, **QUIET)
    apart = np.ptp(sampled(again, 20, "items")["item_intercept_draw"].values, axis=0)
    assert (apart[:3] == 0.0).all()
    assert (apart[3:] > 0.0).all()
