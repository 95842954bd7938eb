"""Posteriors far from 0: items of b = 6 to 9, priors and banks at odds, against sums to +-40."""

from __future__ import annotations

import numpy as np
import pytest
from items import bank, respond

import irt_dask as irt
from irt_dask.curves.grids import FARTHEST, GRID_BOUND, ability_bound, grid_of, reach_of
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import dataset
from irt_dask.errors import InputError

X = np.linspace(-40, 40, 16001)
M = 16
A, B = np.full(M, 1.5), np.linspace(6, 9, M)
#: All right, many, few, none, some not answered.
Y = np.array([[1] * 16, [1] * 12 + [0] * 4, [1] * 4 + [0] * 12, [0] * 16, [1, -1] * 8])


def logs(a, b, c=0.0, x=X):
    """Log probabilities of wrong and right, (2, abilities, items)."""
    z = a * (x[:, None] - b)
    right = -np.logaddexp(0, -z)
    if c:
        right = np.log(c + (1 - c) * np.exp(right))
    return np.log1p(-c) - np.logaddexp(0, z), right


def log_likelihoods(y, a, b, c=0.0, x=X):
    wrong, right = logs(a, b, c, x)
    return (y == 1).astype(float) @ right.T + (y == 0).astype(float) @ wrong.T


def posterior(y, a, b, c=0.0, mean=0.0, sd=1.0):
    """Mean and SD, and log marginal likelihood."""
    log = log_likelihoods(y, a, b, c) - 0.5 * ((X - mean) / sd) ** 2
    peak = log.max(axis=1, keepdims=True)
    w = np.exp(log - peak)
    m = w @ X / w.sum(axis=1)
    v = (w * (X - m[:, None]) ** 2).sum(axis=1) / w.sum(axis=1)
    constant = np.log((X[1] - X[0]) / sd / np.sqrt(2 * np.pi))
    return m, np.sqrt(v), peak[:, 0] + np.log(w.sum(axis=1)) + constant


@pytest.mark.parametrize("c", [0.0, 0.05])
@pytest.mark.parametrize("sign", [1, -1])
def test_scores_by_hard_and_by_easy_items(c, sign):
    items, y = bank(A, sign * B, c), Y if sign > 0 else np.where(Y >= 0, 1 - Y, -1)
    out = {m: irt.score(y, items, method=m) for m in ("eap", "map", "ml", "wle")}
    mean, sd, _ = posterior(y, A, sign * B, c)
    assert np.abs(mean).max() > 7 or c
    np.testing.assert_allclose(out["eap"]["person_ability"], mean, atol=2e-6)
    np.testing.assert_allclose(out["eap"]["person_ability_sd"], sd, atol=1e-5)
    log = log_likelihoods(y, A, sign * B, c)
    mode = X[(log - X**2 / 2).argmax(axis=1)]
    np.testing.assert_allclose(out["map"]["person_ability"], mode, atol=3e-3)
    likeliest = X[log.argmax(axis=1)]
    bound = ability_bound(ItemSet.of("3pl", A, -sign * A * B, np.full(M, c)))
    assert 8 < bound < 12
    inside = np.abs(likeliest) < bound
    assert inside.sum() >= (2 if not c else 1)
    got = out["ml"]["person_ability"].values
    np.testing.assert_allclose(got[inside], likeliest[inside], atol=3e-3)
    assert (np.abs(got[~inside]) == bound).all()
    assert np.isnan(out["ml"]["person_ability_se"].values[~inside]).all()
    assert out["ml"].attrs["n_at_bound"] == (~inside).sum()
    assert out["wle"].attrs["n_at_bound"] == out["eap"].attrs["n_at_bound"] == 0


