"""Abilities from items of any number of categories: brute force, maxima, R mirt's."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from categories import category_probability
from reference_r import curve, fitted, folder_of, unit
from scipy.optimize import minimize_scalar

import irt_dask as irt
from irt_dask.curves.grids import GRID_BOUND
from irt_dask.errors import InputError
from irt_dask.items.parameters import item_set

K = (2, 3, 4, 3, 5, 3)
#: Models of which tables are made in different ways; nominal scores are of any sign.
KINDS = {
    "any": ("3pl", "gpcm", "graded", "nominal", "gpcm", "graded"),
    "by score": ("2pl", "gpcm", "gpcm", "nominal", "gpcm", "gpcm"),
}
NAMES = tuple(f"item{j + 1}" for j in range(6))
GRID = np.linspace(-9.0, 9.0, 1441)


def data(kind, n=150, missing=0.25, turned=True):
    """Responses, their bank and P by item; the nominal item runs the other way."""
    r = irt.simulate(n, 6, model=dict(zip(NAMES, KINDS[kind], strict=True)), categories=K, seed=3,
                     missing=missing)  # fmt: skip
    bank = r.truth.drop_dims("persons")
    if turned:
        bank["item_category_score"][3] *= -0.7
    y = r.to_xarray()["response"].values
    p = []
    for j, (model, k) in enumerate(zip(KINDS[kind], K, strict=True)):
        steps = bank["item_step_intercept"].values[j, : k - 1]
        x = [float(bank["item_discrimination"][j]), *steps]
        if model == "3pl":
            x.append(float(bank["item_guessing"][j]))
        elif model == "nominal":
            x = [*bank["item_category_score"].values[j, 1:k], *steps]
        p.append(category_probability(model, GRID, np.array(x)))
    return r, bank, y, p


def likelihoods(y, p):
    out = np.ones((len(y), p[0].shape[0]))
    for j, own in enumerate(p):
        seen = y[:, j] >= 0
        out[seen] *= own[:, y[seen, j]].T
    return out


@pytest.mark.parametrize("missing", [0.0, 0.25])
@pytest.mark.parametrize("kind", KINDS)
def test_posterior_means(kind, missing):
    """Of one normal, and of groups; blocks where tables pay, and others."""
    r, bank, y, p = data(kind, 4000, missing)
    w = likelihoods(y, p) * np.exp(-0.5 * GRID**2)
    mean = w @ GRID / w.sum(axis=1)
    sd = np.sqrt(w @ GRID**2 / w.sum(axis=1) - mean**2)
    got = irt.score(r, bank, progress=False)
    np.testing.assert_allclose(got["person_ability"], mean, atol=1e-8)
    np.testing.assert_allclose(got["person_ability_sd"], sd, atol=1e-8)
    few = irt.from_array(y[:100], categories=K, item_id=NAMES, rows_per_block=7)
    again = irt.score(few, bank, progress=False)
    np.testing.assert_array_equal(again["person_ability"], got["person_ability"][:100])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["map", "ml", "wle"])
def test_point_estimates(kind, method):
    r, bank, y, _ = data(kind)
    got = irt.score(r, bank, method=method, progress=False)
    items = item_set(bank, r.item_id)
    fine = np.linspace(-GRID_BOUND, GRID_BOUND, 2801)
    log_p, slope = items.log_p(fine), items.by_ability(fine)
    first = items.first

    def goal(i, x):
        """What is highest at the estimate, on an array of abilities."""
        seen = np.flatnonzero(y[i] >= 0)
        at = np.atleast_1d(x)
        log, (one, _) = items.log_p(at), items.by_ability(at)
        value = log[first[seen] + y[i, seen]].sum(axis=0)
        if method == "map":
            return value - 0.5 * at**2
        if method == "ml":
            return value
        own = np.concatenate([np.arange(first[j], first[j + 1]) for j in seen])
        info = (np.exp(log[own]) * one[own] ** 2).sum(axis=0)
        return value + 0.5 * np.log(
            info
        )  # Jeffreys: Warm's, where scores do not go with their slopes

    if method == "wle" and kind == "any":  # guessing: Warm's equation has no such goal
        items = items.take(np.arange(1, 6))
        r, y = r.select(items=NAMES[1:]), y[:, 1:]
        got, first = irt.score(r, bank, method=method, progress=False), items.first
    checked = 0
    for i in range(40):
        if not (y[i] >= 0).any():
            continue
        value = goal(i, fine)
        at = int(value.argmax())
        if not 1 < at < fine.size - 2 or abs(fine[at]) > 5.5:
            continue
        best = minimize_scalar(
            lambda x, i=i: -goal(i, x)[0], bracket=(fine[at - 1], fine[at], fine[at + 1]),
            options={"xtol": 1e-11},
        ).x  # fmt: skip
        assert float(got["person_ability"][i]) == pytest.approx(best, abs=2e-5)
        checked += 1
    assert checked > 20
    assert log_p.shape == slope[0].shape


def test_score_tables_by_enumeration():
    _, bank, _, p = data("any", turned=False)
    table = irt.score_table(bank)
    patterns = np.array([*itertools.product(*map(range, K))])
    density = np.exp(-0.5 * GRID**2) / np.sqrt(2.0 * np.pi) * (GRID[1] - GRID[0])
    like = likelihoods(patterns, p) * density
    score = patterns.sum(axis=1)
    assert table["score"].values.tolist() == [*range(sum(K) - 5)]
    for s in range(sum(K) - 5):
        w = like[score == s].sum(axis=0)
        assert float(table["score_probability"][s]) == pytest.approx(w.sum(), rel=1e-9)
        assert float(table["score_ability"][s]) == pytest.approx(w @ GRID / w.sum(), abs=1e-8)
    with pytest.raises(InputError, match="expected score rises"):
        irt.score_table(bank, method="tcc")  # one item is nominal
    ordered = [0, 1, 2, 4, 5]
    curve = sum(p[j] @ np.arange(K[j]) for j in ordered)
    found = irt.score_table(bank.isel(items=ordered), method="tcc")["score_ability"].values
    np.testing.assert_allclose(np.interp(found[2:-2], GRID, curve), np.arange(2, 13 - 2), atol=1e-4)
    with pytest.raises(InputError, match="needs items of one discrimination"):
        irt.score_table(bank, method="wle")


def test_weighted_likelihood_of_scores_of_partial_credit():
    r = irt.simulate(800, 5, model="pcm", categories=[3, 4, 3, 2, 3], seed=2)
    bank = r.truth.drop_dims("persons")
    table = irt.score_table(bank, method="wle")
    own = irt.score(r, bank, method="wle", progress=False)["person_ability"].values
    total = r.to_xarray()["response"].values.sum(axis=1)
    np.testing.assert_allclose(own, table["score_ability"].values[total], atol=1e-7)


def test_banks_of_other_categories_are_refused():
    r, bank, y, _ = data("any")
    other = irt.from_array(np.minimum(y, 2), categories=np.minimum(K, 3), item_id=NAMES)
    with pytest.raises(InputError, match="item3 has 4 there and 3 here"):
        irt.score(other, bank)
    with pytest.raises(InputError, match="item2 has 3 categories and no item_model"):
        irt.score(r, bank.drop_vars("item_model"))
    wrong = bank.copy(deep=True)
    wrong["item_step_intercept"][2, 1] = 9.0
    with pytest.raises(InputError, match=r"item item3 has discrimination .* falling"):
        irt.score(r, wrong)
    assert r.n_items == 6


def log_likelihood(fit, y, theta):
    """Of each person at an ability of its own, and the information of the test there."""
    value, info = np.zeros((2, len(theta)))
    for j in range(y.shape[1]):
        p, h = curve(fit, j, theta), 1e-5
        slope = (curve(fit, j, theta + h) - curve(fit, j, theta - h)) / (2.0 * h)
        value += np.log(p[np.arange(len(theta)), y[:, j]])
        info += (slope**2 / p).sum(axis=1)
    return value, info


def errors(fit, y, theta, method):
    """One over the root of the curvature of what is highest at an estimate, at ``theta``."""

    def goal(x):
        value, info = log_likelihood(fit, y, x)
        return value + {"map": -0.5 * x**2, "ml": 0.0, "wle": 0.5 * np.log(info)}[method]

    h = 1e-3
    return h / np.sqrt(2.0 * goal(theta) - goal(theta + h) - goal(theta - h))


@pytest.mark.parametrize(
    "tag",
    [
        *("science_grm", "science_gpcm", "science_rsm", "science_nominal", "timss_2pl_gpcm"),
        *(
            pytest.param(tag, marks=pytest.mark.slow)
            for tag in (
                "science_pcm",
                "timss_pcm",
                "timss_2pl_grm",
                *(f"eclsk_{m}" for m in ("grm", "gpcm", "pcm", "rsm")),
            )
        ),
    ],
)
@pytest.mark.parametrize("method", ["eap", "map", "ml", "wle"])
def test_scores_of_mirt(real_data, tag, method):
    """EAP, MAP, ML, WLE (Jeffreys') of the first 50 persons, and their errors.

    Errors here are of the information that is expected at the estimate, mirt's of the curvature
    there: for models divided by their total the same, but not of the graded model, nor of the WLE,
    for which TAM's are as here.
    """
    folder = folder_of(real_data)
    y, r, fit = fitted(folder, tag)
    sd = unit(fit, tag)
    of_r = pd.read_csv(folder / "scores" / f"{tag}.csv")
    got = irt.score(r.select(persons=slice(0, 50)), fit, method=method, progress=False)
    value = got["person_ability"].values
    column = method.upper()
    known = of_r[column].notna().values & (np.abs(of_r[column]) < 5.9).values
    assert known.sum() > 40
    np.testing.assert_allclose(sd * value[known], of_r[column][known], atol=2e-4)
    error = sd * got["person_ability_sd" if method == "eap" else "person_ability_se"].values[known]
    want, y = of_r[f"{column}_se"].values[known], y.values[:50][known]
    if method == "eap" or (method != "wle" and not tag.endswith("grm")):
        np.testing.assert_allclose(error, want, rtol=1e-3)
    if method != "eap":  # mirt's curvature is a numerical one
        np.testing.assert_allclose(sd * errors(fit, y, value[known], method), want, rtol=5e-3)
        info = log_likelihood(fit, y, value[known])[1] + (method == "map")
        np.testing.assert_allclose(error, sd / np.sqrt(info), rtol=1e-6)
    tam = folder / "scores" / f"tam_{tag.replace('2pl_', '')}.csv"
    if tam.is_file() and method in ("eap", "wle"):
        tam = pd.read_csv(tam).iloc[:50][known]
        np.testing.assert_allclose(sd * value[known], tam[column], atol=2e-4)
        np.testing.assert_allclose(error, tam["EAP_sd" if method == "eap" else "WLE_se"], rtol=1e-3)
