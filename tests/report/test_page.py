"""What the report page holds for its script: curves, bands, flags, results, CSV; and its words."""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from categories import ITEMS, category_probability
from scipy import integrate, stats

import irt_dask as irt
from irt_dask.report import (
    downloads,
    fitted,
    flags,
    glance,
    item_columns,
    item_data,
    methods,
    page,
    person_tests,
    precision,
)  # fmt: skip
from irt_dask.report.tables import Table

NASTY = ['</script><script>alert("1")', "=1+1", 'q"&amp;<!--', "Größe, β₁\u2028", "@SUM(A1)"]
ABILITY = np.linspace(-4.0, 4.0, 33)


def bank(ids=NASTY, **more) -> xr.Dataset:
    """2PL items with standard errors."""
    g = np.random.default_rng(3)
    n = len(ids)
    a, d = np.exp(0.3 * g.normal(size=n)), g.normal(size=n)
    data = {
        "item_discrimination": a, "item_intercept": d, "item_difficulty": -d / a,
        "item_discrimination_se": 0.1 * a, "item_intercept_se": np.full(n, 0.08),
    } | more  # fmt: skip
    attrs = {
        "method": "marginal maximum likelihood", "model": "2pl", "n_persons": 1234,
        "identification": "ability N(0, 1); a > 0", "converged": 1, "n_iterations": 9,
        "latent": "normal", "version": "0.1.0",
    }  # fmt: skip
    ids = np.array(ids, dtype=object)
    return xr.Dataset(
        {k: ("items", v) for k, v in data.items()}, {"item_id": ("items", ids)}, attrs
    )


def one(**values) -> xr.Dataset:
    """A bank of one item."""
    return xr.Dataset({k: ("items", [v]) for k, v in values.items()}, {"item_id": ("items", ["x"])})


def data_of(fit, **more):
    columns = item_columns.columns_of(fit, None, None, None, name="ML")
    found = item_data.item_data(fit, columns, flags.flags_of({"ML": fit}), **more)
    return json.loads(downloads.in_script(found))


def write(path, fit, **more):
    page.write_report(path, title="t", run=[], timings=[], marginal=fit, **more)
    return path.read_text(encoding="utf-8")


# --- curves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["2pl", "3pl", "4pl", "graded", "gpcm", "nominal"])
def test_curves_are_those_of_the_textbook(model):
    """To a thousandth, as they are kept."""
    x = ITEMS[model]
    p = category_probability(model, ABILITY, x)
    k = p.shape[1]
    letters = {"2pl": ["a", "d"], "3pl": ["a", "d", "c"], "4pl": ["a", "d", "c", "u"]}.get(model)
    if letters:
        names = {"a": "discrimination", "d": "intercept", "c": "guessing", "u": "upper_asymptote"}
        fit = one(**{f"item_{names[c]}": v for c, v in zip(letters, x, strict=True)})
    else:
        fit = irt.simulate(2, 1, model=model, categories=[k], seed=1).truth
        fit = _with(fit, model, x, k)
    found = data_of(fit)
    score = p @ np.arange(k) / (k - 1)
    np.testing.assert_allclose(found["curve"][0], 1000 * score, atol=0.5001)
    if k == 2:
        assert found["categories"] in (None, [None])
    else:
        np.testing.assert_allclose(found["categories"][0], 1000 * p.T, atol=0.5001)


def _with(fit, model, x, k):
    """A bank's variables with the textbook's parameters."""
    fit = fit.copy(deep=True)
    if model == "nominal":
        fit["item_category_score"][0, 1:] = x[: k - 1]
        fit["item_step_intercept"][0] = x[k - 1 :]
    else:
        fit["item_discrimination"][0] = x[0]
        fit["item_step_intercept"][0] = x[1:]
    return fit


