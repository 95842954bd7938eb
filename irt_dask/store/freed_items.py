"""Items that are freed in some groups, as items of their own: a view of the responses.

An item that is freed in a group becomes another one, "item@group", which nobody outside the group
was given; of groups that share it, a set, it has the set's name.  Nothing is copied: blocks are
renamed when they are read.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Ints
from irt_dask.errors import InputError, listed
from irt_dask.kernels.responses import layouts
from irt_dask.store.blocks import Block, WrappedRef
from irt_dask.store.categories import together
from irt_dask.store.responses import Responses, check_item_ids, sha256
from irt_dask.variables import as_labels

#: What stands between an item and the group in which it is freed.
AT = "@"


@dataclasses.dataclass(frozen=True)
class Naming:
    """Which item each item is in each group.

    ``columns`` (groups, items of the responses) are places among the items of the view, whose
    items ``origin`` were; ``group`` is the first in which a freed item is, -1 of the others, and
    ``owner`` its label or that of its set, nothing of the others.  A row of ``columns`` beyond
    those of ``labels`` is of all other groups; without one these are refused.
    """

    labels: tuple[str, ...]
    item_id: tuple[str, ...]
    columns: Ints
    origin: Ints
    group: Ints
    owner: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, item_id: tuple[str, ...], labels: tuple[str, ...], freed: Bools, sets: Any = None
    ) -> Naming:
        """Name the items of which (groups, items) are freed; one that is everywhere has no rest.

        ``sets`` are labels, (groups, 1) or (groups, items): groups that have the same share a freed
        item.  Default: each group has its own.
        """
        n_groups, m = freed.shape
        left = np.flatnonzero(~freed.all(axis=0))
        named = np.array(labels)[:, None] if sets is None else np.asarray(sets)
        named = np.broadcast_to(named, (len(named), m))
        columns = np.empty((n_groups, m), dtype=np.int64)
        columns[:, left] = np.arange(left.size)
        first: dict[tuple[int, str], int] = {}
        for j, g in np.argwhere(freed.T).tolist():
            first.setdefault((j, str(named[g, j])), g)
        place = {key: left.size + k for k, key in enumerate(first)}
        for j, g in np.argwhere(freed.T).tolist():
            columns[g, j] = place[j, str(named[g, j])]
        names = [item_id[j] for j in left]
        names += [f"{item_id[j]}{AT}{label}" for j, label in first]
        taken = set(item_id)
        if clash := [name for name in names[left.size :] if name in taken]:
            raise InputError(
                f"{len(clash)} item(s) that are freed in a group would have the name of another "
                f"item: {listed(clash, 5)}; rename these items or groups"
            )
        return cls(
            labels, check_item_ids(names), columns,
            np.append(left, np.array([j for j, _ in first], dtype=np.int64)),
            np.append(np.full(left.size, -1), np.array([*first.values()], dtype=np.int64)),
            ("",) * left.size + tuple(label for _, label in first),
        )  # fmt: skip

    @property
    def freed(self) -> Bools:
        """Pairs that are freed, (groups, items)."""
        return self.group[self.columns] >= 0

    @property
    def together(self) -> Bools:
        """Items of each group, (groups, items of the view)."""
        out = np.zeros((len(self.columns), len(self.item_id)), dtype=bool)
        np.put_along_axis(out, self.columns, True, axis=1)
        return out

    def of_model(self, model: str | Mapping[str, str], item_id: tuple[str, ...]) -> Any:
        """A choice of models by item, for the items of the view too."""
        if isinstance(model, str):
            return model
        known = {str(i): name for i, name in model.items()}
        if lacking := [i for i in item_id if i not in known]:
            raise InputError(
                f"model= names no model for {len(lacking)} item(s): {listed(lacking, 10)}"
            )
        if unknown := sorted(known.keys() - set(item_id)):
            raise InputError(
                f"model= names {len(unknown)} item(s) that the responses do not have: "
                f"{listed(unknown, 10)}"
            )
        return {i: known[item_id[j]] for i, j in zip(self.item_id, self.origin, strict=True)}


@dataclasses.dataclass(frozen=True, eq=False)
class FreedRef(WrappedRef):
    """A block's reference whose block has freed items under their own names."""

    ref: Any
    naming: Naming
    name: str  # of this view

    @property
    def cache_key(self) -> tuple[Any, ...] | None:
        """Identity of the block in this view."""
        return ("freed", self.name, self.index, self.ref.cache_key)

    def read(self) -> Block:
        """Return the block, its items renamed by the groups of its persons."""
        block: Block = self.ref.read()
        column = self.naming.columns[self._groups()]
        return dataclasses.replace(block, data=renamed(block.data, column, self.naming))

    def _groups(self) -> NDArray[np.int64]:
        """Number of the group of each person."""
        labels = np.asarray(self.ref.groups()).astype(str)
        known = np.array(self.naming.labels)
        at = np.minimum(np.searchsorted(known, labels), known.size - 1)
        other = known[at] != labels
        if len(self.naming.columns) > known.size:
            at[other] = known.size
        elif other.any():
            raise InputError(
                f"{listed(sorted({*labels[other].tolist()}), 5)}: no such group was calibrated, so "
                f"that nobody knows which items are freed in it; calibrate it with the others, or "
                f"leave its persons out"
            )
        return at


