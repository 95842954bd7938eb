"""Posteriors of persons with weights: replicates, information, squares of scores, spreads."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import irt_dask as irt
from irt_dask.calibrate.bayes import samplers, weighted
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.item_density import Shapes
from irt_dask.calibrate.bayes.model_posterior import Posterior
from irt_dask.calibrate.shared.shape_priors import guessing_priors
from irt_dask.engine import Engine, replicates
from irt_dask.items.mixture import mixture_named

#: A prior that says little of slopes and intercepts, and options of short chains.
FLAT = irt.ItemPrior((1.0, 10.0), (0.0, 20.0))
SHORT: dict[str, Any] = {"n_draws": 100, "n_warmup": 50, "prior": FLAT}


def simulated(n: int, m: int, seed: int, missing: float = 0.0, k: int = 2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    a, d, theta = np.exp(rng.normal(0.0, 0.25, m)), rng.normal(0.0, 0.8, m), rng.normal(size=n)
    cuts = d[:, None] + np.linspace(0.7, -0.7, k - 1) * (k > 2)
    p = expit(theta[:, None, None] * a[:, None] + cuts)
    y = (rng.random((n, m, 1)) < p).sum(axis=2)
    return np.where(rng.random((n, m)) < missing, -1, y).astype(np.int8)


def quiet(function: Any, *given: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", irt.IrtDaskWarning)
        return function(*given, **options)


# --- replicates -----------------------------------------------------------------------------------


def test_replicates_are_the_whole_numbers_around_and_right_on_average() -> None:
    w = np.random.default_rng(0).lognormal(0.0, 1.0, 20_000)
    got = replicates.rounded(w, 3, 100)
    assert (np.abs(got - w) < 1.0).all()
    error = np.sqrt(((w % 1.0) * (1.0 - w % 1.0)).sum())
    assert abs(got.sum() - w.sum()) < 4.0 * error  # false alarms: 6e-5, at a fixed seed
    np.testing.assert_array_equal(got[500:700], replicates.rounded(w[500:700], 3, 600))
    assert (got != replicates.rounded(w, 4, 100)).any()
    np.testing.assert_array_equal(replicates.rounded(np.ones(9), 0, 0), 1)


@pytest.mark.parametrize("kind", ["sampling", "frequency"])
def test_chains_are_those_of_persons_who_are_there_so_often(kind: str) -> None:
    """With one shard replicates are in the order of the persons, and have their random numbers.

    Start values count rows once where weights are those of a sample: last bits differ.
    """
    y, rng = simulated(150, 4, 1, missing=0.2), np.random.default_rng(2)
    w = rng.integers(1, 4, 150).astype(float)
    r = irt.from_array(y, persons={"weight": w}, weight_kind=kind, rows_per_block=60)
    times = w.astype(int)
    if kind == "sampling":
        times = replicates.rounded(w / w.mean(), 7, 0)
        assert set(times) == {0, 1, 2}
    got = quiet(irt.fit_bayes, r, seed=7, **SHORT)
    expected = quiet(irt.fit_bayes, irt.from_array(np.repeat(y, times, axis=0)), seed=7, **SHORT)
    for name in ("shard_item_discrimination", "shard_item_intercept", "shard_n_persons"):
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-9)
    if kind == "frequency":  # and so is the result
        for name in ("item_discrimination_draw", "item_intercept_draw"):
            np.testing.assert_array_equal(got[name], expected[name])
        assert got.attrs["objective"] == pytest.approx(expected.attrs["objective"], rel=1e-12)
        assert got.attrs["n_persons"] == times.sum()
        assert "spread" not in got.attrs


def test_shards_that_read_a_copy(monkeypatch: pytest.MonkeyPatch, bits: Any) -> None:
    y = simulated(200, 4, 1)
    w = np.random.default_rng(2).uniform(0.2, 3.0, 200)
    r = irt.from_array(y, persons={"weight": w}, rows_per_block=60)
    expected = quiet(irt.fit_bayes, r, n_shards=2, **SHORT)
    monkeypatch.setattr(samplers, "_MOST_READS", 1)
    assert bits(quiet(irt.fit_bayes, r, n_shards=2, **SHORT)) == bits(expected)


# --- information and squares, against differences -------------------------------------------------


def posterior(engine: Engine, model: str, prior: Any, signed: bool) -> Posterior:
    r = engine.responses
    models = mixture_named(model, r.item_id, r.n_categories)
    return Posterior(engine, prior, Shapes(models, guessing_priors(models, (5, 17)), signed=signed))


def log_marginals(p: Posterior, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Log-likelihood of each person at coordinates, by brute force."""
    nodes = np.linspace(-8.0, 8.0, 401)
    items = p.shapes.items(at)
    log_p = np.vstack([items.log_p(nodes), np.zeros(nodes.size)])
    rows = np.where(y >= 0, items.first[:-1] + y, len(log_p) - 1)
    total = log_p[rows].sum(axis=1) - 0.5 * nodes**2
    top = total.max(axis=1)
    return top + np.log(np.exp(total - top[:, None]).sum(axis=1))


