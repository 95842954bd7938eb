"""Tests of items and persons in runs, and results that their page shows beside."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner

import irt_dask as irt
from irt_dask.banks.saved import read_bank, write_result
from irt_dask.cli.main import cli
from irt_dask.errors import InputError, RunError
from irt_dask.workflow import RunConfig, run

pytestmark = pytest.mark.usefixtures("without_pictures")

N, ITEMS = 600, [f"q{j}" for j in range(8)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A wide file of two groups, for one of whom q3 is much harder."""
    folder = tmp_path_factory.mktemp("tested")
    rng = np.random.default_rng(5)
    girl = np.arange(N) % 2 == 1
    logit = (
        rng.normal(size=N)[:, None]
        - np.linspace(-1.2, 1.2, 8)
        - 1.3 * np.outer(girl, np.arange(8) == 3)
    )
    y = (rng.random((N, 8)) < 1 / (1 + np.exp(-logit))).astype(int)
    frame = pd.DataFrame(y, columns=ITEMS)
    frame.insert(0, "sex", np.where(girl, "girls", "boys"))
    frame.insert(0, "w", np.arange(N) % 3 + 1)
    frame.rename_axis("person").to_csv(folder / "d.csv")
    return folder


def configured(folder, name, tests, columns=None, **sections):
    columns = {"person": "person", "items": ITEMS, "group": "sex"} | (columns or {})
    data = {"source": str(folder / "d.csv"), "columns": columns, "rows_per_block": 64}
    sections = {"calibrate": {"method": "marginal"}, "tests": tests} | sections
    return RunConfig.model_validate({"directory": str(folder / name), "data": data, **sections})


@pytest.fixture(scope="module")
def finished(folder, without_pictures):
    said = []
    tests = {"item_fit": True, "person_fit": True, "dif_reference": "boys"}
    return run(configured(folder, "r", tests), say=said.append), said


def page_data(path):
    text = (
        path.read_text(encoding="utf-8").partition('id="item-data">')[2].partition("</script>")[0]
    )
    return json.loads(text)


def test_files_are_what_the_functions_return(finished):
    path, said = finished
    r, fit = irt.open_responses(path / "responses"), read_bank(path / "marginal.nc")
    assert "tests ..." in said
    for name, want in (
        ("item_fit", irt.item_fit(r, fit)),
        ("curves", irt.item_curves(r, fit)),
        ("dif", irt.dif(r, fit, reference="boys", focal=None, seed=1)),
    ):
        found = xr.load_dataset(path / f"{name}.nc", engine="scipy")
        for variable in want.data_vars:
            np.testing.assert_array_equal(found[variable].values, want[variable].values)
    persons = xr.load_dataset(path / "person_fit.nc", engine="scipy")
    assert set(persons.dims) == {"lz"}  # nothing of single persons
    assert persons.attrs["share_below_5"] == irt.person_fit(r, fit).attrs["share_below_5"]
    table = pd.read_csv(path / "dif.csv").set_index("item")
    assert table["focal"].unique().tolist() == ["girls"]
    assert table.loc["q3", "class"] == "C"
    assert pd.read_csv(path / "item_fit.csv")["item"].tolist() == ITEMS
    stage = json.loads((path / "run.json").read_text())["stages"]["tests"]
    assert set(stage["files"]) == {
        "item_fit.nc", "item_fit.csv", "curves.nc", "person_fit.nc", "dif.nc", "dif.csv"
    }  # fmt: skip


def test_a_run_says_why_there_is_no_s_x2(folder):
    """A person without an answer to one item; all others have answered everything."""
    frame = pd.read_csv(folder / "d.csv", dtype=str)
    frame.loc[3, "q5"] = ""
    frame.to_csv(folder / "one_less.csv", index=False)
    config = configured(folder, "s", {"item_fit": True})
    config = config.model_copy(
        update={"data": config.data.model_copy(update={"source": str(folder / "one_less.csv")})}
    )
    said = []
    path = run(config, say=said.append)
    told = "item_fit: S-X2 was not computed: 1 persons did not answer every item; the test of such"
    assert sum(told in line for line in said) == 1
    assert told in " ".join((path / "report.html").read_text(encoding="utf-8").split())
    table = pd.read_csv(path / "item_fit.csv")
    assert "chi2_p_value" in table
    assert "sx2" not in table


def test_the_page_names_the_item_and_the_statistics(finished):
    path, _ = finished
    text = (path / "report.html").read_text(encoding="utf-8")
    assert "favours_a_group (DIF: class C, favours boys)" in text
    assert "Persons by l_z*" in text
    assert 'download="person_fit.csv"' in text
    assert "<b>Item fit.</b> Of 8 items" in text
    assert "<b>DIF.</b> girls: 1 of 8 items of" in text
    assert text.count("right of 0 an item is easier for girls") == 1
    assert "Infit and outfit of 8 items" in text
    assert re.search(r"Of (600|5\d\d) persons [0-9.]+% have a pattern", text)
    data = page_data(path / "report.html")
    flags = dict(zip(ITEMS, data["flags"], strict=True))
    assert ["favours_a_group", ["DIF: class C, favours boys"]] in flags["q3"]
    assert data["words"]["favours_a_group"][0].startswith("ETS class B or C")
    assert [r["name"] for r in data["results"]] == ["Item fit", "DIF"]
    assert [g["label"] for g in data["observed"]["groups"]] == ["boys", "girls"]


