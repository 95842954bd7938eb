"""Models of items with several categories, against the textbook and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from categories import category_probability
from scipy.special import comb

from irt_dask import curves
from irt_dask.curves import ItemModel
from irt_dask.curves.base import ADJACENT, CUMULATIVE
from irt_dask.curves.binomial import Binomial
from irt_dask.curves.graded import Graded
from irt_dask.curves.item_set import Group, ItemSet
from irt_dask.curves.logistic import TwoParameters
from irt_dask.curves.nominal import Nominal
from irt_dask.curves.partial_credit import GeneralisedPartialCredit, PartialCredit, RatingScale

THETA = np.linspace(-6.0, 6.0, 25)
FAMILIES = (Graded, GeneralisedPartialCredit, PartialCredit, RatingScale, Nominal, Binomial)
every = pytest.mark.parametrize(
    "model",
    [f(k) for f in FAMILIES for k in (2, 3, 5, 15)],
    ids=lambda m: f"{m.name}-{m.n_categories}",
)


def parameters(model: ItemModel, n_items: int = 6) -> np.ndarray:
    """Parameters of some items, those of steps in no order unless the model asks for one.

    Every second item falls with ability.
    """
    rng = np.random.default_rng(model.n_categories)
    x = np.array([rng.normal(0.0, 1.5, n_items) for _ in model.parameters])
    if model.name != "nominal":
        x[0] = rng.lognormal(0.0, 0.4, n_items) * np.where(np.arange(n_items) % 2, -1.0, 1.0)
    if model.name == "graded":
        x[1:] = -np.sort(-x[1:], axis=0)
    return x


def difference(f: Any, h: float) -> np.ndarray:
    """Central difference of fourth order of a function of a step."""
    return (8.0 * (f(h) - f(-h)) - (f(2.0 * h) - f(-2.0 * h))) / (12.0 * h)


def by(f: Any, x: np.ndarray, k: int, h: float) -> np.ndarray:
    """Derivative of a function of parameters by parameter k of all items."""
    step = np.zeros_like(x)
    step[k] = 1.0
    return difference(lambda t: f(x + t * step), h)


def test_no_family_is_left_out() -> None:
    assert {f.name for f in FAMILIES} == set(curves.FAMILIES)


@pytest.mark.parametrize(
    "name, k",
    [*((m, 2) for m in curves.MODELS), *((f, k) for f in curves.FAMILIES for k in (2, 4))],
)
def test_steps_are_what_the_model_says(name: str, k: int) -> None:
    """Files and Datasets have their difficulties: what the kind makes of them gives them back."""
    model, a, b = curves.model_named(name, k), 1.5, np.array([[-0.5], [0.25], [1.75]])[: k - 1]
    if name in curves.MODELS:
        x = np.array([a, -a * b[0, 0], *(p.neutral for p in model.parameters[2:])])[:, None]
    else:
        d = -a * (b.cumsum(axis=0) if model.steps == ADJACENT else b)
        if name == "binomial":  # whose steps follow from slope and intercept
            b = model.step_difficulties(np.array([[a], [0.4]]))[0]
            d = -a * b.cumsum(axis=0)
        x = model.of_steps(a * np.arange(1.0, k)[:, None], d)
    np.testing.assert_allclose(model.step_difficulties(x)[0], b, atol=1e-12)
    for step, ability in enumerate(b, start=1):
        p = np.exp(model.log_p(x, ability))[0, :, 0]
        if model.steps == ADJACENT:
            assert p[step] == pytest.approx(p[step - 1], rel=1e-12)
        if model.steps == CUMULATIVE:
            assert p[step:].sum() == pytest.approx(0.5, rel=1e-12)
    if model.of_two:
        same = curves.MODELS[model.of_two].log_p(np.array([[a], [-a * b[0, 0]]]), THETA)
        if k == 2:
            np.testing.assert_allclose(model.log_p(x, THETA), same, rtol=1e-11)


@every
def test_log_p(model: ItemModel) -> None:
    x = parameters(model)
    k = model.n_categories
    want = np.stack([category_probability(model.name, THETA, one, k).T for one in x.T])
    np.testing.assert_allclose(np.exp(model.log_p(x, THETA)), want, rtol=1e-9, atol=1e-13)
    far = model.log_p(x, np.array([-80.0, 80.0]))
    assert np.isfinite(far).all()
    assert (far <= 0.0).all()


@every
def test_derivatives(model: ItemModel) -> None:
    x = parameters(model)
    first, second = model.by_ability(x, THETA)
    np.testing.assert_allclose(
        first, difference(lambda h: model.log_p(x, THETA + h), 1e-3), atol=1e-6, rtol=1e-7
    )
    np.testing.assert_allclose(
        second, difference(lambda h: model.by_ability(x, THETA + h)[0], 1e-3), atol=1e-5, rtol=1e-6
    )
    got = model.by_parameter(x, THETA)
    assert got.shape == (len(model.parameters), x.shape[1], model.n_categories, THETA.size)
    gap = 1e-3 if model.name != "graded" else 1e-3 * np.abs(np.diff(x[1:], axis=0)).min(initial=1.0)
    for k in range(len(x)):
        want = by(lambda moved: model.log_p(moved, THETA), x, k, gap)
        np.testing.assert_allclose(got[k], want, rtol=1e-5, atol=1e-6, err_msg=str(k))


@every
def test_what_follows(model: ItemModel) -> None:
    """Information, bounds of slopes and curvatures, scale, place, scores, and what is no item."""
    x = parameters(model)
    p = np.exp(model.log_p(x, THETA))
    slope = difference(lambda h: np.exp(model.log_p(x, THETA + h)), 1e-3)
    np.testing.assert_allclose(
        model.information(x, THETA), (slope**2 / p).sum(axis=1), rtol=1e-5, atol=1e-8
    )
    assert (model.sharpness(x, THETA) >= -model.by_ability(x, THETA)[1].min(axis=1) - 1e-12).all()
    moved = model.rescaling(0.7, 1.9) @ x
    np.testing.assert_allclose(
        model.log_p(moved, (THETA - 0.7) / 1.9), model.log_p(x, THETA), rtol=1e-9, atol=1e-10
    )
    _, gradient = model.difficulty(x)
    for k in range(len(x)):
        want = by(lambda moved: model.difficulty(moved)[0], x, k, 1e-5)
        np.testing.assert_allclose(gradient[k], want, rtol=1e-5, atol=1e-6)
    assert model.valid(x).all()
    wrong = x.copy()
    wrong[: model.n_categories - 1 if model.name == "nominal" else 1] = 0.0
    assert not model.valid(wrong).any()
    scores = model.scores(x)
    assert (scores is None) == (model.name == "graded")
    if scores is not None:  # what is left of log P is the same for all categories
        left = model.log_p(x, THETA) - scores[:, :, None] * THETA
        left -= left[:, :, [0]]
        np.testing.assert_allclose(left, left[:, [0]] * np.ones_like(left), atol=1e-9)


@every
def test_no_singularity_near_the_real_line(model: ItemModel) -> None:
    """P has neither zeros nor poles in circles of .9 pi / steepness: its angle turns 0 times.

    The turns along a circle are the zeros inside less the poles (argument principle).
    """
    x = parameters(model)
    for j, one in enumerate(x.T):
        r = 0.9 * np.pi / model.steepness(x)[j]
        for centre in (-3.0, -0.5, 1.0, 4.0):
            circle = centre + r * np.exp(2j * np.pi * np.arange(512) / 512)
            turns = np.unwrap(
                np.angle(_complex_p(model.name, circle, one, model.n_categories)), axis=0
            )
            assert (np.abs(turns[-1] - turns[0]) < 1.0).all()  # no zero inside, and no pole


def _complex_p(model: str, theta: np.ndarray, x: np.ndarray, n_categories: int) -> np.ndarray:
    """P(k) for complex abilities, (theta, K)."""
    if model == "graded":
        reach = [np.ones_like(theta), *(1.0 / (1.0 + np.exp(-x[0] * theta - d)) for d in x[1:])]
        reach.append(np.zeros_like(theta))
        return np.stack([reach[k] - reach[k + 1] for k in range(len(reach) - 1)], axis=-1)
    if model == "binomial":
        k, n = np.arange(n_categories), n_categories - 1
        p = 1.0 / (1.0 + np.exp(-(x[0] * theta + x[1])))[:, None]
        return comb(n, k) * p**k * (1.0 - p) ** (n - k)
    steps = {"gpcm": len(x), "pcm": len(x), "rating": len(x), "nominal": len(x) // 2 + 1}[model]
    if model == "nominal":
        s, d = np.append(0.0, x[: steps - 1]), np.append(0.0, x[steps - 1 :])
    else:
        s, d = x[0] * np.arange(steps), np.append(0.0, x[1:])
        if model == "rating":
            d = x[1] * np.arange(steps)
            d[1:-1] += x[2:]
    e = np.exp(np.multiply.outer(theta, s) + d)
    return e / e.sum(axis=-1, keepdims=True)


def test_models_that_are_others() -> None:
    """With two categories all are the 2PL; the PCM is the GPCM, and one rating item is a PCM."""
    x = parameters(GeneralisedPartialCredit(2))
    two = TwoParameters()
    for model in (
        Graded(2),
        GeneralisedPartialCredit(2),
        PartialCredit(2),
        RatingScale(2),
        Nominal(2),
    ):
        np.testing.assert_allclose(model.log_p(x, THETA), two.log_p(x, THETA), atol=1e-14)
        np.testing.assert_allclose(
            model.by_parameter(x, THETA), two.by_parameter(x, THETA), atol=1e-14
        )
        np.testing.assert_allclose(model.rescaling(0.3, 1.4), two.rescaling(0.3, 1.4))
        np.testing.assert_allclose(model.difficulty(x)[0], two.difficulty(x)[0])
    rating = parameters(RatingScale(5))
    steps = RatingScale(5).constants(rating)[:, 1:].T
    same = GeneralisedPartialCredit(5).log_p(np.vstack([rating[:1], steps]), THETA)
    np.testing.assert_allclose(RatingScale(5).log_p(rating, THETA), same, atol=1e-13)


def test_steps_out_of_order_are_nowhere_in_the_graded_model() -> None:
    x = np.array([[1.0], [0.5], [0.6]])
    assert np.isnan(Graded(3).log_p(x, THETA)[:, 1]).all()


@every
def test_steps(model: ItemModel) -> None:
    """Step intercepts and difficulties, where they should be, and their gradients."""
    x = parameters(model)
    d, by_d = model.step_intercepts(x)
    b, by_b = model.step_difficulties(x)
    assert d.shape == b.shape == (model.n_categories - 1, x.shape[1])
    for j, one in enumerate(x.T):
        for k in range(1, model.n_categories):
            p = category_probability(model.name, b[k - 1, j], one, model.n_categories)
            if model.name == "graded":
                assert p[k:].sum() == pytest.approx(0.5)
            else:
                assert p[k] == pytest.approx(p[k - 1], rel=1e-6)
            at_zero = category_probability(model.name, 0.0, one, model.n_categories)
            upper = (
                at_zero[k:].sum() / at_zero[:k].sum()
                if model.name == "graded"
                else at_zero[k] / at_zero[0]
            )
            assert d[k - 1, j] == pytest.approx(np.log(upper), abs=1e-8)
    for k in range(len(x)):
        for got, f in ((by_d, model.step_intercepts), (by_b, model.step_difficulties)):
            want = by(lambda moved, f=f: f(moved)[0], x, k, 1e-6)
            np.testing.assert_allclose(got[:, k], want, rtol=1e-4, atol=1e-4)


def test_a_set_of_items_of_all_kinds() -> None:
    """Rows of tables by item and category, some of the items, and the ends of scales."""
    models = [TwoParameters(), Graded(4), Nominal(3), RatingScale(5)]
    columns = [parameters(m, 2) for m in models]
    at = [np.array([k, 7 - k]) for k in range(4)]
    items = ItemSet(tuple(Group(m, a, x) for m, a, x in zip(models, at, columns, strict=True)))
    np.testing.assert_array_equal(items.n_categories, [2, 4, 3, 5, 5, 3, 4, 2])
    log_p, lowest, highest = items.log_p(THETA), 0.0, 0.0
    for m, a, x in zip(models, at, columns, strict=True):
        for j, one in zip(a, x.T, strict=True):
            own = np.log(category_probability(m.name, THETA, one, m.n_categories)).T
            got = log_p[items.first[j] : items.first[j + 1]]
            np.testing.assert_allclose(got, own, rtol=1e-8, atol=1e-9)
            order = np.arange(len(own))[:: 1 if one[0] > 0.0 else -1]
            if m.name == "nominal":
                order = np.argsort([0.0, *one[:2]])
            lowest, highest = lowest + own[order[0]], highest + own[order[-1]]
    np.testing.assert_allclose(items.extreme(THETA, highest=False)[0], lowest, atol=1e-8)
    np.testing.assert_allclose(items.extreme(THETA, highest=True)[0], highest, atol=1e-8)
    some = items.take(np.array([6, 2]))
    np.testing.assert_allclose(
        some.log_p(THETA), log_p[[*range(*items.first[6:8]), *range(*items.first[2:4])]]
    )
    partial = ItemSet.of("gpcm", *parameters(GeneralisedPartialCredit(4)), n_categories=4)
    assert partial.scores is not None
    assert not partial.of_two
    assert ItemSet.of("gpcm", *parameters(GeneralisedPartialCredit(2))).scores is not None


@every
def test_thresholds(model: ItemModel) -> None:
    """P(category k or higher) is 1/2 there, whether it rises or falls; gradients."""
    x = parameters(model)
    value, gradient = model.thresholds(x)
    if model.name == "nominal":
        assert np.isnan(value).all()
        return
    for j, one in enumerate(x.T):
        p = category_probability(model.name, value[:, j], one, model.n_categories)
        np.testing.assert_allclose([p[k - 1, k:].sum() for k in range(1, model.n_categories)], 0.5)
    for k in range(len(x)):
        want = by(lambda moved: model.thresholds(moved)[0], x, k, 1e-5)
        np.testing.assert_allclose(gradient[:, k], want, rtol=1e-5, atol=1e-6)
