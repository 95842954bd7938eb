"""Combinations of items with asymptotes: normal scores, and the information of all persons."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from items import quiet
from scipy import stats
from scipy.special import expit

import irt_dask as irt
from irt_dask.calibrate.bayes import full_data_mode, informed, models, normal_scores, weighted
from irt_dask.calibrate.bayes.coordinates import by_item
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.model_posterior import Posterior
from irt_dask.calibrate.bayes.model_space import ModelSpace
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine
from irt_dask.errors import ApproximationWarning, ConvergenceWarning, ItemWarning

BETAS = [(5.0, 17.0), (1.0, 1.0), (17.0, 5.0), (0.5, 2.0)]


@pytest.mark.parametrize("beta", BETAS)
def test_scores_are_normal_before_the_data(beta):
    y = np.linspace(-25.0, 25.0, 201)
    w = normal_scores.of_logits(y, *beta)
    near = np.abs(y) < 5.0
    np.testing.assert_allclose(stats.norm.cdf(w), stats.beta.cdf(expit(y), *beta), rtol=1e-9)
    np.testing.assert_allclose(normal_scores.logits(w, *beta), y, atol=1e-10)
    h = 1e-5
    slope = (normal_scores.logits(w + h, *beta) - normal_scores.logits(w - h, *beta)) / (2.0 * h)
    found = normal_scores.log_slope(w, y, *beta)
    np.testing.assert_allclose(np.exp(found)[near], slope[near], rtol=1e-6)
    density = stats.beta.pdf(expit(y), *beta) * expit(y) * expit(-y)
    np.testing.assert_allclose((density * np.exp(found))[near], stats.norm.pdf(w)[near], rtol=1e-9)
    moved = [normal_scores.log_slope(v, normal_scores.logits(v, *beta), *beta)
             for v in (w + h, w - h)]  # fmt: skip
    bend = normal_scores.slope_of_log(w, y, *beta)
    np.testing.assert_allclose(bend[near], ((moved[0] - moved[1]) / (2.0 * h))[near], atol=1e-5)


def some(model, n=150, seed=4):
    """A log posterior on a few persons, its space, and a place that is no mode."""
    names = {"mixed": ["3pl", "2pl", "gpcm", "4pl"], "3pl": ["3pl"] * 4}[model]
    ids = [f"i{j}" for j in range(4)]
    categories = [3 if name == "gpcm" else 2 for name in names]
    rng = np.random.default_rng(seed)
    y = (rng.random((n, 4, 2)) < 0.55)[:, :, : max(categories) - 1].sum(axis=2)
    responses = irt.from_array(
        np.minimum(y, np.array(categories) - 1).astype(np.int8), item_id=ids, categories=categories
    )
    shapes = models.asked(
        dict(zip(ids, names, strict=True)), ids, categories, (5.0, 17.0), 1, "grid"
    )
    x = np.where(shapes.free, rng.normal(0.0, 0.4, shapes.free.shape), 0.0)
    return responses, shapes, ModelSpace(shapes=shapes), x


@pytest.mark.parametrize("prior", [ItemPrior(), Hierarchy().holding(np.diag([0.2, 1.5]))])
@pytest.mark.parametrize("model", ["3pl", "mixed"])
def test_information_is_minus_the_second_derivatives(model, prior):
    responses, shapes, space, x = some(model)
    if model == "mixed":  # of the 4PL c has to be below u
        x[3, 3] = 1.0
    with Engine(responses, progress=False, stage="test", graded=True) as engine:
        posterior = Posterior(engine, prior, shapes)
        found = informed.information(posterior, space, x)
        nodes = posterior.nodes(space.parameters(x))
        own, h = np.argwhere(shapes.free.T), 1e-4
        exact = np.empty_like(found)
        for k, (item, row) in enumerate(own):
            step = np.zeros_like(x)
            step[row, item] = h
            high, low = (
                full_data_mode._evaluate(posterior, space, at, nodes)[1]
                for at in (x + step, x - step)
            )
            exact[:, k] = by_item((low - high) / (2.0 * h), 1)[0][by_item(shapes.free, 1)[0]]
    np.testing.assert_allclose(found, exact, rtol=2e-3, atol=2e-3 * np.abs(exact).max())


@pytest.mark.slow
def test_shards_have_the_spread_of_the_information():
    y = irt.simulate(4_000, 10, model="3pl", seed=3)
    fit_quietly = partial(
        quiet, irt.fit_bayes, kinds=(ApproximationWarning, ConvergenceWarning, ItemWarning)
    )
    asked = {"model": "3pl", "n_shards": 3, "n_draws": 400, "n_warmup": 100, "progress": False}
    fit, found = fit_quietly(y, prior=ItemPrior(), **asked), []

    def noted(posterior, space, x):
        found.append(np.linalg.inv(informed.information(posterior, space, x)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(informed, "_covariance_at", noted)
        plain = fit_quietly(y, prior=ItemPrior(), **asked)
    sd = np.sqrt(np.diag(found[0])).reshape(10, 3)[:, 1]
    np.testing.assert_allclose(fit["item_intercept_sd"], sd, rtol=0.02)
    assert np.abs(plain["item_intercept_sd"] / sd - 1.0).max() > 0.05


def test_a_singular_information_leaves_the_barycenter(monkeypatch):
    responses, shapes, space, x = some("3pl")
    monkeypatch.setattr(weighted, "LEAST", 2.0)
    with Engine(responses, progress=False, stage="test", graded=True) as engine:
        posterior = Posterior(engine, ItemPrior(), shapes)
        with pytest.warns(ApproximationWarning, match="averages over shards"):
            assert informed._covariance_at(posterior, space, x) is None
