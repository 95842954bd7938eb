"""Stores, sources and scores in object storage: in memory, and on an S3 server on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

import fsspec
import fsspec.implementations.memory
import numpy as np
import pandas as pd
import parts as parts_of_stores
import pyarrow.parquet as pq
import pytest
from distributed import LocalCluster

import irt_dask as irt
from irt_dask.banks import read_items, write_items
from irt_dask.calibrate.private.ledger import Ledger
from irt_dask.cli.main import main
from irt_dask.clusters import connect
from irt_dask.clusters.config import ClusterConfig
from irt_dask.engine import lock, person_files
from irt_dask.engine.checkpoint import Checkpoint
from irt_dask.engine.person_files import DONE
from irt_dask.errors import (
    AccessError,
    BusyError,
    DataWarning,
    InputError,
    IrtDaskError,
    NoStoreError,
    StoreError,
    without_credentials,
)
from irt_dask.store import manifest, objects, publish
from irt_dask.store.manifest import NAME
from irt_dask.store.objects import ObjectPath
from irt_dask.store.places import location
from irt_dask.workflow import read_config, read_scoring, run, score_store
from irt_dask.workflow.scoring import read_bank

ITEMS = 6


def rows(n, *, first=0):
    lines = ["person," + ",".join(f"q{j}" for j in range(ITEMS))]
    for i in range(first, first + n):
        y = np.random.default_rng([5, i]).integers(0, 2, ITEMS)
        lines.append(f"p{i}," + ",".join(map(str, y)))
    return "\n".join(lines) + "\n"


def bank_file(path):
    rng = np.random.default_rng(3)
    items = [f"q{j}" for j in range(ITEMS)]
    a, b = rng.uniform(0.6, 1.6, ITEMS), rng.normal(size=ITEMS)
    pd.DataFrame({"item": items, "a": a, "b": b}).to_csv(path, index=False)
    return read_items(path)


def others(items):
    """Responses in memory to these items."""
    values = np.random.default_rng(9).integers(0, 2, (20, ITEMS)).astype(np.int8)
    return irt.from_array(values, item_id=list(items["item_id"].values))


class Storage:
    """A folder of object storage, seen from outside of the package."""

    def __init__(self, system, url):
        self.system, self.url = system, url

    def at(self, name):
        return f"{self.url}/{name}"

    def put(self, name, content):
        data = content if isinstance(content, bytes) else content.encode()
        self.system.pipe_file(self.at(name), data)
        return self.at(name)

    def get(self, name):
        return self.system.cat_file(self.at(name))

    def remove(self, name):
        self.system.rm_file(self.at(name))

    def all(self, name=""):
        """Every object below, by the name that follows."""
        top = self.system._strip_protocol(self.at(name)).rstrip("/")
        found = self.system.find(top)
        return {k[len(top) + 1 :]: self.system.cat_file(k) for k in found}


@pytest.fixture
def memory(request):
    system = fsspec.filesystem("memory")
    name = f"bucket-{request.node.originalname}"
    yield Storage(system, f"memory://{name}")
    if system.exists(f"/{name}"):
        system.rm(f"/{name}", recursive=True)


@pytest.fixture(scope="module")
def server():
    """An S3 server on loopback, which this process and those it starts find in the environment."""
    moto = pytest.importorskip("moto.server", reason="needs moto[server], an S3 server to try with")
    pytest.importorskip("s3fs", reason="needs s3fs")
    import logging

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    patch = pytest.MonkeyPatch()
    url = "http://{}:{}".format(*server.get_host_and_port())
    patch.setenv("AWS_ENDPOINT_URL", url)
    patch.setenv("AWS_ACCESS_KEY_ID", "testing")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    yield url
    patch.undo()
    server.stop()


@pytest.fixture
def s3(server, request):
    system = fsspec.filesystem("s3", use_listings_cache=False)
    bucket = f"bucket-{abs(hash(request.node.name)) % 10**9}"
    system.mkdir(bucket)
    return Storage(system, f"s3://{bucket}")


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.cluster)])
def storage(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def quick(monkeypatch):
    """Leases whose holders are given up soon."""
    monkeypatch.setattr(lock.ObjectLease, "BEAT", 0.2)
    monkeypatch.setattr(lock.ObjectLease, "WATCH", 1.0)
    monkeypatch.setattr(lock.ObjectLease, "SETTLE", 0.1)


def content(responses):
    """Everything that the blocks hold."""
    out = []
    for k in range(responses.n_blocks):
        out.append((responses.read_block(k).data.values.tobytes(), list(responses.person_ids(k))))
    return out


def parts(folder):
    """Bytes of the score files of a local folder or a Storage folder."""
    if isinstance(folder, Path):
        return {p.name: p.read_bytes() for p in folder.glob("part-*.parquet")}
    return {n: b for n, b in folder.items() if n.startswith("part-")}


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://host/store", "http cannot be used; download it"),
        ("nonsense://bucket/store", "Protocol not known"),
        ("s3://", "names no bucket"),
        ("simplecache::memory://bucket/store", "is no URL of object storage"),
        ("file://store", "write file:///folder/name"),
        (Path("s3://bucket/store"), "give a URL as text, not as a Path"),
    ],
)
def test_urls_that_cannot_be_used(url, words):
    with pytest.raises(InputError, match=words):
        irt.open_responses(url)


SECRET = "wJalr/XUtn+FEMI"
LOGINS = [
    f"s3://AKIAKEY:{SECRET}@bucket/store", f"s3://bucket/store?token={SECRET}",
    f"https://user:{SECRET}@host/store.csv", f"https://{SECRET}@host/x".replace("/XUtn", "XUtn"),
    f"s3://bucket/x?versionId=3&X-Amz-Signature={SECRET}", f"nonsense://u:{SECRET}@host/x",
    f"s3://AKIAKEY:p@{SECRET}@bucket/store", f's3://AKIAKEY:p"{SECRET}@bucket/store',
]  # fmt: skip


@pytest.mark.parametrize("url", LOGINS)
def test_credentials_of_a_url_are_not_taken_and_not_said(url, tmp_path, monkeypatch):
    """By whatever takes a place; the one file of the folder is the pipeline's."""
    monkeypatch.chdir(tmp_path)
    items = bank_file(tmp_path / "bank.csv")
    r = others(items)
    pipeline = tmp_path / "p.toml"
    pipeline.write_text(f"[data]\nsource = '{url}'\n")
    nightly = tmp_path / "n.toml"
    nightly.write_text(f"[scoring]\nstore = '{url}'\nbank = 'bank.csv'\nout = 'o'\n")
    calls = [
        lambda: irt.open_responses(url),
        lambda: irt.ingest(url, tmp_path / "s"),
        lambda: irt.ingest(url + ".csv", tmp_path / "s"),
        lambda: irt.simulate(5, 2, store=url),
        lambda: irt.read_items(url),
        lambda: irt.write_items(items, url),
        lambda: irt.score(r, items, store=url),
        lambda: Checkpoint(url, {}),
        lambda: irt.fit_private_spectral(r, rho=1.0, ledger=url),
        lambda: run(read_config(pipeline, {"directory": str(tmp_path / "r")})),
        lambda: score_store(read_scoring(nightly)),
        lambda: read_config(url, {}),
    ]
    for call in calls:
        with pytest.raises(IrtDaskError) as caught:
            call()
        said = "".join(traceback.format_exception_only(caught.value))
        assert "FEMI" not in said
    assert not (tmp_path / "r" / "run.json").exists()


