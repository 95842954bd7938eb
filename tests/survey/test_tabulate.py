"""Tables against R's survey and a hand-made combination of plausible values, and by brute force."""

from __future__ import annotations

import itertools
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import irt_dask as irt
from irt_dask.cli.main import cli
from irt_dask.errors import DataWarning, InputError
from irt_dask.survey import sums, tables
from irt_dask.survey.combine import combined, degrees_of_freedom
from irt_dask.survey.statistics import percentiles

#: Estimates of R survey and hand-made combinations, where the checkout has them beside it.
REFERENCE = Path(__file__).parents[3] / "shared" / "data" / "reference_r"
needs_reference = pytest.mark.skipif(
    not REFERENCE.is_dir(), reason="the reference estimates are not beside the checkout"
)


def simulated(n=600, n_values=5, n_zones=12, seed=3):
    rng = np.random.default_rng(seed)
    zone, unit = np.arange(n) % n_zones + 1, np.arange(n) // n_zones % 2
    ability = rng.standard_normal(n) + 0.4 * rng.standard_normal((n_zones + 1, 2))[zone, unit]
    values = 500 + 100 * (ability + 0.1 * rng.standard_normal((n_values, n)))
    out = pd.DataFrame(values.T, columns=[f"PV{m}" for m in range(1, n_values + 1)])
    return out.assign(
        zone=zone, unit=unit, w=rng.uniform(0.5, 2, n), sex=rng.choice(["f", "m"], n),
        country=rng.integers(1, 4, n),
    )  # fmt: skip


def timss(method):
    """Persons with replicate weights, the design, and what was combined by hand."""
    frame = pd.read_csv(REFERENCE / "data" / "pv5_timss.csv")
    weights = pd.read_csv(REFERENCE / "data" / f"pv5_timss_{method}_weights.csv.gz")
    wanted = pd.read_csv(REFERENCE / f"pv5_rubin_{method}.csv").set_index("stat")
    design = irt.Replicates(method, list(weights), weight="w", fay=0.5 if method == "fay" else None)
    return pd.concat([frame, weights], axis=1), design, wanted


def by_hand(frame, statistic, weights, scales):
    """Estimate, sampling and imputation variance of statistic(x, w), column by column."""
    pv = [c for c in frame if c.startswith("PV")]
    t = np.array([[statistic(frame[c].to_numpy(), w) for c in pv] for w in weights])
    u = np.mean([sum(s * (tr[m] - t[0, m]) ** 2 for s, tr in zip(scales, t[1:], strict=True))
                 for m in range(len(pv))])  # fmt: skip
    return t[0].mean(), u, (1 + 1 / len(pv)) * t[0].var(ddof=1)


def mean(x, w):
    return (x * w).sum() / w.sum()


def sd(x, w):
    return np.sqrt((w * (x - mean(x, w)) ** 2).sum() / w.sum())


def median(x, w):
    return next(v for v in np.sort(x) if w[x <= v].sum() >= w.sum() / 2)


def share(x, w):
    return w[x >= 550].sum() / w.sum()


STATISTICS = {"mean": mean, "sd": sd, "p50": median, "at least 550": share,
              "weight": lambda x, w: w.sum()}  # fmt: skip


@pytest.mark.parametrize("method", ["jk2", "jk2_both"])
def test_tables_are_what_one_gets_by_hand(method, monkeypatch):
    monkeypatch.setattr(tables, "_ROWS", 97)  # several batches
    frame = simulated()
    design = irt.Replicates.from_zones(method, "zone", "unit", n_zones=12, weight="w")
    table = irt.tabulate(
        frame, "PV*", by=["country", "sex"], replicates=design, statistics=list(STATISTICS)
    )
    assert len(table) == 6 * len(STATISTICS)
    for (country, sex), one in table.groupby(["country", "sex"]):
        part = frame[(frame["country"] == country) & (frame["sex"] == sex)]
        w = part["w"].to_numpy()
        weights = [w]
        for up in (1, 0) if method == "jk2_both" else (1,):
            for z in range(1, 13):
                factor = np.where(part["zone"] == z, np.where(part["unit"] == up, 2, 0), 1)
                weights.append(w * factor)
        scales = [0.5 if method == "jk2_both" else 1.0] * (len(weights) - 1)
        for row in one.itertuples():
            t, u, b = by_hand(part, STATISTICS[row.statistic], weights, scales)
            np.testing.assert_allclose(
                [row.estimate, row.se_sampling, row.se_imputation, row.se],
                [t, np.sqrt(u), np.sqrt(b), np.sqrt(u + b)], rtol=1e-9, atol=1e-9,
            )  # fmt: skip
            assert row.n == len(part)
            if b:
                np.testing.assert_allclose(row.fraction_missing, b / (u + b), rtol=1e-8)


