"""Plausible values: quantiles, laws, keys.  False-alarm rates are for a fresh seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from items import quiet
from parts import csr_of
from scipy.special import ndtri
from scipy.stats import kstest, norm

import irt_dask as irt
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import dataset
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.posterior import person_weights, plausible_values, tables
from irt_dask.kernels.responses import layouts
from irt_dask.population.population import STANDARD, Population
from irt_dask.score import ability


def fine(row, a, d, bound, n=20_001):
    """Abilities, posterior distribution function there, and posterior SD, by fine summation."""
    t = np.linspace(-bound, bound, n)
    z = np.outer(t, a) + d
    log = -0.5 * t**2
    log += (np.where(row == 1, -np.logaddexp(0, -z), 0.0)).sum(axis=1)
    log += (np.where(row == 0, -np.logaddexp(0, z), 0.0)).sum(axis=1)
    w = np.exp(log - log.max())
    f = np.concatenate([[0.0], np.cumsum(0.5 * (w[1:] + w[:-1]))])
    mean = w @ t / w.sum()
    return t, f / f[-1], np.sqrt(w @ (t - mean) ** 2 / w.sum())


def items_of(a, d):
    ids = [f"i{j}" for j in range(len(a))]
    data = {"item_discrimination": ("items", a), "item_intercept": ("items", d)}
    return xr.Dataset(data, {"item_id": ("items", ids)})


def with_draws(items, n, sd=0.1, seed=0):
    """The same items with draws about them."""
    g = np.random.default_rng(seed)
    a, d = items["item_discrimination"].values, items["item_intercept"].values
    draws = {
        "item_discrimination_draw": a * np.exp(sd * g.normal(size=(n, a.size))),
        "item_intercept_draw": d + sd * g.normal(size=(n, a.size)),
    }
    return items.assign({name: (("draw", "items"), x) for name, x in draws.items()})


G = np.random.default_rng(0)
# A short test, a middling one, a long one (fine grid), steep items, one alone, hardly any.
CASES = {
    "5": (np.ones(5), np.linspace(-1, 1, 5), 0.0),
    "20": (G.lognormal(0, 0.3, 20), G.normal(0, 1, 20), 0.3),
    "400": (G.lognormal(0, 0.3, 400), G.normal(0, 1, 400), 0.5),
    "steep": (np.array([5.0, 0.5, 1.0]), np.zeros(3), 0.0),
    "one": (np.array([8.0]), np.array([2.0]), 0.0),
    "three steep": (np.full(3, 3.0), np.zeros(3), 0.0),
}


@pytest.mark.parametrize("case", CASES)
def test_quantiles_are_those_of_fine_summation(case):
    a, d, missing = CASES[case]
    g = np.random.default_rng(1)
    y = g.integers(0, 2, (4, a.size)).astype(np.int8)
    y[g.random(y.shape) < missing] = -1
    y[0] = 1
    u = np.concatenate([[1e-5], np.linspace(0.001, 0.999, 300), [1 - 1e-5]])
    items = ItemSet.of("2pl", a, d)
    nodes = STANDARD.nodes(items)
    prior = person_weights.prior(person_weights.normal(nodes))
    more = tables.tables(items, nodes), person_weights.alone(4), prior
    got = plausible_values.draw(layouts.Dense(y), *more, np.tile(u, (4, 1)))
    sparse = plausible_values.draw(layouts.to_sparse(layouts.Dense(y)), *more, np.tile(u, (4, 1)))
    assert got.tobytes() == sparse.tobytes()
    assert np.all(np.diff(got, axis=1) > 0)
    for row, theta in zip(y, got, strict=True):
        t, f, sd = fine(row, a, d, nodes[-1])
        error = np.abs(theta - np.interp(u, f, t)) / sd
        assert error[1:-1].max() < 1e-3
        assert error.max() < 2e-3
        assert np.abs(np.interp(theta, t, f) - u).max() < 5e-4


def test_persons_of_one_pattern_have_draws_from_their_posterior():
    """Kolmogorov-Smirnov, four tests of false-alarm rate 1e-4 (error of quantiles: 1e-3 SD)."""
    g = np.random.default_rng(2)
    a, d = g.lognormal(0, 0.3, 12), g.normal(0, 1, 12)
    row = g.integers(0, 2, 12)
    for observed in (12, 5):
        row = np.where(np.arange(12) < observed, row, -1)
        r = irt.from_array(np.tile(row, (8000, 1)), item_id=items_of(a, d)["item_id"].values)
        out = irt.score(r, items_of(a, d), n_plausible=2, seed=3)
        pv = out["person_plausible_value"].values
        t, f, _ = fine(row, a, d, 7.0)
        for values in pv.T:
            assert kstest(values, lambda x, t=t, f=f: np.interp(x, t, f)).pvalue > 1e-4
        assert abs(np.corrcoef(pv.T)[0, 1]) < 4 / np.sqrt(8000)  # false-alarm rate 6e-5


def test_population_moments_are_recovered():
    """Under the true items plausible values are N(0, 1), EAPs are not: rate 1e-4 for each of 6."""
    r = irt.simulate(15_000, 8, seed=4, missing=0.2)
    out = irt.score(r, r.truth.drop_vars("person_ability"), n_plausible=2, seed=1)
    n = r.n_persons
    for values in out["person_plausible_value"].values.T:
        assert abs(values.mean()) < 3.9 / np.sqrt(n)
        assert abs(values.var() - 1.0) < 3.9 * np.sqrt(2.0 / n)
        assert kstest(values, norm.cdf).pvalue > 1e-4
    assert out["person_ability"].values.var() < 0.8


def test_each_value_is_drawn_under_its_own_items():
    r = irt.simulate(40, 6, seed=5)
    items = with_draws(r.truth.drop_vars("person_ability"), 30, sd=0.3)
    got = irt.score(r, items, n_plausible=3, n_item_draws=5, seed=9)["person_plausible_value"]
    for k, draw in enumerate((5, 15, 25)):
        one = items_of(*(items[f"item_{p}_draw"].values[draw] for p in PARAMETERS))
        one["item_id"] = r.truth["item_id"]
        known = irt.score(r, one, n_plausible=3, seed=9)["person_plausible_value"]
        np.testing.assert_array_equal(got[:, k], known[:, k])


PARAMETERS = ("discrimination", "intercept")


def test_values_under_known_items_do_not_depend_on_their_number():
    r = irt.simulate(30, 6, seed=6)
    truth = r.truth.drop_vars("person_ability")
    many, few, other = (
        irt.score(r, truth, n_plausible=m, seed=s)["person_plausible_value"].values
        for m, s in ((4, 0), (2, 0), (2, 1))
    )
    assert many[:, :2].tobytes() == few.tobytes()
    assert not np.any(few == other)
    drawn = with_draws(truth, 10)
    zero = irt.score(r, drawn, n_plausible=2, n_item_draws=0)["person_plausible_value"].values
    assert zero.tobytes() == few.tobytes()


def test_persons_without_responses_have_draws_of_the_prior():
    truth = irt.simulate(1, 3).truth
    r = irt.from_array(np.full((50, 3), -1), item_id=truth["item_id"].values)
    pv = irt.score(r, truth, n_plausible=1, seed=2)["person_plausible_value"].values
    u = keyed_random.uniforms(keyed_random.key(2, "plausible", 0), 0, 50)
    np.testing.assert_allclose(pv, ndtri(u), atol=1e-3)


def test_blocks_layouts_and_workers_do_not_matter(client, bits):
    y = np.random.default_rng(7).integers(-1, 2, (60, 9)).astype(np.int8)
    r = irt.from_array(y)
    items = with_draws(items_of(np.linspace(0.5, 2, 9), np.linspace(-1, 1, 9)), 40)
    items["item_id"] = ("items", list(r.item_id))
    options = {"n_plausible": 2, "n_item_draws": 4, "seed": 1}
    want = irt.score(r, items, **options)
    sparse = irt.from_array(csr_of(y), observed="stored", rows_per_block=13)
    assert sparse.layout == "csr"
    for other in (*(irt.from_array(y, rows_per_block=k) for k in (1, 7)), sparse):
        got = irt.score(other, items, **options)
        assert bits(got) == bits(want)
        assert got.attrs == want.attrs
    blocks = irt.from_array(y, rows_per_block=11)
    assert bits(irt.score(blocks, items, client=client, **options)) == bits(want)


def test_files_hold_the_same_values(tmp_path):
    r = irt.simulate(53, 5, seed=8, rows_per_block=10)
    items = with_draws(r.truth.drop_vars("person_ability"), 20)
    options = {"n_plausible": 3, "n_item_draws": 3, "seed": 4}
    memory = irt.score(r, items, **options)
    written = irt.score(r, items, store=tmp_path / "s", **options)
    frame = pd.read_parquet(tmp_path / "s")
    assert list(frame.columns[-4:]) == ["sum_score", "pv1", "pv2", "pv3"]
    got = frame[["pv1", "pv2", "pv3"]].to_numpy()
    np.testing.assert_array_equal(got, memory["person_plausible_value"].values)
    assert "person_plausible_value" not in written
    for name in ("person_ability", "person_ability_sd"):
        assert frame[name].to_numpy().tobytes() == memory[name].values.tobytes()
    assert written.attrs["n_plausible"] == 3
    assert written.attrs["seed"] == 4


@pytest.mark.slow
def test_one_draw_of_a_posterior_is_items_of_its_own():
    """Wherever items are taken, and no draws of it are left to average over."""
    responses = irt.simulate(150, 6, model="2pl+gpcm", categories=[2, 2, 2, 3, 3, 3], seed=1)
    posterior = quiet(irt.fit_bayes, responses, model="2pl+gpcm", n_draws=100, n_warmup=50)
    one = posterior.isel(draw=3)
    names = ("discrimination", "intercept", "step_intercept")
    bank = posterior.drop_vars([n for n in posterior if str(n).endswith("_draw")]).assign(
        {f"item_{k}": posterior[f"item_{k}_draw"].isel(draw=3) for k in names}
    )
    for of in (irt.score, irt.item_fit, irt.predictive_check):
        got, want = of(responses, one), of(responses, bank)
        assert all(np.array_equal(got[k], want[k], equal_nan=True) for k in want.data_vars)
    ability = [irt.score(responses, items)["person_ability"] for items in (one, posterior)]
    assert not np.array_equal(*ability)


def test_nodes_are_for_what_persons_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,200 items of which each has 12, the population estimated: fewer nodes, same numbers."""
    rng = np.random.default_rng(4)
    a, d = rng.uniform(0.8, 1.5, 1200), rng.normal(size=1200)
    y = np.full((300, 1200), -1, dtype=np.int8)
    for i in range(300):
        its = rng.choice(1200, 12, replace=False)
        p = 1.0 / (1.0 + np.exp(-(a[its] * rng.normal(0.3, 1.1) + d[its])))
        y[i, its] = rng.random(12) < p
    bank = dataset(
        {"item_discrimination": a, "item_intercept": d},
        item_id=tuple(f"i{j}" for j in range(1200)), attrs={"model": "2pl"},
    )  # fmt: skip
    r = irt.from_array(y, item_id=bank["item_id"].values)
    sizes: list[int] = []
    plain = Population.nodes

    def seen(self: Population, *of: Any, **how: Any) -> Any:
        out = plain(self, *of, **how)
        sizes.append(out.size)
        return out

    monkeypatch.setattr(Population, "nodes", seen)
    few = irt.score(r, bank, prior="population", n_plausible=2, progress=False)
    most_of_few = max(sizes)
    sizes.clear()
    monkeypatch.setattr(ability, "_MANY_ITEMS", 10**9)
    many = irt.score(r, bank, prior="population", n_plausible=2, progress=False)
    assert most_of_few < 0.5 * max(sizes)
    for name in ("group_mean", "group_sd", "person_ability", "person_ability_sd"):
        np.testing.assert_allclose(few[name], many[name], atol=1e-5)
    np.testing.assert_allclose(
        few["person_plausible_value"], many["person_plausible_value"], atol=1e-3
    )
