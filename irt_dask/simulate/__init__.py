"""Simulated responses with known truth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr

    from irt_dask.engine import ProgressOption
    from irt_dask.store import Responses


def simulate(
    n_persons: int,
    n_items: int | None = None,
    *,
    items: xr.Dataset | None = None,
    model: str | Mapping[str, str] | None = None,
    categories: Any = None,
    missing: float = 0.0,
    seed: int = 0,
    store: str | Path | None = None,
    rows_per_block: int | None = None,
    client: Any = None,
    progress: ProgressOption = None,
) -> Responses:
    """Simulate responses with known parameters.

    Parameters
    ----------
    n_persons, n_items : int
    items : Dataset, optional
        A fit or an item bank of any model with one ability, in place of ``n_items``, ``model`` and
        ``categories``: responses to these items, on the scale on which abilities are N(0, 1).  Of a
        posterior its means, or the draw that was picked: ``items=posterior.isel(draw=3)``.
    model : str, or mapping of item to str, optional
        As in :func:`fit_marginal`; default "2pl". Abilities N(0, 1); difficulties N(0, 1);
        discriminations log-normal, exp(N(0, 0.3^2)), or 1; guessing parameters Beta(5, 17), upper
        asymptotes Beta(17, 5). Step difficulties lie 0.8 apart about the difficulty, but for
        N(0, 0.2^2) where they may have any order.
    categories : int, one an item, or mapping of item to int, optional
        Responses are 0 to K - 1; default 2.
    missing : float in [0, 1)
        Probability that a response is not observed, independently of everything.
    seed : int
    store : path or URL, optional
        Write a store there, block by block, by the workers of the cluster if there is one (a
        folder must be one that they share); without it the responses stay in memory.
    client, progress
        As everywhere: where it is computed never changes a bit.

    Returns
    -------
    Responses
        ``.truth`` is a Dataset of the true ``item_discrimination``, ``item_difficulty``,
        ``item_intercept`` and what else the model has, named as in a fit, and, up to 10^7 persons,
        ``person_ability``.  Given ``items`` are there under their identifiers, each as one of the
        simplest model that it can be of.

    Raises
    ------
    InputError
        For options outside their range; for both ``items`` and what they take the place of, or
        neither; for items that are none.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(500, 10, seed=1)
    >>> responses
    <Responses: 500 persons x 10 items, 1 dense blocks>
    >>> responses.truth["item_difficulty"][:4].round(2).values.tolist()
    [-0.88, 0.85, -0.43, -1.96]
    >>> fit = irt.fit_marginal(responses)
    >>> irt.simulate(500, items=fit, seed=2).truth["item_difficulty"][:4].round(1).values.tolist()
    [-1.0, 0.9, -0.4, -2.6]
    """
    from irt_dask.simulate.generate import chosen, generate

    return generate(
        n_persons,
        chosen(n_items, items, model, categories, seed),
        missing,
        seed,
        store,
        rows_per_block,
        client,
        progress,
    )
