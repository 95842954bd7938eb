"""Conditional log-likelihoods as functions of parameters: of difficulties, and of categories.

Partial credit has constants ``d_jk`` of its own for each category above 0, the rating scale
``d_jk = k d_j + t_k`` with shifts t that items with as many categories share, t_0 = t_{K-1} = 0:
both are linear in the parameters, and so are the difficulties of steps, ``d_{j,k-1} - d_jk``.
Nothing changes if everybody's ability moves by c and every d_jk by -k c.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.shared.start_values import start_values
from irt_dask.items.mixture import Mixture
from irt_dask.kernels.pairs import category_functions, symmetric_functions
from irt_dask.kernels.responses.item_sets import Sets


@dataclass(frozen=True)
class Likelihood:
    """A concave function that is constant along ``flat``; persons are informative ones."""

    sets: Sets
    item_id: tuple[str, ...]
    #: What to do about items that the data say nearly nothing of, for messages.
    remedy = (
        "remove items that almost all or almost none solved, or use fit_spectral, which regularizes"
    )

    def start(self) -> Floats:
        """Parameters to start from."""
        raise NotImplementedError

    def value(self, x: Floats) -> float:
        """Conditional log-likelihood."""
        raise NotImplementedError

    def derivatives(self, x: Floats) -> tuple[float, Floats, Floats]:
        """Conditional log-likelihood, gradient, and information (minus the Hessian)."""
        raise NotImplementedError

    def size(self, x: Floats) -> float:
        """Sum of the absolute terms of the log-likelihood that are not symmetric functions."""
        raise NotImplementedError

    def difficulties(self, x: Floats) -> Floats:
        """Difficulties of all steps, linear in the parameters."""
        raise NotImplementedError

    @property
    def flat(self) -> Floats:
        """Direction in parameters that changes nothing."""
        raise NotImplementedError

    @property
    def mean(self) -> Floats:
        """Weights of the mean that is 0 in results; 1 along ``flat``."""
        raise NotImplementedError

    def step_names(self) -> list[str]:
        """Names of all steps."""
        return list(self.item_id)

    def centred(self, x: Floats) -> Floats:
        """The same model with mean difficulty 0."""
        return x - self.flat * (self.mean @ x)


class Difficulties(Likelihood):
    """The Rasch model: ``P(right) = sigma(theta - b)``."""

    @functools.cached_property
    def right(self) -> Ints:
        """Informative persons with each item right."""
        return np.bincount(self.sets.items, self.sets.right, minlength=len(self.item_id))

    @property
    def flat(self) -> Floats:
        """See :class:`Likelihood`."""
        return np.ones(len(self.item_id))

    @property
    def mean(self) -> Floats:
        """See :class:`Likelihood`."""
        return np.full(len(self.item_id), 1.0 / len(self.item_id))

    def centred(self, x: Floats) -> Floats:
        """See :class:`Likelihood`."""
        return x - x.mean()

    def start(self) -> Floats:
        """See :class:`Likelihood`: from the share of right answers of each item."""
        sets = self.sets
        persons = np.repeat(np.add.reduceat(sets.scores, sets.first[:-1]), np.diff(sets.indptr))
        seen = np.bincount(sets.items, persons, minlength=len(self.item_id))
        return self.centred(np.log((seen - self.right + 0.5) / (self.right + 0.5)))

    def value(self, x: Floats) -> float:
        """See :class:`Likelihood`."""
        return symmetric_functions.log_likelihood(self.sets, x)

    def derivatives(self, x: Floats) -> tuple[float, Floats, Floats]:
        """See :class:`Likelihood`."""
        return symmetric_functions.derivatives(self.sets, x)

    def size(self, x: Floats) -> float:
        """See :class:`Likelihood`."""
        return float(np.abs(x) @ self.right)

    def difficulties(self, x: Floats) -> Floats:
        """See :class:`Likelihood`."""
        return x


@dataclass(frozen=True)
class Categories(Likelihood):
    """Partial credit and rating scale items, with slope 1; items of two categories are Rasch."""

    models: Mixture
    #: Informative persons by item and category, (items, categories), 0 beyond an item's.
    counts: Ints
    remedy = "join categories that few persons have, or remove items"

    @functools.cached_property
    def first(self) -> Ints:
        """Place of each item's first step among all, and their number."""
        return np.concatenate([[0], np.cumsum(self.models.n_categories - 1)])

    @functools.cached_property
    def n(self) -> Ints:
        """Informative persons by category above 0, items after each other."""
        own = np.arange(1, self.counts.shape[1]) < self.models.n_categories[:, None]
        return self.counts[:, 1:][own]

    @functools.cached_property
    def column(self) -> Ints:
        """Place of each parameter of items among those to be found, else -1; (parameters, items).

        Slopes are 1, and shared parameters have one place.
        """
        free = self.models.has.copy()
        free[0] = False
        shared = free & (self.models.of_all >= 0)
        own, column = free & ~shared, np.full(free.shape, -1)
        column[own] = np.arange(own.sum())
        numbers = np.unique(self.models.of_all[shared], return_inverse=True)[1]
        column[shared] = own.sum() + numbers
        return column

    @functools.cached_property
    def constants(self) -> csr_array:
        """Matrix from parameters to the constants d of all steps."""
        found = []
        for part in self.models.parts:
            column = self.column[: len(part.model.parameters), part.at]
            of_one = part.model.step_intercepts(np.ones(column.shape))[1]
            step, parameter, item = np.nonzero((of_one != 0.0) & (column >= 0))
            found.append(
                (of_one[step, parameter, item], self.first[part.at[item]] + step,
                 column[parameter, item])
            )  # fmt: skip
        values, rows, columns = map(np.concatenate, zip(*found, strict=True))
        return csr_array((values, (rows, columns)), shape=(self.first[-1], self.n_parameters + 1))

    @functools.cached_property
    def to_difficulties(self) -> csr_array:
        """Matrix from parameters to the difficulties of all steps."""
        at = np.arange(self.first[-1])
        later = np.setdiff1d(at, self.first[:-1])
        ones = np.concatenate([-np.ones(at.size), np.ones(later.size)])
        places = (np.concatenate([at, later]), np.concatenate([at, later - 1]))
        return csr_array(csr_array((ones, places), shape=(at.size, at.size)) @ self.constants)

    @functools.cached_property
    def flat(self) -> Floats:
        """See :class:`Likelihood`: what abilities less by 1 make of parameters."""
        out = np.zeros(self.n_parameters + 1)
        for part in self.models.parts:
            moved = part.model.rescaling(1.0, 1.0)[:, 0]
            column = self.column[: moved.size, part.at]
            free = column >= 0
            out[column[free]] = np.broadcast_to(moved[:, None], column.shape)[free]
        return out

    @functools.cached_property
    def mean(self) -> Floats:
        """See :class:`Likelihood`: minus the mean difficulty of the steps."""
        return -np.asarray(self.to_difficulties.sum(axis=0)).ravel() / self.first[-1]

    @property
    def n_parameters(self) -> int:
        """Parameters that can be told: one less than there are."""
        return int(self.column.max())

    def table(self, x: Floats) -> Floats:
        """Parameters of items as their models have them, (parameters, items)."""
        out = np.where(self.column >= 0, x[self.column], 0.0)
        out[0] = 1.0
        return out

    def step_names(self) -> list[str]:
        """See :class:`Likelihood`."""
        steps = np.diff(self.first)
        return [
            f"{i} (step {k + 1})"
            for i, n in zip(self.item_id, steps, strict=True)
            for k in range(n)
        ]

    def start(self) -> Floats:
        """See :class:`Likelihood`: from the counts of categories."""
        own = start_values(self.item_id, self.models, self.counts, None, slope=1.0)
        x, free = np.zeros(self.n_parameters + 1), self.column >= 0
        x[self.column[free]] = own[free]
        return self.centred(x)

    def value(self, x: Floats) -> float:
        """See :class:`Likelihood`."""
        d = self.constants @ x
        return category_functions.log_likelihood(self.sets, self.n, self.first, d)

    def derivatives(self, x: Floats) -> tuple[float, Floats, Floats]:
        """See :class:`Likelihood`."""
        given: Any = (self.sets, self.n, self.first, self.constants @ x)
        value, gradient, information = category_functions.derivatives(*given)
        by_x = self.constants.T
        return value, by_x @ gradient, by_x @ (by_x @ information).T

    def size(self, x: Floats) -> float:
        """See :class:`Likelihood`."""
        return float(np.abs(self.constants @ x) @ self.n)

    def difficulties(self, x: Floats) -> Floats:
        """See :class:`Likelihood`."""
        return np.asarray(self.to_difficulties @ x)
