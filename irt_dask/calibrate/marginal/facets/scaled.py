"""Numbers of facets while a fit runs: of mean 0 and SD 1, so that years are as good as decades.

A coefficient of (v - c) / s is s times that of v, and what -c / s moves goes into a term that is
there anyway: items' own difficulties, the constant, effects of levels, other numbers.  Where there
is none, another c would be another model, and numbers keep their place.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from irt_dask.arrays import Floats
from irt_dask.calibrate.marginal.facets.terms import Factor, Term
from irt_dask.errors import DataWarning

#: Means in SDs from which on it is said that numbers cannot be moved.
_FAR = 20.0
#: Whether columns have effects of factors with these names without the term.
There = Callable[..., bool]


class Part(NamedTuple):
    """A product of factors as they were given, and how often a term of moved ones has it."""

    kept: tuple[Factor, ...]
    times: float


class Scaled(NamedTuple):
    """A term with its numbers moved: ``of_columns`` is what a column's effect is multiplied by.

    ``rest`` are the other parts of the term, without some of its numbers.
    """

    term: Term
    of_columns: Floats
    whole: float
    rest: tuple[Part, ...]


def scaled(term: Term, n: int, there: There, linear: bool) -> Scaled:
    """The term of n columns, with numbers at mean 0 where other terms take what that moves."""
    times, parts = np.ones(n), [Part((), 1.0)]
    for f in term.factors:
        if not f.numeric:
            parts = [Part((*p.kept, f), p.times) for p in parts]
            continue
        same = bool(np.ptp(f.values) == 0.0)
        mean, sd = float(np.mean(f.values)), 1.0 if same else float(np.std(f.values))
        if not _may_move(f, term, there, linear):
            if not same and abs(mean) > _FAR * sd:
                _warn_far(f, term, mean, sd)
            mean = 0.0
        times = times * ((f.values - mean) / sd)
        moved = [Part(p.kept, -p.times * mean / sd) for p in parts if mean != 0.0]
        parts = [*(Part((*p.kept, f), p.times / sd) for p in parts), *moved]
    return Scaled(term, times, parts[0].times, tuple(parts[1:]))


def _may_move(f: Factor, term: Term, there: There, linear: bool) -> bool:
    """Whether other terms take what a number of a term moves, with their sums as they are."""
    for other in (o for o in term.factors if o is not f):
        # Effects of levels sum to 0, and so must what goes into them.
        sums = other.numeric or (other.of_items and not linear) or there(f.name)
        if not (there(other.name) and sums):
            return False
    return True


def _warn_far(f: Factor, term: Term, mean: float, sd: float) -> None:
    other = next(o.name for o in term.factors if o is not f)
    warnings.warn(
        f"numbers of {f.name!r} lie far from 0 (mean {mean:.6g}, SD {sd:.3g}), and {term.name} is "
        f"there without effects of {f.name!r} and {other!r} that could take what a shift of them "
        f"moves: estimates may end at bounds, and standard errors be too small; name both beside "
        f"{term.name}, or give {f.name!r} from nearer to 0 on",
        DataWarning,
        stacklevel=8,
    )


def given(found: Sequence[Scaled], sizes: Sequence[int], linear: bool) -> Any:
    """Effects of numbers as they were given by those of moved ones, sparse (effects, effects)."""
    first = np.concatenate([[0], np.cumsum(sizes)])
    place = {frozenset(f.name for f in s.term.factors): k for k, s in enumerate(found)}
    row, column, value = [], [], []
    for k, (s, size) in enumerate(zip(found, sizes, strict=True)):
        # What items have of their own takes the rest of the parts, where there is such.
        moved = [p for p in s.rest if linear or not _is_of_items(p)]
        for part in (Part(s.term.factors, s.whole), *moved):
            to = place[frozenset(f.name for f in part.kept)]
            row.append(first[to] + np.arange(size))
            column.append(first[k] + np.arange(size))
            value.append(np.full(size, part.times))
    at = np.concatenate(row), np.concatenate(column)
    return scipy.sparse.csr_array((np.concatenate(value), at), shape=(first[-1], first[-1]))


def at_zero(s: Scaled, n: int) -> Floats:
    """What effects of a term add to the items of n columns where its numbers of columns are 0."""
    out = np.zeros(n)
    for part in s.rest:
        if _is_of_items(part):
            out += part.times * math.prod((f.values for f in part.kept if f.numeric), start=1.0)
    return out


def _is_of_items(part: Part) -> bool:
    return all(f.of_items for f in part.kept)
