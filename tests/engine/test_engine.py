"""The engine: one fixed tree whatever the grouping, order, errors, cache, checkpoints, threads."""

from __future__ import annotations

import hashlib
import io
import logging
import math
import platform
import resource
import threading
import zipfile

import numpy as np
import pytest
from distributed.client import AllExit
from threadpoolctl import threadpool_info

import irt_dask as irt
from irt_dask.engine import Checkpoint, Engine, cache, executors
from irt_dask.engine import chains as chains_module
from irt_dask.engine.chains import Chain, run_chains
from irt_dask.errors import ChainError, CheckpointError, ThreadsError
from irt_dask.store import stored


@pytest.fixture
def empty_cache(monkeypatch):
    monkeypatch.setattr(cache, "_held", type(cache._held)())
    monkeypatch.setattr(cache, "_size", 0)
    monkeypatch.setattr(cache, "_FRESH", -1.0)  # every time a look at the memory


def blocks_of(n_blocks, rows=3, m=4):
    y = np.random.default_rng(n_blocks).integers(0, 2, (n_blocks * rows - 1, m))
    return y, irt.from_array(y, rows_per_block=rows)


def noise(block):
    """Floats of very different size, whose sum depends on the order of addition."""
    rng = np.random.default_rng(block.index)
    return rng.normal(size=7) * 10.0 ** rng.integers(-8, 9, 7), block.n_persons


def balanced(parts):
    """The fixed tree, written recursively: the left part is the largest power of two below n."""
    n = len(parts)
    if n == 1:
        return parts[0]
    half = 1
    while 2 * half < n:
        half *= 2
    return balanced(parts[:half]) + balanced(parts[half:])


@pytest.mark.parametrize("per_thread", [0.5, 1, 2, 3, 4, 100])
def test_sums_follow_one_tree_whatever_the_tasks(monkeypatch, per_thread):
    monkeypatch.setattr(executors, "TASKS_PER_THREAD", per_thread)
    for n in range(1, 21):
        y, r = blocks_of(n)
        with Engine(r) as engine:
            total, persons = engine.map_reduce(noise)
        parts = [noise(r.read_block(k))[0] for k in range(n)]
        assert total.tobytes() == balanced(parts).tobytes()
        assert persons == len(y)
    # the check can fail: adding from left to right gives other bits
    assert sum(parts).tobytes() != total.tobytes()


def as_on_a_cluster(monkeypatch, gathered):
    """Let tasks take the results of others, and the driver so many."""
    monkeypatch.setattr(executors.Threads, "max_gathered", gathered)
    submit = executors.Threads.submit

    def resolved(self, place, function, *args):
        args = [[f.result() for f in a] if _futures(a) else a for a in args]
        return submit(self, place, function, *args)

    monkeypatch.setattr(executors.Threads, "submit", resolved)


def counted(block, sums):
    """Exact sums, added in place."""
    sums = (np.zeros(4, dtype=np.int64), np.int64(0)) if sums is None else sums
    sums[0][:] += block.data.values.sum(axis=0)
    return sums[0], sums[1] + block.n_persons


@pytest.mark.parametrize("per_thread", [0.5, 1, 3, 100])
@pytest.mark.parametrize("gathered", [2.0, math.inf])
def test_exact_sums_are_added_up_in_place(monkeypatch, per_thread, gathered):
    monkeypatch.setattr(executors, "TASKS_PER_THREAD", per_thread)
    as_on_a_cluster(monkeypatch, gathered)
    for n in (1, 2, 7, 20):
        y, r = blocks_of(n)
        with Engine(r) as engine:
            total, persons = engine.map_add(counted)
            assert engine.n_held >= 1
        np.testing.assert_array_equal(total, y.sum(axis=0))
        assert persons == len(y)


@pytest.mark.parametrize("gathered", [2, 5, 64])
def test_partial_sums_on_the_cluster_stay_aligned(monkeypatch, gathered):
    """As on a cluster, where partial sums are added up by tasks that take the results of others."""
    monkeypatch.setattr(executors, "TASKS_PER_THREAD", 1000)
    as_on_a_cluster(monkeypatch, gathered)
    for n in (1, 15, 16, 17, 33, 100):
        _, r = blocks_of(n)
        with Engine(r) as engine:
            total, _ = engine.map_reduce(noise)
        parts = [noise(r.read_block(k))[0] for k in range(n)]
        assert total.tobytes() == balanced(parts).tobytes()


def _futures(arg):
    return isinstance(arg, list) and bool(arg) and hasattr(arg[0], "result")


def scaled_sum(block, factor):
    return block.data.values.sum(axis=0) * factor


