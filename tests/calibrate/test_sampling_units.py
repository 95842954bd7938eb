"""Standard errors by sampling unit: against scores by complex steps, and against simulation."""

import warnings

import numpy as np
import pandas as pd
import pytest
from clustered import log_likelihood, sandwich
from items import respond
from parts import csr_of
from scipy.stats import f as f_distribution
from scipy.stats import t as t_distribution

import irt_dask as irt
from irt_dask.calibrate.marginal import errors, sampling
from irt_dask.errors import DataWarning, InputError, IrtDaskWarning, TooLargeError
from irt_dask.population import units
from irt_dask.report.fitted import anchors_table

NAMES = ("item_discrimination_se", "item_intercept_se", "item_difficulty_se")


def fit(responses, **options):
    return irt.fit_marginal(responses, progress=False, **options)


def schools(rng, n_schools, n_each, m, *, icc=0.3, slopes=0.25):
    """Responses of persons of schools, and the school of each."""
    school = np.repeat(np.arange(n_schools), n_each)
    ability = np.sqrt(icc) * rng.standard_normal(n_schools)[school]
    ability += np.sqrt(1.0 - icc) * rng.standard_normal(school.size)
    a, d = rng.lognormal(0.2, slopes, m), rng.normal(0.0, 0.6, m)
    return respond(rng, ability, a, d), school


@pytest.fixture(scope="module")
def small():
    """280 persons of 35 schools and two groups, 5 items; some answers, and persons, are missing."""
    rng = np.random.default_rng(3)
    y, school = schools(rng, 35, 8, 5)
    y = np.where(rng.random(y.shape) < 0.1, -1, y).astype(np.int8)
    y[[3, 50]] = -1
    order = rng.permutation(len(y))
    return SmallData(y[order], school[order], rng.integers(0, 2, len(y)), rng)


class SmallData:
    def __init__(self, y, school, group, rng):
        self.y, self.school, self.group = y, school, group
        self.weight = rng.uniform(0.3, 2.0, len(y))
        self.times = rng.integers(1, 4, len(y)).astype(float)

    def responses(self, **more):
        kind = more.pop("weight_kind", "sampling")
        return irt.from_array(
            self.y, persons={"school": self.school.astype(float), **more}, rows_per_block=70,
            weight_kind=kind,
        )  # fmt: skip


# --- by brute force -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["2pl", "1pl", "weights", "groups", "groups and frequencies"])
def test_errors_are_those_of_sums_over_schools(small, case, monkeypatch):
    s, m = small, small.y.shape[1]
    more, weight = {}, np.ones(len(s.y))
    if case == "weights":
        more["weight"], weight = s.weight, s.weight / s.weight.mean()
    if "groups" in case:
        more["group"] = np.array(["a", "b"])[s.group]
    if "frequencies" in case:
        more |= {"weight": s.times, "weight_kind": "frequency"}
        weight = s.times
    of_all, at = case == "1pl", []

    def kept(rounds, x, *args, covariance=errors.covariance):
        out = covariance(rounds, x, *args)
        at.append((*rounds.model.unpack(x), out.matrix))
        return out

    monkeypatch.setattr(errors, "covariance", kept)
    found = fit(s.responses(**more), model="1pl" if of_all else "2pl", sampling_unit="school")
    (a, d), ability, matrix = at[-1]
    x = np.append(d, a[:1]) if of_all else np.append(a, d)  # as columns are, shared ones last
    x = np.append(x, ability[:, 1]) if "groups" in case else x

    def of_persons(x):
        a, d = (np.repeat(x[m], m), x[:m]) if of_all else (x[:m], x[m : 2 * m])
        mean, log_sd = (x[-2], x[-1]) if "groups" in case else (0.0, 0.0)
        mean, sd = np.where(s.group == 1, mean, 0.0), np.where(s.group == 1, np.exp(log_sd), 1.0)
        return log_likelihood(s.y, a, d, mean, sd)

    want = sandwich(of_persons, x, weight, s.school, (s.y >= 0).any(axis=1))
    unit = np.sqrt(np.diag(want))
    both = np.outer(unit, unit)
    np.testing.assert_allclose(matrix / both, want / both, rtol=0.0, atol=1e-6)
    of_d = unit[:m] if of_all else unit[m : 2 * m]
    np.testing.assert_allclose(found.item_intercept_se, of_d, rtol=1e-6)
    if "groups" in case:
        assert found.group_mean_se.values[1] == pytest.approx(unit[-2], rel=1e-6)
    assert found.attrs["standard_errors"] == "sandwich of sampling units (school)"
    assert (found.attrs["n_sampling_units"], found.attrs["degrees_of_freedom"]) == (35, 34)


