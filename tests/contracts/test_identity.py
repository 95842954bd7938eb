"""What is kept is never given for other data or options: every input is changed alone.

Each test counts stale answers, those that differ from what a computation without anything kept
returns, over all changes; there must be none.
"""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import registry
import scipy.sparse
import xarray as xr
import zarr
from registry import BANKS, FACETS, ITEMS, METHODS, M, Method, named

import irt_dask as irt
from irt_dask.errors import ChangedRunError, CheckpointError, InputError
from irt_dask.ingest import append
from irt_dask.store.digests import block_digest, digest
from irt_dask.store.responses import sha256
from irt_dask.workflow import RunConfig, run, stages
from irt_dask.workflow.inputs import data_checksum
from irt_dask.workflow.publishing import PopulationSection, TableSection
from irt_dask.workflow.running import stages_of

N = 120
Y = registry.values(N, missing=0.1)
IDS = [f"person {i}" for i in range(N)]
FORMS = ("memory", "sparse", "lazy", "selected", "split")


def columns() -> dict[str, Any]:
    return registry.table(N)


def weights(**options: Any) -> np.ndarray:
    return registry.weights(N, **options)


def made(
    form: str,
    y: np.ndarray,
    persons: Any = None,
    person_id: Any = IDS,
    item_id: Any = ITEMS,
    weight_kind: str = "sampling",
) -> irt.Responses:
    """Responses of an array in memory, a dask array that always has the same name, or a view."""
    options = {"persons": persons, "person_id": person_id, "rows_per_block": 40}
    options["weight_kind"] = weight_kind
    if form == "sparse":
        at = np.nonzero(y >= 0)
        y, options["observed"] = scipy.sparse.csr_array((y[at], at), shape=y.shape), "stored"
    elif form != "memory":
        y = da.from_array(y, chunks=(30, y.shape[1]), name="always-the-same")
    r = irt.from_array(y, item_id=item_id, **options)
    if form == "selected":
        return r.select(items=list(reversed(r.item_id)), persons=slice(5, 110))
    return r.split(0.95, seed=1)[0] if form == "split" else r


def flipped(y: np.ndarray, i: int = 50, j: int = 2) -> np.ndarray:
    """One response is another."""
    out = y.copy()
    out[i, j] = 1 - max(out[i, j], 0)
    return out


