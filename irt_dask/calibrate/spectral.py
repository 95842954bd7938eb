"""The spectral estimator of the Rasch model: difficulties from the counts of pairs of items.

Nguyen and Zhang, "A Spectral Approach to Item Response Theory".  ``Y_ij``, the persons right on i
and wrong on j, define a Markov chain on the items whose stationary distribution is proportional to
``exp(difficulty)``; no ability is estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

from irt_dask.calibrate import spectral_errors
from irt_dask.calibrate.chain import DenseChain, FlowChain, distribution
from irt_dask.calibrate.common import list_groups
from irt_dask.calibrate.pairs import count
from irt_dask.engine import Engine, ProgressOption, as_responses, bank_item_ids, dataset
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import EstimationError, InputError
from irt_dask.items import checks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: More items than these: the chain is never formed; standard errors are not computed unless asked,
#: and then the chain of sparse data is not formed either, whose products are fast.
_MAX_DENSE, _MAX_ERRORS = 5000, 1000
#: Items whose co-observations still fit a bitmap (1.25 GB).
_MAX_LINKS = 100_000


@dataclass
class _Fit:
    """What is known of each item, NaN where it is not."""

    beta: Floats
    se: Floats
    bias: Floats
    covariance: Floats | None = None
    residual: float = 0.0
    n_products: int = 0
    contrasts: list[tuple[float, float, float]] = field(default_factory=list)


def fit_spectral(
    responses: Any,
    *,
    regularization: float = 1.0,
    accelerated: bool = True,
    components: str = "error",
    standard_errors: bool | None = None,
    contrasts: Sequence[tuple[str, str]] = (),
    level: float = 0.95,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Rasch difficulties by the spectral estimator, with standard errors.

    Parameters
    ----------
    responses : Responses, anything ``from_array`` takes, or the Dataset of :func:`pair_counts`
        Person weights are used.  Pair counts hold no persons, so no standard errors.
    regularization : float
        nu, added to the counts of every pair of items that some person answered both of.  Keeps
        difficulties finite; biases them towards 0 by O(nu / n).  0 switches it off.
    accelerated : bool
        Scale the chain item by item (Algorithm 2) or by one number (Algorithm 1); the estimate is
        the same, more than 5,000 items take more steps.
    components : {"error", "each"}
        Items that the responses do not put on one scale: an error that lists the groups, or a fit
        of each group, of mean difficulty 0 each (NaN where an item is alone).
    standard_errors : bool, optional
        Default: up to 1,000 items.  At most 5,000, and not with pair counts.
    contrasts : pairs of item identifiers
        Differences of difficulty to give with standard errors, for any number of items.
    level : float
        Of the intervals.

    Returns
    -------
    Dataset over items
        ``item_difficulty``, of mean 0 (in each group); ``item_linked_group``; ``item_flag`` (of
        pair counts, what difficulties tell); with standard errors
        ``_se``, ``_lower``, ``_upper``, ``item_difficulty_covariance`` and
        ``item_difficulty_bias``, what nu changes to first order: the intervals reach over it.
        ``contrast_difference`` (first less second) with ``_se``, ``_lower``, ``_upper``.  attrs:
        ``residual`` is the largest imbalance of the chain's flows, relative to the largest flow;
        ``n_iterations`` counts products with the chain.

    Raises
    ------
    InputError
    EstimationError
        If the items are not connected (it lists the groups), or the chain cannot be solved.

    Warns
    -----
    ItemWarning
        Some items are flagged.

    Notes
    -----
    Two passes for flags.  Up to 5,000 items: one pass, items^3 and 17 items^2 bytes on the driver;
    standard errors take two passes and twice that.  Beyond, and from 1,000 items with sparse data
    and no standard errors, the chain is not formed: some dozens of passes, and with nu > 0 a bitmap
    of items^2 / 8 bytes; contrasts take some dozens of passes each.  The fit maximises no
    likelihood of the full data, so attrs hold no ``objective``.  Standard errors are the sandwich
    of the estimating equations (:mod:`irt_dask.calibrate.spectral_errors`): they hold whatever the
    distribution of ability, if the Rasch model does.  Source: Algorithm 2, section 4.
    """
    counted = isinstance(responses, xr.Dataset) and "pair_count" in responses
    _check_options(regularization, components, level)
    if counted:
        if standard_errors or contrasts:
            raise InputError("pair counts hold no persons: standard errors need the responses")
        return _of_counts(responses, regularization, accelerated, components)
    responses = as_responses(responses)
    item_id, m = responses.item_id, responses.n_items
    pairs = [_places(item_id, pair) for pair in contrasts]
    with_errors = m <= _MAX_ERRORS if standard_errors is None else standard_errors
    _check_size(m, regularization, bool(standard_errors))
    with Engine(responses, client=client, progress=progress, stage="spectral") as engine:
        chain = _chain(engine, regularization, with_errors)
        label = _groups(chain, item_id, regularization, components)
        for i, j in pairs:
            if label[i] != label[j]:
                raise InputError(f"contrast {item_id[i]!r}, {item_id[j]!r}: not on one scale")
        if pairs and label.max() > 0 and isinstance(chain, FlowChain):
            raise InputError(
                "contrasts of sparse data with more than 1,000 items, or of any with more than "
                "5,000, need all items on one scale; select the items of one group"
            )
        fit = _fit_groups(chain, label, accelerated)
        if with_errors or (pairs and isinstance(chain, DenseChain)):
            assert isinstance(chain, DenseChain)
            _add_errors(engine, chain, label, fit)
        _add_contrasts(engine, chain, label, fit, pairs)
        seen = checks.count(engine)
    if not with_errors:
        fit.covariance = None
    named = [(item_id[i], item_id[j]) for i, j in pairs]
    out = _result(
        fit, label, item_id, engine.n_persons, regularization, accelerated, level, named, seen,
        engine.weight_attrs,
    )  # fmt: skip
    checks.warn(out["item_flag"].values, item_id)
    return out


