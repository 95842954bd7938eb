"""What a caller chooses, and complaints about it that need no responses."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import xarray as xr

from irt_dask.errors import DataWarning, InputError
from irt_dask.items.parameters import calibration_groups, has_loadings

METHODS = ("eap", "map", "ml", "wle")


@dataclass(frozen=True)
class Options:
    """What a caller chooses."""

    method: str
    n_plausible: int
    n_item_draws: int | None
    seed: int
    prior: Any = "normal"
    unknown_items: str = "raise"
    #: A link, or links by domain, whose errors are drawn into plausible values.
    linking: Any = None


def check_options(options: Options, items: xr.Dataset) -> None:
    """Refuse what does not exist, and what would have no effect."""
    method, draws = options.method, options.n_item_draws
    if method not in METHODS:
        raise InputError(f"method={method!r} is not available; use {', '.join(METHODS)}")
    if options.unknown_items not in ("raise", "ignore"):
        raise InputError(f"unknown_items={options.unknown_items!r} must be 'raise' or 'ignore'")
    plain = isinstance(options.prior, str) and options.prior == "normal"
    if has_loadings(items) and not (method == "eap" and plain):
        raise InputError(
            f"method={method!r}, prior={options.prior!r}: two abilities are scored by "
            f"method='eap' with prior='normal'"
        )
    if has_loadings(items) and options.linking is not None:
        raise InputError("linking= is of one ability, and these items measure two: leave it out")
    if method != "eap" and draws:
        raise InputError(
            f"n_item_draws={draws}: method={method!r} takes the items as known; use method='eap' "
            f"to average over item draws"
        )
    if method in ("ml", "wle") and not plain and not options.n_plausible:
        raise InputError(
            f"prior={options.prior!r} has no effect on method={method!r}: use 'eap' or 'map', or "
            f"ask for plausible values"
        )


def warn_of_groups(items: xr.Dataset, options: Options) -> None:
    """Warn if the items come with a distribution of ability that the prior leaves out."""
    plain = isinstance(options.prior, str) and options.prior == "normal"
    if not plain or (options.method in ("ml", "wle") and not options.n_plausible):
        return
    if items.attrs.get("latent") == "histogram":
        warnings.warn(
            "the items were calibrated with a histogram of ability, and prior='normal' takes "
            "everybody from N(0, 1): posteriors know its shape no more, and the log-likelihood is "
            "not that of the fit; with skewed abilities prefer method='ml' or 'wle'",
            DataWarning,
            stacklevel=4,
        )
    n = calibration_groups(items)
    if n == 0:
        return
    text = (
        f"the items were calibrated with {_calibrated_with(items, n)}, and prior='normal' takes "
        f"everybody from N(0, 1): abilities are drawn towards 0"
    )
    if n == 1:
        text += "; use prior='population', whose mean and SD are estimated"
    else:
        text += (
            ", and differences between groups come out too small; use prior='groups' or "
            "covariates, which are estimated"
        )
    warnings.warn(text, DataWarning, stacklevel=4)


def warn_of_standard(items: xr.Dataset) -> None:
    """Warn if a table of everybody from N(0, 1), which nobody asked for, is not of the persons."""
    n, of_histogram = calibration_groups(items), items.attrs.get("latent") == "histogram"
    if n == 0 and not of_histogram:
        return
    persons = _calibrated_with(items, n) if n else "a histogram of ability"
    warnings.warn(
        f"the items were calibrated with {persons}, and without ability= the table takes everybody "
        f"from N(0, 1): abilities are drawn towards 0, and score_probability is of such persons; "
        f"say ability=(mean, sd) of those whom the table is for, or use method='tcc'",
        DataWarning,
        stacklevel=3,
    )


def _calibrated_with(items: xr.Dataset, n: int) -> str:
    """The persons whom items were calibrated with, in n groups."""
    said = ""
    if "group_mean" in items:
        of_each = zip(items["group_mean"].values[:5], items["group_sd"].values[:5], strict=True)
        listed = ", ".join(f"{mean:.2f} (SD {sd:.2f})" for mean, sd in of_each)
        said = f" of mean ability {listed}{', ...' if n > 5 else ''}"
    if n == 1:
        return f"persons{said or ', on a scale (of mean difficulty 0, say) that is not theirs'}"
    return f"{n} groups of persons{said}"