def changed() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each input of ``from_array`` changed alone, by name."""
    base = columns()
    yield "a response", {"y": flipped(Y)}
    missing = Y.copy()
    missing[40, np.flatnonzero(Y[40] >= 0)[0]] = -1
    yield "a missing response", {"y": missing}
    yield "order of persons", {"y": Y[::-1]}
    yield "order of items", {"y": Y[:, ::-1]}
    yield "item identifiers", {"item_id": (*ITEMS[1:], ITEMS[0])}
    yield "a person identifier", {"person_id": [*IDS[:60], "another", *IDS[61:]]}
    yield "groups permuted", {"persons": base | {"group": np.roll(base["group"], 1)}}
    yield "names of groups", {"persons": base | {"group": np.char.add(base["group"], "x")}}
    yield "a covariate", {"persons": base | {"age": np.where(np.arange(N) == 60, 9.0, base["age"])}}
    yield (
        "names of covariates",
        {"persons": {"group": base["group"], "years": base["age"], "sex": base["sex"]}},
    )
    yield "weights", {"persons": base | {"weight": weights()}}
    yield "weights times a factor", {"persons": base | {"weight": 4.0 * weights()}}
    whole = {"persons": base | {"weight": weights(whole=True)}}
    yield "other weights", whole
    yield "kind of weights", whole | {"weight_kind": "frequency"}
    yield "no groups", {"persons": {k: v for k, v in base.items() if k != "group"}}
    yield "no persons", {"persons": None}


BASE = {"y": Y, "persons": columns()}

# --- fingerprints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_fingerprint_covers_every_input(form: str) -> None:
    found = [made(form, **BASE).fingerprint]
    assert made(form, **BASE).fingerprint == found[0]
    found += [made(form, **BASE | change).fingerprint for _, change in changed()]
    assert len(set(found)) == len(found)


def test_the_same_content_has_the_same_fingerprint() -> None:
    want = made("memory", **BASE).fingerprint
    assert made("lazy", **BASE).fingerprint == want
    assert made("memory", **BASE | {"y": np.where(Y < 0, np.nan, Y)}).fingerprint == want
    masked = np.ma.masked_array(np.abs(Y), mask=Y < 0)
    assert made("memory", **BASE | {"y": masked}).fingerprint == want
    whole = made("lazy", **BASE).select(persons=slice(0, N), items=ITEMS)
    assert whole.fingerprint == want


def test_a_lazy_array_is_read_again_and_its_name_says_nothing(tmp_path: Path) -> None:
    """The same handle on a Zarr array that is overwritten."""
    array = zarr.create_array(tmp_path / "y.zarr", shape=Y.shape, chunks=(30, M), dtype="i1")
    array[:] = Y
    r = irt.from_array(da.from_zarr(tmp_path / "y.zarr"), item_id=ITEMS, rows_per_block=40)
    before = r.fingerprint, irt.fit_marginal(r)["item_intercept"].values
    array[:] = np.where(Y < 0, -1, 1 - Y)
    after = r.fingerprint, irt.fit_marginal(r)["item_intercept"].values
    assert before[0] != after[0]
    np.testing.assert_allclose(before[1], -after[1], atol=1e-6)


def counted(y: np.ndarray, counts: np.ndarray) -> da.Array:
    """A dask array that counts how often each is computed."""

    def chunk(rows: np.ndarray, block_id: Any = None) -> np.ndarray:
        counts[block_id[0]] += 1
        return rows

    array = da.from_array(y, chunks=(40, M))
    return da.map_blocks(chunk, array, dtype=y.dtype, meta=np.empty((0, 0), y.dtype))


@pytest.mark.parametrize("n_shards", [1, 2])
def test_a_lazy_block_is_computed_once_for_a_posterior(n_shards: int) -> None:
    counts = np.zeros(-(-N // 40), dtype=int)
    r = irt.from_array(counted(Y, counts), rows_per_block=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few draws
        irt.fit_bayes(r, n_draws=100, n_warmup=50, n_shards=n_shards)
    np.testing.assert_array_equal(counts, 1)


@pytest.mark.parametrize("label", ["marginal 2PL", "joint 2PL", "score, groups"])
def test_a_lazy_block_is_computed_once_in_a_computation(label: str, tmp_path: Path) -> None:
    """Rounds find it in memory, and so does the pass for its checksum."""
    counts = np.zeros(-(-N // 40), dtype=int)
    r = irt.from_array(counted(Y, counts), persons=columns(), item_id=ITEMS, rows_per_block=40)
    options = {} if "score" in label else {"checkpoint": tmp_path}
    for n in (1, 2):
        named(label)(r, **options)
        np.testing.assert_array_equal(counts, n)


def test_a_lazy_block_is_computed_once_for_files_of_person_fit(tmp_path: Path) -> None:
    """The checksum in the folder's description is the workers', of the blocks that they have."""
    counts = np.zeros(-(-N // 40), dtype=int)
    r = irt.from_array(counted(Y, counts), item_id=ITEMS, rows_per_block=40)
    named("person_fit")(r, store=tmp_path / "values")
    np.testing.assert_array_equal(counts, 1)


@pytest.mark.parametrize("form", ["memory", "sparse"])
def test_what_the_caller_changes_later_has_no_effect(form: str) -> None:
    y, w, ids = Y.copy(), weights(), np.array(IDS, dtype=object)
    x, group = columns()["age"].copy(), columns()["group"].astype(object)
    table = pd.DataFrame({"weight": w, "age": x, "group": group})
    if form == "sparse":
        at = np.nonzero(y >= 0)
        y = scipy.sparse.csr_array((y[at], at), shape=y.shape)
        r = irt.from_array(y, observed="stored", persons=table, person_id=ids, rows_per_block=40)
        y = y.data
    else:
        given = {"weight": w, "age": x, "group": group}
        r = irt.from_array(y, persons=given, person_id=ids, rows_per_block=40)
    want = r.fingerprint
    y[:], w[:], x[:], ids[:], group[:] = 1, 7.0, 0.0, "nobody", "c"
    table["weight"] = 3.0
    assert r.fingerprint == want
    block = r.read_block(1)
    for part in (*block.data[: 1 if form == "memory" else 3], block.weight):
        part[:] = 1
    r.covariates(1)[:] = 0.0
    r.groups(1)[:] = "c"
    r.person_ids(1)[:] = "nobody"
    if form == "memory":
        seen = r.to_xarray().compute()
        for name in ("response", "person_weight", "person_group", "person_id"):
            seen[name].values[:] = seen[name].values[-1:]
    assert r.fingerprint == want


def test_two_lazy_tables_of_one_name_are_two() -> None:
    one, two = (made("lazy", y).to_xarray()["response"] for y in (Y, flipped(Y)))
    assert int((one.compute() != two.compute()).sum()) == 1


def test_no_two_contents_read_alike() -> None:
    a, b = np.arange(3.0), np.arange(3.0, 5.0)
    joined = np.concatenate([a, b])
    contents = [
        None, "", "None", 0, 0.0, False, (), (None,), [(), ()], ((1, 2), 3), (1, (2, 3)), {"a": 1},
        {"a": "1"}, {"b": 1}, {"a": None}, a, a.astype(int), a[None], (a, b), (joined,), (b, a),
        (joined[:2], joined[2:]), "a, b", ("a", "b"), ("a, ", "b"),
    ]  # fmt: skip
    assert len({digest(x) for x in contents}) == len(contents)
    assert sha256(a, b) != sha256(joined) != sha256(joined[:2], joined[2:])
    for x in (0, 0.0, False, "a, b"):
        assert digest({"x": np.array(x)[()]}) == digest({"x": x})
    for opaque in (object(), np.array([None]), Path(), {1, 2}, lambda: 0):
        with pytest.raises(TypeError, match="no checksum"):
            digest({"option": opaque})


# --- blocks that a process keeps ------------------------------------------------------------------

#: Methods that see groups, and the first of each function; others take longer.
QUICK = ("marginal 2PL", "score, groups")
FIRSTS = {m.name: m.label for m in reversed(METHODS)}
FORM = pytest.mark.parametrize("form", [pytest.param("memory", marks=pytest.mark.slow), "lazy"])


def uses(method: Method) -> list[tuple[str, dict[str, Any]]]:
    """The inputs that change what the method returns, each changed alone."""
    out = {"a response", "order of persons"}
    out |= {"groups permuted"} if method.groups != "no" else set()
    out |= {"a covariate"} if method.covariates else set()
    out |= (
        {"weights", "other weights", "kind of weights"}
        if method.weights and method.uses_weights
        else set()
    )
    return [(name, change) for name, change in changed() if name in out]


def often(method: Method) -> Any:
    if method.label in QUICK:
        return ()
    first = FIRSTS[method.name] == method.label or method.abilities == 2
    return pytest.mark.slow if first else pytest.mark.nightly


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(m, marks=often(m), id=m.label)
        for m in METHODS
        if m.random != "secret" and m.categories is None
    ],
)
def test_no_stale_blocks(method: Method, bits: Any) -> None:
    """Dask arrays of one name, one after the other, give what arrays in memory give."""
    before = bits(method(made("lazy", **BASE)))
    stale, moved = [], 0
    for name, change in uses(method):
        want = bits(method(made("memory", **BASE | change)))
        found = bits(method(made("lazy", **BASE | change)))
        stale += [name] * (found != want)
        moved += want != before
    assert not stale
    assert moved


@pytest.mark.slow
@pytest.mark.parametrize("form", ["selected", "split"])
def test_no_stale_blocks_in_views(form: str, bits: Any) -> None:
    method = named("marginal 2PL")
    for y in (Y, flipped(Y)):
        for group in (columns()["group"], np.roll(columns()["group"], 1)):
            view = made(form, y, columns() | {"group": group})
            memory = made("memory", y, columns() | {"group": group})
            if form == "selected":
                memory = memory.select(items=list(reversed(ITEMS)), persons=slice(5, 110))
            else:
                memory = memory.split(0.95, seed=1)[0]
            assert bits(method(view)) == bits(method(memory))


@pytest.mark.slow
def test_no_stale_blocks_on_workers(client: Any, bits: Any) -> None:
    method = named("marginal 2PL")
    for name, change in [("", {}), *uses(method)]:
        if name in ("", "a response", "groups permuted"):
            found = method(made("lazy", **BASE | change), client=client)
            assert bits(found) == bits(method(made("memory", **BASE | change)))


def test_no_stale_blocks_of_a_store_made_anew(tmp_path: Path, bits: Any) -> None:
    method, found = named("marginal 2PL"), []
    for y in (Y, flipped(Y)):
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        frame = pd.DataFrame(np.where(y < 0, "", y.astype(str)), columns=list(ITEMS))
        frame.insert(0, "person", IDS)
        frame.to_csv(tmp_path / "y.csv", index=False)
        r = irt.ingest(tmp_path / "y.csv", tmp_path / "store", rows_per_block=40)
        found.append(bits(method(r)))
        assert found[-1] == bits(method(made("memory", y)))
    assert found[0] != found[1]


def test_no_stale_answers_of_persons_who_are_merged(tmp_path: Path, bits: Any) -> None:
    """A block that got responses is another one; the others, and what it was before, are not."""
    frame = pd.DataFrame(np.where(Y < 0, "", Y.astype(str)), columns=list(ITEMS))
    frame.insert(0, "person", IDS)
    frame.to_csv(tmp_path / "y.csv", index=False)
    store, kept, method = tmp_path / "s", tmp_path / "kept", named("marginal 2PL")
    old = new = irt.ingest(tmp_path / "y.csv", store, rows_per_block=40)
    before = bits(method(old, checkpoint=kept))
    bank, scores, y = BANKS["2pl"], tmp_path / "scores", Y.copy()
    irt.score(old, bank, store=scores)
    for k in (1, 0):  # of the first block, which tells whose scores they are, too
        i, j = np.argwhere(y[40 * k : 40 * k + 40] < 0)[0] + (40 * k, 0)
        y[i, j] = 1
        (tmp_path / "more.csv").write_text(f"person,item,response\n{IDS[i]},{ITEMS[j]},1\n")
        was, new = new, append(tmp_path / "more.csv", store, on_duplicate="merge")
        pairs = list(zip(was.refs, new.refs, strict=True))
        assert [block_digest(a) != block_digest(b) for a, b in pairs] == [k == n for n in range(3)]
        assert all(a.cache_key != b.cache_key for a, b in pairs)
        assert new.fingerprint != was.fingerprint
        assert bits(method(new)) == bits(method(made("memory", y))) != before
        with pytest.raises(CheckpointError, match="another computation"):
            method(new, checkpoint=kept)
        result = irt.score(new, bank, store=scores)
        assert (result.attrs["n_blocks_scored"], result.attrs["n_blocks_kept"]) == (1, 2)
        irt.score(new, bank, store=tmp_path / f"fresh {k}")
        assert table_of(scores).equals(table_of(tmp_path / f"fresh {k}"))
    assert bits(method(old, checkpoint=kept)) == bits(method(old)) == before


@pytest.mark.slow
def test_dif_under_permutation_of_groups(bits: Any) -> None:
    """A permutation test: of 20 chi-squares of an item with DIF the observed one is the largest."""
    rng = np.random.default_rng(3)
    y, group = registry.values(400, seed=3), rng.permutation(np.repeat(["a", "b"], 200))
    y[group == "b", 1] = rng.random(200) < 0.75  # .38 in the other group
    array = da.from_array(y, chunks=(100, M))
    chi2 = []
    for k in range(20):
        persons = {"group": group if k == 0 else rng.permutation(group)}
        r = irt.from_array(array, persons=persons, item_id=ITEMS, rows_per_block=100)
        found = named("dif")(r)
        if k < 3:
            memory = irt.from_array(y, persons=persons, item_id=ITEMS, rows_per_block=100)
            assert bits(found) == bits(named("dif")(memory))
        chi2.append(found["item_dif_uniform_chi2"].values)
    assert len({x[1] for x in chi2}) == 20
    assert chi2[0][1] > 20.0 > max(x[1] for x in chi2[1:])
    assert 0.5 < np.mean(chi2[1:]) < 1.6  # of the permuted ones: chi-square with 1


# --- checkpoints ----------------------------------------------------------------------------------

BLOCKS = ["a", "a", "b", "b", "b"]
COVARIATES = pd.DataFrame({"x": range(5)}, index=list(ITEMS))
SIMPLE = np.array([[1, 0], [1, 0], [1, 1], [0, 1], [0, 1]], dtype=bool)
#: Another value of each option; a method that gets a new one fails here until it is listed.
OTHER: dict[str, dict[str, list[dict[str, Any]]]] = {
    "fit_marginal": {
        "model": [{"model": "1pl"}, {"model": "3pl"}],
        "groups": [{"groups": False}],
        "reference_group": [{"reference_group": "b"}],
        "latent": [{"latent": "histogram"}],
        "fixed_items": [
            {"fixed_items": BANKS["anchors"]},
            {"fixed_items": BANKS["anchors"] + 0.1},
            {"fixed_items": BANKS["2pl"].isel(items=[0, 2])},
        ],
        "guessing_prior": [
            {"model": "3pl", "guessing_prior": (2.0, 9.0)},
            {"model": "3pl", "guessing_prior": None},
        ],
        "prior": [{"prior": "empirical"}, {"prior": irt.ItemPrior()}],
        "positive": [{"positive": "none"}],
        "start": [{"start": BANKS["2pl"]}],
        "max_iterations": [{"max_iterations": 60}],
        "tolerance": [{"tolerance": 1e-5}],
        "standard_errors": [{"standard_errors": False}, {"standard_errors": "sandwich"}],
        "sampling_unit": [{"sampling_unit": "person_group"}],
        "facets": [{"facets": FACETS}, {"facets": FACETS.drop(columns="place")}],
        "item_covariates": [
            {"facets": ["item ~ x"], "item_covariates": COVARIATES},
            {"facets": ["item ~ x"], "item_covariates": COVARIATES**2},
        ],
        "null_categories": [],  # of more than two: calibrate/test_categories_empty.py
    },
    "fit_bifactor": {
        "item_blocks": [{"item_blocks": list("aabbc")}],
        "loadings": [{"loadings": "free"}],
        "standard_errors": [],  # these two are found, and drawn, after the iterations
        "n_draws": [],
        "seed": [],
        "prior": [{"prior": None}, {"prior": irt.ItemPrior()}],
        "max_iterations": [{"max_iterations": 4}],
        "tolerance": [{"tolerance": 1e-5}],
    },
    "fit_concurrent": {
        "model": [{"model": "1pl"}, {"model": "3pl"}],
        "free": [{"free": 0.1}, {"free": None}],
        "rate": [{"rate": 0.5}],
        "least": [{"least": 0.1}],
        "sets": [{"sets": {"b": "s"}}],
        "max_rounds": [{"max_rounds": 1}],
        "reference_group": [{"reference_group": "b"}],
        "max_iterations": [{"max_iterations": 60}],
        "tolerance": [{"tolerance": 1e-5}],
        "guessing_prior": [{"model": "3pl", "guessing_prior": (2.0, 9.0)}],
        "standard_errors": [{"standard_errors": False}, {"standard_errors": "sandwich"}],
        "sampling_unit": [{"sampling_unit": "person_group", "free": None}],
    },
    "fit_joint": {
        "model": [{"model": "1pl"}, {"model": "3pl"}],
        "coreset": [
            {"coreset": irt.Coreset(30)},
            {"coreset": irt.Coreset(40)},
            {"coreset": irt.Coreset(40, method="uniform")},
            {"coreset": irt.Coreset(40, sampling="poisson")},
        ],
        "max_iterations": [{"max_iterations": 20}],
        "tolerance": [{"tolerance": 1e-4}],
        "seed": [{"seed": 6}, {"seed": 6, "coreset": irt.Coreset(40)}],
        "start": [{"start": BANKS["2pl"]}],
        "guessing_min": [{"model": "3pl", "guessing_min": 0.1}],
        "bias_correction": [],  # complete data only; applied to the result
    },
    "fit_bayes": {
        "model": [{"model": "3pl"}, {"model": "4pl"}],
        "guessing_prior": [{"model": "3pl", "guessing_prior": (2.0, 8.0)}],
        "n_dims": [{"n_dims": 2}],
        "n_shards": [{"n_shards": 2}],
        "n_draws": [{"n_draws": 101}],
        "n_warmup": [{"n_warmup": 51}],
        "n_chains": [{"n_chains": 2}],
        "seed": [{"seed": 6}],
        "prior": [{"prior": irt.ItemPrior((1.0, 0.5))}, {"prior": irt.ItemPrior((1, 1), (0, 1))}],
        "sampler": [{"sampler": "polya-gamma"}],
        "powering": [{"powering": "published"}],
        "location": [{"location": "average"}],
        "loadings": [{"n_dims": 2, "loadings": SIMPLE}],
        "positive": [{"positive": "none"}, {"n_dims": 2, "positive": "anchors"}],
        "correlated": [{"n_dims": 2, "loadings": SIMPLE, "correlated": True}],
        "item_blocks": [{"item_blocks": BLOCKS}, {"item_blocks": BLOCKS[::-1]}],
        "item_covariates": [{"item_covariates": COVARIATES}],
        "start": [{"start": BANKS["2pl"]}],
    },
}  # fmt: skip
FIRST: dict[str, dict[str, Any]] = {
    "fit_marginal": {},
    "fit_bifactor": {"item_blocks": list("abcab"), "max_iterations": 5},
    "fit_concurrent": {},
    "fit_joint": {"max_iterations": 8},
    "fit_bayes": {"n_draws": 100, "n_warmup": 50, "n_shards": 1},
}
#: Not what is computed, but where.
WHERE = {"responses", "client", "progress", "checkpoint", "persons"}


def test_every_method_with_checkpoints_and_every_option_is_here() -> None:
    there = {
        name: set(inspect.signature(getattr(irt, name)).parameters)
        for name in {m.name for m in METHODS}
    }
    there = {name: options for name, options in there.items() if "checkpoint" in options}
    assert {name: options - WHERE for name, options in there.items()} == {
        name: set(options) for name, options in OTHER.items()
    }


def answer(name: str, r: irt.Responses, **options: Any) -> Any:
    """Return the result; None where it is refused."""
    try:
        return Method("", name, FIRST[name] | options)(r)
    except (CheckpointError, InputError):
        return None


@FORM
@pytest.mark.parametrize("name", OTHER)
def test_no_stale_checkpoints(name: str, form: str, tmp_path: Path, bits: Any) -> None:
    """Another input or option is refused, or the result is that of no checkpoint at all."""
    inputs = BASE
    shutil.rmtree(tmp_path, ignore_errors=True)
    want = bits(answer(name, made(form, **inputs), checkpoint=tmp_path))
    kept = {f.name: f.stat().st_mtime_ns for f in tmp_path.iterdir()}
    assert bits(answer(name, made(form, **inputs), checkpoint=tmp_path)) == want
    assert {f.name: f.stat().st_mtime_ns for f in tmp_path.iterdir()} == kept  # it was used
    stale, refused = [], 0
    changes = [(what, change, {}) for what, change in changed()]
    if form == "memory":
        changes += [(what, {}, o) for what, others in OTHER[name].items() for o in others]
    for what, change, options in changes:
        copy = tmp_path.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(tmp_path, copy)
        r = made("memory", **inputs | change)
        found = answer(name, made(form, **inputs | change), checkpoint=copy, **options)
        refused += found is None
        if found is not None:
            fresh = answer(name, r, **options)
            stale += [what] * (bits(found) != bits(fresh))
    assert not stale
    assert refused >= sum(1 for _ in changed())


def test_a_checkpoint_of_coresets_is_of_one_seed(tmp_path: Path) -> None:
    """Without a coreset the seed changes nothing."""
    r = made("memory", **BASE)
    options = FIRST["fit_joint"] | {"coreset": irt.Coreset(40), "checkpoint": tmp_path}
    Method("", "fit_joint", options | {"seed": 5})(r)
    with pytest.raises(CheckpointError, match="another computation"):
        Method("", "fit_joint", options | {"seed": 6})(r)


# --- the ledger -----------------------------------------------------------------------------------


@FORM
def test_no_stale_releases(form: str, tmp_path: Path) -> None:
    """A recorded release is returned for what it was made from, and for nothing else."""
    ledger = tmp_path / "ledger.json"

    def entries(options: dict[str, Any], **inputs: Any) -> int:
        irt.fit_private_spectral(made(form, **BASE | inputs), ledger=ledger, **options)
        return len(json.loads(ledger.read_text())["entries"])

    first = {"rho": 0.5}
    assert entries(first) == entries(first) == 1
    n = 1
    for _, change in changed():
        if "weight" not in (change.get("persons") or {}):
            n += 1
            assert entries(first, **change) == n
    if form == "memory":
        graph = {"rho": 0.5, "pairs": "random", "p0": 0.9}
        for other in (
            {"rho": 0.6}, {"rho": 0.5, "delta": 1e-6}, {"epsilon": 1.0, "delta": 1e-6},
            {"rho": 0.5, "max_items_per_person": 3}, graph, graph | {"p0": 1.0},
            graph | {"seed": 2},
        ):  # fmt: skip
            n += 1
            assert entries(other) == n
    assert entries(first) == n
    options = set(inspect.signature(irt.fit_private_spectral).parameters)
    budget = {"epsilon", "delta", "rho", "adjacency", "ledger", "budget"}
    assert options - WHERE - budget == {"max_items_per_person", "pairs", "p0", "seed"}


# --- folders of scores ----------------------------------------------------------------------------


def table_of(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(sorted(folder.glob("*.parquet")))


def scored(r: irt.Responses, bank: xr.Dataset, folder: Path, **options: Any) -> Any:
    try:
        irt.score(r, bank, store=folder, **options)
    except InputError:
        return None
    return table_of(folder)


def banks() -> Iterator[tuple[str, xr.Dataset]]:
    """A bank with draws and guessing, each of its arrays changed alone."""
    bank = BANKS["draws"]
    for name in ("item_discrimination", "item_intercept"):
        for array in (name, f"{name}_draw"):
            yield array, bank.assign({array: bank[array] + 0.01})
    yield "item_guessing", BANKS["3pl"]
    yield "no draws", BANKS["2pl"]
    yield "item identifiers", bank.assign_coords(item_id=("items", [*ITEMS[1:], ITEMS[0]]))
    yield "loadings", BANKS["plane"]


SCORING = [
    {"method": "map", "n_item_draws": 0}, {"method": "ml", "n_item_draws": 0},
    {"method": "wle", "n_item_draws": 0}, {"n_plausible": 2}, {"seed": 6}, {"n_item_draws": 3},
    {"prior": "groups"}, {"prior": "covariates"}, {"prior": ["age"]},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("form", ["memory", "lazy"])
def test_no_stale_scores(form: str, tmp_path: Path) -> None:
    """Scores in a folder are made again unless they are those of these data, items and options."""
    first, bank = (
        {"n_plausible": 1, "n_item_draws": 5, "seed": 5, "prior": "groups"},
        BANKS["draws"],
    )
    first_scores, at, fresh = (tmp_path / name for name in ("first", "scores", "fresh"))
    scored(made(form, **BASE), bank, first_scores, **first)
    changes: list[tuple[str, dict[str, Any], xr.Dataset, dict[str, Any]]] = []
    changes += [(what, change, bank, {}) for what, change in changed()]
    if form == "memory":
        changes += [(what, {}, other, {}) for what, other in banks()]
        changes += [(str(o), {}, bank, o) for o in SCORING]
    stale, compared = [], 0
    for what, change, items, options in changes:
        for folder in (at, fresh):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(first_scores, at)
        if items is not BANKS["draws"] and "item_discrimination_draw" not in items:
            options = {"n_item_draws": 0, "n_plausible": 0, "prior": "normal"} | options
        found = scored(made(form, **BASE | change), items, at, **first | options)
        want = scored(made("memory", **BASE | change), items, fresh, **first | options)
        if found is not None and want is not None:
            compared += 1
            stale += [what] * (not found.equals(want))
    assert not stale
    assert compared > len(changes) // 3


# --- runs -----------------------------------------------------------------------------------------

#: Where a run computes and lies, and what its data's checksum stands for.
FILES = {"data.source", "data.store", "data.key", "data.persons"}
PLACES = {
    "title", "directory", "cluster", "private.ledger", "private.budget", "marginal.fixed_items",
} | FILES  # fmt: skip
#: What is known of items.
ITEM_TABLE = Path(__file__).with_name("item_table.csv")
#: Sections of the one method of calibration and of the other.
OF_BAYES, OF_MARGINAL = ("spectral", "joint", "bayes"), ("marginal",)


def config(**sections: Any) -> RunConfig:
    data = {"source": "y.csv", "key": "k.csv", "persons": "p.csv", "columns": {"person": "p"}}
    private = {"ledger": "l.json", "rho": 1.0}
    return RunConfig.model_validate({"data": data, "private": private} | sections)


def leaves(model: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if hasattr(type(value), "model_fields") and name != "cluster":
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name)


def with_another(model: Any, path: tuple[str, ...]) -> Any:
    """The model with one value changed."""
    name, *rest = path
    value = getattr(model, name)
    if rest:
        new = with_another(value, tuple(rest))
    elif isinstance(value, bool):
        new = not value
    elif isinstance(value, (int, float)):
        new = value + 1
    elif value == "bayes":
        new = "marginal"
    elif isinstance(value, str):
        new = f"other/{value}"
    elif name == "tables":
        new = [TableSection(out="t.csv", values={"x": "pv*"})]
    elif isinstance(value, (list, tuple)):
        new = [*value, 1.5]
    elif isinstance(value, dict):
        new = value | {"item": "i"}
    else:
        others = {"builtin": "lsat", "item_table": str(ITEM_TABLE)}
        new = (others | {"population": PopulationSection(covariates="x")}).get(name, 3)
    return model.model_copy(update={name: new})


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_every_key_of_a_pipeline_file_is_part_of_a_run() -> None:
    simulated = {"simulate": {"persons": 9, "items": 3}}
    for base, unused in (
        (config(), OF_MARGINAL), (config(data=simulated), OF_MARGINAL),
        (config(calibrate={"method": "marginal"}), OF_BAYES),
    ):  # fmt: skip
        there = {".".join(p): p for p in leaves(base) if p[0] not in unused}
        for name in FILES:
            if getattr(base.data, name.partition(".")[2]) is None:
                del there[name]
        same = {n for n, p in there.items() if with_another(base, p).digest() == base.digest()}
        assert same == {"tables", *PLACES} & set(there)  # made anew, see test_publishing
    assert config(data={"source": "y.csv"}).digest() != config(data={"source": "y.tsv"}).digest()
    assert config(data={"source": "y.csv"}).digest() == config(data={"source": "b/z.csv"}).digest()


def test_every_file_of_the_input_is_part_of_a_run(tmp_path: Path) -> None:
    paths = {role: str(tmp_path / f"{role}.csv") for role in ("source", "key", "persons")}
    config = RunConfig.model_validate({"data": paths})
    for path in paths.values():
        Path(path).write_text("a,b\n1,2\n")
    seen = [data_checksum(config)]
    for path in paths.values():
        Path(path).write_text("a,b\n1,3\n")
        seen.append(data_checksum(config))
    seen.append(data_checksum(RunConfig.model_validate({"data": {"source": paths["source"]}})))
    assert len(set(seen)) == len(seen)


def csv(path: Path, n: int, first: int = 0) -> Path:
    lines = [
        f"p{first + i}," + ",".join(map(str, np.maximum(row, 0))) for i, row in enumerate(Y[:n])
    ]
    path.write_text("person," + ",".join(ITEMS) + "\n" + "\n".join(lines) + "\n")
    return path


def test_a_run_keeps_to_the_data_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that grows meanwhile does not, for this run; for the next one it has changed."""
    store = tmp_path / "store"
    irt.ingest(csv(tmp_path / "y.csv", 60), store)
    more, sizes = csv(tmp_path / "more.csv", 40, 60), []

    def growing(c: Any) -> list[str]:
        sizes.append(c.responses.n_persons)
        append(more, store)
        sizes.append(irt.open_responses(store).n_persons)
        return []

    def after(c: Any) -> list[str]:
        sizes.append(c.responses.n_persons)
        sizes.append(int(irt.pair_counts(c.responses).attrs["n_persons"]))
        return []

    module = sys.modules["irt_dask.workflow.running"]
    monkeypatch.setattr(module, "stages_of", lambda _: {"summary": growing, "spectral": after})
    given = {"data": {"store": str(store)}, "directory": str(tmp_path / "r")}
    config = RunConfig.model_validate(given)
    run(config)
    assert sizes == [60, 100, 60, 60]
    with pytest.raises(ChangedRunError, match="the data changed"):
        run(config)

    def early(c: Any) -> list[str]:
        append(csv(tmp_path / "last.csv", 5, 100), store)
        return []

    monkeypatch.setattr(module, "stages_of", lambda _: {"ingest": early, "summary": after})
    with pytest.raises(ChangedRunError, match="changed while it was running"):
        run(config, fresh=True)


