"""Two tables of an assessment, years apart: what has changed, with the linking error."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from os import PathLike
from typing import cast

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import t as student

from irt_dask.arrays import Bools, Floats
from irt_dask.errors import DataWarning, InputError, listed, repeated
from irt_dask.survey.link_results import (
    Links,
    Scale,
    degrees_of_links,
    errors_of_links,
    has_links,
)
from irt_dask.survey.linking import (
    DRAWN,
    LINKING,
    LinkingError,
    linking_errors,
    named,
    texts,
    twice_asked,
)
from irt_dask.survey.plan import OWN
from irt_dask.survey.rows import FEW, RANGE_OF_GAPS
from irt_dask.survey.statistics import Statistic, statistics_of
from irt_dask.survey.tables import written

_FIGURES = ["estimate", "se", "se_sampling", "se_imputation", "df", "n"]


def trend(
    earlier: pd.DataFrame | str | PathLike[str], later: pd.DataFrame | str | PathLike[str], *,
    linking_error: LinkingError | Links, scale: Scale | None = None, level: float = 0.95,
) -> pd.DataFrame:  # fmt: skip
    """Changes between two tables of :func:`irt_dask.tabulate`, later less earlier.

    The samples are independent, and the later scale is the earlier one but for the linking error,
    which enters once: se^2 = se_1^2 + se_2^2 + se_linking^2.

    Parameters
    ----------
    earlier, later
        Tables of :func:`irt_dask.tabulate`, or files of them (``irt-dask tabulate --out``).
        Rows belong together by variable, group and statistic.
    linking_error
        Standard error of the shift between the scales, on their units. It must be said: 0.0 where
        there is none, or where plausible values of the later table were drawn with it already
        (:func:`irt_dask.score`, ``linking``): of rows that say so another one is refused.

        A number, or a mapping by variable, is a shift of the scale: it is the linking error of
        means and percentiles; that of their gaps, of SDs, correlations and sums of weights is 0. A
        share moves with the density at its score, which differs between groups: it must be given by
        statistic (``{"mean": 3.5, "at least 420": 0.01}``), or for each group in a DataFrame with
        the column ``linking_error`` and any of ``variable``, the columns of groups, ``row`` and
        ``statistic``, on which it depends. By statistic, also SDs have one if they are given.

        Or the result of :func:`irt_dask.link` with ``error="jackknife"``, of ``bank_b``, the later
        calibration, on the scale of ``bank_a``, the earlier one; with several variables a mapping
        of links by variable. Means and percentiles have the error of A theta + B where they lie,
        SDs and gaps that of A; shares are refused.
    scale
        Mean and SD that abilities 0 and 1 of the link's scale have in the tables, as in (500, 100);
        by variable if they differ. Default: the tables are on the link's scale. For links alone.
    level
        Level of the intervals, between 0 and 1.

    Returns
    -------
    DataFrame
        A row for each row that both tables have: ``variable``, the columns of groups, ``row`` (if
        there are gaps), ``statistic``, ``earlier`` and ``later`` (the estimates), ``estimate``
        (later less earlier), ``se``, ``se_sampling``, ``se_imputation`` (NaN with a single value in
        a table), ``se_linking`` (0 where the link does not matter), ``df`` (Welch and
        Satterthwaite's; a linking error that is a number counts as known, that of a link by the
        jackknife has as many as it has units, less 1), ``lower``, ``upper`` (Student's t),
        ``n_earlier``, ``n_later``; and ``linking``, ``"drawn"`` where ``se_imputation`` has the
        linking error, if there are such rows.

    Errors
    ------
    InputError
        A table that is not of ``tabulate``, groups by other columns, no row in common; a linking
        error that is negative, not given for a row that needs it, or given for one that is not
        there or whose values have it.

    Warns
    -----
    DataWarning
        Rows that one of the tables lacks; errors that hold imputation in one year alone; changes on
        fewer than 5 degrees of freedom; linking errors in the values of both tables; shares of none
        or all, whose errors are 0; links whose errors hold the sample of persons
        (``error="delta"``).

    Cost
    ----
    That of reading two tables.

    Sources
    -------
    OECD (2009), PISA Data Analysis Manual, chapter 13; Welch (1947), Biometrika 34.

    Examples
    --------
    >>> import irt_dask as irt, numpy as np, pandas as pd
    >>> rng = np.random.default_rng(1)
    >>> def year(mean):
    ...     ability = rng.normal(mean, 100, 400)
    ...     values = {f"PV{m}": ability + rng.normal(0, 30, 400) for m in range(1, 6)}
    ...     zones = {"zone": np.arange(400) // 20 + 1, "unit": np.arange(400) % 2}
    ...     jk2 = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=20)
    ...     return irt.tabulate(pd.DataFrame(values | zones), "PV*", replicates=jk2)
    ...
    >>> change = irt.trend(year(500), year(520), linking_error=3.5)
    >>> change[["statistic", "se_linking"]].to_numpy().tolist()
    [['mean', 3.5], ['sd', 0.0]]
    >>> both = irt.simulate(4000, 20, seed=1)
    >>> years = (both.select(persons=slice(2000)), both.select(persons=slice(2000, None)))
    >>> link = irt.link(*map(irt.fit_marginal, years), error="jackknife")
    >>> change = irt.trend(year(500), year(520), linking_error=link, scale=(500, 100))
    >>> change["se_linking"].round().tolist()
    [2.0, 2.0]
    """
    if not 0 < level < 1:
        raise InputError(f"level={level!r} is not between 0 and 1")
    (a, by, gaps), (b, other, more_gaps) = _table(earlier, "earlier"), _table(later, "later")
    if set(by) != set(other):
        raise InputError(
            f"the groups of the earlier table are by {listed(by) or 'none'} and those of the later "
            f"one by {listed(other) or 'none'}: make both by the same columns"
        )
    names = ["variable", *other, "row", "statistic"]
    first, second = (dict(zip(texts(t, names), range(len(t)), strict=True)) for t in (a, b))
    both = [key for key in second if key in first]
    if not both:
        raise InputError("the tables have no row of the same variable, group and statistic")
    alone = named([k for k in [*first, *second] if (k in first) != (k in second)])
    a, b = (t.iloc[[at[k] for k in both]].reset_index(drop=True)
            for t, at in ((a, first), (b, second)))  # fmt: skip
    drawn = [np.asarray(t[LINKING] == DRAWN if LINKING in t else np.zeros(len(t), bool))
             for t in (a, b)]  # fmt: skip
    out = _changes(a, b, names, (linking_error, scale), level, drawn[0] | drawn[1])
    said = [f"rows of one table alone are left out: {listed(alone)}"] if alone else []
    said += _said(out, a, b, names, drawn[0] & drawn[1])
    if said:
        warnings.warn("; ".join(said), DataWarning, stacklevel=2)
    return out if gaps or more_gaps else out.drop(columns="row")


def _table(
    source: pd.DataFrame | str | PathLike[str], which: str
) -> tuple[pd.DataFrame, list[str], bool]:
    """A table, checked, the columns of its groups and whether it has gaps."""
    frame = source if isinstance(source, pd.DataFrame) else written(source)
    if "term" in frame:
        raise InputError(f"the {which} table is of regress: trends are of tables of tabulate")
    if lacking := [c for c in ("variable", "statistic", *_FIGURES) if c not in frame]:
        raise InputError(
            f"the {which} table has no column {lacking[0]!r}: trends are of tables of tabulate"
        )
    by = [str(c) for c in frame if c not in OWN]
    gaps = "row" in frame
    frame = frame if gaps else frame.assign(row="group")
    keys = named(texts(frame, ["variable", *by, "row", "statistic"]))
    if twice := repeated(keys):
        raise InputError(f"the {which} table has the row {twice[0]!r} twice")
    for name in _FIGURES:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            raise InputError(f"the {which} table's column {name!r} is not of numbers")
    return frame, by, gaps


def _changes(
    a: pd.DataFrame, b: pd.DataFrame, names: list[str],
    given: tuple[LinkingError | Links, Scale | None], level: float, drawn: Bools,
) -> pd.DataFrame:  # fmt: skip
    """Rows of two tables that belong together, subtracted."""
    kinds = [statistics_of(name)[0] for name in b["statistic"]]
    link = _linking(*given, b, names, kinds, drawn)
    of_link = np.full(len(b), np.inf)
    if has_links(given[0]):
        of_link = degrees_of_links(given[0], b["variable"])
    x, y = ({name: t[name].to_numpy(dtype=np.float64) for name in _FIGURES} for t in (a, b))
    estimate = y["estimate"] - x["estimate"]
    variances = np.stack([x["se"] ** 2, y["se"] ** 2, link**2])
    se = np.sqrt(variances.sum(axis=0))
    df = _welch(variances, np.stack([x["df"], y["df"], of_link]))
    half = student.ppf((1 + level) / 2, df) * se
    most = np.array([RANGE_OF_GAPS.get(s.kind, (0.0, np.inf))[1] for s in kinds])
    most = np.where(b["row"] == "gap", 2 * most, most)
    out = b[names].assign(
        earlier=x["estimate"], later=y["estimate"], estimate=estimate, se=se,
        se_sampling=np.hypot(x["se_sampling"], y["se_sampling"]),
        se_imputation=np.hypot(x["se_imputation"], y["se_imputation"]), se_linking=link, df=df,
        lower=np.maximum(estimate - half, -most), upper=np.minimum(estimate + half, most),
        n_earlier=a["n"], n_later=b["n"],
    )  # fmt: skip
    return out.assign(**{LINKING: np.where(drawn, DRAWN, "")}) if drawn.any() else out


def _linking(
    given: LinkingError | Links, scale: Scale | None, b: pd.DataFrame, names: list[str],
    kinds: list[Statistic], drawn: Bools,
) -> Floats:  # fmt: skip
    """The linking error of each row, from numbers or from links; 0 of what has it in its values."""
    if has_links(given):
        twice = [name for name in dict.fromkeys(b["variable"][drawn])
                 if isinstance(given, xr.Dataset) or name in given]  # fmt: skip
        if twice:
            raise twice_asked(f"linking_error= is a link of {listed(twice)}")
        out, rest = np.zeros(len(b)), np.flatnonzero(~drawn)
        own = b.iloc[rest]
        later = own["estimate"].to_numpy(dtype=np.float64)
        out[rest] = errors_of_links(
            given, own[names], later, named(texts(own, names)), [kinds[i] for i in rest], scale
        )
        return out
    if scale is not None:
        raise InputError(
            f"scale={scale!r} is the unit of a link, and linking_error= is no link but in the unit "
            f"of the tables: leave scale out"
        )
    return linking_errors(cast(LinkingError, given), b[names], kinds, drawn)


def _welch(variances: Floats, df: Floats) -> Floats:
    """Degrees of freedom of a sum of variances (parts, rows) with `df`; NaN where there are none.

    A part without variance takes part in nothing, whatever its degrees of freedom.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(variances == 0, 0.0, variances**2 / np.where(df > 0, df, np.nan))
        total, share = variances.sum(axis=0), parts.sum(axis=0)
        return np.where(total > 0, np.where(share == 0, np.inf, total**2 / share), np.nan)


def _said(
    out: pd.DataFrame, a: pd.DataFrame, b: pd.DataFrame, names: list[str], in_both: Bools
) -> Iterator[str]:  # fmt: skip
    """What is not as one might think."""
    group = pd.Series(named(texts(out, names)), index=out.index)
    share = out["statistic"].str.startswith("at least")
    for rows, why in (
        (a["se_imputation"].isna() != b["se_imputation"].isna(),
         "errors hold imputation in one of the tables alone"),
        (a["se"].isna() != b["se"].isna(), "errors of one of the tables are not known (NaN)"),
        (out["df"] < FEW, f"intervals have below {FEW} degrees of freedom and are rough"),
        (share & ((a["se"] == 0) | (b["se"] == 0)),
         "a share of none or all has an error of 0, which is not certainty"),
        (in_both, "values of both tables were drawn with a linking error, and errors are those of "
         "links that are independent: where both are by the same link, changes have none of it"),
    ):  # fmt: skip
        if rows.any():
            yield f"{why}: {listed(group[rows])}"
