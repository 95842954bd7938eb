"""What a person's answers say against the estimates made of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from irt_dask.errors import ApproximationWarning, DataWarning
from irt_dask.selection.one_person import Estimate, Person
from irt_dask.selection.session_state import Step
from irt_dask.selection.warned import FEW_DRAWS

#: Of a standard normal number one in 700 is below; from so many answers on it is near one.
_SURPRISED, _ENOUGH = -3.0, 10
#: The prior moves ability by more SDs than this: intervals of 95% hold in less than 93%.
_MOVED = 0.5


def surprise(steps: Sequence[Step]) -> float:
    """Sum of log probabilities of the answers, each given those before, standardised.

    Every term less its expectation at the time is a martingale's difference: standard normal for
    many answers if the model holds, however questions were chosen.
    """
    found = variance = 0.0
    for step in steps:
        p = np.array(step.chances)
        log = np.log(p, out=np.zeros_like(p), where=p > 0.0)
        mean = float(p @ log)
        found += float(log[step.code]) - mean
        variance += float(p @ (log - mean) ** 2)
    return found / math.sqrt(variance) if variance > 0.0 else 0.0


def warn(person: Person, steps: Sequence[Step], e: Estimate, surprised: float) -> None:
    """Say where ability is the prior's, or the answers are not such as the model expects."""
    if not steps:
        return
    said = []
    low, high = (x[[s.place for s in steps]] for x in person.bank.items.ends)
    codes = np.array([s.code for s in steps])
    falls = person.bank.items.slope()[[s.place for s in steps]] < 0.0
    able = np.where(falls, codes == low, codes == high)
    unable = np.where(falls, codes == high, codes == low)
    if able.all() or unable.all():
        said.append(
            f"all {len(steps)} answers are those of the {'most' if able.all() else 'least'} able: "
            f"how far ability goes is said by the prior N(0, 1) alone; ask more"
        )
    else:
        own = 1.0 - e.ability_sd**2  # share of the answers in the estimate, if all is normal
        pull = e.ability * e.ability_sd**2 / own if own > 0.0 else math.inf
        if abs(pull) > _MOVED * e.ability_sd:
            said.append(
                f"the prior N(0, 1) moves ability by about {-pull:.2g}, to {e.ability:.3g} with a "
                f"standard deviation of {e.ability_sd:.2g}: intervals of persons as far out hold "
                f"less often than they say; ask more, or score(session.responses(), method='wle')"
            )
    if len(steps) >= _ENOUGH and surprised < _SURPRISED:
        said.append(
            f"the answers are {-surprised:.1f} standard errors less likely than the model expects "
            f"(person_surprise): ability and person_total, with their intervals, do not describe "
            f"this person"
        )
    for text in said:
        warnings.warn(text, DataWarning, stacklevel=3)


def warn_of_design(n_draws: float, stops: Any, stopped: str | None) -> None:
    """Say where the estimate by design, or the width of its interval, rests on more than draws."""
    if stopped in ("ability_se", "total_se"):
        warnings.warn(
            f"the test ended by {stopped}, so its length depends on the answers: "
            f"person_total_design is right on average for lengths set in advance (max_items alone)",
            ApproximationWarning,
            stacklevel=4,
        )
    if n_draws < FEW_DRAWS:
        warnings.warn(
            f"the questions drawn count as {n_draws:.0f} at random: the width of intervals by "
            f"design rests on the model; ask more, or raise exploration ({FEW_DRAWS} are enough)",
            ApproximationWarning,
            stacklevel=4,
        )
