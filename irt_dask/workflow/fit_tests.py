"""Tests of a fit against the responses: those of a run, and of a page that asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import xarray as xr

from irt_dask.banks.saved import netcdf
from irt_dask.errors import InputError, listed
from irt_dask.evaluate.dif import dif
from irt_dask.evaluate.groups import labels_of
from irt_dask.evaluate.item_curves import item_curves
from irt_dask.evaluate.item_fit import item_fit
from irt_dask.evaluate.person_fit import person_fit
from irt_dask.items.described import described
from irt_dask.items.mixture import Mixture
from irt_dask.items.parameters import bank_item_ids, item_set
from irt_dask.store import Responses
from irt_dask.store.documents import by_item, to_csv
from irt_dask.workflow.sections import FitTestsConfig

#: Persons whose fit is summarised without a folder to write it to.
MOST_PERSONS = 1_000_000


@dataclass(frozen=True)
class FitTests:
    """Results by the names of their files, and sentences about what was not tested."""

    results: dict[str, xr.Dataset]
    notes: tuple[str, ...] = ()

    def files(self) -> dict[str, bytes]:
        """Contents by file name: each result, and tables of those over items."""
        found = {f"{name}.nc": netcdf(result) for name, result in self.results.items()}
        if "item_fit" in self.results:
            found["item_fit.csv"] = to_csv(by_item(self.results["item_fit"])).encode()
        if "dif" in self.results:
            found["dif.csv"] = to_csv(dif_table(self.results["dif"])).encode()
        return found


def check_reference(config: FitTestsConfig, responses: Responses, client: Any) -> None:
    """Stop at a reference group that no person belongs to, before the long stages."""
    reference = config.dif_reference
    if reference is None:
        return
    if not responses.has_groups:
        raise InputError(
            f"tests.dif_reference = {reference!r}: the persons have no groups; give [data] "
            f"persons= with a column group, or name one in columns"
        )
    known = labels_of(responses, client)
    if reference not in known or len(known) < 2:
        raise InputError(
            f"tests.dif_reference = {reference!r}: it must be one of two groups or more, and the "
            f"persons have {listed(list(known), 10)}"
        )


def run_tests(
    responses: Responses, fit: xr.Dataset, config: FitTestsConfig, *, seed: int, **common: Any
) -> FitTests:
    """Make the tests that are asked for; ``common`` has client and progress."""
    found: dict[str, xr.Dataset] = {}
    notes = []
    weighted = responses.max_weight is not None
    if config.item_fit and not weighted:
        found["item_fit"] = item_fit(responses, fit, groups=config.groups, **common)
        if "item_sx2" not in found["item_fit"]:
            notes.append(f"item_fit: S-X2 was {found['item_fit'].attrs['s_x2']}")
        found["curves"] = item_curves(responses, fit, groups=config.groups, **common)
    if config.person_fit and not weighted:
        if responses.n_persons <= MOST_PERSONS:
            of_persons = person_fit(responses, fit, **common)
            found["person_fit"] = of_persons.drop_dims("persons")
        else:
            notes.append(
                f"person fit is not told of more than {MOST_PERSONS:,} persons: see irt-dask fit "
                f"--persons"
            )
    if weighted and (config.item_fit or config.person_fit):
        notes.append(
            f"fit of items and persons was not tested: the persons have {responses.weight_kind} "
            f"weights, which these tests do not take"
        )
    if config.dif_reference is not None:
        found["dif"] = dif(
            responses, fit, reference=config.dif_reference, focal=None, seed=seed,
            anchors=config.dif_anchors, **common,
        )  # fmt: skip
    return FitTests(found, tuple(notes))


def dif_table(tests: xr.Dataset) -> pd.DataFrame:
    """Tests of differential functioning, a row for each item and focal group.

    A single group is without the test of all groups, which is that of the group.
    """
    frames = []
    if tests.sizes["focal"] == 1:
        tests = tests.drop_vars([v for v in tests if str(v).startswith("item_dif_omnibus")])
    for label in tests["focal"].values:
        frame = by_item(tests.sel(focal=label), "item_dif_")
        frame.insert(1, "reference", tests.attrs["reference"])
        frame.insert(2, "focal", str(label))
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


# --- what a predictive check draws from ----------------------------------------------------------


def unpredictable(responses: Responses, fit: xr.Dataset) -> str | None:
    """Why persons of the fit's population cannot be drawn for these; None if they can."""
    if responses.max_weight is not None:
        return "these have weights"
    if "latent" in fit.attrs and fit.attrs["latent"] != "normal":
        return f"here it is fitted as a {fit.attrs['latent']}"
    if fit.sizes.get("groups", 1) > 1:
        return f"each of the {fit.sizes['groups']} groups has its own"
    return None


def standardised(fit: xr.Dataset) -> xr.Dataset:
    """The same items on the scale on which abilities, of one group, are N(0, 1)."""
    if "group_mean" not in fit:
        return fit
    mean, sd = (float(fit[f"group_{of}"].values[0]) for of in ("mean", "sd"))
    items = item_set(fit, bank_item_ids(fit)).rescaled(mean, sd)
    moved = described(*Mixture.of_items(items))
    return fit.assign(
        {name: (fit[name].dims, value.T) for name, (value, _) in moved.items() if name in fit}
    )
