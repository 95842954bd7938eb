"""Standard errors of a conditioning model where persons were drawn in units, such as schools.

With H the information of a group's parameters and S_c the sum over the persons of unit c of their
weighted scores, estimates have the covariance ``H^-1 (C / (C - 1) sum_c S_c S_c') H^-1`` (Binder
1983; Liang and Zeger 1986), C the units of the group.  The group's mean moves with the coefficients
and with who was drawn: a unit's share in it is that of its persons' predicted abilities too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.engine import Engine
from irt_dask.errors import DataWarning, InputError, first_of
from irt_dask.kernels.base import design_products, fixed_point
from irt_dask.population.basis import Basis
from irt_dask.population.conditioning import Conditioning
from irt_dask.population.group_sums import weights_in
from irt_dask.population.regression import EVERYBODY
from irt_dask.population.units import Units, refuse_many
from irt_dask.store import Block

#: Units below which standard errors are too small as a rule, whatever the degrees of freedom.
_FEW = 30
#: Units for each coefficient below which they are too small where terms differ between units.
_FEW_OF_EACH = 5
#: Units, in effect, that a term must differ in: below, its own coefficients take up their scores.
_LEAST_OF_TERM = 5.0

#: Numbers of a group's units with a response, ascending, and sums of each: (units, columns).
_Sums = dict[int, tuple[Ints, Ints]]


@dataclass(frozen=True)
class OfUnits:
    """By how much each unit of a group moves its estimates."""

    components: Floats  # (units, components x domains), domains fastest
    elements: Floats  # (units, pairs d <= e) of the residual covariance
    mean: Floats  # (units, domains)
    of_each: Floats  # how many units, in effect, tell of each term, (terms,)

    @property
    def n(self) -> int:
        """Number of units with a response."""
        return len(self.mean)

    def covariance(self, moves: Floats) -> Floats:
        """Of estimates that units move so, (units, estimates)."""
        return np.asarray(moves.T @ moves * (self.n / (self.n - 1.0)))

    def of_terms(self, loading: Floats) -> Floats:
        """Standard errors of the terms' coefficients, (terms, domains); NaN of few units."""
        n = loading.shape[1]
        moves = np.einsum("pk,ukd->upd", loading, self.components.reshape(self.n, n, -1))
        found = np.sqrt((moves**2).sum(axis=0) * (self.n / (self.n - 1.0)))
        return np.where((self.of_each >= _LEAST_OF_TERM)[:, None], found, np.nan)

    @property
    def of_mean(self) -> Floats:
        """Standard errors of the group's means, (domains,)."""
        return np.asarray(np.sqrt(np.diag(self.covariance(self.mean))))


def together(alone: list[OfUnits], pairs: Any) -> OfUnits:
    """Of domains that were fitted one by one; between elements of two there is nothing (NaN)."""
    units = alone[0].n
    components = np.stack([x.components for x in alone], axis=2).reshape(units, -1)
    elements = np.full((units, pairs[0].size), np.nan)
    for d, own in enumerate(alone):
        at = int(np.flatnonzero((pairs[0] == d) & (pairs[1] == d))[0])
        elements[:, at] = own.elements[:, 0]
    mean = np.concatenate([x.mean for x in alone], axis=1)
    return OfUnits(components, elements, mean, alone[0].of_each)


