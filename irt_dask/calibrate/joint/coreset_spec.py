"""Coresets: what is sampled and with which scores, and the draw of items.

A person's probability is proportional to a score (:mod:`irt_dask.kernels.coresets.sensitivities`),
a function of its ability that the driver tabulates from the histogram of persons; blocks read their
scores from the table.  Persons are drawn by :mod:`irt_dask.calibrate.joint.coreset_draws`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.joint.person_step import AXIS
from irt_dask.curves.grids import ABILITY_BOUND
from irt_dask.errors import EstimationError, InputError
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.coresets import label_sensitivities
from irt_dask.kernels.coresets import sensitivities as kernels
from irt_dask.kernels.coresets import weighted_draws as sampling
from irt_dask.kernels.responses import layouts

#: Scores by label, and the model whose bounds they are.
LABELS, LABELS_MODEL = "labels-3pl", "3pl"
METHODS = (*kernels.METHODS, LABELS)
REDUCE = ("persons", "items", "both")
POISSON = "poisson"
SAMPLING = ("replacement", "reservoir", POISSON)


@dataclass(frozen=True)
class Coreset:
    """Fit on a weighted sample of persons, of items, or of both, drawn anew in every iteration.

    Parameters
    ----------
    size : int or (int, int)
        Draws per iteration; for ``reduce="both"`` of persons and of items, or one number for
        either, where no more are drawn than there are.
    method : {"root-leverage", "leverage-l1", "lewis", "uniform", "kmeans", "labels-3pl"}
        What probabilities are proportional to: the square root of the leverage score plus 1/n, l1
        leverage scores or l1 Lewis weights plus 1/n, nothing, squared distances to 10 centres
        (half; the other half uniform), or the 3PL model's sensitivity bounds, which look at the
        responses (persons only).
    reduce : {"persons", "items", "both"}
        "persons": the item step sees the sample.  "items": the ability step does; with few items
        abilities fit the drawn ones too well, and ``coreset_objective`` is then far too high.
    sampling : {"replacement", "reservoir", "poisson"}
        Draws with replacement, each standing for ``1 / (size p)`` rows; or without, where a row is
        in with probability ``min(1, size p)`` and stands for its inverse: a weighted reservoir of
        exactly ``size`` rows, which takes one more pass over the data, or each person by itself, so
        that ``size`` is the number expected.  The last is the fastest by far: p comes from the
        sample before, and abilities are found only of persons that may be in (persons only, not
        for labels).
    """

    size: int | tuple[int, int]
    method: str = "root-leverage"
    reduce: str = "persons"
    sampling: str = "replacement"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("method", self.method, METHODS),
            ("reduce", self.reduce, REDUCE),
            ("sampling", self.sampling, SAMPLING),
        ):
            if value not in known:
                raise InputError(f"Coreset {name}={value!r}; choose one of {', '.join(known)}")
        pair = isinstance(self.size, (tuple, list))
        if pair and self.reduce != "both":
            raise InputError(
                f"Coreset size={self.size!r} with reduce={self.reduce!r}: a pair is for "
                f'reduce="both"; give one number'
            )
        sizes = tuple(self.size) if isinstance(self.size, (tuple, list)) else (self.size,)
        if pair and len(sizes) != 2:
            raise InputError(f"Coreset size={self.size!r} must be one number or (persons, items)")
        for size in sizes:
            whole = isinstance(size, (int, np.integer)) and not isinstance(size, bool)
            if not whole or size < 1:
                raise InputError(f"Coreset size={self.size!r} must be a whole number of at least 1")
        if pair:
            object.__setattr__(self, "size", sizes)  # a list (from a file) as a tuple
        if self.method == LABELS and self.reduce != "persons":
            raise InputError(
                f"Coreset method={LABELS!r} with reduce={self.reduce!r}: it draws persons; use "
                f'reduce="persons" or another method'
            )
        if self.sampling == POISSON and (self.reduce != "persons" or self.method == LABELS):
            raise InputError(
                f"Coreset sampling={POISSON!r} with method={self.method!r}, reduce="
                f"{self.reduce!r}: it draws persons, by their abilities; use another sampling"
            )

    def sizes(self, n_persons: int, n_items: int) -> tuple[int | None, int | None]:
        """Draws of persons and of items, None where all are used."""
        if isinstance(self.size, tuple):
            return self.size[0], min(self.size[1], n_items)
        if self.reduce == "both":
            return min(self.size, n_persons), min(self.size, n_items)
        if self.reduce == "items":
            return None, min(self.size, n_items)
        return self.size, None


@dataclass(frozen=True)
class Labels:
    """What the scores by label need of the items: persons wrong and right, P far below the item."""

    wrong: Floats | Ints
    right: Floats | Ints
    floor: Floats
    mu: float = label_sensitivities.MU


@dataclass(frozen=True)
class Scores:
    """A person's integer score, from its ability and, for some methods, its responses."""

    table: Floats
    scale: float
    terms: label_sensitivities.LabelTerms | None = None

    @classmethod
    def of(cls, method: str, size: int, count: Floats, labels: Labels | None = None) -> Scores:
        """Scores for a histogram of the persons with responses on the axis."""
        if not count.sum() > 0:
            raise EstimationError("no person has any response: there is nothing to draw from")
        if method != LABELS:
            table = kernels.score_table(method, AXIS, count, size)
            return cls(table, fixed_point.scale_for(2.0 * float(count @ table)))
        if labels is None:
            raise InputError(f"scores {LABELS!r} need the numbers wrong and right of each item")
        wrong, right = (np.asarray(x, dtype=float) for x in (labels.wrong, labels.right))
        terms = label_sensitivities.label_terms(wrong, right, labels.floor, labels.mu)
        # |U_i|: the table without its 1/n
        length = kernels.score_table("root-leverage", AXIS, count, size) - 1.0 / count.sum()
        total = terms.slope.max() * (count @ length)
        total += terms.base[0] @ wrong + terms.base[1] @ right
        return cls(length, fixed_point.scale_for(2.0 * float(total)), terms)

    @property
    def largest(self) -> int:
        """No person has a higher score; not for scores by label."""
        return int(np.ceil(self.table.max() * self.scale)) + 1

    def __call__(self, data: layouts.Layout | None, theta: Floats) -> Ints:
        """Scores of the persons of a block, in units of ``1 / scale``; 0 without responses.

        ``data`` are their responses, which only scores by label look at.
        """
        value = kernels.interpolate(self.table, theta, ABILITY_BOUND)
        if self.terms is not None:
            if data is None:
                raise ValueError("scores by label need the responses")
            value = label_sensitivities.label_scores(data, value, self.terms)
        return kernels.positive(value, self.scale)


