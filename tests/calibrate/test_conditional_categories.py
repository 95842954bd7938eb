"""Conditional maximum likelihood of partial credit and rating scale items.

Against enumeration, exact arithmetic, linear programs, and what other programs print (R eRm 1.0-2,
psychotools 0.7-2, dexter; Science data of the Eurobarometer 1992).
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
from categories import category_probability
from parts import csr_of
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

import irt_dask as irt
from irt_dask.calibrate.rasch import conditional, conditional_maximum, conditional_sets
from irt_dask.calibrate.rasch.conditional_likelihoods import Categories
from irt_dask.engine import Engine
from irt_dask.errors import ConvergenceWarning, EstimationError, InputError
from irt_dask.kernels.pairs import category_functions
from irt_dask.kernels.responses import item_sets
from irt_dask.kernels.responses.item_sets import Sets
from irt_dask.kernels.responses.layouts import Dense

SCIENCE = Path(__file__).parents[1] / "oracles" / "science.csv"


def fit(responses, model="pcm", **options):
    return irt.fit_conditional(responses, model=model, progress=False, **options)


def likelihood(responses, model="pcm"):
    """The function that a fit maximises."""
    with Engine(responses, progress=False, graded=True) as engine:
        sets, counts = conditional_sets.counted(engine)
        seen = conditional.ResponseCounts(counts[:, -1], counts.sum(axis=1), 0, counts)
        models = conditional._models_of(model, responses)
        return conditional._likelihood(engine, models, sets, seen)


def partial_credit(seed, n, steps, missing=0.0, theta=None):
    """Codes (n, items) of items with these step difficulties, -1 missing."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=n) if theta is None else theta
    y = np.empty((n, len(steps)), dtype=np.int8)
    for j, b in enumerate(steps):
        p = category_probability("pcm", theta, np.array([1.0, *-np.cumsum(b)]))
        y[:, j] = (rng.random((n, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    y[rng.random(y.shape) < missing] = -1
    return y


STEPS = [(-0.8, 0.5), (0.2, -0.3, 1.0), (0.4,), (-1.0, 0.3)]
K = tuple(len(b) + 1 for b in STEPS)


def small(seed, n=300, missing=0.0):
    return irt.from_array(partial_credit(seed, n, STEPS, missing), categories=K)


def codes(responses):
    return responses.to_xarray()["response"].values.astype(int)


def science():
    table = pd.read_csv(SCIENCE)
    y = np.repeat(table.values[:, :4], table["persons"], axis=0)
    return irt.from_array(y, categories=4, item_id=list(table.columns[:4]))


# --- by enumeration of all patterns with the same score -------------------------------------------


def indicators(patterns, k):
    """Rows of 1 for each category above 0 of each item; not observed is no category."""
    return np.concatenate(
        [patterns[:, [j]] == np.arange(1, k[j]) for j in range(len(k))], axis=1
    ).astype(float)


def alike(person, k):
    """All patterns with a person's score on the items that the person answered."""
    ways = itertools.product(
        *[range(n) if x >= 0 else [-1] for x, n in zip(person, k, strict=True)]
    )
    score = person[person >= 0].sum()
    return np.array([w for w in ways if sum(x for x in w if x >= 0) == score])


def enumerated(y, k, d):
    """Conditional log-likelihood of constants d, its gradient, and the information."""
    value, gradient, information = 0.0, np.zeros(d.size), np.zeros((d.size, d.size))
    patterns, times = np.unique(y, axis=0, return_counts=True)
    for person, n in zip(patterns, times, strict=True):
        own, ways = indicators(person[None], k)[0], indicators(alike(person, k), k)
        weight = np.exp(ways @ d)
        p = weight / weight.sum()
        value += n * (own @ d - np.log(weight.sum()))
        gradient += n * (own - p @ ways)
        information += n * ((ways * p[:, None]).T @ ways - np.outer(p @ ways, p @ ways))
    return value, gradient, information


def constants(result):
    d = result["item_step_intercept"].values
    return d[np.isfinite(d)]


@pytest.mark.parametrize("model", ["pcm", "rating"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_enumerated_likelihood(model, missing):
    """Its value, its gradient, which is 0 along what the model can do, and standard errors."""
    r = small(1, missing=missing)
    found = fit(r, model)
    d = constants(found)
    value, gradient, information = enumerated(codes(r), K, d)
    assert found.attrs["objective"] == pytest.approx(value, rel=1e-12)

    own = likelihood(r, model)
    at = np.linalg.lstsq(own.constants.toarray(), d, rcond=None)[0]
    np.testing.assert_allclose(own.constants @ at, d, atol=1e-12)
    by_x = own.constants.toarray()
    np.testing.assert_allclose(by_x.T @ gradient, 0.0, atol=1e-8)
    np.testing.assert_allclose(own.derivatives(at)[1], by_x.T @ gradient, atol=1e-10)
    np.testing.assert_allclose(own.derivatives(at)[2], by_x.T @ information @ by_x, atol=1e-10)

    # Information of what moves no mean difficulty, from a basis of such moves.
    to_b = own.to_difficulties.toarray()
    basis = np.linalg.svd(to_b.mean(axis=0)[None])[2][1:].T
    inside = np.linalg.inv(basis.T @ by_x.T @ information @ by_x @ basis)
    covariance = to_b @ basis @ inside @ basis.T @ to_b.T
    errors = found["item_step_difficulty_se"].values
    np.testing.assert_allclose(errors[np.isfinite(errors)], np.sqrt(np.diag(covariance)), rtol=1e-9)
    mean = np.zeros((4, d.size))
    mean[np.repeat(np.arange(4), np.array(K) - 1), np.arange(d.size)] = 1.0
    mean /= mean.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        found["item_difficulty_se"], np.sqrt(np.diag(mean @ covariance @ mean.T)), rtol=1e-9
    )
    b = found["item_step_difficulty"].values
    np.testing.assert_allclose(found["item_difficulty"], np.nanmean(b, axis=1), atol=1e-14)
    assert np.nanmean(b) == pytest.approx(0.0, abs=1e-14)
    assert np.isfinite(b).sum() == d.size
    assert np.isnan(errors).sum() == np.isnan(b).sum()
    free = {"pcm": d.size - 1, "rating": 4 + 1 + 2 - 1}  # K = 3 shares one shift, K = 4 has two
    assert found.attrs["n_parameters"] == free[model]


@pytest.mark.parametrize("model", ["pcm", "rating"])
def test_derivatives_agree_with_finite_differences(model):
    own = likelihood(small(2, missing=0.2), model)
    x = own.start() + np.random.default_rng(3).normal(size=own.start().size)
    value, gradient, information = own.derivatives(x)
    assert value == own.value(x)
    h = 1e-5
    for j, one in enumerate(np.eye(x.size)):
        rise = own.value(x + h * one) - own.value(x - h * one)
        assert gradient[j] == pytest.approx(rise / (2 * h), abs=1e-5)
        bend = own.derivatives(x + h * one)[1] - own.derivatives(x - h * one)[1]
        np.testing.assert_allclose(information[j], -bend / (2 * h), atol=1e-5)
    np.testing.assert_allclose(information @ own.flat, 0.0, atol=1e-10)


# --- symmetric functions in integer arithmetic ----------------------------------------------------

_BITS = 2**100
#: Probabilities as integers have so many binary places.
_PLACES = 300
_DRAW = np.random.default_rng(4)
HARD = {
    "long": _DRAW.normal(0.0, 1.5, (100, 4)),
    "steep": _DRAW.uniform(-15.0, 15.0, (40, 4)),
    "equal": np.zeros((30, 4)),
    "two kinds": np.repeat([[-9.0, -9.0], [9.0, 9.0]], 30, axis=0),
    "out of order": np.tile([20.0, -20.0, 20.0], (25, 1)),
    "two items": np.array([[-30.0, 25.0], [3.0, 40.0]]),
}


def product(polynomials):
    out = [1]
    for p in polynomials:
        new = [0] * (len(out) + len(p) - 1)
        for k, e in enumerate(p):
            for r, c in enumerate(out):
                new[r + k] += e * c
        out = new
    return out


def without(whole, p):
    """The other factor of a product, from its lowest coefficient on."""
    out = []
    for r in range(len(whole) - len(p) + 1):
        rest = sum(p[k] * out[r - k] for k in range(1, min(r, len(p) - 1) + 1))
        out.append((whole[r] - rest) // p[0])
    return out


def of_one_set(steps, n):
    m = len(steps)
    zero = np.zeros(m, dtype=np.int64)
    return Sets(np.array([0, m]), np.arange(m, dtype=np.int32), zero, n, np.array([0, n.size]))


@pytest.mark.parametrize("b", HARD.values(), ids=HARD)
def test_moments_agree_with_integer_arithmetic(b):
    """Log-likelihood and expected counts to 1e-12, covariances to 1e-10 of the variances."""
    m, steps = b.shape
    eps = np.exp(-b.cumsum(axis=1))
    factors = [[_BITS, *(int(e * float(_BITS)) for e in row)] for row in eps]
    d = np.array([[np.log(e / _BITS) for e in f[1:]] for f in factors])
    whole = product(factors)
    n = np.random.default_rng(5).integers(1, 50, m * steps + 1)
    n[0] = n[-1] = 0
    value, gradient, information = category_functions.derivatives(
        of_one_set(b, n), np.zeros(d.size, dtype=np.int64), np.arange(m + 1) * steps, d.ravel()
    )
    scores = range(1, n.size - 1)
    logs = [_log(whole[r]) - m * np.log(float(_BITS)) for r in scores]
    assert -value == pytest.approx(n[1:-1] @ np.array(logs), rel=1e-12)

    def shares(polynomial, factor, at):
        """Probabilities of what leaves a polynomial to the others, by score."""
        rest = [polynomial[r - at] if 0 <= r - at < len(polynomial) else 0 for r in scores]
        return [(factor * c << _PLACES) // whole[r] for r, c in zip(scores, rest, strict=True)]

    def expected(values):
        return sum(int(n[r]) * x for r, x in zip(scores, values, strict=True)) / (1 << _PLACES)

    chosen = sorted({0, m // 2, m - 1})
    others = {i: without(whole, factors[i]) for i in chosen}
    beside = {(i, j): without(others[i], factors[j]) for i in chosen for j in chosen if i < j}
    p = {(i, k): shares(others[i], factors[i][k], k) for i in chosen for k in {1, steps}}
    for (i, k), mine in p.items():
        got = -gradient[i * steps + k - 1]
        assert got == pytest.approx(expected(mine), rel=1e-12, abs=1e-80)
    for (i, k), (j, v) in itertools.combinations_with_replacement(p, 2):
        if i == j:
            both = p[i, k] if k == v else [0] * len(scores)
        else:
            both = shares(beside[i, j], factors[i][k] * factors[j][v], k + v)
        product_of = [x * y >> _PLACES for x, y in zip(p[i, k], p[j, v], strict=True)]
        exact = expected([x - y for x, y in zip(both, product_of, strict=True)])
        at, to = i * steps + k - 1, j * steps + v - 1
        scale = np.sqrt(information[at, at] * information[to, to])
        assert abs(information[at, to] - exact) <= 1e-10 * scale + 1e-15 * n.sum()
        if at == to:
            assert information[at, at] == pytest.approx(exact, rel=1e-11, abs=1e-80)


def _log(x):
    """Logarithm of an integer of any size."""
    shift = max(x.bit_length() - 900, 0)
    return float(np.log(float(x >> shift)) + shift * np.log(2.0))


# --- other programs -------------------------------------------------------------------------------

#: psychotools: step difficulties of the Science data and their standard errors, of mean 0.
SCIENCE_STEPS = {
    "pcm": (
        -791.244460,
        [[-2.421631, -1.685451, 2.196396], [-0.925194, -0.129567, 2.713267],
         [-1.671852, -0.575956, 1.916869], [-1.478855, -0.095684, 2.157659]],
        [[0.590472, 0.201902, 0.155239], [0.213840, 0.147050, 0.193041],
         [0.311673, 0.157967, 0.158542], [0.252740, 0.147126, 0.172861]],
    ),
    "rating": (
        -807.257813,
        [[-2.095594, -1.173395, 1.692510], [-1.093061, -0.170861, 2.695043],
         [-1.736704, -0.814504, 2.051400], [-1.355046, -0.432846, 2.433058]],
        [[0.160074, 0.116328, 0.108096], [0.128204, 0.110503, 0.139003],
         [0.149757, 0.109875, 0.118379], [0.137413, 0.108229, 0.130354]],
    ),
}  # fmt: skip
#: eRm: standard errors of easiness up to each category, of sum 0, partial credit.
SCIENCE_ERM = [0.562057, 0.478763, 0.432639, 0.211580, 0.246141, 0.354533, 0.300079, 0.292970,
               0.344646, 0.246304, 0.265155, 0.346079]  # fmt: skip


@pytest.mark.parametrize("model", SCIENCE_STEPS)
def test_science(model):
    found = fit(science(), model)
    value, steps, errors = SCIENCE_STEPS[model]
    assert found.attrs["objective"] == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(found["item_step_difficulty"], steps, atol=2e-5)
    np.testing.assert_allclose(found["item_step_difficulty_se"], errors, rtol=2e-5)
    assert found.attrs["n_parameters"] == {"pcm": 11, "rating": 5}[model]
    about = {name: found.attrs[name] for name in ("n_informative", "n_lowest_score", "n_patterns")}
    assert about == {"n_informative": 378, "n_lowest_score": 2, "n_patterns": 1}
    assert found.attrs["n_highest_score"] == 12


def errors_of_sum_zero(own, d):
    """Standard errors of constants d whose sum over all categories is 0, as eRm has them."""
    x = np.linalg.lstsq(own.constants.toarray(), d, rcond=None)[0]
    covariance = conditional_maximum.covariance(own, own.derivatives(x)[2])
    flat = own.constants @ own.flat
    centre = np.eye(d.size) - np.outer(flat, np.ones(d.size)) / flat.sum()
    by_x = centre @ own.constants.toarray()
    return np.sqrt(np.diag(by_x @ covariance @ by_x.T))


def test_science_errors_in_another_normalisation():
    """ERm's come from a numerical Hessian where it stopped."""
    own, found = likelihood(science()), fit(science())
    np.testing.assert_allclose(errors_of_sum_zero(own, constants(found)), SCIENCE_ERM, rtol=3e-4)


def test_timss(real_data):
    """Two formats; eRm's easiness, which ends a little before the maximum."""
    folder = real_data / "reference_r"
    if not folder.is_dir():
        pytest.skip(f"the reference results {folder} are not here")
    y = pd.read_csv(folder / "data" / "timss_aus_twn.csv").iloc[:, :11]
    r = irt.from_array(y.values, categories=(y.max() + 1).tolist(), item_id=list(y.columns))
    found, beta = fit(r), pd.read_csv(folder / "cml" / "erm_timss_pcm_beta.csv")
    assert found.attrs["objective"] == pytest.approx(-5933.902802, abs=1e-5)
    own, d = likelihood(r), constants(found)
    flat = own.constants @ own.flat
    np.testing.assert_allclose(d - flat * d.sum() / flat.sum(), beta["beta_easiness"], atol=2e-4)
    np.testing.assert_allclose(errors_of_sum_zero(own, d), beta["se"], rtol=3e-4)


def test_verbal_aggression(real_data):
    """OPLM, by dexter."""
    path = real_data / "polytomous" / "verbal_aggression.csv"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    table = pd.read_csv(path, index_col="person")
    found = fit(irt.from_array(table.values, categories=3, item_id=list(table.columns)))
    assert found.attrs["objective"] == pytest.approx(-5177.78208, abs=1e-5)
    for item, steps, errors in (
        ("S1DoCurse", (-1.342, -0.638), (0.154, 0.142)),
        ("S3DoShout", (1.909, 2.685), (0.216, 0.730)),
    ):
        j = list(table.columns).index(item)
        np.testing.assert_allclose(found["item_step_difficulty"][j], steps, atol=6e-4)
        np.testing.assert_allclose(found["item_step_difficulty_se"][j], errors, atol=6e-4)


# --- models that are the same ---------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_two_categories_are_the_rasch_model(missing):
    y = partial_credit(6, 500, [(b,) for b in np.linspace(-2.0, 2.0, 9)], missing)
    rasch = irt.fit_conditional(y, progress=False)
    for model in ("pcm", "rating", {str(j): "1pl" for j in range(9)}):
        found = fit(y, model)
        assert found.attrs["objective"] == pytest.approx(rasch.attrs["objective"], rel=1e-12)
        assert found.data_vars.keys() == rasch.data_vars.keys()
        for name in ("item_difficulty", "item_difficulty_se"):
            np.testing.assert_allclose(found[name], rasch[name], atol=1e-10)
        same = ("n_informative", "n_patterns", "n_parameters", "n_lowest_score", "n_highest_score")
        assert {n: found.attrs[n] for n in same} == {n: rasch.attrs[n] for n in same}
        np.testing.assert_array_equal(found["item_flag"], rasch["item_flag"])


def test_blocks_of_one_item_are_partial_credit():
    r = small(7, missing=0.2)
    found, other = fit(r), fit(r, {i: f"rating:{i}" for i in r.item_id})
    assert other.attrs["objective"] == pytest.approx(found.attrs["objective"], rel=1e-12)
    for name in ("item_step_difficulty", "item_step_difficulty_se", "item_threshold_se"):
        np.testing.assert_allclose(other[name], found[name], atol=1e-8)
    assert other.attrs["n_parameters"] == found.attrs["n_parameters"]


def test_a_rating_scale_has_steps_in_common():
    """Two blocks of three items, beside one of partial credit."""
    shifts = np.array([[-1.0, 0.2, 0.8]])
    steps = [*(np.array([[-0.5], [0.3], [0.9]]) + shifts), *(np.zeros((3, 1)) - shifts), (0.1, 0.4)]
    y = partial_credit(8, 2000, steps)
    r = irt.from_array(y, categories=[4] * 6 + [3])
    blocks = ["rating:a"] * 3 + ["rating:b"] * 3 + ["pcm"]
    found = fit(r, dict(zip(r.item_id, blocks, strict=True)))
    b = found["item_step_difficulty"].values
    about = b[:6] - b[:6].mean(axis=1, keepdims=True)
    np.testing.assert_allclose(about[:3], np.broadcast_to(about[0], (3, 3)), atol=1e-12)
    np.testing.assert_allclose(about[3:], np.broadcast_to(about[3], (3, 3)), atol=1e-12)
    np.testing.assert_allclose(about[[0, 3]], [*shifts, *-shifts], atol=0.2)
    assert found.attrs["model"] == "by item"
    assert found.attrs["n_parameters"] == 6 + 2 + 2 + 2 - 1
    assert fit(r).attrs["objective"] > found.attrs["objective"] > fit(r, "rating").objective


# --- what it is good for --------------------------------------------------------------------------


def test_recovery_with_booklets_of_able_and_weak_persons():
    """Intervals hold where abilities are of two kinds and decide what is answered.

    20,000 persons, 34 steps in two booklets with two items in common.  Of z-scores with SD 1 the
    root mean square is within 1 +- .3 (2.5 SDs of it), the largest below 4.
    """
    rng = np.random.default_rng(9)
    steps = [np.sort(rng.normal(c, 0.8, size)) for c, size in zip(
        np.linspace(-1.5, 1.5, 12), [3, 2, 4, 3, 2, 3, 3, 2, 4, 3, 2, 3], strict=True)]  # fmt: skip
    y = partial_credit(10, 20_000, steps, theta=np.repeat([-1.2, 1.0], 10_000))
    y[:10_000, 7:] = -1
    y[10_000:, :5] = -1
    found = fit(irt.from_array(y, categories=[len(b) + 1 for b in steps]))
    truth = np.full((12, 4), np.nan)
    for j, b in enumerate(steps):
        truth[j, : len(b)] = b
    truth -= np.nanmean(truth)
    z = (found["item_step_difficulty"].values - truth) / found["item_step_difficulty_se"].values
    assert np.nanmax(np.abs(z)) < 4.0
    assert abs(np.sqrt(np.nanmean(z**2)) - 1.0) < 0.3
    assert found.attrs["n_patterns"] == 2


def test_thresholds_halve_the_chances():
    found = fit(small(11, 2000))
    d = found["item_step_intercept"].values
    for j, k in enumerate(K):
        own = found["item_threshold"].values[j, : k - 1]
        p = category_probability("pcm", own, np.array([1.0, *d[j, : k - 1]]))
        above = [p[s, s + 1 :].sum() for s in range(k - 1)]
        np.testing.assert_allclose(above, 0.5, atol=1e-9)
        assert (found["item_threshold_se"].values[j, : k - 1] > 0.0).all()


@pytest.mark.filterwarnings(
    "ignore:the items were calibrated with persons:irt_dask.errors.DataWarning"
)
def test_scores_of_a_fit():
    """Persons of a raw score r have the ability that expects r by ML, that of the table by WLE."""
    r = small(12, 200)
    found, score = fit(r), codes(r).sum(axis=1)
    table = irt.score_table(found, method="wle")["score_ability"].values
    persons = irt.score(r, found, method="wle", progress=False)["person_ability"].values
    np.testing.assert_allclose(persons, table[score], atol=1e-8)
    ml = irt.score(r, found, method="ml", progress=False)["person_ability"].values
    inner = (score > 0) & (score < sum(K) - len(K))
    expected = np.zeros(200)
    for j, k in enumerate(K):
        d = found["item_step_intercept"].values[j, : k - 1]
        expected += category_probability("pcm", ml, np.array([1.0, *d])) @ np.arange(k)
    np.testing.assert_allclose(expected[inner], score[inner], atol=1e-6)
    eap = irt.score(r, found, progress=False)["person_ability"].values
    assert np.corrcoef(eap, score)[0, 1] > 0.99


# --- what must not matter -------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_blocks_layout_and_order_of_persons_do_not_matter(missing, bits):
    y = partial_credit(13, 300, STEPS, missing)
    whole = bits(fit(irt.from_array(y, categories=K)))
    shuffled = y[np.random.default_rng(0).permutation(300)]
    for r in (
        irt.from_array(y, categories=K, rows_per_block=37),
        irt.from_array(csr_of(y), observed="stored", categories=K, rows_per_block=53),
        irt.from_array(shuffled, categories=K, rows_per_block=100),
    ):
        assert bits(fit(r)) == whole


def test_order_of_items_and_direction():
    y = partial_credit(14, 400, STEPS, 0.2)
    found = fit(irt.from_array(y, categories=K))
    order = [2, 0, 3, 1]
    other = fit(irt.from_array(y[:, order], categories=[K[j] for j in order]))
    for name in ("item_step_difficulty", "item_step_difficulty_se", "item_threshold"):
        np.testing.assert_allclose(other[name], found[name].values[order], atol=1e-8)
    high = np.array(K) - 1
    turned = fit(irt.from_array(np.where(y >= 0, high - y, -1), categories=K))
    for j, k in enumerate(K):
        b = found["item_step_difficulty"].values[j, : k - 1]
        back = turned["item_step_difficulty"].values[j, : k - 1]
        np.testing.assert_allclose(back, -b[::-1], atol=1e-8)


def test_persons_of_extreme_scores_say_nothing():
    y = partial_credit(15, 300, STEPS)
    found = fit(irt.from_array(y, categories=K))
    low, high = np.zeros((20, 4), dtype=np.int8), np.tile(np.array(K, dtype=np.int8) - 1, (30, 1))
    low[:10, 1] = high[:7, 2:] = -1
    low[10:, :] = -1  # nothing answered
    more = fit(irt.from_array(np.vstack([y, low, high]), categories=K))
    for name in ("item_step_difficulty", "item_step_difficulty_se"):
        np.testing.assert_array_equal(more[name], found[name])
    lowest, highest = ((n - found.attrs[a]) for a, n in (
        ("n_lowest_score", more.attrs["n_lowest_score"]),
        ("n_highest_score", more.attrs["n_highest_score"])))  # fmt: skip
    assert (lowest, highest) == (10, 30)
    assert more.attrs["objective"] == found.attrs["objective"]


# --- whether there are estimates ------------------------------------------------------------------


def has_a_maximum(y, k, by_x):
    """Whether no direction raises the likelihood for ever: no pattern of the same score is better.

    And none leaves it unchanged, but for the move of all abilities.
    """
    rows = [
        indicators(np.unique(y, axis=0)[[i]], k) - indicators(alike(person, k), k)
        for i, person in enumerate(np.unique(y, axis=0))
    ]
    apart = np.unique(np.concatenate(rows), axis=0) @ by_x
    end = scipy.optimize.linprog(
        -apart.sum(axis=0), A_ub=-apart, b_ub=np.zeros(len(apart)), bounds=(-1.0, 1.0)
    )
    return -end.fun < 1e-9 and np.linalg.matrix_rank(apart) == apart.shape[1] - 1


def test_links_connect_what_persons_connect():
    """Reachability by counts is that by "above the lowest on i and below the highest on j"."""
    rng = np.random.default_rng(23)
    apart = 0
    for _ in range(300):
        n, m = rng.integers(2, 12), rng.integers(2, 6)
        k = rng.integers(2, 5, m)
        y = np.minimum(rng.binomial(3, rng.random(m), (n, m)), k - 1).astype(np.int8)
        y[rng.random((n, m)) < rng.choice([0.0, 0.3])] = -1
        seen, high = y >= 0, k - 1
        pairs = (y > 0).T.astype(int) @ (seen & (y < high)) > 0
        sets = conditional_sets.informative(item_sets.observed_sets(Dense(y), high), high)
        of_counts, of_persons = (
            connected_components(csr_array(linked), connection="strong")[1]
            for linked in (item_sets.links(sets, m, high), pairs)
        )
        np.testing.assert_array_equal(
            of_counts[:, None] == of_counts, of_persons[:, None] == of_persons
        )
        apart += of_counts.max() > 0
    assert 30 < apart < 270


@pytest.mark.parametrize("model", ["pcm", "rating"])
def test_fits_end_where_linear_programs_say_there_is_a_maximum(model):
    rng = np.random.default_rng(16)
    there = 0
    for _ in range(40):
        m, n = rng.integers(2, 5), rng.integers(6, 40)
        k = rng.integers(2, 4, m)
        steps = [np.full(x - 1, b) for x, b in zip(k, rng.normal(size=m), strict=True)]
        y = partial_credit(rng.integers(1 << 30), n, steps, rng.choice([0.0, 0.2]))
        r = irt.from_array(y, categories=k)
        models, none = conditional._models_of(model, r), np.zeros((m, k.max()), dtype=int)
        by_x = Categories(None, r.item_id, models, none).constants.toarray()
        if has_a_maximum(y.astype(int), k, by_x):
            assert fit(r, model).attrs["converged"] == 1
            there += 1
        else:
            with pytest.raises(EstimationError):
                fit(r, model)
    assert 5 < there < 35


def test_steps_that_run_away_are_named():
    """Nobody of a score who could have been in the middle of all items was."""
    y = np.array([[2, 2, 1], [2, 2, 0], [2, 1, 2], [1, 0, 2], [0, 1, 2]])
    assert not has_a_maximum(y, (3, 3, 3), np.eye(6))
    r = irt.from_array(y, categories=3, item_id=["a", "b", "c"])
    with pytest.raises(EstimationError, match=r"not finite.*up: a \(step 1\).*down: a \(step 2\)"):
        fit(r)
    with pytest.warns(ConvergenceWarning, match="in 3 steps"):
        assert fit(r, max_iterations=3).attrs["converged"] == 0


def test_directions_that_scores_say_nothing_of_are_named():
    """With two items of three categories the score 2 alone tells of the middle ones."""
    pairs = [(1, 0), (0, 1), (2, 1), (1, 2)]
    r = irt.from_array(np.repeat(pairs, [5, 4, 3, 6], axis=0), categories=3)
    with pytest.raises(EstimationError, match=r"singular.*\(0 \(step 1\), 0 \(step 2\), 1 "):
        fit(r)


def test_categories_without_persons():
    y = partial_credit(18, 200, STEPS)
    y[y[:, 1] == 2, 1] = 1
    with pytest.raises(
        EstimationError, match=r"1 item\(s\) have a category that nobody has.*1 \(2\)"
    ):
        fit(irt.from_array(y, categories=K))
    y[0] = (0, 0, 0, 0)
    y[1] = np.array(K) - 1
    y[2:][y[2:, 3] == 2, 3] = 1
    y[2:][y[2:, 1] == 3, 1] = 2
    y[2, 1] = 2
    message = r"2 item\(s\) have a category that only persons.*highest score.*: 1 \(3\), 3 \(2\)"
    with pytest.raises(EstimationError, match=message):
        fit(irt.from_array(y, categories=K))


def test_a_rating_scale_needs_a_category_once():
    """Of the items that share their steps; nobody is in category 1 of the first here."""
    y = partial_credit(22, 300, [(-0.5, 0.5)] * 4)
    y[y[:, 0] == 1, 0] = 2
    r = irt.from_array(y, categories=3)
    found = fit(r, "rating")
    value, gradient, _ = enumerated(y.astype(int), (3,) * 4, constants(found))
    assert found.attrs["objective"] == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(gradient.reshape(4, 2) @ [1.0, 2.0], 0.0, atol=1e-8)
    with pytest.raises(EstimationError, match=r"nobody has.*: 0 \(1\);"):
        fit(r)
    with pytest.raises(EstimationError, match=r"nobody has.*: 0 \(1\);"):
        fit(r, dict(zip(r.item_id, ["rating:a", *["rating:b"] * 3], strict=True)))


def test_items_apart_and_items_that_nobody_saw():
    y = partial_credit(19, 200, STEPS)
    y[:100, :2] = y[100:, 2:] = -1
    with pytest.raises(
        EstimationError, match=r"2 groups.*above the lowest category.*: 0, 1; .*2, 3"
    ):
        fit(irt.from_array(y, categories=K))
    y[:, 3] = -1
    with pytest.raises(EstimationError, match=r"no response at all.*3"):
        fit(irt.from_array(y, categories=K))


# --- refusals -------------------------------------------------------------------------------------


def test_refusals(monkeypatch):
    r = small(20, 60)
    with pytest.raises(InputError, match=r"^fit_conditional is for items of two categories"):
        irt.fit_conditional(r)
    for model in ("gpcm", "graded", "1pl", 3, {**dict.fromkeys(r.item_id, "pcm"), "1": "nominal"}):
        with pytest.raises(InputError, match=r"is not available; choose one of rasch, pcm, rating"):
            fit(r, model)
    with pytest.raises(InputError, match="names no model for 3"):
        fit(r, {"0": "pcm"})
    weighted = irt.from_array(codes(r), categories=K, persons={"weight": np.ones(60)})
    with pytest.raises(InputError, match="fit_conditional does not support person weights"):
        fit(weighted)
    wide = irt.from_array(np.zeros((1, 1300)), categories=5)
    with pytest.raises(InputError, match=r"5200 steps of items.*5000 at most"):
        fit(wide)
    some = small(21, 200, 0.4)
    cells = sum((np.array(K) - 1)[list(s)].sum() for s in {tuple(np.flatnonzero(p >= 0))
                for p in codes(some)})  # fmt: skip
    monkeypatch.setattr(conditional_sets, "MAX_CELLS", cells)
    fit(some)
    monkeypatch.setattr(conditional_sets, "MAX_CELLS", cells - 1)
    with pytest.raises(InputError, match=f"together of {cells} steps of items"):
        fit(some)
