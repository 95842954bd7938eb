"""What q3, curves, lord, score-table and convert say: as Python does."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from parts import cells
from pyarrow import csv

import irt_dask as irt
from irt_dask.banks.saved import read_bank, write_result

N, K = 500, [2, 4, 2, 4, 2, 3]


def read(path):
    """A file of numbers, each the one that was written."""
    return csv.read_csv(path).to_pandas()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Items of two to four categories, two of which are answered alike by many, in two groups."""
    folder = tmp_path_factory.mktemp("made")
    ids = [f"q{j}" for j in range(6)]
    simulated = irt.simulate(N, 6, model="gpcm", categories=K, seed=3)
    y = cells(simulated)
    y[::2, 2] = y[::2, 0]
    frame = pd.DataFrame(y, columns=ids)
    frame.insert(0, "person", [f"p{i}" for i in range(N)])
    frame["group"] = np.where(np.arange(N) % 2, "b", "a")
    frame.to_csv(folder / "y.csv", index=False)
    columns = {"group": "group"}
    r = irt.ingest(
        folder / "y.csv", folder / "s", columns=columns, categories=dict(zip(ids, K, strict=True))
    )
    fit = irt.fit_marginal(r, model="2pl+gpcm", groups=False)
    write_result(fit, folder / "fit.nc")
    for g in ("a", "b"):
        part = frame[frame["group"] == g].drop(columns="group")
        part.to_csv(folder / f"{g}.csv", index=False)
        one = irt.ingest(folder / f"{g}.csv", folder / f"{g}.store",
                         categories=dict(zip(ids, K, strict=True)))  # fmt: skip
        write_result(irt.fit_marginal(one, model="2pl+gpcm"), folder / f"{g}.nc")
    return folder


def test_q3(made, typed):
    options = ("--largest", "4", "--least", "20", "--ability", "0.1,1.2", "--quiet")
    said = json.loads(typed("q3", made / "s", made / "fit.nc", *options, "--out", "q3.csv",
                            "--json").out)  # fmt: skip
    r, fit = irt.open_responses(made / "s"), read_bank(made / "fit.nc")
    pairs = irt.residual_correlations(r, fit, largest=4, least=20, ability=(0.1, 1.2))
    table = read("q3.csv")
    assert list(table) == ["first", "second", "q3", "q3_adjusted", "n_persons"]
    for name in table:
        assert table[name].tolist() == pairs[f"pair_{name}"].values.tolist()
    assert {*table.loc[0, ["first", "second"]]} == {"q0", "q2"}
    assert said["mean_q3"] == pairs.attrs["mean_q3"]
    assert [row["q3"] for row in said["pairs"]] == table["q3"].tolist()
    text = typed("q3", made / "s", made / "fit.nc", *options, "--out", "q3.nc").out
    assert "Pairs of items, the largest correlations first:" in text
    xr.testing.assert_identical(xr.load_dataset("q3.nc")["pair_q3"], pairs["pair_q3"].load())
    told = typed("q3", made / "s", made / "fit.nc", "--least", "501", code=1).err
    assert "of at least --least 501 persons" in told


@pytest.mark.slow
def test_curves_with_replicates(made, typed):
    args = ("curves", made / "s", made / "fit.nc", "--replicates", "19", "--seed", "4", "--quiet")
    said = json.loads(typed(*args, "--out", "curves.csv", "--json").out)
    r, fit = irt.open_responses(made / "s"), read_bank(made / "fit.nc")
    want = irt.item_curves(r, fit, n_replicates=19, seed=4)
    table = read("curves.csv")
    assert table["item"].tolist() == [f"q{j}" for j in range(6) for _ in "ab"]
    assert table["group"].tolist() == ["a", "b"] * 6
    for name in ("rmsd", "md", "rmsd_expected", "rmsd_p_value"):
        assert table[name].tolist() == want[f"group_item_{name}"].values.T.ravel().tolist()
    assert [g["ability_mean"] for g in said["groups"]] == want["group_mean"].values.tolist()
    assert (said["n_persons"], said["n_replicates"], len(said["items"])) == (N, 19, 12)
    args = (*args[:5], "--no-groups", "--refit", "2pl+gpcm", "--out", "refit.csv")
    assert "too large" not in typed(*args).err

    def refit(r):
        return irt.fit_marginal(r, model="2pl+gpcm", groups=False, standard_errors=False)

    want = irt.item_curves(r, fit, groups=False, n_replicates=19, refit=refit)
    p = want["group_item_rmsd_p_value"].values
    assert read("refit.csv")["rmsd_p_value"].tolist() == p[0].tolist()
    assert "say --refit MODEL" in typed(*args[:5], "--no-groups").err