def differences(function: Any, at: np.ndarray, free: np.ndarray, h: float = 1e-4) -> np.ndarray:
    """Derivatives by free coordinates, item by item, (..., coordinates)."""
    out = []
    for j, q in np.argwhere(free.T):
        step = np.zeros_like(at)
        step[q, j] = h
        out.append((function(at + step) - function(at - step)) / (2.0 * h))
    return np.stack(out, axis=-1)


CASES = {
    "2pl": ("2pl", irt.ItemPrior(), False),
    "2pl, learned": ("2pl", Hierarchy().holding(np.array([[0.1, 0.05], [0.05, 0.8]])), False),
    "2pl, signed": ("2pl", irt.ItemPrior(), True),
    "3pl": ("3pl", irt.ItemPrior(), False),
    "gpcm": ("gpcm", irt.ItemPrior(), False),
    "graded": ("graded", irt.ItemPrior(), False),
    "nominal": ("nominal", irt.ItemPrior(), True),
}


@pytest.mark.parametrize("case", CASES)
def test_information_and_squares(case: str) -> None:
    """At any place, whether or not it is a mode; and squares are not those of weights."""
    model, prior, signed = CASES[case]
    k = 3 if model in ("gpcm", "graded", "nominal") else 2
    y = simulated(120, 3, 5, missing=0.2, k=k)
    rng = np.random.default_rng(6)
    w = rng.lognormal(0.0, 0.8, len(y))
    r = irt.from_array(y, persons={"weight": w}, rows_per_block=50, categories=None if k < 3 else k)
    with Engine(r, graded=True) as engine:
        p = posterior(engine, model, prior, signed)
        free = p.shapes.free
        at = np.where(free, rng.normal(0.1, 0.3, free.shape), 0.0)
        h, middle = weighted.information(p, at)
        nodes = p.nodes(at)
        slope = differences(lambda z: p(z, nodes)[1].T[free.T], at, free)
    np.testing.assert_allclose(h, -slope, rtol=1e-5, atol=1e-4)

    scores = differences(lambda z: log_marginals(p, y, z), at, free)
    w = w / w.mean()
    own = middle - (scores.T * w**2) @ scores
    if case == "2pl, learned":  # that of a mean too, which items share
        tight = np.linalg.eigvalsh(own)
        assert tight[0] > -1e-4
        np.testing.assert_allclose(tight[-1], np.linalg.eigvalsh(np.linalg.inv(prior.held))[-1],
                                   rtol=0.3)  # fmt: skip
    else:  # of the items, one by one
        first = free.sum(axis=0)[0]
        assert np.abs(own[:first, first:]).max() < 1e-4
        planted = middle - (scores.T * w) @ scores  # w where it should be squared
        assert np.abs(planted[:first, first:]).max() > 1.0
    assert np.linalg.eigvalsh(own)[0] > -1e-4