@pytest.mark.parametrize(
    "url",
    [
        f"tls://user:p@{SECRET}@host:8786", f"tls://user:it's{SECRET}@host:8786",
        f'https://say"{SECRET.replace("/", "")}@host/x', f"https://h/x#access_token={SECRET}",
        f"https://h/x?a=1;pw={SECRET}&b=2", f"https://h/x?code=it's{SECRET}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("said", ["no answer of '{}', me@home", "{}: no", "{}"])
def test_credentials_with_any_sign_are_not_said(url, said):
    shown = without_credentials(said.format(url))
    assert "***" in shown
    assert "FEMI" not in shown


@pytest.mark.parametrize("url", ["s3://bucket/a:b/c@d", "s3://bucket/store", "abfs://c@a/x"])
def test_urls_without_credentials_are_said_as_they_are(url):
    assert without_credentials(f"{url}: no") == f"{url}: no"


def test_what_others_say_has_no_credentials(memory, monkeypatch):
    """An endpoint with a password, of the environment, in an error of the storage's client."""

    def broken(self, *args, **options):
        raise ValueError(f"no answer of 'https://me:{SECRET}@host:9000/b?X-Amz-Signature=abc'")

    monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, "cat_file", broken)
    with pytest.raises(StoreError, match=r"https://\*\*\*@host:9000") as caught:
        irt.open_responses(memory.at("store"))
    assert "FEMI" not in str(caught.value)
    assert "abc" not in str(caught.value)
    assert "FEMI" not in str(DataWarning(f"https://me:{SECRET}@host"))


def test_missing_package_is_named(monkeypatch):
    def absent(*args, **options):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "filesystem", absent)
    with pytest.raises(InputError, match=r"pip install 'irt_dask\[s3\]'"):
        irt.open_responses("s3://bucket/store")


def test_file_url_is_the_path(tmp_path):
    (tmp_path / "a.csv").write_text(rows(5))
    made = irt.ingest(f"file://{tmp_path}/a.csv", f"file://{tmp_path}/store")
    assert made.path == str(tmp_path / "store")
    assert location(f"file://{tmp_path}/store") == tmp_path / "store"


def test_what_must_be_on_a_file_system(tmp_path, monkeypatch):
    """Each says so, and nothing called "memory:" appears."""
    monkeypatch.chdir(tmp_path)
    items = bank_file(tmp_path / "bank.csv")
    r = others(items)
    url = "memory://bucket/thing"
    calls = {
        "checkpoint": lambda: Checkpoint(url, {}),
        "item bank": lambda: irt.write_items(items, f"{url}.csv"),
        "values of persons": lambda: irt.fit_joint(r, persons=url),
        "folder for the values": lambda: person_files.new_folder(url),
        "ledger": lambda: Ledger(url, "replace"),
        "run of a demo|folder of runs": lambda: cli("demo", "--out", url),
        "give a URL as text": lambda: ClusterConfig.of(Path("memory://bucket/c.toml")),
        "log_directory": lambda: ClusterConfig.of(
            {"kind": "slurm", "workers": 1, "memory": "1GB", "walltime": "1:00",
             "log_directory": url}
        ),
        "certificates": lambda: cli("certs", url),
        "pipeline file": lambda: cli("run", f"{url}.toml"),
        "directory": lambda: pipeline(tmp_path, "[data]\nbuiltin = 'lsat'", directory=url),
        "private.ledger": lambda: pipeline(
            tmp_path, f"[data]\nbuiltin = 'lsat'\n[private]\nrho = 1.0\nledger = '{url}'"
        ),
        "result of a run": lambda: read_bank(f"{url}.nc"),
    }  # fmt: skip
    before = set(tmp_path.iterdir())
    for words, call in calls.items():
        with pytest.raises((InputError, SystemExit)) as caught:
            call()
        if isinstance(caught.value, SystemExit):
            assert caught.value.code == 2, words
        else:
            assert any(w in str(caught.value) for w in words.split("|")), str(caught.value)
            assert "URL" in str(caught.value)
    assert {p for p in tmp_path.iterdir() if p not in before} <= {tmp_path / "p.toml"}
    assert not fsspec.filesystem("memory").exists("/bucket/thing")


