"""The report page and the plots, on synthetic fits."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import irt_dask as irt
from irt_dask.errors import InputError
from irt_dask.report import common, figures, fitted, flags, plots, tables, wright
from irt_dask.report.abilities import count_abilities
from irt_dask.report.page import write_report

# fmt: off
HEADINGS = [
    "Is it converged?", "Do the items work?", "Who is measured how well?", "Does the model fit?",
    "What was done?",
]
# fmt: on
NASTY = ["<script>alert(1)</script>", "Größe_β₁ $x$", "_hidden", 'q"&amp;', "$\\frac{1}$"]


class Page(HTMLParser):
    """Collects what the tests look at, and that tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.tags, self.headings, self.tables = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "input"):
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th", "h2"):
            (self.headings if tag == "h2" else self.tables[-1][-1]).append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th", "h2"):
            (self.headings if self.open[-1] == "h2" else self.tables[-1][-1])[-1] += data

    def table(self, corner: str) -> list[list[str]]:
        return next(t for t in self.tables if t[0][0] == corner)


def make(n, seed=0):
    """Synthetic posterior, joint ML, spectral fit, scores and truth of n items."""
    g = np.random.default_rng(seed)
    a, b = np.exp(0.3 * g.normal(size=n)), g.normal(size=n)
    ids = np.array((NASTY + [f"i{k}" for k in range(n)])[:n], dtype=object)

    def fit(suffix, sd, **attrs):
        slope, location = a * np.exp(sd * g.normal(size=n)), b + sd * g.normal(size=n)
        a_b = {"item_discrimination": slope, "item_difficulty": location}
        bars = {f"{name}_{suffix}": sd * g.uniform(0.8, 1.2, n) for name in a_b}
        data = {**a_b, **bars, "item_intercept": -slope * location}
        coords = {"item_id": ("items", ids)}
        return xr.Dataset({k: ("items", v) for k, v in data.items()}, coords, attrs)

    posterior = fit("sd", 0.05, method="divide and conquer", model="2PL", seed=17)
    draws = posterior["item_discrimination"].values + 0.05 * g.normal(size=(50, n))
    posterior["item_discrimination_draw"] = (("draw", "items"), draws)
    for name, values in {
        "item_n_responses": np.full(n, 1234),
        "item_n_right": np.full(n, 617),
        "item_discrimination_rhat": 1 + 0.02 * g.random(n),
        "item_discrimination_ess": 200 + 10 * g.random(n),
        "shard_n_persons": np.array([600, 634]),
        "shard_acceptance": np.array([0.412, np.nan]),
        "shard_max_rhat": np.array([1.011, 1.022]),
        "shard_min_ess": np.array([151.0, 163.0]),
    }.items():
        posterior[name] = ("shards" if name.startswith("shard") else "items", values)
    joint = fit("se", 0.08, method="joint ML", converged=1, n_iterations=9, objective=-4321.5)
    joint["iteration_objective"] = ("iteration", -4321.5 - 100 * 0.5 ** np.arange(9))
    spectral = fit("se", 0.1, method="spectral")[["item_difficulty"]].assign_attrs(method="sp")
    middles = np.arange(-2.9, 3, 0.2)
    counts = np.round(100 * np.exp(-(middles**2) / 2)).astype(int)
    scores = xr.Dataset({"ability_count": ("ability", counts)}, {"ability": middles})
    truth = posterior.copy(deep=True)[["item_discrimination", "item_difficulty"]].drop_attrs()
    truth["item_discrimination"][:], truth["item_difficulty"][:] = a, b
    return posterior, joint, spectral, scores, truth


def render(tmp_path, n):
    fits = dict(zip(("posterior", "joint", "spectral", "scores", "truth"), make(n), strict=True))
    run = [("data", "a.csv & <i>b</i>"), ("seed", 17), ("group", None)]
    stages = [("ingest", 1.5), ("joint ML", 75.0)]
    path = tmp_path / "report.html"
    write_report(path, title="<b>t", run=run, timings=stages, notes=["a <note>"], **fits)
    return Page(text := path.read_text(encoding="utf-8")), text


def check_page(page, text):
    assert page.headings == HEADINGS
    names = [tag for tag, _ in page.tags]
    assert not {"link", "iframe", "object", "b", "note"} & set(names)
    assert [attrs for tag, attrs in page.tags if tag == "script"] == [
        {"type": "application/json", "id": "item-data"},
        {},
    ]
    for tag, attrs in page.tags:
        for key in ("src", "href"):
            target = attrs.get(key) or "#"
            assert target.startswith(("#", "data:image/png;base64,", "data:text/csv;"))
        if tag == "img":
            assert attrs["alt"]
        if tag == "th":
            assert attrs["scope"] in ("row", "col")
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = {attrs["href"][1:] for tag, attrs in page.tags if tag == "a"}
    assert {link for link in links if not link.startswith("ata:")} <= set(ids)
    assert not [word for word in ("url(", "@import", "http:", "https:") if word in text]


