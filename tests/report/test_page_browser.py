"""The report page in a real browser: what can be done there, and that nothing is wrong.

Run with ``pytest -m browser``; skipped where there is no Playwright or no Chromium.
"""

from __future__ import annotations

import csv
import io
import re

import chromium
import numpy as np
import pytest
import xarray as xr

from irt_dask.report.page import write_report
from irt_dask.store.documents import by_item, to_csv

if chromium.required():
    from playwright import sync_api
else:
    reason = "needs pip install irt_dask[browser]"
    sync_api = pytest.importorskip("playwright.sync_api", reason=reason)

pytestmark = pytest.mark.browser

#: First paint and size that 2,000 items may take.
MOST_MS, MOST_BYTES = 1000, 8_000_000
NASTY = ['</script><img src=x onerror="alert(1)">', "=HYPERLINK(1)", "a,b", 'q"uote', "Größe β₁"]


@pytest.fixture(scope="module")
def browser():
    with chromium.launched() as opened:
        yield opened


def bank(n, seed=0):
    g = np.random.default_rng(seed)
    a, b = np.exp(0.3 * g.normal(size=n)), g.normal(size=n)
    flags = np.where(np.arange(n) % 20 == 7, "flat|reversed", "ok").astype(object)
    flags[2:3] = "few_responses"
    data = {
        "item_discrimination": a, "item_difficulty": b, "item_intercept": -a * b,
        "item_discrimination_se": 0.1 * a, "item_difficulty_se": np.full(n, 0.05),
        "item_intercept_se": np.full(n, 0.06), "item_n_responses": np.full(n, 1234.0),
        "item_n_right": g.integers(100, 1100, n).astype(float), "item_flag": flags,
    }  # fmt: skip
    ids = np.array((NASTY + [f"item {k}" for k in range(n)])[:n], dtype=object)
    attrs = {
        "method": "marginal maximum likelihood", "model": "2pl", "converged": 1, "n_iterations": 9,
        "n_persons": 1234, "identification": "ability N(0, 1); a > 0",
    }  # fmt: skip
    return xr.Dataset(
        {k: ("items", v) for k, v in data.items()}, {"item_id": ("items", ids)}, attrs
    )


def written(folder, n):
    """A page of n items, with observed curves and a test of each."""
    fit = bank(n)
    ability = np.linspace(-3, 3, 61)
    a, d = fit["item_discrimination"].values[:, None], fit["item_intercept"].values[:, None]
    p = 1 / (1 + np.exp(-(a * ability + d)))
    curves = xr.Dataset(
        {"group_item_observed_score": (("groups", "items", "ability"), np.stack([p, p**1.1])),
         "group_label": ("groups", ["boys", "girls"])},
        {"item_id": fit["item_id"], "ability": ability},
    )  # fmt: skip
    tests = xr.Dataset(
        {"item_infit": ("items", np.linspace(0.8, 1.2, n))}, {"item_id": fit["item_id"]}
    )
    some, nan = fit.isel(items=[10, 11]), np.nan
    chosen = {"count": [[90, 10, 0], [50, 50, nan]], "share": [[0.9, 0.1, 0.0], [0.5, 0.5, nan]],
              "rest": [[0.1, -0.2, nan]] * 2, "correlation": [[0.4, -0.3, nan]] * 2,
              "q_value": [[1.0, 1e-5, nan]] * 2}  # fmt: skip
    first = np.array([0.5, 0.6, 0.7, 0.8, 1.0])
    fifths = np.stack([first, 1.0 - first, np.zeros(5)])
    options = xr.Dataset(
        {**{f"item_option_{k}": (("items", "categories"), v) for k, v in chosen.items()},
         "item_option_curve": (("items", "categories", "fifths"), np.stack([fifths] * 2)),
         "item_option_key": ("items", [0, 1]),
         "item_option_flag": ("items", ["ok", "negative_key"])},
        {"item_id": some["item_id"]}, {"labels": "yes,no,don't know"},
    )  # fmt: skip
    scores = xr.Dataset(
        {"ability_count": ("ability", np.arange(60))}, {"ability": np.arange(-5.9, 6, 0.2)}
    )
    path = folder / f"page{n}.html"
    write_report(path, title="Reading", run=[("Data", "a.csv")], timings=[("ingest", 1.0)],
                 marginal=fit, scores=scores, curves=curves, notes=["a note"],
                 results={"Item fit": tests, "Options": options})  # fmt: skip
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return written(tmp_path_factory.mktemp("pages"), 150)


