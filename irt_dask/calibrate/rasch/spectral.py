"""The spectral estimator of the Rasch model: difficulties from the counts of pairs of items.

Nguyen and Zhang, "A Spectral Approach to Item Response Theory".  ``Y_ij``, the persons right on i
and wrong on j, define a Markov chain on the items whose stationary distribution is proportional to
``exp(difficulty)``; no ability is estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.rasch.item_chain import DenseChain, FlowChain
from irt_dask.calibrate.rasch.pair_counts import MEAN_ZERO, count
from irt_dask.calibrate.rasch.spectral_fit import (
    Chain,
    Fit,
    add_contrasts,
    add_errors,
    default_nu,
    fit_groups,
    warn_of_sparse,
)
from irt_dask.calibrate.shared.start_values import list_groups
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset
from irt_dask.engine.inputs import check_level, one_of
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import EstimationError, InputError
from irt_dask.items import checks
from irt_dask.items.parameters import bank_item_ids
from irt_dask.kernels.responses import response_counts as counts
from irt_dask.store import Block

#: More items than these: the chain is never formed; standard errors are not computed unless asked,
#: and then the chain of sparse data is not formed either, whose products are fast.
_MAX_DENSE, _MAX_ERRORS = 5000, 1000
#: Share of observed responses from which data are not sparse: pairs are counted faster then.
_DENSE = 0.25
#: Items whose co-observations still fit a bitmap (1.25 GB).
_MAX_LINKS = 100_000


def fit_spectral(
    responses: Any,
    *,
    regularization: float | None = None,
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
    regularization : float, optional
        nu, added to the counts of every pair of items that some person answered both of.  By
        default what adds half a response to an item's right answers and half to its wrong ones,
        over all its pairs: that much offsets the bias of the estimate (with more than 100,000 items
        0).  More biases difficulties towards 0, by O(nu / n): the source's 1.0 adds as much as some
        persons answered where data are sparse.  0 switches it off.
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
        ``item_difficulty``, of mean 0 over the items (of each group) whose difficulties the
        responses alone make finite; ``item_linked_group``; ``item_flag`` (of pair counts, what
        difficulties tell); with standard errors ``_se``, ``_lower``, ``_upper``,
        ``item_difficulty_covariance`` and ``item_effective_persons``: NaN for items without a
        finite estimate, and for those that fewer than two persons of equal weight bear on; and, if
        ``regularization`` is given, ``item_difficulty_bias``: what it changes, compared with the
        default's.  Intervals reach over it.
        ``contrast_difference`` (first less second) with ``_se``, ``_lower``, ``_upper``.  attrs:
        ``regularization`` is nu; ``residual`` is the largest imbalance of the chain's flows,
        relative to the largest flow; ``n_iterations`` counts products with the chain.

    Raises
    ------
    InputError
    EstimationError
        If the items are not connected (it lists the groups), or the chain cannot be solved.

    Warns
    -----
    SparseDataWarning
        Items without finite estimates, whose difficulties rest on the regularization alone, and
        items for whose standard errors the responses are too few, by name.
    ItemWarning
        Some items are flagged.

    Notes
    -----
    Two passes for flags.  Up to 5,000 items: one pass, items^3 and 25 items^2 bytes on the driver;
    standard errors take four passes and 100 items^2 bytes.  Beyond, and from 1,000 items with less
    than a quarter observed and no standard errors, the chain is not formed: some dozens of passes,
    and with nu > 0 a bitmap of items^2 / 8 bytes; contrasts take some dozens of passes each.  The
    fit maximises no likelihood of the full data, so attrs hold no ``objective``. Standard errors
    are a sandwich of the estimating equations (:mod:`irt_dask.calibrate.rasch.spectral_errors`):
    they hold whatever the distribution of ability, if the Rasch model does.  The estimate is not
    efficient where items that few persons solve meet easy ones: ``fit_pairwise(pairing="all")`` has
    narrower intervals.  Source: Algorithm 2, section 4.

    Examples
    --------
    >>> import irt_dask as irt
    >>> fit = irt.fit_spectral(irt.load_lsat())
    >>> fit["item_difficulty"].round(2).values.tolist()
    [-1.29, 0.48, 1.25, 0.17, -0.6]
    >>> fit["item_difficulty_se"].round(2).values.tolist()
    [0.11, 0.07, 0.07, 0.08, 0.09]
    """
    counted = isinstance(responses, xr.Dataset) and "pair_count" in responses
    _check_options(regularization, components, level)
    if counted:
        if standard_errors or contrasts:
            raise InputError("pair counts hold no persons: standard errors need the responses")
        return _of_counts(responses, regularization, accelerated, components)
    responses = as_responses(responses, "fit_spectral")
    item_id, m = responses.item_id, responses.n_items
    pairs = [_places(item_id, pair) for pair in contrasts]
    with_errors = m <= _MAX_ERRORS if standard_errors is None else standard_errors
    _check_size(m, regularization, bool(standard_errors))
    with Engine(responses, client=client, progress=progress, stage="spectral") as engine:
        chain = _regularized(_chain(engine, regularization, with_errors), regularization)
        label = _groups(chain, item_id, components)
        for i, j in pairs:
            if label[i] != label[j]:
                raise InputError(f"contrast {item_id[i]!r}, {item_id[j]!r}: not on one scale")
        if pairs and label.max() > 0 and isinstance(chain, FlowChain):
            raise InputError(
                "contrasts of sparse data with more than 1,000 items, or of any with more than "
                "5,000, need all items on one scale; select the items of one group"
            )
        fit, parts = fit_groups(
            chain, label, regularization is None, accelerated, with_errors or bool(pairs)
        )
        if with_errors or (pairs and isinstance(chain, DenseChain)):
            assert isinstance(chain, DenseChain)
            add_errors(engine, chain, fit, parts)
        add_contrasts(engine, fit, parts, pairs)
        seen = checks.count(engine)
    if not with_errors:
        fit.covariance = None
    warn_of_sparse(fit, item_id, [k for pair in pairs for k in pair])
    about = {"accelerated": accelerated, "n_persons": engine.n_persons, **engine.weight_attrs}
    out = _result(fit, label, item_id, about, level, pairs, seen)
    checks.warn(out["item_flag"].values, item_id)
    return out