def test_bands_are_those_of_the_logits_errors():
    """Of a and d: P (1 - P) times the error of a theta + d, whose covariance the fit has."""
    fit, g = bank(list("wxyz")), np.random.default_rng(2)
    root = 0.1 * g.normal(size=(8, 8))
    cov, square = root @ root.T, ("parameter", "parameter_")
    fit = fit.assign(
        parameter_item=("parameter", [*"wxyz", *"wxyz"]), item_parameter_covariance=(square, cov),
        parameter_column=("parameter", ["d"] * 4 + ["a"] * 4),
    )  # fmt: skip
    a, d = fit["item_discrimination"].values, fit["item_intercept"].values
    p, expected = 1.0 / (1.0 + np.exp(-(a[:, None] * ABILITY + d[:, None]))), []
    for j in range(4):
        v = cov[np.ix_([4 + j, j], [4 + j, j])]
        variance = v[0, 0] * ABILITY**2 + 2 * v[0, 1] * ABILITY + v[1, 1]
        expected.append(1.96 * p[j] * (1 - p[j]) * np.sqrt(variance))
    found = data_of(fit)["band"]
    np.testing.assert_allclose(found, 1000 * np.array(expected), atol=0.5001)
    unknown = fit.drop_vars([n for n in fit.variables if str(n).endswith("_se")])
    unknown = unknown.drop_vars(["item_parameter_covariance"])
    assert data_of(unknown)["band"] is None
    lost = fit.drop_vars("item_parameter_covariance").copy(deep=True)
    for name in ("discrimination", "intercept"):
        lost[f"item_{name}_se"][2] = np.nan
    band = data_of(lost)["band"]
    assert [set(row) == {None} for row in band] == [False, False, True, False]


def test_bands_of_draws_are_those_of_their_spread():
    """The delta method on the draws' covariance, against the spread of the draws' own curves."""
    g = np.random.default_rng(1)
    draws = np.array([1.2, -0.4]) + 0.05 * g.normal(size=(4000, 2)) @ [[1.0, 0.5], [0.0, 0.8]]
    fit = one(item_discrimination=1.2, item_intercept=-0.4).assign(
        item_discrimination_draw=(("draw", "items"), draws[:, :1]),
        item_intercept_draw=(("draw", "items"), draws[:, 1:]),
    )
    curves = 1.0 / (1.0 + np.exp(-(draws[:, :1] * ABILITY + draws[:, 1:])))
    # 4,000 draws: the spread is known to 1.1%, and curves are nearly straight within it
    np.testing.assert_allclose(
        data_of(fit)["band"][0], 1960 * curves.std(axis=0), rtol=0.05, atol=0.6
    )


# --- what else the page holds ---------------------------------------------------------------------


def test_names_leave_neither_the_script_nor_the_page(tmp_path, no_pictures):
    fit = bank(item_flag=np.array(["ok", "flat|reversed", "ok", "ok", "flat"]))
    text = write(tmp_path / "r.html", fit)
    assert text.count("<script") == text.count("</script>") == 2
    kept = re.search(r'(?s)id="item-data">(.*?)</script>', text)[1]
    assert not set("<>&\u2028") & set(kept)
    found = json.loads(kept)
    assert found["columns"][0]["words"] == NASTY
    assert found["columns"][0]["csv"] == {"1": "'=1+1", "4": "'@SUM(A1)"}
    assert found["flags"][1] == [["flat", ["marginal ML"]], ["reversed", ["marginal ML"]]]
    assert found["flags"][0] == []
    assert set(found["words"]) == {"flat", "reversed"}
    assert set(flags.WORDS) > set(irt.variables.ITEM_FLAGS)
    script = re.search(r"(?s)</script>\s*<script>(.*?)</script>", text)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src "
    assert f"{policy}'sha256-{digest}'" in text.replace("&#39;", "'")
    assert not re.search("https?:", text)
    assert write(tmp_path / "again.html", fit) == text