def test_curves(made, typed):
    r, fit = irt.open_responses(made / "s"), read_bank(made / "fit.nc")
    args = ("curves", made / "s", made / "fit.nc", "--no-groups", "--out", "all.csv")
    told = typed(*args, "--refit", "2pl", code=2).err
    assert "--refit is for replicates: say --replicates N as well" in told
    told = typed(*args, "--seed", "0", code=2).err
    assert "--seed is for replicates: say --replicates N as well" in told
    assert "Items, the farthest first:" in typed(*args).out
    table = read("all.csv")
    assert list(table) == ["item", "group", "rmsd", "md"]
    want = irt.item_curves(r, fit, groups=False)["group_item_rmsd"].values[0]
    assert table["rmsd"].tolist() == want.tolist()
    told = typed("curves", made / "s", made / "fit.nc", "--replicates", "5", code=2).err
    assert "give 19 or more" in told


def test_lord(made, typed):
    said = json.loads(typed("lord", made / "a.nc", made / "b.nc", "--out", "t.csv", "--json").out)
    want = irt.lord_dif(read_bank(made / "a.nc"), read_bank(made / "b.nc"))
    table = read("t.csv")
    of_items, of_steps = table[table["step"] == 0], table[table["step"] > 0]
    assert of_items["item"].tolist() == want["item_id"].values.tolist()
    for name in ("lord_difficulty_chi2", "lord_discrimination_p_value"):
        np.testing.assert_array_equal(of_items[name], want[f"item_{name}"])
    p = want["item_lord_step_p_value"].values
    assert of_steps["lord_step_p_value"].tolist() == p[np.isfinite(p)].tolist()
    assert of_steps["item"].tolist() == ["q1"] * 3 + ["q3"] * 3 + ["q5"] * 2
    assert said["tests"] == sum(
        int(np.isfinite(want[n]).sum()) for n in want if str(n).endswith("p_value")
    )
    typed("lord", made / "a.nc", made / "b.nc", "--out", "t.nc")
    xr.testing.assert_identical(xr.load_dataset("t.nc")["item_lord_step_chi2"].reset_coords(
        drop=True), want["item_lord_step_chi2"].reset_coords(drop=True))  # fmt: skip
    typed("calibrate", made / "a.store", "--out", "a.csv", "--method", "marginal", "--model",
          "2pl+gpcm", "--no-standard-errors", "--quiet")  # fmt: skip
    assert "reference has neither" in typed("lord", "a.csv", made / "b.nc", code=2).err
    assert "reads this file" in typed("lord", made / "a.nc", "t.csv", "--out", "t.csv", code=2).err


