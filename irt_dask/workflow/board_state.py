"""A board and its bank side by side: which questions are new, who joined, what ties them."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats, Ints
from irt_dask.engine import Engine
from irt_dask.errors import DataWarning, EstimationError, InputError, listed
from irt_dask.items.known_models import parameters_of
from irt_dask.items.mixture import Mixture, mixture_named
from irt_dask.items.parameters import bank_item_ids, item_set, models_of
from irt_dask.kernels.responses import response_counts
from irt_dask.kernels.responses.layouts import row_range
from irt_dask.store import Block, Responses
from irt_dask.workflow import board_waves
from irt_dask.workflow.board_waves import History

#: The model of how many attempts are right.
COUNTS = "binomial"
#: Known items a person answers, on average, below which a wave hangs on a thread.
_FEW_LINKS = 5.0


def known_models(bank: xr.Dataset, ids: tuple[str, ...]) -> tuple[Mixture, Floats]:
    """Models of items of a bank, counts of attempts as such, and their parameters."""
    found = item_set(bank, ids)
    models, x = Mixture.of_items(found)
    given = models_of(bank, ids)
    if given is None or not (given == COUNTS).any():
        return models, x
    names = np.where(given == COUNTS, COUNTS, models.names).tolist()
    models = mixture_named(dict(zip(ids, names, strict=True)), ids, found.n_categories.tolist())
    return models, parameters_of(models, bank, ids, what="bank", strict=True)


class Board(NamedTuple):
    """The responses, items under the names of their versions, and what is known of waves."""

    given: Responses
    history: History
    ends: Ints
    view: Responses
    #: Known items and those that are to be calibrated, as the view names them.
    bank_ids: tuple[str, ...]
    new: tuple[str, ...]
    #: Versions of questions that drifted in this wave, and the known item that each was.
    versions: dict[str, str]

    @property
    def wave(self) -> int:
        """Number of this wave, from 1."""
        return int(self.ends.size)

    @property
    def n_joined(self) -> int:
        """Persons who joined since the bank was made."""
        return int(self.ends[-1] - self.history.n_known)

    @classmethod
    def of(cls, given: Responses, bank: xr.Dataset, known: int | None) -> Board:
        """Match the responses and the bank; complaints about it."""
        history, ids = History.of(bank, known), bank_item_ids(bank, "bank")
        history.check(given)
        lost = [i for i in dict.fromkeys(history.origin) if i not in set(given.item_id)]
        if lost:
            raise InputError(
                f"the responses lack {len(lost)} item(s) of the bank: {listed(lost, 10)}; give the "
                f"whole board, or leave these out of the bank (bank.isel(items=...))"
            )
        ends = np.append(history.ends, given.n_persons)
        view = _view(given, ends, history.versions)
        taken = set(ids)
        new = tuple(i for i in view.item_id if i not in taken)
        return cls(given, history, ends, view, ids, new, {})

    def check_categories(self, bank: xr.Dataset) -> None:
        """Stop at items of more than two categories that are no counts of the bank's attempts."""
        models, _ = known_models(bank, self.bank_ids)
        here = dict(zip(self.view.item_id, self.view.n_categories, strict=True))
        each = zip(self.bank_ids, models.names, models.n_categories.tolist(), strict=True)
        for name, model, k in each:
            if model != COUNTS and max(k, here[name]) > 2:
                raise InputError(
                    f"item {name!r} has {here[name]} categories, and the bank has it by the model "
                    f"{str(model)!r} with {k}: a board grows by items of two categories, or by "
                    f"counts of attempts, which are calibrated as {COUNTS!r}"
                )
            if k != here[name]:
                raise InputError(
                    f"item {name!r} has {here[name] - 1} attempts at most, and the bank has it "
                    f"with {k - 1}: give all waves the same number of attempts"
                )

    def freed(self, drifted: tuple[str, ...]) -> Board:
        """With what drifted as other items for those who joined."""
        base = dict(zip(self.bank_ids, self.history.origin, strict=True))
        made = {f"{base[i]}{board_waves.AT}{self.wave}": i for i in drifted}
        if clash := [name for name in made if name in set(self.view.item_id)]:
            raise InputError(
                f"{len(clash)} question(s) that drifted would have the name of another one: "
                f"{listed(clash, 5)}; rename these"
            )
        versions = {b: list(v) for b, v in self.history.versions.items()}
        for name, i in made.items():
            versions.setdefault(base[i], []).append((self.wave - 1, name))
        view = _view(self.given, self.ends, versions)
        new = tuple(i for i in view.item_id if i not in set(self.bank_ids))
        return self._replace(view=view, new=new, versions=made)