def test_what_was_asked_is_told_in_one_order(tmp_path, no_pictures):
    asked = {"seed": 1, "data": {"source": "<b>.csv"}}
    text = write(tmp_path / "r.html", bank(), configuration=asked)
    told = re.search(r"(?s)<pre[^>]*>(.*?)</pre>", text)[1]
    assert "<" not in told
    assert json.loads(html.unescape(told)) == asked
    turned = dict(reversed(asked.items()))
    assert write(tmp_path / "r.html", bank(), configuration=turned) == text
    assert "Configuration of the run" not in write(tmp_path / "r.html", bank())


def test_missing_and_infinite_numbers_are_json():
    fit = bank(item_difficulty=[np.nan, np.inf, -np.inf, 0.123456789, 2.0])
    column = data_of(fit)["columns"][2]
    assert column["name"] == "ML b"
    assert column["values"] == [None, "∞", "-∞", 0.1234568, 2]


def test_results_and_observed_curves_are_matched_by_name():
    fit = bank(["x", "y", "z"])
    curves = xr.Dataset(
        {
            "group_item_observed_score": (
                ("groups", "items", "ability"), np.array([[[0.25] * 4, [0.5, np.nan, 0, 0.75]]]),
            ),
            "group_label": ("groups", ["all"]),
        },
        {"item_id": ("items", ["z", "x"]), "ability": [-1.0, 0.0, 1.0, 2.0]},
    )  # fmt: skip
    tests = xr.Dataset(
        {"item_infit": ("items", [1.1, np.nan]),
         "item_dif_class": (("items", "focal"), [["A"], ["B"]])},
        {"item_id": ("items", ["y", "z"]), "focal": ["girls"]},
    )  # fmt: skip
    found = data_of(fit, curves=curves, results={"Tests": tests})
    assert found["observed"]["ability"] == [-1.0, 2.0]
    assert found["observed"]["groups"] == [
        {"label": "all", "values": [[500, 750], [None, None], [250, 250]]}
    ]
    infit, classes = found["results"][0]["rows"]
    assert (infit["name"], infit["values"]) == ("infit", [None, 1.1, None])
    assert "mean square" in infit["words"]
    assert (classes["name"], classes["values"]) == ("dif class", [None, "A", "B"])


def test_tables_as_csv():
    rows = [["=x", "1,234.500 ± 0.010", "–"], ["plain", "-2.000", "1: 0.5\n2: 0.7"]]
    uri = downloads.csv_uri(Table(("item", "b", "steps"), rows))
    text = base64.b64decode(uri.removeprefix("data:text/csv;charset=utf-8;base64,")).decode()
    assert list(csv.reader(io.StringIO(text))) == [
        ["item", "b", "b ±", "steps"],
        ["'=x", "1234.500", "0.010", ""],
        ["plain", "-2.000", "", "1: 0.5\n2: 0.7"],
    ]


def test_reliability_is_said_of_a_standard_normal_scale_alone():
    fit = bank()
    items = precision.measured(fit)
    assert precision.reliability(fit, items) == pytest.approx(
        irt.information(fit).attrs["marginal_reliability"], rel=1e-12
    )
    for attrs in ({"identification": "scale of the fixed items"}, {"identification": ""},
                  {"identification": "ability of group b N(0, 1); a > 0"}):  # fmt: skip
        assert precision.reliability(fit.assign_attrs(attrs), items) is None
    bad = bank(item_intercept=[np.nan, 0.0, 1.0, 0.5, 0.2]).drop_vars("item_difficulty")
    assert precision.measured(bad).n_items == 4
    said = precision.words(bad, precision.measured(bad), None, None)
    assert said == ["1 items without finite parameters are left out of the information."]
    listed = precision.information_table(items).rows
    at_one = irt.information(fit, [1.0])
    row = next(r for r in listed if r[0] == "1.0")
    assert row[1:] == [f"{at_one['test_information'][0]:.2f}", f"{at_one['ability_se'][0]:.3f}"]


