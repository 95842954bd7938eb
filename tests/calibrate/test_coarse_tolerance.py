"""Where iterations end early Newton steps lead to the maximum, and errors are those there."""

from __future__ import annotations

import numpy as np
import pytest

import irt_dask as irt


def graded(seed):
    """Answers of 200 persons to four items of four categories."""
    rng = np.random.default_rng(seed)
    a, d = np.array([0.6, 1.2, 2.0, 3.0]), np.array([2.0, 0.0, -2.0])
    z = a * rng.standard_normal((200, 1)) + rng.logistic(size=(200, 4))
    return irt.from_array((z[:, :, None] + d > 0).sum(axis=2), categories=4)


def guessed(seed):
    """Answers of 400 persons to six items that some guess, and some miss."""
    rng = np.random.default_rng(seed)
    a, d = np.linspace(0.8, 2.5, 6), np.linspace(-2.0, 1.5, 6)
    knows = a * rng.standard_normal((400, 1)) + d + rng.logistic(size=(400, 6)) > 0
    u = rng.random((400, 6))
    return irt.from_array(np.where(knows, u < 0.93, u < 0.25).astype(int))


@pytest.mark.filterwarnings("ignore::irt_dask.errors.ItemWarning")
@pytest.mark.parametrize(("model", "responses"), [("graded", graded(4)), ("4pl", guessed(1))])
def test_a_coarse_tolerance_gives_the_same_maximum_and_errors(model, responses):
    """With one set of errors for all Newton steps they stopped short: the graded errors were .6%
    off; without shorter steps those of the 4PL were three times too large."""
    fine, coarse = (irt.fit_marginal(responses, model=model, tolerance=t) for t in (1e-11, 1e-4))
    assert coarse.attrs["objective"] == pytest.approx(fine.attrs["objective"], abs=1e-8)
    for name in ("item_discrimination", "item_difficulty"):
        np.testing.assert_allclose(coarse[name], fine[name], rtol=1e-5)
        np.testing.assert_allclose(coarse[f"{name}_se"], fine[f"{name}_se"], rtol=1e-5)
