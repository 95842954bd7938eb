"""The files that code on pages of the documentation reads, small, under the names that it uses."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd

AGENCY = Path(__file__).parents[1] / "benchmarks" / "agency.py"


def write_all(folder: Path) -> None:
    """Write every file into a folder."""
    rng = np.random.default_rng(4)
    _assessment(folder, rng)
    _survey(folder, rng)
    _test(folder, rng)
    _published(folder, rng)


def _assessment(folder: Path, rng: np.random.Generator) -> None:
    """Two waves (tests/benchmarks/agency.py), persons who come later, a bank, a long file."""
    spec = importlib.util.spec_from_file_location("agency", AGENCY)
    assert spec is not None
    assert spec.loader is not None
    agency = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(agency)
    truth = agency.write_waves(folder, 1200, 12)
    monday = pd.read_csv(folder / "autumn.csv").head(60)
    monday["person"] = [f"m{i}" for i in range(60)]
    monday.to_csv(folder / "monday.csv", index=False)
    bank = truth["autumn"].assign(model="3pl", b=lambda t: t["b"] - 0.3)
    bank.to_csv(folder / "other-bank.csv", index=False)
    codes = responses(rng, 400, 10)
    long = codes.melt(id_vars="person", var_name="item", value_name="response")
    long.to_csv(folder / "responses.csv", index=False)
    new = responses(rng, 50, 10).assign(person=[f"n{i}" for i in range(50)])
    new.to_csv(folder / "new_persons.csv", index=False)


def responses(rng: np.random.Generator, n: int, m: int) -> pd.DataFrame:
    """2PL answers, a row a person."""
    theta, b = rng.normal(size=(n, 1)), rng.normal(size=m)
    right = rng.random((n, m)) < 1.0 / (1.0 + np.exp(-1.2 * (theta - b)))
    table = pd.DataFrame(right.astype(int), columns=[f"q{j + 1}" for j in range(m)])
    table.insert(0, "person", [f"p{i}" for i in range(n)])
    return table


def _survey(folder: Path, rng: np.random.Generator) -> None:
    """Labels of four categories; q3 and q5 are reversed."""
    labels = np.array(["never", "seldom", "often", "always"])
    theta = rng.normal(size=(800, 1))
    steps = (theta + rng.logistic(size=(800, 6)))[:, :, None] > np.array([-1.0, 0.2, 1.2])
    codes = steps.sum(axis=2)
    codes[:, [2, 4]] = 3 - codes[:, [2, 4]]
    table = pd.DataFrame(labels[codes], columns=[f"q{j + 1}" for j in range(6)])
    table.insert(0, "person", [f"p{i}" for i in range(800)])
    table.to_csv(folder / "survey.csv", index=False)


def _test(folder: Path, rng: np.random.Generator) -> None:
    """Raw answers, and a key with partial credit for the last three items."""
    theta = rng.normal(size=(900, 1))
    level = (theta + rng.logistic(size=(900, 9)))[:, :, None] > np.array([-0.7, 0.8])
    answers = np.array(["C", "B", "A"])[level.sum(axis=2)]
    table = pd.DataFrame(answers, columns=[f"t{j + 1}" for j in range(9)])
    table.insert(0, "person", [f"p{i}" for i in range(900)])
    table.to_csv(folder / "test.csv", index=False)
    key = [(f"t{j + 1}", "A", 1) for j in range(6)]
    key += [(f"t{j + 1}", a, k) for j in range(6, 9) for a, k in (("A", 2), ("B", 1))]
    pd.DataFrame(key, columns=["item", "key", "score"]).to_csv(folder / "key.csv", index=False)


def _published(folder: Path, rng: np.random.Generator) -> None:
    """A table as of PISA, and persons, domains and answers of an assessment."""
    n = 600
    ability = rng.normal(size=n)
    table = pd.DataFrame({
        "CNT": rng.choice(["AAA", "BBB"], n), "ST004D01T": rng.integers(1, 3, n),
        "ESCS": rng.normal(size=n).round(2), "W_FSTUWT": rng.uniform(1, 3, n).round(3),
    })  # fmt: skip
    for k in range(1, 11):
        table[f"PV{k}MATH"] = 470 + 90 * (ability + 0.4 * rng.normal(size=n))
        table[f"PV{k}READ"] = 470 + 90 * (0.7 * ability + 0.7 * rng.normal(size=n))
    factors = rng.choice([0.5, 1.5], size=(n, 80))
    weights = {f"W_FSTURWT{r + 1}": table["W_FSTUWT"] * factors[:, r] for r in range(80)}
    pd.concat([table, pd.DataFrame(weights)], axis=1).to_csv(folder / "pisa.csv", index=False)
    answers = responses(rng, n, 12)
    answers.to_csv(folder / "answers.csv", index=False)
    about = answers[["person"]].assign(
        group=table["CNT"], escs=table["ESCS"], grade=rng.integers(9, 11, n),
        sex=table["ST004D01T"],
    )  # fmt: skip
    about.to_csv(folder / "about.csv", index=False)
    school = np.arange(n) // 15
    joined = about[["person", "sex"]].assign(
        school=[f"S{k:02d}" for k in school], region=np.array(["north", "south"])[school % 2],
        W_FSTUWT=table["W_FSTUWT"], **weights,
    )  # fmt: skip
    joined.to_csv(folder / "persons.csv", index=False)
    domains = [(f"q{j + 1}", "maths" if j % 2 else "reading") for j in range(12)]
    pd.DataFrame(domains, columns=["item", "domain"]).to_csv(folder / "domains.csv", index=False)
