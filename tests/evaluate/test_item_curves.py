"""Observed and modelled curves: brute force over persons, groups, published distances."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from categories import category_probability

import irt_dask as irt
from irt_dask.errors import ApproximationWarning, InputError

SCIENCE = Path(__file__).parents[1] / "oracles" / "science.csv"


def test_distances_of_the_science_data():
    """Those of the graded model at its maximum, over N(0, 1), found by other code."""
    table = pd.read_csv(SCIENCE)
    y = np.repeat(table.values[:, :4], table["persons"], axis=0)
    r = irt.from_array(y, categories=4, item_id=list(table.columns[:4]))
    fit = irt.fit_marginal(r, model="graded", standard_errors=False, progress=False)
    found = irt.item_curves(r, fit, progress=False)
    np.testing.assert_allclose(
        found["group_item_rmsd"][0], [0.0417, 0.0571, 0.0153, 0.0493], atol=6e-5
    )


def test_curves_by_brute_force():
    """Each person's posterior on a grid of our own, responses counted at its nodes."""
    models, k = ("3pl", "gpcm", "graded"), (2, 3, 4)
    names = ["item1", "item2", "item3"]
    r = irt.simulate(150, 3, model=dict(zip(names, models, strict=True)), categories=k, seed=1,
                     missing=0.2)  # fmt: skip
    bank, y = r.truth.drop_dims("persons"), r.to_xarray()["response"].values
    found = irt.item_curves(r, bank, progress=False)
    mean, sd = float(found["group_mean"][0]), float(found["group_sd"][0])
    x = np.linspace(mean - 8.0 * sd, mean + 8.0 * sd, 3201)
    prior = np.exp(-0.5 * ((x - mean) / sd) ** 2)
    p = []
    for j, model in enumerate(models):
        steps = bank["item_step_intercept"].values[j, : k[j] - 1]
        own = [float(bank["item_discrimination"][j]), *steps]
        own += [float(bank["item_guessing"][j])] if model == "3pl" else []
        p.append(category_probability(model, x, np.array(own)))
    w = np.tile(prior, (150, 1))
    for j in range(3):
        seen = y[:, j] >= 0
        w[seen] *= p[j][:, y[seen, j]].T
    w /= w.sum(axis=1, keepdims=True)
    for j in range(3):
        seen = y[:, j] >= 0
        observed = (w[seen] * y[seen, j][:, None]).sum(axis=0) / w[seen].sum(axis=0)
        apart = observed - p[j] @ np.arange(k[j])
        rmsd = np.sqrt(prior @ apart**2 / prior.sum())
        assert float(found["group_item_rmsd"][0, j]) == pytest.approx(rmsd, rel=2e-4)
        assert float(found["group_item_md"][0, j]) == pytest.approx(
            prior @ apart / prior.sum(), rel=1e-3, abs=1e-6
        )
        got = found["group_item_observed_score"].values[0, j]
        at = np.interp(found["ability"].values, x, observed)
        np.testing.assert_allclose(got, at, atol=1e-4)
        np.testing.assert_allclose(
            found["item_expected_score"][j],
            np.interp(found["ability"].values, x, p[j] @ np.arange(k[j])), atol=1e-4,
        )  # fmt: skip