def draw_items(
    a: Floats, d: Floats, size: int, method: str, generator: np.random.Generator,
    sampling_method: str = "replacement",
) -> tuple[NDArray[np.intp], Floats]:  # fmt: skip
    """Draw items for the ability step, whose data are the rows ``(a_j, d_j)``.

    Returns distinct items, ascending, and their weights; all of them with weight 1 if there are no
    more than ``size``.  Scores are those of :mod:`irt_dask.kernels.coresets.sensitivities`, from
    the rows themselves; "kmeans" takes 10 centres drawn by k-means++ and moved by ten steps of
    Lloyd's.
    """
    m = a.size
    if size >= m:
        return np.arange(m), np.ones(m)
    x, count = np.stack([a, d], axis=1), np.ones(m)
    if method == "kmeans":
        score = kernels.distance_scores(kernels.plane_distances(x, size, generator), count)
    else:
        score = kernels.row_scores(method, x, count)
    whole = kernels.positive(score, fixed_point.scale_for(2.0 * float(score.sum())))
    if sampling_method == "reservoir":
        offset = int(generator.integers(0, 1 << 52))
        return sampling.reservoir(whole, size, offset, generator.random((m, 2)))
    total = int(whole.sum())
    rows, times = sampling.drawn(whole, sampling.targets(generator, total, size))
    return rows, sampling.drawn_weight(whole[rows], times, total, size)
