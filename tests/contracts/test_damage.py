"""Runs whose files are damaged: a named error, or the same results; never other ones."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_results import UNLIKE, results

import irt_dask as irt
from irt_dask.engine import Checkpoint, person_files
from irt_dask.errors import IrtDaskError
from irt_dask.workflow import RunConfig, run

pytestmark = pytest.mark.usefixtures("without_pictures")

#: Not results, the mark of unfinished scores among them.
UNCHECKED = UNLIKE | {"_unfinished"}


class Killed(BaseException):
    """Stands for the death of the driver."""


Configure = Callable[[Path], RunConfig]


def bayes(folder: Path) -> RunConfig:
    return RunConfig.model_validate(
        {
            "directory": str(folder),
            "data": {
                "simulate": {"persons": 300, "items": 5, "missing": 0.1},
                "rows_per_block": 64,
            },
            "joint": {"coreset": 100, "max_iterations": 8},
            "bayes": {"shards": 2, "draws": 100, "warmup": 50},
            "check": {"replicates": 10},
        }
    )


def of_file(file: Path) -> Configure:
    """Marginal ML of a file of items of two to four categories, with omitted responses."""

    def configured(folder: Path) -> RunConfig:
        return RunConfig.model_validate(
            {
                "directory": str(folder),
                "data": {
                    "source": str(file), "categories": {"q1": 2, "q2": 3, "q3": 4, "q4": 4},
                    "recode": {"O": "omitted"}, "reverse": ["q3"], "rows_per_block": 64,
                },
                "calibrate": {"method": "marginal"},
                "marginal": {"model": "2pl+gpcm"},
                "check": {"replicates": 10},
                "score": {"omitted": "wrong", "plausible": 1},
            }
        )  # fmt: skip

    return configured


def mixed_file(file: Path) -> Path:
    rng = np.random.default_rng(1)
    y = rng.integers(0, [2, 3, 4, 4], (300, 4)).astype(str).astype(object)
    y[rng.random(y.shape) < 0.1] = "O"
    y[rng.random(y.shape) < 0.1] = ""
    rows = [",".join([f"p{i}", *row]) for i, row in enumerate(y)]
    file.write_text("\n".join(["person,q1,q2,q3,q4", *rows]) + "\n")
    return file


Runs = tuple[Configure, dict[str, Path]]


def begun(root: Path, configuration: Configure, *deaths: tuple[str, Any, str, int]) -> Runs:
    """A finished run, and others that died while they worked, at some call of a function."""
    out = {"finished": root / "finished"}
    run(configuration(out["finished"]))

    def dying(function: Callable[..., Any], when: int) -> Callable[..., Any]:
        calls = Counter[str]()

        def called(*args: Any, **options: Any) -> Any:
            function(*args, **options)
            calls["all"] += 1
            if calls["all"] == when:
                raise Killed

        return called

    for name, place, attribute, when in deaths:
        out[name] = root / name.replace(" ", "-")
        with pytest.MonkeyPatch.context() as m:
            m.setattr(place, attribute, dying(getattr(place, attribute), when))
            with pytest.raises(Killed):
                run(configuration(out[name]))
    return configuration, out


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return begun(
        tmp_path_factory.mktemp("runs"), bayes, ("in joint", Checkpoint, "save", 3),
        ("in bayes", Checkpoint, "save", 8), ("in score", person_files, "write_block", 3),
    )  # fmt: skip


@pytest.fixture(scope="module")
def mixed_runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("mixed")
    return begun(
        root, of_file(mixed_file(root / "f.csv")), ("in marginal", Checkpoint, "save", 2),
        ("in score", person_files, "write_block", 3),
    )  # fmt: skip


def flip(rng: random.Random, data: bytes) -> bytes | None:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def truncate(rng: random.Random, data: bytes) -> bytes | None:
    return data[: rng.randrange(len(data))]


def delete(rng: random.Random, data: bytes) -> bytes | None:
    return None


def damage(begun: Runs, n: int, seed: int, folder: Path) -> None:
    configuration, runs = begun
    want = results(runs["finished"])
    tally: Counter[str] = Counter()
    wrong = []
    for k in range(n):
        rng = random.Random(f"{seed}-{k}")
        state = rng.choice(["finished", *runs])  # the others take longer
        path = folder / "r"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(runs[state], path)
        present = [f for f in sorted(path.rglob("*")) if f.is_file() and f.stat().st_size]
        file = rng.choice([f for f in present if f.name not in UNCHECKED])
        fault = rng.choice([flip, flip, truncate, delete])
        changed = fault(rng, file.read_bytes())
        if changed is None:
            file.unlink()
        else:
            file.write_bytes(changed)
        what = f"{k}: {state}, {fault.__name__} {file.relative_to(path)}"
        try:
            run(configuration(path))
            irt.open_responses(path / "responses").verify()
        except IrtDaskError:
            tally["named errors"] += 1
            continue
        except Exception as error:
            wrong.append(f"{what}: {type(error).__name__}: {error}")
            continue
        got = results(path)
        differing = {f for f in got.keys() | want.keys() if got.get(f) != want.get(f)}
        if differing:
            wrong.append(f"{what}: differs in {sorted(differing)}")
        else:
            tally["the same results"] += 1
    print(f"\n{n} faults: " + ", ".join(f"{v} {k}" for k, v in sorted(tally.items())))
    assert not wrong, f"{len(wrong)} findings:\n" + "\n".join(wrong[:30])
    assert tally["named errors"] > n / 5


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, pytest.param(12, marks=pytest.mark.nightly)])
def test_many_damaged_runs(runs: Runs, mixed_runs: Runs, n: int, tmp_path: Path) -> None:
    damage(runs, 2 * n, 2, tmp_path)
    damage(mixed_runs, n, 2, tmp_path)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_thousand_damaged_runs(runs: Runs, tmp_path: Path) -> None:
    damage(runs, 1000, 3, tmp_path)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_thousand_damaged_runs_of_more_than_two_categories(
    mixed_runs: Runs, tmp_path: Path
) -> None:
    damage(mixed_runs, 1000, 3, tmp_path)
