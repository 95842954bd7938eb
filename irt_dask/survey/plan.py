"""What a table or a regression reads of its source, checked: :func:`planned`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from irt_dask.arrays import Floats
from irt_dask.errors import DataWarning, InputError, listed, repeated
from irt_dask.items.link_constants import OF_PERSONS
from irt_dask.survey.delimited import Source, check_decimal, checked_delimiter
from irt_dask.survey.linking import LINKING, with_links
from irt_dask.survey.replicates import Replicates, counted, label_columns, lacking, matching
from irt_dask.survey.statistics import Statistic, products, summands
from irt_dask.survey.tables import (
    On,
    Table,
    numbers,
)
from irt_dask.survey.units import Units
from irt_dask.survey.zones import Zones

if TYPE_CHECKING:  # formulaic takes a while to load, and tables need none of it
    from irt_dask.survey.predictors import Predictors

#: What is tabulated: a column, a pattern or columns of plausible values; or several by name.
Values = str | Sequence[str] | Mapping[str, str | Sequence[str]]

#: Columns of a table's figures, and all that it has of its own.
COLUMNS = ("estimate", "se", "se_sampling", "se_imputation", "df", "fraction_missing", "lower",
           "upper", "n")  # fmt: skip
#: How scores call a posterior mean, and what they have beside it.
_EAP, _EAP_SD = "person_ability", "person_ability_sd"
OWN = ("variable", "row", "statistic", "term", *COLUMNS, LINKING)


@dataclass(frozen=True)
class Plan:
    """Which columns are read, and what of them is kept."""

    variables: Mapping[str, Sequence[str]]
    by: Sequence[str]
    weight: str | None
    replicates: Replicates | None
    statistics: Sequence[Statistic] = ()
    #: Of a regression, which has no statistics.
    predictors: Predictors | None = None
    #: Whether values are 0 or 1, or become so by a cut.
    binary: bool = False
    cut: float | None = None
    #: Variables whose plausible values have a linking error drawn in.
    linked: frozenset[str] = frozenset()

    @property
    def columns(self) -> list[str]:
        """All of them."""
        of_weights = [self.weight] if self.weight else []
        if self.replicates is not None:
            of_weights += self.replicates.columns
        if self.predictors is not None:
            of_weights += self.predictors.columns
        return [*self.by, *of_weights, *(c for cs in self.variables.values() for c in cs)]

    @property
    def of_variables(self) -> list[Statistic]:
        """Statistics of one variable."""
        return [s for s in self.statistics if s.kind != "correlation"]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of variables whose correlation is asked for."""
        asked = any(s.kind == "correlation" for s in self.statistics)
        return list(combinations(self.variables, 2)) if asked else []

    @property
    def centred(self) -> bool:
        """Whether values may be moved: a regression without intercept would notice."""
        if self.predictors is None:
            return True
        return self.predictors.intercept is not None and not self.binary

    def summands(self, x: Floats, predictors: Floats | None, centre: float) -> Floats:
        """What is summed, of values x (persons, plausible values)."""
        if predictors is not None:
            return products(predictors, x - centre)
        moved = [Statistic(s.name, s.kind, s.at - centre) for s in self.of_variables]
        return summands(x - centre, moved)

    def weights(self, batch: pd.DataFrame, first_row: int) -> Floats:
        """(persons, 1 + replicates), the full sample's first."""
        full = np.ones(len(batch))
        if self.weight:
            full = numbers(batch, self.weight, first_row)
            if not np.all(ok := np.isfinite(full) & (full >= 0)):
                row = int(np.argmin(ok))
                raise InputError(
                    f"row {first_row + row + 1}, column {self.weight!r}: {full[row]} is no weight"
                )
        if self.replicates is None:
            return full[:, None]
        r = self.replicates
        words = label_columns(r)
        needed = {k: batch[k] if words else numbers(batch, k, first_row) for k in r.columns}
        return np.concatenate([full[:, None], r.matrix(needed, full, first_row)], 1)


def opened(
    persons: Source, join: Source | None, on: On, by: str | Sequence[str],
    replicates: Replicates | None, delimiter: str | None, decimal: str | None,
) -> Table:  # fmt: skip
    """The table of persons, with which columns are labels."""
    delimiter = checked_delimiter(delimiter, persons, join)
    check_decimal(decimal, persons, join)
    of_units = [] if replicates is None else label_columns(replicates)
    labels = [*([by] if isinstance(by, str) else by), *of_units]
    return Table(persons, join, on, labels, delimiter, decimal)


def planned(
    table: Table, values: Values, *, by: str | Sequence[str], weight: str | None,
    replicates: Replicates | None, level: float, statistics: Sequence[Statistic] = (),
    predictors: Predictors | None = None, binary: bool = False, cut: float | None = None,
) -> Plan:  # fmt: skip
    """What is read of a table, checked."""
    if not 0 < level < 1:
        raise InputError(f"level={level!r} is not between 0 and 1")
    plan = asked(
        table.columns, values, by=by, weight=weight, replicates=replicates, statistics=statistics
    )
    if plan.replicates is not None and (labels := label_columns(plan.replicates)):
        plan = replace(plan, replicates=counted(plan.replicates, table.batches(labels)))
    if plan.weight is None and (kind := table.lacking_weights):
        warnings.warn(
            f"{table.name}: persons have {kind} weights, which scores do not hold, so that each "
            f"counts once here: give weight= the column of a table that is joined by join= and on=",
            DataWarning,
            stacklevel=3,
        )
    linked, unknown = with_links(plan.variables, table.columns)
    plan = replace(plan, predictors=predictors, binary=binary, cut=cut, linked=linked)
    _warn_of_best_guesses(plan.variables, table.columns)
    _warn_of_links(plan, unknown, table)
    _warn_of_lost_columns(values, replicates, table.columns)
    return plan


