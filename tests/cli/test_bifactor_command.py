"""irt-dask bifactor: from a store and blocks to items, abilities and a fit that scores others."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import irt_dask as irt
from irt_dask.banks.saved import read_bank
from irt_dask.cli.main import cli
from irt_dask.report import blocks


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two stores of persons on the same twelve items, and the blocks of these."""
    folder, rng = tmp_path_factory.mktemp("bifactor"), np.random.default_rng(1)
    block = np.repeat([0, 1, 2], 4)
    for name, n in (("first", 300), ("second", 40)):
        logit = rng.normal(size=(n, 1)) + 0.9 * rng.normal(size=(n, 3))[:, block]
        y = (rng.random(logit.shape) < 1.0 / (1.0 + np.exp(-logit))).astype(int)
        table = pd.DataFrame(y, columns=[f"q{j}" for j in range(12)])
        table.rename_axis("person").to_csv(folder / f"{name}.csv")
        irt.ingest(folder / f"{name}.csv", folder / name, progress=False)
    names = np.array(["maths", "code", "law"])[block]
    pd.DataFrame({"item": table.columns, "block": names}).to_csv(folder / "t.csv", index=False)
    return folder


#: Numbers of a table as pandas reads them, some versions of which do not to the last bit.
equal = partial(np.testing.assert_allclose, rtol=1e-15, atol=1e-15)


def typed(*words, code=0):
    ran = CliRunner().invoke(cli, [str(w) for w in words])
    assert (ran.exit_code == 0) == (code == 0), ran.output
    return ran


