"""Marginal maximum likelihood: against likelihoods and derivatives that share no code with it."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from items import respond
from parts import csr_of
from scipy.stats import beta as beta_density
from scipy.stats import norm

import irt_dask as irt
from irt_dask.calibrate.marginal import expected, sampling
from irt_dask.engine import dataset, memory
from irt_dask.errors import ConvergenceWarning, InputError, TooLargeError

LSAT = {
    "2pl": (
        -2466.6534,
        [0.8257, 0.7227, 0.8909, 0.6884, 0.6569],
        [2.7732, 0.9902, 0.2491, 1.2848, 2.0533],
    ),
    "1pl": (-2466.9376, [0.7551] * 5, [2.7300, 0.9986, 0.2399, 1.3065, 2.0994]),
}


def fit(responses, **options):
    return irt.fit_marginal(responses, progress=False, **options)


def data(n, m, seed, *, missing=0.0, guessing=0.0, groups=None, weight=False):
    """Responses, and the true a, d; groups are (means, SDs)."""
    rng = np.random.default_rng(seed)
    a, d = rng.lognormal(0.1, 0.3, m), rng.normal(0.0, 1.0, m)
    means, sds = groups or ([0.0], [1.0])
    g = rng.integers(0, len(means), n)
    theta = np.asarray(means)[g] + np.asarray(sds)[g] * rng.standard_normal(n)
    y = respond(rng, theta, a, d, guessing, missing)
    table = {"person_id": [str(i) for i in range(n)]}
    if groups:
        table["group"] = np.array(list("ABCDEF"))[g]
    if weight:
        table["weight"] = rng.integers(1, 4, n).astype(float)
    return y, pd.DataFrame(table), a, d


def with_persons(y, table, **options):
    return irt.from_array(y, persons=table, person_id=list(table["person_id"]), **options)


def log_likelihood(y, a, d, c, mean, sd, nodes=241):
    """Brute force: each person's responses on a fine grid of standard scores of his or her own."""
    x = np.linspace(-9.0, 9.0, nodes)
    theta = mean[:, None] + sd[:, None] * x
    like = np.broadcast_to(norm.pdf(x), theta.shape)
    for j in range(a.size):
        p = c[j] + (1.0 - c[j]) / (1.0 + np.exp(-(a[j] * theta + d[j])))
        of_item = np.where(y[:, j, None] == 1, p, 1.0 - p)
        like = like * np.where(y[:, j, None] >= 0, of_item, 1.0)
    return np.log(np.trapezoid(like, x, axis=1)).sum()


@pytest.mark.parametrize("model", ["2pl", "1pl"])
def test_lsat(model):
    value, a, d = LSAT[model]
    f = fit(irt.load_lsat(), model=model)
    assert f.attrs["objective"] == pytest.approx(value, abs=1e-3)
    np.testing.assert_allclose(f.item_discrimination, a, atol=1e-3)
    np.testing.assert_allclose(f.item_intercept, d, atol=1e-3)
    k = f.attrs["n_parameters"]
    assert k == {"2pl": 10, "1pl": 6}[model]
    assert f.attrs["aic"] == pytest.approx(2 * k - 2 * f.attrs["objective"])


CASES = {
    "2pl": {},
    "1pl": {"model": "1pl"},
    "3pl": {"model": "3pl"},
    "groups": {"groups": ([0.0, 0.8], [1.0, 1.4])},
}