@pytest.mark.parametrize("n", [1, 60, 700])
def test_full_page(tmp_path, n):
    page, text = render(tmp_path, n)
    check_page(page, text)
    assert os.listdir(tmp_path) == ["report.html"]
    assert sum(tag == "img" for tag, _ in page.tags) == 7
    assert "Joint ML's discriminations are inflated" in text
    assert "standard errors take the abilities as known" in " ".join(text.split())
    posterior, joint, spectral, _, truth = make(n)
    head, *rows = page.table("item")
    names = "responses|% right|posterior a|posterior b|joint ML a|joint ML b|spectral b|true a"
    assert head == ["item", *names.split("|"), "true b"]
    assert [r[0] for r in rows] == list(posterior["item_id"].values[:500])
    left = "first 500 of 700 items; 200 are left out. The file items.csv has them all"
    assert (left in text) == (n == 700)
    for k in {0, len(rows) // 2, len(rows) - 1}:
        expected = ["1,234", "50.0"]
        a_b = ("item_discrimination", "item_difficulty")
        for ds, suffix in ((posterior, "sd"), (joint, "se")):
            expected += [f"{ds[v][k]:.3f} ± {ds[f'{v}_{suffix}'][k]:.3f}" for v in a_b]
        expected.append(f"{spectral['item_difficulty'][k]:.3f}")
        expected += [f"{truth[v][k]:.3f}" for v in a_b]
        assert rows[k][1:] == expected


def test_tables_of_the_page(tmp_path, no_pictures):
    page, _ = render(tmp_path, 5)
    fits = {row[0]: row[1:] for row in page.table("attribute")}
    assert fits["attribute"] == ["posterior", "joint ML", "spectral"]
    assert fits["converged"] == ["–", "yes", "–"]
    assert (fits["objective"][1], fits["seed"]) == ("-4,321.500", ["17", "–", "–"])
    parts = {row[0]: row[1:] for row in page.table("part")}
    assert parts["shard 0"] == ["600", "0.412", "1.011", "151"]
    assert parts["shard 1"] == ["634", "–", "1.022", "163"]
    posterior, joint, _, _, truth = make(5)
    rhat, ess = (posterior[f"item_discrimination_{v}"].values for v in ("rhat", "ess"))
    total = ["1,234", "–", f"{rhat.max():.3f}", f"{ess.min():.0f}"]
    assert parts["all, discriminations"] == total
    assert page.table("data") == [["data", "a.csv & <i>b</i>"], ["seed", "17"], ["group", "–"]]
    error = (joint["item_difficulty"] - truth["item_difficulty"]).values
    recovery = {row[0]: row[1:] for row in page.table("estimate")}
    assert recovery["joint ML b"][3] == f"{np.sqrt(np.mean(error**2)):.3f}"
    scores = make(5)[3].assign_attrs(method="eap", n_item_draws=20)
    page, _ = alone(tmp_path, posterior=posterior, scores=scores)
    fits = {row[0]: row[1:] for row in page.table("attribute")}
    assert fits["item draws"] == ["–", "20"]


def test_parameters_that_mixed_badly_are_named(tmp_path, no_pictures):
    """Whatever they are: slopes may mix well where guessing does not."""
    posterior = make(4)[0]
    for name, worst, least in (("item_discrimination", 1.01, 500), ("item_guessing", 1.3, 20)):
        rhat, ess = np.full(4, 1.0), np.full(4, 900.0)
        rhat[2], ess[2] = worst, least
        posterior[f"{name}_rhat"], posterior[f"{name}_ess"] = ("items", rhat), ("items", ess)
    steps = np.full((4, 2), np.nan)
    steps[1] = 1.0, 1.2
    posterior["item_step_intercept_rhat"] = (("items", "steps"), steps)
    posterior["item_step_intercept_ess"] = (("items", "steps"), 100.0 * steps)
    page, text = alone(tmp_path, posterior=posterior)
    ids = posterior["item_id"].values
    assert page.table("parameter")[1:4] == [
        [f"guessing parameter of {ids[2]}", "1.300", "20"],
        [f"step intercept 2 of {ids[1]}", "1.200", "120"],
        [f"discrimination of {ids[2]}", "1.010", "500"],
    ]
    parts = {row[0]: row[1:] for row in page.table("part")}
    assert parts["all, guessing parameters"][2:] == ["1.300", "20"]
    assert "R-hat is above 1.05 for 1 of 4 guessing parameters: their chains have not mixed" in text
    assert "1 of 4 guessing parameters have fewer than 100 effective draws" in text
    assert "R-hat is above 1.05 for 1 of 2 step intercepts" in text


def test_flagged_items_are_told_with_what_to_do(tmp_path, no_pictures):
    """Where an item is flagged, there is something to note."""
    posterior, joint, *_ = make(3)
    posterior = posterior[["item_discrimination", "item_intercept"]]
    _, text = alone(tmp_path, posterior=posterior)
    assert "nothing to note" in text
    assert "Items that are flagged" not in text
    assert "Timings" not in text  # none were given
    posterior["item_flag"] = ("items", ["ok", "flat|reversed", "ok"])
    joint["item_flag"] = ("items", np.array(["ok", "flat", "at_bound"], dtype=object))
    page, text = alone(tmp_path, posterior=posterior)
    check_page(page, text)
    assert "nothing to note" not in text
    assert page.table("flagged item")[1][:2] == [
        NASTY[1], "flat (posterior)\nreversed (posterior)"
    ]  # fmt: skip
    table = flags.flags_table(flags.flags_of({"posterior": posterior, "joint ML": joint}))
    head, rows = list(table.head), table.rows
    assert head == ["flagged item", "flags", "what to do"]
    ids = list(posterior["item_id"].values)
    assert [r[0] for r in rows] == ids[1:]
    assert rows[0][1] == "flat (posterior, joint ML)\nreversed (posterior)"
    assert "reverse its scoring if that is meant" in rows[0][2]
    assert rows[1][1] == "at_bound (joint ML)"


def test_page_of_the_posterior_alone(tmp_path):
    posterior = make(3)[0][["item_discrimination", "item_intercept"]]
    name = str(tmp_path / "r.html")
    path = write_report(name, title="t", run=[], timings=[], posterior=posterior)
    page = Page(text := path.read_text(encoding="utf-8"))
    check_page(page, text)
    assert sum(tag == "img" for tag, _ in page.tags) == 3
    assert page.table("item")[0] == ["item", "posterior a", "posterior b"]
    assert "no joint ML fit" in text


def test_page_of_a_marginal_fit(tmp_path):
    """Standard errors, groups, anchors and asymptotes; nothing is called a posterior."""
    _, fit, _, scores, _ = make(8)
    fit = fit.assign(
        item_guessing=("items", np.full(8, 0.2)),
        item_upper_asymptote=("items", np.full(8, 0.9)),
        group_label=("groups", ["north", "south"]),
        group_mean=("groups", [0.0, 0.25]),
        group_mean_se=("groups", [np.nan, 0.03]),
        group_sd=("groups", [1.0, 20.0]),
        group_sd_se=("groups", [np.nan, np.nan]),
        group_at_bound=("groups", [0, 1]),
        item_anchor_chi2=("items", [12.5, 1.0] + [np.nan] * 6),
        item_anchor_p_value=("items", [2e-4, 0.6] + [np.nan] * 6),
        item_anchor_rmsd=("items", [0.11, 0.01] + [np.nan] * 6),
    ).assign_attrs(
        method="marginal maximum likelihood", model="4pl", aic=8675.25, bic=8700.5, converged=0,
        n_parameters=32, anchor_chi2=13.5, anchor_df=4, anchor_p_value=0.009,
    )  # fmt: skip
    fit["item_discrimination_se"][1] = np.nan
    path = write_report(
        tmp_path / "r.html", title="t", run=[], timings=[("ingest", 1.0)], marginal=fit,
        scores=scores, machines=[("ingest", ["A"]), ("score", ["A", "B"])],
    )  # fmt: skip
    page = Page(text := path.read_text(encoding="utf-8"))
    assert page.headings == [h.replace("Posterior p", "P") for h in HEADINGS if "joint" not in h]
    head, first = page.table("item")[:2]
    assert head[1:] == [f"marginal ML {x}" for x in "abcu"]
    a, se = fit["item_discrimination"].values[0], fit["item_discrimination_se"].values[0]
    assert first[1] == f"{a:.3f} ± {se:.3f}"
    assert first[3:] == ["0.200", "0.900"]
    assert page.table("item")[2][1] == f"{fit['item_discrimination'].values[1]:.3f}"  # no ± –
    assert page.table("group") == [
        ["group", "mean", "SD", "reliability"],
        ["north", "0.000", "1.000", "0.399"],
        ["south", "0.250 ± 0.030", "20.000", "–"],
    ]
    assert "Ended at a bound, and says nothing: south." in text
    anchors = page.table("fixed item")[1:]
    assert [row[1:] for row in anchors] == [
        ["12.5", "below 0.001", "0.110"],
        ["1.0", "0.600", "0.010"],
    ]
    assert "13.5 with 4 degrees of freedom, p is 0.009" in text
    said = {row[0]: row[1] for row in page.table("attribute")[1:]}
    assert (said["aic"], said["bic"], said["converged"]) == ("8,675.250", "8,700.500", "no")
    assert "osterior" not in text
    assert "From score on computed on A and B." in text
    assert "last bits may" in text
    with pytest.raises(InputError, match="give one of them"):
        write_report(path, title="t", run=[], timings=[])


def groups_of(mean_se, sd_se, **more):
    n = len(mean_se)
    return xr.Dataset({
        "group_label": ("groups", list("abcdef"[:n])), "group_mean": ("groups", [0.25] * n),
        "group_mean_se": ("groups", mean_se), "group_sd": ("groups", [1.5] * n),
        "group_sd_se": ("groups", sd_se), **more,
    })  # fmt: skip


@pytest.mark.parametrize(
    "fit, said",
    [
        (groups_of([np.nan], [np.nan]), "No standard errors were estimated for the groups."),
        (groups_of([0.1, 0.2], [0.1, 0.1]), "After ± stands the standard error."),
        (groups_of([np.nan, 0.2], [np.nan, 0.1]),
         "After ± stands the standard error; the reference group has none."),
        (groups_of([0.1, 0.2], [0.1, np.nan], group_at_bound=("groups", [0, 1])),
         "After ± stands the standard error."),
    ],
)  # fmt: skip
def test_what_is_said_of_errors_of_groups_is_so(fit, said):
    assert fitted.groups_table(fit).remarks[0] == said


def test_the_page_says_what_aic_is_not():
    _, fit, *_ = make(3)
    fit = fit.assign_attrs(method="marginal maximum likelihood", aic=10.0, bic=12.0)
    for attrs, said in (
        ({"weight_kind": "sampling"}, "With sampling weights the likelihood is a pseudo"),
        ({"guessing_prior": "Beta(5, 17)"}, "below that of the 2PL, and AIC and BIC are too high"),
        ({"weight_kind": "frequency", "guessing_prior": "none"}, None),
    ):
        remarks = tables.fits_table({"marginal ML": fit.assign_attrs(attrs)}).remarks
        assert [said in remark for remark in remarks] == ([] if said is None else [True])


@pytest.mark.parametrize("kind", ["sampling", "frequency"])
def test_abilities_are_counted_as_scoring_counts_them(kind, tmp_path):
    y = np.random.default_rng(1).integers(0, 2, (40, 5), dtype=np.int8)
    persons = {"weight": np.arange(40) % 3 + 1.0}
    r = irt.from_array(y, persons=persons, weight_kind=kind, rows_per_block=16)
    bank = irt.simulate(2, 5).truth.assign_coords(item_id=("items", list(r.item_id)))
    of_scores = irt.score(r, bank, store=tmp_path / "s")["ability_count"]
    xr.testing.assert_equal(count_abilities(tmp_path / "s")["ability_count"], of_scores)
    assert int(of_scores.sum()) == (40 if kind == "sampling" else persons["weight"].sum())
    (tmp_path / "s" / "part-000001.parquet").write_bytes(b"")
    with pytest.raises(InputError, match=r"part-000001.parquet is missing or damaged"):
        count_abilities(tmp_path / "s")


def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch, no_pictures):
    posterior, path = make(2)[0], tmp_path / "r.html"
    path.write_text("older")

    with monkeypatch.context() as m:
        m.setattr(os, "replace", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_report(path, title="t", run=[], timings=[], posterior=posterior)
    assert os.listdir(tmp_path) == ["r.html"]
    assert path.read_text() == "older"
    with pytest.raises(InputError, match="no items"):
        write_report(path, title="t", run=[], timings=[], posterior=posterior.isel(items=[]))
    assert path.read_text() == "older"
    with pytest.raises(InputError, match="does not exist"):
        write_report(tmp_path / "no" / "r", title="t", run=[], timings=[], posterior=posterior)
    write_report(path, title="t", run=[], timings=[], posterior=posterior)
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert os.listdir(tmp_path) == ["r.html"]


def draw(ax):
    """Render the figure of the axes, so that what fails only then fails here."""
    from matplotlib.axes import Axes

    assert isinstance(ax, Axes)
    ax.figure.canvas.draw()
    return ax


@pytest.mark.parametrize("n", [1, 12, 60])
def test_plots_return_axes_given_or_new(n):
    from matplotlib.figure import Figure

    posterior, joint, _, scores, _ = make(n)
    calls = [(plots.icc, [posterior]), (plots.trace, [posterior]), (plots.convergence, [joint])]
    calls += [(plots.wright_map, [posterior, s]) for s in (scores, None)]
    calls += [(plots.compare, [joint, posterior, "item_difficulty"])]
    calls += [(plots.timings, [[("$a", 1.0), ("b", 3700.0)]])]
    for function, args in calls:
        draw(function(*args))
        mine = Figure().add_subplot()
        assert function(*args, ax=mine) is mine


def test_a_zero_has_no_sign():
    bank = make(1)[0].assign(item_intercept=("items", [1e-9]), item_difficulty=("items", [-1e-9]))
    (label,) = (t.get_text() for t in draw(plots.icc(bank)).get_legend().get_texts())
    assert label.endswith(", b=0.00")


def test_icc_starts_at_the_guessing_parameter():
    c = np.array([0.0, 0.25, 0.1])
    a, b = np.array([1.0, 1.5, 0.8]), np.array([0.0, 0.5, -1.0])
    bank = xr.Dataset(
        {
            "item_discrimination": ("items", a),
            "item_difficulty": ("items", b),
            "item_guessing": ("items", c),
        },
        {"item_id": ("items", ["x", "y", "z"])},
    )
    ax = draw(plots.icc(bank))
    texts = [t.get_text() for t in ax.get_legend().get_texts()]
    for line, j in zip(ax.lines, (2, 0, 1), strict=True):  # in the order of difficulty
        theta, p = line.get_data()
        np.testing.assert_allclose(p, c[j] + (1 - c[j]) / (1 + np.exp(-a[j] * (theta - b[j]))))
    assert [("c=" in t) for t in texts] == [True, False, True]


def test_icc_highlights_the_extremes():
    posterior = make(60)[0]
    ax = draw(plots.icc(posterior))
    assert len(ax.get_lines()) == 6
    labels = " ".join(t.get_text() for t in ax.get_legend().get_texts())
    for name in ("item_discrimination", "item_difficulty"):
        values = posterior[name].values
        for k in (values.argmin(), values.argmax()):
            assert common.short(posterior["item_id"].values[k]) in labels
    ax = draw(plots.icc(posterior, which=["i3", 0]))
    assert len(ax.get_lines()) == 2
    a, d = (float(posterior[f"item_{v}"][0]) for v in ("discrimination", "intercept"))
    curves = {round(float(np.interp(0.5, *line.get_data())), 4) for line in ax.get_lines()}
    assert round(1 / (1 + np.exp(-(0.5 * a + d))), 4) in curves
    with pytest.raises(InputError, match="no item 'x'"):
        plots.icc(posterior, which=["x"])


def test_wright_labels_do_not_overlap():
    posterior, _, _, scores, _ = make(40, seed=3)
    posterior["item_difficulty"][:4] = [7.5, -9.0, np.nan, np.inf]
    ax = draw(plots.wright_map(posterior, scores))
    labels = [t for t in ax.texts if t.get_fontsize() == wright.FONT]
    assert len(labels) == 39
    heights = np.sort([ax.transData.transform(t.get_position())[1] for t in labels])
    assert np.diff(heights).min() > wright.FONT / 72 * ax.figure.dpi
    texts = [t.get_text() for t in ax.texts]
    assert any("(b = 7.5)" in t for t in texts)
    assert any("(b = -9.0)" in t for t in texts)
    assert "39 items (1 without difficulty)" in texts
    assert len(draw(plots.wright_map(make(300)[0], None)).texts) < 45


def test_compare_matches_items_by_identifier():
    posterior, joint, _, _, _ = make(30)
    shuffled = joint.isel(items=np.random.default_rng(0).permutation(30)[:20])
    ax = draw(plots.compare(posterior, shuffled, "item_difficulty", labels=("p", "j")))
    both = np.isin(posterior["item_id"].values, shuffled["item_id"].values)
    x, y = posterior["item_difficulty"].values[both], joint["item_difficulty"].values[both]
    assert ax.get_title() == f"difficulty: r = {np.corrcoef(x, y)[0, 1]:.4f}, 20 items"
    assert ax.get_xlabel() == "p"
    with pytest.raises(InputError, match="item_guessing"):
        plots.compare(posterior, joint, "item_guessing")
    with pytest.raises(InputError, match="'item_flag' has words"):
        plots.compare(joint.assign(item_flag=("items", ["ok"] * 30)), joint, "item_flag")


def test_trace_takes_the_worst_items_and_up_to_four():
    posterior = make(60)[0]
    ax = draw(plots.trace(posterior))
    worst = np.argsort(-posterior["item_discrimination_rhat"].values)[:4]
    names = [common.short(i) for i in posterior["item_id"].values[worst]]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == names
    with pytest.raises(InputError, match="up to 4"):
        plots.trace(posterior, which=[0, 1, 2, 3, 4])
    with pytest.raises(InputError, match="item_discrimination_draw"):
        plots.trace(posterior.drop_vars("item_discrimination_draw"))


def shard_posterior(n, seed=0):
    """A posterior of four shards with draws of slopes and intercepts."""
    posterior, g = make(n, seed)[0], np.random.default_rng(seed)
    d = posterior["item_intercept"].values
    posterior["item_intercept_draw"] = (("draw", "items"), d + 0.05 * g.normal(size=(50, n)))
    posterior["item_intercept_sd"] = ("items", np.full(n, 0.05))
    posterior = posterior.drop_dims("shards")
    posterior["shard_n_persons"] = ("shards", np.full(4, 300))
    for p in ("discrimination", "intercept"):  # means of a quarter: sqrt(4 - 1) SDs about the whole
        centre, sd = posterior[f"item_{p}"].values, posterior[f"item_{p}_sd"].values
        means = centre + 0.9 * np.sqrt(3) * sd * g.uniform(-1, 1, (4, n))
        posterior[f"shard_item_{p}"] = (("shards", "items"), means)
    return posterior


@pytest.mark.parametrize("n", [1, 12, 90])
def test_plots_of_a_posterior_return_axes_given_or_new(n):
    from matplotlib.figure import Figure

    for function in (plots.forest, plots.shards):
        draw(function(shard_posterior(n)))
        mine = Figure().add_subplot()
        assert function(shard_posterior(n), ax=mine) is mine


def bars(ax, width):
    """Ends of the horizontal lines of a width, in the order of the rows."""
    lines = next(c for c in ax.collections if c.get_linewidth() == [width])
    return np.array([s[:, 0] for s in lines.get_segments()]).T


def test_suspects_are_the_items_that_probably_fall():
    posterior = shard_posterior(8)
    share = np.array([0.0, 0.3, 1.0, 0.0, 0.98, 0.0, 0.0, 0.6])
    posterior["item_negative_probability"] = ("items", share)
    ax = draw(plots.suspects(posterior, 4))
    names = [t.get_text() for t in ax.get_yticklabels()]
    ids, shares = posterior["item_id"].values[[2, 4, 7, 1]], ["1.00", "0.98", "0.60", "0.30"]
    assert names == [common.short(f"{i} ({p})") for i, p in zip(ids, shares, strict=True)]
    a = posterior["item_discrimination_draw"].values
    np.testing.assert_allclose(
        bars(ax, 1.6), np.quantile(a, [0.025, 0.975], axis=0)[:, [2, 4, 7, 1]]
    )
    assert ax.get_title() == "3 of 8 items probably fall with ability"
    with pytest.raises(InputError, match="positive='none'"):
        plots.suspects(posterior.drop_vars("item_negative_probability"))


def test_forest_shows_the_quantiles_of_the_draws():
    posterior = shard_posterior(5)
    a, d = (posterior[f"item_{p}_draw"].values for p in ("discrimination", "intercept"))
    for parameter, x in (
        ("item_difficulty", -d / a), ("item_discrimination", a), ("item_intercept", d),
    ):  # fmt: skip
        ax = draw(plots.forest(posterior, [3, 0], parameter))
        np.testing.assert_allclose(bars(ax, 1.6), np.quantile(x, [0.025, 0.975], axis=0)[:, [3, 0]])
        np.testing.assert_allclose(bars(ax, 4.0), np.quantile(x, [0.25, 0.75], axis=0)[:, [3, 0]])
        names = [t.get_text() for t in ax.get_yticklabels()]
        assert names == [common.short(posterior["item_id"].values[k]) for k in (3, 0)]
    top = draw(plots.forest(posterior)).get_yticklabels()[0].get_text()
    hardest = int(np.argmax(np.median(-d / a, axis=0)))
    assert top == common.short(posterior["item_id"].values[hardest])
    assert len(draw(plots.forest(shard_posterior(61))).get_yticks()) == 0  # no room for names
    with pytest.raises(InputError, match="parameter='b': choose one of item_difficulty"):
        plots.forest(posterior, parameter="b")
    with pytest.raises(InputError, match="item_intercept_draw"):
        plots.forest(posterior.drop_vars("item_intercept_draw"))


def test_shards_that_disagree_are_marked():
    posterior = shard_posterior(20)
    ax = draw(plots.shards(posterior))
    assert ax.get_title() == "Means of 4 shards: 0 of 48 means beyond |z| = 3.4"
    centre, sd = posterior["item_discrimination"][7], posterior["item_discrimination_sd"][7]
    posterior["shard_item_discrimination"][2, 7] = centre + 5 * np.sqrt(3) * sd
    ax = draw(plots.shards(posterior))
    assert ax.get_title() == "Means of 4 shards: 1 of 48 means beyond |z| = 3.4"
    assert [t.get_text() for t in ax.texts] == ["2"]
    assert ax.get_yticklabels()[0].get_text() == common.short(posterior["item_id"].values[7])
    assert [t.get_text() for t in ax.get_legend().get_texts()][-1] == "beyond chance"
    ax = draw(plots.shards(posterior, parameter="item_intercept", which=range(20)))
    assert "0 of 80" in ax.get_title()
    with pytest.raises(InputError, match="one shard"):
        plots.shards(posterior.isel(shards=[0]))
    with pytest.raises(InputError, match="shards tell item_discrimination, item_intercept or"):
        plots.shards(posterior, parameter="item_difficulty")
    with pytest.raises(InputError, match="shard_item_discrimination"):
        plots.shards(posterior.drop_dims("shards"))


def loading_posterior(n=8, seed=0):
    """A posterior of two abilities in three shards; item 0 does not load on the second."""
    g = np.random.default_rng(seed)
    draws = np.exp(0.1 * g.normal(size=(60, n, 2)))
    draws[:, 0, 1] = 0.0
    by_item, mean, sd = ("items", "latent_dims"), draws.mean(axis=0), draws.std(axis=0)
    rhat = np.where(sd > 0, 1.0 + g.random((n, 2)), np.nan)
    data = {
        "item_loading": (by_item, mean),
        "item_loading_sd": (by_item, sd),
        "item_loading_rhat": (by_item, rhat),
        "item_loading_draw": (("draw", *by_item), draws),
        "shard_item_loading": (("shards", *by_item), mean + 0.5 * sd * g.uniform(-1, 1, (3, n, 2))),
        "shard_n_persons": ("shards", np.full(3, 200)),
    }
    return xr.Dataset(data, {"item_id": ("items", [f"i{j}" for j in range(n)])})


def test_plots_of_loadings_show_one_ability():
    posterior = loading_posterior()
    draws = posterior["item_loading_draw"].values
    ax = draw(plots.forest(posterior, [3, 5], "item_loading", dim=1))
    want = np.quantile(draws[:, [3, 5], 1], [0.025, 0.975], axis=0)
    np.testing.assert_allclose(bars(ax, 1.6), want)
    assert ax.get_xlabel() == "loading a on ability 2"
    assert len(plots.forest(posterior, parameter="item_loading", dim=0).get_yticks()) == 8
    labels = draw(plots.forest(posterior, parameter="item_loading", dim=1)).get_yticklabels()
    assert sorted(t.get_text() for t in labels) == [f"i{j}" for j in range(1, 8)]
    ax = draw(plots.trace(posterior, parameter="item_loading", dim=1))
    worst = np.argsort(-np.nan_to_num(posterior["item_loading_rhat"].values[:, 1]))[:4]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), draws[:, worst[0], 1])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [f"i{j}" for j in worst]
    assert ax.get_ylabel() == "loading a on ability 2"
    for dim, size in ((0, 24), (1, 21)):
        ax = draw(plots.shards(posterior, parameter="item_loading", dim=dim))
        assert f": 0 of {size} means" in ax.get_title()
    sd = posterior["item_loading_sd"][6, 1]
    posterior["shard_item_loading"][1, 6, 1] += 9 * sd
    ax = draw(plots.shards(posterior, parameter="item_loading", dim=1))
    assert ": 1 of 21 means" in ax.get_title()
    assert [t.get_text() for t in ax.texts] == ["1"]
    assert ax.get_yticklabels()[0].get_text() == "i6"