def test_logits_beyond_what_a_double_holds():
    """A steep item on a long test: scored by logarithms; what leaves responses out refuses it."""
    a, b = np.append(A, 95.0), np.append(B, 0.3)
    y = np.column_stack([Y, [1, 1, 0, 1, 0]])
    assert a[-1] * (reach_of(ItemSet.of("2pl", a, -a * b), scored=True) - b[-1]) > 800.0
    out = irt.score(y, bank(a, b, 0.0), n_plausible=1)
    mean, sd, _ = posterior(y, a, b)
    np.testing.assert_allclose(out["person_ability"], mean, atol=2e-6)
    np.testing.assert_allclose(out["person_ability_sd"], sd, atol=1e-5)
    assert (np.abs(out["person_plausible_value"].values[:, 0] - mean) < 5.0 * sd).all()
    for refused in (irt.evaluate, irt.person_fit):
        with pytest.raises(InputError, match="logits up to 700"):
            refused(y, bank(a, b, 0.0))


def test_plausible_values():
    y = np.repeat(Y[:1], 4000, axis=0)
    out = irt.score(y, bank(A, B, 0.0), n_plausible=1)
    mean, sd, _ = posterior(Y[:1], A, B)
    values = out["person_plausible_value"].values
    assert values.mean() == pytest.approx(mean[0], abs=4 * sd[0] / 4000**0.5)
    assert values.std() == pytest.approx(sd[0], rel=0.05)


def test_group_and_covariate_priors_at_odds_with_the_answers():
    """Mean 4, SD about .5: who has all wrong lies far below."""
    rng = np.random.default_rng(0)
    m = 40
    a, b = rng.uniform(1.5, 2.5, m), rng.uniform(-2, 6, m)
    x = np.repeat([-1.0, 1.0], 60)
    theta = rng.normal(2.0 + 2.0 * x, 0.3)
    y = respond(rng, theta, a, -a * b)
    y[-1] = 0
    r = irt.from_array(y, persons={"group": np.where(x > 0, "high", "low"), "x": x})
    out = irt.score(r, bank(a, b, 0.0), prior="groups")
    mean, sd = out["group_mean"].values[0], out["group_sd"].values[0]
    want, spread, _ = posterior(y[-1:], a, b, 0.0, mean, sd)
    assert (want[0] - mean) / sd < -5
    assert out["person_ability"].values[-1] == pytest.approx(want[0], abs=2e-6)
    assert out["person_ability_sd"].values[-1] == pytest.approx(spread[0], abs=1e-5)
    out = irt.score(r, bank(a, b, 0.0), prior=["x"])
    mean, sd = out["regression_coefficient"].values.sum(), float(out["residual_sd"])
    want, spread, _ = posterior(y[-1:], a, b, 0.0, mean, sd)
    assert out["person_ability"].values[-1] == pytest.approx(want[0], abs=2e-6)
    assert out["person_ability_sd"].values[-1] == pytest.approx(spread[0], abs=1e-5)


def test_score_table():
    out = irt.score_table(bank(A, B, 0.0))
    _, right = logs(A, B)
    p = np.exp(right)
    share = np.ones((X.size, 1))
    for j in range(M):
        share = np.pad(share * (1 - p[:, [j]]), ((0, 0), (0, 1))) + np.pad(
            share * p[:, [j]], ((0, 0), (1, 0))
        )
    w = share * np.exp(-(X**2) / 2)[:, None]
    np.testing.assert_allclose(out["score_ability"], X @ w / w.sum(axis=0), atol=2e-6)
    curve = irt.score_table(bank(A, B, 0.0), method="tcc")["score_ability"].values
    np.testing.assert_allclose(np.interp(curve[1:-1], X, p.sum(axis=1)), range(1, M), atol=1e-4)