def test_the_shell_says_what_python_says(files, tmp_path):
    store, table, fit_file = files / "first", files / "t.csv", tmp_path / "fit.nc"
    items, scores = tmp_path / "items.csv", tmp_path / "scores.csv"
    ran = typed("bifactor", store, "--item-table", table, "--out", items, "--scores", scores,
                "--fit", fit_file, "--json", "--quiet")  # fmt: skip
    blocks = dict(zip(*pd.read_csv(table)[["item", "block"]].T.values, strict=True))
    fit = irt.fit_bifactor(irt.open_responses(store), item_blocks=blocks)
    found = irt.score(irt.open_responses(store), fit)

    said = json.loads(ran.output)
    assert [b["effect_sd"] for b in said["blocks"]] == fit["block_effect_sd"].values.tolist()
    assert [b["effect_sd_se"] for b in said["blocks"]] == fit["block_effect_sd_se"].values.tolist()
    assert said["reliability"]["general"] == pytest.approx(found.attrs["reliability"][0])
    read = pd.read_csv(items)
    assert read["block"].tolist() == list(blocks.values())
    equal(read["a"], fit["item_loading"][:, 0])
    equal(read["s"], fit["item_loading"][:, 1:].sum("latent_dims"))
    equal(read["s_se"], fit["item_loading_se"][:, 1:].sum("latent_dims"))
    equal(read["d_se"], fit["item_intercept_se"])
    read = pd.read_csv(scores)
    equal(read["ability_general"], found["person_ability"][:, 0])
    k = fit["domain"].values.tolist().index("law")
    equal(read["sd_law"], found["person_ability_sd"][:, k])

    other = tmp_path / "other.csv"
    ran = typed("bifactor", files / "second", "--known", fit_file, "--scores", other,
                "--item-draws", 0)  # fmt: skip
    want = irt.score(irt.open_responses(files / "second"), fit, n_item_draws=0)
    equal(pd.read_csv(other)["ability_code"], want["person_ability"][:, 2])
    assert "Abilities of blocks" in ran.output
    assert "effect sd se" in ran.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "items.csv"], "give --item-table"),
        (["--known", "fit.nc", "--item-table", "t.csv", "--scores", "s.csv"], "give --item-table"),
        (["--known", "fit.nc", "--out", "items.csv"], "give --scores, not --out"),
        (["--known", "fit.nc", "--scores", "s.csv", "--seed", "3"], "--seed is of a fit"),
        (["--known", "fit.nc", "--scores", "s.csv", "--prior", "none"], "--prior is of a fit"),
        (["--item-table", "t.csv", "--out", "i.csv", "--item-draws", "3"], "give --scores"),
        (["--item-table", "t.csv"], "nothing would be kept"),
        (["--item-table", "t.csv", "--out", "items.txt"], "must end in .csv"),
        (["--item-table", "t.csv", "--out", "t.csv"], "the command reads this file"),
        (["--item-table", "n.csv", "--out", "items.csv"], "makes nothing of: length"),
        (["--item-table", "m.csv", "--out", "items.csv"], "--item-table"),
    ],
)
def test_what_is_refused(files, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    table = pd.read_csv(files / "t.csv")
    table.to_csv("t.csv", index=False)
    table.assign(length=1.0).to_csv("n.csv", index=False)
    table.iloc[1:].to_csv("m.csv", index=False)
    ran = CliRunner().invoke(cli, ["bifactor", str(files / "first"), *words])
    assert isinstance(ran.exception, irt.InputError)
    assert message in str(ran.exception)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.csv", "n.csv", "t.csv"]


def test_a_fit_of_another_kind_is_named(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    typed("calibrate", files / "first", "--method", "marginal", "--out", "bank.csv", "--fit",
          "other.nc", "--quiet")  # fmt: skip
    ran = typed("bifactor", files / "second", "--known", "other.nc", "--scores", "s.csv", code=1)
    assert "is no fit of 'irt-dask bifactor --fit'" in str(ran.exception)


@pytest.mark.slow
def test_questions_are_drawn_and_totals_predicted_by_its_fit(files, tmp_path):
    """From answers to two of four questions of each block to the share right of all."""
    fit, drawn, out = tmp_path / "fit.nc", tmp_path / "drawn.csv", tmp_path / "totals.csv"
    typed("bifactor", files / "first", "--item-table", files / "t.csv", "--out",
          tmp_path / "items.csv", "--fit", fit, "--quiet")  # fmt: skip
    strata = tmp_path / "strata.csv"
    pd.read_csv(files / "t.csv").rename(columns={"block": "stratum"}).to_csv(strata, index=False)
    typed("choose", fit, 6, "--strata", strata, "--out", drawn)
    asked = pd.read_csv(drawn).query("selected == 1")["item"].tolist()
    answers = tmp_path / "answers.csv"
    pd.read_csv(files / "second.csv")[["person", *asked]].to_csv(answers, index=False)
    typed("predict", answers, fit, "--questions", drawn, "--out", out, "--quiet")
    items = read_bank(fit)
    chosen = irt.choose_items(items, 6, method="random", strata=items["item_stratum"])
    with pytest.warns(irt.IrtDaskWarning, match="6 questions were drawn"):
        found = irt.predict_total(
            pd.read_csv(answers).set_index("person"), items, inclusion_probability=chosen
        )
    read = pd.read_csv(out)
    equal(read["total"], found["person_total"])
    equal(read["total_design_se"], found["person_total_design_se"])
    ran = typed("choose", fit, 6, "--method", "cluster", "--out", tmp_path / "c.csv", code=1)
    assert "one ability" in str(ran.exception)


def test_a_page_of_the_fit_has_its_blocks(files, tmp_path):
    """An item by itself has no slope on a block's ability."""
    table, fit, page = tmp_path / "t.csv", tmp_path / "fit.nc", tmp_path / "page.html"
    of_items = pd.read_csv(files / "t.csv")
    of_items.loc[0, "block"] = "alone"
    of_items.to_csv(table, index=False)
    typed("bifactor", files / "first", "--item-table", table, "--out", tmp_path / "items.csv",
          "--fit", fit, "--quiet")  # fmt: skip
    typed("report", fit, "--store", files / "first", "--out", page)
    text, items = page.read_text(), pd.read_csv(tmp_path / "items.csv")
    known = read_bank(fit)
    found = blocks.table(known)
    assert [row[:2] for row in found.rows] == [["maths", "3"], ["code", "4"], ["law", "4"]]
    sd = [float(row[2].split(" ± ")[0]) for row in found.rows]
    np.testing.assert_allclose(sd, known["block_effect_sd"], atol=5.1e-4)
    assert all(row[2] in text for row in found.rows)
    column = next(c for c in blocks.columns(known) if c.name == "s, of the block")
    assert np.isnan(column.values[0])
    equal(column.values[1:], items["s"][1:])
    assert column.cells()[1] in text
    assert "Bradlow, Wainer, &amp; Wang, 1999" in text
    ran = typed("report", fit, "--store", files / "first", "--tests", "--out", page, code=1)
    assert "--tests: they are of items of one ability" in str(ran.exception)
