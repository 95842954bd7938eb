"""Item banks: files that come back as they were, and errors that name file, item and column."""

from __future__ import annotations

import csv
import io
import json
import os

import numpy as np
import pytest
import xarray as xr
from items import intercept_bank

import irt_dask as irt
from irt_dask.banks.saved import netcdf, read_bank
from irt_dask.curves import MODELS
from irt_dask.errors import InputError, StoreError

NAMES = ["item_discrimination", "item_difficulty", "item_intercept"]


def of_odd_names(n=50):
    rng = np.random.default_rng(0)
    return intercept_bank(
        np.exp(rng.normal(size=n)), 3 * rng.normal(size=n),
        item_discrimination_se=rng.uniform(0, 1, n),
        item_difficulty_se=rng.uniform(0, 1, n),
        item_id=("001", "NA", "null", 'a,"b"', "é 🙂", *(f"i{j}" for j in range(5, n))),
    )  # fmt: skip


@pytest.mark.parametrize("ext", ["csv", "json"])
def test_guessing_comes_back(tmp_path, ext):
    items = of_odd_names().assign_attrs(model="3pl")
    c = np.linspace(0.0, 0.4, 50)
    items = items.assign(item_guessing=("items", c), item_guessing_se=("items", c / 10))
    again = irt.read_items(irt.write_items(items, tmp_path / f"b.{ext}"))
    np.testing.assert_array_equal(again["item_guessing"], c)
    np.testing.assert_array_equal(again["item_guessing_se"], c / 10)
    assert again.attrs["model"] == "3pl"


@pytest.mark.parametrize("ext", ["csv", "json"])
def test_round_trip_to_the_bit(tmp_path, ext):
    items = of_odd_names()
    path = irt.write_items(items, tmp_path / f"b.{ext}")
    again = irt.read_items(str(path))
    for name in [*NAMES, "item_discrimination_se", "item_difficulty_se"]:
        assert again[name].values.tobytes() == items[name].values.tobytes()
    assert list(again["item_id"].values) == list(items["item_id"].values)
    assert again.attrs["model"] == "2pl"
    assert [p.name for p in tmp_path.iterdir()] == [f"b.{ext}"]


