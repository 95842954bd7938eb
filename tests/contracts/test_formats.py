"""Files of every format that was ever written open, and hold what was written then.

They lie in ``tests/contracts/formats`` as they were made (by ``make.py`` there) and are not made
anew when the code changes.  A new version of a format adds files; these stay.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.errors import ChangedRunError
from irt_dask.kernels.responses.layouts import to_dense
from irt_dask.workflow import RunConfig, identity, run
from irt_dask.workflow.directory import RunDirectory
from irt_dask.workflow.running import report_again
from irt_dask.workflow.scoring import read_bank

FORMATS = Path(__file__).parent / "formats"

# --- what the files hold --------------------------------------------------------------------------

ITEMS = ("q1", "q2", "ärger")
FIRST = [[1, 0, 1], [0, 0, -1], [1, 1, 1], [-1, 0, 0], [1, -1, 0]]
MORE = [[0, 1, 1], [1, -1, -1]]
WEIGHT = [1.5, 2.0, 0.5, 1.0, 1.0, 3.0, 0.25]
TIMES = [3, 1, 4, 1, 5, 9, 2]
GROUP = list("abaabba")
AGE = [15.0, np.nan, 16.5, 15.0, 14.0, 15.5, 16.0]

K = (2, 3, 15)
CODES = [[1, 2, 14], [0, -1, 0], [-1, 1, 7], [1, 0, 13]]
#: Of persons who have also seen two items that joined, of four and of two categories.
JOINED, JOINED_K = (*ITEMS, "q4", "q5"), (*K, 4, 2)
LATER = [[1, -1, 3, 3, 1], [0, 2, -1, 0, -1], [-1, -1, -1, 2, 0]]
BINARY_LATER = [[1, -1, 0, 1, 1], [0, 1, -1, 0, -1]]

BANK = {
    "item": list(ITEMS),
    "a": [0.8, 1.25, 1.7],
    "b": [-0.5, 0.1, 1.2],
    "c": [0.0, 0.2, 0.05],
    "se_a": [0.05, 0.1, 0.2],
    "flag": ["ok", "flat|reversed", "ok"],
}

RUN_ITEMS = ("r1", "r2", "r3")
#: Persons of a run: every pattern so often.
RUN = np.repeat((np.arange(8)[:, None] >> np.arange(3)) & 1, [4, 3, 3, 4, 2, 3, 3, 6], axis=0)
RUN_OPTIONS = {
    "title": "A run",
    "joint": {"coreset": 0, "max_iterations": 8},
    "bayes": {"shards": 1, "draws": 100, "warmup": 50},
    "check": {"replicates": 10},
}


def joined(y: Any, later: Any) -> np.ndarray:
    """Persons of before have not seen the items that joined."""
    y = np.array(y)
    return np.concatenate([np.pad(y, ((0, 0), (0, 2)), constant_values=-1), later])


STORES: dict[str, dict[str, Any]] = {
    "store-2-dense": {
        "y": [*FIRST, *MORE], "layout": "dense", "weight": WEIGHT, "group": GROUP, "age": AGE,
    },
    "store-2-csr": {"y": [*FIRST, *MORE], "layout": "csr"},
    "store-3-frequency": {
        "y": [*FIRST, *MORE], "layout": "dense", "weight": TIMES, "kind": "frequency",
        "needs": ["frequency weights"],
    },
    "store-3-categories": {
        "y": CODES, "layout": "dense", "categories": K, "needs": ["categories"],
    },
    "store-3-items": {
        "y": joined(FIRST, BINARY_LATER), "layout": "dense", "items": JOINED,
        "needs": ["items by part"],
    },
    "store-3-categories-items-csr": {
        "y": joined(CODES, LATER), "layout": "csr", "items": JOINED, "categories": JOINED_K,
        "needs": ["categories", "items by part"],
    },
}  # fmt: skip

#: Of both layouts: persons of before who were merged, and have seen an item that joined.
MERGED = [[1, 0, 1, -1], [0, 0, 1, 0], [1, 1, 1, -1], [-1, 0, 0, 1], [1, -1, 0, -1], [0, 1, 1, 1]]
for layout in ("dense", "csr"):
    STORES[f"store-3-merged-{layout}"] = {
        "y": MERGED, "layout": layout, "items": (*ITEMS, "q4"),
        "needs": ["items by part", "merged persons"],
    }  # fmt: skip

#: Of both layouts: what was omitted (O) and not reached (R), of items with K categories.
NONRESPONSE = [["1", "2", "14"], ["O", "", "R"], ["", "O", "7"], ["1", "R", "R"]]
WORDS = {"O": "omitted", "R": "not reached"}


def read_as(omitted: int, not_reached: int) -> np.ndarray:
    codes = {"": -1, "O": omitted, "R": not_reached}
    return np.array([[codes.get(x, x) for x in row] for row in NONRESPONSE]).astype(int)


for layout in ("dense", "csr"):
    STORES[f"store-3-nonresponse-{layout}"] = {
        "y": read_as(-1, -1), "layout": layout, "categories": K,
        "needs": ["categories", "nonresponse"],
    }  # fmt: skip


def of_blocks(r: irt.Responses, read: Any) -> np.ndarray:
    return np.concatenate([read(k) for k in range(r.n_blocks)])


# --- tests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STORES)
def test_stores(name: str) -> None:
    said, r = STORES[name], irt.open_responses(FORMATS / name)
    written = json.loads((FORMATS / name / "manifest.json").read_text())
    assert written["format_version"] == (3 if "needs" in said else 2)
    assert written.get("needs") == said.get("needs")
    r.verify()
    np.testing.assert_array_equal(
        of_blocks(r, lambda k: to_dense(r.read_block(k).data).values), said["y"]
    )
    if "nonresponse" in said.get("needs", ()):
        wrong = r.select(omitted="wrong", not_reached="missing")
        np.testing.assert_array_equal(
            of_blocks(wrong, lambda k: to_dense(wrong.read_block(k).data).values), read_as(0, -1)
        )
    assert r.item_id == said.get("items", ITEMS)
    assert r.n_categories == said.get("categories", (2,) * r.n_items)
    assert (r.layout, r.weight_kind) == (said["layout"], said.get("kind", "sampling"))
    assert r.fingerprint == written["checksum"]
    assert list(of_blocks(r, r.person_ids)) == [f"p{i}" for i in range(r.n_persons)]
    assert r.has_groups == ("group" in said)
    if "group" in said:
        assert list(of_blocks(r, r.groups)) == said["group"]
    if "age" in said:
        assert r.covariate_names == ("age",)
        np.testing.assert_array_equal(of_blocks(r, r.covariates)[:, 0], said["age"])
    if "weight" in said:
        weight = of_blocks(r, lambda k: r.read_block(k).weights())
        np.testing.assert_array_equal(weight, said["weight"])


@pytest.mark.filterwarnings("ignore:.*is not used:irt_dask.errors.Notice")
@pytest.mark.parametrize("name", [name for name in STORES if "2" in name])
def test_stores_of_version_2_grow_as_they_did(name: str, tmp_path: Path) -> None:
    store = shutil.copytree(FORMATS / name, tmp_path / "s")
    old = irt.open_responses(store)
    (tmp_path / "more.csv").write_text("person,item,response,weight,group\nx,q2,1,2,a\n")
    columns = {"weight": "weight", "group": "group"} if old.has_groups else None
    persons = pd.DataFrame({"person": ["x"], "age": [1.0]}) if old.has_groups else None
    new = irt.append(tmp_path / "more.csv", store, columns=columns, persons=persons)
    assert json.loads((store / "manifest.json").read_text())["format_version"] == 2
    last = to_dense(new.read_block(new.n_blocks - 1).data).values
    np.testing.assert_array_equal(last, [[-1, 1, -1]])
    np.testing.assert_array_equal(
        of_blocks(old, lambda k: to_dense(old.read_block(k).data).values), STORES[name]["y"]
    )


@pytest.mark.parametrize("name", ["bank.csv", "bank.json"])
def test_banks(name: str) -> None:
    bank = irt.read_items(FORMATS / name)
    assert list(bank["item_id"].values) == BANK["item"]
    for column, name in (("a", "discrimination"), ("b", "difficulty"), ("c", "guessing")):
        np.testing.assert_array_equal(bank[f"item_{name}"].values, BANK[column])
    np.testing.assert_array_equal(bank["item_intercept"].values, -np.multiply(BANK["a"], BANK["b"]))
    assert list(bank["item_flag"].values) == BANK["flag"]


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A finished run, but for its report."""
    return shutil.copytree(FORMATS / "run", tmp_path / "run")


