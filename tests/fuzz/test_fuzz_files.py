"""Item banks and configurations, damaged at random: refused by a named error, or read as they say.

What is read must be what a simple parser of its own reads.
"""

from __future__ import annotations

import csv
import io
import json
import math
import random
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irt_dask as irt
from irt_dask.clusters import ClusterConfig
from irt_dask.errors import IrtDaskError
from irt_dask.workflow import read_config
from irt_dask.workflow.scoring import read_scoring

BANK = """item,model,a,b,c,d,se_a
q1,2pl,1.5,0.5,0,-0.75,0.1
q2,2pl,0.8,-1,0,0.8,
7,2pl,1,2,0,-2,.2
"""
ROWS = list(csv.DictReader(io.StringIO(BANK)))
NUMBERS = ("a", "b", "c", "d", "se_a")
JSON_BANK = json.dumps(
    [{k: float(v or "nan") if k in NUMBERS else v for k, v in row.items()} for row in ROWS]
)
PIPELINE = """title = "T"
seed = 3
directory = "r"
[data]
source = "d.csv"
shape = "long"
missing = ["9"]
rows_per_block = 100
[cluster]
kind = "local"
workers = 2
memory = "2GB"
[joint]
coreset = 100
max_iterations = 20
[bayes]
shards = 2
draws = 200
warmup = 100
[check]
replicates = 20
[score]
plausible = 2
method = "eap"
"""
SCORING = """title = "S"
seed = 1
[cluster]
kind = "address"
address = "tcp://127.0.0.1:8786"
[scoring]
store = "s"
bank = "b.csv"
out = "o"
method = "wle"
prior = "normal"
plausible = 1
item_draws = 0
"""
NASTY = (
    "", "0", "-1", "nan", "inf", "1e999", "1_0", "0x1", "true", "True", '"', '""', "null", "[]",
    "{}", "\0", "\r", "\n\n", ",", ",,", "=", "é", "\ud7ff", "9" * 400, "q1", "a", "1.5.2", "--",
    "#", "[scoring]\n", "!!python/object/apply:os.system", "'''", "\\x", "item", "1e-400", " ",
)  # fmt: skip


def mutated(rng: random.Random, text: str) -> bytes:
    """One to three changes of bytes, words or lines."""
    data = text.encode()
    for _ in range(rng.choice([1, 1, 2, 3])):
        if not data:
            break
        at = rng.randrange(len(data))
        kind = rng.randrange(7)
        if kind == 0:
            data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at]
        elif kind == 2:
            data = data[:at] + data[at + rng.randrange(1, 6) :]
        elif kind == 3:
            lines = data.split(b"\n")
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
            data = b"\n".join(lines)
        elif kind == 4:
            lines = data.split(b"\n")
            rng.shuffle(lines)
            data = b"\n".join(lines)
        else:
            end = at + rng.choice([0, 1, 3])
            data = data[:at] + rng.choice(NASTY).encode() + data[end:]
    return data


# --- item banks -----------------------------------------------------------------------------------


def number(x: Any) -> float:
    """A float that stands there in plain writing; ValueError for anything else."""
    if isinstance(x, bool) or x is None:
        raise ValueError(x)
    if isinstance(x, str) and not set(x.strip()) <= set("0123456789+-.eE"):
        raise ValueError(x)
    value = float(x)
    if not math.isfinite(value):
        raise ValueError(x)
    return value


def bank_as_text(data: bytes) -> list[dict[str, Any]]:
    lines = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    header, *rows = [line for line in lines if line]
    if any(len(row) != len(header) for row in rows) or len(set(header)) < len(header):
        raise ValueError("ragged")
    return [dict(zip([h.strip() for h in header], row, strict=True)) for row in rows]


def bank_as_json(data: bytes) -> list[dict[str, Any]]:
    content = json.loads(data.decode("utf-8-sig"))
    if isinstance(content, dict):
        return [dict(zip(content, row, strict=True)) for row in zip(*content.values(), strict=True)]
    return [dict(row) for row in content]


def meaning(rows: list[dict[str, Any]]) -> dict[str, tuple[float, float, float]]:
    """Slope, intercept and guessing of each item; ValueError or KeyError if there are none."""
    out = {}
    for row in rows:
        a = number(row["a"])
        b, d = (number(row[k]) if k in row else None for k in ("b", "d"))
        c = number(row["c"]) if "c" in row else 0.0
        d = -a * b if d is None else d  # type: ignore[operator]
        if a <= 0 or not 0 <= c < 1 or (b is not None and abs(-a * b - d) > 1e-3 * (2 + abs(d))):
            raise ValueError(row)
        if "model" in row and row["model"] not in ("1pl", "2pl", "3pl"):
            raise ValueError(row)
        for k in row:
            if k.startswith("se_") and k[3:] in "abcd" and row[k] not in (None, ""):
                value = row[k]
                if not (isinstance(value, float) and math.isnan(value)) and str(value) != "nan":
                    number(value)
        if str(row["item"]) in out or row["item"] in ("", None):
            raise ValueError(row)
        out[str(row["item"])] = (a, d, c)
    if not out:
        raise ValueError("empty")
    return out


