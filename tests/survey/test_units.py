"""Errors from sampling units: replicates that leave out one school at a time."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import irt_dask as irt
from irt_dask import InputError
from irt_dask.cli.main import cli
from irt_dask.errors import DataWarning, TooLargeError
from irt_dask.survey import sums, tables, units

REFERENCE = Path(__file__).parents[3] / "shared" / "data" / "reference_r"


def schools(n_schools=36, seed=1):
    """Schools of unlike size in three regions, with weights and three plausible values."""
    rng = np.random.default_rng(seed)
    size = rng.integers(4, 12, n_schools)
    school = np.repeat(np.arange(n_schools), size)
    n = school.size
    ability = rng.normal(0, 0.5, n_schools)[school] + rng.normal(0, 1, n)
    frame = pd.DataFrame({"school": [f"S{s:02d}" for s in school], "w": rng.uniform(0.5, 2, n)})
    frame["region"] = np.array(["east", "north", "west"])[school % 3]
    frame["sex"] = rng.integers(0, 2, n)
    for m in range(3):
        frame[f"PV{m + 1}"] = ability + 0.3 * rng.normal(size=n)
    return frame.sample(frac=1, random_state=2).reset_index(drop=True)


def mean_of(frame, weight):
    return np.average(frame["PV1"], weights=weight)


def test_one_school_at_a_time_by_brute_force():
    frame = schools()
    w, t = frame["w"].to_numpy(), mean_of(frame, frame["w"])
    labels = frame["school"].unique()
    r = len(labels)
    one = [mean_of(frame, np.where(frame["school"] == s, 0, w)) for s in labels]
    jk1 = ((np.array(one) - t) ** 2).sum() * (r - 1) / r
    table = irt.tabulate(
        frame, "PV1", weight="w", statistics="mean", replicates=irt.Replicates.from_units("school")
    )
    np.testing.assert_allclose(table["se"], jk1**0.5, rtol=1e-10)
    assert table["df"].tolist() == [r - 1]

    jkn = 0.0
    for region in frame["region"].unique():
        inside = frame["region"] == region
        own = frame["school"][inside].unique()
        n = len(own)
        for s in own:
            left = np.where(frame["school"] == s, 0.0, np.where(inside, w * n / (n - 1), w))
            jkn += (n - 1) / n * (mean_of(frame, left) - t) ** 2
    design = irt.Replicates.from_units("school", "region", weight="w")
    table = irt.tabulate(frame, "PV1", statistics="mean", replicates=design)
    np.testing.assert_allclose(table["se"], jkn**0.5, rtol=1e-10)
    assert table["df"].tolist() == [r - 3]


def test_means_of_clusters_by_the_textbook():
    # Of clusters of one size the mean is that of their means, in strata by the strata's shares.
    rng = np.random.default_rng(5)
    n_h, size = np.array([5, 9]), 6
    stratum = np.repeat([0, 1], n_h * size)
    unit = np.arange(n_h.sum() * size) // size
    frame = pd.DataFrame({"stratum": stratum, "unit": unit, "w": np.where(stratum == 0, 3.0, 1.0)})
    frame["x"] = rng.normal(0, 1, n_h.sum())[unit] + rng.normal(size=unit.size)
    means = frame.groupby("unit")["x"].mean().to_numpy()
    design = irt.Replicates.from_units("unit")
    table = irt.tabulate(frame, "x", statistics="mean", replicates=design)
    np.testing.assert_allclose(table["se"] ** 2, means.var(ddof=1) / means.size, rtol=1e-10)
    share = np.array([3 * 5, 9]) / (3 * 5 + 9)
    within = [means[:5].var(ddof=1) / 5, means[5:].var(ddof=1) / 9]
    design = irt.Replicates.from_units("unit", "stratum", weight="w")
    table = irt.tabulate(frame, "x", statistics="mean", replicates=design)
    np.testing.assert_allclose(table["se"] ** 2, share**2 @ within, rtol=1e-10)


@pytest.mark.parametrize(("name", "strata"), [("api_clus1_JK1", None), ("api_strat_JKn", "stype")])
def test_errors_are_those_of_survey(name, strata):
    if not REFERENCE.is_dir():
        pytest.skip("the reference estimates are not beside the checkout")
    wanted = json.loads((REFERENCE / "survey.json").read_text())[name]
    frame = pd.read_csv(REFERENCE / "data" / wanted["data"])
    weights = frame[[c for c in frame if c.startswith("rw")]].to_numpy()
    frame = frame[["api00", "pw", *([strata] if strata else [])]].copy()
    frame["unit"] = np.argmin(weights, axis=1)  # that which a replicate leaves out
    assert frame["unit"].nunique() == wanted["nrep"]
    design = irt.Replicates.from_units("unit", strata, weight="pw")
    table = irt.tabulate(frame, "api00", statistics="mean", replicates=design)
    (row,) = [r for r in wanted["mean_mse_true"] if r["term"] == "api00"]
    np.testing.assert_allclose(
        table.loc[0, ["estimate", "se"]].astype(float), [row["est"], row["se"]], rtol=1e-9
    )


@pytest.mark.parametrize("strata", [None, "region"])
def test_columns_of_the_same_weights_say_the_same(strata, tmp_path, monkeypatch):
    frame = schools()
    labels = (
        frame[["region", "school"]]
        .drop_duplicates()
        .sort_values(["region", "school"] if strata else "school")
    )
    scales = []
    for k, (region, school) in enumerate(labels.itertuples(index=False)):
        inside = (frame["region"] == region) if strata else np.full(len(frame), True)
        n = frame["school"][inside].nunique()
        factor = np.where(frame["school"] == school, 0, np.where(inside, n / (n - 1), 1))
        frame[f"r{k}"] = frame["w"] * factor
        scales.append((n - 1) / n)
    wanted = irt.Replicates(
        "jkn" if strata else "jk1", "r*", weight="w", scale=scales if strata else None
    )
    design = irt.Replicates.from_units("school", strata, weight="w")
    options = {"by": "sex", "gaps": "sex", "statistics": ["mean", "sd", "p50", "at least 0"]}
    made, given = (
        irt.tabulate(frame, {"x": "PV*"}, replicates=d, **options) for d in (design, wanted)
    )
    pd.testing.assert_frame_equal(made, given)
    formula = "PV* ~ C(sex)"
    pd.testing.assert_frame_equal(
        irt.regress(frame, formula, replicates=design),
        irt.regress(frame, formula, replicates=wanted),
    )
    # a file in batches, and few persons at a time where replicates are many
    frame.to_csv(tmp_path / "p.csv", index=False)
    monkeypatch.setattr(sums, "_NUMBERS", 37 * 50)
    table = irt.tabulate(tmp_path / "p.csv", {"x": "PV*"}, replicates=design, **options)
    pd.testing.assert_frame_equal(made, table, check_dtype=False)


def test_units_that_stand_in_a_table_that_is_joined(tmp_path):
    frame = schools().rename_axis("person_id").reset_index()
    persons = frame[["person_id", "school", "region", "w"]].sample(frac=1, random_state=1)
    scores = frame.drop(columns=["school", "region", "w"])
    design = irt.Replicates.from_units("school", "region", weight="w")
    joined = irt.tabulate(scores, "PV*", replicates=design, join=persons)
    pd.testing.assert_frame_equal(joined, irt.tabulate(frame, "PV*", replicates=design))


def test_labels_may_be_used_again_in_another_stratum():
    frame = schools()
    numbered = frame.assign(
        unit=frame.groupby("region")["school"].transform(lambda s: pd.factorize(s)[0])
    )
    a = irt.tabulate(numbered, "PV1", replicates=irt.Replicates.from_units("unit", "region"))
    b = irt.tabulate(frame, "PV1", replicates=irt.Replicates.from_units("school", "region"))
    np.testing.assert_allclose(a["se"], b["se"], rtol=1e-12)
    moved = frame.assign(region=frame["region"].where(frame.index != 0, "south"))
    moved.loc[1, "region"] = "south"
    assert moved["school"][0] != moved["school"][1]
    with pytest.warns(DataWarning, match="2 of the 36 labels of 'school' stand in several strata"):
        irt.tabulate(moved, "PV1", replicates=irt.Replicates.from_units("school", "region"))


def test_what_is_wrong_with_units(monkeypatch):
    frame = schools()

    def table(frame=frame, strata=None, unit="school"):
        return irt.tabulate(frame, "PV1", replicates=irt.Replicates.from_units(unit, strata))

    alone = frame.assign(region=frame["region"].where(frame["school"] != "S07", "isle"))
    with pytest.raises(InputError, match=r"'isle' has one unit alone \(column 'school': 'S07'\)"):
        table(alone, "region")
    with pytest.raises(InputError, match="all persons are of one sampling unit, 'S01'"):
        table(frame.assign(school="S01"))
    for missing in (None, np.nan, ""):
        with pytest.raises(InputError, match="row 5, column 'school' is empty"):
            table(frame.assign(school=frame["school"].where(frame.index != 4, missing)))
    with pytest.raises(InputError, match="row 5, column 'region' is empty"):
        table(frame.assign(region=frame["region"].where(frame.index != 4, None)), "region")
    with pytest.raises(InputError, match="no column is 'village'"):
        table(unit="village")
    with pytest.raises(InputError, match="has no rows"):
        table(frame[:0])
    with pytest.raises(InputError, match="give it as units='school'"):
        irt.tabulate(frame, "PV1", replicates=irt.Replicates("jk1", "school"))
    for method, strata, message in (
        ("brr", None, "'brr' is not made from units"), ("jk1", "region", "method='jkn'"),
        ("jkn", None, "without method='jk1'"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            irt.Replicates(method, units.Units("school", strata))
    monkeypatch.setattr(units, "MOST_UNITS", 30)
    with pytest.raises(TooLargeError, match="'school' has more than 30 sampling units"):
        table()


def test_few_units_have_few_degrees_of_freedom():
    frame = schools(n_schools=5)
    with pytest.warns(DataWarning, match="below 5 degrees of freedom"):
        table = irt.tabulate(
            frame, "PV1", statistics="mean", replicates=irt.Replicates.from_units("school")
        )
    assert table["df"].tolist() == [4]


@pytest.fixture
def file(tmp_path):
    schools().to_csv(tmp_path / "persons.csv", index=False)
    return tmp_path / "persons.csv"


def shell(*words):
    return CliRunner().invoke(cli, [str(w) for w in words])


@pytest.mark.parametrize(("method", "strata"), [(None, None), ("jk1", None), (None, "region"),
                                                ("jkn", "region")])  # fmt: skip
def test_schools_are_named_in_the_shell(file, method, strata):
    options = (["--method", method] if method else []) + (["--strata", strata] if strata else [])
    formula = "PV* ~ region"
    for words, call in (
        (["tabulate", file, "--values", "x=PV*", "--gaps", "sex"],
         lambda **o: irt.tabulate(file, {"x": "PV*"}, by="sex", gaps="sex", **o)),
        (["regress", file, formula], lambda **o: irt.regress(file, formula, by="sex", **o)),
    ):  # fmt: skip
        done = shell(
            *words, "--by", "sex", "--weight", "w", "--units", "school", *options, "--json"
        )
        assert done.exit_code == 0, done.output
        design = irt.Replicates.from_units("school", strata)
        wanted = call(weight="w", replicates=design)["se"]
        found = [row["se"] for row in json.loads(done.stdout)["rows"]]
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize(("options", "message"), [
    (["--replicates", "school", "--method", "jk1"],
     "--replicates school is 1 column: 2 are the fewest. If it says which sampling unit (school, "
     "village) a person is of, give it as --units school"),
    (["--units", "school", "--method", "jkn"], "--method jkn: of --units it is jk1"),
    (["--units", "school", "--strata", "region", "--method", "jk1"], "and with --strata jkn"),
    (["--strata", "region"], "--strata are those of --units"),
    (["--units", "school", "--replicates", "w*"], "leave out --replicates"),
    (["--units", "school", "--fay", ".5"], "--units makes replicate weights: leave out --fay"),
    (["--units", "school", "--zone", "region"], "leave out --zone"),
    (["--zone", "region", "--method", "jk2"], "--zone, --unit and --method (brr, fay, jk2, "),
    (["--zone", "region", "--unit", "school"], "belong together"),
    (["--zone", "region", "--unit", "school", "--method", "jk1"], "'jk1' is not made from zones"),
    (["--zone", "region", "--unit", "school", "--method", "jk2", "--scale", "1"],
     "leave out --scale"),
    (["--fay", ".5"], "--fay and --scale are of a --method"),
    (["--replicates", "PV*", "--method", "jkn", "--scale", "1,a"], "--scale '1,a': give a number"),
    (["--replicates", "PV*", "--method", "jkn", "--scale", "1,1"],
     "--scale has 2 values, and there are 3 replicates"),
    (["--replicates", "PV*", "--method", "jkn"], "--method jkn needs --scale, (n_h - 1) / n_h"),
    (["--zone", "region", "--unit", "school", "--method", "jk2"],
     "units of column 'school', and 'east' has 12 ('S00', 'S03', 'S06', 'S09', 'S12' and 7 more),"),
    (["--units", "school", "--preset", "pisa"], "--preset says all of"),
])  # fmt: skip
def test_the_shell_says_what_goes_together(file, options, message):
    done = shell("tabulate", file, "--values", "PV*", *options)
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)


def paired(n_zones=9):
    """Persons of pairs of units: the zone's number, which of its units, and labels of both."""
    frame = schools(2 * n_zones)
    number = frame["school"].str[1:].astype(int)
    frame = frame.assign(zone=number // 2 + 1, half=number % 2, psu=number % 2 + 1)
    frame["block"] = [f"z{k:02d}" for k in frame["zone"]]
    return frame


@pytest.mark.parametrize("method", ["jk2", "jk2_both", "brr", "fay"])
def test_zones_and_their_units_have_any_labels(method, monkeypatch):
    monkeypatch.setattr(tables, "_ROWS", 50)  # batches that lack zones
    frame, fay = paired(24), 0.3 if method == "fay" else None
    options = {"by": "sex", "statistics": ["mean", "p50"]}

    def table(frame, zone, unit, **more):
        design = irt.Replicates.from_zones(method, zone, unit, fay=fay, weight="w", **more)
        return irt.tabulate(frame, "PV1", replicates=design, **options)

    wanted = table(frame, "zone", "half", n_zones=24)
    for zone, unit in (("zone", "half"), ("block", "psu"), ("block", "school"), ("zone", "psu")):
        pd.testing.assert_frame_equal(table(frame, zone, unit), wanted, check_exact=True)
    sparse = frame.assign(zone=frame["zone"] * 10.0)  # as where others are missing
    pd.testing.assert_frame_equal(table(sparse, "zone", "psu"), wanted, check_exact=True)
    design = irt.Replicates.from_zones(method, "block", "school", fay=fay, weight="w")
    old = irt.Replicates.from_zones(method, "zone", "half", n_zones=24, fay=fay, weight="w")
    pd.testing.assert_frame_equal(
        irt.regress(frame, "PV* ~ sex", replicates=design),
        irt.regress(frame, "PV* ~ sex", replicates=old),
    )


def test_a_zone_is_a_pair():
    frame = paired()

    def table(frame, zone="block", unit="school", **more):
        design = irt.Replicates.from_zones("jk2", zone, unit, **more)
        return irt.tabulate(frame, "PV1", replicates=design)

    with pytest.raises(InputError, match=r"'z02' has 1 \('S02'\): put one unit alone"):
        table(frame[frame["school"] != "S03"])
    moved = frame.assign(block=frame["block"].where(frame["school"] != "S03", "z01"))
    with pytest.raises(InputError, match=r"'z01' has 3 \('S00', 'S01', 'S03'\), 'z02' has 1"):
        table(moved)
    with pytest.raises(InputError, match="has the one zone 'z01': there must be 2"):
        table(frame[frame["zone"] == 1])
    for name in ("block", "school"):
        with pytest.raises(InputError, match=f"row 5, column '{name}' is empty"):
            table(frame.assign(**{name: frame[name].where(frame.index != 4, None)}))
    with pytest.raises(InputError, match="has no rows"):
        table(frame[:0])
    with pytest.raises(InputError, match=r"2\.0 is not unit 0 or 1; Replicates\.from_zones wi"):
        table(frame, "zone", "psu", n_zones=9)
    with pytest.raises(InputError, match="n_zones=1: there must be 2 zones"):
        table(frame, n_zones=1)


@pytest.mark.parametrize("method", ["jk2", "jk2_both", "brr", "fay"])
def test_pairs_of_units_are_named_in_the_shell(method, tmp_path):
    frame, path, fay = paired(), tmp_path / "persons.csv", 0.5 if method == "fay" else None
    frame.to_csv(path, index=False)
    options = ["--zone", "block", "--unit", "school", "--method", method, "--weight", "w",
               *(["--fay", fay] if fay else []), "--json"]  # fmt: skip
    design = irt.Replicates.from_zones(method, "zone", "half", n_zones=9, fay=fay, weight="w")
    for words, wanted in (
        (["tabulate", path, "--values", "PV*"], irt.tabulate(frame, "PV*", replicates=design)),
        (["regress", path, "PV* ~ sex"], irt.regress(frame, "PV* ~ sex", replicates=design)),
    ):
        done = shell(*words, *options)
        assert done.exit_code == 0, done.output
        found = [row["se"] for row in json.loads(done.stdout)["rows"]]
        np.testing.assert_allclose(found, wanted["se"], rtol=1e-12)


def test_replicates_of_strata_have_a_scale_in_the_shell(tmp_path):
    frame, path = paired(), tmp_path / "persons.csv"
    names = [f"r{k}" for k in range(18)]
    number = frame["school"].str[1:].astype(int).to_numpy()
    same, own = number[:, None] // 2 == np.arange(18) // 2, number[:, None] == np.arange(18)
    frame[names] = frame[["w"]].to_numpy() * np.where(own, 0.0, np.where(same, 2.0, 1.0))
    frame.to_csv(path, index=False)
    wanted = irt.tabulate(
        frame, "PV*", replicates=irt.Replicates.from_units("school", "zone", weight="w")
    )
    for scale in (".5", ",".join(["0.5"] * 18)):
        done = shell("tabulate", path, "--values", "PV*", "--replicates", "r*", "--method", "jkn",
                     "--scale", scale, "--weight", "w", "--json")  # fmt: skip
        assert done.exit_code == 0, done.output
        found = [row["se"] for row in json.loads(done.stdout)["rows"]]
        np.testing.assert_allclose(found, wanted["se"], rtol=1e-12)


def test_zones_of_a_preset_that_are_others_are_said(tmp_path):
    frame = paired().rename(columns={"zone": "JKZONE", "psu": "JKREP", "w": "TOTWGT"})
    frame.to_csv(tmp_path / "persons.csv", index=False)
    done = shell("tabulate", tmp_path / "persons.csv", "--values", "PV*", "--preset", "timss")
    assert "--zone, --unit and --method in place of --preset take any" in str(done.exception)


def test_the_shell_says_that_no_weight_was_given(tmp_path):
    frame = schools()
    number = frame["school"].factorize()[0] % 12
    out = np.where(number[:, None] == np.arange(12), 0.0, 12 / 11)
    weights = pd.DataFrame(frame[["w"]].to_numpy() * 50 * out, columns=[f"r{k}" for k in range(12)])
    pd.concat([frame, weights], axis=1).to_csv(tmp_path / "persons.csv", index=False)
    done = shell("tabulate", tmp_path / "persons.csv", "--values", "PV*", "--replicates", "r*",
                 "--method", "jk1")  # fmt: skip
    assert isinstance(done.exception, InputError)
    assert "no weight was given" in str(done.exception)
    assert "give --weight the column of the full sample's weight" in str(done.exception)


def test_without_a_design_the_shell_points_to_units(file):
    done = shell("tabulate", file, "--values", "PV*")
    assert "--units COLUMN (schools)" in done.output
