"""By how much totals miss what the model says of them, measured on persons who answered everything.

Questions that a model of one ability sees as independent go together in fact (topics, formats,
sources), and how much a person gets right may differ from what that ability says.  Those who
answered all questions are predicted from their answers to the very questions that some of the
persons were asked.  Their errors say two things.  How far to go from the model's total to the one
by the formula for random samples, which does not trust the model: the share of the way with the
least squares (for questions that were chosen it is no more than a correction by the residuals of
the answers there are).  And how much wider to be: for a sample of n among N questions the error has
a variance near ``kappa (1 - n / N) / n`` beyond the model's.
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
from irt_dask.items.parameters import refuse_other_categories
from irt_dask.kernels.base.fixed_point import fixed, scale_for
from irt_dask.kernels.responses import layouts, response_counts
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.selection.questions import Questions, points_of_categories
from irt_dask.store import Block, Responses

#: Persons whose questions those who answered everything are predicted from, at most.
_MASKS = 8


@dataclass(frozen=True)
class Misfit:
    """What errors of others say of the model: how far to trust it, and how far to widen."""

    #: How much of the way from the model's total to that by design the estimate goes.
    share: float
    #: Variance that the model does not know of, as a multiple of (1 - n / N) / n.
    kappa: float
    n_questions: int
    points: float
    attrs: dict[str, Any]

    def said(self, of: str) -> str:
        """What results say of a model ``of`` some abilities."""
        if not self.attrs:
            return f"{of}, items as estimated, its misfit not measured (calibration=)"
        by = "by errors of persons who answered all questions"
        if self.share == 0.0 and self.kappa == 0.0:
            return f"{of}, whose misfit was measured {by}: nothing to correct or to widen"
        return f"{of}, corrected and widened {by}"

    def variance(self, n: Ints) -> Floats:
        """Of totals from n answers."""
        if self.kappa == 0.0:
            return np.zeros(n.size)
        asked = np.maximum(n, 1)
        return np.asarray(self.kappa * (1.0 - asked / self.n_questions) / asked * self.points**2)


NOT_MEASURED = Misfit(0.0, 0.0, 1, 1.0, {})


def by_design(data: Layout, q: Questions, found: Floats) -> Floats:
    """What the rest adds by the formula for random samples, within what the answers leave possible.

    ``found`` are :func:`moments`; who answered nothing has the model's expectation.
    """
    anybody = np.full(q.design.size.size, -1)
    (total, _), _ = q.design_moments(data, anybody)
    got, mean, _, most = found
    rest = np.clip(total - got, 0.0, np.maximum(q.weights.sum() - most, 0.0))
    return np.asarray(np.where(np.isnan(rest), mean, rest))


def moments(data: Layout, averaged: tuple[Questions, ...]) -> Floats:
    """As :func:`~irt_dask.kernels.posterior.totals.model_moments`, over draws of the items.

    Deviations are from the first mean and added draw by draw: the bits of a person do not depend on
    the others of a block.
    """
    got, mean, variance, most = averaged[0].model_moments(data)
    if len(averaged) == 1:
        return np.stack([got, mean, variance, most])
    shift, spread, within = np.zeros_like(mean), np.zeros_like(mean), variance.copy()
    for q in averaged[1:]:
        _, m, v, _ = q.model_moments(data)
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
    block: Block, q: Questions, averaged: tuple[Questions, ...], asked: list[Ints], scale: float
) -> tuple[Any, Ints]:
    """Persons who answered everything, and sums of products by set of questions, in fixed point.

    Of the model's error e and the way d from its total to that by design: e e, e d, d d, and the
    variance that the model expects, (sets, 4).
    """
    n_all = q.n_items
    who = np.flatnonzero(response_counts.responses_per_person(block.data) == n_all)
    sums = np.zeros((len(asked), 4), dtype=np.int64)
    if who.size:
        data = layouts.take(block.data, who)
        codes = layouts.to_dense(data).values.astype(np.int64)
        truth, per_row = np.zeros(who.size), points_of_categories(q.n_categories, q.weights)
        first = np.cumsum(q.n_categories) - q.n_categories
        for j in range(n_all):  # one by one: the same bits in any blocks
            truth += per_row[first[j] + codes[:, j]]
        for k, at in enumerate(asked):
            own, *some = (x.asked(at) for x in (q, *averaged))
            part = layouts.columns(data, at)
            got, mean, variance, _ = found = moments(part, tuple(some))
            points = q.weights.sum()
            e = (truth - got - mean) / points
            d = (by_design(part, own, found) - mean) / points
            for c, x in enumerate((e * e, e * d, d * d, variance / points**2)):
                sums[k, c] = fixed(x, scale).sum()
    return np.int64(who.size), sums


def _full(calibration: Any, item_id: tuple[str, ...]) -> Responses:
    """Persons who answered all questions, perhaps, these in the order of the bank."""
    full = as_responses(calibration, "predict_total", graded=True)
    refuse_weights(full, "predict_total(calibration=)")
    if lacking := sorted(set(item_id) - set(full.item_id)):
        raise InputError(
            f"calibration lacks {len(lacking)} of the {len(item_id)} items ({lacking[0]!r}, ...); "
            f"give persons who answered all of them, or leave calibration out"
        )
    return full.select(items=list(item_id))


def measure(
    engine: Engine, calibration: Any, item_id: tuple[str, ...], questions: Questions,
    averaged: tuple[Questions, ...], client: Any,
) -> Misfit:  # fmt: skip
    """How totals of persons who answered everything are missed."""
    full = _full(calibration, item_id)
    refuse_other_categories(questions, full.n_categories, full.item_id, "calibration")
    n = engine.responses.n_persons
    k = min(_MASKS, n)
    rows = (2 * np.arange(k) + 1) * n // (2 * k)
    asked = [questions.at[a] for part in engine.map_refs(_asked, rows) for a in part]
    different = {a.tobytes(): np.sort(a) for a in asked if 0 < a.size < len(item_id)}
    asked = list(different.values())
    if not asked:
        return replace(NOT_MEASURED, attrs={"n_calibration": 0})
    with Engine(full, client=client, stage="calibration", graded=True) as other:
        scale = scale_for(float(other.responses.n_persons))
        persons, sums = other.map_reduce(_errors, questions, averaged, asked, scale)
    if persons < 2:
        raise InputError(
            f"calibration has {int(persons)} person(s) who answered all {len(item_id)} items; its "
            f"use needs two or more: where what was not answered counts as wrong, write 0 there; "
            f"else leave items that they lack out of the bank, or leave calibration= out"
        )
    ee, ed, dd, expected = (sums / scale / float(persons)).T
    share = float(np.clip(ed.sum() / dd.sum(), 0.0, 1.0)) if dd.sum() > 0.0 else 0.0
    errors = ee - 2.0 * share * ed + share**2 * dd
    size = np.array([a.size for a in asked])
    unit = (1.0 - size / len(item_id)) / size
    kappa = max(float(((errors - expected) / unit).mean()), 0.0)
    attrs = {
        "n_calibration": int(persons),
        "design_share": share,
        "misfit_variance": kappa,
        "misfit_ratio": math.sqrt(float(ee.mean() / expected.mean())),
    }
    return Misfit(share, kappa, len(item_id), float(questions.weights.sum()), attrs)
