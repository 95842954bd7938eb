"""Linear regressions of groups with the errors of sampling and of imputation: :func:`regress`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from irt_dask.arrays import Floats
from irt_dask.engine.progress import ProgressOption
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import DataWarning, InputError, listed
from irt_dask.survey.combine import combined, degrees_of_freedom, unless_one_unit
from irt_dask.survey.delimited import Source
from irt_dask.survey.least_squares import solved
from irt_dask.survey.linking import DRAWN, LINKING
from irt_dask.survey.logistic import logistic
from irt_dask.survey.plan import COLUMNS, Plan, opened, planned
from irt_dask.survey.predictors import Predictors
from irt_dask.survey.replicates import Replicates
from irt_dask.survey.rows import R_SQUARED, Key, interval, sorted_groups, warn_of
from irt_dask.survey.sums import Group, gather
from irt_dask.survey.tables import PERSON_ID, On

FAMILIES = ("linear", "logistic")


def regress(
    persons: Source, formula: str, *, family: str = "linear", by: str | Sequence[str] = (),
    weight: str | None = None, replicates: Replicates | None = None, level: float = 0.95,
    join: Source | None = None, on: On = PERSON_ID, delimiter: str | None = None,
    decimal: str | None = None, progress: ProgressOption = None,
) -> pd.DataFrame:  # fmt: skip
    """Weighted regressions, with standard errors that hold sampling and imputation.

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
        ``np.log(x)``, ``0 +`` for no intercept. Of a logistic regression the values are 0 and 1,
        or are cut: ``"PV*MATH >= 420 ~ gender"``.
    family
        ``"linear"``: least squares. ``"logistic"``: the logit of the probability of a 1, or of a
        value of at least the cut, by maximum likelihood; exp(estimate) is an odds ratio.
    by
        A regression for each combination of these columns.
    weight, replicates, level, join, on, delimiter, decimal, progress
        As in :func:`irt_dask.tabulate`; of logistic regressions passes over the table are counted.

    Returns
    -------
    DataFrame
        A row for each group and term, and of linear ones one for ``R squared`` beside an intercept:
        columns of `by`, ``term``, and those of :func:`irt_dask.tabulate` from ``estimate`` to
        ``n``. Degrees of freedom of the design are less one for each term but the intercept.

    Errors
    ------
    InputError
        A formula that cannot be read or rests on all persons at once (``center``, ``poly``), a term
        that follows from those before it in all groups, values of a logistic regression that are
        neither 0 nor 1 (with row and column); and the errors of :func:`irt_dask.tabulate`.
    TooLargeError
        Logistic regressions that hold more than 8 GiB of coefficients and sums.

    Warns
    -----
    DataWarning
        Persons who lack a predictor, who are left out; terms that follow from those before them in
        some group, whose estimates are NaN there, as for a level that the group lacks (if it is the
        first level, others are compared with another one); logistic regressions whose likelihood
        has no maximum, as terms part 0 from 1, all of whose estimates are NaN, or their errors if
        it is so under a replicate; NA (null, ...) in text of a predictor in a CSV file, which is a
        level there as it is a group in `by`; and as :func:`irt_dask.tabulate`.

    Cost
    ----
    Two passes over the table (levels of the predictors; sums); persons x replicates x terms x
    (terms + plausible values) multiplications; memory of a batch and of sums for each group.

    Logistic: some 5 passes more for the full sample, then 3 or 4 for all replicates (up to 30 each
    where there is no maximum), with persons x weights x plausible values x (terms^2 / 2 and an
    exponential) each; memory of weights x plausible values x terms (terms + 7) / 2 for each group.

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
    >>> above = irt.regress(persons, "PV* >= 1 ~ x", family="logistic", replicates=jk2)
    >>> bool(above["lower"][1] > 0)
    True
    """
    left, cut, right = _read(formula, family)
    table = opened(persons, join, on, by, replicates, delimiter, decimal)
    predictors = Predictors(right, table)
    plan = planned(
        table, left, by=by, weight=weight, replicates=replicates, level=level,
        predictors=predictors, binary=family == "logistic", cut=cut,
    )  # fmt: skip
    with single_threaded():
        gathered = gather(table, plan, progress, "regressions")
        (name,) = gathered.groups
        groups, n_values = gathered.groups[name], len(plan.variables[name])
        linear = {key: solved(groups[key].sums, predictors, n_values)
                  for key in sorted_groups(groups)}  # fmt: skip
        _check_terms(formula, predictors, [one.kept for one in linear.values()])
        fits = logistic(table, plan, groups, linear, progress) if plan.binary else {}
    rows: list[list[Any]] = []
    said: list[str] = []
    infinite: list[bool] = []
    for key, one in linear.items():
        if plan.binary:
            values = _terms(fits[key].b, one.kept, predictors, 0.0)
            if names := [predictors.terms[k] for k in fits[key].infinite]:
                said.append(f"{', '.join(map(str, key)) or 'all persons'}: {listed(names)}")
        else:
            values = _terms(one.b, one.kept, predictors, gathered.centres[name])
            if predictors.intercept is not None and len(predictors.terms) > 1:
                values.append((R_SQUARED, one.r_squared))
        found = _rows(key, groups[key], values, len(one.kept), plan, level)
        rows += found
        infinite += [plan.binary and bool(fits[key].infinite)] * len(found)
    out = pd.DataFrame(rows, columns=[*plan.by, "term", *COLUMNS])
    if plan.linked:
        out[LINKING] = DRAWN
    if gathered.incomplete:
        warnings.warn(
            f"{gathered.incomplete:,} persons lack a predictor and are left out", DataWarning,
            stacklevel=2,
        )  # fmt: skip
    if said:
        said = [f"estimates are infinite or as good as that, not given (NaN), as these terms part "
                f"0 from 1: "
                f"{'; '.join(said)}. Join levels, or leave out terms"]  # fmt: skip
    warn_of(out, gathered, plan, said, known=np.array(infinite, dtype=bool))
    return out


def _read(formula: str, family: str) -> tuple[str, float | None, str]:
    """Values, the score at which they are cut, and terms of a formula."""
    if family not in FAMILIES:
        raise InputError(f"family={family!r} is not one of {listed(FAMILIES)}")
    left, sign, right = (part.strip() for part in formula.partition("~"))
    if not sign or not left or not right:
        raise InputError(f"formula {formula!r}: write 'value ~ terms'")
    values, sign, score = (part.strip() for part in left.partition(">="))
    if not sign:
        return left, None, right
    if family != "logistic":
        raise InputError(f"formula {formula!r}: a score is cut for family='logistic' alone")
    try:
        cut = float(score)
    except ValueError:
        cut = np.nan
    if not values or not np.isfinite(cut):
        raise InputError(f"formula {formula!r}: write 'value >= number ~ terms'")
    return values, cut, right


def _check_terms(formula: str, predictors: Predictors, kept: Sequence[list[int]]) -> None:
    """Refuse terms that are estimated in no group."""
    nowhere = set(range(len(predictors.terms))).difference(*kept)
    if kept and nowhere:
        names = listed(predictors.terms[k] for k in sorted(nowhere))
        raise InputError(
            f"formula {formula!r}: {names} follows from the terms before for all persons"
        )


def _terms(
    b: Floats, kept: Sequence[int], predictors: Predictors, centre: float
) -> list[tuple[str, Floats]]:
    """Values (weights, M) of each term; b (weights, terms, M) is of moved predictors and values."""
    out = list(zip(predictors.terms, np.moveaxis(b, 1, 0), strict=True))
    if (at := predictors.intercept) is not None:
        moved = np.einsum("rpm,p->rm", b[:, kept], predictors.shift[kept])
        out[at] = (out[at][0], b[:, at] + centre - moved)
    return out


def _rows(
    key: Key, group: Group, values: Sequence[tuple[str, Floats]], n_terms: int, plan: Plan,
    level: float,
) -> list[list[Any]]:  # fmt: skip
    """Rows of one regression with `n_terms` that are estimated."""
    replicates = plan.replicates
    scales, df = None, np.nan
    if replicates is not None:
        scales = replicates.scales(replicates.n)
        df = max(degrees_of_freedom(group.gram) - (n_terms - 1), 0)
    first = replicates is not None and replicates.first_value
    out = []
    for term, t in values:
        c = combined(unless_one_unit(t, group.gram), scales, df, first_value=first,
                     linked=bool(plan.linked))  # fmt: skip
        limits = (0.0, 1.0) if term == R_SQUARED else ()
        out.append([*key, term, *c, *interval(c, level, *limits), group.n])
    return out