def cli(*args):
    """Run a command in this process; SystemExit with its code where it fails."""
    patch = pytest.MonkeyPatch()
    patch.setattr(sys, "argv", ["irt-dask", *map(str, args)])
    try:
        main()
    finally:
        patch.undo()


def pipeline(folder, text, directory=None):
    from irt_dask.workflow import read_config

    head = "" if directory is None else f"directory = '{directory}'\n"
    (folder / "p.toml").write_text(head + text)
    return read_config(folder / "p.toml")


def test_relative_paths_leave_urls_alone(tmp_path):
    config = pipeline(tmp_path, "[data]\nsource = 'memory://b/x.csv'\nkey = 'key.csv'")
    assert config.data.source == "memory://b/x.csv"
    assert config.data.key == str(tmp_path / "key.csv")


# --- stores ---------------------------------------------------------------------------------------


def both(storage, tmp_path, n=250, more=100):
    """The same store, in two parts, on disk and in object storage."""
    (tmp_path / "a.csv").write_text(rows(n))
    (tmp_path / "b.csv").write_text(rows(more, first=n))
    for name in ("a.csv", "b.csv"):
        storage.put(name, (tmp_path / name).read_bytes())
    options = {"rows_per_block": 50}
    irt.ingest(tmp_path / "a.csv", tmp_path / "store", **options)
    irt.ingest(storage.at("a.csv"), storage.at("store"), **options)
    here = irt.append(tmp_path / "b.csv", tmp_path / "store", **options)
    there = irt.append(storage.at("b.csv"), storage.at("store"), **options)
    return here, there


def test_store_and_scores_are_those_of_a_file_system(storage, tmp_path, bits, quick):
    here, there = both(storage, tmp_path)
    assert there.path == storage.at("store")
    assert content(there) == content(here)
    assert irt.open_responses(storage.at("store")).fingerprint == there.fingerprint
    there.verify()
    assert bits(irt.fit_spectral(there)) == bits(irt.fit_spectral(here))
    items = bank_file(tmp_path / "bank.csv")
    first = irt.score(there, items, n_plausible=2, store=storage.at("scores"))
    irt.score(here, items, n_plausible=2, store=tmp_path / "scores")
    assert first.attrs["store"] == storage.at("scores")
    made = storage.all("scores")
    assert parts(made) == parts(tmp_path / "scores")
    assert len(parts(made)) == there.n_blocks
    a, b = (json.loads(x) for x in (made[DONE], (tmp_path / "scores" / DONE).read_bytes()))
    assert {k for k in a if a[k] != b[k]} == {"data"}  # the name of a part is in the manifest
    assert set(made) == {*parts(made), DONE}  # no lock, no mark
    again = irt.score(there, items, n_plausible=2, store=storage.at("scores"))
    assert (again.attrs["n_blocks_scored"], again.attrs["n_blocks_kept"]) == (0, there.n_blocks)
    storage.put("scores/part-000001.parquet", made["part-000001.parquet"][:-20])
    storage.remove("scores/part-000003.parquet")
    mended = irt.score(there, items, n_plausible=2, store=storage.at("scores"))
    assert mended.attrs["n_blocks_scored"] == 2
    assert storage.all("scores") == made


def test_scores_follow_the_store(storage, tmp_path, quick):
    """New blocks alone are scored after an append; other responses are refused."""
    storage.put("a.csv", rows(100))
    storage.put("b.csv", rows(50, first=100))
    r = irt.ingest(storage.at("a.csv"), storage.at("store"), rows_per_block=50)
    items = bank_file(tmp_path / "bank.csv")
    irt.score(r, items, store=storage.at("scores"))
    r = irt.append(storage.at("b.csv"), storage.at("store"), rows_per_block=50)
    result = irt.score(r, items, store=storage.at("scores"))
    assert (result.attrs["n_blocks_scored"], result.attrs["n_blocks_kept"]) == (1, 2)
    with pytest.raises(InputError, match="scores of other responses"):
        irt.score(others(items), items, store=storage.at("scores"))
    storage.put("other/notes.txt", "mine")
    with pytest.raises(InputError, match="holds other files"):
        irt.score(r, items, store=storage.at("other"))
    assert storage.all("other") == {"notes.txt": b"mine"}


