"""What the questions of a bank say of questions that are like them: a prior."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.marginal.anchors import bank_errors
from irt_dask.curves.priors import ItemPrior
from irt_dask.errors import InputError
from irt_dask.items import checks
from irt_dask.items.parameters import bank_item_ids
from irt_dask.workflow.board_state import known_models
from irt_dask.workflow.board_waves import History

#: Known items from which on their slopes say what slopes there are.
_LEAST_KNOWN = 8
#: Steps of EM for that.
_EM_STEPS = 200
#: How much wider intercepts of new items may spread than those of known ones.
_WIDER = 2.0


def bank_prior(bank: xr.Dataset, history: History, *, signed: bool) -> ItemPrior:
    """Normal prior of slopes and intercepts: how those of a bank are spread, without their errors.

    Estimates with a prior have been drawn together already, and are less spread than the items;
    those of likelihood alone more.
    """
    ids = bank_item_ids(bank, "bank")
    good = np.array([not f for f in checks.unsound(bank, ids)])
    if good.sum() < _LEAST_KNOWN:
        raise InputError(
            f"prior='bank': {int(good.sum())} sound items of the bank are too few to say what "
            f"items there are; give prior='empirical', an ItemPrior, or None"
        )
    models, x = known_models(bank, ids)
    errors, drawn = bank_errors(bank, ids, models)[good], history.with_prior[good]
    a, sd_a = _spread(x[0, good], errors[:, 0, 0], drawn)
    d, sd_d = _spread(x[1, good], errors[:, 1, 1], drawn)
    if signed:
        # As wide as slopes are large, about 0: a turned key has no chance with a prior about a.
        return ItemPrior(loading=(0.0, math.hypot(a, sd_a)), intercept=(d, _WIDER * sd_d))
    return ItemPrior(discrimination=(a, sd_a), intercept=(d, _WIDER * sd_d))


def _spread(x: Floats, variance: Floats, drawn: Bools) -> tuple[float, float]:
    """Mean and SD of the true values, by EM.

    Of values that a prior has ``drawn`` together, these and their variances are the posterior
    already; of others it follows.
    """
    mean, between = float(x.mean()), float(x.var()) + 1e-6
    for _ in range(_EM_STEPS):
        weight = np.where(drawn, 1.0, between / (between + variance))
        expected = mean + weight * (x - mean)
        left = np.where(drawn, variance, weight * variance)
        mean = float(expected.mean())
        between = float(((expected - mean) ** 2 + left).mean()) + 1e-6
    return mean, float(np.sqrt(between))
