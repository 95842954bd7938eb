"""The report of a run: one page, from what its stages left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from irt_dask.report.page import write_report
from irt_dask.store import open_responses
from irt_dask.workflow.directory import RunDirectory

#: Files of the fits that a run ends with: one of them.
POSTERIOR, MARGINAL = "posterior.nc", "marginal.nc"
#: Results that a report shows if the run has them.
_OPTIONAL = ("posterior", "marginal", "joint", "spectral", "check", "scores", "truth")
_METHODS = {"bayes": "posterior by LS-WASP", "marginal": "marginal maximum likelihood"}


def write_run_report(directory: RunDirectory) -> Path:
    """Write ``report.html`` from what the stages of a run left."""
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
    if "bank_checksum" in content:
        run.insert(-1, ("Checksum of the bank of fixed items", content["bank_checksum"][:16]))
    done = {name: s for name, s in directory.stages.items() if name != "report"}
    found: dict[str, Any] = {n: directory.find(f"{n}.nc") for n in _OPTIONAL}
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