def test_damage_is_an_error_that_names_the_object(storage, tmp_path):
    storage.put("a.csv", rows(150))
    irt.ingest(storage.at("a.csv"), storage.at("store"), rows_per_block=50)
    whole = storage.all("store")
    (chunk,) = [n for n in whole if "/response/c/1/" in n]
    data = whole[chunk]
    damaged = {
        "is missing": None,
        "bytes, the manifest says": data[:-3],
        "checksum mismatch": data[:9] + bytes([data[9] ^ 1]) + data[10:],
    }
    for words, bad in damaged.items():
        storage.remove(f"store/{chunk}")
        if bad is not None:
            storage.put(f"store/{chunk}", bad)
        r = irt.open_responses(storage.at("store"))
        r.read_block(0)
        for call in (lambda r=r: r.read_block(1), r.verify, lambda r=r: irt.fit_spectral(r)):
            with pytest.raises(StoreError, match=words) as caught:
                call()
            assert "chunk 1 of array response" in str(caught.value)
            assert storage.at("store") in str(caught.value)
        storage.put(f"store/{chunk}", data)
    irt.open_responses(storage.at("store")).verify()
    text = whole[NAME]
    storage.put(f"store/{NAME}", text.replace(b'"grouped": false', b'"grouped": true'))
    with pytest.raises(StoreError, match="is damaged: its checksum"):
        irt.open_responses(storage.at("store"))
    storage.remove(f"store/{NAME}")
    with pytest.raises(NoStoreError, match="it has no manifest"):
        irt.open_responses(storage.at("store"))
    with pytest.raises(NoStoreError, match="there is no such folder"):
        irt.open_responses(storage.at("nothing"))


def test_a_new_store_needs_an_empty_place(storage, tmp_path):
    source = storage.put("a.csv", rows(20))
    irt.ingest(source, storage.at("store"))
    before = storage.all()
    for call, words in (
        (lambda: irt.ingest(source, storage.at("store")), "exists already"),
        (lambda: irt.ingest(source, source), "holds other objects"),
        (lambda: irt.ingest(source, storage.url), "cannot be a store|holds other objects"),
        (lambda: irt.append(source, storage.at("none")), "is not a store"),
        (lambda: irt.simulate(10, 3, store=storage.at("store")), "exists already"),
    ):
        with pytest.raises(InputError, match=words):
            call()
    assert storage.all() == before
    irt.simulate(10, 3, store=storage.at("simulated"))
    assert irt.open_responses(storage.at("simulated")).n_persons == 10


def test_sources_name_the_url(storage, tmp_path):
    bad = storage.put("bad.csv", rows(3) + "p9,1,0,1,1,0,x\n")
    with pytest.raises(InputError) as caught:
        irt.ingest(bad, storage.at("store"))
    assert str(caught.value).startswith(f"{bad}, line 5: ")
    for name in ("none.csv", "none.parquet"):
        with pytest.raises(InputError, match=f"{storage.at(name)}: there is no such file"):
            irt.ingest(storage.at(name), storage.at("store"))
    with pytest.raises(InputError, match="the name must end in one of"):
        irt.ingest(storage.put("a.txt", "x"), storage.at("store"))
    assert "store" not in {n.partition("/")[0] for n in storage.all()}


def test_all_kinds_of_sources(storage, tmp_path):
    """Compressed, Parquet and JSON lines, an answer key and a table of persons, as from files."""
    import gzip

    table = pd.DataFrame({"person": ["a", "b", "c"] * 2, "item": list("xxxyyy"),
                          "response": list("ABABBA")})  # fmt: skip
    table.to_csv(tmp_path / "r.csv", index=False)
    (tmp_path / "r.csv.gz").write_bytes(gzip.compress((tmp_path / "r.csv").read_bytes()))
    table.to_parquet(tmp_path / "r.parquet", index=False)
    table.to_json(tmp_path / "r.jsonl", orient="records", lines=True)
    (tmp_path / "key.csv").write_text("item,key\nx,A\ny,B\n")
    (tmp_path / "persons.csv").write_text("person,weight,age\na,1,10\nb,2,20\nc,0.5,30\n")
    for name in ("r.csv", "r.csv.gz", "r.parquet", "r.jsonl", "key.csv", "persons.csv"):
        storage.put(name, (tmp_path / name).read_bytes())
    for name in ("r.csv", "r.csv.gz", "r.parquet", "r.jsonl"):
        here, there = (
            irt.ingest(at(name), at(f"{name}.store"), key=str(at("key.csv")),
                       persons=str(at("persons.csv")))
            for at in (tmp_path.joinpath, storage.at)
        )  # fmt: skip
        assert content(there) == content(here), name
        assert there.max_weight == 2.0
        assert there.covariate_names == ("age",)
    storage.put("persons.csv", "person,weight\na,1\nb,-2\nc,1\n")
    with pytest.raises(InputError) as caught:
        irt.ingest(storage.at("r.csv"), storage.at("x"), key={"x": "A", "y": "B"},
                   persons=storage.at("persons.csv"))  # fmt: skip
    assert str(caught.value).startswith(f"{storage.at('persons.csv')}, line 3: ")