@pytest.fixture
def opened(browser, path):
    """Open the page; at the end nothing has been complained about, and nothing loaded."""
    said, contexts = [], []

    def go(address="", of=path, **options):
        options = {"viewport": {"width": 1280, "height": 900}, **options}
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(10_000)
        context.set_default_navigation_timeout(60_000)  # of a machine that is busy
        page = context.new_page()
        page.on("console", lambda m: said.append(f"console: {m.text}"))
        page.on("pageerror", lambda e: said.append(f"error: {e}"))
        page.on("dialog", lambda d: (said.append(f"dialog: {d.message}"), d.dismiss()))
        page.on("request", lambda r: r.url.startswith(("file:", "data:", "blob:"))
                or said.append(f"request: {r.url}"))  # fmt: skip
        page.goto(of.as_uri() + address)
        return page

    yield go
    for context in contexts:
        context.close()
    assert said == []


def ids_of(page):
    return page.eval_on_selector_all("#item-table tbody th", "xs => xs.map(x => x.textContent)")


def column_of(page, name):
    names = page.eval_on_selector_all("#item-table thead th", "xs => xs.map(x => x.textContent)")
    k = names.index(name) + 1
    cells = page.eval_on_selector_all(
        f"#item-table tbody tr > :nth-child({k})", "xs => xs.map(x => x.textContent)"
    )
    return [float(c.split(" ± ")[0].replace(",", "")) for c in cells]


def head_of(page, name):
    return page.get_by_role("columnheader", name=name, exact=True)


def test_the_table_sorts_searches_and_filters(opened):
    page, fit = opened(), bank(150)
    ids = list(fit["item_id"].values)
    assert ids_of(page) == ids[:60]  # the others when they are scrolled to
    assert page.locator("#item-count").text_content() == "150 of 150 items"
    button = head_of(page, "marginal ML b").get_by_role("button")
    button.click()
    difficulty = fit["item_difficulty"].values
    assert head_of(page, "marginal ML b").get_attribute("aria-sort") == "ascending"
    assert column_of(page, "marginal ML b") == [round(x, 3) for x in np.sort(difficulty)[:60]]
    assert ids_of(page)[0] == ids[int(difficulty.argmin())]
    button.click()
    assert head_of(page, "marginal ML b").get_attribute("aria-sort") == "descending"
    assert ids_of(page)[0] == ids[int(difficulty.argmax())]
    page.eval_on_selector("#item-table", "x => x.scrollTo(0, 1e6)")
    sync_api.expect(page.locator("#item-table tbody tr")).not_to_have_count(60)
    if page.locator("#item-more").is_visible():
        page.get_by_role("button", name="Show all rows").click()
    assert len(ids_of(page)) == 150
    page.get_by_label("Show").select_option("=few_responses")
    assert ids_of(page) == [NASTY[2]]
    page.get_by_label("Show").select_option("any")
    of_options = 1
    assert len(ids_of(page)) == int((fit["item_flag"] != "ok").sum()) + of_options
    page.get_by_label("Show").select_option("")
    page.get_by_label("Search").fill("ITEM 14")
    sought = sorted(i for i in ids if "item 14" in i)
    sync_api.expect(page.locator("#item-count")).to_have_text(f"{len(sought)} of 150 items")
    assert sorted(ids_of(page)) == sought


def test_every_item_has_a_page_of_its_own(opened):
    page, fit = opened(), bank(150)
    page.get_by_role("button", name=NASTY[0], exact=True).click()
    panel = page.get_by_role("dialog")
    assert panel.get_by_role("heading", level=3).text_content() == f"Item {NASTY[0]}"
    spoken = panel.get_by_role("img").get_attribute("aria-label")
    assert "Probability of a right response of item" in spoken
    # the line is the model's curve: its middle is P at ability 0
    d = panel.locator("svg.plot path.curve").get_attribute("d")
    _, y = np.array([p.split(" ") for p in re.split("[ML]", d)[1:]], dtype=float).T
    p = 1 / (1 + np.exp(-fit["item_intercept"].values[0]))
    assert y[16] == pytest.approx(12 + (330 - 12 - 40) * (1 - p), abs=0.2)
    assert panel.locator("svg.plot path.around").count() == 1
    assert panel.locator("svg.plot circle.seen").count() == 21
    assert panel.locator("svg.plot text", has_text="■").count() == 21
    assert panel.get_by_role("row", name="infit 0.800").count() == 1
    panel.get_by_role("button", name="Next").click()
    panel.get_by_role("button", name="Next").click()
    assert "few persons answered. To do: collect more responses" in panel.text_content()
    assert page.url.endswith("#item=a%2Cb")
    page.keyboard.press("Escape")
    assert not panel.is_visible()
    page = opened("#item=item%20100")
    assert page.locator("#item-title").text_content() == "Item item 100"
    assert page.get_by_role("dialog").is_visible()
    page.evaluate("location.hash = '#item=item%20101'")
    page.get_by_role("heading", name="Item item 101").wait_for()


