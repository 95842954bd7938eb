"""A few faults at random moments of a run; tests/benchmarks/chaos.py has the long table."""

import subprocess
import sys
from pathlib import Path

import pytest

CHAOS = Path(__file__).parents[1] / "benchmarks" / "chaos.py"


@pytest.mark.cluster
def test_faults_at_random_moments(tmp_path):
    """Every run ends as an undisturbed one, or with a named error and goes on when started again.

    Exit code 0 says so of all.  The seed draws a damaged file, a scheduler, a driver and a worker
    that are killed, which need neither root nor libfaketime.  Only the moments are up to chance:
    the false alarm rate is that of a machine on which a run of seconds takes minutes.
    """
    run = subprocess.run(
        [sys.executable, CHAOS, "--n", "4", "--seed", "292", "--out", tmp_path / "faults.jsonl"],
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "4 faults: 0 lost, 0 different, 0 hangs, 0 with orphans" in run.stdout
