"""Conditioning models against the other EM, brute force, and what is known of simulated persons."""

from __future__ import annotations

import functools
import json
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from items import respond

import irt_dask as irt
from irt_dask.errors import (
    ApproximationWarning,
    DataWarning,
    EstimationError,
    InputError,
    IrtDaskWarning,
)
from irt_dask.population.conditioning_fit import _nearest_correlation

NAMES = ("maths", "reading", "science")


class Made:
    """Persons with abilities of some domains, ten items each, and two covariates."""

    def __init__(self, n: int, dims: int, *, seed: int = 1, per: int = 10) -> None:
        rng = np.random.default_rng([77, seed])
        m = per * dims
        self.ids = tuple(f"item {j}" for j in range(m))
        self.of = np.arange(m) % dims
        a, d = rng.uniform(0.8, 1.6, m), rng.normal(size=m)
        self.x, self.kind = rng.normal(size=n), rng.integers(1, 4, n).astype(float)
        self.group = np.array(["north", "south"])[rng.integers(0, 2, n)]
        self.slope = np.array([0.5, 0.3, 0.1])[:dims]
        self.residual = 0.3 + 0.3 * np.eye(dims)
        self.theta = self.x[:, None] * self.slope + 0.4 * (self.kind == 2.0)[:, None]
        self.theta = self.theta + rng.multivariate_normal(np.zeros(dims), self.residual, n)
        z = a * self.theta[:, self.of] + d
        self.y = (rng.random((n, m)) < 1.0 / (1.0 + np.exp(-z))).astype(np.int8)
        self.y[rng.random((n, m)) < 0.2] = -1
        self.bank = xr.Dataset(
            {"item_discrimination": ("items", a), "item_intercept": ("items", d)},
            coords={"item_id": ("items", list(self.ids))}, attrs={"model": "2pl"},
        )  # fmt: skip
        self.a, self.d = a, d
        self.domains = {
            NAMES[k]: [i for i, q in zip(self.ids, self.of, strict=True) if q == k]
            for k in range(dims)
        }

    def responses(self, **more: Any) -> irt.Responses:
        columns = {"x": self.x, "kind": self.kind} | more.pop("columns", {})
        return irt.from_array(self.y, item_id=self.ids, persons=columns, **more)


@functools.cache
def made(n: int, dims: int, seed: int = 1) -> Made:
    return Made(n, dims, seed=seed)


def quietly(*args: Any, **options: Any) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)
        return irt.fit_population(*args, **options)


# --- against others -------------------------------------------------------------------------------


def test_one_domain_is_the_latent_regression_of_score() -> None:
    """Another EM, with another grid and other sums; residual variance by what was fitted."""
    data = made(1500, 1)
    r = data.responses(columns={"two": (data.kind == 2.0) * 1.0})
    r = irt.from_array(
        data.y, item_id=data.ids, persons={"x": data.x, "two": (data.kind == 2.0) * 1.0}
    )
    mine = irt.fit_population(r, data.bank, covariates=["x", "two"])
    other = irt.score(r, data.bank, prior="covariates")
    np.testing.assert_allclose(
        mine["regression_coefficient"].values[0, :, 0], other["regression_coefficient"], atol=2e-6
    )
    np.testing.assert_allclose(
        mine["regression_coefficient_se"].values[0, :, 0],
        other["regression_coefficient_se"], rtol=5e-4,
    )  # fmt: skip
    assert mine.attrs["log_likelihood"] == pytest.approx(other.attrs["log_likelihood"], abs=1e-4)
    assert float(mine["residual_sd_se"].values[0, 0]) == pytest.approx(
        float(other["residual_sd_se"]), rel=0.05
    )
    square = float(mine["residual_sd"].values[0, 0] ** 2 - other["residual_sd"] ** 2)
    taken = mine["component_coefficient_covariance"].values[0].trace() / (1.0 - 3.0 / 1500)
    assert square == pytest.approx(taken, abs=5e-6)