@pytest.mark.parametrize("case", CASES)
def test_the_estimate_is_the_maximum_and_errors_are_its_curvature(case):
    """At the estimate: the likelihood is the brute force one, no derivative of it is left, and the
    standard errors are those of its numerical Hessian to 0.1%."""
    options = dict(CASES[case])
    groups = options.pop("groups", None)
    guessing = 0.2 if case == "3pl" else 0.0
    n = 1200 if case == "3pl" else 300  # with few persons the curvature changes within a step
    y, table, *_ = data(n, 4, 1, missing=0.15, guessing=guessing, groups=groups)
    f = fit(with_persons(y, table), **options)
    m = 4
    g = (table["group"] == "B").to_numpy().astype(int) if groups else np.zeros(n, dtype=int)
    c0 = f.item_guessing.values if case == "3pl" else np.zeros(m)

    def unpack(t):
        a = np.full(m, t[0]) if case == "1pl" else t[:m]
        d = t[1 : 1 + m] if case == "1pl" else t[m : 2 * m]
        c = t[2 * m :] if case == "3pl" else np.zeros(m)
        mu, sd = np.zeros(2), np.ones(2)
        if groups:
            mu[1], sd[1] = t[2 * m :]
        return a, d, c, mu[g], sd[g]

    def objective(t):
        a, d, c, mu, sd = unpack(t)
        prior = beta_density(5, 17).logpdf(c).sum() if case == "3pl" else 0.0
        return log_likelihood(y, a, d, c, mu, sd) + prior

    a, d = f.item_discrimination.values, f.item_intercept.values
    at = [a[:1] if case == "1pl" else a, d]
    se = [f.item_discrimination_se.values[: at[0].size], f.item_intercept_se.values]
    if case == "3pl":
        at.append(c0)
        se.append(f.item_guessing_se.values)
    if groups:
        at.append([f.group_mean.values[1], f.group_sd.values[1]])
        se.append([f.group_mean_se.values[1], f.group_sd_se.values[1]])
    at, se = np.concatenate(at), np.concatenate(se)
    prior = beta_density(5, 17).logpdf(c0).sum() if case == "3pl" else 0.0
    assert f.attrs["objective"] == pytest.approx(objective(at), rel=1e-9)
    assert f.attrs["log_likelihood"] == pytest.approx(objective(at) - prior, rel=1e-9)
    assert f.attrs.get("log_prior", 0.0) == pytest.approx(prior, rel=1e-9)
    k = f.attrs["n_parameters"]
    assert k == at.size
    assert f.attrs["aic"] == pytest.approx(2.0 * (k - (objective(at) - prior)), rel=1e-9)
    assert f.attrs["bic"] == pytest.approx(k * np.log(n) - 2.0 * (objective(at) - prior), rel=1e-9)
    near = np.diag(0.002 * se)
    slope = [(objective(at + e) - objective(at - e)) / 0.004 for e in near]  # a standard error
    np.testing.assert_allclose(slope, 0.0, atol=1e-3)
    step = np.diag(0.01 * se)
    plus, minus = [[objective(at + s * e) for e in step] for s in (1, -1)]
    centre = objective(at)
    hessian = np.diag((np.array(plus) - 2 * centre + minus) / (0.01 * se) ** 2)
    for i, j in itertools.combinations(range(at.size), 2):
        both = objective(at + step[i] + step[j]) + objective(at - step[i] - step[j])
        mixed = both + 2 * centre - plus[i] - plus[j] - minus[i] - minus[j]
        hessian[i, j] = hessian[j, i] = mixed / (2 * 0.01**2 * se[i] * se[j])
    expected = np.sqrt(np.diag(np.linalg.inv(-hessian)))
    np.testing.assert_allclose(se, expected, rtol=2e-3)


@pytest.mark.parametrize(("tolerance", "rtol"), [(1e-13, 1e-5), (1e-9, 1e-4), (1e-4, 1e-5)])
def test_errors_are_those_of_the_maximum_whatever_the_tolerance(tolerance, rtol):
    """Louis's formula with all nodes a person.  Few items: posteriors are far from normal there.

    With a coarse tolerance Newton steps lead far, and errors are found again where they end; with
    the usual one they may be off by as much as the last step, 1e-4.
    """
    y, _, *_ = data(240, 5, 2)
    f = fit(irt.from_array(y), tolerance=tolerance)
    a, d = f.item_discrimination.values[:, None], f.item_intercept.values[:, None]
    theta = np.linspace(-10.0, 10.0, 2001)
    p = 1.0 / (1.0 + np.exp(-(a * theta + d)))
    information = np.zeros((10, 10))
    for row in y:
        mass = norm.pdf(theta) * np.where(row[:, None] == 1, p, 1.0 - p).prod(axis=0)
        mass /= mass.sum()
        left = row[:, None] - p
        score = np.concatenate([left * theta, left])
        mean = score @ mass
        information -= (score * mass) @ score.T - np.outer(mean, mean)
        k, known = np.arange(5), p * (1.0 - p) * mass
        information[k, k] += known @ theta**2
        information[k + 5, k + 5] += known.sum(axis=1)
        information[k, k + 5] += known @ theta
        information[k + 5, k] += known @ theta
    want = np.sqrt(np.diag(np.linalg.inv(information)))
    found = np.concatenate([f.item_discrimination_se, f.item_intercept_se])
    np.testing.assert_allclose(found, want, rtol=rtol)


