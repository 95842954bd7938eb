"""The posterior in ArviZ."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import xarray as xr

import irt_dask as irt
from irt_dask.errors import InputError


def posterior(n=3, draws=50):
    g = np.random.default_rng(0)
    item, by_shard = ("items", g.random(n)), ("shards", g.random(2))
    data = {
        "item_discrimination": item,
        "item_discrimination_draw": (("draw", "items"), np.exp(g.normal(size=(draws, n)))),
        "item_intercept_draw": (("draw", "items"), g.normal(size=(draws, n))),
        "item_discrimination_rhat": item,
        "item_intercept_ess": item,
        "item_n_responses": ("items", np.full(n, 9)),
        "shard_acceptance": by_shard,
        "shard_item_intercept": (("shards", "items"), g.random((2, n))),
    }
    ids = [f"i{j}" for j in range(n)]
    attrs = {"method": "LS-WASP", "n_persons": 9}
    return xr.Dataset(data, {"item_id": ("items", ids)}, attrs)


def test_groups_and_values():
    az = pytest.importorskip("arviz")
    p = posterior()
    data = irt.to_arviz(p)
    assert isinstance(data, az.InferenceData)
    assert data.posterior.sizes == {"chain": 1, "draw": 50, "item": 3}
    a, d = (p[f"item_{k}_draw"].values for k in ("discrimination", "intercept"))
    np.testing.assert_array_equal(data.posterior["item_discrimination"].values[0], a)
    np.testing.assert_array_equal(data.posterior["item_intercept"].values[0], d)
    np.testing.assert_allclose(data.posterior["item_difficulty"].values[0], -d / a)
    assert list(data.posterior["item"].values) == ["i0", "i1", "i2"]
    assert data.attrs["method"] == data.posterior.attrs["method"] == "LS-WASP"
    stats = data.sample_stats
    np.testing.assert_array_equal(
        stats["item_discrimination_rhat"].sel(item="i1"), p["item_discrimination_rhat"][1]
    )
    assert stats["acceptance"].dims == ("shard",)
    assert set(stats.data_vars) == {"item_discrimination_rhat", "item_intercept_ess", "acceptance"}
    np.testing.assert_array_equal(data.constant_data["item_n_responses"], 9)
    summary = az.summary(data, kind="stats")
    assert summary.loc["item_discrimination[i1]", "mean"] == pytest.approx(a[:, 1].mean(), abs=1e-3)


def test_a_posterior_of_draws_alone_and_one_with_loadings():
    pytest.importorskip("arviz")
    alone = posterior()[["item_discrimination_draw", "item_intercept_draw"]]
    data = irt.to_arviz(alone)
    assert data.groups() == ["posterior"]
    loadings = np.random.default_rng(1).normal(size=(50, 3, 2))
    multi = alone[["item_intercept_draw"]].assign(
        item_loading_draw=(("draw", "items", "latent_dims"), loadings)
    )
    data = irt.to_arviz(multi)
    assert data.posterior["item_loading"].dims == ("chain", "draw", "item", "latent_dim")
    np.testing.assert_array_equal(data.posterior["item_loading"].values[0], loadings)
    assert "item_difficulty" not in data.posterior
    with pytest.raises(InputError, match="no draws"):
        irt.to_arviz(posterior()[["item_discrimination"]])


def test_several_abilities():
    pytest.importorskip("arviz")
    g = np.random.default_rng(2)
    by_item, by_pair = ("items", "latent_dims"), ("latent_dims", "latent_dims_")
    rhat = 1.0 + g.random((3, 2))
    rhat[0, 1] = np.nan
    loading, correlation = g.normal(size=(50, 3, 2)), g.uniform(-1, 1, (50, 2, 2))
    p = xr.Dataset(
        {
            "item_loading_draw": (("draw", *by_item), loading),
            "item_intercept_draw": (("draw", "items"), g.normal(size=(50, 3))),
            "ability_correlation_draw": (("draw", *by_pair), correlation),
            "item_loading_rhat": (by_item, rhat),
            "item_loading_ess": (by_item, 100.0 * rhat),
            "item_intercept_rhat": ("items", rhat[:, 0]),
            "shard_rotation": ("shards", [0.0]),
        },
        {"item_id": ("items", ["x", "y", "z"])},
    )
    data = irt.to_arviz(p)
    got = data.posterior["item_loading"].sel(item="y", latent_dim="ability_2")
    np.testing.assert_array_equal(got.values[0], loading[:, 1, 1])
    got = data.posterior["ability_correlation"].sel(latent_dim="ability_1", latent_dim_="ability_2")
    np.testing.assert_array_equal(got.values[0], correlation[:, 0, 1])
    stats = data.sample_stats
    assert set(stats.data_vars) == {
        "item_loading_rhat", "item_loading_ess", "item_intercept_rhat", "rotation"
    }  # fmt: skip
    assert stats["item_loading_ess"].dims == ("item", "latent_dim")
    np.testing.assert_array_equal(
        stats["item_loading_rhat"].sel(latent_dim="ability_2"), rhat[:, 1]
    )
    assert stats["rotation"].dims == ("shard",)


def test_without_arviz_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(InputError, match=r"pip install 'irt_dask\[diag\]'"):
        irt.to_arviz(posterior())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::irt_dask.errors.IrtDaskWarning")
def test_steps_and_blocks_of_items():
    pytest.importorskip("arviz")
    responses = irt.simulate(200, 4, model="2pl+gpcm", categories=[2, 3, 3, 4], seed=1)
    fit = irt.fit_bayes(
        responses, model="2pl+gpcm", item_blocks=["x", "x", "y", "y"], n_draws=100, n_warmup=50
    )
    data = irt.to_arviz(fit)
    assert data.posterior["item_step_intercept"].dims == ("chain", "draw", "item", "step")
    got = data.posterior["item_block_mean"].sel(block="y", coordinate="intercept")
    np.testing.assert_array_equal(got.values[0], fit["item_block_mean_draw"].values[:, 1, 1])
    assert data.sample_stats["item_step_intercept_ess"].dims == ("item", "step")
