"""Linear regressions of groups with the errors of sampling and of imputation: :func:`regress`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from irt_dask.arrays import Floats
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import DataWarning, InputError, listed
from irt_dask.survey.combine import combined, degrees_of_freedom
from irt_dask.survey.plan import COLUMNS, Plan, planned
from irt_dask.survey.predictors import Predictors
from irt_dask.survey.replicates import Replicates
from irt_dask.survey.rows import interval, sorted_groups, warn_of
from irt_dask.survey.sums import Group, gather
from irt_dask.survey.tables import Source, Table

#: Reciprocal condition of scaled predictors below which a term follows from the others.
_FLAT = 1e-10
R_SQUARED = "R squared"


def regress(
    persons: Source, formula: str, *, by: str | Sequence[str] = (), weight: str | None = None,
    replicates: Replicates | None = None, level: float = 0.95,
) -> pd.DataFrame:  # fmt: skip
    """Weighted linear regressions, with standard errors that hold sampling and imputation.

    The coefficients are computed for each plausible value under each weight and combined as in
    :func:`irt_dask.tabulate`, whose parameters and warnings hold here too.

    Parameters
    ----------
    persons
        A DataFrame, a CSV file (also .gz), a Parquet file or a folder of them, a row a person.
    formula
        ``"PV*MATH ~ gender + escs"``: on the left a column or a pattern of plausible values, on
        the right terms of formulaic: numbers, text as categories (treatment contrasts),
        ``C(grade)`` for numbers that are categories, interactions ``a:b`` and ``a * b``,
        ``np.log(x)``, ``0 +`` for no intercept.
    by
        A regression for each combination of these columns.
    weight, replicates, level
        As in :func:`irt_dask.tabulate`.

    Returns
    -------
    DataFrame
        A row for each group and term, and one for ``R squared`` beside an intercept:
        columns of `by`, ``term``, and those of :func:`irt_dask.tabulate` from ``estimate`` to
        ``n``. Degrees of freedom of the design are less one for each term but the intercept.

    Errors
    ------
    InputError
        A formula that cannot be read or rests on all persons at once (``center``, ``poly``), a term
        that follows from those before it in all groups; and the errors of
        :func:`irt_dask.tabulate`.

    Warns
    -----
    DataWarning
        Persons who lack a predictor, who are left out; terms that follow from those before them in
        some group, whose estimates are NaN there, as for a level that the group lacks (if it is the
        first level, others are compared with another one); and as :func:`irt_dask.tabulate`.

    Cost
    ----
    Two passes over the table (levels of the predictors; sums); persons x replicates x terms x
    (terms + plausible values) multiplications; memory of a batch and of sums for each group.

    Examples
    --------
    >>> import irt_dask as irt, numpy as np, pandas as pd
    >>> rng = np.random.default_rng(1)
    >>> sex, x = rng.choice(["f", "m"], 400), rng.standard_normal(400)
    >>> y = 1 + 2 * x - (sex == "m") + rng.standard_normal(400)
    >>> pv = {f"PV{m}": y + 0.1 * rng.standard_normal(400) for m in range(1, 6)}
    >>> persons = pd.DataFrame({"sex": sex, "x": x, **pv})
    >>> persons["zone"], persons["unit"] = np.arange(400) // 20 + 1, np.arange(400) % 2
    >>> jk2 = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=20)
    >>> irt.regress(persons, "PV* ~ sex + x", replicates=jk2)["term"].tolist()
    ['Intercept', 'sex[T.m]', 'x', 'R squared']
    """
    left, sign, right = formula.partition("~")
    if not sign or not left.strip() or not right.strip():
        raise InputError(f"formula {formula!r}: write 'value ~ terms'")
    table = Table(persons)
    predictors = Predictors(right.strip(), table)
    plan = planned(
        table, left.strip(), by=by, weight=weight, replicates=replicates, level=level,
        predictors=predictors,
    )  # fmt: skip
    with single_threaded():
        gathered = gather(table, plan)
    (name,) = gathered.groups
    groups = gathered.groups[name]
    rows = [row for key in sorted_groups(groups)
            for row in _rows(key, groups[key], gathered.centres[name], plan, level)]  # fmt: skip
    out = pd.DataFrame(rows, columns=[*plan.by, "term", *COLUMNS])
    known = out.groupby("term")["estimate"].count() > 0
    if not known.all():
        nowhere = [t for t in predictors.terms if not known.get(t, True)]
        raise InputError(
            f"formula {formula!r}: {listed(nowhere)} follows from the terms before for all persons"
        )
    if gathered.incomplete:
        warnings.warn(
            f"{gathered.incomplete:,} persons lack a predictor and are left out", DataWarning,
            stacklevel=2,
        )  # fmt: skip
    warn_of(out, gathered, plan)
    return out


def _rows(
    key: tuple[Any, ...], group: Group, centre: float, plan: Plan, level: float
) -> Iterator[list[Any]]:
    """Rows of one regression."""
    predictors, replicates = plan.predictors, plan.replicates
    assert predictors is not None
    b, r_squared, kept = solved(group.sums, predictors, len(next(iter(plan.variables.values()))))
    found = list(zip(predictors.terms, np.moveaxis(b, 1, 0), strict=True))
    if (at := predictors.intercept) is not None:
        moved = np.einsum("rpm,p->rm", b[:, kept], predictors.shift[kept])
        found[at] = (found[at][0], b[:, at] + centre - moved)
        if len(found) > 1:
            found.append((R_SQUARED, r_squared))
    scales, df = None, np.nan
    if replicates is not None:
        scales = replicates.scales(replicates.n)
        df = max(degrees_of_freedom(group.gram) - (len(kept) - 1), 0)
    first = replicates is not None and replicates.first_value
    for term, values in found:
        c = combined(values, scales, df, first_value=first)
        limits = (0.0, 1.0) if term == R_SQUARED else ()
        yield [*key, term, *c, *interval(c, level, *limits), group.n]


def solved(sums: Floats, predictors: Predictors, n_values: int) -> tuple[Floats, Floats, list[int]]:
    """Coefficients (weights, terms, M), R squared (weights, M), and which terms are estimated.

    Coefficients of other terms are NaN, as are all under replicates where a term that is estimated
    follows from the others.
    """
    p = len(predictors.terms)
    i, j = np.triu_indices(p)
    weight, pairs, rest = np.split(sums, [1, 1 + i.size], axis=1)
    a = np.empty((sums.shape[0], p, p))
    a[:, i, j] = a[:, j, i] = pairs
    with_y, of_y = np.split(rest, [p * n_values], axis=1)
    y, squares = np.split(of_y, 2, axis=1)
    root = np.sqrt(np.einsum("rpp->rp", a))
    right = with_y.reshape(-1, p, n_values)
    b = np.full((sums.shape[0], p, n_values), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = a / (root[:, :, None] * root[:, None, :])
        kept = _estimable(scaled[0], predictors.intercept)
        scaled, root = scaled[:, kept][:, :, kept], root[:, kept]
        known = np.isfinite(scaled).all(axis=(1, 2)) & bool(kept)
        known[known] = np.linalg.eigvalsh(scaled[known])[:, 0] > _FLAT
        some = np.linalg.solve(scaled[known], right[known][:, kept] / root[known][:, :, None])
        b[np.ix_(known, kept)] = some / root[known][:, :, None]
        fitted = np.nansum(b * right, axis=1)
        fitted[~known] = np.nan
        return b, 1 - (squares - fitted) / (squares - y * y / weight), kept


def _estimable(scaled: Floats, intercept: int | None) -> list[int]:
    """Terms that do not follow from those before them, the intercept before all."""
    order = sorted(range(scaled.shape[0]), key=lambda k: k != intercept)
    kept: list[int] = []
    for k in order:
        if not np.isfinite(scaled[k, k]):
            continue
        with_kept = scaled[kept, k]
        explained = with_kept @ np.linalg.solve(scaled[np.ix_(kept, kept)], with_kept)
        if scaled[k, k] - explained > _FLAT:
            kept.append(k)
    return sorted(kept)