def test_the_map() -> None:
    rng = np.random.default_rng(0)
    h, middle = (x @ x.T for x in rng.normal(size=(2, 5, 8)))
    a, v = weighted.optimal_map(h, middle), np.linalg.inv(h)
    assert a is not None
    np.testing.assert_allclose(a, a.T)
    np.testing.assert_allclose(a @ v @ a, v @ middle @ v, rtol=1e-9, atol=1e-12)
    assert np.linalg.eigvalsh(a)[0] > 0.0
    np.testing.assert_allclose(weighted.optimal_map(h, h), np.eye(5), atol=1e-9)
    few = np.outer(middle[0], middle[0])  # one person: singular
    b = weighted.optimal_map(h, few)
    np.testing.assert_allclose(b @ v @ b, v @ few @ v, rtol=1e-6, atol=1e-9)
    assert weighted.optimal_map(h - 1.01 * np.linalg.eigvalsh(h)[0] * np.eye(5), middle) is None


# --- what is asked, and said ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, kind, message",
    [
        ({"n_dims": 2}, "sampling", r"n_dims=2 .* one ability"),
        ({"n_dims": 2}, "frequency", "n_dims=2 .* frequency weights"),
        ({"sampler": "polya-gamma"}, "sampling", "sampler='polya-gamma' .* 'grid'"),
        ({"powering": "published"}, "sampling", "powering='published' .* 'shrink'"),
        ({"powering": "replicate"}, "sampling", "powering='replicate' .* 'shrink'"),
        ({"location": "average"}, "sampling", "location='average' .* 'refined'"),
        ({"model": "1pl"}, "sampling", "items share .* 2pl"),
    ],
)
def test_refusals(options: dict[str, Any], kind: str, message: str) -> None:
    r = irt.from_array(simulated(50, 4, 0), persons={"weight": np.full(50, 2.0)}, weight_kind=kind)
    with pytest.raises(irt.InputError, match=f"{message}.*weights='ignore'"):
        irt.fit_bayes(r, **options)


def test_too_many_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighted, "MOST", 7)
    r = irt.from_array(simulated(50, 4, 0), persons={"weight": np.full(50, 2.0)})
    with pytest.raises(irt.InputError, match=r"8 parameters .* at most 7"):
        irt.fit_bayes(r)


def test_one_person_who_dominates_is_said() -> None:
    y = simulated(300, 4, 0)
    w = np.ones(300)
    w[17] = 200.0
    r = irt.from_array(y, persons={"weight": w})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", irt.IrtDaskWarning)
        warnings.simplefilter("always", irt.DataWarning)
        with pytest.warns(irt.DataWarning, match=r"persons count as 6\.2 in effect \(limit 100\)"):
            fit = irt.fit_bayes(r, seed=1, **SHORT)
    assert fit.attrs["n_effective"] == pytest.approx(w.sum() ** 2 / (w**2).sum(), rel=1e-6)
    assert fit.attrs["scale_se"] == pytest.approx((2.0 * fit.attrs["n_effective"]) ** -0.5)
    assert np.isfinite(fit["item_intercept_sd"]).all()
    with Engine(r) as engine:
        assert engine.responses.max_weight == pytest.approx(200.0 / w.mean())
        counted = engine.map_refs(weighted._totals, 1)
    assert sum(n for n, *_ in counted) == fit["shard_n_persons"].sum()


