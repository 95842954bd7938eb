"""Which attributes of persons a source brings, and whether a store can take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from irt_dask.errors import InputError
from irt_dask.ingest.sources.source import Source
from irt_dask.store import Responses
from irt_dask.store.responses import SAMPLING


class Attributes(NamedTuple):
    """Whether there are weights and groups, and the names of the covariates."""

    weighted: bool
    grouped: bool
    covariates: tuple[str, ...]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, tables: Sequence[Source]) -> Attributes:
        """Of the responses and, if there is one, the table of persons, which has covariates."""
        roles = [table.roles for table in tables]
        return cls(
            any(r.weight is not None for r in roles), any(r.group is not None for r in roles),
            roles[-1].covariates, tuple(sorted(roles[-1].labels)),
        )  # fmt: skip

    def check(
        self, tables: Sequence[Source], weight_kind: str, old: Responses | None, merging: bool
    ) -> InputError | None:
        """Refuse attributes that are there twice, or which the store does not have alike.

        ``tables`` are the responses and, if there is one, the table of persons.  What a store has
        and is not given may be left out of a merge, but not of persons who are new: the error to
        raise if there are some is returned.
        """
        source = tables[0]
        for role in ("weight", "group"):
            if sum(role in table.roles.single for table in tables) > 1:
                raise source.error(
                    f"has a {role} column, and so has {tables[1].path}; leave one of them out"
                )
        if old is None:
            if weight_kind != SAMPLING and not self.weighted:
                raise source.error(
                    f"has no column of weights (nor has persons=), and weight_kind is "
                    f"{weight_kind!r}; name the column (columns={{'weight': ...}}) or leave "
                    f"weight_kind out"
                )
            return None
        unlike = None
        for what, has, had in (
            ("weights", self.weighted, old.max_weight is not None),
            ("groups", self.grouped, old.has_groups),
            ("covariates", self.covariates, old.covariate_names),
            ("labels", tuple(sorted(self.labels)), tuple(sorted(old.covariate_labels))),
        ):
            if has == had:
                continue
            unlike = source.error(
                f"brings {what}: {_said(has)}; the store {old.path} has {what}: {_said(had)}; "
                f"what is appended must have the same"
            )
            if has or not merging:  # else new persons alone need it
                raise unlike
        return unlike


def _said(has: bool | tuple[str, ...]) -> str:
    if isinstance(has, bool):
        return "yes" if has else "no"
    return ", ".join(has) or "none"
