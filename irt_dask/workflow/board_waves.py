"""Who joined a growing board when, and which version of a question that drifted they answered.

Persons are told by their place: a store that is appended to keeps its order.  A question that
drifted is another one, "question@wave", for those who joined from that wave on.
"""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Ints
from irt_dask.engine import as_responses
from irt_dask.errors import InputError, listed
from irt_dask.items.parameters import bank_item_ids
from irt_dask.store import Block, Responses
from irt_dask.store.blocks import WrappedRef
from irt_dask.store.categories import together
from irt_dask.store.freed_items import Naming, renamed
from irt_dask.store.responses import check_item_ids, sha256

#: What stands between a question and the wave from which on it is another one.
AT = "@"
#: Persons of a distribution of ability at least: smaller waves join those before.
LEAST = 20


def wave_of(ends: Ints, start: int, n: int) -> Ints:
    """Number of the wave, from 0, of n persons from ``start`` on; later ones are of the last."""
    found = np.searchsorted(ends, start + np.arange(n), side="right")
    return np.minimum(found, ends.size - 1)


def pools(ends: Ints) -> Ints:
    """Number of the distribution of ability of each wave.

    From the first on, waves are joined until there are :data:`LEAST` persons; what is left at the
    end joins the last.
    """
    n = np.diff(ends, prepend=0)
    out, pool, inside = np.zeros(n.size, dtype=np.int64), 0, 0
    for w, size in enumerate(n):
        if inside >= LEAST and n[w:].sum() >= LEAST:
            pool, inside = pool + 1, 0
        out[w] = pool
        inside += size
    return out


@dataclasses.dataclass(frozen=True, eq=False)
class WaveRef(WrappedRef):
    """A block's reference: items by the waves of its persons, who are groups by these."""

    ref: Any
    ends: Ints
    naming: Naming
    #: Labels of the groups of each wave.
    label: tuple[str, ...]
    name: str  # of this view

    @property
    def cache_key(self) -> tuple[Any, ...] | None:
        """Identity of the block in this view."""
        return ("board", self.name, self.index, self.ref.cache_key)

    def column(self, name: str) -> NDArray[Any] | None:
        """Return a variable of the block's persons; groups are waves."""
        if name != "person_group":
            return super().column(name)
        n = self.ref.column("person_id").size
        return np.array(self.label, dtype=object)[wave_of(self.ends, self.start, n)]

    def read(self) -> Block:
        """Return the block, its items renamed by the waves of its persons."""
        block: Block = self.ref.read()
        if self.naming.columns.shape[1] == len(self.naming.item_id):
            return block  # nothing drifted
        wave = wave_of(self.ends, block.start, block.n_persons)
        data = renamed(block.data, self.naming.columns[wave], self.naming)
        return dataclasses.replace(block, data=data)


def naming_of(
    item_id: tuple[str, ...], versions: dict[str, list[tuple[int, str]]], n: int
) -> Naming:
    """Which item each item is for persons of each of n waves.

    ``versions`` are waves (from 0) and names of the items that came in the place of others.
    """
    names, origin = list(item_id), list(range(len(item_id)))
    columns = np.tile(np.arange(len(item_id)), (n, 1))
    for j, base in enumerate(item_id):
        for wave, name in sorted(versions.get(base, [])):
            columns[wave:, j] = len(names)
            names.append(name)
            origin.append(j)
    group = np.append(np.full(len(item_id), -1), np.full(len(names) - len(item_id), 0))
    return Naming(
        tuple(map(str, range(n))), check_item_ids(names), columns, np.array(origin, dtype=np.int64),
        group.astype(np.int64),
    )  # fmt: skip


def view(responses: Responses, ends: Ints, naming: Naming, label: tuple[str, ...]) -> Responses:
    """The same responses, items by waves, persons in groups of these labels."""
    text = repr((ends.tolist(), naming.item_id, label)).encode()
    of_view = sha256(text, np.ascontiguousarray(naming.columns))
    known = responses.checksum
    # Data in memory have no name of their own: this view's is never used again.
    name = of_view + (uuid.uuid4().hex if known is None else known)
    each = responses.n_categories
    return dataclasses.replace(
        responses,
        refs=[WaveRef(ref, ends, naming, label, name) for ref in responses.refs],
        item_id=naming.item_id,
        categories=together(each[j] for j in naming.origin),
        checksum=None if known is None else sha256(known.encode(), of_view.encode()),
        has_groups=True,
        truth=None,  # of the items as they were
    )


def ids_at(responses: Responses, places: Ints) -> list[str]:
    """Identifiers of the persons at some places, in ascending order; a block is read for each."""
    starts = np.array([int(ref.start) for ref in responses.refs])
    out = []
    for place in places.tolist():
        k = int(np.searchsorted(starts, place, side="right")) - 1
        out.append(str(responses.person_ids(k)[place - starts[k]]))
    return out


