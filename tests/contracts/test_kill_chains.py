"""SIGKILL of the driver or of workers in the middle of chains: the same bits, little done twice."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from parts import cells, made

import irt_dask as irt
from irt_dask.calibrate.bayes import grid_chain, model_chain, samplers

PROGRAM = """
import sys, warnings
import irt_dask as irt
from irt_dask.calibrate.bayes import samplers
warnings.simplefilter("ignore")
samplers._SEGMENT_SECONDS = 0.1
store, folder, out, model = sys.argv[1:]
fit = irt.fit_bayes(
    irt.open_responses(store), model=model, n_shards=3, n_chains=2, n_draws=400, n_warmup=60,
    seed=4, checkpoint=folder, progress=False,
)
fit.item_discrimination_draw.values.tofile(out)
"""


def simulated(store: Path, model: str) -> irt.Responses:
    """Twelve items of two categories; or of four, every other person with half of the items."""
    if model == "2pl":
        return irt.simulate(9_000, 12, seed=2, store=store, rows_per_block=1024)
    y = cells(irt.simulate(9_000, 12, seed=2, model=model, categories=4))
    y[::2, 6:] = -1  # booklets
    return made(store, y, [f"q{j}" for j in range(12)], rows=1024, categories=(4,) * 12)


def run(store: Path, folder: Path, out: Path, model: str) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-c", PROGRAM, *map(str, (store, folder, out)), model]
    return subprocess.Popen(arguments, stderr=subprocess.PIPE)


def finished(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["2pl", pytest.param("gpcm", marks=pytest.mark.nightly)])
def test_a_killed_driver_loses_at_most_a_segment_of_each_chain(tmp_path, model):
    """Three kills at random moments after the first checkpoint of each run."""
    simulated(tmp_path / "s", model)
    finished(run(tmp_path / "s", tmp_path / "whole", tmp_path / "want", model))
    segments = len(list((tmp_path / "whole").iterdir()))
    assert segments > 40
    moments = random.Random(5)
    folder, done = tmp_path / "killed", {}
    for _ in range(3):
        process = run(tmp_path / "s", folder, tmp_path / "got", model)
        while len(list(folder.glob("*.checkpoint"))) <= len(done):
            assert process.poll() is None, process.stderr.read().decode()
            time.sleep(0.01)
        time.sleep(moments.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        now = {f.name: f.stat().st_mtime_ns for f in folder.glob("*.checkpoint")}
        assert done.items() <= now.items(), "a finished segment was computed again"
        done = now
    assert len(done) < segments, "killed too late to tell anything"
    finished(run(tmp_path / "s", folder, tmp_path / "got", model))
    assert (tmp_path / "got").read_bytes() == (tmp_path / "want").read_bytes()
    left = {f.name: f.stat().st_mtime_ns for f in folder.glob("*.checkpoint")}
    assert done.items() <= left.items()
    assert len(left) == segments


@pytest.mark.cluster
@pytest.mark.parametrize(
    "model, chain", [("2pl", grid_chain), ("gpcm", model_chain)], ids=["2pl", "gpcm"]
)
@pytest.mark.filterwarnings("ignore::irt_dask.errors.ConvergenceWarning")
def test_killed_workers_cost_a_segment_each(tmp_path, monkeypatch, model, chain):
    """Segments are counted where they are computed; two kills of one of two workers, then both.

    When none is left, Dask puts tasks aside until the watch asks for them.
    """
    monkeypatch.setattr(samplers, "_SEGMENT_SECONDS", 0.1)
    r = simulated(tmp_path / "s", model)
    options = {"model": model, "n_shards": 4, "n_draws": 800 if model == "2pl" else 240,
               "n_warmup": 60, "seed": 4, "progress": False}  # fmt: skip

    def digest(fit):
        return hashlib.sha256(np.ascontiguousarray(fit.item_intercept_draw)).hexdigest()

    want = digest(irt.fit_bayes(r, checkpoint=tmp_path / "whole", **options))
    segments = len(list((tmp_path / "whole").iterdir()))
    log = tmp_path / "log"
    log.mkdir()
    honest = chain.segment

    def counted(plan, refs, state):
        (log / f"{int(state['shard'])}-{int(state['step'])}-{os.getpid()}-{time.time_ns()}").touch()
        return honest(plan, refs, state)

    monkeypatch.setattr(chain, "segment", counted)
    kills, moments = 3, random.Random(6)
    with irt.connect({"workers": 2}) as client:
        if model == "2pl":
            irt.fit_spectral(r, client=client, progress=False)
        else:
            irt.fit_marginal(r, model=model, max_iterations=1, client=client, progress=False)
        over = threading.Event()

        def kill():
            for k in range(kills):
                while len(list(log.iterdir())) < (k + 1) * segments // (kills + 1):
                    if over.wait(0.01):
                        return
                # Not by asking the workers: one of them may have just been killed.
                children = psutil.Process().children(recursive=True)
                pids = sorted(p.pid for p in children if "spawn_main" in " ".join(p.cmdline()))
                for pid in [moments.choice(pids)] if k < kills - 1 else pids:
                    os.kill(pid, signal.SIGKILL)
                (tmp_path / f"kill-{k}").touch()

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        got = digest(irt.fit_bayes(r, client=client, checkpoint=tmp_path / "c", **options))
        over.set()
        killer.join()
    assert len(list(tmp_path.glob("kill-*"))) == kills
    assert got == want
    # Each kill ends what its worker was doing: one segment, and one that it had been sent.
    begun = len(list(log.iterdir()))
    assert segments < begun <= segments + 2 * (kills + 1)