def test_many_responses_of_a_person_overflow_nothing():
    r = irt.simulate(400, 60, seed=2, rows_per_block=10)
    fit = irt.fit_marginal(r, standard_errors=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        irt.item_curves(r, fit)


def test_an_item_that_is_harder_in_one_group():
    rng = np.random.default_rng(0)
    n, m = 4000, 20
    theta, group = rng.normal(size=n), np.repeat(["a", "b"], n // 2)
    z = theta[:, None] - np.linspace(-1.0, 1.0, m)
    z[group == "b", 3] -= 1.0
    y = (rng.random((n, m)) < 1.0 / (1.0 + np.exp(-z))).astype(np.int8)
    r = irt.from_array(y, persons={"group": group})
    fit = irt.fit_marginal(r, standard_errors=False, progress=False)
    found = irt.item_curves(r, fit, progress=False)
    assert found["group_label"].values.tolist() == ["a", "b"]
    rmsd, md = found["group_item_rmsd"].values, found["group_item_md"].values
    assert (rmsd.argmax(axis=1) == 3).all()
    assert rmsd[:, 3].min() > 0.08 > 2.0 * np.delete(rmsd, 3, axis=1).max()
    assert md[0, 3] > 0.07
    assert md[1, 3] < -0.07
    together = irt.item_curves(r, fit, groups=False, progress=False)
    assert together.sizes["groups"] == 1
    with pytest.raises(InputError, match="no person_group"):
        irt.item_curves(irt.from_array(y), fit, groups=True)


def fitted(r):
    return irt.fit_marginal(r, standard_errors=False, progress=False)


@pytest.mark.slow
def test_chance_is_that_of_other_data_sets():
    """Mean RMSD of replicates and of 25 simulated data sets, fitted and of a bank: 4 SE apart."""
    r = irt.simulate(500, 10, seed=1)
    bank, how = r.truth.drop_dims("persons"), {"progress": False}
    a, d = (bank[f"item_{name}"].values for name in ("discrimination", "intercept"))
    rng = np.random.default_rng(4)
    p = 1.0 / (1.0 + np.exp(-(a * rng.normal(size=(25, 500, 1)) + d)))
    others = [irt.from_array((u < q).astype(np.int8), item_id=list(r.item_id))
              for u, q in zip(rng.random(p.shape), p, strict=True)]  # fmt: skip
    for refit in (None, fitted):
        items = bank if refit is None else fitted(r)
        found = irt.item_curves(r, items, n_replicates=25, refit=refit, **how)
        seen = np.array([irt.item_curves(x, refit(x) if refit else bank, **how)
                         ["group_item_rmsd"].values[0].mean() for x in others])  # fmt: skip
        error = seen.std(ddof=1) * np.sqrt(2.0 / 25.0)
        expected = float(found["group_item_rmsd_expected"].mean())
        assert abs(expected - seen.mean()) < 4.0 * error < 0.25 * expected
        p = found["group_item_rmsd_p_value"].values
        assert p.min() >= 1.0 / 26.0
        assert 0.2 < p.mean() < 0.8  # 10 uniform numbers: 3.3 standard deviations


@pytest.mark.slow
def test_an_item_that_is_harder_is_found_by_its_p_value():
    rng = np.random.default_rng(0)
    n, m = 2000, 12
    theta, group = rng.normal(size=n), np.repeat(["a", "b"], n // 2)
    z = theta[:, None] - np.linspace(-1.0, 1.0, m)
    z[group == "b", 3] -= 1.0
    y = (rng.random((n, m)) < 1.0 / (1.0 + np.exp(-z))).astype(np.int8)
    r = irt.from_array(y, persons={"group": group})
    found = irt.item_curves(r, fitted(r), n_replicates=39, refit=fitted, progress=False)
    p = found["group_item_rmsd_p_value"].values
    assert (p[:, 3] == 1.0 / 40.0).all()
    cuts = [irt.from_array(y, persons={"group": group}, rows_per_block=n) for n in (300, 2000)]
    one, two = (irt.item_curves(cut, fitted(cut), n_replicates=19, refit=fitted, progress=False)
                for cut in cuts)  # fmt: skip
    np.testing.assert_array_equal(*(x["group_item_rmsd_expected"] for x in (one, two)))
    with pytest.warns(ApproximationWarning, match="refit does not make these items"):
        irt.item_curves(r, fitted(r.select(persons=range(900))), n_replicates=19, refit=fitted,
                        progress=False)  # fmt: skip
    for wrong in ({"n_replicates": 5}, {"refit": fitted}):
        with pytest.raises(InputError, match="give 19 or more"):
            irt.item_curves(r, fitted(r), **wrong)