@needs_reference
@pytest.mark.parametrize("method", ["jk2", "fay"])
def test_plausible_values_of_timss(method):
    frame, design, wanted = timss(method)
    every = irt.tabulate(frame, "PV*", replicates=design, statistics=["mean", "sd", "at least 1"])
    each = irt.tabulate(frame, "PV*", by="twn", replicates=design, statistics="mean")
    found = pd.concat([every, each], ignore_index=True)
    names = ["mean", "sd_popn", "prop_above_1", "mean_aus", "mean_twn"]
    for mine, theirs in zip(
        ("estimate", "se", "fraction_missing"), ("estimate", "se", "fmi_lambda"), strict=True
    ):
        np.testing.assert_allclose(found[mine], wanted.loc[names, theirs], rtol=1e-9)
    np.testing.assert_allclose(
        found["se_sampling"] ** 2, wanted.loc[names, "U_sampling"], rtol=1e-9
    )
    # TIMSS to 2011: the sampling variance of the first plausible value
    first = irt.Replicates(method, design.weights, fay=design.fay, weight="w", first_value=True)
    one = irt.tabulate(frame, "PV*", replicates=first, statistics="mean")
    np.testing.assert_allclose(
        one["se_sampling"] ** 2, wanted.loc[["mean"], "U_pv1_only"], rtol=1e-9
    )


def stratum_scales(frame):
    """Of JKn: by the stratum of the unit that a replicate leaves out."""
    weights = frame[[c for c in frame if c.startswith("rw")]].to_numpy()
    n_units = frame["stype"].value_counts()
    left_out = frame["stype"].to_numpy()[np.argmin(weights, axis=0)]
    return [1 - 1 / n_units[s] for s in left_out]


@needs_reference
@pytest.mark.parametrize(("name", "method", "df"), [
    ("api_clus1_JK1", "jk1", 14), ("api_strat_JKn", "jkn", 197), ("api_paired_BRR", "brr", 50),
    ("api_paired_Fay", "fay", 50), ("api_paired_JK2", "jk2", 50),
])  # fmt: skip
def test_designs_of_survey(name, method, df):
    wanted = json.loads((REFERENCE / "survey.json").read_text())[name]
    frame = pd.read_csv(REFERENCE / "data" / wanted["data"])
    columns = [c for c in frame if c.startswith("rw")]
    scale = stratum_scales(frame) if method == "jkn" else None
    design = irt.Replicates(
        method, "rw*", weight="pw", fay=0.5 if method == "fay" else None, scale=scale
    )
    # R's errors are about the mean of the replicates, where it is not told mse=TRUE.
    with warnings.catch_warnings():  # no replicate of JKn moves the median: R's error is 0 too
        warnings.filterwarnings("ignore", message="no replicate moves an estimate")
        table = irt.tabulate(
            frame, {"api00": "api00"}, replicates=design, statistics=["mean", "p25", "p50"]
        )
    theirs = {row["term"]: row for row in wanted["mean_mse_true"]}["api00"]
    np.testing.assert_allclose(
        table.loc[0, ["estimate", "se"]].astype(float), [theirs["est"], theirs["se"]], rtol=1e-9
    )
    assert table["df"].tolist() == [df] * 3
    assert len(columns) == wanted["nrep"]
    assert np.isnan(table["se_imputation"]).all()
    quantiles = {row["_row"]: row["quantile"] for row in wanted["quantile"]}
    np.testing.assert_allclose(table["estimate"][1:], [quantiles["0.25"], quantiles["0.5"]])
    groups = irt.tabulate(frame, "api00", by="stype", replicates=design, statistics="mean")
    np.testing.assert_allclose(
        groups["estimate"], [row["api00"] for row in wanted["by"]], rtol=1e-9
    )


