"""Plausible values and posteriors of several domains under a conditioning model."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import irt_dask as irt
from irt_dask.errors import IrtDaskWarning
from irt_dask.population.conditioning_used import _center, drawn, used

N, PER = 2000, 8


def _data(dims: int, n: int = N, seed: int = 5) -> tuple[Any, Any, Any, Any, Any]:
    """Responses of abilities that a covariate explains in part, items, domains, and the truth."""
    rng = np.random.default_rng([61, seed])
    m = PER * dims
    ids, of = [f"item {j}" for j in range(m)], np.arange(m) % dims
    a, d = rng.uniform(0.8, 1.6, m), rng.normal(size=m)
    x = rng.normal(size=n)
    residual = 0.35 + 0.25 * np.eye(dims)
    theta = 0.6 * x[:, None] + rng.multivariate_normal(np.zeros(dims), residual, n)
    y = (rng.random((n, m)) < 1.0 / (1.0 + np.exp(-(a * theta[:, of] + d)))).astype(np.int8)
    bank = xr.Dataset(
        {"item_discrimination": ("items", a), "item_intercept": ("items", d)},
        coords={"item_id": ("items", ids)}, attrs={"model": "2pl"},
    )  # fmt: skip
    domains = {f"d{k}": [i for i, q in zip(ids, of, strict=True) if q == k] for k in range(dims)}
    return y, x, bank, domains, theta


@functools.cache
def fitted(dims: int = 2) -> tuple[Any, ...]:
    y, x, bank, domains, theta = _data(dims)
    r = irt.from_array(y, item_id=bank.item_id.values, persons={"x": x})
    return r, bank, irt.fit_population(r, bank, covariates="x", domains=domains), x, theta


@pytest.mark.slow
def test_values_spread_as_posteriors_say() -> None:
    """Of 200 values: means within 5 standard errors of the EAPs for all but a few, covariances."""
    r, bank, population, _, _ = fitted()
    scores = irt.score(r, bank, prior=population, n_plausible=200, seed=2)
    values = scores["person_domain_plausible_value"].values
    eap, sd = (scores[f"person_domain_ability{e}"].values for e in ("", "_sd"))
    z = (values.mean(axis=1) - eap) / (sd / np.sqrt(200))
    assert np.abs(z).max() < 6.0
    assert 0.9 < z.std() < 1.15  # coefficients are drawn too: all persons move together a little
    assert np.abs(values.std(axis=1) / sd - 1.0).mean() < 0.06
    r_of = np.array([np.corrcoef(v.T)[0, 1] for v in values])
    assert np.abs(np.mean(r_of - scores["person_domain_correlation"].values[:, 0, 1])) < 0.01


@pytest.mark.slow
def test_regressions_on_values_are_unbiased_and_without_conditioning_they_are_not() -> None:
    """The slope is .6; a prior that leaves the covariate out draws it towards 0 by a fifth."""
    r, bank, population, x, theta = fitted()
    values = irt.score(r, bank, prior=population, n_plausible=10, seed=3)
    pv = values["person_domain_plausible_value"].values

    def slope(v: Any) -> float:
        return float(np.polyfit(x, v, 1)[0])

    for d in range(2):
        found = np.mean([slope(pv[:, k, d]) for k in range(10)])
        assert abs(found - slope(theta[:, d])) < 0.06
        one = r.select(items=[f"item {j}" for j in range(d, 16, 2)])
        plain = irt.score(one, bank, prior="population", n_plausible=10, seed=3)
        v = plain["person_plausible_value"].values
        assert np.mean([slope(v[:, k]) for k in range(10)]) < 0.85 * found
    both = np.mean([np.corrcoef(pv[:, k].T)[0, 1] for k in range(10)])
    assert abs(both - np.corrcoef(theta.T)[0, 1]) < 0.04


def test_parameters_are_drawn_as_wide_as_their_errors() -> None:
    """2,000 draws: SDs within 8%."""
    r, bank, population, _, _ = fitted()
    models = drawn(used(population, bank, r), 1, 2000)
    original = used(population, bank, r).model.design.original()
    b = np.stack([original @ m.coefficients[0] for m in models])
    np.testing.assert_allclose(
        b.std(axis=0), population["regression_coefficient_se"].values[0], rtol=0.08
    )
    np.testing.assert_allclose(
        b.mean(axis=0), population["regression_coefficient"].values[0], atol=0.004
    )
    sd = np.stack([np.sqrt(np.diag(m.covariance[0])) for m in models])
    ratio = sd.std(axis=0) / population["residual_sd_se"].values[0]
    assert (np.abs(ratio - 1.0) < 0.08).all()
    of = used(population, bank, r)
    center = _center(of.model.covariance[0], of.spreads[0], of.bases[0].n / r.n_persons)
    np.testing.assert_allclose(sd.mean(axis=0), np.sqrt(np.diag(center)), rtol=0.005)


def test_composites_are_sums_of_domains() -> None:
    r, bank, population, _, _ = fitted()
    scores = irt.score(
        r, bank, prior=population, n_plausible=3, composites={"all": {"d0": 0.25, "d1": 0.75}}
    )
    assert scores["scale"].values.tolist() == ["d0", "d1", "all"]
    for name in ("person_domain_ability", "person_domain_plausible_value"):
        v = scores[name].values
        np.testing.assert_allclose(v[..., 2], 0.25 * v[..., 0] + 0.75 * v[..., 1])
    sd = scores["person_domain_ability_sd"].values
    rho = scores["person_domain_correlation"].values[:, 0, 1]
    w = sd[:, :2] * [0.25, 0.75]
    variance = w[:, 0] ** 2 + w[:, 1] ** 2 + 2.0 * rho * w[:, 0] * w[:, 1]
    np.testing.assert_allclose(sd[:, 2] ** 2, variance)


def test_a_folder_holds_the_same_and_is_kept(tmp_path: Path) -> None:
    y, x, bank, _, _ = _data(2)
    _, _, population, _, _ = fitted()
    r = irt.from_array(y, item_id=bank.item_id.values, persons={"x": x}, rows_per_block=700)
    options = {"prior": population, "n_plausible": 2, "seed": 4}
    there = irt.score(r, bank, store=tmp_path / "scores", **options)
    assert (there.attrs["n_blocks_scored"], there.attrs["n_blocks_kept"]) == (3, 0)
    again = irt.score(r, bank, store=tmp_path / "scores", **options)
    assert (again.attrs["n_blocks_scored"], again.attrs["n_blocks_kept"]) == (0, 3)
    table = pd.read_parquet(tmp_path / "scores")
    assert table.columns.tolist() == [
        "person_id", "person_ability_d0", "person_ability_sd_d0", "person_ability_d1",
        "person_ability_sd_d1", "person_ability_correlation_d0_d1", "n_responses", "sum_score",
        "pv1_d0", "pv1_d1", "pv2_d0", "pv2_d1",
    ]  # fmt: skip
    memory = irt.score(r, bank, **options)
    np.testing.assert_array_equal(
        table[["pv2_d0", "pv2_d1"]], memory["person_domain_plausible_value"].values[:, 1]
    )
    published = irt.tabulate(tmp_path / "scores", "pv*_d0", statistics="mean")
    assert published["estimate"][0] == pytest.approx(table[["pv1_d0", "pv2_d0"]].to_numpy().mean())
    irt.score(r, bank, store=tmp_path / "scores", **{**options, "seed": 5})
    other = pd.read_parquet(tmp_path / "scores")
    assert (other["pv1_d0"] != table["pv1_d0"]).all()


def test_draws_of_items_are_taken_and_the_model_fitted_again_to_each() -> None:
    r, bank, population, x, _ = fitted()
    rng = np.random.default_rng(8)
    shift = np.linspace(-0.5, 0.5, 4)  # all items easier from draw to draw
    noise = rng.normal(0.0, 0.01, (4, bank.sizes["items"]))
    drawn_bank = bank.assign(
        item_discrimination_draw=(("draw", "items"), np.tile(bank.item_discrimination, (4, 1))),
        item_intercept_draw=(
            ("draw", "items"),
            bank.item_intercept.values + shift[:, None] * bank.item_discrimination.values + noise,
        ),
    )
    scores = irt.score(r, drawn_bank, prior=population, n_plausible=4, seed=1)
    assert scores.attrs["n_item_draws"] == 4
    means = scores["person_domain_plausible_value"].values.mean(axis=0)
    np.testing.assert_allclose(means - means.mean(axis=0), -np.stack([shift] * 2, 1), atol=0.09)
    known = irt.score(r, drawn_bank, prior=population, n_plausible=4, seed=1, n_item_draws=0)
    plain = irt.score(r, bank, prior=population, n_plausible=4, seed=1)
    name = "person_domain_plausible_value"
    np.testing.assert_array_equal(known[name], plain[name])
    y = r.to_xarray()["response"].values.astype(float)
    y[0, 0] = 1.0 - y[0, 0]
    changed = irt.from_array(y, item_id=bank.item_id.values, persons={"x": x})
    for others in (r.select(persons=np.arange(500)), changed):
        with pytest.raises(irt.InputError, match="fitted to other responses"):
            irt.score(others, drawn_bank, prior=population, n_plausible=4)


@pytest.mark.slow
def test_six_domains_run() -> None:
    y, x, bank, domains, theta = _data(6, 600)
    r = irt.from_array(y, item_id=bank.item_id.values, persons={"x": x})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)
        population = irt.fit_population(r, bank, covariates="x", domains=domains)
    scores = irt.score(r, bank, prior=population, n_plausible=5, seed=1)
    pv = scores["person_domain_plausible_value"].values
    between = np.mean([np.corrcoef(pv[:, k].T) for k in range(5)], axis=0)
    assert np.abs(between - np.corrcoef(theta.T)).max() < 0.12
    eap = scores["person_domain_ability"].values
    assert np.corrcoef(eap[:, 0], theta[:, 0])[0, 1] > 0.75
    slopes = [np.polyfit(x, pv[:, 0, d], 1)[0] for d in range(6)]
    assert np.abs(np.array(slopes) - 0.6).max() < 0.15


def test_new_persons_of_known_kinds() -> None:
    """Persons whom the model was not fitted to, and what it does not say of them."""
    y, x, bank, domains, _ = _data(2)
    kind = np.random.default_rng(1).integers(0, 3, N).astype(float)
    group = np.resize(["a", "b"], N)
    persons = pd.DataFrame({"x": x, "kind": kind, "group": group})
    ids = bank.item_id.values
    r = irt.from_array(y, item_id=ids, persons=persons)
    population = irt.fit_population(r, bank, covariates="x + C(kind)", domains=domains)
    some = irt.from_array(y[:50], item_id=ids, persons=persons[:50])
    a = irt.score(some, bank, prior=population)["person_domain_ability"].values
    b = irt.score(r, bank, prior=population)["person_domain_ability"].values
    np.testing.assert_array_equal(a, b[:50])
    for change, message in (
        ({"kind": 7.0}, "'kind': level 7 is none of"),
        ({"kind": np.nan}, "'kind': 50 person"),
        ({"x": 1e6}, "'x': a person's value"),
        ({"group": "c"}, "group 'c'"),
    ):
        other = irt.from_array(y[:50], item_id=ids, persons=persons[:50].assign(**change))
        with pytest.raises(irt.InputError, match=message):
            irt.score(other, bank, prior=population)
    bare = irt.from_array(y[:50], item_id=ids, persons=persons[:50].drop(columns="group"))
    with pytest.raises(irt.InputError, match="responses have none"):
        irt.score(bare, bank, prior=population)
    without = irt.from_array(y[:50], item_id=ids, persons=persons[:50].drop(columns="x"))
    with pytest.raises(irt.InputError, match="no covariate 'x'"):
        irt.score(without, bank, prior=population)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "wle"}, "use method='eap'"),
        ({"n_item_draws": 3}, "item draw of its own"),
        ({"composites": {"all": {"d9": 1.0}}}, "no domain is 'd9'"),
        ({"composites": {"d0": {"d1": 1.0}}}, "is the name of a domain"),
        ({"prior": xr.Dataset()}, "what fit_population returns"),
        ({"prior": "normal", "composites": {"all": {"d0": 1.0}}}, "only of domains"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    r, bank, population, _, _ = fitted()
    with pytest.raises(irt.InputError, match=message):
        irt.score(r, bank, **{"prior": population, "n_plausible": 1} | options)


@pytest.mark.slow
def test_values_under_many_coefficients_do_not_vary_too_much() -> None:
    """300 persons, 60 covariates of which 5 matter, 8 items: mean ratio of SDs over 8 data sets.

    About the corrected residual variance they would be too large by a tenth.
    """
    right, wrong = [], []
    for seed in range(8):
        y, _, bank, _, theta = _data(1, 300, seed)
        rng = np.random.default_rng([5, seed])
        x = rng.normal(size=(300, 60))
        x[:, :5] += 0.5 * theta
        persons = {f"x{k}": x[:, k] for k in range(60)}
        r = irt.from_array(y, item_id=bank.item_id.values, persons=persons)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IrtDaskWarning)
            population = irt.fit_population(r, bank, covariates=list(persons))
        taken = np.trace(population["component_coefficient_covariance"].values[0])
        more = np.sqrt(population["residual_sd"] ** 2 + taken)
        for out, model in ((right, population), (wrong, population.assign(residual_sd=more))):
            values = irt.score(r, bank, prior=model, n_plausible=10, seed=1)
            pv = values["person_domain_plausible_value"].values[:, :, 0]
            out.append(pv.std(axis=0).mean() / theta.std() - 1.0)
    assert abs(np.mean(right)) < 0.05
    assert np.mean(wrong) > np.mean(right) + 0.05
