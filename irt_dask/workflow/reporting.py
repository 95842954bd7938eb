"""The report of a run: one page, from what its stages left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from irt_dask.report.page import write_report
from irt_dask.store import open_responses
from irt_dask.workflow.directory import RunDirectory

#: Files of the fits that a run ends with: one of them.
POSTERIOR, MARGINAL = "posterior.nc", "marginal.nc"
#: Results that a report shows if the run has them.
_OPTIONAL = ("posterior", "marginal", "joint", "spectral", "check", "scores", "truth")
#: Tests of a run, of which those over items stand in the page of each item.
TESTS = ("item_fit", "curves", "person_fit", "dif")
_OVER_ITEMS = {"item_fit": "Item fit", "dif": "DIF"}
_METHODS = {"bayes": "posterior by LS-WASP", "marginal": "marginal maximum likelihood"}


def shown(
    tests: Mapping[str, xr.Dataset], results: Mapping[str, xr.Dataset] | None = None
) -> dict[str, Any]:
    """What a page is given of the tests of a fit, and of further results over items."""
    over_items = {name: tests[n] for n, name in _OVER_ITEMS.items() if n in tests}
    return {
        "results": {**over_items, **(results or {})},
        "curves": tests.get("curves"),
        "persons": tests.get("person_fit"),
    }


def write_run_report(
    directory: RunDirectory, results: Mapping[str, xr.Dataset] | None = None
) -> Path:
    """Write ``report.html`` from what the stages of a run left, and further results over items."""
    content, config = directory.content, directory.content["config"]
    counts = directory.load("summary.nc")
    put_aside = []
    if config["data"].get("on_error") == "quarantine":
        aside = open_responses(directory.path / "responses").n_quarantined
        put_aside = [("Rows put aside", f"{aside:,}, in responses.quarantine.csv")]
    run = [
        ("Title", content["title"]),
        ("Method", _METHODS[config.get("calibrate", {}).get("method", "bayes")]),
        ("Data", content["data"]),
        ("Persons", f"{int(counts.attrs['n_persons']):,}"),
        ("Items", f"{counts.sizes['items']:,}"),
        (
            "Responses",
            f"{int(counts.attrs['n_responses']):,} ({counts.attrs['observed']:.1%} of cells)",
        ),
        *put_aside,
        ("Seed", str(config["seed"])),
        ("Data checksum", content["data_checksum"][:16]),
        ("Versions", ", ".join(f"{k} {v}" for k, v in content["versions"].items())),
    ]
    if "population" in config:
        run.insert(-1, ("Abilities", "given covariates: population.nc; tables.html has the tables"
                        if "tables" in config else "given covariates: population.nc"))  # fmt: skip
    if "bank_checksum" in content:
        run.insert(-1, ("Checksum of the bank of fixed items", content["bank_checksum"][:16]))
    done = {name: s for name, s in directory.stages.items() if name != "report"}
    found: dict[str, Any] = {n: directory.find(f"{n}.nc") for n in _OPTIONAL}
    if "population" in config:  # of abilities by domain, which the page of tables is about
        found["scores"] = None
    found |= shown({n: r for n in TESTS if (r := directory.find(f"{n}.nc")) is not None}, results)
    return write_report(
        directory.place("report.html"),
        title=content["title"],
        run=run,
        timings=[(name, s["seconds"]) for name, s in done.items()],
        notes=[f"{name}: {note}" for name, s in done.items() for note in s["notes"]],
        configuration=config,
        machines=[(m["from"], m["processors"]) for m in directory.machines],
        **found,
    )
