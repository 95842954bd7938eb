"""Fit of items and persons of any number of categories: brute force, enumeration, levels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from categories import category_probability
from scipy.optimize import minimize_scalar

import irt_dask as irt
from irt_dask.errors import EstimationError
from irt_dask.items.parameters import item_set
from irt_dask.kernels.misfit.predicted_scores import expected_by_score

GRID = np.linspace(-9.0, 9.0, 721)
MODELS = ("3pl", "gpcm", "graded", "nominal", "gpcm")
K = (2, 3, 4, 3, 5)
NAMES = tuple(f"item{j + 1}" for j in range(5))


@pytest.fixture(scope="module")
def data():
    """Responses, the items as a bank, P by item (nodes, K), and the posterior from the others."""
    r = irt.simulate(120, 5, model=dict(zip(NAMES, MODELS, strict=True)), categories=K, seed=4,
                     missing=0.2)  # fmt: skip
    y = r.to_xarray()["response"].values
    return r, y, r.truth.drop_dims("persons"), curves(r.truth)


def curves(bank, nodes=GRID):
    out = []
    for j, (model, k) in enumerate(zip(MODELS, K, strict=True)):
        steps = bank["item_step_intercept"].values[j, : k - 1]
        a = float(bank["item_discrimination"][j])
        if model == "3pl":
            x = [a, steps[0], float(bank["item_guessing"][j])]
        elif model == "nominal":
            x = [*bank["item_category_score"].values[j, 1:k], *steps]
        else:
            x = [a, *steps]
        out.append(category_probability(model, nodes, np.array(x)))
    return out


def left_out(y, p, mean, sd):
    """Mean, variance and variance of the squared residual of each response given the others."""
    prior = np.exp(-0.5 * ((GRID - mean) / sd) ** 2)
    out = np.full((3, *y.shape), np.nan)
    for i, row in enumerate(y):
        for j in np.flatnonzero(row >= 0):
            w = prior.copy()
            for other in np.flatnonzero(row >= 0):
                if other != j:
                    w = w * p[other][:, row[other]]
            chance = w @ p[j] / w.sum()
            k = np.arange(chance.size)
            e = chance @ k
            v = chance @ (k - e) ** 2
            out[:, i, j] = e, v, chance @ (k - e) ** 4 - v**2
    return out


def test_mean_squares_by_brute_force(data):
    r, y, bank, p = data
    e, v, spread = left_out(y, p, 0.2, 1.1)
    got = irt.item_fit(r, bank, ability=(0.2, 1.1), progress=False)
    square = (y - e) ** 2
    np.testing.assert_allclose(got["item_infit"], np.nansum(square, 0) / np.nansum(v, 0), rtol=1e-6)
    np.testing.assert_allclose(got["item_outfit"], np.nanmean(square / v, 0), rtol=1e-6)
    z = (np.nansum(square, 0) - np.nansum(v, 0)) / np.sqrt(np.nansum(spread, 0))
    np.testing.assert_allclose(got["item_infit_z"], z, rtol=1e-4, atol=1e-6)
    n = (y >= 0).sum(0)
    z = (np.nansum(square / v, 0) - n) / np.sqrt(np.nansum(spread / v**2, 0))
    np.testing.assert_allclose(got["item_outfit_z"], z, rtol=1e-4, atol=1e-6)
    persons = irt.person_fit(r, bank, ability=(0.2, 1.1), progress=False)
    np.testing.assert_allclose(
        persons["person_infit"], np.nansum(square, 1) / np.nansum(v, 1), rtol=1e-6
    )
    some = (y >= 0).any(axis=1)
    np.testing.assert_allclose(
        persons["person_outfit"][some], np.nanmean((square / v)[some], 1), rtol=1e-6
    )


def test_lz_by_its_formula(data):
    """Snijders' statistic at the posterior mode, from P and its slope."""
    r, y, bank, _ = data
    items, at = item_set(bank, r.item_id), []
    got = irt.person_fit(r, bank, ability=(0.0, 1.0), progress=False)["person_lz"].values
    first = items.first
    for row in y[:40]:
        seen = np.flatnonzero(row >= 0)

        def minus(x, row=row, seen=seen):
            log_p = items.log_p(np.array([x]))[:, 0]
            return 0.5 * x * x - sum(log_p[first[j] + row[j]] for j in seen)

        x = minimize_scalar(minus, bracket=(-1.0, 1.0), options={"xtol": 1e-12}).x
        log_p = items.log_p(np.array([x]))[:, 0]
        slope = items.by_ability(np.array([x]))[0][:, 0]
        own = [slice(first[j], first[j + 1]) for j in seen]
        p = [np.exp(log_p[s]) for s in own]
        centred = [log_p[s] - q @ log_p[s] for s, q in zip(own, p, strict=True)]
        top = sum(q @ (slope[s] * c) for s, q, c in zip(own, p, centred, strict=True))
        info = sum(q @ slope[s] ** 2 for s, q in zip(own, p, strict=True))
        rest = [c - top / info * slope[s] for s, c in zip(own, centred, strict=True)]
        value = sum(v[row[j]] for v, j in zip(rest, seen, strict=True))
        at.append(value / np.sqrt(sum(q @ v**2 for q, v in zip(p, rest, strict=True))))
    np.testing.assert_allclose(got[:40], at, rtol=1e-5, atol=1e-6)


