"""What weighted draws of the items say, by name: means, standard deviations, draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Bools, Floats

#: What follows from other variables, draw by draw.
_OF_OTHERS = ("item_difficulty", "item_step_difficulty")


def by_name(x: Floats) -> dict[str, Floats]:
    """Named quantities of draws of parameters (draw, P, items), items last but for loadings."""
    if x.shape[1] > 2:
        return {"item_loading": x[:, :-1].transpose(0, 2, 1), "item_intercept": x[:, -1]}
    return {
        "item_discrimination": x[:, 0],
        "item_difficulty": -x[:, 1] / x[:, 0],
        "item_intercept": x[:, 1],
    }


def parameters_of(data: dict[str, Any]) -> Floats:
    """Means (P, items) of loadings and intercepts among the result's arrays."""
    if "item_loading" in data:
        return np.vstack([data["item_loading"].T, data["item_intercept"]])
    return np.stack([data["item_discrimination"], data["item_intercept"]])


def _mean(x: list[Floats], weights: list[Floats]) -> Floats:
    """Mean of the draws of all shards; a constant is its own, to the bit, where draws are alike."""
    each = [
        v.mean(axis=0) if (w == w[0]).all() else np.tensordot(w / w.sum(), v, axes=1)
        for v, w in zip(x, weights, strict=True)
    ]
    return np.average(each, axis=0, weights=[w.sum() for w in weights])


def moments(named: list[dict[str, Floats]], weights: list[Floats]) -> dict[str, Any]:
    """Means and SDs by name."""
    out: dict[str, Any] = {}
    unsure = _of_either_sign([x.get("item_discrimination") for x in named])
    for name in named[0]:
        x = [of_shard[name] for of_shard in named]
        mean = _mean(x, weights)
        out[name] = mean
        out[f"{name}_sd"] = np.sqrt(_mean([(v - mean) ** 2 for v in x], weights))
        if unsure is not None and name in _OF_OTHERS:
            out[name][unsure] = out[f"{name}_sd"][unsure] = np.nan
    return out


def _of_either_sign(slopes: list[Floats | None]) -> Bools | None:
    """Items whose slope is positive in some draws and negative in others.

    Where it is 0, -d / a has no end: difficulties have no mean then, and no SD.
    """
    known = [a for a in slopes if a is not None]
    if not known:
        return None
    low = np.min([a.min(axis=0) for a in known], axis=0)
    return np.asarray((low < 0.0) & (np.max([a.max(axis=0) for a in known], axis=0) > 0.0))


def _taken(x: list[Floats], weights: list[Floats], n_draws: int) -> Floats:
    """``n_draws`` draws in proportion to their weights, evenly (systematic resampling)."""
    ends = np.cumsum(np.concatenate(weights))
    at = np.searchsorted(ends, (np.arange(n_draws) + 0.5) / n_draws * ends[-1])
    return np.concatenate(x)[at]


def draws(named: list[dict[str, Floats]], weights: list[Floats], n_draws: int) -> dict[str, Any]:
    """Combined draws by name; each is of one draw of one shard, whatever the name."""
    names = [name for name in named[0] if name not in _OF_OTHERS]
    return {f"{n}_draw": _taken([x[n] for x in named], weights, n_draws) for n in names}