def test_a_source_that_changes_while_it_is_read_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = csv(tmp_path / "y.csv", 60)
    real = stages.ingest_responses

    def late(*args: Any, **options: Any) -> Any:
        csv(source, 50)
        return real(*args, **options)

    monkeypatch.setattr(stages, "ingest_responses", late)
    config = RunConfig.model_validate(
        {"data": {"source": str(source)}, "directory": str(tmp_path / "r")}
    )
    assert "ingest" in stages_of(config)
    with pytest.raises(ChangedRunError, match="changed while they were read"):
        run(config)


# --- other processes ------------------------------------------------------------------------------

PROGRAM = """
import sys, numpy as np, dask.array as da
sys.path.insert(0, sys.argv[2])
import test_identity as t
from pathlib import Path
folder = Path(sys.argv[1])
base, group = t.BASE, t.np.roll(t.columns()["group"], 1)
other = base | {"persons": t.columns() | {"group": group}}
for change in (other, base | {"y": t.flipped(t.Y)}):
    for form in ("memory", "lazy"):
        found = t.answer("fit_marginal", t.made(form, **change), checkpoint=folder / form)
        print("refused" if found is None else "stale")
        t.irt.fit_private_spectral(t.made(form, **change), rho=0.5, ledger=folder / f"{form}.json")
        print(len(t.json.loads((folder / f"{form}.json").read_text())["entries"]))
found = t.answer("fit_marginal", t.made("lazy", **base), checkpoint=folder / "lazy")
print("stale" if found is None else "resumed")
t.irt.fit_private_spectral(t.made("lazy", **base), rho=0.5, ledger=folder / "lazy.json")
print(len(t.json.loads((folder / "lazy.json").read_text())["entries"]))
"""


@pytest.mark.slow
def test_no_stale_answers_of_other_processes(tmp_path: Path) -> None:
    for form in ("memory", "lazy"):
        answer("fit_marginal", made(form, **BASE), checkpoint=tmp_path / form)
        irt.fit_private_spectral(made(form, **BASE), rho=0.5, ledger=tmp_path / f"{form}.json")
    words = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(Path(__file__).parent)],
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    assert words == ["refused", "2"] * 2 + ["refused", "3"] * 2 + ["resumed", "3"]
