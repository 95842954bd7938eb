"""Scores of two abilities, against sums over fine grids; false-alarm rates are of a fresh seed."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from parts import csr_of
from scipy.interpolate import CubicSpline
from scipy.stats import kstest

import irt_dask as irt
from irt_dask.engine import memory
from irt_dask.errors import InputError, TooLargeError
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.several import plane_posterior, plane_values

POINTS = np.linspace(-7.5, 7.5, 151)


def log_density(row, a, d, rho, x, y):
    """Log posterior of both abilities but for a constant, from probabilities."""
    value = -0.5 * (x * x - 2.0 * rho * x * y + y * y) / (1.0 - rho * rho)
    for j in np.flatnonzero(row >= 0):
        z = a[0, j] * x + a[1, j] * y + d[j]
        value = value - np.logaddexp(0.0, -z if row[j] == 1 else z)
    return value


def distribution(points, log):
    """Distribution function of a density on points, by the integral of its spline."""
    f = CubicSpline(points, np.exp(log - log.max())).antiderivative()
    low, high = f(points[0]), f(points[-1])
    return lambda x: (f(x) - low) / (high - low)


def mixture(y, draws):
    """Means, SDs and correlations of the mixture of the posteriors under each draw."""
    grid = np.meshgrid(POINTS, POINTS, indexing="ij")
    out = []
    for row in y:
        w = np.zeros(grid[0].shape)
        for a, d, rho in draws:
            log = log_density(row, a, d, rho, *grid)
            one = np.exp(log - log.max())
            w += one / one.sum() / len(draws)
        m = [(w * t).sum() for t in grid]
        v = [(w * (s - m[p]) * (t - m[q])).sum() for p, s in enumerate(grid)
             for q, t in enumerate(grid)]  # fmt: skip
        out.append([*m, np.sqrt(v[0]), np.sqrt(v[3]), v[1] / np.sqrt(v[0] * v[3])])
    return np.array(out)


def fit_of(m, n_draws=0, seed=0, sd=0.2, correlated=True):
    """A fit of two abilities: means, and draws about them."""
    g = np.random.default_rng(seed)
    a, d = g.normal(0.6, 0.7, (m, 2)), g.normal(size=m)
    a[0, 1] = a[m - 1, 0] = 0.0
    r = np.array([[1.0, 0.5], [0.5, 1.0]])
    by_item, by_pair = ("items", "latent_dims"), ("latent_dims", "latent_dims_")
    data = {"item_loading": (by_item, a), "item_intercept": ("items", d)}
    if correlated:
        data["ability_correlation"] = by_pair, r
    if n_draws:
        shape = (n_draws, m, 2)
        data["item_loading_draw"] = ("draw", *by_item), a * np.exp(sd * g.normal(size=shape))
        data["item_intercept_draw"] = ("draw", "items"), d + sd * g.normal(size=shape[:2])
        if correlated:
            rho = np.tanh(0.5 + 2 * sd * g.normal(size=n_draws))
            matrices = np.eye(2) + rho[:, None, None] * (1 - np.eye(2))
            data["ability_correlation_draw"] = ("draw", *by_pair), matrices
    ids = [f"item{j}" for j in range(m)]
    return xr.Dataset(data, {"item_id": ("items", ids)}, {"model": "m2pl"})


def draw_of(fit, k):
    """Loadings, intercepts and correlation of a draw."""
    rho = fit["ability_correlation_draw"].values[k, 0, 1]
    return fit["item_loading_draw"].values[k].T, fit["item_intercept_draw"].values[k], float(rho)


def responses(n, m, seed=1, missing=0.3):
    g = np.random.default_rng(seed)
    y = g.integers(0, 2, (n, m)).astype(np.int8)
    y[n // 3 :][g.random((n - n // 3, m)) < missing] = -1  # a third is complete
    y[-1] = -1
    return y


def of(y, fit, **options):
    return irt.from_array(y, item_id=fit["item_id"].values, **options)


NAMES = ("person_ability", "person_ability_sd", "person_ability_correlation")


def together(out):
    return np.column_stack([out[name].values for name in NAMES])


# --- expectations ---------------------------------------------------------------------------------


def test_moments_are_those_of_the_mixture():
    fit, y = fit_of(6, 12), responses(8, 6)
    out = irt.score(of(y, fit), fit, n_item_draws=4)
    assert out["person_ability"].dims == ("persons", "latent_dims")
    want = mixture(y, [draw_of(fit, k) for k in (1, 4, 7, 10)])  # four evenly spaced of 12
    np.testing.assert_allclose(together(out), want, atol=1e-6)
    assert out.attrs["n_item_draws"] == 4
    mean, var = want[:, :2], (want[:, 2:4] ** 2).mean(axis=0)
    spread = mean.var(axis=0)
    np.testing.assert_allclose(out.attrs["mean_ability"], mean.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(out.attrs["sd_ability"], np.sqrt(spread), atol=1e-6)
    np.testing.assert_allclose(out.attrs["reliability"], spread / (spread + var), atol=1e-6)
    edges = np.linspace(-6, 6, 61)
    for q in range(2):
        count = np.histogram(out["person_ability"].values[:, q], edges)[0]
        np.testing.assert_array_equal(out["ability_count"].values[:, q], count)
    known = irt.score(of(y, fit), fit, n_item_draws=0)
    a, d = fit["item_loading"].values.T, fit["item_intercept"].values
    np.testing.assert_allclose(together(known), mixture(y, [(a, d, 0.5)]), atol=1e-6)
    np.testing.assert_allclose(together(known)[-1], [0, 0, 1, 1, 0.5], atol=1e-7)  # the prior
    assert known.attrs["identification"] == "abilities normal, correlated, SD 1"


def test_uncertain_items_widen_the_posterior():
    fit, y = fit_of(6, 20, sd=0.4, correlated=False), responses(40, 6)
    out = irt.score(of(y, fit), fit)
    assert out.attrs["n_item_draws"] == 20  # the default: all there are
    assert out.attrs["identification"] == "abilities independent N(0, 1)"
    each = [irt.score(of(y, fit), fit.isel(draw=[k])) for k in range(20)]
    within = np.mean([one["person_ability_sd"] ** 2 for one in each], axis=0)
    between = np.var([one["person_ability"] for one in each], axis=0)
    assert (between[:-1] > 0.005).all()  # the last person has no responses
    np.testing.assert_allclose(out["person_ability_sd"] ** 2, within + between, rtol=1e-9)


def test_items_are_matched_by_identifier():
    fit, y = fit_of(6), responses(5, 6)
    shuffled = fit.isel(items=[3, 1, 5, 0, 2, 4])
    assert irt.score(of(y, fit), shuffled).identical(irt.score(of(y, fit), fit))


# --- plausible values -----------------------------------------------------------------------------

G = np.random.default_rng(5)
CASES = {
    "8": (G.normal(0.7, 0.7, (2, 8)), G.normal(size=8), 0.7),
    "alike": (np.full((2, 6), 1.5), G.normal(size=6), 0.0),
    "steep": (np.array([[5.0, 0.5, 3.0], [0.0, 4.0, 3.0]]), np.zeros(3), 0.3),
}


@pytest.mark.parametrize(
    "case", ["8", *(pytest.param(c, marks=pytest.mark.slow) for c in CASES if c != "8")]
)
def test_values_are_quantiles_of_marginal_and_conditional(case):
    a, d, rho = CASES[case]
    y = np.random.default_rng(6).integers(0, 2, (3, d.size)).astype(np.int8)
    y[1, ::2], y[2] = -1, 1
    u = np.random.default_rng(7).random((30, 2))
    u[:4] = [[1e-5, 0.5], [1 - 1e-5, 1e-4], [0.5, 1e-5], [0.001, 0.999]]
    grid = plane_posterior.plane_for(a, d, correlation=rho)
    g, many = plane_posterior.plane(a, d, grid.nodes, rho), np.tile(u, (3, 1, 1))
    theta = plane_values.draw(layouts.Dense(y), g, many)
    sparse = plane_values.draw(layouts.to_sparse(layouts.Dense(y)), g, many)
    assert theta.tobytes() == sparse.tobytes()
    fine = np.linspace(-7, 7, 4 * (grid.n_nodes - 1) + 1)
    for row, values in zip(y, theta, strict=True):
        log = log_density(row, a, d, rho, fine[:, None], fine[None, :])
        marginal = distribution(fine, np.log(np.exp(log - log.max()).sum(axis=1)))
        assert np.abs(marginal(values[:, 0]) - u[:, 0]).max() < 2e-4
        for (x, z), v in zip(values, u[:, 1], strict=True):
            conditional = distribution(fine, log_density(row, a, d, rho, x, fine))
            assert abs(conditional(z) - v) < 2e-4


def test_persons_of_one_pattern_have_draws_from_their_posterior():
    """Kolmogorov-Smirnov: both abilities and their sum, four tests of false-alarm rate 1e-4."""
    fit = fit_of(7)
    a, d = fit["item_loading"].values.T, fit["item_intercept"].values
    row = np.array([1, 0, 1, 1, -1, 0, 1])
    out = irt.score(of(np.tile(row, (3000, 1)), fit), fit, n_plausible=2, seed=3)
    assert out["person_plausible_value"].dims == ("persons", "plausible", "latent_dims")
    pv = out["person_plausible_value"].values
    t, s = np.linspace(-7, 7, 401), np.linspace(-12, 12, 401)
    log = log_density(row, a, d, 0.5, t[:, None], t[None, :])
    w = np.exp(log - log.max())
    marginals = [distribution(t, np.log(w.sum(axis=axis))) for axis in (1, 0)]
    turned = log_density(row, a, d, 0.5, t[:, None], s[None, :] - t[:, None])
    total = distribution(s, np.log(np.exp(turned - log.max()).sum(axis=0)))
    assert kstest(pv[:, 0, 0], marginals[0]).pvalue > 1e-4
    for q in range(2):
        assert kstest(pv[:, 1, q], marginals[q]).pvalue > 1e-4
    assert kstest(pv[:, 1].sum(axis=1), total).pvalue > 1e-4
    assert abs(np.corrcoef(pv[:, 0, 0], pv[:, 1, 0])[0, 1]) < 4 / np.sqrt(3000)


def test_each_value_is_drawn_under_its_own_items_and_correlation():
    fit, y = fit_of(5, 12, sd=0.4), responses(20, 5)
    r = of(y, fit)
    got = irt.score(r, fit, n_plausible=2, n_item_draws=1, seed=9)["person_plausible_value"].values
    for k, draw in enumerate((3, 9)):
        a, d, rho = draw_of(fit, draw)
        one = fit_of(5)
        one["item_loading"].values[:], one["item_intercept"].values[:] = a.T, d
        one["ability_correlation"].values[[0, 1], [1, 0]] = rho
        known = irt.score(r, one, n_plausible=2, seed=9)["person_plausible_value"].values
        np.testing.assert_array_equal(got[:, k], known[:, k])


# --- the same bits, files, refusals ---------------------------------------------------------------


def test_blocks_layouts_and_workers_do_not_matter(client, bits):
    fit, y = fit_of(6, 8), responses(30, 6)
    options = {"n_plausible": 2, "n_item_draws": 2, "seed": 1}
    want = irt.score(of(y, fit), fit, **options)
    stored = csr_of(y)
    sparse = of(stored, fit, observed="stored", rows_per_block=13)
    assert sparse.layout == "csr"
    for other in (*(of(y, fit, rows_per_block=k) for k in (1, 7)), sparse):
        got = irt.score(other, fit, **options)
        assert bits(got) == bits(want)
        assert got.attrs == want.attrs
    blocks = of(y, fit, rows_per_block=11)
    assert bits(irt.score(blocks, fit, client=client, **options)) == bits(want)


def test_files_equal_memory_and_the_command_writes_them(tmp_path):
    from click.testing import CliRunner

    from irt_dask.cli.work import score

    fit, y = fit_of(4, 6), responses(23, 4)
    options = {"n_plausible": 2, "n_item_draws": 2, "seed": 4}
    r = of(y, fit, rows_per_block=10)
    memory = irt.score(r, fit, **options)
    written = irt.score(r, fit, store=tmp_path / "s", **options)
    frame = pd.read_parquet(tmp_path / "s")
    names = [f"{name}_{q}" for name in NAMES[:2] for q in (1, 2)]
    values = ["pv1_1", "pv1_2", "pv2_1", "pv2_2"]
    answered = ["n_responses", "sum_score"]
    assert list(frame.columns) == ["person_id", *names, NAMES[2], *answered, *values]
    np.testing.assert_array_equal(frame[[*names, NAMES[2]]].to_numpy(), together(memory))
    pv = memory["person_plausible_value"].values
    np.testing.assert_array_equal(frame[values].to_numpy(), pv.reshape(23, 4))
    assert "person_ability" not in written
    assert written.attrs["reliability"] == memory.attrs["reliability"]
    fit.to_netcdf(tmp_path / "fit.nc", engine="scipy")
    table = pd.DataFrame(y, columns=fit["item_id"].values).replace(-1, "")
    table.to_csv(tmp_path / "y.csv", index_label="person")
    irt.ingest(tmp_path / "y.csv", tmp_path / "store", shape="wide")
    args = ["store", "fit.nc", "--out", "c", "--plausible", 2, "--item-draws", 2, "--seed", 4]
    paths = [str(tmp_path / x) if x in ("store", "fit.nc", "c") else str(x) for x in args]
    done = CliRunner().invoke(score, [*paths, "--cluster", "none", "--json", "--quiet"])
    assert json.loads(done.output)["reliability"] == memory.attrs["reliability"]
    again = pd.read_parquet(tmp_path / "c")
    np.testing.assert_array_equal(again[values], frame[values])


def test_what_cannot_be_scored_is_refused(tmp_path, monkeypatch):
    from irt_dask.score import ability

    fit, y = fit_of(4, 6), responses(9, 4)
    r = of(y, fit)
    three = xr.concat([fit["item_loading"], fit["item_loading"][:, :1]], "latent_dims")
    three = fit[["item_intercept"]].assign(item_loading=three)
    odd, perfect = fit.copy(deep=True), fit.copy(deep=True)
    odd["item_loading"].values[2, 1] = np.nan
    perfect["ability_correlation"].values[0, 1] = 1.0
    for items, options, message in (
        (three, {}, "items have item_loading of 3 abilities.*available for 2"),
        (odd, {"n_item_draws": 0}, "item item2 has loadings .* and nan"),
        (perfect, {"n_item_draws": 0}, r"correlation is 1\.0"),
        (fit, {"n_item_draws": 7}, "n_item_draws=7 exceeds the 6 draws"),
        (fit_of(4), {"n_item_draws": 2}, "items carry no draws; give a posterior"),
        (fit.drop_vars("ability_correlation_draw"), {}, "ability_correlation_draw"),
        (fit.drop_vars("item_loading"), {"n_item_draws": 0}, "have no item_loading"),
        (fit.isel(items=[0, 1]), {}, "2 item.* of the responses are not in items"),
        (fit, {"method": "map"}, "method='map'"),
    ):
        with pytest.raises(InputError, match=message):
            irt.score(r, items, **options)
    with pytest.raises(InputError, match="several abilities, and a map shows one"):
        irt.plot.wright_map(irt.simulate(9, 4).truth, irt.score(r, fit))
    with pytest.raises(InputError, match="item_loading"):
        irt.write_items(fit, tmp_path / "bank.csv")
    monkeypatch.setattr(ability, "_MAX_PLAUSIBLE_IN_MEMORY", 50)
    with pytest.raises(InputError, match="3 plausible values each of both abilities"):
        irt.score(r, fit, n_plausible=3)


def test_a_grid_that_memory_cannot_hold_is_not_made(monkeypatch):
    y, fit = np.random.default_rng(4).integers(0, 2, (20, 6)).astype(np.int8), fit_of(6, seed=9)
    monkeypatch.setattr(memory, "_LITTLE", 0)
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=1e5))
    with pytest.raises(TooLargeError, match=r"pairs of abilities for 6 items takes about .* GiB"):
        irt.score(of(y, fit), fit)
