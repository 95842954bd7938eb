"""Leaving persons out by weights: exact posteriors over a finite set of items, and tails."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from categories import category_probability, simulated
from items import quiet
from scipy import stats
from scipy.special import expit, logsumexp

import irt_dask as irt
from irt_dask.errors import ApproximationWarning, EstimationError, InputError
from irt_dask.evaluate import pareto

IDS = [f"q{j}" for j in range(5)]
NODES = np.linspace(-6.0, 6.0, 41)


def log_marginal(y, a, d):
    """Log P of the responses of each person (rows) under each draw (columns), by quadrature."""
    p = expit(a[:, :, None] * NODES + d[:, :, None])  # draws, items, nodes
    patterns, which = np.unique(y, axis=0, return_inverse=True)
    out = np.empty((len(patterns), len(a)))
    w = stats.norm.pdf(NODES)
    w /= w.sum()
    for i, row in enumerate(patterns):
        seen = row >= 0
        each = np.where(row[seen][:, None] == 1, p[:, seen], 1.0 - p[:, seen])
        out[i] = np.log(each.prod(axis=1) @ w)
    return out[which.ravel()]


def posterior_of(a, d):
    """What fit_bayes returns, for these draws."""
    return xr.Dataset(
        {
            "item_discrimination": ("items", a.mean(axis=0)),
            "item_intercept": ("items", d.mean(axis=0)),
            "item_discrimination_draw": (("draw", "items"), a),
            "item_intercept_draw": (("draw", "items"), d),
        },
        coords={"item_id": ("items", IDS)},
        attrs={"model": "2pl"},
    )


class Exact:
    """Items that are one of 10,000 sets: posteriors are sums."""

    def __init__(self, n, seed, gaps=0.1):
        rng = np.random.default_rng(seed)
        truth = rng.lognormal(0.0, 0.3, 5), rng.normal(size=5)
        p = expit(truth[0] * rng.normal(size=(n, 1)) + truth[1])
        self.y = (rng.random((n, 5)) < p).astype(np.int8)
        self.y[rng.random((n, 5)) < gaps] = -1
        self.a = truth[0] * rng.lognormal(0.0, 0.35, (10_000, 5))
        self.d = truth[1] + rng.normal(0.0, 0.35, (10_000, 5))
        self.log = log_marginal(self.y, self.a, self.d)

    def draws(self, n, without=None):
        """Draws of the posterior, at even places of its distribution function."""
        log = self.log.sum(axis=0) - (0.0 if without is None else self.log[without])
        w = np.exp(log - logsumexp(log))
        at = np.searchsorted(np.cumsum(w), (np.arange(n) + 0.5) / n * w.sum())
        return posterior_of(self.a[at], self.d[at])

    def left_out(self):
        """Log density of each person given the others."""
        without = self.log.sum(axis=0) - self.log
        return logsumexp(without + self.log, axis=1) - logsumexp(without, axis=1)


@pytest.fixture(scope="module")
def exact():
    return Exact(60, 1)


def test_against_exact_posteriors(exact):
    found = irt.loo(irt.from_array(exact.y, item_id=IDS), exact.draws(2000), n_draws=2000)
    want = exact.left_out()
    some = (exact.y >= 0).any(axis=1)
    assert np.abs(found["person_elpd"].values - want)[some].max() < 0.03
    assert found.attrs["elpd_loo"] == pytest.approx(want[some].sum(), abs=0.1)
    # what the persons themselves are said to be is far from that
    flattering = found["person_elpd"].values + found["person_p_loo"].values
    assert np.nansum(flattering) - want[some].sum() > 3.0
    spread = np.sqrt(some.sum() * want[some].var(ddof=1))
    assert found.attrs["elpd_loo_se"] == pytest.approx(spread, rel=0.01)
    assert found.attrs["n_above_k"] == 0


@pytest.mark.slow
def test_persons_who_are_left_out_by_a_fit(monkeypatch):
    """Those whose weights have the heaviest tails."""
    few = Exact(12, 2, gaps=0.0)
    r = irt.from_array(few.y, item_id=IDS)
    posterior = few.draws(400)
    k = np.sort(irt.loo(r, posterior)["person_pareto_k"].values)
    monkeypatch.setattr(pareto, "largest_k", lambda n: 0.5 * (k[-4] + k[-5]))
    of = {tuple(few.y[[j for j in range(12) if j != i]].ravel()): i for i in range(12)}
    assert len(of) == 12
    calls = []

    def refit(others):
        y = others.to_xarray()["response"].values
        calls.append(of[tuple(y.ravel())])
        return few.draws(2000, without=calls[-1])

    with pytest.warns(ApproximationWarning, match="4 of 12 persons have a Pareto k above"):
        plain = irt.loo(r, posterior)
    worst = np.flatnonzero(plain["person_pareto_k"].values > plain.attrs["largest_k"])
    assert worst.size == plain.attrs["n_above_k"] == 4
    found = irt.loo(r, posterior, refit=refit)
    assert sorted(calls) == worst.tolist()
    assert found.attrs["n_refits"] == worst.size
    assert found.attrs["n_above_k"] == 0
    np.testing.assert_allclose(found["person_elpd"][worst], few.left_out()[worst], atol=0.05)
    rest = np.setdiff1d(np.arange(12), worst)
    assert (found["person_elpd"].values[rest] == plain["person_elpd"].values[rest]).all()


@pytest.mark.slow
def test_persons_without_responses_and_blocks():
    some = Exact(150, 3)
    some.y[7] = -1
    posterior = some.draws(200)
    whole = irt.loo(irt.from_array(some.y, item_id=IDS), posterior)
    parts = irt.loo(irt.from_array(some.y, item_id=IDS, rows_per_block=41), posterior)
    assert whole.drop_vars("person_id").equals(parts.drop_vars("person_id"))
    assert np.isnan(whole["person_elpd"].values[7])
    assert whole.attrs["n_persons"] == np.isfinite(whole["person_elpd"].values).sum() < 150
    assert whole.attrs["looic"] == -2.0 * whole.attrs["elpd_loo"]


@pytest.mark.slow
def test_fits_are_compared_on_the_same_persons():
    some = Exact(150, 4, gaps=0.0)
    r = irt.from_array(some.y, item_id=IDS)
    good = some.draws(1000)
    bad = good.assign(item_intercept_draw=good["item_intercept_draw"] + 1.0)
    loos = {"bad": irt.loo(r, bad), "good": irt.loo(r, good)}
    table = irt.compare(loos)
    assert table.index.tolist() == ["good", "bad"]
    assert table.loc["good", ["difference", "difference_se"]].tolist() == [0.0, 0.0]
    apart = loos["bad"]["person_elpd"].values - loos["good"]["person_elpd"].values
    assert table.loc["bad", "difference"] == pytest.approx(apart.sum())
    assert table.loc["bad", "difference_se"] == pytest.approx(np.sqrt(150 * apart.var(ddof=1)))
    assert table.loc["bad", "difference"] < -4.0 * table.loc["bad", "difference_se"]
    changed = some.y.copy()
    changed[7, 2] ^= 1
    for other in (irt.from_array(changed, item_id=IDS), r.select(persons=np.arange(150) > 0)):
        with pytest.raises(InputError, match="'two' and 'one' are of different responses"):
            irt.compare({"one": loos["good"], "two": irt.loo(other, good)})
    with pytest.raises(InputError, match=r"'two' is no result of irt\.loo"):
        irt.compare({"one": loos["good"], "two": good})
    with pytest.raises(InputError, match="two names or more"):
        irt.compare({"one": loos["good"]})


def test_what_cannot_be_said_is_refused():
    some = Exact(20, 5)
    r = irt.from_array(some.y, item_id=IDS)
    with pytest.raises(InputError, match="posterior has 50 draws: at least 100"):
        irt.loo(r, some.draws(50))
    with pytest.raises(InputError, match="n_draws=500 exceeds the 200 draws"):
        irt.loo(r, some.draws(200), n_draws=500)
    with pytest.raises(InputError, match="fitted to 21 persons, and the responses have 20"):
        irt.loo(r, some.draws(200).assign_attrs(n_persons=21))
    with pytest.raises(InputError, match="n_draws"):
        irt.loo(r, some.draws(200), n_draws=10)
    with pytest.raises(InputError, match="posterior has no draws"):
        irt.loo(r, irt.fit_marginal(irt.load_lsat()).assign_coords(item_id=("items", IDS)))
    with pytest.raises(EstimationError, match="no observed response"):
        irt.loo(irt.from_array(np.full((3, 5), -1), item_id=IDS), some.draws(200))


@pytest.mark.parametrize("k", [-0.2, 0.3, 0.6, 0.9])
def test_tails_are_found(k):
    """Exceedances of known shape: mean error of k within the shrinkage, SD as large as theirs."""
    x = np.sort(stats.genpareto.rvs(k, scale=2.0, size=(400, 200), random_state=1), axis=1)
    shape, scale = pareto.fitted(x)
    unshrunk = (shape * 210 - 5.0) / 200
    assert unshrunk.mean() == pytest.approx(k, abs=0.03)
    assert unshrunk.std() < 1.3 * (1.0 + k) / np.sqrt(200)  # asymptotic SD of the likeliest
    assert scale.mean() == pytest.approx(2.0, rel=0.05)


def test_smoothed_weights():
    """Means of weighted draws whose true mean is known: better than with the raw weights."""
    rng = np.random.default_rng(6)
    x = rng.exponential(size=(500, 1000))
    log_ratio = 0.6 * x  # ratios have a Pareto tail of shape .6; weighted, x is exponential / .4
    weight, k = pareto.smoothed(log_ratio)
    np.testing.assert_allclose(np.exp(weight).sum(axis=1), 1.0)
    assert k.mean() == pytest.approx(0.6, abs=0.05)
    raw = np.exp(log_ratio - logsumexp(log_ratio, axis=1, keepdims=True))
    error = [np.sqrt(np.mean(((w * x).sum(axis=1) - 2.5) ** 2)) for w in (np.exp(weight), raw)]
    assert error[0] < error[1]
    assert (np.diff(np.take_along_axis(weight, np.argsort(log_ratio, axis=1), 1)) > -1e-12).all()
    same, k = pareto.smoothed(np.zeros((2, 1000)))
    np.testing.assert_allclose(same, -np.log(1000.0))
    assert np.isinf(k).all()
    few, k = pareto.smoothed(log_ratio[:3, :20])  # four in the tail: as they are
    np.testing.assert_allclose(few, log_ratio[:3, :20] - logsumexp(log_ratio[:3, :20], 1)[:, None])
    assert np.isinf(k).all()


def about(y, size):
    """An exact posterior over sets of items drawn about a chain's: all are about as likely."""
    chain = irt.fit_bayes(irt.from_array(y, item_id=IDS), n_draws=2000, seed=1)
    a, d = (chain[f"item_{x}_draw"].values for x in ("discrimination", "intercept"))
    x = np.concatenate([np.log(a), d], axis=1)
    rng, made = np.random.default_rng(len(y)), Exact.__new__(Exact)
    x = rng.multivariate_normal(x.mean(axis=0), 1.2 * np.cov(x.T), size)
    made.y, made.a, made.d = y, np.exp(x[:, :5]), x[:, 5:]
    made.log = log_marginal(y, made.a, made.d)
    return made


