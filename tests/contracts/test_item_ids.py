"""An identifier that stands twice in a fit or bank is an error wherever items are matched by it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from items import bank

import irt_dask as irt
from irt_dask.errors import InputError

M = 4
A, B = np.array([1.0, 1.4, 0.8, 1.2]), np.array([-1.0, 0.0, 0.5, 1.0])
Y = (np.random.default_rng(0).random((40, M)) < 0.5).astype(np.int8)
R = irt.from_array(
    Y,
    item_id=[f"i{j}" for j in range(M)],
    persons=pd.DataFrame({"group": ["r", "f"] * 20}),
)


def with_draws(ids):
    n, draws = len(ids), np.repeat(A[None], 12, axis=0)
    more = {
        "item_difficulty_se": np.full(n, 0.1), "item_discrimination_draw": draws[:, :n],
        "item_intercept_draw": (-draws * B)[:, :n],
    }  # fmt: skip
    return bank(A[:n], B[:n], **more).assign_coords(item_id=("items", list(ids)))


GOOD = with_draws(["i0", "i1", "i2", "i3"])
#: Item i1 twice, with different parameters; as numbers and text that are written alike.
TWICE = with_draws(["i0", "i1", "i2", "i1"])
ALIKE = with_draws(np.array([1, 2, 3, "1"], dtype=object))

USES = {
    "score": lambda b, p: irt.score(R, b),
    "score under draws": lambda b, p: irt.score(R, b, n_item_draws=3),
    "score table": lambda b, p: irt.score_table(b),
    "item fit": lambda b, p: irt.item_fit(R, b),
    "person fit": lambda b, p: irt.person_fit(R, b),
    "evaluate": lambda b, p: irt.evaluate(R, b),
    "predict total": lambda b, p: irt.predict_total(R, b),
    "choose items": lambda b, p: irt.choose_items(b, 2),
    "next items": lambda b, p: irt.next_items(R, b),
    "session": lambda b, p: irt.Session(b),
    "residual correlations": lambda b, p: irt.residual_correlations(R, b),
    "predictive check": lambda b, p: irt.predictive_check(R, b, n_replicates=10),
    "dif": lambda b, p: irt.dif(R, b, reference="r", focal="f"),
    "lord, focal": lambda b, p: irt.lord_dif(GOOD, b),
    "lord, reference": lambda b, p: irt.lord_dif(b, GOOD),
    "link, a": lambda b, p: irt.link(b, GOOD),
    "link, b": lambda b, p: irt.link(GOOD, b),
    "information": lambda b, p: irt.information(b),
    "fixed items": lambda b, p: irt.fit_marginal(R, fixed_items=b),
    "start of marginal": lambda b, p: irt.fit_marginal(R, start=b),
    "start of joint": lambda b, p: irt.fit_joint(R, start=b),
    "coreset": lambda b, p: irt.draw_coreset(R, b, 10),
    "complexity": lambda b, p: irt.coreset_complexity(R, b),
    "write": lambda b, p: irt.write_items(b, p / "bank.csv"),
    "icc": lambda b, p: irt.plot.icc(b),
    "icc of some": lambda b, p: irt.plot.icc(b, which=["i1"]),
    "compare": lambda b, p: irt.plot.compare(GOOD, b, "item_difficulty"),
    "wright map": lambda b, p: irt.plot.wright_map(b, None),
}


@pytest.mark.parametrize("use", USES)
def test_items_listed_twice_are_refused(use, tmp_path):
    with pytest.raises(InputError, match=r"1 item\(s\) listed more than once: i1"):
        USES[use](TWICE, tmp_path)
    with pytest.raises(InputError, match=r"1 item\(s\) listed more than once: 1;"):
        USES[use](ALIKE, tmp_path)


def test_pair_counts_listed_twice_are_refused():
    counts = irt.pair_counts(R)
    twice = counts.assign_coords(item_id=("items", ["i0", "i1", "i2", "i1"]))
    for fit in (irt.fit_spectral, irt.fit_choppin, irt.fit_saaty):
        with pytest.raises(InputError, match="listed more than once: i1"):
            fit(twice)


def test_comparisons_of_items_listed_twice_are_refused():
    fit = irt.fit_pairwise(R, pairing="all")
    twice = fit.assign_coords(item_id=("items", ["i0", "i1", "i2", "i1"]))
    with pytest.raises(InputError, match="listed more than once: i1"):
        irt.compare_items(twice, "i0", "i1")
    with pytest.raises(InputError, match="listed more than once: i1"):
        irt.top_items(twice, 1)