def renamed(data: layouts.Layout, column: Ints, naming: Naming) -> layouts.Layout:
    """Responses whose items are those of ``column`` (persons, items), in ascending order."""
    n = data.shape[0]
    sparse = layouts.to_sparse(data)
    row = np.repeat(np.arange(n), np.diff(sparse.indptr))
    new = column[row, sparse.indices]
    order = np.lexsort((new, row))
    out = layouts.Sparse(
        sparse.indptr, new[order].astype(np.int32), sparse.values[order], len(naming.item_id)
    )
    dense = n * len(naming.item_id) * layouts.SPARSE_BELOW < out.indices.size
    return layouts.to_dense(out) if dense else out


def view(responses: Responses, naming: Naming) -> Responses:
    """The same responses with freed items under their own names."""
    text = repr((naming.labels, naming.item_id)).encode()
    of_pairs = sha256(text, np.ascontiguousarray(naming.columns))
    known = responses.checksum
    # Data in memory have no name of their own: this view's is never used again.
    name = of_pairs + (uuid.uuid4().hex if known is None else known)
    each = responses.n_categories
    return dataclasses.replace(
        responses,
        refs=[FreedRef(ref, naming, name) for ref in responses.refs],
        item_id=naming.item_id,
        categories=together(each[j] for j in naming.origin),
        checksum=None if known is None else sha256(known.encode(), of_pairs.encode()),
        truth=None,  # of the items as they were
    )


def freed_of(items: xr.Dataset) -> dict[str, tuple[str, str]]:
    """Of each item that is one group's own, or one set's: which item it was, and whose it is."""
    if "item_freed_group" not in items:
        return {}
    each = zip(items["item_id"].values, as_labels(items["item_freed_group"].values), strict=True)
    named = ((str(i), str(g)) for i, g in each)
    return {i: (i.removesuffix(f"{AT}{g}"), g) for i, g in named if g and i.endswith(f"{AT}{g}")}


def groups_of_set(text: str) -> tuple[str, ...] | None:
    """Labels of the groups that a set lists, in JSON; None of what is no such list."""
    try:
        groups = json.loads(text)
    except ValueError:
        return None
    is_list = isinstance(groups, list) and all(isinstance(g, str) for g in groups)
    return tuple(groups) if is_list and groups else None


def refuse_together(items: xr.Dataset) -> None:
    """Stop if an item is there more than once, as different groups' own: nobody answers both."""
    forms: dict[str, list[str]] = {}
    own = freed_of(items)
    for name in items["item_id"].values.astype(str) if own else ():
        forms.setdefault(own.get(name, (name, ""))[0], []).append(name)
    if twice := [names for names in forms.values() if len(names) > 1]:
        named = listed([" and ".join(names) for names in twice], 5)
        raise InputError(
            f"{len(twice)} item(s) are there once for everybody and again for groups that answered "
            f"them otherwise, or for several such groups ({named}), and nobody answers both: "
            f"give the form of one group, bank.isel(items=...)"
        )


