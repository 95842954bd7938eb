"""Intervals of totals where all right, or all wrong, is what is most likely."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.errors import DataWarning

N, ASKED = 60, 20
IDS = [f"q{k:02d}" for k in range(N)]
NODES = np.linspace(-8.0, 8.0, 801)


def bank_of(tmp_path, b):
    path = tmp_path / "bank.csv"
    pd.DataFrame({"item": IDS, "model": "2pl", "a": 1.0, "b": b}).to_csv(path, index=False)
    return irt.read_items(path)


def probability(b, y, low, high):
    """That the number right of all questions lies in the interval, by summing all there is."""
    p = 1.0 / (1.0 + np.exp(b[:, None] - NODES))
    asked = np.where(y[:, None] == 1, p[: y.size], 1.0 - p[: y.size]).prod(axis=0)
    w = np.exp(-0.5 * NODES**2) * asked
    number = np.zeros((N + 1, NODES.size))
    number[y.sum()] = w / w.sum()
    for own in p[y.size :]:
        number = number * (1.0 - own) + np.pad(number, ((1, 0), (0, 0)))[:-1] * own
    inside = (np.arange(N + 1) >= N * low - 1e-9) & (np.arange(N + 1) <= N * high + 1e-9)
    return number.sum(axis=1)[inside].sum()


@pytest.mark.parametrize("easy", [True, False])
@pytest.mark.parametrize("missed", [0, 1])
def test_an_interval_holds_what_is_most_likely(tmp_path, easy, missed):
    """All right of 60 easy questions has a probability of about a half, and no share of a beta.

    The interval held what it did not rule out with probability .2 to .5, where 95% were asked for.
    """
    sign = -1.0 if easy else 1.0
    b = sign * np.linspace(2.0, 6.0, N)[np.random.default_rng(1).permutation(N)]
    y = np.full(ASKED, int(easy))
    y[:missed] = 1 - y[:missed]
    bank = bank_of(tmp_path, b)
    r = irt.from_array(y[None].astype(np.int8), item_id=IDS[:ASKED])
    t = irt.predict_total(r, bank)
    low, high = (float(t[f"person_total_{end}"][0]) for end in ("lower", "upper"))
    assert probability(b, y, low, high) >= 0.95
    end = 1.0 - missed / N if easy else missed / N
    assert (high if easy else low) == pytest.approx(end, abs=1e-12)


def test_sessions_say_the_same(tmp_path):
    b = -np.linspace(2.0, 6.0, N)
    session = irt.Session(bank_of(tmp_path, b), max_items=ASKED)
    while (item := session.next()) is not None:
        session.answer(item, 1)
    with pytest.warns(DataWarning, match="most able"):
        found = session.estimates()
    assert float(found["person_total_upper"][0]) == 1.0
    totals = irt.predict_total(session.responses(), bank_of(tmp_path, b))
    assert float(totals["person_total_upper"][0]) == 1.0


def test_ends_that_are_far_are_left(tmp_path):
    """With half of everything right neither end is near, and an interval is the distribution's."""
    b = np.linspace(-2.0, 2.0, N)[np.random.default_rng(2).permutation(N)]
    y = np.arange(ASKED) % 2
    bank = bank_of(tmp_path, b)
    r = irt.from_array(y[None].astype(np.int8), item_id=IDS[:ASKED])
    t = irt.predict_total(r, bank)
    low, high = (float(t[f"person_total_{end}"][0]) for end in ("lower", "upper"))
    assert y.sum() / N < low
    assert high < 1.0 - (ASKED - y.sum()) / N
    assert probability(b, y, low, high) == pytest.approx(0.95, abs=0.03)
    # questions of hardly any weight make steps of hardly anything
    weights = {name: 1.0 if k < N - 1 else 1e-6 for k, name in enumerate(IDS)}
    again = irt.predict_total(r, bank, item_weights=weights)
    assert float(again["person_total_upper"][0]) == pytest.approx(high, abs=0.02)