def _of_counts(
    counts: xr.Dataset, nu: float | None, accelerated: bool, components: str
) -> xr.Dataset:
    item_id = bank_item_ids(counts, "pair counts")
    if counts["pair_count"].shape != (len(item_id),) * 2:
        raise InputError(
            f"pair counts of shape {counts['pair_count'].shape} must have all items in rows and "
            f"columns; select items of the responses before they are counted"
        )
    with single_threaded():  # other bits on other numbers of threads
        differ, both = counts["pair_count"].values, counts["pair_observed"].values
        chain = _regularized(_dense(differ, both), nu)
        label = _groups(chain, item_id, components)
        fit, _ = fit_groups(chain, label, nu is None, accelerated, with_errors=False)
    warn_of_sparse(fit, item_id, [], stacklevel=4)
    about = {"accelerated": accelerated, "n_persons": int(counts.attrs["n_persons"])}
    return _result(fit, label, item_id, about)


# --- what is checked first ------------------------------------------------------------------------


def _check_options(nu: float | None, components: str, level: float) -> None:
    if nu is not None and not (np.isfinite(nu) and nu >= 0):
        raise InputError(f"regularization={nu} must be finite and at least 0, or None")
    one_of("components", components, ("error", "each"))
    check_level(level)


def _check_size(m: int, nu: float | None, standard_errors: bool) -> None:
    if standard_errors and m > _MAX_DENSE:
        raise InputError(
            f"{m} items: standard errors of all are computed for at most {_MAX_DENSE}; name the "
            f"differences of interest in contrasts="
        )
    if nu is not None and nu > 0 and m > _MAX_LINKS:
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


def _dense(differ: Any, both: Any) -> DenseChain:
    return DenseChain(np.array(differ, dtype=float, order="C"), np.array(both > 0, order="C"))