def taken(
    read: Callable[[Path], Any], path: Path, data: bytes, tally: Counter[str], wrong: list[str]
) -> Any:
    """What is read of a damaged file; None if it is refused, by an error that should name it."""
    path.write_bytes(data)
    try:
        found = read(path)
    except IrtDaskError as error:
        if path.name not in str(error):
            wrong.append(f"{data!r}: no file in {error}")
        tally["refused"] += 1
        return None
    except Exception as error:
        wrong.append(f"{data!r}: {type(error).__name__}: {error}")
        return None
    tally["taken"] += 1
    return found


def check_banks(n: int, seed: int, folder: Path) -> Counter[str]:
    tally: Counter[str] = Counter()
    wrong = []
    for k in range(n):
        rng = random.Random(f"{seed}-{k}")
        name, text, parse = rng.choice(
            [("b.csv", BANK, bank_as_text), ("b.json", JSON_BANK, bank_as_json)]
        )
        data = mutated(rng, text)
        got = taken(irt.read_items, folder / name, data, tally, wrong)
        if got is None:
            continue
        try:
            want = meaning(parse(data))
        except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
            wrong.append(f"{data!r}: taken, but {type(error).__name__}: {error}")
            continue
        c = got["item_guessing"].values if "item_guessing" in got else np.zeros(got.sizes["items"])
        found = zip(got["item_discrimination"].values, got["item_intercept"].values, c, strict=True)
        if dict(zip(got["item_id"].values.tolist(), found, strict=True)) != want:
            wrong.append(f"{data!r}: read otherwise")
    assert not wrong, f"{len(wrong)} of {n}:\n" + "\n".join(wrong[:20])
    return tally


# --- configurations -------------------------------------------------------------------------------


def values(content: Any) -> Any:
    """Nested values of a validated section by key, with what was not given left out."""
    if hasattr(content, "model_fields_set"):
        return {k: values(getattr(content, k)) for k in content.model_fields_set}
    return content


def reads(path: Path) -> Any:
    """What the reader that the file is meant for makes of it."""
    if path.name == "c.toml":
        return ClusterConfig.of(path)
    return read_scoring(path) or read_config(path)


def same(got: Any, want: Any, folder: Path) -> bool:
    """Whether a value is the one written, paths being relative to the file."""
    if isinstance(want, dict):
        return got.keys() == want.keys() and all(same(got[k], want[k], folder) for k in want)
    if isinstance(want, list):
        return len(got) == len(want) and all(map(same, got, want, [folder] * len(want)))
    if isinstance(got, str) and isinstance(want, str):
        return got == want or Path(got) == folder / want
    if isinstance(got, bool) or isinstance(want, bool):
        return got is want
    return got == want  # 2.0 is a whole number


def check_configurations(n: int, seed: int, folder: Path) -> Counter[str]:
    tally: Counter[str] = Counter()
    wrong = []
    cluster = PIPELINE[PIPELINE.index("[cluster]") : PIPELINE.index("[joint]")]
    for k in range(n):
        rng = random.Random(f"{seed}-{k}")
        name, text = rng.choice([("p.toml", PIPELINE), ("s.toml", SCORING), ("c.toml", cluster)])
        data = mutated(rng, text)
        got = taken(lambda path: values(reads(path)), folder / name, data, tally, wrong)
        if got is None:
            continue
        want: Any = tomllib.loads(data.decode())
        if not same(got, want["cluster"] if name == "c.toml" else want, folder.resolve()):
            wrong.append(f"{data!r}: read as {got}")
    assert not wrong, f"{len(wrong)} of {n}:\n" + "\n".join(wrong[:20])
    return tally


@pytest.mark.parametrize("check", [check_banks, check_configurations])
def test_some_files(check: Callable[..., Counter[str]], tmp_path: Path) -> None:
    tally = check(150, 1, tmp_path)
    assert min(tally.values()) > 10


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_banks, check_configurations])
def test_four_thousand_files(check: Callable[..., Counter[str]], tmp_path: Path) -> None:
    tally = check(4000, 2, tmp_path)
    print(tally)
    assert min(tally.values()) > 200