def asked(
    columns: Sequence[str], values: Values, *, by: str | Sequence[str], weight: str | None,
    replicates: Replicates | None, statistics: Sequence[Statistic] = (),
) -> Plan:  # fmt: skip
    """What is read of a table with these columns, as far as they say it; an error at others."""
    by = _groups(by, columns)
    if replicates is not None:
        weight = weight or replicates.weight
        replicates = replicates.resolved(columns)
    if weight is not None:
        matching(weight, columns)
    plan = Plan(_variables(values, columns), by, weight, replicates, statistics)
    if any(s.kind == "correlation" for s in statistics) and not plan.pairs:
        raise InputError(
            f"'correlation' is of two variables or more, and values={values!r} is one: give a "
            "mapping, as {'math': 'PV*MATH', 'read': 'PV*READ'}"
        )
    for a, b in plan.pairs:
        n, m = (len(plan.variables[name]) for name in (a, b))
        if n != m and 1 not in (n, m):
            raise InputError(
                f"{a!r} has {n} plausible values and {b!r} has {m}: for a correlation they must be "
                "as many, drawn together, or one of them a single value"
            )
    return plan


def _groups(by: str | Sequence[str], columns: Sequence[str]) -> list[str]:
    """Columns of groups, checked."""
    by = [by] if isinstance(by, str) else list(by)
    for name in by:
        parts = [part.strip() for part in name.split(",")]
        if name not in columns and len(parts) > 1 and {*parts} <= {*columns}:
            raise InputError(
                f"no column is {name!r}, and {listed(parts)} are: name each by itself, by={parts!r}"
            )
        matching(name, columns)
        if name in OWN:
            raise InputError(f"by= has {name!r}, a column of the result: give it another name")
    if twice := repeated(by):
        raise InputError(f"by= has {twice[0]!r} twice")
    return by


def _warn_of_lost_columns(
    values: Values, replicates: Replicates | None, columns: Sequence[str]
) -> None:
    """Say of which patterns columns seem to be missing: what is left would be taken for all."""
    of = [*values.values()] if isinstance(values, Mapping) else [values]
    if replicates is not None and not isinstance(replicates.weights, (Zones, Units)):
        of.append(replicates.weights)
    patterns = [p for each in of for p in ([each] if isinstance(each, str) else each) if "*" in p]
    said = [lacking(p, matching(p, columns)) for p in dict.fromkeys(patterns)]
    if found := [text for text in said if text]:
        warnings.warn(
            f"{'; '.join(found)}: estimates and errors are as if there were no others",
            DataWarning,
            stacklevel=4,
        )


def _warn_of_links(plan: Plan, unknown: Sequence[str], table: Table) -> None:
    """Say of which values a link is not known to be in, and where it has no error."""
    if unknown:
        warnings.warn(
            f"{listed(unknown)}: {table.name} has values with the error of a link (its column "
            f"{OF_PERSONS}...), and these columns are not named as scores name them (pv1, pv2, "
            f"..., pv1_DOMAIN): they are taken to have none; if they have, keep their names",
            DataWarning,
            stacklevel=4,
        )
    if single := [name for name in plan.linked if len(plan.variables[name]) == 1]:
        warnings.warn(
            f"{listed(sorted(single))} is a single plausible value, with a single draw of the link "
            f"that it was scored by: the linking error moves it, and is in no error here; take all "
            f"plausible values",
            DataWarning,
            stacklevel=4,
        )


def _warn_of_best_guesses(variables: Mapping[str, Sequence[str]], columns: Sequence[str]) -> None:
    """Say that means of posteriors are no abilities: scores name their SD, other estimates not."""
    if _EAP_SD not in columns:
        return
    guesses = [f"{name!r}" for name, of in variables.items() if [*of] == [_EAP]]
    if guesses:
        warnings.warn(
            f"{', '.join(guesses)} is {_EAP}, the mean of each person's posterior: such best "
            f"guesses vary less than abilities do, so that SDs, percentiles, shares and "
            f"differences of groups come out too small, and no standard error says so; take "
            f"plausible values (irt.score(n_plausible=10), irt-dask score --plausible 10)",
            DataWarning,
            stacklevel=4,
        )


def _variables(values: Values, columns: Sequence[str]) -> dict[str, list[str]]:
    """Columns of each variable by its name."""
    if isinstance(values, str):
        values = {values: values}
    elif not isinstance(values, Mapping):
        names = list(values)
        values = (
            {f"{names[0]}..{names[-1]}" if len(names) > 1 else names[0]: names} if names else {}
        )
    if not values:
        raise InputError("values= names no column")
    out = {}
    for name, wanted in values.items():
        each = [wanted] if isinstance(wanted, str) else list(wanted)
        out[name] = [c for pattern in each for c in matching(pattern, columns)]
        if twice := repeated(out[name]):
            raise InputError(f"values= has {twice[0]!r} twice")
    return out
