"""Items without bounds: there and back, derivatives, densities, and the scale of ability."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import beta, multivariate_normal, norm

from irt_dask.curves import model_named
from irt_dask.curves.betas import Betas

KINDS = [
    ("2pl", 2), ("3pl", 2), ("4pl", 2), ("gpcm", 3), ("gpcm", 5), ("graded", 3), ("graded", 6),
    ("1pl", 2), ("pcm", 4), ("rating", 4),
]  # fmt: skip
#: Categories without order have slopes of any sign, and shapes in units of ability.
SCORED = [("nominal", 2), ("nominal", 3), ("nominal", 5)]
_STEP = 1e-5


def some(name, k, seed=0):
    """A model, coordinates of four items, and Beta densities of their asymptotes."""
    model = model_named(name, k)
    y = 0.5 * np.random.default_rng(seed).standard_normal((len(model.parameters), 4))
    if name == "4pl":  # the lower asymptote is the lower one
        y[2:] += [[-1.5], [1.5]]
    size = len(y), 1
    return model, y, Betas(np.full(size, 5.0), np.full(size, 17.0))


def differences(f, y):
    """Central differences of f by each coordinate, first index."""
    out = []
    for q in range(len(y)):
        moved = np.zeros_like(y)
        moved[q] = _STEP
        out.append((f(y + moved) - f(y - moved)) / (2.0 * _STEP))
    return np.stack(out)


@pytest.mark.parametrize(("name", "k"), KINDS + SCORED)
def test_there_and_back(name, k):
    model, y, _ = some(name, k)
    x = model.coordinates.parameters(y)
    assert model.valid(x).all()
    np.testing.assert_allclose(model.coordinates.of(x), y, atol=1e-12)
    found = model.coordinates.slopes(y)
    np.testing.assert_allclose(
        found, differences(model.coordinates.parameters, y).swapaxes(0, 1), atol=1e-8
    )


@pytest.mark.parametrize(("name", "k"), KINDS)
def test_a_change_of_scale_moves_the_first_two(name, k):
    model, y, _ = some(name, k)
    x = model.rescaling(0.3, 1.2) @ model.coordinates.parameters(y)
    moved = y.copy()
    moved[0] += np.log(1.2)
    moved[1] += 0.3 * np.exp(y[0])
    np.testing.assert_allclose(model.coordinates.of(x), moved, atol=1e-12)
    np.testing.assert_allclose(model.intercept(x)[0], moved[1], atol=1e-12)


@pytest.mark.parametrize(("name", "k"), SCORED)
def test_a_change_of_scale_moves_slopes_and_scores(name, k):
    model, y, _ = some(name, k)
    c = model.coordinates
    x = model.rescaling(0.3, 1.2) @ c.parameters(y)
    moved = y.copy()
    moved[0] *= 1.2
    moved[1] += 0.3 * y[0]
    moved[c.rising] *= 1.2
    moved[c.level] += 0.3 * y[c.rising]
    np.testing.assert_allclose(c.of(x), moved, atol=1e-12)
    np.testing.assert_allclose(model.slope(x)[0], moved[0], atol=1e-12)
    np.testing.assert_allclose(model.intercept(x)[0], moved[1], atol=1e-12)
    assert c.signed is c


@pytest.mark.parametrize("power", [1.0, 0.3])
@pytest.mark.parametrize(("name", "k"), KINDS + SCORED)
def test_derivatives_of_densities(name, k, power):
    model, y, betas = some(name, k)
    own = model.coordinates.log_prior(y, betas, power)
    f = lambda y: model.coordinates.log_prior(y, betas, power)  # noqa: E731
    np.testing.assert_allclose(own.gradient, differences(lambda y: f(y).value, y), atol=1e-7)
    second = -differences(lambda y: f(y).gradient, y)
    np.testing.assert_allclose(own.information, second.transpose(2, 0, 1), atol=1e-6)


def test_densities_by_scipy():
    model, y, betas = some("4pl", 2)
    exact = sum(
        beta(5.0, 17.0).logpdf(expit(z)) + np.log(expit(z) * expit(-z)) for z in y[2:]
    )  # of a logit: that of the asymptote times its slope
    np.testing.assert_allclose(model.coordinates.log_prior(y, betas).value, exact, rtol=1e-12)
    model, y, betas = some("graded", 5)
    exact = norm(0.0, 1.0).logpdf(y[2:]).sum(axis=0)  # four logits, four steps
    np.testing.assert_allclose(model.coordinates.log_prior(y, betas).value, exact, rtol=1e-12)
    model, y, betas = some("gpcm", 5)
    # t are sums of deviations of four step intercepts, normal with SD 2, from their mean
    away = 4.0 * (np.eye(4) - 0.25)
    sums = np.tri(4)[:3]
    law = multivariate_normal(np.zeros(3), sums @ away @ sums.T)
    np.testing.assert_allclose(
        model.coordinates.log_prior(y, betas).value, law.logpdf(y[2:].T), rtol=1e-12
    )


def test_densities_of_scores_by_scipy():
    model, y, betas = some("nominal", 4)
    sums = np.tri(3)[:2]
    law = [
        multivariate_normal(np.zeros(2), sums @ (var * (np.eye(3) - 1.0 / 3.0)) @ sums.T)
        for var in (1.0, 4.0)  # of steps of scores, and of intercepts, given that they sum to 0
    ]
    exact = law[0].logpdf(y[2:4].T) + law[1].logpdf(y[4:].T)
    np.testing.assert_allclose(model.coordinates.log_prior(y, betas).value, exact, rtol=1e-12)
    u = np.random.default_rng(2).random((50_000, 4, 1))
    drawn = model.coordinates.draw_shapes(u, betas)[..., 0]
    np.testing.assert_allclose(np.cov(drawn.T)[:2, :2], law[0].cov, atol=0.03)
    np.testing.assert_allclose(np.cov(drawn.T)[2:, 2:], law[1].cov, atol=0.1)
    np.testing.assert_allclose(np.cov(drawn.T)[:2, 2:], 0.0, atol=0.05)


@pytest.mark.parametrize(("name", "k"), [("gpcm", 4), ("graded", 4), ("nominal", 4)])
def test_normal_densities_to_a_power_are_those_with_so_much_of_the_precision(name, k):
    model, y, betas = some(name, k)
    whole, part = (model.coordinates.log_prior(y, betas, p) for p in (1.0, 0.2))
    np.testing.assert_allclose(part.gradient, 0.2 * whole.gradient, rtol=1e-12)


def test_a_shard_has_a_normal_of_an_asymptotes_mean_and_spread():
    model, y, betas = some("3pl", 2)
    z = np.random.default_rng(1).beta(5.0, 17.0, 400_000)
    z = np.log(z / (1.0 - z))
    own = model.coordinates.log_prior(y, betas, 0.25)
    precision = own.information[:, 2, 2]
    np.testing.assert_allclose(1.0 / precision, 4.0 * z.var(), rtol=0.02)
    np.testing.assert_allclose(y[2] + own.gradient[2] / precision, z.mean(), atol=0.01)
