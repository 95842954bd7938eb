"""What a concurrent calibration says: the marginal fit, every item in every group, the record."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.concurrent import links
from irt_dask.calibrate.concurrent.pair_tests import Apart, Pairs
from irt_dask.calibrate.concurrent.rounds import Change, Rule
from irt_dask.calibrate.concurrent.sets import Sets
from irt_dask.calibrate.marginal import described as marginal
from irt_dask.calibrate.marginal.model import Model
from irt_dask.calibrate.marginal.rounds import Rounds
from irt_dask.calibrate.shared import climb
from irt_dask.engine import dataset
from irt_dask.store.freed_items import Naming


@dataclasses.dataclass
class Record:
    """What happened in which round."""

    labels: tuple[str, ...]
    item_id: tuple[str, ...]
    rule: Rule
    sets: Sets
    changes: list[Change] = dataclasses.field(default_factory=list)
    log_likelihood: list[float] = dataclasses.field(default_factory=list)
    n_iterations: list[int] = dataclasses.field(default_factory=list)
    #: Means and SDs of the groups while every item was common.
    ability: Floats | None = None

    def add(self, model: Model, end: climb.Fitted) -> None:
        """Keep what a round found."""
        self.log_likelihood.append(float(end.trace[-1]))
        self.n_iterations.append(len(end.trace))
        if self.ability is None:
            mean, log_sd = model.unpack(end.x)[1]
            self.ability = np.stack([mean, np.exp(log_sd)])

    def variables(self) -> dict[str, Any]:
        """The record as arrays over ``changes`` and ``rounds``."""
        assert self.ability is not None
        table = np.array([c[3:] for c in self.changes], dtype=float).reshape(-1, 7)
        names = ("rmsd", "rmsd_expected", "rmsd_corrected", "md", "p_value", "q_value")
        return {
            "group_mean_all_common": self.ability[0],
            "group_sd_all_common": self.ability[1],
            "change_round": np.array([c.round for c in self.changes], dtype=np.int64),
            "change_group": np.array([self.sets.labels[c.set] for c in self.changes], dtype=str),
            "change_item": np.array([self.item_id[c.item] for c in self.changes], dtype=str),
            "change_freed": table[:, 0] > 0.0,
            **{f"change_{name}": table[:, k + 1] for k, name in enumerate(names)},
            "round_log_likelihood": np.array(self.log_likelihood),
            "round_n_iterations": np.array(self.n_iterations),
        }


def described(
    fit: Rounds, found: marginal.Found, end: climb.Fitted, items: dict[str, Any], naming: Naming,
    pairs: Pairs, record: Record, model: str, stable: bool,
) -> xr.Dataset:  # fmt: skip
    """The result of a marginal fit, and what belongs to every item in every group."""
    of_fit = marginal.described(fit, found, end, items, record.labels, model, None)
    freed, rule, sets = naming.freed, record.rule, record.sets
    each, n = pairs.of_groups, pairs.of_groups.n
    nowhere = np.asarray(freed.all(axis=0))
    more = dataset(
        {
            "item_origin": np.array([record.item_id[j] for j in naming.origin]),
            "item_freed_group": np.array(naming.owner, dtype=str),
            "origin_n_responses": n,
            **{
                f"origin_{name}": _known(values, n > 0, nowhere)
                for name, values in (
                    *_distances("", each),
                    ("chi2", pairs.chi2[sets.number]),
                    ("p_value", pairs.p_value[sets.number]),
                    ("q_value", pairs.q_value[sets.number]),
                )
            },
            "origin_df": pairs.df,
            "origin_freed": freed,
            "group_n_common": links.n_common(n > 0, freed),
            **(_of_sets(pairs, naming, record, nowhere) if sets.given else {}),
            **record.variables(),
        },
        coords={"origin_id": np.array(record.item_id, dtype=str)},
        attrs={},
    )
    out = xr.merge([of_fit, more], combine_attrs="override")
    how = {"rate": rule.rate, "least": rule.least} if rule.free == "test" else {}
    out.attrs |= (
        of_fit.attrs
        | how
        | {
            "method": "concurrent calibration",
            "free": rule.free,
            "n_freed": int((naming.group >= 0).sum()),
            "n_rounds": len(record.n_iterations),
            "stable": int(stable),
            "converged": int(end.converged and stable),
        }
    )
    return out


def _distances(kind: str, apart: Apart) -> list[tuple[str, Floats]]:
    """Distances of groups, or of sets, and what they are called."""
    return [
        (f"{kind}rmsd", apart.rmsd),
        (f"{kind}rmsd_expected", apart.expected),
        (f"{kind}rmsd_corrected", apart.corrected),
        (f"{kind}md", apart.md),
    ]


def _of_sets(pairs: Pairs, naming: Naming, record: Record, nowhere: Bools) -> dict[str, Any]:
    """What belongs to sets of groups: whose items are whose, and distances of the sets' curves."""
    sets, there = record.sets, pairs.of_groups.n > 0
    return {
        "group_set": sets.of_groups,
        "item_set_groups": np.array([sets.groups_of(x, record.labels) for x in naming.owner]),
        **{
            f"origin_{name}": _known(values[sets.number], there, nowhere)
            for name, values in _distances("set_", pairs.apart)
        },
    }


def _known(values: Floats, there: Bools, nowhere: Bools) -> Floats:
    """NaN where a group did not answer, and of items that are common nowhere."""
    return np.where(there & ~nowhere, values, np.nan)
