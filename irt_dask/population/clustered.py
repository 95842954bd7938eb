"""Standard errors of a conditioning model where persons were drawn in units, such as schools.

With H the information of a group's parameters and S_c the sum over the persons of unit c of their
weighted scores, estimates have the covariance ``H^-1 (C / (C - 1) sum_c S_c S_c') H^-1`` (Binder
1983; Liang and Zeger 1986), C the units of the group.  The group's mean moves with the coefficients
and with who was drawn: a unit's share in it is that of its persons' predicted abilities too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.engine import Engine
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.errors import DataWarning, InputError, TooLargeError
from irt_dask.kernels.base import design_products, fixed_point
from irt_dask.population.basis import Basis
from irt_dask.population.conditioning import Conditioning
from irt_dask.population.group_sums import weights_in
from irt_dask.population.regression import EVERYBODY
from irt_dask.population.units import Units
from irt_dask.store import Block

#: Units below which standard errors are too small as a rule, whatever the degrees of freedom.
_FEW = 30
#: Bytes of the sums of all units, at most.
_BYTES = 1 << 30

#: Numbers of a group's units with a response, ascending, and sums of each: (units, columns).
_Sums = dict[int, tuple[Ints, Ints]]


@dataclass(frozen=True)
class OfUnits:
    """By how much each unit of a group moves its estimates."""

    components: Floats  # (units, components x domains), domains fastest
    elements: Floats  # (units, pairs d <= e) of the residual covariance
    mean: Floats  # (units, domains)

    @property
    def n(self) -> int:
        """Number of units with a response."""
        return len(self.mean)

    def covariance(self, moves: Floats) -> Floats:
        """Of estimates that units move so, (units, estimates)."""
        return np.asarray(moves.T @ moves * (self.n / (self.n - 1.0)))

    def of_terms(self, loading: Floats) -> Floats:
        """Standard errors of the terms' coefficients, (terms, domains)."""
        n = loading.shape[1]
        moves = np.einsum("pk,ukd->upd", loading, self.components.reshape(self.n, n, -1))
        return np.asarray(np.sqrt((moves**2).sum(axis=0) * (self.n / (self.n - 1.0))))

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
    return OfUnits(components, elements, np.concatenate([x.mean for x in alone], axis=1))


def of_units(
    engine: Engine, model: Conditioning, components: list[Floats], bases: list[Basis],
    inverses: list[Floats], units: Units, scores: Callable[[Block], Any], bound: float,
) -> list[OfUnits]:  # fmt: skip
    """Of each group, in one pass; ``inverses`` are those of the informations.

    ``scores`` gives those of a block's persons; ``bound`` is of the scores and their products.
    """
    dims = len(model.domains)
    width = max(b.n * (dims + 1) + dims * (dims + 1) // 2 for b in bases)
    _refuse_many(engine, units, width)
    most = max(engine.responses.max_weight or 1.0, 1.0)
    largest = [float(np.abs(b.loading).sum(axis=0).max()) for b in bases]
    scales = [fixed_point.scale_for(engine.n_persons * most * bound * max(x, 1.0)) for x in largest]
    (found,) = engine.map_reduce(_sums, model, bases, scales, scores, combine=_merged)
    names = model.labels or (EVERYBODY,)
    out, few = [], []
    for g, (name, basis) in enumerate(zip(names, bases, strict=True)):
        sums = found[g][1] / scales[g]
        if len(sums) < 2:
            raise InputError(
                f"sampling_unit: the persons of {name!r} with a response are all of one unit "
                f"({units.name}), and units tell how much estimates vary by how they differ; give "
                f"at least 2 in each group, or by_group=False"
            )
        if len(sums) < _FEW:
            few.append(f"{name!r} ({len(sums)})")
        n = basis.n * dims
        score, drawn = sums[:, : inverses[g].shape[0]], sums[:, inverses[g].shape[0] :]
        moves = score @ inverses[g]
        mean = moves[:, :dims] + drawn @ components[g][1:] / basis.weight
        out.append(OfUnits(moves[:, :n], moves[:, n:], mean))
    _warn(few, units)
    return out


def _warn(few: list[str], units: Units) -> None:
    if few:
        warnings.warn(
            f"few sampling units ({units.name}): {', '.join(few[:10])}; below {_FEW} standard "
            f"errors are too small as a rule: use t with one degree of freedom less than units "
            f"(attrs degrees_of_freedom), and do not rely on differences of two or three standard "
            f"errors",
            DataWarning,
            stacklevel=6,
        )


def _refuse_many(engine: Engine, units: Units, width: int) -> None:
    """Stop before sums of units that are too many."""
    needed = 8.0 * units.n_labels * width
    what = f"sums of scores of {units.n_labels} sampling units by {width} parameters"
    if needed > _BYTES:
        raise TooLargeError(
            f"{what} take {needed / 2**30:.1f} GiB, and {_BYTES / 2**30:.0f} GiB is the most; use "
            f"larger units, or fewer n_components"
        )
    refuse_beyond_memory(needed * 3, what)


def _sums(
    block: Block,
    model: Conditioning,
    bases: list[Basis],
    scales: list[float],
    scores: Callable[[Block], Any],
) -> tuple[_Sums]:
    """Sums by group and unit: of weighted scores, and of the weighted components but the first."""
    w, of_all, group = weights_in(block), scores(block), model.group(block)
    assert block.design is not None
    assert block.unit is not None
    out: _Sums = {}
    for g in np.unique(group):
        its = np.flatnonzero((group == g) & (w > 0.0))
        z = design_products.linear_predictor(block.design[its], bases[g].loading)
        products = z[:, :, None] * of_all.ke[its][:, None, :]
        columns = [products.reshape(its.size, -1), of_all.elements[its], z[:, 1:]]
        each = fixed_point.fixed(w[its, None] * np.concatenate(columns, axis=1), scales[g])
        out[int(g)] = _by_unit(block.unit[its], each)
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
