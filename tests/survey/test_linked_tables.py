"""Tables and trends of plausible values that a linking error was drawn into."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import norm

import irt_dask as irt
from irt_dask.cli.results import write_csv
from irt_dask.errors import DataWarning, InputError
from irt_dask.items.link_constants import LinkConstants
from irt_dask.report.published import _linked
from irt_dask.score.linked import Linked, _drawn
from irt_dask.survey.combine import combined
from irt_dask.survey.linking import with_links

DESIGN = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=20)
MARK = "person_linking_error"


def persons(seed=1, mean=0.0, n=400, mark=(MARK,)):
    """Persons with plausible values pv1 to pv5, another variable, and marks of a link."""
    rng = np.random.default_rng(seed)
    ability = rng.normal(mean, 1, n)
    frame = pd.DataFrame({f"pv{m}": ability + 0.3 * rng.normal(size=n) for m in range(1, 6)})
    frame["person_ability"], frame["person_ability_sd"] = 0.9 * ability, 0.3
    frame["sex"] = np.where(rng.random(n) < 0.5, "f", "m")
    frame["zone"], frame["unit"] = np.arange(n) // (n // 20) + 1, np.arange(n) % 2
    return frame.assign(**dict.fromkeys(mark, 0.1))


def table(frame, values=None, **options):
    options = {"replicates": DESIGN, "statistics": "mean"} | options
    return irt.tabulate(frame, values or {"score": "pv*"}, progress=False, **options)


# --- who is said to have it -----------------------------------------------------------------------


def test_tables_know_values_by_the_column_beside_them(tmp_path):
    frame = persons()
    frame.to_csv(tmp_path / "p.csv", index=False)
    frame.to_parquet(tmp_path / "p.parquet")
    ids = frame.assign(person_id=[f"x{i}" for i in range(len(frame))])
    scores = ids[["person_id", *(f"pv{m}" for m in range(1, 6)), MARK]]
    rest = ids[["person_id", "zone", "unit", "sex"]]
    want = table(frame, by="sex", gaps="sex", statistics=["mean", "weight", "at least 1"])
    assert want["linking"].tolist() == ["drawn", "", "drawn"] * 3
    for source in (tmp_path / "p.csv", tmp_path / "p.parquet"):
        pd.testing.assert_frame_equal(table(source, by="sex"), table(frame, by="sex"))
    for first, second in ((scores, rest), (rest, scores)):
        joined = table(first, by="sex", join=second)
        assert joined["linking"].tolist() == ["drawn", "drawn"]
    assert "linking" not in table(frame.drop(columns=MARK))
    terms = irt.regress(frame, "pv* ~ sex", replicates=DESIGN, progress=False)
    assert set(terms["linking"]) == {"drawn"}
    assert "linking" not in irt.regress(frame, "unit ~ sex", progress=False)
    both = quiet_table(frame, {"score": "pv*", "guess": "person_ability"},
                       statistics=["mean", "correlation"])  # fmt: skip
    by = both.set_index(["variable", "statistic"])["linking"]
    assert by.to_dict() == {("score", "mean"): "drawn", ("guess", "mean"): "",
                            ("score with guess", "correlation"): ""}  # fmt: skip


def quiet_table(*args, **options):
    with pytest.warns(DataWarning):  # EAPs are no values to tabulate
        return table(*args, **options)


def test_which_values_a_column_is_of():
    of = {f"person_ability_sd_{name}" for name in ("maths", "x_maths", "art")}
    values = {"maths": ["pv1_maths", "pv2_maths"], "x": ["pv1_x_maths", "pv2_x_maths"],
              "one": ["pv1_maths"], "own": ["PV1", "PV2"], "guess": ["person_ability_maths"],
              "scaled": ["PV3"], "renamed": ["m1", "m2"]}  # fmt: skip

    def found(*marks):
        return with_links(values, [*of, *(f"{MARK}{m}" for m in marks)])

    assert found() == (set(), [])
    assert found("_maths") == ({"maths", "one"}, ["own", "renamed"])
    assert found("_x_maths") == ({"x"}, ["own", "renamed"])
    assert found("_maths", "_x_maths", "_art") == ({"maths", "one", "x"}, ["own", "renamed"])
    of_one = ["person_ability_sd", MARK]
    assert with_links(values, of_one) == ({"own", "scaled"}, ["maths", "x", "renamed"])


def test_values_of_another_name_are_taken_to_have_none_which_is_said():
    """As reading scores of another program beside ours: their degrees of freedom stay."""
    frame = persons()
    for m in range(1, 6):
        frame[f"oth{m}"] = frame[f"pv{m}"]
    with pytest.warns(DataWarning, match="'other': .* has values with the error of a link"):
        both = table(frame, {"score": "pv*", "other": "oth*"}).set_index("variable")
    assert both["linking"].to_dict() == {"score": "drawn", "other": ""}
    plain = table(frame.drop(columns=MARK), {"other": "oth*"})
    assert both.loc["other", "df"] == plain["df"][0]


def test_a_single_value_has_a_single_draw():
    with pytest.warns(DataWarning, match="'pv1' is a single plausible value, with a single draw"):
        one = table(persons(), "pv1")
    assert one["linking"].tolist() == ["drawn"]


def test_degrees_of_freedom_are_those_of_the_sum_of_two_variances():
    values = np.random.default_rng(1).normal(size=(21, 8))
    scales = np.full(20, 0.05)
    one, plain = (combined(values, scales, 20.0, linked=k) for k in (True, False))
    assert one[:4] == plain[:4]
    u, b = one.se_sampling**2, one.se_imputation**2
    np.testing.assert_allclose(one.df, (u + b) ** 2 / (u**2 / 20 + b**2 / 7))
    assert plain.df < one.df
    assert np.isnan(combined(values, None, np.nan, linked=True).df)


# --- trends ---------------------------------------------------------------------------------------


def a_link():
    known = {"A": 1.0, "B": 0.0, "A_se": 0.03, "B_se": 0.04, "AB_covariance": 0.0, "n_units": 20}
    return xr.Dataset(attrs=known | {"error": "jackknife"})


def test_asking_for_both_is_an_error(tmp_path):
    statistics = ["mean", "sd", "at least 1", "weight"]
    earlier = table(persons(mark=()), statistics=statistics)
    later = table(persons(2), statistics=statistics)
    out = irt.trend(earlier, later, linking_error=0.0)
    assert not out["se_linking"].any()
    assert out["linking"].tolist() == ["drawn", "drawn", "drawn", ""]
    np.testing.assert_allclose(out["se"], np.hypot(earlier["se"], later["se"]))
    np.testing.assert_allclose(
        out["se_imputation"], np.hypot(earlier["se_imputation"], later["se_imputation"])
    )
    write_csv(later, tmp_path / "later.csv")
    again = irt.trend(earlier, tmp_path / "later.csv", linking_error={"score": 0.0})
    pd.testing.assert_frame_equal(again, out)
    tables = pd.DataFrame({"statistic": statistics, "linking_error": [0.0, 0.02, 0.0, 0.0]})
    for given, which in (
        (0.1, "linking_error=0.1 of 'score, mean'"),
        ({"score": 0.1}, "linking_error=0.1 of 'score, mean'"),
        ({"mean": 0.0, "sd": 0.0, "at least 1": 0.01}, "linking_error=0.01 of 'score, at least 1'"),
        (tables, "linking_error=0.02 of 'score, sd'"),
        (a_link(), "linking_error= is a link of 'score'"),
        ({"score": a_link()}, "linking_error= is a link of 'score'"),
    ):
        for pair in ((earlier, later), (earlier, tmp_path / "later.csv"), (later, earlier)):
            with pytest.raises(InputError, match=f"{which}: plausible values of one of the tables"):
                irt.trend(*pair, linking_error=given)
    with pytest.raises(InputError, match=r"linking_error=-1\.0 is not a number"):
        irt.trend(earlier, later, linking_error=-1.0)
    assert len(irt.trend(earlier, later, linking_error={"mean": 0.0})) == 4


def test_variables_without_it_keep_their_own():
    frames = [f.assign(other=f["pv1"] * 2 + 1) for f in (persons(mark=()), persons(2))]
    values = {"score": "pv*", "other": "other"}
    earlier, later = (table(f, values, statistics=["mean", "sd"]) for f in frames)
    assert later["linking"].tolist() == ["drawn", "drawn", "", ""]
    for given in ({"other": 0.05}, {"other": 0.05, "score": 0.0}):
        out = irt.trend(earlier, later, linking_error=given)
        assert out["se_linking"].tolist() == [0.0, 0.0, 0.05, 0.0]
    plain = irt.trend(earlier, later.drop(columns="linking"),
                      linking_error={"other": a_link(), "score": a_link()})  # fmt: skip
    out = irt.trend(earlier, later, linking_error={"other": a_link()})
    np.testing.assert_array_equal(out["se_linking"][2:], plain["se_linking"][2:])
    np.testing.assert_array_equal(out["df"][2:], plain["df"][2:])
    assert out["se_linking"].tolist()[:2] == [0.0, 0.0]
    with pytest.raises(InputError, match="link of 'score'"):
        irt.trend(earlier, later, linking_error=a_link())


def test_links_in_both_tables_are_said():
    both = [table(persons(seed)) for seed in (1, 2)]
    with pytest.warns(DataWarning, match="both tables were drawn with a linking error.*'score, "):
        irt.trend(*both, linking_error=0.0)


def test_the_page_says_where_the_linking_error_is():
    earlier, later = table(persons(mark=())), table(persons(2))
    change = irt.trend(earlier, later, linking_error=0.0)
    (said,) = _linked([earlier, later, change])
    assert "in the plausible values, and so in se_imputation" in said
    assert _linked([earlier]) == []
    plain = irt.trend(earlier, earlier, linking_error=0.0)
    assert ["It was said to be 0" in s for s in _linked([change, plain])] == [True, False]


# --- whether intervals hold -----------------------------------------------------------------------


@pytest.mark.slow
def test_intervals_of_means_and_shares_hold_with_the_linking_error_drawn_alone():
    """Abilities that are known, on a scale by constants that are not: A and B of 300 links.

    The linking error of the mean is 2.0 and of the share 1.7 times that of sampling. 95% of
    intervals should hold, and without the links 64 and 71%, by calculation: below 274 of 300 is
    .3%, above 237 less than .1%.
    """
    sets, n, m, cut = 300, 800, 10, 0.8
    v = np.array([[0.03**2, 0.0006], [0.0006, 0.07**2]])
    root, rng = np.linalg.cholesky(v), np.random.default_rng(5)
    held = np.zeros((sets, 2, 2), dtype=bool)
    columns = {"zone": np.arange(n) // 40 + 1, "unit": np.arange(n) % 2}
    truth = np.array([0.2, norm.sf(cut - 0.2)])
    for k in range(sets):
        slope, shift = [1.0, 0.0] + root @ rng.normal(size=2)  # what the link is found to be
        theta = slope * rng.normal(0.2, 1.0, n) + shift
        link = LinkConstants(slope, shift, v, "jackknife", 30)
        values = np.tile(theta[:, None, None], (1, m, 1))
        moved = Linked((link,), _drawn([link], m), (0,)).moved(values)[..., 0]
        for j, x in enumerate((moved, theta[:, None])):
            frame = pd.DataFrame(x, columns=[f"pv{i}" for i in range(x.shape[1])]).assign(**columns)
            frame = frame.assign(**{MARK: 0.1}) if j == 0 else frame
            found = table(frame, statistics=["mean", f"at least {cut}"])
            held[k, :, j] = (found["lower"] <= truth) & (truth <= found["upper"])
    with_link, without = held.sum(axis=0).T
    assert (with_link >= 274).all()
    assert (without <= 237).all()
