"""Seconds beside other programs and plain NumPy or SciPy: one row a task and program.

    pip install mirt==1.2.0 girth==0.8.0        (for this table only)
    python tests/benchmarks/comparisons.py [--only WORD ...] [--json FILE]

The two programs of a row take turns in one run, ours before and after the other, three times or
more, for half a minute; seconds are the least, as all else that a machine does adds to them.
``scaled`` is by how much the other one's seconds were multiplied where it had that much less to do
(a part of the persons).  ``off`` says how far the answers are apart: of marginal ML of 2PL items
the log-likelihood of a person, ours less theirs, both by one plain sum over 161 abilities; else the
largest difference, of 3PL and graded items the median one, as the programs' priors and bounds
differ.  Marginal and conditional fits are with standard errors ours, without them the others'.  The
SciPy loop does a sample of persons and items, and says what all of them take.  A file is read as
text alone by pyarrow, which has read it once before, and which nothing that understands it can be
faster than.  Data are simulated, seeds fixed; sweeps of chains are in processor seconds.
Programs in R are not here: figures of theirs in other pages are of machines that have R.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import bayes
import girth
import ingest
import joint
import marginal
import mirt
import numpy as np
import pairwise
import scipy.sparse as sp
import scoring
import survey
import synthetic
from results import Table

import irt_dask as irt

#: Seconds, and what came of it.
Timed = tuple[float, Any]
#: Rounds of a row: so many, and for so many seconds.
ROUNDS, AT_LEAST = 3, 30.0
QUIET: dict[str, Any] = {"progress": False}


class Task(NamedTuple):
    """What two programs do, and how far apart their answers are."""

    name: str
    persons: int
    items: int
    other: str
    ours: Callable[[], Timed]
    theirs: Callable[[], Timed]
    off: Callable[[Any, Any], float] | None = None
    scaled: int = 1


def clock(function: Callable[[], Any]) -> Callable[[], Timed]:
    """The function, with its seconds."""

    def timed() -> Timed:
        begun = time.perf_counter()
        result = function()
        return time.perf_counter() - begun, result

    return timed


def measured(task: Task) -> dict[str, Any]:
    """The row of a task; ours runs once before, so that nothing is compiled in what is timed."""
    _, mine = task.ours()
    runs: list[tuple[float, float, Any, float]] = []
    begun = time.perf_counter()
    while len(runs) < ROUNDS or time.perf_counter() - begun < AT_LEAST:
        runs.append((task.ours()[0], *task.theirs(), task.ours()[0]))
    ours = min(min(run[0], run[3]) for run in runs)
    theirs = min(run[1] for run in runs) * task.scaled
    row = {
        "task": task.name, "persons": task.persons, "items": task.items, "other": task.other,
        "scaled": task.scaled, "seconds": ours, "other_seconds": theirs, "ratio": theirs / ours,
    }  # fmt: skip
    return row if task.off is None else row | {"off": float(task.off(mine, runs[0][2]))}


def largest(mine: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.abs(mine - theirs).max())


def typical(mine: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.median(np.abs(mine - theirs)))


# --- items ----------------------------------------------------------------------------------------


def marginal_ml() -> Iterator[Task]:
    y = marginal.simulated(500_000, 40, 1)[0]
    wide, few = y.astype(int), y[:20_000]
    tall = few.T.astype(int)

    def lead(data: np.ndarray) -> Callable[[Any, Any], float]:
        def off(mine: Any, theirs: Any) -> float:
            a, b = theirs
            both = (marginal.log_likelihood(data, *x) for x in (mine, (a, -a * b)))
            return float(np.subtract(*both)) / len(data)

        return off

    def by_girth() -> tuple[np.ndarray, np.ndarray]:
        fit = girth.twopl_mml(tall)
        return np.asarray(fit["Discrimination"]), np.asarray(fit["Difficulty"])

    yield Task(
        "2PL, marginal ML", *y.shape, "mirt 1.2", clock(lambda: marginal.ours(y)[1]),
        clock(lambda: marginal.by_mirt(wide)[1]), lead(y),
    )  # fmt: skip
    yield Task(
        "2PL, marginal ML", *few.shape, "girth 0.8", clock(lambda: marginal.ours(few)[1]),
        clock(by_girth), lead(few),
    )  # fmt: skip


def guessing() -> Iterator[Task]:
    y = marginal.simulated(50_000, 60, 100, None)[0]
    wide = y.astype(int)
    yield Task(
        "3PL, marginal ML", *y.shape, "mirt 1.2",
        clock(lambda: marginal.ours(y, "3pl")[0]["item_difficulty"].values),
        clock(lambda: np.ravel(marginal.by_mirt(wide, "3PL")[1][1])), typical,
    )  # fmt: skip


def graded() -> Iterator[Task]:
    rng = np.random.default_rng(1)
    a, b = np.exp(rng.normal(0.1, 0.3, 20)), np.sort(rng.normal(size=(20, 3)), axis=1)
    z = a[:, None] * (rng.normal(size=(5_000, 1, 1)) - b)
    y = (rng.random((5_000, 20, 1)) < 1.0 / (1.0 + np.exp(-z))).sum(axis=2).astype(np.int8)
    tall, r = y.T.astype(int) + 1, irt.from_array(y, categories=4)
    yield Task(
        "graded, 4 categories, marginal ML", *y.shape, "girth 0.8",
        clock(
            lambda: irt.fit_marginal(r, model="graded", **QUIET)[
                "item_discrimination"
            ].values
        ),
        clock(lambda: np.asarray(girth.grm_mml(tall)["Discrimination"])), typical,
    )  # fmt: skip


def conditional() -> Iterator[Task]:
    rng = np.random.default_rng(1)
    z = rng.normal(size=(20_000, 1)) - rng.normal(size=40)
    y = (rng.random(z.shape) < 1.0 / (1.0 + np.exp(-z))).astype(np.int8)
    tall = y.T.astype(int)

    def centred(b: Any) -> np.ndarray:
        return np.asarray(b) - np.mean(b)

    yield Task(
        "Rasch, conditional ML", *y.shape, "girth 0.8",
        clock(lambda: centred(irt.fit_conditional(y, **QUIET)["item_difficulty"].values)),
        clock(lambda: centred(girth.rasch_conditional(tall)["Difficulty"])), largest,
    )  # fmt: skip


def joint_ml() -> Iterator[Task]:
    with tempfile.TemporaryDirectory() as folder:
        responses = synthetic.write(Path(folder) / "store", 50_000, 100, "2pl")
        yield Task(
            "2PL, joint ML, 50 iterations", 50_000, 100, "SciPy's L-BFGS, one by one",
            clock(lambda: joint.fit(responses, "2pl")),
            lambda: (joint.scipy_loop(responses), None),
        )  # fmt: skip


def spectral() -> Iterator[Task]:
    data = pairwise.answered(pairwise.ratings(6040, 3706, 1_000_000, 20, 1.0))
    parts = (data.indices, data.indptr)
    r = irt.from_array(sp.csr_array((data.values, *parts), shape=data.shape), observed="stored")
    rows = sp.csr_array((data.values + 1.0, *parts), shape=data.shape).toarray() - 1.0
    yield Task(
        "Rasch, spectral, 10^6 responses", *data.shape, "as published, in NumPy",
        clock(
            lambda: irt.fit_spectral(r, regularization=1.0, standard_errors=False, **QUIET)[
                "item_difficulty"
            ].values
        ),
        clock(lambda: pairwise.published(rows, 1.0)), largest,
    )  # fmt: skip


def pairs() -> Iterator[Task]:
    y = np.random.default_rng(0).integers(0, 2, (200_000, 500), dtype=np.int8)
    r = irt.from_array(y)
    yield Task(
        "counts of all pairs of items", *y.shape, "products of float32 matrices",
        clock(lambda: irt.pair_counts(r, **QUIET)["pair_count"].values),
        clock(lambda: pairwise.matrix_products(r)), largest,
    )  # fmt: skip


def chains() -> Iterator[Task]:
    """Processor seconds of 1,000 sweeps, on one thread."""
    y, a, d = bayes.simulated(10_000, 40, 1)

    def of(sampler: str, sweeps: int) -> Callable[[], Timed]:
        def timed() -> Timed:
            with bayes.single_threaded():
                return 1000.0 * bayes.chain(sampler, y, a, d, sweeps)[0], None

        return timed

    yield Task(
        "2PL, 1,000 sweeps of a chain, one thread", *y.shape, "Polya-Gamma sampler",
        of("grid", 1000), of("polya-gamma", 50),
    )  # fmt: skip


# --- persons, tables, files -----------------------------------------------------------------------


def eap() -> Iterator[Task]:
    items = scoring.bank()
    y = scoring.respond(items, np.random.default_rng(1).normal(size=1_000_000), rng_of(1))
    wide, r = y.astype(int), irt.from_array(y, item_id=items["item_id"].values)
    tall = wide[:50_000].T.copy()
    a, b = items["item_discrimination"].values, items["item_difficulty"].values
    fit = mirt.fit_mirt(wide[:5000], compute_standard_errors=False)  # it scores by fits alone

    def ours(bank: Any) -> Callable[[], Timed]:
        return clock(lambda: irt.score(r, bank, **QUIET)["person_ability"].values)

    found = (np.ravel(fit.model.parameters[name]) for name in ("discrimination", "difficulty"))
    yield Task(
        "EAP", *y.shape, "mirt 1.2, 49 points", ours(bank_of(items, *found)),
        clock(lambda: np.ravel(mirt.fscores(fit, wide, method="EAP").theta)), largest,
    )  # fmt: skip
    yield Task(
        "EAP", *y.shape, "girth 0.8", ours(items), clock(lambda: girth.ability_eap(tall, b, a)),
        lambda mine, theirs: largest(mine[: theirs.size], theirs), scaled=20,
    )  # fmt: skip


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed + 100)


def bank_of(items: Any, a: np.ndarray, b: np.ndarray) -> Any:
    """The bank with other parameters."""
    given = {"discrimination": a, "intercept": -a * b, "difficulty": b}
    return items.assign({f"item_{name}": ("item", x) for name, x in given.items()})


def tables() -> Iterator[Task]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "persons.parquet"
        survey.persons(600_000).to_parquet(path)
        yield Task(
            "means, SEs: 80 groups, 80 weights, 10 values", 600_000, 0, "NumPy, one mean each",
            clock(
                lambda: irt.tabulate(
                    path, "PV*MATH", by="CNT", replicates=survey.DESIGN, statistics="mean"
                )[["estimate", "se"]].to_numpy()
            ),
            clock(lambda: survey.plain(path)), largest,
        )  # fmt: skip


def files() -> Iterator[Task]:
    with tempfile.TemporaryDirectory() as folder:
        source, store = Path(folder) / "responses.csv", Path(folder) / "store"
        ingest.write_source(source, 4_000_000, 100_000, 500)

        def by(program: str) -> Callable[[], Timed]:
            return lambda: (ingest.measure(ingest.PROGRAMS[program], source, store)[0], None)

        yield Task(
            "ingest of 4,000,000 unsorted rows", 100_000, 500, "pyarrow reads the CSV",
            by("irt.ingest"), by("pyarrow.csv.read_csv"),
        )  # fmt: skip


TASKS = (
    marginal_ml, guessing, graded, conditional, joint_ml, spectral, pairs, chains, eap, tables,
    files,
)  # fmt: skip


def main() -> None:
    table = Table()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="functions of this file, by a part of their name")
    words = parser.parse_args().only
    warnings.simplefilter("ignore")  # of both programs: what is compared stands in the table
    with table:
        for function in TASKS:
            if not words or any(word in function.__name__ for word in words):
                for task in function():
                    table.add(**measured(task))


if __name__ == "__main__":
    main()
