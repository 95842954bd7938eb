"""The handle that every computing function takes."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats
from irt_dask.errors import InputError, repeated
from irt_dask.store.blocks import Block, BlockRef
from irt_dask.store.categories import BINARY, Categories, of_each
from irt_dask.store.labels import Labels
from irt_dask.variables import identifier

if TYPE_CHECKING:
    import xarray as xr

#: Kinds of person weights.
SAMPLING, FREQUENCY = "sampling", "frequency"


@dataclass(frozen=True, eq=False)
class Responses:
    """Responses of persons to items, as a list of blocks; small and picklable.

    Made by :func:`irt_dask.ingest`, :func:`irt_dask.open_responses`, :func:`irt_dask.from_array`,
    :func:`irt_dask.simulate` or :func:`irt_dask.load_lsat`.

    Attributes
    ----------
    n_persons, n_items, n_blocks : int
    item_id : tuple of str
    n_categories : tuple of int
        K of each item: responses are the codes 0 to K - 1; 2 is wrong and right.  ``categories``
        is the same as one number where it is the same for all items, ``graded`` whether some K is
        above 2.
    layout : "dense" or "csr"
        How blocks hold responses; never changes a result.
    fingerprint : str
        Identifies all that a method may read: responses, identifiers, weights, groups, covariates,
        and their cut into blocks.  For a store it is the checksum of its manifest; else one pass
        over the blocks, in this process, at each access (a second for some 10^9 cells in memory; a
        dask array is computed).
    checksum : str or None
        The fingerprint where it is known without a pass: for a store and selections from it.
    lazy : bool
        Whether blocks are computed when they are read, and may differ the next time.
    path : str or None
        Where the store is.
    max_weight : float or None
        Largest person weight, as given; None without weights.
    weight_kind : "sampling" or "frequency"
        Sampling weights are divided by their mean in every method; frequency weights count persons.
    has_groups : bool
    covariate_names : tuple of str
    covariate_labels : mapping from name to tuple of str
        Of the covariates that are labels: :meth:`covariates` has numbers that stand for them.
    n_quarantined : int
        Rows of the source that were put aside when the store was made.
    truth : xarray.Dataset or None
        True parameters of simulated responses.
    """

    refs: Sequence[BlockRef]
    n_persons: int
    item_id: tuple[str, ...]
    checksum: str | None = None
    layout: str = "dense"
    path: str | None = None
    max_weight: float | None = None
    has_groups: bool = False
    covariate_names: tuple[str, ...] = ()
    n_quarantined: int = 0
    truth: xr.Dataset | None = None
    weight_kind: str = SAMPLING
    lazy: bool = False
    categories: Categories = BINARY
    covariate_labels: Labels = field(default_factory=dict)

    @property
    def n_categories(self) -> tuple[int, ...]:
        """Number of categories of each item."""
        return of_each(self.categories, self.n_items)

    @property
    def graded(self) -> bool:
        """Whether some item has more than two categories."""
        return bool(np.max(self.categories) > BINARY)

    @property
    def fingerprint(self) -> str:
        """Identifies the content; see the class."""
        from irt_dask.store.digests import block_digest, responses_digest

        return self.checksum or responses_digest(self, map(block_digest, self.refs))

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_id)

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.refs)

    def read_block(self, k: int) -> Block:
        """Return a copy of block ``k``; of a store every byte is checked against the manifest.

        Examples
        --------
        >>> import numpy as np
        >>> import irt_dask as irt
        >>> block = irt.from_array(np.array([[1, 0, -1], [1, 1, 0]])).read_block(0)
        >>> block.data.values.tolist()
        [[1, 0, -1], [1, 1, 0]]
        >>> block.weights().tolist()
        [1.0, 1.0]
        """
        if not 0 <= k < self.n_blocks:
            raise IndexError(f"block {k} of {self.n_blocks}")
        return copy.deepcopy(self.refs[k].read())

    def person_ids(self, k: int) -> NDArray[np.object_]:
        """Return the identifiers of the persons of block ``k``.

        Examples
        --------
        >>> import irt_dask as irt
        >>> irt.load_lsat().person_ids(0)[:3].tolist()
        ['0', '1', '2']
        """
        return self.refs[k].person_ids().astype(object)

    def groups(self, k: int) -> NDArray[np.object_] | None:
        """Return the group labels of the persons of block ``k``; None without groups.

        Examples
        --------
        >>> import numpy as np
        >>> import irt_dask as irt
        >>> persons = {"group": ["a", "b", "a"]}
        >>> responses = irt.from_array(np.array([[1], [0], [1]]), persons=persons)
        >>> responses.groups(0).tolist()
        ['a', 'b', 'a']
        """
        return copy.copy(self.refs[k].groups())

    def covariates(self, k: int) -> Floats | None:
        """Return the covariates of the persons of block ``k`` (rows, covariates), or None.

        Examples
        --------
        >>> import numpy as np
        >>> import irt_dask as irt
        >>> persons = {"age": [15.0, 16.0, 15.5]}
        >>> responses = irt.from_array(np.array([[1], [0], [1]]), persons=persons)
        >>> responses.covariate_names
        ('age',)
        >>> responses.covariates(0).tolist()
        [[15.0], [16.0], [15.5]]
        """
        return copy.copy(self.refs[k].covariates())

    def select(
        self,
        *,
        items: Sequence[str] | None = None,
        persons: Sequence[str] | NDArray[np.bool_] | slice | None = None,
        weights: str = "use",
        omitted: str | None = None,
        not_reached: str | None = None,
        groups: str | None = None,
    ) -> Responses:
        """Return some items, some persons or both, without copying anything.

        ``path``, ``max_weight``, ``n_quarantined`` and ``verify`` remain those of the whole.
        Sampling weights are divided by the mean of the persons that are selected.

        Parameters
        ----------
        items : identifiers, in the order in which they are wanted.
        persons : identifiers, a mask (True or False each, by position) or a slice (step 1)
            Persons stay in the order of the data.  Identifiers take one pass over those of all
            persons, in this process.  Of a mask, a byte a person in this process, workers get what
            concerns their blocks.
        weights : {"use", "ignore"}
            "ignore": as if nobody had a weight, for methods that do not support weights.
        omitted, not_reached : {"missing", "wrong"}, optional
            What a response is that a store has as omitted or not reached ("irt-dask docs data"):
            not observed, as in any store that is opened, or wrong, the lowest category.  Of an
            opened store, before anything else is selected.
        groups : name of a covariate, optional
            That persons are in groups by: its labels, or whole numbers; those of whom it is not
            known are of the group "missing".  In place of the groups that they were given.

        Raises
        ------
        InputError
            If an identifier does not occur (it lists them), a mask is not of truth values or not
            as long as there are persons, or nothing is selected; if there is no such covariate.

        Examples
        --------
        >>> import irt_dask as irt
        >>> responses = irt.load_lsat()
        >>> responses.select(items=["LSAT3", "LSAT1"], persons=slice(0, 100))
        <Responses: 100 persons x 2 items, 1 dense blocks>
        >>> able = responses.to_xarray()["response"].sum("items") >= 4
        >>> responses.select(persons=able).n_persons
        655
        """
        from irt_dask.store.selection import select

        whole = self
        if omitted is not None or not_reached is not None:
            from irt_dask.store import nonresponse

            whole = nonresponse.select(self, omitted, not_reached)
            if items is None and persons is None and weights == "use" and groups is None:
                return whole
        if groups is not None:
            from irt_dask.store.group_views import by_covariate

            whole = by_covariate(whole, groups)
        return select(whole, items, persons, weights)

    def dichotomise(self, at: int | Mapping[str, int]) -> Responses:
        """Return the responses in two categories, without copying anything.

        Each block is changed when it is read.  What methods for two categories make of the view is
        theirs alone: ``fingerprint`` is another one.  ``path``, ``n_quarantined`` and ``verify``
        remain those of the whole; ``truth`` is left out.

        Parameters
        ----------
        at : the lowest code that counts as right, from 1 to K - 1
            Of all items of more than two categories, or by identifier of each of these.  Items of
            two categories stay as they are.

        Returns
        -------
        Responses, of two categories; these themselves if no item has more

        Raises
        ------
        InputError
            If an item does not have that code, does not occur, or is not named.

        Examples
        --------
        >>> import numpy as np
        >>> import irt_dask as irt
        >>> codes = np.array([[2, 0], [1, 1], [0, -1]])
        >>> responses = irt.from_array(codes, item_id=["q1", "q2"], categories=[3, 2])
        >>> right = responses.dichotomise(at=2)
        >>> right.n_categories
        (2, 2)
        >>> right.read_block(0).data.values.tolist()
        [[1, 0], [0, 1], [0, -1]]
        """
        from irt_dask.store.dichotomy import dichotomise

        return dichotomise(self, at)

    def split(self, share: float, *, seed: int = 0) -> tuple[Responses, Responses]:
        """Deal the persons into two parts at random, without copying anything.

        Parameters
        ----------
        share : float
            Of the first part, expected: every person is dealt by a random number of its own, keyed
            by its position, so neither blocks nor workers matter.
        seed : int

        Returns
        -------
        (Responses, Responses), such as persons to calibrate with and persons to test with

        Raises
        ------
        InputError
            If share is not between 0 and 1, or a part would hold nobody.

        Examples
        --------
        >>> import irt_dask as irt
        >>> calibrate, test = irt.load_lsat().split(0.8, seed=1)
        >>> calibrate.n_persons, test.n_persons
        (801, 199)
        """
        from irt_dask.store.selection import split

        return split(self, share, seed)

    def to_xarray(self) -> xr.Dataset:
        """Return ``response`` (persons, items) with identifiers and weights, lazily (dask).

        Dense layout only: a sparse block as a full matrix may not fit in memory.

        Examples
        --------
        >>> import irt_dask as irt
        >>> response = irt.load_lsat().to_xarray()["response"]
        >>> response.dims, response.shape
        (('persons', 'items'), (1000, 5))
        >>> response.mean("persons").values.round(2).tolist()
        [0.92, 0.71, 0.55, 0.76, 0.87]
        """
        from irt_dask.store.lazy import to_xarray

        return to_xarray(self)

    def verify(self) -> None:
        """Read every byte of the store and raise one StoreError that names all that is wrong.

        Examples
        --------
        >>> import irt_dask as irt
        >>> responses = irt.simulate(500, 10, seed=1, store="checked.zarr")
        >>> responses.verify()  # no error: every byte is as it was written
        """
        if self.path is not None:
            from irt_dask.store.stored import verify

            verify(self.path)

    def __repr__(self) -> str:
        where = f" in {self.path}" if self.path else ""
        return (
            f"<Responses: {self.n_persons} persons x {self.n_items} items, "
            f"{self.n_blocks} {self.layout} blocks{where}>"
        )


def check_item_ids(item_id: Sequence[object]) -> tuple[str, ...]:
    """Return item identifiers as strings, refusing none, empty or repeated ones."""
    ids = tuple(identifier(i) for i in item_id)
    if not ids:
        raise InputError("there are no items: responses need at least one item column")
    empty = [k for k, i in enumerate(ids) if not i]
    if empty:
        raise InputError(f"item {empty[0] + 1} has an empty identifier; name every item")
    if twice := sorted(repeated(ids)):
        raise InputError(f"item identifiers must be unique; repeated: {', '.join(twice[:10])}")
    return ids


def sha256(*parts: bytes | NDArray[np.generic]) -> str:
    """Return the hexadecimal SHA-256 of the parts; arrays enter with type and shape."""
    h = hashlib.sha256()
    for p in parts:
        if isinstance(p, bytes):
            h.update(p)
        else:
            h.update(f"[{p.dtype.str}{p.shape}".encode())
            h.update(np.ascontiguousarray(p).data)
    return h.hexdigest()
