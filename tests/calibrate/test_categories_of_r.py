"""Parameters of items of more than two categories and their errors, in the forms that R has them.

Mirt's with slopes of 1 and a free variance, centred, or classical are functions of those here, and
their errors follow from ``item_parameter_covariance``.  Its Oakes errors hold to .001.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from reference_r import fitted, folder_of, moments

import irt_dask as irt

CLOSE = {"rtol": 1e-3}


def slow(*tags):
    return [pytest.param(tag, marks=pytest.mark.slow) for tag in tags]


def table_of(folder, tag, form="slope-intercept"):
    table = pd.read_csv(folder / "params" / f"{tag}.csv")
    return table[table["form"] == form].set_index(["item", "par"])[["est", "se"]].sort_index()


class Parameters:
    """Values of a fit's parameters by item and name, with errors of what is made of them."""

    def __init__(self, fit):
        names = zip(fit["parameter_item"].values, fit["parameter_column"].values, strict=True)
        self.at = {name: k for k, name in enumerate(names)}
        self.covariance = fit["item_parameter_covariance"].values
        self.values = np.empty(len(self.at))
        variables = {"a": "item_discrimination", "d": "item_step_intercept",
                     "s": "item_category_score"}  # fmt: skip
        ids = fit["item_id"].values.tolist()
        for (item, name), k in self.at.items():
            one = fit[variables[name[0]]].values[ids.index(item)]
            shift = 1 if name[0] == "d" else 0
            self.values[k] = one if name == "a" else one[int(name[1:] or 1) - shift]

    def of(self, function):
        """A function of the values, by name, and its error by the delta method."""

        def value(x):
            return function(lambda *name: x[self.at[name]] if name in self.at else 0.0)

        h = 1e-5 * np.eye(self.values.size)
        gradient = [(value(self.values + e) - value(self.values - e)) / 2e-5 for e in h]
        return value(self.values), np.sqrt(gradient @ self.covariance @ gradient)

    def agree(self, function, row):
        """Whether it is R's, and so is its error."""
        value, error = self.of(function)
        assert value == pytest.approx(row["est"], rel=1e-3, abs=5e-4)
        assert error == pytest.approx(row["se"], rel=1e-3)


@pytest.mark.parametrize("tag", ["science_rsm", *slow("eclsk_rsm")])
def test_rating_scale(real_data, tag):
    """Common steps b of the first item, how much easier c the others are, and the variance."""
    folder = folder_of(real_data)
    y, _, fit = fitted(folder, tag)
    mirt, own, first = table_of(folder, tag), Parameters(fit), y.columns[0]
    own.agree(lambda x: x(first, "a") ** 2, mirt.loc["GroupPars", "COV_11"])
    for h in range(1, y.max().max() + 1):
        own.agree(
            lambda x, h=h: x(first, f"d{h - 1}") - x(first, f"d{h}"), mirt.loc[first, f"b{h}"]
        )
    for item in y.columns[1:]:
        own.agree(lambda x, item=item: x(item, "d1") - x(first, "d1"), mirt.loc[item, "c"])


@pytest.mark.parametrize("tag", ["timss_pcm", *slow("science_pcm", "eclsk_pcm")])
def test_partial_credit(real_data, tag):
    """The variance, intercepts, and steps in units in which slopes are 1."""
    folder = folder_of(real_data)
    y, _, fit = fitted(folder, tag)
    models = pd.read_csv(folder / "models.csv").set_index("tag")
    assert fit.attrs["log_likelihood"] == pytest.approx(models.loc[tag, "logLik"], abs=1e-3)
    mirt, own = table_of(folder, tag), Parameters(fit)
    classical = table_of(folder, tag, "classical")
    own.agree(lambda x: x(y.columns[0], "a") ** 2, mirt.loc["GroupPars", "COV_11"])
    for item, k in (y.max() + 1).items():
        for h in range(1, k):
            name = f"d{h}" if k > 2 else "d"
            own.agree(lambda x, i=item, n=name: x(i, n), mirt.loc[item, name])
            if k > 2:
                own.agree(lambda x, i=item, h=h: x(i, f"d{h - 1}") - x(i, f"d{h}"),
                          classical.loc[item, f"b{h}"])  # fmt: skip