def test_quarantine_lies_beside_the_store(storage, tmp_path):
    text = rows(3) + "p9,1,0,1,1,0,x\n"
    (tmp_path / "bad.csv").write_text(text)
    bad = storage.put("bad.csv", text)
    made = irt.ingest(bad, storage.at("store"), on_error="quarantine")
    irt.ingest(tmp_path / "bad.csv", tmp_path / "store", on_error="quarantine")
    assert made.n_quarantined == 1
    aside = (tmp_path / "store.quarantine.csv").read_bytes()
    assert storage.get("store.quarantine.csv") == aside
    more = storage.put("more.csv", rows(3, first=10) + "p19,1,0,1,1,0,x\n")
    irt.append(more, storage.at("store"), on_error="quarantine")
    assert b"p19" in storage.get("store.quarantine-00001.csv")
    # what an earlier store of this name left goes away, what is somebody else's does not
    storage.put("second.quarantine.csv", aside)
    storage.put("third.quarantine.csv", "my,notes\n")
    for name in ("second", "third"):
        irt.ingest(storage.put("good.csv", rows(3)), storage.at(name))
    left = storage.all()
    assert "second.quarantine.csv" not in left
    assert left["third.quarantine.csv"] == b"my,notes\n"


def test_source_that_changes_while_it_is_copied(memory, monkeypatch):
    source = memory.put("a.csv", rows(50))
    monkeypatch.setattr(objects, "_PIECE", 100)
    read = objects.ObjectPath._call

    def replaced(self, done, method, *args, **options):
        out = read(self, done, method, *args, **options)
        if options.get("start") == 200:
            memory.put("a.csv", rows(50, first=100))
        return out

    monkeypatch.setattr(objects.ObjectPath, "_call", replaced)
    with pytest.raises(InputError, match="the object changes while it is read"):
        irt.ingest(source, memory.at("store"))


# --- several writers ------------------------------------------------------------------------------


@pytest.fixture
def together(monkeypatch):
    """Writers wait for each other between uploading and committing."""
    barrier, upload = threading.Barrier(2, timeout=60), publish._upload

    def waits(*args):
        upload(*args)
        barrier.wait()

    monkeypatch.setattr(publish, "_upload", waits)


def at_once(*calls):
    """What each of several calls returns or raises, run at the same time."""
    out = [None] * len(calls)

    def run(k):
        try:
            out[k] = calls[k]()
        except Exception as error:
            out[k] = error

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


@pytest.mark.cluster
@pytest.mark.parametrize("same", [True, False])
def test_of_two_writers_one_wins(s3, together, same):
    """A new store, then a part: also if both bring the same."""
    at = s3.at("store")
    one, two = s3.put("1.csv", rows(60)), s3.put("2.csv", rows(60, first=0 if same else 500))
    done = at_once(lambda: irt.ingest(one, at), lambda: irt.ingest(two, at))
    (error,) = [d for d in done if isinstance(d, Exception)]
    (made,) = [d for d in done if not isinstance(d, Exception)]
    assert isinstance(error, InputError)
    assert "exists already" in str(error)
    assert irt.open_responses(at).fingerprint == made.fingerprint
    made.verify()
    three = s3.put("3.csv", rows(60, first=1000))
    four = s3.put("4.csv", rows(60, first=1000 if same else 2000))
    done = at_once(lambda: irt.append(three, at), lambda: irt.append(four, at))
    (error,) = [d for d in done if isinstance(d, Exception)]
    (made,) = [d for d in done if not isinstance(d, Exception)]
    assert isinstance(error, StoreError)
    assert "was changed by another process" in str(error)
    now = irt.open_responses(at)
    assert (now.fingerprint, now.n_persons) == (made.fingerprint, 120)
    now.verify()


class KilledError(BaseException):
    """Stands for the end of the process."""


def test_commit_without_manifest_is_completed(storage, monkeypatch):
    """Readers see the old store until the next writer comes."""
    one, two = storage.put("1.csv", rows(60)), storage.put("2.csv", rows(60, first=100))
    three, at = storage.put("3.csv", rows(60, first=200)), storage.at("store")
    write = ObjectPath.write_bytes

    def dies(self, data):
        if self.name == NAME:
            raise KilledError
        write(self, data)

    def killed(call):
        with monkeypatch.context() as patch:
            patch.setattr(ObjectPath, "write_bytes", dies)
            with pytest.raises(KilledError):
                call()

    killed(lambda: irt.ingest(one, at))
    with pytest.raises(NoStoreError):
        irt.open_responses(at)
    with pytest.raises(InputError, match="exists already"):
        irt.ingest(two, at)
    assert irt.open_responses(at).n_persons == 60
    killed(lambda: irt.append(two, at))
    old = irt.open_responses(at)
    assert old.n_persons == 60
    assert irt.append(three, at).n_persons == 180
    irt.open_responses(at).verify()
    assert len(content(old)) == old.n_blocks  # a handle keeps to the persons of then
    # a slow writer that puts an older manifest looks for later commits afterwards
    older = storage.get("store/part-00001.commit").partition(b"\n")[2]
    storage.put(f"store/{NAME}", older)
    assert irt.open_responses(at).n_persons == 120
    assert len(publish.settled(ObjectPath(at))["parts"]) == 3
    assert irt.open_responses(at).n_persons == 180


def test_items_that_join_are_committed(memory, monkeypatch):
    """As persons are; by whoever comes next if the writer is killed before its last act."""
    at, y = memory.at("store"), np.tile([[0, 1, 2], [1, -1, 0]], (2, 1)).astype(np.int8)
    old = parts_of_stores.made(at, y[:, :2], "ab")
    with monkeypatch.context() as patch:
        patch.setattr(
            publish, "settled", lambda root: None if root is None else manifest.read(root)
        )
        parts_of_stores.grown(at, y, "abc", categories=3)  # committed; readers see the old store
    assert irt.open_responses(at).fingerprint == old.fingerprint
    publish.settled(ObjectPath(at))
    new = irt.open_responses(at)
    assert (new.item_id, new.n_categories) == (("a", "b", "c"), (2, 2, 3))
    values = [new.read_block(k).data.values for k in range(new.n_blocks)]
    np.testing.assert_array_equal(np.concatenate(values)[:, :2], np.tile(y[:, :2], (2, 1)))
    assert (values[0][:, 2] == -1).all()
    assert content(old)[0][0] == y[:3, :2].tobytes()
    new.verify()


