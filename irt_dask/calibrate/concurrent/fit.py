"""Concurrent calibration: one scale for many groups, items common unless freed in a group."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.concurrent import links, rounds
from irt_dask.calibrate.concurrent.described import Record, described
from irt_dask.calibrate.concurrent.freed import Naming, view
from irt_dask.calibrate.concurrent.pair_tests import Pairs
from irt_dask.calibrate.marginal import errors as marginal_errors
from irt_dask.calibrate.marginal import fit as marginal
from irt_dask.calibrate.marginal import null_categories as nulls
from irt_dask.calibrate.marginal.described import Found, of_items
from irt_dask.calibrate.marginal.rounds import Rounds
from irt_dask.calibrate.marginal.specification import specified
from irt_dask.calibrate.shared import climb
from irt_dask.calibrate.shared.groups import grouped
from irt_dask.calibrate.shared.start_values import ResponseCounts, response_counts
from irt_dask.curves.guessing import GUESSING
from irt_dask.engine import Engine, ProgressOption, as_responses
from irt_dask.engine.identity import checkpoint_of
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import ConvergenceWarning, InputError
from irt_dask.items import checks
from irt_dask.items.mixture import mixture_named
from irt_dask.store import Responses

#: What ``free`` says for the test.
_TEST = "test"


def fit_concurrent(
    responses: Any,
    *,
    model: str | Mapping[str, str] = "2pl",
    free: str | float | None = _TEST,
    rate: float = 0.05,
    least: float = 0.0,
    max_rounds: int = 10,
    reference_group: str | None = None,
    max_iterations: int = 500,
    tolerance: float = 1e-9,
    guessing_prior: tuple[float, float] | None = GUESSING.prior,
    standard_errors: bool | None = None,
    client: Any = None,
    progress: ProgressOption = None,
    checkpoint: str | Path | None = None,
) -> xr.Dataset:
    given = as_responses(responses, "fit_concurrent", graded=True)
    rule = _rule(free, rate, least)
    whole_number("max_iterations", max_iterations, 1)
    whole_number("max_rounds", max_rounds, 1)
    if not given.has_groups:
        raise InputError(
            "fit_concurrent needs groups of persons: give persons= with a column group to "
            "from_array or ingest (of several cycles: a label for each group and cycle)"
        )
    by_group, labels = grouped(given, client)
    if len(labels) < 2:
        raise InputError(f"everybody belongs to group {labels[0]!r}: use fit_marginal")
    asked = rounds.Asked(
        model, reference_group, guessing_prior, max_iterations, tolerance, client, progress,
        checkpoint,
    )  # fmt: skip
    whole = _Whole(given, by_group, labels)
    freed = np.zeros((len(labels), given.n_items), dtype=bool)
    record = Record(labels, given.item_id, rule)
    last: _Fitted | None = None
    number = 0
    while True:
        last = _fitted(whole, freed, last, number, asked)
        with Engine(
            by_group, client=client, progress=progress, stage="curves by group", graded=True
        ) as engine:
            pairs = rounds.looked_at(engine, last.fit, last.end.x, last.naming, freed)
        record.add(last.fit.model, last.end, pairs)
        stay = rounds.stays(number, last.fit.model.items, last.naming)
        wanted = freed if free is None else rule.chosen(pairs, whole.highest, freed, stay)
        if number == 0:
            links.refuse_apart(labels, pairs.n > 0, freed, "before anything is freed,")
        links.refuse_apart(labels, pairs.n > 0, wanted, f"after round {number + 1}")
        if (wanted == freed).all() or number == max_rounds:
            break
        number += 1
        record.changes += rounds.changes(number, freed, wanted, pairs)
        freed = wanted
    stable = bool((wanted == freed).all())
    out = _finished(last, pairs, record, standard_errors, asked, stable)
    links.warn_of_weak(labels, given.item_id, pairs.n > 0, freed)
    if not stable:
        warnings.warn(
            f"after max_rounds={max_rounds} rounds {int((wanted != freed).sum())} more item(s) in "
            f"groups would be freed or taken back; raise max_rounds, or free fewer",
            ConvergenceWarning,
            stacklevel=2,
        )
    return out


class _Whole(NamedTuple):
    """Responses as they were given; with groups; and the groups' labels."""

    given: Responses
    by_group: Responses
    labels: tuple[str, ...]

    @property
    def highest(self) -> Floats:
        """Highest score of each item."""
        return np.array(self.given.n_categories, dtype=float) - 1.0


class _Fitted(NamedTuple):
    """A fit of the items of a naming."""

    naming: Naming
    responses: Responses
    fit: Rounds
    end: climb.Fitted
    counts: ResponseCounts