def test_plots_of_loadings_need_the_ability():
    posterior, other = loading_posterior(), shard_posterior(5)
    for f in (plots.forest, plots.shards, plots.trace):
        for dim in (None, 2, -1, 0.0, True):
            with pytest.raises(InputError, match="needs the ability, a whole number from 0 to 1"):
                f(posterior, parameter="item_loading", dim=dim)
        with pytest.raises(InputError, match="dim=0 is for parameter='item_loading'"):
            f(other, parameter="item_discrimination", dim=0)
        with pytest.raises(InputError, match="item_loading_draw"):
            f(other, parameter="item_loading", dim=0)


def checked(p_value=1 / 51):
    """Result of a predictive check of three classes."""
    return xr.Dataset(
        {
            "score_count": ("score", [3, 20, 4]),
            "score_count_expected": ("score", [4.0, 9.0, 5.0]),
            "score_count_lower": ("score", [1.0, 5.0, 2.0]),
            "score_count_upper": ("score", [7.0, 14.0, 8.0]),
        },
        {"score": [0, 3, 6]},
        {
            "p_value": p_value, "score_width": 3, "level": 0.95, "n_replicates": 50,
            "discrepancy": 13.89, "discrepancy_expected": 2.04,
        },
    )  # fmt: skip


def alone(tmp_path, **fits):
    """Page and text of a report of these datasets alone."""
    path = write_report(tmp_path / "r.html", title="t", run=[], timings=[], **fits)
    page = Page(text := path.read_text(encoding="utf-8"))
    check_page(page, text)
    return page, " ".join(text.split())