def test_commit_of_another_store_is_refused(memory):
    source = memory.put("1.csv", rows(60))
    irt.ingest(source, memory.at("store"))
    irt.ingest(memory.put("2.csv", rows(60, first=60)), memory.at("other"))
    irt.append(memory.put("3.csv", rows(60, first=120)), memory.at("other"))
    memory.put("store/part-00001.commit", memory.get("other/part-00001.commit"))
    before = memory.all("store")
    with pytest.raises(StoreError, match=r"part-00001\.commit does not continue"):
        irt.append(memory.at("3.csv"), memory.at("store"))
    assert memory.all("store") == before


def test_storage_that_overwrites_is_refused(memory, monkeypatch, quick, tmp_path):
    """Without "write unless it exists" two writers would not notice each other."""
    from fsspec.implementations.memory import MemoryFileSystem

    write = MemoryFileSystem.pipe_file
    monkeypatch.setattr(
        MemoryFileSystem, "pipe_file", lambda self, path, value, **o: write(self, path, value)
    )
    source = memory.put("1.csv", rows(60))
    with pytest.raises(StoreError, match="ignores If-None-Match"):
        irt.ingest(source, memory.at("store"))
    items = bank_file(tmp_path / "b.csv")
    r = others(items)
    with pytest.raises(StoreError, match="ignores If-None-Match"):
        irt.score(r, items, store=memory.at("scores"))
    assert list(memory.all()) == ["1.csv"]


def test_a_lost_answer_is_no_other_writer(memory, monkeypatch):
    """The request was done, its answer did not come, and it is repeated."""
    from fsspec.implementations.memory import MemoryFileSystem

    write, lost = MemoryFileSystem.pipe_file, []

    def once(self, path, value, mode="overwrite", **options):
        write(self, path, value, mode=mode, **options)
        if path.endswith(".commit") and not lost:
            lost.append(path)
            raise OSError("connection reset")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", once)
    made = irt.ingest(memory.put("1.csv", rows(60)), memory.at("store"))
    assert len(lost) == 1
    assert made.n_persons == 60


def test_an_answer_of_s3_means_that_there_is_one(memory, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    class ClientError(Exception):
        response = {"Error": {"Code": "PreconditionFailed"}}  # noqa: RUF012

    def refuses(self, path, value, **options):
        raise OSError(22, "At least one of the pre-conditions did not hold") from ClientError()

    memory.put("there", "old")
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuses)
    with pytest.raises(FileExistsError):
        ObjectPath(memory.at("there")).create(b"new")


