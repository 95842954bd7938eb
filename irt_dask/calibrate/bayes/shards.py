"""Posteriors of shards: their draws, and what these say of the chains."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.bayes.coordinates import Space
from irt_dask.calibrate.bayes.model_space import ModelSpace
from irt_dask.calibrate.bayes.model_space import diagnostics as of_models
from irt_dask.calibrate.shared.start_values import name_some
from irt_dask.errors import ApproximationWarning, ConvergenceWarning
from irt_dask.kernels.combine import convergence

#: Responses of an item in a shard; with 30 its combined SD was seen 1.4 times too wide.
_RARE = 100
#: The same of persons in a category: of graded and GPCM items (4,000 x 20, 10 shards) SDs came out
#: 1.2 to 2 times too large with fewer than 3 in each, 1.1 with 4 to 5, 1.05 with 8 to 11.
_RARE_CATEGORY = 5
#: Degrees between the loadings of shards.
_LARGE_ROTATION = 20.0
_RHAT_LIMIT = 1.05
#: Effective draws of all shards that an interval should rest on; of few draws, their share.
_FEW, _SMALL_SHARE = 100.0, 0.05
#: Draws scatter about the items a grid was made for: warn only where it is this much too coarse.
_COARSE = 1.5


#: Parameters of which ranks are kept, those of the largest R-hat, and classes of ranks.
_MOST_RANKED, _RANK_BINS = 8, 20


@dataclass(frozen=True)
class Ranked:
    """The parameters of a shard that mixed worst, and their draws by chain and rank."""

    row: Ints  # of coordinates
    item: Ints
    rhat: Floats
    counts: Ints  # (parameters, chains, bins)

    @classmethod
    def of(cls, draws: Floats, rhat: Floats, free: Bools) -> Ranked:
        """Those of draws (chains, draws, P, items), rhat and free (P, items)."""
        worst = np.where(free, np.nan_to_num(rhat, nan=np.inf), -1.0).ravel()
        at = np.argsort(-worst, kind="stable")[: min(_MOST_RANKED, int(free.sum()))]
        row, item = np.unravel_index(at, rhat.shape)
        counts = convergence.rank_counts(draws[:, :, row, item], _RANK_BINS)
        return cls(row, item, rhat[row, item], np.moveaxis(counts, -1, 0))


@dataclass(frozen=True)
class ShardPosterior:
    """Posterior of one shard: draws (draw, P, items) and diagnostics (P, items).

    The last row of a draw holds intercepts, those before it the loadings, positive ones by their
    logarithms: with one ability, (log a, d).  ``correlation`` (draw, Q, Q) is that of the abilities
    where it is free, ``learned`` are the items' mean and covariance where they are drawn, by name;
    their diagnostics are those of the worst entry.
    """

    draws: Floats
    n_persons: int
    rhat: Floats
    ess: Floats
    acceptance: float
    spacing: float
    correlation: Floats | None = None
    other_rhat: float = 1.0
    other_ess: float = np.inf
    learned: dict[str, Floats] = field(default_factory=dict)
    #: Spacing of the grid that these items ask for.
    needed: float = math.inf
    #: R-hat and effective draws of parameters (P, items), where they are not the coordinates.
    of_parameters: tuple[Floats, Floats] | None = None
    #: With one ability.
    ranked: Ranked | None = None

    @property
    def worst_rhat(self) -> float:
        """Largest R-hat of any parameter; not a number where one is not."""
        return float(np.maximum(self.rhat.max(), self.other_rhat))

    @property
    def least_ess(self) -> float:
        """Smallest effective sample size of any parameter; not a number where one is not."""
        return float(np.minimum(self.ess.min(), self.other_ess))


def diagnostics(
    shards: list[ShardPosterior], space: Space, rotation: Floats | None, item_id: tuple[str, ...]
) -> dict[str, Any]:
    """Diagnostics of items, over shards, and of shards, by name."""
    return _of_items(shards, space, rotation) | _of_ranks(shards, _labels(space, item_id))


def _labels(space: Space, item_id: tuple[str, ...]) -> tuple[str, ...]:
    """What columns of coordinates are called."""
    return space.labels(item_id) if isinstance(space, ModelSpace) else item_id


def _of_ranks(shards: list[ShardPosterior], item_id: Sequence[str]) -> dict[str, Any]:
    """The parameters that mixed worst in any shard, and their draws by chain and rank."""
    found = [
        (-float(r), k, n, s.ranked.counts[n])
        for k, s in enumerate(shards)
        if s.ranked is not None
        for n, r in enumerate(np.nan_to_num(s.ranked.rhat, nan=np.inf))
    ]
    if not found:
        return {}
    names, counts = [], []
    for _, k, n, own in sorted(found, key=lambda f: f[:3])[:_MOST_RANKED]:
        ranked = shards[k].ranked
        assert ranked is not None
        row, item = int(ranked.row[n]), item_id[ranked.item[n]]
        kind = ("discrimination", "intercept")[row] if row < 2 else f"shape {row - 1}"
        names.append(f"{kind} of {item}" + (f" in shard {k}" if len(shards) > 1 else ""))
        counts.append(own)
    return {"ranked_parameter": np.array(names), "ranked_draw_count": np.array(counts)}


def _of_items(
    shards: list[ShardPosterior], space: Space, rotation: Floats | None
) -> dict[str, Any]:
    """Diagnostics of items, over shards, and of shards."""
    rhat = np.max([s.rhat for s in shards], axis=0)
    ess = np.sum([s.ess for s in shards], axis=0)
    free = space.mask(*rhat.shape)
    if isinstance(space, ModelSpace):
        return _of_models(shards, space, rhat, ess) | _of_shards(shards)
    rhat, ess = np.where(free, rhat, np.nan), np.where(free, ess, np.nan)
    mean = np.array([space.parameters(s.draws).mean(axis=0) for s in shards])
    out = {
        "item_intercept_rhat": rhat[-1],
        "item_intercept_ess": ess[-1],
        "shard_item_intercept": mean[:, -1],
        **_of_shards(shards),
    }
    if rotation is not None:
        out["shard_rotation"] = rotation
    if shards[0].correlation is not None:
        means = [s.correlation.mean(axis=0) for s in shards if s.correlation is not None]
        out["shard_ability_correlation"] = np.array(means)
    if len(rhat) > 2:
        return out | {
            "item_loading_rhat": rhat[:-1].T,
            "item_loading_ess": ess[:-1].T,
            "shard_item_loading": mean[:, :-1].transpose(0, 2, 1),
        }
    return out | {
        "item_discrimination_rhat": rhat[0],
        "item_discrimination_ess": ess[0],
        "shard_item_discrimination": mean[:, 0],
    }


def _of_shards(shards: list[ShardPosterior]) -> dict[str, Any]:
    """What is said of each shard, whatever the items."""
    out = {
        "shard_n_persons": np.array([s.n_persons for s in shards]),
        "shard_max_rhat": np.array([s.worst_rhat for s in shards]),
        "shard_min_ess": np.array([s.least_ess for s in shards]),
    }
    if not np.isnan(shards[0].acceptance):
        out["shard_acceptance"] = np.array([s.acceptance for s in shards])
        out["shard_grid_spacing"] = np.array([s.spacing for s in shards])
    return out


def _of_models(
    shards: list[ShardPosterior], space: ModelSpace, rhat: Floats, ess: Floats
) -> dict[str, Any]:
    """Diagnostics of items of any model, and the shards' means of what all of them have."""
    of = space.shapes.discriminations
    both = [s.of_parameters for s in shards if s.of_parameters is not None]
    worst, sum_of = np.max([b[0] for b in both], axis=0), np.sum([b[1] for b in both], axis=0)
    rhat, ess, shapes = space.items(rhat), space.items(ess), space.reported
    out = {f"{k}_rhat": v for k, v in of_models(shapes, rhat, worst).items()}
    out |= {f"{k}_ess": v for k, v in of_models(shapes, ess, sum_of).items()}
    return out | {
        "shard_item_discrimination": np.array([of(s.draws[:, 0]).mean(axis=0) for s in shards]),
        "shard_item_intercept": np.array([s.draws[:, 1].mean(axis=0) for s in shards]),
    }


