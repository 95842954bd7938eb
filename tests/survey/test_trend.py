"""Changes between two tables: by hand, and the linking error where it belongs and nowhere else."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner
from items import quiet
from scipy.stats import t as student
from test_group_gaps import TWO, domains

import irt_dask as irt
from irt_dask.banks.saved import write_result
from irt_dask.cli.main import cli
from irt_dask.errors import DataWarning, InputError
from irt_dask.survey.linking import texts

DESIGN = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=12, weight="w")
STATISTICS = ["weight", "mean", "sd", "p25", "at least 400"]


def table(seed=3, statistics=STATISTICS, values=TWO, frame=None, **options):
    frame = domains(1500, seed=seed) if frame is None else frame
    options = {"by": ["country", "sex"], "gaps": "sex", "replicates": DESIGN} | options
    return irt.tabulate(frame, values, statistics=statistics, **options)


@pytest.fixture(scope="module")
def years():
    # few degrees of freedom of a percentile in some group, which is said
    return tuple(quiet(table, seed, kinds=(DataWarning,)) for seed in (3, 4))


def trend_of(years, linking_error, **options):
    return irt.trend(*years, linking_error=linking_error, **options)


def test_keys_of_no_columns_are_one_a_row():
    """Of which pandas, up to some version, makes no rows."""
    assert texts(pd.DataFrame({"a": [1, 2]}), []) == [(), ()]
    assert texts(pd.DataFrame({"a": [1, 2]}), ["a"]) == [("1",), ("2",)]


def rows(out, **wanted):
    keep = np.logical_and.reduce([out[k] == v for k, v in wanted.items()])
    return out[keep]


def test_changes_are_what_one_gets_by_hand(years):
    a, b = years
    # every share of every group needs its own
    given = b[b["statistic"] == "at least 400"][["variable", "country", "sex", "row", "statistic"]]
    given = given.assign(linking_error=np.arange(len(given)) / 1000)
    shift = b[(b["statistic"] != "at least 400")][list(given.columns[:-1])]
    moved = shift["statistic"].isin(["mean", "p25"]) & (shift["row"] == "group")
    shift["linking_error"] = np.where(moved, np.where(shift["variable"] == "math", 3.5, 2.0), 0.0)
    out = trend_of(years, pd.concat([given, shift]), level=0.9)
    assert len(out) == len(a) == len(b)
    link = np.zeros(len(b))
    for i, row in enumerate(b.itertuples()):
        if row.statistic == "at least 400":
            link[i] = given["linking_error"][row.Index]
        elif row.statistic in ("mean", "p25") and row.row == "group":
            link[i] = 3.5 if row.variable == "math" else 2.0
        se = np.sqrt(a["se"][i] ** 2 + b["se"][i] ** 2 + link[i] ** 2)
        df = se**4 / (a["se"][i] ** 4 / a["df"][i] + b["se"][i] ** 4 / b["df"][i])
        change = b["estimate"][i] - a["estimate"][i]
        half = student.ppf(0.95, df) * se
        np.testing.assert_allclose(
            out.loc[i, ["earlier", "later", "estimate", "se", "se_linking", "df", "lower", "upper"]]
            .astype(float),
            [a["estimate"][i], b["estimate"][i], change, se, link[i], df, change - half,
             change + half], rtol=1e-9,
        )  # fmt: skip
        for name in ("se_sampling", "se_imputation"):
            np.testing.assert_allclose(out[name][i], np.hypot(a[name][i], b[name][i]))
    assert out["n_later"].tolist() == b["n"].tolist()
    np.testing.assert_allclose(
        out["se"] ** 2, out["se_sampling"] ** 2 + out["se_imputation"] ** 2 + link**2
    )


def test_a_shift_moves_means_and_percentiles_alone(years):
    some = [t[t["statistic"] != "at least 400"] for t in years]
    out = trend_of(some, {"math": 3.5, "read": 2.0})
    for variable, shift in (("math", 3.5), ("read", 2.0)):
        for statistic in ("mean", "p25"):
            each = rows(out, variable=variable, statistic=statistic)
            assert set(each["se_linking"][each["row"] == "group"]) == {shift}
            assert set(each["se_linking"][each["row"] == "gap"]) == {0.0}
        for statistic in ("sd", "weight"):
            assert not rows(out, variable=variable, statistic=statistic)["se_linking"].any()
    related = [table(seed, ["correlation"]) for seed in (3, 4)]
    assert not trend_of(related, 3.5)["se_linking"].any()
    # by statistic, SDs have one if it is given
    groups = [t[t["row"] == "group"].drop(columns="row") for t in years]
    each = {"mean": 3.5, "p25": 3.0, "at least 400": 0.01, "sd": 1.5}
    out = trend_of(groups, each)
    for statistic, value in (each | {"weight": 0.0}).items():
        assert set(rows(out, statistic=statistic)["se_linking"]) == {value}
    assert "row" not in out


def test_a_shift_moves_a_share_as_the_message_says():
    # what the remedy tells one to give is the spread of the share when the scale is shifted
    rng = np.random.default_rng(2)
    x, link = rng.normal(500, 100, 200_000), 4.0
    frame = pd.DataFrame({"x": x})
    below, above = irt.tabulate(frame, "x", statistics=["at least 546", "at least 554"])["estimate"]
    shifted = [np.mean(x + shift >= 550) for shift in rng.normal(0, link, 400)]
    np.testing.assert_allclose((below - above) / 2, np.std(shifted), rtol=0.1)
    one = irt.tabulate(frame, "x", statistics="at least 550")
    with pytest.raises(InputError, match="'at least 546' and 'at least 554'"):
        irt.trend(one, one, linking_error=link)


def test_what_has_a_linking_error_is_what_a_shift_moves():
    frame = domains(1500)
    moved = frame.assign(**{c: frame[c] + 3.5 for c in frame if c.startswith("PV")})
    statistics = ["weight", "mean", "sd", "p25", "correlation"]
    a, b = (table(statistics=statistics, frame=f) for f in (frame, moved))
    out = irt.trend(a, b, linking_error={"math": 3.5, "read": 0.0})
    np.testing.assert_allclose(out["estimate"], out["se_linking"], atol=1e-9)
    assert 0 < (out["se_linking"] > 0).sum() == 12  # 6 groups, means and percentiles


def test_a_linking_error_must_be_said(years):
    groups = [t[t["row"] == "group"].drop(columns="row") for t in years]
    with pytest.raises(TypeError, match="linking_error"):
        irt.trend(*years)
    assert not trend_of(years, 0.0)["se_linking"].any()
    each = {"mean": 3.5, "p25": 3.0, "at least 400": 0.01}
    related = [table(seed, ["mean", "correlation"]) for seed in (3, 4)]
    of_groups = pd.DataFrame({"country": [1, 1], "linking_error": [1.0, 2.0]})
    for tables, given, message in (
        (years, -1.0, "linking_error=-1.0 is not a number of at least 0"),
        (years, np.nan, "linking_error=nan is not"),
        (years, "3", "linking_error='3' is not"),
        (years, {}, "give it by variable"),
        (years, {"math": 3.5}, "says nothing of 'read, 1, f, mean'"),
        (years, {"p25": 3.5, "read": 2.0}, "given for 'p25', 'read': give it by variable"),
        (related, {"math with read": 3.5}, "(there are 'math', 'read') or by statistic"),
        (years, {"science": 3.5}, "given for 'science': give it by variable"),
        (groups, {"mean": 3.5, "at least 400": 0.01}, "says nothing of 'math, 1, f, p25'"),
        (groups, each | {"weight": 2.0}, "'weight' does not depend on the scale"),
        (groups, 3.5, "how far a shift of the scale moves a share depends on the group"),
        (years, each, "that of a gap in 'at least 400' is not that of the groups"),
        (years, of_groups, "linking errors has '1' twice"),
        (years, of_groups[:1], "says nothing of 'math, 2, f, mean'"),
        (years, of_groups.assign(country=[1, 9]), "given for '9', which"),
        (years, of_groups.rename(columns={"country": "region"}), "has the column 'region'"),
        (years, of_groups[["country"]], "no column 'linking_error'"),
    ):  # fmt: skip
        by_variable = isinstance(given, dict) and "math" in given
        if by_variable or isinstance(given, pd.DataFrame):
            tables = [t[t["statistic"] == "mean"] for t in tables]
        with pytest.raises(InputError, match=re.escape(message)):
            trend_of(tables, given)


def test_degrees_of_freedom_and_what_is_not_known():
    a, b = (table(seed, ["mean", "at least 400"], "PV1", gaps=()) for seed in (3, 4))
    out = irt.trend(a, b, linking_error={"mean": 1e6, "at least 400": 0.0})
    assert np.isnan(out["se_imputation"]).all()  # single values, in both years
    assert np.all(out["df"][out["statistic"] == "mean"] > 1e9)  # nearly all is the link: known
    without = table(3, ["mean"], "PV1", gaps=(), replicates=None)
    with pytest.warns(DataWarning, match="errors of one of the tables are not known"):
        half = irt.trend(without, b, linking_error={"mean": 0.0})
    assert half[["se", "df", "lower"]].isna().all(axis=None)
    many = table(4, ["mean"], {"PV1": "PV*"}, gaps=())
    with pytest.warns(DataWarning, match="hold imputation in one of the tables alone"):
        irt.trend(a, many, linking_error={"mean": 0.0})
    with pytest.warns(DataWarning, match="share of none or all"):
        none = table(4, ["at least 9999"], {"PV1": "PV*"}, gaps=())
    assert none["df"].isna().all()
    with pytest.warns(DataWarning, match="error of 0, which is not certainty: 'PV1, 1, f"):
        change = irt.trend(none, none, linking_error=0.0)
    assert np.isnan(change["upper"]).all()
    some = b[b["statistic"] == "at least 400"].reset_index(drop=True)
    with pytest.warns(DataWarning, match="which is not certainty"):
        change = irt.trend(none.assign(statistic="at least 400"), some, linking_error=0.0)
    np.testing.assert_allclose(change["df"], some["df"])  # what has no error has no part in them


def test_intervals_of_changes_stay_within_what_can_be():
    a = table(3, ["at least 400"], "PV1").assign(estimate=-0.4, se=0.5, df=20.0)
    b = a.assign(estimate=0.5)
    out = irt.trend(a, b, linking_error=0.0)
    gaps = out["row"] == "gap"
    assert set(out["upper"][~gaps]) == {1.0}
    assert set(out["upper"][gaps]) == {2.0}
    assert set(irt.trend(b, a, linking_error=0.0)["lower"][gaps]) == {-2.0}


def test_tables_that_do_not_belong_together_are_said(years):
    a, b = (t[t["statistic"] == "mean"] for t in years)
    with pytest.warns(DataWarning, match="one table alone are left out: 'math, 2, f, mean'"):
        out = irt.trend(a, b[b["country"] != 2], linking_error=1.0)
    assert sorted(set(out["country"])) == [1, 3]
    grouped = a[a["row"] == "group"].drop(columns="row")
    with pytest.warns(DataWarning, match="m minus f, gap"):  # one of them has no gaps
        assert len(irt.trend(grouped, b, linking_error=1.0)) == len(grouped)
    frame = domains()
    terms = irt.regress(frame, "PV* ~ sex", weight="w")
    for tables, message in (
        ((a, terms), "the later table is of regress"),
        ((a.drop(columns="df"), b), "the earlier table has no column 'df'"),
        (
            (a, b[b["country"] == 1].drop(columns="country")),
            "by 'country', 'sex' and those of the later one by 'sex'",
        ),
        ((a, b.assign(variable=b["variable"] + " 2")), "no row of the same variable"),
        ((pd.concat([a, a]), b), "the earlier table has the row 'math, 1, f, mean' twice"),
        ((a, b.assign(se="x")), "column 'se' is not of numbers"),
        ((a, b.assign(statistic="mode")), "no row of the same variable"),
        (("nowhere.csv", b), "nowhere.csv: there is no such file"),
    ):
        with pytest.raises(InputError, match=message):
            irt.trend(*tables, linking_error=0.0)
    with pytest.raises(InputError, match="level=2"):
        irt.trend(a, b, linking_error=0.0, level=2)


def test_the_shell_reaches_it(tmp_path):
    paths, tables = [], []
    for seed in (3, 4):
        frame = domains(seed=seed).assign(country=lambda f: f["country"].map({1: "NA", 2: "=B",
                                                                              3: "C"}))  # fmt: skip
        tables.append(table(statistics=["mean", "sd"], frame=frame, by="country", gaps="country"))
        paths.append(str(tmp_path / f"{seed}.csv"))
        frame.to_csv(tmp_path / "persons.csv", index=False)
        from irt_dask.cli.results import write_csv

        write_csv(tables[-1], tmp_path / f"{seed}.csv")

    def typed(*options):
        return CliRunner().invoke(
            cli, ["trend", *paths, "--out", str(tmp_path / "t.csv"), *options]
        )

    for options, given in (
        (["--linking-error", "3.5"], 3.5),
        (["--linking-error", "math=3.5", "--linking-error", "read=2"], {"math": 3.5, "read": 2.0}),
        (["--linking-error", "mean=3", "--level", "0.9"], {"mean": 3.0}),
    ):
        result = typed(*options)
        assert result.exit_code == 0, result.output
        level = 0.9 if "--level" in options else 0.95
        wanted = irt.trend(*tables, linking_error=given, level=level)
        written = pd.read_csv(tmp_path / "t.csv", keep_default_na=False)
        written["country"] = written["country"].str.removeprefix("'")
        pd.testing.assert_frame_equal(written, wanted, check_dtype=False)
    given = pd.DataFrame({"country": ["NA", "=B", "C"], "row": "group", "statistic": "mean",
                          "linking_error": [1.0, 2.0, 3.0]})  # fmt: skip
    write_csv(given, tmp_path / "link.csv")
    result = typed("--linking-error", str(tmp_path / "link.csv"), "--json")
    assert result.exit_code == 0, result.output
    assert '"se_linking": 2.0' in result.output
    assert typed().exit_code == 2  # it must be said
    for options, message in (
        (["--linking-error", "math=x"], "neither a number nor a file"),
        (["--linking-error", "1", "--linking-error", "2"], "given more than once"),
    ):
        result = typed(*options)
        assert message in str(result.exception or result.output)


# --- links ----------------------------------------------------------------------------------------


def a_link(**attrs):
    """What link returns, as far as trend looks at it: theta_a = 1.25 theta_b + .2."""
    known = {"A": 1.25, "B": 0.2, "A_se": 0.03, "B_se": 0.04, "AB_covariance": 0.0006}
    return xr.Dataset(attrs=known | {"error": "jackknife"} | attrs)


def test_a_link_is_a_linking_error_where_each_statistic_lies():
    scores = ("weight", "mean", "sd", "p25", "correlation")
    both = tuple(quiet(table, s, scores, kinds=(DataWarning,)) for s in (3, 4))
    links = {"math": a_link(), "read": a_link(A_se=0.0, AB_covariance=0.0)}
    out = trend_of(both, links, scale={"math": (500, 100), "read": (450, 80)})
    for r in out.itertuples():
        sd, known = (100, links["math"]) if r.variable == "math" else (80, links["read"])
        k = known.attrs
        theta_b = ((r.later - (500 if sd == 100 else 450)) / sd - k["B"]) / k["A"]
        variance = k["B_se"] ** 2 + 2 * theta_b * k["AB_covariance"] + (theta_b * k["A_se"]) ** 2
        if r.statistic in ("weight", "correlation"):
            expected = 0.0
        elif r.statistic == "sd" or r.row == "gap":
            expected = abs(r.later) * k["A_se"] / k["A"]
        else:
            expected = sd * np.sqrt(variance)
        assert r.se_linking == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_degrees_of_freedom_of_a_link_are_its_units(years):
    # With 5 testlets and an error that is nearly all of the link's, intervals are Student's with 4.
    both = tuple(t[(t["variable"] == "math") & (t["statistic"] == "mean") & (t["row"] == "group")]
                 for t in years)  # fmt: skip
    few, options = a_link(n_units=5, B_se=40.0), {"scale": (500, 100)}
    for given in (few, {"math": few}):
        with pytest.warns(DataWarning, match="below 5 degrees of freedom"):
            out = trend_of(both, given, **options)
        np.testing.assert_allclose(out["df"], 4.0, rtol=0.01)
        half = student.ppf(0.975, out["df"]) * out["se"]
        np.testing.assert_allclose(out["upper"] - out["estimate"], half)
    assert (trend_of(both, a_link(B_se=40.0), **options)["df"] > 1e4).all()


def test_links_that_do_not_go_with_the_tables_are_refused(years):
    both = tuple(t[(t["variable"] == "math") & (t["statistic"] == "mean")] for t in years)
    scale = (500, 100)
    for given, options, text in (
        (a_link(), {}, r"is [0-9.]+ in the later table, an ability of \d+ on the sc"),
        (a_link(), {"scale": (500, 0)}, r"scale=\(500, 0\): give \(mean, SD\)"),
        (a_link(), {"scale": {"x": scale}}, "scale= is given for 'x', and the tables have 'math'"),
        ({"x": a_link()}, {"scale": scale}, "has links of 'x', and the tables have 'math'"),
        (xr.Dataset(), {"scale": scale}, "is a Dataset and no link"),
        (xr.Dataset(attrs={"A": 1.0, "B": 0.0}), {"scale": scale}, "is a link without errors"),
        (3.5, {"scale": scale}, "is the unit of a link, and linking_error= is no link"),
    ):
        with pytest.raises(InputError, match=text):
            trend_of(both, given, **options)
    with pytest.raises(InputError, match="is one link, and the tables have 'math'"):
        trend_of(years, a_link(), scale=scale)
    with pytest.raises(InputError, match="how far a shift of the scale moves a share"):
        trend_of(years, {"math": a_link(), "read": a_link()}, scale=scale)
    with pytest.warns(DataWarning, match="error='delta', which holds the sample of persons"):
        trend_of(both, a_link(error="delta"), scale=scale)


def test_the_command_takes_a_link_that_was_kept(years, tmp_path):
    both = tuple(t[(t["variable"] == "math") & (t["statistic"] == "mean")] for t in years)
    paths = [str(tmp_path / f"{k}.csv") for k in range(2)]
    for t, path in zip(both, paths, strict=True):
        t.to_csv(path, index=False)
    y = irt.simulate(600, 8, seed=1)
    halves = [irt.fit_marginal(y.select(persons=s)) for s in (slice(300), slice(300, None))]
    link = irt.link(*halves, method="mean-mean", error="jackknife")
    write_result(link, tmp_path / "link.nc")
    done = CliRunner().invoke(cli, ["trend", *paths, "--linking-error", str(tmp_path / "link.nc"),
                                    "--scale", "500,100", "--json"])  # fmt: skip
    assert done.exit_code == 0, done.output
    expected = trend_of(both, link, scale=(500, 100))["se_linking"]
    rows = json.loads(done.stdout)
    found = [row["se_linking"] for row in (rows if isinstance(rows, list) else rows["rows"])]
    np.testing.assert_allclose(found, expected)
    done = CliRunner().invoke(cli, ["trend", *paths, "--linking-error", "1", "--scale", "5"])
    assert "--scale '5': give two numbers" in str(done.exception or done.output)