def test_what_is_told_once_of_all_items_makes_none_of_them_flagged(opened, tmp_path):
    """The filter still has the flag, and counts as the tile does."""
    fit = bank(10)
    fit["item_flag"] = ("items", np.array(["few_responses"] * 9 + ["few_responses|flat"]))
    of = tmp_path / "few.html"
    write_report(of, title="t", run=[], timings=[], marginal=fit.assign_attrs(n_persons=20))
    page = opened(of=of)
    assert page.locator(".glance li", has_text="Flagged items").locator(
        "strong"
    ).text_content() == ("1 of 10")
    said = page.locator("#item-filter option").all_text_contents()
    assert said == [
        "all items", "flagged (1)", "not flagged (9)", "few_responses (10)", "flat (1)",
    ]  # fmt: skip
    page.get_by_label("Show").select_option("any")
    assert ids_of(page) == ["item 4"]
    page.get_by_label("Show").select_option("none")
    assert len(ids_of(page)) == 9
    page.get_by_label("Show").select_option("=few_responses")
    assert len(ids_of(page)) == 10


def test_options_of_an_item_are_told_and_drawn(opened):
    page = opened("#item=item%205")
    panel = page.get_by_role("dialog")
    cells = panel.get_by_role("row", name="yes (key) 90 0.900 0.100 0.400 1").count()
    assert cells == 1
    picture = panel.get_by_role("img").nth(1)
    assert "Share of each fifth of the persons" in picture.get_attribute("aria-label")
    lines = picture.locator("path.curve")
    assert lines.count() == 3
    points = re.split("[ML]", lines.nth(0).get_attribute("d"))[1:]
    x, y = np.array([point.split(" ") for point in points], dtype=float).T
    np.testing.assert_allclose(y, 12 + 278 * (1 - np.array([0.5, 0.6, 0.7, 0.8, 1.0])), atol=0.06)
    assert (np.diff(x) > 100).all()
    names = picture.locator("text[style]")
    assert sorted(names.all_text_contents()) == ["don't know", "no", "yes"]
    heights = sorted(float(names.nth(k).get_attribute("y")) for k in range(3))
    assert np.diff(heights).min() >= 12.9  # also of two that ended at 0
    panel.get_by_role("button", name="Next").click()
    assert panel.get_by_role("row", name="don't know").count() == 0  # an option that it has not
    assert "negative_key (Options): its right option attracts the less able" in panel.text_content()
    panel.get_by_role("button", name="Next").click()
    assert "Nothing is known of this item." in panel.text_content()


def saved(page, button):
    """Name of the file that a button writes, and its rows."""
    with page.expect_download() as caught:
        button.click()
    with open(caught.value.path(), encoding="utf-8", newline="") as file:
        return caught.value.suggested_filename, list(csv.reader(file))


def test_numbers_of_an_item_are_files(opened):
    page, fit = opened("#item=item%205"), bank(150)
    panel = page.get_by_role("dialog")
    panel.get_by_text("The numbers of the curve").click()
    buttons = panel.get_by_role("button", name="CSV of this table")
    name, (head, *rows) = saved(page, buttons.nth(0))
    assert name == "curve_item_5.csv"
    assert head == ["ability", "model", "band from", "to"]
    ability, model = np.array([r[:2] for r in rows], dtype=float).T
    a, d = (fit[f"item_{k}"].values[10] for k in ("discrimination", "intercept"))
    np.testing.assert_allclose(model, 1 / (1 + np.exp(-(a * ability + d))), atol=0.001)
    name, (head, *rows) = saved(page, buttons.nth(1))
    assert (name, head) == ("observed_item_5.csv", ["ability", "boys", "girls"])
    name, rows = saved(page, buttons.nth(2))
    assert name == "options_item_5.csv"
    assert rows[1][:4] == ["yes (key)", "90", "0.900", "0.100"]
    panel.get_by_text("The numbers of the picture").click()
    assert saved(page, buttons.nth(3))[1][2] == ["no", "0.500", "0.400", "0.300", "0.200", "0.000"]