@dataclasses.dataclass(frozen=True)
class History:
    """What a bank says of the waves that it was made of."""

    ends: Ints
    last: tuple[str, ...]
    #: Waves (from 0) and names of the versions of questions that drifted.
    versions: dict[str, list[tuple[int, str]]]
    item_wave: Ints
    origin: tuple[str, ...]
    drifted: Bools
    #: Whether the items of a wave were calibrated with a prior.
    has_prior: Bools

    @classmethod
    def of(cls, bank: xr.Dataset, known: int | None) -> History:
        """Read it; ``known`` are the persons of a bank that does not say."""
        ids = bank_item_ids(bank, "bank")
        if "wave_n_persons" not in bank:
            n = bank.attrs.get("n_persons") if known is None else known
            if n is None:
                raise InputError(
                    "the bank does not say how many persons it was calibrated with (a .csv or "
                    ".json bank does not): give known=, how many of the responses' first persons "
                    "they are"
                )
            m = len(ids)
            wave, drifted = np.ones(m, dtype=np.int64), np.zeros(m, dtype=bool)
            prior = np.array(["prior" in bank.attrs or "item_discrimination_sd" in bank])
            return cls(np.array([int(n)]), (), {}, wave, ids, drifted, prior)
        if known is not None:
            raise InputError(f"known={known}: this bank says itself who was known, leave it out")
        wave = bank["item_wave"].values.astype(np.int64)
        origin = tuple(bank["item_origin"].values.astype(str).tolist())
        versions: dict[str, list[tuple[int, str]]] = {}
        for name, base, w in zip(ids, origin, wave, strict=True):
            if name != base:
                versions.setdefault(base, []).append((int(w) - 1, name))
        return cls(
            np.cumsum(bank["wave_n_persons"].values.astype(np.int64)),
            tuple(bank["wave_last_person"].values.astype(str).tolist()), versions, wave, origin,
            bank["item_drifted"].values.astype(bool), bank["wave_has_prior"].values.astype(bool),
        )  # fmt: skip

    @property
    def with_prior(self) -> Bools:
        """Items that were calibrated with a prior."""
        return np.asarray(self.has_prior[self.item_wave - 1])

    @property
    def n_known(self) -> int:
        """Persons who were known."""
        return int(self.ends[-1])

    def check(self, responses: Responses) -> None:
        """Stop unless these responses begin with the persons who were known."""
        if responses.n_persons < self.n_known:
            raise InputError(
                f"the bank knows {self.n_known} persons, and the responses have "
                f"{responses.n_persons}: give the whole board, those of earlier waves first, and "
                f"select persons from the result"
            )
        here = ids_at(responses, self.ends - 1) if self.last else []
        for end, name, there in zip(self.ends.tolist(), here, self.last, strict=False):
            if name != there:
                raise InputError(
                    f"person {end} of the responses is {name!r}, and was {there!r} when the bank "
                    f"was made: these are other persons, a selection or another order; give the "
                    f"whole board, to which persons were only ever appended"
                )

    def name_of(self, base: str, wave: int) -> str:
        """Name of the version of a question that is answered in a wave (from 0)."""
        found = [name for w, name in sorted(self.versions.get(base, [])) if w <= wave]
        return found[-1] if found else base


def questions_now(bank: xr.Dataset) -> xr.Dataset:
    """Of a bank of ``grow_bank`` each question as who joins now is asked it, under its own name.

    Other banks as they are.
    """
    if "item_origin" not in bank:
        return bank
    ids, base = (bank[name].values.astype(str) for name in ("item_id", "item_origin"))
    newest = dict(zip(base, ids, strict=True))  # versions come after what they are versions of
    now = bank.isel(items=np.array([newest[b] == i for b, i in zip(base, ids, strict=True)]))
    return now.assign_coords(item_id=("items", now["item_origin"].values.astype(str)))


def board_responses(responses: Any, bank: xr.Dataset) -> Responses:
    """Return the responses of a board under the names that its grown bank has for the questions.

    A question that drifted, "q", is "q@3" for those who joined from the third wave on, and so
    :func:`score` and others take for each person the parameters of what the person answered.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
        The whole board; persons who joined since the bank was made count to its last wave.
    bank : Dataset
        Result of :func:`grow_bank`.

    Returns
    -------
    Responses : a view, nothing is copied
        Persons are in groups by waves.  Select persons from it, not before.

    Raises
    ------
    InputError
        If the bank is none of :func:`grow_bank`, or persons are not those that it knows, at their
        places: of each wave the last is looked at.

    Notes
    -----
    No pass over the data; the identifiers of one block for each wave.

    Examples
    --------
    >>> import irt_dask as irt
    >>> board = irt.simulate(300, 20, seed=1)
    >>> bank = irt.fit_marginal(board.select(persons=slice(0, 200)))
    >>> grown = irt.grow_bank(board, bank)
    >>> scores = irt.score(irt.board_responses(board, grown), grown, method="wle")
    >>> scores.sizes["persons"]
    300
    """
    given = as_responses(responses, "board_responses", graded=True)
    if "wave_n_persons" not in bank:
        raise InputError("board_responses takes a bank of grow_bank: this is none")
    history = History.of(bank, None)
    history.check(given)
    taken = {name for some in history.versions.values() for _, name in some} & {*given.item_id}
    if taken:
        raise InputError(
            f"the responses have questions with the names of versions: {listed(sorted(taken), 5)}; "
            f"give the responses as they were, not those of board_responses"
        )
    n = history.ends.size
    naming = naming_of(given.item_id, history.versions, n)
    return view(given, history.ends, naming, tuple(f"wave {w + 1}" for w in range(n)))
