"""The checks of the package, each a session, run in the environment that nox itself runs in; but
``floors``, ``pythons`` and ``sbom`` make one of their own.

    nox -f .ci/noxfile.py -s lint types
    nox -f .ci/noxfile.py -s tests -- tests/store/test_store.py

What follows "--" goes on to the tool.
"""

import os
import platform
import shlex
import shutil
import subprocess
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
    "doctests": "pytest -q -m '' tests/contracts/test_docstrings.py",
    "cluster": "pytest -q --durations=12 -m 'cluster and not nightly'",
    "slow": "pytest -q --durations=12 -m 'slow and not nightly'",
    # these wait for processes a good part of their time: three at a time keep two cores busy
    "long": "pytest -q -n 3 --durations=20 -m '(slow or cluster) and not nightly'",
    "nightly": "pytest -q --durations=12 -m nightly",
    "planted": "python tests/planted_bugs.py",
    "mutations": "python tests/mutations.py",
    "benchmarks": "python tests/benchmarks/results.py",
}
LOWEST = "3.11"
PYTHONS = ("3.12", "3.13", "3.14")


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
def docs(session: nox.Session) -> None:
    """The site, examples executed, warnings are errors; into FOLDER, if one is given."""
    session.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        to = session.posargs[0] if session.posargs else folder
        session.run("python", "irt_dask/docs/build.py", to, "--strict")


@nox.session
def browser(session: nox.Session) -> None:
    """Report page and site in a Chromium; a test skipped although there is one has failed."""
    session.chdir(ROOT)
    tests = Path("tests").rglob("test_*.py")  # of many, which take long to be collected
    given = session.posargs or [str(p) for p in tests if "mark.browser" in p.read_text("utf-8")]
    command = ("pytest", "-q", "-n", "0", "--durations=12", "-m", "browser")
    session.run(*command, *given, env={"IRT_DASK_BROWSER": "required"})


@nox.session
def demo(session: nox.Session) -> None:
    """irt-dask demo, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
        session.run("irt-dask", "demo", "--quiet")


def interpreter(version: str) -> str | None:
    """Where a Python is, on the PATH or among pyenv's (commands of pyenv may have none)."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for path in (shutil.which(name), *pyenv.glob(f"versions/{version}.*/bin/{name}")):
        if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return str(path)
    return None


def in_fresh_environment(session: nox.Session, version: str, *pip_options: str) -> None:
    """Install the package as its users do, and run demo and tests with what that brought."""
    python = interpreter(version)
    if python is None:
        if "UNTESTED" in os.environ:  # the file of .ci/extended
            with open(os.environ["UNTESTED"], "a") as file:
                print(f"Python {version}", file=file)
        session.skip(f"UNTESTED: there is no Python {version} here")
    session.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        tools = f"{folder}/venv/bin"
        session.env["PATH"] = os.pathsep.join([tools, os.environ["PATH"]])
        session.run(python, "-m", "venv", f"{folder}/venv")
        session.run(f"{tools}/pip", "install", "--quiet", ".[test]", *pip_options)
        session.run(f"{tools}/pip", "freeze", "--exclude", "irt_dask")
        with session.chdir(folder):
            session.run(f"{tools}/irt-dask", "demo", "--quiet")
        session.run(f"{tools}/pytest", "-q", *session.posargs)


@nox.session
def floors(session: nox.Session) -> None:
    """Demo and tests with the lowest version of every dependency."""
    in_fresh_environment(session, LOWEST, "--constraint", ".ci/floors.txt")


#: What .ci/tested.txt begins with.
TESTED = """\
# The versions with which all checks passed last, on Python {python}: for an installation that is to
# stay as it is, `pip install irt_dask --constraint tested.txt`.  Written by the session "tested".
"""


@nox.session
def tested(session: nox.Session) -> None:
    """Write down the versions of this environment, in which .ci/run has just passed."""
    found = session.run(
        "python", "-m", "pip", "freeze", "--all", "--exclude", "irt_dask", silent=True
    )
    lines = [line for line in str(found).splitlines() if "==" in line and " " not in line]
    text = TESTED.format(python=platform.python_version()) + "\n".join(lines) + "\n"
    (ROOT / ".ci" / "tested.txt").write_text(text)


@nox.session
@nox.parametrize("version", PYTHONS)
def pythons(session: nox.Session, version: str) -> None:
    """Demo and tests with newer Pythons; one that is not here is skipped as untested."""
    in_fresh_environment(session, version)


@nox.session
def sbom(session: nox.Session) -> None:
    """What an installation of the package brings, as dist/sbom.json (CycloneDX)."""
    out = ROOT / "dist" / "sbom.json"
    out.parent.mkdir(exist_ok=True)
    session.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        for name, what in (("users", "."), ("tools", "cyclonedx-bom==7.5.0")):
            session.run(interpreter(LOWEST) or "python3", "-m", "venv", f"{folder}/{name}")
            session.run(f"{folder}/{name}/bin/pip", "install", "--quiet", what)
        session.run(
            f"{folder}/tools/bin/cyclonedx-py", "environment", f"{folder}/users/bin/python",
            "--pyproject", "pyproject.toml", "--output-reproducible", "--output-file", str(out),
        )  # fmt: skip
