"""Posterior predictive check of the distribution of scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import EstimationError
from irt_dask.evaluate import predictive_items, predictive_sums
from irt_dask.evaluate.predictive_items import ENDS, LEVEL
from irt_dask.evaluate.predictive_sums import Sums
from irt_dask.items.blocks import Blocks
from irt_dask.items.blocks import blocks as blocks_of
from irt_dask.items.draws import has_draws, item_draws
from irt_dask.items.parameters import item_set, refuse_other_categories
from irt_dask.kernels.base import keyed_random
from irt_dask.store import Responses

_LEAST_REPLICATES = 10
#: Classes of scores at most; longer tests have several scores in each.
_MOST_CLASSES = 201
#: Neighbouring classes are pooled until their expected count is at least this.
_LEAST_EXPECTED = 5.0


def predictive_check(
    responses: Any,
    posterior: xr.Dataset,
    *,
    n_replicates: int = 50,
    seed: int = 0,
    item_blocks: Mapping[str, Any] | Sequence[Any] | None = None,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Compare scores, items and blocks of items with what the items' parameters predict.

    For each of some draws of the items new persons are simulated: abilities from N(0, 1), responses
    to the items that each real person faced, with the same ones missing.  A model whose abilities,
    curves or independence are wrong shows in the scores (the sums of a person's responses, with two
    categories the number right); an item that does not belong to the others in its correlation with
    them; items that depend on each other in the variance of the score on their block.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    posterior : Dataset
        Result of ``fit_bayes``, matched to the responses by item identifier; or another fit or a
        bank, of any model, on a scale on which abilities are N(0, 1).  Without draws all replicates
        are under the estimates themselves: what these leave uncertain does not widen them.
    n_replicates : int
        Simulated data sets, at least 10, each under an item draw of its own (evenly spaced among
        those there are), if there are draws.  No p-value of an item or a block is below
        ``2 / (1 + n_replicates)``.
    seed : int
    item_blocks : mapping or list, optional
        Block of each item (its testlet, booklet, domain, benchmark): a dict from item identifier to
        label, or the labels in the order of the items.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over score, items and, with ``item_blocks``, block
        ``score_count``: persons by score, of items of two categories the number right.  ``score``
        is the smallest of a class; classes have ``attrs["score_width"]`` numbers, 1 up to 200
        responses a person.  Persons without responses are left out.
        ``item_mean_score``: mean of the item's observed responses, of two categories the share
        right.  ``item_rest_correlation``: correlation, over the persons who answered the item, of
        the response with the sum of the person's other responses; NaN if all are equal.
        ``item_n_responses``; ``item_n_categories`` if some item has more than two.
        ``block_score_variance``: variance (over n - 1), among the persons who answered an item of
        the block at least, of the sum of their responses to the block's items.
        ``block_n_persons``, ``block_n_items``; blocks are in the order of their first items.

        Each of the four with ``_expected``, the mean of the replicates, and ``_lower``, ``_upper``,
        between which 95% of such values lie (``attrs["level"]``: with fewer than 39 replicates,
        their extremes, which hold less); the last three, which have no unit but that of responses
        or its square, with ``_p_value``.
        attrs: ``p_value``, ``discrepancy``, ``discrepancy_expected`` (mean of the replicates) and
        ``n_classes`` of the scores, ``n_item_draws`` (0: none, but estimates).

    Raises
    ------
    InputError
        If the posterior has fewer draws than ``n_replicates``, or ``item_blocks`` lacks items.
    EstimationError
        If no response is observed.
    TooLargeError
        If the sums would not fit into memory.

    Notes
    -----
    The discrepancy of a histogram h is ``sum (h - e)^2 / e``, e the mean of the observed and all
    replicated histograms, over classes pooled from below until e is at least 5.  ``p_value`` is
    ``(1 + number of replicates with a discrepancy of at least the observed one)`` over
    ``1 + n_replicates``: the observed histogram is treated as one more replicate, which makes the
    value exactly uniform (in steps of ``1 / (1 + n_replicates)``, its smallest value) when the data
    come from the posterior predictive.  Items that were fitted to these same data follow them, so
    that the value then is conservative: small ones are rarer than their size says.  It is NaN if
    fewer than two classes are left.  With many persons any small misfit gives a small value; the
    plot (``irt.plot.predictive``) tells how large it is.

    P-values of items and blocks are two-sided: twice the smaller share, at most 1, of the values
    (the observed one and the replicates) that are at most, or at least, the observed one.  Equal
    values make them larger: of few persons, or of an item that nearly all have right, none can be
    small.  Replicates whose correlation is not defined are left out.  They are not adjusted for
    the number of items: of 100 items some 5 are below .05 by chance.  To adjust them (Benjamini and
    Hochberg: ``scipy.stats.false_discovery_control``, of those that are not NaN) takes
    ``40 items / (items that are wrong)`` replicates, or none can be small enough.  With fewer, see
    how far values are from their intervals.

    A correlation below its interval, or a negative one, tells of a wrong key, of guessing, of an
    item about something else; one above it of an item that others depend on; the plot
    (``irt.plot.predictive_items``) shows them.  A variance above its interval tells of a block
    whose items have more in common than ability, one below of items that exclude each other, or of
    a wrong key.  What items have parameters for they reproduce if they were fitted to these same
    data: mean scores, and with slopes of their own correlations.  An item of mere guessing then has
    a slope near 0, with ``positive="none"`` a wrong key a negative one, and neither is seen here:
    look at the slopes.  With one slope for all, unequal slopes are seen.  Abilities that are not
    N(0, 1) move all correlations, and all variances, together.  With missing responses both depend
    on who faced what: compare them with what is expected, not with a cut-off or with each other.
    Responses count as numbers, so that of nominal items these are statistics of their codes.

    One pass over the data, each response ``n_replicates`` times (about 10 ns each on a core, with
    blocks 13).  Sums are whole numbers, exact in any order while persons times the square of the
    highest score are below 2^62 (10^9 persons: 67,900), and an error beyond.  Driver memory:
    ``8 (n_replicates + 1) (5 items + 3 blocks)`` bytes (with more than two categories, 5 items and
    the highest score) for each thread of this process and four more, on a cluster for each of up to
    98 results; a thread of a worker holds as much.  10^5 items and 50 replicates: 0.2 GB each.
    Source: Rubin (1984); Gelman, Meng and Stern (1996); Sinharay, Johnson and Stern (2006).

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(500, 10, seed=1)
    >>> posterior = irt.fit_bayes(responses, n_draws=200, n_warmup=100)
    >>> check = irt.predictive_check(responses, posterior, item_blocks=["a"] * 5 + ["b"] * 5)
    >>> check["score_count"].values.tolist()
    [6, 26, 50, 68, 77, 103, 66, 47, 42, 13, 2]
    >>> check.attrs["p_value"] > 0.05
    True
    >>> check["item_rest_correlation"].round(1).values.tolist()
    [0.3, 0.3, 0.4, 0.2, 0.2, 0.3, 0.2, 0.4, 0.3, 0.3]
    >>> check["block_score_variance_p_value"].round(1).values.tolist()
    [0.7, 0.9]
    """
    responses = as_responses(
        responses, "predictive_check", graded=True, items=posterior, what="posterior"
    )
    refuse_weights(responses, "predictive_check")
    whole_number("n_replicates", n_replicates, _LEAST_REPLICATES)
    blocks = Blocks((), np.empty(0, dtype=np.int64))
    if item_blocks is not None:
        blocks = blocks_of(item_blocks, responses.item_id)
    drawn, n_draws = _drawn(responses, posterior, n_replicates)
    keys = tuple(keyed_random.key(seed, "predictive", r) for r in range(n_replicates))
    with Engine(
        responses, client=client, progress=progress, stage="predictive check", graded=True
    ) as engine:
        predictive_sums.refuse_too_many(engine, drawn, blocks)
        sums = Sums(*engine.map_add(predictive_sums.add, drawn, keys, blocks, report=True))
    if not sums.lengths.any():
        raise EstimationError("there is no observed response to check")
    predictive_sums.refuse_overflow(sums.lengths)
    data, coords, attrs = _of_scores(sums)
    data |= {"item_n_responses": sums.seen}
    if responses.graded:
        data["item_n_categories"] = np.array(responses.n_categories)
    data |= predictive_items.of_items(sums.seen, sums.of_items)
    if blocks.labels:
        coords["block"] = np.array(blocks.labels)
        data["block_n_items"] = np.bincount(blocks.of_item)
        data["block_n_persons"] = sums.of_blocks[0, 0]
        data |= predictive_items.of_blocks(sums.of_blocks)
    return dataset(
        data,
        item_id=responses.item_id,
        coords=coords,
        attrs={
            "method": "posterior predictive check",
            "model": posterior.attrs.get("model"),
            "seed": seed,
            "n_persons": int(sums.lengths.sum()),
            "n_replicates": int(n_replicates),
            "n_item_draws": n_draws,
            "level": min(LEVEL, (n_replicates - 1) / (n_replicates + 1)),
            **attrs,
        },
    )


