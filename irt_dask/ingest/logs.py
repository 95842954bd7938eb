"""Logs of evaluations of language models, a file a model and task, as one table of answers.

Read is what EleutherAI's lm-evaluation-harness writes with ``--log_samples``: in a folder a model
files ``samples_TASK_DATE.jsonl``, a line a question, with ``doc_id``, ``doc_hash``, the ``filter``
that took the answer from what the model wrote, and a value of each of its ``metrics``.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from irt_dask.engine import ProgressOption
from irt_dask.engine.inputs import one_of
from irt_dask.engine.progress import Progress
from irt_dask.errors import InputError, listed
from irt_dask.ingest.text.files import located
from irt_dask.store.manifest import replacing, writing
from irt_dask.store.places import local_path

#: What a file's name says: the task, and when it was run (older ones do not say).
_NAME = re.compile(r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+))?\.jsonl(?:\.gz)?")
#: Fields of a line that are no metrics, where it does not name these.
_NO_METRICS = frozenset(
    ("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics",
     "doc_hash", "prompt_hash", "target_hash", "sample_len")
)  # fmt: skip
REPEATED = ("raise", "last", "attempts")
COLUMNS = ("model", "question", "task", "score")


class _Run(NamedTuple):
    """A model's run of a task."""

    file: Path
    model: str
    task: str
    date: str


class Logs(NamedTuple):
    """What was read."""

    n_files: int
    n_models: int
    n_tasks: int
    n_questions: int
    n_answers: int
    #: Metric of each task.
    metrics: dict[str, str]
    #: Filter of each task, "none" where lines name none.
    filters: dict[str, str]
    #: Files that were left out as there is a later run.
    superseded: tuple[Path, ...]
    #: Questions without a ``doc_hash``: whether models were asked the same under this name is not
    #: known.
    n_unchecked: int
    #: Models that answered a part of a task: model, task, and how many of its questions.
    incomplete: tuple[tuple[str, str, int], ...]
    #: Models whose logs lie in several folders of the same name.
    scattered: tuple[str, ...]


@dataclass
class _Reading:
    """What has been seen, and what the caller wants."""

    metrics: tuple[str, ...]
    filters: tuple[str, ...]
    #: Metric and filter of each task, with a file that has it.
    of_task: dict[str, tuple[str, str, Path]] = field(default_factory=dict)
    #: Content of each question, if it is known, with a file that has it.
    content: dict[str, tuple[str | None, Path]] = field(default_factory=dict)
    unchecked: set[str] = field(default_factory=set)
    #: Questions of each task, and answers of each run.
    n_questions: Counter[str] = field(default_factory=Counter)
    n_answers: dict[_Run, int] = field(default_factory=dict)


