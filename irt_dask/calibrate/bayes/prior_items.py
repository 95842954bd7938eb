"""Items drawn from the priors of Bayesian fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import log_ndtr, ndtri, ndtri_exp

from irt_dask.arrays import Floats
from irt_dask.calibrate.bayes import asked, item_priors, models, summaries
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.item_density import Shapes
from irt_dask.calibrate.bayes.model_space import named
from irt_dask.calibrate.shared.shape_priors import in_words
from irt_dask.curves.guessing import GUESSING
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import as_responses, dataset
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import InputError
from irt_dask.kernels.base import keyed_random
from irt_dask.store import Responses
from irt_dask.store.categories import BINARY, declared, of_each
from irt_dask.variables import unique_ids


def prior_items(
    items: Any,
    *,
    model: str | Mapping[str, str] = "2pl",
    categories: Any = None,
    prior: str | ItemPrior | None = None,
    guessing_prior: tuple[float, float] | None = GUESSING.prior,
    positive: str = "all",
    item_blocks: Any = None,
    item_covariates: Any = None,
    n_draws: int = 1000,
    seed: int = 0,
) -> xr.Dataset:
    """Draw items from the prior that :func:`fit_bayes` has with the same options.

    ``predictive_check(responses, prior_items(responses))`` is a prior predictive check: whether
    scores like these are what the prior expects before any response is seen.
    ``simulate(1000, items=prior_items(ids).isel(draw=0))`` are responses to items of the prior.

    Parameters
    ----------
    items : Responses or anything ``from_array`` takes, or a sequence of item identifiers
        What the items are called; of responses nothing else is looked at but their categories.
    model, prior, guessing_prior, positive, item_blocks, item_covariates
        As in :func:`fit_bayes` with one ability: its models, ``prior`` "hierarchical" (the
        default, but for nominal items) or an ``ItemPrior``, and ``positive`` "all" or "none".
    categories : int, one an item, or mapping of item to int, optional
        Categories of the items where identifiers are given; default 2.
    n_draws : int
    seed : int

    Returns
    -------
    Dataset over items
        Named as a result of :func:`fit_bayes`: ``item_discrimination_draw``,
        ``item_intercept_draw``, ``item_guessing_draw``, ``item_upper_asymptote_draw`` (draw,
        items), ``item_step_intercept_draw`` (draw, items, steps) and ``item_category_score_draw``
        (draw, items, categories) as the models have them, with their means and ``_sd``; of the
        hierarchical prior also ``item_prior_mean`` and ``item_prior_covariance`` with ``_sd`` and
        ``_draw``, draw i of which belongs to draw i of the items, and those of blocks and
        covariates; ``item_model`` and ``item_n_categories``; with ``positive="none"``
        ``item_negative_probability``.  Difficulties have no mean where a
        slope may be near 0: they are NaN but of items whose slope is 3 SDs from it.  attrs name the
        prior as a fit does.

    Raises
    ------
    InputError
        As :func:`fit_bayes` for options; for identifiers that stand twice; for ``categories`` of
        responses, which have their own.

    Notes
    -----
    The density is that of a fit before the data, no more: ``positive="none"`` draws slopes of
    either sign, where a fit keeps to the half to which its responses turn ability.  Some draws are
    no items that other functions take, and name: slopes beyond 100 come, of the hierarchical
    prior, in one draw of 8,000 with 10 items and of 3,000 with 40.

    No pass over data.  Driver memory: some 10 arrays of 8 bytes x draws x parameters of the items.
    More draws, of the same items, begin with the same ones.

    Examples
    --------
    >>> import irt_dask as irt
    >>> prior = irt.prior_items(["q1", "q2", "q3"], n_draws=2000, seed=1)
    >>> dict(prior["item_discrimination_draw"].sizes)
    {'draw': 2000, 'items': 3}
    >>> prior["item_discrimination_draw"].median("draw").round(1).values.tolist()
    [1.0, 1.0, 1.0]
    >>> irt.simulate(500, items=prior.isel(draw=7), seed=2)
    <Responses: 500 persons x 3 items, 1 dense blocks>
    """
    whole_number("n_draws", n_draws, 1)
    whole_number("seed", seed, 0)
    item_id, n_categories = _named_items(items, categories)
    signed = asked.signed(positive, 1, None)
    shapes = models.asked(model, item_id, n_categories, guessing_prior, 1, None, signed=signed)
    before = item_priors.choose(prior, "grid", "shrink", signed=signed, scored=shapes.scored)
    chosen = item_priors.structured(before, shapes, item_id, item_blocks, item_covariates)
    learned, common = _common(chosen, n_draws, len(item_id), seed, signed=signed)
    u = _uniforms(seed, "shapes", n_draws, shapes.models.size - 2, len(item_id))
    drawn = named(shapes.reported, shapes.draw(common, u)) | learned
    return dataset(
        item_priors.described(chosen, _summed(drawn, shapes)),
        item_id=item_id,
        coords=item_priors.coords(chosen),
        attrs={
            "method": "draws of the prior",
            "model": models.name(model, 1),
            "seed": int(seed),
            "n_draws": int(n_draws),
            "identification": f"ability N(0, 1){'' if signed else '; a > 0'}",
            "n_dims": 1,
            **item_priors.describe(chosen, positive),
            **in_words(shapes.models, shapes.betas),
        },
    )


def _named_items(items: Any, categories: Any) -> tuple[tuple[str, ...], Sequence[int]]:
    """Identifiers of the items, and numbers of categories."""
    if isinstance(items, str):
        raise InputError(f"items={items!r}: give responses, or a list of identifiers")
    if not isinstance(items, Responses) and _of_one_dimension(items):
        ids = unique_ids(np.asarray(items).tolist(), "items")
        if not ids:
            raise InputError("items= names no item; give responses, or a list of identifiers")
        return ids, of_each(declared(BINARY if categories is None else categories, ids), len(ids))
    responses = as_responses(items, "prior_items", graded=True)
    if categories is not None:
        raise InputError(
            "categories= is of items given by identifier; responses have their own, which "
            "from_array(..., categories=) and ingest(..., categories=) declare"
        )
    return responses.item_id, responses.n_categories


def _of_one_dimension(items: Any) -> bool:
    """Whether this is a list of identifiers, and no table of responses."""
    if hasattr(items, "ndim"):
        return bool(items.ndim == 1)
    return isinstance(items, Sequence) and all(isinstance(i, (str, int)) for i in items)


def _uniforms(seed: int, name: str, n_draws: int, *shape: int) -> Floats:
    """Uniforms (draws, ...) of a seed and a name: the first draws are the same of any number."""
    key = keyed_random.key(seed, "prior-items", name)
    return keyed_random.uniforms(key, 0, n_draws, int(np.prod(shape))).reshape(n_draws, *shape)


def _common(
    prior: ItemPrior | Hierarchy, n: int, m: int, seed: int, *, signed: bool
) -> tuple[dict[str, Floats], Floats]:
    """What is learned of all items, by name, and the coordinates of each, (draw, 2, items)."""
    u = _uniforms(seed, "items", n, 2, m)
    if isinstance(prior, Hierarchy):
        mean, covariance = prior.before(
            _uniforms(seed, "mean", n, prior.words_mean),
            _uniforms(seed, "covariance", n, prior.words_covariance),
        )
        return prior.named(mean, covariance), prior.draw_items(mean, covariance, ndtri(u))
    mean_d, sd_d = prior.intercept
    d = mean_d + sd_d * ndtri(u[:, 1])
    if signed:
        mean_a, sd_a = prior.loading
        return {}, np.stack([mean_a + sd_a * ndtri(u[:, 0]), d], axis=1)
    return {}, np.stack([np.log(_positive(u[:, 0], *prior.discrimination)), d], axis=1)


def _positive(u: Floats, mean: float, sd: float) -> Floats:
    """Quantiles, counted from above, of a normal cut off at 0."""
    a = mean - sd * ndtri_exp(np.log(u) + log_ndtr(mean / sd))
    return np.maximum(a, np.finfo(float).tiny)


def _summed(drawn: dict[str, Floats], shapes: Shapes) -> dict[str, Any]:
    """Means, SDs and draws by name."""
    n = len(drawn["item_discrimination"])
    weights = [np.full(n, 1.0 / n)]
    out = summaries.moments([drawn], weights, any_sign=True)
    out |= summaries.draws([drawn], weights, n)
    out |= models.described(shapes, out)
    if shapes.signed:
        out["item_negative_probability"] = (drawn["item_discrimination"] < 0.0).mean(axis=0)
    return out