def test_a_run(finished: Path) -> None:
    """Its results are those that its own responses give, and are reported."""
    r, record = irt.open_responses(finished / "responses"), RunDirectory.existing(finished)
    np.testing.assert_array_equal(of_blocks(r, lambda k: r.read_block(k).data.values), RUN)
    summary = record.load("summary.nc")
    np.testing.assert_array_equal(summary["item_n_right"], RUN.sum(axis=0))
    np.testing.assert_allclose(
        record.load("spectral.nc")["item_difficulty"], irt.fit_spectral(r)["item_difficulty"],
        atol=1e-6,
    )  # fmt: skip
    posterior, bank = read_bank(finished / "posterior.nc"), irt.read_items(finished / "items.csv")
    for name in ("item_discrimination", "item_intercept"):
        np.testing.assert_array_equal(bank[name], posterior[name])
    scores = pd.read_parquet(finished / "scores")
    again = irt.score(r, posterior, n_item_draws=20)
    np.testing.assert_allclose(scores["person_ability"], again["person_ability"], atol=1e-6)
    page = report_again(finished).read_text()
    assert all(word in page for word in ("A run", *RUN_ITEMS))


def test_a_run_of_another_version_is_refused_by_name(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "run.csv"
    rows = [f"p{i},{','.join(map(str, y))}" for i, y in enumerate(RUN)]
    source.write_text("\n".join([",".join(("person", *RUN_ITEMS)), *rows]) + "\n")
    config = RunConfig.model_validate(
        {**RUN_OPTIONS, "data": {"source": str(source)}, "directory": str(finished)}
    )
    was = RunDirectory.existing(finished).content["versions"]
    monkeypatch.setattr(identity, "versions", lambda: was | {"irt_dask": "99"})
    with pytest.raises(ChangedRunError, match=rf"irt_dask {was['irt_dask']} -> 99"):
        run(config)
