"""The commands for models on benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from irt_dask.cli.common import (
    cluster_option,
    json_option,
    quiet_option,
    rows,
    show,
    warned,
    workers,
)
from irt_dask.cli.data import columns_of, listed_names, trials_of
from irt_dask.cli.results import new_csv, records
from irt_dask.errors import listed

if TYPE_CHECKING:
    from irt_dask.ingest.logs import Logs

#: Rows that are printed.
_MOST = 10
_BOARD = ("model", "rank", "rank_lower", "rank_upper", "share_right", "share_lower", "share_upper")
_DRIFT = ("question", "drift", "drift_se", "drift_p_value", "drift_q_value")
_PART = ("model", "task", "n_answers")
_BROKEN = ("question", "reason", "probability_negative", "p_misfit", "duplicate_of")


@click.command()
@click.argument("file", type=click.Path())
@click.option("--out", type=click.Path(), required=True, metavar="DIR",
              help="Folder for the tables and the page report.html.")  # fmt: skip
@click.option("--column", "columns", multiple=True, metavar="ROLE=NAME",
              help="Name a column: person= (the model), item= (the question), response=. Repeat as "
              "needed.")  # fmt: skip
@click.option("--trials", metavar="COLUMN|N", help="Several attempts of a model at a question: the "
              "column that names them, or the number of which each score is the share right.",
              )  # fmt: skip
@click.option("--exclude", multiple=True, metavar="A,B", help="Questions to leave out, such as "
              "those of broken_questions.csv. May be repeated, for names with commas.",
              )  # fmt: skip
@click.option("--bank", type=click.Path(), metavar="ITEMS.nc", help="The board has grown: items.nc "
              "in the folder of the benchmark before. Abilities are on its scale, and its "
              "questions are tested for drift.")  # fmt: skip
@click.option("--anchors", type=click.IntRange(min=1), metavar="N", help="Questions to choose, "
              "from which the total is predicted (default: 100, or a tenth).")  # fmt: skip
@click.option("--top", type=click.IntRange(min=1), metavar="K", help="Size of the set of best "
              "models (default: 10, or a fifth of them).")  # fmt: skip
@click.option("--level", type=float, default=0.95, show_default=True, help="Of intervals.")
@click.option("--fdr", type=float, default=0.05, show_default=True,
              help="Expected share of false ones among broken questions.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True)
@cluster_option("none")
@json_option
@quiet_option
def benchmark(
    file: str, out: str, columns: tuple[str, ...], trials: str | None, exclude: tuple[str, ...],
    bank: str | None, anchors: int | None, top: int | None, level: float, fdr: float, seed: int,
    cluster: str, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Leaderboard, anchors and broken questions of language models on a benchmark.

    FILE has a row per model and a column per question (1 right, 0 wrong), or a row per answer
    (columns model, question, score), as CSV, JSON lines (of py-irt too) or Parquet; or it is a
    store. The first column of a wide table names the models: call it model.

    When models or questions have joined, give the whole table again, earlier models first, with
    --bank DIR/items.nc of the benchmark before and another --out: what was published stays.
    """
    from irt_dask.workflow.benchmarking import benchmark as run

    def tell(text: str) -> None:
        if not quiet:
            click.echo(text, err=True)

    with warned(quiet), workers(cluster, quiet=quiet) as client:
        found = run(
            file, out, trials=trials_of(trials), columns=columns_of(columns),
            exclude=listed_names(exclude), bank=bank,
            anchors=anchors, top=top, level=level, fdr=fdr, seed=seed, client=client,
            progress=False if quiet else None,
            tell=tell,
        )  # fmt: skip
    board, broken = found.leaderboard.head(_MOST), found.broken.head(_MOST)
    if as_json:
        said = {"out": out, "notes": found.notes, "leaderboard": records(found.leaderboard),
                "broken_questions": records(found.broken)}  # fmt: skip
        drift = {} if found.drift is None else {"drift": records(found.drift)}
        show(said | drift, True)
        return
    click.echo(rows(records(board, _BOARD), 2))
    click.echo(f"\nbroken questions: {len(found.broken)}")
    if len(broken):
        click.echo(rows(records(broken, _BROKEN), 2))
    if found.drift is not None:
        drifted = found.drift[found.drift["drifted"]]
        click.echo(f"\ndrifted questions: {len(drifted)} of {len(found.drift)} that were tested")
        if len(drifted):
            click.echo(rows(records(drifted.head(_MOST), _DRIFT), 2))
    click.echo("")
    for note in found.notes:
        click.echo(note)
    click.echo(f"\nall tables and the page report.html are in {out}")


