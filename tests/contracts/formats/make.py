"""Make the files of this folder anew: ``python tests/contracts/formats/make.py FOLDER``.

Only for formats that are new: files that are here already stand for what users have.  A second
argument names one kind: ``python tests/contracts/formats/make.py FOLDER ledgers``.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "oracles"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import test_formats as held
import test_formats_go_on as goes_on
from parts import grown, made, named

import irt_dask as irt
from irt_dask.cli import main
from irt_dask.clusters import checks
from irt_dask.engine.checkpoint import Checkpoint
from irt_dask.errors import Notice
from irt_dask.workflow import directory


def stores(folder: Path) -> None:
    """The stores, those of version 2 by ingest and append."""
    source = folder / "source.csv"
    n = len(held.FIRST)
    for name in ("store-2-dense", "store-2-csr", "store-3-frequency"):
        said = held.STORES[name]
        columns = {c: c for c in ("weight", "group") if c in said}
        frame = pd.DataFrame(said["y"], columns=held.ITEMS)
        frame.insert(0, "person", named(len(frame)))
        for c in columns:
            frame[c] = said[c]
        columns |= {"person": "person", "items": list(held.ITEMS)}
        persons = None
        if "age" in said:
            persons = pd.DataFrame({"person": frame["person"], "age": said["age"]})
        for rows in (slice(0, n), slice(n, None)):
            frame[rows].to_csv(source, index=False)
            options = {"shape": "wide", "columns": columns, "rows_per_block": 3}
            options["persons"] = None if persons is None else persons[rows]
            if rows.start:
                irt.append(source, folder / name, **options)
            else:
                options |= {"layout": said["layout"], "weight_kind": said.get("kind", "sampling")}
                irt.ingest(source, folder / name, **options)
    source.unlink()
    y, k = np.array(held.CODES), held.K
    made(folder / "store-3-categories", y, held.ITEMS, categories=k)
    made(folder / "store-3-items", np.array(held.FIRST), held.ITEMS)
    grown(folder / "store-3-items", np.array(held.BINARY_LATER), held.JOINED)
    name = "store-3-categories-items-csr"
    made(folder / name, y, held.ITEMS, categories=k, layout="csr")
    grown(folder / name, np.array(held.LATER), held.JOINED, categories=held.JOINED_K[3:])

    for layout in ("dense", "csr"):
        merged(folder / f"store-3-merged-{layout}", layout)
        marked(folder / f"store-3-nonresponse-{layout}", layout)


def merged(store: Path, layout: str) -> None:
    """A store to whose first persons a wave has added."""
    source = store.with_name("source.csv")
    first = pd.DataFrame(held.FIRST, columns=held.ITEMS)
    more = pd.DataFrame(held.MERGED, columns=(*held.ITEMS, "q4"))
    for frame in (first, more):
        frame.insert(0, "person", named(len(frame)))
    first.to_csv(source, index=False)
    irt.ingest(source, store, layout=layout, rows_per_block=3)
    more.iloc[[5, 1, 3]].to_csv(source, index=False)
    with pytest.warns(Notice, match="join it: 'q4'"):
        irt.append(source, store, on_duplicate="merge", rows_per_block=3)
    source.unlink()


def marked(store: Path, layout: str) -> None:
    """A store that says what was omitted and what was not reached."""
    source = store.with_name("source.csv")
    frame = pd.DataFrame(held.NONRESPONSE, columns=held.ITEMS)
    frame.insert(0, "person", named(len(frame)))
    frame.to_csv(source, index=False)
    irt.ingest(source, store, layout=layout, recode=held.WORDS, rows_per_block=3,
               categories=dict(zip(held.ITEMS, held.K, strict=True)),
               null_categories="keep")  # fmt: skip
    source.unlink()


def banks(folder: Path) -> None:
    """The item banks, by way of one made by hand."""
    rough = folder / "rough.csv"
    pd.DataFrame(held.BANK).drop(columns="se_a").to_csv(rough, index=False)
    bank = irt.read_items(rough).assign(item_discrimination_se=("items", held.BANK["se_a"]))
    rough.unlink()
    for name in ("bank.csv", "bank.json"):
        irt.write_items(bank, folder / name)


def run(folder: Path) -> None:
    """A run by the command, without its report, which is large; nothing tells the machine."""
    source, pipeline, out = (folder / name for name in ("run.csv", "run.toml", "run"))
    frame = pd.DataFrame(held.RUN, columns=held.RUN_ITEMS)
    frame.insert(0, "person", named(len(frame)))
    frame.to_csv(source, index=False)
    lines = [f"title = '{held.RUN_OPTIONS['title']}'", f"[data]\nsource = '{source}'"]
    for section, options in held.RUN_OPTIONS.items():
        if section != "title":
            lines += [f"[{section}]", *(f"{key} = {value}" for key, value in options.items())]
    pipeline.write_text("\n".join(lines) + "\n")
    checks.processor = lambda: "a processor"
    directory.platform = SimpleNamespace(platform=lambda: "a system")
    sys.argv = ["irt-dask", "run", str(pipeline), "--out", str(out), "--cluster", "none"]
    with suppress(SystemExit):
        main()
    for left in (source, pipeline, out / "report.html", *out.rglob(".lock")):
        left.unlink()


def ledgers(folder: Path) -> None:
    """Privacy ledgers: of one release without a budget, and with one."""
    for name, budget in goes_on.LEDGERS.items():
        options = goes_on.RELEASE | ({} if budget is None else {"budget": budget})
        irt.fit_private_spectral(goes_on.persons(), ledger=folder / name, **options)
        (folder / f".{name}.lock").unlink()


def checkpoint(folder: Path) -> None:
    """A checkpoint's state, of a computation that is known by name alone."""
    Checkpoint(folder / "checkpoint", goes_on.COMPUTATION).save("state", goes_on.STATE)


def session(folder: Path) -> None:
    """The state of an adaptive test, two questions answered and the third asked."""
    (folder / "session-1.json").write_text(goes_on.adaptive_test(folder / "bank.json").to_json())


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    target.mkdir(parents=True)
    for make in (stores, banks, run, ledgers, checkpoint, session):
        if not sys.argv[2:] or make.__name__ in sys.argv[2:]:
            make(target)