def test_groups_are_those_of_score() -> None:
    data = made(1500, 1)
    r = irt.from_array(data.y, item_id=data.ids, persons={"group": data.group})
    mine, other = irt.fit_population(r, data.bank), irt.score(r, data.bank, prior="groups")
    np.testing.assert_allclose(mine["group_mean"].values[:, 0], other["group_mean"], atol=2e-6)
    np.testing.assert_allclose(
        mine["group_mean_se"].values[:, 0], other["group_mean_se"], rtol=5e-4
    )
    assert mine["group_label"].values.tolist() == other["group_label"].values.tolist()
    whole = irt.fit_population(r, data.bank, by_group=False)
    assert whole["group_label"].values.tolist() == ["all"]


class Brute:
    """Log marginal likelihood of all persons by sums over a fine grid of both abilities."""

    def __init__(self, data: Made, n: int) -> None:
        self.nodes = np.linspace(-7.0, 7.0, 85)
        self.u = np.column_stack([np.ones(n), data.x[:n]])
        self.f = []
        for k in range(2):
            its = data.of == k
            z = data.a[its] * self.nodes[:, None] + data.d[its]
            right, wrong = -np.logaddexp(0.0, -z), -np.logaddexp(0.0, z)
            y = data.y[:n, its]
            self.f.append((y == 1) @ right.T + (y == 0) @ wrong.T)

    def __call__(self, b: Any, s: Any) -> float:
        h, k = self.nodes[1] - self.nodes[0], np.linalg.inv(s)
        mean, out = self.u @ b, 0.0
        constant = 2.0 * np.log(h) - np.log(2.0 * np.pi) - 0.5 * np.linalg.slogdet(s)[1]
        for i in range(len(mean)):
            p, q = self.nodes - mean[i, 0], self.nodes - mean[i, 1]
            w = self.f[0][i][:, None] + self.f[1][i]
            w = w - 0.5 * (k[0, 0] * p[:, None] ** 2 + k[1, 1] * q**2) - k[0, 1] * np.outer(p, q)
            top = w.max()
            out += top + np.log(np.exp(w - top).sum()) + constant
        return float(out)


def test_two_domains_are_at_the_maximum_that_brute_force_sees() -> None:
    """Value, slopes of 0, and the information of coefficients, by differences."""
    n = 150
    data = made(400, 2)
    r = irt.from_array(data.y[:n], item_id=data.ids, persons={"x": data.x[:n]})
    fit = irt.fit_population(r, data.bank, covariates="x", domains=data.domains)
    brute = Brute(data, n)
    b = fit["regression_coefficient"].values[0]
    sd, rho = fit["residual_sd"].values[0], fit["residual_correlation"].values[0]
    covariance = fit["component_coefficient_covariance"].values[0].reshape(2, 2, 2, 2)
    taken = np.einsum("cdce->de", covariance) / (1.0 - 2.0 / n)  # two coefficients of a domain
    s = rho * np.outer(sd, sd) - taken
    value = brute(b, s)
    assert value == pytest.approx(fit.attrs["log_likelihood"], abs=1e-4)
    step = 1e-3

    def moved(i: int, j: int, by: float) -> Any:
        out = b.copy()
        out[i, j] += by
        return out

    for i, j in np.ndindex(2, 2):
        up, down = brute(moved(i, j, step), s), brute(moved(i, j, -step), s)
        assert abs(up - down) / (2.0 * step) < 2e-3
    for i, j in ((0, 0), (0, 1), (1, 1)):
        change = np.zeros((2, 2))
        change[i, j] = change[j, i] = step
        assert abs(brute(b, s + change) - brute(b, s - change)) / (2.0 * step) < 2e-3
    assert brute(b, 1.1 * s) < value - 1e-3
    up, down = brute(moved(1, 0, 0.01), s), brute(moved(1, 0, -0.01), s)
    information = -(up - 2.0 * value + down) / 0.01**2
    se = fit["regression_coefficient_se"].values[0, 1, 0]
    assert 1.0 / np.sqrt(information) < se < 1.15 / np.sqrt(information)


