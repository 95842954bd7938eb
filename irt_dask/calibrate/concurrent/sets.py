"""Sets of groups that share items: a country over cycles, a language in many countries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Ints
from irt_dask.errors import InputError, listed


class Sets(NamedTuple):
    """The set of each group: a number, in order of the first groups, and labels by number.

    A group of which nothing was said is a set of its own, under its own label.
    """

    labels: tuple[str, ...]
    number: Ints  # (groups,)
    given: bool

    @classmethod
    def of(cls, groups: tuple[str, ...], sets: Mapping[str, str] | None) -> Sets:
        """From what was asked for; complaints about it."""
        asked = _asked(sets)
        if unknown := sorted(asked.keys() - set(groups)):
            raise InputError(
                f"sets= names {len(unknown)} group(s) that the responses do not have: "
                f"{listed(unknown, 5)}"
            )
        if taken := sorted({s for s in asked.values() if s in groups and asked.get(s) != s}):
            raise InputError(
                f"sets= calls {len(taken)} set(s) as a group is called that is not in it: "
                f"{listed(taken, 5)}; give these sets other names"
            )
        names = [asked.get(group, group) for group in groups]
        labels = tuple(dict.fromkeys(names))
        if len(labels) < 2:
            raise InputError(
                f"all groups are in the set {labels[0]!r}: there is no other to compare it with"
            )
        number = np.array([labels.index(name) for name in names], dtype=np.int64)
        return cls(labels, number, sets is not None)

    @property
    def members(self) -> list[Ints]:
        """Groups of each set."""
        return [np.flatnonzero(self.number == k) for k in range(len(self.labels))]

    @property
    def first(self) -> Ints:
        """The first group of each set."""
        return np.array([own[0] for own in self.members])

    @property
    def of_groups(self) -> Any:
        """The label of each group's set."""
        return np.array(self.labels)[self.number]

    def groups_of(self, label: str, groups: tuple[str, ...]) -> str:
        """Labels of the groups of a set as a JSON list; nothing of no set."""
        if label not in self.labels:
            return ""
        own = np.flatnonzero(self.number == self.labels.index(label))
        return json.dumps([groups[g] for g in own.tolist()], ensure_ascii=False)


def _asked(sets: Any) -> dict[str, str]:
    """Labels of sets by labels of groups."""
    if sets is None:
        return {}
    if not isinstance(sets, Mapping) or not sets:
        raise InputError(f"sets={sets!r}: give a mapping from labels of groups to labels of sets")
    asked = {str(group): "" if label is None or label != label else str(label)  # NaN
             for group, label in sets.items()}  # fmt: skip
    if unnamed := sorted(group for group, label in asked.items() if not label):
        raise InputError(
            f"sets= names no set for {len(unnamed)} group(s): {listed(unnamed, 5)}; leave groups "
            f"out that are of no set"
        )
    return asked