def _drawn(responses: Responses, posterior: xr.Dataset, n: int) -> tuple[tuple[ItemSet, ...], int]:
    """Items of each replicate, and how many of them are draws: all or none."""
    if has_draws(posterior):
        drawn = item_draws(posterior, responses.item_id, n, option="n_replicates", what="posterior")
    else:
        drawn = [item_set(posterior, responses.item_id, what="posterior")] * n
    refuse_other_categories(drawn[0], responses.n_categories, responses.item_id, "posterior")
    return tuple(drawn), n * has_draws(posterior)


def _of_scores(sums: Sums) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Variables, coordinates and attributes of the distribution of scores."""
    longest = int(np.flatnonzero(sums.lengths)[-1])
    score, width, classes = _classes(sums.histograms, longest)
    observed, replicates = classes[0], classes[1:]
    lower, upper = np.quantile(replicates, ENDS, axis=0, method="weibull")
    p_value, discrepancy, n_classes = _discrepancies(classes)
    data = {
        "score_count": observed,
        "score_count_expected": replicates.mean(axis=0),
        "score_count_lower": lower,
        "score_count_upper": upper,
    }
    attrs = {
        "score_width": width,
        "p_value": p_value,
        "discrepancy": float(discrepancy[0]),
        "discrepancy_expected": float(discrepancy[1:].mean()),
        "n_classes": n_classes,
    }
    return data, {"score": score}, attrs


def _classes(histograms: Ints, longest: int) -> tuple[Ints, int, Ints]:
    """Smallest score of each class, scores in a class, and the histograms by class."""
    width = math.ceil((longest + 1) / _MOST_CLASSES)
    first = np.arange(0, longest + 1, width)
    return first, width, np.add.reduceat(histograms[:, : longest + 1], first, axis=1)


def _discrepancies(classes: Ints) -> tuple[float, Floats, int]:
    """Bayesian p-value; discrepancy of the observed and each replicated histogram; classes used."""
    expected = classes.mean(axis=0)
    first, running = [0], 0.0
    for k, e in enumerate(expected):
        if running >= _LEAST_EXPECTED:
            first.append(k)
            running = 0.0
        running += e
    if running < _LEAST_EXPECTED and len(first) > 1:  # what is left joins the last class
        first.pop()
    pooled = np.add.reduceat(classes, first, axis=1)
    e = np.add.reduceat(expected, first)
    value = ((pooled - e) ** 2 / e).sum(axis=1)
    if len(first) < 2:
        return math.nan, value, len(first)
    # equal histograms give equal values whatever the rounding
    as_large = int((value[1:] >= value[0] * (1.0 - 1e-12)).sum())
    return (1 + as_large) / len(value), value, len(first)
