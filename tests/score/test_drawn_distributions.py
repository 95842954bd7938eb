"""Plausible values under an estimated distribution hold what its estimates do not know.

Against maximum likelihood by sums over a grid of our own, with errors from second differences.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import log_expit, logsumexp

import irt_dask as irt
from irt_dask.errors import DataWarning

M, N, VALUES = 5, 300, 400
B = np.linspace(-1.0, 1.0, M)
NODES = np.linspace(-6.0, 6.0, 241)
IDS = [f"q{k}" for k in range(M)]


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    path = tmp_path_factory.mktemp("bank") / "bank.csv"
    pd.DataFrame({"item": IDS, "model": "2pl", "a": 1.0, "b": B}).to_csv(path, index=False)
    return irt.read_items(path)


def data(seed):
    g = np.random.default_rng(seed)
    x = g.standard_normal(N)
    theta = 0.4 * x + 0.9 * g.standard_normal(N)
    return (g.random((N, M)) < 1.0 / (1.0 + np.exp(B - theta[:, None]))).astype(np.int8), x


def maximum(y, design, weight=None):
    """Coefficients and log SD of highest likelihood, with the inverse of minus its curvature."""
    log = y @ log_expit(NODES - B[:, None]) + (1 - y) @ log_expit(B[:, None] - NODES)
    w = np.ones(len(y)) if weight is None else weight

    def minus(v):
        z = (NODES - (design @ v[:-1])[:, None]) / np.exp(v[-1])
        return -w @ (logsumexp(log - 0.5 * z * z, axis=1) - v[-1])

    best = minimize(minus, np.zeros(design.shape[1] + 1), method="BFGS", options={"gtol": 1e-4}).x
    steps = 1e-3 * np.eye(best.size)
    curvature = [
        [
            (minus(best + a + b) - minus(best + a - b) - minus(best - a + b) + minus(best - a - b))
            / 4e-6
            for b in steps
        ]
        for a in steps
    ]
    return best, np.linalg.inv(curvature)


def test_rubins_rules_give_the_error_of_a_mean(bank):
    """With values about one estimate the variance of the mean was 2 - r, not 1 / r (r about .45).

    Between 400 values it errs by 7%: a false alarm has 5 SDs.
    """
    y, _ = data(1)
    best, covariance = maximum(y, np.ones((N, 1)))
    found = irt.score(
        irt.from_array(y, item_id=IDS), bank, prior="population", n_plausible=VALUES, seed=1
    )
    values = found["person_plausible_value"].values
    assert values.mean() == pytest.approx(best[0], abs=0.02)
    total = values.var(axis=0, ddof=1).mean() / N + values.mean(axis=0).var(ddof=1)
    assert total == pytest.approx(covariance[0, 0], rel=0.2)
    # and so of the SD, whose variance is that of the distribution on average
    variance = values.var(axis=0, ddof=1)
    assert np.sqrt(variance.mean()) == pytest.approx(np.exp(best[1]), rel=0.05)
    total = 0.5 / N + 0.25 * np.log(variance).var(ddof=1)
    assert total == pytest.approx(covariance[1, 1], rel=0.25)


def test_regressions_on_values_have_the_error_of_a_coefficient(bank):
    y, x = data(2)
    design = np.column_stack([np.ones(N), x])
    best, covariance = maximum(y, design)
    r = irt.from_array(y, item_id=IDS, persons={"x": x})
    found = irt.score(r, bank, prior=["x"], n_plausible=VALUES, seed=1)
    values = found["person_plausible_value"].values
    b, *_ = np.linalg.lstsq(design, values, rcond=None)
    residual = ((values - design @ b) ** 2).sum(axis=0).mean() / (N - 2)
    total = residual * np.linalg.inv(design.T @ design)[1, 1] + b[1].var(ddof=1)
    assert b[1].mean() == pytest.approx(best[1], abs=0.02)
    assert total == pytest.approx(covariance[1, 1], rel=0.2)


def test_groups_have_draws_of_their_own(bank):
    """The smaller group's mean is known less, and neither group's draws follow the other's."""
    y, _ = data(3)
    group = np.where(np.arange(N) < 40, "few", "many")
    r = irt.from_array(y, item_id=IDS, persons={"group": group})
    values = irt.score(r, bank, prior="groups", n_plausible=VALUES, seed=1)
    v = values["person_plausible_value"].values
    means = []
    for name in ("few", "many"):
        its = group == name
        _, covariance = maximum(y[its], np.ones((its.sum(), 1)))
        total = v[its].var(axis=0, ddof=1).mean() / its.sum() + v[its].mean(axis=0).var(ddof=1)
        assert total == pytest.approx(covariance[0, 0], rel=0.25)
        means.append(v[its].mean(axis=0))
    assert abs(np.corrcoef(means)[0, 1]) < 0.2  # 4 SDs