def test_the_page_tells_how_to_read_the_predictive_check(tmp_path, no_pictures):
    posterior = make(3)[0]
    page, text = alone(tmp_path, posterior=posterior, check=checked())
    assert "The scores are not distributed as the model predicts: p = 0.020. None of the 50" in text
    assert "Its discrepancy is 13.9, that of a simulated one 2.0 on average." in text
    assert "the smallest there can be is 1/51" in text
    assert any("p = 0.020" in attrs.get("alt", "") for _, attrs in page.tags)
    _, text = alone(tmp_path, posterior=posterior, check=checked(18 / 51))
    assert "no sign against the model: p = 0.353. 17 of the 50 data sets" in text
    _, text = alone(tmp_path, posterior=posterior, check=checked(np.nan))
    assert "too few different scores for a p-value" in text
    _, text = alone(tmp_path, posterior=posterior)
    assert "No predictive check was made." in text


def test_the_page_shows_intervals_of_few_items_and_shards_of_several(tmp_path, monkeypatch):
    page, _ = alone(tmp_path, posterior=shard_posterior(5))
    alts = [attrs["alt"] for tag, attrs in page.tags if tag == "img"]
    assert sum(a.startswith("Intervals of") for a in alts) == 1
    assert sum(a.startswith("Means of the shards") for a in alts) == 1

    def shown(posterior):
        return [f(posterior) is not None for f in (figures.forest_image, figures.shards_image)]

    with monkeypatch.context() as m:
        m.setattr(figures, "inline", lambda *args: args)
        assert shown(shard_posterior(40)) == [True, True]
        assert "12 of 41 items" in figures.shards_image(shard_posterior(41))[2]
        assert shown(shard_posterior(41)) == [False, True]
        assert shown(shard_posterior(5).isel(shards=[0])) == [True, False]
        assert shown(shard_posterior(5).drop_vars("shard_item_intercept")) == [True, False]
        assert shown(shard_posterior(5).drop_vars("item_intercept_draw")) == [False, False]


