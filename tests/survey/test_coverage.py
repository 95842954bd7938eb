"""Intervals of tables hold the truth as often as they say, and would not without imputation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from items import quiet
from scipy.stats import t as student

import irt_dask as irt
from irt_dask.errors import DataWarning

ZONES, A_UNIT, SETS, VALUES = 20, 12, 300, 10
#: Of the population, and of what is known of a person's ability.
SD, ERROR = 1.2, 1.2


def sample(rng):
    """Persons in pairs of units, with plausible values drawn with the population's parameters."""
    n = ZONES * 2 * A_UNIT
    known = rng.normal(0, SD, n) + rng.normal(0, ERROR, n)
    values = {}
    for m in range(VALUES):
        whole = known.var(ddof=1) * (n - 1) / rng.chisquare(n - 1)
        mean, between = rng.normal(known.mean(), (whole / n) ** 0.5), whole - ERROR**2
        share = between / whole
        values[f"PV{m}"] = (
            mean + share * (known - mean) + rng.normal(0, (share * ERROR**2) ** 0.5, n)
        )
    zone = np.repeat(np.arange(1, ZONES + 1), 2 * A_UNIT)
    return pd.DataFrame(values | {"zone": zone, "unit": np.tile(np.repeat([0, 1], A_UNIT), ZONES)})


# 300 data sets, bounds 3.5 standard errors about .95: false-alarm rate 1e-3.
@pytest.mark.slow
def test_intervals_cover():
    rng = np.random.default_rng(11)
    design = irt.Replicates.from_zones("jk2", "zone", "unit", n_zones=ZONES)
    truth = np.array([0.0, SD])
    held, without = np.zeros(2), np.zeros(2)
    for _ in range(SETS):
        # some have few degrees of freedom, which is said, and hold the truth as often
        table = quiet(irt.tabulate, sample(rng), "PV*", replicates=design, kinds=(DataWarning,))
        held += (table["lower"] <= truth) & (truth <= table["upper"])
        half = student.ppf(0.975, ZONES) * table["se_sampling"]
        without += (table["estimate"] - truth).abs() <= half
    low, high = 0.95 + np.array([-3.5, 3.5]) * (0.95 * 0.05 / SETS) ** 0.5
    assert np.all((held / SETS >= low) & (held / SETS <= high))
    assert np.all(without / SETS < low)  # sampling alone: the test can fail
