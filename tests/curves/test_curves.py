"""Item models against the textbook, and through everything that takes items of any model."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from items import probability

import irt_dask as irt
from irt_dask.curves import MODELS, ItemModel
from irt_dask.curves.grids import Grid
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import IrtDaskWarning

mpl.use("Agg")

#: Values of the parameters, by letter.
VALUES = {
    "a": [0.4, 0.9, -1.0, 1.3, -2.2, 5.0],
    "d": [2.0, -0.7, 0.0, -3.0, 1.1, 0.5],
    "c": [0.0, 0.1, 0.2, 0.33, 1e-6, 0.25],
    "u": [1.0, 0.9, 0.99, 0.97, 1.0 - 1e-6, 0.8],
}
THETA = np.linspace(-7.0, 7.0, 29)
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))


def parameters(model: ItemModel) -> np.ndarray:
    return np.array([VALUES[p.letter] for p in model.parameters])


def curves(model: ItemModel, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """P(right), (items, nodes), of the textbook's items, which have all others among them."""
    return probability(theta, **dict(zip(model.letters, x, strict=True))).T


def difference(f: Any, h: float) -> np.ndarray:
    """Central difference of fourth order of a function of a step."""
    return (8.0 * (f(h) - f(-h)) - (f(2.0 * h) - f(-2.0 * h))) / (12.0 * h)


@every_model
def test_log_p(model: ItemModel) -> None:
    x = parameters(model)
    p = curves(model, x, THETA)
    np.testing.assert_allclose(np.exp(model.log_p(x, THETA)), np.stack([1 - p, p], 1), atol=1e-15)
    far = model.log_p(x, np.array([-300.0, 300.0]))  # no overflow, nothing lost
    assert (far <= 0.0).all()
    assert not np.isnan(far).any()


@every_model
def test_derivatives(model: ItemModel) -> None:
    x = parameters(model)
    first, second = model.by_ability(x, THETA)
    got = difference(lambda h: model.log_p(x, THETA + h), 1e-3)
    np.testing.assert_allclose(first, got, atol=1e-8)
    got = difference(lambda h: model.by_ability(x, THETA + h)[0], 1e-3)
    np.testing.assert_allclose(second, got, atol=1e-7)
    inside = np.clip(x, *np.array([(1e-2 if p.letter == "c" else -9, 0.98 if p.letter == "u" else 9)
                                   for p in model.parameters]).T[:, :, None])  # fmt: skip
    got = model.by_parameter(inside, THETA)
    for k in range(len(x)):
        step = np.zeros_like(x)
        step[k] = 1.0
        want = difference(lambda h, s=step: model.log_p(inside + h * s, THETA), 1e-4)
        np.testing.assert_allclose(got[k], want, rtol=1e-6, atol=1e-7)


@every_model
def test_what_follows(model: ItemModel) -> None:
    """Information, bounds of slopes and curvatures, scale, place, and what is no item."""
    x = parameters(model)
    p = curves(model, x, THETA)
    slope = difference(lambda h: curves(model, x, THETA + h), 1e-3)
    np.testing.assert_allclose(
        model.information(x, THETA), slope**2 / (p * (1 - p)), rtol=1e-6, atol=1e-9
    )
    assert (model.sharpness(x, THETA) >= -model.by_ability(x, THETA)[1].min(axis=1) - 1e-12).all()
    gap = np.diff(model.log_p(x, np.linspace(-40, 40, 8001)), axis=1)[:, 0]
    assert (np.abs(np.diff(gap, axis=1)).max(axis=1) <= 0.01 * model.steepness(x) * 1.001).all()
    moved = model.rescaling(0.7, 1.9) @ x
    np.testing.assert_allclose(model.log_p(moved, (THETA - 0.7) / 1.9), model.log_p(x, THETA))
    b, gradient = model.difficulty(x)
    ends = curves(model, x, np.array([-1e3, 1e3]))
    half = [curves(model, x[:, [j]], b[[j]])[0, 0] for j in range(b.size)]
    np.testing.assert_allclose(half, ends.mean(axis=1), atol=1e-12)
    for k in range(len(x)):
        step = np.zeros_like(x)
        step[k] = 1.0
        want = difference(lambda h, s=step: model.difficulty(x + h * s)[0], 1e-4)
        np.testing.assert_allclose(gradient[k], want, atol=1e-7)
    assert model.valid(x).all()
    for letter, bad in {"a": 0.0, "c": 1.0, "u": 0.05}.items():
        if letter in model.letters[: 3 if letter != "u" else 4]:
            wrong = x.copy()
            wrong[model.letters.index(letter)] = bad
            assert not model.valid(wrong)[1:3].any(), letter


