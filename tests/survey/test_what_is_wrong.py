"""Data on which a table would be wrong, and what is said of them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.errors import DataWarning, InputError
from irt_dask.survey.replicates import METHODS

N, ZONES = 240, 12
DESIGN = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=ZONES, weight="w")


def persons(seed=1, values=3):
    rng = np.random.default_rng(seed)
    ability = rng.normal(500, 100, N)
    frame = pd.DataFrame({f"PV{m}": ability + rng.normal(0, 30, N) for m in range(1, values + 1)})
    return frame.assign(
        zone=np.arange(N) % ZONES + 1, unit=np.arange(N) // ZONES % 2, w=rng.uniform(50, 150, N),
        x=rng.standard_normal(N), person_id=np.arange(N),
    )  # fmt: skip


def factors(frame):
    """Those of JK2, (persons, zones)."""
    out = np.ones((N, ZONES))
    out[np.arange(N), frame["zone"] - 1] = 2.0 * frame["unit"]
    return out


@pytest.mark.parametrize("method", ["jk2", "fay"])
@pytest.mark.parametrize("unit", [0, 1])
def test_a_single_sampling_unit_says_nothing_of_others(method, unit):
    # Replicates weigh all of it alike, so that the error of sampling came out as 0, and se as that
    # of imputation alone.
    frame = persons()
    frame["region"] = np.where((frame["zone"] == 3) & (frame["unit"] == unit), "one", "rest")
    fay = 0.5 if method == "fay" else None
    design = irt.Replicates.from_zones(method, "zone", "unit", n_zones=ZONES, fay=fay, weight="w")
    names = ["weight", "mean", "sd", "p50", "at least 500"]
    with pytest.warns(DataWarning, match=r"one sampling unit, errors are not known \(NaN\): 'one'"):
        table = irt.tabulate(frame, "PV*", by="region", replicates=design, statistics=names)
    of_one = table[table["region"] == "one"]
    assert np.isnan(of_one[["se", "se_sampling", "df", "lower", "upper"]][1:].to_numpy()).all()
    assert np.isfinite(of_one["estimate"]).all()
    assert (of_one["se_sampling"][:1] > 0).all()  # the region might have been in another sample
    assert np.isfinite(table.loc[table["region"] == "rest", "se"]).all()
    with pytest.warns(DataWarning, match="errors are not known"):  # nor of the gap
        gaps = irt.tabulate(
            frame, "PV*", by="region", gaps="region", replicates=design, statistics="mean"
        )
    assert np.isnan(gaps["se"]).tolist() == [True, False, True]
    with pytest.warns(DataWarning, match="errors are not known"):
        found = irt.regress(frame, "PV* ~ 1", by="region", replicates=design)
    assert np.isnan(found["se"]).tolist() == [True, False]


def test_an_error_of_0_is_not_certainty():
    frame = persons().assign(grade=5.0)
    frame["score"] = np.round(frame["PV1"] / 400)  # the median is the same in every replicate
    with pytest.warns(DataWarning, match="no replicate moves an estimate"):
        table = irt.tabulate(frame, "score", replicates=DESIGN, statistics=["p50", "mean"])
    assert (table["se"] == 0.0).tolist() == [True, False]
    with pytest.warns(DataWarning, match="no replicate moves an estimate"):
        irt.tabulate(frame, "grade", replicates=DESIGN)


@pytest.mark.parametrize("method", METHODS)
def test_weights_of_their_method_are_as_they_should_be(method):
    # Of one person's weights, sum of c (w_r / w - 1)^2 is 1 in every design.
    frame = persons()
    rng = np.random.default_rng(3)
    if method in ("jk1", "jkn"):
        unit = frame["zone"] if method == "jk1" else frame["zone"] * 2 + frame["unit"] - 2
        own = unit.to_numpy()[:, None] == np.arange(1 if method == "jk1" else 0, unit.max() + 1)
        of_others = (
            np.where(own, 0.0, ZONES / (ZONES - 1))
            if method == "jk1"
            else np.where(
                own, 0.0, np.where(own.reshape(N, ZONES, 2)[:, :, ::-1].reshape(N, -1), 2.0, 1.0)
            )
        )
        frame[[f"r{r}" for r in range(own.shape[1])]] = frame[["w"]].to_numpy() * of_others
        frame.iloc[:, -own.shape[1] :] *= rng.uniform(0.9, 1.1, (N, own.shape[1]))  # adjusted
        scale = 0.5 if method == "jkn" else None
        design = irt.Replicates(method, "r*", weight="w", scale=scale)
    else:
        fay = 0.3 if method == "fay" else None
        design = irt.Replicates.from_zones(
            method, "zone", "unit", n_zones=ZONES, weight="w", fay=fay
        )
    assert np.isfinite(irt.tabulate(frame, "PV1", replicates=design)["se"]).all()


@pytest.mark.parametrize("wrong", ["brr", "factors", "fay", "both"])
def test_replicates_of_another_method_are_said(wrong):
    frame = persons()
    f = factors(frame)
    if wrong == "fay":  # Fay's by .5, taken for half samples
        f = np.random.default_rng(2).choice([0.5, 1.5], f.shape)
    own = f if wrong == "factors" else frame[["w"]].to_numpy() * f
    frame[[f"r{r}" for r in range(ZONES)]] = own
    method = {"brr": "brr", "fay": "brr", "both": "jk2_both"}.get(wrong, "jk2")
    design = irt.Replicates(method, "r*", weight="w")
    with pytest.warns(DataWarning, match=f"do not go with method='{method}'"):
        irt.tabulate(frame, "PV*", replicates=design, statistics="mean")
    with pytest.warns(DataWarning, match=f"do not go with method='{method}'"):
        irt.regress(frame, "PV* ~ x", replicates=design)


def fays(rng, n_replicates):
    return rng.choice([0.5, 1.5], (N, n_replicates))


@pytest.mark.parametrize("method", ["jk2", "jk1", "fay"])
@pytest.mark.parametrize("mean", [1.0, 100.0])
def test_replicates_of_a_weight_that_was_not_given_are_refused(method, mean):
    # Estimates counted each person once; the warning blamed the method, and errors that were right
    # for other estimates. Weights that are 1 in the mean are told too.
    frame = persons()
    rng = np.random.default_rng(4)
    left_out = frame[["zone"]].to_numpy() == np.arange(1, ZONES + 1)
    own = {
        "jk2": factors(frame), "jk1": np.where(left_out, 0, ZONES / (ZONES - 1)),
        "fay": fays(rng, 80),
    }[method]  # fmt: skip
    names = [f"r{r}" for r in range(own.shape[1])]
    weights = frame["w"].to_numpy() / frame["w"].mean() * mean
    fay = 0.5 if method == "fay" else None
    design = irt.Replicates(method, "r*", fay=fay)
    frame = frame.assign(w=weights)
    frame[names] = weights[:, None] * own
    with pytest.raises(InputError, match=r"no weight was given.* in the mean.*give weight="):
        irt.tabulate(frame, "PV*", replicates=design, statistics="mean")
    with pytest.raises(InputError, match="no weight was given"):
        irt.regress(frame, "PV* ~ x", replicates=design)
    table = irt.tabulate(frame, "PV*", replicates=design, weight="w", statistics="mean")
    assert (table["se"] > 0).all()


@pytest.mark.parametrize("method", ["jk2", "jk2 of 2 zones", "jk1", "fay", "brr of 16"])
def test_persons_who_count_once_may_have_replicates(method):
    frame = persons()
    rng = np.random.default_rng(4)
    left_out = frame[["zone"]].to_numpy() == np.arange(1, ZONES + 1)
    own = {
        "jk2": factors(frame), "jk1": np.where(left_out, 0, ZONES / (ZONES - 1)),
        "jk2 of 2 zones": np.where((frame[["zone"]] % 2).to_numpy() == [0, 1],
                                   2.0 * frame[["unit"]].to_numpy(), 1.0),
        "fay": fays(rng, 80), "brr of 16": rng.choice([0.0, 2.0], (N, 16)),
    }[method]  # fmt: skip
    frame[[f"r{r}" for r in range(own.shape[1])]] = own * rng.uniform(0.97, 1.03, own.shape)
    fay = 0.5 if method == "fay" else None
    design = irt.Replicates(method.split()[0], "r*", fay=fay)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "intervals have below 5")
        assert (irt.tabulate(frame, "PV*", replicates=design, statistics="mean")["se"] > 0).all()
    wrong = irt.Replicates("jk2_both" if method == "jk2" else "jk2", "r*")
    if method in ("jk2", "fay"):
        with pytest.warns(DataWarning, match=r"no weight was given \(weight=\).*do not go with"):
            irt.tabulate(frame, "PV*", replicates=wrong, statistics="mean")


def public(preset):
    """A table with the columns of a survey: PISA's 80 replicate weights, NAEP's 62."""
    rng = np.random.default_rng(7)
    weight, pattern, n = {
        "pisa": ("W_FSTUWT", "W_FSTURWT{}", 80), "pisa_2012": ("W_FSTUWT", "W_FSTR{}", 80),
        "naep": ("ORIGWT", "SRWT{:02d}", 62),
    }[preset]  # fmt: skip
    frame = persons(values=5).rename(columns={"w": weight})
    own = np.ones((N, n))
    if preset == "naep":
        own[np.arange(N), np.arange(N) % n] = 2.0 * frame["unit"]
    else:
        own = fays(rng, n)
    names = [pattern.format(r) for r in range(1, n + 1)]
    return frame.assign(**dict(zip(names, (own * frame[[weight]].to_numpy()).T, strict=True)))


@pytest.mark.parametrize(("preset", "lost", "message"), [
    ("pisa", ["W_FSTURWT80"], r"'W_FSTURWT\*' is 79 columns, and PISA has 80: 'W_FSTURWT80' is"),
    ("pisa", ["W_FSTURWT1", "W_FSTURWT9"], r"is 78 columns.*: 'W_FSTURWT1', 'W_FSTURWT9' are miss"),
    ("pisa_2012", ["W_FSTR7"], r"'W_FSTR\*' is 79 columns, and PISA has 80: 'W_FSTR7' is missing"),
    ("naep", ["SRWT07"], r"'SRWT\*' is 61 columns, and NAEP has 62: 'SRWT07' is missing"),
    ("pisa", ["PV3"], r"of 'PV\*' there are 4 columns, without 'PV3'"),
])  # fmt: skip
def test_columns_that_are_missing_are_named(preset, lost, message):
    # 79 of 80 replicates were taken for all, and 4 of 5 values.
    frame = public(preset)
    design = irt.Replicates.preset(preset)
    irt.tabulate(frame, "PV*", replicates=design, statistics="mean")
    with pytest.warns(DataWarning, match=message):
        irt.tabulate(frame.drop(columns=lost), {"y": "PV*"}, replicates=design, statistics="mean")
    with pytest.warns(DataWarning, match=message):
        irt.regress(frame.drop(columns=lost), "PV* ~ x", replicates=design)


def test_more_columns_than_a_survey_has_are_said():
    frame = public("pisa").assign(W_FSTURWT81=lambda f: f["W_FSTURWT80"])
    with pytest.warns(DataWarning, match="is 81 columns, and PISA has 80: estimates and errors"):
        irt.tabulate(frame, "PV*", replicates=irt.Replicates.preset("pisa"), statistics="mean")


def test_numbers_of_columns_may_begin_anywhere():
    frame = persons().rename(columns={"PV1": "PV0", "PV2": "PV1", "PV3": "PV2"})
    frame["a*"], frame["v2018"], frame["v2022"] = 1.0, frame["x"], frame["x"] + 1
    for values in ("PV*", "a*", "v*", ["PV0", "PV2"]):
        irt.tabulate(frame, values, statistics="mean")  # without a warning


def test_persons_whom_no_replicate_has_are_said():
    frame = persons()
    frame[[f"r{r}" for r in range(ZONES)]] = frame[["w"]].to_numpy() * factors(frame)
    frame.loc[7, [f"r{r}" for r in range(ZONES)]] = 0.0
    with pytest.warns(DataWarning, match="1 persons with a weight have none in any replicate"):
        irt.tabulate(frame, "PV1", replicates=irt.Replicates("jk2", "r*", weight="w"))


def test_who_is_joined_must_be_known():
    frame = persons()
    scores, about = frame[["PV1", "PV2", "person_id"]], frame[["person_id", "x", "unit"]]
    wanted = irt.tabulate(frame[["PV1", "PV2", "unit"]], "PV*", by="unit", statistics="mean")
    # Numbers are the same whatever their type in a file: 7 and 7.0.
    as_float = about.astype({"person_id": float})
    found = irt.tabulate(scores, "PV*", by="unit", statistics="mean", join=as_float)
    pd.testing.assert_frame_equal(found, wanted)
    # Persons without an identifier were all joined with the one who lacks it there.
    lacking = scores.astype({"person_id": float})
    lacking.loc[5:9, "person_id"] = np.nan
    other = as_float.copy()
    other.loc[0, "person_id"] = np.nan
    with pytest.raises(InputError, match="has no person_id in row 1"):
        irt.tabulate(scores, "PV*", by="unit", join=other)
    with pytest.raises(InputError, match="has no person_id in row 6"):
        irt.tabulate(lacking, "PV*", by="unit", join=about)
    twice = pd.concat([scores, scores[:7]])
    with pytest.warns(DataWarning, match="7 persons are in several rows of the table, and count"):
        irt.tabulate(twice, "PV*", by="unit", join=about)


@pytest.mark.parametrize("family", ["linear", "logistic"])
def test_a_group_without_weight_has_no_regression(family):
    frame = persons().assign(third=np.arange(N) % 3)
    frame.loc[frame["third"] == 1, "w"] = 0.0
    left = "PV* >= 500" if family == "logistic" else "PV*"
    with pytest.warns(DataWarning, match="or nobody has weight there"):
        table = irt.regress(frame, f"{left} ~ x", family=family, by="third", replicates=DESIGN)
    found = table.groupby("third")["estimate"].apply(lambda x: x.notna().all())
    assert found.tolist() == [True, False, True]


def test_values_that_do_not_differ_have_no_r_squared():
    with pytest.warns(DataWarning, match="where values do not differ .NaN.: 'all persons: R sq"):
        irt.regress(persons().assign(y=5.0), "y ~ x", replicates=DESIGN)


def test_groups_without_values_are_said():
    frame = persons().assign(third=np.arange(N) % 3)
    frame.loc[frame["third"] == 2, ["PV1", "PV2", "PV3"]] = np.nan
    with pytest.warns(DataWarning, match=r"nobody has a value of 'PV\*' in '2'"):
        table = irt.tabulate(frame, "PV*", by="third", statistics="mean")
    assert table["third"].tolist() == [0, 1]


def test_progress_is_told(tmp_path):
    frame, told = persons(), []
    frame.to_parquet(tmp_path / "persons.parquet")
    frame.to_csv(tmp_path / "persons.csv", index=False)

    def tell(*what):
        told.append(what)

    irt.tabulate(frame, "PV*", progress=tell)
    irt.tabulate(tmp_path / "persons.parquet", "PV*", progress=tell)
    irt.tabulate(tmp_path / "persons.csv", "PV*", progress=tell)
    assert told == [("tables", N, N)] * 2 + [("tables", N, None)]
    told.clear()
    irt.regress(frame, "PV* >= 500 ~ x", family="logistic", replicates=DESIGN, progress=tell)
    stages = dict.fromkeys(stage for stage, *_ in told)
    assert list(stages) == ["regressions", "logistic regressions, passes",
                            "logistic regressions, passes of replicates"]  # fmt: skip


def test_best_guesses_are_named(tmp_path):
    """EAPs by the SD beside them; other estimates, and other people's columns, are not."""
    rng = np.random.default_rng(1)
    scores = pd.DataFrame({
        "person_id": [f"p{k}" for k in range(40)], "person_ability": rng.normal(size=40),
        "sex": ["f", "m"] * 20, "zone": np.arange(40) // 4 + 1, "unit": np.arange(40) % 2,
    })  # fmt: skip
    design = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=10)

    def told(table, values):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            irt.tabulate(table, values, by="sex", replicates=design, statistics="mean")
        return [str(w.message) for w in caught if "best guesses vary less" in str(w.message)]

    eap, wle = (scores.assign(**{f"person_ability_{e}": 0.5}) for e in ("sd", "se"))
    assert len(said := told(eap, {"math": "person_ability"})) == 1
    assert said[0].startswith("'math' is person_ability")
    assert not told(wle, {"math": "person_ability"})
    assert not told(scores.rename(columns={"person_ability": "x"}), "x")
    with pytest.warns(DataWarning, match="best guesses vary less"):
        irt.regress(eap, "person_ability ~ sex", replicates=design)
