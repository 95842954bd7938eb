"""Examples that --help shows below the options of a command: a command to type, and what it does.

The tests type them all, one after the other: files that one writes, later ones read.
"""

from __future__ import annotations

import textwrap

import click

#: By command, in an order in which they can be typed; files that nothing here writes are a user's.
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "demo": (("demo --out my-demo", "built-in data, on all cores; some minutes"),),
    "simulate": (
        ("simulate made.store --persons 500 --items 20 --missing 0.1", "to try things out"),
        ("simulate survey.store --persons 500 --items 20 --model graded --categories 4",
         "items of four categories; their parameters with --truth bank.csv"),
    ),
    "check": (
        ("check answers.csv --column person=pupil --column group=class",
         "what would be made of the file; without options it says what has to be said"),
    ),
    "init": (
        ("init answers.csv --column person=pupil --exclude class --out mine.toml",
         "then: irt-dask run mine.toml"),
    ),
    "ingest": (
        ("ingest answers.csv answers.store --column person=pupil --column group=class",
         "1 is right, 0 wrong; a row per pupil, or per answer"),
        ("ingest letters.csv letters.store --column person=pupil --exclude class --key key.csv",
         "answers as letters; key.csv has the columns item and key"),
    ),
    "append": (
        ("append monday.csv answers.store --column person=pupil --column group=class",
         "persons who came later"),
    ),
    "verify": (("verify answers.store", "before it is copied, or after"),),
    "info": (
        ("info answers.store", "persons, items, blocks"),
        ("info", "versions, for a report of a defect"),
    ),
    "calibrate": (
        ("calibrate answers.store --method marginal --prior empirical --out bank.csv --fit fit.nc",
         "items of a test, also of a single class"),
        ("calibrate answers.store --method bayes --draws 400 --out bayes.csv --fit post.nc",
         "a posterior"),
        ("calibrate autumn.store --method marginal --fixed-items bank.csv --out autumn-bank.csv",
         "another wave, on the same scale"),
        ("calibrate cycles.store --method concurrent --sets countries.csv --out trend.csv",
         "countries over cycles; countries.csv has the columns group and set"),
    ),
    "bifactor": (
        ("bifactor answers.store --item-table topics.csv --out general.csv --scores abilities.csv",
         "topics.csv has the columns item and block"),
    ),
    "population": (
        ("population answers.store bank.csv --domains domains.csv --one-group --out population.nc",
         "domains.csv has the columns item and domain"),
    ),
    "score": (
        ("score answers.store bank.csv --out scores --csv scores.csv", "one estimate a person"),
        ("score answers.store bank.csv --prior groups --plausible 10 --out values",
         "values for tables of groups"),
    ),
    "fit": (
        ("fit answers.store fit.nc --out itemfit.csv --persons personfit",
         "infit, outfit and S-X2; persons who answer oddly"),
    ),
    "dif": (
        ("dif answers.store fit.nc --reference 7a --out dif.csv",
         "items that are harder for other groups than for 7a"),
    ),
    "q3": (
        ("q3 answers.store fit.nc --out pairs.csv",
         "pairs of questions that share more than ability"),
    ),
    "curves": (
        ("curves autumn.store bank.csv --replicates 19 --out curves.csv",
         "how far another wave's answers are from these items, and what chance alone makes"),
    ),
    "information": (
        ("information bank.csv --out information.csv --plot information.png",
         "where on the scale the test measures well"),
    ),
    "score-table": (
        ("score-table bank.csv --out table.csv", "raw scores of a whole form as abilities"),
    ),
    "convert": (
        ("convert bank.csv --to mirt --out for-mirt.csv", "for R mirt"),
        ("convert published.csv --from naep --out published-bank.csv",
         "published parameters with D = 1.7; published.csv has the columns item, a, b, c"),
    ),
    "options": (
        ("options letters.csv key.csv --column person=pupil --exclude class --out options.nc",
         "which wrong answers attract whom, and is the key right"),
    ),
    "link": (
        ("link bank.csv other-bank.csv --error jackknife --out linked.csv --link link.nc",
         "two calibrations with common items: the second on the scale of the first"),
    ),
    "lord": (
        ("lord bank.csv linked.csv --out lord.csv",
         "which items differ between two calibrations on one scale"),
    ),
    "loo": (("loo answers.store post.nc", "how well the posterior predicts each person"),),
    "logs": (
        ("logs lm-eval --out runs.csv --metric acc",
         "of lm-evaluation-harness; then: irt-dask benchmark runs.csv --out board"),
    ),
    "benchmark": (
        ("benchmark models.csv --out board", "columns model, question, score; or a row per model"),
    ),
    "choose": (("choose board/items.nc 15 --out ask.csv", "15 questions for a new model"),),
    "predict": (
        ("predict new.csv board/items.nc --questions ask.csv --out totals.csv",
         "what it would get on all questions, with an interval"),
    ),
    "tabulate": (
        ("tabulate values --values 'score=pv*' --by person_group --gaps person_group "
         "--out table.csv", "means of groups and their difference"),
    ),
    "regress": (
        ("regress values 'pv* ~ books' --join persons.csv --on person_id=pupil --out slopes.csv",
         "ability on what is known of persons"),
    ),
    "trend": (
        ("trend table.csv table-later.csv --linking-error 0.05 --out trend.csv",
         "two tables of irt-dask tabulate"),
    ),
    "run": (
        ("run mine.toml --out my-run", "typed again, it goes on where it was stopped"),
        ("run mine.toml --cluster cluster.toml --out my-run", "on a cluster"),
    ),
    "status": (("status my-run", "of a run, while it runs or after"),),
    "report": (
        ("report fit.nc --store answers.store --scores scores --tests --results options.nc "
         "--out report.html", "one page with all of it"),
        ("report my-run", "the page of a run, written again"),
    ),
    "certs": (("certs certs --host node1", "then: --cluster certs/cluster.toml"),),
    "docs": (
        ("docs", "all pages"),
        ("docs choose", "one of them: which method when"),
        ("docs cluster slurm --copy .", "files for a cluster, to be adapted"),
    ),
}  # fmt: skip


def epilog(name: str) -> str | None:
    """The examples of a command as ``--help`` shows them; None where there are none."""
    if name not in EXAMPLES:
        return None
    lines = ["\b", "Examples:"]
    for typed, what in EXAMPLES[name]:
        lines += [f"  # {what}", textwrap.indent(_broken(f"irt-dask {typed}"), "  ")]
    return "\n".join(lines)


def _broken(line: str) -> str:
    """A long line as the shell takes it in two: it ends in a backslash before an option."""
    if len(line) <= 96:
        return line
    at = line.rfind(" --", 0, 92)
    return f"{line[:at]} \\\n    {line[at + 1 :]}"


def helped(command: click.Command) -> click.Command:
    """The command, whose ``--help`` ends with its examples."""
    command.epilog = epilog(command.name or "")
    return command