@pytest.mark.slow
def test_three_domains_recover_what_was_simulated() -> None:
    """Within 4 standard errors, 18 numbers: false alarm below 0.2%."""
    data = made(3000, 3)
    fit = irt.fit_population(
        data.responses(), data.bank, covariates="x + C(kind)", domains=data.domains
    )
    assert fit["covariate"].values.tolist() == ["intercept", "x", "C(kind)[T.2]", "C(kind)[T.3]"]
    true = np.stack([np.zeros(3), data.slope, np.full(3, 0.4), np.zeros(3)])
    z = (fit["regression_coefficient"][0] - true) / fit["regression_coefficient_se"][0]
    assert np.abs(z.values).max() < 4.0
    z = (fit["residual_sd"][0] - np.sqrt(0.6)) / fit["residual_sd_se"][0]
    assert np.abs(z.values).max() < 4.0
    i, j = np.triu_indices(3, 1)
    z = (fit["residual_correlation"].values[0] - 0.5) / np.maximum(
        fit["residual_correlation_se"].values[0], 1e-9
    )
    assert np.abs(z[i, j]).max() < 4.0
    total = np.corrcoef(data.theta.T)
    assert np.abs(fit["group_correlation"].values[0] - total).max() < 0.06
    np.testing.assert_allclose(fit["group_sd"].values[0], data.theta.std(axis=0), atol=0.05)


@pytest.mark.slow
def test_more_domains_by_pairs_agree_with_all_at_once(monkeypatch: Any) -> None:
    from irt_dask.population import conditioning_fit

    data = made(1500, 3)
    r = data.responses()
    at_once = irt.fit_population(r, data.bank, covariates="x", domains=data.domains)
    monkeypatch.setattr(conditioning_fit, "MOST_EXACT", 2)
    by_pairs = irt.fit_population(r, data.bank, covariates="x", domains=data.domains)
    apart = at_once["regression_coefficient"] - by_pairs["regression_coefficient"]
    assert float(np.abs(apart / at_once["regression_coefficient_se"]).max()) < 0.6
    r1, r2 = (f["residual_correlation"].values for f in (at_once, by_pairs))
    assert np.abs(r1 - r2).max() < 0.03
    se = by_pairs["regression_coefficient_se"] / at_once["regression_coefficient_se"]
    assert 0.98 < float(se.min()) < float(se.max()) < 1.1


def test_the_nearest_matrix_of_correlations() -> None:
    """Higham (2002), section 4: the tridiagonal matrix of ones."""
    given = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    near = _nearest_correlation(given)
    assert np.linalg.eigvalsh(near)[0] > 5e-4
    np.testing.assert_allclose(np.diag(near), 1.0)
    expected = np.array([[1.0, 0.7607, 0.1573], [0.7607, 1.0, 0.7607], [0.1573, 0.7607, 1.0]])
    np.testing.assert_allclose(near, expected, atol=2e-3)
    assert _nearest_correlation(np.eye(3)) is not None


# --- designs --------------------------------------------------------------------------------------