def _view(given: Responses, ends: Ints, versions: dict[str, list[tuple[int, str]]]) -> Responses:
    """Items by waves; groups are waves, small ones joined."""
    naming = board_waves.naming_of(given.item_id, versions, ends.size)
    return board_waves.view(given, ends, naming, _labels(ends))


def _labels(ends: Ints) -> tuple[str, ...]:
    pool = board_waves.pools(ends)
    out = []
    for k in pool:
        waves = np.flatnonzero(pool == k) + 1
        several = waves.size > 1
        out.append(f"waves {waves[0]}-{waves[-1]}" if several else f"wave {waves[0]}")
    return tuple(out)


# --- who answered what ----------------------------------------------------------------------------


def _counts(block: Block, ends: Ints, first: Ints) -> tuple[Ints]:
    """Persons with other responses and with the highest, by wave and item, (2, waves, items)."""
    wave = board_waves.wave_of(ends, block.start, block.n_persons)
    out = np.zeros((2, ends.size, block.data.shape[1]), dtype=np.int64)
    for w in np.unique(wave):
        at = np.flatnonzero(wave == w)
        found = response_counts.category_counts(row_range(block.data, at[0], at[-1] + 1), first)
        right, seen = found[first[1:] - 1], np.add.reduceat(found, first[:-1])
        out[:, w] = seen - right, right
    return (out,)


def check_counts(board: Board, bank: xr.Dataset, options: dict[str, Any]) -> None:
    """Stop where these are not the persons of the bank, or nothing ties new items to its scale."""
    with Engine(board.view, graded=True, stage="responses by wave", **options) as engine:
        first = np.concatenate([[0], np.cumsum(board.view.n_categories)])
        (counts,) = engine.map_reduce(_counts, board.ends, first)
    place = {i: j for j, i in enumerate(board.view.item_id)}
    of_bank = np.array([place[i] for i in board.bank_ids])
    _check_known(board, bank, counts[:, :-1, of_bank].sum(axis=1))
    seen = counts.sum(axis=0)
    sizes = np.diff(board.ends, prepend=0)
    pool = board_waves.pools(board.ends)
    for k in np.unique(pool):
        own = seen[pool == k].sum(axis=0)
        new, links = own.sum() - own[of_bank].sum(), own[of_bank].sum()
        what = _labels(board.ends)[int(np.flatnonzero(pool == k)[0])]
        if new and not links:
            raise EstimationError(
                f"persons of {what} answered new items and none that the bank knows: nothing says "
                f"whether these items are hard or these persons not able; give them known items too"
            )
        if new and links < _FEW_LINKS * sizes[pool == k].sum():
            warnings.warn(
                f"persons of {what} answered {links / sizes[pool == k].sum():.1f} items of the "
                f"bank on average: new items are on its scale as far as so few say how able they "
                f"are",
                DataWarning,
                stacklevel=4,
            )


def _check_known(board: Board, bank: xr.Dataset, found: Ints) -> None:
    """Stop where items have fewer wrong or right responses, (2, items), than the bank says.

    Merged answers only add to what was there; persons in another order have other ones.
    """
    if "item_n_responses" not in bank or "item_n_right" not in bank:
        return
    right = bank["item_n_right"].values.astype(np.int64)
    before = np.stack([bank["item_n_responses"].values.astype(np.int64) - right, right])
    fewer = np.argwhere((found < before).T)
    if fewer.size:
        j, k = fewer[0]
        raise InputError(
            f"{np.unique(fewer[:, 0]).size} item(s) have fewer responses of the first "
            f"{board.history.n_known} persons than the bank was calibrated with, "
            f"{board.bank_ids[j]} {found[k, j]} {('wrong', 'right')[k]} ones for {before[k, j]}: "
            f"these are not the persons of the bank, or not in the order that they had"
        )