MODELS = {
    "3pl": {"model": "3pl"},
    "graded": {"model": "graded"},
    "mixed": {"model": "2pl+gpcm"},
    "histogram": {"latent": "histogram", "max_iterations": 10},
    "prior": {"prior": irt.ItemPrior()},
    "signed": {"positive": "none"},
}


@pytest.mark.parametrize("case", MODELS)
def test_persons_as_units_are_the_sandwich(case):
    """Of every kind of items, by other kernels; the sandwich of equal weights is that without."""
    rng = np.random.default_rng(5)
    categories = {"graded": 3, "mixed": [2, 2, 2, 3, 3, 3]}.get(case, 2)
    a = np.where(np.arange(6) == 5, -1.0, 1.0) if case == "signed" else np.ones(6)
    source = irt.simulate(300, 6, model=MODELS[case].get("model", "2pl"), categories=categories,
                          seed=3, progress=False)  # fmt: skip
    y = np.concatenate([source.read_block(k).data.values for k in range(source.n_blocks)])
    y = np.where(a < 0.0, 1 - y, y) if case == "signed" else y
    y = np.where(rng.random(y.shape) < 0.1, -1, y).astype(np.int8)
    options = MODELS[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)
        r = irt.from_array(y, categories=categories)
        persons = fit(r, standard_errors="sandwich", **options)
        each = fit(r, sampling_unit=np.arange(len(y)), **options)
        equal = irt.from_array(y, categories=categories, persons={"weight": np.full(len(y), 3.0)})
        weighted = fit(equal, **options)
    for name in (n for n in persons if str(n).endswith("_se")):
        np.testing.assert_allclose(each[name], persons[name], rtol=1e-8)
        np.testing.assert_array_equal(weighted[name], persons[name])
    assert np.isfinite(persons.item_intercept_se).all()
    assert persons.attrs["n_sampling_units"] == each.attrs["n_sampling_units"] == 300


def test_rows_that_count_several_persons_are_so_many_units_of_the_sandwich(small):
    s = small
    r = s.responses(weight=s.times, weight_kind="frequency")
    rows = fit(r, standard_errors="sandwich")
    written = fit(np.repeat(s.y, s.times.astype(int), axis=0), standard_errors="sandwich")
    assert rows.attrs["n_sampling_units"] == written.attrs["n_sampling_units"]
    for name in NAMES:
        np.testing.assert_allclose(rows[name], written[name], rtol=1e-8)


# --- blocks and labels ----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_bits_however_persons_lie(small, bits, tmp_path):
    """Blocks, layouts, orders of persons, labels as covariates, in arrays and as text; a store."""
    s = small
    persons = {"school": s.school.astype(float), "weight": s.weight}
    want = bits(fit(s.responses(weight=s.weight), sampling_unit="school"))
    text = np.array([f"s{k:02}" for k in s.school], dtype=object)
    order = np.argsort(s.school, kind="stable")
    for rows, labels, layout, at in (
        (280, s.school, np.asarray, slice(None)),
        (33, text, np.asarray, slice(None)),
        (101, pd.Series(s.school), csr_of, slice(None)),
        (64, pd.Categorical(text), np.asarray, slice(None)),
        (19, s.school[order], np.asarray, order),  # each in a block or two
    ):
        own = {k: v[at] for k, v in persons.items()}
        given = layout(s.y[at])
        more = {"observed": "stored"} if layout is csr_of else {}
        r = irt.from_array(given, persons=own, rows_per_block=rows, **more)
        found = fit(r, sampling_unit=labels)
        found.attrs["standard_errors"] = "sandwich of sampling units (school)"
        assert bits(found) == want


