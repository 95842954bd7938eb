"""Tests of DIF of short tests and very many persons: patterns of answers, each of thousands."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from items import bank

import irt_dask as irt
from irt_dask.errors import DataWarning

A, B = np.array([1.2, 2.5, 0.8, 1.7]), np.array([0.0, -1.0, 0.6, -0.4])
M = A.size
PATTERNS = np.array(list(itertools.product((0, 1), repeat=M)))
THETA = np.linspace(-9.0, 9.0, 1801)


def masses(mean, sd, a=A, b=B):
    """P of each pattern and ability of a group, (patterns, nodes)."""
    p = 1.0 / (1.0 + np.exp(-a[:, None] * (THETA - b[:, None])))
    log = PATTERNS @ np.log(p) + (1 - PATTERNS) @ np.log1p(-p)
    density = np.exp(log - 0.5 * ((THETA - mean) / sd) ** 2)
    return density * (THETA[1] - THETA[0]) / sd / np.sqrt(2.0 * np.pi), p


def differing(a, b, counts):
    """DIF of two groups with these counts of patterns, (2, patterns)."""
    there = counts > 0
    persons = {
        "group": np.repeat(["r", "f"], there.sum(axis=1)),
        "weight": counts[there].astype(float),
    }
    y = np.concatenate([PATTERNS[k] for k in there])
    r = irt.from_array(y, persons=persons, weight_kind="frequency")
    return irt.dif(r, bank(a, b), reference="r", focal="f")


def scores(mean, sd):
    """Of each pattern: by the items' intercepts and slopes, then mean and log SD."""
    mass, p = masses(mean, sd)
    mass /= mass.sum(axis=1, keepdims=True)
    left = PATTERNS[:, :, None] - p
    z = (THETA - mean) / sd
    of_items = [np.einsum("ijq,iq->ij", x, mass) for x in (left, left * THETA)]
    return np.concatenate([*of_items, (mass @ z)[:, None], (mass @ (z**2 - 1.0))[:, None]], axis=1)


def test_sums_of_scores_of_persons_who_answered_alike_are_exact():
    """By hand: with a score rounded to 2^-16 a million persons of one pattern moved it by up to 8.

    The first chi-square was 2.4 off here.
    """
    rng = np.random.default_rng(2)
    n = 2_000_000
    counts = np.stack(
        [rng.multinomial(n, masses(m, s)[0].sum(axis=1)) for m, s in ((0, 1), (0.8, 0.6))]
    )
    got = differing(A, B, counts)
    of = [
        scores(got.attrs[f"ability_mean_{g}"], got.attrs[f"ability_sd_{g}"])
        for g in ("reference", "focal")
    ]
    of[0][:, -2:] = 0.0  # of the reference group they are known
    total = sum(c @ s for c, s in zip(counts, of, strict=True))
    products = [(s * c[:, None]).T @ s for c, s in zip(counts, of, strict=True)]
    inverse = np.linalg.inv(sum(products))
    own, focal = products[1], counts[1] @ of[1]
    for j in range(M):
        at = [j, M + j]
        u = focal[at] - own[at] @ inverse @ total
        v = own[np.ix_(at, at)] - own[at] @ inverse @ own[:, at]
        for name, want in (("uniform", u[0] ** 2 / v[0, 0]), ("joint", u @ np.linalg.solve(v, u))):
            assert got[f"item_dif_{name}_chi2"].values[j] == pytest.approx(want, rel=5e-3, abs=5e-3)


def test_an_item_that_a_group_answers_alike_has_no_test():
    """Nobody of 6,000 is wrong where .5 are expected: chi-square was 6,000, class C."""
    rng = np.random.default_rng(3)
    easy = B - np.array([0.0, 3.2, 0.0, 0.0])
    share = [masses(m, s, A, easy)[0].sum(axis=1) for m, s in ((-1.0, 1.0), (0.5, 0.4))]
    share[1] = np.where(PATTERNS[:, 1] == 1, share[1], 0.0)
    counts = np.stack([rng.multinomial(6000, x / x.sum()) for x in share])
    with pytest.warns(DataWarning, match="1 item.s. have no test .* group 'f' item 1: .* too easy"):
        got = differing(A, easy, counts)
    assert got["item_dif_class"].values.tolist() == ["A", "", "A", "A"]
    assert np.isnan(got["item_dif_joint_chi2"].values).tolist() == [False, True, False, False]
    assert (got["item_dif_joint_p_value"].values[[0, 2, 3]] > 0.001).all()