@every_model
def test_linear_models_are_those_that_say_so(model: ItemModel) -> None:
    x = parameters(model)
    scores = model.scores(x)
    theta = np.linspace(-2.0, 2.0, 9)
    p = curves(model, x, theta)
    logit = np.log(p / (1.0 - p))
    assert (scores is not None) == (np.abs(np.diff(logit, 2, axis=1)).max() < 1e-9)
    if scores is not None:
        np.testing.assert_allclose(np.diff(logit)[:, 0] / np.diff(theta)[0], scores[:, 1])


@every_model
def test_thresholds(model: ItemModel) -> None:
    """P(right) is 1/2 there; with these asymptotes it is somewhere."""
    x = parameters(model)
    value, _ = model.thresholds(x)
    half = [curves(model, x[:, [j]], value[:, j])[0, 0] for j in range(x.shape[1])]
    np.testing.assert_allclose(half, 0.5, rtol=1e-12)
    x[2:] = np.clip(x[2:], 1e-3, 1.0 - 1e-3)
    _, gradient = model.thresholds(x)
    for k in range(len(x)):
        step = np.zeros_like(x)
        step[k] = 1.0
        want = difference(lambda h, s=step: model.thresholds(x + h * s)[0], 1e-5)
        np.testing.assert_allclose(gradient[0, k], want[0], rtol=1e-6, atol=1e-7)


# --- everywhere -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=list(MODELS))
def under_a_model(request: pytest.FixtureRequest) -> tuple[irt.Responses, xr.Dataset]:
    """Responses under a model, some missing, and the true items as a bank."""
    responses = irt.simulate(400, 6, model=request.param, missing=0.1, seed=3)
    truth = responses.truth.drop_vars("person_ability")
    return responses, truth.assign_attrs(model=request.param)


def likelihoods(responses: irt.Responses, bank: xr.Dataset, theta: np.ndarray) -> np.ndarray:
    """Likelihood of each person at each ability, by the textbook."""
    model = MODELS[bank.attrs["model"]]
    x = np.stack([bank[p.variable].values for p in model.parameters])
    p = curves(model, x, theta)
    y = responses.to_xarray()["response"].values[:, :, None]
    return np.where(y < 0, 1.0, np.where(y == 1, p, 1.0 - p)).prod(axis=1)


def test_scores(under_a_model: Any) -> None:
    """Posterior means, modes and likeliest abilities, against a fine grid."""
    responses, bank = under_a_model
    theta = np.linspace(-10.0, 10.0, 8001)
    like = likelihoods(responses, bank, theta)
    w = like * np.exp(-0.5 * theta**2)
    mean = w @ theta / w.sum(axis=1)
    got = irt.score(responses, bank)
    np.testing.assert_allclose(got["person_ability"], mean, atol=1e-8)
    spread = np.sqrt(w @ theta**2 / w.sum(axis=1) - mean**2)
    np.testing.assert_allclose(got["person_ability_sd"], spread, atol=1e-7)
    mode = irt.score(responses, bank, method="map")["person_ability"]
    np.testing.assert_allclose(mode, theta[w.argmax(axis=1)], atol=2.6e-3)
    likeliest = irt.score(responses, bank, method="ml")["person_ability"].values
    within = np.abs(likeliest) < 5.9
    assert within.sum() > 100
    inside = np.abs(theta) < 6.0
    best = theta[inside][like[:, inside].argmax(axis=1)]
    np.testing.assert_allclose(likeliest[within], best[within], atol=2.6e-3)
    drawn = irt.score(responses, bank, n_plausible=40, seed=2)["person_plausible_value"]
    z = (drawn.values.mean(axis=1) - mean) / (spread / np.sqrt(40))
    assert abs(z.mean()) < 4.0 / np.sqrt(z.size)
    assert abs(z.std() - 1.0) < 0.15


