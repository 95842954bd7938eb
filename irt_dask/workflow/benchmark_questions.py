"""The questions of a benchmark calibrated: by themselves, or on the scale of a board that grew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.banks.saved import read_bank
from irt_dask.calibrate.marginal.fit import fit_marginal
from irt_dask.errors import InputError, listed
from irt_dask.items.parameters import bank_item_ids
from irt_dask.kernels.responses.layouts import to_dense
from irt_dask.store import Responses, from_array
from irt_dask.workflow.board_waves import board_responses
from irt_dask.workflow.growing import grow_bank

#: Slopes of attempts beyond which these are one answer given several times.
_STEEPEST = 8.0
_MAJORITY = (
    "Attempts of a model at a question are so much alike that counting each would make one "
    "question the ability: here an answer is right where more than half of its attempts are."
)


#: What a bank says of its answers, if these are of more than one attempt.
_OF_MAJORITY = "majority of attempts"


class Asked(NamedTuple):
    """Calibrated questions, and the answers to them."""

    fit: xr.Dataset
    #: Answers by the fit's questions, and by those of the board: the same but where some drifted.
    answers: Responses
    shares: Responses
    notes: list[str]
    drift: pd.DataFrame | None = None


def without(r: Responses, exclude: str | Sequence[str]) -> Responses:
    """Responses to all questions but some."""
    names = {exclude} if isinstance(exclude, str) else set(exclude)
    if unknown := sorted(names - set(r.item_id)):
        raise InputError(f"exclude={unknown!r}: there are no such questions")
    return r.select(items=[i for i in r.item_id if i not in names]) if names else r


def calibrated(r: Responses, options: dict[str, Any]) -> Asked:
    """A board by itself."""
    graded = max(r.n_categories) > 2
    known: dict[str, Any] = {"prior": "empirical", "positive": "none", "standard_errors": True}
    fit = fit_marginal(r, model="2pl+binomial" if graded else "2pl", **known, **options)
    alike = graded and _one_answer(fit)
    if alike:  # the ability would be one question, asked n times
        r = _majority(r)
        fit = fit_marginal(r, **known, **options).assign_attrs(answers=_OF_MAJORITY)
    return Asked(fit, r, r, [_MAJORITY] if alike else [])


def grown(r: Responses, bank: Any, fdr: float, options: dict[str, Any]) -> Asked:
    """A board on the scale of the one that it was."""
    if not isinstance(bank, xr.Dataset) and Path(bank).suffix != ".nc":
        raise InputError(
            f"bank {bank}: give the items.nc of the benchmark before, which knows its models and "
            f"the errors of its questions, as other tables of items do not"
        )
    known = bank if isinstance(bank, xr.Dataset) else read_bank(bank)
    notes, of_majority = [], known.attrs.get("answers") == _OF_MAJORITY
    if of_majority and max(r.n_categories) > 2:
        r, notes = _majority(r), [_MAJORITY]
    fit = grow_bank(r, known, positive="none", fdr=fdr, **options)
    if of_majority:
        fit = fit.assign_attrs(answers=_OF_MAJORITY)
    answers = board_responses(r, fit)
    ids = fit["item_id"].values.astype(str)
    tested = np.isfinite(fit["item_drift_p_value"].values)
    table = pd.DataFrame({
        "question": ids[tested],
        "drifted": np.isin(ids[tested], _drifted(fit, known)),
        **{c: fit[f"item_{c}"].values[tested]
           for c in ("drift", "drift_se", "drift_p_value", "drift_q_value")},
    }).sort_values("drift_p_value", kind="stable").reset_index(drop=True)  # fmt: skip
    a = fit.attrs
    note = (
        f"Wave {a['wave']} of this board: abilities are on the scale of its first; {a['n_new']} "
        f"new questions, {a['n_drifted']} of {a['n_tested']} known ones drifted (positive: easier "
        f"for models that joined than their ability says)."
    )
    waited = _untested(fit, known, table)
    if waited:
        note += f" {len(waited)} could not be tested: {listed(waited, 10)}."
    return Asked(fit, answers, r, [*notes, note], table)


def _untested(fit: xr.Dataset, before: xr.Dataset, table: pd.DataFrame) -> list[str]:
    """Known questions, as they were asked last, that no test of drift is of."""
    known = set(bank_item_ids(before, "bank"))
    base, ids = (fit[name].values.astype(str).tolist() for name in ("item_origin", "item_id"))
    last = {b: i for b, i in zip(base, ids, strict=True) if i in known}
    return [i for i in last.values() if i not in set(table["question"])]


def _drifted(fit: xr.Dataset, before: xr.Dataset) -> list[str]:
    """Questions that were found to have drifted in this wave."""
    now = fit["item_id"].values[fit["item_drifted"].values].astype(str).tolist()
    if "item_drifted" not in before:
        return now
    earlier = set(before["item_id"].values[before["item_drifted"].values.astype(bool)].tolist())
    return [i for i in now if i not in earlier]


def _one_answer(fit: xr.Dataset) -> bool:
    """Whether slopes say that attempts repeat one answer: nothing else makes curves that steep."""
    steep = np.abs(fit["item_discrimination"].values) > _STEEPEST
    return bool(fit["item_at_bound"].any() or steep.any())


def _majority(r: Responses) -> Responses:
    """Right where more than half of the attempts are."""
    blocks = [to_dense(r.read_block(k).data).values for k in range(r.n_blocks)]
    y, n = np.concatenate(blocks).astype(np.int64), np.array(r.n_categories) - 1
    ids = np.concatenate([r.person_ids(k) for k in range(r.n_blocks)]).astype(str)
    found = np.where(y < 0, -1, 2 * y > n).astype(np.int8)
    return from_array(found, item_id=r.item_id, person_id=ids)
