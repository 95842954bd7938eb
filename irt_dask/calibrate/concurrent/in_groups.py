"""Score and information of each item's parameters in a group, and distances of its curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.concurrent.residual_sums import Setting, Sums

#: Condition of a matrix beyond which it has no inverse to speak of.
_SINGULAR = 1e12


class Known(NamedTuple):
    """Of the items in a group, mean and SD of which are taken out; (items, parameters, ...)."""

    score: Floats
    information: Floats
    variance: Floats  # of the score: the information, or with sampling weights a sandwich
    taken: Floats  # what is taken out of each score, by the group's mean and SD

    @classmethod
    def together(cls, each: Sequence[Known]) -> Known:
        """Of groups as one: their persons are independent.  What is taken out is each group's."""
        if len(each) == 1:
            return each[0]
        score, information, variance = (np.sum([o[k] for o in each], axis=0) for k in range(3))
        return cls(score, information, variance, np.zeros(0))


def known(s: Sums, setting: Setting, g: int, own: Floats) -> Known:
    """Score and information of ``own`` parameters, (items, parameters); 0 for others.

    The group's mean and SD are estimated from the same persons: what their scores explain of an
    item's is no sign of anything.
    """
    products, mixed, spread = s.products
    taken = mixed @ np.linalg.pinv(spread)
    score = s.score - taken @ s.ability
    beyond = _beyond_products(s, setting, g)
    information = products + beyond
    information = information - taken @ mixed.transpose(0, 2, 1)
    variance = information
    if s.varying:
        products, mixed, spread = s.varying
        back = taken @ mixed.transpose(0, 2, 1)
        # Of equal weights it is the information.
        beyond = beyond * (s.weight[1] / s.weight[0])
        variance = products + beyond - back - back.transpose(0, 2, 1)
        variance = variance + taken @ spread @ taken.transpose(0, 2, 1)
    both = own[:, :, None] * own[:, None, :]
    return Known(score * own, information * both, variance * both, taken)


def _beyond_products(s: Sums, setting: Setting, g: int) -> Floats:
    """Expected less realised information of who is known by ability (Louis 1982).

    Its expectation is 0; with it the products of scores vary far less by chance.
    """
    t, columns = setting.tables, setting.columns[g]
    slope, p = t.slope[:, :, columns], np.exp(t.log_p[:, columns])
    more = s.counts.sum(axis=0) * p - s.counts  # (categories, items, nodes)
    return np.einsum("pkjq,rkjq,kjq->jpr", slope, slope, more, optimize=True)


class Curves(NamedTuple):
    """What the persons of a group show of each item's curve; of a set its groups' together."""

    score: Floats  # sum of scores at the nodes, (items, nodes)
    seen: Floats  # sum of responses
    noise: Floats  # variance of the score, nothing being known
    followed: Floats  # what the group's mean and SD have followed of it
    by_item: Floats  # residuals' products with scores of parameters, (items, nodes, parameters)
    weight: Floats  # of persons, and of squares
    mass: Floats  # density of ability, (items, nodes)

    @classmethod
    def of(cls, s: Sums, setting: Setting, g: int, of: Known) -> Curves:
        """Those of a group."""
        expected = setting.tables.expected[setting.common]
        # Residuals w_q (y - expected score): their products with u and s, (items, nodes, ...).
        by_ability, by_item = (
            (x[1] - expected * x[0]).transpose(1, 2, 0) for x in (s.by_ability, s.by_score)
        )
        off = np.arange(len(s.counts))[:, None, None] - expected
        return cls(
            np.tensordot(np.arange(len(s.counts)), s.counts, axes=1), s.counts.sum(axis=0),
            (off**2 * s.squares).sum(axis=0), _squares(by_ability, np.linalg.pinv(s.products[2])),
            by_item - by_ability @ of.taken.transpose(0, 2, 1), s.weight,
            np.broadcast_to(np.exp(setting.log_mass[g]), expected.shape),
        )  # fmt: skip

    @classmethod
    def together(cls, each: Sequence[Curves]) -> Curves:
        """Those of groups as one: sums, and the mixture of their abilities by their responses."""
        if len(each) == 1:
            return each[0]
        score, seen, noise, followed, by_item, weight = (
            np.sum([c[k] for c in each], axis=0) for k in range(6)
        )
        n = [c.seen.sum(axis=1, keepdims=True) for c in each]
        mass = sum(c.mass * size for c, size in zip(each, n, strict=True))
        return cls(score, seen, noise, followed, by_item, weight, np.asarray(mass))


class Distances(NamedTuple):
    """Of each item's curve in a group, or a set, from the common one."""

    rmsd: Floats
    expected: Floats  # root of the square that chance makes
    md: Floats


def distances(c: Curves, setting: Setting, common: Bools, errors: Floats) -> Distances:
    """RMSD and MD, over the distribution of ability, and what chance makes of the RMSD.

    ``errors`` is the covariance of the common parameters, (items, parameters, parameters).  Where
    the group is among those that they come from (``common``, items) they have followed some of the
    chance in it; of a group with an item of its own they add theirs.
    """
    expected = setting.tables.expected[setting.common]
    carried = _squares(c.by_item, np.nan_to_num(errors))
    # With sampling weights all that is squared is larger by the same factor, about, as ``errors``
    # are already.
    unequal = c.weight[1] / c.weight[0]
    noise = c.noise - (unequal * c.followed + np.where(common[:, None], carried, -carried))
    with np.errstate(divide="ignore", invalid="ignore"):
        difference, noise = c.score / c.seen - expected, noise / c.seen**2
    some = np.isfinite(difference) & np.isfinite(noise)
    weight = np.where(some, c.mass, 0.0)
    difference, noise = np.where(some, difference, 0.0), np.where(some, noise, 0.0)
    with np.errstate(invalid="ignore"):
        weight = weight / weight.sum(axis=1, keepdims=True)
    square, chance = (weight * difference**2).sum(axis=1), (weight * noise).sum(axis=1)
    return Distances(
        np.sqrt(square), np.sqrt(np.maximum(chance, 0.0)), (weight * difference).sum(axis=1)
    )


def _squares(x: Floats, a: Any) -> Floats:
    """``x a x'`` of each item and node."""
    return np.asarray(((x @ a) * x).sum(axis=-1))


def inverse(a: Floats) -> Floats:
    """Inverse of each matrix; NaN where one has none."""
    one = np.eye(a.shape[-1])
    good: Any = np.isfinite(a).all(axis=(-2, -1))
    tame = np.where(good[..., None, None], a, one)
    with np.errstate(all="ignore"):
        good &= np.linalg.cond(tame) < _SINGULAR
    out = np.linalg.inv(np.where(good[..., None, None], tame, one))
    return np.where(good[..., None, None], out, np.nan)
