"""The state of an adaptive test as JSON: options, steps, and a digest of what it is a test of."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, NamedTuple

import numpy as np

from irt_dask.errors import InputError
from irt_dask.selection.bank_tables import Bank
from irt_dask.selection.drawing import Rules
from irt_dask.selection.sequential import Drawn

_FORMAT, _VERSION = "irt_dask.Session", 1
_KEYS = {"format", "version", "person", "bank", "options", "steps", "pending"}
_OPTIONS = {
    "criterion", "exploration", "among", "max_exposure", "max_items", "min_items", "ability_se",
    "total_se", "level", "seed",
}  # fmt: skip
_STEP = {"item", "value", "probability", "chances", "known"}


class Step(NamedTuple):
    """A question that was asked, its answer (-1: none yet), and what was known before."""

    place: int
    code: int
    probability: float
    known: Drawn | None
    #: Probabilities of its categories before it was answered.
    chances: tuple[float, ...]


class State(NamedTuple):
    """What is written."""

    person: str
    digest: str
    rules: Rules
    stops: dict[str, Any]
    level: float
    steps: list[Step]
    pending: Step | None


def digest(bank: Bank, rules: Rules) -> str:
    """Identity of questions, their parameters, weights, and blocks."""
    out = hashlib.sha256(bank.identity.encode())
    out.update(np.ascontiguousarray(rules.block).tobytes())
    out.update(np.ascontiguousarray(rules.share).tobytes())
    return out.hexdigest()[:32]


def written(state: State, item_id: tuple[str, ...]) -> str:
    """JSON text; numbers as Python writes them, so that reading gives the same bits."""

    def of(step: Step) -> dict[str, Any]:
        known = None if step.known is None else list(step.known)
        return {
            "item": item_id[step.place],
            "value": None if step.code < 0 else step.code,
            "probability": step.probability,
            "chances": list(step.chances),
            "known": known,
        }

    r = state.rules
    options = {
        "criterion": r.criterion, "exploration": r.exploration, "among": r.among,
        "max_exposure": r.max_exposure, "level": float(state.level), "seed": r.seed, **state.stops,
    }  # fmt: skip
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "person": state.person,
        "bank": state.digest,
        "options": {k: _plain(v) for k, v in options.items()},
        "steps": [of(s) for s in state.steps],
        "pending": None if state.pending is None else of(state.pending),
    }
    return json.dumps(content, allow_nan=False)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def read(text: str) -> dict[str, Any]:
    """The content of a state, whose form is checked."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"this is no state of a session: {error}") from None
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise InputError("this is no state of a session: to_json() of irt_dask.Session writes them")
    if found.get("version") != _VERSION:
        raise InputError(
            f"the state of a session has version {found.get('version')!r}, and version {_VERSION} "
            f"is read here: go on with the irt_dask that wrote it"
        )
    whole = found.keys() == _KEYS and isinstance(found["options"], dict)
    if not (whole and found["options"].keys() == _OPTIONS and isinstance(found["steps"], list)):
        raise InputError("the state of a session lacks some of its content, or has other")
    return found


def step_of(raw: Any, place: dict[str, int], number: int) -> Step:
    """A step as it was, without its answer."""
    what = f"question {number} in the state of a session"
    if not isinstance(raw, dict) or raw.keys() != _STEP:
        raise InputError(f"{what} lacks some of its content, or has other")
    if not isinstance(raw["item"], str) or raw["item"] not in place:
        raise InputError(f"{what}, {raw['item']!r}, is not in the bank")
    try:
        q, chances = float(raw["probability"]), tuple(map(float, raw["chances"]))
        known = None if raw["known"] is None else Drawn(*map(float, raw["known"]))
    except (TypeError, ValueError):
        raise InputError(f"{what}, {raw['item']!r}, has no numbers where some belong") from None
    if not 0.0 < q <= 1.0 + 1e-9 or not all(map(math.isfinite, known or ())):
        raise InputError(f"{what}, {raw['item']!r}, has the probability {q}, or no numbers")
    return Step(place[raw["item"]], -1, q, known, chances)