def test_a_singular_information_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    r = irt.from_array(simulated(400, 6, 0), persons={"weight": np.linspace(1.0, 2.0, 400)})
    monkeypatch.setattr(weighted, "LEAST", 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", irt.ConvergenceWarning)
        with pytest.warns(irt.ApproximationWarning, match="simple random sample"):
            fit = irt.fit_bayes(r, n_draws=100, n_warmup=50)
    assert fit.attrs["spread"] == "simple random sample"


# --- the result -----------------------------------------------------------------------------------

#: Root mean square of log ratios of SDs of 20 parameters, and of differences of means in SDs, of
#: 2,000 draws: false alarms are below 1e-4.
RATIO, SHIFT = 0.045, 0.16


def near(got: Any, sd: dict[str, np.ndarray], mean: dict[str, np.ndarray]) -> tuple[float, float]:
    """Root mean squares of log ratios of SDs, and of differences of means in SDs."""
    ratio = [np.log(got[f"{k}_sd"].values / sd[k]).ravel() for k in sd]
    shift = [((got[k].values - mean[k]) / sd[k]).ravel() for k in sd]
    return tuple(float(np.sqrt(np.mean(np.square(np.concatenate(x))))) for x in (ratio, shift))


@pytest.mark.slow
@pytest.mark.parametrize("n_shards", [1, 3])
def test_means_and_sds_are_those_of_the_marginal_fit(n_shards: int) -> None:
    """Sandwich errors of fit_marginal with the same weights; those without are far off."""
    y = simulated(3000, 10, 11)
    w = np.random.default_rng(12).choice([1.0, 2.0, 3.0, 6.0], 3000, p=[0.5, 0.25, 0.15, 0.1])
    r = irt.from_array(y, persons={"weight": w})
    fit = irt.fit_bayes(r, n_shards=n_shards, n_draws=2000, n_warmup=200, prior=FLAT)
    names = ("item_discrimination", "item_intercept")
    expected = irt.fit_marginal(r)
    sd = {k: expected[f"{k}_se"].values for k in names}
    ratio, shift = near(fit, sd, {k: expected[k].values for k in names})
    assert ratio < RATIO
    assert shift < SHIFT
    naive = irt.fit_marginal(r.select(weights="ignore"))  # about what J of w alone would give
    assert near(fit, {k: naive[f"{k}_se"].values for k in names}, sd)[0] > 3.0 * RATIO


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"prior": FLAT, "n_shards": 2}], ids=["learned", "shards"])
def test_equal_weights_are_as_none(options: dict[str, Any]) -> None:
    """Where there is but one posterior J has the noise of 2,000 persons, 2%, too."""
    y = simulated(2000, 8, 13)
    options = {"n_draws": 2000, "n_warmup": 200, **options}
    fit = irt.fit_bayes(irt.from_array(y, persons={"weight": np.full(2000, 3.0)}), **options)
    plain = irt.fit_bayes(irt.from_array(y), **options)
    assert fit.attrs["spread"] == "sandwich"
    names = ("item_discrimination", "item_intercept")
    sd = {k: plain[f"{k}_sd"].values for k in names}
    ratio, shift = near(fit, sd, {k: plain[k].values for k in names})
    assert ratio < RATIO + 0.02
    assert shift < SHIFT
    if "prior" not in options:
        for name in ("item_prior_mean", "item_prior_covariance"):
            np.testing.assert_allclose(
                fit[name], plain[name], atol=0.15 * plain[f"{name}_sd"].values.max()
            )


@pytest.mark.nightly
def test_shards_of_another_model() -> None:
    y = simulated(2400, 6, 14, k=3)
    w = np.random.default_rng(15).lognormal(0.0, 0.7, 2400)
    r = irt.from_array(y, persons={"weight": w}, categories=3)
    options = {"model": "gpcm", "n_draws": 500, "n_warmup": 150, "seed": 3}
    one, three = (irt.fit_bayes(r, n_shards=k, **options) for k in (1, 3))
    names = ("item_discrimination", "item_step_intercept")
    sd = {k: one[f"{k}_sd"].values for k in names}
    ratio, shift = near(three, sd, {k: one[k].values for k in names})
    assert ratio < 2.0 * RATIO  # 500 draws each
    assert shift < 2.0 * SHIFT
