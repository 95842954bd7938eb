"""What weighted draws of the items say, by name: means, standard deviations, draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats

#: What follows from other variables, draw by draw.
_OF_OTHERS = frozenset({"item_difficulty", "item_step_difficulty"})
#: SDs that a slope of any sign is from 0 where draws near 0 have no say in means of -d / a.
_AWAY = 3.0


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


def moments(
    named: list[dict[str, Floats]], weights: list[Floats], *, any_sign: bool = False
) -> dict[str, Any]:
    """Means and SDs by name.

    Where slopes may have ``any_sign``, what they divide has a mean only if they are away from 0:
    the others' are NaN, and draws of the unlikelier sign have no part in it.
    """
    out: dict[str, Any] = {}
    for name in named[0]:
        x = [of_shard[name] for of_shard in named]
        if any_sign and name in _OF_OTHERS:
            continue
        mean = _mean(x, weights)
        out[name] = mean
        out[f"{name}_sd"] = np.sqrt(_mean([(v - mean) ** 2 for v in x], weights))
    if any_sign:
        for name in _OF_OTHERS & named[0].keys():
            _of_one_sign(out, name, named, weights)
    return out


def _of_one_sign(
    out: dict[str, Any], name: str, named: list[dict[str, Floats]], weights: list[Floats]
) -> None:
    """Moments over the draws whose slope has the sign of its mean; NaN where it is near 0."""
    slope = out["item_discrimination"]
    sure = np.abs(slope) >= _AWAY * out["item_discrimination_sd"]
    x, own = [], []
    for of_shard, w in zip(named, weights, strict=True):
        same, v = of_shard["item_discrimination"] * slope > 0.0, of_shard[name]
        more = (1,) * (v.ndim - same.ndim)
        x.append(np.where(same.reshape(*same.shape, *more), v, 0.0))
        own.append((w[:, None] * same).reshape(*same.shape, *more))
    total = sum(w.sum(axis=0) for w in own)
    mean = sum((w * v).sum(axis=0) for w, v in zip(own, x, strict=True)) / total
    square = sum((w * (v - mean) ** 2).sum(axis=0) for w, v in zip(own, x, strict=True)) / total
    sure = sure.reshape(*sure.shape, *(1,) * (mean.ndim - sure.ndim))
    out[name], out[f"{name}_sd"] = (
        np.where(sure, mean, np.nan),
        np.where(sure, np.sqrt(square), np.nan),
    )


def _taken(x: list[Floats], weights: list[Floats], n_draws: int) -> Floats:
    """``n_draws`` draws in proportion to their weights, evenly (systematic resampling)."""
    ends = np.cumsum(np.concatenate(weights))
    at = np.searchsorted(ends, (np.arange(n_draws) + 0.5) / n_draws * ends[-1])
    return np.concatenate(x)[at]


def draws(named: list[dict[str, Floats]], weights: list[Floats], n_draws: int) -> dict[str, Any]:
    """Combined draws by name; each is of one draw of one shard, whatever the name."""
    names = [name for name in named[0] if name not in _OF_OTHERS]
    return {f"{n}_draw": _taken([x[n] for x in named], weights, n_draws) for n in names}