def _of_counts(counts: xr.Dataset, nu: float, accelerated: bool, components: str) -> xr.Dataset:
    item_id = bank_item_ids(counts, "pair counts")
    if counts["pair_count"].shape != (len(item_id),) * 2:
        raise InputError(
            f"pair counts of shape {counts['pair_count'].shape} must have all items in rows and "
            f"columns; select items of the responses before they are counted"
        )
    with single_threaded():  # other bits on other numbers of threads
        chain = _dense(counts["pair_count"].values, counts["pair_observed"].values, nu)
        label = _groups(chain, item_id, nu, components)
        fit = _fit_groups(chain, label, accelerated)
    n_persons = int(counts.attrs["n_persons"])
    return _result(fit, label, item_id, n_persons, nu, accelerated, 0.0, [])


# --- what is checked first ------------------------------------------------------------------------


def _check_options(nu: float, components: str, level: float) -> None:
    if not (np.isfinite(nu) and nu >= 0):
        raise InputError(f"regularization={nu} must be finite and at least 0")
    if components not in ("error", "each"):
        raise InputError(f"components={components!r}; choose 'error' or 'each'")
    if not 0.0 < level < 1.0:
        raise InputError(f"level={level} must lie between 0 and 1, such as 0.95")


def _check_size(m: int, nu: float, standard_errors: bool) -> None:
    if standard_errors and m > _MAX_DENSE:
        raise InputError(
            f"{m} items: standard errors of all are computed for at most {_MAX_DENSE}; name the "
            f"differences of interest in contrasts="
        )
    if nu > 0 and m > _MAX_LINKS:
        raise InputError(
            f"{m} items: regularization={nu} needs to know which items are answered together, for "
            f"at most {_MAX_LINKS} items; use regularization=0 or fit_pairwise"
        )


def _places(item_id: tuple[str, ...], pair: tuple[str, str]) -> tuple[int, int]:
    try:
        first, second = (item_id.index(str(x)) for x in pair)
    except ValueError:
        raise InputError(f"contrast {pair!r} must name two items of these responses") from None
    if first == second:
        raise InputError(f"contrast {pair!r} names the same item twice")
    return first, second


# --- the chain and its groups ---------------------------------------------------------------------


def _dense(differ: Any, both: Any, nu: float) -> DenseChain:
    return DenseChain(np.array(differ, dtype=float, order="C"), np.array(both > 0, order="C"), nu)


def _chain(engine: Engine, nu: float, with_errors: bool) -> DenseChain | FlowChain:
    r = engine.responses
    sparse = r.layout == "csr" and r.n_items > _MAX_ERRORS
    if r.n_items > _MAX_DENSE or (sparse and not with_errors):
        return FlowChain(engine, nu)
    return _dense(*count(engine), nu)


def _groups(
    chain: DenseChain | FlowChain, item_id: tuple[str, ...], nu: float, components: str
) -> Ints:
    """Label the groups of items that are on one scale; several are an error unless asked for."""
    if len(item_id) < 2:
        raise EstimationError("difficulties are relative: at least two items are needed")
    label = chain.groups()
    sizes = np.bincount(label)
    if len(sizes) == 1 or (components == "each" and sizes.max() > 1):
        return label
    remedy = (
        "no person answered items of two groups: calibrate each group by itself (components='each')"
        if nu > 0
        else "everyone who answered items of two groups was right on the same one, or nobody "
        "answered both: use regularization=1.0 or remove items that all or none solved"
    )
    raise EstimationError(
        f"the items fall into {len(sizes)} groups that the responses do not put on one scale; "
        f"{remedy}. {list_groups(label, item_id)}"
    )