@pytest.mark.parametrize("case", ["lsat", "nobody guesses", "guessing", "short"])
def test_the_likelihood_of_a_3pl_without_prior_is_at_least_that_of_the_2pl(case):
    """With the default prior it need not be; the objective says what was maximised.

    Guessing ends at 1e-6 at least, which costs less than .002 of log-likelihood here.
    """
    y = {
        "lsat": irt.load_lsat,
        "nobody guesses": lambda: data(1000, 12, 21)[0],
        "guessing": lambda: data(1000, 12, 22, guessing=0.25)[0],
        "short": lambda: data(300, 5, 23)[0],
    }[case]()
    options = {"standard_errors": False}
    two, default = fit(y, **options), fit(y, model="3pl", **options)
    free = fit(y, model="3pl", guessing_prior=None, **options)
    nested = fit(y, model="3pl", guessing_prior=None, start=two, **options)
    least = two.attrs["log_likelihood"] - 2e-3
    assert free.attrs["log_likelihood"] >= least
    assert nested.attrs["log_likelihood"] >= least
    assert free.attrs["objective"] == free.attrs["log_likelihood"]
    assert (free.attrs["guessing_prior"], free.attrs["log_prior"]) == ("none", 0.0)
    # The maximum of the sum is no maximum of its first part.
    assert default.attrs["log_likelihood"] < free.attrs["log_likelihood"]
    if case == "nobody guesses":
        assert default.attrs["log_likelihood"] < two.attrs["log_likelihood"] - 1.0
    prior = beta_density(5, 17).logpdf(default.item_guessing).sum()
    assert default.attrs["guessing_prior"] == "Beta(5, 17)"
    assert default.attrs["log_prior"] == pytest.approx(prior, rel=1e-9)
    assert default.attrs["objective"] - default.attrs["log_likelihood"] == pytest.approx(prior)
    assert default.attrs["n_parameters"] == free.attrs["n_parameters"] == 3 * len(free["items"])
    assert free.attrs["aic"] == 2.0 * (3 * len(free["items"]) - free.attrs["log_likelihood"])


def test_two_items_do_not_determine_two_slopes():
    """Four patterns, three of them free, and four parameters: estimates, but no errors."""
    y, *_ = data(500, 2, 5)
    with pytest.warns(irt.DataWarning, match="observed information is singular"):
        f = irt.fit_marginal(y, progress=False)
    assert np.isfinite(f["item_discrimination"]).all()
    assert np.isnan(f["item_discrimination_se"]).all()
    p = np.bincount(y @ [2, 1], minlength=4) / len(y)  # they fit the patterns: no model does better
    assert f.attrs["objective"] == pytest.approx(len(y) * (p @ np.log(p)), abs=1e-3)


@pytest.mark.parametrize("options", [{}, {"model": "1pl"}, {"model": "3pl"}])
def test_weights_are_repetitions(options):
    y, table, *_ = data(400, 6, 2, missing=0.1, groups=([0.0, 0.5], [1.0, 1.0]), weight=True)
    k = np.repeat(np.arange(400), table["weight"].astype(int))
    again = table.iloc[k].drop(columns="weight")
    again = again.assign(person_id=[str(i) for i in range(k.size)]).reset_index(drop=True)
    counted = with_persons(y, table, weight_kind="frequency")
    one, two = fit(counted, **options), fit(with_persons(y[k], again), **options)
    for name in ("item_discrimination", "item_intercept", "group_mean", "group_sd"):
        np.testing.assert_allclose(one[name], two[name], rtol=0, atol=1e-9)
    assert one.attrs["objective"] == pytest.approx(two.attrs["objective"], rel=1e-12)
    assert one.attrs["bic"] == pytest.approx(two.attrs["bic"], rel=1e-12)


