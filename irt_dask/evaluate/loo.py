"""How well a posterior predicts persons whom it was not fitted to: leave one person out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy.special import logsumexp

from irt_dask.arrays import Floats, Words
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import ApproximationWarning, EstimationError, InputError
from irt_dask.evaluate import pareto
from irt_dask.evaluate.abilities import Known
from irt_dask.items.draws import has_draws, item_draws
from irt_dask.items.parameters import refuse_other_categories
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.responses import response_counts
from irt_dask.kernels.responses.layouts import Layout, row_range, to_sparse
from irt_dask.population.population import STANDARD
from irt_dask.store import Block, Responses
from irt_dask.store.responses import sha256
from irt_dask.variables import DRAW

_MAX_IN_MEMORY = 10_000_000
#: Draws by default, and at least.
_DRAWS, _LEAST_DRAWS = 1000, 100
#: Persons who are left out one by one by fits without them, at most.
_MOST_REFITS = 100
_KEY = keyed_random.key(0, "loo")
#: Numbers that a block's log-likelihoods take at a time.
_ROOM = 1 << 22


def _log_likelihoods(data: Layout, drawn: tuple[Known, ...]) -> Floats:
    """Log marginal likelihood of each person's responses in each draw, (persons, draws)."""
    return np.stack([known.expectations(data)[2] for known in drawn], axis=1)


def _said(data: Layout) -> Words:
    """A number for each person's responses, whatever the block and layout."""
    y = to_sparse(data)
    of_items = keyed_random.words(_KEY, 0, y.n_items, 1)[:, 0]
    out = np.zeros(y.shape[0], dtype=np.uint64)
    row = np.repeat(np.arange(out.size), np.diff(y.indptr))
    np.add.at(out, row, of_items[y.indices] * (y.values + 1).astype(np.uint64))
    return out


