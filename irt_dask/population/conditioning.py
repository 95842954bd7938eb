"""The conditioning model: abilities of several domains given covariates, by group.

A person of group g with terms u (the intercept first, on [-1, 1]) has abilities
N(u' B_g, S_g).  B_g = T_g c_g: the columns of T_g are principal components of the group's terms,
with mean squares 1 and products 0 over its persons, those kept; c are their coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.engine.cache import keep
from irt_dask.errors import EstimationError
from irt_dask.kernels.base import design_products
from irt_dask.kernels.several import box_posterior, box_shape, box_values
from irt_dask.kernels.several.box_third_moments import third_moments
from irt_dask.population.design import Design
from irt_dask.population.domains import Domain, nodes_between
from irt_dask.store import Block
from irt_dask.store.responses import sha256

#: Abilities whose posterior is summed on boxes of nodes; more of them take turns.
MOST_EXACT = box_shape.DIMS
#: Residual standard deviations beyond a block's prior means that nodes reach, at first.
_REACH = 7.0
#: Sweeps over more than MOST_EXACT abilities: until a draw, and those that moments are taken from.
WARM_UP, SWEEPS = 20, 100
#: Times that the nodes' reach is doubled.
_MOST_DOUBLINGS = 4


@dataclass(frozen=True)
class Conditioning:
    """Means and covariances of abilities: terms' coefficients, residual covariances by group."""

    domains: tuple[Domain, ...]
    design: Design
    labels: tuple[str, ...]  # of groups; none: one group
    coefficients: Floats  # (groups, terms, domains), of the design
    covariance: Floats  # (groups, domains, domains)

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.coefficients)

    def digest(self) -> str:
        """Checksum of all that a person's posterior rests on."""
        said = [np.frombuffer(d.items.digest.encode(), dtype=np.uint8) for d in self.domains]
        columns = [d.columns for d in self.domains]
        return sha256(
            *said, *columns, self.coefficients, self.covariance,
            np.array([d.sharpest for d in self.domains]),
            np.frombuffer(f"{self.design.digest()} {self.labels}".encode(), dtype=np.uint8),
        )  # fmt: skip

    def group(self, block: Block) -> Ints:
        """Number of each person's group."""
        return np.zeros(block.n_persons, dtype=np.int64) if block.group is None else block.group

    def means(self, block: Block) -> Floats:
        """Prior mean of each ability of a block's persons, (persons, domains)."""
        group, out = self.group(block), np.empty((block.n_persons, len(self.domains)))
        assert block.design is not None
        for g in np.unique(group):
            its = np.flatnonzero(group == g)
            out[its] = design_products.linear_predictor(block.design[its], self.coefficients[g])
        return out

    def grid(self, mean: Floats, group: Ints, reach: float) -> list[Floats]:
        """Nodes of each ability for persons with these prior means."""
        precision = np.linalg.inv(self.covariance)
        out = []
        for d, domain in enumerate(self.domains):
            sd = np.sqrt(self.covariance[:, d, d])[group]
            h = domain.spacing(float(precision[:, d, d].min()))
            low, high = float((mean[:, d] - reach * sd).min()), (mean[:, d] + reach * sd).max()
            out.append(nodes_between(low, float(high), h))
        return out

    def _within_grid(self, block: Block, mean: Floats, summed: Any) -> Any:
        """What ``summed(log likelihoods, box)`` says with nodes that reach far enough."""
        group, reach = self.group(block), _REACH
        for _ in range(_MOST_DOUBLINGS + 1):
            nodes = self.grid(mean, group, reach)
            log_likelihood = [
                d.log_likelihood(block, x) for d, x in zip(self.domains, nodes, strict=True)
            ]
            *found, how = summed(log_likelihood, self._box(nodes))
            if (how == box_posterior.TOO_STEEP).any():
                raise EstimationError(
                    "abilities of some domains are so highly correlated that they cannot be told "
                    "apart: join these domains"
                )
            if (how == box_posterior.DONE).all():
                return found
            reach *= 2.0
        raise EstimationError(
            f"abilities of {(how == box_posterior.BEYOND).sum()} person(s) may lie more than "
            f"{reach / 2:.0f} residual standard deviations from what their covariates say: items "
            f"or covariates do not fit these responses"
        )

    def _box(self, nodes: list[Floats]) -> box_shape.Box:
        key = ("box", sha256(self.covariance, *nodes))
        return keep(key, lambda: _Kept(box_shape.box(tuple(nodes), self.covariance))).box

    def moments(self, block: Block) -> tuple[Floats, Floats, Floats, Floats]:
        """Prior and posterior means, posterior covariances, log marginals of a block's persons."""
        group, mean = self.group(block), self.means(block)
        posterior, covariance, log_marginal = self._within_grid(
            block, mean, lambda f, box: box_posterior.moments(f, box, group, mean)
        )
        return mean, posterior, covariance, log_marginal

    def moments_to_third(self, block: Block) -> tuple[Floats, Floats, Floats, Floats]:
        """Prior and posterior means, posterior covariances and third central moments."""
        group, mean = self.group(block), self.means(block)

        def summed(f: list[Floats], box: box_shape.Box) -> Any:
            first, second, _, how = box_posterior.moments(f, box, group, mean)
            return first, second, third_moments(f, box, group, mean), how

        posterior, covariance, third = self._within_grid(block, mean, summed)
        return mean, posterior, covariance, third

    def values(self, block: Block, u: Floats) -> Floats:
        """A draw of all abilities of each person, (persons, domains); u are uniforms like it.

        Of more than MOST_EXACT abilities u has as many for each of WARM_UP sweeps.
        """
        if len(self.domains) > MOST_EXACT:
            return self.in_turns(block, u, WARM_UP)[0]
        group, mean = self.group(block), self.means(block)
        return self._within_grid(
            block, mean, lambda f, box: box_values.draw(f, box, group, mean, u)
        )[0]

    def in_turns(self, block: Block, u: Floats, kept: int) -> tuple[Floats, Floats, Floats]:
        """See :func:`~irt_dask.kernels.several.box_values.turns`."""
        group, mean = self.group(block), self.means(block)
        nodes = self.grid(mean, group, 2.0 * _REACH)
        log_likelihood = [
            d.log_likelihood(block, x) for d, x in zip(self.domains, nodes, strict=True)
        ]
        return box_values.turns(log_likelihood, nodes, self.covariance, group, mean, u, kept)


@dataclass(frozen=True)
class _Kept:
    box: box_shape.Box

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(x.nbytes for x in self.box.cross)