def evaluation_logs(
    folder: str | PathLike[str],
    out: str | PathLike[str],
    *,
    metric: str | Sequence[str] | None = None,
    filter: str | Sequence[str] | None = None,
    repeated: str = "raise",
    progress: ProgressOption = None,
) -> Logs:
    """Gather logs of lm-evaluation-harness into one CSV table, a row an answer.

    Parameters
    ----------
    folder : path
        Folder with a folder for each model, in which ``samples_TASK_DATE.jsonl`` lie (also
        ``.jsonl.gz``), at any depth.  A model is called as the folder of its files is; folders of
        one name are one model's.
    out : path
        Table (.csv) to write, in place of an older one: ``model``, ``question`` (``TASK/doc_id``),
        ``task``, ``score`` (0 or 1), and ``attempt`` with ``repeated="attempts"``.
    metric : str or several, optional
        Which values of 0 and 1 count: of several the first that a task has.  Default: the only
        metric of a task.
    filter : str or several, optional
        Which answers count, where there are several of a question (as "strict-match"); "none" is
        that of tasks without.  All tasks need one of these.  Default: the only one of a task.
    repeated : {"raise", "last", "attempts"}
        Where a model has run a task several times: an error, the last run, or all of them as
        attempts 1, 2, ... in the order of their dates (then ``benchmark(..., trials="attempt")``).
    progress
        Progress bar, by files.

    Returns
    -------
    Logs
        Numbers of files, models, tasks, questions and answers; ``metrics`` and ``filters`` by task;
        ``superseded`` files; ``n_unchecked`` questions, that lines do not tell the content of;
        ``incomplete`` runs, in which questions lack that others have; ``scattered`` models.

    Raises
    ------
    InputError
        With file and line: a line that is no JSON object or lacks ``doc_id``, a score that is
        neither 0 nor 1, a question twice in a file; several metrics or filters of a task and none
        named, none of those that are, another one in another file; a question whose content
        (``doc_hash``) is not that of another model's: the task has changed between the runs.  No
        such files; files that lie in no folder of a model; a task that a model has run twice.

    Notes
    -----
    One pass, a line in memory at a time and some 350 bytes a question.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> from irt_dask.ingest.logs import evaluation_logs
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for model, right in (("org__small", [1, 0]), ("org__large", [1, 1])):
    ...     lines = [{"doc_id": k, "acc": y, "metrics": ["acc"]} for k, y in enumerate(right)]
    ...     (folder / model).mkdir()
    ...     name = "samples_arc_2026-01-16T15-23-47.285735.jsonl"
    ...     _ = (folder / model / name).write_text("\\n".join(map(json.dumps, lines)))
    >>> found = evaluation_logs(folder, folder / "answers.csv")
    >>> found.n_models, found.n_questions, found.metrics
    (2, 2, {'arc': 'acc'})
    """
    one_of("repeated", repeated, REPEATED)
    root, path = local_path(folder, "a folder of logs"), local_path(out, "a table")
    if path.suffix != ".csv":
        raise InputError(f"table {path}: the file name must end in .csv")
    all_runs = _runs(root)
    runs, superseded = _chosen(all_runs, repeated)
    reading = _Reading(_names(metric), _names(filter))
    columns = [*COLUMNS, "attempt"] if repeated == "attempts" else [*COLUMNS]
    with (
        writing(path),
        replacing(path.absolute()) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as f,
        Progress(progress, "logs") as bar,
    ):
        table = csv.writer(f, lineterminator="\n")
        table.writerow(columns)
        for k, (run, attempt) in enumerate(runs):
            reading.n_answers[run] = 0
            for question, score in _answers(run, reading):
                row = [run.model, question, run.task, score, attempt]
                table.writerow(row[: len(columns)])
                reading.n_answers[run] += 1
            bar.update(k + 1, len(runs))
        if not reading.content:
            raise InputError(f"{root}: the logs have no answers")
    return _said(reading, superseded, all_runs)


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def _said(reading: _Reading, superseded: tuple[Path, ...], runs: list[_Run]) -> Logs:
    """What was read."""
    folders: dict[str, set[Path]] = {}
    for run in runs:
        folders.setdefault(run.model, set()).add(run.file.parent)
    n = reading.n_answers
    return Logs(
        n_files=len(n),
        n_models=len({run.model for run in n}),
        n_tasks=len(reading.of_task),
        n_questions=len(reading.content),
        n_answers=sum(n.values()),
        metrics={task: metric for task, (metric, _, _) in reading.of_task.items()},
        filters={task: own for task, (_, own, _) in reading.of_task.items()},
        superseded=superseded,
        n_unchecked=len(reading.unchecked),
        incomplete=tuple(
            (run.model, run.task, k) for run, k in n.items() if k < reading.n_questions[run.task]
        ),
        scattered=tuple(model for model, own in folders.items() if len(own) > 1),
    )


# --- files ----------------------------------------------------------------------------------------


def _runs(root: Path) -> list[_Run]:
    """All logs below a folder, by model, task and date."""
    if not root.is_dir():
        raise InputError(f"{root} is no folder of logs")
    found = []
    for file in sorted(root.rglob("samples_*")):
        name = _NAME.fullmatch(file.name)
        if name is None or not file.is_file():
            continue
        if file.parent == root:
            raise InputError(
                f"{file}: logs lie in the folder of their model, whose name is the model's; give "
                f"the folder above, or move them into one"
            )
        found.append(_Run(file, file.parent.name, name["task"], name["date"] or ""))
    if not found:
        raise InputError(
            f"{root} has no logs: files samples_TASK_DATE.jsonl in a folder for each model, as "
            f"lm-evaluation-harness writes them with --log_samples"
        )
    return sorted(found, key=lambda r: (r.model, r.task, r.date))


def _chosen(runs: list[_Run], repeated: str) -> tuple[list[tuple[_Run, int]], tuple[Path, ...]]:
    """Runs to read, each with the number of the attempt, and files that are left out."""
    of_each: dict[tuple[str, str], list[_Run]] = {}
    for run in runs:
        of_each.setdefault((run.model, run.task), []).append(run)
    several = {k: v for k, v in of_each.items() if len(v) > 1}
    if several and repeated == "raise":
        (model, task), twice = next(iter(several.items()))
        raise InputError(
            f"{model} has run {task} {len(twice)} times ({twice[0].file} and {twice[1].file}), and "
            f"{len(several)} task(s) of models have several runs: repeated='last' takes the last "
            f"of each, repeated='attempts' all of them"
        )
    for (model, task), twice in several.items():
        if len({r.date for r in twice}) < len(twice):
            raise InputError(
                f"{model} has run {task} {len(twice)} times, and names of files do not say which "
                f"came first: {listed([str(r.file) for r in twice])}"
            )
    if repeated == "last":
        kept = [(own[-1], 1) for own in of_each.values()]
        return kept, tuple(r.file for own in of_each.values() for r in own[:-1])
    return [(r, k + 1) for own in of_each.values() for k, r in enumerate(own)], ()


