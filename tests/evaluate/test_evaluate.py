"""Evaluation: the published log-likelihood of LSAT, brute-force predictions, extreme cases."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from items import intercept_bank, probability
from parts import csr_of
from scipy.interpolate import CubicSpline

import irt_dask as irt
from irt_dask.errors import EstimationError, InputError

LSAT_IDS = [f"LSAT{j}" for j in range(1, 6)]


@pytest.mark.parametrize(
    "a, d, value",
    [
        (
            [0.8257, 0.7227, 0.8909, 0.6884, 0.6569],
            [2.7732, 0.9902, 0.2491, 1.2848, 2.0533],
            -2466.6534,
        ),
        ([0.7551] * 5, [2.7300, 0.9986, 0.2399, 1.3065, 2.0994], -2466.9376),
    ],
)
def test_lsat_log_likelihood(a, d, value):
    out = irt.evaluate(irt.load_lsat(), intercept_bank(a, d, item_id=LSAT_IDS))
    assert out["log_likelihood"].item() == pytest.approx(value, abs=1e-3)
    assert out["log_likelihood_per_response"].item() == pytest.approx(value / 5000, abs=1e-6)
    assert out["n_responses"].item() == 5000


T = np.linspace(-10, 10, 4001)


def curves(truth):
    """P(right) at T, (nodes, items)."""
    a, d = (truth[k].values for k in ("item_discrimination", "item_intercept"))
    c = truth["item_guessing"].values if "item_guessing" in truth else 0.0
    return probability(T, a, d, c)


def logs(y, curve):
    """Log probability of each response at T, 0 where there is none, (persons, nodes, items)."""
    y = y[:, None]
    return np.where(y == 1, np.log(curve), np.where(y == 0, np.log1p(-curve), 0))


def predictions(y, curve):
    """P(right) of every observed response given the others: by leaving it out and integrating."""
    log, p = logs(y, curve), np.full(y.shape, np.nan)
    for i, j in np.argwhere(y >= 0):
        w = np.exp(log[i].sum(axis=1) - log[i][:, j] - 0.5 * T**2)
        p[i, j] = w @ curve[:, j] / w.sum()
    return p[y >= 0], y[y >= 0] == 1


@pytest.mark.parametrize("seed, model", [(0, "2pl"), (1, "2pl"), (2, "1pl"), (3, "3pl")])
def test_predictions_by_brute_force(seed, model):
    r = irt.simulate(60, 7, seed=seed, missing=0.2, model=model)
    y = r.read_block(0).data.values
    p, right = predictions(y, curves(r.truth))
    out = irt.evaluate(r, r.truth)
    win = (p[right][:, None] > p[~right]).mean() + 0.5 * (p[right][:, None] == p[~right]).mean()
    assert out["auc"].item() == pytest.approx(win, abs=3e-4)
    want = np.log(np.where(right, p, 1 - p)).mean()
    assert out["log_score"].item() == pytest.approx(want, abs=1e-7)
    assert out["n_responses"].item() == p.size


def by_ranks(p, right):
    """AUC from midranks (Mann and Whitney)."""
    ranks = scipy.stats.rankdata(p)
    n = right.sum()
    return (ranks[right].sum() - n * (n + 1) / 2) / (n * (~right).sum())


@pytest.mark.parametrize("model", ["2pl", "3pl"])
@pytest.mark.parametrize("protocol", ["held-out", "own", "items"])
def test_protocols_by_brute_force(protocol, model):
    """Predictions by integration over a fine grid, AUC from ranks; dense, sparse and in blocks."""
    r = irt.simulate(150, 6, seed=8, missing=0.2, model=model)
    y = r.read_block(0).data.values
    curve = curves(r.truth)
    w = np.exp(logs(y, curve).sum(axis=2) - 0.5 * T**2)
    log_likelihood = np.log(w.sum(axis=1) * (T[1] - T[0]) / np.sqrt(2 * np.pi)).sum()
    if protocol == "held-out":
        p, right = predictions(y, curve)
    else:
        if protocol == "items":
            w = np.exp(-0.5 * T**2)[None].repeat(len(y), axis=0)
        w /= w.sum(axis=1, keepdims=True)
        p = w @ curve
        if protocol == "own":
            p = CubicSpline(T, curve)(w @ T)
        p, right = p[y >= 0], y[y >= 0] == 1
    # Fine differences of brute force are none: the 2PL has as many predictions as patterns.
    want = by_ranks(np.round(p, 12), right)
    out = irt.evaluate(r, r.truth, protocol=protocol)
    assert out["auc"].item() == pytest.approx(want, abs=1e-12 if protocol == "items" else 3e-4)
    log_score = np.log(np.where(right, p, 1 - p)).mean()
    assert out["log_score"].item() == pytest.approx(log_score, abs=1e-7)
    assert out["log_likelihood"].item() == pytest.approx(log_likelihood, rel=1e-9)
    assert out.attrs["protocol"] == protocol
    other = irt.from_array(csr_of(y), observed="stored", item_id=r.item_id, rows_per_block=17)
    assert irt.evaluate(other, r.truth, protocol=protocol).identical(out)
    # What is known of the person changes predictions, not the likelihood.
    assert out["log_likelihood"] == irt.evaluate(r, r.truth)["log_likelihood"]


def test_an_own_answer_flatters_and_a_person_unknown_does_not_matter():
    """LSAT: the order that was found by hand, and figures of the protocol without persons."""
    items = intercept_bank([0.7551] * 5, [2.7300, 0.9986, 0.2399, 1.3065, 2.0994], item_id=LSAT_IDS)
    got = {
        p: irt.evaluate(irt.load_lsat(), items, protocol=p) for p in ("own", "held-out", "items")
    }
    auc = {p: x["auc"].item() for p, x in got.items()}
    assert auc["own"] > auc["held-out"] + 0.05 > auc["items"] + 0.05
    y = irt.load_lsat().read_block(0).data.values
    share = y.mean(axis=0)  # in the same order as the model's: that is all that matters
    want = by_ranks(np.broadcast_to(share, y.shape).ravel(), y.ravel() == 1)
    assert auc["items"] == pytest.approx(want, abs=1e-12)
    # Any order-preserving difficulties give the same: why estimators cannot differ in it.
    d = np.sort(share)[np.argsort(np.argsort(share))] * 9
    steep = intercept_bank([2.0] * 5, d, item_id=LSAT_IDS)
    again = irt.evaluate(irt.load_lsat(), steep, protocol="items")
    assert again["auc"].item() == auc["items"]
    with pytest.raises(InputError, match="protocol='mine': use 'held-out', 'own', 'items'"):
        irt.evaluate(y, intercept_bank([1.0] * 5, [0.0] * 5), protocol="mine")


def test_ties_count_one_half():
    y = np.array([[1], [0], [1], [0], [0]])
    for protocol in ("held-out", "items"):
        out = irt.evaluate(y, intercept_bank([1.0], [0.3]), protocol=protocol)
        assert out["auc"].item() == 0.5


def test_all_right_or_all_wrong_has_no_auc():
    items = intercept_bank([1.0, 2.0], [0.0, 1.0])
    for value in (0, 1):
        out = irt.evaluate(np.full((4, 2), value), items)
        assert np.isnan(out["auc"].item())
        assert np.isfinite(out["log_score"].item())


def test_perfectly_predictable_responses():
    y = np.vstack([np.tile([1, 1, 1, 0, 0, 0], (30, 1))])
    out = irt.evaluate(y, intercept_bank([1.0] * 6, [20.0] * 3 + [-20.0] * 3))
    assert out["auc"].item() == 1.0
    assert out["log_score"].item() == pytest.approx(0.0, abs=1e-6)
    wrong = irt.evaluate(1 - y, intercept_bank([1.0] * 6, [20.0] * 3 + [-20.0] * 3))
    assert wrong["auc"].item() == 0.0
    assert wrong["log_score"].item() < -8


@pytest.mark.parametrize("d", [25.0, 45.0, 80.0])
def test_a_practically_impossible_answer_has_a_finite_score(d):
    """40 right answers, and a wrong one to an item that nobody misses."""
    a = [2.0] * 40 + [0.5]
    b = [*(-2 * np.linspace(-2, 2, 40)), d]
    y = np.ones((1, 41), dtype=int)
    y[0, -1] = 0
    out = irt.evaluate(y, intercept_bank(a, b))
    t = np.linspace(-7, 7, 20001)
    z = t[:, None] * np.array(a) + b
    right, wrong = -np.logaddexp(0, -z), -np.logaddexp(0, z)
    all_others = right[:, :40].sum(axis=1) - 0.5 * t**2
    logs = []
    for j in range(41):
        own = wrong[:, 40] if j == 40 else right[:, j]
        given = all_others + wrong[:, 40] if j < 40 else all_others + own
        base = given - own
        logs.append(np.logaddexp.reduce(given) - np.logaddexp.reduce(base))
    assert out["log_score"].item() == pytest.approx(np.mean(logs), rel=1e-5)


def test_persons_and_blocks_do_not_matter():
    r = irt.simulate(200, 6, seed=5, missing=0.1)
    y = r.read_block(0).data.values
    want = irt.evaluate(r, r.truth)
    order = np.random.default_rng(0).permutation(200)
    for rows in (1, 17, 200):
        other = irt.from_array(y[order], item_id=r.item_id, rows_per_block=rows)
        assert irt.evaluate(other, r.truth).identical(want)


def test_the_truth_predicts_better_than_other_items():
    r = irt.simulate(3000, 10, seed=6)
    other = r.truth.copy(deep=True)
    other["item_intercept"].values[:] = other["item_intercept"].values[::-1]
    good, bad = irt.evaluate(r, r.truth), irt.evaluate(r, other)
    for name in ("log_likelihood", "log_score", "auc"):
        assert good[name] > bad[name]


def test_refusals():
    with pytest.raises(EstimationError, match="no observed response"):
        irt.evaluate(np.full((3, 1), -1), intercept_bank([1.0], [0.0]))
    weighted = irt.from_array(np.ones((3, 1)), persons={"weight": [1, 2, 3]})
    with pytest.raises(InputError, match="does not support person weights"):
        irt.evaluate(weighted, intercept_bank([1.0], [0.0]))
    with pytest.raises(InputError, match=r"not in items: 1"):
        irt.evaluate(np.ones((3, 2)), intercept_bank([1.0], [0.0]))


# --- the protocol with persons held out -----------------------------------------------------------


def test_the_distribution_of_ability_is_chosen_from_validation():
    """Abilities N(0.7, 1.6^2); scipy maximises the same likelihood."""
    rng = np.random.default_rng(5)
    b = rng.normal(size=15)
    y = (rng.random((3000, 15)) < 1 / (1 + np.exp(b - rng.normal(0.7, 1.6, (3000, 1))))).astype(int)
    y[rng.random(y.shape) < 0.2] = -1
    y[5] = -1  # somebody without responses says nothing
    items = intercept_bank(np.ones(15), -b)
    got = irt.evaluate(y, items, validation=irt.from_array(y, rows_per_block=700))
    x, w = np.polynomial.hermite_e.hermegauss(60)

    def minus(par):
        p = 1 / (1 + np.exp(b - (par[0] + np.exp(par[1]) * x[:, None])))
        ll = (y == 1) @ np.log(p).T + (y == 0) @ np.log1p(-p).T
        return -np.log(np.exp(ll) @ w / w.sum()).sum()

    best = scipy.optimize.minimize(minus, [0.0, 0.0], method="BFGS")
    assert got.attrs["ability_mean"] == pytest.approx(best.x[0], abs=2e-3)
    assert got.attrs["ability_sd"] == pytest.approx(np.exp(best.x[1]), abs=2e-3)
    assert got["log_likelihood"].item() == pytest.approx(-best.fun, rel=1e-6)
    plain = irt.evaluate(y, items)
    assert (plain.attrs["ability_mean"], plain.attrs["ability_sd"]) == (0.0, 1.0)
    assert plain["log_likelihood"] < got["log_likelihood"]


def test_hardest_items():
    y = np.tile([1, 0], (40, 3))  # shares of right: items 0, 2, 4 high, 1, 3, 5 low
    y[:10, 1], y[:5, 3], y[:20, 0] = 1, 1, 0
    y[:, 4] = -1
    y[:8, 4] = 1
    b = np.array([0.3, 0.2, -1.0, 0.9, 2.0, 1.5])  # 4: too few responses to count
    items = intercept_bank(np.ones(6), -b)
    got = irt.evaluate(y, items, top=(1, 2, 3, 5))
    # by share: 5, 3, 1, 0, 2; by difficulty: 5, 3, 0, 1, 2
    np.testing.assert_allclose(got["top_accuracy"], [1.0, 1.0, 2 / 3, 1.0])
    np.testing.assert_array_equal(got["top"], [1, 2, 3, 5])
    with pytest.raises(
        InputError, match="top=6 must be a whole number of at least 1 and at most the 5"
    ):
        irt.evaluate(y, items, top=[6])
    with pytest.raises(InputError, match=r"top=2.5 must be a whole number"):
        irt.evaluate(y, items, top=[2.5])
    assert irt.evaluate(y, items, top=6, least=1)["top_accuracy"].item() == 1.0
