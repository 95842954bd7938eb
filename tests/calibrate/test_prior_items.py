"""Items of the prior: draws against the log densities of Bayesian fits, integrated numerically.

KS tests and z-scores are of false-alarm rates 1e-4 each, for a fresh seed.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from registry import item_ids
from scipy import stats

import irt_dask as irt
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.item_moves import FixedMoves, LearnedMoves
from irt_dask.calibrate.bayes.signed_hierarchy import SignedHierarchy
from irt_dask.calibrate.shared.shape_priors import guessing_priors
from irt_dask.curves import model_named
from irt_dask.errors import InputError
from irt_dask.items.mixture import Mixture

N = 4000
SIGNED = irt.ItemPrior(loading=(0.3, 0.8), intercept=(-0.5, 1.5))
TIGHT = irt.ItemPrior(discrimination=(-0.5, 0.4), intercept=(1.0, 0.5))


def shapes_of(items, name, k):
    """Coordinates of the shape in draws of one item, (coordinates, draws), by the textbook."""
    if k == 2:
        names = ("item_guessing_draw", "item_upper_asymptote_draw")[: 1 if name == "3pl" else 2]
        return np.stack([np.log(c / (1.0 - c)) for c in (items[n].values[:, 0] for n in names)])
    d = items["item_step_intercept_draw"].values[:, 0]
    np.testing.assert_allclose(
        items["item_intercept_draw"][:, 0], d[:, -1] / (k - 1) if name == "gpcm" else d.mean(axis=1)
    )
    if name == "graded":
        return np.log(d[:, :-1] - d[:, 1:]).T
    return np.stack([d[:, j] - (j + 1) * d[:, -1] / (k - 1) for j in range(k - 2)])


@pytest.mark.parametrize(
    ("name", "k", "guessing_prior"),
    [("3pl", 2, (5.0, 17.0)), ("3pl", 2, (2.0, 3.0)), ("3pl", 2, None), ("4pl", 2, (3.0, 9.0)),
     ("4pl", 2, None),
     ("gpcm", 3, (5.0, 17.0)), ("gpcm", 4, (5.0, 17.0)), ("graded", 3, (5.0, 17.0)),
     ("graded", 4, (5.0, 17.0))],
)  # fmt: skip
@pytest.mark.parametrize("positive", ["all", "none"])
def test_shapes_have_the_density_of_fits(name, k, guessing_prior, positive):
    items = irt.prior_items(
        ["a", "b"], model=name, categories=k, guessing_prior=guessing_prior, n_draws=N, seed=1,
        positive=positive,
    )  # fmt: skip
    y = shapes_of(items, name, k)
    model = model_named(name, k)
    betas = guessing_priors(Mixture.of(model, 1), guessing_prior)
    node = np.linspace(-25.0, 25.0, 501)
    grid = np.stack(np.meshgrid(*[node] * len(y), indexing="ij"))
    at = np.concatenate([np.zeros((2, grid[0].size)), grid.reshape(len(y), -1)])
    p = np.exp(model.coordinates.log_prior(at, betas).value).reshape(grid[0].shape)
    p *= 0.1 ** len(y)
    if name == "4pl":  # cut off where the asymptotes are the wrong way round
        assert (y[0] < y[1]).all()
        p /= p.sum()
    assert p.sum() == pytest.approx(1.0, abs=1e-4)
    for q, x in enumerate(y):
        of_one = p.sum(axis=1 - q) if len(y) == 2 else p
        below = np.concatenate([[0.0], np.cumsum(0.5 * (of_one[1:] + of_one[:-1]))])
        assert stats.kstest(x, lambda v, f=below: np.interp(v, node, f)).pvalue > 1e-4
    if len(y) == 2:  # how both go together
        f = np.tanh(grid[0]) * np.tanh(grid[1])
        mean, square = (p * f).sum(), (p * f**2).sum()
        z = ((np.tanh(y[0]) * np.tanh(y[1])).mean() - mean) * np.sqrt(N / (square - mean**2))
        assert abs(z) < 3.9


@pytest.mark.parametrize(
    ("prior", "positive"),
    [(irt.ItemPrior(), "all"), (TIGHT, "all"), (irt.ItemPrior(), "none"), (SIGNED, "none")],
)
def test_independent_items_have_the_density_of_fits(prior, positive):
    items = irt.prior_items(["a", "b"], prior=prior, positive=positive, n_draws=N, seed=2)
    towards = np.ones(1) if positive == "none" else np.zeros(0)
    moves = FixedMoves(prior, 1.0, 1, towards)
    node = np.linspace(-25.0, 25.0, 200_001)
    for name, place in (("item_discrimination_draw", 0), ("item_intercept_draw", 1)):
        values = items[name].values
        x = np.log(values) if place == 0 and positive == "all" else values
        at = [np.zeros_like(node), np.zeros_like(node)]
        at[place] = node
        p = np.exp(moves.log_prior(*at).value)
        below = np.cumsum(p) / p.sum()
        for j in (0, 1):
            assert stats.kstest(x[:, j], lambda v, f=below: np.interp(v, node, f)).pvalue > 1e-4
        assert abs(stats.spearmanr(x[:, 0], x[:, 1])[0]) < 3.9 / np.sqrt(N)
    a, d = items["item_discrimination_draw"].values, items["item_intercept_draw"].values
    assert abs(stats.spearmanr(a[:, 0], d[:, 0])[0]) < 3.9 / np.sqrt(N)
    assert items.attrs["prior"] == "fixed"
    assert "item_prior_mean" not in items


@pytest.mark.parametrize("positive", ["all", "none"])
def test_learned_means_and_covariances_have_their_laws(positive):
    prior = SignedHierarchy() if positive == "none" else Hierarchy()
    items = irt.prior_items(item_ids(5), positive=positive, n_draws=N, seed=3)
    mean, sigma = (items[f"item_prior_{x}_draw"].values for x in ("mean", "covariance"))
    for q in range(2):
        assert stats.kstest(mean[:, q] / prior.mean_sd[q], "norm").pvalue > 1e-4
        # the diagonal of an inverse Wishart matrix: scale over chi-square of df - 1
        ratio = prior.scale[q][q] / sigma[:, q, q]
        assert stats.kstest(ratio, stats.chi2(prior.df - 1.0).cdf).pvalue > 1e-4
        error = sigma[:, q, q].std() / np.sqrt(N)
        assert abs(sigma[:, q, q].mean() - prior.scale[q][q] / (prior.df - 3.0)) < 4 * error
    # correlations of one with a diagonal scale: density (1 - r^2)^((df - 3) / 2)
    r = sigma[:, 0, 1] / np.sqrt(sigma[:, 0, 0] * sigma[:, 1, 1])
    power = 0.5 * (prior.df - 1.0)
    assert stats.kstest(0.5 * (r + 1.0), stats.beta(power, power).cdf).pvalue > 1e-4
    np.testing.assert_array_equal(sigma, sigma.transpose(0, 2, 1))
    assert items["coordinate"].values.tolist() == list(prior.names)


@pytest.mark.parametrize("positive", ["all", "none"])
def test_items_are_normal_about_the_mean_that_was_drawn_with_them(positive):
    """-2 log density of each item, given its draw's mean and covariance: chi-square of 2."""
    prior = SignedHierarchy() if positive == "none" else Hierarchy()
    items = irt.prior_items(item_ids(3), positive=positive, n_draws=1500, seed=4)
    a, d = items["item_discrimination_draw"].values, items["item_intercept_draw"].values
    x = a if positive == "none" else np.log(a)
    far, white = np.empty_like(x), np.empty((*x.shape, 2))
    for s in range(len(x)):
        mean, sigma = (items[f"item_prior_{n}_draw"].values[s] for n in ("mean", "covariance"))
        moves = LearnedMoves(prior, 1.0, 3, {"prior_mean": mean, "prior_covariance": sigma})
        far[s] = -2.0 * moves.log_prior(x[s], d[s]).value
        white[s] = (np.stack([x[s], d[s]], axis=1) - mean) @ np.linalg.inv(
            np.linalg.cholesky(sigma)
        ).T
    assert stats.kstest(far.ravel(), stats.chi2(2).cdf).pvalue > 1e-4
    for z in white.reshape(-1, 6 // 3).T:
        assert stats.kstest(z, "norm").pvalue > 1e-4
    z = white.reshape(len(x), -1)
    between = np.corrcoef(z.T)[np.triu_indices(6, 1)]
    assert np.abs(between).max() < 4.5 / np.sqrt(len(x))  # 15 of them, 1e-4 together


def test_more_draws_begin_with_the_same():
    options = {"model": "3pl", "positive": "none"}
    few, many = (irt.prior_items(item_ids(4), n_draws=n, **options) for n in (10, 25))
    for name in few.data_vars:
        if name.endswith("_draw"):
            np.testing.assert_array_equal(few[name], many[name][:10])
    assert irt.prior_items(item_ids(4), n_draws=10, **options).identical(few)
    other = irt.prior_items(item_ids(4), n_draws=10, seed=1, **options)
    for name in few.data_vars:
        if name.endswith("_draw"):
            assert (other[name] != few[name]).all()


def test_what_names_the_items():
    y = np.random.default_rng(0).integers(0, 2, (30, 3)).astype(np.int8)
    ids = ["a", "b", "c"]
    one = irt.prior_items(ids, n_draws=20)
    for items in (
        tuple(ids), np.array(ids), pd.Index(ids), one["item_id"], irt.from_array(y, item_id=ids),
        pd.DataFrame(y, columns=ids),
    ):  # fmt: skip
        assert irt.prior_items(items, n_draws=20).identical(one)
    assert irt.prior_items(range(3), n_draws=20)["item_id"].values.tolist() == ["0", "1", "2"]
    r = irt.simulate(50, 3, model="graded", categories=[2, 3, 4])
    named = irt.prior_items(r.item_id, model="graded", categories=[2, 3, 4], n_draws=20)
    assert irt.prior_items(r, model="graded", n_draws=20).identical(named)


@pytest.mark.filterwarnings("ignore::irt_dask.errors.IrtDaskWarning")  # of such short chains
@pytest.mark.parametrize(
    "options",
    [{}, {"prior": irt.ItemPrior(), "model": "3pl+graded"}, {"positive": "none", "model": "gpcm"}],
)
def test_variables_are_those_of_a_fit(options):
    """But for what is of the data: counts, flags, shards, convergence."""
    graded = "model" in options
    r = irt.simulate(
        60, 20, categories=[2, 3, 2, 4, 2] * 4 if graded else None, seed=1,
        model=options.get("model", "2pl"),
    )  # fmt: skip
    fit = irt.fit_bayes(r, n_draws=100, n_warmup=50, **options)
    prior = irt.prior_items(r, n_draws=100, **options)
    for name in prior.variables:
        assert prior[name].dims == fit[name].dims
        assert prior[name].dtype == fit[name].dtype
        assert prior[name].shape == fit[name].shape
    rest = {
        n for n in fit.variables if not n.startswith(("shard_", "ranked_", "item_n_", "item_flag"))
    }
    rest = {n for n in rest if not n.endswith(("_rhat", "_ess"))} - {"item_covariance"}
    assert rest <= set(prior.variables)
    about = {n: v for n, v in fit.attrs.items() if "prior" in n and n in prior.attrs}
    assert about == {n: v for n, v in prior.attrs.items() if "prior" in n}


def test_moments_are_those_of_the_draws():
    prior = irt.prior_items(item_ids(3), model="gpcm", categories=3, n_draws=300, seed=5)
    for name in ("item_discrimination", "item_intercept", "item_step_intercept"):
        drawn = prior[f"{name}_draw"]
        np.testing.assert_allclose(prior[name], drawn.mean("draw"))
        np.testing.assert_allclose(prior[f"{name}_sd"], drawn.std("draw"))
    for name in ("item_difficulty", "item_step_difficulty"):  # a slope may be near 0
        assert np.isnan(prior[name]).all()
    tight = irt.ItemPrior(discrimination=(1.0, 0.1))
    prior = irt.prior_items(item_ids(3), prior=tight, n_draws=300)
    b = -prior["item_intercept_draw"] / prior["item_discrimination_draw"]
    np.testing.assert_allclose(prior["item_difficulty"], b.mean("draw"))
    signed = irt.prior_items(item_ids(3), positive="none", n_draws=300)
    below = (signed["item_discrimination_draw"] < 0.0).mean("draw")
    np.testing.assert_array_equal(signed["item_negative_probability"], below)


def test_one_draw_has_no_spread():
    prior = irt.prior_items(["a"], n_draws=1)
    np.testing.assert_array_equal(
        prior["item_discrimination"], prior["item_discrimination_draw"][0]
    )
    np.testing.assert_array_equal(prior["item_discrimination_sd"], 0.0)


@pytest.mark.parametrize(
    "options",
    [
        {"model": "nominal"},
        {"model": "1pl", "positive": "none"},
        {"model": "5pl"},
        {"model": {"item1": "3pl"}},
        {"prior": "flat"},
        {"positive": "anchors"},
        {"positive": "some"},
        {"guessing_prior": (2.0, 3.0)},
        {"guessing_prior": (0.5, 3.0), "model": "3pl"},
        {"positive": "none", "prior": irt.ItemPrior(discrimination=(1.0, 0.5))},
    ],
)
def test_refusals_are_those_of_fits(options):
    r = irt.simulate(20, 3)
    with pytest.raises(InputError) as of_fit:
        irt.fit_bayes(r, **options)
    with pytest.raises(InputError) as of_prior:
        irt.prior_items(r, **options)
    assert str(of_prior.value) == str(of_fit.value)


def test_refusals():
    for n in (0, 2.0, True):
        with pytest.raises(InputError, match=r"n_draws=.* must be a whole number"):
            irt.prior_items(["a"], n_draws=n)
    with pytest.raises(InputError, match="seed=-1"):
        irt.prior_items(["a"], seed=-1)
    with pytest.raises(InputError, match=r"items='q1': give responses, or a list"):
        irt.prior_items("q1")
    with pytest.raises(InputError, match="names no item"):
        irt.prior_items([])
    with pytest.raises(InputError, match=r"1 item\(s\) listed more than once: a"):
        irt.prior_items(["a", "b", "a"])
    with pytest.raises(InputError, match="responses have their own"):
        irt.prior_items(irt.simulate(20, 3), categories=3)
    with pytest.raises(InputError, match=r"categories= has 2 entries for 1 items"):
        irt.prior_items(["a"], categories=[2, 3])


def test_prior_predictive_p_values_are_uniform():
    """Data of a draw of the prior, checked by others: 40 ranks among 20, false-alarm rate 1e-4."""
    p = []
    for seed in range(40):
        prior = irt.prior_items(item_ids(6), n_draws=21, seed=seed, prior=irt.ItemPrior())
        r = irt.simulate(60, items=prior.isel(draw=20), seed=seed)
        others = prior.isel(draw=slice(0, 19))
        check = irt.predictive_check(r, others, n_replicates=19, seed=seed)
        p.append(check.attrs["p_value"])
    rank = np.round(np.array(p) * 20).astype(int)
    table = np.bincount((rank - 1) // 5, minlength=4)
    assert stats.chisquare(table).pvalue > 1e-4


def test_a_prior_predictive_check_of_all_kinds_of_items():
    r = irt.simulate(80, 4, model="3pl+graded", categories=[2, 3, 2, 4], seed=2)
    for model in ("3pl+graded", "4pl+gpcm", "graded"):
        for positive in ("all", "none"):
            prior = irt.prior_items(r, model=model, positive=positive, n_draws=20)
            check = irt.predictive_check(r, prior, n_replicates=19)
            assert check.attrs["n_item_draws"] == 19