def test_score_table(made, typed):
    args = ("score-table", made / "fit.nc", "--method", "tcc", "--ability", "0.2,1.5")
    said = json.loads(typed(*args, "--out", "t.csv", "--json").out)
    fit = read_bank(made / "fit.nc")
    want = irt.score_table(fit, method="tcc", ability=(0.2, 1.5))
    table = read("t.csv")
    assert list(table) == ["score", "ability", "ability_se", "probability"]
    for name in list(table)[1:]:
        np.testing.assert_array_equal(table[name], want[f"score_{name}"])
    assert [row["score"] for row in said["scores"]] == list(range(sum(K) - 6 + 1))
    pd.DataFrame({"item": ["q3", "q1"]}).to_csv("form.csv", index=False)
    typed("score-table", made / "fit.nc", "--items", "form.csv", "--out", "part.csv")
    part = irt.score_table(fit.isel(items=[3, 1]))
    np.testing.assert_array_equal(read("part.csv")["ability_sd"], part["score_ability_sd"])
    pd.DataFrame({"item": ["q3", "q9"]}).to_csv("form.csv", index=False)
    assert "has no item 'q9'" in typed("score-table", made / "fit.nc", "--items", "form.csv",
                                       code=2).err  # fmt: skip
    rows = {"item": ["q1", "q2", "q1@b"], "a": 1.0, "b": 0.0, "freed_group": ["", "", "b"]}
    pd.DataFrame(rows).to_csv("freed.csv", index=False)
    wrong = typed("score-table", "freed.csv", code=2).err
    assert "'q1 and q1@b'" in wrong
    assert "nobody answers both: give the form of one group by --items FORM.csv\n" in wrong
    pd.DataFrame({"item": ["q2", "q1@b"]}).to_csv("form.csv", index=False)
    assert "n items       2" in typed("score-table", "freed.csv", "--items", "form.csv").out


def test_convert(made, typed, tmp_path):
    """Muraki's a and d with D = 1.7 by hand; and the way of mirt and back."""
    rows = {"item": ["q1", "q2"], "a": [1.0, 0.5], "b": [0.5, -0.5], "c": [0.0, 0.2],
            "d1": [0.25, None], "d2": [-0.25, None]}  # fmt: skip
    pd.DataFrame(rows).to_csv("naep.csv", index=False)
    said = json.loads(typed("convert", "naep.csv", "--from", "naep", "--ability", "0.5,2", "--out",
                            "bank.csv", "--json").out)  # fmt: skip
    bank = irt.read_items("bank.csv")
    assert (said["items"], said["bank"]) == (2, "bank.csv")
    # on the scale of N(0.5, 2^2): slope 1.7 a times 2, steps b - d less the mean, over the SD
    np.testing.assert_allclose(bank["item_discrimination"], [3.4, 1.7], rtol=1e-12)
    np.testing.assert_allclose(
        bank["item_step_difficulty"].values[0], [(0.25 - 0.5) / 2, (0.75 - 0.5) / 2], rtol=1e-12
    )
    assert bank["item_guessing"].values[1] == 0.2
    want = irt.read_items("naep.csv", convention="naep", ability=(0.5, 2.0))
    for name in ("item_discrimination", "item_difficulty", "item_step_difficulty"):
        np.testing.assert_array_equal(bank[name], want[name])
    typed("convert", "bank.csv", "--to", "mirt", "--out", "mirt.csv")
    irt.write_items(bank, "python.csv", convention="mirt")
    assert (tmp_path / "mirt.csv").read_text() == (tmp_path / "python.csv").read_text()
    typed("convert", "mirt.csv", "--from", "mirt", "--out", "back.csv")
    np.testing.assert_allclose(
        irt.read_items("back.csv")["item_step_difficulty"], bank["item_step_difficulty"], rtol=1e-9
    )
    told = typed("convert", "bank.csv", "--ability", "0,1", "--out", "x.csv", code=2).err
    assert "--ability is for tables of other programs: say --from as well" in told
    assert "reads this file" in typed("convert", "bank.csv", "--out", "bank.csv", code=2).err


def test_the_covariance_beside_a_bank_is_not_written_over(made, typed):
    fit = irt.fit_marginal(irt.open_responses(made / "s"), model="2pl+gpcm")
    irt.write_items(fit, "bank.csv")
    before, out = read("bank.covariance.csv"), ("--out", "bank.covariance.csv")
    said = [
        typed("score-table", "bank.csv", *out, code=2).err,
        typed("lord", "bank.csv", made / "b.nc", *out, code=2).err,
        typed("lord", made / "b.nc", "bank.csv", *out, code=2).err,
        typed("q3", made / "s", "bank.csv", *out, code=2).err,
        typed("curves", made / "s", "bank.csv", *out, code=2).err,
    ]
    assert all("table bank.covariance.csv: the command reads this file" in of for of in said)
    assert read("bank.covariance.csv").equals(before)
    typed("score-table", "bank.csv", "--out", "other.covariance.csv", "--ability", "0,1")
