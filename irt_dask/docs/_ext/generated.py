"""Pages that are made of the package: reference, commands, vocabulary, examples, methods."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator

import click

import irt_dask as irt
from irt_dask import variables
from irt_dask.cli import examples

#: Names of the reference by what they are for; a name that is not here goes to "More".
GROUPS = {
    "Responses": "ingest append open_responses from_array simulate replicate load_lsat Responses",
    "Calibration": "fit_marginal fit_bayes fit_joint fit_bifactor fit_concurrent "
    "with_freed_items ItemPrior prior_items",
    "Coresets": "Coreset draw_coreset coreset_complexity",
    "Rasch items from pairs": "fit_spectral fit_pairwise fit_conditional pair_counts compare_items "
    "top_items fit_choppin fit_saaty fit_private_spectral",
    "Persons": "score score_table top_persons fit_population",
    "Fit": "item_fit item_curves person_fit residual_correlations information predictive_check "
    "evaluate loo compare dif lord_dif option_analysis",
    "Models on benchmarks": "predict_total choose_items next_items Session suspect_items "
    "answer_similarity grow_bank board_responses",
    "Banks and links": "read_items write_items link",
    "Published tables": "tabulate regress trend Replicates",
    "Where it runs, and other programs": "connect to_arviz",
    "Errors and warnings": "IrtDaskError InputError StoreError IrtDaskWarning DataWarning "
    "ItemWarning ConvergenceWarning ApproximationWarning",
}
#: Sections of methods.md whose formulas are a section of formulas.md, how both begin.
SAID = {"Scoring and": "Persons", "Fit of": "Fit"}
#: Headings of methods.md by page; a section that is not here is a page of its own.
FAMILIES = {
    "foundations": ("What holds for all methods", "Sums over|What identifies|Dense and|"
                    "Person weights|Items that fall|Flags of"),
    "joint": ("Joint maximum likelihood and coresets", "Joint maximum"),
    "marginal": ("Marginal maximum likelihood", "Marginal maximum|Bifactor|Concurrent"),
    "rasch": ("Rasch items from pairs", "Pair counts|Spectral|Pairs of items|Conditional max|"
              "Row sums"),
    "private": ("Private releases", "Private"),
    "bayes": ("The posterior", "Posterior by"),
    "scoring": ("Scores, evaluation, conditioning", "Scoring|Conditioning"),
    "fit": ("Fit and groups", "Fit of items|Differential"),
    "linking": ("Linking", "Linking"),
}  # fmt: skip
Pages = Iterator[tuple[str, str]]


def methods(text: str, formulas: str) -> Pages:
    """The page of methods by family, each section with its formula, and a page that lists them."""
    head, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    said = _formulas(formulas)
    sections = [_with_formula(section, said) for section in sections]
    found: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for section in sections:
        title = section[3 : section.index("\n")]
        known = [k for k, (_, start) in FAMILIES.items() if re.match(start, title)]
        name = known[0] if known else re.sub(r"\W+", "-", title.lower()).strip("-")[:30]
        found.setdefault(name, []).append(section)
    names = [name for name in found if found[name]]
    yield "methods/index.md", head + _toctree(names)
    for name in names:
        yield f"methods/{name}.md", _family(name, found[name])


def _formulas(text: str) -> dict[str, str]:
    """What formulas.md says of methods: by the name of a function, or of a section of its own."""
    found = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, below = section.partition("\n")
        found[title] = below.strip()
        for paragraph in re.split(r"\n(?=\*\*)", below):
            if name := re.match(r"\*\*.*\(`(\w+)`", paragraph.strip()):
                found[name[1]] = paragraph.strip()
    return found


def _with_formula(section: str, said: dict[str, str]) -> str:
    """A section of methods, with the formula of the function that its heading names."""
    heading, _, rest = section.partition("\n")
    of = [text for name, text in said.items() if f"(`{name}`" in heading]
    of += [said[theirs] for ours, theirs in SAID.items() if heading[3:].startswith(ours)]
    return "\n\n".join([heading, *of, rest.lstrip("\n")])


def _family(name: str, sections: list[str]) -> str:
    """One page: a section alone gives its title, several have one of the family."""
    if name not in FAMILIES:
        return sections[0].replace("\n### ", "\n## ")[1:]
    return f"# {FAMILIES[name][0]}\n\n" + "\n".join(sections)


def _toctree(names: Iterable[str], **options: str | int) -> str:
    given = "".join(f":{k}: {v}\n" for k, v in options.items())
    return "\n```{toctree}\n" + given + "\n".join(names) + "\n```\n"


def reference() -> Pages:
    """A page for each public name, and one that lists them with the first line of each."""
    listed = dict.fromkeys(" ".join(GROUPS.values()).split())
    groups = {title: names.split() for title, names in GROUPS.items()}
    groups["More"] = [n for n in irt.__all__ if n not in listed and n != "plot"]
    groups["Plots (`irt.plot`)"] = [f"plot.{name}" for name in irt.plot.__all__]
    text = (
        "# Reference\n\n`import irt_dask as irt`. The examples of every page are run by the tests, "
        "and print what they say.\n"
    )
    for title, names in groups.items():
        there = [name for name in names if _thing(name) is not None]
        if there:
            text += f"\n## {title}\n\n| | |\n|---|---|\n" + "".join(map(_row, there))
            text += _toctree(there, hidden="")
        for name in there:
            yield f"api/{name}.rst", _page(name)
    yield "api/index.md", text


def _thing(name: str) -> object:
    return getattr(irt.plot, name[5:], None) if "." in name else getattr(irt, name, None)


def _row(name: str) -> str:
    first = (inspect.getdoc(_thing(name)) or "").split("\n\n")[0].replace("\n", " ")
    first = re.sub(r":\w+:`([^`]+)`", r"`\1`", first).replace("``", "`").replace("|", "\\|")
    return f"| {{py:obj}}`{name} <irt_dask.{name}>` | {first} |\n"


def _page(name: str) -> str:
    is_class = inspect.isclass(_thing(name))
    kind = "autoclass" if is_class else "autofunction"
    members = "   :members:\n" if is_class and not issubclass(_thing(name), Warning) else ""  # type: ignore[arg-type]
    return f"{name}\n{'=' * len(name)}\n\n.. {kind}:: irt_dask.{name}\n{members}"


def vocabulary() -> str:
    """Every named array of stores and results, by what it belongs to."""
    text = (
        "# Vocabulary\n\nEvery array of a result has a name of this list, `owner_quantity`: what "
        "it belongs to, and what it is. Dimensions in brackets are there with several groups "
        "(before) or several abilities (after). The same name with an ending says how sure it "
        "is.\n\n"
        "| ending | meaning |\n|---|---|\n"
    )
    text += "".join(f"| `_{k}` | {v} |\n" for k, v in variables.SUFFIXES.items())
    by_owner: dict[str, list[variables.Variable]] = {}
    for v in variables.VARIABLES.values():
        by_owner.setdefault(v.name.partition("_")[0], []).append(v)
    owners = [k for k, vs in by_owner.items() if len(vs) > 2]
    others = [v for k, vs in by_owner.items() if len(vs) <= 2 for v in vs]
    for owner in owners:
        text += _table(owner, by_owner[owner])
    text += _table("others", others)
    text += "\n## Flags of items\n\n`item_flag` is `ok`, or some of these, joined by `|`.\n\n"
    text += "| flag | meaning |\n|---|---|\n"
    return text + "".join(f"| `{k}` | {v} |\n" for k, v in variables.ITEM_FLAGS.items())


def _table(title: str, found: list[variables.Variable]) -> str:
    text = (
        f"\n## {title.capitalize()}\n\n| name | dimensions | unit | meaning |\n|---|---|---|---|\n"
    )
    for v in found:
        dims = ", ".join([*(f"[{d}]" for d in v.before), *v.dims, *(f"[{d}]" for d in v.more)])
        text += f"| `{v.name}` | {dims} | {v.unit} | {_escaped(v.doc)} |\n"
    return text


def _escaped(text: str) -> str:
    return re.sub(r"([|*_\[\]<])", r"\\\1", text)


def commands(group: click.Group) -> str:
    """What every command says of itself."""
    text = "# Commands\n\nWhat `irt-dask COMMAND --help` prints.\n"
    for name, command in sorted(group.commands.items()):
        with click.Context(command, info_name=f"irt-dask {name}", max_content_width=96) as context:
            said = command.get_help(context)
        text += f"\n## {name}\n\n```text\n{said}\n```\n"
    return text


def example_pages() -> Pages:
    """Files for kinds of cluster, and pipelines, each a page with all that a copy has."""
    for kind in examples.KINDS:
        names = examples.names(kind)
        for name in names:
            yield f"examples/{kind}-{_slug(name)}.md", _example(kind, name)
        if kind == "cluster":
            readme = (examples.folder(kind) / "README.md").read_text(encoding="utf-8")
            readme = re.sub(
                r"\]\(([\w.]+/?)\)", lambda m: f"](examples/cluster-{_slug(m[1])}.md)", readme
            )
            yield (
                "cluster.md",
                readme + _toctree([f"examples/cluster-{_slug(n)}" for n in names], hidden=""),
            )
    there = [f"pipelines-{_slug(name)}" for name in examples.names("pipelines")]
    yield (
        "examples/pipelines.md",
        "# Examples of pipelines\n\nFiles that come with the package; "
        "`irt-dask docs pipelines NAME --copy FOLDER` copies one.\n" + _toctree(there),
    )


def _to_example(found: re.Match[str]) -> str:
    return f"](examples/cluster-{_slug(found[1])}.md)"


def _slug(name: str) -> str:
    return name.rstrip("/").replace(".", "-")


def _example(kind: str, name: str) -> str:
    text, shown = f"# {name.rstrip('/')}\n\n`irt-dask docs {kind} {name} --copy .` copies it.\n", ""
    for path in examples.files(kind, name):
        content = path.read_text(encoding="utf-8")
        if path.name == "README.md":
            text = re.sub(
                r"\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", content
            )  # to files, shown below
        else:
            of = {"toml": "toml", "yaml": "yaml", "yml": "yaml", "sh": "bash", "sbatch": "bash"}
            language = of.get(path.suffix[1:], "text")
            shown += f"\n## {path.name}\n\n````{language}\n{content}\n````\n"
    return text + shown
