"""The site in a real browser: it reads well on a screen and on a phone, and nothing is wrong.

Run with ``pytest -m browser``; skipped where there is no Playwright, no Chromium or no Sphinx.
``IRT_DASK_SITE`` is the folder of a site that was built (.ci/run has one, its examples executed);
else one is built, examples shown only.
"""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import chromium
import pytest

from irt_dask.cli import site as site_of

if chromium.required():
    from playwright import sync_api
else:
    reason = "needs pip install irt_dask[browser]"
    sync_api = pytest.importorskip("playwright.sync_api", reason=reason)

MISSING = [name for name in site_of.NEEDED if find_spec(name) is None]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: pip install '.[docs]'"),
]

#: One of each kind: landing, tables, prose, executed, formulas, functions, commands.
PAGES = (
    "index", "choose", "start", "tutorials/classroom", "gallery", "formulas", "methods/marginal",
    "api/fit_marginal", "commands", "vocabulary", "benchmarks", "search",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    with chromium.launched() as opened:
        yield opened


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, and not a line to each of them."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the site, from a server of this machine alone."""
    folder = Path(os.environ.get("IRT_DASK_SITE") or tmp_path_factory.mktemp("site"))
    if not (folder / "html" / "index.html").exists():
        command = [sys.executable, str(site_of.PACKAGE / "docs" / "build.py"), str(folder)]
        subprocess.run([*command, "--no-execution"], check=True, timeout=600)
    handler = functools.partial(Quiet, directory=str(folder / "html"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def opened(browser, site):
    """Open a page; no error was told in the console, and nothing came from elsewhere."""
    said, contexts = [], []

    def go(name, **options):
        contexts.append(context := browser.new_context(**options))
        context.set_default_timeout(10_000)
        context.set_default_navigation_timeout(60_000)  # of a machine that is busy
        page = context.new_page()
        page.on("console", lambda m: m.type in ("error", "warning") and said.append(m.text))
        page.on("pageerror", lambda e: said.append(f"error: {e}"))
        page.on("request", lambda r: r.url.startswith((site, "data:", "blob:"))
                or said.append(f"request: {r.url}"))  # fmt: skip
        page.goto(f"{site}/{name}.html")
        page.wait_for_load_state("load")
        assert said == []
        return page

    yield go
    for context in contexts:
        context.close()


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (400, "dark")])
@pytest.mark.parametrize("name", PAGES)
def test_pages_fit_and_are_accessible(opened, name, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = opened(name, viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("html").get_attribute("data-theme") == scheme
    if width == 1280:
        assert page.locator(".bd-header").bounding_box()["height"] < 90  # one line
    assert chromium.violations(axe, page) == []


def test_search_finds_functions_and_words(opened):
    page = opened("index")
    page.keyboard.press("Control+K")
    page.locator("dialog input[type=search], .search-button__search-container input").first.fill(
        "plausible"
    )
    page.keyboard.press("Enter")
    results = page.locator("#search-results li a")
    sync_api.expect(results.first).to_be_visible(timeout=30_000)
    assert results.count() > 1
    results.first.click()
    assert "plausible" in page.locator("article").inner_text().lower()


def test_the_reader_chooses_the_theme(opened):
    page = opened("choose", color_scheme="light")
    assert page.locator("html").get_attribute("data-theme") == "light"
    page.locator("button.theme-switch-button:visible").click()
    page.locator(".theme-switch-container [data-theme-value=dark], button[data-mode=dark]").or_(
        page.get_by_text("Dark", exact=True)
    ).first.click()
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_the_keyboard_reaches_the_page_and_what_scrolls(opened):
    page = opened("formulas", viewport={"width": 400, "height": 900})
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent.trim()") == "Skip to main content"
    wide = page.evaluate(
        "[...document.querySelectorAll('.bd-article .math-display')]"
        ".filter(x => x.scrollWidth > x.clientWidth).map(x => x.tabIndex)"
    )
    assert wide
    assert set(wide) == {0}