def test_map_reduce_equals_brute_force():
    y, r = blocks_of(13)
    with Engine(r) as engine:
        (total,) = engine.map_reduce(scaled_sum, 3)
        per_block = engine.map_blocks(scaled_sum, 1)
        some = engine.map_some(scaled_sum, {2: 10, 11: 100})
    np.testing.assert_array_equal(total, 3 * y.sum(axis=0))
    np.testing.assert_array_equal(
        per_block, [y[k : k + 3].sum(axis=0) for k in range(0, len(y), 3)]
    )
    assert list(some) == [2, 11]
    np.testing.assert_array_equal(some[2], 10 * y[6:9].sum(axis=0))
    np.testing.assert_array_equal(some[11], 100 * y[33:36].sum(axis=0))


def first_id(ref, mark):
    return mark + ref.person_ids()[0]


@pytest.mark.parametrize("n", [1, 8, 19])
def test_map_refs_keeps_the_order(n):
    _, r = blocks_of(n)
    with Engine(r) as engine:
        assert engine.map_refs(first_id, "p") == [f"p{3 * k}" for k in range(n)]


def fails_at_seven(block):
    if block.index == 7:
        raise RuntimeError(f"broken at {block.index}")
    return block.n_persons


@pytest.mark.parametrize("call", ["map_reduce", "map_blocks"])
def test_errors_of_a_step_reach_the_caller_and_the_engine_can_go_on(call):
    _, r = blocks_of(12)
    with Engine(r) as engine:
        with pytest.raises(RuntimeError, match="broken at 7"):
            getattr(engine, call)(fails_at_seven)
        assert engine.map_reduce(scaled_sum, 1)[0].shape == (4,)


def test_progress_is_called_with_stage_done_total():
    events = []
    _, r = blocks_of(30)
    with Engine(r, stage="things", progress=lambda *e: events.append(e)) as engine:
        engine.map_reduce(noise, report=True)
    assert len(events) > 1
    assert {e[0] for e in events} == {"things"}
    done, total = [e[1] for e in events], {e[2] for e in events}
    assert done == sorted(set(done))
    assert total == {done[-1]}


@pytest.mark.parametrize("name", ["score", "evaluate", "pair_counts", "fit_joint"])
def test_progress_of_public_functions_is_monotone(name):
    events = []
    r = irt.simulate(200, 5, seed=1, rows_per_block=10)
    args = [r.truth.drop_vars("person_ability")] if name in ("score", "evaluate") else []
    options = {"model": "1pl", "tolerance": 1e-3} if name == "fit_joint" else {}
    getattr(irt, name)(r, *args, progress=lambda *e: events.append(e), **options)
    assert events
    done = [e[1] for e in events]
    assert done == sorted(done)
    assert all(isinstance(e[0], str) and e[1] <= e[2] for e in events)


# --- the cache ------------------------------------------------------------------------------------


def test_cache_returns_the_same_block(tmp_path, empty_cache):
    r = irt.simulate(50, 4, store=tmp_path / "s", rows_per_block=16)
    first = cache.read_block(r.refs[2])
    assert cache.read_block(irt.open_responses(tmp_path / "s").refs[2]) is first
    assert cache.read_block(r.refs[1]) is not first
    np.testing.assert_array_equal(first.data.values, r.read_block(2).data.values)


def test_cache_stays_within_its_budget(tmp_path, empty_cache, monkeypatch):
    monkeypatch.setattr(cache, "_budget", lambda: 150.0)
    r = irt.simulate(64, 4, store=tmp_path / "s", rows_per_block=16)  # 64 bytes a block
    held = [cache.read_block(ref) for ref in r.refs]
    assert len(held) == 4
    assert cache._size == sum(b.nbytes for b in cache._held.values()) == 128
    assert cache.read_block(r.refs[3]) is held[3]
    assert cache.read_block(r.refs[0]) is not held[0]  # the oldest went
    monkeypatch.setattr(cache, "_budget", lambda: 10.0)
    cache.read_block(r.refs[1])  # too large to keep: nothing may stay above the budget
    assert cache._size == 0
    assert not cache._held


def test_of_versions_the_last_one_is_kept(empty_cache, monkeypatch):
    monkeypatch.setattr(cache, "_budget", lambda: 1000.0)
    other = cache.keep("other", lambda: np.zeros(10))
    first = cache.keep_last("slot", 1, lambda: np.full(10, 1.0))
    assert cache.keep_last("slot", 1, lambda: np.full(10, 9.0)) is first
    second = cache.keep_last("slot", 2, lambda: np.full(10, 2.0))
    assert second[0] == 2.0
    assert cache._size == 160
    assert cache.keep_last("slot", 1, lambda: np.full(10, 3.0))[0] == 3.0
    assert cache.keep("other", lambda: np.ones(10)) is other
    monkeypatch.setattr(cache, "_budget", lambda: 10.0)
    assert cache.keep_last("slot", 4, lambda: np.full(10, 4.0))[0] == 4.0  # not held, all the same
    assert not cache._held


