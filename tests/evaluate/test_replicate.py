"""Replicates of responses: distributions by quadrature, keyed by person, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from categories import category_probability

import irt_dask as irt
from irt_dask.errors import InputError

MODELS, K, N = ("3pl", "gpcm", "graded"), (2, 3, 4), 20_000
NAMES = ["item1", "item2", "item3"]


@pytest.fixture(scope="module")
def made():
    """Responses with a fifth missing, two groups, and the bank they came from."""
    r = irt.simulate(N, 3, model=dict(zip(NAMES, MODELS, strict=True)), categories=K, seed=1,
                     missing=0.2)  # fmt: skip
    y = r.to_xarray()["response"].values
    label = np.where(np.arange(N) % 3 == 0, "a", "b")
    return y, label, r.truth.drop_dims("persons")


def responses(made, rows=4096, order=slice(None)):
    y, label, _ = made
    return irt.from_array(
        y[order], categories=K, item_id=NAMES, persons={"group": label[order]}, rows_per_block=rows
    )


def values(r):
    return r.to_xarray()["response"].values


def test_categories_come_as_often_as_quadrature_says(made):
    """Pairs of items by group; chi-square of 12 cells, false alarm 1e-4 for each of six."""
    y, label, bank = made
    ability = {"a": (0.5, 0.7), "b": (-1.0, 1.5)}
    drawn = values(irt.replicate(responses(made), bank, ability=ability, seed=3))
    np.testing.assert_array_equal(drawn < 0, y < 0)
    x, w = np.polynomial.hermite_e.hermegauss(81)
    w = w / w.sum()
    for group, (mean, sd) in ability.items():
        p = []
        for j, model in enumerate(MODELS):
            steps = bank["item_step_intercept"].values[j, : K[j] - 1]
            own = [float(bank["item_discrimination"][j]), *steps]
            own += [float(bank["item_guessing"][j])] if model == "3pl" else []
            p.append(category_probability(model, mean + sd * x, np.array(own)))
        for i, j in ((0, 1), (0, 2), (1, 2)):
            both = (label == group) & (drawn[:, i] >= 0) & (drawn[:, j] >= 0)
            count = np.zeros((K[i], K[j]))
            np.add.at(count, (drawn[both, i], drawn[both, j]), 1)
            expected = both.sum() * np.einsum("q,qk,ql->kl", w, p[i], p[j])
            assert ((count - expected) ** 2 / expected).sum() < 39.0  # 11 degrees: 5e-5


def test_a_person_has_the_same_responses_in_any_blocks(made):
    bank = made[2]
    one = values(irt.replicate(responses(made), bank, ability=(0.0, 1.0), seed=3))
    two = irt.replicate(responses(made, rows=777), bank, ability=(0.0, 1.0), seed=3)
    np.testing.assert_array_equal(one, values(two))
    np.testing.assert_array_equal(one[:, [2, 0]], values(two.select(items=["item3", "item1"])))
    other = values(irt.replicate(responses(made), bank, ability=(0.0, 1.0), seed=4))
    assert (one != other).mean() > 0.2


@pytest.mark.slow
def test_abilities_are_those_of_the_groups(made):
    """Estimated of the replicate, they are those that it was drawn with: 4 standard errors."""
    y, label, bank = made
    y = values(irt.replicate(responses(made), bank, ability={"a": (0.5, 0.7), "b": (-1.0, 1.5)}))
    r = irt.from_array(y, categories=K, item_id=NAMES, persons={"group": label})
    again = irt.item_curves(irt.replicate(r, bank, seed=5), bank, progress=False)
    np.testing.assert_allclose(again["group_mean"], [0.5, -1.0], atol=0.11)
    np.testing.assert_allclose(again["group_sd"], [0.7, 1.5], atol=0.16)
    assert irt.replicate(r, bank).fingerprint == irt.replicate(r, bank).fingerprint
    assert irt.replicate(r, bank).fingerprint != irt.replicate(r, bank, seed=1).fingerprint


def test_what_is_refused(made):
    r, bank = responses(made), made[2]
    with pytest.raises(InputError, match="the responses' groups are: a, b"):
        irt.replicate(r, bank, ability={"a": (0.0, 1.0)})
    with pytest.raises(InputError, match="sd > 0"):
        irt.replicate(r, bank, ability=(0.0, 0.0))
    with pytest.raises(InputError, match="gives a group None"):
        irt.replicate(r, bank, ability={"a": (0.0, 1.0), "b": None})
    weighted = irt.from_array(made[0], categories=K, item_id=NAMES, persons={"weight": np.ones(N)})
    with pytest.raises(InputError, match="replicate does not support person weights"):
        irt.replicate(weighted, bank)