def of_units(
    engine: Engine, model: Conditioning, components: list[Floats], bases: list[Basis],
    inverses: list[Floats], units: Units, scores: Callable[[Block], Any], bound: float,
) -> list[OfUnits]:  # fmt: skip
    """Of each group, in one pass; ``inverses`` are those of the informations.

    ``scores`` gives those of a block's persons; ``bound`` is of the scores and their products.
    """
    dims = len(model.domains)
    terms = model.design.n_terms
    width = max(b.n * (dims + 1) + dims * (dims + 1) // 2 for b in bases) + terms
    refuse_many(engine, units, width, "fewer n_components")
    most = max(engine.responses.max_weight or 1.0, 1.0)
    largest = [float(np.abs(b.loading).sum(axis=0).max()) for b in bases]
    scales = [fixed_point.scale_for(engine.n_persons * most * bound * max(x, 1.0)) for x in largest]
    plan = [
        _Plan.of(model, b, s, engine.n_persons * most) for b, s in zip(bases, scales, strict=True)
    ]
    (found,) = engine.map_reduce(_sums, model, plan, scores, combine=_merged)
    names = model.labels or (EVERYBODY,)
    out, few = [], _Few([], [], [])
    for g, (name, basis) in enumerate(zip(names, bases, strict=True)):
        whole, squares = found[g][1][:, :-terms], found[g][1][:, -terms:]
        sums = whole / scales[g]
        if len(sums) < 2:
            raise InputError(
                f"sampling_unit: the persons of {name!r} with a response are all of one unit "
                f"({units.name}), and units tell how much estimates vary by how they differ; give "
                f"at least 2 in each group, or by_group=False"
            )
        of_each = _effective(squares.astype(float))
        few.note(name, len(sums), basis, model.design.terms, of_each)
        n = basis.n * dims
        score, drawn = sums[:, : inverses[g].shape[0]], sums[:, inverses[g].shape[0] :]
        moves = score @ inverses[g]
        mean = moves[:, :dims] + drawn @ components[g][1:] / basis.weight
        out.append(OfUnits(moves[:, :n], moves[:, n:], mean, of_each))
    few.warn(units)
    return out


def _effective(squares: Floats) -> Floats:
    """How many units in effect tell of each term, from their sums of squares, (units, terms)."""
    with np.errstate(invalid="ignore"):
        found = squares.sum(axis=0) ** 2 / (squares**2).sum(axis=0)
    return np.where(np.isfinite(found), found, 0.0)


class _Few(NamedTuple):
    """Groups of few units, with many coefficients for them, and terms that few units tell of."""

    units: list[str]
    coefficients: list[str]
    terms: list[str]

    def note(self, name: str, n: int, basis: Basis, terms: Sequence[str], of_each: Floats) -> None:
        """Look at a group."""
        if n < _FEW:
            self.units.append(f"{name!r} ({n})")
        if n < _FEW_OF_EACH * (basis.n - 1):
            self.coefficients.append(f"{basis.n - 1} for {n} of {name!r}")
        self.terms.extend(
            f"{term!r} ({k:.0f} of {name!r})"
            for term, k, there in zip(terms, of_each, basis.determined, strict=True)
            if there and k < _LEAST_OF_TERM
        )

    def warn(self, units: Units) -> None:
        """Say where standard errors are too small, or are not there."""
        said = []
        if self.units:
            said.append(
                f"few sampling units ({units.name}): {first_of(self.units)}; below {_FEW} standard "
                f"errors are too small as a rule: use t with one degree of freedom less than "
                f"units (attrs degrees_of_freedom), and do not rely on differences of two or "
                f"three standard errors"
            )
        if self.coefficients:
            said.append(
                f"few sampling units ({units.name}) for so many coefficients: "
                f"{first_of(self.coefficients)}; standard errors of terms that differ between "
                f"units are too small, by a factor of up to sqrt(1 - coefficients / units)"
            )
        if self.terms:
            said.append(
                f"{first_of(self.terms)}: so few sampling units ({units.name}), in effect, tell of "
                f"these terms, that they have no standard errors (NaN), as of units that are terms "
                f"themselves"
            )
        for text in said:
            warnings.warn(text, DataWarning, stacklevel=7)


class _Plan(NamedTuple):
    """What sums of a group need: its components, terms made of them, and scales."""

    loading: Floats
    of_terms: Floats  # (components, terms): what the others leave of each term
    scale: float
    scale_of_squares: float

    @classmethod
    def of(cls, model: Conditioning, basis: Basis, scale: float, n: float) -> _Plan:
        """``n`` bounds the sum of weights."""
        to = (model.design.original() @ basis.loading).T
        largest = float(np.abs(basis.loading).sum(axis=0).max() * np.abs(to).sum(axis=0).max())
        return cls(basis.loading, to, scale, fixed_point.scale_for(n * max(largest, 1e-3) ** 2))


def _sums(
    block: Block, model: Conditioning, plan: list[_Plan], scores: Callable[[Block], Any]
) -> tuple[_Sums]:
    """Sums by group and unit.

    Of weighted scores, of the weighted components but the first, and of squares of what the others
    leave of each term.
    """
    w, of_all, group = weights_in(block), scores(block), model.group(block)
    assert block.design is not None
    assert block.unit is not None
    out: _Sums = {}
    for g in np.unique(group):
        its, p = np.flatnonzero((group == g) & (w > 0.0)), plan[g]
        z = design_products.linear_predictor(block.design[its], p.loading)
        products = z[:, :, None] * of_all.ke[its][:, None, :]
        columns = [products.reshape(its.size, -1), of_all.elements[its], z[:, 1:]]
        left = design_products.linear_predictor(block.design[its], p.loading @ p.of_terms)
        each = [
            fixed_point.fixed(w[its, None] * np.concatenate(columns, axis=1), p.scale),
            fixed_point.fixed(w[its, None] * left**2, p.scale_of_squares),
        ]
        out[int(g)] = _by_unit(block.unit[its], np.concatenate(each, axis=1))
    return (out,)


def _by_unit(unit: Ints, each: Ints) -> tuple[Ints, Ints]:
    known, place = np.unique(unit, return_inverse=True)
    sums = np.zeros((known.size, each.shape[1]), dtype=np.int64)
    np.add.at(sums, place, each)
    return known, sums


def _merged(left: tuple[_Sums], right: tuple[_Sums]) -> tuple[_Sums]:
    out = dict(left[0])
    for g, (unit, sums) in right[0].items():
        if g in out:
            both = np.concatenate([out[g][0], unit]), np.concatenate([out[g][1], sums])
            out[g] = _by_unit(*both)
        else:
            out[g] = unit, sums
    return (out,)
