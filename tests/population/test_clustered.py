"""Standard errors of conditioning models to persons of schools: brute force, and simulation."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner
from items import respond

import irt_dask as irt
from irt_dask.cli.main import cli
from irt_dask.errors import DataWarning, InputError, IrtDaskWarning, TooLargeError
from irt_dask.population import units

M = 12


class Schools(NamedTuple):
    """Persons of schools, which differ in ability and in the covariate."""

    y: Any
    x: Any
    school: Any
    a: Any
    d: Any

    @classmethod
    def made(cls, seed: int, n: int, each: int, effect: float, m: int = M) -> Schools:
        rng = np.random.default_rng([41, seed])
        school = np.repeat(np.arange(n), each)
        x = rng.standard_normal(school.size) + 0.5 * rng.standard_normal(n)[school]
        theta = 0.5 * x + effect * rng.standard_normal(n)[school]
        theta += 0.7 * rng.standard_normal(school.size)
        a, d = rng.uniform(0.8, 1.6, m), rng.standard_normal(m)
        return cls(respond(rng, theta, a, d), x, school, a, d)

    @property
    def bank(self) -> xr.Dataset:
        return xr.Dataset(
            {"item_discrimination": ("items", self.a), "item_intercept": ("items", self.d)},
            coords={"item_id": ("items", [f"i{j}" for j in range(self.a.size)])},
            attrs={"model": "2pl"},
        )

    def responses(self, **columns: Any) -> irt.Responses:
        known = {"x": self.x, "school": self.school.astype(float)}
        return irt.from_array(
            self.y, item_id=self.bank["item_id"].values.tolist(), persons=known | columns,
            rows_per_block=317,
        )  # fmt: skip

    def fit(self, *, columns: Any = None, **options: Any) -> xr.Dataset:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IrtDaskWarning)
            return irt.fit_population(
                self.responses(**(columns or {})), self.bank,
                **{"covariates": "x", "sampling_unit": "school"} | options,
            )  # fmt: skip


@pytest.fixture(scope="module")
def schools() -> Schools:
    return Schools.made(1, 25, 100, 0.6)


@pytest.mark.parametrize("weighted", [False, True])
def test_errors_are_those_of_sums_of_differences_by_school(
    schools: Schools, weighted: bool
) -> None:
    """Scores and information by finite differences of a likelihood on a grid.

    The information of the variance is that of scores' squares: alike for many persons alone.
    """
    n, x = schools.school.size, schools.x
    w = np.random.default_rng(2).uniform(0.5, 2.0, n) if weighted else np.ones(n)
    fit = schools.fit(columns={"weight": w} if weighted else None)
    t = np.linspace(-6.5, 6.5, 261)
    z = schools.a[:, None] * t + schools.d[:, None]
    given = schools.y @ -np.logaddexp(0, -z) + (1 - schools.y) @ -np.logaddexp(0, z)

    def of_each(p: Any) -> Any:
        log = given - 0.5 * (t - (p[0] + p[1] * x)[:, None]) ** 2 / p[2] - 0.5 * np.log(p[2])
        top = log.max(axis=1)
        return top + np.log(np.exp(log - top[:, None]).sum(axis=1))

    b = fit["regression_coefficient"].values[0, :, 0]
    taken = fit["component_coefficient_covariance"].values[0].trace()
    at = np.array([*b, fit["residual_sd"].values[0, 0] ** 2 - taken])
    step = 1e-4 * np.eye(3)
    scores = np.stack([(of_each(at + h) - of_each(at - h)) / 2e-4 for h in step], axis=1)
    assert np.abs(w @ scores).max() < 0.02 * n**0.5
    wide = 1e-3 * np.eye(3)
    value = {(i, j, s, r): w @ of_each(at + s * wide[i] + r * wide[j])
             for i in range(3) for j in range(3) for s in (1, -1) for r in (1, -1)}  # fmt: skip
    information = np.array([
        [-sum(s * r * value[i, j, s, r] for s in (1, -1) for r in (1, -1)) / 4e-6
         for j in range(3)] for i in range(3)
    ])  # fmt: skip
    sums = np.stack([(w[:, None] * scores)[schools.school == c].sum(axis=0) for c in range(25)])
    moves = sums @ np.linalg.inv(information)
    mean = w @ x / w.sum()
    drawn = np.bincount(schools.school, w * (x - mean) * at[1]) / w.sum()
    of_mean = moves[:, 0] + moves[:, 1] * mean + drawn
    c = 25 / 24
    np.testing.assert_allclose(
        fit["regression_coefficient_se"].values[0, :, 0],
        np.sqrt(c * (moves[:, :2] ** 2).sum(axis=0)), rtol=0.004,
    )  # fmt: skip
    assert float(fit["group_mean_se"].values[0, 0]) == pytest.approx(
        np.sqrt(c * (of_mean**2).sum()), rel=0.002
    )
    assert float(fit["residual_sd_se"].values[0, 0]) == pytest.approx(
        np.sqrt(c * (moves[:, 2] ** 2).sum()) / 2 / np.sqrt(at[2]), rel=0.04
    )
    assert fit.attrs["n_sampling_units"] == [25]
    assert fit.attrs["degrees_of_freedom"] == [24]
    plain = schools.fit(columns={"weight": w} if weighted else None, sampling_unit=None)
    assert (fit["group_mean_se"] / plain["group_mean_se"]).item() > 2.5  # of 100 who are alike
    # Values are drawn as without units.
    for name in ("component_coefficient_covariance", "residual_sd_error", "residual_sd"):
        np.testing.assert_array_equal(fit[name].values, plain[name].values)


def test_labels_may_be_a_name_an_array_or_groups(schools: Schools) -> None:
    one = schools.fit()
    text = np.array([f"school {s}" for s in schools.school])
    two = schools.fit(sampling_unit=text)
    three = schools.fit(columns={"group": text}, sampling_unit="person_group", by_group=False)
    for name in one.data_vars:
        np.testing.assert_array_equal(one[name].values, two[name].values)
        np.testing.assert_array_equal(one[name].values, three[name].values)
    assert two.attrs["standard_errors"] == "sandwich of sampling units (an array)"


def test_each_group_has_units_of_its_own(schools: Schools) -> None:
    """As if the others were not there; also where a unit has persons of both."""
    group = np.where(np.arange(schools.school.size) % 3 == 0, "south", "north")
    both = schools.fit(columns={"group": group})
    for g, label in enumerate(("north", "south")):
        its = group == label
        part = Schools(schools.y[its], schools.x[its], schools.school[its], schools.a, schools.d)
        alone = part.fit()
        for name in ("regression_coefficient_se", "group_mean_se", "residual_sd_se"):
            # the same nodes lie elsewhere, and ranges of the covariate differ
            np.testing.assert_allclose(both[name].values[g], alone[name].values[0], rtol=1e-4)


@pytest.mark.slow
def test_many_domains_are_those_alone(schools: Schools) -> None:
    """Four are fitted one by one; errors of a correlation are not known, as without units."""
    ids = schools.bank["item_id"].values.tolist()
    domains = {f"d{k}": ids[3 * k : 3 * k + 3] for k in range(4)}
    fit = schools.fit(domains=domains)
    part = schools._replace(y=schools.y[:, 6:9], a=schools.a[6:9], d=schools.d[6:9])
    alone = part.fit()
    for name in ("regression_coefficient_se", "group_mean_se", "residual_sd_se"):
        np.testing.assert_allclose(
            fit[name].values[..., 2], alone[name].values[..., 0], rtol=1e-9, atol=0
        )
    some = slice(None, None, 5)  # three dimensions at once cost much
    few = schools._replace(
        y=schools.y[some, :9], x=schools.x[some], school=schools.school[some],
        a=schools.a[:9], d=schools.d[:9],
    )  # fmt: skip
    three = few.fit(domains={k: domains[k] for k in ("d0", "d1", "d2")})
    assert np.isfinite(three["residual_correlation_se"].values).all()


def test_few_units_are_named_and_none_are_refused(schools: Schools, monkeypatch: Any) -> None:
    r, bank = schools.responses(), schools.bank
    with pytest.warns(DataWarning, match=r"few sampling units \(school\): 'all' \(25\); below 30"):
        irt.fit_population(r, bank, sampling_unit="school")
    with pytest.raises(InputError, match="sampling_unit='town' is no covariate of the persons"):
        irt.fit_population(r, bank, sampling_unit="town")
    with pytest.raises(InputError, match="all persons have the same one"):
        irt.fit_population(r, bank, sampling_unit=np.zeros(schools.school.size))
    group = np.where(schools.school == 3, "south", "north")
    grouped = schools.responses(group=group)
    with pytest.raises(InputError, match="'south' with a response are all of one unit"):
        irt.fit_population(grouped, bank, sampling_unit="school")
    monkeypatch.setattr(units, "_BYTES", 100)
    with pytest.raises(TooLargeError, match="sums of scores of 25 sampling units by"):
        irt.fit_population(r, bank, sampling_unit="school")


def test_terms_that_few_units_tell_of_have_no_errors(schools: Schools) -> None:
    """Units that are terms themselves take up their scores: errors of .01 where .2 is true."""
    text = np.array([f"s{k:02d}" for k in schools.school])
    r = schools.responses(place=text)
    with pytest.warns(DataWarning) as caught:
        fit = irt.fit_population(r, schools.bank, covariates="place + x", sampling_unit="school")
    said = " ".join(str(w.message) for w in caught)
    assert "25 for 25 of 'all'; standard errors of terms that differ between units" in said
    assert "'place[T.s01]' (2 of 'all')" in said
    se = fit["regression_coefficient_se"].values[0, :, 0]
    assert np.isnan(se[1:25]).all()
    assert np.isfinite(se[25])
    # a covariate in which all schools differ has one
    assert np.isfinite(schools.fit()["regression_coefficient_se"].values).all()


def test_the_command_has_them(schools: Schools, tmp_path: Any) -> None:
    store, bank, out = (str(tmp_path / name) for name in ("store", "bank.csv", "population.nc"))
    ids = [f"p{i}" for i in range(len(schools.y))]
    about = pd.DataFrame({"person": ids, "x": schools.x, "school": schools.school})
    about.to_csv(tmp_path / "persons.csv", index=False)
    items = schools.bank["item_id"].values
    answers = pd.DataFrame(schools.y, columns=items).assign(person=ids)
    answers.to_csv(tmp_path / "y.csv", index=False)
    irt.ingest(tmp_path / "y.csv", store, persons=tmp_path / "persons.csv")
    irt.write_items(schools.bank, bank)
    asked = ["population", store, bank, "--covariates", "x", "--sampling-unit", "school"]
    ran = CliRunner().invoke(cli, [*asked, "--out", out, "--cluster", "none"])
    assert ran.exit_code == 0, ran.output
    assert "Standard errors are those of a sample of units (school): 25" in ran.output
    known = xr.load_dataset(out, engine="scipy")
    np.testing.assert_allclose(known["group_mean_se"], schools.fit()["group_mean_se"], rtol=1e-7)


@pytest.mark.nightly
def test_errors_are_the_spread_over_samples() -> None:
    """100 schools of 10, 200 samples, over which the spread is known to 5%.

    Limits are 2.6 of its standard errors, for each of three: one in 40 would fail by chance; the
    seeds are fixed.  Taken as drawn one by one, errors of the intercept are half as large.
    """
    found = []
    for seed in range(200):
        made = Schools.made(100 + seed, 100, 10, 0.5)
        both = made.fit(), made.fit(sampling_unit=None)
        names = ("regression_coefficient", "group_mean")
        value = np.concatenate([both[0][n].values.ravel() for n in names])
        errors = [np.concatenate([f[f"{n}_se"].values.ravel() for n in names]) for f in both]
        found.append([value, *errors])
    value, units, plain = np.moveaxis(np.array(found), 1, 0)
    sd = value.std(axis=0, ddof=1)
    assert (np.abs(units.mean(axis=0) / sd - 1.0) < 0.13).all()
    assert (plain.mean(axis=0) / sd)[[0, 2]].max() < 0.7