def test_replicates_about_the_full_sample_are_unbiased_for_half_samples():
    # Balanced half samples of a total: the variance is that of differences within pairs, exactly.
    frame = simulated(n=240, n_values=1)
    total = frame.groupby(["zone", "unit"])["w"].sum().unstack()
    exact = ((total[1] - total[0]) ** 2).sum()
    for method, fay in (("brr", None), ("fay", 0.3), ("jk2", None), ("jk2_both", None)):
        design = irt.Replicates.from_zones(method, "zone", "unit", n_zones=12, weight="w", fay=fay)
        table = irt.tabulate(frame, "PV1", replicates=design, statistics="weight")
        np.testing.assert_allclose(table["se"] ** 2, exact, rtol=1e-10)
        assert table["df"].tolist() == [12]


def test_factors_are_multiplied_with_weights():
    frame = simulated(n=240, n_values=1)
    made = irt.Replicates.from_zones("brr", "zone", "unit", n_zones=12, weight="w")
    columns = {k: frame[k].to_numpy() for k in ("zone", "unit")}
    factors = pd.DataFrame(made.matrix(columns, np.ones(240), 0)).add_prefix("f")
    given = irt.Replicates("brr", "f*", weight="w", factors=True)
    a, b = (irt.tabulate(pd.concat([frame, factors], axis=1), "PV1", replicates=r)
            for r in (made, given))  # fmt: skip
    pd.testing.assert_frame_equal(a, b)


def test_combination_has_known_limits():
    rng = np.random.default_rng(1)
    scales = np.full(20, 1.0)
    t = rng.standard_normal((21, 5)) * 0.01
    t += rng.standard_normal(5)  # imputation is nearly all
    c = combined(t, scales, 20)
    # Rubin's (1987), as the observed degrees of freedom go with the share that is missing
    rubin = 4 / c.fraction_missing**2
    observed = 21 / 23 * 20 * (1 - c.fraction_missing)
    np.testing.assert_allclose(1 / c.df, 1 / rubin + 1 / observed)
    same = np.repeat(rng.standard_normal((21, 1)), 5, axis=1)
    alone = combined(same, scales, 20)
    assert (alone.se_imputation, alone.se) == (0, alone.se_sampling)
    assert np.isnan(combined(t, None, np.nan).se)


def test_degrees_of_freedom_are_directions():
    w = np.ones((4, 1))
    jk1 = np.where(np.eye(4, dtype=bool), 0, 4 / 3) - w
    assert degrees_of_freedom(jk1.T @ jk1) == 3
    assert degrees_of_freedom(np.zeros((3, 3))) == 0


def test_percentiles_invert_the_distribution_function():
    rng = np.random.default_rng(2)
    x, w = rng.integers(0, 9, (30, 2)).astype(float), rng.uniform(0, 1, (30, 3))
    found = percentiles(x, w, [0.1, 0.5, 0.999])
    for (q, p), r, m in itertools.product(enumerate((0.1, 0.5, 0.999)), range(3), range(2)):
        v = found[q, r, m]
        assert w[x[:, m] <= v, r].sum() >= p * w[:, r].sum() > w[x[:, m] < v, r].sum()


def test_labels_are_whole_numbers_where_others_are_missing():
    frame = simulated()
    frame["grade"] = (frame.index % 3 + 7).astype(float)
    frame.loc[:20, "grade"] = np.nan
    with pytest.warns(DataWarning, match="21 persons without 'grade'"):
        table = irt.tabulate(frame, "PV*", by="grade", statistics="mean")
    assert table["grade"].tolist() == [7, 8, 9]
    assert table["grade"].dtype == np.int64


def test_intervals_stay_within_what_can_be():
    frame = simulated()
    design = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=12, weight="w")
    statistics = ["at least 290", "at least 700", "sd"]
    by = ["country", "sex"]
    table = irt.tabulate(frame, "PV*", by=by, replicates=design, statistics=statistics)
    assert ((table["lower"] >= 0) & (table["lower"] <= table["estimate"])).all()
    shares = table["statistic"] != "sd"
    assert (table["upper"][shares] <= 1).all()
    assert (table["estimate"] + 2 * table["se"] > 1)[shares].any()
    assert (table["estimate"] - 2 * table["se"] < 0)[shares].any()


def test_a_share_of_all_is_not_certain():
    frame = simulated()
    design = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=12, weight="w")
    with pytest.warns(DataWarning, match="error of 0, which is not certainty: 'all persons'"):
        table = irt.tabulate(frame, "PV*", replicates=design, statistics=["at least 0", "mean"])
    assert np.isnan(table["upper"]).tolist() == [True, False]


