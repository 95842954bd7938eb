"""Responses under the names that a concurrent calibration gave their items."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from irt_dask.engine import as_responses
from irt_dask.errors import InputError, listed
from irt_dask.store import Responses
from irt_dask.store.freed_items import Naming, view


def with_freed_items(responses: Any, fit: xr.Dataset) -> Responses:
    """Return responses under the names that a concurrent calibration gave their items.

    Of persons of a group in which an item was freed the responses to it are those to "item@group"
    (of a set of groups "item@set"),
    so that :func:`score` and others take the parameters that were found for that group.  They do
    so by themselves wherever they are given such items; this refuses groups that were not
    calibrated, of which nobody knows what is freed in them.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes, with groups of persons
        Of groups and items that were calibrated; other persons than those then, if need be.
    fit : Dataset
        Result of :func:`fit_concurrent`.

    Returns
    -------
    Responses : a view, nothing is copied

    Raises
    ------
    InputError
        If the fit is none of :func:`fit_concurrent`, or an item was not calibrated; when blocks are
        read, if a group was not.

    Notes
    -----
    A pass over nothing; each block is renamed when it is read.

    Examples
    --------
    >>> import numpy as np
    >>> import irt_dask as irt
    >>> answers = irt.simulate(3000, 10, seed=5).to_xarray()["response"].values
    >>> answers[2000::2, 0] = 0  # makes the first item harder for group c
    >>> responses = irt.from_array(answers, persons={"group": np.repeat(["a", "b", "c"], 1000)})
    >>> fit = irt.fit_concurrent(responses)
    >>> scores = irt.score(irt.with_freed_items(responses, fit), fit, prior="groups")
    >>> scores.sizes["persons"]
    3000
    """
    given = as_responses(responses, "with_freed_items", graded=True)
    if not {"origin_freed", "origin_id", "group_label"} <= {*fit.variables}:
        raise InputError("with_freed_items takes a result of fit_concurrent: this is none")
    if not given.has_groups:
        raise InputError(
            "with_freed_items needs groups of persons: give persons= with a column group to "
            "from_array or ingest"
        )
    place = {str(name): j for j, name in enumerate(fit["origin_id"].values)}
    if unknown := [name for name in given.item_id if name not in place]:
        raise InputError(
            f"{len(unknown)} item(s) were not calibrated: {listed(unknown, 10)}; select the others"
        )
    labels = tuple(str(label) for label in fit["group_label"].values)
    at = [place[name] for name in given.item_id]
    freed = np.asarray(fit["origin_freed"].values, dtype=bool)[:, at]
    sets = fit["group_set"].values.astype(str)[:, None] if "group_set" in fit else None
    return view(given, Naming.of(given.item_id, labels, freed, sets))
