"""Item parameters as kernels take them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Items(NamedTuple):
    """Slopes, intercepts, guessing parameters and weights of all items."""

    a: Floats
    d: Floats
    c: Floats
    weight: Floats

    @classmethod
    def of(cls, a: Floats, d: Floats, c: Floats | None = None) -> Items:
        """Items of weight 1; without ``c`` nobody guesses."""
        return cls(a, d, np.zeros_like(a) if c is None else c, np.ones_like(a))

    @property
    def guessing(self) -> bool:
        """Whether some item can be guessed."""
        return bool((self.c > 0.0).any())
