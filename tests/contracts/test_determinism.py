"""Same data and seed, same bits: any workers, any blocks, whoever dies."""

import os
import random
import signal
import threading
import time

import pytest

import irt_dask as irt

N, M = 3000, 12


def _fits(r, client=None, progress=None):
    """Every method once, small."""
    joint = irt.fit_joint(r, max_iterations=12, tolerance=1e-9, client=client)
    return {
        "joint": joint,
        "coreset": irt.fit_joint(r, coreset=irt.Coreset(500), max_iterations=8, client=client),
        "spectral": irt.fit_spectral(r, client=client),
        "bayes": irt.fit_bayes(r, n_shards=2, n_draws=100, n_warmup=50, client=client),
        "score": irt.score(r, joint, client=client),
        "evaluate": irt.evaluate(r, joint, client=client),
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("determinism") / "store"
    return irt.simulate(N, M, missing=0.1, seed=5, store=path, rows_per_block=512)


@pytest.fixture(scope="module")
def expected(store, bits):
    return {name: bits(fit) for name, fit in _quiet(_fits, store).items()}


def _quiet(function, *args, **kwargs):
    """Short runs warn that they did not converge; that is not what is tested here."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", irt.ConvergenceWarning)
        return function(*args, **kwargs)


@pytest.mark.slow
def test_two_processes_give_the_same_bits_as_threads(store, expected, bits, client):
    got = {name: bits(fit) for name, fit in _quiet(_fits, store, client).items()}
    assert got == expected


@pytest.mark.slow
@pytest.mark.parametrize("rows", [N, 1999, 257])
def test_blocks_do_not_matter(store, expected, bits, rows, tmp_path):
    other = irt.simulate(N, M, missing=0.1, seed=5, store=tmp_path / "s", rows_per_block=rows)
    got = {name: bits(fit) for name, fit in _quiet(_fits, other).items()}
    assert got == expected


def test_current_client_is_used(client, store, bits, expected):
    with client.as_current():
        got = irt.fit_spectral(store)
    assert bits(got) == expected["spectral"]


@pytest.mark.cluster
@pytest.mark.parametrize("workers", [1, 3])
def test_other_numbers_of_workers(store, expected, bits, workers):
    with irt.connect({"workers": workers}) as client:
        got = {name: bits(fit) for name, fit in _quiet(_fits, store, client).items()}
    assert got == expected


class _Killer(threading.Thread):
    """Kills a random worker process with SIGKILL, a few times, while something runs."""

    def __init__(self, client, times, wait):
        super().__init__(daemon=True)
        self.client, self.times, self.wait = client, times, wait
        self.killed, self.random, self.over = [], random.Random(7), threading.Event()

    def run(self):
        while len(self.killed) < self.times and not self.over.wait(self.wait):
            pids = sorted(self.client.run(os.getpid, on_error="ignore").values())
            if len(pids) > 1:  # where all end at once the run ends too, and says so
                pid = self.random.choice(pids)
                os.kill(pid, signal.SIGKILL)
                self.killed.append(pid)
                time.sleep(1.0)  # the nanny starts another


@pytest.mark.cluster
@pytest.mark.parametrize("method", ["joint", "coreset", "bayes"])
def test_a_killed_worker_changes_nothing(bits, method, tmp_path):
    r = irt.simulate(60_000, 20, seed=8, store=tmp_path / "s", rows_per_block=2048)

    def fit(client):
        if method == "joint":
            return irt.fit_joint(r, max_iterations=60, tolerance=1e-300, client=client)
        if method == "coreset":
            return irt.fit_joint(r, coreset=irt.Coreset(500), max_iterations=24, client=client)
        return irt.fit_bayes(r, n_shards=3, n_draws=300, n_warmup=60, client=client)

    undisturbed = _quiet(fit, None)
    with irt.connect({"workers": 2}) as client:
        _quiet(irt.fit_spectral, r, client=client)  # workers are warm
        killer = _Killer(client, times=2, wait=0.7)
        killer.start()
        disturbed = _quiet(fit, client)
        killer.over.set()
        killer.join()
    assert killer.killed, "the fit ended before a worker was killed"
    assert bits(disturbed) == bits(undisturbed)
