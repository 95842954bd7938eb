"""Items that were calibrated with groups, scored as if everybody came from N(0, 1)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import xarray as xr
from items import respond

import irt_dask as irt
from irt_dask.errors import DataWarning, InputError

M, N = 8, 400
G = np.random.default_rng(0)
GROUP = np.repeat(["a", "b"], N // 2)
THETA = G.normal(np.where(GROUP == "b", 1.3, 0.0), 1.0)
A, B = G.uniform(0.8, 1.6, M), G.normal(0.6, 1.0, M)
Y = respond(G, THETA, A, -A * B)
R = irt.from_array(Y, persons={"group": GROUP})


@pytest.fixture(scope="module")
def fit():
    return irt.fit_marginal(R, standard_errors=False)


def difference(out):
    ability = out["person_ability"].values
    return ability[GROUP == "b"].mean() - ability[GROUP == "a"].mean()


def test_a_warning_says_that_differences_shrink(fit):
    between = float(np.diff(fit["group_mean"].values)[0])
    assert between == pytest.approx(1.3, abs=0.3)
    said = r"calibrated with 2 groups of.*0\.00 \(SD 1\.00\), 1\..*use prior='groups'"
    for options in ({}, {"method": "map"}, {"method": "ml", "n_plausible": 1}):
        with pytest.warns(DataWarning, match=said):
            out = irt.score(R, fit, **options)
        if not options:
            assert difference(out) < 0.75 * between
    own = irt.score(R, fit, prior="groups")  # no warning
    assert difference(own) == pytest.approx(between, abs=0.02)


def test_no_warning_where_the_prior_is_not_used_or_is_that_of_the_calibration(fit):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        irt.score(R, fit, method="ml")
        irt.score(R, irt.fit_marginal(R, groups=False, standard_errors=False))


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_files_remember(fit, tmp_path, suffix):
    path = irt.write_items(fit, tmp_path / f"bank.{suffix}")
    bank = irt.read_items(path)
    assert bank.attrs["calibration_groups"] == 2
    again = irt.read_items(irt.write_items(bank, tmp_path / f"again.{suffix}"))
    with pytest.warns(DataWarning, match=r"calibrated with 2 groups of persons, and"):
        irt.score(R, again)
    alone = irt.fit_marginal(R, groups=False, standard_errors=False)
    path = irt.write_items(alone, tmp_path / f"alone.{suffix}")
    assert "calibration_groups" not in irt.read_items(path).attrs


def test_items_of_a_bank_fix_the_scale(fit):
    """Persons calibrated on it are not N(0, 1): one group counts."""
    able = irt.from_array(Y[GROUP == "b"])
    bank = fit[["item_discrimination", "item_difficulty", "item_intercept"]]
    on_scale = irt.fit_marginal(able, fixed_items=bank, standard_errors=False)
    said = r"calibrated with persons of mean ability 1\..*use prior='population'"
    with pytest.warns(DataWarning, match=said):
        irt.score(able, on_scale)
    # What it says to do; a group of all persons is another way to say it.
    population = irt.score(able, on_scale, prior="population")
    assert population.group_label.values.tolist() == ["all"]
    for of in ("mean", "sd"):
        got = float(population[f"group_{of}"].values[0])
        assert got == pytest.approx(float(on_scale[f"group_{of}"].values[0]), abs=1e-5)
    same = irt.from_array(Y[GROUP == "b"], persons={"group": np.repeat("all", N // 2)})
    own = irt.score(same, on_scale, prior="groups")
    assert float(own["person_ability"].mean()) == pytest.approx(1.3, abs=0.3)
    for name in (
        "person_ability",
        "person_ability_sd",
        "group_mean",
        "group_mean_se",
        "group_sd_se",
    ):
        np.testing.assert_allclose(population[name], own[name], rtol=1e-6, atol=1e-7)
    assert "on the scale of the items" in population.attrs["identification"]


def test_items_of_a_histogram_and_a_normal_prior():
    fit = irt.fit_marginal(R, groups=False, latent="histogram", max_iterations=40, tolerance=1e-3)
    with pytest.warns(DataWarning, match="calibrated with a histogram of ability"):
        irt.score(R, fit)


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_files_remember_that_there_was_a_histogram(tmp_path, suffix):
    """In scores and tests of fit, and after a link; a mixed file has it of some rows."""
    fit = irt.fit_marginal(R, groups=False, latent="histogram", max_iterations=40, tolerance=1e-3)
    bank = irt.read_items(irt.write_items(fit, tmp_path / f"bank.{suffix}"))
    again = irt.read_items(irt.write_items(bank, tmp_path / f"again.{suffix}"))
    assert again.attrs["latent"] == "histogram"
    plain = irt.fit_marginal(R, groups=False, standard_errors=False)
    for items in (again, irt.link(again, plain), irt.link(plain, again)):
        with pytest.warns(DataWarning, match="calibrated with a histogram of ability"):
            irt.score(R, items)
    with pytest.warns(DataWarning, match="a histogram of ability, and there is none"):
        irt.item_fit(R, again, groups=False)
    path = irt.write_items(plain, tmp_path / f"plain.{suffix}")
    assert "calibration_latent" not in path.read_text()
    assert "latent" not in irt.read_items(path).attrs


def test_a_distribution_that_no_fit_has(tmp_path):
    path = tmp_path / "bank.csv"
    path.write_text("item,a,b,calibration_latent\nx,1,0,\ny,1.2,.5,skewed\n")
    with pytest.raises(InputError, match="calibration_latent is 'histogram' or empty, not 'skew"):
        irt.read_items(path)


def test_linked_items_and_joined_files_remember(fit, tmp_path):
    assert irt.link(fit, fit).attrs["calibration_groups"] == 2
    path = tmp_path / "joined.csv"
    path.write_text("item,a,b,calibration_groups\nx,1,0,\ny,1.2,.5,2\n")
    assert irt.read_items(path).attrs["calibration_groups"] == 2
    path.write_text("item,a,b,calibration_groups\nx,1,0,\ny,1.2,.5,\n")
    assert "calibration_groups" not in irt.read_items(path).attrs


def test_a_table_of_scores_warns_unless_it_says_of_whom(fit):
    said = r"calibrated with 2 groups of.*1\..*\(SD.*without ability= .* N\(0, 1\): abilities are"
    with pytest.warns(DataWarning, match=said):
        unasked = irt.score_table(fit)
    for options in ({"ability": (0.0, 1.0)}, {"method": "tcc"}):  # no warning
        table = irt.score_table(fit, **options)
        np.testing.assert_array_equal(table["score_probability"], unasked["score_probability"])
    irt.score_table(irt.fit_marginal(R, groups=False, standard_errors=False))


def freed(names, owners, sets=None):
    """A bank of items of which some are the groups' own."""
    n = len(names)
    bank = xr.Dataset(
        {"item_discrimination": ("items", A[:n]), "item_intercept": ("items", (-A * B)[:n]),
         "item_freed_group": ("items", np.array(owners, dtype=object))},
        coords={"item_id": ("items", names)}, attrs={"model": "2pl"},
    )  # fmt: skip
    return bank if sets is None else bank.assign(item_set_groups=("items", sets))