def test_what_is_not_known_has_terms_of_its_own() -> None:
    """The same as a regression on columns made by hand."""
    data = made(1500, 1)
    x, kind = data.x.copy(), data.kind.copy()
    x[::7], kind[::5] = np.nan, np.nan
    given = irt.from_array(data.y, item_id=data.ids, persons={"x": x, "kind": kind})
    fit = irt.fit_population(given, data.bank, covariates="x + C(kind)")
    assert fit["covariate"].values.tolist() == [
        "intercept", "x", "C(kind)[T.2]", "C(kind)[T.3]", "C(kind)[T.missing]", "x[missing]",
    ]  # fmt: skip
    lacking = np.isnan(x)
    middle = 0.5 * (np.nanmin(x) + np.nanmax(x))
    columns = {"x": np.where(lacking, middle, x)}
    columns |= {f"k{k}": (kind == k) * 1.0 for k in (2, 3)}
    columns |= {"k?": np.isnan(kind) * 1.0, "x?": lacking * 1.0}
    by_hand = irt.from_array(data.y, item_id=data.ids, persons=columns)
    other = irt.fit_population(by_hand, data.bank, covariates=list(columns))
    for name in ("regression_coefficient", "regression_coefficient_se", "residual_sd"):
        np.testing.assert_allclose(fit[name], other[name], atol=5e-6)


def test_components_that_keep_everything_change_nothing() -> None:
    data = made(1500, 1)
    r = data.responses(columns={"again": data.x**2})
    whole = irt.fit_population(r, data.bank, covariates="x + again + C(kind)")
    four = irt.fit_population(r, data.bank, covariates="x + again + C(kind)", n_components=4)
    share = irt.fit_population(r, data.bank, covariates="x + again + C(kind)", n_components=0.6)
    np.testing.assert_allclose(
        whole["regression_coefficient"], four["regression_coefficient"], atol=5e-6
    )
    assert share.attrs["n_components"] == [3]
    assert 0.6 <= share.attrs["component_share"][0] < 1.0
    assert share.attrs["log_likelihood"] < whole.attrs["log_likelihood"]
    kind = np.column_stack([data.kind == 2.0, data.kind == 3.0]).astype(float)
    apart = np.linalg.svd(kind - kind.mean(axis=0), full_matrices=False)[0]  # of one category
    values = np.linalg.eigvalsh(np.corrcoef(np.column_stack([data.x, data.x**2, apart]).T))[::-1]
    # persons without responses are none; here there are some items for everybody
    assert share.attrs["component_share"][0] == pytest.approx(values[:3].sum() / 4.0, abs=1e-5)


def test_terms_that_follow_from_others_are_named() -> None:
    data = made(1500, 1)
    r = data.responses(columns={"twice": 2.0 * data.x + 1.0})
    with pytest.warns(DataWarning, match=r"'x', 'twice'.*: not determined"):
        fit = irt.fit_population(r, data.bank, covariates=["x", "twice"])
    assert np.isnan(fit["regression_coefficient_se"].sel(covariate="twice")).all()
    plain = irt.fit_population(data.responses(), data.bank, covariates=["x"])
    assert fit.attrs["log_likelihood"] == pytest.approx(plain.attrs["log_likelihood"], abs=1e-3)