def test_a_group_is_a_unit_and_persons_without_responses_count_nowhere(small):
    s = small
    label = np.array([f"v{k}" for k in s.school])
    label[[3, 50]] = ["alone", "too"]  # nobody else is there, and they answered nothing
    s.y[[3, 50]] = -1
    r = s.responses(group=label)
    one = fit(r, groups=False, sampling_unit="person_group")
    two = fit(r, groups=False, sampling_unit=label)
    few = fit(r.select(persons=(s.y >= 0).any(axis=1)), groups=False, sampling_unit="group")
    for other in (two, few):
        assert other.attrs["n_sampling_units"] == one.attrs["n_sampling_units"] == 35
        for name in NAMES:
            np.testing.assert_allclose(other[name], one[name], rtol=1e-9)


# --- what can be asked ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"standard_errors": "robust"}, "standard_errors='robust' is not available; choose True"),
        ({"standard_errors": 1}, "standard_errors=1 is not available"),
        ({"standard_errors": False, "sampling_unit": "school"}, "no use for sampling_unit"),
        ({"standard_errors": "information", "sampling_unit": "school"}, "no use for sampling_unit"),
        ({"sampling_unit": "person_group"}, "is no covariate of the persons; they have school"),
        ({"sampling_unit": 7}, r"has the shape \(\); give the name of a covariate, or one label"),
        ({"sampling_unit": [1, 2]}, r"has the shape \(2,\).*for each of 280 persons"),
        ({"sampling_unit": np.zeros(280)}, "all persons have the same one"),
        ({"sampling_unit": [None, "", *map(str, range(278))]}, r"2 person\(s\) have none"),
        ({"sampling_unit": np.arange(280) + 2.0**53}, "numbers from 2.53 on need not differ"),
        ({"sampling_unit": pd.Series(range(280), index=range(280, 0, -1))}, "index of sampling"),
    ],
)
def test_what_is_refused(small, options, message):
    with pytest.raises(InputError, match=message):
        fit(small.responses(), **options)


def test_empty_labels_are_counted(small):
    school = small.school.astype(float)
    school[[0, 100, 200]] = np.nan
    r = irt.from_array(small.y, persons={"school": school}, rows_per_block=50)
    with pytest.raises(InputError, match=r"3 person\(s\) have none \(NaN or nothing in school\)"):
        fit(r, sampling_unit="school")


def test_one_unit_with_responses_is_refused(small):
    y = np.where((small.school == 0)[:, None], small.y, -1)
    y[small.school == 0] = np.random.default_rng(0).integers(0, 2, (8, y.shape[1]))
    with pytest.raises(InputError, match="the persons with a response are all of 1 unit"):
        fit(irt.from_array(y), sampling_unit=small.school)


def test_few_units_are_warned_of(small):
    with pytest.warns(DataWarning, match=r"there are 29 sampling units .*28 degrees of freedom"):
        found = fit(small.responses(), sampling_unit=small.school % 29)
    assert found.attrs["degrees_of_freedom"] == 28


def test_the_information_is_no_answer_with_unequal_weights(small):
    with pytest.raises(InputError, match=r"sampling weights from .*standard_errors='sandwich'"):
        fit(small.responses(weight=small.weight), standard_errors="information")
    plain = fit(small.responses())
    equal = fit(small.responses(weight=np.full(280, 2.0)), standard_errors="information")
    asked = fit(small.responses(), standard_errors="information")
    for name in NAMES:
        np.testing.assert_allclose(equal[name], plain[name], rtol=1e-9)
        np.testing.assert_array_equal(asked[name], plain[name])
    assert "degrees_of_freedom" not in {*equal.attrs, *plain.attrs}