def test_reliability_in_groups_is_that_of_each_ones_distribution():
    """Beside adaptive quadrature of the same integral, from the definition of information."""
    means, sds, at_bound = [0.0, 1.5, -1.0], [1.0, 0.4, 2.0], [0, 0, 1]
    fit = bank().assign(
        group_mean=("groups", means), group_sd=("groups", sds), group_at_bound=("groups", at_bound),
        group_label=("groups", ["a", "b", "c"]),
    )  # fmt: skip
    found = precision.of_groups(fit, precision.measured(fit))
    a, d = fit["item_discrimination"].values, fit["item_intercept"].values

    def share(z: float, mean: float, sd: float) -> float:
        p = 1 / (1 + np.exp(-(a * (mean + sd * z) + d)))
        total = (a**2 * p * (1 - p)).sum() * sd**2
        return total / (total + 1) * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)

    for value, mean, sd in zip(found[:2], means, sds, strict=False):
        assert value == pytest.approx(integrate.quad(share, -8, 8, (mean, sd))[0], abs=1e-8)
    assert np.isnan(found[2])
    table = fitted.groups_table(fit, found)
    assert table.head == ("group", "mean", "SD", "reliability")
    assert [row[3] for row in table.rows] == [f"{found[0]:.3f}", f"{found[1]:.3f}", "–"]
    assert precision.of_groups(bank(), precision.measured(bank())) is None


def test_abilities_are_counted_once():
    count = np.zeros(60, dtype=int)
    count[[0, 20, 30, 31, 59]] = 2, 5, 7, 1, 5
    middles = np.arange(-5.9, 6, 0.2)
    scores = xr.Dataset({"ability_count": ("ability", count)}, {"ability": middles})
    table = precision.scores_table(scores)
    assert sum(int(r[1]) for r in table.rows) == 20
    assert (table.rows[0][0], table.rows[-1][0]) == ("-6.0 to -5.4", "5.4 to 6.0")
    assert table.rows[-1][3] == "100.0"
    assert "ends hold all persons beyond" in table.remarks[0]
    inner = precision.scores_table(scores.isel(ability=slice(19, 33)))
    assert "".join(inner.remarks) == "".join(
        precision.scores_table(scores.isel(ability=slice(20, 32))).remarks[:0]
    )


def test_persons_who_do_not_fit_are_drawn_and_counted():
    middles = np.linspace(-5, 5, 41)
    count = np.zeros(41, dtype=int)
    count[[0, 10, 20, 22]] = 3, 1, 90, 6
    attrs = {"n_lz": 100, "share_below_5": 0.04, "share_below_1": 0.03}
    persons = xr.Dataset({"lz_count": ("lz", count)}, {"lz": middles}, attrs)
    shown = person_tests.tested(persons)
    assert shown["persons_words"].startswith("Of 100 persons 4.0% have")
    assert shown["persons_image"].source.startswith("data:image/png")
    rows = {row[0]: row[1:] for row in shown["persons_table"].rows}
    assert rows["-5.00"][0] == "3"
    within = stats.norm.cdf(0.125) - stats.norm.cdf(-0.125)
    assert rows["0.00"] == ["90", f"{100 * within:.1f}"]
    expected = person_tests._expected(persons)[2]
    edges = [-np.inf, *(middles[:-1] + 0.125), np.inf]
    np.testing.assert_allclose(expected, 100 * np.diff(stats.norm.cdf(edges)), atol=1e-9)
    older = persons.drop_dims("lz")  # as a version without classes kept it
    shown = person_tests.tested(older)
    assert shown["persons_words"]
    assert shown["persons_image"] is None
    nobody = xr.Dataset({"lz_count": ("lz", 0 * count)}, {"lz": middles}, {**attrs, "n_lz": 0})
    shown = person_tests.tested(nobody)
    assert shown["persons_words"].startswith("No person has")
    assert shown["persons_image"] is None
    assert person_tests.tested(None)["persons_words"] is None


