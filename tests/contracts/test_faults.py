"""Random damage to a store: never a different number, always an error that says what and where."""

from __future__ import annotations

import pickle
import random
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.engine import cache
from irt_dask.errors import StoreError
from irt_dask.store import checked, manifest

N_ITEMS = 5
PERSONS = (13, 5, 9)  # of the three parts
TWO, MIXED = (2,) * N_ITEMS, (2, 4, 4, 3, 2)  # categories of the items


# --- a store of three parts, and what it says -----------------------------------------------------


def make(folder: Path, layout: str, k: Sequence[int]) -> Path:
    """Ingest one file and append two, with weights, groups and covariates.

    ``k`` is how many categories the items have; where they have more than two there are booklets.
    """
    rng = np.random.default_rng(3)
    said = {} if k == TWO else {"categories": {f"item {j}": c for j, c in enumerate(k)}}
    path, first = folder / "store", 0
    for part, n in enumerate(PERSONS):
        ids = [f"persön {i}" for i in range(first, first + n)]
        y = rng.integers(0, k, (n, N_ITEMS))
        rows = ["person,item,response"]
        rows += [
            f"{p},item {j},{y[i, j]}"
            for i, p in enumerate(ids)
            for j in range(N_ITEMS)
            if (part == 0 or rng.random() < 0.8) and (k == TWO or j != i % N_ITEMS)
        ]
        source = folder / f"{part}.csv"
        source.write_text("\n".join(rows), encoding="utf-8")
        persons = pd.DataFrame(
            {
                "person": ids,
                "weight": rng.uniform(0.5, 2, n),
                "group": rng.choice(["nörth", "south"], n),
                "age": rng.normal(size=n),
                "ses": rng.normal(size=n),
            }
        )
        listed = {row.split(",")[0] for row in rows[1:]}
        options: dict[str, Any] = {
            "persons": persons[persons["person"].isin(listed)],
            "rows_per_block": (5, 3, 4)[part],
            "null_categories": "keep",
            **said,
        }
        if part == 0:
            irt.ingest(source, path, layout=layout, **options)
        else:
            irt.append(source, path, **options)
        first += n
    return path


def bits(value: Any) -> bytes:
    """Return the bytes of an array of any kind, None or a tuple of such."""
    if value is None:
        return b"none"
    if isinstance(value, tuple):
        return b"|".join(bits(v) for v in value)
    value = np.asarray(value)
    return repr(value.tolist()).encode() if value.dtype == object else value.tobytes()


def read_all(r: irt.Responses) -> list[bytes]:
    """Return every block with all that belongs to it."""
    out = []
    for k in range(r.n_blocks):
        block = r.read_block(k)
        arrays = [a for a in block.data if not isinstance(a, int)]
        about = (block.weight, r.person_ids(k), r.groups(k), r.covariates(k))
        out.append(bits((*arrays, *about)))
    return out


