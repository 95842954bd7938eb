"""Items as a sample from several blocks, or with covariates: every item has a mean of its own.

As :mod:`irt_dask.calibrate.bayes.hierarchy`, with ``x_j ~ N(B'z_j, Sigma_g(j))``.  The rows of the
design z are 1 for all items, 1 for the items of each block, and the covariates; those of B are the
mean of all, how blocks differ from it, and slopes.  The first alone is nearly free, and moves along
with scale and place: were the means of many blocks free of each other, their own priors would say
of scale and place what many independent items say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.bayes.hierarchy import Hierarchy, Orbit, along_logarithms, inverse_wishart
from irt_dask.calibrate.bayes.signed_hierarchy import SignedHierarchy, along_slopes, sheared
from irt_dask.items.blocks import Blocks, Covariates
from irt_dask.kernels.gibbs.learned_item_draws import Normals
from irt_dask.store.responses import sha256

#: SDs of (log a, d), or (a, d): of blocks' means about that of all, and of what all covariates
#: explain together.
BLOCK_SD, COVARIATES_SD = (0.5, 2.0), (0.5, 2.0)
#: Blocks of fewer items share a covariance.
LEAST_ITEMS = 10


@dataclass(frozen=True, eq=False)
class Structured(Hierarchy):
    """Prior of B, independent normals, and of each covariance, inverse Wishart.

    Means are arrays (..., q, 2), covariances (..., groups, 2, 2); ``held`` is one of these.

    Parameters
    ----------
    block : (items,)
        Number of each item's block, from 0.
    covariate : (covariates, items)
        Of mean 0 and variance 1.
    signed_slopes : bool
        Whether coordinates are (a, d), see :class:`SignedHierarchy`.
    block_names, covariate_names, covariate_sd
        Labels; what a covariate's values were divided by.
    """

    block: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    covariate: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    signed_slopes: bool = False
    block_names: tuple[str, ...] = ()
    covariate_names: tuple[str, ...] = ()
    covariate_sd: Floats = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(cls, plain: Hierarchy, of: Blocks | None, by: Covariates | None, m: int) -> Structured:
        """Return the prior of m items in these blocks, with these covariates."""
        known = {f.name: getattr(plain, f.name) for f in fields(Hierarchy) if f.name != "held"}
        of = of or Blocks(("",), np.zeros(m, dtype=np.int64))
        by = by or Covariates((), np.zeros((0, m)), np.zeros(0))
        return cls(
            **known, block=of.of_item, covariate=by.values, signed_slopes=plain.signed,
            block_names=of.labels, covariate_names=by.names, covariate_sd=by.sd,
        )  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out what is computed again."""
        return type(self), tuple(getattr(self, f.name) for f in fields(self))

    # --- what it is -------------------------------------------------------------------------------

    @property
    def signed(self) -> bool:
        """See :class:`Hierarchy`."""
        return self.signed_slopes

    @property
    def names(self) -> tuple[str, str]:
        """See :class:`Hierarchy`."""
        return SignedHierarchy().names if self.signed else super().names

    @property
    def identity(self) -> dict[str, Any]:
        """See :class:`Hierarchy`."""
        arrays = sha256(self.block, self.covariate)
        held = None if self.held is None else self.held.tolist()
        sds = BLOCK_SD, COVARIATES_SD
        return super().identity | {"held": held, "structure": arrays, "structure_sds": sds}

    @cached_property
    def design(self) -> Floats:
        """Rows of z, (q, items)."""
        rows = [np.ones((1, self.block.size))]
        if self.n_blocks > 1:
            rows.append((np.arange(self.n_blocks)[:, None] == self.block).astype(float))
        return np.concatenate([*rows, self.covariate])

    @cached_property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return int(self.block.max()) + 1

    @cached_property
    def group_of_block(self) -> Ints:
        """Which covariance each block has; small ones share the last."""
        large = np.bincount(self.block) >= LEAST_ITEMS
        return np.where(large, np.cumsum(large) - 1, large.sum())

    @cached_property
    def groups(self) -> list[Ints]:
        """Items of each covariance."""
        group = self.group_of_block[self.block]
        return [np.flatnonzero(group == g) for g in range(int(group.max()) + 1)]

    @cached_property
    def _of_rows(self) -> tuple[Floats, Floats]:
        """Means and precisions of B before the data, (q, 2)."""
        centre, n = np.zeros((len(self.design), 2)), len(self.covariate)
        centre[0] = self.mean
        of_blocks = [BLOCK_SD] * (self.n_blocks if self.n_blocks > 1 else 0)
        sd = np.array([self.mean_sd, *of_blocks, *[COVARIATES_SD] * n])
        sd[len(sd) - n :] /= math.sqrt(max(n, 1))
        return centre, 1.0 / sd**2

    @property
    def words_mean(self) -> int:
        """See :class:`Hierarchy`."""
        return 2 * len(self.design)

    @property
    def words_covariance(self) -> int:
        """See :class:`Hierarchy`."""
        return 3 * len(self.groups)

    def slopes(self, x: Floats) -> Floats:
        """See :class:`Hierarchy`."""
        return x[..., 0, :] if self.signed else super().slopes(x)

    def holding(self, covariance: Floats) -> Structured:
        """See :class:`Hierarchy`."""
        return replace(self, held=covariance)

    def means(self, mean: Floats) -> Floats:
        """Mean of each item, (..., 2, items)."""
        return np.swapaxes(mean, -1, -2) @ self.design

    def normals(self, mean: Floats, covariance: Floats, power: float, n_items: int) -> Normals:
        """See :class:`Hierarchy`."""
        group = self.group_of_block[self.block]
        ends = np.full((len(self.groups), 2), (math.inf, 0.0))
        if not self.signed and self.held is not None:
            for g, held in enumerate(self.held):
                ends[g] = replace(Hierarchy(), held=held.tolist()).beyond(power)
        means = np.ascontiguousarray(self.means(mean).T)
        precision = np.asarray(power * np.linalg.inv(covariance), dtype=float)
        return Normals(means, precision, ends, group)

    def named(self, mean: Floats, covariance: Floats) -> dict[str, Floats]:
        """See :class:`Hierarchy`: of blocks and covariates too."""
        out, n = super().named(mean, covariance), len(self.covariate)
        if self.n_blocks > 1:
            of_blocks = mean[:, 1 : 1 + self.n_blocks]
            out["item_block_mean"] = mean[:, :1] + of_blocks
            out["item_block_covariance"] = covariance[:, self.group_of_block]
        if n:
            out["item_covariate_effect"] = mean[:, -n:] / self.covariate_sd[:, None]
        return out

    def described(self, data: dict[str, Any]) -> dict[str, Any]:
        """See :class:`Hierarchy`."""
        out = dict(data)
        for end in ("", "_sd", "_draw"):
            name = f"item_prior_mean{end}"
            out[name] = data[name][..., 0, :]
            name = f"item_prior_covariance{end}"
            if self.n_blocks > 1:
                del out[name]
            else:
                out[name] = data[name][..., 0, :, :]
        return out

    def coords(self) -> dict[str, Any]:
        """See :class:`Hierarchy`."""
        out = super().coords()
        if self.n_blocks > 1:
            out["block"] = np.array(self.block_names)
        if self.covariate_names:
            out["covariate"] = np.array(self.covariate_names)
        return out

    def before(self, u_mean: Floats, u_covariance: Floats) -> tuple[Floats, Floats]:
        """See :class:`Hierarchy`."""
        centre, own = self._of_rows
        mean = centre + ndtri(u_mean).reshape(-1, *own.shape) / np.sqrt(own)
        scale = np.tile(np.array(self.scale), (len(mean), len(self.groups), 1, 1))
        return mean, inverse_wishart(scale, np.full(len(self.groups), self.df), u_covariance)

    def draw_items(self, mean: Floats, covariance: Floats, z: Floats) -> Floats:
        """See :class:`Hierarchy`."""
        x, root = self.means(mean), np.linalg.cholesky(covariance)
        for g, at in enumerate(self.groups):
            x[..., at] += root[..., g, :, :] @ z[..., at]
        return x

    # --- conditionals -----------------------------------------------------------------------------

    def start(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`Hierarchy`."""
        usual = np.array(self.scale) / (self.df - 3.0)
        mean, _ = self.mean_given(x, np.tile(usual, (len(self.groups), 1, 1)))
        return mean, self.covariance_given(x, mean) if self.held is None else self.held

    def covariance_given(self, x: Floats, mean: Floats, own: Floats | None = None) -> Floats:
        """See :class:`Hierarchy`."""
        scale, n = np.array(self.scale) + self._scatter(x, mean), self._sizes
        if own is not None:
            scale += np.array([own[at].sum(axis=0) for at in self.groups])
        return scale / (self.df + n[:, None, None] - 3.0)

    def mean_given(self, x: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """Mean (..., q, 2) and precision (..., 2 q, 2 q) of B given items at x."""
        centre, own = self._of_rows
        size, inner = own.size, np.linalg.inv(covariance)
        precision: Any = np.diag(own.ravel())
        pull: Any = own * centre
        for g, at in enumerate(self.groups):
            z = self.design[:, at]
            p = inner[..., g, :, :]
            both = np.einsum("rs,...kl->...rksl", z @ z.T, p)
            precision = precision + both.reshape(*p.shape[:-2], size, size)
            pull = pull + np.swapaxes(p @ (x[..., at] @ z.T), -1, -2)
        flat = np.linalg.solve(precision, pull.reshape(*pull.shape[:-2], size, 1))
        return flat.reshape(pull.shape), precision

    def draw_mean(self, x: Floats, covariance: Floats, power: float, u: Floats) -> Floats:
        """See :class:`Hierarchy`; u (..., 2 q)."""
        centre, precision = self.mean_given(x, covariance)
        root = np.swapaxes(np.linalg.cholesky(power * precision), -1, -2)
        return centre + np.linalg.solve(root, ndtri(u)[..., None]).reshape(centre.shape)

    def draw_covariance(self, x: Floats, mean: Floats, u: Floats) -> Floats:
        """See :class:`Hierarchy`; u (..., 3 groups)."""
        scale = np.array(self.scale) + self._scatter(x, mean)
        return inverse_wishart(scale, np.asarray(self.df + self._sizes, dtype=float), u)

    def log_weights(self, x: Floats, mean: Floats) -> Floats:
        """See :class:`Hierarchy`: a sum over covariances."""
        scatter = self._scatter(x, mean)
        _, log_det = np.linalg.slogdet(np.array(self.scale) + scatter)
        held = np.einsum("gij,...gji->...g", np.linalg.inv(self.held), scatter)
        return (0.5 * held - 0.5 * (self.df + self._sizes) * log_det).sum(axis=-1)

    def log_density(self, x: Floats, volume: float = 0.0) -> tuple[float, Floats]:
        """See :class:`Hierarchy`."""
        (prior, own), inner = self._of_rows, np.linalg.inv(self.held)
        centre, precision = self.mean_given(x, self.held)
        deviation, slope = x - self.means(centre), np.empty_like(x)
        value = -0.5 * float((own * (centre - prior) ** 2).sum())
        for g, at in enumerate(self.groups):
            slope[:, at] = -inner[g] @ deviation[:, at]
            value -= 0.5 * at.size * float(np.linalg.slogdet(self.held[g])[1])
        value += 0.5 * float((deviation * slope).sum() + np.log(own).sum())
        value -= 0.5 * float(np.linalg.slogdet(precision)[1])
        return value - (x.shape[1] * math.log(2.0 * math.pi) + volume), slope

    def log_density_of_slopes(self, a: Floats, d: Floats) -> tuple[float, Floats]:
        """See :class:`Hierarchy`."""
        return (
            self.log_density(np.stack([a, d]))
            if self.signed
            else super().log_density_of_slopes(a, d)
        )

    @cached_property
    def _sizes(self) -> Ints:
        return np.array([at.size for at in self.groups])

    def _scatter(self, x: Floats, mean: Floats) -> Floats:
        """Sums over the items of each covariance of outer products, (..., groups, 2, 2)."""
        away = x - self.means(mean)
        own = [away[..., at] @ np.swapaxes(away[..., at], -1, -2) for at in self.groups]
        return np.stack(own, axis=-3)

    # --- moves along what the likelihood does not see ---------------------------------------------

    def _along(self, a: Floats) -> Floats:
        """By how much B's intercepts move with a shift of abilities by 1, (..., q).

        Any numbers that slopes alone decide would do.  The nearer ``a``, the longer the moves.
        """
        out = np.zeros((*a.shape[:-1], len(self.design)))
        out[..., 0] = a.mean(axis=-1)
        if self.n_blocks > 1:
            for b in range(self.n_blocks):
                out[..., 1 + b] = a[..., self.block == b].mean(axis=-1) - out[..., 0]
        return out

    def _shifted(
        self, x: Floats, mean: Floats, covariance: Floats, power: float,
        abilities: tuple[float, float, float], z: float,
    ) -> tuple[Floats, Floats, Floats, float]:  # fmt: skip
        """See :class:`Hierarchy` and :class:`SignedHierarchy`."""
        (prior, own), (n, s1, s2) = self._of_rows, abilities
        if self.signed and self.held is None:
            pull = power * (prior - mean)[:, 1]
            return sheared(
                x, mean, covariance, power * own[:, 1], own[:, 1] * pull, self.scale[0], abilities,
                z,
            )  # fmt: skip
        x, mean = x.copy(), mean.copy()
        inner, a = power * np.linalg.inv(covariance), self.slopes(x)
        move, away = self._along(a), x - self.means(mean)
        along = a - move @ self.design
        weight = power * own[:, 1] * move
        precision, slope = n + float(weight @ move), s1 - float(weight @ (mean - prior)[:, 1])
        for g, at in enumerate(self.groups):
            precision += float(inner[g, 1, 1] * (along[at] @ along[at]))
            slope -= float((inner[g, 1] @ away[:, at]) @ along[at])
        shift = slope / precision + z / math.sqrt(precision)
        x[1] += a * shift
        mean[:, 1] += move * shift
        return x, mean, covariance, s2 + n * shift * shift - 2.0 * shift * s1

    def _on_orbit(
        self, x: Floats, mean: Floats, covariance: Floats, power: float, n: float, s2: float
    ) -> Orbit:
        """See :class:`Hierarchy` and :class:`SignedHierarchy`: sums over rows and covariances."""
        (prior, own), inner = self._of_rows, np.linalg.inv(covariance)
        weight = power * own[:, 0]
        if not self.signed:
            pull = weight[0] * (mean[0, 0] - prior[0, 0])
            return along_logarithms(n, s2, float(pull), float(weight[0]))
        square = float(weight @ mean[:, 0] ** 2)
        towards = float(weight @ (mean[:, 0] * prior[:, 0]))
        q, groups = len(mean), len(self.groups)
        if self.held is None:
            (scale, both), _ = self.scale
            k = n - q + groups * self.df
            narrow, cross = (
                s2 + scale * float(inner[:, 0, 0].sum()),
                both * float(inner[:, 0, 1].sum()),
            )
        else:
            k, narrow, cross = n - x.shape[1] - q, s2, 0.0
            away = x - self.means(mean)
            for g, at in enumerate(self.groups):
                square += power * float(inner[g, 0, 0] * (away[0, at] @ away[0, at]))
                towards -= power * float(inner[g, 0, 1] * (away[0, at] @ away[1, at]))
        return along_slopes(k, narrow, cross, square, towards)

    def _stretched(
        self, x: Floats, mean: Floats, covariance: Floats, v: float
    ) -> tuple[Floats, Floats, Floats]:
        if not self.signed:
            x[0] += v
            mean[0, 0] += v
            return x, mean, covariance
        e = math.exp(v)
        x[0] *= e
        mean[:, 0] *= e
        if self.held is None:
            covariance = covariance * np.array([[e * e, e], [e, 1.0]])
        return x, mean, covariance

    def pulls(self, drawn: dict[str, Floats], a: Floats) -> tuple[float, float]:
        """See :class:`Hierarchy`."""
        (prior, own), mean = self._of_rows, drawn["item_prior_mean_draw"]
        pull = own * (prior - mean)
        if not self.signed:
            place = (self._along(a) * pull[:, :, 1]).sum(axis=1)
            return float(pull[:, 0, 0].mean()), float(place.mean())
        (scale, both), _ = self.scale
        inner = np.linalg.inv(drawn["item_prior_covariance_draw"])
        place = (mean[:, :, 0] * pull[:, :, 1]).sum(axis=1)
        place = place + (scale * inner[..., 0, 1] + both * inner[..., 1, 1]).sum(axis=-1)
        stretched = mean.shape[1] - len(self.groups) * self.df
        stretched = stretched + (scale * inner[..., 0, 0] + both * inner[..., 0, 1]).sum(axis=-1)
        stretched = stretched + (mean[:, :, 0] * pull[:, :, 0]).sum(axis=1)
        return float(stretched.mean()), float(place.mean())
