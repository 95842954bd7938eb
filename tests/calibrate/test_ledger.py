"""The privacy ledger: no release without an entry, whatever is killed, damaged or run at once."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import opendp.prelude as dp
import pytest

import irt_dask as irt
from irt_dask.calibrate.private import fit as private
from irt_dask.calibrate.private import ledger as module
from irt_dask.errors import BudgetError, InputError, StoreError

PROGRAM = """
import os, sys
import numpy as np
import irt_dask as irt
from irt_dask.calibrate.private import ledger
path, moment = sys.argv[1:]

def dying(name, before):
    real = getattr(os, name)
    def call(*args, **options):
        ours = os.path.basename(args[-1]) == os.path.basename(path)
        if ours and before:
            os._exit(9)
        real(*args, **options)
        if ours:  # not a file of compiled code
            os._exit(9)
    setattr(ledger.os, name, call)

if moment != "none":
    name, when = moment.split("-")
    dying(name, when == "before")
y = np.random.default_rng(1).integers(0, 2, (200, 5))
print("begin", flush=True)
fit = irt.fit_private_spectral(y, rho=0.1, ledger=path, progress=False)
print(fit["item_difficulty"].values.tolist(), flush=True)
"""


def data(seed=1, n=200):
    return np.random.default_rng(seed).integers(0, 2, (n, 5))


def entries(path):
    return json.loads(path.read_text())["entries"] if path.exists() else []


def start(path, moment="none"):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), moment], stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.json"


def test_the_same_request_returns_the_same_release_and_reads_nothing(path, monkeypatch):
    options = {"epsilon": 1.0, "delta": 1e-5, "max_items_per_person": 4, "ledger": path}
    first = irt.fit_private_spectral(data(), **options)
    monkeypatch.setattr(private, "exact_counts", None)
    again = irt.fit_private_spectral(data(), **{**options, "epsilon": 1})
    assert first.identical(again)
    assert first.attrs["ledger"] == path.name
    assert str(path.parent) not in repr(first.attrs)
    assert len(entries(path)) == 1


def test_anything_else_adds_to_what_is_spent(path):
    for k, (y, options) in enumerate(
        [
            (data(), {"rho": 0.1, "delta": 1e-5}),
            (data(), {"rho": 0.2, "delta": 1e-5}),
            (data(2), {"rho": 0.2, "delta": 1e-5}),
            (irt.from_array(data(), rows_per_block=50), {"rho": 0.1, "delta": 1e-5}),
            (data(), {"rho": 0.1}),
            (data(), {"rho": 0.1, "pairs": "random", "p0": 0.9, "seed": 1}),
            (data(), {"rho": 0.1, "pairs": "random", "p0": 0.9, "seed": 2}),
        ],
        start=1,
    ):
        irt.fit_private_spectral(y, ledger=path, **options)
        assert len(entries(path)) == k
    found = entries(path)
    np.testing.assert_allclose(
        [e["total_rho"] for e in found], np.cumsum([0.1, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1]), rtol=1e-12
    )
    assert all(e["total_rho"] >= math.fsum(f["rho"] for f in found[: k + 1])
               for k, e in enumerate(found))  # fmt: skip
    assert found[2]["total_epsilon"] == module.epsilon_of(found[2]["total_rho"], 1e-5)
    assert found[0]["total_epsilon"] < found[1]["total_epsilon"] < found[2]["total_epsilon"]
    assert found[4]["total_epsilon"] is None
    assert found[0]["data"] == found[1]["data"] != found[2]["data"]


def test_the_file_is_its_owners_and_hides_the_data(path):
    r = irt.from_array(data())
    old = os.umask(0)
    try:
        irt.fit_private_spectral(r, rho=0.1, ledger=path)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    assert r.fingerprint not in path.read_text()
    other = path.with_name("other.json")
    irt.fit_private_spectral(r, rho=0.1, ledger=other)
    assert entries(path)[0]["data"] != entries(other)[0]["data"]
    assert sorted(p.name for p in path.parent.iterdir()) == [
        ".ledger.json.lock", ".other.json.lock", "ledger.json", "other.json",
    ]  # fmt: skip


def test_damage_stops_releases(path):
    irt.fit_private_spectral(data(), rho=0.1, ledger=path)
    whole = path.read_bytes()
    for at in random.Random(0).sample(range(len(whole)), 30):
        changed = bytearray(whole)
        changed[at] ^= 1 << (at % 7)
        try:
            same = json.loads(bytes(changed)) == json.loads(whole)
        except ValueError:
            same = False
        path.write_bytes(bytes(changed))
        if not same:  # one blank for another is no damage
            with pytest.raises(StoreError, match="ledger"):
                irt.fit_private_spectral(data(), rho=0.1, ledger=path)
    for content in (whole[: len(whole) // 2], b"", b"[]", b"null", b"{}"):
        path.write_bytes(content)
        with pytest.raises(StoreError, match="not a privacy ledger, or is damaged"):
            irt.fit_private_spectral(data(), rho=0.1, ledger=path)
    path.write_bytes(whole.replace(b'"format_version": 1', b'"format_version": 3'))
    with pytest.raises(StoreError, match="format version 3"):
        irt.fit_private_spectral(data(), rho=0.1, ledger=path)


def test_refusals(path, monkeypatch):
    irt.fit_private_spectral(data(), rho=0.1, ledger=path)
    monkeypatch.setattr(private, "exact_counts", None)  # nothing is computed
    for options, message in [
        ({"ledger": path, "adjacency": "add-remove"}, "holds releases for adjacency 'replace'"),
        ({"ledger": path.parent}, "is a folder"),
        ({"ledger": path.parent / "none" / "ledger.json"}, "does not exist"),
        ({"ledger": 3}, "must be a path"),
    ]:
        with pytest.raises(InputError, match=message):
            irt.fit_private_spectral(data(), rho=0.1, **options)


def test_what_cannot_be_written_down_is_not_released(path, monkeypatch):
    irt.fit_private_spectral(data(), rho=0.1, ledger=path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(module.os, "fsync", full)
        with pytest.raises(StoreError, match=r"No space.*nothing was"):
            irt.fit_private_spectral(data(), rho=0.2, ledger=path)
    assert path.read_bytes() == before
    irt.fit_private_spectral(data(), rho=0.2, ledger=path)  # the lock is free again
    assert len(entries(path)) == 2


@pytest.mark.slow
def test_killed_between_entry_and_release(tmp_path):
    """Just before the ledger is replaced, and just after: neither has released anything."""
    paths = [tmp_path / "before.json", tmp_path / "after.json"]
    both = [start(p, f"replace-{p.stem}") for p in paths]
    for process in both:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 9
        assert out == "begin\n"
    assert [len(entries(p)) for p in paths] == [0, 1]
    fit = irt.fit_private_spectral(data(), rho=0.1, ledger=paths[1])  # what was written down
    assert len(entries(paths[1])) == 1
    recorded = entries(paths[1])[0]["release"]["item_difficulty"]
    assert fit["item_difficulty"].values.tolist() == recorded


@pytest.mark.slow
@pytest.mark.parametrize("n", [12, pytest.param(30, marks=pytest.mark.nightly)])
def test_killed_at_any_moment(n, tmp_path):
    """Kills after 0 to 1.5 s: whatever was printed is in the ledger, and that can be read."""
    moments, n_printed = random.Random(1), 0
    for k in range(n):
        path = tmp_path / f"{k}.json"
        process = start(path)
        assert process.stdout.readline() == "begin\n"
        time.sleep(moments.uniform(0, 1.5))
        process.send_signal(signal.SIGKILL)
        out, _ = process.communicate(timeout=60)
        if out.endswith("\n"):
            n_printed += 1
            assert entries(path)[0]["release"]["item_difficulty"] == json.loads(out)
        irt.fit_private_spectral(data(), rho=0.1, ledger=path)
        assert len(entries(path)) == 1
    assert n_printed < n


@pytest.mark.slow
def test_two_processes_at_once_draw_once(path):
    both = [start(path) for _ in range(2)]
    outs = [p.communicate(timeout=120)[0] for p in both]
    assert outs[0] == outs[1]
    assert outs[0].count("\n") == 2
    assert len(entries(path)) == 1


def test_threads_at_once_draw_once(path):
    def fit(rho):
        return irt.fit_private_spectral(data(), rho=rho, ledger=path)["item_difficulty"].values

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(fit, [0.1, 0.2] * 3))
    for k in range(2, 6):
        np.testing.assert_array_equal(found[k], found[k - 2])
    assert sorted(e["rho"] for e in entries(path)) == [0.1, 0.2]


# --- the budget of a ledger -----------------------------------------------------------------------


def nothing_is_read(monkeypatch):
    """Neither data, not for a checksum either, nor noise."""
    for name in ("fingerprint", "exact_counts", "gaussian"):
        monkeypatch.setattr(private, name, None)


@pytest.mark.parametrize(
    "budget", [{"rho": 0.3}, {"epsilon": module.epsilon_of(0.3, 1e-6), "delta": 1e-6}]
)
def test_a_budget_is_used_up_and_never_exceeded(path, monkeypatch, budget):
    """Three releases of a third of it, rounding or not; the fourth is refused unread."""
    ways = ({"rho": 0.1}, {"rho": 0.1, "pairs": "random", "p0": 1.0}, {"rho": 0.1, "delta": 1e-9})
    first = irt.fit_private_spectral(data(), ledger=path, budget=budget, **ways[0])
    for way in ways[1:]:
        irt.fit_private_spectral(data(), ledger=path, **way)
    content = json.loads(path.read_text())
    assert content["format_version"] == 2  # which a reader that knows no budgets refuses
    assert content["budget"]["rho"] == pytest.approx(0.3, rel=1e-9)
    again = irt.fit_private_spectral(data(), ledger=path, budget=budget, **ways[0])
    assert again.identical(first)  # it costs nothing
    with monkeypatch.context() as m:
        m.setattr(private, "exact_counts", None)
        with pytest.raises(BudgetError, match=r"rho = 0.3 is spent, .* 0.1, and"):
            irt.fit_private_spectral(data(2), ledger=path, **ways[0])  # other data
        nothing_is_read(m)
        with pytest.raises(BudgetError, match=r"rho = 0.3 is spent, this release asks for 1e-05"):
            irt.fit_private_spectral(data(), ledger=path, rho=1e-5)
    assert len(entries(path)) == 3


def test_the_whole_budget_in_one_release(path):
    whole = {"epsilon": 1.0, "delta": 1e-6}
    irt.fit_private_spectral(data(), ledger=path, budget=whole, **whole)
    with pytest.raises(BudgetError, match=r"epsilon = 1 at delta = 1e-06 .*is left"):
        irt.fit_private_spectral(data(), ledger=path, rho=1e-6)


def test_a_budget_is_set_once(path, monkeypatch):
    irt.fit_private_spectral(data(), rho=0.2, ledger=path)
    monkeypatch.setattr(private, "exact_counts", None)
    with pytest.raises(BudgetError, match=r"cannot have a budget of rho = 0.1: rho = 0.2 is spent"):
        irt.fit_private_spectral(data(), rho=0.2, ledger=path, budget={"rho": 0.1})
    assert "budget" not in json.loads(path.read_text())
    with pytest.raises(BudgetError, match=r"asks for 0\.2, and 0.05 is left"):
        irt.fit_private_spectral(data(2), rho=0.2, ledger=path, budget={"rho": 0.25})
    assert json.loads(path.read_text())["budget"]["rho"] == 0.25  # set, whatever came after
    for other in ({"rho": 0.1}, {"rho": 0.3}, {"epsilon": 1.0, "delta": 1e-6}):
        with pytest.raises(InputError, match="was set for good"):
            irt.fit_private_spectral(data(), rho=0.2, ledger=path, budget=other)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (1.0, "must be a dict"), ({"eps": 1.0}, "must be a dict"), ({}, "either epsilon and delta"),
        ({"epsilon": 1.0}, "needs a delta"), ({"rho": -1.0}, "above 0"),
        ({"rho": 1.0, "delta": 1e-6}, "rho alone"),
    ],
)  # fmt: skip
def test_what_is_no_budget(path, budget, words):
    with pytest.raises(InputError, match=words):
        irt.fit_private_spectral(data(), rho=0.1, ledger=path, budget=budget)
    assert not path.exists()


def test_a_budget_needs_a_ledger():
    with pytest.raises(InputError, match="give ledger="):
        irt.fit_private_spectral(data(), rho=0.1, budget={"rho": 1.0})


def test_a_budget_holds_for_releases_at_once(path):
    """Eight at a time where there is room for three."""

    def fit(k):
        try:
            irt.fit_private_spectral(data(k), rho=0.1, ledger=path, budget={"rho": 0.3})
        except BudgetError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(fit, range(8))) == 3
    assert len(entries(path)) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"budget": {"rho": "1"}}, {"budget": None}, {"entries": {}}, {"entries": [1]}, {"key": "x"},
        {"format_version": 1}, {"entries": [{"rho": -1.0}]}, {"adjacency": None},
    ],
)  # fmt: skip
def test_a_ledger_with_a_right_checksum_that_is_none(path, change):
    irt.fit_private_spectral(data(), rho=0.1, ledger=path, budget={"rho": 1.0})
    content = json.loads(path.read_text()) | change
    del content["checksum"]
    path.write_text(json.dumps({**content, "checksum": module._digest(content)}))
    with pytest.raises(StoreError, match="not a privacy ledger, or is damaged"):
        irt.fit_private_spectral(data(), rho=0.1, ledger=path)


def test_a_ledger_may_be_written_in_another_order(path):
    first = irt.fit_private_spectral(data(), rho=0.1, ledger=path)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(content.items()))))
    again = irt.fit_private_spectral(data(), rho=0.1, ledger=path)
    np.testing.assert_array_equal(again["item_difficulty"], first["item_difficulty"])
    assert len(entries(path)) == 1


def test_noise_that_cannot_be_certified_is_not_enough():
    """OpenDP's maps overflow where noise is small: that is no licence for it."""

    def certified(scale):
        if scale < 3.0:
            raise dp.OpenDPException("Overflow")
        return scale >= 2.0

    assert module._least_scale(certified, 1.0, 0.5) == pytest.approx(3.0)
