"""The next questions of many persons, from their answers so far."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.cache import keep, read_block
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import DataWarning, InputError
from irt_dask.items.parameters import refuse_other_categories
from irt_dask.kernels.responses import layouts, response_counts
from irt_dask.selection.bank_tables import FINE, Bank, Curves, bank_of
from irt_dask.selection.criteria import tell
from irt_dask.selection.drawing import Rules, drawn, rules_of
from irt_dask.selection.one_person import Person
from irt_dask.selection.warned import warn_of_adaptive
from irt_dask.store import Block, Responses

_MAX_IN_MEMORY = 10_000_000
#: Numbers that curves of questions at the fine nodes may be, of all sets of items together.
_ROOM = 1 << 23


@dataclass(frozen=True, eq=False)
class Plan:
    """What every block has to know."""

    bank: Bank
    at: Ints  # places of the items of the responses in the bank
    rules: Rules
    n: int


class _All(tuple[Curves, ...]):
    """Curves of all questions of a bank, one for each set of items."""

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(c.nbytes for c in self)


def _numbers(bank: Bank, n_items: int) -> int:
    """How many numbers curves of so many questions are, at most."""
    most = int(bank.items.n_categories.max())
    return n_items * (most + 2) * FINE.size * len(bank.sets)


def _all_curves(bank: Bank, places: Ints) -> _All:
    return _All(bank.curves(k, places) for k in range(len(bank.sets)))


def _persons(data: layouts.Layout, plan: Plan) -> Iterator[Person]:
    """Yield the persons of a block; curves of the questions of some are made together."""
    rows, bank = layouts.to_sparse(data), plan.bank
    every = np.arange(bank.n_items)
    small = _numbers(bank, bank.n_items) <= _ROOM
    if small:
        whole = keep(("adaptive curves", bank.identity), lambda: _all_curves(bank, every))
    together = max(1, _ROOM // _numbers(bank, 1))  # answers
    i, n = 0, rows.shape[0]
    while i < n:
        last = int(np.searchsorted(rows.indptr, rows.indptr[i] + together, side="right")) - 1
        last = min(max(last, i + 1), n)
        some = plan.at[rows.indices[rows.indptr[i] : rows.indptr[last]]]
        places, curves = (every, whole) if small else (np.unique(some), None)
        if curves is None:
            curves = _all_curves(bank, places) if places.size else _All()
        for r in range(i, last):
            own = slice(rows.indptr[r], rows.indptr[r + 1])
            order = np.argsort(plan.at[rows.indices[own]])  # the bank's: bits do not depend on
            asked = plan.at[rows.indices[own]][order]  # how responses lie
            person = Person(bank)
            if asked.size:
                codes = rows.values[own][order].astype(np.int64)
                person.add(asked, codes, curves, np.searchsorted(places, asked))
            yield person
        i = last


def _next(person: Person, plan: Plan, person_id: str) -> tuple[Ints, Floats]:
    """Places of the next questions, -1 where none is left, and their probabilities."""
    rules = plan.rules
    places, probability = np.full(plan.n, -1), np.full(plan.n, np.nan)
    if not person.open.any():
        return places, probability
    told = tell(person, rules.criterion, predicted=rules.criterion == "design")
    open_ = person.open.copy()
    asked = np.bincount(rules.block[~open_], minlength=rules.share.size)
    n_asked = int(asked.sum())
    for k in range(min(plan.n, person.n_open)):
        q = rules.probabilities(told, open_, asked)
        j = drawn(q, rules.uniform(person_id, n_asked + k))
        places[k], probability[k] = j, q[j]
        open_[j] = False
        asked[rules.block[j]] += 1
    return places, probability


def _of_block(ref: Any, plan: Plan) -> tuple[dict[str, Any], NDArray[Any]]:
    block, ids = read_block(ref), ref.person_ids()
    n, points = block.data.shape[0], float(plan.bank.weights.sum())
    places, probability = np.empty((n, plan.n), dtype=np.int64), np.empty((n, plan.n))
    moments = np.empty((4, n))
    for i, person in enumerate(_persons(block.data, plan)):
        try:
            places[i], probability[i] = _next(person, plan, str(ids[i]))
            e = person.estimate()
        except InputError as error:
            raise InputError(f"person {ids[i]}: {error}") from None
        share = (person.points + e.rest) / points
        moments[:, i] = e.ability, e.ability_sd, share, e.rest_sd / points
    names = np.array([*plan.bank.item_id, ""], dtype=str)
    found: dict[str, Any] = {
        "person_next_item": names[places],
        "person_next_probability": probability,
        **dict(zip(_MOMENTS, moments, strict=True)),
    }
    return found, ids


_MOMENTS = ("person_ability", "person_ability_sd", "person_total", "person_total_sd")


def _seen(block: Block) -> tuple[Any, ...]:
    return tuple(response_counts.response_counts(block.data, block.times))


def _with_exposure(engine: Engine, plan: Plan) -> Plan:
    """The plan with the shares of persons who have answered each question."""
    if plan.rules.max_exposure is None or plan.rules.exposure is not None:
        return plan
    _, seen = engine.map_reduce(_seen)
    share = np.zeros(plan.bank.n_items)
    share[plan.at] = np.asarray(seen) / engine.responses.n_persons
    return replace(plan, rules=replace(plan.rules, exposure=share))


def _plan(responses: Responses, bank: Bank, rules: Rules, n: int) -> Plan:
    known = {item: k for k, item in enumerate(bank.item_id)}
    if unknown := [i for i in responses.item_id if i not in known]:
        raise InputError(
            f"{len(unknown)} item(s) of the responses are not in items: "
            f"{', '.join(unknown[:20])}; these persons answered other questions: leave them out by "
            f"responses.select(items=[...]), or bring both on one scale in one bank (irt.link)"
        )
    at = np.array([known[i] for i in responses.item_id], dtype=np.int64)
    own = bank.items.take(at)
    refuse_other_categories(own, responses.n_categories, responses.item_id, "items")
    return Plan(bank, at, rules, n)


def next_items(
    responses: Any,
    items: xr.Dataset,
    n: int = 1,
    *,
    criterion: str = "ability",
    exploration: float | None = None,
    among: int = 1,
    strata: Any = None,
    strata_shares: Any = None,
    exposure: Any = None,
    max_exposure: float | None = None,
    item_weights: Any = None,
    seed: int = 0,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Choose the next n questions of each person, by the answers so far.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
        Answers so far, one person or many; their items are some or all of ``items``.  What is not
        observed was not asked.
    items : Dataset
        A fit or an item bank of one ability, with any of the package's models; slopes may have any
        sign.  Questions are chosen by the point estimates; where the items carry draws, abilities
        and totals are averaged over 20 of them.
    n : int
        Questions to choose, one after the other, before any of them is answered: all are compared
        under the posterior of now.  One at a time learns more.
    criterion : {"ability", "information", "total", "design"}
        "ability": least expected posterior variance of ability.  "information": most Fisher
        information at the posterior mean (what adaptive tests mostly do; worse than "ability" for
        the first few questions, when ability is hardly known).  "total": least expected posterior
        variance of the share right of all questions.  "design": drawn, in proportion to the
        standard deviation of the answer, for the estimate by design of :class:`irt_dask.Session`.
    exploration : float, optional
        Share of questions that is drawn from all that are left, with equal chances; 0 by default,
        0.5 for "design".  Above 0 every question has a known probability above 0.
    among : int
        One of so many best questions is drawn, so that nobody else's next question is known.
    strata, strata_shares : mapping, array or DataArray over items; mapping; optional
        Block (topic, format) of each question, and the share of each block among the questions
        asked, by default its share of the bank.  The next is of the block that is farthest behind;
        those drawn by ``exploration`` are of any.
    exposure, max_exposure : mapping, array or DataArray over items; float; optional
        Share of persons who have seen each question, by default of the persons of ``responses``;
        what ``max_exposure`` or more have seen is only drawn by ``exploration``, or if nothing else
        is left.
    item_weights : mapping, array or DataArray over items, optional
        Of the total, as in ``predict_total``.
    seed : int
        Of draws; those of a person depend on the identifier and the number of answers alone.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over persons (and choices, the n questions)
        ``person_next_item``, the identifier, empty where no question is left;
        ``person_next_probability``, that of this choice given the answers and the choices before
        it; ``person_ability`` and ``_sd``, ``person_total`` and ``_sd``: posterior means and
        standard deviations before these questions, from N(0, 1), as ``score`` and
        ``predict_total`` have them.

    Raises
    ------
    InputError
        If items of the responses are not in the bank; categories differ; n is below 1; an option
        is out of range; persons times n exceed 10^7; abilities lie beyond 16 SDs,
        or their posterior has one below .012 (thousands of steep questions answered).

    Warns
    -----
    ItemWarning
        If items are flagged (``item_flag``): the steepest are chosen first, and these may be wrong.
    DataWarning
        If the items were calibrated with groups or a histogram of ability; somebody has fewer than
        n questions left.

    Notes
    -----
    One pass over the data, and one more for ``max_exposure`` without ``exposure``.  A person costs
    some 0.5 ms, and 2 ns x items x nodes (10 to 30, by how well ability is known).  Every process
    holds 1.5 kB x items (of each category but the first), and 64 MB of curves.  Driver memory: 8
    bytes x n and the identifiers a person.  Source: van der Linden (1998), "Bayesian item selection
    criteria for adaptive testing", for "ability"; Kingsbury and Zara (1989) for blocks; Revuelta
    and Ponsoda (1998) for exposure.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(300, 40, seed=1)
    >>> fit = irt.fit_marginal(responses)
    >>> some = responses.select(items=fit["item_id"].values[:5])
    >>> chosen = irt.next_items(some, fit, 2)
    >>> chosen["person_next_item"].shape
    (300, 2)
    """
    n = whole_number("n", n, 1)
    responses = as_responses(responses, "next_items", graded=True, items=items)
    refuse_weights(responses, "next_items")
    if responses.n_persons * n > _MAX_IN_MEMORY:
        raise InputError(
            f"{responses.n_persons} persons, {n} questions each: more than {_MAX_IN_MEMORY} are "
            f"not returned in memory; choose for some of the persons at a time (responses.select)"
        )
    bank = bank_of(items, item_weights)
    rules = rules_of(
        bank.item_id, criterion, exploration, among, strata, strata_shares, exposure, max_exposure,
        seed,
    )  # fmt: skip
    plan = _plan(responses, bank, rules, n)
    warn_of_adaptive(items)
    with Engine(responses, client=client, progress=progress, stage="next", graded=True) as engine:
        plan = _with_exposure(engine, plan)
        blocks = engine.map_refs(_of_block, plan, report=True)
    data = {name: np.concatenate([b[0][name] for b in blocks]) for name in blocks[0][0]}
    ids = np.concatenate([b[1] for b in blocks]).astype(str, copy=False)
    _warn_of_few(data["person_next_item"])
    return dataset(data, coords={"person_id": ids}, attrs=_attrs(plan, items, ids.size))


def _attrs(plan: Plan, items: xr.Dataset, n_persons: int) -> dict[str, Any]:
    rules = plan.rules
    return {
        "method": rules.criterion,
        "model": items.attrs.get("model"),
        "n_persons": n_persons,
        "n_questions": plan.bank.n_items,
        "exploration": rules.exploration,
        "among": rules.among,
        "n_strata": rules.share.size,
        "max_exposure": rules.max_exposure,
        "n_item_draws": len(plan.bank.sets) - 1,
        "seed": rules.seed if rules.by_chance else None,
        "identification": "ability N(0, 1)",
    }


def _warn_of_few(chosen: NDArray[np.str_]) -> None:
    few = int((chosen == "").any(axis=1).sum())
    if few:
        warnings.warn(
            f"{few} of {len(chosen)} persons have fewer than {chosen.shape[1]} questions left; "
            f"their choices that lack are empty",
            DataWarning,
            stacklevel=3,
        )
