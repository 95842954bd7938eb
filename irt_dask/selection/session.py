"""One person's adaptive test: which question is next, what the answers say, when to stop."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.engine import dataset
from irt_dask.engine.inputs import check_level
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import InputError
from irt_dask.selection import intervals, person_warned, sequential, session_state
from irt_dask.selection.bank_tables import Bank, bank_of
from irt_dask.selection.criteria import tell
from irt_dask.selection.drawing import drawn, rules_of
from irt_dask.selection.one_person import Person
from irt_dask.selection.session_options import code_of, stops_of
from irt_dask.selection.session_state import Step
from irt_dask.selection.warned import warn_of_adaptive
from irt_dask.store import Responses, from_array
from irt_dask.variables import identifier


class Session:
    """One person's adaptive test from a bank of questions.

    Parameters
    ----------
    items : Dataset, path or Session
        A fit or an item bank of one ability, any of the package's models; or a file of one, as
        :func:`irt_dask.read_items` reads; or another session, whose bank this one shares (tables of
        a large bank take seconds, and are made once).  Items with draws: questions are chosen by
        the point estimates, estimates averaged over 20 draws.
    person : str
        Identifier of the person; those of one identifier and seed have the same draws.
    criterion, exploration, among, strata, strata_shares, exposure, max_exposure, item_weights
        As in :func:`irt_dask.next_items`; ``max_exposure`` needs ``exposure``.
    max_items, min_items : int, optional
        Questions to ask at most, and at least before a standard error ends the test.
    ability_se, total_se : float, optional
        The test ends when the posterior standard deviation of ability, or of the share of all
        points (``person_total_sd``), is this or less.
    level : float
        Of intervals.
    seed : int
        Of draws, which depend on it, the person and the number of answers alone.

    Attributes
    ----------
    person : str
        As given.
    asked : list of str
        Identifiers of the questions answered, in their order.
    stopped : str or None
        Why the test has ended: "max_items", "ability_se", "total_se", "bank" (all asked).

    Raises
    ------
    InputError
        If an option is out of range; in ``answer`` if the question was asked before, is not the one
        that ``next`` gave, or does not have the category; in ``from_json`` if the state is of other
        questions, or no state; in ``estimates`` if the posterior SD of ability is below .012.

    Warns
    -----
    ItemWarning
        If items are flagged (``item_flag``).
    DataWarning
        If the items were calibrated with groups or a histogram of ability; by ``estimates``, if all
        answers are at the same end, the prior moves ability by more than half its standard
        deviation, or the answers do not go with the model (``person_surprise`` below -3).
    ApproximationWarning
        By ``estimates``, if intervals by design rest on few draws, or the number of questions
        depended on the answers.

    Notes
    -----
    ``estimates()`` has what :func:`irt_dask.score` (EAP) and :func:`irt_dask.predict_total` say of
    the same answers, from N(0, 1).  Such a posterior holds however questions were chosen, and draws
    able persons down.  Others: ``irt.score(session.responses(), items, method="wle")``.

    With ``exploration`` above 0 every question had a known probability of being asked, and
    ``person_total_design`` is right on average over these draws whatever the model, if the number
    of questions was set in advance; see "irt-dask docs benchmarks".

    A step costs about 0.5 ms, and 1 to 15 ms with 100,000 questions; memory 1.5 kB a question (of
    each category but the first), which sessions of one bank share.  Tables are made by the first
    question: 4 s for 100,000, and 20 times that where items carry draws.

    Examples
    --------
    >>> import irt_dask as irt
    >>> fit = irt.fit_marginal(irt.simulate(500, 60, seed=1))
    >>> session = irt.Session(fit, person="Ann", max_items=20, ability_se=0.4)
    >>> while (item := session.next()) is not None:
    ...     session.answer(item, 1 if len(session.asked) % 2 else 0)
    >>> session.stopped, session.estimates()["person_ability"].sizes["persons"]
    ('ability_se', 1)
    >>> again = irt.Session.from_json(session.to_json(), fit)
    >>> again.asked == session.asked
    True
    """

    def __init__(
        self,
        items: Any,
        *,
        person: str = "0",
        criterion: str = "ability",
        exploration: float | None = None,
        among: int = 1,
        strata: Any = None,
        strata_shares: Any = None,
        exposure: Any = None,
        max_exposure: float | None = None,
        item_weights: Any = None,
        max_items: int | None = None,
        min_items: int = 0,
        ability_se: float | None = None,
        total_se: float | None = None,
        level: float = 0.95,
        seed: int = 0,
    ) -> None:
        if max_exposure is not None and exposure is None:
            raise InputError("max_exposure needs exposure: the share of persons who saw each item")
        check_level(level)
        self._bank, self._model = _bank(items, item_weights)
        self._rules = rules_of(
            self._bank.item_id, criterion, exploration, among, strata, strata_shares, exposure,
            max_exposure, seed,
        )  # fmt: skip
        self._stops = stops_of(max_items, min_items, ability_se, total_se)
        self._level = level
        self.person = identifier(person)
        self._place = _places(items, self._bank)
        self._person, self._steps = Person(self._bank), list[Step]()
        self._pending: Step | None = None

    # --- asking ---------------------------------------------------------------------------------

    @property
    def asked(self) -> list[str]:
        """Identifiers of the questions answered, in their order."""
        return [self._bank.item_id[s.place] for s in self._steps]

    @property
    def stopped(self) -> str | None:
        """Why the test has ended, None while it goes on."""
        n, stops = len(self._steps), self._stops
        if n == self._bank.n_items:
            return "bank"
        if stops.max_items is not None and n >= stops.max_items:
            return "max_items"
        if n < stops.min_items or (stops.ability_se is None and stops.total_se is None):
            return None
        e = self._person.estimate()
        if stops.ability_se is not None and e.ability_sd <= stops.ability_se:
            return "ability_se"
        if stops.total_se is not None and e.rest_sd / self._points <= stops.total_se:
            return "total_se"
        return None

    def next(self) -> str | None:
        """Identifier of the question to ask now, the same until it is answered; None at the end."""
        if self._pending is None:
            with single_threaded():
                if self.stopped is not None:
                    return None
                self._pending = self._chosen()
        return self._bank.item_id[self._pending.place]

    def _probabilities(self) -> tuple[Any, Any]:
        """What questions tell, and the probability of each to be the next."""
        rules, person = self._rules, self._person
        told = tell(person, rules.criterion, predicted=rules.designed)
        asked = np.bincount(rules.block[~person.open], minlength=rules.share.size)
        return told, rules.probabilities(told, person.open, asked)

    def _chosen(self) -> Step:
        told, q = self._probabilities()
        j = drawn(q, self._rules.uniform(self.person, len(self._steps)))
        known = None
        if self._rules.designed:
            known = sequential.before(j, q, told, self._person.open)
        return Step(j, -1, float(q[j]), known, tuple(self._person.chances(j).tolist()))

    def answer(self, item: Any, value: Any) -> None:
        """Take the answer to the question that ``next`` gave: its category, 0 for wrong.

        What was asked and not answered counts as 0; a question cannot be passed over.
        """
        name = identifier(item)
        place = self._place.get(name)
        if place is None:
            raise InputError(f"item {name!r} is not among the {self._bank.n_items} of the bank")
        if not self._person.open[place]:
            raise InputError(f"item {name!r} was answered before; nobody is asked twice")
        if self._pending is None or self._pending.place != place:
            due = "none: call next()" if self._pending is None else repr(self.next())
            raise InputError(
                f"item {name!r} is not the question that next() gave ({due}); the probabilities "
                f"that estimates rest on are those of its questions"
            )
        code = code_of(value, name, self._bank, place)
        self._take(self._pending._replace(code=code))
        self._pending = None

    def _take(self, step: Step) -> None:
        """One answer more, in the order of the answers: a session that goes on has the same bits.

        The question was not answered before, and has the category.
        """
        with single_threaded():
            self._person.answered(step.place, step.code)
        self._steps.append(step)

    # --- estimates ------------------------------------------------------------------------------

    @property
    def _points(self) -> float:
        return float(self._bank.weights.sum())

    def estimates(self) -> xr.Dataset:
        """Ability and total of the person, from the answers so far.

        Over persons, of whom there is one: ``person_ability`` with ``_sd``, ``_lower``, ``_upper``
        (posterior mean, standard deviation and quantiles), ``person_total`` with the same (as
        ``predict_total``); ``person_surprise``, how much less likely the answers were than those
        that the model expected at each step, in standard errors; with exploration and from two
        answers on ``person_total_design``, ``_se``, ``_lower`` and ``_upper``.
        """
        with single_threaded():
            e, points = self._person.estimate(), self._points
            ends = np.array([0.5 - 0.5 * self._level, 0.5 + 0.5 * self._level])
            ability = self._person.quantiles(ends)
        left = float(self._bank.weights[self._person.open].sum())
        step = intervals.smallest_step(self._bank.weights, self._bank.items.n_categories)
        low, high = intervals.of_share(
            np.array([e.rest]), np.array([e.rest_sd**2]), np.array([left]), self._level, step
        )
        found = {
            "person_ability": e.ability,
            "person_ability_sd": e.ability_sd,
            "person_ability_lower": ability[0],
            "person_ability_upper": ability[1],
            "person_total": (self._person.points + e.rest) / points,
            "person_total_sd": e.rest_sd / points,
            "person_total_lower": (self._person.points + low[0]) / points,
            "person_total_upper": min((self._person.points + high[0]) / points, 1.0),
            "person_surprise": person_warned.surprise(self._steps),
        }
        attrs = self._attrs()
        if self._rules.designed and len(self._steps) > 1:
            of_design, attrs["degrees_of_freedom"] = self._by_design(left)
            found |= of_design
        person_warned.warn(self._person, self._steps, e, found["person_surprise"])
        data = {name: np.array([value]) for name, value in found.items()}
        return dataset(data, coords={"person_id": np.array([self.person])}, attrs=attrs)

    def _by_design(self, left: float) -> tuple[dict[str, float], int]:
        steps = [s.known for s in self._steps if s.known is not None]
        answers = [self._worth(s) for s in self._steps]
        t = sequential.total(steps, answers, self._bank.n_items)
        df = max(1, math.floor(t.n_draws - 1.0))
        person_warned.warn_of_design(t.n_draws, self._stops, self.stopped)
        points, got = self._points, self._person.points
        share, se = t.total / points, t.se / points
        far = intervals.student(df, self._level) * se
        least, most = got / points, min((got + left) / points, 1.0)
        return {
            "person_total_design": share,
            "person_total_design_se": se,
            "person_total_design_lower": float(np.clip(share - far, least, most)),
            "person_total_design_upper": float(np.clip(share + far, least, most)),
        }, df

    def _worth(self, step: Step) -> float:
        """Points of an answer."""
        top = int(self._bank.items.n_categories[step.place]) - 1
        return float(self._bank.weights[step.place]) * step.code / top

    def _attrs(self) -> dict[str, Any]:
        rules = self._rules
        return {
            "method": rules.criterion,
            "model": self._model,
            "n_questions": self._bank.n_items,
            "n_asked": len(self._steps),
            "stopped": self.stopped,
            "exploration": rules.exploration,
            "among": rules.among,
            "n_item_draws": len(self._bank.sets) - 1,
            "level": self._level,
            "seed": rules.seed if rules.by_chance else None,
            "identification": "ability N(0, 1)",
            "interval": "posterior from N(0, 1); one ability, items as estimated, misfit unknown",
        }

    def responses(self) -> Responses:
        """The answers so far as data of one person: for ``score``, ``predict_total``."""
        if not self._steps:
            raise InputError("no question was answered yet")
        at = [s.place for s in self._steps]
        return from_array(
            np.array([[s.code for s in self._steps]], dtype=np.int8),
            person_id=[self.person],
            item_id=[self._bank.item_id[j] for j in at],
            categories=self._bank.items.n_categories[at],
        )

    # --- state ----------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The whole state as JSON text: options, answers, probabilities, a digest of the bank."""
        own = session_state.State(
            self.person, self._digest, self._rules, vars(self._stops), self._level, self._steps,
            self._pending,
        )  # fmt: skip
        return session_state.written(own, self._bank.item_id)

    @property
    def _digest(self) -> str:
        return session_state.digest(self._bank, self._rules)

    @classmethod
    def from_json(
        cls,
        text: str,
        items: Any,
        *,
        strata: Any = None,
        strata_shares: Any = None,
        exposure: Any = None,
        item_weights: Any = None,
    ) -> Session:
        """Go on with a session, from its state and the same bank, strata and weights."""
        state = session_state.read(text)
        session = cls(
            items, person=state["person"], strata=strata, strata_shares=strata_shares,
            exposure=exposure, item_weights=item_weights, **state["options"],
        )  # fmt: skip
        if session._digest != state["bank"]:
            raise InputError(
                f"this session is of other questions: its bank has the digest {state['bank']}, and "
                f"these items, strata and weights have {session._digest}; give the bank (with the "
                f"same parameters), strata and item_weights with which it began"
            )
        for raw in state["steps"]:
            step = session._checked(raw)
            session._take(
                step._replace(code=code_of(raw["value"], raw["item"], session._bank, step.place))
            )
        if state["pending"] is not None:
            session._pending = session._checked(state["pending"])
        return session

    def _checked(self, raw: Any) -> Step:
        """A step of a state, whose question is of the bank and was not asked before."""
        step = session_state.step_of(raw, self._place, len(self._steps) + 1)
        if not self._person.open[step.place]:
            raise InputError(f"the state of a session has item {raw['item']!r} twice")
        whole = len(step.chances) == int(self._bank.items.n_categories[step.place])
        if not whole or (step.known is None) == self._rules.designed:
            raise InputError(f"item {raw['item']!r} in the state of a session lacks numbers")
        return step


# --- options --------------------------------------------------------------------------------------


def _bank(items: Any, item_weights: Any) -> tuple[Bank, Any]:
    """Read the bank, or share that of another session."""
    if isinstance(items, Session):
        if item_weights is not None:
            raise InputError("item_weights: a shared bank has those of the session it comes from")
        return items._bank, items._model
    if isinstance(items, (str, Path)):
        from irt_dask.banks import read_items

        items = read_items(items)
    bank = bank_of(items, item_weights)
    warn_of_adaptive(items, stacklevel=4)
    return bank, items.attrs.get("model")


def _places(items: Any, bank: Bank) -> dict[str, int]:
    if isinstance(items, Session):
        return items._place
    return {name: j for j, name in enumerate(bank.item_id)}
