"""A posterior for ArviZ: the one module that imports it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from irt_dask.errors import InputError
from irt_dask.report.common import item_ids
from irt_dask.variables import DRAW, ITEMS, SHARDS

if TYPE_CHECKING:
    import xarray as xr

#: What the fit says of its chains, and of the data.
_STATISTICS = ("_rhat", "_ess")
_DATA = ("item_n_responses", "item_n_right")


def _arviz() -> Any:
    try:
        return importlib.import_module("arviz")
    except ImportError as error:
        raise InputError(
            "to_arviz needs ArviZ 0.20 or later, below 1, which is not installed; "
            "install it with: pip install 'irt_dask[diag]'"
        ) from error


def to_arviz(posterior: xr.Dataset) -> Any:
    """Turn a posterior of the items into ArviZ's InferenceData, for its plots and summaries.

    Parameters
    ----------
    posterior : Dataset
        Result of ``fit_bayes``.

    Returns
    -------
    arviz.InferenceData
        ``posterior``: ``item_discrimination``, ``item_intercept`` and ``item_difficulty`` (draw by
        draw ``-d / a``), dims (chain, draw, item), for a multidimensional model ``item_loading``
        and ``item_intercept``; one chain, coordinate ``item``.  ``sample_stats``: R-hat and
        effective sample sizes of the fit by item, diagnostics by shard.  ``constant_data``:
        responses and right responses by item.  attrs: those of the fit.

    Raises
    ------
    InputError
        If the dataset has no draws, or ArviZ is not installed.

    Notes
    -----
    The chain holds the *combined* draws, shard after shard and thinned: summaries, intervals and
    densities are those of the posterior, but R-hat and effective sample size that ArviZ computes
    from it say little.  Those of the chains that were run are in ``sample_stats``.  Needs no pass
    over data; memory of the draws once more.
    """
    draws = _draws(posterior)
    az = _arviz()
    ids = np.array(item_ids(posterior), dtype=str)
    dims = {"item_loading": ["item", "latent_dim"]}
    statistics, shards = _statistics(posterior)
    data = az.from_dict(
        posterior={name: values[None] for name, values in draws.items()},
        constant_data={name: posterior[name].values for name in _DATA if name in posterior},
        coords={"item": ids},
        dims={name: ["item"] for name in (*draws, *_DATA)} | dims,
    )
    stats = az.dict_to_dataset(
        statistics | shards,
        coords={"item": ids},
        dims={name: ["item"] for name in statistics} | {name: ["shard"] for name in shards},
        default_dims=[],
    )
    if stats.data_vars:
        data.add_groups(sample_stats=stats)
    data.posterior.attrs.update(posterior.attrs)
    data.attrs.update(posterior.attrs)
    return data


def _draws(posterior: xr.Dataset) -> dict[str, np.ndarray]:
    """Draws by parameter, (draw, item) or (draw, item, latent_dim)."""
    found = {}
    for name in ("item_discrimination", "item_intercept", "item_loading"):
        if f"{name}_draw" in posterior:
            values = posterior[f"{name}_draw"].transpose(DRAW, ITEMS, ...).values
            found[name] = np.asarray(values, dtype=float)
    if not found:
        raise InputError(
            "the dataset has no draws (item_discrimination_draw, item_intercept_draw); give the "
            "result of fit_bayes"
        )
    if "item_discrimination" in found and "item_intercept" in found:
        found["item_difficulty"] = -found["item_intercept"] / found["item_discrimination"]
    return found


def _statistics(posterior: xr.Dataset) -> tuple[dict[str, Any], dict[str, Any]]:
    """Diagnostics by item and by shard."""
    by_item, by_shard = {}, {}
    for name, values in posterior.data_vars.items():
        if values.dims == (ITEMS,) and str(name).endswith(_STATISTICS):
            by_item[str(name)] = values.values
        elif values.dims == (SHARDS,):
            by_shard[str(name).removeprefix("shard_")] = values.values
    return by_item, by_shard