@click.command()
@click.argument("folder", type=click.Path())
@click.option("--out", type=click.Path(), required=True, metavar="ANSWERS.csv",
              help="Table to write, a row an answer: model, question, task, score.")  # fmt: skip
@click.option("--metric", multiple=True, metavar="NAME", help="Which values of 0 and 1 count, as "
              "acc. Repeat for tasks with others. Default: the only one.")  # fmt: skip
@click.option("--filter", multiple=True, metavar="NAME", help="Which answers count, as "
              "strict-match, where there are several of a question; none is that of tasks without. "
              "Repeat for tasks with others. Default: the only one.")  # fmt: skip
@click.option("--repeated", type=click.Choice(["raise", "last", "attempts"]),
              default="raise", show_default=True,
              help="Several runs of a task by a model: an error, the last of them, or all as "
              "attempts (then: irt-dask benchmark --trials attempt).")  # fmt: skip
@json_option
@quiet_option
def logs(
    folder: str, out: str, metric: tuple[str, ...], filter: tuple[str, ...], repeated: str,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Gather logs of lm-evaluation-harness into a table for 'irt-dask benchmark'.

    FOLDER has a folder for each model, in which the files samples_TASK_DATE.jsonl of --log_samples
    lie. A question is called TASK/doc_id; that it is the same one for all models is checked.
    """
    from irt_dask.ingest.logs import evaluation_logs

    path = new_csv(out)
    assert path is not None
    with warned(quiet):
        found = evaluation_logs(
            folder, path, metric=metric, filter=filter, repeated=repeated,
            progress=False if quiet else None,
        )  # fmt: skip
    about = {
        name: getattr(found, name)
        for name in ("n_models", "n_tasks", "n_questions", "n_answers", "n_files", "n_unchecked")
    }
    tasks = [
        {"task": task, "metric": name, "filter": found.filters[task]}
        for task, name in found.metrics.items()
    ]
    if as_json:
        of_lists = {
            "superseded": [str(file) for file in found.superseded],
            "incomplete": [dict(zip(_PART, one, strict=True)) for one in found.incomplete],
            "scattered": list(found.scattered),
        }
        show({"out": out, **about, "tasks": tasks, **of_lists}, True)
        return
    show(about, False)
    click.echo(f"\n{rows(tasks[:_MOST], 3)}")
    for said in _remarks(found):
        click.echo(f"\n{said}")
    click.echo(f"\nall answers are in {out}")


def _remarks(found: Logs) -> list[str]:
    """What is to be known of logs before they are used."""
    said = []
    if found.incomplete:
        some = [f"{model} {task} ({n})" for model, task, n in found.incomplete]
        said.append(
            f"runs without all questions that others of the task have, and their answers: "
            f"{listed(some, _MOST)}"
        )
    if found.scattered:
        said.append(
            f"logs in several folders of one name, taken as one model's: "
            f"{listed(found.scattered, _MOST)}"
        )
    if found.superseded:
        said.append(f"left out, for a later run: {listed(list(map(str, found.superseded)), _MOST)}")
    if found.n_unchecked:
        said.append(
            f"{found.n_unchecked} questions have no doc_hash: whether they are the same for all "
            f"models could not be checked"
        )
    return said
