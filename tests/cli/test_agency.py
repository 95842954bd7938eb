"""An agency's job in commands: the chain of tests/benchmarks/agency.py on few persons."""

import importlib.util
import json
import shlex
from pathlib import Path

import pandas as pd
import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "agency.py"


@pytest.mark.slow
def test_from_files_to_scores_to_reports(tmp_path, typed):
    spec = importlib.util.spec_from_file_location("agency", SCRIPT)
    agency = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(agency)
    agency.write_waves(tmp_path, 1500, 14)
    said = {}
    for command in agency.commands():
        name, *args = shlex.split(command)
        more = ["--json"] if name in ("calibrate", "dif", "link") else []
        out = typed(name, *args, *more).out
        said[command] = json.loads(out) if more else out
    spring, autumn, _ = (s for c, s in said.items() if c.startswith("calibrate"))
    north, south = spring["groups"]
    assert (north["group"], north["mean"], north["sd"]) == ("north", 0.0, 1.0)
    assert abs(south["mean"] + 0.3) < 4 * south["mean_se"] < 0.4
    assert len(autumn["anchors"]) == 7
    on_spring = {g["group"]: g for g in autumn["groups"]}
    assert abs(on_spring["north"]["mean"] - 0.3) < 4 * on_spring["north"]["mean_se"]
    (dif,) = (s for c, s in said.items() if c.startswith("dif"))
    worst = min(dif["tests"], key=lambda t: t["uniform_p_value"])
    assert worst["item"] == f"item{agency.DIF_ITEM + 1:03d}"
    (link,) = (s for c, s in said.items() if c.startswith("link"))
    # Autumn alone has the north's abilities at N(0, 1); on the scale of spring they are N(.3, 1).
    assert abs(link["B"] - 0.3) < 0.2
    scores = pd.read_parquet("spring_scores")
    assert len(scores) == 1500
    assert {"person_ability", "pv1", "pv5", "person_group"} <= set(scores)
    assert len(pd.read_parquet("spring_persons")) == 1500