def test_nothing_is_drawn_of_a_distribution_that_is_known(bank):
    """N(0, 1) is: values under it are those of one evaluation, and do not move by their number."""
    y, _ = data(4)
    r = irt.from_array(y, item_id=IDS)
    one = irt.score(r, bank, n_plausible=3, seed=1)["person_plausible_value"].values
    assert np.array_equal(
        one, irt.score(r, bank, n_plausible=5, seed=1)["person_plausible_value"].values[:, :3]
    )
    # the drawn distributions are those of the value's number, whatever the number of values
    some, more = (
        irt.score(r, bank, prior="population", n_plausible=n, seed=1)["person_plausible_value"]
        for n in (2, 4)
    )
    assert np.array_equal(some.values, more.values[:, :2])


def test_a_coefficient_that_rises_without_end_is_named_and_not_drawn(bank):
    """Six persons have all right: an error of 700 made plausible values of 1,000."""
    y, _ = data(6)
    y[:6] = 1
    d = (np.arange(N) < 6).astype(float)
    r = irt.from_array(y, item_id=IDS, persons={"gifted": d})
    with pytest.warns(DataWarning, match="mean ability of 'gifted'.*all right"):
        found = irt.score(r, bank, prior=["gifted"], n_plausible=20, seed=1)
    values = found["person_plausible_value"].values
    end = float(found["regression_coefficient"].sum())
    assert np.abs(values).max() < end + 6.0
    irt.score(r, bank, prior=["gifted"])  # nothing is drawn: nothing is said


def test_blocks_and_weights(bank):
    """The same bits in any blocks; with sampling weights draws are as wide as the sandwich."""
    y, _ = data(5)
    weight = np.random.default_rng(5).choice([0.25, 4.0], N)
    persons = {"weight": weight}
    found = [
        irt.score(
            irt.from_array(y, item_id=IDS, persons=persons, rows_per_block=rows), bank,
            prior="population", n_plausible=VALUES, seed=1,
        )
        for rows in (None, 77)
    ]  # fmt: skip
    v, again = (f["person_plausible_value"].values for f in found)
    assert np.array_equal(v, again)
    w = weight / weight.mean()
    best, bread = maximum(y, np.ones((N, 1)), w)
    step = 1e-3 * np.eye(2)
    log = y @ log_expit(NODES - B[:, None]) + (1 - y) @ log_expit(B[:, None] - NODES)

    def each(v):
        return logsumexp(log - 0.5 * ((NODES - v[0]) / np.exp(v[1])) ** 2, axis=1) - v[1]

    scores = np.stack([(each(best + s) - each(best - s)) / 2e-3 for s in step], axis=1)
    meat = (w[:, None] * scores).T @ (w[:, None] * scores)
    sandwich = (bread @ meat @ bread)[0, 0]
    mean = w @ v / N
    # the sampling variance of a weighted mean of values, and that between values
    sampling = (w[:, None] ** 2 * (v - mean) ** 2).sum(axis=0).mean() / N**2
    assert sampling + mean.var(ddof=1) == pytest.approx(sandwich, rel=0.2)