@pytest.mark.parametrize(
    ("names", "owners", "sets", "message"),
    [
        (["q1", "q2", "q1@b"], ["", "", "b"], None, r"1 item\(s\).* \('q1 and q1@b'\), and nobody"),
        (["q1@a", "q2", "q1@b"], ["a", "", "b"], None, r"'q1@a and q1@b'"),
        (["q1", "q2", "q1@s"], ["", "", "s"], ["", "", '["a", "b"]'], r"'q1 and q1@s'"),
    ],
)
def test_a_form_is_that_of_one_group(names, owners, sets, message):
    bank = freed(names, owners, sets)
    with pytest.raises(InputError, match=message + r".*bank\.isel\(items="):
        irt.score_table(bank)
    one = irt.score_table(bank.isel(items=[1, 2]))
    plain = irt.score_table(bank.isel(items=[1, 2]).drop_vars("item_freed_group"))
    xr.testing.assert_identical(one, plain)


def test_an_item_whose_name_looks_so_is_nobodys(tmp_path):
    """Without the groups' say q1@b is another item; a bank in a file keeps that."""
    irt.score_table(freed(["q1", "q1@b"], ["", ""]))
    path = irt.write_items(freed(["q1", "q1@b"], ["", "b"]), tmp_path / "bank.csv")
    with pytest.raises(InputError, match="'q1 and q1@b'"):
        irt.score_table(irt.read_items(path))