def test_requests_are_repeated_for_a_while(memory, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    irt.ingest(memory.put("1.csv", rows(60)), memory.at("store"))
    read, failures = MemoryFileSystem.cat_file, []

    def shaky(self, path, *args, **options):
        failures.append(path)
        if len(failures) % 2:
            raise OSError("connection reset")
        return read(self, path, *args, **options)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", shaky)
    irt.open_responses(memory.at("store")).read_block(0)
    assert len(failures) > 4

    def down(self, path, *args, **options):
        raise OSError("no route to host")

    def forbidden(self, path, *args, **options):
        raise PermissionError("Access Denied")

    monkeypatch.setattr(MemoryFileSystem, "cat_file", down)
    monkeypatch.setattr(objects, "PATIENCE", 0.5)
    with pytest.raises(StoreError, match=rf"{memory.at('store')}/{NAME} cannot be read: no route"):
        irt.open_responses(memory.at("store"))
    monkeypatch.setattr(MemoryFileSystem, "cat_file", forbidden)
    monkeypatch.setattr(objects, "PATIENCE", 60.0)
    begun = time.monotonic()
    with pytest.raises(AccessError, match=rf"{NAME} cannot be read: Access Denied; give cred"):
        irt.open_responses(memory.at("store"))
    assert time.monotonic() - begun < 5


# --- leases ---------------------------------------------------------------------------------------


def test_lease_is_held_given_back_and_taken_over(memory, quick):
    folder = ObjectPath(memory.at("scores"))
    with lock.ObjectLease(folder) as held:
        time.sleep(0.5)  # two beats
        with pytest.raises(BusyError) as caught:
            lock.ObjectLease(folder)
        assert f"host {socket.gethostname()}, process {os.getpid()}" in str(caught.value)
        held.check()
    assert memory.all("scores") == {}
    for left in (b'{"word": "x", "host": "gone", "pid": 1, "beat": 7}', b"not JSON"):
        memory.put("scores/.lock", left)
        with lock.ObjectLease(folder) as taken:
            assert json.loads(memory.get("scores/.lock"))["pid"] == os.getpid()
            memory.put("scores/.lock", b'{"word": "y", "host": "other", "pid": 2, "beat": 1}')
            with pytest.raises(BusyError, match="host other, process 2"):
                taken.check()
        assert json.loads(memory.get("scores/.lock"))["pid"] == 2  # not ours to remove
        memory.remove("scores/.lock")


def test_lease_that_was_lost_ends_the_run(memory, quick, tmp_path, monkeypatch):
    """Nothing says that the scores are whole."""
    from irt_dask.score import ability

    items = bank_file(tmp_path / "b.csv")
    r = others(items)
    described = ability._described

    def taken_over(*args):
        memory.put("scores/.lock", b'{"word": "y", "host": "other", "pid": 2, "beat": 1}')
        return described(*args)

    monkeypatch.setattr(ability, "_described", taken_over)
    with pytest.raises(BusyError, match="host other, process 2"):
        irt.score(r, items, store=memory.at("scores"))
    assert DONE not in memory.all("scores")


# --- processes ------------------------------------------------------------------------------------

COMMAND = [sys.executable, "-m", "irt_dask.cli"]


def command(*args, **environment):
    begun = time.monotonic()
    done = subprocess.run(
        [*COMMAND, *map(str, args)],
        capture_output=True, text=True, timeout=300, env=os.environ | environment,
    )  # fmt: skip
    print(f"$ irt-dask {' '.join(map(str, args))}\n{done.stdout}{done.stderr}", end="")
    print(f"[exit code {done.returncode} after {time.monotonic() - begun:.1f} s]")
    return done


@pytest.mark.cluster
def test_commands_on_a_local_cluster(s3, tmp_path, capsys, no_pictures):
    """Ingest, verify, run, append, scheduled scoring; scores and items as those of local paths.

    One cluster serves all commands; one of them is a process of its own.
    """
    s3.put("a.csv", rows(800))
    s3.put("b.csv", rows(200, first=800))
    (tmp_path / "a.csv").write_text(rows(800))
    store = s3.at("store")
    irt.ingest(tmp_path / "a.csv", tmp_path / "local-store", rows_per_block=100)
    short = (
        "seed = 3\n[bayes]\ndraws = 100\nwarmup = 50\n[check]\nreplicates = 10\n"
        "[score]\nplausible = 2\nitem_draws = 5\n"
    )
    runs = {
        "from-url": f"[data]\nstore = '{store}'",
        "from-source": f"[data]\nsource = '{s3.at('a.csv')}'\nrows_per_block = 100",
        "local": "[data]\nstore = 'local-store'",
    }
    for name, data in runs.items():
        (tmp_path / f"{name}.toml").write_text(f"directory = '{name}'\n{short}{data}\n")
    blocks = ("--rows-per-block", 100, "--quiet")

    def printed(*args):
        capsys.readouterr()
        cli(*args)
        return capsys.readouterr().out

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as two:
        there = ("--cluster", two.scheduler_address)
        printed("ingest", s3.at("a.csv"), store, *blocks, *there)
        assert "every file is there" in printed("verify", store)
        assert f"store           {store}" in printed("info", store)
        done = command("run", tmp_path / "from-url.toml", "--quiet", *there)
        assert done.returncode == 0
        for name in ("from-source", "local"):
            printed("run", tmp_path / f"{name}.toml", "--quiet", "--cluster", "none")
        for name in ("from-url", "from-source"):
            for file in ("items.csv", "posterior.nc", "scores.nc"):
                got, want = (tmp_path / n / file for n in (name, "local"))
                assert got.read_bytes() == want.read_bytes(), (name, file)
            assert parts(tmp_path / name / "scores") == parts(tmp_path / "local" / "scores")
        again = printed("run", tmp_path / "from-url.toml", *there)
        assert again.count("done before") == 8

        s3.put("bank.csv", (tmp_path / "local" / "items.csv").read_bytes())
        nightly = f"[scoring]\nstore = '{store}'\nbank = '{s3.at('bank.csv')}'\n"
        (tmp_path / "nightly.toml").write_text(f"{nightly}out = '{s3.at('scores')}'\n")
        night = ("run", tmp_path / "nightly.toml", "--quiet", *there)
        assert "n blocks scored  8" in printed(*night)
        made = s3.all("scores")
        assert "n blocks scored  0" in printed(*night)
        assert s3.all("scores") == made
        printed("append", s3.at("b.csv"), store, *blocks)
        third = printed(*night)
        assert "n blocks scored  2" in third
        assert "n blocks kept    8" in third
        with pytest.raises(SystemExit) as changed:
            printed("run", tmp_path / "from-url.toml", "--quiet", *there)
        assert changed.value.code == 2
        assert "the data changed" in capsys.readouterr().err
    (tmp_path / "b.csv").write_text(rows(200, first=800))
    r = irt.append(tmp_path / "b.csv", tmp_path / "local-store", rows_per_block=100)
    irt.score(r, read_items(tmp_path / "local" / "items.csv"), store=tmp_path / "scores")
    assert parts(s3.all("scores")) == parts(tmp_path / "scores")
    read = pq.read_table(s3.system._strip_protocol(s3.at("scores")), filesystem=s3.system)
    assert read.num_rows == 1000


@pytest.mark.cluster
def test_scores_on_a_cluster_are_those_of_threads(s3, tmp_path):
    here, there = both(s3, tmp_path)
    items = bank_file(tmp_path / "bank.csv")
    with connect({"workers": 2}) as two:
        result = irt.score(there, items, store=s3.at("scores"), client=two)
    irt.score(here, items, store=tmp_path / "scores")
    assert result.attrs["n_blocks_scored"] == there.n_blocks
    assert parts(s3.all("scores")) == parts(tmp_path / "scores")


@pytest.mark.cluster
@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.nightly) for k in (1, 2))])
def test_killed_ingest_leaves_no_store_or_all_of_it(s3, tmp_path, seed):
    s3.put("a.csv", rows(4000))
    program = (
        "import sys, irt_dask as irt\n"
        "irt.ingest(*sys.argv[1:], rows_per_block=40)\nprint('end', flush=True)\n"
    )
    args = [sys.executable, "-c", program, s3.at("a.csv"), s3.at("store")]
    begun = time.monotonic()
    subprocess.run([*args[:-1], s3.at("whole")], check=True, timeout=300)
    took = time.monotonic() - begun
    rng = np.random.default_rng(seed)
    seen = []
    for _ in range(4):
        process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        time.sleep(took * rng.uniform(0.3, 1.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        try:
            irt.open_responses(s3.at("store")).verify()
            seen.append("whole")
        except NoStoreError:
            seen.append(f"{len(s3.all('store'))} objects")
    print(f"after kills: {seen}")
    if seen[-1] == "whole":
        with pytest.raises(InputError, match="exists already"):
            irt.ingest(s3.at("a.csv"), s3.at("store"), rows_per_block=40)
    else:
        with suppress(InputError):  # killed between commit and manifest: it is completed
            irt.ingest(s3.at("a.csv"), s3.at("store"), rows_per_block=40)
    whole, made = (irt.open_responses(s3.at(n)) for n in ("whole", "store"))
    made.verify()
    assert made.fingerprint == whole.fingerprint


@pytest.mark.cluster
def test_killed_scoring_is_taken_over(s3, tmp_path, quick):
    both(s3, tmp_path)
    items = bank_file(tmp_path / "bank.csv")
    program = (
        "import sys, time, irt_dask as irt\nfrom irt_dask.score import ability\n"
        "ability._described = lambda *a: (print('scored', flush=True), time.sleep(600))\n"
        "irt.score(irt.open_responses(sys.argv[1]), irt.read_items(sys.argv[2]), store=sys.argv[3])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, s3.at("store"), tmp_path / "bank.csv", s3.at("scores")],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "scored\n"
    lock.ObjectLease.WATCH = 15.0  # its holder beats every 10 s
    r = irt.open_responses(s3.at("store"))
    with pytest.raises(BusyError, match=f"process {process.pid}"):
        irt.score(r, items, store=s3.at("scores"))
    process.kill()
    process.wait()
    lock.ObjectLease.WATCH = 1.0
    result = irt.score(r, items, store=s3.at("scores"))
    assert result.attrs["n_blocks_kept"] == r.n_blocks
    assert set(s3.all("scores")) == {*parts(s3.all("scores")), DONE}


@pytest.mark.cluster
def test_missing_bucket_and_no_access(s3, server):
    """One line each, and soon."""
    import urllib.request

    source = s3.put("a.csv", rows(20))
    for args in (
        ("ingest", source, "s3://no-such-bucket/store"),
        ("info", "s3://no-such-bucket/store"),
        ("ingest", "s3://no-such-bucket/a.csv", s3.at("store")),
    ):
        done = command(*args)
        assert done.returncode == 2
        assert "there is no bucket 'no-such-bucket'" in done.stderr
        assert done.stderr.count("\n") == 1

    def authenticate(after):
        request = urllib.request.Request(
            f"{server}/moto-api/reset-auth", after, {"Content-Type": "text/plain"}, method="POST"
        )
        urllib.request.urlopen(request).read()

    authenticate(b"0")
    try:
        begun = time.monotonic()
        done = command("info", s3.at("store"))
        assert time.monotonic() - begun < 30
        assert done.returncode == 2
        assert "give credentials that may" in done.stderr
        assert done.stderr.count("\n") == 1
        done = command("ingest", source, s3.at("store"))
        assert done.returncode == 2
        assert "give credentials that may" in done.stderr
    finally:
        authenticate(b"inf")
    assert set(s3.all()) == {"a.csv"}


@pytest.mark.cluster
def test_server_that_is_not_there(server):
    """Refused connections and silence alike end within a minute."""
    with socket.socket() as silent, socket.socket() as closed:
        silent.bind(("127.0.0.1", 0))
        silent.listen(100)
        closed.bind(("127.0.0.1", 0))
        ports = [s.getsockname()[1] for s in (silent, closed)]
        begun = time.monotonic()
        done = at_once(
            *(
                lambda url=f"http://127.0.0.1:{port}": command(
                    "info", "s3://bucket/store", AWS_ENDPOINT_URL=url
                )
                for port in ports
            )
        )
        seconds = time.monotonic() - begun
    assert seconds < 60
    for one in done:
        assert one.returncode == 1
        assert "s3://bucket/store/manifest.json cannot be read" in one.stderr
        assert one.stderr.count("\n") == 1


def test_banks_are_read(memory, tmp_path):
    items = bank_file(tmp_path / "bank.csv")
    memory.put("bank.csv", (tmp_path / "bank.csv").read_bytes())
    assert read_items(memory.at("bank.csv")).identical(items)
    write_items(items, tmp_path / "bank.json")
    memory.put("bank.json", (tmp_path / "bank.json").read_bytes())
    assert read_items(memory.at("bank.json")).identical(read_items(tmp_path / "bank.json"))
    with pytest.raises(InputError, match="there is no item bank memory://"):
        read_items(memory.at("none.csv"))