def test_reliability_is_first_of_all_that_of_the_scores():
    """Of persons in booklets that of the whole test is too high."""
    fit, attrs = bank(), {"reliability": 0.61}
    of_scores = page._measures(fit, xr.Dataset(attrs=attrs), None, None)["reliabilities"]
    assert of_scores == ("Reliability of the scores", [0.61])
    said, values = page._measures(fit, None, None, None)["reliabilities"]
    assert said == "Reliability, all items answered"
    assert values == [precision.reliability(fit, precision.measured(fit))]


def test_first_facts_ask_for_a_look_where_something_is_wrong():
    fit = bank()
    about = {"flagged": 0, "reliability": ("Reliability", [0.8]), "check": None, "notes": []}
    facts = glance.facts(fit, {"ML": fit}, **about)
    assert [(f.label, f.value, f.look) for f in facts] == [
        ("Converged", "yes", False), ("Flagged items", "0 of 5", False),
        ("Reliability", "0.80", False),
    ]  # fmt: skip
    several = glance.facts(fit, {}, **about | {"reliability": ("", [0.81, np.nan, 0.76])})
    assert several[2].value == "0.76 to 0.81"
    other = fit.assign_attrs(converged=0)
    check = xr.Dataset(attrs={"p_value": 0.01})
    about = {"flagged": 2, "reliability": ("", []), "check": check, "notes": ["x"]}
    facts = glance.facts(fit, {"ML": fit, "joint": other}, **about)
    assert [(f.value, f.look) for f in facts] == [
        ("no", True), ("2 of 5", True), ("p = 0.010", True), ("1", True),
    ]  # fmt: skip
    chains = fit.assign(item_discrimination_rhat=("items", [1.0, 1.2, np.nan, 1.0, 1.0]))
    assert glance.facts(chains, {}, **about)[0].value == "1.200"
    assert glance.facts(fit.drop_attrs(), {"x": fit.drop_attrs()}, **about)[0].value == "not known"


@pytest.mark.parametrize(
    "attrs, said, cited",
    [
        ({}, "1,234 persons to 5 items were calibrated under the two-parameter logistic model "
         "(Birnbaum, 1968) by marginal maximum likelihood (Bock & Aitkin, 1981), with ability "
         "normal.", 2),
        ({"model": "2pl+graded"}, "logistic model and the graded response model (Birnbaum, 1968; "
         "Samejima, 1969)", 3),
        ({"model": "own"}, "under the model own by marginal", 1),
        ({"method": "LS-WASP", "n_shards": 4, "n_chains": 2, "sampler": "polya-gamma", "seed": 3},
         "by Pólya-Gamma augmentation (Polson, Scott, & Windle, 2013), made in 4 shards of the "
         "persons and combined as the location-scatter Wasserstein barycenter (Xu, Lu, Zhang, "
         "Wang, & Xu, 2024) of their posteriors", 4),
        ({"method": "LS-WASP", "n_shards": 4, "powering": "shrink", "location": "refined"},
         "; other than published, no likelihood was powered, but deviations from each shard's "
         "mean were scaled by the root of its share of the persons and the location was found by "
         "steps on the responses of all persons.", 3),
        ({"method": "LS-WASP", "n_shards": 4, "powering": "published", "location": "average"},
         "(Srivastava, Li, & Dunson, 2018).", 3),
        ({"converged": 0}, "The iterations did not converge (9).", 2),
        ({"guessing_prior": "Beta(5, 17)"}, "Priors (guessing: Beta(5, 17)).", 2),
        ({"weight_kind": "sampling"}, "Persons counted by their sampling weights.", 2),
    ],
)  # fmt: skip
def test_methods_are_told_with_what_they_cite(attrs, said, cited):
    text, references = methods.paragraph(bank().assign_attrs(attrs))
    assert said in text
    assert len(references) == cited
    assert references == sorted(references)
    for reference in references:
        author, year = reference.split(",")[0], re.search(r"\((\d{4})\)", reference)[1]
        assert re.search(rf"{author}[^()]*{year}", text)


