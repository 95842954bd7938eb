"""Omitted and not reached: remembered by stores, and read as missing or as wrong."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import irt_dask as irt
from irt_dask.errors import InputError, StoreError
from irt_dask.kernels.responses.layouts import to_dense

RECODE = {"O": "omitted", "R": "not reached"}
N, M, K = 300, 6, (2, 2, 2, 4, 4, 3)
NAMES = [f"q{j + 1}" for j in range(M)]
CATEGORIES = dict(zip(NAMES, K, strict=True))


@pytest.fixture(scope="module")
def table():
    """Codes as texts: a tenth omitted, the ends of some rows not reached, some cells empty."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, np.array(K), size=(N, M)).astype(str).astype(object)
    y[rng.random((N, M)) < 0.1] = "O"
    y[rng.random((N, M)) < 0.1] = ""
    for i, last in enumerate(rng.integers(2, 2 * M, size=N)):
        y[i, last:] = "R"
    return y


def wide(path, y, ids=None, names=NAMES):
    ids = [f"p{i}" for i in range(len(y))] if ids is None else ids
    lines = [",".join(["person", *names])]
    lines += [",".join([i, *row]) for i, row in zip(ids, y, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


def long(path, y):
    lines = ["person,item,response"]
    lines += [f"p{i},{NAMES[j]},{y[i, j]}" for i in range(len(y)) for j in range(M)]
    path.write_text("\n".join(lines) + "\n")
    return path


def values(r):
    blocks = [r.read_block(k).data for k in range(r.n_blocks)]
    return np.concatenate([to_dense(data).values for data in blocks])


def expected(y, omitted, not_reached):
    codes = {"": -1, "O": omitted, "R": not_reached}
    return np.array([[codes.get(x, x) for x in row] for row in y]).astype(int)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("written", [wide, long])
def test_a_store_is_read_as_it_is_said(table, written, layout, tmp_path):
    """As missing by default, and wrong where that is wanted, each kind by itself."""
    r = irt.ingest(written(tmp_path / "f.csv", table), tmp_path / "s", recode=RECODE, layout=layout,
                   categories=CATEGORIES, rows_per_block=77)  # fmt: skip
    order = [NAMES.index(i) for i in r.item_id]
    assert r.n_categories == tuple(K[j] for j in order)
    words = {None: -1, "missing": -1, "wrong": 0}
    assert len({r.fingerprint, r.select(omitted="wrong").fingerprint,
                r.select(not_reached="wrong").fingerprint}) == 3  # fmt: skip
    for omitted, a in words.items():
        for not_reached, b in words.items():
            read = r.select(omitted=omitted, not_reached=not_reached)
            np.testing.assert_array_equal(values(read), expected(table, a, b)[:, order])
    wrong = r.select(omitted="wrong")
    assert wrong.select(omitted="missing").fingerprint == r.fingerprint
    both = wrong.select(not_reached="wrong").select(items=[NAMES[5], NAMES[0]], persons=slice(9))
    np.testing.assert_array_equal(values(both), expected(table, 0, 0)[:9][:, [5, 0]])
    r.verify()


def test_results_are_those_of_stores_that_never_knew(table, tmp_path):
    """A calibration without them, scores with them as wrong: the same bits as of two stores."""
    file = wide(tmp_path / "f.csv", table)
    how = {"categories": CATEGORIES, "rows_per_block": 100}
    r = irt.ingest(file, tmp_path / "s", recode=RECODE, **how)
    missing = irt.ingest(file, tmp_path / "missing", missing=["O", "R"], **how)
    wrong = irt.ingest(file, tmp_path / "wrong", recode={"O": "wrong", "R": "wrong"}, **how)
    fits = [irt.fit_marginal(x, model="pcm", standard_errors=False, progress=False)
            for x in (r, missing)]  # fmt: skip
    for name, value in fits[0].data_vars.items():
        np.testing.assert_array_equal(value, fits[1][name])
    scores = [irt.score(x, fits[0], progress=False)
              for x in (r.select(omitted="wrong", not_reached="wrong"), wrong)]  # fmt: skip
    for name in ("person_ability", "person_ability_sd", "n_responses"):
        if name in scores[0]:
            np.testing.assert_array_equal(scores[0][name], scores[1][name])
    other = irt.score(r, fits[0], progress=False)
    assert (other["person_ability"].values != scores[0]["person_ability"].values).mean() > 0.5


def test_a_folder_of_scores_belongs_to_one_way_to_read_them(table, tmp_path):
    r = irt.ingest(wide(tmp_path / "f.csv", table), tmp_path / "s", recode=RECODE,
                   categories=CATEGORIES, rows_per_block=100)  # fmt: skip
    fit = irt.fit_marginal(r, model="pcm", standard_errors=False, progress=False)
    for x in (r, r):
        irt.score(x, fit, store=tmp_path / "scores", progress=False)
    with pytest.raises(InputError, match="holds scores of other responses"):
        irt.score(r.select(omitted="wrong"), fit, store=tmp_path / "scores", progress=False)


def test_keys_reversed_items_and_dropped_categories(table, tmp_path):
    """They are no categories: not scored, not counted back, not among those that occur."""
    y = table.copy()
    y[y[:, 3] == "2", 3] = "3"
    with pytest.warns(irt.errors.Notice, match=r"dropped: 'q4' \(2\);"):
        r = irt.ingest(wide(tmp_path / "f.csv", y), tmp_path / "s", recode=RECODE,
                       categories=CATEGORIES, reverse=["q5"],
                       null_categories="collapse")  # fmt: skip
    assert r.n_categories == (2, 2, 2, 3, 4, 3)
    codes = expected(y, 0, -1)
    codes[codes[:, 3] == 3, 3] = 2
    answered = ~np.isin(y[:, 4], ["", "O", "R"])
    codes[answered, 4] = 3 - codes[answered, 4]
    np.testing.assert_array_equal(values(r.select(omitted="wrong")), codes)
    from_data = irt.ingest(tmp_path / "f.csv", tmp_path / "t", recode=RECODE, categories="data",
                           null_categories="keep")  # fmt: skip
    assert from_data.n_categories == K
    (tmp_path / "raw.csv").write_text("person,a,b\nx,A,9\ny,B,C\nz,9,A\n")
    (tmp_path / "key.csv").write_text("item,key\na,A\nb,C\n")
    keyed = irt.ingest(tmp_path / "raw.csv", tmp_path / "k", key=tmp_path / "key.csv",
                       recode={"9": "omitted"})  # fmt: skip
    np.testing.assert_array_equal(values(keyed), [[1, -1], [0, 1], [-1, 0]])
    np.testing.assert_array_equal(values(keyed.select(omitted="wrong")), [[1, 0], [0, 1], [0, 0]])


def test_waves(table, tmp_path):
    """A later file may be the first that says it; an omitted response is there, and no gap."""
    store = tmp_path / "s"
    plain = table[:100].copy()
    plain[np.isin(plain, ["O", "R"])] = ""
    r = irt.ingest(wide(tmp_path / "1.csv", plain), store, categories=CATEGORIES)
    with pytest.raises(InputError, match="does not say what was omitted"):
        r.select(omitted="wrong")
    assert json.loads((store / "manifest.json").read_text()).get("needs") == ["categories"]
    ids = [f"p{i}" for i in range(50, 200)]
    later = irt.append(wide(tmp_path / "2.csv", table[50:200], ids), store, recode=RECODE,
                       on_duplicate="merge")  # fmt: skip
    assert "nonresponse" in json.loads((store / "manifest.json").read_text())["needs"]
    np.testing.assert_array_equal(values(later)[:100], values(r))
    seen = expected(table, 0, 0)[:200]
    seen[:50] = expected(plain, 0, 0)[:50]
    np.testing.assert_array_equal(values(later.select(omitted="wrong", not_reached="wrong")), seen)
    np.testing.assert_array_equal(values(r), expected(plain, -1, -1))  # as of that time
    i, j = np.argwhere(table[50:200] == "O")[0]
    answered = table[50 + i : 51 + i].copy()
    answered[0, j] = "1"
    wide(tmp_path / "3.csv", answered, [f"p{50 + i}"])
    with pytest.raises(InputError, match=f"has 1 for the item '{NAMES[j]}' here, and omitted in"):
        irt.append(tmp_path / "3.csv", store, recode=RECODE, on_duplicate="merge")
    with pytest.warns(irt.errors.Notice, match="adds nothing"):
        irt.append(tmp_path / "2.csv", store, recode=RECODE, on_duplicate="merge")


def test_what_is_refused(table, tmp_path):
    r = irt.ingest(wide(tmp_path / "f.csv", table), tmp_path / "s", recode=RECODE,
                   categories=CATEGORIES)  # fmt: skip
    with pytest.raises(InputError, match="omitted='zero' is not available"):
        r.select(omitted="zero")
    for other in (r.select(items=["q1"]), irt.load_lsat(), r.dichotomise(1)):
        with pytest.raises(InputError, match="for an opened store"):
            other.select(omitted="wrong")
    shutil.copytree(tmp_path / "s", tmp_path / "unmarked")
    content = json.loads((tmp_path / "s/manifest.json").read_text())
    for part in content["parts"]:
        del part["nonresponse"]
    content["needs"].remove("nonresponse")
    from irt_dask.store import manifest

    del content["checksum"]
    manifest.write(tmp_path / "unmarked", content)
    with pytest.raises(StoreError, match="codes that its items do not have"):
        irt.open_responses(tmp_path / "unmarked").read_block(0)
