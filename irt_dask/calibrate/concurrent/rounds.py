"""Rounds of a concurrent calibration: fit, look at every item in every group, free, fit again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.concurrent import pair_tests, residual_sums
from irt_dask.calibrate.concurrent.sets import Sets
from irt_dask.calibrate.marginal.expected import Grid
from irt_dask.calibrate.marginal.model import Model
from irt_dask.calibrate.marginal.rounds import Rounds
from irt_dask.engine import Engine
from irt_dask.items.mixture import Mixture
from irt_dask.store.freed_items import Naming

#: Letters of parameters that are not tested: asymptotes, of which a group says next to nothing.
_ASYMPTOTES = ("c", "u")
#: Rounds after which what is freed stays so, that rounds cannot go in a circle.
_SETTLED = 3


@dataclasses.dataclass(frozen=True)
class Rule:
    """When a pair is freed: by the test at a ``rate`` of false ones, or by a ``cutoff`` of RMSD."""

    rate: float
    least: float
    cutoff: float | None
    #: As results say it.
    free: str | float = "test"

    @property
    def at(self) -> float | None:
        """Rate of false alarms at which groups are cleared away before others are tested."""
        return self.rate if self.free == "test" else None

    def chosen(self, pairs: pair_tests.Pairs, highest: Floats, freed: Bools, kept: Bools) -> Bools:
        """Pairs to be freed next, (sets, items); ``kept`` stay if they are."""
        apart = pairs.apart
        with np.errstate(invalid="ignore"):
            if self.cutoff is not None:
                wanted = pairs.enough & (apart.rmsd > self.cutoff * highest)
            else:
                wanted = (pairs.q_value <= self.rate) & ~pairs.agree
                wanted &= apart.corrected >= self.least * highest
        # A curve at a bound, as of an item that all have right, cannot be compared: it stays.
        wanted |= freed & (kept | ~pairs.enough)
        return np.asarray(wanted & ~_nearest(apart.rmsd, apart.n > 0, wanted, freed))


def _nearest(rmsd: Floats, there: Bools, wanted: Bools, freed: Bools) -> Bools:
    """Sets that keep an item in common where it would be freed in all: the nearer half."""
    everywhere = (wanted | ~there).all(axis=0)
    out = np.zeros_like(wanted)
    for j in np.flatnonzero(everywhere & there.any(axis=0)):
        left = np.flatnonzero(there[:, j] & ~freed[:, j])
        out[left, j] = rmsd[left, j] <= np.median(rmsd[left, j])
    return out


class Change(NamedTuple):
    """A pair that a round freed, or took back, and what the round before had found of it."""

    round: int
    set: int
    item: int
    freed: bool
    rmsd: float
    expected: float
    corrected: float
    md: float
    p_value: float
    q_value: float


class Asked(NamedTuple):
    """What is asked for, the same in every round."""

    model: str | Mapping[str, str]
    reference: str | None
    guessing_prior: tuple[float, float] | None
    max_iterations: int
    tolerance: float
    standard_errors: bool | str | None
    sampling_unit: Any
    client: Any
    progress: Any
    checkpoint: str | Path | None


def changes(number: int, before: Bools, after: Bools, pairs: pair_tests.Pairs) -> list[Change]:
    """Pairs that are freed, or no longer, in order of sets and items."""
    out, apart = [], pairs.apart
    for k, j in np.argwhere(before != after).tolist():
        found = [float(x[k, j]) for x in (
            apart.rmsd, apart.expected, apart.corrected, apart.md, pairs.p_value, pairs.q_value
        )]  # fmt: skip
        out.append(Change(number, k, j, bool(after[k, j]), *found))
    return out


def stays(number: int, models: Mixture, naming: Naming, sets: Sets) -> Bools:
    """Pairs that are not taken back, (sets, items): late, and of items with asymptotes.

    Those have different ones where they are freed, and slopes and intercepts that go with them, so
    that these are not compared.
    """
    has = np.zeros(models.n_items, dtype=bool)
    for part in models.parts:
        has[part.at] = any(p.letter in _ASYMPTOTES for p in part.model.parameters)
    return np.asarray(has[naming.columns[sets.first]] | (number >= _SETTLED))


def tested(model: Model, naming: Naming) -> Bools:
    """Parameters that are tested, (parameters, items of the responses)."""
    out = model.own.copy()
    for part in model.items.parts:
        for k, p in enumerate(part.model.parameters):
            if p.letter in _ASYMPTOTES:
                out[k, part.at] = False
    return out[:, common_of(naming)]


def common_of(naming: Naming) -> Any:
    """Fitted item that stands for each item's common curve; any one where all are freed."""
    return naming.columns.min(axis=0)


def _largest(engine: Engine) -> float:
    """The largest sampling weight next to the mean of all."""
    largest = engine.responses.max_weight
    return 1.0 if not engine.sampled or largest is None else max(1.0, largest)


def looked_at(
    engine: Engine, fit: Rounds, x: Floats, naming: Naming, freed: Bools, rate: float | None,
    sets: Sets,
) -> pair_tests.Pairs:  # fmt: skip
    """Distances and tests of all pairs at fitted parameters: one pass of ``engine``.

    It is over the responses with items as they were given; ``freed`` are (sets, items).
    """
    model = fit.model
    items, (values, ability) = model.item_set(x), model.unpack(x)
    grid, own = Grid.of(model, items, ability), tested(model, naming)
    size = int(np.flatnonzero(own.any(axis=1)).max()) + 1
    some = np.isfinite(grid.log_mass).all(axis=0)
    setting = residual_sums.Setting(
        items, naming.columns, common_of(naming), grid.nodes[some], grid.log_mass[:, some],
        ability[0], np.exp(ability[1]), size, engine.sampled, engine.n_persons, _largest(engine),
    )  # fmt: skip
    sums = residual_sums.measure(engine, setting)
    return pair_tests.compare(sums, setting, freed, own, values, rate, sets)
