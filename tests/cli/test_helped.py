"""Examples of --help: every command has some, and they run, one after the other."""

import json
import re
import shlex

import click
import numpy as np
import pandas as pd
import pytest

from irt_dask.cli.helped import EXAMPLES
from irt_dask.cli.main import cli

#: Not typed here: the demo and clusters have tests of their own.
ELSEWHERE = ("demo", "run mine.toml --cluster")


@pytest.mark.parametrize("name", cli.commands)
def test_help_of_every_command_ends_with_examples_that_it_understands(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    command = cli.commands[name]
    shown = command.get_help(click.Context(command, info_name=f"irt-dask {name}"))
    _, sign, examples = shown.partition("Examples:\n")
    assert sign, f"irt-dask {name} --help has no example"
    typed = re.sub(r" \\\n\s+", " ", examples)
    lines = [line.strip() for line in typed.splitlines() if not line.strip().startswith("#")]
    assert len(lines) == len(EXAMPLES[name])
    for line in lines:
        program, called, *arguments = shlex.split(line)
        assert (program, called) == ("irt-dask", name)
        command.make_context(name, arguments)  # click knows all options and their values
    assert max(map(len, examples.splitlines())) <= 100


def _class(n, m, seed, prefix="p"):
    """A class: pupil, class, and a column a question."""
    rng = np.random.default_rng(seed)
    theta, b = rng.normal(size=n), np.linspace(-1.5, 1.5, m)
    right = rng.random((n, m)) < 1 / (1 + np.exp(-1.2 * (theta[:, None] - b)))
    table = pd.DataFrame(right.astype(int), columns=[f"q{j:02d}" for j in range(m)])
    table.insert(0, "pupil", [f"{prefix}{i:03d}" for i in range(n)])
    table.insert(1, "class", np.where(np.arange(n) < n // 2, "7a", "7b"))
    return table


def _write_files(to):
    """All that a user brings to the examples."""
    spring, questions = _class(200, 12, 1), [f"q{j:02d}" for j in range(12)]
    spring.to_csv(to / "answers.csv", index=False)
    _class(60, 12, 2, "m").to_csv(to / "monday.csv", index=False)
    _class(200, 12, 3, "a").to_csv(to / "autumn.csv", index=False)
    rng = np.random.default_rng(4)
    key = rng.integers(0, 4, 12)
    chosen = np.where(spring[questions] == 1, key, (key + rng.integers(1, 4, (200, 12))) % 4)
    letters = pd.DataFrame(np.array(list("ABCD"))[chosen], columns=questions)
    pd.concat([spring[["pupil", "class"]], letters], axis=1).to_csv(to / "letters.csv", index=False)
    pd.DataFrame({"item": questions, "key": np.array(list("ABCD"))[key]}).to_csv(
        to / "key.csv", index=False
    )
    halves = np.where(np.arange(12) % 2, "odd", "even")
    thirds = np.array(["one", "two", "three"])[np.arange(12) % 3]
    pd.DataFrame({"item": questions, "block": thirds}).to_csv(to / "topics.csv", index=False)
    pd.DataFrame({"item": questions, "domain": halves}).to_csv(to / "domains.csv", index=False)
    pupils = [*spring["pupil"], *(f"m{i:03d}" for i in range(60))]
    pd.DataFrame({"pupil": pupils, "books": np.arange(260) % 3}).to_csv(
        to / "persons.csv", index=False
    )
    cycles = pd.concat([_class(200, 12, 6 + k, f"c{k}").assign(group=g) for k, g in enumerate(
        ["A2021", "A2025", "B2021", "B2025"])])  # fmt: skip
    cycles.drop(columns="class").to_csv(to / "cycles.csv", index=False)
    sets = {"group": ["A2021", "A2025", "B2021", "B2025"], "set": ["A", "A", "B", "B"]}
    pd.DataFrame(sets).to_csv(to / "countries.csv", index=False)
    published = {"item": ["n1", "n2"], "a": [0.8, 1.1], "b": [-0.4, 0.6], "c": [0.2, 0.15]}
    pd.DataFrame(published).to_csv(to / "published.csv", index=False)
    models = _class(40, 30, 5).drop(columns="class").rename(columns={"pupil": "model"})
    models.to_csv(to / "models.csv", index=False)
    for model, right in zip(models["model"], models["q00"], strict=True):
        log = to / "lm-eval" / model / "samples_arc_2026-01-16T15-23-47.285735.jsonl"
        log.parent.mkdir(parents=True)
        log.write_text(json.dumps({"doc_id": 0, "acc": right, "acc_norm": 0.5}))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::irt_dask.errors.IrtDaskWarning")
def test_examples_of_help_run_one_after_the_other(typed, tmp_path):
    _write_files(tmp_path)
    typed("ingest", "autumn.csv", "autumn.store", "--column", "person=pupil", "--exclude", "class")
    typed("calibrate", "autumn.store", "--method", "marginal", "--out", "other-bank.csv")
    typed(
        "ingest",
        "cycles.csv",
        "cycles.store",
        "--column",
        "person=pupil",
        "--column",
        "group=group",
    )
    for name in [*EXAMPLES]:
        for line, _ in EXAMPLES[name]:
            if line.startswith(ELSEWHERE):
                continue
            if name == "predict":
                asked = pd.read_csv(tmp_path / "ask.csv").query("selected == 1")["item"]
                models = pd.read_csv(tmp_path / "models.csv")
                models[["model", *asked]].head(3).to_csv(tmp_path / "new.csv", index=False)
            if name == "trend":
                later = (tmp_path / "table.csv").read_text()
                (tmp_path / "table-later.csv").write_text(later)
            print(line)
            typed(*shlex.split(line))
