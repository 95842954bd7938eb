"""Items with empty categories: curves of the others, under their codes."""

from __future__ import annotations

import numpy as np
import pytest
from test_category_curves import THETA, by, difference, parameters

from irt_dask.curves import model_named
from irt_dask.curves.item_set import Group, ItemSet
from irt_dask.errors import InputError

FAMILIES = ("graded", "gpcm", "pcm", "rating", "nominal")
MAPS = ((0, -1, 1, 2), (-1, 0, 1, 2), (0, 1, 2, -1), (0, -1, -1, 1))
GAPS = [(name, m) for name in FAMILIES for m in MAPS]
GAPS += [(name, m) for name in FAMILIES[1:4] for m in ((0, 1, -1, 3), (0, -1, -1, 3, 4, -1))]
every = pytest.mark.parametrize(("name", "numbers"), GAPS)


@every
def test_the_others_are_an_item_of_their_own(name: str, numbers: tuple[int, ...]) -> None:
    model = model_named(name, len(numbers), numbers)
    x, known = parameters(model), [n for n in numbers if n >= 0]
    p, kept = np.exp(model.log_p(x, THETA)), np.array(numbers) >= 0
    np.testing.assert_array_equal(p[:, ~kept], 0.0)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    if name == "graded":  # P(k or higher), of the categories that there are
        z = np.stack([x[0] * t + x[1:] for t in THETA], axis=-1)
        above = 1.0 / (1.0 + np.exp(-z))
        ends = np.ones((1, *above.shape[1:])), np.zeros((1, *above.shape[1:]))
        want = -np.diff(np.concatenate([ends[0], above, ends[1]]), axis=0)
    elif name == "nominal":
        n = len(known) - 1
        u = x[:n, :, None] * THETA + x[n:, :, None]
        want = np.exp(np.concatenate([np.zeros((1, *u.shape[1:])), u]))
    else:
        d = x[1:] if name != "rating" else np.multiply.outer(known[1:], x[1])
        if name == "rating":
            d[:-1] += x[2:]
        u = np.multiply.outer(known[1:], x[0])[:, :, None] * THETA + d[:, :, None]
        want = np.exp(np.concatenate([np.zeros((1, *u.shape[1:])), u]))
    want = (want / want.sum(axis=0)).transpose(1, 0, 2)
    np.testing.assert_allclose(p[:, kept], want, rtol=1e-9, atol=1e-13)


@every
def test_derivatives(name: str, numbers: tuple[int, ...]) -> None:
    model = model_named(name, len(numbers), numbers)
    x = parameters(model)
    first, second = model.by_ability(x, THETA)
    want = difference(lambda h: model.log_p(x, THETA + h), 1e-3)
    np.testing.assert_allclose(first, want, atol=1e-6, rtol=1e-7)
    want = difference(lambda h: model.by_ability(x, THETA + h)[0], 1e-3)
    np.testing.assert_allclose(second, want, atol=1e-5, rtol=1e-6)
    got, gap = model.by_parameter(x, THETA), 1e-3
    if name == "graded":
        gap *= np.abs(np.diff(x[1:], axis=0)).min(initial=1.0)
    found = (model.step_intercepts, model.step_difficulties, model.thresholds, model.difficulty)
    for k in range(len(x)):
        want = by(lambda moved: model.log_p(moved, THETA), x, k, gap)
        np.testing.assert_allclose(got[k], want, rtol=1e-5, atol=1e-6)
        for f in found:
            value, gradient = f(x)
            want = by(lambda moved, f=f: f(moved)[0], x, k, 1e-6)
            want = np.where(np.isnan(value), 0.0, want)
            got_k = gradient[k] if value.ndim == 1 else gradient[:, k]
            got_k = np.where(np.isnan(value), 0.0, got_k)
            np.testing.assert_allclose(got_k, want, rtol=1e-4, atol=1e-4)
    slope = difference(lambda h: np.exp(model.log_p(x, THETA + h)), 1e-3)
    p = np.exp(model.log_p(x, THETA))
    information = np.divide(slope**2, p, out=np.zeros_like(p), where=p > 0.0).sum(axis=1)
    np.testing.assert_allclose(model.information(x, THETA), information, rtol=1e-5, atol=1e-8)
    moved = model.rescaling(0.7, 1.9) @ x
    np.testing.assert_allclose(
        model.log_p(moved, (THETA - 0.7) / 1.9), model.log_p(x, THETA), rtol=1e-9, atol=1e-10
    )


@every
def test_steps_and_scores(name: str, numbers: tuple[int, ...]) -> None:
    """A step is NaN where its category is empty, or the lowest; parameters follow from steps."""
    model = model_named(name, len(numbers), numbers)
    x = parameters(model)
    there = np.array(numbers[1:]) > 0
    for f in (model.step_intercepts, model.step_difficulties):
        np.testing.assert_array_equal(np.isfinite(f(x)[0]).all(axis=1), there)
    scores = model.scores(x)
    if scores is None:
        own = np.multiply.outer(np.array(numbers[1:], dtype=float), x[0])
    else:
        own = scores.T[1:] - scores.T[:1]
        left = model.log_p(x, THETA) - scores[:, :, None] * THETA
        left -= left[:, :, [0]]
        np.testing.assert_allclose(left, left[:, [0]] * np.ones_like(left), atol=1e-9)
    again = model.of_steps(own, model.step_intercepts(x)[0])
    np.testing.assert_allclose(again, x, rtol=1e-12, atol=1e-12)
    lowest, highest = model.ends(x)
    kept = np.flatnonzero(np.array(numbers) >= 0)
    assert np.isin(lowest, kept).all()
    assert np.isin(highest, kept).all()
    steps = [p.step for p in model.parameters if p.variable == "item_step_intercept"]
    if name != "rating":
        np.testing.assert_array_equal(steps, 1 + np.flatnonzero(there))


def test_maps_that_fit_no_item() -> None:
    for name, numbers in (
        ("graded", (0, 1, -1, 3)), ("gpcm", (0, 2, -1, 1)), ("gpcm", (1, 2, -1, 3)),
        ("gpcm", (0, -1, -1, -1)), ("nominal", (0, 1, -2, 2)), ("2pl", (0, 1, -1, 2)),
        ("gpcm", (0, 1, -1)),
    ):  # fmt: skip
        with pytest.raises(InputError, match="category map"):
            model_named(name, 4, numbers)
    assert model_named("gpcm", 3, (0, 1, 2)).category_map == (0, 1, 2)


def test_items_are_told_apart_by_their_maps() -> None:
    """Two maps with the same parameters are two items for whoever keeps tables."""
    sets = []
    for numbers in ((0, 1, -1, 2), (0, 1, -1, 3), (0, -1, 1, 2)):
        model = model_named("gpcm", 4, numbers)
        sets.append(ItemSet((Group(model, np.arange(2), np.ones((3, 2))),)))
    assert len({s.digest for s in sets}) == 3
    np.testing.assert_array_equal(np.flatnonzero(sets[0].empty), [2, 6])
    assert sets[0].step_difficulties().size == 4
    np.testing.assert_array_equal(sets[0].ends, [[0, 0], [3, 3]])
    model = model_named("gpcm", 4, (-1, 0, 1, -1))
    ends = ItemSet((Group(model, np.arange(2), np.ones((2, 2))),)).ends
    np.testing.assert_array_equal(ends, [[1, 1], [2, 2]])
    assert sets[0].logit_at(7.0)[1] < 100.0