def test_memory_is_looked_at_once_in_a_while(empty_cache, monkeypatch):
    looks = []
    monkeypatch.setattr(cache, "_looked", -np.inf)
    monkeypatch.setattr(cache, "_budget", lambda: looks.append(1) or 1e6)
    for fresh, expected in ((60.0, 1), (-1.0, 11)):
        monkeypatch.setattr(cache, "_FRESH", fresh)
        for k in range(10):
            cache.keep((fresh, k), lambda: np.zeros(10))
        assert len(looks) == expected


def test_blocks_in_memory_are_not_cached(empty_cache):
    _, r = blocks_of(3)
    with Engine(r) as engine:
        engine.map_reduce(noise)
    assert not cache._held


# --- checkpoints ----------------------------------------------------------------------------------

STATE = {"a": np.arange(5.0), "n": np.array([3])}


def test_checkpoint_round_trip(tmp_path):
    kept = Checkpoint(tmp_path / "new" / "c", {"seed": 1})
    assert kept.load("x") is None
    kept.save("x", STATE)
    kept.save("x", {**STATE, "n": np.array([4])})
    again = Checkpoint(tmp_path / "new" / "c", {"seed": 1}).load("x")
    np.testing.assert_array_equal(again["a"], STATE["a"])
    assert again["n"] == 4
    assert [p.name for p in (tmp_path / "new" / "c").iterdir()] == ["x.checkpoint"]


def test_without_a_folder_nothing_is_kept():
    kept = Checkpoint(None, {})
    kept.save("x", STATE)
    assert kept.load("x") is None


def test_damaged_checkpoint_is_an_error_at_every_byte(tmp_path):
    Checkpoint(tmp_path, {"seed": 1}).save("x", STATE)
    path = tmp_path / "x.checkpoint"
    good = path.read_bytes()
    cuts = [good[:0], good[:10], good[:-1], good + b"x"]
    flips = []
    for k in range(0, len(good), 5):
        bad = bytearray(good)
        bad[k] ^= 1 << k % 8
        flips.append(bytes(bad))
    for bad in cuts + flips:
        path.write_bytes(bad)
        with pytest.raises(CheckpointError, match=r"x\.checkpoint"):
            Checkpoint(tmp_path, {"seed": 1}).load("x")


@pytest.mark.parametrize("identity", [{"seed": 2}, {"seed": 1, "data": "b"}, {}])
def test_checkpoint_of_another_computation_is_refused(tmp_path, identity):
    Checkpoint(tmp_path, {"seed": 1}).save("x", STATE)
    with pytest.raises(CheckpointError, match="another computation"):
        Checkpoint(tmp_path, identity).load("x")


def archive(**members: bytes) -> bytes:
    """A zip file of these members, as numpy writes and reads them."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return out.getvalue()


def npy(*, n: int) -> bytes:
    """An array of n numbers, of which there are three."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        out, {"descr": "<f8", "fortran_order": False, "shape": (n,)}
    )
    return out.getvalue() + np.arange(3.0).tobytes()


def pickled() -> bytes:
    out = io.BytesIO()
    np.save(out, np.array([{"a": 1}], dtype=object))
    return out.getvalue()


@pytest.mark.parametrize(
    "body",
    {
        "empty": b"",
        "no archive": b"abc",
        "an array": npy(n=3),
        "cut": archive(a=npy(n=3))[:-9],
        "an array too short": archive(a=npy(n=4)),
        "an array larger than any memory": archive(a=npy(n=2**45)),
        "a pickled object": archive(a=pickled()),
    }.items(),
    ids=lambda x: x[0],
)
def test_checkpoint_of_somebody_else_is_an_error(tmp_path, body):
    # Its identity and checksum are right: nobody but a forger writes such a file.
    kept = Checkpoint(tmp_path, {"seed": 1})
    kept.save("x", STATE)
    path = tmp_path / "x.checkpoint"
    identity = path.read_bytes().partition(b" ")[0]
    checksum = hashlib.sha256(body[1]).hexdigest().encode()
    path.write_bytes(identity + b" " + checksum + b"\n" + body[1])
    with pytest.raises(CheckpointError, match=r"cannot be read \(.+\): .* none that irt_dask"):
        kept.load("x")
    path.write_bytes(identity + b" " + checksum + b"\n" + archive(a=npy(n=3)))
    with pytest.raises(CheckpointError, match="is damaged"):
        kept.load("x")


# --- chains ---------------------------------------------------------------------------------------