def test_sums_of_units_have_room_or_are_refused(small, monkeypatch):
    monkeypatch.setattr(units, "_BYTES", 8 * 35 * 10 - 1)
    with pytest.raises(TooLargeError, match="35 sampling units by 10 parameters take"):
        fit(small.responses(), sampling_unit="school")
    monkeypatch.setattr(sampling, "MAX_BY_DEFAULT", 9)  # who names units wants standard errors
    monkeypatch.setattr(units, "_BYTES", 1 << 30)
    assert np.isfinite(fit(small.responses(), sampling_unit="school").item_intercept_se).all()


# --- tests that rest on them ----------------------------------------------------------------------


def test_tests_of_anchors(small):
    """F tests; there is none of more degrees of freedom than units allow."""
    bank = fit(small.responses()).isel(items=[0, 1, 2])
    found = fit(small.responses(), fixed_items=bank, sampling_unit="school")
    chi2, p = found.item_anchor_chi2.values[:3], found.item_anchor_p_value.values[:3]
    np.testing.assert_allclose(p, f_distribution.sf(chi2 * 33 / (2 * 34), 2, 33))
    df = found.attrs["anchor_df"]
    want = f_distribution.sf(found.attrs["anchor_chi2"] * (35 - df) / (df * 34), df, 35 - df)
    assert found.attrs["anchor_p_value"] == pytest.approx(want)
    remarks = anchors_table(found).remarks
    assert "P-values are those of F tests, of 35 units." in remarks
    plain = fit(small.responses(), fixed_items=bank, standard_errors="sandwich")
    each = fit(small.responses(), fixed_items=bank, sampling_unit=np.arange(280))
    np.testing.assert_allclose(each.item_anchor_chi2, plain.item_anchor_chi2, rtol=0.02)
    with pytest.warns(DataWarning) as said:
        few = fit(small.responses(), fixed_items=bank, sampling_unit=small.school % 3)
    assert any("no test of all anchors together" in str(w.message) for w in said)
    assert np.isnan(few.attrs["anchor_p_value"])


def test_comparing_two_calibrations_counts_units(small):
    other = np.concatenate([small.y, small.y[small.school < 5]])
    school = np.append(small.school, 40 + small.school[small.school < 5])
    one, two = fit(small.responses(), sampling_unit="school"), fit(other, sampling_unit=school)
    found = irt.lord_dif(one, two)
    v = [f.item_difficulty_se.values**2 for f in (one, two)]
    df = (v[0] + v[1]) ** 2 / (v[0] ** 2 / 34 + v[1] ** 2 / 39)
    t = found.item_difficulty_difference / found.item_difficulty_difference_se
    np.testing.assert_allclose(
        found.item_lord_difficulty_p_value, 2.0 * t_distribution.sf(np.abs(t), df)
    )
    assert irt.link(one, two, method="haebara").attrs["degrees_of_freedom"] == 39


# --- over samples ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("model", ["2pl", pytest.param("1pl", marks=pytest.mark.nightly)])
def test_errors_over_samples_of_schools(model):
    """100 schools of 30, intraclass correlation .3: errors hold with units, and not without."""
    rng, m, n_sets = np.random.default_rng(11), 12, 250
    a = np.ones(m) if model == "1pl" else rng.lognormal(0.0, 0.25, m)
    d, school = rng.normal(0.0, 1.0, m), np.repeat(np.arange(100), 30)
    value, by_unit = np.empty((2, n_sets, m))
    without = np.empty((20, m))  # hardly differs from sample to sample
    for k in range(n_sets):
        ability = np.sqrt(0.3) * rng.standard_normal(100)[school]
        ability += np.sqrt(0.7) * rng.standard_normal(school.size)
        y = respond(rng, ability, a, d)
        found = fit(y, model=model, sampling_unit=school)
        value[k], by_unit[k] = found.item_intercept, found.item_intercept_se
        if k < len(without):
            without[k] = fit(y, model=model).item_intercept_se
    sd = np.sqrt(value.var(axis=0, ddof=1))
    assert 0.95 < (by_unit.mean(axis=0) / sd).mean() < 1.05
    assert 0.6 < (without.mean(axis=0) / sd).mean() < 0.75
