"""Tables of groups with the errors of sampling and of imputation: :func:`tabulate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from irt_dask.arrays import Floats
from irt_dask.engine.progress import ProgressOption
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import listed
from irt_dask.survey.combine import unless_one_unit
from irt_dask.survey.delimited import Source
from irt_dask.survey.gaps import Gaps, differences, reference_level, references
from irt_dask.survey.linking import DRAWN, LINKING
from irt_dask.survey.percentiles import by_passes
from irt_dask.survey.plan import COLUMNS, Plan, Values, opened, planned
from irt_dask.survey.replicates import Replicates
from irt_dask.survey.rows import Found, Key, rows_of, sorted_groups, warn_of
from irt_dask.survey.sample import Cell
from irt_dask.survey.statistics import (
    correlations,
    from_sums,
    percentiles,
    statistics_of,
)
from irt_dask.survey.sums import Gathered, Group, gather
from irt_dask.survey.tables import PERSON_ID, On, Table


def tabulate(
    persons: Source, values: Values, *, by: str | Sequence[str] = (), weight: str | None = None,
    replicates: Replicates | None = None, statistics: str | Sequence[str] = ("mean", "sd"),
    gaps: Gaps = (), level: float = 0.95,
    join: Source | None = None, on: On = PERSON_ID, delimiter: str | None = None,
    decimal: str | None = None, progress: ProgressOption = None,
) -> pd.DataFrame:  # fmt: skip
    """Statistics of groups of persons, with standard errors that hold sampling and imputation.

    Every statistic is computed for each plausible value under each weight; plausible values are
    never averaged first. Replicates' spread about the full sample's value is the sampling variance,
    the spread of plausible values the imputation variance (Rubin's rules).

    Parameters
    ----------
    persons
        A DataFrame, a CSV file (also .gz), a Parquet file or a folder of them, a row a person.
    values
        A column; a pattern, where * is a number, or several columns, which are plausible values of
        one variable (``"PV*MATH"``); or a mapping from names to these, for several variables.
    by
        Columns whose combinations are the groups; none: all persons. Persons for whom one is
        missing are in no group, which is warned of.
    weight
        Column of the full sample's weights (default: that of `replicates`, or 1 for all).
    replicates
        Replicate weights. Without them ``se_sampling`` and ``se`` are not known and NaN.
    statistics
        Of ``"weight"`` (the sum of weights), ``"mean"``, ``"sd"`` (divided by the sum of weights),
        ``"p25"`` (any percentile: the least value at or below which so much of the weight lies),
        ``"at least 400"`` (the share of the weight with a value of at least 400), and
        ``"correlation"`` (Pearson's, of each pair of variables among those who have both; plausible
        values of both must have been drawn together, a single value goes with each of them).
    gaps
        Columns of `by` whose levels are compared, within the other columns: each level less the
        first one in sorted order, or less the one that a mapping says (``{"sex": "m"}``). The same
        replicates and plausible values make both, so errors hold what groups have in common.
    level
        Level of the intervals, between 0 and 1.
    join, on
        A second table of the same persons, whose columns stand beside those of the first (scores,
        and a file of countries and replicate weights), by the column `on`, or by the pair of its
        names in both. Those that are asked for are held in memory.
    delimiter
        What separates values in CSV files, ``";"`` for example (default: a comma).
    decimal
        The sign before the fraction of numbers in CSV files, ``","`` or ``"."`` (default).
    progress
        A bar while the table is read (default: where standard error is a terminal), or a function
        of (stage, rows done, all rows or None).

    Returns
    -------
    DataFrame
        A row for each variable, group and statistic: ``variable``, the columns of `by`,
        ``statistic``, ``estimate``, ``se``, ``se_sampling``, ``se_imputation``, ``df`` (Barnard and
        Rubin's, from the directions in which the group's replicates differ), ``fraction_missing``
        (share of the variance that is imputation, ``(1 + 1/M) B / T``, B the variance between
        plausible values and T ``se`` squared), ``lower``, ``upper`` (Student's t), ``n``
        (persons with a value). One plausible value: se is that of sampling alone and
        ``se_imputation`` NaN. Correlations have ``"math with read"`` for a variable, and intervals
        by Fisher's z.

        Plausible values of :func:`irt_dask.score` with ``linking`` have the linking error in
        ``se_imputation``, and rows of them a column ``linking``, ``"drawn"``. Tables know it by the
        column ``person_linking_error`` that such scores have: keep it beside the values.

        With `gaps` there is a column ``row``, ``"group"`` or ``"gap"``; gaps come after the groups
        of their variable, with ``"m minus f"`` in the compared column, persons of both in ``n``,
        and the degrees of freedom of both.

    Errors
    ------
    InputError
        Columns that are not there, statistics that are not known, weights that are missing,
        negative or not numbers (with row, column and value), some plausible values missing and
        others not, a correlation of one variable, a gap of a column with one level.
    TooLargeError
        More than 5,000 sampling units, each a replicate.

    Warns
    -----
    DataWarning
        Persons without a group; groups that some replicate leaves without anybody (their errors are
        NaN), that lie in so few zones that intervals have below 5 degrees of freedom, or of which
        a share is of none or all (its error is 0, its interval NaN); correlations of values that do
        not differ (NaN) or of -1 or 1; groups that have no gap, as a level is missing.

    Cost
    ----
    One pass over the table; persons x replicates x (plausible values x summands + replicates)
    multiplications for each variable and each pair of them; memory of a batch, and of sums and
    statistics for each group. Percentiles hold values and weights of all persons up to 2 GiB;
    above, there are two passes more, which hold 1 GiB: weights of bins of values, then the values
    of bins that hold a percentile (more passes where these do not fit). They are the same numbers.

    Sources
    -------
    Rubin (1987), Multiple Imputation for Nonresponse in Surveys; Barnard and Rubin (1999),
    Biometrika 86; OECD (2009), PISA Data Analysis Manual, chapters 4, 8 and 11.

    Examples
    --------
    >>> import irt_dask as irt, numpy as np, pandas as pd
    >>> rng = np.random.default_rng(1)
    >>> ability = rng.standard_normal(400)
    >>> values = {f"PV{m}": ability + .3 * rng.standard_normal(400) for m in range(1, 6)}
    >>> persons = pd.DataFrame(values)
    >>> persons["zone"], persons["unit"] = np.arange(400) // 20 + 1, np.arange(400) % 2
    >>> jk2 = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=20)
    >>> table = irt.tabulate(persons, "PV*", replicates=jk2, statistics=["mean", "p90"])
    >>> table[["statistic", "n"]].to_numpy().tolist()
    [['mean', 400], ['p90', 400]]
    >>> bool((table["se"] > table["se_sampling"]).all())
    True
    >>> persons["sex"] = np.where(persons.index % 4 < 2, "f", "m")
    >>> irt.tabulate(persons, "PV*", by="sex", gaps="sex", statistics="mean")["sex"].tolist()
    ['f', 'm', 'm minus f']
    """
    table = opened(persons, join, on, by, replicates, delimiter, decimal)
    plan = planned(
        table, values, by=by, weight=weight, replicates=replicates, level=level,
        statistics=statistics_of(statistics),
    )  # fmt: skip
    compared = references(gaps, plan.by)
    with single_threaded():  # the same bits on any number of cores
        gathered = gather(table, plan, progress)
        found = _found(gathered, plan, _percentiles(table, plan, gathered, progress))
    rows: list[list[Any]] = []
    said: list[str] = []
    wanted = _levels(compared, found, plan.by)
    for name, groups in found.items():
        of_pair = isinstance(name, tuple)
        kinds = [s for s in plan.statistics if (s.kind == "correlation") == of_pair]
        label = " with ".join(name) if isinstance(name, tuple) else name
        linked = label in plan.linked
        for gap, key, one in _groups_and_gaps(groups, wanted, plan.by, label, said):
            kind = [gap] if compared else []
            for row in rows_of(one, kinds, plan, level, gap=gap == "gap", linked=linked):
                rows.append([label, *key, *kind, *row])
    row = ["row"] if compared else []
    out = pd.DataFrame(rows, columns=["variable", *plan.by, *row, "statistic", *COLUMNS])
    if plan.linked:
        held = out["variable"].isin(plan.linked) & (out["statistic"] != "weight")
        out[LINKING] = np.where(held, DRAWN, "")
    warn_of(out, gathered, plan, said)
    return out


#: Groups of variables and of pairs of them.
_All = dict[str | tuple[str, str], dict[Key, Found]]


def _percentiles(
    table: Table, plan: Plan, gathered: Gathered, progress: ProgressOption
) -> dict[Cell, Floats]:
    """Percentiles (percentiles, weights, plausible values) of every group; empty without them."""
    if gathered.sample is not None:
        return by_passes(table, plan, gathered, progress)
    at = [s.at / 100 for s in plan.statistics if s.kind == "percentile"]
    out = {}
    for name, groups in gathered.groups.items() if at else ():
        for key, group in groups.items():
            x, weights = (np.concatenate(part) for part in zip(*group.kept, strict=True))
            out[name, key] = percentiles(x, weights, at)
            group.kept.clear()
    return out


def _found(gathered: Gathered, plan: Plan, of_percentiles: dict[Cell, Floats]) -> _All:
    """Statistics of every group."""
    out: _All = {}
    wanted = [s.name for s in plan.statistics if s.kind == "percentile"]
    if plan.of_variables:
        for name, groups in gathered.groups.items():
            n, centre = len(plan.variables[name]), gathered.centres.get(name, 0.0)
            out[name] = {
                key: _told(g, from_sums(g.sums, n, centre, plan.of_variables)
                           | dict(zip(wanted, of_percentiles.get((name, key), ()), strict=True)))
                for key, g in groups.items()
            }  # fmt: skip
    for pair, groups in gathered.pairs.items():
        out[pair] = {
            key: _told(g, {"correlation": correlations(g.sums)}) for key, g in groups.items()
        }
    return out


def _told(group: Group, values: dict[str, Floats]) -> Found:
    """Statistics of a group; its weight alone moves where it lies in a single sampling unit."""
    some = {name: t if name == "weight" else unless_one_unit(t, group.gram)
            for name, t in values.items()}  # fmt: skip
    return Found(group.n, group.gram, some)


def _levels(compared: Mapping[str, object], found: _All, by: Sequence[str]) -> dict[str, object]:
    """What levels are compared with, by column, the same for all variables."""
    keys = [key for groups in found.values() for key in groups]
    return {name: reference_level(name, level, [key[by.index(name)] for key in keys])
            for name, level in compared.items() if keys}  # fmt: skip


def _groups_and_gaps(
    groups: Mapping[Key, Found], wanted: Mapping[str, object], by: Sequence[str], label: str,
    said: list[str],
) -> Iterator[tuple[str, Key, Found]]:  # fmt: skip
    """Groups in their order, then gaps; what has none is `said`."""
    for key in sorted_groups(groups):
        yield "group", key, groups[key]
    for column, reference in wanted.items():
        gaps, alone = differences(groups, by.index(column), reference)
        for key, gap in gaps.items():
            yield "gap", key, gap
        if alone:
            cells = listed(", ".join(map(str, cell)) or "all persons" for cell in alone)
            said.append(
                f"{label!r} has no gap of {column!r} where {reference!r} or all other levels lack: "
                f"{cells}"
            )
