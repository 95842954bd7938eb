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


# --- given items ----------------------------------------------------------------------------------

MODELS = [
    ("1pl", None), ("2pl", None), ("3pl", None), ("4pl", None), ("graded", 4), ("gpcm", 3),
    ("pcm", 3), ("rating", 4), ("nominal", 3), ("3pl+graded", [2, 3, 2, 5, 2]),
]  # fmt: skip


@pytest.mark.parametrize(("model", "categories"), MODELS)
def test_items_of_a_truth_give_the_same_responses(tmp_path, model, categories):
    r = irt.simulate(150, 5, model=model, categories=categories, missing=0.1, seed=3)
    again = irt.simulate(150, items=r.truth, missing=0.1, seed=3)
    np.testing.assert_array_equal(cells(again), cells(r))
    assert again.n_categories == r.n_categories
    for name in set(again.truth.variables) - {"item_model"}:  # pcm as gpcm
        x, y = again.truth[name], r.truth[name]
        if x.dtype.kind == "f":
            np.testing.assert_allclose(x, y, atol=1e-12)
        else:
            np.testing.assert_array_equal(x, y)
    stored = irt.simulate(150, items=r.truth, missing=0.1, seed=3, store=tmp_path / "s")
    np.testing.assert_array_equal(cells(stored), cells(r))
    assert stored.truth.equals(again.truth)


def test_given_items_keep_their_names_and_model():
    bank = irt.simulate(1, 3, model="3pl", seed=1).truth.isel(items=[2, 0])
    bank = bank.assign_coords(item_id=("items", ["q7", "q1"]))
    r = irt.simulate(40, items=bank, seed=2)
    assert r.item_id == ("q7", "q1")
    assert r.truth["item_guessing"].equals(bank["item_guessing"])
    assert r.truth.attrs["model"] == "3pl"
    assert r.truth.attrs["seed"] == 2


def test_means_or_the_draw_that_was_picked():
    prior = irt.prior_items(["a", "b", "c"], model="3pl+gpcm", categories=[2, 2, 3], n_draws=9)
    names = ("item_discrimination", "item_intercept", "item_guessing", "item_step_intercept")
    whole, one = (irt.simulate(60, items=x).truth for x in (prior, prior.isel(draw=4)))
    for name in names:
        np.testing.assert_allclose(whole[name], prior[name])
        np.testing.assert_allclose(one[name], prior[f"{name}_draw"][4], atol=1e-12)
    np.testing.assert_allclose(
        one["item_difficulty"], -one["item_intercept"] / one["item_discrimination"]
    )
    # a part of the draws is no draw
    some = irt.simulate(60, items=prior.isel(draw=[4])).truth
    np.testing.assert_allclose(some["item_intercept"], prior["item_intercept"])


def test_empty_categories_stay_empty():
    full = irt.simulate(300, 4, model="gpcm", categories=4, seed=1)
    y = cells(full)
    y[:, 1] = np.where(y[:, 1] == 2, 3, y[:, 1])
    r = irt.from_array(y, item_id=full.item_id, categories=4)
    with pytest.warns(irt.DataWarning, match="nobody has"):
        fit = irt.fit_marginal(r, model="gpcm", null_categories="keep", standard_errors=False)
    made = irt.simulate(500, items=fit, seed=2)
    assert not (cells(made)[:, 1] == 2).any()
    assert set(np.unique(cells(made)[:, 0])) == {0, 1, 2, 3}
    np.testing.assert_array_equal(made.truth["item_category_map"], fit["item_category_map"])
    assert np.isfinite(irt.score(made, made.truth)["person_ability"]).all()


def test_responses_to_given_items_are_of_their_curves():
    """z-scores of sums of 3 falling and rising items in halves of ability: rate 6 x 6e-5."""
    bank = irt.simulate(1, 3, seed=1).truth.drop_vars("person_ability")
    a = np.array([-1.2, 0.8, -0.5])
    bank["item_discrimination"] = ("items", a)
    r = irt.simulate(20_000, items=bank, seed=7)
    theta = r.truth["person_ability"].values
    p = probability(theta, a, bank["item_intercept"].values, 0.0)
    for part in (theta > 0, theta <= 0):
        z = (cells(r) - p)[part].sum(axis=0) / np.sqrt((p * (1 - p))[part].sum(axis=0))
        assert np.abs(z).max() < 4


def test_refusals_of_items():
    bank = irt.simulate(1, 3, seed=1).truth
    with pytest.raises(InputError, match=r"give n_items, or items=: a fit or an item bank"):
        irt.simulate(10)
    for name, value in (("n_items", 3), ("model", "2pl"), ("categories", 2)):
        with pytest.raises(InputError, match=rf"{name}=.* and items= are given"):
            irt.simulate(10, items=bank, **{name: value})
    with pytest.raises(InputError, match="n_persons=0"):
        irt.simulate(0, items=bank)
    with pytest.raises(InputError, match="must be a Dataset with item_id"):
        irt.simulate(10, items=bank["item_difficulty"])
    with pytest.raises(InputError, match="several abilities"):
        irt.simulate(10, items=bank.rename(item_discrimination="item_loading"))
    bad = bank.copy()
    bad["item_discrimination"] = bank["item_discrimination"] * np.nan
    with pytest.raises(InputError, match="item item1 has"):
        irt.simulate(10, items=bad)
