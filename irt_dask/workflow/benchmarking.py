"""From a table of models' answers to a leaderboard, anchors and broken questions, in one go."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.banks import write_items
from irt_dask.banks.saved import netcdf
from irt_dask.engine.inputs import check_level, whole_number
from irt_dask.errors import InputError, IrtDaskWarning, listed
from irt_dask.evaluate.answer_similarity import answer_similarity
from irt_dask.evaluate.suspect_items import suspect_items
from irt_dask.ingest import ingest
from irt_dask.kernels.responses import response_counts
from irt_dask.report.benchmark import write_benchmark
from irt_dask.score import score
from irt_dask.score.ranks import top_persons
from irt_dask.selection import question_sampling
from irt_dask.selection.choose import choose_items
from irt_dask.store import Responses, from_array, open_responses
from irt_dask.store.documents import to_csv
from irt_dask.store.manifest import write_atomically
from irt_dask.store.places import local_path
from irt_dask.workflow.benchmark_questions import Asked, calibrated, grown, without
from irt_dask.workflow.board_waves import questions_now

#: Answers that are held in memory at a time, models x questions.
_MOST_CELLS = 300_000_000
#: Anchors: so many, or this share of the questions.
_ANCHORS, _SHARE = 100, 0.1


@dataclass
class Benchmark:
    """Tables of a benchmark by name, the fit, and what was found worth saying."""

    leaderboard: pd.DataFrame
    anchors: pd.DataFrame
    questions: pd.DataFrame
    similar_models: pd.DataFrame
    fit: xr.Dataset
    notes: list[str] = field(default_factory=list)
    #: Known questions by how much they drifted, of a board that has grown.
    drift: pd.DataFrame | None = None

    @property
    def broken(self) -> pd.DataFrame:
        """Questions that are named for a reason, the most suspect first."""
        return self.questions[self.questions["reason"] != "ok"]


def benchmark(
    source: Any,
    out: str | Path | None = None,
    *,
    trials: str | int | None = None,
    columns: Any = None,
    exclude: str | Sequence[str] = (),
    bank: xr.Dataset | str | Path | None = None,
    anchors: int | None = None,
    top: int | None = None,
    level: float = 0.95,
    fdr: float = 0.05,
    seed: int = 0,
    client: Any = None,
    progress: Any = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Benchmark:
    """Leaderboard, anchors and broken questions of models on a benchmark.

    Parameters
    ----------
    source
        Responses or an array, the path of a store, or a file that :func:`irt_dask.ingest` reads: a
        wide table (a row a model, a column a question), a long one (model, question, score), JSON
        lines as py-irt writes them, Parquet.  Models are the persons, questions the items.
    out
        Folder for the tables (.csv), the calibrated questions (``items.csv``, and ``items.nc``
        with all that is known of them) and the page ``report.html``; None: nothing is written.
    trials, columns
        As in ``ingest``: several attempts at a question; names of columns by role.
    exclude
        Questions to leave out, such as those that were found broken.
    bank
        Of a board that has grown: ``fit`` or ``items.nc`` of the benchmark before.  Abilities are
        on its scale (from one normal distribution of all models, which is estimated), its questions
        keep their parameters, and they are tested for drift (:func:`irt_dask.grow_bank`).  The
        source is the whole board, with the earlier models first and in their order.
    anchors
        Questions to choose; default: 100, or a tenth of them if that is fewer.
    top
        Size of the set of best models that ``probability_in_top`` is of; default: 10, or a fifth
        of the models if that is fewer.
    level, fdr
        Of intervals; expected share of false ones among broken questions, and similar models.
    seed
        Of the draws that ranks come from.
    client, progress
        Dask client (default: the current one, else threads); progress bar.
    tell
        Is called with what is being done.

    Returns
    -------
    Benchmark
        ``leaderboard``, a row a model, the best share first: ``share_right`` of the questions that
        it answered (``n_answered``), with an interval for all questions like these (a sample of
        questions is what is uncertain; Wilson), ``rank`` of the share with simultaneous intervals
        (:func:`irt_dask.top_persons` on draws of the Bayesian bootstrap over questions) and
        ``probability_in_top``; ``ability`` with its standard error, rank and simultaneous intervals
        of that, which take the items as known.
        ``anchors``: the questions that predict the total best (:func:`irt_dask.choose_items`).
        ``questions``: every question, the most suspect first (:func:`irt_dask.suspect_items`).
        ``similar_models``: pairs (:func:`irt_dask.answer_similarity`).  With ``bank`` also
        ``drift``: its questions that were tested, the most drifted first; one that drifted is
        "q@3" from the third wave on.  ``fit``, ``notes``.

    Raises
    ------
    InputError
        If the source cannot be read, has one model, or more than 3 x 10^8 cells; if it is not a
        board that the bank's has grown to, or has other numbers of attempts; for options out of
        their range.

    Notes
    -----
    The model is the 2PL with slopes of any sign and a learned prior; of items with more categories
    the binomial (k of n attempts).  Ranks of shares assume nothing about the answers; those of
    abilities hold as far as one ability describes the benchmark.

    Examples
    --------
    >>> import irt_dask as irt
    >>> from irt_dask.workflow.benchmarking import benchmark
    >>> found = benchmark(irt.simulate(30, 60, seed=1))
    >>> found.leaderboard.columns[:4].tolist()
    ['model', 'rank', 'rank_lower', 'rank_upper']
    >>> len(found.anchors)
    6
    """
    check_level(level)
    check_level(fdr, "fdr")
    whole_number("seed", seed)
    folder = None if out is None else _folder(out)
    if folder is not None and isinstance(bank, (str, Path)) and _inside(bank, folder):
        raise InputError(
            f"bank {bank} lies in {folder}, where the new results would take its place: what was "
            f"published should stay; give another folder out="
        )
    with tempfile.TemporaryDirectory(prefix="irt-dask-benchmark-") as scratch:
        responses = _read(source, Path(scratch) / "responses", trials, columns, client, progress)
        responses = without(responses, exclude)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", IrtDaskWarning)
            options = {"client": client, "progress": progress}
            found = _found(responses, bank, anchors, top, level, fdr, seed, tell, options)
        found.notes += [f"{w.category.label}: {w.message}" for w in caught
                        if issubclass(w.category, IrtDaskWarning)]  # fmt: skip
        if folder is not None:
            tell("writing")
            _write(found, folder, _title(source), responses)
    return found


def _folder(out: str | Path) -> Path:
    folder = local_path(out, "a folder of results")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: give a folder for the results")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"cannot make {folder}: there is no folder {folder.absolute().parent}")
    return folder


def _inside(path: str | Path, folder: Path) -> bool:
    return Path(path).absolute().resolve().is_relative_to(folder.absolute().resolve())


def _title(source: Any) -> str:
    of_file = isinstance(source, (str, Path))
    return f"Benchmark {Path(source).name}" if of_file else "Benchmark"


def _read(
    source: Any, store: Path, trials: Any, columns: Any, client: Any, progress: Any
) -> Responses:
    """Responses of a file, or those that are there already."""
    if isinstance(source, np.ndarray):
        source = from_array(source)
    there = isinstance(source, Responses)
    if not there and Path(source).is_dir():
        source, there = open_responses(source), True
    if there and (trials is not None or columns is not None):
        raise InputError("trials= and columns= are of files: these responses have been read before")
    r = source
    if not there:
        r = ingest(source, store, trials=trials, columns=columns, client=client, progress=progress)
    if r.n_persons < 2:
        raise InputError(f"a leaderboard needs two models at least, not {r.n_persons}")
    if r.n_persons * r.n_items > _MOST_CELLS:
        raise InputError(
            f"{r.n_persons} models x {r.n_items} questions are more than {_MOST_CELLS} cells; "
            f"call fit_marginal, suspect_items and choose_items by themselves"
        )
    return r


def _found(
    r: Responses, bank: Any, n_anchors: int | None, top: int | None, level: float, fdr: float,
    seed: int, tell: Callable[[str], None], options: dict[str, Any],
) -> Benchmark:  # fmt: skip
    n_anchors = min(_ANCHORS, max(1, int(_SHARE * r.n_items))) if n_anchors is None else n_anchors
    top = min(10, max(1, r.n_persons // 5)) if top is None else top
    if n_anchors > r.n_items:
        raise InputError(f"anchors={n_anchors} is more than the {r.n_items} questions there are")
    if top >= r.n_persons:
        raise InputError(f"top={top} must be below the {r.n_persons} models there are")
    _refuse_silent(r)
    tell("calibrating the questions")
    asked = calibrated(r, options) if bank is None else grown(r, bank, fdr, options)
    answers, fit = asked.answers, asked.fit
    tell("looking for broken questions and for copies of models")
    suspect = suspect_items(answers, fit, fdr=fdr, **options)
    similar = answer_similarity(answers, fit, fdr=fdr, **options)
    tell("ranking the models")
    board = _leaderboard(asked, top, level, seed, options)
    tell("choosing anchors")
    return Benchmark(
        board, _anchors(questions_now(fit), n_anchors), _questions(suspect, fit), _pairs(similar),
        fit, [*asked.notes, *_notes(asked.shares, suspect, similar, board)], asked.drift,
    )  # fmt: skip


def _refuse_silent(r: Responses) -> None:
    """Stop at models without any answer, of which there is nothing to say."""
    silent = []
    for k in range(r.n_blocks):
        n = response_counts.responses_per_person(r.read_block(k).data)
        silent += np.asarray(r.person_ids(k))[n == 0].astype(str).tolist()
    if silent:
        raise InputError(
            f"{len(silent)} model(s) have no answer: {listed(silent, 10)}; leave them out"
        )


def _leaderboard(
    asked: Asked, top: int, level: float, seed: int, options: dict[str, Any]
) -> pd.DataFrame:
    r = asked.shares
    share = question_sampling.shares(r, level)
    shares = question_sampling.drawn_shares(r, seed)
    drawn = top_persons(shares, top, level=level)
    # One distribution for all: with one for each wave a model would owe something to its date.
    prior = "normal" if asked.drift is None else "population"
    n_draws = shares.sizes["plausible"]
    scores = score(
        asked.answers, asked.fit, method="eap", prior=prior, n_plausible=n_draws, seed=seed,
        **options,
    )  # fmt: skip
    able = top_persons(scores, top, level=level)
    table = pd.DataFrame({
        "model": scores["person_id"].values.astype(str),
        "rank": pd.Series(-share.share).rank(method="min").astype(int),
        "rank_lower": drawn["person_rank_lower"].values,
        "rank_upper": drawn["person_rank_upper"].values,
        "probability_in_top": drawn["person_top_probability"].values,
        "share_right": share.share,
        "share_lower": share.lower,
        "share_upper": share.upper,
        "n_answered": share.n,
        "ability": scores["person_ability"].values,
        "ability_se": scores["person_ability_sd"].values,
    })  # fmt: skip
    table["ability_rank"] = (-table["ability"]).rank(method="min").astype(int)
    table["ability_rank_lower"] = able["person_rank_lower"].values
    table["ability_rank_upper"] = able["person_rank_upper"].values
    table.attrs["top"] = top
    return table.sort_values(["rank", "model"], kind="stable").reset_index(drop=True)


def _anchors(fit: xr.Dataset, n: int) -> pd.DataFrame:
    chosen = choose_items(fit, n, method="variance")
    at = chosen["item_selected"].values
    table = pd.DataFrame({
        "question": fit["item_id"].values[at].astype(str),
        "discrimination": fit["item_discrimination"].values[at],
        "difficulty": fit["item_difficulty"].values[at],
    })  # fmt: skip
    table.attrs["expected_total_sd"] = chosen.attrs["expected_total_sd"]
    return table


def _questions(found: xr.Dataset, fit: xr.Dataset) -> pd.DataFrame:
    seen = found["item_n_responses"].values
    table = pd.DataFrame({
        "question": found["item_id"].values.astype(str),
        "suspicion_rank": found["item_suspicion_rank"].values,
        "reason": found["item_suspicion"].values.astype(str),
        "probability_negative": found["item_negative_probability"].values,
        "q_negative": found["item_negative_q_value"].values,
        "p_misfit": found["item_chi2_p_value"].values,
        "q_misfit": found["item_misfit_q_value"].values,
        "duplicate_of": found["item_duplicate_of"].values.astype(str),
        "discrimination": fit["item_discrimination"].values,
        "discrimination_se": fit["item_discrimination_se"].values,
        "difficulty": fit["item_difficulty"].values,
        "n_answered": seen,
    })  # fmt: skip
    return table.sort_values("suspicion_rank").reset_index(drop=True)


def _pairs(found: xr.Dataset) -> pd.DataFrame:
    names = ["first_person", "second_person", "identical"]
    more = ["similarity", "similarity_q_value", "agreement", "expected_agreement", "n_items"]
    there = [n for n in (*names, *more) if f"pair_{n}" in found]
    table = pd.DataFrame({n: found[f"pair_{n}"].values for n in there})
    return table.rename(columns={"first_person": "first_model", "second_person": "second_model"})


def _notes(
    r: Responses, suspect: xr.Dataset, similar: xr.Dataset, board: pd.DataFrame
) -> list[str]:
    """What a reader has to know to read the tables."""
    a, negative = suspect.attrs, suspect.attrs["share_negative"]
    notes = [
        f"{r.n_persons} models, {r.n_items} questions; {a['n_negative_slope']} questions that "
        f"abler models get wrong ({a['expected_false']:.1f} of them expected to be false alarms), "
        f"{a['n_misfit']} that misfit, {a['n_duplicate']} with the answers of another question, "
        f"{a['n_all_right']} that all have right, {a['n_all_wrong']} that nobody has."
    ]
    if negative > 0.2:
        notes.append(
            f"{negative:.0%} of the slopes are negative: one ability does not describe this "
            f"benchmark. Abilities and anchors are not to be relied on, and a negative slope is no "
            f"sign of a wrong key; ranks of shares are as good as ever."
        )
    both = board[["share_right", "ability"]].dropna().corr(method="spearman").iloc[0, 1]
    if both < 0.9:
        notes.append(
            f"Ranks by share and by ability disagree (Spearman's correlation {both:.2f}): the "
            f"strongest dimension of the answers is not how much a model gets right."
        )
    if (board["n_answered"] < r.n_items).any():
        notes.append(
            "Not all models answered all questions: shares are of different questions, and compare "
            "only if what was answered does not depend on how hard it is."
        )
    spread = similar.attrs.get("similarity_spread")
    if spread is not None:
        notes.append(
            f"How alike models are beyond ability: their similarity spreads {spread:.1f} "
            f"times as far as under one ability; {similar.sizes['pairs']} pairs stand out from "
            f"that, and {similar.attrs['n_identical']} models have all answers of another one."
        )
    if max(r.n_categories) > 2:
        notes.append(
            "Attempts of a model at a question are taken as independent given its ability. Where a "
            "model answers the same way each time, standard errors of abilities are too small: "
            f"questions then misfit (here {a['n_misfit'] / r.n_items:.0%} of them), and intervals "
            "of shares, over questions, still hold."
        )
    return notes


def _write(found: Benchmark, folder: Path, title: str, r: Responses) -> None:
    folder.mkdir(exist_ok=True)
    tables = {
        "leaderboard": found.leaderboard, "anchors": found.anchors, "questions": found.questions,
        "broken_questions": found.broken, "similar_models": found.similar_models,
    }  # fmt: skip
    if found.drift is not None:
        tables["drift"] = found.drift
    else:  # of another benchmark that was written here
        (folder / "drift.csv").unlink(missing_ok=True)
    for name, table in tables.items():
        write_atomically((folder / f"{name}.csv").absolute(), to_csv(table).encode())
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "items.csv"
        write_items(found.fit, made)
        write_atomically((folder / "items.csv").absolute(), made.read_bytes())
    write_atomically((folder / "items.nc").absolute(), netcdf(found.fit))
    write_benchmark(
        folder / "report.html", title=title, leaderboard=found.leaderboard, broken=found.broken,
        anchors=found.anchors, similar=found.similar_models, notes=found.notes,
    )  # fmt: skip