def _observed(block: Block) -> tuple[Any, ...]:
    return (counts.responses_per_person(block.data).sum(),)


def _chain(engine: Engine, nu: float | None, with_errors: bool) -> Chain:
    r = engine.responses
    formed = r.n_items <= (_MAX_DENSE if with_errors else _MAX_ERRORS)
    if not formed and r.n_items <= _MAX_DENSE:  # by what was observed: layouts give the same bits
        observed = int(engine.map_reduce(_observed)[0])
        formed = observed >= _DENSE * r.n_persons * r.n_items
    if not formed:
        return FlowChain(engine, linked=r.n_items <= _MAX_LINKS if nu is None else nu > 0)
    return _dense(*count(engine))


def _regularized(chain: Chain, nu: float | None) -> Chain:
    return chain.at(default_nu(chain) if nu is None else nu)


def _groups(chain: Chain, item_id: tuple[str, ...], components: str) -> Ints:
    """Label the groups of items that are on one scale; several are an error unless asked for."""
    if len(item_id) < 2:
        raise EstimationError("difficulties are relative: at least two items are needed")
    label = chain.groups()
    sizes = np.bincount(label)
    if len(sizes) == 1 or (components == "each" and sizes.max() > 1):
        return label
    remedy = (
        "no person answered items of two groups: calibrate each group by itself (components='each')"
        if chain.nu > 0
        else "everyone who answered items of two groups was right on the same one, or nobody "
        "answered both: leave regularization at its default or remove items that all or none solved"
    )
    raise EstimationError(
        f"the items fall into {len(sizes)} groups that the responses do not put on one scale; "
        f"{remedy}. {list_groups(label, item_id)}"
    )


# --- the result -----------------------------------------------------------------------------------


def _with_interval(
    name: str, estimate: Floats, se: Floats, bias: Floats, level: float
) -> dict[str, Floats]:
    """An estimate, its standard error, and an interval about it and about it less its bias."""
    reach = stats.norm.ppf(0.5 + level / 2.0) * se
    lower, upper = np.minimum(estimate, estimate - bias), np.maximum(estimate, estimate - bias)
    ends = {f"{name}_lower": lower - reach, f"{name}_upper": upper + reach}
    return {name: estimate, f"{name}_se": se, **ends}


def _result(
    fit: Fit, label: Ints, item_id: tuple[str, ...], about: dict[str, Any], level: float = 0.0,
    pairs: Sequence[tuple[int, int]] = (), seen: checks.Counts | None = None,
) -> xr.Dataset:  # fmt: skip
    data: dict[str, Any] = {"item_difficulty": fit.beta, "item_linked_group": label}
    if fit.covariance is not None:
        data |= _with_interval("item_difficulty", fit.beta, fit.se, fit.bias, level)
        data["item_difficulty_covariance"] = fit.covariance
        data["item_effective_persons"] = fit.persons
        if not fit.chosen:
            data["item_difficulty_bias"] = fit.bias
    data["item_flag"] = checks.flags(data, seen=seen)
    coords: dict[str, Any] = {}
    if pairs:
        difference, se, bias = np.array(fit.contrasts).T
        data |= _with_interval("contrast_difference", difference, se, bias, level)
        for name, of in zip(
            ("contrast_first", "contrast_second"), zip(*pairs, strict=True), strict=True
        ):
            coords[name] = np.array([item_id[j] for j in of])
    n_unsettled = int((np.isfinite(fit.beta) & ~fit.settled).sum())
    settled = MEAN_ZERO.replace("difficulty", "difficulty of the settled items")
    attrs = {
        "method": "spectral", "model": "1pl", "regularization": float(fit.nu),
        "default_regularization": fit.chosen, "converged": True, "n_iterations": fit.n_products,
        "residual": fit.residual, "n_linked_groups": int(label.max()) + 1,
        "level": level if fit.covariance is not None or pairs else None,
        "identification": settled if n_unsettled else MEAN_ZERO, "n_unsettled_items": n_unsettled,
    }  # fmt: skip
    return dataset(data, item_id=item_id, coords=coords, attrs=attrs | about)
