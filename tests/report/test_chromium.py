"""Which Chromium the tests of pages run in, and that none of them is skipped in silence."""

from __future__ import annotations

from types import SimpleNamespace

import chromium
import pytest


@pytest.fixture(autouse=True)
def asked_anew():
    yield
    chromium.on_the_path.cache_clear()
    chromium.why_none.cache_clear()


def reported(outcome, marked=True):
    """What becomes of a report."""
    item = SimpleNamespace(get_closest_marker=lambda name: marked and name == "browser")
    report = SimpleNamespace(skipped=outcome == "skipped", outcome=outcome, longrepr="")
    return chromium.judge(report, item, "no reason").outcome


def test_a_skip_is_a_failure_only_where_there_is_a_chromium(monkeypatch):
    monkeypatch.setattr(chromium, "why_none", lambda: None)
    monkeypatch.delenv("IRT_DASK_BROWSER", raising=False)
    assert reported("skipped") == "skipped"
    monkeypatch.setenv("IRT_DASK_BROWSER", "required")
    assert reported("skipped") == "failed"
    assert reported("passed") == "passed"
    assert reported("skipped", marked=False) == "skipped"
    monkeypatch.setattr(chromium, "why_none", lambda: "there is none")
    assert reported("skipped") == "skipped"


def test_a_chromium_that_does_not_say_its_version_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(chromium, "NAMES", ("a-browser", "b-browser"))
    for name, code in (("a-browser", 1), ("b-browser", 0)):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\nexit {code}\n")
        program.chmod(0o755)
    chromium.on_the_path.cache_clear()
    assert chromium.on_the_path() == str(tmp_path / "b-browser")
    program.unlink()
    chromium.on_the_path.cache_clear()
    assert chromium.on_the_path() is None
