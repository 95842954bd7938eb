"""Logistic regressions against R's survey and a maximiser of the weighted likelihood."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.optimize import minimize
from test_group_gaps import figures, rubin, weights_of
from test_tabulate import REFERENCE, needs_reference, simulated, stratum_scales

import irt_dask as irt
from irt_dask.cli.main import cli
from irt_dask.errors import DataWarning, InputError, TooLargeError
from irt_dask.survey import logistic, tables

DESIGN = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=12, weight="w")


def maximum(x, y, w):
    """Coefficients that maximise the weighted likelihood, by scipy."""

    def loss(b):
        logit = x @ b
        p = 1 / (1 + np.exp(-logit))
        return (w * (np.logaddexp(0, logit) - y * logit)).sum(), x.T @ (w * (p - y))

    return minimize(loss, np.zeros(x.shape[1]), jac=True, method="BFGS",
                    options={"gtol": 1e-9}).x  # fmt: skip


@needs_reference
@pytest.mark.parametrize(("name", "method", "df"), [
    ("api_clus1_JK1", "jk1", 12), ("api_strat_JKn", "jkn", 195), ("api_paired_BRR", "brr", 48),
    ("api_paired_Fay", "fay", 48), ("api_paired_JK2", "jk2", 48),
])  # fmt: skip
def test_regressions_of_survey(name, method, df):
    wanted = json.loads((REFERENCE / "survey.json").read_text())[name]
    frame = pd.read_csv(REFERENCE / "data" / wanted["data"])
    scale = stratum_scales(frame) if method == "jkn" else None
    design = irt.Replicates(
        method, "rw*", weight="pw", fay=0.5 if method == "fay" else None, scale=scale
    )
    found = irt.regress(frame, "api00 >= 651 ~ ell + meals", family="logistic", replicates=design)
    theirs = pd.DataFrame(wanted["logit"])
    assert found["term"].tolist() == ["Intercept", "ell", "meals"]
    np.testing.assert_allclose(found["estimate"], theirs["est"], rtol=1e-6)
    assert found["df"].tolist() == [df] * 3
    # R's errors are about the mean of the replicates: smaller, by little
    ratio = found["se"].to_numpy() / theirs["se"]
    assert np.all((ratio >= 1 - 1e-6) & (ratio < 1.1))


def test_regressions_are_maxima_of_the_likelihood(monkeypatch):
    monkeypatch.setattr(tables, "_ROWS", 97)
    monkeypatch.setattr(logistic, "_PERSONS", 50)
    frame = simulated(n=400, n_values=2)
    frame["year"] = 2015 + frame.index % 4 + frame["sex"].eq("m") * 3.0
    found = irt.regress(
        frame, "PV* >= 520 ~ sex + year", family="logistic", by="country", replicates=DESIGN
    )
    for country, one in found.groupby("country"):
        part = frame[frame["country"] == country]
        x = np.stack([np.ones(len(part)), part["sex"] == "m", part["year"] - 2016], axis=1)
        x = x.astype(float)
        t = np.array([[maximum(x, (part[f"PV{m}"] >= 520).to_numpy() * 1.0, w) for m in (1, 2)]
                      for w in weights_of(part)])  # fmt: skip
        t[..., 0] -= 2016 * t[..., 2]
        wanted = [rubin(t[..., k]) for k in range(3)]
        np.testing.assert_allclose(figures(one), wanted, rtol=1e-5)
        assert one["term"].tolist() == ["Intercept", "sex[T.m]", "year"]
        assert set(one["n"]) == {len(part)}


def test_a_level_has_the_log_odds_of_its_share():
    frame = simulated()
    options = {"weight": "w", "family": "logistic"}
    shares = irt.tabulate(frame, "PV*", by="sex", weight="w", statistics="at least 600")["estimate"]
    frame["above"] = (frame["PV1"] >= 600).astype(int)
    share = irt.tabulate(frame, "PV1", by="sex", weight="w", statistics="at least 600")["estimate"]
    wanted = np.log(share / (1 - share))
    for formula in ("above ~ 0 + sex", "PV1 >= 600 ~ 0 + sex"):
        found = irt.regress(frame, formula, **options)
        np.testing.assert_allclose(found["estimate"], wanted, rtol=1e-9)
    found = irt.regress(frame, "PV* >= 600 ~ sex", **options)["estimate"]
    odds = np.log(shares / (1 - shares))
    np.testing.assert_allclose(found, [odds[0], odds[1] - odds[0]], rtol=0.02)
    # one in 4,000: from logits of -2 to -8
    rare = pd.DataFrame({"y": [1.0] + [0.0] * 3999})
    found = irt.regress(rare, "y ~ 1", family="logistic")
    np.testing.assert_allclose(found["estimate"], [-np.log(3999)], rtol=1e-9)


def test_what_parts_0_from_1_is_said():
    frame = simulated()
    frame["always"] = np.where(frame.index % 10 == 0, "yes", "no")
    frame.loc[frame["always"] == "yes", ["PV1", "PV2"]] = 900.0
    formula = "PV* >= 600 ~ always + sex"
    with pytest.warns(DataWarning, match=r"'always\[T.yes\]'. Join levels, or leave out") as said:
        found = irt.regress(frame, formula, family="logistic", replicates=DESIGN)
    assert "these terms part 0 from 1: all persons: 'always[T.yes]'" in str(said[0].message)
    assert found[["estimate", "se", "lower"]].isna().all(axis=None)
    # in a group alone: others have their estimates
    below = (frame["country"] != 2) & (frame.index % 20 == 0)
    some = frame.assign(PV1=frame["PV1"].mask(below, 300.0))
    with pytest.warns(DataWarning, match=r"part 0 from 1: 2: 'always\[T.yes\]'\. Join"):
        found = irt.regress(some, "PV1 >= 600 ~ always", family="logistic", by="country")
    assert found["estimate"].isna().groupby(found["country"]).any().tolist() == [False, True, False]
    # all of them above, and a number that parts them
    for formula, terms in (("PV* >= 0 ~ sex", "'Intercept'"), ("PV1 >= 500 ~ PV1", "'PV1'")):
        with pytest.warns(DataWarning, match=f"part 0 from 1: all persons: .*{terms}"):
            found = irt.regress(frame, formula, family="logistic", weight="w")
        assert found["estimate"].isna().all()


def test_replicates_without_a_maximum_are_said():
    frame = simulated(n_values=1)
    # of those with the rare level, the only ones below are in one unit
    frame["rare"] = np.where(frame["zone"] <= 3, "yes", "no")
    low = (frame["zone"] == 1) & (frame["unit"] == 0)
    frame["PV1"] = frame["PV1"].where(frame["rare"] == "no", np.where(low, 300.0, 700.0))
    with pytest.warns(DataWarning, match=r"some replicate there is no estimate.*rare\[T.yes\]"):
        found = irt.regress(frame, "PV1 >= 500 ~ rare", family="logistic", replicates=DESIGN)
    assert np.isfinite(found["estimate"]).all()
    assert found["se"].isna().all()


def test_terms_that_follow_from_others_and_wrong_input(monkeypatch):
    frame = simulated()
    frame["grade"] = np.where(frame["country"] == 2, "8", frame["sex"].map({"f": "8", "m": "9"}))
    with pytest.warns(DataWarning, match=r"follow from the terms .*\(NaN\): '2: grade\[T.9\]'$"):
        found = irt.regress(frame, "PV* >= 500 ~ grade + w", family="logistic", by="country")
    assert found["term"][found["estimate"].isna()].tolist() == ["grade[T.9]"]
    frame["twice"] = 2 * frame["w"]
    for formula, family, message in (
        ("PV* >= 500 ~ sex", "linear", "cut for family='logistic' alone"),
        ("PV* >= high ~ sex", "logistic", "'value >= number ~ terms'"),
        (">= 500 ~ sex", "logistic", "'value >= number ~ terms'"),
        ("PV* ~ sex", "probit", "family='probit' is not one of 'linear', 'logistic'"),
        ("country ~ sex", "logistic", "column 'country': [23] is neither 0 nor 1"),
        ("PV* >= 500 ~ w + twice", "logistic", "'twice' follows from"),
    ):
        with pytest.raises(InputError, match=message):
            irt.regress(frame, formula, family=family)
    monkeypatch.setattr(logistic, "MOST_BYTES", 1000)
    with pytest.raises(TooLargeError, match="1 groups, 13 weights, 5 plausible values and 2 terms"):
        irt.regress(frame, "PV* >= 500 ~ sex", family="logistic", replicates=DESIGN)


def test_the_shell_reaches_it(tmp_path):
    frame = simulated()
    frame.to_csv(tmp_path / "persons.csv", index=False)
    result = CliRunner().invoke(cli, [
        "regress", str(tmp_path / "persons.csv"), "PV* >= 500 ~ sex", "--family", "logistic",
        "--weight", "w", "--out", str(tmp_path / "t.csv"),
    ])  # fmt: skip
    assert result.exit_code == 0, result.output
    wanted = irt.regress(frame, "PV* >= 500 ~ sex", family="logistic", weight="w")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "t.csv"), wanted, check_dtype=False)


def test_steps_that_lower_the_likelihood_are_halved(monkeypatch):
    frame = simulated()
    options = {"family": "logistic", "replicates": DESIGN}
    wanted = irt.regress(frame, "PV* >= 520 ~ sex", **options)
    start = logistic._start
    # from here Newton's first step goes to logits about -15, and the next ones to infinity
    monkeypatch.setattr(logistic, "_start", lambda *given: np.full_like(start(*given), 3.0))
    pd.testing.assert_frame_equal(irt.regress(frame, "PV* >= 520 ~ sex", **options), wanted)


def test_no_pass_is_made_where_all_are_above(monkeypatch):
    monkeypatch.setattr(logistic, "read", lambda *_: pytest.fail("a pass"))
    with pytest.warns(DataWarning, match="part 0 from 1: all persons: 'Intercept'"):
        irt.regress(simulated(), "PV* >= 0 ~ sex", family="logistic", weight="w")
