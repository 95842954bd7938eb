"""Tables of groups with the errors of sampling and of imputation: :func:`tabulate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from irt_dask.arrays import Floats
from irt_dask.engine.threads import single_threaded
from irt_dask.survey.combine import combined, degrees_of_freedom
from irt_dask.survey.plan import Plan, Values, planned
from irt_dask.survey.replicates import Replicates
from irt_dask.survey.rows import COLUMNS, interval, sorted_groups, warn_of
from irt_dask.survey.statistics import Statistic, from_sums, percentiles, statistics_of
from irt_dask.survey.sums import Gathered, Group, gather
from irt_dask.survey.tables import Source, Table

#: What values of a statistic can be.
_RANGE = {"share": (0.0, 1.0), "sd": (0.0,), "weight": (0.0,)}


def tabulate(
    persons: Source, values: Values, *, by: str | Sequence[str] = (), weight: str | None = None,
    replicates: Replicates | None = None, statistics: str | Sequence[str] = ("mean", "sd"),
    level: float = 0.95,
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
        and ``"at least 400"`` (the share of the weight with a value of at least 400).
    level
        Level of the intervals, between 0 and 1.

    Returns
    -------
    DataFrame
        A row for each variable, group and statistic: ``variable``, the columns of `by`,
        ``statistic``, ``estimate``, ``se``, ``se_sampling``, ``se_imputation``, ``df`` (Barnard and
        Rubin's, from the directions in which the group's replicates differ), ``fraction_missing``
        (share of the variance that is imputation), ``lower``, ``upper`` (Student's t), ``n``
        (persons with a value). One plausible value: se is that of sampling alone and
        ``se_imputation`` NaN.

    Errors
    ------
    InputError
        Columns that are not there, statistics that are not known, weights that are missing,
        negative or not numbers (with row, column and value), some plausible values missing and
        others not.
    TooLargeError
        Percentiles of more than 8 GiB of values and weights.

    Warns
    -----
    DataWarning
        Persons without a group; groups that some replicate leaves without anybody (their errors are
        NaN), that lie in so few zones that intervals have below 5 degrees of freedom, or of which
        a share is of none or all (its error is 0, its interval NaN).

    Cost
    ----
    One pass over the table; persons x replicates x (plausible values x summands + replicates)
    multiplications; memory of a batch and of sums for each group; percentiles hold values and
    weights of all persons.

    Sources
    -------
    Rubin (1987), Multiple Imputation for Nonresponse in Surveys; Barnard and Rubin (1999),
    Biometrika 86; OECD (2009), PISA Data Analysis Manual, chapters 4 and 8.

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
    """
    table = Table(persons)
    plan = planned(
        table, values, by=by, weight=weight, replicates=replicates, level=level,
        statistics=statistics_of(statistics),
    )  # fmt: skip
    with single_threaded():  # the same bits on any number of cores
        gathered = gather(table, plan)
    rows = list(_rows(gathered, plan, level))
    out = pd.DataFrame(rows, columns=["variable", *plan.by, "statistic", *COLUMNS])
    warn_of(out, gathered, plan)
    return out


def _rows(gathered: Gathered, plan: Plan, level: float) -> Iterator[list[Any]]:
    replicates = plan.replicates
    scales = None if replicates is None else replicates.scales(replicates.n)
    first = replicates is not None and replicates.first_value
    for name, groups in gathered.groups.items():
        for key in sorted_groups(groups):
            group = groups[key]
            df = degrees_of_freedom(group.gram) if replicates is not None else np.nan
            n_values = len(plan.variables[name])
            found = _values(group, gathered.centres[name], n_values, plan.statistics)
            for s in plan.statistics:
                c = combined(found[s.name], scales, df, first_value=first)
                limits = _RANGE.get(s.kind, ())
                yield [name, *key, s.name, *c, *interval(c, level, *limits), group.n]


def _values(
    group: Group, centre: float, n_values: int, statistics: Sequence[Statistic]
) -> dict[str, Floats]:
    """Values (weights, plausible values) of each statistic."""
    out = from_sums(group.sums, n_values, centre, statistics)
    wanted = [s for s in statistics if s.kind == "percentile"]
    if wanted:
        x, weights = (np.concatenate(part) for part in zip(*group.kept, strict=True))
        found = percentiles(x, weights, [s.at / 100 for s in wanted])
        out |= {s.name: f for s, f in zip(wanted, found, strict=True)}
        group.kept.clear()
    return out
