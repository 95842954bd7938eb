"""The covariance beside a bank in .csv, and the groups that a concurrent calibration knew."""

import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import irt_dask as irt
from irt_dask.curves.logistic import INTERCEPT, SLOPE
from irt_dask.errors import DataWarning, InputError, Notice
from irt_dask.items import covariance
from irt_dask.items.draws import item_draws
from irt_dask.store.freed_items import under_their_names


@pytest.fixture(scope="module")
def fits():
    """Of two categories, of more (with names that a spreadsheet would run), and a posterior."""
    y = irt.simulate(400, 5, model="gpcm", categories=3, seed=1).to_xarray()["response"].values
    odd = irt.from_array(y, item_id=["=1+1", "-q", "a,b", 'c"d', "e"], categories=3)
    return {
        "2pl": irt.fit_marginal(irt.load_lsat()),
        "3pl": irt.fit_marginal(irt.simulate(1500, 6, model="3pl", seed=2), model="3pl"),
        "gpcm": irt.fit_marginal(odd, model="gpcm"),
        "rating": irt.fit_marginal(odd, model="rating"),
        "rasch": irt.fit_spectral(irt.load_lsat()),
        "bayes": irt.fit_bayes(irt.load_lsat(), n_draws=200, n_warmup=100),
    }


@pytest.mark.parametrize("name", ["2pl", "3pl", "gpcm", "rating", "rasch", "bayes"])
def test_csv_carries_what_json_carries(fits, name, tmp_path):
    files = [irt.write_items(fits[name], tmp_path / f"bank.{s}") for s in ("csv", "json")]
    one, two = map(irt.read_items, files)
    assert one.identical(two)
    frame = pd.read_csv(tmp_path / "bank.covariance.csv")
    matrix = frame.iloc[:, 2:].to_numpy()
    np.testing.assert_array_equal(matrix, one["item_parameter_covariance"].values)
    of_d = frame["parameter"].isin(["d", "d1"])
    if name in ("2pl", "3pl"):
        np.testing.assert_allclose(
            np.sqrt(np.diag(matrix)[of_d]), fits[name]["item_intercept_se"], rtol=1e-12
        )