def test_every_reference_has_a_use():
    used = {k for _, keys in (*methods._MODELS.values(), *methods._SCORES.values()) for k in keys}
    source = Path(methods.__file__).read_text(encoding="utf-8")
    used |= set(re.findall(r"""cite\(['"](\w+)['"]\)""", source))
    assert used == set(methods._REFERENCES)
    names = set(irt.curves.MODELS) | set(irt.curves.FAMILIES)
    assert names <= set(methods._MODELS)


def test_the_script_is_read_by_an_engine():
    if (node := shutil.which("node")) is None:
        pytest.skip("there is no node to read the script")
    script = Path(page.__file__).parent / "page.js"
    subprocess.run([node, "--check", script], check=True, capture_output=True)
    # what could make markup of data, and what could load anything
    text = script.read_text(encoding="utf-8")
    assert re.findall(r"innerHTML\s*=\s*(.)", text) == ['"']  # of a constant
    for word in ("insertAdjacentHTML", "outerHTML", "document.write", "eval(", "fetch(", "XMLHttp"):
        assert word not in text


def of_few(flags_of_items, **attrs):
    fit = bank([f"i{j}" for j in range(len(flags_of_items))])
    return fit.assign(item_flag=("items", np.array(flags_of_items))).assign_attrs(**attrs)


def test_few_responses_of_nearly_all_items_are_told_once(tmp_path, no_pictures):
    """The table, the tile and the filter count what is said of single items."""
    fit = of_few([*["few_responses"] * 18, "few_responses|large_se", "few_responses"], n_persons=28)
    each, few, words = flags.told_once(found := flags.flags_of({"ML": fit}), fit)
    assert few == 20
    assert each == {"i18": {"large_se": ["ML"]}}
    assert len(found) == 20  # as it was: the filter has them
    assert words.startswith(
        "All 20 items have few responses (fewer than 30; the fit has 28 persons): every number"
    )
    assert "neither listed nor counted" in words
    page.write_report(tmp_path / "r.html", title="t", run=[], timings=[], marginal=fit)
    text = html.unescape((tmp_path / "r.html").read_text())
    assert text.count(words) == 1
    assert text.index(words) < text.index("Items that are flagged")
    assert "<span>Flagged items</span>\n<strong>1 of 20</strong>" in text
    assert "<span>Few responses</span>\n<strong>all 20 items</strong>" in text
    assert "collect more responses before it is used</td>" not in text
    data = json.loads(re.search(r'id="item-data">(.*?)</script>', text, re.S)[1])
    assert data["once"] == ["few_responses"]
    assert all(of[0][0] == "few_responses" for of in data["flags"])
    alone = of_few(["few_responses"] * 3, n_persons=28)
    page.write_report(tmp_path / "a.html", title="t", run=[], timings=[], marginal=alone)
    text = (tmp_path / "a.html").read_text()
    assert "No item has another flag." in text
    assert "Items that are flagged" not in text
    assert "There is nothing to note." not in text


@pytest.mark.parametrize("n_few, once", [(8, False), (9, True), (0, False)])
def test_few_responses_of_some_items_are_flags_of_these(n_few, once):
    fit = of_few(["few_responses"] * n_few + ["ok"] * (10 - n_few), n_persons=4000)
    found = flags.flags_of({"ML": fit})
    each, few, words = flags.told_once(found, fit)
    assert few == n_few * once
    assert each == ({} if once else found)
    if once:
        assert words.startswith("9 of 10 items have few responses")
        fact = glance.facts(fit, {"ML": fit}, 0, ("", []), None, [], few=few)[2]
        assert (fact.label, fact.value, fact.look) == ("Few responses", "9 of 10 items", True)
    else:
        assert words is None
