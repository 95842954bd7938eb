"""Known truth comes back: 20,000 simulated persons, 40 items, from responses to intervals.

The seed has no item of discrimination above 2: joint maximum likelihood sends a very steep item's
slope to its bound (with a true slope of 3.2 its correlation falls to .95), which is a property of
the method; the posterior does not.
"""

import numpy as np
import pytest

import irt_dask as irt


@pytest.fixture(scope="module")
def data():
    return irt.simulate(20_000, 40, seed=1)


@pytest.fixture(scope="module")
def fits(data):
    return {
        "joint": irt.fit_joint(data),
        "coreset": irt.fit_joint(data, coreset=irt.Coreset(2000), max_iterations=16),
        "wasp": irt.fit_bayes(data, n_shards=4, n_draws=400, n_warmup=150, seed=1),
    }


@pytest.mark.slow
@pytest.mark.parametrize("method", ["joint", "coreset", "wasp"])
def test_items_come_back(data, fits, method):
    for name, least in (("item_discrimination", 0.98), ("item_difficulty", 0.995)):
        assert np.corrcoef(fits[method][name], data.truth[name])[0, 1] > least


@pytest.mark.slow
def test_the_posterior_follows_a_very_steep_item():
    """The largest of these 40 slopes is 3.2."""
    r = irt.simulate(20_000, 40, seed=2026)
    fit = irt.fit_bayes(r, n_shards=4, n_draws=800, n_warmup=300)
    a, truth = fit["item_discrimination"], r.truth["item_discrimination"]
    assert float(truth.max()) > 3
    assert np.corrcoef(a, truth)[0, 1] > 0.995


@pytest.mark.slow
def test_posterior_intervals_hold_the_truth(data, fits):
    """80 intervals of 95%: fewer than 69 hits have probability 4e-4, more cannot be too many."""
    hits = 0
    for name in ("item_discrimination", "item_intercept"):
        z = (fits["wasp"][name] - data.truth[name]) / fits["wasp"][f"{name}_sd"]
        hits += int((np.abs(z) < 1.96).sum())
        assert 0.6 < float(z.std()) < 1.5
    assert hits >= 69


def test_ability_intervals_hold_the_truth(data, fits):
    """20,000 intervals of 95%: 93 to 97% is 13 standard errors."""
    s = irt.score(data, fits["wasp"])
    inside = np.abs(s["person_ability"] - data.truth["person_ability"]) < (
        1.96 * s["person_ability_sd"]
    )
    assert 0.93 < float(inside.mean()) < 0.97