def count_up(refs, state):
    step = int(state["step"]) + 2
    return {"step": np.int64(step)}, {"seen": np.array([step, len(refs)])}


def test_chains_run_to_the_end_and_resume(tmp_path):
    _, r = blocks_of(3)

    def run(total):
        kept = Checkpoint(tmp_path, {"k": 1})
        chains = [Chain(f"chain{k}", {"step": np.int64(0)}) for k in range(2)]
        with Engine(r) as engine:
            return run_chains(engine, chains, count_up, total, kept)

    run(4)
    for chain in run(8):
        seen = [output["seen"] for output in chain.outputs]
        np.testing.assert_array_equal(seen, [[2, 3], [4, 3], [6, 3], [8, 3]])
    assert len(list(tmp_path.iterdir())) == 8


def told(refs, state):
    """What a segment is given, as what it finds."""
    step = int(state["step"]) + 1
    return {**state, "step": np.int64(step)}, {"seen": np.array([int(state["chain"]), step])}


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_segment_that_is_sent_again_is_the_same_and_counts_once(monkeypatch, deaths):
    """Its worker has died; the second time in a row the chain is given up, by name."""
    _, r = blocks_of(3)
    honest, died = executors.Threads.result, {}

    def dying(self, future):
        state, output = honest(self, future)
        at = tuple(output["seen"])
        if at in {(0, 2), (1, 3)} and died.setdefault(at, 0) < deaths:
            died[at] += 1
            raise executors.WorkerDiedError("its worker ended")
        return state, output

    monkeypatch.setattr(executors.Threads, "result", dying)
    chains = [Chain(f"chain{k}", {"step": np.int64(0), "chain": np.int64(k)}) for k in range(2)]
    with Engine(r) as engine:
        if deaths > chains_module._RESENDS:
            with pytest.raises(
                ChainError, match=r"chain\d stopped at step . of 4: its worker ended"
            ):
                run_chains(engine, chains, told, 4, Checkpoint(None, {}))
            return
        for k, chain in enumerate(run_chains(engine, chains, told, 4, Checkpoint(None, {}))):
            seen = [output["seen"] for output in chain.outputs]
            np.testing.assert_array_equal(seen, [[k, 1], [k, 2], [k, 3], [k, 4]])
    assert died == {(0, 2): 1, (1, 3): 1}


# --- threads --------------------------------------------------------------------------------------


def threads_now(block=None):
    return [p["num_threads"] for p in threadpool_info()]


def test_blas_has_one_thread_inside_and_is_restored():
    np.ones((2, 2)) @ np.ones((2, 2))
    before = threads_now()
    _, r = blocks_of(4)
    with Engine(r) as outer:
        assert set(threads_now()) == {1}
        with Engine(r) as inner:
            seen = inner.map_blocks(threads_now)
            assert {n for s in seen for n in s} == {1}
        assert set(threads_now()) == {1}
        outer.map_blocks(threads_now)
    assert threads_now() == before

    def broken():
        with Engine(r) as engine:
            engine.map_reduce(fails_at_seven_always)

    with pytest.raises(RuntimeError, match="always"):
        broken()
    assert threads_now() == before


def fails_at_seven_always(block):
    raise RuntimeError("always")


def _page_faults() -> int:
    """Pages that the system had to give for 100 arrays of 1 MB, one after the other."""
    np.ones(1 << 17)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(100):
        np.ones(1 << 17)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's ways with memory")
def test_workers_keep_the_memory_of_arrays(client):
    """A page is 4 kB: of fresh memory 100 MB would be 25,600."""
    engine = executors.Cluster(client)
    assert engine.result(engine.submit(0.0, _page_faults)) < 2_560
    assert max(engine.results(engine.submit_all(_page_faults, [(0.0, ()), (0.9, ())]))) < 2_560


def test_waits_that_dask_gave_up_are_not_logged(client, caplog):
    executors.Cluster(client)
    log = logging.getLogger("asyncio")
    log.error("Task exception was never retrieved", exc_info=AllExit())
    assert not caplog.records
    log.error("Task exception was never retrieved", exc_info=ValueError("ours"))
    log.error("no exception")
    assert len(caplog.records) == 2


def test_a_system_without_threads_is_named(monkeypatch, tmp_path):
    """In an engine, and where blocks are read."""
    r = irt.simulate(50, 4, seed=1, store=tmp_path / "s")

    def refused(*args):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    monkeypatch.setattr(stored, "array_of", refused)
    with pytest.raises(ThreadsError, match=r"no more threads: .*ulimit -u"):
        irt.pair_counts(r)
    with pytest.raises(ThreadsError, match=r"no more threads: .*ulimit -u"):
        irt.open_responses(tmp_path / "s").person_ids(0)
