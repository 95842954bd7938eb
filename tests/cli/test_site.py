"""irt-dask docs --open, and the site that Sphinx builds of the pages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import irt_dask as irt
from irt_dask.cli import site
from irt_dask.errors import IrtDaskError
from irt_dask.variables import ITEM_FLAGS, VARIABLES

BUILD = site.PACKAGE / "docs" / "build.py"
MISSING = [name for name in site.NEEDED if find_spec(name) is None]


class Links(HTMLParser):
    """What a page refers to, what it loads, and what can be referred to in it."""

    def __init__(self):
        super().__init__()
        self.links, self.loaded, self.anchors, self.pictures = [], [], set(), []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[k] for k in ("id", "name") if given.get(k)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in (
            "stylesheet",
            "icon",
            "preload",
            "modulepreload",
        ):
            self.loaded.append(given["href"])
        elif given.get("src"):
            self.loaded.append(given["src"])
            if tag == "img":
                self.pictures.append(given)


def read(page):
    found = Links()
    found.feed(page.read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: pip install '.[docs]'")
def test_the_site_builds_offline_without_warnings_and_all_links_lead_somewhere(tmp_path):
    """Of the site that nox -s docs has built, or else of one whose cells are not executed."""
    folder = Path(os.environ.get("IRT_DASK_SITE") or tmp_path)
    if folder == tmp_path:
        done = subprocess.run(
            [sys.executable, str(BUILD), str(tmp_path), "--strict", "--no-execution"],
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
    root = folder / "html"
    made = [p for p in root.rglob("*.html") if "_static" not in p.parts]  # the theme's templates
    pages = {p: read(p) for p in made}
    assert len(pages) > 80
    broken = []
    for page, found in pages.items():
        for link in [*found.links, *found.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in found.loaded and parts.scheme != "data":
                    broken.append(f"{page.relative_to(root)} loads {link} from a network")
                continue
            to = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not to.exists() or to.is_dir():
                broken.append(f"{page.relative_to(root)}: {link}")
            elif parts.fragment and to in pages and parts.fragment not in pages[to].anchors:
                broken.append(f"{page.relative_to(root)}: {link} has no such place")
    assert not broken, "\n".join(broken[:20])
    text = (root / "formulas.html").read_text(encoding="utf-8")
    assert text.count("<math ") > 20
    assert not re.search(r"\$[^$\n]+\$", re.sub(r"<math .*?</math>", "", text, flags=re.DOTALL))
    assert (root / "api" / "fit_bayes.html").exists()
    assert "person_plausible_value" in (root / "vocabulary.html").read_text(encoding="utf-8")


@pytest.fixture
def sphinx(tmp_path, monkeypatch):
    """A build that takes no time: a script in place of build.py, and a cache of the test's own."""
    package = tmp_path / "package"
    (package / "docs").mkdir(parents=True)
    script = package / "docs" / "build.py"
    script.write_text(
        "import sys, pathlib\nto = pathlib.Path(sys.argv[1], 'html')\nto.mkdir()\n"
        "(to / 'index.html').write_text('built')\nprint('built')\n"
    )
    monkeypatch.setattr(site, "PACKAGE", package)
    monkeypatch.setattr(site, "NEEDED", ())
    monkeypatch.setenv("IRT_DASK_CACHE", str(tmp_path / "cache"))
    return script


def test_open_builds_once_for_each_content(typed, sphinx, tmp_path):
    first = typed("docs", "--open")
    page = Path(urlsplit(first.out.strip()).path)
    assert page.read_text() == "built"
    assert page.is_relative_to(tmp_path / "cache")
    assert "building the site" in first.err
    page.write_text("kept")
    again = typed("docs", "--open")
    assert (again.out, again.err) == (first.out, "")
    assert page.read_text() == "kept"
    (sphinx.parent / "fit.md").write_text("# changed")
    other = typed("docs", "--open").out
    assert other != first.out
    assert not page.exists(), "the site of the older content is taken away"


def test_open_without_sphinx_names_the_command(typed, sphinx, monkeypatch):
    monkeypatch.setattr(site, "NEEDED", ("no_such_module",))
    err = typed("docs", "--open", code=2).err
    assert "pip install 'irt_dask[docs]'" in err
    assert "no_such_module" in err


def test_a_build_that_fails_leaves_nothing(sphinx):
    sphinx.write_text("import sys\nsys.exit('the lexer is gone')\n")
    with pytest.raises(IrtDaskError, match="the lexer is gone"):
        site.page()
    assert list((site.cache() / "docs").iterdir()) == []


def test_open_takes_no_topic(typed):
    assert "whole site" in typed("docs", "fit", "--open", code=2).err


def test_pages_are_printed_without_remarks(typed):
    page = typed("docs", "classroom").out
    assert page.startswith("# A classroom test")
    assert "not run:" not in page
    assert "{code-cell}" not in page
    listed = typed("docs").out
    assert "choose " in listed
    assert "how-to" not in listed


@pytest.fixture
def pages(monkeypatch):
    """The modules that make pages; they need no Sphinx."""
    monkeypatch.syspath_prepend(str(site.PACKAGE / "docs" / "_ext"))
    import generated
    import links

    return generated, links


def test_methods_are_cut_into_pages_without_loss(pages):
    generated, _ = pages
    docs = site.PACKAGE / "docs"
    text = (docs / "methods.md").read_text() + "\n## Something new (`fit_new`)\n\nText.\n"
    made = dict(generated.methods(text, (docs / "formulas.md").read_text()))
    whole = "\n".join(made.values())
    for line in filter(None, text.split("\n")):
        assert line in whole or line.startswith("#")
    titles = re.findall(r"^## (.*)", text, re.MULTILINE)
    kept = re.findall(r"^#+ (.*)", whole, re.MULTILINE)
    assert not set(titles) - set(kept)
    assert made["methods/something-new-fit_new.md"].startswith("# Something new")
    for page in ("marginal", "joint", "rasch", "private", "bayes", "scoring", "fit", "linking"):
        assert "$$" in made[f"methods/{page}.md"], f"the page {page} has no formula"
    assert made["methods/fit.md"].index("infit}_j") < made["methods/fit.md"].index("C(alpha)")


def test_the_reference_has_a_page_for_every_public_name(pages):
    generated, _ = pages
    names = " ".join(generated.GROUPS.values()).split()
    assert not set(names) - set(irt.__all__)
    assert len(names) == len(set(names))
    made = dict(generated.reference())
    wanted = {f"api/{n}.rst" for n in irt.__all__ if n != "plot"}
    wanted |= {f"api/plot.{n}.rst" for n in irt.plot.__all__}
    assert set(made) == {"api/index.md", *wanted}
    text = generated.vocabulary()
    assert all(f"`{name}`" in text for name in [*VARIABLES, *ITEM_FLAGS])


def test_names_and_commands_in_prose_become_links(pages):
    _, links = pages
    text = "# `fit_bayes`\n`irt.score(x)`, `append`, `irt-dask docs fit`\n```sh\n`irt.score`\n```\n"
    made = links.linked(text, "tutorials/a.md", {"fit": "fit.md"})
    assert made == (
        "# `fit_bayes`\n{py:obj}`irt.score(x) <irt_dask.score>`, `append`, "
        "[`irt-dask docs fit`](../fit.md)\n```sh\n`irt.score`\n```\n"
    )
    cell = '# T\n\n```{code-cell}\n# picture: a "b"\nx\n```\n'
    assert 'alt: "a \\"b\\""' in links.as_notebook(cell)
    assert links.as_notebook("# T\n") == "# T\n"