@pytest.mark.slow
@pytest.mark.nightly
def test_every_pattern_against_exact_posteriors_without_it():
    """LSAT and 60 x 5; what a posterior says of its own persons is off by far more."""
    lsat = irt.load_lsat().to_xarray()["response"].values
    for y, most in ((lsat, 5e-4), (Exact(60, 8, gaps=0.0).y, 1e-3)):
        exact = about(y, 2000)
        n = 24_000  # twelve for each set: next to nothing is left to chance
        found = irt.loo(irt.from_array(y, item_id=IDS), exact.draws(n), n_draws=n)
        want, got = exact.left_out(), found["person_elpd"].values
        flattering = got + found["person_p_loo"].values
        print(np.abs(got - want).max(), np.abs(flattering - want).max(), found.attrs["p_loo"])
        assert np.abs(got - want).max() <= most
        assert np.abs(flattering - want).max() > 5.0 * most
        assert found.attrs["p_loo"] == pytest.approx((flattering - want).sum(), rel=0.05)


@pytest.mark.slow
def test_items_of_any_number_of_categories():
    # Marginal likelihoods of persons and draws by textbook curves; where the tail of the weights is
    # short, their smoothing changes the mean of 1 / likelihood by little.
    y, k = simulated(("graded", "gpcm", "2pl", "gpcm"), 150, 3)
    ids = [f"i{j}" for j in range(4)]
    r = irt.from_array(y, item_id=ids, categories=dict(zip(ids, k, strict=True)))
    models = ("graded", "gpcm", "2pl", "gpcm")
    by_item = dict(zip(ids, models, strict=True))
    fit = quiet(irt.fit_bayes, r, model=by_item, n_draws=200, n_warmup=60, seed=2)
    found = quiet(irt.loo, r, fit)
    theta = np.linspace(-7.0, 7.0, 281)
    mass = np.exp(-0.5 * theta**2) / np.exp(-0.5 * theta**2).sum()
    log_p = np.empty((200, 150))
    for t in range(200):
        likelihood = np.ones((150, theta.size))
        for j, name in enumerate(models):
            a = fit["item_discrimination_draw"].values[t, j]
            d = fit["item_step_intercept_draw"].values[t, j, : k[j] - 1]
            likelihood *= category_probability(name, theta, [a, *d])[:, y[:, j]].T
        log_p[t] = np.log(likelihood @ mass)
    exact = -np.log(np.exp(-log_p).mean(axis=0))
    short = found["person_pareto_k"].values < 0.3
    assert short.sum() > 50
    np.testing.assert_allclose(found["person_elpd"].values[short], exact[short], atol=0.02)


@pytest.mark.slow
def test_other_categories_are_refused():
    y, k = simulated(("graded", "gpcm"), 80, 4)
    r = irt.from_array(y, categories=k[0])
    fit = quiet(irt.fit_bayes, r, model="gpcm", n_draws=100, n_warmup=50)
    with pytest.raises(InputError, match="other categories"):
        irt.loo(irt.from_array(y, categories=k[0] + 1), fit)


@pytest.mark.parametrize("kind", ["sampling", "frequency"])
def test_a_weighted_posterior_is_refused(kind):
    """Draws that hold a person three times are not those of the others after one is divided out.

    The text that refuses weighted responses says how to leave weights out: p_loo was 23 then, not
    14, and nothing was said.
    """
    y = irt.simulate(150, 5, seed=1).to_xarray()["response"].values
    weight = np.where(np.arange(150) % 2, 3, 1)
    r = irt.from_array(y, persons={"weight": weight}, weight_kind=kind)
    posterior = irt.fit_bayes(r, n_draws=100, n_warmup=50, seed=1)
    with pytest.raises(InputError, match=f"fitted with {kind} weights"):
        irt.loo(r.select(weights="ignore"), posterior)