def test_it_is_used_by_keyboard_alone(opened):
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.focus("#item-search")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('thead') !== null"):
            break
    page.keyboard.press("Enter")
    assert page.locator("#item-table th[aria-sort=ascending]").count() == 1
    page.locator("#item-table tbody th button").first.focus()
    name = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Enter")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == name


def test_the_files_hold_what_is_shown(opened):
    page, fit = opened(), bank(150)
    with page.expect_download() as caught:
        page.get_by_role("button", name="CSV of these items").click()
    assert caught.value.suggested_filename == "item_table.csv"
    with open(caught.value.path(), encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    safe = list(csv.reader(io.StringIO(to_csv(by_item(fit[["item_flag"]])))))  # of Python
    assert [r[0] for r in rows] == [r[0] for r in safe[1:]]
    assert rows[1][0] == "'=HYPERLINK(1)"
    k = head.index("marginal ML b")
    np.testing.assert_allclose([float(r[k]) for r in rows], fit["item_difficulty"], rtol=1e-6)
    assert head[k + 1] == "marginal ML b ±"
    assert "Item fit: infit" in head
    links = page.locator("a[download]")
    page.eval_on_selector_all("details", "xs => xs.forEach(x => { x.open = true; })")
    names = {links.nth(i).get_attribute("download") for i in range(links.count())}
    assert {"flagged.csv", "fits.csv", "information.csv", "abilities.csv"} <= names
    with page.expect_download() as caught:
        page.locator("a[download='information.csv']").click()
    with open(caught.value.path(), encoding="utf-8") as file:
        assert file.readline().startswith("ability,information")


@pytest.mark.parametrize("width, scheme", [(400, "dark"), (1280, "light")])
def test_it_fits_and_is_accessible(opened, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = opened(viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    page.eval_on_selector_all("details", "xs => xs.forEach(x => { x.open = true; })")
    assert chromium.violations(axe, page) == []
    page.locator("#item-table tbody th button").nth(2).click()
    box = page.get_by_role("dialog").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert chromium.violations(axe, page) == []


def test_pictures_are_dark_on_a_dark_page_and_readable_on_a_phone(opened):
    filtered = "xs => xs.map(x => getComputedStyle(x).filter)"
    page = opened(viewport={"width": 400, "height": 900}, color_scheme="dark")
    pictures = page.locator(".picture")
    assert pictures.count() > 1
    assert all("invert" in f for f in page.eval_on_selector_all("figure img", filtered))
    for k in range(pictures.count()):
        shown, natural = pictures.nth(k).evaluate(
            "x => [x.firstElementChild.clientWidth, +x.firstElementChild.getAttribute('width')]"
        )
        assert shown >= 0.7 * natural
        if shown > 400:
            assert pictures.nth(k).get_attribute("tabindex") == "0"
    page.emulate_media(media="print", color_scheme="dark")
    assert set(page.eval_on_selector_all("figure img", filtered)) == {"none"}
    page = opened(color_scheme="light")
    assert set(page.eval_on_selector_all("figure img", filtered)) == {"none"}
    assert page.locator(".picture[tabindex]").count() == 0


def test_it_prints_every_item(opened):
    page = opened(color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert not page.locator("#item-search").is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert len(ids_of(page)) == 150
    assert page.pdf()[:5] == b"%PDF-"


def test_without_scripts_it_is_a_table_to_read(opened):
    page = opened(java_script_enabled=False)
    assert page.locator("#item-table tbody tr").count() == 150
    assert not page.locator("#item-search").is_visible()
    assert page.locator("noscript p.remark").is_visible()


def test_two_thousand_items_are_there_at_once(opened, tmp_path):
    path = written(tmp_path, 2000)
    assert path.stat().st_size < MOST_BYTES
    for _ in range(5):  # a machine that is busy paints late
        page = opened(of=path)
        page.wait_for_timeout(300)
        entries = page.evaluate("performance.getEntriesByType('paint').map(x => x.startTime)")
        if (paint := min(entries, default=np.inf)) < MOST_MS:
            break
    assert paint < MOST_MS
    took = page.evaluate(
        "() => { const b = document.querySelector('#item-table thead button');"
        " const t = performance.now(); b.click(); return performance.now() - t; }"
    )
    assert took < 500
    for sought, n in (("item 1999", "0"), ("item 1994", "1")):  # the first five have other names
        page.get_by_label("Search").fill(sought)
        page.get_by_text(f"{n} of 2,000 items", exact=True).wait_for()
    assert not page.get_by_text("The table shows the first 500").is_visible()