def test_two_panels_share_the_fullest_legend():
    posterior = shard_posterior(6)
    posterior["shard_item_discrimination"][1, 2] += 5.0
    panels = figures._side_by_side(4.0)
    for ax, name in zip(panels, ("item_discrimination", "item_intercept"), strict=True):
        plots.shards(posterior, parameter=name, ax=ax)
    figures._one_legend(panels)
    draw(panels[0])
    assert panels[0].get_legend() is None
    assert panels[1].get_legend().get_texts()[-1].get_text() == "beyond chance"


def test_predictive_marks_the_counts_outside():
    from matplotlib.figure import Figure

    check = checked()
    ax = draw(plots.predictive(check))
    assert ax.get_title() == "Scores and their posterior prediction: p = 0.020"
    assert ax.get_xlim() == (-0.5, 8.5)
    inner, outer = (c.get_offsets() for c in ax.collections)
    np.testing.assert_array_equal(inner, [[1, 3], [7, 4]])
    np.testing.assert_array_equal(outer, [[4, 20]])
    names = [t.get_text() for t in ax.get_legend().get_texts()]
    assert names == ["observed", "observed, outside", "expected", "95% of replicates"]
    mine = Figure().add_subplot()
    assert plots.predictive(check, ax=mine) is mine
    with pytest.raises(InputError, match="score_count_lower"):
        plots.predictive(check.drop_vars("score_count_lower"))