@pytest.mark.parametrize(
    "options", [{}, {"model": "1pl"}, {"model": "3pl"}, {"latent": "histogram", "tolerance": 1e-6}]
)
def test_the_likelihood_never_falls(options):
    y, table, *_ = data(500, 8, 3, missing=0.2, guessing=0.1)
    f = fit(with_persons(y, table), **options)
    assert (np.diff(f.iteration_objective) >= 0.0).all()
    assert f.attrs["converged"]
    with pytest.warns(ConvergenceWarning, match="2 iterations"):
        fit(with_persons(y, table), max_iterations=2, standard_errors=False, **options)


@pytest.mark.parametrize("seed", range(3))
def test_a_fit_that_starts_at_the_maximum_ends_there(seed):
    """There the likelihood rises and falls by rounding, which is no fall."""
    y = irt.from_array(data(2000, 20, seed)[0])
    first = fit(y)
    again = fit(y, start=first)
    assert again.attrs["n_iterations"] == 3
    np.testing.assert_allclose(again.item_difficulty, first.item_difficulty, rtol=0, atol=1e-8)


def test_few_persons_and_many_items():
    """A common shift or stretch, which hardly matters to the likelihood, is found all the same,
    also with items whose best slope would be below 0, or that everybody answers rightly."""
    y, *_ = data(60, 60, 8)
    y[:, 0], y[:, 1] = 1, np.arange(60) % 7 < 6
    best = np.argsort(y.sum(axis=1))
    y[best[:30], 2], y[best[30:], 2] = 1, 0
    f = fit(y, tolerance=1e-11, standard_errors=False)
    assert f.attrs["n_iterations"] <= 60
    assert f.item_at_bound[2]
    assert np.isnan(f.item_discrimination_se).all()
    assert np.isnan(f.item_intercept_se).all()
    assert f.attrs["n_parameters"] == 120  # what ends at a bound was to be estimated too
    errors = fit(y, tolerance=1e-11)  # a difficulty is known no better than the slope it is over
    ended = errors["item_at_bound"].values
    assert 0 < ended.sum() < 30
    for name in ("item_discrimination_se", "item_difficulty_se"):
        np.testing.assert_array_equal(np.isnan(errors[name].values), ended)
    assert errors["item_intercept_se"].values[2] > 0
    one = np.ones(60)

    def loss(t):
        return -log_likelihood(y, t[:60], t[60:], 0 * one, 0 * one, one, nodes=2001)

    at = np.concatenate([f.item_discrimination, f.item_intercept])
    assert f.attrs["objective"] == pytest.approx(-loss(at), rel=1e-9)
    # Along the shift and the stretch that leave what is at a bound where it is.
    free = np.concatenate([(at[:60] > 1e-3) & (at[:60] < 25), np.abs(at[60:]) < 40])
    shift = np.concatenate([0 * one, at[:60]]) * free
    stretch = np.concatenate([at[:60], 0 * one]) * free
    for along in (shift, stretch):
        slope = (loss(at + 1e-4 * along) - loss(at - 1e-4 * along)) / 2e-4
        assert abs(slope) < 0.01  # of a curvature of some 60 to 120


def test_what_a_prior_alone_says_has_its_spread_with_weights():
    """An easy item says nothing of guessing: the SE is that of Beta(5, 17), weights or not."""
    y, table, _, _ = data(1500, 8, 5, guessing=0.15)
    rng = np.random.default_rng(6)
    y[:, 0] = rng.random(1500) < 0.97
    plain = fit(with_persons(y, table), model="3pl")
    weighted = fit(with_persons(y, table.assign(weight=rng.uniform(0.9, 1.1, 1500))), model="3pl")
    c, se = plain["item_guessing"].values, weighted["item_guessing_se"].values
    assert se[0] == pytest.approx((4.0 / c[0] ** 2 + 16.0 / (1.0 - c[0]) ** 2) ** -0.5, rel=0.1)
    np.testing.assert_allclose(se, plain["item_guessing_se"].values, rtol=0.15)


def test_standard_errors_of_many_parameters(monkeypatch):
    y, *_ = data(200, 8, 9)
    want = fit(y)
    monkeypatch.setattr(sampling, "MAX_BY_DEFAULT", 15)
    f = fit(y)
    assert np.isnan(f.item_intercept_se).all()
    np.testing.assert_allclose(f.item_intercept, want.item_intercept, atol=1e-3)
    np.testing.assert_array_equal(
        fit(y, standard_errors=True).item_intercept_se, want.item_intercept_se
    )