def _members(label: Ints) -> list[NDArray[np.intp]]:
    """Items of each group of two or more."""
    return [at for c in range(label.max() + 1) if (at := np.flatnonzero(label == c)).size > 1]


def _part(chain: DenseChain | FlowChain, items: NDArray[np.intp], m: int) -> DenseChain | FlowChain:
    return chain if items.size == m else chain.only(items)


def _fit_groups(chain: DenseChain | FlowChain, label: Ints, accelerated: bool) -> _Fit:
    m = label.size
    fit = _Fit(np.full(m, np.nan), np.full(m, np.nan), np.full(m, np.nan))
    for items in _members(label):
        part = _part(chain, items, m)
        pi, residual = distribution(part, accelerated)
        beta = np.log(pi if isinstance(part, DenseChain) else pi[items])
        fit.beta[items] = beta - beta.mean()
        fit.residual = max(fit.residual, residual)
        fit.n_products += part.n_products
    return fit


# --- standard errors ------------------------------------------------------------------------------


def _add_errors(engine: Engine, chain: DenseChain, label: Ints, fit: _Fit) -> None:
    m = label.size
    fit.covariance = np.full((m, m), np.nan)
    for items in _members(label):
        part = _part(chain, items, m)
        assert isinstance(part, DenseChain)
        e = np.zeros(m)
        e[items] = np.exp(fit.beta[items])
        pull = part.pull(e[items])
        scatter = spectral_errors.score_covariance(engine, e, items)
        scatter -= np.multiply.outer(pull, pull) / engine.n_persons  # about their mean
        x = spectral_errors.influence(part, e[items])
        covariance = x.T @ scatter @ x
        fit.covariance[np.ix_(items, items)] = covariance
        fit.se[items] = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        fit.bias[items] = -(x.T @ pull)


def _add_contrasts(
    engine: Engine,
    chain: DenseChain | FlowChain,
    label: Ints,
    fit: _Fit,
    pairs: list[tuple[int, int]],
) -> None:
    for i, j in pairs:
        difference = fit.beta[i] - fit.beta[j]
        if fit.covariance is not None:
            v = fit.covariance
            variance, bias = v[i, i] + v[j, j] - 2.0 * v[i, j], fit.bias[i] - fit.bias[j]
        else:
            assert isinstance(chain, FlowChain)
            e, c = np.exp(fit.beta), np.zeros(label.size)
            c[[i, j]] = 1.0, -1.0
            variance, x = spectral_errors.contrast_variance(engine, chain, e, c)
            bias = -float(x @ chain.pull(e))
        fit.contrasts.append((difference, float(np.sqrt(max(variance, 0.0))), bias))


def _interval(estimate: Any, se: Any, bias: Any, level: float) -> tuple[Any, Any]:
    """Interval about the estimate and the estimate less its bias."""
    reach = stats.norm.ppf(0.5 + level / 2.0) * se
    return np.minimum(estimate, estimate - bias) - reach, np.maximum(
        estimate, estimate - bias
    ) + reach


def _result(
    fit: _Fit,
    label: Ints,
    item_id: tuple[str, ...],
    n_persons: int,
    nu: float,
    accelerated: bool,
    level: float,
    contrasts: list[tuple[str, str]],
    seen: checks.Counts | None = None,
    weight_attrs: dict[str, Any] | None = None,
) -> xr.Dataset:
    data: dict[str, Any] = {"item_difficulty": fit.beta, "item_linked_group": label}
    if fit.covariance is not None:
        lower, upper = _interval(fit.beta, fit.se, fit.bias, level)
        data |= {
            "item_difficulty_se": fit.se,
            "item_difficulty_lower": lower,
            "item_difficulty_upper": upper,
            "item_difficulty_bias": fit.bias,
            "item_difficulty_covariance": fit.covariance,
        }
    data["item_flag"] = checks.flags(data, seen=seen)
    coords: dict[str, Any] = {}
    if contrasts:
        difference, se, bias = np.array(fit.contrasts).T
        lower, upper = _interval(difference, se, bias, level)
        data |= {
            "contrast_difference": difference,
            "contrast_difference_se": se,
            "contrast_difference_lower": lower,
            "contrast_difference_upper": upper,
        }
        first, second = zip(*contrasts, strict=True)
        coords = {"contrast_first": np.array(first), "contrast_second": np.array(second)}
    return dataset(
        data,
        item_id=item_id,
        coords=coords,
        attrs={
            "method": "spectral",
            "model": "1pl",
            "regularization": nu,
            "accelerated": accelerated,
            "converged": True,
            "n_iterations": fit.n_products,
            "residual": fit.residual,
            "n_linked_groups": int(label.max()) + 1,
            "level": level if fit.covariance is not None or contrasts else None,
            "identification": "mean difficulty 0, discrimination 1",
            "n_persons": n_persons,
            **(weight_attrs or {}),
        },
    )