def checked_items(n=5, half=0.1):
    """Result of a predictive check of items; the second is far below, the last a little above."""
    observed = np.full(n, 0.3)
    observed[1], observed[-1] = -0.2, 0.42
    name, others = "item_rest_correlation", np.full(n, 0.3)
    return xr.Dataset(
        {
            name: ("items", observed),
            f"{name}_lower": ("items", others - half),
            f"{name}_upper": ("items", others + half),
        },
        {"item_id": ("items", [f"${j}$" for j in range(n)])},
        {"level": 0.95},
    )


def test_ranks_of_chains_and_of_halves():
    counts = np.random.default_rng(0).integers(3, 9, (2, 3, 5))
    fit = xr.Dataset(
        {
            "ranked_draw_count": (("ranked", "chains", "rank_bins"), counts),
            "ranked_parameter": ("ranked", ["intercept of $x$", "discrimination of y"]),
        },
        attrs={"n_chains": 3},
    )
    ax = draw(plots.ranks(fit))
    assert ax.get_title() == "Ranks: intercept of $x$"
    names = [t.get_text() for t in ax.get_legend().get_texts()]
    assert names == ["even", "chain 1", "chain 2", "chain 3"]
    np.testing.assert_array_equal(ax.patches[1].get_data().values, counts[0, 1])
    halves = fit.isel(chains=slice(0, 2)).assign_attrs(n_chains=1)
    names = [t.get_text() for t in draw(plots.ranks(halves, 1)).get_legend().get_texts()]
    assert names == ["even", "half 1", "half 2"]
    with pytest.raises(InputError, match="which=2: ranks are kept of 2 parameters"):
        plots.ranks(fit, 2)
    with pytest.raises(InputError, match="no variable 'ranked_draw_count'"):
        plots.ranks(fit[["ranked_parameter"]])