@pytest.mark.parametrize(
    "tag", ["science_grm", "timss_2pl_gpcm",
            *slow("science_gpcm", "timss_2pl_grm", "eclsk_grm", "eclsk_gpcm")],
)  # fmt: skip
def test_step_difficulties(real_data, tag):
    """Classical b, of steps or of the chance to reach a category, and their errors.

    Mirt's error of the first step of gpcm is another than that of -d1 / a by the covariance which
    all its other errors, of a, d1 and the later steps, are of.
    """
    folder = folder_of(real_data)
    y, _, fit = fitted(folder, tag)
    mirt, own = table_of(folder, tag, "classical"), Parameters(fit)
    for j, (item, k) in enumerate((y.max() + 1).items()):
        names = [f"b{h}" for h in range(1, k)] if k > 2 else ["b"]
        rows = mirt.loc[[(item, n) for n in names]]
        found, errors = (fit[n].values[j, : k - 1]
                         for n in ("item_step_difficulty", "item_step_difficulty_se"))  # fmt: skip
        np.testing.assert_allclose(found, rows["est"], **CLOSE)
        first = int(tag.endswith("gpcm") and k > 2)
        np.testing.assert_allclose(errors[first:], rows["se"][first:], **CLOSE)
        name = "d1" if k > 2 else "d"
        value, error = own.of(lambda x, i=item, n=name: -x(i, n) / x(i, "a"))
        np.testing.assert_allclose((found[0], errors[0]), (value, error), rtol=1e-6)


def test_nominal(real_data):
    """Scores and intercepts from the first category on, with errors, and centred as Bock's."""
    folder, tag = folder_of(real_data), "science_nominal"
    y, _, fit = fitted(folder, tag)
    models = pd.read_csv(folder / "models.csv").set_index("tag")
    assert fit.attrs["log_likelihood"] == pytest.approx(models.loc[tag, "logLik"], abs=1e-3)
    assert fit.attrs["n_parameters"] == 24
    mirt, own = table_of(folder, tag), Parameters(fit)
    classical = table_of(folder, tag, "classical")
    for item in y.columns:
        own.agree(lambda x, i=item: x(i, "s3") / 3.0, mirt.loc[item, "a1"])
        for k in (1, 2):
            own.agree(lambda x, i=item, k=k: 3.0 * x(i, f"s{k}") / x(i, "s3"),
                      mirt.loc[item, f"ak{k}"])  # fmt: skip
        for k in range(4):
            if k:
                own.agree(lambda x, i=item, k=k: x(i, f"d{k}"), mirt.loc[item, f"d{k}"])
            for letter, of in (("s", "a"), ("d", "c")):
                own.agree(lambda x, i=item, k=k, n=letter: x(i, f"{n}{k}")
                          - sum(x(i, f"{n}{v}") for v in (1, 2, 3)) / 4.0,
                          classical.loc[item, f"{of}{k + 1}"])  # fmt: skip


@pytest.mark.slow
def test_nominal_of_teachers_ratings(real_data):
    """Higher than either end of mirt's search (-159408.52, and -159408.13 from its own start)."""
    _, _, fit = fitted(folder_of(real_data), "eclsk_nominal")
    assert fit.attrs["n_parameters"] == 72
    assert -159408.1326 < fit.attrs["log_likelihood"] < -159408.0
    gpcm = fitted(folder_of(real_data), "eclsk_gpcm")[2]
    assert fit.attrs["log_likelihood"] > gpcm.attrs["log_likelihood"] + 200.0


@pytest.mark.parametrize("tag", ["science_gpcm", "timss_2pl_gpcm", "science_pcm", "timss_pcm",
                                 "science_rsm"])  # fmt: skip
