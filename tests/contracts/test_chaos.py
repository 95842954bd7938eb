"""A few faults at random moments of a run; tests/benchmarks/chaos.py has the long table."""

import itertools
import subprocess
import sys
from pathlib import Path

import failing_calls
import pytest

CHAOS = Path(__file__).parents[1] / "benchmarks" / "chaos.py"
#: None needs root or libfaketime; links that are cut: tests/clusters/test_partition.py.
KINDS = ["file damaged", "two drivers"]
KINDS += [] if failing_calls.missing() else ["call fails: EIO"]


@pytest.mark.nightly
def test_faults_at_random_moments(tmp_path):
    """Every run ends as an undisturbed one, or with a named error and goes on when started again.

    Exit code 0 says so of all.  Only the moments are up to chance: the false alarm rate is that of
    a machine on which a run of seconds takes minutes.
    """
    only = itertools.chain.from_iterable(("--only", kind) for kind in KINDS)
    options = [
        "--faults",
        str(len(KINDS)),
        "--seed",
        "1",
        "--stop",
        "3",
        "--out",
        tmp_path / "faults.jsonl",
    ]
    run = subprocess.run(
        [sys.executable, CHAOS, *options, *only], capture_output=True, text=True, timeout=900
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert (
        f"{len(KINDS)} faults: 0 lost, 0 silent, 0 hangs, 0 with orphans, 0 without a named"
        in run.stdout
    )
