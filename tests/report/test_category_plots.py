"""Plots and tables of items of more than two categories."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
import xarray as xr
from categories import category_probability

import irt_dask as irt
from irt_dask.errors import InputError
from irt_dask.report import category_figures, item_columns, plots, tables
from irt_dask.report.page import write_report

KINDS = (2, 3, 4, 2, 5, 3)


@functools.cache
def truth(model="3pl+gpcm", kinds=KINDS):
    made = irt.simulate(2, len(kinds), model=model, categories=list(kinds), seed=4)
    return made.truth.drop_vars("person_ability")


def gpcm(items, j, theta):
    """P(k) of an item, (categories, abilities)."""
    k = int(items["item_n_categories"][j])
    steps = items["item_step_intercept"].values[j, : k - 1]
    return category_probability("gpcm", theta, [items["item_discrimination"].values[j], *steps]).T


def texts(ax):
    return [t.get_text() for t in ax.texts]


# --- curves ---------------------------------------------------------------------------------------


def test_icc_is_the_expected_score_as_a_share_of_the_highest():
    ax = plots.icc(truth(), which=[4])
    theta, share = ax.lines[0].get_data()
    p = gpcm(truth(), 4, theta)
    np.testing.assert_allclose(share, np.arange(5) @ p / 4, atol=1e-12)
    assert ax.get_ylabel() == "expected score, share of the highest"
    assert ax.get_legend().get_texts()[0].get_text().endswith(", 5 categories")
    two = plots.icc(truth(), which=[0])
    assert two.get_ylabel() == "P(right)"
    assert "categories" not in two.get_legend().get_texts()[0].get_text()


def test_categories_are_drawn_an_item_a_panel():
    panels = plots.categories(truth())
    assert [ax.get_title() for ax in panels] == [f"item{j} (gpcm)" for j in (2, 3, 5, 6)]
    for ax, j in zip(panels, (1, 2, 4, 5), strict=True):
        theta = ax.lines[0].get_xdata()
        drawn = np.array([line.get_ydata() for line in ax.lines])
        np.testing.assert_allclose(drawn, gpcm(truth(), j, theta), atol=1e-12)
        assert texts(ax) == [str(k) for k in range(KINDS[j])]
        assert ax.figure is panels[0].figure
    (legend,) = panels[0].figure.legends
    assert [t.get_text() for t in legend.get_texts()] == list("01234")
    panels[0].figure.canvas.draw()


def test_categories_of_items_by_name():
    (ax,) = plots.categories(truth(), which=["item1"])
    assert ax.get_title() == "item1 (3pl)"
    np.testing.assert_allclose(sum(line.get_ydata() for line in ax.lines), 1.0)
    bank = irt.fit_marginal(irt.load_lsat(), progress=False)
    assert plots.categories(bank, which=[1])[0].get_title() == f"{bank.item_id.values[1]} (2pl)"
    odd = truth().assign_coords(item_id=("items", ["$x$", "_a", "é" * 40, "b", "c", "d"]))
    panels = plots.categories(odd, which=["$x$", 1, 2])
    assert panels[0].get_title() == "$x$ (3pl)"
    panels[0].figure.canvas.draw()


def test_many_categories_have_lines_of_their_own():
    panels = plots.categories(truth("graded", (15, 3)))
    assert len({(line.get_color(), str(line._dash_pattern)) for line in panels[0].lines}) == 15
    assert len(panels[0].figure.legends[0].get_texts()) == 15


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(InputError, match="1 to 12 items are drawn, not 13"):
        plots.categories(truth(), which=[0] * 13)
    with pytest.raises(InputError, match="1 to 12 items are drawn, not 0"):
        plots.categories(truth(), which=[])
    with pytest.raises(InputError, match="no item 'x'"):
        plots.categories(truth(), which=["x"])
    with pytest.raises(InputError, match="no item has more than two categories"):
        plots.categories(truth().isel(items=[0, 3]))
    lacking = truth().copy(deep=True)
    lacking["item_step_intercept"][1, 0] = np.nan
    with pytest.raises(InputError, match="item item2 has no curves"):
        plots.categories(lacking)


def test_of_many_items_twelve_are_drawn():
    assert len(plots.categories(truth("gpcm", (3,) * 14))) == 12


# --- person-item map ------------------------------------------------------------------------------


def test_wright_map_shows_thresholds():
    items = truth()
    ax = plots.wright_map(items, None)
    assert "6 items, 13 thresholds" in texts(ax)
    assert ax.get_ylabel() == "θ: ability of persons, thresholds of items"
    labels = {"item1", "item4"}
    for j in (1, 2, 4, 5):
        labels |= {f"item{j + 1} ≥ {k}" for k in range(1, KINDS[j])}
    assert labels <= set(texts(ax))
    points = np.concatenate([c.get_offsets()[:, 1] for c in ax.collections])
    expected = np.where(
        items["item_n_categories"] == 2, items["item_difficulty"], items["item_threshold"][:, 0]
    )
    assert np.isin(np.round(expected, 9), np.round(points, 9)).all()
    for j, k in ((2, 2), (4, 4)):  # where P(k or higher) is one half
        p = gpcm(items, j, items["item_threshold"].values[j, k - 1 : k])
        assert p[k:].sum() == pytest.approx(0.5)
        assert np.isclose(points, float(items["item_threshold"][j, k - 1])).any()


def test_wright_map_without_thresholds():
    """A bank of step difficulties alone has them too; nominal items do not, and are counted."""
    names = ["model", "n_categories", "discrimination", "step_difficulty", "difficulty"]
    alone = truth("graded", (3, 4))[[f"item_{name}" for name in names]]
    assert "2 items, 5 thresholds" in texts(plots.wright_map(alone, None))
    nominal = truth("nominal", (2, 3))
    assert "2 items, 1 threshold (2 steps without one)" in texts(plots.wright_map(nominal, None))


# --- comparison -----------------------------------------------------------------------------------


def test_steps_of_two_fits_are_compared():
    one = truth("graded", (3, 4, 5))
    two = one.isel(items=[2, 0]).copy(deep=True)
    two["item_step_difficulty"] = two["item_step_difficulty"] + 0.25
    ax = plots.compare(one, two, "item_step_difficulty", labels=("one", "two"))
    assert ax.get_title() == "step difficulty: r = 1.0000, 6 steps"
    short = one.isel(items=[0], steps=slice(0, 2))
    assert "2 steps" in plots.compare(one, short, "item_step_difficulty").get_title()


# --- the page -------------------------------------------------------------------------------------


def fitted(items):
    """What a fit says of these items."""
    out = items.copy(deep=True)
    for name in ("discrimination", "difficulty", "step_difficulty", "threshold"):
        out[f"item_{name}_se"] = 0.0 * items[f"item_{name}"] + 0.125
    n = items.sizes["items"]
    out["item_n_responses"], out["item_n_right"] = ("items", [200] * n), ("items", [50] * n)
    out["item_flag"] = ("items", ["ok"] * n)
    return out.assign_attrs(method="marginal maximum likelihood", model="3pl+gpcm")


def cells(fit, **options):
    columns = item_columns.columns_of(fit, None, None, options.get("truth"), name="ML")
    table = item_columns.item_table(columns)
    return [dict(zip(table.head, row, strict=True)) for row in table.rows]


def test_table_of_items():
    fit = fitted(truth())
    rows = cells(fit)
    assert list(rows[0]) == [
        "item", "model", "categories", "responses", "% highest", "ML a", "ML b", "ML c", "ML steps",
        "ML thresholds",
    ]  # fmt: skip
    two, four = rows[0], rows[2]
    assert (two["model"], two["categories"], two["ML steps"]) == ("3pl", "2", "–")
    assert (four["model"], four["categories"], four["ML c"]) == ("gpcm", "4", "–")
    for column, name in (("ML steps", "step_difficulty"), ("ML thresholds", "threshold")):
        values = fit[f"item_{name}"].values[2, :3]
        expected = [f"{k}: {v:.3f} ± 0.125" for k, v in enumerate(values, 1)]
        assert four[column].splitlines() == expected
    assert two["% highest"] == "25.0"


def test_table_of_graded_and_of_nominal_items():
    """The thresholds of graded items are their steps; nominal ones have none, but scores."""
    graded = cells(fitted(truth("graded", (3, 4))))
    assert list(graded[0])[-2:] == ["ML b", "ML steps"]
    nominal = cells(fitted(truth("nominal", (3, 4))))
    assert list(nominal[0])[-3:] == ["ML b", "ML scores", "ML steps"]
    scores = truth("nominal", (3, 4))["item_category_score"].values[1, 1:]
    assert nominal[1]["ML scores"].splitlines() == [
        f"{k}: {s:.3f}" for k, s in enumerate(scores, 1)
    ]


def test_recovery_counts_steps():
    table = tables.recovery_table(truth(), [("ML", fitted(truth()))])
    assert [row[:2] for row in table.rows] == [
        ["ML a", "6"],
        ["ML b", "6"],
        ["ML steps", "13 steps"],
    ]
    assert table.rows[2][2:] == ["1.0000", "0.000", "0.000"]


def page(tmp_path, fit, **options):
    path = write_report(tmp_path / "r.html", title="t", run=[], timings=[], marginal=fit, **options)
    text = path.read_text(encoding="utf-8")
    return re.sub("(?s)<script.*?</script>", "", text)  # words for all pages


def test_page(tmp_path):
    text = page(tmp_path, fitted(truth()), truth=truth())
    assert "Of items of more than two categories" in text
    assert "Expected score as a share of the highest" in text
    assert "Probability of each category by ability: the items of more than two" in text
    assert "Item ≥ k: the ability at which" in text
    assert re.search(r"<td>1: -?[0-9.]+ ± 0.125\n2: ", text)
    two = page(tmp_path, fitted(truth()).isel(items=[0, 3], steps=[0]))
    for said in ("Of items of more than two", "Expected score", "each category", "≥"):
        assert said not in two


@pytest.mark.parametrize(("items", "counted"), [([0, 3], "number right"), ([0, 1, 3], "score")])
def test_scores_of_more_categories_are_not_numbers_right(items, counted, tmp_path, no_pictures):
    """Nor is b of such an item where a right response is as likely as not."""
    fit = fitted(truth())
    fit = fit.isel(items=items, steps=[0] if len(items) == 2 else [0, 1])
    check = irt.predictive_check(irt.simulate(50, items=fit), fit, n_replicates=10)
    assert plots.predictive(check).get_xlabel() == counted
    text = " ".join(page(tmp_path, fit, check=check).split())
    assert f"Persons by {counted}: observed, and expected" in text
    only = ", of items of two categories," * (counted == "score")
    assert f"difficulty <i>b</i>{only} the ability at which the probability of a right" in text
    assert ("<i>b</i> is the mean of the steps" in text) == (counted == "score")


def test_page_shows_flagged_items_and_those_with_most_and_least_information():
    kinds = (3,) * 20
    fit = fitted(truth("gpcm", kinds))
    fit["item_flag"][7] = "extreme"
    fit["item_discrimination"][3] = np.nan  # has no curves
    information = irt.information(
        fit.isel(items=[j for j in range(20) if j != 3]), np.linspace(-4, 4, 81)
    )
    order = (information["item_information"] @ np.exp(-0.5 * information["ability"] ** 2)).argsort()
    ids = [i for i in information["item_id"].values[order] if i != "item8"]
    image = category_figures.categories_image(fit)
    assert (
        f"flagged (item8), most information on N(0, 1) abilities ({', '.join(ids[:-6:-1])})"
        in image.caption
    )
    assert f"and least ({', '.join(ids[5::-1])})" in image.caption
    assert "12 items" in image.alt
    assert category_figures.categories_image(fit.isel(items=[3])) is None


def test_page_of_a_bank_that_was_read(tmp_path, no_pictures):
    """What another program has calibrated is shown too."""
    path = irt.write_items(truth(), tmp_path / "b.csv")
    items = irt.read_items(path)
    assert isinstance(items, xr.Dataset)
    assert "Item ≥ k" in page(tmp_path, items)