def warn_rare(
    of_each: Ints, n_categories: Ints, item_id: tuple[str, ...], shards: list[ShardPosterior]
) -> None:
    """Warn of items with so few responses in a shard that its posterior of them says little.

    Or with so few persons in one of several categories: ``of_each`` (items, categories) are all
    persons.  Information adds up over shards, standard deviations of a barycenter are averaged:
    where some shards know nothing of an item, the average is too wide.
    """
    if len(shards) == 1:
        return
    share = min(s.n_persons for s in shards) / sum(s.n_persons for s in shards)
    seen = of_each.sum(axis=1)
    inside = np.arange(of_each.shape[1]) < n_categories[:, None]
    least = np.where(inside & (of_each > 0), of_each, seen[:, None] + 1).min(axis=1)
    thin = np.flatnonzero((least * share < _RARE_CATEGORY) & (n_categories > 2))
    if thin.size:
        some = name_some([item_id[j] for j in thin[np.argsort(least[thin], kind="stable")]])
        warnings.warn(
            f"{thin.size} item(s) have a category that fewer than {_RARE_CATEGORY} persons of the "
            f"smallest shard have ({some}): standard deviations of their intercepts may be up to "
            f"twice too large; use fewer shards, or join categories",
            ApproximationWarning,
            stacklevel=3,
        )
    rare = np.flatnonzero(seen * share < _RARE)
    if rare.size:
        some = ", ".join(item_id[j] for j in rare[np.argsort(seen[rare], kind="stable")][:5])
        warnings.warn(
            f"{rare.size} item(s) have fewer than {_RARE} responses in the smallest shard ({some}"
            f"{', ...' if rare.size > 5 else ''}): their standard deviations may be off by half; "
            f"use fewer shards",
            ApproximationWarning,
            stacklevel=3,
        )