def test_correlations_of_residuals(data):
    r, y, bank, _ = data
    eap = irt.score(r, bank, progress=False)["person_ability"].values
    k = [np.arange(n) for n in K]
    at = [curves(bank, eap)[j] @ k[j] for j in range(5)]
    residual = np.where(y >= 0, y - np.stack(at, axis=1), np.nan)
    got = irt.residual_correlations(r, bank, ability=(0.0, 1.0), least=2, progress=False)
    for first, second, q3 in zip(*(got[f"pair_{n}"].values for n in ("first", "second", "q3")),
                                 strict=True):  # fmt: skip
        one, two = (residual[:, NAMES.index(i)] for i in (first, second))
        both = np.isfinite(one) & np.isfinite(two)
        assert q3 == pytest.approx(np.corrcoef(one[both], two[both])[0, 1], abs=1e-4)
    assert got.sizes["pairs"] == 10


def test_categories_given_the_score_by_enumeration(data):
    _, _, bank, _ = data
    nodes = np.linspace(-4.0, 4.0, 33)
    weight = np.exp(-0.5 * nodes**2)
    p = curves(bank, nodes)
    first = np.concatenate([[0], np.cumsum(K)])
    got = expected_by_score(np.concatenate([x.T for x in p]), first, weight)
    joint = np.zeros((first[-1], sum(K) - 4))
    for pattern in itertools.product(*map(range, K)):
        chance = weight.copy()
        for j, y in enumerate(pattern):
            chance = chance * p[j][:, y]
        for j, y in enumerate(pattern):
            joint[first[j] + y, sum(pattern)] += chance.sum()
    total = np.add.reduceat(joint, first[:-1], axis=0)
    np.testing.assert_allclose(got, joint / np.repeat(total, K, axis=0), rtol=1e-10, atol=1e-14)


def test_incomplete_data_have_another_test(data):
    """No S-X2, which would be of whoever answered everything; what takes its place is named."""
    r, y, bank, _ = data
    got = irt.item_fit(r, bank, ability=(0.0, 1.0), fitted=False, progress=False)
    n = int((y < 0).any(axis=1).sum())
    assert 0 < n < len(y)
    assert got.attrs["s_x2"] == (
        f"not computed: {n} persons did not answer every item; the test of such data is chi2"
    )
    assert not [name for name in got if "sx2" in name]
    assert (got["item_chi2_df"] > 0).any()
    complete = r.select(persons=np.flatnonzero((y >= 0).all(axis=1)))
    found = irt.item_fit(complete, bank, ability=(0.0, 1.0), fitted=False, progress=False)
    assert found.attrs["s_x2"] == "computed"
    assert np.isfinite(found["item_sx2"]).any()


@pytest.mark.slow
def test_levels_of_chi_squares():
    """60 data sets x 10 items: a share of .05 has an SD of .009; 3.5 of these."""
    p = []
    for seed in range(60):
        r = irt.simulate(1000, 10, model="2pl+gpcm", categories=[2, 2, 3, 3, 4, 4, 3, 3, 3, 3],
                         seed=seed)  # fmt: skip
        try:
            fit = irt.fit_marginal(r, model="2pl+gpcm", standard_errors=False, progress=False)
        except EstimationError:  # a category that nobody has
            continue
        tests = irt.item_fit(r, fit, progress=False)
        p.append([tests["item_sx2_p_value"].values, tests["item_chi2_p_value"].values])
    low = (np.array(p) < 0.05).mean(axis=(0, 2))
    assert len(p) > 50
    assert 0.018 < low[0] < 0.082
    assert low[1] < 0.082


def test_a_wrong_model_is_seen():
    """Guessing on graded responses: a tenth of the persons answer at random."""
    r = irt.simulate(3000, 12, model="graded", categories=4, seed=2)
    y = r.to_xarray()["response"].values.copy()
    rng = np.random.default_rng(0)
    y[:300] = rng.integers(0, 4, (300, 12))
    r = irt.from_array(y, categories=4, item_id=r.item_id)
    fit = irt.fit_marginal(r, model="graded", standard_errors=False, progress=False)
    persons = irt.person_fit(r, fit, progress=False)["person_lz"].values
    assert (persons[:300] < -1.645).mean() > 0.5
    assert (persons[300:] < -1.645).mean() < 0.1
    honest = r.select(persons=slice(300, 3000))
    check = irt.predictive_check(honest, irt.fit_marginal(honest, model="graded", progress=False),
                                 n_replicates=40, progress=False)  # fmt: skip
    assert check["score_count"].values.sum() == 2700
    assert check["score"].values[-1] == 36
    assert check.attrs["p_value"] > 0.05