def _block(block: Block, drawn: tuple[Known, ...]) -> tuple[Floats, Words]:
    """Log density without and with the person, and k, NaN without responses; :func:`_said`."""
    n = block.data.shape[0]
    out = np.full((3, n), np.nan)
    some = response_counts.responses_per_person(block.data) > 0
    step = max(1, _ROOM // len(drawn))
    for lo in range(0, n, step):
        log = _log_likelihoods(row_range(block.data, lo, min(lo + step, n)), drawn)
        weight, k = pareto.smoothed(-log)
        without = logsumexp(weight + log, axis=1)
        within = logsumexp(log, axis=1) - math.log(len(drawn))
        out[:, lo : lo + step] = without, within, k
    out[:, ~some] = np.nan
    return out, _said(block.data)


def _person_ids(ref: Any) -> NDArray[Any]:
    return ref.person_ids()


def loo(
    responses: Any,
    posterior: xr.Dataset,
    *,
    n_draws: int | None = None,
    refit: Callable[[Responses], xr.Dataset] | None = None,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Expected log predictive density of persons, each left out of the posterior in turn.

    What a posterior says of the persons it was fitted to flatters it, the more so the more freedom
    its model has.  Here each person's responses are predicted by the posterior of all the others,
    which is the same draws with weights (Pareto-smoothed importance sampling).  Fits of other
    models, or under other priors, are compared by :func:`compare`.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    posterior : Dataset
        Result of ``fit_bayes`` with one ability, fitted to these very responses: for a
        posterior of others the values mean nothing, and only the number of persons is compared.
    n_draws : int, optional
        Draws that are used, evenly spaced among those there are; at least 100.  Default: 1,000, or
        all of them.
    refit : function of Responses that returns a posterior, optional
        How the items were fitted: ``lambda r: irt.fit_bayes(r, seed=1)``.  Up to 100 persons whose
        weights cannot be relied on, those of the largest k first, are left out by fits without
        them.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset over persons
        ``person_elpd``: log density of the person's responses given all other persons;
        ``person_p_loo``, how much less that is than given the person too (about the number of
        parameters, over persons); ``person_pareto_k``, the shape of the tail of the weights (0 for
        those who were left out by a fit).  NaN: no responses.  attrs: ``elpd_loo``, the sum over
        persons, and ``elpd_loo_se``; ``p_loo``, ``p_loo_se``; ``looic`` = -2 elpd_loo;
        ``largest_k``, beyond which a person's value is not reliable, and ``n_above_k``, how many
        are; ``n_refits``; ``n_draws``; ``responses``, a checksum of the data.

    Raises
    ------
    InputError
        If the posterior has too few draws, several abilities or another number of persons, was
        fitted with person weights, or there are more than 10^7 persons.
    EstimationError
        If no response is observed.

    Warns
    -----
    ApproximationWarning
        If persons are left beyond ``largest_k``.

    Notes
    -----
    A person's density is the integral over ability, N(0, 1), of the probability of all his or her
    responses: what is left out is a person, not a response.  Posterior draws x_s with weights
    proportional to 1 / p(y_i | x_s) are draws given the others.  ``largest_k`` is
    min(.7, 1 - 1 / log10(draws)).  Draws count as independent.  Standard errors are those of a sum
    over persons.

    One pass over the data, in which each person is scored under every draw (some .1 us a draw for
    complete data and booklets, .5 us with gaps).  Workers hold 150 MB a thread and tables of the
    draws; the driver 24 bytes a person and the identifiers.  ``refit`` adds its own fits.
    Source: Vehtari, Gelman and Gabry (2017); Vehtari, Simpson, Gelman, Yao and Gabry (2024); for
    why the marginal likelihood, Merkle, Furr and Rabe-Hesketh (2019).

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.load_lsat()
    >>> posterior = irt.fit_bayes(responses, n_draws=500, seed=1)
    >>> left_out = irt.loo(responses, posterior)
    >>> round(left_out.attrs["elpd_loo"]), round(left_out.attrs["p_loo"])
    (-2475, 8)
    """
    responses = as_responses(responses, "loo", graded=True)
    refuse_weights(responses, "loo")
    if responses.n_persons > _MAX_IN_MEMORY:
        raise InputError(
            f"{responses.n_persons} persons: loo returns a value for each, up to {_MAX_IN_MEMORY}; "
            f"take some of them with responses.select"
        )
    _refuse_weighted(posterior)
    asked = _DRAWS if n_draws is None else whole_number("n_draws", n_draws, _LEAST_DRAWS)
    drawn = _drawn(posterior, responses, asked, n_draws is None)
    if posterior.attrs.get("n_persons", responses.n_persons) != responses.n_persons:
        raise InputError(
            f"posterior was fitted to {posterior.attrs['n_persons']} persons, and the responses "
            f"have {responses.n_persons}: loo leaves out persons that it was fitted to"
        )
    with Engine(
        responses, client=client, progress=progress, stage="leaving persons out", graded=True
    ) as engine:
        blocks = engine.map_blocks(_block, drawn, report=True)
        ids = np.concatenate(engine.map_refs(_person_ids)).astype(str, copy=False)
    values = np.concatenate([b[0] for b in blocks], axis=1)
    said = sha256(np.concatenate([b[1] for b in blocks]), "\0".join(ids).encode())
    if not np.isfinite(values[0]).any():
        raise EstimationError("there is no observed response")
    largest = pareto.largest_k(len(drawn))
    who = _unreliable(values[2], largest)
    refits = who[:_MOST_REFITS] if refit is not None else who[:0]
    for i in refits:
        assert refit is not None
        values[0, i], values[2, i] = _left_out(responses, int(i), refit, asked), 0.0
    left = who.size - refits.size
    if left:
        _warn(left, values[2], largest, refit is not None)
    elpd, p_loo = values[0], values[1] - values[0]
    return dataset(
        {"person_elpd": elpd, "person_p_loo": p_loo, "person_pareto_k": values[2]},
        coords={"person_id": ids},
        attrs={
            "method": "leave one person out",
            "model": posterior.attrs.get("model"),
            "n_persons": int(np.isfinite(elpd).sum()),
            "n_draws": len(drawn),
            **_total("elpd_loo", elpd),
            **_total("p_loo", p_loo),
            "looic": -2.0 * _total("elpd_loo", elpd)["elpd_loo"],
            "largest_k": largest,
            "n_above_k": left,
            "n_refits": int(refits.size),
            "responses": said,
        },
    )


def _refuse_weighted(posterior: xr.Dataset) -> None:
    """Refuse draws that hold a person as often as the weight says: leaving out takes as much."""
    if kind := posterior.attrs.get("weight_kind"):
        raise InputError(
            f"posterior was fitted with {kind} weights of persons, and loo leaves everybody out "
            f"once: fit it to responses.select(weights='ignore') too, or, where weights are "
            f"frequencies, to a row for each person"
        )


def _drawn(posterior: xr.Dataset, responses: Responses, n: int, as_many: bool) -> tuple[Known, ...]:
    """Items of draws on their grids; ``as_many`` as there are, if they are fewer."""
    if not has_draws(posterior):
        raise InputError(
            "posterior has no draws of the items; give the result of fit_bayes, or the "
            "posterior.nc of a run"
        )
    if as_many:
        n = min(n, posterior.sizes[DRAW])
        if n < _LEAST_DRAWS:
            raise InputError(f"posterior has {n} draws: at least {_LEAST_DRAWS} are needed")
    drawn = item_draws(posterior, responses.item_id, n, option="n_draws", what="posterior")
    refuse_other_categories(drawn[0], responses.n_categories, responses.item_id, "posterior")
    return tuple(Known.of(items, STANDARD) for items in drawn)


def _unreliable(k: Floats, largest: float) -> NDArray[np.intp]:
    """Persons beyond the largest k, those of the largest first."""
    who = np.flatnonzero(k > largest)
    return who[np.argsort(-k[who], kind="stable")]


def _left_out(responses: Responses, i: int, refit: Any, n: int) -> float:
    """Log density of person i's responses under a posterior of the others."""
    others = np.ones(responses.n_persons, dtype=bool)
    others[i] = False
    posterior = refit(responses.select(persons=others))
    drawn = _drawn(posterior, responses, n, True)
    one = responses.select(persons=~others)
    with Engine(one, client=None, progress=False, stage="", graded=True) as engine:
        ((found, _),) = engine.map_blocks(_block, drawn)
    return float(found[1, 0])


def _total(name: str, x: Floats) -> dict[str, float]:
    """Sum over persons and its standard error."""
    x = x[np.isfinite(x)]
    se = math.sqrt(x.size * float(x.var(ddof=1))) if x.size > 1 else math.nan
    return {name: float(x.sum()), f"{name}_se": se}


def _warn(n: int, k: Floats, largest: float, refitted: bool) -> None:
    more = "" if refitted else ", or refit= to leave them out by fits without them"
    warnings.warn(
        f"{n} of {k.size} persons have a Pareto k above {largest:.2f} (up to {np.nanmax(k):.2f}): "
        f"their values are not reliable, and elpd_loo is perhaps too high; use more draws{more}",
        ApproximationWarning,
        stacklevel=3,
    )


def compare(fits: Mapping[str, xr.Dataset]) -> pd.DataFrame:
    """Compare posteriors of the same responses by what they say of persons left out.

    Parameters
    ----------
    fits : mapping of names to results of :func:`loo`

    Returns
    -------
    DataFrame
        A row a fit, the best first: ``elpd_loo``, ``elpd_loo_se``, ``p_loo``, ``n_above_k``;
        ``difference`` of elpd from the best, and ``difference_se``, from the differences of the
        same persons.

    Raises
    ------
    InputError
        If there are fewer than two, or they are of different responses.

    Notes
    -----
    A difference of less than some 4, or of less than two standard errors, says nothing.  With few
    persons the standard error is too small.  Source: Vehtari, Gelman and Gabry (2017); Sivula,
    Magnusson, Matamoros and Vehtari (2020).

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.load_lsat()
    >>> priors = {"learned": "hierarchical", "wide": irt.ItemPrior()}
    >>> posteriors = {k: irt.fit_bayes(responses, prior=p, n_draws=500) for k, p in priors.items()}
    >>> table = irt.compare({k: irt.loo(responses, p) for k, p in posteriors.items()})
    >>> table.columns.tolist()[:2]
    ['elpd_loo', 'elpd_loo_se']
    """
    if not isinstance(fits, Mapping) or len(fits) < 2:
        raise InputError("compare takes a mapping of two names or more to results of irt.loo")
    for name, one in fits.items():
        if not isinstance(one, xr.Dataset) or "person_elpd" not in one:
            raise InputError(f"{name!r} is no result of irt.loo")
    first, *others = fits
    for name in others:
        if fits[name].attrs["responses"] != fits[first].attrs["responses"]:
            raise InputError(f"{name!r} and {first!r} are of different responses")
    names = ("elpd_loo", "elpd_loo_se", "p_loo", "n_above_k")
    table = pd.DataFrame({k: {n: one.attrs[n] for n in names} for k, one in fits.items()}).T
    table = table.sort_values("elpd_loo", ascending=False, kind="stable")
    best = fits[table.index[0]]["person_elpd"].values
    apart = [_total("difference", fits[k]["person_elpd"].values - best) for k in table.index]
    return table.join(pd.DataFrame(apart, index=table.index)).astype({"n_above_k": int})