def test_blocks_layouts_and_workers_do_not_matter(client, bits):
    """The same bits for the same blocks; other blocks sum products in another order."""
    y, table, *_ = data(300, 6, 4, missing=0.3, groups=([0.0, 0.5], [1.0, 1.2]))
    want = fit(with_persons(y, table, rows_per_block=50))
    assert bits(fit(with_persons(y, table, rows_per_block=50), client=client)) == bits(want)
    sparse = csr_of(y)
    for other in (
        with_persons(y, table, rows_per_block=7),
        with_persons(sparse, table, observed="stored", rows_per_block=50),
    ):
        f = fit(other)
        for name in f.data_vars:
            if f[name].dtype.kind == "f":
                np.testing.assert_allclose(f[name], want[name], rtol=1e-10)


def test_work_that_memory_cannot_hold_is_not_begun(monkeypatch):
    """The error comes before tables of items, and says how much would be needed."""
    y, *_ = data(30, 40, 5)
    want = fit(y, standard_errors=False).attrs["objective"]
    monkeypatch.setattr(memory, "_LITTLE", 0)
    assert fit(y, standard_errors=False).attrs["objective"] == want
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=1e5))
    monkeypatch.setattr(expected, "item_tables", None)
    words = r"marginal maximum likelihood of 40 items.*GiB, and this process may take 0.0 GiB more"
    with pytest.raises(TooLargeError, match=words):
        fit(y)


def test_groups_are_recovered():
    """4 of 4 estimates within 4 standard errors: false-alarm rate 3e-4."""
    y, table, a, _ = data(6000, 15, 5, groups=([0.0, 0.7, -0.5], [1.0, 1.3, 0.8]))
    f = fit(with_persons(y, table))
    assert list(f.group_label.values) == ["A", "B", "C"]
    for name, truth in (("mean", [0.7, -0.5]), ("sd", [1.3, 0.8])):
        z = (f[f"group_{name}"].values[1:] - truth) / f[f"group_{name}_se"].values[1:]
        assert np.abs(z).max() < 4.0
    assert f.group_mean.values[0] == 0.0
    assert f.group_sd.values[0] == 1.0
    assert np.corrcoef(f.item_discrimination, a)[0, 1] > 0.98
    other = fit(with_persons(y, table), reference_group="B")
    np.testing.assert_allclose(other.item_discrimination, f.item_discrimination * f.group_sd[1])
    assert other.attrs["objective"] == pytest.approx(f.attrs["objective"], rel=1e-10)


def test_new_items_land_on_the_scale_of_a_bank():
    y, table, *_ = data(3000, 12, 6)
    bank = fit(with_persons(y, table))
    # The same persons, shifted: a bank for abilities that are 2 theta + 1
    bank = bank.assign(
        item_discrimination=bank.item_discrimination / 2,
        item_intercept=bank.item_intercept - bank.item_discrimination / 2,
    )
    f = fit(with_persons(y, table), fixed_items=bank.isel(items=slice(0, 6)))
    assert f.group_mean.values[0] == pytest.approx(1.0, abs=1e-5)
    assert f.group_sd.values[0] == pytest.approx(2.0, abs=1e-5)
    np.testing.assert_allclose(f.item_discrimination, bank.item_discrimination, atol=1e-5)
    assert f.attrs["n_parameters"] == 12 + 2
    assert np.isnan(f.item_discrimination_se[:6]).all()
    assert (f.item_discrimination_se[6:] > 0).all()


