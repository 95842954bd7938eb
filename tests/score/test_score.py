"""Scoring: quadrature, coverage, files that equal memory, folders that are safe."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from parts import cells

import irt_dask as irt
from irt_dask.engine.person_files import DONE
from irt_dask.errors import InputError


def truth(r):
    return r.truth.drop_vars("person_ability")


def test_abilities_equal_fine_summation():
    r = irt.simulate(100, 8, seed=1, missing=0.2)
    y = cells(r)
    a, d = (r.truth[k].values for k in ("item_discrimination", "item_intercept"))
    t = np.linspace(-10, 10, 8001)
    z = t[:, None] * a + d
    log = (
        np.where(y == 1, 1, 0) @ -np.logaddexp(0, -z).T
        + np.where(y == 0, 1, 0) @ -np.logaddexp(0, z).T
    )
    w = np.exp(log - 0.5 * t**2)
    w /= w.sum(axis=1, keepdims=True)
    mean = w @ t
    sd = np.sqrt(w @ t**2 - mean**2)
    out = irt.score(r, truth(r))
    np.testing.assert_allclose(out["person_ability"], mean, atol=1e-7)
    np.testing.assert_allclose(out["person_ability_sd"], sd, atol=1e-7)
    assert out.attrs["mean_ability"] == pytest.approx(mean.mean(), abs=1e-7)
    assert out.attrs["sd_ability"] == pytest.approx(mean.std(), abs=1e-7)
    assert out.attrs["reliability"] == pytest.approx(
        mean.var() / (mean.var() + (sd**2).mean()), abs=1e-7
    )
    edges = np.linspace(-6, 6, 61)
    np.testing.assert_array_equal(out["ability_count"], np.histogram(mean, edges)[0])
    np.testing.assert_allclose(out["ability"], edges[:-1] + 0.1)


def test_intervals_cover_the_true_abilities():
    """n = 20,000: the standard error of the coverage is 0.15%, so 93-97% is 13 of them."""
    r = irt.simulate(20_000, 40, seed=2)
    out = irt.score(r, truth(r))
    theta = r.truth["person_ability"].values
    error = np.abs(theta - out["person_ability"].values)
    covered = (error <= 1.96 * out["person_ability_sd"].values).mean()
    assert 0.93 < covered < 0.97
    assert np.corrcoef(theta, out["person_ability"])[0, 1] > 0.9
    assert out.attrs["reliability"] == pytest.approx(
        np.corrcoef(theta, out["person_ability"])[0, 1] ** 2, abs=0.02
    )


def test_person_without_responses_has_the_prior():
    items = truth(irt.simulate(1, 3))
    out = irt.score(irt.from_array(np.full((2, 3), -1), item_id=items["item_id"].values), items)
    np.testing.assert_allclose(out["person_ability"], 0.0, atol=1e-12)
    np.testing.assert_allclose(out["person_ability_sd"], 1.0, atol=1e-9)
    assert out.attrs["reliability"] == pytest.approx(0.0, abs=1e-12)


def test_items_are_matched_by_identifier():
    r = irt.simulate(60, 6, seed=3)
    y, items = cells(r), truth(r)
    want = irt.score(r, items)["person_ability"].values
    order = np.array([3, 0, 5, 1, 4, 2])
    shuffled = irt.from_array(y[:, order], item_id=np.array(r.item_id)[order])
    np.testing.assert_allclose(irt.score(shuffled, items)["person_ability"], want, atol=1e-12)
    np.testing.assert_array_equal(irt.score(r, items.isel(items=order))["person_ability"], want)
    part = irt.from_array(y[:, :4], item_id=r.item_id[:4])
    more = np.where(np.arange(6) < 4, y, -1)
    np.testing.assert_allclose(
        irt.score(part, items)["person_ability"],
        irt.score(irt.from_array(more, item_id=r.item_id), items)["person_ability"],
        atol=1e-7,
    )


def test_unknown_items_are_listed():
    r = irt.simulate(5, 4)
    with pytest.raises(InputError, match=r"2 item\(s\).*item2, item4"):
        irt.score(r, truth(r).isel(items=[0, 2]))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"item_discrimination": 0.0}, r"item item1 has discrimination 0 and"),
        ({"item_intercept": np.nan}, "intercept nan"),
        ({"item_intercept": np.inf}, "intercept inf"),
    ],
)
def test_impossible_items_are_refused(change, message):
    r = irt.simulate(5, 2)
    items = truth(r)
    for name, value in change.items():
        items[name].values[0] = value
    with pytest.raises(InputError, match=message):
        irt.score(r, items)


def test_bad_options():
    r = irt.simulate(5, 2)
    with pytest.raises(InputError, match="method='mle' is not available; use eap"):
        irt.score(r, truth(r), method="mle")
    with pytest.raises(InputError, match="must be a Dataset with item_id"):
        irt.score(r, {"a": 1})
    with pytest.raises(InputError, match="neither item_intercept nor item_difficulty"):
        irt.score(r, truth(r)[["item_discrimination"]])


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_blocks_do_not_matter(rows):
    r = irt.simulate(150, 9, seed=4, missing=0.1)
    want = irt.score(r, truth(r))
    got = irt.score(irt.from_array(cells(r), item_id=r.item_id, rows_per_block=rows), truth(r))
    assert got.drop_attrs().identical(want.drop_attrs())
    assert got.attrs == want.attrs


# --- files ----------------------------------------------------------------------------------------


def test_files_equal_memory(tmp_path):
    y = np.random.default_rng(5).integers(-1, 2, (53, 4))
    ids = [f"pérson {i}, ✓" for i in range(53)]
    group = [f"g{i % 3}" for i in range(53)]
    r = irt.from_array(y, person_id=ids, persons={"group": group}, rows_per_block=10)
    items = irt.fit_spectral(r)
    del items.attrs["identification"]  # not N(0, 1), which a warning says
    memory = irt.score(r, items)
    written = irt.score(r, items, store=tmp_path / "scores")
    frame = pd.read_parquet(tmp_path / "scores")
    assert list(frame.columns) == [
        "person_id", "person_group", "person_ability", "person_ability_sd", "n_responses",
        "sum_score",
    ]  # fmt: skip
    assert list(frame["person_id"]) == ids == list(memory["person_id"].values)
    assert list(frame["person_group"]) == group
    for name in ("person_ability", "person_ability_sd"):
        assert frame[name].to_numpy().tobytes() == memory[name].values.tobytes()
    np.testing.assert_array_equal(frame["n_responses"], (y >= 0).sum(axis=1))
    np.testing.assert_array_equal(frame["sum_score"], np.where(y >= 0, y, 0).sum(axis=1))
    assert "person_ability" not in written
    np.testing.assert_array_equal(written["ability_count"], memory["ability_count"])
    assert written.attrs["mean_ability"] == memory.attrs["mean_ability"]
    names = sorted(p.name for p in (tmp_path / "scores").iterdir())
    assert names == [".lock", DONE, *(f"part-{k:06d}.parquet" for k in range(6))]
    assert json.loads((tmp_path / "scores" / DONE).read_text())["data"] == r.fingerprint


def test_folder_of_something_else_is_refused(tmp_path):
    r = irt.simulate(10, 3)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds other files"):
        irt.score(r, truth(r), store=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    r = irt.simulate(10, 3)
    (tmp_path / "f").write_text("mine")
    with pytest.raises(InputError):
        irt.score(r, truth(r), store=tmp_path / "f")


def test_interrupted_run_is_completed(tmp_path):
    r = irt.simulate(40, 3, rows_per_block=10)
    irt.score(r, truth(r), store=tmp_path / "whole")
    irt.score(r, truth(r), store=tmp_path / "s")
    (tmp_path / "s" / DONE).unlink()
    (tmp_path / "s" / "_unfinished").touch()  # what a run leaves that was killed
    (tmp_path / "s" / "part-000001.parquet").write_bytes(b"half")
    (tmp_path / "s" / "part-000002.parquet").unlink()
    (tmp_path / "s" / "part-000099.parquet").write_bytes(b"of a run with other blocks")
    (tmp_path / "s" / ".part-000003.parquet.12.tmp").write_bytes(b"half")
    irt.score(r, truth(r), store=tmp_path / "s")
    whole = {p.name: p.read_bytes() for p in (tmp_path / "whole").iterdir() if p.name != DONE}
    assert {p.name: p.read_bytes() for p in (tmp_path / "s").iterdir() if p.name != DONE} == whole


def test_failed_run_is_not_marked_finished(tmp_path, monkeypatch):
    from irt_dask.store.arrays import ArrayBlock

    r = irt.simulate(40, 3, rows_per_block=10)
    good = ArrayBlock.person_ids

    def bad(self):
        if self.index == 2:
            raise OSError("disk full")
        return good(self)

    with monkeypatch.context() as patch:
        patch.setattr(ArrayBlock, "person_ids", bad)
        with pytest.raises(OSError, match="disk full"):
            irt.score(r, truth(r), store=tmp_path / "s")
    assert not (tmp_path / "s" / DONE).exists()
    irt.score(r, truth(r), store=tmp_path / "s")
    assert len(pd.read_parquet(tmp_path / "s")) == 40


# --- uncertain items ------------------------------------------------------------------------------


def drawn_items(r, n, sd=0.2, seed=0):
    """The true items, with draws about them."""
    g, items = np.random.default_rng(seed), truth(r)
    a, d = items["item_discrimination"].values, items["item_intercept"].values
    draws = {
        "item_discrimination_draw": a * np.exp(sd * g.normal(size=(n, a.size))),
        "item_intercept_draw": d + sd * g.normal(size=(n, a.size)),
    }
    return items.assign({name: (("draw", "items"), x) for name, x in draws.items()})


def test_total_variance_equals_that_of_the_mixture():
    # The mixture of the posteriors under each draw, summed on a fine grid.
    r = irt.simulate(60, 6, seed=7, missing=0.2)
    y, items = cells(r), drawn_items(r, 12)
    out = irt.score(r, items, n_item_draws=4)
    t = np.linspace(-9, 9, 4001)
    mixture = np.zeros((60, t.size))
    for k in (1, 4, 7, 10):  # four evenly spaced of 12
        z = t[:, None] * items["item_discrimination_draw"].values[k]
        z += items["item_intercept_draw"].values[k]
        log = (y == 1) @ -np.logaddexp(0, -z).T + (y == 0) @ -np.logaddexp(0, z).T
        w = np.exp(log - 0.5 * t**2)
        mixture += w / w.sum(axis=1, keepdims=True) / 4
    mean = mixture @ t
    sd = np.sqrt(mixture @ t**2 - mean**2)
    np.testing.assert_allclose(out["person_ability"], mean, atol=1e-7)
    np.testing.assert_allclose(out["person_ability_sd"], sd, atol=1e-7)
    assert out.attrs["n_item_draws"] == 4
    assert out.attrs["reliability"] == pytest.approx(
        mean.var() / (mean.var() + (sd**2).mean()), abs=1e-7
    )


def test_number_of_item_draws():
    r = irt.simulate(20, 4, seed=8)
    plain, items = irt.score(r, truth(r)), drawn_items(r, 50)
    assert plain.attrs["n_item_draws"] == 0
    assert "seed" not in plain.attrs
    known = irt.score(r, items, n_item_draws=0)
    assert known.drop_attrs().identical(plain.drop_attrs())
    want = irt.score(r, items, n_item_draws=20)
    default = irt.score(r, items)
    assert default.attrs["n_item_draws"] == 20
    assert default.identical(want)
    assert irt.score(r, items.isel(draw=slice(7))).attrs["n_item_draws"] == 7
    one = irt.score(r, items.isel(draw=[25]))
    assert one.attrs["n_item_draws"] == 1
    middle = irt.score(r, items, n_item_draws=1)  # the middle one of 50
    assert middle.identical(one)
    shuffled = items.isel(items=[2, 0, 3, 1])
    assert irt.score(r, shuffled).identical(want)


@pytest.mark.parametrize("options, message", [
    ({"n_item_draws": 3}, "n_item_draws=3: items carry no draws.*fit_bayes"),
    ({"n_item_draws": -1}, "n_item_draws=-1 must be a whole number of at least 0"),
    ({"n_item_draws": 2.0}, r"n_item_draws=2\.0 must be"),
    ({"n_plausible": -1}, "n_plausible=-1 must be"),
    ({"n_plausible": True}, "n_plausible=True must be"),
])  # fmt: skip
def test_impossible_numbers_of_draws(options, message):
    r = irt.simulate(5, 3)
    with pytest.raises(InputError, match=message):
        irt.score(r, truth(r), **options)


def test_more_draws_than_there_are():
    r = irt.simulate(5, 3)
    items = drawn_items(r, 6)
    with pytest.raises(InputError, match="n_item_draws=7 exceeds the 6 draws of items"):
        irt.score(r, items, n_item_draws=7)
    with pytest.raises(InputError, match="n_plausible=7 exceeds the 6 draws"):
        irt.score(r, items, n_plausible=7)
    assert irt.score(r, items, n_plausible=7, n_item_draws=0).sizes["plausible"] == 7
    items["item_discrimination_draw"][3, 1] = 0.0
    with pytest.raises(InputError, match=r"items, draw 3: item item2 has discrimination 0 and"):
        irt.score(r, items, n_item_draws=6)


def test_items_of_other_models_are_refused():
    r = irt.simulate(5, 3)
    loadings = truth(r).assign(item_loading=(("items", "latent_dims"), np.ones((3, 3))))
    with pytest.raises(InputError, match="items have item_loading of 3 abilities"):
        irt.score(r, loadings)
    guessed = drawn_items(r, 30).assign(item_guessing=("items", np.full(3, 0.2)))
    with pytest.raises(InputError, match="item_guessing_draw"):
        irt.score(r, guessed)


def test_too_much_for_memory_is_refused(monkeypatch):
    from irt_dask.score import ability

    r = irt.simulate(20, 3)
    monkeypatch.setattr(ability, "_MAX_PLAUSIBLE_IN_MEMORY", 50)
    assert irt.score(r, truth(r), n_plausible=2).sizes["plausible"] == 2
    with pytest.raises(InputError, match=r"20 persons, 3 plausible values.*store=PATH"):
        irt.score(r, truth(r), n_plausible=3)


@pytest.mark.slow
def test_errors_are_as_large_as_said_where_items_are_uncertain():
    """The true items are one more draw: E (theta - EAP)^2 = E SD^2, |t| < 4.2 (rate 1e-4).

    With the draws' mean taken for the truth, errors are larger than said.
    """
    r = irt.simulate(200, 10, seed=9)
    centre, g = truth(r), np.random.default_rng(9)
    a, d = centre["item_discrimination"].values, centre["item_intercept"].values

    def drawn(*shape):
        z = g.normal(size=(2, *shape, 10))
        return a * np.exp(0.2 * z[0]), d + 0.8 * z[1]

    excess = {None: [], 0: []}
    for _ in range(50):
        names = ("item_discrimination_draw", "item_intercept_draw")
        draws = {n: (("draw", "items"), x) for n, x in zip(names, drawn(20), strict=True)}
        slope, intercept = drawn()
        theta = g.normal(size=200)
        y = g.random((200, 10)) < 1 / (1 + np.exp(-(np.outer(theta, slope) + intercept)))
        for n_draws, values in excess.items():
            out = irt.score(
                irt.from_array(y.astype(np.int8), item_id=r.item_id),
                centre.assign(draws),
                n_item_draws=n_draws,
            )
            error = theta - out["person_ability"].values
            values.append((error**2 - out["person_ability_sd"].values ** 2).mean())

    def t(x):
        return np.mean(x) / (np.std(x, ddof=1) / np.sqrt(len(x)))

    assert abs(t(excess[None])) < 4.2
    assert t(excess[0]) > 4
    assert t(np.subtract(excess[0], excess[None])) > 8


def test_command_line(tmp_path):
    from click.testing import CliRunner

    from irt_dask.cli.work import score

    def run(*args):
        common = ["--cluster", "none", "--json", "--quiet"]
        return CliRunner().invoke(score, [*map(str, args), *common])

    r = irt.simulate(30, 4, seed=1, store=tmp_path / "store")
    items = drawn_items(r, 30)
    items.to_netcdf(tmp_path / "posterior.nc", engine="scipy")
    irt.write_items(items, tmp_path / "bank.csv")
    done = run(tmp_path / "store", tmp_path / "bank.csv", "--out", tmp_path / "a")
    assert json.loads(done.output)["n_item_draws"] == 0
    done = run(
        tmp_path / "store", tmp_path / "posterior.nc", "--out", tmp_path / "b",
        "--plausible", 2, "--item-draws", 5, "--seed", 3,
    )  # fmt: skip
    told = json.loads(done.output)
    assert (told["n_item_draws"], told["n_plausible"]) == (5, 2)
    want = irt.score(r, items, n_plausible=2, n_item_draws=5, seed=3)
    frame = pd.read_parquet(tmp_path / "b")
    got = frame[["pv1", "pv2"]].to_numpy()
    np.testing.assert_array_equal(got, want["person_plausible_value"].values)
    default = run(tmp_path / "store", tmp_path / "posterior.nc", "--out", tmp_path / "c")
    assert json.loads(default.output)["n_item_draws"] == 20
    drawn = run(
        tmp_path / "store", tmp_path / "bank.csv", "--out", tmp_path / "e", "--item-draws", 5
    )
    assert json.loads(drawn.output)["n_item_draws"] == 5
    (tmp_path / "bank.covariance.csv").unlink()  # without it nothing is known of their errors
    wrong = [
        (tmp_path / "bank.csv", "--item-draws", 5),
        (tmp_path / "none.nc",),
        (tmp_path / "broken.nc",),
    ]
    (tmp_path / "broken.nc").write_bytes(b"no result")
    for bank, *more in wrong:
        done = run(tmp_path / "store", bank, "--out", tmp_path / "d", *more)
        assert isinstance(done.exception, InputError)