def test_the_page_shows_ranks_and_effective_draws_a_second(tmp_path, no_pictures):
    responses = irt.simulate(200, 5, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = irt.fit_bayes(responses, n_chains=2, n_draws=100, n_warmup=50)
    page = write_report(
        tmp_path / "r.html", title="t", run=[], timings=[("bayes", 4.0)], posterior=fit
    ).read_text()
    assert "Draws of each chain" in page
    least = float(fit["shard_min_ess"].min())
    assert f"{least / 4.0:.3g} effective draws a second" in page


def test_predictive_items_names_those_outside():
    check = checked_items()
    ax = draw(plots.predictive_items(check))
    assert ax.get_title() == "Items with the others: 2 of 5 outside"
    assert [t.get_text() for t in ax.get_yticklabels()] == ["$1$", "$4$"]  # the lowest first
    assert ax.get_yticks().tolist() == [0, 4]
    names = [t.get_text() for t in ax.get_legend().get_texts()]
    assert names == ["observed", "observed, outside", "95% of replicates"]
    undefined = check.copy(deep=True)
    undefined["item_rest_correlation"][:2] = np.nan
    undefined["item_rest_correlation_lower"][2] = np.nan
    ax = draw(plots.predictive_items(undefined))
    assert ax.get_title() == "Items with the others: 1 of 2 outside"
    many = draw(plots.predictive_items(checked_items(100, half=0.0)))
    assert len(many.get_yticks()) == 2
    everything = checked_items(100)
    everything["item_rest_correlation_upper"][:] = -0.5
    assert len(draw(plots.predictive_items(everything)).get_yticks()) == 20
    none = undefined.copy(deep=True)
    none["item_rest_correlation"][:] = np.nan
    assert "0 of 0" in draw(plots.predictive_items(none)).get_title()
    with pytest.raises(InputError, match="item_rest_correlation_lower"):
        plots.predictive_items(check.drop_vars("item_rest_correlation_lower"))


def test_the_page_shows_what_is_predicted_of_items(tmp_path, no_pictures):
    check = checked().merge(checked_items()).assign_attrs(checked().attrs)
    page, text = alone(tmp_path, posterior=make(3)[0], check=check)
    alts = [attrs.get("alt", "") for _, attrs in page.tags]
    assert any("Items with the others: 2 of 5" in alt for alt in alts)
    assert "check_items.csv" in text
    _, text = alone(tmp_path, posterior=make(3)[0], check=checked())  # of an earlier version
    assert "check_items.csv" not in text


def test_numbers_and_durations():
    found = [tables.number(v) for v in (1234.5678, -0.0001, np.nan, np.inf, -np.inf, -0.5)]
    assert found == ["1,234.568", "0.000", "–", "∞", "-∞", "-0.500"]
    found = [common.seconds(v) for v in (0.123, 12.34, 59.99, 125, 3599.9, 3725)]
    assert found == ["0.12 s", "12.3 s", "1 min 00 s", "2 min 05 s", "1 h 00 min", "1 h 02 min"]


def test_matplotlib_is_imported_only_to_draw():
    code = (
        "import sys, irt_dask.report, irt_dask.report.page, irt_dask.report.plots\n"
        "assert not {'matplotlib', 'jinja2'} & set(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    import matplotlib.figure  # noqa: F401

    before = set(sys.modules)
    draw(plots.icc(make(3)[0]))
    assert "matplotlib.pyplot" not in set(sys.modules) - before