def _sets(items: xr.Dataset, own: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The groups of those items, of ``own``, that are a set's."""
    if "item_set_groups" not in items:
        return {}
    each = zip(items["item_id"].values, as_labels(items["item_set_groups"].values), strict=True)
    out = {}
    for name, text in each:
        if str(name) not in own or not text:
            continue
        groups = groups_of_set(text)
        if groups is None:
            raise InputError(
                f"item {name}: the groups of its set are {str(text)!r}; they are a list of labels "
                f'such as ["a", "b"]'
            )
        out[str(name)] = groups
    return out


def _whose(items: xr.Dataset, place: Mapping[str, int]) -> dict[tuple[str, str], str]:
    """Of each item and group that has one of its own: whose it is, the group's or a set's."""
    own = freed_of(items)
    sets = _sets(items, own)
    out: dict[tuple[str, str], str] = {}
    for name, (item, label) in own.items():
        for group in sets.get(name, (label,)) if item in place else ():
            if (item, group) in out:
                raise InputError(
                    f"group {group!r} has two items of its own for {item!r}: "
                    f"{item}{AT}{out[item, group]} and {name}; leave one of them out"
                )
            out[item, group] = label
    return out


def _refuse_nobody_s(
    whose: Mapping[tuple[str, str], str], known: Collection[str], method: str
) -> None:
    """Stop at items of groups of which the calibration knew none: everybody would be without."""
    groups: dict[str, list[str]] = {}
    for (item, group), label in whose.items():
        groups.setdefault(f"{item}{AT}{label}", []).append(group)
    lost = {name: own for name, own in groups.items() if set(own).isdisjoint(known)}
    if lost:
        named = ", ".join(f"{name!r} of {listed(own, 3)}" for name, own in [*lost.items()][:5])
        raise InputError(
            f"{method}: {len(lost)} of the items are those of groups that were not calibrated: "
            f"{named}; the groups were {listed(known, 5)} (group_label, in banks "
            f"calibrated_groups). Of a set item_set_groups (set_groups) lists the groups: say "
            f"whose these items are, or leave them out"
        )


def under_their_names(responses: Responses, items: xr.Dataset, method: str) -> Responses:
    """The responses as these items are named: those of groups with an item of their own as to it.

    ``items`` say in ``item_freed_group``, and of sets in ``item_set_groups``, which are whose;
    groups of which they say nothing have the common ones.  Responses that have such items by name
    already are taken as they are.
    """
    if "item_freed_group" not in items or "item_id" not in items:
        return responses
    place = {name: j for j, name in enumerate(responses.item_id)}
    ids = [str(i) for i in items["item_id"].values]
    if any(i in place for i in freed_of(items)):
        return responses
    whose = _whose(items, place)
    if not whose:
        return responses
    if not responses.has_groups:
        each = sorted({(item, label) for (item, _), label in whose.items()})
        named = listed([f"{item}{AT}{label}" for item, label in each], 5)
        raise InputError(
            f"{method}: {len(each)} of the items are those of one group each, or of one set of "
            f"groups, which answered the item otherwise than the others ({named}), and the "
            f"responses have no groups of persons: give them, or leave these items out of the bank "
            f"to have everybody's for all"
        )
    known = items["group_label"].values.astype(str).tolist() if "group_label" in items else []
    if known:
        _refuse_nobody_s(whose, known, method)
    labels = tuple(sorted({*known, *(group for _, group in whose)}))
    # everybody's own: of no other group
    nobody_s = {item for item, _ in whose}.difference(ids)
    freed = np.zeros((len(labels) + (not nobody_s), len(place)), dtype=bool)
    owner = np.full((len(labels), len(place)), "", dtype=object)
    for (item, group), label in whose.items():
        at = labels.index(group), place[item]
        freed[at], owner[at] = True, label
    return view(responses, Naming.of(responses.item_id, labels, freed, owner))
