"""Posterior predictive check of the distribution of scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import ndtri

from irt_dask.arrays import Floats, Ints, Words
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.cache import keep
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import EstimationError
from irt_dask.items.draws import has_draws, item_draws
from irt_dask.items.parameters import item_set, refuse_other_categories
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.misfit import replicated_responses
from irt_dask.kernels.posterior.at_ability import Between, between
from irt_dask.kernels.responses import response_counts
from irt_dask.store import Block

_LEVEL = 0.95
_LEAST_REPLICATES = 10
#: Classes of scores at most; longer tests have several scores in each.
_MOST_CLASSES = 201
#: Neighbouring classes are pooled until their expected count is at least this.
_LEAST_EXPECTED = 5.0
#: Spacing of curves, times the slope of the steepest item: log P errs by some 1e-9.
_SPACING = 0.25


def _curves(items: ItemSet) -> Between:
    """Items between any abilities that are drawn, kept for the same ones."""
    key = ("replicates", items.digest)
    reach = keyed_random.FARTHEST_NORMAL
    return keep(key, lambda: between(items, -reach, reach, _SPACING))


def _histograms(
    block: Block, drawn: tuple[ItemSet, ...], keys: tuple[Words, ...]
) -> tuple[Ints, Ints]:
    """Persons by score, observed and in each replicate, and by the highest that they could have."""
    steps = drawn[0].n_categories - 1
    highest = response_counts.highest_per_person(block.data, steps)
    some, n_scores = highest > 0, 1 + int(steps.sum())
    histograms = np.empty((len(drawn) + 1, n_scores), dtype=np.int64)
    score = response_counts.score_per_person(block.data)
    histograms[0] = np.bincount(score[some], minlength=n_scores)
    for r, (items, key) in enumerate(zip(drawn, keys, strict=True), start=1):
        words = keyed_random.words(key, block.start, block.n_persons, 2)
        u = keyed_random.uniforms(key, block.start, block.n_persons)[:, 0]  # of the first word
        drawn_data = replicated_responses.responses(
            block.data, ndtri(u), _curves(items), words[:, 1]
        )
        score = response_counts.score_per_person(drawn_data)
        histograms[r] = np.bincount(score[some], minlength=n_scores)
    return histograms, np.bincount(highest[some], minlength=n_scores)


def predictive_check(
    responses: Any,
    posterior: xr.Dataset,
    *,
    n_replicates: int = 50,
    seed: int = 0,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Compare the distribution of scores with what the items predict.

    For each of some draws of the items new persons are simulated: abilities from N(0, 1), responses
    to the items that each real person faced.  A model whose abilities, curves or independence are
    wrong shows in the scores: the sums of the responses, with two categories the number right.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    posterior : Dataset
        Result of ``fit_bayes``, matched to the responses by item identifier; or another fit or a
        bank, of any model, on a scale on which abilities are N(0, 1).  Without draws all replicates
        are under the estimates themselves: what these leave uncertain does not widen them.
    n_replicates : int
        Simulated data sets, at least 10, each under an item draw of its own (evenly spaced among
        those there are), if there are draws.
    seed : int
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over score
        ``score_count``: persons by number right; ``score_count_expected``, the mean of the
        replicates, and ``score_count_lower``, ``score_count_upper``, between which 95% of such
        counts lie (``attrs["level"]``: with fewer than 39 replicates, their extremes, which hold
        less).  ``score`` is the smallest number right of a class; classes have
        ``attrs["score_width"]`` numbers, 1 up to 200 responses a person.  Persons without responses
        are left out.  attrs: ``p_value``, ``discrepancy``, ``discrepancy_expected`` (mean of the
        replicates), ``n_classes``, ``n_item_draws`` (0: none, but estimates).

    Raises
    ------
    InputError
        If the posterior has fewer draws than ``n_replicates``.
    EstimationError
        If no response is observed.

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

    One pass over the data, each response ``n_replicates`` times (about 10 ns each on a core).
    Driver memory: ``8 (n_replicates + 1) (items + 1)`` bytes and some partial sums.
    Source: Rubin (1984); Gelman, Meng and Stern (1996).

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(500, 10, seed=1)
    >>> posterior = irt.fit_bayes(responses, n_draws=200, n_warmup=100)
    >>> check = irt.predictive_check(responses, posterior)
    >>> check["score_count"].values.tolist()
    [6, 26, 50, 68, 77, 103, 66, 47, 42, 13, 2]
    >>> check.attrs["p_value"] > 0.05
    True
    """
    responses = as_responses(
        responses, "predictive_check", graded=True, items=posterior, what="posterior"
    )
    refuse_weights(responses, "predictive_check")
    whole_number("n_replicates", n_replicates, _LEAST_REPLICATES)
    n_draws = n_replicates if has_draws(posterior) else 0
    if n_draws:
        drawn = item_draws(
            posterior, responses.item_id, n_draws, option="n_replicates", what="posterior"
        )
    else:
        drawn = [item_set(posterior, responses.item_id, what="posterior")] * n_replicates
    keys = tuple(keyed_random.key(seed, "predictive", r) for r in range(n_replicates))
    refuse_other_categories(drawn[0], responses.n_categories, responses.item_id, "posterior")
    with Engine(
        responses, client=client, progress=progress, stage="predictive check", graded=True
    ) as engine:
        histograms, lengths = engine.map_reduce(_histograms, tuple(drawn), keys, report=True)
    if lengths.sum() == 0:
        raise EstimationError("there is no observed response to check")
    longest = int(np.flatnonzero(lengths)[-1])
    score, width, classes = _classes(histograms, longest)
    observed, replicates = classes[0], classes[1:]
    tail = 0.5 * (1.0 - _LEVEL)
    lower, upper = np.quantile(replicates, [tail, 1.0 - tail], axis=0, method="weibull")
    p_value, discrepancy, n_classes = _discrepancies(classes)
    return dataset(
        {
            "score_count": observed,
            "score_count_expected": replicates.mean(axis=0),
            "score_count_lower": lower,
            "score_count_upper": upper,
        },
        coords={"score": score},
        attrs={
            "method": "posterior predictive check",
            "model": posterior.attrs.get("model"),
            "seed": seed,
            "n_persons": int(lengths.sum()),
            "n_replicates": int(n_replicates),
            "n_item_draws": int(n_draws),
            "level": min(_LEVEL, (n_replicates - 1) / (n_replicates + 1)),
            "score_width": width,
            "p_value": p_value,
            "discrepancy": float(discrepancy[0]),
            "discrepancy_expected": float(discrepancy[1:].mean()),
            "n_classes": n_classes,
        },
    )


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