def test_few_persons_are_named() -> None:
    data = made(1500, 1)
    rare = np.zeros(1500)
    rare[[3, 9]] = 1.0
    with pytest.warns(ApproximationWarning, match=r"'rare' \(2\)"):
        irt.fit_population(data.responses(columns={"rare": rare}), data.bank, covariates="rare")
    few = irt.from_array(data.y[:12], item_id=data.ids)
    with pytest.warns(ApproximationWarning, match="so few persons"):
        irt.fit_population(few, data.bank)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"covariates": "x +"}, "formula 'x \\+'"),
        ({"covariates": "age"}, "no column is 'age'"),
        ({"covariates": ["age"]}, "name each covariate once"),
        ({"covariates": "0 + x"}, "has an intercept"),
        ({"covariates": "center(x)"}, "depends on all persons"),
        ({"covariates": "x", "n_components": 0}, "at least 1"),
        ({"covariates": "x", "n_components": 1.5}, "lies between 0 and 1"),
        ({"n_components": 3}, "no effect without covariates"),
        ({"domains": {"a": ["item 0"]}}, "of no domain are the items"),
        ({"domains": {"a": ["item 0"], "b": ["item 0"]}}, "is of 'a' and of 'b'"),
        ({"domains": {"a": ["item 99"]}}, "no item 'item 99'"),
        ({"domains": {}}, "give a mapping"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    data = made(400, 2)
    with pytest.raises(irt.InputError, match=message):
        irt.fit_population(data.responses(), data.bank, **options)


def test_too_few_persons_for_the_coefficients() -> None:
    data = made(400, 2)
    rng = np.random.default_rng(1)
    columns = {f"c{k}": rng.normal(size=30) for k in range(20)}
    r = irt.from_array(data.y[:30], item_id=data.ids, persons=columns)
    with pytest.raises(irt.InputError, match=r"30 persons .* for 21 coefficients"):
        irt.fit_population(r, data.bank, covariates=list(columns))
    nobody = irt.from_array(
        np.full((30, len(data.ids)), -1), item_id=data.ids, persons={"x": data.x[:30]}
    )
    with pytest.raises(EstimationError, match="no observed response"):
        irt.fit_population(nobody, data.bank, covariates="x")


def test_one_ability_in_two_domains_ends_at_a_bound_that_is_named() -> None:
    rng = np.random.default_rng(9)
    a, b = np.full(20, 1.5), rng.normal(size=20)
    y = respond(rng, rng.normal(size=800), a, -a * b)
    bank = xr.Dataset(
        {"item_discrimination": ("items", a), "item_intercept": ("items", -a * b)},
        coords={"item_id": ("items", [str(j) for j in range(20)])}, attrs={"model": "2pl"},
    )  # fmt: skip
    domains = {"odd": [str(j) for j in range(0, 20, 2)], "even": [str(j) for j in range(1, 20, 2)]}
    with pytest.warns(IrtDaskWarning, match="correlation of 'odd' and 'even'.*at the bound"):
        irt.fit_population(irt.from_array(y), bank, domains=domains)


# --- what must not matter -------------------------------------------------------------------------


def test_blocks_and_layouts_do_not_change_a_bit() -> None:
    data = made(150, 2)
    rows, columns = np.nonzero(data.y >= 0)
    import scipy.sparse

    sparse = scipy.sparse.csr_array((data.y[rows, columns], (rows, columns)), shape=data.y.shape)
    persons = pd.DataFrame({"x": data.x, "kind": data.kind, "group": data.group})
    persons["weight"] = np.random.default_rng(3).uniform(0.5, 2.0, len(persons))
    ways = [
        irt.from_array(data.y, item_id=data.ids, persons=persons),
        irt.from_array(data.y, item_id=data.ids, persons=persons, rows_per_block=37),
        irt.from_array(sparse, observed="stored", item_id=data.ids, persons=persons),
    ]
    found = [quietly(r, data.bank, covariates="x + C(kind)", domains=data.domains) for r in ways]
    for other in found[1:]:
        xr.testing.assert_identical(found[0], other)
    values = [
        irt.score(r, data.bank, prior=p, n_plausible=2) for r, p in zip(ways, found, strict=True)
    ]
    for other in values[1:]:
        xr.testing.assert_identical(values[0], other)


@pytest.mark.slow
def test_errors_where_the_observed_information_is_not_positive(monkeypatch: Any) -> None:
    """Those of scores' squares: near the others, and of counted persons as of all of them."""
    of = made(1500, 2)
    usual = quietly(of.responses(), of.bank, covariates="x", domains=of.domains)
    monkeypatch.setattr("irt_dask.population.conditioning_errors._positive", lambda _: False)
    times = 1 + np.arange(1500) % 3
    found = []
    every = np.arange(1500)
    for rows, weight in ((every, times.astype(float)), (every.repeat(times), None)):
        columns = {"x": of.x[rows]} | ({} if weight is None else {"weight": weight})
        more = {} if weight is None else {"weight_kind": "frequency"}
        r = irt.from_array(of.y[rows], item_id=of.ids, persons=columns, **more)
        found.append(quietly(r, of.bank, covariates="x", domains=of.domains))
    name = "regression_coefficient_se"
    np.testing.assert_allclose(found[0][name], found[1][name], rtol=5e-3)
    with pytest.warns(ApproximationWarning, match="is not positive"):
        rough = irt.fit_population(of.responses(), of.bank, covariates="x", domains=of.domains)
    np.testing.assert_allclose(rough[name], usual[name], rtol=0.15)


@pytest.mark.slow
def test_standard_errors_hold_what_is_not_known_of_items() -> None:
    """Draws that stretch and shift abilities: what the fits under them vary by is known."""
    of = made(1500, 2)
    responses, known = of.responses(), functools.partial(quietly, covariates="x")
    stretch, shift = np.array([0.9, 1.0, 1.05, 1.1]), np.array([0.1, -0.2, 0.0, 0.15])
    bank = of.bank.assign(
        item_discrimination_draw=(("draw", "items"), of.a / stretch[:, None]),
        item_intercept_draw=(("draw", "items"), of.d - of.a * (shift / stretch)[:, None]),
    )
    plain = known(responses, bank, domains=of.domains)
    drawn = known(responses, bank, domains=of.domains, n_item_draws=4)
    assert (plain.attrs["n_item_draws"], drawn.attrs["n_item_draws"]) == (0, 4)

    def added(name: str) -> Any:
        se = f"{name}_se"
        np.testing.assert_array_equal(plain[name].values, drawn[name].values)
        return (drawn[se].values ** 2 - plain[se].values ** 2).squeeze()

    def var(x: Any) -> Any:
        return 1.25 * np.var(x, axis=0, ddof=1)

    mean, slope = plain["group_mean"].values[0], plain["regression_coefficient"].values[0, 1]
    sd = plain["residual_sd"].values[0]
    expected = var(stretch[:, None] * mean + shift[:, None])
    np.testing.assert_allclose(added("group_mean"), expected, rtol=0.05)
    np.testing.assert_allclose(
        added("regression_coefficient")[1], var(stretch[:, None] * slope), rtol=0.05
    )
    np.testing.assert_allclose(added("residual_sd"), var(stretch[:, None] * sd), rtol=0.05)
    assert added("residual_correlation").max() < 1e-4
    with pytest.raises(irt.InputError, match="carry no draws"):
        known(responses, of.bank, domains=of.domains, n_item_draws=4)
    with pytest.raises(irt.InputError, match="give 10 or more"):
        known(responses, bank, domains=of.domains, n_item_draws=1)


def test_components_leave_no_level_out_first() -> None:
    """Of eight categories of four levels: how much of "the first level against the others" is kept.

    Columns scaled each by itself have that direction at a fourth of the others' variance, and 95%
    of the variance would lose three of eight such differences whole.
    """
    data = made(1500, 1)
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 4, (1500, 8))
    persons = {f"c{k}": codes[:, k].astype(float) for k in range(8)}
    r = irt.from_array(data.y, item_id=data.ids, persons=persons)
    formula = " + ".join(f"C({name})" for name in persons)
    fit = irt.fit_population(r, data.bank, covariates=formula, n_components=0.95)
    assert fit.attrs["n_components"] == [23]
    terms = np.column_stack([codes[:, k] == level for k in range(8) for level in (1, 2, 3)])
    terms = terms - terms.mean(axis=0)
    left, size, _ = np.linalg.svd(terms / terms.std(axis=0), full_matrices=False)
    alone = left[:, : 1 + np.searchsorted(np.cumsum(size**2), 0.95 * (size**2).sum())]

    def kept(of: Any) -> Any:
        against = np.column_stack([(codes[:, k] > 0) - (codes[:, k] > 0).mean() for k in range(8)])
        return ((of.T @ against) ** 2).sum(axis=0) / (against**2).sum(axis=0)

    predictors = terms @ _per_term(fit)
    own = np.linalg.svd(predictors, full_matrices=False)[0]
    assert kept(own).min() > 0.75
    assert kept(alone).min() < 0.5