def test_files_are_plain(tmp_path):
    items = of_odd_names(6)
    irt.write_items(items, tmp_path / "b.csv")
    with open(tmp_path / "b.csv", newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    assert list(rows[0]) == ["item", "model", "a", "b", "c", "d", "se_a", "se_b"]
    assert [r["item"] for r in rows] == list(items["item_id"].values)
    assert [float(r["a"]) for r in rows] == items["item_discrimination"].values.tolist()
    assert {float(r["c"]) for r in rows} == {0.0}
    irt.write_items(items, tmp_path / "b.json")
    records = json.loads((tmp_path / "b.json").read_text())
    assert [r["b"] for r in records] == items["item_difficulty"].values.tolist()


def test_fits_without_discriminations_and_posterior_sds(tmp_path):
    y = np.random.default_rng(1).integers(0, 2, (60, 4))
    fit = irt.fit_spectral(y)
    again = irt.read_items(irt.write_items(fit, tmp_path / "s.csv"))
    np.testing.assert_array_equal(again["item_discrimination"], 1.0)
    np.testing.assert_array_equal(again["item_difficulty"], fit["item_difficulty"])
    assert again.attrs["model"] == "1pl"
    bayes = of_odd_names(6).rename({"item_discrimination_se": "item_discrimination_sd"})
    again = irt.read_items(irt.write_items(bayes, tmp_path / "b.json"))
    np.testing.assert_array_equal(again["item_discrimination_se"], bayes["item_discrimination_sd"])


def test_bank_scores_like_the_fit(tmp_path):
    r = irt.simulate(100, 6, seed=1)
    truth = r.truth.drop_vars("person_ability")
    again = irt.read_items(irt.write_items(truth, tmp_path / "t.csv"))
    np.testing.assert_array_equal(
        irt.score(r, again)["person_ability"], irt.score(r, truth)["person_ability"]
    )


def write(tmp_path, text, name="b.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_banks_made_by_hand(tmp_path):
    b = irt.read_items(write(tmp_path, "item,a,b\nx,2,0.5\n007,1,-1\n"))
    assert list(b["item_id"].values) == ["x", "007"]
    np.testing.assert_array_equal(b["item_intercept"], [-1.0, 1.0])
    b = irt.read_items(write(tmp_path, "d,item,a\n-1,x,2\n"))
    assert b["item_difficulty"].item() == 0.5
    b = irt.read_items(write(tmp_path, "\ufeffitem,a,b,remark\r\nx,2,0.5,hard\r\n"))
    assert b["item_discrimination"].item() == 2.0
    b = irt.read_items(write(tmp_path, '[{"item": 1, "a": 2, "b": 0.5}]', "b.json"))
    assert list(b["item_id"].values) == ["1"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("item,b\nx,1\n", "no column a; it has item, b"),
        ("item,a\nx,1\n", r"no column b \(or d\)"),
        ("a,b\n1,1\n", "no column item"),
        ("item,a,b\n", "lists no item"),
        ("", "cannot be read"),
        ("item,a,b\nx,0,1\n", r"item x has a = 0\.0; it must not be 0"),
        ("item,a,b\nx,1,?\n", "item x, column b: '\\?' is not a finite number"),
        ("item,a,b\nx,1,\n", "item x, column b: .*not a finite number"),
        ("item,a,b\nx,inf,0\n", "item x, column a: .*not a finite number"),
        ("item,a,b,d\nx,1,1,1\n", "d is the intercept and must be -a b"),
        ("item,a,b,c\nx,1,1,1.2\n", r"item x has discrimination 1, .* parameter 1\.2"),
        ("item,model,a,b\nx,5pl,1,1\n", f"item x has model .5pl.; known are {', '.join(MODELS)}"),
        ("item,a,b\nx,1,1\ny,1,1\nx,1,2\n", "listed more than once: x"),
        ("item,model,a,d\nx,2pl,1,0\ny,3pl,1,0\n", "item y, column c: nothing .* model 3pl has"),
        ("item,model,a,d,c\nx,2pl,1,0,.2\n", "column c: 0.2 .* model 2pl has no guessing"),
        ("item,a,b,C\nx,1,1,.2\n", "the column 'C' would not be read; call it 'c'"),
        ("item,a,b,guessing\nx,1,1,.2\n", "'guessing' would not be read; call it 'c'"),
        ("item,a,d,g,u\nx,1,1,.2,1\n", "the column 'g' would not be read; call it 'c'"),
        (",a,b\nx,1,1\n", "no column item; .*call the column without a name item"),
        ("item,a,b,SE_a\nx,1,1,.2\n", "'SE_a' would not be read; call it 'se_a'"),
        ("item,Model,a,b\nx,3pl,1,1\n", "'Model' would not be read; call it 'model'"),
    ],
)
def test_bad_banks_name_file_item_and_column(tmp_path, text, message):
    with pytest.raises(InputError, match=rf"(?s)b\.csv.*{message}"):
        irt.read_items(write(tmp_path, text))


def test_items_with_slopes_of_their_own_are_no_1pl(tmp_path):
    text = "item,model,a,d,note\nx,1pl,1,0,new\ny,1pl,{},0,old\n"
    for slope, model in ((1, "1pl"), (2, "2pl")):
        assert irt.read_items(write(tmp_path, text.format(slope))).attrs["model"] == model


ODD = ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "-x", "\tq", "\rq", "\nq", "'=1", "''@"]
PLAIN = ["-5", "+1.5e3", "q=1", "'q", "1", "a-b", "-.5", "'"]


def test_a_spreadsheet_runs_no_item(tmp_path):
    """What it would run has an apostrophe before it in the file, and comes back without."""
    ids = [*ODD, *PLAIN]
    n = len(ids)
    items = intercept_bank(np.ones(n), np.zeros(n), item_id=tuple(ids))
    path = irt.write_items(items, tmp_path / "b.csv")
    with open(path, newline="", encoding="utf-8") as f:
        written = [row["item"] for row in csv.DictReader(f)]
    assert written == [*(f"'{name}" for name in ODD), *PLAIN]
    assert list(irt.read_items(path)["item_id"].values) == ids
    again = irt.write_items(irt.read_items(path), tmp_path / "c.csv")
    assert again.read_bytes() == path.read_bytes()
    assert list(irt.read_items(write(tmp_path, "item,a,b\n=1,1,0\n"))["item_id"].values) == ["=1"]


def test_items_that_look_the_same_are_the_same(tmp_path):
    items = irt.read_items(write(tmp_path, "item,a,b\nu\u0308,1,0\n"))
    assert list(items["item_id"].values) == ["\u00fc"]
    with pytest.raises(InputError, match="listed more than once: \u00fc"):
        irt.read_items(write(tmp_path, "item,a,b\nu\u0308,1,0\n\u00fc,1,0\n"))


