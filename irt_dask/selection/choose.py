"""Which questions of a bank to ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import dataset
from irt_dask.engine.inputs import one_of, whole_number
from irt_dask.engine.threads import single_threaded
from irt_dask.errors import InputError
from irt_dask.items.bifactor import is_bifactor
from irt_dask.items.parameters import bank_item_ids, item_set
from irt_dask.kernels.base import keyed_random
from irt_dask.selection import clusters, expected
from irt_dask.selection.by_item import grouped, labels_of, weights_of

METHODS = ("variance", "cluster", "random")


@dataclass(frozen=True)
class Blocks:
    """Blocks of questions, and how many to choose from each."""

    names: NDArray[np.str_]
    number: Ints  # of each item
    size: Ints
    quota: Ints


def quotas(size: Ints, n: int) -> Ints:
    """Shares of n in proportion to sizes, 1 or more each, as even as whole numbers can be.

    The largest remainders are rounded up, of equal ones the first.
    """
    exact = size * (n / size.sum())
    out = np.clip(np.floor(exact).astype(np.int64), 1, size)
    while (left := n - int(out.sum())) != 0:
        lack = np.where(out < size, exact - out, -np.inf) if left > 0 else out - exact
        if left < 0:
            lack = np.where(out > 1, lack, -np.inf)
        h = int(lack.argmax())
        out[h] += 1 if left > 0 else -1
    return out


def _blocks(strata: Any, item_id: tuple[str, ...], n: int) -> Blocks:
    if strata is None:
        labels = np.full(len(item_id), "all")
    else:
        labels = labels_of(strata, item_id, "strata")
    names, number, size = grouped(labels)
    if n < names.size:
        raise InputError(
            f"n={n} is fewer than the {names.size} strata; ask one question of each at least, or "
            f"leave strata out"
        )
    return Blocks(names, number, size, quotas(size, n))


def _random(blocks: Blocks, seed: int) -> Bools:
    """The questions with the smallest random numbers of each block."""
    chosen = np.zeros(blocks.number.size, dtype=bool)
    u = keyed_random.uniforms(keyed_random.key(seed, "choose_items"), 0, chosen.size)[:, 0]
    for h, n in enumerate(blocks.quota):
        own = np.flatnonzero(blocks.number == h)
        chosen[own[np.argsort(u[own], kind="stable")[:n]]] = True
    return chosen


def _chosen(
    method: str, bank: ItemSet | None, weights: Floats, blocks: Blocks, seed: int
) -> Bools:  # fmt: skip
    """Questions by one of the methods; the random one alone needs no items."""
    if method == "random":
        return _random(blocks, seed)
    if bank is None:
        raise InputError(
            f"method={method!r} chooses by items of one ability, and these are of a bifactor fit; "
            f"draw questions at random (method='random'; strata= gives blocks their shares), or "
            f"choose by a fit of one ability"
        )
    if method == "cluster":
        return clusters.chosen(bank, weights, blocks.number, blocks.quota, seed)
    return expected.greedy(bank, weights, blocks.number, blocks.quota)


def choose_items(
    items: xr.Dataset,
    n: int,
    *,
    method: str = "variance",
    strata: Any = None,
    item_weights: Any = None,
    seed: int = 0,
) -> xr.Dataset:
    """Choose the questions of a bank from which all of them are to be predicted.

    Parameters
    ----------
    items : Dataset
        A fit or an item bank; slopes may have any sign.  A bifactor fit goes with "random".
    n : int
        Questions to choose.
    method : {"variance", "cluster", "random"}
        "variance": those which leave the least expected variance of the total, one after the other,
        on average over abilities from N(0, 1): that of the expected total given their answers, by
        their information, plus that of the answers not asked for.  Beside ability a shift of all
        logits is unknown, of standard deviation 0.6: questions chosen for ability alone would be
        the steepest, and their total be off where one ability does not explain all.

        "cluster": questions are parted into n clusters of similar curves (k-means), and the one
        nearest to the middle of each is taken.  "random": a simple random sample, of each stratum
        one; without it :func:`irt_dask.predict_total` has no estimate by design.
    strata : mapping, array or DataArray over items, optional
        Label of each question's block (topic, format): every block has its share of n, in
        proportion to its questions, and 1 at least.
    item_weights : mapping, array or DataArray over items, optional
        Of the total, as in ``predict_total``.
    seed : int
        Of "random", and of where "cluster" starts.

    Returns
    -------
    Dataset over items
        ``item_selected``; ``item_inclusion_probability``, n / N of the stratum for "random", else 1
        or 0; ``item_stratum``.  attrs: ``expected_total_sd``, root of the variance above, for these
        questions, over the sum of the weights, if the model holds (not of a bifactor fit).

    Raises
    ------
    InputError
        If n is not between 1 and the number of questions, or below that of the strata.

    Notes
    -----
    A question's gain of some rounds ago bounds that of now nearly always, so that few are computed
    anew.  100,000 questions take some seconds for n = 100.  Memory: 16 bytes x questions x 60 nodes
    or so (as many as the steepest question needs, up to 400).

    Questions that are chosen are those with the largest slopes, and part of these is luck of the
    calibration: with few persons calibrate with a prior (``fit_marginal(prior="empirical")``).

    Examples
    --------
    >>> import irt_dask as irt
    >>> fit = irt.fit_marginal(irt.simulate(500, 60, seed=1))
    >>> anchors = irt.choose_items(fit, 10)
    >>> int(anchors["item_selected"].sum())
    10
    >>> drawn = irt.choose_items(fit, 10, method="random", seed=3)
    >>> round(float(drawn["item_inclusion_probability"][0]), 3)
    0.167
    """
    one_of("method", method, METHODS)
    n, seed = whole_number("n", n, 1), whole_number("seed", seed)
    item_id = bank_item_ids(items)
    if n > len(item_id):
        raise InputError(f"n={n} is more than the {len(item_id)} items there are")
    bank = None if is_bifactor(items) else item_set(items, item_id)
    weights = weights_of(item_weights, item_id)
    blocks = _blocks(strata, item_id, n)
    with single_threaded():
        selected = _chosen(method, bank, weights, blocks, seed)
        left = None if bank is None else expected.variance_left(bank, weights, selected)
    probability = selected.astype(float)
    if method == "random":
        probability = (blocks.quota / blocks.size)[blocks.number]
    data = {
        "item_selected": selected,
        "item_inclusion_probability": probability,
        "item_stratum": blocks.names[blocks.number],
    }
    attrs = {
        "method": method,
        "model": items.attrs.get("model"),
        "n_selected": n,
        "n_strata": blocks.names.size,
        "seed": None if method == "variance" else seed,
        "expected_total_sd": None if left is None else float(np.sqrt(left) / weights.sum()),
    }
    return dataset(data, item_id=item_id, attrs=attrs)
