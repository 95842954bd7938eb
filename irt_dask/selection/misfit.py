"""By how much totals miss what the model says of them, measured on persons who answered everything.

Questions that a model of one ability sees as independent go together in fact (topics, formats,
sources), and a sample of questions has its share of that luck.  For a sample of n among N questions
the error has a variance near ``kappa (1 - n / N) / n`` beyond the model's; kappa is measured: those
who answered all questions are predicted from their answers to the very questions that some of the
persons were asked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.engine import Engine, as_responses, refuse_weights
from irt_dask.engine.cache import read_block
from irt_dask.errors import InputError
from irt_dask.kernels.base.fixed_point import fixed, scale_for
from irt_dask.kernels.posterior import totals
from irt_dask.kernels.responses import layouts, response_counts
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.selection.questions import Questions, points_of
from irt_dask.store import Block

#: Persons whose questions those who answered everything are predicted from, at most.
_MASKS = 8

@dataclass(frozen=True)
class Misfit:
    """Variance that the model does not know of, as a multiple of (1 - n / N) / n."""

    kappa: float
    n_questions: int
    points: float
    attrs: dict[str, Any]

    @property
    def said(self) -> str:
        """What results say of it."""
        if not self.attrs:
            return "one ability, items as estimated, its misfit not measured (calibration=)"
        return "one ability, widened by the errors of persons who answered all questions"

    def variance(self, n: Ints) -> Floats:
        """Of totals from n answers."""
        if self.kappa == 0.0:
            return np.zeros(n.size)
        asked = np.maximum(n, 1)
        return np.asarray(self.kappa * (1.0 - asked / self.n_questions) / asked * self.points**2)


NOT_MEASURED = Misfit(0.0, 1, 1.0, {})


def moments(data: Layout, averaged: tuple[Questions, ...]) -> Floats:
    """As :func:`~irt_dask.kernels.posterior.totals.model_moments`, over draws of the items.

    Deviations are from the first mean and added draw by draw: the bits of a person do not depend on
    the others of a block.
    """

    def one(q: Questions) -> Floats:
        return totals.model_moments(*q.posteriors(data).arguments, q.points())

    got, mean, variance, most = one(averaged[0])
    if len(averaged) == 1:
        return np.stack([got, mean, variance, most])
    shift, spread, within = np.zeros_like(mean), np.zeros_like(mean), variance.copy()
    for q in averaged[1:]:
        _, m, v, _ = one(q)
        shift += m - mean
        spread += (m - mean) ** 2
        within += v
    n = len(averaged)
    shift /= n
    between = np.maximum(spread / n - shift**2, 0.0)
    return np.stack([got, mean + shift, within / n + between, most])


def observed(data: Layout, i: int) -> Ints:
    """Items that a person of a block answered."""
    return np.flatnonzero(layouts.to_dense(layouts.row_range(data, i, i + 1)).values[0] >= 0)


# --- measuring ------------------------------------------------------------------------------------


def _asked(ref: Any, rows: Ints) -> list[Ints]:
    """Items that those of some persons, by place among all, answered who are in a block."""
    block = read_block(ref)
    own = rows[(rows >= block.start) & (rows < block.start + block.n_persons)] - block.start
    return [observed(block.data, int(i)) for i in own]


def _errors(
    block: Block, averaged: tuple[Questions, ...], asked: list[Ints], scale: float
) -> tuple[Any, Ints]:
    """Persons who answered everything, and sums of squared errors and variances by set, fixed."""
    bank = averaged[0]
    n_all = bank.bank.n_items
    who = np.flatnonzero(response_counts.responses_per_person(block.data) == n_all)
    sums = np.zeros((len(asked), 2), dtype=np.int64)
    if who.size:
        points = bank.weights.sum()
        data = layouts.take(block.data, who)
        codes = layouts.to_dense(data).values.astype(np.int64)
        truth = np.zeros(who.size)
        per_row = points_of(bank.bank, bank.weights)
        for j in range(n_all):  # one by one: the same bits in any blocks
            truth += per_row[bank.bank.first[j] + codes[:, j]]
        for k, at in enumerate(asked):
            some = tuple(replace(q, own=q.bank.take(at), at=at) for q in averaged)
            got, mean, variance, _ = moments(layouts.columns(data, at), some)
            sums[k, 0] = fixed(((got + mean - truth) / points) ** 2, scale).sum()
            sums[k, 1] = fixed(variance / points**2, scale).sum()
    return np.int64(who.size), sums


def measure(
    engine: Engine, calibration: Any, item_id: tuple[str, ...], averaged: tuple[Questions, ...],
    client: Any,
) -> Misfit:  # fmt: skip
    """Variance beyond the model's that the totals of persons who answered everything have."""
    full = as_responses(calibration, "predict_total", graded=True)
    refuse_weights(full, "predict_total(calibration=)")
    if lacking := sorted(set(item_id) - set(full.item_id)):
        raise InputError(
            f"calibration lacks {len(lacking)} of the {len(item_id)} items, such as {lacking[0]!r}; "
            f"give persons who answered all of them, or leave calibration out"
        )
    n = engine.responses.n_persons
    k = min(_MASKS, n)
    rows = (2 * np.arange(k) + 1) * n // (2 * k)
    asked = [averaged[0].at[a] for part in engine.map_refs(_asked, rows) for a in part]
    different = {a.tobytes(): np.sort(a) for a in asked if 0 < a.size < len(item_id)}
    asked = list(different.values())
    if not asked:
        return replace(NOT_MEASURED, attrs={"n_calibration": 0})
    with Engine(full.select(items=list(item_id)), client=client, graded=True) as other:
        scale = scale_for(float(other.responses.n_persons))
        persons, sums = other.map_reduce(_errors, averaged, asked, scale)
    if persons < 2:
        raise InputError(
            f"calibration has {int(persons)} person(s) who answered all {len(item_id)} items; its "
            f"use needs two or more"
        )
    errors, variances = (sums / scale / float(persons)).T
    size = np.array([a.size for a in asked])
    unit = (1.0 - size / len(item_id)) / size
    kappa = max(float(((errors - variances) / unit).mean()), 0.0)
    attrs = {
        "n_calibration": int(persons),
        "misfit_variance": kappa,
        "misfit_ratio": math.sqrt(float(errors.mean() / variances.mean())),
    }
    return Misfit(kappa, len(item_id), float(averaged[0].weights.sum()), attrs)
