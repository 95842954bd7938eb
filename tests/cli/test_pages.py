"""Code on every page of the documentation runs, or a comment before it says why it does not.

A block is run by its language, in the order of its page and in one folder with the files that it
names: ``sh`` as commands of irt-dask, ``python`` and ``{code-cell}`` as Python, ``toml`` is read as
a pipeline.  ``<!-- not run: REASON -->`` on the line before leaves a block out.
"""

from __future__ import annotations

import ast
import re
import shlex
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import matplotlib.figure
import page_files
import pytest

import irt_dask as irt
from irt_dask.cli.main import cli
from irt_dask.workflow.config import read_config
from irt_dask.workflow.scoring import read_scoring

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "irt_dask" / "docs"
#: Pages of cluster/ are left to tests/clusters, which run their files and lines.
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(
    r"^(<!-- not run: (?P<reason>.*) -->\n)?^```(?P<language>\S*)[^\n]*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
RUN = ("sh", "python", "toml", "{code-cell}")
#: What is no code: output and drawings; and directives of Sphinx, which the site's build reads.
SHOWN = ("text", "{toctree}", "{math}")


def blocks(page):
    return [(b["language"], b["code"], b["reason"]) for b in BLOCK.finditer(page.read_text())]


def name(page):
    return page.relative_to(ROOT).as_posix()


def runnable(page):
    return any(how in RUN and not why for how, _, why in blocks(page))


def marked(page):
    """A page of cells alone is nightly: the site's build runs it, for every change."""
    kinds = {how for how, _, why in blocks(page) if how in RUN and not why}
    marks = [pytest.mark.nightly] if kinds == {"{code-cell}"} else []
    return pytest.param(page, marks=marks, id=name(page))


def test_every_block_is_run_or_says_why_not():
    bad = []
    for page in PAGES:
        for language, code, reason in blocks(page):
            if language not in (*RUN, *SHOWN) and not reason:
                bad.append(f"{name(page)}: {language or 'no language'}: {code[:60]!r}")
            if reason is not None and len(reason.split()) < 3:
                bad.append(f"{name(page)}: no reason: {reason!r}")
    assert not bad, "\n".join(bad)


def test_the_readme_is_two_screens():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 110
    assert any("pip install . && irt-dask demo" in line for line in lines)
    assert any("pip install '.[test]' && pytest" in line for line in lines)


TUTORIALS = sorted(p for p in (DOCS / "tutorials").glob("*.md") if p.stem != "index")


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_every_tutorial_has_pictures_and_ends_in_a_decision(page):
    text = page.read_text()
    assert "```{code-cell}\n# picture: " in text
    assert re.search(r"^\*\*(The decision|What to do next year)\*\*: ", text, re.MULTILINE)


def test_every_public_name_is_on_a_page():
    """Of the overview of functions, or of the plots."""
    text = (DOCS / "overview.md").read_text()
    errors = [n for n in irt.__all__ if n.endswith(("Error", "Warning"))]
    mentioned = set(re.findall(r"`(?:irt\.)?(\w+)", text))
    lacking = set(irt.__all__) - mentioned - set(errors)
    assert lacking <= {"Coreset", "ItemPrior", "Responses", "connect"}


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::irt_dask.errors.IrtDaskWarning"
)  # pages show what is warned of
@pytest.mark.parametrize("page", [*map(marked, filter(runnable, PAGES))])
def test_pages(page, tmp_path, monkeypatch, typed):
    if "arviz" in page.read_text() and page.parent.name == "tutorials" and not find_spec("arviz"):
        pytest.skip("needs ArviZ: pip install 'irt_dask[diag]'")
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    page_files.write_all(tmp_path)
    BEFORE.get(page.name, lambda typed: None)(typed)
    if page.parent.name != "tutorials":  # commands to copy, whose draws are many
        monkeypatch.setattr(irt, "fit_bayes", partial(irt.fit_bayes, n_draws=200, n_warmup=100))
    monkeypatch.setattr(irt, "connect", nullcontext)  # tests/clusters connect; here threads do
    space = {"__name__": "__main__", "irt": irt}
    for language, code, reason in blocks(page):
        if language == "sh" and not reason:
            for line in commands(code):
                typed(*line)
                without_cluster(line)
        elif language in ("python", "{code-cell}") and not reason:
            run(code, space)
        elif language == "toml" and not reason:
            check_pipeline(code)


def commands(code):
    """Words of each command."""
    lines = [shlex.split(x, comments=True) for x in code.replace("\\\n", " ").splitlines()]
    for words in filter(None, lines):
        assert words[0] == "irt-dask", f"{words}: only commands of irt-dask are run"
        yield words[1:]


def without_cluster(words):
    """A pipeline that was copied runs in threads: its processes are what tests/workflow start."""
    if words[:2] == ["docs", "pipelines"] and "--copy" in words:
        path = Path(words[2])
        path.write_text(path.read_text().partition("\n[cluster]")[0] + "\n[bayes]\ndraws = 200\n")


def run(code, space):
    """As a notebook does: the last line's value is shown, as pictures and tables are."""
    code = re.sub(r"\A(:\w.*\n)+", "", code)
    body = ast.parse(code).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "page", "exec"), space)  # noqa: S102
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "page", "eval"), space)  # noqa: S307
        if isinstance(value, matplotlib.figure.Figure):
            value.canvas.draw()
        assert repr(value)


def check_pipeline(code):
    """The section of scoring, or a run's, with a source if it names none."""
    path = Path("page.toml")
    path.write_text(code if "[data]" in code or "[scoring]" in code else DATA + code)
    if read_scoring(path) is None:
        assert read_config(path).data is not None


DATA = '[data]\nbuiltin = "lsat"\n'


def _pipelines(typed):
    typed("ingest", "spring.csv", "spring.store", "--exclude", "weight,region")
    Path("responses.csv.gz").write_bytes(b"")


def _survey(typed):
    typed("ingest", "answers.csv", "assessment.store", "--persons", "about.csv")
    typed("calibrate", "assessment.store", "--out", "bank.csv")
    for year in ("2018", "2022"):
        typed("tabulate", "pisa.csv", "--values", "math=PV*MATH", "--by", "CNT", "--preset", "pisa",
              "--out", f"table_{year}.csv")  # fmt: skip


def _data(typed):
    table = Path("survey.csv").read_text().splitlines()
    Path("survey.csv").write_text("\n".join(",".join(x.split(",")[:3]) for x in table) + "\n")


#: What a page takes for given, beyond files.
BEFORE = {"pipelines.md": _pipelines, "survey.md": _survey, "data.md": _data}


def test_typed_commands_exist():
    """All commands of the shell are on the page of commands, which is made of them."""
    text = "".join(page.read_text() for page in PAGES)
    unknown = set(re.findall(r"^irt-dask (\w+)", text, re.MULTILINE)) - set(cli.commands)
    assert not unknown