def test_tables_of_tam(real_data, tag):
    """B are slopes times categories, AXsi intercepts the other way; the variance is free or 1."""
    folder = folder_of(real_data)
    y, _, fit = fitted(folder, tag)
    name = f"tam_{tag.replace('2pl_', '')}"
    table = pd.read_csv(folder / "params" / f"{name}_item.csv", index_col="item")
    variance = float((folder / "params" / f"{name}_pop.txt").read_text().split()[3])
    slope = fit["item_discrimination"].values
    np.testing.assert_allclose(slope / np.sqrt(variance), table["B.Cat1.Dim1"], **CLOSE)
    for k in range(1, y.max().max() + 1):
        some = (y.max() >= k).values
        steps = fit["item_step_intercept"].values[some, k - 1]
        np.testing.assert_allclose(steps, -table[f"AXsi_.Cat{k}"][some], rtol=1e-3, atol=2e-4)


def test_data_of_tams_manual(real_data):
    """Three items: what TAM prints of partial credit, and deviances."""
    path = real_data / "polytomous" / "data_gpcm.csv"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    r = irt.from_array(pd.read_csv(path).iloc[:, 1:], categories=4)
    fit = irt.fit_marginal(r, model="pcm", progress=False)
    assert -2.0 * fit.attrs["log_likelihood"] == pytest.approx(2464.09877, abs=2e-5)
    sd = float(fit["item_discrimination"][0])
    assert sd**2 == pytest.approx(0.65427, abs=1e-4)
    np.testing.assert_allclose(
        -fit["item_step_intercept"],
        [(-1.302, 1.154, 3.881), (-1.706, -0.847, 0.833), (-1.233, -0.404, 1.806)],
        atol=2e-3,
    )
    np.testing.assert_allclose(
        sd * fit["item_threshold"],
        [(-1.3252, 2.0717, 3.1398), (-1.7777, 0.6459, 1.9712), (-1.3435, 0.7492, 2.4032)],
        atol=1.5e-3,
    )
    other = irt.fit_marginal(r, model="gpcm", standard_errors=False, progress=False)
    assert -2.0 * other.attrs["log_likelihood"] == pytest.approx(2450.68965, abs=2e-5)


@pytest.mark.parametrize("tag", ["science_pcm", "science_rsm", "timss_pcm"])
def test_persons_and_fit_of_erm(real_data, tag):
    """ML at each sum and mean squares at it, of persons without the lowest or highest sum.

    ERm's chi-square has persons as degrees of freedom, its thresholds another zero.
    """
    folder = folder_of(real_data)
    y, r, marginal = fitted(folder, tag)
    fit = irt.fit_conditional(r, model=marginal.attrs["model"], progress=False)
    erm = {n: pd.read_csv(folder / "cml" / f"erm_{tag}_{n}.csv")
           for n in ("thresholds", "person_ml", "itemfit")}  # fmt: skip
    steps = erm["thresholds"].filter(like="Threshold").values
    shift = np.nanmean(fit["item_step_difficulty"].values - steps)
    np.testing.assert_allclose(fit["item_step_difficulty"] - shift, steps, atol=1e-4)
    total, ability = y.sum(axis=1).values, irt.score(r, fit, method="ml", progress=False)
    ability = ability["person_ability"].values
    inside = (total > 0) & (total < y.max().sum())
    table = erm["person_ml"].set_index("raw")["theta_ML"]
    np.testing.assert_allclose(ability[inside] - shift, table[total[inside]], atol=1e-4)
    mean, variance = moments(fit, ability[inside])
    square = (y.values[inside] - mean) ** 2
    np.testing.assert_array_equal(erm["itemfit"]["df"], inside.sum())
    np.testing.assert_allclose((square / variance).sum(axis=0), erm["itemfit"]["chisq"], rtol=2e-5)
    infit = square.sum(axis=0) / variance.sum(axis=0)
    np.testing.assert_allclose(infit, erm["itemfit"]["infit_msq"], rtol=2e-5)