def test_results_of_commands_are_shown(finished, folder, monkeypatch):
    """Options of raw answers, whose right ones were scored, in the page of the run."""
    path, _ = finished
    monkeypatch.chdir(folder)
    scored = pd.read_csv("d.csv")
    letters = np.where(scored[ITEMS] == 1, "A", np.where(np.arange(N)[:, None] % 2, "B", "C"))
    pd.DataFrame(letters, columns=ITEMS).rename_axis("person").to_csv("raw.csv")
    sizes = [4] * 7 + [3]
    pd.DataFrame({"item": ITEMS, "key": "A", "options": sizes}).to_csv("key.csv", index=False)
    typed = lambda *words: CliRunner().invoke(cli, list(map(str, words)))  # noqa: E731
    out = typed("options", "raw.csv", "key.csv", "--options", "A,B,C,D", "--out", "o.nc")
    assert out.exit_code == 0, out.output
    shown = typed("report", "r", "--results", "o.nc")
    assert shown.exit_code == 0, shown.output
    data = page_data(path / "report.html")
    (options,) = data["options"]
    assert [r["name"] for r in data["results"]] == ["Item fit", "DIF"]
    of = options["items"][0]
    assert (of["option"], of["key"]) == (["A", "B", "C", "D"], 0)
    assert options["items"][7]["option"] == ["A", "B", "C"]  # it has no fourth
    counts = [(letters[:, 0] == x).sum() for x in "ABCD"]
    assert [row[0] for row in of["columns"]] == counts
    np.testing.assert_allclose(np.array(of["curve"]).sum(axis=0), 1000, atol=2)
    # an item of the wrong key is flagged by it
    key = pd.read_csv("key.csv")
    key.loc[2, "key"] = "B"
    key.to_csv("wrong.csv", index=False)
    typed("options", "raw.csv", "wrong.csv", "--options", "A,B,C,D", "--out", "w.nc")
    assert typed("report", "r", "--results", "w.nc").exit_code == 0
    flags = dict(zip(ITEMS, page_data(path / "report.html")["flags"], strict=True))
    assert "better_option" in dict(flags["q2"])
    fit = irt.fit_marginal(irt.simulate(100, 3, seed=1))
    write_result(fit, folder / "other.nc")
    for given, said in (
        ("other.nc", "it has none of the items of r"),
        ("d.csv", "give what 'irt-dask dif', 'fit' or 'options' wrote"),
        ("gone.nc", "there is no file gone.nc"),
    ):
        ran = typed("report", "r", "--results", given)
        assert isinstance(ran.exception, InputError)
        assert said in str(ran.exception)
    (folder / "empty").mkdir()
    assert "has no items.csv" in str(typed("report", "empty", "--results", "o.nc").exception)


def test_commands_keep_what_pages_show(finished, folder, monkeypatch):
    path, _ = finished
    monkeypatch.chdir(folder)
    typed = lambda *words: CliRunner().invoke(cli, list(map(str, words)))  # noqa: E731
    store, bank = path / "responses", path / "marginal.nc"
    assert typed("dif", store, bank, "--reference", "boys", "--out", "dif.nc").exit_code == 0
    assert typed("fit", store, bank, "--out", "fit.nc").exit_code == 0
    kept = bank.read_bytes()
    assert "reads this file" in str(typed("dif", store, bank, "--reference", "boys", "--out",
                                          bank).exception)  # fmt: skip
    assert bank.read_bytes() == kept
    ran = typed("report", bank, "--out", "p.html", "--results", "dif.nc", "--results", "fit.nc")
    assert ran.exit_code == 0, ran.output
    data = page_data(folder / "p.html")
    assert [r["name"] for r in data["results"]] == ["DIF against boys", "Item fit"]
    assert ["favours_a_group", ["DIF against boys: class C, favours boys"]] in data["flags"][3]


def test_a_run_without_tests_is_as_before(folder):
    """So that runs that were begun by former versions go on."""
    plain = configured(folder, "p", {})
    assert "tests" not in plain.computed()
    assert "tests" in configured(folder, "p", {"item_fit": True}).computed()
    with pytest.raises(InputError, match="dif_anchors belongs to dif_reference"):
        configured_text(folder, 'dif_anchors = "iterate"')


def configured_text(folder, line):
    from irt_dask.workflow import read_config

    (folder / "p.toml").write_text(f'[data]\nsource = "d.csv"\n[tests]\n{line}\n')
    return read_config(folder / "p.toml")


def test_weights_and_wrong_groups_are_said(folder):
    said = []
    tests = {"item_fit": True, "dif_reference": "boys"}
    path = run(configured(folder, "w", tests, {"weight": "w"}), say=said.append)
    assert any(
        "the persons have sampling weights, which these tests do not take" in s for s in said
    )
    assert not (path / "item_fit.nc").exists()
    assert xr.load_dataset(path / "dif.nc", engine="scipy").attrs["weight_kind"] == "sampling"
    with pytest.raises(InputError, match="must be one of two groups or more"):
        run(configured(folder, "g", {"dif_reference": "men"}))
    assert not (folder / "g" / "marginal.nc").exists()
    with pytest.raises(RunError):  # another configuration
        run(configured(folder, "w", {"item_fit": True}, {"weight": "w"}))


def test_groups_are_told_apart_unless_it_is_said(folder, finished):
    tests = {"item_fit": True}
    usual = configured(folder, "n", tests)
    assert "groups" not in usual.computed()["tests"]  # runs of former versions go on
    one = configured(folder, "n", tests | {"groups": False})
    assert one.computed()["tests"]["groups"] is False
    assert one.digest() != usual.digest()
    path = run(one)
    there = xr.load_dataset(path / "item_fit.nc", engine="scipy")
    assert "group_label" not in there
    assert xr.load_dataset(path / "curves.nc", engine="scipy").sizes["groups"] == 1
    assert "group_label" in xr.load_dataset(finished[0] / "item_fit.nc", engine="scipy")
    with pytest.raises(InputError, match="groups belongs to item_fit"):
        configured_text(folder, "groups = false")