def _per_term(fit: Any) -> Any:
    """Components over the terms as they are, without the intercept."""
    said = json.loads(fit.attrs["design"])
    return fit["component_loading"].values[0, 1:, 1:] / np.array(said["half"])[1:, None]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::irt_dask.errors.IrtDaskWarning")
def test_what_is_not_known_of_a_bank_is_in_the_errors() -> None:
    """A test calibrated with 300 persons: the mean of 4,000 others against fits of other samples.

    The spread of means over 12 calibrations is known to a fifth; with items known it is missed by
    a factor.
    """
    rng = np.random.default_rng(5)
    a, d = rng.uniform(0.8, 1.6, 12), rng.normal(size=12)

    def answers(n: int) -> Any:
        p = 1.0 / (1.0 + np.exp(-(a * rng.normal(size=(n, 1)) + d)))
        return (rng.random(p.shape) < p).astype(np.int8)

    others = irt.from_array(answers(4000))
    means, errors, known = [], [], []
    for k in range(12):
        bank = irt.fit_marginal(answers(300), progress=False)
        fit = irt.fit_population(others, bank, n_item_draws=0 if k else 30, progress=False)
        means.append(float(fit["group_mean"][0, 0]))
        (known if k else errors).append(float(fit["group_mean_se"][0, 0]))
        if not k:
            scores = irt.score(others, bank, prior=fit, n_plausible=10, n_item_draws=10)
            values = scores["person_domain_plausible_value"].values[:, :, 0].mean(axis=0)
            assert scores.attrs["n_item_draws"] == 10
            assert values.std(ddof=1) > 0.03
            with pytest.raises(InputError, match="give as many as n_plausible=5"):
                irt.score(others, bank, prior=fit, n_plausible=5, n_item_draws=10)
    spread = np.std(means, ddof=1)
    assert 0.5 < errors[0] / spread < 1.8
    assert max(known) < 0.45 * spread


