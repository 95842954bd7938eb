"""From a table to a leaderboard: files, what is found, and intervals against their formulas."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

import irt_dask as irt
from irt_dask.errors import InputError, IrtDaskWarning
from irt_dask.selection import question_sampling
from irt_dask.workflow.benchmarking import benchmark


@pytest.fixture(scope="module")
def table():
    """60 models, 60 questions, question q9 with a wrong key; m41 is m3 again."""
    y = irt.simulate(60, 60, seed=4).to_xarray()["response"].values
    y[:, 9] = 1 - y[:, 9]
    y[41] = y[3]
    return pd.DataFrame(y, columns=[f"q{j}" for j in range(60)])


def test_a_wide_table(table, tmp_path):
    path = tmp_path / "wide.csv.gz"
    table.rename_axis("model").rename(index="m{}".format).to_csv(path)
    found = benchmark(path, tmp_path / "out", anchors=7, top=5)
    board = found.leaderboard
    assert board["share_right"].is_monotonic_decreasing
    share = table.mean(axis=1).rename("m{}".format)
    assert np.allclose(board["share_right"], share[board["model"]])
    assert ((board["rank_lower"] <= board["rank"]) & (board["rank"] <= board["rank_upper"])).all()
    assert board["probability_in_top"].sum() == pytest.approx(5.0)
    inside = board["ability_rank"].between(board["ability_rank_lower"], board["ability_rank_upper"])
    assert inside.all()
    # simulated: true ranks of nearly all models at once (level .95); a wrong order, for few
    truth = irt.simulate(60, 60, seed=4).truth["person_ability"].to_series()
    true = (-truth).rank().rename("m{}".format)[board["model"]].to_numpy()
    held = (board["ability_rank_lower"] <= true) & (true <= board["ability_rank_upper"])
    assert held.drop(held.index[board["model"].isin(["m3", "m41"])]).mean() >= 0.98
    assert (board["ability_rank_upper"] - board["ability_rank_lower"]).mean() < 45
    assert found.broken["question"].iloc[0] == "q9"
    pair = found.similar_models.iloc[0]
    assert (pair["first_model"], pair["second_model"], pair["identical"]) == ("m3", "m41", True)
    names = ["anchors", "broken_questions", "items", "leaderboard", "questions", "similar_models"]
    written = {p.stem: p for p in (tmp_path / "out").iterdir() if p.suffix == ".csv"}
    assert sorted(written) == names
    assert len(pd.read_csv(written["anchors"])) == 7
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Broken questions" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    irt.score(table.to_numpy(), irt.read_items(written["items"]).assign_coords(
        item_id=("items", [str(j) for j in range(60)])))  # fmt: skip


def test_attempts(tmp_path):
    rng = np.random.default_rng(2)
    p = 1.0 / (1.0 + np.exp(-(rng.normal(size=(30, 1)) + rng.normal(size=12))))
    rows = [
        (f"m{i}", f"q{j}", k, int(rng.random() < p[i, j]))
        for i in range(30) for j in range(12) for k in range(3)
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["model", "question", "attempt", "score"])
    table.to_json(tmp_path / "long.jsonl", orient="records", lines=True)
    found = benchmark(tmp_path / "long.jsonl", trials="attempt")
    assert set(found.fit["item_model"].values) == {"binomial"}
    share = table.groupby("model")["score"].mean()
    assert np.allclose(found.leaderboard["share_right"], share[found.leaderboard["model"]])
    assert any("independent" in note for note in found.notes)


@pytest.mark.slow
def test_a_board_of_attempts_that_grew():
    rng = np.random.default_rng(1)
    z = rng.standard_normal((70, 1)) * np.exp(0.3 * rng.standard_normal(40))
    z = z + rng.standard_normal(40)
    z[50:, 7] += 4.0
    y = rng.binomial(4, 1.0 / (1.0 + np.exp(-z))).astype(np.int8)
    ids = [f"m{i}" for i in range(70)]
    before = benchmark(irt.from_array(y[:50], categories=5, person_id=ids[:50]))
    found = benchmark(irt.from_array(y, categories=5, person_id=ids), bank=before.fit)
    assert found.drift.iloc[0]["question"] == "7"
    assert found.drift["drifted"].tolist() == [True] + 39 * [False]
    known = found.fit.isel(items=slice(0, 40))["item_intercept"].values
    assert (known == before.fit["item_intercept"].values).all()
    share = found.leaderboard.set_index("model")["share_right"]
    assert np.allclose(share[ids], y.mean(axis=1) / 4.0)


@pytest.mark.slow
def test_attempts_that_repeat_one_answer():
    """With few questions one of them would be the ability: an answer is then one response."""
    rng = np.random.default_rng(8)
    z = rng.standard_normal((100, 1)) * rng.uniform(0.8, 1.6, 12) + rng.normal(0.0, 0.8, 12)
    y = (rng.random(z.shape) < 1.0 / (1.0 + np.exp(-z))).astype(np.int8)
    found = benchmark(irt.from_array(10 * y, categories=11))
    assert "more than half of its attempts" in found.notes[0]
    assert np.abs(found.fit["item_discrimination"]).max() < 4.0
    same = benchmark(y)
    assert same.leaderboard.equals(found.leaderboard)
    # A board that grows is read as its bank was.
    joined = np.vstack([y, (rng.random((12, 12)) < 0.5).astype(np.int8)])
    ids = [str(i) for i in range(112)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)
        grown = benchmark(irt.from_array(10 * joined, categories=11, person_id=ids), bank=found.fit)
        once = benchmark(irt.from_array(joined, person_id=ids), bank=found.fit)
    assert "more than half of its attempts" in grown.notes[0]
    assert grown.leaderboard.equals(once.leaderboard)
    assert grown.drift.equals(once.drift)
    assert grown.fit.attrs["answers"] == found.fit.attrs["answers"]  # for the wave after


def test_intervals_of_shares():
    rng = np.random.default_rng(0)
    y = (rng.random((6, 40)) < 0.7).astype(np.int8)
    y[5] = 1
    found = question_sampling.shares(irt.from_array(y), 0.9)
    p, z = y.mean(axis=1), t.ppf(0.95, 39)
    middle = (p + z * z / 80) / (1 + z * z / 40)
    half = z * np.sqrt(p * (1 - p) / 40 + z * z / 6400) / (1 + z * z / 40)
    assert np.allclose(found.lower, middle - half)
    assert np.allclose(found.upper, middle + half)
    counts = np.minimum(y * 4, rng.integers(0, 5, y.shape)).astype(np.int8)
    found = question_sampling.shares(irt.from_array(counts, categories=5), 0.9)
    usual = counts.std(axis=1) / 4 / np.sqrt(40)
    assert np.allclose((found.upper - found.lower) / (2 * z * usual), 1.0, atol=0.1)


def test_draws_are_of_weights_of_questions():
    """Mean and covariance of Dirichlet-weighted shares, of two persons on the same questions."""
    rng = np.random.default_rng(1)
    y = (rng.random((2, 30)) < 0.6).astype(np.int8)
    drawn = question_sampling.drawn_shares(irt.from_array(y, rows_per_block=1), 3)
    values = drawn["person_plausible_value"].values
    exact = np.cov(y, ddof=0) / 31
    assert np.allclose(values.mean(axis=1), y.mean(axis=1), atol=4 * np.sqrt(exact.max() / 1000))
    assert np.allclose(np.cov(values), exact, atol=0.25 * exact.max())


def test_refusals(table, tmp_path):
    with pytest.raises(InputError, match="two models at least"):
        benchmark(irt.from_array(table.to_numpy()[:1]))
    (tmp_path / "f").write_text("")
    with pytest.raises(InputError, match="is a file"):
        benchmark(irt.from_array(table.to_numpy()), tmp_path / "f")
    with pytest.raises(InputError, match=r"exclude=\['q99'\]: there are no such questions"):
        benchmark(irt.from_array(table.to_numpy()), exclude="q99")
    with pytest.raises(InputError, match="have been read before"):
        benchmark(irt.from_array(table.to_numpy()), trials="attempt")


@pytest.mark.slow
def test_copies_of_a_model_have_the_same_ranks_whoever_comes_first(table):
    """m41 is m3 again: nothing says which of them is the better."""
    found = [benchmark(t.to_numpy(), top=5).leaderboard for t in (table, table.iloc[::-1])]
    for board, places in zip(found, (("3", "41"), ("56", "18")), strict=True):
        one, two = (board.set_index("model").loc[p] for p in places)
        assert abs(one["rank_lower"] - two["rank_lower"]) <= 1
        assert abs(one["rank_upper"] - two["rank_upper"]) <= 1
        assert abs(one["probability_in_top"] - two["probability_in_top"]) < 0.1
        assert one["rank_lower"] <= one["rank"] <= one["rank_upper"]


def test_models_without_an_answer_and_options_beyond_the_board(table):
    y = table.to_numpy().copy()
    y[7] = -1
    with pytest.raises(InputError, match=r"1 model.* have no answer: '7'"):
        benchmark(y)
    with pytest.raises(InputError, match="anchors=61 is more than the 60 questions"):
        benchmark(table.to_numpy(), anchors=61)
    with pytest.raises(InputError, match="top=60 must be below the 60 models"):
        benchmark(table.to_numpy(), top=60)
