"""The checks of the package, each a session, run in the environment that nox itself runs in.

    nox -f .ci/noxfile.py -s lint types
    nox -f .ci/noxfile.py -s tests -- tests/store/test_store.py

What follows "--" goes on to the tool.
"""

import shlex
import tempfile
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parents[1]
nox.options.default_venv_backend = "none"
nox.options.stop_on_first_error = True
nox.options.sessions = ["format", "lint", "types", "layers", "tests"]

COMMANDS = {
    "format": "ruff format --check .",
    "lint": "ruff check .",
    "types": "mypy",
    "layers": "lint-imports",
    "tests": "pytest -q --durations=10",
    "doctests": "pytest -q tests/contracts/test_docstrings.py",
    "cluster": "pytest -q -m 'cluster and not nightly'",
    "slow": "pytest -q --durations=12 -m 'slow and not nightly'",
    "nightly": "pytest -q --durations=12 -m nightly",
    "benchmarks": "python tests/benchmarks/results.py",
}


def add(name: str, command: str) -> None:
    """Make a session of a command; ``nox -l`` lists it."""

    def check(session: nox.Session) -> None:
        session.chdir(ROOT)
        session.run(*shlex.split(command), *session.posargs)

    check.__doc__ = command
    nox.session(check, name=name)


for name, command in COMMANDS.items():
    add(name, command)


@nox.session
def demo(session: nox.Session) -> None:
    """irt-dask demo, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
        session.run("irt-dask", "demo", "--quiet")