def test_a_histogram_finds_a_skewed_distribution():
    rng = np.random.default_rng(7)
    theta = rng.gamma(2.0, 1.0, 8000)
    theta = (theta - 2.0) / np.sqrt(2.0)
    a, d = rng.lognormal(0.4, 0.2, 25), rng.normal(0.0, 1.2, 25)
    y = respond(rng, theta, a, d)
    normal, free = fit(y), fit(y, latent="histogram", tolerance=1e-7)
    assert free.attrs["standard_errors"] == "information, the histogram of ability taken as known"
    assert free.attrs["objective"] > normal.attrs["objective"] + 50.0
    assert normal.attrs["n_parameters"] == 50
    assert free.attrs["n_parameters"] == 50 + 120 - 2  # masses sum to 1, mean and SD are given
    assert free.group_mean.values[0] == pytest.approx(0.0, abs=1e-9)
    assert free.group_sd.values[0] == pytest.approx(1.0, abs=1e-9)
    error = [np.sqrt(np.mean((f.item_discrimination.values - a) ** 2)) for f in (normal, free)]
    assert error[1] < error[0]
    x, share = free.ability.values, free.group_ability_share.values[0]
    assert share @ x**3 == pytest.approx(np.sqrt(2.0), abs=0.4)  # skewness of the gamma


def test_bad_options():
    y, table, *_ = data(100, 4, 8, groups=([0.0, 0.0], [1.0, 1.0]))
    r = with_persons(y, table)
    bank = fit(y)
    for options, words in (
        ({"model": "5pl"}, "5pl"),
        ({"latent": "uniform"}, "latent='uniform'"),
        ({"reference_group": "Z"}, "reference_group='Z' is not a group: A, B"),
        ({"reference_group": "A", "fixed_items": bank}, "no meaning"),
        ({"fixed_items": bank.assign_coords(item_id=list("wxyz"))}, "none of the items"),
        ({"fixed_items": 3}, "must be a Dataset"),
        ({"model": "3pl", "guessing_prior": (0.5, 2.0)}, "guessing_prior"),
        ({"guessing_prior": (2.0, 2.0)}, "needs model='3pl'"),
        ({"max_iterations": 0}, "max_iterations=0"),
    ):
        with pytest.raises(InputError, match=words):
            fit(r, **options)
    with pytest.raises(InputError, match="no person_group"):
        fit(y, groups=True)


@pytest.mark.slow
def test_coverage():
    """95% intervals of a, d over 200 data sets of 10 items: 4,000 of them, whose share has a
    standard error of about .005 (items of a data set depend on each other): .93 to .97 is 4 of it.
    """
    hits = []
    for s in range(200):
        y, _, a, d = data(800, 10, 1000 + s, missing=0.1)
        f = fit(y)
        for name, truth in (("discrimination", a), ("intercept", d)):
            z = (f[f"item_{name}"].values - truth) / f[f"item_{name}_se"].values
            hits.append(np.abs(z) < 1.96)
    assert 0.93 < np.mean(hits) < 0.97


@pytest.mark.slow
@pytest.mark.nightly
def test_coverage_of_new_items_on_the_scale_of_a_bank():
    """20 anchors known, 5 new items, another population: 95% intervals, 100 data sets.

    Of 1,000 intervals .95 has a standard error of .007: .92 to .98 is 4 of it.
    """
    hits = []
    for s in range(100):
        y, table, a, d = data(1500, 25, 5000 + s, missing=0.2, groups=([0.6], [1.3]))
        values = {"item_discrimination": a, "item_intercept": d, "item_difficulty": -d / a}
        items = dataset(values, item_id=tuple(map(str, range(25))), attrs={})
        bank = items.isel(items=slice(0, 20))
        f = fit(with_persons(y, table.drop(columns="group")), fixed_items=bank)
        for name, truth in (("discrimination", a), ("intercept", d)):
            z = (f[f"item_{name}"].values - truth)[20:] / f[f"item_{name}_se"].values[20:]
            hits.append(np.abs(z) < 1.96)
    assert 0.92 < np.mean(hits) < 0.98


@pytest.mark.filterwarnings("ignore::irt_dask.errors.ItemWarning")
@pytest.mark.filterwarnings("ignore::irt_dask.errors.ConvergenceWarning")
@pytest.mark.parametrize("right", [0, 1])
def test_an_item_that_says_nothing_leaves_the_others_their_errors(right):
    """Its information, of 1e-15 a person, is not lost in rounding of that of the others."""
    y, *_ = data(2000, 8, 4)
    y[:, 0] = right
    f = fit(y)
    alone = fit(y[:, 1:])
    np.testing.assert_allclose(
        f.item_intercept_se[1:], alone.item_intercept_se, rtol=1e-4, equal_nan=False
    )
