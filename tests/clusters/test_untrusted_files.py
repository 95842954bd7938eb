"""Files that users hand in, or get from others: none of them may run code; who may read ours."""

import gzip
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import irt_dask as irt
from irt_dask.cli import main
from irt_dask.clusters import ClusterConfig
from irt_dask.errors import IrtDaskError
from irt_dask.workflow import RunConfig, read_config, read_scoring, run


class Bomb:
    """Makes a file where it is unpickled."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return open, (self.marker, "w")


@pytest.fixture
def marker(tmp_path):
    """The file that a bomb makes; a test in which one goes off fails."""
    path = tmp_path / "marker"
    pickle.loads(pickle.dumps(Bomb(path))).close()  # noqa: S301 (they do go off)
    assert path.exists()
    path.unlink()
    yield path
    assert not path.exists()


def _save_npy(path, bomb):
    with open(path, "wb") as file:
        np.save(file, np.array([bomb], dtype=object), allow_pickle=True)


def _save_npz(path, bomb):
    with open(path, "wb") as file:
        np.savez(file, arr_0=np.array([bomb], dtype=object))


WAYS = {
    "pkl": lambda path, bomb: path.write_bytes(pickle.dumps(bomb)),
    "npy": _save_npy,
    "npz": _save_npz,
    "gz": lambda path, bomb: path.write_bytes(gzip.compress(pickle.dumps(bomb))),
    "toml": lambda path, bomb: path.write_text(
        f'data: !!python/object/apply:builtins.open ["{bomb.marker}", "w"]\n'
    ),
}


def _ingest(path):
    irt.ingest(path, path.with_name("store"))


def _ingest_with(option):
    def read(path):
        source = path.with_name("source.csv")
        source.write_text("person,item,response\nx,i,1\n")
        irt.ingest(source, path.with_name("store"), **{option: path})

    return read


def _open(path):
    folder = path.with_name("opened")
    folder.mkdir()
    path.rename(folder / "manifest.json")
    irt.open_responses(folder)


def _score(path):
    store = path.with_name("responses")
    irt.simulate(10, 2, store=store)
    read = ["score", str(store), str(path), "--out", str(path.with_name("scores"))]
    sys.argv = ["irt-dask", *read, "--cluster", "none"]
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    raise IrtDaskError  # as it was inside main(): another error would end it with 1


#: By what reads them, the names under which files are let in, and one under which they are not.
READERS = {
    "ingest": (_ingest, ("r.csv", "r.csv.gz", "r.parquet", "r.jsonl", "r.npy", "r.pkl")),
    "ingest key": (_ingest_with("key"), ("key.csv", "key.pkl")),
    "ingest persons": (_ingest_with("persons"), ("persons.csv", "persons.parquet", "persons.npz")),
    "open_responses": (irt.open_responses, ("store.npz", "store")),
    "open_responses manifest": (_open, ("manifest.json",)),
    "read_items": (irt.read_items, ("bank.csv", "bank.json", "bank.npy", "bank.zarr")),
    "read_config": (read_config, ("run.toml",)),
    "read_scoring": (read_scoring, ("scoring.toml",)),
    "ClusterConfig.of": (ClusterConfig.of, ("cluster.toml", "cluster.pkl")),
    "irt-dask score": (_score, ("posterior.nc", "bank.csv", "bank.pkl")),
}
CASES = [(r, name) for r, (_, names) in READERS.items() for name in names]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reader, name", CASES, ids=[f"{r}-{name}" for r, name in CASES])
def test_a_file_cannot_run_code(tmp_path, monkeypatch, marker, reader, name, way):
    monkeypatch.setattr(sys, "argv", [])
    path = tmp_path / name
    WAYS[way](path, Bomb(marker))
    with pytest.raises(IrtDaskError):
        READERS[reader][0](path)


def test_the_type_of_a_parquet_column_cannot_run_code(tmp_path, marker):
    """Arrow once unpickled what a file says of a type: here it must be the stored numbers alone."""
    field = pa.field("i1", pa.int8(), metadata={
        "ARROW:extension:name": "arrow.py_extension_type",
        "ARROW:extension:metadata": pickle.dumps(Bomb(marker)),
    })  # fmt: skip
    columns = [pa.array(["x", "y"]), pa.array([1, 0], pa.int8())]
    table = pa.Table.from_arrays(columns, schema=pa.schema([("person", pa.string()), field]))
    pq.write_table(table, tmp_path / "r.parquet")
    responses = irt.ingest(tmp_path / "r.parquet", tmp_path / "s", shape="wide")
    assert responses.n_persons == 2


# --- who may read what is written -----------------------------------------------------------------


@pytest.fixture
def no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def _mode(path):
    return Path(path).stat().st_mode & 0o777


@pytest.mark.slow
@pytest.mark.usefixtures("no_umask", "no_pictures")
def test_run_directories_and_ledgers_are_private_whatever_the_umask(tmp_path):
    config = RunConfig.model_validate({
        "directory": str(tmp_path / "runs" / "r"),
        "data": {"simulate": {"persons": 300, "items": 4}},
        "joint": {"max_iterations": 8},
        "bayes": {"draws": 100, "warmup": 50},
        "private": {"ledger": str(tmp_path / "survey.json"), "rho": 0.5},
    })  # fmt: skip
    made = run(config)
    assert _mode(tmp_path / "runs") == 0o777  # as the umask says: the test would see 0755 or 0700
    assert _mode(made) == 0o700
    assert _mode(tmp_path / "survey.json") == 0o600
    assert _mode(tmp_path / ".survey.json.lock") == 0o600


@pytest.mark.slow
@pytest.mark.usefixtures("no_umask", "no_pictures")
def test_a_directory_that_is_there_keeps_its_mode(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o770)
    config = RunConfig.model_validate({
        "directory": str(folder),
        "data": {"simulate": {"persons": 300, "items": 4}},
        "joint": {"max_iterations": 8},
        "bayes": {"draws": 100, "warmup": 50},
    })  # fmt: skip
    assert _mode(run(config)) == 0o770
