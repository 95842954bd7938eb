"""Bayesian fits of nominal items: against marginal maximum likelihood, and what results hold."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from categories import simulated
from items import quiet

import irt_dask as irt
from irt_dask.errors import ApproximationWarning, ConvergenceWarning, ItemWarning

fit_quietly = partial(
    quiet, irt.fit_bayes, kinds=(ConvergenceWarning, ItemWarning, ApproximationWarning),
    positive="none", progress=False,
)  # fmt: skip
MODELS = ("nominal", "gpcm", "nominal", "nominal", "graded", "nominal")


@pytest.fixture(scope="module")
def fitted():
    """Responses to items of several models, their marginal and their Bayesian fit."""
    y, k = simulated(MODELS, 1_500, 31)
    ids = [f"q{j}" for j in range(len(MODELS))]
    r = irt.from_array(y, item_id=ids, categories=k)
    model = dict(zip(ids, MODELS, strict=True))
    marginal = irt.fit_marginal(r, model=model, positive="none")
    return r, model, marginal, fit_quietly(r, model=model, n_draws=300, n_warmup=100, seed=1)


@pytest.mark.slow
def test_posteriors_are_about_the_likeliest_items(fitted):
    _, _, marginal, bayes = fitted
    scores = "item_category_score", "item_step_intercept"
    for name in ("item_discrimination", "item_intercept", *scores):
        gap = ((bayes[name] - marginal[name]) / marginal[f"{name}_se"]).values
        ratio = (bayes[f"{name}_sd"] / marginal[f"{name}_se"]).values
        there = np.isfinite(gap)
        assert there.sum() >= len(MODELS)
        assert np.abs(gap[there]).max() < 1.0, name
        assert 0.85 < ratio[there].mean() < 1.1, name


@pytest.mark.slow
def test_results_hold_scores_and_their_draws(fitted):
    r, _, marginal, bayes = fitted
    nominal = np.array(MODELS) == "nominal"
    drawn, score = bayes["item_category_score_draw"], bayes["item_category_score"]
    assert drawn.dims == ("draw", "items", "categories")
    np.testing.assert_array_equal(np.isfinite(score), np.isfinite(marginal["item_category_score"]))
    assert (score[nominal, 0] == 0.0).all()
    k = np.array(r.n_categories)[nominal]
    last = drawn.values[:, nominal, k - 1] / (k - 1)
    slope = bayes["item_discrimination_draw"].values[:, nominal]
    np.testing.assert_allclose(last, slope, rtol=1e-12)
    # codes of these say nothing of more or less, and their steps need not be anywhere
    assert (np.isnan(bayes["item_negative_probability"]) == nominal).all()
    assert np.isnan(bayes["item_step_difficulty"][nominal]).all()
    assert "covariances with responses" in bayes.attrs["identification"]
    assert len(irt.plot.suspects(bayes).collections[2].get_offsets()) == (~nominal).sum()
    assert float(bayes["item_category_score_rhat"].max()) < 1.1


@pytest.mark.slow
def test_what_takes_draws_takes_these(fitted):
    r, _, marginal, bayes = fitted
    ability = irt.score(r, bayes)["person_ability"]
    np.testing.assert_allclose(ability, irt.score(r, marginal)["person_ability"], atol=0.15)
    one = irt.simulate(50, items=bayes.isel(draw=3), seed=2)
    assert one.n_categories == r.n_categories


def test_draws_of_the_prior():
    options = {"model": "nominal", "positive": "none", "n_draws": 4000, "seed": 1}
    prior = irt.prior_items(["a", "b"], categories=[4, 2], **options)
    assert prior.attrs["prior"] == "fixed"
    scores = prior["item_category_score_draw"].values
    away = scores[:, 0, 1:3] - np.array([1.0, 2.0]) * scores[:, 0, 3:] / 3.0
    # sums of the first and of the first two of three N(0, 1) less their mean
    np.testing.assert_allclose(np.cov(away.T), [[2 / 3, 1 / 3], [1 / 3, 2 / 3]], atol=0.06)
    np.testing.assert_allclose(scores[:, 1, 1].std(), 1.0, atol=0.04)
    assert np.isnan(scores[:, 1, 2:]).all()


@pytest.mark.slow
@pytest.mark.nightly
def test_shards_and_ability_turned_around():
    """Three shards are one posterior; codes in the other order turn nothing but names."""
    y, k = simulated(("nominal",) * 6, 2_000, 32)
    r = irt.from_array(y, categories=k)
    one = fit_quietly(r, model="nominal", n_draws=300, n_warmup=100, seed=3)
    three = fit_quietly(r, model="nominal", n_draws=300, n_warmup=100, seed=3, n_shards=3)
    name = "item_category_score"
    gap = ((three[name] - one[name]) / one[f"{name}_sd"]).values[:, 1:]
    ratio = (three[f"{name}_sd"] / one[f"{name}_sd"]).values[:, 1:]
    assert np.nanmax(np.abs(gap)) < 0.5
    assert 0.9 < np.nanmean(ratio) < 1.1
    turned = irt.from_array((k[0] - 1 - y).astype(np.int8), categories=k)
    other = fit_quietly(turned, model="nominal", n_draws=300, n_warmup=100, seed=3)
    away = (other[name].values[:, ::-1] - other[name].values[:, -1:])[:, 1:]
    known, sd = one[name].values[:, 1:], one[f"{name}_sd"].values[:, 1:]
    sign = np.sign((away * known).sum())
    assert np.abs((sign * away - known) / sd).max() < 0.7
