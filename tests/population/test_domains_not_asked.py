"""Matrix samples in which a group lacks a domain, or nobody was asked two."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.errors import ApproximationWarning, EstimationError

M, N = 6, 240
DOMAINS = {name: [f"{name}{k}" for k in range(M)] for name in ("maths", "reading", "science")}
IDS = [i for of in DOMAINS.values() for i in of]
B = np.tile(np.linspace(-1.0, 1.0, M), 3)


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    path = tmp_path_factory.mktemp("bank") / "bank.csv"
    pd.DataFrame({"item": IDS, "model": "2pl", "a": 1.2, "b": B}).to_csv(path, index=False)
    return irt.read_items(path)


def answers(seed=1):
    g = np.random.default_rng(seed)
    theta = g.multivariate_normal(np.zeros(3), 0.6 + 0.4 * np.eye(3), N)
    z = 1.2 * (np.repeat(theta, M, axis=1) - B)
    return (g.random(z.shape) < 1.0 / (1.0 + np.exp(-z))).astype(np.int8)


def fit(bank, y, domains, **persons):
    ids = [i for name in domains for i in DOMAINS[name]]
    r = irt.from_array(y[:, [IDS.index(i) for i in ids]], item_id=ids, persons=persons or None)
    return irt.fit_population(r, bank, domains={name: DOMAINS[name] for name in domains})


def test_a_group_without_a_domain(bank):
    y = answers()
    y[: N // 2, M : 2 * M] = -1
    group = np.repeat(["a", "b"], N // 2)
    with pytest.raises(EstimationError, match="of the domain 'reading' in group 'a': nothing"):
        fit(bank, y, ["maths", "reading"], group=group)
    fit(bank, y, ["maths", "reading"])  # of all persons half answered it


@pytest.mark.parametrize("domains", [["maths", "reading"], ["maths", "reading", "science"]])
def test_two_domains_that_nobody_was_asked_both(bank, domains):
    """The correlation would be that of the search's start, .5."""
    y = answers()
    y[: N // 2, :M] = -1
    y[N // 2 :, M : 2 * M] = -1
    with pytest.raises(EstimationError, match="both 'maths' and 'reading': nothing tells"):
        fit(bank, y, domains)


def test_few_persons_of_both(bank):
    y = answers()
    y[: N // 2, :M] = -1
    y[N // 2 : -15, M : 2 * M] = -1
    with pytest.warns(ApproximationWarning, match=r"'maths' and 'reading' \(15\) that their"):
        found = fit(bank, y, ["maths", "reading"])
    assert float(found["residual_correlation_se"][0, 0, 1]) > 0.1
