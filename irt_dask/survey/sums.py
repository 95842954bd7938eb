"""One pass over a table: sums of every group under the full sample's and replicates' weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from irt_dask.arrays import Floats
from irt_dask.engine.progress import Progress, ProgressOption
from irt_dask.errors import InputError
from irt_dask.survey.plan import Plan
from irt_dask.survey.replicates import holds_weights
from irt_dask.survey.sample import Sample
from irt_dask.survey.statistics import cross_products
from irt_dask.survey.tables import Table, numbers, whole

#: Groups at most: more is an identifier, not a group.
MOST_GROUPS = 10_000
#: Bytes of values and weights above which percentiles do not hold them.
MOST_BYTES = 2 << 30
#: Weights that a batch holds: of many replicates it has fewer persons.
_NUMBERS = 1 << 25
#: How far the mean of a person's replicate weights may be from his weight: by so much of it, and by
#: so many times the chance of replicates that are not balanced (of JK2's it is 1.4 at most).
_FAR, _CHANCE = 0.1, 1.5


@dataclass
class Group:
    """What is known of one group and one variable."""

    n: int
    sums: Floats
    gram: Floats
    kept: list[tuple[Floats, Floats]] = field(default_factory=list)


@dataclass
class Gathered:
    """Groups (by what they have in `by`) of each variable; what centres its values; who is out."""

    groups: dict[str, dict[tuple[Any, ...], Group]]
    centres: dict[str, float]
    without: dict[str, int]
    #: Groups of each pair of variables whose correlation is asked for.
    pairs: dict[tuple[str, str], dict[tuple[Any, ...], Group]]
    #: Persons who have a value and lack a predictor.
    incomplete: int = 0
    #: Groups that persons are in, with and without values.
    seen: set[tuple[Any, ...]] = field(default_factory=set)
    #: Mean over persons of the variance of their replicate weights, next to the weight's square.
    spread: float = np.nan
    #: Persons with a weight who have none in any replicate.
    nowhere: int = 0
    #: Values of some persons, where percentiles do not hold those of all.
    sample: Sample | None = None


@dataclass
class Batch:
    """Some rows of a table."""

    #: (persons, 1 + replicates), the full sample's first.
    weights: Floats
    #: Each group with its rows.
    parts: Sequence[tuple[tuple[Any, ...], np.ndarray]]
    #: (persons, terms) of a regression.
    predictors: Floats | None
    #: Values (persons, plausible values) of each variable, and who has them.
    observed: dict[str, tuple[Floats, np.ndarray]]
    #: Persons without a group, by column.
    without: dict[str, int]
    #: Persons who have a value and lack a predictor.
    incomplete: int = 0


def gather(
    table: Table, plan: Plan, progress: ProgressOption = None, stage: str = "tables"
) -> Gathered:
    """Sums of every group and variable, in one pass.

    Memory is that of a batch, and for each group and variable (1 + replicates) x summands and
    replicates^2 numbers; percentiles hold values and weights of all persons, up to MOST_BYTES, and
    above a sample of the values.
    """
    out = Gathered(
        {name: {} for name in plan.variables}, {}, dict.fromkeys(plan.by, 0),
        {pair: {} for pair in plan.pairs},
    )  # fmt: skip
    held, spread = 0, _Spread(plan)
    for batch in read(table, plan, progress, stage):
        spread.add(batch.weights)
        out.seen.update(key for key, _ in batch.parts)
        for column, n in batch.without.items():
            out.without[column] += n
        out.incomplete += batch.incomplete
        for name, (x, there) in batch.observed.items():
            if name not in out.centres and there.any():
                out.centres[name] = float(x[there].mean()) if plan.centred else 0.0
            if plan.predictors is not None or plan.of_variables:
                held += _of_variable(out, name, batch, plan)
        for pair in plan.pairs:
            _of_pair(out, pair, batch, plan)
        if held > MOST_BYTES and out.sample is None:
            out.sample = _sampled(out)
    spread.check()
    out.spread, out.nowhere = spread.mean, spread.nowhere
    return out


def _sampled(out: Gathered) -> Sample:
    """A sample of what was held for percentiles, in its place."""
    sample = Sample()
    for name, groups in out.groups.items():
        for key, group in groups.items():
            for x, _ in group.kept:
                sample.add((name, key), x)
            group.kept.clear()
    return sample


class _Spread:
    """How much replicate weights differ from the full sample's: sum_r c_r (w_r / w - 1)^2.

    Whatever the method, its weights and its c make it 1 for each person, as the variance of what
    one person adds to a total is the square of it.
    """

    def __init__(self, plan: Plan) -> None:
        r = plan.replicates
        self._scales = None if r is None else r.scales(r.n)
        self._sum, self._n = 0.0, 0
        #: Whether the columns are weights of which the full sample's was not named.
        self._alone = r is not None and plan.weight is None and holds_weights(r)
        self._far, self._total = 0, 0.0
        #: Persons with a weight who have none in any replicate.
        self.nowhere = 0

    def add(self, weights: Floats) -> None:
        """Add persons (persons, 1 + replicates); those without weight say nothing."""
        if self._scales is not None:
            some = weights[weights[:, 0] > 0]
            self.nowhere += int((some[:, 1:].max(axis=1, initial=0.0) == 0).sum())
            self._sum += float((((some[:, 1:] / some[:, :1] - 1) ** 2) @ self._scales).sum())
            self._n += len(some)
            if self._alone:
                own = some[:, 1:]
                middle, chance = own.mean(axis=1), own.std(axis=1) / own.shape[1] ** 0.5
                self._far += int((np.abs(middle - 1) > np.maximum(_FAR, _CHANCE * chance)).sum())
                self._total += float(middle.sum())

    def check(self) -> None:
        """Refuse replicates of a weight that was not given: replicates are about it in the mean.

        Estimates would count each person once, and errors be about others: no row could be right.
        """
        if 2 * self._far > self._n:
            raise InputError(
                f"no weight was given, so that each person would count once, and replicate weights "
                f"are {self._total / self._n:.3g} in the mean, where those of persons who count "
                f"once are about 1: give weight= the column of the full sample's weight that they "
                f"are replicates of"
            )

    @property
    def mean(self) -> float:
        """Of all persons; NaN without any."""
        return self._sum / self._n if self._n else np.nan


def read(
    table: Table, plan: Plan, progress: ProgressOption = False, stage: str = ""
) -> Iterator[Batch]:
    """A pass over the table, checked; an error if it has no rows."""
    first_row, n_rows = 0, None if progress is False else table.n_rows
    n_weights = 1 if plan.replicates is None else 1 + plan.replicates.n
    most = max(_NUMBERS // n_weights, 1)
    with Progress(progress, stage) as shown:
        for frame in table.batches(plan.columns):
            for first in range(0, len(frame), most):
                part = frame.iloc[first : first + most]
                yield _batch(part, plan, first_row)
                first_row += len(part)
            shown.update(first_row, n_rows)
    if first_row == 0:
        raise InputError(f"{table.source}: the table has no rows")


def _batch(frame: pd.DataFrame, plan: Plan, first_row: int) -> Batch:
    """Some rows, checked."""
    missing = frame[list(plan.by)].isna()
    predictors = None if plan.predictors is None else plan.predictors.matrix(frame)
    out = Batch(
        plan.weights(frame, first_row),
        list(_parts(frame, plan.by, ~missing.to_numpy().any(axis=1))), predictors, {},
        {name: int(missing[name].sum()) for name in plan.by},
    )  # fmt: skip
    for name, columns in plan.variables.items():
        x = np.stack([numbers(frame, c, first_row) for c in columns], axis=1)
        there = _observed(x, columns, first_row)
        if plan.binary:
            x = _binary(x, there, columns, plan.cut, first_row)
        if predictors is not None:
            complete = np.isfinite(predictors).all(axis=1)
            out.incomplete += int((there & ~complete).sum())
            there &= complete
        out.observed[name] = x, there
    return out


def _of_variable(out: Gathered, name: str, batch: Batch, plan: Plan) -> int:
    """Add a batch to the groups of a variable; the bytes that are held for percentiles."""
    percentiles = any(s.kind == "percentile" for s in plan.statistics)
    keep = percentiles and out.sample is None
    (x, there), predictors, held = batch.observed[name], batch.predictors, 0
    for key, rows in batch.parts:
        rows = rows[there[rows]]
        if rows.size:
            of = None if predictors is None else predictors[rows]
            sums = plan.summands(x[rows], of, out.centres[name])
            held += _add(out.groups[name], key, x[rows], batch.weights[rows], sums, plan, keep)
            if percentiles and out.sample is not None:
                out.sample.add((name, key), x[rows])
    return held


def _of_pair(out: Gathered, pair: tuple[str, str], batch: Batch, plan: Plan) -> None:
    """Add those who have both values to the groups of a pair of variables."""
    (x, with_x), (y, with_y) = (batch.observed[name] for name in pair)
    for key, rows in batch.parts:
        rows = rows[(with_x & with_y)[rows]]
        if rows.size:
            a, b = (v[rows] - out.centres[name] for v, name in zip((x, y), pair, strict=True))
            sums = cross_products(a, b)
            _add(out.pairs[pair], key, a, batch.weights[rows], sums, plan, keep=False)


def _parts(
    batch: pd.DataFrame, by: Sequence[str], complete: np.ndarray
) -> Iterator[tuple[tuple[Any, ...], np.ndarray]]:
    """Each group of a batch with its rows, in the order of the rows."""
    if not by:
        yield (), np.arange(len(batch))
        return
    frame = batch[list(by)].reset_index(drop=True)[complete]
    for key, rows in frame.groupby(list(by), sort=True, observed=True).indices.items():
        labels = key if isinstance(key, tuple) else (key,)
        yield tuple(map(whole, labels)), frame.index.to_numpy()[rows]


def _observed(x: Floats, columns: Sequence[str], first_row: int) -> np.ndarray:
    """Who has a value; plausible values of a person are all there or none."""
    bad = np.isinf(x)
    if bad.any():
        row, m = np.argwhere(bad)[0]
        raise InputError(f"row {first_row + row + 1}, column {columns[m]!r}: {x[row, m]}")
    there = ~np.isnan(x)
    some = there.any(axis=1) & ~there.all(axis=1)
    if some.any():
        row = int(np.argmax(some))
        raise InputError(
            f"row {first_row + row + 1}: {columns[int(np.argmin(there[row]))]!r} is missing and "
            f"others of {columns[0]!r} to {columns[-1]!r} are not: they are plausible values of "
            "one variable"
        )
    return there[:, 0]


def _binary(
    x: Floats, there: np.ndarray, columns: Sequence[str], cut: float | None, first_row: int
) -> Floats:
    """Values as 0 or 1: whether they are at least the cut, or as they are."""
    if cut is not None:
        return (x >= cut).astype(np.float64)
    bad = there[:, None] & (x != 0) & (x != 1)
    if bad.any():
        row, m = np.argwhere(bad)[0]
        raise InputError(
            f"row {first_row + row + 1}, column {columns[m]!r}: {x[row, m]:g} is neither 0 nor 1; "
            f"a score is cut as in '{columns[m]} >= {x[row, m]:g} ~ ...'"
        )
    return x


def _add(
    groups: dict[tuple[Any, ...], Group], key: tuple[Any, ...], x: Floats, weights: Floats,
    each: Floats, plan: Plan, keep: bool,
) -> int:  # fmt: skip
    """Add persons to a group; the bytes that are held for percentiles."""
    sums = weights.T @ each
    deviations = weights[:, 1:] - weights[:, :1]
    gram = deviations.T @ deviations
    group = groups.get(key)
    if group is None:
        if len(groups) == MOST_GROUPS:
            raise InputError(
                f"by={list(plan.by)} makes more than {MOST_GROUPS:,} groups: is one an identifier?"
            )
        group = groups[key] = Group(0, np.zeros_like(sums), np.zeros_like(gram))
    group.n += x.shape[0]
    group.sums += sums
    group.gram += gram
    if not keep:
        return 0
    group.kept.append((x, weights))
    return x.nbytes + weights.nbytes
