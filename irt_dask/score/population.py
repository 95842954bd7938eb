"""The distribution that persons are taken to come from, and what it says of those of a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from irt_dask.kernels.responses import layouts
from irt_dask.kernels.responses.layouts import Layout

Floats = NDArray[np.float64]

#: Everybody in a block.
_ALL = slice(None)


class Part(NamedTuple):
    """Persons of a block whose abilities have one standard deviation."""

    #: Which of the populations it is.
    number: int
    rows: Any
    center: float
    sd: float
    #: Prior mean of each person, less the center, in SDs; None: 0.
    shift: Floats | None
    #: Row of each person in the regression, (persons, covariates + 1).
    design: Floats | None

    def of(self, data: Layout) -> Layout:
        """Responses of these persons."""
        return data if isinstance(self.rows, slice) else layouts.take(data, self.rows)


@dataclass(frozen=True)
class Covariates:
    """Covariates of the regression, by column, and how they are brought to [-1, 1]."""

    names: tuple[str, ...]
    columns: tuple[int, ...]
    middle: Floats
    half: Floats

    def of(self, ref: Any) -> Floats:
        """Covariates of a block's persons as they are."""
        return ref.covariates()[:, list(self.columns)]

    def design(self, ref: Any) -> Floats:
        """Ones and the covariates on [-1, 1]."""
        x = (self.of(ref) - self.middle) / self.half
        return np.concatenate([np.ones((len(x), 1)), x], axis=1)

    def original(self) -> Floats:
        """Matrix from coefficients of the design to those of the covariates as they are."""
        to = np.diag(np.concatenate([[1.0], 1.0 / self.half]))
        to[0, 1:] = -self.middle / self.half
        return to


@dataclass(frozen=True)
class Population:
    """N(0, 1); a normal for each group; or normal about a linear predictor.

    ``coefficients`` are means of groups, or those of the design; the first index of all arrays is
    that of the group.
    """

    coefficients: Floats
    sd: Floats
    labels: tuple[str, ...] = ()
    covariates: Covariates | None = None

    @property
    def plain(self) -> bool:
        """Whether it is N(0, 1)."""
        return not self.labels and self.covariates is None

    @property
    def reach(self) -> float:
        """How many SDs a person's prior mean may lie from the center."""
        if self.covariates is None:
            return 0.0
        return float(np.abs(self.coefficients[0, 1:]).sum() / self.sd[0])

    @property
    def furthest(self) -> float:
        """Largest absolute prior mean."""
        return float(np.abs(self.coefficients).sum(axis=1).max())

    def parts(self, ref: Any) -> list[Part]:
        """Parts of a block; its reference is needed unless the population is plain."""
        if self.plain:
            return [Part(0, _ALL, 0.0, 1.0, None, None)]
        if self.covariates is None:
            code = pd.Index(self.labels).get_indexer(pd.Index(ref.groups()))
            present = np.unique(code)
            return [
                Part(k, np.flatnonzero(code == k), self.coefficients[k, 0], self.sd[k], None, None)
                for k in present
            ]
        design = self.covariates.design(ref)
        shift = np.zeros(len(design))
        for k in range(1, design.shape[1]):  # one by one: the same bits in blocks of any size
            shift += design[:, k] * (self.coefficients[0, k] / self.sd[0])
        return [Part(0, _ALL, self.coefficients[0, 0], self.sd[0], shift, design)]


STANDARD = Population(np.zeros((1, 1)), np.ones(1))