def fit(r: irt.Responses) -> list[bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", irt.ConvergenceWarning)
        if r.n_categories == TWO:
            result = irt.fit_joint(r, model="1pl", max_iterations=2)
        else:
            result = irt.fit_marginal(r, model="1pl+pcm", max_iterations=2, null_categories="keep")
    return [bits(result[name].values) for name in sorted(result.variables)]


def forget() -> None:
    """Forget what this process has read of stores, as a new process would not know it."""
    checked.content_of.cache_clear()
    checked.array_of.cache_clear()
    cache._held.clear()


@pytest.fixture(
    scope="module", params=[("dense", TWO), ("csr", TWO), ("dense", MIXED), ("csr", MIXED)],
    ids=["dense", "csr", "dense with categories", "csr with categories"],
)  # fmt: skip
def good(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The path of a store, its files, and what a reader gets."""
    layout, k = request.param
    path = make(tmp_path_factory.mktemp(layout), layout, k)
    r = irt.open_responses(path)
    assert r.layout == layout
    assert sorted(r.n_categories) == sorted(k)  # with booklets items come in another order
    assert [p["n_persons"] for p in manifest.read(path)["parts"]] == list(PERSONS)
    assert r.max_weight is not None
    assert r.has_groups
    assert r.covariate_names == ("age", "ses")
    files = {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    assert {*files} == {*manifest.read(path)["files"], "manifest.json"}
    return path, files, read_all(r), fit(r), r


# --- damage ---------------------------------------------------------------------------------------

Files = dict[str, bytes]
Change = dict[str, bytes | None]


def flip(rng: random.Random, files: Files, name: str) -> Change:
    data = bytearray(files[name])
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return {name: bytes(data)}


def truncate(rng: random.Random, files: Files, name: str) -> Change:
    return {name: files[name][: rng.randrange(len(files[name]))]}


def delete(rng: random.Random, files: Files, name: str) -> Change:
    return {name: None}


def extend(rng: random.Random, files: Files, name: str) -> Change:
    return {name: files[name] + rng.choice([b"\0", b"x", files[name]])}


def zeros(rng: random.Random, files: Files, name: str) -> Change:
    """A block of a disk that was never written."""
    data = files[name]
    a = rng.randrange(len(data))
    b = rng.randint(a + 1, len(data))
    return {name: data[:a] + bytes(b - a) + data[b:]}


def swap(rng: random.Random, files: Files, name: str) -> Change:
    """Two chunks of one array, or the same file of two parts, change places."""
    array = name.split("/")[1:2]
    like = [n for n in files if n != name and n.split("/")[1:2] == array]
    if not like:
        return flip(rng, files, name)
    other = rng.choice(like)
    return {name: files[other], other: files[name]}


def stray(rng: random.Random, files: Files, name: str) -> Change:
    """A file that the manifest does not list."""
    return {f"{name}.{rng.choice(['bak', 'tmp', 'orig'])}": rng.randbytes(20)}


FAULTS: list[Callable[[random.Random, Files, str], Change]] = [
    flip, flip, flip, flip, truncate, truncate, delete, extend, zeros, swap, swap, stray,
]  # fmt: skip


def pick(rng: random.Random, files: Files) -> str:
    """Choose a file: chunks mostly, metadata and the manifest often enough."""
    kind = rng.choice(["chunk", "chunk", "chunk", "response", "metadata", "manifest"])
    if kind == "manifest":
        return "manifest.json"
    return rng.choice(
        [
            name
            for name in files
            if name != "manifest.json"
            and (kind == "metadata") == name.endswith("zarr.json")
            and (kind != "response" or "/response" in name)
        ]
    )


def names_it(text: str, name: str) -> bool:
    """Whether a message says the file, the array and the chunk."""
    if name == "manifest.json":
        return name in text
    part, *rest = name.split("/")
    words = [name, part]
    if len(rest) > 1:
        words.append(f"array {rest[0]}")
    if "c" in rest:
        words.append(f"chunk {rest[rest.index('c') + 1]} ")
    return all(word in text for word in words)


# --- what must follow -----------------------------------------------------------------------------


def outcome(action: Callable[[], Any], expected: Any, changed: list[str]) -> str:
    """Return "same" or "error"; anything else is a finding."""
    try:
        result = action()
    except StoreError as error:
        if not any(names_it(str(error), name) for name in changed):
            return f"an error that does not say where: {error}"
        return "error"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "same" if result == expected else "DIFFERENT"


def judge(good: Any, change: Change, fresh: bool) -> tuple[dict[str, str], list[str]]:
    """Do everything with the damaged store; return what happened, and what is wrong with it."""
    path, files, blocks, estimates, opened = good
    handle = pickle.loads(pickle.dumps(opened))  # noqa: S301

    def responses() -> irt.Responses:
        return irt.open_responses(path) if fresh else handle

    def verified() -> None:
        handle.verify()

    changed = [name for name, data in change.items() if files.get(name) != data]
    listed = [name for name in changed if name in files]
    forget()
    if not fresh:
        read_all(handle)  # metadata are known, as in a run that goes on
    for name, data in change.items():
        if data is None:
            (path / name).unlink()
        else:
            (path / name).write_bytes(data)
    if fresh:
        forget()
    cache._held.clear()
    got = {
        "verify": outcome(verified, None, listed),
        "read": outcome(lambda: read_all(responses()), blocks, listed),
        "fit": outcome(lambda: fit(responses()), estimates, listed),
    }
    for name in change:
        if name in files:
            (path / name).write_bytes(files[name])
        else:
            (path / name).unlink()
    chunks = [name for name in listed if "/c/" in name]
    metadata = [name for name in listed if name.endswith("zarr.json") and name.count("/") > 1]
    allowed = {step: {"same", "error"} for step in got}
    if listed:
        allowed["verify"] = {"error"}
    else:
        allowed = {step: {"same"} for step in got}
    if chunks or (metadata and fresh) or ("manifest.json" in listed and fresh):
        allowed["read"] = {"error"}
    if any("/response" in n or "person_weight" in n for n in chunks + (metadata if fresh else [])):
        allowed["fit"] = {"error"}
    return got, [f"{step}: {what}" for step, what in got.items() if what not in allowed[step]]


def damage(good: Any, n: int, seed: int) -> None:
    path, files = good[:2]
    tally: Counter = Counter()
    wrong = []
    for k in range(n):
        rng = random.Random(f"{seed}-{k}")
        name, fault = pick(rng, files), rng.choice(FAULTS)
        change, fresh = fault(rng, files, name), rng.random() < 0.7
        got, findings = judge(good, change, fresh)
        tally.update(f"{step} {what}" for step, what in got.items() if len(what) < 10)
        what = f"{fault.__name__} {' and '.join(change)}, {'fresh' if fresh else 'open'}"
        wrong += [f"{k} ({what}): {finding}" for finding in findings]
    print(f"\n{n} faults: " + ", ".join(f"{v} {k}" for k, v in sorted(tally.items())))
    assert not wrong, f"{len(wrong)} findings:\n" + "\n".join(wrong[:20])
    assert tally["verify error"] > 0.8 * n
    forget()
    irt.open_responses(path).verify()


def test_some_faults(good: Any) -> None:
    damage(good, 8, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("n", [70, pytest.param(2000, marks=pytest.mark.nightly)])
def test_many_faults(good: Any, n: int) -> None:
    damage(good, n, seed=2)


def test_a_lost_part(good: Any) -> None:
    path = good[0]
    away = path.with_name("away")
    shutil.move(path / "part-00001", away)
    forget()
    try:
        r = irt.open_responses(path)
        with pytest.raises(StoreError, match="part-00001"):
            read_all(r)
        with pytest.raises(StoreError, match="part-00001"):
            r.verify()
        with pytest.raises(StoreError, match="part-00001"):
            fit(r)
    finally:
        shutil.move(away, path / "part-00001")
    assert read_all(irt.open_responses(path)) == good[2]
