"""Simulation: keyed by person and item, so blocks and stores do not matter; the truth is true."""

from __future__ import annotations

import numpy as np
import pytest
from items import probability
from parts import cells
from scipy import stats

import irt_dask as irt
from irt_dask.errors import ClusterError, InputError
from irt_dask.simulate import generate


@pytest.mark.parametrize("model", ["1pl", "2pl", "3pl"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_same_data_for_any_blocks_and_in_a_store(tmp_path, model, missing):
    options = {"model": model, "missing": missing, "seed": 4}
    whole = irt.simulate(203, 7, **options)
    for rows in (1, 50, 203, 1000):
        r = irt.simulate(203, 7, rows_per_block=rows, **options)
        assert r.n_blocks == -(-203 // rows)
        np.testing.assert_array_equal(cells(r), cells(whole))
        assert r.truth.equals(whole.truth)
    stored = irt.simulate(203, 7, rows_per_block=64, store=tmp_path / "s", **options)
    stored.verify()
    np.testing.assert_array_equal(cells(stored), cells(whole))
    assert stored.truth.equals(whole.truth)
    assert stored.item_id == whole.item_id
    assert [list(stored.person_ids(k)) for k in range(stored.n_blocks)] == [
        [str(i) for i in range(s, min(s + 64, 203))] for s in range(0, 203, 64)
    ]


def test_workers_write_what_threads_write(tmp_path, client, monkeypatch):
    monkeypatch.setattr(generate, "_CELLS", 300)  # several tasks
    seen = []
    options = {"missing": 0.2, "seed": 4, "rows_per_block": 20}
    for name, where in (("threads", None), ("workers", client)):
        r = irt.simulate(
            203, 7, store=tmp_path / name, client=where,
            progress=lambda *event: seen.append(event), **options,
        )  # fmt: skip
        r.verify()
    files = [
        {p.relative_to(tmp_path / name): p.read_bytes()
         for p in (tmp_path / name).rglob("*") if p.is_file()}
        for name in ("threads", "workers")
    ]  # fmt: skip
    assert files[0] == files[1]
    assert seen[-1] == ("simulate", 6, 6)
    assert {stage for stage, _, _ in seen} == {"simulate"}
    whole = irt.simulate(203, 7, client=client, **options)
    np.testing.assert_array_equal(cells(whole), cells(r))


def test_a_worker_that_does_not_see_the_folder(tmp_path):
    part = generate.Part(str(tmp_path / "gone"), "dense", 5, 2, 5)
    with pytest.raises(ClusterError, match=r"does not see the folder .*gone"):
        generate._write(part, range(1))


def test_more_persons_or_items_keep_what_was_there():
    small = irt.simulate(50, 4, seed=1).truth
    large = irt.simulate(80, 9, seed=1).truth
    np.testing.assert_array_equal(small["person_ability"], large["person_ability"][:50])
    np.testing.assert_array_equal(small["item_difficulty"], large["item_difficulty"][:4])


def test_seeds_differ():
    assert (cells(irt.simulate(50, 9, seed=0)) != cells(irt.simulate(50, 9, seed=1))).any()


def test_missing_rate_is_as_asked_and_independent_of_the_answers():
    r, full = (irt.simulate(20_000, 10, seed=2, missing=m) for m in (0.3, 0.0))
    gone = cells(r) == -1
    # false alarm 1e-4 each (fixed seed): binomial, and a chi-square test of independence
    assert stats.binomtest(int(gone.sum()), gone.size, 0.3).pvalue > 1e-4
    y = cells(full)
    np.testing.assert_array_equal(cells(r)[~gone], y[~gone])
    table = np.array([[(gone & (y == v)).sum() for v in (0, 1)],
                      [(~gone & (y == v)).sum() for v in (0, 1)]])  # fmt: skip
    assert stats.chi2_contingency(table).pvalue > 1e-4


@pytest.mark.parametrize("model", ["2pl", "3pl"])
def test_truth_generated_the_responses(model):
    r = irt.simulate(20_000, 8, seed=3, model=model)
    t = r.truth
    a, b, theta = (
        t[k].values for k in ("item_discrimination", "item_difficulty", "person_ability")
    )
    c = t["item_guessing"].values if model == "3pl" else 0.0
    p = probability(theta, a, -a * b, c)
    y = cells(r)
    # each item, ability above and below 0: z-scores of the sums; false alarm 16 x 6e-5 = 1e-3
    for part in (theta > 0, theta <= 0):
        z = (y - p)[part].sum(axis=0) / np.sqrt((p * (1 - p))[part].sum(axis=0))
        assert np.abs(z).max() < 4
    assert stats.kstest(theta, "norm").pvalue > 1e-4
    np.testing.assert_allclose(t["item_intercept"], -a * b)


def test_item_parameters_have_the_documented_distribution():
    t = irt.simulate(1, 5000, seed=5).truth
    # false alarm 1e-4 each
    assert stats.kstest(np.log(t["item_discrimination"]) / 0.3, "norm").pvalue > 1e-4
    assert stats.kstest(t["item_difficulty"], "norm").pvalue > 1e-4
    guessing = irt.simulate(1, 5000, seed=5, model="3pl").truth
    assert stats.kstest(guessing["item_guessing"], stats.beta(5, 17).cdf).pvalue > 1e-4
    np.testing.assert_array_equal(guessing["item_difficulty"], t["item_difficulty"])
    one = irt.simulate(1, 5, model="1pl").truth
    np.testing.assert_array_equal(one["item_discrimination"], 1.0)


@pytest.mark.parametrize(
    "args, options, message",
    [
        ((0, 3), {}, "n_persons=0"),
        ((3, 0), {}, "n_items=0"),
        ((3, 3), {"missing": 1.0}, r"missing=1\.0"),
        ((3, 3), {"missing": -0.1}, r"missing=-0\.1"),
        ((3, 3), {"missing": np.nan}, "missing=nan"),
        ((3, 3), {"model": "5pl"}, "model='5pl' is not available here"),
        ((3, 3), {"rows_per_block": 0}, "rows_per_block=0"),
    ],
)
def test_bad_options(args, options, message):
    with pytest.raises(InputError, match=message):
        irt.simulate(*args, **options)
