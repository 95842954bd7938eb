"""The spectral estimator under differential privacy of persons, by discrete Gaussian noise.

Nguyen and Zhang, "Optimal and Private Learning from Human Response Data", with the sensitivity
that their Lemma 4.1 lacks.  The only numbers that leave the data are noisy counts of pairs of
items; all else is computed from them and from public sizes.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xarray as xr
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from irt_dask.arrays import Ints
from irt_dask.calibrate.private.ledger import (
    Json,
    Ledger,
    calibrate,
    check_budget,
    check_ledger_budget,
    gaussian,
)
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.identity import fingerprint
from irt_dask.engine.inputs import one_of, whole_number
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import InputError
from irt_dask.kernels.pairs import pair_counts as pair_kernels
from irt_dask.kernels.privacy import private_counts
from irt_dask.kernels.privacy.private_counts import Pairs
from irt_dask.store import Block, Responses, from_array
from irt_dask.store.blocks import WrappedRef

#: Seconds for noise (18 where nothing else runs), and for the estimate.
_MAX_COUNTS, _MAX_ITEMS = 1_000_000, 2_000


# --- at most k responses of a person --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LimitedBlock(WrappedRef):
    """A block from which at most ``most`` responses of each person are read.

    Which, depends on the secret key, the person's identifier and own responses, not on others:
    whoever is added, removed or replaced changes no one else's choice.  As the key is new and
    secret, choices are as good as random even if identifiers are positions, which then change.
    """

    ref: Any
    most: int
    key: bytes = field(repr=False)  # a failed task may be written to a log
    cache_key: tuple[Any, ...] | None = None

    def read(self) -> Block:
        """Return the block with what is kept."""
        block = self.ref.read()
        seeds = np.array([_seed(i, self.key) for i in self.ref.person_ids()], dtype=np.uint64)
        return replace(block, data=private_counts.limit_items(block.data, seeds, self.most))


def _seed(person_id: str, key: bytes) -> int:
    text = str(person_id).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, key=key, digest_size=8).digest(), "little")


def limited(responses: Responses, most: int) -> Responses:
    """Use at most ``most`` responses of each person, chosen by a new secret key."""
    if most >= responses.n_items:
        return responses
    key, name = secrets.token_bytes(32), secrets.token_hex(16)
    refs = [
        LimitedBlock(ref, most, key, None if ref.cache_key is None else (name, k))
        for k, ref in enumerate(responses.refs)
    ]
    return replace(responses, refs=refs, checksum=None)


# --- data that are checked when they are read -----------------------------------------------------


@dataclass(frozen=True, eq=False)
class SilentBlock(WrappedRef):
    """A lazy block, of which an error does not say what the data are.

    A private fit, and what is printed of it, may be published.  In memory or in a store responses
    were checked before.
    """

    ref: Any
    cache_key: tuple[Any, ...] | None = None

    def read(self) -> Block:
        """Compute the block."""
        block = _or_none(self.ref.read)
        if block is None:
            raise _refusal("a block of these lazy responses cannot be computed, or is not valid")
        return block


def _or_none(make: Callable[[], Any]) -> Any:
    """What ``make`` returns, None where that fails; the error, with what it says, is dropped."""
    try:
        return make()
    except Exception:
        return None


def _refusal(what: str) -> InputError:
    return InputError(
        f"fit_private_spectral: {what}; nothing was released. Why is not said here, since errors "
        f"of a private fit may be published: irt.from_array(array) of the array in memory says it"
    )


def _accepted(given: Any) -> Responses:
    """Responses, with blocks whose errors say nothing of persons."""
    if not isinstance(given, Responses):
        given = _or_none(lambda: from_array(given))
        if given is None:
            raise _refusal("from_array does not take these responses")
    responses = as_responses(given, "fit_private_spectral")
    if not responses.lazy:
        return responses
    refs = [SilentBlock(ref, ref.cache_key) for ref in responses.refs]
    return replace(responses, refs=refs)


def _count(block: Block) -> Any:
    return pair_kernels.pair_counts(block.data)[0]


def exact_counts(
    responses: Responses, pairs: Pairs, most: int, client: Any, progress: ProgressOption
) -> Ints:
    """Counts of the pairs in both orders: secret; one pass over the data."""
    used = limited(responses, most)
    with Engine(used, client=client, progress=progress, stage="pairs") as engine:
        return pairs.of(engine.map_reduce(_count, report=True)[0])


# --- what is public -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """All that is decided before the data are read."""

    adjacency: str
    max_items: int
    pairs: Pairs
    p0: float | None

    @property
    def squared_sensitivity(self) -> int:
        """Squared L2 sensitivity of the counts, which is also the L1 sensitivity."""
        with single_threaded():
            return private_counts.squared_sensitivity(self.pairs, self.max_items, self.adjacency)


def make_plan(
    responses: Responses, method: str, adjacency: str = "replace",
    max_items_per_person: int | None = None, pairs: str = "all", p0: float | None = None,
    seed: int = 0,
) -> Plan:  # fmt: skip
    """Check the options against public sizes and choose the pairs."""
    refuse_weights(responses, method)
    m = responses.n_items
    one_of("adjacency", adjacency, ("replace", "add-remove"))
    one_of("pairs", pairs, ("all", "random"))
    if p0 is not None and pairs == "all":
        raise InputError(f"p0={p0} is the share of pairs for pairs='random'; pairs is 'all'")
    if p0 is not None and not (isinstance(p0, (int, float)) and 0.0 < p0 <= 1.0):
        raise InputError(f"p0={p0!r}, the share of pairs, must be above 0 and at most 1")
    if m < 2 or m > _MAX_ITEMS:
        raise InputError(f"{m} item(s): {method} is for 2 to {_MAX_ITEMS} items")
    most = m if max_items_per_person is None else max_items_per_person
    whole_number("seed", seed)
    whole_number("max_items_per_person", most, 2)
    if pairs == "all":
        chosen = private_counts.all_pairs(m)
    else:
        p0 = float(p0 if p0 is not None else min(1.0, 2.0 * math.log(m) / m))
        chosen = private_counts.random_pairs(m, p0, int(seed))
        _check_connected(chosen, p0, seed)
    if 2 * chosen.n > _MAX_COUNTS:
        raise InputError(
            f"{chosen.n} pairs of items: noise is drawn for at most {_MAX_COUNTS // 2}; use "
            f"pairs='random' with a p0 below {_MAX_COUNTS / (m * (m - 1)):.3g}"
        )
    return Plan(adjacency, min(int(most), m), chosen, p0)


def _check_connected(pairs: Pairs, p0: float, seed: int) -> None:
    m = pairs.n_items
    graph = csr_array((np.ones(pairs.n), (pairs.first, pairs.second)), shape=(m, m))
    n = connected_components(graph, directed=False)[0]
    if n > 1:
        raise InputError(
            f"the random graph (p0={p0:.4g}, seed={seed}, {pairs.n} pairs) leaves the items in {n} "
            f"groups that no pair connects; use another seed or a larger p0"
        )


def fit_private_spectral(
    responses: Any,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    adjacency: str = "replace",
    max_items_per_person: int | None = None,
    pairs: str = "all",
    p0: float | None = None,
    ledger: str | os.PathLike[str] | None = None,
    budget: Mapping[str, float] | None = None,
    seed: int = 0,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Rasch difficulties that protect each person's whole row by differential privacy.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    epsilon, delta : float
        The release is (epsilon, delta)-differentially private; delta far below 1 / persons.
    rho : float
        Instead: it is rho-zCDP (zero-concentrated).  With a ``delta`` epsilon is reported.
    adjacency : {"replace", "add-remove"}
        What is hidden: the responses of a person, whose presence is known, as is the number of
        persons; or also whether a person is in the data.  Item identifiers are public.
    max_items_per_person : int
        Use at most so many responses of a person, chosen at random; default all.  The noise is
        proportional to it, but responses are lost: worth it where few persons have more.
    pairs : {"all", "random"}
        Pairs of items that are counted: all, or a random graph of p0 of them, drawn without the
        data from ``seed``.  The fewer, the less noise on each.
    p0 : float, default 2 log(items) / items
    ledger : path
        File in which the release is written down before it is returned.  The same request on the
        same data returns the recorded release again, at no cost; any other adds to what is spent.
        Use one ledger for all data about the same persons.
    budget : dict with ``rho``, or with ``epsilon`` and ``delta``
        Of the ledger, for all its releases together: set once, for good, and kept there; later
        calls need not repeat it.  A release that would exceed it is refused.
    seed : int
        Of the graph of ``pairs="random"``; the noise has none and is never the same again.

    Returns
    -------
    Dataset over items
        ``item_difficulty``, of mean 0, always finite.  In attrs the budget (rho; epsilon, delta),
        ``sigma`` (scale of the noise), ``sensitivity`` (L2), public sizes and the name of the
        ledger's file, without its folder; nothing else.

    Raises
    ------
    InputError
        For options that are wrong or contradict each other.  Once ``from_array`` or a store has
        accepted the responses, no error depends on them.  Of an array that is not valid it says
        that alone: no person, item or value; a dask array is checked when it is read, before
        anything is released.
    BudgetError
        If the release would exceed the ledger's budget: what is spent, asked for and left.  No
        response is counted and no noise drawn then.

    Notes
    -----
    One pass over the data.  Driver: 40 bytes x items^2; 15 to 20 microseconds of noise for each
    counted pair and order (1,000,000 at most); items^3 for the estimate (2,000 items at most).

    One person changes the counts by a vector of squared length s = min(floor(k^2 / 4), a proved
    bound of the largest cut of the graph) (add or remove) or 2 s (replace), k =
    max_items_per_person: :mod:`irt_dask.kernels.privacy.private_counts`.  Each count, zero or not,
    gets discrete Gaussian noise (Canonne, Kamath and Steinke 2020) drawn by OpenDP from the
    operating system's entropy.  Lemma 4.1 of the source prints too small a variance.  Budgets are
    converted through zCDP, the only measure that OpenDP 0.16 has for this noise: 4 to 12% more of
    it than an exact account of a single release would ask for.

    The guarantee is about the returned numbers, against who knows the code and all other persons.
    It does not cover the time that the fit takes, and a ledger covers data that do not change: a
    release that comes back identical tells that the data are what they were.

    Examples
    --------
    >>> import irt_dask as irt
    >>> fit = irt.fit_private_spectral(irt.load_lsat(), epsilon=1.0, delta=1e-6)
    >>> dict(fit.sizes), fit.attrs["n_pairs"]
    ({'items': 5}, 10)
    >>> round(fit.attrs["sigma"])  # scale of the noise in each count of persons
    16
    """
    asked_for = check_budget(epsilon, delta, rho)
    limit = check_ledger_budget(budget, ledger)
    responses = _accepted(responses)
    plan = make_plan(
        responses, "fit_private_spectral", adjacency, max_items_per_person, pairs, p0, seed
    )
    distance = private_counts.root(plan.squared_sensitivity)
    sigma, spent = calibrate(distance, asked_for)
    asked = {"max_items_per_person": plan.max_items, "pairs": pairs, "p0": plan.p0}
    attrs = {
        "method": "private spectral", "model": "1pl", **spent, "sigma": sigma,
        "sensitivity": distance, "adjacency": adjacency, "n_items": responses.n_items, **asked,
        "n_pairs": plan.pairs.n,
        "n_persons": responses.n_persons if adjacency == "replace" else None,
        "identification": "mean difficulty 0, discrimination 1",
    }  # fmt: skip

    def release() -> Json:
        exact = exact_counts(responses, plan.pairs, plan.max_items, client, progress)
        noisy = np.array(gaussian(sigma)(exact.tolist()), dtype=np.int64)
        beta = private_counts.difficulties(noisy, plan.pairs, sigma)
        return {"item_difficulty": beta.tolist(), "attrs": attrs}

    if ledger is None:
        return _result(responses.item_id, release())
    request = {**asked_for, **asked, "seed": None if pairs == "all" else int(seed)}
    with Ledger(ledger, adjacency) as book:
        book.limit(limit)
        if not book.has_request(request):  # then no data can make it a release that is recorded
            book.check(spent)
        with Engine(responses, client=client, progress=False) as engine:
            data = fingerprint(engine)
        known = book.find(data, request)
        if known is None:
            book.check(spent)
            cost = {**spent, **book.total(spent)}
            known = release()
            book.record(data, request, known, cost)
    return _result(responses.item_id, known, book.path.name)


def _result(item_id: tuple[str, ...], release: Json, ledger: str | None = None) -> xr.Dataset:
    return dataset(
        {"item_difficulty": np.array(release["item_difficulty"])},
        item_id=item_id,
        attrs={**release["attrs"], "ledger": ledger},
    )
