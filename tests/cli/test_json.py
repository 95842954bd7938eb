"""JSON on demand: commands that make or tell something print it for scripts."""

import json

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt
from irt_dask.cli.main import cli

#: What these print is text to read, or files to copy.
WITHOUT = {"certs", "demo", "docs"}


def test_every_command_that_has_a_result_has_json():
    with_json = {n for n, c in cli.commands.items() if any("--json" in p.opts for p in c.params)}
    assert set(cli.commands) - with_json == WITHOUT


@pytest.fixture
def answers(tmp_path):
    """A file of answers; its columns say what they are."""
    rng = np.random.default_rng(1)
    right = rng.random((150, 5)) < 1 / (1 + np.exp(-rng.normal(size=(150, 1))))
    table = pd.DataFrame(right.astype(int), columns=[f"q{j}" for j in range(5)])
    table.insert(0, "person", [f"p{i}" for i in range(150)])
    path = tmp_path / "answers.csv"
    table.to_csv(path, index=False)
    return path


def test_init_and_verify_in_json(typed, answers):
    made = json.loads(typed("init", answers, "--json").out)
    assert made["pipeline"] == "pipeline.toml"
    assert isinstance(made["to_decide"], list)
    store = irt.ingest(answers, "answers.store")
    said = json.loads(typed("verify", "answers.store", "--json").out)
    assert said == {"store": "answers.store", "persons": 150, "items": 5,
                    "checksum": store.fingerprint}  # fmt: skip


def test_a_run_and_its_page_in_json(typed, answers, tmp_path, no_pictures):
    (tmp_path / "mine.toml").write_text(
        "[data]\nsource = 'answers.csv'\n[calibrate]\nmethod = 'marginal'\n"
        "[check]\nreplicates = 0\n"
    )
    ran = typed("run", "mine.toml", "--out", "my-run", "--json")
    said = json.loads(ran.out)
    assert said["state"] == "finished"
    assert "marginal" in ran.err, "stages are told beside"
    for name in ("items", "scores", "report"):
        assert (tmp_path / said[name]).exists()
    assert said == json.loads(typed("run", "mine.toml", "--out", "my-run", "--json").out) | {
        "updated": said["updated"]
    }
    assert json.loads(typed("report", "my-run", "--json").out) == {"report": said["report"]}
