"""Fits whose anchors have the standard errors and flags of the bank that they came from."""

from __future__ import annotations

import xarray as xr

from irt_dask.items.checks import OK

#: What a fit says of the covariance of its parameters.
_OF_COVARIANCES = ("parameter_item", "parameter_column", "item_parameter_covariance")


def with_errors_of_anchors(fit: xr.Dataset, bank: xr.Dataset | None) -> xr.Dataset:
    """The fit, its anchors with the standard errors and the flags that their bank has for them.

    A fit estimates nothing of them; a bank says how well each of its items is known, and which of
    them are not to be relied on.
    """
    if bank is None:
        return fit
    ids = [str(i) for i in fit["item_id"].values]
    place = {str(i): k for k, i in enumerate(bank["item_id"].values)}
    at = [j for j, i in enumerate(ids) if i in place]
    of = [place[ids[j]] for j in at]
    out = fit.copy()
    for name in map(str, fit.data_vars):
        known = [n for n in (name, f"{name[:-2]}sd") if n in bank]
        if name.startswith("item_") and name.endswith("_se") and known:
            values, given = fit[name].values.astype(float), bank[known[0]].values[of]
            if given.ndim > 1:  # the bank may know items of more steps, or of fewer
                n = min(values.shape[1], given.shape[1])
                values[at, :n] = given[:, :n]
            else:
                values[at] = given
            out[name] = (fit[name].dims, values)
    if "parameter_item" in fit and not {ids[j] for j in at} <= {*fit["parameter_item"].values}:
        # Of a bank of standard errors alone: what is not listed there would count as known.
        out = out.drop_vars([*_OF_COVARIANCES])
    if "item_flag" in bank:
        flags = fit["item_flag"].values.astype(object)
        flags[at] = [
            _together(*pair)
            for pair in zip(flags[at], bank["item_flag"].values[of].astype(str), strict=True)
        ]
        out["item_flag"] = (fit["item_flag"].dims, flags.astype(str))
    return out


def _together(one: str, two: str) -> str:
    """Flags of an item that has these and those."""
    return "|".join(sorted({*one.split("|"), *two.split("|")} - {OK})) or OK