def _rule(free: str | float | None, rate: float, least: float) -> rounds.Rule:
    """When a pair is freed; complaints about it."""
    if not 0.0 < rate < 1.0:
        raise InputError(f"rate={rate!r} is the share of false ones among what is freed: 0 to 1")
    if not 0.0 <= least < 1.0:
        raise InputError(f"least={least!r} is an RMSD as a share of the highest score: 0 to 1")
    if free is None or free == _TEST:
        return rounds.Rule(rate, least, None)
    if isinstance(free, bool) or not isinstance(free, (int, float, np.number)):
        raise InputError(f"free={free!r} is not available; give 'test', a cut-off of RMSD or None")
    if not 0.0 < free < 1.0:
        raise InputError(f"free={free!r}: a cut-off of RMSD lies between 0 and 1, such as .12")
    if (rate, least) != (0.05, 0.0):
        raise InputError(f"rate and least belong to free='test'; free={free} is a cut-off alone")
    return rounds.Rule(rate, least, float(free))


def _fitted(
    whole: _Whole, freed: Bools, last: _Fitted | None, number: int, asked: rounds.Asked
) -> _Fitted:
    """Fit with these pairs freed, from where the last round ended."""
    naming = Naming.of(whole.given.item_id, whole.labels, freed)
    responses, _ = grouped(view(whole.given, naming), asked.client)
    models = mixture_named(
        naming.of_model(asked.model, whole.given.item_id), naming.item_id, responses.n_categories
    )
    what = specified(
        responses, models, whole.labels, asked.reference, "normal", None, asked.guessing_prior,
        "all", None,
    )  # fmt: skip
    what = replace(what, together=naming.together)
    with Engine(
        responses, client=asked.client, progress=asked.progress, graded=True,
        stage=f"concurrent calibration, round {number + 1}",
    ) as engine:  # fmt: skip
        counts = response_counts(engine)
        what = marginal._with_categories(what, naming.item_id, counts, "raise", None)
        fit = Rounds(engine, what)
        x = marginal._begun(fit, counts, None)
        if last is not None:
            x = _from(last, fit, naming, x)
        saved = _checkpoint(engine, fit, asked, number, x)
        end = climb.full(fit, x, asked.max_iterations, asked.tolerance, saved, "marginal")
    return _Fitted(naming, responses, fit, end, counts)


def _from(last: _Fitted, fit: Rounds, naming: Naming, x: Floats) -> Floats:
    """Column of the last round for the items of this one."""
    items, ability = last.fit.model.unpack(last.end.x)
    group = np.where(naming.group >= 0, naming.group, 0)
    of_last = last.naming.columns[group, naming.origin]
    # What is common again, or still, starts from what stood for the common curve.
    common = rounds.common_of(last.naming)[naming.origin]
    at = np.where(naming.group >= 0, of_last, common)
    return fit.model.pack(items[:, at], ability) if len(items) else x


def _checkpoint(
    engine: Engine, fit: Rounds, asked: rounds.Asked, number: int, x: Floats
) -> Any:
    """Checkpoints of a round, in a folder of its own."""
    folder = None if asked.checkpoint is None else Path(asked.checkpoint) / f"round_{number + 1}"
    identity = marginal._identity(fit.model, "normal", asked.tolerance, (), x)
    return checkpoint_of(engine, folder, identity | {"method": "concurrent"})


def _finished(
    last: _Fitted, pairs: Pairs, record: Record, standard_errors: bool | None,
    asked: rounds.Asked, stable: bool,
) -> xr.Dataset:  # fmt: skip
    """The last fit brought to the maximum, with its errors, and the record."""
    naming = last.naming
    with Engine(
        last.responses, client=asked.client, progress=asked.progress, graded=True,
        stage="standard errors",
    ) as engine:  # fmt: skip
        fit = Rounds(engine, last.fit.model)
        wanted = marginal_errors.are_wanted(fit.model, last.end.x, standard_errors, engine.sampled)
        found: Found = marginal._found(fit, last.end.x, wanted, None)
        items = of_items(fit, found, last.counts)
    if not last.end.converged:
        warnings.warn(
            f"concurrent calibration did not converge in {asked.max_iterations} iterations of its "
            f"last round; raise max_iterations",
            ConvergenceWarning,
            stacklevel=3,
        )
    estimated = np.asarray(fit.model.free.any(axis=0))
    nulls.warn(fit.model.items, naming.item_id, estimated, "raise")
    checks.warn(items["item_flag"], naming.item_id)
    name = asked.model if isinstance(asked.model, str) else "by item"
    return described(fit, found, last.end, items, naming, pairs, record, name, stable)
