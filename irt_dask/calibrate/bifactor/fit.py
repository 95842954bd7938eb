"""Several benchmarks at once: a general ability, and for each block of items one of its own."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.calibrate.bifactor import errors
from irt_dask.calibrate.bifactor.described import described
from irt_dask.calibrate.bifactor.model import Model, Rounds
from irt_dask.calibrate.shared import climb
from irt_dask.calibrate.shared.start_values import name_some, response_counts
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine, ProgressOption, as_responses
from irt_dask.engine.identity import checkpoint_of
from irt_dask.engine.inputs import one_of, whole_number
from irt_dask.errors import ConvergenceWarning, DataWarning, InputError
from irt_dask.items import checks
from irt_dask.items.bifactor import GENERAL, in_part
from irt_dask.items.blocks import Blocks, blocks


def fit_bifactor(
    responses: Any,
    *,
    item_blocks: Any,
    loadings: str = "testlet",
    prior: str | ItemPrior | None = "centred",
    standard_errors: bool | None = None,
    n_draws: int = 50,
    seed: int = 0,
    max_iterations: int = 500,
    tolerance: float = 1e-9,
    client: Any = None,
    progress: ProgressOption = None,
    checkpoint: str | Path | None = None,
) -> xr.Dataset:
    """Items of several blocks, such as benchmarks: a general ability and one of each block.

    ``logit P = a_j theta_0 + s_j theta_b + d_j`` for an item j of block b; all abilities are
    independent N(0, 1).  ``theta_b`` is by how much a person is better, or worse, at the block
    than the general ability says.  A 2PL of all items takes answers of a block for independent
    given one ability; where they are not, it counts the same evidence many times, and standard
    deviations of abilities come out too small.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
        Of items with two categories; any may be missing.  Sampling weights are divided by their
        mean; a row with a frequency weight counts as so many persons.
    item_blocks : mapping of item to label, Series, or labels of all items
        An item that is alone in its block depends on the general ability only.
    loadings : {"testlet", "free"}
        "testlet": ``s_j = lambda_b a_j``, one positive number a block, the SD of abilities of the
        block about the general one: what tens of persons can tell.  "free": each item has an s_j
        of its own, of any sign; for hundreds of persons or more.
    prior : "centred", ItemPrior or None
        Density of slopes and intercepts before the data, which keeps items that few persons
        answered from running away.  "centred": log a_j is normal about the mean of the block's
        own with SD 0.5, a_j times the difficulty's distance from the block's with SD 2, free s_j
        N(0, 1).  It says nothing of means and SDs of abilities, of which hundreds of items with an
        ItemPrior say more than tens of persons.  ItemPrior:
        ``discrimination`` of a_j (positive), ``loading`` of free s_j, ``intercept`` of d_j.  None:
        the maximum of the likelihood.  Lambdas have no prior.
    standard_errors : bool, optional
        Whether to find them; default: with up to 4,000 parameters (6,000 are the most).  They are
        those of the inverse observed information, with sampling weights of the sandwich; a prior
        counts as data.  Without them the last Newton steps are left out too.
    n_draws, seed
        Draws of items from the normal distribution about the estimates (of log a), over which
        :func:`irt_dask.score` averages: none without standard errors.
    max_iterations, tolerance
        EM steps, accelerated; they end when the objective has twice in a row grown by less than
        ``tolerance`` relative to its size.
    client, progress, checkpoint
        Dask client (default: the current one, else threads); progress bar; folder for checkpoints
        (which take a pass more over arrays, for their checksum).

    Returns
    -------
    Dataset over items
        ``item_loading`` (items, latent_dims): slopes a_j, then s_j on the abilities of blocks, 0
        on others'; coordinate ``domain`` of latent_dims: "general", then the blocks of two or more
        items.  ``item_intercept`` d_j, ``item_stratum`` (the item's block), ``item_at_bound``,
        ``item_flag``, ``item_n_responses``, ``item_n_right``, ``iteration_objective``.  Over
        ``block``: ``block_effect_sd``, the root of sum s^2 / sum a^2 (testlet: lambda).  Standard
        errors have the suffix ``_se``; they are NaN of slopes that are 0 and of what is at a bound,
        and those of a lambda near 0, which cannot lie below it, say how far up it may lie.
        ``item_loading_draw`` and ``item_intercept_draw`` (draw, ...): the draws.
        attrs: ``log_likelihood``, of the data alone; ``objective``, with the ``log_prior``;
        ``n_parameters``; without a prior ``aic`` and ``bic``; ``standard_errors``, "sandwich" with
        sampling weights.

    Raises
    ------
    InputError
        If some items have more than two categories; there are too many parameters for the standard
        errors that are asked for; an item has no block; no block has two items;
        there is one block and nothing beside it, whose ability cannot be told from the general
        one; with "testlet" two blocks and nothing beside them, of whose lambdas data tell one
        number; a block is called "general".
    EstimationError, TooLargeError
        An item without responses; a grid that does not fit into memory.

    Warns
    -----
    ConvergenceWarning, DataWarning, ItemWarning
        If the iterations do not end; of blocks whose ability cannot be told from the general one
        (``block_effect_sd`` below 0.05), and with "free" of those of two items, of which data tell
        the product of both s_j alone, and of two blocks with nothing beside them; if the data do
        not determine all parameters (no standard errors then); of flagged items.

    Notes
    -----
    One pass over the data for each iteration (some 10 to 50), one for start values, one for blocks
    that were answered in part, one for standard errors and some three for Newton steps to the
    maximum.  Blocks are integrated one by one given the general ability (Gibbons
    and Hedeker 1992; Cai, Yang and Hansen 2011): the work is that of planes, one for each block.
    Nodes are 3/4 of the smallest posterior SD apart, of abilities of blocks given the general one
    and of that by itself, at most 1 / the steepest slope and 1/2, from -7 to 7 or as far as
    anybody's answers lead: log-likelihoods are those of integrals to some 11 digits.  Memory of the
    driver and of each thread: some times a plane of nodes (40 x 60 of short tests, 100 x 120 of
    blocks of hundreds of items) x 8 bytes for each block, and for each item of a block that
    somebody answered in part; what does not fit is refused.  Standard errors take some hundred
    nodes x (3 items)^2 products for each person and block: with blocks of 12 items .6 of the time
    of the fit, with hundreds several times that (``standard_errors=False``).  Each item costs some
    10,000 exponentials in each iteration, whatever the number of persons: 1,000 items 0.7 s.

    Groups are not looked at: all persons are N(0, 1) in every ability.  Slopes on the general
    ability are positive; an item that falls with it ends near 0 and is flagged.
    Source: Gibbons and Hedeker (1992); testlets Bradlow, Wainer and Wang (1999); parameter
    expansion Liu, Rubin and Wu (1998); acceleration Walker and Ni (2011).

    Examples
    --------
    >>> import numpy as np
    >>> import irt_dask as irt
    >>> rng = np.random.default_rng(1)
    >>> block = np.repeat(["maths", "code", "law"], 8)
    >>> theta, own = rng.normal(size=(800, 1)), rng.normal(size=(800, 3))
    >>> logit = theta + 0.8 * np.repeat(own, 8, axis=1)
    >>> y = (rng.random((800, 24)) < 1 / (1 + np.exp(-logit))).astype(int)
    >>> fit = irt.fit_bifactor(y, item_blocks=block)
    >>> fit["domain"].values.tolist()
    ['general', 'maths', 'code', 'law']
    >>> bool((abs(fit["block_effect_sd"] - 0.8) < 0.4).all())
    True
    >>> irt.score(y, fit)["person_ability"].sizes["latent_dims"]
    4
    """
    whole_number("max_iterations", max_iterations, 1)
    whole_number("n_draws", n_draws, 0)
    one_of("loadings", loadings, ("testlet", "free"))
    if not (prior is None or isinstance(prior, ItemPrior) or prior == "centred"):
        raise InputError(f"prior={prior!r} is not available; give 'centred', an ItemPrior or None")
    responses = as_responses(responses, "fit_bifactor")
    given = blocks(item_blocks, responses.item_id)
    names, of_item = _with_abilities(given, loadings)
    with Engine(responses, client=client, progress=progress, stage="bifactor") as engine:
        counts = response_counts(engine)
        partly = in_part(engine, of_item, len(names))
        model = Model(loadings == "testlet", of_item, len(names), partly, prior)
        with_errors = errors.asked(model, standard_errors)
        fit = Rounds(engine, model)
        x = model.start(counts)
        saved = checkpoint_of(engine, checkpoint, _identity(model, tolerance, x))
        end = climb.full(fit, x, max_iterations, tolerance, saved, "bifactor")
        found = errors.found(
            fit, model.upright(end.x), with_errors, counts.n_persons, converged=end.converged
        )
        drawn = errors.draws(model, found, n_draws, seed)
        result = described(fit, end, found, counts, drawn, names, given)
    if not end.converged:
        warnings.warn(
            f"the bifactor fit did not converge in {max_iterations} iterations; raise "
            f"max_iterations",
            ConvergenceWarning,
            stacklevel=2,
        )
    _warn_of_effects(result)
    checks.warn(result["item_flag"].values, responses.item_id)
    return result


def _with_abilities(given: Blocks, loadings: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Blocks that have an ability, and the number of each item's; -1 for none."""
    size = np.bincount(given.of_item)
    kept = np.flatnonzero(size > 1)
    names = tuple(given.labels[b] for b in kept)
    place = np.full(size.size, -1)
    place[kept] = np.arange(kept.size)
    if GENERAL in names:
        raise InputError(
            f"item_blocks: {GENERAL!r} is the name of the ability of all items; call the block "
            f"something else"
        )
    if not names:
        raise InputError(
            "item_blocks: no block has two items, and no ability of its own that data could tell; "
            "use fit_marginal"
        )
    units = size.size  # blocks, and items by themselves
    if units == 1:
        raise InputError(
            f"item_blocks: all items are of the one block {names[0]!r}, whose ability cannot be "
            f"told from the general one; use fit_marginal, or give labels of three blocks or more"
        )
    if units == 2:
        of_two = (
            f"item_blocks: of two blocks ({', '.join(map(repr, given.labels))}) and nothing beside "
            f"them data tell how much their abilities have in common, one number"
        )
        if loadings == "testlet":
            raise InputError(
                f"{of_two}, and loadings='testlet' asks for a lambda of each; use fit_population "
                f"with domains=, or split the blocks into three or more"
            )
        warnings.warn(
            f"{of_two}: with loadings='free' slopes of both kinds are held apart by their "
            f"differences between items alone, and are not to be relied on",
            DataWarning,
            stacklevel=3,
        )
    _warn_of_pairs([given.labels[b] for b in np.flatnonzero(size == 2)], loadings)
    return names, place[given.of_item]


def _warn_of_pairs(pairs: list[str], loadings: str) -> None:
    """Name the blocks of two items, whose free slopes are one number."""
    if pairs and loadings == "free":
        warnings.warn(
            f"{len(pairs)} block(s) have two items: {name_some(pairs)}; of their slopes on the "
            f"block's ability data tell the product alone, and what else is said of them is the "
            f"prior, or by chance without one; use loadings='testlet', or join blocks",
            DataWarning,
            stacklevel=4,
        )


#: Below this the abilities of a block are the general one for all that anybody could measure.
_NO_EFFECT = 0.05


def _warn_of_effects(result: xr.Dataset) -> None:
    """Name the blocks whose ability cannot be told from the general one."""
    effect = result["block_effect_sd"]
    small = result["block"].values[effect.values < _NO_EFFECT].tolist()
    if small:
        warnings.warn(
            f"{len(small)} block(s) have abilities that cannot be told from the general one "
            f"(block_effect_sd below {_NO_EFFECT}): {name_some(small)}; answers in them hang "
            f"together no more than the general ability says, and scores of these blocks' "
            f"abilities say nothing",
            DataWarning,
            stacklevel=3,
        )


def _identity(model: Model, tolerance: float, start: Any) -> dict[str, Any]:
    """What a checkpoint rests on, but for data."""
    k = model.limits(model.unpack(start)[0])
    return {
        "method": "bifactor", "testlet": model.testlet, "blocks": model.of_item,
        "tolerance": tolerance, "start": start, "prior": (k.mean, k.precision, k.of_log),
    }  # fmt: skip
