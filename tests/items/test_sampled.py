"""Draws of items by their errors: the errors that they were given, and nothing beyond bounds."""

import numpy as np
import pytest
import xarray as xr

import irt_dask as irt
from irt_dask.errors import DataWarning, InputError
from irt_dask.items.draws import item_draws
from irt_dask.items.sampled import sampled
from irt_dask.kernels.base import keyed_random

QUIET = {"progress": False}
DRAWS = 4000  # errors of Monte Carlo of an SD are 1.1%


def fitted(model: str) -> object:
    more = {} if model in ("1pl", "2pl", "3pl") else {"categories": 4}
    simulated = irt.simulate(2000, 6, seed=2, model=model, **more)
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


@pytest.mark.parametrize(
    ("values", "errors"),
    [
        ({"item_discrimination": 0.2}, {"item_discrimination": 2.0}),
        ({"item_guessing": 0.01}, {"item_guessing": 0.2}),
        (
            {"item_guessing": 0.6, "item_upper_asymptote": 0.65},
            {"item_guessing": 0.1, "item_upper_asymptote": 0.1},
        ),
        ({"item_guessing": 0.0, "item_upper_asymptote": 0.9}, {"item_guessing": 0.02}),
    ],
)
def test_what_is_far_from_known_stays_an_item(values, errors) -> None:
    """Where the first order says nothing: no draw is beyond a bound, nor absurd."""
    one = {"item_discrimination": 1.0, "item_intercept": 0.3} | values
    data = {name: ("items", [v, v]) for name, v in one.items()}
    all_errors = {"item_discrimination": 0.1, "item_intercept": 0.1} | errors
    data |= {f"{name}_se": ("items", [v, v]) for name, v in all_errors.items()}
    bank = xr.Dataset(data, coords={"item_id": ("items", ["i0", "i1"])}, attrs={"model": "4pl"})
    drawn = sampled(bank, 300, "items")
    sets = item_draws(bank, ("i0", "i1"), 300, option="n_item_draws")
    assert len(sets) == 300
    name = "item_discrimination_draw"  # how many are asked for changes none
    np.testing.assert_array_equal(sampled(bank, 3, "items")[name], drawn[name][:3])
    assert drawn["item_discrimination_draw"].values.max() < 12.0
    if "item_guessing" in values:
        c = drawn["item_guessing_draw"].values
        assert (c.max() < 0.9) & (c.min() >= 0.0)


def test_draws_do_not_depend_on_how_equal_errors_are_told_apart() -> None:
    """With all errors alike any rotation is a root; the symmetric one moves each by its own."""
    ids = [f"i{j}" for j in range(5)]
    data = {"item_discrimination": np.ones(5), "item_intercept": np.zeros(5)}
    data |= {"item_discrimination_se": np.full(5, 0.1), "item_intercept_se": np.full(5, 0.1)}
    bank = xr.Dataset(
        {k: ("items", v) for k, v in data.items()}, coords={"item_id": ("items", ids)}
    )
    z = keyed_random.generator(0, "items", 0, 0).standard_normal(10)  # slopes, then intercepts
    drawn = sampled(bank, 1, "items")["item_intercept_draw"].values
    np.testing.assert_allclose(drawn[0], 0.1 * z[5:], rtol=1e-12)


def test_items_without_errors_are_known_and_named() -> None:
    fit = fitted("2pl").drop_vars(["item_parameter_covariance"])
    for name in ("item_discrimination", "item_intercept", "item_difficulty"):
        fit[f"{name}_se"] = fit[f"{name}_se"].where(np.arange(6) != 2)
    with pytest.warns(DataWarning, match="1 of 6 items have no standard error.*item3"):
        drawn = sampled(fit, 10, "items")
    apart = np.ptp(drawn["item_intercept_draw"].values, axis=0)
    assert (apart == 0.0).tolist() == [j == 2 for j in range(6)]
    none = fit.assign({n: fit[n] * np.nan for n in fit if str(n).endswith("_se")})
    with pytest.raises(InputError, match="no standard errors to draw by"):
        sampled(none, 10, "items")


@pytest.mark.filterwarnings("ignore::irt_dask.errors.IrtDaskWarning")
def test_items_with_categories_that_nobody_has() -> None:
    y = irt.simulate(800, 4, seed=2, model="gpcm", categories=4).to_xarray()["response"].values
    y[:, 1][y[:, 1] == 2] = 3
    r = irt.from_array(y, categories=4)
    fit = irt.fit_marginal(r, model="gpcm", null_categories="keep", **QUIET)
    drawn = sampled(fit, 500, "items")["item_step_intercept_draw"].std("draw").values
    se = fit["item_step_intercept_se"].values
    assert (np.isnan(drawn) == np.isnan(se)).all()
    np.testing.assert_allclose(drawn[np.isfinite(se)], se[np.isfinite(se)], rtol=0.15)


def test_a_covariance_with_nan_is_an_error() -> None:
    fit = fitted("2pl")
    broken = fit["item_parameter_covariance"].values.copy()
    broken[0, 0] = np.nan
    with pytest.raises(InputError, match="covariance of the parameters has NaN"):
        sampled(fit.assign(item_parameter_covariance=fit["item_parameter_covariance"].copy(
            data=broken)), 3, "items")  # fmt: skip