def _lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects of a file, and their lines."""
    opener: Any = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rb") as raw:
            for line, words in enumerate(raw, 1):
                if words.strip():
                    yield line, _object(file, words, line)
    except (OSError, EOFError, zlib.error) as e:
        raise located(file, f"cannot be read: {e}") from None


def _object(file: Path, words: bytes, line: int) -> dict[str, Any]:
    try:
        found = json.loads(words.decode("utf-8"))
    except UnicodeDecodeError as e:
        raise located(file, f"is not in UTF-8: {e}", line) from None
    except (ValueError, RecursionError) as e:
        raise located(file, f"cannot be read as JSON: {e}", line) from None
    if not isinstance(found, dict):
        raise located(file, "is no JSON object, as each line of a log is", line)
    return found


# --- answers --------------------------------------------------------------------------------------


def _answers(run: _Run, reading: _Reading) -> Iterator[tuple[str, int]]:
    """Questions of a run and whether they were right."""
    seen: set[str] = set()
    others: set[str] = set()
    for line, answer in _lines(run.file):
        if "doc_id" not in answer:
            raise located(run.file, "has no doc_id, which tells the question", line)
        own = "none" if answer.get("filter") is None else str(answer["filter"])
        if reading.filters and own not in reading.filters:
            others.add(own)
            continue
        question, metric = f"{run.task}/{answer['doc_id']}", _metric(run, answer, reading, line)
        if not question.isprintable():
            raise located(run.file, f"doc_id {answer['doc_id']!r} is no name", line)
        _refuse_others(run, reading, metric, own, line)
        if question in seen:
            raise located(run.file, f"question {question} is there twice", line)
        seen.add(question)
        _check_content(run, answer, reading, question, line)
        yield question, _score(run, answer[metric], metric, line)
    if others and not seen:
        raise located(
            run.file, f"has no answers by filter {listed(list(reading.filters))}; it has "
            f"{listed(sorted(others))}: name one of these too",
        )  # fmt: skip


def _metric(run: _Run, answer: dict[str, Any], reading: _Reading, line: int) -> str:
    """Which value of a line counts."""
    named = answer.get("metrics")
    there = named if isinstance(named, list) else [k for k in answer if k not in _NO_METRICS]
    there = [str(k) for k in there if str(k) in answer]
    if reading.metrics:
        there = [k for k in reading.metrics if k in answer and k not in _NO_METRICS][:1]
    if len(there) == 1:
        return there[0]
    if reading.metrics:
        raise located(
            run.file, f"has none of the metrics {listed(list(reading.metrics))}; it has "
            f"{listed([k for k in answer if k not in _NO_METRICS])}", line,
        )  # fmt: skip
    raise located(
        run.file, f"has {len(there)} metrics ({listed(there)}); say by metric= which one is right "
        f"or wrong", line,
    )  # fmt: skip


def _refuse_others(run: _Run, reading: _Reading, metric: str, own: str, line: int) -> None:
    """Stop where answers to a task are scored in different ways."""
    known, by, file = reading.of_task.setdefault(run.task, (metric, own, run.file))
    if by != own:
        raise located(
            run.file, f"has answers by filter {own!r}, and there are others of {run.task} by "
            f"{by!r} in {file}; say by filter= which count", line,
        )  # fmt: skip
    if known != metric:
        raise located(
            run.file, f"is scored by {metric!r}, and {run.task} in {file} by {known!r}; say by "
            f"metric= which one counts", line,
        )  # fmt: skip


def _check_content(
    run: _Run, answer: dict[str, Any], reading: _Reading, question: str, line: int
) -> None:
    """Stop where a question is not what another model was asked."""
    content = answer.get("doc_hash")
    if question not in reading.content:
        reading.content[question] = content, run.file
        reading.n_questions[run.task] += 1
    known, file = reading.content[question]
    if content is None:
        reading.unchecked.add(question)
    elif known is None:
        reading.content[question] = content, run.file
    elif known != content:
        raise located(
            run.file, f"question {question} is another one (doc_hash) than in {file}: the task has "
            f"changed between these runs; run both by the same version of it", line,
        )  # fmt: skip


def _score(run: _Run, value: Any, metric: str, line: int) -> int:
    if isinstance(value, (bool, int, float)) and value in (0, 1):
        return int(value)
    raise located(
        run.file, f"{metric} is {str(value)[:60]!r}, and an answer is right (1) or wrong (0): "
        f"choose another metric, by metric=", line,
    )  # fmt: skip