def test_one_category_is_kept_whole() -> None:
    """Its directions are alike: which of them stayed would be decided by rounding."""
    data = made(1500, 1)
    codes = np.random.default_rng(3).integers(0, 5, 1500).astype(float)
    r = irt.from_array(data.y, item_id=data.ids, persons={"level": codes})
    for n in (2, 0.6):
        fit = irt.fit_population(r, data.bank, covariates="C(level)", n_components=n)
        assert fit.attrs["n_components"] == [4]


@pytest.mark.slow
def test_errors_of_residual_deviations_are_of_what_coefficients_leave() -> None:
    """60 samples of 120 persons with 40 covariates: error over spread, known to a tenth."""
    rng = np.random.default_rng(8)
    a, d = np.full(30, 2.0), rng.normal(size=30)
    bank = xr.Dataset(
        {"item_discrimination": ("items", a), "item_intercept": ("items", d)},
        coords={"item_id": ("items", [f"i{j}" for j in range(30)])}, attrs={"model": "2pl"},
    )  # fmt: skip
    found = []
    for _ in range(60):
        x, theta = rng.normal(size=(120, 40)), rng.normal(size=(120, 1))
        y = (rng.random((120, 30)) < 1.0 / (1.0 + np.exp(-(a * theta + d)))).astype(np.int8)
        persons = {f"x{k}": x[:, k] for k in range(40)}
        r = irt.from_array(y, item_id=bank["item_id"].values, persons=persons)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IrtDaskWarning)
            fit = irt.fit_population(r, bank, covariates=list(persons), progress=False)
        found.append([float(fit[f"residual_sd{x}"][0, 0]) for x in ("", "_se")])
    sd, se = np.array(found).T
    assert abs(sd.mean() - 1.0) < 0.05
    assert 0.75 < se.mean() / sd.std(ddof=1) < 1.35
