"""The item step with a density of slopes and intercepts, against SciPy."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from irt_dask.curves import model_named
from irt_dask.curves.betas import Betas
from irt_dask.items.densities import Common, ItemDensity
from irt_dask.items.derivatives import Counts, observed_information
from irt_dask.items.maximum import Problem, likeliest, maximise
from irt_dask.items.mixture import Mixture

MODEL = model_named("2pl")
NODES = np.linspace(-4.0, 4.0, 33)
MEAN, COVARIANCE = np.array([0.2, -0.3]), np.array([[0.3, 0.2], [0.2, 0.9]])


def problem(log, n_items=24, n_persons=60.0, seed=0):
    """Counts of few persons: nobody, none right, all right, and others."""
    rng = np.random.default_rng(seed)
    weight = np.exp(-0.5 * NODES**2)
    seen = np.tile(n_persons * weight / weight.sum(), (n_items, 1))
    a, d = rng.normal(0.8, 0.7, n_items), rng.normal(0.0, 2.0, n_items)
    right = seen * expit(np.multiply.outer(a, NODES) + d[:, None])
    right[0] = 0.0
    right[1] = seen[1]
    seen[2], right[2] = 0.0, 0.0
    right[3] = np.where(NODES > 0.0, seen[3], 0.0)  # as steep as there is
    counts = Counts(MODEL, np.arange(n_items), NODES, seen, right[:, None])
    prior = ItemDensity(
        Betas.of((1.0, 1.0), (1.0, 1.0)),
        Common.of(Mixture.of(MODEL, n_items), MEAN, np.linalg.inv(COVARIANCE), log=log),
    )
    low = np.stack([np.full(n_items, 1e-3 if log else -25.0), np.full(n_items, -40.0)])
    return Problem([counts], low, np.full_like(low, 40.0), prior, np.full((2, n_items), -1))


def objective(of, j, x, log):
    """Minus log-likelihood and log density, written out anew."""
    counts = of.counts[0]
    z = x[0] * NODES + x[1]
    right = counts.higher[j, 0]
    away = np.array([np.log(x[0]) if log else x[0], x[1]]) - MEAN
    fit = right @ z - counts.seen[j] @ np.logaddexp(0.0, z)
    return -(fit - 0.5 * away @ np.linalg.solve(COVARIANCE, away))


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("begin", [0.5, 4.0])  # where log a bends the other way too
def test_modes(log, begin):
    """Those of SciPy's simplex to 1e-6, and those of scoring for any model to 1e-9."""
    of = problem(log)
    start = np.stack([np.full(24, begin), np.zeros(24)])
    got = likeliest(of, start, steps=40, precision=1e-6)
    for j in range(24):

        def f(x, j=j):  # fmt: skip
            return objective(of, j, x, log) if x[0] > 0.0 or not log else np.inf

        best = minimize(
            f, got[:, j] + 0.01, method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 4000},
        )  # fmt: skip
        np.testing.assert_allclose(got[:, j], best.x, rtol=1e-6, atol=2e-6)
        assert f(got[:, j]) <= best.fun + 1e-10
    by_scoring = maximise(of, start, steps=200, precision=1e-10)
    np.testing.assert_allclose(got, by_scoring, rtol=1e-9, atol=1e-9)


def test_nobody_answered():
    """An item without responses is where its density is highest."""
    got = likeliest(problem(True), np.ones((2, 24)), steps=40, precision=1e-6)
    np.testing.assert_allclose([np.log(got[0, 2]), got[1, 2]], MEAN, atol=1e-9)


def test_information():
    """Sums against differences of the gradient written out; what is not free is 0."""
    of = problem(True)
    counts, x = of.counts[0], np.stack([np.linspace(0.2, 3.0, 24), np.linspace(-2.0, 2.0, 24)])
    free = np.ones((2, 24), dtype=bool)
    free[0, 5], free[1, 6] = False, False
    got = observed_information([counts], x, free)
    design = np.stack([NODES, np.ones_like(NODES)])
    for j in range(24):

        def gradient(v, j=j):  # fmt: skip
            return design @ (counts.higher[j, 0] - counts.seen[j] * expit(v @ design))

        differences = [
            (gradient(x[:, j] - h) - gradient(x[:, j] + h)) / 2e-5 for h in 1e-5 * np.eye(2)
        ]
        own = np.where(np.multiply.outer(free[:, j], free[:, j]), differences, 0.0)
        np.testing.assert_allclose(got[j], own, rtol=1e-8, atol=1e-8)
