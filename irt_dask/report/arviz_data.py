"""A posterior for ArviZ: the one module that imports it."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.errors import InputError
from irt_dask.report.common import item_ids
from irt_dask.variables import DRAW, ITEMS, LATENT_DIMS, LATENT_DIMS_, SHARDS

#: What the fit says of its chains, and of the data.
_STATISTICS = ("_rhat", "_ess")
_DATA = ("item_n_responses", "item_n_right")
#: Dimensions by the names they have there.
_DIMS = {
    ITEMS: "item", LATENT_DIMS: "latent_dim", LATENT_DIMS_: "latent_dim_", SHARDS: "shard",
    "steps": "step", **{name: name for name in ("coordinate", "coordinate_", "block", "covariate")},
}  # fmt: skip
_DRAWN = (
    "item_discrimination", "item_intercept", "item_loading", "ability_correlation", "item_guessing",
    "item_upper_asymptote", "item_step_intercept", "item_prior_mean", "item_prior_covariance",
    "item_block_mean", "item_block_covariance", "item_covariate_effect",
)  # fmt: skip


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
        draw ``-d / a``), dims (chain, draw, item); one chain, coordinate ``item``.  With several
        abilities ``item_loading`` (..., item, latent_dim), ``item_intercept`` and, where it was
        estimated, ``ability_correlation`` (..., latent_dim, latent_dim_); asymptotes and steps of
        models that have them, with a prior that was learned its ``item_prior_mean``,
        ``item_prior_covariance``, and those of blocks and covariates; the abilities are called
        ``ability_1``, ``ability_2``, ... as in files of scores.  ``sample_stats``: R-hat and
        effective sample sizes of the fit by item (and ability; loadings fixed at 0 have none),
        diagnostics by shard.  ``constant_data``: responses and right responses by item.  attrs:
        those of the fit.

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

    Examples
    --------
    ArviZ is an extra (``pip install 'irt_dask[diag]'``), so no test runs the last two lines:

    >>> import irt_dask as irt
    >>> posterior = irt.fit_bayes(irt.simulate(500, 10, seed=1), n_draws=200, n_warmup=100)
    >>> data = irt.to_arviz(posterior)  # doctest: +SKIP
    >>> data.posterior["item_difficulty"].dims  # doctest: +SKIP
    ('chain', 'draw', 'item')
    """
    draws, names = _draws(posterior)
    az = _arviz()
    coords = {"item": np.array(item_ids(posterior), dtype=str)}
    if LATENT_DIMS in posterior.dims:
        abilities = [f"ability_{q + 1}" for q in range(posterior.sizes[LATENT_DIMS])]
        coords |= {_DIMS[name]: np.array(abilities) for name in (LATENT_DIMS, LATENT_DIMS_)}
    coords |= {
        _DIMS[str(name)]: posterior[name].values
        for name in ("coordinate", "coordinate_", "block", "covariate")
        if name in posterior
    }
    statistics, dims = _statistics(posterior)
    data = az.from_dict(
        posterior={name: values[None] for name, values in draws.items()},
        constant_data={name: posterior[name].values for name in _DATA if name in posterior},
        coords=coords,
        dims=names | {name: ["item"] for name in _DATA},
    )
    stats = az.dict_to_dataset(statistics, coords=coords, dims=dims, default_dims=[])
    if stats.data_vars:
        data.add_groups(sample_stats=stats)
    data.posterior.attrs.update(posterior.attrs)
    data.attrs.update(posterior.attrs)
    return data


def _draws(posterior: xr.Dataset) -> tuple[dict[str, np.ndarray], dict[str, list[str]]]:
    """Draws by parameter, the draws first, and the names of their other dimensions."""
    found, dims = {}, {}
    for name in _DRAWN:
        if f"{name}_draw" in posterior:
            drawn = posterior[f"{name}_draw"].transpose(DRAW, ...)
            found[name] = np.asarray(drawn.values, dtype=float)
            dims[name] = [_DIMS[str(dim)] for dim in drawn.dims[1:]]
    if not {"item_discrimination", "item_intercept", "item_loading"} & set(found):
        raise InputError(
            "the dataset has no draws (item_discrimination_draw, item_intercept_draw); give the "
            "result of fit_bayes"
        )
    if "item_discrimination" in found and "item_intercept" in found:
        found["item_difficulty"] = -found["item_intercept"] / found["item_discrimination"]
        dims["item_difficulty"] = ["item"]
    return found, dims


def _statistics(posterior: xr.Dataset) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Diagnostics by parameter and by shard, and the names of their dimensions."""
    found, dims = {}, {}
    for name, values in posterior.data_vars.items():
        by_shard = values.dims == (SHARDS,)
        if by_shard or str(name).endswith(_STATISTICS):
            short = str(name).removeprefix("shard_") if by_shard else str(name)
            found[short] = values.values
            dims[short] = [_DIMS[str(dim)] for dim in values.dims]
    return found, dims