def test_fit(under_a_model: Any) -> None:
    """The log-likelihood that a fit states is that of its items, and none near is higher."""
    responses, bank = under_a_model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)
        fit = irt.fit_marginal(responses, model=bank.attrs["model"], max_iterations=2000)
    theta = np.linspace(-8.0, 8.0, 801)
    mass = np.exp(-0.5 * theta**2) / np.sqrt(2.0 * np.pi) * (theta[1] - theta[0])

    def value(items: xr.Dataset) -> float:
        return float(np.log(likelihoods(responses, items, theta) @ mass).sum())

    np.testing.assert_allclose(fit.attrs["log_likelihood"], value(fit), rtol=1e-10)
    prior = fit.attrs.get("log_prior", 0.0)
    assert fit.attrs["objective"] == pytest.approx(fit.attrs["log_likelihood"] + prior)
    if prior == 0.0 and bank.attrs["model"] != "1pl":
        for name in ("item_discrimination", "item_intercept"):
            for change in (-0.05, 0.05):
                moved = fit.copy(deep=True)
                moved[name][2] += change
                assert value(moved) < fit.attrs["log_likelihood"]


def test_everything_takes_it(under_a_model: Any, tmp_path: Path) -> None:
    """Statistics are numbers, a bank keeps every parameter, a picture shows the curves."""
    responses, bank = under_a_model
    quiet: dict[str, Any] = {"progress": False}
    fits = irt.item_fit(responses, bank, ability=(0.0, 1.0), **quiet)
    assert np.isfinite(fits["item_infit"]).all()
    assert np.isfinite(irt.person_fit(responses, bank, **quiet)["person_lz"]).mean() > 0.9
    held_out = irt.evaluate(responses, bank, **quiet)
    theta = np.linspace(-8.0, 8.0, 801)
    mass = np.exp(-0.5 * theta**2) / np.sqrt(2.0 * np.pi) * (theta[1] - theta[0])
    want = np.log(likelihoods(responses, bank, theta) @ mass).sum()
    np.testing.assert_allclose(held_out["log_likelihood"], want, rtol=1e-9)
    assert np.isfinite(irt.residual_correlations(responses, bank, **quiet)["pair_q3"]).all()
    for ending in (".csv", ".json"):
        irt.write_items(bank, tmp_path / f"bank{ending}")
        back = irt.read_items(tmp_path / f"bank{ending}")
        for p in MODELS[bank.attrs["model"]].parameters:
            np.testing.assert_array_equal(back[p.variable], bank[p.variable])
    linked = irt.link(bank, bank)
    assert linked.attrs["A"] == pytest.approx(1.0, abs=1e-6)
    axes = irt.plot.icc(bank, which=[0])
    line = axes.lines[0]
    first = ItemSet.of(bank.attrs["model"], *(bank[p.variable].values[:1] for p in
                                              MODELS[bank.attrs["model"]].parameters))  # fmt: skip
    np.testing.assert_allclose(
        line.get_ydata(), np.exp(first.log_p(np.asarray(line.get_xdata())))[1], atol=1e-12
    )


def test_parameters_tell_models_apart() -> None:
    """Banks have no model's name for each item: its parameters say which it is."""
    kinds = [m.parameters for m in MODELS.values() if not m.shared]
    assert len({frozenset(p.variable for p in own) for own in kinds}) == len(kinds)


def test_a_grid_goes_from_bound_to_bound() -> None:
    for n, bound in ((3, 7.0), (141, 7.0), (285, 11.5)):
        nodes = Grid(n, bound).nodes
        np.testing.assert_allclose(nodes, np.linspace(-bound, bound, n), atol=1e-12)
