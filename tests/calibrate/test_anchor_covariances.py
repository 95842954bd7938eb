"""Errors that a bank's items have in common are in those of a fit that keeps the items."""

from __future__ import annotations

import numpy as np
import pytest
from items import bank, respond
from test_marginal import fit

import irt_dask as irt
from irt_dask.banks.anchors import with_errors_of_anchors

#: Known for certain the bank of few persons is wrong, and said to be.
pytestmark = pytest.mark.filterwarnings("ignore:the data contradict")

M, K = 6, 4  # items, of which the bank has so many
NAMES = ("group_mean", "group_sd", "item_discrimination", "item_intercept", "item_difficulty")


@pytest.fixture(scope="module")
def case():
    """A bank, responses, their fit on the bank, and the derivatives of it by the bank's (a, d)."""
    rng = np.random.default_rng(5)
    a, d = np.exp(rng.normal(0.2, 0.2, M)), rng.normal(size=M)
    first = fit(respond(rng, rng.standard_normal(300), a[:K], d[:K]))
    y = respond(rng, 0.8 + 1.3 * rng.standard_normal(800), a, d)

    def refitted(x):
        slope, intercept = x.reshape(2, K)
        return fit(y, fixed_items=bank(slope, -intercept / slope), tolerance=1e-11)

    x = np.concatenate([first.item_discrimination, first.item_intercept])
    moved = [[refitted(x + s * e) for s in (-1.0, 1.0)] for e in 1e-3 * np.eye(x.size)]
    gradient = {
        name: np.array([(high[name] - low[name]).values / 2e-3 for low, high in moved])
        for name in NAMES
    }
    return first, refitted(x), fit(y, fixed_items=first, tolerance=1e-11), gradient


def by_item_and_column(found, items, columns):
    """Places of parameters in a covariance."""
    rows = zip(found.parameter_item.values, found.parameter_column.values, strict=True)
    place = {row: k for k, row in enumerate(rows)}
    return [place[str(j), c] for c in columns for j in items]


def test_covariances_between_items_of_the_bank_are_in_the_errors(case):
    """The variance that they add, by fitting again with each parameter of the bank moved.

    Taken as independent errors of the items make that of the mean another one: of 15 items of 400
    persons it is a quarter too small.
    """
    first, known, found, gradient = case
    assert found.attrs["anchor_errors"].startswith("of the items' parameters, with their cov")
    at = by_item_and_column(first, range(K), "ad")
    s = first.item_parameter_covariance.values[np.ix_(at, at)]
    for name in NAMES:
        added = np.einsum("pi,pq,qi->i", gradient[name], s, gradient[name])
        free = np.isfinite(known[f"{name}_se"].values)
        want = np.sqrt(known[f"{name}_se"].values ** 2 + added)[free]
        np.testing.assert_allclose(found[f"{name}_se"].values[free], want, rtol=2e-3)
    alone = first.drop_vars(["parameter_item", "parameter_column", "item_parameter_covariance"])
    one = fit(case_responses(), fixed_items=alone)
    assert one.attrs["anchor_errors"] == "of slopes and difficulties: in the standard errors"
    assert abs(float(one.group_mean_se[0] / found.group_mean_se[0]) - 1.0) > 0.05


def case_responses():
    """The responses of the case again."""
    rng = np.random.default_rng(5)
    a, d = np.exp(rng.normal(0.2, 0.2, M)), rng.normal(size=M)
    respond(rng, rng.standard_normal(300), a[:K], d[:K])
    return respond(rng, 0.8 + 1.3 * rng.standard_normal(800), a, d)


def test_the_covariance_of_the_fit_has_the_anchors_too(case):
    """Theirs is the bank's, with new items by the derivatives; links see no difference."""
    first, _, found, gradient = case
    old, new = by_item_and_column(found, range(K), "ad"), range(K, M)
    at = by_item_and_column(first, range(K), "ad")
    s, whole = first.item_parameter_covariance.values, found.item_parameter_covariance.values
    np.testing.assert_allclose(whole[np.ix_(old, old)], s[np.ix_(at, at)], rtol=1e-12)
    by = np.concatenate([gradient[f"item_{n}"][:, K:] for n in ("discrimination", "intercept")], 1)
    cross = whole[np.ix_(by_item_and_column(found, new, "ad"), old)]
    want = by.T @ s[np.ix_(at, at)]
    np.testing.assert_allclose(cross, want, atol=2e-3 * np.abs(want).max())
    rng = np.random.default_rng(6)
    a, d = first.item_discrimination.values, first.item_intercept.values
    other = fit(respond(rng, rng.standard_normal(300), a, d))
    links = [irt.link(other, x, error="delta").attrs for x in (first, found)]
    for name in ("A_se", "B_se"):
        assert links[1][name] == pytest.approx(links[0][name], rel=1e-9)


def test_anchors_of_standard_errors_alone_are_not_known_for_certain(case):
    """A bank from a fit on anchors had a covariance without them, which made links too sure."""
    first, *_ = case
    alone = first.drop_vars(["parameter_item", "parameter_column", "item_parameter_covariance"])
    grown = with_errors_of_anchors(fit(case_responses(), fixed_items=alone), alone)
    assert "item_parameter_covariance" not in grown
    with pytest.warns(irt.errors.DataWarning, match="no covariances between them"):
        links = [irt.link(first, x, error="delta").attrs["B_se"] for x in (alone, grown)]
    assert links[1] == pytest.approx(links[0], rel=1e-9)


@pytest.mark.slow
def test_what_anchors_guess_is_not_known_for_certain():
    """Errors of the bank's asymptotes are in those of the fit, by fitting again with each moved."""
    rng = np.random.default_rng(8)
    a, d, c = np.exp(rng.normal(0.4, 0.2, M)), rng.normal(-0.5, 0.7, M), np.full(M, 0.2)
    first = fit(respond(rng, rng.standard_normal(500), a[:K], d[:K], c[:K]), model="3pl")
    y = respond(rng, 0.5 + 1.2 * rng.standard_normal(800), a, d, c)

    def refitted(x):
        slope, intercept, guessing = x.reshape(3, K)
        known = bank(slope, -intercept / slope, guessing)
        return fit(y, model="3pl", fixed_items=known, tolerance=1e-11)

    of = [first[f"item_{n}"] for n in ("discrimination", "intercept", "guessing")]
    x = np.concatenate(of)
    known, found = refitted(x), fit(y, model="3pl", fixed_items=first, tolerance=1e-11)
    at = by_item_and_column(first, range(K), "adc")
    s = first.item_parameter_covariance.values[np.ix_(at, at)]
    moved = [[refitted(x + step * e) for step in (-1.0, 1.0)] for e in 1e-3 * np.eye(x.size)]
    for name in (*NAMES, "item_guessing"):
        gradient = np.array([(high[name] - low[name]).values / 2e-3 for low, high in moved])
        added = np.einsum("pi,pq,qi->i", gradient, s, gradient)
        of_known = known[f"{name}_se"].values ** 2
        free = np.isfinite(of_known)
        got = found[f"{name}_se"].values ** 2 - of_known
        np.testing.assert_allclose(got[free], added[free], rtol=1e-2, atol=1e-2 * added.max())
        if name == "group_mean":  # asymptotes taken as known make another error
            without = gradient[: 2 * K].T @ s[: 2 * K, : 2 * K] @ gradient[: 2 * K]
            assert abs(without.item() / added.item() - 1.0) > 0.1
    own = by_item_and_column(found, range(K), "adc")
    assert np.array_equal(found.item_parameter_covariance.values[np.ix_(own, own)], s)
