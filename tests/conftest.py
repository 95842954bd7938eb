"""Shared by all tests: one local cluster for the session, and a way to compare bits."""

import gc
import hashlib
import signal
from contextlib import suppress
from pathlib import Path

import chromium
import numpy as np
import pytest
from distributed import Client, LocalCluster

from irt_dask.report import figures

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_configure():
    """Shells let background jobs ignore SIGINT, and so would the programs that tests start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Thousands of tests and their modules are not looked through for garbage again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    """Whatever takes the client is a test that starts a cluster."""
    for item in items:
        if "client" in item.fixturenames:
            item.add_marker(pytest.mark.cluster)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test of a page that is skipped has failed, where that is asked for."""
    report = yield
    return chromium.judge(report, item, call.excinfo and call.excinfo.value)


@pytest.fixture(scope="session")
def client():
    """Two worker processes, for tests that pass the client on; not the default of the others."""
    quiet = {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, **quiet)
    c = Client(cluster, set_as_default=False)
    yield c
    c.close()
    with suppress(TimeoutError):  # on a busy machine workers may take longer to die than Dask waits
        cluster.close()


@pytest.fixture(scope="session")
def bits():
    """A function from a Dataset to a checksum of every bit of its arrays and its objective."""

    def digest(result):
        h = hashlib.sha256()
        for name in sorted(result.variables):
            values = result[name].values
            h.update(name.encode())
            h.update(np.ascontiguousarray(values.astype("U") if values.dtype == object else values))
        h.update(repr(result.attrs.get("objective")).encode())
        return h.hexdigest()

    return digest


def undrawn(ax, alt, caption):
    return figures.Image("", alt, caption, 1)


@pytest.fixture
def no_pictures(monkeypatch):
    """Pictures take most of the time of a small run or page; most tests do not look at them."""
    monkeypatch.setattr(figures, "inline", undrawn)


@pytest.fixture(scope="module")
def without_pictures():
    """As ``no_pictures``, also for what a module shares."""
    with pytest.MonkeyPatch.context() as m:
        m.setattr(figures, "inline", undrawn)
        yield


@pytest.fixture
def real_data():
    """The folder of real response files; a test that needs it skips where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"the folder of real response data, {DATA}, is not here")
    return DATA