def test_links_and_draws_of_items_are_the_same(fits, tmp_path):
    fit = fits["2pl"]
    ids = tuple(fit["item_id"].values.astype(str))
    y = irt.load_lsat().to_xarray()["response"].values[:600]
    other = irt.fit_marginal(irt.from_array(y, item_id=fit["item_id"].values))
    said, drawn = [], []
    for suffix in ("csv", "json"):
        paths = [irt.write_items(f, tmp_path / f"{k}.{suffix}") for k, f in enumerate((fit, other))]
        banks = [irt.read_items(p) for p in paths]
        said.append(irt.link(*banks, error="delta").attrs)
        sets = item_draws(banks[0], ids, 3, option="n_item_draws")
        drawn.append(np.array([s.column(p) for s in sets for p in (SLOPE, INTERCEPT)]))
    assert said[0] == said[1] == irt.link(fit, other, error="delta").attrs
    assert said[0]["error_of"] == "covariances of items"
    np.testing.assert_array_equal(drawn[0], drawn[1])
    (tmp_path / "0.covariance.csv").unlink()
    sets = item_draws(irt.read_items(tmp_path / "0.csv"), ids, 3, option="n_item_draws")
    alone = np.array([s.column(p) for s in sets for p in (SLOPE, INTERCEPT)])
    assert (alone[::2] != drawn[0][::2]).all()  # by standard errors alone


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_an_item_that_everybody_solved_has_no_place_in_it(suffix, tmp_path):
    """Its variance is not known, the others' are; draws of items warn that it has none."""
    y = irt.load_lsat().to_xarray()["response"].values.astype(int)
    y[:, 2] = 1
    fit = irt.fit_spectral(irt.from_array(y))
    of_fit = fit["item_difficulty_covariance"].values
    assert np.flatnonzero(np.isnan(of_fit.diagonal())).tolist() == [2]
    bank = irt.read_items(irt.write_items(fit, tmp_path / f"bank.{suffix}"))
    kept = [0, 1, 3, 4]
    assert bank["parameter_item"].values.tolist() == ["0", "1", "3", "4"]
    np.testing.assert_allclose(
        bank["item_parameter_covariance"].values, of_fit[np.ix_(kept, kept)], rtol=1e-14
    )
    r = irt.from_array(y)
    one, two = (irt.score(r, x, prior="population")["person_ability"] for x in (bank, fit))
    np.testing.assert_allclose(one, two, atol=1e-12)
    other = irt.fit_spectral(irt.from_array(y[:600]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        links = [irt.link(b, other, method="haebara", error="delta") for b in (bank, fit)]
    assert links[0].attrs["n_used"] == 4
    assert links[0].attrs["B_se"] == pytest.approx(links[1].attrs["B_se"], rel=1e-6)
    with pytest.warns(DataWarning, match="1 of 5 items have no standard error .*: '2'"):
        sets = item_draws(bank, tuple("01234"), 3, option="n_item_draws")
    drawn = np.array([one.column(INTERCEPT) for one in sets])
    assert (np.ptp(drawn, axis=0) > 0.0).tolist() == [True, True, False, True, True]


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_a_posterior_of_shards_has_the_errors_that_stand_beside_it(suffix, tmp_path):
    """Those of all shards' draws; correlations are of the draws that are kept."""
    fit = irt.fit_bayes(irt.load_lsat(), n_shards=3, n_draws=100, n_warmup=50, seed=1)
    names = {"a": "item_discrimination", "d": "item_intercept"}
    draws = np.concatenate([fit[f"{n}_draw"].values for n in names.values()], axis=1)
    sd = np.concatenate([fit[f"{n}_sd"].values for n in names.values()])
    assert np.abs(draws.std(axis=0, ddof=1) / sd - 1.0).max() > 0.05
    bank = irt.read_items(irt.write_items(fit, tmp_path / f"bank.{suffix}"))
    ids = fit["item_id"].values.tolist()
    at = [
        5 * ["a", "d"].index(c) + ids.index(i)
        for i, c in zip(bank["parameter_item"].values, bank["parameter_column"].values, strict=True)
    ]
    want = np.corrcoef(draws.T) * np.outer(sd, sd)
    found = bank["item_parameter_covariance"].values
    np.testing.assert_allclose(found, want[np.ix_(at, at)], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.diagonal() ** 0.5, sd[at], rtol=1e-12)


def test_a_bank_without_one_takes_an_older_one_away(fits, tmp_path):
    irt.write_items(fits["2pl"], tmp_path / "bank.csv")
    beside = tmp_path / "bank.covariance.csv"
    assert beside.exists()
    truth = irt.simulate(50, 5, seed=1).truth
    irt.write_items(truth, tmp_path / "bank.csv")
    assert not beside.exists()
    assert "item_parameter_covariance" not in irt.read_items(tmp_path / "bank.csv")


@pytest.mark.parametrize("name", ["2pl", "none"])
def test_files_that_are_no_covariance_stay(fits, name, tmp_path):
    """A user's own of that name; a folder; but what a spreadsheet made of one is replaced."""
    items = irt.simulate(50, 5, seed=1).truth if name == "none" else fits[name]
    bank, beside = tmp_path / "bank.csv", tmp_path / "bank.covariance.csv"
    for own in (b"note\nmine\n", b"item,parameter\nq1,easy\n", b"item;parameter;1;3\n", b"\xff\xfe",
                b"item,parameter,1,2,note\n", b""):  # fmt: skip
        beside.write_bytes(own)
        with pytest.raises(InputError, match=r"lies .*bank\.covariance\.csv.* and is none"):
            irt.write_items(items, bank)
        assert beside.read_bytes() == own
        assert not bank.exists()
    irt.write_items(items, tmp_path / "bank.json")  # which has no file beside it
    beside.unlink()
    beside.mkdir()
    with pytest.raises(InputError, match=r"bank\.covariance\.csv, the file of its cov.* cannot be"):
        irt.write_items(items, bank)
    beside.rmdir()
    bank.mkdir()
    with pytest.raises(InputError, match=r"bank\.csv: a folder has this name"):
        irt.write_items(items, bank)
    bank.rmdir()
    irt.write_items(fits["gpcm"], bank)
    header, rest = beside.read_text().split("\n", 1)
    for changed in ("\ufeff" + header.replace(",", ";"), '"' + header.replace(",", '","') + '"'):
        beside.write_text(changed + "\r\n" + rest, encoding="utf-8")
        irt.write_items(items, bank)
        assert beside.exists() == (name == "2pl")
        assert ("item_parameter_covariance" in irt.read_items(bank)) == (name == "2pl")


def test_a_covariance_that_is_too_large_is_said(fits, tmp_path, monkeypatch):
    from irt_dask.banks import covariances

    monkeypatch.setattr(covariances, "MAX", 9)
    for name in ("bayes", "rasch"):
        monkeypatch.setattr(covariances, "MAX", 9 if name == "bayes" else 4)
        for suffix in ("csv", "json"):
            with pytest.warns(Notice, match=r"covariance of up to \d parameters, and these are"):
                irt.write_items(fits[name], tmp_path / f"bank.{suffix}")
            assert "item_parameter_covariance" not in irt.read_items(tmp_path / f"bank.{suffix}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of nothing that is known nothing is left out
        irt.write_items(irt.simulate(50, 20, seed=1).truth, tmp_path / "bank.csv")
    assert covariance.MAX == 1000


@pytest.mark.parametrize(
    "row, column, value, said",
    [
        (2, "item", "LSAT9", r"line 4, column item: 'LSAT9' is no item of the bank"),
        (2, "parameter", "c7", r"line 4, column parameter: 'c7' is no parameter .* 'LSAT2'"),
        (2, "parameter", "d", r"line 5, column parameter: 'd' of the item 'LSAT2' was there"),
        (3, "2", "much", r"line 5, column 2: 'much' is not a finite number"),
        (3, "2", "0.5", r"line 5, column 2: '0.5' stands there, and '-?[0-9.e-]+' across"),
        (0, "1", "4.0", r"line 2, column 1: 4 is the variance of a of the item 'LSAT1', and its "
         r"standard error in the bank is 0\.2"),
    ],
)  # fmt: skip
def test_one_that_does_not_go_with_the_bank_is_an_error(fits, tmp_path, row, column, value, said):
    irt.write_items(fits["2pl"], tmp_path / "bank.csv")
    path = tmp_path / "bank.covariance.csv"
    frame = pd.read_csv(path, dtype=str)
    frame.loc[row, column] = value
    frame.to_csv(path, index=False)
    with pytest.raises(InputError, match=rf"bank\.covariance\.csv, {said}"):
        irt.read_items(tmp_path / "bank.csv")


def test_squares_that_are_none_are_errors(fits, tmp_path):
    irt.write_items(fits["2pl"], tmp_path / "bank.csv")
    path = tmp_path / "bank.covariance.csv"
    text = path.read_text()
    lines = text.splitlines()
    for changed, said in (
        (
            "\n".join([*lines[:4], "", *lines[4:-1]]),
            "line 1, column 12: 12 cells stand there, not 11",
        ),
        (text.replace("parameter", "column", 1), "line 1, column 2: 'column' stands there, not"),
        ("\n".join([*lines[:-1], lines[-1] + ",1"]), "line 11, column 13: 13 cells stand there"),
        ("", "line 1, column 1: '' stands there, not 'item'"),
    ):
        path.write_text(changed)
        with pytest.raises(InputError, match=said):
            irt.read_items(tmp_path / "bank.csv")
    frame = pd.read_csv(tmp_path / "bank.csv")
    path.write_text(text)
    frame.iloc[1:].to_csv(tmp_path / "bank.csv", index=False)
    with pytest.raises(InputError, match="line 2, column item: 'LSAT1' is no item of the bank"):
        irt.read_items(tmp_path / "bank.csv")
    square = pd.read_csv(path)
    square = square.iloc[:8, :10]
    square.to_csv(path, index=False)
    frame.to_csv(tmp_path / "bank.csv", index=False)
    with pytest.raises(InputError, match="no row is there for 'a of LSAT5', 'd of LSAT5'"):
        irt.read_items(tmp_path / "bank.csv")
    square = pd.read_csv(path)
    square.loc[0, "2"] = square.loc[1, "1"] = 1.0
    square.to_csv(path, index=False)
    with pytest.raises(InputError, match="its numbers are no covariance"):
        irt.read_items(tmp_path / "bank.csv")


def test_spreadsheets_may_have_written_it_anew(fits, tmp_path):
    irt.write_items(fits["gpcm"], tmp_path / "bank.csv")
    bank = irt.read_items(tmp_path / "bank.csv")
    path = tmp_path / "bank.covariance.csv"
    frame = pd.read_csv(path, dtype=str)
    order = np.random.default_rng(0).permutation(len(frame))
    again = frame.iloc[order, [0, 1, *(2 + order)]].set_axis(frame.columns, axis=1)
    path.write_bytes("﻿".encode() + again.to_csv(index=False, sep=";").encode())
    moved = irt.read_items(tmp_path / "bank.csv")
    assert irt.link(bank, moved, error="delta").attrs["A_se"] == pytest.approx(
        irt.link(bank, bank, error="delta").attrs["A_se"], rel=1e-9
    )


# --- groups ---------------------------------------------------------------------------------------


def test_banks_know_the_groups_of_a_concurrent_calibration(tmp_path):
    """An item of which each group that saw it has its own; group c did not, and d is new."""
    bank = irt.simulate(50, 3, seed=1).truth
    ids = ["q0", "q1@a", "q1@b"]
    fit = bank.assign_coords(item_id=("items", ids)).assign(
        item_freed_group=("items", ["", "a", "b"]), group_label=("groups", ["a", "b", "c"])
    )
    y = np.ones((4, 2), dtype=int)
    y[:, 1] = -1, 1, -1, -1
    r = irt.from_array(y, item_id=["q0", "q1"], persons={"group": list("abca")})
    want = under_their_names(r, fit, "score").item_id
    for suffix in ("csv", "json"):
        path = irt.write_items(fit, tmp_path / f"bank.{suffix}")
        found = irt.read_items(path)
        assert found["group_label"].values.tolist() == ["a", "b", "c"]
        assert under_their_names(r, found, "score").item_id == want
        under_their_names(r, found, "score").read_block(0)
        fewer = under_their_names(r, found.drop_vars("group_label"), "score")
        with pytest.raises(InputError, match="'c'"):  # without the list c is as new as any
            fewer.read_block(0)
    frame = pd.read_csv(tmp_path / "bank.csv")
    assert json.loads(frame["calibrated_groups"][0]) == ["a", "b", "c"]
    assert frame["calibrated_groups"].isna().sum() == 2
    frame.loc[0, "calibrated_groups"] = "a, b"
    frame.to_csv(tmp_path / "bank.csv", index=False)
    with pytest.raises(InputError, match="calibrated_groups is 'a, b', no list of labels"):
        irt.read_items(tmp_path / "bank.csv")


def test_banks_put_together_keep_what_each_says(tmp_path):
    """Items of a bank without groups or flags have none: NaN is no label of a group or a set."""
    one = irt.simulate(50, 4, seed=1).truth
    two = irt.simulate(50, 3, seed=2).truth
    own = ["q0@s", "q1@c", "q2"]
    two = two.assign_coords(item_id=("items", own)).assign(
        item_freed_group=("items", ["s", "c", ""]),
        item_set_groups=("items", ['["a", "b"]', "", ""]),
        item_flag=("items", ["ok", "flat", "ok"]),
    )
    one = one.assign_coords(item_id=("items", ["q0", "q1", "z0", "z1"]))
    both = xr.concat(
        [one, two], "items", join="outer", coords="minimal", compat="override", data_vars="all"
    )
    both.attrs = one.attrs
    r = irt.from_array(np.ones((3, 3), int), item_id=["q0", "q1", "z0"],
                       persons={"group": list("abc")})  # fmt: skip
    want = under_their_names(r, both, "score").item_id
    assert {"q0@s", "q1@c"} < {*want}
    for suffix in ("csv", "json"):
        path = irt.write_items(both, tmp_path / f"bank.{suffix}")
        assert "nan" not in path.read_text().lower()
        found = irt.read_items(path)
        assert found["item_freed_group"].values.tolist() == ["", "", "", "", "s", "c", ""]
        assert found["item_set_groups"].values.tolist() == [*[""] * 4, '["a", "b"]', "", ""]
        assert found["item_flag"].values.tolist() == [*["ok"] * 5, "flat", "ok"]
        assert under_their_names(r, found, "score").item_id == want
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        linked = irt.link(one, both)  # by all four: none of them is a group's own
    assert linked.attrs["n_used"] == 4
    assert linked["item_freed_group"].values.tolist() == ["", "", "", "", "s", "c", ""]
    assert linked["item_flag"].values.tolist() == [*["ok"] * 5, "flat", "ok"]


@pytest.mark.parametrize("wrong", ['["a"', '"a"', "[1, 2]", "[]", "a, b"])
def test_lists_of_groups_that_are_none_are_found_when_a_bank_is_read(wrong, tmp_path):
    bank = irt.simulate(50, 2, seed=1).truth.assign_coords(item_id=("items", ["q0", "q0@s"]))
    bank = bank.assign(
        item_freed_group=("items", ["", "s"]), item_set_groups=("items", ["", wrong])
    )
    path = irt.write_items(bank, tmp_path / "bank.csv")
    said = rf"bank\.csv: item q0@s, column set_groups: {re.escape(repr(wrong))} is no list"
    with pytest.raises(InputError, match=said):
        irt.read_items(path)
    r = irt.from_array(np.ones((2, 1), int), item_id=["q0"], persons={"group": ["a", "b"]})
    with pytest.raises(InputError, match=rf"groups of its set are {re.escape(repr(wrong))};"):
        irt.score(r, bank, progress=False)


def test_freed_items_of_groups_that_were_not_calibrated_are_refused(tmp_path):
    """They would be nobody's, and everybody would have the common item."""
    bank = irt.simulate(50, 3, seed=1).truth
    ids = ["q0", "q1", "q0@s"]
    bank = bank.assign_coords(item_id=("items", ids)).assign(
        item_freed_group=("items", ["", "", "s"]),
        item_set_groups=("items", ["", "", '["a", "b"]']),
        group_label=("groups", ["a", "b", "c"]),
    )
    r = irt.from_array(np.ones((3, 2), int), item_id=ids[:2], persons={"group": list("abc")})
    path = irt.write_items(bank, tmp_path / "bank.csv")
    assert under_their_names(r, irt.read_items(path), "score").item_id == ("q0", "q1", "q0@s")
    frame = pd.read_csv(path, keep_default_na=False)
    strange = frame.assign(set_groups=["", "", '["XX", "YY"]'])
    for wrong, said in (
        (frame.drop(columns="set_groups"), "'q0@s' of 's'"),
        (strange, "'q0@s' of 'XX', 'YY'"),
    ):
        wrong.to_csv(path, index=False)
        items = irt.read_items(path)
        with pytest.raises(InputError, match=rf"{said}; the groups were 'a', 'b', 'c'"):
            irt.score(r, items, progress=False)
    one = frame.assign(set_groups=["", "", '["a", "XX"]'])  # one of them is known
    one.to_csv(path, index=False)
    assert under_their_names(r, irt.read_items(path), "score").item_id == ("q0", "q1", "q0@s")
    # who names no groups that were calibrated says of any group what is its own
    strange.drop(columns="calibrated_groups").to_csv(path, index=False)
    assert under_their_names(r, irt.read_items(path), "score").item_id == ("q0", "q1", "q0@s")
