"""The command line in this process."""

import sys
from types import SimpleNamespace

import pytest

from irt_dask.cli import main


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """What a command prints, typed in a folder of the test's own; checks the exit code."""
    monkeypatch.chdir(tmp_path)

    def run(*args, code=0):
        monkeypatch.setattr(sys, "argv", ["irt-dask", *map(str, args)])
        ended = 0
        try:
            main()
        except SystemExit as error:
            ended = error.code
        got = capsys.readouterr()
        assert ended == code, got.out + got.err
        assert "Traceback" not in got.err
        return SimpleNamespace(out=got.out, err=got.err)

    return run
