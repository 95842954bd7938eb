"""The distribution of ability of a fit with ``latent="histogram"``, for what integrates over it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import DataWarning
from irt_dask.kernels.posterior import person_weights, tables
from irt_dask.population.population import Persons, Population

#: Least log mass of a node, as in the fit: nobody there, and no infinity in sums of logarithms.
_LEAST = -700.0


def _none() -> Floats:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class Histogram(Population):
    """Abilities on the nodes ``at``; ``coefficients`` and ``sd`` are their mean and SD."""

    at: Floats = field(default_factory=_none)
    log_mass: Floats = field(default_factory=_none)

    @classmethod
    def of(cls, at: Floats, share: Floats) -> Histogram:
        """With these shares of the persons."""
        share = share / share.sum()
        mean = float(share @ at)
        sd = float(np.sqrt(share @ (at - mean) ** 2))
        with np.errstate(divide="ignore"):
            log_mass = np.maximum(np.log(share), _LEAST)
        return cls(np.array([[mean]]), np.array([sd]), at=at, log_mass=log_mass)

    @property
    def standard(self) -> bool:
        """It is no N(0, 1)."""
        return False

    @property
    def key(self) -> tuple[bytes, ...]:
        """What tells it from others."""
        return self.at.tobytes(), self.log_mass.tobytes()

    def nodes(self, items: ItemSet, margin: float = 0.0, *, scored: bool = False) -> Floats:
        """Its own, which the fit summed over, and padding on which nobody is."""
        return tables.padded(self.at)

    def prior(self, nodes: Floats, persons: Persons) -> tuple[person_weights.Prior, Floats | float]:
        """Log masses at its nodes."""
        log_mass = np.full(nodes.size, -np.inf)
        log_mass[: self.at.size] = self.log_mass
        return person_weights.prior(log_mass), 0.0


def is_one(items: xr.Dataset) -> bool:
    """Whether a fit has a histogram of all persons together."""
    of_one = items.sizes.get("groups") == 1 and "group_ability_share" in items
    return of_one and items.attrs.get("latent") == "histogram"


def of_fit(items: xr.Dataset, group: str | None = None) -> Histogram | None:
    """The histogram of a fit, or that of a group; None if abilities were taken for normal.

    A warning says if they were not, and the histogram is not there, of persons whose group the fit
    does not have, say.  Banks have none, but say that there was one.
    """
    if items.attrs.get("latent") != "histogram":
        return None
    if "group_ability_share" in items:
        share, labels = items["group_ability_share"], items["group_label"].values.astype(str)
        at = np.asarray(items["ability"].values, dtype=float)
        if group is None and len(labels) == 1:
            return Histogram.of(at, share.values[0])
        if group is not None and len(labels) > 1 and group in labels:
            return Histogram.of(at, share.values[labels.tolist().index(group)])
    of = "" if group is None else f" of group {group!r}"
    warnings.warn(
        f"the items were calibrated with a histogram of ability, and there is none{of} here: "
        f"persons are taken from a normal distribution, and where abilities are skewed most items "
        f"are told to fit worse than they do; give the whole fit, with groups as they were then",
        DataWarning,
        stacklevel=5,
    )
    return None