def test_predictions_and_fit():
    """Likelihoods, predictions from the other answers, infit, Q3 and DIF where mass lies far."""
    rng = np.random.default_rng(1)
    y = (rng.random((10, M)) < 0.8).astype(int)
    a, b = A, B + rng.normal(0, 0.2, M)
    got = irt.evaluate(y, bank(a, b))
    given = np.empty(y.shape)
    log = log_likelihoods(y, a, b) - X**2 / 2
    wrong, right = logs(a, b)
    for j in range(M):
        own = np.where(y[:, [j]] == 1, right[:, j], wrong[:, j])
        others = np.exp(log - own - (log - own).max(axis=1, keepdims=True))
        given[:, j] = others @ np.exp(right[:, j]) / others.sum(axis=1)
    assert float(got["log_likelihood"]) == pytest.approx(posterior(y, a, b)[2].sum(), abs=1e-4)
    chance = np.where(y == 1, given, 1 - given)
    assert float(got["log_score"]) == pytest.approx(np.log(chance).mean(), abs=1e-6)
    persons = irt.person_fit(y, bank(a, b, 0.0), ability=(0.0, 1.0))
    v = given * (1 - given)
    np.testing.assert_allclose(
        persons["person_infit"], ((y - given) ** 2).sum(1) / v.sum(1), rtol=1e-5
    )
    items = irt.item_fit(y, bank(a, b, 0.0), ability=(0.0, 1.0))
    np.testing.assert_allclose(items["item_infit"], ((y - given) ** 2).sum(0) / v.sum(0), rtol=1e-5)


def test_two_abilities():
    a, d = np.zeros((8, 2)), -1.5 * np.linspace(6, 9, 8)
    a[:, 0], a[4:, 1] = 1.5, 0.5
    fit = dataset(
        {"item_loading": a, "item_intercept": d}, item_id=tuple(map(str, range(8))), attrs={}
    )
    y = np.array([[1] * 8, [1] * 5 + [0] * 3, [0] * 8])
    out = irt.score(y, fit)
    x = np.linspace(-16, 16, 641)
    one, two = np.meshgrid(x, x, indexing="ij")
    for row, got in zip(y, out["person_ability"].values, strict=True):
        log = -0.5 * (one**2 + two**2)
        for j in range(8):
            z = a[j, 0] * one + a[j, 1] * two + d[j]
            log = log - np.logaddexp(0, -z if row[j] else z)
        w = np.exp(log - log.max())
        want = [(w * t).sum() / w.sum() for t in (one, two)]
        np.testing.assert_allclose(got, want, atol=1e-5)
    assert out["person_ability"].values[0, 0] > 6


def test_ordinary_banks_keep_their_grid():
    rng = np.random.default_rng(2)
    for m in (1, 10, 40):
        a, d = rng.lognormal(0, 0.3, m), rng.normal(0, 1.2, m)
        items = ItemSet.of("2pl", a, d)
        assert reach_of(items) == GRID_BOUND
        assert ability_bound(items) == 6.0
        assert (grid_of(items, bound=reach_of(items)).nodes == grid_of(items).nodes).all()
    # an item of an absurd difficulty that tells nothing moves nothing
    a, d = np.append(a, 1e-3), np.append(d, -1.383)
    items = ItemSet.of("2pl", a, d)
    assert reach_of(items) == GRID_BOUND
    assert ability_bound(items) == 6.0


def test_the_reach_holds_every_pattern():
    """Beyond it no pattern of six items has a millionth of its highest density."""
    rng = np.random.default_rng(3)
    for _ in range(3):
        a, b = rng.uniform(0.5, 4.0, 6), rng.normal(0, 12, 6)
        patterns = (np.arange(64)[:, None] >> np.arange(6)) & 1
        for c in (0.0, 0.2):
            log = log_likelihoods(patterns, a, b, c) - X**2 / 2
            reach = reach_of(ItemSet.of("3pl", a, -a * b, np.full(6, c)))
            beyond = log[:, np.abs(X) >= reach].max(axis=1)
            assert (beyond - log.max(axis=1) < np.log(1e-6)).all()


def test_absurd_banks_are_refused():
    b = np.full(60, 95.0)
    with pytest.raises(InputError, match=f"computed up to {FARTHEST:.0f}.*leave items out"):
        irt.score(np.ones((2, 60), dtype=int), bank(np.full(60, 2.0), b, 0.0))
