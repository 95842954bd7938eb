"""Numbers and errors as they are printed for people, and what a shell completes."""

import os
import pty
import subprocess
import sys

import pytest

import irt_dask as irt
from irt_dask.cli.common import rows, show
from irt_dask.report.tables import caveats


def test_a_small_p_value_is_not_shown_as_none():
    text = rows([
        {"item": "q1", "shift": 0.0001, "uniform_p_value": 1e-9, "p_misfit": 2e-4},
        {"item": "q2", "shift": -0.5, "uniform_p_value": 0.0006, "p_misfit": float("nan")},
    ]).splitlines()  # fmt: skip
    assert [line.split()[1:] for line in text[1:]] == [
        ["0.000", "<0.001", "<0.001"],
        ["-0.500", "0.001", "-"],
    ]


def test_numbers_are_rounded_for_people_alone(capsys):
    values = {"log_likelihood": -2466.6533912345, "n": 5, "p_value": 1.23456789012e-12}
    show(values, False)
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == [
        "-2466.65339", "5", "1.23456789e-12",
    ]  # fmt: skip
    show(values, True)
    assert "-2466.6533912345" in capsys.readouterr().out


def test_bayes_says_that_it_knows_no_groups(typed, tmp_path):
    lsat = irt.load_lsat().to_xarray()["response"].values[::5]
    lines = [",".join([f"p{i}", "ab"[i % 2], *map(str, y)]) for i, y in enumerate(lsat)]
    (tmp_path / "r.csv").write_text("person,group,q1,q2,q3,q4,q5\n" + "\n".join(lines) + "\n")
    said = typed("ingest", "r.csv", "s", "--column", "group=group").out
    assert "groups          yes" in said
    words = ("calibrate", "s", "--cluster", "none", "--out", "b.csv")
    assert (
        "the groups of the persons are not used" in typed(*words, "--draws", 50, code=2).err
    )  # too few
    said = typed(*words, "--method", "marginal").err
    assert "the groups of the persons" not in said
    assert "say little of a single item" not in said  # 200 persons


def test_few_persons_are_named(typed, tmp_path):
    """In the shell and on the page; not of scores, whatever their number."""
    assert typed("simulate", "few", "--persons", 40, "--items", 8).out
    words = ("calibrate", "few", "--method", "marginal", "--prior", "empirical")
    said = typed(*words, "--out", "b.csv", "--fit", "f.nc").err
    assert "note: 40 persons say little of a single item" in said
    typed("score", "few", "b.csv", "--out", "scores")
    typed("report", "f.nc", "--scores", "scores", "--out", "r.html")
    assert (tmp_path / "r.html").read_text().count("40 persons say little of a single item") == 1
    assert "say little" not in "".join(caveats({"n_persons": 40, "method": "eap"}))


@pytest.mark.parametrize(
    "words, given, red",
    [
        (["info", "nothing"], {}, True),
        (["info", "--nothing"], {}, True),
        (["info", "nothing"], {"NO_COLOR": "1"}, False),
    ],
)
def test_errors_are_red_on_terminals(tmp_path, words, given, red):
    """Not in files, nor where NO_COLOR asks for none."""
    command = [sys.executable, "-m", "irt_dask.cli", *words]
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | given
    ours, theirs = pty.openpty()
    options = {"cwd": tmp_path, "env": environment, "stdout": subprocess.DEVNULL}
    assert subprocess.run(command, stderr=theirs, **options).returncode == 2
    os.close(theirs)
    said = os.read(ours, 10_000)
    os.close(ours)
    assert (b"\x1b[31m" in said) == red
    assert b"rror:" in said
    if red:
        plain = subprocess.run(command, stderr=subprocess.PIPE, **options).stderr
        assert b"\x1b" not in plain
        assert b"rror:" in plain


def test_what_the_shell_completes():
    """By the variables that the documented lines set."""
    for words, at, wanted in (
        ("irt-dask cali", 1, "calibrate"),
        ("irt-dask dif --ref", 2, "--ref"),
    ):
        asked = {"_IRT_DASK_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        done = subprocess.run(
            ["irt-dask"], env=os.environ | asked, capture_output=True, text=True, check=False
        )
        assert f"plain,{wanted}" in done.stdout
    source = os.environ | {"_IRT_DASK_COMPLETE": "bash_source"}
    script = subprocess.run(["irt-dask"], env=source, capture_output=True, text=True, check=False)
    assert "_IRT_DASK_COMPLETE=bash_complete" in script.stdout
