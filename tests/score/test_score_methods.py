"""ML, MAP, WLE, guessing, latent regression, raw-score tables: against SciPy and simulation."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from items import intercept_bank, probability, respond
from parts import csr_of
from scipy.integrate import quad
from scipy.optimize import brentq, minimize
from scipy.stats import kstest, norm

import irt_dask as irt
from irt_dask.engine.person_files import DONE
from irt_dask.errors import DataWarning, EstimationError, InputError

#: For tests of arithmetic, on few persons.
FEW = pytest.mark.filterwarnings(
    "ignore:mean and standard deviation of ability of group:irt_dask.errors.ApproximationWarning"
)


def log_lik(t, row, a, d, c):
    """Log-likelihood of one person at abilities t."""
    seen = row >= 0
    p = probability(t, a[seen], d[seen], c[seen])
    return np.log(np.where(row[seen] == 1, p, 1 - p)).sum(axis=-1)


def slopes(t, row, a, d, c):
    """Score, I and J of one person at t, by complex steps and differences of P alone."""
    seen = row >= 0
    a, d, c, y = a[seen], d[seen], c[seen], row[seen]
    p = probability(t, a, d, c)
    first = [probability(t + s + 1e-20j, a, d, c).imag / 1e-20 for s in (0.0, -1e-5, 1e-5)]
    one, two = first[0], (first[2] - first[1]) / 2e-5
    return (
        (one * (y - p) / (p * (1 - p))).sum(),
        (one**2 / (p * (1 - p))).sum(),
        (one * two / (p * (1 - p))).sum(),
    )


def highest(f, slope, low, high, n=2401):
    """Zero of the slope about the highest of n points of f."""
    t = np.linspace(low, high, n)
    k = int(np.argmax([f(x) for x in t])) if callable(f) else int(np.argmax(f))
    return brentq(slope, t[max(k - 1, 0)], t[min(k + 1, n - 1)], xtol=1e-12)


G = np.random.default_rng(0)
M = 9
A, D = G.uniform(0.5, 2.5, M), G.normal(0, 1.3, M)
MODELS = {
    "1pl": (np.ones(M), D, np.zeros(M)),
    "2pl": (A, D, np.zeros(M)),
    "3pl": (A, D, np.concatenate([G.uniform(0.05, 0.4, M - 2), [0.0, 0.0]])),
}
TWO, THREE = intercept_bank(A, D), intercept_bank(*MODELS["3pl"])
Y = respond(G, G.normal(0, 1.3, 24), A, D, missing=0.2)
Y[0], Y[1], Y[2], Y[3, 1:] = 1, 0, -1, -1
Y[4, :] = np.arange(M) % 2


@pytest.mark.parametrize("model", MODELS)
def test_modes_are_those_of_scipy(model):
    a, d, c = MODELS[model]
    items = intercept_bank(a, d, c)
    out = {m: irt.score(irt.from_array(Y), items, method=m) for m in ("ml", "map")}
    t = np.linspace(-6, 6, 2401)
    for i, row in enumerate(Y):
        if i == 2:
            continue
        log = log_lik(t, row, a, d, c)
        got, se = (out["ml"][f"person_ability{s}"].values[i] for s in ("", "_se"))
        if log.argmax() in (0, 2400):
            assert got == t[log.argmax()]
            assert np.isnan(se)
        else:
            want = highest(log, lambda x, row=row: slopes(x, row, a, d, c)[0], -6, 6)
            assert got == pytest.approx(want, abs=1e-6)
            assert se == pytest.approx(slopes(want, row, a, d, c)[1] ** -0.5, abs=1e-5)
        want = highest(log - t**2 / 2, lambda x, row=row: slopes(x, row, a, d, c)[0] - x, -6, 6)
        got, se = (out["map"][f"person_ability{s}"].values[i] for s in ("", "_se"))
        assert got == pytest.approx(want, abs=1e-6)
        assert se == pytest.approx((1 + slopes(want, row, a, d, c)[1]) ** -0.5, abs=1e-5)
    assert np.isnan(out["ml"]["person_ability"].values[2])
    assert out["map"]["person_ability"].values[2] == pytest.approx(0.0, abs=1e-9)
    assert out["map"]["person_ability_se"].values[2] == 1.0
    assert (out["ml"].attrs["n_estimated"], out["map"].attrs["n_estimated"]) == (23, 24)


@pytest.mark.parametrize("model", MODELS)
def test_weighted_likelihood_estimates_are_the_root(model):
    a, d, c = MODELS[model]
    out = irt.score(irt.from_array(Y), intercept_bank(a, d, c), method="wle")
    t = np.linspace(-6, 6, 1201)
    p = probability(t, a, d, c)
    q = 1 - (p - c) / (1 - c)
    info = a**2 * (1 - c) * (1 - q) ** 2 * q / p
    skew = a * (2 * q - 1) * info
    apart = 0.0
    for i, row in enumerate(Y):
        got, se = (out[f"person_ability{s}"].values[i] for s in ("", "_se"))
        seen = row >= 0
        if not seen.any():
            assert np.isnan(got)
            assert np.isnan(se)
            continue

        def slope(x, row=row):
            s, i, j = slopes(x, row, a, d, c)
            return s + j / (2 * i)

        ratio = skew[:, seen].sum(axis=1) / (2 * info[:, seen].sum(axis=1))
        log = log_lik(t, row, a, d, c)
        curve = log + np.concatenate([[0], np.cumsum((ratio[1:] + ratio[:-1]) * 0.005)])
        if curve.argmax() in (0, 1200):  # the next zero outwards
            assert abs(got) > 6
            assert slope(got - 1e-4) > 0 > slope(got + 1e-4)
        else:
            assert got == pytest.approx(highest(curve, slope, -6, 6, 1201), abs=1e-6)
        assert se == pytest.approx(slopes(got, row, a, d, c)[1] ** -0.5, rel=1e-5)
        other = log + 0.5 * np.log(info[:, seen].sum(axis=1))
        apart = max(apart, abs(t[other.argmax()] - got)) if abs(got) < 6 else apart
    if model == "3pl":  # not the maximum of L sqrt(I)
        assert apart > 0.05
    else:
        assert apart < 0.01


def test_one_item_has_warms_closed_form():
    """a = 1, b = 0, one right answer: q + (q - p) / 2 = 0, so p = 3/4."""
    out = irt.score(np.array([[1], [0]]), intercept_bank(np.ones(1), np.zeros(1)), method="wle")
    np.testing.assert_allclose(out["person_ability"], [np.log(3), -np.log(3)], atol=1e-9)


def test_steep_items_and_far_ones_have_estimates():
    a, d = np.array([8.0, 8.0, 0.3]), np.array([-60.0, 60.0, 0.0])
    y = np.array(list(itertools.product((0, 1), repeat=3)), dtype=np.int8)
    for c in (np.zeros(3), np.full(3, 0.2)):
        out = irt.score(y, intercept_bank(a, d, c), method="wle")
        assert np.isfinite(out["person_ability"]).all()
        assert np.isfinite(out["person_ability_se"]).all()


def density(row, parameters, mean, sd):
    """Unnormalised posterior density of one person."""
    return lambda t: np.exp(log_lik(t, row, *parameters)) * norm.pdf(t, mean, sd)


def moments(f, mean, sd):
    ends = {"a": mean - 9 * sd, "b": mean + 9 * sd, "epsabs": 1e-14, "epsrel": 1e-10}
    points = np.linspace(mean - 4 * sd, mean + 4 * sd, 9)
    total, m1, m2 = (
        quad(lambda t, k=k: t**k * f(t), points=points, limit=200, **ends)[0] for k in range(3)
    )
    return m1 / total, np.sqrt(m2 / total - (m1 / total) ** 2)


def test_expectations_with_guessing_equal_adaptive_quadrature():
    out = irt.score(irt.from_array(Y), THREE)
    for i in range(8):
        want = moments(density(Y[i], MODELS["3pl"], 0.0, 1.0), 0.0, 1.0)
        got = [out[f"person_ability{s}"].values[i] for s in ("", "_sd")]
        np.testing.assert_allclose(got, want, atol=1e-7)


def test_plausible_values_with_guessing_are_draws_from_the_posterior():
    """Kolmogorov-Smirnov, two tests of false-alarm rate 1e-4."""
    r = irt.from_array(np.tile(Y[5], (4000, 1)))
    pv = irt.score(r, THREE, method="ml", n_plausible=2)["person_plausible_value"]
    t = np.linspace(-7, 7, 4001)
    f = np.cumsum(density(Y[5], MODELS["3pl"], 0.0, 1.0)(t))
    for values in pv.values.T:
        assert kstest(values, lambda x: np.interp(x, t, f / f[-1])).pvalue > 1e-4


# --- latent regression ----------------------------------------------------------------------------


def log_marginals(y, parameters, mean, sd):
    """Log marginal likelihood of each person under N(mean_i, sd), by fine summation."""
    z = np.linspace(-8, 8, 401)
    out = []
    for row, m in zip(y, np.broadcast_to(mean, len(y)), strict=True):
        f = np.exp(log_lik(m + sd * z, row, *parameters)) * norm.pdf(z)
        out.append(np.log(f.sum() * (z[1] - z[0])))
    return np.array(out)


def grouped(n=400, seed=1, missing=0.1):
    g = np.random.default_rng(seed)
    label = np.array(["b", "a", "c"])[np.arange(n) % 3]
    mean, sd = {"a": -0.5, "b": 0.0, "c": 1.0}, {"a": 1.0, "b": 0.6, "c": 1.5}
    theta = g.normal([mean[k] for k in label], [sd[k] for k in label])
    return respond(g, theta, A, D, missing=missing), label, mean, sd


@pytest.mark.slow
def test_groups_maximise_the_marginal_likelihood():
    y, label, _, _ = grouped(90)
    y[7] = -1  # nobody learns from this person
    r = irt.from_array(y, persons={"group": label})
    out = irt.score(r, TWO, prior="groups")
    assert list(out["group_label"].values) == ["a", "b", "c"]
    assert out.attrs["converged"] == 1
    total = 0.0
    for k, name in enumerate("abc"):
        own = y[label == name]

        def loss(x, own=own):
            return -log_marginals(own, MODELS["2pl"], x[0], np.exp(x[1])).sum()

        found = minimize(loss, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-5})
        mean, sd = out["group_mean"].values[k], out["group_sd"].values[k]
        np.testing.assert_allclose([mean, np.log(sd)], found.x, atol=2e-4)
        total -= loss([mean, np.log(sd)])
    assert out.attrs["log_likelihood"] == pytest.approx(total, abs=1e-6)
    for i in (0, 1, 2, 7):
        k = "abc".index(label[i])
        mean, sd = out["group_mean"].values[k], out["group_sd"].values[k]
        want = moments(density(y[i], MODELS["2pl"], mean, sd), mean, sd)
        got = [out[f"person_ability{s}"].values[i] for s in ("", "_sd")]
        np.testing.assert_allclose(got, want, atol=1e-6)


def regressed(n, seed=2, c=0.0):
    g = np.random.default_rng(seed)
    x = {"age": g.uniform(10, 18, n), "female": g.integers(0, 2, n).astype(float)}
    theta = -2.8 + 0.2 * x["age"] + 0.5 * x["female"] + g.normal(0, 0.7, n)
    return respond(g, theta, A, D, c, missing=0.1), x


def test_regression_maximises_the_marginal_likelihood():
    y, x = regressed(120, c=MODELS["3pl"][2])
    r = irt.from_array(y, persons=x)
    out = irt.score(r, THREE, prior="covariates", n_plausible=1)
    names = list(out["covariate"].values)
    assert names == ["intercept", *r.covariate_names]
    u = np.stack([np.ones(120), *(x[k] for k in r.covariate_names)], axis=1)
    beta, sd = out["regression_coefficient"].values, float(out["residual_sd"])

    def loss(b, s):
        return -log_marginals(y, MODELS["3pl"], u @ b, s).sum()

    best = loss(beta, sd)
    assert out.attrs["log_likelihood"] == pytest.approx(-best, abs=1e-6)
    for k, name in enumerate(names):  # the slope vanishes
        step = 1e-3 * np.eye(3)[k] / np.abs(u[:, k]).max()
        up, down = loss(beta + step, sd), loss(beta - step, sd)
        assert min(up, down) > best, name
        assert abs(up - down) < 0.02 * (up + down - 2 * best)
    assert min(loss(beta, sd + 1e-3), loss(beta, sd - 1e-3)) > best
    mode = irt.score(r, THREE, prior=r.covariate_names, method="map")
    for i in range(4):
        mean = float(u[i] @ beta)
        f = density(y[i], MODELS["3pl"], mean, sd)
        got = [out[f"person_ability{s}"].values[i] for s in ("", "_sd")]
        np.testing.assert_allclose(got, moments(f, mean, sd), atol=1e-6)
        t = np.linspace(mean - 5 * sd, mean + 5 * sd, 1001)
        want = t[np.argmax([f(v) for v in t])]
        assert mode["person_ability"].values[i] == pytest.approx(want, abs=0.006 * sd)


def test_true_values_lie_within_four_standard_errors():
    """Ten estimates, false-alarm rate 6e-5 each; standard errors near those of known abilities."""
    y, label, mean, sd = grouped(6000, seed=3)
    out = irt.score(irt.from_array(y, persons={"group": label}), TWO, prior="groups")
    for name, truth in (("group_mean", mean), ("group_sd", sd)):
        se = out[f"{name}_se"].values
        error = out[name].values - [truth[k] for k in "abc"]
        assert (np.abs(error) < 4 * se).all()
        assert (se > 0.01).all()
        assert (se < 0.1).all()
    y, x = regressed(5000, seed=4)
    out = irt.score(irt.from_array(y, persons=x), TWO, prior=["age", "female"])
    error = out["regression_coefficient"].values - [-2.8, 0.2, 0.5]
    assert (np.abs(error) < 4 * out["regression_coefficient_se"].values).all()
    assert abs(float(out["residual_sd"]) - 0.7) < 4 * float(out["residual_sd_se"])
    # no smaller than with known abilities, no larger than twice that
    exact = 0.7 * np.sqrt([1 / 5000 / x["age"].var(), 1 / 5000 / x["female"].var()])
    ratio = out["regression_coefficient_se"].values[1:] / exact
    assert ((ratio > 1.0) & (ratio < 2.0)).all()


def test_plausible_values_recover_a_difference_that_expectations_shrink():
    """Difference 0.8; its standard error is about 0.04: 4 of them (false-alarm rate 6e-5)."""
    g = np.random.default_rng(5)
    label = np.arange(3000) % 2
    y = respond(g, g.normal(0.8 * label, 1.0), A[:5], D[:5])
    r = irt.from_array(y, persons={"group": [f"g{k}" for k in label]})
    items = intercept_bank(A[:5], D[:5])
    out = irt.score(r, items, prior="groups", n_plausible=3)
    plain = irt.score(r, items, n_plausible=3)

    def difference(values):
        return values[label == 1].mean() - values[label == 0].mean()

    assert abs(difference(out["person_plausible_value"].values) - 0.8) < 0.17
    assert difference(plain["person_ability"].values) < 0.63
    assert difference(plain["person_plausible_value"].values) < 0.63  # a prior that knows no groups


@FEW
def test_weights_count_persons():
    y, label, _, _ = grouped(60, seed=6)
    w = np.arange(60) // 3 % 3 + 1
    once = irt.from_array(y, persons={"group": label, "weight": w}, weight_kind="frequency")
    many = irt.from_array(np.repeat(y, w, axis=0), persons={"group": np.repeat(label, w)})
    a, b = (irt.score(r, TWO, prior="groups") for r in (once, many))
    for name in ("group_mean", "group_sd"):
        np.testing.assert_allclose(a[name], b[name], atol=1e-7)
    assert a.attrs["log_likelihood"] == pytest.approx(b.attrs["log_likelihood"], rel=1e-9)
    np.testing.assert_allclose(a["group_mean_se"], b["group_mean_se"], rtol=1e-7)
    sampled = irt.from_array(y, persons={"group": label, "weight": w})
    c = irt.score(sampled, TWO, prior="groups")  # fewer persons than w says
    assert (c["group_mean_se"].values > b["group_mean_se"].values).all()


def test_a_group_without_spread_ends_at_the_bound():
    y = np.tile(np.arange(4) % 2, (30, 1))
    r = irt.from_array(y, persons={"group": ["g"] * 30})
    with pytest.warns(DataWarning, match="at its bound 0.05 for 'g'"):
        out = irt.score(r, intercept_bank(np.ones(4), np.zeros(4)), prior="groups")
    assert float(out["group_sd"][0]) == pytest.approx(0.05)
    assert np.isnan(out["group_mean_se"].values[0])


# --- the same bits, files, refusals ---------------------------------------------------------------

OPTIONS = [
    {"method": "ml"},
    {"method": "wle"},
    {"method": "map", "prior": "covariates"},
    {"prior": "groups", "n_plausible": 2},
]


def of(y, **options):
    n = y.shape[0]
    persons = {"group": [f"g{i % 2}" for i in range(n)], "x": np.sin(np.arange(n))}
    return irt.from_array(y, persons=persons, **options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_blocks_and_layouts_do_not_matter(bits, options):
    y = np.concatenate([Y, Y[::-1]])
    items = intercept_bank(*MODELS["2pl" if options.get("prior") == "groups" else "3pl"])
    want = irt.score(of(y), items, **options)
    stored = csr_of(y)
    sparse = of(stored, observed="stored", rows_per_block=13, item_id=[str(j) for j in range(M)])
    assert sparse.layout == "csr"
    for other in (of(y, rows_per_block=1), of(y, rows_per_block=7), sparse):
        got = irt.score(other, items, **options)
        assert bits(got) == bits(want)
        assert got.attrs == want.attrs


@FEW
def test_files_equal_memory_and_the_command_writes_them(tmp_path):
    from click.testing import CliRunner

    from irt_dask.cli.work import score

    items, ids = TWO, [f"p{i}" for i in range(len(Y))]
    table = pd.DataFrame(Y, columns=items["item_id"].values, index=ids).replace(-1, "")
    table.to_csv(tmp_path / "y.csv", index_label="person")
    group = pd.DataFrame({"person": ids, "group": [f"g{i % 2}" for i in range(len(Y))]})
    group.to_csv(tmp_path / "persons.csv", index=False)
    options = {"shape": "wide", "persons": tmp_path / "persons.csv"}
    r = irt.ingest(tmp_path / "y.csv", tmp_path / "store", **options)
    irt.write_items(items, tmp_path / "bank.csv")
    memory = irt.score(r, items, method="map", prior="groups")
    args = ["store", "bank.csv", "--out", "c", "--method", "map", "--prior", "groups"]
    paths = [str(tmp_path / x) if x in ("store", "bank.csv", "c") else x for x in args]
    done = CliRunner().invoke(score, [*paths, "--cluster", "none", "--json", "--quiet"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["mean_ability"] == memory.attrs["mean_ability"]
    frame = pd.read_parquet(tmp_path / "c")
    assert list(frame.columns) == [
        "person_id", "person_group", "person_ability", "person_ability_se", "n_responses",
        "sum_score",
    ]  # fmt: skip
    for name in ("person_ability", "person_ability_se"):
        np.testing.assert_array_equal(frame[name], memory[name])
    told = json.loads((tmp_path / "c" / DONE).read_text())
    assert told["group_mean"] == memory["group_mean"].values.tolist()
    assert told["group_label"] == ["g0", "g1"]


@pytest.mark.parametrize("method", ("eap", "map", "ml", "wle"))
def test_one_person_works(method):
    out = irt.score(Y[4:5], THREE, method=method)
    assert np.isfinite(out["person_ability"].values).all()


def test_what_has_no_effect_or_no_meaning_is_refused():
    items, r = TWO, of(Y)
    for responses, options, message in (
        (r, {"method": "mle"}, "method='mle' is not available"),
        (r, {"prior": "flat"}, "prior='flat' is not available"),
        (r, {"prior": 3}, "prior=3 must be a name or a list"),
        (r, {"prior": ["x", "age"]}, r"name each covariate once.*: x"),
        (r, {"prior": []}, "name each covariate once"),
        (r, {"method": "wle", "prior": "groups"}, "has no effect on method='wle'"),
        (r, {"method": "ml", "n_item_draws": 3}, "takes the items as known"),
        (irt.from_array(Y), {"prior": "groups"}, "no groups of persons"),
        (irt.from_array(Y), {"prior": "covariates"}, "that the responses have: none"),
    ):
        with pytest.raises(InputError, match=message):
            irt.score(responses, items, **options)


def test_persons_that_determine_nothing_are_named():
    n, items = len(Y), TWO
    nan = np.where(np.arange(n) == 3, np.nan, 1.0 * np.arange(n))
    for columns, error, message in (
        ({"x": nan}, InputError, r"1 person\(s\) have no value"),
        ({"x": np.ones(n)}, InputError, "covariate.s. x are the same for all"),
        ({"x": Y[:, 0] * 1.0, "z": 2.0 - Y[:, 0]}, EstimationError, "depend on each other"),
        ({"group": ["empty" if i == 2 else "g" for i in range(n)]}, EstimationError, "empty"),
    ):
        prior = "groups" if "group" in columns else "covariates"
        with pytest.raises(error, match=message):
            irt.score(irt.from_array(Y, persons=columns), items, prior=prior)


# --- raw scores -----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_expectations_of_raw_scores_sum_over_all_patterns(model):
    a, d, c = (x[:6] for x in MODELS[model])
    out = irt.score_table(intercept_bank(a, d, c), ability=(0.3, 1.2))
    patterns = np.array(list(itertools.product((0, 1), repeat=6)))
    t = np.linspace(-9, 9.6, 4001)
    prior = norm.pdf(t, 0.3, 1.2) * (t[1] - t[0])
    for score in range(7):
        f = sum(np.exp(log_lik(t, y, a, d, c)) for y in patterns if y.sum() == score) * prior
        mean = f @ t / f.sum()
        sd = np.sqrt(f @ (t - mean) ** 2 / f.sum())
        got = [out[n].values[score] for n in NAMES]
        np.testing.assert_allclose(got, [mean, sd, f.sum()], atol=1e-7)


NAMES = ("score_ability", "score_ability_sd", "score_probability")


def test_curves_are_inverted():
    a, d, c = MODELS["3pl"]
    out = irt.score_table(intercept_bank(a, d, c), method="tcc")
    theta, se = out["score_ability"].values, out["score_ability_se"].values
    low, high = (probability(x, a, d, c).sum() for x in (-6.0, 6.0))
    for score in range(M + 1):
        if low < score < high:
            assert probability(theta[score], a, d, c).sum() == pytest.approx(score, abs=1e-9)
            p = probability(theta[score], a, d, c)
            slope = probability(theta[score] + 1e-20j, a, d, c).imag.sum() / 1e-20
            assert se[score] == pytest.approx(np.sqrt((p * (1 - p)).sum()) / slope, rel=1e-9)
        else:
            assert theta[score] == (-6.0 if score <= low else 6.0)
            assert np.isnan(se[score])


def test_raw_scores_of_the_rasch_model_are_sufficient():
    items = intercept_bank(np.ones(M), D)
    y = np.tril(np.ones((M + 1, M), dtype=int), -1)[:, ::-1]
    for table, method in (("tcc", "ml"), ("wle", "wle")):
        out, persons = irt.score_table(items, method=table), irt.score(y, items, method=method)
        for s in ("", "_se"):
            np.testing.assert_allclose(
                out[f"score_ability{s}"], persons[f"person_ability{s}"], atol=1e-7
            )
    eap = irt.score(y, items)
    np.testing.assert_allclose(
        irt.score_table(items)["score_ability"], eap["person_ability"], atol=1e-7
    )


def test_long_forms_do_not_underflow():
    """200 hard items, all right: so unlikely at every ability that the product would be 0."""
    out = irt.score_table(intercept_bank(np.ones(200), np.full(200, -30.0)))
    assert np.isfinite(out["score_ability"]).all()
    assert (np.diff(out["score_ability"]) > -1e-12).all()


def test_tables_refuse_what_they_cannot_do():
    for items, options, message in (
        (TWO, {"method": "wle"}, "items of one discrimination"),
        (TWO, {"method": "ml"}, "method='ml' is not available; use eap, tcc, wle"),
        (TWO, {"ability": (0.0, 0.0)}, "sd above 0"),
        (TWO, {"ability": 1.0}, "two numbers"),
        (TWO.isel(items=[]), {}, "no item"),
    ):
        with pytest.raises(InputError, match=message):
            irt.score_table(items, **options)


@pytest.mark.parametrize(("a", "b"), [(8.0, 0.0), (6.0, 0.0), (5.0, -2.0), (5.0, -1.0)])
def test_all_right_on_steep_items_with_guessing(a, b):
    """The likelihood rises to the end, by less than its rounding: the bound, without an SE."""
    g = np.random.default_rng(0)
    a, b = a * np.exp(0.05 * g.normal(size=20)), b + 0.3 * g.normal(size=20)
    y = np.repeat([np.ones(20), np.arange(20) % 2], 2, axis=0)
    s = irt.score(y.astype(np.int8), intercept_bank(a, -a * b, np.full(20, 0.2)), method="ml")
    np.testing.assert_array_equal(s["person_ability"][:2], 6.0)
    assert np.isnan(s["person_ability_se"][:2]).all()
    assert (s["person_ability"][2:] < 3.0).all()