def _warn_few(shards: list[ShardPosterior], labels: tuple[str, ...]) -> None:
    """Warn where draws hang together so much that they are worth few independent ones.

    A mean is then off by ``SD / sqrt(effective draws)``, an SD by about 0.7 of that.
    """
    ess, n = np.sum([s.ess for s in shards], axis=0), sum(len(s.draws) for s in shards)
    few = ess < min(_FEW, _SMALL_SHARE * n)
    if few.any():
        least = int(ess.argmin()) % ess.shape[1]
        warnings.warn(
            f"{int(few.any(axis=0).sum())} item(s) have parameters whose {n:,} draws are worth "
            f"fewer than {min(_FEW, _SMALL_SHARE * n):.0f} independent ones; fewest, "
            f"{ess.min():.0f}, of {labels[least]}, whose mean is off by some "
            f"{100.0 / math.sqrt(max(ess.min(), 1.0)):.0f}% of its standard deviation; raise "
            f"n_draws or n_chains",
            ConvergenceWarning,
            stacklevel=4,
        )


def warn(
    shards: list[ShardPosterior], space: Space, item_id: tuple[str, ...], rotation: Floats | None
) -> bool:
    """Warn of chains that did not mix or grids too coarse; return whether all is well."""
    rhat = [s.worst_rhat for s in shards]
    worst = float(np.max(rhat))
    if not worst < _RHAT_LIMIT:
        k = int(np.argmax(rhat))
        warnings.warn(
            f"the chains have not converged: R-hat {worst:.3f} in shard {k} (limit {_RHAT_LIMIT}); "
            f"raise n_warmup and n_draws",
            ConvergenceWarning,
            stacklevel=3,
        )
    else:
        _warn_few(shards, _labels(space, item_id))
    if rotation is not None and not rotation.max() < _LARGE_ROTATION:
        warnings.warn(
            f"the loadings of shard {int(rotation.argmax())} are turned by {rotation.max():.0f} "
            f"degrees against the largest shard's (limit {_LARGE_ROTATION:g}): the data hardly say "
            f"how the abilities lie; let items that load highly be those with zeros (loadings=), "
            f"or use fewer shards",
            ApproximationWarning,
            stacklevel=3,
        )
    coarse = [k for k, s in enumerate(shards) if s.spacing > _COARSE * s.needed]
    if coarse:
        warnings.warn(
            f"the ability grid of shard(s) {coarse[:10]} is coarser than its posterior needs: the "
            f"slopes grew after warm-up; raise n_warmup",
            ConvergenceWarning,
            stacklevel=3,
        )
    return worst < _RHAT_LIMIT and not coarse
