"""Random changes of manifests and metadata, each with a right checksum: errors by name, or the
same responses; never anything else."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from parts import cells

import irt_dask as irt
from irt_dask.errors import IrtDaskError
from irt_dask.store import manifest

FORMATS = Path(__file__).parents[1] / "contracts" / "formats"
VALUES = [
    None, True, False, -1, 0, 1, 2, 2**31, 2**63, 10**30, 0.5, float("nan"), float("inf"), "", "x",
    "../x", "\u0000", "csr", "\ud800", [], [0], {}, {"name": "x"}, ["a", "a"],
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    out = [path] if path else []
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            out += places(inner, (*path, key))
    return out


def changed(content: Any, rng: random.Random) -> str:
    """Change one value, its key, or how often it stands."""
    path = rng.choice(places(content))
    at = content
    for key in path[:-1]:
        at = at[key]
    how = rng.choice(["set", "set", "set", "drop", "rename", "again"])
    value = rng.choice([*VALUES, at[path[-1]]])
    if how == "drop":
        del at[path[-1]]
    elif how == "set" or isinstance(at, list):
        at[path[-1]] = value
    else:
        at[f"{path[-1]}{'x' if how == 'rename' else '/c/0'}"] = at[path[-1]]
        if how == "rename":
            del at[path[-1]]
    return f"{how} {path} {value!r}"


def forge(store: Path, rng: random.Random) -> str:
    """Change the manifest, or the metadata of an array, and make all checksums right again."""
    path = store / "manifest.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    arrays = [key for key in content["files"] if key.endswith("/zarr.json")]
    if "n_categories" in content and rng.random() < 0.2:  # another number that may be true
        k = rng.randrange(len(content["n_categories"]))
        content["n_categories"][k] = rng.choice([2, 3, 5, 15])
        what = f"n_categories {content['n_categories']}"
    elif rng.random() < 0.4:
        key = rng.choice(arrays)
        said = json.loads((store / key).read_text())
        what = f"{key}: {changed(said, rng)}"
        data = json.dumps(said).encode()
        (store / key).write_bytes(data)
        content["files"][key] = [len(data), hashlib.sha256(data).hexdigest()]
    else:
        what = changed(content, rng)
    content["checksum"] = manifest.digest(content)
    path.write_text(json.dumps(content))
    return what


def read(store: Path) -> list[Any]:
    """What a computation takes from a store, but for weights, which any file may hold."""
    r = irt.open_responses(store)
    y = cells(r)
    assert (y < np.array(r.n_categories)).all(), "codes that their items do not have"
    return [y, *(r.person_ids(k).tolist() for k in range(r.n_blocks))]


def earlier(folder: Path) -> list[Path]:
    """Stores of all layouts and versions, as earlier versions left them."""
    return sorted(FORMATS.glob("store-*"))


def graded(folder: Path) -> list[Path]:
    """Items of four categories; of two to four, with booklets, in two parts: all that a store says.

    Some count back, some categories are dropped, and some items come with the second part.
    """
    rng, items, stores = np.random.default_rng(5), ["q1", "q2", "q3", "q4"], []
    for layout, k in (("dense", (4, 4, 4, 4)), ("dense", (2, 4, 3, 4)), ("csr", (2, 4, 3, 4))):
        codes = rng.permuted(np.arange(12)[:, None] % k, axis=0)
        y = pd.DataFrame(codes, columns=items, dtype=object)
        y.insert(0, "person", [f"p{i}" for i in range(12)])
        if min(k) < 4:  # booklets that share two items, and one other item each
            y.loc[:5, "q4"], y.loc[6:, "q1"] = "", ""
            y.loc[:, "q2"] = [0, 1, 3] * 4  # of category 2 there is none
        store = folder / f"{layout}-{min(k)}"
        options: dict[str, Any] = {
            "categories": dict(zip(items, k, strict=True)), "reverse": ["q3"], "rows_per_block": 4,
            "null_categories": "keep" if min(k) == 4 else "collapse",
        }  # fmt: skip
        y[:6].to_csv(folder / "y.csv", index=False)
        irt.ingest(folder / "y.csv", store, layout=layout, **options)
        y[6:].to_csv(folder / "y.csv", index=False)
        irt.append(folder / "y.csv", store, **options)
        stores.append(store)
    return stores


def check(stores: list[Path], folder: Path, n: int, seed: int) -> None:
    want = {store.name: read(store) for store in stores}
    tally: Counter[str] = Counter()
    wrong = []
    for k in range(n):
        store, copy = stores[k % len(stores)], folder / f"copy-{k % 2}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(store, copy)
        what = f"{k}: {store.name}, {forge(copy, random.Random(f'{seed}-{k}'))}"
        try:
            found = read(copy)
        except IrtDaskError:
            tally["named errors"] += 1
        except Exception as error:
            wrong.append(f"{what}: {type(error).__name__}: {error}")
        else:
            tally["the same responses"] += 1
            same = [np.array_equal(a, b) for a, b in zip(found, want[store.name], strict=False)]
            if not all(same) or len(found) != len(want[store.name]):
                wrong.append(f"{what}: other responses")
    print(f"\n{n} forgeries: " + ", ".join(f"{v} {k}" for k, v in sorted(tally.items())))
    assert not wrong, f"{len(wrong)} findings:\n" + "\n".join(wrong[:30])
    assert tally["named errors"] > n / 4


OF = [earlier, graded]


@pytest.mark.filterwarnings("ignore::irt_dask.errors.Notice")
@pytest.mark.parametrize("stores", OF)
def test_some_forgeries(stores: Callable[[Path], list[Path]], tmp_path: Path) -> None:
    check(stores(tmp_path), tmp_path, 40, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::irt_dask.errors.Notice")
@pytest.mark.parametrize("stores", OF)
@pytest.mark.parametrize("n", [300, pytest.param(1000, marks=pytest.mark.nightly)])
def test_many_forgeries(stores: Callable[[Path], list[Path]], tmp_path: Path, n: int) -> None:
    check(stores(tmp_path), tmp_path, n, 2)