def test_a_pattern_stands_for_numbers_alone():
    # as in a public file, PV* would be values of two domains
    frame = simulated().rename(columns={f"PV{m}": f"PV{m}MATH" for m in range(1, 6)})
    frame = frame.assign(**{f"PV{m}READ": 0.0 for m in range(1, 6)})
    wanted = r"\(a \* is a number\) 'PV\*'; 'PV\*MATH', 'PV\*READ' would; there are"
    with pytest.raises(InputError, match=wanted):
        irt.tabulate(frame, "PV*")
    with pytest.raises(InputError, match=r"'QV\*'; there are"):
        irt.tabulate(frame, "QV*")
    assert irt.tabulate(frame, "PV*READ")["estimate"][0] == 0


def test_wrong_input_is_named():
    frame = simulated()
    design = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=12, weight="w")

    def table(frame=frame, values="PV*", replicates=design, **options):
        return irt.tabulate(frame, values, replicates=replicates, **options)

    for change, message in (
        ({"values": "PX*"}, r"a number\) 'PX\*'"),
        ({"by": "region"}, "no column is 'region'"),
        ({"statistics": "p101"}, "percentiles lie between"),
        ({"statistics": ["mean", "mode"]}, "'mode'; there are"),
        ({"statistics": ["mean", "mean"]}, "'mean' twice"),
        ({"level": 1.0}, "level=1.0"),
        ({"frame": frame.assign(w=frame["w"].where(frame.index != 7))}, "row 8, column 'w': nan"),
        ({"frame": frame.assign(w=frame["w"].where(frame.index != 7, -1.0))},
         "row 8, column 'w': -1"),
        ({"frame": frame.assign(zone=frame["zone"] + 1)}, "13.0 is not a zone from 1 to 12"),
        ({"frame": frame.assign(PV2=frame["PV2"].where(frame.index != 9))},
         "row 10: 'PV2' is missing"),
        ({"frame": frame.assign(PV2=frame["PV2"].astype(object).where(frame.index != 9, "x"))},
         "row 10, column 'PV2': 'x' is not a number"),
        ({"frame": frame[:0]}, "has no rows"),
        ({"frame": frame[["PV1", "PV1"]]}, "'PV1' twice"),
        ({"replicates": irt.Replicates("jk1", "w")}, "1 column: 2 are the fewest"),
        ({"replicates": irt.Replicates("jkn", ["w", "zone"], scale=[1.0])},
         "1 values, and there are 2"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            table(**change)
    for options, message in (
        ({"method": "bootstrap"}, "replicates are"), ({"method": "fay"}, "Fay's factor"),
        ({"method": "brr", "fay": 0.5}, "Fay's factor"), ({"method": "jkn"}, "needs scale="),
        ({"method": "fay", "fay": 1.0}, "below 1"), ({"method": "jk1", "scale": 0.0}, "above 0"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            irt.Replicates(weights="w*", **options)
    with pytest.raises(InputError, match="is not one of"):
        irt.Replicates.preset("pirls_1")


def test_an_identifier_is_no_group(monkeypatch):
    monkeypatch.setattr(sums, "MOST_GROUPS", 50)
    with pytest.raises(InputError, match="more than 50 groups"):
        irt.tabulate(simulated(), "PV1", by="w")


def test_what_misleads_is_said():
    frame = simulated()
    design = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=12, weight="w")
    with pytest.warns(DataWarning, match="600 persons without 'sex'"):
        assert len(irt.tabulate(frame.assign(sex=None), "PV*", by="sex")) == 0
    rare = frame.assign(sex=np.where(frame.index < 3, "x", "f"))
    with pytest.warns(DataWarning, match="below 5 degrees of freedom and are rough: 'x'"):
        table = irt.tabulate(rare, "PV*", by="sex", replicates=design, statistics="mean")
    assert np.isfinite(table["se"]).all()
    one = frame.assign(sex=np.where(frame.index == 0, "x", "f"), unit=frame["unit"].where(
        frame.index != 0, 0))  # fmt: skip
    with pytest.warns(DataWarning, match=r"errors are not known \(NaN\): 'x'"):
        table = irt.tabulate(one, "PV*", by="sex", replicates=design, statistics="mean")
    assert np.isnan(table["se"]).tolist() == [False, True]
    without = irt.tabulate(frame, "PV*", weight="w")
    assert np.isnan(without["se"]).all()
    assert np.isfinite(without["se_imputation"]).all()


def test_one_command_from_a_public_file_to_a_table(tmp_path):
    rng = np.random.default_rng(5)
    n = 500
    frame = pd.DataFrame({f"PV{m}MATH": rng.normal(500, 100, n) for m in range(1, 11)})
    frame["CNT"], frame["ST004D01T"] = rng.choice(["AUT", "JPN"], n), rng.integers(1, 3, n)
    frame["W_FSTUWT"] = rng.uniform(1, 3, n)
    for r in range(1, 81):
        frame[f"W_FSTURWT{r}"] = frame["W_FSTUWT"] * rng.choice([0.5, 1.5], n)
    frame.to_csv(tmp_path / "pisa.csv", index=False)
    result = CliRunner().invoke(cli, [
        "tabulate", str(tmp_path / "pisa.csv"), "--values", "math=PV*MATH", "--by", "CNT", "--by",
        "ST004D01T", "--preset", "pisa", "--statistic", "mean", "--statistic", "at least 420",
        "--out", str(tmp_path / "table.csv"),
    ])  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "JPN" in result.output
    written = pd.read_csv(tmp_path / "table.csv")
    design = irt.Replicates.preset("pisa")
    wanted = irt.tabulate(
        frame, {"math": "PV*MATH"}, by=["CNT", "ST004D01T"], replicates=design,
        statistics=["mean", "at least 420"],
    )  # fmt: skip
    pd.testing.assert_frame_equal(written, wanted, check_dtype=False)
    assert os.fspath(tmp_path) not in result.output
    assert "not known without" not in result.output
    plain = CliRunner().invoke(
        cli, ["tabulate", str(tmp_path / "pisa.csv"), "--values", "PV*MATH", "--by", "CNT"]
    )
    assert "Errors of sampling are not known without sampling units" in plain.output
    again = CliRunner().invoke(cli, [
        "tabulate", str(tmp_path / "pisa.csv"), "--values", "PV1MATH", "--preset", "pisa",
        "--fay", "0.5",
    ])  # fmt: skip
    assert again.exit_code != 0
    assert "--preset says all" in str(again.exception or again.output)


def test_two_tables_are_joined(tmp_path: Path) -> None:
    """As the columns of one table; persons stand in another order, and some in one alone."""
    rng = np.random.default_rng(4)
    n = 300
    ids = [f"p{i}" for i in range(n)]
    scores = pd.DataFrame({"person_id": ids, **{f"pv{m}": rng.normal(size=n) for m in (1, 2, 3)}})
    about = pd.DataFrame({"id": ids, "sex": rng.choice(["f", "m"], n), "w": rng.uniform(1, 2, n)})
    options = {"by": "sex", "weight": "w", "statistics": "mean"}
    together = irt.tabulate(scores.assign(sex=about["sex"], w=about["w"]), "pv*", **options)
    shuffled = about.sample(frac=1.0, random_state=1)
    joined = irt.tabulate(scores, "pv*", join=shuffled, on=("person_id", "id"), **options)
    pd.testing.assert_frame_equal(joined, together)
    shuffled.to_csv(tmp_path / "about.csv", index=False)
    (tmp_path / "scores").mkdir()
    scores.to_parquet(tmp_path / "scores" / "part-0.parquet")
    of_files = irt.tabulate(
        tmp_path / "scores", "pv*", join=tmp_path / "about.csv", on=("person_id", "id"), **options
    )
    pd.testing.assert_frame_equal(of_files, together)
    regression = irt.regress(scores, "pv* ~ sex", join=about, on=("person_id", "id"), weight="w")
    assert len(regression) == 3
    with pytest.warns(DataWarning, match="100 persons of the table are not in the table"):
        irt.tabulate(scores[:200], "pv*", join=about, on=("person_id", "id"), **options)
    with pytest.raises(irt.InputError, match="has no row of 'p299'"):
        irt.tabulate(scores, "pv*", join=about[:299], on=("person_id", "id"), **options)
    with pytest.raises(irt.InputError, match="'p0' occurs twice"):
        irt.tabulate(
            scores, "pv*", join=pd.concat([about, about[:1]]), on=("person_id", "id"), **options
        )
    with pytest.raises(irt.InputError, match="no column of the table is 'person_id'"):
        irt.tabulate(scores, "pv*", join=about, **options)
    with pytest.raises(irt.InputError, match="both tables have 'pv1'"):
        irt.tabulate(scores, "pv*", join=scores[["person_id", "pv1"]])
