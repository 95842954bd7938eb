"""The Chromium that tests of pages run in: the system's, else Playwright's own.

``python tests/chromium.py`` prints nothing where there is one, and why not where there is none;
``python tests/chromium.py install`` first tries to fetch Playwright's.  Neither ever fails.

With ``IRT_DASK_BROWSER=required`` (session ``browser`` of .ci/noxfile.py) a test of a page that is
skipped has failed, if there is a Chromium: conftest.py sees to it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
#: A sandbox needs a user who is not root.
ARGUMENTS = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
#: Seconds that fetching one may take: without a network Playwright tries for a minute.
MOST_SECONDS = 20


@cache
def on_the_path() -> str | None:
    """The system's; a name whose program does not even say its version is none (Ubuntu's stub)."""
    for name in NAMES:
        if path := shutil.which(name):
            try:
                said = subprocess.run([path, "--version"], capture_output=True, timeout=60)
            except (OSError, subprocess.TimeoutExpired):
                continue
            if said.returncode == 0:
                return path
    return None


@cache
def why_none() -> str | None:
    """Why there is no Chromium here, in one line; None if there is one."""
    if on_the_path() is not None:
        return None
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        return f"no {', '.join(NAMES)} on the PATH, and no Playwright (irt_dask[browser])"
    try:
        with sync_playwright() as playwright:
            playwright.chromium.launch(args=ARGUMENTS).close()
    except (Error, OSError) as error:
        said = str(error).splitlines()[0]
        return f"no {', '.join(NAMES)} on the PATH; Playwright's: {said}"
    return None


def required() -> bool:
    """Whether a skipped test of a page is a failure: asked for, and there is a Chromium."""
    return os.environ.get("IRT_DASK_BROWSER") == "required" and why_none() is None


def judge(report: Any, item: Any, why: object) -> Any:
    """Make the report of a page's test that was skipped a failure, where that is asked for."""
    if report.skipped and item.get_closest_marker("browser") and required():
        report.outcome = "failed"
        report.longrepr = f"skipped, although there is a Chromium: {why}"
    return report


@contextmanager
def launched() -> Iterator[Any]:
    """A Chromium, in which Playwright opens pages; a test that wants it skips if there is none."""
    import pytest
    from playwright.sync_api import sync_playwright

    if (why := why_none()) is not None:
        pytest.skip(f"there is no Chromium: {why}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=on_the_path(), args=ARGUMENTS)
        yield browser
        browser.close()


def violations(axe: Any, page: Any) -> list[tuple[str, list[str]]]:
    """What axe calls serious or critical on a page, and where."""
    found = axe.Axe().run(page).response["violations"]
    return [
        (v["id"], [n["html"][:90] for n in v["nodes"][:3]])
        for v in found
        if v["impact"] in ("serious", "critical")
    ]


def install() -> None:
    """Try to fetch Playwright's, its headless shell alone, where there is no Chromium."""
    if why_none() is None:
        return
    command = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]
    print(f"no Chromium here; trying {' '.join(command[1:])} for {MOST_SECONDS} s")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, start_new_session=True, **quiet) as fetching:
        try:
            fetching.wait(MOST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(fetching.pid, signal.SIGKILL)  # it has processes of its own
    why_none.cache_clear()


if __name__ == "__main__":
    if sys.argv[1:] == ["install"]:
        install()
    if why := why_none():
        print(why.replace(str(Path.home()), "~"))