@pytest.mark.parametrize("depth", [5, 100_000])
def test_nested_json(tmp_path, depth):
    with pytest.raises(InputError, match=r"b\.json.*(nested too deeply|list of objects)"):
        irt.read_items(write(tmp_path, "[" * depth + "]" * depth, "b.json"))


@pytest.mark.parametrize("text", ["{", "[1, 2]", '{"item": "x", "a": 1, "b": 0}', '"x"', ""])
def test_bad_json_names_the_file(tmp_path, text):
    with pytest.raises(InputError, match=r"b\.json"):
        irt.read_items(write(tmp_path, text, "b.json"))


@pytest.fixture(scope="module")
def fit():
    return netcdf(irt.fit_marginal(irt.simulate(50, 3, seed=1)))


def test_a_kept_fit_has_the_bytes_that_xarray_writes():
    fit = irt.fit_marginal(irt.simulate(50, 3, seed=1))
    assert netcdf(fit) == bytes(fit.to_netcdf(engine="scipy"))
    large = fit.assign(count=("items", [-(2**31), 2**31 - 1, -(2**63)]))
    kept = xr.load_dataset(io.BytesIO(netcdf(large)), engine="scipy")
    assert kept["count"].dtype == float  # netCDF 3 has integers to 2^31 alone
    np.testing.assert_array_equal(kept["count"], large["count"].values.astype(float))


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data[:20],
        lambda data: data[:-8],
        lambda data: data.replace(b"item_difficulty", b"item_diffixulty"),
        lambda data: data.replace(b"item_difficulty", b"item_diff\xffculty"),
        lambda data: data.replace(b"items", b"itemz"),
        lambda data: data.replace(b"item_id", b"item_ib"),
        lambda data: data.replace(b"flat", b"f\x0eat"),
        lambda data: b"",
    ],
)
def test_a_damaged_fit_is_an_error_that_names_it(tmp_path, fit, harm):
    file = tmp_path / "fit.nc"
    file.write_bytes(fit)
    assert read_bank(file).sizes["items"] == 3
    file.write_bytes(harm(fit))
    with pytest.raises(InputError, match=r"fit\.nc is not a fit that was saved, or is damaged: "):
        read_bank(file)


def test_a_fit_that_is_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fit.nc")
    with pytest.raises(StoreError, match=r"fit\.nc is no file, but a folder, a pipe or a device"):
        read_bank(tmp_path / "fit.nc")


def test_paths(tmp_path):
    with pytest.raises(InputError, match=r"there is no item bank .*none\.csv"):
        irt.read_items(tmp_path / "none.csv")
    for call in (irt.read_items, lambda p: irt.write_items(of_odd_names(6), p)):
        with pytest.raises(InputError, match=r"must end in \.csv or \.json"):
            call(tmp_path / "bank.txt")


@pytest.mark.parametrize(
    "text, name",
    [
        ("item,a,b\n,1,0\n", "b.csv"),
        ('[{"item": null, "a": 1, "b": 0}]', "b.json"),
        ("item,a,b,se_a\nx,1,0,foo\n", "b.csv"),
    ],
    ids=["empty id", "null id", "text as standard error"],
)
def test_items_without_name_and_bad_errors_are_refused(tmp_path, text, name):
    with pytest.raises(InputError, match=name):
        irt.read_items(write(tmp_path, text, name))


def test_mirts_table_of_a_row_an_item(tmp_path):
    text = '"","a1","d","g","u","d1","d2"\n"q1",1.5,0.3,0.2,1,NA,NA\n"q2",0.8,NA,NA,NA,1,-1\n'
    path = write(tmp_path, text)
    bank = irt.read_items(path, convention="mirt", ability=(0.0, 1.0))
    assert bank["item_id"].values.tolist() == ["q1", "q2"]
    np.testing.assert_allclose(bank["item_discrimination"], [1.5, 0.8])
    np.testing.assert_allclose(bank["item_guessing"][0], 0.2)
    np.testing.assert_allclose(bank["item_step_intercept"], [[0.3, np.nan], [1, -1]])
    with pytest.raises(InputError, match=r"columns of R mirt .*convention='mirt'"):
        irt.read_items(path)
    with pytest.raises(InputError, match=r"give ability="):
        irt.read_items(path, convention="mirt")
    with pytest.raises(InputError, match="'a9b' is no parameter"):
        irt.read_items(write(tmp_path, "item,a1,a9b\nx,1,1\n"), convention="mirt", ability=(0, 1))
